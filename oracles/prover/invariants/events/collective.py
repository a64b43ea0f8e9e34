"""Rules that hold or not, whatever the iteration: who has to execute a statement, and where."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.events.footprint import Footprints
from oracles.prover.invariants.events.nodes import RefusedError
from oracles.prover.invariants.events.parametric import Places
from oracles.prover.invariants.trace import Step, Trace
from oracles.prover.threads import WARPS


def joins(trace: Trace) -> None:
    """Check that a named barrier is always reached by the same threads, and by all it takes.

    Raises
    ------
    RefusedError
        If some are missing, or too many.
    UnsupportedError
        If different threads meet at one barrier at different times.
    """
    users: dict[int, Step] = {}
    counted: list[tuple[Step, int]] = []
    signalled = {s.stmt.barrier for s in trace.steps if isinstance(s.stmt, kir.NamedArrive)}
    for step in trace.steps:
        match step.stmt:
            case kir.BlockSync(barrier, threads):
                if users.setdefault(barrier, step).kinds != step.kinds:
                    raise UnsupportedError(f"{step.where}: a barrier of two sets of threads")
                counted.append((step, threads))
            case kir.WarpSync():
                if not _whole(trace, step):
                    raise RefusedError("deadlock", step, "not all lanes arrive")
            case kir.Wgmma() | kir.WgmmaFence():
                _warpgroups(trace, step)
            case kir.AsyncCommit(kir.AsyncKind.WGMMA) | kir.AsyncAwait(kir.AsyncKind.WGMMA):
                if not _whole(trace, step):
                    raise RefusedError("collective", step, "not all lanes of a warp execute it")
            case _:
                pass
    for step, threads in counted:
        count = trace.count(step)
        if count != threads and _number(step) not in signalled:
            raise RefusedError("collective", step, f"{count} threads arrive")


def signals(trace: Trace, ahead: Collection[int]) -> list[tuple[Step, Step]]:
    """Return each named barrier that some reach without waiting: who arrives, and who waits.

    Parameters
    ----------
    ahead : collection of int
        Steps before the loops that stand for iterations of one in them.

    Raises
    ------
    RefusedError
        If both are not as many threads as it takes.
    UnsupportedError
        If not one statement of a loop arrives and another one waits.
    """
    found = []
    steps = [step for step in trace.steps if step.index not in ahead]
    arrivals = [step for step in steps if isinstance(step.stmt, kir.NamedArrive)]
    for arrive in arrivals:
        assert isinstance(arrive.stmt, kir.NamedArrive), "just asked"
        number, threads = arrive.stmt.barrier, arrive.stmt.threads
        waits = [s for s in steps if s.stmt == kir.BlockSync(number, threads)]
        same = [s for s in steps if _number(s) == number]
        if len(waits) != 1 or len(same) != 2 or any(s.loop is None for s in same):
            raise UnsupportedError(f"{arrive.where}: not one arrives and one waits, in loops")
        if arrive.kinds & waits[0].kinds:
            raise UnsupportedError(f"{arrive.where}: by threads that also wait")
        count = trace.count(arrive) + trace.count(waits[0])
        if count != threads:
            raise RefusedError("collective", arrive, f"{count} threads arrive or wait")
        found.append((arrive, waits[0]))
    return found


def _number(step: Step) -> int | None:
    match step.stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            return number
        case _:
            return None


def _whole(trace: Trace, step: Step) -> bool:
    """Whether whole warps execute a step."""
    mine = {trace.kinds[i].warps for i in step.kinds}
    return all(kind.index in step.kinds for kind in trace.kinds if kind.warps in mine)


def _warpgroups(trace: Trace, step: Step) -> None:
    """Check that whole warpgroups execute a step."""
    warps = {warp for i in step.kinds for warp in trace.kinds[i].warps}
    groups = {warp // WARPS for warp in warps}
    if len(warps) < len(groups) * WARPS or not _whole(trace, step):
        raise RefusedError("collective", step, "is not executed by whole warpgroups")


def outside(footprints: Footprints, places: Places) -> None:
    """Check that nothing but set-up precedes the loops and nothing but awaits follows them.

    Raises
    ------
    UnsupportedError
        If something else does.
    """
    for program in footprints.programs:
        for step in program.before:
            match step.stmt:
                case kir.MBarrierInit() | kir.BlockSync() | kir.WarpSync():
                    pass
                case kir.FenceAsyncProxy():
                    pass
                case _ if step.index in places.ahead:
                    pass
                case _:
                    raise UnsupportedError(f"{step.where}: before the loop")
        for step in program.after:
            match step.stmt:
                case kir.BlockSync() | kir.WarpSync() | kir.FenceAsyncProxy():
                    pass
                case kir.AsyncAwait() | kir.AsyncCommit():
                    pass
                case _:
                    raise UnsupportedError(f"{step.where}: after the loop")


def one_way(kernel: kir.Kernel) -> None:
    """Check that no tensor is both read and written: the order of global accesses is not followed.

    Raises
    ------
    UnsupportedError
        If one is.
    """
    read: set[str] = set()
    written: set[str] = set()
    for stmt in kernel.walk():
        match stmt:
            case kir.Load(_, kir.Box(tensor)) | kir.TmaLoad(_, kir.Box(tensor)):
                read.add(tensor.name)
            case kir.CpAsync(_, kir.Box(tensor)):
                read.add(tensor.name)
            case kir.Store(kir.Box(tensor)) | kir.TmaStore(kir.Box(tensor)):
                written.add(tensor.name)
            case kir.TmaReduce(kir.Box(tensor)) | kir.AtomicAdd(kir.Box(tensor)):
                written.add(tensor.name)
            case _:
                pass
    if read & written:
        names = ", ".join(sorted(read & written))
        raise UnsupportedError(f"{kernel.name} reads and writes {names}")


def overlap(a: kir.Buffer, b: kir.Buffer) -> bool:
    """Whether two buffers share bytes."""
    return a.shares(b)


def disjoint(kernel: kir.Kernel, *, single: bool = False) -> None:
    """Check that no two buffers, nor a buffer and an mbarrier, share bytes.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    single : bool
        Whether buffers of one slot may share bytes.

    Raises
    ------
    UnsupportedError
        If some do.
    """
    spans = [
        (b.start(slot), b.start(slot) + b.slot_nbytes, b.name, b.slots == 1 and single)
        for b in kernel.buffers
        for slot in range(b.slots)
    ]
    for barrier in kernel.barriers:
        start = kernel.barrier_at(barrier)
        spans.append((start, start + 8 * barrier.slots, barrier.name, False))
    for a, b in combinations(sorted(spans), 2):
        if b[0] < a[1] and not (a[3] and b[3]):
            raise UnsupportedError(f"{a[2]} and {b[2]} share bytes")
