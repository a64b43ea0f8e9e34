"""Reductions in registers: which elements threads and warps can put together by themselves.

Source: PTX ISA, "shfl.sync".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.place import Place
from fuser.kernel.validate.tile import dealt

OPS = ("add", "maximum", "minimum")
"""What puts two elements together."""


def reduce(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a reduction."""
    if not isinstance(stmt, kir.Reduce):
        return
    dst, src = stmt.dst.layout, stmt.src.layout
    if place.elected:
        yield (
            f"`{line(stmt)}` stands inside an elect; whole warps must reach it: "
            "move it out of the elect"
        )
        return
    for layout in (dst, src):
        yield from dealt(stmt, place, layout)
    if stmt.op not in OPS:
        yield f"`{line(stmt)}`: {stmt.op} is no way to put two together; use {', '.join(OPS)}"
    if stmt.dst.dtype is not stmt.src.dtype:
        yield (f"`{line(stmt)}`: {stmt.src.dtype} into {stmt.dst.dtype}; make them the same")
    if src.folded > 1 or min(*src.shape, *dst.shape, src.vector, src.threads) < 1:
        yield f"`{line(stmt)}`: {stmt.src.name} is folded already; reduce the fragment it is from"
    elif dst.folded > 1:
        yield from _along(stmt, dst, src)
    else:
        yield from _down(stmt, dst, src)


def _along(stmt: kir.Reduce, dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    if dst.wide != src:
        yield (
            f"`{line(stmt)}`: {stmt.dst.name} is a fold of {dst.wide.shape} by {dst.vector} and "
            f"{dst.threads} threads, {stmt.src.name} is {src.shape} by {src.vector} and "
            f"{src.threads}; fold the layout of {stmt.src.name}"
        )
    lanes = dst.folded // dst.vector
    if src.threads % kir.WARP:
        yield f"`{line(stmt)}`: {src.threads} threads are no whole warps; use a multiple of 32"
    elif dst.deal is kir.Deal.ROUND and (lanes > kir.WARP or lanes & (lanes - 1)):
        yield (
            f"`{line(stmt)}`: {dst.folded} neighbours lie in {lanes} lanes; a warp puts a power of "
            f"two of them together, at most {kir.WARP}"
        )


def _down(stmt: kir.Reduce, dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    one_row = (*(1 for _ in src.shape[:-1]), src.shape[-1])
    if dst != replace(src, shape=one_row) or src.deal is not kir.Deal.ROUND:
        yield (
            f"`{line(stmt)}`: {dst.shape} by {dst.vector} and {dst.threads} threads is neither a "
            f"fold of {src.shape} by {src.vector} and {src.threads} nor one row of it; use either"
        )
    elif src.shape[-1] // src.vector % src.threads:
        yield (
            f"`{line(stmt)}`: rows of {src.shape[-1]} by {src.vector} and {src.threads} threads: "
            f"a thread holds no whole columns; use rows of multiples of {src.vector * src.threads}"
        )
