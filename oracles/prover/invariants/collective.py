"""Rules that hold or not, whatever the iteration: who executes a statement, and where it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.rules import RefusedError
from oracles.prover.invariants.trace import Program, Step, Trace
from oracles.prover.sites import adds, mbarrier, reads, writes
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
    roles = [role for role in trace.kernel.body if isinstance(role, kir.Role)]
    parts = [(r.first_warp, r.warps) for r in roles if r.first_warp % WARPS or r.warps % WARPS]
    if any(warps & set(range(first, first + many)) for first, many in parts):
        raise UnsupportedError(f"{step.where}: by a warpgroup of several roles")


def outside(programs: Iterable[Program], ahead: Collection[int]) -> None:
    """Check that nothing but set-up precedes the loops and nothing but awaits follows them.

    `ahead` are steps that stand for iterations of one in a loop.

    Raises
    ------
    UnsupportedError
        If something else does.
    """
    meets = kir.BlockSync | kir.WarpSync | kir.FenceAsyncProxy
    for program in programs:
        for step in program.before:
            if step.index not in ahead and not isinstance(step.stmt, meets | kir.MBarrierInit):
                raise UnsupportedError(f"{step.where}: before the loop")
        for step in program.after:
            if not isinstance(step.stmt, meets | kir.AsyncAwait | kir.AsyncCommit):
                raise UnsupportedError(f"{step.where}: after the loop")


def one_way(kernel: kir.Kernel) -> None:
    """Check that no tensor is both read and written: the order of global accesses is not followed.

    Raises
    ------
    UnsupportedError
        If one is.
    """
    read = {box.tensor.name for s in kernel.walk() if (box := reads(s)) is not None}
    written = {box.tensor.name for s in kernel.walk() if (box := writes(s) or adds(s)) is not None}
    if read & written:
        names = ", ".join(sorted(read & written))
        raise UnsupportedError(f"{kernel.name} reads and writes {names}")


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


def initialised(trace: Trace) -> int:
    """Check that each mbarrier is initialised once, and visible where it is used.

    Returns
    -------
    int
        How many uses were checked, by kinds of threads.

    Raises
    ------
    RefusedError
        For the first that is not.
    UnsupportedError
        If one is invalidated, for then it may be initialised again.
    """
    checked = 0
    for barrier in trace.kernel.barriers:
        makers = [
            (s, a)
            for s in trace.steps
            if isinstance(s.stmt, kir.MBarrierInit) and s.stmt.barrier == barrier
            for a in s.kinds
        ]
        users = [
            s
            for s in trace.steps
            if mbarrier(s.stmt) == barrier
            and not isinstance(s.stmt, kir.MBarrierInit | kir.MBarrierInvalidate)
        ]
        if not users:
            continue
        if any(s.stmt == kir.MBarrierInvalidate(barrier) for s in trace.steps):
            raise UnsupportedError(f"{barrier.name} has several lives")
        if len(makers) != 1:
            says = f"{barrier.name} is initialised by {len(makers)} kinds of threads"
            raise RefusedError("init", users[0], says)
        made, maker = makers[0]
        if made.loop is not None or made.guard is not None or trace.kinds[maker].count > 1:
            raise RefusedError("init", made, f"{barrier.name} is initialised more than once")
        for user in users:
            for agent in user.kinds:
                checked += 1
                _visible(trace, made, maker, user, agent)
    return checked


def _visible(trace: Trace, made: Step, maker: int, user: Step, agent: int) -> None:
    """Check that who uses an mbarrier has met its maker since.

    Where both meet in every iteration before the use, they have met in the first one.
    """
    mine, whole = (
        [*program.before, *program.inside, *program.after]
        for program in (trace.programs[agent], trace.programs[maker])
    )
    at = mine.index(user)
    if agent == maker:
        if mine.index(made) < at:
            return
    else:
        for step in mine[:at]:
            lanes = isinstance(step.stmt, kir.WarpSync) and _one_warp(trace, maker, agent)
            joined = isinstance(step.stmt, kir.BlockSync) or lanes
            if (
                joined
                and step.guard is None
                and (step.loop is None or user.loop is not None)
                and step in whole
                and whole.index(made) < whole.index(step)
            ):
                return
    raise RefusedError("init", user, f"nothing makes `{line(made.stmt)}` visible here")


def _one_warp(trace: Trace, one: int, two: int) -> bool:
    """Whether two kinds of threads are lanes of one warp."""
    warps = trace.kinds[one].warps
    return len(warps) == 1 and warps == trace.kinds[two].warps
