"""Kernels that the compiler makes of products, with small launches, to judge their mutants.

Tiles are as small as a wgmma is, so that every interleaving of a launch can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from fuser.expr import Var
from fuser.fusion.definition import Fusion
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams, Observe
from fuser.schedule.matmul_params import MatmulParams, Split
from fuser.schedule.params import COUNTED
from fuzz.kernels.draw import Subject, accepted, mutated, subject
from fuzz.kernels.fusions import (
    batched,
    computed,
    dense,
    experts,
    gated,
    gated_weights,
    linear,
    normalised,
    packed_weights,
    residual,
    scaled_weights,
    statistics,
    two_sums,
    weights,
)
from fuzz.kernels.reduction import REDUCTIONS, Reduced
from fuzz.kernels.tile import Start, Template, strides
from fuzz.mutation.operators import SYNC_OPERATORS, Mutant, mutants

N, K = 16, 16
"""Columns and depth of every tile."""
TILES = 2
"""Tiles of a launch whose CTAs share them, at most."""
MATRICES = 3
"""Matrices of which an index names one for each tile, where one does."""

Params = MatmulParams | AmpereParams


@dataclass(frozen=True, slots=True)
class Schedule:
    """A fusion and how the compiler is to compute it."""

    fusion: Callable[[], Fusion]
    params: Params

    def template(self) -> Template:
        """Return the kernel, and its launches."""
        params = self.params
        kernel = compiled(self.fusion(), params)

        def at(count: int) -> tuple[Start, ...]:
            # Tiles that are shared have nothing to do with each other, and every one its last CTA.
            pairs = [(1, count), (min(count, TILES) if params.splits > 1 else count, 1)]
            if params.persistent:
                pairs = [(1, count), (2, count), (3, count), (count, 1), (count, 2)]
            some = dict.fromkeys(pair for pair in pairs if pair[1])
            return tuple(launch(kernel, params, tiles, steps) for tiles, steps in some)

        return Template(kernel, params.stages, at)


def compiled(fusion: Fusion, params: Params) -> kir.Kernel:
    """Return the kernel of a fusion that multiplies."""
    launches = build(fusion, params, classify(fusion, params, dense(fusion))).launches
    (made,) = (launch for launch in launches if launch.tiling.domain.products)
    return made.kernel


def launch(kernel: kir.Kernel, params: Params, tiles: int, steps: int) -> Start:
    """Return a launch of one CTA of so many tiles, or else of a CTA a tile; or of those sharing it.

    `tiles` may be 0 where CTAs are persistent: then one of two CTAs, or clusters, has no tile.
    """
    rows, columns, depth = params.tile
    down, across = params.cluster if isinstance(params, MatmulParams) else (1, 1)
    names = [p.name for p in kernel.params if p.name.startswith("n")]
    outer = 1 if kernel.tensors[-1].extents[2:] else 0
    sizes = [1] * outer + [rows * down * max(tiles, 1), columns * across]
    # Of CTAs that share a tile the first has so many steps, the others one less, if not none.
    many = params.splits if steps > 1 or params.meet in COUNTED else 1
    sizes += [depth * max((steps - 1) * params.splits + 1, many)] * (len(names) - len(sizes))
    given = dict(zip(names, sizes, strict=True)) | {"raster": 1}
    given |= {p.name: MATRICES for p in kernel.params if p.name not in names and _counts(kernel, p)}
    for tensor in kernel.tensors:
        given |= strides(tensor, -(-max(sizes) // tensor.aligned) * tensor.aligned)
    takers = (1 if tiles else 2) if params.persistent else max(tiles, 1)
    if params.splits > 1 and params.meet != "cluster":
        numbers = {"splits": many, "groups": takers}
        given |= {p.name: numbers[p.name] for p in kernel.params if p.name in numbers}
        return many * takers, given
    return kernel.cluster * takers, given


def _counts(kernel: kir.Kernel, param: Var) -> bool:
    """Tell whether a parameter is how many places of a tensor an index may name."""
    loads = (stmt.src for stmt in kernel.walk() if isinstance(stmt, kir.TmaLoad))
    return any(box.tensor.extents[box.index.axis] == param for box in loads if box.index)


# --- schedules ----------------------------------------------------------------------------------


def hopper(
    split: Split,
    stages: int,
    prefetch: int,
    *,
    groups: int = 1,
    columns: int = N,
    depth: int = K,
    direct: bool = False,
    **more: object,
) -> MatmulParams:
    """Return a schedule by wgmma with small tiles; `more` is checked by the params."""
    pairs = split == "ping_pong"
    given = {"persistent": pairs, "store": "direct" if direct else "tma"} | more
    tile, warpgroups = (64 * groups, N, depth), 2 if pairs else groups
    return MatmulParams(tile, warpgroups, split, stages, prefetch, columns=columns, **given)  # type: ignore[arg-type]


def wgmma(
    fusion: Callable[[], Fusion], split: Split, stages: int, prefetch: int, **more: object
) -> Schedule:
    """Compute a fusion by wgmma; see `hopper`."""
    return Schedule(fusion, hopper(split, stages, prefetch, **more))  # type: ignore[arg-type]


def mma(
    fusion: Callable[[], Fusion], observe: Observe, stages: int, prefetch: int, **more: object
) -> Schedule:
    """Compute a fusion by mma.sync; `more` is checked by the params."""
    given = {"persistent": False, "columns": N} | more
    return Schedule(fusion, AmpereParams((32, N, K), 2, observe, stages, prefetch, **given))  # type: ignore[arg-type]


MATMULS: dict[str, Schedule] = {
    "pipelined_1_slot": wgmma(linear, "pipelined", 1, 0),
    "pipelined_0_in_flight": wgmma(linear, "pipelined", 2, 1, direct=True),
    "pipelined_1_in_flight": wgmma(linear, "pipelined", 3, 1),
    "pipelined_2_in_flight": wgmma(linear, "pipelined", 4, 1),
    "pipelined_persistent": wgmma(linear, "pipelined", 3, 1, persistent=True),
    "cooperative_0_in_flight": wgmma(linear, "cooperative", 2, 1, direct=True),
    "cooperative_1_in_flight": wgmma(linear, "cooperative", 3, 1, persistent=True, columns=8),
    "cooperative_2_in_flight": wgmma(residual, "cooperative", 3, 0, persistent=True),
    "cooperative_2_warpgroups": wgmma(
        linear, "cooperative", 2, 0, persistent=True, groups=2, registers=(40, 232)
    ),
    "ping_pong_0_in_flight": wgmma(linear, "ping_pong", 2, 1),
    "ping_pong_1_in_flight": wgmma(linear, "ping_pong", 3, 1, columns=8),
    "ping_pong_2_in_flight": wgmma(linear, "ping_pong", 3, 0),
    "cooperative_cluster": wgmma(linear, "cooperative", 2, 0, persistent=True, cluster=(2, 1)),
    "ping_pong_cluster": wgmma(linear, "ping_pong", 2, 1, direct=True, cluster=(1, 2)),
    "two_outputs": wgmma(lambda: linear(2), "cooperative", 2, 0, persistent=True, columns=8),
    "gated_pipelined": wgmma(gated, "pipelined", 3, 1),
    "gated_cooperative": wgmma(gated, "cooperative", 2, 0, persistent=True),
    "stacked_pipelined": wgmma(gated, "pipelined", 3, 1, stacked=True),
    "stacked_cooperative": wgmma(
        gated, "cooperative", 3, 1, persistent=True, columns=8, stacked=True
    ),
    "stacked_ping_pong": wgmma(gated, "ping_pong", 2, 1, stacked=True),
    "stacked_cluster": wgmma(
        gated, "cooperative", 2, 0, persistent=True, cluster=(2, 1), stacked=True
    ),
    "split_pipelined": wgmma(linear, "pipelined", 2, 0, splits=3),
    "split_in_flight": wgmma(linear, "pipelined", 3, 1, direct=True, splits=2),
    "split_chunks": wgmma(linear, "pipelined", 2, 1, splits=2, columns=8),
    "split_gated": wgmma(gated, "pipelined", 2, 1, splits=2, stacked=True),
    "split_tma": wgmma(linear, "pipelined", 2, 0, splits=3, meet="tma"),
    "split_tma_direct": wgmma(linear, "pipelined", 3, 1, splits=3, direct=True, meet="tma"),
    "split_tma_chunks": wgmma(linear, "pipelined", 2, 1, splits=3, columns=8, meet="tma"),
    "split_tma_gated": wgmma(gated, "pipelined", 2, 1, splits=3, stacked=True, meet="tma"),
    "split_f16": wgmma(linear, "pipelined", 2, 0, splits=3, partial="f16"),
    "split_tma_bf16": wgmma(
        linear, "pipelined", 2, 1, splits=3, columns=8, meet="tma", partial="bf16"
    ),
    "split_scatter": wgmma(linear, "pipelined", 2, 0, splits=3, columns=8, meet="scatter"),
    "split_scatter_gated": wgmma(
        gated, "pipelined", 2, 1, splits=3, columns=8, stacked=True, meet="scatter"
    ),
    "split_scatter_ampere": mma(linear, "groups", 2, 1, columns=8, splits=2, meet="scatter"),
    "split_roles": wgmma(linear, "cooperative", 2, 0, splits=3),
    "split_roles_neighbours": wgmma(
        gated, "cooperative", 2, 1, splits=3, stacked=True, residency="co-resident"
    ),
    "split_tma_roles": wgmma(linear, "cooperative", 2, 1, splits=3, columns=8, meet="tma"),
    "split_scatter_roles": wgmma(
        linear, "cooperative", 3, 1, splits=3, columns=8, meet="scatter", residency="co-resident"
    ),
    "split_scatter_neighbours": wgmma(
        linear, "pipelined", 2, 0, splits=2, meet="scatter", residency="co-resident"
    ),
    "split_last": wgmma(linear, "pipelined", 2, 0, splits=3, columns=8, meet="last"),
    "split_last_gated": wgmma(gated, "pipelined", 2, 1, splits=2, stacked=True, meet="last"),
    "split_last_statistics": wgmma(statistics, "pipelined", 2, 0, splits=2, columns=8, meet="last"),
    "split_last_roles": wgmma(
        linear, "cooperative", 2, 0, splits=3, meet="last", residency="co-resident"
    ),
    "split_last_ampere": mma(linear, "groups", 2, 1, columns=8, splits=2, meet="last"),
    "split_cluster": wgmma(linear, "pipelined", 2, 0, splits=2, columns=8, meet="cluster"),
    "split_cluster_gated": wgmma(gated, "pipelined", 2, 1, splits=2, stacked=True, meet="cluster"),
    "split_ampere_roles": mma(linear, "mbarriers", 2, 0, splits=2),
    "split_ampere": mma(linear, "groups", 2, 1, splits=2),
    "split_persistent": wgmma(linear, "pipelined", 2, 1, persistent=True, splits=2, direct=True),
    "split_persistent_tma": wgmma(
        linear, "cooperative", 2, 0, persistent=True, splits=3, columns=8, meet="tma"
    ),
    "split_persistent_scatter": wgmma(
        linear, "pipelined", 2, 0, persistent=True, splits=2, columns=8, meet="scatter"
    ),
    "split_persistent_neighbours": wgmma(
        linear, "cooperative", 2, 1, persistent=True, splits=2, residency="co-resident"
    ),
    "split_persistent_ampere": mma(linear, "groups", 2, 1, persistent=True, splits=2),
    "batched_cooperative": wgmma(batched, "cooperative", 2, 0, persistent=True),
    "grouped_pipelined": wgmma(experts, "pipelined", 3, 1),
    "grouped_cooperative": wgmma(experts, "cooperative", 2, 0, persistent=True),
    "grouped_computed": wgmma(
        lambda: experts(bits=8), "cooperative", 3, 1, prologue="registers", transpose=True
    ),
    "computed_pipelined": wgmma(computed, "pipelined", 3, 1, prologue="registers"),
    "computed_cooperative": wgmma(
        computed, "cooperative", 3, 1, persistent=True, prologue="registers"
    ),
    "computed_ping_pong": wgmma(normalised, "ping_pong", 2, 0, columns=8, prologue="registers"),
    "computed_weights": wgmma(weights, "pipelined", 3, 1, prologue="registers", transpose=True),
    "computed_two_weights": wgmma(
        gated_weights, "cooperative", 3, 1, persistent=True, prologue="registers", transpose=True
    ),
    "computed_scaled": wgmma(
        scaled_weights, "ping_pong", 2, 0, prologue="registers", transpose=True
    ),
    "computed_shared": wgmma(
        weights, "cooperative", 3, 1, splits=2, meet="last", prologue="registers", transpose=True
    ),
    "computed_packed": wgmma(
        packed_weights, "cooperative", 3, 1, depth=32, prologue="registers", transpose=True
    ),
    "computed_packed_shared": wgmma(
        packed_weights,
        "cooperative",
        3,
        1,
        depth=32,
        splits=2,
        meet="last",
        prologue="registers",
        transpose=True,
    ),
    "computed_ampere": mma(computed, "mbarriers", 2, 0, prologue="registers"),
    "inputs_pipelined": wgmma(
        residual, "pipelined", 2, 1, persistent=True, columns=8, inputs="tma"
    ),
    "inputs_cooperative": wgmma(residual, "cooperative", 2, 0, persistent=True, inputs="tma"),
    "inputs_ping_pong": wgmma(residual, "ping_pong", 2, 1, columns=8, inputs="tma"),
    "statistics_pipelined": wgmma(statistics, "pipelined", 3, 1),
    "statistics_cooperative": wgmma(statistics, "cooperative", 2, 0, persistent=True, columns=8),
    "statistics_ping_pong": wgmma(statistics, "ping_pong", 2, 1),
    "two_loops_pipelined": wgmma(two_sums, "pipelined", 2, 0),
    "two_loops_cooperative": wgmma(two_sums, "cooperative", 2, 0, persistent=True),
    "two_loops_ping_pong": wgmma(two_sums, "ping_pong", 2, 1, direct=True),
    "ampere_groups": mma(linear, "groups", 3, 2, columns=8),
    "ampere_groups_persistent": mma(linear, "groups", 2, 1, persistent=True),
    "ampere_mbarriers": mma(linear, "mbarriers", 2, 0),
    "ampere_mbarriers_persistent": mma(gated, "mbarriers", 3, 0, persistent=True),
}
"""Who loads and multiplies, groups of wgmma in flight, way out, and what is multiplied."""


COMPILED: dict[str, Schedule | Reduced] = {**MATMULS, **REDUCTIONS}
"""Those, and the kernels of reductions."""


@cache
def _template(name: str) -> Template:
    return COMPILED[name].template()


@cache
def sync_mutants(name: str) -> tuple[Mutant, ...]:
    """Return the sync mutants of a schedule that validation lets through."""
    kernel = _template(name).kernel
    some = (mutant for operator in SYNC_OPERATORS for mutant in mutants(kernel, operator))
    return tuple(mutant for mutant in some if accepted(mutant.kernel))


def scheduled(name: str, number: int) -> Subject:
    """Return the kernel of a schedule (0), or its sync mutant `number`, with launches."""
    if number == 0:
        return subject(_template(name), name)
    return mutated(_template(name), name, sync_mutants(name)[number - 1])


def subjects() -> Iterator[tuple[str, int]]:
    """Name and number of every schedule and of every sync mutant of it."""
    for name in COMPILED:
        for number in range(len(sync_mutants(name)) + 1):
            yield name, number
