"""A subject on a GPU, launch after launch on the same memory, in a child process with a limit.

Semaphores are zeroed once, before the first launch, and never again by the host: what a launch
leaves is what the next one finds.  Workspaces and outputs are poisoned before every launch, and
inputs change, so that nothing old passes for new.

A drain that is missing shows only where a copy is still under way when the semaphore is released.
So shapes go up to a thousand CTAs, many of them on one SM; with delays (`delays`) a copy stands
behind many others, and every other launch runs beside a copy of 64 MB.

`python -m fuzz.semaphores.gpu SUBJECT` launches a kernel once, for a sanitizer to watch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

from fuser.codegen import cuda
from fuser.runtime.kernel_launch import Prepared
from fuser.runtime.nvrtc import compile_cubin
from fuzz.campaign.child import Probed
from fuzz.kernels.draw import Subject
from fuzz.kernels.subjects import find
from fuzz.semaphores.delays import LAUNCH, delayed
from fuzz.semaphores.record import Cell, Tried
from fuzz.semaphores.sanitizers import DONE
from fuzz.semaphores.workloads import Workload, poison, scalars, workloads

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
CHILD_LIMIT_S = 60.0
"""CPU seconds of a kernel's launches; by the clock twice as many, for a host that only waits."""


def source(subject: Subject, *, delays: bool) -> tuple[str, tuple[str, ...]]:
    """Return the CUDA text of a subject, and macros: shared memory is poisoned in rings."""
    kernel = subject.kernel
    plain = cuda.source(kernel)
    text = delayed(plain, cuda.shared_bytes(kernel)) if delays else plain
    return text, () if kernel.semaphores else ("FUSER_POISON_SMEM",)


def compiled(subject: Subject) -> None:
    """Compile a subject with delays and without, to be found when it is launched."""
    for delays in (False, True):
        text, defines = source(subject, delays=delays)
        compile_cubin(text, defines=defines)


class Trial:
    """A kernel on the memory of a workload, and what is expected of it."""

    def __init__(self, subject: Subject, load: Workload, *, delays: bool) -> None:
        kernel = subject.kernel
        self._sets = [
            tuple({name: one.cuda() for name, one in part.items()} for part in both)
            for both in load.sets
        ]
        self._input, self._out = (
            {name: torch.empty_like(one) for name, one in part.items()} for part in self._sets[0]
        )
        self._delays = delays
        text, defines = source(subject, delays=delays)
        self._prepared = Prepared(
            kernel,
            load.grid,
            load.params,
            self._input | self._out,
            scalars(kernel),
            defines=defines,
            source=text,
            more={LAUNCH: 0} if delays else {},
        )
        self._wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        # Made now, for nothing can be allocated beside a kernel that hangs.
        self._semaphores = [self._prepared.counters[one.name] for one in kernel.semaphores]
        self._side, self._done = torch.cuda.Stream(), torch.cuda.Event()
        self._values = [
            [torch.full_like(one, n, device="cpu").pin_memory() for one in self._semaphores]
            for n in range(load.params.get("splits", load.grid))
        ]
        size = TRAFFIC_NBYTES if delays else 0
        self._traffic = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self._warm_up()

    def _warm_up(self) -> None:
        """Load what `launch` needs but the kernel: beside one that hangs, loading would wait."""
        self._fill(0)
        self._compare(0)
        self._wrong.zero_()
        torch.cuda.synchronize()

    def _fill(self, which: int) -> None:
        for name, one in self._sets[which][0].items():
            self._input[name].copy_(one)
        for room in (*self._out.values(), *self._prepared.workspaces.values()):
            poison(room)

    def _compare(self, which: int) -> None:
        bad = torch.zeros((), dtype=torch.bool, device="cuda")
        for name, want in self._sets[which][1].items():
            got = self._out[name]
            untouched = (want != want) & (got != got)  # poison on both sides
            bad |= ((got != want) & ~untouched).any()
        self._wrong += bad

    def launch(self, count: int, seed: int = 0) -> None:
        """Launch once and compare, without waiting for anything."""
        which = count % len(self._sets)
        self._fill(which)
        if self._delays:
            self._prepared.write(LAUNCH, seed * SEED + count)
            if count % 2:
                with torch.cuda.stream(self._side):
                    self._traffic[0].copy_(self._traffic[1])
        self._prepared.launch()
        self._compare(which)

    def finished(self, seconds: float) -> bool:
        """Wait until everything is done, but not forever."""
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
        """Write each value that a CTA may wait for until all have ended: it spares the process."""
        end = time.monotonic() + seconds
        while self._semaphores and time.monotonic() < end:
            for values in self._values:
                with torch.cuda.stream(self._side):
                    for semaphore, value in zip(self._semaphores, values, strict=True):
                        semaphore.copy_(value, non_blocking=True)
                if self.finished(1e-3):
                    return True
        return False


def request(name: str, *, delays: bool, launches: int, seconds: float) -> str:
    """Return what `judge` is asked."""
    return json.dumps([name, delays, launches, seconds])


def judge(asked: str) -> Tried:
    """Launch a subject over and over; one string in, so that a child process can do it."""
    name, delays, launches, seconds = json.loads(asked)
    subject, begin = find(name), time.monotonic()
    wrong = done = 0
    shown: list[str] = []

    def cell(status: str, says: str, count: int, of: int) -> Cell:
        return Cell(status, says, count, of, time.monotonic() - begin, "\n".join(shown))

    try:
        loads = list(workloads(subject))
    except ValueError as error:
        shown.append(str(error))
        loads = []
    if not loads:
        return Tried(cell("unknown", "no expected values", 0, 0))
    for load in loads:
        trial = Trial(subject, load, delays=delays)
        each, count = -(-launches // len(loads)), 0
        while count < each and (time.monotonic() - begin < seconds or not count):
            batch = 1 if count < 2 else min(BATCH, each - count)
            for n in range(count, count + batch):
                trial.launch(n, 1 + n * SEEDS // each)
            if not trial.finished(HANG_S):
                stuck = not trial.rescue(RESCUE_S)
                at = f"launches {count + 1} to {count + batch}"
                at = at if batch > 1 else f"launch {count + 1}"
                shown.append(f"{load.name}: no end of {at} within {HANG_S:g} s")
                return Tried(cell("detected", "hang", wrong + 1, done + count + batch), stuck)
            count += batch
        bad = trial.wrong()
        shown.append(f"{load.name}: {bad} of {count} launches wrong")
        wrong, done = wrong + bad, done + count
    if wrong:
        return Tried(cell("detected", "values", wrong, done))
    return Tried(cell("silent", "", 0, done))


class Device(Probed[Tried]):
    """The GPU, in a child process that is replaced when a kernel does not come back."""

    def __init__(
        self, work: Callable[[str], Tried], probe: str, *, limit_s: float = CHILD_LIMIT_S
    ) -> None:
        limits = {"limit_s": limit_s, "wall_s": 2 * limit_s}
        super().__init__(work, probe, lambda tried: tried.cell.status == "silent", **limits)

    def ask(self, request: str) -> Cell:
        """Run a request; a child that hangs or crashes says what the kernel did to it."""
        begin = time.monotonic()
        try:
            answer = self.call(request)
        except Exception as error:  # CUDA errors have many types, and stay with the process
            reason = f"{type(error).__name__}: {error}"
            kind = "CUDA error" if "CUDA" in reason.upper() else "error"
        else:
            if isinstance(answer, Tried):
                if answer.stuck:
                    self.restart("an unchanged kernel")
                return answer.cell
            kind, reason = answer.kind, answer.reason
        seconds = time.monotonic() - begin
        self.restart("an unchanged kernel")
        if kind in ("hang", "CUDA error"):
            return Cell("detected", kind, 1, 1, seconds, reason)
        return Cell("unknown", kind, seconds=seconds, detail=reason)


def main(argv: list[str] | None = None) -> int:
    """Launch a subject once, on its smallest workload, and say so."""
    (name,) = sys.argv[1:] if argv is None else argv
    subject = find(name)
    trial = Trial(subject, next(workloads(subject)), delays=False)
    trial.launch(0)
    torch.cuda.synchronize()
    print(f"{DONE} {json.dumps({'launches': 1, 'wrong': trial.wrong()})}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
