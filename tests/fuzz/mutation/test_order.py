"""Operators on order: the statement goes where the change says, executed by the same threads."""

import kernels
from litmus.arrivals import arriving
from litmus.meetings import among_roles

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.mutation.operators import mutants


def changes(kernel: kir.Kernel, operator: str) -> dict[str, list[str]]:
    """The lines of each mutant, without indentation, by what was changed."""
    return {
        m.change: [line.strip() for line in text(m.kernel).splitlines()]
        for m in mutants(kernel, operator)
    }


def order(lines: list[str], *starts: str) -> list[int]:
    """Where lines begin that start with some words."""
    return [next(i for i, line in enumerate(lines) if line.startswith(s)) for s in starts]


def test_a_swap_exchanges_neighbours() -> None:
    """Order bugs are as common as omissions."""
    found = changes(kernels.staged(2), "swap")
    (lines,) = [v for k, v in found.items() if "fence_async_proxy" in k and "block_sync" in k]
    assert lines[order(lines, "fence_async_proxy")[0] - 1] == "block_sync(0, 128)"


def test_a_wait_goes_out_of_its_loop_with_its_election() -> None:
    """Moving must not change who waits."""
    found = changes(kernels.staged(2), "move")
    lines = found["move before the loop line 9: elect one thread per role"]
    elect, wait, loop = order(lines, "elect one thread", "async_await", "for k")
    assert elect + 1 == wait == loop - 1


def test_a_barrier_goes_into_a_branch() -> None:
    """A full barrier in a role's branch waits for threads that never come."""
    found = changes(kernels.specialized(2), "hoist")
    role = next(change for change in found if "role load" in change)
    first, sync = order(found[role], "role load", "block_sync")
    assert sync == first + 1


def test_an_arrival_is_repeated() -> None:
    """One arrival too many completes a phase before its time."""
    found = changes(kernels.specialized(2), "twice")
    lines = next(v for k, v in found.items() if "mbarrier_arrive(empty" in k)
    assert sum(line.startswith("mbarrier_arrive(empty") for line in lines) == 2


def test_two_elections_become_one() -> None:
    """An election shared across what stands between does too much on one side of it."""
    kernel = kernels.staged(2, ready_sync=False, fence=False, free_sync=False)
    found = changes(kernel, "hoist")
    (early,) = [v for k, v in found.items() if k.startswith("one election, before")]
    (late,) = [v for k, v in found.items() if k.startswith("one election, behind")]
    wait, store = order(late, "async_await", "S1")
    assert store < wait
    wait, send, store = order(early, "async_await", "T1", "S1")
    assert wait < send < store


def test_ctas_come_not_at_all_twice_and_by_another_barrier() -> None:
    """An election of the last CTA counts, and its threads join by a number."""
    kernel = among_roles(arriving(inside="sum join out"))
    election = "elect the last at turns[0] of s ctas, barrier 1"
    assert any(f": {election}" in change for change in changes(kernel, "drop"))
    (twice,) = (lines for change, lines in changes(kernel, "twice").items() if election in change)
    assert twice.count(election) == 2
    hoisted = changes(kernel, "hoist")
    assert any(change.startswith("barrier 2") and election in change for change in hoisted)
    swapped = changes(kernel, "swap")
    assert any(election in change for change in swapped)
