"""A fusion computed as a right implementation does, or exactly; with a fault, if one is given.

The functions are the reference's, at single numbers.  What differs is what is kept: f32 between
operations (`exact=False`), with sums added up in f32 tile by tile from the last one on, f32
operands of products cut to tf32, addends of 8-bit floats 13 bits below the largest of a step, and
sums in f16 rounded to f16, as tensor cores do; or f64 all the way (`exact=True`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from fuser.dtype import DType
from fuser.fusion.definition import Constant, Fusion, Scalar, TensorView
from fuser.fusion.ops import accumulator, operand_dtypes
from fuzz.cases.features import live
from oracles.reference.estimate import TORCH, Estimate, convert, cut_to_8_bits, nearest
from oracles.reference.evaluate import Inputs, bind, estimate_of, shape_of
from oracles.reference.rows import ROWS

TILE = 16
"""Numbers or products that are added up at once."""
_SHORT = (DType.F16, DType.BF16)
_TF32_CUT = 13
_F8_KEPT = 13
"""Bits below the largest addend at which tensor cores cut the others, of 8-bit floats."""

Args = tuple[Estimate, ...]
Run = Callable[..., torch.Tensor]
"""What an operation gives for its operands; with `narrow=`, half of a sum goes through that
type."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake in one operation: `around` gets how it runs and its operands.

    Parameters
    ----------
    kind : str
        What went wrong.
    at : TensorView
        The result that is wrong.
    around : callable
        From `Run` and the operands to the wrong result.
    """

    kind: str
    at: TensorView
    around: Callable[[Run, Args], torch.Tensor]


class Computation:
    """All tensors of a fusion for given inputs, and what becomes of its outputs by a fault."""

    def __init__(self, fusion: Fusion, inputs: Inputs, *, exact: bool) -> None:
        self.fusion, self.exact = fusion, exact
        self.sizes = bind(fusion, inputs)
        self._given: dict[TensorView | Scalar, Estimate] = {
            arg: self._held(estimate_of(value, arg.dtype))
            for arg, value in zip(fusion.inputs, inputs, strict=True)
        }
        self._known = dict(self._given)
        for tv in live(fusion):
            self._known[tv] = self._result(tv, self._known, None)

    def outputs(self, fault: Fault | None = None) -> list[torch.Tensor]:
        """Return the outputs: f64, i64 or bool if `exact`, else in their own types."""
        known: dict[TensorView | Scalar, Estimate] = dict(self._known)
        if fault is not None:
            changed = {fault.at}
            for tv in live(self.fusion):
                if tv is fault.at or any(arg in changed for arg in tv.args):
                    changed.add(tv)
                    known[tv] = self._result(tv, known, fault if tv is fault.at else None)
        return [self._stored(known[tv].value, tv.dtype) for tv in self.fusion.outputs]

    def _stored(self, value: torch.Tensor, dtype: DType) -> torch.Tensor:
        if self.exact:
            return value
        return stored(value, dtype)

    def _held(self, arg: Estimate) -> Estimate:
        return Estimate(DType.F64, arg.value) if self.exact and arg.dtype.is_float else arg

    def _result(
        self, tv: TensorView, known: Mapping[TensorView | Scalar, Estimate], fault: Fault | None
    ) -> Estimate:
        if tv.op == "input":
            args: Args = (self._given[tv],)
        else:
            args = tuple(
                _number(arg, dtype, exact=self.exact)
                if isinstance(arg, Constant)
                else self._taken(known[arg], dtype)
                for arg, dtype in zip(tv.args, operand_dtypes(tv), strict=True)
            )
        run = partial(self._run, tv)
        value = run(args) if fault is None else fault.around(run, args)
        value = value.expand(shape_of(tv, self.sizes))
        if not tv.dtype.is_float:
            return Estimate(tv.dtype, value)
        held = DType.F64 if self.exact or tv.dtype is DType.F64 else DType.F32
        return Estimate(held, value if held is DType.F64 else nearest(value, DType.F32))

    def _taken(self, arg: Estimate, dtype: DType) -> Estimate:
        """Convert an operand; what is exact is rounded only where the fusion says so."""
        if not self.exact or not dtype.is_float:
            made = convert(arg, dtype)
            return Estimate(made.dtype, made.value)
        value = arg.value.to(torch.float64)
        return Estimate(DType.F64, nearest(value, dtype) if dtype in _SHORT else value)

    def _run(self, tv: TensorView, args: Args, narrow: DType | None = None) -> torch.Tensor:
        shape = shape_of(tv, self.sizes)
        match tv.op:
            case "input":
                return args[0].value
            case "cast" if tv.dtype.is_float and args[0].dtype.is_float:
                return self._cast(args[0], tv.dtype)
            case "sum" | "mma" if tv.dtype.is_float:
                return self._sum(tv, args, shape, narrow)
            case "mean":
                axes = [int(axis) for axis in dict(tv.attrs)["dims"]]
                (less,) = dict(tv.attrs).get("correction", (0,))
                count = 1
                for axis in axes:
                    count *= args[0].value.shape[axis]
                return self._sum(tv, args, shape, narrow) / max(count - int(less), 0)
            case _:
                return ROWS[tv.op](tv, args, shape).value

    def _cast(self, arg: Estimate, dtype: DType) -> torch.Tensor:
        if dtype.is_f8:
            return cut_to_8_bits(Estimate(DType.F32, arg.value), dtype).value
        if self.exact and dtype not in _SHORT:
            return arg.value
        return nearest(arg.value, dtype)

    def _sum(
        self, tv: TensorView, args: Args, shape: tuple[int, ...], narrow: DType | None
    ) -> torch.Tensor:
        """Add up tiles along the longest summed axis, the last tile first."""
        if tv.op == "mma" and not self.exact and tv.args[0].dtype is DType.F32:
            args = tuple(Estimate(arg.dtype, _cut(arg.value)) for arg in args)
        row = ROWS["sum" if tv.op == "mean" else tv.op]
        places, count = summed(tv, args)
        whole = tv.op == "mma" and accumulator(tv) is DType.I32
        if count < 2 or whole or (self.exact and narrow is None):
            return row(tv, args, shape).value

        def part(start: int, many: int) -> torch.Tensor:
            taken = (
                Estimate(arg.dtype, arg.value.narrow(axis, start, min(many, count - start)))
                if axis is not None
                else arg
                for arg, axis in zip(args, places, strict=True)
            )
            return row(tv, tuple(taken), shape).value

        held = DType.F16 if tv.op == "mma" and accumulator(tv) is DType.F16 else DType.F32
        tile = -(-count // 2) if self.exact else min(TILE, -(-count // 2))
        if not self.exact and (is_f8_product(tv) or held is DType.F16):
            # What is rounded after each step is so no more often than tensor cores do.
            tile = 2 * TILE if is_f8_product(tv) else TILE
        starts = list(range(0, count, tile))[::-1]
        double = self.exact or args[0].dtype is DType.F64
        made = torch.zeros(shape, dtype=torch.float64)
        for number, start in enumerate(starts):
            if is_f8_product(tv) and not self.exact:
                ends = range(start, min(start + tile, count))
                made = _aligned([made, *(part(k, 1) for k in ends)])
            elif double:
                made = made + part(start, tile)
            else:
                made = nearest(made + nearest(part(start, tile), DType.F32), held)
            if narrow is not None and number == (len(starts) - 1) // 2:
                made = nearest(made, narrow)
        return made


def _number(constant: Constant, dtype: DType, *, exact: bool) -> Estimate:
    """Return a number of the definition in the type that meets it, also where all else is exact."""
    made = convert(estimate_of(constant.value, constant.dtype), dtype)
    held = DType.F64 if exact and made.dtype.is_float else made.dtype
    return Estimate(held, nearest(made.value, dtype) if dtype is DType.F32 else made.value)


def stored(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Return numbers as a kernel stores them: rounded to nearest by way of f32."""
    if not dtype.is_float or dtype is DType.F64:
        return value.to(TORCH[dtype])
    held = nearest(value, DType.F32)
    return (nearest(held, dtype) if dtype.is_f8 else held).to(TORCH[dtype])


def summed(tv: TensorView, args: Args) -> tuple[tuple[int | None, ...], int]:
    """Return where each operand has the longest axis that is reduced, and how long that is."""
    attrs = {key: [int(n) for n in value] for key, value in tv.attrs}
    ways: list[tuple[int, ...]]
    if tv.op == "mma":
        ways = [(attrs["a_axes"][n], attrs["b_axes"][n]) for n in attrs["reduced"]]
    else:
        ways = [(axis,) for axis in attrs["dims"]]

    def length(way: tuple[int, ...]) -> int:
        there = [arg.value.shape[n] for arg, n in zip(args, way, strict=True) if n >= 0]
        return max(there, default=1)

    if not ways:
        return (None,) * len(args), 1
    best = max(ways, key=length)
    # An operand that stretches along the axis has one element there, for every tile.
    count = length(best)
    places = tuple(
        n if n >= 0 and arg.value.shape[n] == count else None
        for arg, n in zip(args, best, strict=True)
    )
    return places, count


def is_f8_product(tv: TensorView) -> bool:
    """Tell whether a tensor is a product of 8-bit floats."""
    return tv.op == "mma" and isinstance(tv.args[0], TensorView) and tv.args[0].dtype.is_f8


def _aligned(addends: list[torch.Tensor]) -> torch.Tensor:
    """Add up numbers that are cut off below the last bit that is kept of the largest."""
    every = torch.stack(torch.broadcast_tensors(*addends))
    last = torch.frexp(every.abs().nan_to_num(0.0, 0.0, 0.0).amax(0))[1] - 1 - _F8_KEPT
    power = torch.ldexp(torch.ones_like(every[0]), last)
    return ((every / power).trunc() * power).sum(0)


def _cut(value: torch.Tensor) -> torch.Tensor:
    """Cut f32 numbers to tf32."""
    bits = value.to(torch.float32).view(torch.int32)
    return ((bits >> _TF32_CUT) << _TF32_CUT).view(torch.float32).to(torch.float64)
