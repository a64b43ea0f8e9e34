"""Hypothesis strategies for fusions of rows, and for schedules of kernels that have whole ones.

Rows are reduced, and the results broadcast back to them.  Valid by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ir import Symbol, TensorView
from fuser.fusion.ops import reduced_axes
from fuser.pipeline import tiled
from fuser.runtime.classify import classify
from fuser.schedule.norm import copied, runs
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.segment import segments
from fuzz.cases.case import Case, specs, symbols
from fuzz.cases.draft import DTYPES, FEATURES, Draft, Wanted, add_outputs, ones, reduce, take_input
from fuzz.cases.graphs import extend, grow

NORM_FAMILIES = (
    "norm-direct/direct",
    "norm-cp_async/direct",
    "norm-cluster/direct",
    "norm-bulk/direct",
)
"""Every schedule family of kernels that have whole rows; the name of `NormParams.family`."""
PLAIN = frozenset({"equal axes", "pinned extents"})
"""Features that rows of any length do without."""
REDUCING = frozenset({"reductions", "idioms"})
FEW = frozenset({"permuted strides", "f64", "integers", "bool", "8 bits", "shape ops"})
"""Features that keep most kernels from having whole rows."""
MAX_COLUMNS = 640
"""Columns of a tile, so that a simulation stays short."""
HELD = 24
"""Elements of a row per thread, at most, so that a compile does."""


@st.composite
def norm_fusions(draw: st.DrawFn, *, exact: bool = False, wanted: Wanted = ()) -> Fusion:
    """Fusions that reduce rows and use the results for each element of them, or all rows, or both.

    Operations that are `wanted` are drawn more often.  One to three axes end with those of a row,
    one or two.  Shrinks towards x + sum(x) in f32.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8))) - REDUCING | PLAIN
    banned |= FEW if draw(st.sampled_from([True, True, True, False])) else frozenset()
    rank = draw(st.sampled_from([2, 2, 3, 1]))
    reduced = 2 if rank == 3 and draw(st.booleans()) else 1
    axes: list[str | int] = [f"i{n}" for n in range(rank)]
    along = list(range(rank - reduced, rank))
    draft = Draft(FusionDefinition(), banned, axes, exact, along=along, wanted=wanted)
    types = [DType.F32, *({DType.BF16, DType.F16} & {*draft.dtypes()})]
    take_input(draw, draft, dtypes=sorted(types, key=DTYPES.index), whole=True)
    plain = rank > reduced and draw(st.sampled_from([False] * 7 + [True]))
    if not plain:
        grow(draw, draft, draw(st.sampled_from(["normalize", "norm"])))
    extend(draw, draft, 0, 3)
    if rank > reduced:
        down(draw, draft, list(range(rank - reduced)), 1 if plain else 0)
    add_outputs(draw, draft)
    return draft.fd.fusion()


def down(draw: st.DrawFn, draft: Draft, axes: list[int], least: int) -> None:
    """Reduce what has whole rows along the other axes, as gradients do; up to twice."""
    for _ in range(draw(st.sampled_from([least, least, 1, 2]))):
        whole = [tv for tv in draft.live if not ones(tv)]
        draft.along, along = axes, draft.along
        reduce(draw, draft, draw(st.sampled_from(whole[::-1])))
        draft.along = along


@st.composite
def plain_rows(draw: st.DrawFn, *, exact: bool = False) -> Fusion:
    """Fusions that add rows up and do nothing else.  Shrinks towards a sum in bf16."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], draw(st.sampled_from(["bf16", "f16", "f32"])), draw(gaps()))
    source = fd.ops.abs(x) if draw(st.booleans()) else x
    made = "sum" if exact or draw(st.booleans()) else "mean"
    fd.add_output(getattr(fd.ops, made)(source, [1]))
    return fd.fusion()


def gaps() -> st.SearchStrategy[list[bool]]:
    """Whether rows lie one behind the other."""
    return st.sampled_from([[True, True], [False, True]])


def sliding(fusion: Fusion, params: NormParams) -> NormParams:
    """Return params whose rows slide, by vectors of 16 bytes, if they are loaded by one CTA."""
    if params.load != "direct" or params.cluster > 1:
        return params
    (rows, cols), wide = params.tile, 16 // _first(fusion).dtype.nbytes
    cols += -cols % (params.lanes * wide)
    rows = rows if rows * cols <= HELD * 32 * params.warps else 32 * params.warps // params.lanes
    return replace(params, tile=(rows, cols), vector=wide, slide=True)


@st.composite
def norm_params(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = NORM_FAMILIES,
    depths: Sequence[int] = (1, 2, 3, 4),
) -> NormParams:
    """Schedules of kernels that have whole rows, with rings of so many stages.

    Shrinks towards a warp a row, one of them.
    """
    family = draw(st.sampled_from(families))
    ctas = draw(st.sampled_from([2, 4, 8])) if family == "norm-cluster/direct" else 1
    bulk = family == "norm-bulk/direct" or (ctas > 1 and draw(st.booleans()))
    lanes = draw(st.sampled_from([32, 64, 128, 96] + [8, 1, 4, 16, 2] * (not bulk)))
    warps = draw(st.sampled_from([n for n in (1, 2, 4, 3, 6) if 32 * n % lanes == 0]))
    warps = lanes // 32 if bulk else warps
    vector = draw(st.sampled_from([8, 4, 2, 1] if bulk else [1, 2, 4, 8]))
    most = max(1, min(MAX_COLUMNS // (lanes * vector * ctas), HELD // vector))
    cols = lanes * vector * draw(st.integers(1, min(most, 5)))
    each = max(1, min(3, HELD * lanes // cols))
    ring = bulk or family == "norm-cp_async/direct"
    ring |= ctas > 1 and (min(depths) > 1 or draw(st.booleans()))
    stages = draw(st.sampled_from(depths)) if ring else 1
    recompute = draw(st.booleans())
    return NormParams(
        (1 if bulk else 32 * warps // lanes * draw(st.integers(1, each)), cols),
        vector,
        warps,
        draw(st.sampled_from([None, 1, 2, 3])),
        "bulk" if bulk else "cp_async" if ring else "direct",
        "direct",
        stages,
        draw(st.integers(0, stages - 1)),
        lanes=lanes,
        recompute=recompute,
        resident=draw(st.sampled_from([1, 1, 2, 4])),
        reload=ring and recompute and draw(st.booleans()),
        hold=draw(st.booleans()),
        cluster=ctas,
        overlay=draw(st.booleans()),
        tiles_per_cta=draw(st.sampled_from([1, 2, 3, 5])),
    )


@st.composite
def norm_extents(draw: st.DrawFn, fusion: Fusion, params: NormParams) -> dict[str, int]:
    """Values of every symbol: rows that fill a tile and such that do not, of 1, of few, none.

    Shrinks towards rows of 1.
    """
    rows, cols = params.tile[0], params.columns
    out: dict[str, int] = {}
    left = cols
    around = [*_around(fusion)]
    for name in reversed(_along(fusion)):
        first = left == cols
        some = {1, 2, 3, left, left - 1, left - 8, left // 2, left // 3 * 2, left // 4}
        edges = sorted(n for n in some if 1 <= n <= left)
        value = draw(st.sampled_from(edges[::-1]) if first else st.sampled_from(edges))
        out[name] = draw(st.sampled_from([value] * 9 + [0]))
        left //= max(out[name], 1)
    for name in around:
        many = [rows, rows + 1, 1, 2 * rows, 3 * rows - 1, 5, rows * (params.stages + 1), 0]
        out[name] = draw(st.sampled_from([min(n, 40) for n in many]))
    left = cols
    for name in symbols(fusion):  # rows of another length than those that are reduced
        if name not in out:
            out[name] = draw(st.sampled_from([n for n in (1, 5, 16, 33) if n <= left]))
            left //= out[name]
    return out


def able(case: Case) -> Case:
    """Return the case with direct loads where no engine can copy rows of some kernel."""
    params = case.params
    if not isinstance(params, NormParams) or params.load == "direct":
        return case
    direct = replace(params, load="direct", stages=1, prefetch=0, reload=False)
    made = classify(case.fusion, direct, specs(case))
    for segment, shapes, schedule in zip(
        segments(case.fusion, made.choices), made.kernels, made.schedules, strict=True
    ):
        if isinstance(schedule, NormParams):
            tiles = tiled(segment.domain, schedule)
            assert isinstance(tiles, ReductionTiling), "a kernel that has whole rows"
            moved = runs if params.load == "bulk" else copied
            if not moved(tiles, schedule, shapes):
                return replace(case, params=direct)
    return case


def _first(fusion: Fusion) -> TensorView:
    return next(tv for tv in fusion.inputs if isinstance(tv, TensorView))


def _along(fusion: Fusion) -> list[str]:
    """Return the extents of a row, by what is reduced: rows, or else all of them."""
    every = [{*reduced_axes(tv)} for tv in fusion.tensors if reduced_axes(tv)]
    last = _first(fusion).rank - 1
    axes = next((some for some in every if last in some), {*range(last + 1)} - every[0])
    return [str(_first(fusion).shape[axis]) for axis in sorted(axes)]


def _around(fusion: Fusion) -> list[str]:
    every = [str(n) for n in _first(fusion).shape if isinstance(n, Symbol)]
    rows = _along(fusion)
    return [name for name in dict.fromkeys(every) if name not in rows]
