"""Where tensors and tiles lie at one launch, and what an access of them needs.

An ordinary access stays inside its tensor, and its width divides its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from fuser.kernel import ir as kir
from oracles.simulator.machine import Violation
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.shadow import GlobalShadow
from oracles.simulator.memory.tile import Atoms, left_operand, narrowed, row_major, stored, tile
from oracles.simulator.once import per_kernel
from oracles.simulator.sync.clock import Index
from oracles.simulator.unroll import Env, Event, compile_expr

TMA_GLOBAL, TMA_SHARED = 16, 128
"""Bytes that divide every global stride, and every shared address, of a tensor copy.

Source: PTX ISA, cp.async.bulk.tensor, alignment of `dstMem`; CUDA driver API,
cuTensorMapEncodeTiled, globalStrides.
"""
TMA_BOX = 256
"""Elements along an axis of a box at most.  Source: as above, boxDim."""
ATOM = 8
"""Rows of a swizzle, at whose multiples slots begin that engines use.  Source: PTX ISA, "tensor
swizzling modes", "matrix descriptor format" (the base offset is 0)."""
Valid = NDArray[np.bool_]
VECTORS = (1, 2, 4, 8, 16)
"""Bytes that a thread loads or stores at once.  Source: PTX ISA, "ld", "st", `.v2` and `.v4`."""


@dataclass(frozen=True, slots=True)
class View:
    """A global tensor at one launch: extents and strides as the kernel states them, evaluated.

    `steps` are the elements between neighbours in the simulator's dense array.
    """

    tensor: kir.Tensor
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]


def view(tensor: kir.Tensor, env: Env) -> View:
    """Evaluate a tensor's extents and strides."""
    extents = tuple(compile_expr(e)(env) for e in tensor.extents)
    strides = tuple(compile_expr(e)(env) for e in tensor.strides)
    return View(tensor, extents, strides, row_major(extents))


def broken_precondition(view: View, *, copied: bool) -> str:
    """Say in which way a launch breaks what a tensor needs of it; empty if in none.

    Of one that is `copied` by an engine the host encodes a tensor map, which asks more.
    """
    tensor, unit = view.tensor, view.tensor.aligned
    where = f"{tensor.name} has extents {view.extents} and strides {view.strides}"
    if any(n < 0 for n in view.extents):
        return f"{where}; extents count from 0"
    bent = [s for e, s in zip(tensor.strides, view.strides, strict=True) if e != 1 and s % unit]
    ends = view.extents[-1] if view.extents and tensor.extents[-1] != 1 else 0
    if bent or (ends % unit and not tensor.ragged):
        return f"{where}; it is declared aligned={unit}"
    rows = zip(view.extents[:-1], view.strides[:-1], strict=True)
    if copied and any(n > 1 and s * tensor.dtype.nbytes % TMA_GLOBAL for n, s in rows):
        return f"{where}; a tensor map needs strides of multiples of {TMA_GLOBAL} bytes"
    return ""


def covered(event: Event, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many positions along each axis lie below the limit."""
    return tuple(
        [
            max(0, min(n, last - first))
            for first, n, last in zip(event.origin, shape, event.limit, strict=True)
        ]
    )


def settle_box(
    view: View, event: Event, box: kir.Box, width: int, *, whole: bool
) -> tuple[int, ...]:
    """Check an ordinary access once for all threads, and return what of it is below the limit.

    Of a `whole` one the limit cuts no vector, not even in a ragged tensor.
    """
    if event.below is None:
        below = covered(event, box.shape)
        if all(below):
            _check_box(view, event, box, below, width, whole=whole or not view.tensor.ragged)
        event.base = sum(o * s for o, s in zip(event.origin, view.steps, strict=True))
        event.below = below
    return event.below


def check_width(width: int, nbytes: int) -> None:
    """Refuse vectors of `width` elements of `nbytes` that no load or store moves at once."""
    if width * nbytes not in VECTORS:
        says = f"{width} elements are {width * nbytes} bytes; threads access one of {VECTORS} bytes"
        raise Violation("bounds", says)


def _check_box(
    view: View, event: Event, box: kir.Box, valid: tuple[int, ...], width: int, *, whole: bool
) -> None:
    """Refuse an access that leaves its tensor or whose vectors are not aligned."""
    name = view.tensor.name
    for axis, (first, n, extent) in enumerate(zip(event.origin, valid, view.extents, strict=True)):
        if first < 0 or first + n > extent:
            says = f"axis {axis} of {name} has extent {extent}; the access covers "
            says += f"{first}..{first + n - 1}"
            raise Violation("bounds", says)
    if width == 1 or not box.shape or box.shape[-1] == 1:
        return
    check_width(width, view.tensor.dtype.nbytes)
    if view.tensor.strides[-1] != 1:
        raise Violation("bounds", f"{width} neighbours of {name} are not neighbours in memory")
    if view.tensor.aligned % width:
        raise Violation("bounds", f"width {width} does not divide aligned={view.tensor.aligned}")
    start = sum(o * s for o, s in zip(event.origin, view.strides, strict=True))
    rows = [s for s, n in zip(view.strides[:-1], box.shape[:-1], strict=True) if n > 1]
    if start % width or any(s % width for s in rows) or (whole and valid[-1] % width):
        says = f"vectors of {width} of {name} start at element {start}, rows are {rows} apart and "
        says += f"end after {valid[-1]}"
        raise Violation("bounds", says)


def check_slot(slot: kir.Slot, index: int, nbytes: int) -> None:
    """Refuse a slot that does not exist or whose address `nbytes` does not divide."""
    buffer = slot.buffer
    if not 0 <= index < buffer.slots:
        raise Violation("bounds", f"{buffer.name} has {buffer.slots} slots, none of number {index}")
    start = buffer.start(index)
    if start % nbytes:
        says = f"{buffer.name}[{index}] starts at byte {start}, no multiple of {nbytes}"
        raise Violation("bounds", says)


def check_once(view: View) -> None:
    """Refuse a tensor that repeats, for all but loads."""
    if view.tensor.cycles:
        raise Violation("bounds", f"{view.tensor.name} repeats; only loads find its elements")


def check_copy(view: View, event: Event, box: kir.Box, slot: kir.Slot) -> None:
    """Refuse a tensor copy whose shared or global addresses are not aligned."""
    check_once(view)
    check_slot(slot, event.index, max(TMA_SHARED, ATOM * slot.buffer.swizzle))
    row = box.shape[-1] * view.tensor.dtype.nbytes
    if max(box.shape) > TMA_BOX or row % TMA_GLOBAL:
        says = f"a box of {box.shape}, rows of {row} bytes: at most {TMA_BOX} elements along an "
        raise Violation("bounds", f"{says}axis, and rows of multiples of {TMA_GLOBAL} bytes")
    if event.map < 0 and event.limit != view.extents:
        raise Violation("bounds", f"the copy engine clips at {view.extents}, not at {event.limit}")
    if box.shape[-1] > 1 and view.tensor.strides[-1] != 1:
        raise Violation("bounds", f"neighbours of {view.tensor.name} are not neighbours in memory")


def check_run(view: View, event: Event, box: kir.Box, slot: kir.Slot) -> int:
    """Refuse a bulk copy that is no run of memory, or whose ends are not aligned.

    Return how many elements it copies.
    """
    check_once(view)
    check_slot(slot, event.index, TMA_GLOBAL)
    name, size = view.tensor.name, view.tensor.dtype.nbytes
    if slot.buffer.shape != box.shape or slot.buffer.dtype != view.tensor.dtype:
        raise Violation("bounds", f"a box of {box.shape} and a slot of {slot.buffer.shape}")
    below = covered(event, box.shape)
    if not all(below):
        return 0
    for axis, (first, n, extent) in enumerate(zip(event.origin, below, view.extents, strict=True)):
        if first < 0 or first + n > extent:
            says = f"axis {axis} of {name} has extent {extent}; the copy covers "
            raise Violation("bounds", f"{says}{first}..{first + n - 1}")
    flat = np.zeros(1, np.intp)
    for first, n, stride in zip(event.origin, below, view.strides, strict=True):
        flat = (flat[:, None] + np.arange(first, first + n) * stride).ravel()
    if (np.diff(flat) != 1).any() or _apart(below, box.shape):
        raise Violation("bounds", f"{below} of {box.shape} elements of {name} are no run of memory")
    unit = view.tensor.aligned * size
    if unit % TMA_GLOBAL or int(flat[0]) * size % TMA_GLOBAL or flat.size * size % TMA_GLOBAL:
        says = f"a bulk copy of {flat.size * size} bytes of {name} from byte {int(flat[0]) * size} "
        raise Violation("bounds", f"{says}on; both must be multiples of {TMA_GLOBAL}")
    return int(flat.size)


def _apart(below: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether part of a box does not lie at the beginning of its slot, in one piece."""
    cut = [axis for axis, (n, whole) in enumerate(zip(below, shape, strict=True)) if n < whole]
    return any(max(shape[:axis], default=1) > 1 for axis in cut)


def check_chunks(view: View, event: Event, box: kir.Box) -> None:
    """Refuse a tensor store over the end of a row that ends inside a chunk of 16 bytes."""
    end = event.limit[-1]
    nbytes = end * view.tensor.dtype.nbytes
    first = event.origin[-1]
    if first < end < first + box.shape[-1] and nbytes % TMA_GLOBAL:
        says = f"rows of {view.tensor.name} end after {nbytes} bytes; a store writes whole chunks "
        raise Violation("bounds", f"{says}of {TMA_GLOBAL}")


class Fixed:
    """What stays the same over all launches of one kernel: atoms, and where elements of slots lie.

    `copied` are the tensors that engines copy, `written` those that threads or engines write, and
    `read` those that they read.
    """

    def __init__(self, kernel: kir.Kernel) -> None:
        self.atoms = Atoms(kernel)
        every = list(kernel.walk())
        self.copied = {
            ref.tensor.name
            for stmt in every
            if isinstance(stmt, _COPIES) and not getattr(stmt, "bulk", False)
            for ref in (stmt.dst, stmt.src)
            if isinstance(ref, kir.Box)
        }
        self.written = {
            stmt.dst.tensor.name
            for stmt in every
            if isinstance(stmt, _WRITERS) and isinstance(stmt.dst, kir.Box)
        }
        self.read = {
            stmt.src.tensor.name
            for stmt in every
            if isinstance(stmt, _READERS) and isinstance(stmt.src, kir.Box)
        }
        self._flat: dict[tuple[int, int, int, int, bool], Index] = {}
        self._operands: dict[int, kir.Layout] = {}
        self._dealt: dict[int, tuple[kir.Layout, int]] = {}

    def in_slot(
        self, slot: kir.Slot, layout: kir.Layout, lo: int, hi: int, *, crossed: bool = False
    ) -> Index:
        """Flat positions within a slot of the elements those threads hold (objects of a kernel)."""
        key = (id(slot), id(layout), lo, hi, crossed)
        if key not in self._flat:
            shape = slot.buffer.shape
            part, steps = tile(layout, (lo, hi)), row_major(shape)
            flat = narrowed(part, shape, steps, crossed=crossed)
            self._flat[key] = self.atoms.lying(slot.buffer, flat)
        return self._flat[key]

    def dealt(self, stmt: Dealt) -> tuple[kir.Layout, int]:
        """Return how a statement deals a tile to threads, and elements per access."""
        if id(stmt) not in self._dealt:
            self._dealt[id(stmt)] = _dealt(stmt)
        return self._dealt[id(stmt)]

    def left_operand(self, stmt: kir.Wgmma, slot: kir.Buffer) -> kir.Layout:
        """Return how warpgroups share a left operand: for one statement always the same object."""
        if id(stmt) not in self._operands:
            self._operands[id(stmt)] = left_operand(stmt, slot)
        return self._operands[id(stmt)]


Dealt = kir.Load | kir.Store | kir.AtomicAdd | kir.CpAsync


def _dealt(stmt: Dealt) -> tuple[kir.Layout, int]:
    match stmt:
        case kir.Load(dst, _, width):
            return dst.layout, width
        case kir.Store(_, src, width):
            return stored(src.layout), width
        case kir.AtomicAdd(_, src):
            return stored(src.layout), 1
        case kir.CpAsync(_, _, layout, width):
            return layout, width


_COPIES = (kir.TmaLoad, kir.TmaStore, kir.TmaReduce, kir.QueueCopy)
_WRITERS = (kir.Store, kir.TmaStore, kir.TmaReduce, kir.AtomicAdd)
_READERS = (kir.Load, kir.TmaLoad, kir.CpAsync, kir.QueueCopy)

fixed = per_kernel(Fixed)
"""Returns what is fixed of a kernel."""


class Geometry:
    """What stays the same over all schedules of one launch: views, and where boxes lie in them."""

    def __init__(self, kernel: kir.Kernel, views: Mapping[str, View]) -> None:
        self.kernel = kernel
        self.views = views
        self.fixed = fixed(kernel)
        self.atoms = self.fixed.atoms
        self._flat: dict[tuple[int, int, int, int], Index] = {}
        self._below: dict[tuple[int, int, int, int, tuple[int, ...]], tuple[Index, Valid]] = {}

    def in_box(self, box: kir.Box, layout: kir.Layout, lo: int, hi: int) -> Index:
        """Flat positions, from the box's origin, of the elements those threads hold."""
        key = (id(box), id(layout), lo, hi)
        if key not in self._flat:
            steps = self.views[box.tensor.name].steps
            self._flat[key] = narrowed(tile(layout, (lo, hi)), box.shape, steps)
        return self._flat[key]

    def below(
        self, box: kir.Box, layout: kir.Layout, lo: int, hi: int, most: tuple[int, ...]
    ) -> tuple[Index, Valid]:
        """Of these positions those that lie below so many along each axis, and which they are."""
        key = (id(box), id(layout), lo, hi, most)
        if key not in self._below:
            flat = self.in_box(box, layout, lo, hi)
            valid = np.ones(flat.size, np.bool_)
            along = tile(layout, (lo, hi)).coordinates
            for x, n, size in zip(along, most, box.shape, strict=True):
                valid &= (x < n) if size > 1 else n > 0
            self._below[key] = flat[valid], valid
        return self._below[key]


class Tensors:
    """Global memory of one launch: arrays, and who touched what in any CTA."""

    def __init__(self, geometry: Geometry, arrays: Mapping[str, Array]) -> None:
        self.geometry = geometry
        self.flat = {name: array.reshape(-1) for name, array in arrays.items()}
        self.shaped = arrays
        kernel = geometry.kernel
        self.shadows = {
            name: GlobalShadow(
                np.zeros(prod(geometry.views[name].extents), np.bool_),
                name in geometry.fixed.read,
                name in kernel.workspaces,
                kernel.determinism == "bitwise" and geometry.views[name].tensor.dtype.is_float,
            )
            for name in {*geometry.fixed.written, *kernel.outputs, *kernel.workspaces}
        }
