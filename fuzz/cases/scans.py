"""Hypothesis strategies for fusions with scans, and for schedules of kernels that scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ops import scanned_axis
from fuser.pipeline import tiled
from fuser.runtime.classify import classify
from fuser.schedule.params import MAX_BOX, Arrival, ScanParams
from fuser.schedule.pointwise import copied
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.scan import scans_rows
from fuser.schedule.segment import segments
from fuzz.cases import draft as on
from fuzz.cases.case import Case, specs, symbols
from fuzz.cases.draft import DTYPES, FEATURES, Draft
from fuzz.cases.graphs import extend

SCAN_FAMILIES = (
    "scan-direct/direct",
    "scan-tma-pipelined/direct",
    "scan-tma-specialized/direct",
    "scan-cp_async-pipelined/direct",
    "scan-cp_async-specialized/direct",
)
"""Every schedule family of kernels that scan; the name of `ScanParams.family`."""
FEW = frozenset({"permuted strides", "f64", "integers", "bool", "8 bits", "gaps", "lower ranks"})
"""Features that keep engines from loading, mostly."""
HELD = 16
"""Elements per thread, at most, so that a compile does not take long."""
MAX_ELEMENTS = 1 << 13
"""Elements of the loops of a case, so that its simulation stays short."""


@st.composite
def scan_fusions(draw: st.DrawFn, *, exact: bool = False, few: bool = False) -> Fusion:
    """Fusions that scan what is computed, and compute with the results; `few` suit every engine.

    Their one to three axes have any extents.  Shrinks towards a cumsum in f32 of one axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    banned |= {"pinned extents", "equal axes", "reductions"}
    banned |= FEW if few or draw(st.booleans()) else frozenset()
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    draft = Draft(FusionDefinition(), banned, [f"i{n}" for n in range(rank)], exact)
    types = [d for d in DTYPES if d in draft.dtypes() and not (few and d.nbytes == 1)]
    a = on.take_input(draw, draft, dtypes=types, whole=True)
    if draw(st.booleans()):
        a = (
            on.apply(draw, draft, draw(st.sampled_from(["relu", "abs", "neg"])), a)
            if (a.dtype is not DType.BOOL)
            else a
        )
    made = on.scan(draw, draft, a)
    if draw(st.booleans()):
        extend(draw, draft, 0, 2)
    if draw(st.sampled_from([False, False, True])) and not exact:
        on.scan(draw, draft, made)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


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
    load: Arrival = "direct"
    if "direct-" not in family and family != "scan-direct/direct":
        load = "tma" if "tma" in family else "cp_async"
    specialized = "specialized" in family
    lanes = draw(st.sampled_from([32, 64, 8, 1, 4, 128, 16, 2, 96]))
    warps = draw(st.sampled_from([n for n in (1, 2, 4, 3, 6) if 32 * n % lanes == 0]))
    widths = [1, 2, 4, 8, 16] if load == "direct" else [4, 2, 8, 16]
    vector = draw(st.sampled_from([n for n in widths if load != "tma" or lanes * n <= MAX_BOX]))
    rows = 32 * warps // lanes
    most = MAX_BOX // rows if load == "tma" else 3
    times = draw(st.integers(1, max(1, min(3, HELD // vector, most))))
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
    along = _along(fusion)
    rows = scans_rows_of(fusion)
    tile = params.tile if rows else params.down.tile
    step, other = (tile[1], tile[0]) if rows else tile
    left = MAX_ELEMENTS
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


def _along(fusion: Fusion) -> str:
    """Return the extent along which the first scan runs, if it has a name."""
    found = ((tv, scanned_axis(tv)) for tv in fusion.tensors)
    return next((str(tv.shape[axis]) for tv, axis in found if axis is not None), "")
