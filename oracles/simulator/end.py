"""What must hold when the threads of a run can move no more."""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.simulator.agent import READ_DONE, WRITE_DONE, Agent, Groups, place
from oracles.simulator.run import Run
from oracles.simulator.sync.grid import GRID, TURN
from oracles.simulator.sync.joins import REGISTERS
from oracles.verdict import Finding


def judge_end(run: Run) -> None:
    """Add findings about threads that are stuck, barriers left over, and copies in flight."""
    machine = run.machine
    stuck = [a for a in machine.agents if a.blocked]
    if stuck:
        _error(run, stuck[0].block, *_stuck(run, stuck))
    _barriers(run, stuck=bool(stuck))
    if stuck:
        return
    for cta, numbers in enumerate(run.meetings.named):
        for named in numbers.values():
            if named.arrived:
                says = f"{named.arrived} of {named.threads} threads have arrived at the end"
                _error(run, run.blocks[cta], "collective", f"barrier {named.number}", says)
    for agent in machine.agents:
        if agent.turn is not None:
            says = "it has arrived at the cluster's barrier and never waits"
            _error(run, agent.block, "collective", agent.name, says)
            break
    _in_flight(run)
    for (name, index), counter in sorted(run.semaphores.counters.items()):
        run.checked += 1
        if counter.value:
            says = f"it is {counter.value} at the end; the next launch expects 0"
            _error(run, run.blocks[0], "semaphore", f"{name}[{index}]", says)
    for (name, index), here in sorted(run.semaphores.rounds.items()):
        run.checked += 1
        if here.asked is not None:
            says = f"{len(here.came)} of {here.asked.ctas} CTAs have come at the end, and none is "
            says += "the last; the next launch expects 0"
            _error(run, run.blocks[here.came[0]], "semaphore", f"{name}[{index}]", says)
    run.checked += len(machine.agents)


def _barriers(run: Run, *, stuck: bool) -> None:
    for cta, rings in enumerate(run.phases.rings):
        for b in [b for ring in rings.values() for b in ring if b.phase >= 0]:
            run.checked += 1
            if b.nbytes:
                missing = "are still expected" if b.nbytes > 0 else "too many have landed"
                says = f"{abs(b.nbytes)} bytes {missing} at the end; {b.state}"
                _error(run, run.blocks[cta], "bytes", f"mbarrier {b.name}", says)
            elif b.pending != b.count and not stuck:
                # a phase that nobody waits for any more confuses nobody
                says = f"a phase is left with {b.count - b.pending} of {b.count} arrivals"
                where = f"CTA {run.blocks[cta]}, mbarrier {b.name}"
                run.findings.append(Finding("arrivals", where, says, severity="warning"))


def _in_flight(run: Run) -> None:
    """Look for what may still use the shared memory of a CTA that has ended."""
    machine = run.machine
    size = len(machine.agents) // machine.ctas
    seen = [machine.columns.newest(cta * size, (cta + 1) * size) for cta in range(machine.ctas)]
    for flight in machine.issued:
        run.checked += 1
        match flight.event.stmt:
            case kir.TmaStore() | kir.TmaReduce():
                owed, what = READ_DONE, "has perhaps not read its shared source"
            case kir.Wgmma():
                owed, what = READ_DONE, "may still read shared memory"
            case _:
                owed, what = WRITE_DONE, "may still write shared memory"
        if seen[flight.cta][flight.by] < flight.base + owed:
            lost = any(flight in g.open for g in _groups(flight.issuer))
            why = "it was never committed" if lost else "nobody has awaited this copy"
            says = f"{why} at the exit of the CTA: it {what}"
            where = place(flight.issuer.name, flight.event)
            _error(run, run.blocks[flight.cta], "group" if lost else "exit", where, says)
            return
    for cta, by, count, event in machine.remote:
        run.checked += 1
        if seen[cta][machine.away.start + by] < count:
            says = f"CTA {run.blocks[cta]} may have ended when this reaches its shared memory"
            _error(run, run.blocks[cta], "exit", place(machine.agents[by].name, event), says)
            return


def _groups(agent: Agent) -> tuple[Groups, ...]:
    return agent.bulk, agent.copies, agent.team.groups


def _stuck(run: Run, stuck: list[Agent]) -> tuple[str, str, str]:
    """Return the kind of a standstill, where it is, and who waits for what."""
    kind, first = "deadlock", stuck[0]
    for agent in stuck:
        if agent.blocked.startswith(REGISTERS):
            kind, first = "registers", agent
        elif _given_later(run, agent) or _to_come(run, agent):
            kind, first = "residency", agent
    rows = [f"{_here(a)} waits for {a.blocked}" for a in stuck]
    if run.waiting:
        rows.append(f"{len(run.waiting)} clusters or CTAs wait for room to start")
    says = "nobody can move:\n" + "\n".join(f"    {text}" for text in rows) + run.trace()
    return kind, _here(first), says


def _given_later(run: Run, agent: Agent) -> bool:
    """Whether a CTA that has not started would give the turn that this thread waits for."""
    if not agent.blocked.startswith(TURN):
        return False
    wait = agent.program[agent.pc]
    assert isinstance(wait.stmt, kir.BlockSerializeWait), "only these wait for turns"
    for other in run.machine.agents:
        if other.cta // run.machine.kernel.cluster not in run.waiting:
            continue
        for event in other.program:
            match event.stmt:
                case kir.BlockSerializeRelease(semaphore):
                    same = semaphore == wait.stmt.semaphore and event.slot == wait.slot
                    if same and event.parity == wait.parity:
                        return True
                case _:
                    pass
    return False


def _to_come(run: Run, agent: Agent) -> bool:
    """Whether a CTA that has not started would meet with that of this thread."""
    here = agent.program[agent.pc]
    return agent.blocked.startswith(GRID) and any(
        event.stmt is here.stmt and event.slot == here.slot
        for other in run.machine.agents
        if other.cta // run.machine.kernel.cluster in run.waiting
        for event in other.program
    )


def _here(agent: Agent) -> str:
    return place(agent.name, agent.program[agent.pc])


def _error(run: Run, block: int, kind: str, where: str, says: str) -> None:
    run.findings.append(Finding(kind, f"CTA {block}, {where}", says))
