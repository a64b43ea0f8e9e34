"""From a Fusion to results on the GPU: classes of shapes compiled once, calls launched cheaply.

CuPy loads the cubin and launches on torch's current stream; tensor maps are encoded by the driver
through cuda-bindings and kept.  Nothing is copied and nothing synchronises.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cupy
import numpy as np
import torch
from cuda.bindings import driver
from cupy_backends.cuda.api import driver as launcher

from fuser import codegen, tensor_map
from fuser import kernel_ir as kir
from fuser.binding import Binding, Spec, bind, classify, extents_of, shape_of
from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.nvrtc import Cubin, compile_cubin
from fuser.params import PointwiseParams
from fuser.pipeline import Program, build
from fuser.shape_class import ShapeClass
from fuser.tensor_map import TensorMap
from fuser.tensor_view import Fusion, Scalar, TensorView

Number = int | float | bool
Argument = torch.Tensor | Number

_TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
_DTYPE = {torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()}
_NUMPY = {DType.F64: "f8", DType.F32: "f4", DType.I64: "i8", DType.I32: "i4", DType.BOOL: "?"}
_KINDS: dict[DType, tuple[type, ...]] = {
    DType.F64: (int, float),
    DType.F32: (int, float),
    DType.I64: (int,),
    DType.I32: (int,),
    DType.BOOL: (bool,),
}


def device_present() -> bool:
    """Tell whether a CUDA device can be used; never raises."""
    return bool(cupy.is_available()) and torch.cuda.is_available()


class Executable:
    """A fusion that can be called with torch tensors.

    Parameters
    ----------
    fusion : Fusion
        What to compute.
    params : PointwiseParams, optional
        How; the default heuristic if left out.
    poison : bool
        Compile kernels that fill their shared memory with NaNs first (for fuzzing).

    Notes
    -----
    The first call of a class of shapes compiles (tenths of a second, or a read of the disk cache);
    further calls with the same shapes, strides and address alignment look one dictionary up.
    """

    def __init__(
        self, fusion: Fusion, params: PointwiseParams | None = None, *, poison: bool = False
    ) -> None:
        self.fusion = fusion
        self.params = params
        self._defines = ("FUSER_POISON_SMEM",) if poison else ()
        self._programs: dict[ShapeClass, Program] = {}
        self._calls: dict[object, _Call] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        *inputs: Argument,
        out: Sequence[torch.Tensor] | None = None,
        extents: Mapping[str, int] | None = None,
    ) -> list[torch.Tensor]:
        """Launch on torch's current stream and return the outputs.

        Parameters
        ----------
        *inputs : torch.Tensor or number
            In the order of `fusion.inputs`; tensors on one CUDA device.
        out : sequence of torch.Tensor, optional
            Row-major tensors to write the outputs to; they may overlap nothing else.
        extents : mapping, optional
            Values of extents that no input has, by name.

        Raises
        ------
        FusionError
            If an argument does not fit the definition.
        ScheduleError
            If the params cannot serve these shapes.
        """
        key = (
            *((a.shape, a.stride(), a.dtype, a.device, a.data_ptr() % 16)
              if isinstance(a, torch.Tensor) else type(a) for a in inputs),
            None if out is None else tuple(t.data_ptr() % 16 for t in out),
            None if extents is None else tuple(extents.items()),
        )
        call = self._calls.get(key)
        if call is None:
            call = self._prepare(inputs, out, extents)
            self._calls[key] = call
        outputs = call.allocate() if out is None else _checked(call, inputs, out)
        with self._lock:
            call.launch(inputs, outputs)
        return outputs

    def host_cost(self, *inputs: Argument, repeats: int = 2000) -> tuple[float, float]:
        """Measure host microseconds of one call, and of the bare launch of its first kernel."""
        self(*inputs)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            self(*inputs)
        called = time.perf_counter() - start
        torch.cuda.synchronize()
        kernel = next(iter(self._calls.values())).kernels[0]
        stream = torch.cuda.current_stream().cuda_stream
        start = time.perf_counter()
        for _ in range(repeats):
            kernel.start(stream)
        bare = time.perf_counter() - start
        torch.cuda.synchronize()
        return called / repeats * 1e6, bare / repeats * 1e6

    # --- the slow path ----------------------------------------------------------------------

    def _prepare(
        self,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
        extents: Mapping[str, int] | None,
    ) -> _Call:
        device = self._check_arguments(inputs)
        specs = {
            tv.name: _spec(arg)
            for tv, arg in zip(self.fusion.inputs, inputs, strict=True)
            if isinstance(tv, TensorView) and isinstance(arg, torch.Tensor)
        }
        values = extents_of(self.fusion, specs, extents)
        if out is not None:
            for tv, tensor in zip(self.fusion.outputs, out, strict=True):
                specs[tv.name] = _spec(tensor)
        shapes = classify(self.fusion, self.params, specs, extents)
        program = self._programs.get(shapes)
        if program is None:
            program = build(self.fusion, self.params, shapes)
            self._programs[shapes] = program
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        bindings = bind(program, specs, sms=sms, free=extents)
        kernels = [self._kernel(b, device) for b in bindings if b.grid]
        sizes = [(shape_of(tv, values), _TORCH[tv.dtype]) for tv in self.fusion.outputs]
        return _Call(self.fusion, kernels, sizes, device)

    def _check_arguments(self, inputs: Sequence[Argument]) -> torch.device:
        want = self.fusion.inputs
        if len(inputs) != len(want):
            names = ", ".join(arg.name for arg in want)
            raise FusionError(
                f"call: got {len(inputs)} arguments, the fusion takes {len(want)}; pass {names}"
            )
        device: torch.device | None = None
        for tv, arg in zip(want, inputs, strict=True):
            if isinstance(tv, Scalar):
                if isinstance(arg, torch.Tensor) or not isinstance(arg, _KINDS[tv.dtype]):
                    raise FusionError(
                        f"call({tv.name}): got {type(arg).__name__}, the fusion says a {tv.dtype} "
                        f"number; pass a Python number"
                    )
                continue
            if not isinstance(arg, torch.Tensor):
                raise FusionError(
                    f"call({tv.name}): got {type(arg).__name__}, the fusion says a tensor of "
                    f"{tv.dtype}; pass a torch tensor"
                )
            if arg.device.type != "cuda":
                raise FusionError(
                    f"call({tv.name}): the tensor is on {arg.device}; pass {tv.name}.cuda()"
                )
            if device is not None and arg.device != device:
                raise FusionError(
                    f"call({tv.name}): the tensor is on {arg.device}, another argument on "
                    f"{device}; move them to one device"
                )
            if arg.dtype not in _DTYPE:
                raise FusionError(
                    f"call({tv.name}): got {arg.dtype}, the fusion says {tv.dtype}; cast the tensor"
                )
            device = arg.device
        return device or torch.device("cuda", torch.cuda.current_device())

    def _kernel(self, binding: Binding, device: torch.device) -> _Kernel:
        launch = binding.launch
        cubin = compile_cubin(launch.source, defines=self._defines)
        function = _function(cubin, launch.kernel, device.index or 0)
        return _Kernel(binding, function, self.fusion)


_LOADED: dict[tuple[str, int], cupy.cuda.function.Function] = {}
"""Functions by cubin and device; never unloaded, because a captured CUDA graph keeps no module."""


def _function(cubin: Cubin, kernel: kir.Kernel, device: int) -> cupy.cuda.function.Function:
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
            kernel.smem_bytes,
        )
    _LOADED[(cubin.key, device)] = function
    return function


def _spec(tensor: torch.Tensor) -> Spec:
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return Spec(shape, strides, tensor.data_ptr(), _DTYPE[tensor.dtype])


# --- the fast path ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """All that a call with these shapes needs but addresses and numbers."""

    fusion: Fusion
    kernels: list[_Kernel]
    sizes: list[tuple[tuple[int, ...], torch.dtype]]
    device: torch.device

    def allocate(self) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.sizes]

    def launch(self, inputs: Sequence[Argument], outputs: Sequence[torch.Tensor]) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        if torch.cuda.current_device() == (self.device.index or 0):
            for kernel in self.kernels:
                kernel.launch(inputs, outputs, stream)
            return
        with torch.cuda.device(self.device):
            for kernel in self.kernels:
                kernel.launch(inputs, outputs, stream)


class _Kernel:
    """One kernel with a block of argument values, in which a call changes addresses and numbers."""

    def __init__(
        self, binding: Binding, function: cupy.cuda.function.Function, fusion: Fusion
    ) -> None:
        kernel = binding.launch.kernel
        self._function = function.ptr
        self.grid = binding.grid
        self.threads = kernel.threads
        self.smem_bytes = kernel.smem_bytes
        self.maps = tensor_map.maps_of(kernel)
        self._views = binding.views
        self._encoded: list[dict[int, bytes]] = [{} for _ in self.maps]
        count = len(kernel.tensors) + len(kernel.params) + len(kernel.scalars)
        raw = np.zeros(64 * (count + 2 * len(self.maps) + 1), dtype=np.uint8)
        self._base = -(-raw.ctypes.data // 64) * 64
        self._raw = raw[self._base - raw.ctypes.data :]
        names = codegen.parameters(kernel)
        offsets = {name: 64 * n for n, name in enumerate(names[:count])}
        offsets |= {m.name: 64 * (count + 2 * n) for n, m in enumerate(self.maps)}
        self._offsets = offsets
        self._pointers = np.array([self._base + offsets[name] for name in names], dtype=np.uint64)
        self._pointers_at = self._pointers.ctypes.data
        for param in kernel.params:
            wide = codegen.is_wide(kernel, param)
            self._write(param.name, "i8" if wide else "i4", binding.params[param.name])
        where = {arg.name: n for n, arg in enumerate(fusion.inputs)}
        made = {tv.name: n for n, tv in enumerate(fusion.outputs)}
        self._tensors: list[tuple[int, int, bool]] = []
        addresses = self._raw.view(np.uint64)
        self._addresses = addresses
        for tensor in kernel.tensors:
            own = binding.launch.arguments[tensor.name]
            is_output = tensor.name in kernel.outputs
            position = made[own] if is_output else where[own]
            self._tensors.append((offsets[tensor.name] // 8, position, is_output))
        self._source = dict(zip((t.name for t in kernel.tensors), self._tensors, strict=True))
        self._scalars = [
            (self._raw[offsets[s.name] : offsets[s.name] + 8].view(_NUMPY[s.dtype]), where[s.name])
            for s in kernel.scalars
        ]

    def _write(self, name: str, dtype: str, value: Number) -> None:
        start = self._offsets[name]
        self._raw[start : start + 8].view(dtype)[0] = value

    def launch(
        self, inputs: Sequence[Argument], outputs: Sequence[torch.Tensor], stream: int
    ) -> None:
        for word, position, is_output in self._tensors:
            tensor = outputs[position] if is_output else inputs[position]
            assert isinstance(tensor, torch.Tensor), "checked when the call was prepared"
            self._addresses[word] = tensor.data_ptr()
        for view, position in self._scalars:
            view[0] = inputs[position]
        for n, made in enumerate(self.maps):
            word, position, is_output = self._source[made.tensor.name]
            address = int(self._addresses[word])
            encoded = self._encoded[n].get(address)
            if encoded is None:
                encoded = self._encode(made, address)
                self._encoded[n][address] = encoded
            ctypes.memmove(self._base + self._offsets[made.name], encoded, 128)
        self.start(stream)

    def start(self, stream: int) -> None:
        """Launch with the argument values of the last call."""
        launcher.launchKernel(
            self._function, self.grid, 1, 1, self.threads, 1, 1, self.smem_bytes, stream,
            self._pointers_at, 0,
        )

    def _encode(self, made: TensorMap, address: int) -> bytes:
        extents, strides = self._views[made.tensor.name]
        nbytes = made.tensor.dtype.nbytes
        dims = tuple(extents[axis] for axis in made.axes)
        steps = tuple(strides[axis] * nbytes for axis in made.axes[1:])
        return encode(made.tensor.name, made.tensor.dtype, address, dims, steps, made.box)


_TMA_TYPE = {
    DType.F64: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    DType.F32: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    DType.F16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    DType.BF16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    DType.I32: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_INT32,
    DType.I64: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_INT64,
    DType.BOOL: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
}


def encode(
    name: str,
    dtype: DType,
    address: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
) -> bytes:
    """Return the 128 bytes of a tensor map, after checking it by our own rules.

    Parameters are those of `tensor_map.check`.

    Raises
    ------
    ScheduleError
        If a rule is broken, or the driver refuses what our rules accept.
    """
    tensor_map.check(f"call({name})", dtype, address, dims, strides, box)
    error, made = driver.cuTensorMapEncodeTiled(
        _TMA_TYPE[dtype],
        len(dims),
        address,
        [driver.cuuint64_t(n) for n in dims],
        [driver.cuuint64_t(n) for n in strides or (16,)],  # one axis: ignored, but not null
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in dims],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ScheduleError(
            f"call({name}): the driver refused a tensor map of {dims} elements, strides {strides} "
            f'bytes, box {box} ({error.name}); use load="direct"'
        )
    return ctypes.string_at(int(made.getPtr()), 128)


def _checked(
    call: _Call, inputs: Sequence[Argument], out: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Refuse outputs of the wrong form, and any that overlap an input or each other."""
    if len(out) != len(call.sizes):
        raise FusionError(
            f"call(out=...): got {len(out)} tensors, the fusion has {len(call.sizes)} outputs"
        )
    spans: list[tuple[int, int, str]] = [
        (*_span(arg), tv.name)
        for tv, arg in zip(call.fusion.inputs, inputs, strict=True)
        if isinstance(arg, torch.Tensor)
    ]
    for tv, tensor, (shape, dtype) in zip(call.fusion.outputs, out, call.sizes, strict=True):
        if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
            raise FusionError(
                f"call(out={tv.name}): got {tensor.dtype} {tuple(tensor.shape)}, the output is a "
                f"contiguous {dtype} {shape}; pass torch.empty({shape}, dtype={dtype})"
            )
        if tensor.device != call.device:
            raise FusionError(
                f"call(out={tv.name}): the tensor is on {tensor.device}, the inputs on "
                f"{call.device}; move it"
            )
        first, last = _span(tensor)
        for other_first, other_last, name in spans:
            if first < other_last and other_first < last:
                raise FusionError(
                    f"call(out={tv.name}): overlaps {name} in memory by "
                    f"{min(last, other_last) - max(first, other_first)} bytes; pass a tensor of "
                    "its own"
                )
        spans.append((first, last, tv.name))
    return list(out)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte, and one past the last, that the tensor touches."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
