"""Small kernels of Triton, right and wrong ones."""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit
def shifted(x, out, n, BLOCK: tl.constexpr):
    """Copy; the last CTA reads what the others store, and nothing orders it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def racing(out, BLOCK: tl.constexpr):
    """Every CTA adds 1 to the same numbers, by a load and a store."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at) + 1)


@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def of_one_block(x, out, n, BLOCK: tl.constexpr):
    """Copy by one CTA whose block follows from the number of elements."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def added(x, out, n, BLOCK: tl.constexpr):
    """Add up all numbers, a sum of each CTA at a time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))
