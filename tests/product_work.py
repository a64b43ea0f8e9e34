"""What products compute, as the cost model sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuser.schedule.products.cost import Work


def work(m: int, n: int, k: int, **other: Any) -> Work:
    """A plain product of 16-bit operands."""
    plain = Work(1, m, n, -(-k // 64), 1, 0, 0, (2 * k, 2 * k), 2 * n, parts=False)
    return replace(plain, **other)
