"""Results that are alike but for rounding, and tensors in place of the user's."""

from __future__ import annotations

import pytest
import torch

from fuser.fusion.definition import FusionDefinition
from fuser.runtime.plan import ALIGNED
from fuser.runtime.tuning.outputs import Rounding, scratch_like, spoil, twin


def rounding(op: str, dtype: str) -> Rounding:
    """Of a fusion of one operation."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output({"sum": lambda: fd.ops.sum(x, dims=[1]), "neg": lambda: fd.ops.neg(x),
                   "linear": lambda: fd.ops.linear(x, x)}[op]())  # fmt: skip
    return Rounding(fd.fusion())


@pytest.mark.parametrize(
    ("op", "dtype", "off"),
    [("sum", "f32", 2**-14), ("neg", "bf16", 0.1), ("linear", "bf16", 0.1), ("sum", "f64", 2**-14)],
)
def test_more_than_rounding_is_seen(op: str, dtype: str, off: float) -> None:
    """One element of thousands."""
    alike = rounding(op, dtype)
    want = torch.linspace(-1, 1, 5000, dtype=torch.float32)
    near = want + 2**-20
    far = want.clone()
    far[1234] += off
    assert not alike.differ([near], [want])
    assert "output 0: off by" in alike.differ([far], [want])


@pytest.mark.parametrize("hole", [float("nan"), float("inf")])
def test_a_hole_is_seen(hole: float) -> None:
    """But NaN where NaN is wanted is right."""
    alike, want = rounding("sum", "f32"), torch.ones(100)
    assert not alike.differ([torch.full((3,), hole)], [torch.full((3,), hole)])
    got = want.clone()
    got[99] = hole
    assert alike.differ([got], [want])
    assert alike.differ([want], [got])


def test_numbers_that_no_sum_rounds_are_equal() -> None:
    """Integers and truths; where sums come before, one of thousands may have flipped."""
    want = torch.zeros(5000, dtype=torch.bool)
    got = want.clone()
    got[7] = True
    assert "1 of 5000 elements differ" in rounding("neg", "f32").differ([got], [want])
    assert not rounding("sum", "f32").differ([got], [want])
    assert rounding("sum", "f32").differ([~want], [want])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_what_is_not_written_is_seen(dtype: torch.dtype) -> None:
    """Outputs of a candidate begin wrong, whatever is wanted."""
    alike = rounding("sum", "f32")
    for want in (torch.zeros(40, dtype=dtype), torch.ones(40, dtype=dtype)):
        got = want.clone()
        spoil([got], [want])
        assert alike.differ([got], [want])


def test_a_twin_is_a_tensor_of_the_same_form() -> None:
    """Transposed, with gaps, repeated, at an odd address, empty."""
    whole = torch.rand(40, 60)
    for given in (whole, whole.T, whole[3:, 1::7], whole[0].expand(5, 60), whole[:0], whole[2, 3]):
        copy = twin(given)
        assert torch.equal(copy, given)
        assert copy.stride() == given.stride()
        assert copy.data_ptr() % ALIGNED == given.data_ptr() % ALIGNED or not given.numel()
        if given.numel():
            before = given.clone()
            copy.fill_(7)
            assert torch.equal(given, before)
    odd = whole.view(-1)[1:25].view(4, 6)
    assert scratch_like(odd).data_ptr() % ALIGNED == odd.data_ptr() % ALIGNED
