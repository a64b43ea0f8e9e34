"""Which elements and bytes a thread touches: layouts, boxes and atoms of shared memory.

It knows nothing of time; everything here is fixed once kernel and launch are known.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd, prod

import numpy as np

from fuser import kernel_ir as kir
from oracles.machine_clock import Index

Threads = tuple[int, int]
"""Threads `lo <= t < hi`, counted within a role as layouts do."""


@dataclass(eq=False, slots=True)
class Tile:
    """The elements of one tile statement that one thread range handles.

    Parameters
    ----------
    elements : array of int
        Row-major positions in the fragment's tile, in rising order.
    coordinates : tuple of array
        The same, along each axis of the tile.
    """

    elements: Index
    coordinates: tuple[Index, ...]


@lru_cache(maxsize=4096)
def tile(layout: kir.Layout, threads: Threads) -> Tile:
    """Return the part of a layout that these threads hold; the arrays are shared, do not write."""
    every = np.arange(prod(layout.shape))
    holder = (every // layout.vector) % layout.threads
    elements = every[(holder >= threads[0]) & (holder < threads[1])]
    return Tile(elements, tuple(np.unravel_index(elements, layout.shape)))


def narrowed(part: Tile, shape: tuple[int, ...], steps: tuple[int, ...]) -> Index:
    """Flat positions in a memory of `steps` per axis; axes where `shape` is 1 do not count."""
    flat = np.zeros(part.elements.size, np.intp)
    for x, n, step in zip(part.coordinates, shape, steps, strict=True):
        if n > 1:
            flat += x * step
    return flat


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of a dense array of that shape."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def halves(warp: int) -> tuple[Threads, Threads]:
    """Return the two thread ranges by which a warp is modelled."""
    first = kir.WARP * warp
    return (first, first + 1), (first + 1, first + kir.WARP)


def _patterns(kernel: kir.Kernel) -> Iterator[tuple[kir.Buffer, kir.Layout, Threads]]:
    """Every (buffer, layout, thread range) with which the kernel touches shared memory."""
    seen = set()
    for warps, body in _teams(kernel):
        for stmt in kir.walk(body):
            match stmt:
                case kir.Load(fragment, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer), fragment):
                    key = (buffer.name, fragment.layout)
                    for warp in range(warps):
                        for threads in halves(warp):
                            if (*key, threads) not in seen:
                                seen.add((*key, threads))
                                yield buffer, fragment.layout, threads
                case _:
                    pass


def _teams(kernel: kir.Kernel) -> Iterator[tuple[int, tuple[kir.Stmt, ...]]]:
    common: list[kir.Stmt] = []
    for stmt in kernel.body:
        if isinstance(stmt, kir.Role):
            yield stmt.warps, stmt.body
        else:
            common.append(stmt)
    yield kernel.threads // kir.WARP, tuple(common)


@dataclass(frozen=True, slots=True)
class Deal:
    """A slot, dealt out to the lanes of one warp by a layout."""

    buffer: kir.Buffer
    slot: int
    layout: kir.Layout
    lo: int
    hi: int
    first_warp: int


class Atoms:
    """Shared memory cut into atoms: bytes that every access touches wholly or not at all.

    Notes
    -----
    Every access pattern adds a random 64-bit number to the granules it touches; granules with
    equal sums are touched by the same accesses and become one atom.  Two different sets of
    patterns with one sum have probability 2**-64.  Bytes, not buffers, are cut, so buffers
    that alias by offset share atoms.
    """

    def __init__(self, kernel: kir.Kernel) -> None:
        patterns = list(_patterns(kernel))
        layouts = {layout for _, layout, _ in patterns}
        self.mixed = len(layouts) > 1 or any(b.shape != p.shape for b, p, _ in patterns)
        """Whether one byte may be dealt to different lanes by different statements."""
        ends = sorted((b.offset, b.offset + b.slots * b.slot_nbytes) for b in kernel.buffers)
        self.aliased = any(a[1] > b[0] for a, b in pairwise(ends))
        """Whether two buffers share bytes."""
        self.granule = _granule(kernel, patterns)
        self._slots: dict[tuple[str, int], Index] = {}
        self._tiles: dict[tuple[str, int, int, Threads], Index] = {}
        self._differ: dict[tuple[Deal, Deal], bool] = {}
        self._touched: dict[tuple[str, kir.Layout, Threads], Index] = {}
        draw = random.Random(0)
        sums = np.zeros(-(-kernel.smem_bytes // self.granule) + 1, np.uint64)
        for buffer in kernel.buffers:
            whole = np.arange(buffer.slot_nbytes // self.granule)
            self._mark(sums, buffer, whole, draw)
        for buffer, layout, threads in patterns:
            self._mark(sums, buffer, self._granules(buffer, layout, threads), draw)
        self._atom = np.unique(sums, return_inverse=True)[1]
        self.count = int(self._atom.max()) + 1

    def of_slot(self, buffer: kir.Buffer, slot: int) -> Index:
        """Atoms of a whole slot."""
        key = (buffer.name, slot)
        if key not in self._slots:
            start, size = self._start(buffer, slot), buffer.slot_nbytes // self.granule
            self._slots[key] = np.unique(self._atom[start : start + size])
        return self._slots[key]

    def of_tile(self, buffer: kir.Buffer, slot: int, layout: kir.Layout, threads: Threads) -> Index:
        """Atoms of a slot that these threads touch under a layout (an object of the kernel)."""
        key = (buffer.name, slot, id(layout), threads)
        if key not in self._tiles:
            touched = self._start(buffer, slot) + self._granules(buffer, layout, threads)
            self._tiles[key] = np.unique(self._atom[touched])
        return self._tiles[key]

    def holders(self, deal: Deal) -> dict[int, set[int]]:
        """Return which threads of the CTA touch each granule of shared memory under a deal."""
        out: dict[int, set[int]] = {}
        part = tile(deal.layout, (deal.lo, deal.hi))
        flat = narrowed(part, deal.buffer.shape, row_major(deal.buffer.shape))
        granules = flat * deal.buffer.dtype.nbytes // self.granule
        more = range(max(deal.buffer.dtype.nbytes // self.granule, 1))
        threads = part.elements // deal.layout.vector % deal.layout.threads
        start = self._start(deal.buffer, deal.slot)
        for granule, thread in zip(granules.tolist(), threads.tolist(), strict=True):
            for i in more:
                out.setdefault(start + granule + i, set()).add(thread + 32 * deal.first_warp)
        return out

    def lanes_differ(self, a: Deal, b: Deal) -> bool:
        """Whether some byte is touched by one lane under `a` and by another under `b`."""
        key = (a, b)
        if key not in self._differ:
            ours, theirs = self.holders(a), self.holders(b)
            common = ours.keys() & theirs.keys()
            self._differ[key] = any(len(ours[g] | theirs[g]) > 1 for g in common)
        return self._differ[key]

    def _start(self, buffer: kir.Buffer, slot: int) -> int:
        return (buffer.offset + slot * buffer.slot_nbytes) // self.granule

    def _mark(
        self,
        sums: np.ndarray[tuple[int], np.dtype[np.uint64]],
        buffer: kir.Buffer,
        granules: Index,
        draw: random.Random,
    ) -> None:
        for slot in range(buffer.slots):
            sums[self._start(buffer, slot) + granules] += np.uint64(draw.getrandbits(64))

    def _granules(self, buffer: kir.Buffer, layout: kir.Layout, threads: Threads) -> Index:
        key = (buffer.name, layout, threads)
        if key not in self._touched:
            flat = narrowed(tile(layout, threads), buffer.shape, row_major(buffer.shape))
            more = np.arange(max(buffer.dtype.nbytes // self.granule, 1))
            first = flat * buffer.dtype.nbytes // self.granule
            self._touched[key] = np.unique(first[:, None] + more)
        return self._touched[key]


def _granule(kernel: kir.Kernel, patterns: list[tuple[kir.Buffer, kir.Layout, Threads]]) -> int:
    """Return the largest size, in bytes, that no access ever splits."""
    size = 128
    for buffer in kernel.buffers:
        size = gcd(size, buffer.slot_nbytes)
    for buffer, layout, _ in patterns:
        vector = layout.vector if buffer.shape == layout.shape else 1
        size = gcd(size, buffer.dtype.nbytes * vector)
    return size
