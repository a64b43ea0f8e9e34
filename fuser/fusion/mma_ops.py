"""The products of ``fd.ops``, such as `fused_multiply_sum` and `matmul`; each records an `mma`.

An `mma` names for every axis of its full output, the summed ones included, the axis of each
operand; no operand is broadcast or transposed for it.  What the axes are good for is answered by
`mma_axes.roles`; the numeric contract is in `ops`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuser.dtype import DType
from fuser.fusion.ir import AttrValue, Extent, TensorView, show_shape
from fuser.fusion.ops import MMA, product_dtype
from fuser.fusion.recorder import Recording, axis_of, refuse, show
from fuser.fusion.shape_ops import ShapeOps

Axes = tuple[int, ...]
_Side = tuple[TensorView, Axes]
"""An operand, and which of its axes each axis of the full output is."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """An `mma` that was checked, and the extents that it makes equal."""

    call: str
    a: TensorView
    b: TensorView
    a_axes: Axes
    b_axes: Axes
    reduced: Axes
    shape: tuple[Extent, ...]
    pairs: tuple[tuple[Extent, Extent], ...]
    narrow: bool


class MmaOps(Recording):
    """fused_multiply_sum, matmul, grouped_matmul and linear."""

    def fused_multiply_sum(
        self,
        a: TensorView,
        b: TensorView,
        axes: Sequence[int] | None = None,
        axis_mapping: Sequence[Sequence[int]] | None = None,
        dtype: str | DType | None = None,
        precision: str | None = None,
        accumulate: str | None = None,
    ) -> TensorView:
        """Return the sum over some axes of a * b, on tensor cores.

        Parameters
        ----------
        a, b : TensorView
            Both bf16, both f16, both i8, both of 8-bit floats (f8e4m3 or f8e5m2, also mixed), or
            both f32 with ``precision="tf32"``.
        axes : sequence of int, optional
            Axes of the full output to sum over; negative ones count from the end.  Left out, the
            last one.
        axis_mapping : pair of sequences of int, optional
            For a and for b: per axis of the full output its axis of the operand, -1 where the
            operand has none.  For a [M, K] and b [K, N]: ``([0, -1, 1], [-1, 1, 0])``.  Left out,
            a and b have equal ranks and axis i is axis i.  Axes of extent 1 stretch where they
            meet another extent and are not summed over; they may also be left out.
        dtype : str or DType, optional
            f32, or the type of the operands if it has 16 bits; left out, f32.  Of i8 it is i32.
        precision : str, optional
            ``"tf32"`` allows the loss of the low 13 bits of f32 operands.
        accumulate : str, optional
            ``"f16"`` allows f16 operands to be added up in f16.

        Raises
        ------
        FusionError
            If an axis is in neither operand, an operand's axis is not used exactly once, or a
            summed axis is not in both.
        """
        given = {
            "axes": axes,
            "axis_mapping": axis_mapping,
            "dtype": dtype,
            "precision": precision,
            "accumulate": accumulate,
        }
        call = _call("fused_multiply_sum", (a, b), given)
        self._check_operands(call, a, b, precision, accumulate)
        wide = DType.I32 if a.dtype is DType.I8 else DType.F32
        element = wide if dtype is None else self._recorder.dtype(call, dtype)
        legal = dict.fromkeys((wide, product_dtype(a.dtype)))
        if element not in legal:
            words = " or ".join(map(str, legal))
            refuse(call, f"the result of {a.dtype} operands is {words}; cast it after")
        if axis_mapping is None:
            if a.rank != b.rank:
                shown = " and ".join(map(self._shape, (a, b)))
                refuse(call, f"shapes {shown} differ in rank; give an axis_mapping")
            a_axes = b_axes = tuple(range(a.rank))
        else:
            a_axes, b_axes = self._mapping(call, axis_mapping, a, b)
        summed = self._recorder.axes(call, [-1] if axes is None else axes, len(a_axes))
        if not summed:
            refuse(call, "no axis is summed over; name one in axes, or use mul")
        plan = self._plan(call, (a, a_axes), (b, b_axes), summed, narrow=accumulate == "f16")
        return self._record(plan, element)

    def matmul(
        self,
        a: TensorView,
        b: TensorView,
        precision: str | None = None,
        accumulate: str | None = None,
    ) -> TensorView:
        """Return the matrix product as torch.matmul does, in the type of the operands.

        But i32 for i8, and f32 for 8-bit floats.  An operand of one axis is a vector; axes before
        the last two are batch axes, aligned from the right, and those of extent 1 stretch.
        Operands, `precision` and `accumulate` are those of `fused_multiply_sum`.
        """
        call = _call("matmul", (a, b), {"precision": precision, "accumulate": accumulate})
        self._check_operands(call, a, b, precision, accumulate)
        for tv in (a, b):
            if tv.rank == 0:
                refuse(call, f"{tv} has no axes to sum over; use mul")
        batch = max(a.rank, b.rank, 2) - 2
        a_axes, b_axes = _batch_axes(a, batch), _batch_axes(b, batch)
        if a.rank > 1:
            a_axes, b_axes = (*a_axes, a.rank - 2), (*b_axes, -1)
        if b.rank > 1:
            a_axes, b_axes = (*a_axes, -1), (*b_axes, b.rank - 1)
        a_axes, b_axes = (*a_axes, a.rank - 1), (*b_axes, max(b.rank - 2, 0))
        summed = (len(a_axes) - 1,)
        plan = self._plan(call, (a, a_axes), (b, b_axes), summed, narrow=accumulate == "f16")
        return self._record(plan, product_dtype(a.dtype))

    def grouped_matmul(
        self,
        a: TensorView,
        b: TensorView,
        groups: TensorView,
        precision: str | None = None,
        accumulate: str | None = None,
    ) -> TensorView:
        """Return the products of blocks of rows, each by the matrix that its number names.

        As layers of experts need, whose rows are sorted and padded to blocks.  It is ``matmul(a,
        index_select(b, 0, groups))``, and moves no matrix: the TMA engine is told where it lies.

        Parameters
        ----------
        a : TensorView
            [T, R, K]: T blocks of R rows.  Or [M, K] of numbers, of which T is a divisor.
        b : TensorView
            [G, K, N], contiguous along K or N.
        groups : TensorView
            [T], i32 or i64.  Rows of a number outside of 0..G - 1 are anything; nothing is read
            for them.
        precision, accumulate : str, optional
            As in `fused_multiply_sum`.
        """
        given = {"precision": precision, "accumulate": accumulate}
        call = _call("grouped_matmul", (a, b, groups), given)
        self._check_operands(call, a, b, precision, accumulate)
        where, shapes = self._recorder.tensor(call, groups), ShapeOps(self._recorder)
        if where.rank != 1 or not where.dtype.is_int or where.dtype is DType.I8:
            refuse(call, f"{where} is {where.dtype} with {where.rank} axes; give [T] of i32 or i64")
        if b.rank != 3 or a.rank not in (2, 3):
            have = f"{a} has shape {self._shape(a)}, {b} has {self._shape(b)}"
            refuse(call, f"{have}; give [T, R, K] or [M, K], and [G, K, N]")
        blocks = a
        if a.rank == 2:
            find = self._recorder.extents.find
            rows, many = find(a.logical[0].extent), find(where.logical[0].extent)
            if not isinstance(rows, int) or not isinstance(many, int) or not many or rows % many:
                have = f"{a} has {rows} rows for the {many} blocks of {where}"
                refuse(call, f"{have}; give numbers that divide, or a as [T, R, K]")
            blocks = shapes.unflatten(a, 0, [many, rows // many])
        taken = shapes.gather(b, 0, shapes.broadcast(where, [False, True, True]))
        made = self.matmul(blocks, taken, precision, accumulate)
        return shapes.flatten(made, 0, 1) if a.rank == 2 else made

    def linear(
        self,
        x: TensorView,
        w: TensorView,
        bias: TensorView | None = None,
        precision: str | None = None,
        accumulate: str | None = None,
    ) -> TensorView:
        """Return x @ w^T + bias as torch.nn.functional.linear does, in the type of `matmul`.

        Parameters
        ----------
        x : TensorView
            [..., K].
        w : TensorView
            [N, K].
        bias : TensorView, optional
            [N] in the type of the result; it is broadcast and added.
        precision, accumulate : str, optional
            As in `fused_multiply_sum`.
        """
        given = {"bias": bias, "precision": precision, "accumulate": accumulate}
        call = _call("linear", (x, w), given)
        self._check_operands(call, x, w, precision, accumulate)
        if x.rank == 0:
            refuse(call, f"{x} has no axes to sum over; use mul")
        if w.rank != 2:
            refuse(call, f"the weight {w} has shape {self._shape(w)}; give it the axes (N, K)")
        outer = range(x.rank - 1)
        x_axes, w_axes = (*outer, -1, x.rank - 1), (*(-1 for _ in outer), 0, 1)
        sides, narrow = ((x, x_axes), (w, w_axes)), accumulate == "f16"
        plan = self._plan(call, *sides, (x.rank,), narrow=narrow)
        result = product_dtype(x.dtype)
        if bias is None:
            return self._record(plan, result)
        self._check_bias(call, bias, x, w)
        product = self._record(plan, result, bias)
        wide = bias
        if product.rank > 1:
            flags = [True] * (product.rank - 1) + [False]
            wide = ShapeOps(self._recorder).broadcast(bias, flags)
        total = self._recorder.pointwise("add", product, wide)
        return self._recorder.stands_for(total, product)

    # --- checks ---------------------------------------------------------------------------

    def _check_operands(
        self, call: str, a: object, b: object, precision: object, accumulate: object
    ) -> None:
        left, right = self._recorder.tensor(call, a), self._recorder.tensor(call, b)
        if left.dtype is not right.dtype and not (left.dtype.is_f8 and right.dtype.is_f8):
            types = f"{left} is {left.dtype} and {right} is {right.dtype}"
            refuse(call, f"{types}; cast them to one type")
        if left.dtype not in MMA:
            refuse(call, f"operands are {left.dtype}; cast them to bf16 or f16")
        if precision is not None and precision != "tf32":
            refuse(call, f"precision {show(precision)} is unknown; use 'tf32' or leave it out")
        if left.dtype is DType.F32 and precision is None:
            why = "operands are f32, which tensor cores do not multiply"
            refuse(call, f"{why}; cast them to bf16 or f16, or say precision='tf32'")
        if left.dtype is not DType.F32 and precision is not None:
            refuse(call, f"precision 'tf32' is for f32 operands, not {left.dtype}; leave it out")
        if accumulate not in (None, "f16", "f32"):
            refuse(call, f"accumulate {show(accumulate)} is unknown; use 'f16' or leave it out")
        if accumulate == "f16" and left.dtype is not DType.F16:
            refuse(call, f"only f16 operands are added up in f16, not {left.dtype}; leave it out")
        if accumulate == "f32" and left.dtype is DType.I8:
            refuse(call, "products of i8 are added up in i32; leave accumulate out")

    def _check_bias(self, call: str, bias: object, x: TensorView, w: TensorView) -> None:
        tv = self._recorder.tensor(call, bias)
        wanted = product_dtype(x.dtype)
        if tv.dtype is not wanted and wanted is not x.dtype:
            refuse(call, f"the bias {tv} is {tv.dtype}, the product of {x} is {wanted}; cast it")
        if tv.dtype is not wanted:
            refuse(call, f"the bias {tv} is {tv.dtype} and {x} is {x.dtype}; cast it first")
        if tv.rank != 1:
            refuse(call, f"the bias {tv} has shape {self._shape(tv)}; give it the one axis (N,)")
        rows, length = map(self._recorder.extents.find, (w.shape[0], tv.shape[0]))
        if rows == 1 and length != 1:
            refuse(call, f"the bias has extent {length} and axis 0 of {w} has 1; make them equal")

    def _mapping(
        self, call: str, mapping: object, a: TensorView, b: TensorView
    ) -> tuple[Axes, Axes]:
        lists = self._recorder.entries(call, mapping)
        if len(lists) != 2:
            refuse(call, f"axis_mapping has {len(lists)} lists; give one for {a}, one for {b}")
        pairs = zip((a, b), lists, strict=True)
        a_axes, b_axes = (self._column(call, tv, column) for tv, column in pairs)
        if len(a_axes) != len(b_axes):
            lengths = f"{len(a_axes)} axes for {a} and {len(b_axes)} for {b}"
            refuse(call, f"axis_mapping names {lengths}; write -1 where one has no axis")
        return a_axes, b_axes

    def _column(self, call: str, tv: TensorView, column: object) -> Axes:
        result: list[int] = []
        for entry in self._recorder.entries(call, column):
            if not isinstance(entry, int) or isinstance(entry, bool):
                refuse(call, f"axis {show(entry)} of {tv} is not an integer; use -1 for no axis")
            if not -1 <= entry < tv.rank:
                ways = f"use 0..{tv.rank - 1}, or -1 for none" if tv.rank else "use -1 for none"
                refuse(call, f"{tv} has {tv.rank} axes and none is axis {entry}; {ways}")
            result.append(entry)
        return tuple(result)

    def _plan(self, call: str, left: _Side, right: _Side, summed: Axes, *, narrow: bool) -> _Plan:
        """Check the axes, and drop those of extent 1 that stretch along the other operand's."""
        (a, a_axes), (b, b_axes) = left, right
        self._check_used(call, a, a_axes)
        self._check_used(call, b, b_axes)
        find = self._recorder.extents.find
        final: list[tuple[int, int]] = []
        pairs: list[tuple[Extent, Extent]] = []
        shape: list[Extent] = []
        for axis, (in_a, in_b) in enumerate(zip(a_axes, b_axes, strict=True)):
            n_a = find(a.shape[in_a]) if in_a >= 0 else None
            n_b = find(b.shape[in_b]) if in_b >= 0 else None
            if n_a is None and n_b is None:
                refuse(call, f"axis {axis} of the full output is in neither operand; leave it out")
            if axis in summed:
                self._check_summed(call, axis, (a, n_a), (b, n_b))
            elif n_a is not None and n_b is not None and (n_a == 1) != (n_b == 1):
                in_a, in_b = (-1, in_b) if n_a == 1 else (in_a, -1)
                n_a, n_b = (None, n_b) if n_a == 1 else (n_a, None)
            if n_a is not None and n_b is not None:
                pairs.append((n_a, n_b))
            if axis not in summed:
                shape += [n for n in (n_a, n_b) if n is not None][:1]
            final.append((in_a, in_b))
        self._recorder.check_size(call, tuple(shape))
        firsts, seconds = zip(*final, strict=True)
        reduced = tuple(sorted(summed))
        return _Plan(call, a, b, firsts, seconds, reduced, tuple(shape), tuple(pairs), narrow)

    def _check_used(self, call: str, tv: TensorView, axes: Axes) -> None:
        for axis, extent in enumerate(map(self._recorder.extents.find, tv.shape)):
            count = axes.count(axis)
            if count > 1:
                refuse(call, f"axis_mapping uses axis {axis} of {tv} {count} times; use it once")
            if count == 0 and extent != 1:
                why = f"axis_mapping leaves out axis {axis} of {tv}, of extent {extent}"
                refuse(call, f"{why}; give it a place")

    def _check_summed(
        self,
        call: str,
        axis: int,
        a: tuple[TensorView, Extent | None],
        b: tuple[TensorView, Extent | None],
    ) -> None:
        """Refuse to sum over an axis of one operand: that is a sum, not a product."""
        for (tv, extent), (other, second) in ((a, b), (b, a)):
            if extent is None:
                why = f"axis {axis} is summed over, but only {other} has it"
                refuse(call, f"{why}; name in axes only what both have")
            if extent == 1 and second not in (1, None):
                why = f"axis {axis} is summed over, with extent 1 in {tv} and {second} in {other}"
                refuse(call, f"{why}; expand {tv} first")

    # --- recording ------------------------------------------------------------------------

    def _record(self, plan: _Plan, dtype: DType, bias: TensorView | None = None) -> TensorView:
        """Unify what meets, and record; `bias` has the extent of the last axis of the result."""
        pairs = list(plan.pairs)
        if bias is not None:
            length = self._recorder.extents.find(bias.shape[0])
            pairs += [(plan.shape[-1], length)] if length != 1 else []
        if not self._recorder.extents.unify(pairs):
            tensors = (plan.a, plan.b) if bias is None else (plan.a, plan.b, bias)
            shown = " and ".join(map(self._shape, tensors))
            meets = ", ".join(f"{one} meets {other}" for one, other in pairs if one != other)
            refuse(plan.call, f"shapes {shown} differ: {meets}; make those extents equal")
        attrs: list[tuple[str, AttrValue]] = [
            ("a_axes", plan.a_axes),
            ("b_axes", plan.b_axes),
            ("reduced", plan.reduced),
        ]
        if plan.narrow:
            attrs.append(("accumulate", (8 * DType.F16.nbytes,)))
        return self._recorder.record(
            "mma",
            tuple(map(axis_of, plan.shape)),
            dtype,
            args=(plan.a, plan.b),
            attrs=tuple(attrs),
        )

    def _shape(self, tv: TensorView) -> str:
        return show_shape(tuple(map(self._recorder.extents.find, tv.shape)))


def _call(name: str, operands: tuple[object, ...], given: Mapping[str, object]) -> str:
    words = [show(operand) for operand in operands]
    words += [f"{key}={show(value)}" for key, value in given.items() if value is not None]
    return f"{name}({', '.join(words)})"


def _batch_axes(tv: TensorView, batch: int) -> Axes:
    """Return the axes of `tv` behind each of `batch` axes, aligned from the right."""
    own = max(tv.rank - 2, 0)
    return (*(-1 for _ in range(batch - own)), *range(own))
