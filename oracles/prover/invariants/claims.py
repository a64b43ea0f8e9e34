"""What must hold of every iteration: one claim per obligation, as what z3 must not find.

`ordered` are claims that one event precedes another, `existing` claims about which iterations run
what, and `returning` those without which the ordered ones are too few: a kernel that breaks none
but these may be right.  See `events.graph` for the events and `window` for
their order.

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
from oracles.prover.invariants.events.collective import overlap
from oracles.prover.invariants.events.completion import finished, seen
from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.events.nodes import Access, Agency, Phase, RefusedError, Thread
from oracles.prover.invariants.events.parametric import Bound, both, either, shift
from oracles.prover.invariants.events.phases import counted, paired, raised
from oracles.prover.invariants.rules import Obligation
from oracles.prover.invariants.trace import Step
from oracles.prover.invariants.window import FAR

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

    def __init__(self, skeleton: Skeleton, times: Mapping[int, int], policy: str) -> None:
        self.skeleton = skeleton
        self.times = times
        self.policy = policy
        self.ordered = self._kept([*self._phases(), *self._signals(), *self._hazards()])
        held = [*self._accounts(), *self._paired(), *self._ends(), *self._written()]
        self.existing, self.returning = self._kept(held), self._kept(list(self._turns()))

    def _kept(self, found: list[Claim]) -> list[Claim]:
        """Return the claims of rules that are not left out, each once."""
        kept = [claim for claim in found if claim.rule not in self.skeleton.without]
        return list({claim.key: claim for claim in kept}.values())

    # --- phases ---------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Claim]:
        """Claim that a wait sees its own phase (A1, A2), and arrivals come in theirs (A3)."""
        for phase in self.skeleton.phases.values():
            m, name = phase.modulus, phase.barrier.name
            for step, place, thread, node in phase.waits:
                old = shift(place) - m
                when = both([place.runs(0), _real(old)])
                says = f"{name}: the wait begins before the phase before its own has completed"
                yield Claim(
                    Obligation.NOT_BEHIND, "parity", step, says, when, (phase.node, old), node,
                    thread, causes=_causes(phase, old),
                )  # fmt: skip
                for _, other, _, _ in phase.arrivals[:1]:
                    mine = -m - shift(place)
                    when = both([_real(0), place.runs(mine), other.runs(-shift(other))])
                    says = f"{name}: the phase after may complete before the wait has returned"
                    first = node, mine
                    yield Claim(
                        Obligation.NOT_LAPPED, "parity", step, says, when, first, phase.node
                    )
            incoming = [(s, p, node) for s, p, _, node in (*phase.arrivals, *phase.expects)]
            for step, place, node in [*incoming, *((s, p, n) for s, p, n, _ in phase.copies)]:
                old = shift(place) - m
                says = f"{name}: it may count for the phase before its own"
                when = both([place.runs(0), _real(old)])
                yield Claim(
                    Obligation.IN_PHASE, "parity", step, says, when, (phase.node, old), node,
                    causes=_causes(phase, old),
                )  # fmt: skip

    def _signals(self) -> Iterator[Claim]:
        """Claim that who arrives at a named barrier does so after the turn before."""
        for signal in self.skeleton.signals:
            old = -1 - signal.away
            when = both([signal.arrives.runs(0), signal.waits.runs(old)])
            says = "it may count for the turn before its own"
            for node in signal.arrivals:
                first, rule = (signal.turn, old), Obligation.IN_PHASE
                yield Claim(rule, "collective", signal.arrive, says, when, first, node)

    def _paired(self) -> Iterator[Claim]:
        """No turn of a named barrier is skipped, by neither side."""
        for signal in self.skeleton.signals:
            here, there = signal.arrives.runs(signal.away), signal.waits.runs(0)
            for kind, *parts in (
                ("deadlock", there, f"(not {here})"),
                ("collective", here, f"(not {there})"),
            ):
                says = "one side of the barrier comes where the other does not"
                yield Claim(Obligation.WHOLE, kind, signal.wait, says, both(parts))
            for step, place in ((signal.arrive, signal.arrives), (signal.wait, signal.waits)):
                later = Bound(1, 0, -place.first - 1).text()
                when = both([place.runs(0), later, f"(not {place.runs(-1)})"])
                yield Claim(Obligation.WHOLE, "deadlock", step, "a turn is skipped", when)

    def _accounts(self) -> Iterator[Claim]:
        """Phases that are awaited or followed by others are whole, and waits have theirs.

        A last one of a slot may stay incomplete, if nobody waits for it.
        """
        for phase in self.skeleton.phases.values():
            name, slots = phase.barrier.name, phase.modulus
            places = [(s, p) for s, p, _, _ in (*phase.arrivals, *phase.expects)]
            places += [(s, p) for s, p, _, _ in phase.copies]
            if not phase.arrivals:
                for step, *_ in (*phase.waits, *phase.copies):
                    raise RefusedError("deadlock", step, f"nothing arrives on {name}")
            if Obligation.EXPECTED not in self.skeleton.without:
                raised(phase)
            if Obligation.COUNTED not in self.skeleton.without:
                counted(phase, self.skeleton.trace)
            paired(phase)
            rule = Obligation.WHOLE
            whole = both(list(dict.fromkeys(p.runs(-shift(p)) for _, p in places)))
            before = both(list(dict.fromkeys(p.runs(-shift(p) - slots) for _, p in places)))
            for step, place in places:
                mine = place.runs(-shift(place))
                says = f"{name}: its first phases are skipped"
                yield Claim(rule, "arrivals", step, says, both([mine, Bound(-1, 0, -1).text()]))
                says = f"{name}: some of the phase before does not run"
                when = both([mine, _real(-slots), f"(not {before})"])
                yield Claim(rule, "arrivals", step, says, when)
            for step, place, _, _ in phase.waits:
                when = both([place.runs(-shift(place)), _real(0), f"(not {whole})"])
                says = f"{name}: a wait without its phase"
                yield Claim(Obligation.AWAITED, "deadlock", step, says, when)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[Claim]:
        """Every two accesses of a slot of which one writes are ordered."""
        for i, a in enumerate(self.skeleton.accesses):
            if a.agency is not Agency.ENGINE and a.writes:
                self._alone(a)
            for j, b in enumerate(self.skeleton.accesses):
                shares = overlap(a.buffer, b.buffer) and (a.writes or b.writes)
                if shares and self._meet(a, b):
                    yield from self._pair(a, b, tie=i < j)

    def _alone(self, a: Access) -> None:
        if self.skeleton.footprints.collides(a.step.index):
            raise RefusedError("WAW", a.step, "threads of one store share bytes")

    def _meet(self, a: Access, b: Access) -> bool:
        if Agency.ENGINE in (a.agency, b.agency):
            return self.skeleton.stands(a.thread) and self.skeleton.stands(b.thread)
        if Agency.CP_ASYNC in (a.agency, b.agency) and a.thread == b.thread:
            return True
        meetings = self.skeleton.footprints.meetings(a.step.index, b.step.index)
        return any((a.thread, b.thread) == self.skeleton.pair(meeting) for meeting in meetings)

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
            when = both([a.place.runs(-away), b.place.runs(0)])
            first = a.end, -away
            rule = Obligation[kind]
            yield Claim(
                rule, kind, b.step, says, when, first, b.start, timed=self._timed,
                instead=tuple(self._group_mates(a, b, away)),
            )  # fmt: skip
            if fences:
                yield self._fenced(a, b, away, when)
            if a.place.first + away >= _begins(b):
                return
            away += turn

    def _group_mates(self, a: Access, b: Access, away: int) -> Iterator[tuple[At, At]]:
        """Yield the ends of a wgmma's reads in other warps, by default as good as its own.

        That is so for whom their warps tell, by a phase that they arrive in.
        """
        if self.policy == "strict" or not isinstance(a.step.stmt, kir.Wgmma):
            return
        for other in self.skeleton.accesses:
            same = (other.step, other.buffer) == (a.step, a.buffer)
            if same and other.end != a.end and self.skeleton.mates(a.thread, other.thread):
                for phase in self._told(other):
                    after = self.first(other.end, phase.node, 1, 0) - away
                    before = -self.first(phase.node, b.start, 1, 0)
                    yield from (((other.end, -away), (phase.node, at)) for at in {after, before})

    def _told(self, access: Access) -> Iterator[Phase]:
        """Yield the phases that the warp of a wgmma ends by an arrival of its own."""
        for phase in self.skeleton.phases.values():
            mine = (t for s, _, t, _ in phase.arrivals if isinstance(s.stmt, kir.MBarrierArrive))
            if any(thread.warp == access.thread.warp for thread in mine):
                yield phase

    @property
    def _timed(self) -> bool:
        return Obligation.NARROW in self.skeleton.without

    def _fenced(self, a: Access, b: Access, away: int, when: str) -> Claim:
        """Claim that a proxy fence stands between a generic access and the copy after it.

        All lanes of a warp issue a wgmma, so that behind a barrier all of them need one.
        """
        found: list[tuple[int, At, str]] = []
        for step, place, thread, node in self.skeleton.fences:
            issued = isinstance(b.step.stmt, kir.Wgmma) and not b.step.kinds <= step.kinds
            if issued and thread != a.thread:
                continue
            after = self.first(a.end, node, 1, 0)
            before = -self.first(node, b.start, 1, 0)
            for offset in {after - away, before}:
                at = (node, offset)
                rank = 0 if thread == a.thread else 1 if thread == b.thread else 2
                found.append((rank, at, place.runs(offset)))
        between = tuple((at, runs) for _, at, runs in sorted(found)) or (((-1, 0), ""),)
        says = f"no fence_async_proxy stands between it and `{a.step.where}`"
        first, rule = (a.end, -away), Obligation.PROXY
        return Claim(
            rule, "proxy", b.step, says, when, first, b.start, None, between, timed=self._timed
        )

    # --- existence ------------------------------------------------------------------------------

    def _turns(self) -> Iterator[Claim]:
        """Claim that what touches a slot did so one turn of the ring before, if in the loop."""
        for a in self.skeleton.accesses:
            turn = a.walk.modulus
            again = Bound(1, 0, -turn - _begins(a)).text()
            when = both([a.place.runs(0), again, f"(not {a.place.runs(-turn)})"])
            says = f"it runs where it did not run {turn} iterations before"
            yield Claim(Obligation.RETURN, "bounds", a.step, says, when)

    def _written(self) -> Iterator[Claim]:
        """Every read of a slot follows a write of it, with none of other buffers in between."""
        for b in self.skeleton.accesses:
            if b.writes:
                continue
            found: list[tuple[int, Access, int]] = []
            for a in self.skeleton.accesses:
                if a.writes and overlap(a.buffer, b.buffer):
                    residue = a.walk.shift - b.walk.shift
                    turn, tie = a.walk.modulus, a.step.index < b.step.index
                    away = self.first(a.start, b.start, turn, residue, tie=tie)
                    found.append((self.times[a.start] - FAR * away, a, away))
            spoiled = max((t for t, a, _ in found if a.buffer != b.buffer), default=None)
            writers = [
                a.place.runs(-away)
                for time, a, away in found
                if a.buffer == b.buffer and (spoiled is None or time > spoiled)
            ]
            when = both([b.place.runs(0), f"(not {either(writers)})"])
            says = f"nothing has written {b.buffer.name}"
            yield Claim(Obligation.WRITTEN, "RAW", b.step, says, when)

    def _ends(self) -> Iterator[Claim]:
        """Every copy in flight is waited for before the kernel ends."""
        for phase in self.skeleton.phases.values():
            for step, place, _, _ in phase.copies:
                when = both([place.runs(0), f"(not {either(seen(phase, shift(place)))})"])
                says = "is still in flight when the CTA exits"
                yield Claim(Obligation.EXIT, "exit", step, says, when)
        for group in self.skeleton.groups:
            if group.kind is kir.AsyncKind.WGMMA:
                continue
            covered = either(list(finished(self.skeleton, group)))
            when = both([group.place.runs(0), f"(not {covered})"])
            says = "is still in flight when the CTA exits"
            bulk = group.kind is kir.AsyncKind.BULK
            rule, kind = (Obligation.DRAIN, "drain") if bulk else (Obligation.EXIT, "exit")
            yield Claim(rule, kind, group.step, says, when)


def _begins(access: Access) -> int:
    """Return the first iteration of an access; one that is far ahead is not looked for."""
    return access.place.first if access.place.first <= SOON else access.place.low


def _matrix(step: Step) -> bool:
    return isinstance(step.stmt, kir.Load | kir.Store) and step.stmt.matrix


def _causes(phase: Phase, offset: int) -> tuple[At, ...]:
    """Return what phase `k + offset` ends with."""
    arrived = ((node, offset - shift(place)) for _, place, _, node in phase.arrivals)
    landed = ((end, offset - shift(place)) for _, place, _, end in phase.copies)
    return tuple(dict.fromkeys((*arrived, *landed)))


def _real(offset: int) -> str:
    """Return that phase `k + offset` is none before the first."""
    return Bound(1, 0, offset).text()
