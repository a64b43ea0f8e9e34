"""Roles that take tiles in turn, written as one role; and their turns, as a kernel of its own.

Of m roles with the same steps, role i takes the tiles t with t % m == i and skips the others.  If
each thread of a role is done with the steps of its tile before the same thread of the next role
begins with those of the next tile, then both are one thread that runs the steps of all tiles: what
was program order there is an order that mbarriers grant here.

`teamed` returns that kernel, and for each remainder of the number of tiles one that asks for that
order: in it every thread stores to a word of its own number, the baton, instead of its steps.

Notes
-----
*Deadlock*.  Waits for a turn stand before the steps of a tile, arrivals for the next one behind.  A
schedule of the one role goes with them: a wait for what a later tile does would close a circle with
the order of the baton, and the turns would have no schedule of their own.

*Results* leave behind the signals for the next turn, through things that a role has to itself
(`private`): staging, its barrier, its groups, so that the next role's steps need not wait for it.
The one role does with those of the first what each does with its own.

*Groups*.  An await sees the groups of its own warp only, not those of the role before; so each step
has to await all that it committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, function, period
from oracles.prover.invariants.rewriting.loops import MOST, ROUND, ROUNDS
from oracles.prover.invariants.rewriting.statements import Whole, alone, with_slots
from oracles.prover.sites import mbarrier, slots

Signal = kir.MBarrierWaitParity | kir.MBarrierArrive
_ENDS = (kir.Elect, kir.AsyncAwait)
_BESIDE = (
    kir.Let
    | kir.WarpSync
    | kir.Elect
    | kir.BlockSync
    | kir.FenceAsyncProxy
    | kir.TmaStore
    | kir.Store
    | kir.MBarrierWaitParity
    | kir.MBarrierArrive
)
"""What a role may do besides its steps, where it shares something."""


@dataclass(frozen=True, slots=True)
class Team:
    """One role in place of those that take turns, and their turns by remainder of the tiles."""

    one: Whole
    turns: tuple[Whole, ...]


@dataclass(frozen=True, slots=True)
class _Member:
    """A role, its loop over tiles, and what it does before, in and after the steps of its own.

    `tail` is what it does when it is done with all tiles.
    """

    role: kir.Role
    loop: kir.ForLoop
    number: int
    count: int
    before: tuple[kir.Stmt, ...]
    inner: kir.ForLoop
    after: tuple[kir.Stmt, ...]
    tail: tuple[kir.Stmt, ...]

    @property
    def beside(self) -> tuple[kir.Stmt, ...]:
        """What the role does besides its steps."""
        return (*self.before, *self.after, *self.tail)


def teamed(whole: Whole) -> Team | None:
    """Return the team of a kernel; None if no role skips tiles.

    Raises
    ------
    UnsupportedError
        If some do, but not as described here.
    """
    roles = [stmt for stmt in whole.kernel.body if isinstance(stmt, kir.Role)]
    members = [member for role in roles if (member := _member(role)) is not None]
    if not members:
        return None
    first = members[0]
    if sorted(m.number for m in members) != list(range(first.count)) or first.count > MOST:
        raise UnsupportedError("roles that take tiles in turn, but not each its own")
    signals = {s.barrier for m in members for s in _signals((*m.before, *m.after))}
    own = [private(whole.kernel, m.role.name, m.beside) for m in members]
    alike = {
        (_span(m), m.count, m.loop.index, m.loop.stop, m.inner, *_said(m, signals, mine, own[0]))
        for m, mine in zip(members, own, strict=True)
    }
    warps = [w for r in roles for w in range(r.first_warp, r.first_warp + r.warps)]
    if len(alike) > 1 or len(set(warps)) < len(warps):
        raise UnsupportedError("roles that take tiles in turn, but not alike")
    _check(whole.kernel, members, signals)
    return Team(
        _merged(whole, members, signals),
        tuple(_Turns(whole, members, signals, rest).whole() for rest in range(first.count)),
    )


def _member(role: kir.Role) -> _Member | None:
    """Return a role that takes every m-th tile."""
    match role.body:
        case (
            kir.ForLoop(
                index,
                _,
                (
                    kir.IfThenElse(
                        Op(Kind.EQ, Op(Kind.MOD, Var() as tile, int() as count), int() as number),
                        mine,
                        skip,
                    ),
                ),
            ) as loop,
            *tail,
        ) if tile == index and all(isinstance(s, _ENDS) for s in kir.walk(tuple(tail))):
            pass
        case _:
            return None
    loops = [i for i, s in enumerate(mine) if isinstance(s, kir.ForLoop)]
    if len(loops) != 1:
        return None
    inner = mine[loops[0]]
    assert isinstance(inner, kir.ForLoop), "just asked"
    moves = {s.var for s in inner.body if isinstance(s, kir.Assign)}
    owed = {kir.Assign(var, var + inner.stop) for var in moves}
    if set(skip) != owed or len(skip) != len(owed):
        raise UnsupportedError(f"{role.name} skips tiles, but not all their steps")
    before, after = mine[: loops[0]], mine[loops[0] + 1 :]
    return _Member(role, loop, number, count, before, inner, after, tuple(tail))


def _span(member: _Member) -> tuple[int, int]:
    """Return how many warps a role has, and where in its warpgroup it begins."""
    return member.role.warps, member.role.first_warp % 4


def _signals(body: tuple[kir.Stmt, ...]) -> Iterator[Signal]:
    for stmt in kir.walk(body):
        if isinstance(stmt, Signal):
            yield stmt


def _rest(member: _Member, signals: set[kir.MBarrier]) -> tuple[tuple[kir.Stmt, ...], ...]:
    """Return what a role does besides its steps and its turns."""
    return _quiet(member.before, signals), _quiet(member.after, signals)


def _said(
    member: _Member, signals: set[kir.MBarrier], own: Private, first: Private
) -> Iterator[tuple[kir.Stmt, ...] | None]:
    """Yield the same in the names of the first role, if it can be said so; and the tail."""
    for part in (*_rest(member, signals), member.tail):
        yield renamed(part, own, first)


def _quiet(body: tuple[kir.Stmt, ...], signals: set[kir.MBarrier]) -> tuple[kir.Stmt, ...]:
    """Return a body without the signals of turns."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, Signal) and stmt.barrier in signals:
            return []
        if isinstance(stmt, kir.Elect) and not _quiet(stmt.body, signals):
            return []
        return None

    return kir.rewrite(body, rule)


def _check(kernel: kir.Kernel, members: list[_Member], signals: set[kir.MBarrier]) -> None:
    """Check that turns have mbarriers of their own, and that roles share nothing else."""
    teams = {id(member.role) for member in members}
    inside = [s for m in members for s in kir.walk(m.inner.body)]
    others = [
        s
        for r in kernel.body
        if isinstance(r, kir.Role) and id(r) not in teams
        for s in kir.walk((r,))
    ]
    for stmt in (*inside, *others):
        if mbarrier(stmt) in signals:
            raise UnsupportedError("turns and steps share an mbarrier")
    for member in members:
        if any(isinstance(s, kir.MBarrierArrive) for s in kir.walk(member.before)):
            raise UnsupportedError("the next turn is given before the steps of this one")
        if any(isinstance(s, kir.MBarrierWaitParity) for s in kir.walk(member.after)):
            raise UnsupportedError("a turn is awaited behind the steps")
        for stmt in kir.walk((*member.before, *member.after)):
            bulk = getattr(stmt, "kind", None) is kir.AsyncKind.BULK
            if not (bulk or alone(stmt) or isinstance(stmt, _BESIDE)):
                what = type(stmt).__name__
                raise UnsupportedError(f"{what} beside the steps of roles that take turns")
        _settled(member)


def _settled(member: _Member) -> None:
    """Check that a step leaves nothing in flight, and meets nobody but by mbarriers."""
    open_groups = False
    for stmt in member.inner.body:
        match stmt:
            case kir.AsyncCommit(kir.AsyncKind.WGMMA) | kir.Wgmma():
                open_groups = True
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                open_groups = False
            case _:
                for inner in kir.walk((stmt,)):
                    if isinstance(inner, kir.AsyncCommit | kir.AsyncAwait | kir.Wgmma):
                        raise UnsupportedError("groups that are not awaited in their step")
                    if isinstance(inner, kir.BlockSync | kir.NamedArrive | kir.TmaLoad):
                        what = type(inner).__name__
                        raise UnsupportedError(f"{what} in the steps of roles that take turns")
    if open_groups:
        raise UnsupportedError("groups that are not awaited in their step")


def _merged(whole: Whole, members: list[_Member], signals: set[kir.MBarrier]) -> Whole:
    """Return the kernel in which one role runs the steps of all tiles."""
    first, *others = members
    gone = {id(member.role) for member in others}

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if id(stmt) in gone:
            return []
        if stmt is first.role:
            before, after = _rest(first, signals)
            loop = replace(first.loop, body=(*before, first.inner, *after))
            return [replace(first.role, body=(loop, *first.tail))]
        return None

    return Whole(whole.kernel.rewrite(rule), whole.lines)


class _Turns:
    """The turns of a team for one remainder of the number of tiles."""

    def __init__(
        self, whole: Whole, members: list[_Member], signals: set[kir.MBarrier], rest: int
    ) -> None:
        self.source, self.members, self.signals, self.rest = whole, members, signals, rest
        self.lines = whole.lines
        kernel, threads = whole.kernel, members[0].role.warps * kir.WARP
        offset = -(-kernel.smem_bytes // 128) * 128
        self.baton = kir.Buffer("baton", DType.F32, (1, threads), 1, offset)
        layout = kir.Layout((1, threads), 1, threads)
        self.word = kir.Fragment("baton", DType.F32, layout)

    def whole(self) -> Whole:
        """Return the kernel, with the lines of its statements."""
        kernel = self.source.kernel
        barriers = [b for b in kernel.barriers if b not in self.signals]
        for barrier in kernel.barriers:
            if barrier in self.signals:
                barriers += [self._part(barrier, at) for at in range(barrier.slots)]
        roles = {id(member.role): member for member in self.members}
        body: list[kir.Stmt] = []
        for stmt in kernel.body:
            match stmt:
                case kir.Role():
                    if id(stmt) in roles:
                        body.append(self._role(roles[id(stmt)]))
                case _:
                    body += kir.rewrite((stmt,), self._init)
        return Whole(
            replace(
                kernel,
                buffers=(self.baton,),
                barriers=tuple(barriers),
                body=tuple(body),
            ),
            self.lines,
        )

    def _part(self, barrier: kir.MBarrier, at: int) -> kir.MBarrier:
        offset = self.source.kernel.barrier_at(barrier) + 8 * at
        return replace(barrier, name=f"{barrier.name}[{at}]", slots=1, offset=offset)

    def _init(self, stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.MBarrierInit) and stmt.barrier in self.signals:
            parts = (self._part(stmt.barrier, at) for at in range(stmt.barrier.slots))
            return [self.lines.kept(stmt, kir.MBarrierInit(part)) for part in parts]
        return None

    def _role(self, member: _Member) -> kir.Role:
        baton = self.lines.kept(member.inner, kir.Store(kir.Slot(self.baton, 0), self.word, 1))
        mine = (*self._turn(member.before, member), baton, *self._turn(member.after, member))
        stop: Expr = ROUNDS + 1 if self.rest else ROUNDS
        late = self.rest and member.number >= self.rest
        body = (kir.IfThenElse(ROUND < ROUNDS, mine),) if late else mine
        return replace(member.role, body=(kir.ForLoop(ROUND, stop, body),))

    def _turn(self, body: tuple[kir.Stmt, ...], member: _Member) -> tuple[kir.Stmt, ...]:
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.Elect(_, inner):
                    if kept := self._turn(inner, member):
                        out.append(replace(stmt, body=kept))
                case kir.WarpSync():
                    out.append(self.lines.kept(stmt, kir.WarpSync()))
                case kir.MBarrierWaitParity(barrier, slot, parity, _, _):
                    part = self._part(barrier, self._slot(slot, member))
                    moved = replace(stmt, barrier=part, slot=0, parity=self._at(parity, member))
                    out.append(self.lines.kept(stmt, moved))
                case kir.MBarrierArrive(barrier, slot):
                    part = self._part(barrier, self._slot(slot, member))
                    out.append(self.lines.kept(stmt, replace(stmt, barrier=part, slot=0)))
                case _:
                    pass
        return tuple(out)

    def _at(self, expr: Expr, member: _Member) -> Expr:
        tile = ROUND * member.count + member.number
        return substitute(expr, {member.loop.index: tile})

    def _slot(self, expr: Expr, member: _Member) -> int:
        """Return the slot of a signal, which is the same in every round."""
        moved = self._at(expr, member)
        value, many = function(moved, checked=True), period(moved, ROUND)
        seen = {value({ROUND.name: k}) for k in range(many or 0)}
        if len(seen) != 1:
            raise UnsupportedError(f"turns in slot {expr}")
        return seen.pop()


# --- what a role has to itself ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Private:
    """The buffers and the numbers of barriers that one role has to itself, in order of use."""

    buffers: tuple[kir.Buffer, ...]
    numbers: tuple[int, ...]


def private(kernel: kir.Kernel, role: str, beside: Sequence[kir.Stmt]) -> Private:
    """Return what a role has to itself in statements beside its steps.

    Parameters
    ----------
    kernel : Kernel
        The whole kernel.
    role : str
        The role, by name.
    beside : sequence of Stmt
        What it does besides its steps.

    Raises
    ------
    UnsupportedError
        If something of it is used elsewhere, or in another slot from tile to tile.
    """
    mine = list(kir.walk(tuple(beside)))
    own = {id(stmt) for stmt in mine}
    others = [stmt for stmt in kernel.walk() if id(stmt) not in own]
    found = Private(tuple(dict.fromkeys(_buffers(mine))), tuple(dict.fromkeys(_numbers(mine))))
    shared = {b.name for b in found.buffers} & {b.name for b in _buffers(others)}
    shared |= {f"barrier {n}" for n in set(found.numbers) & set(_numbers(others))}
    if shared:
        names = ", ".join(sorted(shared))
        raise UnsupportedError(f"{role} uses {names} beside its steps, and others do too")
    for slot in (slot for stmt in mine for slot in slots(stmt)):
        if slot.index != 0 or slot.cta is not None:
            raise UnsupportedError(f"{role} uses {slot.buffer.name} slot by slot beside its steps")
    return found


def renamed(
    body: tuple[kir.Stmt, ...], own: Private, first: Private
) -> tuple[kir.Stmt, ...] | None:
    """Return statements with a role's own things named as the first role's; None if they differ."""
    if len(own.buffers) != len(first.buffers) or len(own.numbers) != len(first.numbers):
        return None
    pairs = list(zip(own.buffers, first.buffers, strict=True))
    if any(replace(a, name=b.name, offset=b.offset) != b for a, b in pairs):
        return None
    buffers = {a.name: b for a, b in pairs}
    numbers = dict(zip(own.numbers, first.numbers, strict=True))

    def moved(slot: kir.Slot) -> kir.Slot:
        return replace(slot, buffer=buffers[slot.buffer.name])

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.BlockSync):
            return [replace(stmt, barrier=numbers[stmt.barrier])]
        return [with_slots(stmt, moved)] if slots(stmt) else None

    return kir.rewrite(body, rule)


def _buffers(body: Iterable[kir.Stmt]) -> Iterator[kir.Buffer]:
    yield from (slot.buffer for stmt in body for slot in slots(stmt))


def _numbers(body: Iterable[kir.Stmt]) -> Iterator[int]:
    for stmt in body:
        if isinstance(stmt, kir.BlockSync | kir.NamedArrive):
            yield stmt.barrier
