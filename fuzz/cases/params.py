"""Hypothesis strategies for schedules, extents and memory layouts, valid by construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from hypothesis import strategies as st

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.definition import Fusion
from fuser.fusion.ir import Meet, tensor_args
from fuser.fusion.ops import reduced_axes, scanned_axis
from fuser.pipeline import Loops, tiled
from fuser.runtime.classify import classify
from fuser.schedule.domain import Access, Domain, flat_refusal, is_whole
from fuser.schedule.params import (
    ARRIVAL,
    MAX_BOX,
    MAX_STAGES,
    Arrival,
    PointwiseParams,
    ReductionParams,
    ScanParams,
)
from fuser.schedule.pointwise import Tiling, copied, tiling
from fuser.schedule.reduction import ReductionTiling, not_added, reduces_rows, split_refusal
from fuser.schedule.scan import scans_rows
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Choices, ShapeClass
from fuzz.cases.case import Case, specs, symbols
from fuzz.cases.draft import rarely
from fuzz.cases.norms import NORM_FAMILIES
from fuzz.cases.schedules import MATMUL_FAMILIES

POINTWISE_FAMILIES: tuple[str, ...] = (
    "direct/direct",
    "direct/tma",
    "tma-pipelined/direct",
    "tma-pipelined/tma",
    "tma-specialized/direct",
    "tma-specialized/tma",
    "bulk-pipelined/direct",
    "bulk-specialized/direct",
    "cp_async-pipelined/direct",
    "cp_async-specialized/direct",
)
"""Every schedule family without products; the name of `PointwiseParams.family`."""
SCAN_FAMILIES = (
    "scan-direct/direct",
    "scan-tma-pipelined/direct",
    "scan-tma-specialized/direct",
    "scan-cp_async-pipelined/direct",
    "scan-cp_async-specialized/direct",
)
"""Every schedule family of kernels that scan; the name of `ScanParams.family`."""
FAMILIES = POINTWISE_FAMILIES + NORM_FAMILIES + SCAN_FAMILIES + MATMUL_FAMILIES
"""Every schedule family."""

MAX_ELEMENTS = 1 << 14
"""Elements of the loops of a case, so that its simulation stays short."""
MAX_TILES = 192
"""Tiles of a case, for the same reason."""
SHARED_TILES = 64
"""Tiles of a case in which CTAs share them: each has a CTA of its own to simulate, or several."""
PER_THREAD = 64
"""Elements of a tile per thread, at most.  Source: `fuser.schedule.params`."""
SLOT_BYTES = 128
"""Alignment of the slots that TMA fills."""
TMA_COLUMNS: tuple[int, ...] = (128, 64, 32, 256, 16)
BULK_COLUMNS: tuple[int, ...] = (128, 256, 512, 1024)
REGISTERS = 64
"""Registers of a thread that tiles may take, so that nothing spills beside the operations' own, and
a compile takes tenths of a second (loops over a thread's elements are unrolled)."""
PARTS_BYTES = 16384
"""Bytes of shared memory of a reduction, at most."""
STAGING = 2
"""Slots, at most, of a buffer that a TMA store empties."""
HELD_OF_SCANS = 16
"""Elements per thread, at most, so that a compile does not take long."""
SCANS = ScanParams((4, 128), 4, 4, None, "direct", "direct", lanes=32)
"""Near what the heuristics choose for scans."""
BARRIER_BYTES = 1024
"""More than the barriers of a kernel take."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one element of a tile takes in the worst kernel of a fusion.

    That is the bytes of all inputs (`reads`), of all outputs (`writes`), and of what meets in
    shared memory, of reductions (`parts`); and 32-bit registers of inputs, outputs and two values
    on the way.
    """

    reads: int
    writes: int
    registers: int = 4
    parts: int = 0

    def smem_bytes(self, tile: tuple[int, int], *, load: bool, store: bool, stages: int) -> int:
        """Bound the shared memory of a schedule."""
        elements = tile[0] * tile[1]
        ring = self.reads * elements * stages if load else 0
        staging = self.writes * elements * STAGING if store else 0
        return ring + staging + self.parts + BARRIER_BYTES


def sizes(fusion: Fusion) -> Sizes:
    """Return what one element of a tile takes in the kernels of a fusion."""
    found = [segment.domain for segment in segments(fusion)]
    parts = PARTS_BYTES * max(len(domain.reductions) for domain in found)
    widest = max(_words(tv.dtype) for tv in fusion.tensors)
    return Sizes(
        max(sum(access.tv.dtype.nbytes for access in domain.reads) for domain in found),
        max(sum(access.tv.dtype.nbytes for access in domain.writes) for domain in found),
        2 * widest
        + max(
            sum(_words(access.tv.dtype) for access in (*d.reads, *d.writes)) + 2 * len(d.reductions)
            for d in found
        ),
        parts,
    )


@st.composite
def params(
    draw: st.DrawFn,
    fusion: Fusion,
    *,
    families: tuple[str, ...] = POINTWISE_FAMILIES,
    depths: Sequence[int] = range(1, MAX_STAGES + 1),
    way: str | None = None,
) -> PointwiseParams:
    """Schedules of these families that fit shared memory, for a fusion.

    `depths` are stages of rings; `way` is how CTAs are to share tiles, where they can.  Those of
    fusions with reductions let up to 16 CTAs share a tile now and then, those in which
    tensors lie in different orders transpose tiles in half of the cases.  Shrinks towards the
    first family (direct/direct), a tile of 1 x 16, one warp, no vectors, one CTA per tile, one
    stage.
    """
    # Some of those with TMA become direct ones later, see `possible`.
    weights = {"direct": 1, "tma": 3, "cp_async": 3, "bulk": 5 if _has_runs(fusion) else 0}
    weighted = [f for f in families for _ in range(weights[_arrival(f)] + 2 * (f == "direct/tma"))]
    family = draw(st.sampled_from(weighted or ["direct/direct"]))
    loads, stores = family.split("/")
    arrival = _arrival(family)
    load, store, bulk = arrival != "direct", stores == "tma", arrival == "bulk"
    columns = TMA_COLUMNS if load or store else (16, 1, 24, 64, 256, 1024, 2048)
    columns = BULK_COLUMNS if bulk else columns
    if _reduces_columns(fusion):
        columns = tuple(n for n in (*columns, 32) if n % 32 == 0)
    cols = draw(st.sampled_from(columns))
    # Slots of 128 bytes suit TMA whatever the element type; smaller ones only some.
    least = SLOT_BYTES if (load or store) and not rarely(draw) else 1
    stages = draw(st.sampled_from(depths)) if load else 1
    need = sizes(fusion)
    transpose = not bulk and _crosses(fusion) and draw(st.booleans())
    per_thread = max(4, min(PER_THREAD, REGISTERS // need.registers))
    split = _splits_iota(fusion)
    through = {"load": load or transpose, "store": store or transpose}
    tiles = [
        (rows, cols)
        for rows in ((1,) if split or bulk else (1, 2, 4, 8, 3, 16, 32))
        if (rows * cols >= least or split or bulk)
        and need.smem_bytes((rows, cols), **through, stages=stages) <= SM_90A.smem_bytes
        and rows * cols <= per_thread * 32 * 16
    ]
    while not tiles:  # very wide fusions: fewer stages fit, or fewer columns
        cols = cols if stages > 1 else max((n for n in columns if n < cols), default=cols // 2)
        stages = max(stages - 1, 1)
        if need.smem_bytes((1, cols), **through, stages=stages) <= SM_90A.smem_bytes:
            tiles = [(1, cols)]
    tile = draw(st.sampled_from(tiles))
    warps = -(-tile[0] * tile[1] // (32 * per_thread))
    specialized = loads.endswith("specialized")
    even = gcd(*tile) if transpose else cols
    flattens = tile[0] == 1 and not transpose and _flattens(fusion)
    plain = PointwiseParams(
        tile=tile,
        vector=draw(
            st.sampled_from(
                [
                    n
                    for n in (1, 2, 4, 8, 16)
                    if even % n == 0 and n <= per_thread and (way != "tma" or cols // n % 4 == 0)
                ]
                or [1]
            )
        ),
        warps=draw(st.sampled_from([n for n in (1, 2, 4, 8, 3, 16) if n >= warps])),
        ctas_per_sm=draw(st.sampled_from([None, 1, 2, 3, 4])),
        load=arrival,
        store="tma" if store else "direct",
        stages=stages,
        prefetch=0 if specialized or not load else draw(st.integers(0, stages - 1)),
        warp_specialized=specialized,
        flat=flattens and (bulk or draw(st.booleans())),
        transpose=transpose,
        overlay=draw(st.booleans()),
    )
    if specialized or not _reduces(fusion):
        return plain
    ways = _meetings(fusion)
    many = [1] if way == "alone" else [2, 3, 7, 16] if way else [1, 1, 1, 2, 3, 7, 16]
    return shared(
        plain,
        draw(st.sampled_from(many)),
        draw(st.sampled_from([one for one in ways if one == way] or ways)),
    )


def _arrival(family: str) -> Arrival:
    """Return how inputs come to the CTA in a family."""
    return next(word for word in ARRIVAL if family.startswith(word))


def shared(plain: PointwiseParams, splits: int, meet: Meet) -> PointwiseParams:
    """Return params by which so many CTAs share a tile; by threads where not so (`possible`)."""
    return plain if splits == 1 else ReductionParams.sharing(plain, splits, meet)


@st.composite
def extents(
    draw: st.DrawFn, fusion: Fusion, params: PointwiseParams, *, max_elements: int = MAX_ELEMENTS
) -> dict[str, int]:
    """Values of every symbol of a fusion: 0, 1, tails, one past a tile, several turns of a ring.

    Shrinks towards 1 for every symbol.
    """
    rows, cols = params.tile
    turns = [rows * params.stages, rows * (2 * params.stages + 1)]
    edges = [1, 2, 3, cols - 1, cols, cols + 1, rows + 1, 2 * cols + 3, 3 * cols, *turns, 0]
    if isinstance(params, ReductionParams):  # a step or two for each CTA, mostly
        many = params.splits
        turns += [cols * many, rows * many, cols * (2 * many - 1)]
        edges += [cols * many - 1, rows * many + 1, rows * 2 * many] * 2
    many = params.splits if isinstance(params, ReductionParams) else 1
    even = draw(st.booleans()) or (_wants_even(params) and not rarely(draw))
    left = min(max_elements, MAX_TILES * rows * cols) // _pinned(fusion)
    found: dict[str, int] = {}
    long = _reduced(fusion) if isinstance(params, ReductionParams) else []
    for name in long:  # several steps of what CTAs share, mostly
        steps = [max(rows, cols) * n for n in (2, many, 2 * many - 1, 3)]
        fitting = [n for n in steps if n ** _uses(fusion, name) <= left]
        if fitting and not rarely(draw):
            found[name] = draw(st.sampled_from(fitting)) - (0 if even else draw(st.integers(0, 1)))
            left //= found[name] ** _uses(fusion, name)
            break
    for position, name in enumerate(n for n in symbols(fusion) if n not in found):
        whole = even and (position or params.store == "tma")
        steps = [16 * turns[1], *turns[2:], *turns[2:]]
        choices = [16, 64, 48, 256, cols + 16, 2 * cols, *steps] if whole else edges
        limit = max(int(left ** (1 / max(_uses(fusion, name), 1))), 1)
        fitting = list(dict.fromkeys(n for n in choices if 0 <= n <= limit)) or [1]
        odd = st.integers(1, min(limit, 300))
        found[name] = draw(st.sampled_from(fitting) if whole else st.sampled_from(fitting) | odd)
        left //= max(found[name] ** _uses(fusion, name), 1)
    return found


def _wants_even(params: PointwiseParams) -> bool:
    return params.store == "tma" or params.load in ("tma", "cp_async")


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int]:
    """Gaps and offsets of the inputs in memory, in elements.  Shrinks towards none."""
    odd = rarely(draw)
    gap = draw(st.sampled_from([0, 1, 3, 8, 5] if odd else [0, 16, 64]))
    return gap, draw(st.sampled_from([0, 1, 2, 4, 8] if odd else [0, 0, 16]))


def trimmed(case: Case) -> Case:
    """Return the case with its largest extents halved until it has few enough tiles."""
    values = dict(case.extents)
    schedule = _pointwise(case)
    found = [
        tiled(segment.domain, schedule if segment.domain.scanned is None else SCANS)
        for segment in segments(case.fusion)
    ]
    most = SHARED_TILES if isinstance(schedule, ReductionParams) else MAX_TILES
    while any(values.values()) and max(_tiles(tiles, values) for tiles in found) > most:
        largest = max(values, key=lambda name: values[name])
        if values[largest] == 1:
            break
        values[largest] //= 2
    return replace(case, extents=values)


def possible(case: Case) -> Case:
    """Return the case without TMA where it can move no tensor of a kernel, or add up no results."""
    schedule = _pointwise(case)
    made = classify(case.fusion, schedule, specs(case))
    load, store = schedule.load, schedule.store
    cut = segments(case.fusion, made.choices)
    for segment, shape_class in zip(cut, made.kernels, strict=True):
        domain = segment.domain
        if domain.scanned is not None:  # by the heuristics
            continue
        tiles = tiled(domain, schedule)
        if isinstance(tiles, ReductionTiling) and split_refusal(tiles, schedule) is not None:
            assert isinstance(schedule, ReductionParams), "others share nothing"
            schedule = replace(schedule, meet="vectorized")
        movable = shape_class.tma

        def able(
            accesses: tuple[Access, ...], tiles: Loops = tiles, movable: frozenset[str] = movable
        ) -> bool:
            return not accesses or any(
                tiles.tma_refusal(access) is None and access.name in movable for access in accesses
            )

        leaves = tuple(leaf for reduction in domain.reductions for leaf in reduction.leaves)
        if load == "bulk":
            load = load if _in_bulk(tiles, shape_class) else "direct"
        elif load == "cp_async":
            wanted = leaves or domain.reads
            assert isinstance(tiles, Tiling), "a kernel without products"
            every = copied(tiles, schedule, shape_class)
            load = load if not wanted or any(a in every for a in wanted) else "direct"
        else:
            load = load if able(leaves or domain.reads) else "direct"
        store = store if domain.reductions or able(domain.writes) else "direct"
    schedule = replace(schedule, store=store)
    if load != schedule.load:
        schedule = replace(schedule, load=load, stages=1, prefetch=0, warp_specialized=False)
    return replace(case, params=schedule)


def _in_bulk(tiles: Loops, shapes: ShapeClass) -> bool:
    """Tell whether tiles of an input of a kernel are runs that bulk copies take."""
    if not isinstance(tiles, Tiling) or isinstance(tiles, ReductionTiling):
        return False
    if tiles.rank > 1 or tiles.split:
        return False
    reads = tiles.domain.reads
    return not reads or any(
        tiles.unit(access, 0)
        and not tiles.cycles(access)
        and shapes.elements(access.name) * access.tv.dtype.nbytes == SLOT_BYTES // 8
        and tiles.tile[0] * access.tv.dtype.nbytes % SLOT_BYTES == 0
        for access in reads
    )


def _pointwise(case: Case) -> PointwiseParams:
    assert isinstance(case.params, PointwiseParams), "for fusions without products"
    return case.params


def _words(dtype: DType) -> int:
    return 2 if dtype.nbytes == 8 else 1


def _splits_iota(fusion: Fusion) -> bool:
    """Tell whether rows of a tile would split the one axis of a kernel that counts along it."""
    return any(tv.op == "iota" for tv in fusion.tensors) and any(
        len(domain.merged) == 1 for domain in _cut(fusion)
    )


def _flattens(fusion: Fusion) -> bool:
    """Tell whether kernels without reductions can walk all of their axes as one."""
    plain = [domain for domain in _cut(fusion) if not domain.reductions]
    return bool(plain) and all(flat_refusal(domain) is None for domain in plain)


def _has_runs(fusion: Fusion) -> bool:
    """Tell whether all kernels read a tensor that has no gaps, in the order of their loops."""
    return _flattens(fusion) and all(
        not domain.reductions and any(is_whole(a, len(domain.extents)) for a in domain.reads)
        for domain in _cut(fusion)
    )


def _cut(fusion: Fusion) -> list[Domain]:
    """Return the loops of kernels that do not scan, also where a fusion reduces nothing at all."""
    reduced = frozenset(tv.name for tv in fusion.tensors if reduced_axes(tv))
    cuts = [segments(fusion, Choices(empty=empty)) for empty in (frozenset[str](), reduced)]
    found = (segment.domain for cut in cuts for segment in cut)
    return [domain for domain in found if domain.scanned is None]


def _reduces(fusion: Fusion) -> bool:
    return any(segment.domain.reductions for segment in segments(fusion))


def _crosses(fusion: Fusion) -> bool:
    """Tell whether tensors of a kernel without reductions lie in different orders."""
    cut = [domain for domain in _cut(fusion) if not domain.reductions]
    asked = PointwiseParams((1, 1), 1, 1, None, "direct", "direct", transpose=True)
    return any(
        tiles.turned(access)
        for tiles in (tiling(domain, asked) for domain in cut)
        for access in (*tiles.domain.reads, *tiles.domain.writes)
    )


def _meetings(fusion: Fusion) -> list[Meet]:
    """Return how CTAs may put together what they have of all that a fusion reduces."""
    found = [segment.domain for segment in segments(fusion)]
    by_tma = all(not_added(domain) is None for domain in found)
    # What TMA does not add meets by threads often enough.
    return ["vectorized", "last", "tma", "tma"] if by_tma else ["vectorized", "last"]


def _reduces_columns(fusion: Fusion) -> bool:
    """Tell whether a kernel reduces the columns of its tiles, each by one thread."""
    cut = [segment.domain for segment in segments(fusion)]
    return any(domain.reductions and not reduces_rows(domain) for domain in cut)


def _reduced(fusion: Fusion) -> list[str]:
    """Return the symbols of what is reduced, each once."""
    every = (
        tensor_args(tv)[0].logical[axis].extent
        for tv in fusion.tensors
        for axis in reduced_axes(tv)
    )
    return [str(n) for n in dict.fromkeys(every) if not isinstance(n, int)]


def _pinned(fusion: Fusion) -> int:
    """Return the largest product of the extents of a tensor that are numbers."""
    return max(prod(n for n in tv.shape if isinstance(n, int) and n) for tv in fusion.tensors)


def _tiles(tiles: Loops, values: dict[str, int]) -> int:
    loops = [n if isinstance(n, int) else values[n.name] for n in tiles.domain.extents]
    merged = [prod(loops[axis] for axis in group) for group in tiles.groups]
    if tiles.split:
        return -(-merged[0] // prod(tiles.tile)) + 1
    return prod(-(-n // tile) for n, tile in zip(merged, tiles.tile, strict=True))


def _uses(fusion: Fusion, symbol: str) -> int:
    return max(sum(str(axis) == symbol for axis in tv.logical) for tv in fusion.tensors)


# --- scans ----------------------------------------------------------------------------------


@st.composite
def scan_params(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = SCAN_FAMILIES,
    depths: Sequence[int] = (1, 2, 3, 4),
) -> ScanParams:
    """Schedules of kernels that scan, with rings of so many stages.

    Shrinks towards a warp a row, one of them.
    """
    family = draw(st.sampled_from(families))
    load = _arrival(family.removeprefix("scan-"))
    specialized = "specialized" in family
    lanes = draw(st.sampled_from([32, 64, 8, 1, 4, 128, 16, 2, 96]))
    warps = draw(st.sampled_from([n for n in (1, 2, 4, 3, 6) if 32 * n % lanes == 0]))
    widths = [1, 2, 4, 8, 16] if load == "direct" else [4, 2, 8, 16]
    vector = draw(st.sampled_from([n for n in widths if load != "tma" or lanes * n <= MAX_BOX]))
    rows = 32 * warps // lanes
    most = MAX_BOX // rows if load == "tma" else 3
    times = draw(st.integers(1, max(1, min(3, HELD_OF_SCANS // vector, most))))
    stages = draw(st.sampled_from(depths)) if load != "direct" else 1
    return ScanParams(
        (rows * times, lanes * vector),
        vector,
        warps,
        draw(st.sampled_from([None, 1, 2, 3])),
        load,
        "direct",
        stages,
        0 if specialized else draw(st.integers(0, stages - 1)),
        warp_specialized=specialized,
        overlay=draw(st.booleans()),
        lanes=lanes,
    )


@st.composite
def scan_extents(draw: st.DrawFn, fusion: Fusion, params: ScanParams) -> dict[str, int]:
    """Values of every symbol: several tiles along what is scanned, one, a part of one, none.

    Shrinks towards 1 for every symbol.
    """
    along = _scanned(fusion)
    rows = scans_rows_of(fusion)
    tile = params.tile if rows else params.down.tile
    step, other = (tile[1], tile[0]) if rows else tile
    left = MAX_ELEMENTS // 2
    out: dict[str, int] = {}
    for name in sorted(symbols(fusion), key=lambda name: name != along):
        size = step if name == along else other
        turns = size * (params.stages + 1)
        some = [1, 2, size, 2 * size, size - 1, size + 1, turns, turns + size - 1, 3, 8, 16, 0]
        even = [n for n in some if n % 8 == 0 and n]
        if params.load != "direct" and name == symbols(fusion)[-1]:
            some = even or [8, 16]
        fitting = [n for n in some if 0 <= n <= left] or [1]
        out[name] = draw(st.sampled_from(fitting))
        left //= max(out[name], 1)
    return out


def scans_rows_of(fusion: Fusion) -> bool:
    """Whether the first kernel of a fusion that scans does so along rows of its tiles."""
    found = (one.domain for one in segments(fusion) if one.domain.scanned is not None)
    first = next(found, None)
    return first is None or scans_rows(first)


def loaded(case: Case) -> Case:
    """Return the case with direct loads where its engine can move no tensor of a kernel."""
    params = case.params
    if not isinstance(params, ScanParams) or params.load == "direct":
        return case
    direct = replace(params, load="direct", stages=1, prefetch=0, warp_specialized=False)
    made = classify(case.fusion, direct, specs(case))
    for segment, shapes, schedule in zip(
        segments(case.fusion, made.choices), made.kernels, made.schedules, strict=True
    ):
        if not isinstance(schedule, ScanParams):
            continue
        if params.load == "tma" and 32 * params.warps > MAX_BOX and not scans_rows(segment.domain):
            return replace(case, params=direct)
        tiles = tiled(segment.domain, params)
        assert isinstance(tiles, ReductionTiling), "a kernel that scans"
        if params.load == "cp_async":
            able = bool(copied(tiles, params, shapes))
        else:
            able = any(
                tiles.tma_refusal(access) is None and access.name in shapes.tma
                for access in segment.domain.reads
            )
        if segment.domain.reads and not able:
            return replace(case, params=direct)
    return case


def _scanned(fusion: Fusion) -> str:
    """Return the extent along which the first scan runs, if it has a name."""
    found = ((tv, scanned_axis(tv)) for tv in fusion.tensors)
    return next((str(tv.shape[axis]) for tv, axis in found if axis is not None), "")
