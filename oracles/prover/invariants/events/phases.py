"""What a phase of an mbarrier takes and what it gets: arrivals, bytes, and in which turn."""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.events.nodes import Phase, RefusedError
from oracles.prover.invariants.events.parametric import shift
from oracles.prover.invariants.trace import Trace


def counted(phase: Phase, trace: Trace) -> None:
    """Check that a phase gets as many arrivals as it takes, and the bytes it expects.

    Raises
    ------
    RefusedError
        If it does not.
    """
    name = phase.barrier.name
    arrived = expected = copied = 0
    for step in {s.index: s for s, *_ in phase.arrivals}.values():
        many = trace.count(step)
        match step.stmt:
            case kir.CpAsyncMBarrierArrive(_, _, False):
                pass
            case kir.MBarrierArriveExpectTx(_, _, nbytes):
                arrived += many
                expected += many * nbytes
            case _:
                arrived += many
    for step in {s.index: s for s, *_ in phase.expects}.values():
        if isinstance(step.stmt, kir.MBarrierExpectTx):
            expected += trace.count(step) * step.stmt.nbytes
    step = phase.arrivals[0][0]
    for copy in {s.index: s for s, *_ in phase.copies}.values():
        assert isinstance(copy.stmt, kir.TmaLoad), "only loads complete on barriers"
        nbytes = copy.stmt.src.tensor.dtype.nbytes
        for extent in copy.stmt.src.shape:
            nbytes *= extent
        copied += nbytes * trace.count(copy)
    if arrived != phase.barrier.arrivals:
        says = f"{name} takes {phase.barrier.arrivals} arrivals a phase and gets {arrived}"
        raise RefusedError("arrivals", step, says)
    if expected != copied:
        says = f"{name} expects {expected} bytes a phase and gets {copied}"
        raise RefusedError("bytes", step, says)


def raised(phase: Phase) -> None:
    """Check that who raises what a phase waits for arrives in it later.

    Till then it cannot end; that its bytes keep it open is known only once they are expected.

    Raises
    ------
    UnsupportedError
        If somebody else, or nobody, does.
    """
    for step, place, thread, _ in phase.expects:
        followed = any(
            after.index > step.index
            and isinstance(after.stmt, kir.MBarrierArrive | kir.MBarrierArriveExpectTx)
            and (who, when.low, when.stop, when.guard, when.bar)
            == (thread, place.low, place.stop, place.guard, place.bar)
            for after, when, who, _ in phase.arrivals
        )
        if not followed or place.low:
            says = f"no arrival of its thread on {phase.barrier.name} follows"
            raise UnsupportedError(f"{step.where}: {says}")


def paired(phase: Phase) -> None:
    """Check that all who arrive begin with the same slot.

    Raises
    ------
    UnsupportedError
        If they do not: then which arrivals are those of one phase depends on the slot.
    """
    begun = {place.first + shift(place): step for step, place, _, _ in phase.arrivals}
    if len(begun) > 1:
        step = begun[max(begun)]
        raise UnsupportedError(f"{step.where}: its turns are not those of other arrivals")
