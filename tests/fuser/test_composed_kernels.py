"""Compositions as kernels: default schedules in the simulator, and on a GPU."""

from __future__ import annotations

import composed
import judged
import pytest
import torch
from composed import COMPOSED

from fuser.runtime.executable import Executable
from fuzz.cases.case import Case
from fuzz.cases.strategies import PRODUCTS
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

WAYS = [(name, dtype) for name, one in COMPOSED.items() for dtype in one.takes]
SHAPES = [(1, 1), (9, 37), (3, 300), (0, 8), (8, 0), (130, 1), (257, 4099), (2, 70000)]


@pytest.mark.parametrize("name", COMPOSED)
def test_kernels_compute_what_the_fusion_says(name: str) -> None:
    """On reals with special values; kernels whose sums are shared, and others."""
    fusion = composed.fusion(name, composed.given(name, (9, 37), COMPOSED[name].takes[0]))
    for m, n in ((9, 37), (2, 520)):
        case = Case(fusion, PRODUCTS, {"m": m, "n": n}, "reals", 1)
        records = judged.records(case, ("simulator", "differential"))
        assert {record.status for record in records} == {"pass"}, records


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), WAYS)
def test_the_device_computes_what_the_fusion_says(name: str, dtype: str) -> None:
    """Special values, one element, none, odd rows, and rows that many CTAs share."""
    for shape in SHAPES:
        for special in (False, True):
            inputs = composed.given(name, shape, dtype, special=special)
            fusion = composed.fusion(name, inputs)
            got = [out.cpu() for out in Executable(fusion)(*(x.cuda() for x in inputs))]
            assert all(isinstance(out, torch.Tensor) for out in got)
            verdict = compare(evaluate(fusion, inputs), got, exact=False)
            assert verdict.status in (Status.PASS, Status.UNKNOWN), (shape, verdict)
