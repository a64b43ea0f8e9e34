"""The bytes of a tensor map: what goes in comes out, and what is none is refused."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.ptx.launch import TensorMap
from oracles.ptx.maps.encoding import LAYOUT, NBYTES, Described, decoded, encoded
from oracles.ptx.text.translate import UnsupportedError

TOLD = TensorMap("x", "bf16", (96, 80, 3), (192, 15360), (64, 16, 1), 128, nan=True)


def changed(**fields: int) -> bytes:
    """Return the bytes of a good map, some of its fields changed."""
    raw = np.frombuffer(encoded(TOLD, 0x1000), np.uint8).copy()
    for name, value in fields.items():
        raw[: LAYOUT.itemsize].view(LAYOUT)[name][0] = value
    return raw.tobytes()


def test_a_map_says_what_the_host_said() -> None:
    """Whatever its rank; the type of eight bits has no name in it."""
    assert len(encoded(TOLD, 0x1000)) == NBYTES
    want = Described(0x1000, "bf16", TOLD.dims, TOLD.strides, TOLD.box, 128, nan=True)
    assert decoded(encoded(TOLD, 0x1000)) == want
    line = TensorMap("x", "f8e4m3", (96,), (), (32,))
    assert decoded(encoded(line, 16)) == Described(16, "u8", (96,), (), (32,), 0, nan=False)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rank": 0xFFFFFFFF}, "no tensor map"),
        ({"elemtype": 0xFF}, "no tensor map"),
        ({"box_dim": 0}, "a box of"),
        ({"box_dim": 257}, "a box of"),
        ({"box_dim": 4}, "whole 16 bytes"),
        ({"swizzle_mode": 1}, "rows of 128 bytes in a swizzle of 32"),
        ({"global_address": 8}, "multiples of 16"),
        ({"global_stride": 24}, "multiples of 16"),
    ],
)
def test_what_no_copy_may_use_is_refused(fields: dict[str, int], says: str) -> None:
    """As the driver refuses to encode it."""
    with pytest.raises(ValueError, match=says):
        decoded(changed(**fields))


@pytest.mark.parametrize(
    "field", ["interleave_layout", "swizzle_atomicity", "swizzle_mode", "element_stride"]
)
def test_what_is_legal_but_not_modelled_is_named(field: str) -> None:
    """It is no failure of the kernel."""
    with pytest.raises(UnsupportedError, match=field if "element" not in field else "strides"):
        decoded(changed(**{field: 4}))
