"""Products of which several CTAs share a tile: the schedules that several tests compile."""

from __future__ import annotations

from dataclasses import replace

import torch

from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams

SMALL = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=16, splits=3)


SMALL_AMPERE = AmpereParams((32, 16, 16), 2, "groups", 2, 1, False, columns=16, splits=3)


BY_TMA = replace(SMALL, meet="tma")


SCATTER = replace(SMALL, meet="scatter", columns=8)


ROLES = replace(SMALL, split="cooperative", residency="co-resident")


WIDE = replace(SMALL, tile=(128, 128, 64), warpgroups=2, stages=4, prefetch=2, columns=64)


WIDE_SCATTER = replace(WIDE, meet="scatter", columns=16)


AMPERE_SCATTER = replace(SMALL_AMPERE, meet="scatter", columns=8)


def integers(m: int, k: int, n: int) -> list[torch.Tensor]:
    """X, weights and bias of `linear`, small whole numbers."""
    shapes = [(m, k), (n, k), (n,)]
    return [torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in shapes]
