"""A Fusion evaluated by torch on the CPU: values in f64, integers and bool exact, errors beside.

It follows the numeric contract in the docstring of `fuser.fusion.ops`; `rows` has one row per
operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fuser.dtype import DType
from fuser.fusion.definition import Constant, Fusion, Scalar, Symbol, TensorView
from fuser.fusion.ir import tensor_args
from fuser.fusion.ops import OPS, operand_dtypes
from oracles.reference.estimate import (
    TORCH,
    ZERO,
    Estimate,
    convert,
    rounded,
    rounded_or_not,
)
from oracles.reference.products import Partials, multiply_sum
from oracles.reference.rows import ROWS
from oracles.reference.sums import SUMS


@dataclass(frozen=True, eq=False, slots=True)
class Expected:
    """One output, as a kernel that obeys the numeric contract may return it.

    Parameters
    ----------
    value : torch.Tensor
        f64 for float dtypes, i64 for integers, bool for bool; on the CPU.
    bound : torch.Tensor
        f64, same shape: largest right deviation from `value`, integers included; 0 where only
        `value`, rounded to `dtype`, is right.  Meaningless where `value` is inf or NaN: the class
        must agree there.
    undecided : torch.Tensor
        bool, same shape: the answer hangs on rounding (a comparison of two nearly equal
        numbers), so no comparison can say anything.
    dtype : DType
        Type of the output in memory.
    """

    value: torch.Tensor
    bound: torch.Tensor
    undecided: torch.Tensor
    dtype: DType


SHORT = (DType.F16, DType.BF16)
"""Floats that are computed in f32."""
_OF_ONE = ("sub", "div", "floor_div", "remainder", "eq", "ne", "lt", "le", "gt", "ge")
"""Operations that need no more than that their operands are equal."""
_PASSES = ("set", "cast", "neg", "abs", "broadcast", "expand", "permute", "squeeze")
"""Operations that may leave a product unrounded."""

Inputs = Sequence[torch.Tensor | bool | int | float]


def evaluate(
    fusion: Fusion,
    inputs: Inputs,
    partials: Partials | None = None,
    longest: int | None = None,
    *,
    stepwise: bool = False,
) -> list[Expected]:
    """Evaluate a fusion on given inputs.

    Parameters
    ----------
    fusion : Fusion
        As made by `FusionDefinition.fusion`.
    inputs : sequence of torch.Tensor or number
        One per `fusion.inputs`: CPU tensors of exactly the declared dtype and shape, any strides,
        and Python numbers for scalars.
    partials : Partials, optional
        How sums of products go from CTA to CTA, where that rounds them.
    longest : int, optional
        How many additions the kernels put any number through (`oracles.additions`); the bound of a
        sum is that of this, where it is less than that of all orders.
    stepwise : bool
        Judge by torch's contract: what an operation gives, or takes, in 16 bits may be rounded to
        them or not, each time, an explicit cast included.  Eager torch rounds what every operation
        gives; a compiler of torch keeps f32 inside of a kernel, where it does not emulate that.

    Returns
    -------
    list of Expected
        One per `fusion.outputs`.

    Raises
    ------
    ValueError
        If the inputs do not fit the fusion; a judge that gets here was called wrongly.
    """
    sizes = bind(fusion, inputs)
    known: dict[TensorView | Scalar, Estimate] = {}
    for arg, given in zip(fusion.inputs, inputs, strict=True):
        known[arg] = estimate_of(given, arg.dtype)
    for tv in _needed(fusion):
        if tv.op == "input":
            continue
        args = tuple(
            _operand(tv, arg, dtype, known, stepwise=stepwise)
            for arg, dtype in zip(tv.args, operand_dtypes(tv), strict=True)
        )
        args = _alike(tv, args)
        shape = shape_of(tv, sizes)
        if tv.op == "mma":
            known[tv] = multiply_sum(tv, args, shape, partials, longest)
        elif tv.op in SUMS:
            known[tv] = SUMS[tv.op](tv, args, shape, longest)
        elif stepwise and tv.op == "cast" and tv.dtype in SHORT:
            known[tv] = convert(args[0], DType.F32)
        else:
            known[tv] = ROWS[tv.op](tv, args, shape)
        if stepwise:  # 0 - x for -x, as Triton has it
            known[tv] = replace(known[tv], signed=False)
    return [expected_of(known[tv], tv.dtype, shape_of(tv, sizes)) for tv in fusion.outputs]


def bind(fusion: Fusion, inputs: Inputs) -> dict[Symbol, int]:
    """Return the number behind every symbol, and refuse inputs that do not fit the fusion."""
    if len(inputs) != len(fusion.inputs):
        raise ValueError(f"{len(inputs)} inputs given, the fusion has {len(fusion.inputs)}")
    sizes: dict[Symbol, int] = {}
    for arg, given in zip(fusion.inputs, inputs, strict=True):
        if isinstance(arg, Scalar):
            if isinstance(given, torch.Tensor):
                raise ValueError(f"{arg} is a scalar; pass a Python number")
            continue
        if not isinstance(given, torch.Tensor) or given.dtype != TORCH[arg.dtype]:
            raise ValueError(f"{arg} is a tensor of {arg.dtype}; pass one")
        if given.dim() != arg.rank:
            raise ValueError(f"{arg} has {arg.rank} axes, the tensor given has {given.dim()}")
        for extent, size in zip(arg.shape, given.shape, strict=True):
            wanted = sizes.setdefault(extent, size) if isinstance(extent, Symbol) else extent
            if wanted != size:
                raise ValueError(f"{arg} has extent {extent} = {wanted}, the tensor has {size}")
    return sizes


def shape_of(tv: TensorView, sizes: dict[Symbol, int]) -> tuple[int, ...]:
    """Return the shape of a tensor as numbers."""
    return tuple(sizes[n] if isinstance(n, Symbol) else n for n in tv.shape)


def estimate_of(given: torch.Tensor | bool | int | float, dtype: DType) -> Estimate:
    """Return a tensor or number as it is, held as a kernel holds it."""
    if dtype.is_float:
        value = torch.as_tensor(given, dtype=TORCH[dtype]).to(torch.float64)
        return Estimate(DType.F64 if dtype is DType.F64 else DType.F32, value, signed=True)
    plain = torch.bool if dtype is DType.BOOL else torch.int64
    return Estimate(dtype, torch.as_tensor(given).to(plain))


def _constant(constant: Constant) -> Estimate:
    return estimate_of(constant.value, constant.dtype)


def _operand(
    tv: TensorView,
    arg: TensorView | Scalar | Constant,
    dtype: DType,
    known: dict[TensorView | Scalar, Estimate],
    *,
    stepwise: bool,
) -> Estimate:
    """Return an argument as it enters its operation."""
    held = _constant(arg) if isinstance(arg, Constant) else known[arg]
    if not stepwise:
        return convert(held, dtype)
    if isinstance(arg, TensorView) and arg.dtype in SHORT:
        held = rounded_or_not(held, arg.dtype)
    # Numbers and integers that meet tensors of 16 bits may become such, too.
    floats = {one.dtype for one in tensor_args(tv) if one.dtype.is_float}
    held = convert(held, dtype)
    met = floats.pop() if len(floats) == 1 and OPS[tv.op].pointwise else dtype
    return rounded_or_not(held, met) if held.dtype.is_float else held


def expected_of(arg: Estimate, dtype: DType, shape: tuple[int, ...]) -> Expected:
    """Return what a kernel may store of what it holds."""
    if dtype in SHORT:
        arg = rounded(arg, dtype)
    if dtype is DType.BOOL:
        arg = Estimate(dtype, arg.value, ZERO, arg.open)
    return Expected(
        arg.value.expand(shape), arg.error.expand(shape), arg.undecided.expand(shape), dtype
    )


def _alike(tv: TensorView, args: tuple[Estimate, ...]) -> tuple[Estimate, ...]:
    """Take operands that are one tensor at one number: whatever it is, x / x is 1, and x < x false.

    Not where it may be infinite, nor where it may be 0 but in a difference; nor in a difference of
    a product, which an FMA may not round.
    """
    if tv.op not in _OF_ONE or tv.args[0] is not tv.args[1] or not args[0].dtype.is_float:
        return args
    source = tv.args[0]
    while tv.op == "sub" and isinstance(source, TensorView) and source.op in _PASSES:
        source = source.args[0]
    if tv.op == "sub" and isinstance(source, TensorView) and source.op == "mul":
        return args
    made = []
    for arg in args:
        sure = arg.value.isfinite() & ((arg.value.abs() > arg.error) | (tv.op == "sub"))
        made.append(replace(arg, error=torch.where(sure, ZERO, arg.error)))
    return tuple(made)


def _needed(fusion: Fusion) -> list[TensorView]:
    """Return the tensors that an output depends on, in order of definition."""
    live = set(fusion.outputs)
    for tv in reversed(fusion.tensors):
        if tv in live:
            live.update(arg for arg in tv.args if isinstance(arg, TensorView))
    return [tv for tv in fusion.tensors if tv in live]
