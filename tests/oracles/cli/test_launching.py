"""Launches from the command line: what is filled in, and what is refused with a way out."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.cookbook.recipes import split_k, wgmma_ring
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.cli.launching import (
    SCHEDULES,
    Asked,
    LaunchError,
    again,
    described,
    explored,
    none_asked,
    plans,
    replayed,
    requested,
    settings,
    simulated,
)
from oracles.cli.target import Target
from oracles.prover.launches import Launch
from oracles.prover.prove import witness
from oracles.verdict import Status
from oracles.witness import Mark, Witness

GIVEN = ("M=64", "N=8", "K=32")


def test_a_given_launch_is_taken_with_the_smallest_grid_that_fits() -> None:
    """`requires` ties the grid to the extents; nobody wants to compute it."""
    assert requested("f.py", wgmma_ring(), Asked(None, ("M=65", "N=8", "K=32"))) == [
        Launch(2, {"M": 65, "N": 8, "K": 32}, 0, {"k": 2})
    ]


def test_small_launches_go_past_the_longest_ring() -> None:
    """A refill is first wrong when a ring turns over: after as many trips as it has slots."""
    for stages in (2, 5):
        counts = {t.trips["k"] for t in requested("f.py", ks.specialized(stages), Asked())}
        assert counts >= set(range(stages + 2))


def test_all_trips_turn_every_ring_twice() -> None:
    """Phases of both parities, and one more."""
    kernel = ks.specialized(2)
    counts = {t.trips["k"] for t in requested("f.py", kernel, Asked(all_trips=True))}
    assert counts == set(range(7))


def test_a_given_grid_picks_among_the_small_launches() -> None:
    """`--grid` alone is a wish, too."""
    assert {t.grid for t in requested("f.py", ks.direct(), Asked(2))} == {2}


WRONG = [
    (Asked(None, ("Q=3",)), "wgmma_ring has no parameter Q; its names are M, N, K"),
    (Asked(None, ("k=3",)), "wgmma_ring has no parameter k"),
    (Asked(None, ("M",)), "not NAME=N with N from 0; write --set M=64"),
    (Asked(None, ("M=-1",)), "not NAME=N with N from 0"),
    (Asked(None, ("M=64", "N=8")), "no value for K; add --set K=N"),
    (Asked(3, GIVEN), "it requires (gridDim == "),
    (Asked(1, ("M=64", "N=8", "K=17")), "A is aligned to 8 elements"),
    (Asked(None, GIVEN, all_trips=True), "both name launches; leave one out"),
]


@pytest.mark.parametrize(("asked", "says"), WRONG, ids=[w[1] for w in WRONG])
def test_a_launch_that_cannot_be_is_refused_with_a_way_out(asked: Asked, says: str) -> None:
    """The message repeats the call and says what to write."""
    with pytest.raises(LaunchError) as error:
        requested("f.py:wgmma_ring", wgmma_ring(), asked)
    assert str(error.value).startswith("f.py:wgmma_ring ")
    assert says in str(error.value)


def test_a_refused_launch_comes_with_one_that_works() -> None:
    """The way out can be copied."""
    with pytest.raises(LaunchError) as error:
        requested("f.py", wgmma_ring(), Asked(3, GIVEN))
    words = str(error.value).rpartition("try ")[2].split()
    grid = int(words[words.index("--grid") + 1])
    given = tuple(word for word in words if "=" in word)
    assert requested("f.py", wgmma_ring(), Asked(grid, given))


def test_a_kernel_without_small_launches_has_none() -> None:
    """Judging nothing is not passing: the command line answers unsupported, with a way out."""
    kernel = replace(ks.direct(), requires=(eq(ks.R, 10**6),))
    assert requested("f.py", kernel, Asked()) == []
    says = none_asked("f.py", Target("direct", kernel), Asked())
    assert "up to 4096 was found that keeps what it requires: (R == 1000000)" in says
    assert "give one by --grid G --set R=N --set C=N" in says


def test_judges_are_asked_with_what_was_given() -> None:
    """The same kernel and launch for both, and the schedule that fails is shown."""
    kernel, plan = (
        ks.specialized(2, warp_sync=False),
        (Launch(1, {"R": 12, "C": 4, "pitch": 4}, 0, {}),),
    )
    assert simulated(kernel, plan, 12, 0, "default").status is Status.FAIL
    assert explored(kernel, plan, 200_000, "default").status is Status.FAIL
    seen = replayed(kernel, plan, 12, 0, "default")
    assert seen is not None
    assert sum(row.mark is not Mark.NONE for row in seen.rows) == 2


def test_a_launch_is_written_as_it_is_asked_for() -> None:
    """A reader copies it."""
    assert settings(2, {"M": 64, "K": 0}) == "--grid 2 --set M=64 --set K=0"
    assert settings(None, {"M": 64}) == "--set M=64"


def test_a_launch_is_told_with_how_often_its_loops_run() -> None:
    """Of a CTA other than the first one it says which."""
    assert (
        described(Launch(1, {"R": 4}, 0, {"t": 1, "k": 2}))
        == "--grid 1 --set R=4 (t runs 1x, k runs 2x)"
    )
    assert described(Launch(2, {"R": 4}, 1, {"k": 2})) == "--grid 2 --set R=4 (in CTA 1, k runs 2x)"
    assert described(Launch(1, {}, 0, {})) == "--grid 1"


PAIR = LaunchSequence("pair", (ks.direct(), ks.staged(2)))


def test_kernels_of_a_program_share_the_values_of_their_parameters() -> None:
    """They work on the same tensors."""
    found = plans("f.py", Target("pair", PAIR), Asked())
    assert found
    assert all(len(plan) == 2 and plan[0].params == plan[1].params for plan in found)
    (own,) = plans("f.py", Target("pair", PAIR), Asked(None, ("R=8", "C=4", "pitch=4")))
    assert [launch.trips for launch in own] == [{"k": 2}, {"k": 2}]
    with pytest.raises(LaunchError, match="pair has no parameter Q"):
        plans("f.py", Target("pair", PAIR), Asked(None, ("Q=8",)))


def test_a_program_whose_launches_do_not_fit_together_asks_for_one() -> None:
    """Judging nothing is not passing."""
    large = replace(ks.staged(2), requires=(eq(ks.R, 10**6),))
    with pytest.raises(LaunchError, match="give one by --set C=N --set R=N --set pitch=N"):
        plans("f.py", Target("pair", LaunchSequence("pair", (ks.direct(), large))), Asked())


def test_a_refutation_is_replayed_at_the_trip_counts_of_its_witness() -> None:
    """Two judges that know nothing of each other say the same of one launch."""
    kernel = ks.specialized(3, warp_sync=False)
    found = witness(kernel)
    assert found is not None
    once = again(kernel, found, "default")
    assert once.kind == "WAR"
    assert once.same
    assert str(once).startswith(
        f"replayed by the simulator, {once.launch}, in this order: the same"
    )
    assert once.launch.startswith("--grid ")
    assert {row.line for row in found.rows if row.mark is not Mark.NONE} == set(once.lines)


def test_another_finding_is_not_called_the_same() -> None:
    """A witness of a race between other statements, of another kind."""
    kernel = ks.specialized(3, warp_sync=False)
    found = witness(kernel)
    assert found is not None
    moved = [replace(row, line=row.line + 1) for row in found.rows]
    for wrong in (replace(found, kind="drain"), replace(found, rows=tuple(moved))):
        once = again(kernel, wrong, "default")
        assert (once.kind, once.same) == ("WAR", False)
        assert ": but otherwise, WAR at line " in str(once)


def test_what_no_schedule_shows_is_said_to_be_open() -> None:
    """A right kernel under a false accusation is not called wrong."""
    found = Witness("ring", "RAW", (("trips", 1),), "", "", (), ())
    said = str(again(ks.specialized(3), found, "default"))
    assert said.startswith(f"not replayed by the simulator in {SCHEDULES} schedules of --grid ")


def test_a_witness_without_a_launch_is_not_replayed() -> None:
    """The reason names the counts that were looked for."""
    found = Witness("ring", "RAW", (("nothing", 7),), "", "", (), ())
    large = replace(ks.specialized(3), requires=(eq(ks.R, 10**6),))
    said = str(again(large, found, "default"))
    assert said == "not replayed by the simulator: no launch with nothing=7 was found"


def test_turns_are_replayed_with_several_ctas() -> None:
    """One CTA alone never waits for another."""
    kernel = split_k()
    wait = next(s for s in kernel.walk() if isinstance(s, kir.BlockSerializeWait))
    broken = kernel.rewrite(lambda s: [] if s is wait else None)
    found = Witness("split_k", "WAR", (("trips", 0),), "", "", (), ())
    assert again(broken, found, "default").kind
