"""CTAs that a semaphore serializes: a turn (one CTA's place in that order) against a later one.

The CTAs of one semaphore are numbered by their turn, 0 ... n - 1, and n is unknown.  `split` cuts a
kernel behind its loops: what precedes the cut has nothing to do with turns and is judged like any
other kernel, what follows is executed once by each CTA and judged here.

Every event has a time in turn k and one in turn j > k (`Events`).  Constraints say what each
requires: its thread's events before it, all threads at a barrier, the copies that an await covers,
and across turns that a wait comes after what the turns before it have released.  Nothing else
orders two CTAs.

Accesses of one turn conflict with those of the same turn by other threads, and with those of later
turns (`TurnClaims`).  Tensors that a turn writes are touched by one box only, which tells
semaphores apart; what different semaphores do is then independent.

Notes
-----
Both parts lack statements of the other, so that their events require less than those of the whole:
what is proved of a part holds in the kernel.  They may share no shared memory, no mbarrier, no bulk
group, and no tensor that either writes; then every two accesses that may conflict are in one part.
A CTA reaches its wait whatever other CTAs do, for the part before waits for nothing of theirs.

A release publishes what its thread has done and seen, and a wait takes part in that; so along the
turns k, k + 1, ..., j what precedes the release of turn k precedes what follows the wait of turn j,
if in each turn the release follows the wait (`Obligation.TURNS`).  That is why two turns show all.

A step that is not executed has a time too, which orders nothing but its own thread's steps.

Source: PTX ISA, "Memory consistency model" (release and acquire patterns).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from fuser.expr import Expr, Kind, Op, Var, eq, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import K, N, UnsupportedError, replace_tree
from oracles.prover.coverage import partition
from oracles.prover.invariants.claims import HAZARDS
from oracles.prover.invariants.graph import Footprints, Thread
from oracles.prover.invariants.trace import (
    Axiom,
    Obligation,
    RefusedError,
    Step,
    Trace,
    Without,
    affine,
    all_of,
    any_of,
    bounds,
    disjoint,
    joins,
)
from oracles.prover.sites import REGISTERS_ONLY
from oracles.prover.solver import Known

RLIMIT = 2_000_000
"""Work limit of a question about extents, in z3's units."""
Serial = kir.BlockSerializeWait | kir.BlockSerializeRelease
BULK = kir.AsyncKind.BULK
TILE = Var("tile of the turns")
"""Which semaphore, where there are several."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The CTA groups of semaphores: `BLOCK` is (`tile`, `turn`), each pair once.

    `tiles` semaphores are in use, each by `turns` CTAs; `lets` are the values of names.
    """

    tile: Expr
    turn: Expr
    tiles: Expr
    turns: Expr
    lets: Mapping[Var, Expr]

    def plain(self, expr: Expr) -> Expr:
        """Return an expression of the kernel over `K`, `N` and `TILE`."""
        expr = substitute(expr, self.lets)
        if isinstance(self.tile, Op):
            expr = replace_tree(expr, self.tile, TILE)
        expr = replace_tree(expr, self.turn, K)
        if self.tiles == 1 and self.tile == 0:
            expr = replace_tree(expr, kir.GRID, N)
        return replace_tree(expr, self.turns, N)


@dataclass(frozen=True, slots=True)
class Parts:
    """A kernel without its turns, and what each CTA does in its turn, `K` of `N`."""

    rest: kir.Kernel
    turn: kir.Kernel
    sharing: Sharing


def split(kernel: kir.Kernel, without: Without) -> Parts:
    """Return the parts of a kernel whose CTAs take turns.

    RefusedError if a CTA waits for one that may never run; UnsupportedError if CTAs wait for
    each other in another way than described here.
    """
    if any(isinstance(s, kir.GridSync | kir.LastArriving) for s in kernel.walk()):
        raise UnsupportedError("a grid_sync or a last-arriving CTA")
    if kernel.cluster != 1:
        raise UnsupportedError("a semaphore in a kernel of clusters")
    sharing = _sharing(kernel)
    if kernel.residency == "any" and Obligation.RESIDENT not in without:
        raise RefusedError("residency", None, "nothing says that the turn before its own ever runs")
    cut = 1 + max((i for i, s in enumerate(kernel.body) if _before(s)), default=-1)
    head, tail = kernel.body[:cut], kernel.body[cut:]
    if any(isinstance(s, Serial) for s in kir.walk(head)):
        raise UnsupportedError("a semaphore before the end of the loops")
    _apart(head, tail)

    def turned(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Let():
                return []
            case kir.IfThenElse(test, then, orelse):
                ways = kir.rewrite(then, turned), kir.rewrite(orelse, turned)
                return [kir.IfThenElse(sharing.plain(test), *ways)]
            case _:
                return None

    kept = (s for s in tail if isinstance(s, kir.AsyncAwait | kir.AsyncCommit))
    rest = replace(kernel, body=(*head, *(s for s in kept if s.kind is not BULK)))
    turn = replace(kernel, body=kir.rewrite(tail, turned), barriers=())
    return Parts(rest, turn, sharing)


def _sharing(kernel: kir.Kernel) -> Sharing:
    """Return who shares a semaphore, read off the waits.

    Without a wait, every CTA is thought to have the turn of its number.
    """
    lets: dict[Var, Expr] = {}
    moving = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    for stmt in kernel.body:
        if isinstance(stmt, kir.Let) and stmt.var not in moving:
            lets[stmt.var] = substitute(stmt.value, lets)
    users = [s for s in kernel.walk() if isinstance(s, Serial)]
    if len({user.semaphore.name for user in users}) > 1:
        raise UnsupportedError("several semaphores")
    places = {substitute(user.index, lets) for user in users}
    own = {substitute(u.turn, lets) for u in users if isinstance(u, kir.BlockSerializeWait)}
    if len(places) > 1 or len(own) > 1:
        raise UnsupportedError("a CTA uses several semaphores, or waits for several turns")
    (tile,), turn = places, next(iter(own), kir.BLOCK)
    sharing = Sharing(tile, turn, *_dealt(kernel, tile, turn), lets)
    known = Known(sites.facts(kernel), RLIMIT)
    name = users[0].semaphore.name
    if not any(s.name == name and known.at_most(sharing.tiles, s.count) for s in kernel.semaphores):
        raise UnsupportedError(f"{name} has too few semaphores")
    return sharing


def _dealt(kernel: kir.Kernel, tile: Expr, turn: Expr) -> tuple[Expr, Expr]:
    """Return how many tiles and turns there are if `BLOCK` has each pair of them once."""
    sides = [(t.a, t.b) for t in kernel.requires if isinstance(t, Op) and t.kind is Kind.EQ]
    grids = [b if a == kir.GRID else a for a, b in sides if kir.GRID in (a, b)]
    if tile == 0 and turn == kir.BLOCK:
        return 1, next((g for g in grids if isinstance(g, Var)), kir.GRID)
    products = [(g.a, g.b) for g in grids if isinstance(g, Op) and g.kind is Kind.MUL]
    for a, b in (*products, *((b, a) for a, b in products)):
        match tile, turn:
            case Op(Kind.FLOORDIV, kir.BLOCK, s), Op(Kind.MOD, kir.BLOCK, other) if s == other == a:
                return b, s
            case Op(Kind.MOD, kir.BLOCK, s), Op(Kind.FLOORDIV, kir.BLOCK, other) if s == other == a:
                return s, b
            case _:
                pass
    raise UnsupportedError(f"the turns {turn} of semaphore {tile}: which CTAs share them")


def _before(stmt: kir.Stmt) -> bool:
    """Whether a statement of the kernel's body belongs to what precedes the turns."""
    for inner in kir.walk((stmt,)):
        match inner:
            case kir.ForLoop(_, stop) if not isinstance(stop, int):
                return True
            case kir.Role() | kir.TmaLoad() | kir.CpAsync() | kir.Wgmma():
                return True
            case _ if sites.mbarrier(inner) is not None:
                return True
            case _:
                pass
    return False


def _apart(head: tuple[kir.Stmt, ...], tail: tuple[kir.Stmt, ...]) -> None:
    """Check that turns and what precedes them share no memory that either writes."""
    here, there = set(_used(head)), set(_used(tail))
    both = {name for name, _ in here} & {name for name, _ in there}
    shared = {name for name, writes in here | there if writes and name in both}
    if shared:
        raise UnsupportedError(f"turns and what precedes them share {', '.join(sorted(shared))}")


def _used(body: tuple[kir.Stmt, ...]) -> Iterator[tuple[str, bool]]:
    """Yield what statements use, and whether they write it."""
    for stmt in kir.walk(body):
        box = sites.touches(stmt)
        if box is not None:
            yield f"tensor {box.tensor.name}", sites.reads(stmt) is None
        yield from ((f"buffer {slot.buffer.name}", True) for slot in sites.slots(stmt))
        groups = isinstance(stmt, kir.AsyncCommit | kir.AsyncAwait) and stmt.kind is BULK
        if groups or isinstance(stmt, kir.TmaStore | kir.TmaReduce):
            yield "bulk groups", True


def alone(parts: Parts, box: kir.Box) -> bool:
    """Whether CTAs of different semaphores touch different bytes of a tensor by this box.

    The boxes of all semaphores are a partition of the tensor, or there is only one semaphore.
    """
    sharing = parts.sharing
    origin = tuple(map(sharing.plain, box.origin))
    if any({K, kir.BLOCK} & variables(x) for x in origin):
        return False
    if sharing.tiles == 1:
        return True
    source = kir.Buffer("source", box.tensor.dtype, box.shape, 1, 0)
    moved = replace(box, origin=tuple(substitute(x, {TILE: kir.BLOCK}) for x in origin))
    made = replace(
        parts.rest,
        tensors=(box.tensor,),
        body=(kir.Elect(kir.Per.ROLE, (kir.TmaStore(moved, kir.Slot(source, 0)),)),),
        outputs=(box.tensor.name,),
        workspaces=(),
        requires=(eq(kir.GRID, sharing.tiles),),
    )
    known = Known(sites.facts(made), RLIMIT)
    return not partition.judge(made, sites.read(made), box.tensor, known)


TURNS = ("k", "j")
"""The number of a turn, and that of a later one."""
_TURN = kir.BlockSerializeWait | kir.BlockSerializeRelease
_SYNC = kir.FenceAsyncProxy | kir.ThreadFence | kir.AsyncAwait | kir.AsyncCommit
_OWN = kir.Load | kir.Store | kir.AtomicAdd | kir.BlockSync | kir.WarpSync | _TURN | _SYNC
RANGE = "(assert (<= 0 k))(assert (< k n))(assert (<= 0 j))(assert (< j n))"


@dataclass(frozen=True, slots=True)
class Event:
    """A node of a turn: a step of a thread, one of several threads, or a part of a copy."""

    name: str

    def at(self, turn: str) -> str:
        """Return its time in turn `k` or `j`."""
        return f"{turn}_{self.name}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk copy: when it is issued, when its source has been read, when it is done."""

    step: Step
    thread: Thread
    issue: Event
    read: Event
    done: Event


def condition(test: Expr, turn: str) -> str:
    """Return in SMT-LIB whether a guard, which compares the turn with numbers, holds in one."""
    match test:
        case Op(Kind.AND, a, b):
            return all_of([condition(a, turn), condition(b, turn)])
        case Op(Kind.EQ, Op(Kind.EQ | Kind.AND) as held, 0):
            return f"(not {condition(held, turn)})"
        case _:
            return all_of([bound.text(turn) for bound in bounds(test)])


class Events:
    """The events of one turn and what they require, as constraints on two of its occurrences."""

    def __init__(self, trace: Trace, without: Without) -> None:
        self.trace = trace
        self.without = without
        self.names: dict[str, Event] = {}
        self._runs: dict[tuple[int, str], str] = {}
        self.copies: list[Copy] = []
        self.chains: dict[Thread, list[tuple[Step, Event]]] = {}
        self._claims: dict[str, None] = {}
        for thread in self._threads():
            self._chain(thread)
        for copy in self.copies:
            self._require(copy.issue, copy.read, Axiom.ISSUE)
            self._require(copy.read, copy.done, Axiom.ISSUE)
            for step, node in self.chains[copy.thread]:
                if isinstance(step.stmt, kir.AsyncAwait):
                    end = copy.read if step.stmt.read_only else copy.done
                    for turn in TURNS:
                        when = self.covers(step, copy, turn)
                        self._require(end, node, Axiom.GROUP, turn, when)
        if Axiom.TAKEN not in without:
            self._taken()

    def runs(self, step: Step, turn: str) -> str:
        """Return whether a step is executed in a turn."""
        key = step.index, turn
        if key not in self._runs:
            self._runs[key] = condition(step.guard, turn)
        return self._runs[key]

    def _event(self, name: str) -> Event:
        return self.names.setdefault(name, Event(name))

    # --- threads --------------------------------------------------------------------------------

    def _threads(self) -> Iterator[Thread]:
        """One thread of each kind, and another one where there are several."""
        for kind in self.trace.kinds:
            (warp, *more), lane = kind.warps, 0 if kind.leads else 1
            yield Thread(kind.index, warp, lane)
            if not kind.alone:
                yield Thread(kind.index, *((more[0], lane) if more else (warp, 2)))

    def _chain(self, thread: Thread) -> None:
        """Follow a thread: it does one thing after the other, and joins others at barriers."""
        chain = self.chains[thread] = []
        before: list[tuple[Event, Step | None]] = []
        for step in self.trace.programs[thread.kind].before:
            node, joint = self._node(step, thread)
            if node is None:
                continue
            chain.append((step, node))
            for last, other in before:
                for turn in TURNS:
                    parts = [self.runs(s, turn) for s in (step if joint else None, other) if s]
                    self._require(last, node, Axiom.PROGRAM, turn, all_of(parts))
            skipped = joint and step.guard != 1
            before = [*before, (node, step)] if skipped else [(node, step if joint else None)]

    def _node(self, step: Step, thread: Thread) -> tuple[Event | None, bool]:
        """Return the event of a step, if it has one, and whether it is of several threads."""
        together = Axiom.BARRIER not in self.without
        own = f"{step.index}_{thread.kind}_{thread.warp}_{thread.lane}"
        match step.stmt:
            case kir.BlockSync() | kir.BlockSerializeWait() if together:
                return self._event(f"{step.index}"), True
            case kir.WarpSync() if together:
                return self._event(f"{step.index}_{thread.warp}"), True
            case kir.TmaStore() | kir.TmaReduce():
                events = (self._event(f"{own}{part}") for part in ("", "_read", "_done"))
                self.copies.append(copy := Copy(step, thread, *events))
                return copy.issue, False
            case stmt if isinstance(stmt, _OWN):
                return self._event(own), False
            case stmt if isinstance(stmt, REGISTERS_ONLY | kir.WgmmaFence):
                return None, False
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__} in a turn")

    # --- requirements ---------------------------------------------------------------------------

    def _require(
        self, first: Event, then: Event, rule: Axiom, turn: str = "", when: str = "true"
    ) -> None:
        if rule in self.without or when == "false":
            return
        for one in (turn,) if turn else TURNS:
            claim = f"(< {first.at(one)} {then.at(one)})"
            self._claims[claim if when == "true" else f"(=> {when} {claim})"] = None

    def covers(self, step: Step, copy: Copy, turn: str) -> str:
        """Return when a step is executed in a turn, and awaits a copy that is, too.

        The copy's group is closed by the first commit behind it; `keep` more have to follow.
        """
        wait = step.stmt
        if not isinstance(wait, kir.AsyncAwait) or wait.kind is not BULK:
            return "false"
        if step.index < copy.step.index:
            return "false"
        between = range(copy.step.index + 1, step.index)
        mine = (s for s, _ in self.chains[copy.thread] if s.index in between)
        commits = [s for s in mine if s.stmt == kir.AsyncCommit(BULK)]
        both_run = [self.runs(step, turn), self.runs(copy.step, turn)]
        sure = [s for s in commits if s.guard in (1, step.guard, copy.step.guard)]
        if len(sure) > wait.keep:
            return all_of(both_run)
        if wait.keep:
            return "false"
        return all_of([*both_run, any_of([self.runs(s, turn) for s in commits])])

    def _taken(self) -> None:
        """Make a wait come after what the turns before it have published."""
        waits = [node for step, _, node in self.of(kir.BlockSerializeWait) if _wide(step.stmt)]
        for step, thread, node in self.of(kir.BlockSerializeRelease):
            public = self.published(step, thread, node)
            if waits and public is not None:
                when = all_of(["(< k j)", self.runs(step, "k")])
                self._claims[f"(=> {when} (< {public.at('k')} {waits[0].at('j')}))"] = None

    def of(self, kind: type[kir.Stmt]) -> Iterator[tuple[Step, Thread, Event]]:
        """Yield the events of one kind of statement."""
        for thread, chain in self.chains.items():
            for step, node in chain:
                if isinstance(step.stmt, kind):
                    yield step, thread, node

    def published(self, step: Step, thread: Thread, node: Event) -> Event | None:
        """Return up to where a release publishes: itself, or a fence before it; None if nothing."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease), "asked of releases"
        if _wide(step.stmt) and not step.stmt.relaxed:
            return node
        found = None
        for other, event in self.chains[thread]:
            wide = other.stmt == kir.ThreadFence(kir.Scope.GPU)
            if wide and other.index < step.index and other.guard in (1, step.guard):
                found = event
        return found

    def text(self) -> str:
        """Return declarations and constraints."""
        lines = [f"(declare-const {name} Int)" for name in ("k", "j", "n")]
        for event in self.names.values():
            lines += [f"(declare-const {event.at(turn)} Int)" for turn in TURNS]
        return "\n".join([*lines, RANGE, *(f"(assert {claim})" for claim in self._claims)])


def _wide(stmt: kir.Stmt) -> bool:
    """Whether a wait or a release reaches other CTAs."""
    assert isinstance(stmt, _TURN), "asked of turns"
    return stmt.scope is kir.Scope.GPU


SPACES = {True: kir.Space.SHARED, False: kir.Space.GLOBAL}
"""What a proxy fence has to cover, by whether the bytes are in shared memory."""
LAST = "(= j (- n 1))"


@dataclass(frozen=True, slots=True)
class TurnClaim:
    """A claim, and what violates it."""

    rule: Obligation
    kind: str
    step: Step
    says: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes in use from event `start` to event `end`, by a thread or by what it issued.

    `fresh` is whether they need no earlier write.
    """

    step: Step
    thread: Thread
    bytes: tuple[str, int]
    start: Event
    end: Event
    writes: bool
    fresh: bool
    engine: bool

    @property
    def shared(self) -> bool:
        """Whether they are of shared memory."""
        return self.bytes[1] >= 0


class TurnClaims:
    """The claims about the turns of a kernel."""

    def __init__(self, parts: Parts, events: Events, policy: str) -> None:
        self.parts, self.events, self.policy = parts, events, policy
        self.trace = trace = events.trace
        self.without: Without = events.without
        self.footprints = Footprints(trace)
        disjoint(trace.kernel)
        if Obligation.COLLECTIVE not in self.without:
            joins(trace)
        self.met = self._met()
        self.touches = [*self._generic(), *self._copied()]
        found = [*self._taken(), *self._hazards(), *self._written(), *self._ends()]
        self.claims = [claim for claim in found if claim.rule not in self.without]

    # --- the semaphore --------------------------------------------------------------------------

    def _taken(self) -> Iterator[TurnClaim]:
        """Claim that each turn is given to the next once, after it was taken, and the last to 0."""
        waits = list(self.events.of(kir.BlockSerializeWait))
        if len({step.index for step, *_ in waits}) > 1:
            raise UnsupportedError(f"{waits[-1][0].where}: a second wait for a turn")
        for step, _, _ in waits[:1]:
            if step.guard != 1 or len(step.kinds) != len(self.trace.kinds):
                raise UnsupportedError(f"{step.where}: not by all CTAs and threads")
        rule, kind, before_last = Obligation.TURNS, "semaphore", "(< k (- n 1))"
        releases = list(self.events.of(kir.BlockSerializeRelease))
        for step, thread, node in releases:
            runs = self.events.runs(step, "k")
            many = self.trace.count(step)
            if many > 1:
                yield TurnClaim(rule, kind, step, f"{many} threads release", runs)
                continue
            ends = [e for e in (node, self.events.published(step, thread, node)) if e]
            late = [f"(>= {wait.at('k')} {e.at('k')})" for *_, wait in waits for e in ends]
            wrong = all_of([runs, any_of(late)]) if waits else runs
            yield TurnClaim(rule, kind, step, "releases a turn that it has not waited for", wrong)
            if self._value(step, last=False) != (1, 0, 1):
                wrong = all_of([runs, before_last])
                yield TurnClaim(rule, kind, step, "does not release the turn after its own", wrong)
        for (one, *_), (two, *_) in combinations(releases, 2):
            both_run = all_of([self.events.runs(s, "k") for s in (one, two)])
            yield TurnClaim(rule, kind, two, "a second release in one turn", both_run)
        for step, *_ in waits[:1]:
            none = [f"(not {self.events.runs(s, 'k')})" for s, *_ in releases]
            wrong = all_of([before_last, *none])
            says = "nothing releases the turn after this one"
            yield TurnClaim(rule, "deadlock", step, says, wrong)
        # The last turn leaves the semaphore at 0.
        rule = Obligation.CLEAN
        for step, *_ in releases:
            if self._value(step, last=True) != (0, 0, 0):
                wrong = all_of([LAST, self.events.runs(step, "j")])
                says = "leaves another turn than 0 to the next launch"
                yield TurnClaim(rule, kind, step, says, wrong)
        for step, *_ in waits[:1]:
            none = [f"(not {self.events.runs(s, 'j')})" for s, *_ in releases]
            wrong = all_of([LAST, "(>= n 2)", *none])
            yield TurnClaim(rule, kind, step, "no last turn resets it", wrong)

    def _value(self, step: Step, *, last: bool) -> tuple[int, int, int]:
        """Return what is released in the last turn, or in another one, as a linear function."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease), "asked of releases"
        value = self.parts.sharing.plain(step.stmt.turn)
        wrapped: Expr = 0 if last else K + 1
        value = replace_tree(value, Op(Kind.MOD, Op(Kind.ADD, K, 1), N), wrapped)
        if last:
            value = substitute(value, {K: N - 1})
        return affine(value)

    # --- accesses -------------------------------------------------------------------------------

    def _met(self) -> set[str]:
        """Return the tensors that turns hand on; check that each is touched by one box, its own.

        One that is stored and nothing else is left to whoever asks that it is stored once.
        """
        boxes: dict[str, list[tuple[Step, kir.Box]]] = {}
        for step in self.trace.steps:
            box = sites.touches(step.stmt)
            if box is not None:
                boxes.setdefault(box.tensor.name, []).append((step, box))
        found = set()
        for name, uses in boxes.items():
            stores = [sites.writes(step.stmt) is not None for step, _ in uses]
            reads = [sites.reads(step.stmt) is not None for step, _ in uses]
            if all(stores) or all(reads):
                continue
            found.add(name)
            step, box = uses[0]
            plain = self.parts.sharing.plain
            if len({(b.tensor, b.shape, *map(plain, (*b.origin, *b.limit))) for _, b in uses}) > 1:
                raise UnsupportedError(f"{uses[-1][0].where}: another part of {name}")
            if Obligation.APART not in self.without and not alone(self.parts, box):
                says = f"CTAs of different semaphores may touch the same part of {name}"
                raise UnsupportedError(f"{step.where}: {says}")
        return found

    def _generic(self) -> Iterator[Touch]:
        """Yield what threads access themselves."""
        for thread, chain in self.events.chains.items():
            for step, node in chain:
                where = _bytes(step.stmt)
                if where is None or isinstance(step.stmt, kir.TmaStore | kir.TmaReduce):
                    continue
                if where[1] < 0:
                    if where[0] not in self.met:
                        continue
                    _layout(step)
                if not self.footprints.holds(step, thread.kind):
                    continue
                writes = isinstance(step.stmt, kir.Store | kir.AtomicAdd)
                fresh = isinstance(step.stmt, kir.Store)
                yield Touch(step, thread, where, node, node, writes, fresh, engine=False)

    def _copied(self) -> Iterator[Touch]:
        """Yield what copies access."""
        for copy in self.events.copies:
            stmt = copy.step.stmt
            assert isinstance(stmt, kir.TmaStore | kir.TmaReduce), "the only copies"
            if self.trace.count(copy.step) > 1:
                raise RefusedError("WAW", copy.step.stmt, "is issued by several threads at once")
            at = copy.step, copy.thread
            source, tensor = (stmt.src.buffer.name, _number(stmt.src)), (stmt.dst.tensor.name, -1)
            yield Touch(*at, source, copy.issue, copy.read, False, False, engine=True)
            fresh = isinstance(stmt, kir.TmaStore)
            if stmt.dst.tensor.name in self.met:
                yield Touch(*at, tensor, copy.issue, copy.done, True, fresh, engine=True)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[TurnClaim]:
        """Every two accesses of which one writes are ordered, in one turn and across turns."""
        for a in self.touches:
            stores = a.writes and not a.engine and a.shared
            if stores and self.footprints.collides(a.step.index):
                raise RefusedError("WAW", a.step.stmt, "threads of one store share bytes")
            for b in self.touches:
                if a.bytes != b.bytes or not (a.writes or b.writes):
                    continue
                if a.step.index < b.step.index and self._overlap(a, b):
                    yield from self._pair(a, b, "k")
                if not a.shared:
                    yield from self._pair(a, b, "j")

    def _pair(self, a: Touch, b: Touch, turn: str) -> Iterator[TurnClaim]:
        """Claim that an access of turn k precedes one of that turn or a later one."""
        runs = [self.events.runs(a.step, "k"), self.events.runs(b.step, turn)]
        when = all_of([*runs, "(< k j)"] if turn == "j" else runs)
        kind = HAZARDS[a.writes or not b.writes, b.writes]
        says = f"nothing orders it after `{a.step.where}`"
        late = f"(>= {a.end.at('k')} {b.start.at(turn)})"
        yield TurnClaim(Obligation[kind], kind, b.step, says, all_of([when, late]))
        crosses = b.engine and (turn == "j" or not a.engine)
        if crosses and (turn == "j" or a.writes or self.policy == "strict"):
            rule = Obligation.REMOTE if turn == "j" else Obligation.PROXY
            says = f"no fence_async_proxy stands between it and `{a.step.where}`"
            apart = all_of([f"(not {fence})" for fence in self._fences(a, b, turn)])
            yield TurnClaim(rule, "proxy", b.step, says, all_of([when, apart]))

    def _fences(self, a: Touch, b: Touch, turn: str) -> Iterator[str]:
        """Yield which fences stand before a copy.

        In one turn those of who accesses first, or of who issues the copy, behind the access; in a
        later one those of who issues it, behind its wait.
        """
        if turn == "k":
            threads, space, ends = {a.thread, b.thread}, SPACES[a.shared], [a.end]
        else:
            threads, space = {b.thread}, kir.Space.GLOBAL
            ends = [node for *_, node in self.events.of(kir.BlockSerializeWait)]
        for step, thread, node in self.events.of(kir.FenceAsyncProxy):
            fence = kir.FenceAsyncProxy(space), kir.FenceAsyncProxy(kir.Space.ALL)
            if thread in threads and step.stmt in fence:
                behind = [f"(< {end.at(turn)} {node.at(turn)})" for end in ends]
                before = f"(< {node.at(turn)} {b.start.at(turn)})"
                yield all_of([self.events.runs(step, turn), *behind, before])

    def _overlap(self, a: Touch, b: Touch) -> bool:
        """Whether these threads may touch the same bytes in one turn, and not one after another."""
        if a.engine or b.engine:
            return True
        if a.shared:
            return any(self.footprints.overlaps(a.step.index, b.step.index))
        return (_layout(a.step), a.step.kinds) != (_layout(b.step), b.step.kinds)

    def _written(self) -> Iterator[TurnClaim]:
        """Every read of what turns write follows a write."""
        for b in self.touches:
            if b.fresh:
                continue
            earlier: list[str] = []
            for a in self.touches:
                if not a.fresh or a.bytes != b.bytes:
                    continue
                if a.step.index < b.step.index:
                    earlier.append(self.events.runs(a.step, "j"))
                if not a.shared:
                    earlier.append(all_of(["(< 0 j)", self.events.runs(a.step, "k")]))
            wrong = all_of([self.events.runs(b.step, "j"), "(= k 0)", f"(not {any_of(earlier)})"])
            says = f"nothing has written {b.bytes[0]}"
            yield TurnClaim(Obligation.WRITTEN, "RAW", b.step, says, wrong)

    def _ends(self) -> Iterator[TurnClaim]:
        """Every copy has read its source before the CTA ends."""
        for copy in self.events.copies:
            steps = (step for step, _ in self.events.chains[copy.thread])
            covered = [self.events.covers(step, copy, "k") for step in steps]
            wrong = all_of([self.events.runs(copy.step, "k"), f"(not {any_of(covered)})"])
            says = "is still in flight when the CTA exits"
            yield TurnClaim(Obligation.DRAIN, "drain", copy.step, says, wrong)


def _number(slot: kir.Slot) -> int:
    if not isinstance(slot.index, int) or slot.index >= slot.buffer.slots:
        raise UnsupportedError(f"slot {slot.index} of {slot.buffer.name} in a turn")
    return slot.index


def _bytes(stmt: kir.Stmt) -> tuple[str, int] | None:
    """Return a slot of a buffer, or a tensor with -1."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot) | kir.Store(kir.Slot() as slot):
            return slot.buffer.name, _number(slot)
        case _:
            box = sites.touches(stmt)
            return None if box is None else (box.tensor.name, -1)


def _layout(step: Step) -> kir.Layout:
    """Return which thread has which element of a tile in global memory."""
    match step.stmt:
        case (
            kir.Load(fragment, kir.Box() as box)
            | kir.Store(kir.Box() as box, fragment)
            | kir.AtomicAdd(box, fragment)
        ):
            layout = fragment.layout
            if layout.shape != box.shape or layout.deal is kir.Deal.EACH_WARP:
                raise UnsupportedError(f"{step.where}: threads share elements")
            return layout
        case _:
            raise UnsupportedError(f"{step.where}: not an ordinary access")
