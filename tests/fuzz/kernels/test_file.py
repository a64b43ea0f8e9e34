"""Mutants of the kernels that a file offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.file import CTAS, MOST, names, of_file, subjects
from fuzz.kernels.subjects import find, together
from oracles.cli.target import TargetError

FILE = """
from fuser.cookbook.recipes import split_k, tma_ring
from fuser.kernel.ir import LaunchSequence

RECIPES = {"ring": tma_ring(2), "sums": split_k(2), "both": LaunchSequence("both", (tma_ring(2),))}
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file that offers two kernels and a program."""
    path = tmp_path_factory.mktemp("offered") / "offered.py"
    path.write_text(FILE)
    return str(path)


def test_kernels_are_offered_and_programs_passed_over(spec: str) -> None:
    """A name leads back to its file."""
    assert list(names(spec)) == [f"{spec}:ring", f"{spec}:sums"]
    assert list(names(f"{spec}:ring")) == [f"{spec}:ring"]


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """Before anything is judged."""
    for missing in ("none.py", "none"):
        with pytest.raises(TargetError, match="there is no file"):
            list(names(str(tmp_path / missing)))


def test_a_kernel_comes_before_its_mutants(spec: str) -> None:
    """Number 0 has no fault; the others have one each, and validation lets them through."""
    asked = [number for name, number in subjects(f"{spec}:ring")]
    assert asked == list(range(len(asked)))
    assert len(asked) > 50
    own = of_file(f"{spec}:ring", 0)
    assert own.faults == ()
    for number in asked[1::9]:
        made = of_file(f"{spec}:ring", number)
        validate(made.kernel, final=True)
        assert len(made.faults) == 1
        assert text(made.kernel) != text(own.kernel)
        assert text(find(f"of {spec}:ring {number}").kernel) == text(made.kernel)


def test_launches_are_small_and_of_each_trip_count(spec: str) -> None:
    """No loop, one turn, more turns than stages; what acts late is launched late."""
    ring = of_file(f"{spec}:ring", 0)
    assert len(ring.launches) >= MOST
    assert ring.at(3)
    late = next(
        made
        for made in (of_file(name, number) for name, number in subjects(f"{spec}:ring"))
        if any(fault.startswith("stages") for fault in made.faults)
    )
    assert len(late.launches) > len(ring.launches)


def test_ctas_that_take_turns_are_launched_together(spec: str) -> None:
    """What one leaves to the next shows in two and in three."""
    grids = {grid for grid, _ in of_file(f"{spec}:sums", 0).launches}
    assert {1, 2, 3} <= grids <= set(range(CTAS + 1))


def test_kernels_of_equal_text_are_judged_once(spec: str) -> None:
    """Twins have most mutants in common; names tell nothing."""
    ring = f"{spec}:ring"
    assert list(subjects(ring, ring, workers=2)) == list(subjects(ring))


def test_mutants_of_one_kernel_go_together() -> None:
    """The process that has made one has made all; other subjects are made one by one."""
    assert together("of kernels.py:ring 3") == together("of kernels.py:ring 4")
    assert together("of kernels.py:ring 3") != together("of kernels.py:sums 3")
    assert together("template 0 3") != together("template 0 4")
