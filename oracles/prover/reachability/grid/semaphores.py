"""Turns of CTAs on a semaphore: whoever waits for a value follows what its release has released.

CTAs of a family are followed together, each as far as it can go.  A semaphore's value in the
execution at hand is its value in all of them, since each release is asked to be ordered after the
one before and after all who saw that value, and no wait can see an older value that is the same.

Source: PTX ISA, "Memory Consistency Model", release and acquire patterns.
"""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.grid.groups import family_of
from oracles.prover.reachability.grid.walk import Key, clean, index_of, key_of, slot_of
from oracles.prover.reachability.program.code import Do, Site
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, ONES, Agent, Semaphore, State, Turn
from oracles.prover.reachability.world import World


def take_turn(
    world: World, state: State, a: Agent, do: Do, stmt: kir.BlockSerializeWait, k: int
) -> None:
    """Wait for a turn with all threads of a role, or of the CTA."""
    site, cta = do.site, a.kind.cta
    key = come_together(world, state, a, do, stmt, "turn", k)
    if key is None:
        return
    semaphore = state.semaphores[key]
    semaphore.asking = (*semaphore.asking, (cta, do.values["turn"](a.env), site.index, k))
    _serve(world, state, key, semaphore)


def come_together(
    world: World,
    state: State,
    a: Agent,
    do: Do,
    stmt: kir.BlockSerializeWait | kir.LastArriving,
    what: str,
    k: int,
) -> Key | None:
    """Wait for all threads of a role; return which integer they then mean, once all are here.

    None where some are still to come.  Where turns are not followed all go on at once.
    """
    site, cta = do.site, a.kind.cta
    _whole_role(world, state, site, stmt.barrier, k)
    threads = site.place.warps * kir.WARP
    meet = state.turns.setdefault(_place(cta, site), Turn(threads))
    _one_integer(world, state, meet, a, do, k)
    meet.count += a.kind.count
    meet.waiting = (*meet.waiting, a.kind.index)
    a.waiting = what
    if meet.count < threads:
        return None
    if not world.follows_turns:
        _bounds(world, state, do, stmt.semaphore, do.index, k)
        go_on(state, cta, site, 0)
        return None
    return _integer(world, state, a, do, stmt.semaphore, k)


def known_to(state: State, cta: int, site: Site) -> int:
    """Return what the threads of a role know together that wait at a statement."""
    facts = 0
    for index in state.turns[_place(cta, site)].waiting:
        facts |= state.agents[index].mine
    return facts


def _whole_role(world: World, state: State, site: Site, barrier: int, k: int) -> None:
    """Check that all threads of a role reach a statement, which join by a barrier of their own."""
    world.checked += 1
    if site.index not in world.joined_wrongly:
        world.joined_wrongly[site.index] = _joined_wrongly(world, site, barrier)
    says = world.joined_wrongly[site.index]
    if says:
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)


def _joined_wrongly(world: World, site: Site, barrier: int) -> str:
    """Return why a statement does not join the threads of one role alone, if so."""
    says = ""
    if site.elected:
        says = f"`{line(site.stmt)}` is executed by all threads of a role only"
    for other in world.code.sites:
        match other.stmt:
            case (
                kir.BlockSync(number)
                | kir.NamedArrive(number)
                | kir.BlockSerializeWait(barrier=number)
                | kir.GridSync(barrier=number)
                | kir.LastArriving(barrier=number)
            ) if number == barrier and _role(other) != _role(site):
                says = f"its threads join by barrier {barrier}, which {other.where} uses, too"
            case kir.GridSync() | kir.LastArriving() if type(other.stmt) is type(site.stmt):
                if _role(other) != _role(site):
                    says = f"one role of each CTA meets, and {other.where} is another's"
            case _:
                pass
    return says


def _role(site: Site) -> tuple[int, int]:
    return site.place.first, site.place.warps


def _place(cta: int, site: Site) -> tuple[int, int]:
    """Return where the threads of a role wait together, for a turn or for the last CTA."""
    return cta, -1 - site.place.first


def _one_integer(world: World, state: State, meet: Turn, a: Agent, do: Do, k: int) -> None:
    """Check that those who wait together do so at one integer of a semaphore."""
    for number in meet.waiting[:1]:
        b = state.agents[number]
        other = world.code.programs[number][b.at]
        if isinstance(other, Do) and index_of(other, b) != index_of(do, a):
            says = "is reached by threads that mean different integers of the semaphore"
            world.wrong(state, Rule.COLLECTIVE, "collective", do.site, k, says)


def _integer(world: World, state: State, a: Agent, do: Do, semaphore: kir.Semaphore, k: int) -> Key:
    """Return which integer of a semaphore a statement means now, which has to be there."""
    key = key_of(world, state, a, do, semaphore.name)
    _bounds(world, state, do, semaphore, key[1], k)
    return key


def _bounds(
    world: World, state: State, do: Do, semaphore: kir.Semaphore, index: Expr | None, k: int
) -> None:
    """Check that a semaphore has an integer, where its number is known."""
    count = semaphore.count
    if isinstance(index, int) and isinstance(count, int) and not 0 <= index < count:
        says = f"{semaphore.name}[{index}] is outside its {count}"
        world.wrong(state, Rule.BOUNDS, "bounds", do.site, k, says)


def go_on(state: State, cta: int, site: Site, facts: int) -> None:
    """Let all threads of a role go on, knowing what each of them knew, and more."""
    meet = state.turns[_place(cta, site)]
    facts |= known_to(state, cta, site)
    for index in meet.waiting:
        other = state.agents[index]
        state.learn(other, facts)
        other.waiting = ""
        other.at += 1
    meet.count, meet.waiting = 0, ()


def _serve(world: World, state: State, key: Key, semaphore: Semaphore) -> None:
    """Let those go on who ask for the value that a semaphore has."""
    for asked in semaphore.asking:
        cta, turn, number, k = asked
        if turn != semaphore.value:
            continue
        site = world.code.sites[number]
        semaphore.asking = tuple(one for one in semaphore.asking if one != asked)
        facts = _seen(world, state, semaphore, cta, site, turn, k)
        took = world.event(state, "took", slot_of(key, semaphore), cta, number, len(semaphore.past))
        state.when[took] = k, number
        semaphore.waiters = (*semaphore.waiters, took)
        go_on(state, cta, site, facts | 1 << FACTS * took)


def _seen(
    world: World, state: State, semaphore: Semaphore, cta: int, site: Site, turn: int, k: int
) -> int:
    """Judge a wait that sees its value; return what it then knows."""
    stmt = site.stmt
    assert isinstance(stmt, kir.BlockSerializeWait), "waits only"
    mine = [state.agents[index].mine for index in state.turns[_place(cta, site)].waiting]
    world.checked += 1
    for value, ended in semaphore.past:
        if value == turn and not all(known >> FACTS * ended & 1 for known in mine):
            says = f"may see a turn {turn} that came before, and goes on too early"
            world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    if semaphore.owner in (-1, cta):
        return semaphore.before
    residency = world.kernel.residency
    if residency == "any" or (residency == "ticket" and semaphore.owner > cta):
        says = "waits for a CTA that may never run: " + (
            "nothing is known about CTAs running at once"
            if residency == "any"
            else "it draws a later ticket"
        )
        world.wrong(state, Rule.RESIDENCY, "residency", site, k, says)
    facts = 1 << FACTS * semaphore.end
    if stmt.scope is not kir.Scope.GPU:
        # the turn comes all the same; what the CTA of the turn before has done may not be seen
        state.lacking |= semaphore.before & ONES
    elif Rule.TURN_ACQUIRES not in world.off:
        facts |= semaphore.before
    return facts


def release_turn(
    world: World,
    state: State,
    a: Agent,
    do: Do,
    stmt: kir.BlockSerializeRelease,
    k: int,
) -> None:
    """Give the turn away, to a CTA that then knows what this thread does."""
    site = do.site
    world.checked += 1
    if not a.kind.alone:
        says = f"is executed by {a.kind.count} threads"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    if not world.follows_turns:
        _bounds(world, state, do, stmt.semaphore, do.index, k)
        return
    key = _integer(world, state, a, do, stmt.semaphore, k)
    semaphore, turn = state.semaphores[key], do.values["turn"](a.env)
    needed = (*semaphore.waiters, *((semaphore.end,) if semaphore.end >= 0 else ()))
    if not all(a.mine >> FACTS * event & 1 for event in needed):
        says = f"releases turn {turn} while turn {semaphore.value} is not its own"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    wide = stmt.scope is kir.Scope.GPU and not stmt.relaxed
    covered = (a.mine if wide else a.fenced) & ONES  # fences do not reach another CTA
    state.lacking |= a.mine & ~covered & ONES
    end = world.event(state, "gave", slot_of(key, semaphore), len(semaphore.past))
    state.when[end] = k, site.index
    semaphore.past = (*semaphore.past, (semaphore.value, end))
    semaphore.value, semaphore.owner, semaphore.before = turn, a.kind.cta, covered
    semaphore.end, semaphore.site, semaphore.waiters = end, site.index, ()
    state.own(a, end)
    _serve(world, state, key, semaphore)


def meeting(kernel: kir.Kernel, semaphore: kir.Semaphore, cta: int = 0) -> tuple[int, int]:
    """Return where CTAs meet by a semaphore."""
    return -2 - kernel.semaphores.index(semaphore), cta


def meet_ctas(world: World, state: State, a: Agent, do: Do, stmt: kir.GridSync, k: int) -> None:
    """Reach a meeting of CTAs; the last thread of the family to come lets all go on."""
    site, cta = do.site, a.kind.cta
    _whole_role(world, state, site, stmt.barrier, k)
    _bounds(world, state, do, stmt.semaphore, index_of(do, a), k)
    ctas = world.ctas if world.follows_turns else 1
    where = meeting(world.kernel, stmt.semaphore, 0 if ctas > 1 else cta)
    meet = state.turns.setdefault(where, Turn(site.place.warps * kir.WARP * ctas))
    _one_integer(world, state, meet, a, do, k)
    meet.count += a.kind.count
    meet.waiting = (*meet.waiting, a.kind.index)
    a.waiting = "grid"
    if world.follows_turns:
        _check_meeting(world, state, do, stmt, do.values["ctas"](a.env), k)
    if meet.count < meet.threads:
        return
    everyone = 0
    if world.follows_turns and Rule.GRID_JOINS not in world.off:
        for index in meet.waiting:
            everyone |= state.agents[index].mine & ONES  # fences do not reach another CTA
    mine = dict.fromkeys(range(world.ctas), everyone)
    for index in meet.waiting:
        mine[state.agents[index].kind.cta] |= state.agents[index].mine
    for index in meet.waiting:
        other = state.agents[index]
        state.learn(other, mine[other.kind.cta])
        other.waiting = ""
        other.at += 1
    meet.count, meet.waiting = 0, ()


def _check_meeting(
    world: World, state: State, do: Do, stmt: kir.GridSync, ctas: int, k: int
) -> None:
    """Judge how many CTAs are said to meet, and that they are sure to run at once."""
    kernel, site = world.kernel, do.site
    if ctas != world.ctas:
        says = f"waits for {ctas} CTAs, and {world.ctas} share {stmt.semaphore.name}"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
    granted = kernel.together == stmt.ctas and family_of(kernel).consecutive
    if not (ctas == 1 or kernel.residency == "co-resident" or granted):
        says = "waits for CTAs that may never run: nothing is known about so many at once"
        world.wrong(state, Rule.RESIDENCY, "residency", site, k, says)


def turns_end(world: World, state: State) -> None:
    """Check that all semaphores are left at 0, as the next launch expects them."""
    for semaphore in state.semaphores.values():
        clean(world, state, semaphore)
