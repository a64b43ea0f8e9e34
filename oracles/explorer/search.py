"""All interleavings of a unit: one, where it stands for all of them, else every one.

Agents are deterministic sequences of steps, so an interleaving is settled by how the steps that
meet at a counter are ordered.  Seven facts keep the search small.

1. *Local steps first.*  Accesses, fences, awaits and issues change nothing that another agent's
   step can see; and a race is found from what the later of two accesses knows, in either order
   (`memory`).  So they are executed as soon as they can be, in one order.  Lanes of a warp
   that meet, and warps that issue one wgmma before any of them has awaited it, wait for each other.
2. *Ends of groups are no steps.*  Nobody but its awaiter learns of the end of a group, so an await
   passes at once and grants the events; in-flight until then, as late as possible.
3. *Which steps commute.*  Steps of two agents at different counters do.  Of steps at one counter:
   two that count in the same phase (arrivals, bytes, announcements, arrivals at a named barrier),
   if neither order ends the phase between them, since counts are sums and knowledge is a union; two
   waits; and a wait with a step that counts, unless this ends a phase.  Nothing else: an arrival
   does not commute with what raises the pending count (`expect_tx`, `cp.async.mbarrier.arrive`
   without `noinc`) where it can be the last before it, nor with an arrival of the next phase, be
   it of the same warp's other lanes, nor do a release of a semaphore and a wait for it.  Whether
   anybody waits for the phase does not matter: an arrival too many is a defect by itself.
4. *One way for all.*  Let a way run to its end such that at every counter
   (a) each arrival, byte, announcement and wait of phase j knows, in time, that phase j - 1 was
   over;
   (b) each phase ends after all waits that saw the phase before;
   (c) what a phase announces without arriving is known, in time, to one of the arrivals that the
   barrier's count was made for: those of threads, and of cp.async with `noinc`;
   (d) the same for turns of semaphores and of named barriers; and registers are not given back
   after some were taken.
   Then every interleaving is the same up to the order of steps that commute.  For take the first
   step of another interleaving that goes otherwise than in this one: everything before it has gone
   alike, so at its counter there has been a part of what counts in this way, closed under what it
   knows.  By (a) none of a later phase is in it while an earlier one runs.  A phase cannot end on a
   proper part of its own: arrivals that raised the count themselves add nothing to it, so all those
   that the count was made for are needed; by (c) the part then holds all announcements, hence
   wants all bytes and all arrivals announced.  By (a) and (b) a wait finds the phase that it saw,
   or blocks: so it does not go otherwise.  Races, depending on what is known alone, are the same.
   (a) is met where all arrivals of phase j - 1 are known and none of them brought bytes: who knows
   them knows that it has ended.
   `State.loose` tells the first place where (a) to (d) do not hold.
5. *One way for each last CTA.*  Of the CTAs that arrive at an integer, the last one learns of all
   and the others learn nothing, so those that are not the last commute: a sum, and a union for the
   last.  Of ways in which the same CTAs are the last, fact 4 says that they are the same, if each
   CTA arrives at an integer once, and CTAs are elected there once.  So one way is run for every
   choice of the last CTAs; where not all can go on because the chosen one cannot be the last, no
   interleaving has it so.  What is left, `State.loose` tells.
6. *Arrivals have a phase.*  Where (a) does not hold for an arrival, a copy, or an arrival at a
   named barrier, what it knows can happen alone, and then it lands in the phase or generation
   before.  That is a defect (`Rule.EARLY`), whether a waiter is confused by it or not; it is
   reported last, after the ways that show what comes of it.
7. *Else, all ways.*  First those in which one agent, one arrival, or everything in flight, is as
   late or as early as can be, since the difference between late and early is where defects are
   found; then depth first over every choice, with a memory of states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product

from oracles.explorer.machine import Choice, Machine
from oracles.explorer.plan import TooMany
from oracles.explorer.rules import Rule
from oracles.explorer.state import Op, State, Step

HELD = 200
"""Arrivals that are held back, one at a time."""
SHOWN = 2000
"""States in which to look for what comes of an arrival that may be early."""
LAST = 10
"""Steps that a witness tells."""


@dataclass(slots=True)
class Search:
    """The search of one unit: at most `limit` states; `reduce` allows one way for all (fact 4)."""

    machine: Machine
    limit: int
    reduce: bool = True
    states: int = 0
    loose: str = ""
    early: tuple[str, str, str] | None = None
    held: bool = False
    """Whether the last way could not go on because another CTA was chosen to be the last."""
    way: list[tuple[int, Step | int]] = field(default_factory=list)
    """An agent and its step, or -1 and the mbarrier slot of an operation that ends."""

    def run(self) -> None:
        """Look at all interleavings: a Defect in one of them, or TooMany states, is raised."""
        if self.reduce:
            self.loose = self._each_last()
            if not self.loose:
                return
            for victim, early, pc in self._ways():
                self._one_way(victim, early=early, hold=pc)
                if self.early is not None and self.states > SHOWN:
                    break
            self._punctual()
        self._every_way()
        self._punctual()

    def _each_last(self) -> str:
        """Run one way for every choice of last-arriving CTAs (fact 5); return `State.loose`."""
        barriers = self.machine.barriers
        choices, loose, held = barriers.choices(), "", 0
        tried = 0
        for ctas in product(*(ctas for _, ctas in choices)):
            barriers.chosen = {at: cta for (at, _), cta in zip(choices, ctas, strict=True)}
            self.held = False
            loose = self._one_way(-1, early=False)
            held, tried = held + self.held, tried + 1
            if loose:
                break
        barriers.chosen = {}
        return loose or ("no CTA can arrive last" if held == tried else "")

    def _punctual(self) -> None:
        """Demand that no arrival or copy was seen that can land in the phase before (fact 6)."""
        if self.early is not None:
            self.way = []
            self.machine.plan.refuse(Rule.EARLY, *self.early)

    def last(self) -> str:
        """Return the last steps of the way that was being taken."""
        plan = self.machine.plan
        return "; ".join(
            f"an operation on {plan.slot_name(step)} ends"
            if isinstance(step, int)
            else f"{plan.agents[agent].name}: {step.where}"
            for agent, step in self.way[-LAST:]
        )

    def _count(self) -> None:
        self.states += 1
        if self.states > self.limit:
            raise TooMany(f"more than {self.limit} states")

    def _settle(self, st: State) -> None:
        machine, busy = self.machine, True
        while busy:
            busy = False
            for i in range(len(st.pcs)):
                while machine.local(st, i):
                    self._note(st, (0, i))
                    machine.advance(st, i)
                    busy = True

    def _choices(self, st: State) -> list[Choice]:
        """Return who can go next: agents first, so that operations end late."""
        machine = self.machine
        agents: list[Choice] = [(0, i) for i in range(len(st.pcs)) if machine.enabled(st, i)]
        return agents + [(1, k) for k in range(len(st.flight))]

    def _go(self, st: State, choice: Choice) -> None:
        self._note(st, choice)
        if choice[0]:
            self.machine.finish(st, choice[1])
        else:
            self.machine.advance(st, choice[1])

    def _note(self, st: State, choice: Choice) -> None:
        if choice[0]:
            self.way.append((-1, st.flight[choice[1]][0]))
        else:
            step = self.machine.next_step(st, choice[1])
            assert step is not None, "who goes has a step"
            self.way.append((choice[1], step))

    def _end(self, st: State) -> None:
        if self.machine.done(st):
            self.machine.end(st)
        elif Rule.DEADLOCK not in self.machine.plan.without:
            raise self.machine.stuck(st)

    def _ways(self) -> Iterator[tuple[int, bool, int]]:
        """Yield who is late, whether operations end early, and at which step only (or -1)."""
        agents = [agent for agent in self.machine.plan.agents if agent.steps]
        for early in (True, False):
            yield from ((agent.index, early, -1) for agent in agents)
        arrivals = (
            (agent.index, False, pc)
            for agent in agents
            for pc, step in enumerate(agent.steps)
            if step.op is Op.ARRIVE
        )
        yield from islice(arrivals, HELD)

    def _one_way(self, victim: int, *, early: bool, hold: int = -1) -> str:
        """Run one way, `victim` last, always or at its step `hold` only; return `State.loose`."""
        st = self.machine.plan.start()
        self.way = []
        picked = 0
        while True:
            self._settle(st)
            self._count()
            choices = self._choices(st)
            if not choices:
                self.held = self.machine.held(st)
                if not self.held:
                    self._end(st)
                self.early = self.early or st.early
                return st.loose
            if early and st.flight:
                choices = [c for c in choices if c[0]]
            held = hold < 0 or st.pcs[victim] == hold
            others = [c for c in choices if not held or c != (0, victim)] or choices
            picked += 1
            agents = [c for c in others if not c[0]]
            self._go(st, agents[picked % len(agents)] if agents else others[0])

    def _every_way(self) -> None:
        first = self.machine.plan.start()
        self.way = []
        self._settle(first)
        seen = {first.key()}
        stack = [(first, self._choices(first), 0)]
        self._count()
        if not stack[0][1]:
            self._end(first)
        marks = [len(self.way)]
        while stack:
            st, choices, at = stack.pop()
            mark = marks.pop()
            if at >= len(choices):
                continue
            del self.way[mark:]
            stack.append((st, choices, at + 1))
            marks.append(mark)
            following = st.copy()
            self._go(following, choices[at])
            self._settle(following)
            self.early = self.early or following.early
            key = following.key()
            if key in seen:
                continue
            seen.add(key)
            self._count()
            more = self._choices(following)
            if not more:
                self._end(following)
            stack.append((following, more, 0))
            marks.append(len(self.way))
