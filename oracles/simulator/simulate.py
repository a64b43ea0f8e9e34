"""The simulator: one kernel, one launch, one adversarial order of events at a time.

A deterministic stepper over the model machine.  It reports what it saw by order (vector
clocks), by count (phases, bytes, arrivals) and by coverage (every output element written once);
values are left in the output arrays for another oracle to compare.  It says nothing about
other launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.launches.choose import choose, none_of
from oracles.simulator.memory.access import Tensors, broken_precondition
from oracles.simulator.memory.ops import REGISTER, Array, round_to
from oracles.simulator.memory.registers import number
from oracles.simulator.prepare import Prepared, broken_requirement, misplaced, unsupported
from oracles.simulator.run import Run, judge_end
from oracles.simulator.schedule import STRATEGIES, Given, Order
from oracles.simulator.unroll import BadExpression, Unsettled
from oracles.simulator.witness import witness_of
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness

ORACLE = "simulator"
"""Name in verdicts."""
POLICIES = ("default", "strict")
"""Readings of the rules on which the field disagrees."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started: its CTAs, at least 1, and a value for every parameter.

    The CTAs in `blocks` run, all by default; coverage is judged only where all run.
    """

    grid: int
    params: Mapping[str, int]
    blocks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch, ready to run; `fresh` workspaces, of no launch before it, begin as poison."""

    prepared: Prepared
    launch: Launch
    tensors: Mapping[str, Array]
    scalars: Mapping[str, Array]
    fresh: tuple[str, ...]


@dataclass(slots=True)
class Done:
    """What came of a run; `last` is the one that ended it."""

    findings: list[Finding] = field(default_factory=list)
    checked: int = 0
    accesses: int = 0
    last: Run | None = None

    @property
    def error(self) -> Finding | None:
        """The first defect."""
        return next((f for f in self.findings if f.severity == "error"), None)


def chain(
    kernels: Sequence[kir.Kernel],
    launches: Sequence[Launch],
    tensors: Mapping[str, Array] | None,
    scalars: Mapping[str, float] | None,
) -> tuple[Stage, ...] | str:
    """Lay out launches in a row; tensors of one name are the same memory.

    Or return in words the launch precondition that is broken.  ValueError if arrays or parameters
    are not what the kernels ask for.
    """
    stages: list[Stage] = []
    memory: dict[str, Array] = {}
    for kernel, launch in zip(kernels, launches, strict=True):
        env = _environment(kernel, launch)
        broken = broken_requirement(kernel, env)
        if broken:
            return broken
        prepared = Prepared(kernel, env)
        for name, seen in prepared.views.items():
            broken = broken_precondition(seen, copied=name in prepared.geometry.fixed.copied)
            if broken:
                return broken
        fresh = tuple(name for name in kernel.workspaces if name not in memory)
        mine: dict[str, Array] = {}
        for i, t in enumerate(kernel.tensors):
            shape = prepared.views[t.name].extents
            if t.name in memory:
                mine[t.name] = _seen_as(memory[t.name], t, shape)
            elif tensors is None or (t.name in kernel.workspaces and t.name not in tensors):
                mine[t.name] = _made(kernel, t, shape, i, _places(prepared, t))
            else:
                mine[t.name] = _checked(tensors, t, shape)
            memory.setdefault(t.name, mine[t.name])
        stages.append(Stage(prepared, launch, mine, _numbers(kernel, scalars), fresh))
    return tuple(stages)


def run_chain(stages: Sequence[Stage], seed: int, schedule: Given | None, *, strict: bool) -> Done:
    """Run launches in order under one schedule, up to the first error."""
    done = Done()
    for place, stage in enumerate(stages):
        for name in stage.fresh:
            stage.tensors[name][...] = _poison(stage.tensors[name])
        before = len(done.findings)
        _run_stage(stage, seed, schedule, done, strict=strict)
        if len(stages) > 1:
            at = f"launch {place} ({stage.prepared.kernel.name}), "
            new = done.findings[before:]
            done.findings[before:] = [replace(f, where=at + f.where) for f in new]
        if done.error is not None:
            break
    return done


def _run_stage(
    stage: Stage, seed: int, schedule: Given | None, done: Done, *, strict: bool
) -> None:
    """Run all CTAs of a launch; those that cannot meet one after the other."""
    prepared, launch = stage.prepared, stage.launch
    memory = Tensors(prepared.geometry, stage.tensors)
    blocks = range(launch.grid) if launch.blocks is None else launch.blocks
    waits = not prepared.kernel.dependent or launch.blocks is not None
    for gang in prepared.gangs(blocks):
        run = Run(prepared, memory, stage.scalars, gang, seed, schedule, strict=strict)
        if run.go():
            judge_end(run)
        shown = (*launch.params.items(), (kir.GRID.name, launch.grid))
        done.findings += [replace(finding, launch=shown) for finding in run.findings]
        done.checked += run.checked
        done.accesses += run.accesses
        done.last = run
        waits = waits or run.machine.waited
        if done.error is not None:
            return
    done.checked += prepared.kernel.dependent
    if not waits:
        says = "no thread has waited for the launches before this one: it may end before they do"
        done.findings.append(Finding("dependency", f"kernel {prepared.kernel.name}", says))
    for name in prepared.kernel.outputs if launch.blocks is None else ():
        claimed = memory.shadows[name].claimed
        done.checked += claimed.size
        if not claimed.all():
            first = np.unravel_index(int(claimed.argmin()), prepared.views[name].extents)
            says = f"{claimed.size - int(claimed.sum())} of {claimed.size} elements are never"
            says += f" written, the first is [{', '.join(str(int(x)) for x in first)}]"
            done.findings.append(Finding("coverage", f"output {name}", says))


def _environment(kernel: kir.Kernel, launch: Launch) -> dict[str, int]:
    missing = [p.name for p in kernel.params if p.name not in launch.params]
    if missing or launch.grid < 1:
        raise ValueError(f"Launch(grid={launch.grid}): no value for {missing}; need grid >= 1")
    env = {p.name: launch.params[p.name] for p in kernel.params}
    env[kir.GRID.name] = launch.grid
    return env


def _numbers(kernel: kir.Kernel, scalars: Mapping[str, float] | None) -> dict[str, Array]:
    given = {s.name: i + 1 for i, s in enumerate(kernel.scalars)} if scalars is None else scalars
    return {s.name: number(given[s.name], s.dtype) for s in kernel.scalars}


def _checked(tensors: Mapping[str, Array], t: kir.Tensor, shape: tuple[int, ...]) -> Array:
    array = tensors[t.name]
    if array.shape != shape or array.dtype != REGISTER[t.dtype]:
        raise ValueError(
            f"simulate({t.name}): {array.dtype}{array.shape} given; "
            f"need {REGISTER[t.dtype].__name__}{shape}"
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"simulate({t.name}): the array has gaps; pass a C-contiguous one")
    return array


def _seen_as(array: Array, t: kir.Tensor, shape: tuple[int, ...]) -> Array:
    """Return memory of an earlier launch as a later one sees it."""
    if array.size != int(np.prod(shape)) or array.dtype != REGISTER[t.dtype]:
        raise ValueError(
            f"simulate({t.name}): a launch sees {array.dtype}{array.shape}, a later one "
            f"{REGISTER[t.dtype].__name__}{shape}; give both the same elements"
        )
    return array.reshape(shape)


def _poison(array: Array) -> Array:
    return np.asarray(np.nan if np.issubdtype(array.dtype, np.floating) else -1).astype(array.dtype)


def _places(prepared: Prepared, t: kir.Tensor) -> int:
    """Return how many places a tensor says boxes to be at, the fewest; 0 if it says none."""
    boxes = (getattr(stmt, "src", None) for stmt in prepared.kernel.walk())
    every = [
        prepared.views[box.tensor.name].extents[box.index.axis]
        for box in boxes
        if isinstance(box, kir.Box) and box.index is not None and box.index.src.tensor == t
    ]
    return min(every, default=0)


def _made(
    kernel: kir.Kernel, t: kir.Tensor, shape: tuple[int, ...], i: int, places: int = 0
) -> Array:
    """Return inputs whose neighbours differ, in values that every type holds, and poison.

    What says where boxes lie says so many `places`, and one behind them.
    """
    if t.name in kernel.outputs or t.name in kernel.workspaces:
        out = np.empty(shape, REGISTER[t.dtype])
        out[...] = _poison(out)
        return out
    size = int(np.prod(shape))
    if t.dtype is DType.BOOL:
        return np.asarray((np.arange(size) % 3 == i % 3).reshape(shape))
    tags = (np.arange(size) * 7 + 31 * i) % 251 + 1
    tags = tags % (places + 1) if places else tags
    return round_to(t.dtype, tags.astype(REGISTER[t.dtype]).reshape(shape))


Launches = Launch | Sequence[Launch]
"""One launch, or one for each kernel of a program."""
Values = Callable[[Mapping[str, Array]], Sequence[Finding]]
"""A judge of what a run leaves in the arrays of all tensors, in register form."""


def simulate(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launches,
    tensors: Mapping[str, Array] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    policy: str = "default",
    schedule: Given | None = None,
) -> Verdict:
    """Run a kernel once, under the schedule that `seed` draws.

    Parameters
    ----------
    kernel : Kernel or LaunchSequence
        A finished kernel (no `Copy` left), or several in a row on the same memory.
    launch : Launch or sequence of Launch
        Grid and parameters; for a program one for each kernel.
    tensors : mapping of str to array, optional
        One C-contiguous array per tensor, shaped by its extents, in register form (f16 and bf16
        as float32 whose values fit).  Outputs are written in place; workspaces may be left out.
        Without it the simulator makes inputs of its own, and outputs full of poison.
    scalars : mapping of str to number, optional
        The kernel's scalars; 1, 2, ... without it.
    seed : int
        Draws strategy and order; the same seed gives the same run.
    policy : str
        ``"default"`` or ``"strict"``: whether disputed omissions are warnings or errors.
    schedule : sequence of int or Order, optional
        Decides the order instead of the seed: small integers to be drawn by a search and shrunk
        by it, where 0, and the end of the list, are the default choice (see
        `oracles.simulator.schedule.Choices`); or an `Order` of events to follow.

    Returns
    -------
    Verdict
        FAIL with the first defect; PASS says that this one run was right; UNSUPPORTED names
        what the machine does not model, or the launch precondition that is broken.

    Raises
    ------
    ValueError
        If arrays, parameters or policy are not what kernel and launch ask for.
    """
    return _judge(kernel, launch, tensors, scalars, range(seed, seed + 1), policy, schedule)


def search(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launches | None = None,
    tensors: Mapping[str, Array] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    schedules: int,
    seed: int = 0,
    policy: str = "default",
    values: Values | None = None,
) -> Verdict:
    """Run a kernel under `schedules` schedules, from `seed` on; stop at the first failure.

    The first six seeds after a multiple of six use six different strategies.  A kernel that
    declares itself bitwise deterministic must leave the same bits every time.

    Parameters
    ----------
    launch : Launch or sequence of Launch, optional
        Without it small launches are chosen for a kernel, and run up to the first that does not
        pass; tensors are then the simulator's own.
    schedules : int
        How many to try, at least 1; the other parameters are those of `simulate`.
    values : callable, optional
        Judges what a run without an error has left in the arrays of the tensors.

    Returns
    -------
    Verdict
        As `simulate`; `checked` counts over all schedules, `reason` says how many there were.
    """
    if schedules < 1:
        raise ValueError(f"search(schedules={schedules}): at least 1 must be tried")
    seeds = range(seed, seed + schedules)
    if launch is not None:
        return _judge(kernel, launch, tensors, scalars, seeds, policy, None, values)
    if isinstance(kernel, LaunchSequence) or tensors is not None or values is not None:
        raise ValueError(f"search({kernel.name}): give launches for a program, and for tensors")
    verdict = Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=none_of(kernel))
    checked, warnings = 0, dict[tuple[str, str], Finding]()
    for sizes in choose(kernel).launches:
        one = Launch(sizes.grid, sizes.params)
        verdict = _judge(kernel, one, None, scalars, seeds, policy, None)
        checked += verdict.checked
        if verdict.status is not Status.PASS:
            return replace(verdict, checked=checked)
        warnings |= {(f.kind, f.where): f for f in verdict.findings}
    return replace(verdict, checked=checked, findings=tuple(warnings.values()))


def witness(
    kernel: kir.Kernel,
    launch: Launch,
    *,
    seed: int = 0,
    schedule: Given | None = None,
    policy: str = "default",
) -> Witness | None:
    """Run a kernel once and, if it fails, tell how, lane by lane.

    None where this run, as `simulate` makes it, is right, or where the kernel cannot be judged.
    """
    _check(policy)
    beyond = unsupported(kernel) or misplaced(kernel)
    stages = "" if beyond else chain([kernel], [launch], None, None)
    if isinstance(stages, str):
        return None
    done = run_chain(stages, seed, schedule, strict=policy == "strict")
    if done.error is None or done.last is None:
        return None
    shown = (*launch.params.items(), (kir.GRID.name, launch.grid))
    return witness_of(done.last, done.error, shown)


def _check(policy: str) -> None:
    if policy not in POLICIES:
        raise ValueError(f"simulate(policy={policy!r}): pick one of {POLICIES}")


def _judge(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launches,
    tensors: Mapping[str, Array] | None,
    scalars: Mapping[str, float] | None,
    seeds: range,
    policy: str,
    schedule: Given | None,
    values: Values | None = None,
) -> Verdict:
    _check(policy)
    kernels = kernel.launches if isinstance(kernel, LaunchSequence) else (kernel,)
    launches = (launch,) if isinstance(launch, Launch) else tuple(launch)
    if len(kernels) != len(launches):
        raise ValueError(f"simulate: {len(kernels)} kernels and {len(launches)} launches")
    for part in kernels:
        beyond = unsupported(part)
        if beyond:
            return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"not modelled: {beyond}")
    for part in kernels:
        if says := misplaced(part):
            return Verdict(
                ORACLE, Status.FAIL, 1, (Finding("bounds", f"kernel {part.name}", says),)
            )
    if (early := _early(kernels)) is not None:
        return Verdict(ORACLE, Status.FAIL, 1, (early,))
    try:
        stages = chain(kernels, launches, tensors, scalars)
        if isinstance(stages, str):
            return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"launch: {stages}")
        return _search(stages, seeds, policy, schedule, values)
    except Unsettled as unsettled:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"not modelled: {unsettled}")
    except BadExpression as bad:
        finding = Finding("bounds", f"kernel {kernel.name}", str(bad))
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))


def _early(kernels: Sequence[kir.Kernel]) -> Finding | None:
    """Look for a write of a tensor that a later launch, which may start by then, reads at once."""
    running: set[str] = set()
    for kernel in kernels:
        if not kernel.dependent:
            running = set()
        late = sorted(running.intersection(kernel.early))
        if late:
            says = f"a launch before it writes {late[0]}, and may not have ended when it starts"
            return Finding("dependency", f"kernel {kernel.name}, early {late[0]}", says)
        running |= {*kernel.outputs, *kernel.workspaces}
    return None


def _search(
    stages: tuple[Stage, ...],
    seeds: range,
    policy: str,
    schedule: Given | None,
    values: Values | None,
) -> Verdict:
    checked = accesses = 0
    every = {name: array for stage in stages for name, array in stage.tensors.items()}
    before = {name: array.copy() for name, array in every.items()} if len(seeds) > 1 else {}
    outputs = {name for stage in stages for name in stage.prepared.kernel.outputs}
    exact = all(stage.prepared.kernel.determinism == "bitwise" for stage in stages)
    first: dict[str, bytes] = {}
    warnings: dict[tuple[str, str], Finding] = {}
    for seed in seeds:
        for name, array in before.items():
            every[name][...] = array
        done = run_chain(stages, seed, schedule, strict=policy == "strict")
        findings = done.findings
        checked += done.checked
        accesses += done.accesses
        bits = {name: every[name].tobytes() for name in sorted(outputs)} if before else {}
        first = first or bits
        if exact and bits != first and done.error is None:
            differing = min(name for name in bits if bits[name] != first[name])
            says = f"schedules {seeds[0]} and {seed} leave different bits"
            findings.append(Finding("determinism", f"output {differing}", says))
        if values is not None and done.error is None:
            findings += values(every)
            checked += sum(every[name].size for name in outputs)
        for finding in findings:
            warnings.setdefault((finding.kind, finding.where), finding)
        if done.error is not None:
            reason = _reason(stages, seeds, seed, schedule)
            return Verdict(ORACLE, Status.FAIL, checked, tuple(findings), reason)
    reason = _reason(stages, seeds, seeds[-1], schedule)
    if not accesses:
        reason += "; no memory was accessed, only ends and coverage were checked"
    return Verdict(ORACLE, Status.PASS, checked, tuple(warnings.values()), reason)


def _reason(stages: tuple[Stage, ...], seeds: range, last: int, schedule: Given | None) -> str:
    count = last - seeds[0] + 1
    if schedule is not None:
        what = str(schedule) if isinstance(schedule, Order) else f"schedule {list(schedule)}"
    elif count == 1:
        what = f"schedule of seed {last} ({STRATEGIES[last % len(STRATEGIES)].value})"
    else:
        what = f"{count} schedules, seeds {seeds[0]}..{last}"
    for stage in stages:
        launch = stage.launch
        what += f"; grid {launch.grid}"
        if launch.blocks is not None:
            what += f", CTAs {launch.blocks} only, coverage not judged"
        what += "; " + ", ".join(f"{name}={value}" for name, value in launch.params.items())
    return what
