"""A repro as data: its cases are read out of the script, which may do nothing else.

The script is Python, so that it also runs alone; but what opens it looks first: it may import the
words that a case is written in, all of them of the `fuser` and `fuzz` that are installed, call
these, and give names to what it makes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.cases.case import Case, to_text

REPLAY = "fuzz.campaign.repro"
WORDS = {
    "__future__": {"annotations"},
    "fuser.fusion.definition": {"FusionDefinition"},
    "fuser.schedule.ampere_params": {"AmpereParams"},
    "fuser.schedule.matmul_params": {"MatmulParams"},
    "fuser.schedule.params": {"NormParams", "PointwiseParams", "ReductionParams", "ScanParams"},
    "fuzz.cases.case": {"Case"},
    REPLAY: {"replay"},
}
"""What a script may import."""
BUILTINS = {"float": float, "range": range}
PLAIN = (
    ast.Module, ast.ImportFrom, ast.alias, ast.Assign, ast.Expr, ast.If, ast.Compare, ast.Eq,
    ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.Load, ast.Store, ast.Starred,
    ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.USub, ast.BinOp, ast.operator,
    ast.GeneratorExp, ast.ListComp, ast.comprehension,
)  # fmt: skip
"""What a script may be made of: no definitions, no loops, no subscripts, nothing that is hidden."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a script asks for: its cases, and the oracle of its failure, or none for all."""

    cases: tuple[Case, ...]
    oracle: str

    @property
    def text(self) -> str:
        """Text of the first case."""
        return to_text(self.cases[0])


def read(path: Path) -> Script:
    """Read the cases of a script; ValueError, before any of it runs, if it holds anything else."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    for node in ast.walk(tree):
        _check(node)
    asked: list[Script] = []

    def replay(*cases: Case, oracle: str = "") -> None:
        asked.append(Script(cases, oracle))

    body = [s for s in tree.body if not (isinstance(s, ast.ImportFrom) and s.module == REPLAY)]
    names: dict[str, Any] = {"__name__": "__main__", "replay": replay}
    exec(compile(ast.Module(body, []), str(path), "exec"), names)
    if len(asked) != 1 or not asked[0].cases:
        raise ValueError("it calls fuzz.campaign.repro.replay not exactly once, with cases")
    return asked[0]


def _check(node: ast.AST) -> None:
    """Refuse what is no part of a case."""
    line = getattr(node, "lineno", 0)
    match node:
        case ast.ImportFrom(module, names, 0):
            for alias in names:
                if alias.name not in WORDS.get(module or "", ()) or alias.asname:
                    raise ValueError(f"line {line}: imports {module}.{alias.name}")
        case ast.Attribute(_, name) | ast.Name(name) if name.startswith("_") and name != "__name__":
            raise ValueError(f"line {line}: {name} is hidden")
        case ast.Call(ast.Name(name)) if name not in _CALLED:
            raise ValueError(f"line {line}: calls {name}")
        case ast.Call(func) if not isinstance(func, ast.Name | ast.Attribute):
            raise ValueError(f"line {line}: calls what is no name")
        case _ if not isinstance(node, PLAIN):
            raise ValueError(f"line {line}: {type(node).__name__} is no part of a case")
        case _:
            pass


_CALLED = set(BUILTINS) | {name for names in WORDS.values() for name in names} - {"annotations"}
