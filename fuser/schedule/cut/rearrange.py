"""Views moved to where they cost nothing: to inputs, to outputs; and equal operations made one.

A view of what is computed element by element is computed from views of what that is computed from.
What a product sums over is several axes where an operand is computed by them, from bytes of two
elements, or with a number for some neighbours each.  What is computed element by element from a
`cat`, `flatten` or `unflatten`, and ends in results, is computed before it, part by part, so that
the results are stored where they lie.  Values stay what they are: views round nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import TypeVar

from fuser.fusion.ir import (
    AttrValue,
    Constant,
    Extent,
    Fusion,
    IterDomain,
    IterType,
    Scalar,
    TensorView,
    reached,
    row_major,
    tensor_args,
)
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import OPS, Form, named_axes, named_axis, producer_axes
from fuser.fusion.recorder import axis_of
from fuser.schedule.cut.indexed import is_whole

T = TypeVar("T")
Argument = TensorView | Scalar | Constant

PARTS = 4
"""Parts of a `cat` that are computed one by one, at most: each repeats operations in a kernel."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A view: `many` axes from `first` on become axes of the extents `made`."""

    op: str
    first: int
    many: int
    made: tuple[Extent, ...]
    attrs: tuple[tuple[str, AttrValue], ...]

    def at(self, first: int) -> _Move:
        """Return the same for other axes."""
        (key, _), *rest = self.attrs
        attrs: list[tuple[str, AttrValue]] = [(key, (first,)), *rest]
        if self.op == "flatten":
            attrs[1] = ("end_dim", (first + self.many - 1,))
        return replace(self, first=first, attrs=tuple(attrs))

    def spliced(self, whole: tuple[T, ...], made: tuple[T, ...]) -> tuple[T, ...]:
        """Return entries of axes with others for those that the view changes."""
        return (*whole[: self.first], *made, *whole[self.first + self.many :])


@lru_cache(maxsize=256)
def rearranged(fusion: Fusion, *, sums: bool = False) -> Fusion:
    """Return a fusion that computes the same from views of inputs into views of outputs.

    With `sums` products sum over the axes that their operands are computed by.
    """
    if any(_is_view(tv) for tv in fusion.tensors):
        fusion = _Rearranging(fusion, sums).run()
    return _shared(fusion)


def _shared(fusion: Fusion) -> Fusion:
    """Return a fusion in which equal operations are one, the first; results keep their own."""
    new: dict[TensorView, TensorView] = {}
    known: dict[object, TensorView] = {}
    kept = []
    # Kernels compute in the order of numbers; of one number are a whole and the parts before it.
    for tv in sorted(fusion.tensors, key=lambda tv: tv.number):
        args = tuple(new[arg] if isinstance(arg, TensorView) else arg for arg in tv.args)
        same = all(a is b for a, b in zip(args, tv.args, strict=True))
        made = tv if same else replace(tv, args=args)
        new[tv] = made
        if tv.op != "input" and tv.meet is None and tv not in fusion.outputs:
            words = tuple(
                (a.dtype, repr(a.value)) if isinstance(a, Constant) else id(a) for a in args
            )
            new[tv] = known.setdefault((tv.op, words, tv.attrs, tv.dtype, tv.shape), made)
        if new[tv] is made:
            kept.append(made)
    outputs = tuple(new[tv] for tv in fusion.outputs)
    live = {*reached(outputs, tensor_args)}
    tensors = tuple(tv for tv in kept if tv in live or tv in fusion.inputs)
    return Fusion(fusion.inputs, tensors, outputs)


class _Rearranging:
    def __init__(self, fusion: Fusion, sums: bool) -> None:
        self.fusion = fusion
        self.sums = sums
        self.new: dict[TensorView, TensorView] = {}
        self.tensors: list[TensorView] = []
        self.counts: dict[str, int] = {}
        self.users: dict[TensorView, list[TensorView]] = {tv: [] for tv in fusion.tensors}
        for tv in fusion.tensors:
            for arg in tensor_args(tv):
                self.users[arg].append(tv)
        self.ends = cache(self._ends_in_results)
        self.seen = cache(self._seen)
        self.divisors = cache(self._divisors)

    def run(self) -> Fusion:
        for tv in self.fusion.tensors:
            args = tuple(self.new[a] if isinstance(a, TensorView) else a for a in tv.args)
            same = all(a is b for a, b in zip(args, tv.args, strict=True))
            made = tv if same else replace(tv, args=args)
            self.new[tv] = self._moved(tv, made)
            if self.new[tv] is made:
                self.tensors.append(made)
        outputs = tuple(self.new[tv] for tv in self.fusion.outputs)
        return Fusion(self.fusion.inputs, tuple(dict.fromkeys(self.tensors)), outputs)

    def _moved(self, old: TensorView, tv: TensorView) -> TensorView:
        """Return what stands for an operation whose arguments have been moved."""
        if tv.op == "mma" and self.sums:
            return self._told_apart(tv)
        if tv.op in ("slice", "flatten", "unflatten"):
            (source,) = tensor_args(tv)
            made = None if _is_free(source) else self.seen(_move(tv), source)
            if made is None or old not in self.fusion.outputs:
                return tv if made is None else made
            if OPS[made.op].pointwise:
                self.tensors.append(replace(made, name=tv.name, number=tv.number))
                return self.tensors[-1]
        if tv.op in OPS and OPS[tv.op].pointwise and self.ends(old):
            for arg, was in zip(tensor_args(tv), tensor_args(old), strict=True):
                if _is_stored(arg) and all(map(self.ends, self.users[was])):
                    made = self._sunk(tv, arg)
                    if made is not None:
                        return made
        return tv

    def _told_apart(self, tv: TensorView) -> TensorView:
        """Return a product, as one over several axes if an operand is computed by such."""
        summed = [axis for axis in roles(tv) if axis.role is AxisRole.K]
        if len(summed) != 1 or not isinstance(whole := summed[0].extent, int):
            return tv
        args, axes = tensor_args(tv), (summed[0].a, summed[0].b)
        pairs = [(arg, axis) for arg, axis in zip(args, axes, strict=True) if axis is not None]
        found = {n for arg, axis in pairs for n in self.divisors(arg, axis)} - {1, whole}
        sizes = _chained([whole, *sorted(found, reverse=True), 1])
        if len(pairs) < 2 or not found or sizes is None:
            return tv
        made = [self.seen(_unflattened(axis, sizes), arg) for arg, axis in pairs]
        known = tuple(one for one in made if one is not None)
        if len(known) < 2:
            return tv
        more, at = len(sizes) - 1, roles(tv).index(summed[0])
        attrs = {key: tuple(map(int, value)) for key, value in tv.attrs}
        for key, axis in (("a_axes", summed[0].a), ("b_axes", summed[0].b)):
            assert axis is not None, "both have what is summed over"
            later = [n + more * (n > axis) for n in attrs[key]]
            attrs[key] = (*later[:at], *range(axis, axis + more + 1), *later[at + 1 :])
        kept = (n + more * (n > at) for n in attrs["reduced"] if n != at)
        attrs["reduced"] = tuple(sorted((*kept, *range(at, at + more + 1))))
        self.tensors.append(replace(tv, args=known, attrs=tuple(attrs.items())))
        return self.tensors[-1]

    def _divisors(self, tv: TensorView, axis: int) -> set[int]:
        """Return how many neighbours along an axis are computed from one element of something.

        Those are the extents behind each of the axes that it was put together of.
        """
        if tv.op not in OPS or tv.logical[axis].iter_type is IterType.BROADCAST or _is_free(tv):
            return set()
        if OPS[tv.op].pointwise:
            return {n for arg in tensor_args(tv) for n in self.divisors(arg, axis)}
        (source,) = tensor_args(tv)[:1] or (tv,)
        if tv.op == "flatten":
            first, gone = int(dict(tv.attrs)["start_dim"][0]), source.rank - tv.rank
            if axis != first:
                return self.divisors(source, axis + gone * (axis > first))
            found, inner = set[int](), 1
            for at in range(first + gone, first - 1, -1):
                extent = source.shape[at]
                if not isinstance(extent, int):
                    return set()
                found |= {inner, *(n * inner for n in self.divisors(source, at))}
                inner *= extent
            return found
        walked = producer_axes(tv, 0)[axis] if OPS[tv.op].form is Form.SHAPE else None
        return set() if walked is None else self.divisors(source, walked)

    def _ends_in_results(self, tv: TensorView) -> bool:
        """Tell whether only results are computed from a tensor, element by element."""
        if tv.op not in OPS or not OPS[tv.op].pointwise:
            return False
        return all(map(self.ends, self.users[tv]))

    def _sunk(self, tv: TensorView, view: TensorView) -> TensorView | None:
        """Return an operation computed before one of its arguments is put together."""
        moves = _undone(view)
        parts = []
        for nth, move in enumerate(moves):
            part = self._by_parts(tv, view, nth, move)
            if part is None:
                return None
            parts.append(part)
        made = replace(tv, op=view.op, args=tuple(parts), attrs=view.attrs)
        # Parts have the number of what is put together, and are told from it by their names.
        self.tensors += [*parts, made]
        return made

    def _by_parts(
        self, tv: TensorView, view: TensorView, nth: int, move: _Move
    ) -> TensorView | None:
        logical = move.spliced(tv.logical, tuple(map(axis_of, move.made)))
        args: list[Argument] = []
        for arg in tv.args:
            taken: Argument | None = arg
            if isinstance(arg, TensorView):
                alike = _is_stored(arg) and _undone(arg) == _undone(view)
                taken = tensor_args(arg)[nth] if alike else self._argument(move, arg)
            if taken is None:
                return None
            args.append(taken)
        return self._named(tv, logical, tuple(args))

    def _argument(self, move: _Move, arg: TensorView) -> TensorView | None:
        """Return a view of an argument, whose axes of one element stretch."""
        axes = arg.logical[move.first : move.first + move.many]
        if any(axis.iter_type is not IterType.BROADCAST for axis in axes):
            return self.seen(move, arg)
        change = len(move.made) - move.many
        if not change:
            return arg
        ones = tuple(axis_of(1) for _ in move.made)
        logical = move.spliced(arg.logical, ones)
        if change < 0:
            dims = tuple(range(move.first, move.first - change))
            made = self._named(arg, logical, (arg,), "squeeze", (("dims", dims),))
        else:
            flags = move.spliced((False,) * arg.rank, (True,) * change + (False,) * move.many)
            made = self._named(arg, logical, (arg,), "broadcast", (("is_broadcast_dim", flags),))
        self.tensors.append(made)
        return made

    def _seen(self, move: _Move, tv: TensorView) -> TensorView | None:
        """Return a view of a tensor without memory of its own, if there is one."""
        logical = move.spliced(tv.logical, tuple(map(axis_of, move.made)))
        made = None
        if tv.op in ("flatten", "unflatten") and _undone(tv) == [move]:
            (source,) = tensor_args(tv)
            return source
        if tv.op == "flatten" and not _is_free(tv) and move.op == "unflatten":
            made = self._split_anew(move, tv)
        elif _is_free(tv):
            if move.op != "flatten" or (tv.op == "input" and tv.is_row_major):
                made = self._named(tv, logical, (tv,), move.op, move.attrs)
        elif tv.op == "cat":
            return self._part(move, tv)
        elif tv.op == "full":
            made = self._named(tv, logical, tv.args)
        elif OPS[tv.op].pointwise:
            args = [self._argument(move, a) if isinstance(a, TensorView) else a for a in tv.args]
            known = tuple(arg for arg in args if arg is not None)
            made = self._named(tv, logical, known) if len(known) == len(args) else None
        elif OPS[tv.op].form is Form.SHAPE:
            made = self._through(move, tv, logical)
        elif is_whole(tv):
            made = self._taken(move, tv, logical)
        if made is not None:
            self.tensors.append(made)
        return made

    def _split_anew(self, move: _Move, tv: TensorView) -> TensorView | None:
        """Return an axis that was several as several others, by the finest of both."""
        (axis,), (source,) = map(int, dict(tv.attrs)["start_dim"]), tensor_args(tv)
        if move.first != axis:
            other = move.first + (source.rank - tv.rank) * (move.first > axis)
            taken = self.seen(move.at(other), source)
            last = int(dict(tv.attrs)["end_dim"][0])
            more = (len(move.made) - 1) * (move.first < axis)
            attrs = (("start_dim", (axis + more,)), ("end_dim", (last + more,)))
            logical = move.spliced(tv.logical, tuple(map(axis_of, move.made)))
            return None if taken is None else self._named(tv, logical, (taken,), attrs=attrs)
        old, new = source.shape[axis : axis + source.rank - tv.rank + 1], move.made
        if not all(isinstance(n, int) and n > 1 for n in (*old, *new)):
            return None
        behind = [{prod(_numbers(some[at:])) for at in range(len(some) + 1)} for some in (old, new)]
        sizes = _chained(sorted(behind[0] | behind[1], reverse=True))
        if sizes is None:
            return None
        made: TensorView | None = source
        for at, many in reversed([*enumerate(_parts(sizes, old), axis)]):
            if len(many) > 1 and made is not None:
                made = self.seen(_unflattened(at, many), made)
        for at, many in enumerate(_parts(sizes, new), axis):
            if len(many) > 1 and made is not None:
                made = self._joined(made, at, at + len(many) - 1)
        return made

    def _joined(self, tv: TensorView, first: int, last: int) -> TensorView:
        many = prod(_numbers(tv.shape[first : last + 1]))
        logical = (*tv.logical[:first], axis_of(many), *tv.logical[last + 1 :])
        attrs = (("start_dim", (first,)), ("end_dim", (last,)))
        self.tensors.append(self._named(tv, logical, (tv,), "flatten", attrs))
        return self.tensors[-1]

    def _through(
        self, move: _Move, tv: TensorView, logical: tuple[IterDomain, ...]
    ) -> TensorView | None:
        """Return a view of what an operation that moves axes gives, as that of a view."""
        axes = producer_axes(tv, 0)[move.first : move.first + move.many]
        (source,) = tensor_args(tv)
        attrs: tuple[tuple[str, AttrValue], ...] = tv.attrs
        if tv.op == "broadcast":
            flags = tuple(map(bool, dict(tv.attrs)["is_broadcast_dim"]))
            news = flags[move.first : move.first + move.many]
            if any(news) and not all(news):
                return None
            new = tuple(bool(news and news[0]) for _ in move.made)
            attrs = (("is_broadcast_dim", move.spliced(flags, new)),)
        elif move.op == "unflatten" and tv.op == "expand":
            taken = self._argument(move, source)
            return None if taken is None else self._named(tv, logical, (taken,))
        elif move.op == "unflatten" and tv.op == "permute":
            order, more = tuple(map(int, dict(tv.attrs)["dims"])), len(move.made) - 1
            at = order[move.first]
            order = tuple(n + more * (n > at) for n in order)
            attrs = (("dims", move.spliced(order, tuple(range(at, at + more + 1)))),)
        elif move.op != "slice":
            return None
        first = axes[0]
        if first is not None:
            if source.logical[first].iter_type is IterType.BROADCAST:
                return None
            taken = self.seen(move.at(first), source)
            return None if taken is None else self._named(tv, logical, (taken,), tv.op, attrs)
        return self._named(tv, logical, (source,), tv.op, attrs)

    def _taken(
        self, move: _Move, tv: TensorView, logical: tuple[IterDomain, ...]
    ) -> TensorView | None:
        """Return a view of matrices that an index takes, as those taken of a view."""
        axis, (source, index) = named_axis(tv), tensor_args(tv)
        if move.first <= axis < move.first + move.many:
            return None
        taken, places = self.seen(move, source), self._argument(move, index)
        if taken is None or places is None:
            return None
        axis += (len(move.made) - move.many) * (axis > move.first)
        return self._named(tv, logical, (taken, places), attrs=(("dim", (axis,)),))

    def _part(self, move: _Move, tv: TensorView) -> TensorView | None:
        """Return what a slice takes of one part of a `cat`."""
        axis = named_axis(tv)
        if move.op != "slice" or move.first != axis:
            return None
        (start,), (step,) = (value for _, value in move.attrs[1:])
        (many,) = _numbers(move.made)
        place = 0
        for part, (size,) in zip(tensor_args(tv), (one.made for one in _undone(tv)), strict=True):
            (have,) = _numbers((size,))
            if place <= start and start + (many - 1) * step < place + have:
                own = (*move.attrs[:1], ("start", (start - place,)), move.attrs[2])
                return part if many == have else self._argument(replace(move, attrs=own), part)
            place += have
        return None

    def _named(
        self,
        tv: TensorView,
        logical: tuple[IterDomain, ...],
        args: tuple[Argument, ...],
        op: str = "",
        attrs: tuple[tuple[str, AttrValue], ...] | None = None,
    ) -> TensorView:
        nth = self.counts[tv.name] = self.counts.get(tv.name, -1) + 1
        rank = len(logical)
        return replace(
            tv, name=f"{tv.name}_cut{nth}", logical=logical, args=args, op=op or tv.op,
            attrs=tv.attrs if attrs is None else attrs,
            contiguity=(True,) * rank, stride_order=row_major(rank),
        )  # fmt: skip


def _chained(behind: list[int]) -> tuple[int, ...] | None:
    """Return the extents of axes with so many elements from each on, if there are such."""
    pairs = [*pairwise(behind)]
    return None if any(a % b for a, b in pairs) else tuple(a // b for a, b in pairs)


def _parts(sizes: tuple[int, ...], whole: tuple[Extent, ...]) -> list[tuple[int, ...]]:
    """Return which of the sizes each axis is made of; ones are alone."""
    left, out = list(sizes), []
    for extent in _numbers(whole):
        mine: list[int] = []
        while prod(mine) < extent:
            mine.append(left.pop(0))
        out.append(tuple(mine))
    return out


def _unflattened(axis: int, sizes: tuple[int, ...]) -> _Move:
    return _Move("unflatten", axis, 1, sizes, (("dim", (axis,)), ("sizes", sizes)))


def _is_view(tv: TensorView) -> bool:
    return tv.op in OPS and OPS[tv.op].form is Form.VIEW


def _is_free(tv: TensorView) -> bool:
    """Tell whether a tensor is an input, or a view of one."""
    while tv.op in ("slice", "flatten", "unflatten"):
        (tv,) = tensor_args(tv)
    return tv.op == "input"


def _is_stored(tv: TensorView) -> bool:
    """Tell whether a view would have memory of its own, and its parts can be told."""
    if tv.op == "cat":
        return len(tv.args) <= PARTS
    if tv.op not in ("flatten", "unflatten") or _is_free(tv):
        return False
    return bool(_undone(tv))


def _move(tv: TensorView) -> _Move:
    """Return the view that an operation makes."""
    axes = named_axes(tv)
    first, many = axes[0], axes[-1] - axes[0] + 1
    made = tv.shape[first : first + tv.rank - tensor_args(tv)[0].rank + many]
    return _Move(tv.op, first, many, made, tv.attrs)


def _undone(view: TensorView) -> list[_Move]:
    """Return the views that give the arguments of a `cat`, `flatten` or `unflatten` back."""
    if view.op == "cat":
        axis = named_axis(view)
        sizes = _numbers(tuple(part.shape[axis] for part in tensor_args(view)))
        starts = (0, *accumulate(sizes))
        return [
            _Move(
                "slice", axis, 1, (size,),
                (("dim", (axis,)), ("start", (start,)), ("step", (1,))),
            )
            for start, size in zip(starts, sizes, strict=False)
        ]  # fmt: skip
    done, (source,) = _move(view), tensor_args(view)
    old = source.shape[done.first : done.first + done.many]
    sizes = _numbers(old)
    if not all(isinstance(n, int) and n > 1 for n in (*old, *done.made)):
        return []
    first, many = done.first, len(done.made)
    if view.op == "flatten":
        return [_unflattened(first, sizes)]
    attrs = (("start_dim", (first,)), ("end_dim", (first + many - 1,)))
    return [_Move("flatten", first, many, old, attrs)]


def _numbers(extents: tuple[Extent, ...]) -> tuple[int, ...]:
    return tuple(n for n in extents if isinstance(n, int))
