"""PointwiseLowering: what is loaded, computed and stored, and not a single sync."""

import pytest
from conftest import Golden
from fusions import DIRECT, FAMILIES, PIPELINED, bias_relu, bias_specs, compiled, row_major

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.lower.tiling import PointwiseLowering
from fuser.runtime.classify import classify
from fuser.schedule.domain import domains
from fuser.schedule.params import PointwiseParams
from fuser.schedule.pointwise import tiling


def lowered(params: PointwiseParams) -> kir.Kernel:
    """`bias_relu` lowered, before any pass."""
    fusion = bias_relu()
    (domain,) = domains(fusion)
    (shapes,) = classify(fusion, params, bias_specs()).kernels
    return PointwiseLowering("pointwise", tiling(domain, params), params, shapes).lowered().kernel


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lowered_kernel_has_no_sync(family: str) -> None:
    """A template that brings its own wait would leave nothing to verify."""
    kernel = lowered(FAMILIES[family])
    validate(kernel)
    assert not [stmt for stmt in kernel.walk() if isinstance(stmt, kir.SYNCS)]
    assert not kernel.barriers


def test_lowered_text(golden: Golden) -> None:
    """The form from which the passes start."""
    golden.check(text(lowered(PIPELINED)))


def test_only_tiles_that_fill_the_box_go_through_tma() -> None:
    """The bias is one row; it is loaded directly."""
    copied = [s for s in lowered(PIPELINED).walk() if isinstance(s, kir.Copy)]
    names = [s.src.tensor.name for s in copied if isinstance(s.src, kir.Box)]
    assert names == ["T0", "T1"]


def test_what_is_read_once_is_to_stay_in_the_l2() -> None:
    """Not the bias, which all tiles read, and not what is written."""
    made = lowered(DIRECT)
    assert [tensor.name for tensor in made.tensors if tensor.kept] == ["T0", "T1"]
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor(shape=[-1, -1], dtype="f32"), dims=[0]))
    (launch,) = compiled(None, fd.fusion(), {"T0": row_major((640, 64), DType.F32)}).launches
    assert not any(tensor.kept for tensor in launch.kernel.tensors), "a sum writes next to nothing"


def test_tma_that_nothing_can_use_is_refused_with_every_reason() -> None:
    """A transposed input has no contiguous last axis."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16", stride_order=[0, 1])
    fd.add_output(fd.ops.relu(x))
    specs = {"T0": row_major((64, 64), DType.BF16)}
    with pytest.raises(
        ScheduleError, match=r'TMA can move no tensor.*not contiguous.*use load="direct"'
    ):
        compiled(PIPELINED, fd.fusion(), specs)


def test_iota_keeps_its_axis_unsplit() -> None:
    """Rows of a split axis are no coordinate; the way out is a tile of one row."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["n"], dtype="i64")
    fd.add_output(fd.ops.add(x, fd.ops.iota("n")))
    specs = {"T0": row_major((640,), DType.I64)}
    with pytest.raises(ScheduleError, match=r"use tile=\(1, 128\)"):
        compiled(DIRECT, fd.fusion(), specs)
    (launch,) = compiled(None, fd.fusion(), specs).launches
    assert any(isinstance(s, kir.Coordinate) for s in launch.kernel.walk())
