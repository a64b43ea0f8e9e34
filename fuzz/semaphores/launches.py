"""Kernels of the release family on a GPU, launch after launch on the same memory.

Semaphores are zeroed once, before the first launch, and never again by the host: what a launch
leaves is what the next one finds.  Workspace and output are filled with NaN before every launch,
and inputs change, so that nothing old passes for new.  Inputs are small integers: every order of
additions gives the same numbers, and a single one that is missing shows.

A drain that is missing shows only where a copy is still under way when its turn is over.  So
shapes go up to a thousand CTAs, many of them on one SM; with delays (`delays`) a copy
stands behind many others, and every other launch runs beside a copy of 64 MB.

`python -m fuzz.semaphores.launches KEY` launches one kernel once, for a sanitizer to watch.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from fuser.codegen import cuda
from fuser.runtime.kernel_launch import Prepared
from fuser.runtime.nvrtc import compile_cubin
from fuzz.semaphores.delays import LAUNCH, delayed
from fuzz.semaphores.family import Member, member
from fuzz.semaphores.operands import SHAPES, Shape, operands, params_of
from fuzz.semaphores.record import Cell, Tried
from fuzz.semaphores.sanitizers import DONE

HANG_S = 2.0
"""Seconds after which launches of microseconds hang."""
RESCUE_S = 3.0
"""Seconds for which semaphores of hanging kernels are written."""
BATCH = 10
"""Launches between two looks at the results; the first two launches are looked at alone."""
SEED = 1 << 16
"""Distance of the launch numbers of two seeds of delays."""
SEEDS = 5
"""Seeds of delays, each for a part of the launches."""
TRAFFIC_NBYTES = 1 << 26


def sources(key: str) -> tuple[str, str]:
    """Return the CUDA text of a member, without delays and with them."""
    plain = cuda.source(member(key).kernel)
    return plain, delayed(plain)


def compiled(key: str) -> None:
    """Compile both texts of a member, to be found when they are launched."""
    for source in sources(key):
        compile_cubin(source)


class Trial:
    """A kernel with inputs of one shape, and what is expected of it."""

    def __init__(self, member: Member, shape: Shape, *, delays: bool) -> None:
        kernel = member.kernel
        grid, params = params_of(member, shape)
        given = operands(member, shape)
        self._given = [one.cuda() for one in given.turns]
        self._want = [one.cuda() for one in given.want]
        self._input, self._out = (torch.empty_like(one[0]) for one in (self._given, self._want))
        tensors = {name: one.cuda() for name, one in given.fixed.items()}
        tensors |= {kernel.tensors[0].name: self._input, kernel.outputs[0]: self._out}
        self._delays = delays
        source = sources(member.key)[delays]
        more = {LAUNCH: 0} if delays else {}
        self._prepared = Prepared(kernel, grid, params, tensors, source=source, more=more)
        self._wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        # Made now, for nothing can be allocated beside a kernel that hangs.
        self._semaphore = self._prepared.counters[kernel.semaphores[0].name]
        self._side, self._done = torch.cuda.Stream(), torch.cuda.Event()
        count = self._semaphore.numel()
        self._turns = [
            torch.full((count,), turn, dtype=torch.int32).pin_memory()
            for turn in range(shape.splits)
        ]
        size = TRAFFIC_NBYTES if delays else 0
        self._traffic = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self._warm_up()

    def _warm_up(self) -> None:
        """Load what `launch` needs but the kernel: beside one that hangs, loading would wait."""
        self._fill(0)
        self._out.copy_(self._want[0])
        self._compare(0)
        self._wrong.zero_()
        torch.cuda.synchronize()

    def _fill(self, which: int) -> None:
        self._input.copy_(self._given[which])
        self._out.fill_(float("nan"))
        for workspace in self._prepared.workspaces.values():
            workspace.fill_(0xFF)

    def _compare(self, which: int) -> None:
        self._wrong += (self._out != self._want[which]).any()

    def launch(self, count: int, seed: int = 0) -> None:
        """Launch once and compare, without waiting for anything."""
        which = count % len(self._given)
        self._fill(which)
        if self._delays:
            self._prepared.write(LAUNCH, seed * SEED + count)
            if count % 2:
                with torch.cuda.stream(self._side):
                    self._traffic[0].copy_(self._traffic[1])
        self._prepared.launch()
        self._compare(which)

    def finished(self, seconds: float) -> bool:
        """Wait until everything is done, but not for ever."""
        self._done.record()
        end = time.monotonic() + seconds
        while not self._done.query():
            if time.monotonic() > end:
                return False
            time.sleep(1e-4)
        return True

    def wrong(self) -> int:
        """Return how many launches, of all so far, have left a wrong number."""
        return int(self._wrong.item())

    def rescue(self, seconds: float) -> bool:
        """Give hanging CTAs their turns, one after the other, until all have ended.

        This spares the process and its context; where it does not help, ending the process does.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for turns in self._turns:
                with torch.cuda.stream(self._side):
                    self._semaphore.copy_(turns, non_blocking=True)
                if self.finished(1e-3):
                    return True
        return False


def asked(key: str, *, delays: bool, launches: int, seconds: float) -> str:
    """Return what `judge` is asked."""
    return json.dumps([key, delays, launches, seconds])


def judge(request: str) -> Tried:
    """Launch a member over and over; one string in, so that a child process can do it."""
    key, delays, launches, seconds = json.loads(request)
    one, begin = member(key), time.monotonic()
    shapes = SHAPES[one.base]
    wrong = done = 0
    shown: list[str] = []
    for shape in shapes:
        trial = Trial(one, shape, delays=delays)
        each, count = -(-launches // len(shapes)), 0
        while count < each and (time.monotonic() - begin < seconds or not count):
            batch = 1 if count < 2 else min(BATCH, each - count)
            for n in range(count, count + batch):
                trial.launch(n, 1 + n * SEEDS // each)
            if not trial.finished(HANG_S):
                stuck = not trial.rescue(RESCUE_S)
                at = f"launch {count + 1}" if batch == 1 else f"launches {count + 1} to "
                at += "" if batch == 1 else str(count + batch)
                detail = "\n".join([*shown, f"{shape}: no end of {at} within {HANG_S:g} s"])
                total = done + count + batch
                cell = Cell("betrayed", "hang", wrong + 1, total, _since(begin), detail)
                return Tried(cell, stuck)
            count += batch
        bad = trial.wrong()
        shown.append(f"{shape}: {bad} of {count} launches wrong")
        wrong, done = wrong + bad, done + count
    status = "betrayed" if wrong else "silent"
    says = "values" if wrong else ""
    return Tried(Cell(status, says, wrong, done, _since(begin), "\n".join(shown)))


def _since(begin: float) -> float:
    return time.monotonic() - begin


def main(argv: list[str] | None = None) -> int:
    """Launch one member once, on the smallest shape, and say so."""
    (key,) = sys.argv[1:] if argv is None else argv
    one = member(key)
    trial = Trial(one, SHAPES[one.base][0], delays=False)
    trial.launch(0)
    torch.cuda.synchronize()
    print(f"{DONE} {json.dumps({'launches': 1, 'wrong': trial.wrong()})}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
