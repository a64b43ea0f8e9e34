"""Tensor maps: what the TMA engine is told about a tensor, and the rules that a map must obey.

The rules are checked here, where no driver is needed; a GPU test compares them with what the
driver accepts.

Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.dtype import DType
from fuser.errors import ScheduleError

MAX_STRIDE = 2**40
MAX_EXTENT = 2**32


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A parameter of a kernel: boxes of `box` elements of one tensor.

    `axes` are the axes of the kernel along which the tensor varies, innermost first; `box` has one
    extent for each of them.
    """

    name: str
    tensor: kir.Tensor
    axes: tuple[int, ...]
    box: tuple[int, ...]


def map_of(box: kir.Box) -> TensorMap:
    """Return the map through which a box of global memory is copied."""
    extents = box.tensor.extents
    axes = tuple(axis for axis in reversed(range(len(extents))) if extents[axis] != 1)
    sizes = tuple(box.shape[axis] for axis in axes)
    name = f"{box.tensor.name}_map"
    return TensorMap(name, box.tensor, axes, sizes)


def maps_of(kernel: kir.Kernel) -> tuple[TensorMap, ...]:
    """Return the maps of a kernel, in the order of its parameters."""
    found: dict[str, TensorMap] = {}
    for stmt in kernel.walk():
        match stmt:
            case kir.TmaLoad(_, box) | kir.TmaStore(box):
                found[map_of(box).name] = map_of(box)
            case _:
                pass
    return tuple(found[name] for name in sorted(found))


def check(
    what: str,
    dtype: DType,
    address: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    *,
    swizzle_bytes: int = 0,
) -> None:
    """Raise unless the driver would accept this map.

    Parameters
    ----------
    what : str
        The call as the user wrote it; begins the message.
    dtype : DType
        Element type.
    address : int
        Byte address of element 0.
    dims, box : tuple of int
        Extents in elements, innermost first.
    strides : tuple of int
        Bytes from one element to the next along dims 1, 2, ...; one fewer than `dims`.
    swizzle_bytes : int
        Span of the swizzle, 0 for none; the box's row must not be longer.

    Raises
    ------
    ScheduleError
        Naming the number that breaks a rule, and the rule.
    """
    row = box[0] * dtype.nbytes if box else 0
    if not 1 <= len(dims) <= 5:
        raise ScheduleError(f"{what}: a tensor map has 1..5 axes, not {len(dims)}; use load=direct")
    if address % 16:
        raise ScheduleError(
            f"{what}: address {address:#x} is no multiple of 16 bytes; "
            'pass an aligned tensor or use load="direct"'
        )
    for axis, n in enumerate(dims):
        if not 1 <= n <= MAX_EXTENT:
            raise ScheduleError(f"{what}: axis {axis} has {n} elements; a map takes 1..2**32")
    for axis, stride in enumerate(strides, start=1):
        if stride % 16 or not 0 < stride < MAX_STRIDE:
            raise ScheduleError(
                f"{what}: axis {axis} has a stride of {stride} bytes; TMA needs a positive "
                'multiple of 16 below 2**40; pad the rows or use load="direct"'
            )
    for axis, n in enumerate(box):
        if not 1 <= n <= 256:
            raise ScheduleError(
                f"{what}: the box has {n} elements along axis {axis}; a box has 1..256"
            )
    if row % 16:
        raise ScheduleError(f"{what}: a row of the box is {row} bytes; TMA needs a multiple of 16")
    if swizzle_bytes and row > swizzle_bytes:
        raise ScheduleError(
            f"{what}: a row of the box is {row} bytes, longer than the {swizzle_bytes}-byte swizzle"
        )
