"""Hypothesis strategies for schedules and extents of products, valid by construction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar, get_args

from hypothesis import strategies as st

from fuser.arch import SM_90A, SPARE_REGISTERS, launch_registers
from fuser.dtype import DType
from fuser.fusion.definition import Fusion
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import accumulator
from fuser.kernel.validate.mma import STEP_NBYTES
from fuser.lower.split_k import STAGED
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams, Observe
from fuser.schedule.domain import Access, Domain
from fuser.schedule.matmul import matmul_tiling
from fuser.schedule.matmul_params import (
    CLUSTERS,
    MOST_STAGING,
    SHARING_CLUSTERS,
    MatmulParams,
    Split,
    nearest_registers,
    widest,
)
from fuser.schedule.params import MAX_STAGES, PARTIAL, RESIDENCY, Meet, Prologue
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Choices, Registers
from fuzz.cases.case import Case, specs
from fuzz.cases.draft import rarely
from fuzz.cases.extents import SMALL_TILE, word

SPLITS: dict[str, Split] = {
    "hopper-pipelined": "pipelined",
    "hopper-cooperative": "cooperative",
    "hopper-ping_pong": "ping_pong",
}
"""The split of every family of `MatmulParams`."""
OBSERVES: dict[str, Observe] = {
    "ampere-groups": "groups",
    "ampere-mbarriers": "mbarriers",
    "ampere-threads": "threads",
}
"""What every family of `AmpereParams` observes."""
MATMUL_FAMILIES = (*SPLITS, *OBSERVES)
"""Every schedule family of products."""

ACCUMULATORS = 160
"""Accumulators of a thread over all products of a kernel; its epilogue needs registers too."""
FRAGMENTS = 64
"""Registers of a thread that fragments of operands may take."""
STAGING = 2
"""Slots, at most, of a buffer that a TMA store empties."""
PROVED_STAGES = 4
"""Slots, at most, of the rings of four CTAs: 8 take the prover 23 s, and a case has a minute."""
BARRIER_BYTES = 2048
"""More than the barriers of a kernel take, and the gaps before its buffers."""


ONE_TILE = ("last", "cluster")
"""Ways of sharing a tile that want CTAs with one tile each."""
P = TypeVar("P", MatmulParams, AmpereParams)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the tiles of the worst kernel of a fusion are made of; bytes are those of an element.

    `products` are accumulators, `operands` tensors whose tiles are multiplied, or computed with to
    be: from `leaves` of them, in registers if that is asked for.  `out_bytes` are those of all
    outputs together, `narrow` and `wide` those of the smallest and the largest, `in_bytes` those of
    all that an epilogue reads.  `whole`: columns are those that integers take, too; `half`:
    something is added up in f16, by one CTA only; `parts`: rows of a product are reduced beside it,
    by who has all of their columns.  `halves`: all results have 16 bits, so that tiles may be
    transposed.
    """

    products: int = 1
    operands: int = 2
    out_bytes: int = 4
    narrow: int = 2
    wide: int = 2
    whole: bool = False
    leaves: int = 0
    in_bytes: int = 0
    half: bool = False
    parts: bool = False
    halves: bool = False

    def fits(
        self, tile: tuple[int, int, int], *, threads: int, columns: int = 8, stages: int = 1
    ) -> bool:
        """Tell whether tiles fit shared memory, and the registers of so many threads."""
        _, n, k = tile
        if k * self.narrow % STEP_NBYTES or (self.whole and n % 16 and n not in (8, 24)):
            return False
        held = self.held(tile, threads=threads)
        return held <= ACCUMULATORS and self._shared(tile, columns, stages) <= SM_90A.smem_bytes

    def held(self, tile: tuple[int, int, int], *, threads: int) -> int:
        """Return the registers of a thread that accumulators and computed operands take."""
        m, n, k = tile
        return (self.products * m * n + self.leaves * m * k) // threads

    def _shared(self, tile: tuple[int, int, int], columns: int, stages: int) -> int:
        """Return the bytes of shared memory of rings, staging and barriers."""
        m, n, k = tile
        ring = self.operands * max(m, n) * k * self.wide * stages
        return ring + self.out_bytes * m * columns * STAGING + BARRIER_BYTES

    def stagings(self, params: MatmulParams) -> list[int]:
        """Return how many slots there is room for where columns of results wait to be stored."""
        m, n, _ = params.tile
        shared = self._shared(params.tile, params.columns, params.stages)
        roles = 2 if params.split == "ping_pong" else 1
        slot = roles * self.out_bytes * m * params.columns
        spare = max((SM_90A.smem_bytes - shared) // slot, 0) if slot else 0
        alone = params.splits == 1 and params.inputs == "direct"
        most = STAGING + (spare if alone else 0)
        return [*range(1, min(most, n // params.columns, MOST_STAGING) + 1)]

    def brings(self, params: MatmulParams) -> bool:
        """Tell whether there is room for whole tiles of what the epilogue reads, too."""
        m, n, _ = params.tile
        room = SM_90A.smem_bytes - self._shared(params.tile, params.columns, params.stages)
        return params.persistent and self.in_bytes * m * n * STAGING <= room

    def meetings(self, params: MatmulParams | AmpereParams) -> list[Meet]:
        """Return how CTAs that share a tile can add up their sums."""
        m, n, _ = params.tile
        ways: list[Meet] = ["vectorized"]
        # Rows whose columns come from memory are reduced by a power of two of lanes.
        uneven = self.parts and params.columns & (params.columns - 1)
        ways += [] if params.persistent or uneven else ["last"]
        ways += [] if self.parts else ["scatter"]
        if isinstance(params, AmpereParams):
            return ways
        room = SM_90A.smem_bytes - self._shared(params.tile, params.columns, params.stages)
        together = params.split == "pipelined" and not params.persistent
        together &= params.splits in SHARING_CLUSTERS
        if together and not self.parts and 4 * m * n * self.products <= room:
            ways.append("cluster")
        whole = 4 * m * n * (self.products if params.stacked else 1)
        staged = whole if whole <= STAGED else 8 * m * params.columns
        staged *= 1 if params.stacked else self.products
        return [*ways, "tma"] if staged <= room else ways

    def rings(self, tile: tuple[int, int, int], *, threads: int, columns: int) -> list[int]:
        """Return how many stages fit, of 1..8."""
        counts = range(1, MAX_STAGES + 1)
        fitting = [n for n in counts if self.fits(tile, threads=threads, columns=columns, stages=n)]
        return fitting or [1]


def footprint(fusion: Fusion) -> Footprint:
    """Return what the tiles of the kernels of a fusion are made of, at most."""
    every = [Choices(registers=which) for which in get_args(Registers)]
    domains = [segment.domain for choices in every for segment in segments(fusion, choices)]
    products = [product for domain in domains for product in domain.products]
    types = {arg.dtype for tv in fusion.tensors if tv.op == "mma" for arg in tv.args}
    whole = DType.I8 in types
    types |= {leaf.tv.dtype for product in products for leaf in product.leaves}
    sizes = [dtype.nbytes for dtype in types] or [2]

    def most(accesses: Callable[[Domain], Iterable[Access]]) -> int:
        return max((len({*accesses(domain)}) for domain in domains), default=0)

    def nbytes(accesses: Callable[[Domain], Iterable[Access]]) -> int:
        every = (sum(a.tv.dtype.nbytes for a in accesses(domain)) for domain in domains)
        return max(every, default=0)

    return Footprint(
        max((len(domain.products) for domain in domains), default=0),
        most(lambda d: (access for p in d.products for access in (p.a, p.b, *p.leaves))),
        nbytes(lambda d: d.writes),
        min(sizes),
        max(sizes),
        whole,
        most(lambda d: (leaf for p in d.products for leaf in p.leaves)),
        nbytes(lambda d: d.inputs if d.products else ()),
        any(tv.op == "mma" and accumulator(tv) is DType.F16 for tv in fusion.tensors),
        any(access.tv.parts for domain in domains for access in domain.writes),
        all(
            access.tv.dtype.nbytes == 2 and not access.tv.parts
            for domain in domains
            for access in (domain.writes if domain.products else ())
        ),
    )


@st.composite
def matmul_params(
    draw: st.DrawFn,
    fusion: Fusion,
    *,
    families: tuple[str, ...] = MATMUL_FAMILIES,
    depths: Sequence[int] = (),
    way: str | None = None,
) -> MatmulParams | AmpereParams:
    """Schedules of these families that fit, for a fusion.

    `depths` are stages of rings, and `way` how CTAs are to share tiles, where they can.
    Shrinks towards the first family (pipelined), one warpgroup, a tile of 64 x 16 x 16, one
    stage, one CTA a tile.
    """
    need, unable = footprint(fusion), set[str]()
    if _has_f8(fusion):
        unable = {*OBSERVES}
    elif _sums_over_odd(fusion):
        unable = {f for f, observe in OBSERVES.items() if observe != "threads"}
    family = draw(st.sampled_from([f for f in families if f not in unable] or families))
    if family in OBSERVES:
        return _ampere(draw, need, OBSERVES[family], depths, way)
    return _hopper(draw, need, SPLITS[family], depths, way)


def _hopper(
    draw: st.DrawFn, need: Footprint, split: Split, depths: Sequence[int], way: str | None
) -> MatmulParams:
    groups = 2 if split == "ping_pong" else draw(st.sampled_from([1, 1, 2, 3]))
    sharing = 1 if split == "ping_pong" else groups
    step, threads = 64 * sharing, 128 * sharing
    large = rarely(draw) and rarely(draw)
    registers = _registers(draw, split, groups)
    launched = 128 * (groups + (split != "pipelined"))
    room = (registers[1] if registers else launch_registers(launched)) - SPARE_REGISTERS
    tiles = [
        (m, n, k)
        for m in range(step, 257, step)
        for n in (16, 32, 64, 8, 24, 48, 128, 96, 256, 200)
        for k in (16, 32, 64, 128, 48, 256)
        if (m * n * k <= SMALL_TILE * sharing or large) and need.fits((m, n, k), threads=threads)
        if need.held((m, n, k), threads=threads) <= room and n <= widest(launched)
    ]
    tile = draw(st.sampled_from(tiles or [(step, 8, max(STEP_NBYTES // need.narrow, 16))]))
    columns = _columns(draw, need, tile, threads)
    stages = _stages(draw, need.rings(tile, threads=threads, columns=columns), depths)
    most = 1 if split == "pipelined" else 2 if stages > PROVED_STAGES else 4
    shared = [cluster for cluster in CLUSTERS if prod(cluster) <= most]
    params = MatmulParams(
        tile=tile,
        warpgroups=groups,
        split=split,
        stages=stages,
        prefetch=draw(st.integers(0, stages - 1)),
        persistent=split == "ping_pong" or (way not in ONE_TILE and draw(st.booleans())),
        raster=draw(st.sampled_from([8, 1, 2, 3, 64])),
        columns=columns,
        store=draw(st.sampled_from(["direct", "tma"])),
        registers=registers,
        cluster=draw(st.sampled_from([(1, 1), *([] if way else [(1, 1), *shared])])),
        prologue=_prologue(draw, need),
        overlay=draw(st.sampled_from([True, False])),
    )
    half = launch_registers(2 * launched) - SPARE_REGISTERS
    small = need.held(tile, threads=threads) <= half and tile[1] <= widest(2 * launched)
    if registers is None and small and rarely(draw):
        params, room = replace(params, resident=2), half
    if need.in_bytes and need.brings(params) and not way:
        params = replace(params, inputs=draw(st.sampled_from(["direct", "tma"])))
    alone = need.half or split == "ping_pong" or params.cluster != (1, 1)
    alone |= params.inputs == "tma"
    # In turns a CTA that takes several tiles holds their sums twice: see `live_fragments`.
    alone |= params.persistent and 2 * need.held(tile, threads=threads) > room
    columns = need.products * tile[1]
    if need.products > 1 and columns <= params.widest and not (need.whole and columns % 16):
        params = replace(params, stacked=draw(st.booleans()))
    made = _shared(draw, need, params, way, alone=alone)
    suits = need.halves and (made.store, made.inputs) == ("tma", "direct")
    if suits and (made.splits == 1 or made.meet != "cluster"):
        made = replace(made, transpose=draw(st.booleans()))
    return replace(made, staging=draw(st.sampled_from([STAGING, *need.stagings(made)])))


def _ampere(
    draw: st.DrawFn, need: Footprint, observe: Observe, depths: Sequence[int], way: str | None
) -> AmpereParams:
    warps = draw(st.sampled_from([1, 2, 4, 3, 8]))
    step, threads = 16 * warps, 32 * warps
    tiles = [
        (m, n, k)
        for m in range(step, 257, step)
        for n in (16, 32, 64, 8, 24, 48, 128)
        for k in (16, 32, 64)
        if m * n * k <= SMALL_TILE and need.fits((m, n, k), threads=threads)
        # Each operand has a fragment; that of B is whole in every warp.
        if need.operands * (m * k // threads + n * k // 32) * need.wide // 4 <= FRAGMENTS
    ]
    tile = draw(st.sampled_from(tiles or [(step, 8, max(STEP_NBYTES // need.narrow, 16))]))
    columns = _columns(draw, need, tile, threads)
    stages = _stages(draw, need.rings(tile, threads=threads, columns=columns), depths)
    stages = 1 if observe == "threads" else stages
    ahead: dict[Observe, int] = {"groups": stages - 1, "mbarriers": 0, "threads": 1}
    params = AmpereParams(
        tile=tile,
        warps=warps,
        observe=observe,
        stages=stages,
        prefetch=draw(st.integers(0, ahead[observe])),
        persistent=way not in ONE_TILE and draw(st.booleans()),
        raster=draw(st.sampled_from([8, 1, 2, 3, 64])),
        columns=columns,
        prologue=_prologue(draw, need),
    )
    return _shared(draw, need, params, way, alone=need.half)


def _shared(draw: st.DrawFn, need: Footprint, params: P, way: str | None, *, alone: bool) -> P:
    """Draw how many CTAs share a tile, where they can, and how they put their sums together."""
    many = [1] if alone or way == "alone" else [2, 4, 3, 8] if way else [1, 1, 2, 3, 4, 8, 16]
    many = [2, 4] if way == "cluster" and not alone else many
    params = replace(params, splits=draw(st.sampled_from(many)))
    if params.splits == 1:
        return params
    ways = need.meetings(params)
    params = replace(params, meet=draw(st.sampled_from([m for m in ways if m == way] or ways)))
    if params.meet != "cluster":
        params = replace(params, residency=draw(st.sampled_from(RESIDENCY)))
    # Sums on their way have 16 bits rarely; those of integers stay as they are.
    if not need.whole and rarely(draw):
        params = replace(params, partial=draw(st.sampled_from(PARTIAL)))
    return params


def _prologue(draw: st.DrawFn, need: Footprint) -> Prologue:
    return draw(st.sampled_from(["registers", "memory"])) if need.leaves else "memory"


def _columns(draw: st.DrawFn, need: Footprint, tile: tuple[int, int, int], threads: int) -> int:
    widths = [n for n in dict.fromkeys((64, 32, 16, 8, 24, 48, tile[1])) if tile[1] % n == 0]
    fitting = [n for n in widths if need.fits(tile, threads=threads, columns=n)]
    return draw(st.sampled_from(fitting or [8]))


def _stages(draw: st.DrawFn, rings: list[int], depths: Sequence[int]) -> int:
    """Draw small rings mostly, as each slot adds steps to a simulation; or some that are asked."""
    asked = [n for n in depths if n in rings]
    if asked:
        return draw(st.sampled_from(asked))
    small = [n for n in (1, 2, 3, 4, 3, 2) if n in rings]
    return draw(st.sampled_from(rings if rarely(draw) else small))


def _has_f8(fusion: Fusion) -> bool:
    return any(arg.dtype.is_f8 for tv in fusion.tensors if tv.op == "mma" for arg in tv.args)


def _sums_over_odd(fusion: Fusion) -> bool:
    """Tell whether words do not divide an extent that is summed over, whatever the call."""
    return any(
        axis.role is AxisRole.K and isinstance(axis.extent, int) and axis.extent % word(fusion)
        for tv in fusion.tensors
        if tv.op == "mma"
        for axis in roles(tv)
    )


def _registers(draw: st.DrawFn, split: Split, groups: int) -> tuple[int, int] | None:
    """Draw shares of the registers: none, the largest for those that compute, or any."""
    if split == "pipelined" or groups == 1 or not draw(st.booleans()):
        return None
    if draw(st.booleans()):
        return nearest_registers(groups)
    have = launch_registers(128 * (groups + 1))
    shares = [
        (load, compute)
        for load in (40, 24, 56, 80)
        for compute in range(have + 8, 241, 8)
        if load + compute * groups <= have * (groups + 1)
    ]
    return draw(st.sampled_from(shares))


def suited(case: Case) -> Case:
    """Return the case with a tile that every operand suits.

    Rows of an operand that lies along the columns of the result must suit a swizzle: they are
    multiples of 16 elements.  Whether an operand lies so may depend on the call.
    """
    params = case.params
    if not isinstance(params, MatmulParams) or params.tile[1] % 16 == 0:
        return case
    choices = classify(case.fusion, params, specs(case)).choices
    for segment in segments(case.fusion, choices):
        if not segment.domain.products:
            continue
        tiles = matmul_tiling(segment.domain, params)
        if any(b.transposed for _, b in tiles.operands):
            m, n, k = params.tile
            wide = max(n // 16 * 16, 16)
            columns = 16 if wide % params.columns else params.columns
            return replace(case, params=replace(params, tile=(m, wide, k), columns=columns))
    return case
