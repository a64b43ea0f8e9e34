"""The operations of ``fd.ops`` that change axes, and those that make tensors from nothing.

None of them computes, so none of them rounds, except that `iota` of floats is a product and a sum.
"""

import builtins
from collections.abc import Sequence
from math import prod

from fuser.dtype import DType
from fuser.fusion.ir import (
    Constant,
    Extent,
    IterDomain,
    IterType,
    Scalar,
    Symbol,
    TensorView,
    show_shape,
)
from fuser.fusion.ops import OPS
from fuser.fusion.promotion import kind
from fuser.fusion.recorder import Operand, Recording, axis_of, refuse, show


class ShapeOps(Recording):
    """Operations that move axes, that take or join parts, and those of nothing."""

    def broadcast(self, x: TensorView, is_broadcast_dim: Sequence[bool]) -> TensorView:
        """Insert axes of extent 1.

        Parameters
        ----------
        x : TensorView
            Any dtype.
        is_broadcast_dim : sequence of bool
            One entry per axis of the result: True for a new axis, False for the next axis of x.
        """
        call = f"broadcast({show(x)}, is_broadcast_dim={show(is_broadcast_dim)})"
        source = self._recorder.tensor(call, x)
        flags = self._recorder.flags(call, is_broadcast_dim)
        if flags.count(False) != source.rank:
            kept = f"{flags.count(False)} entries are False"
            refuse(call, f"{kept} but {x} has {source.rank} axes; give one False per axis")
        old = iter(source.logical)
        logical = tuple(axis_of(1) if new else next(old) for new in flags)
        attrs = (("is_broadcast_dim", flags),)
        return self._recorder.record(
            "broadcast", logical, source.dtype, args=(source,), attrs=attrs
        )

    def expand(self, x: TensorView, shape: Sequence[int | str | Symbol]) -> TensorView:
        """Stretch axes of extent 1.

        Parameters
        ----------
        x : TensorView
            Any dtype.
        shape : sequence of int, str or Symbol
            One entry per axis of x: -1 keeps the axis; else as in `define_tensor`, or the
            ``t.logical[i].extent`` of another tensor.  Axes of another extent than 1 must agree.
        """
        call = f"expand({show(x)}, shape={show(shape)})"
        source = self._recorder.tensor(call, x)
        entries = self._recorder.entries(call, shape)
        if len(entries) != source.rank:
            wrong = f"{len(entries)} entries for the {source.rank} axes of {x}"
            refuse(call, f"{wrong}; broadcast first to add axes")
        logical: list[IterDomain] = []
        pairs: list[tuple[Extent, Extent]] = []
        for axis, entry in zip(source.logical, entries, strict=True):
            if isinstance(entry, int) and not isinstance(entry, bool) and entry == -1:
                logical.append(axis)
                continue
            extent = self._recorder.extent(call, entry)
            if axis.iter_type is IterType.BROADCAST:
                logical.append(axis_of(extent))
            else:
                pairs.append((axis.extent, extent))
                logical.append(axis)
        if any(extent == 1 for _, extent in pairs) or not self._recorder.extents.unify(pairs):
            have = show_shape(tuple(map(self._recorder.extents.find, source.shape)))
            refuse(call, f"{x} has shape {have}; only axes of extent 1 stretch, use -1 elsewhere")
        self._recorder.check_size(call, tuple(axis.extent for axis in logical))
        return self._recorder.record("expand", tuple(logical), source.dtype, args=(source,))

    def squeeze(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        """Drop axes of extent 1, given by number; negative ones count from the end."""
        call = f"squeeze({show(x)}, dims={show(dims)})"
        source = self._recorder.tensor(call, x)
        axes = tuple(sorted(self._recorder.axes(call, dims, source.rank)))
        for axis in axes:
            if source.logical[axis].iter_type is not IterType.BROADCAST:
                extent = self._recorder.extents.find(source.logical[axis].extent)
                refuse(call, f"axis {axis} has extent {extent}; squeeze only axes of extent 1")
        logical = tuple(axis for n, axis in enumerate(source.logical) if n not in axes)
        attrs = (("dims", axes),)
        return self._recorder.record("squeeze", logical, source.dtype, args=(source,), attrs=attrs)

    def permute(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        """Reorder axes: axis i of the result is axis ``dims[i]`` of x."""
        call = f"permute({show(x)}, dims={show(dims)})"
        source = self._recorder.tensor(call, x)
        axes = self._recorder.axes(call, dims, source.rank)
        if len(axes) != source.rank:
            refuse(call, f"{len(axes)} of {source.rank} axes named; name each once")
        logical = tuple(source.logical[axis] for axis in axes)
        attrs = (("dims", axes),)
        return self._recorder.record("permute", logical, source.dtype, args=(source,), attrs=attrs)

    def slice(
        self, x: TensorView, dim: int, start: int = 0, end: int | None = None, step: int = 1
    ) -> TensorView:
        """Take elements start, start + step, ... before `end` along an axis.

        Parameters
        ----------
        x : TensorView
            Any dtype.
        dim : int
            The axis; a negative one counts from the end.
        start, end : int
            Where it begins and ends.  Negative ones count from the end of the axis, whose extent
            must then be a number; so must it be where `end` is left out or may lie behind it.
        step : int
            1 or more.
        """
        call = f"slice({show(x)}, dim={show(dim)}, start={show(start)}, end={show(end)}"
        call += f", step={show(step)})"
        source = self._recorder.tensor(call, x)
        (axis,) = self._recorder.axes(call, [dim], source.rank)
        numbers = [start, step] if end is None else [start, end, step]
        if any(not isinstance(n, int) or isinstance(n, bool) for n in numbers):
            refuse(call, "start, end and step are not all integers; use some, or leave end out")
        if step < 1:
            refuse(call, f"step {step} is below 1; use 1 or more")
        extent = self._recorder.extents.find(source.logical[axis].extent)
        if isinstance(extent, int):
            first, last, by = builtins.slice(start, end, step).indices(extent)
        elif end is None or start < 0 or end < 0:
            refuse(call, f"axis {axis} has extent {extent}; pin it to a number, or name start, end")
        else:
            first, last, by = start, end, step
        many = max(-(-(last - first) // by), 0)
        logical = _replaced(source.logical, axis, [axis_of(many)])
        attrs = (("dim", (axis,)), ("start", (first,)), ("step", (by,)))
        return self._recorder.record("slice", logical, source.dtype, args=(source,), attrs=attrs)

    def flatten(self, x: TensorView, start_dim: int = 0, end_dim: int = -1) -> TensorView:
        """Make one axis of neighbouring ones, whose extents must be numbers (but for one)."""
        call = f"flatten({show(x)}, start_dim={show(start_dim)}, end_dim={show(end_dim)})"
        source = self._recorder.tensor(call, x)
        first, last = (self._recorder.axes(call, [n], source.rank)[0] for n in (start_dim, end_dim))
        if first > last:
            refuse(call, f"axis {first} lies behind axis {last}; name the first one first")
        extents = [self._recorder.extents.find(n) for n in source.shape[first : last + 1]]
        real = [n for n in extents if n != 1]
        if len(real) > 1 and any(isinstance(n, Symbol) for n in real):
            refuse(call, f"extents {show_shape(tuple(extents))} are not all known; pin them")
        many = prod(n for n in real if isinstance(n, int)) if len(real) != 1 else real[0]
        logical = (*source.logical[:first], axis_of(many), *source.logical[last + 1 :])
        self._recorder.check_size(call, (many,))
        attrs = (("start_dim", (first,)), ("end_dim", (last,)))
        return self._recorder.record("flatten", logical, source.dtype, args=(source,), attrs=attrs)

    def unflatten(self, x: TensorView, dim: int, sizes: Sequence[int]) -> TensorView:
        """Make several axes of one, whose extent is the product of their sizes; -1 is the rest."""
        call = f"unflatten({show(x)}, dim={show(dim)}, sizes={show(sizes)})"
        source = self._recorder.tensor(call, x)
        (axis,) = self._recorder.axes(call, [dim], source.rank)
        extent = self._recorder.extents.find(source.logical[axis].extent)
        entries = self._recorder.entries(call, sizes)
        numbers = [n for n in entries if isinstance(n, int) and not isinstance(n, bool)]
        rest = [n for n in numbers if n < 0]
        if len(numbers) != len(entries) or not numbers or any(n < -1 for n in rest) or rest[1:]:
            refuse(call, f"sizes {show(sizes)} are no extents; name numbers, and -1 once at most")
        known = prod(n for n in numbers if n >= 0)
        if rest and isinstance(extent, int) and known:
            numbers = [extent // known if n < 0 else n for n in numbers]
        if prod(numbers) != extent or (rest and not known):
            refuse(call, f"axis {axis} has extent {extent}; name sizes whose product is that")
        logical = _replaced(source.logical, axis, [axis_of(n) for n in numbers])
        attrs = (("dim", (axis,)), ("sizes", tuple(numbers)))
        return self._recorder.record(
            "unflatten", logical, source.dtype, args=(source,), attrs=attrs
        )

    def cat(self, xs: Sequence[TensorView], dim: int = 0) -> TensorView:
        """Join tensors along an axis, where their extents must be numbers; types must be equal."""
        call = f"cat({show(xs)}, dim={show(dim)})"
        parts = [self._recorder.tensor(call, x) for x in self._recorder.entries(call, xs)]
        if not parts:
            refuse(call, "there is no tensor; pass one or more")
        head = parts[0]
        (axis,) = self._recorder.axes(call, [dim], head.rank)
        if any(one.dtype is not head.dtype or one.rank != head.rank for one in parts):
            have = ", ".join(f"{one} {one.dtype} of {one.rank} axes" for one in parts)
            refuse(call, f"{have}; cast or broadcast them to one form first")
        find = self._recorder.extents.find
        extents = [find(one.logical[axis].extent) for one in parts]
        sizes = [n for n in extents if isinstance(n, int)]
        if len(sizes) != len(extents):
            refuse(call, f"extents {show_shape(tuple(extents))} are not all known; pin them")
        logical = list(head.logical)
        for n in range(head.rank):
            if n == axis:
                continue
            pairs = [(head.logical[n].extent, one.logical[n].extent) for one in parts[1:]]
            ones = {find(one.logical[n].extent) == 1 for one in parts}
            if len(ones) > 1 or not self._recorder.extents.unify(pairs):
                shapes = " and ".join(show_shape(tuple(map(find, one.shape))) for one in parts)
                refuse(call, f"shapes {shapes} differ; make all but axis {axis} equal")
            logical[n] = axis_of(find(head.logical[n].extent))
        logical[axis] = axis_of(sum(sizes))
        self._recorder.check_size(call, tuple(axis.extent for axis in logical))
        attrs = (("dim", (axis,)),)
        made = tuple(parts)
        return self._recorder.record("cat", tuple(logical), head.dtype, args=made, attrs=attrs)

    def gather(self, x: TensorView, dim: int, index: TensorView) -> TensorView:
        """Take, along an axis of x, the elements that integers name.

        Parameters
        ----------
        x : TensorView
            Any dtype.
        dim : int
            The axis; a negative one counts from the end.
        index : TensorView
            i32 or i64, with as many axes as x, and extents that are equal or 1 along all but this
            one.  An index that the axis has not gives anything, but reads nothing.
        """
        call = f"gather({show(x)}, dim={show(dim)}, index={show(index)})"
        source, where = self._recorder.tensor(call, x), self._recorder.tensor(call, index)
        (axis,) = self._recorder.axes(call, [dim], source.rank)
        if not where.dtype.is_int or where.dtype is DType.I8 or where.rank != source.rank:
            have = f"{where} is {where.dtype} with {where.rank} axes"
            refuse(call, f"{have}; give i32 or i64 with the {source.rank} axes of {source}")
        find = self._recorder.extents.find
        pairs = list(zip(map(find, source.shape), map(find, where.shape), strict=True))
        both = [pair for n, pair in enumerate(pairs) if n != axis and 1 not in pair]
        if not self._recorder.extents.unify(both):
            shapes = f"{show_shape(source.shape)} and {show_shape(where.shape)}"
            refuse(call, f"shapes {shapes} differ; make all but axis {axis} equal or 1")
        logical = tuple(
            axis_of(there if n == axis or here == 1 else here)
            for n, (here, there) in enumerate(pairs)
        )
        args, attrs = (source, where), (("dim", (axis,)),)
        return self._recorder.record("gather", logical, source.dtype, args=args, attrs=attrs)

    def iota(
        self,
        extent: int | str | Symbol,
        start: Operand = 0,
        step: Operand = 1,
        dtype: str | DType = DType.I64,
    ) -> TensorView:
        """Make a tensor of one axis whose element i is start + i * step; integers wrap.

        Floats: i is converted to the dtype (f32 for 16 bits), then one product and one sum.
        """
        words = f"start={show(start)}, step={show(step)}, dtype={show(dtype)}"
        call = f"iota({show(extent)}, {words})"
        target = self._dtype(call, "iota", dtype)
        args = (self._fitting(call, start, target), self._fitting(call, step, target))
        logical = (axis_of(self._recorder.extent(call, extent)),)
        return self._recorder.record("iota", logical, target, args=args)

    def full(
        self, shape: Sequence[int | str | Symbol], value: Operand, dtype: str | DType
    ) -> TensorView:
        """Make a tensor of equal elements; f16 and bf16 values are not rounded until stored.

        Parameters
        ----------
        shape : sequence of int, str or Symbol
            As in `define_tensor`, without -1.
        value : number or Scalar
            Its kind (bool, int, float) may not be above the dtype's.
        dtype : str or DType
            Any.
        """
        call = f"full(shape={show(shape)}, value={show(value)}, dtype={show(dtype)})"
        target = self._dtype(call, "full", dtype)
        args = (self._fitting(call, value, target),)
        entries = self._recorder.entries(call, shape)
        extents = tuple(self._recorder.extent(call, entry) for entry in entries)
        self._recorder.check_size(call, extents)
        return self._recorder.record("full", tuple(map(axis_of, extents)), target, args=args)

    def _dtype(self, call: str, op: str, dtype: str | DType) -> DType:
        target = self._recorder.dtype(call, dtype)
        if target is DType.I8 or target.is_f8:
            refuse(call, f"no {target} is made from nothing; pass a tensor, or use i32 or bf16")
        if target not in OPS[op].allowed:
            refuse(call, f"{target} is not a number; use an integer or float dtype, then compare")
        return target

    def _fitting(self, call: str, value: Operand, dtype: DType) -> Scalar | Constant:
        number = self._recorder.number(call, value)
        if kind(number.dtype) > kind(dtype):
            refuse(call, f"{number} is {number.dtype}, more than {dtype} holds; use a wider dtype")
        if isinstance(number, Constant):
            self._recorder.check_fits(call, number, dtype)
        return number


def _replaced(
    logical: tuple[IterDomain, ...], axis: int, new: list[IterDomain]
) -> tuple[IterDomain, ...]:
    return (*logical[:axis], *new, *logical[axis + 1 :])
