"""From a Fusion to results on the GPU: classes of shapes are compiled once, calls find a plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

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
    output_spec,
    refuse,
    with_parts,
)
from fuser.runtime.classify import classify
from fuser.runtime.explain import Explanation, explain
from fuser.runtime.launch import Argument, clusters_at_once, load_function
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.plan import ALIGNED, Block, Plan, kept_apart
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
REPEATS = 500
"""Calls of which the cost is measured: the driver takes a thousand launches ahead of the device."""
MAX_PLANS = 1024
"""Plans kept by an executable, some kilobytes each; of more the oldest is forgotten."""


def device_present() -> bool:
    """Tell whether a CUDA device can be used; never raises."""
    return bool(cupy.is_available()) and torch.cuda.is_available()


def host_us(call: Callable[..., object], *given: object) -> float:
    """Measure the microseconds that a call takes of the host, which waits for no launch."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPEATS):
        call(*given)
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken / REPEATS * 1e6


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
    further calls with the same shapes, strides and address alignment find a plan.  Threads may call
    at once, each on its own stream or all on one; one of them prepares a plan, others wait for it.
    """

    def __init__(
        self, fusion: Fusion, params: Params | None = None, *, poison: bool = False
    ) -> None:
        asked("Executable", fusion, params)
        self.fusion = fusion
        self.params = params
        self._defines = ("FUSER_POISON_SMEM",) if poison else ()
        self._programs: dict[CallClass, Program] = {}
        self._plans: dict[object, Plan] = {}
        self._last: Plan | None = None
        self._last_into: Plan | None = None
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
        last = self._last if out is None else self._last_into
        if last is not None and extents is None:
            outputs = last.launch(inputs, out, False)
            if outputs is not None:
                return outputs
        outputs = self._find(inputs, out, extents).launch(inputs, out, True)
        assert outputs is not None, "the plan is that of the call"
        return outputs

    def explain(self, *inputs: Argument, extents: Mapping[str, int] | None = None) -> Explanation:
        """Say which kernels such a call launches, why, and the bytes that each moves."""
        device = self._check_arguments(inputs)
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        shapes = (_spec(arg) if isinstance(arg, torch.Tensor) else None for arg in inputs)
        return explain(self.fusion, *shapes, params=self.params, extents=extents, sms=sms)

    def host_cost(self, *inputs: Argument) -> tuple[float, float]:
        """Measure host microseconds of one call, and of the bare launch of its first kernel."""
        self(*inputs)
        kernel = self._find(inputs, None, None).kernels[0]
        stream = torch.cuda.current_stream().cuda_stream
        return host_us(self, *inputs), host_us(kernel.start, stream)

    # --- the slow path ----------------------------------------------------------------------

    def _find(
        self,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
        extents: Mapping[str, int] | None,
    ) -> Plan:
        """Return the plan of a call, by what the call says; prepare one that is not known."""
        key = (
            tuple(map(_said, inputs)),
            None if out is None else tuple(map(_said, out)),
            None if extents is None else tuple(extents.items()),
        )
        plan = self._plans.get(key)
        if plan is None:
            with self._lock:
                plan = self._plans.get(key)  # another thread may have prepared it meanwhile
                if plan is None:
                    plan = self._prepare(inputs, out, extents)
                    if len(self._plans) >= MAX_PLANS:
                        del self._plans[next(iter(self._plans))]
                    self._plans[key] = plan
        if extents is None and out is None:
            self._last = plan
        elif extents is None:
            self._last_into = plan
        return plan

    def _prepare(
        self,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
        extents: Mapping[str, int] | None,
    ) -> Plan:
        device = self._check_arguments(inputs)
        specs = {
            tv.name: _spec(arg)
            for tv, arg in zip(self.fusion.inputs, inputs, strict=True)
            if isinstance(tv, TensorView) and isinstance(arg, torch.Tensor)
        }
        values = extents_of(self.fusion, specs, extents)
        outputs = [output_spec(tv, values) for tv in self.fusion.outputs]
        if out is not None:
            self._check_outputs(out, outputs, device)
            for tv, tensor in zip(self.fusion.outputs, out, strict=True):
                specs[tv.name] = _spec(tensor)
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        shapes = classify(self.fusion, self.params, specs, extents, sms)
        program = self._programs.get(shapes)
        if program is None:
            program = build(self.fusion, self.params, shapes)
            self._programs[shapes] = program
        bindings = bind(program, specs, sms=sms, free=extents)
        kernels = [self._loaded(binding, device) for binding in bindings if binding.grid]
        domains = ((launch.tiling.domain, launch.params) for launch in program.launches)
        values = with_parts(domains, values)
        between = [intermediate_spec(tv, values).nbytes for tv in program.intermediates]
        made = [(one.shape, one.strides, _TORCH[one.dtype]) for one in outputs if out is None]
        made += [((nbytes,), (1,), torch.uint8) for nbytes in between]
        given = [] if out is None else [tv.name for tv in self.fusion.outputs]
        apart = kept_apart(given, {name: spec.nbytes for name, spec in specs.items()})
        block = partial(Block, program, kernels, device)
        return Plan(block, device, inputs, out, made, len(made) - len(between), apart)

    def _loaded(
        self, binding: Binding, device: torch.device
    ) -> tuple[Binding, cupy.cuda.function.Function]:
        """Return a launch as it suits the device, with the function to launch."""
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
        return binding, function

    def _check_outputs(
        self, out: Sequence[torch.Tensor], outputs: Sequence[Spec], device: torch.device
    ) -> None:
        """Refuse outputs of the wrong form."""
        if len(out) != len(outputs):
            raise FusionError(
                f"call(out=...): got {len(out)} tensors, the fusion has {len(outputs)} outputs"
            )
        for tv, tensor, spec in zip(self.fusion.outputs, out, outputs, strict=True):
            shape, dtype = spec.shape, _TORCH[spec.dtype]
            if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
                refuse(
                    f"out={tv}",
                    f"got {tensor.dtype} {tuple(tensor.shape)}, the output is a contiguous {dtype} "
                    f"{shape}; pass torch.empty({shape}, dtype={dtype})",
                )
            if tensor.device != device:
                where = f"the tensor is on {tensor.device}, the inputs on {device}"
                refuse(f"out={tv}", f"{where}; move it")

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
            if not on_gpu(arg):
                refuse(tv, f"the tensor is on {arg.device}; pass {tv}.cuda()")
            if device is not None and arg.device != device:
                where = f"the tensor is on {arg.device}, another argument on {device}"
                refuse(tv, f"{where}; move them to one device")
            if arg.dtype not in _DTYPE:
                refuse(tv, f"got {arg.dtype}, the fusion says {tv.dtype}; cast the tensor")
            device = arg.device
        return device or torch.device("cuda", torch.cuda.current_device())


def on_gpu(tensor: torch.Tensor) -> bool:
    """Tell whether a kernel can read a tensor."""
    return tensor.is_cuda


def _said(given: object) -> object:
    """Return what makes calls different: all of a tensor but its elements; the type of a number."""
    if isinstance(given, torch.Tensor):
        aligned = given.data_ptr() % ALIGNED
        return (given.shape, given.stride(), given.dtype, given.device, aligned)
    return type(given)


def _spec(tensor: torch.Tensor) -> Spec:
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return Spec(shape, strides, tensor.data_ptr(), _DTYPE[tensor.dtype])
