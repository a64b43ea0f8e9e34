"""Kernels of Triton's tutorials, compiled for sm_90 without a GPU, with a launch of each.

Needs Triton; only `tutorials` imports it, and only where that is there.

Source: Triton's tutorials 01 (vector addition), 02 (fused softmax), 03 (matrix multiplication), 05
(layer norm), 09 (matmul with tensor descriptors), in the order of `examples`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from oracles.ptx.judge import run
from oracles.ptx.launch import Argument, Buffer, Launch, Pointer, Scalar, TensorMap
from oracles.verdict import Finding, Status, Verdict

TARGET = GPUTarget("cuda", 90, 32)
ALIGNED = 16
"""What pointers (in bytes) and even numbers are known to be multiples of."""


@triton.jit
def add(  # noqa: ANN201 - Triton's types are not Python's
    x,  # noqa: ANN001
    y,  # noqa: ANN001
    out,  # noqa: ANN001
    n,  # noqa: ANN001
    BLOCK: tl.constexpr,
):
    """Add two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(  # noqa: ANN201 - Triton's types are not Python's
    out,  # noqa: ANN001
    x,  # noqa: ANN001
    stride,  # noqa: ANN001
    rows,  # noqa: ANN001
    columns,  # noqa: ANN001
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Normalise rows, each in registers."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * stride + at, mask=inside, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def matmul(  # noqa: ANN201 - Triton's types are not Python's
    a,  # noqa: ANN001
    b,  # noqa: ANN001
    c,  # noqa: ANN001
    M,  # noqa: ANN001
    N,  # noqa: ANN001
    K,  # noqa: ANN001
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Multiply two matrices, whose elements are loaded by pointers."""
    across = tl.cdiv(N, BN)
    row = tl.program_id(0) // across * BM + tl.arange(0, BM)
    column = tl.program_id(0) % across * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + (row % M)[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + (column % N)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(left, mask=depth[None, :] < K - k * BK, other=0.0)
        y = tl.load(right, mask=depth[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        left += BK
        right += BK * N
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c + row[:, None] * N + column[None, :], acc.to(tl.float16), mask=inside)


@triton.jit
def layer_norm(  # noqa: ANN201 - Triton's types are not Python's
    x,  # noqa: ANN001
    out,  # noqa: ANN001
    w,  # noqa: ANN001
    b,  # noqa: ANN001
    columns,  # noqa: ANN001
    eps,  # noqa: ANN001
    BLOCK: tl.constexpr,
):
    """Normalise rows, piece by piece."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        off = tl.where(at < columns, value - mean, 0.0)
        squares += off * off
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        slope, offset = tl.load(w + at, mask=inside), tl.load(b + at, mask=inside)
        tl.store(out + row * columns + at, (value - mean) * scale * slope + offset, mask=inside)


@triton.jit
def matmul_by_descriptors(  # noqa: ANN201 - Triton's types are not Python's
    a,  # noqa: ANN001
    b,  # noqa: ANN001
    c,  # noqa: ANN001
    M,  # noqa: ANN001
    N,  # noqa: ANN001
    K,  # noqa: ANN001
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Multiply a matrix and a transposed one, moved by TMA."""
    across = tl.cdiv(N, BN)
    row, column = tl.program_id(0) // across * BM, tl.program_id(0) % across * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        acc = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, acc)
    c.store([row, column], acc.to(tl.float16))


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel's PTX, a launch of it, and what is to stand in its buffer ``out``, so near."""

    name: str
    text: str
    launch: Launch
    wanted: np.ndarray
    near: float = 0.0

    def judged(self, text: str, seed: int) -> Verdict:
        """Execute a text on fresh memory; a value that is wrong is a failure like any other."""
        before = {name: one.data.copy() for name, one in self.launch.buffers.items()}
        try:
            verdict = run(text, self.launch, seed=seed).verdict
            out = self.launch.buffers["out"].data.view(self.wanted.dtype)
            off = np.abs(out.reshape(self.wanted.shape).astype(float) - self.wanted.astype(float))
            if verdict.status is Status.PASS and not (off <= self.near).all():
                found = Finding("value", "out", f"off by {off.max()}, at most {self.near}")
                return replace(verdict, status=Status.FAIL, findings=(found,))
            return verdict
        finally:
            for name, one in self.launch.buffers.items():
                one.data[:] = before[name]


def compiled(  # noqa: ANN201
    kernel,  # noqa: ANN001
    signature: str,
    constants: dict[str, int],
    *,
    even: bool = False,
    **options: int,
):
    """Compile a kernel; types as words, constants by name.

    Its pointers are aligned, and its integers, too, if they are `even`.
    """
    types = dict(zip(kernel.arg_names, signature.split(), strict=False))
    types |= dict.fromkeys(constants, "constexpr")
    known = ("*", "i32") if even else ("*",)
    aligned = [n for n, kind in enumerate(types.values()) if kind.startswith(known)]
    attrs = {(n,): [["tt.divisibility", ALIGNED]] for n in aligned}
    source = ASTSource(kernel, types, constants, attrs=attrs)
    return triton.compile(source, target=TARGET, options=options)


def example(
    name: str,
    made,  # noqa: ANN001
    grid: int,
    given: list[np.ndarray | float | Argument],
    wanted: np.ndarray,
    near: float = 0.0,
) -> Example:
    """Return an example of a compiled kernel; arrays among its arguments become buffers."""
    buffers = {"out": Buffer("out", np.zeros(wanted.nbytes, np.uint8))}
    buffers["scratch"] = Buffer("scratch", np.zeros(64, np.uint8))
    arguments: list[Argument] = []
    for n, one in enumerate(given):
        if isinstance(one, np.ndarray):
            raw = np.ascontiguousarray(one).view(np.uint8).reshape(-1).copy()
            buffers[f"in{n}"] = Buffer(f"in{n}", raw)
            arguments.append(Pointer(f"in{n}"))
        elif isinstance(one, float):
            arguments.append(Scalar(one, "f32"))
        elif isinstance(one, int):
            arguments.append(Scalar(one, "i32"))
        else:
            arguments.append(one)
    # Triton's own last two: memory for the kernel and for its profiler, neither of which is used.
    arguments += [Pointer("scratch")] * 2
    threads = made.metadata.num_warps * 32
    launch = Launch((grid, 1, 1), (threads, 1, 1), tuple(arguments), buffers, made.metadata.shared)
    return Example(name, made.asm["ptx"], launch, wanted, near)


def described(name: str, rows: int, columns: int) -> list[Argument]:
    """Return a tensor descriptor of f16, 64 x 64 boxes with a swizzle, as Triton passes it."""
    made = TensorMap(name, "f16", (columns, rows), (2 * columns,), (64, 64), 128)
    extents = [Scalar(rows, "i32"), Scalar(columns, "i32")]
    return [made, *extents, Scalar(columns, "i64"), Scalar(1, "i64")]


def examples() -> Iterator[Example]:
    """Yield every kernel with a launch."""
    rng = np.random.default_rng(0)
    out = Pointer("out")
    x, y = (rng.standard_normal(1500).astype(np.float32) for _ in range(2))
    made = compiled(add, "*fp32 *fp32 *fp32 i32", {"BLOCK": 1024})
    yield example("add", made, 2, [x, y, out, 1500], x + y)

    x = rng.standard_normal((9, 200)).astype(np.float32)
    powers = np.exp(x - x.max(1, keepdims=True))
    made = compiled(softmax, "*fp32 *fp32 i32 i32 i32", {"BLOCK": 256, "STAGES": 4}, num_warps=8)
    yield example(
        "softmax", made, 2, [out, x, 200, 9, 200], powers / powers.sum(1, keepdims=True), 1e-6
    )

    m, n, k = 80, 96, 304
    a, b = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    tile = {"BM": 64, "BN": 64, "BK": 32}
    made = compiled(matmul, "*fp16 *fp16 *fp16 i32 i32 i32", tile, even=True)
    given = [a.astype(np.float16), b.astype(np.float16), out, m, n, k]
    yield example("matmul", made, 4, given, (a @ b).astype(np.float16))

    x = rng.standard_normal((3, 400)).astype(np.float16)
    w, offset = (rng.standard_normal(400).astype(np.float16) for _ in range(2))
    wide = x.astype(float)
    scale = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    wanted = ((wide - wide.mean(1, keepdims=True)) * scale * w + offset).astype(np.float16)
    made = compiled(layer_norm, "*fp16 *fp16 *fp16 *fp16 i32 fp32", {"BLOCK": 256})
    yield example("layer_norm", made, 3, [x, out, w, offset, 400, 1e-5], wanted, 4e-3)

    k = 448
    a, b = (rng.integers(-2, 3, (rows, k)).astype(np.float16) for rows in (m, n))
    box = "tensordesc<fp16[64,64]>"
    tile = {"BM": 64, "BN": 64, "BK": 64}
    made = compiled(matmul_by_descriptors, f"{box} {box} {box} i32 i32 i32", tile)
    given = [*described("a", m, k), *described("b", n, k), *described("out", m, n), m, n, k]
    wanted = (a.astype(float) @ b.astype(float).T).astype(np.float16)
    found = example("matmul by descriptors", made, 4, given, wanted)
    for name, array in (("a", a), ("b", b)):
        found.launch.buffers[name] = Buffer(name, array.view(np.uint8).reshape(-1).copy())
    yield found
