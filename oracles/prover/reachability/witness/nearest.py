"""The sync that comes nearest to the order that is missing.

It is a hint: the nearest sync is where a reader looks first, not a promise that changing it helps.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.state import FACTS
from oracles.prover.reachability.witness.deadlock import lacking
from oracles.prover.reachability.witness.semaphore_hints import given, named, narrow, released
from oracles.prover.reachability.witness.story import Story, of_warp, slot, waited_barrier
from oracles.prover.reachability.witness.trail import Step
from oracles.prover.reachability.witness.words import concrete, group, iteration
from oracles.prover.sites import Site


def nearest(story: Story) -> str:
    """Return the sync that could carry the missing order, or what is missing and where.

    Parameters
    ----------
    story : Story
        An execution that goes wrong.
    """
    if story.trail.stuck:
        return lacking(story)
    if story.wrong.kind == "scope" and story.second >= 0:
        return narrow(story)
    if story.wrong.kind == "semaphore":
        return given(story) or _last(story)
    if story.first < 0:
        found = _unwritten(story) or _last(story)
        if not found and story.wrong.kind == "RAW" and story.second >= 0:
            two = story.steps[story.second]
            return f"none; {story.lane(two.agent)} waits for nobody before line {two.site.line}"
        return found
    one = story.steps[story.first]
    if story.wrong.kind == "parity":
        seen = [s for s in story.steps[: story.second] if s.takes & one.gives]
        return _pair(story, seen[0]) if seen and story.second >= 0 else _last(story)
    if story.wrong.kind == "proxy":
        return _fence(story, one)
    if story.wrong.kind == "fence":
        who = f"between line {one.site.line} and line {story.steps[story.second].site.line}"
        return f"none; missing is a wgmma_fence {who}"
    if story.wrong.kind == "init":
        return _visible(story, one)
    if story.second >= 0 and _twice(story, one):
        return _twice(story, one)
    if story.second < 0 or story.registers or any(ends for _, _, ends in one.touches):
        return _completion(story, one)
    return _pair(story, one)


def _twice(story: Story, one: Step) -> str:
    """Say that several threads of a CTA issue one and the same copy."""
    two = story.steps[story.second]
    same = one.site.line == two.site.line and one.k == two.k and one.agent != two.agent
    mates = story.team(one.agent)[0] == story.team(two.agent)[0]
    if not (same and mates) or not isinstance(one.stmt, kir.TmaStore | kir.TmaReduce | kir.TmaLoad):
        return ""
    kinds = story.world.kinds
    who = f"{kinds[one.agent]} and by {kinds[two.agent]}"
    return f"{named(two)} is issued by {who}: missing is an election of one thread"


def _last(story: Story) -> str:
    """Return the last sync of the threads that go wrong."""
    if story.second < 0:
        return ""
    agent = story.steps[story.second].agent
    two = story.steps[story.second]
    for step in reversed(story.steps[: story.second]):
        mine = step.agent == agent and step.site.index != two.site.index
        if mine and isinstance(step.stmt, kir.SYNCS) and (step.k >= 0 or two.k < 0):
            return named(step) + (f" ({step.phase})" if step.phase else "")
    return ""


def _unwritten(story: Story) -> str:
    """Say which wait is missing before memory is read that a copy should have written."""
    if story.second < 0 or story.wrong.kind != "RAW":
        return ""
    two = story.steps[story.second]
    names = {where[1] for where, writes, _ in two.touches if not writes}
    waited = [waited_barrier(i) for i in story.program(two.agent)]
    for program in story.world.code.programs:
        for i in program:
            if isinstance(i, Do) and isinstance(i.site.stmt, kir.TmaLoad):
                load = i.site.stmt
                if load.dst.buffer.name in names and load.barrier not in waited:
                    return (
                        f"none; {story.lane(two.agent)} waits nowhere on {load.barrier.name}, on "
                        f"which the load of line {i.site.line} completes"
                    )
    late = [i.site for i in story.program(two.agent) if waited_barrier(i) is not None]
    late = [site for site in late if site.line > two.site.line]
    ran = {s.site.index for s in story.steps if s.agent == two.agent}
    if late and late[0].index not in ran:
        return f"line {late[0].line}: {line(late[0].stmt)} comes after the read"
    return ""


def _until(story: Story, one: Step) -> Step | None:
    """Return the step by which the threads of the earlier access let others go on after it."""
    way = story.way or []
    for n in way[1:]:
        step = story.steps[n]
        same = story.lane(step.agent) == story.lane(one.agent)
        if same and n not in (one.number, story.second) and not of_warp(step):
            return step
    return None


def _fence(story: Story, one: Step) -> str:
    two = story.steps[story.second]
    if story.team(one.agent)[0] != story.team(two.agent)[0]:
        takes = [s for s in story.steps[: two.number] if s.agent == two.agent and s.takes]
        after = f"line {takes[-1].site.line} and line" if takes else "the acquire and line"
        who = story.world.kinds[two.agent]
        return f"none; missing is a fence_async_proxy by {who} between {after} {two.site.line}"
    until = _until(story, one)
    where = (
        f"between line {one.site.line} and line {until.site.line}"
        if until
        else (f"after line {one.site.line}")
    )
    there = [
        s
        for s in story.steps[: story.second]
        if isinstance(s.stmt, kir.FenceAsyncProxy) and s.number > story.first
    ]
    missing = f"a fence_async_proxy by {story.lane(one.agent)} {where}"
    if there:
        return f"{named(there[-1])} does not do for {missing}"
    return f"none; missing is {missing}"


def _completion(story: Story, one: Step) -> str:
    """Say which wait for the end of an operation is missing, or does too little."""
    kind = group(one.stmt)
    if story.second < 0 and "cta" in one.values:
        return "none; missing is a cluster_arrive and a cluster_wait before the end"
    end = story.second if story.second >= 0 else len(story.steps)
    if kind is None:
        return _loaded(story, one, end)
    name = f"async_await({kind.value})"
    awaits = [
        s
        for s in story.steps[story.first : end]
        if isinstance(s.stmt, kir.AsyncAwait) and s.stmt.kind is kind
    ]
    known = released(story, one) or _knows(story)
    if known:
        return known
    mine = [s for s in awaits if s.agent == one.agent]
    if mine:
        stmt = mine[-1].stmt
        assert isinstance(stmt, kir.AsyncAwait), "awaits only"
        why = f"keeps {stmt.keep} in flight" if stmt.keep else "waits for other groups"
        if stmt.read_only:
            why = "waits for its reads only" + (f", and {why}" if stmt.keep else "")
        return f"{named(mine[-1])} {why}"
    if awaits:
        return (
            f"{named(awaits[-1])} is by {story.lane(awaits[-1].agent)}, whose groups it waits for"
        )
    later = [
        s.site
        for s in story.program(one.agent)
        if isinstance(s.site.stmt, kir.AsyncAwait) and s.site.stmt.kind is kind
    ]
    until = _until(story, one)
    if until is not None and until.number != story.second:
        gap = f"between line {one.site.line} and {_called(until)} of line {until.site.line}"
    elif story.second >= 0:
        two = story.steps[story.second]
        gap = f"between line {one.site.line}{_at(story, one)} and line {two.site.line}"
        gap += _at(story, two)
    else:
        gap = f"between line {one.site.line} and the end"
    later = [site for site in later if site.line > one.site.line and story.second >= 0]
    if later:
        return (
            f"line {later[0].line}: {line(later[0].stmt)} comes too late; missing is {name} {gap}"
        )
    return f"none; missing is {name} {gap}"


def _knows(story: Story) -> str:
    """Say who has waited for the end of an operation, but tells nobody."""
    state, event = story.trail.last, story.wrong.event
    if state is None or event < 0 or story.second < 0:
        return ""
    two = story.steps[story.second]
    for step in reversed(story.steps[story.first : story.second]):
        waits = isinstance(step.stmt, kir.AsyncAwait) and step.agent != two.agent
        if waits and state.agents[step.agent].mine >> FACTS * event & 1:
            kinds = story.world.kinds
            return (
                f"{named(step)} is by {kinds[step.agent]}, and nothing joins "
                f"{kinds[two.agent]} with it before line {two.site.line}{_at(story, two)}"
            )
    return ""


def _visible(story: Story, one: Step) -> str:
    """Say which sync does not make a barrier visible, or that there is none."""
    two = story.steps[story.second]
    for step in story.steps[one.number : two.number]:
        if step.agent == one.agent and isinstance(step.stmt, kir.BlockSync | kir.ClusterArrive):
            return f"{named(step)} is not enough for {story.world.kinds[two.agent]}"
    return f"none; missing is a block_sync of all threads after line {one.site.line}"


def _called(step: Step) -> str:
    match step.stmt:
        case (
            kir.MBarrierArrive() | kir.NamedArrive() | kir.ClusterArrive()
            | kir.MBarrierArriveExpectTx() | kir.CpAsyncMBarrierArrive()
        ):  # fmt: skip
            return "the arrival"
        case kir.BlockSerializeRelease():
            return "the release"
        case _:
            return "the sync"


def _loaded(story: Story, one: Step, end: int) -> str:
    """Say where the wait for a load is, if there is one."""
    stmt = one.stmt
    if not isinstance(stmt, kir.TmaLoad):
        return _last(story)
    if story.second < 0:
        name = f"{stmt.barrier.name}[{one.values['bar']}]"
        return f"none; missing is a wait on {name} between line {one.site.line} and the end"
    two = story.steps[story.second]
    phases = {token for token in one.gives if token[0] == "phase"}
    for step in story.steps[story.first : end]:
        if step.takes & phases and step.agent != two.agent:
            lane = story.lane(step.agent)
            return f"{named(step)} is executed by {lane}, and nothing hands it on"
    there = [
        s.site
        for s in story.program(two.agent)
        if isinstance(s.site.stmt, kir.MBarrierWaitParity) and s.site.stmt.barrier == stmt.barrier
    ]
    name = concrete(
        kir.MBarrierWaitParity(stmt.barrier, 0, 0), {"bar": one.values["bar"], "parity": 0}
    )
    name = name.partition(" ")[0]
    if not there:
        who = story.lane(two.agent)
        return f"none; missing is a wait on {name} before line {two.site.line} by {who}"
    seen = [s for s in story.steps[:end] if s.agent == two.agent and s.site is there[-1]]
    if not seen:
        return f"line {there[-1].line}: {line(there[-1].stmt)} comes too late"
    return f"{named(seen[-1])} waits for another phase or slot: {seen[-1].phase}"


def _pair(story: Story, one: Step) -> str:
    """Return the handshake between two kinds of threads that comes nearest."""
    two = story.steps[story.second]
    if one.agent == two.agent:
        return _within(story, one, two)
    takes: dict[object, Step] = {}
    for step in story.steps[: story.second]:
        # What happened before all loops orders nothing within them.
        if step.agent == two.agent and (step.k >= 0 or two.k < 0):
            for token in step.takes:
                takes[slot(token)] = step
    unjoined = _unjoined(story, one, takes)
    if unjoined:
        return unjoined
    arrivals = [s for s in story.steps if s.agent == one.agent and s.gives]
    # Handshakes on the slots of the accesses first, then any other.
    own = {slot(t) for s in (one, two) for t in s.gives | s.takes}
    for key in sorted(takes, key=lambda k: (k not in own, -takes[k].number)):
        step = takes[key]
        tokens = {t for t in step.takes if slot(t) == key}
        here = [s for s in arrivals if s.gives & tokens]
        if here and here[-1].number < one.number:
            return (
                f"{named(step)}: the arrival it waits for (line {here[-1].site.line}"
                f"{_at(story, here[-1])}) comes before line {one.site.line}"
            )
    later = [
        (s, key)
        for s in arrivals
        if s.number > one.number
        for token in s.gives
        if (key := slot(token)) is not None
    ]
    for s, key in later:
        if key in takes:
            return f"{named(takes[key])}: it goes on before the arrival of line {s.site.line}"
    waits = dict(_waits(story, two.agent))
    for s, _ in later:
        barrier = getattr(s.stmt, "barrier", None)
        if barrier in waits:
            late = waits[barrier].line
            return f"{named(s)}: line {late} waits for it too late"
    if later:
        # Of what nobody waits for, an arrival on an mbarrier is meant for others most likely.
        cta = story.world.kinds[two.agent].cta
        s = min(later, key=lambda pair: _unlikely(pair[0], cta))[0]
        who = story.lane(two.agent)
        return f"{named(s)}: {who} does not wait for it before line {two.site.line}"
    if story.world.kinds[one.agent].cta != story.world.kinds[two.agent].cta:
        return "none; the two CTAs do not meet between the accesses"
    return (
        f"none; {story.lane(two.agent)} waits for nothing that {story.lane(one.agent)} does after "
        f"line {one.site.line}"
    )


def _unjoined(story: Story, one: Step, takes: dict[object, Step]) -> str:
    """Name an arrival by a neighbour of the earlier access, which does not speak for it."""
    for step in takes.values():
        for other in story.steps[one.number : story.second]:
            mates = story.team(other.agent) == story.team(one.agent)
            arrives = isinstance(
                other.stmt, kir.MBarrierArrive | kir.NamedArrive | kir.BlockSerializeRelease
            )
            if mates and arrives and other.agent != one.agent and other.gives & step.takes:
                kinds = story.world.kinds
                return (
                    f"{named(other)} is by {kinds[other.agent]}, and nothing joins "
                    f"{kinds[one.agent]} with it after line {one.site.line}"
                )
    return ""


def _unlikely(step: Step, cta: int) -> int:
    """Rank arrivals by how little they seem to be meant for a CTA."""
    if not isinstance(step.stmt, kir.MBarrierArrive):
        return 2
    return int(step.values.get("cta", cta) != cta)


def _waits(story: Story, agent: int) -> list[tuple[object, Site]]:
    return [
        (getattr(i.site.stmt, "barrier", None), i.site)
        for i in story.program(agent)
        if isinstance(i.site.stmt, kir.MBarrierWaitParity | kir.BlockSync)
    ]


def _within(story: Story, one: Step, two: Step) -> str:
    """Return the sync between two accesses of one kind of threads, which joins too few."""
    for step in reversed(story.steps[one.number : two.number]):
        if step.agent == one.agent and isinstance(step.stmt, kir.SYNCS):
            return f"{named(step)} does not join the threads of {story.lane(one.agent)}"
    return (
        f"none; missing is a sync that joins {story.lane(one.agent)} between line "
        f"{one.site.line} and line {two.site.line}"
    )


def _at(story: Story, step: Step) -> str:
    found = iteration(story.world, step.site, step.k)
    return f", {found}" if found else ""
