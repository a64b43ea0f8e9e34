"""How threads go from statement to statement, and what they must decide on the way.

No thread knows the trip counts.  Where one matters and is open, the state forks: `ForkError` asks
for a state in which it is decided.  Every loop of unknown length has a gate in front of each
iteration, so that the threads that run it go round together as far as they can.
"""

from __future__ import annotations

from fuser.expr import Expr, Var, substitute
from oracles.arithmetic import UnsupportedError
from oracles.closure_code import Branch, Do, Enter, Jump, Next, Set
from oracles.closure_linear import Asked, AtLeast, Condition, Known, Several
from oracles.closure_state import Agent, Range, State, Unknown
from oracles.closure_step import execute
from oracles.closure_world import World


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


def settle(world: World, state: State) -> None:
    """Let all threads go on until each waits, for another or at a gate."""
    moved = True
    while moved:
        moved = False
        for a in state.agents:
            if not a.done and advance(world, state, a):
                moved = True


def advance(world: World, state: State, a: Agent) -> bool:
    """Let threads of one kind go on as far as they can; return whether they did."""
    program = world.code.programs[a.kind.index]
    moved = False
    while True:
        if a.at >= len(program):
            a.done = True
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


def _unknown(world: World, a: Agent, atom: int) -> Unknown:
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


def _range(world: World, state: State, unknown: Unknown) -> Range:
    pinned = world.pinned.get(unknown.atom)
    if pinned is not None:
        return Range(pinned, exact=True)
    return state.ranges.get(unknown, Range(world.least.get(unknown.atom, 0)))


def _exact(world: World, state: State, a: Agent, i: Set) -> int | None:
    """Return the next value of a variable, None while somebody else has to decide it."""
    value = i.value(a.env)
    for atom, times in i.terms:
        known = _range(world, state, _unknown(world, a, atom))
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
            return _at_least(world, state, _unknown(world, a, atom), bound(a.env)) != less
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
    known = _range(world, state, unknown)
    if known.low >= value:
        return True
    if known.exact:
        return False
    raise ForkError(unknown, value)
