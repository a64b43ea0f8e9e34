"""Threads that go from turn to turn of a loop: which turns are over, and what is left of them.

A semaphore whose index goes on along a loop is another integer in every turn of it, and a box that
rolls along a loop is elsewhere in every turn.  Both are known by the turn, and in a normal form by
how far that is beyond the *floor*: the first turn that any thread may still come to.

Notes
-----
A semaphore below the floor is never used again: nobody comes back to a turn, since the loop is
entered once.  So it is judged as at the end of the launch, and forgotten.  That leaves few at a
time, whose events take the places of those of `SLOTS` turns before.

Of a box that rolls, what the states keep is where it was last, so that an access at an earlier
place might be compared with too little: that is never taken for a proof (`behind`).
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.expr import Expr, Var, substitute, variables
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.program.boxes import alike, place
from oracles.prover.reachability.program.code import Do, Enter
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import Agent, Semaphore, State, Where
from oracles.prover.reachability.world import World

SLOTS = 2
"""Turns whose semaphores are told apart at a time."""
NOBODY = -1
"""The floor of a loop that all threads are through with."""
Key = tuple[str, Expr]


def index_of(do: Do, a: Agent) -> Expr:
    """Return which integer of a semaphore a statement means now."""
    assert do.index is not None, "turns have an index"
    return substitute(do.index, {Var(n): v for n, v in a.env.items()})


def key_of(world: World, state: State, a: Agent, do: Do, name: str) -> Key:
    """Return the semaphore that a statement means now; a new one is put down.

    Raises
    ------
    UnsupportedError
        If it need not be another one in another turn of a loop, or turns run too far apart.
    """
    index = index_of(do, a)
    key = name, index
    if key in state.semaphores:
        return key
    at: int | None = None
    if index != do.index:
        if world.walk is not None:
            at = a.env[world.walk]
        elif not isinstance(index, int):
            raise UnsupportedError(f"{do.site.where}: which integers are different is not known")
    if at is not None:
        forget(world, state)
        for one in state.semaphores.values():
            if one.at is not None and one.at != at and (one.at - at) % SLOTS == 0:
                raise UnsupportedError(f"{do.site.where}: CTAs that share tiles are too far apart")
    state.semaphores[key] = Semaphore(at=at)
    return key


def slot_of(key: Key, semaphore: Semaphore) -> tuple[object, ...]:
    """Return the name of a semaphore in events, which later ones take over."""
    return key if semaphore.at is None else (key[0], "turn", semaphore.at % SLOTS)


def forget(world: World, state: State) -> None:
    """Drop the semaphores that nobody comes to any more, after a look at what they are left at."""
    if world.walk is None:
        return
    least = floor(world, state, world.walk)
    for key, one in list(state.semaphores.items()):
        if one.at is not None and (least == NOBODY or one.at < least):
            clean(world, state, one)
            del state.semaphores[key]


def clean(world: World, state: State, semaphore: Semaphore) -> None:
    """Check that a semaphore is left at 0, as the next launch expects it."""
    world.checked += 1
    if semaphore.value:
        says = f"leaves {semaphore.value}, which is not the 0 that the next launch expects"
        site = world.code.sites[semaphore.site]
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, -1, says)


def floor(world: World, state: State, name: str) -> int:
    """Return the first turn of the loop of an index that any thread may still come to."""
    least = NOBODY
    for a in state.agents:
        if a.done:
            continue
        spans = _spans(world, a.kind.index, name)
        if name in a.env and len(spans) == 1:
            turn = a.env[name]
        elif any(a.at < end for _, end in spans):
            turn = 0
        else:
            continue
        least = turn if least == NOBODY else min(least, turn)
    return least


def _spans(world: World, index: int, name: str) -> tuple[tuple[int, int], ...]:
    """Return where a program has the loops of an index; two, for one that it comes back to."""
    key = index, name
    if key not in world.spans:
        program = world.code.programs[index]
        loops = [(at, i.end, i.name) for at, i in enumerate(program) if isinstance(i, Enter)]
        found = [(at, end) for at, end, other in loops if other == name]
        again = [span for span in found for at, end, _ in loops if at < span[0] < end]
        world.spans[key] = (*found, *again)
    return world.spans[key]


# --- boxes that roll ------------------------------------------------------------------------------


def behind(world: World, state: State, do: Do, a: Agent, where: Where) -> bool:
    """Whether a rolling box has been at a later place already, by an access of anybody."""
    now = place(do, a, world.rolling)
    here = world.region(where)
    return any(
        state.farthest[other] > now
        for other in (where, *world.overlaps[where])
        if other in state.farthest and alike(here, world.region(other))
    )


def came(world: World, state: State, do: Do, a: Agent, where: Where, *, writes: bool) -> None:
    """Put down where a rolling box is accessed."""
    now = place(do, a, world.rolling)
    state.farthest[where] = max(state.farthest.get(where, now), now)
    if writes:
        state.put[where] = now


def written_here(world: World, state: State, do: Do, a: Agent, other: Where, here: Where) -> bool:
    """Whether a region that was written was so where a box now is, as far as is known."""
    if not alike(world.region(other), world.region(here)):
        return True
    return state.put.get(other) == place(do, a, world.rolling)


def relative(world: World, state: State) -> object:
    """Return semaphores and rolling boxes by how far they are beyond the floor."""
    forget(world, state)
    names = {name for where in state.farthest for name in _rolls_by(world, where)}
    names |= {world.walk} if world.walk is not None and state.semaphores else set()
    floors = {name: floor(world, state, name) for name in sorted(names)}
    turns = tuple(
        tuple(a.env[name] - least if name in a.env else None for a in state.agents)
        for name, least in floors.items()
    )
    beyond = tuple(
        (where, *(_beyond(found.get(where), floors[name]) for found in (state.farthest, state.put)))
        for where in sorted(state.farthest)
        for name in _rolls_by(world, where)
    )
    events = tuple(
        (entry.event, _beyond(state.places.get(entry.event), floors[name]))
        for where, entries in sorted(state.memory.items())
        if where in state.farthest
        for name in _rolls_by(world, where)
        for entry in entries
    )
    slots = tuple(least % SLOTS for name, least in floors.items() if name == world.walk)
    return turns, beyond, events, slots


def near(key: Key, semaphore: Semaphore, world: World, state: State) -> object:
    """Return the semaphore's name in a normal form."""
    if semaphore.at is None or world.walk is None:
        return key
    return key[0], semaphore.at - floor(world, state, world.walk)


def _beyond(at: tuple[int, ...] | None, least: int) -> int:
    """Return how far a place is beyond the floor; all those below it are one."""
    return NOBODY if at is None or least == NOBODY else max(at[0] - least, NOBODY)


def _rolls_by(world: World, where: Where) -> Iterator[str]:
    """Yield the index of the loop along which a box rolls, if it is one alone."""
    rolls = world.region(where).rolls
    names = {v.name for on in rolls for atom, _ in on for v in variables(atom)} & world.rolling
    if len(names) == 1:
        yield from names
