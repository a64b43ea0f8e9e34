"""Mutants are kernels with one change, and the table tells killed from survived."""

import re
import sys
from functools import cache

import kernels
import pytest
from litmus.arrivals import arriving
from litmus.meetings import among_roles

from fuser import pipeline
from fuser.cookbook import recipes
from fuser.errors import CompileError, ScheduleError
from fuser.expr import Var, both, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import line, text
from fuser.kernel.validate.legal import validate
from fuser.pipeline import Program
from fuzz.campaign.mutants import Searched, conclude, judge_mutants, representative
from fuzz.cases.case import compiled
from fuzz.cases.params import FAMILIES
from fuzz.cases.schedules import OBSERVES, SPLITS
from fuzz.kernels.cookbook import recipe_mutants
from fuzz.kernels.draw import accepted
from fuzz.kernels.product import Matmul, matmul
from fuzz.mutation.operators import OPERATORS, Mutant, drop_each_sync, mutants, predicate, weaken
from fuzz.mutation.site import closed
from oracles.simulator import simulate
from oracles.verdict import Finding, Status, Verdict


def test_each_mutant_lacks_exactly_one_sync() -> None:
    """A mutant with two changes would not say which sync matters."""
    kernel = kernels.specialized(3)
    before = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.SYNCS)]
    dropped = list(drop_each_sync(kernel))
    assert [m.victim for m in dropped] == before
    for mutant in dropped:
        after = [stmt for stmt in mutant.kernel.walk() if isinstance(stmt, kir.SYNCS)]
        assert after == [stmt for stmt in before if stmt is not mutant.victim]


def test_a_kernel_without_syncs_has_no_mutants() -> None:
    """The direct family has nothing to drop."""
    assert not list(drop_each_sync(kernels.direct()))


MET = {
    "no_reset": {"split_k", "split_k_tma"},
    "promise": {"split_k", "split_k_tma"},
    "proxy": {"store_ring", "persistent", "split_k_tma", "tma_ring", "specialized_ring"},
}
"""Operators that act on what few recipes have."""
LEAST = {"phase": 9, "role": 9, "hoist": 9}
"""Recipes that an operator changes at least, where it is not all twelve."""


@cache
def changed(name: str, operator: str) -> tuple[Mutant, ...]:
    """The mutants of a recipe by an operator."""
    return tuple(mutants(recipes.RECIPES[name](), operator))


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_changes_every_recipe_that_it_is_for(operator: str) -> None:
    """An operator that finds nothing would count as a hundred percent."""
    acting = {name for name in recipes.RECIPES if changed(name, operator)}
    if operator in MET:
        assert acting == MET[operator]
    assert len(acting) >= LEAST.get(operator, 12) or operator in MET
    for name, make in recipes.RECIPES.items():
        texts = [text(mutant.kernel) for mutant in changed(name, operator)]
        assert len({*texts, text(make())}) == len(texts) + 1
        assert {mutant.operator for mutant in changed(name, operator)} <= {operator}


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_mutant_is_a_kernel(name: str) -> None:
    """No variable outside its scope, and no statement object twice, which judges rely on."""
    for operator in OPERATORS:
        for mutant in changed(name, operator):
            assert closed(mutant.kernel), mutant.change
            statements = [id(stmt) for stmt in mutant.kernel.walk()]
            assert len(set(statements)) == len(statements), mutant.change


VARIANTS = ("two_consumers", "register_a", "pooled", "cp_async_wgmma", "zero_filled", "atomic_sum")


def test_every_hazard_row_that_a_kernel_can_show_is_aimed_at() -> None:
    """The score per row says nothing of a row without mutants."""
    every = [m for name in recipes.RECIPES for op in OPERATORS for m in changed(name, op)]
    every += [m for name in VARIANTS for m in recipe_mutants(name, 2)]
    rows = "01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 20 21 22 23 24 25 26 27 30 31 32"
    rows += " 33 34 40 41 42 43 44 45 46 50 51 52 53 54 55 60 61 62 63 64 65 70 71 72 73 74 75 76"
    rows += " 80 81 82 83 84"
    assert {f"H{row}" for row in rows.split()} <= {row for m in every for row in m.hazards}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_representative_kernel_is_of_its_family(family: str) -> None:
    """The table must have every family, not of one six times."""
    case = representative(family)
    program = compiled(case)
    text = {type(stmt).__name__ for stmt in program.launches[0].kernel.walk()}
    assert case.params.family == family
    hopper, ampere = family in SPLITS, family in OBSERVES
    assert (("Wgmma" in text), ("Mma" in text)) == (hopper, ampere)
    loads = family.split("/")[0]
    in_bulk = "tma" in loads or "bulk" in loads or family == "norm-cluster/direct"
    assert ("TmaLoad" in text) == (in_bulk or hopper)
    assert ("TmaStore" in text) == (family.endswith("tma") or hopper)
    split = family in ("hopper-cooperative", "hopper-ping_pong", "ampere-mbarriers")
    assert ("Role" in text) == ("specialized" in family or split)


@pytest.mark.parametrize(
    "family",
    [
        "direct/tma",
        "tma-specialized/direct",
        "bulk-pipelined/direct",
        "cp_async-specialized/direct",
    ],
)
def test_no_mutant_gets_past_a_judge(family: str) -> None:
    """Each is killed by both judges, or its sync is redundant."""
    kills = judge_mutants(family, schedules=6)
    final = [r for r in kills.records if r.oracle == "mutant"]
    assert len(final) * 3 == len([r for r in kills.records if r.mutant])
    assert kills.left == 0
    assert {r.status for r in final} == {"pass"}, [r.reason for r in final]
    assert sum(r.reason == "killed by both" for r in final) >= 6


def test_a_kernel_that_fails_itself_has_no_mutants_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait before a refill everything is killed, whatever a mutant lacks besides."""

    def forgetful(kernel: kir.Kernel) -> kir.Kernel:
        waits = [s for s in kernel.walk() if isinstance(s, kir.MBarrierWaitParity)]
        empty = [wait for wait in waits if wait.barrier.name == "empty"]
        return kernel.rewrite(lambda stmt: [] if stmt in empty else None)

    passes = pipeline.PASSES
    behind = [p.__name__ for p in passes].index("free_slots") + 1
    monkeypatch.setattr(pipeline, "PASSES", (*passes[:behind], forgetful, *passes[behind:]))
    kills = judge_mutants("tma-specialized/direct", schedules=6)
    assert {(r.oracle, r.status, r.phase) for r in kills.records} == {
        ("build", "pass", "base"),
        ("prover", "fail", "base"),
        ("simulator", "fail", "base"),
    }
    assert not [r for r in kills.records if r.mutant]
    assert kills.left == 10


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ScheduleError("PointwiseParams(stages=3): no"), "refused"),
        (CompileError("after free_slots: no", "invalid kernel"), "invalid kernel"),
        (AssertionError("a loop that multiplies awaits"), "AssertionError"),
    ],
)
def test_a_representative_that_does_not_build_is_a_failure(
    error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not a lost worker's fault, nor a user's."""

    def broken(*_: object, **__: object) -> Program:
        raise error

    monkeypatch.setattr(sys.modules["fuzz.cases.case"], "build", broken)
    kills = judge_mutants("direct/tma")
    assert [(r.oracle, r.status, r.kind) for r in kills.records] == [("build", "fail", kind)]


FINDING = Finding("race", "line 1", "late", trips=1)
FAIL, PASS = Verdict("x", Status.FAIL, 1, (FINDING,)), Verdict("x", Status.PASS, 1)
OPEN = Verdict("x", Status.UNKNOWN, 0, reason="gave up")


@pytest.mark.parametrize(
    ("proof", "found", "status", "words"),
    [
        (FAIL, FAIL, Status.PASS, "killed by both"),
        (PASS, PASS, Status.PASS, "redundant: .* 24 schedules"),
        (FAIL, PASS, Status.FAIL, "only the prover"),
        (PASS, FAIL, Status.FAIL, "only the simulator"),
        (OPEN, PASS, Status.UNKNOWN, "gave up"),
        (PASS, OPEN, Status.UNKNOWN, "the simulator unknown"),
    ],
)
def test_a_survivor_is_redundant_or_shows_a_blind_judge(
    proof: Verdict, found: Verdict, status: Status, words: str
) -> None:
    """The report says which, and nothing else."""
    verdict = conclude(proof, Searched(found, "24 schedules at each of trips 0, 1"))
    assert verdict.status is status
    witnesses = [finding.witness for finding in verdict.findings]
    said = " ".join([verdict.reason, *witnesses])
    assert re.search(words, said), said


# --- operators on numbers: off by one, by a role, in the wrong variable, or late ------------------


def texts(kernel: kir.Kernel, operator: str) -> dict[str, str]:
    """The text of each mutant by what was changed."""
    return {m.change: text(m.kernel) for m in mutants(kernel, operator)}


def test_counts_are_off_by_one_by_a_warp_and_by_a_role() -> None:
    """A barrier that expects a role too many waits forever."""
    found = texts(kernels.specialized(2), "count")
    changed = {change.split()[1] for change in found if "of empty" in change}
    assert {"+1", "-1", "+32", "+4", "+128"} <= changed
    assert all(
        "mbarrier empty: arrivals=5" in found[c] for c in found if c == "arrivals +1 of empty"
    )


def test_bytes_are_halved_doubled_and_off_by_a_chunk() -> None:
    """The dtype factor, and one row too many."""
    found = texts(kernels.pipelined(2, 1), "count")
    assert {c.split()[1] for c in found if c.startswith("expect")} == {
        "1008",
        "1040",
        "512",
        "2048",
    }


def test_parity_comes_from_the_inner_index() -> None:
    """Right only if the trips of a tile are a multiple of two turns."""
    found = texts(recipes.persistent(), "phase")
    (change,) = [c for c in found if c.startswith("parity from k instead of p") and "full" in c]
    assert "mbarrier_wait_parity(full[(p % 3)], ((k // 3) % 2), cta)" in found[change]


def test_a_position_stays_or_restarts() -> None:
    """Phase not carried across tiles."""
    found = texts(recipes.persistent(), "phase")
    assert sum(c.startswith("position stays") for c in found) == 2
    restarted = [found[c] for c in found if c.startswith("position restarts in `t`")]
    assert all("\n      p = 0\n" in one for one in restarted)
    assert len(restarted) == 2


def test_the_prefetch_distance_is_forgotten_in_the_coordinate_only() -> None:
    """The slot is right, the tile is not; only values can tell."""
    (mutant,) = [m for m in mutants(recipes.tma_ring(), "index") if "prefetch" in m.change]
    assert mutant.hazards == ()
    launch = simulate.Launch(1, {"R": 24, "C": 64})
    assert simulate.search(mutant.kernel, launch, schedules=6).status is Status.PASS


def test_a_chunk_of_columns_is_taken_beside_the_one_that_is_meant() -> None:
    """Inside the accumulator; only values can tell."""
    kernel = matmul(Matmul((64, 32, 16), 2, 1, 16, 1, pooled=False))
    found = [m for m in mutants(kernel, "index") if m.change.startswith("columns")]
    assert [m.change.split()[2] for m in found] == ["16", "0"]
    assert {m.hazards for m in found} == {()}
    launch = simulate.Launch(1, {"M": 64, "N": 32, "K": 16})
    for mutant in found:
        assert simulate.search(mutant.kernel, launch, schedules=1).status is Status.PASS


def test_a_sum_begins_never_at_once_or_a_step_late() -> None:
    """The step at which an accumulator starts again."""
    kernel = matmul(Matmul((64, 8, 16), 2, 1, 8, 1, pooled=False))
    found = {c: t for c, t in texts(kernel, "index").items() if c.startswith("added up")}
    assert [c.split(" line")[0].removeprefix("added up ") for c in found] == [
        "never",
        "always",
        "a step later",
    ]
    assert "if (1 <= (k - 1))" in found[next(c for c in found if "later" in c)]


def test_a_loop_runs_once_more_or_misses_an_end() -> None:
    """Producer and consumer disagree by one."""
    found = texts(kernels.specialized(2), "trip")
    assert sum("0..(trips + 1)" in one for one in found.values()) == 2
    assert sum("if ((k + 1) < trips)" in one for one in found.values()) == 2
    assert sum("if (1 <= k)" in one for one in found.values()) == 2


def test_a_late_fault_is_early_enough_for_nobody() -> None:
    """Forty iterations are right; only a proof for all trip counts sees the rest."""
    (mutant,) = [m for m in mutants(kernels.staged(2), "stages") if "elect" in m.change][:1]
    assert "if (k < 40)" in text(mutant.kernel)
    for rows in (4 * 5, 4 * 40):
        launch = simulate.Launch(1, {"R": rows, "C": 64, "pitch": 64})
        assert simulate.search(mutant.kernel, launch, schedules=2).status is Status.PASS
    launch = simulate.Launch(1, {"R": 4 * 44, "C": 64, "pitch": 64})
    assert simulate.search(mutant.kernel, launch, schedules=6).status is Status.FAIL


def test_another_number_of_ctas_is_counted() -> None:
    """One is elected too early, or none."""
    found = texts(arriving(), "count")
    assert {change.split(" line")[0] for change in found if "ctas" in change} >= {
        "ctas -1",
        "ctas +1",
    }
    assert any("of (s - 1) ctas" in words for words in found.values())


# --- operators on order ---------------------------------------------------------------------------


def changes(kernel: kir.Kernel, operator: str) -> dict[str, list[str]]:
    """The lines of each mutant, without indentation, by what was changed."""
    return {
        m.change: [line.strip() for line in text(m.kernel).splitlines()]
        for m in mutants(kernel, operator)
    }


def order(lines: list[str], *starts: str) -> list[int]:
    """Where lines begin that start with some words."""
    return [next(i for i, line in enumerate(lines) if line.startswith(s)) for s in starts]


def test_a_swap_exchanges_neighbours() -> None:
    """Order bugs are as common as omissions."""
    found = changes(kernels.staged(2), "swap")
    (lines,) = [v for k, v in found.items() if "fence_async_proxy" in k and "block_sync" in k]
    assert lines[order(lines, "fence_async_proxy")[0] - 1] == "block_sync(0, 128)"


def test_a_wait_goes_out_of_its_loop_with_its_election() -> None:
    """Moving must not change who waits."""
    found = changes(kernels.staged(2), "move")
    lines = found["move before the loop line 9: elect one thread per role"]
    elect, wait, loop = order(lines, "elect one thread", "async_await", "for k")
    assert elect + 1 == wait == loop - 1


def test_a_barrier_goes_into_a_branch() -> None:
    """A full barrier in a role's branch waits for threads that never come."""
    found = changes(kernels.specialized(2), "hoist")
    role = next(change for change in found if "role load" in change)
    first, sync = order(found[role], "role load", "block_sync")
    assert sync == first + 1


def test_an_arrival_is_repeated() -> None:
    """One arrival too many completes a phase before its time."""
    found = changes(kernels.specialized(2), "twice")
    lines = next(v for k, v in found.items() if "mbarrier_arrive(empty" in k)
    assert sum(line.startswith("mbarrier_arrive(empty") for line in lines) == 2


def test_two_elections_become_one() -> None:
    """An election shared across what stands between does too much on one side of it."""
    kernel = kernels.staged(2, ready_sync=False, fence=False, free_sync=False)
    found = changes(kernel, "hoist")
    (early,) = [v for k, v in found.items() if k.startswith("one election, before")]
    (late,) = [v for k, v in found.items() if k.startswith("one election, behind")]
    wait, store = order(late, "async_await", "S1")
    assert store < wait
    wait, send, store = order(early, "async_await", "T1", "S1")
    assert wait < send < store


def test_ctas_come_not_at_all_twice_and_by_another_barrier() -> None:
    """An election of the last CTA counts, and its threads join by a number."""
    kernel = among_roles(arriving(inside="sum join out"))
    election = "elect the last at turns[0] of s ctas, barrier 1"
    assert any(f": {election}" in change for change in changes(kernel, "drop"))
    (twice,) = (lines for change, lines in changes(kernel, "twice").items() if election in change)
    assert twice.count(election) == 2
    hoisted = changes(kernel, "hoist")
    assert any(change.startswith("barrier 2") and election in change for change in hoisted)
    swapped = changes(kernel, "swap")
    assert any(election in change for change in swapped)


# --- operators on strength: each sync is weakened in every way that it has ------------------------


N = Var("n")


def of(*body: kir.Stmt) -> kir.Kernel:
    """A kernel that is only these statements."""
    return kir.Kernel("k", (N,), (), (), (), (), 64, body)


def weaker(stmt: kir.Stmt) -> set[str]:
    """The lines that stand for a statement in its mutants."""
    return {line(m.kernel.body[0]) for m in weaken(of(stmt))}


def test_an_await_keeps_one_more_or_waits_for_reads_only() -> None:
    """The commonest wrong number of a pipeline."""
    assert weaker(kir.AsyncAwait(kir.AsyncKind.BULK, 1)) == {
        "async_await(bulk, keep=2)",
        "async_await(bulk, keep=1, read_only)",
    }
    assert weaker(kir.AsyncAwait(kir.AsyncKind.WGMMA, 0)) == {"async_await(wgmma, keep=1)"}


def test_scopes_narrow_step_by_step() -> None:
    """A cta-scope release is seen by no other CTA."""
    assert weaker(kir.ThreadFence(kir.Scope.GPU)) == {"thread_fence(cta)", "thread_fence(cluster)"}
    barrier = kir.MBarrier("b", 1, 1)
    remote = kir.MBarrierWaitParity(barrier, 0, 0, kir.Scope.CLUSTER)
    assert weaker(remote) == {
        "mbarrier_wait_parity(b[0], 0, cta)",
        "mbarrier_wait_parity(b[0], 0, cluster, no retry)",
    }


def test_a_fence_is_for_the_wrong_memory() -> None:
    """Shared does nothing for global, and the other way round."""
    assert weaker(kir.FenceAsyncProxy(kir.Space.ALL)) == {
        "fence_async_proxy(shared)",
        "fence_async_proxy(global)",
    }
    assert weaker(kir.FenceAsyncProxy(kir.Space.SHARED)) == {"fence_async_proxy(global)"}


def test_a_semaphore_is_released_relaxed_or_within_the_cta() -> None:
    """Seen once in the field, and in no test there."""
    semaphore = kir.Semaphore("s", 1)
    assert weaker(kir.BlockSerializeRelease(semaphore, 0, 1)) == {
        "block_serialize_release(s[0], turn=1, cta)",
        "block_serialize_release(s[0], turn=1, relaxed)",
    }


def test_a_guard_is_dropped_and_shifted_both_ways() -> None:
    """The two sides of a handshake must agree on who skips it."""
    guarded = kir.IfThenElse(both(N < 3, eq(N, 1)), (kir.WarpSync(),))
    lines = [line(m.kernel.body[0]) for m in predicate(of(guarded))]
    assert lines == ["warp_sync()", "if (n < 3)", "if (n == 1)"]
    plain = kir.IfThenElse(N < 3, (kir.WarpSync(),))
    assert [line(m.kernel.body[0]) for m in predicate(of(plain))][1:] == [
        "if (n < 4)",
        "if ((n + 1) < 3)",
    ]


def test_a_proxy_fence_goes_behind_each_later_sync_and_to_fewer_threads() -> None:
    """After the arrive it is too late, and one thread fences only for itself."""
    found = [m.change for m in mutants(recipes.store_ring(), "proxy")]
    for words in ("behind `block_sync(1", "before `S", "one thread per role", "per warp ", "no "):
        assert any(words in change for change in found), words


# --- operators on who and where: other threads, other bytes, a semaphore left dirty ---------------


def test_a_wait_is_executed_by_a_thread_that_did_not_commit() -> None:
    """Bulk groups belong to the thread that issued them."""
    found = texts(kernels.staged(2), "role")
    commit = next(c for c in found if c.startswith("apart, by the second warp") and "commit" in c)
    assert "role warp1 warps 1..1\n" in found[commit]
    wait = next(c for c in found if c.startswith("by the second warp line 9"))
    lines = [line.strip() for line in found[wait].splitlines()]
    assert lines[lines.index("role warp1 warps 1..1") + 2].startswith("async_await(bulk")


def test_an_election_goes_to_all_threads_and_to_each_warp() -> None:
    """A reduction issued by a warp's 32 threads is added 32 times."""
    found = texts(kernels.staged(2), "role")
    assert any(c.startswith("by all threads") for c in found)
    assert any(c.startswith("per warp") for c in found)
    one_warp = texts(kernels.handed(2), "role")
    assert not any(c.startswith("per warp") and "store" in c for c in one_warp)


def test_a_wait_goes_to_another_role() -> None:
    """The role that needs it goes without."""
    found = texts(kernels.specialized(2), "role")
    change = next(c for c in found if "in role load" in c and "parity(full" in c)
    before, after = found[change].split("role compute")
    assert "mbarrier_wait_parity(full" in before
    assert "mbarrier_wait_parity(full" not in after


def test_a_ring_gets_fewer_slots_than_its_barriers() -> None:
    """Every access turns with the slots that are left."""
    found = texts(kernels.specialized(3), "alias")
    less = found["a slot fewer in S0"]
    assert "shared S0: f32[4, 64] slots=2" in less
    assert less.count("S0[(k % 2)]") == 2
    assert "full[(k % 3)]" in less


def test_buffers_and_barriers_share_bytes() -> None:
    """Lifetimes that overlap, so that somebody overwrites a live barrier."""
    found = texts(kernels.combined(2, 1, 2), "alias")
    assert "S1 lies on S0" in found
    assert "mbarrier full: arrivals=1 slots=2 at=0" in found["full lies on S0"]


def test_a_semaphore_is_left_dirty() -> None:
    """The next launch would pass at once, or hang."""
    found = texts(recipes.split_k(), "no_reset")
    assert any("turn=(turn + 1))" in one for one in found.values())
    silent = [c for c in found if c.startswith("the last one is silent")]
    assert len(silent) == 1
    assert found[silent[0]].count("if ((turn + 1) < splits)") == 2


def test_lanes_that_move_a_tile_by_matrix_are_not_the_ones_that_hold_it() -> None:
    """Where each thread read its own, a warp has to be joined; where a block sync stands, not."""
    found = texts(recipes.cp_async_ring(), "role")
    by_matrix = [change for change in found if change.startswith("by any lane")]
    assert len(by_matrix) == 2
    assert all("matrix)" in found[change] for change in by_matrix)


@pytest.mark.parametrize("turned", [True, False])
def test_a_square_is_stored_the_other_way_round(turned: bool) -> None:
    """No order is wrong; only values can tell."""
    how = Matmul((64, 64, 16), 2, 1, 64, 1, pooled=False, d_transposed=turned)
    kernel = matmul(how)
    (found,) = [m for m in mutants(kernel, "index") if m.change.startswith("axes ")]
    assert "axes as they lie" in found.change if turned else "axes exchanged" in found.change
    validate(found.kernel, final=True)
    mine, theirs = ([*k.walk()] for k in (kernel, found.kernel))
    (pair,) = [(a, b) for a, b in zip(mine, theirs, strict=True) if a != b and not kir.bodies(a)]
    assert [isinstance(s, kir.Store) and s.matrix and s.transposed for s in pair] == [
        turned,
        not turned,
    ]


def test_a_tile_that_is_not_square_is_stored_one_way() -> None:
    """The other one would be refused."""
    kernel = matmul(Matmul((64, 32, 16), 2, 1, 16, 1, pooled=False, d_transposed=True))
    validate(kernel, final=True)
    assert not [m for m in mutants(kernel, "index") if m.change.startswith("axes ")]


def test_what_shares_bytes_may_be_swizzled() -> None:
    """Validation lets it through: a refused mutant tests no judge."""
    kernel = matmul(Matmul((64, 16, 16), 2, 1, 8, 1, pooled=False))
    assert all(buffer.swizzle for buffer in kernel.buffers[:2])
    for mutant in mutants(kernel, "alias"):
        if " lies on " in mutant.change:
            assert accepted(mutant.kernel), mutant.change


def test_the_body_of_the_last_cta_goes_to_every_one_and_to_none() -> None:
    """Counted or not; and one thread asks for all of them."""
    found = texts(among_roles(arriving(inside="sum join out")), "role")
    every = next(c for c in found if c.startswith("by every CTA"))
    assert "last at" in found[every]
    bare = next(c for c in found if c.startswith("not counted, by every CTA"))
    assert "last at" not in found[bare]
    none = next(c for c in found if c.startswith("by none"))
    assert "Y[" in found[every]
    assert "= store(total" not in found[none]
    assert any(c.startswith("asked by one thread") for c in found)
