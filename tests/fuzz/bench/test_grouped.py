"""Rows of grouped products: what is timed beside what, on small shapes of the host."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fuzz.bench import sweep
from fuzz.bench.matmul import grouped
from fuzz.bench.matmul.grouped import COMPARED, Grouped
from fuzz.bench.row import Tensors, kept, together
from oracles.reference.evaluate import evaluate

SHAPE = (3 * COMPARED, 8, 5, 24, 64)
ROWS = [grouped.row("Y", SHAPE, turned=turned) for turned in (False, True)]
_SIDES = ["along K", "by rows"]


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers in memory of the host."""
    monkeypatch.setattr(torch, "rand", partial(_on_cpu, torch.Generator().manual_seed(3)))


def _on_cpu(generator: torch.Generator, *shape: int, device: str) -> torch.Tensor:
    assert device == "cuda"
    return torch.empty(shape).uniform_(generator=generator)


@pytest.mark.parametrize("row", ROWS, ids=_SIDES)
def test_all_compute_the_same(row: Grouped) -> None:
    """Peers by torch, the form on which errors are measured, and the fusion by the reference."""
    given = row.inputs()
    (made,) = evaluate(row.fusion(), list(given))
    outs = together(row.form(*given))
    peers = row.peers(outs, compiled=False)
    assert "torch" in peers
    assert ("torch, bmm" in peers) == hasattr(torch, "_grouped_mm")
    for out in (made.value, *(peer(*given) for peer in peers.values())):
        assert isinstance(out, torch.Tensor)
        assert out.shape == (SHAPE[0], SHAPE[1], SHAPE[3])
        assert row.error(given, (out,)) <= row.tolerance
    assert [*replace(row, alone=True).peers(outs, compiled=True)] == ["torch"]


@pytest.mark.parametrize("row", ROWS, ids=_SIDES)
def test_a_wrong_matrix_is_an_error(row: Grouped) -> None:
    """Of any matrix: blocks all over are compared, not those of the first one alone."""
    x, w, groups = row.inputs()
    for number in set(row.numbers):
        wrong = torch.where(groups == number, (groups + 1) % SHAPE[2], groups)
        assert row.error((x, w, groups), together(row.form(x, w, wrong))) > 10 * row.tolerance


def test_numbers_are_sorted_and_those_of_all_sets() -> None:
    """Sets that are rotated differ in what they hold, and cost the same."""
    (row, _), many = ROWS, SHAPE[2]
    (x, w, groups), (other, *_, again) = row.inputs(), row.inputs()
    assert groups.dtype is torch.int32
    assert torch.equal(groups, again)
    assert not torch.equal(x, other)
    assert groups.tolist() == sorted(groups.tolist()) == row.numbers
    assert {*row.numbers} <= {*range(many)}
    assert w.shape[0] == many


@pytest.mark.parametrize("row", ROWS, ids=_SIDES)
@pytest.mark.parametrize("blocks", [2, SHAPE[0]])
def test_matrices_that_no_block_names_are_not_read(row: Grouped, blocks: int) -> None:
    """Each tensor counts once, whichever part of it is needed."""
    row = replace(row, shape=(blocks, *SHAPE[1:]))
    given = row.inputs()
    assert row.nbytes == _nbytes(given, together(row.form(*given)))
    assert row.flops == 2 * blocks * SHAPE[1] * SHAPE[3] * SHAPE[4]


def _nbytes(given: Tensors, outs: Tensors) -> int:
    x, w, groups = given
    read = (x, w[groups.unique()], groups, *outs)
    return sum(one.numel() * one.element_size() for one in read)


@pytest.mark.parametrize("row", grouped.rows(), ids=lambda row: row.name)
def test_schedules_worth_trying_can_be_had(row: Grouped) -> None:
    """A candidate that is refused would be seen on the device only."""
    for name, params in row.candidates().items():
        assert sweep.built(row, params).launches, name


def test_what_is_made_of_a_tensor_is_made_once() -> None:
    """Outside of what is timed; of another tensor anew."""
    many = list[int]()

    def make(of: torch.Tensor, more: int) -> int:
        many.append(more)
        return int(of.sum()) + more

    made, x, y = kept(make), torch.ones(3), torch.ones(4)
    assert [made(x, 1), made(y, 1), made(x, 1)] == [4, 5, 4]
    assert many == [1, 1]
