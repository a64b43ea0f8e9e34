"""A GPU that runs what the judge of PTX executes: one launch at a time, and single instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from cupy.cuda import Device
from cupy.cuda.function import Function, Module
from cupy_backends.cuda.api import driver as launcher

from fuser.runtime.kernel_launch import values_of
from fuser.runtime.launch import BoundKernel, load_function
from fuser.runtime.nvrtc import Cubin, compile_cubin
from fuser.runtime.scratch import counts
from fuzz.campaign.launches import Call
from fuzz.ptx.launches import MAP, POISON, nbytes_of

Memory = dict[str, torch.Tensor]
"""All that a launch can write, flat, by the name of a tensor or a counter; tensors of one storage
are the same."""

_THREADS = 256
_OF_C = {"f32": ("float", "f"), "f64": ("double", "d")}
"""Type and constraint of operands."""


class Hardware(Protocol):
    """What executes kernels and instructions."""

    def launched(self, call: Call, cubin: Cubin) -> Memory:
        """Run a launch on a copy of its memory, with counters of 0, and return what it leaves."""

    def evaluate(self, opcode: str, given: tuple[Any, ...]) -> Any:
        """Return what an approximate instruction gives for its operands."""


def copied(flat: torch.Tensor, name: str) -> torch.Tensor:
    """Return a copy of a storage."""
    del name
    return flat.clone()


def memory_of(call: Call, place: Callable[[torch.Tensor, str], torch.Tensor] = copied) -> Memory:
    """Return what is made of each storage of the tensors of a call, and of a name of it."""
    seen: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    found = {}
    for name, view in call.views.items():
        storage = view.untyped_storage()
        key = storage.data_ptr(), view.dtype
        if key not in seen:
            seen[key] = place(torch.empty(0, dtype=view.dtype).set_(storage), name)
        found[name] = seen[key]
    return found


class Gpu:
    """A CUDA device; the current one of torch if none is given."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cuda", torch.cuda.current_device())

    def launched(self, call: Call, cubin: Cubin) -> Memory:
        """Run a launch on a copy of its memory, with counters of 0, and return what it leaves."""
        assert call.launch is not None, "launches of nothing are left out"
        device = self._device
        memory = memory_of(call, lambda flat, _: flat.to(device, copy=True))
        tensors = {
            name: memory[name].as_strided(view.shape, view.stride(), view.storage_offset())
            for name, view in call.views.items()
        }
        kernel, grid = call.kernel, call.launch.grid
        values = values_of(kernel, grid, call.launch.params)
        function = load_function(cubin, kernel, device.index or 0)
        bound = BoundKernel(kernel, function, grid, values, device, what=kernel.name)
        counters = {
            name: torch.zeros(many, dtype=torch.int32, device=device)
            for name, many in counts(kernel, values).items()
        }
        rooms = {
            tensor.name: torch.full((nbytes_of(tensor, values),), POISON, dtype=torch.uint8)
            for tensor in kernel.tensors
            if tensor.name not in tensors
        } | {
            maps.name: torch.full((grid * maps.slots * MAP,), POISON, dtype=torch.uint8)
            for maps in kernel.maps
        }
        beside = {name: room.to(device) for name, room in rooms.items()}
        for name, one in (tensors | counters | beside).items():
            bound.word(name).value = one.data_ptr()
        for scalar in kernel.scalars:
            bound.scalar(scalar)[0] = call.scalars[scalar.name]
        bound.write_maps()
        bound.start(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        host: dict[int, torch.Tensor] = {}
        every = memory | counters
        return {name: host.setdefault(id(one), one.cpu()) for name, one in every.items()}

    def evaluate(self, opcode: str, given: tuple[Any, ...]) -> Any:
        """Return what an approximate instruction gives for its operands."""
        arrays = np.broadcast_arrays(*given)
        rooms = [torch.from_numpy(np.array(x).reshape(-1)).to(self._device) for x in arrays]
        out = torch.empty_like(rooms[0])
        many = out.numel()
        if many:
            words = [np.array([room.data_ptr()], np.uint64) for room in (*rooms, out)]
            words.append(np.array([many], np.int32))
            pointers = np.array([word.ctypes.data for word in words], np.uint64)
            shape = (-(-many // _THREADS), 1, 1, _THREADS, 1, 1, 0)
            stream = torch.cuda.current_stream().cuda_stream
            launcher.launchKernel(_function(opcode).ptr, *shape, stream, pointers.ctypes.data, 0)
        return out.cpu().numpy().reshape(arrays[0].shape)


@cache
def _function(opcode: str) -> Function:
    with Device(torch.cuda.current_device()):
        module = Module()
        module.load(compile_cubin(evaluating(opcode)).image)
        return module.get_function("evaluate")


def evaluating(opcode: str) -> str:
    """Return the CUDA text of a kernel that executes an instruction once in each thread."""
    name, *_, kind = opcode.split(".")
    own, letter = _OF_C[kind]
    names = "ab" if name == "div" else "a"
    takes = "".join(f"const {own}* {one}, " for one in names)
    places = ", ".join(f"%{n}" for n in range(len(names) + 1))
    reads = ", ".join(f'"{letter}"({one}[i])' for one in names)
    return f"""
extern "C" __global__ void evaluate({takes}{own}* y, int many) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= many) return;
  {own} r;
  asm volatile("{opcode} {places};" : "={letter}"(r) : {reads});
  y[i] = r;
}}
"""
