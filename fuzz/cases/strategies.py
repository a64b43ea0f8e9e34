"""The strategy of cases: a fusion, its schedule, its extents and its inputs, drawn together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams
from fuzz.cases.case import Case, Kind
from fuzz.cases.draft import rarely
from fuzz.cases.extents import matmul_extents
from fuzz.cases.fusions import fusions, single_op_fusions
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
    extents,
    layouts,
    params,
    possible,
    trimmed,
)
from fuzz.cases.products import product_fusions
from fuzz.cases.schedules import MATMUL_FAMILIES, matmul_params, suited

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
) -> Case:
    """Cases over small and large fusions; one in two has products, where `families` have.

    One in six has whole rows.  Where these are of several kinds, one in eight leaves its schedules
    to the heuristics.  Shrinks towards one `relu` of an f32 input of one element under
    direct/direct (or the first of `families` that can be), integers, seed 0; those with products
    towards one `matmul`.
    """
    pointwise = tuple(family for family in families if family in POINTWISE_FAMILIES)
    matmul = tuple(family for family in families if family in MATMUL_FAMILIES)
    norm = tuple(family for family in families if family in NORM_FAMILIES)
    if pointwise and matmul and rarely(draw) and draw(st.booleans()):
        return draw(default_cases(kinds=kinds, max_ops=max_ops))
    ways = ["pointwise"] * bool(pointwise) + ["products"] * bool(matmul)
    if norm:
        ways = ["pointwise"] * 2 * bool(pointwise) + ["products"] * 3 * bool(matmul) + ["rows"]
    way = draw(st.sampled_from(ways))
    if way == "products":
        return draw(product_cases(families=matmul, kinds=kinds, max_ops=min(max_ops, 4)))
    if way == "rows":
        return draw(row_cases(families=norm, kinds=kinds))
    return draw(pointwise_cases(families=pointwise, kinds=kinds, max_ops=max_ops))


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
) -> Case:
    """Cases whose kernels have whole rows; one in four adds them up and does nothing else.

    Shrinks towards x - max(x) in f32, of one row of 1.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    plain = draw(st.sampled_from([False, False, False, True]))
    fusion = draw((plain_rows if plain else norm_fusions)(exact=kind == "integers"))
    schedule = draw(norm_params(families=families))
    if plain and draw(st.booleans()):
        schedule = sliding(fusion, schedule)
    values = draw(norm_extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return able(Case(fusion, schedule, values, kind, seed, gap, offset))


@st.composite
def pointwise_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = POINTWISE_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    max_ops: int = 8,
) -> Case:
    """Cases without products; one in eight has a single operation."""
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    alone = draw(st.sampled_from([False] * 7 + [True]))
    fusion = draw(
        single_op_fusions(exact=exact) if alone else fusions(exact=exact, max_ops=max_ops)
    )
    schedule = draw(params(fusion, families=families))
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
) -> Case:
    """Cases with products.  Shrinks towards a `matmul` of 8 x 8 under the first of `families`."""
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    fusion = draw(product_fusions(exact=exact, max_ops=max_ops))
    schedule = draw(matmul_params(fusion, families=families))
    values = draw(matmul_extents(fusion, schedule, exact=exact))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return suited(Case(fusion, schedule, values, kind, seed, gap, offset))
