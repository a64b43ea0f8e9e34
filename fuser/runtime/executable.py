"""From a Fusion to results on the GPU: classes of shapes are compiled once, calls find a plan."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import cupy
import torch

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.ir import Fusion, Scalar, Symbol, TensorView
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
from fuser.runtime.classify import Alternatives, classify
from fuser.runtime.explain import Explanation, explain
from fuser.runtime.fallback import fitted
from fuser.runtime.launch import Argument, clusters_at_once, load_function
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.plan import ALIGNED, Block, Plan, kept_apart
from fuser.runtime.tuning import tuner
from fuser.runtime.tuning.memory import Device, about
from fuser.runtime.tuning.outputs import scratch_like, twin
from fuser.runtime.tuning.search import Judge, Report, Tuning
from fuser.runtime.tuning.timing import Aside, Call, ColdTimer
from fuser.runtime.tuning.tuner import Tune, Tuner
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
    fused : bool
        Let the compiler make one fma of a product and a sum, as it does by default.  Which it takes
        differs between schedules, in the last bit; without, what adds up nothing along an axis has
        the same bits under each.
    tune : bool, "background" or Tuning
        Measure some schedules of each kernel on the tensors of the first call of a class, and take
        the fastest from then on; it is remembered on disk, by fusion, class, device and compiler.
        In the background calls run by default until a thread has measured.  No `params` then.
        Schedules are judged before they run only by a `Tuning` with a `judge`.

    Raises
    ------
    FusionError
        If `fusion` is none.
    ScheduleError
        If `params` are none, or are given where it is to tune.

    Notes
    -----
    The first call of a class of shapes compiles (tenths of a second, or a read of the disk cache);
    further calls with the same shapes, strides and address alignment find a plan.  Threads may call
    at once, each on its own stream or all on one; one of them prepares a plan, others wait for it.

    Tuned are kernels of products, pointwise ones, reductions and normalizations, each while the
    others keep theirs; kernels with scans, and those that leave parts of results to others, have
    their default where another schedule would change the others' extents.  Of calls of a class
    extents are alike to an eighth, so that one answer serves growing batches.  Measuring takes a
    second or so for each kernel, most of it compiling, and as much memory again as outputs take,
    twice; in the background also as inputs take.  A call that is being captured into a graph runs
    by default, unless the answer is known; and nothing should be captured while a thread measures
    (`wait`), as it allocates.  A candidate whose results are not the default's is never chosen.
    """

    def __init__(
        self,
        fusion: Fusion,
        params: Params | None = None,
        *,
        poison: bool = False,
        fused: bool = True,
        tune: Tune = False,
    ) -> None:
        asked("Executable", fusion, params)
        how = tuner.asked(tune, params)
        self.fusion = fusion
        self.params = params
        self._tuner = None if how is None else Tuner(fusion, how)
        defines = ("FUSER_POISON_SMEM",) if poison else ()
        self._compile = partial(compile_cubin, defines=defines, fused=fused)
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
        said = explain(self.fusion, *shapes, params=self.params, extents=extents, sms=sms)
        if self._tuner is None:
            return said
        alternatives, key = self._asked_of(self._described(inputs, None, extents))
        found = self._tuner.chosen(alternatives, key, self._program) or alternatives.default
        pairs = zip(said.parts, found.schedules, strict=True)
        return replace(said, parts=tuple(replace(one, params=how) for one, how in pairs))

    def host_cost(self, *inputs: Argument) -> tuple[float, float]:
        """Measure host microseconds of one call, and of the bare launch of its first kernel."""
        self(*inputs)
        kernel = self._find(inputs, None, None).kernels[0]
        stream = torch.cuda.current_stream().cuda_stream
        return host_us(self, *inputs), host_us(kernel.start, stream)

    def measure(self, *inputs: Argument, extents: Mapping[str, int] | None = None) -> Report:
        """Measure schedules of such a call now, whatever is known, and take the fastest.

        ScheduleError if the executable was not made to tune.
        """
        if self._tuner is None:
            why = "it takes the schedules that it was given, or the default"
            raise ScheduleError(f"Executable(...).measure(): {why}; make it with tune=True")
        with self._lock:
            call = self._described(inputs, None, extents)
            report = self._measured(self._tuner, call, *self._asked_of(call))
            self._forget_plans()
        return report

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is measured in the background; False if that takes longer."""
        return self._tuner is None or self._tuner.wait(timeout_s)

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
                    if self._tuner is not None and torch.cuda.is_current_stream_capturing():
                        return plan  # the next call may measure
                    if len(self._plans) >= MAX_PLANS:
                        del self._plans[next(iter(self._plans))]
                    self._plans[key] = plan
        if self._plans.get(key) is not plan:
            return plan  # it was replaced meanwhile
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
        call = self._described(inputs, out, extents)
        if self._tuner is None:
            shapes = classify(self.fusion, self.params, call.specs, extents, call.sms)
        else:
            shapes = self._tuned(self._tuner, call)
        return self._planned(call, self._program(shapes, call))

    def _described(
        self,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
        extents: Mapping[str, int] | None,
    ) -> _Call:
        """Return what a call says, after all checks that need no schedule."""
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
        return _Call(inputs, out, extents, device, sms, specs, values, outputs)

    def _program(self, shapes: CallClass, call: _Call | None = None) -> Program:
        program = self._programs.get(shapes)
        if program is None:
            if self.params is None and call is not None:
                program = fitted(self.fusion, shapes, call.specs, call.extents, call.sms)
            else:
                program = build(self.fusion, self.params, shapes)
            # What a refused kernel has instead need not suit the next call of its class.
            program = self._programs.setdefault(program.shapes, program)
        return program

    def _planned(self, call: _Call, program: Program) -> Plan:
        bindings = bind(program, call.specs, sms=call.sms, free=call.extents)
        kernels = [self._loaded(binding, call.device) for binding in bindings if binding.grid]
        domains = ((launch.tiling.domain, launch.params) for launch in program.launches)
        values = with_parts(domains, call.values)
        between = [intermediate_spec(tv, values).nbytes for tv in program.intermediates]
        out = call.out
        made = [(one.shape, one.strides, _TORCH[one.dtype]) for one in call.outputs if out is None]
        made += [((nbytes,), (1,), torch.uint8) for nbytes in between]
        given = [] if out is None else [tv.name for tv in self.fusion.outputs]
        apart = kept_apart(given, {name: spec.nbytes for name, spec in call.specs.items()})
        block = partial(Block, program, kernels, call.device)
        returned = len(made) - len(between)
        return Plan(block, call.device, call.inputs, out, made, returned, apart)

    # --- tuning -----------------------------------------------------------------------------

    def _asked_of(self, call: _Call) -> tuple[Alternatives, str]:
        """Return the schedules that a call may have, and the key of the answer."""
        alternatives = Alternatives(self.fusion, call.specs, call.extents, call.sms)
        device = Device(torch.cuda.get_device_properties(call.device).name, call.sms)
        key = about(self.fusion, alternatives.default, alternatives.extents, device)
        return alternatives.beginning(self._program(alternatives.default, call).shapes), key

    def _tuned(self, tuner: Tuner, call: _Call) -> CallClass:
        """Return the class of the fastest schedules, as far as that is known or may be measured."""
        alternatives, key = self._asked_of(call)
        default = alternatives.default
        found = tuner.chosen(alternatives, key, self._program)
        if found is not None:
            return found
        if torch.cuda.is_current_stream_capturing():
            return default
        if tuner.tuning.background:
            if not tuner.begun(key):
                self._measure_later(tuner, call, alternatives, key)
            return default
        try:
            report = self._measured(tuner, call, alternatives, key)
        except torch.OutOfMemoryError:
            warnings.warn(
                f"tune: no memory for other outputs of {tuple(o.shape for o in call.outputs)}; "
                "the default schedule runs",
                RuntimeWarning,
                stacklevel=2,
            )
            return default
        return alternatives.having(report.schedules) or default

    def _measured(
        self,
        tuner: Tuner,
        call: _Call,
        alternatives: Alternatives,
        key: str,
        going: Callable[[], bool] = lambda: True,
    ) -> Report:
        """Measure on the inputs of a call; its outputs stay as they are."""
        outputs = [
            torch.empty(one.shape, dtype=_TORCH[one.dtype], device=call.device)
            for one in call.outputs
        ]
        if call.out is not None:
            outputs = [scratch_like(out) for out in call.out]
        stand = _Stand(self, self._described(call.inputs, outputs, call.extents), outputs)
        return tuner.measure(alternatives, key, stand, ColdTimer(call.device), going)

    def _measure_later(
        self, tuner: Tuner, call: _Call, alternatives: Alternatives, key: str
    ) -> None:
        """Measure in a thread, on copies of what the call is given, which the user may write to."""
        inputs = [twin(one) if isinstance(one, torch.Tensor) else one for one in call.inputs]
        aside = Aside(call.device)

        def work(going: Callable[[], bool]) -> None:
            with aside.entered():
                self._measured(tuner, replace(call, inputs=inputs), alternatives, key, going)
            with self._lock:
                self._forget_plans()

        tuner.begin(key, work)

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._last = self._last_into = None

    def _loaded(
        self, binding: Binding, device: torch.device
    ) -> tuple[Binding, cupy.cuda.function.Function]:
        """Return a launch as it suits the device, with the function to launch."""
        launch = binding.launch
        cubin = self._compile(launch.source)
        function = load_function(cubin, launch.kernel, device.index or 0)
        persistent = isinstance(launch.params, NormParams) and launch.params.ctas_per_sm is not None
        persistent = persistent and not launch.tiling.domain.begun
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


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call says; `values` are those of the extents of the fusion."""

    inputs: Sequence[Argument]
    out: Sequence[torch.Tensor] | None
    extents: Mapping[str, int] | None
    device: torch.device
    sms: int
    specs: Mapping[str, Spec]
    values: Mapping[Symbol, int]
    outputs: Sequence[Spec]


class _Stand:
    """Builds and runs classes of a call whose outputs are scratch tensors."""

    def __init__(self, run: Executable, call: _Call, outputs: list[torch.Tensor]) -> None:
        self._run, self._call, self.outputs = run, call, outputs
        self._programs: dict[CallClass, Program] = {}

    def program(self, shapes: CallClass) -> Program:
        """Compile to CUDA, for as long as it is measured."""
        program = self._programs.get(shapes)
        if program is None:
            program = self._programs[shapes] = build(self._run.fusion, None, shapes)
        return program

    def call(self, shapes: CallClass) -> Call:
        """Return what launches all kernels of a class."""
        plan = self._run._planned(self._call, self.program(shapes))
        return partial(plan.launch, self._call.inputs, self.outputs, True)


def tune(
    fusion: Fusion,
    *inputs: Argument,
    n: int = 8,
    judge: Judge | None = None,
    extents: Mapping[str, int] | None = None,
) -> Report:
    """Measure some schedules of a call now, and remember the fastest for ``Executable(tune=True)``.

    Parameters
    ----------
    fusion : Fusion
        What to compute.
    *inputs : torch.Tensor or number
        As a call takes them; they are read only.
    n : int
        Schedules of each kernel that are compiled and measured, the default among them.
    judge : callable, optional
        Says of a kernel why it is not to be offered (`Tuning`).
    extents : mapping, optional
        Values of extents that no input has, by name.

    Returns
    -------
    Report
        Schedules, microseconds and what was chosen; ``print`` writes a table.
    """
    run = Executable(fusion, tune=Tuning(n, judge=judge))
    return run.measure(*inputs, extents=extents)


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
