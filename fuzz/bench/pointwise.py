"""Rows of pointwise fusions: of large tensors, in different orders, of odd rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime.executable import Executable, host_us
from fuser.schedule.params import Mechanism, PointwiseParams
from fuzz.bench.row import Form, Peers, Row, Tensors, random_bf16, together

ELEMENTS = 1 << 28
BF16, F32 = torch.bfloat16, torch.float32
HALF = ELEMENTS // 2
"""Elements of a tensor, of rows that have several, or wider ones."""
WIDE = (16384, 8192)
"""As many, as a matrix."""
COST_ROUNDS = 9
"""How often the host cost of a call is taken; the least counts."""


@dataclass(frozen=True)
class Pointwise(Row):
    """A row of tensors of these shapes and of a type, and an output as large as the largest.

    Copies of as many bytes are timed beside it where they are its `roof`.
    """

    formula: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.bfloat16
    out: torch.dtype = torch.bfloat16
    roof: bool = True
    tolerance = 0.05

    @property
    def says(self) -> str:
        """What it computes."""
        return self.formula

    @property
    def nbytes(self) -> int:
        """Those of all tensors."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        return sum(sizes) * self.dtype.itemsize + max(sizes) * self.out.itemsize

    def inputs(self) -> Tensors:
        """Return numbers in [-1, 1]."""
        return tuple(random_bf16(*shape).to(self.dtype) for shape in self.shapes)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare all with torch in f32."""
        (want,) = together(self.form(*(t.float() for t in given)))
        return float((outs[0].float() - want).abs().max())

    def candidates(self) -> dict[str, PointwiseParams]:
        """Return schedules of every family."""
        out = {}
        for warps, vectors in ((4, 1), (4, 2), (8, 1), (8, 2), (4, 4)):
            tile = (1, 32 * warps * 8 * vectors)
            name = f"direct w{warps} v{vectors}"
            out[name] = PointwiseParams(tile, 8, warps, None, "direct", "direct")
        for warps, vectors, ctas in ((4, 2, 8), (8, 2, 4), (16, 2, 2)):
            tile = (1, 32 * warps * 8 * vectors)
            name = f"direct persistent w{warps} v{vectors} c{ctas}"
            out[name] = PointwiseParams(tile, 8, warps, ctas, "direct", "direct")
        stores: tuple[tuple[int, int, Mechanism], ...]
        stores = ((4, 8, "direct"), (4, 16, "direct"), (4, 16, "tma"))
        for warps, height, store in stores:
            name = f"tma one tile w{warps} {height}x256, {store} store"
            out[name] = PointwiseParams((height, 256), 8, warps, None, "tma", store)
        for warps, height, stages, ctas in ((8, 32, 4, 2), (8, 16, 3, 6), (16, 64, 3, 1)):
            tile = (height, 256)
            name = f"w{warps} {height}x256 s{stages} c{ctas}"
            ring = (stages, stages - 1)
            out[f"tma pipelined {name}"] = PointwiseParams(
                tile, 8, warps, ctas, "tma", "direct", *ring
            )
            out[f"tma specialized {name}"] = PointwiseParams(
                tile, 8, warps, ctas, "tma", "direct", stages, 0, warp_specialized=True
            )
        return out

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch, and copies of as many bytes."""
        roof = copies(self.nbytes) if self.roof else {}
        return super().peers(outs, compiled=compiled) | roof


def rows() -> list[Row]:
    """Return the rows X1 to X8 of large tensors, T1 to T6 of transposes, O1 and O2 of odd rows."""
    return [*_large(), *_transposes(), *_odd()]


def _large() -> list[Row]:
    flat, wide = (ELEMENTS,), (ELEMENTS // 8192, 8192)
    scaled = (flat, *[(1,)] * 3)
    tanh, erf = partial(functional.gelu, approximate="tanh"), functional.gelu
    return [
        Pointwise("X1", _sum, lambda x, y: x + y, "x + y", (flat, flat)),
        Pointwise("X2", partial(_scaled, "gelu_tanh"), _gelu(tanh), "gelu(tanh)(x*a+b)*s", scaled),
        Pointwise("X3", partial(_scaled, "gelu"), _gelu(erf), "gelu(erf)(x*a+b)*s", scaled),
        Pointwise(
            "X4",
            partial(_residual, "gelu_tanh"),
            lambda x, bias, r: tanh(x + bias) + r,
            "gelu(tanh)(x+bias)+r",
            (wide, (8192,), wide),
        ),
        Pointwise("X5", _gated, lambda g, u: functional.silu(g) * u, "silu(g)*u", (WIDE, WIDE)),
        Pointwise("X6", _triad, lambda x, y: 1.5 * x + y, "1.5*x+y, f32", ((HALF,),) * 2, F32, F32),
        Pointwise("X7", _widened, lambda x: x.float() * 1.5, "f32(x)*1.5", ((HALF,),), out=F32),
        Pointwise(
            "X8",
            partial(_residual, "gelu"),
            lambda x, bias, r: erf(x + bias) + r,
            "gelu(erf)(x+bias)+r",
            (WIDE, WIDE[1:], WIDE),
        ),
    ]


def _transposes() -> list[Row]:
    out: list[Row] = []
    for shape, dtype in (((8192, 8192), BF16), ((8192, 8192), F32), ((4099, 6001), BF16)):
        name, across = f"T{len(out) + 1}", (shape[1], shape[0])
        says = f"x + y.T, {shape[0]} x {shape[1]} {dtype}".replace("torch.", "")
        make = partial(_turned, str(dtype).removeprefix("torch."))
        out.append(Pointwise(name, make, lambda x, y: x + y.T, says, (shape, across), dtype, dtype))
    for dims in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1)):
        form = partial(_permuted, dims=dims)
        says = f"permute{dims} of 256 x 512 x 1024".replace(" ", "", 2)
        out.append(
            Pointwise(f"T{len(out) + 1}", partial(_moved, dims), form, says, ((256, 512, 1024),))
        )
    return out


def _odd() -> list[Row]:
    shape = (20011, 4099)
    return [
        Pointwise("O1", _relu, torch.relu, "relu, 20011 x 4099", (shape,)),
        Pointwise("O2", partial(_sum, 2), torch.add, "x + y, 20011 x 4099", (shape, shape)),
    ]


def call_cost() -> dict[str, float]:
    """Return host microseconds of x + y: a call of ours, torch.add, a bare launch of our kernel.

    The least of several, taken in turns: others on the machine only add to them.
    """
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="f32") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    run = Executable(fd.fusion())
    given = (torch.rand(1024, device="cuda"), torch.rand(1024, device="cuda"))
    taken = [(*run.host_cost(*given), host_us(torch.add, *given)) for _ in range(COST_ROUNDS)]
    ours, bare, added = map(min, zip(*taken, strict=True))
    return {"ours": ours, "torch.add": added, "bare launch": bare}


def copies(nbytes: int) -> Peers:
    """Return copies that read and write `nbytes` in all by 16-byte accesses, in four shapes."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.set(fd.define_tensor(shape=[-1], dtype="f32")))
    pairs = [[torch.rand(nbytes // 8, device="cuda") for _ in range(2)] for _ in range(2)]
    peers: Peers = {}
    for warps, vectors in ((4, 1), (4, 2), (8, 2), (4, 4)):
        tile = (1, 32 * warps * 4 * vectors)
        run = Executable(fd.fusion(), PointwiseParams(tile, 4, warps, None, "direct", "direct"))
        following = cycle((partial(run, source, out=[target]) for source, target in pairs))
        peers[f"copy w{warps} v{vectors}"] = lambda *_, following=following: next(following)()
    return peers


def _sum(rank: int = 1) -> Fusion:
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1] * rank, dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    return fd.fusion()


def _relu() -> Fusion:
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor(shape=[-1, -1], dtype="bf16")))
    return fd.fusion()


def _gated() -> Fusion:
    fd = FusionDefinition()
    gate, up = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.mul(fd.ops.silu(gate), up))
    return fd.fusion()


def _triad() -> Fusion:
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="f32") for _ in range(2))
    fd.add_output(fd.ops.add(fd.ops.mul(x, 1.5), y))
    return fd.fusion()


def _widened() -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="bf16")
    fd.add_output(fd.ops.mul(fd.ops.cast(x, "f32"), 1.5))
    return fd.fusion()


def _turned(dtype: str) -> Fusion:
    fd = FusionDefinition()
    short = {"bfloat16": "bf16", "float32": "f32"}[dtype]
    x, y = (fd.define_tensor(shape=[-1, -1], dtype=short) for _ in range(2))
    fd.add_output(fd.ops.add(x, fd.ops.permute(y, [1, 0])))
    return fd.fusion()


def _moved(dims: tuple[int, ...]) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1] * len(dims), dtype="bf16")
    fd.add_output(fd.ops.set(fd.ops.permute(x, list(dims))))
    return fd.fusion()


def _permuted(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return x.permute(dims).contiguous()


def _gelu(act: Form) -> Form:
    return lambda x, a, b, s: act(x * a + b) * s


def _scaled(op: str) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="bf16")
    a, b, s = (fd.define_tensor(shape=[1], dtype="bf16") for _ in range(3))
    fd.add_output(fd.ops.mul(getattr(fd.ops, op)(fd.ops.add(fd.ops.mul(x, a), b)), s))
    return fd.fusion()


def _residual(op: str) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    wide = fd.ops.broadcast(bias, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.add(getattr(fd.ops, op)(fd.ops.add(x, wide)), r))
    return fd.fusion()
