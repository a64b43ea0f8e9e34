"""Schedules of a sweep are those that can be had, and the command says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fuser.runtime.executable import device_present
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.bench import sweep
from fuzz.bench.matmul import products
from fuzz.campaign.record import DEFAULT
from fuzz.exit_code import HARNESS


@pytest.mark.parametrize("shape", [(8, 64, 13120), (2240, 576, 19520), (333, 4096, 4104)])
def test_schedules_differ_and_suit_the_shape(shape: tuple[int, int, int]) -> None:
    """CTAs that share a tile have a step each, and who waits for others runs with them."""
    found = [*sweep.schedules(*shape)]
    assert len({*found}) == len(found) > 30
    for params in found:
        assert params.splits <= -(-shape[2] // 64)
        if params.meet == "scatter":
            tiles = -(-shape[0] // params.covers[0]) * -(-shape[1] // params.covers[1])
            assert tiles * params.splits <= 132


@pytest.mark.parametrize("way", ["cooperative", "ping_pong", "pipelined", "scatter", "last"])
def test_a_schedule_of_each_way_is_compiled(way: str) -> None:
    """Registers and shared memory are looked at where kernels are built."""
    shape = (500, 300, 4096)
    found = [p for p in sweep.schedules(*shape) if isinstance(p, MatmulParams)]
    found = [p for p in found if way in (p.split, p.meet if p.splits > 1 else "")]
    for params in (found[0], found[-1]):
        assert sweep.built(products.plain("P", shape), params).launches


@pytest.mark.parametrize("shape", [(9, 213, 2395), (113, 300, 513)])
def test_threads_load_what_no_engine_can(shape: tuple[int, int, int]) -> None:
    """Beside kernels that copy it first."""
    found = sweep.worthwhile(*shape)
    by_threads = [params for params in found if isinstance(params, AmpereParams)]
    assert 3 < len(by_threads) < len(found)
    for params in (by_threads[0], by_threads[-1]):
        assert sweep.built(products.plain("P", shape), params).launches


def test_without_a_device_nothing_is_measured(tmp_path: Path) -> None:
    """A machine without a GPU gets a sentence, not a trace."""
    if device_present():
        pytest.skip("there is one")
    found = CliRunner().invoke(sweep.main, [str(tmp_path / "out")])
    assert found.exit_code == HARNESS
    assert "no CUDA device" in found.output


@pytest.mark.parametrize(("shape", "kernels"), [((26, 290, 1228), 1), ((300, 512, 513), 3)])
def test_a_default_is_compiled_as_its_shape_asks(
    shape: tuple[int, int, int], kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that TMA cannot read are read where they lie, or copied by a kernel each."""
    sources: list[str] = []
    monkeypatch.setattr(sweep, "compile_cubin", sources.append)
    sweep.compiled(products.plain("P", shape), None)
    assert len(sources) == kernels


@pytest.mark.parametrize(
    "kind", ["rowsum", "colsum", "pointwise", "softmax", "layernorm", "grouped"]
)
def test_other_kinds_have_the_schedules_that_the_model_takes_for_the_fastest(kind: str) -> None:
    """As many as are asked for, at most, each once; rows are found again by their names."""
    rows = sweep.drawn(kind, 3, seed=5)
    assert len(rows) == 3
    found = [sweep.promising(row, 4) for row in rows]
    assert all(1 <= len({*some}) == len(some) <= 4 for some in found)
    sweep.compiled(rows[-1], found[-1][-1])
    again = sweep.drawn(kind, 3, seed=5)
    assert [other.name for other in again] == [other.name for other in rows]
    assert [sweep.lying(other) for other in again] == [sweep.lying(other) for other in rows]


def test_the_default_is_compared_with_what_was_timed_again() -> None:
    """The fastest at first may have been lucky; a shape whose default is refused has no ratio."""
    name = DEFAULT
    lines = [
        sweep.Line((1, 2, 3), {"torch": 2.0, name: 1.0, "a": 0.9}, {name: 1.0, "a": 1.0}, []),
        sweep.Line((1, 2, 4), {"torch": 2.0, name: 1.0, "a": 0.9}, {name: 1.21, "a": 1.0}, ["a"]),
        sweep.Line((1, 2, 5), {"torch": 2.0, "a": 0.9}, {}, []),
    ]
    says = sweep.chosen(lines)
    assert says.startswith("3 shapes, 1 with a wrong result, 1 without a default; the default")
    assert "10.0 % behind (geometric mean, 2 shapes), within 3 % of it for 50 %" in says
    assert sweep.chosen(lines[2:]) == "1 shapes, 0 with a wrong result, 1 without a default"


def test_as_many_schedules_of_a_product_as_are_asked_for() -> None:
    """Those that are predicted to be the fastest."""
    (row,) = sweep.drawn("product", 1, seed=5)
    every = sweep.promising(row, None)
    assert sweep.promising(row, 4) == every[:4]
    assert len(every) > 4
