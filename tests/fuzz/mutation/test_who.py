"""Operators on who and where: other threads, other bytes, a semaphore left dirty."""

import kernels
from litmus.arrivals import arriving
from litmus.meetings import among_roles

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.kernels.draw import accepted
from fuzz.kernels.product import Matmul, matmul
from fuzz.mutation.operators import mutants


def texts(kernel: kir.Kernel, operator: str) -> dict[str, str]:
    """The text of each mutant by what was changed."""
    return {m.change: text(m.kernel) for m in mutants(kernel, operator)}


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


def test_what_shares_bytes_is_not_swizzled() -> None:
    """Validation refuses it, and a refused mutant tests no judge."""
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
