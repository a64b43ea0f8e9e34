"""Tensor maps that a kernel writes: what they say, and whether a copy finds it.

A fence orders nothing by itself: who releases must know of the write, who acquires of the release,
and who copies of the acquire.  Until then an engine may go by what a map said before.

Source: PTX ISA, "fence.proxy.tensormap", "tensormap.replace", "Asynchronous copy".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.simulator.machine import Agent, Flight, Violation
from oracles.simulator.memory.access import View
from oracles.simulator.sync.clock import ELSEWHERE, Clock
from oracles.simulator.unroll import Event

ALIGNED = 16
"""Bytes of which the address in a map is a multiple.  Source: cuTensorMapEncodeTiled."""
Moment = tuple[int, int]
"""Component, and its time."""


@dataclass(slots=True)
class Map:
    """One map: what it says (nothing before its first write), who wrote it, who may be reading it.

    `released` and `acquired` are the fences that cover its last write.
    """

    says: tuple[tuple[int, ...], tuple[int, ...]]
    written: Moment
    reads: list[Moment] = field(default_factory=list)
    released: list[Moment] = field(default_factory=list)
    acquired: list[Moment] = field(default_factory=list)


class Maps:
    """The maps of the CTAs that run together."""

    def __init__(self) -> None:
        self._maps: dict[tuple[int, str, int], Map] = {}

    def replace(self, agent: Agent, event: Event, stmt: kir.TensorMapReplace) -> None:
        """Write a map."""
        if agent.mult > 1:
            raise Violation("WAW", f"{agent.mult} threads write one tensor map")
        where = self._where(agent, event, stmt.dst.maps)
        old = self._maps.get(where)
        if old is not None:
            if not _knows(agent.clock, [old.written]):
                raise Violation("WAW", f"nothing orders it after the last write of {_name(where)}")
            if any(not _knows(agent.clock, [read]) for read in old.reads):
                raise Violation("WAR", f"a copy may still go by what {_name(where)} says")
        self._maps[where] = Map((event.begin, event.limit), (agent.by, agent.now))

    def release(self, agent: Agent) -> None:
        """Release what a thread knows of the writes of maps."""
        for one in self._maps.values():
            if _knows(agent.clock, [one.written]):
                one.released.append((agent.by, agent.now))
        agent.tick()

    def acquire(self, agent: Agent, event: Event, maps: kir.TensorMaps) -> None:
        """Acquire what has been released of one map."""
        found = self._maps.get(self._where(agent, event, maps))
        if found is not None and _knows(agent.clock, found.released):
            found.acquired.append((agent.by, agent.now))
        agent.tick()

    def read(self, flight: Flight, through: kir.MapSlot, view: View, done: int) -> None:
        """Let a copy go by a map, which it has read when it is `done` so far."""
        event = flight.event
        where = self._where(flight.issuer, event, through.maps)
        found, name = self._maps.get(where), _name(where)
        if found is None:
            raise Violation("RAW", f"nothing has written {name}")
        if not _knows(flight.start, [found.written]):
            raise Violation("RAW", f"nothing orders the last write of {name} before the copy")
        if not _knows(flight.start, found.acquired):
            missing = "acquire" if _knows(flight.start, found.released) else "release"
            says = f"no tensor_map_{missing} of {name} stands between its last write and the copy"
            raise Violation("proxy", says)
        if found.says != (event.begin, event.limit):
            says = f"{name} is of elements {found.says}, the copy takes it to be of "
            raise Violation("map", f"{says}{(event.begin, event.limit)}")
        for first, end, extent in zip(event.begin, event.limit, view.extents, strict=True):
            if not 0 <= first < end <= extent:
                says = f"a map of elements {first}..{end - 1} along an axis of {extent}"
                raise Violation("bounds", says)
        at = sum(o * s for o, s in zip(event.begin, view.strides, strict=True))
        nbytes = at * view.tensor.dtype.nbytes
        if nbytes % ALIGNED:
            raise Violation("bounds", f"a map begins at byte {nbytes}, no multiple of {ALIGNED}")
        if any(o < first for o, first in zip(event.origin, event.begin, strict=True)):
            raise Violation("map", f"the box at {event.origin} begins before the map")
        found.reads.append((flight.by, flight.base + done))

    def _where(self, agent: Agent, event: Event, maps: kir.TensorMaps) -> tuple[int, str, int]:
        if not 0 <= event.map < maps.slots:
            raise Violation("bounds", f"{maps.name} has {maps.slots} maps, none {event.map}")
        return agent.cta, maps.name, event.map


def _knows(clock: Clock, moments: Iterable[Moment]) -> bool:
    """Whether one of these moments is in a clock, which may be from before the clocks grew."""
    return any(by < clock.shape[1] and clock[ELSEWHERE, by] >= at for by, at in moments)


def _name(where: tuple[int, str, int]) -> str:
    return f"{where[1]}[{where[2]}]"
