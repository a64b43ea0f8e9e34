"""Which schedule a fusion with products gets where the user names none.

A model of three facts: tiles are computed in waves of one per SM, or of two; each kind of tile
keeps the tensor cores busy to a measured degree; epilogues are hidden only where another warpgroup
multiplies meanwhile, and take as long as a thread has elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.ir import Fusion, TensorView, ancestry
from fuser.fusion.ops import OPS, Rule, accumulator
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Access, Domain, Product
from fuser.schedule.matmul import sides, sizes
from fuser.schedule.matmul_params import MatmulParams, Split, nearest_registers
from fuser.schedule.params import MAX_SPLITS, MAX_STAGES

BARRIERS = 1024
"""Bytes of shared memory that barriers and alignment take, at most."""
RESERVED = 1024
"""Bytes of shared memory that the system takes of an SM for each CTA.  Source: CUDA programming
guide, "compute capabilities"."""
COLUMNS = (64, 48, 32, 16)
"""Columns of the epilogue at a time."""
UNHIDDEN = 400.0
"""Steps of a cooperative tile's loop, times 64 elements, that its epilogue takes at the tensor
cores' expense for every costly operation."""
BEHIND = 300.0
"""The same for the last tile of a CTA, of any kind, where each thread has 128 elements.  Measured
on an H200, 18 shapes of one wave: gelu takes 2.2 us longer with 64 elements a thread, 5.4 us with
192."""
READ = 450.0
"""And for every tensor of whole tiles that it reads: 2.0 us with 64 elements a thread, 5 us with
128, 11 us with 192."""
WIDEST = 256
"""Columns of the widest tile."""
BYTES_PER_US = 4.3e6
"""What comes from memory."""
STEP_US = 0.56
"""A step of 64 elements of a tile of 128 x 256 at the tensor cores' rate (990 TFLOP/s, 132 SMs)."""
TURN_US = 1.0
"""A CTA's turn, for every `TURN_NBYTES` of its sums.  Measured on an H200."""
TURN_NBYTES = 16384
COSTLY = 256
"""Columns of a result up to which an A that takes many instructions is computed in registers."""
COMPUTED = {1: 512, 2: 2048, 4: 1024}
"""The same for any other A, by the bytes of an element that it is computed from.  Measured on an
H200, 8192 rows, against a kernel that stores A: with that many columns i8 takes 0.90 of the time,
bf16 0.87, f32 0.88, and with twice as many 1.10, 0.95 and 1.04; a silu 0.79 and 1.02."""
STACKED = 128
"""Columns of a product from which its wgmmas are fast by themselves.  Measured on an H200, gated
layers: one wgmma for both is 3 to 11 % faster with 64 columns each, 0.5 % faster to 1.5 % slower
with 128, but 1 to 3 % faster in ping-pong."""
EMPTY_HANDED = 0.8
"""Share of its rate that a ping-pong tile keeps where results are stored by threads, as parts of
reductions are: no products stay in flight then.  Measured on an H200, row statistics of 4096 x
14336 x 4096: 814 us against 689 us in the other order."""
ALONE = 0.8
"""Share of its rate that a ping-pong tile keeps where each CTA has one tile only."""


@dataclass(frozen=True, slots=True)
class TileKind:
    """A kind of tile, with the share of the tensor cores' rate that it reaches.

    Measured on an H200, 8192 x 8192 x 8192 and 4096 x 4096 x 4096 in bf16, relative to the first.
    """

    rows: int
    cols: int
    split: Split
    warpgroups: int
    rate: float


KINDS = (
    TileKind(128, 256, "cooperative", 2, 1.0),
    TileKind(128, 192, "ping_pong", 2, 1.03),
    TileKind(128, 128, "ping_pong", 2, 0.985),
    TileKind(
        64, 256, "ping_pong", 2, 0.99
    ),  # 0.975 there, but 1.05 of 128 x 128 at 512 x 28672 x 8192
    TileKind(64, 128, "ping_pong", 2, 0.65),
    TileKind(64, 256, "cooperative", 1, 0.6),
    TileKind(64, 128, "cooperative", 1, 0.55),
    TileKind(64, 64, "cooperative", 1, 0.35),
)
"""What is chosen from; with several products in one loop they share the columns."""


def _of_one_wave(around: int, m: int, n: int, sms: int) -> list[TileKind]:
    """Return the kind of tile of 64 rows that gives every SM one, if there is one.

    Measured on an H200, 64 x 18944 x 3584: tiles of 144 columns, 132 of them, take 35.4 us, 74 of
    256 columns 36.9.
    """
    rows = around * ceil(m / 64)
    if rows == 0 or rows > sms:
        return []
    cols = ceil(ceil(n / (sms // rows)) / 16) * 16
    if not 128 < cols < WIDEST:
        return []
    return [TileKind(64, cols, "cooperative", 1, 0.55 + 0.05 * (cols - 128) / 128)]


PAIR = TileKind(128, 128, "pipelined", 2, 1.02)
"""Two CTAs an SM, whose epilogues lie in their rings: one multiplies while the other brings its
first operands or stores its results, and threads have half of the elements each.  Measured on an
H200, 792 x 4664 x 320: 7.9 us, where one CTA an SM takes 9.8; plus a tensor, 9.9 and 13.9."""


def _in_pairs(around: int, m: int, n: int, sms: int) -> bool:
    """Tell whether all tiles run at once, two an SM.

    With fewer tiles SMs have one alone, and with more the last of them run alone.
    """
    tiles = around * ceil(m / PAIR.rows) * ceil(n / PAIR.cols)
    return sms < tiles <= 2 * sms


SHARED_KINDS = (
    TileKind(128, 128, "pipelined", 2, 0.85),
    TileKind(64, 128, "pipelined", 1, 0.55),
    TileKind(64, 64, "pipelined", 1, 0.35),
)
"""What is chosen from where CTAs are asked to share a tile; rates as of cooperative tiles."""
SCATTERED_KINDS = (
    TileKind(128, 128, "pipelined", 2, 0.85),
    TileKind(128, 64, "pipelined", 2, 0.55),
    TileKind(64, 128, "pipelined", 1, 0.55),
    TileKind(64, 64, "pipelined", 1, 0.35),
    TileKind(64, 32, "pipelined", 1, 0.2),
)
"""What is chosen from where too few tiles would run: the first that fills the device.  Measured on
an H200, products of 128 to 512 rows with a long K: larger tiles read less from the L2, where they
do not ask for more CTAs than `SCATTERED_SPLITS`."""
SCATTERED_SPLITS = {128 * 128: 8}
"""CTAs that share a tile of so many elements; 16 share a smaller one.  With more of them the sums
that they store and load take longer than the products."""
FEWEST_STEPS = 4
"""Steps along K that are worth a CTA."""
PARTED_KINDS = (
    TileKind(128, 256, "cooperative", 2, 0.95),
    TileKind(128, 192, "cooperative", 2, 0.92),
    TileKind(128, 128, "cooperative", 2, 0.85),
    TileKind(64, 256, "cooperative", 1, 0.6),
    TileKind(64, 128, "cooperative", 1, 0.55),
    TileKind(64, 64, "cooperative", 1, 0.35),
    TileKind(64, 32, "cooperative", 1, 0.2),
)
"""What is chosen from where tiles fill less of the device than CTAs that share them."""
PARTED_SPLITS, LARGE = (8, 16), 128 * 128
"""CTAs that share one of so many elements, or a smaller one, at most."""
AT_BEST = 0.85
"""Share of the time of whole tiles that shared ones may be thought to take: what is not seen here
takes some, too."""
EXCHANGE_US, EXCHANGED_NBYTES_PER_US = 2.0, 50_000.0
"""What a grid barrier takes, and the bytes of sums that a CTA then stores and loads, each of them.
Estimates from the rows of 128 to 512 rows with a long K."""
MORE = 1.08
"""A smaller tile is worth it if so many times as many CTAs then run."""


def default_matmul_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int = SM_90A.sms
) -> MatmulParams:
    """Choose params for a kernel with products; `loops` are the extents of its loop axes.

    CTAs share a tile where that is asked of a product, and there are two steps or more; and where
    few tiles have a long K.
    """
    (around, m, n), depths = sizes(domain, loops)
    depth = sum(depths)
    costly = sum(OPS[tv.op].rule is Rule.FLOAT for tv in fusion.tensors if tv.op in OPS)
    many = len(domain.products)
    parts = any(access.tv.parts for access in domain.writes)
    rows, cols = ({*axes} for axes in sides(domain))
    read = sum(bool(rows & {*a.coords}) and bool(cols & {*a.coords}) for a in domain.inputs)

    def loop(kind: TileKind) -> tuple[int, float]:
        """Return the waves, and the steps that a wave takes at the tensor cores' rate."""
        wide = max(kind.cols // many // 16 * 16, 16)
        tiles = around * ceil(m / kind.rows) * ceil(n / wide)
        at_once = 2 if kind == PAIR else 1
        waves = ceil(tiles / (at_once * sms))
        steps = max(depth / many, 64) / 64 * kind.cols / 256 * kind.rows / 128 * at_once
        rate = kind.rate
        if waves == 1 and kind.split == "ping_pong":  # the second warpgroup has nothing to do
            rate *= ALONE
        if parts and kind.split == "ping_pong":
            rate *= EMPTY_HANDED
        return waves, steps / rate

    def time(kind: TileKind) -> float:
        waves, steps = loop(kind)
        exposed = UNHIDDEN / 64 * costly * kind.rows * kind.cols / (128 * 256)
        return waves * (steps + (exposed if kind.split == "cooperative" else 0.0))

    def to_the_end(kind: TileKind) -> float:
        """Return the steps until the last tile is stored, of few waves."""
        waves, steps = loop(kind)
        turns = kind.split == "ping_pong"
        each = kind.rows * kind.cols / (128 if turns else 128 * kind.warpgroups)
        behind = (BEHIND * costly + READ * read) / 64 * each / 128
        return waves * steps + behind * (1 if turns else waves)

    meets = [product.tv.meet for product in domain.products if product.tv.meet is not None]
    if meets:
        asked = _shared(domain, (around, m, n), depths, sms)
        if asked is not None:
            return replace(asked, meet=meets[0])
    scattered = None if parts else _scattered(domain, (around, m, n), sms, depth)
    if scattered is not None:
        return scattered
    # What computes A in registers does so once for every column of tiles.
    computed = any(product.leaves for product in domain.products)
    of_one_wave = _of_one_wave(around, m, n, sms) if many == 1 else []
    every = (*KINDS, *of_one_wave)
    kinds = [kind for kind in every if not computed or kind.cols >= min(n, WIDEST)]
    able = [kind for kind in sorted(kinds, key=time) if _params(domain, kind, many)]
    if many == 1 and not (computed or parts) and _in_pairs(around, m, n, sms):
        able = sorted([able[0], *([PAIR] if _params(domain, PAIR, 1) else [])], key=to_the_end)
    best = _params(domain, able[0], many)
    assert best is not None, "these fit"
    if many == 1 and not (computed or parts):
        return _partly_shared(domain, (around, m, n), sms, depth, time(able[0])) or best
    return best


def _scattered(
    domain: Domain, extents: tuple[int, int, int], sms: int, depth: int
) -> MatmulParams | None:
    """Choose params by which CTAs share a tile without turns, if few tiles have a long K."""
    around, m, n = extents
    first, *others = domain.products
    if others or first.leaves or accumulator(first.tv) is DType.F16:
        return None
    if not 0 < 2 * around * ceil(m / 64) * ceil(n / 64) <= sms:
        return None
    best: MatmulParams | None = None
    running = 0.0
    for kind in SCATTERED_KINDS:
        alone = _params(domain, replace(kind, split="cooperative"), 1)
        if alone is None or (kind.rows > 64 and m <= 64):
            continue
        rows, wide, step = alone.tile
        tiles = around * ceil(m / rows) * ceil(n / wide)
        most = SCATTERED_SPLITS.get(rows * wide, 16)
        splits = min(sms // tiles, most, ceil(depth / step) // FEWEST_STEPS)
        if splits < 2 or tiles * splits <= MORE * running:
            continue
        if tiles * most < sms // 2:  # another kind may fill the device
            continue
        running = tiles * splits
        best = _at_once(alone, splits)
    return best


UNALIGNED = (
    (16, (16, 32, 64), 1, 12),
    (32, (32, 64, 64), 2, 6),
    (64, (64, 64, 64), 4, 3),
    (256, (128, 128, 32), 8, 1),
)
"""For operands that no engine copies where they lie: rows, at most; tile, warps, CTAs an SM."""
UNALIGNED_STEPS = 8
"""Steps along K that are worth a CTA then."""
BY_THREADS, BY_ENGINE, EACH_US = (3.0e6, 2.0e8), (4.0e6, 6.0e8), 2.5
"""Bytes and floating-point operations a microsecond, of threads that load operands and of engines;
and what a kernel takes that copies an operand first.  Estimates, not measured."""


def default_unaligned_params(
    domain: Domain, loops: Sequence[int], copied: Sequence[Access], sms: int = SM_90A.sms
) -> AmpereParams | None:
    """Choose params by which threads load operands, some of which would have to be `copied` first.

    None where copies are faster, by an estimate, or there are several products.
    """
    (around, m, n), (depth, *more) = sizes(domain, loops)
    first, *others = domain.products
    if others or more or accumulator(first.tv) is not DType.F32 or first.a.tv.dtype.nbytes == 1:
        return None
    kind = next((kind for kind in UNALIGNED if m <= kind[0]), None)
    if kind is None or first.leaves or any(access.tv.parts for access in domain.writes):
        return None
    nbytes = [prod(loops[c] for c in a.coords if c is not None) * a.tv.dtype.nbytes for a in copied]
    flops, every = 2.0 * around * m * n * depth, 2.0 * around * (m * depth + n * depth + m * n)
    by_threads, by_engine = (
        max((every + again) / rate, flops / product)
        for again, (rate, product) in ((0, BY_THREADS), (2 * sum(nbytes), BY_ENGINE))
    )
    if by_threads > by_engine + EACH_US * len(copied):
        return None
    _, (rows, wide, step), warps, resident = kind
    step = step * 2 // first.a.tv.dtype.nbytes
    tiles = around * ceil(m / rows) * ceil(n / wide)
    most = min(ceil(depth / step) // UNALIGNED_STEPS, MAX_SPLITS)
    splits = max(1, min(sms * resident // max(tiles, 1), most))
    return AmpereParams(
        (rows, wide, step), warps, "threads", 1, 1, persistent=False, columns=min(wide, 64),
        splits=splits, meet="last",
    )  # fmt: skip


def columns_of_share(wide: int, splits: int) -> int:
    """Return of how many columns each CTA adds up sums, where so many share a tile of `wide`."""
    most = max(8, wide // splits // 8 * 8)
    return next(columns for columns in range(most, 0, -8) if wide % columns == 0)


def _partly_shared(
    domain: Domain, extents: tuple[int, int, int], sms: int, depth: int, whole: float
) -> MatmulParams | None:
    """Choose params by which a few CTAs share a tile, all of them at once, if that is fast enough.

    `whole` are the steps that whole tiles take.
    """
    if accumulator(domain.products[0].tv) is DType.F16:
        return None
    around, m, n = extents
    operands = around * depth * (m + n) * domain.products[0].a.tv.dtype.nbytes
    floor = operands / BYTES_PER_US / STEP_US
    best, most = None, AT_BEST * max(whole, floor)
    for kind in PARTED_KINDS:
        alone = _params(domain, kind, 1)
        if alone is None:
            continue
        rows, wide, step = alone.tile
        steps, tiles = ceil(depth / step), around * ceil(m / rows) * ceil(n / wide)
        at_most = PARTED_SPLITS[rows * wide < LARGE]
        splits = min(sms // max(tiles, 1), at_most, steps // FEWEST_STEPS)
        if splits < 2:
            continue
        share = step / 64 * wide / 256 * rows / 128
        exchanged = 2 * 4 * rows * wide * (splits - 1) / splits
        behind = EXCHANGE_US + exchanged / EXCHANGED_NBYTES_PER_US
        time = max(ceil(steps / splits) * share / kind.rate, floor) + behind / STEP_US
        if time < most:
            most, best = time, _at_once(alone, splits)
    return best


def _at_once(alone: MatmulParams, splits: int) -> MatmulParams:
    """Return params by which so many CTAs share a tile, without turns."""
    return replace(
        alone,
        prefetch=alone.stages - 1,
        persistent=False,
        registers=None,
        columns=columns_of_share(alone.tile[1], splits),
        splits=splits,
        meet="scatter",
        residency="co-resident",
    )


def _shared(
    domain: Domain, extents: tuple[int, int, int], depths: list[int], sms: int
) -> MatmulParams | None:
    """Choose params by which CTAs share a tile, if its sums have two steps."""
    around, m, n = extents
    many = len(domain.products)
    found = []
    for kind in SHARED_KINDS:
        alone = _params(domain, replace(kind, split="cooperative"), many)
        if alone is None:
            continue
        rows, wide, step = alone.tile
        tiles = around * ceil(m / rows) * ceil(n / wide)
        share = rows * wide * many / (128 * 256) * step / 64
        nbytes = 4 * rows * wide * many
        steps = ceil(min(depths) / step)
        for splits in range(2, min(steps, MAX_SPLITS) + 1):
            work = ceil(tiles * splits / sms) * ceil(steps / splits) * STEP_US * share / kind.rate
            time = work + (splits - 1) * TURN_US * max(nbytes / TURN_NBYTES, 1.0)
            found.append((time, alone, splits))
    if not found:
        return None
    _, alone, splits = min(found, key=lambda one: one[0])
    most = ceil(max(depths) / alone.tile[2] / splits)
    stages = min(alone.stages, max(most, 2))  # no more than a CTA has steps
    return replace(
        alone,
        split="pipelined",
        stages=stages,
        prefetch=max(stages - 2, 0),
        persistent=False,
        registers=None,
        splits=splits,
    )


def computes_in_registers(domain: Domain, loops: Sequence[int]) -> bool:
    """Whether to compute A in registers, in a kernel that is cut so; else a kernel before does."""
    _, cols = sides(domain)
    columns = prod(loops[axis] for axis in cols)
    return all(columns <= _worth(product) for product in domain.products if product.leaves)


def _worth(product: Product) -> int:
    """Columns of a result up to which the A of a product is worth computing again for each tile."""
    walked = {loop for loop in product.a.coords if loop is not None}
    if any({*leaf.coords} - {None} != walked for leaf in product.leaves):
        return 0  # rows and columns of factors are loaded by every thread
    if _is_costly(product.a.tv) or len(product.leaves) > 1:
        return COSTLY
    return min(COMPUTED.get(leaf.tv.dtype.nbytes, COSTLY) for leaf in product.leaves)


def _is_costly(tv: TensorView) -> bool:
    """Whether one of the operations that a tensor is computed by costs many instructions."""
    return any(one.op in OPS and OPS[one.op].rule is Rule.FLOAT for one in ancestry(tv))


def _params(domain: Domain, kind: TileKind, many: int) -> MatmulParams | None:
    """Return the params of a kind of tile with as many stages as fit, if three do."""
    wide = max(kind.cols // many // 16 * 16, 16)
    columns = next(c for c in COLUMNS if wide % c == 0)
    depth = 128 // max(a.tv.dtype.nbytes for p in domain.products for a in (p.a, p.b))
    firsts = {leaf for p in domain.products for leaf in p.leaves or (p.a,)}
    seconds = {p.b for p in domain.products} - firsts
    per_stage = sum(
        depth * rows * a.tv.dtype.nbytes
        for some, rows in ((firsts, kind.rows), (seconds, wide))
        for a in some
    )
    roles = 2 if kind.split == "ping_pong" else 1
    slots = roles * (2 if wide // columns % 2 == 0 else 1)
    results = [a.tv for a in domain.writes if not a.tv.parts]
    staged = sum(slots * kind.rows * columns * tv.dtype.nbytes for tv in results)
    if kind == PAIR:
        room = (SM_90A.smem_bytes + RESERVED) // 2 - RESERVED - BARRIERS
        stages = min(MAX_STAGES, room // per_stage)
        if stages < 3 or staged > stages * per_stage:
            return None
        return MatmulParams(
            (kind.rows, wide, depth),
            kind.warpgroups,
            kind.split,
            stages,
            stages - 2,
            persistent=False,
            columns=columns,
            resident=2,
        )
    stages = min(MAX_STAGES, (SM_90A.smem_bytes - BARRIERS - staged) // per_stage)
    if stages < 2:
        return None
    return MatmulParams(
        tile=(kind.rows, wide, depth),
        warpgroups=kind.warpgroups,
        split=kind.split,
        stages=stages,
        prefetch=max(stages - 2, 0),
        persistent=True,
        columns=columns,
        registers=None if kind.warpgroups == 1 else nearest_registers(kind.warpgroups),
        stacked=many > 1 and (kind.split == "ping_pong" or wide < STACKED),
    )
