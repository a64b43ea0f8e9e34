"""How threads go from statement to statement, and what they must decide on the way.

No thread knows the trip counts.  Where one matters and is open, the state forks: `ForkError` asks
for a state in which it is decided.  A count that several loops use, or one loop several times, is
decided for all uses at once while it is small (`few`), and for each use beyond.  Every loop of
unknown length has a gate in front of each iteration, so that the threads that run it go round
together as far as they can.
"""

from __future__ import annotations

from fuser.expr import Expr, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.program.code import (
    Asked,
    AtLeast,
    Branch,
    Code,
    Condition,
    Do,
    Enter,
    Jump,
    Known,
    Next,
    Set,
    Several,
)
from oracles.prover.reachability.state import Agent, Range, State, Unknown
from oracles.prover.reachability.step import execute
from oracles.prover.reachability.world import World

EVERY = -1
"""The turn of an unknown that stands for all its uses."""


SHORT = 64
"""Rounds of a loop of decided length that are gone through without comparing states."""


class ForkError(Exception):
    """A number that no thread knows must be compared with `value` before anyone goes on."""

    def __init__(self, unknown: Unknown, value: int) -> None:
        super().__init__(f"{unknown.atom} >= {value}?")
        self.unknown = unknown
        self.value = value


class ChoiceError(Exception):
    """A condition on parameters must be decided before anyone goes on."""

    def __init__(self, test: Expr) -> None:
        super().__init__(f"{test}?")
        self.test = test


Watched = tuple[object, int]
"""What threads stand still for, and a number that is another one when they need not any more."""


def settle(world: World, state: State) -> None:
    """Let all threads go on until each waits, for another or at a gate.

    Who stands still is not asked again until what it waits for has changed; in the end all are.
    """
    asleep: dict[int, Watched] = {}
    while True:
        moved = skipped = False
        for a in state.agents:
            if a.done or a.waiting or a.gate:
                continue
            index = a.kind.index
            if index in asleep and _sleeps(asleep[index], world, state, a):
                skipped = True
            elif advance(world, state, a):
                moved = True
                asleep.pop(index, None)
            elif (watched := _watched(world, state, a)) is not None:
                asleep[index] = watched
        if not moved and not skipped:
            return
        if not moved:
            asleep.clear()


def _sleeps(was: Watched, world: World, state: State, a: Agent) -> bool:
    """Whether what threads stand still for is as it was."""
    now = _watched(world, state, a)
    return now is not None and now[0] is was[0] and now[1] == was[1]


def _watched(world: World, state: State, a: Agent) -> Watched | None:
    """Return what threads stand still for: a count to be decided, a phase, the cluster."""
    i = world.code.programs[a.kind.index][a.at]
    match i:
        case Set():
            return i, 0
        case Do(site) if isinstance(site.stmt, kir.MBarrierWaitParity):
            where = a.kind.cta, site.stmt.barrier.name, i.values["bar"](a.env)
            phase = state.phases.get(where)
            return phase, phase.count if phase is not None else 0
        case Do(site) if isinstance(site.stmt, kir.ClusterWait):
            return state.turns.get((-1, 1)), 0
        case _:
            return None


def advance(world: World, state: State, a: Agent) -> bool:
    """Let threads of one kind go on as far as they can; return whether they did."""
    program = world.code.programs[a.kind.index]
    moved = False
    while True:
        # no statement is left: loops and positions of these threads are nobody's business
        if a.at > world.last_deeds[a.kind.index]:
            a.done, a.env, a.loops, a.turns = True, {}, (), ()
            return True
        if a.waiting:
            return moved
        i = program[a.at]
        before = a.at
        match i:
            case Do():
                k = a.env[a.loops[-1][2]] if a.loops else -1
                done = execute(world, state, a, i, k)
                if world.log is not None and (done or a.waiting or a.at != before):
                    world.log.add(state, a, i, k)
                if not done:
                    return moved or bool(a.waiting) or a.at != before
                return True
            case Set(name):
                value = _exact(world, state, a, i)
                if value is None:
                    return moved
                a.env[name] = value
                a.at += 1
            case Enter():
                if not _enter(world, state, a, i):
                    return moved
            case Next(enter):
                a.env[a.loops[-1][2]] += 1
                depth = sum(1 for loop in a.loops if loop[1] is not None)
                a.turns = tuple(t for t in a.turns if t[0] < depth)
                a.at = enter
            case Branch():
                yes = decide(world, state, a, i.test)
                a.at = a.at + 1 if yes else i.orelse
            case Jump(to):
                a.at = to
        moved = True


def _enter(world: World, state: State, a: Agent, i: Enter) -> bool:
    """Begin a loop, or its next iteration, or leave it; False in front of a closed gate."""
    if not a.loops or a.loops[-1][0] != i.number:
        depth = sum(1 for loop in a.loops if loop[1] is not None)
        unknown = None
        if i.atom >= 0:
            outer = tuple(a.env[loop[2]] for loop in a.loops if loop[1] is not None)
            atom = i.atom
            unknown = Unknown(atom, outer, sum(1 for t in a.turns if t == (depth, atom)))
        ordinal = sum(1 for t in a.turns if t[0] == depth)
        a.loops = (*a.loops, (i.number, unknown, i.name, ordinal))
        a.env[i.name] = 0
    symbolic = a.loops[-1][1] is not None
    if symbolic and a.gate is None:
        a.gate = tuple(
            part for loop in a.loops if loop[1] is not None for part in (loop[3], a.env[loop[2]])
        )
        return False
    if symbolic and a.gate:
        return False
    goes_on = decide(world, state, a, i.test)
    if goes_on:
        a.at += 1
    else:
        _, unknown, name, _ = a.loops[-1]
        a.loops = a.loops[:-1]
        del a.env[name]
        if unknown is not None:
            depth = sum(1 for loop in a.loops if loop[1] is not None)
            a.turns = (*a.turns, (depth, unknown.atom))
        a.at = i.end
    a.gate = None
    return True


def unknown_of(world: World, a: Agent, atom: int) -> Unknown:
    """Return which use of an unknown these threads mean."""
    depth = 0
    outer: list[int] = []
    for _, unknown, name, _ in a.loops:
        if unknown is not None:
            if unknown.atom == atom:
                return unknown
            depth += 1
            outer.append(a.env[name])
    if atom not in world.code.counts:
        return Unknown(atom, (), 0)
    count = sum(1 for t in a.turns if t == (depth, atom))
    return Unknown(atom, tuple(outer), max(0, count - 1))


def few(code: Code) -> dict[int, int]:
    """Return up to which number a count is decided for all its uses at once, by unknown.

    A count that several loops share, or that a loop inside another uses each time it is entered, is
    one number: a launch has it the same everywhere.  Told apart while it is small, it is that here
    too; beyond, every use has a length of its own, which is more than launches can show.  Where one
    turn of the longest ring fits into a loop, what loops before it have left is gone when it ends,
    so that states do not multiply by the lengths of earlier loops.
    """
    most = turn_of_a_ring(code)
    meant = {number: atom for atom, number in code.atoms.found.items()}
    out: dict[int, int] = {}
    for program in code.programs:
        entered: set[int] = set()
        for i in program:
            if isinstance(i, Enter) and i.atom >= 0:
                told = {v.name for v in variables(meant[i.atom])} <= code.atoms.names
                if told and (i.depth or i.atom in entered):
                    out[i.atom] = most
                entered.add(i.atom)
    return out


def turn_of_a_ring(code: Code) -> int:
    """Return more rounds than one turn of the longest ring takes."""
    rings = [b.slots for b in code.kernel.buffers] + [m.slots for m in code.kernel.barriers]
    return max(rings, default=1) + 1


def counting(world: World, state: State) -> bool:
    """Whether the threads that go on next are in a loop that has a decided number of rounds to go.

    Such a state need not be compared with others: none before it on its way is the same, and after
    few rounds the loop is over, or may be.
    """
    first = min(a.gate for a in state.agents if a.gate)
    for a in state.agents:
        if a.gate == first:
            unknown, k = a.loops[-1][1], a.env[a.loops[-1][2]]
            assert unknown is not None, "gates are of loops of unknown length"
            known, most = known_of(world, state, unknown), world.few.get(unknown.atom, 0)
            if not (known.low <= SHORT if known.exact else 0 < k < min(known.low, most)):
                return False
    return True


def known_of(world: World, state: State, unknown: Unknown) -> Range:
    """Return what is known of a count in one of its uses."""
    pinned = world.pinned.get(unknown.atom)
    if pinned is not None:
        return Range(pinned, exact=True)
    known = state.ranges.get(unknown)
    if known is None and unknown.turn != EVERY and unknown.atom in world.few:
        known = state.ranges.get(everywhere(unknown))
    return known or Range(world.least.get(unknown.atom, 0))


def everywhere(unknown: Unknown) -> Unknown:
    """Return the count itself, of which an unknown is one use."""
    return Unknown(unknown.atom, (), EVERY)


def _exact(world: World, state: State, a: Agent, i: Set) -> int | None:
    """Return the next value of a variable, None while somebody else has to decide it."""
    value = i.value(a.env)
    for atom, times in i.terms:
        known = known_of(world, state, unknown_of(world, a, atom))
        if not known.exact:
            return None
        value += times * known.low
    return value


def decide(world: World, state: State, a: Agent, test: Condition) -> bool:
    """Decide a condition.

    Raises
    ------
    ForkError
        If a trip count has to be decided first.
    ChoiceError
        If the condition itself has to be.
    """
    match test:
        case Known(value):
            return value(a.env) != 0
        case AtLeast(atom, bound, less):
            return _at_least(world, state, unknown_of(world, a, atom), bound(a.env)) != less
        case Several(first, second, every):
            if decide(world, state, a, first) != every:
                return not every
            return decide(world, state, a, second)
        case Asked(expr):
            return _chosen(world, state, a, expr)


def _chosen(world: World, state: State, a: Agent, test: Expr) -> bool:
    """Decide a condition on parameters once for all threads."""
    plain = substitute(test, {Var(name): value for name, value in a.env.items()})
    if isinstance(plain, int):
        return plain != 0
    if plain != test and any(loop[1] is not None for loop in a.loops):
        moving = {loop[2] for loop in a.loops if loop[1] is not None}
        fixed = substitute(test, {Var(n): v for n, v in a.env.items() if n not in moving})
        if fixed != plain:
            raise UnsupportedError(f"the condition `{test}` need not repeat along the loop")
    if plain not in state.chosen:
        raise ChoiceError(plain)
    return state.chosen[plain]


def _at_least(world: World, state: State, unknown: Unknown, value: int) -> bool:
    known = known_of(world, state, unknown)
    if known.low >= value:
        return True
    if known.exact:
        return False
    few = world.few.get(unknown.atom, 0)
    if known.low < few:
        raise ForkError(everywhere(unknown), min(value, few))
    raise ForkError(unknown, value)
