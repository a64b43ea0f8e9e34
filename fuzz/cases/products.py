"""Hypothesis strategies for fusions with matrix products, valid by construction.

Every axis of a drawn product has a name of its own, so that operands and results may have their
axes in any order; the result is brought into a frame (`draft`) of the axes that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, IterType, TensorView
from fuser.fusion.ops import product_dtype
from fuzz.cases import draft as on
from fuzz.cases.case import SMALL
from fuzz.cases.draft import FEATURES, Draft, Wanted, rarely
from fuzz.cases.graphs import BLOCKS, MANY, grow
from fuzz.cases.operands import (
    MAX_SUM,
    OPERANDS,
    OTHERS,
    Names,
    Products,
    bounded,
    indexed,
    narrowed,
    new_axis,
    numbers,
    operand,
    quantized,
    spread,
)

MATMUL_FEATURES = (
    *FEATURES,
    "batches",
    "vectors",
    "several axes",
    "mappings",
    "transposed operands",
    "prologues",
    "stretched operands",
    "indexed operands",
    "several products",
    "chains",
    "other types",
)
"""Switches of the generator of products."""
BY_ROWS = frozenset(
    {"transposed operands", "permuted strides", "gaps", "reductions", "compositions", "scans"}
    | {"factories", "f64"}
)
"""Features of operands that registers cannot hold."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """Names of the axes of a product by what they do; every list may be empty but the last."""

    batch: Names
    rows: Names
    cols: Names
    sums: Names


@st.composite
def product_fusions(
    draw: st.DrawFn,
    *,
    max_ops: int = 4,
    exact: bool = False,
    asked: bool = False,
    banned: Iterable[str] = (),
    dtype: DType | None = None,
    wanted: Wanted = (),
) -> Fusion:
    """Fusions of one to three products with up to `max_ops` blocks behind; see `fusions`.

    With `asked` CTAs are asked to share the tiles of the first; features are `banned`, "f8" among
    them where sm_80's instructions are to multiply, and more that are drawn; `dtype` is that of
    operands; operations that are `wanted` are drawn more often.
    Shrinks towards a `matmul` of two bf16 matrices.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(MATMUL_FEATURES), max_size=8))) | {*banned}
    types: tuple[DType, ...] = OPERANDS * 4 if "16 bits" not in banned else OPERANDS[:1] * 8
    others = (one for one in OTHERS if not (one.is_f8 and "f8" in banned))
    types = types if "other types" in banned else (*types, *others)
    dtype = draw(st.sampled_from((dtype,) if dtype else types))
    products = Products(FusionDefinition(), banned, exact, dtype, wanted=wanted)
    if dtype is DType.F16 and not exact and products.allows("other types") and rarely(draw):
        products.accumulate = "f16"
    sides = _sides(draw, products)
    result, names = _product(draw, products, sides)
    drawn = products.allows("requests") and rarely(draw)
    if products.accumulate is None and (asked or drawn):
        result.request_serial_grid_reduction()
    draft = products.frame(names)
    _enter(products, draft, names, result, names)
    for _ in range(max_ops):
        if not draw(st.sampled_from([False, True, True, True])):
            break
        choices = ["block"] * 3
        if products.allows("several products") and len(products.shared) < 5:
            choices += ["gated", "beside"]
        if products.allows("chains") and dtype.nbytes > 1 and len(products.shared) < 5:
            choices += ["chained"]
        choice = draw(st.sampled_from(choices))
        if choice == "block":
            grow(draw, draft, draw(st.sampled_from(BLOCKS)))
        elif choice == "chained":
            fitting = [tv for tv in draft.live[::-1] if _can_be_summed(tv)]
            if fitting and names:
                tv = draw(st.sampled_from(fitting))
                sides, result, kept = _chained(draw, products, draft, names, tv)
                if len(draft.live) > 1 or rarely(draw):
                    on.add_outputs(draw, draft)
                draft, names = products.frame(kept), kept
                _enter(products, draft, names, result, kept)
        else:
            more = sides if choice == "gated" else _beside(draw, products, sides)
            for _ in range(draw(st.sampled_from([1] * 12 + [*MANY]))):
                result, kept = _product(draw, products, more, shared=choice == "gated")
                _enter(products, draft, names, result, kept)
                _join(draw, draft)
    on.add_outputs(draw, draft)
    return products.fd.fusion()


@st.composite
def computed_fusions(
    draw: st.DrawFn, which: str, *, exact: bool = False, wanted: Wanted = ()
) -> Fusion:
    """Layers of an operand that is computed from inputs by rows, as registers can hold it.

    `which`: the "first", the "second", or "several", one of each of two products of a loop; or
    either, of bytes that are "packed" or with numbers of neighbours along K ("grouped").
    """
    products = Products(
        FusionDefinition(), BY_ROWS, exact, draw(st.sampled_from(OPERANDS)), wanted=wanted
    )
    m, n, k = (new_axis(draw, products, letter) for letter in "mnk")
    second = which == "second" or (which not in ("first", "second") and draw(st.booleans()))
    if which in ("packed", "grouped"):
        products.extents[k] = draw(st.sampled_from([256, 128, 192]))
        rows: list[str | int] = ["rows", 72, 64, 200]
        products.extents[n if second else m] = draw(st.sampled_from(rows))
    plain = operand(draw, products, (m, k) if second else (n, k), computed=False)
    draft = products.frame((m, n))
    for _ in range(2 if which == "several" else 1):
        axes = (n, k) if second else (m, k)
        if which in ("packed", "grouped"):
            made = quantized(draw, products, axes, packed=which == "packed")
        else:
            made = operand(draw, products, axes, computed=True)
        x, w = bounded(products, *((plain, made) if second else (made, plain)))
        result = _sized(products, products.fd.ops.linear(x, w), x, w)
        _enter(products, draft, (m, n), result, (m, n))
    if which == "several":
        _join(draw, draft)
    for _ in range(draw(st.integers(0, 2))):
        grow(draw, draft, draw(st.sampled_from(BLOCKS)))
    on.add_outputs(draw, draft)
    return products.fd.fusion()


@st.composite
def indexed_fusions(draw: st.DrawFn, *, exact: bool = False, wanted: Wanted = ()) -> Fusion:
    """Layers of experts: blocks of rows, each times the matrix that its number names.

    The blocks have an axis, or all rows are one matrix; then there are as many as a number says.
    Where they have one it may be the blocks that are named.
    """
    banned = BY_ROWS - {"transposed operands"}
    products = Products(
        FusionDefinition(), banned, exact, draw(st.sampled_from(OPERANDS)), wanted=wanted
    )
    ops, (b, m, n, k) = products.fd.ops, (new_axis(draw, products, letter) for letter in "bmnk")
    names: Names = (b, m, n)
    if draw(st.sampled_from([False, False, True])):
        names, places = (m, n), new_axis(draw, products, "g")
        blocks, rows = draw(st.sampled_from([2, 1, 3])), draw(st.sampled_from([8, 16, 64, 5]))
        products.extents[m] = blocks * rows
        left = operand(draw, products, (m, k), computed=False)
        right = operand(draw, products, (places, k, n), computed=False)
        result = ops.grouped_matmul(left, right, numbers(draw, products, blocks))
    elif rarely(draw):
        left = indexed(draw, products, (b, m, k))
        right = operand(draw, products, (b, k, n), computed=False)
        result = ops.matmul(left, right)
    else:
        left = operand(draw, products, (b, m, k), computed=False)
        right = indexed(draw, products, (b, k, n))
        result = ops.matmul(left, right)
    draft = products.frame(names)
    _enter(products, draft, names, _sized(products, result, left, right), names)
    for _ in range(draw(st.integers(0, 2))):
        grow(draw, draft, draw(st.sampled_from(BLOCKS)))
    on.add_outputs(draw, draft)
    return products.fd.fusion()


def _sides(draw: st.DrawFn, products: Products) -> _Sides:
    batch = draw(st.sampled_from([0, 0, 0, 1, 2])) if products.allows("batches") else 0
    rows = cols = sums = 1
    if products.allows("vectors") and rarely(draw):
        rows, cols = draw(st.sampled_from([(0, 1), (1, 0), (0, 0)]))
    if products.allows("several axes") and rarely(draw):
        rows, cols = (n if n == 0 else draw(st.sampled_from([n, n, n + 1])) for n in (rows, cols))
        sums = draw(st.sampled_from([1, 2]))
    return _Sides(
        tuple(new_axis(draw, products, "b") for _ in range(batch)),
        tuple(new_axis(draw, products, "m") for _ in range(rows)),
        tuple(new_axis(draw, products, "n") for _ in range(cols)),
        tuple(new_axis(draw, products, "k") for _ in range(sums)),
    )


# --- products -------------------------------------------------------------------------------


def _product(
    draw: st.DrawFn, products: Products, sides: _Sides, *, shared: bool = False
) -> tuple[TensorView, Names]:
    """Draw a product and its operands; `shared` takes one of an earlier product if it can."""
    mapped = products.allows("mappings") and draw(st.sampled_from([False, False, True]))
    a_names = (*sides.batch, *sides.rows, *sides.sums)
    b_names = (*sides.batch, *sides.sums, *sides.cols)
    if mapped or not _is_matmul(sides):
        orders = ((draw(st.permutations(names)), names) for names in (a_names, b_names))
        a_names, b_names = (tuple(o) if draw(st.booleans()) else names for o, names in orders)
    elif not sides.batch and sides.cols and draw(st.booleans()):
        return _linear(draw, products, sides, shared=shared)
    a = _shared(draw, products, a_names) if shared else None
    a = operand(draw, products, a_names) if a is None else a
    b = operand(draw, products, b_names, stretched=(*sides.batch, *sides.sums))
    if mapped or not _is_matmul(sides):
        return _mapped(draw, products, sides, (a, a_names), (b, b_names))
    a, b = bounded(products, a, b)
    ones = products.allows("broadcast inputs") and sides.batch and rarely(draw)
    if ones:  # the batch of b is 1, or missing
        b = _batchless(draw, products, sides)
    made = products.fd.ops.matmul(a, b, products.precision, products.accumulate)
    return _sized(products, made, a, b), (*sides.batch, *sides.rows, *sides.cols)


def _is_matmul(sides: _Sides) -> bool:
    whole = bool(sides.rows and sides.cols) or not sides.batch
    return (whole and max(len(sides.rows), len(sides.cols), len(sides.sums)) == 1) or not (
        sides.rows or sides.cols or sides.batch or len(sides.sums) > 1
    )


def _batchless(draw: st.DrawFn, products: Products, sides: _Sides) -> TensorView:
    """Make a second operand without batch axes, or with some of extent 1."""
    made = operand(draw, products, (*sides.sums, *sides.cols))
    if draw(st.booleans()):
        size = products.sizes[made.name]
        made = products.fd.ops.broadcast(made, [True, False, False])
        products.sizes[made.name] = size
    return bounded(products, made, made)[0]


def _linear(
    draw: st.DrawFn, products: Products, sides: _Sides, *, shared: bool
) -> tuple[TensorView, Names]:
    x_names = (*sides.rows, *sides.sums)
    x = _shared(draw, products, x_names) if shared else None
    x = operand(draw, products, x_names) if x is None else x
    w = operand(draw, products, (*sides.cols, *sides.sums), stretched=sides.sums)
    x, w = bounded(products, x, w)
    bias = None
    if draw(st.booleans()):
        extent = products.extents[sides.cols[0]]
        bias = products.fd.define_tensor([extent], product_dtype(products.dtype))
    made = products.fd.ops.linear(x, w, bias, products.precision, products.accumulate)
    return _sized(products, made, x, w), (*sides.rows, *sides.cols)


def _mapped(
    draw: st.DrawFn,
    products: Products,
    sides: _Sides,
    a: tuple[TensorView, Names],
    b: tuple[TensorView, Names],
) -> tuple[TensorView, Names]:
    """Multiply by `fused_multiply_sum`: with a mapping, or with operands of equal rank."""
    ops = products.fd.ops
    left, right = bounded(products, a[0], b[0])
    kept = (*sides.batch, *sides.rows, *sides.cols)
    full = (*kept, *sides.sums)
    if draw(st.booleans()):
        full = tuple(draw(st.permutations(full)))
    dtype = draw(st.sampled_from([None, product_dtype(products.dtype)]))
    precision, accumulate = products.precision, products.accumulate
    axes = [full.index(name) for name in sides.sums]
    if draw(st.booleans()):
        axes = [axis - len(full) for axis in axes]
    if not draw(st.booleans()):
        mapping = [[names.index(n) if n in names else -1 for n in full] for _, names in (a, b)]
        made = ops.fused_multiply_sum(left, right, axes, mapping, dtype, precision, accumulate)
    else:
        wide = [spread(products, tv, names, full) for tv, (_, names) in ((left, a), (right, b))]
        made = ops.fused_multiply_sum(wide[0], wide[1], axes, None, dtype, precision, accumulate)
    return _sized(products, made, left, right), tuple(n for n in full if n not in sides.sums)


def _shared(draw: st.DrawFn, products: Products, names: Names) -> TensorView | None:
    """Return an operand of an earlier product with just these axes, if there is one."""
    fitting = [tv for tv, own in products.shared if own == names]
    return draw(st.sampled_from(fitting)) if fitting else None


def _sized(products: Products, made: TensorView, a: TensorView, b: TensorView) -> TensorView:
    products.sizes[made.name] = products.sizes[a.name] * products.sizes[b.name] * MAX_SUM + SMALL
    return made


# --- several products -----------------------------------------------------------------------


def _enter(
    products: Products, draft: Draft, frame: Names, result: TensorView, names: Names
) -> None:
    """Bring the result of a product into the frame of a draft."""
    size = products.sizes[result.name]
    if not frame:
        tv = products.fd.ops.broadcast(result, [True])
    else:
        tv = spread(products, result, names, frame)
    draft.add(tv, size)


def _beside(draw: st.DrawFn, products: Products, sides: _Sides) -> _Sides:
    """Draw the axes of another product in the frame of the last one."""
    rows, cols = sides.rows, sides.cols
    if products.allows("vectors") and rarely(draw) and rows and cols:
        rows, cols = draw(st.sampled_from([((), cols), (rows, ())]))
    if draw(st.booleans()):
        return _Sides(sides.batch, rows, cols, sides.sums)
    return _Sides(sides.batch, rows, cols, (new_axis(draw, products, "k"),))


def _join(draw: st.DrawFn, draft: Draft) -> None:
    """Combine the newest tensor of a draft with one before it, mostly."""
    new, old = draft.live[-1], draw(st.sampled_from(draft.live[:-1]))
    if rarely(draw):
        return
    size = draft.size[new.name] * draft.size[old.name]
    op = draw(st.sampled_from(["mul", "add", "maximum"]))
    if op == "mul" and draft.exact and size > on.LARGEST:
        op = "add"
    bound = size if op == "mul" else draft.size[new.name] + draft.size[old.name]
    draft.add(getattr(draft.fd.ops, op)(old, new), bound)


def _can_be_summed(tv: TensorView) -> bool:
    return tv.dtype is not DType.BOOL and all(
        axis.iter_type is IterType.ITERATION for axis in tv.logical
    )


def _chained(
    draw: st.DrawFn, products: Products, draft: Draft, names: Names, tv: TensorView
) -> tuple[_Sides, TensorView, Names]:
    """Multiply a tensor of a draft by another operand; its last axis is mostly summed over."""
    summed = draw(st.sampled_from([names[-1], names[-1], names[-1], *names]))
    rest = tuple(name for name in names if name != summed)
    batch = tuple(name for name in rest if name.startswith("b"))
    own = tuple(name for name in rest if name not in batch)
    new = (new_axis(draw, products, "n"),)
    sides = _Sides(batch, own, new, (summed,))
    left = narrowed(products, tv, draft.size[tv.name])
    other_names = (*batch, summed, *new)
    other = operand(draw, products, other_names, stretched=(*batch, summed))
    if names == (*own, summed) and len(own) <= 1 and not draw(st.booleans()):
        left, other = bounded(products, left, other)
        made = products.fd.ops.matmul(left, other, products.precision, products.accumulate)
        return sides, _sized(products, made, left, other), (*own, *new)
    pair = [(left, names), (other, other_names)]
    if products.allows("mappings") and draw(st.booleans()):
        pair.reverse()
        sides = _Sides(batch, new, own, (summed,))
    made, kept = _mapped(draw, products, sides, pair[0], pair[1])
    return sides, made, kept
