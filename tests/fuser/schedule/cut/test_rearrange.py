"""Views move to inputs and results; equal operations are one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ir import tensor_args
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.runtime.call import shape_of
from fuser.schedule.cut.rearrange import rearranged
from oracles.reference.evaluate import evaluate

Define = Callable[[FusionDefinition, TensorView, TensorView], list[TensorView]]


def of(define: Define) -> Fusion:
    """Results of two matrices of 4 x 6."""
    fd = FusionDefinition()
    for tv in define(fd, *(fd.define_tensor([4, 6], "f32") for _ in range(2))):
        fd.add_output(tv)
    return fd.fusion()


def halves(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """Slices of a sum."""
    made = fd.ops.add(x, y)
    return [fd.ops.mul(fd.ops.slice(made, 1, 0, 3), fd.ops.slice(made, 1, 3))]


def turned(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """Halves that change places, as in rotary positions."""
    parts = [fd.ops.neg(fd.ops.slice(x, 1, 3)), fd.ops.slice(x, 1, 0, 3)]
    return [fd.ops.add(fd.ops.mul(fd.ops.cat(parts, 1), y), x)]


def flat(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """A result under other axes, and a row for all."""
    wide = fd.ops.unflatten(fd.ops.exp(x), 1, [2, 3])
    row = fd.ops.broadcast(fd.ops.slice(y, 0, 1, 2), [False, False, True])
    return [fd.ops.mul(wide, fd.ops.unflatten(fd.ops.squeeze(row, [2]), 1, [2, 3]))]


def joined(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """What is flattened is normalised first."""
    wide = fd.ops.softmax(fd.ops.unflatten(x, 1, [2, 3]), [2])
    return [fd.ops.relu(fd.ops.add(fd.ops.flatten(wide, 1, 2), y))]


def views(fusion: Fusion) -> list[str]:
    """Operations on views of what is computed, and those that take what is put together."""
    known = {"slice", "flatten", "unflatten", "cat"}
    computed = [tv for tv in fusion.tensors if tv.op not in {*known, "input"}]
    below = [f"{tv.op} of {a.op}" for tv in computed for a in tensor_args(tv) if a.op == "cat"]
    return below + [
        f"{tv.op} of {arg.op}"
        for tv in fusion.tensors
        for arg in tensor_args(tv)
        if tv.op in known - {"cat"} and arg in computed and tv not in fusion.outputs
    ]


@pytest.mark.parametrize("define", [halves, turned, flat, joined])
def test_values_stay_and_no_view_is_left_inside(define: Define) -> None:
    """As the reference has them, bit by bit."""
    fusion = of(define)
    moved = rearranged(fusion)
    given = [torch.randn(4, 6, generator=torch.Generator().manual_seed(n)) for n in range(2)]
    for one, other in zip(evaluate(fusion, given), evaluate(moved, given), strict=True):
        assert torch.equal(one.value, other.value)
    assert views(fusion)
    assert not views(moved)
    assert [tv.name for tv in moved.outputs] == [tv.name for tv in fusion.outputs]


def weighted(groups: tuple[int, ...]) -> tuple[Fusion, TensorView]:
    """A product with weights of 4 bits, times numbers of groups of so many, one after the other."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 24], "bf16"), fd.define_tensor([4, 12], "i8")
    made = fd.ops.cast(fd.ops.unpack(w), "bf16")
    for group in groups:
        numbers = fd.ops.permute(fd.define_tensor([24 // group, 4], "bf16"), [1, 0])
        made = fd.ops.mul(made, fd.ops.repeat_interleave(numbers, group, 1))
    made = fd.ops.linear(x, fd.ops.cast(made, "bf16"))
    fd.add_output(made)
    return fd.fusion(), made


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ((), [12, 2]),
        ((4,), [6, 2, 2]),
        ((6,), [4, 3, 2]),
        ((12, 4), [2, 3, 2, 2]),
        ((2,), [12, 2]),
        ((3,), None),
    ],
)
def test_what_is_summed_over_is_told_apart(groups: tuple[int, ...], sizes: list[int]) -> None:
    """By bytes and by numbers; where these lie across each other it stays one axis."""
    fusion, _ = weighted(groups)
    moved = rearranged(fusion, sums=True)
    (product,) = (tv for tv in moved.tensors if tv.op == "mma")
    summed = [axis.extent for axis in roles(product) if axis.role is AxisRole.K]
    assert summed == (sizes or [24])
    assert ("flatten" in [tv.op for tv in moved.tensors]) == (groups == (3,))
    rng = torch.Generator().manual_seed(0)
    given = [
        torch.randint(-128, 128, shape_of(tv, {}), dtype=torch.int8, generator=rng)
        if tv.dtype.name == "i8"
        else torch.randn(shape_of(tv, {}), generator=rng).bfloat16()
        for tv in fusion.inputs
        if isinstance(tv, TensorView)
    ]
    (one,), (other,) = evaluate(fusion, given), evaluate(moved, given)
    assert torch.equal(one.value, other.value)
    plain = rearranged(fusion)
    (product,) = (tv for tv in plain.tensors if tv.op == "mma")
    assert [axis.extent for axis in roles(product) if axis.role is AxisRole.K] == [24]


def test_a_deep_chain_is_walked_once_per_node() -> None:
    """Every tensor is used twice: 2 ** 60 ways lead from the product to the bytes."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([3, 24], "bf16"), fd.define_tensor([4, 12], "i8")
    made = fd.ops.cast(fd.ops.unpack(w), "bf16")
    for _ in range(60):
        made = fd.ops.mul(made, made)
    fd.add_output(fd.ops.linear(x, fd.ops.cast(made, "bf16")))
    (product,) = (tv for tv in rearranged(fd.fusion(), sums=True).tensors if tv.op == "mma")
    assert [axis.extent for axis in roles(product) if axis.role is AxisRole.K] == [12, 2]


def reduced(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """What is put together is reduced: it has to lie in memory."""
    whole = fd.ops.cat([x, y], 0)
    return [fd.ops.sum(fd.ops.relu(whole), [0])]


def sliced(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
    """A part of sums."""
    return [fd.ops.slice(fd.ops.sum(fd.ops.mul(x, y), [0]), 0, 2)]


@pytest.mark.parametrize("define", [reduced, sliced])
def test_what_has_to_be_stored_is_left(define: Define) -> None:
    """Nothing is computed again for it."""
    fusion = of(define)
    assert rearranged(fusion).tensors == fusion.tensors


def test_equal_operations_are_one() -> None:
    """Results keep an operation of their own, and their names."""

    def twice(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
        return [fd.ops.mul(fd.ops.exp(x), y), fd.ops.sub(fd.ops.exp(x), y), fd.ops.exp(x)]

    made = rearranged(of(twice))
    assert [tv.op for tv in made.tensors] == ["input", "input", "exp", "mul", "sub", "exp"]
    assert [tv.name for tv in made.outputs] == ["T3", "T5", "T6"]


def test_what_is_one_stands_where_it_is_first_needed() -> None:
    """Kernels compute in the order of numbers."""

    def again(fd: FusionDefinition, x: TensorView, y: TensorView) -> list[TensorView]:
        flat = [fd.ops.flatten(fd.ops.relu(fd.ops.unflatten(x, 0, [2, 2])), 0, 1) for _ in range(2)]
        made = fd.ops.sub(y, flat[0])
        return [made, fd.ops.slice(fd.ops.add(flat[1], made), 1, 0, 3)]

    for tv in rearranged(of(again)).tensors:
        assert all(arg.number <= tv.number for arg in tensor_args(tv))
