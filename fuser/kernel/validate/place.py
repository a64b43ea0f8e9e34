"""Where a statement stands: who executes it, and which variables and fragments it may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from fuser.dtype import DType
from fuser.expr import Var, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line


class Origin(Enum):
    """What gave a variable its value."""

    LAUNCH = "the launch"
    LET = "a let"
    LOOP = "a loop"
    MEMORY = "a fetch"


@dataclass(frozen=True, slots=True)
class Place:
    """The threads that reach a statement, and the variables that have a value there.

    `role` is the innermost one, or empty, and has these warps; `threads` of the CTA execute the
    statement; `elected` in an `Elect`.
    """

    kernel: kir.Kernel
    role: str
    first_warp: int
    warps: int
    threads: frozenset[int]
    elected: bool
    known: Mapping[Var, Origin]

    @property
    def who(self) -> str:
        """The threads in words, for messages."""
        many = len(self.threads)
        executed = f"{many} thread{'s' if many != 1 else ''}"
        return f"{executed} of role {self.role}" if self.role else executed

    @property
    def whole_warpgroups(self) -> bool:
        """Whether the role consists of whole warpgroups."""
        return self.first_warp % 4 == 0 and self.warps % 4 == 0

    def origin(self, var: Var) -> Origin | None:
        """Say what gave a variable its value here."""
        return self.known.get(var)

    def knowing(self, var: Var, origin: Origin) -> Place:
        """Add a variable."""
        return replace(self, known={**self.known, var: origin})


def outermost(kernel: kir.Kernel) -> Place:
    """Return the place of the statements of `Kernel.body`."""
    launched = (kir.BLOCK, kir.GRID, kir.RANK, *kernel.params)
    known = dict.fromkeys(launched, Origin.LAUNCH)
    warps = kernel.threads // kir.WARP
    everyone = frozenset(range(kernel.threads))
    return Place(kernel, "", 0, warps, everyone, elected=False, known=known)


def places(kernel: kir.Kernel) -> Iterator[tuple[kir.Stmt, Place]]:
    """Yield every statement with its place, parents before children."""
    yield from _body(kernel.body, outermost(kernel))


def _body(body: tuple[kir.Stmt, ...], place: Place) -> Iterator[tuple[kir.Stmt, Place]]:
    for stmt in body:
        yield stmt, place
        match stmt:
            case kir.Let(var):
                place = place.knowing(var, Origin.LET)
            case kir.Fetch(var):
                place = place.knowing(var, Origin.MEMORY)
            case kir.ForLoop(index, _, inner) | kir.Loop(index, inner):
                yield from _body(inner, place.knowing(index, Origin.LOOP))
            case kir.IfThenElse(_, then, orelse):
                yield from _body(then, place)
                yield from _body(orelse, place)
            case kir.Role(name, first, warps, inner):
                mine = frozenset(range(first * kir.WARP, (first + warps) * kir.WARP))
                yield from _body(
                    inner,
                    replace(
                        place,
                        role=name,
                        first_warp=first,
                        warps=warps,
                        threads=place.threads & mine,
                    ),
                )
            case kir.Elect(per, inner):
                threads = _elected(place, per)
                yield from _body(inner, replace(place, threads=threads, elected=True))
            case kir.LastArriving():
                yield from _body(stmt.body, place)
            case _:
                pass


def _elected(place: Place, per: kir.Per) -> frozenset[int]:
    base = place.first_warp * kir.WARP
    match per:
        case kir.Per.ROLE:
            return place.threads & {base}
        case kir.Per.WARP:
            return frozenset(t for t in place.threads if t % kir.WARP == 0)
        case kir.Per.WARPGROUP:
            return frozenset(t for t in place.threads if (t - base) % kir.WARPGROUP == 0)


def structure(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a role, an election, a loop, or a variable's definition."""
    warps = place.kernel.threads // kir.WARP
    match stmt:
        case kir.Role():
            yield from _role(stmt, place, warps)
        case kir.Elect(kir.Per.WARPGROUP) if not place.whole_warpgroups:
            yield (
                f": warps {place.first_warp}..{place.first_warp + place.warps - 1} are no whole "
                "warpgroups; begin at a multiple of 4, with a multiple of 4 warps"
            )
        case kir.ForLoop(index, stop, body):
            if isinstance(stop, int) and stop < 0:
                yield f" ends at {stop}; count from 0"
            moved = variables(stop) & {s.var for s in kir.walk(body) if isinstance(s, kir.Assign)}
            for var in sorted(moved, key=str):
                yield f" ends at {stop}, and its body assigns to {var}; copy it into a Let before"
            if place.origin(index) is not None:
                yield f": {index} has a value here already; rename the index"
        case kir.Loop(index):
            yield from _loop(stmt, place)
            if place.origin(index) is not None:
                yield f": {index} has a value here already; rename the index"
        case kir.Fetch(var, kir.Slot(buffer)):
            yield from number(buffer)
            if place.origin(var) is not None:
                yield f": {var} has a value here already; rename it"
        case kir.Let(var):
            if place.origin(var) is not None:
                yield f": {var} has a value here already; rename it, or assign to it"
        case kir.Assign(var):
            match place.origin(var):
                case Origin.LET:
                    pass
                case None:
                    yield f": no let above defines {var}; write Let({var}, ...) first"
                case Origin.LOOP:
                    yield f": {var} is the index of a loop; count in a Let of its own"
                case Origin.LAUNCH:
                    yield f": {var} is fixed by the launch; copy it into a Let first"
                case Origin.MEMORY:
                    yield f": {var} was fetched; copy it into a Let first"
        case _:
            pass


def _loop(loop: kir.Loop, place: Place) -> Iterable[str]:
    """Say where a loop does not fetch one number, and end by it."""
    found = [s for s in loop.body if isinstance(s, kir.Fetch | kir.Leave)]
    match found:
        case [kir.Fetch(var), kir.Leave(other)] if var == other:
            pass
        case _:
            yield (
                " is to be left by a number that it fetches; put one Fetch, and behind it one "
                "Leave of the same variable, into its body"
            )
    if place.kernel.cluster > 1 or place.kernel.semaphores:
        yield ": numbers are drawn by CTAs of their own; drop clusters and semaphores"


def number(buffer: kir.Buffer) -> Iterable[str]:
    """Say where a buffer does not hold an integer in each slot."""
    if buffer.dtype is not DType.I32 or buffer.shape != (1,):
        yield f": {buffer.name} holds {buffer.dtype.name}{list(buffer.shape)}; make it i32[1]"


def stray(kernel: kir.Kernel) -> Iterable[str]:
    """Say which fetches and exits stand in no loop that they are for, and what is drawn twice."""
    mine = {id(s) for loop in kernel.walk() if isinstance(loop, kir.Loop) for s in loop.body}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Fetch | kir.Leave) and id(stmt) not in mine:
            yield f"`{line(stmt)}` stands in no Loop; put it into the body of one itself"
    draws = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.Draw)]
    if len(draws) > 1:
        yield f"`{line(draws[1])}` is the second place that draws; draw in one place"


def _role(stmt: kir.Role, place: Place, warps: int) -> Iterable[str]:
    if stmt.first_warp < 0 or stmt.warps < 1 or stmt.first_warp + stmt.warps > warps:
        yield (f" leaves the {warps} warps of the CTA; give it warps within 0..{warps - 1}")
    elif place.elected:
        yield " stands inside an elect; put the elect into the role"
    elif place.role:
        end = place.first_warp + place.warps
        if stmt.first_warp < place.first_warp or stmt.first_warp + stmt.warps > end:
            yield (
                f" leaves warps {place.first_warp}..{end - 1} of role {place.role} around it; take "
                "a part of those"
            )


def neighbours(body: tuple[kir.Stmt, ...]) -> Iterable[str]:
    """Say which roles, one directly after the other, share warps."""
    row: list[kir.Role] = []
    for stmt in body:
        if not isinstance(stmt, kir.Role):
            row = []
            continue
        mine = set(range(stmt.first_warp, stmt.first_warp + stmt.warps))
        for other in row:
            both = mine & set(range(other.first_warp, other.first_warp + other.warps))
            if both:
                yield (
                    f"`{line(stmt)}` shares warp {min(both)} with role {other.name} beside it; "
                    "give each role warps of its own"
                )
        row.append(stmt)


def boxes(stmt: kir.Stmt) -> Iterator[kir.Box]:
    """Yield the boxes of global tensors that a statement names, those of indices among them."""
    for value in (getattr(stmt, name) for name in stmt.__slots__):
        if isinstance(value, kir.Box):
            yield value
            if value.index is not None:
                yield value.index.src


def undefined(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say which variables a statement uses that have no value there."""
    for expr in kir.expressions(stmt):
        used = variables(expr)
        unknown = () if place.known.keys() >= used else used - place.known.keys()
        for var in sorted(unknown, key=str):
            yield (
                f" uses {var}, which nothing defines before it; make it a parameter, or put a "
                "Let above"
            )
        if kir.RANK in used and place.kernel.cluster == 1:
            yield (
                f" uses {kir.RANK}, but the kernel has no clusters; set Kernel.cluster to the CTAs "
                "of one"
            )


def registers(every: Iterable[tuple[kir.Stmt, Place]]) -> Iterable[str]:
    """Say which fragments are used before anything defines them, by all statements in order.

    A definition under a condition, or in a loop that may have no iterations, counts: whether it is
    always executed is for the judges.
    """
    known: dict[str, list[tuple[frozenset[int], kir.Fragment]]] = {}
    for stmt, place in every:
        uses, makes = fragments(stmt)
        for used in uses:
            mine = [
                made for who, made in known.get(used.name, []) if not who.isdisjoint(place.threads)
            ]
            if not mine:
                yield (
                    f"`{line(stmt)}` uses {used.name}, to which no statement before it gives a "
                    "value; load or compute it first, by the same threads"
                )
            elif used not in mine:
                yield (
                    f"`{line(stmt)}` uses {used.name} in another layout or type than it got its "
                    f"value in; use {mine[-1].dtype.name} and {mine[-1].layout}"
                )
        for made in makes:
            known.setdefault(made.name, []).append((place.threads, made))


_OF_FRAGMENTS = frozenset(
    {
        kir.Load,
        kir.Coordinate,
        kir.Store,
        kir.AtomicAdd,
        kir.StAsync,
        kir.Slice,
        kir.Unpack,
        kir.Reduce,
        kir.Scan,
        kir.Gather,
        kir.GridSum,
        kir.Compute,
        kir.Wgmma,
        kir.Mma,
    }
)
"""Statements that use fragments or give them values."""


def fragments(stmt: kir.Stmt) -> tuple[list[kir.Fragment], list[kir.Fragment]]:
    """Return the fragments that a statement uses, and those that it gives a value."""
    if type(stmt) not in _OF_FRAGMENTS:
        return [], []
    match stmt:
        case kir.Compute(dst, _, args):
            return [a for a in args if isinstance(a, kir.Fragment)], [dst]
        case kir.Load(dst) | kir.Coordinate(dst):
            return [], [dst]
        case kir.Store(_, src) | kir.AtomicAdd(_, src) | kir.StAsync(_, src):
            return [src], []
        case kir.Slice(dst, src) | kir.Unpack(dst, src) | kir.Reduce(dst, src):
            return [src], [dst]
        case kir.Scan(dst, src, _, start):
            return [src, start], [dst]
        case kir.Gather(dst, _, index):
            return [*index], [dst]
        case kir.GridSum(acc):
            return [acc], [acc]
        case kir.Wgmma(acc, a, _, accumulate):
            read = [a] if isinstance(a, kir.Fragment) else []
            return ([*read, acc] if accumulate == 1 else read), [acc]
        case kir.Mma(acc, a, b):
            return [acc, a, b], [acc]
        case _:
            return [], []
