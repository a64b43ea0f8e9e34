"""The prover's main engine: every state that a kernel can come to, until states repeat.

All threads of a cluster go through their code together, iteration by iteration.  Of every event it
is known which others precede it in *every* execution (`state`); what one execution might
have decided by chance is asked as an obligation (`mbarriers`).  Before each iteration the whole
state is compared with those seen before, with events named by their places, positions of rings
modulo their use and counts relative to the iteration: when it repeats, so does all that follows.
At each step the loops may end or go on, so all trip counts share their beginnings.

Notes
-----
Why one execution for each trip count is enough: take any other execution and its first event that
does not happen as followed here.  A wait that should see phase j started after phase j-1 completed
(asked), so an older phase cannot satisfy it; phase j+1 needs the wait to have returned (asked), so
a younger one cannot.  A phase gets only its own arrivals and bytes: later ones start after its
completion (asked), earlier ones were needed by earlier phases, and their number is right (asked),
also where it grows on the way: then an arrival of the phase comes later still (asked).
Turns of named barriers are told apart in the same way; groups are counted by one thread.  Hence
there is no such first event.

A loop inside another may have another length each time it is entered, which is more than a launch
can show; so is a count that a second loop uses again.  What is refuted only that way is asked
again with one length for all (`pinned`), and stays open if that does not show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.memo import nameless_key as nameless_key
from oracles.prover.reachability.canonical.form import normal
from oracles.prover.reachability.end import ended, stuck
from oracles.prover.reachability.flow import (
    ChoiceError,
    ForkError,
    counting,
    few,
    known_of,
    settle,
    turn_of_a_ring,
)
from oracles.prover.reachability.grid.groups import family_of
from oracles.prover.reachability.grid.readings import Reading, private, readings, single
from oracles.prover.reachability.program.code import Code, Enter, assemble
from oracles.prover.reachability.register_pool import ContestError
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import Agent, Range, State
from oracles.prover.reachability.static import stands
from oracles.prover.reachability.world import Violation, World
from oracles.prover.threads import kinds

STATES = 10_000
"""States that are looked at before giving up."""
AHEAD = 64
"""Loops, or rounds of one, by which a role may be ahead; more, and it runs ahead without end."""
PINNED = 9
"""Lengths of inner loops that are tried to confirm a refutation."""


@dataclass(frozen=True, slots=True)
class Closed:
    """What the engine found.

    Parameters
    ----------
    violations, warnings : tuple of Violation
        Obligations that do not hold, by severity.
    checked : int
        Obligations that were asked.
    states : int
        Different states.
    reason : str
        Why not every state was seen; empty if all were, or if there is a violation.
    """

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    checked: int
    states: int
    reason: str = ""


def judge(
    kernel: kir.Kernel, *, policy: str = "default", without: frozenset[Rule] = frozenset()
) -> Closed:
    """Judge the order of events in a kernel, for every trip count.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    policy : str
        `default` or `strict`.
    without : frozenset of Rule
        Axioms and obligations to leave out, to see whether anybody notices.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    violations: list[Violation] = []
    warnings: list[Violation] = []
    checked = states = 0
    reason = ""
    todo = list(readings(kernel))
    whole, turns = True, todo[0].together
    for number, reading in enumerate(todo):
        alone = turns and not reading.together
        if alone and whole:
            break
        try:
            world, found, why = _explored(
                kernel, reading, policy=policy, without=without, first=number == 0
            )
        except UnsupportedError:
            if not alone or reading.fixed[0]:
                raise
            todo += single(kernel)
            continue
        if alone and not reading.fixed[0] and (world.failed or why):
            todo += single(kernel)
            continue
        whole = whole and not world.pinned
        states += found
        checked += world.checked
        reason = reason or why or world.doubt
        for v in world.violations.values():
            (violations if v.severity == "error" else warnings).append(v)
        if violations and not (reading.together and reading.many == 1):
            break
    reason = "" if violations else reason
    return Closed(tuple(_once(violations)), tuple(_once(warnings)), checked, states, reason)


def _explored(
    kernel: kir.Kernel, reading: Reading, *, policy: str, without: frozenset[Rule], first: bool
) -> tuple[World, int, str]:
    """Explore one reading; return how many states it has, and why it stays open, if it does."""
    world = opened(kernel, reading, policy=policy, without=without)
    if first:
        stands(world)
    sure = dict(world.violations)  # a launch shows each of them
    try:
        found, why = explore(world)
    except UnsupportedError:
        if not world.failed:
            raise
        found, why = 0, ""
    guessed = any(v.severity == "error" for key, v in world.violations.items() if key not in sure)
    loose = guessed and (bool(world.parted) or _loose(world.code))
    if loose and not _confirmed(world, world.code, policy, without, reading):
        says = next(v for v in world.violations.values() if v.severity == "error")
        why = f"{says.later.where}: {says.says}; not confirmed with one length for all loops"
        world.violations = sure
    return world, found, why


def opened(
    kernel: kir.Kernel, reading: Reading, *, policy: str, without: frozenset[Rule] = frozenset()
) -> World:
    """Return what is the same in every state of a reading."""
    code = assemble(kernel, kinds(kernel, len(reading.fixed)), reading.fixed)
    world = World(code, policy=policy, without=without)
    world.least = least(code)
    world.few = few(code)
    world.depth = turn_of_a_ring(code)
    world.follows_turns = reading.together
    walk = family_of(kernel).walk if world.turns else None
    world.walk = walk.name if walk is not None else None
    if reading.together:
        world.pinned = {atom: world.least.get(atom, 0) for atom in private(code)}
    return world


def _once(found: list[Violation]) -> Iterator[Violation]:
    seen: set[tuple[str, int, int]] = set()
    for v in found:
        key = v.kind, v.later.line, v.earlier.line if v.earlier else 0
        if key not in seen:
            seen.add(key)
            yield v


def least(code: Code) -> dict[int, int]:
    """Return the least values that the kernel requires of what no thread knows."""
    lows: dict[Expr, int] = {}
    for condition in code.kernel.requires:
        match condition:
            case Op(Kind.LE | Kind.LT as kind, int() as low, atom):
                lows[atom] = max(low + (kind is Kind.LT), lows.get(atom, 0))
            case _:
                pass
    for atom in lows:
        code.atoms.number(atom)
    found = {number: _lowest(atom, lows) for atom, number in code.atoms.found.items()}
    return {number: max(low, 0) for number, low in found.items() if low is not None}


def _lowest(expr: Expr, lows: Mapping[Expr, int]) -> int | None:
    """Return a number that an expression is never less than; None if that is not plain to see."""
    if isinstance(expr, int):
        return expr
    if expr in lows:
        return lows[expr]
    match expr:
        case Op(Kind.ADD, a, b):
            left, right = _lowest(a, lows), _lowest(b, lows)
            return None if left is None or right is None else left + right
        case Op(Kind.FLOORDIV, a, int() as by) if by > 0:
            left = _lowest(a, lows)
            return None if left is None else left // by
        case _:
            return None


def start(world: World) -> State:
    """Return the state in which all threads are about to begin."""
    agents = [Agent(kind, 0, {}, registers=0) for kind in world.kinds]
    return State(agents)


def explore(world: World) -> tuple[int, str]:
    """Look at all states of a reading; return how many there are, and why some were left.

    Single arrivals are followed only where a phase seems to be entered early without: they tell
    that a phase is over to threads that have not waited for it, which few kernels need.
    """
    before, checked = dict(world.violations), world.checked
    found = _explored_once(world)
    early = any(v.rule is Rule.PHASE_EARLY for v in world.violations.values())
    if early and not world.follows_arrivals:
        world.follows_arrivals = True
        world.violations, world.checked = before, checked
        found = _explored_once(world)
    return found


def _explored_once(world: World) -> tuple[int, str]:
    seen: set[object] = set()
    todo = [start(world)]
    why = ""
    while todo:
        state = todo.pop()
        while True:
            try:
                settle(world, state)
                if world.failed:
                    return len(seen), ""
                if over(world, state):
                    break
            except ForkError as fork:
                todo += forked(world, state, fork)
                break
            except ChoiceError as choice:
                todo += chosen(state, choice)
                break
            except ContestError as contest:
                todo += contest.states
                break
            if counting(world, state):
                state.pass_gate()
                continue
            key = normal(world, state)
            if key in seen:
                break
            seen.add(key)
            if max(len(state.ranges), state.lead) > AHEAD:
                why = f"a role runs more than {AHEAD} loops, or rounds, ahead of another"
                break
            if len(seen) > STATES:
                return len(seen), f"more than {STATES} states, and none repeats all others"
            state.pass_gate()
        if world.failed:
            return len(seen), ""
    return len(seen), why


def over(world: World, state: State) -> bool:
    """Whether no thread can go on: all are done, and that is judged, or they wait for ever.

    Raises
    ------
    ContestError
        If it has to be decided who gets registers first.
    """
    if all(a.done for a in state.agents):
        ended(world, state)
    elif not any(a.gate for a in state.agents):
        stuck(world, state)
    else:
        return False
    return True


def chosen(state: State, choice: ChoiceError) -> list[State]:
    """Return the states in which a test has either answer, yes last."""
    out = []
    for answer in (False, True):
        other = state.copy()
        other.chosen[choice.test] = answer
        out.append(other)
    return out


def forked(world: World, state: State, fork: ForkError) -> list[State]:
    """Return the states in which a count is decided, the smallest last."""
    known = known_of(world, state, fork.unknown)
    more = state.copy()
    more.ranges[fork.unknown] = Range(fork.value)
    out = [more]
    for value in range(fork.value - 1, known.low - 1, -1):
        other = state.copy()
        other.ranges[fork.unknown] = Range(value, exact=True)
        out.append(other)
    return out


def _loose(code: Code) -> bool:
    """Whether some loop may be given other lengths than a launch can."""
    atoms: list[int] = []
    for i in (i for p in code.programs for i in p):
        if isinstance(i, Enter) and i.atom >= 0:
            if i.depth:
                return True
            atoms.append(i.atom)
    return any(
        len([i for i in p if isinstance(i, Enter) and i.atom == atom]) > 1
        for p in code.programs
        for atom in set(atoms)
    )


def _confirmed(
    world: World, code: Code, policy: str, without: frozenset[Rule], reading: Reading
) -> bool:
    """Whether one length for each loop, the same in every round, shows a violation too."""
    shown = max(v.trips for v in world.violations.values() if v.severity == "error")
    # what shows late is asked late first: the short lengths before it have shown nothing
    late = (shown, shown + 1) if shown >= PINNED else ()
    for trips in (*late, *range(PINNED)):
        again = opened(world.kernel, reading, policy=policy, without=without)
        inner = {
            i.atom
            for p in code.programs
            for i in p
            if isinstance(i, Enter) and i.atom >= 0 and (i.depth or not _nests(code))
        }
        again.pinned |= dict.fromkeys(inner | world.parted, trips)
        explore(again)
        if again.failed:
            world.violations = again.violations
            return True
    return False


def _nests(code: Code) -> bool:
    return any(isinstance(i, Enter) and i.depth for p in code.programs for i in p)
