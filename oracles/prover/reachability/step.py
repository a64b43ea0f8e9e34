"""One statement by threads of one kind in a state: what it may ask, note and find wrong."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from oracles.prover.reachability.events import Events
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Findings, Rule, Violation
from oracles.prover.reachability.state import Agent, State, Where, knows
from oracles.prover.reachability.witness.words import said
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site

NOBODY = -1
"""The floor of a loop that all threads are through with."""


class Scene:
    """A state, and what belongs to it: the kernel's facts, numbers of events, what is wrong.

    `single_arrivals` says whether single arrivals at barriers are followed.
    """

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
        trips = max(self.state.shown, *self.world.pinned.values(), 0)
        return Violation(rule, site, says, rule.kind, k, trips)

    def floor(self, name: str) -> int:
        """Return the first iteration of a loop that any thread may still come to.

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

    def said(self, site: Site, k: int) -> str:
        """Name an operation with its iteration and its line."""
        return said(self.world, site, k)


class Step(Scene):
    """A statement that threads of one kind execute now, in iteration `k`."""

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
        return self.do.values[name](self.a.env)

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

    def event(self, *place: object) -> int:
        """Return the one event of a place, made new."""
        return self.state.take(self.events.number(place), self.k, self.site.index)

    def own_event(self, *place: object) -> int:
        """Return the one event of a place, made new, which precedes what the threads do next."""
        event = self.event(*place)
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

    def slot(self, buffer: kir.Buffer, index: int, cta: int) -> Where | None:
        """Return a slot of a buffer; None if it does not exist."""
        self.findings.ask()
        if not 0 <= index < buffer.slots:
            says = f"{buffer.name}[{index}] is outside its {buffer.slots} slots"
            self.wrong(Rule.BOUNDS, says)
            return None
        where = cta, buffer.name, index
        for m, slot in self.world.layout.barriers_on.get((buffer.name, index), ()):
            life = self.state.phases.get((cta, m.name, slot))
            if (
                life is not None
                and (life.alive or not self.knows(life.end))
                and self.world.accesses.cover(self.site, self.agent, where, (m, slot))
            ):
                says = f"{buffer.name}[{index}] lies on bytes of {m.name}, which may still be alive"
                self.wrong(Rule.INIT, says)
        return where
