"""Changes to how a semaphore is passed on: each does what it says, where it applies."""

from __future__ import annotations

from typing import TypeVar

import pytest

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuser.kernel.text import line, text
from fuzz.kernels.matmul import scheduled
from fuzz.mutation.semaphore import semaphore
from fuzz.mutation.site import Site, sites

S = TypeVar("S", bound=kir.Stmt)
TMA = {m.change: m.kernel for m in semaphore(recipes.split_k_tma())}
PLAIN = {m.change: m.kernel for m in semaphore(recipes.split_k())}
ORDER = (kir.AsyncCommit, kir.AsyncAwait, kir.BlockSerializeRelease)


def only(kernel: kir.Kernel, of: type[kir.Stmt]) -> Site:
    """The one statement of a kind behind the acquire."""
    every = list(sites(kernel))
    start = next(n for n, s in enumerate(every) if isinstance(s.stmt, kir.BlockSerializeWait))
    (found,) = (site for site in every[start:] if isinstance(site.stmt, of))
    return found


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("no proxy fence", ["AsyncCommit", "AsyncAwait", "BlockSerializeRelease"]),
        ("release before commit", ["BlockSerializeRelease", "AsyncCommit", "AsyncAwait"]),
        ("await after release", ["AsyncCommit", "BlockSerializeRelease", "AsyncAwait"]),
        ("no await", ["AsyncCommit", "BlockSerializeRelease"]),
    ],
)
def test_the_release_goes_where_the_name_says(change: str, names: list[str]) -> None:
    """One release, one commit; nothing is lost on the way."""
    stmts = list(TMA[change].walk())
    start = next(n for n, s in enumerate(stmts) if isinstance(s, kir.BlockSerializeWait))
    assert [type(s).__name__ for s in stmts[start:] if isinstance(s, ORDER)] == names


def test_an_await_for_reads_only_is_told_in_the_text() -> None:
    """The commonest mistake of the field."""
    found = only(TMA["read-only await"], kir.AsyncAwait)
    assert line(found.stmt) == "async_await(bulk, keep=0, read_only)"


def test_the_second_warp_awaits_what_the_first_one_issued() -> None:
    """Issue and commit stay where they were."""
    kernel = TMA["await by another thread"]
    role = only(kernel, kir.AsyncAwait).role
    assert role is not None
    assert (role.first_warp, role.warps) == (1, 1)
    assert only(kernel, kir.AsyncCommit).role is None


def test_a_barrier_is_left_out_before_the_release_only() -> None:
    """Others of the same kind stay."""
    before, after = (
        sum(isinstance(s, kir.BlockSync) for s in kernel.walk())
        for kernel in (recipes.split_k(), PLAIN["no barrier before release"])
    )
    assert after == before - 1


def test_a_fence_goes_before_the_relaxed_release() -> None:
    """By the same thread."""
    site = only(PLAIN["relaxed release behind a gpu fence"], kir.BlockSerializeRelease)
    assert site.beside(-1) == kir.ThreadFence(kir.Scope.GPU)
    assert site.elect is not None


def test_the_issue_is_by_a_warp_or_by_a_thread_of_each() -> None:
    """The reduction is executed 32 times, or 4 times."""
    whole = only(TMA["issued by a whole warp"], kir.TmaReduce)
    assert whole.elect is None
    assert whole.role is not None
    each = only(TMA["issued by a thread of each warp"], kir.TmaReduce)
    assert each.elect is not None
    assert each.elect.per is kir.Per.WARP


def test_the_semaphore_counts_on_or_the_last_one_is_silent() -> None:
    """Both leave it at another value than the next launch waits for."""
    on = only(PLAIN["semaphore not reset"], kir.BlockSerializeRelease)
    assert line(on.stmt) == "block_serialize_release(turns[tile], turn=(turn + 1))"
    silent = only(PLAIN["last release left out"], kir.BlockSerializeRelease)
    assert line(silent.parents[-1]) == "if ((turn + 1) < splits)"


def test_a_change_that_does_not_apply_is_no_mutant() -> None:
    """A mutant that is the kernel itself would look like a blind judge."""
    assert not set(PLAIN) & {"no await", "no proxy fence", "release before commit"}
    assert not list(semaphore(recipes.wgmma_ring()))
    assert not list(semaphore(PLAIN["no barrier before release"]))
    again = {m.change for m in semaphore(PLAIN["semaphore not reset"])}
    assert not again & {"semaphore not reset", "last release left out"}
    assert "relaxed release" not in {m.change for m in semaphore(PLAIN["relaxed release"])}
    for made in (PLAIN, TMA):
        assert len({text(kernel) for kernel in made.values()}) == len(made)


def test_the_reset_of_a_compiled_kernel_is_a_statement_of_its_own() -> None:
    """Every reset is changed, not the release before it."""
    whole = scheduled("split_pipelined", 0).kernel
    made = {m.change: m.kernel for m in semaphore(whole)}["semaphore not reset"]
    turns = [
        [s.turn for s in kernel.walk() if isinstance(s, kir.BlockSerializeRelease)]
        for kernel in (whole, made)
    ]
    assert 0 in turns[0]
    assert 0 not in turns[1]
