"""Cases at extents that people have."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hypothesis import given, settings
from product_kernels import PIPELINED
from sample import often

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, by_default, shape_of, symbols, to_text
from fuzz.cases.enlarged.usual import ELEMENTS, LONGEST, SHORTEST, usual
from fuzz.cases.strategies import cases

FD = FusionDefinition()
X, W = (FD.define_tensor([n, "k"], "bf16") for n in "mn")
FD.add_output(FD.ops.linear(X, W))
LINEAR = FD.fusion()
M, K, N = symbols(LINEAR)
SMALL = Case(LINEAR, PIPELINED, {M: 8, N: 24, K: 40}, "integers", 0)


@settings(max_examples=often(60, 200), deadline=None)
@given(cases())
def test_extents_grow_to_multiples(case: Case) -> None:
    """What a fusion asks of extents, they still have; the same every time."""
    found, again = usual(case), usual(case)
    if found is None:
        assert again is None
        return
    assert again is not None
    larger = found.case
    assert again.case.extents == larger.extents != case.extents
    assert to_text(larger) == to_text(replace(case, extents=larger.extents))
    assert max(prod(shape_of(larger, tv)) for tv in case.fusion.tensors) <= ELEMENTS
    for name, n in case.extents.items():
        assert larger.extents[name] % max(n, 1) == 0
        assert larger.extents[name] <= max(n, LONGEST + n)


def test_extents_are_of_all_sizes_and_odd_multiples_among_them() -> None:
    """Those of a hundred seeds."""
    every = [usual(replace(SMALL, seed=seed)) for seed in range(100)]
    rows = [larger.case.extents[M] // 8 for larger in every if larger is not None]
    assert min(rows) <= 2 * SHORTEST // 8
    assert max(rows) >= LONGEST // 2 // 8
    assert 30 <= sum(n % 2 for n in rows) <= 70


def test_smaller_cases_of_a_failure_keep_the_extents() -> None:
    """About: whatever the extents of the case become, and the other axes."""
    for seed in range(9):
        wide, narrow = (
            usual(replace(SMALL, seed=seed, extents={M: 8, N: n, K: 40})) for n in (24, 8)
        )
        assert wide is not None
        assert narrow is not None
        assert abs(wide.case.extents[N] - narrow.case.extents[N]) <= 48
        assert wide.case.extents[M] == narrow.case.extents[M]


def test_what_has_no_elements_stays_so() -> None:
    """No multiple of nothing is anything; nor do numbers grow."""
    assert usual(replace(SMALL, extents={M: 0, N: 0, K: 0})) is None
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor(shape=[4, 8], dtype="f32")))
    params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
    assert usual(Case(fd.fusion(), params, {}, "integers", 0)) is None


def test_other_schedules_are_chosen_than_for_small_extents() -> None:
    """Else nothing would be built that small extents do not show."""
    made = {str(by_default(SMALL).launches[0].params)}
    for seed in range(12):
        larger = usual(replace(SMALL, seed=seed))
        assert larger is not None
        made.add(str(by_default(larger.case).launches[0].params))
    assert len(made) >= 6
