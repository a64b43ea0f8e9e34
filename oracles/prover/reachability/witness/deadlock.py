"""Who waits for what in a deadlock, and what they lack."""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.grid.semaphores import meeting
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.state import Agent, State
from oracles.prover.reachability.witness.story import Story, waited_barrier, waits_for
from oracles.prover.reachability.witness.words import concrete, iteration
from oracles.witness import Mark, Row


def waiting(story: Story, state: State) -> tuple[str, list[Row]]:
    """Say in a sentence who waits for what, with a row for each who does."""
    said: list[str] = []
    rows: list[Row] = []
    stopped = [a for a in state.agents if waits_for(a, story.world) is not None]
    alone = [a for a in stopped if _barrier_of(story, a) is not None]
    # Who waits at a sync waits for those who wait at a barrier.
    for a in alone or stopped or state.agents:
        program = story.world.code.programs[a.kind.index]
        i = None if a.done or a.at >= len(program) else program[a.at]
        if not isinstance(i, Do):
            continue
        k = a.env[a.loops[-1][2]] if a.loops else -1
        lane, row = story.lane(a.kind.index), _wanted(story, state, a, i)
        when = iteration(story.world, i.site, k)
        text = " ".join(part for part in (row[0], when) if part)
        says = f"{lane} waits for {text} (line {i.site.line}): {row[1]}"
        if says in said:
            continue
        said.append(says)
        mark = Mark.NONE if rows else Mark.SECOND
        values = {name: value(a.env) for name, value in i.values.items()}
        done = " ".join(filter(None, (concrete(i.site.stmt, values), when)))
        rows.append(Row(lane, i.site.line, f"{done}, for ever", row[1], mark))
    return "; ".join(said), rows


def _arrivals(story: Story, barrier: kir.MBarrier) -> list[int]:
    """Return the lines of the arrivals on a barrier."""
    arrives = (kir.MBarrierArrive, kir.MBarrierArriveExpectTx, kir.CpAsyncMBarrierArrive)
    return sorted(
        {
            i.site.line
            for agent in range(len(story.world.kinds))
            for i in story.program(agent)
            if isinstance(i.site.stmt, arrives) and i.site.stmt.barrier == barrier
        }
    )


def lacking(story: Story) -> str:
    """Return where those arrive that threads wait for; best, that nobody does."""
    state = story.trail.last
    if state is None:
        return ""
    found: list[str] = []
    for a in state.agents:
        barrier, slot_of = _barrier_of(story, a), waits_for(a, story.world)
        if barrier is None or slot_of is None:
            continue
        there = _arrivals(story, barrier)
        if story.wrong.kind == "bytes":
            return f"line {', '.join(map(str, there))}: the bytes that {barrier.name} expects"
        if not there:
            return f"none; nothing arrives on {barrier.name}"
        says = f"line {', '.join(map(str, there))}: the arrivals on {barrier.name}"
        phase = next((p for where, p in state.phases.items() if where == slot_of[1]), None)
        if phase is not None and 0 < phase.pending < phase.arrivals:
            return f"{says} are fewer than its {phase.arrivals}"
        found.append(says)
    return found[0] if found else _met(story, state)


def _met(story: Story, state: State) -> str:
    """Return the sync at which too few threads have come."""
    for a in state.agents:
        program = story.world.code.programs[a.kind.index]
        i = None if a.done or a.at >= len(program) else program[a.at]
        if isinstance(i, Do) and isinstance(i.site.stmt, kir.BlockSync):
            text, lack = _wanted(story, state, a, i)
            return f"line {i.site.line}: {text}: {lack}"
    return ""


def _barrier_of(story: Story, a: Agent) -> kir.MBarrier | None:
    """Return the mbarrier that threads wait for."""
    program = story.world.code.programs[a.kind.index]
    i = None if a.done or a.at >= len(program) else program[a.at]
    return waited_barrier(i) if isinstance(i, Do) else None


def _wanted(story: Story, state: State, a: Agent, i: Do) -> tuple[str, str]:
    values = {name: value(a.env) for name, value in i.values.items()}
    text = concrete(i.site.stmt, values)
    match i.site.stmt:
        case kir.MBarrierWaitParity(barrier):
            phase = state.phases.get((a.kind.cta, barrier.name, values["bar"]))
            name = f"{barrier.name}[{values['bar']}]"
            if phase is None:
                return name, "no phase has begun"
            missing = [f"{phase.pending} of {phase.arrivals} arrivals"] if phase.pending else []
            if phase.nbytes > 0:
                missing.append(f"{phase.nbytes} bytes")
            if phase.nbytes < 0:
                return name, f"{-phase.nbytes} bytes more come than phase {phase.count} expects"
            left = " and ".join(missing)
            nobody = "" if _arrivals(story, barrier) else f", and nothing arrives on {barrier.name}"
            return name, f"{left} of phase {phase.count} are missing{nobody}"
        case kir.BlockSync(number, threads):
            turn = state.turns.get((a.kind.cta, number))
            return text, f"{turn.count if turn else 0} of {threads} threads have come"
        case kir.GridSync(semaphore):
            turn = state.turns.get(meeting(story.world.kernel, semaphore))
            come = f"{turn.count if turn else 0} of {turn.threads if turn else 0} threads have come"
            return f"the CTAs of {semaphore.name}", come
        case kir.LastArriving(semaphore):
            return f"{semaphore.name}, as its last CTA", "another one never comes"
        case kir.BlockSerializeWait(semaphore):
            return f"turn {values['turn']} of {semaphore.name}", "nobody gives it"
        case _:
            return text, "nobody lets it go on"
