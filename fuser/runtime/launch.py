"""Launching a kernel cheaply: argument values in one block, of which a call changes a few words.

Tensor maps are encoded by the driver through cuda-bindings and kept by address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import cupy
import numpy as np
import torch
from cuda.bindings import driver
from cupy_backends.cuda.api import driver as launcher

from fuser.codegen import cuda
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var
from fuser.fusion.ir import Fusion
from fuser.kernel import ir as kir
from fuser.kernel import tensor_map
from fuser.kernel.tensor_map import TensorMap
from fuser.pipeline import Program
from fuser.runtime.binding import Binding
from fuser.runtime.nvrtc import Cubin
from fuser.runtime.scratch import scratch, shape

Number = int | float | bool
Argument = torch.Tensor | Number

MAX_ENCODED = 4096
"""Tensor maps kept per parameter: addresses that never repeat must not fill the memory."""

_NUMPY = {DType.F64: "f8", DType.F32: "f4", DType.I64: "i8", DType.I32: "i4", DType.BOOL: "?"}


_LOADED: dict[tuple[str, int], cupy.cuda.function.Function] = {}
"""Functions by cubin and device; never unloaded, because a captured CUDA graph keeps no module."""


def load_function(cubin: Cubin, kernel: kir.Kernel, device: int) -> cupy.cuda.function.Function:
    """Return the function of a cubin on a device, loaded once."""
    found = _LOADED.get((cubin.key, device))
    if found is not None:
        return found
    with cupy.cuda.Device(device):
        module = cupy.cuda.function.Module()
        module.load(cubin.image)
        function = module.get_function(kernel.name)
        launcher.funcSetAttribute(
            function.ptr,
            driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            cuda.shared_bytes(kernel),
        )
    _LOADED[(cubin.key, device)] = function
    return function


def start(
    function: int,
    shape: tuple[int, int, int, int, int, int, int],
    stream: int,
    arguments: int,
    *,
    together: bool,
) -> None:
    """Launch a function; `together`: all its CTAs at once, or an error.

    A cooperative launch takes no longer than any other (H200, 128 CTAs, in a graph: 4.58 us against
    4.57), and keeps two kernels on two streams from holding half of the device each.

    Source: CUDA driver API, cuLaunchCooperativeKernel.
    """
    if together:
        launcher.launchCooperativeKernel(function, *shape, stream, arguments)
    else:
        launcher.launchKernel(function, *shape, stream, arguments, 0)


def most_at_once(kernel: kir.Kernel, function: int, device: int) -> int:
    """Return how many CTAs of a kernel a device runs at once, if nothing else runs.

    Raises
    ------
    ScheduleError
        If the driver does not say.
    """
    error, per_sm = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        driver.CUfunction(function), kernel.threads, cuda.shared_bytes(kernel)
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ScheduleError(f"launch({kernel.name}): occupancy unknown ({error.name})")
    return int(per_sm) * torch.cuda.get_device_properties(device).multi_processor_count


@dataclass(frozen=True, slots=True)
class Call:
    """All that a call with these shapes needs but addresses and numbers."""

    fusion: Fusion
    kernels: list[BoundKernel]
    sizes: list[tuple[tuple[int, ...], torch.dtype]]
    between: list[int]
    device: torch.device

    def allocate(self) -> list[torch.Tensor]:
        """Return fresh, uninitialised outputs."""
        return [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.sizes]

    def launch(self, inputs: Sequence[Argument], outputs: Sequence[torch.Tensor]) -> None:
        """Launch every kernel on torch's current stream."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        # Intermediates live as long as the call: torch gives their memory to later work of the
        # same stream only.
        scratch = [
            torch.empty(nbytes, dtype=torch.uint8, device=self.device) for nbytes in self.between
        ]
        arguments = (*inputs, *outputs, *scratch)
        if torch.cuda.current_device() == (self.device.index or 0):
            for kernel in self.kernels:
                kernel.launch(arguments, stream)
            return
        with torch.cuda.device(self.device):
            for kernel in self.kernels:
                kernel.launch(arguments, stream)


class BoundKernel:
    """One kernel with a block of argument values, in which a call changes addresses and numbers."""

    def __init__(
        self,
        binding: Binding,
        function: cupy.cuda.function.Function,
        program: Program,
        device: torch.device,
    ) -> None:
        kernel = binding.launch.kernel
        self._function = function.ptr
        self.grid = binding.grid
        self.threads = kernel.threads
        self.smem_bytes = cuda.shared_bytes(kernel)
        self.maps = tensor_map.maps_of(kernel)
        self._encoded: list[dict[int, bytes]] = [{} for _ in self.maps]
        names = cuda.parameters(kernel)
        count = len(names) - len(self.maps)
        raw = np.zeros(64 * (count + 2 * len(self.maps) + 1), dtype=np.uint8)
        if kernel.residency == "co-resident":
            _check_fits(binding, most_at_once(kernel, function.ptr, device.index or 0))
        self._base = -(-raw.ctypes.data // 64) * 64
        self._raw = raw[self._base - raw.ctypes.data :]
        offsets = {name: 64 * n for n, name in enumerate(names[:count])}
        offsets |= {m.name: 64 * (count + 2 * n) for n, m in enumerate(self.maps)}
        self._offsets = offsets
        self._pointers = np.array([self._base + offsets[name] for name in names], dtype=np.uint64)
        self._pointers_at = self._pointers.ctypes.data
        for param in kernel.params:
            wide = cuda.is_wide(kernel, param)
            self._write(param.name, "i8" if wide else "i4", binding.params[param.name])
        fusion = program.fusion
        named = (*fusion.inputs, *fusion.outputs, *program.intermediates)
        where = {arg.name: n for n, arg in enumerate(named)}
        self._tensors: list[tuple[int, int]] = []
        self._addresses = self._raw.view(np.uint64)
        self._word = {t.name: offsets[t.name] // 8 for t in kernel.tensors}
        for name, own in binding.launch.arguments.items():
            self._tensors.append((self._word[name], where[own]))
        values: dict[Var, Expr] = {p: binding.params[p.name] for p in kernel.params}
        spaces = {t.name: shape(t, values) for t in kernel.tensors if t.name in kernel.workspaces}
        self._views = binding.views | spaces
        self._scratch = scratch(kernel, values, device)
        self._shape = (self.grid, 1, 1, self.threads, 1, 1, self.smem_bytes)
        self._together = kernel.residency == "co-resident"
        self._needs_scratch = bool(self._scratch.workspaces or self._scratch.counters)
        self._scalars = [
            (self._raw[offsets[s.name] : offsets[s.name] + 8].view(_NUMPY[s.dtype]), where[s.name])
            for s in kernel.scalars
        ]

    def _write(self, name: str, dtype: str, value: Number) -> None:
        start = self._offsets[name]
        self._raw[start : start + 8].view(dtype)[0] = value

    def launch(self, arguments: Sequence[Argument], stream: int) -> None:
        """Write this call's addresses and numbers, and launch.

        Parameters
        ----------
        arguments : sequence
            Inputs, outputs and intermediates of the program, in this order.
        stream : int
            Where to launch.
        """
        for word, position in self._tensors:
            tensor = arguments[position]
            assert isinstance(tensor, torch.Tensor), "checked when the call was prepared"
            self._addresses[word] = tensor.data_ptr()
        for view, position in self._scalars:
            view[0] = arguments[position]
        lent = self._scratch.lend(stream) if self._needs_scratch else {}
        for name, memory in lent.items():
            self._addresses[self._offsets[name] // 8] = memory.data_ptr()
        for n, made in enumerate(self.maps):
            address = int(self._addresses[self._word[made.tensor.name]])
            encoded = self._encoded[n].get(address)
            if encoded is None:
                if len(self._encoded[n]) >= MAX_ENCODED:
                    self._encoded[n].clear()
                encoded = self._encode(made, address)
                self._encoded[n][address] = encoded
            ctypes.memmove(self._base + self._offsets[made.name], encoded, 128)
        try:
            self.start(stream)
        except RuntimeError:
            self._scratch.forget(stream)
            raise

    def start(self, stream: int) -> None:
        """Launch with the argument values of the last call."""
        start(
            self._function,
            self._shape,
            stream,
            self._pointers_at,
            together=self._together,
        )

    def _encode(self, made: TensorMap, address: int) -> bytes:
        extents, strides = self._views[made.tensor.name]
        nbytes = made.tensor.dtype.nbytes
        dims = tuple(extents[axis] for axis in made.axes)
        steps = tuple(strides[axis] * nbytes for axis in made.axes[1:])
        return encode(
            made.tensor.name, made.tensor.dtype, address, dims, steps, made.box, made.swizzle
        )


def _check_fits(binding: Binding, most: int) -> None:
    if binding.grid > most:
        params = binding.launch.params
        raise ScheduleError(
            f'{type(params).__name__}(residency="co-resident"): {binding.grid} CTAs, the device '
            f'runs {most} at once; use residency="ticket", or fewer splits'
        )


_TMA_TYPE = {
    DType.F64: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    DType.F32: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    DType.F16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    DType.BF16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    DType.I32: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_INT32,
    # Seen on an H200: a reduction through a map of INT64 is an illegal instruction.
    DType.I64: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT64,
    DType.BOOL: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    DType.I8: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    DType.F8E4M3: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    DType.F8E5M2: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
}

SWIZZLE = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}


def _promotion(row_nbytes: int) -> driver.CUtensorMapL2promotion:
    """Return how much the L2 fetches at a time: no more than a row of a box has.

    Measured on an H200: rows of 128 bytes of operands that come from memory, products by split K,
    take 1 to 8 % longer where 256 bytes are fetched.
    """
    if row_nbytes > 128:
        return driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    return driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B


def encode(
    name: str,
    dtype: DType,
    address: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle_bytes: int = 0,
) -> bytes:
    """Return the 128 bytes of a tensor map, after checking it by our own rules.

    Parameters are those of `tensor_map.check`.

    Raises
    ------
    ScheduleError
        If a rule is broken, or the driver refuses what our rules accept.
    """
    what = f"call({name})"
    tensor_map.check(what, dtype, address, dims, strides, box, swizzle_bytes=swizzle_bytes)
    error, made = driver.cuTensorMapEncodeTiled(
        _TMA_TYPE[dtype],
        len(dims),
        address,
        [driver.cuuint64_t(n) for n in dims],
        [driver.cuuint64_t(n) for n in strides or (16,)],  # one axis: ignored, but not null
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in dims],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        SWIZZLE[swizzle_bytes],
        _promotion(box[0] * dtype.nbytes),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ScheduleError(
            f"{what}: the driver refused a tensor map of {dims} elements, strides {strides} "
            f"bytes, box {box}, swizzle of {swizzle_bytes} bytes ({error.name}); "
            'use load="direct"'
        )
    return ctypes.string_at(int(made.getPtr()), 128)
