"""Products of 8-bit operands times numbers of rows: what a row asks for, and of torch."""

from __future__ import annotations

import pytest
import torch

from fuser.dtype import DType
from fuzz.bench import shapes
from fuzz.bench.matmul.scaled import TYPES, Scaled, row, rows
from fuzz.bench.row import Tensors, together
from fuzz.bench.sweep import promising
from oracles.reference.evaluate import evaluate

M, N, K = 24, 32, 48


def given(dtype: torch.dtype) -> Tensors:
    """Small operands on the host, and numbers."""
    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randint(-3, 4, (rows_, K), generator=generator).to(dtype) for rows_ in (M, N))
    return x, w, torch.rand(M, generator=generator), torch.rand(N, generator=generator)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_is_what_its_error_compares_with(dtype: torch.dtype) -> None:
    """And a product with one number wrong is no such row."""
    one, inputs = row("F", (M, N, K), dtype), given(dtype)
    (made,) = evaluate(one.fusion(), list(inputs))
    assert isinstance(made.value, torch.Tensor)
    assert made.dtype is DType.BF16
    assert one.error(inputs, (made.value,)) <= 0.01
    wrong = made.value.clone()
    wrong[3, 5] += wrong.abs().max()
    assert one.error(inputs, (wrong,)) > one.tolerance


def test_torch_multiplies_the_same_integers() -> None:
    """Its product of 8-bit floats is not on the host."""
    one, inputs = row("F", (M, N, K), torch.int8), given(torch.int8)
    assert one.error(inputs, together(one.form(*inputs))) <= 0.01


def test_rows_say_what_they_are() -> None:
    """Operations of 8 bits count half, and bytes once."""
    one = row("F", (M, N, K), torch.int8)
    assert one.says == f"{M} x {N} x {K}, i8"
    assert (one.flops, one.nbytes) == (M * N * K, (M + N) * K + 2 * M * N + 4 * (M + N))
    assert {each.name for each in rows()} == {f"F{n}" for n in range(1, 7)}
    outs = (torch.empty(M, N),)
    floats = row("F", (M, N, K), torch.float8_e4m3fn, alone=True)
    assert [*floats.peers(outs, compiled=True)] == ["torch", "torch, f32 sums"]
    assert [*row("F", (M, N, K), torch.int8, alone=True).peers(outs, compiled=True)] == ["torch"]


def test_both_types_are_drawn_in_shapes_that_torch_takes() -> None:
    """Whole chunks of 16; of integers more than 16 rows."""
    drawn = [one for one in shapes.rows(20, 3) if isinstance(one, Scaled)]
    assert len(drawn) == 20
    assert {one.dtype for one in drawn} == {*TYPES}
    for one in drawn:
        m, n, k = one.shape
        assert (n % 16, k % 16) == (0, 0)
        assert m > 16 or one.dtype is not torch.int8
    assert all(promising(one, 3) for one in drawn[:3])
