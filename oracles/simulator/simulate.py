"""The simulator: one kernel, one launch, one adversarial order of events at a time.

A deterministic stepper over the model machine.  It reports what it saw by order (vector
clocks), by count (phases, bytes, arrivals) and by coverage (every output element written once);
values are left in the output arrays for another oracle to compare.  It says nothing about
other launches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.simulator.expr import BadExpression, Unsettled
from oracles.simulator.launch import Launch as Launch
from oracles.simulator.launch import Stage, chain, run_chain
from oracles.simulator.memory.ops import Array
from oracles.simulator.prepare import unsupported
from oracles.simulator.schedule import STRATEGIES
from oracles.simulator.shrink import Fails, shrink
from oracles.simulator.witness import witness_of
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness

ORACLE = "simulator"
"""Name in verdicts."""
POLICIES = ("default", "strict")
"""Readings of the rules on which the field disagrees."""
LONGEST, LARGEST = 64, 400
"""Choices of a drawn schedule, and the largest of them."""

Launches = Launch | Sequence[Launch]
"""One launch, or one for each kernel of a program."""


def simulate(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launches,
    tensors: Mapping[str, Array] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    policy: str = "default",
    schedule: Sequence[int] | None = None,
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
    schedule : sequence of int, optional
        Decides the order instead of the seed: small integers to be drawn by a search and shrunk
        by it, where 0, and the end of the list, are the default choice (see
        `oracles.simulator.schedule.Choices`).

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
    launch: Launches,
    tensors: Mapping[str, Array] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    schedules: int,
    seed: int = 0,
    policy: str = "default",
) -> Verdict:
    """Run a kernel under `schedules` schedules, from `seed` on; stop at the first failure.

    The first six seeds after a multiple of six use six different strategies.  A kernel that
    declares itself bitwise deterministic must leave the same bits every time.

    Parameters
    ----------
    schedules : int
        How many to try, at least 1; the other parameters are those of `simulate`.

    Returns
    -------
    Verdict
        As `simulate`; `checked` counts over all schedules, `reason` says how many there were.
    """
    if schedules < 1:
        raise ValueError(f"search(schedules={schedules}): at least 1 must be tried")
    return _judge(kernel, launch, tensors, scalars, range(seed, seed + schedules), policy, None)


def shrunk(
    kernel: kir.Kernel | LaunchSequence,
    launch: Launches,
    *,
    policy: str = "default",
    attempts: int = 60,
    seed: int = 0,
) -> tuple[tuple[int, ...], Verdict] | None:
    """Find a failing schedule and make it as short and plain as it gets.

    Parameters
    ----------
    attempts : int
        Schedules to draw before giving up; the first one is the default order.

    Returns
    -------
    (schedule, Verdict) or None
        For `simulate(..., schedule=...)`; None where no failure was found, which proves nothing.
    """

    def judged(schedule: Sequence[int]) -> Verdict:
        return simulate(kernel, launch, policy=policy, schedule=schedule)

    draw = random.Random(seed)
    for attempt in range(attempts):
        length = 0 if attempt == 0 else draw.randint(1, LONGEST)
        schedule = [draw.randrange(LARGEST) if draw.random() < 0.5 else 0 for _ in range(length)]
        verdict = judged(schedule)
        if verdict.status is Status.FAIL:
            short = shrink(schedule, _fails_as(_first_error(verdict).kind, judged))
            return short, judged(short)
        if verdict.status is not Status.PASS:
            return None
    return None


def _first_error(verdict: Verdict) -> Finding:
    return next(f for f in verdict.findings if f.severity == "error")


def _fails_as(kind: str, judged: Callable[[Sequence[int]], Verdict]) -> Fails:
    def fails(schedule: Sequence[int]) -> bool:
        verdict = judged(schedule)
        return verdict.status is Status.FAIL and _first_error(verdict).kind == kind

    return fails


def witness(
    kernel: kir.Kernel,
    launch: Launch,
    *,
    seed: int = 0,
    schedule: Sequence[int] | None = None,
    policy: str = "default",
) -> Witness | None:
    """Run a kernel once and, if it fails, tell how, lane by lane.

    Parameters
    ----------
    kernel, launch, seed, schedule, policy
        As for `simulate`, on inputs of its own.

    Returns
    -------
    Witness or None
        None where this run is right, or where the kernel cannot be judged.
    """
    _check(policy)
    if unsupported(kernel):
        return None
    stages = chain([kernel], [launch], None, None)
    if isinstance(stages, str):
        return None
    done = run_chain(stages, seed, schedule, strict=policy == "strict")
    error = next((f for f in done.findings if f.severity == "error"), None)
    if error is None or done.last is None:
        return None
    return witness_of(done.last, error, tuple(launch.params.items()))


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
    schedule: Sequence[int] | None,
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
    try:
        stages = chain(kernels, launches, tensors, scalars)
        if isinstance(stages, str):
            return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"launch: {stages}")
        return _search(stages, seeds, policy, schedule)
    except Unsettled as unsettled:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"not modelled: {unsettled}")
    except BadExpression as bad:
        finding = Finding("bounds", f"kernel {kernel.name}", str(bad))
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))


def _search(
    stages: tuple[Stage, ...],
    seeds: range,
    policy: str,
    schedule: Sequence[int] | None,
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
        if exact and bits != first and not any(f.severity == "error" for f in findings):
            differing = min(name for name in bits if bits[name] != first[name])
            says = f"schedules {seeds[0]} and {seed} leave different bits"
            findings.append(Finding("determinism", f"output {differing}", says))
        for finding in findings:
            warnings.setdefault((finding.kind, finding.where), finding)
        if any(finding.severity == "error" for finding in findings):
            reason = _reason(stages, seeds, seed, schedule)
            return Verdict(ORACLE, Status.FAIL, checked, tuple(findings), reason)
    reason = _reason(stages, seeds, seeds[-1], schedule)
    if not accesses:
        reason += "; no memory was accessed, only ends and coverage were checked"
    return Verdict(ORACLE, Status.PASS, checked, tuple(warnings.values()), reason)


def _reason(
    stages: tuple[Stage, ...], seeds: range, last: int, schedule: Sequence[int] | None
) -> str:
    count = last - seeds[0] + 1
    if schedule is not None:
        what = f"schedule {list(schedule)}"
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
