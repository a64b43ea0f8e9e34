"""What a launch is: grid, block, cluster, shared bytes, arguments; also from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SIZES = {"u8": 1, "i8": 1, "f8e4m3": 1, "f8e5m2": 1, "bool": 1, "f16": 2, "bf16": 2, "u16": 2}
SIZES |= {"i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
"""Bytes of an element of each dtype."""


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of the device, named; a launch changes its bytes.

    `aligned` is the alignment of the first byte; `parts` are addresses and tensor maps that stand
    in it, each from some byte on: only a launch knows what bytes they are.
    """

    name: str
    data: Bytes
    aligned: int = 256
    parts: tuple[tuple[int, Pointer | Scalar | TensorMap], ...] = ()


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument: an address within a buffer."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """An argument: a number, of a dtype."""

    value: float
    dtype: str

    def content(self) -> bytes:
        """Return its bytes."""
        kinds = {"i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8", "f32": "<f4"}
        kinds |= {"f64": "<f8", "bool": "?", "u8": "u1", "i8": "i1", "u16": "<u2", "f16": "<f2"}
        kind = np.dtype(kinds[self.dtype])
        if kind.kind in "iu":
            return (int(self.value) % (1 << 8 * kind.itemsize)).to_bytes(kind.itemsize, "little")
        return np.array(self.value, kind).tobytes()


@dataclass(frozen=True, slots=True)
class TensorMap:
    """An argument: a tensor map, by what the driver is told (cuTensorMapEncodeTiled).

    `dims` and `box` are in elements, innermost first; `strides` are bytes along dims 1, 2, ...;
    `swizzle` is the span in bytes, 0 for none.  Reads out of bounds give 0, or NaN with `nan`.
    """

    buffer: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    offset: int = 0
    nan: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Struct:
    """An argument: so many bytes, zeros but for the parts, each of which begins at some byte."""

    nbytes: int
    parts: tuple[tuple[int, Pointer | Scalar | TensorMap], ...] = ()


Argument = Pointer | Scalar | TensorMap | Struct


@dataclass(eq=False, slots=True)
class Launch:
    """A small launch of one kernel.

    Parameters
    ----------
    grid, block : tuple of int
        CTAs and threads, each along x, y, z.
    arguments : tuple
        In the order of the kernel's parameters.
    buffers : dict of name to Buffer
        All memory that arguments point into; its bytes are the result.
    shared : int
        Dynamic shared bytes.
    cluster : int
        CTAs of a cluster, along x; what the kernel says (``.reqnctapercluster``) wins.
    entry : str
        The kernel; may be left out where the text has only one.
    resident : int
        CTAs that run at once, a multiple of the cluster; 0 is all of them.  Others begin when
        those before them have ended.
    dependent : bool
        Whether the launch may begin before earlier ones end (programmatic dependent launch): then
        memory is as they leave it only behind griddepcontrol.wait.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    shared: int = 0
    cluster: int = 1
    entry: str = ""
    resident: int = 0
    dependent: bool = False


def load(path: Path) -> Launch:
    """Read a launch from TOML; ValueError, with the key, if it says something else.

    Tables ``[buffers.NAME]`` with ``bytes`` and ``fill`` (a byte) or ``dtype`` and ``values``, and
    ``parts`` as below;
    ``[[arguments]]`` with ``buffer``, or ``value`` and ``dtype``, or ``map`` (a buffer) with
    ``dtype``, ``dims``, ``strides``, ``box``, ``swizzle``, or ``bytes`` and ``parts``, arguments
    of which each says ``at`` which byte of the structure it begins.
    """
    with path.open("rb") as file:
        raw = tomllib.load(file)
    try:
        buffers = {name: _buffer(name, one) for name, one in raw.get("buffers", {}).items()}
        return Launch(
            _three(raw["grid"]),
            _three(raw["block"]),
            tuple(_argument(one) for one in raw.get("arguments", ())),
            buffers,
            int(raw.get("shared", 0)),
            int(raw.get("cluster", 1)),
            str(raw.get("entry", "")),
            int(raw.get("resident", 0)),
            bool(raw.get("dependent", False)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: {error} is missing or of another type; see launch.load"
        ) from error


def _three(given: Any) -> tuple[int, int, int]:
    numbers = [given] if isinstance(given, int) else [*given]
    x, y, z = (*numbers, 1, 1)[:3]
    return int(x), int(y), int(z)


_KINDS = {"f32": "f4", "f64": "f8", "f16": "f2", "i32": "i4", "i64": "i8", "u8": "u1", "i8": "i1"}
_KINDS |= {"u32": "u4", "u64": "u8", "bool": "?"}


def _buffer(name: str, raw: dict[str, Any]) -> Buffer:
    if "values" in raw:
        data = np.array(raw["values"], _KINDS[raw["dtype"]]).view(np.uint8).copy()
    else:
        data = np.full(int(raw["bytes"]), int(raw.get("fill", 0)), np.uint8)
    return Buffer(name, data, parts=_parts(raw))


def _parts(raw: dict[str, Any]) -> tuple[tuple[int, Pointer | Scalar | TensorMap], ...]:
    return tuple((int(one["at"]), _plain(one)) for one in raw.get("parts", ()))


def _argument(raw: dict[str, Any]) -> Argument:
    if "bytes" in raw:
        return Struct(int(raw["bytes"]), _parts(raw))
    return _plain(raw)


def _plain(raw: dict[str, Any]) -> Pointer | Scalar | TensorMap:
    if "map" in raw:
        return TensorMap(
            raw["map"],
            raw["dtype"],
            tuple(raw["dims"]),
            tuple(raw.get("strides", ())),
            tuple(raw["box"]),
            int(raw.get("swizzle", 0)),
            int(raw.get("offset", 0)),
            bool(raw.get("nan", False)),
        )
    if "buffer" in raw:
        return Pointer(raw["buffer"], int(raw.get("offset", 0)))
    return Scalar(raw["value"], raw["dtype"])
