"""Reductions that one kernel begins and another ends.

What is reduced is on its way through a kernel already, for another result: the tiles of a product,
or whole rows that are normalised.  That kernel leaves what each of its CTAs has of the reduction,
and a small one behind puts these parts together, so that nothing is read or computed again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from fuser.fusion.ir import (
    Extent,
    Fusion,
    IterDomain,
    IterType,
    Symbol,
    TensorView,
    reached,
    row_major,
    tensor_args,
)
from fuser.fusion.ops import reduced_axes, scanned_axis
from fuser.fusion.promotion import arithmetic
from fuser.schedule.domain import (
    Access,
    Group,
    Key,
    WholeRows,
    groups,
    kept_axes,
    matched,
    unit_stride,
    whole_rows,
)
from fuser.schedule.shape_class import Choices
from fuser.schedule.views import viewed

PARTS = "_parts"
"""Ends the name of what is left of a reduction that is begun."""


def begun_by_products(fusion: Fusion, choices: Choices) -> frozenset[str]:
    """Return the reductions that kernels with products may begin: one axis of what they make.

    Not those of which CTAs are asked to put their parts together in turns, nor those of a product
    that gets a kernel of its own: only sums are left of that, no tiles.
    """
    found = set()
    for tv in viewed(fusion, choices).fusion.tensors:
        if len(reduced_axes(tv)) == 1 and tv.name not in choices.empty and tv.meet is None:
            found_under = under(tv, choices.empty)
            if found_under and all(
                one.op == "mma" and one.name not in choices.apart for one in found_under
            ):
                found.add(tv.name)
    return frozenset(found)


def begun_by_rows(fusion: Fusion, choices: Choices) -> frozenset[str]:
    """Return the reductions that kernels may begin that have whole rows: of all rows, none along.

    Those of what the kernel has on its way for other results, with nothing read besides.
    """
    return _begun_by_rows(fusion, replace(choices, parts=frozenset()))


@lru_cache(maxsize=64)  # a fusion is cut again and again, as it is for calls of other shapes
def _begun_by_rows(fusion: Fusion, choices: Choices) -> frozenset[str]:
    plain = viewed(fusion, choices).fusion
    made = groups(plain, choices.rows, choices.spread)
    return frozenset(
        tv.name
        for tv in plain.tensors
        if reduced_axes(tv) and tv.name not in choices.empty and tv.meet is None
        if not any(one.op == "mma" for one in under(tv, choices.empty))
        if any(_has_all(group, parts_of(tv), choices) for group in made)
    )


def begins(
    fusion: Fusion, outputs: tuple[TensorView, ...], target: TensorView, choices: Choices
) -> bool:
    """Tell whether one kernel of some outputs has whole rows, and all that `target` has parts of.

    `target` is from `parts_of`.
    """
    part = Fusion(fusion.inputs, fusion.tensors, outputs)
    first, *others = groups(part, choices.rows, choices.spread)
    return not others and _has_all(first, target, choices)


def _has_all(group: Group, target: TensorView, choices: Choices) -> bool:
    extents, writes = group
    coords = matched(target, extents)
    if coords is None:
        return False
    whole = whole_rows(extents, writes, choices.rows, choices.spread)
    if whole is not None and (whole.apart or whole.extents != extents):
        return False
    both = [*writes, Access(target, coords, target.name)]
    axes = None if whole is None else whole.axes
    more = whole_rows(extents, both, choices.rows, choices.spread, axes)
    if more is None or more.apart:
        return False
    read, (*_, last) = _read(more, both), more.axes
    near = all(
        unit_stride(tv, walked.index(last))
        for tv, walked in read
        if last in walked and not {*walked} <= {*more.axes, None}
    )
    along = kept_axes(target, coords) == more.axes
    return along and (near or bool(more.held)) and read == _read(more, writes)


def _read(whole: WholeRows, writes: list[Access]) -> set[Key]:
    """Return what a kernel of whole rows reads, as it walks it."""
    results = [(access.tv, access.coords) for access in writes]
    return {key for key in reached(results, whole.following) if key[0].op == "input"}


def parts_of(reduction: TensorView) -> TensorView:
    """Return what the tiles of a kernel with products, or whole rows, leave of a reduction.

    Of rows, parts lie next to each other along the results, as a kernel has them.
    """
    (source,) = tensor_args(reduction)
    real = reduced_axes(reduction)
    every = map(int, dict(reduction.attrs)["dims"])
    dims = (*(axis for axis in every if axis not in real), *real)
    kept = [axis for n, axis in enumerate(source.logical) if n not in dims]
    made = [one.name for one in under(reduction, frozenset()) if one.op == "mma"]
    # One number for all that a kernel leaves along an axis.
    words = (*made, *(str(source.logical[n].extent) for n in real), "tiles")
    if not made:
        words = (*(str(axis.extent) for axis in source.logical), "rows")
    one = IterDomain(1, IterType.BROADCAST)
    many = IterDomain(Symbol("_".join(words)), IterType.ITERATION)
    logical = (*kept, *(one for _ in dims[1:]), many)
    rank, along = len(logical), len(kept)
    order = (
        row_major(rank) if made else (*range(along - 1, -1, -1), *range(rank - 1, along - 1, -1))
    )
    return TensorView(
        name=f"{reduction.name}{PARTS}",
        number=reduction.number,
        logical=logical,
        dtype=arithmetic(reduction.dtype),
        op="sum" if reduction.op == "mean" else reduction.op,
        args=reduction.args,
        attrs=(("dims", dims),),
        contiguity=(True,) * rank,
        stride_order=order,
        parts="tiles" if made else "rows",
    )


def reduction_of(part: TensorView) -> str:
    """Return the name of the reduction that a tensor is parts of."""
    return part.name.removesuffix(PARTS)


def frame(fusion: Fusion, tv: TensorView) -> tuple[Extent, ...]:
    """Return the loop axes of the kernel that computes a tensor."""
    ((extents, _),) = groups(Fusion(fusion.inputs, fusion.tensors, (tv,)))
    return extents


def under(reduction: TensorView, empty: frozenset[str]) -> list[TensorView]:
    """Return the reductions, products and scans that a reduction reduces, element by element."""

    def ends(tv: TensorView) -> bool:
        return bool(reduced_axes(tv)) or tv.op == "mma" or scanned_axis(tv) is not None

    def following(tv: TensorView) -> list[TensorView]:
        return [] if ends(tv) or tv.name in empty else tensor_args(tv)

    every = reached(tensor_args(reduction), following)
    return [tv for tv in every if ends(tv) and tv.name not in empty]
