"""Reductions that several tests compile."""

from __future__ import annotations

from dataclasses import replace

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.pipeline import Program
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuser.schedule.segment import Segment, segments
from fuzz.cases.case import Case, compiled

OPS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def reduced(op: str = "sum", dims: tuple[int, ...] = (1,), dtype: str = "bf16") -> Fusion:
    """One reduction of a matrix."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    fd.add_output(getattr(fd.ops, op)(x, list(dims)))
    return fd.fusion()


DIRECT = ReductionParams((4, 128), 8, 4, None, "direct", "direct", splits=3)


TMA = replace(DIRECT, load="tma", stages=3, prefetch=2)


DIMS = {"rows": (1,), "columns": (0,), "all": (0, 1)}


def program(fusion: Fusion, params: PointwiseParams, extents: dict[str, int]) -> Program:
    """A fusion as it is compiled for these extents."""
    return compiled(Case(fusion, params, extents, "integers", 0))


def kernel(params: PointwiseParams, fusion: Fusion | None = None) -> kir.Kernel:
    """The one kernel of a fusion, the sum of rows if none is given."""
    (launch,) = program(fusion or reduced(), params, {"m": 9, "n": 520}).launches
    return launch.kernel


def without(made: kir.Kernel, one: kir.Stmt) -> kir.Kernel:
    """The kernel with one statement left out."""
    return made.rewrite(lambda stmt: [] if stmt is one else None)


PARAMS = PointwiseParams((4, 64), 4, 2, None, "direct", "direct")


def segment(
    rank: int, dims: list[int], order: list[int] | None = None, gaps: list[bool] | None = None
) -> Segment:
    """The kernel that adds up axes of a tensor."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * rank, "f32", gaps, order)
    fd.add_output(fd.ops.sum(x, dims))
    (one,) = segments(fd.fusion())
    return one
