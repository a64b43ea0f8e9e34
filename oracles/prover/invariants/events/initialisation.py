"""The life of an mbarrier: initialised once, by one thread, and visible to whoever uses it."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.events.nodes import RefusedError
from oracles.prover.invariants.trace import Step, Trace


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
        users = [s for s in trace.steps if _uses(s, barrier)]
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


def _uses(step: Step, barrier: kir.MBarrier) -> bool:
    match step.stmt:
        case (
            kir.MBarrierArrive(used)
            | kir.MBarrierArriveExpectTx(used)
            | kir.MBarrierExpectTx(used)
            | kir.CpAsyncMBarrierArrive(used)
            | kir.MBarrierWaitParity(used)
            | kir.TmaLoad(_, _, used)
        ):
            return used == barrier
        case _:
            return False
