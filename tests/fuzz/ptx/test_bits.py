"""Bits against a GPU's: what is equal, what the ISA leaves open, what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fake_hardware import Fake

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, to_text
from fuzz.cases.strategies import REDUCTIONS
from fuzz.ptx.bits import OUTCOMES, Told, compare, shown, unequal
from fuzz.ptx.hardware import Memory
from oracles.ptx.machine import WORK
from oracles.ptx.sums import Core

DIRECT = PointwiseParams((1, 256), 2, 4, None, "direct", "direct")


def pointwise(op: str, kind: str = "reals") -> Case:
    """Return a case of one operation."""
    fd = FusionDefinition()
    fd.add_output(getattr(fd.ops, op)(fd.define_tensor(shape=["n"], dtype="f32")))
    return Case(fd.fusion(), DIRECT, {"n": 1000}, "integers" if kind == "integers" else "reals", 2)


def product(*, kind: str = "reals") -> Case:
    """Return a case of a product of 16-bit floats."""
    fd = FusionDefinition()
    a = fd.define_tensor(shape=["m", "k"], dtype="f16")
    b = fd.define_tensor(shape=["k", "n"], dtype="f16")
    fd.add_output(fd.ops.cast(fd.ops.matmul(a, b), dtype="f32"))
    params = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False)
    extents = {"m": 64, "k": 128, "n": 64}
    return Case(fd.fusion(), params, extents, "integers" if kind == "integers" else "reals", 1)


def first_bit(memory: Memory, fused: bool) -> None:
    """Change the last bit of the first element of every output, but for what is read."""
    del fused
    for name, one in memory.items():
        if name.startswith("T1"):
            one.view(torch.int32)[0] ^= 1


def told(case: Case, hardware: Fake) -> Told:
    """Compare a case."""
    return compare(to_text(case), hardware, WORK)


def test_what_is_exact_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaNs among it, and every element is counted."""
    said = told(pointwise("relu"), Fake(monkeypatch))
    assert (said.outcome, said.elements, said.launches) == ("equal", {"equal": 1000}, 1)
    assert {*said.seconds} == {"compiler", "judge", "GPU"}


def test_approximate_functions_are_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the results of the GPU all is equal; some elements are so without them."""
    said = told(pointwise("tanh"), Fake(monkeypatch))
    assert said.outcome == "inside"
    assert "approx" in said.reason
    assert {*said.elements} == {"equal", "inside"}
    assert sum(said.elements.values()) == 1000


def test_a_result_that_is_too_far_off_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an approximate instruction."""
    fake = Fake(monkeypatch)
    monkeypatch.setattr(
        fake, "evaluate", lambda opcode, given: Fake.evaluate(fake, opcode, given) * 2
    )
    said = told(pointwise("tanh"), fake)
    assert said.outcome == "judged wrong"
    assert "interval" in said.reason


def test_a_bit_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what both have."""
    said = told(pointwise("relu", "integers"), Fake(monkeypatch, change=first_bit))
    assert (said.outcome, said.elements) == ("different", {"equal": 999, "different": 1})
    assert said.reason.startswith("pointwise0: 1 of 1000 of T1: [0] 0x")


def test_what_the_assembler_fuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is equal where it is told not to."""

    def change(memory: Memory, fused: bool) -> None:
        if fused:
            first_bit(memory, fused)

    said = told(pointwise("relu"), Fake(monkeypatch, change=change))
    assert (said.outcome, said.elements) == ("fused", {"equal": 999, "fused": 1})


def test_tensor_cores_round_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another core than was thought of leaves it undecided; sums of integers are exact for all."""
    said = told(product(), Fake(monkeypatch, sums=Core()))
    assert said.outcome == "summed"
    assert {*said.elements} == {"equal", "summed"}
    odd = Fake(monkeypatch, sums=Core(bits=8))
    said = told(product(), odd)
    assert said.outcome == "undecided"
    assert said.elements["undecided"] > 1000
    assert told(product(kind="integers"), odd).outcome == "equal"


def test_a_difference_of_exact_sums_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a tensor core has made them."""

    def change(memory: Memory, fused: bool) -> None:
        del fused
        max(memory.values(), key=torch.Tensor.element_size).view(torch.int32)[5] ^= 1

    said = told(product(kind="integers"), Fake(monkeypatch, change=change))
    assert (said.outcome, said.elements["different"]) == ("different", 1)


def test_kernels_that_follow_begin_with_what_the_gpu_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the first one's difference is not theirs; behind one all ends."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["m", "n"], dtype="f32")
    total = fd.ops.sum(x, dims=[0, 1])
    fd.add_output(fd.ops.sub(x, fd.ops.broadcast(total, is_broadcast_dim=[True, True])))
    case = Case(fd.fusion(), REDUCTIONS, {"m": 33, "n": 65}, "integers", 1)
    said = told(case, Fake(monkeypatch))
    assert said.outcome == "equal"
    assert said.launches > 1

    def change(memory: Memory, fused: bool) -> None:
        for name, one in memory.items():
            if "sum" in name:
                one.view(torch.int32)[0] ^= fused

    said = told(case, Fake(monkeypatch, change=change))
    assert said.outcome == "fused"
    assert said.elements["fused"] == 2  # behind each kernel one, and all others are equal
    assert "different" not in said.elements


def test_what_is_not_compared_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, or too long."""
    case = replace(pointwise("relu"), params=replace(DIRECT, load="tma"), offset=1)
    assert told(case, Fake(monkeypatch)).outcome == "refused"
    said = compare(to_text(pointwise("relu")), Fake(monkeypatch), 1)
    assert (said.outcome, said.elements) == ("unknown", {})
    assert "too long" in said.reason


def test_the_worst_outcome_is_that_of_a_case() -> None:
    """And has its reason."""
    one = Told()
    for outcome in ("inside", "different", "fused"):
        one.add(outcome, 1, outcome)
    one.add("judged wrong", 0, "none")
    assert (one.outcome, one.reason) == ("different", "different")
    assert {*one.elements} < {*OUTCOMES}


def test_nans_are_equal_and_zeros_have_signs() -> None:
    """Of every type; tensors that share memory are looked at once."""
    a = torch.tensor([float("nan"), 0.0, 1.0])
    b = torch.tensor([0x7FFFFFFF, -0x80000000, 0x3F800000], dtype=torch.int64).to(torch.int32)
    mine, theirs = {"a": a, "b": a}, {"a": b.view(torch.float32), "b": b.view(torch.float32)}
    found = unequal(mine, theirs)
    assert {name: one.tolist() for name, one in found.items()} == {"a": [False, True, False]}
    assert shown(found, mine, theirs) == "1 of 3 of a: [1] 0x0.0p+0 and -0x0.0p+0"
    whole = {"n": torch.tensor([1, 2])}
    assert shown(unequal(whole, {"n": torch.tensor([1, 3])}), whole, {"n": torch.tensor([1, 3])})
    f8 = torch.tensor([0x7F, 0xFF, 0x10], dtype=torch.uint8).view(torch.float8_e4m3fn)
    other = torch.tensor([0xFF, 0x7F, 0x11], dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert unequal({"x": f8}, {"x": other})["x"].tolist() == [False, False, True]
