"""Where data lives in the Kernel IR: tensors, shared buffers, registers, and tiles of them.

No statement here; `kernel_ir` hands these names on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuser.dtype import DType
from fuser.expr import Expr


@dataclass(frozen=True, slots=True)
class Tensor:
    """A global tensor, seen as a strided view of the loop domain.

    `extents[d]` is a parameter of the kernel, or 1 where the tensor does not vary along `d`.
    `strides[d]` is in elements, 0 where the extent is the literal 1.  `aligned` is a launch
    precondition in elements: the address, every stride but a literal 1, and the last extent are
    multiples of it.  Different tensors share no bytes, and an output does not overlap itself.
    """

    name: str
    dtype: DType
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    aligned: int = 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number given at launch."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Literal:
    """A number known when the kernel was built."""

    value: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared memory of one CTA: `slots` tiles of `shape`, each row-major, one after the other.

    `offset` is the first byte in the CTA's dynamic shared memory; a multiple of 128.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    slots: int
    offset: int

    @property
    def slot_nbytes(self) -> int:
        """Bytes of one slot."""
        return prod(self.shape) * self.dtype.nbytes

    @property
    def end(self) -> int:
        """First byte behind the last slot."""
        return self.offset + self.slots * self.slot_nbytes


@dataclass(frozen=True, slots=True)
class Layout:
    """How `threads` threads hold a tile of `shape`: vectors of neighbours, dealt out in turn.

    Row-major element `e` lies in vector `v = e // vector`, held by thread `v % threads` (counted
    within its role) as register `(v // threads) * vector + e % vector`.  The last extent is a
    multiple of `vector`.
    """

    shape: tuple[int, ...]
    vector: int
    threads: int

    @property
    def registers(self) -> int:
        """Elements that each thread holds (some threads may hold fewer valid ones)."""
        return -(-prod(self.shape) // (self.vector * self.threads)) * self.vector


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile in registers.  16-bit floats are held as f32, unrounded, until stored or cast."""

    name: str
    dtype: DType
    layout: Layout


@dataclass(frozen=True, slots=True)
class Box:
    """The elements `origin <= x < origin + shape` of a global tensor, without those past `limit`.

    Coordinates are those of the loop domain.  Along an axis where the tensor's extent is the
    literal 1, origin is 0, shape and limit are 1, and a fragment's elements share the one value.
    """

    tensor: Tensor
    origin: tuple[Expr, ...]
    shape: tuple[int, ...]
    limit: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a shared buffer; `0 <= index < buffer.slots`."""

    buffer: Buffer
    index: Expr
