"""Matrices that an index names, such as those of experts: multiplied where they lie.

A gather takes whole matrices where its index names places along one axis, and walks no other.  A
product of them then needs no copy: along that axis its kernel is told by the index where a tile is.
What is computed of such matrices in registers is computed of those that are taken.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from fuser.fusion.ir import Fusion, IterDomain, IterType, TensorView, row_major, tensor_args
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import OPS, Form, named_axes, named_axis, producer_axes
from fuser.fusion.recorder import axis_of


def is_whole(tv: TensorView) -> bool:
    """Tell whether a tensor is taken by an index that names places along one axis, and no more."""
    if tv.op != "gather":
        return False
    _, index = tensor_args(tv)
    places = [n for n, one in enumerate(index.logical) if one.iter_type is IterType.ITERATION]
    return places == [named_axis(tv)]


def multiplied_in_place(
    fusion: Fusion, copied: frozenset[str], *, computed: bool
) -> frozenset[TensorView]:
    """Return the gathers that products multiply without a copy, of whole matrices.

    Their index names places along an axis that both operands of these products have, and the
    result; the kernel of a product is then told where the matrices lie.  With `computed` also those
    that operands are computed from, element by element; none of what is `copied`.
    """
    users: dict[TensorView, list[TensorView]] = {tv: [] for tv in fusion.tensors}
    for tv in fusion.tensors:
        for arg in tensor_args(tv):
            users[arg].append(tv)

    @cache
    def multiplied(tv: TensorView, axis: int) -> bool:
        """Tell whether only products take a tensor, one for each place along an axis."""
        kept = tv in fusion.outputs or not copied.isdisjoint((tv.name, tv.held))
        return not kept and bool(users[tv]) and all(taken(one, tv, axis) for one in users[tv])

    def taken(user: TensorView, tv: TensorView, axis: int) -> bool:
        if user.op == "mma":
            sides = [(one.a, one.b) for one in roles(user) if one.role is AxisRole.BATCH]
            both = zip(*sides, strict=True) if sides else ((), ())
            pairs = zip(tensor_args(user), both, strict=True)
            return all(axis in own for arg, own in pairs if arg is tv)
        if user.op in OPS and OPS[user.op].pointwise:
            return computed and multiplied(user, axis)
        if user.op not in OPS or OPS[user.op].form is not Form.SHAPE:
            return False
        walked = producer_axes(user, 0)
        return axis in walked and multiplied(user, walked.index(axis))

    return frozenset(
        tv
        for tv in fusion.tensors
        if is_whole(tv)
        and multiplied(tv, named_axis(tv))
        and lies(tensor_args(tv)[0], named_axis(tv))
    )


def lies(tv: TensorView, axis: int) -> bool:
    """Tell whether a tensor has an axis in memory, seen through operations that move axes."""
    while tv.op in OPS and OPS[tv.op].form is Form.SHAPE:
        walked = producer_axes(tv, 0)[axis]
        if walked is None or tv.op == "expand":
            return False
        (tv,), axis = tensor_args(tv), walked
    return True


@lru_cache(maxsize=256)
def taken_early(fusion: Fusion) -> Fusion:
    """Return a fusion in which what is computed of matrices is computed of those that are taken.

    Not of all of them, of which an index then takes some.
    """
    if not any(map(is_whole, fusion.tensors)):
        return fusion
    new: dict[TensorView, TensorView] = {}
    tensors: list[TensorView] = []
    for tv in fusion.tensors:
        args = tuple(new[arg] if isinstance(arg, TensorView) else arg for arg in tv.args)
        same = all(a is b for a, b in zip(args, tv.args, strict=True))
        made = tv if same else replace(tv, args=args)
        early = _Early(made).run() if is_whole(made) and tv not in fusion.outputs else []
        tensors += early or [made]
        new[tv] = tensors[-1]
    return Fusion(fusion.inputs, tuple(tensors), tuple(new[tv] for tv in fusion.outputs))


class _Early:
    """What a gather takes of something computed, computed of what gathers take."""

    def __init__(self, tv: TensorView) -> None:
        self.tv = tv
        self.source, self.index = tensor_args(tv)
        self.many = tv.logical[named_axis(tv)]
        self.done: dict[tuple[TensorView, int], TensorView | None] = {}
        self.made: list[TensorView] = []

    def run(self) -> list[TensorView]:
        """Return the tensors that are made, the last one in place of the gather; none if none."""
        axis = named_axis(self.tv)
        if self.source.op == "input" or self._taken(self.source, axis) is None:
            return []
        return self.made

    def _taken(self, tv: TensorView, axis: int) -> TensorView | None:
        if (tv, axis) not in self.done:
            self.done[tv, axis] = self._computed(tv, axis)
        return self.done[tv, axis]

    def _computed(self, tv: TensorView, axis: int) -> TensorView | None:
        if tv.logical[axis].iter_type is IterType.BROADCAST:
            return tv
        logical = (*tv.logical[:axis], self.many, *tv.logical[axis + 1 :])
        if tv.op == "input":
            made = replace(tv, op="gather", args=(tv, self._along(tv, axis)), number=self.tv.number)
            return self._named(replace(made, attrs=(("dim", (axis,)),)), logical)
        if tv.op not in OPS or not (OPS[tv.op].pointwise or OPS[tv.op].form in _MOVING):
            return None
        if tv.op == "expand" and producer_axes(tv, 0)[axis] is None:
            return self._named(tv, logical)
        args = []
        for arg in tv.args:
            walked = axis if OPS[tv.op].pointwise else _before(tv, axis)
            if walked is None:
                return None
            taken = self._taken(arg, walked) if isinstance(arg, TensorView) else arg
            if taken is None:
                return None
            args.append(taken)
        return self._named(replace(tv, args=tuple(args)), logical)

    def _along(self, tv: TensorView, axis: int) -> TensorView:
        """Return the index as a tensor with the axes of another one has it."""
        own = named_axis(self.tv)
        if (tv.rank, axis) == (self.tv.rank, own):
            return self.index
        made = self.index
        if made.rank > 1:
            others = tuple(n for n in range(made.rank) if n != own)
            made = replace(made, op="squeeze", args=(made,), attrs=(("dims", others),))
            made = self._named(made, (self.many,))
        if tv.rank > 1:
            flags = tuple(n != axis for n in range(tv.rank))
            attrs = (("is_broadcast_dim", flags),)
            made = replace(made, op="broadcast", args=(made,), attrs=attrs)
            ones = tuple(self.many if n == axis else axis_of(1) for n in range(tv.rank))
            made = self._named(made, ones)
        return made

    def _named(self, tv: TensorView, logical: tuple[IterDomain, ...]) -> TensorView:
        rank = len(logical)
        name = f"{self.tv.name}_early{len(self.made)}"
        made = replace(
            tv, name=name, number=self.tv.number, logical=logical,
            contiguity=(True,) * rank, stride_order=row_major(rank),
        )  # fmt: skip
        self.made.append(made)
        return made


_MOVING = (Form.SHAPE, Form.VIEW)


def _before(tv: TensorView, axis: int) -> int | None:
    """Return the axis of what a move or a view is of; None if it has no such axis."""
    if OPS[tv.op].form is Form.SHAPE:
        return producer_axes(tv, 0)[axis]
    if tv.op not in ("flatten", "unflatten"):
        return None
    (source,), (first, *_) = tensor_args(tv), named_axes(tv)
    if axis < first:
        return axis
    last = first + max(tv.rank - source.rank, 0)
    return axis + source.rank - tv.rank if axis > last else None
