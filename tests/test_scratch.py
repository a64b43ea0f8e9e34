"""What a launch needs beside its tensors: as much as the kernel says, zero where it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from product_kernels import PIPELINED, gated, kernel

from fuser import kernel_ir as kir
from fuser.expr import Expr, Var
from fuser.scratch import Scratch, counts, elements, number, scratch

CPU = torch.device("cpu")
SPLIT = kernel(replace(PIPELINED, splits=4), gated())


def values(m: int, n: int) -> dict[Var, Expr]:
    """Values of the extents of `SPLIT`, whose tiles are 64 x 32."""
    return {Var("n0"): m, Var("n1"): n, Var("n2"): 256}


@pytest.mark.parametrize(("m", "n", "tiles"), [(1, 1, 1), (64, 32, 1), (65, 32, 2), (200, 72, 12)])
def test_there_is_a_semaphore_and_a_workspace_for_every_tile(m: int, n: int, tiles: int) -> None:
    """Whole tiles of f32 for both products, and one ticket."""
    made = scratch(SPLIT, values(m, n), CPU)
    assert made.counters == {"turns": tiles, "ticket": 1}
    assert made.workspaces == {"W_acc": tiles * 64 * 32 * 4, "W_acc1": tiles * 64 * 32 * 4}


def test_other_kernels_need_nothing() -> None:
    """Neither counters nor workspaces."""
    made = scratch(kernel(PIPELINED), values(64, 32), CPU)
    assert (made.counters, made.workspaces) == ({}, {})


def test_elements_reach_to_the_last_one() -> None:
    """Gaps count, what lies behind the last element does not; nothing has none."""
    tensor = kir.Tensor("T", SPLIT.tensors[0].dtype, (Var("a"), 3), (Var("s"), 1), 1)
    assert elements(tensor, {Var("a"): 4, Var("s"): 10}) == 33
    assert elements(tensor, {Var("a"): 0, Var("s"): 10}) == 0
    assert number(Var("a") * 2 + 1, {Var("a"): 4}) == 9


def test_a_semaphore_has_at_least_one_integer() -> None:
    """An empty launch has an address to give, too."""
    assert counts(SPLIT, values(0, 32)) == {"turns": 1, "ticket": 1}


def test_each_stream_has_counters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for every launch on it; zeros, which a kernel leaves behind; new ones on demand."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    made = Scratch({"W": 64}, {"turns": 3}, CPU)
    first, again, other = made.lend(1), made.lend(1), made.lend(2)
    assert first["turns"] is again["turns"]
    assert first["turns"] is not other["turns"]
    assert first["W"] is not again["W"]
    assert first["W"].nbytes == 64
    assert first["turns"].tolist() == [0, 0, 0]
    first["turns"][0] = 2  # as a launch that did not end would
    made.forget(1)
    assert made.lend(1)["turns"].tolist() == [0, 0, 0]
    assert made.lend(2)["turns"] is other["turns"]


def test_a_graph_has_counters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured may be replayed when another stream is at work."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    made = Scratch({}, {"turns": 1}, CPU)
    assert made.lend(1)["turns"] is not made.lend(1)["turns"]
