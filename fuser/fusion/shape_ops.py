"""The operations of ``fd.ops`` that change axes, and those that make tensors from nothing.

None of them computes, so none of them rounds, except that `iota` of floats is a product and a sum.
"""

from collections.abc import Sequence

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
    """broadcast, expand, squeeze, permute; iota and full."""

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
