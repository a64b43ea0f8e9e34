"""What a launch needs beside its tensors: as much as the kernel says, zero where it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from cuda.bindings import driver
from product_kernels import PIPELINED, gated, kernel, linear

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.runtime import scratch as memory
from fuser.runtime.call import number
from fuser.runtime.executable import Executable
from fuser.runtime.scratch import ALIGNED, FEWEST, Scratch, counts, elements, scratch

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


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Say which capture streams are in; nothing is left of other tests."""
    number = [0]
    monkeypatch.setattr(memory, "_zeroed", {})
    monkeypatch.setattr(memory, "_captures", {})
    monkeypatch.setattr(memory, "_capture", lambda stream: number[0])
    return lambda n: number.__setitem__(0, n)


def address(lent: dict[str, torch.Tensor]) -> int:
    """Where the turns of a launch lie."""
    return lent["turns"].data_ptr()


def test_each_stream_has_counters_of_its_own(capture: Callable[[int], None]) -> None:
    """The same for every launch on it; zeros, which a kernel leaves behind; new ones on demand."""
    capture(0)
    made = Scratch({"W": 64}, {"turns": 3}, CPU)
    first, again = made.lend(1), made.lend(1)
    assert first["turns"] is again["turns"]
    assert first["W"] is not again["W"]
    assert first["W"].nbytes == 64
    assert first["turns"].tolist() == [0, 0, 0]
    other = made.lend(2)
    assert address(first) != address(other)
    first["turns"][0] = 2  # as a launch that did not end would
    with pytest.warns(RuntimeWarning, match="did not run on stream 0x1; the next one begins with"):
        made.forget(1)
    assert made.lend(1)["turns"].tolist() == [0, 0, 0]
    assert address(made.lend(2)) == address(other)


def test_all_kernels_share_what_a_stream_has(capture: Callable[[int], None]) -> None:
    """Each leaves zeros behind; more are made where one needs more."""
    capture(0)
    few, many = Scratch({}, {"turns": 3, "ticket": 1}, CPU), Scratch({}, {"turns": FEWEST + 1}, CPU)
    lent = few.lend(1)
    assert lent["ticket"].data_ptr() - address(lent) == 4 * ALIGNED
    assert address(Scratch({}, {"turns": 9}, CPU).lend(1)) == address(lent)
    assert address(many.lend(1)) != address(lent)
    assert address(few.lend(1)) == address(many.lend(1))


def test_a_graph_has_counters_of_its_own(capture: Callable[[int], None]) -> None:
    """What is captured may be replayed when another stream is at work: once for each stream."""
    made = Scratch({}, {"turns": 1}, CPU)
    capture(0)
    eager = made.lend(1)
    capture(7)
    first, again = made.lend(1), made.lend(1)
    assert address(first) == address(again)
    assert len({address(eager), address(first), address(made.lend(2))}) == 3
    capture(8)
    assert address(made.lend(1)) != address(first)
    capture(0)
    assert address(made.lend(1)) == address(eager)


@pytest.mark.gpu
def test_a_graph_is_zeroed_once_for_all_its_launches() -> None:
    """Ten launches and one fill: a fill for each took longer than some of the kernels."""
    shapes = ((64, 4096), (32, 4096), (32,))
    given = [torch.randn(*shape, device="cuda").to(torch.bfloat16) for shape in shapes]
    run = Executable(linear(), replace(PIPELINED, splits=4))
    (expected,) = run(*given)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        outs = [run(*given)[0] for _ in range(10)]
    error, nodes, _ = driver.cuGraphGetNodes(driver.CUgraph(graph.raw_cuda_graph()), 64)
    assert error == driver.CUresult.CUDA_SUCCESS
    assert sum(int(node) != 0 for node in nodes) == 11
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(out, expected) for out in outs)
