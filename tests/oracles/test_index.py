"""Boxes that begin where memory says: every judge's reading, and what breaks what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser.codegen import cuda
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.runtime import nvrtc
from oracles.explorer.explore import explore
from oracles.prover.prove import prove
from oracles.simulator import simulate
from oracles.verdict import Status

N = Var("n")
W = kir.Tensor("W", DType.F32, (5, 4, 32), (128, 32, 1), 4)
I = kir.Tensor("I", DType.I32, (N,), (1,), 1)  # noqa: E741 - the tensor of indices
Y = kir.Tensor("Y", DType.F32, (N, 4, 32), (128, 32, 1), 4)
S = kir.Buffer("S", DType.F32, (1, 4, 32), 1, 0)
FULL = kir.MBarrier("full", 1, 1)
TILE = kir.Fragment("tile", DType.F32, kir.Layout((1, 4, 32), 4, 32))
PLACE = kir.Index(0, kir.Box(I, (kir.BLOCK,), (1,), (N,)))
BOX = kir.Box(W, (0, 0, 0), (1, 4, 32), W.extents, PLACE)
LAUNCH = simulate.Launch(3, {"n": 3})


def kernel(
    box: kir.Box = BOX, *first: kir.Stmt, dependent: bool = False, early: tuple[str, ...] = ()
) -> kir.Kernel:
    """The matrix of W that I names for a CTA, in Y; `first` stands in front of all else."""
    load = kir.TmaLoad(kir.Slot(S, 0), box, FULL, 0)
    body: tuple[kir.Stmt, ...] = (
        *first,
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(FULL), kir.FenceMBarrierInit())),
        kir.BlockSync(0, 32),
        kir.Elect(kir.Per.ROLE, (kir.MBarrierArriveExpectTx(FULL, 0, S.slot_nbytes), load)),
        kir.MBarrierWaitParity(FULL, 0, 0),
        kir.Load(TILE, kir.Slot(S, 0), 4),
        *(() if first or not dependent else (kir.GridDependencyWait(),)),
        kir.Store(kir.Box(Y, (kir.BLOCK, 0, 0), (1, 4, 32), (N, 4, 32)), TILE, 4),
    )
    made = kir.Kernel("k", (N,), (W, I, Y), (), (S,), (FULL,), 32, body, ("Y",))
    return replace(made, requires=(eq(kir.GRID, N),), dependent=dependent, early=early)


def test_the_right_kernel_passes_everywhere() -> None:
    """And it is compiled, by one line that names the place."""
    made = kernel()
    validate(made, after="kernel", final=True)
    assert "tma_load(W[I[blockIdx+1]+1, 0+4, 0+32])" in text(made)
    assert prove(made).status is Status.PASS
    assert explore(made).status is Status.PASS
    assert simulate.search(made, LAUNCH, schedules=4).status is Status.PASS
    source = cuda.source(made)
    assert "0, 0, tma::place(I + int64(blockIdx_) * 1, blockIdx_ < n, 5));" in source
    assert nvrtc.compile_cubin(source).image


def test_a_place_that_is_none_is_all_zeros() -> None:
    """Before and behind the tensor; the others are where the index says."""
    arrays = {
        "W": np.arange(1, 641, dtype=np.float32).reshape(5, 4, 32),
        "I": np.array([4, -1, 5], np.int32),
        "Y": np.full((3, 4, 32), np.nan, np.float32),
    }
    want = np.stack([arrays["W"][4], np.zeros((4, 32)), np.zeros((4, 32))])
    assert simulate.simulate(kernel(), LAUNCH, arrays, {}).status is Status.PASS
    np.testing.assert_array_equal(arrays["Y"], want)


def told(**changes: Any) -> kir.Box:
    """The box, with another index."""
    return replace(BOX, index=replace(PLACE, **changes))


def read(**changes: Any) -> kir.Box:
    """The box, with an index that is read otherwise."""
    return told(src=replace(PLACE.src, **changes))


FLOATS, MINE = replace(I, dtype=DType.F32), kir.Tensor("Y", DType.I32, (N,), (1,), 1)
WRONG: dict[str, tuple[str, kir.Box]] = {
    "an axis of several": (r"origin 0 and shape 4 of W along the axis of its", told(axis=1)),
    "no axis": (r"TmaLoad: 3 axes of W, an index of axis 3; name one", told(axis=3)),
    "a place of its own": (
        r"origin 1 and shape 1 of W along the axis of its index; make them 0 and 1",
        replace(BOX, origin=(1, 0, 0)),
    ),
    "two integers": (r"an index is one integer, not \(2,\) of I", read(shape=(2,))),
    "a float": (r"an index is one integer, not \(1,\) of I, f32", read(tensor=FLOATS)),
    "another tensor": (
        r"uses a tensor that the kernel does not declare; add J",
        read(tensor=replace(I, name="J")),
    ),
    "an index of an index": (r"I is itself read by an index", read(index=PLACE)),
    "ranks": (r"I: origin, shape, limit and extents differ in rank", read(origin=(0, 0))),
    "unknown": (r"uses m, which nothing defines", read(origin=(Var("m"),))),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_refused(name: str) -> None:
    """In the documented form."""
    says, box = WRONG[name]
    made = kernel(box)
    if box.index is not None and box.index.src.tensor == FLOATS:
        made = replace(made, tensors=(W, FLOATS, Y))
    with pytest.raises(ScheduleError, match=says):
        validate(made, after="kernel", final=True)


def test_only_loads_by_tensor_maps_are_told() -> None:
    """Not threads, nor copies without a map, nor what is written."""
    frag = kir.Fragment("t", DType.F32, kir.Layout((1, 4, 32), 4, 32))
    for stmt in (kir.Load(frag, BOX, 4), kir.TmaStore(replace(BOX, tensor=Y), kir.Slot(S, 0))):
        made = kernel()
        with pytest.raises(ScheduleError, match="only loads by tensor maps of the launch"):
            validate(replace(made, body=(*made.body, stmt)), after="kernel", final=True)
    box = replace(BOX, limit=(1, 4, 32))
    made = kernel()
    bulk = kir.TmaLoad(kir.Slot(S, 0), box, FULL, 0, bulk=True)
    with pytest.raises(ScheduleError, match="only loads by tensor maps of the launch"):
        validate(
            replace(made, body=(*made.body, kir.Elect(kir.Per.ROLE, (bulk,)))),
            after="kernel",
            final=True,
        )


def test_an_index_that_may_be_written_is_no_index() -> None:
    """Nobody says that all is well with one that the kernel writes."""
    for name in ("I", "W"):
        made = replace(kernel(), workspaces=(name,))
        says = f"the kernel may write {name}; an index, and what it tells of, are only read"
        with pytest.raises(ScheduleError, match=says):
            validate(made, after="kernel", final=True)
        assert prove(made).status is not Status.PASS
        assert explore(made).status is not Status.PASS
        assert simulate.search(made, LAUNCH, schedules=2).status is Status.FAIL


def test_an_index_is_read_inside_its_tensor() -> None:
    """Places behind its limit are not read, those before the tensor, or behind it, are wrong."""
    behind = kernel(read(origin=(kir.BLOCK + 1,)))
    assert prove(behind).status is Status.PASS
    assert simulate.search(behind, LAUNCH, schedules=2).status is Status.PASS
    for origin, limit in ((kir.BLOCK - 1, N), (kir.BLOCK + 1, N + 1)):
        made = kernel(read(origin=(origin,), limit=(limit,)))
        assert prove(made).status is not Status.PASS
        assert explore(made).status is Status.FAIL
        assert simulate.search(made, LAUNCH, schedules=2).status is Status.FAIL


def test_an_index_is_read_behind_the_launches_before() -> None:
    """Unless nobody there writes it; and what it tells of, too."""
    wait = (kir.GridDependencyWait(),)
    assert prove(kernel(BOX, *wait, dependent=True)).status is Status.PASS
    assert explore(kernel(BOX, *wait, dependent=True)).status is Status.PASS
    for early, right in ((("I", "W"), True), (("I",), False), (("W",), False)):
        made = kernel(dependent=True, early=early)
        assert prove(made).status is (Status.PASS if right else Status.FAIL), early
        assert explore(made).status is (Status.PASS if right else Status.FAIL), early
        found = simulate.search(made, LAUNCH, schedules=4).status
        assert found is (Status.PASS if right else Status.FAIL), early
