"""How far counts are known beyond what they are compared with, as far as that matters later.

A count that a loop still runs is relative to the loop's rounds in a normal form, and so is what is
known of it.  That is enough for the loop's own test.  Whoever compares the count with anything else
sees more: with a number, that is a threshold, below which what is known counts as it is and beyond
which it counts no more (`limit`); with a variable that goes on and on, the distance counts
(`margins`).
"""

from __future__ import annotations

from oracles.prover.reachability.canonical.compared import Against, comparisons
from oracles.prover.reachability.flow import known_of, unknown_of
from oracles.prover.reachability.state import Agent, State, Unknown
from oracles.prover.reachability.world import World


def margins(world: World, state: State, a: Agent) -> tuple[int, ...]:
    """Return how far counts are known beyond the variables that threads compare them with.

    A loop's own counter is left out: it is relative to the loop's rounds, as is the loop's length.
    """
    if a.done:
        return ()
    out = []
    for one in _comparisons(world, a.kind.index):
        if not one.names:
            continue
        unknown = unknown_of(world, a, one.test.atom)
        if a.at <= one.last and not one.names <= {
            name for _, u, name, _ in a.loops if u == unknown
        }:
            env = {**dict.fromkeys(one.names, 0), **a.env}
            known = known_of(world, state, unknown)
            margin = known.low - one.test.bound(env)
            out.append(max(margin, -1) if one.rises and known.exact else margin)
    return tuple(out)


def limit(world: World, state: State, unknown: Unknown) -> int:
    """Return the largest number that somebody may still compare a count with in this use."""
    most = 0
    for a in state.agents:
        if a.done:
            continue
        for one in _comparisons(world, a.kind.index):
            more = one.test.atom == unknown.atom and not one.names and one.most > most
            if more and _may_ask(a, one, unknown):
                most = one.most
    return most


def _may_ask(a: Agent, one: Against, unknown: Unknown) -> bool:
    if a.at > one.last:
        return False
    rounds = tuple(a.env[loop[2]] for loop in a.loops if loop[1] is not None)
    many = len(unknown.outer)
    if not many or not rounds:
        return True
    if rounds[:many] == unknown.outer:
        return a.at <= one.inner
    return rounds[:many] < unknown.outer


def _comparisons(world: World, index: int) -> tuple[Against, ...]:
    if index not in world.comparisons:
        world.comparisons[index] = tuple(comparisons(world.code, index))
    return world.comparisons[index]
