"""Kernels written by hand in the Kernel IR, to read, to copy and to judge.

Every one is a pattern of real Hopper or Ampere kernels, on tiles small enough to read and to
simulate.  `python -m oracles prove fuser/cookbook/recipes.py:wgmma_ring` judges one.

=================== ============================================================================
`tma_ring`          TMA loads run ahead in a ring; all threads compute, one also loads
`specialized_ring`  a warp loads, groups of threads compute
`store_ring`        results leave by TMA stores from a ring of slots
`wgmma_ring`        a warp feeds warpgroups that keep `depth` groups of wgmma in flight
`double_wgmma`      two matmuls in one loop, one commit and one flush for both
`persistent`        a CTA computes many tiles; rings run on across them
`ping_pong`         two warpgroups take tiles in turn
`cp_async_ring`     Ampere: cp.async groups and a block sync a step
`cp_async_mbarrier` Ampere: cp.async that arrives on mbarriers
`split_k`           CTAs share a tile and add by turns on a semaphore
`split_k_tma`       the same by TMA reduction, drained before each release
`cluster_multicast` two CTAs share an operand by multicast
=================== ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.cookbook.matmul import *
from fuser.cookbook.sum import *
from fuser.kernel import ir as kir

RECIPES: dict[str, Callable[[], kir.Kernel]] = {
    recipe.__name__: recipe
    for recipe in (
        tma_ring,
        specialized_ring,
        store_ring,
        wgmma_ring,
        double_wgmma,
        persistent,
        ping_pong,
        cp_async_ring,
        cp_async_mbarrier,
        split_k,
        split_k_tma,
        cluster_multicast,
    )
}
"""Every recipe, with its own defaults."""
EXPECT: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(RECIPES, lambda A, B: A.float() @ B.float().T),
    **dict.fromkeys(("tma_ring", "specialized_ring", "store_ring"), lambda X: X + X),
    "double_wgmma": lambda A, B, B2: (A.float() @ B.float().T) * (A.float() @ B2.float().T),
}
"""What every recipe computes: functions of torch tensors, by the names of the kernel's inputs."""
