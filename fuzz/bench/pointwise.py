"""Rows of pointwise fusions over 2^28 elements: `x + y`, scaled gelu, bias + gelu + residual."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime.executable import Executable
from fuser.schedule.params import Mechanism, PointwiseParams
from fuzz.bench.row import Form, Peers, Row, Tensors, random_bf16, together

ELEMENTS = 1 << 28
PROBE = 1 << 12
"""Elements, or rows of a matrix, that are compared with torch in f64."""


@dataclass(frozen=True)
class Pointwise(Row):
    """A row of tensors of these shapes, and an output like the first."""

    formula: str
    shapes: tuple[tuple[int, ...], ...]
    tolerance = 0.05

    @property
    def says(self) -> str:
        """What it computes."""
        return self.formula

    @property
    def nbytes(self) -> int:
        """Those of the large tensors."""
        large = sum(torch.Size(shape).numel() == ELEMENTS for shape in self.shapes) + 1
        return 2 * large * ELEMENTS

    def inputs(self) -> Tensors:
        """Return numbers in [-1, 1]."""
        return tuple(random_bf16(*shape) for shape in self.shapes)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare the beginning with torch in f64."""
        (out,) = outs
        few = [t.double() if t.numel() < 1 << 20 else t[:PROBE].double() for t in given]
        (want,) = together(self.form(*few))
        return float((out[: len(want)].double() - want).abs().max())

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
        return super().peers(outs, compiled=compiled) | _copies(self.nbytes)


def rows() -> list[Row]:
    """Return the rows X1 to X4, bf16."""
    flat, wide = (ELEMENTS,), (ELEMENTS // 8192, 8192)
    scaled = (flat, *[(1,)] * 3)
    tanh, erf = partial(functional.gelu, approximate="tanh"), functional.gelu
    return [
        Pointwise("X1", _sum, lambda x, y: x + y, "x + y", (flat, flat)),
        Pointwise("X2", partial(_scaled, "gelu_tanh"), _gelu(tanh), "gelu(tanh)(x*a+b)*s", scaled),
        Pointwise("X3", partial(_scaled, "gelu"), _gelu(erf), "gelu(erf)(x*a+b)*s", scaled),
        Pointwise(
            "X4",
            _residual,
            lambda x, bias, r: tanh(x + bias) + r,
            "gelu(tanh)(x+bias)+r",
            (wide, (8192,), wide),
        ),
    ]


def call_overhead() -> tuple[float, float]:
    """Return host microseconds of one call of ours, and of a bare launch of the same kernel."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="f32") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    a, b = torch.rand(1024, device="cuda"), torch.rand(1024, device="cuda")
    return Executable(fd.fusion()).host_cost(a, b)


def _copies(nbytes: int) -> Peers:
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


def _sum() -> Fusion:
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    return fd.fusion()


def _gelu(act: Form) -> Form:
    return lambda x, a, b, s: act(x * a + b) * s


def _scaled(op: str) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="bf16")
    a, b, s = (fd.define_tensor(shape=[1], dtype="bf16") for _ in range(3))
    fd.add_output(fd.ops.mul(getattr(fd.ops, op)(fd.ops.add(fd.ops.mul(x, a), b)), s))
    return fd.fusion()


def _residual() -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    wide = fd.ops.broadcast(bias, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.add(fd.ops.gelu_tanh(fd.ops.add(x, wide)), r))
    return fd.fusion()
