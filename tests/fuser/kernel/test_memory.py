"""Who holds what of a tile, and of a row of it, a column, or runs of neighbours in its vectors."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from fuser.codegen.tile import _element
from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.prover.coverage.outputs import _spread
from oracles.simulator.memory.tile import taken_from

WHOLE = kir.Layout((4, 64), 8, 16, kir.Deal.ROWS, across=8)
ONE_ROW = replace(WHOLE, shape=(1, 128), across=16)
ALIKE = replace(WHOLE, shape=(4, 32), vector=4, alike=2)
RUNS = {
    (whole, run): replace(
        whole, shape=(1, whole.shape[1] // run), vector=whole.vector // run
    )
    for whole, run in product((WHOLE, ONE_ROW, ALIKE), (1, 2, 4))
} | {(WHOLE, 8): replace(WHOLE, shape=(1, 8), vector=1)}  # fmt: skip


def held(layout: kir.Layout, thread: int) -> list[tuple[int, int]]:
    """The elements of a thread's registers in `Deal.ROWS`, in order, by the words of `Layout`."""
    rows, cols = layout.shape
    groups, mine = layout.threads // layout.across, thread % layout.across // layout.alike
    out: dict[int, tuple[int, int]] = {}
    for r, c in product(range(rows), range(cols)):
        v = c // layout.vector
        if (rows > 1 and r % groups != thread // layout.across) or v % layout.holders != mine:
            continue
        at = (r // groups if rows > 1 else 0) * (cols // layout.vector) + v
        out[at // layout.holders * layout.vector + c % layout.vector] = (r, c)
    return [out[n] for n in range(layout.registers)]


def has(whole: kir.Layout, part: kir.Layout) -> bool:
    """Whether every thread has what a part says of what it has of a tile."""
    return all(
        {wanted(whole, part, at) for at in held(whole, thread)} <= {*held(part, thread)}
        for thread in range(whole.threads)
    )


def wanted(whole: kir.Layout, part: kir.Layout, at: tuple[int, int]) -> tuple[int, int]:
    """The element of a part that belongs to one of a tile."""
    row = 0 if part.shape[0] == 1 else at[0]
    return row, at[1] * part.shape[1] // whole.shape[1]


@pytest.mark.parametrize(("whole", "run"), [*RUNS])
def test_a_vector_has_an_element_for_each_run(whole: kir.Layout, run: int) -> None:
    """The compiler, both judges and the text that is printed say so alike."""
    part = RUNS[whole, run]
    assert whole.spreads(part)
    assert has(whole, part)
    assert _claimed(whole, part)
    for thread in range(whole.threads):
        at = taken_from(whole, part, (thread, thread + 1))
        assert at is not None
        for i, element in enumerate(held(whole, thread)):
            register = eval(_element(part, whole).replace("/", "//"), {"i": i})
            assert held(part, thread)[register] == wanted(whole, part, element)


def test_who_lacks_an_element_is_told() -> None:
    """Nothing that the compiler or a judge takes for held is not."""
    seen = 0
    for whole, vector, cols, alike, rows in product(
        (WHOLE, ONE_ROW, ALIKE), (1, 2, 4), (1, 2, 4, 8, 16, 32), (1, 2, 8), (1, 4, 2)
    ):
        part = replace(whole, shape=(rows, cols), vector=vector, alike=alike)
        if (
            whole.across % alike
            or cols % (part.holders * vector)
            or rows not in (1, whole.shape[0])
        ):
            continue
        seen += 1
        right = has(whole, part) and prod(part.shape) > 0
        assert right or not whole.spreads(part), part
        assert right or not _claimed(whole, part), part
        assert right or taken_from(whole, part, (0, whole.threads)) is None, part
    assert seen > 20


def _claimed(whole: kir.Layout, part: kir.Layout) -> bool:
    """Whether the prover finds that threads hold a part."""
    return not _spread(kir.Fragment("x", DType.F32, whole), kir.Fragment("p", DType.F32, part))[1]
