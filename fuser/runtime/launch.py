"""A kernel bound to a launch: a block of argument values, of which a call changes a few words.

What a launch needs beside its stream is prepared once.  Tensor maps are encoded by the driver
through cuda-bindings and kept by address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import torch
from cuda.bindings import driver
from cupy_backends.cuda.api import driver as launcher

from fuser.codegen import cuda
from fuser.codegen.expr import REGISTER, divisors, reciprocal
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import Encoding, TensorMap, maps_of
from fuser.runtime.call import number, shape
from fuser.runtime.nvrtc import Cubin

Number = int | float | bool
Argument = torch.Tensor | Number

MAX_ENCODED = 4096
"""Tensor maps kept per parameter: addresses that never repeat must not fill the memory."""
PORTABLE_CLUSTER = 8
"""CTAs of a cluster that every Hopper GPU takes; up to 16 only where the function allows it."""

NO_CONTEXT = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT
"""What a launch fails with on a thread that has called nothing yet that makes a context its own."""

_LINE = 64
"""Bytes between arguments; a tensor map is aligned to so many, and takes two."""
_NUMPY = {"double": "f8", "float": "f4", "int": "i4", "int64": "i8", "bool": "?"}
"""By the type of a register."""
_LOADED: dict[tuple[str, int], cupy.cuda.function.Function] = {}
"""Functions by cubin and device; never unloaded, because a captured CUDA graph keeps no module."""


def load_function(cubin: Cubin, kernel: kir.Kernel, device: int) -> cupy.cuda.function.Function:
    """Return the function of a cubin on a device, loaded once."""
    found = _LOADED.get((cubin.key, device))
    if found is not None:
        return found
    asked = driver.CUfunction_attribute
    with cupy.cuda.Device(device):
        module = cupy.cuda.function.Module()
        module.load(cubin.image)
        function = module.get_function(kernel.name)
        smem = asked.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        launcher.funcSetAttribute(function.ptr, smem, cuda.shared_bytes(kernel))
        if kernel.cluster > PORTABLE_CLUSTER:
            large = asked.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            launcher.funcSetAttribute(function.ptr, large, 1)
    # Of two threads that load it at once both take the first: the other one's module is unloaded.
    return _LOADED.setdefault((cubin.key, device), function)


def clusters_at_once(kernel: kir.Kernel, function: cupy.cuda.function.Function) -> int:
    """Return how many clusters of a kernel run at once on the current device.

    A cluster runs on SMs of one GPC, and which of these a GPU has differs from GPU to GPU: of two
    H200, both of 132 SMs, one ran 30 clusters of 4 and 15 of 8.  ScheduleError if it is not known.

    Source: CUDA driver API, cuOccupancyMaxActiveClusters; CUDA programming guide, "Thread block
    clusters".
    """
    asked, size = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
    size.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster = size.value.clusterDim
    cluster.x, cluster.y, cluster.z = kernel.cluster, 1, 1
    asked.gridDimX, asked.gridDimY, asked.gridDimZ = kernel.cluster, 1, 1
    asked.blockDimX, asked.blockDimY, asked.blockDimZ = kernel.threads, 1, 1
    asked.sharedMemBytes = cuda.shared_bytes(kernel)
    asked.attrs, asked.numAttrs = [size], 1
    error, many = driver.cuOccupancyMaxActiveClusters(driver.CUfunction(function.ptr), asked)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ScheduleError(f"{kernel.name}: clusters at once unknown ({error.name})")
    return int(many)


Start = Callable[[int, int, int], object]
"""What launches a kernel, given a stream, the address of its pointers to arguments, and a 0."""


class Dependent:
    """A launch that may start before those in front of it end; all but its stream is kept.

    Source: CUDA programming guide, "Programmatic dependent launch".
    """

    def __init__(self, name: str, function: int, shape: Sequence[int]) -> None:
        self._name, self._function = name, driver.CUfunction(function)
        made, allowed = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
        allowed.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        allowed.value.programmaticStreamSerializationAllowed = 1
        made.gridDimX, made.gridDimY, made.gridDimZ = shape[:3]
        made.blockDimX, made.blockDimY, made.blockDimZ = shape[3:6]
        made.sharedMemBytes = shape[6]
        made.attrs, made.numAttrs = [allowed], 1
        self._how, self._stream = made, 0

    def __call__(self, stream: int, pointers: int, extra: int) -> None:
        """Launch; ScheduleError if that is refused."""
        if stream != self._stream:
            self._how.hStream, self._stream = driver.CUstream(stream), stream
        (error,) = driver.cuLaunchKernelEx(self._how, self._function, pointers, extra)
        if error == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
            raise ScheduleError(f"{self._name}: a dependent launch fails ({error.name})")
        if error != driver.CUresult.CUDA_SUCCESS:
            raise launcher.CUDADriverError(int(error))


@dataclass(slots=True)
class _WrittenMap:
    """A tensor map among the arguments of a kernel, and of which address it is."""

    made: TensorMap
    view: tuple[tuple[int, ...], tuple[int, ...]]
    word: ctypes.c_uint64
    at: int
    once: bool
    address: int = -1
    encoded: dict[int, bytes] = field(default_factory=dict)

    def write(self, address: int) -> None:
        content = self.encoded.get(address)
        if content is None:
            if len(self.encoded) >= MAX_ENCODED:
                self.encoded.clear()
            known = self.made.encoding(address, *self.view)
            what = f"call({self.made.tensor.name})"
            content = self.encoded[address] = encode(what, known, once=self.once)
        ctypes.memmove(self.at, content, 128)
        self.address = address


class BoundKernel:
    """A kernel with the integers of a launch, to be launched again and again.

    `values` are those of every parameter; messages begin with `what`, the call as the user wrote
    it; `more` names parameters that only the text behind `function` has, behind all others.
    `shared` has where in memory the words of parameters lie that the caller keeps and writes; all
    others are in a block of arguments of the kernel.  Of tensors that are read `once` the L2
    fetches more at a time.  ScheduleError if CTAs have to run at once,
    and the device has not room for them.
    """

    def __init__(
        self,
        kernel: kir.Kernel,
        function: cupy.cuda.function.Function,
        grid: int,
        values: Mapping[Var, Expr],
        device: torch.device,
        *,
        what: str,
        more: Sequence[str] = (),
        shared: Mapping[str, int] | None = None,
        once: Collection[str] = (),
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self._function = function.ptr
        at_once = kernel.residency == "co-resident"
        self._check_residency(what, grid if at_once else number(kernel.together, values), device)
        self._start = self._how_to_start()
        maps = {made.name: made for made in maps_of(kernel)}
        names = [*cuda.parameters(kernel), *more]
        places = list(accumulate((_LINE << (name in maps) for name in names), initial=0))
        self._raw = np.zeros(places.pop() + _LINE, dtype=np.uint8)
        base = -(-self._raw.ctypes.data // _LINE) * _LINE
        own = {name: base + at for name, at in zip(names, places, strict=True)}
        self._places = own | dict(shared or {})
        self._pointers = np.array([self._places[name] for name in names], dtype=np.uint64)
        self._pointers_at = self._pointers.ctypes.data
        for param in kernel.params:
            kind = "i8" if cuda.is_wide(kernel, param) else "i4"
            self.room(param.name, kind)[0] = number(param, values)
        for divisor, by in divisors(kernel).items():
            self.room(by.name, "u8")[0] = reciprocal(number(divisor, values))
        self._maps = [
            _WrittenMap(
                made,
                shape(made.tensor, values),
                self.word(made.tensor.name),
                own[name],
                made.tensor.name in once,
            )
            for name, made in maps.items()
        ]

    def word(self, name: str) -> ctypes.c_uint64:
        """Return the word of an address among the arguments."""
        return ctypes.c_uint64.from_address(self._places[name])

    def room(self, name: str, kind: str) -> npt.NDArray[Any]:
        """Return the place of a number among the arguments, as an array of one."""
        at = self._places[name] - self._raw.ctypes.data
        return self._raw[at : at + 8].view(kind)

    def scalar(self, scalar: kir.ScalarParam) -> npt.NDArray[Any]:
        """Return the place of a scalar among the arguments, as an array of one."""
        return self.room(scalar.name, _NUMPY[REGISTER[scalar.dtype]])

    def start(self, stream: int) -> None:
        """Launch with the arguments as they are; ScheduleError if a dependent launch is refused."""
        try:
            self._start(stream, self._pointers_at, 0)
        except launcher.CUDADriverError as error:
            if error.status != NO_CONTEXT:
                raise
            cupy.cuda.runtime.memGetInfo()  # makes the context that of this thread
            self._start(stream, self._pointers_at, 0)

    def write_maps(self) -> None:
        """Write the tensor maps of the addresses as they are, where these have changed."""
        for one in self._maps:
            address = one.word.value
            if address != one.address:
                one.write(address)

    def _how_to_start(self) -> Start:
        """Return what launches the kernel.

        A launch of all CTAs at once, or an error, is a cooperative one.  It takes no longer than
        any other (H200, 128 CTAs, in a graph: 4.58 us against 4.57), and keeps two kernels on two
        streams from holding half of the device each.  Beside it a dependent one would be another
        mode: it waits for those before it.

        Source: CUDA driver API, cuLaunchCooperativeKernel.
        """
        kernel, function = self.kernel, self._function
        shape = (self.grid, 1, 1, kernel.threads, 1, 1, cuda.shared_bytes(kernel))
        if kernel.residency == "co-resident":
            cooperative = partial(launcher.launchCooperativeKernel, function, *shape)
            return lambda stream, pointers, _: cooperative(stream, pointers)
        if kernel.dependent:
            return Dependent(kernel.name, function, shape)
        return partial(launcher.launchKernel, function, *shape)

    def _check_residency(self, what: str, many: int, device: torch.device) -> None:
        """Refuse more CTAs that have to run at once than the device runs, if nothing else does."""
        if many == 1:
            return
        error, per_sm = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            driver.CUfunction(self._function), self.kernel.threads, cuda.shared_bytes(self.kernel)
        )
        if error != driver.CUresult.CUDA_SUCCESS:
            raise ScheduleError(f"{what}: occupancy unknown ({error.name})")
        most = int(per_sm) * torch.cuda.get_device_properties(device).multi_processor_count
        if many > most:
            raise ScheduleError(
                f"{what}: {many} CTAs must run at once, the device takes {most}; launch fewer, or "
                'use residency="ticket"'
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


def _promotion(row_nbytes: int, *, once: bool) -> driver.CUtensorMapL2promotion:
    """Return how much the L2 fetches at a time: no more than a row of a box has.

    Measured on an H200: rows of 128 bytes of operands that come from memory, products by split K,
    take 1 to 8 % longer where 256 bytes are fetched.  On an H100 they take 3 to 5 % less where one
    CTA reads whole rows of them, one piece after the other: 64 x 18944 x 3584 52.8 us and 50.2, 15
    x 11816 x 5432 49.9 and 47.5; 20 % more where several do: 379 x 27272 x 7736 292 and 343.
    """
    if row_nbytes > 128 or once:
        return driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    return driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B


def encode(what: str, made: Encoding, *, once: bool = False) -> bytes:
    """Return the 128 bytes of a tensor map; ScheduleError if our rules or the driver refuse.

    `once` says that whole rows of the tensor are read by one CTA, and by no other.
    """
    made.check(what)
    dims, strides, box = made.dims, made.strides, made.box
    error, encoded = driver.cuTensorMapEncodeTiled(
        _TMA_TYPE[made.dtype],
        len(dims),
        made.address,
        [driver.cuuint64_t(n) for n in dims],
        [driver.cuuint64_t(n) for n in strides or (16,)],  # one axis: ignored, but not null
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in dims],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        SWIZZLE[made.swizzle],
        _promotion(box[0] * made.dtype.nbytes, once=once),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ScheduleError(
            f"{what}: the driver refused a tensor map of {dims} elements, strides {strides} "
            f"bytes, box {box}, swizzle of {made.swizzle} bytes ({error.name}); "
            'use load="direct"'
        )
    return ctypes.string_at(int(encoded.getPtr()), 128)
