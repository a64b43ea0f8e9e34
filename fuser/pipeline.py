"""The whole way from a Fusion to CUDA C++: the one tuple of passes, and `build`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from fuser.arch import SM_90A, SPARE_REGISTERS, Arch
from fuser.codegen import cuda
from fuser.codegen.live_fragments import Held, most_held
from fuser.codegen.registers import plan
from fuser.errors import ScheduleError, meant
from fuser.fusion.ir import Fusion, TensorView
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.lower.ampere import AmpereLowering
from fuser.lower.hopper import HopperLowering
from fuser.lower.norm import NormLowering
from fuser.lower.reduction import ReductionLowering
from fuser.lower.scan import ScanLowering
from fuser.lower.tiling import Lowering, Numbers, PointwiseLowering
from fuser.passes.async_copies import fence_proxies, group_copies, observe_copies
from fuser.passes.circular_buffer import circular_buffer, forget_requests
from fuser.passes.exchange import exchange
from fuser.passes.free_slots import free_shared_slots, free_slots
from fuser.passes.launches import await_launches
from fuser.passes.overlay import overlay
from fuser.passes.queues import await_queues
from fuser.passes.split_k import serialize_split_k, sync_clusters, sync_ctas
from fuser.passes.stores import drain_stores
from fuser.passes.sync import init_barriers, sync_threads
from fuser.passes.tensor_cores import flush_wgmma, group_wgmma
from fuser.passes.warp_specialize import alternate_roles, warp_specialize
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Domain, by_rows
from fuser.schedule.matmul import MatmulTiling, matmul_tiling, shared
from fuser.schedule.matmul_params import MatmulParams, nearest_registers
from fuser.schedule.norm import norm_tiling
from fuser.schedule.norm_heuristic import default_norm_params
from fuser.schedule.params import (
    NormParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    TensorCoreParams,
)
from fuser.schedule.pointwise import (
    Tiling,
    default_direct,
    default_transposing,
    tiling,
)
from fuser.schedule.products.choose import default_matmul_params
from fuser.schedule.reduction import ReductionTiling, reduction_tiling
from fuser.schedule.reduction_heuristic import default_reduction_params
from fuser.schedule.scan import default_scan_params, scan_tiling
from fuser.schedule.segment import Segment, intermediates, segments
from fuser.schedule.shape_class import CallClass, Params

PASSES: tuple[Callable[[kir.Kernel], kir.Kernel], ...] = (
    circular_buffer,
    warp_specialize,
    overlay,
    observe_copies,
    group_copies,
    await_queues,
    group_wgmma,
    flush_wgmma,
    free_slots,
    free_shared_slots,
    alternate_roles,
    serialize_split_k,
    sync_ctas,
    sync_clusters,
    exchange,
    drain_stores,
    fence_proxies,
    forget_requests,
    await_launches,
    init_barriers,
    sync_threads,
)
"""Every pass, in order: each takes a valid Kernel and gives a valid Kernel."""

STAGES = ("fusion", "lower", *(run_pass.__name__ for run_pass in PASSES), "cuda")
"""What `build` makes on its way, in order; all but the fusion once for each kernel."""

Made = Fusion | kir.Kernel | str
"""What `build` makes on its way; a text is CUDA."""
Watch = Callable[[str, Made], None]
"""Is given each of `STAGES` as it is made."""

Loops = Tiling | MatmulTiling
"""The axes of a kernel."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a program, scheduled by `params`, with its CUDA C++ for sm_90a.

    `tiling` says where its axes come from, `numbers` its grid and parameters; `arguments` has, by
    name of a tensor of the kernel, that of the fusion's tensor that it is a view of.
    """

    kernel: kir.Kernel
    tiling: Loops
    params: Params
    numbers: Numbers
    arguments: dict[str, str]
    source: str


@dataclass(frozen=True, slots=True)
class Program:
    """A fusion, compiled for one class of calls; launches hand each other `intermediates`."""

    fusion: Fusion
    params: Params | None
    shapes: CallClass
    launches: tuple[Launch, ...]
    intermediates: tuple[TensorView, ...] = ()


def build(
    fusion: Fusion,
    params: Params | None,
    shapes: CallClass,
    *,
    arch: Arch = SM_90A,
    watch: Watch | None = None,
) -> Program:
    """Compile a fusion to CUDA C++.

    `shapes` is from `fuser.runtime.classify.classify`.  Kernels of another kind than `params` take
    the default heuristics, and all do if these are None.  `watch` is shown every stage; without it,
    those that `FUSER_DUMP` names are printed.

    Raises
    ------
    ScheduleError
        If the params cannot be met: no tensor that TMA can move, too much shared memory, too many
        registers.
    CompileError
        If a pass made an invalid kernel, which no params may ask for.
    """
    watched = watch is not None or bool(os.environ.get("FUSER_DUMP"))
    watch = watch or dump
    watch("fusion", fusion)
    launches = []
    cut = segments(fusion, shapes.choices)
    for n, (segment, shape_class, schedule) in enumerate(
        zip(cut, shapes.kernels, shapes.schedules, strict=True)
    ):
        domain = segment.domain
        tiles = tiled(domain, schedule)
        lowering: Lowering[Any, Any]
        match tiles, schedule:
            case ReductionTiling(), NormParams():
                kind = "norm" if domain.rows else "reduction"
                lowering = NormLowering(f"{kind}{n}", tiles, schedule, shape_class)
            case ReductionTiling(), ScanParams():
                lowering = ScanLowering(f"scan{n}", tiles, schedule, shape_class)
            case ReductionTiling(), PointwiseParams():
                lowering = ReductionLowering(f"reduction{n}", tiles, schedule, shape_class)
            case Tiling(), PointwiseParams():
                lowering = PointwiseLowering(f"pointwise{n}", tiles, schedule, shape_class)
            case MatmulTiling(), MatmulParams():
                lowering = HopperLowering(f"matmul{n}", tiles, schedule, shape_class)
            case MatmulTiling(), AmpereParams():
                lowering = AmpereLowering(f"matmul{n}", tiles, schedule, shape_class)
            case _:
                raise AssertionError("a tiling and its params are of one kind")
        try:
            lowered = lowering.lowered()
            if watched:
                made = _Finished(run(lowered.kernel, watch))
            else:
                made = _finished(lowered.kernel, PASSES)
            _check_fits(made, schedule, arch)
        except ScheduleError as error:
            error.kernel = n
            raise
        watch("cuda", made.source)
        arguments = {access.name: access.tv.name for access in domain.accesses}
        launches.append(
            Launch(made.kernel, tiles, schedule, lowered.numbers, arguments, made.source)
        )
    return Program(
        fusion, params, shapes, tuple(launches), intermediates(fusion, cut, shapes.choices)
    )


class _Finished:
    """A kernel behind all passes, and what is read off it."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        self._registers = plan(kernel)

    @cached_property
    def held(self) -> list[Held]:
        """The most that a thread of each role holds at once."""
        return most_held(self.kernel, self._registers)

    @cached_property
    def source(self) -> str:
        """Its CUDA C++."""
        return cuda.source(self.kernel, self._registers)


@lru_cache(maxsize=128)
def _finished(
    lowered: kir.Kernel, passes: tuple[Callable[[kir.Kernel], kir.Kernel], ...]
) -> _Finished:
    """Return what the passes make of a kernel; they see nothing else, so it is made once.

    Of two schedules of a fusion, or two fusions with a part in common, many kernels are the same.
    """
    assert passes is PASSES, "asked of other passes than are applied"
    return _Finished(run(lowered))


def chosen(
    segment: Segment,
    params: Params | None,
    loops: Sequence[int],
    sms: int = SM_90A.sms,
    *,
    by_tma: bool = False,
) -> Params:
    """Return the params of a kernel: those given if they are of its kind, else the heuristic's.

    `loops` are the extents of the loop axes of its domain; with `by_tma` TMA can move all that is
    transposed, should the heuristic ask it to.
    """
    if segment.domain.products:
        if not isinstance(params, MatmulParams | AmpereParams):
            params = default_matmul_params(segment.fusion, segment.domain, loops, sms)
        return shared(segment.domain, params, loops, sms)
    if segment.domain.rows:
        if isinstance(params, NormParams):
            return params
        return default_norm_params(segment.domain, loops)
    if segment.domain.scanned is not None:
        return (
            params if isinstance(params, ScanParams) else default_scan_params(segment.domain, loops)
        )
    if isinstance(params, NormParams | ScanParams):
        params = None
    if isinstance(params, ReductionParams) and not segment.domain.reductions:
        return params.pointwise()
    if isinstance(params, PointwiseParams):
        return params
    if segment.domain.reductions:
        return default_reduction_params(segment.fusion, segment.domain, loops)
    transposing = default_transposing(segment.domain, loops, by_tma=by_tma)
    return transposing or default_direct(segment.domain, loops)


def tiled(domain: Domain, params: Params) -> Loops:
    """Return the axes of a kernel."""
    if isinstance(params, TensorCoreParams):
        return matmul_tiling(domain, params)
    if isinstance(params, NormParams):
        whole = domain if domain.rows else by_rows(domain)
        assert whole is not None, "such params are chosen for what has rows"
        return norm_tiling(whole, params)
    if domain.scanned is not None:
        assert isinstance(params, ScanParams), "such params are chosen for what is scanned"
        return scan_tiling(domain, params)
    return reduction_tiling(domain, params) if domain.reductions else tiling(domain, params)


def run(kernel: kir.Kernel, watch: Watch | None = None) -> kir.Kernel:
    """Apply PASSES in order; show the kernel, and validate what changed, after each."""
    watch = watch or dump
    watch("lower", kernel)
    validate(kernel, after="lower")
    for run_pass in PASSES:
        before, kernel = kernel, run_pass(kernel)
        watch(run_pass.__name__, kernel)
        final = run_pass is PASSES[-1]
        if final or kernel != before:
            validate(kernel, after=run_pass.__name__, final=final)
    return kernel


def _check_fits(made: _Finished, params: Params, arch: Arch) -> None:
    kernel = made.kernel
    if kernel.threads > arch.max_threads:
        raise ScheduleError(
            f"{type(params).__name__}({params.family}): {kernel.threads} threads, {arch.name} has "
            f"{arch.max_threads} per CTA; use fewer warps"
        )
    if kernel.smem_bytes > arch.smem_bytes:
        ring = [b for b in kernel.buffers if b.slots == params.stages]
        per_stage = sum(b.slot_nbytes for b in ring)
        fixed = kernel.smem_bytes - per_stage * params.stages
        fit = max(0, (arch.smem_bytes - fixed - 128) // max(per_stage, 1))
        over = [b for b in kernel.buffers if b not in ring and any(map(b.shares, ring))]
        if max((b.end for b in over), default=0) > arch.smem_bytes:
            fit = 0  # what lies in the ring is too large by itself
        way_out = f"use stages={fit}" if fit else "use a smaller tile"
        have = f"{kernel.smem_bytes} bytes of shared memory, {arch.name} has {arch.smem_bytes}"
        params.refuse("tile stages", f"needs {have}; {way_out}")
    for held in made.held:
        _check_registers(held, kernel, params)


def _check_registers(held: Held, kernel: kir.Kernel, params: Params) -> None:
    """Refuse what the assembler would have to spill around products, and so serialise."""
    room = held.have - SPARE_REGISTERS
    if held.registers <= room:
        return
    way_out = "use a smaller tile"
    if isinstance(params, MatmulParams) and params.split != "pipelined" and params.warpgroups > 1:
        most = nearest_registers(params.warpgroups)
        if held.registers <= most[1] - SPARE_REGISTERS:
            way_out = f"use registers={most}"
    which = ", ".join(f"{name} {many}" for name, many in sorted(held.fragments.items()) if many)
    params.refuse(
        "tile",
        f"{kernel.name} holds {held.registers} "
        f"registers of fragments in a thread at once ({which}), of its {held.have} at most {room} "
        f"may be; {way_out}",
    )


def shown(made: Made) -> str:
    """Write what `build` makes on its way as text."""
    return text(made) if isinstance(made, kir.Kernel) else str(made)


def dump(name: str, made: Made) -> None:
    """Print a stage that `FUSER_DUMP` names (a comma list, or `all`) to stderr."""
    wanted = set(os.environ.get("FUSER_DUMP", "").split(",")) - {""}
    for other in sorted(wanted - {*STAGES, "all"}) if name == STAGES[0] else ():
        print(f"FUSER_DUMP={other}: no such stage; {meant(other, STAGES)}", file=sys.stderr)
    if wanted & {name, "all"}:
        print(f"=== {name} ===\n{shown(made)}", file=sys.stderr)
