"""A failing run as rows: lanes, what happened in them, and the two accesses in conflict."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.kernel.text import short
from oracles.simulator.machine import Agent, Flight, Step, engine
from oracles.simulator.run import Run, blamed
from oracles.simulator.unroll import Event
from oracles.verdict import Finding
from oracles.witness import Mark, Row, Witness

ROWS = 60
"""Rows that a reader can take in."""


ENGINES = {"copy engine": "TMA engine", "cp.async": "cp.async engine"}
"""Lanes that are not called as `engine` calls them."""


def witness_of(run: Run, error: Finding, launch: tuple[tuple[str, int], ...]) -> Witness:
    """Tell how a run that has ended with an error went wrong, for the launch that is named.

    Of its steps, those about the memory, the barriers and the threads of the two accesses.
    """
    against = run.broken.against if run.broken is not None else None
    stuck = [agent for agent in run.machine.agents if agent.blocked] if run.broken is None else []
    told = _Told(run, against)
    rows: list[Row] = []
    for step in _waited(run, stuck) if stuck else _relevant(run, against):
        rows += told.rows(step, Mark.FIRST if step is against else Mark.NONE)
    cause = blamed(run, stuck) if stuck else None
    waits = [told.waits(a, blamed=a is cause) for a in sorted(stuck, key=lambda a: a is not cause)]
    rows = _once([*rows, *(waits or _ending(run, told, error))])
    says = error.witness.split("\n", 1)[0]
    if waits:
        waits = _once(waits)
        says = "; ".join(f"{row.lane} at line {row.line}, {row.text}: {row.note}" for row in waits)
    lanes = tuple(dict.fromkeys(row.lane for row in rows))
    name, near = run.machine.kernel.name, "" if waits else told.nearest()
    return Witness(name, error.kind, launch, says, near, lanes, tuple(rows))


class _Told:
    """The words of a run: lanes are roles, but for two threads of a role in conflict."""

    def __init__(self, run: Run, against: Step | None) -> None:
        self.run = run
        actor = run.actor.issuer if isinstance(run.actor, Flight) else run.actor
        parties = {actor.by} if actor is not None and run.broken is not None else set[int]()
        if against is not None:
            parties |= {self._issuer(against)}
        teams = {self._team(run.machine.agents[by]) for by in parties}
        self._apart = parties if len(parties) > len(teams) else set[int]()

    def rows(self, step: Step, mark: Mark) -> list[Row]:
        """Return what a step shows: of an engine, its issue too."""
        event, line = step.event, step.event.line
        if step.by < len(self.run.machine.agents):
            return [Row(self.lane(step.by), line, _text(event), step.note, mark)]
        lane = self.engine(event.stmt)
        if mark is not Mark.NONE and isinstance(event.stmt, kir.Wgmma) and step.atoms is None:
            return [Row(lane, line, f"using {event.stmt.acc.name}", "", mark)]
        if step.atoms is None:
            return [Row(lane, line, f"{_text(event)}: {step.note or 'ends'}", "", mark)]
        issue = Row(self.lane(self._issuer(step)), line, _text(event))
        return [issue, Row(lane, line, _does(event, writes=step.writes), "", mark)]

    def waits(self, agent: Agent, *, blamed: bool) -> Row:
        """Return at what a thread waits forever."""
        event = agent.program[agent.pc]
        note = f"waits for {agent.blocked}"
        if isinstance(event.stmt, kir.MBarrierWaitParity):
            b = self.run.phases.barrier(event.stmt.barrier, event.slot, agent.cta)
            parts = [f"{b.pending} of {b.count} arrivals"] if b.pending else []
            parts += [f"{b.nbytes} bytes"] if b.nbytes else []
            note = f"{' and '.join(parts)} of phase {b.phase} are missing"
        mark = Mark.SECOND if blamed else Mark.NONE
        return Row(self.lane(agent.by), event.line, f"{_text(event)}, forever", note, mark)

    def nearest(self) -> str:
        """Return the last sync of the threads that go wrong, with its line."""
        actor = self.run.actor.issuer if isinstance(self.run.actor, Flight) else self.run.actor
        for step in reversed(self.run.log):
            if actor is not None and step.by == actor.by and isinstance(step.event.stmt, kir.SYNCS):
                return f"line {step.event.line}: {_text(step.event)}"
        return ""

    def lane(self, by: int) -> str:
        """Name the column of a thread."""
        agent = self.run.machine.agents[by]
        return agent.name if by in self._apart else self._team(agent)

    def engine(self, stmt: kir.Stmt) -> str:
        """Name the column of an engine."""
        return ENGINES.get(engine(stmt), engine(stmt))

    def _issuer(self, step: Step) -> int:
        if step.by < len(self.run.machine.agents):
            return step.by
        return next((f.issuer.by for f in self.run.machine.issued if f.by == step.by), 0)

    def _team(self, agent: Agent) -> str:
        name = agent.name.removeprefix(f"CTA {agent.block} ").partition("warp ")[0].strip()
        name = name or "all threads"
        return name + (f" of CTA {agent.block}" if self.run.machine.ctas > 1 else "")


def _once(rows: list[Row]) -> list[Row]:
    """Leave of rows that say the same of a lane the first, with the last note."""
    out: list[Row] = []
    for row in rows:
        same = [n for n, one in enumerate(out) if (one.lane, one.text) == (row.lane, row.text)]
        if row.mark is not Mark.NONE or not same:
            out = [one for n, one in enumerate(out) if n not in same or one.mark is not Mark.NONE]
            out.append(row)
        elif row.note:
            out[same[0]] = replace(out[same[0]], note=row.note)
    return out


def _waited(run: Run, stuck: list[Agent]) -> list[Step]:
    """Pick the steps at the barriers and semaphores at which threads are stuck."""
    asked = {_at(agent.program[agent.pc]) for agent in stuck} - {None}
    return [step for step in run.log if _at(step.event) in asked][-ROWS // 2 :]


def _at(event: Event) -> object:
    match event.stmt:
        case stmt if isinstance(stmt, kir.OnPhase | kir.TmaLoad):
            return stmt.barrier.name, event.slot
        case stmt if isinstance(stmt, kir.OnSemaphore):
            return stmt.semaphore.name, event.slot
        case kir.BlockSync(number) | kir.NamedArrive(number):
            return number
        case _:
            return None


def _ending(run: Run, told: _Told, error: Finding) -> list[Row]:
    """Return the row at which a rule broke, or the end."""
    if run.broken is None or run.event is None or run.actor is None:
        return [Row("the end", 0, error.where, "", Mark.SECOND)]
    step = Step(run.actor.name, run.actor.by, run.event)
    if isinstance(run.actor, Flight):
        return told.rows(step, Mark.SECOND)
    worker = engine(run.event.stmt)
    row = Row(told.lane(run.actor.by), run.event.line, _text(run.event), step.note)
    if not (worker and run.broken.against is not None):
        return [replace(row, mark=Mark.SECOND)]
    writes = not isinstance(run.event.stmt, kir.TmaStore | kir.TmaReduce | kir.Wgmma)
    does = _does(run.event, writes=writes)
    return [row, Row(told.engine(run.event.stmt), run.event.line, does, "", Mark.SECOND)]


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


def _does(event: Event, *, writes: bool) -> str:
    """Say what an engine does to memory."""
    match event.stmt:
        case kir.Wgmma(_, a, b):
            left = f"{a.buffer.name}[{event.index}], " if isinstance(a, kir.Slot) else ""
            return f"reading {left}{b.buffer.name}[{event.other}]"
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src):
            return f"reading {src.buffer.name}[{event.index}], writing {dst.tensor.name}"
        case kir.TmaLoad(dst) | kir.CpAsync(dst) | kir.QueueCopy(dst):
            return f"{'writing' if writes else 'reading'} {dst.buffer.name}[{event.index}]"
        case _:
            return "at work"


def _text(event: Event) -> str:
    """Say what a statement does, with numbers, and in which iteration."""
    numbers = {"slot": event.index, "bar": event.slot, "parity": event.parity}
    match event.stmt:
        case kir.Wgmma():
            numbers |= {"slot": event.other, "a": event.index}
        case kir.MBarrierArrive(cta=cta) if cta is not None:
            numbers["cta"] = event.extra
        case kir.TmaLoad(multicast=mask) if mask is not None:
            numbers["cast"] = event.extra
        case kir.BlockSerializeWait() | kir.BlockSerializeRelease():
            numbers["turn"] = event.parity
        case kir.GridSync() | kir.LastArriving():
            numbers["ctas"] = event.parity
        case _:
            pass
    trip = "".join(f" {index}={value}" for index, value in event.trip[-1:])
    return short(event.stmt, numbers) + trip
