"""From the shapes and addresses of a call to the integers of a launch; every promise is checked.

Needs neither torch nor a GPU: judges bind cases with it as the runtime binds calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fuser.errors import ScheduleError
from fuser.expr import Expr, Var
from fuser.fusion.ir import IterType, Symbol, TensorView, number_of
from fuser.lower.tiling import SMS, Divisor
from fuser.pipeline import Launch, Program
from fuser.runtime.call import (
    Spec,
    extents_of,
    gathered_strides,
    intermediate_spec,
    kernel_extents,
    normalised,
    number,
    output_spec,
    refuse,
    shape,
    steps_of,
    strides_of,
    with_parts,
    with_views,
)
from fuser.schedule.matmul import MatmulTiling
from fuser.schedule.params import TensorCoreParams, largest_divisor
from fuser.schedule.pointwise import Tiling
from fuser.schedule.views import viewed

MAX_COORDINATE = 2**31 - 1
"""Tile numbers and coordinates are 32-bit; so are the coordinates of the TMA engine."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The integers of one launch; the grid is 0 where there is nothing to compute or launch.

    `places` has, for views that are tensors of the kernel, whose memory they lie in, and how many
    bytes behind its first element they begin.  Operands of products are read `once` where one CTA
    reads each row, from its first element to its last.
    """

    launch: Launch
    values: dict[Var, int]
    grid: int
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    once: frozenset[str] = frozenset()

    @property
    def params(self) -> dict[str, int]:
        """Value of every parameter, by name."""
        return {var.name: value for var, value in self.values.items()}

    def view(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return extents and strides, in elements, of a tensor of the kernel."""
        return shape(next(t for t in self.launch.kernel.tensors if t.name == name), self.values)


def bind(
    program: Program,
    specs: Mapping[str, Spec],
    *,
    sms: int,
    free: Mapping[str, int] | None = None,
) -> list[Binding]:
    """Return the launches of a call of a program, compiled for the class of these shapes.

    `specs` has what the call gives, by name of each input (and, if it exists already, output);
    `free` the values of symbols that no input has; `sms` is for persistent grids.  FusionError or
    ScheduleError if a promise of the fusion is broken, or a number does not fit 32 bits.
    """
    values = extents_of(program.fusion, specs, free)
    values = with_parts(((one.tiling.domain, one.params) for one in program.launches), values)
    for tv in program.fusion.inputs:
        if isinstance(tv, TensorView):
            _check_promises(tv, specs[tv.name])
    known = {tv.name: intermediate_spec(tv, values) for tv in program.intermediates}
    known |= {tv.name: output_spec(tv, values) for tv in program.fusion.outputs}
    known = {**known, **specs}
    every = with_views(viewed(program.fusion, program.shapes.choices), known, values)
    places = {
        name: (view.whole, every[name].address - known[view.whole].address)
        for name, view in viewed(program.fusion, program.shapes.choices).views.items()
    }
    made = (_bind(launch, every, values, sms) for launch in program.launches)
    return [replace(binding, places=places) for binding in made]


def _bind(
    launch: Launch, specs: Mapping[str, Spec], values: Mapping[Symbol, int], sms: int
) -> Binding:
    tiles, schedule, numbers = launch.tiling, launch.params, launch.numbers
    extents = kernel_extents(tiles, schedule, values)
    for axis, (n, tile) in enumerate(zip(extents, tiles.tile, strict=True)):
        if n + tile > MAX_COORDINATE:
            way_out = "a tile of 2 or more rows"
            if isinstance(tiles, Tiling) and tiles.flat:
                way_out = "flat=False"
            raise ScheduleError(
                f"call: axis {axis} of the loops has {n} elements, at most "
                f"{MAX_COORDINATE - tile} fit 32-bit coordinates; use {way_out}"
            )
    known: dict[Var, Expr] = {SMS: sms, **dict(zip(numbers.extents, extents, strict=True))}
    for var, extent in numbers.counts:
        known[var] = number_of(extent, values)
    tensors = {tensor.name: tensor for tensor in launch.kernel.tensors}
    indexed = [access for _, access in tiles.domain.gathers]
    for access in tiles.domain.accesses:
        strides = strides_of(tiles, access, specs[access.tv.name], extents)
        if access in indexed:
            strides = gathered_strides(tiles, access, specs[access.tv.name], strides)
        pairs = zip(tensors[access.name].strides, strides, strict=True)
        known |= {stride: value for stride, value in pairs if isinstance(stride, Var)}
        steps = steps_of(tiles, access, specs[access.tv.name])
        for cycle, step in zip(tensors[access.name].cycles, steps, strict=True):
            known |= {cycle.stride: step} if isinstance(cycle.stride, Var) else {}
    count = number(numbers.tiles, known)
    if 2 * count > MAX_COORDINATE:
        raise ScheduleError(
            f"call: {count} tiles of {schedule.tile}, at most {MAX_COORDINATE // 2} fit 32 bits; "
            "use a larger tile"
        )
    for var, source in numbers.chosen:
        known[var] = (
            largest_divisor(number(source.of, known), source.most)
            if isinstance(source, Divisor)
            else number(source, known)
        )
    grid = number(numbers.grid, known)
    if grid > MAX_COORDINATE:
        raise ScheduleError(
            f"call: {count} tiles, each by {grid // count} CTAs, are {grid} CTAs; at "
            f"most {MAX_COORDINATE} are launched: use splits=1"
        )
    given = {p: number(p, known) for p in launch.kernel.params}
    return Binding(launch, given, grid, once=frozenset(_read_once(launch, extents)))


def _read_once(launch: Launch, extents: Sequence[int]) -> Iterator[str]:
    tiles, params = launch.tiling, launch.params
    if not isinstance(tiles, MatmulTiling) or not isinstance(params, TensorCoreParams):
        return
    if params.splits > 1:
        return
    for operand in (operand for pair in tiles.operands for operand in pair):
        own = tiles.axes(operand.access)
        others = (a for a in tiles.walked if a not in own or not tiles.varies(operand.access, a))
        told = tiles.domain.index_of(operand.access)  # which may name one place twice
        if told is None and all(extents[axis] <= tiles.tile[axis] for axis in others):
            yield operand.access.name


def _check_promises(tv: TensorView, spec: Spec) -> None:
    own = normalised(tv, spec)
    span = 1
    if 0 in spec.shape:
        return
    for axis in sorted(range(tv.rank), key=lambda a: tv.stride_order[a]):
        if tv.logical[axis].iter_type is IterType.BROADCAST:
            continue
        if tv.contiguity[axis] and own[axis] != span:
            refuse(
                tv,
                f"axis {axis} has stride {spec.strides[axis]}, the fusion promises {span} "
                f"(contiguous, shape {spec.shape}); pass {tv}.contiguous(), or define the tensor "
                f"with contiguity[{axis}]=False",
            )
        span = own[axis] * spec.shape[axis]
