"""Cases on the GPU, in a child process that may crash or hang without losing anything.

Outputs start as poison, every buffer lies between guard bytes, shared memory is poisoned by the
kernel, and inputs change from launch to launch; the first launch is judged like the others.
Source: measured on an H200: a missing wait gives right values from the second launch on, because
the bytes of the first one are still in shared memory.

Later launches have company: another stream keeps SMs and memory busy, so that CTAs come in another
order and copies take longer.  The compiled program is then called at other extents, too, and the
case at much larger ones, on its inputs, repeated (`fuzz.cases.enlarged`).  What fails is launched
again and again with the same inputs: what fails now and then is flaky.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import click
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from rich.console import Console
from rich.table import Table

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import TensorView
from fuser.runtime.executable import Executable, device_present
from fuzz.campaign.child import LIMIT_S, Lost, Probed
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import ENLARGED, Record
from fuzz.campaign.recorder import Recorder, blank_record
from fuzz.cases.calls import named, others
from fuzz.cases.case import (
    POISON,
    Case,
    Value,
    compiled,
    from_text,
    inputs,
    output_specs,
    shape_of,
    strides_of,
    to_text,
)
from fuzz.cases.enlarged.call import LEAST, Enlarged, enlarged, parallel
from fuzz.cases.enlarged.repetition import fill, judged, unchanged
from fuzz.cases.metamorphic import agree, rescheduled
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, CannotWrite, Command
from fuzz.values import compared, exactly, expected
from oracles.verdict import Finding, Status, Verdict

LAUNCHES = 3
"""Launches of a case, each with inputs of its own; all but the first in company."""
SHAPES = 8
"""Calls at other extents: one takes a fiftieth of the time in which the program is compiled."""
AGAIN = 20
"""Launches of what has failed, with the same inputs."""
COMPANY, TURNS = 1 << 22, 8
"""Numbers that the other stream draws at a time, and how often at most."""
WALL_S = LIMIT_S / 2
"""Wall limit of one case, with its compilation: a host that waits for a kernel may not compute."""
MOST_ALONE = 6
"""Cases that are drawn for each one in which CTAs share tiles."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Variable by which a process sees some devices only.  Source: CUDA programming guide."""
GUARD = 512
"""Bytes of sentinel on both sides of every buffer; a multiple of the largest alignment."""
SENTINEL = 0xA5
"""What guard bytes hold."""
PROBE = """
from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
T1 = fd.ops.relu(T0)
fd.add_output(T1)
fusion = fd.fusion()
params = PointwiseParams((1, 256), 1, 4, None, "direct", "direct")
case = Case(fusion, params, {"i0": 1000}, "integers", 0)
"""
"""A case that any working device passes; run after a lost child before the next one is blamed."""

_TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}


class Guarded:
    """A tensor on the device, `offset` elements off alignment, in poison, between guard bytes."""

    def __init__(
        self, shape: Sequence[int], strides: Sequence[int], dtype: DType, offset: int = 0
    ) -> None:
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        count = offset + (0 if 0 in shape else reach + 1)
        nbytes = -(-count * dtype.nbytes // GUARD) * GUARD
        self._raw = torch.full((nbytes + 2 * GUARD,), SENTINEL, dtype=torch.uint8, device="cuda")
        inside = self._raw[GUARD : GUARD + nbytes].view(_TORCH[dtype])
        inside.fill_(POISON[dtype])
        self._tail = inside[count:].clone()
        self._end = inside[count:]
        self.tensor = inside.as_strided(
            tuple(shape), tuple(strides), GUARD // dtype.nbytes + offset
        )

    def bits(self) -> torch.Tensor:
        """Return a copy of all bytes, guards included."""
        return self._raw.clone()

    def changed(self, bits: torch.Tensor) -> bool:
        """Tell whether any byte differs from what `bits` returned."""
        return not torch.equal(self._raw, bits)

    def overrun(self) -> bool:
        """Tell whether a byte outside a tensor without gaps has changed."""
        edges = torch.cat([self._raw[:GUARD], self._raw[-GUARD:]])
        same_tail = torch.equal(self._end.view(torch.uint8), self._tail.view(torch.uint8))
        return not (bool((edges == SENTINEL).all()) and same_tail)


def judge_case(text: str) -> list[Record]:
    """Run the case of a text on the device; one record per launch.

    The last ones are of a call at larger extents, and of another schedule.
    """
    case = from_text(text)
    recorder = Recorder(case, text)
    executable = Executable(case.fusion, case.params, poison=True)
    for subject, call, number in _calls(case):
        launch = partial(_launched, executable, call, number)
        verdict = recorder.ask("gpu", subject, partial(settled, launch))
        if verdict is None or verdict.status is not Status.PASS:
            return recorder.records
    large = enlarged(case, compiled(case))
    subject = ENLARGED if large is None else f"{ENLARGED}: {large}"
    launch = partial(_enlarged, executable, case, large)
    verdict = recorder.ask("gpu", subject, partial(settled, launch))
    if verdict is not None and verdict.status is not Status.FAIL:
        recorder.ask("gpu", "another schedule", partial(_another, executable, case))
    return recorder.records


def _calls(case: Case) -> Iterator[tuple[str, Case, int]]:
    """Yield what is launched, in words, and the turn of its inputs; other calls once these pass.

    A case that the compiler refuses has none: its first launch says so.
    """
    for number in range(LAUNCHES):
        yield f"launch {number}", case, number
    for other in islice(others(case, compiled(case)), SHAPES):
        yield named(other), other, 0


def settled(launch: Callable[[], Verdict]) -> Verdict:
    """Launch; if that fails, again and again: what then passes too is flaky, and says how often."""
    first = launch()
    if first.status is not Status.FAIL:
        return first
    failing = 1 + sum(launch().status is Status.FAIL for _ in range(AGAIN))
    if failing == 1 + AGAIN:
        return first
    says = f"fails {failing} of {1 + AGAIN} launches with the same inputs: "
    findings = [
        replace(finding, kind="flaky", witness=f"{says}{finding.kind}: {finding.witness}")
        for finding in first.findings
    ]
    return replace(first, findings=tuple(findings))


def _another(executable: Executable, case: Case) -> Verdict:
    """Run the first other schedule that the case can have, and compare bit by bit.

    Where all add up reals in another order, the reference judges.  Where bits differ, both are
    compiled again without fma, which compilers choose by what stands around.
    """
    given = inputs(case, turn=0)
    arguments, _ = _guarded(Enlarged.of(case, {}), given)
    mine = _results(executable, case, arguments)
    why = "there is none"
    for other, _, alike in rescheduled(case, compiled(case)):
        try:
            second = Executable(case.fusion, other.params, poison=True)
            its = _results(second, case, arguments)
        except (FusionError, ScheduleError) as error:
            why = f"under {other.params}: {error}"
            continue
        except Exception as error:
            error.add_note(f"under another schedule, {other.params}")
            raise
        if not alike:
            verdict = compared(other, given, [t.cpu() for t in its])
            reason = f"{verdict.reason} under {other.params}".strip()
            return replace(verdict, oracle="gpu", reason=reason)
        verdict = agree(mine, its, case.params, other.params)
        if verdict.status is not Status.FAIL:
            return verdict
        mine, its = (
            _results(Executable(case.fusion, params, poison=True, fused=False), case, arguments)
            for params in (case.params, other.params)
        )
        return agree(mine, its, case.params, other.params)
    return Verdict("gpu", Status.UNKNOWN, 0, reason=f"no other schedule was run: {why}")


def _results(executable: Executable, case: Case, arguments: list[Value]) -> list[torch.Tensor]:
    """Return what an executable makes of arguments, in outputs that were poison."""
    outs = _outputs(case)
    executable(*arguments, out=[guard.tensor for guard in outs])
    torch.cuda.synchronize()
    return [guard.tensor for guard in outs]


def _enlarged(executable: Executable, case: Case, large: Enlarged | None) -> Verdict:
    """Run a call at larger extents, if there is one that the device and the schedule can have."""
    if large is None:
        why = f"no call of {LEAST} elements is within bounds"
        if not parallel(case.fusion):
            why = "no extent may grow: each is pinned, or something is joined along it"
        return Verdict("gpu", Status.UNKNOWN, 0, reason=why)
    try:
        return _repeated(executable, case, large)
    except (FusionError, ScheduleError) as error:
        return Verdict("gpu", Status.UNKNOWN, 0, reason=f"refused at this size: {error}")
    except torch.OutOfMemoryError:
        return Verdict("gpu", Status.UNKNOWN, 0, reason="the device has no memory for it")
    finally:
        torch.cuda.empty_cache()  # other processes share the device


def _repeated(executable: Executable, case: Case, large: Enlarged) -> Verdict:
    """Run a case, and a larger call on its inputs, repeated; compare what they return."""
    given = inputs(case, turn=0)
    small, _ = _guarded(Enlarged.of(case, {}), given)
    right = _results(executable, case, small)
    arguments, guards = _guarded(large, small)
    outs = _outputs(large.case)
    executable(*arguments, out=[guard.tensor for guard in outs])
    torch.cuda.synchronize()
    read = [
        unchanged(there, here, large.repeats(tv))
        for tv, there, here in zip(case.fusion.inputs, arguments, small, strict=True)
        if isinstance(tv, TensorView)
        and isinstance(there, torch.Tensor)
        and isinstance(here, torch.Tensor)
    ]
    changed = [guard.overrun() or not same for guard, same in zip(guards, read, strict=True)]
    findings = _written(outs, changed)
    reference = partial(expected, case, given, by=large.case)
    left = [guard.tensor for guard in outs]
    repeats = [large.repeats(tv) for tv in case.fusion.outputs]
    return _with(findings, judged(left, right, repeats, reference, exact=exactly(case)))


def _outputs(case: Case) -> list[Guarded]:
    specs = output_specs(case)
    return [
        Guarded(specs[tv.name].shape, specs[tv.name].strides, tv.dtype)
        for tv in case.fusion.outputs
    ]


def _launched(executable: Executable, case: Case, number: int) -> Verdict:
    given = inputs(case, turn=number)
    arguments, guards = _guarded(Enlarged.of(case, {}), given)
    outs = _outputs(case)
    before = [guard.bits() for guard in guards]
    if number:
        _company(case.seed + number)
    got = executable(*arguments, out=[guard.tensor for guard in outs])
    torch.cuda.synchronize()
    changed = [guard.changed(bits) for guard, bits in zip(guards, before, strict=True)]
    findings = _written(outs, changed)
    return _with(findings, replace(compared(case, given, [t.cpu() for t in got]), oracle="gpu"))


def _with(findings: list[Finding], verdict: Verdict) -> Verdict:
    """Return a verdict on values, or the failure of what was written beside them."""
    if findings:
        return Verdict("gpu", Status.FAIL, verdict.checked + len(findings), tuple(findings))
    return verdict


def _written(outs: list[Guarded], changed: list[bool]) -> list[Finding]:
    """Say what was written that is no output, given which inputs have changed."""
    findings = [
        Finding("guard", f"output {n}", "bytes outside the tensor were written")
        for n, guard in enumerate(outs)
        if guard.overrun()
    ]
    return findings + [
        Finding("guard", f"input {n}", "bytes of the input or around it were written")
        for n, one in enumerate(changed)
        if one
    ]


def _company(seed: int) -> None:
    """Let another stream draw random numbers for a while, beside what is launched next."""
    room, stream = _beside()
    turns = random.Random(seed).randint(1, TURNS)
    with torch.cuda.stream(stream):
        for _ in range(turns):
            room.normal_()


@cache
def _beside() -> tuple[torch.Tensor, torch.cuda.Stream]:
    """Return room for the other stream, which allocates nothing later, and the stream."""
    return torch.empty(COMPANY, device="cuda"), torch.cuda.Stream()


def _guarded(call: Enlarged, given: list[Value]) -> tuple[list[Value], list[Guarded]]:
    """Return the inputs of a call, given those that repeat in it."""
    arguments: list[Value] = []
    guards: list[Guarded] = []
    for arg, value in zip(call.case.fusion.inputs, given, strict=True):
        if isinstance(arg, TensorView) and isinstance(value, torch.Tensor):
            shape, strides = shape_of(call.case, arg), strides_of(call.case, arg)
            guards.append(Guarded(shape, strides, arg.dtype, call.case.offset))
            fill(guards[-1].tensor, value.cuda(), call.repeats(arg))
            value = guards[-1].tensor
        arguments.append(value)
    return arguments, guards


def device_of(worker: int) -> str:
    """Return the device that a worker has, in turn, as CUDA_VISIBLE_DEVICES names it."""
    told = os.environ.get(VISIBLE)
    names = told.split(",") if told else [str(n) for n in range(torch.cuda.device_count())]
    return names[worker % len(names)] if names else ""


def _judged_on(device: str, text: str) -> list[Record]:
    """Judge a case in a process that sees one device only, from its first use of CUDA on."""
    os.environ[VISIBLE] = device
    return judge_case(text)


class Device(Probed[list[Record]]):
    """A GPU as an oracle; the workers of a machine share all that there are."""

    def __init__(self, worker: int = 0) -> None:
        super().__init__(partial(_judged_on, device_of(worker)), PROBE, _passed, wall_s=WALL_S)

    def judge(self, case: Case, text: str) -> list[Record]:
        """Run a case; a crash or a hang of the child is a failure of the case."""
        answer = self.call(text)
        if not isinstance(answer, Lost):
            if any(record.status == "error" for record in answer):
                self.restart("a plain relu")
            return answer
        self.restart("a plain relu")
        blank = blank_record(case, text)
        return [replace(blank, oracle="gpu", status="fail", kind=answer.kind, reason=answer.reason)]


def _passed(records: list[Record]) -> bool:
    """Tell whether the device works; it need not have memory for a large call."""
    return all(
        record.status == "pass" or (record.status == "unknown" and record.is_enlarged)
        for record in records
    )


class _Enough(KeyboardInterrupt):
    """A family has its cases, or the time is over; Hypothesis lets it pass."""


count_option = click.option("--count", default=500, show_default=True, help="Cases in all.")
seed_option = click.option(
    "--seed", "seed_", default=0, show_default=True, help="The same seed draws the same cases."
)
families_option = click.option(
    "--family",
    "families",
    type=click.Choice(FAMILIES),
    multiple=True,
    default=FAMILIES,
    show_default="all",
    help="Only this one; may be given several times.",
)


@click.command(cls=Command)
@count_option
@click.option("--seconds", default=1e9, help="Stop after this time.", show_default="no limit")
@seed_option
@families_option
@click.option("--shared", is_flag=True, help="Only where several CTAs share a tile.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("reports", "out", "gpu.sqlite"),
    show_default=True,
    help="Where records go.",
)
def main(
    count: int,
    seconds: float,
    seed_: int,
    families: tuple[str, ...],
    ledger: Path,
    *,
    shared: bool,
) -> None:
    """Run random cases on the GPU, schedule families in turn, and compare them with torch."""
    if not device_present():
        click.echo("gpu: no device, 0 cases run")
        sys.exit(HARNESS)
    start, seen = time.monotonic(), set[str]()
    statuses: Counter[tuple[str, str]] = Counter()
    large: Counter[str] = Counter()
    per_family = -(-count // len(families))
    with Ledger(ledger) as book, Device() as device:
        facts = {**versions(), **machine(), "seed": seed_, "gpu": torch.cuda.get_device_name()}
        run = book.start(f"gpu-seed{seed_}", facts)

        def judge(case: Case) -> None:
            if time.monotonic() > end or len(seen) >= most:
                raise _Enough
            text = to_text(case)
            if text in seen or (shared and splits_of(case) == 1):
                return
            seen.add(text)
            records = device.judge(case, text)
            try:
                book.append(run, records, text=text)
            except CannotWrite as error:  # Hypothesis would take it for a failure of the case
                raise _Enough from error
            worst = next((r for r in records if r.status not in ("pass", "unknown")), records[-1])
            statuses[case.params.family, worst.status] += 1
            passed = (r.is_enlarged and r.status == "pass" for r in records)
            large[case.params.family] += any(passed)
            if worst.status not in ("pass", "unknown"):
                click.echo(f"{worst.status} {worst.kind}: {worst.reason}\n{text}")

        for number, family in enumerate(families, start=1):
            most = per_family * number
            end = start + seconds * number / len(families)  # the last ones get their share, too
            chosen = settings(
                max_examples=3 * per_family * (MOST_ALONE if shared else 1),  # some come twice
                database=None,
                deadline=None,
                phases=(Phase.generate,),
                suppress_health_check=tuple(HealthCheck),
            )
            test = chosen(given(cases(families=(family,)))(judge))
            try:
                seed(seed_ * len(FAMILIES) + FAMILIES.index(family))(test)()
            except _Enough as enough:
                if enough.__cause__ is not None:
                    raise enough.__cause__ from None
        book.note(run, {"elapsed_s": time.monotonic() - start})
    names = sorted({status for _, status in statuses})
    table = Table("family", "cases", *names, f"pass {ENLARGED}")
    for family in FAMILIES:
        counts = [statuses[family, name] for name in names]
        table.add_row(family, str(sum(counts)), *map(str, counts), str(large[family]))
    Console().print(table)
    bad = sum(n for (_, status), n in statuses.items() if status in ("fail", "error"))
    total = sum(statuses.values())
    click.echo(
        f"{total} different cases on {facts['gpu']}, {bad} mismatches or errors; ledger {ledger}"
    )
    sys.exit(FAILED if bad else CLEAN if total else HARNESS)


def splits_of(case: Case) -> int:
    """Return how many CTAs a schedule asks for to share a tile."""
    return getattr(case.params, "splits", 1)


if __name__ == "__main__":
    main()
