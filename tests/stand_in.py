"""A GPU's place taken by the host: calls of an Executable with tensors in its memory.

Whatever reaches the driver is seen there as it would be read: launches with the words of their
arguments, tensor maps by address.  Allocation, streams and devices are torch's own elsewhere.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda.bindings import driver

from fuser.codegen import cuda
from fuser.kernel import ir as kir
from fuser.runtime import executable, launch, torch_calls

SMS = 132
on_the_host: Any = torch._C._dynamo.guards._empty_strided_cpu  # type: ignore[attr-defined]
"""Takes the place of `torch_calls.empty`."""


class DriverError(RuntimeError):
    """An error of the driver, by its number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


@dataclass
class Launch:
    """One launch: of which kernel, on which stream, with which word for each parameter."""

    kernel: kir.Kernel
    grid: int
    stream: int
    words: dict[str, int]
    at_once: bool


@dataclass
class StandIn:
    """What the driver has seen; `compute` does what a kernel would."""

    compute: Callable[[Launch], None] = lambda _: None
    seen: list[Launch] = field(default_factory=list)
    kernels: list[kir.Kernel] = field(default_factory=list)
    mine: threading.local = field(default_factory=threading.local)

    def load(self, _: object, kernel: kir.Kernel, device: int) -> Any:
        """Take the place of `load_function`: the address is the kernel's number."""
        del device
        self.kernels.append(kernel)
        return SimpleNamespace(ptr=len(self.kernels) - 1)

    def start(self, function: int, *given: int, at_once: bool = False) -> None:
        """Take the place of `launchKernel`, and of `launchCooperativeKernel`."""
        self._launched(function, given[0], *given[7:9], at_once=at_once)

    def start_dependent(
        self, how: driver.CUlaunchConfig, function: driver.CUfunction, pointers: int, extra: int
    ) -> tuple[driver.CUresult]:
        """Take the place of `cuLaunchKernelEx`."""
        del extra
        (allowed,) = how.attrs
        assert allowed.id.name.endswith("PROGRAMMATIC_STREAM_SERIALIZATION")
        assert allowed.value.programmaticStreamSerializationAllowed
        try:
            self._launched(int(function), how.gridDimX, int(how.hStream), pointers, dependent=True)
        except DriverError as error:
            return (driver.CUresult(error.status),)
        return (driver.CUresult.CUDA_SUCCESS,)

    def _launched(
        self,
        function: int,
        grid: int,
        stream: int,
        pointers: int,
        *,
        at_once: bool = False,
        dependent: bool = False,
    ) -> None:
        kernel = self.kernels[function]
        assert kernel.dependent == dependent, "launched in another way than the kernel says"
        names = cuda.parameters(kernel)
        at = (ctypes.c_uint64 * len(names)).from_address(pointers)
        read = (ctypes.c_int64.from_address(place).value for place in at)
        words = dict(zip(names, read, strict=True))
        made = Launch(kernel, grid, stream, words, at_once)
        self.seen.append(made)
        self.compute(made)

    def current_stream(self, device: int) -> int:
        """Return the stream that a thread has chosen."""
        del device
        return getattr(self.mine, "stream", 0)


def stand_in(patch: pytest.MonkeyPatch) -> StandIn:
    """Put the host in the place of a GPU, for kernels launched one by one."""
    made = StandIn()
    launcher = SimpleNamespace(
        launchKernel=made.start,
        launchCooperativeKernel=partial(made.start, at_once=True),
        CUDADriverError=DriverError,
    )
    patch.setattr(launch, "launcher", launcher)
    patch.setattr(driver, "cuLaunchKernelEx", made.start_dependent)
    patch.setattr(executable, "load_function", made.load)
    patch.setattr(executable, "compile_cubin", lambda *_, **__: None)
    patch.setattr(executable, "on_gpu", lambda tensor: tensor.device.type == "cpu")
    patch.setattr(torch_calls, "empty", on_the_host)
    patch.setattr(torch_calls, "current_stream", made.current_stream)
    patch.setattr(torch_calls, "current_device", lambda: 0)
    device = SimpleNamespace(multi_processor_count=SMS, name="stand-in")
    patch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return made
