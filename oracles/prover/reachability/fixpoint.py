"""The prover's main engine: every state that a kernel can come to, until states repeat.

All threads of a cluster go through their code together, iteration by iteration.  Of every event it
is known which others precede it in *every* execution (`state`); what one execution might
have decided by chance is asked as an obligation (`mbarriers`).  Before each iteration the whole
state is compared with those seen before, with events named by their places, positions of rings
modulo their use and counts relative to the iteration: when it repeats, so does all that follows.
At each step the loops may end or go on, so all trip counts share their beginnings.

Notes
-----
Why one execution for each trip count is enough: take any other execution and its first event that
does not happen as followed here.  A wait that should see phase j started after phase j-1 completed
(asked), so an older phase cannot satisfy it; phase j+1 needs the wait to have returned (asked), so
a younger one cannot.  A phase gets only its own arrivals and bytes: later ones start after its
completion (asked), earlier ones were needed by earlier phases, and their number is right (asked),
also where it grows on the way: then an arrival of the phase comes later still (asked).
Generations of named barriers are distinguished likewise; groups are counted by one thread.  Hence
there is no such first event.

A loop inside another may have another length each time it is entered, which is more than a launch
can show; so is a count that a second loop uses again.  What is refuted only that way is asked
again with one length for all (`pinned`), and stays open if that does not show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.canonical.counts import Counts
from oracles.prover.reachability.canonical.form import canonical
from oracles.prover.reachability.events import Events
from oracles.prover.reachability.execution import ChoiceError, Execution, ForkError, Log
from oracles.prover.reachability.grid.apart import apart
from oracles.prover.reachability.grid.readings import Reading, private, readings, single
from oracles.prover.reachability.program.code import Code, Enter, assemble
from oracles.prover.reachability.registers import ContestError, budget
from oracles.prover.reachability.rules import Findings, Rule, Violation
from oracles.prover.reachability.state import Agent, State
from oracles.prover.reachability.world import World, least
from oracles.prover.sites import kinds

STATES = 10_000
"""States that are looked at before giving up."""
AHEAD = 64
"""Loops, or rounds of one, by which a role may be ahead; more, and it runs ahead without end."""
PINNED = 9
"""Lengths of inner loops that are tried to confirm a refutation."""


@dataclass(frozen=True, slots=True)
class Closed:
    """What the engine found: obligations that do not hold, by severity.

    `checked` is how many were asked, `states` how many different states there are; `reason` why not
    every state was seen: empty if all were, or if there is a violation.
    """

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    checked: int
    states: int
    reason: str = ""


def judge(
    kernel: kir.Kernel, *, policy: str = "default", without: frozenset[Rule] = frozenset()
) -> Closed:
    """Judge the order of events in a kernel, for every trip count.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    policy : str
        `default` or `strict`.
    without : frozenset of Rule
        Axioms and obligations to leave out, to see whether anybody notices.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    found: list[Violation] = []
    checked = states = 0
    reason = ""
    todo = list(readings(kernel))
    whole, several = True, todo[0].together
    for number, reading in enumerate(todo):
        alone = several and not reading.together
        if alone and whole:
            break
        try:
            one = opened(kernel, reading, policy=policy, without=without)
            many, why = one.confirmed(reading, first=number == 0)
        except UnsupportedError:
            if not alone or reading.fixed[0]:
                raise
            todo += single(kernel)
            continue
        if alone and not reading.fixed[0] and (one.findings.failed or why):
            todo += single(kernel)
            continue
        whole = whole and not one.world.pinned
        states += many
        checked += one.findings.checked
        reason = reason or why or one.findings.doubt
        found += one.findings.violations
        refuted = any(v.severity == "error" for v in found)
        if refuted and not (reading.together and reading.many == 1):
            break
    violations = tuple(_once(v for v in found if v.severity == "error"))
    warnings = tuple(_once(v for v in found if v.severity != "error"))
    return Closed(violations, warnings, checked, states, "" if violations else reason)


def _once(found: Iterable[Violation]) -> Iterator[Violation]:
    seen: set[tuple[str, int, int]] = set()
    for v in found:
        key = v.kind, v.later.line, v.earlier.line if v.earlier else 0
        if key not in seen:
            seen.add(key)
            yield v


def opened(
    kernel: kir.Kernel,
    reading: Reading,
    *,
    policy: str,
    without: frozenset[Rule] = frozenset(),
    pinned: Mapping[int, int] | None = None,
) -> Exploration:
    """Return the exploration of a kernel in a reading, before it has begun.

    `pinned` gives lengths of loops, by unknown; beside these, loops in which CTAs do not meet that
    are followed together go round as few times as there is.
    """
    code = assemble(kernel, kinds(kernel, len(reading.fixed)), reading.fixed)
    given: dict[int, int] = {}
    if reading.together:
        low = least(code)
        given = {atom: low.get(atom, 0) for atom in private(code)}
    return Exploration(World(code, policy, reading.together, given | dict(pinned or {})), without)


class Exploration:
    """All states of a kernel in one reading, and what is wrong in them.

    Single arrivals are followed in clusters, and where a phase seems to be entered early without:
    they tell that a phase is over to threads that have not waited for it, which few kernels need.
    """

    def __init__(
        self, world: World, without: frozenset[Rule] = frozenset(), *, single_arrivals: bool = False
    ) -> None:
        self.world, self.findings = world, Findings(without)
        self.single_arrivals = single_arrivals or world.kernel.cluster > 1
        self._events, self._counts = Events(world.rotation), Counts(world)

    def start(self) -> State:
        """Return the state in which all threads are about to begin."""
        return State([Agent(kind, 0) for kind in self.world.kinds])

    def execution(self, state: State, log: Log | None = None) -> Execution:
        """Return a state on its way; `log` notes every statement."""
        one = Execution(self.world, state, self._events, self.findings, self.single_arrivals)
        one.log = log
        return one

    def stands(self) -> None:
        """Judge what no order of events in a CTA decides: register budgets, what CTAs share."""
        scene = self.execution(State([]))
        apart(scene)
        budget(scene)

    def explore(self) -> tuple[int, str]:
        """Look at all states; return how many there are, and why some were left."""
        before = self.findings.copy()
        found = self._explore()
        early = any(v.rule is Rule.PHASE_EARLY for v in self.findings.violations)
        if early and not self.single_arrivals:
            self.single_arrivals = True
            self.findings.go_back(before)
            found = self._explore()
        return found

    def _explore(self) -> tuple[int, str]:
        seen: set[object] = set()
        todo = [self.start()]
        why = ""
        while todo:
            state = todo.pop()
            execution = self.execution(state)
            while True:
                try:
                    execution.settle()
                    if self.findings.failed:
                        return len(seen), ""
                    if execution.over():
                        break
                except (ForkError, ChoiceError) as error:
                    todo += execution.ways_on(error)
                    break
                except ContestError as contest:
                    todo += contest.states
                    break
                if not execution.counting():
                    key = canonical(execution, self._counts)
                    if key in seen:
                        break
                    seen.add(key)
                    if max(len(state.ranges), state.lead) > AHEAD:
                        why = f"a role runs more than {AHEAD} loops, or rounds, ahead of another"
                        break
                    if len(seen) > STATES:
                        return len(seen), f"more than {STATES} states, and none repeats all others"
                state.pass_gate()
            if self.findings.failed:
                return len(seen), ""
        return len(seen), why

    def confirmed(self, reading: Reading, *, first: bool) -> tuple[int, str]:
        """Explore; what is refuted only by lengths that no launch has is asked again.

        Return how many states there are, and why it stays open, if it does.  The `first` reading
        of a kernel is asked what no order of events decides, too.
        """
        if first:
            self.stands()
        sure = self.findings.copy()  # a launch shows each of them
        try:
            states, why = self.explore()
        except UnsupportedError:
            if not self.findings.failed:
                raise
            states, why = 0, ""
        guessed = any(v not in sure.violations for v in self.findings.errors)
        loose = guessed and (bool(self._counts.parted) or _loose(self.world.code))
        if loose and not self._shown_by_one_length(reading):
            says = self.findings.errors[0]
            why = f"{says.later.where}: {says.says}; not confirmed with one length for all loops"
            self.findings.go_back(sure, asked=False)
        return states, why

    def _shown_by_one_length(self, reading: Reading) -> bool:
        """Whether one length for each loop, the same in every round, shows a violation too."""
        world, code = self.world, self.world.code
        shown = max(v.trips for v in self.findings.errors)
        enters = [i for p in code.programs for i in p if isinstance(i, Enter)]
        nests = any(i.depth for i in enters)
        inner = {i.atom for i in enters if i.atom >= 0 and (i.depth or not nests)}
        # what shows late is asked late first: the short lengths before it have shown nothing
        late = (shown, shown + 1) if shown >= PINNED else ()
        for trips in (*late, *range(PINNED)):
            pinned = dict.fromkeys(inner | self._counts.parted, trips)
            again = opened(
                world.kernel, reading,
                policy=world.policy, without=self.findings.off, pinned=pinned,
            )  # fmt: skip
            again.explore()
            if again.findings.failed:
                self.findings.go_back(again.findings, asked=False)
                return True
        return False


def _loose(code: Code) -> bool:
    """Whether some loop may be given other lengths than a launch can."""
    atoms = [[i.atom for i in p if isinstance(i, Enter) and i.atom >= 0] for p in code.programs]
    nests = any(isinstance(i, Enter) and i.atom >= 0 and i.depth for p in code.programs for i in p)
    return nests or any(len(set(found)) < len(found) for found in atoms)
