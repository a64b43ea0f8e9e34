"""Which reductions a kernel computes itself, which are stored before, and which others begin.

A reduction whose result is broadcast back, or reduced again, would be repeated for every tile, so
another kernel stores it first.  One of a product is begun where the product is: every tile leaves
what it has of each row, and a kernel behind puts these parts together.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.fusion.ir import Extent, Fusion, IterDomain, IterType, Symbol, TensorView, row_major
from fuser.fusion.ops import reduced_axes
from fuser.fusion.promotion import arithmetic
from fuser.schedule.domain import groups, sources
from fuser.schedule.shape_class import Choices


def apart(
    fusion: Fusion, outputs: tuple[TensorView, ...], choices: Choices
) -> tuple[list[TensorView], list[TensorView]]:
    """Return what is stored before a kernel: reductions, and products under one; and what is begun.

    A kernel computes the reductions that its results are computed from element by element, if they
    have all its axes and none has to be broadcast, and if they reduce axes of the same extents.
    What they reduce is computed from neither products nor reductions, unless the kernel of the
    products has begun them.
    """
    empty = choices.empty
    begun: dict[TensorView, None] = {}
    part = Fusion(fusion.inputs, fusion.tensors, outputs)
    found: dict[TensorView, None] = {}
    for extents, writes in groups(part):
        _, products, reductions = sources([(access.tv, access.coords) for access in writes])
        whole = {*range(len(extents))}
        products = [key for key in products if key[0].name not in empty]
        reductions = [key for key in reductions if key[0].name not in empty]
        own = [tv for tv, coords in reductions if {*coords} - {None} == whole and not products]
        shapes = [_reduced_extents(tv, choices) for tv in own]
        own = [tv for tv, shape in zip(own, shapes, strict=True) if shape == shapes[0]]
        found |= dict.fromkeys(tv for tv, _ in reductions if tv not in own)
        for tv in own:
            if _is_begun(tv, choices):
                begun[tv] = None
            else:
                found |= dict.fromkeys(under(tv, empty))
    return sorted(found, key=lambda tv: tv.number), list(begun)


def begun_by_products(fusion: Fusion, empty: frozenset[str]) -> frozenset[str]:
    """Return the reductions that kernels with products may begin: one axis of what they make.

    Not those of which CTAs are asked to put their parts together in turns.
    """
    found = set()
    for tv in fusion.tensors:
        if len(reduced_axes(tv)) == 1 and tv.name not in empty and tv.meet is None:
            found_under = under(tv, empty)
            if found_under and all(one.op == "mma" for one in found_under):
                found.add(tv.name)
    return frozenset(found)


def parts_of(reduction: TensorView) -> TensorView:
    """Return what the tiles of a kernel with products leave of a reduction."""
    (source,) = reduction.args
    assert isinstance(source, TensorView), "a reduction reduces a tensor"
    dims = reduced_axes(reduction)
    kept = [axis for n, axis in enumerate(source.logical) if n not in dims]
    # One number for all that a kernel leaves along an axis.
    made = (one.name for one in under(reduction, frozenset()))
    tiles = "_".join((*made, *(str(source.logical[n].extent) for n in dims), "tiles"))
    logical = (*kept, IterDomain(Symbol(tiles), IterType.ITERATION))
    return replace(
        reduction,
        name=f"{reduction.held}_parts",
        logical=logical,
        dtype=arithmetic(reduction.dtype),
        op="sum" if reduction.op == "mean" else reduction.op,
        attrs=(("dims", dims),),
        contiguity=(True,) * len(logical),
        stride_order=row_major(len(logical)),
        parts=True,
    )


def frame(fusion: Fusion, tv: TensorView) -> tuple[Extent, ...]:
    """Return the loop axes of the kernel that computes a tensor."""
    ((extents, _),) = groups(Fusion(fusion.inputs, fusion.tensors, (tv,)))
    return extents


def _is_begun(tv: TensorView, choices: Choices) -> bool:
    return tv.held in choices.parts


def _reduced_extents(tv: TensorView, choices: Choices) -> tuple[Extent, ...]:
    """Return the extents that the kernel of a reduction reduces."""
    if _is_begun(tv, choices):
        return (parts_of(tv).logical[-1].extent,)
    (arg,) = tv.args
    assert isinstance(arg, TensorView), "a reduction reduces a tensor"
    return tuple(arg.logical[axis].extent for axis in reduced_axes(tv))


def under(reduction: TensorView, empty: frozenset[str]) -> list[TensorView]:
    """Return the reductions and products that a reduction reduces, element by element."""
    seen: set[TensorView] = set()
    stack = [arg for arg in reduction.args if isinstance(arg, TensorView)]
    found = []
    while stack:
        tv = stack.pop()
        if tv in seen:
            continue
        seen.add(tv)
        if tv.name in empty:
            continue
        if reduced_axes(tv) or tv.op == "mma":
            found.append(tv)
        else:
            stack.extend(arg for arg in tv.args if isinstance(arg, TensorView))
    return found
