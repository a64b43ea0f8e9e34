"""Products whose operands lie along M or N: what a row asks for, and of torch."""

from __future__ import annotations

import pytest
import torch

from fuser.fusion.ir import TensorView
from fuzz.bench import shapes
from fuzz.bench.matmul.layouts import Turned, row, rows
from fuzz.bench.sweep import promising
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_a_row_is_what_torch_multiplies(turned: Turned) -> None:
    """Of operands as they lie; and says how, as BLAS does."""
    one = row("x", (24, 40, 16), turned)
    first, second = turned
    given = (
        torch.rand((16, 24) if first else (24, 16)),
        torch.rand((16, 40) if second else (40, 16)),
    )
    inputs = [x.bfloat16() for x in given]
    (want,) = evaluate(one.fusion(), inputs)
    made = one.form(*(x.double() for x in inputs))
    assert isinstance(made, torch.Tensor)
    assert compare([want], [made.bfloat16()], exact=False).status is Status.PASS
    assert one.says == f"24 x 40 x 16 {'T' if first else 'N'}{'N' if second else 'T'}"
    assert (one.flops, one.nbytes) == (2 * 24 * 40 * 16, 2 * (24 * 16 + 40 * 16 + 24 * 40))


def test_all_ways_are_rows_and_drawn() -> None:
    """But for both along K, which are the products of other rows."""
    ways = {(False, True), (True, False), (True, True)}
    assert {one.turned for one in rows() if hasattr(one, "turned")} == ways
    drawn = [one for one in shapes.rows(20, 3) if one.name.startswith("layout")]
    assert len(drawn) == 20
    assert len({one.says.split()[-1] for one in drawn}) == len(ways)
    assert all(promising(one, 3) for one in drawn[:4])
    for one in drawn[:4]:
        a, b = (tv.shape for tv in one.fusion().inputs if isinstance(tv, TensorView))
        assert len(a) == len(b) == 2
