"""Operands of wgmma: staged by stores or copies, shared by warpgroups; whole warpgroups."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import Litmus, broken, legal, trips
from litmus.products import (
    ACC,
    SLOT,
    STAGED,
    STAGES,
    product,
    staged,
    tiles,
    two_groups,
)

TOGETHER = "fill wait fence mma commit await sync"
COPIED = "copy copied landed fence_proxy sync fence mma commit await sync2"
_A, _B = tiles(STAGES)
ONE_WARP = kir.Role("one", 0, 1, (kir.Wgmma(ACC, kir.Slot(_A, SLOT), kir.Slot(_B, SLOT)),))

LITMUS: tuple[Litmus, ...] = (
    legal(
        "operands_staged_by_stores",
        "H25 H26 H27",
        staged(),
        "Stored, fenced by each writer, joined; awaited and joined before the next stores.",
    ),
    broken(
        "operands_staged_without_a_proxy_fence",
        "H25 H30",
        staged(STAGED.replace("fence_proxy ", "")),
        "proxy",
        "operands_staged_by_stores",
        "wgmma reads shared memory in the async proxy (PTX ISA, wgmma, async proxy).",
        launches=trips(1, 5),
    ),
    broken(
        "operands_staged_without_a_join",
        "H25 H70",
        staged(STAGED.replace("fence_proxy sync ", "fence_proxy ")),
        "RAW",
        "operands_staged_by_stores",
        "A warpgroup reads what all its warps stored.",
        launches=trips(1, 5),
    ),
    legal(
        "operands_fenced_behind_the_join",
        "H25 H33",
        staged(STAGED.replace("fence_proxy sync", "sync fence_proxy")),
        "A fence on the consumer's side of the barrier is accepted with a warning.",
        warns="proxy",
    ),
    broken(
        "operands_fenced_by_one_thread",
        "H25 H33",
        staged(STAGED.replace("fence_proxy", "elected_fence")),
        "proxy",
        "operands_staged_by_stores",
        "A fence before the barrier covers the stores of its own thread only.",
        launches=trips(1, 5),
    ),
    broken(
        "operands_overwritten_before_the_wait",
        "H26",
        staged(STAGED.replace(" await", "")),
        "WAR proxy",
        "operands_staged_by_stores",
        "The stores of the next step hit operands that the group still reads.",
    ),
    broken(
        "operands_awaited_after_the_stores",
        "H26",
        staged("get put fence_proxy await sync fence mma commit sync2"),
        "WAR proxy",
        "operands_staged_by_stores",
        "The wait comes behind the stores that it should hold back.",
    ),
    legal(
        "operands_staged_by_cp_async",
        "H26 H54",
        staged(COPIED),
        "Copied, awaited, fenced by each writer, joined; awaited and joined before the next.",
    ),
    broken(
        "operands_copied_over_before_the_wait",
        "H26",
        staged(COPIED.replace(" await", "")),
        "WAR",
        "operands_staged_by_cp_async",
        "The copies of the next step hit operands that the group still reads.",
    ),
    broken(
        "operands_copied_without_a_proxy_fence",
        "H54 H25",
        staged(COPIED.replace("fence_proxy ", "")),
        "proxy",
        "operands_staged_by_cp_async",
        "cp.async writes in the generic proxy (PTX ISA, cp.async).",
        launches=trips(1, 5),
    ),
    broken(
        "operands_fenced_before_they_landed",
        "H54 H33",
        staged(COPIED.replace("landed fence_proxy", "fence_proxy landed")),
        "proxy",
        "operands_staged_by_cp_async",
        "A fence between the issue of a copy and its wait covers nothing of it.",
        launches=trips(1, 5),
    ),
    legal(
        "two_warpgroups_share_operands",
        "H07",
        two_groups(TOGETHER),
        "Both have waited and met before the slot is filled again.",
    ),
    broken(
        "two_warpgroups_refill_after_their_own_wait",
        "H07 H26",
        two_groups(TOGETHER.replace(" sync", "")),
        "WAR RAW WAW parity",
        "two_warpgroups_share_operands",
        "The other warpgroup may still read when the first refills "
        "(seen in a GEMM whose warpgroups share an operand).",
    ),
    broken(
        "two_warpgroups_join_apart",
        "H07",
        two_groups(TOGETHER.replace("sync", "half other_half")),
        "WAR RAW WAW parity",
        "two_warpgroups_share_operands",
        "A barrier of each warpgroup alone says nothing of the other one.",
    ),
    broken(
        "two_warpgroups_join_before_the_wait",
        "H07 H06",
        two_groups(TOGETHER.replace("await sync", "sync await")),
        "WAR",
        "two_warpgroups_share_operands",
        "They meet before they have waited for their products.",
    ),
    broken(
        "half_a_warpgroup",
        "H27",
        staged(first_warp=0, warps=2),
        "collective deadlock",
        "operands_staged_by_stores",
        "wgmma is executed by all four warps of a warpgroup (PTX ISA, wgmma.mma_async).",
        launches=trips(1, 5),
        refused="128 threads|whole warpgroups",
    ),
    broken(
        "four_warps_of_two_warpgroups",
        "H27",
        staged(first_warp=2),
        "collective deadlock",
        "operands_staged_by_stores",
        "A warpgroup begins at a warp whose number is divisible by 4.",
        launches=trips(1, 5),
        refused="whole warpgroups",
    ),
    broken(
        "product_by_one_warp_of_four",
        "H27",
        product(loop="wait fence one commit await free", one=ONE_WARP),
        "collective",
        "product",
        "One warp of the warpgroup issues what all four must (PTX ISA, wgmma.mma_async).",
        launches=trips(1, 5),
        refused="whole warpgroups",
    ),
)
