"""Rewrites of how a turn is given on: each does what it says, and refuses what it does not fit."""

from __future__ import annotations

import pytest

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuzz.semaphores import rewrites as do

TMA = recipes.split_k_tma()
PLAIN = recipes.split_k()


def order(kernel: kir.Kernel, *kinds: type[kir.Stmt]) -> list[str]:
    """The names of statements of some kinds, bulk ones only, behind the wait for the turn."""
    stmts = list(kernel.walk())
    start = next(n for n, s in enumerate(stmts) if isinstance(s, kir.BlockSerializeWait))
    return [type(s).__name__ for s in stmts[start:] if isinstance(s, kinds)]


MEETING = (kir.AsyncCommit, kir.AsyncAwait, kir.BlockSerializeRelease)


@pytest.mark.parametrize(
    ("rewrite", "names"),
    [
        (do.unchanged, ["AsyncCommit", "AsyncAwait", "BlockSerializeRelease"]),
        (do.release_before_commit, ["BlockSerializeRelease", "AsyncCommit", "AsyncAwait"]),
        (do.release_before_await, ["AsyncCommit", "BlockSerializeRelease", "AsyncAwait"]),
        (do.no_await, ["AsyncCommit", "BlockSerializeRelease"]),
    ],
)
def test_the_release_goes_where_the_name_says(rewrite: do.Rewrite, names: list[str]) -> None:
    """One release, one commit; nothing is lost on the way."""
    assert order(rewrite(TMA), *MEETING) == names


def test_an_await_for_reads_only_is_told_in_the_text() -> None:
    """The commonest mistake of the field."""
    found = do.only(do.read_only_await(TMA), kir.AsyncAwait, kind=kir.AsyncKind.BULK)
    assert line(found.stmt) == "async_await(bulk, keep=0, read_only)"


def test_the_second_warp_awaits_what_the_first_one_issued() -> None:
    """Issue and commit stay where they were."""
    kernel = do.await_elsewhere(TMA)
    site = do.only(kernel, kir.AsyncAwait, kind=kir.AsyncKind.BULK)
    assert site.role is not None
    assert (site.role.first_warp, site.role.warps) == (1, 1)
    assert do.only(kernel, kir.AsyncCommit, kind=kir.AsyncKind.BULK).role is None


def test_a_barrier_is_left_out_before_the_release_only() -> None:
    """Others of the same kind stay."""
    before, after = (sum(isinstance(s, kir.BlockSync) for s in k.walk()) for k in (
        PLAIN, do.no_barrier(PLAIN)))  # fmt: skip
    assert after == before - 1


def test_a_fence_goes_before_the_relaxed_release() -> None:
    """By the same thread."""
    site = do.only(do.fenced_release(PLAIN, kir.Scope.GPU), kir.BlockSerializeRelease)
    assert site.beside(-1) == kir.ThreadFence(kir.Scope.GPU)
    assert site.elect is not None


def test_the_issue_is_by_a_warp_or_by_a_thread_of_each() -> None:
    """The reduction is executed 32 times, or 4 times."""
    whole = do.only(do.issued_by_warp(TMA), kir.TmaReduce)
    assert whole.elect is None
    assert whole.role is not None
    each = do.only(do.issued_per_warp(TMA), kir.TmaReduce)
    assert each.elect is not None
    assert each.elect.per is kir.Per.WARP


def test_the_turn_counts_on_or_the_last_one_is_silent() -> None:
    """Both leave the semaphore dirty."""
    on = do.only(do.no_reset(PLAIN), kir.BlockSerializeRelease)
    assert line(on.stmt) == "block_serialize_release(turns[tile], turn=(turn + 1))"
    silent = do.only(do.silent_last(PLAIN), kir.BlockSerializeRelease)
    assert line(silent.parents[-1]) == "if ((turn + 1) < splits)"


@pytest.mark.parametrize(
    ("rewrite", "kernel", "message"),
    [
        (do.no_await, PLAIN, r"only\(split_k, AsyncAwait, kind=.*: 0 such statements"),
        (do.no_proxy_fence, PLAIN, "FenceAsyncProxy, space=.*: 0 such statements"),
        (do.no_barrier, recipes.wgmma_ring(), r"BlockSerializeRelease\): 0 such statements"),
        (do.no_barrier, do.no_barrier(PLAIN), "no BlockSync stands before the release"),
        (do.no_reset, do.no_reset(PLAIN), "does not go back to 0; release"),
        (do.await_elsewhere, do.release_before_await(TMA), None),
        (do.no_barrier, do.silent_last(PLAIN), None),
    ],
)
def test_a_rewrite_that_does_not_apply_says_why(
    rewrite: do.Rewrite, kernel: kir.Kernel, message: str | None
) -> None:
    """A mutant that is the kernel itself would look like a blind judge; some may be combined."""
    if message is None:
        assert rewrite(kernel) != kernel
        return
    with pytest.raises(do.RewriteError, match=message):
        rewrite(kernel)
