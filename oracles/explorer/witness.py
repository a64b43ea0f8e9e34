"""The way on which a launch goes wrong as rows: lanes, what happened in them, what conflicts."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect
from oracles.explorer.search import Search
from oracles.explorer.state import Op, Step
from oracles.witness import Mark, Row, Witness

ROWS = 60
"""Rows that a reader can take in."""
FOREVER = ", forever"
ENGINES = "engines"
"""Lane of the operations in flight that end."""


def tell(search: Search, defect: Defect, launch: tuple[tuple[str, int], ...]) -> Witness | None:
    """Return the witness of a search that has ended with a defect; None if nothing happened."""
    plan = search.machine.plan
    lines = {id(stmt): number for number, stmt in numbered(plan.kernel)}
    last = search.way[-1][0] if search.way else -1
    parties = {last, defect.against[0]} if defect.against and not defect.stuck else set[int]()
    apart = parties if len({_team(plan, one) for one in parties if one >= 0}) == 1 else set[int]()
    rows: list[Row] = []
    first = -1
    for agent, step in _concerning(search, defect):
        if isinstance(step, int):
            rows.append(Row(ENGINES, 0, f"{plan.slot_name(step)}: bytes of a copy are in"))
            continue
        if (agent, step.where) == defect.against:
            first = len(rows)
        lane = plan.agents[agent].name if agent in apart else _team(plan, agent)
        row = Row(lane, lines[id(step.stmt)], step.told)
        if row not in rows or first == len(rows):
            rows.append(row)
    if not (rows or defect.stuck):
        return None
    if not defect.stuck:
        rows[-1] = _marked(rows[-1], Mark.SECOND)
    if 0 <= first < len(rows) - 1:
        rows[first] = _marked(rows[first], Mark.FIRST)
        rows = [*rows[first : first + 1], *rows[first + 1 :][-ROWS:]]
    rows = rows[-ROWS:]
    says = defect.says
    for agent, note in defect.stuck:
        row = _waits(search, agent, note, lines)
        if row not in rows:
            rows.append(_marked(row, Mark.SECOND) if (agent, note) == defect.stuck[0] else row)
    if defect.stuck:
        ends = [row for row in rows if row.text.endswith(FOREVER)]
        says = "; ".join(f"{r.lane} at line {r.line}, {r.text}: {r.note}" for r in ends)
    lanes = tuple(dict.fromkeys(row.lane for row in rows))
    return Witness(plan.kernel.name, defect.kind, launch, says, "", lanes, tuple(rows))


def _waits(search: Search, agent: int, note: str, lines: dict[int, int]) -> Row:
    step = _stuck_at(search, agent)
    return Row(
        _team(search.machine.plan, agent), lines[id(step.stmt)], f"{step.told}{FOREVER}", note
    )


def _concerning(search: Search, defect: Defect) -> list[tuple[int, Step | int]]:
    """Return the steps of a way; of one that ends in a standstill, those at its mbarriers."""
    plan = search.machine.plan
    if not defect.stuck:
        return search.way
    asked = {_barrier(_stuck_at(search, agent).stmt) for agent, _ in defect.stuck}
    names = {barrier.name for barrier in asked if isinstance(barrier, kir.MBarrier)}
    return [
        (agent, step)
        for agent, step in search.way
        if (isinstance(step, int) and plan.slot_name(step).partition("[")[0] in names)
        or (not isinstance(step, int) and _barrier(step.stmt) in asked and step.op is not Op.INIT)
    ]


def _barrier(stmt: kir.Stmt) -> object:
    return getattr(stmt, "barrier", getattr(stmt, "semaphore", None))


def _stuck_at(search: Search, agent: int) -> Step:
    done, steps = (
        sum(one == agent for one, _ in search.way),
        search.machine.plan.agents[agent].steps,
    )
    return steps[min(done, len(steps) - 1)]


def _marked(row: Row, mark: Mark) -> Row:
    return Row(row.lane, row.line, row.text, row.note, mark)


def _team(plan: Plan, agent: int) -> str:
    """Name the role of an agent, and its CTA where there are several."""
    one = plan.agents[agent]
    where = f" of CTA {plan.ctas[one.cta]}" if len(plan.ctas) > 1 else ""
    for stmt in plan.kernel.body:
        if isinstance(stmt, kir.Role) and 0 <= one.warp - stmt.first_warp < stmt.warps:
            return stmt.name + where
    return f"all threads{where}"
