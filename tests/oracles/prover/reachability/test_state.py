"""A state has owners: no module changes what another one keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from oracles.prover import reachability

ROOT = Path(reachability.__path__[0])
OWNERS = {
    "canonical": {"ranges", "most", "lead"},
    "code": {"atoms", "counts", "end", "moving", "orelse", "sites", "to"},
    "fixpoint": {"at", "chosen", "ranges"},
    "rules": {"_value_", "kind"},
    "state": {"all", "first", "gate", "loops", "mine", "unmet", "warp"},
    "statements": {"clean", "cumulative", "fenced", "products"},
    "step": {"k", "memory", "places", "put", "valid"},
    "sync": {
        "alive", "announced", "arrived", "asking", "barriers", "before", "end", "nbytes", "pending",
        "phases", "remote", "semaphores", "site", "valid", "value", "waiters",
    },
}  # fmt: skip
"""What each module changes of other objects than `self`: code, states and what they hold."""


def _changed(text: str) -> Iterator[str]:
    """Yield the attributes of other objects that a module assigns, or whose items it does."""
    for node in ast.walk(ast.parse(text)):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets) | ast.Delete(targets):
                pass
            case ast.AugAssign(target) | ast.AnnAssign(target):
                targets = [target]
            case _:
                pass
        for one in targets:
            for part in one.elts if isinstance(one, ast.Tuple) else [one]:
                while isinstance(part, ast.Subscript):
                    part = part.value
                match part:
                    case ast.Attribute(ast.Name(name), attribute) if name != "self":
                        yield attribute
                    case ast.Attribute(ast.Attribute(), attribute):
                        yield attribute
                    case _:
                        pass


def test_who_changes_what_is_written_down() -> None:
    """The kernel's facts, numbers of events and findings are changed by their classes alone."""
    found = {path.stem: set(_changed(path.read_text())) for path in ROOT.glob("*.py")}
    assert {name: changed for name, changed in found.items() if changed} == OWNERS


def test_no_function_has_many_parameters() -> None:
    """What belongs together travels together, as an object."""
    many = [
        f"{path.stem}.{node.name}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and len(node.args.args) + len(node.args.kwonlyargs) > 6
    ]
    assert not many
