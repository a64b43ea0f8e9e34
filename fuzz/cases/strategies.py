"""The strategy of cases: a fusion, its schedule, its extents and its inputs, drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion
from fuser.fusion.ops import Form
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import MAX_STAGES, NormParams, PointwiseParams, ReductionParams
from fuzz.cases.case import Case, Kind
from fuzz.cases.draft import INEXACT, rarely
from fuzz.cases.extents import matmul_extents
from fuzz.cases.features import DEPTHS, Cell
from fuzz.cases.fusions import (
    fusions,
    paired_fusions,
    plain_fusions,
    reduced_fusions,
    reducing_fusions,
    scan_fusions,
    several_op_fusions,
    several_ops,
    single_op_fusions,
)
from fuzz.cases.norms import (
    NORM_FAMILIES,
    able,
    norm_extents,
    norm_fusions,
    norm_params,
    plain_rows,
    sliding,
)
from fuzz.cases.params import (
    FAMILIES,
    POINTWISE_FAMILIES,
    SCAN_FAMILIES,
    extents,
    layouts,
    loaded,
    params,
    possible,
    scan_extents,
    scan_params,
    trimmed,
)
from fuzz.cases.products import product_fusions
from fuzz.cases.schedules import MATMUL_FAMILIES, matmul_params, suited

HINDERING = ("8 bits", "other types", "several products", "chains", "compositions", "reductions")
"""Features with which CTAs cannot share tiles in every way."""
AT_ONCE, FEW = 8, 5
"""Wishes of a kind that a case is made for at once, at most; and of one that is for a schedule."""
WIDE = ("f32", "bf16", "f16", "i32", "i64", "f64")
"""Types of which few elements are what an engine moves at a time."""
_TYPES = {dtype.name: dtype for dtype in DType}
PRODUCTS = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False)
POINTWISE = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
ROWS = NormParams((16, 300), 1, 2, None, "direct", "direct", lanes=4)
REDUCTIONS = ReductionParams((2, 1024), 4, 4, None, "direct", "direct", splits=3)
"""Near what the heuristics choose for small extents."""


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    max_ops: int = 8,
    wishes: tuple[Cell, ...] = (),
) -> Case:
    """Cases over small and large fusions; one in two has products, where `families` have.

    Three in five are made for one of the `wishes`, cells of the table of `features`.

    One in seven has whole rows, another scans.  Where these are of several kinds, one in eight
    leaves its schedules to the heuristics.  Shrinks towards one `relu` of an f32 input of one
    element under direct/direct (or the first of `families` that can be), integers, seed 0; those
    with products towards one `matmul`.
    """
    asked = bool(wishes) and draw(st.sampled_from((False, True, True, False, True)))
    wish = draw(st.sampled_from(wishes)) if asked else None
    if wish:
        return draw(_wished(wish, wishes, kinds=kinds, max_ops=max_ops))
    pointwise = tuple(family for family in families if family in POINTWISE_FAMILIES)
    matmul = tuple(family for family in families if family in MATMUL_FAMILIES)
    norm = tuple(family for family in families if family in NORM_FAMILIES)
    if pointwise and matmul and rarely(draw) and draw(st.booleans()):
        return draw(default_cases(kinds=kinds, max_ops=max_ops))
    scan = tuple(family for family in families if family in SCAN_FAMILIES)
    ways = ["pointwise"] * bool(pointwise) + ["products"] * bool(matmul)
    if norm or scan:
        ways = ["pointwise"] * 2 * bool(pointwise) + ["products"] * 3 * bool(matmul)
        ways += ["rows"] * bool(norm) + ["scans"] * bool(scan)
    way = draw(st.sampled_from(ways))
    if way == "products":
        return draw(product_cases(families=matmul, kinds=kinds, max_ops=min(max_ops, 4)))
    if way == "rows":
        return draw(row_cases(families=norm, kinds=kinds))
    if way == "scans":
        return draw(scan_cases(families=scan, kinds=kinds))
    return draw(pointwise_cases(families=pointwise, kinds=kinds, max_ops=max_ops))


@st.composite
def _wished(
    draw: st.DrawFn,
    wish: Cell,
    wishes: tuple[Cell, ...],
    *,
    kinds: tuple[Kind, ...],
    max_ops: int,
) -> Case:
    """Cases that are in a cell of the table, if they can be; and in more that are wished for."""
    match wish:
        case ("operation", "mma", dtype):
            fusions_ = product_fusions(max_ops=3, dtype=_TYPES[dtype], exact=True)
            return draw(product_cases(kinds=kinds, of=fusions_))
        case ("operation", op, dtype) if several_ops(wish):
            several = draw(_beside(wish, [cell for cell in wishes if several_ops(cell)]))
            of = several_op_fusions(several)
            return draw(pointwise_cases(kinds=kinds[-1:], of=of))
        case ("operation", op, dtype):
            exact = op not in INEXACT | {"mean"} and "integers" in kinds and draw(st.booleans())
            exact = exact and not (op in ("floor_div", "remainder") and _TYPES[dtype].is_float)
            one = single_op_fusions(op=op, dtype=_TYPES[dtype], exact=exact, more=4)
            return draw(pointwise_cases(kinds=("integers",) if exact else kinds[-1:], of=one))
        case ("pair", first, second):
            before, after = (None if n in ("input", "output") else Form(n) for n in (first, second))
            pair = paired_fusions(first=before, second=after, exact=True)
            made = product_cases if Form.MMA in (before, after) else pointwise_cases
            return draw(made(kinds=kinds, of=pair))
        case ("reduced", op, reduction):
            others = [cell for cell in wishes if cell[0] == "reduced" and cell[2] == reduction]
            together = draw(_beside(wish, others))
            beside = tuple(cell[1] for cell in together[1:])
            several_reduced = reduced_fusions(op=op, reduction=reduction, beside=beside)
            return draw(pointwise_cases(kinds=kinds[-1:], of=several_reduced))
        case ("schedule", family, depth, way):
            depths = [n for n, name in DEPTHS.items() if name == depth]
            asked = (family,)
            if family in MATMUL_FAMILIES:
                plain = product_fusions(max_ops=2, exact=True, banned=HINDERING)
                return draw(
                    product_cases(families=asked, kinds=kinds, of=plain, depths=depths, way=way)
                )
            if family in NORM_FAMILIES:
                return draw(row_cases(families=asked, kinds=kinds, depths=depths))
            if family in SCAN_FAMILIES:
                return draw(scan_cases(families=asked, kinds=kinds, depths=depths))
            lone = [cell for cell in wishes if several_ops(cell) and cell[2] in WIDE]
            if way == "alone" and lone and draw(st.booleans()):
                alike = draw(_beside(lone[0], lone[1:FEW]))
                some, of_them = kinds[-1:], several_op_fusions(alike)
            else:
                some, of_them = kinds, plain_fusions() if way == "alone" else reducing_fusions()
            return draw(
                pointwise_cases(families=asked, kinds=some, of=of_them, depths=depths, way=way)
            )
        case ("extents", "scan", _):
            return draw(scan_cases(kinds=kinds))
        case _:
            return draw(pointwise_cases(kinds=kinds, max_ops=max_ops))


@st.composite
def _beside(draw: st.DrawFn, wish: Cell, others: list[Cell]) -> tuple[Cell, ...]:
    """Draw some more wishes beside one.  Shrinks towards the one."""
    left = [cell for cell in dict.fromkeys(others) if cell != wish]
    return (wish, *left[: draw(st.sampled_from([0, *[AT_ONCE - 1] * 4]))])


@st.composite
def default_cases(
    draw: st.DrawFn, *, kinds: tuple[Kind, ...] = ("integers", "reals"), max_ops: int = 8
) -> Case:
    """Cases whose params are of the other kind, so that kernels take those of the heuristics.

    Shrinks towards one `relu` of an f32 input of one element, integers, seed 0.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    seed = draw(st.integers(0, 999))
    gap, offset = draw(layouts())
    if draw(st.booleans()):
        fusion = draw(product_fusions(exact=exact, max_ops=min(max_ops, 2), asked=True))
        values = draw(matmul_extents(fusion, PRODUCTS, exact=exact))
        return Case(fusion, POINTWISE, values, kind, seed, gap, offset)
    if draw(st.booleans()):
        fusion = draw(norm_fusions(exact=exact))
        values = draw(norm_extents(fusion, ROWS))
        return Case(fusion, PRODUCTS, values, kind, seed, gap, offset)
    fusion = draw(fusions(exact=exact, max_ops=max_ops))
    values = draw(extents(fusion, REDUCTIONS))
    case = trimmed(Case(fusion, REDUCTIONS, values, kind, seed, gap, offset))
    return replace(case, params=PRODUCTS)


@st.composite
def row_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = NORM_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    depths: Sequence[int] = (1, 2, 3, 4),
) -> Case:
    """Cases whose kernels have whole rows; one in eight adds them up and does nothing else.

    Shrinks towards x - max(x) in f32, of one row of 1.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    plain = draw(st.sampled_from([False] * 7 + [True]))
    fusion = draw((plain_rows if plain else norm_fusions)(exact=kind == "integers"))
    schedule = draw(norm_params(families=families, depths=depths))
    if plain and draw(st.booleans()):
        schedule = sliding(fusion, schedule)
    values = draw(norm_extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return able(Case(fusion, schedule, values, kind, seed, gap, offset))


@st.composite
def scan_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = SCAN_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    depths: Sequence[int] = (1, 2, 3, 4),
) -> Case:
    """Cases with kernels that scan.  Shrinks towards a cumsum in f32 of one element."""
    kind: Kind = draw(st.sampled_from(kinds))
    schedule = draw(scan_params(families=families, depths=depths))
    fusion = draw(scan_fusions(exact=kind == "integers", few=schedule.load != "direct"))
    values = draw(scan_extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return loaded(Case(fusion, schedule, values, kind, seed, gap, offset))


@st.composite
def pointwise_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = POINTWISE_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    max_ops: int = 8,
    of: st.SearchStrategy[Fusion] | None = None,
    depths: Sequence[int] = range(1, MAX_STAGES + 1),
    way: str | None = None,
) -> Case:
    """Cases without products; one in eight has a single operation.

    Their fusions are those `of` a strategy, if that is given, and exact; `depths` and `way` are of
    `params`.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    if of is None:
        alone = draw(st.sampled_from([False] * 7 + [True]))
        of = single_op_fusions(exact=exact) if alone else fusions(exact=exact, max_ops=max_ops)
    fusion = draw(of)
    schedule = draw(params(fusion, families=families, depths=depths, way=way))
    values = draw(extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return possible(trimmed(Case(fusion, schedule, values, kind, seed, gap, offset)))


@st.composite
def product_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = MATMUL_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    max_ops: int = 4,
    of: st.SearchStrategy[Fusion] | None = None,
    depths: Sequence[int] = (),
    way: str | None = None,
) -> Case:
    """Cases with products; see `pointwise_cases`.

    Shrinks towards a `matmul` of 8 x 8 under the first of `families`.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    fusion = draw(product_fusions(exact=exact, max_ops=max_ops) if of is None else of)
    schedule = draw(matmul_params(fusion, families=families, depths=depths, way=way))
    values = draw(matmul_extents(fusion, schedule, exact=exact))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return suited(Case(fusion, schedule, values, kind, seed, gap, offset))
