"""The prover's truth tables: every kernel is safe with its syncs, and with no fewer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import FrameType

import kernels as ks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import ALL, some

from fuser.cookbook import recipes
from fuser.cookbook.recipes import RECIPES, specialized_ring, wgmma_ring
from fuser.cookbook.sum import C
from fuser.expr import Expr, Kind, Var, eq, fold
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuzz.kernels.matmul import sync_mutants
from fuzz.kernels.subjects import find
from fuzz.mutation import operators
from oracles.explorer.explore import Launch, explore
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.prove import Memory, nameless_key, prove, witness, witness_trips
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.ctas import readings
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Mark

Change = Callable[[kir.Stmt], "list[kir.Stmt] | None"]
FILES = 39
"""Files of ours that a proof may cross; to be lowered whenever files are merged."""


def kinds(verdict: Verdict) -> set[str]:
    """Kinds of the errors."""
    return {f.kind for f in verdict.findings if f.severity == "error"}


def passes(kernel: kir.Kernel) -> None:
    """Assert that a kernel is proved."""
    verdict = prove(kernel)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 0


def fails(kernel: kir.Kernel, *allowed: str) -> None:
    """Assert that a kernel is refuted, as one of these kinds, with a trip count to replay."""
    verdict = prove(kernel)
    assert verdict.status is Status.FAIL, verdict
    assert kinds(verdict) & set(allowed), verdict
    assert witness_trips(verdict), verdict


STAGES = some(tuple(range(1, 9)), 1, 2, 3, 8)
SAFE = [
    ks.direct(),
    *(ks.pipelined(s, p) for s in STAGES for p in {0, s // 2, s - 1}),
    *(ks.specialized(s) for s in STAGES),
    *(ks.staged(s) for s in STAGES),
    ks.handed(3),
    ks.relaid(),
    *(ks.combined(s, s - 1, 2, inputs=3) for s in (2, 4)),
    *(ks.combined(s, 0, 2, specialized=True) for s in (2, 5)),
]


@pytest.mark.parametrize("kernel", SAFE, ids=lambda k: k.name)
def test_right_kernels_are_proved(kernel: kir.Kernel) -> None:
    """A judge that refuses right kernels is not listened to."""
    passes(kernel)


BROKEN: list[tuple[kir.Kernel, tuple[str, ...]]] = [
    (ks.pipelined(4, 2, init_sync=False), ("init",)),
    (ks.pipelined(4, 2, expect=False), ("deadlock", "arrivals", "bytes")),
    (ks.pipelined(4, 2, full=False), ("RAW",)),
    (ks.pipelined(4, 2, war_sync=False), ("WAR", "parity", "deadlock")),
    (ks.pipelined(4, 2, parity=1), ("RAW", "parity", "deadlock")),
    (ks.pipelined(4, 2, nbytes=ks.NBYTES // 2), ("bytes",)),
    (ks.pipelined(4, 2, nbytes=ks.NBYTES * 2), ("bytes",)),
    (ks.pipelined(4, 2, slots=2), ("WAR", "WAW", "RAW")),
    (ks.pipelined(4, 3, slots=3), ("WAR", "WAW", "RAW")),
    (ks.pipelined(3, 3), ("parity", "WAR", "WAW")),
    (ks.specialized(3, init_sync=False), ("init",)),
    (ks.specialized(3, empty_wait=False), ("WAR", "WAW", "parity")),
    (ks.specialized(3, empty_parity=0), ("deadlock",)),
    (ks.specialized(3, full=False), ("RAW",)),
    (ks.specialized(3, arrive=False), ("deadlock",)),
    (ks.specialized(3, warp_sync=False), ("WAR",)),
    (ks.specialized(3, arrive_early=True), ("WAR",)),
    (ks.specialized(3, nbytes=ks.NBYTES * 2), ("bytes",)),
    (ks.specialized(3, nbytes=ks.NBYTES // 2), ("bytes",)),
    (ks.specialized(3, arrivals=ks.WARPS - 1), ("arrivals",)),
    (ks.specialized(3, arrivals=ks.WARPS + 1), ("arrivals", "deadlock")),
    (ks.specialized(3, extra_load=1), ("exit", "deadlock")),
    (ks.staged(2, await_reads=False), ("WAR",)),
    (ks.staged(2, keep=2), ("WAR",)),
    (ks.staged(2, free_sync=False), ("WAR",)),
    (ks.staged(2, fence=False), ("proxy",)),
    (ks.staged(2, ready_sync=False), ("RAW",)),
    (ks.staged(2, commit=False), ("exit", "WAR")),
    (ks.staged(2, final_await=False), ("exit",)),
    (ks.handed(3, fence="late"), ("proxy",)),
    (ks.handed(3, fence="none"), ("proxy",)),
    (ks.handed(3, ready=False), ("RAW",)),
    (ks.handed(3, free=False), ("WAR",)),
    (ks.handed(3, warp_sync=False), ("RAW",)),
    (ks.handed(3, final_await=False), ("exit",)),
    (ks.relaid(sync="warp"), ("RAW",)),
    (ks.relaid(sync="none"), ("RAW",)),
    (ks.relaid(free=False), ("WAR",)),
    (ks.combined(3, 2, 2, store_sync=False), ("WAR",)),
    (ks.combined(3, 2, 2, await_reads=False), ("WAR",)),
    (ks.combined(3, 2, 2, fence=False), ("proxy",)),
    (ks.combined(3, 2, 2, ready_sync=False), ("RAW",)),
    (ks.combined(3, 2, 2, nbytes=ks.NBYTES), ("bytes",)),
    (ks.combined(3, 0, 2, specialized=True, ready_sync=False), ("RAW",)),
]


@pytest.mark.parametrize(("kernel", "allowed"), BROKEN, ids=lambda x: getattr(x, "name", ""))
def test_broken_kernels_are_refuted(kernel: kir.Kernel, allowed: tuple[str, ...]) -> None:
    """Each switch stands for a bug of the field; the kind tells the reader which."""
    fails(kernel, *allowed)


@pytest.mark.parametrize("stages", STAGES)
def test_depth_does_not_hide_a_missing_sync(stages: int) -> None:
    """The failing trip count grows with the ring, and must still be reached."""
    fails(ks.specialized(stages, empty_wait=False), "WAR", "WAW", "parity")
    fails(ks.specialized(stages, warp_sync=False), "WAR")
    if stages < 8:
        fails(ks.pipelined(stages, stages - 1, war_sync=False), "WAR", "parity", "deadlock")
    fails(ks.staged(stages, keep=stages), "WAR")


def test_a_smaller_ring_is_right_where_the_distance_allows_it() -> None:
    """Three slots hold two tiles ahead and the one in use, whatever the barriers are."""
    passes(ks.pipelined(4, 2, slots=3))


def test_a_fence_of_the_reader_is_a_warning() -> None:
    """Policy table, row 1: accepted, but not where the compiler puts it; an error under strict."""
    for kernel in (ks.staged(2, fence_late=True), ks.handed(3, fence="observer")):
        verdict = prove(kernel)
        assert verdict.status is Status.PASS, verdict
        assert any(f.kind == "proxy" for f in verdict.findings)
        assert "proxy" in kinds(prove(kernel, policy="strict"))


def test_strict_policy_wants_a_fence_between_reads_and_a_refill() -> None:
    """Policy table, row 2: a warning by default, an error under strict."""
    verdict = prove(ks.pipelined(2, 1))
    assert verdict.status is Status.PASS
    assert [f.severity for f in verdict.findings] == ["warning"]
    assert kinds(prove(ks.pipelined(2, 1), policy="strict")) == {"proxy"}
    fenced = ks.combined(3, 2, 2, specialized=True, read_fence=True)
    assert prove(fenced, policy="strict").status is Status.PASS
    with pytest.raises(ValueError, match="pick one of"):
        prove(fenced, policy="lax")


def without(kernel: kir.Kernel, victim: kir.Stmt) -> kir.Kernel:
    """Return the kernel less one statement."""
    return kernel.rewrite(lambda stmt: [] if stmt is victim else None)


def changed(kernel: kir.Kernel, kind: type, change: Callable[..., kir.Stmt]) -> kir.Kernel:
    """Return the kernel with every statement of one kind changed."""
    return kernel.rewrite(lambda s: [change(s)] if isinstance(s, kind) else None)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_a_wrong_slot_or_parity_is_refuted(stages: int) -> None:
    """Stage and phase arithmetic is where pipelines break."""
    ring = ks.specialized(stages)

    def later(w: kir.MBarrierWaitParity) -> kir.Stmt:
        return replace(w, parity=((ks.K + 1) // stages) % 2)

    def never(w: kir.MBarrierWaitParity) -> kir.Stmt:
        return replace(w, parity=0)

    wrong = [changed(ring, kir.MBarrierWaitParity, never)]
    wrong.append(changed(ring, kir.MBarrierWaitParity, later))
    if stages > 1:
        shifted: Expr = (ks.K + 1) % stages
        wrong.append(changed(ring, kir.MBarrierArrive, lambda a: replace(a, slot=shifted)))
    for kernel in wrong:
        assert prove(kernel).status is Status.FAIL


def test_a_producer_that_skips_its_wait_late_is_refuted() -> None:
    """A guard that is not periodic must not be taken for one that is."""
    ring = ks.specialized(2)
    waits = [s for s in ring.walk() if isinstance(s, kir.MBarrierWaitParity)]

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(ks.K < 20, (stmt,))] if stmt is waits[0] else None

    verdict = prove(ring.rewrite(skip))
    assert verdict.status is Status.FAIL
    assert min(witness_trips(verdict)) > 20


def test_a_store_may_only_skip_where_its_load_does() -> None:
    """Guards of a wait and of its arrive must agree."""
    ring = ks.specialized(2)

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArrive():
                return [kir.IfThenElse(ks.K % 2 < 1, (stmt,))]
            case _:
                return None

    fails(ring.rewrite(skip), "deadlock")


def test_threads_of_another_role_at_a_barrier_of_the_cta_deadlock() -> None:
    """A barrier for all threads inside one role waits for threads that never come."""
    ring = ks.specialized(2)

    def sync(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.WarpSync():
                return [stmt, kir.BlockSync(0, 32 * (ks.WARPS + 1))]
            case _:
                return None

    fails(ring.rewrite(sync), "deadlock")


def test_barriers_of_different_counts_do_not_mix() -> None:
    """A named barrier takes exactly its number of threads."""
    fails(ks.kernel("counts", [kir.ForLoop(ks.K, ks.TRIPS, (kir.BlockSync(0, 64),))]), "collective")


def test_aliased_buffers_are_one_memory() -> None:
    """Two live buffers on the same bytes race, or hand each other's bytes over."""
    kernel = ks.combined(2, 1, 2, inputs=1)
    (ring, out) = kernel.buffers
    moved = replace(out, offset=ring.offset)

    def place(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Slot(_, index), src, width):
                return [kir.Store(kir.Slot(moved, index), src, width)]
            case kir.TmaStore(dst, kir.Slot(_, index)):
                return [kir.TmaStore(dst, kir.Slot(moved, index))]
            case _:
                return None

    passes(kernel)
    fails(replace(kernel.rewrite(place), buffers=(ring, moved)), "RAW", "WAR", "WAW", "proxy")


def test_a_slot_outside_its_ring_is_out_of_bounds() -> None:
    """A shared index is an address."""
    kernel = changed(
        ks.staged(2),
        kir.TmaStore,
        lambda s: kir.TmaStore(s.dst, kir.Slot(s.src.buffer, ks.K % 2 + 1)),
    )
    fails(kernel, "bounds", "RAW")


def test_what_is_not_modelled_is_unsupported() -> None:
    """Unsupported names the construct; it is never a pass."""
    odd = kir.IfThenElse(ks.K * ks.K % 7 < 3, (kir.BlockSync(0, 32 * ks.WARPS),))
    verdict = prove(ks.kernel("odd", [kir.ForLoop(ks.K, ks.TRIPS, (odd,))]))
    assert verdict.status is Status.UNSUPPORTED
    assert "does not repeat along" in verdict.reason


def test_an_arrival_that_nobody_waits_for_is_refuted() -> None:
    """A named barrier may not begin its next turn before this one is seen to be over."""
    loop = kir.ForLoop(ks.K, ks.TRIPS, (kir.NamedArrive(1, 32 * ks.WARPS),))
    fails(ks.kernel("named", [loop]), "collective")


@pytest.mark.parametrize(
    "name", [n for n in RECIPES if n not in ("ping_pong", "cluster_multicast")]
)
def test_recipes_are_proved(name: str) -> None:
    """The patterns that real kernels are made of are right for every trip count."""
    passes(RECIPES[name]())


def test_a_program_is_proved_launch_by_launch() -> None:
    """One wrong launch makes a program wrong; none at all is no proof."""
    good, bad = ks.staged(2), ks.staged(2, fence=False)
    assert prove(LaunchSequence("two", (good, good))).status is Status.PASS
    assert prove(LaunchSequence("two", (good, bad))).status is Status.FAIL
    assert prove(LaunchSequence("none", ())).status is Status.UNKNOWN


@pytest.mark.parametrize(
    "requires", [(C < 0,), (eq(C % 2, 1), eq(C % 4, 0)), (eq(C * C, 7),), (eq(kir.GRID, 0),)]
)
def test_what_has_no_launch_is_unknown(requires: tuple[Expr, ...]) -> None:
    """Whatever holds of its launches holds of nothing, right or wrong."""
    for stmts in (), (kir.BlockSync(0, 999),):
        kernel = recipes.specialized_ring(2)
        verdict = prove(replace(kernel, body=(*kernel.body, *stmts), requires=requires))
        assert (verdict.status, verdict.reason[:7]) == (Status.UNKNOWN, "vacuous")


def test_nothing_claimed_is_unknown() -> None:
    """An empty kernel has no race, and deserves no praise."""
    empty = replace(ks.kernel("empty", []), tensors=(), outputs=())
    verdict = prove(empty)
    assert verdict.status is Status.UNKNOWN
    assert "vacuous" in verdict.reason


def test_the_witness_is_small_and_in_the_kernels_words() -> None:
    """A reader replays it: fewest trips, both lines of the kernel's text."""
    verdict = prove(ks.specialized(3, warp_sync=False))
    (first, *_) = verdict.findings
    assert witness_trips(verdict) == {4}
    assert "trips=4, k=3" in first.witness
    assert "load(S0[(k % 3)]" in first.where
    assert "tma_load" in first.where


def test_the_witness_shows_both_accesses() -> None:
    """Rows are the execution; two of them are marked, and the missing order is named."""
    shown = witness(ks.specialized(3, warp_sync=False))
    assert shown is not None
    assert shown.trips[0][1] == 4
    assert {row.mark for row in shown.rows} == {Mark.NONE, Mark.FIRST, Mark.SECOND}
    assert "nothing orders" in shown.says
    assert any("completes phase 0" in row.note for row in shown.rows)
    assert witness(ks.specialized(3)) is None


MUTABLE = [
    ks.pipelined(2, 1),
    ks.pipelined(3, 1),
    ks.specialized(2),
    ks.staged(2),
    ks.handed(2),
    ks.combined(2, 1, 2),
]


@st.composite
def mutants(draw: st.DrawFn) -> kir.Kernel:
    """Kernels with up to two changes; shrink towards the unchanged first kernel."""
    kernel = draw(st.sampled_from(MUTABLE))
    for _ in range(draw(st.integers(0, 2))):
        victims = [s for s in kernel.walk() if isinstance(s, kir.SYNCS | kir.TmaLoad)]
        victim = victims[draw(st.integers(0, len(victims) - 1))]
        change = draw(st.sampled_from(["drop", "guard", "late", "shift"]))
        var = draw(st.sampled_from([ks.K, ks.TRIPS]))
        kernel = kernel.rewrite(_mutation(victim, change, var, draw(st.integers(0, 7))))
    return kernel


def _mutation(victim: kir.Stmt, change: str, var: Var, at: int) -> Change:
    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if stmt is not victim:
            return None
        match change, stmt:
            case "guard", _:
                return [kir.IfThenElse(fold(Kind.LT, at, var), (stmt,))]
            case "late", kir.MBarrierWaitParity(barrier, slot):
                return [kir.MBarrierWaitParity(barrier, slot, ((var + at) // 2) % 2)]
            case "shift", kir.MBarrierArrive(barrier):
                return [kir.MBarrierArrive(barrier, (var + at) % barrier.slots)]
            case "shift", kir.AsyncAwait(kind, keep):
                return [kir.AsyncAwait(kind, keep + at % 2, read_only=True)]
            case _:
                return []

    return rule


@settings(max_examples=40)
@given(mutants(), st.integers(0, 40))
def test_what_holds_for_states_that_repeat_holds_for_any_trip_count(
    kernel: kir.Kernel, trips: int
) -> None:
    """The step to all trip counts, tried: no count shows what the states up to a repeat do not."""
    try:
        judged = fixpoint.judge(kernel)
    except UnsupportedError:
        return
    if judged.violations or judged.reason:
        return
    for reading in readings(kernel):
        counts = fixpoint.opened(kernel, reading, policy="default").world.code.counts
        pinned = dict.fromkeys(counts, trips)
        one = fixpoint.opened(kernel, reading, policy="default", pinned=pinned)
        one.stands()
        one.explore()
        assert not one.findings.failed


def test_a_tensor_store_needs_rows_of_whole_chunks() -> None:
    """The engine writes 16 bytes at a time: rows that end inside a chunk are overrun."""
    kernel = ks.unaligned(ks.staged(2))
    verdict = prove(kernel)
    assert verdict.status is Status.FAIL
    assert {finding.kind for finding in verdict.findings if finding.severity == "error"} == {
        "bounds"
    }


def crossed(kernel: kir.Kernel) -> set[str]:
    """Return the files of ours in which something is called while a kernel is proved."""
    root = Path(__file__).parents[3]
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        passes(kernel)
    finally:
        sys.setprofile(None)
    ours = {path for path in map(Path, found) if path.is_relative_to(root)}
    rooms = {"fuser", "oracles"}
    return {str(p) for p in (path.relative_to(root) for path in ours) if p.parts[0] in rooms}


@pytest.mark.parametrize("kernel", [specialized_ring(11), wgmma_ring(5, 2)])
def test_a_proof_crosses_few_files(kernel: kir.Kernel) -> None:
    """Whoever follows a kernel through `prove` can hold the way in the head (`pytest -s` shows it).

    The kernels are no other test's, so that nothing is remembered of them.
    """
    files = sorted(crossed(kernel))
    print(f"{kernel.name}: {len(files)} files", *files, sep="\n  ")
    assert "oracles/prover/reachability/fixpoint.py" in files
    assert "oracles/prover/inductive/check.py" in files
    assert len(files) <= FILES


@pytest.mark.parametrize(
    "name", ["two_tiles_a_turn_of_five_slots 125", "turns_joined_in_parts_of_a_period 0"]
)
def test_a_launch_that_shows_it_is_named(name: str) -> None:
    """Late, or among many CTAs: the explorer finds nothing in small launches, and there it does."""
    kernel = find(f"of tests/litmus/suite.py:{name}").kernel
    verdict = prove(kernel)
    named = {found.launch for found in verdict.findings if found.severity == "error"}
    (launch,) = ({**dict(one)} for one in named)
    grid = launch.pop(kir.GRID.name)
    assert explore(kernel, Launch(grid, launch)).status is Status.FAIL


def test_byte_counts_are_told_beside_a_last_arriving_cta() -> None:
    """That one CTA runs a body at the end hides nothing of what the loop expects and copies."""
    (mutant,) = (
        mutant.kernel
        for mutant in sync_mutants("split_last_statistics")
        if mutant.change.startswith("drop") and "expect_tx(full[((k + 1) % 2)]" in mutant.change
    )
    says = [f.witness for f in prove(mutant).findings if f.kind == "bytes"]
    assert says == ["trips=2: full expects 0 bytes an iteration, its copies 2560"]


def test_byte_counts_are_told_where_positions_move() -> None:
    """Which slot an iteration fills changes nothing of the bytes that it expects and copies."""
    mutant = find("of tests/litmus/suite.py:user_restarts_its_position 49").kernel
    says = [f.witness for f in prove(mutant).findings if f.kind == "bytes"]
    assert says == ["trips=1: full expects 1024 bytes an iteration, its copies 1536"]


# --- remembered proofs: a false hit would be a false proof, so a key tells all kernels apart ------


PASSED = Verdict("prover", Status.PASS, 1)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_mutant_has_another_key_than_its_original(name: str) -> None:
    """Any change of a statement, a number or a fact of the launch may break a proof."""
    kernel = recipes.RECIPES[name]()
    key = nameless_key(kernel)
    mutants = islice(operators.all_mutants(kernel), 0, None, 1 if ALL else 3)
    assert all(nameless_key(m.kernel) != key for m in mutants)


def test_another_name_of_the_kernel_is_the_same_key() -> None:
    """Nothing that is proved depends on what a kernel is called."""
    kernel = recipes.store_ring()
    assert nameless_key(replace(kernel, name="other")) == nameless_key(kernel)


def test_only_proofs_are_remembered() -> None:
    """What is unknown today may be settled with another limit, and a refutation names lines."""
    memory, kernel = Memory(), recipes.store_ring()
    for status in (Status.UNKNOWN, Status.UNSUPPORTED):
        memory.keep(kernel, "default", 1, Verdict("prover", status, 1))
        assert memory.recall(kernel, "default", 1) is None
    memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(recipes.store_ring(), "default", 1) is PASSED


def test_policy_and_limit_are_part_of_the_question() -> None:
    """A proof under one policy says nothing about another."""
    memory, kernel = Memory(), recipes.store_ring()
    memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(kernel, "strict", 1) is None
    assert memory.recall(kernel, "default", 2) is None


def test_findings_are_told_of_the_same_kernel_only() -> None:
    """Warnings quote statements, and those have names."""
    memory, kernel = Memory(), recipes.store_ring()
    warned = replace(PASSED, findings=(Finding("proxy", "line 1: x", "x", "warning"),))
    memory.keep(kernel, "default", 1, warned)
    assert memory.recall(kernel, "default", 1) is warned
    assert memory.recall(replace(kernel, name="other"), "default", 1) is None


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    """A campaign of many kernels must not fill the memory."""
    memory, kernels = Memory(kept=2), [recipes.store_ring(stages) for stages in (2, 3, 4)]
    for kernel in kernels:
        memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(kernels[0], "default", 1) is None
    assert memory.recall(kernels[2], "default", 1) is PASSED


def test_a_loop_whose_end_moves_is_not_read_in_one_way() -> None:
    """Read once or each turn, it goes round otherwise; validation refuses it."""
    left, n = Var("left"), Var("n")
    body = (kir.Let(left, n), kir.ForLoop(Var("k"), left, (kir.Assign(left, left - 1),)))
    verdict = prove(replace(ks.direct(), params=(*ks.direct().params, n), body=body))
    assert verdict.status is Status.UNSUPPORTED
    assert "assigns to what it ends by" in verdict.reason
