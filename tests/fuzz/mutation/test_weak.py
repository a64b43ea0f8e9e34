"""Operators on strength: each sync is weakened in every way that it has."""

from fuser.cookbook import recipes
from fuser.expr import Var, both, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuzz.mutation.operators import mutants, predicate, weaken

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
