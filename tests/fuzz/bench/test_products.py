"""Products and what follows them: what a row asks for, and of torch."""

from __future__ import annotations

import pytest
import torch

from fuzz.bench import shapes
from fuzz.bench.matmul.products import Product, ended
from fuzz.bench.shapes import EPILOGUES
from fuzz.bench.sweep import promising
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

M, N, K = 16, 24, 32


@pytest.mark.parametrize("how", EPILOGUES)
def test_a_row_is_what_torch_computes(how: str) -> None:
    """From the same inputs; it says what follows."""
    one = ended("E", (M, N, K), how)
    more = {"residual": [(M, N)], "gated": [(N, K)]}.get(how, [(N,)])
    inputs = [(torch.rand(shape) - 0.5).bfloat16() for shape in [(M, K), (N, K), *more]]
    (want,) = evaluate(one.fusion(), inputs)
    made = one.form(*(x.double() for x in inputs))
    assert isinstance(made, torch.Tensor)
    assert compare([want], [made.bfloat16()], exact=False).status is Status.PASS
    assert one.says.startswith(f"{M} x {N} x {K}, ")
    assert how in one.says
    assert one.flops == 2 * M * N * K * (2 if how == "gated" else 1)


def test_all_epilogues_are_drawn() -> None:
    """With schedules of their own, which are no plain product's."""
    drawn = [one for one in shapes.rows(40, 3) if isinstance(one, Product) and one.ends]
    assert len(drawn) == 40
    assert len({one.ends for one in drawn}) == len(EPILOGUES)
    assert all(len(promising(one, 3)) == 3 for one in drawn[:3])
    assert all([*one.peers((), compiled=True)] == ["torch"] for one in drawn[:3])
