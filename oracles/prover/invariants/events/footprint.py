"""Which kinds of threads touch which step's tile, and how two of its accesses may meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.prover.invariants.trace import Program, Step, Trace
from oracles.prover.tiles import Meet, Meetings, ordinary, storage


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two kinds of threads that may touch the same byte, and whether within one warp."""

    first: int
    second: int
    same_warp: bool


class Footprints:
    """What is the same in every execution of a trace, worked out once.

    `spreads` are how the ordinary accesses of shared memory spread their tiles, by step; `programs`
    leave out the steps that the order of events does not depend on; `touching` says which kinds of
    threads touch which step's tile.
    """

    def __init__(self, trace: Trace) -> None:
        self._storage = storage(trace.kernel.buffers)
        self._tiles = Meetings(trace.kinds, trace.kernel.threads)
        self.spreads = {
            step.index: ordinary(step.site, self._storage)
            for step in trace.steps
            if buffer(step) is not None
        }
        self.touching = {
            (index, kind)
            for index, spread in self.spreads.items()
            if spread is not None
            for kind in self._tiles.touching(spread)
        }
        self.programs = tuple(self._ordered(program) for program in trace.programs)

    def _ordered(self, program: Program) -> Program:
        def loud(part: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple(step for step in part if not self._silent(step))

        return Program(loud(program.before), loud(program.inside), loud(program.after))

    def _silent(self, step: Step) -> bool:
        match step.stmt:
            case kir.Load() | kir.Store():
                return step.index not in self.spreads
            case kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate() | kir.Mma():
                return True
            case kir.WgmmaFence() | kir.FenceMBarrierInit() | kir.ThreadFence():
                return True
            case _:
                return False

    def holds(self, step: Step, kind: int) -> bool:
        """Whether threads of a kind hold a part of the tile of an ordinary access."""
        spread = ordinary(step.site, self._storage)
        return spread is not None and kind in self._tiles.touching(spread)

    def collides(self, index: int) -> bool:
        """Whether different threads touch one element in one execution of an ordinary access."""
        spread = self.spreads[index]
        assert spread is not None, "asked of ordinary accesses only"
        return any(self._tiles.collide(spread, kind) for kind in self._tiles.touching(spread))

    def meetings(self, first: int, second: int) -> Iterator[Meeting]:
        """Yield how different threads may meet by the ordinary accesses of two steps."""
        a, b = self.spreads[first], self.spreads[second]
        assert a is not None, "asked of ordinary accesses only"
        assert b is not None, "asked of ordinary accesses only"
        for (one, two), how in self._tiles.between(a, b).items():
            if how > Meet.THREAD:
                yield Meeting(one, two, how is Meet.WARP)


def buffer(step: Step) -> kir.Buffer | None:
    """Return the buffer that an ordinary statement, or a cp.async, accesses, if any."""
    match step.stmt:
        case kir.Load(_, kir.Slot(found)) | kir.Store(kir.Slot(found)):
            return found
        case kir.CpAsync(kir.Slot(found)):
            return found
        case _:
            return None
