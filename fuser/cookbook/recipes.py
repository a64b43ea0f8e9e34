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

from fuser.cookbook.grid import cluster_multicast as cluster_multicast
from fuser.cookbook.grid import split_k as split_k
from fuser.cookbook.grid import split_k_tma as split_k_tma
from fuser.cookbook.matmul import cp_async_mbarrier as cp_async_mbarrier
from fuser.cookbook.matmul import cp_async_ring as cp_async_ring
from fuser.cookbook.matmul import double_wgmma as double_wgmma
from fuser.cookbook.matmul import persistent as persistent
from fuser.cookbook.matmul import ping_pong as ping_pong
from fuser.cookbook.matmul import wgmma_ring as wgmma_ring
from fuser.cookbook.sum import specialized_ring as specialized_ring
from fuser.cookbook.sum import store_ring as store_ring
from fuser.cookbook.sum import tma_ring as tma_ring
from fuser.kernel import ir as kir

RECIPES: dict[str, Callable[[], kir.Kernel]] = {
    "tma_ring": tma_ring,
    "specialized_ring": specialized_ring,
    "store_ring": store_ring,
    "wgmma_ring": wgmma_ring,
    "double_wgmma": double_wgmma,
    "persistent": persistent,
    "ping_pong": ping_pong,
    "cp_async_ring": cp_async_ring,
    "cp_async_mbarrier": cp_async_mbarrier,
    "split_k": split_k,
    "split_k_tma": split_k_tma,
    "cluster_multicast": cluster_multicast,
}
"""Every recipe, with its own defaults."""
