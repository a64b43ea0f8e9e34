"""Other calls of a program are of its class, and none is judged twice."""

from __future__ import annotations

from math import prod

import pytest

from fuser.runtime.classify import classify
from fuzz.campaign.mutants import representative
from fuzz.cases.calls import CALLS, called, named, others
from fuzz.cases.case import compiled, inputs, specs, to_text
from fuzz.cases.params import FAMILIES


@pytest.mark.parametrize("family", ["direct/direct", "norm/direct", "hopper-pipelined/tma"])
def test_other_calls_take_the_same_kernels(family: str) -> None:
    """The same for every process, with other extents, first with other values alone."""
    case = representative(next(f for f in FAMILIES if f.startswith(family.split("/")[0])))
    program = compiled(case)
    found = list(others(case, program))
    assert 3 <= len(found) <= CALLS
    assert all(classify(one.fusion, one.params, specs(one)) == program.shapes for one in found)
    extents = [tuple(one.extents.values()) for one in found]
    assert len(set(extents)) == len(extents)
    assert found[0].extents == case.extents
    assert str(inputs(found[0])[0]) != str(inputs(case)[0])
    assert [one.extents for one in others(case, program)] == [one.extents for one in found]
    assert {one.kind for one in found} == {"integers", "reals"}


def test_smaller_calls_are_those_of_all_that_are_smaller() -> None:
    """Half the elements at most, as the same cases, and more of them."""
    case = representative("direct/tma")
    program = compiled(case)
    most = prod(case.extents.values()) // 2
    found = list(others(case, program, smaller=True))
    assert all(prod(one.extents.values()) <= most for one in found)
    kept = [to_text(one) for one in others(case, program) if prod(one.extents.values()) <= most]
    assert [to_text(one) for one in found][: len(kept)] == kept
    assert kept


def test_a_call_is_found_by_its_words() -> None:
    """As a record has them, behind the name of a kernel; the case itself is no other call."""
    case = representative("direct/tma")
    for other in others(case, compiled(case)):
        found = called(case, f"pointwise0 {named(other)}")
        assert found is not None
        assert to_text(found) == to_text(other)
    for other in others(case, compiled(case), smaller=True):
        found = called(case, f"pointwise0 {named(other)}")
        assert found is not None
        assert to_text(found) == to_text(other)
    assert called(case, "pointwise0 own launch") is None
    assert called(case, "pointwise0 i0=3, reals of seed 12345") is None
