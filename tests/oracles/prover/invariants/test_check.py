"""Tests of the proof for all trip counts: it agrees with reachability, and never overreaches.

`INVARIANTS_ALL=1` asks about every mutant; without it about every third one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import kernels as ks
import pytest
from fusions import FAMILIES, compiled
from litmus.aliases import EPILOGUE, epilogue
from litmus.parts import Litmus, elect
from litmus.rules_turns import shared, turns
from litmus.suite import LITMUS
from litmus.turnstiles import TURNS, by_engine, turnstile
from signalled import signalled

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, start, trips
from fuser.expr import Kind, fold
from fuser.kernel import ir as kir
from fuzz.kernels.draw import draw
from fuzz.kernels.template import FAMILIES as FAMILIES_OF_TEMPLATES
from fuzz.mutation.operators import Mutant, all_mutants, drop_each_sync
from oracles.prover.inductive import check as inductive
from oracles.prover.invariants.check import (
    RLIMIT,
    Questions,
    UndecidedError,
    Width,
    Window,
    confirm,
)
from oracles.prover.invariants.claims import Claims
from oracles.prover.invariants.graph import EventGraph
from oracles.prover.invariants.trace import Axiom, Obligation, Rule, read
from oracles.prover.prove import REMEMBERED, prove
from oracles.prover.reachability import fixpoint
from oracles.prover.solver import Script
from oracles.verdict import Status, Verdict

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
    """Where reachability's own invariant is not checked, this proof has to go through."""
    kernel = ks.specialized(2)
    beyond = Verdict("inductive", Status.UNSUPPORTED, 0, reason="not checked")
    monkeypatch.setattr(inductive, "check", lambda *_, **__: beyond)
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


# --- what z3 is asked: neither contradictory nor empty, and evidence to be kept -------------------


def test_a_starved_solver_is_unknown() -> None:
    """A work limit of nothing proves nothing."""
    assert confirm(ks.combined(4, 3, 2), rlimit=1).status is Status.UNKNOWN


@pytest.mark.parametrize("kernel", [ks.pipelined(4, 3), ks.specialized(3), ks.combined(3, 2, 2)])
def test_premises_have_a_model_and_each_claim_can_fail_without_them(kernel: kir.Kernel) -> None:
    """Neither are the constraints contradictory, nor are the claims empty."""
    trace = read(kernel)
    graph = EventGraph(trace)
    times = Questions(graph, RLIMIT).times
    window = Window(graph, set(range(-9, 2)))
    whole = f"{window.text()}(assert {window.inside(times)})"
    assert Script(whole, RLIMIT).ask().status == "sat"
    claims = Claims(graph, times, "default").ordered
    assert claims
    for claim in claims:
        head = "(declare-const k Int)(declare-const n Int)"
        script = Script(f"{head}(assert {claim.when})", RLIMIT)
        assert script.ask().status == "sat", claim


def test_no_kind_of_claim_is_idle() -> None:
    """Without the requirements of a phase, every kind of claim about order is violated."""
    trace = read(ks.combined(3, 0, 2, specialized=True))
    graph = EventGraph(trace)
    questions = Questions(graph, RLIMIT)
    times = questions.times
    claims = Claims(graph, times, "default").ordered
    graph.crosses.clear()
    for chain in graph.chains.values():
        chain[:] = [item for item in chain if item.waits]
    found = questions.violated(claims, Width.WHOLE)
    assert {claim.kind for claim in found} == {claim.kind for claim in claims}
    assert {"parity", "RAW", "WAR", "WAW", "proxy"} == {claim.kind for claim in claims}


# --- the rules of the invariants: each is needed, for without it some verdict changes -------------


NEEDS: dict[Axiom, str] = {
    Axiom.PROGRAM: "tma_ring",
    Axiom.BARRIER: "store_ring",
    Axiom.ARRIVAL: "specialized_ring",
    Axiom.BYTES: "specialized_ring",
    Axiom.WAIT: "specialized_ring",
    Axiom.ISSUE: "wgmma_ring",
    Axiom.GROUP: "wgmma_ring",
    Axiom.CONVERGE: "wgmma_ring",
    Axiom.FINISH: "cp_async_mbarrier",
    Axiom.SIGNAL: "signalled",
    Axiom.TAKEN: "split_k",
}
"""A right kernel whose proof needs the axiom."""
SPARE = {Axiom.SEQUENCE: "who arrives has waited for the phase before in every kernel of ours"}
"""Axioms that no kernel is known to need, and why."""


def kernel(name: str) -> kir.Kernel:
    """Return a recipe, or a kernel by hand."""
    return signalled() if name == "signalled" else recipes.RECIPES[name]()


def status(subject: kir.Kernel, *without: Rule) -> Status:
    """Return what z3 says without some rules."""
    return confirm(subject, rlimit=RLIMIT, without=frozenset(without)).status


@cache
def changes(name: str) -> dict[str, kir.Kernel]:
    """Return every mutant of a recipe by what it says it is."""
    return {mutant.change: mutant.kernel for mutant in all_mutants(kernel(name))}


def mutant(name: str, says: str) -> kir.Kernel:
    """Return a mutant of a recipe by the start of what it says it is."""
    found = [subject for change, subject in changes(name).items() if change.startswith(says)]
    assert found, f"{name} has no such mutant"
    return found[0]


def early_expect() -> kir.Kernel:
    """Expect the bytes of a phase by another thread than the one whose arrival ends it."""
    ring = recipes.specialized_ring()

    def split(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArriveExpectTx(bar, slot):
                return [kir.MBarrierArrive(bar, slot)]
            case kir.WarpSync():
                (full, _) = ring.barriers
                expects = kir.MBarrierExpectTx(full, k % full.slots, 1024)
                return [stmt, kir.Elect(kir.Per.ROLE, (expects,))]
            case _:
                return None

    return ring.rewrite(split)


def unread() -> kir.Kernel:
    """Read a slot that nobody writes."""
    ring = recipes.store_ring()
    loads = [
        kir.Load(s.src, s.dst, 4)
        for s in ring.walk()
        if isinstance(s, kir.Store) and isinstance(s.dst, kir.Slot)
    ]

    def read(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Slot()):
                return [*loads]
            case kir.Elect() | kir.FenceAsyncProxy():
                return []
            case _:
                return None

    return ring.rewrite(read)


def smuggled() -> kir.Kernel:
    """Publish an ordinary store by the end of a copy that was started after it."""
    ring = recipes.specialized_ring()
    (s,) = ring.buffers
    full, _ = ring.barriers
    layout = kir.Layout((1, 1), 1, 1)
    note = kir.Buffer("note", s.dtype, (1, 1), full.slots, 128 * -(-s.end // 128))
    word = kir.Fragment("word", s.dtype, layout)
    at = kir.Slot(note, k % full.slots)

    def tell(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad():
                return [kir.Store(at, word, 1), stmt]
            case kir.Load(_, kir.Slot()):
                return [stmt, kir.Load(word, at, 1)]
            case _:
                return None

    return replace(ring, buffers=(s, note)).rewrite(tell)


def unsignalled() -> kir.Kernel:
    """Wait for a last tile that nobody signals."""
    arrive = kir.NamedArrive(1, 2 * kir.WARP)

    def early(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(k + 1 < trips, (stmt,))] if stmt == arrive else None

    return signalled().rewrite(early)


def crossed() -> kir.Kernel:
    """Two warps that wait for each other before they arrive."""
    ring = recipes.store_ring()
    ping, pong = (kir.MBarrier(name, kir.WARP, 1) for name in ("ping", "pong"))

    def role(warp: int, awaited: kir.MBarrier, signalled: kir.MBarrier) -> kir.Role:
        body = (kir.MBarrierWaitParity(awaited, 0, k % 2), kir.MBarrierArrive(signalled, 0))
        return kir.Role(f"warp{warp}", warp, 1, (kir.ForLoop(k, trips, body),))

    body = (
        ring.body[0],
        *start(ping, pong, threads=2 * kir.WARP),
        role(0, ping, pong),
        role(1, pong, ping),
    )
    return replace(ring, threads=2 * kir.WARP, buffers=(), barriers=(ping, pong), body=body)


WRONG: dict[Obligation, kir.Kernel] = {
    Obligation.SCHEDULE: crossed(),
    Obligation.NOT_LAPPED: mutant("specialized_ring", "apart, by all threads, line 26"),
    Obligation.IN_PHASE: mutant("specialized_ring", "swap line 26"),
    Obligation.COUNTED: mutant("specialized_ring", "arrivals +1 of full"),
    Obligation.AWAITED: mutant("specialized_ring", "not from 40 on line 19"),
    Obligation.EXPECTED: early_expect(),
    Obligation.RAW: mutant("specialized_ring", "swap line 15"),
    Obligation.WAR: mutant("store_ring", "drop line 10"),
    Obligation.PROXY: mutant("store_ring", "drop line 13"),
    Obligation.NARROW: smuggled(),
    Obligation.WRITTEN: unread(),
    Obligation.EXIT: mutant("specialized_ring", "no last line 14"),
    Obligation.DRAIN: mutant("store_ring", "drop line 19"),
    Obligation.INIT: mutant("specialized_ring", "drop line 12"),
    Obligation.REGISTERS: mutant("wgmma_ring", "swap line 27"),
    Obligation.FENCE: mutant("wgmma_ring", "drop line 20"),
    Obligation.COLLECTIVE: mutant("store_ring", "threads 96 line 11"),
    Obligation.WHOLE: unsignalled(),
    Obligation.TURNS: turns(elect(kir.BlockSerializeRelease(TURNS, 0, 0))),
    Obligation.CLEAN: turnstile(to=kir.BLOCK + 1),
    Obligation.RESIDENT: turnstile(residency="any"),
    Obligation.REMOTE: by_engine(later="add commit done"),
    Obligation.APART: shared(part=0),
}
"""A wrong kernel that only this obligation sees."""


KEPT = {
    Obligation.NOT_BEHIND: "specialized_ring",
    Obligation.WAW: "specialized_ring",
    Obligation.RETURN: "store_ring",
}
"""What the argument needs, though no wrong kernel is known that it sees alone; who claims it."""


@pytest.mark.parametrize("axiom", NEEDS, ids=lambda a: a.name)
def test_without_an_axiom_a_right_kernel_is_not_proved(axiom: Axiom) -> None:
    """Else it would be idle."""
    subject = kernel(NEEDS[axiom])
    assert status(subject) is Status.PASS
    assert status(subject, axiom) is not Status.PASS


@pytest.mark.parametrize("obligation", WRONG, ids=lambda o: o.name)
def test_without_an_obligation_a_wrong_kernel_is_proved(obligation: Obligation) -> None:
    """Nobody else would see it."""
    assert status(WRONG[obligation]) is not Status.PASS
    assert status(WRONG[obligation], obligation) is Status.PASS


def test_every_axiom_is_needed_or_known_to_be_spare() -> None:
    """A new one has to show what it is good for."""
    assert set(NEEDS) | set(SPARE) == set(Axiom)
    subjects = [kernel(name) for name in {*NEEDS.values()}] + [ks.combined(3, 1, 2)]
    for axiom in SPARE:
        assert all(status(subject, axiom) is Status.PASS for subject in subjects), axiom


def test_every_obligation_is_needed_or_known_to_be_kept_for_the_argument() -> None:
    """Those that nothing is seen by alone are claims all the same."""
    assert set(WRONG) | set(KEPT) == set(Obligation)
    for obligation, name in KEPT.items():
        subject = kernel(name)
        fewer = confirm(subject, rlimit=RLIMIT, without=frozenset({obligation})).checked
        assert fewer < confirm(subject, rlimit=RLIMIT).checked, obligation


# --- rules that hold whatever the iteration: which bytes are shared -------------------------------


ALIASES = [
    one
    for one in LITMUS
    if one.name.startswith(("epilogue_o", "two_buffers", "first_buffer", "second_buffer"))
]
"""Kernels of buffers that share bytes."""


@pytest.mark.parametrize("one", ALIASES, ids=lambda one: one.name)
def test_buffers_of_one_slot_may_share_bytes(one: Litmus) -> None:
    """What follows what is asked of bytes, not of names."""
    assert isinstance(one.kernel, kir.Kernel)
    status = confirm(one.kernel).status
    assert (status is Status.PASS) == (one.expect.status is Status.PASS)
    assert status is not Status.UNSUPPORTED


def test_what_another_buffer_has_overwritten_is_not_read() -> None:
    """The bytes are ordered, but they are those of the other buffer."""
    (right,) = (one.kernel for one in ALIASES if one.name == "two_buffers_over_each_other")
    assert isinstance(right, kir.Kernel)
    puts = [s for s in right.walk() if isinstance(s, kir.Store) and isinstance(s.dst, kir.Slot)]
    first = kir.IfThenElse(fold(Kind.LT, ks.K, 1), (puts[0],))
    stale = right.rewrite(lambda stmt: [first] if stmt is puts[0] else None)
    assert confirm(right).status is Status.PASS
    assert confirm(stale).status is not Status.PASS


def test_rings_that_share_bytes_are_unsupported() -> None:
    """Which slots do would depend on the turn."""
    ring = recipes.double_wgmma()
    _, b, b2 = ring.buffers
    over = replace(b2, offset=b.offset)

    def moved(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad(dst) if dst.buffer == b2:
                return [replace(stmt, dst=replace(dst, buffer=over))]
            case kir.Wgmma() if stmt.b.buffer == b2:
                return [replace(stmt, b=replace(stmt.b, buffer=over))]
            case _:
                return None

    kernel = replace(ring, buffers=(*ring.buffers[:2], over)).rewrite(moved)
    assert confirm(kernel).status is Status.UNSUPPORTED


# --- the life of an mbarrier: whoever uses it sees its init ---------------------------------------


def met(sentence: str) -> kir.Kernel:
    """Return a loop of copies without a barrier before it; `meet` is one in it."""
    made = epilogue(offset=512)
    begin = next(i for i, s in enumerate(made.body) if isinstance(s, kir.BlockSync))
    loop = next(s for s in made.body if isinstance(s, kir.ForLoop))
    words = dict(zip(EPILOGUE.split(), loop.body, strict=True))
    words["meet"] = made.body[begin]
    body = tuple(words[word] for word in sentence.split())
    rest = [replace(s, body=body) if s is loop else s for s in made.body]
    return replace(made, body=(*rest[:begin], *rest[begin + 1 :]))


@pytest.mark.parametrize(
    ("sentence", "safe"),
    [
        (EPILOGUE.replace("fill", "meet fill"), True),
        (EPILOGUE.replace("fill", "fill meet"), True),
        (EPILOGUE.replace("wait", "wait meet"), False),
        (EPILOGUE, False),
    ],
)
def test_a_barrier_in_the_loop_makes_an_mbarrier_visible_behind_it(
    sentence: str, safe: bool
) -> None:
    """All threads reach it in the first iteration, before they use the mbarrier."""
    kernel = met(sentence)
    assert bool(fixpoint.judge(kernel).violations) is not safe
    assert confirm(kernel).status is (Status.PASS if safe else Status.FAIL)


def test_a_barrier_in_a_loop_of_no_trips_makes_nothing_visible() -> None:
    """Behind the loop it is not sure that it was met."""
    made = met(EPILOGUE.replace("fill", "meet fill"))
    (full,) = made.barriers
    kernel = replace(made, body=(*made.body, kir.MBarrierWaitParity(full, 0, 1)))
    assert confirm(kernel).status is not Status.PASS
    assert fixpoint.judge(kernel).violations


def test_an_mbarrier_that_is_initialised_behind_the_loop_is_not_visible_in_it() -> None:
    """Where its maker has left the loop, the others have used it."""
    made = epilogue(offset=512)
    first, *rest = made.body
    assert any(isinstance(s, kir.MBarrierInit) for s in kir.walk((first,)))
    late = replace(made, body=(*rest, first))
    assert fixpoint.judge(late).violations
    assert confirm(late).status is Status.FAIL
