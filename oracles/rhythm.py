"""How a kernel repeats: after how many iterations, and how far its ends reach."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from fuser import kernel_ir as kir
from oracles.arithmetic import Drift, Function, UnsupportedError, drift, function
from oracles.trace import Control, Step, Trace


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How the kernel repeats: see `induction` for what the numbers are good for.

    Parameters
    ----------
    period : int
        Shift of the iteration that maps the kernel onto itself (with its slots turned).
    start, end, trips : int
        Iterations after the start and before the end that differ from the rest, and trip counts
        below which conditions on the trip count alone may differ.
    turn : int
        Iterations after which the same bytes of a shared buffer are used again.
    """

    period: int
    start: int
    end: int
    trips: int
    turn: int


def rhythm(trace: Trace) -> Rhythm:
    """Say how a kernel repeats.

    Notes
    -----
    The start differs from the rest for a turn of the rings (their first phases follow nothing), for
    the copies that constant loops issue ahead, for the groups that a first await does not find, and
    where guards say so.

    If every ring is walked one slot at a time, and every parity flips where its slot starts anew,
    then one iteration later everything is the same one slot further: the period is that of the
    guards.  Else it is the least common multiple of everything's.

    Raises
    ------
    UnsupportedError
        If a slot, a parity or a guard does not repeat.
    """
    start, end, trips = 0, 1, 1
    guards, whole, turn = 1, 1, 1
    turning = _disjoint(trace.kernel)
    rings: dict[str, set[int]] = {}
    last = {step.index for program in trace.programs for step in program.after}
    for control in trace.controls:
        step, what = control.step, control.what
        how = drift(control.expr)
        start, end, trips = max(start, how.start), max(end, how.end), max(trips, how.trips)
        if what == "stop":
            value = function(control.expr)
            end = max(end, *(abs(value(0, n) - n) + 1 for n in range(trips, trips + 2)))
            continue
        if not how.steady:
            raise UnsupportedError(f"{step.where}: its {what} grows without end")
        whole = lcm(whole, how.period)
        if what == "guard":
            guards = lcm(guards, how.period)
        elif step.loop is None:
            turning = turning and (step.index not in last) and how.period == 1
        elif what == "parity":
            turning = turning and _flips(control, how)
        else:
            rings.setdefault(_home(step, what), set()).add(_ring(control, how))
            turn = lcm(turn, how.period)
    kernel = trace.kernel
    slots = [m.slots for m in kernel.barriers] + [b.slots for b in kernel.buffers]
    keeps = [s.stmt.keep for s in trace.steps if isinstance(s.stmt, kir.AsyncAwait)]
    start += max(slots, default=1) + max(keeps, default=0) + trace.written_out
    if turning and all(len(ring) == 1 and 0 not in ring for ring in rings.values()):
        turns = [lcm(ring, guards) for found in rings.values() for ring in found]
        return Rhythm(guards, start, end, trips, max(turns, default=guards))
    whole = lcm(whole, *(2 * m.slots for m in kernel.barriers))
    return Rhythm(whole, start, end, trips, lcm(turn, whole))


def _home(step: Step, what: str) -> str:
    """Return the ring that a slot number belongs to."""
    match step.stmt:
        case kir.TmaLoad(dst, _, barrier):
            return dst.buffer.name if what == "slot" else barrier.name
        case kir.TmaStore(_, src):
            return src.buffer.name
        case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
            return buffer.name
        case (
            kir.MBarrierArrive(barrier)
            | kir.MBarrierArriveExpectTx(barrier)
            | kir.MBarrierWaitParity(barrier)
        ):
            return barrier.name
        case _:
            return ""


def _ring(control: Control, how: Drift) -> int:
    """Return the slots that an index walks through one by one; 0 if it does not walk so."""
    value = _steady(control)
    seen = [value(k, k) for k in range(how.start, how.start + 2 * how.period + 1)]
    modulus = max(seen) + 1
    if min(seen) < 0 or any(b != (a + 1) % modulus for a, b in pairwise(seen)):
        return 0
    return modulus


def _flips(control: Control, how: Drift) -> bool:
    """Whether the parity of a wait flips exactly where its slot starts anew."""
    step = control.step
    assert isinstance(step.stmt, kir.MBarrierWaitParity), "only waits have a parity"
    slots = step.stmt.barrier.slots
    parity = _steady(control)
    for k in range(how.start, how.start + 2 * lcm(how.period, slots) + 1):
        anew = step.bar_slot(k, k) == slots - 1
        if parity(k + 1, k + 1) != parity(k, k) ^ int(anew):
            return False
    return True


def _steady(control: Control) -> Function:
    return function(control.expr, checked=False)


def _disjoint(kernel: kir.Kernel) -> bool:
    """Whether no two shared buffers overlap."""
    spans = sorted((b.offset, b.offset + b.slots * b.slot_nbytes) for b in kernel.buffers)
    return all(a[1] <= b[0] for a, b in pairwise(spans))
