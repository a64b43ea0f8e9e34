"""What stands in for elements which are not there, and changes nothing: zeros, minus infinity."""

from __future__ import annotations

from fuser.fusion.ir import Constant, TensorView, ancestry, tensor_args
from fuser.fusion.ops import OPS, Form

ROUNDING = frozenset({"floor", "ceil", "round", "trunc", "cast", "set"})
KEEP_ZERO = ROUNDING | {
    "abs", "neg", "sign", "relu", "sqrt", "sin", "tanh", "erf", "silu", "gelu", "gelu_tanh",
    "expm1", "log1p", "tan", "asin", "atan", "sinh",
}  # fmt: skip
OF_ZEROS = frozenset({"add", "sub", "mul", "maximum", "minimum"})
NEVER_NEGATIVE = frozenset({"abs", "relu", "sqrt"})


def unchanged_by_zeros(reduction: TensorView, source: TensorView, zeros: set[TensorView]) -> bool:
    """Tell whether a reduction of `source` is what it is if more elements of `zeros` are 0.

    Sums of zeros; and the maxima of what is never negative, of which there is an element at least.
    """
    if not is_zero_of_zeros(source, zeros):
        return False
    if reduction.op == "max":
        return source.dtype.is_float and source.op in NEVER_NEGATIVE
    return reduction.op in ("sum", "mean")


def is_zero_of_zeros(tv: TensorView, zeros: set[TensorView]) -> bool:
    """Tell whether a tensor is surely 0 where all those are."""
    found = set(zeros)
    for one in ancestry(tv):
        if one not in found and one.op != "input" and _keeps_zero(one, found):
            found.add(one)
    return tv in found


def _keeps_zero(tv: TensorView, zeros: set[TensorView]) -> bool:
    """Tell whether an operation of zeros, and of what else it takes, is 0."""
    if tv.op == "nibble":
        return tv.args[0] in zeros
    scaled = tv.op == "mul" and any(arg in zeros for arg in tv.args)
    if OPS[tv.op].form is Form.SHAPE or tv.op in KEEP_ZERO or tv.op in OF_ZEROS:
        return all(arg in zeros or (scaled and _is_finite(arg)) for arg in tv.args)
    return False


def least_is_nothing(reduction: TensorView, source: TensorView) -> TensorView | None:
    """Return the input whose elements change nothing where they are minus infinity, if any.

    Of a maximum of its elements, and of a sum of powers of how far below that they are: of rows of
    nothing else these are no numbers anyway.  None has elements of 8 bits, or is copied in such:
    registers hold those as bits, and f8e4m3 has no infinity.
    """
    below = _copied(source)
    if reduction.op == "max":
        return below if below.op == "input" and _wide(below) else None
    if reduction.op != "sum" or below.op != "exp":
        return None
    less = _copied(tensor_args(below)[0])
    if less.op != "sub" or len(tensor_args(less)) != 2:
        return None
    leaf, most = map(_copied, tensor_args(less))
    same = most.op == "max" and least_is_nothing(most, tensor_args(most)[0]) is leaf
    return leaf if same else None


def _copied(tv: TensorView) -> TensorView:
    """Return what a tensor has the elements of, in another order or type that has infinities."""
    while tv.op in ("cast", "set", "broadcast", "expand", "squeeze") and _wide(tv):
        (tv,) = tensor_args(tv)
    return tv


def _wide(tv: TensorView) -> bool:
    return tv.dtype.is_float and not tv.dtype.is_f8


def _is_finite(arg: object) -> bool:
    return isinstance(arg, Constant) and abs(arg.value) < float("inf")
