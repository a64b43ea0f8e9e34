"""Which threads touch which bytes: how two accesses of one shared buffer may meet.

A tile statement is one access per thread that holds a part of the tile.  Two statements under the
same layout touch each element from the same thread; under different layouts, or where a broadcast
hands one element to many threads, different threads meet.  By `ldmatrix` and `stmatrix` some lane
of the warp that holds an element touches it: any lane may be the one.

Source: PTX ISA, "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

from fuser.kernel import ir as kir
from oracles.prover.agents import Agent
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.trace import Program, Step, Trace

_Spot = tuple[int, int]
"""Kind and warp of a thread."""


@dataclass(frozen=True, slots=True)
class Access:
    """How one generic statement spreads a slot of a buffer over the threads of `base`, `threads`.

    `base` is the first thread of the executing role, `threads` how many it has; `matrix` is whether
    lanes of a warp are not told apart.
    """

    buffer: kir.Buffer
    layout: kir.Layout
    base: int
    threads: int
    matrix: bool = False

    @property
    def held(self) -> int:
        """Threads that hold a part of the tile."""
        match self.layout.deal:
            case kir.Deal.ROUND:
                if self.matrix:
                    raise UnsupportedError(f"{self.buffer.name}: ldmatrix or stmatrix in turn")
                elements = prod(self.layout.shape) * self.layout.folded
                vectors = -(-elements // self.layout.vector)
                return min(vectors, self.layout.threads)
            case kir.Deal.STRIPS:
                rows = prod(self.layout.shape[:-1])
                return min(rows // 16 * kir.WARP, self.layout.threads)
            case kir.Deal.EACH_WARP:
                return self.layout.threads


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two kinds of threads that may touch the same byte, and whether within one warp."""

    first: int
    second: int
    same_warp: bool


def access(trace: Trace, step: Step) -> Access | None:
    """Return how a generic statement, or a cp.async, touches shared memory, if it does."""
    matrix = False
    match step.stmt:
        case kir.Load(kir.Fragment(_, _, layout), kir.Slot(buffer)):
            matrix = step.stmt.matrix
        case kir.Store(kir.Slot(buffer), kir.Fragment(_, _, layout)):
            matrix = step.stmt.matrix
        case kir.CpAsync(kir.Slot(buffer), _, layout):
            pass
        case _:
            return None
    agents = [trace.agents[i] for i in sorted(step.agents)]
    if step.role:
        return Access(buffer, layout, agents[0].base * kir.WARP, agents[0].threads, matrix)
    return Access(buffer, layout, 0, trace.kernel.threads, matrix)


def touches(how: Access, agent: Agent) -> bool:
    """Whether any thread of this kind holds a part of the tile."""
    return agent.base * kir.WARP + agent.thread - how.base < how.held


def same_bytes(a: kir.Buffer, b: kir.Buffer) -> bool:
    """Whether each element of one buffer lies where that of the other does."""
    return replace(a, name=b.name) == b


def holders(how: Access) -> list[frozenset[int]]:
    """Threads (counted in the CTA) that touch each element of a slot, in row-major order."""
    shape, tile = how.buffer.shape, how.layout.shape
    if len(shape) != len(tile):
        raise UnsupportedError(f"{how.buffer.name} and its fragment differ in rank")
    found: list[set[int]] = [set() for _ in range(prod(shape))]
    for element in range(prod(tile)):
        rest, place, pitch = element, 0, 1
        for extent, size in zip(reversed(tile), reversed(shape), strict=True):
            rest, coordinate = divmod(rest, extent)
            place += (coordinate if size > 1 else 0) * pitch
            pitch *= size
        found[place].update(how.base + thread for thread in _dealt(how.layout, element))
    return [frozenset(threads) for threads in found]


def _dealt(layout: kir.Layout, element: int) -> Iterator[int]:
    """Yield the threads of the role that hold a row-major element of the tile."""
    if layout.folded > 1:
        shape = (*layout.shape[:-1], layout.shape[-1] * layout.folded)
        yield from _dealt(replace(layout, shape=shape, folded=1), element * layout.folded)
        return
    if layout.deal is kir.Deal.ROUND:
        yield element // layout.vector % layout.threads
        return
    row, col = divmod(element, layout.shape[-1])
    lane, warps = row % 8 * 4 + col // layout.vector % 4, layout.threads // kir.WARP
    if layout.deal is kir.Deal.STRIPS:
        yield row // 16 % warps * kir.WARP + lane
    else:
        yield from range(lane, layout.threads, kir.WARP)


@lru_cache(maxsize=64)
def holding(layout: kir.Layout) -> frozenset[int]:
    """Return the threads of the role that hold an element of a tile."""
    return frozenset(t for element in range(prod(layout.shape)) for t in _dealt(layout, element))


def meetings(trace: Trace, a: Access, b: Access) -> frozenset[Meeting]:
    """Return every pair of kinds of *different* threads that touch a common byte."""
    kind = {thread: agent.index for agent in trace.agents for thread in agent.members}
    return _meetings(tuple((kind[t], t // kir.WARP) for t in range(len(kind))), a, b)


@lru_cache(maxsize=64)
def _meetings(spots: tuple[_Spot, ...], a: Access, b: Access) -> frozenset[Meeting]:
    alike = same_bytes(a.buffer, b.buffer)
    plain = alike and a.layout.shape == a.buffer.shape
    exact = plain and not (a.matrix or b.matrix)
    if exact and a.layout == b.layout and a.base == b.base:
        return frozenset()
    pairs: set[tuple[frozenset[int], frozenset[int]]] = set()
    if alike:
        pairs = set(zip(holders(a), holders(b), strict=True))
    else:
        pairs = {
            (
                frozenset(range(a.base, a.base + a.held)),
                frozenset(range(b.base, b.base + b.held)),
            )
        }
    found = set()
    lanes = {(_lanes(one, a), _lanes(two, b)) for one, two in pairs}
    for left, right in lanes:
        for (x, here), (y, there) in product(_spread(left, spots), _spread(right, spots)):
            if x != y or len(here | there) > 1:
                found.add(Meeting(x[0], y[0], x[1] == y[1]))
    return frozenset(found)


def _spread(
    threads: frozenset[int], spots: tuple[_Spot, ...]
) -> list[tuple[_Spot, frozenset[int]]]:
    """Return threads by kind and warp."""
    out: dict[_Spot, set[int]] = {}
    for thread in threads:
        out.setdefault(spots[thread], set()).add(thread)
    return [(spot, frozenset(some)) for spot, some in out.items()]


def _lanes(holders: frozenset[int], how: Access) -> frozenset[int]:
    """Return the threads that may touch what these threads hold."""
    if not how.matrix:
        return holders
    warps = {thread // kir.WARP * kir.WARP for thread in holders}
    return frozenset(first + lane for first in warps for lane in range(kir.WARP))


class Footprints:
    """What is the same in every execution of a trace, worked out once.

    `programs` leave out the steps that the order of events does not depend on, `touching` says
    which agents touch which step's tile.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.accesses = {step.index: access(trace, step) for step in trace.steps}
        self.touching = {
            (step.index, agent.index)
            for step in trace.steps
            for agent in trace.agents
            if (how := self.accesses[step.index]) is not None and touches(how, agent)
        }
        self.programs = tuple(self._ordered(program) for program in trace.programs)
        self._met: dict[tuple[Access, Access], frozenset[Meeting]] = {}

    def _ordered(self, program: Program) -> Program:
        def loud(part: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple(step for step in part if not self._silent(step))

        return Program(
            loud(program.before), loud(program.inside), loud(program.after), program.loop
        )

    def _silent(self, step: Step) -> bool:
        match step.stmt:
            case kir.Load() | kir.Store():
                return self.accesses[step.index] is None
            case kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate() | kir.Mma():
                return True
            case kir.WgmmaFence():
                return True
            case kir.FenceMBarrierInit() | kir.ThreadFence():
                return True
            case _:
                return False

    def collides(self, index: int) -> bool:
        """Whether different threads touch one element in one execution of a generic access."""
        how = self.accesses[index]
        assert how is not None, "asked of generic accesses only"
        once = replace(how, matrix=False)
        return bool(meetings(self.trace, once, once))

    def meetings(self, first: int, second: int) -> frozenset[Meeting]:
        """Return how the generic accesses of two steps may meet."""
        a, b = self.accesses[first], self.accesses[second]
        assert a is not None, "asked of generic accesses only"
        assert b is not None, "asked of generic accesses only"
        if (a, b) not in self._met:
            self._met[a, b] = meetings(self.trace, a, b)
        return self._met[a, b]
