"""Value faults that bugs of a compiler make, each in one operation of a fusion.

A kind is a function of a place (an operation, the shape of its result and its operands) that
returns what happens around it, or None where it cannot happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

import torch

from fuser.dtype import DType
from fuser.fusion.definition import Constant, Fusion, Symbol, TensorView
from fuser.fusion.ops import accumulator
from fuzz.bench.sensitivity.computation import (
    TILE,
    Args,
    Fault,
    Run,
    is_f8_product,
    summed,
)
from fuzz.cases.features import live
from oracles.reference.estimate import EPS, Estimate, nearest
from oracles.reference.evaluate import shape_of
from oracles.reference.rows import ULPS as ALLOWED

Around = Callable[[Run, Args], torch.Tensor]
Change = Callable[[torch.Tensor], torch.Tensor]

ULPS = (4, 8)
"""Least and greatest systematic error, in units of the last place, beyond what is allowed."""
_SUMS = ("sum", "mean", "mma")
_IDENTITY = {"sum": 0.0, "mean": 0.0, "mma": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}
_AT_ZERO = {"exp": 1.0, "exp2": 1.0, "cos": 1.0, "cosh": 1.0, "sigmoid": 0.5, "erfc": 1.0}
"""What functions make of a filler that was 0 for what is behind them."""
_ORDERED = ("sub", "div", "pow", "atan2", "remainder", "floor_div", "lt", "le", "gt", "ge")
_SCALED = ("mul", "div", "add", "sub", "addcmul", "maximum", "minimum")
_ROUNDED = ("add", "sub", "mul", "div", "sqrt", "reciprocal")
"""Operations that round to nearest; those of `ALLOWED` may be off by more."""


@dataclass(frozen=True, slots=True)
class Place:
    """One operation of a fusion: its result, its shape, that of its first operand."""

    tv: TensorView
    shape: tuple[int, ...]
    operand: tuple[int, ...]
    fusion: Fusion
    rounds: bool

    @property
    def holds(self) -> bool:
        """Whether the result has floats."""
        return self.tv.dtype.is_float


def places(fusion: Fusion, sizes: dict[Symbol, int], *, rounds: bool) -> list[Place]:
    """Return every operation; `rounds` tells whether the schedule rounds partial sums itself."""
    made = []
    for tv in live(fusion):
        first = tv.args[0] if tv.args else None
        operand = shape_of(first, sizes) if isinstance(first, TensorView) else ()
        made.append(Place(tv, shape_of(tv, sizes), operand, fusion, rounds))
    return made


def faults(kind: str, at: list[Place], random: Random) -> Iterator[Fault]:
    """Yield the faults of a kind that can happen, one a place, in random order."""
    for place in random.sample(at, len(at)):
        around = KINDS[kind](place, random)
        if around is not None:
            yield Fault(kind, place.tv, around)


# --- operands of sums ---------------------------------------------------------------------------


def _reduced(place: Place, ops: tuple[str, ...]) -> bool:
    """Tell whether an operation reduces, over more than one element."""
    if place.tv.op not in ops or place.tv.dtype is DType.BOOL:
        return False
    args = place.tv.args
    return all(isinstance(arg, TensorView) and arg.dtype is not DType.BOOL for arg in args)


def _along(
    place: Place, args: Args, start: int, count: int, change: Callable[[torch.Tensor, int], None]
) -> Args:
    """Change a copy of a part of the operands along the summed axis."""
    made = []
    for arg, axis in zip(args, summed(place.tv, args)[0], strict=True):
        if axis is None:
            made.append(arg)
            continue
        value = arg.value.clone()
        change(value, axis)
        made.append(replace(arg, value=value))
    return tuple(made)


def _tile(count: int) -> int:
    return min(TILE, max(count // 2, 1))


def _left_out(place: Place, tiles: bool) -> Around | None:
    if not _reduced(place, tuple(_IDENTITY)):
        return None
    identity = _IDENTITY[place.tv.op]

    def around(run: Run, args: Args) -> torch.Tensor:
        count = summed(place.tv, args)[1]
        many = min(_tile(count) if tiles else 1, count)

        def clear(value: torch.Tensor, axis: int) -> None:
            value.narrow(axis, count - many, many).fill_(_fits(identity, value))

        return run(_along(place, args, count - many, many, clear))

    return around


def _fits(number: float, like: torch.Tensor) -> float | int:
    """Return a number, or the end of the range of integers where it is infinite."""
    if like.is_floating_point():
        return number
    info = torch.iinfo(like.dtype)
    return info.max if number == torch.inf else info.min if number == -torch.inf else int(number)


def _last_left_out(place: Place, random: Random) -> Around | None:
    return _left_out(place, tiles=False)


def _tile_left_out(place: Place, random: Random) -> Around | None:
    return _left_out(place, tiles=True)


def _twice(place: Place, random: Random) -> Around | None:
    if not _reduced(place, _SUMS):
        return None

    def around(run: Run, args: Args) -> torch.Tensor:
        where, count = summed(place.tv, args)
        many = _tile(count)
        first = next((n for n, axis in enumerate(where) if axis is not None), None)
        if first is None or count == 0:
            return run(args)
        axis = where[first]
        assert axis is not None
        value = args[first].value.clone()
        value.narrow(axis, count - many, many).mul_(2)
        changed = replace(args[first], value=value)
        return run((*args[:first], changed, *args[first + 1 :]))

    return around


def _stale_operand(place: Place, random: Random) -> Around | None:
    if not _reduced(place, (*_SUMS, "prod", "max", "min")):
        return None

    def around(run: Run, args: Args) -> torch.Tensor:
        count = summed(place.tv, args)[1]
        many = _tile(count)
        if count < 2:
            return run(args)
        last = (count // many - 1) * many

        def copy(value: torch.Tensor, axis: int) -> None:
            older = value.narrow(axis, last - many, many).clone()
            value.narrow(axis, last, many).copy_(older)

        return run(_along(place, args, last, many, copy))

    return around


def _filler(place: Place, random: Random) -> Around | None:
    if not _reduced(place, ("max", "min", "prod", "sum")):
        return None
    filler = 0.0
    if place.tv.op == "sum":
        operand = place.tv.args[0]
        assert isinstance(operand, TensorView)
        if operand.op not in _AT_ZERO:
            return None
        filler = _AT_ZERO[operand.op]

    def around(run: Run, args: Args) -> torch.Tensor:
        (axis, *_), count = summed(place.tv, args)
        if axis is None or count == 0:
            return run(args)
        value = args[0].value
        shape = [1 if n == axis else m for n, m in enumerate(value.shape)]
        more = torch.cat([value, torch.full(shape, filler, dtype=value.dtype)], axis)
        return run((replace(args[0], value=more),))

    return around


def _narrow_sum(place: Place, random: Random) -> Around | None:
    if not _reduced(place, _SUMS) or not place.holds:
        return None
    if place.tv.op == "mma" and (place.rounds or _short(place.tv)):
        return None
    narrow = random.choice((DType.F16, DType.BF16))
    return lambda run, args: run(args, narrow=narrow)


def _short(product: TensorView) -> bool:
    """Tell whether the contract lets sums lose what bf16 loses: of 8-bit floats, and in f16."""
    return is_f8_product(product) or accumulator(product) is DType.F16


# --- values -------------------------------------------------------------------------------------


def _after(change: Change) -> Around:
    return lambda run, args: change(run(args))


def _box(shape: tuple[int, ...], random: Random) -> tuple[list[slice], int, int] | None:
    """Return a tile over the two last axes, the axis it has a neighbour before on, and how far."""
    wide = [axis for axis, n in enumerate(shape) if n > 1]
    if not wide or 0 in shape:
        return None
    toward = wide[-1]
    box = []
    for axis, n in enumerate(shape):
        size = n if n == 1 else _tile(n)
        last = n // size - 1 if axis >= len(shape) - 2 or axis == toward else n - 1
        size = size if axis >= len(shape) - 2 or axis == toward else 1
        start = random.randint(1 if axis == toward else 0, max(last, 0)) * size
        box.append(slice(start, start + size))
    return box, toward, box[toward].stop - box[toward].start


def _boxed(
    place: Place, random: Random, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Around | None:
    """Change a tile by itself and its neighbour before."""
    found = _box(place.shape, random)
    if found is None:
        return None
    box, toward, many = found
    before = list(box)
    before[toward] = slice(box[toward].start - many, box[toward].start)

    def changed(value: torch.Tensor) -> torch.Tensor:
        value = value.expand(place.shape).clone()
        value[tuple(box)] = change(value[tuple(box)], value[tuple(before)].clone())
        return value

    return _after(changed)


def _zero_tile(place: Place, random: Random) -> Around | None:
    return _boxed(place, random, lambda here, before: torch.zeros_like(here))


def _stale_tile(place: Place, random: Random) -> Around | None:
    return _boxed(place, random, lambda here, before: before)


def _not_cleared(place: Place, random: Random) -> Around | None:
    if place.tv.op not in _SUMS or place.tv.dtype is DType.BOOL:
        return None
    return _boxed(place, random, lambda here, before: here + before)


def _rows(
    place: Place, random: Random, change: Callable[[torch.Tensor], torch.Tensor], least: int = 2
) -> Around | None:
    """Change one row along the last axis."""
    if not place.shape or place.shape[-1] < least or 0 in place.shape:
        return None
    index = tuple(random.randrange(n) for n in place.shape[:-1])

    def changed(value: torch.Tensor) -> torch.Tensor:
        value = value.expand(place.shape).clone()
        value[index] = change(value[index].clone())
        return value

    return _after(changed)


def _tail(place: Place, random: Random) -> Around | None:
    def change(row: torch.Tensor) -> torch.Tensor:
        row[-1] = row[-2]
        return row

    return _rows(place, random, change)


def _row_shifted(place: Place, random: Random) -> Around | None:
    return _rows(place, random, lambda row: row.roll(1, -1))


def _rows_swapped(place: Place, random: Random) -> Around | None:
    wide = [axis for axis, n in enumerate(place.shape[:-1]) if n > 1]
    if not wide or 0 in place.shape:
        return None
    axis = wide[-1]
    first = random.randrange(place.shape[axis] - 1)
    order = list(range(place.shape[axis]))
    order[first : first + 2] = order[first + 1], order[first]
    return _after(lambda value: value.expand(place.shape)[(slice(None),) * axis + (order,)])


def _operand_shifted(place: Place, random: Random) -> Around | None:
    wide = [axis for axis, n in enumerate(place.shape) if n > 1]
    if place.tv.op not in ("input", "broadcast", "expand", "slice") or not wide:
        return None
    axis = random.choice(wide)
    return _after(lambda value: value.expand(place.shape).roll(1, axis))


def _narrowed(place: Place, random: Random) -> Around | None:
    if place.tv.dtype not in (DType.F32, DType.F64):
        return None
    if place.tv.op == "mma" and _short(place.tv):
        return None
    # f16 has the digits of tf32, so what a product reads may be rounded to it.
    short = DType.BF16 if place.tv.dtype is DType.F32 else DType.F32
    return _after(lambda value: nearest(value, short))


def _few_ulps(place: Place, random: Random) -> Around | None:
    """Err by some ulps of what is stored in 16 bits, or of a function, beyond what it may err."""
    tv, dtype = place.tv, place.tv.dtype
    off = random.randint(*ULPS)
    if tv in place.fusion.outputs and dtype in (DType.F16, DType.BF16):
        if tv.op == "mma" and accumulator(tv) is DType.F16:
            return None
        ulp = EPS[dtype]
    elif dtype in EPS and (tv.op in _ROUNDED or tv.op in ALLOWED):
        double = dtype is DType.F64
        ulp = EPS[DType.F64 if double else DType.F32]
        off += int(ALLOWED.get(tv.op, (0, 0))[double])
    else:
        return None
    grows = 1 + random.choice((-1, 1)) * off * ulp
    return _after(lambda value: value * grows)


# --- what is computed ---------------------------------------------------------------------------


def _dropped(place: Place, random: Random) -> Around | None:
    if place.tv.op not in _SCALED or place.tv.dtype is DType.BOOL:
        return None
    return lambda run, args: args[0].value


def _operands_swapped(place: Place, random: Random) -> Around | None:
    if place.tv.op not in _ORDERED:
        return None
    return lambda run, args: run(args[::-1])


def _constant(place: Place, random: Random) -> Around | None:
    numbers = [
        n for n, arg in enumerate(place.tv.args)
        if isinstance(arg, Constant) and not isinstance(arg.value, bool)
    ]  # fmt: skip
    if not numbers:
        return None
    which = random.choice(numbers)

    def around(run: Run, args: Args) -> torch.Tensor:
        return run((*args[:which], _other(args[which]), *args[which + 1 :]))

    return around


def _other(number: Estimate) -> Estimate:
    """Return ten times a small number, as a wrong epsilon is, or one a little off."""
    value = number.value
    if value.is_floating_point():
        small = value.abs() < 2.0**-6
        return replace(number, value=torch.where(small, value * 10, value * 1.125))
    return replace(number, value=value + 1)


KINDS: dict[str, Callable[[Place, Random], Around | None]] = {
    "last element of a sum missing": _last_left_out,
    "last tile of a sum missing": _tile_left_out,
    "tile of a sum counted twice": _twice,
    "stale tile in a sum": _stale_operand,
    "sum not cleared": _not_cleared,
    "partial sum of 16 bits": _narrow_sum,
    "filler that is no identity": _filler,
    "tile of zeros": _zero_tile,
    "stale tile": _stale_tile,
    "element of a tail": _tail,
    "row shifted by one": _row_shifted,
    "rows swapped": _rows_swapped,
    "operand read off by one": _operand_shifted,
    "scale or bias missing": _dropped,
    "operands swapped": _operands_swapped,
    "wrong constant": _constant,
    "rounded to a narrower type": _narrowed,
    "4 to 8 ulps off": _few_ulps,
}
"""What can be wrong, by what it is called in the table."""
