"""Hypothesis strategies for the extents of products, small enough to be simulated."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from fuser.fusion.definition import Fusion, Symbol, TensorView
from fuser.fusion.ir import tensor_args
from fuser.fusion.mma_axes import AxisRole, MmaAxis, roles
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import symbols
from fuzz.cases.draft import rarely
from fuzz.cases.operands import MAX_SUM

SMALL_TILE = 64 * 64 * 64
"""Products of most tiles, so that a simulation stays short."""
MAX_STEPS = 24
"""Steps along the summed axes of all tiles of a product, for the same reason."""
MAX_TILES = 8
"""Tiles of a product."""
MAX_WORK = 12 * SMALL_TILE
"""Products of whole tiles in all."""
MAX_ELEMENTS = 1 << 14
"""Elements of the largest tensor."""


@st.composite
def matmul_extents(
    draw: st.DrawFn, fusion: Fusion, params: MatmulParams | AmpereParams, *, exact: bool = False
) -> dict[str, int]:
    """Values of every symbol: 1, tails, one past a tile, several turns of a ring, 0.

    `exact` bounds what products sum over.  Shrinks towards 8 for every symbol; two tiles of what is
    summed over, where CTAs share it.
    """
    m, n, k = params.covers
    turns = [k * params.stages, k * (2 * params.stages + 1)]
    edges = {
        AxisRole.BATCH: [1, 2, 3],
        AxisRole.M: [8, m, 1, m - 1, m + 1, 7, 2 * m + 8, m // 2, 3],
        AxisRole.N: [8, n, 1, n - 1, n + 1, 7, 2 * n + 8, 40, 3],
        AxisRole.K: [8, k, 64, *turns, 1, k - 1, k + 1, k + 8, 3, 2 * k, 4 * k - 8],
    }
    if params.splits > 1:  # several steps of what CTAs share, mostly
        edges[AxisRole.K] = [2 * k, 3 * k, params.splits * k, 4 * k - 8, *edges[AxisRole.K][:6]]
    even = draw(st.sampled_from([True, True, False]))
    empty = rarely(draw) and rarely(draw)
    found = {}
    for name in symbols(fusion):
        role = _role(fusion, name)
        choices = [e for e in edges[role] if not even or role is AxisRole.BATCH or e % 8 == 0]
        drawn = st.sampled_from(choices)
        found[name] = draw(drawn if even else drawn | st.integers(1, 80))
    found = bounded(fusion, params, found, exact=exact)
    if isinstance(params, AmpereParams) and params.load != "direct":  # copied in words of 4 bytes
        many = word(fusion)
        found |= {name: n + -n % many for name, n in found.items() if _is_summed(fusion, name)}
    if empty and found:
        found[draw(st.sampled_from(sorted(found)))] = 0
    return found


@st.composite
def few_extents(
    draw: st.DrawFn, fusion: Fusion, params: MatmulParams, *, exact: bool = False
) -> dict[str, int]:
    """Values by which products are sums: 1 or 2 rows of an operand, and 3, which are too many."""
    found = draw(matmul_extents(fusion, params, exact=exact))
    sides = [name for name in found if _role(fusion, name) in (AxisRole.M, AxisRole.N)]
    if sides:
        found[draw(st.sampled_from(sides))] = draw(st.integers(1, 3))
    return found


def bounded(
    fusion: Fusion, params: MatmulParams | AmpereParams, values: dict[str, int], *, exact: bool
) -> dict[str, int]:
    """Return extents, the largest halved until no kernel has much; multiples of 8 stay such."""
    values = dict(values)
    while any(n > 1 for n in values.values()) and not _is_short(
        fusion, params, values, exact=exact
    ):
        largest = max(values, key=lambda name: values[name])
        half = values[largest] // 2
        values[largest] = half // 8 * 8 if half > 8 and values[largest] % 8 == 0 else half
    return values


def _is_short(
    fusion: Fusion,
    params: MatmulParams | AmpereParams,
    values: dict[str, int],
    *,
    exact: bool,
) -> bool:
    def size(axis: MmaAxis) -> int:
        return values[axis.extent.name] if isinstance(axis.extent, Symbol) else axis.extent

    def shape(tv: TensorView) -> list[int]:
        return [values[n.name] if isinstance(n, Symbol) else n for n in tv.shape]

    if max((prod(shape(tv)) for tv in fusion.tensors), default=0) > MAX_ELEMENTS:
        return False
    for tv in fusion.tensors:
        if tv.op != "mma":
            continue
        by_role = {role: [size(a) for a in roles(tv) if a.role is role] for role in AxisRole}
        if exact and prod(by_role[AxisRole.K]) > MAX_SUM:
            return False
        # The last axis of each kind is tiled; those before it may be walked one by one.
        tiles = prod(by_role[AxisRole.BATCH])
        for role, tile in zip((AxisRole.M, AxisRole.N), params.covers[:2], strict=True):
            *outer, last = by_role[role] or [1]
            tiles *= prod(outer) * -(-last // tile)
        # All CTAs of a cluster take as many steps, if only of zeros.
        each = params.splits if params.meet == "cluster" else 1
        steps = tiles * each * -(-prod(by_role[AxisRole.K]) // (params.tile[2] * each))
        long = tiles > MAX_TILES or steps > MAX_STEPS or steps * prod(params.tile) > MAX_WORK
        if long and (steps, tiles) != (each, 1):  # a step of a large tile is as short as it gets
            return False
    return True


def _is_summed(fusion: Fusion, symbol: str) -> bool:
    return any(
        axis.role is AxisRole.K and str(axis.extent) == symbol
        for tv in fusion.tensors
        if tv.op == "mma"
        for axis in roles(tv)
    )


def _role(fusion: Fusion, symbol: str) -> AxisRole:
    """Return what a symbol does first in a product; or as in a batch, if an index takes of it."""
    for tv in fusion.tensors:
        if tv.op == "mma":
            for axis in roles(tv):
                if str(axis.extent) == symbol:
                    return axis.role
    indexed = any(
        str(tensor_args(tv)[0].shape[int(axis)]) == symbol
        for tv in fusion.tensors
        if tv.op == "gather"
        for axis in dict(tv.attrs)["dim"]
    )
    return AxisRole.BATCH if indexed else AxisRole.N


def word(fusion: Fusion) -> int:
    """Return how many elements of the smallest operand cp.async takes at least."""
    types = [arg.dtype for tv in fusion.tensors if tv.op == "mma" for arg in tv.args]
    return max([2, *(4 // dtype.nbytes for dtype in types)])
