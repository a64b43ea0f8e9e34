"""The rules of the house, held by a machine: who imports whom, and what a folder looks like."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("fuser", "oracles", "fuzz", "reports")
OUT = ROOT / "reports" / "out"
"""What campaigns write, repros among it, is no part of the house."""
FILES = sorted(
    path for room in ROOMS for path in (ROOT / room).rglob("*.py") if OUT not in path.parents
)
FOLDERS = sorted({path.parent for path in FILES})

LEAVES = {"fuser.errors", "fuser.dtype", "fuser.arch", "fuser.expr"}
KERNEL = LEAVES | {"fuser.kernel"}
ANSWER = {"oracles.verdict", "oracles.witness"}

MAY_IMPORT: dict[str, set[str]] = {
    # The compiler, in the order of its flow.
    "fuser.errors": set(),
    "fuser.dtype": {"fuser.errors"},
    "fuser.arch": set(),
    "fuser.expr": set(),
    "fuser.fusion": LEAVES,
    "fuser.kernel": LEAVES,
    "fuser.cookbook": KERNEL,
    "fuser.schedule": LEAVES | {"fuser.fusion"},
    "fuser.lower": KERNEL | {"fuser.fusion", "fuser.schedule"},
    "fuser.passes": KERNEL | {"fuser.lower"},
    "fuser.codegen": KERNEL,
    "fuser.pipeline": KERNEL
    | {"fuser.fusion", "fuser.schedule", "fuser.lower", "fuser.passes", "fuser.codegen"},
    "fuser.runtime": KERNEL
    | {"fuser.fusion", "fuser.schedule", "fuser.lower", "fuser.codegen", "fuser.pipeline"},
    "fuser.__main__": {"fuser"},
    # The judges: each sees the Kernel IR and its own folder; the reference sees the Fusion IR.
    "oracles.verdict": set(),
    "oracles.witness": set(),
    "oracles.launches": KERNEL,
    "oracles.additions": KERNEL,
    "oracles.lanes": {"oracles.witness"},
    "oracles.assembler": {"oracles.verdict"},
    "oracles.differential": {"fuser.dtype", "oracles.verdict", "oracles.reference"},
    "oracles.reference": {"fuser.dtype", "fuser.fusion"},
    "oracles.expect": set(),
    "oracles.values": KERNEL
    | {"oracles.differential", "oracles.expect", "oracles.reference", "oracles.simulator"}
    | {"oracles.additions", "oracles.verdict"},
    "oracles.prover": KERNEL | ANSWER | {"oracles.launches"},
    "oracles.simulator": KERNEL | ANSWER | {"oracles.launches"},
    "oracles.explorer": KERNEL | ANSWER | {"oracles.launches"},
    "oracles.ptx": ANSWER,  # text and a launch: it must judge kernels of others, too
    "oracles.cli": KERNEL
    | ANSWER
    | {"oracles.prover", "oracles.simulator", "oracles.explorer", "oracles.ptx"}
    | {"oracles.expect", "oracles.lanes", "oracles.launches", "oracles.values"},
    "oracles.__main__": {"oracles.cli"},
    # Only `fuzz` sees both sides; the reports see records and witnesses.
    "fuzz": {"fuser", "oracles", "fuzz"},
    "fuzz.mutation": KERNEL,
    "fuzz.kernels": {"fuser", "oracles", "fuzz.mutation"},
    "reports": {
        "fuser.dtype",
        "fuzz.budget",  # shares of the time, which a page shows beside what was taken
        "fuzz.campaign.record",
        "fuzz.exit_code",
        "fuzz.semaphores.record",
        "oracles.lanes",
        "oracles.witness",
    },
}
"""What the modules below each name may import of ours, beside those below the same name."""


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def below(name: str, tops: set[str]) -> bool:
    """Tell whether a module is one of `tops` or lies in one of them."""
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def owner(name: str) -> str:
    """Return the entry of `MAY_IMPORT` that a module falls under."""
    return max((top for top in MAY_IMPORT if below(name, {top})), key=len)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node: expressions, by far the most, hold none."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, part, None) or ():
            if isinstance(node, ast.expr):
                return
            yield one
            yield from statements(one)


def imports(text: str) -> set[str]:
    """Return the modules of ours that a text imports, however it spells it."""
    found: set[str] = set()
    for node in statements(ast.parse(text)):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(from_module, names) if from_module:
                whole = {f"{from_module}.{alias.name}" for alias in names}
                inside = {m for m in whole if (ROOT / f"{m.replace('.', '/')}.py").exists()}
                found |= inside or {from_module}
            case _:
                pass
    return {m for m in found if m.split(".")[0] in ROOMS}


def strays(name: str, text: str) -> list[str]:
    """Return what a module imports although its folder may not."""
    top = owner(name)
    return sorted(m for m in imports(text) if not below(m, MAY_IMPORT[top] | {top}))


def test_imports_stay_inside_the_lines() -> None:
    """Judges do not see the compiler, nor each other; reports see neither."""
    names = [(module(path), path.read_text()) for path in FILES if path.name != "__init__.py"]
    assert not {name: found for name, text in names if (found := strays(name, text))}


@pytest.mark.parametrize(
    "line",
    [
        "import fuser.passes.sync",
        "from fuser.passes import sync",
        "from fuser.passes.sync import sync_threads",
    ],
)
def test_every_spelling_of_an_import_is_caught(line: str) -> None:
    """The rule above cannot be slipped past."""
    assert strays("oracles.prover.prove", line) == ["fuser.passes.sync"]
    assert strays("oracles.simulator.run", "from oracles.prover import prove")
    assert not strays("fuser.pipeline", line)


def test_loading_the_judges_loads_no_compiler() -> None:
    """In a fresh process: of `fuser`, only the Kernel IR and its leaves."""
    code = (
        "import sys, oracles.prover.prove, oracles.simulator.simulate, oracles.explorer.explore;"
        "print(*sorted(m for m in sys.modules if m.startswith('fuser.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(below(name, KERNEL) for name in done.stdout.split())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: ".".join(p.relative_to(ROOT).parts))
def test_a_folder_is_a_subsystem(folder: Path) -> None:
    """A sentence, 2 to 15 files, and no name that says again what its folder says."""
    tree = ast.parse((folder / "__init__.py").read_text())
    front = folder == ROOT / "fuser"  # names what is found there of the judges, and loads nothing
    assert len(tree.body) == 1 or front, "__init__.py holds more than a docstring"
    assert ast.get_docstring(tree)
    names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    inside = len(names) + sum((path / "__init__.py").exists() for path in folder.iterdir())
    assert inside >= 2, "one file: merge it"
    assert len(names) <= 15, f"{len(names)} files"
    assert not [name for name in names if name.startswith(folder.name)]
    assert not {"utils", "helpers", "common", "misc", "manager", "base"} & set(names)


def test_the_front_door_loads_a_judge_when_it_is_asked_for() -> None:
    """`import fuser` loads neither the compiler nor a judge; what is not there is an error."""
    code = (
        "import sys, fuser;"
        "loaded = [m for m in sys.modules if m.startswith(('fuser.', 'oracles'))];"
        "print(loaded, callable(fuser.judge_triton), hasattr(fuser, 'judge_cutlass'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "True", "False"]


def test_only_two_files_know_the_solver() -> None:
    """All of z3 behind two doors: one for proofs, one for the choice of launches."""
    users = [module(p) for p in FILES if re.search(r"^(import|from) z3", p.read_text(), re.M)]
    assert users == ["oracles.launches.solver", "oracles.prover.solver"]
