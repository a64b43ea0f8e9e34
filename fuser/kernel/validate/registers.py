"""Fragments have a value before use, in the layout and type they got it in; parts of them fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.place import places


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


def sliced(stmt: kir.Slice) -> Iterator[str]:
    """Say what is wrong with columns that are taken of a tile, or with registers relabelled."""
    dst, src, column = stmt.dst, stmt.src, stmt.column
    if dst.dtype is not src.dtype:
        yield f"`{line(stmt)}`: {src.dtype.name} into {dst.dtype.name}; make them the same"
    if stmt.relabels:
        yield from _relabelled(stmt, dst.layout, src.layout)
        return
    for part in (dst, src):
        if part.layout.deal is not kir.Deal.STRIPS:
            yield f"`{line(stmt)}` wants {part.name} in strips; give it Deal.STRIPS"
            return
    if dst.layout.shape[:-1] != src.layout.shape[:-1] or dst.layout.threads != src.layout.threads:
        yield (
            f"`{line(stmt)}`: {dst.layout.shape} by {dst.layout.threads} threads is no part of "
            f"{src.layout.shape} by {src.layout.threads}; make rows and threads equal"
        )
    width, whole = dst.layout.shape[-1], src.layout.shape[-1]
    if column % 8 or not 0 <= column <= whole - width:
        yield (
            f"`{line(stmt)}`: columns {column}..{column + width} of {whole}; "
            "begin at a multiple of 8 and end inside"
        )
    if not dst.layout.vector == src.layout.vector == 2:
        yield (
            f"`{line(stmt)}`: vectors of {src.layout.vector} into {dst.layout.vector}; only "
            "accumulators are cut, use vectors of 2"
        )


def _relabelled(stmt: kir.Slice, dst: kir.Layout, src: kir.Layout) -> Iterator[str]:
    strips, other = (dst, src) if dst.deal is kir.Deal.STRIPS else (src, dst)
    if (dst.shape, dst.threads) != (src.shape, src.threads) or stmt.column:
        yield (
            f"`{line(stmt)}`: {dst.shape} by {dst.threads} threads has not the registers of "
            f"{src.shape} by {src.threads} from column {stmt.column} on; relabel whole tiles of "
            "one shape and as many threads"
        )
        return
    if strips.folded > 1 or other.folded > 1 or strips.vector != 2:
        yield (
            f"`{line(stmt)}`: strips of vectors of {strips.vector}, folded by {strips.folded} and "
            f"{other.folded}; only whole accumulators are relabelled, use vectors of 2"
        )
        return
    rows, step = strips.shape[-2], 16 * (strips.threads // kir.WARP)
    elements, share = prod(other.shape), other.vector * other.threads
    if rows % step or elements % share:
        yield (
            f"`{line(stmt)}`: {rows} rows in strips for every {step}, {elements} elements in "
            f"rounds of {share}; give every thread as many, or take them through shared memory"
        )
