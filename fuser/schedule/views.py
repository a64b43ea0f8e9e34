"""Tensors that are parts of others' memory: what `slice`, `flatten`, `unflatten` and `cat` make.

None of them moves anything in a kernel.  A view of an input is an input with an address, extents
and strides of its own; so is one of a tensor that is computed, which is stored for it.  What is
concatenated is stored part by part where it belongs, by the kernels that compute the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TypeVar

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.ir import (
    Extent,
    Fusion,
    IterType,
    Symbol,
    TensorView,
    end_of_slice,
    number_of,
    row_major,
    tensor_args,
)
from fuser.fusion.ops import OPS, Form, named_axes, named_axis, producer_axes, unmoved
from fuser.fusion.promotion import arithmetic
from fuser.schedule.cut.few_rows import Few, as_sums, stored_first
from fuser.schedule.cut.indexed import multiplied_in_place, taken_early
from fuser.schedule.cut.kept import Epilogues, is_exact, memory_dtype
from fuser.schedule.cut.rearrange import rearranged
from fuser.schedule.domain import next_faster
from fuser.schedule.shape_class import Choices

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layout:
    """Extents, strides (in elements) and where the first element lies, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int = 0


@dataclass(frozen=True, slots=True)
class Lie:
    """What a definition promises: extents, contiguity and stride order of a tensor."""

    extents: tuple[Extent, ...]
    contiguity: tuple[bool, ...]
    order: tuple[int, ...]


def _apart(whole: Lie, axis: int) -> tuple[bool, ...]:
    """Return what stays contiguous where not all of an axis is walked, in order: what is faster."""
    flags = list(whole.contiguity)
    for other in sorted(range(len(flags)), key=lambda n: whole.order[n])[whole.order[axis] :]:
        flags[other] = False
        if other != axis and whole.extents[other] != 1:
            break
    return tuple(flags)


@dataclass(frozen=True, slots=True)
class Narrow:
    """Every `step`-th element from `start` along an axis, `many` of them."""

    axis: int
    start: int
    step: int
    many: Extent

    def of(self, whole: Layout, values: Mapping[Symbol, int], name: str) -> Layout:
        """Return the layout of the part; FusionError if the whole ends before."""
        many = values[self.many] if isinstance(self.many, Symbol) else self.many
        have, needed = whole.shape[self.axis], end_of_slice(self.start, self.step, many)
        if have < needed:
            raise FusionError(
                f"call({name}): axis {self.axis} has {have} elements, slice takes those up to "
                f"{needed}; pass a longer tensor"
            )
        stride = whole.strides[self.axis]
        return Layout(
            _changed(whole.shape, self.axis, (many,)),
            _changed(whole.strides, self.axis, (stride * self.step,)),
            whole.first + self.start * stride,
        )

    def lie(self, whole: Lie) -> Lie:
        """Return what is promised: slower axes up to the next one have a gap."""
        flags = list(whole.contiguity)
        if (self.start, self.step, self.many) != (0, 1, whole.extents[self.axis]):
            near = flags[self.axis] and self.step == 1
            flags = list(_apart(whole, self.axis))
            flags[self.axis] = near
        extents = _changed(whole.extents, self.axis, (self.many,))
        return Lie(extents, tuple(flags), whole.order)


@dataclass(frozen=True, slots=True)
class Split:
    """An axis as several."""

    axis: int
    sizes: tuple[Extent, ...]

    def of(self, whole: Layout, values: Mapping[Symbol, int], name: str) -> Layout:
        """Return the layout with those axes."""
        sizes = tuple(number_of(size, values) for size in self.sizes)
        strides, span = [], whole.strides[self.axis]
        for size in reversed(sizes):
            strides.append(span)
            span *= size
        return Layout(
            _changed(whole.shape, self.axis, sizes),
            _changed(whole.strides, self.axis, tuple(reversed(strides))),
            whole.first,
        )

    def lie(self, whole: Lie) -> Lie:
        """Return what is promised: the last axis of several elements follows what the axis did."""
        more, place = len(self.sizes) - 1, whole.order[self.axis]
        order = [n + more * (n > place) for n in whole.order]
        behind = [all(n == 1 for n in self.sizes[at + 1 :]) for at in range(more + 1)]
        flags = tuple(whole.contiguity[self.axis] if last else True for last in behind)
        return Lie(
            _changed(whole.extents, self.axis, self.sizes),
            _changed(whole.contiguity, self.axis, flags),
            _changed(tuple(order), self.axis, tuple(range(place + more, place - 1, -1))),
        )


@dataclass(frozen=True, slots=True)
class Join:
    """Axes, each without a gap before the next, as one."""

    first: int
    last: int

    def of(self, whole: Layout, values: Mapping[Symbol, int], name: str) -> Layout:
        """Return the layout with one axis for all of them."""
        joined = range(self.first, self.last + 1)
        real = [axis for axis in joined if whole.shape[axis] != 1] or [self.last]
        many = 1
        for axis in joined:
            many *= whole.shape[axis]
        keep = slice(self.first, self.last + 1)
        shape, strides = list(whole.shape), list(whole.strides)
        shape[keep], strides[keep] = [many], [whole.strides[real[-1]]]
        return Layout(tuple(shape), tuple(strides), whole.first)

    def lie(self, whole: Lie) -> Lie:
        """Return what is promised: the axis follows what the last of several elements did."""
        joined = range(self.first, self.last + 1)
        real = [axis for axis in joined if whole.extents[axis] != 1] or [self.last]
        kept = [axis for axis in range(len(whole.order)) if axis not in joined or axis == real[-1]]
        ranked = sorted(kept, key=lambda axis: whole.order[axis])
        extents: list[Extent] = [whole.extents[axis] for axis in kept]
        numbers = [whole.extents[axis] for axis in real]
        if len(real) > 1:
            extents[kept.index(real[-1])] = prod(n for n in numbers if isinstance(n, int))
        return Lie(
            tuple(extents),
            tuple(whole.contiguity[axis] for axis in kept),
            tuple(ranked.index(axis) for axis in kept),
        )


@dataclass(frozen=True, slots=True)
class Take:
    """Places along an axis in an order that an index says, `many` of them."""

    axis: int
    many: Extent

    def of(self, whole: Layout, values: Mapping[Symbol, int], name: str) -> Layout:
        """Return the layout of all places: an index may name any of them, however few are taken."""
        del self, values, name
        return whole

    def lie(self, whole: Lie) -> Lie:
        """Return what is promised: nothing of the steps along the axis, nor of those around it."""
        extents = _changed(whole.extents, self.axis, (self.many,))
        return Lie(extents, _apart(whole, self.axis), whole.order)


Step = Narrow | Split | Join | Take


@dataclass(frozen=True, slots=True)
class View:
    """A tensor of the segments that lies in the memory of `whole`, a tensor of the program."""

    tv: TensorView
    whole: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Viewed:
    """A fusion whose views are inputs, or outputs for parts of what is stored.

    `views` has both by name, `parts` those that fill each memory, by its name, and `rooms` the
    memories that are neither inputs nor outputs.  `why` says of parts why they are stored.
    """

    fusion: Fusion
    views: dict[str, View]
    parts: dict[str, tuple[TensorView, ...]]
    rooms: tuple[TensorView, ...]
    why: dict[str, str]


def viewed(fusion: Fusion, choices: Choices) -> Viewed:
    """Return a fusion without operations that make views.

    What is kept, by name, is stored where it is computed and read by what cannot follow it there.
    """
    sums = bool(choices.registers)
    return _viewed(fusion, choices.kept, choices.few, choices.copied, sums=sums)


@lru_cache(maxsize=256)
def _viewed(
    fusion: Fusion,
    kept: frozenset[str],
    few: frozenset[Few],
    copied: frozenset[str],
    *,
    sums: bool,
) -> Viewed:
    fusion = as_sums(fusion, few)
    fusion = rearranged(taken_early(fusion) if sums else fusion, sums=sums)
    kept |= stored_first(fusion, few)
    if not kept and not any(_makes_view(tv) or tv.op == "gather" for tv in fusion.tensors):
        return Viewed(fusion, {}, {}, (), {})
    return _Views(fusion, kept, multiplied_in_place(fusion, copied, computed=sums)).run()


def _makes_view(tv: TensorView) -> bool:
    return tv.op in OPS and OPS[tv.op].form is Form.VIEW


def _changed(values: tuple[T, ...], axis: int, new: tuple[T, ...]) -> tuple[T, ...]:
    return (*values[:axis], *new, *values[axis + 1 :])


class _Views:
    def __init__(self, fusion: Fusion, kept: frozenset[str], told: frozenset[TensorView]) -> None:
        self.fusion, self.told = fusion, told
        self.epilogues = Epilogues(fusion, kept)
        self.new: dict[TensorView, TensorView] = {}
        self.products = any(tv.op == "mma" for tv in fusion.tensors)
        self.stored: dict[TensorView, TensorView] = {}
        self.lain: dict[TensorView, TensorView] = {}
        self.copies: dict[TensorView, TensorView] = {}
        self.views: dict[str, View] = {}
        self.parts: dict[str, tuple[TensorView, ...]] = {}
        self.rooms: list[TensorView] = []
        self.tensors: list[TensorView] = []
        self.taken = {arg for tv in fusion.tensors for arg in tensor_args(tv)}

    def run(self) -> Viewed:
        for tv in self.fusion.tensors:
            if tv.op == "input":
                self.new[tv] = self._add(tv)
            elif tv in self.told:
                self.new[tv] = self._told(tv)
            elif not _makes_view(tv):
                args = tuple(
                    self._given(a, tv) if isinstance(a, TensorView) else a for a in tv.args
                )
                if tv.op == "gather":
                    args = (self._in_memory(tensor_args(tv)[0]), args[1])
                if tv.op == "mma":
                    args = tuple(self._rounded(a, tv) for a in tensor_args(tv))
                same = all(a is b for a, b in zip(args, tv.args, strict=True))
                made = tv if same else replace(tv, args=args)
                if tv.op == "gather" and self.products:
                    made = replace(made, name=f"{tv.name}_taken")
                self.new[tv] = self._add(made)
            elif self._is_stored(tv):
                self._store(tv)
        outputs: list[TensorView] = []
        for tv in self.fusion.outputs:
            if tv.name in self.parts:
                outputs += self.parts[tv.name]
            elif _makes_view(tv) or self._given(tv) is not self.new[tv]:
                outputs.append(self._copied(tv))
            else:
                outputs.append(self.new[tv])
        known = Fusion(self.fusion.inputs, tuple(self.tensors), tuple(outputs))
        within = {room.name: self.parts[room.name] for room in self.rooms}
        within |= {tv.name: self.parts[tv.name] for tv in self.stored if self.stored[tv] is tv}
        why = {
            part.name: "other kernels read it, and no product is computed twice"
            for tv, room in self.stored.items()
            for part in self.parts[room.name]
            if tv.name in self.epilogues.kept
        }
        return Viewed(known, self.views, within, tuple(self.rooms), why)

    def _add(self, tv: TensorView) -> TensorView:
        self.tensors.append(tv)
        return tv

    def _given(self, tv: TensorView, by: TensorView | None = None) -> TensorView:
        """Return a tensor as operations take it; kernels with products take nothing by index."""
        if by is not None and tv.name in self.epilogues.kept:
            return self._value(tv) if self.epilogues.follows(by, tv) else self._in_memory(tv)
        gathers = tv.op == "gather" and self.products and tv not in self.told
        return self._in_memory(tv) if gathers else self._value(tv)

    def _rounded(self, tv: TensorView, by: TensorView) -> TensorView:
        """Return an operand of a product in its own type, which memory on the way may not have."""
        made = self._given(tv, by)
        if made.dtype is not tv.dtype:
            return self._copied(tv)
        if tv.op in OPS and OPS[tv.op].form is Form.SHAPE:
            (source,) = tensor_args(tv)
            inner = self._rounded(source, tv)
            if inner is not self._given(source, tv):
                return self._add(replace(tv, name=f"{tv.name}_rounded", args=(inner,)))
        return made

    def _copied(self, tv: TensorView) -> TensorView:
        """Return a copy of what lies in memory, under the name that a user knows."""
        if tv not in self.copies:
            self.copies[tv] = self._add(_copy(tv, tv.name, self._given(tv), tv.dtype))
        return self.copies[tv]

    def _value(self, tv: TensorView) -> TensorView:
        """Return a tensor as other operations take it: a view as an input."""
        if tv not in self.new:
            self.new[tv] = self._seen(tv)
        return self.new[tv]

    def _seen(self, tv: TensorView) -> TensorView:
        """Return an input that stands for a tensor where it lies in memory."""
        whole, steps = self._way(tv)
        made = self._add(_laid(_copy(tv, f"{tv.name}_view", None, whole.dtype), whole, steps))
        self.views[made.name] = View(made, whole.name, steps)
        return made

    def _told(self, tv: TensorView) -> TensorView:
        """Return what a gather takes as an input of which an index tells where it lies."""
        source, index = tensor_args(tv)
        return self._indexed(tv, source, named_axis(tv), self._in_memory(index))

    def _indexed(
        self, tv: TensorView, source: TensorView, axis: int, index: TensorView
    ) -> TensorView:
        """Return it, seen through the operations that move axes of what it is taken of."""
        many = tv.logical[named_axis(tv)]
        if source.op in OPS and OPS[source.op].form is Form.SHAPE:
            ((inner,), walked) = tensor_args(source), producer_axes(source, 0)[axis]
            assert walked is not None, "checked before"
            made = replace(
                source,
                name=f"{tv.name}_of_{source.name}",
                number=tv.number,
                logical=_changed(source.logical, axis, (many,)),
                args=(self._indexed(tv, inner, walked, index),),
            )
            return self._add(made)
        whole, steps = self._way(source)
        steps = (*steps, Take(axis, many.extent))
        made = _laid(_copy(source, tv.name, None, whole.dtype), whole, steps)
        made = replace(
            made,
            number=tv.number,
            logical=_changed(source.logical, axis, (many,)),
            args=(index,),
            attrs=(("indexed", (axis,)),),
            count=(source.logical[axis].extent,),
        )
        self.views[made.name] = View(made, whole.name, steps)
        return self._add(made)

    def _in_memory(self, tv: TensorView) -> TensorView:
        """Return a tensor that lies in memory, seen through operations that only move axes."""
        if not self._is_computed(unmoved(tv)):
            return self._value(tv)
        if tv not in self.lain:
            self.lain[tv] = self._seen(tv)
        return self.lain[tv]

    def _is_stored(self, tv: TensorView) -> bool:
        """Tell whether a view has memory of its own, which its arguments fill."""
        source = tensor_args(tv)[0]
        if tv.op != "flatten":
            return tv.op == "cat" or (tv.op == "unflatten" and self._is_computed(source))
        if self._is_computed(source):
            return True
        whole, steps = self._way(source)
        return not _joins(_laid(source, whole, steps), *named_axes(tv))

    def _is_computed(self, tv: TensorView) -> bool:
        return tv.op != "input" and not _makes_view(tv)

    def _store(self, tv: TensorView) -> None:
        """Let the arguments of a tensor be stored where they lie in it."""
        args = [self._given(arg, tv) for arg in tensor_args(tv)]
        alone = tv in self.fusion.outputs and tv not in self.taken
        exact = all(memory_dtype(arg) is tv.dtype for arg in args)
        room = tv if alone else self._room(tv, tv.dtype if exact else arithmetic(tv.dtype))
        made, start = [], 0
        for n, arg in enumerate(args):
            step: Step
            match tv.op:
                case "cat":
                    (axis,) = named_axes(tv)
                    many = arg.logical[axis].extent
                    assert isinstance(many, int), "checked when it was recorded"
                    step, start = Narrow(axis, start, 1, many), start + many
                case "flatten":
                    first, last = named_axes(tv)
                    step = Split(first, arg.shape[first : last + 1])
                case _:
                    (axis,) = named_axes(tv)
                    step = Join(axis, axis + len(dict(tv.attrs)["sizes"]) - 1)
            part = _copy(arg, f"{room.name}_part{n}", arg, room.dtype)
            part = self._add(replace(_laid(part, room, (step,)), number=tv.number))
            self.views[part.name] = View(part, room.name, (step,))
            made.append(part)
        self.parts[room.name] = tuple(made)
        self.stored[tv] = room

    def _room(self, tv: TensorView, dtype: DType, *, padded: bool = False) -> TensorView:
        """Return memory for a tensor on the way; rows `padded` to chunks that TMA can move."""
        made = _copy(tv, f"{tv.name}_whole", None, dtype)
        real = [n for n, axis in enumerate(tv.logical) if axis.iter_type is IterType.ITERATION]
        if padded and len(real) > 1:
            made = replace(made, contiguity=tuple(n != real[-2] for n in range(tv.rank)))
        self.rooms.append(made)
        return made

    def _way(self, tv: TensorView) -> tuple[TensorView, tuple[Step, ...]]:
        """Return the memory that a tensor lies in, and the way to its elements there."""
        if tv.op == "input" or tv in self.stored:
            return self.stored.get(tv, tv), ()
        if self._is_computed(tv):
            kept = tv.name in self.epilogues.kept
            if kept and tv in self.fusion.outputs and is_exact(tv):
                self.stored[tv], self.parts[tv.name] = tv, (self.new[tv],)
                return tv, ()
            room = self.stored[tv] = self._room(tv, memory_dtype(tv), padded=kept)
            part = self._add(
                _laid(_copy(tv, f"{room.name}_part0", self.new[tv], room.dtype), room, ())
            )
            self.views[part.name] = View(part, room.name, ())
            self.parts[room.name] = (part,)
            return room, ()
        whole, steps = self._way(tensor_args(tv)[0])
        step: Step
        match tv.op:
            case "slice":
                (axis,), (start,), (by,) = (map(int, value) for _, value in tv.attrs)
                step = Narrow(axis, start, by, tv.logical[axis].extent)
            case "flatten":
                step = Join(*named_axes(tv))
            case _:
                step = Split(named_axes(tv)[0], tuple(map(int, dict(tv.attrs)["sizes"])))
        return whole, (*steps, step)


def _copy(tv: TensorView, name: str, arg: TensorView | None, dtype: DType) -> TensorView:
    """Return a tensor of that form: a copy of `arg`, or an input."""
    op, args = ("input", ()) if arg is None else ("set", (arg,))
    where = (True,) * tv.rank, row_major(tv.rank)
    return TensorView(name, tv.number, tv.logical, dtype, op, args, (), *where)


def _laid(tv: TensorView, whole: TensorView, steps: tuple[Step, ...]) -> TensorView:
    """Return a tensor with what is promised of its strides in that memory."""
    lie = Lie(whole.shape, whole.contiguity, whole.stride_order)
    for step in steps:
        lie = step.lie(lie)
    return replace(tv, contiguity=lie.contiguity, stride_order=lie.order)


def _joins(tv: TensorView, first: int, last: int) -> bool:
    """Tell whether axes lie behind each other without gaps."""
    real = [n for n in range(first, last + 1) if tv.logical[n].iter_type is IterType.ITERATION]
    return all(tv.contiguity[a] and next_faster(tv, a) == b for a, b in pairwise(real))
