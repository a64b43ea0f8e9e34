"""Which schedule a kernel that has whole rows at a time gets where the user names none.

What counts are bytes on their way: rows in registers while they are loaded, or in rings.  So a
thread holds so much of a row that registers are left for many CTAs an SM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fuser.arch import SM_90A
from fuser.schedule.domain import Access, Domain
from fuser.schedule.params import MAX_HELD, NormParams
from fuser.schedule.shape_class import ShapeClass

HELD = 32
"""Elements of a row that a thread has, of 16 bits where one input has whole rows."""
THREADS, MOST = 128, 1024
"""Threads of a CTA that has several rows, and of one that has the longest."""
SHORT = 1024
"""Elements of rows that need no ring: many CTAs an SM have theirs on the way at once."""
STAGES = 3
"""Slots of a ring, at most."""
BASE, STEP = 32, 8
"""Registers that a thread takes beside those for its elements, and what they are dealt out by.
Source: the assembler's log."""
FILE = 65_536
"""Registers of an SM.  Source: CUDA C++ Programming Guide, compute capabilities, 9.0."""


def fits_registers(domain: Domain, columns: int) -> bool:
    """Whether the registers of a CTA hold a row of all that the kernel reads, packed."""
    words = sum(_words(one) for one in _whole(domain, domain.reads))
    return columns * max(words, 0.5) <= FILE / 2 and columns <= MAX_HELD / 2 * MOST


def row_alignment(domain: Domain, shapes: ShapeClass) -> int:
    """Return the bytes of which all rows are multiples, 16 at most."""
    full = _whole(domain, (*domain.reads, *domain.writes))
    sizes = (shapes.elements(one.name) * one.tv.dtype.nbytes for one in full)
    return min((16, *sizes))


def default_norm_params(
    domain: Domain, loops: Sequence[int], *, aligned: int = 16, ring: bool = True
) -> NormParams:
    """Choose params by how long rows are.

    `loops` are the extents of its loop axes, `aligned` the bytes of which all rows are multiples;
    without `ring` inputs are loaded directly.
    """
    columns = max(prod(loops[axis] for axis in domain.rows), 1)
    tiles = prod(loops[axis] for axis in range(len(loops)) if axis not in domain.rows)
    full = _whole(domain, (*domain.reads, *domain.writes))
    widest = max((one.tv.dtype.nbytes for one in full), default=4)
    vector = max(1, min(16, aligned) // max(widest, 2))
    reads = [one for one in _whole(domain, domain.reads) if _moves(one, domain)]
    words = max(sum(_words(one) for one in reads), 0.5)
    held, lanes = HELD / 2 / words, 1
    while lanes < MOST and (lanes * held < columns or lanes * MAX_HELD < columns):
        lanes *= 2
    threads = max(lanes, THREADS)
    step = lanes * vector
    wide = columns + -columns % step
    rows = threads // lanes
    columns_only = len(_whole(domain, domain.reads)) - len(reads)
    slot = rows * wide * sum(one.tv.dtype.nbytes for one in reads)
    # A thread computes in f32 with what it holds packed, and a persistent one holds the columns.
    held = wide // lanes
    each = max(words, 1) + columns_only / 2
    registers = -(-(BASE + held * each) // STEP) * STEP
    resident = max(1, min(int(FILE // (threads * registers)), 2048 // threads, 32))
    stages = min(STAGES, (SM_90A.smem_bytes // resident - SM_90A.smem_bytes // 64) // max(slot, 1))
    if ring and columns > SHORT and stages > 1 and tiles > SM_90A.sms * resident * rows:
        return NormParams(
            (rows, wide), vector, threads // 32, resident, "cp_async", "direct", stages,
            stages - 1, lanes=lanes, resident=resident,
        )  # fmt: skip
    return NormParams(
        (rows, wide), vector, threads // 32, None, "direct", "direct", lanes=lanes,
        recompute=words < 1, resident=resident,
    )  # fmt: skip


def _whole(domain: Domain, some: Sequence[Access]) -> list[Access]:
    """Return what has an element for each of a row."""
    return [one for one in some if any(axis in one.coords for axis in domain.rows)]


def _moves(access: Access, domain: Domain) -> bool:
    """Tell whether rows differ."""
    return any(axis is not None and axis not in domain.rows for axis in access.coords) or all(
        axis in domain.rows for one in domain.reads for axis in one.coords if axis is not None
    )


def _words(access: Access) -> float:
    """Return a thread's registers for an element, packed."""
    return access.tv.dtype.nbytes / 4
