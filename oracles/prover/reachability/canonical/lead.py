"""Loops of one length that a role has run through, or runs far ahead in, before another begins.

Nothing tells how long such a loop is but the threads in it, and its rounds repeat; so the rounds of
whoever comes later would be followed for the first few lengths only.  Up to a few rounds the lead
is part of a state; beyond, the late ones have a length of their own, of which nothing is known but
that it is not small.  That is more than a launch can show, as with two loops in a row
(`flow.few`).
"""

from __future__ import annotations

from oracles.prover.reachability.canonical.compared import within
from oracles.prover.reachability.program.code import Enter, Set
from oracles.prover.reachability.state import Agent, Range, State, Unknown
from oracles.prover.reachability.world import World

APART = 1 << 16
"""Added to the turn of a use that goes its own way."""


def leads(world: World, state: State, bases: dict[Unknown, int]) -> dict[Unknown, int]:
    """Return how far uses of counts are ahead of threads yet to begin; let go who is far ahead.

    Parameters
    ----------
    world : World
        What is the same in every state.
    state : State
        The state; uses that are far ahead are told apart in it.
    bases : dict
        Round of the slowest thread, by use; changed with the state.
    """
    out: dict[Unknown, int] = {}
    for unknown in {*bases, *state.ranges}:
        known = state.ranges.get(unknown)
        over = unknown not in bases
        if unknown.turn >= APART:
            if over:
                del state.ranges[unknown]
            continue
        if unknown.turn < 0 or (over and not (known and known.exact)):
            continue
        if unknown.atom in world.pinned or not _awaited(world, state, unknown):
            continue
        rounds = known.low if over and known else bases[unknown]
        if rounds < world.depth or _added(world, state, unknown.atom):
            out[unknown] = rounds
        else:
            world.parted.add(unknown.atom)
            _part(state, unknown, bases, world.depth)
            out[unknown] = world.depth
    state.lead = max(out.values(), default=0)
    return out


def _part(state: State, unknown: Unknown, bases: dict[Unknown, int], depth: int) -> None:
    """Give a use of a count to the threads that run it, and another to those yet to begin."""
    if unknown in bases:
        theirs = unknown._replace(turn=unknown.turn + APART)
        bases[theirs] = bases.pop(unknown)
        state.ranges[theirs] = state.ranges.pop(unknown, Range(depth))
        for a in state.agents:
            a.loops = tuple(
                (number, theirs if use == unknown else use, name, ordinal)
                for number, use, name, ordinal in a.loops
            )
    state.ranges[unknown] = Range(depth)


def _awaited(world: World, state: State, unknown: Unknown) -> bool:
    """Whether some threads may still begin a loop of this length."""
    return any(
        not a.done
        and all(use != unknown for _, use, _, _ in a.loops)
        and _may_enter(world, a, unknown)
        for a in state.agents
    )


def _may_enter(world: World, a: Agent, unknown: Unknown) -> bool:
    many = len(unknown.outer)
    rounds = tuple(a.env[loop[2]] for loop in a.loops if loop[1] is not None)
    met = rounds[:many] == unknown.outer
    if rounds[:many] > unknown.outer:
        return False
    if met and sum(1 for t in a.turns if t == (many, unknown.atom)) > unknown.turn:
        return False
    return any(
        a.at <= (inner if met and many else last)
        for last, inner in _entrances(world, a.kind.index, unknown.atom)
    )


def _entrances(world: World, index: int, atom: int) -> tuple[tuple[int, int], ...]:
    """Return from where loops of a length may still be begun: at all, and in the same round."""
    key = index, atom
    if key not in world.entrances:
        program = world.code.programs[index]
        world.entrances[key] = tuple(
            within(program, at, atom)
            for at, i in enumerate(program)
            if isinstance(i, Enter) and i.atom == atom
        )
    return world.entrances[key]


def _added(world: World, state: State, atom: int) -> bool:
    """Whether somebody may still add the count to a variable, and so must know it."""
    return any(
        not a.done
        and any(
            isinstance(i, Set) and any(atom == number for number, _ in i.terms)
            for i in world.code.programs[a.kind.index]
        )
        for a in state.agents
    )
