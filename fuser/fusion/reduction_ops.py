"""The reductions of ``fd.ops``: `sum`, `prod`, `mean`, `max` and `min` over some axes; `cumsum`.

The numeric contract is in `ops`.
"""

from collections.abc import Sequence

from fuser.dtype import DType
from fuser.fusion.ir import AttrValue, IterType, TensorView
from fuser.fusion.ops import ALL, FLOATS, OPS, total_dtype
from fuser.fusion.pointwise_ops import PointwiseOps
from fuser.fusion.recorder import Recording, refuse, show
from fuser.fusion.shape_ops import ShapeOps


class ReductionOps(Recording):
    """sum, prod, mean, max, min and cumsum."""

    def sum(
        self,
        x: TensorView,
        dims: Sequence[int],
        keepdim: bool = False,
        dtype: str | DType | None = None,
    ) -> TensorView:
        """Return the sum over some axes, 0 over none of their elements.

        Parameters
        ----------
        x : TensorView
            Numbers or bool.
        dims : sequence of int
            Axes to sum over; negative ones count from the end.
        keepdim : bool
            Leave an axis of extent 1 in the place of each.
        dtype : str or DType, optional
            Of the sum; left out, that of floats, and i64 of integers and bool.  It may be a wider
            float, to which x is converted first.
        """
        return self._total("sum", x, dims, keepdim=keepdim, dtype=dtype)

    def prod(
        self,
        x: TensorView,
        dims: Sequence[int],
        keepdim: bool = False,
        dtype: str | DType | None = None,
    ) -> TensorView:
        """Return the product over some axes, 1 over none of their elements; otherwise as `sum`."""
        return self._total("prod", x, dims, keepdim=keepdim, dtype=dtype)

    def _total(
        self,
        op: str,
        x: TensorView,
        dims: Sequence[int],
        *,
        keepdim: bool,
        dtype: str | DType | None,
    ) -> TensorView:
        call = f"{op}({show(x)}, dims={show(dims)}, dtype={show(dtype)})"
        source = self._recorder.tensor(call, x)
        element = self._summed(call, op, source, dtype)
        return self._reduce(call, op, source, dims, element, keepdim=keepdim)

    def cumsum(self, x: TensorView, dim: int, dtype: str | DType | None = None) -> TensorView:
        """Return the sum of all elements along an axis up to each, that one included.

        Parameters
        ----------
        x : TensorView
            Numbers or bool.
        dim : int
            The axis; a negative one counts from the end.
        dtype : str or DType, optional
            Of the sums, as of `sum`.
        """
        call = f"cumsum({show(x)}, dim={show(dim)}, dtype={show(dtype)})"
        source = self._recorder.tensor(call, x)
        (axis,) = self._recorder.axes(call, [dim], source.rank)
        element = self._summed(call, "cumsum", source, dtype)
        self._check_type(call, source)
        attrs = (("dim", (axis,)),)
        return self._recorder.record("cumsum", source.logical, element, args=(source,), attrs=attrs)

    def _summed(self, call: str, op: str, source: TensorView, dtype: str | DType | None) -> DType:
        """Return the type of sums of a tensor: `dtype`, if sums may have it."""
        plain = total_dtype(source.dtype) if source.dtype in OPS["add"].allowed else source.dtype
        element = plain if dtype is None else self._recorder.dtype(call, dtype)
        wider = {plain} if plain not in FLOATS else {plain, DType.F64}
        if plain in FLOATS and plain is not DType.F64:
            wider.add(DType.F32)
        if element not in wider and source.dtype in OPS["add"].allowed:
            known = " or ".join(d.name for d in DType if d in wider)
            refuse(call, f"{op}s of {source.dtype} are {known}; cast {source} or the {op}")
        return element

    def _check_type(self, call: str, source: TensorView) -> None:
        if source.dtype not in ALL:
            known = ", ".join(d.name for d in DType if d in ALL)
            refuse(call, f"{source} is {source.dtype}; cast to one of {known} first")

    def mean(
        self, x: TensorView, dims: Sequence[int], keepdim: bool = False, correction: int = 0
    ) -> TensorView:
        """Return the sum over some axes divided by how many elements it has; NaN of none.

        Floats only; `dims` and `keepdim` are those of `sum`.  The number of elements counts less
        `correction`, but 0 at least.
        """
        call = f"mean({show(x)}, dims={show(dims)})"
        if not isinstance(correction, int) or isinstance(correction, bool) or correction < 0:
            refuse(call, f"correction {show(correction)} is no number of elements; use 0 or 1")
        source = self._recorder.tensor(call, x)
        if source.dtype not in FLOATS:
            refuse(call, f"{source} is {source.dtype}; cast it to f32 first")
        axes = self._recorder.axes(call, dims, source.rank)
        if correction and all(source.logical[n].iter_type is IterType.BROADCAST for n in axes):
            one = self._reduce(call, "mean", source, dims, source.dtype, keepdim=keepdim)
            return PointwiseOps(self._recorder).div(one, 0)  # of one element there is none left
        attrs = (("correction", (correction,)),) if correction else ()
        return self._reduce(call, "mean", source, dims, source.dtype, attrs, keepdim=keepdim)

    def max(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Return the largest element along some axes (as `sum` has them), NaN if there is one.

        Of no elements it is -inf, or the least integer, or False.
        """
        return self._extreme("max", x, dims, keepdim=keepdim)

    def min(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Return the least element along some axes (as `sum` has them), NaN if there is one.

        Of no elements it is inf, or the largest integer, or True.
        """
        return self._extreme("min", x, dims, keepdim=keepdim)

    def _extreme(self, op: str, x: TensorView, dims: Sequence[int], *, keepdim: bool) -> TensorView:
        call = f"{op}({show(x)}, dims={show(dims)})"
        source = self._recorder.tensor(call, x)
        return self._reduce(call, op, source, dims, source.dtype, keepdim=keepdim)

    def _reduce(
        self,
        call: str,
        op: str,
        source: TensorView,
        dims: Sequence[int],
        dtype: DType,
        attrs: tuple[tuple[str, AttrValue], ...] = (),
        *,
        keepdim: bool,
    ) -> TensorView:
        self._check_type(call, source)
        axes = tuple(sorted(self._recorder.axes(call, dims, source.rank)))
        if not axes:
            refuse(call, "no axis is named; name one in dims, or use set")
        logical = tuple(axis for n, axis in enumerate(source.logical) if n not in axes)
        said = (("dims", axes), *attrs)
        made = self._recorder.record(op, logical, dtype, args=(source,), attrs=said)
        if not keepdim:
            return made
        flags = [axis in axes for axis in range(source.rank)]
        wide = ShapeOps(self._recorder).broadcast(made, flags)
        return self._recorder.stands_for(wide, made)
