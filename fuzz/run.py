"""Kernels written by hand on the GPU, their values judged by what their file expects.

`python -m fuzz.run FILE.py[:NAME]`: each launch in a child process with a limit; outputs start as
poison unless the function asks for them, and lie between guard bytes; shared memory is poisoned.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import click
import torch

from fuser.errors import ScheduleError
from fuser.runtime.call import shape
from fuser.runtime.executable import device_present
from fuser.runtime.kernel_launch import launch_kernel, values_of
from fuser.runtime.scratch import elements
from fuzz.campaign.child import Child, Lost
from fuzz.campaign.gpu import Guarded
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command, worst
from oracles.cli import answers
from oracles.cli.launching import Asked, LaunchError, Plan, described, none_asked, plans
from oracles.cli.target import Target, TargetError, load
from oracles.expect import ExpectError
from oracles.reference.functions import Unbounded
from oracles.simulator.simulate import Launch
from oracles.values import Data, Values
from oracles.verdict import Finding, Status, Verdict

LIMIT_S = 60.0
"""Seconds of a launch with its compilation, by the clock and of CPU time."""
POISON = ("FUSER_POISON_SMEM",)
CODES = {Status.PASS: CLEAN, Status.FAIL: FAILED}


def request(spec: str, launches: list[Launch], turns: int) -> str:
    """Return what `judge` is asked."""
    return json.dumps([spec, [(one.grid, dict(one.params)) for one in launches], turns])


def judge(asked: str) -> Verdict:
    """Launch a kernel on data of each kind, and compare; one string in, for a child process."""
    spec, starts, turns = json.loads(asked)
    (target,) = load(spec)
    assert target.expect is not None, "others are not asked about"
    launches = [Launch(grid, params) for grid, params in starts]
    checked, within = 0, list[str]()
    for data in Data:
        for turn in range(turns):
            values = Values(target.expect, target.kernels, launches, data, turn)
            findings = _launched(target, launches, values)
            checked += sum(values.tensors[n].numel() for k in target.kernels for n in k.outputs)
            if turn == 0:
                within.append(f"{data.value} {values.within}")
            if findings:
                reason = f"launch {turn + 1} on {data.value}"
                return Verdict("gpu", Status.FAIL, checked, tuple(findings), reason)
    reason = f"{turns} launches each; values as expected of {', of '.join(within)}"
    return Verdict("gpu", Status.PASS if checked else Status.UNKNOWN, checked, (), reason)


def _launched(target: Target, launches: list[Launch], values: Values) -> list[Finding]:
    """Run all kernels once on fresh memory."""
    guards: dict[str, Guarded] = {}
    counters: dict[str, torch.Tensor] = {}
    kept: dict[str, torch.Tensor] = {}
    for kernel, launch in zip(target.kernels, launches, strict=True):
        numbers = values_of(kernel, launch.grid, launch.params)
        for tensor in kernel.tensors:
            if tensor.name in values.tensors and tensor.name not in guards:
                extents, strides = shape(tensor, numbers)
                guards[tensor.name] = Guarded(extents, strides, tensor.dtype)
                guards[tensor.name].tensor.copy_(values.tensors[tensor.name])
        mine = {t.name: guards[t.name].tensor for t in kernel.tensors if t.name in guards}
        mine |= {t.name: kept[t.name] for t in kernel.tensors if t.name in kept}
        made = launch_kernel(
            kernel, launch.grid, launch.params, mine, values.scalars, defines=POISON
        )
        scratch = {name: one for name, one in made.items() if name in kernel.workspaces}
        kept |= scratch
        counters |= {name: one for name, one in made.items() if name not in scratch}
    torch.cuda.synchronize()
    findings = values.findings({name: one.tensor for name, one in guards.items()})
    for name, guard in guards.items():
        if guard.overrun():
            findings.append(Finding("bounds", name, "a byte outside of the tensor was written"))
    for name, one in counters.items():
        if bool(one.any()):
            findings.append(Finding("semaphore", name, "it is not 0 at the end"))
    return findings


def run(
    spec: str, asked: Asked, turns: int, work: Callable[[str], Verdict] = judge
) -> list[Status]:
    """Launch every kernel of a file that says what it computes, each by a child of its own."""
    out, statuses = answers.console(), list[Status]()
    for target in load(spec):
        chosen = plans(spec, target, asked) if target.expect is not None else []
        chosen = [plan for plan in chosen if _full(target, plan)]
        if not chosen:
            says = "nothing says what it computes; write @expect above its function"
            says = says if target.expect is None else none_asked(spec, target, asked)
            answers.verdict(out, target.name, Verdict("gpu", Status.UNSUPPORTED, 0, (), says), 0)
            statuses.append(Status.UNSUPPORTED)
        one = spec if ":" in spec else f"{spec}:{target.name}"
        with Child(work, limit_s=LIMIT_S, wall_s=LIMIT_S, spawn=True) as child:
            for plan in chosen:
                begin = time.perf_counter()
                launches = [Launch(each.grid, each.params) for each in plan]
                answer = _answered(child, request(one, launches, turns))
                name = f"{target.name}  {', then '.join(map(described, plan))}"
                answers.verdict(out, name, answer, time.perf_counter() - begin)
                answers.findings(out, None, answer.findings)
                statuses.append(answer.status)
                if answer.status is Status.FAIL:
                    break  # after a CUDA error nothing runs in that process
    return statuses


def _full(target: Target, plan: Plan) -> bool:
    """Tell whether every tensor has elements: of others the driver encodes no map."""
    return all(
        elements(tensor, values_of(kernel, one.grid, one.params))
        for kernel, one in zip(target.kernels, plan, strict=True)
        for tensor in kernel.tensors
    )


def _answered(child: Child[Verdict], asked: str) -> Verdict:
    try:
        answer = child.call(asked)
    except (ExpectError, TargetError):
        raise
    except (ScheduleError, Unbounded) as error:
        return Verdict("gpu", Status.UNSUPPORTED, 0, (), str(error))
    except Exception as error:  # CUDA errors have many types, and stay with the process
        return Verdict("gpu", Status.FAIL, 1, (Finding("crash", "the launch", str(error)),))
    if isinstance(answer, Lost):
        return Verdict("gpu", Status.FAIL, 1, (Finding(answer.kind, "the launch", answer.reason),))
    return answer


@click.command(cls=Command)
@click.argument("spec", metavar="FILE.py[:NAME]")
@click.option("--grid", type=click.IntRange(min=1), help="CTAs of the launch.")
@click.option("--set", "given", multiple=True, metavar="NAME=N", help="A parameter.")
@click.option(
    "--launches",
    "turns",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each kernel, with inputs of their own.",
)
def main(spec: str, grid: int | None, given: tuple[str, ...], turns: int) -> None:
    """Launch kernels on the GPU and compare their outputs with what their file expects.

    Exit codes: 0 all are right, 1 one is wrong, hangs or crashes, 3 somebody has no answer.
    """
    if not device_present():
        click.echo("fuzz.run: no CUDA device; nothing was launched", err=True)
        sys.exit(HARNESS)
    try:
        statuses = run(spec, Asked(grid, given), turns)
    except (TargetError, LaunchError, ExpectError) as error:
        raise click.UsageError(str(error)) from error
    sys.exit(worst(CODES.get(status, HARNESS) for status in statuses))


if __name__ == "__main__":
    main()
