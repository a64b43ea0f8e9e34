"""The judges on the command line: `python -m oracles prove | simulate | explore | explain FILE.py`.

`python -m oracles ptx FILE.ptx --launch FILE.toml` judges the PTX of any kernel.

Exit codes: 0 all hold, 1 something is refuted, 2 the request is wrong, 3 unknown or unsupported.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fuser.kernel.ir import LaunchSequence
from oracles.cli import answers
from oracles.cli.advice import PROOFS, survey
from oracles.cli.advice import explain as explained
from oracles.cli.launching import (
    Asked,
    LaunchError,
    Plan,
    again,
    described,
    explored,
    none_asked,
    plans,
    replayed,
    settings,
    simulated,
    told,
    worth_a_try,
)
from oracles.cli.target import Target, TargetError, load
from oracles.expect import ExpectError
from oracles.prover.prove import LIMIT_S, POLICIES
from oracles.prover.prove import prove as prove_kernel
from oracles.prover.prove import witness as prove_witness
from oracles.ptx.judge import judge as judge_ptx
from oracles.ptx.launch import load as load_launch
from oracles.verdict import Status, Verdict
from oracles.witness import Witness

PROVED, REFUTED, USAGE, OPEN = 0, 1, 2, 3
INTERRUPTED = 130
"""Exit codes; of several kernels the worst counts: refuted, then open, then proved."""

_file = click.argument("spec", metavar="FILE.py[:NAME]")
_policy = click.option(
    "--policy",
    default="default",
    show_default=True,
    type=click.Choice(POLICIES),
    help="Reading of the rules on which the field disagrees.",
)


def _on_launches(judge: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name launches, which it takes as `asked`."""

    @_file
    @_policy
    @click.option("--grid", type=click.IntRange(min=1), help="CTAs of the launch.")
    @click.option("--set", "given", multiple=True, metavar="NAME=N", help="A parameter.")
    @click.option(
        "--all",
        "all_of",
        type=click.Choice(["trips"]),
        help="Small launches of every trip count until each ring has turned over twice.",
    )
    @wraps(judge)
    def command(grid: int | None, given: tuple[str, ...], all_of: str | None, **rest: Any) -> None:
        judge(asked=Asked(grid, given, all_trips=all_of is not None), **rest)

    return command


def exit_code(statuses: Iterable[Status]) -> int:
    """Return the exit code for what was answered; nothing answered is open."""
    said = set(statuses)
    if Status.FAIL in said:
        return REFUTED
    return PROVED if said == {Status.PASS} else OPEN


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Judge kernels: Python objects of the Kernel IR, at the top level of a file or named in it.

    Exit codes: 0 all hold, 1 something is refuted, 2 the request is wrong, 3 unknown or
    unsupported.
    """


@main.command()
@_file
@_policy
@click.option("--advice/--no-advice", default=True, help="Look for needless syncs.")
@click.option(
    "--proofs",
    default=PROOFS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of a kernel, at most, to find what is needless.",
)
@click.option("--replay/--no-replay", default=True, help="Let the simulator replay a refutation.")
@click.option(
    "--limit",
    default=LIMIT_S,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="CPU seconds for a kernel; one that takes longer is UNKNOWN.",
)
def prove(spec: str, policy: str, advice: bool, proofs: int, replay: bool, limit: float) -> None:
    """Prove a kernel for every trip count, all extents and every interleaving."""
    most = proofs if advice else 0
    _each(spec, lambda target: _prove(spec, target, policy, most, limit, replay=replay))


@main.command()
@_on_launches
@click.option(
    "--schedules", default=24, show_default=True, type=click.IntRange(min=1), help="Of each launch."
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of the schedules and values.",
)
def simulate(spec: str, policy: str, asked: Asked, schedules: int, seed: int) -> None:
    """Run a kernel on launches of its own choice, or on one that is given."""
    _each(
        spec,
        lambda target: _launched(
            f"simulate --schedules {schedules} --seed {seed} --policy {policy}",
            spec,
            target,
            asked,
            lambda plan: simulated(target.subject, plan, schedules, seed, policy, target.expect),
            lambda plan: replayed(target.subject, plan, schedules, seed, policy),
        ),
    )


@main.command()
@_on_launches
@click.option(
    "--states",
    default=200_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of a launch, at most.",
)
def explore(spec: str, policy: str, asked: Asked, states: int) -> None:
    """Go through every interleaving of small launches."""
    _each(
        spec,
        lambda target: _launched(
            f"explore --states {states} --policy {policy}",
            spec,
            target,
            asked,
            lambda plan: explored(target.subject, plan, states, policy),
            lambda plan: told(target.subject, plan, states, policy),
        ),
    )


@main.command()
@_file
@_policy
@click.option(
    "--proofs",
    default=PROOFS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of a kernel, at most, to find what is needless.",
)
def explain(spec: str, policy: str, proofs: int) -> None:
    """Show beside every sync of a kernel what breaks without it."""
    _each(spec, lambda target: _explain(target, policy, proofs))


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--launch",
    "described",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file: grid, block, buffers, arguments.",
)
@click.option(
    "--schedules",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Orders of engines.",
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the first."
)
def ptx(file: Path, described: Path, schedules: int, seed: int) -> None:
    """Run a launch of a kernel given as PTX with late engines, and judge its order."""
    statuses: list[Status] = []
    out = answers.console()
    for number in range(seed, seed + schedules):
        start = time.perf_counter()
        try:
            answer = judge_ptx(file.read_text(), load_launch(described), seed=number)
        except (ValueError, OSError) as error:
            answers.console(stderr=True).print(
                f"{described}: {error}", style="red", markup=False, soft_wrap=True
            )
            sys.exit(USAGE)
        seconds = time.perf_counter() - start
        answers.verdict(out, f"{file}  --seed {number}", answer, seconds)
        answers.findings(out, None, answer.findings)
        statuses.append(answer.status)
        if answer.status is Status.FAIL:
            break
    sys.exit(exit_code(statuses))


def _each(spec: str, judge: Callable[[Target], list[Status]]) -> None:
    """Judge every kernel that was named, and leave with the exit code."""
    statuses: list[Status] = []
    try:
        for target in load(spec):
            statuses += answered(target, judge)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (TargetError, LaunchError) as error:
        answers.console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(USAGE)
    sys.exit(exit_code(statuses))


def answered(target: Target, judge: Callable[[Target], list[Status]]) -> list[Status]:
    """Return what a judge says; of one that breaks UNKNOWN, where Python would exit with 1."""
    try:
        return judge(target)
    except (TargetError, LaunchError):
        raise
    except Exception:
        says = f"{target.name}: the judge itself broke, which is ours to fix:"
        trace = traceback.format_exc()
        errors = answers.console(stderr=True)
        errors.print(f"{says}\n{trace}", style="magenta", markup=False, soft_wrap=True)
        return [Status.UNKNOWN]


def _prove(
    spec: str, target: Target, policy: str, proofs: int, limit: float, *, replay: bool
) -> list[Status]:
    """Prove each kernel alone: the boundary between two launches orders everything."""
    out = answers.console()
    statuses: list[Status] = []
    for kernel in target.kernels:
        alone = kernel is target.subject
        start = time.perf_counter()
        name = target.name if alone else f"{target.name}: {kernel.name}"
        with answers.progress(name) as tell:
            answer = prove_kernel(kernel, policy=policy, limit=limit, tell=tell)
        seconds = time.perf_counter() - start
        answers.verdict(out, name, answer, seconds)
        failed = answer.status is Status.FAIL
        found = prove_witness(kernel, policy=policy) if failed else None
        answers.findings(out, kernel, answer.findings, drawn=found is not None)
        if found is not None:
            answers.witness(out, found)
            if replay:
                answers.replay(out, spec, name, again(kernel, found, policy), policy)
        if answer.status in (Status.UNKNOWN, Status.UNSUPPORTED):
            answers.to_try(out, spec, target.name, worth_a_try(kernel))
        if answer.status is Status.PASS and proofs:
            answers.advice(out, survey(kernel, most=proofs))
        statuses.append(answer.status)
    return statuses


def _launched(
    how: str,
    spec: str,
    target: Target,
    asked: Asked,
    judge: Callable[[Plan], Verdict],
    show: Callable[[Plan], Witness | None],
) -> list[Status]:
    out = answers.console()
    statuses: list[Status] = []
    single = None if isinstance(target.subject, LaunchSequence) else target.subject
    chosen = plans(spec, target, asked)
    if not chosen:
        reason = none_asked(spec, target, asked)
        answer = Verdict(how.split()[0], Status.UNSUPPORTED, 0, reason=reason)
        answers.verdict(out, target.name, answer, 0)
        return [answer.status]
    for plan in chosen:
        start = time.perf_counter()
        try:
            answer = judge(plan)
        except ExpectError as error:
            raise LaunchError(f"{spec}: {error}") from error
        name = f"{target.name}  {', then '.join(map(described, plan))}"
        answers.verdict(out, name, answer, time.perf_counter() - start)
        found = show(plan) if answer.status is Status.FAIL else None
        answers.findings(out, single, answer.findings, drawn=found is not None)
        statuses.append(answer.status)
        if answer.status is Status.FAIL:
            if found is not None:
                answers.witness(out, found)
            words = f"python -m oracles {how} {spec} {_again(plan)}"
            out.print(f"  again: {words}", markup=False, soft_wrap=True)
            break
    if not asked.given:
        says = f"  {len(statuses)} of {len(chosen)} small launches were run, and a pass is about "
        says += "those alone; --grid and --set give one of your own"
        out.print(says, style="dim", markup=False)
    return statuses


def _again(plan: Plan) -> str:
    """Return the options that ask for a plan; the kernels of a program find their grids alone."""
    params = {name: value for launch in plan for name, value in launch.params.items()}
    return settings(plan[0].grid if len(plan) == 1 else None, params)


def _explain(target: Target, policy: str, proofs: int) -> list[Status]:
    out = answers.console()
    statuses: list[Status] = []
    for kernel in target.kernels:
        start = time.perf_counter()
        found = explained(kernel, policy=policy, most=proofs)
        answers.verdict(out, kernel.name, found.verdict, time.perf_counter() - start)
        answers.findings(out, kernel, found.verdict.findings)
        if found.verdict.status is not Status.PASS:
            out.print("  what is not proved has no syncs to explain: see `prove`", markup=False)
        answers.explanation(out, kernel, found)
        statuses.append(found.verdict.status)
    return statuses
