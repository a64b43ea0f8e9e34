"""The rotation symmetry: states that differ only by where in its rings a kernel is are one.

If every thread uses the slots of a ring at positions `v + c` (slot `(v + c) % S`, parity
`((v + c) // S + d) % 2`; c may have a prolog's counter in it, which is no position), then moving
all positions by `r` and all slots with them changes nothing but names: slot `s` becomes slot
`(s - r) % S`, and the parity of its phases is another one where that passes the ring's end.

Notes
-----
What a later check may depend on is asked of every instruction that some thread may still come to:
a slot or a barrier of a ring is named by its position, and the parity by the same one; a position
becomes another only by adding what is no position; a position is compared only with the unknown
length of the loop that it counts, and such counts are relative in a canonical form anyway.  A ring
shares no bytes.  One instruction that does anything else (a position that begins again at 0, slot 0
by its number, `k % 3`, a box of shared global memory) holds back the rotation until no thread can
come there any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import lcm

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.program.code import (
    Branch,
    Code,
    Condition,
    Do,
    Enter,
    Instruction,
    Set,
    compared,
)
from oracles.prover.reachability.state import FACTS, Agent, Where

Place = tuple[object, ...]
_MEMORY = ("access", "engine")
_BARRIER = ("phase", "wait", "announced", "arrive")
_PARITY = {"phase": 2, "arrive": 4}
"""Where the place of an event has the parity of its phase."""


class Rotation:
    """The rotation symmetry of a kernel: what moves with positions, and where nothing minds.

    `names` are the positions, `rings` the slots of each ring of barriers ("phase", name) and
    buffers ("access", name) that move with them, and `period` after how many moves all is as it
    was.
    """

    def __init__(
        self,
        names: frozenset[str] = frozenset(),
        rings: Mapping[tuple[str, str], int] | None = None,
        minds: tuple[int, ...] = (),
    ) -> None:
        self.names, self.rings, self.minds = names, rings or {}, minds
        self.period = lcm(*(2 * slots for slots in self.rings.values()))
        self._known: dict[tuple[int, int], Rotated] = {}

    def by(self, code: Code, agents: list[Agent], ahead: dict[int, dict[str, int]]) -> int:
        """Return by how much a state is to be rotated: its least position, 0 if it may not be.

        `ahead` says by kind of threads how far ahead positions are of what is put down; up to the
        place in `minds` of its program each may still come to something that minds.
        """
        if not self.names:
            return 0
        least = -1
        for a in agents:
            if a.done:
                continue
            at = a.at
            i = code.programs[a.kind.index][at]
            if isinstance(i, Enter) and not (a.loops and a.loops[-1].number == i.number):
                at -= 1
            if at <= self.minds[a.kind.index]:
                return 0
            for name in self.names:
                value = a.env.get(name, -1) + ahead[a.kind.index].get(name, 0)
                if value >= 0 and (least < 0 or value < least):
                    least = value
        return max(least, 0)

    def siblings(self, place: Place) -> Iterator[Place]:
        """Yield the places of an event in all slots of its ring."""
        slots = self._slots(place)
        if not slots:
            yield place
            return
        where, at = place[1], _PARITY.get(str(place[0]), 0)
        parity = place[at] if at else 0
        assert isinstance(where, tuple), "places of rings are of a slot"
        assert isinstance(parity, int), "phases have a parity"
        first = self.moved(place, where[2] + slots * parity)
        for r in range(2 * slots if at else slots):
            yield self.moved(first, -r)

    def moved(self, place: Place, r: int) -> Place:
        """Return the place that takes the part of another."""
        slots = self._slots(place)
        if not slots:
            return place
        where = place[1]
        assert isinstance(where, tuple), "places of rings are of a slot"
        rest = place[2:]
        if at := _PARITY.get(str(place[0]), 0):
            parity = place[at]
            assert isinstance(parity, int), "phases have a parity"
            rest = (*place[2:at], (parity + (where[2] - r) // slots) % 2)
        return (place[0], (*where[:2], (where[2] - r) % slots), *rest)

    def _slots(self, place: Place) -> int:
        sort = place[0]
        if sort in _MEMORY or sort in _BARRIER:
            where = place[1]
            assert isinstance(where, tuple), "these are of a piece of memory"
            return self.rings.get(("access" if sort in _MEMORY else "phase", where[1]), 0)
        return 0

    def rotated(self, numbers: Mapping[Place, int], r: int) -> Rotated:
        """Return how all events that have a number move with positions that go back by `r`."""
        r %= self.period
        if not r:
            return STILL
        found = self._known.get((r, len(numbers)))
        if found is None:
            events: dict[int, int] = {}
            masks: dict[int, int] = {}
            for place, number in numbers.items():
                to = numbers[self.moved(place, r)]
                if to != number:
                    events[number] = to
                    masks[to - number] = masks.get(to - number, 0) | 0b1111 << FACTS * number
            moves = tuple((mask, FACTS * by) for by, mask in masks.items())
            still = ~sum(mask for mask, _ in moves)
            found = self._known[r, len(numbers)] = Rotated(self.rings, r, events, moves, still)
        return found


@dataclass(frozen=True, slots=True)
class Rotated:
    """One rotation: which event takes the part of which, as numbers and as moves of bits."""

    rings: Mapping[tuple[str, str], int]
    r: int
    moved: Mapping[int, int]
    moves: tuple[tuple[int, int], ...]
    still: int

    def bits(self, known: int) -> int:
        """Return a set of facts, rotated."""
        out = known & self.still
        for mask, shift in self.moves:
            part = known & mask
            if part:
                out |= part << shift if shift > 0 else part >> -shift
        return out

    def event(self, event: int) -> int:
        """Return an event, rotated."""
        return self.moved.get(event, event)

    def where(self, where: Where, sort: str) -> Where:
        """Return a slot of a ring, rotated; any other piece of memory as it is."""
        slots = self.rings.get((sort, where[1])) if where[0] >= 0 else None
        if slots is None:
            return where
        return where[0], where[1], (where[2] - self.r) % slots

    def parity(self, where: Where, parity: int) -> int:
        """Return the parity of a barrier's phase, rotated."""
        slots = self.rings.get(("phase", where[1]))
        return parity if slots is None else (parity + (where[2] - self.r) // slots) % 2


NONE = Rotation()
"""No symmetry."""
STILL = Rotated({}, 0, {}, (), -1)
"""The rotation that changes nothing."""


# --- what moves with positions -------------------------------------------------------------------


def rotation_of(code: Code, shared: AbstractSet[tuple[str, str]]) -> Rotation:
    """Return the rotation symmetry of a kernel; `shared` are rings that share bytes with others."""
    running = code.moving - numbers(code).keys()
    positions: set[str] = set()
    rings: dict[tuple[str, str], int] = {}
    for program in code.programs:
        for i in program:
            if isinstance(i, Do):
                for _, key, slots, expr, parity in _named(i):
                    found = _position(expr, slots, running)
                    if slots == 1 and parity is not None:
                        found = _phase(parity, slots, running)
                    if found is not None and key not in shared:
                        positions.add(found.name)
                        rings[key] = slots
    names = frozenset(n for n in positions if code.cycles.get(n, (0, 1))[0] == 0)
    if not names:
        return NONE
    return Rotation(names, rings, tuple(_minds(p, names, rings) for p in code.programs))


def numbers(code: Code) -> dict[str, int]:
    """Return the counters that only ever count to a number, with the largest one."""
    out: dict[str, int] = {}
    others: set[str] = set()
    for i in (i for program in code.programs for i in program):
        match i:
            case Enter(_, name, int() as stop):
                out[name] = max(out.get(name, 0), stop)
            case Enter(_, name) | Set(name):
                others.add(name)
            case _:
                pass
    return {name: stop for name, stop in out.items() if name not in others}


def _named(
    i: Do,
) -> Iterator[tuple[tuple[str, ...], tuple[str, str], int, Expr, Expr | None]]:
    """Yield the slots that a statement names.

    That is: which of its values, ring, slots, expression of the slot, and of the parity if any.
    """
    known = dict(zip(i.values, i.exprs, strict=True))
    stmt = i.site.stmt
    barrier = getattr(stmt, "barrier", None)
    if isinstance(barrier, kir.MBarrier) and "bar" in known:
        parity = known.get("parity")
        yield ("bar", "parity"), ("phase", barrier.name), barrier.slots, known["bar"], parity
    places = [getattr(stmt, name, None) for name in ("b", "dst", "src")]
    slots = {
        "a": getattr(stmt, "a", None),
        "slot": next((s for s in places if isinstance(s, kir.Slot)), None),
    }
    for name, slot in slots.items():
        if isinstance(slot, kir.Slot) and name in known:
            buffer = slot.buffer
            yield (name,), ("access", buffer.name), buffer.slots, known[name], None
    if isinstance(stmt, kir.Wgmma):
        for buffer in stmt.beside:
            yield ("slot",), ("access", buffer.name), buffer.slots, known["slot"], None


@dataclass(frozen=True, slots=True)
class _At:
    """The position `name + plus + rest`; no position is in the rest."""

    name: str
    plus: int
    rest: frozenset[tuple[Expr, int]]


def _position(expr: Expr, slots: int, names: frozenset[str]) -> _At | None:
    """Return v + c + r of `(v + c + r) % slots`."""
    match expr:
        case Op(Kind.MOD, inside, int() as of) if of == slots:
            return _sum(inside, names)
        case _:
            return None


def _sum(expr: Expr, names: frozenset[str]) -> _At | None:
    """Return a sum of one variable out of some, a constant, and whatever does without them."""
    constant, parts = linear(expr)
    mine = [(e, times) for e, times in parts.items() if _mentions(e, names)]
    match mine:
        case [(Var(name) as var, 1)]:
            return _At(name, constant, frozenset((e, n) for e, n in parts.items() if e != var))
        case _:
            return None


def _phase(expr: Expr, slots: int, names: frozenset[str]) -> _At | None:
    """Return v + c + r of `((v + c + r) // slots + d) % 2`."""
    match expr:
        case Op(Kind.MOD, inside, 2):
            _, parts = linear(inside)
            match list(parts.items()):
                case [(Op(Kind.FLOORDIV, position, int() as of), 1)] if of == slots:
                    return _sum(position, names)
                case [(Var(), 1)] if slots == 1:
                    return _sum(inside, names)
                case _:
                    return None
        case _:
            return None


def _minds(
    program: list[Instruction], names: frozenset[str], rings: dict[tuple[str, str], int]
) -> int:
    """Return the last place of a program from which something that minds may still be reached."""
    loops = [(at, i.end, i) for at, i in enumerate(program) if isinstance(i, Enter)]
    last = -1
    for at, i in enumerate(program):
        around = [(end - 1) for start, end, _ in loops if start <= at < end]
        counted = {e.name: e.atom for start, end, e in loops if start <= at < end}
        if isinstance(i, Enter) and i.name in names:
            # entered, it begins at 0: from outside of it, or once more in a loop around it
            outer = [end - 1 for start, end, e in loops if start < at < end]
            last = max(last, at - 1, *outer)
        if not _conforms(i, names, rings, counted):
            last = max(last, at, *around)
    return last


def _mentions(expr: Expr, names: frozenset[str]) -> bool:
    return any(v.name in names for v in variables(expr))


def _conforms(
    i: Instruction,
    names: frozenset[str],
    rings: dict[tuple[str, str], int],
    counted: dict[str, int],
) -> bool:
    match i:
        case Do():
            return _does(i, names, rings)
        case Set(name, expr):
            if name not in names:
                return not _mentions(expr, names)
            _, parts = linear(expr)
            mine = [(e, times) for e, times in parts.items() if _mentions(e, names)]
            return len(mine) == 1 and isinstance(mine[0][0], Var) and mine[0][1] == 1
        case Enter():
            if _mentions(i.stop, names):
                return False
            test = Op(Kind.LT, Var(i.name), i.stop)
            return i.name not in names or _compares(test, i.test, names, counted)
        case Branch(expr):
            return not _mentions(expr, names) or _compares(expr, i.test, names, counted)
        case _:
            return True


def _compares(expr: Expr, test: Condition, names: frozenset[str], counted: dict[str, int]) -> bool:
    """Whether one position is compared with the unknown length of the loop that it counts."""
    match expr:
        case Op(Kind.LT | Kind.LE, left, right):
            _, parts = linear(left - right)
            mine = [(e, times) for e, times in parts.items() if _mentions(e, names)]
            if len(parts) != 2 or len(mine) != 1:
                return False
            position, times = mine[0]
            if not isinstance(position, Var) or abs(times) != 1:
                return False
            return compared(test) == {counted.get(position.name, -1)}
        case _:
            return False


def _does(i: Do, names: frozenset[str], rings: dict[tuple[str, str], int]) -> bool:
    named: set[str] = set()
    for said, key, slots, expr, parity in _named(i):
        if key not in rings:
            continue
        named.update(said)
        found = _position(expr, slots, names)
        phase = None if parity is None else _phase(parity, slots, names)
        if found is None and not (slots == 1 and expr == 0):
            return False
        if parity is not None and phase is None:
            return False
        if found is not None and phase is not None and not _same(found, phase, slots):
            return False
    others = [e for name, e in zip(i.values, i.exprs, strict=True) if name not in named]
    others += [*i.origin, *((i.index,) if i.index is not None else ())]
    return not any(_mentions(e, names) for e in others)


def _same(slot: _At, phase: _At, slots: int) -> bool:
    return (slot.name, slot.rest) == (phase.name, phase.rest) and not (
        (slot.plus - phase.plus) % slots
    )
