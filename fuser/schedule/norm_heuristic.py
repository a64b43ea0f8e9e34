"""Which schedule a kernel that has whole rows at a time gets where the user names none.

What counts are bytes on their way: rows in registers while they are loaded, or in rings.  So a
thread holds so much of a row that registers are left for many CTAs an SM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fuser.arch import SM_90A, SPARE_REGISTERS
from fuser.schedule.domain import Access, Domain
from fuser.schedule.params import NormParams
from fuser.schedule.shape_class import ShapeClass

HELD = 32
"""Elements of a row that a thread has, of 16 bits.  Measured on an H200, rms norm of 32768 x 4096:
131 us; with 16 elements 139, with 8 193; softmax backward 185, with 16 elements 201."""
SLACK = 1.125
"""Times as many, rather than twice the threads.  Measured on an H200, layer norm of 20011 x 4099:
33 elements of 128 threads 176 us, 17 of 256 threads 219."""
SECTORS = 64
"""Bytes that the threads of a row read next to each other, at least."""
THREADS, MOST = 128, 512
"""Threads of a CTA that has several rows, and of a long one, unless that is too long for them.
Measured on an H200, softmax of 8192 x 32768: 512 threads 348 us, 1024 threads 368."""
LONG, HEAVY = 16_384, 8_192
"""Elements of rows from which on the next one is copied while one is computed, and the same with
several weights: few CTAs have an SM.  Measured on an H200, rms norm of 32768 x 4096: direct 131 us,
by a ring 142; softmax of 8192 x 32768: by a ring 296, direct 367; layer norm of 16384 x 8192: 140
and 145."""
SHARE, WEIGHED = 16_384, 8_192
"""Words of a row that a CTA has, of all inputs that have rows, without weights and with: beyond,
the assembler spills.  Longer rows have a cluster."""
MOST_CTAS = 8
"""CTAs of a cluster.  Source: CUDA C++ Programming Guide, "thread block clusters"."""
STAGES = 3
"""Slots of a ring, at most."""
ENOUGH = 512
"""Threads of every SM that rows are to be dealt to, should there be few."""
BASE, MORE, STEP = 24, 16, 8
"""Registers that a thread takes beside those for its elements, more for several inputs, and what
they are dealt out by.
Source: the assembler's log."""
WEIGHT = 0.375
"""Registers for an element of a weight: packed, and loaded with the others."""
UNALIGNED = 1.4
"""Times as many where elements are loaded one by one."""
FILE = 65_536
"""Registers of an SM.  Source: CUDA C++ Programming Guide, compute capabilities, 9.0."""


def fits_registers(domain: Domain, columns: int) -> bool:
    """Whether the registers of a CTA hold a row of all that the kernel reads, packed."""
    words = sum(_words(one) for one in _whole(domain, domain.reads) if _moves(one, domain))
    return columns * max(words, 0.5) <= MOST_CTAS * SHARE


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
    without `ring` inputs are loaded directly.  Of rows that no registers hold there are columns for
    a part; the cut leaves them to other kernels.
    """
    columns = max(prod(loops[axis] for axis in domain.rows), 1)
    tiles = prod(loops[axis] for axis in range(len(loops)) if axis not in domain.rows)
    full = _whole(domain, (*domain.reads, *domain.writes))
    widest = max((one.tv.dtype.nbytes for one in full), default=4)
    vector = max(1, min(16, aligned) // max(widest, 2))
    reads = [one for one in _whole(domain, domain.reads) if _moves(one, domain)]
    words = max(sum(_words(one) for one in reads), 0.5)
    weights = len(_whole(domain, domain.reads)) - len(reads)
    cluster, share = 1, WEIGHED if weights else SHARE
    while cluster < MOST_CTAS and columns * words > share * cluster:
        cluster *= 2
    columns = min(-(-columns // cluster), int(2 * SHARE / words))
    held, lanes = HELD * 2 / max(widest, 2) * SLACK, 1
    while lanes < MOST and lanes * held < columns:
        lanes *= 2
    while lanes * vector * widest < SECTORS and lanes * vector < columns:
        lanes *= 2
    while (
        lanes < MOST and tiles * cluster * lanes < SM_90A.sms * ENOUGH and lanes * vector < columns
    ):
        lanes *= 2
    while lanes < 2 * MOST and lanes * 2 * held < columns:
        lanes *= 2
    threads = max(lanes, THREADS)
    step = lanes * vector
    wide = columns + -columns % step
    rows = threads // lanes
    slot = rows * wide * sum(one.tv.dtype.nbytes for one in reads)
    # A thread computes in f32 with what it holds packed, and takes all of its columns at once.
    held = wide // lanes
    room = min(FILE // threads, 255) - SPARE_REGISTERS
    recompute = held >= room
    registers = BASE + MORE * (len(reads) > 1) + held * (max(words, 1) + weights * WEIGHT)
    registers += STEP * (rows > 1)
    registers *= UNALIGNED if vector * widest < 8 else 1
    registers = -(-int(registers) // STEP) * STEP
    resident = max(1, min(FILE // (threads * registers), 2048 // threads, 32))
    stages = min(STAGES, (SM_90A.smem_bytes // resident - SM_90A.smem_bytes // 64) // max(slot, 1))
    long = columns > LONG or (weights > 1 and columns >= HEAVY)
    if ring and cluster == 1 and long and stages > 1 and tiles > SM_90A.sms * resident * rows:
        return NormParams(
            (rows, wide), vector, threads // 32, resident, "cp_async", "direct", stages,
            stages - 1, lanes=lanes, recompute=recompute, resident=resident, hold=weights == 0,
        )  # fmt: skip
    return NormParams(
        (rows, wide), vector, threads // 32, None, "direct", "direct", lanes=lanes,
        recompute=recompute, resident=resident, cluster=cluster,
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
