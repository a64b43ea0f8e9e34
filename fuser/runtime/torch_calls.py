"""What every call asks of torch, asked as torch.compile's own calls do.

`torch.empty`, `torch.cuda.current_stream` and their like take microseconds to read their arguments.
A torch without CUDA has not all of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_guards: Any = torch._C._dynamo.guards

empty: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor] = (
    _guards._empty_strided_cuda
)
"""Makes a tensor of a shape, strides and type on the current device."""
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # type: ignore[assignment]
"""Returns the handle of torch's current stream on a device."""
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", None)  # type: ignore[assignment]


_guard: Any = getattr(_guards, "TensorGuards", None)


def equal_to(tensors: list[torch.Tensor]) -> Callable[..., bool]:
    """Return what tells whether as many tensors have types, shapes, strides and devices of these.

    It compares all of them by one call, in a sixth of the time in which a key is made of them and
    found.  It may say no to equal ones: where a tensor is given twice, or gradients are asked for;
    it always does if there are none, or this torch has no guards, which its own Python does not
    need.
    """
    if _guard is None or not tensors:
        return lambda *_: False
    check: Callable[..., bool] = _guard(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    ).check
    return check
