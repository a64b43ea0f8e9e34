"""From a Fusion to results on the GPU: classes of shapes compiled once, calls launched cheaply.

Nothing is copied and nothing synchronises; `Call.launch` is the cheap part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cupy
import torch

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.ir import Fusion, Scalar, TensorView
from fuser.pipeline import Program, build
from fuser.runtime.binding import Binding, bind
from fuser.runtime.call import (
    Spec,
    asked,
    extents_of,
    intermediate_spec,
    refuse,
    shape_of,
    with_parts,
)
from fuser.runtime.classify import classify
from fuser.runtime.explain import Explanation, explain
from fuser.runtime.launch import Argument, BoundKernel, clusters_at_once, load_function
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.scratch import scratch
from fuser.schedule.params import NormParams
from fuser.schedule.shape_class import CallClass, Params

_TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
_DTYPE = {torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()}
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
    params : PointwiseParams, ReductionParams or MatmulParams, optional
        How; kernels of another kind take the default heuristics, and all do if left out.
    poison : bool
        Compile kernels that fill their shared memory with NaNs first (for fuzzing).

    Notes
    -----
    The first call of a class of shapes compiles (tenths of a second, or a read of the disk cache);
    further calls with the same shapes, strides and address alignment look one dictionary up.
    """

    def __init__(
        self, fusion: Fusion, params: Params | None = None, *, poison: bool = False
    ) -> None:
        asked("Executable", fusion, params)
        self.fusion = fusion
        self.params = params
        self._defines = ("FUSER_POISON_SMEM",) if poison else ()
        self._programs: dict[CallClass, Program] = {}
        self._calls: dict[object, Call] = {}
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
            *(
                (a.shape, a.stride(), a.dtype, a.device, a.data_ptr() % 16)
                if isinstance(a, torch.Tensor)
                else type(a)
                for a in inputs
            ),
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

    def explain(self, *inputs: Argument, extents: Mapping[str, int] | None = None) -> Explanation:
        """Say which kernels such a call launches, why, and the bytes that each moves."""
        device = self._check_arguments(inputs)
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        shapes = (_spec(arg) if isinstance(arg, torch.Tensor) else None for arg in inputs)
        return explain(self.fusion, *shapes, params=self.params, extents=extents, sms=sms)

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
    ) -> Call:
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
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        shapes = classify(self.fusion, self.params, specs, extents, sms)
        program = self._programs.get(shapes)
        if program is None:
            program = build(self.fusion, self.params, shapes)
            self._programs[shapes] = program
        bindings = bind(program, specs, sms=sms, free=extents)
        kernels = [self._bound(program, binding, device) for binding in bindings if binding.grid]
        sizes = [(shape_of(tv, values), _TORCH[tv.dtype]) for tv in self.fusion.outputs]
        made = ((launch.tiling.domain, launch.params) for launch in program.launches)
        values = with_parts(made, values)
        between = [intermediate_spec(tv, values).nbytes for tv in program.intermediates]
        return Call(self.fusion, kernels, sizes, between, device)

    def _bound(self, program: Program, binding: Binding, device: torch.device) -> BoundLaunch:
        launch = binding.launch
        cubin = compile_cubin(launch.source, defines=self._defines)
        function = load_function(cubin, launch.kernel, device.index or 0)
        persistent = isinstance(launch.params, NormParams) and launch.params.ctas_per_sm is not None
        if launch.kernel.cluster > 1 and persistent:
            # Clusters that wait for others to end would take their tiles as late.
            with cupy.cuda.Device(device.index or 0):
                many = clusters_at_once(launch.kernel, function)
            grid = min(binding.grid, max(many, 1) * launch.kernel.cluster)
            binding = replace(binding, grid=grid)
        return BoundLaunch(program, binding, function, device)

    def _check_arguments(self, inputs: Sequence[Argument]) -> torch.device:
        want = self.fusion.inputs
        if len(inputs) != len(want):
            names = ", ".join(arg.name for arg in want)
            have = f"got {len(inputs)} arguments"
            raise FusionError(f"call: {have}, the fusion takes {len(want)}; pass {names}")
        device: torch.device | None = None
        for tv, arg in zip(want, inputs, strict=True):
            if isinstance(tv, Scalar):
                if isinstance(arg, torch.Tensor) or not isinstance(arg, _KINDS[tv.dtype]):
                    have = f"got {type(arg).__name__}"
                    refuse(tv, f"{have}, the fusion says a {tv.dtype} number; pass a Python number")
                continue
            if not isinstance(arg, torch.Tensor):
                have = f"got {type(arg).__name__}"
                refuse(tv, f"{have}, the fusion says a tensor of {tv.dtype}; pass a torch tensor")
            if arg.device.type != "cuda":
                refuse(tv, f"the tensor is on {arg.device}; pass {tv}.cuda()")
            if device is not None and arg.device != device:
                where = f"the tensor is on {arg.device}, another argument on {device}"
                refuse(tv, f"{where}; move them to one device")
            if arg.dtype not in _DTYPE:
                refuse(tv, f"got {arg.dtype}, the fusion says {tv.dtype}; cast the tensor")
            device = arg.device
        return device or torch.device("cuda", torch.cuda.current_device())


@dataclass(frozen=True, slots=True)
class Call:
    """All that a call with these shapes needs but addresses and numbers."""

    fusion: Fusion
    kernels: list[BoundLaunch]
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


class BoundLaunch(BoundKernel):
    """A launch of a compiled fusion, which knows where its arguments lie among those of a call."""

    def __init__(
        self,
        program: Program,
        binding: Binding,
        function: cupy.cuda.function.Function,
        device: torch.device,
    ) -> None:
        launch = binding.launch
        kernel = launch.kernel
        values = binding.values
        what = f"call({kernel.name} of {type(launch.params).__name__})"
        super().__init__(kernel, function, binding.grid, values, device, what=what)
        fusion = program.fusion
        named = (*fusion.inputs, *fusion.outputs, *program.intermediates)
        where = {arg.name: n for n, arg in enumerate(named)}
        self._tensors = []
        for name, own in launch.arguments.items():
            whole, offset = binding.places.get(own, (own, 0))
            self._tensors.append((self.word[name], where[whole], offset))
        self._scalars = [(self.scalar(s), where[s.name]) for s in kernel.scalars]
        self._scratch = scratch(kernel, values, device)
        self._needs_scratch = bool(self._scratch.workspaces or self._scratch.counters)

    def launch(self, arguments: Sequence[Argument], stream: int) -> None:
        """Write the addresses of inputs, outputs and intermediates, and the numbers, and launch."""
        addresses = self.addresses
        for word, position, offset in self._tensors:
            tensor = arguments[position]
            assert isinstance(tensor, torch.Tensor), "checked when the call was prepared"
            addresses[word] = tensor.data_ptr() + offset
        for room, position in self._scalars:
            room[0] = arguments[position]
        lent = self._scratch.lend(stream) if self._needs_scratch else {}
        for name, memory in lent.items():
            addresses[self.word[name]] = memory.data_ptr()
        self.write_maps()
        try:
            self.start(stream)
        except RuntimeError:
            self._scratch.forget(stream)
            raise


def _spec(tensor: torch.Tensor) -> Spec:
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return Spec(shape, strides, tensor.data_ptr(), _DTYPE[tensor.dtype])


def _checked(
    call: Call, inputs: Sequence[Argument], out: Sequence[torch.Tensor]
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
            refuse(
                f"out={tv}",
                f"got {tensor.dtype} {tuple(tensor.shape)}, the output is a contiguous {dtype} "
                f"{shape}; pass torch.empty({shape}, dtype={dtype})",
            )
        if tensor.device != call.device:
            where = f"the tensor is on {tensor.device}, the inputs on {call.device}"
            refuse(f"out={tv}", f"{where}; move it")
        first, last = _span(tensor)
        for other_first, other_last, name in spans:
            if first < other_last and other_first < last:
                common = min(last, other_last) - max(first, other_first)
                what = f"overlaps {name} in memory by {common} bytes"
                refuse(f"out={tv}", f"{what}; pass a tensor of its own")
        spans.append((first, last, tv.name))
    return list(out)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
