"""Reductions: torch's shapes and types, what they are written as, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.definition import Fusion, FusionDefinition, to_python
from fuser.fusion.ops import reduced_axes
from oracles.reference.evaluate import evaluate

OPS = ("sum", "prod", "mean", "max", "min")
TORCH = {"sum": "sum", "prod": "sum", "mean": "mean", "max": "amax", "min": "amin"}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", [[0], [1], [-1], [0, 2], [2, 0, 1]])
@pytest.mark.parametrize("op", OPS)
def test_shapes_are_torchs(op: str, dims: list[int], *, keepdim: bool) -> None:
    """In any order, from either end."""
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3, 4], "f32")
    made = getattr(fd.ops, op)(x, dims, keepdim=keepdim)
    want = getattr(torch, TORCH[op])(torch.empty(2, 3, 4), dims, keepdim=keepdim).shape
    assert made.shape == tuple(want)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "i64", "i32", "bool"])
def test_types_are_torchs(dtype: str) -> None:
    """Integers and bool are added up in i64."""
    fd = FusionDefinition()
    x = fd.define_tensor(["n"], dtype)
    zeros = torch.zeros(3, dtype=getattr(torch, DType.of(dtype).torch_name))
    assert fd.ops.sum(x, [0]).dtype.torch_name == str(zeros.sum(0).dtype).split(".")[1]
    assert fd.ops.prod(x, [0]).dtype.torch_name == str(zeros.prod(0).dtype).split(".")[1]
    assert fd.ops.max(x, [0]).dtype is x.dtype
    if x.dtype.is_float:
        assert fd.ops.mean(x, [0]).dtype is x.dtype


def test_axes_of_one_element_are_not_reduced() -> None:
    """They are dropped, like those that squeeze drops."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", 1, "n"], "f32")
    assert reduced_axes(fd.ops.sum(x, [1])) == ()
    assert reduced_axes(fd.ops.sum(x, [1, 2])) == (2,)
    assert reduced_axes(fd.ops.relu(x)) == ()


def all_ways() -> Fusion:
    """Every reduction, with and without what may be left out."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.sum(x, [1], keepdim=True, dtype="f32"))
    fd.add_output(fd.ops.mean(x, [1], correction=1))
    for op in OPS:
        fd.add_output(getattr(fd.ops, op)(x, [0]))
    return fd.fusion()


@pytest.mark.parametrize(("shape", "axis"), [(["i0", 1], 1), ([1], 0), (["i0", 1, 4], 1)])
def test_of_one_element_none_is_left_when_one_is_taken_off(
    shape: list[str | int], axis: int
) -> None:
    """Also where the axis is declared so: its variance was 0, torch's is NaN."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape, "f32")
    fd.add_output(fd.ops.mean(x, [axis], correction=1))
    fd.add_output(fd.ops.var(x, [axis]))
    given = torch.randn([4 if n == "i0" else int(n) for n in shape])
    mean, var = evaluate(fd.fusion(), [given])
    wanted = given.double().squeeze(axis) / 0
    torch.testing.assert_close(mean.value, wanted, equal_nan=True)
    assert var.value.isnan().all()


def test_the_python_text_makes_an_equal_fusion() -> None:
    """So that a case can be kept as text."""
    names: dict[str, Any] = {}
    exec(to_python(all_ways()), names)
    assert str(names["fusion"]) == str(all_ways())


@pytest.mark.parametrize(
    ("op", "dtype", "how", "says"),
    [
        ("sum", "f32", {"dims": []}, "no axis is named; name one in dims, or use set"),
        ("sum", "f32", {"dims": [2]}, "none is axis 2"),
        ("sum", "f32", {"dims": [0, -2]}, "name one axis twice"),
        ("sum", "f32", {"dims": [0], "dtype": "bf16"}, "sums of f32 are f64 or f32; cast"),
        ("sum", "i32", {"dims": [0], "dtype": "f32"}, "sums of i32 are i64; cast T0 or the sum"),
        ("sum", "i32", {"dims": [0], "dtype": "f3"}, "f3"),
        ("sum", "i8", {"dims": [0]}, "T0 is i8; cast to one of"),
        ("sum", "f8e4m3", {"dims": [0]}, "T0 is f8e4m3; cast to one of"),
        ("mean", "i32", {"dims": [0]}, "T0 is i32; cast it to f32 first"),
        ("prod", "i64", {"dims": [0], "dtype": "f32"}, "prods of i64 are i64; cast T0"),
        ("mean", "f32", {"dims": [0], "correction": -1}, "correction -1 is no number of elements"),
        ("max", "i8", {"dims": [0]}, "T0 is i8; cast to one of"),
        ("min", "f8e5m2", {"dims": [0]}, "T0 is f8e5m2; cast to one of"),
    ],
)
def test_a_wrong_reduction_is_refused(op: str, dtype: str, how: dict[str, Any], says: str) -> None:
    """In the words of the call, with the way out."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    with pytest.raises(FusionError, match=rf"^{op}\(T0, .*{says}"):
        getattr(fd.ops, op)(x, **how)
