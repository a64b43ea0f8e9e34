"""The whole way from a Fusion to CUDA C++: the one tuple of passes, and `build`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from fuser import codegen
from fuser import kernel_ir as kir
from fuser.arch import SM_90A, Arch
from fuser.async_copies import drain_stores, fence_proxies, free_slots, observe_copies
from fuser.circular_buffer import circular_buffer
from fuser.domain import domains
from fuser.errors import ScheduleError
from fuser.kernel_text import text
from fuser.lower import lower
from fuser.params import PointwiseParams
from fuser.scheduler import Tiling, default_params, tiling
from fuser.shape_class import ShapeClass
from fuser.sync import init_barriers, sync_threads
from fuser.tensor_view import Fusion
from fuser.validate import validate
from fuser.warp_specialize import warp_specialize

PASSES: tuple[Callable[[kir.Kernel], kir.Kernel], ...] = (
    circular_buffer,
    warp_specialize,
    observe_copies,
    free_slots,
    drain_stores,
    fence_proxies,
    init_barriers,
    sync_threads,
)
"""Every pass, in order: each takes a valid Kernel and gives a valid Kernel."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a program.

    Parameters
    ----------
    kernel : Kernel
        With every sync explicit.
    tiling : Tiling
        Where its axes come from.
    arguments : dict
        Name of a tensor of the kernel -> name of the fusion's tensor that it is a view of.
    source : str
        CUDA C++ for sm_90a.
    """

    kernel: kir.Kernel
    tiling: Tiling
    arguments: dict[str, str]
    source: str


@dataclass(frozen=True, slots=True)
class Program:
    """A fusion, compiled to CUDA C++ for one class of shapes; needs no GPU to make."""

    fusion: Fusion
    params: PointwiseParams
    shapes: tuple[ShapeClass, ...]
    launches: tuple[Launch, ...]


def build(
    fusion: Fusion,
    params: PointwiseParams | None,
    shapes: tuple[ShapeClass, ...],
    *,
    arch: Arch = SM_90A,
) -> Program:
    """Compile a fusion to CUDA C++.

    Parameters
    ----------
    fusion : Fusion
        What to compute.
    params : PointwiseParams or None
        How; None takes the default heuristic.
    shapes : tuple of ShapeClass
        The class of shapes of each kernel, from `fuser.binding.classify`.

    Raises
    ------
    ScheduleError
        If the params cannot be met: no tensor that TMA can move, too much shared memory.
    """
    params = params or default_params(fusion)
    _dump("fusion", str(fusion))
    launches = []
    for n, (domain, shape_class) in enumerate(zip(domains(fusion), shapes, strict=True)):
        tiles = tiling(domain, params)
        kernel = run(lower(f"pointwise{n}", tiles, params, shape_class))
        _check_fits(kernel, params, arch)
        source = codegen.source(kernel)
        _dump("cuda", source)
        accesses = (*domain.reads, *domain.writes)
        arguments = {access.name: access.tv.name for access in accesses}
        launches.append(Launch(kernel, tiles, arguments, source))
    return Program(fusion, params, shapes, tuple(launches))


def run(kernel: kir.Kernel) -> kir.Kernel:
    """Apply PASSES in order; validate, and maybe print, after each."""
    validate(kernel, after="lower")
    _dump("lower", text(kernel))
    for run_pass in PASSES:
        kernel = run_pass(kernel)
        validate(kernel, after=run_pass.__name__, final=run_pass is PASSES[-1])
        _dump(run_pass.__name__, text(kernel))
    return kernel


def _check_fits(kernel: kir.Kernel, params: PointwiseParams, arch: Arch) -> None:
    if kernel.threads > arch.max_threads:
        raise ScheduleError(
            f"PointwiseParams(warps={params.warps}): {kernel.threads} threads, {arch.name} has "
            f"{arch.max_threads} per CTA; use fewer warps"
        )
    if kernel.smem_bytes > arch.smem_bytes:
        per_stage = sum(b.slot_nbytes for b in kernel.buffers if b.slots == params.stages)
        fixed = kernel.smem_bytes - per_stage * params.stages
        fit = max(0, (arch.smem_bytes - fixed - 128) // max(per_stage, 1))
        way_out = f"use stages={fit}" if fit else "use a smaller tile"
        raise ScheduleError(
            f"PointwiseParams(tile={params.tile}, stages={params.stages}): needs "
            f"{kernel.smem_bytes} bytes of shared memory, {arch.name} has {arch.smem_bytes}; "
            f"{way_out}"
        )


def _dump(name: str, content: str) -> None:
    """Print a stage that `FUSER_DUMP` names (a comma list, or `all`) to stderr."""
    wanted = os.environ.get("FUSER_DUMP", "")
    if wanted and (wanted == "all" or name in wanted.split(",")):
        print(f"=== {name} ===\n{content}", file=sys.stderr)
