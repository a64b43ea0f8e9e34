"""Fragments have a value before they are used, in the layout and type in which they got it."""

from __future__ import annotations

from collections.abc import Iterable

from fuser import kernel_ir as kir
from fuser.kernel_text import line
from fuser.validate_place import places


def registers(kernel: kir.Kernel) -> Iterable[str]:
    """Say which fragments are used before anything defines them, in program order.

    A definition under a condition, or in a loop that may have no turns, counts: whether it is
    always executed is for the judges.
    """
    known: dict[str, list[tuple[frozenset[int], kir.Fragment]]] = {}
    for stmt, place in places(kernel):
        uses, makes = fragments(stmt)
        for used in uses:
            mine = [made for who, made in known.get(used.name, []) if who & place.threads]
            if not mine:
                yield (
                    f"`{line(stmt)}` uses {used.name}, to which no statement before it gives a "
                    "value; load or compute it first, by the same threads"
                )
            elif used not in mine:
                yield (
                    f"`{line(stmt)}` uses {used.name} in another layout or type than it got its "
                    f"value in; use {mine[-1].dtype.name} and {mine[-1].layout}"
                )
        for made in makes:
            known.setdefault(made.name, []).append((place.threads, made))


def fragments(stmt: kir.Stmt) -> tuple[list[kir.Fragment], list[kir.Fragment]]:
    """Return the fragments that a statement uses, and those that it gives a value."""
    match stmt:
        case kir.Load(dst) | kir.Coordinate(dst):
            return [], [dst]
        case kir.Store(_, src) | kir.AtomicAdd(_, src):
            return [src], []
        case kir.Slice(dst, src) | kir.Reduce(dst, src):
            return [src], [dst]
        case kir.GridSum(acc):
            return [acc], [acc]
        case kir.Compute(dst, _, args):
            return [a for a in args if isinstance(a, kir.Fragment)], [dst]
        case kir.Wgmma(acc, a, _, accumulate):
            read = [a] if isinstance(a, kir.Fragment) else []
            return ([*read, acc] if accumulate == 1 else read), [acc]
        case kir.Mma(acc, a, b):
            return [acc, a, b], [acc]
        case _:
            return [], []
