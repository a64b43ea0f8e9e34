"""Results repeat where inputs do; what is said where they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample import often

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition, TensorView
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import (
    Case,
    Value,
    inputs,
    shape_of,
    strides_of,
)
from fuzz.cases.enlarged import repetition
from fuzz.cases.enlarged.call import Enlarged, parallel
from fuzz.cases.enlarged.repetition import fill, folded, judged, repeated, unchanged
from fuzz.cases.strategies import cases
from fuzz.values import exactly, partials
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import Expected, evaluate
from oracles.verdict import Status

FLAT = PointwiseParams((1, 2048), 8, 8, None, "direct", "direct", flat=True)


def filled(large: Enlarged, given: list[Value]) -> list[Value]:
    """Inputs of a larger call, on the CPU."""
    made: list[Value] = []
    for arg, value in zip(large.case.fusion.inputs, given, strict=True):
        if isinstance(arg, TensorView) and isinstance(value, torch.Tensor):
            shape, strides = shape_of(large.case, arg), strides_of(large.case, arg)
            tensor = torch.empty_strided(shape, strides, dtype=value.dtype)
            fill(tensor, value, large.repeats(arg))
            value = tensor
        made.append(value)
    return made


@st.composite
def grown(draw: st.DrawFn) -> tuple[Case, Enlarged]:
    """A case, and a call in which up to three of its extents repeat twice or three times."""
    case = draw(cases())
    times = {name: draw(st.sampled_from([2, 3, 1])) for name in parallel(case.fusion)[:3]}
    return case, Enlarged.of(case, times)


@settings(max_examples=often(400, 80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(grown())
def test_what_is_right_repeats(both: tuple[Case, Enlarged]) -> None:
    """The reference of the repeated inputs is that of the small ones, repeated."""
    case, large = both
    given = inputs(case)
    some, many = (
        evaluate(one.fusion, what, partials(one.params))
        for one, what in ((case, given), (large.case, filled(large, given)))
    )
    slack = 0.0 if exactly(case) else 1e-9  # torch's own sums hang on the shape, in f64
    for tv, small, whole in zip(case.fusion.outputs, some, many, strict=True):
        each = large.repeats(tv)
        open_ = repeated(small.undecided, each)
        assert torch.equal(open_, folded(whole.undecided, each))
        for one, other in ((small.value, whole.value), (small.bound, whole.bound)):
            left, right = folded(other, each)[~open_], repeated(one, each)[~open_]
            torch.testing.assert_close(left, right, rtol=slack, atol=slack, equal_nan=True)


# --- comparing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DType)
def test_inputs_repeat_with_their_gaps(dtype: DType) -> None:
    """As `inputs` would have made them, had they been drawn: strides, and no byte between."""
    fd = FusionDefinition()
    tv = fd.define_tensor(
        ["m", 3, "n"], dtype, contiguity=[False, True, False], stride_order=[0, 2, 1]
    )
    fd.add_output(fd.ops.set(tv))
    case = Case(fd.fusion(), FLAT, {"m": 2, "n": 5}, "integers", 0, gap=3, offset=1)
    large = Enlarged.of(case, {"m": 3, "n": 2})
    (small,) = inputs(case)
    (form,) = inputs(large.case)
    assert isinstance(small, torch.Tensor)
    assert isinstance(form, torch.Tensor)
    before = form.as_strided((form.untyped_storage().size() // form.itemsize,), (1,), 0).clone()
    fill(form, small, large.repeats(case.fusion.tensors[0]))
    assert torch.equal(form.to(torch.float64), small.to(torch.float64).repeat(3, 1, 2))
    assert unchanged(form, small, (3, 1, 2))
    between = torch.ones(len(before), dtype=torch.bool)
    between.as_strided(form.shape, form.stride(), form.storage_offset()).fill_(False)
    after = form.as_strided(before.shape, (1,), 0)
    assert torch.equal(
        *(one.view(torch.uint8).view(len(before), -1)[between] for one in (before, after))
    )
    form[5, 2, 9] = 1 if form[5, 2, 9].item() != 1 else 0
    assert not unchanged(form, small, (3, 1, 2))


def never() -> list[Expected]:
    """A reference that nobody may ask."""
    raise AssertionError("nothing differs")


def reference(
    *outputs: torch.Tensor, bound: float = 0.0, undecided: int = -1
) -> Callable[[], list[Expected]]:
    """A reference whose values are these; one element of each may be undecided."""

    def of(output: torch.Tensor) -> Expected:
        floats = output.dtype.is_floating_point
        dtype = next(one for one in DType if TORCH[one] is output.dtype)
        value = output.to(torch.float64 if floats else torch.int64)
        open_ = (torch.arange(output.numel()) == undecided).view(output.shape)
        return Expected(value, torch.full(output.shape, bound, dtype=torch.float64), open_, dtype)

    return lambda: [of(output) for output in outputs]


def test_numbers_and_empty_tensors_are_their_own_repetition() -> None:
    """The form of every tensor of a case, of which some are never enlarged."""
    for shape, each in (((), ()), ((0, 3), (1, 2)), ((2,), (1,))):
        small = torch.ones(shape)
        large = small.repeat(each) if shape else small.clone()
        verdict = judged([large], [small], [each], never, exact=True)
        assert (verdict.status, verdict.checked) == (Status.PASS, max(large.numel(), 1))
        assert verdict.reason == ""
    wrong, small = torch.zeros(()), torch.ones(())
    (finding,) = judged([wrong], [small], [()], reference(small), exact=True).findings
    assert "first at [], element 0: 0.0, but 1.0 at [] of" in finding.witness


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare a few elements at a time."""
    monkeypatch.setattr(repetition, "BLOCK", 7)


@pytest.mark.usefixtures("in_blocks")
def test_every_element_is_compared_once() -> None:
    """Whatever of it is in a block: each wrong one is found, where it is."""
    small = torch.arange(6.0).reshape(2, 3)
    large = small.repeat(3, 5)
    assert judged([large], [small], [(3, 5)], never, exact=True).checked == 90
    for n in range(90):
        wrong = large.clone()
        wrong.view(-1)[n] = -1.0
        verdict = judged([wrong], [small], [(3, 5)], reference(small), exact=True)
        (finding,) = verdict.findings
        row, col = divmod(n, 15)
        own = [row % 2, col % 3]
        value = float(small[row % 2, col % 3])
        assert finding.witness == (
            f"1 of 90 elements wrong, axes repeated [3, 5] times; first at {[row, col]}, "
            f"element {n}: -1.0, but {value} at {own} of the small call, expected {value}, bound 0"
        )


@pytest.mark.usefixtures("in_blocks")
def test_all_that_is_wrong_is_counted() -> None:
    """Of one output; the others are right."""
    small = torch.arange(5)
    large = small.repeat(9)
    wrong = large.clone()
    wrong[11:40] += 1 << 20
    both = reference(small, small)
    verdict = judged([large, wrong], [small, small], [(9,), (9,)], both, exact=True)
    assert (verdict.oracle, verdict.status, verdict.checked) == ("gpu", Status.FAIL, 90)
    (finding,) = verdict.findings
    assert (finding.kind, finding.where) == ("enlarged", "output 1")
    assert finding.witness == (
        "29 of 45 elements wrong, axes repeated [9] times; first at [11], element 11: 1048577, but "
        "1 at [1] of the small call, expected 1, bound 0"
    )


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn]
)
def test_a_nan_is_like_another_and_so_is_a_zero(dtype: torch.dtype) -> None:
    """Their bits may hang on the order of a sum; any other bit counts."""
    small = torch.tensor([torch.nan, 0.0, 1.0]).to(dtype)
    large = torch.tensor([torch.nan, -0.0, 1.0]).to(dtype).repeat(2)
    assert judged([large], [small], [(2,)], never, exact=True).status is Status.PASS
    for n in range(6):
        for other in (2.0, 1.125 if n % 3 == 2 else torch.inf):
            wrong = large.clone()
            wrong[n] = torch.tensor(other).to(dtype)
            verdict = judged([wrong], [small], [(2,)], reference(small), exact=True)
            assert verdict.status is Status.FAIL


@pytest.mark.usefixtures("in_blocks")
def test_where_reals_round_elsewhere_the_reference_judges() -> None:
    """Sums in another order have other bits, and are right; what is undecided is not counted."""
    small = torch.tensor([1.0, 2.0, 3.0])
    large = torch.tensor([1.0, 2.0, 3.0000002]).repeat(4)
    close = reference(small, bound=1e-6)
    verdict = judged([large], [small], [(4,)], close, exact=False)
    assert (verdict.status, verdict.checked) == (Status.PASS, 12)
    assert verdict.reason == "4 elements have other bits than those of the small call"
    assert judged([large], [small], [(4,)], close, exact=True).status is Status.FAIL
    large[7] = 0.0
    (finding,) = judged([large], [small], [(4,)], close, exact=False).findings
    assert finding.witness == (
        "1 of 12 elements wrong, axes repeated [4] times; first at [7], element 7: 0.0, but 2.0 at "
        "[1] of the small call, expected 2.0, bound 1e-06"
    )
    open_ = reference(small, bound=1e-6, undecided=1)
    verdict = judged([large], [small], [(4,)], open_, exact=False)
    assert (verdict.status, verdict.checked) == (Status.PASS, 8)


def test_where_nothing_is_decided_nothing_is_claimed() -> None:
    """An integer divided by zero may be any, and another one in a larger call."""
    small, large = torch.tensor([7]), torch.tensor([7, 8, 9])
    open_ = reference(small, undecided=0)
    assert judged([large], [small], [(3,)], open_, exact=True).status is Status.UNKNOWN
