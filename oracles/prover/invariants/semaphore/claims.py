"""What must hold in every turn of a semaphore, as what z3 must not find.

Accesses of one turn conflict with those of the same turn by other threads, and with those of later
turns: `k` and `j` of `events`.  Tensors that a turn writes are touched by one box
only, which tells semaphores apart; what different semaphores do is then independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from fuser.expr import Expr, Kind, Op, substitute
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import K, N, UnsupportedError, replace_tree
from oracles.prover.invariants.claims import HAZARDS
from oracles.prover.invariants.graph import Footprints, Thread
from oracles.prover.invariants.rules import Obligation, RefusedError, Without
from oracles.prover.invariants.semaphore.events import Copy, Event, Events
from oracles.prover.invariants.semaphore.turns import Parts, alone
from oracles.prover.invariants.static import disjoint, joins
from oracles.prover.invariants.trace import Step, affine, all_of, any_of

SPACES = {True: kir.Space.SHARED, False: kir.Space.GLOBAL}
"""What a proxy fence has to cover, by whether the bytes are in shared memory."""
LAST = "(= j (- n 1))"
LATER = "(< k j)"


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
        found = [*self._taken(), *self._left(), *self._hazards(), *self._written(), *self._ends()]
        self.claims = [claim for claim in found if claim.rule not in self.without]

    # --- the semaphore --------------------------------------------------------------------------

    def _taken(self) -> Iterator[TurnClaim]:
        """Claim that each turn is given to the next once, after it was taken."""
        waits = list(self.events.of(kir.BlockSerializeWait))
        if len({step.index for step, *_ in waits}) > 1:
            raise UnsupportedError(f"{waits[-1][0].where}: a second wait for a turn")
        for step, _, _ in waits[:1]:
            if step.guard is not None or len(step.kinds) != len(self.trace.kinds):
                raise UnsupportedError(f"{step.where}: not by all CTAs and threads")
        rule, before_last = Obligation.TURNS, "(< k (- n 1))"
        releases = list(self.events.of(kir.BlockSerializeRelease))
        for step, thread, node in releases:
            runs = self.events.runs(step, "k")
            many = self.trace.count(step)
            if many > 1:
                yield TurnClaim(rule, "semaphore", step, f"{many} threads release", runs)
                continue
            public = self.events.published(step, thread, node)
            late = [
                f"(>= {wait.at('k')} {e.at('k')})"
                for *_, wait in waits
                for e in (node, public)
                if e
            ]
            says = "releases a turn that it has not waited for"
            yield TurnClaim(
                rule, "semaphore", step, says, all_of([runs, any_of(late)]) if waits else runs
            )
            if self._value(step, last=False) != (1, 0, 1):
                says = "does not release the turn after its own"
                yield TurnClaim(rule, "semaphore", step, says, all_of([runs, before_last]))
        for (one, *_), (two, *_) in combinations(releases, 2):
            both_run = all_of([self.events.runs(s, "k") for s in (one, two)])
            yield TurnClaim(rule, "semaphore", two, "a second release in one turn", both_run)
        for step, *_ in waits[:1]:
            none = [f"(not {self.events.runs(s, 'k')})" for s, *_ in releases]
            says = "nothing releases the turn after this one"
            yield TurnClaim(rule, "deadlock", step, says, all_of([before_last, *none]))

    def _left(self) -> Iterator[TurnClaim]:
        """Claim that the last turn leaves the semaphore at 0."""
        releases = list(self.events.of(kir.BlockSerializeRelease))
        for step, *_ in releases:
            if self._value(step, last=True) != (0, 0, 0):
                wrong = all_of([LAST, self.events.runs(step, "j")])
                says = "leaves another turn than 0 to the next launch"
                yield TurnClaim(Obligation.CLEAN, "semaphore", step, says, wrong)
        for step, *_ in list(self.events.of(kir.BlockSerializeWait))[:1]:
            none = [f"(not {self.events.runs(s, 'j')})" for s, *_ in releases]
            wrong = all_of([LAST, "(>= n 2)", *none])
            says = "no last turn resets it"
            yield TurnClaim(Obligation.CLEAN, "semaphore", step, says, wrong)

    def _value(self, step: Step, *, last: bool) -> tuple[int, int, int]:
        """Return what is released in the last turn, or in another one, as a linear function."""
        assert isinstance(step.stmt, kir.BlockSerializeRelease), "asked of releases"
        value = self.parts.plain(step.stmt.turn)
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
            (step, box), (last, _) = uses[0], uses[-1]
            if len({self._plain(box) for _, box in uses}) > 1:
                raise UnsupportedError(f"{last.where}: another part of {name}")
            if Obligation.APART not in self.without and not alone(self.parts, box):
                says = f"CTAs of different semaphores may touch the same part of {name}"
                raise UnsupportedError(f"{step.where}: {says}")
        return found

    def _plain(self, box: kir.Box) -> tuple[object, ...]:
        """Return what tells a box from others."""
        plain = self.parts.plain
        return box.tensor, box.shape, tuple(map(plain, box.origin)), tuple(map(plain, box.limit))

    def _generic(self) -> Iterator[Touch]:
        """Yield what threads access themselves."""
        for thread, chain in self.events.chains.items():
            for step, node in chain:
                where = _bytes(step.stmt)
                if where is None or isinstance(step.stmt, kir.TmaStore | kir.TmaReduce):
                    continue
                if where[1] < 0 and where[0] not in self.met:
                    continue
                if where[1] >= 0 and (step.index, thread.kind) not in self.footprints.touching:
                    continue
                if where[1] < 0 and not self._holds(step, thread):
                    continue
                writes = isinstance(step.stmt, kir.Store | kir.AtomicAdd)
                fresh = isinstance(step.stmt, kir.Store)
                yield Touch(step, thread, where, node, node, writes, fresh, engine=False)

    def _holds(self, step: Step, thread: Thread) -> bool:
        """Whether a thread of this kind holds a part of a tile in global memory."""
        _layout(step)
        return self.footprints.holds(step, thread.kind)

    def _copied(self) -> Iterator[Touch]:
        """Yield what copies access."""
        for copy in self.events.copies:
            stmt = copy.step.stmt
            assert isinstance(stmt, kir.TmaStore | kir.TmaReduce), "the only copies"
            if self.trace.count(copy.step) > 1:
                raise RefusedError("WAW", copy.step.stmt, "is issued by several threads at once")
            step, thread, start = copy.step, copy.thread, copy.issue
            source = (stmt.src.buffer.name, _number(stmt.src))
            yield Touch(step, thread, source, start, copy.read, False, False, engine=True)
            fresh, tensor = isinstance(stmt, kir.TmaStore), (stmt.dst.tensor.name, -1)
            if stmt.dst.tensor.name in self.met:
                yield Touch(step, thread, tensor, start, copy.done, True, fresh, engine=True)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[TurnClaim]:
        """Every two accesses of which one writes are ordered, in one turn and across turns."""
        for a in self.touches:
            if a.writes and not a.engine:
                self._alone(a)
            for b in self.touches:
                if a.bytes != b.bytes or not (a.writes or b.writes):
                    continue
                if a.step.index < b.step.index and self._meet(a, b):
                    yield from self._pair(a, b, "k", self._within(a, b))
                if not a.shared:
                    yield from self._pair(a, b, "j", self._across(b))

    def _pair(self, a: Touch, b: Touch, turn: str, fences: list[str]) -> Iterator[TurnClaim]:
        runs = [self.events.runs(a.step, "k"), self.events.runs(b.step, turn)]
        when = all_of([*runs, LATER] if turn == "j" else runs)
        kind = HAZARDS[a.writes or not b.writes, b.writes]
        says = f"nothing orders it after `{a.step.where}`"
        late = f"(>= {a.end.at('k')} {b.start.at(turn)})"
        yield TurnClaim(Obligation[kind], kind, b.step, says, all_of([when, late]))
        crosses = b.engine and (turn == "j" or not a.engine)
        if crosses and (turn == "j" or a.writes or self.policy == "strict"):
            rule = Obligation.REMOTE if turn == "j" else Obligation.PROXY
            says = f"no fence_async_proxy stands between it and `{a.step.where}`"
            apart = all_of([f"(not {fence})" for fence in fences])
            yield TurnClaim(rule, "proxy", b.step, says, all_of([when, apart]))

    def _within(self, a: Touch, b: Touch) -> list[str]:
        """Return which fences stand before a copy: of who accesses first, or of who issues it."""
        return [
            all_of([
                self.events.runs(step, "k"),
                f"(< {a.end.at('k')} {node.at('k')})",
                f"(< {node.at('k')} {b.start.at('k')})",
            ])
            for step, thread, node in self.events.of(kir.FenceAsyncProxy)
            if thread in (a.thread, b.thread) and _covers(step.stmt, shared=a.shared)
        ]  # fmt: skip

    def _across(self, b: Touch) -> list[str]:
        """Return which fences of the thread that issues a copy stand behind its wait."""
        waits = [node for *_, node in self.events.of(kir.BlockSerializeWait)]
        return [
            all_of([
                self.events.runs(step, "j"),
                *(f"(< {wait.at('j')} {node.at('j')})" for wait in waits),
                f"(< {node.at('j')} {b.start.at('j')})",
            ])
            for step, thread, node in self.events.of(kir.FenceAsyncProxy)
            if thread == b.thread and _covers(step.stmt, shared=False)
        ]  # fmt: skip

    def _alone(self, a: Touch) -> None:
        if a.shared and self.footprints.collides(a.step.index):
            raise RefusedError("WAW", a.step.stmt, "threads of one store share bytes")

    def _meet(self, a: Touch, b: Touch) -> bool:
        """Whether these threads may touch the same bytes in one turn, and not one after another."""
        if a.engine or b.engine:
            return True
        if a.shared:
            return any(self.footprints.meetings(a.step.index, b.step.index))
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
            covered = [self._awaited(step, copy) for step, _ in self.events.chains[copy.thread]]
            wrong = all_of([self.events.runs(copy.step, "k"), f"(not {any_of(covered)})"])
            says = "is still in flight when the CTA exits"
            yield TurnClaim(Obligation.DRAIN, "drain", copy.step, says, wrong)

    def _awaited(self, step: Step, copy: Copy) -> str:
        if not isinstance(step.stmt, kir.AsyncAwait):
            return "false"
        return self.events.covers(step, step.stmt, copy, "k")


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


def _covers(fence: kir.Stmt, *, shared: bool) -> bool:
    return isinstance(fence, kir.FenceAsyncProxy) and fence.space in (SPACES[shared], kir.Space.ALL)
