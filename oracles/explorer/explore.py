"""The explorer: every interleaving of a kernel at one launch, counters and all.

A third reading of the Kernel IR, by execution: agents go step by step over hardware-like counters,
and carry what they know of each other's accesses (`state`).  Values are not computed.
What stands for what, and why one interleaving may stand for all, is argued in `search`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.explorer.machine import Machine
from oracles.explorer.memory import all_written
from oracles.explorer.plan import Plan, TooMany, value
from oracles.explorer.rules import Defect, NotModelled, Rule
from oracles.explorer.search import Search
from oracles.explorer.state import Access
from oracles.explorer.unroll import unroll
from oracles.explorer.witness import tell
from oracles.launches.choose import choose, none_of
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness

ORACLE = "explorer"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched: CTAs, whole clusters, and every parameter of the kernel."""

    grid: int
    params: Mapping[str, int]


def explore(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launch | tuple[Launch, ...] | None = None,
    *,
    policy: str = "default",
    states: int = 200_000,
    without: frozenset[Rule] = frozenset(),
    reduce: bool = True,
) -> Verdict:
    """Explore every interleaving of a launch.

    Parameters
    ----------
    kernel : Kernel or LaunchSequence
        What is judged.
    launch : Launch or tuple of Launch, optional
        Parameters; one launch for each kernel of a program.  Without it small launches are chosen
        for a kernel, and explored up to the first that fails.
    policy : str
        "default", or "strict": a missing fence between a read and an engine's write is an error.
    states : int
        States to look at, at most; beyond, the answer is UNKNOWN.
    without : frozenset of Rule
        Rules left out of the reading.
    reduce : bool
        Whether one interleaving may stand for all where that is shown.

    Returns
    -------
    Verdict
        FAIL with the first defect, PASS if all interleavings were explored, UNKNOWN beyond
        `states`, UNSUPPORTED for what is not modelled, and where no launch was found.

    Raises
    ------
    ValueError
        If the launch is none of the kernel's.
    """
    if launch is None:
        if isinstance(kernel, LaunchSequence):
            raise ValueError(f"explore({kernel.name}): give a launch for each of its kernels")
        again = partial(
            explore, kernel, policy=policy, states=states, without=without, reduce=reduce
        )
        return _everywhere(kernel, again)
    kernels = kernel.launches if isinstance(kernel, LaunchSequence) else (kernel,)
    launches = launch if isinstance(launch, tuple) else (launch,)
    if len(kernels) != len(launches):
        raise ValueError(f"explore(...): {len(kernels)} kernels and {len(launches)} launches")
    if policy not in ("default", "strict"):
        raise ValueError(f"explore(policy={policy!r}): pick default or strict")
    checked = looked = 0
    warnings: list[Finding] = []
    if (early := _early(kernels)) is not None:
        return Verdict(ORACLE, Status.FAIL, 1, (early,))
    for one, how in zip(kernels, launches, strict=True):
        reading = _Reading(one, how, policy, states - looked, without, reduce)
        verdict = reading.verdict()
        checked, looked = checked + verdict.checked, looked + reading.looked
        warnings += [f for f in verdict.findings if f.severity == "warning"]
        if verdict.status is not Status.PASS:
            return replace(verdict, states=looked)
    return Verdict(ORACLE, Status.PASS, checked, tuple(warnings), f"{looked} states", looked)


def witness(
    kernel: kir.Kernel,
    launch: Launch,
    *,
    policy: str = "default",
    states: int = 200_000,
) -> Witness | None:
    """Tell the way on which a launch goes wrong; None if none does, or before anything happens."""
    reading = _Reading(kernel, launch, policy, states, frozenset(), True, telling=True)
    reading.verdict()
    if reading.wrong is None:
        return None
    shown = (*launch.params.items(), (kir.GRID.name, launch.grid))
    return tell(*reading.wrong, shown)


def _early(kernels: tuple[kir.Kernel, ...]) -> Finding | None:
    """Find a launch that counts on a tensor to be written by none that may run when it starts."""
    for number, one in enumerate(kernels):
        for before in reversed(kernels[:number] if one.dependent else ()):
            both = {*one.early} & {*before.outputs, *before.workspaces}
            if both:
                says = f"{before.name} writes {min(both)}, and may still run when {one.name} starts"
                return Finding("dependency", f"kernel {one.name}", says)
            if not before.dependent:
                break
    return None


def _unread(plan: Plan) -> dict[tuple[str, str], str]:
    """Warn of copies into slots of which no agent reads a byte."""
    used: dict[int, int] = {}
    filled: dict[tuple[int, str], Access] = {}
    for step in (step for agent in plan.agents for step in agent.steps):
        copies = isinstance(step.stmt, kir.TmaLoad | kir.CpAsync | kir.QueueCopy)
        for one in (one for one in step.accesses if one.shared):
            used[one.space] = used.get(one.space, 0) | (0 if one.write else one.mask)
            if copies and one.write and not one.barrier:
                mask = one.mask | getattr(filled.get((one.space, one.what)), "mask", 0)
                filled[one.space, one.what] = replace(one, mask=mask)
    return {
        ("unread", one.where): f"nothing reads {one.what} in this launch"
        for one in filled.values()
        if not one.mask & used[one.space]
    }


def _everywhere(kernel: kir.Kernel, judge: Callable[[Launch], Verdict]) -> Verdict:
    """Explore the launches that are chosen for a kernel, up to the first that fails."""
    done: list[Verdict] = []
    for one in choose(kernel).launches:
        done.append(judge(Launch(one.grid, one.params)))
        if done[-1].status in (Status.FAIL, Status.UNSUPPORTED):
            break
    if not done:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=none_of(kernel))
    worst = next((one for one in done if one.status is Status.UNKNOWN), done[-1])
    if done[-1].status is Status.FAIL:
        worst = done[-1]
    found = {(f.kind, f.where): f for verdict in done for f in verdict.findings}
    checked, looked = (sum(v.checked for v in done), sum(v.states for v in done))
    reason = f"launch {1 + done.index(worst)} of {len(done)}: {worst.reason}"
    return Verdict(ORACLE, worst.status, checked, tuple(found.values()), reason, looked)


@dataclass(slots=True)
class _Reading:
    kernel: kir.Kernel
    launch: Launch
    policy: str
    states: int
    without: frozenset[Rule]
    reduce: bool
    looked: int = 0
    checked: int = 0
    telling: bool = False
    wrong: tuple[Search, Defect] | None = None
    """The search that ended with a defect."""

    def verdict(self) -> Verdict:
        """Explore all units of the launch, and what they do to each other."""
        warnings: dict[tuple[str, str], str] = {}
        values = self._values()
        feet: list[tuple[tuple[int, ...], dict[int, list[Access]]]] = []
        search: Search | None = None
        waits = 0
        try:
            for ctas in self._units():
                plan = Plan(self.kernel, values, ctas, self.without, telling=self.telling)
                search = None
                unroll(plan)
                steps = (step for agent in plan.agents for step in agent.steps)
                waits += sum(isinstance(step.stmt, kir.GridDependencyWait) for step in steps)
                warnings |= _unread(plan)
                machine = Machine(plan, self.policy)
                search = Search(machine, self.states - self.looked, self.reduce)
                search.run()
                self.looked += search.states
                search = None
                self.checked += machine.memory.checked + plan.events
                warnings |= machine.memory.warnings
                feet.append((ctas, machine.memory.footprint))
            self._apart(feet)
            self._covered(feet)
            if self.kernel.dependent and not waits:
                says = "no thread waits for the launches before this one, which may outlive it"
                where = f"kernel {self.kernel.name}"
                plan.refuse(Rule.DEPENDENCY, "dependency", where, says)
        except Defect as defect:
            at = f"\n  last steps: {search.last()}" if search and search.way else ""
            self.wrong = (search, defect) if search else None
            shown = (*self.launch.params.items(), (kir.GRID.name, self.launch.grid))
            says = f"{defect.says}{at}"
            finding = Finding(defect.kind, defect.where, says, launch=shown)
            self.looked += search.states if search else 0
            return self._answer(Status.FAIL, (finding,), f"{self.looked} states")
        except TooMany as many:
            self.looked += search.states if search else 0
            at = f" ({search.loose})" if search else ""
            return self._answer(Status.UNKNOWN, (), f"{many}{at}")
        except NotModelled as construct:
            return self._answer(Status.UNSUPPORTED, (), str(construct))
        found = tuple(
            Finding(kind, where, says, "warning") for (kind, where), says in warnings.items()
        )
        self.checked = max(self.checked, 1)
        return self._answer(Status.PASS, found, f"{self.looked} states")

    def _answer(self, status: Status, found: tuple[Finding, ...], reason: str) -> Verdict:
        return Verdict(ORACLE, status, self.checked, found, reason, self.looked)

    def _values(self) -> dict[Var, int]:
        kernel, launch = self.kernel, self.launch
        names = {p.name for p in kernel.params}
        if names != set(launch.params):
            raise ValueError(f"Launch(params={dict(launch.params)}): give {sorted(names)}")
        if launch.grid < 1 or launch.grid % kernel.cluster:
            raise ValueError(f"Launch(grid={launch.grid}): a multiple of {kernel.cluster} CTAs")
        values = {p: launch.params[p.name] for p in kernel.params}
        values[kir.GRID] = launch.grid
        for condition in kernel.requires:
            try:
                holds = value(condition, values)
            except Defect:  # a requirement that means nothing is not met
                holds = 0
            if not holds:
                raise ValueError(f"Launch({launch}): the kernel requires {condition}")
        return values

    def _units(self) -> list[tuple[int, ...]]:
        size = self.launch.grid if self.kernel.semaphores else self.kernel.cluster
        return [tuple(range(i, i + size)) for i in range(0, self.launch.grid, size)]

    def _covered(self, feet: list[tuple[tuple[int, ...], dict[int, list[Access]]]]) -> None:
        if Rule.COVERAGE in self.without:
            return
        values = self._values()
        for number, tensor in enumerate(self.kernel.tensors):
            if tensor.name not in self.kernel.outputs:
                continue
            self.checked += 1
            found = (a for ctas, spaces in feet for a in spaces.get(len(ctas) + number, ()))
            all_written(tensor.name, prod(value(e, values) for e in tensor.extents), found)

    def _apart(self, feet: list[tuple[tuple[int, ...], dict[int, list[Access]]]]) -> None:
        if Rule.LAUNCH in self.without:
            return
        written: dict[int, tuple[int, int, int]] = {}
        shift = len(feet[0][0]) if feet else 0
        for ctas, spaces in feet:
            for space, accesses in spaces.items():
                writes = sums = reads = 0
                for access in accesses:
                    if access.adds and (access.exact or self.kernel.determinism != "bitwise"):
                        sums |= access.mask
                    elif access.write:
                        writes |= access.mask
                    else:
                        reads |= access.mask
                        continue
                    self.checked += 1
                old_writes, old_sums, old_reads = written.get(space, (0, 0, 0))
                both = writes & (old_writes | old_sums) | sums & old_writes
                late = writes & old_reads | reads & (old_writes | old_sums) | sums & old_reads
                name = self.kernel.tensors[space - shift].name
                if both or late:
                    adds = all(a.adds for a in accesses if a.write and a.mask & both) and both
                    kind = "determinism" if adds else "WAW" if both else "RAW"
                    says = f"CTAs {ctas} and others, which nothing orders, meet at it"
                    raise Defect(Rule.LAUNCH, kind, f"tensor {name}", says)
                written[space] = (old_writes | writes, old_sums | sums, old_reads | reads)


__all__ = ["ORACLE", "Launch", "Rule", "explore", "witness"]
