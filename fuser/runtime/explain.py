"""What a fusion becomes, in words: its kernels, why it is cut there, and the bytes that they move.

Needs no GPU: the same decisions as those of a call, from shapes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fuser.arch import SM_90A
from fuser.errors import FusionError
from fuser.fusion.ir import (
    Fusion,
    Symbol,
    TensorView,
    call,
    indexed_axis,
    number_of,
    show_shape,
)
from fuser.fusion.mma_axes import roles
from fuser.fusion.ops import OPS, Form
from fuser.runtime.call import (
    Spec,
    asked,
    extents_of,
    loops_of,
    output_spec,
    shape_of,
    with_parts,
)
from fuser.runtime.classify import classify
from fuser.runtime.fallback import fitted
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Access
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams, TensorCoreParams
from fuser.schedule.products.choose import Choice, best
from fuser.schedule.products.unaligned import Lying, ReadDirectly, ranked
from fuser.schedule.segment import Segment, segments
from fuser.schedule.shape_class import Params
from fuser.schedule.views import viewed

ORDER = ("best", "then", "then")
"""Of the schedules of products that are shown."""
Shape = Sequence[int] | Spec | None
"""Of an input: its extents if it is row-major, or all that a call says; None of a number."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel of a fusion.

    `ops` are the operations that it computes, in order, as the user wrote them; `again` those of
    them that a kernel before has computed, too.  `reads` and `writes` are bytes by tensor, each
    once; `flops` those of products.  `why` says of what it stores for later kernels why it does,
    `apart` why it is not part of a kernel before.  `views` names what views lie in.  `best` are the
    schedules of products that are predicted to be the fastest, where the first of them was taken.
    """

    name: str
    params: Params
    ops: tuple[str, ...]
    again: tuple[str, ...]
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    flops: int
    why: tuple[str, ...]
    apart: tuple[str, ...]
    views: Mapping[str, str]
    best: tuple[Choice | ReadDirectly, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it moves at least: those of every tensor it reads or writes, once."""
        return sum(self.reads.values()) + sum(self.writes.values())

    def lines(self) -> Iterable[str]:
        """Yield what a person reads about it."""
        tile = "x".join(map(str, self.params.tile))
        how = ", ".join((self.params.family, f"tile {tile}", *_how(self.params)))
        yield f"{self.name}: {type(self.params).__name__} {how}"
        yield from (f"  {op}" for op in self.ops)
        yield f"  reads {self._tensors(self.reads)}; writes {self._tensors(self.writes)}"
        if self.flops:
            yield f"  {self.flops / 1e9:.3g} GFLOP of products"
        yield from (f"  {nth} {one}" for nth, one in zip(ORDER, self.best, strict=False))
        if self.again:
            yield f"  computed again: {', '.join(self.again)}"
        yield from (f"  {why}" for why in self.why)
        yield from (f"  apart from {why}" for why in self.apart)

    def _tensors(self, sizes: Mapping[str, int]) -> str:
        names = {n: f"{n} of {self.views[n]}" if n in self.views else n for n in sizes}
        return ", ".join(f"{names[n]} {_size(size)}" for n, size in sizes.items()) or "nothing"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The kernels of a fusion for some shapes.

    `least` are the bytes of its inputs and outputs, each once.  What is moved besides is `again`,
    inputs and outputs that several kernels read, and `between`, what is stored and read on the way.
    """

    parts: tuple[Part, ...]
    least: int
    again: int
    between: int

    @property
    def nbytes(self) -> int:
        """Bytes that all kernels move at least."""
        return sum(part.nbytes for part in self.parts)

    def __str__(self) -> str:
        many = "1 kernel" if len(self.parts) == 1 else f"{len(self.parts)} kernels"
        ratio = f"{self.nbytes / self.least:.2f}" if self.least else "-"
        head = (
            f"{many}; {_size(self.nbytes)} moved, {ratio} of the {_size(self.least)} that inputs "
            "and outputs have"
        )
        besides = {"of these read again": self.again, "stored and read on the way": self.between}
        words = [f"{_size(size)} {what}" for what, size in besides.items() if size]
        if words:
            head += f"\nbesides: {', '.join(words)}"
        return "\n".join([head, *(line for part in self.parts for line in part.lines())])


def explain(
    fusion: Fusion,
    *shapes: Shape,
    params: Params | None = None,
    extents: Mapping[str, int] | None = None,
    sms: int = SM_90A.sms,
) -> Explanation:
    """Say which kernels compute a fusion, by which schedule each, and what they read and write.

    Parameters
    ----------
    fusion : Fusion
        What to compute.
    *shapes : sequence of int, Spec or None
        Of each input, in the order of `fusion.inputs`; None for a number.
    params : optional
        As of `Executable`; None asks the heuristics.
    extents : mapping, optional
        Values of extents that no input has, by name.
    sms : int
        Streaming multiprocessors of the device.

    Raises
    ------
    FusionError
        If the shapes do not fit the definition.
    ScheduleError
        If the params cannot serve them.
    """
    asked("explain", fusion, params)
    specs = _specs(fusion, shapes)
    cut = classify(fusion, params, specs, extents, sms)
    if params is None:
        cut = fitted(fusion, cut, specs, extents, sms).shapes
    found = segments(fusion, cut.choices)
    kernels = zip((one.domain for one in found), cut.schedules, strict=True)
    values = with_parts(kernels, extents_of(fusion, specs, extents))
    views = {name: v.whole for name, v in viewed(fusion, cut.choices).views.items()}
    done: set[str] = set()
    parts: list[Part] = []
    for n, (segment, schedule) in enumerate(zip(found, cut.schedules, strict=True)):
        apart = _apart(n, found, views)
        part = _part(f"kernel {n}", segment, schedule, specs, values, done, apart, views)
        if segment.domain.products and not isinstance(params, TensorCoreParams):
            asked_for = any(product.tv.meet for product in segment.domain.products)
            loops = loops_of(segment.domain, values)
            first: Sequence[Choice | ReadDirectly] = ()
            if isinstance(schedule, AmpereParams):
                where = Lying.of(segment.domain, cut.kernels[n])
                first = ranked(segment.domain, loops, where, sms)[: len(ORDER)]
            elif not asked_for:
                first = best(segment.fusion, segment.domain, loops, len(ORDER), sms)
            part = replace(part, best=tuple(first))
        parts.append(part)
    outputs = {tv.name: output_spec(tv, values).distinct for tv in fusion.outputs}
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for part in parts:
        for moved, count in ((part.reads, read), (part.writes, written)):
            for name, size in moved.items():
                count[views.get(name, name)] += size
    given = {name: spec.distinct for name, spec in specs.items() if name in read}
    again = sum(max(read[name] - size, 0) for name, size in given.items())
    between = (read + written).total() - sum(read[n] for n in given) - sum(outputs.values())
    back = sum(read[name] for name in outputs)
    least = sum(given.values()) + sum(outputs.values())
    return Explanation(tuple(parts), least, again + back, between - back)


def _apart(n: int, found: Sequence[Segment], views: Mapping[str, str]) -> tuple[str, ...]:
    """Say why a kernel is none of those before it."""
    mine = found[n]
    read = {views.get(tv.name, tv.name): tv for tv in mine.fusion.inputs}
    said = []
    for k, other in enumerate(found[:n]):
        waits = [tv for tv in other.fusion.outputs if views.get(tv.name, tv.name) in read]
        names = ", ".join(views.get(tv.name, tv.name) for tv in waits)
        axes, others = (show_shape(one.domain.extents) for one in (mine, other))
        if waits:
            said.append(f"kernel {k}: all of {names} is needed first")
        elif axes != others and read.keys() & {
            views.get(i.name, i.name) for i in other.fusion.inputs
        }:
            said.append(f"kernel {k}: loops over {axes}, not {others}")
    return tuple(said)


def _part(
    name: str,
    segment: Segment,
    schedule: Params,
    specs: Mapping[str, Spec],
    values: Mapping[Symbol, int],
    done: set[str],
    apart: tuple[str, ...],
    views: Mapping[str, str],
) -> Part:
    """Describe a kernel; `done` has the tensors that those before have computed, and gets its."""
    inner = segment.fusion
    made = [tv for tv in inner.tensors if tv.op != "input"]
    heavy = [tv for tv in made if OPS[tv.op].form not in (Form.SHAPE, Form.FACTORY)]
    again = tuple(tv.held for tv in heavy if tv.held in done)
    done |= {tv.held for tv in heavy if not tv.parts}  # who ends what another began repeats nothing

    def sizes(accesses: Iterable[Access]) -> dict[str, int]:
        tensors = dict.fromkeys(access.tv for access in accesses)
        return {tv.name: size(tv) for tv in tensors}

    def size(tv: TensorView) -> int:
        spec = specs.get(tv.name)
        if spec is not None:
            return spec.distinct
        extents, axis = [*shape_of(tv, values)], indexed_axis(tv)
        if axis is not None:  # as many as are named, but no more than there are
            extents[axis] = min(extents[axis], *(number_of(n, values) for n in tv.count))
        return prod(extents) * tv.dtype.nbytes

    products = (tv for tv in made if tv.op == "mma")
    gathered = [access for _, access in (*segment.domain.gathers, *segment.domain.indices)]
    return Part(
        name,
        schedule,
        tuple(_op(tv) for tv in heavy),
        again,
        sizes((*segment.domain.reads, *gathered)),
        sizes(segment.domain.writes),
        sum(_flops(tv, values) for tv in products),
        segment.why,
        apart,
        views,
    )


def _how(params: Params) -> Iterable[str]:
    """Yield what else a person asks about a schedule: its ring, and who shares what."""
    if params.stages > 1:
        by = f" by {params.load}" if isinstance(params, PointwiseParams) else ""
        yield f"{params.stages} stages{by}"
    match params:
        case NormParams(lanes=lanes, cluster=ctas):
            yield f"{lanes} threads a row" if ctas == 1 else f"{lanes} threads of {ctas} CTAs a row"
        case ReductionParams() | MatmulParams() | AmpereParams() if params.splits > 1:
            yield f"{params.splits} CTAs a tile ({params.meet})"


def _op(tv: TensorView) -> str:
    return f"{tv} {tv.dtype} {show_shape(tv.logical)} = {call(tv)}"


def _flops(product: TensorView, values: Mapping[Symbol, int]) -> int:
    """Return two for each element of an operand that meets one of the other."""
    extents = (axis.extent for axis in roles(product))
    return 2 * prod(number_of(extent, values) for extent in extents)


def _specs(fusion: Fusion, shapes: Sequence[Shape]) -> dict[str, Spec]:
    if len(shapes) != len(fusion.inputs):
        names = ", ".join(arg.name for arg in fusion.inputs)
        raise FusionError(
            f"explain: got {len(shapes)} shapes, the fusion takes {len(fusion.inputs)}; give those "
            f"of {names}"
        )
    out = {}
    for n, (arg, given) in enumerate(zip(fusion.inputs, shapes, strict=True), start=1):
        if not isinstance(arg, TensorView):
            continue
        if given is None:
            raise FusionError(f"explain({arg}): it is a tensor; give its shape")
        if not isinstance(given, Spec):
            given = dense(arg, tuple(given), n << 32)
        out[arg.name] = given
    return out


def dense(tv: TensorView, shape: tuple[int, ...], address: int) -> Spec:
    """Return the spec of an input without gaps, in its stride order."""
    strides = [0] * len(shape)
    span = 1
    for axis in sorted(range(len(shape)), key=lambda a: tv.stride_order[a] if a < tv.rank else 0):
        strides[axis] = span
        span *= max(shape[axis], 1)
    return Spec(shape, tuple(strides), address, tv.dtype)


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.4g} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:.4g} kB"
