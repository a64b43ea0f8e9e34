"""Compositions are torch's functions: results, types, special values, refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import composed
import moved
import pytest
import torch
from composed import COMPOSED

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.definition import FusionDefinition, Ops, to_python
from fuser.fusion.ops import COMPOSITIONS
from oracles.reference.estimate import EPS, TORCH
from oracles.reference.evaluate import evaluate

WAYS = [(name, dtype) for name, one in COMPOSED.items() for dtype in one.takes]


def agree(name: str, inputs: list[torch.Tensor], *, decided: float) -> None:
    """Compare the reference of a fusion with torch's function of the same numbers in f64."""
    fusion = composed.fusion(name, inputs)
    got, want = evaluate(fusion, inputs), composed.wanted(name, inputs)
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.value.shape == other.shape
        sure = ~one.undecided
        assert sure.double().mean() >= decided or not sure.numel()
        value, other = one.value.double(), other.double()
        last = 1e-10 if one.dtype is DType.F64 else EPS.get(one.dtype, 0.0)
        near = (value - other).abs() <= one.bound + last * (1e-2 + other.abs())
        same = (value == other) | (value.isnan() & other.isnan())
        assert bool((near | same | one.undecided).all()), (value, other)


def test_every_composition_is_compared() -> None:
    """By a row of its name; others by files of their own, of random numbers and of blocks."""
    made = {*COMPOSED, *moved.MOVED, "rand", "dropout", "native_group_norm", "group_norm_backward"}
    assert {name.split(",")[0] for name in made} >= set(COMPOSITIONS)


@pytest.mark.parametrize(("name", "dtype"), WAYS)
def test_results_are_torchs(name: str, dtype: str) -> None:
    """On halves from -4 to 4."""
    agree(name, composed.given(name, (6, 5), dtype), decided=0.99)


@pytest.mark.parametrize(("name", "dtype"), WAYS)
def test_special_values_are_torchs(name: str, dtype: str) -> None:
    """NaN, infinities, zeros of both signs, a subnormal, and numbers whose exp is inf in f16."""
    agree(name, composed.given(name, (41, 37), dtype, special=True), decided=0.9)


@pytest.mark.parametrize("shape", [(0, 5), (5, 1), (1, 5)])
@pytest.mark.parametrize("name", COMPOSED)
def test_small_results_are_torchs(name: str, shape: tuple[int, int]) -> None:
    """No rows, or one element to reduce; where torch refuses, there is nothing to compare."""
    inputs = composed.given(name, shape, "f64")
    try:
        composed.wanted(name, inputs)
    except (RuntimeError, IndexError):
        pytest.skip("torch refuses it")
    agree(name, inputs, decided=0.0)


@pytest.mark.parametrize(("name", "dtype"), WAYS)
def test_types_are_torchs(name: str, dtype: str) -> None:
    """As torch returns them on a GPU, where statistics of 16 bits are f32."""
    inputs = composed.given(name, (4, 4), dtype)
    made = COMPOSED[name].torchs(*inputs)
    outputs = composed.fusion(name, inputs).outputs
    for nth, (one, other) in enumerate(
        zip(outputs, made if isinstance(made, tuple) else (made,), strict=True)
    ):
        kept = nth and name.startswith("native") and one.dtype is DType.F32
        assert kept or TORCH[one.dtype] == other.dtype


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_what_rms_norm_adds_is_torchs(dtype: str) -> None:
    """Where nothing is said: the last bit of the type of arithmetic, not of the elements."""
    x = torch.tensor([[1e-3, 2e-3]]).to(TORCH[DType.of(dtype)])
    fd = FusionDefinition()
    fd.add_output(fd.ops.rms_norm(fd.define_tensor([1, 2], dtype), [1]))
    (got,) = evaluate(fd.fusion(), [x])
    torch.testing.assert_close(
        got.value.to(x.dtype), torch.nn.functional.rms_norm(x, [2]), rtol=1e-2, atol=0
    )


@pytest.mark.parametrize("name", COMPOSED)
def test_the_python_text_makes_an_equal_fusion(name: str) -> None:
    """It names the operations that were recorded."""
    fusion = composed.fusion(name, composed.given(name, (4, 3), "f32"))
    names: dict[str, Any] = {}
    exec(to_python(fusion), names)
    assert str(names["fusion"]) == str(fusion)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_garbage_is_refused_properly(name: str) -> None:
    """In every place, in the words of the call."""
    parameters = list(inspect.signature(getattr(Ops, name)).parameters)[1:]
    refusals: list[str] = []
    for bad in (None, "x", [], {}, 1.5, object(), [None], b"y", 2**80):
        for place in range(len(parameters)):
            fd = FusionDefinition()
            args: list[Any] = [fd.define_tensor(["m", 8], "f32")] * len(parameters)
            args[place] = bad
            try:
                getattr(fd.ops, name)(*args)
            except FusionError as error:
                refusals.append(str(error))
    assert refusals
    assert all(text.startswith(f"{name}(") for text in refusals)


Call = Callable[[Ops, Any, Any], object]

REFUSALS: list[tuple[Call, str]] = [
    (lambda o, x, i: o.softmax(i, [1]), r"softmax\(T1, \[1\]\): T1 is i32; cast it to f32 first"),
    (
        lambda o, x, i: o.softmax(x, [2]),
        r"softmax\(T0, \[2\]\): max\(T0, dims=\[2\]\): .* pick one",
    ),
    (lambda o, x, i: o.var(i, [0]), r"var\(T1, \[0\]\): .*T1 is i32; cast it to f32 first"),
    (lambda o, x, i: o.tril(o.max(x, [0])), r"tril\(T2\): T2 has 1 axes; give it two or more"),
    (lambda o, x, i: o.layer_norm(x, [1], x), r"T0 has 2 axes, 1 are named; give it those"),
    (lambda o, x, i: o.rms_norm(x, [1], o.full([4], 1.0, "f32")), r"differ; make each pair"),
    (lambda o, x, i: o.argmax(o.cast(x, "f64"), 0), r"computed in f64.*cast it to f32 first"),
    (lambda o, x, i: o.cross_entropy(x, x), r"T0 is f32 with 2 axes; name classes by integers"),
    (
        lambda o, x, i: o.cross_entropy(x, o.max(i, [1]), "max"),  # type: ignore[arg-type]
        r"there is no reduction 'max'; use \"mean\"",
    ),
]


@pytest.mark.parametrize(("call", "says"), REFUSALS, ids=[says[:30] for _, says in REFUSALS])
def test_mistakes_are_refused_with_a_way_out(call: Call, says: str) -> None:
    """The call as written, what is wrong, the way out."""
    fd = FusionDefinition()
    x, i = fd.define_tensor(["m", 8], "f32"), fd.define_tensor(["m", 8], "i32")
    with pytest.raises(FusionError, match=says):
        call(fd.ops, x, i)
