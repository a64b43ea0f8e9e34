"""Products of few rows as sums that threads compute.

A tensor core multiplies 64 rows at once.  Of one row, or a few, it wastes most, and operands whose
rows do not begin at multiples of 16 bytes are copied first, or loaded less well.  As sums of what
is multiplied element by element such products are kernels that read the large operand once, at the
speed of memory, wherever its rows begin.  Each of a few rows is a sum of its own, of a kernel that
has all of them; together they are the result, part by part.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from fuser.dtype import DType
from fuser.fusion.ir import (
    AttrValue,
    Extent,
    Fusion,
    IterDomain,
    Symbol,
    TensorView,
    ancestry,
    number_of,
    row_major,
    tensor_args,
)
from fuser.fusion.mma_axes import AxisRole, MmaAxis, roles
from fuser.fusion.ops import OPS, Form, accumulator, producer_axes, unmoved
from fuser.fusion.recorder import axis_of
from fuser.schedule.cut.kept import memory_dtype
from fuser.schedule.domain import unit_stride

MOST = {1: None, 2: None, 3: 6 << 20, 4: 6 << 20}
"""Rows, at most, and the bytes of the large operand up to which as many are sums: threads add up
each element of each row in a register of its own, and with more of them too few threads have what
is on its way from memory.  Measured on an H100, us as sums and by tensor cores: 1 x 2176 x 7168
11.5 and 12.7, 2 x 30400 x 832 17.9 and 18.3, 3 x 192 x 16064 3.7 and 4.5, 3 x 13696 x 256 3.7 and
3.3, 3 x 11008 x 4224 48 and 32, 4 x 960 x 1408 2.3 and 3.1, 4 x 5560 x 608 4.5 and 3.3, 4 x 5632 x
5632 34 and 24.  Of 88 shapes of three rows and four these bytes choose the faster, or lose 1 %."""
BYTES_OF_TWO = 9 << 20
"""The same of two rows where the large operand is computed from bytes, such as weights of i8.
Measured on an H200, as sums and by tensor cores (these of three rows): 2 x 1024 x 4096 3.2 us and
4.3, 2 x 5120 x 5120 15.4 and 12.0, 2 x 14336 x 4096 25.0 and 21.1, 2 x 8192 x 8192 28.3 and 22.7, 2
x 28672 x 8192 91 and 66; of one row 2.7, 10.1, 19.2, 21.5 and 67."""
LONGEST, LONGEST_ODD = 9000, 4096
"""Elements of a row of that operand, at most, where rows do not begin at multiples of 16 bytes, and
where they begin at odd elements, which are loaded one by one.  Measured on an H200, as sums and by
tensor cores: 3 x 5000 x 8190 29.7 and 40 us, 4 x 16001 x 2050 30.3 and 31.1, 4 x 4057 x 11034 66
and 44; 3 x 12001 x 1002 9.0 and 13.4, 3 x 3001 x 6003 31.5 and 20.3, 4 x 2000 x 9001 34 and 20.8.
On an H100 3 x 18779 x 677 14.5 and 24, 4 x 8497 x 10692 97 and 99, 3 x 8089 x 12223 127 and 106."""
SHORT, LITTLE = 128, 2 << 20
"""Elements of a row that begins at an odd one, less than which tensor cores are faster, however few
rows the other operand has, and bytes of all rows from which on they are.  On an H200, as sums and
by tensor cores: 1 x 200001 x 65 31.5 and 19.6 us, 2 x 60001 x 77 10.7 and 7.8, 3 x 100001 x 33 28.2
and 6.7, 4 x 30000 x 91 7.3 and 4.6; 4 x 12001 x 203 5.1 and 5.6, 4 x 4001 x 61 2.0 and 1.9, 4 x
2495 x 93 1.8 and 3.0."""
ADDED = frozenset({DType.F32, DType.F16, DType.BF16})
"""Types of operands whose products threads add up as tensor cores do, in f32."""


@dataclass(frozen=True, slots=True)
class Few:
    """A product, by name, one of whose operands has `many` rows, along an axis of the result.

    Of one row the `axis` is None: there is nothing to take apart; `ones` are the extents that are
    1 then.  `small` is the operand (0 or 1) whose elements are multiplied many times each; None if
    neither's are.  Where its rows lie in columns (`strided`), they are stored first: each thread
    would load single elements of them.
    """

    name: str
    many: int
    axis: int | None
    small: int | None
    ones: tuple[Symbol, ...] = ()
    strided: bool = False

    def products(self) -> tuple[str, ...]:
        """Return the names of what is summed, row by row."""
        return tuple(f"{self.name}_row{n}" for n in range(self.many))


def few_rows(fusion: Fusion, values: Mapping[Symbol, int], empty: frozenset[str]) -> frozenset[Few]:
    """Return the products of few rows, or few columns, that are computed as sums.

    `values` are those of all extents; products of no elements are `empty`.
    """
    products = (tv for tv in fusion.tensors if tv.op == "mma" and tv.name not in empty)
    found = (_few(tv, values) for tv in products if _is_added(tv))
    return frozenset(one for one in found if one is not None)


def _is_added(product: TensorView) -> bool:
    types = {arg.dtype for arg in tensor_args(product)}
    return types <= ADDED and accumulator(product) is DType.F32 and product.meet is None


def _few(product: TensorView, values: Mapping[Symbol, int]) -> Few | None:
    axes = roles(product)
    kinds = AxisRole.M, AxisRole.N, AxisRole.K
    sides = [[axis for axis in axes if axis.role is kind] for kind in kinds]
    rows, cols, depth = (prod(number_of(axis.extent, values) for axis in side) for side in sides)
    few = int(cols < rows)
    many = min(rows, cols)
    real = [axis.result for axis in sides[few] if number_of(axis.extent, values) > 1]
    if many not in MOST or len(real) > 1 or not _worth(product, many, depth, few, values):
        return None
    ones = [axis.extent for axis in sides[few] if isinstance(axis.extent, Symbol) and not real]
    axis, small = real[0] if real else None, few if max(rows, cols) > 1 else None
    strided = small is not None and _is_strided(product, few, values)
    strided = strided and not _is_strided(product, 1 - few, values)  # else one element serves a row
    return Few(product.name, many, axis, small, tuple(ones), strided)


def _is_strided(product: TensorView, side: int, values: Mapping[Symbol, int]) -> bool:
    """Tell whether an operand is an input whose neighbours along the sums are apart in memory."""
    tv = tensor_args(product)[side]
    ends = [axis.b if side else axis.a for axis in roles(product) if axis.role is AxisRole.K]
    at = ends[-1] if ends else None
    while at is not None and tv.op in OPS and OPS[tv.op].form is Form.SHAPE:
        at = producer_axes(tv, 0)[at]
        (tv,) = tensor_args(tv)
    return tv.op == "input" and at is not None and not unit_stride(tv, at, values)


def _worth(
    product: TensorView, many: int, depth: int, few: int, values: Mapping[Symbol, int]
) -> bool:
    """Whether threads add up so many rows as fast as tensor cores, by the large operand's size."""
    most = MOST[many]
    large = unmoved(tensor_args(product)[1 - few])
    shape = [number_of(axis.extent, values) for axis in large.logical]
    _, row = min(zip(large.stride_order, shape, strict=True), default=(0, 1))  # or it is a number
    pitch, nbytes = row * large.dtype.nbytes, prod(shape) * large.dtype.nbytes
    if large.rank > 1 and any(tv.op == "flatten" for tv in ancestry(large)):
        return False  # it would be put together first
    odd = pitch % 4 > 0
    if odd and row == depth < SHORT and nbytes > LITTLE:
        return False
    if most is None:
        read = (tv for tv in ancestry(large) if tv.op == "input")
        whole = max(
            read, key=lambda tv: prod(number_of(n, values) for n in tv.shape), default=large
        )
        bytes_ = many == 2 and whole.dtype.nbytes == 1
        return not bytes_ or prod(shape) <= BYTES_OF_TWO
    if pitch % 16:
        return row <= (LONGEST_ODD if odd else LONGEST)
    return nbytes <= most


@lru_cache(maxsize=256)
def as_sums(fusion: Fusion, few: frozenset[Few]) -> Fusion:
    """Return a fusion in which these products are sums."""
    return _Summing(fusion, few).run() if few else fusion


def stored_first(fusion: Fusion, few: frozenset[Few]) -> frozenset[str]:
    """Return what must lie in memory before rows of it are multiplied, in a fusion of sums.

    What is computed from an operand of few rows would be computed again for every column.
    """
    small = {name: one.small for one in few for name in one.products()}
    found = set()
    for tv in fusion.tensors:
        side = small.get(tv.name)
        if side is not None:
            source = unmoved(tensor_args(tv)[side])
            if not all(one.op in ("input", "cast") for one in _computed(source)):
                found.add(source.name)
    return frozenset(found)


def _computed(tv: TensorView) -> list[TensorView]:
    """Return what a tensor is computed from, but for what moves elements."""
    moves = {Form.SHAPE, Form.VIEW}
    return [one for one in ancestry(tv) if one.op not in OPS or OPS[one.op].form not in moves]


def _only_walked(fusion: Fusion, extent: Symbol, sums: Set[str]) -> bool:
    """Tell whether axes of an extent are only walked, so that it may as well be the number 1.

    Kernels then have no such axes, and see which operand is the large one.
    """
    forms = (Form.UNARY, Form.BINARY, Form.TERNARY, Form.SHAPE)
    for tv in fusion.tensors:
        args = tensor_args(tv)
        touched = any(extent in one.shape for one in (tv, *args))
        if touched and tv.op != "input" and tv.name not in sums and OPS[tv.op].form not in forms:
            return False
    return True


class _Summing:
    def __init__(self, fusion: Fusion, few: frozenset[Few]) -> None:
        self.fusion = fusion
        self.few = {one.name: one for one in few}
        self.fixed: dict[Extent, int] = {
            tv.shape[one.axis]: one.many
            for tv in fusion.tensors
            if (one := self.few.get(tv.name)) is not None and one.axis is not None
        }
        ones = {extent for one in few for extent in one.ones}
        self.fixed |= {extent: 1 for extent in ones if _only_walked(fusion, extent, {*self.few})}
        self.new: dict[TensorView, TensorView] = {}
        self.tensors: list[TensorView] = []

    def run(self) -> Fusion:
        for tv in self.fusion.tensors:
            args = tuple(self.new[a] if isinstance(a, TensorView) else a for a in tv.args)
            logical = tuple(self._fixed(axis) for axis in tv.logical)
            old = (*tv.args, *tv.logical)
            same = all(a is b for a, b in zip((*args, *logical), old, strict=True))
            made = tv if same else replace(tv, args=args, logical=logical)
            one = self.few.get(tv.name)
            self.new[tv] = self._add(made) if one is None else self._sums(made, one)
        inputs = tuple(self.new[a] if isinstance(a, TensorView) else a for a in self.fusion.inputs)
        outputs = tuple(self.new[tv] for tv in self.fusion.outputs)
        return Fusion(inputs, tuple(self.tensors), outputs)

    def _fixed(self, axis: IterDomain) -> IterDomain:
        """Return an axis whose extent is known once rows are taken one by one."""
        return axis_of(self.fixed[axis.extent]) if axis.extent in self.fixed else axis

    def _add(self, tv: TensorView) -> TensorView:
        self.tensors.append(tv)
        return tv

    def _sums(self, product: TensorView, few: Few) -> TensorView:
        """Return a product as one sum, or as the sums of its rows."""
        if few.axis is None:
            return self._add(self._sum(product, few, 0))
        parts = tuple(self._add(self._sum(product, few, n)) for n in range(few.many))
        attrs: tuple[tuple[str, AttrValue], ...] = (("dim", (few.axis,)),)
        return self._add(replace(product, op="cat", args=parts, attrs=attrs))

    def _sum(self, product: TensorView, few: Few, row: int) -> TensorView:
        """Return the sum of one row, an axis of the result that then has one element."""
        axes = roles(product)
        taken = next((n for n, a in enumerate(axes) if few.axis == a.result is not None), None)
        name = few.products()[row]
        args = tuple(
            self._operand(
                f"{name}_{'ab'[side]}",
                arg,
                axes,
                side,
                (taken, row),
                strided=few.strided and side == few.small,
            )
            for side, arg in enumerate(tensor_args(product))
        )
        wide = tuple(axis_of(1 if n == taken else axis.extent) for n, axis in enumerate(axes))
        summed = tuple(n for n, axis in enumerate(axes) if axis.role is AxisRole.K)
        number, dtype = product.number, args[0].dtype
        made = self._add(_tensor(name, number, wide, dtype, "mul", args))
        kept = tuple(axis for n, axis in enumerate(wide) if n not in summed)
        whole = product.name if taken is None else f"{name}_sum"
        return _tensor(whole, number, kept, product.dtype, "sum", (made,), (("dims", summed),))

    def _operand(
        self,
        name: str,
        arg: TensorView,
        axes: tuple[MmaAxis, ...],
        side: int,
        part: tuple[int | None, int],
        *,
        strided: bool,
    ) -> TensorView:
        """Return an operand, or a row of it, with all axes of the full output, in their order.

        A row of one that is `strided` is a tensor of its own.
        """
        taken, row = part
        number, dtype = arg.number, arg.dtype

        def moved(
            word: str, tv: TensorView, logical: tuple[IterDomain, ...], op: str,
            *attrs: tuple[str, AttrValue],
        ) -> TensorView:  # fmt: skip
            return self._add(_tensor(f"{name}_{word}", number, logical, dtype, op, (tv,), attrs))

        if memory_dtype(arg) is not dtype:  # what is kept in f32 is rounded, as an operand is
            arg = moved("rounded", arg, arg.logical, "cast")
        places = [axis.b if side else axis.a for axis in axes]
        at = places[taken] if taken is not None else None
        if at is not None:
            one = (*arg.logical[:at], axis_of(1), *arg.logical[at + 1 :])
            arg = moved("row", arg, one, "slice", ("dim", (at,)), ("start", (row,)), ("step", (1,)))
            places[places.index(at)] = None
        if strided:
            arg = moved("near", arg, arg.logical, "set")
        used = [place for place in places if place is not None]
        left = tuple(n for n in range(arg.rank) if n not in used)
        if left:
            kept = tuple(axis for n, axis in enumerate(arg.logical) if n not in left)
            arg = moved("of", arg, kept, "squeeze", ("dims", left))
            used = [place - sum(n < place for n in left) for place in used]
        if used != sorted(used):
            kept = tuple(arg.logical[place] for place in used)
            arg = moved("order", arg, kept, "permute", ("dims", tuple(used)))
        flags = tuple(place is None for place in places)
        if any(flags):
            own = iter(arg.logical)
            wide = tuple(axis_of(1) if new else next(own) for new in flags)
            arg = moved("wide", arg, wide, "broadcast", ("is_broadcast_dim", flags))
        return arg


def _tensor(
    name: str,
    number: int,
    logical: tuple[IterDomain, ...],
    dtype: DType,
    op: str,
    args: tuple[TensorView, ...],
    attrs: tuple[tuple[str, AttrValue], ...] = (),
) -> TensorView:
    where = (True,) * len(logical), row_major(len(logical))
    return TensorView(name, number, logical, dtype, op, args, attrs, *where)
