"""Shared memory in the prover's order: every two accesses that conflict are ordered.

One record per slot of a buffer holds the events that read and wrote it, by proxy.  A new access
must follow every earlier one it conflicts with; as the followed execution is one of all, an access
that comes first in it cannot be required to come second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuser import kernel_ir as kir
from oracles.footprint import Footprints, Meeting
from oracles.trace import Step

if TYPE_CHECKING:
    from oracles.order import Order


@dataclass(slots=True)
class Record:
    """What happened to one slot: bit sets of the events that end an access of it."""

    buffer: kir.Buffer
    slot: int
    engine_reads: int = 0
    engine_writes: int = 0
    generic_reads: int = 0
    generic_writes: int = 0
    by_step: dict[tuple[int, int], int] = field(default_factory=dict)
    judged: int = 0
    valid: bool = False


_HAZARD = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}
"""Name of the hazard by (earlier writes, later writes)."""


class Memory:
    """The shared memory of one CTA."""

    def __init__(self, order: Order, footprints: Footprints) -> None:
        self.order = order
        self.footprints = footprints
        self.told: set[tuple[str, int, int]] = set()
        self.records = {
            (buffer.name, slot): Record(buffer, slot)
            for buffer in order.trace.kernel.buffers
            for slot in range(buffer.slots)
        }
        self.overlaps = {
            key: [self.records[other] for other in others]
            for key, others in footprints.overlaps.items()
        }

    def generic(self, agent: int, before: int, step: Step, k: int) -> None:
        """Judge an ordinary load or store of a slot by the threads of `agent`."""
        writes = isinstance(step.stmt, kir.Store)
        key = self._slot(step, k)
        if key is None or (step.index, agent) not in self.footprints.touching:
            return
        mine = self.records[key]
        if not writes and not mine.valid:
            self._unwritten(step, k, mine)
        for record in self.overlaps[key]:
            self.order.checked += 1
            engines = record.engine_writes | (record.engine_reads if writes else 0)
            if engines & ~before:
                self._race(step, k, engines & ~before, record, agent, writes=writes)
            for (other, who), events in record.by_step.items():
                other_step = self.order.trace.steps[other]
                if writes or isinstance(other_step.stmt, kir.Store):
                    for meeting in self.footprints.meetings(other, step.index):
                        if meeting.first == who and meeting.second == agent:
                            self._met(step, k, events, meeting, before, record, agent)
        event = self.order.segment(agent, step, k)
        bit = 1 << event
        mine.by_step[step.index, agent] = mine.by_step.get((step.index, agent), 0) | bit
        if writes:
            mine.generic_writes |= bit
            self._written(mine, key)
        else:
            mine.generic_reads |= bit
        meetings = self.footprints.meetings(step.index, step.index) if writes else frozenset()
        for meeting in meetings:
            if meeting.second == agent:
                self._tell("WAW", step, step, k, "threads of one store share bytes")

    def engine(self, agent: int, start: int, end: int, step: Step, k: int, *, writes: bool) -> None:
        """Judge a bulk copy that uses a slot from event `start` to event `end`."""
        key = self._slot(step, k)
        if key is None:
            return
        mine = self.records[key]
        order = self.order
        before, fenced = order.before[start], order.fenced[start]
        if order.trace.agents[agent].count > 1:
            says = f"is issued by {order.trace.agents[agent].count} threads at once"
            order.wrong("WAW", step, k, says)
        if not writes and not mine.valid:
            self._unwritten(step, k, mine)
        for record in self.overlaps[key]:
            order.checked += 1
            wrote = record.engine_writes | record.generic_writes
            used = wrote | ((record.engine_reads | record.generic_reads) if writes else 0)
            if used & ~before:
                self._race(step, k, used & ~before, record, agent, writes=writes)
            self._proxy(step, k, record, before, fenced, writes=writes)
        if writes:
            mine.engine_writes |= 1 << end
            self._written(mine, key)
        else:
            mine.engine_reads |= 1 << end

    def _slot(self, step: Step, k: int) -> tuple[str, int] | None:
        slot = step.slot(max(k, 0), self.order.trips)
        match step.stmt:
            case kir.TmaLoad(dst):
                buffer = dst.buffer
            case kir.TmaStore(_, src):
                buffer = src.buffer
            case kir.Load(_, kir.Slot(held)) | kir.Store(kir.Slot(held)):
                buffer = held
            case _:
                return None
        self.order.checked += 1
        if not 0 <= slot < buffer.slots:
            says = f"{buffer.name}[{slot}] is outside its {buffer.slots} slots"
            self.order.wrong("bounds", step, k, says)
            return None
        return buffer.name, slot

    def _written(self, mine: Record, key: tuple[str, int]) -> None:
        for record in self.overlaps[key]:
            record.valid = record is mine

    def _unwritten(self, step: Step, k: int, record: Record) -> None:
        name = f"{record.buffer.name}[{record.slot}]"
        if (record.engine_writes | record.generic_writes) == 0:
            says = f"nothing has written {name}"
        else:
            says = f"the bytes of {name} have been written as another buffer's"
        self.order.wrong("RAW", step, k, says)

    def _met(
        self,
        step: Step,
        k: int,
        events: int,
        meeting: Meeting,
        before: int,
        record: Record,
        agent: int,
    ) -> None:
        """Check that accesses by different threads are ordered."""
        for event in _bits(events):
            if not self._ordered(event, meeting, before):
                writes = isinstance(step.stmt, kir.Store)
                self._race(step, k, 1 << event, record, agent, writes=writes)
                return

    def _ordered(self, event: int, meeting: Meeting, before: int) -> bool:
        """Whether `event` of one thread precedes what follows `before` in another.

        Two threads that one representative stands for share only the events that are not their
        own: the path must leave the one and enter the other.
        """
        if not before >> event & 1:
            return False
        order = self.order
        first, second = (order.trace.agents[i] for i in (meeting.first, meeting.second))
        alike = (first.base, first.first_warp) == (second.base, second.first_warp)
        if not alike or (meeting.same_warp and first != second):
            return True
        own = order.private[first.index]
        if not meeting.same_warp:
            for agent in order.trace.agents:
                if (agent.base, agent.first_warp) == (first.base, first.first_warp):
                    own |= order.private[agent.index]
            own |= order.warp_private.get(2 * first.base + (0 if first.first_warp else 1), 0)
        shared = (before & ~own) >> event
        return any(order.before[event + z] >> event & 1 for z in _bits(shared))

    def _proxy(
        self,
        step: Step,
        k: int,
        record: Record,
        before: int,
        fenced: int,
        *,
        writes: bool,
    ) -> None:
        """Check that generic accesses reach the engine through a proxy fence."""
        wrote = record.generic_writes & before
        self.order.checked += bool(wrote)
        if wrote & ~fenced:
            says = "no fence_async_proxy orders the generic write before the copy"
            self._after(record, wrote & ~fenced, "proxy", step, k, says)
        read = record.generic_reads & before & ~fenced if writes else 0
        if read:
            says = "no fence_async_proxy orders the generic read before the refill"
            self._after(record, read, "proxy-read", step, k, says)
        fresh = wrote & fenced & ~record.judged
        record.judged |= fresh
        for event in _bits(fresh):
            mine = self.order.events[event]
            store = self._culprit(record, event, writes=True)
            if ("late", store.index, step.index) in self.told:
                continue
            if not any(
                who == mine.agent and self.order.before[fence] >> event & 1 and before >> fence & 1
                for fence, who in reversed(self.order.fences)
            ):
                self.told.add(("late", store.index, step.index))
                says = "the fence_async_proxy stands with the reader, not with the writer"
                self.order.wrong("proxy-late", step, k, says, earlier=store, severity="warning")

    def _after(self, record: Record, events: int, kind: str, step: Step, k: int, says: str) -> None:
        event = events.bit_length() - 1
        self._tell(kind, step, self._culprit(record, event, writes=kind == "proxy"), k, says)

    def _race(
        self, step: Step, k: int, events: int, record: Record, agent: int, *, writes: bool
    ) -> None:
        """Report that one of `events` is not ordered before an access of `step`."""
        wrote = record.engine_writes | record.generic_writes
        event = (events & wrote or events).bit_length() - 1
        stored = bool(wrote >> event & 1)
        earlier = self._culprit(record, event, writes=stored)
        kind = _HAZARD[stored or not writes, writes]
        about = self.order.events[event]
        agents = self.order.trace.agents
        who = f" by {agents[about.agent]}" if about.agent >= 0 else ""
        says = f"nothing orders it{who} (k={about.iteration}) before this by {agents[agent]}"
        self._tell(kind, step, earlier, k, says)

    def _culprit(self, record: Record, event: int, *, writes: bool) -> Step:
        """Return the step behind an event; generic accesses may share one."""
        steps = self.order.trace.steps
        for (index, _), events in record.by_step.items():
            if events >> event & 1 and isinstance(steps[index].stmt, kir.Store) == writes:
                return steps[index]
        step = self.order.events[event].step
        assert step is not None, "accesses have steps"
        return step

    def _tell(self, kind: str, step: Step, earlier: Step, k: int, says: str) -> None:
        if (kind, earlier.index, step.index) not in self.told:
            self.told.add((kind, earlier.index, step.index))
            severity = "warning" if kind == "proxy-read" else "error"
            self.order.wrong(kind, step, k, says, earlier=earlier, severity=severity)


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
