"""From the shapes and addresses of a call to its class: which kernels, compiled for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import gcd, prod

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.fusion.ir import (
    Extent,
    Fusion,
    Symbol,
    TensorView,
    ancestry,
    indexed_axis,
    number_of,
    tensor_args,
)
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import reduced_axes
from fuser.lower.ampere import copy_refusal
from fuser.lower.hopper import type_refusal
from fuser.pipeline import Loops, chosen, tiled
from fuser.runtime.call import (
    Spec,
    extents_of,
    intermediate_spec,
    kernel_extents,
    loops_of,
    normalised,
    output_spec,
    reached,
    shape_of,
    strides_of,
    with_parts,
    with_views,
)
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.candidates import candidates
from fuser.schedule.cut.begun import begun_by_products, begun_by_rows, reduction_of
from fuser.schedule.cut.few_rows import Few, as_sums, few_rows
from fuser.schedule.cut.kept import is_exact, keep
from fuser.schedule.cut.rearrange import rearranged
from fuser.schedule.domain import Access, Product, by_rows, unit_stride
from fuser.schedule.matmul import (
    PACKED,
    MatmulTiling,
    Operand,
    last_walked,
    sides,
    strangers,
    summed,
)
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.norm import copied, norm_tiling, row_refusal, runs
from fuser.schedule.norm_heuristic import (
    begins_well,
    default_norm_params,
    fits_registers,
    row_alignment,
)
from fuser.schedule.params import NormParams, PointwiseParams, ScanParams, TensorCoreParams
from fuser.schedule.pointwise import Tiling, suited
from fuser.schedule.pointwise import copied as copied_by_threads
from fuser.schedule.products.choose import best, computes_in_registers
from fuser.schedule.products.nibbles import unpacked
from fuser.schedule.products.unaligned import Lying, is_plain, where_they_lie
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.reduction_heuristic import default_row_params
from fuser.schedule.scan import default_scan_params
from fuser.schedule.segment import Segment, intermediates, segments
from fuser.schedule.shape_class import CallClass, Choices, Params, Registers, ShapeClass
from fuser.schedule.views import viewed

FARTHEST = 2**31 - 1
"""The longest stride of a tensor that is near."""
CHUNK = 16
"""Bytes that rows of a box are multiples of."""
A_WARP_A_ROW = NormParams((1, 32), 1, 1, None, "direct", "direct")
"""To see how rows lie in memory."""


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
    return _found(fusion, params, specs, free, sms).settled()


class Alternatives:
    """The class of a call by default, and classes in which kernels have other schedules.

    The cut into kernels stays, and with it what they hand each other: a schedule that asks for
    another one is none of these.  Arguments are those of `classify`.
    """

    def __init__(
        self,
        fusion: Fusion,
        specs: Mapping[str, Spec],
        free: Mapping[str, int] | None = None,
        sms: int = SM_90A.sms,
    ) -> None:
        self._found = _found(fusion, None, specs, free, sms)
        self.default = self._found.settled()
        self.extents = extents_of(fusion, specs, free)

    def beginning(self, default: CallClass) -> Alternatives:
        """Return the same with another class by default: what is refused has other schedules."""
        made = copy(self)
        made.default = default
        return made

    def candidates(self, kernel: int) -> Iterator[Params]:
        """Yield schedules worth measuring for a kernel, the most promising first."""
        call, segment = self._found.call, self._found.segments[kernel]
        default, shapes = self.default.schedules[kernel], self.default.kernels[kernel]
        loops = loops_of(segment.domain, call.values)
        return candidates(segment, default, shapes, loops, call.sms)

    def replaced(self, known: CallClass, kernel: int, params: Params) -> CallClass | None:
        """Return a class in which a kernel has other params; None if they do not suit the call."""
        segment, choices = self._found.segments[kernel], self._found.choices
        call = replace(self._found.call, params=params)
        try:
            if call.asked(segment, choices, choices.copied) != choices:
                return None
            schedule, shapes = call.settled(segment)
        except ScheduleError:
            return None
        taken = type(schedule) is type(params)  # else params of this kind are not for this kernel
        if not taken or with_parts([(segment.domain, schedule)], call.values) != call.values:
            return None
        schedules, kernels = [*known.schedules], [*known.kernels]
        schedules[kernel], kernels[kernel] = schedule, shapes
        return CallClass(choices, tuple(kernels), tuple(schedules))

    def having(self, schedules: Sequence[Params]) -> CallClass | None:
        """Return the class in which all kernels have these schedules; None if one does not suit."""
        if len(schedules) != len(self.default.schedules):
            return None
        known: CallClass | None = self.default
        for kernel, params in enumerate(schedules):
            if known is not None and params != self.default.schedules[kernel]:
                known = self.replaced(known, kernel, params)
        return known


def _found(
    fusion: Fusion,
    params: Params | None,
    specs: Mapping[str, Spec],
    free: Mapping[str, int] | None,
    sms: int,
) -> _Cut:
    """Cut the fusion of a call into kernels."""
    plain = extents_of(fusion, specs, free)
    choices = Choices(empty=_empty(fusion, plain))
    if not isinstance(params, TensorCoreParams):
        choices = replace(choices, few=few_rows(fusion, plain, choices.empty))
    choices = replace(choices, parts=begun_by_products(fusion, choices))
    choices = replace(choices, registers=_registers(fusion, params, choices, plain))
    if not isinstance(params, PointwiseParams) or isinstance(params, NormParams | ScanParams):
        choices = replace(choices, rows=_of_rows(fusion, choices))
        if not isinstance(params, NormParams) or params.tiles_per_cta > 1:
            some = {tv.name for tv in fusion.tensors if 0 not in shape_of(tv, plain)}
            begun = begun_by_rows(fusion, choices) & some
            choices = replace(choices, parts=choices.parts | begun)
    call = _Call(params, sms, plain, specs)
    found = call.cut(fusion, choices)
    for tv in found.worth_keeping(fusion):
        kept = replace(found.choices, kept=found.choices.kept | {tv.name})
        other = call.cut(fusion, kept)
        if other.moved < found.moved:
            found = other
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """A fusion in kernels, and what is known of a call then."""

    segments: tuple[Segment, ...]
    choices: Choices
    call: _Call

    def settled(self) -> CallClass:
        """Return the class of the call: each kernel with its schedule."""
        settled = [self.call.settled(segment) for segment in self.segments]
        kinds, schedules = tuple(kind for _, kind in settled), tuple(one for one, _ in settled)
        return CallClass(self.choices, kinds, schedules)

    @property
    def moved(self) -> int:
        """Bytes that all kernels move at least."""
        tensors = (tv for one in self.segments for tv in one.tensors)
        return sum(self.call.specs[tv.name].distinct for tv in tensors)

    def worth_keeping(self, fusion: Fusion) -> list[TensorView]:
        """Return results that other kernels might better read than compute again.

        They have in memory what later operations take, and are computed from more bytes.
        """
        inner = [{tv.held: tv for tv in one.fusion.tensors} for one in self.segments]
        found = []
        for tv in fusion.outputs:
            users = [one[tv.name] for one in inner if tv.name in one]
            if len(users) > 1 and is_exact(tv):
                read = {one.name: one for one in ancestry(users[-1]) if one.op == "input"}
                nbytes = sum(self.call.specs[name].distinct for name in read)
                if nbytes > output_spec(tv, self.call.values).distinct:
                    found.append(tv)
        return found


@dataclass(frozen=True, slots=True)
class _Call:
    """What is known of a call (extents, tensors) whose fusion is cut into kernels in one way."""

    params: Params | None
    sms: int
    values: Mapping[Symbol, int]
    specs: Mapping[str, Spec]

    def cut(self, fusion: Fusion, choices: Choices) -> _Cut:
        """Cut a fusion so that its kernels can be, and no product is computed twice."""
        while True:
            able = begun_by_products(fusion, choices) | begun_by_rows(fusion, choices)
            choices = replace(choices, parts=choices.parts & able)
            found, values = segments(fusion, choices), self.values
            torn = _torn(found)
            if torn:
                choices = replace(choices, parts=choices.parts - torn)
                continue
            crowd = frozenset[str]().union(*map(self.crowd, found)) - choices.apart
            if crowd:
                choices = replace(choices, apart=choices.apart | crowd)
                continue
            stuck = frozenset[str]().union(*map(self.stuck, found)) - choices.copied
            if stuck:
                choices = replace(choices, copied=choices.copied | stuck)
                continue
            for segment in found:
                schedule = replace(self, values=values).chosen(segment)
                values = with_parts([(segment.domain, schedule)], values)
            made = {tv.name: output_spec(tv, values) for tv in fusion.outputs}
            between = intermediates(fusion, found, choices)
            made |= {tv.name: intermediate_spec(tv, values) for tv in between}
            seen = with_views(viewed(fusion, choices), {**made, **self.specs}, values)
            call = replace(self, values=values, specs=seen)
            asked = choices
            for segment in found:
                asked = call.asked(segment, asked, choices.copied)
            if asked == choices:
                asked = replace(choices, kept=choices.kept | _kept(fusion, found, choices.few))
            if asked == choices:
                return _Cut(found, choices, call)
            choices = asked

    def crowd(self, segment: Segment) -> frozenset[str]:
        """Return the last quarter of a kernel's products where no tile has room for all of them."""
        products = segment.domain.products
        if len(products) < 2 or self._multiplies(segment):
            return frozenset()
        return frozenset(one.tv.name for one in products[3 * len(products) // 4 :])

    def stuck(self, segment: Segment) -> frozenset[str]:
        """Return operands that are to be computed where they are multiplied, and no tile does.

        As where one of a product is stored in the end, so that the other one is computed.
        """
        computed = [one.computed for one in segment.domain.products if one.computed is not None]
        if not computed or self._multiplies(segment):
            return frozenset()
        return frozenset(tv.held for tv in computed)

    def _multiplies(self, segment: Segment) -> bool:
        """Whether a schedule is asked for, or there is one to choose by default."""
        loops = loops_of(segment.domain, self.values)
        asked = isinstance(self.params, TensorCoreParams)
        return asked or bool(best(segment.fusion, segment.domain, loops, 1, self.sms))

    def chosen(self, segment: Segment, *, by_tma: bool = False) -> Params:
        loops = loops_of(segment.domain, self.values)
        return chosen(segment, self.params, loops, self.sms, by_tma=by_tma)

    def scheduled(self, segment: Segment) -> tuple[Params, ShapeClass]:
        """Return the params chosen, or such as read operands that TMA cannot, if that is better."""
        schedule = self.chosen(segment)
        shapes = self.shapes(segment, schedule)
        if isinstance(schedule, MatmulParams) and not isinstance(self.params, TensorCoreParams):
            other = self._where_they_lie(segment, schedule, shapes)
            if other is not None:
                return other, self.shapes(segment, other)
        return schedule, shapes

    def _where_they_lie(
        self, segment: Segment, schedule: MatmulParams, shapes: ShapeClass
    ) -> AmpereParams | None:
        """Return params by which a product reads its operands where they lie, if TMA cannot."""
        domain, loops = segment.domain, loops_of(segment.domain, self.values)
        if not is_plain(domain):
            return None
        tiles = tiled(domain, schedule)
        assert isinstance(tiles, MatmulTiling), "a domain with products"
        moved = tuple(
            self.specs[operand.access.tv.name].distinct
            for operand in tiles.operands[0]
            if _refusal(tiles, operand, schedule, shapes) is not None
        )
        if not moved:
            return None
        (first,) = best(segment.fusion, domain, loops, 1, self.sms)
        lying = Lying.of(domain, shapes)
        return where_they_lie(domain, loops, lying, moved, first.takes.us, self.sms)

    def settled(self, segment: Segment) -> tuple[Params, ShapeClass]:
        """Return the schedule of a kernel, which merges axes, and the class of shapes by those."""
        other = isinstance(self.params, NormParams | ScanParams)
        plain = isinstance(self.params, PointwiseParams) and not other
        asked = plain or bool(segment.domain.products) or bool(segment.domain.rows)
        asked = asked or segment.domain.scanned is not None
        if segment.domain.reductions and not asked:
            whole = self._by_rows(segment)
            if whole is not None:
                return whole
        elif not asked:
            schedule = self.chosen(segment, by_tma=True)
            assert isinstance(schedule, PointwiseParams), "a domain without products"
            return self._pointwise(segment, schedule)
        schedule, shapes = self.scheduled(segment)
        if segment.domain.scanned is not None and not isinstance(self.params, ScanParams):
            tiles = tiled(segment.domain, schedule)
            assert isinstance(tiles, ReductionTiling), "a domain with scans"
            assert isinstance(schedule, ScanParams), "of such a kernel"
            if schedule.load == "cp_async" and not copied_by_threads(tiles, schedule, shapes):
                loops = loops_of(segment.domain, self.values)
                schedule = default_scan_params(segment.domain, loops, ring=False)
                shapes = self.shapes(segment, schedule)
        if segment.domain.rows and not isinstance(self.params, NormParams):
            domain = segment.domain
            aligned = row_alignment(domain, shapes)
            loops = loops_of(domain, self.values)
            schedule = default_norm_params(domain, loops, aligned=aligned)
            shapes = self.shapes(segment, schedule)
            tiles = tiled(domain, schedule)
            assert isinstance(tiles, ReductionTiling), "a domain with reductions"
            able = runs if schedule.load == "bulk" else copied
            if schedule.load != "direct" and not able(tiles, schedule, shapes):
                schedule = default_norm_params(domain, loops, aligned=aligned, ring=False)
                shapes = self.shapes(segment, schedule)
        return schedule, shapes

    def _by_rows(self, segment: Segment) -> tuple[Params, ShapeClass] | None:
        """Return a schedule that reduces whole rows at a time; None if none does, or wants to."""
        domain = by_rows(segment.domain)
        asked = any(one.tv.meet is not None for one in segment.domain.reductions)
        if asked or domain is None or row_refusal(domain) is not None:
            return None
        loops = loops_of(domain, self.values)
        if isinstance(self.params, NormParams):
            if prod(loops[axis] for axis in domain.rows) > self.params.columns:
                return None
            shapes, tiles = self.shapes(segment, self.params), norm_tiling(domain, self.params)
            direct = self.params.load == "direct"
            return (self.params, shapes) if direct or copied(tiles, self.params, shapes) else None
        aligned = row_alignment(domain, self.shapes(segment, A_WARP_A_ROW))
        schedule = default_row_params(segment.fusion, domain, loops, aligned=aligned)
        return None if schedule is None else (schedule, self.shapes(segment, schedule))

    def _pointwise(self, segment: Segment, schedule: PointwiseParams) -> tuple[Params, ShapeClass]:
        """Return a default schedule as the tensors suit it, direct if TMA cannot move all tiles."""
        shapes, tiles = self.shapes(segment, schedule), tiled(segment.domain, schedule)
        assert isinstance(tiles, Tiling), "a domain without products"
        whole = [access for access in tiles.domain.reads if tiles.covers(access)]
        able = [a.name in shapes.tma and tiles.tma_refusal(a) is None for a in whole]
        if not (whole and all(able)):  # of vectors alone it can move those along rows, or none
            schedule = replace(schedule, load="direct", stages=1, prefetch=0)
        schedule = suited(schedule, tiles, shapes)
        return schedule, shapes

    def asked(self, segment: Segment, choices: Choices, known: frozenset[str]) -> Choices:
        """Add what a segment with products asks for, so that its operands suit TMA and one tile.

        `known` are the operands that were copied for the segment as it is cut.
        """
        domain = segment.domain
        if domain.rows and self.too_long(segment):
            along = {a.name for a in domain.writes if not {*domain.rows}.isdisjoint(a.coords)}
            if along:
                return replace(choices, spread=choices.spread | along)
            return replace(choices, rows=choices.rows - {one.tv.held for one in domain.reductions})
        if domain.rows and domain.begun and not isinstance(self.params, NormParams):
            schedule, shapes = self.settled(segment)
            assert isinstance(schedule, NormParams), "a kernel that has whole rows"
            aligned = row_alignment(domain, shapes)
            if not begins_well(domain, loops_of(domain, self.values), schedule, aligned):
                dropped = {reduction_of(access.tv) for access in domain.begun}
                return replace(choices, parts=choices.parts - dropped)
        if not domain.products:  # no such kernel is told by an index where a tile is
            return replace(choices, copied=choices.copied | {a.tv.name for a, _ in domain.indices})
        apart = frozenset(product.tv.name for product in strangers(domain))
        _, cols = sides(domain)
        wrong = frozenset(
            reduction_of(access.tv)
            for access in domain.begun
            if apart or cols != access.coords[-1:]
        )
        if apart or wrong:
            return replace(choices, apart=choices.apart | apart, parts=choices.parts - wrong)
        mixed = [product for product in domain.products if len(summed(domain, product)) != 1]
        copied = {arg.held for product in mixed for arg in tensor_args(product.tv)}
        if mixed and copied <= known and len(domain.products) > 1:
            # What two products sum over in two orders has one copy, in the order of the first.
            return replace(choices, apart=choices.apart | {product.tv.name for product in mixed})
        if copied <= known:
            schedule, shapes = self.scheduled(segment)
            tiles = tiled(domain, schedule)
            assert isinstance(tiles, MatmulTiling), "a domain with products"
            for product in domain.products:
                pairs = zip(product.arguments, tensor_args(product.tv), strict=True)
                for access, arg in pairs:
                    operand = tiles.operand(access)
                    assert operand is not None, "an operand of the kernel"
                    computed = access == product.a and bool(product.leaves)
                    if computed:
                        fits = _computable(tiles, product, operand, schedule, shapes)
                        copied |= _untold(product, operand) or ({arg.held} if not fits else set())
                    elif _refusal(tiles, operand, schedule, shapes) is not None:
                        copied.add(arg.held)
            # of what is empty no tensor map is made
            told = (access.tv for access, _ in domain.indices)
            copied |= {tv.name for tv in told if not number_of(tv.count[0], self.values)}
        return replace(choices, copied=choices.copied | copied)

    def too_long(self, segment: Segment) -> bool:
        """Whether no kernel can have whole rows of a domain at a time, or does not want to.

        ScheduleError if the params given have too few columns for rows that it could have.
        """
        domain = segment.domain
        if row_refusal(domain) is not None:
            return True
        loops = loops_of(domain, self.values)
        columns = prod(loops[axis] for axis in domain.rows)
        if isinstance(self.params, NormParams):
            room = self.params.columns
            if columns > room and not domain.reductions:
                return True
            if columns > room:
                rows, step = self.params.tile[0], self.params.lanes * self.params.vector
                each = -(-columns // self.params.cluster)
                self.params.refuse(
                    "tile cluster",
                    f"rows of {columns} elements, tiles have {room} columns; use "
                    f"tile=({rows}, {each + -each % step})",
                )
            return False
        return not fits_registers(domain, columns)

    def shapes(self, segment: Segment, schedule: Params) -> ShapeClass:
        tiles = tiled(segment.domain, schedule)
        domain = tiles.domain
        aligned = {access.name: 1 for _, access in (*domain.gathers, *domain.indices)}
        tma: set[str] = set()
        ragged: set[str] = set()
        extents = kernel_extents(tiles, schedule, self.values)
        for access in (*domain.reads, *domain.writes):
            if access.tv.parts == "tiles":  # one element each: nothing to align
                aligned[access.name] = 1
                continue
            spec = self.specs[access.tv.name]
            if isinstance(tiles, Tiling) and tiles.cycles(access):
                aligned[access.name] = _repeated(tiles, access, spec, loops_of(domain, self.values))
                continue
            strides = strides_of(tiles, access, spec, extents)
            axes = tiles.axes(access)
            walked = [
                (axis, stride)
                for axis, stride in zip(axes, strides, strict=True)
                if _many(tiles, access, axis, spec, extents) > 1 and tiles.varies(access, axis)
            ]
            steps = [stride for axis, stride in walked if not tiles.unit(access, axis)]
            # the contiguous axis may be one of those around, and the last one have one element
            outer = all(axis == axes[-1] or not tiles.unit(access, axis) for axis, _ in walked)
            nbytes = spec.dtype.nbytes
            common = gcd(16, spec.address, *(s * nbytes for s in steps))
            loads = common == 16
            whole = common
            if tiles.varies(access, axes[-1]):
                many = tiles.alike(access, axes[-1])
                whole = gcd(common, extents[axes[-1]] // many * nbytes)
            if outer and (whole == 16 or (loads and access in domain.reads)):
                tma.add(access.name)
            alone = not domain.products and not domain.rows and domain.scanned is None
            # of whole rows only what all of them share begins where vectors do
            shared = not any(tiles.varies(access, axis) for axis in axes[:-1])
            alone |= bool(domain.rows) and access in domain.reads and shared
            # cp.async copies whole vectors: one that a row ends in would be read beyond it
            alone = alone and not (schedule.load == "cp_async" and access in domain.reads)
            if whole < common and alone and tiles.unit(access, axes[-1]):
                ragged.add(access.name)
                whole = common
            aligned[access.name] = max(1, whole // nbytes)
        full = isinstance(schedule, NormParams) and extents[-1] == schedule.columns
        far = frozenset(
            access.name
            for access in domain.accesses
            if access.tv.name in self.specs
            and any(step > FARTHEST for step in self._steps(tiles, access, extents))
        )
        sets = frozenset(tma), full, frozenset(ragged), far
        return ShapeClass(tuple(aligned.items()), *sets, _close(schedule, extents[-1]))

    def _steps(self, tiles: Loops, access: Access, extents: tuple[int, ...]) -> tuple[int, ...]:
        """Return all strides of a tensor that a kernel may be given."""
        spec = self.specs[access.tv.name]
        own = normalised(access.tv, spec)
        return (*own, *strides_of(tiles, access, spec, extents))


def _many(tiles: Loops, access: Access, axis: int, spec: Spec, extents: tuple[int, ...]) -> int:
    """Return how many places along an axis of a kernel a tensor may be read at."""
    if indexed_axis(access.tv) is None:
        return extents[axis]
    walked = last_walked(access, tiles.groups[axis])
    return extents[axis] if walked is None else reached(access, walked, spec, extents[axis])


def _close(schedule: Params, columns: int) -> bool:
    """Whether rows reach into the last vector of each thread, one of several."""
    if not isinstance(schedule, NormParams) or schedule.cluster > 1 or schedule.slide:
        return False
    others = schedule.columns - schedule.lanes * schedule.vector
    return 0 < others < columns < schedule.columns


def _repeated(tiles: Tiling, access: Access, spec: Spec, loops: list[int]) -> int:
    """Return how many neighbours of a tensor that repeats are neighbours in memory."""
    axes = tiles.cycles(access)[-1]
    whole = tiles.cycles(access) == (axes,) and axes.stop == len(loops)
    if not whole or not unit_stride(access.tv, access.coords.index(axes[-1])):
        return 1
    period = prod(loops[axes.start : axes.stop])
    return max(1, gcd(16, spec.address, period * spec.dtype.nbytes) // spec.dtype.nbytes)


def _registers(
    fusion: Fusion, params: Params | None, choices: Choices, values: Mapping[Symbol, int]
) -> Registers:
    """Return which operands that are not in memory are to be computed in registers."""
    if isinstance(params, TensorCoreParams):
        able: Registers = "either" if params.transpose else "first"
        return able if params.prologue == "registers" else ""
    ways: tuple[Registers, ...] = ("either", "first")
    for able in ways:
        cut = segments(fusion, replace(choices, registers=able))
        if all(
            computes_in_registers(segment.fusion, segment.domain, loops_of(segment.domain, values))
            for segment in cut
            if segment.domain.products
        ):
            return able
    return ""


def _kept(fusion: Fusion, cut: Sequence[Segment], few: frozenset[Few]) -> frozenset[str]:
    """Return what to store so that no product of two kernels is computed twice."""
    made = Counter(
        name
        for segment in cut
        for name in {tv.held for tv in segment.fusion.tensors if tv.op == "mma"}
    )
    plain = rearranged(as_sums(fusion, few))
    return keep(plain, [tv for tv in plain.tensors if tv.op == "mma" and made[tv.name] > 1])


def _of_rows(fusion: Fusion, choices: Choices) -> frozenset[str]:
    """Return the reductions that may stay in the kernel of what they are broadcast back to.

    Not those of which CTAs are asked to put their parts together.
    """
    reductions = (tv for tv in fusion.tensors if reduced_axes(tv) and tv.meet is None)
    return frozenset(tv.name for tv in reductions) - choices.empty


def _torn(cut: Sequence[Segment]) -> frozenset[str]:
    """Return the reductions that kernels of whole rows begin whose number of parts is another's."""
    begun = [{a.tv for a in segment.domain.begun if a.tv.parts == "rows"} for segment in cut]
    many = Counter(extent for some in begun for extent in {tv.logical[-1].extent for tv in some})
    return frozenset(
        reduction_of(tv) for some in begun for tv in some if many[tv.logical[-1].extent] > 1
    )


def _empty(fusion: Fusion, values: Mapping[Symbol, int]) -> frozenset[str]:

    def summed(tv: TensorView) -> Iterator[Extent]:
        if tv.op == "mma":
            yield from (axis.extent for axis in roles(tv) if axis.role is AxisRole.K)
        for axis in reduced_axes(tv):
            (arg,) = tensor_args(tv)
            yield arg.logical[axis].extent

    return frozenset(
        tv.name for tv in fusion.tensors if not all(number_of(e, values) for e in summed(tv))
    )


def _refusal(
    tiles: MatmulTiling, operand: Operand, schedule: Params, shapes: ShapeClass
) -> str | None:
    """Say why the copies of a schedule cannot read an operand where it lies."""
    access = operand.access
    if isinstance(schedule, AmpereParams):
        if indexed_axis(access.tv) is not None:
            return "TMA alone is told by an index where it lies"
        by_threads = schedule.observe == "threads"
        return copy_refusal(tiles, operand, shapes, by_threads=by_threads)
    if access.name not in shapes.tma:
        return "not aligned to 16 bytes"
    return type_refusal(operand) or tiles.tma_refusal(access)


def _untold(product: Product, operand: Operand) -> set[str]:
    """Return what an operand is computed from by an index that threads would have to load."""
    others = _by_threads(product, operand)
    return {leaf.tv.name for leaf in others if indexed_axis(leaf.tv) is not None}


def _by_threads(product: Product, operand: Operand) -> list[Access]:
    """Return what threads load themselves of what an operand is computed from."""
    whole = {leaf.access for leaf in operand.leaves}
    return [leaf for leaf in product.leaves if leaf not in whole]


def _computable(
    tiles: MatmulTiling,
    product: Product,
    operand: Operand,
    schedule: Params,
    shapes: ShapeClass,
) -> bool:
    """Whether tiles of an operand can be computed in registers: those of A, by rows along K.

    A step has one number of each row of what many neighbours along K share.
    """
    if any(tiles.alike(leaf, operand.summed) > 1 for leaf in _by_threads(product, operand)):
        return False
    shared = [leaf for leaf in operand.leaves if leaf.alike > 1]
    if shared and isinstance(schedule, AmpereParams):
        return False
    for leaf in shared:
        row = tiles.shape(leaf.access)[-1] * leaf.access.tv.dtype.nbytes
        whole_steps = leaf.alike == PACKED or leaf.alike % tiles.tile[operand.summed] == 0
        if row % CHUNK or not whole_steps:
            return False
    if unpacked(tiles.domain, product) is None:
        return False
    many = sum(leaf.alike <= PACKED for leaf in operand.leaves)
    fits = not isinstance(schedule, MatmulParams) or schedule.computes(len(tiles.operands), many)
    return (
        fits
        and operand.along == tiles.rows
        and bool(operand.leaves)
        and not any(
            leaf.transposed != (leaf.alike > PACKED)
            or _refusal(tiles, leaf, schedule, shapes) is not None
            for leaf in operand.leaves
        )
    )
