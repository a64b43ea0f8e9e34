"""By how much an index grows from one element of a row to the next, as far as the text tells."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import fragments


def steps(kernel: kir.Kernel) -> dict[kir.Fragment, int]:
    """Return the integers of a kernel that grow by one number along all of their rows.

    Coordinates do, what is loaded once for a row, and sums and multiples of such.
    """
    found: dict[kir.Fragment, int | None] = {}
    for stmt in kernel.walk():
        for frag in fragments(stmt)[1]:
            step = _step(stmt, found) if frag.dtype in (DType.I64, DType.I32) else None
            if step and frag.dtype is DType.I32:  # it may wrap
                step = None
            found[frag] = step if found.get(frag, step) == step else None
    return {frag: step for frag, step in found.items() if step is not None}


def apart(stmt: kir.Gather, known: Mapping[kir.Fragment, int]) -> int:
    """Return how many elements of memory neighbours of a row lie apart; 0 if that is unknown."""
    total = 0
    for index, stride in zip(stmt.index, stmt.src.strides, strict=True):
        step = known.get(index)
        if step is None or (step and not isinstance(stride, int)):
            return 0
        total += step * stride if isinstance(stride, int) else 0
    return total


def _step(stmt: kir.Stmt, found: dict[kir.Fragment, int | None]) -> int | None:
    match stmt:
        case kir.Coordinate(dst, axis):
            return int(axis == len(dst.layout.shape) - 1)
        case kir.Load(_, kir.Box(tensor)) if tensor.extents[-1] == 1 and not tensor.cycles:
            return 0
        case kir.Compute(_, "promote", (kir.Fragment() as arg,)):
            return found.get(arg)
        case kir.Compute(_, "mul", (kir.Fragment() as arg, kir.Literal(by))):
            step = found.get(arg)
            return None if step is None else step * int(by)
        case kir.Compute(_, "add", (kir.Fragment() as arg, other)):
            one = found.get(arg)
            two = found.get(other) if isinstance(other, kir.Fragment) else 0
            return None if one is None or two is None else one + two
        case _:
            return None
