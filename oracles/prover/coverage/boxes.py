"""Count the boxes of one launch, element by element: what refutes, and what proves one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from fuser.expr import Expr, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import Function, Values, function
from oracles.prover.sites import MOVING, Site, adds, touches, unknown, writes
from oracles.verdict import Finding

TURNS = 4000
"""Turns of loops around boxes that one launch may have; a launch with more is not judged."""
ALL_TURNS = 60_000
"""Turns of all launches of a search together; a second."""
Span = list[tuple[int, int]]


class TooManyError(Exception):
    """A launch has more turns than are looked at."""


class Budget:
    """The turns that may still be looked at, whether they show a box or not."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    def spend(self) -> None:
        """Count a turn.

        Raises
        ------
        TooManyError
            If there is none left.
        """
        if self.left <= 0:
            raise TooManyError
        self.left -= 1


class Reading:
    """The box of a site as functions of the launch."""

    def __init__(self, site: Site, box: kir.Box) -> None:
        self.site, self.box = site, box
        self.loops = [(turn.index.name, function(turn.stop)) for turn in site.loops]
        self.guards = [function(guard) for guard in site.guards]
        self.origin = [function(site.plain(e)) for e in box.origin]
        self.limit = [function(site.plain(e)) for e in box.limit]
        self.extents = [function(e) for e in box.tensor.extents]
        self.writes = writes(site.stmt) is not None

    def boxes(self, values: Values, budget: Budget | None = None) -> Iterator[tuple[Values, Span]]:
        """Yield every box that is not empty, with the values of the loop indices.

        Raises
        ------
        TooManyError
            If there are more turns than a budget allows.
        """
        for now in _turns(self.loops, values):
            if budget is not None:
                budget.spend()
            if not all(guard(now) for guard in self.guards):
                continue
            spans = []
            for origin, size, limit in zip(self.origin, self.box.shape, self.limit, strict=True):
                start = origin(now)
                spans.append((start, min(start + size, limit(now))))
            if all(start < end for start, end in spans):
                yield now, spans


def _turns(loops: list[tuple[str, Function]], values: Values) -> Iterator[Values]:
    if not loops:
        yield values
        return
    (name, stop), *rest = loops
    for i in range(stop(values)):
        yield from _turns(rest, {**values, name: i})


def readings(sites: tuple[Site, ...]) -> list[Reading]:
    """Return the accesses of global memory, without those whose place is not known."""
    out = []
    for site in sites:
        box = touches(site.stmt)
        if box is None:
            continue
        exprs = (*site.guards, *(turn.stop for turn in site.loops))
        places = tuple(site.plain(e) for e in (*box.origin, *box.limit))
        if not unknown((*exprs, *places)):
            out.append(Reading(site, box))
    return out


def refuted(kernel: kir.Kernel, sites: tuple[Site, ...]) -> Finding | None:
    """Search for a small launch in which a box leaves its tensor or an output is not covered."""
    read = readings(sites)
    loops = {turn.index.name: turn for site in sites for turn in site.loops}
    stops = [turn.stop for turn in loops.values() if not isinstance(turn.stop, int)]
    closed = [function(s) for s in stops if MOVING not in variables(s) and _closed(kernel, s)]
    skipped = left_out(kernel, sites)
    rest = ALL_TURNS
    for values in launches.some_launches(kernel):
        budget = Budget(min(TURNS, rest))
        rest -= budget.left
        try:
            wrong = wrong_in(kernel, read, values, skipped, budget)
        except ZeroDivisionError:
            wrong = Finding("bounds", kernel.name, "an index divides by 0")
        except TooManyError:
            wrong = None
        rest += budget.left
        if wrong is not None:
            shown = {k: v for k, v in values.items() if k != kir.BLOCK.name}
            launch = tuple(sorted(shown.items()))
            names = ", ".join(f"{name}={value}" for name, value in launch)
            trips = max((_count(stop, values) for stop in closed), default=0)
            says = f"trips={trips}, {names}: {wrong.witness}"
            return replace(wrong, witness=says, trips=trips, launch=launch)
    return None


def left_out(kernel: kir.Kernel, sites: tuple[Site, ...]) -> frozenset[str]:
    """Return the outputs of which it is not known what launches write, or that are added to only.

    A launch before this one may have given such an output its first value.
    """
    known = {id(reading.site) for reading in readings(sites)}
    moving, stored, added = set(), set(), set()
    for site in sites:
        box, more = writes(site.stmt), adds(site.stmt)
        if box is not None:
            stored.add(box.tensor.name)
            if id(site) not in known:
                moving.add(box.tensor.name)
        if more is not None:
            added.add(more.tensor.name)
    return frozenset(moving | (added - stored))


def _closed(kernel: kir.Kernel, stop: Expr) -> bool:
    return variables(stop) <= {kir.BLOCK, kir.GRID, *kernel.params}


def _count(stop: Function, values: Values) -> int:
    try:
        return max(0, stop(values))
    except ZeroDivisionError:
        return 0


def wrong_in(
    kernel: kir.Kernel,
    read: list[Reading],
    values: Values,
    skipped: frozenset[str],
    budget: Budget | None = None,
) -> Finding | None:
    """Return what goes wrong in one launch, outputs in `skipped` aside.

    Raises
    ------
    TooManyError
        If the launch has more turns than the budget, or `TURNS`, allows.
    """
    written: dict[str, list[Span]] = {}
    budget = Budget(TURNS) if budget is None else budget
    for block in range(values[kir.GRID.name]):
        here = {**values, kir.BLOCK.name: block}
        for reading in read:
            extents = [extent(here) for extent in reading.extents]
            for now, spans in reading.boxes(here, budget):
                for (start, end), extent in zip(spans, extents, strict=True):
                    if start < 0 or end > extent:
                        at = "".join(f", {t.name}={now[t.index.name]}" for t in reading.site.loops)
                        says = f"CTA {block}{at}: {start}..{end} leaves 0..{extent}"
                        site = reading.site
                        return Finding("bounds", site.where, says, lines=(site.line,))
                if reading.writes:
                    written.setdefault(reading.box.tensor.name, []).append(spans)
    for tensor in kernel.tensors:
        if tensor.name in kernel.outputs and tensor.name not in skipped:
            says = _uncovered([function(e)(values) for e in tensor.extents], written, tensor.name)
            if says:
                return Finding("coverage", tensor.name, says)
    return None


def _uncovered(extents: list[int], written: dict[str, list[Span]], name: str) -> str:
    boxes = sorted(written.get(name, []))
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            if b[0][0] >= a[0][1]:
                break
            both = [(max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True)]
            if all(start < end for start, end in both):
                return f"element {tuple(start for start, _ in both)} is written twice"
    left = prod(extents) - sum(prod(end - start for start, end in box) for box in boxes)
    return f"{left} elements are never written" if left else ""
