"""Which elements a thread or a warpgroup touches, as the explorer counts them."""

from __future__ import annotations

from math import prod

import pytest

from fuser.kernel import ir as kir
from oracles.explorer.tiles import band_mask, elements, slot_masks, stored
from oracles.prover.sites import Spread, owners
from oracles.simulator.memory import tile as simulated


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


@pytest.mark.parametrize("shape", [(64, 16), (128, 64), (1, 32, 8)])
def test_all_judges_deal_transposed_strips_alike(shape: tuple[int, ...]) -> None:
    """Element (j, i) of the slot is of the thread that holds (i, j): said three times."""
    layout = kir.Layout(shape, 2, 32 * min(shape[-2] // 16, 4), kir.Deal.STRIPS)
    slot = (*shape[:-2], shape[-1], shape[-2])
    rows, columns = shape[-2:]
    holder = {e: t for t in range(layout.threads) for e in elements(layout, t)}
    wanted = [holder[i * columns + j] for j in range(columns) for i in range(rows)]
    masks = slot_masks(layout, slot, 0, layout.threads, 1, exchanged=True)
    assert [next(t for t, m in enumerate(masks) if m >> e & 1) for e in range(rows * columns)] == (
        wanted
    )
    spread = Spread("S", layout, slot, 0, matrix=True, crossed=True)
    assert owners(spread)[:, 0].tolist() == wanted
    for thread in range(layout.threads):
        part = simulated.tile(layout, (thread, thread + 1))
        flat = simulated.narrowed(part, slot, simulated.row_major(slot), crossed=True)
        assert {*flat.tolist()} == {e for e, t in enumerate(wanted) if t == thread}


SHARED = {
    "each a part": kir.Layout((32, 24), 2, 64, kir.Deal.ROWS, 1, 4),
    "a batch": kir.Layout((1, 2, 128), 4, 64, kir.Deal.ROWS, 1, 32),
    "four the same": kir.Layout((2, 8), 1, 64, kir.Deal.ROWS, 1, 32, 4),
    "all the same": kir.Layout((6, 5), 5, 64, kir.Deal.ROWS, 1, 32, 32),
    "one row for all groups": kir.Layout((1, 64), 2, 64, kir.Deal.ROWS, 1, 32),
    "one number": kir.Layout((1, 1), 1, 96, kir.Deal.ROWS, 1, 96, 96),
}


@pytest.mark.parametrize("layout", SHARED.values(), ids=SHARED)
def test_all_judges_deal_shared_rows_alike(layout: kir.Layout) -> None:
    """What each thread holds, and what it stores: read three times from one prose."""
    every = [elements(layout, thread) for thread in range(layout.threads)]
    first = [stored(layout, thread) for thread in range(layout.threads)]
    assert len({len(held) for held in every}) == 1
    assert len(every[0]) == layout.registers
    assert sorted(e for held in first for e in held) == [*range(prod(layout.shape))]
    for thread in range(layout.threads):
        one = (thread, thread + 1)
        assert tuple(simulated.tile(layout, one).elements) == tuple(sorted(every[thread]))
        kept = simulated.tile(simulated.stored(layout), one).elements
        assert tuple(kept) == tuple(sorted(first[thread]))
    for told, held in ((False, every), (True, first)):
        spread = Spread("S", layout, layout.shape, 0, first=told)
        found = [set(row) for row in owners(spread).tolist()]
        wanted = [{t for t, some in enumerate(held) if e in some} for e in range(len(found))]
        assert found == wanted
