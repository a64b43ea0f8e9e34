"""Tests of the proof for all trip counts: it agrees with the graph, and never overreaches."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest
from fusions import FAMILIES, compiled

from fuser import kernel_ir as kir
from fuser.expr import Kind, fold
from fuzz.mutate import drop_each_sync
from oracles import certificate
from oracles.arithmetic import K, N, UnsupportedError
from oracles.certificate import certify, judge
from oracles.claims import Claims
from oracles.footprint import Footprints
from oracles.parametric import Bound, Walk, bounds, places
from oracles.prover import Ordered, prove
from oracles.skeleton import Skeleton
from oracles.smt import Script
from oracles.trace import read
from oracles.verdict import Status
from oracles.window import Window, schedule

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

FOUND = (Status.FAIL, Status.UNSUPPORTED)
"""What the certificate may say of a kernel that the graph engine refutes."""


def refuted(kernel: kir.Kernel) -> bool:
    """Whether the graph engine alone refutes a kernel."""
    return bool(Ordered(read(kernel), "default").errors)


@pytest.mark.parametrize("kernel", WHOLE, ids=lambda k: k.name)
def test_right_kernels_are_proved_for_all_trip_counts(kernel: kir.Kernel) -> None:
    """Both engines say so, and claims were made."""
    verdict = certify(kernel)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > bool(kernel.buffers)


@pytest.mark.parametrize("kernel", SWITCHED, ids=lambda k: k.name)
def test_every_switch_means_the_same_to_both_engines(kernel: kir.Kernel) -> None:
    """What the graph engine refutes is refuted here too, not just unknown."""
    verdict = certify(kernel)
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
def test_no_dropped_sync_is_proved_that_the_graph_refutes(kernel: kir.Kernel) -> None:
    """A false PASS is the worst a judge can do."""
    for mutant in drop_each_sync(kernel):
        verdict = certify(mutant.kernel)
        if refuted(mutant.kernel):
            assert verdict.status in FOUND, (mutant.change, verdict)
        else:
            assert verdict.status is Status.PASS, (mutant.change, verdict)


@pytest.mark.parametrize("at", [3, 40, 400, 5000])
def test_a_wait_that_is_skipped_late_is_not_proved(at: int) -> None:
    """However late, k is an unknown; beyond what is replayed, the answer is unknown."""
    ring = ks.specialized(2)
    waits = [s for s in ring.walk() if isinstance(s, kir.MBarrierWaitParity)]

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(fold(Kind.LT, ks.K, at), (stmt,))] if stmt is waits[0] else None

    kernel = ring.rewrite(skip)
    verdict = certify(kernel)
    assert verdict.status is (Status.FAIL if at < certificate.REPLAYED else Status.UNKNOWN)
    assert prove(kernel).status is not Status.PASS
    assert at < certificate.REPLAYED or "refuted, not replayed" in verdict.reason


def test_strict_policy_wants_a_fence_before_a_refill() -> None:
    """The same table as the graph engine's."""
    assert certify(ks.pipelined(2, 1), policy="strict").status is not Status.PASS
    fenced = ks.combined(3, 2, 2, specialized=True, read_fence=True)
    assert certify(fenced, policy="strict").status is Status.PASS


def test_both_engines_have_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine alone is not praise."""
    kernel = ks.specialized(2)
    assert prove(kernel).checked > Ordered(read(kernel), "default").checked
    monkeypatch.setattr(certificate, "_ordered", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prove(kernel)
    monkeypatch.setattr(certificate, "_ordered", _gives_up)
    verdict = prove(kernel)
    assert verdict.status is Status.UNKNOWN
    assert verdict.reason.startswith("engines disagree")


def _gives_up(*_: object) -> None:
    raise certificate.UndecidedError("the solver gave up")


def test_a_starved_solver_is_unknown() -> None:
    """A work limit of nothing proves nothing."""
    assert certify(ks.combined(4, 3, 2), rlimit=1).status is Status.UNKNOWN


@pytest.mark.parametrize("kernel", [ks.pipelined(4, 3), ks.specialized(3), ks.combined(3, 2, 2)])
def test_premises_have_a_model_and_each_claim_can_fail_without_them(kernel: kir.Kernel) -> None:
    """Neither are the constraints contradictory, nor are the claims empty."""
    trace = read(kernel)
    skeleton = Skeleton(trace, Footprints(trace))
    names = [f"t{node}" for node in range(skeleton.size)]
    answer = Script(schedule(skeleton), certificate.RLIMIT).ask(values=names)
    assert answer.status == "sat"
    times = {node: answer.values[name] for node, name in enumerate(names)}
    window = Window(skeleton, set(range(-9, 2)))
    whole = f"{window.text()}(assert {window.inside(times)})"
    assert Script(whole, certificate.RLIMIT).ask().status == "sat"
    claims = Claims(skeleton, times, "default").ordered
    assert claims
    for claim in claims:
        head = "(declare-const k Int)(declare-const n Int)"
        script = Script(f"{head}(assert {claim.when})", certificate.RLIMIT)
        assert script.ask().status == "sat", claim


def test_no_kind_of_claim_is_idle() -> None:
    """Without the requirements of a phase, every kind of claim about order is violated."""
    trace = read(ks.combined(3, 0, 2, specialized=True))
    skeleton = Skeleton(trace, Footprints(trace))
    names = [f"t{node}" for node in range(skeleton.size)]
    answer = Script(schedule(skeleton), certificate.RLIMIT).ask(values=names)
    times = {node: answer.values[name] for node, name in enumerate(names)}
    claims = Claims(skeleton, times, "default").ordered
    skeleton.crosses.clear()
    for chain in skeleton.chains.values():
        chain[:] = [item for item in chain if item.waits]
    found = certificate._asked(skeleton, times, claims, certificate.RLIMIT, wide=True)
    assert {claim.kind for claim, _ in found} == {claim.kind for claim in claims}
    assert {"parity", "RAW", "WAR", "WAW", "proxy"} == {claim.kind for claim in claims}


def test_what_is_not_linear_is_unsupported() -> None:
    """The construct is named."""
    kernel = ks.specialized(2)

    def odd(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.TmaLoad):
            return [kir.IfThenElse(fold(Kind.LT, ks.K % 3, 2), (stmt,))]
        return None

    verdict = certify(kernel.rewrite(odd))
    assert verdict.status is Status.UNSUPPORTED
    assert "no difference" in verdict.reason or "not linear" in verdict.reason
    assert certify(replace(kernel, cluster=2)).status is Status.UNSUPPORTED


def test_conditions_become_differences() -> None:
    """`k + 2 < n` is one bound; its negation the opposite one."""
    ahead = fold(Kind.LT, K + 2, N)
    assert bounds(ahead) == (Bound(-1, 1, -3),)
    assert bounds(fold(Kind.EQ, ahead, 0)) == (Bound(1, -1, 2),)
    assert bounds(1) == ()
    assert Bound(-1, 1, -3).text() == "(<= (- k n) (- 3))"
    with pytest.raises(UnsupportedError):
        bounds(fold(Kind.LT, 2 * K, N))


def test_what_is_issued_ahead_becomes_iterations_before_the_first() -> None:
    """Two ahead of three slots: the loop's copy starts at iteration -2, in phase k + 2."""
    found = places(read(ks.pipelined(3, 2)))
    assert {(p.low, p.bar) for p in found.of.values() if p.low} == {(-2, Walk(3, 2))}
    assert len(found.ahead) == 4


def test_certify_and_judge_are_one() -> None:
    """The prover hands over what it has read already."""
    kernel = ks.pipelined(2, 1)
    trace = read(kernel)
    assert judge(trace, Footprints(trace), "default") == certify(kernel)
