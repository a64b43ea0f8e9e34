"""What a call says about its tensors, and what a kernel sees of that: extents and strides.

Needs neither torch nor a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NoReturn, get_args

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.expr import Expr, Var, substitute
from fuser.fusion.ir import Fusion, Symbol, TensorView, indexed_axis, number_of
from fuser.kernel import ir as kir
from fuser.pipeline import Loops
from fuser.schedule.domain import INDEXED, Access, Domain
from fuser.schedule.matmul import last_walked
from fuser.schedule.norm import norm_tiling
from fuser.schedule.params import NormParams, ReductionParams, ScanParams
from fuser.schedule.pointwise import Tiling
from fuser.schedule.shape_class import Params
from fuser.schedule.views import Layout, Viewed

ONE_ELEMENT = 16
"""Stride of an axis of one element that no axis of the tensor is: any that suits TMA."""
_SPECIAL = (NormParams, ReductionParams, ScanParams)
"""Params that are PointwiseParams with more to say."""
SECTOR, LINE, LONG = 32, 128, 1024
"""Bytes that the L2 reads at a time, and keeps; and rows from which whole lines waste little.
Measured on an H100, 2560 x 5120 x 4104: rows of operands at odd multiples of 16 bytes, 240 us; x
4112: 177."""
NO_ADDRESS = 0
"""Address of a tensor that does not exist yet; allocators give multiples of 256 bytes."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a call says about one tensor; strides in elements, address in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last, gaps between them included."""
        if 0 in self.shape:
            return 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.dtype.nbytes

    @property
    def distinct(self) -> int:
        """Bytes of the elements that lie at places of their own."""
        places = (n for n, s in zip(self.shape, self.strides, strict=True) if s)
        return prod(places) * self.dtype.nbytes


def asked(call: str, fusion: object, params: object) -> None:
    """Refuse what is no Fusion, or no params, of a call such as ``Executable``.

    FusionError or ScheduleError, with what to pass instead.
    """
    kind = type(fusion).__name__
    if not isinstance(fusion, Fusion):
        way_out = "a FusionDefinition gives one by fusion()"
        if hasattr(fusion, "define_tensor"):
            way_out = f"pass the finished definition: {call}(fd.fusion())"
        raise FusionError(f"{call}(<{kind}>): {kind} is no Fusion; {way_out}")
    if params is None or isinstance(params, Params):
        return
    known = ", ".join(sorted(one.__name__ for one in (*get_args(Params), *_SPECIAL)))
    if isinstance(params, type):
        why = f"{params.__name__} is a class; make one with {params.__name__}(tile, ...)"
        raise ScheduleError(f"{call}(fusion, {params.__name__}): {why}")
    kind = type(params).__name__
    raise ScheduleError(
        f"{call}(fusion, <{kind}>): {kind} is no schedule; pass one of {known}, or leave it out "
        "and the heuristic chooses"
    )


def number(expr: Expr, values: Mapping[Var, Expr]) -> int:
    """Return the value of an expression whose variables are all known."""
    value = substitute(expr, values)
    assert isinstance(value, int), f"{expr} is no number for {values}"
    return value


def shape(
    tensor: kir.Tensor, values: Mapping[Var, Expr]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents and the strides of a tensor."""
    return (
        tuple(number(extent, values) for extent in tensor.extents),
        tuple(number(stride, values) for stride in tensor.strides),
    )


def refuse(what: object, why: str) -> NoReturn:
    """Raise a FusionError about an argument of a call."""
    raise FusionError(f"call({what}): {why}")


def extents_of(
    fusion: Fusion, specs: Mapping[str, Spec], free: Mapping[str, int] | None = None
) -> dict[Symbol, int]:
    """Return the value of every symbol, after checking ranks, dtypes and equal extents.

    `specs` has what the call gives, by name of each input tensor; `free` the values of symbols that
    no input has (of `full`, `iota`, `expand`).  FusionError names the tensor, the axis and both
    numbers.
    """
    values: dict[Symbol, int] = {Symbol(name): n for name, n in (free or {}).items()}
    source: dict[Symbol, str] = dict.fromkeys(values, "the call")
    for tv in fusion.inputs:
        if not isinstance(tv, TensorView):
            continue
        spec = specs[tv.name]
        if spec.dtype is not tv.dtype:
            refuse(
                tv,
                f"got {spec.dtype}, the fusion says {tv.dtype}; cast the tensor, or define it with "
                f'dtype="{spec.dtype}"',
            )
        if len(spec.shape) != tv.rank:
            have = f"{len(spec.shape)} axes {spec.shape}"
            refuse(tv, f"got {have}, the fusion says {tv.rank}; reshape the tensor")
        for axis, (domain, n) in enumerate(zip(tv.logical, spec.shape, strict=True)):
            want = domain.extent
            if isinstance(want, Symbol):
                if values.setdefault(want, n) != n:
                    refuse(
                        tv,
                        f"axis {axis} has {n} elements, but {want} is {values[want]} as given by "
                        f"{source[want]}; make them equal",
                    )
                source.setdefault(want, f"{tv.name}")
            elif want != n:
                why = f"axis {axis} has {n} elements, the fusion says {want}"
                refuse(tv, f"{why}; define it with -1 to take any extent")
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
    return tuple(number_of(extent, values) for extent in tv.shape)


def output_spec(tv: TensorView, values: Mapping[Symbol, int]) -> Spec:
    """Return the row-major spec in which an output is allocated."""
    shape = shape_of(tv, values)
    strides = tuple(prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(tv.rank))
    return Spec(shape, strides, NO_ADDRESS, tv.dtype)


def intermediate_spec(tv: TensorView, values: Mapping[Symbol, int]) -> Spec:
    """Return the spec of an intermediate: without gaps, but rows in whole sectors or lines."""
    shape = shape_of(tv, values)
    strides = [0] * tv.rank
    span = 1
    for axis in sorted(range(tv.rank), key=lambda a: tv.stride_order[a]):
        if not tv.contiguity[axis]:
            nbytes = LINE if span * tv.dtype.nbytes >= LONG else SECTOR
            chunk = nbytes // tv.dtype.nbytes
            span = -(-span // chunk) * chunk
        strides[axis] = span
        span *= max(shape[axis], 1)
    return Spec(shape, tuple(strides), NO_ADDRESS, tv.dtype)


def with_views(
    known: Viewed, specs: Mapping[str, Spec], values: Mapping[Symbol, int]
) -> dict[str, Spec]:
    """Return specs with those of the views in the memory of the tensors that they are of."""
    out = dict(specs)
    for name, view in known.views.items():
        whole = specs[view.whole]
        seen = Layout(whole.shape, whole.strides)
        for step in view.steps:
            seen = step.of(seen, values, view.whole)
        dtype = view.tv.dtype
        address = whole.address + seen.first * dtype.nbytes
        out[name] = Spec(seen.shape, seen.strides, address, dtype)
    return out


def loops_of(domain: Domain, values: Mapping[Symbol, int]) -> list[int]:
    """Return the extents of the loop axes of a domain, then how many places each index may name."""
    named = (extent for access, _ in domain.indices for extent in access.tv.count)
    return [number_of(extent, values) for extent in (*domain.extents, *named)]


def with_parts(
    kernels: Iterable[tuple[Domain, Params]], values: Mapping[Symbol, int]
) -> dict[Symbol, int]:
    """Return values of symbols, with the numbers of parts that kernels leave of results."""
    out = dict(values)
    for domain, schedule in kernels:
        for access in domain.begun:
            extent, walked = access.tv.logical[-1].extent, access.coords[-1]
            assert isinstance(extent, Symbol), "parts have a symbol of their own"
            if access.tv.parts == "rows":
                assert isinstance(schedule, NormParams), "of a kernel that has whole rows"
                out[extent] = _rows_at_once(domain, schedule, out)
            else:
                assert walked is not None, "their axis is one of several elements"
                out[extent] = -(-loops_of(domain, out)[walked] // schedule.tile[1])
    return out


def _rows_at_once(domain: Domain, schedule: NormParams, values: Mapping[Symbol, int]) -> int:
    """Return the rows that all CTAs of a kernel have at a time, and leave parts of."""
    tiles = norm_tiling(domain, schedule)
    *extents, _ = kernel_extents(tiles, schedule, values)
    many = prod(-(-n // tile) for n, tile in zip(extents, tiles.tile[:-1], strict=True))
    return -(-many // schedule.tiles_per_cta) * schedule.tile[0]


def kernel_extents(tiles: Loops, schedule: Params, values: Mapping[Symbol, int]) -> tuple[int, ...]:
    """Return the extents of the axes of a kernel; a split axis has whole rows, or one."""
    loops = loops_of(tiles.domain, values)
    merged = [prod(loops[axis] for axis in group) for group in tiles.groups]
    if not tiles.split:
        return tuple(merged)
    (total,) = merged
    cols = schedule.tile[1]
    if total % cols == 0:
        return (total // cols, cols)
    return (1, total)


def strides_of(
    tiles: Loops, access: Access, spec: Spec, extents: tuple[int, ...]
) -> tuple[int, ...]:
    """Return strides along the axes along which a tensor is seen; 0 where it does not vary."""
    own = normalised(access.tv, spec)
    if tiles.split:
        if not tiles.varies(access, 1):
            return (0, 0)
        walked = access.axis_of(tiles.groups[0][-1])
        inner = 1 if walked is None else own[walked]
        return (_harmless(extents[0], inner * extents[1]), inner)
    out = []
    for axis in tiles.axes(access):
        group = tiles.groups[axis]
        walked = last_walked(access, group)
        if not tiles.varies(access, axis):
            out.append(0)
        elif tiles.unit(access, axis):
            out.append(1)
        elif walked is None:
            out.append(ONE_ELEMENT)
        elif access.tv.parts == "rows":  # along the last axis, whichever reduced one is the inner
            out.append(own[-1])
        else:
            out.append(_harmless(reached(access, walked, spec, extents[axis]), own[walked]))
    return tuple(out)


def reached(access: Access, axis: int, spec: Spec, extent: int) -> int:
    """Return how many places along an axis of a tensor a kernel may read, which walks so many.

    Where an index names them, any of those that there are.
    """
    return spec.shape[axis] if axis == indexed_axis(access.tv) else extent


def steps_of(tiles: Loops, access: Access, spec: Spec) -> tuple[int, ...]:
    """Return the strides by which a tensor repeats along the one axis of a kernel."""
    if not isinstance(tiles, Tiling):
        return ()
    own = normalised(access.tv, spec)
    return tuple(own[access.coords.index(axes[-1])] for axes in tiles.cycles(access))


def gathered_strides(
    tiles: Loops, access: Access, spec: Spec, strides: tuple[int, ...]
) -> tuple[int, ...]:
    """Return strides of a tensor to take elements of: of the indexed axis, and of the others."""
    own = access.axis_of(INDEXED)
    first = 0 if own is None else normalised(access.tv, spec)[own]
    pairs = zip(tiles.axes(access), strides, strict=True)
    return (first, *(stride for axis, stride in pairs if tiles.varies(access, axis)))


def _harmless(extent: int, stride: int) -> int:
    """Round the stride of an axis that is never walked up to a multiple of 16 elements."""
    return stride if extent > 1 else -(-stride // 16) * 16


def normalised(tv: TensorView, spec: Spec) -> tuple[int, ...]:
    """Return strides in which an axis of one element has the one that contiguity would give."""
    out = list(spec.strides)
    span = 1
    order = sorted(range(tv.rank), key=lambda a: tv.stride_order[a])
    for place, axis in enumerate(order):
        if spec.shape[axis] <= 1:
            slower = order[place + 1 :]
            out[axis] = span if tv.contiguity[axis] else _implied(tv, spec, slower, span)
        span = out[axis] * max(spec.shape[axis], 1)
    return tuple(out)


def _implied(tv: TensorView, spec: Spec, slower: list[int], span: int) -> int:
    """Return the stride of an axis of one element, with a gap, that slower axes count by."""
    for axis in slower:
        if not tv.contiguity[axis]:
            break
        if spec.shape[axis] > 1:
            return spec.strides[axis]
    return span
