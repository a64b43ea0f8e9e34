"""Kernels that walk all axes as one: rows end anywhere, and inputs without some axes repeat."""

from __future__ import annotations

from collections.abc import Callable

import judged
import pytest

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, specs

DIRECT = PointwiseParams((1, 256), 8, 1, None, "direct", "direct", flat=True)
RING = PointwiseParams((1, 256), 8, 1, 2, "tma", "direct", 2, 1, flat=True)
BULK = PointwiseParams((1, 256), 8, 1, 2, "bulk", "direct", 3, 2, flat=True)
ROLES = PointwiseParams((1, 256), 8, 1, 2, "bulk", "direct", 3, warp_specialized=True, flat=True)

Define = Callable[..., TensorView]


def fusion(define: Define, *shapes: tuple[str, ...], dtype: str = "bf16") -> Fusion:
    """Return a fusion of inputs of these shapes."""
    with FusionDefinition() as fd:
        inputs = [fd.define_tensor(shape=list(shape), dtype=dtype) for shape in shapes]
        fd.add_output(define(fd, *inputs))
    return fd.fusion()


def _row(fd: FusionDefinition, x: TensorView, y: TensorView) -> TensorView:
    return fd.ops.mul(x, fd.ops.broadcast(y, [True, False]))


def _column(fd: FusionDefinition, x: TensorView, y: TensorView) -> TensorView:
    return fd.ops.mul(x, fd.ops.broadcast(y, [False, True]))


def _middle(fd: FusionDefinition, x: TensorView, y: TensorView) -> TensorView:
    return fd.ops.mul(x, fd.ops.broadcast(y, [False, True, False]))


ROW = fusion(_row, ("R", "C"), ("C",))
COLUMN = fusion(_column, ("R", "C"), ("R",))
MIDDLE = fusion(_middle, ("R", "K", "C"), ("R", "C"), dtype="f32")


@pytest.mark.parametrize(
    "params", [DIRECT, RING, BULK, ROLES], ids=["direct", "ring", "bulk", "roles"]
)
@pytest.mark.parametrize("subject", [ROW, COLUMN, MIDDLE], ids=["row", "column", "middle"])
@pytest.mark.parametrize("sizes", [(5, 293), (7, 296), (1, 1), (300, 3), (0, 4), (4, 0)])
def test_values_and_syncs(params: PointwiseParams, subject: Fusion, sizes: tuple[int, int]) -> None:
    """Odd rows, even ones, rows shorter than a vector, and none."""
    extents = {"R": sizes[0], "C": sizes[1]} | ({"K": 3} if subject is MIDDLE else {})
    records = judged.records(Case(subject, params, extents, "integers", seed=1))
    assert {record.status for record in records} == {"pass"}
    assert "differential" in {record.oracle for record in records}


@pytest.mark.parametrize(
    ("subject", "sizes", "flat"),
    [
        (ROW, (5, 293), True),
        (ROW, (5000, 4096), True),
        (COLUMN, (5000, 4096), False),
        (COLUMN, (5000, 4099), True),
        (COLUMN, (5000, 1280), True),
    ],
)
def test_rows_are_walked_where_a_tensor_repeats_by_elements(
    subject: Fusion, sizes: tuple[int, int], flat: bool
) -> None:
    """And fill tiles, and are whole vectors; else nothing is lost by one axis, or much gained."""
    extents = {"R": sizes[0], "C": sizes[1]}
    given = specs(Case(subject, DIRECT, extents, "integers", seed=1))
    (schedule,) = classify(subject, None, given).schedules
    assert isinstance(schedule, PointwiseParams)
    assert schedule.flat is flat


def test_a_row_of_whole_vectors_is_read_by_vectors() -> None:
    """Its period is a multiple of the vector; an odd one is read by elements."""
    widths = []
    for columns in (296, 293):
        given = specs(Case(ROW, DIRECT, {"R": 5, "C": columns}, "integers", seed=1))
        program = build(ROW, DIRECT, classify(ROW, DIRECT, given))
        (kernel,) = (launch.kernel for launch in program.launches)
        (tensor,) = (t for t in kernel.tensors if t.cycles)
        widths.append(tensor.aligned)
    assert widths == [8, 1]


def test_what_repeats_is_loaded_behind_the_rest() -> None:
    """A division comes before it, and nobody waits for that."""

    def define(fd: FusionDefinition, y: TensorView, x: TensorView) -> TensorView:
        return _row(fd, x, y)

    case = Case(fusion(define, ("C",), ("R", "C")), DIRECT, {"R": 5, "C": 293}, "integers", seed=1)
    shapes = classify(case.fusion, DIRECT, specs(case))
    (launch,) = build(case.fusion, DIRECT, shapes).launches
    loads = [stmt.src for stmt in launch.kernel.walk() if isinstance(stmt, kir.Load)]
    tensors = [src.tensor for src in loads if isinstance(src, kir.Box)]
    assert [(one.name, bool(one.cycles)) for one in tensors] == [("T1", False), ("T0", True)]
    assert "tile::Cycles<const bf16, 1, 1, 1>" in launch.source


def test_gaps_between_rows_are_refused() -> None:
    """Positions behind each other lie in rows behind each other, so rows lie behind each other."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=["R", "C"], dtype="bf16")
        fd.add_output(fd.ops.relu(x))
        fd.add_output(fd.ops.permute(x, [1, 0]))
    strided = fd.fusion()
    given = {strided.inputs[0].name: Spec((5, 7), (7, 1), 0, x.dtype)}
    with pytest.raises(ScheduleError, match="not contiguous in the order of the loops"):
        classify(strided, DIRECT, given)
