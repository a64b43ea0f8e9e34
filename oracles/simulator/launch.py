"""Launches in a row on the same global memory: what each needs, and how each is run and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.simulator.end import judge_end
from oracles.simulator.memory.access import Tensors, broken_precondition
from oracles.simulator.memory.ops import REGISTER, Array, round_to
from oracles.simulator.memory.registers import number
from oracles.simulator.prepare import Prepared, broken_requirement
from oracles.simulator.run import Run
from oracles.verdict import Finding


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


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch, ready to run.

    Parameters
    ----------
    fresh : tuple of str
        Workspaces that no launch before it has; they begin as poison.
    """

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


def chain(
    kernels: Sequence[kir.Kernel],
    launches: Sequence[Launch],
    tensors: Mapping[str, Array] | None,
    scalars: Mapping[str, float] | None,
) -> tuple[Stage, ...] | str:
    """Lay out launches in a row; tensors of one name are the same memory.

    Parameters
    ----------
    tensors, scalars : mapping, optional
        As for `simulator.simulate`.

    Returns
    -------
    tuple of Stage, or str
        In words, the launch precondition that is broken.

    Raises
    ------
    ValueError
        If arrays or parameters are not what the kernels ask for.
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
            broken = broken_precondition(seen, copied=name in prepared.geometry.copied)
            if broken:
                return broken
        fresh = tuple(name for name in kernel.workspaces if name not in memory)
        mine: dict[str, Array] = {}
        for i, t in enumerate(kernel.tensors):
            shape = prepared.views[t.name].extents
            if t.name in memory:
                mine[t.name] = _seen_as(memory[t.name], t, shape)
            elif tensors is None or (t.name in kernel.workspaces and t.name not in tensors):
                mine[t.name] = _made(kernel, t, shape, i)
            else:
                mine[t.name] = _checked(tensors, t, shape)
            memory.setdefault(t.name, mine[t.name])
        stages.append(Stage(prepared, launch, mine, _numbers(kernel, scalars), fresh))
    return tuple(stages)


def run_chain(
    stages: Sequence[Stage], seed: int, schedule: Sequence[int] | None, *, strict: bool
) -> Done:
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
        if any(finding.severity == "error" for finding in done.findings):
            break
    return done


def _run_stage(
    stage: Stage, seed: int, schedule: Sequence[int] | None, done: Done, *, strict: bool
) -> None:
    """Run all CTAs of a launch; those that cannot meet one after the other."""
    prepared, launch = stage.prepared, stage.launch
    memory = Tensors(prepared.geometry, stage.tensors)
    blocks = range(launch.grid) if launch.blocks is None else launch.blocks
    for gang in prepared.gangs(blocks):
        run = Run(prepared, memory, stage.scalars, gang, seed, schedule, strict=strict)
        if run.go():
            judge_end(run)
        shown = (*launch.params.items(), (kir.GRID.name, launch.grid))
        done.findings += [replace(finding, launch=shown) for finding in run.findings]
        done.checked += run.checked
        done.accesses += run.accesses
        done.last = run
        if any(finding.severity == "error" for finding in run.findings):
            return
    if launch.blocks is None:
        for name in prepared.kernel.outputs:
            claimed = memory.shadows[name].claimed
            done.checked += claimed.size
            if not claimed.all():
                where = int(claimed.argmin())
                at = np.unravel_index(where, prepared.views[name].extents)
                says = f"{claimed.size - int(claimed.sum())} of {claimed.size} elements are never"
                at_text = ", ".join(str(int(x)) for x in at)
                says += f" written, the first is [{at_text}]"
                done.findings.append(Finding("coverage", f"output {name}", says))


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


def _made(kernel: kir.Kernel, t: kir.Tensor, shape: tuple[int, ...], i: int) -> Array:
    """Return inputs whose neighbours differ, in values that every type holds, and poison."""
    if t.name in kernel.outputs or t.name in kernel.workspaces:
        out = np.empty(shape, REGISTER[t.dtype])
        out[...] = _poison(out)
        return out
    size = int(np.prod(shape))
    if t.dtype is DType.BOOL:
        return np.asarray((np.arange(size) % 3 == i % 3).reshape(shape))
    tags = (np.arange(size) * 7 + 31 * i) % 251 + 1
    return round_to(t.dtype, tags.astype(REGISTER[t.dtype]).reshape(shape))
