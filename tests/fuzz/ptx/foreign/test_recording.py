"""What was recorded of a launch becomes one: addresses, tensor maps, plain bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from fuser.errors import CompileError
from fuzz.ptx.foreign.recording import launch_of
from oracles.ptx.launch import Pointer, Scalar, Struct, TensorMap

FIRST, SECOND = 0x600000000000, 0x600100000000

# bf16, three axes, a swizzle of 128 bytes, no fill: as recorder.cpp writes it.
TILED = struct.pack(
    "<8s15Q",
    b"tnsormap",
    *(0, SECOND + 16, 9 | 3 << 8 | 3 << 16),
    *(64 | 64 << 32, 32 | 8 << 32, 4 | 1 << 32, 0, 0),
    *(128, 4096, 0, 0, 0, 0, 0),
)
MAP = TensorMap("b", "bf16", (64, 32, 4), (128, 4096), (64, 8, 1), 128, 16)

TEXT = f"""kernel _Z1kPi
grid 2 3 1
block 128 1 1
cluster 2 1 1
shared 4096
dependent 1
argument {struct.pack("<Q", FIRST + 8).hex()}
argument {struct.pack("<i", -2).hex()}
argument {TILED.hex()}
argument {(struct.pack("<Q", 7) + struct.pack("<Q", SECOND)).hex()}
memory a {FIRST} {"01" * 16}
memory b {SECOND} {struct.pack("<QQ", 5, FIRST).hex()}
"""


def test_a_launch_is_read(tmp_path: Path) -> None:
    """Grid, cluster, arguments and what stands in memory."""
    path = tmp_path / "0.launch"
    path.write_text(TEXT, encoding="utf-8")
    found = launch_of(path)
    assert (found.grid, found.block, found.cluster) == ((2, 3, 1), (128, 1, 1), 2)
    assert (found.shared, found.entry, found.dependent) == (4096, "_Z1kPi", True)
    pointer, number, tiled, both = found.arguments
    assert pointer == Pointer("a", 8)
    assert tiled == MAP
    assert isinstance(number, Struct)
    assert number.nbytes == 4
    assert [one for at, one in number.parts if at == 0] == [Scalar(0xFE, "u8")]
    assert isinstance(both, Struct)
    assert both.parts == ((0, Scalar(7, "u8")), (8, Pointer("b")))
    assert found.buffers["b"].parts == ((8, Pointer("a")),)
    assert (found.buffers["a"].data == np.full(16, 1, np.uint8)).all()


def test_a_map_within_a_structure_is_found(tmp_path: Path) -> None:
    """At the byte where it begins, and none of its words is taken for an address."""
    raw = bytes(64) + TILED + struct.pack("<Q", 3)
    path = tmp_path / "0.launch"
    text = TEXT.replace(f"argument {TILED.hex()}", f"argument {raw.hex()}")
    path.write_text(text, encoding="utf-8")
    assert launch_of(path).arguments[2] == Struct(len(raw), ((192, Scalar(3, "u8")), (64, MAP)))


def test_clusters_along_y_are_refused(tmp_path: Path) -> None:
    """The judge knows those along x; nothing is made of another."""
    path = tmp_path / "0.launch"
    path.write_text(TEXT.replace("cluster 2 1 1", "cluster 1 2 1"), encoding="utf-8")
    with pytest.raises(CompileError, match="clusters"):
        launch_of(path)
