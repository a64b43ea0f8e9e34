"""What must hold of every iteration: one claim per obligation, as what z3 must not find.

`ordered` are claims that one event precedes another, `existing` claims about which iterations run
what, and `returning` those without which the ordered ones are too few: a kernel that breaks none
but these may be right.  See `graph` for the events and `questions` for their order.

Notes
-----
Two accesses of one slot are made by statements that come back to it every `modulus` iterations.
If a (iteration i) ends before b (iteration j) starts, it ends before every later b, for these
follow b in its own thread; so one claim, for the first b after a, covers all distances.  Which b
is the first is read off the schedule: if a is required by b, the schedule has a before b, so that
every pair that can be proved at all is asked for the right way around; what cannot is refuted.
Two things are claimed besides: that b, where it runs, ran one turn of the ring before, and that no
b is forgotten that begins before the loop, or some iterations late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.graph import (
    FAR,
    Access,
    Agency,
    EventGraph,
    Group,
    Phase,
    Thread,
    closing,
)
from oracles.prover.invariants.trace import (
    Axiom,
    Bound,
    Obligation,
    RefusedError,
    Step,
    Trace,
    all_of,
    any_of,
)

HAZARDS = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}
"""Name of the hazard by (earlier writes, later writes)."""
SOON = 4
"""Iterations that an access may begin late."""
At = tuple[int, int]
"""A node and the offset of its iteration."""


@dataclass(frozen=True, slots=True)
class Claim:
    """If `when` holds, event `first` precedes event `then`, through a node of `between` if given.

    `then` is in iteration k; with `start` it is the moment at which that thread begins its wait.
    Without `then`, `when` itself must not hold.  `timed` is whether it is about time alone: else
    the end of an engine's work publishes nothing but that, and `first` is that end or none.  If
    `first` is a phase, `causes` are what it ends with: as soon as they all are there it has ended.
    It is enough if one of `instead` precedes `then`, through the node that is given with it.
    """

    rule: Obligation
    kind: str
    step: Step
    says: str
    when: str
    first: At = (-1, 0)
    then: int = -1
    start: Thread | None = None
    between: tuple[tuple[At, str], ...] = ()
    timed: bool = True
    causes: tuple[At, ...] = ()
    instead: tuple[tuple[At, At], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two claims the same question."""
        return (
            self.when,
            self.first,
            self.then,
            self.start,
            self.between,
            self.timed,
            self.instead,
        )


class Claims:
    """The claims of one kernel, its schedule given."""

    def __init__(self, graph: EventGraph, times: Mapping[int, int], policy: str) -> None:
        self.graph = graph
        self.times = times
        self.policy = policy
        self.ordered = self._kept([*self._phases(), *self._signals(), *self._hazards()])
        held = [*self._accounts(), *self._paired(), *self._ends(), *self._written()]
        self.existing, self.returning = self._kept(held), self._kept(list(self._turns()))

    def _kept(self, found: list[Claim]) -> list[Claim]:
        """Return the claims of rules that are not left out, each once."""
        kept = [claim for claim in found if claim.rule not in self.graph.without]
        return list({claim.key: claim for claim in kept}.values())

    # --- phases ---------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Claim]:
        """Claim that a wait sees its own phase (A1, A2), and arrivals come in theirs (A3)."""
        for phase in self.graph.phases.values():
            m, name = phase.modulus, phase.barrier.name
            for step, run, thread, node in phase.waits:
                old = run.phase - m
                when = all_of([run.happens(0), _real(old)])
                says = f"{name}: the wait begins before the phase before its own has completed"
                yield Claim(
                    Obligation.NOT_BEHIND, "parity", step, says, when, (phase.node, old), node,
                    thread, causes=_causes(phase, old),
                )  # fmt: skip
                for _, other, _, _ in phase.arrivals[:1]:
                    mine = -m - run.phase
                    when = all_of([_real(0), run.happens(mine), other.happens(-other.phase)])
                    says = f"{name}: the phase after may complete before the wait has returned"
                    first = node, mine
                    yield Claim(
                        Obligation.NOT_LAPPED, "parity", step, says, when, first, phase.node
                    )
            incoming = [(s, p, node) for s, p, _, node in (*phase.arrivals, *phase.expects)]
            for step, run, node in [*incoming, *((s, p, n) for s, p, n, _ in phase.copies)]:
                old = run.phase - m
                says = f"{name}: it may count for the phase before its own"
                when = all_of([run.happens(0), _real(old)])
                yield Claim(
                    Obligation.IN_PHASE, "parity", step, says, when, (phase.node, old), node,
                    causes=_causes(phase, old),
                )  # fmt: skip

    def _signals(self) -> Iterator[Claim]:
        """Claim that who arrives at a named barrier does so after the turn before."""
        for signal in self.graph.signals:
            old = -1 - signal.away
            when = all_of([signal.arrives.happens(0), signal.waits.happens(old)])
            says = "it may count for the turn before its own"
            for node in signal.arrivals:
                first, rule = (signal.turn, old), Obligation.IN_PHASE
                yield Claim(rule, "collective", signal.arrive, says, when, first, node)

    def _paired(self) -> Iterator[Claim]:
        """No turn of a named barrier is skipped, by neither side."""
        for signal in self.graph.signals:
            here, there = signal.arrives.happens(signal.away), signal.waits.happens(0)
            for kind, *parts in (
                ("deadlock", there, f"(not {here})"),
                ("collective", here, f"(not {there})"),
            ):
                says = "one side of the barrier comes where the other does not"
                yield Claim(Obligation.WHOLE, kind, signal.wait, says, all_of(parts))
            for step, run in ((signal.arrive, signal.arrives), (signal.wait, signal.waits)):
                later = Bound(1, 0, -run.first - 1).text()
                when = all_of([run.happens(0), later, f"(not {run.happens(-1)})"])
                yield Claim(Obligation.WHOLE, "deadlock", step, "a turn is skipped", when)

    def _accounts(self) -> Iterator[Claim]:
        """Phases that are awaited or followed by others are whole, and waits have theirs.

        A last one of a slot may stay incomplete, if nobody waits for it.
        """
        for phase in self.graph.phases.values():
            name, slots = phase.barrier.name, phase.modulus
            members = [(s, p) for s, p, _, _ in (*phase.arrivals, *phase.expects)]
            members += [(s, p) for s, p, _, _ in phase.copies]
            if not phase.arrivals:
                for step, *_ in (*phase.waits, *phase.copies):
                    raise RefusedError("deadlock", step.stmt, f"nothing arrives on {name}")
            if Obligation.EXPECTED not in self.graph.without:
                raised(phase)
            if Obligation.COUNTED not in self.graph.without:
                counted(phase, self.graph.trace)
            paired(phase)
            rule = Obligation.WHOLE
            whole = all_of(list(dict.fromkeys(p.happens(-p.phase) for _, p in members)))
            before = all_of(list(dict.fromkeys(p.happens(-p.phase - slots) for _, p in members)))
            for step, run in members:
                mine = run.happens(-run.phase)
                says = f"{name}: its first phases are skipped"
                yield Claim(rule, "arrivals", step, says, all_of([mine, Bound(-1, 0, -1).text()]))
                says = f"{name}: some of the phase before does not run"
                when = all_of([mine, _real(-slots), f"(not {before})"])
                yield Claim(rule, "arrivals", step, says, when)
            for step, run, _, _ in phase.waits:
                when = all_of([run.happens(-run.phase), _real(0), f"(not {whole})"])
                says = f"{name}: a wait without its phase"
                yield Claim(Obligation.AWAITED, "deadlock", step, says, when)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[Claim]:
        """Every two accesses of a slot of which one writes are ordered."""
        for i, a in enumerate(self.graph.accesses):
            if a.agency is not Agency.ENGINE and a.writes:
                self._alone(a)
            for j, b in enumerate(self.graph.accesses):
                shares = a.buffer.shares(b.buffer) and (a.writes or b.writes)
                if shares and self._meet(a, b):
                    yield from self._pair(a, b, tie=i < j)

    def _alone(self, a: Access) -> None:
        if self.graph.footprints.collides(a.step.index):
            raise RefusedError("WAW", a.step.stmt, "threads of one store share bytes")

    def _meet(self, a: Access, b: Access) -> bool:
        if Agency.ENGINE in (a.agency, b.agency):
            return self.graph.stands(a.thread) and self.graph.stands(b.thread)
        if Agency.CP_ASYNC in (a.agency, b.agency) and a.thread == b.thread:
            return True
        meetings = self.graph.footprints.meetings(a.step.index, b.step.index)
        return any((a.thread, b.thread) == self.graph.pair(meeting) for meeting in meetings)

    def first(self, start: int, then: int, step: int, residue: int, *, tie: bool = False) -> int:
        """Return the least distance, of that residue, at which `then` comes after `start`."""
        ahead = self.times[start] - self.times[then] + (0 if tie else 1)
        least = -(-ahead // FAR)
        return least + (residue - least) % step

    def _pair(self, a: Access, b: Access, *, tie: bool) -> Iterator[Claim]:
        """Claim that a ends before the first b after it starts."""
        turn = a.walk.modulus
        away = self.first(a.start, b.start, turn, a.walk.shift - b.walk.shift, tie=tie)
        if away == 0 and a.step is b.step and _matrix(a.step):
            away = turn  # in one execution no two lanes of a warp touch an element
        kind = HAZARDS[a.writes or not b.writes, b.writes]
        says = f"nothing orders it after `{a.step.where}`"
        crosses = b.agency is Agency.ENGINE and a.agency is not Agency.ENGINE
        fences = crosses and (a.writes or self.policy == "strict")
        while True:
            when = all_of([a.run.happens(-away), b.run.happens(0)])
            first = a.end, -away
            rule = Obligation[kind]
            yield Claim(
                rule, kind, b.step, says, when, first, b.start, timed=self._timed,
                instead=tuple(self._group_mates(a, b, away)),
            )  # fmt: skip
            if fences:
                yield self._fenced(a, b, away, when)
            if a.run.first + away >= _begins(b):
                return
            away += turn

    def _group_mates(self, a: Access, b: Access, away: int) -> Iterator[tuple[At, At]]:
        """Yield the ends of a wgmma's reads in other warps, by default as good as its own.

        That is so for whom their warps tell, by a phase that they arrive in.
        """
        if self.policy == "strict" or not isinstance(a.step.stmt, kir.Wgmma):
            return
        for other in self.graph.accesses:
            same = (other.step, other.buffer) == (a.step, a.buffer)
            if same and other.end != a.end and self.graph.mates(a.thread, other.thread):
                for phase in self._ended_by_warp(other):
                    after = self.first(other.end, phase.node, 1, 0) - away
                    before = -self.first(phase.node, b.start, 1, 0)
                    yield from (((other.end, -away), (phase.node, at)) for at in {after, before})

    def _ended_by_warp(self, access: Access) -> Iterator[Phase]:
        """Yield the phases that the warp of a wgmma ends by an arrival of its own."""
        for phase in self.graph.phases.values():
            mine = (t for s, _, t, _ in phase.arrivals if isinstance(s.stmt, kir.MBarrierArrive))
            if any(thread.warp == access.thread.warp for thread in mine):
                yield phase

    @property
    def _timed(self) -> bool:
        return Obligation.NARROW in self.graph.without

    def _fenced(self, a: Access, b: Access, away: int, when: str) -> Claim:
        """Claim that a proxy fence stands between a generic access and the copy after it.

        All lanes of a warp issue a wgmma, so that behind a barrier all of them need one.
        """
        found: list[tuple[int, At, str]] = []
        for step, run, thread, node in self.graph.fences:
            issued = isinstance(b.step.stmt, kir.Wgmma) and not b.step.kinds <= step.kinds
            if issued and thread != a.thread:
                continue
            after = self.first(a.end, node, 1, 0)
            before = -self.first(node, b.start, 1, 0)
            for offset in {after - away, before}:
                at = (node, offset)
                rank = 0 if thread == a.thread else 1 if thread == b.thread else 2
                found.append((rank, at, run.happens(offset)))
        between = tuple((at, runs) for _, at, runs in sorted(found)) or (((-1, 0), ""),)
        says = f"no fence_async_proxy stands between it and `{a.step.where}`"
        first, rule = (a.end, -away), Obligation.PROXY
        return Claim(
            rule, "proxy", b.step, says, when, first, b.start, None, between, timed=self._timed
        )

    # --- existence ------------------------------------------------------------------------------

    def _turns(self) -> Iterator[Claim]:
        """Claim that what touches a slot did so one turn of the ring before, if in the loop."""
        for a in self.graph.accesses:
            turn = a.walk.modulus
            again = Bound(1, 0, -turn - _begins(a)).text()
            when = all_of([a.run.happens(0), again, f"(not {a.run.happens(-turn)})"])
            says = f"it runs where it did not run {turn} iterations before"
            yield Claim(Obligation.RETURN, "bounds", a.step, says, when)

    def _written(self) -> Iterator[Claim]:
        """Every read of a slot follows a write of it, with none of other buffers in between."""
        for b in self.graph.accesses:
            if b.writes:
                continue
            found: list[tuple[int, Access, int]] = []
            for a in self.graph.accesses:
                if a.writes and a.buffer.shares(b.buffer):
                    residue = a.walk.shift - b.walk.shift
                    turn, tie = a.walk.modulus, a.step.index < b.step.index
                    away = self.first(a.start, b.start, turn, residue, tie=tie)
                    found.append((self.times[a.start] - FAR * away, a, away))
            spoiled = max((t for t, a, _ in found if a.buffer != b.buffer), default=None)
            writers = [
                a.run.happens(-away)
                for time, a, away in found
                if a.buffer == b.buffer and (spoiled is None or time > spoiled)
            ]
            when = all_of([b.run.happens(0), f"(not {any_of(writers)})"])
            says = f"nothing has written {b.buffer.name}"
            yield Claim(Obligation.WRITTEN, "RAW", b.step, says, when)

    def _ends(self) -> Iterator[Claim]:
        """Every copy in flight is waited for before the kernel ends."""
        for phase in self.graph.phases.values():
            for step, run, _, _ in phase.copies:
                when = all_of([run.happens(0), f"(not {any_of(seen(phase, run.phase))})"])
                says = "is still in flight when the CTA exits"
                yield Claim(Obligation.EXIT, "exit", step, says, when)
        for group in self.graph.groups:
            if group.kind is kir.AsyncKind.WGMMA:
                continue
            covered = any_of(list(finished(self.graph, group)))
            when = all_of([group.run.happens(0), f"(not {covered})"])
            says = "is still in flight when the CTA exits"
            bulk = group.kind is kir.AsyncKind.BULK
            rule, kind = (Obligation.DRAIN, "drain") if bulk else (Obligation.EXIT, "exit")
            yield Claim(rule, kind, group.step, says, when)


def _begins(access: Access) -> int:
    """Return the first iteration of an access; one that is far ahead is not looked for."""
    return access.run.first if access.run.first <= SOON else access.run.low


def _matrix(step: Step) -> bool:
    return isinstance(step.stmt, kir.Load | kir.Store) and step.stmt.matrix


def _causes(phase: Phase, offset: int) -> tuple[At, ...]:
    """Return what phase `k + offset` ends with."""
    arrived = ((node, offset - run.phase) for _, run, _, node in phase.arrivals)
    landed = ((end, offset - run.phase) for _, run, _, end in phase.copies)
    return tuple(dict.fromkeys((*arrived, *landed)))


def _real(offset: int) -> str:
    """Return that phase `k + offset` is none before the first."""
    return Bound(1, 0, offset).text()


def seen(phase: Phase, ahead: int) -> list[str]:
    """Return which waits for phase `k + ahead` run."""
    return [run.happens(ahead - run.phase) for _, run, _, _ in phase.waits]


def finished(graph: EventGraph, group: Group) -> Iterator[str]:
    """Yield conditions on k, each enough for a copy of iteration k to be waited for in the end."""
    yield from _awaited(graph, group)
    yield from _after(graph, group)
    yield from _published(graph, group)


def _awaited(graph: EventGraph, group: Group) -> Iterator[str]:
    """Yield which awaits of the loop cover a group."""
    for step, run, thread, _, commits in graph.awaits:
        assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
        if graph.awaits_group(step.stmt.kind, thread, group):
            for back, when in graph.covers(group, commits, step.stmt.keep):
                yield all_of([run.happens(back), *(bound.at(back).text() for bound in when)])


def _published(graph: EventGraph, group: Group) -> Iterator[str]:
    """Yield which phases on which cp.async arrives are waited for."""
    for phase in graph.phases.values():
        for _, run, _, node in phase.arrivals:
            for cross in graph.crosses:
                finish = cross.rule is Axiom.FINISH
                if finish and (cross.node, cross.cause) == (node, group.done):
                    yield from (
                        all_of([run.happens(-cross.shift), runs])
                        for runs in seen(phase, run.phase - cross.shift)
                    )


def _after(graph: EventGraph, group: Group) -> Iterator[str]:
    """Yield which groups the awaits after the loop cover."""
    commits = graph.commits.get((group.thread, group.kind), [])
    more = 0
    for step in graph.trace.programs[group.thread.kind].after:
        if step.guard != 1:
            continue
        match step.stmt:
            case kir.AsyncCommit(kind) if kind is group.kind:
                more += 1
            case kir.AsyncAwait(kind, keep) if kind is group.kind:
                yield from closing(commits, group.commits, keep, more)
            case _:
                pass


def counted(phase: Phase, trace: Trace) -> None:
    """Check that a phase gets as many arrivals as it takes, and the bytes it expects.

    RefusedError if it does not.
    """
    name = phase.barrier.name
    arrived = expected = copied = 0
    for step in {s.index: s for s, *_ in phase.arrivals}.values():
        many = trace.count(step)
        match step.stmt:
            case kir.CpAsyncMBarrierArrive(_, _, False):
                pass
            case kir.MBarrierArriveExpectTx(_, _, nbytes):
                arrived += many
                expected += many * nbytes
            case _:
                arrived += many
    for step in {s.index: s for s, *_ in phase.expects}.values():
        if isinstance(step.stmt, kir.MBarrierExpectTx):
            expected += trace.count(step) * step.stmt.nbytes
    step = phase.arrivals[0][0]
    for copy in {s.index: s for s, *_ in phase.copies}.values():
        assert isinstance(copy.stmt, kir.TmaLoad), "only loads complete on barriers"
        nbytes = copy.stmt.src.tensor.dtype.nbytes
        for extent in copy.stmt.src.shape:
            nbytes *= extent
        copied += nbytes * trace.count(copy)
    if arrived != phase.barrier.arrivals:
        says = f"{name} takes {phase.barrier.arrivals} arrivals a phase and gets {arrived}"
        raise RefusedError("arrivals", step.stmt, says)
    if expected != copied:
        says = f"{name} expects {expected} bytes a phase and gets {copied}"
        raise RefusedError("bytes", step.stmt, says)


def raised(phase: Phase) -> None:
    """Check that who raises what a phase waits for arrives in it later.

    Till then it cannot end; that its bytes keep it open is known only once they are expected.

    UnsupportedError if somebody else, or nobody, does.
    """
    for step, run, thread, _ in phase.expects:
        followed = any(
            after.index > step.index
            and isinstance(after.stmt, kir.MBarrierArrive | kir.MBarrierArriveExpectTx)
            and (who, when.low, when.stop, when.guard, when.bar)
            == (thread, run.low, run.stop, run.guard, run.bar)
            for after, when, who, _ in phase.arrivals
        )
        if not followed or run.low:
            says = f"no arrival of its thread on {phase.barrier.name} follows"
            raise UnsupportedError(f"{step.where}: {says}")


def paired(phase: Phase) -> None:
    """Check that all who arrive begin with the same slot.

    UnsupportedError if they do not: then which arrivals are those of one phase depends on the slot.
    """
    begun = {run.first + run.phase: step for step, run, _, _ in phase.arrivals}
    if len(begun) > 1:
        step = begun[max(begun)]
        raise UnsupportedError(f"{step.where}: its turns are not those of other arrivals")
