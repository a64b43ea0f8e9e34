"""Faults behind the Kernel IR: each applies to the text, and the judge of PTX finds them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fuser.pipeline import Program
from fuser.runtime.nvrtc import DEVICE
from fuser.schedule.matmul_params import MatmulParams, Split
from fuzz.bench.drawn import texts
from fuzz.campaign.mutants import representative
from fuzz.cases.case import Case, from_text
from fuzz.cases.strategies import cases
from fuzz.kernels.fusions import linear
from fuzz.ptx.faults import FAULTS, Fault, changes, found_by, programs

BY_NAME = {fault.name: fault for fault in FAULTS}


@cache
def drawn(family: str) -> tuple[tuple[Case, Program], ...]:
    """Draw cases of a family."""
    every = texts(cases(families=(family,)), 5, 1)
    return tuple(programs([from_text(text) for text in every]))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_each_fault_is_one_change_of_a_header(fault: Fault, tmp_path: Path) -> None:
    """Or of the printed text, where it has what is changed."""
    folder = fault.folder(tmp_path)
    changed = [
        path.name
        for path in DEVICE.glob("*.cuh")
        if (folder / path.name).read_text() != path.read_text()
    ]
    assert changed == ([fault.file] if fault.file else [])
    if not fault.file:
        assert fault.printed(f'extern "C" for (int k = 0{fault.old}') != f'extern "C"{fault.old}'


def test_a_fault_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    """The header no longer has that text."""
    with pytest.raises(ValueError, match="has no 'nothing of this'"):
        Fault("gone", "math.cuh", "nothing of this", "").folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("less or equal in lt", "tma-pipelined/direct"),
        ("maximum is minimum", "direct/direct"),
        ("halves of a pair swapped", "hopper-pipelined"),
        ("no proxy fence", "direct/tma"),
        ("no barrier", "direct/tma"),
        ("a try for a wait", "tma-pipelined/direct"),
        ("half of the bytes", "tma-pipelined/direct"),
        ("stores are not awaited", "direct/tma"),
        ("no wgmma fence", "hopper-pipelined"),
        ("no wgmma wait", "hopper-pipelined"),
        ("descriptor one off", "hopper-pipelined"),
    ],
)
def test_a_fault_is_found(name: str, family: str, tmp_path: Path) -> None:
    """By its order, or by its values, in one of a few drawn cases."""
    assert found_by(BY_NAME[name], [*drawn(family)], tmp_path) is not None


@pytest.mark.parametrize("name", ["release is relaxed", "acquire is relaxed"])
def test_a_fault_between_ctas_is_found(name: str, tmp_path: Path) -> None:
    """In a product whose sums they hand on in turns."""
    params = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=8, splits=2)
    case = Case(linear(), params, {"i0": 72, "i1": 104, "i2": 24}, "integers", 0)
    assert found_by(BY_NAME[name], list(programs([case])), tmp_path) is not None


@pytest.mark.parametrize("name", ["slot beyond its ring", "a ring's parity stays"])
@pytest.mark.parametrize("split", ["pipelined", "cooperative"])
def test_a_fault_of_a_counter_is_found(name: str, split: Split, tmp_path: Path) -> None:
    """In a product whose ring of three slots is gone round more than twice."""
    params = MatmulParams((64, 16, 16), 1, split, 3, 1, persistent=False, columns=8)
    case = Case(linear(), params, {"i0": 72, "i1": 128, "i2": 24}, "integers", 0)
    assert found_by(BY_NAME[name], list(programs([case])), tmp_path) is not None


@pytest.mark.parametrize(
    ("name", "stands"),
    [
        ("constant of gelu", "operations f32"),
        ("less or equal in lt", "operations i32"),
        ("sub the other way", "operations f64"),
        ("bf16 is cut off", "operations bf16"),
        ("minimum drops NaN", "operations f32"),
        ("maximum is minimum", "reductions f32"),
    ],
)
def test_a_fault_of_one_operation_is_found_by_the_case_of_all(
    name: str, stands: str, tmp_path: Path
) -> None:
    """Which a campaign judges before it draws anything."""
    assert found_by(BY_NAME[name], programs([representative(stands)]), tmp_path) == 0


def test_without_a_fault_nothing_is_found(tmp_path: Path) -> None:
    """The same cases, a change of no effect: they are not even run."""
    idle = Fault("a comment", "math.cuh", "// One function per op", "// A function per op")
    folder = idle.folder(tmp_path)
    assert not any(changes(idle, program, folder) for _, program in drawn("direct/tma"))
    assert found_by(idle, [*drawn("direct/tma")], tmp_path) is None
