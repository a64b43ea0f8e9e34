"""Which elements of a tile a thread touches, as bit masks, by enumeration of its layout.

A mask has one bit per granule of shared memory or per element of a global tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import prod

from fuser.kernel import ir as kir
from oracles.explorer.rules import NotModelled

Shape = tuple[int, ...]


@cache
def elements(layout: kir.Layout, thread: int) -> tuple[int, ...]:
    """Return the row-major elements that a thread of the role holds under a layout."""
    count = prod(layout.shape)
    if layout.folded > 1:
        whole = (*layout.shape[:-1], layout.shape[-1] * layout.folded)
        wide = kir.Layout(whole, layout.vector, layout.threads, layout.deal)
        firsts = (e for e in elements(wide, thread) if e % layout.folded == 0)
        return tuple(e // layout.folded for e in firsts)
    if layout.deal is kir.Deal.ROUND:
        if thread >= layout.threads:
            return ()
        vectors = range(thread * layout.vector, count, layout.vector * layout.threads)
        return tuple(e for v in vectors for e in range(v, min(v + layout.vector, count)))
    if layout.deal is kir.Deal.ROWS:
        return _of_rows(layout, thread)
    rows, cols = layout.shape[-2:]
    warp, lane = divmod(thread, 32)
    if layout.deal is kir.Deal.STRIPS:
        if thread >= layout.threads:
            return ()
        mine = [r for r in range(rows) if r // 16 % (layout.threads // 32) == warp]
    else:
        mine = list(range(rows))
    first = lane % 4 * layout.vector
    return tuple(
        r * cols + c + i
        for r in mine
        if r % 8 == lane // 4
        for c in range(first, cols, 4 * layout.vector)
        for i in range(layout.vector)
    )


def _of_rows(layout: kir.Layout, thread: int) -> tuple[int, ...]:
    """Return what a thread holds of rows that it shares with its neighbours."""
    if thread >= layout.threads:
        return ()
    cols, vector = layout.shape[-1], layout.vector
    rows, groups = prod(layout.shape) // cols, layout.threads // layout.across
    group, place = divmod(thread, layout.across)
    step = layout.across // layout.alike * vector
    first = place // layout.alike * vector
    return tuple(
        r * cols + c + i
        for r in (range(1) if rows == 1 else range(group, rows, groups))
        for c in range(first, cols, step)
        for i in range(vector)
    )


@cache
def stored(layout: kir.Layout, thread: int) -> tuple[int, ...]:
    """Return the elements that a thread stores: those that no thread before it holds."""
    if layout.deal is kir.Deal.ROWS:
        whole = prod(layout.shape[:-1]) == 1
        if thread % layout.alike or (whole and thread >= layout.across):
            return ()
    return elements(layout, thread)


@cache
def _source(tile: Shape, shape: Shape) -> tuple[int, ...] | None:
    """Element of a memory tile for each element of a register tile; None if it is the same one."""
    if tile == shape or prod(tile) == prod(shape):
        return None
    if len(tile) != len(shape) or any(n not in (1, m) for m, n in zip(tile, shape, strict=True)):
        raise NotModelled(f"registers of shape {tile} for memory of shape {shape}")
    out = []
    for e in range(prod(tile)):
        at, stride, rest = 0, 1, e
        for m, n in zip(reversed(tile), reversed(shape), strict=True):
            rest, x = divmod(rest, m)
            at, stride = at + (x * stride if n > 1 else 0), stride * n
        out.append(at)
    return tuple(out)


def _exchanged(tile: Shape, shape: Shape) -> tuple[int, ...]:
    """Element of a memory tile for each of a register tile whose rows are its columns."""
    *outer, rows, cols = tile
    if shape != (*outer, cols, rows):
        raise NotModelled(f"registers of shape {tile} for transposed memory of shape {shape}")
    many = rows * cols
    return tuple(e - e % many + e % cols * rows + e % many // cols for e in range(prod(tile)))


@cache
def slot_masks(
    layout: kir.Layout,
    shape: Shape,
    first: int,
    lanes: int,
    size: int,
    *,
    stores: bool = False,
    exchanged: bool = False,
) -> Shape:
    """Return, per thread, the granules of a slot that it touches; `size` granules an element.

    With `exchanged` element (i, j) of the registers' tile is element (j, i) of the slot.
    """
    find = _exchanged if exchanged else _source
    source, one = find(layout.shape, shape), (1 << size) - 1
    out = []
    for thread in range(first, first + lanes):
        mask = 0
        for e in (stored if stores else elements)(layout, thread):
            mask |= one << (source[e] if source else e) * size
        out.append(mask)
    return tuple(out)


@cache
def band_mask(shape: Shape, lines: int, size: int, *, columns: bool) -> int:
    """Return the granules, `size` an element, of those rows of a slot, or columns, in `lines`."""
    rows, cols = shape[-2:]
    width = cols * size
    if not columns:
        one = (1 << width) - 1
        return union(one << r * width for r in range(rows) if lines >> r & 1)
    one = (1 << size) - 1
    row = union(one << c * size for c in range(cols) if lines >> c & 1)
    return union(row << r * width for r in range(rows))


@cache
def swizzled_mask(mask: int, buffer: kir.Buffer, granule: int) -> int:
    """Return where the granules of a swizzled slot lie that are those in `mask`, row by row.

    Source: PTX ISA, "tensor swizzling modes": 16 bytes at address bits 4 to 6 change places with
    those that have bits 7 to 9 added without carry, as many of them as a row of a panel has.
    """
    return union(1 << at for g, at in enumerate(_chunks(buffer, granule)) if mask >> g & 1)


@cache
def _chunks(buffer: kir.Buffer, granule: int) -> tuple[int, ...]:
    span, width = buffer.swizzle, buffer.shape[-1] * buffer.dtype.nbytes
    rows, out = prod(buffer.shape[:-1]), []
    for row in range(rows):
        for byte in range(0, width, granule):
            panel, along = divmod(byte, span)
            there = panel * rows * span + row * span + along
            bits = there >> 7 & (span >> 4) - 1
            out.append((there ^ bits << 4) // granule)
    return tuple(out)


@cache
def corner_mask(shape: Shape, ends: Shape, size: int) -> int:
    """Return the granules, `size` an element, of the elements of a slot before some ends."""
    zeros = (0,) * len(shape)
    one = (1 << size) - 1
    return union(one << c * size for c in _cells(zeros, shape, ends, shape) if c >= 0)


@cache
def _cells(origin: Shape, shape: Shape, limit: Shape, extents: Shape) -> tuple[int, ...]:
    """Row-major element of a tensor for each element of a box; -1 for those past its limit."""
    cells = [0]
    for o, n, stop, extent in zip(origin, shape, limit, extents, strict=True):
        xs = [o + i if o + i < stop else -1 for i in range(n)]
        cells = [-1 if c < 0 or x < 0 else c * extent + x for c in cells for x in xs]
    return tuple(cells)


@cache
def box_masks(
    layout: kir.Layout,
    box: tuple[Shape, Shape, Shape, Shape],
    first: int,
    lanes: int,
    *,
    stores: bool = False,
) -> Shape:
    """Return, per thread, the elements of a tensor that it touches through a box."""
    cells = _cells(*box)
    source = _source(layout.shape, box[1])
    out = []
    for thread in range(first, first + lanes):
        mine = (stored if stores else elements)(layout, thread)
        at = (cells[source[e] if source else e] for e in mine)
        out.append(_mask(at))
    return tuple(out)


@cache
def box_mask(origin: Shape, shape: Shape, limit: Shape, extents: Shape) -> int:
    """Return the elements of a tensor that a box has."""
    return _mask(_cells(origin, shape, limit, extents))


def _mask(cells: Iterable[int]) -> int:
    mask = 0
    for cell in cells:
        if cell >= 0:
            mask |= 1 << cell
    return mask


def union(masks: Iterable[int]) -> int:
    """Return the bits of any of the masks."""
    out = 0
    for mask in masks:
        out |= mask
    return out


@cache
def apart(first: Shape, second: Shape, shift: int) -> bool:
    """Tell whether no two different threads share a bit of two accesses.

    There is a mask for each of the same threads; the second access lies `shift` bits further.
    """
    if (
        first == second
        and shift == 0
        and sum(m.bit_count() for m in first) == (union(first).bit_count())
    ):
        return True
    if shift < 0:
        return apart(second, first, -shift)
    return not any(
        one & (other << shift)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
        if i != j
    )
