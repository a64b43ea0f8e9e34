"""`semaphore::meet`, step by step on one integer: every order of the steps of a few CTAs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import fuser.device

HEADER = Path(fuser.device.__path__[0]) / "semaphore.cuh"


class Cta(NamedTuple):
    """A CTA before a step of its meetings: how many it has left, and what it has seen."""

    met: int = 0
    step: int = 0
    seen: int = 0


Meeting = tuple[int, tuple[Cta, ...]]
"""The integer, and the CTAs."""


def _steps() -> tuple[str, ...]:
    """Return what the header does to the integer, in its order, and while what it asks again."""
    text = re.search(r"void meet\(.*?\n}\n", HEADER.read_text(), re.DOTALL)
    assert text is not None
    found = re.findall(r"(ld|atom|red)\.\w+\.gpu|(seen [<>]=? unsigned\(ctas\))", text[0])
    return tuple(one or other for one, other in found)


BACK, IN, MORE = "seen >= unsigned(ctas)", "atom", "seen < unsigned(ctas)"
STEPS = ("ld", BACK, IN, MORE, "ld", "red")


def test_the_model_is_of_this_header() -> None:
    """It asks whether all are out, counts in, asks whether all are in, and counts out."""
    assert _steps() == STEPS


def _next(now: Meeting, number: int, *, asks: bool) -> Meeting:
    """Return what is left when one CTA has done its next step."""
    value, ctas = now
    many, a = len(ctas), ctas[number]
    last = 2 * many - 1
    match a.step:
        case 0:  # until all are out
            a = a._replace(step=int(not asks or value < many))
        case 1:
            a = a._replace(step=2, seen=value + 1)
            value = 0 if value >= last else value + 1
        case 2:  # until all are in
            a = a._replace(step=3) if a.seen >= many else a._replace(seen=value)
        case _:
            value = 0 if value >= last else value + 1
            a = Cta(a.met + 1)
    return value, (*ctas[:number], a, *ctas[number + 1 :])


def _wrong(many: int, meetings: int, *, asks: bool) -> Iterator[str]:
    """Go through all orders; yield what goes wrong."""
    start: Meeting = 0, (Cta(),) * many
    seen, todo = {start}, [start]
    while todo:
        now = todo.pop()
        value, ctas = now
        going = [n for n, a in enumerate(ctas) if a.met < meetings]
        after = [_next(now, n, asks=asks) for n in going]
        if not going and value:
            yield f"leaves {value}"
        if going and all(one == now for one in after):
            yield f"waits forever: {now}"
        for n, one in zip(going, after, strict=True):
            a = one[1][n]
            met = a.met + (a.step == 3)
            if any(b.met + (b.step > 1) < met for b in ctas):
                yield f"CTA {n} has met {met} times, and somebody has not come so often: {one}"
            if one not in seen:
                seen.add(one)
                todo.append(one)


@pytest.mark.parametrize(("many", "meetings"), [(1, 3), (2, 3), (3, 3), (4, 2)])
def test_all_have_come_before_anyone_leaves(many: int, meetings: int) -> None:
    """Nobody leaves early or waits forever, and the next launch finds 0."""
    assert next(_wrong(many, meetings, asks=True), "") == ""


def test_who_is_back_before_the_others_have_looked_must_wait() -> None:
    """It would count itself in as one who leaves: the integer wraps, the others wait forever."""
    assert "waits forever" in " ".join(_wrong(2, 2, asks=False))
    assert next(_wrong(2, 1, asks=False), "") == ""
