"""Functions of ``fd.ops`` that record several operations of the table: activations, norms, losses.

Results, types and special values are torch's; what each operation rounds is said in `ops`.  Sums
and statistics of 16 bits are kept in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Literal, ParamSpec, TypeVar

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.ir import MAX_EXTENT, Extent, Symbol, TensorView, show_shape, tensor_args
from fuser.fusion.pointwise_ops import PointwiseOps
from fuser.fusion.recorder import Operand, show
from fuser.fusion.reduction_ops import ReductionOps
from fuser.fusion.shape_ops import ShapeOps

P = ParamSpec("P")
R = TypeVar("R")
Stats = tuple[TensorView, TensorView]
Three = tuple[TensorView, TensorView, TensorView]
Mean = Literal["mean", "sum", "none"]

_HALF = 2**32
_WIDE = (DType.F64, DType.I64)
"""Types that leave no room for an index beside them in 64 bits."""


def composed(method: Callable[P, R]) -> Callable[P, R]:
    """Let errors of the recorded operations begin with the call that the user wrote."""

    @wraps(method)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except FusionError as error:
            words = [show(arg) for arg in args[1:]]
            words += [f"{key}={show(value)}" for key, value in kwargs.items()]
            raise FusionError(f"{method.__name__}({', '.join(words)}): {error}") from None

    return named


class Compositions(PointwiseOps, ShapeOps, ReductionOps):
    """Activations, statistics, softmax, norms with backward, and losses."""

    # --- activations ----------------------------------------------------------------------

    @composed
    def softplus(self, x: TensorView, beta: float = 1.0, threshold: float = 20.0) -> TensorView:
        """Return log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold."""
        scaled = self.mul(_floats(x), beta)
        soft = self.div(self.log1p(self.exp(scaled)), beta)
        return self.where(self.gt(scaled, threshold), x, soft)

    @composed
    def leaky_relu(self, x: TensorView, slope: float = 0.01) -> TensorView:
        """Return x above 0, else slope * x; NaN stays NaN."""
        return self.where(self.gt(x, 0), x, self.mul(x, slope))

    @composed
    def elu(self, x: TensorView, alpha: float = 1.0) -> TensorView:
        """Return x above 0, else alpha * (exp(x) - 1)."""
        return self.where(self.gt(_floats(x), 0), x, self.mul(self.expm1(x), alpha))

    @composed
    def hardtanh(self, x: TensorView, min: float = -1.0, max: float = 1.0) -> TensorView:
        """Return x, not below min and not above max."""
        return self.clamp(x, min, max)

    @composed
    def tril(self, x: TensorView, diagonal: int = 0) -> TensorView:
        """Keep what is on or below a diagonal of the last two axes; 0 elsewhere."""
        row, column = self._indices(x)
        return self.where(self.le(column, self.add(row, diagonal)), x, _zero(x))

    @composed
    def triu(self, x: TensorView, diagonal: int = 0) -> TensorView:
        """Keep what is on or above a diagonal of the last two axes; 0 elsewhere."""
        row, column = self._indices(x)
        return self.where(self.ge(column, self.add(row, diagonal)), x, _zero(x))

    # --- statistics -----------------------------------------------------------------------

    @composed
    def any(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Tell whether some element along axes is not 0, as bool; NaN is not 0."""
        return self.max(self._flags(x), dims, keepdim)

    @composed
    def all(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Tell whether no element along axes is 0, as bool."""
        return self.min(self._flags(x), dims, keepdim)

    @composed
    def amax(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Return `max`."""
        return self.max(x, dims, keepdim)

    @composed
    def amin(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Return `min`."""
        return self.min(x, dims, keepdim)

    @composed
    def argmax(self, x: TensorView, dim: int, keepdim: bool = False) -> TensorView:
        """Return where the largest element along an axis is first, as i64; NaN is the largest.

        Of no elements, which torch refuses, the result is no index.
        """
        return self._where_first("max", x, dim, keepdim=keepdim)

    @composed
    def argmin(self, x: TensorView, dim: int, keepdim: bool = False) -> TensorView:
        """Return where the least element along an axis is first, as i64; NaN is the least."""
        return self._where_first("min", x, dim, keepdim=keepdim)

    @composed
    def var(
        self, x: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False
    ) -> TensorView:
        """Return the mean square distance from the mean, of so many elements less `correction`."""
        return self.var_mean(x, dims, correction, keepdim)[0]

    @composed
    def var_mean(
        self, x: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False
    ) -> Stats:
        """Return variance and mean; the mean is known before distances from it are added up."""
        mean = self.mean(x, dims, keepdim=True)
        off = self.sub(x, mean)
        var = self.mean(self.mul(off, off), dims, keepdim, correction)
        return var, mean if keepdim else self.squeeze(mean, dims)

    @composed
    def std(
        self, x: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False
    ) -> TensorView:
        """Return the root of the variance."""
        return self.sqrt(self.var(x, dims, correction, keepdim))

    @composed
    def logsumexp(self, x: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView:
        """Return log(sum(exp(x))) over some axes, without overflow on the way; -inf of nothing."""
        most = self.max(_floats(x), dims, keepdim=True)
        most = self.where(self.isinf(most), 0.0, most)
        total = self.sum(self.exp(self.sub(x, most)), dims, keepdim=True)
        made = self.add(self.log(total), most)
        return made if keepdim else self.squeeze(made, dims)

    # --- softmax --------------------------------------------------------------------------

    @composed
    def softmax(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        """Return exp(x) / sum(exp(x)) along axes, the largest element subtracted first."""
        off = self.sub(x, self.max(_floats(x), dims, keepdim=True))
        each = self.exp(off)
        return self.div(each, self.sum(each, dims, keepdim=True))

    @composed
    def log_softmax(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        """Return log(softmax(x)), without overflow or underflow on the way."""
        off = self.sub(x, self.max(_floats(x), dims, keepdim=True))
        return self.sub(off, self.log(self.sum(self.exp(off), dims, keepdim=True)))

    @composed
    def softmax_backward(self, dy: TensorView, y: TensorView, dims: Sequence[int]) -> TensorView:
        """Return the gradient of what y is the softmax of."""
        part = self.mul(dy, y)
        return self.sub(part, self.mul(y, self.sum(part, dims, keepdim=True)))

    @composed
    def log_softmax_backward(
        self, dy: TensorView, y: TensorView, dims: Sequence[int]
    ) -> TensorView:
        """Return the gradient of what y is the log_softmax of."""
        return self.sub(dy, self.mul(self.exp(y), self.sum(dy, dims, keepdim=True)))

    # --- norms ----------------------------------------------------------------------------

    @composed
    def layer_norm(
        self,
        x: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
        bias: TensorView | None = None,
        eps: float = 1e-5,
    ) -> TensorView:
        """Return (x - mean) / sqrt(var + eps) * weight + bias in the type of x.

        Parameters
        ----------
        x : TensorView
            Floats.
        axes : sequence of int
            Axes over which mean and variance are taken.
        weight, bias : TensorView, optional
            With those axes alone, in the order of x.
        eps : float
            Added to the variance.
        """
        return self.native_layer_norm(x, axes, weight, bias, eps)[0]

    @composed
    def native_layer_norm(
        self,
        x: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
        bias: TensorView | None = None,
        eps: float = 1e-5,
    ) -> Three:
        """Return `layer_norm`, and mean and 1 / sqrt(var + eps) in f32 (f64) with axes of 1."""
        var, mean = self.var_mean(x, axes, 0, True)
        rstd = self.rsqrt(self.add(var, eps))
        made = self.mul(self.sub(x, mean), rstd)
        if weight is not None:
            made = self.mul(made, self._along(weight, x, axes))
        if bias is not None:
            made = self.add(made, self._along(bias, x, axes))
        return self._like(made, x), self._kept(mean), self._kept(rstd)

    @composed
    def layer_norm_backward(
        self,
        dy: TensorView,
        x: TensorView,
        mean: TensorView,
        rstd: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
    ) -> Three:
        """Return the gradients of x, weight and bias, from what `native_layer_norm` returned."""
        normal = self.mul(self.sub(_floats(x), mean), rstd)
        grown = dy if weight is None else self.mul(dy, self._along(weight, x, axes))
        along = self.mul(normal, self.mean(self.mul(grown, normal), axes, keepdim=True))
        off = self.sub(self.sub(grown, self.mean(grown, axes, keepdim=True)), along)
        dx = self._like(self.mul(off, rstd), x)
        return dx, self._rest(self.mul(dy, normal), dy, axes), self._rest(dy, dy, axes)

    @composed
    def rms_norm(
        self,
        x: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
        eps: float | None = None,
    ) -> TensorView:
        """Return x / sqrt(mean(x * x) + eps) * weight; arguments are those of `layer_norm`."""
        return self.native_rms_norm(x, axes, weight, eps)[0]

    @composed
    def native_rms_norm(
        self,
        x: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
        eps: float | None = None,
    ) -> Stats:
        """Return `rms_norm`, and 1 / sqrt(mean(x * x) + eps) in f32 (f64) with axes of 1."""
        square = self.mean(self.mul(_floats(x), x), axes, keepdim=True)
        last = 2.0**-52 if x.dtype is DType.F64 else 2.0**-23  # that of the type of arithmetic
        rstd = self.rsqrt(self.add(square, last if eps is None else eps))
        made = self.mul(x, rstd)
        if weight is not None:
            made = self.mul(made, self._along(weight, x, axes))
        return self._like(made, x), self._kept(rstd)

    @composed
    def rms_norm_backward(
        self,
        dy: TensorView,
        x: TensorView,
        rstd: TensorView,
        axes: Sequence[int],
        weight: TensorView | None = None,
    ) -> Stats:
        """Return the gradients of x and weight, from what `native_rms_norm` returned."""
        normal = self.mul(_floats(x), rstd)
        grown = dy if weight is None else self.mul(dy, self._along(weight, x, axes))
        along = self.mul(normal, self.mean(self.mul(grown, normal), axes, keepdim=True))
        dx = self._like(self.mul(self.sub(grown, along), rstd), x)
        return dx, self._rest(self.mul(dy, normal), dy, axes)

    @composed
    def group_norm(
        self,
        x: TensorView,
        groups: int,
        weight: TensorView | None = None,
        bias: TensorView | None = None,
        eps: float = 1e-5,
    ) -> TensorView:
        """Normalise each of so many groups of channels (axis 1, of known extent) with what follows.

        `weight` and `bias` have one element for each channel.
        """
        return self.native_group_norm(x, groups, weight, bias, eps)[0]

    @composed
    def native_group_norm(
        self,
        x: TensorView,
        groups: int,
        weight: TensorView | None = None,
        bias: TensorView | None = None,
        eps: float = 1e-5,
    ) -> Three:
        """Return `group_norm`, and mean and 1 / sqrt(var + eps) of each group, in f32 (f64)."""
        wide = self.unflatten(_floats(x), 1, [groups, -1])
        inner = [*range(2, wide.rank)]
        made, *stats = self.native_layer_norm(wide, inner, None, None, eps)
        if weight is not None:
            made = self.mul(made, self._channels(weight, wide, groups))
        if bias is not None:
            made = self.add(made, self._channels(bias, wide, groups))
        mean, rstd = (self.squeeze(one, inner) for one in stats)
        return self.flatten(self._like(made, x), 1, 2), mean, rstd

    @composed
    def group_norm_backward(
        self,
        dy: TensorView,
        x: TensorView,
        mean: TensorView,
        rstd: TensorView,
        groups: int,
        weight: TensorView | None = None,
    ) -> Three:
        """Return the gradients of x, weight and bias, from what `native_group_norm` returned."""
        wide, grown = (self.unflatten(one, 1, [groups, -1]) for one in (_floats(x), dy))
        inner, rest = [*range(2, wide.rank)], [n for n in range(wide.rank) if n not in (1, 2)]
        flags = [n > 1 for n in range(wide.rank)]
        mean, rstd = (self.broadcast(one, flags) for one in (mean, rstd))
        normal = self.mul(self.sub(wide, mean), rstd)
        parts = [self.sum(one, rest) for one in (self.mul(grown, normal), grown)]
        dw, db = (self._like(self.flatten(one, 0, 1), x) for one in parts)
        if weight is not None:
            grown = self.mul(grown, self._channels(weight, wide, groups))
        along = self.mul(normal, self.mean(self.mul(grown, normal), inner, keepdim=True))
        off = self.sub(self.sub(grown, self.mean(grown, inner, keepdim=True)), along)
        return self.flatten(self._like(self.mul(off, rstd), x), 1, 2), dw, db

    # --- random numbers -------------------------------------------------------------------

    @composed
    def rand(
        self, shape: Sequence[int], seed: Operand, offset: Operand = 0, sms: int = SM_90A.sms
    ) -> TensorView:
        """Return the f32 numbers in [0, 1) of torch.rand on a GPU of so many multiprocessors.

        Parameters
        ----------
        shape : sequence of int
            Known extents.
        seed, offset : int or i64 Scalar
            Of torch's generator: ``torch.cuda.manual_seed(seed)`` sets the offset to 0, and every
            call moves it on.
        sms : int
            As many streams there are at most, in units of 2048.

        Notes
        -----
        Source: ATen/native/cuda/DistributionTemplates.h, curand_uniform.h.
        """
        extents = [self._recorder.extent("shape", n) for n in _entries(shape)]
        streams = _streams(_many(extents), sms)
        index = self._element(extents)
        place = self.add(self.floor_div(index, streams), offset)
        made = self._uniform(self.philox(seed, self.remainder(index, streams), place))
        return self.where(self.eq(made, 1.0), 0.0, made)

    @composed
    def dropout(
        self, x: TensorView, p: float, seed: Operand, offset: Operand = 0, sms: int = SM_90A.sms
    ) -> Stats:
        """Return x, with probability p 0 and else divided by 1 - p; and where it is kept, as bool.

        Of floats of known extents, four of which are neighbours in memory, the choice is that of
        torch.native_dropout, a thread of which has 16 bytes at a time (of 16 bits 8 in older
        versions); arguments are those of `rand`.

        Notes
        -----
        Source: ATen/native/cuda/Dropout.cu, fused_dropout_kernel_vec and get_vector_size.
        """
        extents = [self._recorder.extents.find(n) for n in _floats(x).shape]
        if not isinstance(p, int | float) or not 0 <= p < 1:
            raise FusionError(f"p={show(p)} is no probability below 1; use one")
        many = _many(extents)
        if many % 4:
            raise FusionError(f"{x} has {many} elements, four are drawn at once; use a multiple")
        index = self._element(extents)
        each = 16 // x.dtype.nbytes if many % 8 == 0 else min(16 // x.dtype.nbytes, 4)
        vector, streams = self.floor_div(index, each), _streams(many, sms)
        turn = self.mul(self.floor_div(vector, streams), max(each, 4))
        place = self.add(self.add(turn, self.bitwise_and(index, each - 1)), offset)
        bits = self.philox(seed, self.remainder(vector, streams), place)
        kept = self.lt(self._uniform(bits), 1 - p)
        scale = self.reciprocal(self.full([1] * x.rank, 1 - p, DType.F32))
        made = self.mul(self.mul(x, self.cast(kept, DType.F32)), scale)
        return self._like(made, x), kept

    # --- parts of tensors -----------------------------------------------------------------

    @composed
    def select(self, x: TensorView, dim: int, index: int) -> TensorView:
        """Take what has one index along an axis, and drop the axis."""
        if not _whole(index):
            raise FusionError(f"index {show(index)} is no whole number; use one")
        one = self.slice(x, dim, index, None if index == -1 else index + 1)
        return self.squeeze(one, [dim])

    @composed
    def index_select(self, x: TensorView, dim: int, index: TensorView) -> TensorView:
        """Take what has the indices of a vector along an axis, in their order."""
        (axis,) = self._recorder.axes("index_select", [dim], _tensor(x).rank)
        if _tensor(index).rank != 1:
            raise FusionError(f"{index} has {index.rank} axes; give a vector of integers")
        flags = [n != axis for n in range(x.rank)]
        return self.gather(x, axis, self.broadcast(index, flags))

    @composed
    def embedding(self, index: TensorView, weight: TensorView) -> TensorView:
        """Take the rows of a matrix that integers name; the columns become the last axis."""
        rank = _tensor(index).rank
        if _tensor(weight).rank != 2 or not rank:
            raise FusionError(
                f"{weight} has {weight.rank} axes; give a matrix, and indices in a list"
            )
        rows = self.broadcast(weight, [True] * (rank - 1) + [False, False])
        return self.gather(rows, rank - 1, self.broadcast(index, [False] * rank + [True]))

    @composed
    def unpack(self, x: TensorView) -> TensorView:
        """Return the signed numbers of 4 bits of bytes, as i8: two along the last axis for each.

        Parameters
        ----------
        x : TensorView
            i8, whose last extent is a number.  The lower 4 bits of a byte come first.

        A product reads the bytes where it multiplies (`MatmulParams.prologue`).
        """
        if _tensor(x).dtype is not DType.I8 or not x.rank:
            have = f"{x} is {x.dtype} with {x.rank} axes"
            raise FusionError(f"{have}; pass bytes: i8 with an axis or more")
        last = [False] * x.rank + [True]
        which = self.broadcast(self.iota(2, dtype=DType.I32), [True] * x.rank + [False])
        both = self.nibble(self.cast(self.broadcast(x, last), DType.I32), which)
        return self.flatten(self.cast(both, DType.I8), x.rank - 1)

    @composed
    def repeat_interleave(self, x: TensorView, many: int, dim: int) -> TensorView:
        """Repeat each element along an axis, one behind the other, so many times.

        Such as a number for each group of weights; a product reads it where it multiplies.
        """
        (axis,) = self._recorder.axes("repeat_interleave", [dim], _tensor(x).rank)
        if not _whole(many) or many < 1:
            raise FusionError(f"many {show(many)} is no count; use a number of 1 or more")
        flags = [n == axis + 1 for n in range(x.rank + 1)]
        shape = [many if new else -1 for new in flags]
        return self.flatten(self.expand(self.broadcast(x, flags), shape), axis, axis + 1)

    @composed
    def flip(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        """Turn the order of elements along axes, whose extents must be numbers."""
        axes = self._recorder.axes("flip", dims, _tensor(x).rank)
        for axis in axes:
            self._known(x, axis)
        made = x
        for some in self._at_once(x, axes):
            lines = {
                axis: self.iota(self._known(x, axis), self._known(x, axis) - 1, -1)
                if axis in axes
                else self.iota(self._known(x, axis))
                for axis in some
            }
            made = self._taken(made, lines)
        return made

    @composed
    def reshape(self, x: TensorView, shape: Sequence[int]) -> TensorView:
        """Give a tensor other axes with as many elements, in the same order.

        Parameters
        ----------
        x : TensorView
            Any dtype.
        shape : sequence of int
            Extents, or -1 for one that follows from the others.  Extents of x that are not known
            stay: give ``x.logical[i].extent`` in their place.
        """
        find = self._recorder.extents.find
        old = [find(n) for n in _tensor(x).shape]
        new = [n if n == -1 else self._recorder.extent("reshape", n) for n in _entries(shape)]
        if new.count(-1) == 1:
            left, right = list(old), [n for n in new if n != -1]
            for n in [n for n in right if n in left]:
                left.remove(n)
                right.remove(n)
            many, known = (prod(n for n in side if isinstance(n, int)) for side in (left, right))
            if known and not any(isinstance(n, Symbol) for n in (*left, *right)):
                new[new.index(-1)] = many // known
        thin = [n for n, extent in enumerate(old) if extent == 1]
        made = self.squeeze(x, thin) if thin else x
        old, real = [n for n in old if n != 1], [n for n in new if n != 1]
        groups = _regrouped(old, real)
        for axis, (many, _) in enumerate(groups):
            made = self.flatten(made, axis, axis + many - 1) if many > 1 else made
        place = 0
        for _, into in groups:
            made = self.unflatten(made, place, into) if len(into) > 1 else made
            place += max(len(into), 1)
        ones = [n == 1 for n in new]
        return self.broadcast(made, ones) if any(ones) else made

    @composed
    def pad(self, x: TensorView, pads: Sequence[int], value: Operand | None = None) -> TensorView:
        """Put a number before and behind the elements of the last axes.

        Parameters
        ----------
        x : TensorView
            Any dtype that computes; padded axes have known extents.
        pads : sequence of int
            How many before and behind along the last axis, then along the one before, and so on;
            negative ones take away.
        value : number, optional
            What stands there; left out, 0.
        """
        many = _entries(pads)
        if len(many) % 2 or len(many) > 2 * _tensor(x).rank or not all(map(_whole, many)):
            raise FusionError(f"{x} has {x.rank} axes; give two whole numbers for each of the last")
        made, filler = x, _zero(x) if value is None else value
        ends: dict[int, tuple[int, int]] = {}
        for nth in range(len(many) // 2):
            axis = x.rank - 1 - nth
            before, behind = many[2 * nth], many[2 * nth + 1]
            if before < 0 or behind < 0:
                made = self.slice(made, axis, max(-before, 0), min(behind, 0) or None)
            if before > 0 or behind > 0:
                self._known(x, axis)
                ends[axis] = max(before, 0), max(behind, 0)
        if ends and _lies(made):
            some = next(iter(self._at_once(made, tuple(ends))))
            made = self._widened(made, {axis: ends.pop(axis, (0, 0)) for axis in some}, filler)
        for axis, pair in ends.items():
            made = self._surrounded(made, axis, pair, filler)
        return made if made is not x else self.set(x)

    # --- losses ---------------------------------------------------------------------------

    @composed
    def cross_entropy(
        self,
        x: TensorView,
        target: TensorView,
        reduction: Mean = "mean",
        ignore_index: int = -100,
    ) -> TensorView:
        """Return -log(softmax(x)) at the class that `target` names.

        Parameters
        ----------
        x : TensorView
            Floats; classes along axis 1, or axis 0 of one.
        target : TensorView
            Integers, the axes of x without that one.  No class may be outside of x.
        reduction : {"mean", "sum", "none"}
            Of the losses that count: their mean, their sum, or each, 0 for those that do not.
        ignore_index : int
            A class that does not count.
        """
        axis, hit, counts = self._classes(x, target, ignore_index)
        taken = self.sum(self.where(hit, x, 0.0), [axis], keepdim=True)
        each = self.where(counts, self.sub(self.logsumexp(x, [axis], True), taken), 0.0)
        each = self.squeeze(each, [axis])
        if _reduction(reduction) == "none" or not each.rank:
            return each
        total = self.sum(each, [*range(each.rank)])
        return total if reduction == "sum" else self.div(total, self._many(counts, x))

    @composed
    def cross_entropy_backward(
        self,
        dy: TensorView,
        x: TensorView,
        target: TensorView,
        reduction: Mean = "mean",
        ignore_index: int = -100,
    ) -> TensorView:
        """Return the gradient of x; dy is that of what `cross_entropy` returned."""
        axis, hit, counts = self._classes(x, target, ignore_index)
        if _reduction(reduction) == "none":
            wide = self.broadcast(dy, [n == axis for n in range(x.rank)])
        else:
            wide = self.broadcast(dy, [True] * (x.rank - dy.rank) + [False] * dy.rank)
            if reduction == "mean":
                many = self._many(counts, x)
                wide = self.div(wide, self.broadcast(many, [True] * x.rank))
        share = self.sub(self.softmax(x, [axis]), self.cast(hit, x.dtype))
        return self._like(self.mul(share, self.where(counts, wide, 0.0)), x)

    # --- parts ----------------------------------------------------------------------------

    def _flags(self, x: TensorView) -> TensorView:
        return x if _tensor(x).dtype is DType.BOOL else self.ne(x, 0)

    def _index(self, x: TensorView, axis: int) -> TensorView:
        """Return the place of each element along an axis, the others being 1."""
        line = self.iota(_tensor(x).logical[axis].extent)
        return self.broadcast(line, [n != axis for n in range(x.rank)])

    def _element(self, extents: list[Extent]) -> TensorView:
        """Return the place of each element among all, in row-major order."""
        rank = len(extents)
        made = self.full([1] * rank, 0, DType.I64)
        for axis in reversed(range(rank)):
            line = self.iota(extents[axis], 0, _many(extents[axis + 1 :]))
            made = self.add(made, self.broadcast(line, [n != axis for n in range(rank)]))
        return made

    def _uniform(self, bits: TensorView) -> TensorView:
        """Return numbers above 0, 1 the largest, of 32 random bits."""
        return self.add(self.mul(self.cast(bits, DType.F32), 2.0**-32), 2.0**-33)

    def _indices(self, x: TensorView) -> Stats:
        if _tensor(x).rank < 2:
            raise FusionError(f"{x} has {x.rank} axes; give it two or more")
        return self._index(x, x.rank - 2), self._index(x, x.rank - 1)

    def _where_first(self, op: str, x: TensorView, dim: int, *, keepdim: bool) -> TensorView:
        """Reduce keys whose upper half orders like x, and whose lower half counts down."""
        (axis,) = self._recorder.axes(f"arg{op}", [dim], _tensor(x).rank)
        if x.logical[axis].extent == 0:
            raise FusionError(f"axis {axis} has extent 0, there is nothing to find; use 1 or more")
        index = self._index(x, axis)
        if x.dtype in _WIDE:
            if x.op != "input" and x.dtype.is_float:
                raise FusionError(
                    f"{x} is computed in f64, perhaps anew in each kernel; cast it to f32 first"
                )
            best = (self.max if op == "max" else self.min)(x, [axis], keepdim=True)
            hit = self.logical_or(self.eq(x, best), self.isnan(x))
            return self.min(self.where(hit, index, 2**63 - 1), [axis], keepdim)
        rank = self.order(x)
        if op == "min":  # NaN stays above all
            turned = self.bitwise_not(rank)
            rank = self.where(self.isnan(x), rank, turned) if x.dtype.is_float else turned
        key = self.add(self.mul(rank, _HALF), self.sub(_HALF - 1, index))
        return self.bitwise_and(self.bitwise_not(self.max(key, [axis], keepdim)), _HALF - 1)

    def _widened(
        self, x: TensorView, ends: dict[int, tuple[int, int]], filler: Operand
    ) -> TensorView:
        """Take elements of a tensor in memory where it has some, a number elsewhere.

        `ends` are how many there are before and behind, by axis.
        """
        lines, within = {}, []
        for axis, (before, behind) in ends.items():
            extent = self._known(x, axis)
            lines[axis] = self.iota(before + extent + behind, -before)
            place = self.broadcast(lines[axis], [n != axis for n in range(x.rank)])
            within += [self.ge(place, 0)] if before else []
            within += [self.lt(place, extent)] if behind else []
        inside = within[0]
        for other in within[1:]:
            inside = self.logical_and(inside, other)
        return self.where(inside, self._taken(x, lines), filler)

    def _surrounded(
        self, x: TensorView, axis: int, ends: tuple[int, int], filler: Operand
    ) -> TensorView:
        """Put what is computed where it belongs, and a number before and behind it."""

        def some(extent: int) -> list[TensorView]:
            shape = [extent if n == axis else x.shape[n] for n in range(x.rank)]
            return [self.full(shape, filler, x.dtype)] if extent else []

        before, behind = ends
        return self.cat([*some(before), x, *some(behind)], axis)

    def _taken(self, x: TensorView, lines: dict[int, TensorView]) -> TensorView:
        """Take the elements of neighbouring axes that stand at these places along each."""
        first, last = min(lines), max(lines)
        index = [
            self.broadcast(lines[axis], [n != axis for n in range(x.rank)])
            for axis in range(first, last + 1)
        ]
        place, span = index.pop(), 1
        for axis in reversed(range(first, last)):
            span *= self._known(x, axis + 1)
            place = self.add(self.mul(index.pop(), span), place)
        if first < last:
            flat = self.flatten(x, first, last)
            x = self.broadcast(flat, [first <= n < last for n in range(x.rank)])
        return self.gather(x, last, place)

    def _at_once(self, x: TensorView, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Part axes into those along which elements are taken at once.

        That is all, and those between them, where they lie in memory as one axis.
        """
        every = tuple(range(min(axes, default=0), max(axes, default=-1) + 1))
        known = [self._recorder.extents.find(x.logical[axis].extent) for axis in every]
        numbers = [n for n in known if isinstance(n, int) and n]
        together = len(numbers) == len(known) and prod(numbers) <= MAX_EXTENT
        if x.op == "input" and x.is_row_major and together:
            return [every] if every else []
        return [(axis,) for axis in axes]

    def _known(self, x: TensorView, axis: int) -> int:
        """Return the extent of an axis, which must be a number."""
        extent = self._recorder.extents.find(x.logical[axis].extent)
        if isinstance(extent, Symbol):
            raise FusionError(f"axis {axis} has extent {extent}; pin it to a number")
        return extent

    def _along(self, part: TensorView, x: TensorView, axes: Sequence[int]) -> TensorView:
        """Give a weight the axes of x, 1 where it has none."""
        kept = self._recorder.axes("axes", axes, x.rank)
        if _tensor(part).rank != len(kept):
            raise FusionError(f"{part} has {part.rank} axes, {len(kept)} are named; give it those")
        return self.broadcast(part, [n not in kept for n in range(x.rank)])

    def _channels(self, part: TensorView, wide: TensorView, groups: int) -> TensorView:
        """Give a weight of channels the axes of x with these in groups."""
        flags = [n not in (1, 2) for n in range(wide.rank)]
        return self.broadcast(self.unflatten(part, 0, [groups, -1]), flags)

    def _rest(self, part: TensorView, like: TensorView, axes: Sequence[int]) -> TensorView:
        """Add up what a weight was spread over."""
        kept = self._recorder.axes("axes", axes, _tensor(like).rank)
        rest = [n for n in range(like.rank) if n not in kept]
        made = self.sum(part, rest) if rest else part
        return self._like(made, like) if made is not like else self.set(made)

    def _like(self, made: TensorView, x: TensorView) -> TensorView:
        return made if made.dtype is x.dtype else self.cast(made, x.dtype)

    def _kept(self, stat: TensorView) -> TensorView:
        return self.cast(stat, DType.F32) if stat.dtype.nbytes == 2 else stat

    def _classes(
        self, x: TensorView, target: TensorView, ignore_index: int
    ) -> tuple[int, TensorView, TensorView]:
        """Return the axis of classes, where the class named is, and what counts."""
        axis = 1 if _floats(x).rank > 1 else 0
        if not _tensor(target).dtype.is_int or x.rank != target.rank + 1:
            raise FusionError(
                f"{target} is {target.dtype} with {target.rank} axes; name classes by integers, "
                f"with the {x.rank - 1} other axes of {x}"
            )
        wide = self.broadcast(target, [n == axis for n in range(x.rank)])
        return axis, self.eq(wide, self._index(x, axis)), self.ne(wide, ignore_index)

    def _many(self, counts: TensorView, x: TensorView) -> TensorView:
        return self.cast(self.sum(counts, [*range(counts.rank)]), x.dtype)


def _streams(many: int, sms: object) -> int:
    """Return the threads that torch launches for so many elements: CTAs of 256, 8 of them an SM."""
    if not isinstance(sms, int) or isinstance(sms, bool) or not 0 < sms < _HALF:
        raise FusionError(f"sms={show(sms)} is no number of multiprocessors; use 1 or more")
    return 256 * max(1, min(-(-many // 256), 8 * sms))


def _tensor(x: object) -> TensorView:
    if not isinstance(x, TensorView):
        raise FusionError(f"{show(x)} is not a tensor; pass one of this definition")
    return x


def _floats(x: TensorView) -> TensorView:
    if not _tensor(x).dtype.is_float or x.dtype.is_f8:
        raise FusionError(f"{x} is {x.dtype}; cast it to f32 first")
    return x


def _entries(values: object) -> list[int]:
    if not isinstance(values, list | tuple):
        raise FusionError(f"{show(values)} is not a list; write it as [...]")
    return list(values)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _regrouped(old: list[Extent], new: list[Extent]) -> list[tuple[int, list[int]]]:
    """Return how many neighbouring axes become which: as few as have as many elements."""
    out: list[tuple[int, list[int]]] = []
    left, right = list(old), list(new)
    while left or right:
        mine, theirs = left[:1], right[:1]
        del left[:1], right[:1]
        while mine != theirs and _many(mine) != _many(theirs):
            side, rest = (mine, left) if _many(mine) < _many(theirs) else (theirs, right)
            if not rest:
                raise FusionError(
                    f"shape {show_shape(tuple(new))} has not the elements of "
                    f"{show_shape(tuple(old))} in groups of neighbours; use as many"
                )
            side.append(rest.pop(0))
        out.append((len(mine), [n for n in theirs if isinstance(n, int)]))
    return out


def _many(extents: list[Extent]) -> int:
    unknown = [n for n in extents if isinstance(n, Symbol)]
    if unknown:
        raise FusionError(f"extent {unknown[0]} is not known where axes change; pin it to a number")
    return prod(n for n in extents if isinstance(n, int))


def _lies(x: TensorView) -> bool:
    """Tell whether a tensor is an input, or a part of one."""
    while x.op in ("slice", "permute", "squeeze", "broadcast"):
        (x,) = tensor_args(x)
    return x.op == "input"


def _zero(x: TensorView) -> Operand:
    return False if x.dtype is DType.BOOL else 0


def _reduction(reduction: object) -> object:
    if reduction not in ("mean", "sum", "none"):
        raise FusionError(f'there is no reduction {show(reduction)}; use "mean", "sum" or "none"')
    return reduction
