"""The 128 bytes of a tensor map, in a layout of our own.

The hardware's layout is opaque: kernels copy these bytes and let `tensormap.replace` change fields,
but nobody else looks inside.

Source: PTX ISA, "tensormap.replace" (fields, the table "Tensormap new_val validity"; rank is less
by one); CUDA driver API, cuTensorMapEncodeTiled (what a box, an address and strides may be).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracles.ptx.launch import SIZES, TensorMap
from oracles.ptx.text.translate import UnsupportedError

NBYTES = 128
"""Bytes of a tensor map."""
ALIGN = 64
LAYOUT = np.dtype(
    [
        ("global_address", "u8"),
        ("global_stride", "u8", 4),
        ("global_dim", "u4", 5),
        ("box_dim", "u4", 5),
        ("element_stride", "u4", 5),
        ("rank", "u4"),
        ("elemtype", "u1"),
        ("interleave_layout", "u1"),
        ("swizzle_mode", "u1"),
        ("swizzle_atomicity", "u1"),
        ("fill_mode", "u1"),
    ]
)
"""The fields that `tensormap.replace` names, as they lie here; no other agent looks inside."""
ELEMENTS = (
    *("u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f32", "f64", "bf16"),
    *("f32", "f32"),
)
"""Types of elements by their number (table "Tensormap new_val validity")."""
SWIZZLES = (0, 32, 64, 128)
"""Bytes of a swizzle by its number."""
NUMBERS = {kind: ELEMENTS.index(kind) for kind in ELEMENTS}
NUMBERS |= dict.fromkeys(("i8", "f8e4m3", "f8e5m2", "bool"), 0)
MOST_BOX = 256


@dataclass(frozen=True, slots=True)
class Described:
    """What a tensor map says; `place` is where in global memory it stands, -1 for a parameter."""

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    nan: bool
    place: int = -1

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]


def encoded(told: TensorMap, address: int) -> bytes:
    """Return the bytes of a map that the host makes of a tensor at an address."""
    made = np.zeros((), LAYOUT)
    rank = len(told.dims)
    made["global_address"], made["rank"] = address, rank - 1
    made["global_dim"][:rank], made["box_dim"][:rank] = told.dims, told.box
    made["global_stride"][: rank - 1] = told.strides[: rank - 1]
    made["element_stride"] = 1
    made["elemtype"] = NUMBERS[told.dtype]
    made["swizzle_mode"] = SWIZZLES.index(told.swizzle)
    made["fill_mode"] = told.nan
    return made.tobytes().ljust(NBYTES, b"\0")


@lru_cache(maxsize=256)
def decoded(raw: bytes, place: int = -1) -> Described:
    """Return what the bytes of a map say.

    ValueError, with the reason, where no copy may go through it; UnsupportedError for what is
    legal, but not modelled.
    """
    found = np.frombuffer(raw, LAYOUT, 1)[0]
    kind, rank = int(found["elemtype"]), int(found["rank"]) + 1
    if rank > len(found["global_dim"]) or kind >= len(ELEMENTS):
        raise ValueError(f"rank {rank}, elements of type {kind}: these bytes are no tensor map")
    made = Described(
        int(found["global_address"]),
        ELEMENTS[kind],
        tuple(found["global_dim"][:rank].tolist()),
        tuple(found["global_stride"][: rank - 1].tolist()),
        tuple(found["box_dim"][:rank].tolist()),
        SWIZZLES[int(found["swizzle_mode"]) % len(SWIZZLES)],
        bool(found["fill_mode"]),
        place,
    )
    row = made.box[0] * made.itemsize
    if not all(1 <= n <= MOST_BOX for n in made.box) or row % 16:
        raise ValueError(f"a box of {made.box}: 1..256 each, rows of whole 16 bytes")
    if not found["element_stride"][:rank].all():
        raise ValueError("elements of which none is taken (element_stride 0)")
    if made.swizzle and row > made.swizzle:
        raise ValueError(f"rows of {row} bytes in a swizzle of {made.swizzle}")
    if made.address % 16 or any(stride % 16 for stride in made.strides):
        raise ValueError(f"address {made.address:#x}, strides {made.strides}: multiples of 16")
    for name in ("interleave_layout", "swizzle_atomicity"):
        if found[name]:
            raise UnsupportedError(f"a tensor map of {name} {found[name]}")
    if found["swizzle_mode"] >= len(SWIZZLES):
        raise UnsupportedError(f"a tensor map of swizzle_mode {found['swizzle_mode']}")
    if (found["element_stride"][:rank] != 1).any():
        raise UnsupportedError(f"a tensor map of strides {found['element_stride'][:rank]}")
    return made
