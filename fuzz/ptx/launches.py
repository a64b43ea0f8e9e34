"""From a case and its compiled program to launches of the judge of PTX, and their memory."""

from __future__ import annotations

import numpy as np
import torch

from fuser.codegen import cuda
from fuser.codegen.expr import REGISTER, divisors, reciprocal
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import TensorMap as Map
from fuser.kernel.tensor_map import maps_of
from fuser.runtime.call import number, shape
from fuser.runtime.kernel_launch import values_of
from fuser.runtime.scratch import counts, elements
from fuzz.campaign.launches import Call
from oracles.ptx.launch import Argument, Buffer, Launch, Pointer, Scalar, TensorMap

_SCALAR = {"double": "f64", "float": "f32", "int": "i32", "int64": "i64", "bool": "bool"}
"""Dtype of an argument by the type of a register."""
POISON = 0xFF
"""What workspaces hold: NaNs."""
MAP = 128
"""Bytes of a tensor map."""


def launch_of(call: Call, counters: dict[str, Buffer], *, few: bool = False) -> Launch:
    """Return the launch of a call, whose buffers are the memory of its tensors.

    `counters` holds semaphores and tickets from launch to launch; it is filled on the way.  With
    `few` no more CTAs run at once than the kernel asks for.
    """
    kernel = call.kernel
    assert call.launch is not None, "launches of nothing are left out"
    grid = call.launch.grid
    values = values_of(kernel, grid, call.launch.params)
    buffers: dict[str, Buffer] = {}
    arguments: dict[str, Argument] = {}
    for tensor in kernel.tensors:
        arguments[tensor.name] = _tensor(tensor, call.views, values, buffers)
    for param in kernel.params:
        kind = "i64" if cuda.is_wide(kernel, param) else "i32"
        arguments[param.name] = Scalar(call.launch.params[param.name], kind)
    for divisor, by in divisors(kernel).items():
        arguments[by.name] = Scalar(reciprocal(number(divisor, values)), "i64")
    for scalar in kernel.scalars:
        kind = _SCALAR[REGISTER[scalar.dtype]]
        arguments[scalar.name] = Scalar(call.scalars[scalar.name], kind)
    for name, many in counts(kernel, values).items():
        held = counters.setdefault(f"{kernel.name}.{name}", Buffer(name, _bytes(4 * many, 0)))
        if name in kernel.counters:
            held.data[:] = 0
        buffers[name] = held
        arguments[name] = Pointer(name)
    for written in kernel.maps:
        buffers[written.name] = Buffer(written.name, _bytes(grid * written.slots * MAP, POISON))
        arguments[written.name] = Pointer(written.name)
    for made in maps_of(kernel):
        arguments[made.name] = _map(made, arguments[made.tensor.name], values)
    resident = 0
    if few and kernel.residency != "co-resident":
        least = max(number(kernel.together, values), kernel.cluster)
        resident = -(-least // kernel.cluster) * kernel.cluster
    return Launch(
        (grid, 1, 1),
        (kernel.threads, 1, 1),
        tuple(arguments[name] for name in cuda.parameters(kernel)),
        buffers,
        cuda.shared_bytes(kernel),
        kernel.cluster,
        kernel.name,
        resident,
        kernel.dependent,
    )


def left_over(counters: dict[str, Buffer], drawn: frozenset[str]) -> list[str]:
    """Return the counters that launches did not leave at 0, but for those that are drawn from."""
    return [
        f"{name} holds {one.data.view(np.int32).tolist()[:8]} after the launch"
        for name, one in counters.items()
        if one.data.any() and name not in drawn
    ]


def nbytes_of(workspace: kir.Tensor, values: dict[Var, Expr]) -> int:
    """Return the bytes of a tensor that no caller gives, in whole vectors."""
    return -(-elements(workspace, values) * workspace.dtype.nbytes // 16) * 16


def _bytes(many: int, fill: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.full(many, fill, np.uint8)


def _tensor(
    tensor: kir.Tensor,
    views: dict[str, torch.Tensor],
    values: dict[Var, Expr],
    buffers: dict[str, Buffer],
) -> Pointer:
    """Return the address of a tensor's first element; tensors of one storage share a buffer."""
    view = views.get(tensor.name)
    if view is None:
        buffers[tensor.name] = Buffer(tensor.name, _bytes(nbytes_of(tensor, values), POISON))
        return Pointer(tensor.name)
    storage = view.untyped_storage()
    offset = int(view.storage_offset()) * view.element_size()
    for name, one in buffers.items():
        if len(one.data) and one.data.ctypes.data == storage.data_ptr():
            return Pointer(name, offset)
    raw = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    buffers[tensor.name] = Buffer(tensor.name, raw)
    return Pointer(tensor.name, offset)


def _map(made: Map, at: Argument, values: dict[Var, Expr]) -> TensorMap:
    assert isinstance(at, Pointer)
    told = made.encoding(0, *shape(made.tensor, values))
    return TensorMap(
        at.buffer,
        told.dtype.name.lower(),
        told.dims,
        told.strides,
        told.box,
        told.swizzle,
        at.offset,
    )
