"""How long calls take on the device, side by side, each of them on cold operands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import torch

Call = Callable[[], object]
Timer = Callable[[Call], float]
"""Runs a call once and returns its microseconds on the device."""

FLUSHED = 2
"""L2s that are read before each run: nothing of the operands is left in it.  The work of a second
launch of the same call would be found there, which no call in a user's program does."""
SAMPLES, FEWEST = 11, 3
"""Runs of each contender of which the median counts, and of long ones."""
BUDGET_US = 1e6
"""What all runs of all contenders may take together, unless `FEWEST` of each take longer."""
FAR = 2.0
"""Who takes so many times as long as the fastest in a first run is not run again."""


class ColdTimer:
    """A timer that reads more memory than the L2 holds first.

    What is read leaves no line to be written back, so that the call has all of the memory's rate;
    and it takes the device longer (tens of microseconds) than the host needs to launch what is
    measured behind it, so that no launch is waited for.  The events are of torch's current stream,
    and only they are waited for.
    """

    def __init__(self, device: torch.device) -> None:
        nbytes = FLUSHED * torch.cuda.get_device_properties(device).L2_cache_size
        self._read = torch.zeros(nbytes // 4, dtype=torch.float32, device=device)
        self._sum = torch.empty((), dtype=torch.float32, device=device)

    def __call__(self, call: Call) -> float:
        """Return the microseconds of one call."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.sum(self._read, dim=0, out=self._sum)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3


class Aside:
    """A stream for work beside the user's: behind what the thread that makes this has launched."""

    def __init__(self, device: torch.device) -> None:
        self._before = torch.cuda.current_stream(device).record_event()
        self._device = device

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make a new stream torch's current one, in any thread; wait for its work in the end."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_event(self._before)
            with torch.cuda.stream(stream):
                yield
            stream.synchronize()


def race(calls: Sequence[Call], timer: Timer, going: Callable[[], bool]) -> list[float | None]:
    """Return the median microseconds of calls that have run before; None of those far off.

    They take turns in a shuffled order, so that clocks and neighbours hit all alike.  The first is
    what others are compared with: it is always measured.  Where it is not `going` on, the answer is
    of as many runs as there were.
    """
    samples = [[timer(call)] for call in calls]
    once = [us for (us,) in samples]
    near = [n for n, us in enumerate(once) if n == 0 or us <= FAR * min(once)]
    together = sum(once[n] for n in near)
    rounds = max(FEWEST, min(SAMPLES, int(BUDGET_US / max(together, 1.0))))
    for turn in range(rounds):
        random.Random(turn).shuffle(near)
        for n in near:
            if going():
                samples[n].append(timer(calls[n]))
    # the first run of each finds colder caches of instructions and constants
    return [median(us[1:] or us) if n in near else None for n, us in enumerate(samples)]
