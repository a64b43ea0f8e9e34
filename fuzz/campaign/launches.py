"""Launches for the simulator: small ones made up for a kernel, and those of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm

import numpy as np
import numpy.typing as npt
import torch

from fuser import pipeline
from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, eq
from fuser.fusion.definition import Scalar, Symbol
from fuser.kernel import ir as kir
from fuser.runtime.binding import Binding
from fuser.runtime.call import intermediate_spec, number, with_parts
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul import MatmulTiling
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ScanParams
from fuser.schedule.reduction import ReductionTiling
from fuzz.cases.case import POISON, Case, Value, output_specs
from oracles.prover.sites import fixed_grid
from oracles.simulator.simulate import Launch

Array = npt.NDArray[np.generic]

_TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
_TMA_BYTES = 16
"""Strides that TMA takes are multiples of this."""
_REPEATED = 3
"""Accesses after which an input repeats, where no case says it."""
ANY_COUNT = 3
"""Elements that a mean of parts is of, where no case says it."""


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One launch of a case as the simulator takes it; None where there is nothing to compute.

    `views` are strided ones of the tensors that those of the kernel stand for; of one that repeats,
    `places` says where in it each of its elements lies.
    """

    kernel: kir.Kernel
    launch: Launch | None
    views: dict[str, torch.Tensor]
    scalars: dict[str, float]
    places: dict[str, torch.Tensor] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        """Return dense arrays in register form, as earlier launches have left the tensors."""
        dtypes = {tensor.name: tensor.dtype for tensor in self.kernel.tensors}
        seen = self.views | {name: self.views[name][at] for name, at in self.places.items()}
        return {name: _register_form(array, dtypes[name]) for name, array in seen.items()}

    def store(self, arrays: dict[str, Array]) -> None:
        """Write what the simulator left in the arrays into the tensors."""
        for name in self.kernel.outputs:
            if self.views[name].numel():
                made, view = torch.from_numpy(arrays[name]), self.views[name]
                view.copy_(made.view(view.dtype) if made.dtype is torch.uint8 else made)


MATMUL_TILES = 3
"""Tiles that a persistent CTA takes in a launch made up for a kernel with products."""

CTAS_OF_A_TILE = 3
"""CTAs that share a tile there, where any do: a first, a middle and a last one."""


def trip_counts(launch: pipeline.Launch) -> list[int]:
    """Return 0, 1, S - 1, S and 2 S + 1 for rings of S slots; S is 1 without a ring.

    What the CTAs of a cluster send each other takes a slot of each in every turn.  A kernel with
    products is never launched for none, nor one in which CTAs share a tile or have one each.
    """
    kernel = launch.kernel
    sent = {stmt.dst.buffer.name for stmt in kernel.walk() if isinstance(stmt, kir.StAsync)}
    turns = (b.slots // (kernel.cluster if b.name in sent else 1) for b in kernel.buffers)
    stages = max(turns, default=1)
    counts = {0, 1, stages - 1, stages, 2 * stages + 1}
    some = isinstance(launch.tiling, MatmulTiling) or Var("splits") in launch.kernel.params
    some |= fixed_grid(kernel) is not None and not isinstance(launch.params, ScanParams)
    return sorted(counts - {0} if some else counts)


def with_trips(launch: pipeline.Launch, trips: int) -> Launch:
    """Return a launch in which every CTA runs its loops so often.

    For a kernel with products these are steps along the summed axes, of each of a few tiles; for
    one in which CTAs share a tile of a reduction, steps of the first of them.
    """
    if isinstance(launch.tiling, MatmulTiling):
        return _with_steps(launch, launch.tiling, max(trips, 1))
    if isinstance(launch.tiling, ReductionTiling) and Var("splits") in launch.kernel.params:
        return _with_shares(launch, launch.tiling, max(trips, 1))
    if isinstance(launch.params, ScanParams) and isinstance(launch.tiling, ReductionTiling):
        return _with_steps_along(launch, launch.tiling, trips)
    return _with_tiles(launch, trips)


def _with_steps(launch: pipeline.Launch, tiles: MatmulTiling, steps: int) -> Launch:
    """Leave tails along every axis, where the kernel's alignment allows it."""
    kernel = launch.kernel
    even = max((t.aligned for t in kernel.tensors if not t.ragged), default=1)
    persistent = isinstance(launch.params, MatmulParams | AmpereParams) and launch.params.persistent
    counts = [1] * tiles.rank
    if persistent:
        turns = isinstance(launch.params, MatmulParams) and launch.params.split == "ping_pong"
        counts[tiles.rows] = MATMUL_TILES + turns  # two for each who takes every second
    sharing = _sharing(launch, steps)
    for axis in range(tiles.outer + 2, tiles.rank):
        # Of CTAs that share a tile the first has so many steps, the others one less, if not none.
        counts[axis] = max((steps - 1) * sharing + 1, sharing)
    if isinstance(launch.params, MatmulParams):
        counts[tiles.rows] *= launch.params.cluster[0]
        counts[tiles.cols] *= launch.params.cluster[1]
    extents = []
    for axis, (count, tile) in enumerate(zip(counts, tiles.tile, strict=True)):
        ends = [_ends(t, Var(f"n{axis}")) for t in kernel.tensors]
        if eq(Var(f"n{axis}") % tile, 0) in kernel.requires:
            ends.append(tile)
        # 16 elements of 8 bits are more than a tile of 8 columns, where nothing asks for them.
        off = max(even if even <= tile else 1, *ends)
        whole = -(-count * tile // off) * off  # alignments may ask for whole tiles, or several
        tail = max(off, count * tile - off)
        extents.append(count if tile == 1 else tail if off < tile else whole)
    numbers = {"splits": sharing, "groups": 1}
    known = {p.name: numbers[p.name] for p in kernel.params if p.name in numbers}
    params = _dense(kernel, extents, {"raster": 1} | known)
    return _of_tiles(kernel, kernel.cluster * sharing, params)


def _ends(tensor: kir.Tensor, extent: Var) -> int:
    """Return of what an extent is a multiple where a tensor's rows end with it, or with a part."""
    match tensor.extents[-1]:
        case Op(Kind.FLOORDIV, part, int(many)) if part == extent:
            return tensor.aligned * many
        case last:
            return tensor.aligned if last == extent else 1


def _sharing(launch: pipeline.Launch, steps: int) -> int:
    """Return how many CTAs share a tile of a product: as the kernel says, or a few."""
    if Var("splits") in launch.kernel.params:
        return CTAS_OF_A_TILE if steps > 1 else 1
    params = launch.params
    if not isinstance(params, MatmulParams | AmpereParams) or params.meet == "cluster":
        return 1
    return params.splits


def _with_shares(launch: pipeline.Launch, tiles: ReductionTiling, steps: int) -> Launch:
    """Leave tails along every axis of one tile; more steps where the kernel's alignment asks so."""
    kernel = launch.kernel
    even = max((t.aligned for t in kernel.tensors if not t.ragged), default=1)
    extents = [max(1, tile - 1) for tile in tiles.tile]
    extents[-1] = max(even, extents[-1] // even * even)
    axis = tiles.reduced[-1]
    # The first has so many, the others one less.
    extents[axis] += (steps - 1) * CTAS_OF_A_TILE * tiles.tile[axis]
    extents[-1] = -(-extents[-1] // even) * even
    ctas = CTAS_OF_A_TILE if steps > 1 else 1
    return Launch(ctas, _counted(kernel, _dense(kernel, extents, {"splits": ctas})))


def _with_steps_along(launch: pipeline.Launch, tiles: ReductionTiling, steps: int) -> Launch:
    """Leave tails along both axes of a tile, which a CTA scans in so many steps; 0: no columns."""
    kernel, (axis,) = launch.kernel, tiles.reduced
    even = max((t.aligned for t in kernel.tensors if not t.ragged), default=1)
    extents = [max(1, tile - 1) for tile in tiles.tile]
    extents[axis] += max(steps - 1, 0) * tiles.tile[axis]
    extents[-1] = -(-extents[-1] // even) * even if steps or not tiles.along else 0
    return _of_tiles(kernel, 1, _counted(kernel, _dense(kernel, extents, {})))


def _with_tiles(launch: pipeline.Launch, trips: int) -> Launch:
    """Return a launch in which every CTA gets `trips` tiles; with 0, only the last CTA runs.

    Extents leave tails along every axis where the kernel's alignment allows it; strides that must
    be multiples of 16 bytes aside, tensors are dense.  Where the alignment asks for several tiles
    along a row, or down the columns of transposed tiles, there are as many CTAs.
    """
    kernel, tile = launch.kernel, launch.tiling.tile
    ends = (t for t in kernel.tensors if not t.ragged and t.extents[-1:] != (1,))
    even = max((t.aligned for t in ends), default=1)
    across = -(-even // tile[-1]) if len(tile) > 1 else lcm(even, tile[-1]) // tile[-1]
    count = max(trips, 1)
    extents = [1] * len(tile)
    extents[-1] = max(even, (tile[-1] - 1) // even * even)
    rows_of = launch.params if isinstance(launch.params, NormParams) else None
    runs = isinstance(launch.params, PointwiseParams) and launch.params.load == "bulk"
    if runs and rows_of is None:
        part = max(even, (tile[0] // 2 - 1) // even * even)
        extents[0] = trips * tile[0] + part  # whole ones, and part of another
    elif len(tile) == 1:
        most = across * count * tile[0]
        extents[0] = most - even if most - even > most - tile[0] else most
    else:
        rows = Var(f"n{len(tile) - 2}")
        down = max((t.aligned for t in kernel.tensors if t.extents[-1] == rows), default=1)
        whole = lcm(down, tile[-2])
        across *= whole // tile[-2]
        extents[-2] = whole - down if down < whole else whole
        extents[0] += (count - 1) * (whole if len(tile) == 2 else 1)
    ctas = kernel.cluster
    if rows_of is not None:  # whole rows fit a tile, or fill it
        fills = eq(Var(f"n{len(tile) - 1}"), rows_of.columns) in kernel.requires
        extents[-1] = rows_of.columns if fills else min(extents[-1], rows_of.columns)
    params = _counted(kernel, _dense(kernel, extents, {}))
    if trips == 0:
        last = range(across * ctas, (across + 1) * ctas)
        return Launch((across + 1) * ctas, params, blocks=tuple(last))
    return _of_tiles(kernel, across * ctas, params)


def _of_tiles(kernel: kir.Kernel, ctas: int, params: dict[str, int]) -> Launch:
    """Return a launch of so many CTAs, or of one for each tile where the kernel asks for that."""
    tiles = fixed_grid(kernel)
    values = {Var(name): value for name, value in params.items()}
    return Launch(ctas if tiles is None else number(tiles, values), params)


def _counted(kernel: kir.Kernel, params: dict[str, int]) -> dict[str, int]:
    """Add what a mean of parts is divided by."""
    return {param.name: params.get(param.name, ANY_COUNT) for param in kernel.params}


def calls(
    case: Case, given: list[Value], program: pipeline.Program, bindings: list[Binding]
) -> tuple[list[Call], dict[str, Value]]:
    """Return the launches of a case, and all that they read and write, by name.

    Outputs and what lies between kernels are poisoned.
    """
    named = {arg.name: value for arg, value in zip(case.fusion.inputs, given, strict=True)}
    for tv in case.fusion.outputs:
        shape = output_specs(case)[tv.name].shape
        named[tv.name] = torch.full(shape, POISON[tv.dtype], dtype=_TORCH[tv.dtype])
    values = {Symbol(name): n for name, n in case.extents.items()}
    values = with_parts(((one.tiling.domain, one.params) for one in program.launches), values)
    for tv in program.intermediates:
        spec = intermediate_spec(tv, values)
        room = torch.full(
            (spec.nbytes // tv.dtype.nbytes,), POISON[tv.dtype], dtype=_TORCH[tv.dtype]
        )
        named[tv.name] = room.as_strided(spec.shape, spec.strides)
    scalars = {
        arg.name: value
        for arg, value in zip(case.fusion.inputs, given, strict=True)
        if isinstance(arg, Scalar) and not isinstance(value, torch.Tensor)
    }
    made = []
    for binding in bindings:
        kernel = binding.launch.kernel
        views: dict[str, torch.Tensor] = {}
        places: dict[str, torch.Tensor] = {}
        for name, own in binding.launch.arguments.items():
            memory, offset = binding.places.get(own, (own, 0))
            whole = named[memory]
            assert isinstance(whole, torch.Tensor), "scalars are no tensors of a kernel"
            (tensor,) = (t for t in kernel.tensors if t.name == name)
            view = binding.view(name)
            first = whole.storage_offset() + offset // whole.element_size()
            if tensor.cycles:
                places[name] = _repeated(tensor, view[0][0], binding.values)
                view = (int(places[name].max()) + 1 if view[0][0] else 0,), (1,)
            views[name] = whole.as_strided(*view, first)
        numbers = {scalar.name: scalars[scalar.name] for scalar in kernel.scalars}
        launch = Launch(binding.grid, binding.params) if binding.grid else None
        made.append(Call(kernel, launch, views, numbers, places))
    return made, named


def _repeated(tensor: kir.Tensor, positions: int, values: Mapping[Var, Expr]) -> torch.Tensor:
    """Return where each position of a tensor that repeats lies."""
    places = torch.zeros(positions, dtype=torch.int64)
    for cycle in tensor.cycles:
        index = torch.arange(positions) // number(cycle.each, values)
        if cycle.period is not None:
            index %= number(cycle.period, values)
        places += index * number(cycle.stride, values)
    return places


def _dense(kernel: kir.Kernel, extents: list[int], more: dict[str, int]) -> dict[str, int]:
    """Give extents and strides their values: tensors are dense, the unit stride fastest."""
    params = {f"n{axis}": n for axis, n in enumerate(extents)} | more
    for tensor in kernel.tensors:
        values = [
            params.setdefault(e.name, ANY_COUNT) if isinstance(e, Var) else 1
            for e in tensor.extents
        ]
        order = sorted(range(len(values)), key=lambda axis: (tensor.strides[axis] != 1, -axis))
        unit, span = max(tensor.aligned, _TMA_BYTES // tensor.dtype.nbytes), 1
        for axis in order:
            stride = tensor.strides[axis]
            if isinstance(stride, Var) and stride.name not in params:
                params[stride.name] = span = -(-span // unit) * unit
            span *= max(values[axis], 1)
        for cycle in tensor.cycles:
            for var in (cycle.each, cycle.period, cycle.stride):
                if isinstance(var, Var):
                    params.setdefault(var.name, _REPEATED * tensor.aligned)
    return params


def _register_form(seen: torch.Tensor, dtype: DType) -> Array:
    if dtype in (DType.F16, DType.BF16):
        seen = seen.to(torch.float32)
    if dtype.is_f8:
        seen = seen.contiguous().view(torch.uint8)
    return np.array(seen.contiguous().numpy(), copy=True, order="C")
