"""Bugs that compilers of asynchronous kernels had, and the kernels here that have them.

Each is a mistake that somebody made and found, by a wrong result, a hang or a review.  Where a
kernel of the suite makes it, the judges refute that kernel and pass its twin; where none can, it is
said what catches it instead.
"""

from __future__ import annotations

from dataclasses import dataclass

VALUE = "a wrong number in the right order: reference and integers compare every bit"
CODE = "the IR leaves it to the code generator: tests of its text, and runs on a GPU"
HOST = "the host refuses the launch"
SHAPE = "the IR has no such thing"


@dataclass(frozen=True, slots=True)
class Known:
    """A bug.

    Parameters
    ----------
    bug : str
        What was wrong.
    broken : str
        Names of the litmus kernels that make this mistake.
    why_not : str
        Why there is none.
    """

    bug: str
    broken: str = ""
    why_not: str = ""


MULTIPLYING = (
    Known(
        "slots handed back while wgmma still reads them",
        "slot_freed_before_the_wait slot_freed_with_its_group_in_flight "
        "slot_never_awaited_in_the_loop",
    ),
    Known("pending groups off by one", "slot_freed_one_group_too_early"),
    Known(
        "wgmma.fence hoisted, or left out because mbarriers guard the operands",
        "fence_missing_after_clearing fence_before_clearing",
    ),
    Known(
        "accumulators touched by the epilogue, no fence before the next tile",
        "accumulator_scaled_without_a_fence accumulator_scaled_after_the_fence",
    ),
    Known("accumulators moved inside the loop", "accumulator_scaled_in_flight"),
    Known(
        "accumulators cleared by moves before every tile, with a fence",
        why_not="legal and slow: the assembler's log says that it serialised",
    ),
    Known("the first product of a tile adds to the tile before", why_not=VALUE),
    Known("the first product adds to registers never written", "sums_of_the_tile_before"),
    Known("a product of two is not covered by the wait", "second_product_not_covered"),
    Known("a result read before the wait", "accumulator_read_in_flight part_taken_before_the_wait"),
    Known(
        "operands in registers rewritten in flight",
        "registers_loaded_in_flight slice_written_while_it_is_read",
    ),
    Known(
        "two warpgroups share an operand, each waits for itself",
        "two_warpgroups_refill_after_their_own_wait columns_of_a_refilled_after_one_wait",
    ),
    Known("an operand overwritten before the wait", "operands_overwritten_before_the_wait"),
    Known("an operand copied over by cp.async", "operands_copied_over_before_the_wait"),
    Known("operands of one loop handed back apart", "one_operand_freed_with_the_other"),
    Known("roles of alternating tiles not let in by each other", "roles_take_tiles_out_of_turn"),
    Known("offsets inside a swizzled panel, strides of descriptors", why_not=CODE),
    Known("a tail of K read by one operand through another path", why_not=VALUE),
    Known("element offsets beyond 32 bits", why_not=CODE),
)
"""Products and their operands."""

LOADING = (
    Known(
        "no barrier between a wait by few and a read by all",
        "published_by_nobody pipelined_wait_by_one_thread_unpublished pipelined_without_a_barrier",
    ),
    Known(
        "a destination cleared by threads before TMA fills it",
        "slot_cleared_without_a_fence slot_cleared_without_a_barrier",
    ),
    Known(
        "expected and loaded in different elections, not in one phase",
        "ring_expects_after_the_arrival bytes_announced_by_the_reader",
    ),
    Known("parity from the inner index of persistent tiles", "parity_from_the_inner_index"),
    Known("the phase starts again with every tile", "user_restarts_its_position"),
    Known("more loads in flight than barriers", "more_loads_than_barriers"),
    Known("coordinates not shifted by the prefetch, or shifted without one", why_not=VALUE),
    Known("coordinates from the number of a thread", why_not=SHAPE),
    Known("a box of more than 256 elements", "box_of_512_columns"),
    Known("shared memory not aligned for the swizzle", why_not="validation refuses the buffer"),
    Known("broadcast axes in a box", why_not="the scheduler loads such tensors by threads"),
    Known("rows that are no multiple of 16 bytes", why_not=HOST),
    Known("copies of threads that have nothing to copy", "copied_by_each_warp"),
    Known("only the bytes inside the tensor are expected", "clipped_box_expects_what_is_inside"),
    Known("one buffer's bytes expected for two", "one_barrier_expects_one_of_two_loads"),
    Known("waited for another barrier", "two_barriers_second_not_waited"),
    Known(
        "prologue, or last refill, without a guard",
        "prologue_not_guarded refill_once_too_often refill_once_too_seldom",
    ),
    Known("the refill stands before its wait", "ring_refilled_before_the_room"),
    Known("the arrival stands before the copy", "handed_before_the_store"),
    Known(
        "arrivals too many or too few",
        "ring_arrivals_one_too_few ring_arrivals_one_too_many ring_all_arrive_for_one",
    ),
    Known(
        "a barrier used before, after or twice in its life",
        "waited_before_its_life used_after_invalidation initialised_again_without_invalidation",
    ),
    Known(
        "a ring's parity on a barrier without a ring",
        "one_slot_with_the_parity_of_a_ring parity_of_the_slot_number",
    ),
    Known("loops that start elsewhere than at 0", "parity_from_a_position_not_counted_from_zero"),
    Known("each role waits for the other first", "meeting_each_waits_first"),
    Known("elections hoisted or shared across branches", why_not=SHAPE),
    Known("elections inside elections", "elected_inside_an_election_counted_by_warp"),
    Known("warps that span two rows of a block", why_not=SHAPE),
    Known("the await of cp.async a turn late", "copies_awaited_after_the_read"),
    Known("the number of copies in flight off by one", "one_group_too_many_in_flight"),
    Known("another role's copies awaited by one's own groups", "swapped_without_a_barrier"),
)
"""Copies into shared memory, and their barriers."""

LEAVING = (
    Known(
        "the fence by a thread that has not written and is not on the way",
        "fence_behind_the_barrier_by_a_bystander fence_by_a_warp_that_wrote_half",
    ),
    Known("no proxy fence after stmatrix", "part_by_stmatrix_without_a_proxy_fence"),
    Known("a fence on one branch only", "fence_on_one_branch"),
    Known("groups committed and awaited behind the loop", "stores_awaited_after_the_loop"),
    Known("TMA stores issued by a whole warp", "store_by_one_thread_of_each_warp"),
    Known("TMA reductions issued by a whole warp", "summed_by_one_thread_of_each_warp"),
    Known(
        "committed or awaited by another thread than the issuer",
        "committed_by_a_thread_of_another_warp awaited_by_a_thread_of_another_warp",
    ),
    Known("overwritten by others after one thread's wait", "awaited_without_a_barrier"),
    Known(
        "only the reads awaited where the writes matter",
        "released_when_sources_are_read destination_overwritten_after_the_source_was_read",
    ),
    Known("left with a store in flight", "left_with_a_store_in_flight"),
    Known("staged rows over operands still read", "epilogue_overwrites_what_is_read"),
    Known("a tail of rows not clipped", "partial_tile_not_clipped"),
    Known("a sum of splits in the layout of the epilogue", why_not=SHAPE),
    Known("an in-place update of an input", why_not="tensors share no bytes; the host checks"),
)
"""Results on their way out."""

JOINING = (
    Known("the barrier of the CTA in a branch of a role", "ring_user_joins_the_whole_cta"),
    Known("one number of a named barrier for two roles' epilogues", "teams_share_a_barrier_number"),
    Known("two named barriers in opposite order", "barriers_in_opposite_order"),
    Known(
        "registers that there are not",
        "more_registers_than_there_are registers_of_three_warpgroups_exceeded "
        "registers_never_given",
    ),
    Known(
        "a barrier in divergent code", "one_lane_at_a_block_barrier exchange_barrier_in_one_branch"
    ),
    Known("no barrier after a reduction", "exchange_overwritten_without_a_barrier"),
    Known("aliased buffers without a barrier", "second_buffer_written_over_the_first"),
    Known(
        "exchange through global memory without a barrier",
        "exchange_through_global_memory_without_a_barrier",
    ),
    Known("registers aliased across loops", why_not=SHAPE),
    Known("more shared memory than estimated", why_not="validation counts every byte"),
)
"""Threads of a CTA."""

CLUSTERS = (
    Known("peers not counted by the empty barrier", "multicast_frees_only_its_own_cta"),
    Known("left while a peer still arrives", "cluster_left_without_meeting"),
    Known("a peer's barrier used before its life", "remote_barriers_not_met"),
    Known("a barrier of the CTA where the cluster is meant", "tiles_shared_over_a_block_barrier"),
    Known(
        "a relaxed meeting that releases nothing",
        "tiles_shared_over_a_relaxed_meeting cluster_left_over_a_relaxed_meeting",
    ),
    Known("peers with different trip counts", "multicast_pair_with_different_trip_counts"),
    Known("a store into a stage that a multicast fills", "stage_stored_into_during_a_multicast"),
)
"""CTAs of a cluster."""

GRIDS = (
    Known("a relaxed release", "released_relaxed released_at_cta_scope"),
    Known("released before the sum is there", "released_right_after_the_commit"),
    Known("a semaphore left dirty", "two_launches_of_a_dirty_turnstile semaphore_not_reset"),
    Known("wait and release under different guards", "turn_awaited_by_every_other_cta"),
    Known("one semaphore for two tiles", "one_semaphore_for_two_tiles"),
    Known("a kernel without splits launched with several", "every_cta_writes_the_output"),
)
"""CTAs that sum up together."""

KNOWN = (*MULTIPLYING, *LOADING, *LEAVING, *JOINING, *CLUSTERS, *GRIDS)
