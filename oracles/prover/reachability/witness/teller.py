"""What a reader is told of a refuted kernel: an execution, lane by lane, and what it lacks.

Of the log are shown the two events in conflict, what filled the memory before, the handshakes by
which the later one depends on the earlier, and the syncs of its kind that do too little.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.prover.reachability.grid.semaphores import meeting
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.state import Agent, Where
from oracles.prover.reachability.witness.execution import Event, Log, refuting
from oracles.prover.reachability.witness.missing import Conflict, nearest
from oracles.prover.reachability.witness.words import concrete, engine, group, iteration, spot
from oracles.witness import Mark, Row, Witness

BESIDE = 10
"""Events at a barrier that are shown, where the barrier itself is what goes wrong."""
_AT_BARRIER = frozenset({"parity", "arrivals", "bytes", "deadlock", "collective"})
"""Kinds of findings that are about a barrier."""
_RACES = frozenset({"RAW", "WAR", "WAW", "drain", "exit", "proxy"})
"""Kinds of findings that are about what an engine does with memory or registers."""


def witness(kernel: kir.Kernel, *, policy: str) -> Witness | None:
    """Return the execution at the smallest trip counts that goes wrong, None if none is found.

    Parameters
    ----------
    kernel : Kernel
        Any; of one that is proved there is none.
    policy : str
        `default` or `strict`.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    log = refuting(kernel, policy=policy)
    return None if log is None else tell(log)


def tell(log: Log) -> Witness:
    """Return the witness of an execution that goes wrong."""
    wrong = next(v for v in log.world.violations.values() if v.severity == "error")
    conflict = Conflict(log, wrong)
    says = wrong.says
    rows = _Rows(conflict).told()
    if wrong.event >= 0 and conflict.first is None:
        line = wrong.earlier.line if wrong.earlier is not None else 0
        rows.insert(0, Row("CTA of the turn before", line, "uses the tensor", "", Mark.FIRST))
    if stuck := _stuck(conflict) if log.stuck else []:
        says = "; ".join(map(str, stuck))
        rows += [one.row(Mark.NONE if number else Mark.SECOND) for number, one in enumerate(stuck)]
    elif wrong.kind == "exit":
        rows.append(Row("CTA", 0, "exits", "", Mark.SECOND))
    if not rows:
        rows.append(Row("all threads", wrong.later.line, wrong.later.where, "", Mark.SECOND))
    found = dict.fromkeys(row.lane for row in rows)
    lanes = sorted(found, key=lambda name: "engine" in name or name.startswith("tensor core"))
    best = min(stuck, key=lambda one: one.rank, default=None)
    near = nearest(conflict) if best is None else best.source
    kernel = log.world.kernel.name
    return Witness(kernel, wrong.kind, log.trips(), says, near, tuple(lanes), tuple(rows))


class _Rows:
    """The rows of a conflict, up to the later event and what is still in flight then."""

    def __init__(self, conflict: Conflict) -> None:
        self.c, self.log, self.world = conflict, conflict.log, conflict.world
        self.first, self.second, self.kind = conflict.first, conflict.second, conflict.wrong.kind
        self.ends = [event for event in (self.first, self.second) if event is not None]
        self.waited = {
            sync for a in self.log.last.agents if self.log.stuck and (sync := _sync(self.log, a))
        }

    def told(self) -> list[Row]:
        """Return the rows."""
        rows: list[Row] = []
        shown = self._shown()
        waits = {point for event in shown for point in event.waits}
        for event in shown:
            mark = Mark.NONE if event not in self.ends else Mark.SECOND
            mark = Mark.FIRST if event is self.first else mark
            lane, line = self.c.lane(event.agent), event.site.line
            when = iteration(self.world, event.site, event.k)
            text = " ".join(filter(None, (concrete(event.stmt, event.values), when)))
            races = engine(event.stmt) and mark is not Mark.NONE and self.kind in _RACES
            busy = self._busy(event) if races else ""
            load = isinstance(event.stmt, kir.TmaLoad)
            lands = load and (
                mark is not Mark.NONE or event.arrives & waits or event.syncs & self.waited
            )
            split = bool(busy or lands)
            note = "" if load else self._state(event)
            rows.append(Row(lane, line, text, note, Mark.NONE if split else mark))
            if split:
                done = busy or f"{self._places(event, writes=True)} written"
                note = "" if busy else event.state
                rows.append(Row(self._engine(event), line, done, note, mark))
        one = self.first
        if one is not None and self.kind in _RACES - {"exit", "proxy"}:
            if self.c.registers or any(touch.ends_later for touch in one.touches):
                when = iteration(self.world, one.site, one.k)
                says = ", ".join(filter(None, (self._busy(one), when)))
                rows.append(Row(self._engine(one), one.site.line, f"... still {says}"))
        return rows

    def _shown(self) -> list[Event]:
        """Return the events to show, in order; of threads that do the same in a lane, one."""
        keep = {*self.c.way, *(event.number for event in self.ends)}
        if self.first is not None:
            keep.update(self._filled(self.first))
            if self.second is not None:
                keep.update(self._too_weak(self.first, self.second))
        if self.kind in _AT_BARRIER:
            keep.update(self._at_barrier())
        elif self.second is not None and not self.c.way:
            keep.update(self._nearby(self.second))
        same: dict[object, Event] = {self._same(event): event for event in self.ends}
        for n in sorted(keep):
            same.setdefault(self._same(self.log.events[n]), self.log.events[n])
        return sorted(same.values(), key=self._over)

    def _same(self, event: Event) -> object:
        """Return what threads of a lane that do the same have in common."""
        site, agent = event.site.index, event.agent
        before = self.log.events[: event.number]
        turn = sum(other.site.index == site and other.agent == agent for other in before)
        return self.c.lane(agent), site, turn

    def _over(self, event: Event) -> tuple[int, bool, int]:
        """Return when an event is over: of threads that meet, when the last one has come."""
        number, end = event.number, self.second.number if self.second is not None else 0
        met = [p for p in event.waits if p in event.arrives or p.sync[0] == "semaphore"]
        joined = [n for p in met for n in self.log.arriving(p) if n <= max(end, number)]
        last = max([number, *joined])
        return last, number < last, number

    def _filled(self, one: Event) -> list[int]:
        """Return what wrote the memory that the earlier event reads, and the way from there."""
        shared = self._shared() if self.second is not None else None
        read = {t.where for t in one.touches if not t.writes and (not shared or t.where in shared)}
        for event in reversed(self.log.events[: one.number]):
            if any(touch.writes and touch.where in read for touch in event.touches):
                return self.log.path(event.number, one.number) or [event.number]
        return []

    def _too_weak(self, one: Event, two: Event) -> list[int]:
        """Return the syncs between two events that are of the right kind, but not enough."""
        between = self.c.before(two)
        mine = [
            e.number
            for e in between
            if isinstance(e.stmt, kir.FenceAsyncProxy)
            and e.agent in (one.agent, two.agent)
            and self.kind == "proxy"
        ][-2:]
        for kind, kept in (kir.AsyncCommit, slice(1)), (kir.AsyncAwait, slice(-2, None)):
            of = [
                e.number
                for e in between
                if isinstance(e.stmt, kind)
                and e.agent == one.agent
                and e.stmt.kind is group(one.stmt)
            ]
            mine += of[kept]
        return mine

    def _nearby(self, two: Event) -> list[int]:
        """Return the last syncs before the later event, and the first after the earlier."""
        out: list[int] = []
        start = self.first.number if self.first is not None else -1
        for event in reversed(self.log.events[: two.number + 1]):
            if event.agent != two.agent:
                continue
            if event.k < 0 <= two.k:
                break
            points = [
                p
                for p in event.waits
                if not p.of_warp and (p.sync[0] != "barrier" or event.number > start)
            ]
            givers = [self.log.events[n] for p in points for n in self.log.arriving(p)]
            last = {self.c.team(e): e.number for e in givers if e.agent != two.agent}
            if last and len(out) < 4:
                out += [event.number, *last.values()]
        later = [e for e in self.c.before(two)[1:] if self.first and e.agent == self.first.agent]
        return out + [e.number for e in later if e.arrives and e.syncs][:1]

    def _at_barrier(self) -> list[int]:
        """Return the last events at the barrier slots that the conflict is about."""
        syncs = {sync for event in self.ends for sync in event.syncs} | self.waited
        if not syncs:
            return self._nearby(self.second) if self.second is not None else []
        return [event.number for event in self.log.events if event.syncs & syncs][-BESIDE:]

    def _engine(self, event: Event) -> str:
        many = self.world.ctas > 1
        return engine(event.stmt) + (f" of CTA {self.c.team(event)[0]}" if many else "")

    def _busy(self, event: Event) -> str:
        """Say what an engine is doing to memory; of the two events, to what they share."""
        if self.c.registers and event is self.first:
            return f"using {self.c.registers}"
        parts = [
            ("reading", self._places(event, writes=False)),
            ("writing", self._places(event, writes=True)),
        ]
        return " and ".join(f"{what} {where}" for what, where in parts if where)

    def _places(self, event: Event, *, writes: bool) -> str:
        found = [touch.where for touch in event.touches if touch.writes == writes]
        if len(self.ends) == 2 and event in self.ends:
            both = self._shared()
            found = [where for where in found if where in both]
        return ", ".join(dict.fromkeys(spot(self.world, where) for where in found))

    def _shared(self) -> set[Where]:
        """Return the places that both events are about."""
        one, two = ({touch.where for touch in event.touches} for event in self.ends)
        return {
            where for where in one | two
            if not one.isdisjoint(self.world.overlaps[where])
            and not two.isdisjoint(self.world.overlaps[where])
        } or one | two  # fmt: skip

    def _state(self, event: Event) -> str:
        """Return the state of the barrier, once all in the lane have done the same."""
        end = self.second.number if self.second is not None else 0
        alike = [
            e.state
            for e in self.log.events[event.number : end if end > event.number else None]
            if e.site.index == event.site.index and self._same(e) == self._same(event)
        ]
        return (alike or [event.state])[-1]


def _waits(log: Log, a: Agent) -> Do | None:
    """Return the statement at which threads wait."""
    program = log.world.code.programs[a.kind.index]
    i = None if a.done or a.at >= len(program) else program[a.at]
    return i if isinstance(i, Do) else None


def _sync(log: Log, a: Agent) -> tuple[object, ...] | None:
    """Return the slot of an mbarrier, or the barrier, that threads wait for."""
    do = _waits(log, a)
    match do.site.stmt if do is not None else None:
        case kir.MBarrierWaitParity(barrier) if do is not None:
            return a.kind.cta, barrier.name, do.values["bar"](a.env)
        case kir.BlockSync(number):
            return "barrier", a.kind.cta, number
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Stuck:
    """Threads that wait for ever: at what, what that lacks, and the sync that could give it.

    Who waits for an mbarrier comes first (`rank`), best where nobody arrives on it: who waits at a
    barrier of threads waits for those.
    """

    lane: str
    line: int
    does: str
    waits_for: str
    lacks: str
    rank: int
    source: str

    def __str__(self) -> str:
        return f"{self.lane} waits for {self.waits_for} (line {self.line}): {self.lacks}"

    def row(self, mark: Mark) -> Row:
        """Return the last row of these threads."""
        return Row(self.lane, self.line, f"{self.does}, for ever", self.lacks, mark)


def _stuck(c: Conflict) -> list[_Stuck]:
    """Return who waits for what; of several kinds of threads in a lane one."""
    found: dict[str, _Stuck] = {}
    for a in c.log.last.agents:
        do = _waits(c.log, a)
        if do is not None:
            one = _blocked(c, a, do)
            found.setdefault(str(one), one)
    least = min((max(one.rank, BARRIER - 1) for one in found.values()), default=0)
    return [one for one in found.values() if max(one.rank, BARRIER - 1) == least]


BARRIER = 3
"""Rank of those who wait at a barrier of threads."""


def _blocked(c: Conflict, a: Agent, do: Do) -> _Stuck:
    state, stmt, line, cta = c.log.last, do.site.stmt, do.site.line, a.kind.cta
    values = {name: value(a.env) for name, value in do.values.items()}
    text = name = concrete(stmt, values)
    rank, source, lacks = BARRIER + 1, "", "nobody lets it go on"
    match stmt:
        case kir.MBarrierWaitParity(barrier):
            name = f"{barrier.name}[{values['bar']}]"
            phase = state.phases.get((cta, barrier.name, values["bar"]))
            rank, source = _source(c, barrier)
            if phase is None:
                lacks = "no phase has begun"
            elif phase.nbytes < 0:
                lacks = f"{-phase.nbytes} bytes more come than phase {phase.count} expects"
            else:
                parts = [f"{phase.pending} of {phase.arrivals} arrivals"] if phase.pending else []
                parts += [f"{phase.nbytes} bytes"] if phase.nbytes else []
                lacks = f"{' and '.join(parts)} of phase {phase.count} are missing"
                lacks += "" if rank else f", and nothing arrives on {barrier.name}"
                if rank and 0 < phase.pending < phase.arrivals:
                    rank, source = 1, f"{source} are fewer than its {phase.arrivals}"
        case kir.BlockSync(number, threads):
            turn = state.turns.get((cta, number))
            lacks = f"{turn.count if turn else 0} of {threads} threads have come"
            rank, source = BARRIER, f"line {line}: {text}: {lacks}"
        case kir.GridSync(semaphore):
            turn = state.turns.get(meeting(c.world.kernel, semaphore))
            name = f"the CTAs of {semaphore.name}"
            lacks = (
                f"{turn.count if turn else 0} of {turn.threads if turn else 0} threads have come"
            )
        case kir.ElectLast(semaphore):
            name, lacks = f"{semaphore.name}, as its last CTA", "another one never comes"
        case kir.BlockSerializeWait(semaphore):
            name, lacks = f"turn {values['turn']} of {semaphore.name}", "nobody gives it"
        case _:
            pass
    when = iteration(c.world, do.site, a.env[a.loops[-1][2]] if a.loops else -1)
    does, what = (" ".join(filter(None, (part, when))) for part in (text, name))
    return _Stuck(c.lane(a.kind.index), line, does, what, lacks, rank, source)


def _source(c: Conflict, barrier: kir.MBarrier) -> tuple[int, str]:
    """Return a rank, and who arrives on an mbarrier and where."""
    arrives = (kir.MBarrierArrive, kir.MBarrierArriveExpectTx, kir.CpAsyncMBarrierArrive)
    there = [
        (i.site.line, c.lane(agent))
        for agent in range(len(c.world.kinds))
        for i in c.program(agent)
        if isinstance(i.site.stmt, arrives) and i.site.stmt.barrier == barrier
    ]
    if not there:
        return 0, f"none; nothing arrives on {barrier.name}"
    lines = ", ".join(map(str, sorted({line for line, _ in there})))
    if c.wrong.kind == "bytes":
        return 1, f"line {lines}: the bytes that {barrier.name} expects"
    who = " and ".join(dict.fromkeys(lane for _, lane in there))
    return 2, f"line {lines}: the arrivals of {who} on {barrier.name}"
