"""Operands of drawn products: inputs in any layout, and what is computed from inputs.

Every axis has a name of its own, so that a product may find its axes in operands of any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition, Scalar, TensorView
from fuzz.cases import draft as on
from fuzz.cases.case import SMALL
from fuzz.cases.draft import Draft, Wanted, rarely
from fuzz.cases.graphs import normalize

MAX_SUM = 256
"""Elements that an exact product sums over, at most."""
LARGEST_FACTOR = 1 << 13
"""Bound of the magnitudes of an operand of an exact product."""
LARGEST_PRODUCT = 1 << 15
"""The same for one product of two; `MAX_SUM` of them stay below 2**23, and so exact in f32."""

LARGEST_TF32 = 1 << 11
"""Bound of the magnitudes that tf32 holds, whether it cuts or rounds."""

OPERANDS = (DType.BF16, DType.F16)
"""Types of operands, the simplest first."""
OTHERS = (DType.F32, DType.I8, DType.F8E4M3, DType.F8E5M2)
"""Types that tensor cores take in one layout only."""
_F8 = (DType.F8E4M3, DType.F8E5M2)
_PINNED = (64, 8, 16, 3, 40)

Names = tuple[str, ...]
"""Names of axes; the first letter says what an axis did first: b, m, n or k; g has indices."""


@dataclass
class Products:
    """A fusion with products under construction, without the features that are `banned`.

    If `exact`, small integers must stay exact.  `dtype` is that of every operand, but of 8-bit
    floats, drawn for each; `accumulate` that of the sums, if not the default.  `extents` are by the
    names of axes; `sizes` bound the magnitudes of operands and results, by name of the tensor;
    `shared` are the operands so far, with the names of their axes.
    """

    fd: FusionDefinition
    banned: frozenset[str]
    exact: bool
    dtype: DType
    extents: dict[str, str | int] = field(default_factory=dict)
    scalars: list[Scalar] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    shared: list[tuple[TensorView, Names]] = field(default_factory=list)
    accumulate: str | None = None
    wanted: Wanted = ()

    @property
    def precision(self) -> str | None:
        """What allows f32 operands."""
        return "tf32" if self.dtype is DType.F32 else None

    def allows(self, feature: str) -> bool:
        """Tell whether a feature is not banned."""
        return feature not in self.banned

    def frame(self, names: Names) -> Draft:
        """Return an empty draft whose frame has these axes, or one of a single element."""
        axes = [self.extents[name] for name in names] or [1]
        return Draft(
            self.fd, self.banned, axes, self.exact, scalars=self.scalars, wanted=self.wanted
        )


def new_axis(draw: st.DrawFn, products: Products, letter: str) -> str:
    """Name a new axis, and give it an extent: a symbol, one that is there already, or a number."""
    known = products.extents
    name = f"{letter}{len(known)}"
    choices: list[str | int] = [f"i{len(known)}"] * 8
    if products.allows("equal axes") and known:
        choices.append(next(iter(known.values())))
    if products.allows("pinned extents") and letter not in ("b", "g"):
        choices.append(draw(st.sampled_from(_PINNED)))
    if letter == "k":  # numbers cannot be halved later: they alone must not sum over too much
        rest = MAX_SUM // prod(n for k, n in known.items() if k[0] == "k" and isinstance(n, int))
        choices = [n for n in choices if isinstance(n, str) or n <= rest]
    known[name] = draw(st.sampled_from(choices))
    return name


def operand(
    draw: st.DrawFn,
    products: Products,
    names: Names,
    *,
    stretched: Names = (),
    computed: bool | None = None,
) -> TensorView:
    """Make an operand with these axes; `stretched` ones may be those of a smaller input.

    It may be `computed` from inputs, if that is not said; or taken of more matrices than there are
    products.
    """
    batch = any(name.startswith("b") for name in names)
    if computed is not None:
        made = (_prologue if computed else _plain)(draw, products, names)
    elif batch and products.allows("indexed operands") and rarely(draw):
        return indexed(draw, products, names)
    elif stretched and products.allows("stretched operands") and rarely(draw):
        made = _stretched(draw, products, names, stretched)
    elif products.allows("prologues") and products.dtype.nbytes > 1 and rarely(draw):
        made = _prologue(draw, products, names)
    else:
        made = _plain(draw, products, names)
    products.shared.append((made, names))
    return made


def _plain(draw: st.DrawFn, products: Products, names: Names) -> TensorView:
    """Define an input, with its axes in another order by its strides or by a permute."""
    rank = len(names)
    extents = [products.extents[name] for name in names]
    order = list(range(rank))
    if rank > 1 and products.allows("transposed operands") and draw(st.booleans()):
        last_two = [*order[:-2], order[-1], order[-2]]
        order = draw(st.sampled_from([last_two]) | st.permutations(order))
    contiguity = None
    if rank > 1 and products.allows("gaps") and rarely(draw):
        contiguity = [True] * rank
        contiguity[order[-2] if not rarely(draw) else draw(st.integers(0, rank - 1))] = False
    fd = products.fd
    dtype = draw(st.sampled_from(_F8)) if products.dtype.is_f8 else products.dtype
    # `order` lists the axes from the slowest to the fastest.
    if order == list(range(rank)):
        made = fd.define_tensor(extents, dtype, contiguity)
    elif draw(st.booleans()):
        places = [rank - 1 - order.index(axis) for axis in range(rank)]
        made = fd.define_tensor(extents, dtype, contiguity, places)
    else:
        gaps = None if contiguity is None else [contiguity[axis] for axis in order]
        stored = fd.define_tensor([extents[axis] for axis in order], dtype, gaps)
        made = fd.ops.permute(stored, [order.index(axis) for axis in range(rank)])
    products.sizes[made.name] = SMALL
    return made


def _prologue(draw: st.DrawFn, products: Products, names: Names) -> TensorView:
    draft = products.frame(names)
    made = on.take_input(draw, draft, whole=True)
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        made = on.apply(draw, draft, draw(st.sampled_from(on.legal(draft, made))), made)
        if rarely(draw):
            on.take_input(draw, draft)
    if products.allows("reductions") and rarely(draw):
        made = normalize(draw, draft, made)
    if not names:
        made = products.fd.ops.squeeze(made, [0])
    return narrowed(products, made, draft.size.get(made.name, SMALL))


def quantized(draw: st.DrawFn, products: Products, names: Names, *, packed: bool) -> TensorView:
    """Make an operand, by rows along an axis of a number, of bytes that have one element or two.

    Where not `packed`, or not always, neighbours along that axis are multiplied by a number.
    """
    fd, (rows, depth) = products.fd, (products.extents[name] for name in names)
    assert isinstance(depth, int), "it is divided"
    if packed:
        made = fd.ops.unpack(fd.define_tensor([rows, depth // 2], "i8"))
    else:
        made = fd.define_tensor([rows, depth], "i8")
    made = fd.ops.cast(made, products.dtype)
    size = SMALL if not packed else 8
    if not packed or draw(st.booleans()):
        group = draw(st.sampled_from([one for one in (64, 32, 128) if depth % one == 0]))
        dtype = draw(st.sampled_from([products.dtype, DType.F32]))
        if draw(st.booleans()):
            factors = fd.define_tensor([rows, depth // group], dtype)
        else:
            factors = fd.ops.permute(fd.define_tensor([depth // group, rows], dtype), [1, 0])
        made, size = fd.ops.mul(made, fd.ops.repeat_interleave(factors, group, 1)), size * SMALL
    made = narrowed(products, made, size)
    products.shared.append((made, names))
    return made


def indexed(draw: st.DrawFn, products: Products, names: Names) -> TensorView:
    """Make an operand that takes, along a batch axis, what the numbers of a vector name.

    Elements may be cast from bytes, before or behind that.
    """
    ops = products.fd.ops
    batch = draw(st.sampled_from([name for name in names if name.startswith("b")]))
    places = new_axis(draw, products, "g")
    lying = tuple(places if name == batch else name for name in names)
    casts = products.dtype.nbytes == DType.BF16.nbytes and products.allows("prologues")
    casts, first = casts and rarely(draw), draw(st.booleans())
    if casts:
        made = products.fd.define_tensor([products.extents[name] for name in lying], "i8")
        made = ops.cast(made, products.dtype) if first else made
    else:
        made = _plain(draw, products, lying)
    which = numbers(draw, products, products.extents[batch])
    made = ops.index_select(made, lying.index(places), which)
    made = ops.cast(made, products.dtype) if casts and not first else made
    products.sizes[made.name] = SMALL
    products.shared.append((made, names))
    return made


def numbers(draw: st.DrawFn, products: Products, many: str | int) -> TensorView:
    """Define a vector of so many integers, which name places."""
    return products.fd.define_tensor([many], draw(st.sampled_from([DType.I32, DType.I64])))


def _stretched(draw: st.DrawFn, products: Products, names: Names, stretched: Names) -> TensorView:
    """Expand an input along axes that another operand has as well."""
    chosen = draw(st.sets(st.sampled_from(stretched), min_size=1))
    rest = tuple(name for name in names if name not in chosen)
    made = _plain(draw, products, rest)
    ops = products.fd.ops
    wide = ops.broadcast(made, [name in chosen for name in names])
    made = ops.expand(wide, [products.extents[n] if n in chosen else -1 for n in names])
    products.sizes[made.name] = SMALL
    return made


def narrowed(products: Products, tv: TensorView, size: int) -> TensorView:
    """Bring a computed tensor to the type of operands, and to a magnitude that stays exact."""
    ops = products.fd.ops
    largest = LARGEST_TF32 if products.dtype is DType.F32 else LARGEST_FACTOR
    if products.exact and size > largest:
        tv, size = ops.sign(tv), 1
    if tv.dtype is not products.dtype:
        tv = ops.cast(tv, products.dtype)
    products.sizes[tv.name] = size
    return tv


def spread(products: Products, tv: TensorView, names: Names, full: Names) -> TensorView:
    """Give a tensor the axes `full`: its own in their order, others of extent 1."""
    ops = products.fd.ops
    order = [names.index(name) for name in full if name in names]
    if order != sorted(order):
        tv = ops.permute(tv, order)
    flags = [name not in names for name in full]
    return ops.broadcast(tv, flags) if any(flags) else tv


def bounded(products: Products, a: TensorView, b: TensorView) -> tuple[TensorView, TensorView]:
    """Replace operands by their signs where their product would not stay exact."""
    if not products.exact or products.sizes[a.name] * products.sizes[b.name] <= LARGEST_PRODUCT:
        return a, b
    signs = products.fd.ops.sign(a), products.fd.ops.sign(b)
    products.sizes |= {sign.name: 1 for sign in signs}
    return signs
