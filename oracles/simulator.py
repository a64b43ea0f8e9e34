"""The simulator: one kernel, one launch, one adversarial order of events at a time.

A deterministic stepper over the model machine.  It reports what it saw by order (vector
clocks), by count (phases, bytes, arrivals) and by coverage (every output element written once);
values are left in the output arrays for another oracle to compare.  It says nothing about
other launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fuser import kernel_ir as kir
from fuser.dtype import DType
from oracles.machine_access import Tensors, broken_precondition
from oracles.machine_memory import number
from oracles.machine_ops import REGISTER, Array, round_to
from oracles.machine_run import Prepared, Run, unsupported
from oracles.machine_schedule import STRATEGIES
from oracles.machine_unroll import BadExpression
from oracles.verdict import Finding, Status, Verdict

ORACLE = "simulator"
"""Name in verdicts."""
POLICIES = ("default", "strict")
"""Readings of the rules on which the field disagrees."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started.

    Parameters
    ----------
    grid : int
        CTAs, at least 1.
    params : mapping of str to int
        A value for every parameter of the kernel.
    blocks : tuple of int or None
        The CTAs to run, all by default; coverage is judged only where all run.
    """

    grid: int
    params: Mapping[str, int]
    blocks: tuple[int, ...] | None = None


def simulate(
    kernel: kir.Kernel,
    launch: Launch,
    tensors: Mapping[str, Array] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    policy: str = "default",
) -> Verdict:
    """Run a kernel once, under the schedule that `seed` draws.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel (no `Copy` left).
    launch : Launch
        Grid and parameters.
    tensors : mapping of str to array, optional
        One C-contiguous array per tensor, shaped by its extents, in register form (f16 and bf16
        as float32 whose values fit).  Outputs are written in place.  Without it the simulator
        makes inputs of its own, and outputs full of poison.
    scalars : mapping of str to number, optional
        The kernel's scalars; 1, 2, ... without it.
    seed : int
        Draws strategy and order; the same seed gives the same run.
    policy : str
        ``"default"`` or ``"strict"``: whether disputed omissions are warnings or errors.

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
    return search(kernel, launch, tensors, scalars, schedules=1, seed=seed, policy=policy)


def search(
    kernel: kir.Kernel,
    launch: Launch,
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
    if policy not in POLICIES or schedules < 1:
        raise ValueError(
            f"search(policy={policy!r}, schedules={schedules}): pick one of {POLICIES}"
        )
    beyond = unsupported(kernel)
    if beyond:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"not modelled: {beyond}")
    try:
        prepared = Prepared(kernel, _environment(kernel, launch))
        for name, seen in prepared.views.items():
            broken = broken_precondition(seen, copied=name in prepared.geometry.copied)
            if broken:
                return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"launch: {broken}")
        own = _made(kernel, prepared) if tensors is None else _checked(kernel, prepared, tensors)
        return _search(
            prepared, launch, own, _numbers(kernel, scalars), range(seed, seed + schedules), policy
        )
    except BadExpression as bad:
        finding = Finding("expression", f"kernel {kernel.name}", str(bad))
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))


def _search(
    prepared: Prepared,
    launch: Launch,
    tensors: Mapping[str, Array],
    scalars: Mapping[str, Array],
    seeds: range,
    policy: str,
) -> Verdict:
    kernel = prepared.kernel
    checked = accesses = 0
    before = {t.name: tensors[t.name].copy() for t in kernel.tensors} if len(seeds) > 1 else {}
    first: dict[str, bytes] = {}
    warnings: dict[tuple[str, str], Finding] = {}
    for seed in seeds:
        for name, array in before.items():
            tensors[name][...] = array
        findings, count, touched = _once(prepared, launch, tensors, scalars, seed, policy)
        checked += count
        accesses += touched
        bits = {name: tensors[name].tobytes() for name in kernel.outputs} if before else {}
        first = first or bits
        if bits != first and kernel.determinism == "bitwise":
            differing = min(name for name in bits if bits[name] != first[name])
            says = f"schedules {seeds[0]} and {seed} leave different bits"
            findings.append(Finding("value", f"output {differing}", says))
        for finding in findings:
            warnings.setdefault((finding.kind, finding.where), finding)
        if any(finding.severity == "error" for finding in findings):
            reason = _reason(launch, seeds, seed)
            return Verdict(ORACLE, Status.FAIL, checked, tuple(findings), reason)
    reason = _reason(launch, seeds, seeds[-1])
    if not accesses:
        reason += "; no memory was accessed, only ends and coverage were checked"
    return Verdict(ORACLE, Status.PASS, checked, tuple(warnings.values()), reason)


def _once(
    prepared: Prepared,
    launch: Launch,
    tensors: Mapping[str, Array],
    scalars: Mapping[str, Array],
    seed: int,
    policy: str,
) -> tuple[list[Finding], int, int]:
    """Run all CTAs under one seed; return findings, checked claims, and accesses among them."""
    memory = Tensors(prepared.geometry, tensors)
    findings: list[Finding] = []
    checked = accesses = 0
    for block in range(launch.grid) if launch.blocks is None else launch.blocks:
        run = Run(prepared, memory, scalars, block, seed, strict=policy == "strict")
        run.go()
        findings += run.findings
        checked += run.checked
        accesses += run.accesses
        if any(finding.severity == "error" for finding in run.findings):
            return findings, checked, accesses
    if launch.blocks is None:
        for name in prepared.kernel.outputs:
            claimed = memory.shadows[name].claimed
            checked += claimed.size
            if not claimed.all():
                where = int(claimed.argmin())
                at = np.unravel_index(where, prepared.views[name].extents)
                says = f"{claimed.size - int(claimed.sum())} of {claimed.size} elements are never"
                at_text = ", ".join(str(int(x)) for x in at)
                says += f" written, the first is [{at_text}]"
                findings.append(Finding("coverage", f"output {name}", says))
    return findings, checked, accesses


def _reason(launch: Launch, seeds: range, last: int) -> str:
    params = ", ".join(f"{name}={value}" for name, value in launch.params.items())
    count = last - seeds[0] + 1
    what = (
        f"schedule of seed {last}" if count == 1 else f"{count} schedules, seeds {seeds[0]}..{last}"
    )
    if count == 1:
        what += f" ({STRATEGIES[last % len(STRATEGIES)].value})"
    ctas = f"grid {launch.grid}"
    if launch.blocks is not None:
        ctas += f", CTAs {launch.blocks} only, coverage not judged"
    return f"{what}; {ctas}; {params}"


def _environment(kernel: kir.Kernel, launch: Launch) -> dict[str, int]:
    missing = [p.name for p in kernel.params if p.name not in launch.params]
    if missing or launch.grid < 1:
        raise ValueError(f"Launch(grid={launch.grid}): no value for {missing}; need grid >= 1")
    env = {p.name: launch.params[p.name] for p in kernel.params}
    env[kir.GRID.name] = launch.grid
    return env


def _numbers(kernel: kir.Kernel, scalars: Mapping[str, float] | None) -> dict[str, Array]:
    if scalars is None:
        return {s.name: number(i + 1, s.dtype) for i, s in enumerate(kernel.scalars)}
    return {s.name: number(scalars[s.name], s.dtype) for s in kernel.scalars}


def _checked(
    kernel: kir.Kernel, prepared: Prepared, tensors: Mapping[str, Array]
) -> Mapping[str, Array]:
    for t in kernel.tensors:
        array, shape = tensors[t.name], prepared.views[t.name].extents
        if array.shape != shape or array.dtype != REGISTER[t.dtype]:
            raise ValueError(
                f"simulate({t.name}): {array.dtype}{array.shape} given; "
                f"need {REGISTER[t.dtype].__name__}{shape}"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"simulate({t.name}): the array has gaps; pass a C-contiguous one")
    return tensors


def _made(kernel: kir.Kernel, prepared: Prepared) -> dict[str, Array]:
    """Return inputs whose neighbours differ, in values that every type holds, and poison."""
    out: dict[str, Array] = {}
    for i, t in enumerate(kernel.tensors):
        shape = prepared.views[t.name].extents
        size = prepared.views[t.name].size
        if t.name in kernel.outputs:
            poison = -1 if t.dtype.is_int else np.nan
            out[t.name] = np.full(shape, poison, REGISTER[t.dtype])
        elif t.dtype is DType.BOOL:
            out[t.name] = (np.arange(size) % 3 == i % 3).reshape(shape)
        else:
            tags = (np.arange(size) * 7 + 31 * i) % 251 + 1
            out[t.name] = round_to(t.dtype, tags.astype(REGISTER[t.dtype]).reshape(shape))
    return out
