"""Launches for the simulator: small ones made up for a kernel, and those of a case."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np
import numpy.typing as npt
import torch

from fuser import kernel_ir as kir
from fuser import pipeline
from fuser.binding import Binding
from fuser.dtype import DType
from fuser.expr import Var
from fuser.fusion_ir import Scalar
from fuzz.case import POISON, Case, Value, output_specs
from oracles.simulator import Launch

Array = npt.NDArray[np.generic]

_TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
_TMA_BYTES = 16
"""Strides that TMA takes are multiples of this."""


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One launch of a case as the simulator takes it.

    Parameters
    ----------
    kernel : Kernel
        What is launched.
    launch : Launch or None
        How; None where there is nothing to compute.
    arrays : dict
        Per tensor of the kernel a dense array in register form.
    scalars : dict
        Per scalar its value.
    targets : dict
        Per output of the kernel the strided view of the fusion's output that it stands for.
    """

    kernel: kir.Kernel
    launch: Launch | None
    arrays: dict[str, Array]
    scalars: dict[str, float]
    targets: dict[str, torch.Tensor]

    def store(self) -> None:
        """Write what the simulator left in the arrays into the fusion's outputs."""
        for name, target in self.targets.items():
            if target.numel():
                target.copy_(torch.from_numpy(self.arrays[name]))


def with_trips(launch: pipeline.Launch, trips: int) -> Launch:
    """Return a launch in which every CTA gets `trips` tiles; with 0, only the last CTA runs.

    Extents leave tails along every axis where the kernel's alignment allows it; tensors are dense,
    but for strides that must be multiples of 16 bytes.  Where the alignment asks for several tiles
    in the last axis there are as many CTAs.
    """
    kernel, tile = launch.kernel, launch.tiling.tile
    even = max((tensor.aligned for tensor in kernel.tensors), default=1)
    across = -(-even // tile[-1]) if len(tile) > 1 else lcm(even, tile[-1]) // tile[-1]
    turns = max(trips, 1)
    extents = [1] * len(tile)
    extents[-1] = max(even, (tile[-1] - 1) // even * even)
    if len(tile) == 1:
        most = across * turns * tile[0]
        extents[0] = most - even if most - even > most - tile[0] else most
    else:
        extents[-2] = max(1, tile[-2] - 1)
        extents[0] += (turns - 1) * tile[0]
    params = {f"n{axis}": n for axis, n in enumerate(extents)}
    for tensor in kernel.tensors:
        params |= _strides(tensor, params)
    if trips == 0:
        return Launch(across + 1, params, blocks=(across,))
    return Launch(across, params)


def calls(
    case: Case, given: list[Value], bindings: list[Binding]
) -> tuple[list[Call], list[torch.Tensor]]:
    """Return the launches of a case, and its outputs, poisoned, that they write."""
    named = {arg.name: value for arg, value in zip(case.fusion.inputs, given, strict=True)}
    outputs = []
    for tv in case.fusion.outputs:
        shape = output_specs(case)[tv.name].shape
        outputs.append(torch.full(shape, POISON[tv.dtype], dtype=_TORCH[tv.dtype]))
        named[tv.name] = outputs[-1]
    scalars = {
        arg.name: value
        for arg, value in zip(case.fusion.inputs, given, strict=True)
        if isinstance(arg, Scalar) and not isinstance(value, torch.Tensor)
    }
    made = []
    for binding in bindings:
        kernel = binding.launch.kernel
        arrays: dict[str, Array] = {}
        targets: dict[str, torch.Tensor] = {}
        for tensor in kernel.tensors:
            whole = named[binding.launch.arguments[tensor.name]]
            assert isinstance(whole, torch.Tensor), "scalars are no tensors of a kernel"
            seen = whole.as_strided(*binding.views[tensor.name], whole.storage_offset())
            arrays[tensor.name] = _register_form(seen, tensor.dtype)
            if tensor.name in kernel.outputs:
                targets[tensor.name] = seen
        own = {scalar.name: scalars[scalar.name] for scalar in kernel.scalars}
        launch = Launch(binding.grid, binding.params) if binding.grid else None
        made.append(Call(kernel, launch, arrays, own, targets))
    return made, outputs


def _strides(tensor: kir.Tensor, params: dict[str, int]) -> dict[str, int]:
    """Give the strides of a tensor that are parameters: dense, the unit stride fastest."""
    values = [params[e.name] if isinstance(e, Var) else 1 for e in tensor.extents]
    order = sorted(range(len(values)), key=lambda axis: (tensor.strides[axis] != 1, -axis))
    unit = max(tensor.aligned, _TMA_BYTES // tensor.dtype.nbytes)
    made, span = {}, 1
    for axis in order:
        stride = tensor.strides[axis]
        if isinstance(stride, Var) and stride.name not in params:
            made[stride.name] = span = -(-span // unit) * unit
        span *= max(values[axis], 1)
    return made


def _register_form(seen: torch.Tensor, dtype: DType) -> Array:
    if dtype in (DType.F16, DType.BF16):
        seen = seen.to(torch.float32)
    return np.array(seen.contiguous().numpy(), copy=True, order="C")
