"""What each judge blames: for each class of fault a litmus, with the two lines that are marked."""

from __future__ import annotations

import pytest
from litmus.parts import Litmus
from litmus.suite import by_name

from fuser.kernel import ir as kir
from oracles.explorer import explore
from oracles.prover import prove
from oracles.simulator import simulate
from oracles.witness import Mark, Witness

SCHEDULES = 6
Blame = tuple[str, int | None, int | None]
"""Kind of the finding, line of the earlier and of the later event; 0 is the end of the CTA."""

BLAMED: dict[str, tuple[Blame, Blame, Blame]] = {
    # by the prover, the simulator and the explorer
    "ring_read_before_its_wait": (("RAW", None, 15),) * 3,
    "slot_freed_before_the_wait": (("WAR", 20, 31),) * 3,
    "full_parity_flipped": (("RAW", None, 16),) * 3,
    # the load role waits a phase ahead, and not the user, who waits for its data
    "empty_parity_flipped": (("deadlock", None, 22),) * 3,
    # the second user's wait may be a phase behind
    "observer_is_lapped": (("parity", 21, 27), ("parity", 21, 27), ("parity", None, 21)),
    # one arrival of 33 is missing at line 22; who waits at line 15 waits for that
    "ring_arrivals_one_too_few": (
        ("arrivals", None, 22), ("deadlock", None, 22), ("deadlock", None, 22),
    ),
    "ring_expects_double": (("bytes", None, 15),) * 3,
    "ring_fed_up_to_a_number": (("deadlock", None, 15),) * 3,
    "a_tile_is_told_of_while_it_is_sent": (("drain", 16, 26),) * 3,
    "released_right_after_the_commit": (
        ("RAW", 15, 23), ("drain", 15, 19), ("drain", 15, 19),
    ),
    "operands_staged_without_a_proxy_fence": (
        ("proxy", 14, 17), ("proxy", 14, 17), ("proxy", 13, 17),
    ),
    # the other lanes may still be at their wait
    "invalidated_while_others_wait": (("init", 14, 18),) * 3,
    "one_of_two_barriers_not_initialised": (("init", None, 21),) * 3,
    "turn_never_released": (("deadlock", None, 9),) * 3,
    "turn_of_the_next_cta": (("deadlock", None, 9),) * 3,
    "released_relaxed": (("scope", 16, 13),) * 3,
    "cluster_left_without_meeting": (
        ("exit", 22, 0), ("exit", None, 0), ("exit", None, 22),
    ),
}  # fmt: skip
STATIC: dict[str, Blame] = {
    "commit_missing": ("RAW", 20, 24),
    "groups_not_committed": ("exit", 15, 0),
    "fence_missing_after_clearing": ("fence", 16, 19),
    "semaphore_not_reset": ("semaphore", None, 21),
}
"""What the prover blames where the explorer needs no execution, or the simulator sees another."""
MISSING = {
    "commit_missing": "missing is async_commit(wgmma) between line 20 and the await of line 21",
    "groups_not_committed": "missing is async_commit(bulk) between line 15 and the await of",
    "invalidated_while_others_wait": "missing is a block_sync of all threads between line 14 and",
    "empty_parity_flipped": "line 22: the parity is a phase ahead",
    "ring_arrivals_one_too_few": "line 17: the arrivals on empty",
    "fence_missing_after_clearing": "missing is a wgmma_fence between line 16 and line 19",
}
"""What the prover says is missing, or comes nearest."""


def kernel_of(one: Litmus) -> kir.Kernel:
    """Return the kernel of a litmus that is no program."""
    assert isinstance(one.kernel, kir.Kernel)
    return one.kernel


def blamed(found: Witness | None) -> Blame:
    """Return what a witness marks."""
    assert found is not None
    lines = {row.mark: row.line for row in found.rows}
    return found.kind, lines.get(Mark.FIRST), lines.get(Mark.SECOND)


def simulated(one: Litmus) -> Witness | None:
    """Return what the first schedule that fails shows."""
    run = one.launches[-1]
    launch = simulate.Launch(run.grid, dict(run.params))
    found = (simulate.witness(kernel_of(one), launch, seed=seed) for seed in range(SCHEDULES))
    return next((witness for witness in found if witness is not None), None)


def explored(one: Litmus) -> Witness | None:
    """Return the way on which the explorer finds the fault."""
    run = one.launches[-1]
    return explore.witness(kernel_of(one), explore.Launch(run.grid, dict(run.params)))


@pytest.mark.parametrize("name", BLAMED)
def test_the_cause_is_blamed(name: str) -> None:
    """By each judge, whose diagrams have one form: roles as lanes, numbers for expressions."""
    one = by_name(name)
    found = (prove.witness(kernel_of(one)), simulated(one), explored(one))
    assert tuple(map(blamed, found)) == BLAMED[name]
    for witness in found:
        assert witness is not None
        assert set(witness.lanes) == {row.lane for row in witness.rows}
        assert not any(" % " in row.text for row in witness.rows)
    for witness in found[1:]:
        assert witness is not None
        assert witness.trips[-1] == ("gridDim", one.launches[-1].grid)


@pytest.mark.parametrize("name", STATIC)
def test_the_prover_blames_what_needs_no_second_judge(name: str) -> None:
    """Commits, fences, what a semaphore is left at."""
    assert blamed(prove.witness(kernel_of(by_name(name)))) == STATIC[name]


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named(name: str) -> None:
    """Where a reader looks first."""
    found = prove.witness(kernel_of(by_name(name)))
    assert found is not None
    assert MISSING[name] in found.nearest


def test_a_wait_that_passes_at_once_is_shown_before_the_read() -> None:
    """It is the cause: its parity is that of the phase before."""
    found = prove.witness(kernel_of(by_name("full_parity_flipped")))
    assert found is not None
    assert [(row.line, row.note) for row in found.rows] == [
        (15, "passes: no phase has run yet"),
        (16, ""),
    ]


def test_a_parity_fault_names_the_thread_that_is_a_phase_off() -> None:
    """And for which phase it would wait."""
    says = [
        finding.witness
        for finding in prove.prove(kernel_of(by_name("observer_is_lapped"))).findings
        if finding.kind == "parity"
    ]
    assert len(says) == 1
    assert "before the wait k=0 (line 21) by lane 0 of warp 1 (use1) has seen phase 0" in says[0]
    assert "would wait for phase 2 then" in says[0]


def test_nothing_outside_of_loops_is_said_of_trips() -> None:
    """A kernel without loops has none."""
    (finding,) = prove.prove(kernel_of(by_name("turn_never_released"))).findings
    assert finding.witness.startswith("`block_serialize_wait(")
