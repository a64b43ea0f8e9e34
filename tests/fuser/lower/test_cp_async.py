"""Pointwise kernels and reductions whose inputs each thread copies by cp.async."""

from dataclasses import replace

import judged
import pytest

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, specs

GROUPS = PointwiseParams((1, 256), 8, 1, 2, "cp_async", "direct", 3, 2)
AT_ONCE = PointwiseParams((4, 64), 8, 1, None, "cp_async", "tma", 1, 0)
ROLES = PointwiseParams((1, 256), 8, 2, 1, "cp_async", "direct", 3, warp_specialized=True)
TURNS = PointwiseParams((32, 32), 8, 1, 1, "cp_async", "direct", 2, 1, transpose=True)


def sums(dtype: str = "bf16") -> Fusion:
    """Return `x + y.T`."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype) for _ in range(2))
        fd.add_output(fd.ops.add(x, fd.ops.permute(y, [1, 0])))
    return fd.fusion()


def rows(dtype: str = "bf16", *, reduced: bool = False) -> Fusion:
    """Return `x * y`, a row each, or its sums along rows."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(["R", "C"], dtype), fd.define_tensor(["C"], dtype)
        wide = fd.ops.mul(x, fd.ops.broadcast(y, [True, False]))
        fd.add_output(fd.ops.sum(wide, [1]) if reduced else wide)
    return fd.fusion()


def kernel(fusion: Fusion, params: PointwiseParams, *sizes: int) -> kir.Kernel:
    """Return the finished kernel for these extents."""
    names = ("R", "C") if "R" in str(fusion) else ("i0", "i1")
    given = specs(Case(fusion, params, dict(zip(names, sizes, strict=True)), "integers", 0))
    (launch,) = build(fusion, params, classify(fusion, params, given)).launches
    return launch.kernel


@pytest.mark.parametrize("params", [GROUPS, AT_ONCE, ROLES], ids=["groups", "at once", "roles"])
@pytest.mark.parametrize("reduced", [False, True], ids=["pointwise", "reduction"])
@pytest.mark.parametrize("sizes", [(5, 296), (9, 1032), (1, 8), (0, 8)])
def test_values_and_syncs(
    params: PointwiseParams, sizes: tuple[int, int], *, reduced: bool
) -> None:
    """Tails of rows, several tiles a CTA, and none."""
    extents = {"R": sizes[0], "C": sizes[1]}
    records = judged.records(Case(rows(reduced=reduced), params, extents, "integers", seed=1))
    assert {record.status for record in records} == {"pass"}


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_tiles_are_transposed(dtype: str) -> None:
    """Copied in the order of memory, read in another: threads join in between."""
    records = judged.records(Case(sums(dtype), TURNS, {"i0": 48, "i1": 80}, "integers", seed=1))
    assert {record.status for record in records} == {"pass"}


def joins(made: kir.Kernel) -> int:
    """Count the barriers of all threads."""
    return sum(isinstance(stmt, kir.BlockSync) for stmt in made.walk())


def test_threads_join_only_for_what_others_have_copied() -> None:
    """A thread that reads what it has copied itself waits for its own groups."""
    assert joins(kernel(rows(), GROUPS, 5, 296)) == 0
    assert joins(kernel(sums(), TURNS, 48, 80)) > 0


def test_a_load_role_is_observed_by_barriers() -> None:
    """Each of its threads arrives when its copies have landed; there are no groups then."""
    made = kernel(rows(), ROLES, 5, 296)
    every = {type(stmt) for stmt in made.walk()}
    assert {kir.CpAsyncMBarrierArrive, kir.MBarrierWaitParity} <= every
    assert kir.AsyncCommit not in every


@pytest.mark.parametrize("columns", [293, 297])
def test_rows_of_odd_bytes_are_refused(columns: int) -> None:
    """cp.async copies 4 bytes or more."""
    with pytest.raises(ScheduleError, match=r"cp\.async copies 4, 8 or 16 bytes.*use load="):
        kernel(rows(), replace(GROUPS, tile=(4, 64)), 5, columns)
