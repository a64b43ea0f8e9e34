"""From the shapes and addresses of a call to its class: which kernels, compiled for what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

from fuser.arch import SM_90A
from fuser.fusion.ir import Extent, Fusion, Symbol, TensorView, tensor_args
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import reduced_axes
from fuser.lower.ampere import copy_refusal
from fuser.lower.hopper import type_refusal
from fuser.pipeline import chosen, tiled
from fuser.runtime.call import (
    Spec,
    extents_of,
    intermediate_spec,
    kernel_extents,
    loops_of,
    output_spec,
    strides_of,
    with_parts,
    with_views,
)
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul import MatmulTiling, Operand, sides, strangers, summed
from fuser.schedule.matmul_heuristic import computes_in_registers
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams, TensorCoreParams
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.segment import Segment, begun_by_products, intermediates, segments
from fuser.schedule.shape_class import CallClass, Choices, Params, ShapeClass


def classify(
    fusion: Fusion,
    params: Params | None,
    specs: Mapping[str, Spec],
    free: Mapping[str, int] | None = None,
    sms: int = SM_90A.sms,
) -> CallClass:
    """Return the class of a call (outputs may be missing in `specs`).

    One class of shapes per kernel: kernels of one fusion merge their axes in ways of their own, so
    that one tensor may allow 16-byte accesses in one of them only.

    `free` are extents that no input tells; params of None ask the heuristics.
    """
    plain = extents_of(fusion, specs, free)
    choices = Choices(empty=_empty(fusion, plain))
    choices = replace(choices, parts=begun_by_products(fusion, choices))
    choices = replace(choices, registers=_in_registers(fusion, params, choices, plain))
    while True:
        cut = segments(fusion, choices)
        call = _Call(params, sms, plain, specs)
        for segment in cut:
            values = with_parts([(segment.domain, call.chosen(segment))], call.values)
            call = replace(call, values=values)
        made = {tv.name: output_spec(tv, call.values) for tv in fusion.outputs}
        between = {tv.name: intermediate_spec(tv, call.values) for tv in intermediates(fusion, cut)}
        call = replace(call, specs=with_views(fusion, {**made, **specs, **between}, call.values))
        asked = choices
        for segment in cut:
            asked = call.asked(segment, asked, choices.copied)
        asked = replace(asked, parts=asked.parts & begun_by_products(fusion, asked))
        if asked == choices:
            break
        choices = asked
    settled = [call.settled(segment) for segment in cut]
    return CallClass(choices, tuple(kind for _, kind in settled), tuple(one for one, _ in settled))


@dataclass(frozen=True, slots=True)
class _Call:
    """What is known of a call (extents, tensors) whose fusion is cut into kernels in one way."""

    params: Params | None
    sms: int
    values: Mapping[Symbol, int]
    specs: Mapping[str, Spec]

    def chosen(self, segment: Segment, *, by_tma: bool = False) -> Params:
        loops = loops_of(segment.domain, self.values)
        return chosen(segment, self.params, loops, self.sms, by_tma=by_tma)

    def settled(self, segment: Segment) -> tuple[Params, ShapeClass]:
        """Return the schedule of a kernel, which merges axes, and the class of shapes by those."""
        asked = isinstance(self.params, PointwiseParams) or bool(segment.domain.products)
        if segment.domain.reductions and not asked:
            schedule = self.chosen(segment, by_tma=True)
            shapes = self.shapes(segment, schedule)
            tiles = tiled(segment.domain, schedule)
            assert isinstance(tiles, ReductionTiling), "a domain with reductions"
            if all(
                leaf.name in shapes.tma and tiles.tma_refusal(leaf) is None
                for leaf in segment.domain.leaves
            ):
                return schedule, shapes
        schedule = self.chosen(segment)
        return schedule, self.shapes(segment, schedule)

    def asked(self, segment: Segment, choices: Choices, known: frozenset[str]) -> Choices:
        """Add what a segment with products asks for, so that its operands suit TMA and one tile.

        `known` are the operands that were copied for the segment as it is cut.
        """
        domain = segment.domain
        if not domain.products:
            return choices
        apart = frozenset(product.tv.name for product in strangers(domain))
        _, cols = sides(domain)
        wrong = frozenset(
            access.tv.held
            for access in domain.writes
            if access.tv.parts and (apart or cols != access.coords[-1:])
        )
        if apart or wrong:
            return replace(choices, apart=choices.apart | apart, parts=choices.parts - wrong)
        copied = {
            arg.held
            for product in domain.products
            if len(summed(domain, product)) != 1
            for arg in tensor_args(product.tv)
        }
        if copied <= known:
            schedule = self.chosen(segment)
            tiles = tiled(domain, schedule)
            shapes = self.shapes(segment, schedule)
            assert isinstance(tiles, MatmulTiling), "a domain with products"
            for product in domain.products:
                pairs = zip((product.a, product.b), tensor_args(product.tv), strict=True)
                for access, arg in pairs:
                    operand = tiles.operand(access)
                    assert operand is not None, "an operand of the kernel"
                    computed = arg is product.tv.args[0] and bool(product.leaves)
                    if computed and not _computable(tiles, operand, schedule, shapes):
                        copied.add(arg.held)
                    if not computed and _refusal(tiles, operand, schedule, shapes) is not None:
                        copied.add(arg.held)
        return replace(choices, copied=choices.copied | copied)

    def shapes(self, segment: Segment, schedule: Params) -> ShapeClass:
        domain = segment.domain
        aligned = {access.name: 1 for _, access in domain.gathers}
        tma: set[str] = set()
        tiles = tiled(domain, schedule)
        extents = kernel_extents(tiles, schedule, self.values)
        for access in (*domain.reads, *domain.writes):
            if access.tv.parts:  # one element a tile: nothing to align
                aligned[access.name] = 1
                continue
            spec = self.specs[access.tv.name]
            strides = strides_of(tiles, access, spec, extents)
            axes = tiles.axes(access)
            walked = [
                (axis, stride)
                for axis, stride in zip(axes, strides, strict=True)
                if extents[axis] > 1 and tiles.varies(access, axis)
            ]
            steps = [stride for axis, stride in walked if not tiles.unit(access, axis)]
            # the contiguous axis may be one of those around, and the last one have one element
            outer = all(axis == axes[-1] or not tiles.unit(access, axis) for axis, _ in walked)
            nbytes = spec.dtype.nbytes
            common = gcd(16, spec.address, *(s * nbytes for s in steps))
            loads = common == 16
            if tiles.varies(access, axes[-1]):
                common = gcd(common, extents[axes[-1]] * nbytes)
            if outer and (common == 16 or (loads and access in domain.reads)):
                tma.add(access.name)
            aligned[access.name] = max(1, common // nbytes)
        return ShapeClass(tuple(aligned.items()), frozenset(tma))


def _in_registers(
    fusion: Fusion, params: Params | None, choices: Choices, values: Mapping[Symbol, int]
) -> bool:
    """Whether first operands that are not in memory are to be computed in registers."""
    if isinstance(params, TensorCoreParams):
        return params.prologue == "registers"
    cut = segments(fusion, replace(choices, registers=True))
    return all(
        computes_in_registers(segment.domain, loops_of(segment.domain, values))
        for segment in cut
        if segment.domain.products
    )


def _empty(fusion: Fusion, values: Mapping[Symbol, int]) -> frozenset[str]:

    def none(extent: Extent) -> bool:
        return (values[extent] if isinstance(extent, Symbol) else extent) == 0

    def summed(tv: TensorView) -> Iterator[Extent]:
        if tv.op == "mma":
            yield from (axis.extent for axis in roles(tv) if axis.role is AxisRole.K)
        for axis in reduced_axes(tv):
            (arg,) = tensor_args(tv)
            yield arg.logical[axis].extent

    return frozenset(tv.name for tv in fusion.tensors if any(map(none, summed(tv))))


def _refusal(
    tiles: MatmulTiling, operand: Operand, schedule: Params, shapes: ShapeClass
) -> str | None:
    """Say why the copies of a schedule cannot read an operand where it lies."""
    access = operand.access
    if isinstance(schedule, AmpereParams):
        return copy_refusal(tiles, operand, shapes)
    if access.name not in shapes.tma:
        return "not aligned to 16 bytes"
    return type_refusal(operand) or tiles.tma_refusal(access)


def _computable(
    tiles: MatmulTiling, operand: Operand, schedule: Params, shapes: ShapeClass
) -> bool:
    """Whether tiles of an operand can be computed in registers: those of A, by rows along K."""
    if isinstance(schedule, MatmulParams):
        # Two 16-bit elements in each, and as many in f32 on their way.  Source: measured; beyond,
        # the assembler serialises wgmma (C7512).
        m, n, k = schedule.tile
        if (len(tiles.operands) * m * n + 3 * m * k // 2) // schedule.sharing > schedule.room:
            return False
    return (
        operand.along == tiles.rows
        and bool(operand.leaves)
        and not any(
            leaf.transposed or _refusal(tiles, leaf, schedule, shapes) is not None
            for leaf in operand.leaves
        )
    )
