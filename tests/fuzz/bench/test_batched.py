"""Batched products: what a row asks for, and of torch."""

from __future__ import annotations

import pytest
import torch

from fuzz.bench import shapes
from fuzz.bench.matmul.batched import Batched, row
from fuzz.bench.row import together
from fuzz.bench.shapes import MOST_BYTES, MOST_FLOPS
from fuzz.bench.sweep import promising
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

B, M, N, K = 6, 8, 24, 16


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_row_is_what_torch_multiplies(turned: bool, between: bool) -> None:
    """Wherever its matrices lie; and errors are seen in the first of them."""
    one = row("B", (B, M, N, K), turned=turned, between=between)
    second = (K, N) if turned else (N, K)
    whole = [(M, B, K), (second[0], B, second[1])] if between else [(B, M, K), (B, *second)]
    inputs = [torch.rand(shape).bfloat16() for shape in whole]
    (want,) = evaluate(one.fusion(), inputs)
    made = together(one.form(*(x.double() for x in inputs)))
    assert made[0].shape == (B, M, N)
    assert compare([want], [made[0].bfloat16()], exact=False).status is Status.PASS
    assert one.error(tuple(inputs), made) <= one.tolerance
    wrong = made[0].clone()
    wrong[2, 3, 4] += 1
    assert one.error(tuple(inputs), (wrong,)) > one.tolerance


def test_shapes_are_drawn_of_all_ways_to_lie() -> None:
    """None too large for torch, or for a run."""
    drawn = [one for one in shapes.rows(40, 3) if isinstance(one, Batched)]
    assert len(drawn) == 40
    assert len({(one.turned, one.between) for one in drawn}) == 4
    for one in drawn:
        b, m, n, k = one.shape
        assert 2 * b * m * n * k <= MOST_FLOPS
        assert 2 * b * max(m * k, n * k, m * n) <= MOST_BYTES
    assert all(promising(one, 3) for one in drawn[:3])
    assert [*drawn[0].peers((), compiled=True)] == ["torch"]
