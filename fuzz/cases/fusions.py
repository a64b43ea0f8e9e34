"""Hypothesis strategies for pointwise fusions, valid by construction."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ops import OPS, Form, Rule
from fuzz.cases import draft as on
from fuzz.cases.case import SMALL
from fuzz.cases.draft import DTYPES, FEATURES, INEXACT, POINTWISE, Draft, Wanted
from fuzz.cases.features import reduces
from fuzz.cases.graphs import MOST, extend, grow

_MOVING = (Form.SHAPE, Form.VIEW, Form.GATHER)
MOVES = ("set", *(op for op, spec in OPS.items() if spec.form in _MOVING))
"""Operations that move elements."""
MORE = 6
"""Operations that come behind a plain fusion, at most."""


@st.composite
def fusions(
    draw: st.DrawFn, *, max_ops: int = 8, exact: bool = False, wanted: Wanted = ()
) -> Fusion:
    """Fusions of one to `max_ops` drawn blocks; `exact` ones keep small integers exact.

    Operations that are `wanted` are drawn more often.
    Shrinks towards one `relu` of an f32 input with one axis: fewer operations first, then
    simpler ones, fewer axes, f32, and no feature.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    draft = Draft(FusionDefinition(), banned, draw(on.axes(banned, 4)), exact, wanted=wanted)
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
) -> Fusion:
    """Fusions of one operation but products, each operand an input of its own.

    `dtype` is that of the first.  Shrinks towards one `relu` (or `op`) of an f32 input with one
    axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    names = [n for n in POINTWISE if not (exact and n in INEXACT)]
    name = op or draw(st.sampled_from(names))
    axes: list[str | int] = ["i0", 8] if name in MOVES else draw(on.axes(banned, 2))
    draft = Draft(FusionDefinition(), banned, axes, exact)
    legal = [
        d for d in DTYPES if (OPS[name].rule in (Rule.GIVEN, Rule.TEST) or d in OPS[name].allowed)
    ]
    if exact and name in ("floor_div", "remainder"):
        legal = [d for d in legal if d.is_int]
    _alone(draw, draft, name, draw(st.sampled_from([dtype] if dtype else legal)))
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


def _alone(draw: st.DrawFn, draft: Draft, op: str, dtype: DType) -> TensorView:
    """Add an operation of inputs of its own; return its result."""
    if op in MOVES:
        return on.moved(draw, draft, op, dtype)
    draft.live = []
    a = on.take_input(draw, draft, dtypes=[dtype], whole=True)
    if OPS[op].form is Form.FACTORY:  # which has the extents of an input
        return on.factory(draw, draft, op, dtype)
    if OPS[op].form is Form.REDUCTION:
        return on.reduce(draw, draft, a, op)
    if OPS[op].form is Form.SCAN:
        return on.scan(draw, draft, a)
    for _ in range(on.others(op) if OPS[op].rule is not Rule.SELECT else 1):
        on.take_input(draw, draft, dtypes=[dtype])
    return on.apply(draw, draft, op, a)


@st.composite
def several_op_fusions(draw: st.DrawFn, wanted: Wanted, *, exact: bool = False) -> Fusion:
    """Fusions of operations side by side, each on inputs of its own, of the types given.

    Up to three blocks follow, half of them normalizations.  Shrinks towards the first one alone.
    """
    banned = frozenset(FEATURES) - {"constants", "mixed dtypes", "gaps", "permuted strides"}
    banned -= {"reductions", "idioms"}
    moves = any(op in MOVES for op, _ in wanted)
    axes: list[str | int] = ["i0", 8] if moves else draw(on.axes(banned, 2))
    draft = Draft(FusionDefinition(), banned, axes, exact)
    made = []
    for op, name in wanted:
        dtype = next(dtype for dtype in DType if str(dtype) == name)
        made.append(_alone(draw, draft, op, dtype))
    # Nothing more is computed in 8 bits.
    draft.live = [tv for tv in made if tv.dtype is not DType.I8 and not tv.dtype.is_f8]
    if draft.live:
        blocks = st.sampled_from(["step", "diamond", "norm", "norm"])
        for block in draw(st.lists(blocks, min_size=draw(st.integers(0, 1)), max_size=3)):
            grow(draw, draft, block)
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
    draw: st.DrawFn, pairs: Sequence[tuple[Form | None, Form | None]], *, exact: bool = False
) -> Fusion:
    """Fusions of pairs of operations of these forms, one behind the other, on 16-bit matrices.

    The first is None for an input, the second for an output.  Each pair has inputs of its own.
    Shrinks towards the simplest of each.
    """
    banned = frozenset(FEATURES) - {"constants"}
    draft = Draft(FusionDefinition(), banned, ["i0", 8], exact)
    every: list[TensorView] = []
    for first, second in pairs:
        draft.live = []
        made = on.take_input(draw, draft, dtypes=[DType.BF16], whole=True)
        if first is Form.REDUCTION:  # both of its axes are left, so that anything may follow
            deep = draft.fd.define_tensor(["i0", 8, "i1"], DType.BF16)
            op = draw(st.sampled_from(["max", "sum"]))
            made = draft.add(getattr(draft.fd.ops, op)(deep, [2]), SMALL * on.MOST_REDUCED)
        elif first is not None:
            made = _formed(draw, draft, first, made)
        if second is not None:
            _formed(draw, draft, second, made)
        every += draft.live
    draft.live = every
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
    return draft.add(made, size)


_INSIDE = dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow"), "abs")
_INSIDE |= dict.fromkeys(("asin", "acos"), "tanh")
"""What brings numbers to where a function is defined: a NaN decides what is reduced."""


@st.composite
def reduced_fusions(draw: st.DrawFn, wanted: Wanted) -> Fusion:
    """Fusions that reduce results of pointwise operations: pairs of an operation and a reduction.

    Each operation has operands of its own, of which that decides whose reductions take fewest
    types.  In one of two a result is normalized, too.  Shrinks towards the first pair alone.
    """
    banned = frozenset(FEATURES) - {"constants", "16 bits", "f64", "integers", "bool", "idioms"}
    draft = Draft(FusionDefinition(), banned, ["i0", "i1"], exact=False)
    made, floats = [], list[TensorView]()
    for op in dict.fromkeys(op for op, _ in wanted):
        types = draft.dtypes()
        left = [reduction for other, reduction in wanted if other == op]
        while left:
            able = [dtype for dtype in types if reduces(op, dtype, left[0])]
            a = on.take_input(draw, draft, dtypes=able, whole=True)
            if op in _INSIDE and a.dtype.is_float:
                a = on.apply(draw, draft, _INSIDE[op], a)
            draft.live = [a]  # whatever else an operation takes
            values = on.apply(draw, draft, op, a)
            now = [reduction for reduction in left if reduces(op, a.dtype, reduction)]
            made += [on.reduce(draw, draft, values, reduction) for reduction in now]
            floats += [values] * values.dtype.is_float
            left = [reduction for reduction in left if reduction not in now]
    if bool(floats) and draw(st.booleans()):
        draft.live = floats
        grow(draw, draft, "norm")
        made += [tv for tv in draft.live if tv not in floats]
    draft.live = made
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


@st.composite
def reducing_fusions(draw: st.DrawFn, wanted: Wanted = ()) -> Fusion:
    """Fusions that add up f32 and do little else, so that CTAs can share it in any way.

    Some operations that are `wanted` come behind.

    Shrinks towards a sum of one axis.
    """
    draft = Draft(FusionDefinition(), frozenset(FEATURES), ["i0", "i1"], exact=True)
    a = on.take_input(draw, draft, dtypes=[DType.F32], whole=True)
    a = a if draw(st.booleans()) else draft.fd.ops.abs(a)
    large = SMALL * on.MOST_REDUCED
    draft.live = []
    made = draft.add(draft.fd.ops.sum(a, [draw(st.sampled_from([1, 0]))], keepdim=True), large)
    if draw(st.booleans()):
        _more(draw, draft, draft.add(draft.fd.ops.relu(made), large), wanted)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


def _more(draw: st.DrawFn, draft: Draft, a: TensorView, wanted: Wanted) -> None:
    """Add operations that are wanted of the type of a tensor, each on nothing but that tensor."""
    able = on.legal(draft, a)
    names = [op for op, dtype in wanted if dtype == str(a.dtype) and op in able]
    before, made = draft.live, []
    for op in names[: draw(st.sampled_from([0, MORE]))]:
        draft.live = [a]
        made.append(on.apply(draw, draft, op, a))
    draft.live = [*before, *made]


@st.composite
def plain_fusions(draw: st.DrawFn, wanted: Wanted = ()) -> Fusion:
    """Fusions of one operation on whole f32 tensors, which every engine can move.

    Some that are `wanted` come behind.

    Shrinks towards one `relu` of a tensor with two axes.
    """
    draft = Draft(FusionDefinition(), frozenset(FEATURES), ["i0", "i1"], exact=True)
    a = on.take_input(draw, draft, dtypes=[DType.F32], whole=True)
    a = on.apply(draw, draft, draw(st.sampled_from(["relu", "abs", "neg", "sign"])), a)
    _more(draw, draft, a, wanted)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


HINDERING = frozenset(
    {"permuted strides", "f64", "integers", "bool", "8 bits", "gaps", "lower ranks"}
)
"""Features that keep engines from loading, mostly."""


@st.composite
def scan_fusions(
    draw: st.DrawFn, *, exact: bool = False, few: bool = False, wanted: Wanted = ()
) -> Fusion:
    """Fusions that scan what is computed, and compute with the results; `few` suit every engine.

    Their one to three axes have any extents.  Shrinks towards a cumsum in f32 of one axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    banned |= {"pinned extents", "equal axes", "reductions"}
    banned |= HINDERING if few or draw(st.booleans()) else frozenset()
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    axes: list[str | int] = [f"i{n}" for n in range(rank)]
    draft = Draft(FusionDefinition(), banned, axes, exact, wanted=wanted)
    types = [d for d in DTYPES if d in draft.dtypes() and not (few and d.nbytes == 1)]
    a = on.take_input(draw, draft, dtypes=types, whole=True)
    if a.dtype is not DType.BOOL and draw(st.booleans()):
        a = on.apply(draw, draft, draw(st.sampled_from(["relu", "abs", "neg"])), a)
        _more(draw, draft, a, wanted)
    made = on.scan(draw, draft, a)
    if draw(st.booleans()):
        extend(draw, draft, 0, 2)
    if draw(st.sampled_from([False, False, True])) and not exact:
        on.scan(draw, draft, made)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()
