"""What is read off a kernel once: which counts are shared, where variables are read last."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, p, step, trips
from fuser.cookbook.sum import sum_kernel
from fuser.expr import Var, ceildiv
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from fuzz.mutation.operators import drop_each_sync
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.world import World

KERNEL = compiled(linear(), hopper("ping_pong", 3, 1, direct=True, cluster=(2, 1)))


def _opened(kernel: kir.Kernel) -> fixpoint.Exploration:
    return fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default")


def test_states_of_ping_pong_are_few_at_every_depth() -> None:
    """Lengths of earlier tiles multiplied the states: 3049 at three stages, no end at five."""
    found = {s: fixpoint.judge(recipes.ping_pong(stages=s)) for s in (2, 5, 8)}
    assert all(not closed.reason and not closed.violations for closed in found.values())
    assert found[8].states < 200
    assert found[8].states < 4 * found[2].states


def test_only_counts_with_several_uses_are_decided_at_once() -> None:
    """The tiles of `ping_pong` are counted by one loop of a role, the steps anew in each tile."""
    world = _opened(recipes.ping_pong(stages=3)).world
    found = world.code.atoms.found.items()
    assert [str(atom) for atom, number in found if number in world.few] == ["((K + 15) // 16)"]
    assert not _opened(recipes.specialized_ring(3)).world.few


def test_no_verdict_depends_on_counts_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a small count goes wrong, a count for each use does too, and the other way round."""
    kernels = [m.kernel for m in drop_each_sync(recipes.persistent(2))]
    shared = [bool(fixpoint.judge(kernel).violations) for kernel in kernels]
    monkeypatch.setattr(World, "few", {})
    assert shared == [bool(fixpoint.judge(kernel).violations) for kernel in kernels]
    assert any(shared)


def test_threads_with_nothing_left_to_do_are_done() -> None:
    """Lanes that only count along keep nobody waiting and tell no states apart."""
    body = (kir.Let(p, 0), kir.ForLoop(k, trips, (step(p),)))
    idle = _opened(sum_kernel("idle", body, (), (), 128))
    assert idle.explore() == (0, "")


def test_what_a_kernel_requires_bounds_what_is_made_of_it() -> None:
    """A guard that every launch passes was taken to fail: a refutation that no launch shows."""
    m = Var("M")
    kernel = recipes.persistent()
    kernel = replace(kernel, params=(*kernel.params, m), requires=(*kernel.requires, m >= 1))
    code = _opened(kernel).world.code
    for expr, low in ((m, 1), (ceildiv(m, 64), 1), ((m + 8) // 3, 3), (m * m, None), (m - 5, None)):
        number = code.atoms.number(expr)
        assert World(code, "default").least.get(number) == low


def test_barriers_of_cta_0_alone_are_unused_in_the_others() -> None:
    """Every CTA initialises `shared`; only CTA 0 waits there, and the other arrives there."""
    used = _opened(KERNEL).world.used_barriers
    assert {(0, "shared"), (0, "full"), (1, "full"), (1, "empty")} <= used
    assert (1, "shared") not in used


def test_a_position_is_read_until_its_loops_are_over() -> None:
    """By threads that run them; by no others at all, though they set it to 0."""
    world = _opened(KERNEL).world
    for program, reads in zip(world.code.programs, world.last_reads, strict=True):
        assert ("p" in reads) == any(type(i).__name__ == "Enter" for i in program)
        assert reads.get("p", -1) < len(program)


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
