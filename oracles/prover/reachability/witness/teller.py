"""What a reader is told of a refuted kernel: an execution, lane by lane, and what it lacks.

Of the log are shown the two events in conflict, what filled the memory before, the handshakes by
which the later one depends on the earlier, and the syncs of its kind that do too little.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.state import Where
from oracles.prover.reachability.witness.execution import Event, Log, refuting
from oracles.prover.reachability.witness.missing import Conflict, lacking, nearest
from oracles.prover.reachability.witness.words import spot, words
from oracles.witness import Mark, Row, Witness

BESIDE = 10
"""Events at a barrier that are shown, where the barrier itself is what goes wrong."""
_AT_BARRIER = frozenset({"parity", "arrivals", "bytes", "deadlock", "collective"})
"""Kinds of findings that are about a barrier."""
_RACES = frozenset({"RAW", "WAR", "WAW", "drain", "exit", "proxy"})
"""Kinds of findings that are about what an engine does with memory or registers."""
_DOES = ("reading", "writing")


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
    wrong = log.findings.errors[0]
    conflict = Conflict(log, wrong)
    rows, says = _Rows(conflict).rows(), wrong.says
    if conflict.stuck:
        says = "; ".join(conflict.waiting())
    elif wrong.kind == "exit":
        rows.append(Row("CTA", 0, "exits", "", Mark.SECOND))
    if not rows:
        rows.append(Row("all threads", wrong.later.line, wrong.later.where, "", Mark.SECOND))
    found = dict.fromkeys(row.lane for row in rows)
    lanes = sorted(found, key=lambda name: "engine" in name or name.startswith("tensor core"))
    near = lacking(conflict) if log.stuck else nearest(conflict)
    kernel = log.world.kernel.name
    return Witness(kernel, wrong.kind, log.trips(), says, near, tuple(lanes), tuple(rows))


class _Rows:
    """The rows of a conflict, up to the later event and what is still in flight then."""

    def __init__(self, conflict: Conflict) -> None:
        self.c, self.log, self.world = conflict, conflict.log, conflict.world
        self.first, self.second, self.kind = conflict.first, conflict.second, conflict.wrong.kind
        self.ends = [event for event in (self.first, self.second) if event is not None]
        self.waited = {sync for event in conflict.log.stuck for sync in event.syncs}

    def rows(self) -> list[Row]:
        """Return the rows."""
        rows: list[Row] = []
        shown = self._shown()
        waits = {point for event in shown for point in event.waits}
        for event in shown:
            mark = Mark.SECOND if event is self.second else Mark.NONE
            mark = Mark.FIRST if event is self.first else mark
            lane, line = self.c.lane(event.agent), event.site.line
            races = words(event.stmt).engine and mark is not Mark.NONE and self.kind in _RACES
            done, note = self._busy(event) if races else "", ""
            asked = mark is not Mark.NONE or event.arrives & waits or event.syncs & self.waited
            if isinstance(event.stmt, kir.TmaLoad) and not done and asked:
                done, note = f"{self._places(event, writes=True)} written", event.state
            state = "" if isinstance(event.stmt, kir.TmaLoad) else self._state(event)
            rows.append(Row(lane, line, event.text, state, Mark.NONE if done else mark))
            if done:
                rows.append(Row(self._engine(event), line, done, note, mark))
        one = self.first
        if one is not None and self.kind in _RACES - {"exit", "proxy"} and self.c.unfinished:
            says = ", ".join(filter(None, (self._busy(one), one.when)))
            rows.append(Row(self._engine(one), one.site.line, f"... still {says}"))
        for event in self.c.stuck:
            mark = Mark.SECOND if event is self.c.stuck[0] else Mark.NONE
            text = f"{event.text}, forever"
            rows.append(Row(self.c.lane(event.agent), event.site.line, text, event.state, mark))
        return rows

    def _shown(self) -> list[Event]:
        """Return the events to show, in order; of threads that do the same in a lane, one."""
        keep = {*self.c.way, *(event.number for event in self.ends)}
        if self.first is not None:
            keep.update(self._filled(self.first))
            if self.second is not None:
                keep.update(self._too_weak(self.first, self.second))
        if self.kind in _AT_BARRIER:
            syncs = {sync for event in self.ends for sync in event.syncs} | self.waited
            keep.update([e.number for e in self.log.events if e.syncs & syncs][-BESIDE:])
        both = self.first is not None or self.kind not in _AT_BARRIER
        if both and self.second is not None and not self.c.way:
            keep.update(self._nearby(self.second))
        # Who waits forever at a barrier of threads has arrived there: that is one row.
        for event in self.log.stuck:
            last = self.log.events[event.previous] if event.previous >= 0 else event
            if (last.site.index, last.k) == (event.site.index, event.k):
                keep.discard(last.number)
        same: dict[object, Event] = {self._same(event): event for event in self.ends}
        for n in sorted(keep):
            same.setdefault(self._same(self.log.events[n]), self.log.events[n])
        return sorted(same.values(), key=self._over)

    def _same(self, event: Event) -> object:
        """Return what threads of a lane that do the same have in common."""
        site, agent = event.site.index, event.agent
        before = self.log.events[: event.number]
        nth = sum(other.site.index == site and other.agent == agent for other in before)
        return self.c.lane(agent), site, nth

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
        found: dict[type, list[int]] = {}
        for event in self.c.before(two):
            match event.stmt:
                case kir.FenceAsyncProxy():
                    weak = self.kind == "proxy" and event.agent in (one.agent, two.agent)
                case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
                    weak = event.agent == one.agent and kind is words(one.stmt).group
                case _:
                    weak = False
            if weak:
                found.setdefault(type(event.stmt), []).append(event.number)
        # Later commits are of other groups than that of the event.
        commits = found.pop(kir.AsyncCommit, [])[:1]
        return commits + [n for numbers in found.values() for n in numbers[-2:]]

    def _nearby(self, two: Event) -> list[int]:
        """Return the last syncs before the later event, and the first after the earlier."""
        out: list[int] = []
        start = self.first.number if self.first is not None else -1
        for event in reversed(self.log.events[: two.number + 1]):
            if event.agent != two.agent:
                continue
            if event.k < 0 <= two.k:
                break
            points = {p for p in event.waits if p.sync[0] != "barrier" or event.number > start}
            points = {point for point in points if not point.of_warp}
            givers = [self.log.events[n] for point in points for n in self.log.arriving(point)]
            last = {self.c.team(e.agent): e.number for e in givers if e.agent != two.agent}
            if last and len(out) < 4:
                out += [event.number, *last.values()]
        later = [e for e in self.c.before(two)[1:] if self.first and e.agent == self.first.agent]
        return out + [e.number for e in later if e.arrives and e.syncs][:1]

    def _engine(self, event: Event) -> str:
        many = self.world.ctas > 1
        return words(event.stmt).engine + (f" of CTA {self.c.cta(event)}" if many else "")

    def _busy(self, event: Event) -> str:
        """Say what an engine is doing to memory; of the two events, to what they share."""
        if self.c.registers and event is self.first:
            return f"using {self.c.registers}"
        parts = {what: self._places(event, writes=what == "writing") for what in _DOES}
        return " and ".join(f"{what} {where}" for what, where in parts.items() if where)

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
            if not one.isdisjoint(self.world.layout.overlaps[where])
            and not two.isdisjoint(self.world.layout.overlaps[where])
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
