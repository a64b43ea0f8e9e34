"""One statement by threads of one kind in a state: what it may ask, note and find wrong.

What it asks of memory is that every two accesses that conflict are ordered.  Of each slot (and each
tensor that is written and read) the accesses are kept that a later one may have to be ordered
after.  A write, once it is ordered after all of them, stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fuser.expr import Kind
from fuser.kernel import ir as kir
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.path import Compared, Evaluated, Kept, Number, Tested
from oracles.prover.reachability.rules import Findings, Rule, Violation, said, spot, words
from oracles.prover.reachability.state import (
    ACQUIRED,
    ANY,
    FACTS,
    GLOBAL,
    MAPS,
    OWN,
    RELEASED,
    SHARED,
    Agent,
    Entry,
    Events,
    Place,
    Range,
    State,
    Unknown,
    Where,
    knows,
)
from oracles.prover.reachability.world import Share, World, map_name
from oracles.prover.sites import Overlap, Site, adds

EVERY = -1
"""The use of an unknown that stands for all its uses."""
SURE = 64
"""Rounds of a loop that are known to come, at most: as if the kernel required no more."""
NOBODY = -1
"""The floor of a loop that all threads are through with."""


class Scene:
    """A state, and what belongs to it: the kernel's facts, numbers of events, what is wrong.

    `single_arrivals` says whether single arrivals at barriers are followed.
    """

    __slots__ = "events", "findings", "single_arrivals", "state", "world"

    def __init__(
        self, world: World, state: State, events: Events, findings: Findings, single_arrivals: bool
    ) -> None:
        self.world, self.state = world, state
        self.events, self.findings = events, findings
        self.single_arrivals = single_arrivals

    def holds(self, rule: Rule) -> bool:
        """Whether an axiom is not taken away."""
        return rule not in self.findings.off

    def violation(self, rule: Rule, site: Site, says: str, k: int = -1) -> Violation:
        """Return that a statement breaks a rule, in an iteration."""
        return Violation(rule, site, says, rule.kind, k, self.trips)

    @property
    def trips(self) -> int:
        """The smallest trip count that shows what the state shows."""
        return max(self.state.shown, *self.world.pinned.values(), 0)

    def floor(self, name: str) -> int:
        """Return the first iteration of a loop that any thread may still reach.

        It is `NOBODY` if all are through with the loop.
        """
        least = NOBODY
        for a in self.state.agents:
            if a.done:
                continue
            spans = self.world.spans.get((a.kind.index, name), ())
            if name in a.env and len(spans) == 1:
                now = a.env[name]
            elif any(a.at < end for _, end in spans):
                now = 0
            else:
                continue
            least = now if least == NOBODY else min(least, now)
        return least

    def unknown_of(self, a: Agent, atom: int) -> Unknown:
        """Return which use of an unknown these threads mean."""
        for loop in a.loops:
            if loop.unknown is not None and loop.unknown.atom == atom:
                return loop.unknown
        if atom not in self.world.code.counts:
            return Unknown(atom, (), 0)
        outer = a.rounds
        return Unknown(atom, outer, max(0, a.passed.count((len(outer), atom)) - 1))

    def known_of(self, unknown: Unknown) -> Range:
        """Return what is known of a count in one of its uses."""
        world, ranges = self.world, self.state.ranges
        pinned = world.pinned.get(unknown.atom)
        if pinned is not None:
            return Range(pinned, exact=True)
        known = ranges.get(unknown)
        if known is None and unknown.use != EVERY and unknown.atom in world.few:
            known = ranges.get(Unknown(unknown.atom, (), EVERY))
        known = known or Range(min(world.least.get(unknown.atom, 0), SURE))
        most = world.most.get(unknown.atom)
        return known if most is None or known.low < most else Range(known.low, exact=True)


class Step(Scene):
    """A statement that threads of one kind execute now, in iteration `k`."""

    __slots__ = "a", "agent", "cta", "do", "k", "site"

    def __init__(self, scene: Scene, a: Agent, do: Do) -> None:
        self.world, self.state = scene.world, scene.state
        self.events, self.findings = scene.events, scene.findings
        self.single_arrivals = scene.single_arrivals
        self.a, self.do, self.site = a, do, do.site
        self.agent, self.cta, self.k = a.kind.index, a.kind.cta, a.k

    def by(self, a: Agent) -> Step:
        """Return the same statement by other threads, who execute it at once."""
        made = Step(self, a, self.do)
        made.k = self.k
        return made

    def value(self, name: str) -> int:
        """Return a number that decides what the statement does."""
        value = self.do.values[name](self.a.env)
        self.state.notes(Evaluated(self.agent, self.do, name, value))
        return value

    def variable(self, name: str) -> Number | int:
        """Return a variable of the threads as a number to compare; -1 if they have none such."""
        return (self.agent, name) if name in self.a.env else -1

    def depends(self, names: Iterable[str]) -> None:
        """Note that what the statement touches depends on the values of some variables."""
        for name in names:
            if name in self.a.env:
                known = self.a.env[name]
                self.state.notes(Compared(Kind.EQ, (self.agent, name), known, answer=True))

    def knows(self, event: int) -> bool:
        """Whether an event precedes the step of each thread in its own past."""
        return knows(self.a.mine, event)

    def all_know(self, event: int) -> bool:
        """Whether an event precedes the step of all threads."""
        return knows(self.a.all, event)

    @property
    def not_of_memory(self) -> int:
        """What the threads know of anything but memory accesses."""
        return self.a.mine & ~self.events.accesses

    def of_its_shared_memory(self, known: int) -> int:
        """Return what is known of anything but accesses of other memory than its own CTA's."""
        events = self.events
        return known & ~(events.accesses & ~events.within.get(self.cta, 0))

    def event(self, sort: str, *rest: object, where: Where | None = None, parity: int = -1) -> int:
        """Return the one event of a place, made new."""
        number = self.events.number(Place(sort, rest, where, parity))
        return self.state.take(number, self.k, self.site.index)

    def own_event(self, sort: str, where: Where) -> int:
        """Return the threads' event at a slot, made new, which precedes what they do next."""
        event = self.event(sort, self.site.index, self.agent, where=where)
        self.a.owns(event)
        return event

    def wrong(
        self, rule: Rule, says: str, *, kind: str = "", earlier: Site | None = None, event: int = -1
    ) -> None:
        """Record that the statement breaks a rule, against an earlier one or its event."""
        found = self.violation(rule, self.site, says, self.k)
        kind = kind or rule.kind
        self.findings.record(replace(found, kind=kind, earlier=earlier, event=event))

    def alone(self, rule: Rule, says: str, after: str = "") -> None:
        """Check that one thread executes the statement."""
        if not self.a.kind.alone:
            self.wrong(rule, f"{says} by {self.a.kind.count} threads{after}")

    def slot(
        self, buffer: kir.Buffer, index: int, cta: int, *, proxy: bool = False
    ) -> Where | None:
        """Return a slot of a buffer, to be accessed so; None if it does not exist."""
        self.findings.ask()
        if not 0 <= index < buffer.slots:
            says = f"{buffer.name}[{index}] is outside its {buffer.slots} slots"
            self.wrong(Rule.BOUNDS, says)
            return None
        where = cta, buffer.name, index
        for m, slot in self.world.layout.barriers_on.get((buffer.name, index), ()):
            life = self.state.phases.get((cta, m.name, slot))
            cover = self.world.accesses.cover
            if life is None or not cover(self.site, self.agent, where, (m, slot)):
                continue
            says = f"{buffer.name}[{index}] lies on bytes of {m.name}, which "
            if life.alive or not self.knows(life.end):
                self.wrong(Rule.INIT, f"{says}may still be alive")
            elif proxy and not self.a.mine >> FACTS * life.end + SHARED & 1:
                self.wrong(Rule.PROXY, f"{says}threads have used, and no fence_async_proxy since")
        return where

    def map_slot(self, maps: kir.TensorMaps) -> Where | None:
        """Return the tensor map that the statement means; None if it does not exist."""
        index = self.value("map")
        self.findings.ask()
        if not 0 <= index < maps.slots:
            self.wrong(Rule.BOUNDS, f"{maps.name}[{index}] is outside its {maps.slots} maps")
            return None
        return self.cta, map_name(maps), index


# --- accesses of memory ---------------------------------------------------------------------------


_HAZARD = {(True, False): Rule.RAW, (False, True): Rule.WAR, (True, True): Rule.WAW}
"""The rule that a hazard breaks by (earlier writes, later writes)."""


@dataclass(slots=True, eq=False)
class Access:
    """An access of a piece of memory by a statement.

    It may go through the async `proxy`, and be an `engine`'s, so that it ends later than it begins.
    """

    step: Step
    where: Where
    writes: bool
    proxy: bool = False
    engine: bool = False

    def judge(self) -> int:
        """Compare it with all earlier ones, and keep it; return its event."""
        step, where, writes = self.step, self.where, self.writes
        a, site, layout, world = step.a, step.site, step.world.layout, step.world
        box = where[0] < 0
        known = a.mine, a.warp, a.all
        if not writes and not box:
            self._written()
        if box and (not writes or adds(site.stmt)) and not self._outside():
            self._unfilled()
        now = layout.now(step.do, a) if box and layout.rolling else ()
        rolls = box and any(layout.regions[where[2]].rolls)
        if rolls and self._behind(now):
            says = "some of what was done here before is not known any more"
            step.findings.doubts(f"{site.where}: {says}")
        mine = site.index, step.agent, where[1]
        asked = 0
        for other in layout.overlaps[where]:
            apart = 0 if box else layout.spans[where][0] - layout.spans[other][0]
            for entry in step.state.memory.get(other, ()):
                if not writes and not entry.writes:
                    continue
                asked += 1
                by, sure = (entry.site, entry.agent, other[1]), True
                level = world.accesses.overlap(by, mine, apart)
                if box:
                    then = step.state.places.get(entry.event)
                    if layout.alike(where, other) and a.all >> FACTS * entry.event & ANY != ANY:
                        self._compared(Kind.EQ, ("place", entry.event), answer=then == now)
                    how = layout.shared(where, now, other, then)
                    if how is None:
                        continue
                    level = level if how is Share.SAME else Overlap.ANY
                    sure = how is not Share.MAYBE
                if level is not Overlap.NEVER:
                    past = known[level] >> FACTS * entry.event
                    if self.proxy or not past & 1:  # else it is ordered, and needs no fence
                        self._order(entry, other, past, sure=sure)
        step.findings.ask(asked)
        event = self._keep()
        if box and layout.rolling:
            step.state.places[event] = now
        if rolls:
            farthest = step.state.farthest
            farthest[where] = max(farthest.get(where, now), now)
            if writes:
                step.state.put[where] = now
            for number in (("place", event), ("farthest", where), ("put", where))[: 2 + writes]:
                step.state.notes(Kept(number, self._now()))
        return event

    def _now(self) -> Number | int:
        """Return the variable that says where a rolling box is now."""
        step = self.step
        layout = step.world.layout
        _, names = layout.names(step.do)
        return step.variable(names[0]) if len(names) == 1 else ("variables", tuple(names))

    def _compared(self, kind: Kind, number: Number, *, answer: bool) -> None:
        """Note how a place that was put down compares with the one now."""
        self.step.state.notes(Compared(kind, number, self._now(), answer))

    def _outside(self) -> bool:
        """Whether a box begins at its limit or behind it, for sure: then it has no element."""
        step = self.step
        test = step.world.layout.empty(step.do, step.a)
        if test is not None:
            step.state.notes(Tested(step.agent, test, answer=True))
        return test is not None

    def _order(self, entry: Entry, of: Where, past: int, *, sure: bool) -> None:
        """Ask that an earlier access, of which the threads know some facts, precedes this one."""
        step, proxy = self.step, self.proxy
        if self._commutes(entry) and step.world.kernel.determinism != "bitwise":
            return
        foreign = self.where[0] < 0 and step.world.code.kinds[entry.agent].cta != step.cta
        fenced = past >> GLOBAL & 1 or not (self.writes or entry.writes)
        if not sure and (not past & 1 or (proxy and not fenced)):
            says = f"nothing tells which elements of {self.where[1]} it shares"
            step.findings.doubts(f"{step.site.where}: {says}")
        elif not past & 1 and entry.proxy and not entry.writes and past >> OWN & 1:
            says = "only one warp of the warpgroup has seen its part of the product end"
            self._report(Rule.WAR, says, entry, weak=True, event=-1)
        elif not past & 1:
            self._race(entry, of)
        elif proxy and self.where[1].startswith(MAPS):
            self._told(entry, of, past)
        elif proxy and (not entry.proxy or (foreign and entry.writes)):
            self._fenced(entry, of, past, foreign=foreign)

    def _report(
        self, rule: Rule, says: str, entry: Entry, *, weak: bool = False, event: int
    ) -> None:
        """Record a violation; a weak one is a warning unless policy is strict."""
        step = self.step
        warns = weak and step.world.policy != "strict"
        found = step.violation(rule, step.site, says, step.k)
        earlier, severity = step.world.code.sites[entry.site], "warning" if warns else "error"
        step.findings.record(replace(found, earlier=earlier, severity=severity, event=event))

    def _written(self) -> None:
        """Check that all bytes of a slot that is read have been written, as whose buffer's ever."""
        step, layout = self.step, self.step.world.layout
        if step.state.valid.get(self.where):
            return
        start, end = layout.spans[self.where]
        valid = (other for other in layout.overlaps[self.where] if step.state.valid.get(other))
        for low, high in sorted(layout.spans[other] for other in valid):
            if low <= start:
                start = max(start, high)
        if start < end:
            name = spot(self.where, step.world.ctas)
            reads = f"{said(step.site, step.k)} by {step.a.kind}"
            step.wrong(Rule.WRITTEN, f"nothing orders a write of {name} before {reads}")

    def _unfilled(self) -> None:
        """Check that a box of a workspace has been written, if whoever may do so is followed."""
        step, where, world = self.step, self.where, self.step.world
        scratch = where[1] in world.kernel.workspaces and (world.together or not world.among_ctas)
        if not scratch:
            return
        layout, state = world.layout, step.state
        now = layout.now(step.do, step.a)
        written = [
            other
            for other in layout.overlaps[where]
            if other in state.valid and (not layout.alike(other, where) or self._put(other, now))
        ]
        if not written:
            says = f"nothing has written this box of {where[1]}, a workspace"
            step.wrong(Rule.WRITTEN, says)
        elif not layout.regions[where[2]].filled([layout.regions[other[2]] for other in written]):
            says = f"nothing tells that all of this box of {where[1]} is written"
            step.findings.doubts(f"{step.site.where}: {says}")

    def _put(self, other: Where, now: tuple[int, ...]) -> bool:
        """Whether a box that moves alike was last written where this one is now."""
        then = self.step.state.put.get(other)
        if then is not None:
            self._compared(Kind.EQ, ("put", other), answer=then == now)
        return then == now

    def _behind(self, now: tuple[int, ...]) -> bool:
        """Whether a rolling box has been at a later place already, by an access of anybody."""
        layout, farthest = self.step.world.layout, self.step.state.farthest
        for other in {self.where, *layout.overlaps[self.where]}:
            if other in farthest and layout.alike(self.where, other):
                if farthest[other] > now:
                    return True
                self._compared(Kind.LE, ("farthest", other), answer=True)
        return False

    def _keep(self) -> int:
        """Put the access down, and drop those that it stands for; return its event."""
        step, where, state, site = self.step, self.where, self.step.state, self.step.site
        start, end = step.world.layout.spans[where]
        same = -1 if self.engine else step.event("access", site.index, step.agent, where=where)
        old = state.memory.get(where, ())
        if self.writes:
            for other in step.world.layout.overlaps[where]:
                if other != where and (there := state.memory.get(other)):
                    state.memory[other] = self._uncovered(there, start, end)
            state.valid[where] = True
            left = self._uncovered(old, start, end)
            if adds(site.stmt):
                left = (*{*left, *(e for e in old if not self._stands_for(e))},)
            old = tuple(e for e in left if e.event != same)
        else:
            past, index, agent = step.a.mine, site.index, step.agent
            old = tuple(
                e
                for e in old
                if e.event != same
                and not (e.site == index and e.agent == agent and past >> FACTS * e.event & 1)
            )
        state.memory[where] = old
        if self.engine:
            number = step.events.engine(state, step.a, where, site.index)
            same = state.take(number, step.k, site.index)
        entry = Entry(
            same, site.index, step.agent, self.writes, self.proxy, self.engine, start, end
        )
        state.memory[where] = tuple(sorted((*old, entry)))
        if not self.engine:
            step.a.owns(same)
        return same

    def _stands_for(self, entry: Entry) -> bool:
        """Whether whoever follows a sum follows this access too.

        Where sums may come in any order, another one need not follow this one.
        """
        world = self.step.world
        free = world.kernel.determinism != "bitwise"
        if free and not adds(world.code.sites[entry.site].stmt):
            return False
        return self.step.knows(entry.event)

    def _uncovered(self, entries: tuple[Entry, ...], start: int, end: int) -> tuple[Entry, ...]:
        """Return the entries that a write of `start ... end` does not yet stand for.

        Ordinary threads write a part of a tile each; only all parts together stand for what another
        statement did.
        """
        step, site = self.step, self.step.site
        if step.world.accesses.spreads[site.index] is None:
            return tuple(e for e in entries if not (start <= e.start and e.end <= end))
        out = []
        everybody = step.world.accesses.writers(site, step.cta)
        for e in entries:
            if not (start <= e.start and e.end <= end):
                out.append(e)
                continue
            if e.site == site.index:
                if e.agent != step.agent:
                    out.append(e)
                continue
            by, parts = e.cover
            parts = (parts if by == site.index else 0) | 1 << step.agent
            if parts & everybody != everybody:
                out.append(e._replace(cover=(site.index, parts)))
        return tuple(out)

    def _pair(self, entry: Entry, of: Where) -> tuple[str, str]:
        """Name an earlier access and this one; of those by threads also who.

        Of an operation in flight it is the end that matters.
        """
        step, world = self.step, self.step.world
        when, _ = step.state.when.get(entry.event, (-1, 0))
        before = said(world.code.sites[entry.site], when)
        after = f"{said(step.site, step.k)} of {spot(self.where, world.ctas)}"
        same = entry.site == step.site.index and entry.agent != step.agent
        if entry.engine:
            before = f"the end of {before}"
        if same or not entry.proxy:
            before += f" by {world.code.kinds[entry.agent]}"
        if of != self.where and of[0] >= 0:
            after += f", on bytes of {spot(of, world.ctas)},"
        threads = isinstance(step.site.stmt, kir.CpAsync | kir.StAsync)
        if same or threads or not words(step.site.stmt).engine:
            after += f" by {step.a.kind}"
        return before, after

    def _race(self, entry: Entry, of: Where) -> None:
        """Record that nothing orders an earlier access before this one, if that is wrong."""
        world = self.step.world
        rule, more = _HAZARD[entry.writes, self.writes], ""
        if self._commutes(entry):
            rule = Rule.DETERMINISM
            more = ": both add, in either order, and the kernel promises the same bits"
        elif world.kernel.cluster > 1:
            if knows(self.step.state.lacking, entry.event):
                rule = Rule.SCOPE
                more = ": a wait at cta scope acquires nothing of what another CTA tells"
        elif world.code.kinds[entry.agent].cta != self.step.cta:
            if knows(self.step.state.lacking, entry.event):
                rule = Rule.SCOPE
                more = (
                    ": a release that is relaxed or too narrow orders only what is fenced before it"
                )
            elif entry.engine and entry.writes:
                rule = Rule.DRAIN
                more = ": its turn was given away with the bulk writes in flight"
        before, after = self._pair(entry, of)
        says = f"nothing orders {before} before {after}{more}"
        self._report(rule, says, entry, event=entry.event)

    def _commutes(self, entry: Entry) -> bool:
        """Whether an earlier access and this one both add, in one way: either may come first."""
        earlier, now = self.step.world.code.sites[entry.site].stmt, self.step.site.stmt
        return bool(adds(earlier)) and type(earlier) is type(now)

    def _told(self, entry: Entry, of: Where, past: int) -> None:
        """Check that the write of a tensor map has been released and acquired."""
        if past >> ACQUIRED & 1:
            return
        missing = "acquire" if past >> RELEASED & 1 else "release"
        before, after = self._pair(entry, of)
        says = f"no tensor_map_{missing} stands between {before} and {after}"
        self._report(Rule.PROXY, says, entry, event=entry.event)

    def _fenced(self, entry: Entry, of: Where, past: int, *, foreign: bool) -> None:
        """Check that an access of the other proxy, or CTA, reaches this one through a fence."""
        fact = GLOBAL if self.where[0] < 0 else SHARED
        rule = Rule.PROXY
        if entry.writes and not past >> fact & 1:
            says = "no fence_async_proxy orders the generic write before the copy"
            if entry.proxy:
                says = "no fence_async_proxy stands between the acquire and the copy"
        elif entry.writes:
            if past >> OWN & 1 or entry.engine or foreign:
                return
            says = "the fence_async_proxy stands with the reader, not with the writer"
            rule = Rule.PROXY_WRITER
        elif self.writes and not past >> fact & 1:
            says = "no fence_async_proxy orders the generic read before the refill"
            rule = Rule.PROXY_READ
        else:
            return
        before, after = self._pair(entry, of)
        says = f"{says}: {before}, then {after}"
        weak = rule in (Rule.PROXY_READ, Rule.PROXY_WRITER)
        self._report(rule, says, entry, weak=weak, event=entry.event)
