"""How element types combine: torch's rules, with weak numbers.

Tensors promote among themselves; a number (a Python literal or an input Scalar) changes the
result only if its kind (bool < int < float) is higher, and then to i64 or f32.
"""

from collections.abc import Iterable

from fuser.dtype import DType

_BOOL, _INT, _FLOAT = range(3)

_OF_KIND = {_BOOL: DType.BOOL, _INT: DType.I64, _FLOAT: DType.F32}
"""What a number alone makes of each kind; f32 is torch's default dtype."""

_WIDTH = {
    DType.I8: 0,
    DType.I32: 1,
    DType.I64: 2,
    DType.F8E4M3: -1,
    DType.F8E5M2: -1,
    DType.F16: 0,
    DType.BF16: 0,
    DType.F32: 1,
    DType.F64: 2,
}


def kind(dtype: DType) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats."""
    if dtype.is_float:
        return _FLOAT
    return _INT if dtype.is_int else _BOOL


def join(a: DType, b: DType) -> DType:
    """Return torch's result type of two tensors; f16 with bf16 gives f32."""
    if a is b:
        return a
    if kind(a) != kind(b):
        return max(a, b, key=kind)
    if _WIDTH[a] == _WIDTH[b]:
        return DType.F32
    return max(a, b, key=_WIDTH.__getitem__)


def promote(tensors: Iterable[DType], numbers: Iterable[DType]) -> DType:
    """Return the common type of tensors and weak numbers, as `torch.result_type` does."""
    result: DType | None = None
    for dtype in tensors:
        result = dtype if result is None else join(result, dtype)
    for dtype in numbers:
        if result is None or kind(dtype) > kind(result):
            result = _OF_KIND[kind(dtype)]
    if result is None:
        raise ValueError("promote: give at least one dtype")
    return result


def as_float(dtype: DType) -> DType:
    """Return `dtype`, or f32 for integers and bool."""
    return dtype if dtype.is_float else DType.F32


def arithmetic(dtype: DType) -> DType:
    """Return the type in which values of `dtype` are computed: f32 for f16 and bf16."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype
