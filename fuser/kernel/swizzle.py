"""Where the elements of a swizzled slot lie, and how the tensor core is told about it.

The numbers that device code gets as template arguments are computed here, where tests can compare
them with a model of the hardware.

Source: PTX ISA, "tensor swizzling modes"; "wgmma, asynchronous warpgroup level matrix shared memory
layout", "matrix descriptor format".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuser.kernel.memory import Buffer

CHUNK = 16
"""Bytes that change places as a whole; descriptors count in them."""
ATOM = 8
"""Rows after which a swizzle repeats."""
STEP = 32
"""Bytes along K that one instruction takes."""
BLOCK = 64
"""Rows of A, and of the accumulator, of one instruction."""
MODES = {128: 1, 64: 2, 32: 3}
"""Bits 62 and 63 of a matrix descriptor, by bytes of swizzle."""


def swizzled(byte: int, swizzle: int) -> int:
    """Return where the byte lies that would lie at `byte` without swizzle."""
    chunks = max(swizzle // CHUNK, 1)
    return byte ^ ((byte >> 7) % chunks) << 4


def address(buffer: Buffer, index: tuple[int, ...]) -> int:
    """Return the byte of a slot, swizzled or not, at which an element of the tile begins."""
    row = 0
    for at, n in zip(index[:-1], buffer.shape[:-1], strict=True):
        row = row * n + at
    along = index[-1] * buffer.dtype.nbytes
    if not buffer.swizzle:
        return row * buffer.shape[-1] * buffer.dtype.nbytes + along
    panel, within = divmod(along, buffer.swizzle)
    return swizzled((panel * rows(buffer) + row) * buffer.swizzle + within, buffer.swizzle)


def rows(buffer: Buffer) -> int:
    """Return how many rows a panel has: all of the tile."""
    return prod(buffer.shape[:-1])


@dataclass(frozen=True, slots=True)
class Panels:
    """The parts of a slot that one bulk copy each moves: `count` of `nbytes`, `cols` wide."""

    count: int
    nbytes: int
    cols: int


def panels(buffer: Buffer) -> Panels:
    """Return the panels of a slot; a slot without swizzle is one."""
    cols = buffer.shape[-1]
    if buffer.swizzle:
        cols = buffer.swizzle // buffer.dtype.nbytes
    count = buffer.shape[-1] // cols
    return Panels(count, buffer.slot_nbytes // count, cols)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a matrix descriptor of a swizzled slot holds but the address, in units of 16 bytes.

    M or N runs along the rows of the slot (MN-major), not K, where `transposed`.  `stride` leads
    from 8 rows to the next 8 (bits 32 to 45), `leading` from panel to panel along M or N (bits 16
    to 29; not looked at where K runs along rows), `block` from 64 rows of M to the next; `mode` is
    the swizzle (bits 62 and 63).  Instruction `s` along K starts at `s // per_panel * panel + s %
    per_panel * step`.
    """

    transposed: bool
    stride: int
    leading: int
    mode: int
    step: int
    per_panel: int
    panel: int
    block: int

    @property
    def high(self) -> int:
        """Upper 32 bits; the base offset (bits 49 to 51) is 0, as slots begin at whole atoms."""
        return self.mode << 30 | self.stride

    def start(self, block: int, step: int) -> int:
        """Return the offset of an instruction's operand from the slot, in units of 16 bytes."""
        panel, within = divmod(step, self.per_panel)
        return block * self.block + panel * self.panel + within * self.step


def descriptor(buffer: Buffer, *, transposed: bool) -> Descriptor:
    """Return the descriptor of a swizzled slot of (M or N, K), `transposed` of (K, M or N)."""
    stride = ATOM * buffer.swizzle // CHUNK
    mode = MODES[buffer.swizzle]
    panel = rows(buffer) * buffer.swizzle // CHUNK
    nbytes = buffer.dtype.nbytes
    if not transposed:
        per_panel = buffer.swizzle // STEP
        block = BLOCK * buffer.swizzle // CHUNK
        return Descriptor(False, stride, 1, mode, STEP // CHUNK, per_panel, panel, block)
    along_k = STEP // nbytes
    per_panel = max(rows(buffer) // along_k, 1)
    step = along_k * buffer.swizzle // CHUNK
    block = BLOCK * nbytes // buffer.swizzle * panel
    return Descriptor(True, stride, panel, mode, step, per_panel, 0, block)
