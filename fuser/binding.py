"""From the shapes and addresses of a call to the integers of a launch; every promise is checked.

Needs neither torch nor a GPU: judges bind cases with it as the runtime binds calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from fuser.domain import Access, domains
from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.expr import Var
from fuser.params import PointwiseParams
from fuser.pipeline import Launch, Program
from fuser.scheduler import Tiling, default_params, tiling
from fuser.shape_class import ShapeClass
from fuser.tensor_view import Fusion, IterType, Symbol, TensorView

MAX_COORDINATE = 2**31 - 1
"""Tile numbers and coordinates are 32-bit; so are the coordinates of the TMA engine."""
NO_ADDRESS = 0
"""Address of a tensor that does not exist yet; allocators give multiples of 256 bytes."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a call says about one tensor; strides in elements, address in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    dtype: DType


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


def extents_of(
    fusion: Fusion, specs: Mapping[str, Spec], free: Mapping[str, int] | None = None
) -> dict[Symbol, int]:
    """Return the value of every symbol, after checking ranks, dtypes and equal extents.

    Parameters
    ----------
    fusion : Fusion
        What is called.
    specs : mapping
        Name of each input tensor -> what the call gives.
    free : mapping, optional
        Values of symbols that no input has (of `full`, `iota`, `expand`), by name.

    Raises
    ------
    FusionError
        Naming the tensor, the axis and both numbers.
    """
    values: dict[Symbol, int] = {Symbol(name): n for name, n in (free or {}).items()}
    source: dict[Symbol, str] = dict.fromkeys(values, "the call")
    for tv in fusion.inputs:
        if not isinstance(tv, TensorView):
            continue
        spec = specs[tv.name]
        if spec.dtype is not tv.dtype:
            raise FusionError(
                f"call({tv.name}): got {spec.dtype}, the fusion says {tv.dtype}; cast the tensor, "
                f'or define it with dtype="{spec.dtype}"'
            )
        if len(spec.shape) != tv.rank:
            raise FusionError(
                f"call({tv.name}): got {len(spec.shape)} axes {spec.shape}, the fusion says "
                f"{tv.rank}; reshape the tensor"
            )
        for axis, (domain, n) in enumerate(zip(tv.logical, spec.shape, strict=True)):
            want = domain.extent
            if isinstance(want, Symbol):
                if values.setdefault(want, n) != n:
                    raise FusionError(
                        f"call({tv.name}): axis {axis} has {n} elements, but {want} is "
                        f"{values[want]} as given by {source[want]}; make them equal"
                    )
                source.setdefault(want, f"{tv.name}")
            elif want != n:
                raise FusionError(
                    f"call({tv.name}): axis {axis} has {n} elements, the fusion says {want}; "
                    "define it with -1 to take any extent"
                )
    for tv in fusion.tensors:
        for domain in tv.logical:
            if isinstance(domain.extent, Symbol) and domain.extent not in values:
                raise FusionError(
                    f"call: no input has the extent {domain.extent} of {tv.name}; give it as "
                    f"extents={{'{domain.extent}': ...}}"
                )
    return values


def shape_of(tv: TensorView, values: Mapping[Symbol, int]) -> tuple[int, ...]:
    """Return the numbers of a tensor's shape."""
    return tuple(
        values[axis.extent] if isinstance(axis.extent, Symbol) else axis.extent
        for axis in tv.logical
    )


def output_spec(tv: TensorView, values: Mapping[Symbol, int]) -> Spec:
    """Return the row-major spec in which an output is allocated."""
    shape = shape_of(tv, values)
    strides = tuple(prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(tv.rank))
    return Spec(shape, strides, NO_ADDRESS, tv.dtype)


def classify(
    fusion: Fusion,
    params: PointwiseParams | None,
    specs: Mapping[str, Spec],
    free: Mapping[str, int] | None = None,
) -> tuple[ShapeClass, ...]:
    """Return the classes of shapes that a call belongs to (outputs may be missing in `specs`).

    One class per kernel: kernels of one fusion merge their axes in ways of their own, so that one
    tensor may allow 16-byte accesses in one of them only.
    """
    values = extents_of(fusion, specs, free)
    params = params or default_params(fusion)
    out = []
    for domain in domains(fusion):
        aligned: dict[str, int] = {}
        tma: set[str] = set()
        tiles = tiling(domain, params)
        extents = _kernel_extents(tiles, params, values)
        for access in (*domain.reads, *domain.writes):
            spec = specs.get(access.tv.name) or output_spec(access.tv, values)
            strides = _strides(tiles, access, spec, extents)
            steps = [
                stride
                for axis, (n, stride) in enumerate(zip(extents, strides, strict=True))
                if n > 1 and tiles.varies(access, axis) and not tiles.unit(access, axis)
            ]
            nbytes = spec.dtype.nbytes
            common = gcd(16, spec.address, *(s * nbytes for s in steps))
            loads = common == 16
            if tiles.varies(access, tiles.rank - 1):
                common = gcd(common, extents[-1] * nbytes)
            if common == 16 or (loads and access in domain.reads):
                tma.add(access.name)
            aligned[access.name] = max(1, common // nbytes)
        out.append(ShapeClass(tuple(aligned.items()), frozenset(tma)))
    return tuple(out)


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
    for tv in program.fusion.inputs:
        if isinstance(tv, TensorView):
            _check_promises(tv, specs[tv.name])
    return [_bind(launch, program.params, specs, values, sms) for launch in program.launches]


def _bind(
    launch: Launch,
    schedule: PointwiseParams,
    specs: Mapping[str, Spec],
    values: Mapping[Symbol, int],
    sms: int,
) -> Binding:
    tiles = launch.tiling
    extents = _kernel_extents(tiles, schedule, values)
    count = prod(-(-n // tile) for n, tile in zip(extents, tiles.tile, strict=True))
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
    views = {}
    for access in (*tiles.domain.reads, *tiles.domain.writes):
        spec = specs.get(access.tv.name) or output_spec(access.tv, values)
        strides = _strides(tiles, access, spec, extents)
        tensor = next(t for t in launch.kernel.tensors if t.name == access.name)
        for stride, value in zip(tensor.strides, strides, strict=True):
            if isinstance(stride, Var):
                params[stride.name] = value
        seen = tuple(n if tiles.varies(access, axis) else 1 for axis, n in enumerate(extents))
        views[access.name] = (seen, strides)
    grid = count
    if schedule.ctas_per_sm is not None:
        grid = min(count, sms * schedule.ctas_per_sm)
    return Binding(launch, params, grid, views)


def _kernel_extents(
    tiles: Tiling, schedule: PointwiseParams, values: Mapping[Symbol, int]
) -> tuple[int, ...]:
    loops = [values[e] if isinstance(e, Symbol) else e for e in tiles.domain.extents]
    merged = [prod(loops[axis] for axis in group) for group in tiles.domain.merged]
    if not tiles.split:
        return tuple(merged)
    (total,) = merged
    cols = schedule.tile[1]
    if total % cols == 0:
        return (total // cols, cols)
    return (1, total)


def _strides(
    tiles: Tiling, access: Access, spec: Spec, extents: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides over the kernel's axes; 0 where the tensor does not vary."""
    own = _normalised(access.tv, spec)
    if tiles.split:
        if not tiles.varies(access, 1):
            return (0, 0)
        walked = access.axis_of(tiles.domain.merged[0][-1])
        inner = 1 if walked is None else own[walked]
        return (_harmless(extents[0], inner * extents[1]), inner)
    out = []
    for axis, group in enumerate(tiles.domain.merged):
        walked = access.axis_of(group[-1])
        if not tiles.varies(access, axis):
            out.append(0)
        elif walked is None or tiles.unit(access, axis):
            out.append(1)
        else:
            out.append(_harmless(extents[axis], own[walked]))
    return tuple(out)


def _harmless(extent: int, stride: int) -> int:
    """Round the stride of an axis that is never walked up to a multiple of 16 elements."""
    return stride if extent > 1 else -(-stride // 16) * 16


def _normalised(tv: TensorView, spec: Spec) -> tuple[int, ...]:
    """Strides in which an axis of one element has the stride that contiguity would give it."""
    out = list(spec.strides)
    span = 1
    for axis in sorted(range(tv.rank), key=lambda a: tv.stride_order[a]):
        if spec.shape[axis] <= 1:
            out[axis] = span
        span = out[axis] * max(spec.shape[axis], 1)
    return tuple(out)


def _check_promises(tv: TensorView, spec: Spec) -> None:
    own = _normalised(tv, spec)
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
