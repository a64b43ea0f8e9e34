"""What must hold of every iteration: one claim per obligation, as what z3 must not find.

`ordered` are claims that one event precedes another, `existing` claims about which iterations run
what, and `returning` those without which the ordered ones are too few: a kernel that breaks none
but these may be right.  See `graph` for the events and `check.Questions` for their order.

Notes
-----
Two accesses of one slot are made by statements that come back to it every `modulus` iterations.
If a (iteration i) ends before b (iteration j) starts, it ends before every later b, for these
follow b in its own thread; so one claim, for the first b after a, covers all distances.  Which b
is the first is read off the schedule: if a is required by b, the schedule has a before b, so that
every pair that can be proved at all is asked for the right way around; what cannot is refuted.
Two things are claimed besides: that b, where it runs, ran one round of the ring before, and that no
b is forgotten that begins before the loop, or some iterations late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.graph import (
    FAR,
    Access,
    Agency,
    Event,
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
        ends = self.first, self.then, self.start
        return self.when, *ends, self.between, self.timed, self.instead


class Claims:
    """The claims of one kernel, its schedule given."""

    def __init__(self, graph: EventGraph, times: Mapping[int, int], policy: str) -> None:
        self.graph = graph
        self.times = times
        self.policy = policy
        self.timed = Obligation.NARROW in graph.without
        self.ordered = self._kept([*self._phases(), *self._signals(), *self._hazards()])
        held = [*self._accounts(), *self._paired(), *self._ends(), *self._written()]
        self.existing, self.returning = self._kept(held), self._kept(list(self._rounds()))

    def _kept(self, found: list[Claim]) -> list[Claim]:
        """Return the claims of rules that are not left out, each once."""
        kept = [claim for claim in found if claim.rule not in self.graph.without]
        return list({claim.key: claim for claim in kept}.values())

    # --- phases ---------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Claim]:
        """Claim that a wait sees its own phase (A1, A2), and arrivals come in theirs (A3)."""
        for phase in self.graph.phases.values():
            m, name = phase.modulus, phase.barrier.name
            for at in phase.waits:
                says = f"{name}: the wait begins before the phase before its own has completed"
                behind = self._behind(Obligation.NOT_BEHIND, phase, at, says)
                yield replace(behind, start=at.thread)
                for other in phase.arrivals[:1]:
                    mine = -m - at.run.phase
                    runs = at.run.happens(mine), other.run.happens(-other.run.phase)
                    when = all_of([_real(0), *runs])
                    says = f"{name}: the phase after may complete before the wait has returned"
                    rule, first = Obligation.NOT_LAPPED, (at.node, mine)
                    yield Claim(rule, "parity", at.step, says, when, first, phase.node)
            for at in (*phase.arrivals, *phase.expects, *phase.copies):
                says = f"{name}: it may count for the phase before its own"
                yield self._behind(Obligation.IN_PHASE, phase, at, says)

    def _behind(self, rule: Obligation, phase: Phase, at: Event, says: str) -> Claim:
        """Claim that an event comes when the phase before its own has ended."""
        old = at.run.phase - phase.modulus
        when = all_of([at.run.happens(0), _real(old)])
        ends = [(other.node, other.run) for other in phase.arrivals]
        ends += [(copy.end, copy.run) for copy in phase.copies]
        causes = tuple(dict.fromkeys((node, old - run.phase) for node, run in ends))
        first = phase.node, old
        return Claim(rule, "parity", at.step, says, when, first, at.node, causes=causes)

    def _signals(self) -> Iterator[Claim]:
        """Claim that who arrives at a named barrier does so after the generation before."""
        for signal in self.graph.signals:
            old = -1 - signal.away
            when = all_of([signal.arrives.happens(0), signal.waits.happens(old)])
            says = "it may count for the generation before its own"
            for node in signal.arrivals:
                first, rule = (signal.node, old), Obligation.IN_PHASE
                yield Claim(rule, "collective", signal.arrive, says, when, first, node)

    def _paired(self) -> Iterator[Claim]:
        """No generation of a named barrier is skipped, by neither side."""
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
                yield Claim(Obligation.WHOLE, "deadlock", step, "a generation is skipped", when)

    def _accounts(self) -> Iterator[Claim]:
        """Phases that are awaited or followed by others are whole, and waits have theirs.

        A last one of a slot may stay incomplete, if nobody waits for it.
        """
        for phase in self.graph.phases.values():
            name, slots = phase.barrier.name, phase.modulus
            members = [*phase.arrivals, *phase.expects, *phase.copies]
            if not phase.arrivals:
                for at in (*phase.waits, *phase.copies):
                    raise RefusedError("deadlock", at.step.stmt, f"nothing arrives on {name}")
            if Obligation.EXPECTED not in self.graph.without:
                raised(phase)
            if Obligation.COUNTED not in self.graph.without:
                counted(phase, self.graph.trace)
            paired(phase)
            rule = Obligation.WHOLE
            whole = all_of([at.run.happens(-at.run.phase) for at in members])
            before = all_of([at.run.happens(-at.run.phase - slots) for at in members])
            for at in members:
                mine = at.run.happens(-at.run.phase)
                says, when = f"{name}: its first phases are skipped", Bound(-1, 0, -1).text()
                yield Claim(rule, "arrivals", at.step, says, all_of([mine, when]))
                says = f"{name}: some of the phase before does not run"
                when = all_of([mine, _real(-slots), f"(not {before})"])
                yield Claim(rule, "arrivals", at.step, says, when)
            for at in phase.waits:
                when = all_of([at.run.happens(-at.run.phase), _real(0), f"(not {whole})"])
                says = f"{name}: a wait without its phase"
                yield Claim(Obligation.AWAITED, "deadlock", at.step, says, when)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[Claim]:
        """Every two accesses of a slot of which one writes are ordered."""
        for i, a in enumerate(self.graph.accesses):
            stores = a.agency is not Agency.ENGINE and a.writes
            if stores and self.graph.footprints.collides(a.step.index):
                raise RefusedError("WAW", a.step.stmt, "threads of one store share bytes")
            for j, b in enumerate(self.graph.accesses):
                shares = a.buffer.shares(b.buffer) and (a.writes or b.writes)
                if shares and self._overlap(a, b):
                    yield from self._pair(a, b, tie=i < j)

    def _overlap(self, a: Access, b: Access) -> bool:
        if Agency.ENGINE in (a.agency, b.agency):
            return self.graph.stands(a.thread) and self.graph.stands(b.thread)
        if Agency.CP_ASYNC in (a.agency, b.agency) and a.thread == b.thread:
            return True
        overlaps = self.graph.footprints.overlaps(a.step.index, b.step.index)
        return any((a.thread, b.thread) == self.graph.pair(*one) for one in overlaps)

    def _first(self, start: int, then: int, step: int, residue: int, *, tie: bool = False) -> int:
        """Return the least distance, of that residue, at which `then` comes after `start`."""
        ahead = self.times[start] - self.times[then] + (0 if tie else 1)
        least = -(-ahead // FAR)
        return least + (residue - least) % step

    def _away(self, a: Access, b: Access, *, tie: bool) -> int:
        """Return how many iterations after an access the first one of its slot by `b` starts."""
        residue = a.walk.shift - b.walk.shift
        return self._first(a.node, b.node, a.walk.modulus, residue, tie=tie)

    def _between(self, a: Access, b: Access, away: int, node: int, end: int) -> list[At]:
        """Return where a node may come between `end`, of the iteration of `a`, and `b`."""
        offsets = {self._first(end, node, 1, 0) - away, -self._first(node, b.node, 1, 0)}
        return [(node, offset) for offset in offsets]

    def _pair(self, a: Access, b: Access, *, tie: bool) -> Iterator[Claim]:
        """Claim that a ends before the first b after it starts."""
        around = a.walk.modulus
        away = self._away(a, b, tie=tie)
        if away == 0 and a.step is b.step and getattr(a.step.stmt, "matrix", False):
            away = around  # in one execution no two lanes of a warp touch an element
        kind = HAZARDS[a.writes or not b.writes, b.writes]
        says = f"nothing orders it after `{a.step.where}`"
        crosses = b.agency is Agency.ENGINE and a.agency is not Agency.ENGINE
        fences = crosses and (a.writes or self.policy == "strict")
        while True:
            when = all_of([a.run.happens(-away), b.run.happens(0)])
            first, rule = (a.end, -away), Obligation[kind]
            claim = Claim(rule, kind, b.step, says, when, first, b.node, timed=self.timed)
            yield replace(claim, instead=tuple(self._group_mates(a, b, away)))
            if fences:
                unfenced = f"no fence_async_proxy stands between it and `{a.step.where}`"
                between = self._fences(a, b, away) or (((-1, 0), ""),)
                yield replace(
                    claim, rule=Obligation.PROXY, kind="proxy", says=unfenced, between=between
                )
            if a.run.first + away >= _begins(b):
                return
            away += around

    def _group_mates(self, a: Access, b: Access, away: int) -> Iterator[tuple[At, At]]:
        """Yield the ends of a wgmma's reads in other warps, by default as good as its own.

        That is so for whom their warps tell, by a phase that they arrive in.
        """
        if self.policy == "strict" or not isinstance(a.step.stmt, kir.Wgmma):
            return
        for other in self.graph.accesses:
            same = (other.step, other.buffer) == (a.step, a.buffer)
            if same and other.end != a.end and self.graph.mates(a.thread, other.thread):
                for phase in self.graph.phases.values():
                    by = (e for e in phase.arrivals if isinstance(e.step.stmt, kir.MBarrierArrive))
                    if any(event.thread.warp == other.thread.warp for event in by):
                        places = self._between(a, b, away, phase.node, other.end)
                        yield from (((other.end, -away), place) for place in places)

    def _fences(self, a: Access, b: Access, away: int) -> tuple[tuple[At, str], ...]:
        """Return the proxy fences that may stand between a generic access and the copy after it.

        All lanes of a warp issue a wgmma, so that behind a barrier all of them need one.
        """
        found: list[tuple[int, At, str]] = []
        for at in self.graph.fences:
            issued = isinstance(b.step.stmt, kir.Wgmma) and not b.step.kinds <= at.step.kinds
            if not issued or at.thread == a.thread:
                rank = 0 if at.thread == a.thread else 1 if at.thread == b.thread else 2
                for place in self._between(a, b, away, at.node, a.end):
                    found.append((rank, place, at.run.happens(place[1])))
        return tuple((place, runs) for _, place, runs in sorted(found))

    # --- existence ------------------------------------------------------------------------------

    def _rounds(self) -> Iterator[Claim]:
        """Claim that what touches a slot did so one round of the ring before, if in the loop."""
        for a in self.graph.accesses:
            around = a.walk.modulus
            again = Bound(1, 0, -around - _begins(a)).text()
            when = all_of([a.run.happens(0), again, f"(not {a.run.happens(-around)})"])
            says = f"it runs where it did not run {around} iterations before"
            yield Claim(Obligation.RETURN, "bounds", a.step, says, when)

    def _written(self) -> Iterator[Claim]:
        """Every read of a slot follows a write of all of it, of the same buffer or a larger one."""
        for b in self.graph.accesses:
            if b.writes:
                continue
            writers, parts = [], False
            for a in self.graph.accesses:
                if not (a.writes and a.buffer.shares(b.buffer)):
                    continue
                inside = a.buffer.offset <= b.buffer.offset and b.buffer.end <= a.buffer.end
                if a.buffer == b.buffer or inside:
                    away = self._away(a, b, tie=a.step.index < b.step.index)
                    writers.append(a.run.happens(-away))
                parts = True
            if parts and not writers:
                raise UnsupportedError(
                    f"{b.step.where}: bytes that several statements have written"
                )
            when = all_of([b.run.happens(0), f"(not {any_of(writers)})"])
            says = f"nothing has written {b.buffer.name}"
            yield Claim(Obligation.WRITTEN, "RAW", b.step, says, when)

    def _ends(self) -> Iterator[Claim]:
        """Every copy in flight is waited for before the kernel ends."""
        exits: list[tuple[Obligation, str, Event, list[str]]] = [
            (Obligation.EXIT, "exit", copy, _seen(phase, copy.run.phase))
            for phase in self.graph.phases.values()
            for copy in phase.copies
        ]
        for group in self.graph.groups:
            if group.kind is not kir.AsyncKind.WGMMA:
                bulk = group.kind is kir.AsyncKind.BULK
                rule, kind = (Obligation.DRAIN, "drain") if bulk else (Obligation.EXIT, "exit")
                exits.append((rule, kind, group, list(_finished(self.graph, group))))
        for rule, kind, at, ends in exits:
            when = all_of([at.run.happens(0), f"(not {any_of(ends)})"])
            yield Claim(rule, kind, at.step, "is still in flight when the CTA exits", when)


def _begins(access: Access) -> int:
    """Return the first iteration of an access; one that is far ahead is not looked for."""
    return access.run.first if access.run.first <= SOON else access.run.low


def _real(offset: int) -> str:
    """Return that phase `k + offset` is none before the first."""
    return Bound(1, 0, offset).text()


def _seen(phase: Phase, ahead: int) -> list[str]:
    """Return which waits for phase `k + ahead` run."""
    return [at.run.happens(ahead - at.run.phase) for at in phase.waits]


def _finished(graph: EventGraph, group: Group) -> Iterator[str]:
    """Yield conditions on k, each enough for a copy of iteration k to be waited for in the end."""
    for at, awaited in graph.awaits:  # in the loop
        for back, when in graph.covers(group, at, awaited):
            yield all_of([at.run.happens(back), *(bound.at(back).text() for bound in when)])
    commits = graph.commits.get((group.thread, group.kind), [])
    more = 0
    for step in graph.trace.programs[group.thread.kind].after:
        match step.stmt:
            case kir.AsyncCommit(kind) if kind is group.kind and step.guard == 1:
                more += 1
            case kir.AsyncAwait(kind, keep) if kind is group.kind and step.guard == 1:
                yield from closing(commits, group.commits, keep, more)
            case _:
                pass
    for phase in graph.phases.values():  # on which cp.async arrives
        for at, cross in product(phase.arrivals, graph.crosses):
            ends = cross.node, cross.cause
            if cross.rule is Axiom.FINISH and ends == (at.node, group.end):
                for runs in _seen(phase, at.run.phase - cross.shift):
                    yield all_of([at.run.happens(-cross.shift), runs])


def counted(phase: Phase, trace: Trace) -> None:
    """Check that a phase gets as many arrivals as it takes, and the bytes it expects."""
    name = phase.barrier.name
    arrived = expected = copied = 0
    members = [at.step for at in (*phase.arrivals, *phase.expects, *phase.copies)]
    for step in dict.fromkeys(members):
        many = trace.count(step)
        match step.stmt:
            case kir.MBarrierArriveExpectTx(_, _, nbytes):
                arrived += many
                expected += many * nbytes
            case kir.MBarrierExpectTx(_, _, nbytes):
                expected += many * nbytes
            case kir.TmaLoad(_, src):
                copied += many * prod(src.shape) * src.tensor.dtype.nbytes
            case kir.MBarrierArrive() | kir.CpAsyncMBarrierArrive(_, _, True):
                arrived += many
            case _:
                pass
    stmt = phase.arrivals[0].step.stmt
    if arrived != phase.barrier.arrivals:
        says = f"{name} takes {phase.barrier.arrivals} arrivals a phase and gets {arrived}"
        raise RefusedError("arrivals", stmt, says)
    if expected != copied:
        says = f"{name} expects {expected} bytes a phase and gets {copied}"
        raise RefusedError("bytes", stmt, says)


def raised(phase: Phase) -> None:
    """Check that who raises what a phase waits for arrives in it later.

    Till then it cannot end; that its bytes keep it open is known only once they are expected.
    """
    for at in phase.expects:
        followed = any(
            after.step.index > at.step.index
            and isinstance(after.step.stmt, kir.MBarrierArrive | kir.MBarrierArriveExpectTx)
            and after.thread == at.thread
            and replace(after.run, buf=at.run.buf, other=at.run.other) == at.run
            for after in phase.arrivals
        )
        if not followed or at.run.low:
            says = f"no arrival of its thread on {phase.barrier.name} follows"
            raise UnsupportedError(f"{at.step.where}: {says}")


def paired(phase: Phase) -> None:
    """Check that all who arrive begin with the same slot.

    If they do not, which arrivals are those of one phase depends on the slot.
    """
    begun = {at.run.first + at.run.phase: at.step for at in phase.arrivals}
    if len(begun) > 1:
        step = begun[max(begun)]
        raise UnsupportedError(f"{step.where}: its rounds are not those of other arrivals")
