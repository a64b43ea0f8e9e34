"""What a reader sees of a refuted kernel: an execution, lane by lane, and what it lacks.

Of the log are shown the two events in conflict, what filled the memory before, the handshakes by
which the later one depends on the earlier, and the syncs of its kind that do too little.  The sync
that is missing, or comes nearest to it, is a hint: where a reader looks first, not a promise that
changing it helps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from fuser.kernel import ir as kir
from fuser.kernel.text import line, short
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.rules import Rule, Violation, spot, words
from oracles.prover.reachability.state import Where, knows
from oracles.prover.reachability.witness.execution import Event, Log, refuting
from oracles.prover.sites import Site
from oracles.witness import Mark, Row, Witness

BESIDE = 10
"""Events at a barrier that are shown, where the barrier itself is what goes wrong."""
_AT_BARRIER = frozenset({"parity", "arrivals", "bytes", "deadlock", "collective"})
"""Kinds of findings that are about a barrier."""
_RACES = frozenset({"RAW", "WAR", "WAW", "drain", "exit", "proxy", "map"})
"""Kinds of findings that are about what an engine does with memory or registers."""
_DOES = ("reading", "writing")


def witness(kernel: kir.Kernel, *, policy: str) -> Witness | None:
    """Return the execution at the smallest trip counts that goes wrong.

    It is None if none is found, or none can be followed: what is wrong is not the order of events.
    """
    try:
        log = refuting(kernel, policy=policy)
    except (UnsupportedError, ZeroDivisionError):
        return None
    return None if log is None else tell(log)


def tell(log: Log) -> Witness:
    """Return the witness of an execution that goes wrong."""
    wrong = log.findings.errors[0]
    conflict = Conflict(log, wrong)
    rows, says = _Rows(conflict).rows(), wrong.says
    if conflict.stuck:
        says = "; ".join(conflict.waiting())
    elif wrong.kind == "exit":
        rows.append(Row("CTA", 0, "exits", "", Mark.SECOND))
    if not rows:
        rows.append(Row("all threads", wrong.later.line, wrong.later.where, "", Mark.SECOND))
    found = dict.fromkeys(row.lane for row in rows)
    lanes = sorted(found, key=lambda name: "engine" in name or name.startswith("tensor core"))
    near = wrong.look or (lacking(conflict) if log.stuck else nearest(conflict))
    kernel = log.world.kernel.name
    return Witness(kernel, wrong.kind, log.trips(), says, near, tuple(lanes), tuple(rows))


class _Rows:
    """The rows of a conflict, up to the later event and what is still in flight then."""

    def __init__(self, conflict: Conflict) -> None:
        self.c, self.log, self.world = conflict, conflict.log, conflict.world
        self.first, self.second, self.kind = conflict.first, conflict.second, conflict.wrong.kind
        self.ends = [event for event in (self.first, self.second) if event is not None]
        self.waited = {sync for event in conflict.log.stuck for sync in event.syncs}

    def rows(self) -> list[Row]:
        """Return the rows."""
        rows: list[Row] = []
        shown = self._shown()
        waits = {point for event in shown for point in event.waits}
        for event in shown:
            mark = Mark.SECOND if event is self.second else Mark.NONE
            mark = Mark.FIRST if event is self.first else mark
            lane, line = self.c.lane(event.agent), event.site.line
            races = words(event.stmt).engine and mark is not Mark.NONE and self.kind in _RACES
            done, note = self._busy(event) if races else "", ""
            asked = mark is not Mark.NONE or event.arrives & waits or event.syncs & self.waited
            if isinstance(event.stmt, kir.TmaLoad) and not done and asked:
                done, note = f"{self._places(event, writes=True)} written", event.state
            state = "" if isinstance(event.stmt, kir.TmaLoad) else self._state(event)
            rows.append(Row(lane, line, event.text, state, Mark.NONE if done else mark, event.k))
            if done:
                rows.append(Row(self._engine(event), line, done, note, mark, event.k))
        one = self.first
        if one is not None and self.kind in _RACES - {"exit", "proxy", "map"} and self.c.unfinished:
            says = ", ".join(filter(None, (self._busy(one), one.when)))
            rows.append(Row(self._engine(one), one.site.line, f"... still {says}"))
        for event in self.c.stuck:
            mark = Mark.SECOND if event is self.c.stuck[0] else Mark.NONE
            text = f"{event.text}, forever"
            rows.append(Row(self.c.lane(event.agent), event.site.line, text, event.state, mark))
        return rows

    def _shown(self) -> list[Event]:
        """Return the events to show, in order; of threads that do the same in a lane, one."""
        keep = {*self.c.way, *(event.number for event in self.ends)}
        if self.first is not None:
            keep.update(self._filled(self.first))
            if self.second is not None:
                keep.update(self._too_weak(self.first, self.second))
        if self.kind in _AT_BARRIER:
            syncs = {sync for event in self.ends for sync in event.syncs} | self.waited
            keep.update([e.number for e in self.log.events if e.syncs & syncs][-BESIDE:])
        if self.kind == "dependency":
            keep.update(event.number for event in _waits_for_launches(self.c))
        both = self.first is not None or self.kind not in _AT_BARRIER
        if both and self.second is not None and not self.c.way:
            keep.update(self._nearby(self.second))
        # Who waits forever at a barrier of threads has arrived there: that is one row.
        for event in self.log.stuck:
            last = self.log.events[event.previous] if event.previous >= 0 else event
            if (last.site.index, last.k) == (event.site.index, event.k):
                keep.discard(last.number)
        same: dict[object, Event] = {self._same(event): event for event in self.ends}
        for n in sorted(keep):
            same.setdefault(self._same(self.log.events[n]), self.log.events[n])
        return sorted(same.values(), key=self._over)

    def _same(self, event: Event) -> object:
        """Return what threads of a lane that do the same have in common."""
        site, agent = event.site.index, event.agent
        before = self.log.events[: event.number]
        nth = sum(other.site.index == site and other.agent == agent for other in before)
        return self.c.lane(agent), site, nth

    def _over(self, event: Event) -> tuple[int, bool, int]:
        """Return when an event is over: of threads that meet, when the last one has come."""
        number, end = event.number, self.second.number if self.second is not None else 0
        met = [p for p in event.waits if p in event.arrives or p.sync[0] == "semaphore"]
        joined = [n for p in met for n in self.log.arriving(p) if n <= max(end, number)]
        last = max([number, *joined])
        return last, number < last, number

    def _filled(self, one: Event) -> list[int]:
        """Return what wrote the memory that the earlier event reads, and the way from there."""
        shared = self._shared() if self.second is not None else None
        read = {t.where for t in one.touches if not t.writes and (not shared or t.where in shared)}
        for event in reversed(self.log.events[: one.number]):
            if any(touch.writes and touch.where in read for touch in event.touches):
                return self.log.path(event.number, one.number) or [event.number]
        return []

    def _too_weak(self, one: Event, two: Event) -> list[int]:
        """Return the syncs between two events that are of the right kind, but not enough."""
        found: dict[type, list[int]] = {}
        for event in self.c.before(two):
            match event.stmt:
                case kir.FenceAsyncProxy():
                    weak = self.kind == "proxy" and event.agent in (one.agent, two.agent)
                case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
                    weak = event.agent == one.agent and kind is words(one.stmt).group
                case _:
                    weak = False
            if weak:
                found.setdefault(type(event.stmt), []).append(event.number)
        # Later commits are of other groups than that of the event.
        commits = found.pop(kir.AsyncCommit, [])[:1]
        return commits + [n for numbers in found.values() for n in numbers[-2:]]

    def _nearby(self, two: Event) -> list[int]:
        """Return the last syncs before the later event, and the first after the earlier."""
        out: list[int] = []
        start = self.first.number if self.first is not None else -1
        for event in reversed(self.log.events[: two.number + 1]):
            if event.agent != two.agent:
                continue
            if event.k < 0 <= two.k:
                break
            points = {p for p in event.waits if p.sync[0] != "barrier" or event.number > start}
            points = {point for point in points if not point.of_warp}
            givers = [self.log.events[n] for point in points for n in self.log.arriving(point)]
            last = {self.c.team(e.agent): e.number for e in givers if e.agent != two.agent}
            passes = isinstance(event.stmt, kir.MBarrierWaitParity) and not givers
            if (last or passes) and len(out) < 4:
                out += [event.number, *last.values()]
        later = [e for e in self.c.before(two)[1:] if self.first and e.agent == self.first.agent]
        return out + [e.number for e in later if e.arrives and e.syncs][:1]

    def _engine(self, event: Event) -> str:
        many = self.world.ctas > 1
        return words(event.stmt).engine + (f" of CTA {self.c.cta(event)}" if many else "")

    def _busy(self, event: Event) -> str:
        """Say what an engine is doing to memory; of the two events, to what they share."""
        if self.c.registers and event is self.first:
            return f"using {self.c.registers}"
        parts = {what: self._places(event, writes=what == "writing") for what in _DOES}
        return " and ".join(f"{what} {where}" for what, where in parts.items() if where)

    def _places(self, event: Event, *, writes: bool) -> str:
        found = [touch.where for touch in event.touches if touch.writes == writes]
        if len(self.ends) == 2 and event in self.ends:
            both = self._shared()
            found = [where for where in found if where in both]
        return ", ".join(dict.fromkeys(spot(where, self.world.ctas) for where in found))

    def _shared(self) -> set[Where]:
        """Return the places that both events are about."""
        one, two = ({touch.where for touch in event.touches} for event in self.ends)
        return {
            where for where in one | two
            if not one.isdisjoint(self.world.layout.overlaps[where])
            and not two.isdisjoint(self.world.layout.overlaps[where])
        } or one | two  # fmt: skip

    def _state(self, event: Event) -> str:
        """Return the state of the barrier, once all in the lane have done the same."""
        end = self.second.number if self.second is not None else 0
        alike = [
            e.state
            for e in self.log.events[event.number : end if end > event.number else None]
            if e.site.index == event.site.index and self._same(e) == self._same(event)
        ]
        return (alike or [event.state])[-1]


# --- the two events that lack an order, and what is missing between them --------------------------

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
        kind = self.world.code.kinds[agent]
        return kind.cta, kind.role

    def cta(self, event: Event) -> int:
        """Return the CTA of an event."""
        return self.world.code.kinds[event.agent].cta

    def lane(self, agent: int) -> str:
        """Name the threads of a role, or one kind of them where they are to be distinguished."""
        kind = self.world.code.kinds[agent]
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
        blamed = self.wrong.later.index
        found = sorted(alike.values(), key=lambda e: (e.site.index != blamed, e.agent))
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
            for kind in self.world.code.kinds
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
    if kind == "dependency":
        waits = _waits_for_launches(c)
        none = "none; missing is a grid_dependency_wait"
        return f"{named(waits[-1])} by {c.lane(waits[-1].agent)}" if waits else none
    if two is None:
        return "" if one is None else _unfinished(c, one, None)
    if kind == "scope":
        return _narrow(c, two)
    if one is None:
        return _unwritten(c, two) if kind == "RAW" else _last(c, two)
    if kind == "parity":
        seen = [e for e in c.log.events[: two.number] if e.waits & one.arrives]
        return _handshake(c, seen[0], two) if seen else _last(c, two)
    if kind == "map":
        return f"line {one.site.line}: {line(one.stmt)}"
    if kind == "proxy":
        return _unfenced(c, one, two)
    if kind == "fence":
        return f"none; missing is a wgmma_fence {_between(c, one, two)}"
    if kind == "init":
        for event in c.before(two):
            joins = isinstance(event.stmt, kir.BlockSync | kir.ClusterArrive)
            if joins and event.agent == one.agent and event.site.index < two.site.index:
                return f"{named(event)} is not enough for {c.world.code.kinds[two.agent]}"
        where = f"after line {one.site.line}"
        if isinstance(two.stmt, kir.MBarrierInvalidate):
            where = _between(c, one, two)
        return f"none; missing is a block_sync of all threads {where}"
    copies = isinstance(one.stmt, kir.TmaStore | kir.TmaReduce | kir.TmaLoad)
    again = one.site.line == two.site.line and one.k == two.k and c.cta(one) == c.cta(two)
    if copies and again and one.agent != two.agent:
        who = f"{c.world.code.kinds[one.agent]} and by {c.world.code.kinds[two.agent]}"
        return f"{named(two)} is issued by {who}: missing is an election of one thread"
    return _unfinished(c, one, two) if c.unfinished else _handshake(c, one, two)


def _waits_for_launches(c: Conflict) -> list[Event]:
    end = len(c.log.events) if c.second is None else c.second.number
    return [e for e in c.log.events[:end] if isinstance(e.stmt, kir.GridDependencyWait)]


def named(event: Event) -> str:
    """Name an event by its line, with numbers in place of expressions."""
    return f"line {event.site.line}: {short(event.stmt, event.values)}"


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
    """Say which side of a handshake does not reach the other CTA, and why."""
    for event in reversed(c.log.events[: two.number]):
        stmt = event.stmt
        if isinstance(stmt, kir.MBarrierWaitParity):
            if event.agent != two.agent:
                continue
        elif not isinstance(stmt, kir.BlockSerializeWait | kir.BlockSerializeRelease):
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
    for site in (site for agent in range(len(c.world.code.kinds)) for site in c.sites(agent)):
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
    if isinstance(one.stmt, kir.TensorMapReplace):
        return _unacquired(c, one, two)
    if c.cta(one) != c.cta(two):
        takes = [e for e in c.log.events[: two.number] if e.agent == two.agent and e.waits]
        after = f"line {takes[-1].site.line}" if takes else "the acquire"
        who = f"{c.world.code.kinds[two.agent]} between {after} and line {two.site.line}"
        return f"none; missing is a fence_async_proxy by {who}"
    there = [e for e in c.before(two) if isinstance(e.stmt, kir.FenceAsyncProxy)]
    missing = f"a fence_async_proxy by {c.lane(one.agent)} {_between(c, one, two)}"
    if there:
        return f"{named(there[-1])} does not do for {missing}"
    return f"none; missing is {missing}"


def _unacquired(c: Conflict, one: Event, two: Event) -> str:
    """Say which fence of tensor maps is missing between a write and a copy."""
    there = [e for e in c.before(two) if isinstance(e.stmt, kir.TensorMapAcquire)]
    if there:
        return f"{named(there[-1])} does not do for the copy {_between(c, one, two)}"
    released = any(isinstance(e.stmt, kir.TensorMapRelease) for e in c.before(two))
    missing = "tensor_map_acquire" if released else "tensor_map_release"
    return f"none; missing is a {missing} {_between(c, one, two)}"


def _unjoined(c: Conflict, sync: Event, agent: int, where: str) -> str:
    by, other = c.world.code.kinds[sync.agent], c.world.code.kinds[agent]
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
            if kind is not kir.AsyncKind.QUEUE and not any(
                isinstance(e.stmt, kir.AsyncCommit) and e.stmt.kind is kind
                for e in c.log.events[one.number : event.number]
                if e.agent == one.agent
            ):
                says = f"none; missing is async_commit({kind.value}) between line {one.site.line}"
                return f"{says} and the await of line {event.site.line}"
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
