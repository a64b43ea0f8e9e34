"""The two events that lack an order, and the sync that is missing or comes nearest to it.

It is a hint: the nearest sync is where a reader looks first, not a promise that changing it helps.
"""

from __future__ import annotations

from collections.abc import Hashable

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.program.code import Do, Site
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS
from oracles.prover.reachability.witness.execution import Event, Log
from oracles.prover.reachability.witness.words import concrete, group, iteration
from oracles.prover.reachability.world import Violation

_REACH = {kir.Scope.CTA: "its own CTA", kir.Scope.CLUSTER: "its own cluster"}


class Conflict:
    """The two events of a violation in the log that ends with it, where there are two.

    Parameters
    ----------
    log : Log
        An execution.
    wrong : Violation
        What is wrong with it.
    """

    def __init__(self, log: Log, wrong: Violation) -> None:
        self.log, self.world, self.wrong = log, log.world, wrong
        made = [log.events[n] for n in log.made(wrong.event)]
        ends = wrong.kind == "exit" or log.stuck
        self.second = log.events[-1] if log.events and not ends else None
        if wrong.kind == "semaphore":
            # What it is left at is seen at the end, and comes from the release before.
            given = [event for event in log.events if event.stmt is wrong.later.stmt]
            self.second = given[-1] if given else self.second
        made = [event for event in made if event is not self.second]
        self.first = made[-1] if made else None
        if self.first is None and self.second is not None:
            self.first = self._counterpart(self.second)
        self.registers = ""
        if self.first is not None and wrong.rule is Rule.REGISTERS_BUSY:
            stmt = self.first.stmt
            self.registers = stmt.acc.name if isinstance(stmt, kir.Wgmma) else ""
        one, two = self.first, self.second
        self.way: list[int] = log.path(one.number, two.number) if one and two else []
        alike = one and two and one.agent != two.agent and self.team(one) == self.team(two)
        self._apart = {one.agent, two.agent} if one and two and alike else set()

    def _counterpart(self, two: Event) -> Event | None:
        """Return what `two` needs to be ordered after, where the engine has no event for it."""
        for event in reversed(self.log.events[: two.number]):
            mine = event.agent == two.agent
            match self.wrong.rule, event.stmt:
                case Rule.REGISTERS_BUSY, kir.Wgmma() if mine:
                    return event
                case Rule.WGMMA_FENCE, kir.Compute(dst) | kir.Slice(dst) | kir.Reduce(
                    dst
                ) | kir.Load(dst) if mine:
                    if isinstance(two.stmt, kir.Wgmma) and dst in (two.stmt.acc, two.stmt.a):
                        return event
                case Rule.INIT, kir.MBarrierInit(barrier):
                    if barrier == getattr(two.stmt, "barrier", None):
                        return event
                case _:
                    pass
        return None

    def team(self, event: Event) -> tuple[int, str]:
        """Return the CTA and the role of the threads of an event."""
        return self._team(event.agent)

    def _team(self, agent: int) -> tuple[int, str]:
        kind = self.world.kinds[agent]
        return kind.cta, kind.role

    def lane(self, agent: int) -> str:
        """Name the threads of a role, or one kind of them where they are to be told apart."""
        kind = self.world.kinds[agent]
        if agent in self._apart:
            return str(kind)
        name = kind.role or "all threads"
        if any(self._team(other) == self._team(agent) for other in self._apart):
            name += ", other threads"
        return name + (f" of CTA {kind.cta}" if self.world.ctas > 1 else "")

    def program(self, agent: int) -> list[Do]:
        """Return the statements of threads, in order."""
        return [i for i in self.world.code.programs[agent] if isinstance(i, Do)]

    def before(self, end: Event | None) -> list[Event]:
        """Return what comes after the first event, and before another one or the end."""
        start = self.first.number if self.first is not None else 0
        return self.log.events[start : end.number if end is not None else None]


def named(event: Event) -> str:
    """Name an event by its line, with numbers in place of expressions."""
    return f"line {event.site.line}: {concrete(event.stmt, event.values)}"


def nearest(c: Conflict) -> str:
    """Return the sync that could carry the missing order, or what is missing and where."""
    one, two, kind = c.first, c.second, c.wrong.kind
    if kind == "semaphore":
        given = [e for e in c.log.events if isinstance(e.stmt, kir.BlockSerializeRelease)]
        return named(given[-1]) if given else _last(c)
    if two is not None and kind == "scope":
        return _narrow(c, two)
    if one is None:
        return _unwritten(c) or _last(c)
    if two is None:
        return _unfinished(c, one, None)
    match kind:
        case "parity":
            seen = [e for e in c.log.events[: two.number] if e.waits & one.arrives]
            return _handshake(c, seen[0], two) if seen else _last(c)
        case "proxy":
            return _unfenced(c, one, two)
        case "fence":
            return f"none; missing is a wgmma_fence {_between(c, one, two)}"
        case "init":
            for event in c.before(two):
                sync = isinstance(event.stmt, kir.BlockSync | kir.ClusterArrive)
                if event.agent == one.agent and sync:
                    return f"{named(event)} is not enough for {c.world.kinds[two.agent]}"
            return f"none; missing is a block_sync of all threads after line {one.site.line}"
    again = one.site.line == two.site.line and one.k == two.k and one.agent != two.agent
    copies = isinstance(one.stmt, kir.TmaStore | kir.TmaReduce | kir.TmaLoad)
    if again and copies and c.team(one)[0] == c.team(two)[0]:
        who = f"{c.world.kinds[one.agent]} and by {c.world.kinds[two.agent]}"
        return f"{named(two)} is issued by {who}: missing is an election of one thread"
    if c.registers or any(touch.ends_later for touch in one.touches):
        return _unfinished(c, one, two)
    return _handshake(c, one, two)


def _at(c: Conflict, event: Event) -> str:
    when = iteration(c.world, event.site, event.k)
    return f"line {event.site.line}" + (f", {when}" if when else "")


def _between(c: Conflict, one: Event, two: Event | None) -> str:
    """Say between which lines a sync is missing: up to what lets others go on, if anything does."""
    for event in (c.log.events[n] for n in c.way[1:-1]):
        own = c.lane(event.agent) == c.lane(one.agent)
        if own and not all(point.of_warp for point in event.arrives | event.waits):
            return f"between line {one.site.line} and {_called(event)} of line {event.site.line}"
    if two is None:
        return f"between line {one.site.line} and the end"
    return f"between {_at(c, one)} and {_at(c, two)}"


def _called(event: Event) -> str:
    if isinstance(event.stmt, kir.BlockSerializeRelease):
        return "the release"
    return "the sync" if event.waits else "the arrival"


def _last(c: Conflict) -> str:
    """Return the last sync of the threads that go wrong."""
    two = c.second
    for event in reversed(c.log.events[: two.number] if two is not None else []):
        mine = two is not None and event.agent == two.agent and event.site.index != two.site.index
        if mine and isinstance(event.stmt, kir.SYNCS) and (event.k >= 0 or two.k < 0):
            return named(event) + (f" ({event.state})" if event.state else "")
    return ""


def _narrow(c: Conflict, two: Event) -> str:
    """Say which side of a handshake on a semaphore does not reach the other CTA, and why."""
    for event in reversed(c.log.events[: two.number]):
        match event.stmt:
            case kir.BlockSerializeWait(scope=scope) if scope in _REACH:
                return f"{named(event)} looks no further than {_REACH[scope]}"
            case kir.BlockSerializeRelease(scope=scope) if scope in _REACH:
                return f"{named(event)} reaches only threads of {_REACH[scope]}"
            case kir.BlockSerializeRelease(relaxed=True):
                return f"{named(event)}, relaxed, and no thread_fence(gpu) stands before it"
            case _:
                pass
    return f"{named(two)} does not reach the other CTA"


def _unwritten(c: Conflict) -> str:
    """Say which wait is missing before memory is read that a copy should have written."""
    two = c.second
    if two is None or c.wrong.kind != "RAW":
        return ""
    names = {touch.where[1] for touch in two.touches if not touch.writes}
    mine = [i.site for i in c.program(two.agent)]
    waits = [s for s in mine if isinstance(s.stmt, kir.MBarrierWaitParity)]
    for i in (i for agent in range(len(c.world.kinds)) for i in c.program(agent)):
        load = i.site.stmt
        if isinstance(load, kir.TmaLoad) and load.dst.buffer.name in names:
            if all(load.barrier != getattr(s.stmt, "barrier", None) for s in waits):
                says = f"none; {c.lane(two.agent)} waits nowhere on {load.barrier.name}, on which "
                return says + f"the load of line {i.site.line} completes"
    ran = {e.site.index for e in c.log.events if e.agent == two.agent}
    late = [site for site in waits if site.line > two.site.line][:1]
    if late and late[0].index not in ran:
        return f"line {late[0].line}: {line(late[0].stmt)} comes after the read"
    return _last(c) or f"none; {c.lane(two.agent)} waits for nobody before line {two.site.line}"


def _unfenced(c: Conflict, one: Event, two: Event) -> str:
    """Say where a proxy fence is missing: with the writer, or behind an acquire of another CTA."""
    if c.team(one)[0] != c.team(two)[0]:
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
    kinds = c.world.kinds
    return (
        f"{named(sync)} is by {kinds[sync.agent]}, and nothing joins {kinds[agent]} with it {where}"
    )


def _unfinished(c: Conflict, one: Event, two: Event | None) -> str:
    """Say which wait for the end of an operation is missing, or does too little."""
    kind = group(one.stmt)
    if two is None and "cta" in one.values:
        return "none; missing is a cluster_arrive and a cluster_wait before the end"
    if isinstance(one.stmt, kir.TmaLoad):
        return _unloaded(c, one, two)
    if kind is None:
        return _last(c)
    awaits = [
        e for e in c.before(two) if isinstance(e.stmt, kir.AsyncAwait) and e.stmt.kind is kind
    ]
    program = [i.site for i in c.program(one.agent)]
    there = [s for s in program if isinstance(s.stmt, kir.AsyncAwait) and s.stmt.kind is kind]
    for event in c.log.events[: two.number if two is not None else None] if there else ():
        late = there[-1]
        if not isinstance(event.stmt, kir.BlockSerializeRelease):
            continue
        if event.agent != one.agent and c.team(event)[0] == c.team(one)[0]:
            if late.line < event.site.line:
                return _unjoined(c, event, one.agent, f"after line {late.line}")
        elif event.agent == one.agent and late.line > event.site.line > one.site.line:
            says = f"line {late.line}: {line(late.stmt)} comes after the release"
            return f"{says} of line {event.site.line}"
    for event in reversed(awaits if two is not None else ()):
        knows = c.log.last.agents[event.agent].mine >> FACTS * max(c.wrong.event, 0) & 1
        if two is not None and event.agent != two.agent and c.wrong.event >= 0 and knows:
            return _unjoined(c, event, two.agent, f"before {_at(c, two)}")
    for event in reversed(awaits):
        if event.agent == one.agent and isinstance(event.stmt, kir.AsyncAwait):
            why = ["waits for its reads only"] if event.stmt.read_only else []
            why += [f"keeps {event.stmt.keep} in flight"] if event.stmt.keep else []
            return f"{named(event)} {', and '.join(why) or 'waits for other groups'}"
    if awaits:
        who = c.lane(awaits[-1].agent)
        return f"{named(awaits[-1])} is by {who}, whose groups it waits for"
    missing = f"missing is async_await({kind.value}) {_between(c, one, two)}"
    after = [site for site in there if site.line > one.site.line and two is not None]
    if after:
        return f"line {after[0].line}: {line(after[0].stmt)} comes too late; {missing}"
    return f"none; {missing}"


def _unloaded(c: Conflict, one: Event, two: Event | None) -> str:
    """Say where the wait for a load is, if there is one."""
    barrier = getattr(one.stmt, "barrier", None)
    name = f"{barrier.name}[{one.values['bar']}]" if barrier is not None else ""
    if two is None:
        return f"none; missing is a wait on {name} {_between(c, one, two)}"
    for event in c.before(two):
        if event.waits & one.arrives and event.agent != two.agent:
            who = c.lane(event.agent)
            return f"{named(event)} is executed by {who}, and nothing hands it on"
    waits = [i.site for i in c.program(two.agent) if _waits_on(i.site) == barrier]
    if not waits:
        who = c.lane(two.agent)
        return f"none; missing is a wait on {name} before line {two.site.line} by {who}"
    mine = [e for e in c.log.events[: two.number] if e.agent == two.agent and e.site is waits[-1]]
    if not mine:
        return f"line {waits[-1].line}: {line(waits[-1].stmt)} comes too late"
    return f"{named(mine[-1])} waits for another phase or slot: {mine[-1].state}"


def _waits_on(site: Site) -> object:
    return site.stmt.barrier if isinstance(site.stmt, kir.MBarrierWaitParity) else None


def _handshake(c: Conflict, one: Event, two: Event) -> str:
    """Return the handshake between two kinds of threads that comes nearest."""
    if one.agent == two.agent:
        for event in reversed(c.before(two)):
            if event.agent == one.agent and isinstance(event.stmt, kir.SYNCS):
                return f"{named(event)} does not join the threads of {c.lane(one.agent)}"
        return f"none; missing is a sync that joins {c.lane(one.agent)} {_between(c, one, two)}"
    # What happened before all loops orders nothing within them.
    waits: dict[tuple[Hashable, ...], Event] = {}
    for event in c.log.events[: two.number]:
        if event.agent == two.agent and (event.k >= 0 or two.k < 0):
            waits |= {point.sync: event for point in event.waits if not point.of_warp}
    arrives = (kir.MBarrierArrive, kir.NamedArrive, kir.BlockSerializeRelease)
    for wait in waits.values():
        for event in c.log.events[one.number : two.number]:
            mates = c.team(event) == c.team(one) and event.agent != one.agent
            if mates and isinstance(event.stmt, arrives) and event.arrives & wait.waits:
                return _unjoined(c, event, one.agent, f"after line {one.site.line}")
    arrivals = [e for e in c.log.events if e.agent == one.agent and e.arrives]
    # Handshakes on the slots of the accesses first, then any other.
    for sync in sorted(waits, key=lambda s: (s not in one.syncs | two.syncs, -waits[s].number)):
        points = {point for point in waits[sync].waits if point.sync == sync}
        here = [e for e in arrivals if e.arrives & points]
        if here and here[-1].number < one.number:
            return (
                f"{named(waits[sync])}: the arrival it waits for ({_at(c, here[-1])}) comes before "
                f"line {one.site.line}"
            )
    later = [e for e in arrivals if e.number > one.number and e.syncs]
    for event in later:
        for sync in event.syncs & waits.keys():
            return f"{named(waits[sync])}: it goes on before the arrival of line {event.site.line}"
    for event in later:
        for i in c.program(two.agent):
            stmt = i.site.stmt
            if isinstance(stmt, kir.MBarrierWaitParity | kir.BlockSync):
                if stmt.barrier == getattr(event.stmt, "barrier", None):
                    return f"{named(event)}: line {i.site.line} waits for it too late"
    if later:
        # Of what nobody waits for, an arrival on an mbarrier is meant for others most likely.
        cta, who = c.team(two)[0], c.lane(two.agent)
        event = min(
            later,
            key=lambda e: (
                not isinstance(e.stmt, kir.MBarrierArrive),
                e.values.get("cta", cta) != cta,
            ),
        )
        return f"{named(event)}: {who} does not wait for it before line {two.site.line}"
    if c.team(one)[0] != c.team(two)[0]:
        return "none; the two CTAs do not meet between the accesses"
    who = f"{c.lane(two.agent)} waits for nothing that {c.lane(one.agent)} does"
    return f"none; {who} after line {one.site.line}"
