"""What may be named on the command line, and what is said when it cannot be judged."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from fuser.cookbook.recipes import RECIPES, tma_ring
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.cli.target import TargetError, load

HEAD = """
from fuser.kernel import ir as kir
from fuser.cookbook.recipes import tma_ring
from fuser.kernel.ir import LaunchSequence
"""


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(HEAD + text)
    return str(path)


def test_a_recipe_of_the_cookbook_can_be_named() -> None:
    """The cookbook's own docstring says so."""
    (target,) = load("fuser/cookbook/recipes.py:wgmma_ring")
    assert target.name == "wgmma_ring"
    assert target.kernels == (RECIPES["wgmma_ring"](),)


def test_a_file_offers_what_its_recipes_list() -> None:
    """All twelve, in order."""
    assert [t.name for t in load("fuser/cookbook/recipes.py")] == list(RECIPES)


def test_a_file_offers_its_kernels_programs_and_promising_functions(tmp_path: Path) -> None:
    """What was imported, is private, needs arguments or promises nothing is not called."""
    spec = written(
        tmp_path,
        """
ring = tma_ring(2)
pair = LaunchSequence("pair", (tma_ring(2), tma_ring(3)))
_hidden = tma_ring(4)
def made() -> kir.Kernel: return tma_ring(5)
def deep(stages: int) -> kir.Kernel: return tma_ring(stages)
def main(): raise SystemExit("must not be called")
""",
    )
    targets = load(spec)
    assert [t.name for t in targets] == ["ring", "pair", "made"]
    assert isinstance(targets[0].subject, kir.Kernel)
    assert isinstance(targets[1].subject, LaunchSequence)
    assert len(targets[1].kernels) == 2


def test_a_file_says_what_its_kernels_compute(tmp_path: Path) -> None:
    """Above a function, as its attribute, or in a dict by name; of others nothing is expected."""
    spec = written(
        tmp_path,
        """
from oracles.expect import expect
@expect(lambda X: 1, rtol=0.5)
def above() -> kir.Kernel: return tma_ring(2)
def beside() -> kir.Kernel: return tma_ring(2)
beside.expect = lambda X: 2
def alone() -> kir.Kernel: return tma_ring(2)
listed = tma_ring(2)
EXPECT = {"listed": lambda X: 3, "beside": None}
""",
    )
    said = {target.name: target.expect for target in load(spec)}
    assert said["alone"] is None
    found = {name: one.function(0) for name, one in said.items() if one is not None}
    assert found == {"above": 1, "beside": 2, "listed": 3}
    assert said["above"] is not None
    assert said["above"].rtol == 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("EXPECT = {'rong': lambda X: X}", "EXPECT: there is no rong in .*; did you mean ring?"),
        ("EXPECT = {'ring': 3}", "expect of ring is a int; give a function"),
    ],
)
def test_what_is_expected_of_nothing_is_a_mistake(tmp_path: Path, text: str, says: str) -> None:
    """A name that no kernel has would never be judged."""
    with pytest.raises(TargetError, match=says):
        load(written(tmp_path, "ring = tma_ring(2)\n" + text))


def test_a_function_without_a_promise_can_be_named(tmp_path: Path) -> None:
    """Naming it is asking for it."""
    spec = written(tmp_path, "def quick(): return tma_ring(2)\n")
    assert load(f"{spec}:quick")[0].kernels == (tma_ring(2),)
    with pytest.raises(TargetError, match="offers no kernel"):
        load(spec)


def test_a_file_that_bears_the_name_of_a_library_does_not_replace_it(tmp_path: Path) -> None:
    """`numpy.py` of a user must not be what everything else imports later."""
    load(written(tmp_path, "ring = tma_ring(2)\n", name="click.py"))
    assert hasattr(import_module("click"), "command")


WRONG = [
    ("ring = 3 /", "ring", "line 5 is no Python"),
    ("ring = 1 // 0", "ring", "line 5 raises ZeroDivisionError"),
    ("ring = tma_ring(2)", "rong", "did you mean ring?"),
    ("ring = tma_ring(2)", "a-b", "'a-b' is no name"),
    ("ring = 3", "ring", "ring is a int, no Kernel"),
    ("def deep(stages, more): return 1", "deep", "needs a value for stages, more"),
    ("def bad(): return [][1]", "bad", "raises IndexError"),
    (
        "from dataclasses import replace\nring = replace(tma_ring(2), threads=33)",
        "ring",
        "not well formed: tma_ring has 33 threads",
    ),
]


@pytest.mark.parametrize(("text", "name", "says"), WRONG, ids=[w[2] for w in WRONG])
def test_a_mistake_is_answered_with_the_way_out(
    tmp_path: Path, text: str, name: str, says: str
) -> None:
    """Every message begins with the call as it was written."""
    spec = f"{written(tmp_path, text)}:{name}"
    with pytest.raises(TargetError) as error:
        load(spec)
    assert str(error.value).startswith(f"{spec}: ")
    assert says in str(error.value)


def test_a_missing_file_is_told_from_a_near_one() -> None:
    """Most are typing mistakes."""
    with pytest.raises(
        TargetError, match="there is no file fuser/cookbook/recipe.py; did you mean fuser"
    ):
        load("fuser/cookbook/recipe.py:tma_ring")
    with pytest.raises(TargetError, match="no Python file"):
        load("README.md")
