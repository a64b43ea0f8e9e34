"""Other schedules of a case, whose results must have the same bits.

On integers every sum is exact, so all schedules give equal bits.  On reals those do that leave the
order of every sum alone: where operands wait, who loads them, how CTAs add up their sums.  Where
these round what they hand on, each way of meeting has roundings of its own, and so has each tile.
So has what a normalization computes anew, or once for all tiles: of `a * b - a * c` the C++
compiler may round either product, in another place another one, and one of another block always
(both seen on an H200).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import torch

from fuser.errors import FusionError, ScheduleError
from fuser.fusion.ops import reduced_axes, scanned_axis
from fuser.pipeline import Program
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import (
    MEET,
    RESIDENCY,
    NormParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
)
from fuser.schedule.shape_class import Params
from fuzz.cases.case import Case, compiled
from fuzz.cases.draft import grows
from oracles.verdict import Finding, Status, Verdict

TRIES = 16
"""Schedules that are drawn for a case, at most."""
DRAWS = 4
"""Times that a change is drawn which would change nothing."""
SPLITS = (1, 2, 3, 5, 8, 16)

OTHERS: tuple[Params, ...] = (
    PointwiseParams((4, 64), 2, 2, None, "direct", "direct"),
    ReductionParams((2, 128), 2, 2, None, "direct", "direct", splits=3),
    NormParams((4, 512), 2, 4, None, "direct", "direct", lanes=32),
    ScanParams((4, 64), 2, 4, None, "direct", "direct", lanes=32),
    ScanParams((2, 64), 1, 4, 1, "direct", "direct", lanes=64),
)
"""For kernels that another kind of schedule leaves to the heuristics."""

_Change = Callable[[random.Random], dict[str, object] | Params]
"""Draws fields of a schedule, or another one."""


def rescheduled(case: Case, program: Program) -> Iterator[tuple[Case, Program, bool]]:
    """Yield a case under other schedules, with their programs, and whether the bits are the same.

    Where all of them add up reals in another order there is one that is not, for the reference.
    """
    alike = False
    for other, made in under_others(case, program):
        alike = True
        yield other, made, True
    if not alike:
        for other, made in islice(under_others(replace(case, kind="integers"), program), 1):
            yield replace(other, kind=case.kind), made, False


def under_others(case: Case, program: Program) -> Iterator[tuple[Case, Program]]:
    """Yield a case under other schedules, with their programs.

    All kernels of none are those of another, nor of the case itself, whose `program` is given.
    """
    seen = {_texts(program)}
    for params in variants(case):
        other = replace(case, params=params)
        try:
            made = compiled(other)
        except (FusionError, ScheduleError):
            continue
        except Exception as error:
            error.add_note(f"under another schedule, {params}")
            raise
        if _texts(made) not in seen:
            seen.add(_texts(made))
            yield other, made


def _texts(program: Program) -> tuple[str, ...]:
    return tuple(launch.source for launch in program.launches)


def variants(case: Case) -> Iterator[Params]:
    """Yield other schedules of a case, the same for every process; reals keep the order of sums.

    Each differs in what a case may ask for, in turn, and maybe in more.  Those of other kinds come
    last: they change what the heuristics would schedule.
    """
    rng = random.Random(f"{case.seed} {case.params!r}")
    changes = list(_changes(case))
    rng.shuffle(changes)
    seen = {case.params}
    for n in range(TRIES):
        draws = (changes[n % len(changes)](rng) for _ in range(DRAWS))
        asked = next((one for one in draws if not _has(case.params, one)), None)
        if asked is None:
            continue
        given: dict[str, object] = {}
        for change in rng.sample(changes, rng.randint(0, min(2, len(changes)))):
            given |= more if isinstance(more := change(rng), dict) else {}
        try:
            made = _with(case.params, given | asked) if isinstance(asked, dict) else asked
        except ScheduleError:
            continue
        if made not in seen:
            seen.add(made)
            yield made
    if _any_order(case):
        yield from (other for other in OTHERS if other not in seen)


def _has(params: Params, asked: dict[str, object] | Params) -> bool:
    return isinstance(asked, dict) and all(getattr(params, k) == asked[k] for k in asked)


def _with(params: Params, given: dict[str, object]) -> Params:
    return replace(params, **given)  # type: ignore[arg-type]  # checked by the params


def _changes(case: Case) -> Iterator[_Change]:
    """Yield what may change: always the rings, mechanisms and meetings, and splits of integers."""
    params = case.params
    whole = case.kind == "integers" and not grows(case.fusion)
    rounds = isinstance(params, MatmulParams | AmpereParams) and params.partial != "f32"
    yield lambda rng: _ring(rng, params)
    match params:
        case MatmulParams() | AmpereParams():
            # CTAs that have to run at once share a tile as far as the device has room for them: on
            # how they meet hangs how many do.
            limited = not whole and params.splits > 1
            if not rounds and not (limited and params.residency == "co-resident"):
                yield lambda rng: {"meet": rng.choice(MEET)}
            if not rounds and not limited:
                yield lambda rng: {"residency": rng.choice(RESIDENCY)}
        case NormParams():
            # Without a loop over tiles nothing is computed in front of it.
            some = (None, 1, 2) if whole else (1, 2) if params.ctas_per_sm else (None,)
            yield lambda rng: {"ctas_per_sm": rng.choice(some)}
            if whole:
                yield lambda rng: {"hold": not params.hold}
                yield lambda rng: {"recompute": not params.recompute, "reload": False}
                yield lambda rng: {"lanes": rng.choice((1, 4, 16, 32, 64, 128))}
                yield lambda rng: {"vector": rng.choice((1, 2, 4, 8))}
        case ScanParams():
            yield lambda rng: {"ctas_per_sm": rng.choice((None, 1, 2))}
            if whole:
                yield lambda rng: _lanes(rng, params)
        case PointwiseParams():
            yield lambda rng: _mechanisms(rng)
            yield lambda rng: {"ctas_per_sm": rng.choice((None, 1, 2))}
            if _any_order(case):
                yield lambda rng: {"warps": rng.choice((1, 2, 4, 8))}
                yield lambda rng: {"vector": rng.choice((1, 2, 4, 8))}
                yield lambda rng: {"tile": rng.choice(((1, 256), (4, 128), (16, 64)))}
    if isinstance(params, MatmulParams):
        yield lambda rng: {"store": rng.choice(("direct", "tma"))}
        if params.split != "ping_pong" and params.cluster == (1, 1):
            yield lambda rng: {"split": rng.choice(("pipelined", "cooperative")), "registers": None}
    elif whole and not isinstance(params, AmpereParams) and _multiplies(case):
        yield lambda rng: _other_engine(params, rng)
    if isinstance(params, MatmulParams | AmpereParams) and whole and not rounds:
        yield lambda rng: {"splits": rng.choice(SPLITS), "persistent": rng.random() < 0.3}
        yield lambda rng: _tile(rng, params)
        if isinstance(params, MatmulParams):
            turned = {"transpose": not params.transpose, "store": "tma", "inputs": "direct"}
            yield lambda rng: turned
        yield lambda rng: _other_engine(params, rng)
    if _any_order(case):
        yield lambda rng: rng.choice(OTHERS)
    if whole and isinstance(params, ReductionParams):
        yield lambda rng: {"splits": rng.choice(SPLITS)}
        yield lambda rng: {"meet": rng.choice(MEET)}


def _other_engine(params: Params, rng: random.Random) -> Params:
    """Return a schedule of products for the other tensor cores."""
    stages = rng.randint(2, 4)
    if isinstance(params, MatmulParams):
        return AmpereParams((64, 32, 32), 2, "groups", stages, stages - 1, False, columns=32)
    return MatmulParams((64, 32, 64), 1, "pipelined", stages, 1, False, columns=32)


def _tile(rng: random.Random, params: MatmulParams | AmpereParams) -> dict[str, object]:
    """Return another tile of as many rows or more, so that whoever takes strips still has some."""
    rows, _, depth = params.tile
    columns = rng.choice((16, 32, 64))
    taller = rng.choice((rows, 2 * rows))
    return {"tile": (taller, columns, depth), "columns": columns}


def _lanes(rng: random.Random, params: ScanParams) -> dict[str, object]:
    """Return how other threads share rows; as many rows as suit them."""
    lanes, vector = rng.choice((1, 4, 16, 32, 64)), rng.choice((1, 2, 4))
    rows = 32 * params.warps // lanes
    return {"lanes": lanes, "vector": vector, "tile": (rows, lanes * vector)}


def _multiplies(case: Case) -> bool:
    return any(tv.op == "mma" for tv in case.fusion.tensors)


def _any_order(case: Case) -> bool:
    """Tell whether the order of sums is no matter: they are exact, or there are none.

    Parts of sums of integers that CTAs hand on in 16 bits are not: 249 and 3 are 252 in bf16, 265
    and -16 are 248.
    """
    exact = case.kind == "integers" and getattr(case.params, "partial", "f32") == "f32"
    return (exact and not grows(case.fusion)) or not _adds_up(case)


def _adds_up(case: Case) -> bool:
    """Tell whether anything is put together, in an order that a tile decides on."""
    return _multiplies(case) or any(
        reduced_axes(tv) or scanned_axis(tv) is not None for tv in case.fusion.tensors
    )


def _mechanisms(rng: random.Random) -> dict[str, object]:
    load = rng.choice(("direct", "tma"))
    stages = rng.choice((1, 2, 4)) if load == "tma" else 1
    given: dict[str, object] = {"load": load, "store": rng.choice(("direct", "tma"))}
    return given | {"stages": stages, "prefetch": stages - 1, "warp_specialized": False}


def _ring(rng: random.Random, params: Params) -> dict[str, object]:
    deep = isinstance(params, MatmulParams | AmpereParams) or params.load != "direct"
    stages = rng.choice([n for n in range(1, 5) if n != params.stages]) if deep else 1
    ahead = params.prefetch and rng.randint(0, stages - 1)
    other = {} if isinstance(params, AmpereParams) else {"overlay": not params.overlay}
    return {"stages": stages, "prefetch": ahead, **other}


def agree(
    one: list[torch.Tensor], other: list[torch.Tensor], schedule: Params, second: Params
) -> Verdict:
    """Compare the outputs of a schedule and of a second one bit by bit; NaN equals NaN."""
    findings = []
    checked = 0
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        checked += max(a.numel(), 1)
        wrong = a != b if not a.dtype.is_floating_point else (a != b) & ~(a.isnan() & b.isnan())
        if bool(wrong.any()):
            at = tuple(int(n) for n in wrong.nonzero()[0])
            says = f"{int(wrong.sum())} elements differ; {list(at)}: "
            says += f"{a[at].item()} under {schedule}, {b[at].item()} under {second}"
            findings.append(Finding("schedules", f"output {number}", says))
    status = Status.FAIL if findings else Status.PASS if checked else Status.UNKNOWN
    return Verdict("gpu", status, checked, tuple(findings))
