"""Products whose operands lie along M or N: what a row asks for, and of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fuser.fusion.ir import TensorView
from fuzz.bench import shapes
from fuzz.bench.matmul.layouts import Layout, Turned, row, rows
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


@pytest.fixture(params=[False, True])
def allowed(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether torch may multiply by tf32, as somebody set it before."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = request.param
    yield request.param
    torch.backends.cuda.matmul.allow_tf32 = before


def test_f32_is_multiplied_by_tf32_by_both(allowed: bool) -> None:
    """By torch where this row asks for it only: what was set before is set behind it."""
    one = row("x", (24, 40, 16), (False, True), dtype=torch.float32)
    said = []

    class Operand(torch.Tensor):
        """A matrix that notes what torch may do when it is multiplied."""

        def __matmul__(self, other: Any) -> torch.Tensor:
            said.append(torch.backends.cuda.matmul.allow_tf32)
            return super().__matmul__(other)

    one.form(torch.rand(24, 16).as_subclass(Operand), torch.rand(16, 40))
    assert said == [True]
    assert torch.backends.cuda.matmul.allow_tf32 is allowed
    assert one.says == "24 x 40 x 16 NN, f32"
    assert (one.flops, one.nbytes) == (4 * 24 * 40 * 16, 4 * (24 * 16 + 40 * 16 + 24 * 40))
    assert "tf32" in str(one.fusion())


def test_types_are_drawn() -> None:
    """Of f32 and f16, whichever way operands lie, and not more than is worth a minute."""
    drawn = [one for one in shapes.rows(40, 3) if one.name.startswith("typed")]
    assert len(drawn) == 40
    assert {one.says.split(", ")[-1] for one in drawn} == {"f32", "f16"}
    assert {one.says.split(", ")[0][-2:] for one in drawn} == {"NN", "NT", "TN", "TT"}
    assert all(one.flops <= 2 * shapes.MOST_FLOPS for one in drawn)
    assert all(promising(one, 3) for one in drawn[:4])


def test_all_ways_are_rows_and_drawn() -> None:
    """But for both along K of 16 bits, which are the products of other rows."""
    ways = {(False, True), (True, False), (True, True)}
    halves = [one for one in rows() if isinstance(one, Layout) and one.dtype is torch.bfloat16]
    assert {one.turned for one in halves} == ways
    drawn = [one for one in shapes.rows(20, 3) if one.name.startswith("layout")]
    assert len(drawn) == 20
    assert len({one.says.split()[-1] for one in drawn}) == len(ways)
    assert all(promising(one, 3) for one in drawn[:4])
    for one in drawn[:4]:
        a, b = (tv.shape for tv in one.fusion().inputs if isinstance(tv, TensorView))
        assert len(a) == len(b) == 2
