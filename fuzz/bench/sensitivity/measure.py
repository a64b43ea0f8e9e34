"""Right outputs and faulty ones of one case, and what each rule says of them.

A fault counts if somewhere the exact result, in f64, moves by more than a unit in the last place of
the output's type, and by more than every right output is off there, or to another class (inf, NaN);
and if what is stored differs.  What moves less than a right output is off looks like one: no rule
that lets all of those pass can see it.

A rule detects only in cases whose right outputs it lets pass: an alarm beside a false one says
nothing.  So a rule that always passes detects none, and neither does one that never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import torch

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.runtime.binding import bind
from fuzz.bench.sensitivity.computation import Computation, Fault, stored
from fuzz.bench.sensitivity.faults import KINDS, faults, places
from fuzz.bench.sensitivity.rules import OURS, RULES, Rule, Wanted, wanted
from fuzz.campaign.judge import POLICY
from fuzz.campaign.launches import calls
from fuzz.cases.case import Case, compiled, inputs, specs
from fuzz.values import additions, exactly, partials
from oracles.reference.estimate import EPS, TINY
from oracles.reference.evaluate import evaluate
from oracles.simulator import simulate
from oracles.verdict import Status

TRIES = 3
"""Places of a kind that are tried, until a fault counts."""
KERNELS = "simulated kernels"
MAKERS = ("rounded", "f32, other order", KERNELS)
"""Who makes right outputs.  Kernels may be wrong: what the oracle refutes of them counts as an
alarm, and is looked at no further."""
_EPS = {**EPS, DType.F8E4M3: 2.0**-3, DType.F8E5M2: 2.0**-2}
_TINY = {**TINY, DType.F8E4M3: 2.0**-9, DType.F8E5M2: 2.0**-16}


@dataclass(frozen=True, slots=True)
class Missed:
    """A fault that the oracle has not noticed: which, where, and how far beside the bound."""

    case: int
    kind: str
    where: str
    ratio: float
    bound_ulps: float

    def __str__(self) -> str:
        wide = f"{self.ratio:.2g} of a bound of {self.bound_ulps:.3g} ulps"
        return f"case {self.case}: {self.kind}, at {self.where}: {wide}"


@dataclass(frozen=True, eq=False, slots=True)
class Injected:
    """A fault of a case, the outputs that it leads to, and where these are another answer."""

    case: int
    fault: Fault
    outputs: list[torch.Tensor]
    moved: list[torch.Tensor]


@dataclass(slots=True)
class Tally:
    """What was injected and who detects it; what was right and who complains."""

    injected: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    detected: Counter[tuple[str, str]] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    alarms: Counter[tuple[str, str]] = field(default_factory=Counter)
    disputed: list[tuple[int, str]] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)


def measure(
    number: int,
    case: Case,
    tally: Tally,
    *,
    simulated: bool = True,
    rules: Mapping[str, Rule] = RULES,
) -> None:
    """Ask every rule about right and faulty outputs of a case.

    Parameters
    ----------
    number : int
        Of the case; what is drawn for it follows from that.
    case : Case
        What is computed, and on which inputs.
    tally : Tally
        Gets the counts.
    simulated : bool
        Whether the compiled kernels are simulated for one more right output.
    rules : mapping of str to Rule
        Who is asked; one is the oracle (`OURS`).
    """
    given = inputs(case)
    rounds = partials(case.params)
    expected = evaluate(case.fusion, given, rounds, additions(case))
    honest = Computation(case.fusion, given, exact=False)
    exact = Computation(case.fusion, given, exact=True)
    want = wanted(case.fusion, honest.sizes, expected, exact=exactly(case))
    right = {"rounded": want.nearest, "f32, other order": honest.outputs()}
    if simulated and (got := by_kernels(case)) is not None:
        right[KERNELS] = got
    quiet = dict.fromkeys(rules, True)
    for maker, outputs in list(right.items()):
        said = {name: rule(want, outputs) for name, rule in rules.items()}
        tally.right[maker] += 1
        tally.open[maker] += said[OURS] is Status.UNKNOWN
        for name, status in said.items():
            tally.alarms[maker, name] += status is Status.FAIL
        if said[OURS] is Status.FAIL:
            tally.disputed.append((number, maker))
        if said[OURS] is Status.FAIL and maker == KERNELS:
            del right[maker]
            continue
        for name, status in said.items():
            quiet[name] &= status is not Status.FAIL
    random = Random(number)
    at = places(case.fusion, honest.sizes, rounds=rounds is not None)
    for kind in KINDS:
        for fault in islice(faults(kind, at, random), TRIES):
            moved = moves(exact, honest, fault, list(right.values()))
            if any(bool(where.any()) for where in moved):
                outputs = honest.outputs(fault)
                said = {
                    name: rule(want, outputs) if quiet[name] else Status.PASS
                    for name, rule in rules.items()
                }
                _note(Injected(number, fault, outputs, moved), want, said, tally)
                break


def by_kernels(case: Case) -> list[torch.Tensor] | None:
    """Return what the compiled kernels of a case give, simulated; None without kernels."""
    try:
        program = compiled(case)
    except ScheduleError:
        return None
    launches, memory = calls(
        case, inputs(case), program, bind(program, specs(case), sms=1 + case.seed % 4)
    )
    for call in launches:
        if call.launch is None:
            continue
        arrays = call.arrays()
        verdict = simulate.simulate(
            call.kernel, call.launch, arrays, call.scalars, seed=case.seed, policy=POLICY
        )
        if verdict.status is not Status.PASS:
            return None
        call.store(arrays)
    found = [memory[tv.name] for tv in case.fusion.outputs]
    return [one for one in found if isinstance(one, torch.Tensor)]


def moves(
    exact: Computation, honest: Computation, fault: Fault, right: list[list[torch.Tensor]]
) -> list[torch.Tensor]:
    """Return where a fault gives another answer than all right outputs do, per output."""
    found = []
    before, after = exact.outputs(), exact.outputs(fault)
    seen, shown = honest.outputs(), honest.outputs(fault)
    for n, tv in enumerate(exact.fusion.outputs):
        moved = _far(before[n], after[n], tv.dtype, [outputs[n] for outputs in right])
        found.append(moved & ~_same(seen[n], shown[n]))
    return found


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if not one.is_floating_point():
        return one == other
    a, b = one.to(torch.float64), other.to(torch.float64)
    return (a == b) | (a.isnan() & b.isnan())


def _far(
    right: torch.Tensor, wrong: torch.Tensor, dtype: DType, seen: list[torch.Tensor]
) -> torch.Tensor:
    """Return where two exact values of a type differ, and not by rounding as it is seen."""
    if not dtype.is_float:
        return right != wrong
    one, other = (stored(value, dtype).to(torch.float64) for value in (right, wrong))
    least = ulp(right, dtype)
    for have in seen:
        least = torch.maximum(least, (have.to(torch.float64) - right).abs().nan_to_num(0.0))
    both = one.isfinite() & other.isfinite()
    return torch.where(both, (right - wrong).abs() > least, ~_same(one, other))


def ulp(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Return the distance from a number to the next of a float type."""
    exponent = torch.frexp(value.nan_to_num(0.0, 0.0, 0.0).abs())[1]
    power = torch.ldexp(torch.ones_like(value), exponent - 1)
    return torch.clamp(power * _EPS[dtype], min=_TINY[dtype])


def _note(one: Injected, want: Wanted, said: Mapping[str, Status], tally: Tally) -> None:
    """Count a fault, and who detects it."""
    kind = one.fault.kind
    tally.injected[kind] += 1
    for name, status in said.items():
        tally.detected[kind, name] += status is Status.FAIL
    if said[OURS] is Status.FAIL:
        return
    pairs = zip(one.moved, want.expected, strict=True)
    decided = [where & ~expected.undecided for where, expected in pairs]
    if said[OURS] is Status.UNKNOWN or not any(bool(where.any()) for where in decided):
        tally.undecided[kind] += 1
    else:
        tally.missed.append(_missed(one, decided, want))


def _missed(one: Injected, decided: list[torch.Tensor], want: Wanted) -> Missed:
    ratios, ulps = [0.0], [0.0]
    for have, where, expected in zip(one.outputs, decided, want.expected, strict=True):
        if expected.dtype.is_float and bool(where.any()):
            error = (have.to(torch.float64) - expected.value).abs()[where]
            bound = expected.bound[where]
            ratios.append(float((error / bound).nan_to_num(0.0, 0.0, 0.0).max()))
            ulps.append(float((bound / ulp(expected.value[where], expected.dtype)).median()))
    at = one.fault.at
    return Missed(one.case, one.fault.kind, f"{at.op} {at.dtype}", max(ratios), max(ulps))
