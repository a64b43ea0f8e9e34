"""Which elements and bytes a thread touches: layouts, boxes and atoms of shared memory.

It knows nothing of time; everything here is fixed once kernel and launch are known.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.sync.clock import Index

BAND = 64
"""Rows of a left operand that one warpgroup reads together."""
STRIP = 16
"""Rows of a tensor-core tile that one warp holds together."""
Threads = tuple[int, int]
"""Threads `lo <= t < hi`, counted within a role as layouts do."""


@dataclass(eq=False, slots=True)
class Tile:
    """The elements of one tile statement that one thread range handles.

    They are row-major positions in the fragment's tile, in rising order, and the same as
    coordinates along each axis of the tile.
    """

    elements: Index
    coordinates: tuple[Index, ...]


def lane_of(rows: Index, columns: Index, vector: int) -> Index:
    """Lane that holds element (row, column) of a tensor-core tile, `vector` in 32 bits.

    Source: PTX ISA, "wgmma.mma_async, register fragments", "mma.m16n8k16".
    """
    return np.asarray((rows % 8) * 4 + columns // vector % 4)


def holders(layout: kir.Layout, warp: int) -> Index:
    """Return the thread, in its role, that holds each element; of `warp`, if every warp does."""
    every = np.arange(prod(layout.shape))
    if layout.folded > 1:
        rows, columns = every // layout.shape[-1], every % layout.shape[-1]
        wide = holders(layout.wide, warp)
        at = (rows * layout.shape[-1] + columns) * layout.folded
        return np.asarray(wide[at])
    match layout.deal:
        case kir.Deal.ROUND:
            return (every // layout.vector) % layout.threads
        case kir.Deal.STRIPS:
            rows, columns = every // layout.shape[-1], every % layout.shape[-1]
            warps = layout.threads // kir.WARP
            return kir.WARP * ((rows // STRIP) % warps) + lane_of(rows, columns, layout.vector)
        case kir.Deal.EACH_WARP:
            rows, columns = every // layout.shape[-1], every % layout.shape[-1]
            held = kir.WARP * warp + lane_of(rows, columns, layout.vector)
            return held if kir.WARP * (warp + 1) <= layout.threads else np.full_like(held, -1)
        case kir.Deal.ROWS:  # the first of those who do
            return _sharing(layout, every)


class First(kir.Layout):
    """A layout of shared rows, by which of the threads that hold an element the first has it."""


@lru_cache(maxsize=4096)
def stored(layout: kir.Layout) -> kir.Layout:
    """Return how a store deals a tile: always the same object."""
    if layout.deal is not kir.Deal.ROWS:
        return layout
    return First(*(getattr(layout, field.name) for field in fields(kir.Layout)))


def _sharing(layout: kir.Layout, elements: Index) -> Index:
    """Return the first thread that holds each element of rows which neighbours share."""
    rows, columns = elements // layout.shape[-1], elements % layout.shape[-1]
    group = rows % (layout.threads // layout.across)
    part = columns // layout.vector % (layout.across // layout.alike)
    return np.asarray(group * layout.across + part * layout.alike)


def _of_rows(layout: kir.Layout, threads: Threads) -> Index:
    """Return the elements of shared rows that some of these threads hold."""
    every = np.arange(prod(layout.shape))
    first = _sharing(layout, every)
    if isinstance(layout, First):
        return np.nonzero((first >= threads[0]) & (first < threads[1]))[0]
    held = np.zeros(every.size, np.bool_)
    one_row = every.size == layout.shape[-1]
    for base in range(0, layout.threads if one_row else 1, layout.across):
        begin = first + base
        held |= (begin < threads[1]) & (begin + layout.alike > threads[0])
    return np.nonzero(held)[0]


def who_holds(layout: kir.Layout, threads: Threads) -> Iterator[tuple[Index, Index]]:
    """Yield elements of these threads and who of them holds each; several times if several do."""
    if layout.deal is not kir.Deal.ROWS or isinstance(layout, First):
        part = tile(layout, threads).elements
        yield part, holders(layout, threads[0] // kir.WARP)[part]
        return
    for thread in range(*threads):
        part = tile(layout, (thread, thread + 1)).elements
        yield part, np.full(part.size, thread)


@lru_cache(maxsize=4096)
def taken_from(whole: kir.Layout, part: kir.Layout, threads: Threads) -> Index | None:
    """Return where, of these threads' registers of `part`, that for each of `whole` stands.

    Where `part` has one row or column it is the same for all, and where it has fewer columns, for
    as many neighbours; None if some thread lacks it.
    """
    if len(whole.shape) != len(part.shape) or kir.Deal.ROWS not in (whole.deal, part.deal):
        return None
    if any(n not in (1, m) for m, n in zip(whole.shape[:-1], part.shape[:-1], strict=True)):
        return None
    run, odd = divmod(whole.shape[-1], part.shape[-1])
    if odd:
        return None

    def wanted(of: Threads) -> Index:
        held = tile(whole, of)
        *outer, columns = held.coordinates
        fewer = Tile(held.elements, (*outer, columns // run))
        return narrowed(fewer, part.shape, row_major(part.shape))

    for thread in range(*threads):
        one = (thread, thread + 1)
        if not np.isin(wanted(one), tile(part, one).elements).all():
            return None
    return np.asarray(np.searchsorted(tile(part, threads).elements, wanted(threads)), np.intp)


@lru_cache(maxsize=4096)
def gathered(dst: kir.Layout, src: kir.Layout, threads: Threads) -> Index | None:
    """Return, for each element of `dst` that these threads hold, those of `src` that become it.

    All that the threads which hold it have of its row; None where that is not as many for each, or
    some lie in another warp.
    """
    lo, hi = warp_of(threads)
    found: dict[int, list[int]] = {}
    for thread in range(*threads):
        for element in tile(dst, (thread, thread + 1)).elements.tolist():
            if element not in found:
                found[element] = _row_of(dst, src, element, (lo, hi))
    sizes = {len(some) for some in found.values()}
    if len(sizes) > 1 or 0 in sizes:
        return None
    return np.asarray([found[element] for element in sorted(found)], np.intp).reshape(
        len(found), -1
    )


def _row_of(dst: kir.Layout, src: kir.Layout, element: int, warp: Threads) -> list[int]:
    row, width = element // dst.shape[-1], src.shape[-1]
    out: list[int] = []
    for thread in range(*warp):
        if element in tile(dst, (thread, thread + 1)).elements:
            every = tile(src, (thread, thread + 1)).elements
            out += [e for e in every.tolist() if e // width == row]
    return list(dict.fromkeys(out))


@lru_cache(maxsize=4096)
def tile(layout: kir.Layout, threads: Threads) -> Tile:
    """Return the part of a layout that these threads hold; the arrays are shared, do not write."""
    if layout.deal is kir.Deal.ROWS:
        elements = _of_rows(layout, threads)
    else:
        holder = holders(layout, threads[0] // kir.WARP)
        elements = np.nonzero((holder >= threads[0]) & (holder < threads[1]))[0]
    return Tile(elements, tuple(np.unravel_index(elements, layout.shape)))


def narrowed(
    part: Tile, shape: tuple[int, ...], steps: tuple[int, ...], *, crossed: bool = False
) -> Index:
    """Flat positions in a memory of `steps` per axis; axes where `shape` is 1 do not count.

    Where it is `crossed`, the memory's last two axes are the last but one and the last of the tile
    in the other order.
    """
    flat = np.zeros(part.elements.size, np.intp)
    along = part.coordinates
    if crossed:
        along = (*along[:-2], along[-1], along[-2])
    for x, n, step in zip(along, shape, steps, strict=True):
        if n > 1:
            flat += x * step
    return flat


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of a dense array of that shape."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def moved(kernel: kir.Kernel) -> dict[str, Index]:
    """Return where the elements lie of each swizzled buffer over whose bytes something else lies.

    Nobody sees where those of other buffers lie.  Source: PTX ISA, "tensor swizzling modes".
    """
    spans = [
        (b.name, b.start(slot), b.start(slot) + b.slot_nbytes)
        for b in kernel.buffers
        for slot in range(b.slots)
    ]
    spans += [
        (m.name, kernel.barrier_at(m), kernel.barrier_at(m) + 8 * m.slots) for m in kernel.barriers
    ]
    return {
        b.name: _swizzled(b)
        for b in kernel.buffers
        if b.swizzle and any(name != b.name and b.holds(*span) for name, *span in spans)
    }


def _swizzled(buffer: kir.Buffer) -> Index:
    """Return where each element of a slot lies: panels, then chunks exchanged by the row's bits."""
    size, width = buffer.dtype.nbytes, buffer.shape[-1]
    each = np.arange(prod(buffer.shape))
    row, byte = each // width, each % width * size
    panel = byte // buffer.swizzle * (each.size // width)
    there = (panel + row) * buffer.swizzle + byte % buffer.swizzle
    chunk = there // 128 % (buffer.swizzle // 16)
    return np.asarray((there ^ chunk * 16) // size, np.intp)


def halves(warp: int) -> tuple[Threads, Threads]:
    """Return the two thread ranges by which a warp is modelled."""
    first, last = warp_of((kir.WARP * warp, 0))
    return (first, first + 1), (first + 1, last)


def left_operand(stmt: kir.Wgmma, slot: kir.Buffer) -> kir.Layout:
    """Return how warpgroups share a left operand: dealt to each as if it were one thread.

    Of 64 rows (columns where it is transposed) after the other, each reads the next.
    """
    vector = BAND if stmt.a_transposed else BAND * slot.shape[-1]
    groups = max(stmt.acc.layout.threads // kir.WARPGROUP, 1)
    return kir.Layout(slot.shape, vector, groups)


def warpgroup(threads: Threads) -> Threads:
    """Return the warpgroup of these threads, counted in the role, as a range of one."""
    group = threads[0] // kir.WARPGROUP
    return group, group + 1


def warp_of(threads: Threads) -> Threads:
    """Return the threads of the warp of these threads."""
    first = threads[0] // kir.WARP * kir.WARP
    return first, first + kir.WARP


@lru_cache(maxsize=4096)
def columns_of(whole: kir.Layout, part: kir.Layout, column: int, threads: Threads) -> Index:
    """Return where registers of `part`, from a column on, stand in `whole`; -1 if elsewhere."""
    held, wanted = tile(whole, threads).elements, tile(part, threads).elements
    width, inner = whole.shape[-1], part.shape[-1]
    same = wanted // inner * width + wanted % inner + column
    return _found(held, same)


@lru_cache(maxsize=4096)
def bytes_of(bytes_: kir.Layout, made: kir.Layout, threads: Threads) -> Index:
    """Return where the byte of each element of `made`, two of each, stands; -1 if elsewhere."""
    held, wanted = tile(bytes_, threads).elements, tile(made, threads).elements
    return _found(held, wanted // 2)


def _found(held: Index, wanted: Index) -> Index:
    """Return where each wanted element stands among those held, in order; -1 if nowhere."""
    if not held.size:
        return np.full(wanted.size, -1, np.intp)
    at = np.minimum(np.searchsorted(held, wanted), held.size - 1)
    return np.asarray(np.where(held[at] == wanted, at, -1), np.intp)


@lru_cache(maxsize=4096)
def registers_of(layout: kir.Layout, threads: Threads) -> Index:
    """Return a number for the thread and register of each element that these threads hold.

    Elements are in rising order, as in `tile`; numbers order threads, then registers of a thread.
    Strips and rounds only.
    """
    at = tile(layout, threads).elements
    rows, columns = at // layout.shape[-1], at % layout.shape[-1]
    vector, inside = layout.vector, at % layout.vector
    if layout.deal is kir.Deal.ROUND:
        vectors = at // vector // layout.threads
    else:
        strip, block = rows // STRIP // (layout.threads // kir.WARP), rows % STRIP // 8
        vectors = strip * (layout.shape[-1] // (2 * vector)) + columns // (4 * vector) * 2 + block
        inside = columns % vector
    holder = holders(layout, threads[0] // kir.WARP)[at]
    return np.asarray(holder * layout.registers + vectors * vector + inside, np.intp)


def crosses(stmt: kir.Stmt) -> bool:
    """Whether a statement finds rows of its tile along the columns of the slot."""
    return isinstance(stmt, kir.Load | kir.Store) and stmt.transposed


def turns(buffer: kir.Buffer, layout: kir.Layout) -> bool:
    """Whether a slot has the tile of a layout with its last two axes in the other order."""
    shape = buffer.shape
    return len(shape) > 1 and (*shape[:-2], shape[-1], shape[-2]) == layout.shape


Pattern = tuple[kir.Buffer, kir.Layout, Threads, bool]
"""A buffer, a layout, a range of threads, and whether rows and columns are exchanged."""


def _patterns(kernel: kir.Kernel) -> Iterator[Pattern]:
    """Every way in which the kernel touches shared memory."""
    seen = set()
    for warps, stmt in _placed(kernel.body, kernel.threads // kir.WARP):
        spans = [threads for warp in range(warps) for threads in halves(warp)]
        match stmt:
            case kir.Load(fragment, kir.Slot(buffer)):
                layout = fragment.layout
            case kir.Store(kir.Slot(buffer), fragment):
                layout = stored(fragment.layout)
            case kir.CpAsync(kir.Slot(buffer), _, layout):
                pass
            case kir.StAsync(kir.Slot(buffer), fragment):
                layout = stored(fragment.layout)
            case kir.Wgmma(_, kir.Slot(buffer)):
                layout = left_operand(stmt, buffer)
                spans = [warpgroup((kir.WARP * warp, 0)) for warp in range(0, warps, 4)]
            case _:
                continue
        crossed = crosses(stmt)
        if crossed and not turns(buffer, layout):
            continue  # refused as soon as it is executed; it may reach beyond shared memory
        for threads in spans:
            if (buffer.name, layout, threads, crossed) not in seen:
                seen.add((buffer.name, layout, threads, crossed))
                yield buffer, layout, threads, crossed


def _dealt(kernel: kir.Kernel) -> Iterator[kir.Layout]:
    """Every layout by which threads themselves touch shared memory."""
    for stmt in kernel.walk():
        match stmt:
            case kir.Load(fragment, kir.Slot()):
                yield fragment.layout
            case kir.Store(kir.Slot(), fragment):
                yield stored(fragment.layout)
            case kir.CpAsync(_, _, layout):
                yield layout
            case kir.StAsync(_, fragment):
                yield stored(fragment.layout)
            case _:
                pass


def _placed(body: tuple[kir.Stmt, ...], warps: int) -> Iterator[tuple[int, kir.Stmt]]:
    """Every statement, with how many warps its innermost role has."""
    for stmt in body:
        yield warps, stmt
        inside = stmt.warps if isinstance(stmt, kir.Role) else warps
        for inner in kir.bodies(stmt):
            yield from _placed(inner, inside)


class Deal(NamedTuple):
    """A slot, dealt to the lanes of a warp by a layout; to any lane each, with `any_lane`.

    If `crossed`, the layout is of the slot with its last two axes exchanged.
    """

    buffer: kir.Buffer
    slot: int
    layout: kir.Layout
    lo: int
    hi: int
    first_warp: int
    any_lane: bool = False
    crossed: bool = False


class Atoms:
    """Shared memory cut into atoms: bytes that every access touches wholly or not at all.

    Every access pattern adds a random 64-bit number to the granules it touches; granules with equal
    sums are touched by the same accesses and become one atom.  Two different sets of patterns with
    one sum have probability 2**-64.  Bytes, not buffers, are cut, so buffers that alias by offset
    share atoms.
    """

    def __init__(self, kernel: kir.Kernel) -> None:
        patterns = list(_patterns(kernel))
        layouts = set(_dealt(kernel))
        self.mixed = len(layouts) > 1 or any(b.shape != p.shape for b, p, _, _ in patterns)
        moves = (s for s in kernel.walk() if isinstance(s, kir.Load | kir.Store))
        self.mixed = self.mixed or any(stmt.matrix or stmt.transposed for stmt in moves)
        """Whether one byte may be dealt to different lanes by different statements."""
        barriers = [
            m.offset + 8 * i
            for m in kernel.barriers
            if m.offset is not None
            for i in range(m.slots)
        ]
        self.aliased = bool(barriers)
        """Whether a buffer and a barrier may share bytes."""
        self.moved = moved(kernel)
        self.granule = _granule(kernel, patterns, self.moved)
        self._slots: dict[tuple[str, int], Index] = {}
        self._tiles: dict[tuple[str, int, int, Threads, bool], Index] = {}
        self._differ: dict[tuple[Deal, Deal], bool] = {}
        self._touched: dict[tuple[str, kir.Layout, Threads, bool], Index] = {}
        draw = random.Random(0)
        ends_at = [kernel.smem_bytes, *(at + 8 for at in barriers)]
        sums = np.zeros(-(-max(ends_at) // self.granule) + 1, np.uint64)
        for buffer in kernel.buffers:
            whole = np.arange(buffer.slot_nbytes // self.granule)
            self._mark(sums, buffer, whole, draw)
        for buffer, layout, threads, crossed in patterns:
            touched = self._granules(buffer, layout, threads, crossed=crossed)
            self._mark(sums, buffer, touched, draw)
        for at in barriers:
            sums[at // self.granule : -(-(at + 8) // self.granule)] += np.uint64(
                draw.getrandbits(64)
            )
        self._atom = np.unique(sums, return_inverse=True)[1]
        self.count = int(self._atom.max()) + 1

    def lying(self, buffer: kir.Buffer, elements: Index) -> Index:
        """Return where elements of a slot lie in it, counted in elements."""
        at = self.moved.get(buffer.name)
        return elements if at is None else at[elements]

    def of_slot(self, buffer: kir.Buffer, slot: int) -> Index:
        """Atoms of a whole slot."""
        key = (buffer.name, slot)
        if key not in self._slots:
            start, size = self._start(buffer, slot), buffer.slot_nbytes // self.granule
            self._slots[key] = np.unique(self._atom[start : start + size])
        return self._slots[key]

    def of_tile(
        self,
        buffer: kir.Buffer,
        slot: int,
        layout: kir.Layout,
        threads: Threads,
        *,
        crossed: bool = False,
    ) -> Index:
        """Atoms of a slot that these threads touch under a layout (an object of the kernel)."""
        key = (buffer.name, slot, id(layout), threads, crossed)
        if key not in self._tiles:
            granules = self._granules(buffer, layout, threads, crossed=crossed)
            self._tiles[key] = np.unique(self._atom[self._start(buffer, slot) + granules])
        return self._tiles[key]

    def of_barrier(self, start: int) -> Index:
        """Atoms of the eight bytes of an mbarrier."""
        return np.unique(self._atom[start // self.granule : -(-(start + 8) // self.granule)])

    def holders(self, deal: Deal) -> dict[int, set[int]]:
        """Return which threads of the CTA touch each granule of shared memory under a deal."""
        out: dict[int, set[int]] = {}
        more = range(max(deal.buffer.dtype.nbytes // self.granule, 1))
        start = self._start(deal.buffer, deal.slot)
        for elements, threads in who_holds(deal.layout, (deal.lo, deal.hi)):
            part = Tile(elements, tuple(np.unravel_index(elements, deal.layout.shape)))
            shape = deal.buffer.shape
            flat = narrowed(part, shape, row_major(shape), crossed=deal.crossed)
            flat = self.lying(deal.buffer, flat)
            granules = flat * deal.buffer.dtype.nbytes // self.granule
            for granule, thread in zip(granules.tolist(), threads.tolist(), strict=True):
                for i in more:
                    out.setdefault(start + granule + i, set()).add(thread + 32 * deal.first_warp)
        return out

    def lanes_differ(self, a: Deal, b: Deal) -> bool:
        """Whether some byte is touched by one lane under `a` and by another under `b`."""
        if a.any_lane or b.any_lane:
            return True
        key = (a, b)
        if key not in self._differ:
            ours, theirs = self.holders(a), self.holders(b)
            common = ours.keys() & theirs.keys()
            self._differ[key] = any(len(ours[g] | theirs[g]) > 1 for g in common)
        return self._differ[key]

    def _start(self, buffer: kir.Buffer, slot: int) -> int:
        return buffer.start(slot) // self.granule

    def _mark(
        self,
        sums: np.ndarray[tuple[int], np.dtype[np.uint64]],
        buffer: kir.Buffer,
        granules: Index,
        draw: random.Random,
    ) -> None:
        for slot in range(buffer.slots):
            sums[self._start(buffer, slot) + granules] += np.uint64(draw.getrandbits(64))

    def _granules(
        self, buffer: kir.Buffer, layout: kir.Layout, threads: Threads, *, crossed: bool
    ) -> Index:
        key = (buffer.name, layout, threads, crossed)
        if key not in self._touched:
            steps = row_major(buffer.shape)
            flat = narrowed(tile(layout, threads), buffer.shape, steps, crossed=crossed)
            flat = self.lying(buffer, flat)
            more = np.arange(max(buffer.dtype.nbytes // self.granule, 1))
            first = flat * buffer.dtype.nbytes // self.granule
            self._touched[key] = np.unique(first[:, None] + more)
        return self._touched[key]


def _granule(kernel: kir.Kernel, patterns: list[Pattern], moved: Mapping[str, Index]) -> int:
    """Return the largest size, in bytes, that no access and no swizzle ever splits."""
    size = 16 if moved else 128
    for buffer in kernel.buffers:
        size = gcd(size, buffer.slot_nbytes, buffer.pitch)
    if any(m.offset is not None for m in kernel.barriers):
        size = gcd(size, 8)
    for buffer, layout, _, crossed in patterns:
        whole = buffer.shape == layout.shape and layout.folded == 1 and not crossed
        vector = layout.vector if whole else 1
        size = gcd(size, buffer.dtype.nbytes * vector)
    return size
