"""From a domain with products and params to the axes of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Literal

from fuser.errors import ScheduleError
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Access, Domain, Product, unit_stride
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import COUNTED, TensorCoreParams
from fuser.schedule.pointwise import MAX_TMA_RANK

Group = tuple[int, ...]
PACKED = 2
"""Elements of 4 bits in a byte."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a product, as the tile of A or B of a multiplication.

    `along` is the axis of the kernel that its rows lie along: rows of the tile for A, columns for
    B; `summed` the one that is summed over.  Where `transposed`, neighbours in memory are
    neighbours along `along`.  `leaves` is what it is computed from, where it lies in no memory:
    inputs with tiles as large as its own, or whose elements `alike` ones along `summed` share: two
    those of bytes, many what then is `transposed`, a number for each row of a tile.
    """

    access: Access
    along: int
    summed: int
    transposed: bool
    leaves: tuple[Operand, ...] = ()
    alike: int = 1


@dataclass(frozen=True, slots=True)
class MatmulTiling:
    """The axes of a kernel with products: those around a tile, rows, columns, those summed over.

    `groups` are the axes of the domain behind each of them; an empty one has extent 1.  The first
    `outer` are walked one by one; then come rows, columns, sums.  A tile has an extent along every
    axis.  `operands` are A and B of each product; A has the rows of the tile.  Where `transpose`
    the rows of a tile lie along the columns of the result.
    """

    domain: Domain
    groups: tuple[Group, ...]
    outer: int
    tile: tuple[int, ...]
    operands: tuple[tuple[Operand, Operand], ...]
    split: bool = False
    transpose: bool = False

    @property
    def rank(self) -> int:
        """Axes of the kernel."""
        return len(self.tile)

    @property
    def joined(self) -> int | None:
        """Axis of the kernel along the side of tiles that is walked with those around."""
        side = shared_by(self.domain, transpose=self.transpose)
        return None if not side else self.rows if side == "rows" else self.cols

    @property
    def walked(self) -> tuple[int, ...]:
        """Axes of the kernel whose tiles make up the result: all but those summed over."""
        return tuple(range(self.outer + 2))

    @property
    def rows(self) -> int:
        """Axis of the kernel along the rows of a tile."""
        return self.outer

    @property
    def cols(self) -> int:
        """Axis of the kernel along the columns of a tile."""
        return self.outer + 1

    def operand(self, access: Access) -> Operand | None:
        """Return the operand that an access is, if it is one."""
        whole = [operand for pair in self.operands for operand in pair]
        every = [*whole, *(leaf for operand in whole for leaf in operand.leaves)]
        return next((operand for operand in every if operand.access == access), None)

    def axes(self, access: Access) -> tuple[int, ...]:
        """Axes of the kernel along which a tensor is seen, in its own order."""
        around = tuple(range(self.outer))
        operand = self.operand(access)
        if operand is None:
            if self.transpose and access in self.domain.writes:
                return (*around, self.cols, self.rows)
            sums = (axis for axis in range(self.outer + 2, self.rank) if self.walks(access, axis))
            return (*around, self.rows, next(sums, self.cols))
        if operand.transposed:
            return (*around, operand.summed, operand.along)
        return (*around, operand.along, operand.summed)

    def varies(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor is walked along a kernel axis."""
        operand = self.operand(access)
        if axis >= self.outer and (operand is not None or access in self.domain.writes):
            return True
        return self.walks(access, axis)

    def walks(self, access: Access, axis: int) -> bool:
        """Tell whether an axis of a tensor is one of those behind a kernel axis."""
        return _walks(access, self.groups[axis])

    def alike(self, access: Access, axis: int) -> int:
        """Return how many neighbours along a kernel axis share an element of a tensor."""
        return alike(self.domain, access, self.groups[axis]) if self.walks(access, axis) else 1

    def unit(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's stride along a kernel axis is known to be 1."""
        if not self.walks(access, axis):  # an axis of one element: as good as any
            return axis == self.axes(access)[-1] and self.varies(access, axis)
        return along(access, self.groups[axis])

    def shape(self, access: Access) -> tuple[int, ...]:
        """Tile of a tensor: 1 along the axes that it does not vary along."""
        return tuple(
            max(self.tile[axis] // self.alike(access, axis), 1) if self.varies(access, axis) else 1
            for axis in self.axes(access)
        )

    def tma_refusal(self, access: Access) -> str | None:
        """Say why TMA cannot move tiles of this tensor whatever its shape; None if it can.

        Source: CUDA driver API, cuTensorMapEncodeTiled (rank 1..5, contiguous inner axis).
        """
        axes = self.axes(access)
        if not self.unit(access, axes[-1]) or not self.varies(access, axes[-1]):
            return f"{access.tv} is not contiguous along an axis of its tiles"
        if any(self.unit(access, axis) for axis in axes[:-1]):  # 1 is no multiple of 16 bytes
            return f"{access.tv} is contiguous along an axis around its tiles"
        varying = sum(self.varies(access, axis) for axis in axes)
        if varying > MAX_TMA_RANK:
            return f"{access.tv} varies along {varying} axes, a TMA box has at most {MAX_TMA_RANK}"
        return None


def sizes(domain: Domain, loops: Sequence[int]) -> tuple[tuple[int, int, int], list[int]]:
    """Return results around rows and columns, rows, columns; and the depth of each product."""

    def extent(groups: Iterable[Group]) -> int:
        return prod(loops[axis] for group in groups for axis in group)

    rows, cols = sides(domain)
    sums = [summed(domain, product) for product in domain.products]
    inner = [rows, cols, *(group for groups in sums for group in groups)]
    around = extent(group for group in domain.merged if group not in inner)
    return (around, extent([rows]), extent([cols])), [extent(groups) for groups in sums]


def shared(
    domain: Domain, params: MatmulParams | AmpereParams, loops: Sequence[int], sms: int
) -> MatmulParams | AmpereParams:
    """Return params whose count of CTAs that share a tile suits a call.

    In turns that count is a parameter of the kernel; where all of a tile sync it is a number, no
    larger than the steps of K, so that each has one, and as many as are sure to run at once.
    """
    if params.splits == 1 or params.meet not in COUNTED:
        return params
    m, n, k = params.covers
    (around, rows, cols), depths = sizes(domain, loops)
    tiles = 1 if params.persistent else around * ceil(rows / m) * ceil(cols / n)
    steps = [ceil(depth / k) for depth in depths]
    most = params.splits if params.meet == "last" else sms  # nobody waits for the last
    if params.residency == "co-resident":
        most = sms // max(tiles, 1)
    splits = max(1, min(params.splits, most, *steps))
    return replace(params, splits=splits, partial=params.partial if splits > 1 else "f32")


def matmul_tiling(domain: Domain, params: TensorCoreParams) -> MatmulTiling:
    """Lay the tile of `params` over the merged axes of a domain.

    ScheduleError if the products of a kernel have no common rows and columns, or axes that are
    summed over do not lie behind each other.
    """
    loops = _loops(domain)
    rows, cols = sides(domain)
    if params.transpose:
        rows, cols = cols, rows
    if strange := strangers(domain):
        raise ScheduleError(
            f"{', '.join(p.tv.name for p in strange)} and {domain.products[0].tv} have no common "
            "rows and columns; compute them by separate fusions"
        )
    outer = [g for g in loops if g not in (rows, cols)]
    sums: list[Group] = []
    pairs = []
    for product in domain.products:
        groups = summed(domain, product)
        if len(groups) != 1:
            raise ScheduleError(
                f"{product.tv}: the axes that it sums over do not lie behind each other in both "
                "operands; make them contiguous, in one order"
            )
        if groups[0] not in sums:
            sums.append(groups[0])
        at = len(outer) + 2 + sums.index(groups[0])
        pairs.append(_pair(domain, product, (rows, cols), len(outer), at, groups[0]))
    m, n, k = params.tile
    tile = (1,) * len(outer) + (m, n) + (k,) * len(sums)
    every = (*outer, rows, cols, *sums)
    return MatmulTiling(domain, every, len(outer), tile, tuple(pairs), transpose=params.transpose)


def sided(domain: Domain) -> Iterator[tuple[Operand, Operand]]:
    """Yield A and B of each product, also where a kernel of these products is refused."""
    tile = sides(domain)
    for product in domain.products:
        *_, group = ((), *summed(domain, product))
        yield _pair(domain, product, tile, 0, 0, group)


Side = Literal["", "rows", "cols"]
"""Of tiles; "" is neither."""


def other_side(side: Side) -> Side:
    """Return what a side of tiles is of tiles transposed."""
    other: dict[Side, Side] = {"rows": "cols", "cols": "rows"}
    return other.get(side, "")


def shared_by(domain: Domain, *, transpose: bool = False) -> Side:
    """Return the side of tiles on which results around them share the other operand, by an index.

    As blocks of rows share the matrices that an index names.  They are walked as if all were rows
    of one result, so that those that follow each other read one matrix.
    """
    pairs = [*sided(domain)]
    if len(_loops(domain)) != 1 + sum(map(bool, sides(domain))) or not domain.indices:
        return ""
    told = [{_is_told(domain, one) for one in side} for side in zip(*pairs, strict=True)]
    ways: dict[tuple[bool, ...], Side] = {(False, True): "rows", (True, False): "cols"}
    side = ways.get(tuple(True in one for one in told), "")
    return other_side(side) if transpose else side


def _is_told(domain: Domain, operand: Operand) -> bool:
    every = (operand, *operand.leaves)
    return any(domain.index_of(one.access) is not None for one in every)


def along(access: Access, group: Group) -> bool:
    """Tell whether a tensor's stride along the axes of a group is known to be 1."""
    walked = last_walked(access, group)
    return walked is not None and unit_stride(access.tv, walked)


def last_walked(access: Access, group: Group) -> int | None:
    """Return the axis of a tensor that the last axis of a group walks, of those that walk one."""
    walked = (access.axis_of(axis) for axis in reversed(group))
    return next((axis for axis in walked if axis is not None), None)


def known(domain: Domain, group: Group) -> int | None:
    """Return the extent of axes together; None if it is not a number."""
    extents = [domain.extents[axis] for axis in group]
    numbers = [extent for extent in extents if isinstance(extent, int)]
    return prod(numbers) if len(numbers) == len(extents) else None


def alike(domain: Domain, access: Access, group: Group) -> int:
    """Return how many neighbours along a group share an element of a tensor that walks it."""
    many = 1
    for axis in reversed(group):
        if access.axis_of(axis) is not None:
            break
        extent = domain.extents[axis]
        assert isinstance(extent, int), "as axes are merged"
        many *= extent
    return many


def summed(domain: Domain, product: Product) -> list[Group]:
    """Return the axes of a kernel that a product sums over."""
    first = _first_summed(domain)
    return [g for g in domain.merged if g[-1] >= first and _walks(product.a, g)]


def strangers(domain: Domain) -> list[Product]:
    """Return the products that have not the rows and columns of the first one."""
    rows, cols = sides(domain)
    found = []
    for product in domain.products:
        sided = all(_walks(product.a, g) != _walks(product.b, g) for g in (rows, cols) if g)
        both = not (rows and cols) or _walks(product.a, rows) != _walks(product.a, cols)
        if not (sided and both):
            found.append(product)
    return found


def _loops(domain: Domain) -> list[Group]:
    first = _first_summed(domain)
    return [g for g in domain.merged if g[-1] < first]


def _first_summed(domain: Domain) -> int:
    loops = [axis for access in domain.writes for axis in access.coords if axis is not None]
    return max(loops, default=-1) + 1


def _walks(access: Access, group: Group) -> bool:
    return bool(group) and access.axis_of(group[0]) is not None


def sides(domain: Domain) -> tuple[Group, Group]:
    """Return the groups of rows and columns: the last ones of either operand of the first product.

    A product of a matrix and a vector has columns only: the matrix is then B.
    """
    first = domain.products[0]
    loops = _loops(domain)
    one_sided = [g for g in loops if _walks(first.a, g) != _walks(first.b, g)]
    cols = one_sided[-1] if one_sided else ()
    others = [g for g in one_sided if _walks(first.a, g) != _walks(first.a, cols)]
    return others[-1] if others else (), cols


def of_one(domain: Domain, product: Product, leaf: Access) -> int:
    """Return how many elements along what is summed over are computed from one; 0: all are."""
    groups = [group for group in summed(domain, product) if _walks(leaf, group)]
    return max((alike(domain, leaf, group) for group in groups), default=0)


def _pair(
    domain: Domain,
    product: Product,
    tile: tuple[Group, Group],
    rows_axis: int,
    at: int,
    summed: Group,
) -> tuple[Operand, Operand]:
    """Return A and B of a product; its operands are exchanged where `a` has the columns."""
    rows, cols = tile
    turned = _walks(product.a, cols) if cols else not _walks(product.a, rows)
    own = []
    for leaf in product.leaves:
        if all(_walks(leaf, g) for g in (cols if turned else rows, summed) if g):
            operand = _operand(leaf, rows_axis + turned, at, summed)
            operand = replace(operand, alike=alike(domain, leaf, summed))
            if operand.alike <= PACKED or operand.transposed:
                own.append(operand)
    first = replace(_operand(product.a, rows_axis + turned, at, summed), leaves=tuple(own))
    if product.leaves:  # in registers, by rows along K, whatever order a tensor of it would have
        first = replace(first, transposed=False)
    second = _operand(product.b, rows_axis + (not turned), at, summed)
    return (second, first) if turned else (first, second)


def _operand(access: Access, along: int, at: int, summed: Group) -> Operand:
    walked = last_walked(access, summed)
    inner = walked is None or unit_stride(access.tv, walked)
    other = [
        axis
        for axis, loop in enumerate(access.coords)
        if loop is not None and loop not in summed and unit_stride(access.tv, axis)
    ]
    return Operand(access, along, at, transposed=not inner and bool(other))
