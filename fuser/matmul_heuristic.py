"""Which schedule a fusion with products gets where the user names none.

A model of three facts: tiles are computed in waves of one per SM; each kind of tile keeps the
tensor cores busy to a measured degree; the epilogue of a cooperative tile is not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from fuser.arch import SM_90A
from fuser.domain import Domain
from fuser.matmul_params import MatmulParams, Split, nearest_registers
from fuser.matmul_scheduler import sides, summed
from fuser.ops import OPS, Rule
from fuser.params import MAX_STAGES
from fuser.tensor_view import Fusion

BARRIERS = 1024
"""Bytes of shared memory that barriers and alignment take, at most."""
COLUMNS = (64, 48, 32, 16)
"""Columns of the epilogue at a time."""
UNHIDDEN = 400.0
"""Steps of a cooperative tile's loop, times 64 elements, that its epilogue takes at the tensor
cores' expense for every costly operation."""
ALONE = 0.8
"""Share of its rate that a ping-pong tile keeps where each CTA has one tile only."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tile, with the share of the tensor cores' rate that it reaches.

    Measured on an H200, 8192 x 8192 x 8192 and 4096 x 4096 x 4096 in bf16, relative to the first.
    """

    rows: int
    cols: int
    split: Split
    warpgroups: int
    rate: float


KINDS = (
    Kind(128, 256, "cooperative", 2, 1.0),
    Kind(128, 192, "ping_pong", 2, 1.03),
    Kind(128, 128, "ping_pong", 2, 0.985),
    Kind(64, 256, "ping_pong", 2, 0.975),
    Kind(64, 128, "ping_pong", 2, 0.65),
    Kind(64, 256, "cooperative", 1, 0.6),
    Kind(64, 128, "cooperative", 1, 0.55),
    Kind(64, 64, "cooperative", 1, 0.35),
)
"""What is chosen from; with several products in one loop they share the columns."""


def default_matmul_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int], sms: int = SM_90A.sms
) -> MatmulParams:
    """Choose params for a kernel with products.

    Parameters
    ----------
    fusion : Fusion
        What the kernel computes.
    domain : Domain
        Its loop axes.
    loops : sequence of int
        The extent of each.
    sms : int
        Streaming multiprocessors.
    """
    rows, cols = sides(domain)
    m, n = (prod(loops[axis] for axis in group) for group in (rows, cols))
    around = prod(
        loops[axis]
        for group in domain.merged
        if group not in (rows, cols)
        and not any(group in summed(domain, p) for p in domain.products)
        for axis in group
    )
    depth = sum(prod(loops[a] for g in summed(domain, p) for a in g) for p in domain.products)
    costly = sum(OPS[tv.op].rule is Rule.FLOAT for tv in fusion.tensors if tv.op in OPS)
    many = len(domain.products)

    def time(kind: Kind) -> float:
        wide = max(kind.cols // many // 16 * 16, 16)
        tiles = around * ceil(m / kind.rows) * ceil(n / wide)
        waves = ceil(tiles / sms)
        steps = max(depth / many, 64) / 64 * kind.cols / 256 * kind.rows / 128
        rate = kind.rate
        if waves == 1 and kind.split == "ping_pong":  # the second warpgroup has nothing to do
            rate *= ALONE
        exposed = UNHIDDEN / 64 * costly * kind.rows * kind.cols / (128 * 256)
        return waves * (steps / rate + (exposed if kind.split == "cooperative" else 0.0))

    found = [params for kind in sorted(KINDS, key=time) if (params := _params(domain, kind, many))]
    return found[0]


def _params(domain: Domain, kind: Kind, many: int) -> MatmulParams | None:
    """Return the params of a kind of tile with as many stages as fit, if three do."""
    wide = max(kind.cols // many // 16 * 16, 16)
    columns = next(c for c in COLUMNS if wide % c == 0)
    operands = {a.name: a for p in domain.products for a in (p.a, p.b)}
    depth = 128 // max(a.tv.dtype.nbytes for a in operands.values())
    firsts = {p.a.name for p in domain.products}
    per_stage = sum(128 * (kind.rows if name in firsts else wide) for name in operands)
    roles = 2 if kind.split == "ping_pong" else 1
    slots = roles * (2 if wide // columns % 2 == 0 else 1)
    staged = sum(slots * kind.rows * columns * a.tv.dtype.nbytes for a in domain.writes)
    stages = min(MAX_STAGES, (SM_90A.smem_bytes - BARRIERS - staged) // per_stage)
    if stages < 2:
        return None
    return MatmulParams(
        tile=(kind.rows, wide, depth),
        warpgroups=kind.warpgroups,
        split=kind.split,
        stages=stages,
        prefetch=max(stages - 2, 0),
        persistent=True,
        columns=columns,
        registers=None if kind.warpgroups == 1 else nearest_registers(kind.warpgroups),
    )
