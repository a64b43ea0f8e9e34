"""Which elements a thread, a warp or a warpgroup touches."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.simulator.memory.tile import columns_of, left_operand, tile

K_STEP, ROWS = 16, 256


@pytest.mark.parametrize("front", [(), (1,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("turned", [True, False])
def test_a_warpgroup_reads_its_own_rows_or_columns(turned: bool, front: tuple[int, ...]) -> None:
    """Sixty-four in turn: of two warpgroups the first has the first and the third band."""
    shape = (*front, K_STEP, ROWS) if turned else (*front, ROWS, K_STEP)
    buffer = kir.Buffer("S", DType.BF16, shape, 1, 0)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((*front, ROWS, 8), 2, 256, kir.Deal.STRIPS))
    stmt = kir.Wgmma(acc, kir.Slot(buffer, 0), kir.Slot(buffer, 0), a_transposed=turned)
    bands = np.repeat(np.arange(ROWS // 64) % 2, 64)
    for group in (0, 1):
        found = np.zeros(shape, np.bool_).ravel()
        found[tile(left_operand(stmt, buffer), (group, group + 1)).elements] = True
        lines = found.reshape(shape[-2:]).T if turned else found.reshape(shape[-2:])
        expected = np.repeat((bands == group)[:, None], K_STEP, 1)
        np.testing.assert_array_equal(lines, expected)


def test_an_axis_of_extent_one_changes_no_holder() -> None:
    """Strips and operands of each warp, with and without a batch."""
    for deal in (kir.Deal.STRIPS, kir.Deal.EACH_WARP):
        for threads in ((0, 1), (33, 64)):
            plain = tile(kir.Layout((32, 16), 2, 64, deal), threads)
            batch = tile(kir.Layout((1, 32, 16), 2, 64, deal), threads)
            np.testing.assert_array_equal(plain.elements, batch.elements)


@pytest.mark.parametrize("column", [0, 8, 24])
def test_columns_stand_where_the_whole_has_them(column: int) -> None:
    """A register of the slice is the register of the same element."""
    whole = kir.Layout((64, 32), 2, 128, kir.Deal.STRIPS)
    part = kir.Layout((64, 8), 2, 128, kir.Deal.STRIPS)
    for threads in ((0, 1), (1, 32), (97, 128)):
        at = columns_of(whole, part, column, threads)
        rows, columns = tile(part, threads).coordinates
        np.testing.assert_array_equal(
            tile(whole, threads).elements[at], rows * 32 + columns + column
        )
    elsewhere = kir.Layout((64, 8), 1, 128)
    assert (columns_of(whole, elsewhere, 0, (1, 32)) < 0).any()
