"""Tensor cores: shapes, types and layouts of `Wgmma` and `Mma`, and the warps that execute them.

Source: PTX ISA, sections "wgmma.mma_async", "mma.m16n8k8", "mma.m16n8k16" and "mma.m16n8k32".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import Place
from fuser.kernel.validate.sync import IN_ELECT, warpgroups
from fuser.kernel.validate.tile import dealt, known

SUMS = {
    DType.F16: (DType.F32, DType.F16),
    DType.BF16: (DType.F32,),
    DType.F32: (DType.F32,),
    DType.I8: (DType.I32,),
    DType.F8E4M3: (DType.F32,),
    DType.F8E5M2: (DType.F32,),
}
"""Types of `acc` by that of `a` and `b`; f32 operands are taken as tf32."""
STEP_NBYTES = 32
"""Bytes along K that one instruction takes."""
VECTOR_NBYTES = 4
"""Bytes of an operand's register."""
SUMS_VECTOR = 2
"""Neighbours along a row of `acc` in one thread."""


def mma(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a matrix product."""
    match stmt:
        case kir.Wgmma():
            yield from _wgmma(stmt, place)
        case kir.Mma(acc, a, b):
            if place.elected:
                yield IN_ELECT
                return
            for part in (acc, a, b):
                yield from dealt(place, part.layout)
            yield from _sums(acc)
            yield from _strips(a)
            if b.layout.deal is not kir.Deal.EACH_WARP:
                yield f" wants {b.name} in each warp; load it with Deal.EACH_WARP"
            if not acc.layout.threads == a.layout.threads == b.layout.threads:
                yield (
                    f": {acc.name}, {a.name} and {b.name} are dealt to {acc.layout.threads}, "
                    f"{a.layout.threads} and {b.layout.threads} threads; use one number"
                )
            yield from _types(acc, a.dtype, b.dtype)
            if a.dtype.is_f8:
                yield f": mma multiplies no {a.dtype}; use Wgmma"
            for part in (a, b):
                yield from _words(part)
            m_n, m_k, n_k = (_axes(part.layout.shape) for part in (acc, a, b))
            yield from _shapes(m_n, m_k, n_k, a.dtype)
        case _:
            pass


def _wgmma(stmt: kir.Wgmma, place: Place) -> Iterable[str]:
    acc, a, b = stmt.acc, stmt.a, stmt.b
    if place.elected:
        yield IN_ELECT
        return
    if not place.whole_warpgroups:
        yield warpgroups(place)
        return
    for tile in stmt.columns:
        yield from known(place, tile)
    yield from _beside(stmt)
    yield from dealt(place, acc.layout)
    yield from _sums(acc)
    if acc.layout.threads < len(place.threads):
        yield (
            f": {acc.name} is dealt to {acc.layout.threads} threads, {place.who} execute it; deal "
            f"it to all {len(place.threads)}"
        )
    match a:
        case kir.Slot():
            yield from known(place, a)
            rows, dtype = a.buffer.shape, a.buffer.dtype
        case kir.Fragment():
            yield from dealt(place, a.layout)
            yield from _strips(a)
            rows, dtype = a.layout.shape, a.dtype
            if dtype.nbytes != 2:
                yield f": {a.name} in registers is {dtype}; take it from a slot"
            yield from _words(a)
            if a.layout.threads != acc.layout.threads:
                yield (
                    f": {acc.name} is dealt to {acc.layout.threads} threads, {a.name} to "
                    f"{a.layout.threads}; use one number"
                )
    for slot in (a, b):
        if isinstance(slot, kir.Slot) and slot.cta is not None:
            yield f" reads slots of its own CTA; drop cta of {slot.buffer.name}"
    yield from _types(acc, dtype, b.buffer.dtype)
    if (stmt.a_transposed or stmt.b_transposed) and dtype.nbytes != 2:
        yield (
            f": only operands of 16 bits may have K across their rows, these are {dtype}; give "
            "slots of (M, K) and (N, K)"
        )
    if stmt.a_transposed and isinstance(a, kir.Fragment):
        yield f": {a.name} in registers is (M, K); drop a_transposed"
        return
    rows = _turned(_axes(rows), turned=stmt.a_transposed)
    columns = _turned(_axes(b.buffer.shape), turned=stmt.b_transposed)
    more = (_turned(_axes(each.shape), turned=stmt.b_transposed) for each in stmt.beside)
    columns = (columns[0] + sum(each[0] for each in more), *columns[1:])
    shape = _axes(acc.layout.shape)
    yield from _shapes(shape, rows, columns, dtype)
    if len(shape) == 2:
        m, n = shape
        groups = place.warps // 4
        if m % (64 * groups):
            yield (f": {m} rows for {groups} warpgroups; each takes a multiple of 64")
        if n % 8 or not 8 <= n <= 256:
            yield f": {n} columns; use a multiple of 8 in 8..256"
        elif dtype is DType.I8 and n % 16 and n not in (8, 24):
            yield f": {n} columns of i8; use 8, 24 or a multiple of 16"


def _beside(stmt: kir.Wgmma) -> Iterable[str]:
    """Say why slots do not lie behind each other, as columns of one operand."""
    for one, two in pairwise((stmt.b.buffer, *stmt.beside)):
        if replace(two, name=one.name, shape=one.shape, offset=one.offset) != one:
            yield (
                f": {two.name} and {one.name} differ in type, slots, swizzle or pitch; make them "
                "alike"
            )
        elif two.offset != one.offset + one.slot_nbytes:
            yield (
                f": {two.name} begins at byte {two.offset}, a slot of {one.name} ends at "
                f"{one.offset + one.slot_nbytes}; put one behind the other"
            )
    row = stmt.b.buffer.shape[-1] * stmt.b.buffer.dtype.nbytes
    if stmt.beside and not stmt.b_transposed and row != stmt.b.buffer.swizzle:
        yield (
            f": rows of {row} bytes with a swizzle of {stmt.b.buffer.swizzle}; the columns of "
            "several buffers lie behind each other only where a row is one panel"
        )


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop the axes of extent 1 before the last two."""
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _turned(shape: tuple[int, ...], *, turned: bool) -> tuple[int, ...]:
    return tuple(reversed(shape)) if turned else shape


def _strips(fragment: kir.Fragment) -> Iterable[str]:
    if fragment.layout.deal is not kir.Deal.STRIPS:
        yield f" wants {fragment.name} in strips; give it Deal.STRIPS"


def _sums(acc: kir.Fragment) -> Iterable[str]:
    yield from _strips(acc)
    if acc.layout.vector != SUMS_VECTOR:
        yield (
            f": {acc.name} is held by vectors of {acc.layout.vector}, sums by vectors of "
            f"{SUMS_VECTOR}; use those"
        )


def _types(acc: kir.Fragment, a: DType, b: DType) -> Iterable[str]:
    if a not in SUMS or (a != b and not (a.is_f8 and b.is_f8)):
        words = ", ".join(t.name for t in SUMS if not t.is_f8)
        yield (f" multiplies {a.name} by {b.name}; use one of {words} for both, or 8-bit floats")
    elif acc.dtype not in SUMS[a]:
        words = " or ".join(t.name for t in SUMS[a])
        yield f" adds up in {words}, {acc.name} is {acc.dtype.name}; make it {words}"


def _words(operand: kir.Fragment) -> Iterable[str]:
    wanted = VECTOR_NBYTES // operand.dtype.nbytes
    if wanted and operand.layout.vector != wanted:
        yield (
            f": {operand.name} is held by vectors of {operand.layout.vector}, a register has "
            f"{wanted} of {operand.dtype}; use vectors of {wanted}"
        )


def _shapes(
    acc: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...], dtype: DType
) -> Iterable[str]:
    step = STEP_NBYTES // dtype.nbytes
    if not len(acc) == len(a) == len(b) == 2 or acc != (a[0], b[0]) or a[1] != b[1]:
        yield (f": (M, N) {acc}, (M, K) {a} and (N, K) {b} do not fit; make M, N and K agree")
    elif a[1] % step:
        yield f": K is {a[1]}; use a multiple of {step}"
