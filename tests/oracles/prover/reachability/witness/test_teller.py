"""Witnesses: the right two events, few rows, numbers for expressions, and an honest hint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import kernels as ks
import pytest
from litmus.suite import LITMUS, by_name

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from oracles.lanes import text
from oracles.prover.reachability.witness.teller import witness
from oracles.verdict import KINDS
from oracles.witness import Mark, Row, Witness

Test = Callable[[kir.Stmt], bool]


def at(barrier: str) -> Test:
    """Whether a statement waits on a barrier."""
    return lambda s: isinstance(s, kir.MBarrierWaitParity) and s.barrier.name == barrier


def a(kind: type) -> Test:
    """Whether a statement is of a kind."""
    return lambda s: isinstance(s, kind)


def changed(kernel: kir.Kernel, which: Test, number: int, *new: kir.Stmt) -> kir.Kernel:
    """Return a kernel with other statements in place of the n-th of a sort."""
    victim = [s for s in kernel.walk() if which(s)][number]
    return kernel.rewrite(lambda s: list(new) if s is victim else None)


def witnessed(kernel: kir.Kernel) -> Witness:
    """Return the witness of a kernel that goes wrong."""
    found = witness(kernel, policy="default")
    assert found is not None
    return found


def marked(found: Witness, mark: Mark) -> Row:
    """Return the row of an access."""
    (row,) = [row for row in found.rows if row.mark is mark]
    return row


UNAWAITED = changed(recipes.wgmma_ring(stages=3, depth=1), a(kir.AsyncAwait), 0)
UNJOINED = ks.specialized(3, warp_sync=False)
PROXY = changed(recipes.store_ring(), a(kir.FenceAsyncProxy), 0)
NEVER_FREED = changed(recipes.wgmma_ring(stages=3), a(kir.MBarrierArrive), 0)


def test_the_sentence_names_operations_iterations_lines_and_the_slot() -> None:
    """A reader must not have to count statements or iterations."""
    assert witnessed(UNAWAITED).says == (
        "nothing orders the end of `wgmma` k=0 (line 21) before the TMA load k=3 (line 33) of SA[0]"
    )


def test_the_marks_are_on_the_two_events_of_the_sentence() -> None:
    """The engine that still reads is marked, not a later turn of the same statement."""
    found = witnessed(UNAWAITED)
    first, second = marked(found, Mark.FIRST), marked(found, Mark.SECOND)
    assert (first.lane, first.line, first.text) == ("tensor core", 21, "reading SA[0]")
    assert (second.lane, second.line, second.text) == ("TMA engine", 33, "writing SA[0]")
    before = found.rows[found.rows.index(first) - 1]
    assert (before.lane, before.text) == ("mma0", "acc <~ wgmma(SA[0], SB[0]) k=0")


def test_few_rows_tell_it_and_setup_is_none_of_them() -> None:
    """Ten seconds are enough for a dozen rows."""
    found = witnessed(UNAWAITED)
    assert len(found.rows) <= 12
    assert not any("mbarrier_init" in row.text or "block_sync" in row.text for row in found.rows)
    assert len(text(found, width=140).splitlines()) <= 22


def test_the_open_end_comes_after_the_second_access() -> None:
    """That the engine is not done by then is the whole point."""
    found = witnessed(UNAWAITED)
    last = found.rows[-1]
    assert (last.lane, last.text) == ("tensor core", "... still reading SA[0], k=0")
    assert found.rows[-2] is marked(found, Mark.SECOND)


def test_rows_have_numbers_in_place_of_expressions() -> None:
    """`k % 3` makes the reader do the machine's work."""
    texts = [row.text for row in witnessed(UNAWAITED).rows]
    assert "full[0] wait parity 0 k=0" in texts
    assert "SA[0] <~ tma_load k=0" in texts
    assert not any("%" in text for text in texts)


def test_counts_have_the_names_that_the_kernel_gives_them() -> None:
    """`trips` is shorter than what it is, and one name for each loop."""
    assert witnessed(UNAWAITED).trips == (("trips", 4),)
    persistent = changed(recipes.persistent(), a(kir.AsyncAwait), 0)
    assert dict(witnessed(persistent).trips) == {"tiles": 1, "trips": 1}


def test_threads_of_one_role_share_a_lane_unless_they_are_in_conflict() -> None:
    """Who issues and who stores is distinguished only where that matters."""
    assert witnessed(UNAWAITED).lanes == ("load", "mma0", "TMA engine", "tensor core")
    assert witnessed(PROXY).lanes == ("lanes 1..31 of warp 0", "lane 0 of warp 0", "store engine")


def test_arrivals_of_all_warps_are_one_row() -> None:
    """The note says what they amount to together."""
    (row,) = [row for row in witnessed(UNJOINED).rows if row.text.startswith("empty[0] arrive")]
    assert row.note == "completes phase 0 of empty[0]"


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        (UNAWAITED, "missing is async_await(wgmma) between line 21 and the arrival of line 25"),
        (UNJOINED, "is by lane 0 of warp 0 (compute), and nothing joins lanes 1..31"),
        (PROXY, "missing is a fence_async_proxy by lanes 1..31 of warp 0 between line 12 and"),
        (NEVER_FREED, "none; nothing arrives on empty"),
        (
            changed(recipes.tma_ring(), at("full"), 0),
            "missing is a wait on full[0] before line 19",
        ),
        (
            changed(recipes.store_ring(), a(kir.BlockSync), 0),
            "is by lane 0 of warp 0, and nothing joins lanes 1..31 of warp 0 with it",
        ),
        (
            changed(recipes.store_ring(), a(kir.AsyncAwait), 1),
            "missing is async_await(bulk) between line 16 and the end",
        ),
        (
            changed(recipes.wgmma_ring(3), a(kir.WgmmaFence), 0),
            "missing is a wgmma_fence between line 17 and line 20",
        ),
        (
            changed(recipes.specialized_ring(3), a(kir.BlockSync), 0),
            "missing is a block_sync of all threads after line 10",
        ),
        (
            changed(recipes.specialized_ring(3), at("empty"), 0),
            "line 20: empty[0] arrive: load does not wait for it before line 27",
        ),
    ],
)
def test_the_hint_says_what_comes_nearest_or_what_is_missing(kernel: kir.Kernel, hint: str) -> None:
    """An engineer wants to hear where to look."""
    assert hint in witnessed(kernel).nearest


def test_a_wait_that_keeps_too_many_groups_is_the_hint() -> None:
    """The sync is there; it does too little."""
    kernel = recipes.store_ring()
    first = next(s for s in kernel.walk() if isinstance(s, kir.AsyncAwait))
    found = witnessed(changed(kernel, a(kir.AsyncAwait), 0, replace(first, keep=2)))
    assert found.nearest.startswith("line 10: async_await(bulk, keep=2, read_only)")
    assert found.nearest.endswith("keeps 2 in flight")


def test_an_await_of_a_queue_misses_no_commit() -> None:
    """Each entry is a group by itself."""
    early, never = (
        by_name(name).kernel for name in ("one_entry_too_many_in_flight", "queue_never_awaited")
    )
    assert isinstance(early, kir.Kernel)
    assert isinstance(never, kir.Kernel)
    assert witnessed(early).nearest == "line 13: async_await(queue, keep=2) keeps 2 in flight"
    assert "missing is async_await(queue)" in witnessed(never).nearest


def test_a_deadlock_says_who_waits_for_what() -> None:
    """One sentence, and a row for each who is stuck."""
    found = witnessed(NEVER_FREED)
    assert found.kind == "deadlock"
    assert found.says == (
        "load waits at line 31, empty[0] wait parity 0 k=3: 4 of 4 arrivals of phase 0 are "
        "missing, and nobody else arrives there; mma0 waits at line 19, full[0] wait parity 1 k=3: "
        "1 of 1 arrivals of phase 1 are missing, from load"
    )
    assert [row.lane for row in found.rows if row.text.endswith("forever")] == ["load", "mma0"]


def test_a_cycle_of_barriers_says_who_waits_for_whom() -> None:
    """Two roles that meet twice, in opposite order: each waits for the other."""
    kernel = by_name("barriers_in_opposite_order").kernel
    assert isinstance(kernel, kir.Kernel)
    found = witnessed(kernel)
    assert found.says == (
        "a waits at line 6, block_sync(1, 64): 32 of 64 threads are missing, from b; "
        "b waits at line 11, block_sync(2, 64): 32 of 64 threads are missing, from a"
    )
    assert [row.line for row in found.rows] == [6, 11]


def test_registers_in_flight_are_named() -> None:
    """The earlier event is the product, though no slot is in conflict."""
    found = witnessed(changed(recipes.persistent(), a(kir.AsyncAwait), 0))
    assert marked(found, Mark.FIRST).text == "using acc"
    assert marked(found, Mark.SECOND).text == "SD[0] = store(acc) t=0"


def test_what_a_cta_leaves_behind_ends_with_its_exit() -> None:
    """There is no later access, so the end stands for it."""
    found = witnessed(changed(recipes.store_ring(), a(kir.AsyncAwait), 1))
    assert marked(found, Mark.SECOND).text == "exits"
    assert found.says == "the TMA store k=0 (line 16) is still in flight when the CTA exits"


def test_a_statement_in_conflict_with_itself_is_shown_twice() -> None:
    """The number of the earlier event is given to the later one; the earlier step is not lost."""
    kernel = next(x.kernel for x in LITMUS if x.name == "fewer_slots_than_barriers")
    assert isinstance(kernel, kir.Kernel)
    found = witnessed(kernel)
    assert marked(found, Mark.FIRST).line == marked(found, Mark.SECOND).line
    assert found.rows.index(marked(found, Mark.FIRST)) < found.rows.index(
        marked(found, Mark.SECOND)
    )


def test_a_right_kernel_has_none() -> None:
    """A drawing of nothing would look like an accusation."""
    assert witness(ks.specialized(3), policy="default") is None


def test_every_refuted_litmus_is_told_in_few_rows() -> None:
    """All kinds of defects: no crash, a mark, at most 25 rows."""
    told_of = 0
    for litmus in LITMUS[::9]:
        if not isinstance(litmus.kernel, kir.Kernel):
            continue
        found = witness(litmus.kernel, policy="default")
        if found is None:
            continue
        told_of += 1
        assert found.says, litmus.name
        assert any(row.mark is not Mark.NONE for row in found.rows), litmus.name
        assert len(found.rows) <= 25, litmus.name
        assert {row.lane for row in found.rows} == set(found.lanes), litmus.name
    assert told_of > 15


def test_a_wait_for_a_turn_comes_after_what_gives_it() -> None:
    """The wait begins earlier, but a row is about when it is over."""
    found = witnessed(changed(recipes.split_k(), a(kir.BlockSync), 1))
    texts = [row.text for row in found.rows]
    assert texts.index("turns give turn 1") < texts.index("turns wait for turn 1")
    assert "turns give turn 1 is by lane 0 of warp 0" in found.nearest


@pytest.mark.parametrize("kernel", [recipes.split_k(), recipes.split_k_tma()])
def test_a_refuted_turnstile_has_a_witness(kernel: kir.Kernel) -> None:
    """Its ring breaks within one CTA, whatever the place of that CTA among those in turn."""
    syncs = [s for s in kernel.walk() if isinstance(s, kir.BlockSync | kir.AsyncAwait)]
    witnessed(kernel.rewrite(lambda stmt: [] if stmt is syncs[0] else None))


def test_a_fence_is_missing_where_the_turn_is_taken() -> None:
    """Of two CTAs it is the later one that has to fence."""
    found = witnessed(changed(recipes.split_k_tma(), a(kir.FenceAsyncProxy), 1))
    assert found.kind == "proxy"
    assert "missing is a fence_async_proxy by lane 0 of warp 0 of CTA 1" in found.nearest


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("part_taken_before_the_wait", "using acc", "left = slice(acc, column=0)"),
        ("matrix_round_trip_not_joined", "S[0] = stmatrix(x)", "x = ldmatrix(S[0])"),
        ("slice_without_a_register_fence", "half = slice(given, column=16)", "acc <~ wgmma(half"),
    ],
)
def test_matmul_statements_are_called_by_their_names(name: str, first: str, second: str) -> None:
    """Both sides of what goes wrong are shown, as the hardware's instructions are called."""
    one = next(one for one in LITMUS if one.name == name)
    assert isinstance(one.kernel, kir.Kernel)
    found = witnessed(one.kernel)
    assert first in marked(found, Mark.FIRST).text
    assert second in marked(found, Mark.SECOND).text


def test_a_fault_of_many_trips_is_followed_among_many_counts() -> None:
    """Trying all combinations of five counts up to the first wrong one takes forever."""
    late = changed(recipes.split_k_tma(stages=2), at("empty"), 0)
    assert dict(witnessed(late).trips) == {"trips": 3}


KIND = {
    "RAW": (
        "ring_read_without_a_wait", "", "15 x = load(S[0]) k=0",
        "waits nowhere on full, on which the load of line 23 completes",
    ),
    "WAR": (
        "handover_done_before_the_read", "16 z = load(S[0]) k=0", "9 S[0] = store(x) k=1",
        "line 11: block_sync(2, 64): the arrival it waits for (line 15, k=0) comes before line 16",
    ),
    "WAW": (
        "atomic_sums_before_the_base", "8 W = store(x)", "15 W[0+4, 0+32] += atomic_add(p)",
        "none; add1 waits for nothing that add0 does after line 8",
    ),
    "drain": (
        "rule_output_released_in_flight", "16 writing Y", "19 writing Y",
        "line 21: async_await(bulk, keep=0, read_only) waits for its reads only",
    ),
    "scope": (
        "released_relaxed", "16 W = store(total)", "13 so_far = load(W)",
        "line 21: turns give turn 1, relaxed, and no thread_fence(gpu) stands before it",
    ),
    "proxy": (
        "results_leave_without_a_fence", "11 S[0] = store(x) k=0", "14 reading S[0]",
        "fence_async_proxy by lanes 1..31 of warp 0 between line 11 and the sync of line 12",
    ),
    "fence": (
        "registers_loaded_without_a_fence", "23 a0 = load(A) k=0",
        "24 acc <~ wgmma(a0, SB[0]) k=0",
        "missing is a wgmma_fence between line 23, k=0 and line 24, k=0",
    ),
    "parity": (
        "one_slot_with_the_parity_of_a_ring", "17 empty[0] arrive k=0", "17 empty[0] arrive k=1",
        "line 15: full[0] wait parity 0: the arrival it waits for (line 24, k=0) comes before "
        "line 22",
    ),
    "arrivals": (
        "copies_published_on_a_larger_count", "", "21 full[0] wait parity 0 k=0, forever",
        "1 of 33 arrivals of phase 0 are missing, from give; line 18: the arrivals on full",
    ),
    "bytes": (
        "ring_expects_twice", "", "15 full[0] wait parity 0 k=0, forever",
        "512 bytes of phase 0 are missing, from load; line 24: the bytes that full expects",
    ),
    "init": (
        "init_not_joined", "10 mbarrier_init(empty, 32)", "21 empty[0] wait parity 1 k=0",
        "missing is a block_sync of all threads after line 10",
    ),
    "deadlock": (
        "ring_waits_on_the_next_slot", "", "15 full[1] wait parity 0 k=0, forever",
        "1 of 1 arrivals of phase 0 are missing, from load; line 23: the arrivals on full",
    ),
    "collective": (
        "teams_count_too_few", "", "10 block_sync(1, 32)",
        "nothing keeps it apart from the last generation of barrier 1",
    ),
    "registers": (
        "registers_changed_twice_at_once", "", "7 set_max_nreg(40, decrease)",
        "have not met at a block_sync since the last one; line 6: set_max_nreg(64, decrease)",
    ),
    "semaphore": (
        "semaphore_not_reset", "", "21 turns give turn 1",
        "leaves 1, which is not the 0 that the next launch expects; line 21: turns give turn 1",
    ),
    "residency": (
        "ctas_that_may_never_run_meet", "", "10 turns meet 2 CTAs",
        "waits for CTAs that may never run",
    ),
    "exit": (
        "passed_on_and_left", "17 reading S[0]", "0 exits",
        "missing is async_await(bulk) between line 17 and the end",
    ),
    "determinism": (
        "reductions_in_any_order", "25 W <~ tma_reduce(B[0])", "28 W <~ tma_reduce(A[0])",
        "missing is async_await(bulk) between line 25 and line 28",
    ),
    "dependency": (
        "a_role_reads_its_bias_without_a_wait", "", "25 b = load(B) k=0",
        "line 15: grid_dependency_wait() by load",
    ),
    "map": (
        "a_map_of_the_tile_before", "19 maps[0] = tensor_map_replace k=0",
        "27 reading map maps[0]", "line 19: maps[(k % 2)] = tensor_map_replace(X",
    ),
    "bounds": (
        "rule_slot_outside", "", "8 S[1] = store(x) k=1", "S[1] is outside its 1 slots",
    ),
}  # fmt: skip
"""For each kind of finding a litmus, its two events by line and text, and what is missing."""


@pytest.mark.parametrize("kind", KIND)
def test_of_each_kind_both_statements_and_the_missing_sync_are_named(kind: str) -> None:
    """Whatever goes wrong, a reader hears where, and what to look for."""
    name, first, second, missing = KIND[kind]
    kernel = by_name(name).kernel
    assert isinstance(kernel, kir.Kernel)
    found = witnessed(kernel)
    assert found.kind == kind
    marks = {row.mark: f"{row.line} {row.text}" for row in found.rows}
    assert (marks.get(Mark.FIRST, ""), marks[Mark.SECOND]) == (first, second)
    assert missing in f"{found.says}; {found.nearest}"


def test_every_kind_that_the_engine_finds_has_its_litmus() -> None:
    """Groups are counted by the simulator alone, coverage and reading are no matters of order."""
    assert KIND.keys() == KINDS.keys() - {"group", "coverage", "unread"}
