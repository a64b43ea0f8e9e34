"""Tests of the proof for all trip counts: it agrees with reachability, and never overreaches.

`INVARIANTS_ALL=1` asks about every mutant; without it about every third one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

import kernels as ks
import pytest
from fusions import FAMILIES, compiled
from signalled import signalled

from fuser.cookbook import recipes
from fuser.expr import Kind, fold
from fuser.kernel import ir as kir
from fuzz.kernels.draw import draw
from fuzz.kernels.template import FAMILIES as FAMILIES_OF_TEMPLATES
from fuzz.mutation.operators import Mutant, all_mutants, drop_each_sync
from oracles.prover.invariants.check import Questions, UndecidedError, confirm
from oracles.prover.prove import REMEMBERED, prove
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status

WHOLE = [
    ks.direct(),
    *(ks.pipelined(s, p) for s in (1, 2, 3, 5, 8) for p in {0, s // 2, s - 1}),
    *(ks.specialized(s) for s in (1, 2, 3, 5, 8)),
    *(ks.staged(s) for s in (1, 2, 4)),
    *(ks.handed(s) for s in (1, 3)),
    ks.relaid(),
    ks.relaid(sync="none", same=True),
    *(ks.combined(s, s - 1, 2, inputs=i) for s in (1, 4, 8) for i in (1, 3)),
    *(ks.combined(s, 0, 2, inputs=i, specialized=True) for s in (1, 4, 8) for i in (1, 3)),
    ks.pipelined(4, 2, slots=3),
    ks.staged(2, fence_late=True),
    ks.handed(3, fence="observer"),
    *(compiled(params).launches[0].kernel for params in FAMILIES.values()),
]
"""Right kernels."""

SWITCHED = [
    *(
        ks.pipelined(3, 1, **{switch: value})  # type: ignore[arg-type]
        for switch, value in {
            "init_sync": False, "expect": False, "nbytes": 512, "full": False,
            "war_sync": False, "parity": 1, "slots": 2,
        }.items()
    ),
    *(
        ks.specialized(3, **{switch: value})  # type: ignore[arg-type]
        for switch, value in {
            "init_sync": False, "empty_wait": False, "empty_parity": 0, "full": False,
            "arrive": False, "warp_sync": False, "arrive_early": True, "nbytes": 512,
            "arrivals": 3, "extra_load": 1,
        }.items()
    ),
    *(
        ks.staged(2, **{switch: value})  # type: ignore[arg-type]
        for switch, value in {
            "await_reads": False, "keep": 2, "free_sync": False, "fence": False,
            "ready_sync": False, "commit": False, "final_await": False,
        }.items()
    ),
    *(
        ks.handed(2, **{switch: value})  # type: ignore[arg-type]
        for switch, value in {
            "ready": False, "free": False, "warp_sync": False, "final_await": False,
        }.items()
    ),
    *(ks.handed(2, fence=fence) for fence in ("late", "leader", "none")),
    *(ks.relaid(sync=sync) for sync in ("warp", "none")),
    ks.relaid(free=False),
    *(
        ks.combined(3, 1, 2, **{switch: value})  # type: ignore[arg-type]
        for switch, value in {
            "store_sync": False, "await_reads": False, "fence": False, "ready_sync": False,
            "nbytes": 1024,
        }.items()
    ),
    ks.pipelined(3, 3),
]  # fmt: skip
"""Every switch of the kernels by hand, one at a time; most of them break the kernel."""

ALL = bool(os.environ.get("INVARIANTS_ALL"))
"""Whether to ask about every mutant."""


def sample(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Return every third mutant, which leaves each kind of sync in some kernel."""
    return list(mutants)[:: 1 if ALL else 3]


FOUND = (Status.FAIL, Status.UNSUPPORTED)
"""What the invariants may say of a kernel that the other engine refutes."""


def refuted(kernel: kir.Kernel) -> bool:
    """Whether the other engine alone refutes a kernel."""
    return bool(fixpoint.judge(kernel).violations)


@pytest.mark.parametrize("kernel", WHOLE, ids=lambda k: k.name)
def test_right_kernels_are_proved_for_all_trip_counts(kernel: kir.Kernel) -> None:
    """Both engines say so, and claims were made."""
    verdict = confirm(kernel)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > bool(kernel.buffers)


@pytest.mark.parametrize("kernel", SWITCHED, ids=lambda k: k.name)
def test_every_switch_means_the_same_to_both_engines(kernel: kir.Kernel) -> None:
    """What the other engine refutes is refuted here too, not just unknown."""
    verdict = confirm(kernel)
    assert verdict.status is (Status.FAIL if refuted(kernel) else Status.PASS), verdict


@pytest.mark.parametrize(
    "kernel",
    [
        ks.pipelined(3, 2),
        ks.specialized(2),
        ks.staged(2),
        ks.combined(3, 1, 2, specialized=True),
        ks.handed(2),
        *(compiled(params).launches[0].kernel for params in FAMILIES.values()),
    ],
    ids=lambda k: k.name,
)
def test_no_dropped_sync_is_proved_that_the_other_engine_refutes(kernel: kir.Kernel) -> None:
    """A false PASS is the worst a judge can do."""
    for mutant in sample(drop_each_sync(kernel)):
        verdict = confirm(mutant.kernel)
        if refuted(mutant.kernel):
            assert verdict.status in FOUND, (mutant.change, verdict)
        else:
            assert verdict.status is Status.PASS, (mutant.change, verdict)


def skipped_from(at: int) -> kir.Kernel:
    """Return a ring whose producer does not wait any more from some iteration on."""
    ring = ks.specialized(2)
    waits = [s for s in ring.walk() if isinstance(s, kir.MBarrierWaitParity)]

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(fold(Kind.LT, ks.K, at), (stmt,))] if stmt is waits[0] else None

    return ring.rewrite(skip)


@pytest.mark.parametrize("at", [3, 40, *([400] if ALL else [])])
def test_a_wait_that_is_skipped_late_is_not_proved(at: int) -> None:
    """However late, k is an unknown."""
    kernel = skipped_from(at)
    assert confirm(kernel).status is Status.FAIL
    assert prove(kernel).status is not Status.PASS


def test_what_the_other_engine_does_not_refute_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of z3's that nothing shows is no finding; it is no proof either."""
    monkeypatch.setattr(fixpoint, "STATES", 20)
    verdict = confirm(skipped_from(400))
    assert verdict.status is Status.UNKNOWN
    assert "refuted, not replayed" in verdict.reason


def test_strict_policy_wants_a_fence_before_a_refill() -> None:
    """The same table as the other engine's."""
    assert confirm(ks.pipelined(2, 1), policy="strict").status is not Status.PASS
    fenced = ks.combined(3, 2, 2, specialized=True, read_fence=True)
    assert confirm(fenced, policy="strict").status is Status.PASS


def test_both_engines_have_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine alone is not praise."""
    kernel = ks.specialized(2)
    assert prove(kernel).checked > fixpoint.judge(kernel).checked
    REMEMBERED.forget()
    monkeypatch.setattr(Questions, "ordered", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prove(kernel)
    monkeypatch.setattr(Questions, "ordered", _gives_up)
    verdict = prove(kernel)
    assert verdict.status is Status.UNKNOWN
    assert verdict.reason.startswith("engines disagree")


def _gives_up(*_: object) -> None:
    raise UndecidedError("the solver gave up")


RECIPES = [
    *(recipes.wgmma_ring(s, d, c) for s, d, c in ((2, 1, 1), (4, 0, 2), (4, 1, 3), (8, 2, 1))),
    *(recipes.double_wgmma(s) for s in (1, 3)),
    *(recipes.cp_async_ring(s) for s in (2, 3, 5)),
    *(recipes.cp_async_mbarrier(s) for s in (1, 3)),
    *(recipes.persistent(s) for s in (1, 3)),
    signalled(),
]
"""Right kernels of wgmma, cp.async, named barriers, loops in loops."""


@pytest.mark.parametrize("kernel", RECIPES, ids=lambda k: f"{k.name}-{k.smem_bytes}")
def test_recipes_are_proved_for_all_trip_counts(kernel: kir.Kernel) -> None:
    """Claims were made, not just none refused."""
    verdict = confirm(kernel)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 10


@pytest.mark.parametrize(
    "kernel",
    [
        recipes.wgmma_ring(2, 1),
        recipes.double_wgmma(2),
        recipes.cp_async_ring(),
        recipes.cp_async_mbarrier(2),
        recipes.persistent(2),
        signalled(),
    ],
    ids=lambda k: k.name,
)
def test_no_recipe_is_proved_with_a_sync_dropped(kernel: kir.Kernel) -> None:
    """Only the fence after mbarrier_init, which clusters need, is not needed in one CTA."""
    for mutant in sample(drop_each_sync(kernel)):
        spare = isinstance(mutant.victim, kir.FenceMBarrierInit)
        assert (confirm(mutant.kernel).status is Status.PASS) == spare, mutant.change


def test_bytes_may_be_expected_before_the_arrival_in_a_statement_of_their_own() -> None:
    """The phase cannot end between the two, for the arrival is still missing."""

    def split(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArriveExpectTx(bar, slot, nbytes):
                return [kir.MBarrierExpectTx(bar, slot, nbytes), kir.MBarrierArrive(bar, slot)]
            case _:
                return None

    def swapped(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        both = split(stmt)
        return both and both[::-1]

    ring = recipes.specialized_ring()
    assert confirm(ring.rewrite(split)).status is Status.PASS
    assert confirm(ring.rewrite(swapped)).status is Status.UNSUPPORTED


def test_a_count_may_be_raised_by_who_still_arrives() -> None:
    """Without `noinc` a cp.async arrival adds one to the count, if the phase cannot end before."""
    ring = recipes.cp_async_mbarrier()
    full = ring.barriers[0]

    def raised(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kir.CpAsyncMBarrierArrive):
            return None
        return [replace(stmt, noinc=False), kir.MBarrierArrive(full, stmt.slot)]

    def late(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        both = raised(stmt)
        return both and both[::-1]

    assert confirm(ring.rewrite(raised)).status is Status.PASS
    assert confirm(ring.rewrite(late)).status is Status.UNSUPPORTED


def test_a_flush_behind_a_loop_that_awaits_all_is_redundant() -> None:
    """With nothing in flight the await after the loop has nothing to do; with depth 1 it has."""

    def flushes(depth: int) -> list[Status]:
        mutants = drop_each_sync(recipes.wgmma_ring(3, depth))
        await_all = kir.AsyncAwait(kir.AsyncKind.WGMMA, 0)
        return [confirm(m.kernel).status for m in mutants if m.victim == await_all][-1:]

    assert flushes(0) == [Status.PASS]
    assert flushes(1) == [Status.FAIL]


def test_a_wait_that_may_give_up_is_not_proved() -> None:
    """A single try_wait orders nothing."""

    def once(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [replace(stmt, retry=False)] if isinstance(stmt, kir.MBarrierWaitParity) else None

    assert confirm(ks.specialized(2).rewrite(once)).status is Status.UNSUPPORTED


def test_a_tensor_that_is_written_and_read_is_unsupported() -> None:
    """The order of accesses to global memory is not followed, so it must not be assumed."""
    kernel = recipes.store_ring()
    x, y = kernel.tensors

    def back(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Load(dst, kir.Box() as box, width):
                return [kir.Load(dst, replace(box, tensor=y), width)]
            case _:
                return None

    assert x != y
    verdict = confirm(kernel.rewrite(back))
    assert verdict.status is Status.UNSUPPORTED
    assert "reads and writes Y" in verdict.reason


def changed(kernel: kir.Kernel, says: str) -> kir.Kernel:
    """Return a mutant of a kernel by the start of what it says it is."""
    return next(m.kernel for m in all_mutants(kernel) if m.change.startswith(says))


def test_a_wgmma_fence_is_owed_before_the_first_wgmma_only() -> None:
    """Accumulators of one shape need none between their wgmmas: what skips it later is right."""
    fence = "line 20: wgmma_fence()"
    assert confirm(changed(recipes.wgmma_ring(2), f"not from 40 on {fence}")).status is Status.PASS
    assert confirm(changed(recipes.wgmma_ring(2), f"drop {fence}")).status is Status.FAIL


def test_a_flush_of_all_groups_covers_those_issued_ahead_of_the_loop() -> None:
    """Awaiting more than needed is slow, not wrong."""

    def all_of_them(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [replace(stmt, keep=0)] if isinstance(stmt, kir.AsyncAwait) else None

    assert confirm(recipes.cp_async_ring(3).rewrite(all_of_them)).status is Status.PASS


def test_the_last_arrivals_may_not_find_nobody_waiting() -> None:
    """What is left at a barrier when the kernel ends confuses nobody, but its count is wrong."""
    ring = signalled()

    def always(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(_, (kir.NamedArrive(),) as inner):
                return [*inner]
            case _:
                return None

    kernel = ring.rewrite(always)
    assert kernel != ring
    assert confirm(kernel).status is Status.FAIL
    assert {v.kind for v in fixpoint.judge(kernel).violations} == {"collective"}


def test_a_warp_sync_makes_barriers_visible_to_its_warp() -> None:
    """A kernel of one warp needs no more to start; one of several does."""
    alone = next(
        found.kernel
        for index in range(0, 300, len(FAMILIES_OF_TEMPLATES))
        if (found := draw(20, index)).kernel.threads == kir.WARP and not found.faults
    )

    def narrowed(kernel: kir.Kernel) -> kir.Kernel:
        at = next(i for i, s in enumerate(kernel.body) if isinstance(s, kir.BlockSync))
        body = (*kernel.body[:at], kir.WarpSync(), *kernel.body[at + 1 :])
        return replace(kernel, body=body)

    assert confirm(narrowed(alone)).status is Status.PASS
    assert confirm(narrowed(ks.pipelined(2, 1))).status is Status.FAIL
