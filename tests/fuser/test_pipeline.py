"""The passes together: the whole kernel of every schedule family, as text."""

import sys
from types import SimpleNamespace

import pytest
from conftest import Golden
from fusions import FAMILIES, PIPELINED, SPECIALIZED, bias_specs, compiled, row_major

from fuser.dtype import DType
from fuser.errors import CompileError, ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.pipeline import PASSES, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import PointwiseParams


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


def test_a_stage_that_is_not_there_is_guessed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Silence would read as a pass that does nothing."""
    monkeypatch.setenv("FUSER_DUMP", "free_slot,cuda")
    compiled(PIPELINED)
    said = "FUSER_DUMP=free_slot: no such stage; did you mean free_slots"
    assert capsys.readouterr().err.count(said) == 1


def test_an_invalid_kernel_of_a_pass_is_the_compilers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No params may ask for it, so nobody is told to change theirs; the dump shows the kernel."""
    forgetful = SimpleNamespace(**vars(kir))
    forgetful.MBarrier = lambda name, arrivals, slots: kir.MBarrier(name, 0, slots)
    monkeypatch.setattr(sys.modules["fuser.passes.free_slots"], "kir", forgetful)
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


@pytest.mark.parametrize("elements", range(1, 70))
def test_tma_stores_rows_of_16_byte_multiples_alone(elements: int) -> None:
    """A row that ended inside a chunk of 16 bytes was stored past the end of the tensor."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor(shape=[-1], dtype="f32")))
    fusion = fd.fusion()
    params = PointwiseParams((1, 64), 4, 1, None, "direct", "tma")
    specs = {"T0": Spec((elements,), (1,), 1024, DType.F32)}
    if elements % 4 == 0:
        build(fusion, params, classify(fusion, params, specs))
    else:
        with pytest.raises(ScheduleError):
            build(fusion, params, classify(fusion, params, specs))
