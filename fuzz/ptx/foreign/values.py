"""Inputs of products and attention, and what says which values a launch has wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fuzz.ptx.foreign.build import Arrays
from fuzz.ptx.subjects import Memory

Floats = npt.NDArray[np.float32]


def to_bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Return the bits of numbers in bf16, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(raw: npt.NDArray[np.uint8]) -> Floats:
    """Return bytes as the numbers in bf16 that they are."""
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def from_f16(raw: npt.NDArray[np.uint8]) -> Floats:
    """Return bytes as the numbers in f16 that they are."""
    return raw.view(np.float16).astype(np.float32)


def from_i32(raw: npt.NDArray[np.uint8]) -> Floats:
    """Return bytes as the integers below 2^24 that they are."""
    return raw.view(np.int32).astype(np.float32)


def integers(shape: tuple[int, ...], seed: int, most: int = 2) -> Floats:
    """Return small integers: sums of their products are exact in any order."""
    drawn = np.random.default_rng(seed).integers(-most, most + 1, shape)
    return drawn.astype(np.float32)


def put(buffer: npt.NDArray[np.uint8], raw: npt.NDArray[np.generic]) -> None:
    """Write the bytes of an array into a buffer of the same size."""
    buffer[:] = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)


def compared(
    name: str,
    want: Floats,
    read: Callable[[npt.NDArray[np.uint8]], Floats],
    *,
    near: float = 0.0,
) -> Callable[[Memory], str]:
    """Return what compares a buffer with numbers, equal or within `near`; NaN is near nothing."""

    def wrong(memory: Memory) -> str:
        got = read(memory[name]).reshape(want.shape)
        with np.errstate(invalid="ignore"):
            good = np.abs(got - want) <= near
        if good.all():
            return ""
        first = tuple(int(i) for i in np.argwhere(~good)[0])
        return (
            f"{int((~good).sum())} of {good.size} of {name} are wrong, first {first}: "
            f"{got[first]} in the place of {want[first]}"
        )

    return wrong


def product(
    m: int, n: int, k: int, *, rows: bool = True, turned: bool = False
) -> Callable[[Arrays], Callable[[Memory], str]]:
    """Return what fills a and b in bf16, and compares c.

    a is M x K, b is N x K or, without `rows`, K x N; c is M x N or, `turned`, N x M.
    """

    def fill(memory: Arrays) -> Callable[[Memory], str]:
        a, b = integers((m, k), 1), integers((n, k), 2)
        put(memory["a"], to_bf16(a))
        put(memory["b"], to_bf16(b if rows else b.T))
        made = from_bf16(to_bf16(a @ b.T).reshape(-1).view(np.uint8)).reshape(m, n)
        return compared("c", made.T if turned else made, from_bf16)

    return fill
