"""The passes together: the whole kernel of every schedule family, as text."""

import sys
from types import SimpleNamespace

import pytest
from conftest import Golden
from fusions import FAMILIES, PIPELINED, SPECIALIZED, bias_specs, compiled, row_major

from fuser import kernel_ir as kir
from fuser.dtype import DType
from fuser.errors import CompileError, ScheduleError
from fuser.fusion_ir import FusionDefinition
from fuser.kernel_text import text
from fuser.params import PointwiseParams
from fuser.pipeline import PASSES
from fuser.validate import validate


@pytest.mark.parametrize("family", FAMILIES)
def test_kernel_of_family(family: str, golden: Golden) -> None:
    """Where every sync stands, for a reader; a change of it must say why."""
    (launch,) = compiled(FAMILIES[family]).launches
    validate(launch.kernel, final=True)
    golden.check(text(launch.kernel))


@pytest.mark.parametrize("family", FAMILIES)
def test_building_twice_gives_the_same_text(family: str) -> None:
    """Caches and verdicts rely on it."""
    first, second = (compiled(FAMILIES[family]).launches[0].source for _ in range(2))
    assert first == second


def test_every_pass_has_a_name_to_dump() -> None:
    """FUSER_DUMP takes the function names in PASSES."""
    names = [run_pass.__name__ for run_pass in PASSES]
    assert len(set(names)) == len(names)
    assert "sync_threads" in names


def test_dump_prints_the_named_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One switch, a comma list of names."""
    monkeypatch.setenv("FUSER_DUMP", "observe_copies,cuda")
    compiled(PIPELINED)
    printed = capsys.readouterr().err
    assert "=== observe_copies ===" in printed
    assert "=== cuda ===" in printed
    assert "=== lower ===" not in printed


def test_an_invalid_kernel_of_a_pass_is_the_compilers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No params may ask for it, so nobody is told to change theirs; the dump shows the kernel."""
    forgetful = SimpleNamespace(**vars(kir))
    forgetful.MBarrier = lambda name, arrivals, slots: kir.MBarrier(name, 0, slots)
    monkeypatch.setattr(sys.modules["fuser.free_slots"], "kir", forgetful)
    monkeypatch.setenv("FUSER_DUMP", "free_slots")
    with pytest.raises(
        CompileError, match="^after free_slots: .*0 arrivals.*free_slots shows"
    ) as e:
        compiled(SPECIALIZED)
    assert e.value.kind == "invalid kernel"
    assert "empty" in capsys.readouterr().err


def test_too_much_shared_memory_names_the_stages_that_fit() -> None:
    """8 stages of two 64 KB tiles do not fit; 1 does."""
    params = PointwiseParams((128, 256), 8, 16, 1, "tma", "direct", 8, 7)
    with pytest.raises(ScheduleError, match=r"sm_90a has 232448; use stages=1"):
        compiled(params, specs=bias_specs(256, 256))


def test_outputs_of_different_shapes_become_kernels_of_their_own() -> None:
    """A Program is several launches, each over its own axes."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="f32")
    row = fd.define_tensor(shape=[-1], dtype="f32")
    fd.add_output(fd.ops.neg(x))
    fd.add_output(fd.ops.exp(row))
    specs = {"T0": row_major((8, 16), DType.F32), "T1": row_major((5,), DType.F32)}
    program = compiled(None, fd.fusion(), specs)
    assert [launch.kernel.outputs for launch in program.launches] == [("T2",), ("T3",)]


def test_a_transposed_second_output_shares_the_kernel() -> None:
    """Its axes are those of the first, in another order; both are stored by one kernel."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="f32")
    y = fd.ops.neg(x)
    fd.add_output(y)
    fd.add_output(fd.ops.permute(y, dims=[1, 0]))
    (launch,) = compiled(None, fd.fusion(), {"T0": row_major((8, 16), DType.F32)}).launches
    assert launch.kernel.outputs == ("T1", "T2")
