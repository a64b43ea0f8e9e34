"""Other schedules of a case, whose results must have the same bits.

On integers every sum is exact, so all schedules give equal bits.  On reals those do that leave the
order of every sum alone: where operands wait, who loads them, how CTAs add up their sums.  Where
these round what they hand on, each way of meeting has roundings of its own, and so has each tile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from fuser.errors import ScheduleError
from fuser.fusion.ops import reduced_axes
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import MEET, RESIDENCY, PointwiseParams, ReductionParams
from fuser.schedule.shape_class import Params
from fuzz.cases.case import Case
from oracles.verdict import Finding, Status, Verdict

TRIES = 12
"""Schedules that are drawn for a case, at most."""
SPLITS = (1, 2, 3, 5, 8, 16)

_Change = Callable[[random.Random], dict[str, object]]


def variants(case: Case) -> Iterator[Params]:
    """Yield other schedules of a case, the same for every process; reals keep the order of sums."""
    rng = random.Random(f"{case.seed} {case.params!r}")
    changes = list(_changes(case))
    seen = {case.params}
    for _ in range(TRIES):
        some = rng.sample(changes, rng.randint(1, min(3, len(changes))))
        given: dict[str, object] = {}
        for change in some:
            given |= change(rng)
        try:
            made = replace(case.params, **given)  # type: ignore[arg-type]  # checked by the params
        except ScheduleError:
            continue
        if made not in seen:
            seen.add(made)
            yield made


def _changes(case: Case) -> Iterator[_Change]:
    """Yield what may change: always the rings, mechanisms and meetings, and splits of integers."""
    params = case.params
    yield lambda rng: _ring(rng, params)
    match params:
        case MatmulParams() | AmpereParams():
            yield lambda rng: {"raster": rng.choice((1, 2, 8))}
            if params.partial == "f32":
                yield lambda rng: {"meet": rng.choice(MEET)}
                yield lambda rng: {"residency": rng.choice(RESIDENCY)}
        case PointwiseParams():
            yield lambda rng: _mechanisms(rng)
            yield lambda rng: {"ctas_per_sm": rng.choice((None, 1, 2))}
            if case.kind == "integers" or not _adds_up(case):
                yield lambda rng: {"warps": rng.choice((1, 2, 4, 8))}
                yield lambda rng: {"vector": rng.choice((1, 2, 4, 8))}
                yield lambda rng: {"tile": rng.choice(((1, 256), (4, 128), (16, 64)))}
    if isinstance(params, MatmulParams):
        yield lambda rng: {"store": rng.choice(("direct", "tma"))}
        if params.split != "ping_pong" and params.cluster == (1, 1):
            yield lambda rng: {"split": rng.choice(("pipelined", "cooperative")), "registers": None}
    rounds = isinstance(params, MatmulParams | AmpereParams) and params.partial != "f32"
    if case.kind == "integers" and not isinstance(params, PointwiseParams) and not rounds:
        yield lambda rng: {"splits": rng.choice(SPLITS), "persistent": rng.random() < 0.3}
    if case.kind == "integers" and isinstance(params, ReductionParams):
        yield lambda rng: {"splits": rng.choice(SPLITS)}
        yield lambda rng: {"meet": rng.choice(MEET)}


def _adds_up(case: Case) -> bool:
    """Tell whether anything is put together, in an order that a tile decides on."""
    return any(tv.op == "mma" or reduced_axes(tv) for tv in case.fusion.tensors)


def _mechanisms(rng: random.Random) -> dict[str, object]:
    load = rng.choice(("direct", "tma"))
    stages = rng.choice((1, 2, 4)) if load == "tma" else 1
    given: dict[str, object] = {"load": load, "store": rng.choice(("direct", "tma"))}
    return given | {"stages": stages, "prefetch": stages - 1, "warp_specialized": False}


def _ring(rng: random.Random, params: Params) -> dict[str, object]:
    stages = rng.randint(1, params.stages)
    ahead = params.prefetch and rng.randint(0, stages - 1)
    other = {} if isinstance(params, AmpereParams) else {"overlay": not params.overlay}
    return {"stages": stages, "prefetch": ahead, **other}


def agree(one: list[torch.Tensor], other: list[torch.Tensor], schedule: Params) -> Verdict:
    """Compare the outputs of two schedules bit by bit; NaN equals NaN."""
    findings = []
    checked = 0
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        checked += max(a.numel(), 1)
        wrong = a != b if not a.dtype.is_floating_point else (a != b) & ~(a.isnan() & b.isnan())
        if bool(wrong.any()):
            at = tuple(int(n) for n in wrong.nonzero()[0])
            says = f"{int(wrong.sum())} elements differ under {schedule}"
            says += f"; {list(at)}: {a[at].item()} and {b[at].item()}"
            findings.append(Finding("schedules", f"output {number}", says))
    status = Status.FAIL if findings else Status.PASS if checked else Status.UNKNOWN
    return Verdict("gpu", status, checked, tuple(findings))
