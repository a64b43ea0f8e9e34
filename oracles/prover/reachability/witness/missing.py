"""The two events that lack an order, and the sync that is missing or comes nearest to it.

It is a hint: the nearest sync is where a reader looks first, not a promise that changing it helps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.rules import Rule, Violation
from oracles.prover.reachability.state import knows
from oracles.prover.reachability.witness.execution import Event, Log
from oracles.prover.reachability.witness.words import concrete, words
from oracles.prover.sites import Site

_REACH = {kir.Scope.CTA: "its own CTA", kir.Scope.CLUSTER: "its own cluster"}
_ARRIVES: tuple[type, ...] = (
    kir.MBarrierArrive, kir.MBarrierArriveExpectTx, kir.CpAsyncMBarrierArrive,
)  # fmt: skip
_MEETS: tuple[type, ...] = (kir.BlockSync, kir.NamedArrive)


class Conflict:
    """The two events of a violation in the log that ends with it, where there are two.

    `way` are the events by which the second depends on the first, `unfinished` tells that it is the
    end of the first that comes too late, and `registers` of which wgmma's registers.
    """

    def __init__(self, log: Log, wrong: Violation) -> None:
        self.log, self.world, self.wrong = log, log.world, wrong
        self.second = log.events[-1] if log.events and not log.stuck else None
        if wrong.kind == "exit":
            self.second = None
        if wrong.kind == "semaphore" and not log.stuck:
            # What it is left at is seen at the end, and comes from the release before.
            given = [event for event in log.events if event.stmt is wrong.later.stmt]
            self.second = given[-1] if given else self.second
        made = [event for event in log.made.get(wrong.event, ()) if event is not self.second]
        self.first = made[-1] if made else self._counterpart()
        one, two = self.first, self.second
        busy = one.stmt if one is not None and wrong.rule is Rule.REGISTERS_BUSY else None
        self.registers = busy.acc.name if isinstance(busy, kir.Wgmma) else ""
        later = one is not None and any(touch.ends_later for touch in one.touches)
        self.unfinished = later or self.registers != ""
        self.way: list[int] = log.path(one.number, two.number) if one and two else []
        agents = {event.agent for event in (one, two) if event is not None}
        alike = len(agents) == 2 and len(set(map(self.team, agents))) == 1
        self._apart = agents if alike else set()

    def _counterpart(self) -> Event | None:
        """Return what the second must be ordered after, where the engine has no event for that."""
        if (two := self.second) is None:
            return None
        used = (two.stmt.acc, two.stmt.a) if isinstance(two.stmt, kir.Wgmma) else ()
        for event in reversed(self.log.events[: two.number]):
            own, made = event.agent == two.agent, getattr(event.stmt, "dst", None)
            found = {
                Rule.REGISTERS_BUSY: own and isinstance(event.stmt, kir.Wgmma),
                Rule.WGMMA_FENCE: own and isinstance(made, kir.Fragment) and made in used,
                Rule.INIT: isinstance(event.stmt, kir.MBarrierInit)
                and event.stmt.barrier == _barrier(two.stmt),
            }
            if found.get(self.wrong.rule):
                return event
        return None

    def team(self, agent: int) -> tuple[int, str]:
        """Return the CTA and the role of threads."""
        kind = self.world.kinds[agent]
        return kind.cta, kind.role

    def cta(self, event: Event) -> int:
        """Return the CTA of an event."""
        return self.world.kinds[event.agent].cta

    def lane(self, agent: int) -> str:
        """Name the threads of a role, or one kind of them where they are to be told apart."""
        kind = self.world.kinds[agent]
        if agent in self._apart:
            return str(kind)
        name = kind.role or "all threads"
        if any(self.team(other) == self.team(agent) for other in self._apart):
            name += ", other threads"
        return name + (f" of CTA {kind.cta}" if self.world.ctas > 1 else "")

    def sites(self, agent: int) -> list[Site]:
        """Return the statements of threads, in order."""
        return [i.site for i in self.world.code.programs[agent] if isinstance(i, Do)]

    def before(self, end: Event | None) -> list[Event]:
        """Return the first event and what comes after it, before another one or the end."""
        start = self.first.number if self.first is not None else 0
        return self.log.events[start : end.number if end is not None else None]

    @property
    def stuck(self) -> list[Event]:
        """Where threads wait forever: at an mbarrier, else at a barrier of threads, else anywhere.

        Who waits at a barrier of threads waits for those who wait at an mbarrier.
        """
        alike = {(self.lane(e.agent), e.text, e.state): e for e in reversed(self.log.stuck)}
        found = sorted(alike.values(), key=lambda event: event.agent)
        for kind in (kir.MBarrierWaitParity, kir.BlockSync):
            if any(isinstance(event.stmt, kind) for event in found):
                return [event for event in found if isinstance(event.stmt, kind)]
        return found

    def waiting(self) -> Iterator[str]:
        """Say who waits for what, what that lacks, and from whom."""
        for event in self.stuck:
            there = self.sources(event)
            says = f"line {event.site.line}, {event.text}: {event.state}"
            if there is not None:
                who = " and ".join(dict.fromkeys(there.values()))
                says += f", from {who}" if there else ", and nobody else arrives there"
            lane = self.lane(event.agent)
            yield f"{lane} {'wait' if lane.startswith('all threads') else 'waits'} at {says}"

    def sources(self, event: Event) -> dict[int, str] | None:
        """Return where those arrive that are waited for, by line, and who; None of semaphores."""
        barrier, kinds, here = _barrier(event.stmt), _ARRIVES, set[int]()
        if isinstance(event.stmt, kir.BlockSync):
            kinds, here = _MEETS, {e.agent for e in self.log.stuck if _barrier(e.stmt) == barrier}
        elif not isinstance(event.stmt, kir.MBarrierWaitParity):
            return None
        return {
            site.line: self.lane(kind.index)
            for kind in self.world.kinds
            if kind.index not in here and (kinds is _ARRIVES or kind.cta == self.cta(event))
            for site in self.sites(kind.index)
            if isinstance(site.stmt, kinds) and _barrier(site.stmt) == barrier
        }


def lacking(c: Conflict) -> str:
    """Return where those arrive that threads wait forever for; best, that nobody does."""
    found = []
    for event in c.stuck:
        there, barrier = c.sources(event), _barrier(event.stmt)
        name = barrier.name if isinstance(barrier, kir.MBarrier) else f"barrier {barrier}"
        if there is not None:
            what = "bytes that {} expects" if c.wrong.kind == "bytes" else "arrivals on {}"
            found.append(f"line {', '.join(map(str, sorted(there)))}: the {what.format(name)}")
            if not there:
                more = "" if isinstance(barrier, kir.MBarrier) else "else "
                return f"none; nothing {more}arrives on {name}"
    return found[0] if found else ""


def nearest(c: Conflict) -> str:
    """Return the sync that could carry the missing order, or what is missing and where."""
    one, two, kind = c.first, c.second, c.wrong.kind
    if kind == "semaphore":
        given = [e for e in c.log.events if isinstance(e.stmt, kir.BlockSerializeRelease)]
        return named(given[-1]) if given else _last(c, two)
    if two is None:
        return "" if one is None else _unfinished(c, one, None)
    if kind == "scope":
        return _narrow(c, two)
    if one is None:
        return _unwritten(c, two) if kind == "RAW" else _last(c, two)
    if kind == "parity":
        seen = [e for e in c.log.events[: two.number] if e.waits & one.arrives]
        return _handshake(c, seen[0], two) if seen else _last(c, two)
    if kind == "proxy":
        return _unfenced(c, one, two)
    if kind == "fence":
        return f"none; missing is a wgmma_fence {_between(c, one, two)}"
    if kind == "init":
        for event in c.before(two):
            joins = isinstance(event.stmt, kir.BlockSync | kir.ClusterArrive)
            if joins and event.agent == one.agent:
                return f"{named(event)} is not enough for {c.world.kinds[two.agent]}"
        return f"none; missing is a block_sync of all threads after line {one.site.line}"
    copies = isinstance(one.stmt, kir.TmaStore | kir.TmaReduce | kir.TmaLoad)
    again = one.site.line == two.site.line and one.k == two.k and c.cta(one) == c.cta(two)
    if copies and again and one.agent != two.agent:
        who = f"{c.world.kinds[one.agent]} and by {c.world.kinds[two.agent]}"
        return f"{named(two)} is issued by {who}: missing is an election of one thread"
    return _unfinished(c, one, two) if c.unfinished else _handshake(c, one, two)


def named(event: Event) -> str:
    """Name an event by its line, with numbers in place of expressions."""
    return f"line {event.site.line}: {concrete(event.stmt, event.values)}"


def _at(event: Event) -> str:
    return f"line {event.site.line}" + (f", {event.when}" if event.when else "")


def _barrier(stmt: kir.Stmt) -> object:
    return getattr(stmt, "barrier", None)


def _waits(c: Conflict, agent: int) -> list[Site]:
    return [s for s in c.sites(agent) if isinstance(s.stmt, kir.MBarrierWaitParity)]


def _between(c: Conflict, one: Event, two: Event | None) -> str:
    """Say between which lines a sync is missing: up to what lets others go on, if anything does."""
    for event in (c.log.events[n] for n in c.way[1:-1]):
        if c.lane(event.agent) == c.lane(one.agent) and event.syncs:
            called = "the sync" if event.waits else "the arrival"
            if isinstance(event.stmt, kir.BlockSerializeRelease):
                called = "the release"
            return f"between line {one.site.line} and {called} of line {event.site.line}"
    if two is None:
        return f"between line {one.site.line} and the end"
    return f"between {_at(one)} and {_at(two)}"


def _last(c: Conflict, two: Event | None) -> str:
    """Return the last sync of the threads that go wrong."""
    if two is None:
        return ""
    for event in reversed(c.log.events[: two.number]):
        own = event.agent == two.agent and event.site.index != two.site.index
        if own and isinstance(event.stmt, kir.SYNCS) and (event.k >= 0 or two.k < 0):
            return named(event) + (f" ({event.state})" if event.state else "")
    return ""


def _narrow(c: Conflict, two: Event) -> str:
    """Say which side of a handshake on a semaphore does not reach the other CTA, and why."""
    for event in reversed(c.log.events[: two.number]):
        stmt = event.stmt
        if not isinstance(stmt, kir.BlockSerializeWait | kir.BlockSerializeRelease):
            continue
        if stmt.scope in _REACH:
            return f"{named(event)} reaches only threads of {_REACH[stmt.scope]}"
        if isinstance(stmt, kir.BlockSerializeRelease) and stmt.relaxed:
            return f"{named(event)}, relaxed, and no thread_fence(gpu) stands before it"
    return f"{named(two)} does not reach the other CTA"


def _unwritten(c: Conflict, two: Event) -> str:
    """Say which wait is missing before memory is read that a copy should have written."""
    read = {touch.where[1] for touch in two.touches if not touch.writes}
    waits = _waits(c, two.agent)
    asked = {_barrier(site.stmt) for site in waits}
    for site in (site for agent in range(len(c.world.kinds)) for site in c.sites(agent)):
        load = site.stmt
        if not isinstance(load, kir.TmaLoad) or load.barrier in asked:
            continue
        if load.dst.buffer.name in read:
            says = f"none; {c.lane(two.agent)} waits nowhere on {load.barrier.name}, on which the"
            return f"{says} load of line {site.line} completes"
    late = [site for site in waits if site.line > two.site.line][:1]
    ran = {event.site.index for event in c.log.events if event.agent == two.agent}
    if late and late[0].index not in ran:
        return f"line {late[0].line}: {line(late[0].stmt)} comes after the read"
    nobody = f"none; {c.lane(two.agent)} waits for nobody before line {two.site.line}"
    return _last(c, two) or nobody


def _unfenced(c: Conflict, one: Event, two: Event) -> str:
    """Say where a proxy fence is missing: with the writer, or behind an acquire of another CTA."""
    if c.cta(one) != c.cta(two):
        takes = [e for e in c.log.events[: two.number] if e.agent == two.agent and e.waits]
        after = f"line {takes[-1].site.line}" if takes else "the acquire"
        who = f"{c.world.kinds[two.agent]} between {after} and line {two.site.line}"
        return f"none; missing is a fence_async_proxy by {who}"
    there = [e for e in c.before(two) if isinstance(e.stmt, kir.FenceAsyncProxy)]
    missing = f"a fence_async_proxy by {c.lane(one.agent)} {_between(c, one, two)}"
    if there:
        return f"{named(there[-1])} does not do for {missing}"
    return f"none; missing is {missing}"


def _unjoined(c: Conflict, sync: Event, agent: int, where: str) -> str:
    by, other = c.world.kinds[sync.agent], c.world.kinds[agent]
    return f"{named(sync)} is by {by}, and nothing joins {other} with it {where}"


def _unfinished(c: Conflict, one: Event, two: Event | None) -> str:
    """Say which wait for the end of an operation is missing, or does too little."""
    kind = words(one.stmt).group
    if two is None and "cta" in one.values:
        return "none; missing is a cluster_arrive and a cluster_wait before the end"
    if kind is None:
        return _unloaded(c, one, two) if isinstance(one.stmt, kir.TmaLoad) else _last(c, two)
    there = [
        site for site in c.sites(one.agent)
        if isinstance(site.stmt, kir.AsyncAwait) and site.stmt.kind is kind
    ]  # fmt: skip
    for event in c.log.events[: two.number if two is not None else None] if there else ():
        at, late, own = event.site.line, there[-1], event.agent == one.agent
        near = c.cta(event) == c.cta(one)
        if near and isinstance(event.stmt, kir.BlockSerializeRelease):
            if not own and late.line < at:
                return _unjoined(c, event, one.agent, f"after line {late.line}")
            if own and late.line > at > one.site.line:
                return f"line {late.line}: {line(late.stmt)} comes after the release of line {at}"
    awaits = [
        (event, event.stmt) for event in reversed(c.before(two))
        if isinstance(event.stmt, kir.AsyncAwait) and event.stmt.kind is kind
    ]  # fmt: skip
    for event, _ in awaits:
        mine = c.log.state.agents[event.agent].mine
        known = c.wrong.event >= 0 and knows(mine, c.wrong.event)
        if two is not None and event.agent != two.agent and known:
            return _unjoined(c, event, two.agent, f"before {_at(two)}")
    for event, stmt in awaits:
        if event.agent == one.agent:
            why = ["waits for its reads only"] if stmt.read_only else []
            why += [f"keeps {stmt.keep} in flight"] if stmt.keep else []
            return f"{named(event)} {', and '.join(why) or 'waits for other groups'}"
    for event, _ in awaits:
        return f"{named(event)} is by {c.lane(event.agent)}, whose groups it waits for"
    missing = f"missing is async_await({kind.value}) {_between(c, one, two)}"
    after = [site for site in there if site.line > one.site.line and two is not None]
    if after:
        return f"line {after[0].line}: {line(after[0].stmt)} comes too late; {missing}"
    return f"none; {missing}"


def _unloaded(c: Conflict, one: Event, two: Event | None) -> str:
    """Say where the wait for a load is, if there is one."""
    barrier = one.stmt.barrier if isinstance(one.stmt, kir.TmaLoad) else None
    name = f"a wait on {barrier.name}[{one.values['bar']}]" if barrier is not None else ""
    if two is None:
        return f"none; missing is {name} {_between(c, one, two)}"
    for event in c.before(two):
        if event.waits & one.arrives and event.agent != two.agent:
            return f"{named(event)} is executed by {c.lane(event.agent)}, and nothing hands it on"
    waits = [site for site in _waits(c, two.agent) if _barrier(site.stmt) == barrier]
    if not waits:
        return f"none; missing is {name} before line {two.site.line} by {c.lane(two.agent)}"
    own = [e for e in c.log.events[: two.number] if e.agent == two.agent and e.site is waits[-1]]
    if not own:
        return f"line {waits[-1].line}: {line(waits[-1].stmt)} comes too late"
    return f"{named(own[-1])} waits for another phase or slot: {own[-1].state}"


def _handshake(c: Conflict, one: Event, two: Event) -> str:
    """Return the handshake between two kinds of threads that comes nearest."""
    first, second, at = c.lane(one.agent), c.lane(two.agent), f"line {one.site.line}"
    if one.agent == two.agent:
        for event in reversed(c.before(two)):
            if event.agent == one.agent and isinstance(event.stmt, kir.SYNCS):
                return f"{named(event)} does not join the threads of {first}"
        return f"none; missing is a sync that joins {first} {_between(c, one, two)}"
    # What happened before all loops orders nothing within them.
    waits: dict[tuple[Hashable, ...], Event] = {}
    for event in c.log.events[: two.number]:
        if event.agent == two.agent and (event.k >= 0 or two.k < 0):
            waits |= {point.sync: event for point in event.waits if not point.of_warp}
    single = (kir.MBarrierArrive, kir.NamedArrive, kir.BlockSerializeRelease)
    for wait in waits.values():
        for event in c.log.events[one.number : two.number]:
            mate = c.team(event.agent) == c.team(one.agent) and event.agent != one.agent
            if mate and isinstance(event.stmt, single) and event.arrives & wait.waits:
                return _unjoined(c, event, one.agent, f"after {at}")
    arrivals = [event for event in c.log.events if event.agent == one.agent and event.arrives]
    # Handshakes on the slots of the two events first, then any other.
    for sync in sorted(waits, key=lambda s: (s not in one.syncs | two.syncs, -waits[s].number)):
        points = {point for point in waits[sync].waits if point.sync == sync}
        here = [event for event in arrivals if event.arrives & points]
        if here and here[-1].number < one.number:
            says = f"the arrival it waits for ({_at(here[-1])}) comes before {at}"
            return f"{named(waits[sync])}: {says}"
    later = [event for event in arrivals if event.number > one.number and event.syncs]
    for event in later:
        for sync in sorted(event.syncs & waits.keys(), key=str):
            return f"{named(waits[sync])}: it goes on before the arrival of line {event.site.line}"
    if later:
        asked, cta = {_barrier(site.stmt) for site in _waits(c, two.agent)}, c.cta(two)
        # One that these threads wait for later; else, as meant for them, one on an mbarrier.
        event = min(later, key=lambda e: (
            _barrier(e.stmt) not in asked,
            not isinstance(e.stmt, kir.MBarrierArrive),
            e.values.get("cta", cta) != cta,
        ))  # fmt: skip
        return f"{named(event)}: {second} does not wait for it before line {two.site.line}"
    if c.cta(one) != c.cta(two):
        return "none; the two CTAs do not meet between the accesses"
    return f"none; {second} waits for nothing that {first} does after {at}"
