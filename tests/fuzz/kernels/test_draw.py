"""Templates: the same for the same seed, an equal share of families, legal without a fault."""

from collections import Counter
from functools import cache
from random import Random

import pytest

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.draw import Subject, draw, subject
from fuzz.kernels.template import FAMILIES
from fuzz.mutation.operators import LATE
from oracles.simulator import simulate
from oracles.verdict import Status


@cache
def drawn_once(index: int) -> Subject:
    """A kernel of seed 0."""
    return draw(0, index)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unfaulted_template_is_a_legal_kernel(family: str) -> None:
    """What is illegal from the start says nothing of faults."""
    for seed in range(25):
        kernel = FAMILIES[family](Random(seed)).kernel
        validate(kernel, final=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unfaulted_template_runs(family: str) -> None:
    """No adversarial schedule breaks it, for any of its launches."""
    template = FAMILIES[family](Random(2))
    for grid, params in subject(template, family).launches[:5]:
        launch = simulate.Launch(grid, params)
        verdict = simulate.search(template.kernel, launch, schedules=2)
        assert verdict.status is not Status.FAIL, verdict


def test_a_seed_and_an_index_give_one_kernel() -> None:
    """A disagreement is replayed by two numbers."""
    one_round = range(len(FAMILIES))
    assert [text(draw(7, i).kernel) for i in one_round] == [
        text(draw(7, i).kernel) for i in one_round
    ]
    assert text(draw(7, 0).kernel) != text(draw(8, 0).kernel)


def test_families_have_equal_shares_and_faults_are_told() -> None:
    """Neither a family nor a number of faults may starve."""
    drawn = [drawn_once(i) for i in range(6 * len(FAMILIES))]
    assert Counter(s.family for s in drawn) == dict.fromkeys(FAMILIES, 6)
    assert {len(s.faults) for s in drawn} == {0, 1, 2, 3}
    for one in drawn:
        assert bool(one.hazards) <= bool(one.faults)


def test_a_faulty_kernel_is_one_that_validation_accepts() -> None:
    """What validation refuses never reaches a judge."""
    for i in range(44):
        validate(drawn_once(i).kernel, final=True)


def test_a_fault_that_acts_late_has_a_launch_that_is_long_enough() -> None:
    """From step 40 on; the other launches end long before."""
    late = next(
        s for s in (draw(0, i) for i in range(1, 2000, len(FAMILIES))) if "stages" in str(s.faults)
    )
    assert max(params["R"] // 2 for _, params in late.launches) > LATE
    assert sum(params["R"] // 2 > LATE for _, params in late.launches) == 1


def test_families_draw_many_variants() -> None:
    """One kernel judged a thousand times is one kernel."""
    texts = {text(drawn_once(i).kernel) for i in range(6 * len(FAMILIES))}
    assert len(texts) > 55


def test_whole_matmuls_are_drawn_with_all_that_they_have() -> None:
    """What is not drawn is never judged: parts, matrix accesses, operands along M, batches."""
    drawn = [FAMILIES["wgmma"](Random(seed)).kernel for seed in range(40)]
    every = [stmt for kernel in drawn for stmt in kernel.walk()]
    moves = [s for s in every if isinstance(s, kir.Load | kir.Store)]
    products = [s for s in every if isinstance(s, kir.Wgmma)]
    assert any(isinstance(s, kir.Slice) for s in every)
    assert {s.matrix for s in moves} == {s.a_transposed for s in products} == {True, False}
    assert {s.b_transposed for s in products} == {True, False}
    across = {s.transposed for s in moves if s.matrix}
    assert across == {True, False}
    assert {len(s.acc.layout.shape) for s in products} == {2, 3}
    assert {buffer.swizzle for kernel in drawn for buffer in kernel.buffers} >= {0, 32, 128}


def test_launches_cover_the_trip_counts_where_compilers_break() -> None:
    """No trips, one, around the number of slots, and past two turns of the ring."""
    template = FAMILIES["store_ring"](Random(1))
    rows = [params["R"] for _, params in subject(template, "x").launches]
    slots = template.slots
    counts = {0, 1, slots - 1, slots, slots + 1, 2 * slots + 1, 2 * slots + 2}
    assert {row // 2 for row in rows} == counts
