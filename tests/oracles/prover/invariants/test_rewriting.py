"""Kernels as z3 sees them: one role, one CTA, one loop; what is equivalent, and what is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.matmul import t
from fuser.cookbook.ring import k, p, trips
from fuser.expr import Expr, Kind, Op, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from fuzz.kernels.draw import draw
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from fuzz.kernels.template import FAMILIES
from fuzz.mutation.operators import all_mutants, drop_each_sync
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import (
    AT,
    FLAT,
    Whole,
    by_number,
    levels,
    private,
    renamed,
    teamed,
    unrolled,
    whole,
)
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status

PAIR = recipes.ping_pong()
IN_FLIGHT_0 = compiled(linear(), hopper("ping_pong", 2, 1))


def _is_sync(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.SYNCS)


def without(kind: type[kir.Stmt], barrier: str = "") -> kir.Kernel:
    """Return the recipe without one kind of statement, or those on one mbarrier."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kind):
            return None
        uses = getattr(stmt, "barrier", None)
        return [] if not barrier or getattr(uses, "name", "") == barrier else None

    return PAIR.rewrite(rule)


def both(change: kir.Stmt, *by: kir.Stmt) -> kir.Kernel:
    """Return the recipe with a statement replaced in both roles."""
    made = PAIR.rewrite(lambda stmt: [*by] if stmt == change else None)
    assert made != PAIR
    return made


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_roles_in_turn_are_proved_for_any_number_of_tiles(stages: int) -> None:
    """And of steps, none included."""
    verdict = confirm(recipes.ping_pong(stages))
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 100


@pytest.mark.parametrize(
    "kernel",
    [
        without(kir.MBarrierWaitParity, "order"),
        without(kir.MBarrierArrive, "order"),
        without(kir.WarpSync),
        without(kir.MBarrierWaitParity, "empty"),
        without(kir.MBarrierArrive, "empty"),
        without(kir.MBarrierWaitParity, "full"),
        without(kir.MBarrierInit, "order"),
        without(kir.WgmmaFence),
        without(kir.AsyncCommit),
        without(kir.AsyncAwait),
    ],
)
def test_no_sync_of_them_can_be_left_out(kernel: kir.Kernel) -> None:
    """The turns are asked of the turns, the rest of the one role."""
    assert kernel != PAIR
    assert confirm(kernel).status is not Status.PASS


def test_lanes_behind_the_one_that_tells_are_beyond_the_baton() -> None:
    """All lanes have multiplied by then, which the turns without their steps do not show."""

    def late(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(Op(Kind.EQ), mine):
                at = mine.index(kir.WarpSync())
                then = (*mine[:at], mine[at + 1], mine[at], *mine[at + 2 :])
                return [replace(stmt, then=then)]
            case _:
                return None

    swapped = IN_FLIGHT_0.rewrite(late)
    assert swapped != IN_FLIGHT_0
    verdict = confirm(swapped)
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert "nothing orders it after" in verdict.reason
    assert not fixpoint.judge(swapped).violations


def test_turns_given_before_the_steps_are_not_proved() -> None:
    """Then two roles run at once."""

    def early(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(Op(Kind.EQ), mine):
                wait, clear, loop, sync, tell, *rest = mine
                return [replace(stmt, then=(wait, sync, tell, clear, loop, *rest))]
            case _:
                return None

    verdict = confirm(PAIR.rewrite(early))
    assert verdict.status is Status.UNSUPPORTED
    assert "before the steps" in verdict.reason


def test_groups_in_flight_at_a_change_of_turns_are_not_proved() -> None:
    """The next role does not await them."""
    await_all = kir.AsyncAwait(kir.AsyncKind.WGMMA, 0)
    verdict = confirm(both(await_all, kir.AsyncAwait(kir.AsyncKind.WGMMA, 1)))
    assert verdict.status is Status.UNSUPPORTED
    assert "awaited in their step" in verdict.reason


@pytest.mark.parametrize("skip", [(), (kir.Assign(p, p + trips), kir.Assign(p, p + trips))])
def test_a_position_has_to_skip_the_steps_of_the_other(skip: tuple[kir.Stmt, ...]) -> None:
    """All of them, and once."""
    verdict = confirm(both(kir.Assign(p, p + trips), *skip))
    assert verdict.status is Status.UNSUPPORTED
    assert "skips tiles" in verdict.reason


def test_roles_that_do_different_things_are_unsupported() -> None:
    """One role cannot stand for them."""

    def one(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.Role) and stmt.name == "mma1":
            return [
                replace(
                    stmt,
                    body=kir.rewrite(
                        stmt.body, lambda s: [] if isinstance(s, kir.WgmmaFence) else None
                    ),
                )
            ]
        return None

    assert confirm(PAIR.rewrite(one)).status is Status.UNSUPPORTED


def test_a_team_is_one_role_and_its_turns() -> None:
    """For an even and an odd number of tiles; other kernels have none."""
    assert teamed(whole(recipes.persistent())) is None
    team = teamed(whole(PAIR))
    assert team is not None
    assert [s.name for s in team.one.kernel.body if isinstance(s, kir.Role)] == ["mma0", "load"]
    assert len(team.handovers) == 2
    for turns in team.handovers:
        assert isinstance(turns, Whole)
        assert [b.name for b in turns.kernel.buffers] == ["baton"]


COMPILED = compiled(linear(), hopper("ping_pong", 3, 2, columns=8))
"""The compiler's own: results leave in chunks, through staging that each role has to itself."""


def test_roles_with_staging_of_their_own_are_one() -> None:
    """Each does the same with its own buffers, barrier and groups."""
    verdict = confirm(COMPILED)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 200


@pytest.mark.parametrize("part", range(len([s for s in COMPILED.walk() if _is_sync(s)])))
def test_no_sync_of_compiled_roles_can_be_left_out(part: int) -> None:
    """One at a time, in one of the roles only: what z3 proves the other engine does."""
    victim = [s for s in COMPILED.walk() if _is_sync(s)][part]
    kernel = COMPILED.rewrite(lambda stmt: [] if stmt is victim else None)
    if confirm(kernel).status is Status.PASS:
        assert not fixpoint.judge(kernel).violations


# --- clusters as one CTA: proved where they are right, never where a handshake is missing ---------


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_a_multicast_ring_is_proved_for_all_trip_counts(stages: int) -> None:
    """Both CTAs at once: the slots of each are filled and freed by the other one too."""
    verdict = confirm(recipes.cluster_multicast(stages))
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 50


def test_no_cluster_is_proved_with_a_sync_dropped() -> None:
    """A false PASS is the worst a judge can do."""
    for mutant in drop_each_sync(recipes.cluster_multicast(2)):
        # One arrival for four warps is worth a warning by default.
        policy = "strict" if isinstance(mutant.victim, kir.BlockSync) else "default"
        verdict = confirm(mutant.kernel, policy=policy)
        assert verdict.status in (Status.FAIL, Status.UNSUPPORTED), (mutant.change, verdict)


def test_every_rank_has_its_own_memory_and_barriers() -> None:
    """Nothing is shared that is not said to be."""
    kernel = recipes.cluster_multicast(2)
    one = whole(kernel).kernel
    assert one.cluster == 1
    assert [b.name for b in one.buffers] == ["SA@0", "SB@0", "SA@1", "SB@1"]
    loads = [s for s in one.walk() if isinstance(s, kir.TmaLoad)]
    assert sorted(s.dst.buffer.name for s in loads) == ["SA@0", "SA@1", "SB@0", "SB@1"]
    assert {(s.dst.buffer.name[-1], s.barrier.name[-1]) for s in loads} == {("0", "0"), ("1", "1")}


def test_a_kernel_without_clusters_stays_as_it_is() -> None:
    """Most are."""
    kernel = recipes.tma_ring()
    assert whole(kernel).kernel is kernel


def test_statements_keep_their_lines() -> None:
    """Findings point into the text that everybody else prints."""
    kernel = recipes.cluster_multicast(2)
    made = whole(kernel)
    lines = {id(stmt): number for number, stmt in enumerate(kernel.walk())}
    assert len(lines) < len(list(made.kernel.walk()))
    leaves = [s for s in made.kernel.walk() if not kir.bodies(s)]
    assert {made.lines[s] for s in leaves} <= {number for number, _ in numbered(kernel)}


def test_one_arrival_for_a_warpgroup_is_enough_by_default() -> None:
    """Its warps finish a wgmma together, says the field; strict policy wants a barrier."""
    kernel = recipes.cluster_multicast(2)
    bare = kernel.rewrite(lambda stmt: [] if isinstance(stmt, kir.BlockSync) else None)
    assert confirm(bare).status is Status.PASS
    assert confirm(kernel, policy="strict").status is Status.PASS
    assert confirm(bare, policy="strict").status is not Status.PASS


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (kir.MBarrierArrive, {"scope": kir.Scope.CTA}, "an arrival on empty of another CTA"),
        (kir.MBarrierWaitParity, {"scope": kir.Scope.CTA}, "a wait on empty for another CTA"),
        (kir.ClusterArrive, {"relaxed": True}, "relaxed"),
        (kir.TmaLoad, {"multicast": kir.BLOCK}, "not known"),
        (kir.IfThenElse, {"condition": eq(kir.BLOCK, 0)}, "control depends on block of rank"),
    ],
)
def test_what_is_too_narrow_or_unknown_is_unsupported(
    kind: type[kir.Stmt], changes: dict[str, object], says: str
) -> None:
    """One CTA would have orders that the cluster has not."""
    kernel = recipes.cluster_multicast(2)

    def change(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kind) or (isinstance(stmt, kir.TmaLoad) and not stmt.multicast):
            return None
        return [replace(stmt, **changes)]  # type: ignore[arg-type]  # of the field's own type

    verdict = confirm(kernel.rewrite(change))
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert says in verdict.reason


@pytest.mark.parametrize("kind", [kir.FenceMBarrierInit, kir.ClusterWait])
def test_a_cluster_owes_a_fence_at_its_start_and_a_wait_at_its_end(kind: type[kir.Stmt]) -> None:
    """Both are about the life of barriers, which one CTA alone does not show."""
    kernel = recipes.cluster_multicast(2)
    last = [s for s in kernel.walk() if isinstance(s, kind)][-1]
    with pytest.raises(UnsupportedError):
        whole(kernel.rewrite(lambda stmt: [] if stmt is last else None))


def test_arrivals_of_different_turns_are_not_paired_by_guess() -> None:
    """A remote arrival one slot ahead meets the other CTA's arrival of another iteration."""
    says = "next slot of empty line 28"
    found = [m for m in all_mutants(recipes.cluster_multicast(2)) if m.change.startswith(says)]
    assert [confirm(m.kernel).status for m in found] == [Status.UNSUPPORTED]


# --- loops in loops: what is one long loop, and what is refused -----------------------------------


def test_each_level_has_its_own_statements() -> None:
    """Steps and tiles share nothing; the question of deadlock sees both."""
    found = levels(recipes.persistent())
    assert found is not None

    def kinds(kernel: kir.Kernel) -> set[str]:
        return {type(stmt).__name__ for stmt in kernel.walk()}

    assert {"Wgmma", "TmaLoad"} <= kinds(found.steps)
    assert "TmaStore" not in kinds(found.steps)
    assert "TmaStore" in kinds(found.tiles)
    assert not {"Wgmma", "TmaLoad"} & kinds(found.tiles)
    assert {"Wgmma", "TmaLoad", "TmaStore"} <= kinds(found.whole)
    loops = [s for s in found.steps.walk() if isinstance(s, kir.ForLoop)]
    assert {(loop.index, loop.stop) for loop in loops} == {(AT, FLAT)}


TILED = compiled(linear(), hopper("cooperative", 3, 2, persistent=True, groups=2, columns=8))
"""The compiler's own: one thread runs the load loop, results leave by TMA in chunks."""


def test_a_loop_that_one_thread_runs_is_one_over_tiles_too() -> None:
    """Loads are issued by one thread, whose loops stand inside its election."""
    verdict = confirm(TILED)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 80


@pytest.mark.parametrize(
    "kind",
    [
        kir.AsyncCommit,
        kir.BlockSync,
        kir.FenceAsyncProxy,
        kir.MBarrierArrive,
        kir.MBarrierWaitParity,
        kir.AsyncAwait,
    ],
)
def test_no_sync_of_a_compiled_kernel_can_be_left_out(kind: type[kir.Stmt]) -> None:
    """Neither of the steps nor of the chunks."""
    kernel = TILED.rewrite(lambda stmt: [] if isinstance(stmt, kind) else None)
    assert confirm(kernel).status is not Status.PASS


def test_flat_kernels_are_left_alone() -> None:
    """There is nothing to flatten."""
    assert levels(recipes.tma_ring()) is None


def changed(old: type[kir.Stmt], value: Expr) -> kir.Kernel:
    """Return the persistent recipe with another advance or start of its position."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, old) and isinstance(stmt, kir.Assign | kir.Let) and stmt.var == p:
            return [type(stmt)(p, value)]
        return None

    return recipes.persistent().rewrite(rule)


@pytest.mark.parametrize("value", [p, p + 2, t, k])
def test_a_position_that_does_not_advance_by_one_is_refused(value: Expr) -> None:
    """The steps of all tiles would not be counted by it."""
    with pytest.raises(UnsupportedError, match="advance by one"):
        levels(changed(kir.Assign, value))


def test_a_position_that_only_one_role_advances_is_not_proved() -> None:
    """The other one stays at its first slot."""
    kernel = recipes.persistent()
    for victim in [s for s in kernel.walk() if isinstance(s, kir.Assign)]:
        stuck = kernel.rewrite(lambda s, gone=victim: [] if s is gone else None)  # type: ignore[misc]
        assert confirm(stuck).status is not Status.PASS


def test_a_position_that_starts_anew_with_each_tile_is_not_proved() -> None:
    """Slots go on from tile to tile; a restart waits for phases that are long over."""
    kernel = recipes.persistent()

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.ForLoop(index, stop, body) if index == t:
                return [kir.ForLoop(index, stop, (kir.Let(p, 0), *body))]
            case _:
                return None

    assert confirm(kernel.rewrite(rule)).status is Status.UNSUPPORTED


def test_roles_that_run_other_tiles_are_refused() -> None:
    """One long loop is only right where all run the same steps."""
    kernel = recipes.persistent()
    loops = [s for s in kernel.walk() if isinstance(s, kir.ForLoop) and s.index == t]

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if stmt is loops[-1]:
            return [kir.ForLoop(t, loops[-1].stop + 1, loops[-1].body)]
        return None

    assert confirm(kernel.rewrite(rule)).status is Status.UNSUPPORTED


def test_tiles_may_not_use_the_ring_of_the_steps() -> None:
    """Each pair of accesses has to be in one of the two levels."""
    kernel = recipes.persistent()
    a = kernel.buffers[0]

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaStore(dst):
                return [kir.TmaStore(dst, kir.Slot(a, 0))]
            case _:
                return None

    with pytest.raises(UnsupportedError, match="share SA"):
        levels(kernel.rewrite(rule))


def test_a_tile_that_waits_before_its_steps_is_refused() -> None:
    """It may wait for what others do after them: a deadlock that neither level shows."""
    with pytest.raises(UnsupportedError):
        levels(recipes.ping_pong())


# --- what a role has to itself: nobody else uses it, and it is the same from tile to tile ---------


COMPILED_PAIR = compiled(linear(), hopper("ping_pong", 2, 1))


def _role(name: str) -> kir.Role:
    return next(s for s in COMPILED_PAIR.walk() if isinstance(s, kir.Role) and s.name == name)


def _beside(name: str) -> list[kir.Stmt]:
    """Return the leaves of a role, but for those of its steps."""
    steps = {id(s) for loop in _steps(name) for s in kir.walk(loop.body)}
    return [s for s in kir.walk((_role(name),)) if id(s) not in steps and not kir.bodies(s)]


def _steps(name: str) -> list[kir.ForLoop]:
    loops = [s for s in kir.walk((_role(name),)) if isinstance(s, kir.ForLoop)]
    return loops[1:]


def test_staging_and_barrier_are_private() -> None:
    """And only the names tell what one role does from what the other does."""
    first, second = (private(COMPILED_PAIR, n, _beside(n)) for n in ("compute0", "compute1"))
    assert [b.name for b in first.buffers] == ["S_T6_0"]
    assert first.numbers != second.numbers
    stores = [tuple(s for s in _beside(n) if isinstance(s, kir.Store | kir.BlockSync))
              for n in ("compute0", "compute1")]  # fmt: skip
    assert stores[0] != stores[1]
    assert renamed(stores[1], second, first) == stores[0]


def test_buffers_of_other_shapes_are_not_the_same() -> None:
    """The one role would do something else with the first's."""
    own = private(COMPILED_PAIR, "compute0", _beside("compute0"))
    wide = replace(own, buffers=(replace(own.buffers[0], shape=(64, 32)),))
    assert renamed((), own, wide) is None


def _second(old: type[kir.Stmt], **change: object) -> kir.Kernel:
    """Return the kernel with the second role's statements of a kind changed, outside its steps."""
    some = {id(s) for s in _beside("compute1") if isinstance(s, old)}
    return COMPILED_PAIR.rewrite(lambda s: [_with(s, change)] if id(s) in some else None)


def _with(stmt: kir.Stmt, change: dict[str, object]) -> kir.Stmt:
    for field, value in change.items():
        if hasattr(stmt, field):
            stmt = copy.copy(stmt)
            object.__setattr__(stmt, field, value)  # statements are frozen, and of many types
    return stmt


def test_what_two_roles_use_is_refused() -> None:
    """Nothing orders what one role does with it before what the other does."""
    first = private(COMPILED_PAIR, "compute0", _beside("compute0"))
    slot = kir.Slot(first.buffers[0], 0)
    some = {id(s) for s in _beside("compute1")}

    def rule(s: kir.Stmt) -> list[kir.Stmt] | None:
        if id(s) in some and isinstance(s, kir.Store):
            return [replace(s, dst=slot)]
        if id(s) in some and isinstance(s, kir.TmaStore):
            return [replace(s, src=slot)]
        return None

    kernel = COMPILED_PAIR.rewrite(rule)
    with pytest.raises(UnsupportedError, match="others do too"):
        private(kernel, "compute0", _beside("compute0"))
    assert confirm(kernel).status is not Status.PASS
    assert confirm(COMPILED_PAIR).status is Status.PASS


def test_a_barrier_of_two_roles_is_refused() -> None:
    """Its turns would be of threads of both."""
    first = private(COMPILED_PAIR, "compute0", _beside("compute0"))
    kernel = _second(kir.BlockSync, barrier=first.numbers[0])
    assert kernel != COMPILED_PAIR
    assert confirm(kernel).status is not Status.PASS


# --- a buffer whose slots are named by numbers is several, and nothing else changes ---------------


CHUNKS = whole(
    compiled(linear(), hopper("cooperative", 3, 2, persistent=True, groups=2, columns=8))
)


def test_each_number_is_a_buffer_with_the_bytes_of_its_slot() -> None:
    """Whatever shares bytes with one slot shares them with that one only."""
    (staging,) = (b for b in CHUNKS.kernel.buffers if b.name.startswith("S_T6"))
    parts = [b for b in by_number(CHUNKS).kernel.buffers if b.name.startswith("S_T6")]
    assert [(b.slots, b.offset, b.end) for b in parts] == [
        (1, staging.offset + at, staging.offset + at + staging.slot_nbytes)
        for at in (0, staging.slot_nbytes)
    ]


def test_numbered_statements_keep_their_lines() -> None:
    """A claim that is refuted is about the kernel as it was written."""
    parted = by_number(CHUNKS)
    old = [s for s in CHUNKS.kernel.walk() if not kir.bodies(s)]
    new = [s for s in parted.kernel.walk() if not kir.bodies(s)]
    assert [type(s) for s in old] == [type(s) for s in new]
    assert [CHUNKS.lines[s] for s in old] == [parted.lines[s] for s in new]
    assert old != new


def test_rings_stay_rings() -> None:
    """A slot that is named by a position belongs to all iterations."""
    one = whole(recipes.store_ring())
    assert by_number(one) is one


# --- loops that do something else in every m-th iteration: proved for every remainder -------------


@cache
def doubled() -> kir.Kernel:
    """Return a right kernel that hands tiles over by two named barriers each way, in turn."""
    first = tuple(FAMILIES).index("named")
    return next(
        found.kernel
        for index in range(first, 3000, len(FAMILIES))
        if not (found := draw(20, index)).faults and found.kernel.buffers[0].slots == 2
    )


def test_two_slots_in_turn_are_proved_for_all_trip_counts() -> None:
    """Odd and even numbers of trips are asked one by one."""
    assert len(unrolled(whole(doubled()))) == 2
    verdict = confirm(doubled())
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 20


def test_no_slot_of_several_is_proved_with_a_sync_dropped() -> None:
    """Whatever the other engine refutes is not proved here."""
    for mutant in drop_each_sync(doubled()):
        assert fixpoint.judge(mutant.kernel).violations, mutant.change
        assert confirm(mutant.kernel).status in (Status.FAIL, Status.UNSUPPORTED), mutant.change


def test_only_the_last_round_may_be_short() -> None:
    """With an odd number of trips the second half of the last round does not run."""
    even, odd = (part.kernel for part in unrolled(whole(doubled())))

    def guards(kernel: kir.Kernel) -> int:
        return sum(
            isinstance(s, kir.IfThenElse) and "round < rounds" in str(s.condition)
            for s in kernel.walk()
        )

    assert guards(even) == 0
    assert guards(odd) == 2


def test_a_kernel_that_asks_for_no_remainder_stays_as_it_is() -> None:
    """Rings turn by slots, not by ifs."""
    one = whole(recipes.specialized_ring())
    assert unrolled(one) == [one]


def test_what_threads_do_not_share_may_be_left_out_without_unrolling() -> None:
    """Roles that write every other tile wait for all of them; their loop may stay as it is."""
    kernel = every(recipes.store_ring(), 7)
    assert len(unrolled(whole(kernel))) == 1
    assert confirm(kernel).status is Status.PASS


def every(kernel: kir.Kernel, by: int, many: int = 1) -> kir.Kernel:
    """Execute the first statements of a loop in every `by`-th iteration only."""
    loop = next(s for s in kernel.walk() if isinstance(s, kir.ForLoop))
    body = (kir.IfThenElse(eq(loop.index % by, 0), loop.body[:many]), *loop.body[many:])
    return kernel.rewrite(lambda stmt: [replace(loop, body=body)] if stmt is loop else None)


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (every(recipes.specialized_ring(), 2), "in a loop that asks for k % 2"),
        (every(recipes.store_ring(), 7, 3), "different things every"),
        (every(every(recipes.store_ring(), 2, 3), 3), "different things every"),
    ],
)
def test_what_is_not_unrolled_is_named(kernel: kir.Kernel, says: str) -> None:
    """Unsupported is an answer, and must say of what."""
    verdict = confirm(kernel)
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert says in verdict.reason
