"""One case before eager torch and `torch.compile`, in a child that may crash or hang.

What is demanded is the contract of `fuser.fusion.ops` for torch (`evaluate(stepwise=True)`): every
output within the rounding errors of its operations, exact where nothing is rounded.  Eager torch
rounds to 16 bits after every operation; inductor, unless `emulate_precision_casts` is set, computes
what it fuses in f32 and leaves out "downcast-upcast pairs", those that the program asks for
included.  The default is what users run, so it is the default that is judged, and the bound admits
both, each time: it is the union of what the two may do, and no tolerance is added to it.  A
comparison that hangs on such a rounding is undecided, and counts as not checked.
"""

from __future__ import annotations

import json
import logging
import random
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported, UserError

from fuser.fusion.definition import Fusion, TensorView
from fuser.fusion.ir import tensor_args
from fuzz.campaign.child import at_work
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, case_id, from_text, shape_of, to_text
from fuzz.cases.features import live
from fuzz.failures.identity import dtype_class
from fuzz.target.script import EAGER, SHOWN, Target, Wrong, function, inputs, script
from oracles.differential import compare, wrong_elements
from oracles.reference.evaluate import Expected, evaluate
from oracles.verdict import Status

ELEMENTS = 1 << 14
"""Elements of the largest tensor of a call."""
REFUSALS = (Unsupported, UserError, FailOnRecompileLimitHit)
"""What `torch.compile` raises where it does not claim to compile a function whole."""
FUSED = "fused"
"""The cause of a failure that is gone when every tensor of the case is an output."""

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of a case, and the script of each subject that failed."""

    records: list[Record] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)


def request(target: Target, case: Case) -> str:
    """Ask `judge_text` about a case; only a text goes to a child."""
    return f"{json.dumps(asdict(target))}\n{to_text(case)}"


def judge_text(asked: str) -> Answer:
    """Judge what `request` asks, quietly: what is refused is said by the answer."""
    words, text = asked.split("\n", 1)
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return judge(Target(**json.loads(words)), from_text(text))
        finally:
            logging.disable(logging.NOTSET)


def judge(target: Target, case: Case) -> Answer:
    """Judge eager torch, and what `target` makes of a case where eager torch takes it."""
    torch._dynamo.reset()
    answer = Answer()
    for subject in (EAGER, target.backend):
        at_work(subject)
        record, text = _judged(target, case, subject)
        answer.records.append(record)
        if text:
            answer.scripts[subject] = text
        if record.status == "unsupported":
            break
    return replace(answer, records=[*_named(answer.records)])


def blank_record(case: Case, subject: str) -> Record:
    """Return a record that says nothing yet."""
    return Record(
        case=case_id(to_text(case)),
        oracle="differential",
        subject=subject,
        status="pass",
        checked=0,
        seconds=0.0,
        kind="",
        reason="",
        family=subject,
        load="",
        store="",
        stages=0,
        values=case.kind,
    )


def _named(records: list[Record]) -> Iterator[Record]:
    """Say whose the causes are: eager torch's where a compiler goes wrong as it does."""
    eager = {record.cause for record in records if record.subject == EAGER}
    for record in records:
        whose = EAGER if record.cause in eager else record.subject
        yield replace(record, cause=f"{whose} {record.cause}") if record.cause else record


def calls(target: Target, case: Case) -> Iterator[Case]:
    """Yield the calls of one function: the case, other values, and, where it is dynamic, extents.

    Extents grow, as slices name elements that must be there.
    """
    yield case
    yield replace(case, kind="reals" if case.kind == "integers" else "integers", seed=case.seed + 1)
    if not target.dynamic:
        return
    draw = random.Random(case.seed)
    extents = {name: draw.choice([n, n + 1, 2 * n + 1, n + 7]) for name, n in case.extents.items()}
    other = replace(case, extents=extents, seed=case.seed + 2)
    largest = max(prod(shape_of(other, tv)) for tv in case.fusion.tensors)
    if extents != case.extents and largest <= ELEMENTS:
        yield other


def _judged(target: Target, case: Case, subject: str) -> tuple[Record, str]:
    """Call the function of a case as often as it takes; return a record, and a script if it fails.

    What eager torch refuses to run is no failure, of anybody: the others are not asked.
    """
    blank = blank_record(case, subject)
    checked, reasons, made = 0, [], list[Case]()
    run = _compiled(target, case.fusion, subject)
    for call in calls(target, case):
        made.append(call)
        args = inputs(call)
        expected = evaluate(call.fusion, args, stepwise=True)
        try:
            got = _run(run, args, target.device)
        except Exception as error:
            says = f"{type(error).__name__}: {error}"
            if subject == EAGER or isinstance(error, REFUSALS):
                return replace(blank, status="unsupported", reason=says[:4000]), ""
            kind, cause = "raises", _spoken(error)
            text = script(target, made, subject, says)
            return replace(blank, status="fail", kind=kind, reason=says[:4000], cause=cause), text
        verdict = compare(expected, got, exact=False)
        checked += verdict.checked
        reasons.append(verdict.reason)
        if verdict.status is Status.FAIL:
            said = "\n".join(map(str, verdict.findings))
            text = script(target, made, subject, said, _elements(expected, got))
            failed = replace(
                blank,
                status="fail",
                checked=checked,
                kind=verdict.findings[0].kind,
                reason=said,
                cause=_cause(target, call, subject),
            )
            return failed, text
    status = "pass" if checked else "unknown"
    return replace(
        blank, status=status, checked=checked, reason="; ".join(filter(None, reasons))
    ), ""


def _run(run: Run, args: list[Any], device: str) -> list[torch.Tensor]:
    given = [arg.to(device) if isinstance(arg, torch.Tensor) else arg for arg in args]
    with torch.no_grad():
        return [out.cpu() for out in run(*given)]


def _compiled(target: Target, fusion: Fusion, subject: str) -> Run:
    """Return the function of a fusion, compiled unless the subject is eager torch."""
    names: dict[str, Any] = {"torch": torch, "DEVICE": target.device}
    exec(compile(function(fusion), "<fusion>", "exec"), names)
    run: Run = names["compute"]
    if subject == EAGER:
        return run
    return torch.compile(
        run, backend=_backend(target.backend), fullgraph=True, dynamic=target.dynamic
    )


@cache
def _backend(name: str) -> Any:
    module, _, function_name = name.partition(":")
    return getattr(import_module(module), function_name) if function_name else name


def _elements(expected: list[Expected], got: list[torch.Tensor]) -> list[Wrong]:
    """Return the first wrong elements of the first output that has some; none of a wrong form."""
    for n, (want, have) in enumerate(zip(expected, got, strict=True)):
        if want.value.shape != have.shape:
            return []
        places = wrong_elements(want, have, exact=False).nonzero()[:SHOWN]
        if len(places):
            return [
                Wrong(n, tuple(at), want.value[tuple(at)].item(), want.bound[tuple(at)].item())
                for at in places.tolist()
            ]
    return []


def _cause(target: Target, case: Case, subject: str) -> str:
    """Name the first operation that goes wrong once every tensor is an output, and its types."""
    made = [tv for tv in live(case.fusion) if tv.op != "input"]
    whole = replace(case.fusion, outputs=tuple(made))
    args = inputs(case)
    try:
        got = _run(_compiled(target, whole, subject), args, target.device)
    except Exception:  # of another function than the case's
        return FUSED
    for tv, want, have in zip(made, evaluate(whole, args, stepwise=True), got, strict=True):
        if compare([want], [have], exact=False).status is Status.FAIL:
            return f"{tv.op}/{_first(tv)}"
    return FUSED


def _first(tv: TensorView) -> str:
    return dtype_class((*tensor_args(tv), tv)[0].dtype)


def _spoken(error: Exception) -> str:
    """Return what an error says, without the names and values of the case."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    found = (line for word in (" error: ", "Error") for line in lines if word in line)
    says = re.sub(r"^/\S+ error: |/\S+", "", next(found, lines[0]))  # of g++, or of Python
    plain = re.sub(r"\b(True|False)\b|[A-Za-z_]*[0-9][A-Za-z0-9_]*", "#", says)
    return f"{type(error).__name__}: {plain[:120]}"
