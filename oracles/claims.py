"""What must hold of every iteration: one claim per obligation, as what z3 must not find.

`ordered` are claims that one event precedes another, `existing` claims about which iterations run
what.  See `skeleton` for the events and `window` for their order.

Notes
-----
Two accesses of one slot are made by statements that come back to it every `modulus` iterations.
If a (iteration i) ends before b (iteration j) starts, it ends before every later b, for these
follow b in its own thread; so one claim, for the first b after a, covers all distances.  Which b
is the first is read off the schedule: if a is required by b, the schedule has a before b, so that
every pair that can be proved at all is asked for the right way around; what cannot is refuted.
Two things are claimed besides: that b, where it runs, ran one turn of the ring before, and that no
b before the loop is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuser import kernel_ir as kir
from oracles.parametric import Bound, Place, both, either
from oracles.skeleton import Access, RefusedError, Skeleton, Thread
from oracles.trace import Step
from oracles.window import FAR

HAZARDS = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}
"""Name of the hazard by (earlier writes, later writes)."""
At = tuple[int, int]
"""A node and the offset of its iteration."""


@dataclass(frozen=True, slots=True)
class Claim:
    """If `when` holds, event `first` precedes event `then`, through a node of `between` if given.

    `then` is in iteration k; with `start` it is the moment at which that thread begins its wait.
    Without `then`, `when` itself must not hold.
    """

    kind: str
    step: Step
    says: str
    when: str
    first: At = (-1, 0)
    then: int = -1
    start: Thread | None = None
    between: tuple[tuple[At, str], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two claims the same question."""
        return (self.when, self.first, self.then, self.start, self.between)


class Claims:
    """The claims of one kernel, its schedule given."""

    def __init__(self, skeleton: Skeleton, times: Mapping[int, int], policy: str) -> None:
        self.skeleton = skeleton
        self.times = times
        self.policy = policy
        found = [*self._phases(), *self._hazards()]
        self.ordered = list({claim.key: claim for claim in found}.values())
        held = [*self._accounts(), *self._ends(), *self._turns(), *self._written()]
        self.existing = list({claim.key: claim for claim in held}.values())

    # --- phases ---------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Claim]:
        """Claim that a wait sees its own phase (A1, A2), and arrivals come in theirs (A3)."""
        for phase in self.skeleton.phases.values():
            m, name = phase.modulus, phase.barrier.name
            for step, place, thread, node in phase.waits:
                old = _shift(place) - m
                when = both([place.runs(0), _real(old)])
                says = f"{name}: the wait begins before the phase before its own has completed"
                yield Claim("parity", step, says, when, (phase.node, old), node, thread)
                for _, other, _, _ in phase.arrivals[:1]:
                    mine = -m - _shift(place)
                    when = both([_real(0), place.runs(mine), other.runs(-_shift(other))])
                    says = f"{name}: the phase after may complete before the wait has returned"
                    yield Claim("parity", step, says, when, (node, mine), phase.node)
            incoming = [(s, p, node) for s, p, _, node in phase.arrivals]
            for step, place, node in [*incoming, *((s, p, n) for s, p, n, _ in phase.copies)]:
                old = _shift(place) - m
                says = f"{name}: it may count for the phase before its own"
                when = both([place.runs(0), _real(old)])
                yield Claim("parity", step, says, when, (phase.node, old), node)

    def _accounts(self) -> Iterator[Claim]:
        """All arrivals of a phase run or none, phases follow one another, waits have theirs."""
        for phase in self.skeleton.phases.values():
            name, slots = phase.barrier.name, phase.modulus
            places = [(s, p) for s, p, _, _ in phase.arrivals]
            places += [(s, p) for s, p, _, _ in phase.copies]
            if not phase.arrivals:
                for step, *_ in (*phase.waits, *phase.copies):
                    raise RefusedError("deadlock", step, f"nothing arrives on {name}")
            self._counts(name)
            first = places[0][1]
            whole = first.runs(-_shift(first))
            for step, place in places:
                mine = place.runs(-_shift(place))
                if place is not first:
                    says = f"{name}: some of a phase runs where the rest does not"
                    yield Claim("arrivals", step, says, both([whole, f"(not {mine})"]))
                    yield Claim("arrivals", step, says, both([mine, f"(not {whole})"]))
                says = f"{name}: its first phases are skipped"
                yield Claim("arrivals", step, says, both([mine, Bound(-1, 0, -1).text()]))
                old = place.runs(-_shift(place) - slots)
                skips = both([mine, _real(-slots), f"(not {old})"])
                yield Claim("arrivals", step, f"{name}: a phase is skipped", skips)
            for step, place, _, _ in phase.waits:
                when = both([place.runs(-_shift(place)), _real(0), f"(not {whole})"])
                yield Claim("deadlock", step, f"{name}: a wait without its phase", when)

    def _counts(self, name: str) -> None:
        phase = self.skeleton.phases[name]
        agents = self.skeleton.trace.agents
        arrived = expected = copied = 0
        for step in {s.index: s for s, *_ in phase.arrivals}.values():
            many = sum(agents[i].count for i in step.agents)
            arrived += many
            if isinstance(step.stmt, kir.MBarrierArriveExpectTx):
                expected += many * step.stmt.nbytes
        step = phase.arrivals[0][0]
        for copy in {s.index: s for s, *_ in phase.copies}.values():
            assert isinstance(copy.stmt, kir.TmaLoad), "only loads complete on barriers"
            nbytes = copy.stmt.src.tensor.dtype.nbytes
            for extent in copy.stmt.src.shape:
                nbytes *= extent
            copied += nbytes * sum(agents[i].count for i in copy.agents)
        if arrived != phase.barrier.arrivals:
            says = f"{name} takes {phase.barrier.arrivals} arrivals a phase and gets {arrived}"
            raise RefusedError("arrivals", step, says)
        if expected != copied:
            says = f"{name} expects {expected} bytes a phase and gets {copied}"
            raise RefusedError("bytes", step, says)

    # --- hazards --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[Claim]:
        """Every two accesses of a slot of which one writes are ordered."""
        for i, a in enumerate(self.skeleton.accesses):
            if not a.engine and a.writes:
                self._alone(a)
            for j, b in enumerate(self.skeleton.accesses):
                if a.buffer == b.buffer and (a.writes or b.writes) and self._meet(a, b):
                    yield from self._pair(a, b, tie=i < j)

    def _alone(self, a: Access) -> None:
        if self.skeleton.footprints.meetings(a.step.index, a.step.index):
            raise RefusedError("WAW", a.step, "threads of one store share bytes")

    def _meet(self, a: Access, b: Access) -> bool:
        if a.engine or b.engine:
            return max(a.thread.warp, b.thread.warp) < 2 and max(a.thread.lane, b.thread.lane) < 2
        meetings = self.skeleton.footprints.meetings(a.step.index, b.step.index)
        return any((a.thread, b.thread) == self.skeleton.pair(meeting) for meeting in meetings)

    def first(self, start: int, then: int, step: int, residue: int, *, tie: bool = False) -> int:
        """Return the least distance, of that residue, at which `then` comes after `start`."""
        ahead = self.times[start] - self.times[then] + (0 if tie else 1)
        least = -(-ahead // FAR)
        return least + (residue - least) % step

    def _pair(self, a: Access, b: Access, *, tie: bool) -> Iterator[Claim]:
        """Claim that a ends before the first b after it starts."""
        assert a.place.buf is not None, "accesses have a slot"
        assert b.place.buf is not None, "accesses have a slot"
        turn = a.place.buf.modulus
        away = self.first(a.start, b.start, turn, a.place.buf.shift - b.place.buf.shift, tie=tie)
        kind = HAZARDS[a.writes or not b.writes, b.writes]
        says = f"nothing orders it after `{a.step.where}`"
        fences = (b.engine and not a.engine) and (a.writes or self.policy == "strict")
        while True:
            when = both([a.place.runs(-away), b.place.runs(0)])
            yield Claim(kind, b.step, says, when, (a.end, -away), b.start)
            if fences:
                yield self._fenced(a, b, away, when)
            if a.place.low + away >= b.place.low:
                return
            away += turn

    def _fenced(self, a: Access, b: Access, away: int, when: str) -> Claim:
        """Claim that a proxy fence stands between a generic access and the copy after it."""
        found: list[tuple[int, At, str]] = []
        for _, place, thread, node in self.skeleton.fences:
            after = self.first(a.start, node, 1, 0)
            before = -self.first(node, b.start, 1, 0)
            for offset in {after - away, before}:
                at = (node, offset)
                rank = 0 if thread == a.thread else 1 if thread == b.thread else 2
                found.append((rank, at, place.runs(offset)))
        between = tuple((at, runs) for _, at, runs in sorted(found))
        says = f"no fence_async_proxy stands between it and `{a.step.where}`"
        first, then = (a.end, -away), b.start
        return Claim("proxy", b.step, says, when, first, then, None, between or (((-1, 0), ""),))

    # --- existence ------------------------------------------------------------------------------

    def _turns(self) -> Iterator[Claim]:
        """Claim that what touches a slot did so one turn of the ring before, if in the loop."""
        for a in self.skeleton.accesses:
            assert a.place.buf is not None, "accesses have a slot"
            turn = a.place.buf.modulus
            again = Bound(1, 0, -turn - a.place.low).text()
            when = both([a.place.runs(0), again, f"(not {a.place.runs(-turn)})"])
            says = f"it runs where it did not run {turn} iterations before"
            yield Claim("structure", a.step, says, when)

    def _written(self) -> Iterator[Claim]:
        """Every read of a slot follows a write of it."""
        for b in self.skeleton.accesses:
            if b.writes:
                continue
            writers: list[str] = []
            for a in self.skeleton.accesses:
                if a.writes and a.buffer == b.buffer:
                    assert a.place.buf is not None, "accesses have a slot"
                    assert b.place.buf is not None, "accesses have a slot"
                    residue = a.place.buf.shift - b.place.buf.shift
                    turn, tie = a.place.buf.modulus, a.step.index < b.step.index
                    away = self.first(a.start, b.start, turn, residue, tie=tie)
                    writers.append(a.place.runs(-away))
            when = both([b.place.runs(0), f"(not {either(writers)})"])
            yield Claim("RAW", b.step, f"nothing has written {b.buffer.name}", when)

    def _ends(self) -> Iterator[Claim]:
        """Every copy in flight is waited for before the kernel ends."""
        for phase in self.skeleton.phases.values():
            for step, place, _, _ in phase.copies:
                seen = [w.runs(_shift(place) - _shift(w)) for _, w, _, _ in phase.waits]
                when = both([place.runs(0), f"(not {either(seen)})"])
                yield Claim("exit", step, "is still in flight when the CTA exits", when)
        for group in self.skeleton.groups:
            many = self.skeleton.commits[group.thread]
            covered: list[str] = []
            for step, place, thread, _, commits in self.skeleton.awaits:
                assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
                if thread == group.thread and many:
                    back = self.skeleton.behind(group, commits - step.stmt.keep)
                    covered.append(place.runs(max(0, -back)))
            covered += self._after(group.thread, group.commits, group.place)
            when = both([group.place.runs(0), f"(not {either(covered)})"])
            yield Claim("drain", group.step, "is still in flight when the CTA exits", when)

    def _after(self, thread: Thread, commits: int, place: Place) -> Iterator[str]:
        """Yield which stores the awaits after the loop cover."""
        many = self.skeleton.commits[thread]
        more = 0
        for step in self.skeleton.trace.programs[thread.agent].after:
            if step.guard is not None:
                continue
            match step.stmt:
                case kir.AsyncCommit():
                    more += 1
                case kir.AsyncAwait(_, keep) if many:
                    last = (more - keep - commits - 1) // many
                    yield Bound(-1, 1, place.stop + last).text()
                case kir.AsyncAwait(_, keep) if more > keep:
                    yield "true"
                case _:
                    pass


def _shift(place: Place) -> int:
    assert place.bar is not None, "asked of steps on barriers"
    return place.bar.shift


def _real(offset: int) -> str:
    """Return that phase `k + offset` is none before the first."""
    return Bound(1, 0, offset).text()
