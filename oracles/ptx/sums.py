"""The sums of a tensor core: rounded once, or as hardware is known to make them.

The ISA leaves order and rounding of the accumulation open.  Hopper's tensor cores add all products
of an instruction and the accumulator at once, each cut off at a place below the largest of their
exponents; the sum is cut off to the type of the result.  Of 8-bit floats fewer places are kept.

Source: PTX ISA, "mma", "wgmma.mma_async"; M. Fasi, N. Higham, M. Mikaitis, S. Pranesh, "Numerical
behavior of NVIDIA tensor cores", 2021; F. Khattak, M. Mikaitis, "Accurate models of NVIDIA tensor
cores", 2025; DeepSeek-V3 technical report, 2024, "Increasing accumulation precision" (f8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]

Sums = Callable[[Floats, Floats, Floats, str, str], Floats]
"""Gives the sum of the product of two f64 matrices (... x M x K, ... x K x N) and a third, in f64:
the types of the elements and of the result are named."""

LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
"""The least exponent of normal numbers; subnormal ones have it, too."""
KEPT = {"f32": 23, "f16": 10}
"""Bits behind the point of a result."""


def once(left: Floats, right: Floats, held: Floats, kind: str, to: str) -> Floats:
    """Sum in f64: what its caller rounds is exact where numbers are small integers."""
    del kind, to
    return np.asarray(left @ right + held)


@dataclass(frozen=True, slots=True)
class Core:
    """How a tensor core sums.

    Parameters
    ----------
    bits : int
        Places below the largest exponent that each product keeps.
    of_f8 : int
        Likewise of products of 8-bit floats; sums keep as many behind the point.
    parts : int
        So many sums, one after the other, each of a part of the products.
    """

    bits: int = 25
    of_f8: int = 13
    parts: int = 1

    def __call__(self, left: Floats, right: Floats, held: Floats, kind: str, to: str) -> Floats:
        """Return the sums of products; of integers, and where one is no number, as in f64."""
        plain = once(left, right, held, kind, to)
        if to == "s32":
            return plain
        small = kind in ("e4m3", "e5m2")
        total = held
        for a, b in zip(
            np.split(left, self.parts, axis=-1), np.split(right, self.parts, axis=-2), strict=True
        ):
            total = self._added(a, b, total, kind, self.of_f8 if small else self.bits)
            if to == "f32":
                total = cut_off(total, self.of_f8 if small else KEPT[to])
        return np.where(np.isfinite(plain), total, plain)

    def _added(self, left: Floats, right: Floats, held: Floats, kind: str, bits: int) -> Floats:
        ea, eb = exponents(left, LEAST[kind]), exponents(right, LEAST[kind])
        each = ea[..., :, :, None] + eb[..., None, :, :]
        most = np.maximum(each.max(axis=-2), exponents(held, LEAST["f32"]))
        unit = np.exp2((most - bits).astype(np.float64))
        terms = np.trunc(left[..., :, :, None] * right[..., None, :, :] / unit[..., :, None, :])
        return np.asarray((terms.sum(axis=-2) + np.trunc(held / unit)) * unit)


NOTHING = -1000
"""Exponent of 0: below all others, and of their sums."""


def exponents(x: Floats, least: int) -> npt.NDArray[np.int64]:
    """Return the exponents of numbers as their type holds them."""
    _, found = np.frexp(x)
    return np.where(x == 0, NOTHING, np.maximum(found.astype(np.int64) - 1, least))


def cut_off(x: Floats, bits: int) -> Floats:
    """Leave so many bits behind the point, of subnormal f32 numbers those that there are."""
    unit = np.exp2((exponents(x, LEAST["f32"]) - bits).astype(np.float64))
    return np.where(x == 0, 0.0, np.trunc(x / unit) * unit)
