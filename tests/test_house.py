"""The rules of the house, held by a machine: who imports whom, and how long a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for room in ("fuser", "oracles", "fuzz", "reports") for path in (ROOT / room).glob("*.py")
)

ORDER = (
    "errors", "dtype", "arch", "expr", "tensor_view", "mma_axes", "promotion", "ops", "extents",
    "recorder", "pointwise_ops", "shape_ops", "reduction_ops", "mma_ops", "fusion_ir",
    "kernel_memory",
    "kernel_sync", "kernel_data", "kernel_ir", "kernel_text", "program", "validate_place",
    "validate_kernel", "validate_sync", "validate_registers", "validate_tile", "validate_reduce",
    "validate_mma",
    "validate", "cookbook_ring", "cookbook_sum", "cookbook_matmul", "cookbook_grid", "cookbook",
    "params", "matmul_params", "ampere_params", "shape_class", "domain", "cut_reductions",
    "segment", "scheduler", "reduction_scheduler",
    "reduction_heuristic",
    "matmul_scheduler", "matmul_heuristic", "lower_math", "lower",
    "lower_meeting", "lower_pooled", "lower_tiles", "lower_product",
    "lower_operand",
    "lower_reduction",
    "lower_hopper", "lower_ampere", "effects", "rings", "circular_buffer", "warp_specialize",
    "async_copies", "tensor_cores", "free_slots", "relay_slots", "take_turns", "grid_turns",
    "meet_clusters",
    "sync",
    "swizzle", "tensor_map", "codegen_expr", "codegen_registers", "live_fragments", "codegen_roles",
    "codegen_sync", "codegen_tile", "codegen_mma", "codegen", "pipeline", "call", "classify",
    "binding", "nvrtc", "scratch", "launch", "kernel_launch", "runtime",
)  # fmt: skip
"""The compiler in reading order, which is import order: a file sees only those before it."""

IR = {"fuser.kernel_ir", "fuser.kernel_text", "fuser.program", "fuser.expr", "fuser.dtype"}
PROVER = {
    f"oracles.{name}"
    for name in (
        "agents", "arithmetic", "coverage", "launch_search", "launches", "partition", "places",
        "polynomial", "preconditions", "premises", "prover", "restated", "shape", "sites", "smt",
        "tiles", "trace",
    )
}  # fmt: skip
"""The prover's files: they share nothing with the simulator's but the IR and the Verdict."""
for _engine in ("closure*.py", "certificate*.py"):
    PROVER |= {f"oracles.{p.stem}" for p in (ROOT / "oracles").glob(_engine)}
SIMULATOR = {f"oracles.{p.stem}" for p in (ROOT / "oracles").glob("machine*.py")} | {
    "oracles.simulator"
}
EXPLORER = {f"oracles.{p.stem}" for p in (ROOT / "oracles").glob("explore*.py")}
"""The exhaustive reading: shares nothing with prover or simulator either."""
REFERENCE = {
    f"oracles.{name}"
    for name in (
        "division", "estimate", "expected", "reference_mma", "reference_moves", "reference_rows",
        "reference_sums",
    )
}  # fmt: skip
DRAWING = {"oracles.lanes", "oracles.witness", "oracles.witness_json"}
"""Witnesses as data, text and JSON: no judge among them, so reports may use them."""
COMMAND = {
    f"oracles.{name}"
    for name in (
        "__main__", "ablation", "advice", "answers", "command", "explanation", "launching",
        "target",
    )
}  # fmt: skip
"""The command line: asks the judges by their front doors, and nothing of their insides."""
FUSION = {"fuser.fusion_ir", "fuser.ops", "fuser.dtype"}


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    return f"{path.parent.name}.{path.stem}"


def may_import(path: Path) -> set[str]:
    """Return what of ours a file may import."""
    name = module(path)
    everything = {module(p) for p in FILES}
    match path.parent.name:
        case "fuser":
            before = ORDER[: ORDER.index(path.stem)] if path.stem in ORDER else ()
            return {f"fuser.{stem}" for stem in before}
        case "fuzz":
            return {m for m in everything if not m.startswith("reports.")}
        case "reports":
            own = {m for m in everything if m.startswith("reports.")}
            return own | {"fuzz.record", "fuzz.release_record"} | DRAWING
        case _:
            pass
    if name in PROVER:
        return IR | PROVER | {"oracles.verdict", "oracles.witness"}
    if name in SIMULATOR:
        return IR | SIMULATOR | {"oracles.verdict", "oracles.witness"}
    if name in EXPLORER:
        return IR | EXPLORER | {"oracles.verdict", "oracles.witness"}
    if name == "oracles.reference" or name in REFERENCE:
        return FUSION | REFERENCE
    if name == "oracles.differential":
        return {"fuser.dtype", "oracles.verdict", "oracles.expected"}
    if name == "oracles.assembler":
        return {"oracles.verdict"}
    if name in DRAWING:
        return {"oracles.witness"} - {name}
    if name in COMMAND:
        judges = {"oracles.prover", "oracles.simulator", "oracles.explorer", "oracles.lanes"}
        shown = {"oracles.verdict", "oracles.witness"}
        shown |= {"oracles.launch_search", "oracles.launches", "oracles.preconditions"}
        return IR | COMMAND | judges | shown | {"fuser.errors", "fuser.validate"}
    return set()


def imports(text: str) -> set[str]:
    """Return the modules of ours that a text imports, however it spells it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(from_module, names) if from_module:
                whole = {f"{from_module}.{alias.name}" for alias in names}
                inside = {m for m in whole if (ROOT / f"{m.replace('.', '/')}.py").exists()}
                found |= inside or {from_module}
            case _:
                pass
    return {m for m in found if m.split(".")[0] in ("fuser", "oracles", "fuzz", "reports")}


@pytest.mark.parametrize("path", FILES, ids=module)
def test_imports_stay_inside_the_lines(path: Path) -> None:
    """Judges do not see the compiler, nor each other; reports see neither."""
    stray = imports(path.read_text()) - may_import(path)
    assert not stray, f"{module(path)} may not import {sorted(stray)}"


@pytest.mark.parametrize(
    "line", ["import fuser.sync", "from fuser import sync", "from fuser.sync import sync_threads"]
)
def test_every_spelling_of_an_import_is_caught(line: str) -> None:
    """The rule above cannot be slipped past."""
    assert imports(line) == {"fuser.sync"}
    assert "fuser.sync" not in may_import(ROOT / "oracles" / "prover.py")


def test_every_file_of_the_compiler_stands_in_the_order() -> None:
    """A new file has to say where it is read."""
    assert set(ORDER) == {p.stem for p in (ROOT / "fuser").glob("*.py")} - {"__init__"}


def test_loading_the_judges_loads_no_compiler() -> None:
    """In a fresh process: of `fuser`, only the Kernel IR and its leaves."""
    code = (
        "import sys, oracles.prover, oracles.simulator;"
        "print(*sorted(m for m in sys.modules if m.startswith('fuser.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    leaves = {"fuser.errors", "fuser.kernel_data", "fuser.kernel_memory", "fuser.kernel_sync"}
    assert set(done.stdout.split()) <= IR | leaves


@pytest.mark.parametrize("path", FILES, ids=module)
def test_a_file_fits_in_the_head(path: Path) -> None:
    """At most 400 lines; split where the subject splits."""
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=module)
def test_names_say_something(path: Path) -> None:
    """No drawer for whatever does not fit elsewhere."""
    assert path.stem not in {"utils", "helpers", "common", "misc", "manager", "base"}


def test_only_one_file_knows_the_solver() -> None:
    """All of z3 behind one door."""
    users = [module(p) for p in FILES if re.search(r"^(import|from) z3", p.read_text(), re.M)]
    assert users == ["oracles.smt"]


def test_packages_are_a_docstring() -> None:
    """Importing a room imports nothing."""
    for room in ("fuser", "oracles", "fuzz", "reports"):
        tree = ast.parse((ROOT / room / "__init__.py").read_text())
        assert len(tree.body) == 1
        assert ast.get_docstring(tree)
