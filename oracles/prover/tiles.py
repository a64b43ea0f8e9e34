"""Which threads touch which element of a tile: how the ordinary accesses of two statements meet.

Two accesses under one layout touch each element from one thread.  Otherwise the owners of every
element are compared, and the least favourable pair of threads counts.  By `ldmatrix` and `stmatrix`
some lane of the warp that holds an element touches it: any lane may be the one.  A row of `a` is
read by the warpgroup that has it in the result, by all of its warps, each by its first lane.

Source: PTX ISA, "wgmma.mma_async, register fragments", "mma.m16n8k16", "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.sites import Site
from oracles.prover.threads import Kind

Owners = NDArray[np.int64]
Storage = Mapping[str, str]
"""The one name by which buffers of one shape in one place go."""


class Meet(IntEnum):
    """How two accesses may touch one byte: by one thread, within a warp, by any two threads."""

    NEVER = -1
    THREAD = 0
    WARP = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """How a statement spreads a tile of a buffer over threads; `base` is their first.

    Buffers of one shape in one place go by one name: under one layout they are one to threads.
    `matrix` is whether lanes of a warp are not told apart; `operand` whether a wgmma reads it as
    its `a`, for a result of this layout, and `turned` whether as (K, M).
    """

    buffer: str
    layout: kir.Layout
    shape: tuple[int, ...]
    base: int
    matrix: bool = False
    operand: bool = False
    turned: bool = False


def storage(buffers: Iterable[kir.Buffer]) -> Storage:
    """Return one name for all buffers whose elements lie in the same places."""
    first: dict[object, str] = {}
    return {
        b.name: first.setdefault((b.offset, b.dtype, b.shape, b.swizzle, b.pitch), b.name)
        for b in buffers
    }


def ordinary(site: Site, storage: Storage) -> Spread | None:
    """Return how an ordinary access, or a cp.async, spreads its tile; None of any other."""
    matrix = isinstance(site.stmt, kir.Load | kir.Store) and site.stmt.matrix
    match site.stmt:
        case kir.Load(kir.Fragment(_, _, layout), kir.Slot(buffer)):
            name, shape = storage[buffer.name], buffer.shape
        case kir.Store(kir.Slot(buffer), kir.Fragment(_, _, layout)):
            name, shape = storage[buffer.name], buffer.shape
        case kir.CpAsync(kir.Slot(buffer), _, layout):
            name, shape = storage[buffer.name], buffer.shape
        case kir.Load(kir.Fragment(_, _, layout), kir.Box(tensor, _, shape)):
            name = tensor.name
        case kir.Store(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
            name = tensor.name
        case kir.AtomicAdd(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
            name = tensor.name
        case _:
            return None
    return Spread(name, layout, shape, site.place.base, matrix)


def operand(site: Site, storage: Storage) -> tuple[str, Spread] | None:
    """Return the `a` of a wgmma, and how warpgroups read their rows of it.

    None where each reads all of it, as far as is known.
    """
    match site.stmt:
        case kir.Wgmma(acc, kir.Slot(a)) if all(a != b.buffer for b in site.stmt.columns):
            layout, turned = acc.layout, site.stmt.a_transposed
            whole = layout.threads == site.place.warps * kir.WARP
            fits = len(a.shape) > 1 and a.shape[-1 if turned else -2] == prod(layout.shape[:-1])
            if not (whole and fits) or layout.threads % kir.WARPGROUP:
                return None
            first, name = site.place.base, storage[a.name]
            return a.name, Spread(name, layout, a.shape, first, operand=True, turned=turned)
        case _:
            return None


def each_by_one(found: Mapping[tuple[int, int], Meet]) -> dict[tuple[int, int], Meet]:
    """Return how executions of one matrix access meet.

    In one execution no two lanes touch an element, and kinds of lanes are compared there first.  Of
    one kind it is always an earlier execution, which a join of the warp orders for the other kind
    too.
    """
    return {(x, y): how for (x, y), how in found.items() if x == y or how is not Meet.WARP}


def owners(spread: Spread) -> Owners:
    """Return the threads (of the CTA) of each element of a slot, a row per element.

    Rows are padded by repetition.
    """
    tile, shape = spread.layout.shape, spread.shape
    if spread.operand:
        return _readers(spread)
    if len(tile) != len(shape):
        raise UnsupportedError(f"{spread.buffer} and its fragment differ in rank")
    element = np.arange(prod(tile)).reshape(tile)
    held = _held(spread.layout, element)
    place = np.zeros(tile, dtype=np.int64)
    pitch = 1
    for axis in range(len(tile) - 1, -1, -1):
        if shape[axis] > 1:
            along = np.arange(tile[axis]).reshape(
                [-1 if i == axis else 1 for i in range(len(tile))]
            )
            place = place + along * pitch
        pitch *= shape[axis]
    rows = prod(shape)
    if rows == prod(tile):
        return spread.base + held.reshape(rows, -1)
    flat, who = place.reshape(-1), held.reshape(len(element.reshape(-1)), -1)
    sets: list[set[int]] = [set() for _ in range(rows)]
    for at, threads in zip(flat.tolist(), who.tolist(), strict=True):
        sets[at].update(threads)
    most = max(1, *(len(s) for s in sets))
    padded = [[*s, *([next(iter(s))] * (most - len(s)))] if s else [-1] * most for s in sets]
    return np.asarray(padded, dtype=np.int64) + spread.base


def _readers(spread: Spread) -> Owners:
    element = np.arange(prod(spread.shape))
    last = spread.shape[-1]
    row = element % last if spread.turned else element // last
    group = row // 16 % (spread.layout.threads // kir.WARP) // 4
    first: Owners = spread.base + group * kir.WARPGROUP
    return first[:, None] + np.arange(4) * kir.WARP


def _held(layout: kir.Layout, element: Owners) -> Owners:
    if layout.folded > 1:  # each where the first of its neighbours lies
        columns = layout.shape[-1] * layout.folded
        wide = replace(layout, shape=(*layout.shape[:-1], columns), folded=1)
        return _held(wide, element * layout.folded)
    match layout.deal:
        case kir.Deal.ROUND:
            return element // layout.vector % layout.threads
        case kir.Deal.STRIPS | kir.Deal.EACH_WARP:
            columns = layout.shape[-1]
            row, column = element // columns, element % columns
            lane = row % 8 * 4 + column // layout.vector % 4
            warps = layout.threads // kir.WARP
            if layout.deal is kir.Deal.STRIPS:
                return row // 16 % warps * kir.WARP + lane
            return lane[..., None] + np.arange(warps) * kir.WARP


def _leaders(spread: Spread) -> Owners:
    """Return the owners of each element; one for its warp where lanes are not told apart."""
    found = owners(spread)
    return np.where(found < 0, found, found // kir.WARP * kir.WARP) if spread.matrix else found


def _lanes(spread: Spread, thread: int) -> range:
    """Return the threads for which an owner stands."""
    return range(thread, thread + (kir.WARP if spread.matrix else 1))


class Meetings:
    """How ordinary accesses meet, worked out once for each pair of spreads."""

    def __init__(self, kinds: tuple[Kind, ...], threads: int) -> None:
        self.of = np.zeros(threads, dtype=np.int64)
        for kind in kinds:
            if kind.cta == 0:
                for warp in kind.warps:
                    start = warp * kir.WARP
                    lanes = slice(start, start + 1) if kind.leads else slice(start + 1, start + 32)
                    self.of[lanes] = kind.index
        self._kinds = kinds
        self._known: dict[tuple[Spread, Spread], dict[tuple[int, int], Meet]] = {}
        self._touching: dict[Spread, frozenset[int]] = {}

    def touching(self, spread: Spread) -> frozenset[int]:
        """Return the kinds of threads (of CTA 0) that hold a part of the tile."""
        if spread not in self._touching:
            self._touching[spread] = self.holding(spread, range(prod(spread.shape)))
        return self._touching[spread]

    def holding(self, spread: Spread, rows: range) -> frozenset[int]:
        """Return the kinds of threads (of CTA 0) that hold some elements of a slot."""
        found = np.unique(_leaders(spread)[rows.start : rows.stop])
        held = (t for one in found[found >= 0].tolist() for t in _lanes(spread, one))
        return frozenset(int(self.of[t]) for t in held)

    def collide(self, spread: Spread, kind: int) -> bool:
        """Whether threads of one kind touch an element together in one execution."""
        once = replace(spread, matrix=False)
        return self.between(once, once).get((kind, kind), Meet.NEVER) > Meet.THREAD

    def between(self, a: Spread, b: Spread) -> dict[tuple[int, int], Meet]:
        """Return how kinds of threads of CTA 0 meet: (of `a`, of `b`) to the worst case."""
        if (a, b) in self._known:
            return self._known[a, b]
        found: dict[tuple[int, int], Meet] = {}
        if a.buffer != b.buffer or a.shape != b.shape:
            for x in self.touching(a):
                for y in self.touching(b):
                    found[x, y] = self._anywhere(x, y)
        elif a == b and self._private(a):
            found = {(x, x): Meet.THREAD for x in self.touching(a)}
        else:
            left, right = _leaders(a), _leaders(b)
            many = len(self.of)
            both = (left[:, :, None] >= 0) & (right[:, None, :] >= 0)
            pairs = np.unique((left[:, :, None] * many + right[:, None, :])[both])
            for one, two in zip((pairs // many).tolist(), (pairs % many).tolist(), strict=True):
                for x, y in product(_lanes(a, one), _lanes(b, two)):
                    how = Meet.ANY if x // 32 != y // 32 else Meet.WARP if x != y else Meet.THREAD
                    key = int(self.of[x]), int(self.of[y])
                    found[key] = max(found.get(key, how), how)
        self._known[a, b] = found
        return found

    def _anywhere(self, x: int, y: int) -> Meet:
        """Return how two kinds meet whose threads may touch any element."""
        if len({*self._kinds[x].warps, *self._kinds[y].warps}) > 1:
            return Meet.ANY
        return Meet.THREAD if x == y and self._kinds[x].alone else Meet.WARP

    @staticmethod
    def _private(spread: Spread) -> bool:
        """Whether each element has one thread, the same one in every execution."""
        one = spread.layout.shape == spread.shape and spread.layout.deal is not kir.Deal.EACH_WARP
        return one and not (spread.matrix or spread.operand)
