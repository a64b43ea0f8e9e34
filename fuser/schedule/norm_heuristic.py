"""Which schedule a kernel that has whole rows at a time gets where the user names none."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fuser.schedule.domain import Access, Domain
from fuser.schedule.params import NormParams

LONGEST = 65_536
"""Elements of 16 bits of the longest row that a CTA holds: 64 in each of 1024 threads."""
CTA = 128
"""Threads of a CTA that has several rows, or one that they share."""


def fits_registers(domain: Domain, columns: int) -> bool:
    """Whether the registers of a CTA hold a row of all that the kernel reads."""
    return columns * _words(domain) <= LONGEST // 2


def default_norm_params(domain: Domain, loops: Sequence[int]) -> NormParams:
    """Choose params by how long rows are: 8 lanes and more a row, 16 to 64 elements a lane."""
    columns = max(prod(loops[axis] for axis in domain.rows), 1)
    full = [access for access in (*domain.reads, *domain.writes) if _whole(access, domain)]
    widest = max((access.tv.dtype.nbytes for access in full), default=4)
    vector = max(1, min(8, 16 // max(widest, 2)))
    held = 32 if widest <= 2 else 16
    lanes = 1
    while lanes < 1024 and lanes * held < columns:
        lanes *= 2
    threads = max(lanes, CTA)
    step = lanes * vector
    tile = (threads // lanes, columns + -columns % step)
    return NormParams(tile, vector, threads // 32, None, "direct", "direct", lanes=lanes)


def _whole(access: Access, domain: Domain) -> bool:
    return any(axis in access.coords for axis in domain.rows)


def _words(domain: Domain) -> float:
    """Return a thread's registers for an element of a row: what is read, or the f32 it becomes."""
    read = sum(a.tv.dtype.nbytes / 4 for a in domain.reads if _whole(a, domain))
    return max(read, 0.5)
