"""What can be read off programs: where variables are read last, which barriers are used."""

from __future__ import annotations

import time

from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.code import last_reads, used_barriers
from oracles.prover.reachability.ctas import readings

KERNEL = compiled(linear(), hopper("ping_pong", 3, 1, direct=True, cluster=(2, 1)))


def test_barriers_of_cta_0_alone_are_unused_in_the_others() -> None:
    """Every CTA initialises `shared`; only CTA 0 waits there, and the other arrives there."""
    code = fixpoint.opened(KERNEL, next(iter(readings(KERNEL))), policy="default").world.code
    used = used_barriers(code)
    assert {(0, "shared"), (0, "full"), (1, "full"), (1, "empty")} <= used
    assert (1, "shared") not in used


def test_a_position_is_read_until_its_loops_are_over() -> None:
    """By threads that run them; by no others at all, though they set it to 0."""
    code = fixpoint.opened(KERNEL, next(iter(readings(KERNEL))), policy="default").world.code
    for program in code.programs:
        runs = any(type(i).__name__ == "Enter" for i in program)
        assert ("p" in last_reads(program)) == runs
        assert last_reads(program).get("p", -1) < len(program)


def test_states_of_a_cluster_do_not_multiply_with_its_slots() -> None:
    """Idle threads, unused barriers and single arrivals do not keep rings from turning."""
    states = []
    for stages in (2, 3, 4):
        made = compiled(linear(), hopper("ping_pong", stages, 0, direct=True, cluster=(2, 1)))
        begun = time.perf_counter()
        closed = fixpoint.judge(made)
        assert not closed.violations
        assert time.perf_counter() - begun < 20
        states.append(closed.states)
    assert states[2] < 2 * states[0], states
