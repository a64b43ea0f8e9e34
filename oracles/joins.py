"""Where threads wait for each other in the prover's order, and why they may wait for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser import kernel_ir as kir
from oracles.events import Event, Runner, Turn
from oracles.trace import Step

if TYPE_CHECKING:
    from oracles.order import Order


def block_sync(order: Order, a: Runner, step: Step, stmt: kir.BlockSync, k: int) -> bool:
    """Reach a named barrier; the last thread to arrive lets all of them go on."""
    if a.waiting == "sync":
        return False
    barrier, threads = stmt.barrier, stmt.threads
    turn = order.turns.setdefault(barrier, Turn(threads))
    if turn.count == 0:
        turn.threads = threads
    if turn.threads != threads:
        says = f"barrier {barrier} is used with {turn.threads} and with {threads} threads"
        order.wrong("collective", step, k, says)
    order.checked += 1
    if turn.last >= 0 and not a.before >> turn.last & 1:
        says = f"nothing keeps it apart from the last turn of barrier {barrier}"
        order.wrong("collective", step, k, says, earlier=order.events[turn.last].step)
    turn.count += order.trace.agents[a.index].count
    turn.before |= a.before
    turn.fenced |= a.fenced
    turn.agents.append(a.index)
    a.waiting = "sync"
    if turn.count > turn.threads:
        says = f"{turn.count} threads arrive at barrier {barrier}, which takes {turn.threads}"
        order.wrong("collective", step, k, says)
    if turn.count < turn.threads:
        return False
    number = order.event(
        Event(step, -1, f"sync {barrier}", k),
        turn.before,
        turn.fenced,
        [order.runners[i].last for i in turn.agents],
    )
    order.syncs.append(number)
    _release(order, turn.agents, number)
    order.turns[barrier] = Turn(threads, last=number)
    return True


def warp_sync(order: Order, a: Runner, step: Step, k: int) -> bool:
    """Reach a `WarpSync`; the kinds of lanes of the warp go on together."""
    if a.waiting == "warp":
        return False
    me = order.trace.agents[a.index]
    warp = 2 * me.base + (0 if me.first_warp else 1)
    turn = order.turns.setdefault(-1 - warp, Turn(2))
    turn.count += 1
    turn.before |= a.before
    turn.fenced |= a.fenced
    turn.agents.append(a.index)
    a.waiting = "warp"
    if turn.count < 2:
        return False
    number = order.event(
        Event(step, -1, "warp sync", k),
        turn.before,
        turn.fenced,
        [order.runners[i].last for i in turn.agents],
        warp=-1 if me.first_warp else warp,
    )
    _release(order, turn.agents, number)
    order.turns[-1 - warp] = Turn(2)
    return True


def _release(order: Order, agents: list[int], number: int) -> None:
    for i in agents:
        other = order.runners[i]
        other.before = order.before[number]
        other.fenced = order.fenced[number]
        other.last, other.segment = number, -1
        other.at += 1
        other.waiting = ""


def explain(order: Order) -> None:
    """Explain why the followed execution cannot go on."""
    for phase in order.phases.values():
        if phase.pending == 0 and phase.nbytes and phase.step is not None:
            total = "short of" if phase.nbytes > 0 else "beyond"
            says = (
                f"phase {phase.number} of {phase.barrier.name}[{phase.slot}] is "
                f"{abs(phase.nbytes)} bytes {total} what it expects, and never completes"
            )
            order.wrong("bytes", phase.step, phase.iteration, says)
            return
    for a in order.runners:
        if a.at == len(a.todo):
            continue
        step, k = a.todo[a.at]
        says = f"{order.trace.agents[a.index]} waits for ever"
        kind = "deadlock"
        if isinstance(step.stmt, kir.MBarrierWaitParity):
            slot = step.bar_slot(max(k, 0), order.trips)
            phase_or_none = order.phases.get((step.stmt.barrier.name, slot))
            if phase_or_none is not None:
                left, of = phase_or_none.pending, step.stmt.barrier.arrivals
                says += f": {left} of {of} arrivals of phase {phase_or_none.number} are missing"
                kind = "arrivals" if 0 < left < of else kind
        elif isinstance(step.stmt, kir.BlockSync):
            turn = order.turns[step.stmt.barrier]
            says += f": {turn.count} of {turn.threads} threads arrive at the barrier"
        order.wrong(kind, step, k, says)
        return
