"""Reductions in registers are refused where no thread or warp has what they put together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from oracles.prover.coverage.outputs import covered

ROWS = kir.Layout((8, 64), 2, 64)
STRIPS = kir.Layout((64, 16), 2, 128, kir.Deal.STRIPS)
X = kir.Tensor("X", DType.F32, (64, 64), (64, 1), 4)


def kernel(src: kir.Layout, dst: kir.Layout, op: str = "add", **how: object) -> kir.Kernel:
    """Load, reduce and store."""
    one = kir.Fragment("one", DType.F32, src)
    two = kir.Fragment("two", how.get("dtype", DType.F32), dst)  # type: ignore[arg-type]
    y = kir.Tensor("Y", DType.F32, dst.shape, (dst.shape[-1], 1), 1)
    reduce: kir.Stmt = kir.Reduce(two, one, op)
    if how.get("elected"):
        reduce = kir.Elect(kir.Per.ROLE, (reduce,))
    body = (
        kir.Load(one, kir.Box(X, (0, 0), src.shape, (64, 64)), 1),
        reduce,
        kir.Store(kir.Box(y, (0, 0), dst.shape, dst.shape), two, 1),
    )
    threads = max(src.threads, 32)
    return kir.Kernel("k", (), (X, y), (), (), (), threads, body, ("Y",))


def folded(layout: kir.Layout, by: int) -> kir.Layout:
    """Neighbours along rows put together."""
    shape = (layout.shape[0], layout.shape[1] // by)
    return replace(layout, shape=shape, folded=by)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (ROWS, folded(ROWS, 64)),
        (ROWS, folded(ROWS, 16)),
        (ROWS, folded(ROWS, 2)),
        (replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 32)),
        (STRIPS, folded(STRIPS, 16)),
        (kir.Layout((8, 64), 1, 64), kir.Layout((1, 64), 1, 64)),
        (kir.Layout((8, 64), 2, 32), kir.Layout((1, 64), 2, 32)),
    ],
)
def test_what_a_warp_or_a_thread_holds_can_be_put_together(
    src: kir.Layout, dst: kir.Layout
) -> None:
    """Along rows by lanes, down columns by each thread; the judge of coverage thinks so too."""
    made = kernel(src, dst)
    validate(made, after="kernel", final=True)
    assert not [f for f in covered(made, rlimit=500_000).findings if "hands" in f.witness]


MISTAKES: dict[str, tuple[str, kir.Kernel]] = {
    "a row of two warps": (
        "64 neighbours lie in 64 lanes; a warp puts a power of two of them together, at most 32",
        kernel(replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 64)),
    ),
    "three lanes": (
        "6 neighbours lie in 3 lanes",
        kernel(kir.Layout((8, 48), 2, 64), kir.Layout((8, 8), 2, 64, folded=6)),
    ),
    "half a vector": (
        "3 neighbours are no whole vectors of 2; fold along rows of vectors",
        kernel(kir.Layout((8, 48), 2, 64), kir.Layout((8, 16), 2, 64, folded=3)),
    ),
    "half a row of strips": (
        "strips are folded by whole rows, not by 8 of them",
        kernel(STRIPS, folded(STRIPS, 8)),
    ),
    "another layout": (
        r"two is a fold of \(8, 64\) by 2 and 64 threads, one is \(8, 64\) by 1 and 64; fold the",
        kernel(replace(ROWS, vector=1), folded(ROWS, 16)),
    ),
    "columns of several threads": (
        "rows of 48 by 1 and 32 threads: a thread holds no whole columns; use rows of "
        "multiples of 32",
        kernel(kir.Layout((8, 48), 1, 32), kir.Layout((1, 48), 1, 32)),
    ),
    "two rows": (
        "is neither a fold of .* nor one row of it; use either",
        kernel(kir.Layout((8, 64), 1, 64), kir.Layout((2, 64), 1, 64)),
    ),
    "a fold again": (
        "one is folded already; reduce the fragment it is from",
        kernel(folded(ROWS, 2), folded(ROWS, 4)),
    ),
    "types": (
        "f32 into f16; make them the same",
        kernel(ROWS, folded(ROWS, 64), dtype=DType.F16),
    ),
    "operation": (
        "sub is no way to put two together; use add, maximum, minimum",
        kernel(ROWS, folded(ROWS, 64), "sub"),
    ),
    "one thread": (
        "stands inside an elect; whole warps must reach it: move it out of the elect",
        kernel(ROWS, folded(ROWS, 64), elected=True),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_a_way_out(name: str) -> None:
    """In the documented form."""
    says, made = MISTAKES[name]
    with pytest.raises(ScheduleError, match=f"^after kernel: `.*{says}"):
        validate(made, after="kernel", final=True)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 64)),
        (STRIPS, folded(STRIPS, 8)),
        (kir.Layout((8, 48), 1, 32), kir.Layout((1, 48), 1, 32)),
        (replace(ROWS, vector=1), folded(ROWS, 16)),
    ],
)
def test_the_judge_of_coverage_refuses_it_as_well(src: kir.Layout, dst: kir.Layout) -> None:
    """It does not rely on validation."""
    assert any("hands" in f.witness for f in covered(kernel(src, dst), rlimit=500_000).findings)
