"""Operators on numbers: off by one, by a role, in the wrong variable, or late."""

import kernels
from litmus.arrivals import arriving

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.kernels.product import Matmul, matmul
from fuzz.mutation.operators import mutants
from oracles.simulator import simulate
from oracles.verdict import Status


def texts(kernel: kir.Kernel, operator: str) -> dict[str, str]:
    """The text of each mutant by what was changed."""
    return {m.change: text(m.kernel) for m in mutants(kernel, operator)}


def test_counts_are_off_by_one_by_a_warp_and_by_a_role() -> None:
    """A barrier that expects a role too many waits forever."""
    found = texts(kernels.specialized(2), "count")
    changed = {change.split()[1] for change in found if "of empty" in change}
    assert {"+1", "-1", "+32", "+4", "+128"} <= changed
    assert all(
        "mbarrier empty: arrivals=5" in found[c] for c in found if c == "arrivals +1 of empty"
    )


def test_bytes_are_halved_doubled_and_off_by_a_chunk() -> None:
    """The dtype factor, and one row too many."""
    found = texts(kernels.pipelined(2, 1), "count")
    assert {c.split()[1] for c in found if c.startswith("expect")} == {
        "1008",
        "1040",
        "512",
        "2048",
    }


def test_parity_comes_from_the_inner_index() -> None:
    """Right only if the trips of a tile are a multiple of two turns."""
    found = texts(recipes.persistent(), "phase")
    (change,) = [c for c in found if c.startswith("parity from k instead of p") and "full" in c]
    assert "mbarrier_wait_parity(full[(p % 3)], ((k // 3) % 2), cta)" in found[change]


def test_a_position_stays_or_restarts() -> None:
    """Phase not carried across tiles."""
    found = texts(recipes.persistent(), "phase")
    assert sum(c.startswith("position stays") for c in found) == 2
    restarted = [found[c] for c in found if c.startswith("position restarts in `t`")]
    assert all("\n      p = 0\n" in one for one in restarted)
    assert len(restarted) == 2


def test_the_prefetch_distance_is_forgotten_in_the_coordinate_only() -> None:
    """The slot is right, the tile is not; only values can tell."""
    (mutant,) = [m for m in mutants(recipes.tma_ring(), "index") if "prefetch" in m.change]
    assert mutant.hazards == ()
    launch = simulate.Launch(1, {"R": 24, "C": 64})
    assert simulate.search(mutant.kernel, launch, schedules=6).status is Status.PASS


def test_a_chunk_of_columns_is_taken_beside_the_one_that_is_meant() -> None:
    """Inside the accumulator; only values can tell."""
    kernel = matmul(Matmul((64, 32, 16), 2, 1, 16, 1, pooled=False))
    found = [m for m in mutants(kernel, "index") if m.change.startswith("columns")]
    assert [m.change.split()[2] for m in found] == ["16", "0"]
    assert {m.hazards for m in found} == {()}
    launch = simulate.Launch(1, {"M": 64, "N": 32, "K": 16})
    for mutant in found:
        assert simulate.search(mutant.kernel, launch, schedules=1).status is Status.PASS


def test_a_sum_begins_never_at_once_or_a_step_late() -> None:
    """The step at which an accumulator starts again."""
    kernel = matmul(Matmul((64, 8, 16), 2, 1, 8, 1, pooled=False))
    found = {c: t for c, t in texts(kernel, "index").items() if c.startswith("added up")}
    assert [c.split(" line")[0].removeprefix("added up ") for c in found] == [
        "never",
        "always",
        "a step later",
    ]
    assert "if (1 <= (k - 1))" in found[next(c for c in found if "later" in c)]


def test_a_loop_runs_once_more_or_misses_an_end() -> None:
    """Producer and consumer disagree by one."""
    found = texts(kernels.specialized(2), "trip")
    assert sum("0..(trips + 1)" in one for one in found.values()) == 2
    assert sum("if ((k + 1) < trips)" in one for one in found.values()) == 2
    assert sum("if (1 <= k)" in one for one in found.values()) == 2


def test_a_late_fault_is_early_enough_for_nobody() -> None:
    """Forty iterations are right; only a proof for all trip counts sees the rest."""
    (mutant,) = [m for m in mutants(kernels.staged(2), "stages") if "elect" in m.change][:1]
    assert "if (k < 40)" in text(mutant.kernel)
    for rows in (4 * 5, 4 * 40):
        launch = simulate.Launch(1, {"R": rows, "C": 64, "pitch": 64})
        assert simulate.search(mutant.kernel, launch, schedules=2).status is Status.PASS
    launch = simulate.Launch(1, {"R": 4 * 44, "C": 64, "pitch": 64})
    assert simulate.search(mutant.kernel, launch, schedules=6).status is Status.FAIL


def test_another_number_of_ctas_is_counted() -> None:
    """One is elected too early, or none."""
    found = texts(arriving(), "count")
    assert {change.split(" line")[0] for change in found if "ctas" in change} >= {
        "ctas -1",
        "ctas +1",
    }
    assert any("of (s - 1) ctas" in words for words in found.values())
