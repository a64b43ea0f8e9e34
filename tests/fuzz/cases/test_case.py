"""A Case holds everything that a bug needs."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import SMALL, Case, Kind, case_id, from_text, inputs, specs, to_text
from fuzz.cases.strategies import cases

PARAMS = PointwiseParams((1, 64), 4, 1, None, "direct", "direct")


def case(**changes: object) -> Case:
    """A case with a transposed input with gaps, and a scalar."""
    fd = FusionDefinition()
    x = fd.define_tensor(["i0", "i1"], "f16", contiguity=[False, True], stride_order=[0, 1])
    s = fd.define_scalar("f32")
    fd.add_output(fd.ops.mul(x, s))
    made = Case(fd.fusion(), PARAMS, {"i0": 3, "i1": 5}, "integers", 7, gap=2, offset=1)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]  # any field


@given(cases())
@settings(max_examples=40, deadline=None)
def test_a_case_and_its_text_are_the_same_case(drawn: Case) -> None:
    """A repro shows the bug only if its text makes the case again."""
    again = from_text(to_text(drawn))
    assert to_text(again) == to_text(drawn)
    assert (again.extents, again.params) == (drawn.extents, drawn.params)


def test_a_case_without_params_is_refused() -> None:
    """It had a text that could not be read again."""
    with pytest.raises(ValueError, match=r"Case\(params=None\): .*; give params of the other kind"):
        case(params=None)


def test_the_id_is_stable_and_follows_the_text() -> None:
    """Ledgers of different days and machines must call the same case by the same name."""
    assert case_id("") == "e3b0c44298fc"
    assert case_id(to_text(case())) == case_id(to_text(case()))
    assert case_id(to_text(case())) != case_id(to_text(case(seed=8)))


def test_inputs_follow_the_declared_strides_with_gaps_of_poison() -> None:
    """A kernel that reads a gap, or past the end, must meet NaN there."""
    x, scalar = inputs(case())
    assert isinstance(x, torch.Tensor)
    assert isinstance(scalar, float)
    # Axis 0 is the fastest and has gaps: neighbours are 1 + 2 elements apart.
    assert x.shape == (3, 5)
    assert x.stride() == (3, 9)
    assert x.storage_offset() == 1
    everything = x.as_strided((1 + 2 * 3 + 4 * 9 + 1,), (1,), 0)
    assert int(everything.isnan().sum()) == everything.numel() - x.numel()
    assert specs(case())["T0"].strides == x.stride()


def test_the_same_case_has_the_same_inputs_and_each_turn_others() -> None:
    """A replay is exact; a second launch must not meet the values of the first."""
    first, again, other = (inputs(case(), turn=turn)[0] for turn in (0, 0, 1))
    assert isinstance(first, torch.Tensor)
    assert isinstance(again, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_integers_are_small_and_whole() -> None:
    """Only then is equality with the reference a fair demand."""
    x = inputs(case(extents={"i0": 40, "i1": 50}))[0]
    assert isinstance(x, torch.Tensor)
    assert torch.equal(x, x.round())
    assert float(x.abs().max()) == SMALL


@pytest.mark.parametrize("seed", [6, 7])
def test_reals_of_every_other_seed_hold_special_values(seed: int) -> None:
    """NaN and infinities take other paths through the device functions, and hide other faults."""
    x = inputs(case(kind="reals", extents={"i0": 60, "i1": 60}, seed=seed))[0]
    assert isinstance(x, torch.Tensor)
    assert [bool(x.isnan().any()), bool(x.isinf().any())] == [seed % 2 == 0] * 2


@pytest.mark.parametrize("seed", [6, 7])
@pytest.mark.parametrize("kind", ["integers", "reals"])
def test_indices_are_places_that_there_are_mostly(kind: Kind, seed: int) -> None:
    """Of all that they index; where all lie outside nothing is compared, and some do."""
    fd = FusionDefinition()
    x, y = fd.define_tensor(["i0", "i1"], "f32"), fd.define_tensor(["i1", "i2"], "f32")
    where, other = fd.define_tensor(["i3"], "i32"), fd.define_tensor(["i3"], "i64")
    fd.add_output(fd.ops.index_select(x, 1, where))
    fd.add_output(fd.ops.index_select(y, 1, where))
    fd.add_output(fd.ops.index_select(y, 0, fd.ops.abs(other)))
    extents = {"i0": 2, "i1": 9, "i2": 3, "i3": 400}
    _, _, found, computed = inputs(case(fusion=fd.fusion(), extents=extents, kind=kind, seed=seed))
    assert isinstance(found, torch.Tensor)
    assert isinstance(computed, torch.Tensor)
    inside = (found >= 0) & (found < 3)
    assert {*found[inside].tolist()} == {0, 1, 2}
    assert bool(inside.all()) == bool(seed % 2)
    assert inside.sum() > 0.8 * len(found)
    assert int(computed.min()) < 0


def test_a_single_index_is_a_place_that_there_is() -> None:
    """Nothing would be compared of most of a product."""
    fd = FusionDefinition()
    x, where = fd.define_tensor(["i0", 3], "f32"), fd.define_tensor(["i1"], "i32")
    fd.add_output(fd.ops.index_select(x, 0, where))
    extents = {"i0": 2, "i1": 1}
    every = [inputs(case(fusion=fd.fusion(), extents=extents, seed=2 * n))[1] for n in range(40)]
    assert {int(one) for one in every} == {0, 1}
