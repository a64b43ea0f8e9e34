"""Which synchronising events each thread executed, in its order; for who compares them.

What is no event: loads that poll, whose number is the schedule's, and waits that gave up.  Parts of
one copy or product that follow each other count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
Word = str | int
Event = tuple[Word, ...]
"""What is done, then numbers: ``("mbarrier wait", "cta", -1, 2048, 1)``."""
PARTS = ("wgmma", "tensor load", "tensor store")
"""Events that several instructions make together."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a thread as numbers into `Log.events`, their lines, and what they returned."""

    codes: Ints
    lines: Ints
    results: Ints


class Log:
    """The events of a launch."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._codes: dict[Event, int] = {}
        self._parts: list[tuple[Ints, Ints, int, Ints]] = []

    def add(self, threads: Ints, line: int, words: Event, values: tuple[Ints, ...] = ()) -> None:
        """Let threads have executed an event, whose last numbers each thread has its own of."""
        codes = np.zeros(len(threads), np.int64)
        if values:
            table = np.stack(values).astype(np.int64)
            if (table == table[:, :1]).all():
                codes[:] = self._code((*words, *table[:, 0].tolist()))
            else:
                each = zip(*table.tolist(), strict=True)
                codes[:] = [self._code((*words, *numbers)) for numbers in each]
        else:
            codes[:] = self._code(words)
        self._parts.append((threads, codes, line, np.zeros(len(threads), np.int64)))

    def returned(self, results: Ints) -> None:
        """Add what the latest event returned, for each of its threads."""
        self._parts[-1][3][:] = results

    def _code(self, event: Event) -> int:
        if event not in self._codes:
            self._codes[event] = len(self.events)
            self.events.append(event)
        return self._codes[event]

    def traces(self, threads: int) -> list[Trace]:
        """Return what each thread executed."""
        none = np.zeros(0, np.int64)
        who = np.concatenate([none, *(part[0] for part in self._parts)])
        codes = np.concatenate([none, *(part[1] for part in self._parts)])
        lines = np.concatenate([none, *(np.full(len(p[0]), p[2]) for p in self._parts)])
        results = np.concatenate([none, *(part[3] for part in self._parts)])
        order = np.argsort(who, kind="stable")
        who, codes, lines, results = who[order], codes[order], lines[order], results[order]
        parts = np.array([event[0] in PARTS for event in self.events], bool)
        first = np.ones(len(who), bool)
        if len(who):
            first[1:] = (who[1:] != who[:-1]) | (codes[1:] != codes[:-1]) | ~parts[codes[1:]]
        who, codes, lines, results = who[first], codes[first], lines[first], results[first]
        ends = np.searchsorted(who, np.arange(threads + 1))
        return [
            Trace(codes[a:b], lines[a:b], results[a:b])
            for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ]
