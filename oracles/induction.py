"""From some trip counts to all of them: how many have to be judged, and why that is enough.

Notes
-----
Write G(n) for the events and order (`order.Order`) of a kernel that runs n iterations.  `Rhythm`
says that away from its first `start` and last `end` iterations G(n) looks the same after a shift
by `period`; `steady` confirms it on the largest G judged.  `lookahead` finds numbers h of the kinds
of events with k(x) + h(x) <= k(y) + h(y) whenever x is required by y, by relaxation over the edges
of one period, so whatever y needs comes at most H = max h iterations later than y, and whatever
needs x at most H earlier than x.

Claim: if every obligation holds for all n <= `enough`, it holds for all n.  By induction on n.  An
obligation says that a (iteration i) precedes b (iteration i').

1. Far apart, i' - i > turn + H: b's statement ran `turn` iterations before, on the same bytes, in
   the same thread; a precedes that one (an obligation of G(n) with a smaller distance) and the
   thread's own order does the rest.  (i' - i < -H is impossible, as b would be required by a.)
2. Near, and both at least H + period + end before the end: all that b needs lies in the part that
   G(n) and G(n - period) share, where the obligation holds.
3. Near, and both at least H + period + start after the start: the shift by `period` maps G(n -
   period) onto this part of G(n), and all that leads from a to b lies in it.

With n > start + end + 2 period + 3 H + turn one of the three is the case.  Obligations at the exit
are of kind 1 backwards: what is in flight at i is awaited before the bytes are used again.
`trips` is the least n from which on conditions on n alone have their final value.
"""

from __future__ import annotations

from oracles.order import Order
from oracles.rhythm import Rhythm

Kind = tuple[int, int, str]
"""A kind of event: its step, its agent, and what of the step it is."""
Edge = tuple[Kind, Kind, int]
"""An event, one it requires, and how many iterations earlier that one is."""


def enough(rhythm: Rhythm, lookahead: int) -> int:
    """Return a trip count up to which all have to be judged."""
    window = rhythm.start + rhythm.end + rhythm.turn + 2 * rhythm.period + 3 * lookahead
    return max(window, rhythm.trips + rhythm.period) + 1


def edges(order: Order, rhythm: Rhythm) -> list[frozenset[Edge]]:
    """Return what is required in each iteration away from the ends."""
    span = range(rhythm.start, order.trips - rhythm.end)
    found: list[set[Edge]] = [set() for _ in span]
    for number, event in enumerate(order.events):
        if event.step is None or event.iteration not in span:
            continue
        kind = (event.step.index, event.agent, event.what)
        for cause in order.causes[number]:
            other = order.events[cause]
            assert other.step is not None, "every event is of some step"
            back = event.iteration - other.iteration
            source = (other.step.index, other.agent, other.what)
            found[event.iteration - rhythm.start].add((kind, source, back))
    return [frozenset(f) for f in found]


def steady(found: list[frozenset[Edge]], rhythm: Rhythm) -> bool:
    """Whether every iteration away from the ends looks as the one a period before it."""
    p = rhythm.period
    return len(found) > p and all(a == b for a, b in zip(found, found[p:], strict=False))


def lookahead(found: frozenset[Edge]) -> int | None:
    """Return how many iterations later than an event its requirements may be; None if unbounded."""
    height = {kind: 0 for kind, _, _ in found} | {source: 0 for _, source, _ in found}
    for _ in range(len(height) + 1):
        changed = False
        for kind, source, back in found:
            if height[kind] < height[source] - back:
                height[kind] = height[source] - back
                changed = True
        if not changed:
            return max(height.values(), default=0)
    return None
