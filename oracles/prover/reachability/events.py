"""The numbers of events: one for each place, given out once."""

from __future__ import annotations

from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.canonical.rotation import Place, Rotation
from oracles.prover.reachability.state import FACTS, Agent, State, Where, bit, knows

COPIES = 64
"""Operations of one place that may be distinguished at a time; more is not followed."""


class Events:
    """The numbers of events by their places; those of all slots of a ring come together.

    `accesses` and `inits` are the facts about memory accesses, and that barriers began to live.
    """

    def __init__(self, rotation: Rotation) -> None:
        self.accesses = 0
        self.inits = 0
        self.numbers: dict[Place, int] = {}
        self._rotation = rotation

    def number(self, place: Place) -> int:
        """Return the number of the event of a place."""
        number = self.numbers.get(place)
        if number is not None:
            return number
        for one in self._rotation.siblings(place):
            number = self.numbers[one] = len(self.numbers)
            if place[0] in ("access", "engine"):
                self.accesses |= 0b1111 << FACTS * number
            elif place[0] == "init":
                self.inits |= bit(number)
        return self.numbers[place]

    def engine(self, state: State, a: Agent, where: Where, site: int) -> int:
        """Return the number of an operation in flight, the first that is not in use."""
        busy = {entry.event for entry in state.memory.get(where, ())} | {*a.in_flight()}
        for copy in range(COPIES):
            number = self.number(("engine", where, site, a.kind.index, copy))
            if number in busy:
                continue
            cta, _ = state.flying.get(number, (-1, 0))
            if cta < 0 or knows(state.known_in(cta), number):
                return number
        raise UnsupportedError(f"more than {COPIES} copies in flight of one statement")
