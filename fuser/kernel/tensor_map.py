"""Tensor maps: what the TMA engine is told about a tensor, and the rules that a map must obey.

The rules are checked here, where no driver is needed; a GPU test compares them with what the
driver accepts.

Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.swizzle import panels

MAX_STRIDE = 2**40
MAX_EXTENT = 2**32


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A parameter of a kernel: boxes of `box` elements of one tensor.

    `axes` are the axes of the kernel along which the tensor varies, innermost first; `box` has one
    extent for each of them.  With a `swizzle` a box is one panel of a slot.
    """

    name: str
    tensor: kir.Tensor
    axes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    def encoding(
        self, address: int, extents: tuple[int, ...], strides: tuple[int, ...]
    ) -> Encoding:
        """Return what the driver is told of a tensor at an address; strides in elements."""
        dtype = self.tensor.dtype
        dims = tuple(extents[axis] for axis in self.axes)
        steps = tuple(strides[axis] * dtype.nbytes for axis in self.axes[1:])
        return Encoding(dtype, address, dims, steps, self.box, self.swizzle)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the driver is told of a tensor whose numbers are known.

    `address` is that of element 0, in bytes; `dims` and `box` are in elements, innermost first;
    `strides` are bytes from one element to the next along dims 1, 2, ...; `swizzle` is the span in
    bytes, 0 for none, which the box's row must not exceed.
    """

    dtype: DType
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    def check(self, what: str) -> None:
        """Raise a ScheduleError, by the call `what`, unless the driver would accept it."""
        for wrong in self._broken():
            raise ScheduleError(f"{what}: {wrong}")

    def _broken(self) -> Iterator[str]:
        row = self.box[0] * self.dtype.nbytes if self.box else 0
        if not 1 <= len(self.dims) <= 5:
            yield f"a tensor map has 1..5 axes, not {len(self.dims)}; use load=direct"
        if self.address % 16:
            have = f"address {self.address:#x} is no multiple of 16 bytes"
            yield f'{have}; pass an aligned tensor or use load="direct"'
        for axis, n in enumerate(self.dims):
            if not 1 <= n <= MAX_EXTENT:
                yield f"axis {axis} has {n} elements; a map takes 1..2**32"
        for axis, stride in enumerate(self.strides, start=1):
            if stride % 16 or not 0 < stride < MAX_STRIDE:
                yield (
                    f"axis {axis} has a stride of {stride} bytes; TMA needs a positive multiple "
                    'of 16 below 2**40; pad the rows or use load="direct"'
                )
        for axis, n in enumerate(self.box):
            if not 1 <= n <= 256:
                yield f"the box has {n} elements along axis {axis}; a box has 1..256"
        if row % 16:
            yield f"a row of the box is {row} bytes; TMA needs a multiple of 16"
        if self.swizzle and row > self.swizzle:
            yield f"a row of the box is {row} bytes, longer than the {self.swizzle}-byte swizzle"


def map_of(kernel: kir.Kernel, box: kir.Box, slot: kir.Slot) -> TensorMap:
    """Return the map through which a box of global memory is copied into or out of a slot.

    ScheduleError if the slot is swizzled along an axis that the tensor does not have.
    """
    wanted = _unnamed(box, slot)
    return next(m for m in maps_of(kernel) if replace(m, name="") == wanted)


def template_of(kernel: kir.Kernel, maps: kir.TensorMaps) -> TensorMap:
    """Return the map of the launch of which those that the kernel writes are copies.

    Raises
    ------
    ScheduleError
        If no copy goes through them, or copies of several shapes or swizzles do.
    """
    found = dict.fromkeys(map_of(kernel, box, slot) for box, slot in _through(kernel, maps))
    if len(found) != 1:
        raise ScheduleError(
            f"TensorMaps({maps.name}): copies of {len(found)} forms go through them; a map has "
            "one box and one swizzle: use maps of their own for each"
        )
    return next(iter(found))


def _through(kernel: kir.Kernel, maps: kir.TensorMaps) -> Iterator[tuple[kir.Box, kir.Slot]]:
    for stmt in kernel.walk():
        match stmt:
            case kir.TmaLoad(slot, box, through=kir.MapSlot(used)) if used == maps:
                yield box, slot
            case kir.TmaStore(box, slot, kir.MapSlot(used)) | kir.TmaReduce(
                box, slot, kir.MapSlot(used)
            ) if used == maps:
                yield box, slot
            case _:
                pass


def maps_of(kernel: kir.Kernel) -> tuple[TensorMap, ...]:
    """Return the maps of a kernel, in the order of its parameters.

    A tensor that is copied by boxes of several shapes, or into different swizzles, has a map for
    each: `T_map`, `T_map2`, ... in program order.
    """
    found: dict[TensorMap, TensorMap] = {}
    count: dict[str, int] = {}
    for stmt in kernel.walk():
        match stmt:
            case kir.TmaLoad(bulk=True) | kir.TmaStore(bulk=True):
                continue
            case kir.TmaLoad(kir.Slot() as slot, box):
                made = _unnamed(box, slot)
            case kir.TmaStore(box, slot) | kir.TmaReduce(box, slot):
                made = _unnamed(box, slot)
            case _:
                continue
        if made not in found:
            tensor = made.tensor.name
            count[tensor] = count.get(tensor, 0) + 1
            number = str(count[tensor]) if count[tensor] > 1 else ""
            found[made] = replace(made, name=f"{tensor}_map{number}")
    return tuple(sorted(found.values(), key=lambda m: m.name))


def _unnamed(box: kir.Box, slot: kir.Slot) -> TensorMap:
    extents, buffer = box.tensor.extents, slot.buffer
    axes = tuple(axis for axis in reversed(range(len(extents))) if extents[axis] != 1)
    sizes = tuple(box.shape[axis] for axis in axes)
    if buffer.swizzle:
        if not axes or axes[0] != len(extents) - 1:
            raise ScheduleError(
                f"Buffer({buffer.name}, swizzle={buffer.swizzle}): {box.tensor.name} has one "
                "element along the last axis, which a swizzle cuts into panels; use swizzle=0"
            )
        sizes = (panels(buffer).cols, *sizes[1:])
    return TensorMap("", box.tensor, axes, sizes, buffer.swizzle)
