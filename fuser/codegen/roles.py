"""Two roles with one text: where they differ in numbers and names only, a select takes its place.

Roles that take turns do the same, and compiling the same twice takes twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SECOND = "second_"
"""In the text of two roles: 1 in the second of them, else 0; one register of each warp."""

_TOKEN = re.compile(r"\w+|\W")
_PLAIN = re.compile(r"\d+|[A-Za-z]\w*_[01]")


def merged(first: Sequence[str], second: Sequence[str]) -> list[str] | None:
    """Return one text that does what each of two does, as `SECOND` says.

    None where they differ in more than numbers and numbered names, or inside the arguments of a
    template, which cannot depend on `SECOND`.
    """
    if len(first) != len(second):
        return None
    lines = [_line(a, b) for a, b in zip(first, second, strict=True)]
    return None if None in lines else [line for line in lines if line is not None]


def _line(first: str, second: str) -> str | None:
    if first == second:
        return first
    ours, theirs = _TOKEN.findall(first), _TOKEN.findall(second)
    if len(ours) != len(theirs):
        return None
    out: list[str] = []
    for a, b in zip(ours, theirs, strict=True):
        if a == b:
            out.append(a)
        elif _PLAIN.fullmatch(a) and _PLAIN.fullmatch(b) and not _of_template("".join(out)):
            out.append(_select(a, b))
        else:
            return None
    return "".join(out)


def _select(a: str, b: str) -> str:
    match a, b:
        case "0", "1":
            return SECOND
        case "1", "0":
            return f"(1 - {SECOND})"
        case _:
            return f"({SECOND} ? {b} : {a})"


def _of_template(before: str) -> bool:
    """Tell whether what follows is an argument of a template; comparisons have a space before."""
    depth = ""
    for at, letter in enumerate(before):
        if letter in "([{" or (letter == "<" and before[at - 1 : at].strip()):
            depth += letter
        elif letter in ")]}" or (letter == ">" and depth.endswith("<")):
            depth = depth[:-1]
    return depth.endswith("<")
