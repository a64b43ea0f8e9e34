"""How the end of every copy is observed: shared barriers, parities, groups and fences."""

from dataclasses import replace

import pytest
from fusions import PIPELINED, SPECIALIZED, STORED, compiled

from fuser.dtype import DType
from fuser.expr import Var, minimum
from fuser.kernel import ir as kir
from fuser.passes.async_copies import observe_copies
from fuser.schedule.params import PointwiseParams
from oracles.prover.prove import prove
from oracles.verdict import Status


def final(params: PointwiseParams) -> kir.Kernel:
    """`bias_relu` after all passes."""
    return compiled(params).launches[0].kernel


def test_tensors_of_one_stage_share_a_barrier_with_summed_bytes() -> None:
    """Two tiles of 4 x 128 bf16: one arrival, 2048 bytes, then both loads, by one thread."""
    kernel = final(PIPELINED)
    assert [b.name for b in kernel.barriers] == ["full"]
    issues = [
        s.body
        for s in kernel.walk()
        if isinstance(s, kir.Elect) and any(isinstance(i, kir.TmaLoad) for i in s.body)
    ]
    assert len(issues) == 2, "one before the loop, one in it"
    for body in issues:
        assert [type(s).__name__ for s in body] == ["MBarrierArriveExpectTx", "TmaLoad", "TmaLoad"]
        assert isinstance(body[0], kir.MBarrierArriveExpectTx)
        assert body[0].nbytes == 2 * 4 * 128 * 2


def test_bulk_copies_expect_the_bytes_before_their_limit() -> None:
    """Beside a box of TMA, which counts in full."""
    n = Var("n")
    x = kir.Tensor("X", DType.BF16, (n,), (1,), 8)
    slots = [kir.Buffer(name, DType.BF16, (128,), 1, 256 * i) for i, name in enumerate("ST")]
    box = kir.Box(x, (0,), (128,), (n,))
    copies = [
        kir.Copy(kir.Slot(buffer, 0), box, engine)
        for buffer, engine in zip(slots, (kir.Engine.BULK, kir.Engine.TMA), strict=True)
    ]
    kernel = kir.Kernel("k", (n,), (x,), (), tuple(slots), (), 32, tuple(copies))
    (elect,) = observe_copies(kernel).body
    assert isinstance(elect, kir.Elect)
    expect, bulk, tma = elect.body
    assert isinstance(expect, kir.MBarrierArriveExpectTx)
    assert expect.nbytes == 2 * minimum(128, n) + 256
    assert isinstance(bulk, kir.TmaLoad)
    assert isinstance(tma, kir.TmaLoad)
    assert (bulk.bulk, tma.bulk) == (True, False)


def test_readers_wait_once_before_their_first_read() -> None:
    """One wait for both tensors, parity of the turn."""
    kernel = final(PIPELINED)
    main = [s for s in kernel.body if isinstance(s, kir.ForLoop)][-1]
    kinds = [type(s).__name__ for s in main.body]
    assert kinds.count("MBarrierWaitParity") == 1
    assert kinds.index("MBarrierWaitParity") < kinds.index("Load")
    (wait,) = [s for s in main.body if isinstance(s, kir.MBarrierWaitParity)]
    assert wait.parity == (main.index // 3) % 2


def test_roles_hand_slots_back_through_an_empty_barrier() -> None:
    """Every reading warp arrives once, after its lanes joined."""
    kernel = final(SPECIALIZED)
    arrivals = {b.name: b.arrivals for b in kernel.barriers}
    assert arrivals == {"full": 1, "empty": 2}
    compute = next(s for s in kernel.body if isinstance(s, kir.Role) and s.name == "compute")
    (loop,) = [s for s in compute.body if isinstance(s, kir.ForLoop)]
    at = next(n for n, s in enumerate(loop.body) if isinstance(s, kir.WarpSync))
    assert loop.body[at - 1] == kir.FenceAsyncProxy(kir.Space.SHARED), "reads cross proxies, too"
    assert isinstance(loop.body[at - 2], kir.Load), "after the last read"
    after = loop.body[at + 1]
    assert isinstance(after, kir.Elect)
    assert after.per is kir.Per.WARP


def test_one_role_needs_no_empty_barrier() -> None:
    """Joining the CTA orders the reads before the refill."""
    assert [b.name for b in final(PIPELINED).barriers] == ["full"]


@pytest.mark.parametrize("params", [STORED, SPECIALIZED])
def test_stores_are_grouped_and_awaited_by_their_thread(params: PointwiseParams) -> None:
    """All but the group of the other slot before a slot is written, all at the end."""
    awaits = [s for s in final(params).walk() if isinstance(s, kir.AsyncAwait)]
    assert [(a.keep, a.read_only) for a in awaits] == [(1, True), (0, True)]
    commits = [s for s in final(params).walk() if isinstance(s, kir.AsyncCommit)]
    assert len(commits) == 1


@pytest.mark.parametrize("params", [PIPELINED, SPECIALIZED, STORED])
def test_readers_fence_before_their_slot_is_filled_again(params: PointwiseParams) -> None:
    """Once, behind the last read of an iteration; what no engine fills owes nothing."""
    for loop in (s for s in final(params).walk() if isinstance(s, kir.ForLoop)):
        kinds = [type(s).__name__ for s in loop.body]
        reads = [
            n
            for n, s in enumerate(loop.body)
            if isinstance(s, kir.Load) and isinstance(s.src, kir.Slot)
        ]
        fences = [n for n, kind in enumerate(kinds) if kind == "FenceAsyncProxy"]
        if reads:
            assert any(n > reads[-1] for n in fences), kinds
            assert not any(reads[0] <= n < reads[-1] for n in fences), kinds
    direct = replace(PIPELINED, load="direct", stages=1, prefetch=0)
    assert not any(isinstance(s, kir.FenceAsyncProxy) for s in final(direct).walk())


def test_without_the_fence_strict_judges_refute_and_others_warn() -> None:
    """The fence that an H200 needs: dropped, the strict policy fails and the default one warns."""
    kernel = final(replace(SPECIALIZED, store="direct"))
    fence = kir.FenceAsyncProxy(kir.Space.SHARED)
    bare = kernel.rewrite(lambda stmt: [] if stmt == fence else None)
    assert bare != kernel
    for policy, status in (("strict", Status.FAIL), ("default", Status.PASS)):
        verdict = prove(bare, policy=policy)
        assert verdict.status is status, verdict
        assert {f.kind for f in verdict.findings} == {"proxy"}
    assert not prove(kernel, policy="strict").findings


def test_writers_fence_before_they_join() -> None:
    """Ordinary writes, fence, join, then the copy engine reads."""
    kernel = final(STORED)
    (loop,) = [s for s in kernel.body if isinstance(s, kir.ForLoop)]
    kinds = [type(s).__name__ for s in loop.body]
    tail = kinds[kinds.index("Store") :]
    assert tail == ["Store", "FenceAsyncProxy", "BlockSync", "Elect"]
