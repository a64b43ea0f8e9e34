"""The witness of a refuted kernel: the smallest execution that goes wrong, told to a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from fuser.expr import Var
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.execution import ChoiceError, Execution, ForkError
from oracles.prover.reachability.grid.readings import readings, single
from oracles.prover.reachability.program.code import Code, Enter
from oracles.prover.reachability.registers import ContestError
from oracles.prover.reachability.rules import Rule, Violation
from oracles.prover.reachability.witness.deadlock import waiting
from oracles.prover.reachability.witness.nearest import nearest
from oracles.prover.reachability.witness.story import Story, lanes
from oracles.prover.reachability.witness.trail import FoundError, Trail
from oracles.prover.reachability.world import World
from oracles.witness import Mark, Row, Witness

RUNS = 200
"""Executions that are tried at most."""


def witness(kernel: kir.Kernel, *, policy: str) -> Witness | None:
    """Return the execution at the smallest trip counts that goes wrong, None if none is found.

    Parameters
    ----------
    kernel : Kernel
        Any; of one that is proved there is none.
    policy : str
        `default` or `strict`.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    closed = fixpoint.judge(kernel, policy=policy)
    if not closed.violations:
        return None
    most = min(v.trips for v in closed.violations)
    for one in _explorations(kernel, policy, most):
        try:
            trail = _followed(one)
        except UnsupportedError:
            # A CTA with no place among those that take turns: one at each place is followed.
            continue
        if trail is not None:
            return _told(one, trail)
    return None


def _explorations(kernel: kir.Kernel, policy: str, most: int) -> Iterator[fixpoint.Exploration]:
    """Yield the kernel with all trip counts known, the smallest first."""
    whole = (*readings(kernel), *single(kernel))
    codes = [(r, fixpoint.opened(kernel, r, policy=policy).world.code) for r in whole]
    tried = 0
    names = max(len(code.counts) for _, code in codes)
    top = most if names < 2 else max(most, 2)
    choices = sorted(
        product(range(top + 1), repeat=names),
        key=lambda c: (max(c, default=0), sum(c), [-n for n in c]),
    )
    for counts in choices:
        for reading, code in codes:
            tried += 1
            if tried > RUNS:
                return
            pinned = dict(zip(sorted(code.counts), counts, strict=False))
            world = fixpoint.opened(kernel, reading, policy=policy, pinned=pinned).world
            if all(n >= world.least.get(atom, 0) for atom, n in pinned.items()):
                one = fixpoint.Exploration(world, single_arrivals=True)
                one.stands()
                yield one


def _followed(one: fixpoint.Exploration) -> Trail | None:
    """Follow every way through a kernel with known trip counts until one goes wrong."""
    todo = [(one.start(), Trail(one.world, one.findings))]
    if one.findings.failed:
        return todo[0][1]
    while todo:
        state, trail = todo.pop()
        execution = one.execution(state, trail)
        try:
            _finish(execution, trail)
        except FoundError:
            trail.last = state
            return trail
        except (ForkError, ChoiceError) as error:
            todo += [(s, trail.copy()) for s in execution.ways_on(error)]
        except ContestError as contest:
            todo += [(s, trail.copy()) for s in contest.states]
        trail.last = state
        if one.findings.failed:
            return trail
    return None


def _finish(execution: Execution, trail: Trail) -> None:
    """Go on to the end, if there is one."""
    while not execution.findings.failed:
        execution.settle()
        if execution.over():
            trail.stuck = not execution.state.over
            return
        execution.state.pass_gate()


def _told(one: fixpoint.Exploration, trail: Trail) -> Witness:
    world, wrong = one.world, one.findings.errors[0]
    first = trail.born.get(wrong.event, -1)
    ends = wrong.kind == "exit" or trail.stuck
    second = -1 if ends or not trail.steps else len(trail.steps) - 1
    if wrong.kind == "semaphore":
        # What it is left at is seen at the end, and comes from the release before.
        given = (step.number for step in trail.steps if step.stmt is wrong.later.stmt)
        second = max(given, default=second)
    if 0 <= first == second:
        first = trail.earlier.get(wrong.event, -1)
    if first < 0 <= second:
        first = _counterpart(trail, wrong, second)
    story = Story(trail, wrong, first, second)
    rows = story.rows()
    says = wrong.says
    if wrong.event >= 0 and first < 0:
        earlier = wrong.earlier
        where = earlier.line if earlier is not None else 0
        rows.insert(0, Row("CTA of the turn before", where, "uses the tensor", "", Mark.FIRST))
    if trail.stuck and trail.last is not None:
        says, stopped = waiting(story, trail.last)
        rows += stopped
        says = says or wrong.says
    elif ends:
        rows.append(Row("CTA", 0, "exits", "", Mark.SECOND))
    if not rows:
        rows.append(Row("all threads", wrong.later.line, wrong.later.where, "", Mark.SECOND))
    near = nearest(story)
    return Witness(
        world.kernel.name, wrong.kind, _trips(world), says, near, lanes(rows), tuple(rows)
    )


def _counterpart(trail: Trail, wrong: Violation, second: int) -> int:
    """Return the step that the last one needs to be ordered after, where no event says so."""
    last = trail.steps[second]
    for step in reversed(trail.steps[:second]):
        mine = step.agent == last.agent
        match wrong.rule, step.stmt:
            case Rule.REGISTERS_BUSY, kir.Wgmma() if mine:
                return step.number
            case Rule.WGMMA_FENCE, kir.Compute(dst) | kir.Slice(dst) | kir.Reduce(dst) | kir.Load(
                dst
            ) if mine:
                if isinstance(last.stmt, kir.Wgmma) and dst in (last.stmt.acc, last.stmt.a):
                    return step.number
            case Rule.INIT, kir.MBarrierInit(barrier):
                if barrier == getattr(last.stmt, "barrier", None):
                    return step.number
            case _:
                pass
    return -1


def _trips(world: World) -> tuple[tuple[str, int], ...]:
    """Return the trip counts, by the names that the kernel has for them."""
    names = _names(world.code)
    return tuple(
        (names[atom], trips) for atom, trips in sorted(world.pinned.items()) if atom in names
    )


def _names(code: Code) -> Mapping[int, str]:
    """Name the counts that end loops: by the `Let` of that value, else by the loop."""
    names: dict[int, str] = {}
    for kind, program in zip(code.kinds, code.programs, strict=True):
        for i in program:
            if (
                isinstance(i, Enter)
                and i.atom not in names
                and isinstance(i.site.stmt, kir.ForLoop)
            ):
                stop = i.site.stmt.stop
                name = stop.name if isinstance(stop, Var) else f"trips of {i.name}"
                if name in names.values():
                    name += f" of CTA {kind.cta}" if kind.cta else f" ({i.name})"
                names[i.atom] = name
    return names
