"""The comparison finds every planted difference and nothing else."""

import pytest
import torch

from fuser.dtype import DType
from oracles.differential import compare
from oracles.reference.evaluate import Expected
from oracles.verdict import Status

F64 = torch.float64


def expected(value: list[float], bound: float = 0.0, *, dtype: DType = DType.F32) -> Expected:
    """Return an Expected of one axis without doubts."""
    tensor = torch.tensor(value, dtype=F64)
    return Expected(tensor, torch.full_like(tensor, bound), tensor.isnan() & False, dtype)


def test_within_the_bound_passes_and_beyond_fails() -> None:
    """The bound is the whole rule of real inputs."""
    want = expected([1.0, 2.0, 3.0], 0.25)
    got = torch.tensor([1.25, 2.0, 2.75])
    assert compare([want], [got], exact=False).status is Status.PASS
    verdict = compare([want], [got + torch.tensor([0.0, 0.5, 0.0])], exact=False)
    assert verdict.status is Status.FAIL
    assert verdict.checked == 3
    assert "1 of 3 elements wrong; worst at [1]: got 2.5, expected 2.0" in str(verdict)
    assert "error/bound 2" in str(verdict)


def test_exact_demands_equality_after_rounding() -> None:
    """A bound that forgives real inputs does not forgive integers."""
    want = expected([257.0, 3.0], 4.0, dtype=DType.BF16)
    right = torch.tensor([256.0, 3.0], dtype=torch.bfloat16)
    assert compare([want], [right], exact=True).status is Status.PASS
    wrong = torch.tensor([258.0, 3.0], dtype=torch.bfloat16)
    assert compare([want], [wrong], exact=True).status is Status.FAIL
    assert compare([want], [wrong], exact=False).status is Status.PASS


@pytest.mark.parametrize("exact", [True, False])
def test_classes_must_agree(exact: bool) -> None:
    """NaN equals NaN, inf equals inf of its sign, and nothing else equals them."""
    special = [torch.nan, torch.inf, -torch.inf, 1.0]
    for here, one in enumerate(special):
        for there, other in enumerate(special):
            verdict = compare([expected([one], 9.0)], [torch.tensor([other])], exact=exact)
            assert (verdict.status is Status.PASS) == (here == there), (one, other)


def test_undecided_elements_are_never_counted_as_right() -> None:
    """Doubt is counted apart; doubt alone is UNKNOWN."""
    want = expected([1.0, 2.0])
    half = Expected(want.value, want.bound, torch.tensor([True, False]), DType.F32)
    verdict = compare([half], [torch.tensor([9.0, 2.0])], exact=False)
    assert (verdict.status, verdict.checked) == (Status.PASS, 1)
    assert "1 elements (50.0%) undecided" in verdict.reason
    none = Expected(want.value, want.bound, torch.tensor([True, True]), DType.F32)
    verdict = compare([none], [torch.tensor([9.0, 2.0])], exact=False)
    assert (verdict.status, verdict.checked) == (Status.UNKNOWN, 0)


def test_shape_dtype_and_count_must_agree() -> None:
    """A result of another form is wrong even if its numbers are right."""
    want = expected([1.0, 2.0])
    for got in (torch.ones(3), torch.ones(2, 1), torch.ones(2, dtype=F64)):
        verdict = compare([want], [got], exact=False)
        assert verdict.status is Status.FAIL
        assert verdict.findings[0].kind == "form"
    assert compare([want], [], exact=False).status is Status.FAIL


def test_empty_outputs_count_as_one_claim() -> None:
    """With extent 0 only shape and dtype can be right."""
    verdict = compare([expected([])], [torch.ones(0)], exact=True)
    assert (verdict.status, verdict.checked) == (Status.PASS, 1)
    assert compare([], [], exact=True).status is Status.UNKNOWN


def test_integers_and_bool_are_always_exact() -> None:
    """Beyond 2**53 a comparison in f64 would see no difference."""
    value = torch.tensor([2**60, -5])
    sure = torch.tensor([False, False])
    want = Expected(value, torch.zeros(2, dtype=F64), sure, DType.I64)
    assert compare([want], [value], exact=False).status is Status.PASS
    assert compare([want], [value + torch.tensor([1, 0])], exact=False).status is Status.FAIL
    flags = Expected(value > 0, torch.zeros(2, dtype=F64), sure, DType.BOOL)
    assert compare([flags], [value > 0], exact=False).status is Status.PASS
    assert compare([flags], [value < 0], exact=False).status is Status.FAIL
