"""Kernels as Triton's tutorials have them, and two of Gluon, with a launch of each.

Needs Triton; only `tutorials` imports it, and only where that is there.

Source: Triton's tutorials 01 (vector addition), 02 (fused softmax), 03 (matrix multiplication), 04
(dropout), 05 (layer norm, forward, and sums behind a lock as backward), 06 (attention), 09
(persistent matmul with tensor descriptors, of the host and of the kernel; with warps specialised),
08 (grouped matmul with descriptors that each group makes anew); Gluon's of TMA and warp-group MMA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import triton
import triton.language as tl
from torch.nn.functional import layer_norm as layer_norm_of_torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from oracles.ptx.judge import run
from oracles.ptx.of_triton import Compiled, compiled
from oracles.verdict import Finding, Status, Verdict


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(out, x, stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Normalise rows, each in registers."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * stride + at, mask=inside, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.autotune(
    [
        triton.Config({"BM": 64, "BN": 64, "BK": 32}),
        triton.Config({"BM": 64, "BN": 32, "BK": 64}, num_stages=4),
    ],
    key=["M"],
)
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
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
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    """Leave out numbers at random, by Philox."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kept = tl.rand(seed, at) > p
    value = tl.load(x + at, mask=inside)
    tl.store(out + at, tl.where(kept, value / (1 - p), 0.0), mask=inside)


@triton.jit
def layer_norm(x, out, w, b, columns, eps, BLOCK: tl.constexpr):
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
def locked_sums(x, out, lock, columns, BLOCK: tl.constexpr):
    """Add up rows of several CTAs, one after the other behind a lock; the first one stores."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + tl.program_id(0) * columns + at, mask=inside, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(lock + 1) == 0:
        tl.atomic_xchg(lock + 1, 1)
    else:
        value += tl.load(out + at, mask=inside)
    tl.store(out + at, value, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention(q, k, v, out, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attend to all of a sequence, with the running maximum and sum of each row."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1) * length * D
    wide = tl.arange(0, D)
    mine = tl.load(q + head + row[:, None] * D + wide[None, :])
    most = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    for first in range(0, length, BN):
        at = first + tl.arange(0, BN)
        keys = tl.load(k + head + at[None, :] * D + wide[:, None])
        score = tl.dot(mine, keys) * scale
        larger = tl.maximum(most, tl.max(score, 1))
        power = tl.exp2(score - larger[:, None])
        less = tl.exp2(most - larger)
        total = total * less + tl.sum(power, 1)
        values = tl.load(v + head + at[:, None] * D + wide[None, :])
        acc = tl.dot(power.to(tl.float16), values, acc * less[:, None])
        most = larger
    tl.store(out + head + row[:, None] * D + wide[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def matmul_by_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply a matrix and a transposed one, moved by TMA."""
    across = tl.cdiv(N, BN)
    row, column = tl.program_id(0) // across * BM, tl.program_id(0) % across * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        acc = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def persistent_matmul(
    a, b, c, M, N, K, CTAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Do the same by as many CTAs as run at once, each of which has several tiles in turn."""
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, CTAS, flatten=True):
        row, column = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, acc)
        c.store([row, column], acc.to(tl.float16))


@triton.jit
def persistent_matmul_of_pointers(
    a, b, c, M, N, K,
    CTAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr,
):  # fmt: skip
    """Do the same through tensor maps that each CTA makes of pointers."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, CTAS, flatten=not WS, warp_specialize=WS):
        row, column = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(left.load([row, k * BK]), right.load([column, k * BK]).T, acc)
        out.store([row, column], acc.to(tl.float16))


@triton.jit
def grouped_matmul(
    a, b, c, sizes, begins, groups,
    CTAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Multiply several pairs of matrices; each CTA makes the maps of a group before its tiles."""
    tile = tl.program_id(0)
    before = 0
    for group in tl.range(groups):
        M, N = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1)
        K = tl.load(sizes + 3 * group + 2)
        across = tl.cdiv(N, BN)
        behind = before + tl.cdiv(M, BM) * across
        if tile >= before and tile < behind:
            first, second = a + tl.load(begins + 3 * group), b + tl.load(begins + 3 * group + 1)
            third = c + tl.load(begins + 3 * group + 2)
            left = tl.make_tensor_descriptor(first, [M, K], [K, 1], [BM, BK])
            right = tl.make_tensor_descriptor(second, [N, K], [K, 1], [BN, BK])
            out = tl.make_tensor_descriptor(third, [M, N], [N, 1], [BM, BN])
            while tile >= before and tile < behind:
                row, column = (tile - before) // across * BM, (tile - before) % across * BN
                acc = tl.zeros((BM, BN), dtype=tl.float32)
                for k in range(tl.cdiv(K, BK)):
                    acc = tl.dot(left.load([row, k * BK]), right.load([column, k * BK]).T, acc)
                out.store([row, column], acc.to(tl.float16))
                tile += CTAS
        before = behind


@gluon.jit
def gluon_add(x, out, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """Add 1 to tiles that TMA brings and takes away."""
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.block_type.nbytes)
    tma.async_load(x, [0, gl.program_id(0) * BLOCK], full, tile)
    mbarrier.wait(full, phase=0)
    mbarrier.invalidate(full)
    value = tile.load(LAYOUT)
    tile.store(value + 1)
    hopper.fence_async_shared()
    tma.async_store(out, [0, gl.program_id(0) * BLOCK], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def gluon_matmul(a, b, c, K, SLOTS: gl.constexpr, WARPS: gl.constexpr):
    """Multiply by warp-group MMA from a ring of slots that TMA fills, one product in flight."""
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    BK: gl.constexpr = a.block_shape[1]
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, [SLOTS, a.block_shape[0], BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [SLOTS, BK, BN], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
    shape: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, BN, 16])
    acc = hopper.warpgroup_mma_init(gl.zeros((BM, BN), dtype=gl.float32, layout=shape))
    steps = gl.cdiv(K, BK)
    for step in gl.static_range(SLOTS - 1):
        if step < steps:
            mbarrier.expect(full.index(step), a.block_type.nbytes + b.block_type.nbytes)
            tma.async_load(a, [row, step * BK], full.index(step), left.index(step))
            tma.async_load(b, [step * BK, column], full.index(step), right.index(step))
    for step in range(steps):
        now = step % SLOTS
        mbarrier.wait(full.index(now), phase=step // SLOTS & 1)
        acc = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        acc = hopper.warpgroup_mma(left.index(now), right.index(now), acc, is_async=True)
        ahead = step + SLOTS - 1
        if ahead < steps:
            next_ = ahead % SLOTS
            mbarrier.expect(full.index(next_), a.block_type.nbytes + b.block_type.nbytes)
            tma.async_load(a, [row, ahead * BK], full.index(next_), left.index(next_))
            tma.async_load(b, [ahead * BK, column], full.index(next_), right.index(next_))
    acc = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    for slot in gl.static_range(SLOTS):
        mbarrier.invalidate(full.index(slot))
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    tile.store(acc.to(c.dtype))
    hopper.fence_async_shared()
    tma.async_store(c, [row, column], tile)
    tma.store_wait(pendings=0)


@dataclass(frozen=True, slots=True)
class Example:
    """A launch of a kernel, and what is to stand in a tensor afterwards, so near."""

    name: str
    made: Compiled
    out: torch.Tensor
    wanted: torch.Tensor
    near: float = 0.0

    @property
    def text(self) -> str:
        """Its PTX."""
        return self.made.text

    @property
    def reached(self) -> frozenset[int]:
        """Lines of synchronising instructions that its launch executes."""
        return run(self.text, self.made.launch).reached

    def judged(self, text: str, seed: int) -> Verdict:
        """Execute a text on fresh memory; a value that is wrong is a failure like any other."""
        buffers = self.made.launch.buffers
        before = {name: one.data.copy() for name, one in buffers.items()}
        try:
            verdict = self.made.judged((seed,), text)
            off = (self.out.double() - self.wanted.double()).abs()
            if verdict.status is Status.PASS and not bool((off <= self.near).all()):
                says = f"off by {float(off.max()):.3g}, at most {self.near}"
                found = Finding("value", "out", says)
                return replace(verdict, status=Status.FAIL, findings=(found,))
            return verdict
        finally:
            for name, one in buffers.items():
                one.data[:] = before[name]


def examples() -> Iterator[Example]:
    """Yield every kernel with a launch."""
    torch.manual_seed(0)

    def small(*shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape).half()

    x, y, out = torch.randn(1500), torch.randn(1500), torch.zeros(1500)
    made = compiled(
        add, lambda meta: (triton.cdiv(1500, meta["BLOCK"]),), x, y, out, 1500, BLOCK=1024
    )
    yield Example("add", made, out, x + y)

    x, out = torch.randn(9, 200), torch.zeros(9, 200)
    made = compiled(softmax, (2,), out, x, 200, 9, 200, BLOCK=256, STAGES=4, num_warps=8)
    yield Example("softmax", made, out, x.softmax(1), 1e-6)

    m, n, k = 80, 96, 304
    a, b = small(m, k), small(k, n)
    for config in range(2):
        c = torch.zeros(m, n).half()
        grid = lambda meta: (triton.cdiv(80, meta["BM"]) * triton.cdiv(96, meta["BN"]),)  # noqa: E731
        made = compiled(matmul, grid, a, b, c, m, n, k, config=config)
        yield Example(f"matmul {config}", made, c, (a.float() @ b.float()).half())

    x, out = torch.randn(1000), torch.zeros(1000)
    made = compiled(dropout, (1,), x, out, 1000, 0.5, 123, BLOCK=1024)
    yield Example("dropout", made, out, torch.from_numpy(np.where(_kept(123, 1000), x * 2, 0)))

    x, w, offset = torch.randn(3, 400).half(), torch.randn(400).half(), torch.randn(400).half()
    out = torch.zeros(3, 400).half()
    made = compiled(layer_norm, (3,), x, out, w, offset, 400, 1e-5, BLOCK=256)
    wanted = layer_norm_of_torch(x.double(), (400,), w.double(), offset.double(), 1e-5)
    yield Example("layer norm", made, out, wanted.half(), 4e-3)

    x, out, lock = small(5, 200).float(), torch.zeros(200), torch.zeros(2, dtype=torch.int32)
    made = compiled(locked_sums, (5,), x, out, lock, 200, BLOCK=256)
    yield Example("sums behind a lock", made, out, x.sum(0))

    q, keys, v = (torch.randn(2, 128, 64).half() for _ in range(3))
    out = torch.zeros_like(q)
    scale = 0.125 / float(np.log(2))
    made = compiled(attention, (2, 2), q, keys, v, out, scale, 128, BM=64, BN=32, D=64)
    wanted = (q.double() @ keys.double().transpose(1, 2) * 0.125).softmax(2) @ v.double()
    yield Example("attention", made, out, wanted.half(), 4e-3)

    a, b = small(m, 448), small(n, 448)
    wanted = (a.float() @ b.float().T).half()
    tile = {"BM": 64, "BN": 64, "BK": 64}
    c = torch.zeros(m, n).half()
    given = [TensorDescriptor.from_tensor(one, [64, 64]) for one in (a, b, c)]
    made = compiled(matmul_by_descriptors, (4,), *given, m, n, 448, **tile)
    yield Example("matmul by descriptors", made, c, wanted)
    c = torch.zeros(m, n).half()
    given = [TensorDescriptor.from_tensor(one, [64, 64]) for one in (a, b, c)]
    made = compiled(persistent_matmul, (3,), *given, m, n, 448, CTAS=3, **tile)
    yield Example("persistent matmul", made, c, wanted)

    yield from _of_gluon(small(64, 448), small(448, 128))
    yield from _of_pointers()


def _of_pointers() -> Iterator[Example]:
    """Yield kernels that make tensor maps."""

    def small(*shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape).half()

    m, n, k = 80, 96, 304
    a, b, c = small(m, k), small(n, k), torch.zeros(m, n).half()
    tile = {"CTAS": 2, "BM": 64, "BN": 64, "BK": 64}
    made = compiled(persistent_matmul_of_pointers, (2,), a, b, c, m, n, k, WS=False, **tile)
    yield Example("persistent matmul, maps of its own", made, c, (a.float() @ b.float().T).half())
    c = torch.zeros(m, n).half()
    tile["BM"] = 128  # Triton shares a tile between two groups of warps, each of 64 rows
    made = compiled(persistent_matmul_of_pointers, (2,), a, b, c, m, n, k, WS=True, **tile)
    yield Example("the same, warps specialised", made, c, (a.float() @ b.float().T).half())

    sizes = [(80, 96, 144), (64, 40, 80), (130, 64, 64)]
    lefts = [small(m, k) for m, _, k in sizes]
    rights = [small(n, k) for _, n, k in sizes]
    outs = [(x.float() @ y.float().T).half() for x, y in zip(lefts, rights, strict=True)]
    starts = [_begins(parts) for parts in (lefts, rights, outs)]
    flat = [torch.cat([one.reshape(-1) for one in parts]) for parts in (lefts, rights, outs)]
    c = torch.zeros_like(flat[2])
    numbers = torch.tensor(sizes, dtype=torch.int32)
    begins = torch.tensor(starts, dtype=torch.int32).T.contiguous()
    tile = {"CTAS": 2, "BM": 64, "BN": 32, "BK": 64}
    made = compiled(grouped_matmul, (2,), *flat[:2], c, numbers, begins, 3, **tile)
    yield Example("grouped matmul, maps for each group", made, c, flat[2])


def _begins(parts: list[torch.Tensor]) -> list[int]:
    """Return where each of several tensors begins, one behind the other, in elements."""
    return [sum(one.numel() for one in parts[:n]) for n in range(len(parts))]


def _of_gluon(a: torch.Tensor, b: torch.Tensor) -> Iterator[Example]:
    x, out = a.clone(), torch.zeros_like(a)
    box = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    given = [GluonDescriptor.from_tensor(one, [64, 64], box) for one in (x, out)]
    held = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    made = compiled(gluon_add, (7,), *given, BLOCK=64, LAYOUT=held, num_warps=4)
    yield Example("Gluon: add by TMA", made, out, x + 1)

    c = torch.zeros(64, 128).half()
    given = [GluonDescriptor.from_tensor(one, [64, 64], box) for one in (a, b, c)]
    made = compiled(gluon_matmul, (1, 2), *given, 448, SLOTS=3, WARPS=4, num_warps=4)
    yield Example("Gluon: matmul", made, c, (a.float() @ b.float()).half())


def _kept(seed: int, count: int) -> np.ndarray:
    """Which numbers dropout leaves, by Philox 4x32 of ten rounds on NumPy's integers.

    Source: Triton's `language/random.py`; Salmon and others, "Parallel random numbers: as easy as
    1, 2, 3" (2011).
    """
    c = [np.arange(count, dtype=np.uint64), *(np.zeros(count, np.uint64) for _ in range(3))]
    keys, low = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ np.uint64(keys[0]), second & low,
            (first >> np.uint64(32)) ^ c[3] ^ np.uint64(keys[1]), first & low,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = c[0].astype(np.uint32).view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed) * np.float32(4.6566127342e-10) > 0.5
