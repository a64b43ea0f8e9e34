"""What a launch needs beside its tensors: as much as the kernel says, zero where it must be."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from cuda.bindings import driver
from product_kernels import PIPELINED, gated, kernel, linear
from stand_in import on_the_host

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.runtime import scratch as memory
from fuser.runtime import torch_calls
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
    monkeypatch.setattr(torch_calls, "empty", on_the_host)
    return lambda n: number.__setitem__(0, n)


class Words:
    """What launches of a kernel find written, launch by launch."""

    def __init__(self, made: Scratch) -> None:
        self._made = made
        self._words = {name: ctypes.c_uint64() for name in (*made.workspaces, *made.counters)}

    def lend(self, stream: int) -> dict[str, int]:
        """Addresses of a launch on a stream; its workspaces are kept."""
        self.workspaces = self._made.lend(self._words, stream)
        return {name: word.value for name, word in self._words.items()}


def integers(address: int, many: int) -> list[int]:
    """What lies at an address."""
    return list((ctypes.c_int32 * many).from_address(address))


def test_each_stream_has_counters_of_its_own(capture: Callable[[int], None]) -> None:
    """The same for every launch on it; zeros, which a kernel leaves behind; new ones on demand."""
    capture(0)
    made = Scratch({"W": 64}, {"turns": 3}, CPU)
    words = Words(made)
    first, kept, again = words.lend(1), words.workspaces, words.lend(1)
    assert first["turns"] == again["turns"]
    assert first["W"] != again["W"]
    assert [one.nbytes for one in kept] == [64]
    assert integers(first["turns"], 3) == [0, 0, 0]
    other = words.lend(2)
    assert first["turns"] != other["turns"]
    ctypes.c_int32.from_address(first["turns"]).value = 2  # as a launch that did not end would
    with pytest.warns(RuntimeWarning, match="did not run on stream 0x1; the next one begins with"):
        made.forget(1)
    assert integers(words.lend(1)["turns"], 3) == [0, 0, 0]
    assert words.lend(2)["turns"] == other["turns"]


def test_all_kernels_share_what_a_stream_has(capture: Callable[[int], None]) -> None:
    """Each leaves zeros behind; more are made where one needs more."""
    capture(0)
    few, other, many = (
        Words(Scratch({}, counters, CPU))
        for counters in ({"turns": 3, "ticket": 1}, {"turns": 9}, {"turns": FEWEST + 1})
    )
    lent = few.lend(1)
    assert lent["ticket"] - lent["turns"] == 4 * ALIGNED
    assert other.lend(1)["turns"] == lent["turns"]
    assert many.lend(1)["turns"] != lent["turns"]
    assert few.lend(1)["turns"] == many.lend(1)["turns"]


def test_a_graph_has_counters_of_its_own(capture: Callable[[int], None]) -> None:
    """What is captured may be replayed when another stream is at work: once for each stream."""
    words = Words(Scratch({}, {"turns": 1}, CPU))

    def turns(stream: int) -> int:
        return words.lend(stream)["turns"]

    capture(0)
    eager = turns(1)
    capture(7)
    first, again = turns(1), turns(1)
    assert first == again
    assert len({eager, first, turns(2)}) == 3
    kept = [*memory._zeroed.values()]  # as a graph keeps what it was captured with
    capture(8)
    assert turns(1) != first
    del kept
    capture(0)
    assert turns(1) == eager


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
