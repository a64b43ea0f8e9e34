"""What is worked out once for a kernel, and known when it is launched again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from fuser.kernel import ir as kir

T = TypeVar("T")

KEPT = 16
"""Kernels that each function remembers; that which was asked for longest ago goes first."""


def per_kernel(make: Callable[[kir.Kernel], T]) -> Callable[[kir.Kernel], T]:
    """Remember what a function returns for the last kernels.

    They are told apart by identity: to hash one takes as long as most of these functions.
    """
    known: OrderedDict[int, tuple[kir.Kernel, T]] = OrderedDict()

    def asked(kernel: kir.Kernel) -> T:
        found = known.get(id(kernel))
        if found is None:  # it is kept beside, so that no other gets its number
            found = known[id(kernel)] = kernel, make(kernel)
            if len(known) > KEPT:
                known.popitem(last=False)
        else:
            known.move_to_end(id(kernel))
        return found[1]

    return asked
