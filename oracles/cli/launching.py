"""Launches that a person asks for on the command line, and the judges that need one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module

from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.cli.target import Subject, Target
from oracles.expect import Expectation
from oracles.explorer import explore
from oracles.launches.choose import choose, none_of
from oracles.prover import launches
from oracles.prover.launches import Launch, broken
from oracles.simulator import simulate
from oracles.verdict import Status, Verdict
from oracles.witness import Witness

SMALL = 3
"""Of all trip counts that are asked for, those up to this are tried at least."""
CLUSTERS = 3
"""Small launches have up to so many clusters: CTAs one by one, side by side, and more than two."""
Plan = tuple[Launch, ...]
"""A launch for each kernel of what is judged."""
SCHEDULES = 24
"""Schedules under which the simulator tries to replay what the prover refutes."""


class LaunchError(Exception):
    """A launch that was asked for cannot be made; the message says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of launches.

    `given` are parameters as `NAME=N`.  With `all_trips` small launches go up to twice the stages
    and two, so that every slot is used twice.
    """

    grid: int | None = None
    given: tuple[str, ...] = ()
    all_trips: bool = False


def settings(grid: int | None, params: Mapping[str, int]) -> str:
    """Write a launch as it is asked for on the command line."""
    head = [] if grid is None else [f"--grid {grid}"]
    return " ".join([*head, *(f"--set {n}={v}" for n, v in params.items())])


def described(launch: Launch) -> str:
    """Write a launch with how often its loops run."""
    loops = ", ".join(f"{name} runs {count}x" for name, count in launch.trips.items())
    where = f"in CTA {launch.block}, " if launch.block else ""
    return settings(launch.grid, launch.params) + (f" ({where}{loops})" if loops else "")


def plans(spec: str, target: Target, asked: Asked) -> list[Plan]:
    """Return what to launch: as `requested`, for a program with the same values in every kernel.

    LaunchError also if no small launch of a program's first kernel settles the others.
    """
    first, *others = target.kernels
    if not others:
        return [(launch,) for launch in requested(spec, first, asked)]
    names = {p.name for kernel in target.kernels for p in kernel.params}
    if asked.given:
        _params(spec, target.name, sorted(names), asked.given)
        return [tuple(_own(spec, kernel, _restricted(asked, kernel)) for kernel in target.kernels)]
    found = []
    for launch in requested(spec, first, asked):
        given = tuple(f"{name}={value}" for name, value in launch.params.items())
        if names <= set(launch.params):
            rest = (_restricted(Asked(asked.grid, given), kernel) for kernel in others)
            try:
                more = [_own(spec, k, a) for k, a in zip(others, rest, strict=True)]
            except LaunchError:
                continue  # This launch of the first kernel is none of the others.
            found.append((launch, *more))
    if not found:
        needed = " ".join(f"--set {name}=N" for name in sorted(names))
        says = "no small launch of the first kernel settles those of the others"
        raise LaunchError(f"{spec}: {says}; give one by {needed}")
    return found


def _restricted(asked: Asked, kernel: kir.Kernel) -> Asked:
    names = {p.name for p in kernel.params}
    given = tuple(item for item in asked.given if item.partition("=")[0] in names)
    return Asked(asked.grid, given)


def requested(spec: str, kernel: kir.Kernel, asked: Asked) -> list[Launch]:
    """Return the one launch that was asked for, or small ones; none where the kernel has none.

    Where parameters are given, all have to be; a missing grid is the smallest that fits.
    LaunchError if a name or number is wrong, or the launch breaks what the kernel requires.
    """
    if asked.given and asked.all_trips:
        raise LaunchError(f"{spec} --all trips --set ...: both name launches; leave one out")
    if asked.given or (asked.grid is not None and not kernel.params):
        return [_own(spec, kernel, asked)]
    if asked.all_trips:
        rings = [b.slots for b in kernel.buffers] + [m.slots for m in kernel.barriers]
        stages = max(rings, default=1)
        found = _small(kernel, max(SMALL, 2 * stages + 2))
        return [launch for launch in found if asked.grid in (None, launch.grid)]
    fixed = () if asked.grid is None else (eq(kir.GRID, asked.grid),)
    chosen = choose(replace(kernel, requires=(*fixed, *kernel.requires)))
    return [launches.counted(kernel, one.grid, one.params) for one in chosen.launches]


def none_asked(spec: str, target: Target, asked: Asked) -> str:
    """Say that there is no small launch, and how to give one."""
    grid = "" if asked.grid is None else f" --grid {asked.grid}"
    names = "".join(f" --set {p.name}=N" for p in target.kernels[0].params)
    return f"{spec}{grid}: {none_of(target.kernels[0])}; give one by --grid G{names}"


def _small(kernel: kir.Kernel, most: int) -> list[Launch]:
    found: dict[str, Launch] = {}
    for one in launches.small(kernel, most=most, clusters=CLUSTERS):
        found.setdefault(settings(one.grid, one.params), one)
    return list(found.values())


def _own(spec: str, kernel: kir.Kernel, asked: Asked) -> Launch:
    params = _params(spec, kernel.name, [p.name for p in kernel.params], asked.given)
    grids = launches.grids(kernel, params) if asked.grid is None else [asked.grid]
    wrong = "" if grids else "the grid that it requires divides by 0"
    for grid in grids:
        says = broken(kernel, {**params, kir.GRID.name: grid})
        if not says:
            return launches.counted(kernel, grid, params)
        wrong = wrong or says
    call = settings(asked.grid, params)
    tried = f" (no grid of {grids[0]} to {grids[-1]} fits)" if len(grids) > 1 else ""
    small = _small(kernel, 1)
    out = f"try {settings(small[-1].grid, small[-1].params)}" if small else "change its values"
    raise LaunchError(f"{spec} {call}: {kernel.name} cannot be launched so: {wrong}{tried}; {out}")


def _params(spec: str, whose: str, names: list[str], given: tuple[str, ...]) -> dict[str, int]:
    params: dict[str, int] = {}
    for item in given:
        name, equals, number = item.partition("=")
        if not equals or not number.isdecimal():
            raise LaunchError(f"{spec} --set {item}: not NAME=N with N from 0; write --set M=64")
        if name not in names:
            near = get_close_matches(name, names, 1, cutoff=0.3)
            hint = f"did you mean {near[0]}?" if near else f"its names are {', '.join(names)}"
            says = hint if names else "it has none; leave out --set"
            raise LaunchError(f"{spec} --set {item}: {whose} has no parameter {name}; {says}")
        params[name] = int(number)
    missing = [name for name in names if name not in params]
    if missing:
        more = " ".join(f"--set {name}=N" for name in missing)
        raise LaunchError(
            f"{spec} {' '.join(f'--set {item}' for item in given)}: no value for "
            f"{', '.join(missing)}; add {more}, or leave out --set for small launches"
        )
    return {name: params[name] for name in names}


@dataclass(frozen=True, slots=True)
class Again:
    """Whether the simulator goes wrong too where the prover says that a kernel does.

    `kind` is that of what it found, or empty; `seed` the schedule that shows it; `launch` is as
    options of the command line, empty if none was found; `reason` is why it could not be tried.
    """

    kind: str
    seed: int
    launch: str
    reason: str = ""

    def __str__(self) -> str:
        if self.kind:
            return f"replayed by the simulator: fail {self.kind}, schedule of seed {self.seed}"
        if self.reason:
            return f"not replayed by the simulator: {self.reason}"
        return f"not replayed by the simulator in {SCHEDULES} schedules of {self.launch}"


def again(kernel: kir.Kernel, found: Witness, policy: str) -> Again:
    """Run a refuted kernel at the trip counts of its witness, under schedule after schedule."""
    likely = _like(kernel, dict(found.trips))
    if likely is None:
        counts = ", ".join(f"{name}={count}" for name, count in found.trips)
        return Again("", 0, "", f"no launch with {counts} was found")
    tried = [(likely, range(SCHEDULES))]
    if kernel.semaphores:
        # The trip counts alone do not say how many CTAs take turns.
        several = [
            one for one in launches.small(kernel, clusters=CLUSTERS) if one.grid > likely.grid
        ]
        tried += [(one, range(SCHEDULES // 4)) for one in several[:4]]
    for launch, seeds in tried:
        how = settings(launch.grid, launch.params)
        run = simulate.Launch(launch.grid, launch.params)
        for seed in seeds:
            answer = simulate.simulate(kernel, run, seed=seed, policy=policy)
            wrong = [f for f in answer.findings if f.severity == "error"]
            if answer.status is Status.FAIL:
                return Again(wrong[0].kind, seed, how)
            if answer.status is not Status.PASS:
                return Again("", 0, how, answer.reason)
    return Again("", 0, settings(likely.grid, likely.params))


def _like(kernel: kir.Kernel, counts: dict[str, int]) -> Launch | None:
    wanted: dict[str, int] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.ForLoop):
            name = stmt.stop.name if isinstance(stmt.stop, Var) else f"trips of {stmt.index.name}"
            if name in counts:
                wanted[stmt.index.name] = counts[name]
    if counts and not wanted:
        return None
    for some in (wanted, *({name: count} for name, count in wanted.items())):
        launch = launches.example(kernel, some)
        if launch is not None:
            return launch
    return None


def simulated(
    subject: Subject,
    plan: Plan,
    schedules: int,
    seed: int,
    policy: str,
    expect: Expectation | None = None,
) -> Verdict:
    """Run a launch under so many schedules, and judge the values where it is said what they are."""
    runs = [simulate.Launch(one.grid, one.params) for one in plan]
    if expect is None:
        return simulate.search(subject, runs, schedules=schedules, seed=seed, policy=policy)
    values = import_module("oracles.values")  # torch takes a second to load
    answer: Verdict = values.search(
        subject, expect, runs, schedules=schedules, seed=seed, policy=policy
    )
    return answer


def replayed(
    subject: Subject, plan: Plan, schedules: int, seed: int, policy: str
) -> Witness | None:
    """Return the first of these schedules that fails, event by event; None for programs."""
    if isinstance(subject, LaunchSequence):
        return None
    launch = simulate.Launch(plan[0].grid, plan[0].params)
    for one in range(seed, seed + schedules):
        found = simulate.witness(subject, launch, seed=one, policy=policy)
        if found is not None:
            return found
    return None


def explored(subject: Subject, plan: Plan, states: int, policy: str) -> Verdict:
    """Go through every interleaving of a launch."""
    runs = tuple(explore.Launch(one.grid, one.params) for one in plan)
    return explore.explore(subject, runs, policy=policy, states=states)
