"""From a domain and params to the axes of a kernel; and the default heuristic for params."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, TensorView
from fuser.schedule.domain import (
    Access,
    Domain,
    crossed,
    flat_refusal,
    is_whole,
    runs,
    unit_stride,
)
from fuser.schedule.params import MAX_WARPS, PointwiseParams
from fuser.schedule.products.tiles import BARRIERS
from fuser.schedule.shape_class import ShapeClass

MAX_TMA_RANK = 5
MAX_POSITION = 2**31 - 1
"""Positions along an axis are 32-bit."""
FILLED = 0.8
"""Of a tile's columns, the part below which rows leave too many threads without an element."""
WARP = 32
"""Threads of a warp."""
VECTOR_BYTES = 16
"""Bytes of the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The axes of one kernel and the tile of each; 1 but for the last two.

    If `split`, one merged axis is seen as two, rows and columns; the launch chooses how many
    columns.  If `flat`, all axes are walked as one; tensors without some of them then repeat.  If
    it `transposes`, tensors with neighbours along the rows are seen with their last two axes
    exchanged.
    """

    domain: Domain
    split: bool
    tile: tuple[int, ...]
    flat: bool = False
    transposes: bool = False

    @property
    def rank(self) -> int:
        """Axes of the kernel."""
        return len(self.tile)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Axes of the domain behind each axis of the kernel; one group stands for a split axis."""
        return (tuple(range(len(self.domain.extents))),) if self.flat else self.domain.merged

    @property
    def walked(self) -> tuple[int, ...]:
        """Axes of the kernel whose tiles make up the result: all of them."""
        return tuple(range(self.rank))

    def alike(self, access: Access, axis: int) -> int:
        """Return how many neighbours along a kernel axis share an element: of these none do."""
        del access, axis
        return 1

    def axes(self, access: Access) -> tuple[int, ...]:
        """Axes of the kernel along which a tensor is seen, in its own order: all of them."""
        own = tuple(range(self.rank))
        return (*own[:-2], *own[:-3:-1]) if self.turned(access) else own

    def turned(self, access: Access) -> bool:
        """Tell whether tiles of a tensor are transposed: neighbours lie along rows."""
        if not self.transposes:
            return False
        *_, rows, cols = range(self.rank)
        return self.varies(access, cols) and self.unit(access, rows)

    def varies(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's elements differ along a kernel axis."""
        if all(walked is None for walked in self.domain.writes[0].coords):  # one element in all
            return access in self.domain.writes
        if self.flat:
            return any(walked is not None for walked in access.coords)
        group = self.domain.merged[0 if self.split else axis]
        return access.axis_of(group[-1]) is not None

    def unit(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's stride along a kernel axis is known to be 1."""
        if (self.split and axis == 0) or not self.varies(access, axis):
            return False
        if self.flat:
            return True
        group = self.domain.merged[0 if self.split else axis]
        walked = access.axis_of(group[-1])
        return walked is None or unit_stride(access.tv, walked)

    def cycles(self, access: Access) -> tuple[range, ...]:
        """Return the loop axes by which a tensor repeats along the one axis of the kernel."""
        rank = len(self.domain.extents)
        if not self.flat or not self.varies(access, 0) or is_whole(access, rank):
            return ()
        return runs(access, rank)

    def tma_shape(self, access: Access) -> tuple[int, ...]:
        """Tile of a tensor, in its own order: 1 along the axes that it does not vary along."""
        tile = self.tile
        return tuple(tile[axis] if self.varies(access, axis) else 1 for axis in self.axes(access))

    def covers(self, access: Access) -> bool:
        """Tell whether a tensor varies along all axes that a tile has more than one element of."""
        return prod(self.tma_shape(access)) == prod(self.tile)

    def tma_refusal(self, access: Access) -> str | None:
        """Say why TMA cannot move tiles of this tensor whatever its shape; None if it can.

        Source: CUDA driver API, cuTensorMapEncodeTiled (rank 1..5, contiguous inner axis, inner
        box a multiple of 16 bytes).
        """
        last = self.axes(access)[-1]
        nbytes = self.tile[last] * access.tv.dtype.nbytes
        if self.cycles(access):
            return f"{access.tv} repeats along the one axis of the loops"
        if not self.varies(access, last) or not self.unit(access, last):
            return f"{access.tv} is not contiguous along the last axis of the loops"
        if self.rank > MAX_TMA_RANK:
            return f"the loops have {self.rank} axes, a TMA box at most {MAX_TMA_RANK}"
        if nbytes % 16:
            return f"a row of the tile is {nbytes} bytes, TMA needs multiples of 16"
        nbytes = prod(self.tma_shape(access)) * access.tv.dtype.nbytes
        if nbytes % 128:
            return f"a tile of {access.tv} is {nbytes} bytes, slots for TMA are multiples of 128"
        return None


def tiling(domain: Domain, params: PointwiseParams) -> Tiling:
    """Lay the tile of `params` over the merged axes of a domain."""
    rows, cols = params.tile
    if params.transpose:
        domain = crossed(domain)
    rank = len(domain.merged)
    if params.flat and rank > 1:
        why = flat_refusal(domain)
        if why is not None:
            params.refuse("flat", f"{why}; use flat=False")
        return Tiling(domain, split=False, tile=(cols,), flat=True)
    if params.transpose and rank > 1:
        return Tiling(domain, split=False, tile=(1,) * (rank - 2) + (rows, cols), transposes=True)
    if rank == 1 and rows == 1:
        return Tiling(domain, split=False, tile=(cols,))
    if rank == 1:
        return Tiling(domain, split=True, tile=(rows, cols))
    return Tiling(domain, split=False, tile=(1,) * (rank - 2) + (rows, cols))


def copied(tiles: Tiling, params: PointwiseParams, shapes: ShapeClass) -> dict[Access, int]:
    """Return the inputs that cp.async can bring, and how many elements at a time.

    They have an element for each of a tile, and neighbours along its last axis.

    Source: PTX ISA, "cp.async" (4, 8 or 16 bytes, aligned).
    """
    found: dict[Access, int] = {}
    for access in tiles.domain.reads:
        nbytes = access.tv.dtype.nbytes
        width = min(params.vector, shapes.elements(access.name), VECTOR_BYTES // nbytes)
        near = tiles.unit(access, tiles.axes(access)[-1]) and not tiles.cycles(access)
        if near and tiles.covers(access) and width * nbytes >= 4:
            found[access] = width
    return found


FEW = 8
"""Elements along an axis, at most, for which nothing is gained by transposing tiles."""
HELD = 144
"""Registers of a thread that what it loads of a tile that is transposed may take."""
LOADED = 32
"""Bytes of a tensor that a thread loads of a tile whose rows begin anywhere."""
SIDE, SIDE_BYTES = 64, 256
"""Rows and columns of a tile that is transposed: elements, and bytes of the widest, at most."""


def default_transposing(
    domain: Domain, loops: Sequence[int], *, by_tma: bool
) -> PointwiseParams | None:
    """Choose params for a kernel whose tensors lie in different orders; None if that is not so.

    `loops` are the extents of the loop axes.  Rows and columns of a tile are lines of memory, and
    a thread has four vectors of it, so that enough is on its way before threads join; by TMA tiles
    are on their way without registers.  Of small or short tensors tiles are smaller, a thread has
    two vectors, and loads them itself: boxes of less than lines are slow, and so is the first one.
    """
    asked = PointwiseParams((1, 1), 1, 1, None, "direct", "direct", transpose=True)
    tiles = tiling(domain, asked)
    whole = [a for a in (*domain.reads, *domain.writes) if tiles.turned(a) or _spans(tiles, a)]
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    if not any(map(tiles.turned, whole)) or min(extents[-2:]) <= FEW:
        return None
    vector = max(2, min(8, VECTOR_BYTES // min(access.tv.dtype.nbytes for access in whole)))
    side = rows = cols = min(SIDE, SIDE_BYTES // max(access.tv.dtype.nbytes for access in whole))
    while rows > vector and rows >= 2 * extents[-2]:
        rows //= 2
    while cols > vector and cols >= 2 * extents[-1]:
        cols //= 2
    staged = sum(access.tv.dtype.nbytes for access in whole if tiles.turned(access))
    while rows * cols * staged > SM_90A.smem_bytes - BARRIERS and max(rows, cols) > vector:
        rows, cols = (rows // 2, cols) if rows >= cols else (rows, cols // 2)
    around = prod(extents[:-2])
    while max(rows, cols) > SIDE // 2 and (
        around * -(-extents[-2] // rows) * -(-extents[-1] // cols) < 2 * SM_90A.sms
    ):
        rows, cols = (rows // 2, cols) if rows >= cols else (rows, cols // 2)
    lines = rows == cols == side
    words = sum(max(access.tv.dtype.nbytes // 4, 1) for access in domain.reads)
    each = vector * (4 if lines else 2)
    while each > 2 and each * words > HELD:
        each //= 2
    while rows * cols > MAX_WARPS * WARP * each:
        rows, cols = (rows // 2, cols) if rows >= cols else (rows, cols // 2)
    return PointwiseParams(
        tile=(rows, cols),
        vector=min(vector, each),
        warps=max(1, rows * cols // (WARP * each)),
        ctas_per_sm=None,
        load="tma" if by_tma and rows == cols == side else "direct",
        store="direct",
        transpose=True,
    )


def _spans(tiles: Tiling, access: Access) -> bool:
    """Tell whether a tensor varies along both axes of a tile."""
    return all(tiles.varies(access, axis) for axis in range(tiles.rank)[-2:])


def suited(params: PointwiseParams, tiles: Tiling, shapes: ShapeClass) -> PointwiseParams:
    """Return params with vectors as wide as tensors that are not transposed are aligned.

    Where that is less, lanes still have neighbours, and threads no more than eight vectors.  Tiles
    of lines are transposed by threads then, which load 32 bytes of each tensor, and have half as
    many rows: measured on an H200, x + y.T of 9 odd shapes by 32 x 64, 32 x 128 and 64 x 64
    elements, 8191 x 8191 122.9, 125.6 and 124.2 us, 60001 x 523 58.8, 66.1 and 61.8.
    """
    vector, (rows, cols) = params.vector, params.tile
    for access in (*tiles.domain.reads, *tiles.domain.writes):
        aligned = shapes.elements(access.name)
        narrow = aligned * access.tv.dtype.nbytes < VECTOR_BYTES and not tiles.cycles(access)
        if narrow and _spans(tiles, access) and not tiles.turned(access):
            vector = min(vector, aligned)
    if vector == params.vector:
        return params
    if params.transpose and rows == cols == SIDE:
        widest = max(a.tv.dtype.nbytes for a in (*tiles.domain.reads, *tiles.domain.writes))
        tile, each = (rows // 2, cols), min(16, LOADED // widest)
        warps = prod(tile) // (each * WARP)
        return replace(params, tile=tile, vector=vector, warps=warps, load="direct")
    most = 8 * vector * WARP
    while rows * cols > most * params.warps:
        if params.transpose and 2 * params.warps <= MAX_WARPS:
            params = replace(params, warps=2 * params.warps)
        else:
            rows, cols = (rows // 2, cols) if rows > 1 else (rows, cols // 2)
    return replace(params, vector=vector, tile=(rows, cols))


def default_params(fusion: Fusion) -> PointwiseParams:
    """Choose params for a fusion: direct, 16-byte accesses of the narrowest 1..2-byte type.

    Two vectors per thread and input in flight at full occupancy are 64 KB per SM, more than the
    48 KB that saturate an H200.
    """
    sizes = [tv.dtype.nbytes for tv in fusion.tensors if tv.op == "input" or _stored(fusion, tv)]
    vector = max(1, min(8, 16 // min(sizes, default=4)))
    return PointwiseParams(
        tile=(1, 128 * vector * 2),
        vector=vector,
        warps=4,
        ctas_per_sm=None,
        load="direct",
        store="direct",
    )


WAVE = SM_90A.sms * 1024
"""Threads that run at once, each with up to 64 registers."""


CUT = 112_000
"""Threads, at most, by which a kernel whose last vector is cut has narrower ones.  On an H100, by
vectors of 1, 2, 4 and 8, silu(x + bias) + r of 27 x 37 1.43, 1.72, 1.79, 2.15; 87 x 251 1.62, 1.72,
1.79, 1.95; 31 x 4549 1.91, 1.80, 1.87, 2.08; 49 x 5001 2.42, 2.09, 1.90, 2.00; 2625 x 169 3.37,
2.55, 2.16, 2.28."""


def default_direct(domain: Domain, loops: Sequence[int]) -> PointwiseParams:
    """Choose params for a kernel whose tensors lie in one order: each thread loads what it holds.

    `loops` are the extents of the loop axes.  A thread takes 16 bytes of the widest tensor at a
    time, so that neighbouring lanes have neighbouring bytes of every one; of large tensors two such
    vectors: at 1024 threads an SM these are the 32 to 48 KB on their way that an H200's memory
    wants.  Of small ones, which are a matter of latency, a thread takes one vector, a narrower one
    where SMs would be left without work, or where the last one were cut: its elements are loaded
    behind each other, of one tensor after the other.
    """
    rank, total = len(domain.extents), prod(loops)
    every = (*domain.reads, *domain.writes)
    full = [access for access in every if _has_all(access, rank)] or every
    widest = max((access.tv.dtype.nbytes for access in full), default=4)
    vector = max(1, min(8, VECTOR_BYTES // widest))
    many = 2 if total >= 2 * WAVE * 2 * vector else 1
    while vector > 2 and total < 2 * SM_90A.sms * 128 * vector:
        vector //= 2
    elements = cols = 128 * vector * many
    last = prod(loops[axis] for axis in domain.merged[-1])
    if len(domain.merged) > 1:
        vector = min(vector, 1 << max(last - 1, 0).bit_length())
        while cols > vector and cols >= 2 * last:
            cols //= 2
    params = PointwiseParams((elements // cols, cols), vector, 4, None, "direct", "direct")
    flat = _walks_flat(params, domain, loops)
    if total % vector and total <= CUT * vector and (flat or len(domain.merged) == 1):
        while vector > 1 and total <= CUT * vector // 2:
            vector //= 2
        return replace(params, tile=(1, 128 * vector), vector=vector, flat=flat)
    return replace(params, tile=(1, elements), flat=True) if flat else params


PERSISTENT = 8
"""CTAs of an SM, at most, where CTAs take tiles in turn."""
BOX, RING = (16, 256), 3
"""Rows and columns of tiles that the TMA engine copies, and slots of their rings.  Source: of the
schedules of `fuzz/bench/pointwise.py` those that are often among the fastest."""


def pointwise_candidates(default: PointwiseParams) -> Iterator[PointwiseParams]:
    """Yield neighbours of a default schedule that are valid in themselves.

    More and fewer elements a thread, threads a CTA and neighbours a thread; CTAs that take tiles in
    turn; rings of tiles by the copy engine, of one axis or two; of what is transposed, the other
    way to load.
    """
    (rows, cols), warps, vector = default.tile, default.warps, default.vector
    changes: list[dict[str, Any]] = [{"load": "tma" if default.load == "direct" else "direct"}]
    if not default.transpose:
        most = max(1, min(PERSISTENT, 2048 // (WARP * warps)))
        wide = 8 * WARP * vector * 2
        ring = {"ctas_per_sm": 2, "warps": 8, "stages": RING, "prefetch": RING - 1}
        changes = [
            {"tile": (rows, 2 * cols)},
            {"tile": (rows, 2 * cols), "warps": 2 * warps},
            {"tile": (rows, cols // 2)},
            {"ctas_per_sm": most},
            {"load": "bulk", "tile": (1, wide), **ring},
            {"load": "tma", "tile": BOX, **ring, "flat": False},
            {"vector": vector // 2},
            {"vector": 2 * vector},
        ]
    changes += [
        {"tile": (rows, cols // 2), "warps": warps // 2},
        {"tile": (rows // 2, cols), "warps": warps // 2},
        {"warps": 2 * warps},
        {"warps": warps // 2},
    ]
    for change in changes:
        try:
            neighbour = replace(default, **change)
        except ScheduleError:
            continue
        yield neighbour


def _has_all(access: Access, rank: int) -> bool:
    """Tell whether a tensor varies along all loop axes."""
    return all(access.axis_of(axis) is not None for axis in range(rank))


def _walks_flat(params: PointwiseParams, domain: Domain, loops: Sequence[int]) -> bool:
    """Tell whether all axes are better walked as one.

    So that accesses are wider; or, where no tensor of all axes lies in another order or with gaps,
    because rows fill tiles badly, or as nothing is lost by it: all that repeats does so by whole
    vectors, and no division by the tiles of a row stands before the first load.
    """
    rank, cols = len(domain.extents), params.tile[1]
    if len(domain.merged) == 1 or flat_refusal(domain) is not None:
        return False
    if prod(loops) + cols > MAX_POSITION:
        return False
    last = prod(loops[axis] for axis in domain.merged[-1])
    every = (*domain.reads, *domain.writes)
    if any(last * a.tv.dtype.nbytes % VECTOR_BYTES for a in every if is_whole(a, rank)):
        return True
    if any(_has_all(a, rank) and not is_whole(a, rank) for a in every):
        return False
    filled = last / (-(-last // cols) * cols) if last else 1
    return filled < FILLED or all(_repeats_by(params.vector, a, loops) for a in every)


def _repeats_by(vector: int, access: Access, loops: Sequence[int]) -> bool:
    """Tell whether a tensor repeats, if it does, after a multiple of so many neighbours."""
    rank = len(loops)
    found = runs(access, rank)
    if not found or is_whole(access, rank):
        return True
    last = access.axis_of(rank - 1)
    alone = len(found) == 1 and last is not None and unit_stride(access.tv, last)
    return alone and prod(loops[axis] for axis in found[0]) % vector == 0


def _stored(fusion: Fusion, tv: TensorView) -> bool:
    return any(out is tv for out in fusion.outputs)
