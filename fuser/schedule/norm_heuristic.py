"""Which schedule a kernel that has whole rows at a time gets where the user names none.

What counts are bytes on their way: rows in registers while they are loaded, or in rings.  So all
ways to deal rows to threads are compared by how many bytes an SM then has on their way, which the
registers decide; figures are of an H200, in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import log, prod, sqrt

from fuser.arch import SM_90A
from fuser.schedule.domain import Access, Domain
from fuser.schedule.params import MAX_HELD, NormParams
from fuser.schedule.pointwise import WARP
from fuser.schedule.shape_class import ShapeClass

SATURATED = 64 << 10
"""Bytes on their way of an SM that keep memory busy.  Layer norm of 32768 x 1024: 32 kB 38.6, 40 kB
35.8, 48 kB 34.0; rms norm of 32768 x 4096: 40 kB 136.8, 56 kB 132.4, 64 kB 130.5."""
ALONE = 0.43
"""Share of these that count where a CTA has its SM for itself: nothing is loaded while it computes.
Softmax of 8192 x 32768: 330, as with 27 kB."""
SHARED_ROW = 0.65
"""The same of rows that a cluster shares: its CTAs wait for each other.  Softmax of 1000 x 100000
by clusters of 8, 75 kB: 130; of 3000 x 98304, 98 kB: 292, as fast as memory but for 5 %; of 8761 x
25464, tiles of 7168: 244, by one CTA a row 212."""
RING, RING_ALONE = 0.45, 0.35
"""The same of rings, whose CTAs load each row twice, from memory and from its slot: layer norm of
16384 x 4096, 96 kB: 74.4, as with 38 kB; softmax of 8192 x 32768, 192 kB in one CTA: 272."""
LOOPED = 56 << 10
"""Bytes on their way of an SM whose CTAs have row after row, of which they begin sums; more take
what these need of the L1 and of registers.  Layer norm backward on an H100: 32768 x 1024, 40
kB directly 77.5, by rings 56 kB 75.4, 80 kB 86.2, 104 kB 152; 16384 x 4096, 48 kB directly 150, by
rings 64 kB 144, 96 kB 169."""
LOOPED_BULK, LOOPED_ALONE = 72 << 10, 96 << 10
"""The same of rings of bulk copies, and where a CTA has its SM for itself.  Layer norm backward on
an H200, 16 elements a thread: 32768 x 1024, 48 kB 57.3, 72 kB 53.6, by cp.async 66.2; 16384 x 4096,
64 kB 105, 96 kB 110; 8192 x 8192, in one CTA, 64 kB 115, 96 kB 108; 12000 x 6144, 72 kB 117, 48 kB
129."""
RINGED = (16, 32)
"""Elements of a row that a thread of these has."""
WORTH = 1.4
"""How many times the bytes of their parts rows have of which sums are begun, at least.  Layer norm
backward of 4096 x 1024 16.0, by two kernels that read them 15.6; 3000 x 2000 19.9 and 23.1."""
HELD, SHARED, MASKED_HELD = 80, 64, 40
"""Elements of a row that a thread has, at most, unless the row is too long; where a CTA has several
rows; and where these are masked one by one beside weights.  Layer norm of 32840 x 973: 64 elements
92.4, 32 68.5; 25493 x 737: 48 44.5, 24 37.5; but 11992 x 1089: 40 30.5, 24 36.4."""
MOST_SHARED = 112
"""The same of a row that a cluster of `MOST_CTAS` shares."""
EARLY = 32
"""And up to which it loads weights before it reduces rows.  Layer norm of 32768 x 1024: 34.1, with
weights loaded behind 35.6; of 16384 x 8192, 64 elements: 141.7 and 140.7."""
SOON = 3072
"""Columns of rows of which it then does so, rather than have more of a row.  Layer norm of 32768 x
1024: 32 elements 32.5, 64 34.1; of 16000 x 3072: 24 48.3, 48 48.6; of 16384 x 4096: 32 66.8, 64
65.8."""
WASTE = 1.3
"""How much wider than short rows their tile may be then.  Layer norm of 113498 x 40: by tiles of 48
columns 5.3, of 40, 40 elements a thread, 9.4; but of 30000 x 1280: of 1536 42.5, of 1280 38.3."""
SHORT = 512
"""Elements of odd rows from which on vectors are put together of aligned words: rows end in single
elements.  Softmax of 150001 x 33: 17.0, by single elements 10.1; of 20011 x 1001: 27.5 and 33.7."""
SECTOR = 32
"""Bytes that the threads of a row read next to each other, at least, unless that is more than a
fifth of it.  Source: CUDA C++ Best Practices Guide, "coalesced access to global memory"."""
THREADS, MOST = 128, 1024
"""Threads of a CTA that has several rows, and of a long one at most."""
SHARE, WEIGHED = 16_384, 12_288
"""Words of a row that a CTA has, of all inputs that have rows, without weights and with: beyond,
the assembler spills, or one CTA an SM is left.  Longer rows have a cluster.  Layer norm of 3205 x
22776: 90, by a cluster 180; of 2000 x 32768: 94 and 91.5."""
RINGED_FROM = 9216
"""The same of two weights, where rings of clusters can have the rows: layer norm of 10000 x 24576
244, by one CTA a row 253; of 3662 x 20480 77.1, 78.8."""
SPREAD, SPREAD_ROWS = 4096, 4 * SM_90A.sms
"""Columns of a CTA, at least, where a cluster shares rows that one CTA could have, and how many of
these there are: several CTAs are on an SM then, each with a row on its way.  Softmax of 8192 x
32768: one CTA a row 276, two 253, four 251; of 4096 x 131072 in f32 1063, by rings 1187; rms norm
of 8192 x 32768 263 and 288.  With two weights rings are faster: layer norm of 6000 x 24576 151, by
clusters 193."""
RINGS, MOST_CTAS = (2, 4, 8), 8
"""CTAs of a cluster that shares rows by rings, and at most.  Source: CUDA C++ Programming Guide,
"thread block clusters"."""
STAGES = 3
"""Slots of a ring, at most, where a CTA has its SM for itself; else two."""
ROOM = SM_90A.smem_bytes * 63 // 64
"""Bytes of an SM for slots; the rest is for barriers and what threads of a row put together."""
FEW = (128, 16, 512)
"""Threads of every SM that few rows are to be dealt to, while each thread has more elements than so
many, by up to so many threads a row."""
SINGLE, VECTORS = (1024, 4, 256), (1024, 40, 256)
"""The same of rows that are read by single elements, or by vectors.  Layer norm, in microseconds,
by so many threads a row: 59 x 129 by 64 1.50, 16 2.01; 429 x 239 by 64 1.88, 16 2.30; 2000 x 77 by
32 1.78, 16 1.99; 150 x 2049 by 256 2.51, 512 2.83; by vectors 7123 x 456 by 16 5.41, 8 6.16, but
2871 x 568 by 32 4.22, 16 3.01; 621 x 4072 by 256 5.45, 128 4.40."""
LITTLE = 5 << 17
"""Elements up to which odd rows are read by single elements, however long.  Layer norm of 150 x
2049: 2.51, by vectors 3.23; on an H100 of 127 x 4453 3.57 and 3.85; of 333 x 5001 6.29 and 5.34."""
PARTED, PARTS, PART_LANES = (66, 8192, 1 << 20), ((4, 16_384), (8, 65_536)), 256
"""Odd rows, at most, of so many columns at least, and elements of all, that CTAs of a cluster share
though one could hold them: so many up to so many columns, by so many threads each.  Layer norm on
an H100: 16 x 17653 3.85, by one CTA a row 8.11; 40 x 9001 3.59 and 4.60; 19 x 29235 4.76 and, by
vectors, 7.28; but 60 x 5003 3.51 and 3.40."""
SHORTER = ((1, 32, 1, 32, False), (1, 64, 1, 40, False), (1, 128, 1, 32, False))
LONGEST = ((4, 512, 1, 104, True), (8, 512, 1, 104, True))
ANYWHERE = (
    (
        *SHORTER,
        (1, 128, 1, 56, True),
        (1, 256, 1, 56, True),
        (1, 512, 1, 120, True),
        (8, 256, 1, 48, True),
        *LONGEST,
    ),
    (
        *SHORTER,
        (1, 128, 1, 48, True),
        (1, 256, 1, 56, True),
        (1, 256, 1, 72, False),
        (1, 512, 1, 120, True),
        (8, 256, 1, 40, True),
        (8, 256, 2, 48, True),
        *LONGEST,
    ),
    (
        (1, 64, 1, 40, False),
        (1, 128, 1, 40, False),
        (1, 256, 1, 80, False),
        (1, 512, 1, 88, False),
        (4, 512, 1, 32, True),
        (4, 512, 1, 80, False),
        (8, 512, 1, 80, False),
    ),
)
"""How rows with weights are dealt that begin anywhere and are read by vectors: with one weight,
with several, and where an element of all inputs takes a register: CTAs of a cluster, threads of
each that share a row and how many rows they have at once, elements of a thread at most, and whether
these are computed anew.  Of several that can the first is the fastest.  Measured on an H200, of up
to 40 schedules of each, us: layer norm of 20000 x 1001 28.2, 16000 x 5001 93.4, 12000 x 6001 86.2,
9000 x 13001 147, 20000 x 17001 433, 8000 x 40961 493, 1000 x 60001 103, by clusters of 8 129, 2554
x 87597 498; rms norm of 4000 x 20001 90.9; add + rms norm of 16000 x 5001 175, 3000 x 33001 259,
1000 x 60001 191."""
IN_TURN = (
    (32, 0, 40, False, 2),
    (64, 0, 40, False, 3),
    (128, 0, 24, False, 4),
    (128, 0, 40, False, 3),
    (256, 0, 24, False, 2),
    (512, 10_240, 32, True, 1),
)
"""The same of CTAs that begin sums of such rows: threads that share one, columns beyond which they
do, elements of a thread at most, whether these are computed anew, and CTAs of an SM.  Layer norm
backward, us: 30000 x 1025 124, 8000 x 2049 79.3, 16000 x 4097 256, 3000 x 15001 203, by a cluster
of 8 347; of 5000 x 9001 201, by two kernels that read the rows 189."""
HELD_ANEW, HELD_WHOLE, HELD_BESIDE = 0.5, 1.0, 40
"""Registers of such a thread for an element, and beside these for each row, by which CTAs of an SM
are counted there."""
BUSY, SHARED_BUSY, WIDER, APART = 384, 768, 1.34, 16_384
"""Threads of an SM that such a schedule has at least, and where a CTA has several rows; how much
wider its tile may be than a row; and columns of rows that clusters share, at least.  Rms norm of
1000 x 1001 by 128 threads a row 2.28, by 64, two rows a CTA, 2.92."""
SINGLES = 20
"""Single elements of a thread, at most, where few rows have SMs for themselves: then fewer threads
meet sooner.  On an H100: 60 x 5003 by 256 threads a row 3.40, 512 3.51, 1024 3.55."""
MOST_HELD = 144
"""Registers for elements of long rows, from which on the assembler spills: of 160 28 bytes."""
BASE, PLAIN, MORE, STEP = 24, 16, 16, 8
"""Registers that a thread takes beside those for its elements, fewer where rows are whole vectors
and nothing is computed anew, more for several inputs, and what they are dealt out by.  Source: the
assembler's log; of 64 elements, it spills nothing of a softmax in 80, of a layer norm in 120."""
BEHIND = 0.5
"""Registers for an element of all weights, if there are several, loaded once rows are reduced."""
PACKED = 0.15
"""Registers for an element that is computed anew, beside what holds it packed."""
WEIGHT = 0.375
"""Registers for an element of a weight of 16 bits: packed, and loaded with the others."""
MASKED = 1.4
"""Times as many where elements are read and masked one by one, or sums of rows are begun beside
masks."""
RING_THREADS = ((128, 2), (128, 3), (128, 4), (256, 1), (256, 2), (512, 1))
"""Threads of a CTA, and CTAs of an SM, that have long rows by rings."""
MOST_RINGED, MOST_PACKED, MOST_WORDS = 96, 164, 204
"""Elements of such a row that a thread has, at most, and the registers that it has for elements,
packed ones and of whole words.  By the assembler's log nothing spills of a layer norm in bf16 by 96
in 255, by 72 in 168, by 48 in 128; of one in f32 by 64 in 248."""
RING_BESIDE = 31, 24, 37
"""Registers beside those, where a CTA has its SM for itself; and where not, without weights and
with."""
RINGED_WORDS, ENOUGH = (8192, 9216), 12_288
"""Words of the rows that an SM computes with, which are enough where its CTAs meet twice a row,
of clusters of two, or not packed, and of others; and where they meet once."""
LONG, LONG_WEIGHED = 1 << 17, 20_480
"""Bytes of a row, and with a weight words, from which on CTAs that load it directly wait longer
than rings: softmax of 762 x 98304 85.5, by rings 76.9, of 1144 x 65536 74.1 and 79.7;
rms norm of 1664 x 45056 78.7 and 75.5, of 2615 x 28672 73.4 and 75.2; add + rms norm of 1220 x
40960 103, 99.2."""
FILE = 65_536
"""Registers of an SM.  Source: CUDA C++ Programming Guide, compute capabilities, 9.0."""
ALIKE = 1.06
"""Factor up to which two schedules count as alike."""


def fits_registers(domain: Domain, columns: int) -> bool:
    """Whether the registers of a CTA hold a row of all that the kernel reads, packed."""
    words = sum(_words(one) for one in _whole(domain, domain.reads) if _moves(one, domain))
    return columns * max(words, 0.5) <= MOST_CTAS * SHARE


def row_alignment(domain: Domain, shapes: ShapeClass) -> int:
    """Return the bytes of which all rows are multiples, 16 at most."""
    full = _whole(domain, (*domain.reads, *domain.writes))
    sizes = (shapes.elements(one.name) * one.tv.dtype.nbytes for one in full)
    return min((16, *sizes))


def default_norm_params(
    domain: Domain, loops: Sequence[int], *, aligned: int = 16, ring: bool = True
) -> NormParams:
    """Choose params by how many bytes they have on their way.

    `loops` are the extents of its loop axes, `aligned` the bytes of which all rows are multiples;
    without `ring` inputs are loaded directly.  Of rows that no registers hold there are columns for
    a part; the cut leaves them to other kernels.
    """
    return next(norm_candidates(domain, loops, aligned=aligned, ring=ring))


def norm_candidates(
    domain: Domain, loops: Sequence[int], *, aligned: int = 16, ring: bool = True
) -> Iterator[NormParams]:
    """Yield what params are chosen from, the best by the model first; as `default_norm_params`."""
    rows = _rows(domain, loops, aligned, ring=ring)
    columns = _columns(domain, loops)
    if rows.few and (shared := rows.parted(columns)):
        yield shared
    if dealt := rows.anywhere(columns):
        yield dealt
    many = rows.tiles * rows.cluster > SM_90A.sms
    long = aligned == 16 and rows.cluster > 1 and many
    spread = list(rows.spread(columns))
    shares = ring and long and (rows.slow(columns) or not spread)
    if shares and (shared := rows.by_clusters(columns)):
        yield shared
    begins = aligned == 16 and rows.cluster == 1 and rows.begun and domain.reductions
    if ring and begins and (in_turn := rows.in_turn()):
        yield in_turn
    found = [
        (some.rank(one), one)
        for some in spread or [rows]
        for one in some.tried(ring=ring and aligned >= 4)
    ]
    yield from (one for _, one in sorted(found, key=lambda pair: pair[0], reverse=True))


def begins_well(domain: Domain, loops: Sequence[int], params: NormParams, aligned: int) -> bool:
    """Whether a kernel has registers for the sums of all rows, and their parts are few bytes.

    Else who ends them reads again what the kernel has read, as where nothing else wants whole rows,
    which are `aligned` to less than 16 bytes: other kernels have no rows.
    """
    rows = _rows(domain, loops, 16)
    held = params.tile[1] // params.lanes
    fits = rows.resident(params.lanes, held, recompute=params.recompute) > 0
    fits |= params.load == "bulk"
    fits |= params == _rows(domain, loops, aligned).anywhere(_columns(domain, loops))
    fits &= bool(domain.reductions) or aligned == 16
    return fits and WORTH * rows.of_parts(params) <= rows.nbytes * rows.tiles


def _columns(domain: Domain, loops: Sequence[int]) -> int:
    """Return how many elements a row has, at least one."""
    return max(prod(loops[axis] for axis in domain.rows), 1)


def _rows(domain: Domain, loops: Sequence[int], aligned: int, *, ring: bool = True) -> _Rows:
    """Return what a CTA has of the rows of a domain; arguments are those of `norm_candidates`."""
    columns = _columns(domain, loops)
    full = _whole(domain, (*domain.reads, *(one for one in domain.writes if not one.tv.parts)))
    widest = max((one.tv.dtype.nbytes for one in full), default=4)
    reads = [one for one in _whole(domain, domain.reads) if _moves(one, domain)]
    weights = [one for one in _whole(domain, domain.reads) if not _moves(one, domain)]
    words = max(sum(map(_words, reads)), 0.5)
    tiles = prod(loops[axis] for axis in range(len(loops)) if axis not in domain.rows)
    most = WEIGHED if weights and (words < 1 or len(reads) > 1) else SHARE
    plain = aligned == 16 and not domain.begun
    if ring and plain and len(weights) > 1 and words < 1 and tiles > SM_90A.sms:
        most = RINGED_FROM
    cluster = MOST_CTAS if columns * words > most else 1
    few, long, least = PARTED
    parted = aligned < 16 and tiles <= few and columns >= long and columns * tiles <= least
    narrow = aligned < 16 and (columns < SHORT or columns * tiles < LITTLE or parted)
    return _Rows(
        columns=min(-(-columns // cluster), int(2 * SHARE / words)),
        tiles=tiles,
        vector=max(1, (aligned if narrow else 16) // max(widest, 2)),
        widest=widest,
        nbytes=sum(one.tv.dtype.nbytes for one in reads),
        words=words,
        inputs=len(reads),
        weights=2 * sum(map(_words, weights)),
        begun=sum(one.tv.dtype.nbytes / 4 for one in domain.begun),
        cluster=cluster,
        masked=aligned < 16 and (narrow or bool(weights)),
        plain=plain,
        few=parted,
        waits=bool(weights) and len(domain.reductions) > 1,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a CTA has of rows: so many columns of each.

    An element of all inputs takes `nbytes`, or, held packed, `words` registers; one of the
    `weights`, which count twice if they are of 32 bits, `WEIGHT`; and of sums of all rows, which
    are `begun` here, as many.  `plain` rows are of whole vectors, and nothing is begun.  `few` long
    rows are shared by clusters though a CTA could hold one.  Of rows with weights who shares them
    `waits`, if one reduction is behind another.
    """

    columns: int
    tiles: int
    vector: int
    widest: int
    nbytes: int
    words: float
    inputs: int
    weights: float
    begun: float
    cluster: int
    masked: bool
    plain: bool
    few: bool
    waits: bool

    def tried(self, *, ring: bool) -> Iterator[NormParams]:
        """Yield the ways to deal rows to threads, directly and by rings."""
        found = False
        for lanes in (1 << n for n in range(11)):
            wide = self.columns + -self.columns % (lanes * self.vector)
            held = wide // lanes
            last = lanes == MOST or lanes * self.vector >= self.columns
            few = any(
                self.tiles * self.cluster * lanes < SM_90A.sms * enough and held > most
                for enough, most, up_to in (FEW, SINGLE if self.vector == 1 else VECTORS)
                if lanes < up_to
            )
            part = self.columns // (2 if self.plain else 5)
            near = lanes * self.vector < min(SECTOR // self.widest, part)
            several = MASKED_HELD if self.masked and self.weights else SHARED
            much = held > (HELD if lanes >= THREADS else several)
            much &= self.cluster < MOST_CTAS or held > MOST_SHARED
            if not last and (much or few or near or (self.cluster > 1 and lanes < THREADS)):
                continue
            if found and lanes * self.vector > self.columns:
                break
            for recompute in (False, True):
                found |= self.resident(lanes, held, recompute=recompute) > 0
                yield from self._dealt(lanes, wide, recompute=recompute, ring=ring)
            if found and self.apart:
                return

    def _dealt(self, lanes: int, wide: int, *, recompute: bool, ring: bool) -> Iterator[NormParams]:
        """Yield schedules by which so many threads have a row."""
        # Few rows spread over SMs; of sums of all rows a CTA of one row leaves the fewest parts.
        threads = max(lanes, THREADS if self.tiles > SM_90A.sms and not self.begun else WARP)
        held = wide // lanes
        many = self.resident(lanes, held, recompute=recompute)
        alone = self.resident(lanes, held, recompute=False) < 2
        # What is computed anew costs time; a CTA that would else be alone on its SM gains, and one
        # that waits for weights.
        loses = self.masked or (self.spreads and self.cluster > 1)
        gains = recompute and alone and many > 1 and not loses
        if recompute != self.apart and not gains:
            return
        many = max(many, 1)
        rows = threads // lanes * self.deep(held)
        tile, warps = (rows, wide), threads // 32
        hold = bool(self.weights) and held <= EARLY and not (recompute or self.masked)
        each = self.each(rows, many)
        yield NormParams(
            tile, self.vector, warps, None, "direct", "direct", lanes=lanes, recompute=recompute,
            resident=many, hold=hold, cluster=self.cluster, tiles_per_cta=each,
        )  # fmt: skip
        # Weights stay in what is left of the L1.
        room = ROOM - int(self.weights * 2 * self.columns)
        for stages in range(2, STAGES + 1 if many == 1 else 3):
            fits = rows * wide * self.nbytes * stages * many <= room
            if ring and self.cluster == 1 and fits and self.tiles > SM_90A.sms * many * rows:
                yield NormParams(
                    tile, self.vector, warps, many, "cp_async", "direct", stages, stages - 1,
                    lanes=lanes, recompute=recompute, resident=many, hold=hold, tiles_per_cta=each,
                )  # fmt: skip

    def each(self, rows: int, many: int) -> int:
        """Return how many tiles of so many rows a CTA has, of so many an SM, if it begins sums."""
        at_once = max(SM_90A.sms * many // self.cluster, 1)
        # A cluster is of one GPC, and what is left there of its SMs is no whole one.
        at_once -= at_once // 8 if self.cluster > 2 else 0
        return max(-(-self.tiles // (rows * at_once)), 1) if self.begun else 1

    def parted(self, columns: int) -> NormParams | None:
        """Return how clusters share few long rows that are read by single elements; None if not."""
        for ctas, most in PARTS:
            part = -(-columns // ctas)
            wide = part + -part % (PART_LANES * self.vector)
            held = wide // PART_LANES * (max(self.words, 1) + self.weights / 2)
            if columns <= most and wide // PART_LANES <= EARLY and held <= MOST_HELD:
                return NormParams(
                    (1, wide), self.vector, PART_LANES // WARP, None, "direct", "direct",
                    lanes=PART_LANES, hold=bool(self.weights), cluster=ctas,
                )  # fmt: skip
        return None

    def anywhere(self, columns: int) -> NormParams | None:
        """Return how rows with weights are dealt that begin anywhere; None if by no measured way.

        There is none where rows are few, nor for more weights and wider inputs, which take more
        registers: of layer norm of 8000 x 40961 in f32 1.9 kB a thread spill so, of rows in bf16
        with weights in f32 nothing (537 us, by what is chosen where there is none 1016).
        """
        if not self.masked or self.vector == 1:
            return None
        if self.begun and self.words <= 1:
            return self._in_turn_anywhere(columns)
        if self.begun or self.weights > (1 if self.words >= 1 else 4):
            return None
        ways = ANYWHERE[2 if self.words >= 1 else int(self.weights > 1)]
        for ctas, lanes, deep, most, recompute in ways:
            part = -(-columns // ctas)
            wide = part + -part % (lanes * self.vector)
            held, threads = wide // lanes, max(lanes, THREADS)
            least = SHARED_BUSY if lanes < THREADS else BUSY
            busy = self.tiles * ctas * lanes >= least * SM_90A.sms
            fits = held <= most and wide <= WIDER * part
            if busy and fits and (ctas == 1 or columns > APART):
                each = deep * (held * (HELD_ANEW if recompute else HELD_WHOLE) + HELD_BESIDE)
                return NormParams(
                    (deep * threads // lanes, wide), self.vector, threads // WARP, None, "direct",
                    "direct", lanes=lanes, recompute=recompute, hold=False, cluster=ctas,
                    resident=min(int(FILE / (threads * each)), 2048 // threads),
                )  # fmt: skip
        return None

    def _in_turn_anywhere(self, columns: int) -> NormParams | None:
        for lanes, beyond, most, recompute, many in IN_TURN:
            wide = columns + -columns % (lanes * self.vector)
            threads = max(lanes, THREADS)
            rows = threads // lanes
            busy = self.tiles >= 2 * rows * many * SM_90A.sms
            if busy and columns > beyond and wide // lanes <= most and wide <= WIDER * columns:
                return NormParams(
                    (rows, wide), self.vector, threads // WARP, None, "direct", "direct",
                    lanes=lanes, recompute=recompute, resident=many, hold=False,
                    tiles_per_cta=replace(self, cluster=1).each(rows, many),
                )  # fmt: skip
        return None

    def by_clusters(self, columns: int) -> NormParams | None:
        """Return how clusters share rows too long for one CTA, by rings of bulk copies.

        What counts are words that an SM computes with, up to `RINGED_WORDS`; then that CTAs which
        meet twice a row wait for few others, and that others have company on their SM; and that few
        threads meet.  None if no ring has room for two rows.  In microseconds on an H200: layer
        norm of 4096 x 65536, clusters of 8 with three CTAs an SM 282, with two 355, of 4 with one
        293; of 8192 x 32768, of 2 with one 265, of 4 with three 270; rms norm of 1144 x 65536, of 8
        with four 75.4, of 4 with one 76.3, directly 80.4.  Three slots, where four do not fit, are
        2 to 3 % faster than two, and take twice as long to prove as four: phases repeat later.
        """
        best: tuple[int, ...] = ()
        chosen: Callable[[], NormParams] | None = None  # params are checked where they are made
        for ctas, (lanes, many), recompute in product(RINGS, RING_THREADS, (False, True)):
            part = -(-columns // ctas)
            wide = part + -part % (lanes * self.vector)
            slots = min(ROOM // max(wide * self.nbytes * many, 1), 4)
            free = FILE // (lanes * many) - STEP * (many > 1 and wide * ctas > columns)
            each = self.taken(recompute=recompute) + self.weights / 2 + self.begun
            most = self._ringed(ctas, many, free)
            if slots < 2 or wide // lanes > MOST_RINGED or wide // lanes * each + ctas > most:
                continue
            enough = RINGED_WORDS[int(ctas > 2 and self.words < 1)] if self.waits else ENOUGH
            words = min(many * part * self.words / enough, 1.0) * part / wide
            counts = round(log(words) / log(ALIKE)) - (slots < 3 and self.weights > 0)
            others = (-ctas, many) if self.waits else (many, -ctas)
            key = (counts, *others, -lanes, not recompute)
            if key > best:
                best = key
                chosen = partial(
                    NormParams, (1, wide), self.vector, lanes // WARP, many, "bulk", "direct",
                    slots, slots - 1, lanes=lanes, recompute=recompute, resident=many,
                    hold=bool(self.weights), cluster=ctas,
                    tiles_per_cta=replace(self, cluster=ctas).each(1, 1),
                )  # fmt: skip
        return chosen() if chosen else None

    def _ringed(self, ctas: int, many: int, free: int) -> int:
        """Return how many of the `free` registers elements may take, of so many CTAs an SM."""
        if many > 1 and self.begun:
            return 0
        beside = RING_BESIDE[0 if many == 1 else 1 + (self.weights > 0)]
        most = MOST_WORDS if self.words >= 1 and ctas == MOST_CTAS else MOST_PACKED
        return min(free - beside, most)

    def slow(self, columns: int) -> bool:
        """Whether CTAs that load rows of so many columns directly take longer than rings."""
        if self.weights:
            return not self.waits and columns * self.words > LONG_WEIGHED
        return self.inputs == 1 and columns * self.nbytes > LONG

    def spread(self, columns: int) -> Iterator[_Rows]:
        """Yield what a CTA has of rows that it has alone, and shared by clusters."""
        most = WEIGHED if self.weights else SHARE
        for ctas in (1, 2, 4, MOST_CTAS) if self.spreads else ():
            part = -(-columns // ctas)
            if part * self.words <= most and (ctas == 1 or part >= SPREAD):
                yield replace(self, columns=part, cluster=ctas)

    def in_turn(self) -> NormParams | None:
        """Return how a CTA that begins sums has one row after the other, by rings of bulk copies.

        The bytes on their way are as many as are best, and the parts that CTAs leave few.  None if
        no threads have as much of a row, or too few CTAs have two.
        """
        found: list[tuple[int, int, NormParams]] = []
        for lanes in (32, 64, 128, 256, 512):
            wide = self.columns + -self.columns % (lanes * self.vector)
            held, least, most = wide // lanes, *RINGED
            ctas = self.resident(lanes, held, recompute=False) if least <= held <= most else 0
            for many, stages in product(range(1, ctas + 1), range(2, STAGES + 1)):
                nbytes = many * stages * self.columns * self.nbytes
                if nbytes > ROOM or self.tiles <= SM_90A.sms * many:
                    continue
                params = NormParams(
                    (1, wide), self.vector, lanes // WARP, many, "bulk", "direct", stages,
                    stages - 1, lanes=lanes, resident=many, hold=bool(self.weights),
                    tiles_per_cta=self.each(1, many),
                )  # fmt: skip
                off = abs(log(nbytes / (LOOPED_ALONE if many == 1 else LOOPED_BULK)))
                parts = log(1 + self.of_parts(params) / (self.nbytes * self.tiles))
                waste = log(wide / self.columns)
                found.append((round((off + parts + waste) / log(ALIKE)), held, params))
        return min(found, key=lambda one: one[:2])[-1] if found else None

    @property
    def spreads(self) -> bool:
        """Whether clusters may share rows that one CTA could have."""
        return self.plain and self.weights <= 1 and self.tiles >= SPREAD_ROWS

    @property
    def apart(self) -> bool:
        """Whether CTAs find no weights in the L1 that others have loaded: each has its own columns.

        Layer norm of 1500 x 43000: 135, by threads that have two rows, computed anew, 101; of 4096
        x 65536: 402 and 350; of 1092 x 76024: by 256 threads a row 179, by 128 161.
        """
        return self.cluster > 1 and self.weights > (1 if self.plain else 0)

    def deep(self, held: int) -> int:
        """Return how many rows a thread has at once."""
        return 2 if self.apart and 2 * held <= MAX_HELD and not self.begun else 1

    def taken(self, *, recompute: bool) -> float:
        """Return the registers for an element of a row of all inputs."""
        return self.words + PACKED if recompute else max(self.words, 1)

    def resident(self, lanes: int, held: int, *, recompute: bool) -> int:
        """Return how many CTAs an SM has registers for; 0 if the assembler would spill."""
        threads = max(lanes, WARP if self.begun else THREADS)
        each = self.taken(recompute=recompute) * self.deep(held)
        registers = MORE * (self.inputs > 1) + held * each
        early = self.weights > 0 and (held <= EARLY or self.inputs > 1)
        if self.plain and not (recompute or early):
            registers += PLAIN + STEP * (self.words >= 1 and (self.inputs > 1 or self.cluster == 1))
            registers += (STEP + held * BEHIND) * (self.weights > 1)
        else:
            registers += BASE + held * (self.weights * WEIGHT + self.begun)
            registers += STEP * (self.weights > 0 and held * lanes > self.columns and not recompute)
        registers *= MASKED if self.masked and (self.vector == 1 or self.begun) else 1
        registers = -(-int(registers) // STEP) * STEP
        most = min(FILE // threads // STEP * STEP, 255)
        return 0 if registers > most else min(FILE // (threads * registers), 2048 // threads, 32)

    def of_parts(self, params: NormParams) -> float:
        """Return the bytes of parts of sums of all rows, of a column, written and read."""
        each = params.tile[0] * params.tiles_per_cta
        return 8 * self.begun * params.tile[0] * -(-self.tiles // each)

    def _useful(self, params: NormParams, some: float, nbytes: float) -> float:
        """Return what bytes on their way count where CTAs begin sums: of so many, `some` are there.

        Less beyond `LOOPED`; as far as they are no parts; and where columns fill their tile.
        """
        read = self.nbytes * self.tiles
        share = read / max(read + self.of_parts(params), 1)
        share *= sqrt(min(LOOPED / max(nbytes, 1.0), 1.0))
        return min(some, LOOPED) * share * sqrt(sqrt(self.columns / params.tile[1]))

    def rank(self, params: NormParams) -> tuple[float, ...]:
        """Return how good a schedule is: more bytes that count, but no more than are enough.

        Of those alike fewer threads meet sooner; only where a CTA has its SM for itself, more do
        more at once.  Small clusters find more weights in the L1.
        """
        held = params.tile[1] // params.lanes
        fits = self.resident(params.lanes, held, recompute=params.recompute) > 0
        alone = params.resident == 1
        share = ALONE if alone else 1.0
        if self.plain and self.cluster > 1:  # nobody is done before who has a whole tile
            share *= SHARED_ROW * (self.columns / params.tile[1]) ** 2
        if params.load == "cp_async":
            share = RING_ALONE if alone else RING
        row = self.columns * self.nbytes
        some = params.resident * params.tile[0] * row * params.stages
        nbytes = some * (1.0 if self.begun else share)
        all_ = self.tiles * self.cluster * row / SM_90A.sms
        counts: float = round(log(max(min(nbytes, all_, SATURATED), 1.0), ALIKE))
        if self.begun:
            counts = log(max(self._useful(params, min(nbytes, all_), nbytes), 1.0), ALIKE)
        over = round(log(max(nbytes, 1.0), ALIKE)) if all_ > SATURATED else 0
        direct = params.load == "direct"
        singles = self.vector == 1 and self.tiles <= SM_90A.sms
        warps = params.warps if alone and not singles else -params.warps
        shared = -self.cluster if self.weights else -(self.cluster > 1)
        if self.plain:
            waste = ALIKE if self.columns > SHORT else WASTE
            soon = params.hold and params.tile[1] <= self.columns * waste
            soon |= self.weights == 0 or self.columns > SOON
            beside = warps, -self.cluster, -over, -params.tile[1], -held
            return (fits, soon, counts, direct, not params.recompute, shared, *beside)
        return (
            fits,
            counts,
            direct,
            -over,
            not singles or held <= SINGLES,
            warps,
            -params.tile[1],
            -held,
        )


def _whole(domain: Domain, some: Sequence[Access]) -> list[Access]:
    """Return what has an element for each of a row."""
    return [one for one in some if any(axis in one.coords for axis in domain.rows)]


def _moves(access: Access, domain: Domain) -> bool:
    """Tell whether rows differ."""
    return any(axis is not None and axis not in domain.rows for axis in access.coords) or all(
        axis in domain.rows for one in domain.reads for axis in one.coords if axis is not None
    )


def _words(access: Access) -> float:
    """Return a thread's registers for an element, packed."""
    return access.tv.dtype.nbytes / 4
