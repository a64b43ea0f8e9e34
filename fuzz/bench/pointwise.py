"""Rows of pointwise fusions over 2^28 elements: `x + y`, scaled gelu, bias + gelu + residual."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import torch
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime.executable import Executable
from fuser.schedule.params import Mechanism, PointwiseParams
from fuzz.bench.row import Form, Peers, Row, Tensors, by_torch, random_bf16

ELEMENTS = 1 << 28
PROBE = 1 << 12
"""Elements, or rows of a matrix, that are compared with torch in f64."""


def rows() -> list[Row]:
    """Return the rows X1 to X4, bf16."""
    wide = (ELEMENTS // 8192, 8192)
    gelu = {how: _gelu(how) for how in ("tanh", "none")}
    return [
        _row("X1", "x + y", _sum, lambda x, y: x + y, ((ELEMENTS,), (ELEMENTS,))),
        *(
            _row(
                name, f"gelu({words})(x*a+b)*s", _scaled(how), gelu[how], ((ELEMENTS,), *[(1,)] * 3)
            )
            for name, words, how in (("X2", "tanh", "tanh"), ("X3", "erf", "none"))
        ),
        _row(
            "X4",
            "gelu(tanh)(x+bias)+r",
            _residual,
            lambda x, bias, r: functional.gelu(x + bias, approximate="tanh") + r,
            (wide, (8192,), wide),
        ),
    ]


def _row(
    name: str,
    says: str,
    fusion: Callable[[], Fusion],
    form: Form,
    shapes: tuple[tuple[int, ...], ...],
) -> Row:
    def error(given: Tensors, out: torch.Tensor) -> float:
        want = form(*(t.double() if t.numel() < 1 << 20 else t[:PROBE].double() for t in given))
        return float((out[: len(want)].double() - want).abs().max())

    large = sum(torch.Size(shape).numel() == ELEMENTS for shape in shapes) + 1
    nbytes = 2 * large * ELEMENTS
    return Row(
        name,
        says,
        fusion,
        form,
        lambda: tuple(random_bf16(*shape) for shape in shapes),
        nbytes,
        error,
        0.05,
        candidates,
        lambda out, compiled: by_torch(form, compiled=compiled) | _copies(nbytes),
    )


def candidates() -> dict[str, PointwiseParams]:
    """Schedules of every family."""
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
        out[f"tma pipelined {name}"] = PointwiseParams(tile, 8, warps, ctas, "tma", "direct", *ring)
        out[f"tma specialized {name}"] = PointwiseParams(
            tile, 8, warps, ctas, "tma", "direct", stages, 0, warp_specialized=True
        )
    return out


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
        peers[f"copy w{warps} v{vectors}"] = _rotated(run, pairs)
    return peers


def _rotated(run: Executable, pairs: list[list[torch.Tensor]]) -> Callable[..., object]:
    following = cycle(pairs)

    def once(*_: torch.Tensor) -> None:
        source, target = next(following)
        run(source, out=[target])

    return once


def _sum() -> Fusion:
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    return fd.fusion()


def _gelu(how: str) -> Form:
    return lambda x, a, b, s: functional.gelu(x * a + b, approximate=how) * s


def _scaled(how: str) -> Callable[[], Fusion]:
    def make() -> Fusion:
        fd = FusionDefinition()
        x = fd.define_tensor(shape=[-1], dtype="bf16")
        a, b, s = (fd.define_tensor(shape=[1], dtype="bf16") for _ in range(3))
        inner = fd.ops.add(fd.ops.mul(x, a), b)
        act = fd.ops.gelu_tanh(inner) if how == "tanh" else fd.ops.gelu(inner)
        fd.add_output(fd.ops.mul(act, s))
        return fd.fusion()

    return make


def _residual() -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    wide = fd.ops.broadcast(bias, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.add(fd.ops.gelu_tanh(fd.ops.add(x, wide)), r))
    return fd.fusion()
