"""Hypothesis strategies for pointwise fusions, valid by construction."""

from __future__ import annotations

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ops import OPS, Form, Rule
from fuzz.cases import draft as on
from fuzz.cases.case import SMALL
from fuzz.cases.draft import DTYPES, FEATURES, INEXACT, POINTWISE, Draft
from fuzz.cases.features import legal, reduces
from fuzz.cases.graphs import MOST, extend

MOVES = tuple(op for op, spec in OPS.items() if spec.form in (Form.SHAPE, Form.VIEW, Form.GATHER))
"""Operations that move elements."""


@st.composite
def fusions(draw: st.DrawFn, *, max_ops: int = 8, exact: bool = False) -> Fusion:
    """Fusions of one to `max_ops` drawn blocks; `exact` ones keep small integers exact.

    Shrinks towards one `relu` of an f32 input with one axis: fewer operations first, then
    simpler ones, fewer axes, f32, and no feature.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    draft = Draft(FusionDefinition(), banned, draw(on.axes(banned, 4)), exact)
    on.take_input(draw, draft, whole=True)
    extend(draw, draft, 1, min(max_ops, MOST))
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


@st.composite
def single_op_fusions(
    draw: st.DrawFn,
    *,
    op: str | None = None,
    dtype: DType | None = None,
    exact: bool = False,
    more: int = 0,
) -> Fusion:
    """Fusions of one operation but products, each operand an input of its own.

    `dtype` is that of the first; up to so many blocks `more` follow.  Shrinks towards one `relu`
    (or `op`) of an f32 input with one axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    names = [n for n in POINTWISE if not (exact and n in INEXACT)]
    name = op or draw(st.sampled_from(names))
    form = OPS[name].form
    moves = name in MOVES or (dtype is not None and name == "set")
    axes: list[str | int] = ["i0", 8] if moves else draw(on.axes(banned, 2))
    draft = Draft(FusionDefinition(), banned, axes, exact)
    legal = [
        d for d in DTYPES if (OPS[name].rule in (Rule.GIVEN, Rule.TEST) or d in OPS[name].allowed)
    ]
    if exact and name in ("floor_div", "remainder"):
        legal = [d for d in legal if d.is_int]
    types = [dtype] if dtype else legal
    if moves:
        on.moved(draw, draft, name, draw(st.sampled_from(types)))
    else:
        a = on.take_input(draw, draft, dtypes=types, whole=True)
        if form is Form.FACTORY:
            on.factory(draw, draft, name, dtype)
        elif form is Form.REDUCTION:
            on.reduce(draw, draft, a, name)
        elif form is Form.SCAN:
            on.scan(draw, draft, a)
        else:
            for _ in range(on.others(name) if OPS[name].rule is not Rule.SELECT else 1):
                on.take_input(draw, draft, dtypes=[a.dtype])
            on.apply(draw, draft, name, a)
    # Nothing more is computed in 8 bits.
    draft.live = [tv for tv in draft.live if tv.dtype is not DType.I8 and not tv.dtype.is_f8]
    extend(draw, draft, min(2, more), more)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


def several_ops(cell: tuple[str, ...]) -> bool:
    """Tell whether a cell is of an operation that goes beside others: it computes, or reduces."""
    if cell[0] != "operation" or cell[1] == "set":
        return False
    spec = OPS[cell[1]]
    return spec.pointwise or spec.form in (Form.REDUCTION, Form.SCAN)


@st.composite
def several_op_fusions(draw: st.DrawFn, cells: tuple[tuple[str, ...], ...]) -> Fusion:
    """Fusions of operations side by side, each on inputs of its own, of the types of these cells.

    Shrinks towards the first one alone.
    """
    banned = frozenset(FEATURES) - {"constants", "mixed dtypes", "gaps", "permuted strides"}
    draft = Draft(FusionDefinition(), banned, draw(on.axes(banned, 2)), exact=False)
    made = []
    for _, op, name in cells:
        dtype = next(dtype for dtype in DType if str(dtype) == name)
        draft.live = []
        a = on.take_input(draw, draft, dtypes=[dtype], whole=True)
        form = OPS[op].form
        if form is Form.REDUCTION:
            made.append(on.reduce(draw, draft, a, op))
        elif form is Form.SCAN:
            made.append(on.scan(draw, draft, a))
        else:
            made.append(on.apply(draw, draft, op, a))
    draft.live = [tv for tv in made if tv.dtype is not DType.I8 and not tv.dtype.is_f8]
    extend(draw, draft, 0, 2)
    draft.live = [*dict.fromkeys((*made, *draft.live))]
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


_OF_FORM = {
    Form.UNARY: ("relu", "abs", "neg"),
    Form.BINARY: ("maximum", "add", "sub", "mul"),
    Form.TERNARY: ("where", "clamp"),
}
"""Operations that keep the type, which the next may need."""


@st.composite
def paired_fusions(
    draw: st.DrawFn, *, first: Form | None, second: Form | None, exact: bool = False
) -> Fusion:
    """Fusions of two operations of these forms, one behind the other, on 16-bit matrices.

    `first` is None for an input, `second` for an output.  Shrinks towards the simplest of each.
    """
    banned = frozenset(FEATURES) - {"constants"}
    draft = Draft(FusionDefinition(), banned, ["i0", 8], exact)
    made = on.take_input(draw, draft, dtypes=[DType.BF16], whole=True)
    if first is Form.REDUCTION:  # both of its axes are left, so that anything may follow
        deep = draft.fd.define_tensor(["i0", 8, "i1"], DType.BF16)
        op = draw(st.sampled_from(["max", "sum"]))
        made = draft.add(getattr(draft.fd.ops, op)(deep, [2]), SMALL * on.MOST_REDUCED)
    elif first is not None:
        made = _formed(draw, draft, first, made)
    if second is not None:
        _formed(draw, draft, second, made)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


def _formed(draw: st.DrawFn, draft: Draft, form: Form, a: TensorView) -> TensorView:
    """Add an operation of a form on a tensor of the frame; a factory takes none."""
    ops, size = draft.fd.ops, draft.size[a.name]
    match form:
        case Form.REDUCTION:
            return on.reduce(draw, draft, a)
        case Form.SCAN:
            return on.scan(draw, draft, a)
        case Form.FACTORY:
            value = draw(st.sampled_from([1, 2, -1]))
            return draft.add(ops.full(draft.axes, value, DType.BF16), SMALL)
        case Form.MMA:
            made = ops.matmul(a, draft.fd.define_tensor([8, 8], DType.BF16))
            size *= 8 * SMALL
        case Form.SHAPE:
            made = ops.permute(ops.permute(a, [1, 0]), [1, 0])
        case Form.VIEW:
            made = on.parted(draw, ops, a, 1, 8, cut=draw(st.booleans()))
        case Form.GATHER:
            made = on.taken(draw, draft, a, 1)
        case _:
            return on.apply(draw, draft, draw(st.sampled_from(_OF_FORM[form])), a)
    draft.used.add(a.name)
    return draft.add(made, size)


_INSIDE = dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow"), "abs")
_INSIDE |= dict.fromkeys(("asin", "acos"), "tanh")
"""What brings numbers to where a function is defined: a NaN decides what is reduced."""
_AT_ONCE = 8
"""More operations that are reduced in a fusion made for one, at most."""


@st.composite
def reduced_fusions(
    draw: st.DrawFn, *, op: str, reduction: str, beside: tuple[str, ...] = ()
) -> Fusion:
    """Fusions that reduce the results of a pointwise operation, and of those `beside` likewise.

    Where none are, of a few more.

    Each has operands of its own.  Shrinks towards the one.
    """
    banned = frozenset(FEATURES) - {"constants", "16 bits", "f64", "integers", "bool"}
    draft = Draft(FusionDefinition(), banned, ["i0", "i1"], exact=False)
    able = [other for other in POINTWISE if ("reduced", other, reduction) in legal()]
    made = []
    more = [*beside] or draw(st.lists(st.sampled_from(able), max_size=_AT_ONCE, unique=True))
    for name in (op, *more):
        types = [dtype for dtype in draft.dtypes() if reduces(name, dtype, reduction)]
        a = on.take_input(draw, draft, dtypes=types, whole=True)
        if name in _INSIDE and a.dtype.is_float:
            a = on.apply(draw, draft, _INSIDE[name], a)
        draft.live = [a]  # whatever else an operation takes
        made.append(on.reduce(draw, draft, on.apply(draw, draft, name, a), reduction))
    draft.live = made
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


@st.composite
def reducing_fusions(draw: st.DrawFn) -> Fusion:
    """Fusions that add up f32 and do little else, so that CTAs can share it in any way.

    Shrinks towards a sum of one axis.
    """
    draft = Draft(FusionDefinition(), frozenset(FEATURES), ["i0", "i1"], exact=True)
    a = on.take_input(draw, draft, dtypes=[DType.F32], whole=True)
    a = a if draw(st.booleans()) else draft.fd.ops.abs(a)
    made = draft.fd.ops.sum(a, [draw(st.sampled_from([1, 0]))])
    draft.fd.add_output(made)
    if draw(st.booleans()):
        draft.fd.add_output(draft.fd.ops.relu(made))
    return draft.fd.fusion()


@st.composite
def plain_fusions(draw: st.DrawFn) -> Fusion:
    """Fusions of one operation on whole f32 tensors, which every engine can move.

    Shrinks towards one `relu` of a tensor with two axes.
    """
    draft = Draft(FusionDefinition(), frozenset(FEATURES), ["i0", "i1"], exact=True)
    a = on.take_input(draw, draft, dtypes=[DType.F32], whole=True)
    on.apply(draw, draft, draw(st.sampled_from(["relu", "abs", "neg", "sign"])), a)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


HINDERING = frozenset(
    {"permuted strides", "f64", "integers", "bool", "8 bits", "gaps", "lower ranks"}
)
"""Features that keep engines from loading, mostly."""


@st.composite
def scan_fusions(draw: st.DrawFn, *, exact: bool = False, few: bool = False) -> Fusion:
    """Fusions that scan what is computed, and compute with the results; `few` suit every engine.

    Their one to three axes have any extents.  Shrinks towards a cumsum in f32 of one axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    banned |= {"pinned extents", "equal axes", "reductions"}
    banned |= HINDERING if few or draw(st.booleans()) else frozenset()
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    draft = Draft(FusionDefinition(), banned, [f"i{n}" for n in range(rank)], exact)
    types = [d for d in DTYPES if d in draft.dtypes() and not (few and d.nbytes == 1)]
    a = on.take_input(draw, draft, dtypes=types, whole=True)
    if a.dtype is not DType.BOOL and draw(st.booleans()):
        a = on.apply(draw, draft, draw(st.sampled_from(["relu", "abs", "neg"])), a)
    made = on.scan(draw, draft, a)
    if draw(st.booleans()):
        extend(draw, draft, 0, 2)
    if draw(st.sampled_from([False, False, True])) and not exact:
        on.scan(draw, draft, made)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()
