"""The strategy of cases: a fusion, its schedule, its extents and its inputs, drawn together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion
from fuser.fusion.ops import Form
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import MAX_STAGES, NormParams, PointwiseParams, ReductionParams
from fuzz.campaign.record import Cell
from fuzz.cases.case import Case, Kind
from fuzz.cases.draft import INEXACT, Wanted, rarely
from fuzz.cases.extents import few_extents, matmul_extents
from fuzz.cases.features import DEPTHS, plan, scheduled
from fuzz.cases.fusions import (
    fusions,
    paired_fusions,
    plain_fusions,
    reduced_fusions,
    reducing_fusions,
    scan_fusions,
    several_op_fusions,
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
from fuzz.cases.products import computed_fusions, indexed_fusions, product_fusions
from fuzz.cases.schedules import MATMUL_FAMILIES, OBSERVES, footprint, matmul_params, suited

HINDERING = ("8 bits", "other types", "several products", "chains", "compositions", "reductions")
"""Features with which CTAs cannot share tiles in every way."""
AT_ONCE, FEW = 5, 5
"""Wishes of a kind that a case is made for at once, at most; and of one that is for a schedule."""
TRIES = 3
"""Draws of a case that is to have a schedule, whose kernels may be of another for their extents."""
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

    Three in four are made for one of the `wishes`, cells of the table of `features`; half of the
    others have a schedule of them.

    Two in eight have whole rows, one scans.  Where these are of several kinds, one in eight
    leaves its schedules to the heuristics.  Shrinks towards one `relu` of an f32 input of one
    element under direct/direct (or the first of `families` that can be), integers, seed 0; those
    with products towards one `matmul`.
    """
    if wishes and draw(st.sampled_from((False, True, True, True))):
        cell = draw(st.sampled_from(_leading(wishes)))
        return draw(_wished(cell, wishes, kinds=kinds, max_ops=max_ops))
    under = [cell for cell in wishes if cell[0] in ("schedule", "sharing")]
    if bool(under) and draw(st.booleans()):
        kind, cell = draw(st.sampled_from(kinds)), draw(st.sampled_from(under))
        return draw(_scheduled(cell, wishes, kind=kind, plain=False))
    wanted = operations(wishes)
    pointwise = tuple(family for family in families if family in POINTWISE_FAMILIES)
    matmul = tuple(family for family in families if family in MATMUL_FAMILIES)
    norm = tuple(family for family in families if family in NORM_FAMILIES)
    if pointwise and matmul and rarely(draw) and draw(st.booleans()):
        return draw(default_cases(kinds=kinds, max_ops=max_ops))
    scan = tuple(family for family in families if family in SCAN_FAMILIES)
    ways = ["pointwise"] * bool(pointwise) + ["products"] * bool(matmul)
    if norm or scan:
        ways = ["pointwise"] * 2 * bool(pointwise) + ["products"] * 3 * bool(matmul)
        ways += ["rows"] * 2 * bool(norm) + ["scans"] * bool(scan)
    way = draw(st.sampled_from(ways))
    if way == "products":
        most = min(max_ops, 4)
        return draw(product_cases(families=matmul, kinds=kinds, max_ops=most, wanted=wanted))
    if way == "rows":
        return draw(row_cases(families=norm, kinds=kinds, wanted=wanted))
    if way == "scans":
        return draw(scan_cases(families=scan, kinds=kinds, wanted=wanted))
    return draw(pointwise_cases(families=pointwise, kinds=kinds, max_ops=max_ops, wanted=wanted))


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
    kind = draw(st.sampled_from(kinds))
    wanted = operations(wishes)
    match wish:
        case ("operation", "mma", dtype):
            exact = kind == "integers"
            products = product_fusions(max_ops=3, dtype=_TYPES[dtype], exact=exact, wanted=wanted)
            return draw(product_cases(kinds=(kind,), of=products))
        case ("operation", op, dtype):
            kind = kind if _exactly(op, dtype) else kinds[-1]
            exact = kind == "integers"
            able = [pair for pair in wanted if not exact or _exactly(*pair)]
            several = several_op_fusions(draw(_beside((op, dtype), able)), exact=exact)
            return draw(pointwise_cases(kinds=(kind,), of=several))
        case ("pair", first, second):
            others = [(cell[1], cell[2]) for cell in wishes if cell[0] == "pair"]
            pairs = draw(_beside((first, second), others, most=FEW))
            forms = [(_formed(before), _formed(after)) for before, after in pairs]
            multiplies = any(Form.MMA in pair for pair in forms)
            made = product_cases if multiplies else pointwise_cases
            return draw(made(kinds=(kind,), of=paired_fusions(forms, exact=True)))
        case ("reduced", op, reduction):
            others = [(cell[1], cell[2]) for cell in wishes if cell[0] == "reduced"]
            reduced = reduced_fusions(draw(_beside((op, reduction), others)))
            return draw(pointwise_cases(kinds=kinds[-1:], of=reduced))
        case ("schedule" | "sharing" | "computed" as part, family, which):
            having = _scheduled(wish, wishes, kind=kind, plain=True)
            if part == "computed":
                having = _computing(family, which, kind=kind, wanted=wanted)
            for _ in range(TRIES):
                case = draw(having)
                if wish in _schedules(case):
                    break
            return case
        case ("extents", "scan", _):
            return draw(scan_cases(kinds=(kind,), wanted=wanted))
        case _:
            return draw(pointwise_cases(kinds=(kind,), max_ops=max_ops, wanted=wanted))


@st.composite
def _scheduled(
    draw: st.DrawFn, wish: Cell, wishes: tuple[Cell, ...], *, kind: Kind, plain: bool
) -> Case:
    """Cases under a schedule that is wished for: by the depth of its ring, and how CTAs share.

    Of a `plain` fusion, whose kernels can have it, or of any that may have.
    """
    family, kinds, wanted = wish[1], (kind,), operations(wishes)
    beside = [wish, *(cell for cell in wishes if cell[1] == family)]
    depth = next((cell[2] for cell in beside if cell[0] == "schedule"), None)
    way = next((cell[2] for cell in beside if cell[0] == "sharing"), "alone")
    depths = [n for n, name in DEPTHS.items() if depth in (None, name)]
    if family in MATMUL_FAMILIES:
        banned = [*HINDERING] if plain else []
        banned += ["f8"] if family in OBSERVES else []
        exact = kind == "integers"
        products = product_fusions(max_ops=2, exact=exact, banned=banned, wanted=wanted)
        return draw(
            product_cases(families=(family,), kinds=kinds, of=products, depths=depths, way=way)
        )
    if family in NORM_FAMILIES:
        return draw(row_cases(families=(family,), kinds=kinds, depths=depths, wanted=wanted))
    if family in SCAN_FAMILIES:
        return draw(scan_cases(families=(family,), kinds=kinds, depths=depths, wanted=wanted))
    lone = [pair for pair in wanted if pair[1] in WIDE and (kind == "reals" or _exactly(*pair))]
    of_them: st.SearchStrategy[Fusion] | None = None
    if plain and way == "alone" and lone and not rarely(draw):
        several = draw(_beside(lone[0], lone, most=FEW))
        of_them = several_op_fusions(several, exact=kind == "integers")
    elif plain:
        of_them = plain_fusions(wanted) if way == "alone" else reducing_fusions(wanted)
    return draw(
        pointwise_cases(
            families=(family,), kinds=kinds, of=of_them, depths=depths, way=way, wanted=wanted
        )
    )


@st.composite
def _computing(draw: st.DrawFn, family: str, which: str, *, kind: Kind, wanted: Wanted) -> Case:
    """Cases whose products compute operands in registers: of transposed tiles the second ones.

    Or whose operands are "indexed".
    """
    if which == "indexed":
        layers = indexed_fusions(exact=kind == "integers", wanted=wanted)
        return draw(product_cases(families=(family,), kinds=(kind,), of=layers))
    of = computed_fusions(which, exact=kind == "integers", wanted=wanted)
    case = draw(product_cases(families=(family,), kinds=(kind,), of=of))
    how: dict[str, Any] = {"prologue": "registers"}
    if isinstance(case.params, MatmulParams):
        turned = which == "second" or (which != "first" and draw(st.booleans()))
        how["transpose"] = turned and footprint(case.fusion).halves
        if which in ("packed", "grouped"):
            how["tile"] = (*case.params.tile[:2], draw(st.sampled_from([32, 64])))
        how |= {"store": "tma", "inputs": "direct"} if how["transpose"] else {}
    try:
        return _fitted(suited, replace(case, params=replace(case.params, **how)))
    except ScheduleError:  # what was drawn beside it excludes it
        return case


def _leading(wishes: tuple[Cell, ...]) -> list[Cell]:
    """Return the wishes that cases are made for, in turn: of what goes together only some."""
    together = {"operation": AT_ONCE, "reduced": AT_ONCE, "pair": FEW}
    parts: dict[str, list[Cell]] = {}
    for cell in wishes:
        parts.setdefault(cell[0], []).append(cell)
    return [cell for name, cells in parts.items() for cell in cells[:: together.get(name, 1)]]


def _schedules(case: Case) -> set[Cell]:
    try:
        return scheduled(plan(case))
    except ScheduleError:  # whoever judges it will say so
        return set()


def operations(wishes: tuple[Cell, ...]) -> list[tuple[str, str]]:
    """Return the operations that are wished for, with their types, but products."""
    return [(cell[1], cell[2]) for cell in wishes if cell[0] == "operation" and cell[1] != "mma"]


def _exactly(op: str, dtype: str) -> bool:
    """Tell whether an operation of small integers gives such."""
    divides = op in ("floor_div", "remainder") and _TYPES[dtype].is_float
    return op not in INEXACT | {"mean"} and not divides


@st.composite
def _beside(
    draw: st.DrawFn, wish: tuple[str, str], others: list[tuple[str, str]], most: int = AT_ONCE
) -> list[tuple[str, str]]:
    """Draw some more wishes beside one.  Shrinks towards the one."""
    left = [other for other in dict.fromkeys(others) if other != wish]
    return [wish, *left[: draw(st.sampled_from([0, *[most - 1] * 4]))]]


def _formed(name: str) -> Form | None:
    return None if name in ("input", "output") else Form(name)


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
        sizes = few_extents if draw(st.booleans()) else matmul_extents
        values = draw(sizes(fusion, PRODUCTS, exact=exact))
        other = draw(st.sampled_from([POINTWISE, REDUCTIONS, ROWS]))
        return Case(fusion, other, values, kind, seed, gap, offset)
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
    wanted: Wanted = (),
) -> Case:
    """Cases whose kernels have whole rows; one in eight adds them up and does nothing else.

    Shrinks towards x - max(x) in f32, of one row of 1.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    plain = draw(st.sampled_from([False] * 7 + [True]))
    exact = kind == "integers"
    fusion = draw(plain_rows(exact=exact) if plain else norm_fusions(exact=exact, wanted=wanted))
    schedule = draw(norm_params(families=families, depths=depths))
    if plain and draw(st.booleans()):
        schedule = sliding(fusion, schedule)
    values = draw(norm_extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return _fitted(able, Case(fusion, schedule, values, kind, seed, gap, offset))


@st.composite
def scan_cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = SCAN_FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    depths: Sequence[int] = (1, 2, 3, 4),
    wanted: Wanted = (),
) -> Case:
    """Cases with kernels that scan.  Shrinks towards a cumsum in f32 of one element."""
    kind: Kind = draw(st.sampled_from(kinds))
    schedule = draw(scan_params(families=families, depths=depths))
    few = schedule.load != "direct"
    fusion = draw(scan_fusions(exact=kind == "integers", few=few, wanted=wanted))
    values = draw(scan_extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return _fitted(loaded, Case(fusion, schedule, values, kind, seed, gap, offset))


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
    wanted: Wanted = (),
) -> Case:
    """Cases without products; one in eight has a single operation.

    Their fusions are those `of` a strategy, if that is given, and exact; `depths` and `way` are of
    `params`.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    if of is None:
        alone = draw(st.sampled_from([False] * 7 + [True]))
        several = fusions(exact=exact, max_ops=max_ops, wanted=wanted)
        of = single_op_fusions(exact=exact) if alone else several
    fusion = draw(of)
    schedule = draw(params(fusion, families=families, depths=depths, way=way))
    values = draw(extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return _fitted(possible, trimmed(Case(fusion, schedule, values, kind, seed, gap, offset)))


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
    wanted: Wanted = (),
) -> Case:
    """Cases with products; see `pointwise_cases`.

    Shrinks towards a `matmul` of 8 x 8 under the first of `families`.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    drawn = product_fusions(exact=exact, max_ops=max_ops, wanted=wanted)
    fusion = draw(drawn if of is None else of)
    schedule = draw(matmul_params(fusion, families=families, depths=depths, way=way))
    values = draw(matmul_extents(fusion, schedule, exact=exact))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return _fitted(suited, Case(fusion, schedule, values, kind, seed, gap, offset))


def _fitted(fit: Callable[[Case], Case], case: Case) -> Case:
    """Return the case with params that its kernels can have, if it can be cut into kernels."""
    try:
        return fit(case)
    except ScheduleError:
        return case  # whoever judges it will say so
