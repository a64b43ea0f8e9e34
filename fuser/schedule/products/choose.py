"""Which schedule a kernel with products gets where the user names none.

Of all kinds of tiles, computed alone or shared, the one whose predicted time is the least (`cost`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from math import ceil, gcd

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, TensorView, ancestry
from fuser.fusion.ops import OPS, Rule, accumulator
from fuser.schedule.domain import Access, Domain, Product
from fuser.schedule.matmul import (
    PACKED,
    along,
    known,
    of_one,
    shared_by,
    sided,
    sides,
    sizes,
    summed,
)
from fuser.schedule.matmul_params import MatmulParams, nearest_registers
from fuser.schedule.params import MAX_SPLITS
from fuser.schedule.products import residual
from fuser.schedule.products.cost import (
    FEW_COLUMNS,
    SECTOR,
    Prediction,
    Sharing,
    Work,
    at_most,
    predicted,
    walked,
    whole,
)
from fuser.schedule.products.nibbles import unpacked
from fuser.schedule.products.tiles import (
    LEAST_DEEP,
    LINE,
    MOST_AT_ONCE,
    NO_FIT,
    SPAN,
    Ends,
    Fit,
    TileKind,
    clustered,
    counts,
    deeper,
    parted,
    tiles,
)

STEP_US = 0.56
"""A step of 64 elements of a tile of 128 x 256 at the tensor cores' rate (990 TFLOP/s, 132 SMs)."""
TURN_US = 1.0
"""A CTA's turn, for every `TURN_NBYTES` of its sums.  Measured on an H200."""
TURN_NBYTES = 16384
STEP = 64
"""Elements of an operand of 16 bits in a span: the least that a step has."""
COMPUTED_US, COSTLY_A_US = {4: 0.0745, 8: 0.0745, 16: 0.0527, 32: 0.0624}, 0.247
"""What 64 rows of A take of a span to compute, by the bits of an element that they are from, and
more for each operation that takes many instructions.  With `cost.COMPUTED_STEP_US` those of 8 bits
and more are fitted to 804 timings of 98 products of either operand (H200; i8, f32, a relu, a silu):
off by 11 % (deviation), what is predicted to be the fastest takes 2.5 % more than the fastest one.
"""
NUMBER_US, CUT_US = 0.02, 0.0975
"""What it takes more for a number of each row, or of a group of its elements, that they are
multiplied by; and where K may end in a step, as that number may be infinite.  The first, and 4
bits, are fitted to 2,183 timings of 108 products (H200): off by 11 % without numbers, 18 % with."""
STORED_US, PASSED, UNPACKED = 0.5, 4.0e6, 2.0e6
"""What a kernel that stores A takes beside its bytes, and of those in a microsecond; of 4 bits."""
MOST_PARTS = 16
"""Parts of an epilogue that is staged, at most.  Measured on an H200 at its power limit, ping-pong:
8192 x 8192 x 8192 by 128 x 184 in 23 parts of 8 took 5 % more than by 128 x 192 in three of 64."""
NEAR = 1.4
"""Up to what time, in times that of the fastest, predictions are corrected by timings."""
STACKED = 128
"""Columns of a product from which its wgmmas are fast by themselves.  Measured on an H200, gated
layers: one wgmma for both is 3 to 11 % faster with 64 columns each, 0.5 % faster to 1.5 % slower
with 128, but 1 to 3 % faster in ping-pong."""
FEW_SLOTS = 3
"""Slots of a ring, at most, of which all but one are loaded ahead where A is computed in registers,
so that none waits for later products.  Measured on an H200, geometric means: 17 schedules with
three slots take 5.8 % less so (11 % less to 1 % more), 27 with four 2.8 % more, 52 with more 2.1 %
more.  One slot less than five or seven takes 4.4 % less in cooperative tiles (14 schedules, 0.1 to
13 % less), one less than four, six or eight 6.2 % more (54); the cause is not known."""
BESIDE_COLUMNS = 64
"""Columns of tiles, at most, of which an SM has several where operands are computed: of more the
assembler serialises wgmmas in some kernels.  Measured on an H200, weights of 4 and 8 bits: with 88
columns 14 schedules take 1.6 times what is predicted, one 3.2 times; with up to 64 1.0 to 1.2."""
UNIT = 8, 16
"""Columns of tiles are multiples of: 8 where K lies along rows of that operand, 16 where they do
themselves, of which the narrowest swizzle is (of 16 bits; others are copied first), and where they
are i8, of which a wgmma has few other widths."""
IN_TURNS = (
    (TileKind(128, 128, "pipelined", 2), 0.85),
    (TileKind(64, 128, "pipelined", 1), 0.55),
    (TileKind(64, 64, "pipelined", 1), 0.35),
)
"""What is chosen from where CTAs are asked to share a tile in turns, and of the rate of the tensor
cores."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kind of tile, how many CTAs compute each, how they share it, and the time predicted."""

    takes: Prediction
    kind: TileKind
    fit: Fit
    count: int = 1
    sharing: Sharing = ""

    def __str__(self) -> str:
        """Say it in a line."""
        kind = self.kind
        groups = "1 warpgroup" if kind.warpgroups == 1 else f"{kind.warpgroups} warpgroups"
        says = f"{kind.rows} x {kind.cols} {kind.split}, {groups}"
        says += ", transposed" if kind.transpose else ""
        says += f", {kind.resident} CTAs an SM" if kind.resident > 1 else ""
        says += f", clusters of {kind.cluster}" if kind.cluster != (1, 1) else ""
        says += f", steps of {kind.deep * SPAN} bytes" if kind.deep > 1 else ""
        says += f", {self.count} CTAs a tile ({self.sharing})" if self.count > 1 else ""
        return f"{says}: {self.takes}"


def default_matmul_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int = SM_90A.sms
) -> MatmulParams:
    """Choose params for a kernel with products; `loops` are the extents of its loop axes.

    CTAs share a tile in turns where that is asked of a product, and there are two steps or more.
    ScheduleError where no tile has room for all operands.
    """
    extents, depths = sizes(domain, loops)
    meets = [product.tv.meet for product in domain.products if product.tv.meet is not None]
    if meets:
        asked = _shared(domain, extents, depths, sms)
        if asked is not None:
            return replace(asked, meet=meets[0])
    found = next(candidates(fusion, domain, loops, sms), None)
    if found is None:
        names = ", ".join(product.tv.name for product in domain.products)
        raise ScheduleError(
            f"MatmulParams(stages=2): operands of {names} fit no tile's shared memory of "
            f"{SM_90A.smem_bytes} bytes; compute some of these products by a fusion of its own"
        )
    return found


def best(
    fusion: Fusion, domain: Domain, loops: Sequence[int], count: int, sms: int = SM_90A.sms
) -> tuple[Choice, ...]:
    """Return the choices that are predicted to be the fastest, at most so many; for `explain`."""
    return tuple(choice for choice, _ in islice(scheduled(fusion, domain, loops, sms), count))


def candidates(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int = SM_90A.sms
) -> Iterator[MatmulParams]:
    """Yield what params are chosen from, the fastest first as predicted."""
    yield from (params for _, params in scheduled(fusion, domain, loops, sms))


def scheduled(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int
) -> Iterator[tuple[Choice, MatmulParams]]:
    """Yield the choices that fit, the fastest first, and their params."""
    extents, _ = sizes(domain, loops)
    work = work_of(fusion, domain, loops)
    for choice in ranked(work, _rules(domain), sms):
        params = _params(domain, choice, extents, work.ends, sms)
        if params is not None:
            yield choice, params


def work_of(fusion: Fusion, domain: Domain, loops: Sequence[int]) -> Work:
    """Return what a kernel with products computes, as far as its time depends on that."""
    (around, m, n), depths = sizes(domain, loops)
    rows, cols = ({*axes} for axes in sides(domain))
    first = domain.products[0]
    leaves = _whole_leaves(domain, first)
    operands = [product.a.tv for product in domain.products if product.leaves]
    computed = {tv.name: tv for operand in operands for tv in ancestry(operand)}
    depth = ceil(sum(depths) / len(domain.products)) * first.a.tv.dtype.nbytes
    results = [access for access in domain.writes if not access.tv.parts]
    costly = sum(_is_costly(tv) for tv in fusion.tensors if tv.name not in computed)
    read = sum(bool(rows & {*a.coords}) and bool(cols & {*a.coords}) for a in domain.inputs)
    return Work(
        around,
        m,
        n,
        max(ceil(depth / SPAN), 1),
        len(domain.products),
        costly,
        read,
        (_pitch(first.arguments[0], loops), _pitch(first.arguments[1], loops)),
        max((n * access.tv.dtype.nbytes for access in results), default=0),
        any(access.tv.parts for access in domain.writes),
        sum(
            COMPUTED_US.get(8 * leaf.tv.dtype.nbytes // many, COMPUTED_US[32])
            for leaf, many in leaves
        )
        + (NUMBER_US if _ends_whole(domain, first) else CUT_US) * (len(first.leaves) - len(leaves))
        + COSTLY_A_US * sum(map(_is_costly, computed.values())),
        sum(
            SPAN // first.a.tv.dtype.nbytes * leaf.tv.dtype.nbytes // many
            for leaf, many in leaves or [(first.a, 1)]
        ),
        _is_bare(domain),
        shared_by(domain),
        min(around, *loops[len(domain.extents) :], around),
        _turned(domain),
        len(domain.inputs) - read,
    )


def _turned(domain: Domain) -> tuple[bool, bool]:
    """Return whether some A lies along the rows of tiles, and some B along their columns."""
    first, second = zip(*sided(domain), strict=True)
    return any(one.transposed for one in first), any(one.transposed for one in second)


def _ends_whole(domain: Domain, product: Product) -> bool:
    """Whether K is known to end with a step."""
    depths = [known(domain, group) for group in summed(domain, product)]
    return all(depth is not None and depth % STEP == 0 for depth in depths)


def _is_bare(domain: Domain) -> bool:
    """Whether one product of 16 bits is stored by an epilogue that reads nothing."""
    alone = len(domain.products) == len(domain.writes) == 1 and not domain.inputs
    return alone and all(one.tv.dtype.nbytes == 2 and not one.tv.parts for one in domain.writes)


def _pitch(access: Access, loops: Sequence[int]) -> int:
    """Return the bytes from one row of an operand to the next; 0 where a copy lies better."""
    nbytes = access.tv.dtype.nbytes
    for last in access.coords[-1:]:
        nbytes *= 1 if last is None else loops[last]
    return nbytes if nbytes % 16 == 0 else 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a domain asks of tiles.

    Whether CTAs may share one, and an SM may have several whose threads all load, or whose tiles
    are broad; columns of each product are multiples of a `unit`, and those of transposed ones of
    another.  Either is 0 where there are to be none.  Spans of a step divide `spans`; 0: any
    number may be in one.
    """

    shared: bool
    resident: bool
    unit: int
    transposed: int
    spans: int = 0

    def allow(self, kind: TileKind, many: int) -> bool:
        """Whether tiles of a kind may have the columns of so many products."""
        alone = kind.split == "pipelined" or kind.cols > BESIDE_COLUMNS
        if kind.resident > 1 and alone and not self.resident:
            return False
        if self.spans % kind.deep:
            return False
        if kind.transpose:  # made in its unit
            return kind.holds(many)
        return self.unit > 0 and kind.holds(many) and kind.wide(many) % self.unit == 0


def _rules(domain: Domain, *, stored: bool = False) -> Rules:
    computed = [] if stored else [one for one in domain.products if one.leaves]
    turned = [one for one in computed if one.exchanged]
    parts = any(access.tv.parts for access in domain.writes)
    loops = {tuple(summed(domain, product)) for product in domain.products}
    alone = len(loops) > 1 or parts or accumulator(domain.products[0].tv) is DType.F16
    plain = len(domain.products) == 1 and not (computed or parts)
    suited = len(turned) == len(computed) and not parts if turned else plain
    pairs = [*sided(domain)]
    coarse = (
        any(one.transposed or one.access.tv.dtype is DType.I8 for one in side)
        for side in zip(*pairs, strict=True)
    )
    down, across = (UNIT[one] for one in coarse)
    _, cols = sides(domain)
    halves = all(one.tv.dtype.nbytes == 2 and along(one, cols) for one in domain.writes)
    shared = [of_one(domain, one, leaf) for one in computed for leaf in one.leaves]
    elements = gcd(*(many for many in shared if many > PACKED))
    unit = 0 if turned else across
    transposed = down if suited and halves else 0
    return Rules(not alone, not computed, unit, transposed, elements // STEP)


@lru_cache(maxsize=1 << 8)  # some tens of kilobytes each
def ranked(work: Work, rules: Rules, sms: int = SM_90A.sms) -> list[Choice]:
    """Return what may be chosen, the fastest first as predicted."""
    every = sorted(_choices(work, rules, sms), key=lambda one: one.takes.us)
    if not (every and residual.applies(work, sms)):
        return every
    most = NEAR * every[0].takes.us
    near = [*takewhile(lambda one: one.takes.us <= most, every)]
    timed = sorted(_as_timed(work, near, sms), key=lambda one: one.takes.us)
    return [*merge(timed, every[len(near) :], key=lambda one: one.takes.us)]


def _as_timed(work: Work, some: Sequence[Choice], sms: int) -> Iterator[Choice]:
    """Yield choices with what kernels like them took."""
    told = [residual.features(work, one.kind, one.fit, one.count, sms) for one in some]
    factors = residual.residuals().factors([residual.way(o.kind, o.sharing) for o in some], told)
    for one, factor in zip(some, factors, strict=True):
        takes = one.takes.corrected(factor)
        yield Choice(takes, one.kind, one.fit, one.count, one.sharing)


def _choices(work: Work, rules: Rules, sms: int) -> Iterator[Choice]:
    for kind, fit in _fitted(work, rules, _whole(work, rules)):
        few = work.wide(kind) <= MOST_PARTS * fit.columns or work.result_pitch % 16
        if few and (kind.deep == 1 or work.computed_us or _at_once(work, kind, sms)):
            yield Choice(predicted(work, kind, fit.stages, fit.columns, sms=sms), kind, fit)
    if not rules.shared:
        return
    unit = rules.transposed
    for kind, fit in _fitted(work, rules, parted(work.m, unit, computed=work.computed_us > 0)):
        seen = work.seen_by(kind)
        many = tiles(work.around, seen.m, seen.n, kind.rows, work.wide(kind))
        if many == 0:
            continue
        for count in counts(many, ceil(work.steps / kind.deep), sms):
            ways: tuple[Sharing, ...] = ("last",)
            if many * count <= sms and count <= MOST_AT_ONCE:
                ways = ("scatter", "last")
            for way in ways:
                takes = predicted(work, kind, fit.stages, fit.columns, count, way, sms)
                yield Choice(takes, kind, fit, count, way)


def _at_once(work: Work, kind: TileKind, sms: int) -> bool:
    """Whether all tiles run at once; else longer steps of what TMA brings win nothing.

    Measured on an H200: of 63 shapes with more tiles 2 % in one, of 143 others 2 to 16 % in 39.
    """
    seen = work.seen_by(kind)
    return tiles(work.around, seen.m, seen.n, kind.rows, work.wide(kind)) <= sms


def _fitted(work: Work, rules: Rules, kinds: Iterable[TileKind]) -> Iterator[tuple[TileKind, Fit]]:
    """Yield the kinds of tiles that rules allow, as stages fit; by longer steps, too, if worth it.

    Stages are about as many as fit, of one result of 16 bits.
    """
    for kind in kinds:
        if not rules.allow(kind, work.many) or (work.computed_us and kind.deep > 1):
            continue
        wide = work.wide(kind)
        step, pitch = int(work.step_nbytes(kind.rows, wide * work.many)), work.result_pitch % LINE
        fit = _stages(kind, wide, step, pitch, work.ends, work.many)
        if fit.stages:
            yield kind, fit
        for longer in deeper(kind) if work.computed_us else ():
            fit = _stages(longer, wide, step, pitch, work.ends, work.many)
            if fit.stages >= LEAST_DEEP and rules.allow(longer, work.many):
                yield longer, fit


def _whole(work: Work, rules: Rules) -> Iterator[TileKind]:
    """Yield the kinds of tiles that a CTA computes alone, in clusters where rows lie badly."""
    badly = any(pitch % SECTOR for pitch in work.pitches)
    for kind in whole(work, rules.transposed):
        yield kind
        if badly:
            yield from clustered(kind)


@lru_cache(maxsize=1 << 12)
def _stages(kind: TileKind, wide: int, step_nbytes: int, pitch: int, ends: Ends, many: int) -> Fit:
    return kind.stages(wide, step_nbytes, 2, pitch, ends, many)


def columns_of_share(wide: int, splits: int) -> int:
    """Return of how many columns each CTA adds up sums, where so many share a tile of `wide`."""
    most = max(8, wide // splits // 8 * 8)
    return next(columns for columns in range(most, 0, -8) if wide % columns == 0)


def _shared(
    domain: Domain, extents: tuple[int, int, int], depths: list[int], sms: int
) -> MatmulParams | None:
    """Choose params by which CTAs share a tile, if its sums have two steps."""
    around, m, n = extents
    many = len(domain.products)
    found = []
    for kind, rate in IN_TURNS:
        choice = Choice(Prediction(0.0), replace(kind, split="cooperative"), NO_FIT)
        alone = _params(domain, choice, extents, "bare", sms)
        if alone is None or alone.tile[1] % _rules(domain).unit:
            continue
        rows, wide, step = alone.tile
        ctas = tiles(around, m, n, rows, wide)
        share = rows * wide * many / (128 * 256) * step / 64
        nbytes = 4 * rows * wide * many
        steps = ceil(min(depths) / step)
        for splits in range(2, min(steps, MAX_SPLITS) + 1):
            work = ceil(ctas * splits / sms) * ceil(steps / splits) * STEP_US * share / rate
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


def computes_in_registers(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int = SM_90A.sms
) -> bool:
    """Whether to compute operands in registers, in a kernel cut so; else a kernel before does."""
    computed = [product for product in domain.products if product.leaves]
    in_turns = any(one.tv.meet is not None for one in domain.products if one.exchanged)
    if in_turns or not all(_brings_leaves(domain, one) for one in computed):
        return False
    if not computed:
        return True
    work = work_of(fusion, domain, loops)
    here, _ = next(scheduled(fusion, domain, loops, sms), (None, None))
    there = ranked(work.stored(), _rules(domain, stored=True), sms)
    if here is None or not there:
        return here is not None
    rows = work.n if computed[0].exchanged else work.m
    nbytes = work.around * rows * work.steps * (work.brought + SPAN)
    packed = any(many > 1 for one in computed for _, many in _whole_leaves(domain, one))
    stored_us = STORED_US + nbytes / (UNPACKED if packed else PASSED)
    return here.takes.us <= stored_us + there[0].takes.us


def _whole_leaves(domain: Domain, product: Product) -> list[tuple[Access, int]]:
    """Return what an operand is computed from that is copied, and how many elements from one.

    It has its rows and columns, or two columns in each of its own.
    """
    rows = {*product.a.coords} & {*product.coords} - {None}
    every = ((leaf, of_one(domain, product, leaf)) for leaf in product.leaves)
    return [(leaf, many) for leaf, many in every if 1 <= many <= PACKED and rows <= {*leaf.coords}]


def _brings_leaves(domain: Domain, product: Product) -> bool:
    """Whether tiles have all that an operand is computed from, but for a number of rows.

    Others every thread loads in each step.
    """
    rows = {*product.a.coords} & {*product.coords} - {None}
    whole = _whole_leaves(domain, product)
    others = {*product.leaves} - {leaf for leaf, _ in whole}
    alone = all(of_one(domain, product, leaf) % STEP == 0 for leaf in others)
    fits = alone and unpacked(domain, product) is not None
    return bool(whole) and fits and all(rows <= {*leaf.coords} for leaf in others)


def _is_costly(tv: TensorView) -> bool:
    """Whether the operation that a tensor is computed by costs many instructions."""
    return tv.op in OPS and OPS[tv.op].rule is Rule.FLOAT


def _params(
    domain: Domain, choice: Choice, extents: tuple[int, int, int], ends: Ends, sms: int
) -> MatmulParams | None:
    """Return the params of a choice with as many stages as fit, if enough do."""
    kind, many = choice.kind, len(domain.products)
    wide = kind.wide(many)
    span = SPAN // max(a.tv.dtype.nbytes for p in domain.products for a in (p.a, p.b))
    pairs = [*sided(domain)]
    firsts = {(one.access, one.alike) for a, _ in pairs for one in a.leaves or (a,)}
    seconds = {(one.access, one.alike) for _, b in pairs for one in b.leaves or (b,)}
    if kind.transpose:
        firsts, seconds = seconds, firsts
    per_stage = sum(
        max(span // alike, 1) * rows * a.tv.dtype.nbytes
        for some, rows in ((firsts, kind.rows), (seconds, wide))
        for a, alike in some
    )
    results = sum(a.tv.dtype.nbytes for a in domain.writes if not a.tv.parts)
    pitch = gcd(*(extents[2] * a.tv.dtype.nbytes for a in domain.writes if not a.tv.parts))
    stages, columns, staging = kind.stages(wide, per_stage, results, pitch, ends, many)
    if not stages:
        return None
    ahead = stages - 2
    computed = [product for product in domain.products if product.leaves]
    if computed:
        if kind.split == "cooperative" and stages % 2 and stages > FEW_SLOTS:
            stages -= 1
        nbytes = max(leaf.tv.dtype.nbytes for one in computed for leaf in one.leaves)
        ahead = stages - (1 if stages <= FEW_SLOTS or _waits_in_step(kind, nbytes) else 2)
    around, m, n = extents
    if kind.transpose:
        m, n = n, m
    side = shared_by(domain, transpose=kind.transpose)
    walk = walked(side, around, m, n, kind, wide, sms)
    params = MatmulParams(
        tile=(kind.rows, wide, span * kind.deep),
        warpgroups=kind.warpgroups,
        split=kind.split,
        stages=stages,
        prefetch=ahead,
        persistent=kind.persistent(tiles(around, m, n, kind.rows, wide, kind.cluster), sms),
        raster=at_most(walk.group, walk.lines),
        columns=columns,
        staging=staging,
        registers=(
            None
            if kind.warpgroups == 1 or kind.resident > 1
            else nearest_registers(kind.warpgroups)
        ),
        stacked=many > 1 and (kind.split == "ping_pong" or wide < STACKED),
        resident=kind.resident,
        transpose=kind.transpose,
        cluster=kind.cluster,
    )
    if choice.count > 1:
        params = _among(params, choice, computed=bool(computed))
    fits = all(params.computes(many, len(_whole_leaves(domain, one))) for one in computed)
    return params if fits else None


def _waits_in_step(kind: TileKind, nbytes: int) -> bool:
    """Whether steps had better wait for their own products, where threads compute an operand.

    Its elements are made of some of so many bytes.  Measured on an H200, times of others that it
    then takes (geometric means, 80 products): up to 32 columns 0.96 to 1.01, more of one warpgroup
    1.04 to 1.22, in ping-pong 1.1 to 1.2; of three warpgroups from f32 0.82, of 256 rows from i8
    0.89, from 16 bits 1.02 to 1.19; of two from f32 0.90 to 0.99, from others 0.99 to 1.07.
    """
    if kind.cols <= FEW_COLUMNS or nbytes == 2:
        return kind.cols <= FEW_COLUMNS
    several = nbytes == 4 and kind.split == "cooperative" and kind.warpgroups > 1
    return several or kind.rows == 256 or kind.warpgroups == 3


def _among(alone: MatmulParams, choice: Choice, *, computed: bool) -> MatmulParams:
    """Return params by which so many CTAs share each tile, without turns."""
    scatter = choice.sharing == "scatter"
    wide = alone.tile[1]
    if not computed:  # else sums, and what is computed, need the registers of the load role
        alone = replace(alone, prefetch=alone.stages - 1, registers=None)
    return replace(
        alone,
        persistent=False,
        columns=columns_of_share(wide, choice.count) if scatter else alone.columns,
        splits=choice.count,
        meet="scatter" if scatter else "last",
        residency="co-resident" if scatter else "ticket",
    )
