"""What `recorder.cpp` wrote of a launch -> a launch for the judge of PTX."""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

import numpy as np

from fuser.errors import CompileError
from oracles.ptx.launch import Argument, Buffer, Launch, Pointer, Scalar, Struct, TensorMap

MAP = b"tnsormap"
TYPES = {0: "u8", 1: "u16", 2: "u32", 3: "i32", 4: "u64", 5: "i64"}
TYPES |= {6: "f16", 7: "f32", 8: "f64", 9: "bf16"}
"""By CUtensorMapDataType."""
SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
"""Bytes, by CUtensorMapSwizzle."""


class Memories:
    """Which memory of the device an address is in."""

    def __init__(self, found: list[tuple[int, str, int]]) -> None:
        self.found = sorted(found)
        self.first = [at for at, _, _ in self.found]

    def pointer(self, address: int) -> Pointer | None:
        """Return an address as a place in a buffer, its end included; None if it is in none."""
        n = bisect_right(self.first, address) - 1
        if n < 0:
            return None
        at, name, nbytes = self.found[n]
        return Pointer(name, address - at) if address <= at + nbytes else None

    def parts(self, raw: bytes) -> list[tuple[int, Pointer | TensorMap]]:
        """Return the addresses and tensor maps among bytes, and where each begins."""
        found: list[tuple[int, Pointer | TensorMap]] = []
        at = 0
        while at + 8 <= len(raw):
            if raw[at : at + 8] == MAP and at + 128 <= len(raw):
                found.append((at, self.tensor_map(raw[at : at + 128])))
                at += 128
                continue
            place = self.pointer(int.from_bytes(raw[at : at + 8], "little"))
            if place is not None:
                found.append((at, place))
            at += 8
        return found

    def tensor_map(self, raw: bytes) -> TensorMap:
        """Return the tensor map that 128 bytes were written for."""
        words = struct.unpack("<16Q", raw)
        kind, rank, swizzle, fill = (words[3] >> shift & 255 for shift in (0, 8, 16, 24))
        place = self.pointer(words[2])
        assert place is not None, "a tensor map of memory that was not allocated"
        return TensorMap(
            place.buffer,
            TYPES[kind],
            tuple(word & 0xFFFFFFFF for word in words[4 : 4 + rank]),
            tuple(words[9 : 8 + rank]),
            tuple(word >> 32 for word in words[4 : 4 + rank]),
            SWIZZLES[swizzle],
            place.offset,
            bool(fill),
        )

    def argument(self, raw: bytes) -> Argument:
        """Return the bytes of a parameter as an argument."""
        parts = self.parts(raw)
        if len(parts) == 1 and len(raw) in (8, 128) and parts[0][0] == 0:
            return parts[0][1]
        taken = {at + i for at, one in parts for i in range(128 if _is_map(one) else 8)}
        plain = [
            (at, Scalar(byte, "u8")) for at, byte in enumerate(raw) if byte and at not in taken
        ]
        return Struct(len(raw), (*plain, *parts))


def _is_map(one: object) -> bool:
    return isinstance(one, TensorMap)


def launch_of(path: Path) -> Launch:
    """Read one launch, with the memory before it."""
    lines = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    once = {name: rest for name, *rest in lines if name not in ("argument", "memory")}
    held = [
        (rest[0], int(rest[1]), bytes.fromhex(rest[2])) for kind, *rest in lines if kind == "memory"
    ]
    memories = Memories([(at, name, len(raw)) for name, at, raw in held])
    given = [bytes.fromhex(rest[0]) for kind, *rest in lines if kind == "argument"]
    cluster = [int(one) for one in once["cluster"]]
    if cluster[1:] != [1, 1]:
        raise CompileError(
            f"{path}: clusters of {cluster}", "the judge of PTX has clusters along x"
        )
    buffers = {
        name: Buffer(name, np.frombuffer(raw, np.uint8).copy(), parts=tuple(memories.parts(raw)))
        for name, _, raw in held
    }
    x, y, z = (int(one) for one in once["grid"])
    i, j, k = (int(one) for one in once["block"])
    return Launch(
        (x, y, z),
        (i, j, k),
        tuple(memories.argument(raw) for raw in given),
        buffers,
        int(once["shared"][0]),
        cluster[0],
        once["kernel"][0],
        dependent=once["dependent"] == ["1"],
    )
