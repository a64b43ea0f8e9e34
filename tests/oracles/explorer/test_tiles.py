"""Which elements a thread or a warpgroup touches, as the explorer counts them."""

from __future__ import annotations

import pytest

from fuser.kernel import ir as kir
from oracles.explorer.tiles import band_mask, elements


@pytest.mark.parametrize("front", [(), (1,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_band_is_made_of_rows_or_of_columns(front: tuple[int, ...], size: int) -> None:
    """Elements of `size` granules; the second and the third of four lines."""
    shape = (*front, 4, 4)
    for columns in (True, False):
        mask = band_mask(shape, 0b0110, size, columns=columns)
        lines = [e % 4 if columns else e // 4 for e in range(16) for _ in range(size)]
        assert [mask >> i & 1 for i in range(16 * size)] == [line in (1, 2) for line in lines]


@pytest.mark.parametrize("deal", [kir.Deal.STRIPS, kir.Deal.EACH_WARP])
def test_an_axis_of_extent_one_changes_no_holder(deal: kir.Deal) -> None:
    """Strips and operands of each warp, with and without a batch."""
    for thread in (0, 33, 63):
        plain = elements(kir.Layout((32, 16), 2, 64, deal), thread)
        assert plain == elements(kir.Layout((1, 32, 16), 2, 64, deal), thread)
        assert plain
