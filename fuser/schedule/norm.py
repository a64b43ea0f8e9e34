"""From a domain whose kernel has whole rows at a time, and params, to the axes of that kernel."""

from __future__ import annotations

from fuser.fusion.ir import reached
from fuser.fusion.zeros import unchanged_by_zeros
from fuser.schedule import pointwise
from fuser.schedule.domain import Access, Domain, arguments, unit_stride
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling
from fuser.schedule.shape_class import ShapeClass

WIDEST = 16
"""Bytes of the widest access."""


def norm_tiling(domain: Domain, params: NormParams) -> ReductionTiling:
    """Lay the tile of `params` over the merged axes: its columns are those of the rows."""
    *kept, rows = _axes(domain)
    axes = (*(kept or [()]), rows)
    tile = (1,) * (len(axes) - 2) + params.tile
    return ReductionTiling(domain, False, tile, axes_of=axes, reduced=(len(axes) - 1,))


def row_refusal(domain: Domain) -> str | None:
    """Say why a kernel cannot have whole rows of this domain at a time; None if it can.

    They have to be one axis, and what is reduced, as far as it differs from row to row, has its
    neighbours along them; all that is read, where nothing is reduced along rows.
    """
    if sum(group[0] in domain.rows for group in domain.merged) != 1:
        return "the axes that are reduced are no single axis in memory"
    for leaf in domain.leaves if domain.reductions else domain.reads:
        if _varies(leaf, domain) and not _neighbours(leaf, domain):
            return f"{leaf.tv} has no neighbours along what is reduced"
    return None


def slide_refusal(domain: Domain, vector: int) -> str | None:
    """Say why rows that begin anywhere cannot be read by whole vectors of memory; None if they can.

    Who then holds what of a row depends on where it begins, and there are zeros beside it.
    """
    (leaf, *others) = domain.reads
    wide = vector * leaf.tv.dtype.nbytes
    keys = [(one.source, one.walked) for one in domain.reductions]
    below = reached(keys, lambda key: [(arg, walked) for _, arg, walked in arguments(*key)])
    if others or any({*access.coords} & {*domain.rows} for access in domain.writes):
        return "rows of several tensors are used"
    if wide != WIDEST:
        return f"vectors of {leaf.tv} are {wide} bytes, of memory {WIDEST}"
    if any(tv.op == "iota" or any(one.tv is tv for one in domain.reductions) for tv, _ in below):
        return "it matters where in a row an element stands, or a reduction is reduced"
    for one in domain.reductions:
        if not unchanged_by_zeros(one.tv, one.source, {leaf.tv}):
            return f"{one.tv} is changed by zeros beside its rows"
    return None


def copied(tiles: ReductionTiling, params: NormParams, shapes: ShapeClass) -> dict[Access, int]:
    """Return the inputs that cp.async can bring, and how many elements at a time.

    They differ from row to row of a tile and along each: every thread copies what it will have.
    """
    return {
        access: width
        for access, width in pointwise.copied(tiles, params, shapes).items()
        if _varies(access, tiles.domain) and access.tv.dtype.nbytes > 1
    }


def runs(tiles: ReductionTiling, params: NormParams, shapes: ShapeClass) -> dict[Access, int]:
    """Return the inputs whose rows bulk copies can bring, and how many elements are 16 bytes.

    Source: PTX ISA, "cp.async.bulk" (addresses and bytes are multiples of 16).
    """
    every = copied(tiles, params, shapes)
    wide = {access: WIDEST // access.tv.dtype.nbytes for access in every}
    return {one: many for one, many in wide.items() if shapes.elements(one.name) % many == 0}


def _axes(domain: Domain) -> list[tuple[int, ...]]:
    """Return the groups of axes, that of the rows last."""
    return sorted(domain.merged, key=lambda group: group[0] in domain.rows)


def _varies(access: Access, domain: Domain) -> bool:
    """Tell whether a tensor differs along rows, and from row to row."""
    walked = {axis for axis in access.coords if axis is not None}
    return not walked.isdisjoint(domain.rows) and bool(walked - {*domain.rows})


def _neighbours(access: Access, domain: Domain) -> bool:
    last = access.axis_of(domain.rows[-1])
    return last is not None and unit_stride(access.tv, last)
