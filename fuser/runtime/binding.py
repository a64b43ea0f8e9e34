"""From the shapes and addresses of a call to the integers of a launch; every promise is checked.

Needs neither torch nor a GPU: judges bind cases with it as the runtime binds calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from fuser.errors import FusionError, ScheduleError
from fuser.expr import Var
from fuser.fusion.ir import IterType, Symbol, TensorView
from fuser.lower.reduction import count_of
from fuser.lower.split_k import GROUPS, SPLITS
from fuser.pipeline import Launch, Program
from fuser.runtime.call import (
    Spec,
    extents_of,
    intermediate_spec,
    kernel_extents,
    normalised,
    output_spec,
    strides_of,
    with_parts,
)
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import MAX_SPLITS, PointwiseParams, ReductionParams
from fuser.schedule.reduction import ReductionTiling

MAX_COORDINATE = 2**31 - 1
"""Tile numbers and coordinates are 32-bit; so are the coordinates of the TMA engine."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The integers of one launch.

    Parameters
    ----------
    launch : Launch
        What is launched.
    params : dict
        Value of every parameter of the kernel.
    grid : int
        CTAs; 0 where there is nothing to compute, and nothing must be launched.
    views : dict
        Per tensor of the kernel its extents and strides (in elements) over the kernel's axes.
    """

    launch: Launch
    params: dict[str, int]
    grid: int
    views: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


def bind(
    program: Program,
    specs: Mapping[str, Spec],
    *,
    sms: int,
    free: Mapping[str, int] | None = None,
) -> list[Binding]:
    """Return the launches of a call.

    Parameters
    ----------
    program : Program
        Compiled for the class of these shapes.
    specs : mapping
        Name of each input (and, if it exists already, output) -> what the call gives.
    sms : int
        Streaming multiprocessors of the GPU, for persistent grids.
    free : mapping, optional
        Values of symbols that no input has.

    Raises
    ------
    FusionError, ScheduleError
        If a promise of the fusion is broken, or a number does not fit 32 bits.
    """
    values = extents_of(program.fusion, specs, free)
    values = with_parts(((one.tiling.domain, one.params) for one in program.launches), values)
    for tv in program.fusion.inputs:
        if isinstance(tv, TensorView):
            _check_promises(tv, specs[tv.name])
    known = {tv.name: intermediate_spec(tv, values) for tv in program.intermediates}
    known |= {tv.name: output_spec(tv, values) for tv in program.fusion.outputs}
    return [_bind(launch, {**known, **specs}, values, sms) for launch in program.launches]


def _bind(
    launch: Launch, specs: Mapping[str, Spec], values: Mapping[Symbol, int], sms: int
) -> Binding:
    tiles, schedule = launch.tiling, launch.params
    extents = kernel_extents(tiles, schedule, values)
    cluster = schedule.cluster if isinstance(schedule, MatmulParams) else (1, 1)
    together = [1] * tiles.rank
    if not isinstance(schedule, PointwiseParams):
        together[tiles.walked[-2] :] = [*cluster, *together[tiles.walked[-1] + 1 :]]
    each = zip(extents, tiles.tile, together, strict=True)
    counts = [-(-n // (tile * many)) for n, tile, many in each]
    count = prod(counts[axis] for axis in tiles.walked)
    for axis, (n, tile) in enumerate(zip(extents, tiles.tile, strict=True)):
        if n + tile > MAX_COORDINATE:
            raise ScheduleError(
                f"call: axis {axis} of the loops has {n} elements, at most "
                f"{MAX_COORDINATE - tile} fit 32-bit coordinates; use a tile of 2 or more rows"
            )
    if 2 * count > MAX_COORDINATE:
        raise ScheduleError(
            f"call: {count} tiles of {schedule.tile}, at most {MAX_COORDINATE // 2} fit 32 bits; "
            "use a larger tile"
        )
    params = {f"n{axis}": n for axis, n in enumerate(extents)}
    for reduction in tiles.domain.reductions:
        for number, extent in enumerate(reduction.tv.count):
            n = values[extent] if isinstance(extent, Symbol) else extent
            params[count_of(reduction, number).name] = n
    views = {}
    for access in (*tiles.domain.reads, *tiles.domain.writes):
        strides = strides_of(tiles, access, specs[access.tv.name], extents)
        tensor = next(t for t in launch.kernel.tensors if t.name == access.name)
        for stride, value in zip(tensor.strides, strides, strict=True):
            if isinstance(stride, Var):
                params[stride.name] = value
        seen = tuple(extents[a] if tiles.varies(access, a) else 1 for a in tiles.axes(access))
        if access.tv.parts:
            seen = (*seen[:-1], -(-extents[tiles.walked[-1]] // tiles.tile[tiles.walked[-1]]))
        views[access.name] = (seen, strides)
    match schedule:
        case MatmulParams() | AmpereParams():
            params["raster"] = rastered(counts[tiles.walked[-2]], schedule.raster)
            sharing = schedule.splits
            if SPLITS in launch.kernel.params:  # else a number of the kernel, chosen to fit
                steps = counts[tiles.walked[-1] + 1 :]
                tiles_at_once = 1 if schedule.persistent else max(count, 1)
                at_once = schedule.residency == "co-resident"
                most = max(sms // tiles_at_once, 1) if at_once else MAX_SPLITS
                sharing = params["splits"] = min(sharing, most, *steps)
            ctas = prod(cluster) * sharing
            takers = min(count, max(sms // ctas, 1)) if schedule.persistent else count
            if GROUPS in launch.kernel.params:
                params["groups"] = takers
            grid = takers * ctas
        case PointwiseParams(ctas_per_sm=many):
            grid = count if many is None else min(count, sms * many)
            if isinstance(schedule, ReductionParams) and schedule.splits > 1:
                assert isinstance(tiles, ReductionTiling), "only tiles of reductions are shared"
                every = prod(counts[axis] for axis in tiles.reduced)
                params["splits"] = min(schedule.splits, every)
                grid *= params["splits"]
    if grid > MAX_COORDINATE:
        raise ScheduleError(
            f"call: {count} tiles, each by {grid // count} CTAs, are {grid} CTAs; at "
            f"most {MAX_COORDINATE} are launched: use splits=1"
        )
    return Binding(launch, params, grid, views)


def rastered(rows: int, raster: int) -> int:
    """Return the largest divisor of a count of rows of tiles that is at most `raster`."""
    return max((n for n in range(1, raster + 1) if rows % n == 0), default=1)


def _check_promises(tv: TensorView, spec: Spec) -> None:
    own = normalised(tv, spec)
    span = 1
    if 0 in spec.shape:
        return
    for axis in sorted(range(tv.rank), key=lambda a: tv.stride_order[a]):
        if tv.logical[axis].iter_type is IterType.BROADCAST:
            continue
        if tv.contiguity[axis] and own[axis] != span:
            raise FusionError(
                f"call({tv.name}): axis {axis} has stride {spec.strides[axis]}, the fusion "
                f"promises {span} (contiguous, shape {spec.shape}); pass {tv.name}.contiguous(), "
                f"or define the tensor with contiguity[{axis}]=False"
            )
        span = own[axis] * spec.shape[axis]
