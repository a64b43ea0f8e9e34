"""Fusions under construction: tensors in one frame of axes, and the pointwise operations on them.

Every tensor of a drawn fusion lies in one frame of loop axes: along each it has the axis's extent
or 1.  So any two of them go together, and nothing need be thrown away.  A second number beside
each tensor bounds its magnitude, so that a fusion drawn as `exact` stays exact in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, IterType, Ops, Scalar, TensorView
from fuser.fusion.ir import tensor_args
from fuser.fusion.ops import OPS, Rule
from fuser.fusion.promotion import kind, promote
from fuzz.cases.case import SMALL

FEATURES = (
    "scalars",
    "constants",
    "mixed dtypes",
    "broadcast inputs",
    "lower ranks",
    "permuted strides",
    "gaps",
    "pinned extents",
    "equal axes",
    "shape ops",
    "factories",
    "reductions",
    "scans",
    "compositions",
    "idioms",
    "requests",
    "several outputs",
    "permuted outputs",
    "16 bits",
    "8 bits",
    "f64",
    "integers",
    "bool",
)
"""Switches of the generator; a case is drawn with some of them banned."""

LARGEST = 1 << 20
"""Bound of the magnitudes of an exact fusion; f32 holds integers up to 2**24."""
F8_EXACT = 8
"""Up to here f8e5m2, and f8e4m3, have every integer."""
LARGEST_EXTENT = 1 << 16
"""No axis of a case is longer."""

DTYPES = (DType.F32, DType.BF16, DType.F16, DType.F64, DType.I32, DType.I64, DType.BOOL)
"""Types of inputs, the simplest first."""
_NEEDS = {
    DType.BF16: "16 bits",
    DType.F16: "16 bits",
    DType.F64: "f64",
    DType.I32: "integers",
    DType.I64: "integers",
    DType.BOOL: "bool",
}
MOST_REDUCED = 1 << 14
"""Elements that become one, at most, as no case has more."""
_PINNED = (2, 3, 8, 64, 0)
PINNED_ELEMENTS = 128
"""Largest product of the pinned extents, as nothing can make a case with them smaller."""

INEXACT = frozenset({op for op in OPS if OPS[op].rule is Rule.FLOAT} | {"pow", "lerp"})
"""Operations whose results are not small integers even where their operands are."""
BITS = frozenset({"order", "philox"})
"""Operations whose results are integers of 32 bits, which floats round.  Where integers are to stay
exact no floats are drawn of them, but damage and shrinking may leave some."""


def keeps_whole(fusion: Fusion) -> bool:
    """Tell whether all floats are small integers where those of the inputs are."""
    return not any(tv.op in INEXACT | BITS for tv in fusion.tensors) and not grows(fusion)


def grows(fusion: Fusion) -> bool:
    """Tell whether products of many floats are of others than signs, and so may be rounded.

    Where integers are to stay exact signs are drawn, but damage and shrinking may leave others; the
    reference says which of their products are exact.
    """
    return any(tv.op == "prod" and tv.dtype.is_float and not _signs(tv) for tv in fusion.tensors)


def _signs(product: TensorView) -> bool:
    (of,) = product.args
    while isinstance(of, TensorView) and of.op in ("cast", "set", "broadcast", "permute"):
        of = of.args[0]
    return isinstance(of, TensorView) and of.op == "sign"


POINTWISE = tuple(
    sorted((op for op in OPS if OPS[op].pointwise), key=lambda op: (op != "relu", OPS[op].arity))
)
"""Pointwise operations, the simplest first."""


@dataclass(frozen=True)
class Composed:
    """How a composition is drawn: of a tensor along axes; `floats` only, or any number.

    `size` bounds the magnitudes of an exact result; None where it is not exact.
    """

    of: Callable[[Ops, TensorView, list[int]], TensorView]
    floats: bool = True
    size: Callable[[int], int] | None = None


COMPOSED: dict[str, Composed] = {
    "leaky_relu": Composed(lambda o, x, _: o.leaky_relu(x, 2), False, lambda size: 2 * size),
    "softplus": Composed(lambda o, x, _: o.softplus(x, 0.5, 4.0)),
    "elu": Composed(lambda o, x, _: o.elu(x, 0.7)),
    "hardtanh": Composed(lambda o, x, _: o.hardtanh(x, -2, 3), True, lambda size: max(size, 3)),
    "tril": Composed(lambda o, x, _: o.tril(x, -1), False, lambda size: size),
    "triu": Composed(lambda o, x, _: o.triu(x, 1), False, lambda size: size),
    "any": Composed(lambda o, x, axes: o.any(x, axes, True), False, lambda _: 1),
    "all": Composed(lambda o, x, axes: o.all(x, axes, True), False, lambda _: 1),
    "argmax": Composed(lambda o, x, a: o.argmax(x, a[0], True), False, lambda _: LARGEST_EXTENT),
    "argmin": Composed(lambda o, x, a: o.argmin(x, a[0], True), False, lambda _: LARGEST_EXTENT),
    "var": Composed(lambda o, x, axes: o.var(x, axes, 1, True)),
    "std": Composed(lambda o, x, axes: o.std(x, axes, 0, True)),
    "logsumexp": Composed(lambda o, x, axes: o.logsumexp(x, axes, True)),
    "softmax": Composed(lambda o, x, axes: o.softmax(x, axes)),
    "log_softmax": Composed(lambda o, x, axes: o.log_softmax(x, axes)),
    "layer_norm": Composed(lambda o, x, axes: o.layer_norm(x, axes)),
    "rms_norm": Composed(lambda o, x, axes: o.rms_norm(x, axes)),
    "softmax_backward": Composed(
        lambda o, x, axes: o.softmax_backward(x, o.softmax(x, axes), axes)
    ),
}
"""Compositions, the simplest first; losses and the gradients of norms are made of the same."""


def largest(op: str, args: list[int]) -> int:
    """Bound the magnitude of the result of an exact operation, by those of its operands."""
    match op:
        case "add" | "sub":
            return sum(args)
        case "mul":
            return args[0] * args[1]
        case "addcmul":
            return args[0] + args[1] * args[2] * args[3]
        case op if op in BITS:
            return 2**32
        case "nibble":
            return 8
        case "bitwise_and" | "bitwise_or" | "bitwise_xor" | "bitwise_not" | "floor_div":
            return 2 * max(args) + 1
        case _:
            return max(args)


Wanted = Sequence[tuple[str, str]]
"""Operations and the types of their first operands, by name."""


@dataclass
class Draft:
    """A fusion under construction, as far as it lies in one frame, whose extents are `axes`.

    Drafts of other frames may share `fd`.  Features that are `banned` are left out; if `exact`,
    small integers must stay exact.  `live` are the tensors that operations may take, `size` has the
    bound of the magnitude of each, by name.  Reductions are `along` these axes, or any.  `wanted`
    are pairs of an operation and a type that it had better be drawn with.
    """

    fd: FusionDefinition
    banned: frozenset[str]
    axes: list[str | int]
    exact: bool
    live: list[TensorView] = field(default_factory=list)
    size: dict[str, int] = field(default_factory=dict)
    scalars: list[Scalar] = field(default_factory=list)
    along: list[int] | None = None
    wanted: Wanted = ()

    def allows(self, feature: str) -> bool:
        """Tell whether a feature is not banned."""
        return feature not in self.banned

    def dtypes(self) -> list[DType]:
        """Types that an input may have."""
        return [d for d in DTYPES if d not in _NEEDS or self.allows(_NEEDS[d])]

    def add(self, tv: TensorView, size: int) -> TensorView:
        """Let later operations take a tensor of the frame."""
        self.live.append(tv)
        self.size[tv.name] = size
        return tv


@st.composite
def axes(draw: st.DrawFn, banned: frozenset[str], max_rank: int) -> list[str | int]:
    """Extents of a frame; the first is the symbol i0."""
    kinds: list[str | int] = ["new"]
    kinds += ["i0"] if "equal axes" not in banned else []
    kinds += _PINNED if "pinned extents" not in banned else []
    more = draw(st.lists(st.sampled_from(kinds), max_size=max_rank - 1))
    axes: list[str | int] = ["i0"]
    left = PINNED_ELEMENTS
    for n, drawn in enumerate(more, start=1):
        fits = isinstance(drawn, int) and drawn <= left
        left //= max(drawn, 1) if isinstance(drawn, int) and fits else 1
        axes.append(drawn if fits or drawn == "i0" else f"i{n}")
    return axes


def take_input(
    draw: st.DrawFn, draft: Draft, *, dtypes: list[DType] | None = None, whole: bool = False
) -> TensorView:
    """Draw an input tensor and bring it into the frame; `whole` has every axis of it."""
    rank = len(draft.axes)
    dtype = draw(st.sampled_from(dtypes or draft.dtypes()))
    shape = list(draft.axes)
    missing = [False] * rank
    if not whole and draft.allows("broadcast inputs"):
        for axis in range(rank):
            if draw(st.booleans()):
                shape[axis] = 1
                missing[axis] = draft.allows("lower ranks") and draw(st.booleans())
    kept = [axis for axis in range(rank) if not missing[axis]]
    declared = [shape[axis] for axis in kept]
    contiguity, order = None, None
    if kept and draft.allows("gaps") and rarely(draw):
        contiguity = [not draw(st.booleans()) for _ in kept]
        contiguity[-1] = contiguity[-1] or not rarely(draw)
    if len(kept) > 1 and draft.allows("permuted strides") and rarely(draw):
        order = draw(st.permutations(range(len(kept) - 1, -1, -1)))
    tv = draft.fd.define_tensor(declared, dtype, contiguity, order)
    if any(missing):
        tv = draft.fd.ops.broadcast(tv, missing)
    return draft.add(tv, SMALL if dtype is not DType.BOOL else 1)


def _number(draw: st.DrawFn, draft: Draft, like: DType) -> tuple[Scalar | bool | int | float, int]:
    """Draw a constant or a scalar input for a tensor of type `like`, and its magnitude."""
    fitting = [s for s in draft.scalars if kind(s.dtype) <= kind(like)]
    if draft.allows("scalars") and draw(st.sampled_from([False, False, True])):
        if not fitting or draw(st.booleans()):
            dtype = DType.F32 if like.is_float else DType.I64 if like.is_int else DType.BOOL
            fitting = [draft.fd.define_scalar(dtype)]
            draft.scalars += fitting
        return draw(st.sampled_from(fitting)), SMALL
    if like is DType.BOOL:
        return draw(st.booleans()), 1
    whole = draw(st.sampled_from([1, 2, 3, -1, -2, 0]))
    if like.is_int or (draft.allows("mixed dtypes") and draw(st.booleans())):
        return whole, abs(whole)
    if draft.exact:
        return float(whole), abs(whole)
    return draw(st.sampled_from([1.0, 0.5, 2.0, -1.5, 0.1, 3.0, 0.0])), 3


def _other(
    draw: st.DrawFn, draft: Draft, op: str, a: TensorView
) -> tuple[TensorView | Scalar | bool | int | float, int]:
    spec = OPS[op]
    fits = [
        tv
        for tv in reversed(draft.live)
        if (spec.rule is Rule.TEST or promote([a.dtype, tv.dtype], []) in spec.allowed)
        and (tv.dtype is a.dtype or draft.allows("mixed dtypes"))
    ]
    if draft.allows("constants") and (not fits or draw(st.booleans())):
        higher = draft.allows("mixed dtypes") and not a.dtype.is_float and DType.F32 in spec.allowed
        like = (
            DType.F32
            if higher and op not in ("floor_div", "remainder") and rarely(draw)
            else a.dtype
        )
        return _number(draw, draft, like)
    tv = draw(st.sampled_from(fits or [a]))
    return tv, draft.size[tv.name]


def _divisor(draw: st.DrawFn, draft: Draft, a: TensorView) -> tuple[TensorView | int, int]:
    """Draw a divisor of an integer tensor that is never 0: a constant, or an odd tensor."""
    odd = [tv for tv in reversed(draft.live) if tv.dtype.is_int]
    if bool(odd) and draw(st.booleans()):
        tv = draw(st.sampled_from(odd))
        size = 2 * draft.size[tv.name] + 1
        return draft.add(draft.fd.ops.bitwise_or(tv, 1), size), size
    number = draw(st.sampled_from([2, 3, 1, -3, 7]))
    return number, abs(number)


def _condition(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    flags = [tv for tv in reversed(draft.live) if tv.dtype is DType.BOOL]
    if bool(flags) and draw(st.booleans()):
        return draw(st.sampled_from(flags))
    return draft.add(draft.fd.ops.gt(a, False if a.dtype is DType.BOOL else 0), 1)


def legal(draft: Draft, a: TensorView) -> list[str]:
    """Pointwise operations that take `a` as their first operand."""
    return [
        op
        for op in POINTWISE
        if (OPS[op].rule in (Rule.GIVEN, Rule.TEST) or a.dtype in OPS[op].allowed)
        and not (draft.exact and op in INEXACT)
        and not (draft.exact and op in ("floor_div", "remainder") and a.dtype.is_float)
    ]


def apply(draw: st.DrawFn, draft: Draft, op: str, a: TensorView) -> TensorView:
    """Add one pointwise operation on `a`."""
    ops = draft.fd.ops
    args: list[tuple[TensorView | Scalar | bool | int | float, int]] = [(a, draft.size[a.name])]
    if op == "cast":
        dtype = draw(st.sampled_from(draft.dtypes()))
        if draft.allows("8 bits") and not (draft.exact and draft.size[a.name] > F8_EXACT):
            # Nothing else takes floats of 8 bits, so they are cast on at once.
            through = draw(st.sampled_from((None, DType.F8E4M3, DType.F8E5M2)))
            a = a if through is None else ops.cast(a, through)
        return draft.add(ops.cast(a, dtype), 1 if dtype is DType.BOOL else args[0][1])
    if op in ("floor_div", "remainder") and a.dtype.is_int:
        args.append(_divisor(draw, draft, a))
    elif op == "pow" and a.dtype.is_int:
        args.append((draw(st.sampled_from([2, 1, 0, 3])), 3))
    elif op == "where":
        flag = _condition(draw, draft, a)
        args = [(flag, 1), args[0], _other(draw, draft, op, a)]
    else:
        args += [_other(draw, draft, op, a) for _ in range(others(op))]
    sizes = [size for _, size in args]
    if op == "addcmul":
        args.append((1, 1))
        sizes.append(1)
    asks = OPS[op].rule in (Rule.TEST, Rule.COMPARISON)
    size = 1 if asks else largest(op, sizes)
    if draft.exact and size > LARGEST:
        op, size = "relu" if a.dtype is not DType.BOOL else "set", draft.size[a.name]
        args = [(a, size)]
    return draft.add(getattr(ops, op)(*(value for value, _ in args)), size)


def others(op: str) -> int:
    """Count the operands that `apply` draws beside the first."""
    return {"addcmul": 2}.get(op, OPS[op].arity - 1)


def reshape(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Add shape operations on `a` that end in the frame again."""
    ops, rank = draft.fd.ops, len(draft.axes)
    thin = ones(a)
    size = draft.size[a.name]
    stretch = [n for n in thin if draft.axes[n] != 1]
    choices = ["permute", *["expand"] * bool(stretch), *["squeeze"] * bool(thin)]
    known = {
        n: axis for n, axis in enumerate(draft.axes) if isinstance(axis, int) and n not in thin
    }
    long = {n: axis for n, axis in known.items() if axis > 1}
    real = [n for n in range(rank) if n not in thin and draft.axes[n] != 0]
    choices += ["cut", "split"] * 3 * bool(long) + ["take"] * bool(real)
    choice = draw(st.sampled_from(choices))
    if choice == "take":
        return draft.add(taken(draw, draft, a, draw(st.sampled_from(real))), size)
    if choice in ("cut", "split"):
        axis = draw(st.sampled_from(list(long)))
        return draft.add(parted(draw, ops, a, axis, long[axis], cut=choice == "cut"), size)
    if choice == "expand":
        axis = draw(st.sampled_from(stretch))
        shape = [draft.axes[n] if n == axis else -1 for n in range(rank)]
        return draft.add(ops.expand(a, shape), size)
    if choice == "squeeze":
        axis = draw(st.sampled_from(thin))
        flags = [n == axis for n in range(rank)]
        return draft.add(ops.broadcast(ops.squeeze(a, [axis]), flags), size)
    order = draw(st.permutations(range(rank)))
    moved = ops.permute(a, order)
    if [draft.axes[n] for n in order] == draft.axes:
        return draft.add(moved, size)
    back = [order.index(n) for n in range(rank)]
    return draft.add(ops.permute(moved, back), size)


def parted(
    draw: st.DrawFn, ops: Ops, a: TensorView, axis: int, extent: int, *, cut: bool
) -> TensorView:
    """Take parts of an axis and join them in any order, or split it and make one of it again."""
    if cut:
        at = draw(st.integers(1, extent - 1))
        parts = [ops.slice(a, axis, 0, at), ops.slice(a, axis, at, extent)]
        return ops.cat(draw(st.permutations(parts)), axis)
    inner = draw(st.sampled_from([n for n in range(1, extent + 1) if extent % n == 0]))
    wide = ops.unflatten(a, axis, [-1, inner])
    wide = ops.neg(wide) if a.dtype.is_float and not a.dtype.is_f8 and draw(st.booleans()) else wide
    return ops.flatten(wide, axis, axis + 1)


def taken(draw: st.DrawFn, draft: Draft, a: TensorView, axis: int) -> TensorView:
    """Take elements along an axis: from the first on, now and then one again, or one that is not.

    Small numbers are indices, too, but not all of a short axis.
    """
    ops = draft.fd.ops
    whole = [tv for tv in draft.live if tv.dtype.is_int and tv.dtype is not DType.I8]
    if whole and rarely(draw):
        index = ops.abs(draw(st.sampled_from(whole)))
    else:
        extent = a.logical[axis].extent
        line = ops.iota(extent, 0, draw(st.sampled_from([1, 0])))
        index = ops.broadcast(line, [n != axis for n in range(a.rank)])
    return ops.gather(a, axis, index)


def reduce(draw: st.DrawFn, draft: Draft, a: TensorView, asked: str | None = None) -> TensorView:
    """Reduce some axes of `a`, by the operation that is asked; they then have extent 1."""
    real = [n for n in range(a.rank) if n not in ones(a) and n in (draft.along or range(a.rank))]
    if not real or a.dtype is DType.I8 or a.dtype.is_f8:
        return a
    if draft.along is None:
        dims = draw(st.lists(st.sampled_from(real[::-1]), min_size=1, max_size=3, unique=True))
    else:
        dims = [n for n in draft.along if n in real]
    large = draft.size[a.name] * MOST_REDUCED
    choices = ["sum"] if not draft.exact or large <= LARGEST else []
    choices += ["max", "min", "prod"]
    choices += ["mean"] if a.dtype.is_float and not draft.exact else []
    op = asked or draw(st.sampled_from(choices))
    if op == "prod" and draft.exact and draft.size[a.name] > 1:
        a = apply(draw, draft, "sign", a)
    made: TensorView = getattr(draft.fd.ops, op)(a, dims, keepdim=True)
    if draft.allows("requests") and rarely(draw):
        adds = op in ("sum", "mean") and a.dtype is not DType.F64
        made.request_serial_grid_reduction(draw(st.sampled_from(["vectorized", *["tma"] * adds])))
    return draft.add(made, large if op == "sum" else draft.size[a.name])


def scan(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Add up `a` along an axis, to each of its elements, unless sums would not be exact."""
    sizes = {
        n: draft.size[a.name] * (axis.extent if isinstance(axis.extent, int) else MOST_REDUCED)
        for n, axis in enumerate(a.logical)
        if n not in ones(a) and axis.extent != 0
    }
    able = [n for n, size in sizes.items() if not draft.exact or size <= LARGEST]
    if not able or a.dtype is DType.I8 or a.dtype.is_f8:
        return a
    axis = draw(st.sampled_from(able[::-1]))
    return draft.add(draft.fd.ops.cumsum(a, axis), sizes[axis])


def compose(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Add what a composition of `a` records; axes that it reduces then have extent 1."""
    real = [n for n in range(a.rank) if n not in ones(a)]
    number = draw(st.integers(0, len(COMPOSED) - 1))
    able = [name for name in COMPOSED if _composes(draft, name, a)]
    if not real or not able:
        return a
    wished = list(COMPOSED)[number]
    one = COMPOSED[wished if wished in able else able[number % len(able)]]
    axes = draw(st.lists(st.sampled_from(real[::-1]), min_size=1, max_size=2, unique=True))
    axes = axes if draft.along is None else draft.along
    made = one.of(draft.fd.ops, a, axes)
    return draft.add(made, draft.size[a.name] if one.size is None else one.size(draft.size[a.name]))


def _composes(draft: Draft, name: str, a: TensorView) -> bool:
    """Tell whether a composition takes a tensor along any axis."""
    one = COMPOSED[name]
    if (draft.exact and one.size is None) or (one.floats and not a.dtype.is_float):
        return False
    match name:
        case "tril" | "triu":
            return a.rank > 1
        case "argmax" | "argmin":
            computed = a.dtype is DType.F64 and a.op != "input"
            return not computed and all(axis.extent != 0 for axis in a.logical)
        case _:
            return True


def ones(tv: TensorView) -> list[int]:
    """Axes of extent 1."""
    return [n for n in range(tv.rank) if tv.logical[n].iter_type is IterType.BROADCAST]


def factory(
    draw: st.DrawFn, draft: Draft, op: str | None = None, dtype: DType | None = None
) -> TensorView:
    """Add `iota` along one axis, or `full`, in the frame."""
    ops, rank = draft.fd.ops, len(draft.axes)
    dtype = dtype or draw(st.sampled_from([d for d in draft.dtypes() if d is not DType.BOOL]))
    if op == "full" or (op is None and draw(st.booleans())):
        value, size = _number(draw, draft, dtype)
        shape = [1 if draw(st.booleans()) else axis for axis in draft.axes]
        return draft.add(ops.full(shape, value, dtype), size)
    axis = draw(st.integers(0, rank - 1))
    start, step = draw(st.sampled_from([0, 1, -3])), draw(st.sampled_from([1, 2, -1]))
    line = ops.iota(draft.axes[axis], start, step, dtype)
    return draft.add(ops.broadcast(line, [n != axis for n in range(rank)]), 2 * LARGEST_EXTENT + 3)


def moved(draw: st.DrawFn, draft: Draft, op: str, dtype: DType) -> TensorView:
    """Add one operation that moves elements of an input; the last axis of the frame is a number."""
    ops, rank = draft.fd.ops, len(draft.axes)
    last, extent = rank - 1, draft.axes[-1]
    assert isinstance(extent, int), "its parts have known extents"
    thin = op in ("broadcast", "squeeze", "expand")
    made = draft.fd.define_tensor([*draft.axes[:-1], 1 if thin else extent], dtype)
    match op:
        case "set":
            made = ops.set(made)
        case "permute":
            back = list(range(rank))[::-1]
            made = ops.permute(ops.permute(made, back), back)
        case "gather":
            made = taken(draw, draft, made, last)
        case "slice" | "cat" | "flatten" | "unflatten":
            made = parted(draw, ops, made, last, extent, cut=op in ("slice", "cat"))
        case _:
            made = ops.broadcast(ops.squeeze(made, [last]), [n == last for n in range(rank)])
            made = ops.expand(made, draft.axes)
    if dtype is DType.I8 or dtype.is_f8:  # nothing is computed in these
        made = ops.cast(made, "f32")
    return draft.add(made, SMALL)


def step(draw: st.DrawFn, draft: Draft) -> TensorView:
    """Add one operation on a drawn tensor, now and then a new input or a view before it."""
    ways = ["op", "op", "input", "shape", "shape", "factory", "reduction", "composition", "scan"]
    choice = draw(st.sampled_from(ways))
    if choice == "input":
        take_input(draw, draft)
    elif choice == "factory" and draft.allows("factories"):
        factory(draw, draft)
    a = draw(st.sampled_from(draft.live[::-1]))
    if choice == "reduction" and draft.allows("reductions"):
        return reduce(draw, draft, a)
    if choice == "scan" and draft.along is None and draft.allows("scans") and rarely(draw):
        return scan(draw, draft, a)
    if choice == "composition" and draft.allows("reductions") and draft.allows("compositions"):
        return compose(draw, draft, a)
    if choice == "shape" and draft.allows("shape ops"):
        if draw(st.booleans()):
            take_input(draw, draft)
        stretchable = [tv for tv in draft.live[::-1] if ones(tv)]
        a = reshape(draw, draft, draw(st.sampled_from(stretchable or [a])))
    return operation(draw, draft, a)


def operation(draw: st.DrawFn, draft: Draft, a: TensorView) -> TensorView:
    """Add a drawn pointwise operation on `a`; three in four times one that is wanted, if any is."""
    # The same draw means the same operation whatever is legal, so that failures shrink.
    number = draw(st.integers(0, len(POINTWISE) - 1))
    able = legal(draft, a)
    op = POINTWISE[number] if POINTWISE[number] in able else able[number % len(able)]
    wanted = [name for name, dtype in draft.wanted if dtype == str(a.dtype) and name in able]
    if wanted and not rarely(draw):
        op = wanted[number % len(wanted)]
        draft.wanted = [pair for pair in draft.wanted if pair != (op, str(a.dtype))]
    return apply(draw, draft, op, a)


def add_outputs(draw: st.DrawFn, draft: Draft) -> None:
    """Make outputs of what nobody used, and of some more."""
    last = draft.live[-1]
    recorded = draft.fd.ops._recorder.tensors
    used = {arg.name for tv in recorded for arg in tensor_args(tv)}
    free = [
        tv
        for tv in draft.live
        if tv is last
        or (tv.op != "input" and tv.name not in used)
        or (tv.op != "input" and draft.allows("several outputs") and rarely(draw))
    ]
    for tv in free:
        if tv.rank > 1 and draft.allows("permuted outputs") and rarely(draw):
            tv = draft.fd.ops.permute(tv, draw(st.permutations(range(tv.rank))))
        elif ones(tv) and draft.allows("reductions") and draw(st.booleans()):
            tv = draft.fd.ops.squeeze(tv, ones(tv))
        elif tv.op == "input":
            tv = draft.fd.ops.set(tv)
        draft.fd.add_output(tv)


def rarely(draw: st.DrawFn) -> bool:
    """Draw True once in four times."""
    return draw(st.sampled_from([False, False, False, True]))
