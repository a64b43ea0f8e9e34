"""A failing run as rows: lanes, what happened in them, and the two accesses in conflict."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.simulator.machine import Flight, Step, engine
from oracles.simulator.run import Run
from oracles.verdict import Finding
from oracles.witness import Mark, Row, Witness

ROWS = 60
"""Rows that a reader can take in."""


def witness_of(run: Run, error: Finding, trips: tuple[tuple[str, int], ...]) -> Witness:
    """Tell how a run that has ended with an error went wrong, for the launch that `trips` names.

    Of its steps, those about the memory, the barriers and the threads of the two accesses.
    """
    against = run.broken.against if run.broken is not None else None
    picked = _relevant(run, against)
    rows = [
        Row(
            _lane(run, step),
            step.event.line,
            _text(step),
            step.note,
            Mark.FIRST if step is against else Mark.NONE,
        )
        for step in picked
    ]
    rows += _ending(run, error)
    lanes = tuple(dict.fromkeys(row.lane for row in rows))
    says = error.witness.split("\n", 1)[0]
    name = run.machine.kernel.name
    return Witness(name, error.kind, trips, says, _nearest(picked), lanes, tuple(rows))


def _ending(run: Run, error: Finding) -> list[Row]:
    """Return the row at which a rule broke, or those of the threads that are stuck."""
    if run.broken is not None and run.event is not None and run.actor is not None:
        step = Step(run.actor.name, run.actor.by, run.event)
        if isinstance(run.actor, Flight):
            note = f"issued by {run.actor.issuer.name}"
            return [Row(_lane(run, step), step.event.line, _text(step), note, Mark.SECOND)]
        worker = engine(run.event.stmt)
        if worker and run.broken.against is not None:
            note = "starts, and may access its memory at any time from now on"
            issue = Row(step.name, step.event.line, _text(step), "issues", Mark.NONE)
            return [issue, Row(worker, step.event.line, _text(step), note, Mark.SECOND)]
        return [Row(_lane(run, step), step.event.line, _text(step), step.note, Mark.SECOND)]
    rows = []
    for agent in run.machine.agents:
        if agent.blocked:
            event = agent.program[agent.pc]
            step = Step(agent.name, agent.by, event)
            note = f"waits for {agent.blocked}"
            rows.append(Row(agent.name, event.line, _text(step), note, Mark.NONE))
    return rows or [Row("the end", 0, error.where, "", Mark.SECOND)]


def _relevant(run: Run, against: Step | None) -> list[Step]:
    """Pick the steps that touch the same memory or barriers, or are of the same parties."""
    if run.broken is None or run.event is None or run.actor is None:
        return run.log[-ROWS // 2 :]
    parties = {run.actor.by}
    issuers = {run.actor.issuer.by} if isinstance(run.actor, Flight) else {run.actor.by}
    touched: set[int] = set()
    names = _names(Step("", -1, run.event))
    if against is not None:
        parties.add(against.by)
        names |= _names(against)
        touched = set() if against.atoms is None else set(against.atoms.tolist())
        issuers |= {f.issuer.by for f in run.machine.issued if f.by == against.by}
    picked = []
    for step in run.log:
        same = step.atoms is not None and bool(touched & set(step.atoms.tolist()))
        if step.atoms is None and _names(step):
            same = bool(names & _names(step)) or (not names and step.by in issuers)
        elif step.atoms is None:
            same = step.by in issuers
        crowd = step.by < len(run.machine.agents) and run.machine.agents[step.by].mult > 1
        if (
            step is against
            or step.by in parties - issuers
            or (same and (not crowd or step.by in issuers or step.atoms is not None))
        ):
            picked.append(step)
    kept = picked[-ROWS + 2 :]
    if against is not None and against not in kept:
        kept = [against, *kept[1:]]
    return kept


def _names(step: Step) -> set[str]:
    """Return the barriers and semaphores that a step uses; of rings, the slot."""
    event, stmt = step.event, step.event.stmt
    if isinstance(stmt, kir.OnPhase | kir.TmaLoad):
        return {f"mbarriers of slot {event.slot}"}
    if isinstance(stmt, kir.OnSemaphore):
        return {f"{stmt.semaphore.name}[{event.slot}]"}
    if isinstance(stmt, kir.BlockSync | kir.NamedArrive):
        return {f"barrier {stmt.barrier}"}
    return set()


def _nearest(steps: list[Step]) -> str:
    """Return the last synchronising statement before the end, with its line."""
    for step in reversed(steps):
        if isinstance(step.event.stmt, kir.SYNCS):
            return f"line {step.event.line} `{line(step.event.stmt)}`"
    return ""


def _lane(run: Run, step: Step) -> str:
    """Name the column of a row: a thread, or the kind of engine."""
    if step.by < len(run.machine.agents):
        return step.name
    return step.name.split(" #", 1)[0]


def _text(step: Step) -> str:
    trip = "".join(f", {index}={value}" for index, value in step.event.trip)
    return f"{line(step.event.stmt)}{trip}"
