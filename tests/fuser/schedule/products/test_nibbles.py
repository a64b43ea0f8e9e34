"""Numbers of 4 bits are found in what operands are computed from, as they are recorded."""

from __future__ import annotations

import pytest

from fuser.fusion.definition import FusionDefinition, TensorView
from fuser.schedule.domain import Domain
from fuser.schedule.products.nibbles import made_of_bytes, unpacked, uses_places
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Choices


def recorded(way: str) -> tuple[FusionDefinition, TensorView]:
    """Weights [16, 64] in bf16, of bytes [16, 32], but for what the way changes."""
    fd = FusionDefinition()
    ops, w = fd.ops, fd.define_tensor([16, 32], "i32" if way == "of words" else "i8")
    turns = {"from 1": ops.iota(2, 1, dtype="i32"), "of four": ops.iota(4, dtype="i32")}
    which = turns.get(way, ops.iota(2, dtype="i32"))
    bytes_ = ops.cast(w, "bool") if way == "of truth values" else w
    wide = ops.cast(ops.broadcast(bytes_, [False, False, True]), "i32")
    numbers = ops.nibble(wide, ops.broadcast(which, [True, True, False]))
    if way == "as they are":
        return fd, numbers
    if way == "of a sum":
        numbers = ops.nibble(ops.add(wide, 1), ops.broadcast(which, [True, True, False]))
    if way == "plus places":
        numbers = ops.add(numbers, ops.broadcast(which, [True, True, False]))
    if way == "whether any":
        numbers = ops.cast(numbers, "bool")
    made = ops.cast(numbers, "f32" if way == "in f32" else "bf16")
    return fd, ops.flatten(made, 1, 2)


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("plain", True),
        ("from 1", False),
        ("of four", False),
        ("of a sum", False),
        ("plus places", False),
        ("in f32", False),
        ("of words", False),
        ("of truth values", False),
        ("whether any", False),
        ("as they are", False),
    ],
)
def test_both_numbers_of_each_byte_as_16_bit_floats(way: str, found: bool) -> None:
    """In turn, the lower one first; others are computed from where they are."""
    _, made = recorded(way)
    (inner,) = made.args if made.op == "flatten" else (made,)
    assert isinstance(inner, TensorView)
    assert made_of_bytes(inner) == found
    assert uses_places(inner) != found


def of_product(*, along: bool, added: bool = False) -> Domain:
    """A product with unpacked weights, whose bytes have numbers along K or across it."""
    fd = FusionDefinition()
    ops, x = fd.ops, fd.define_tensor([8, 64], "bf16")
    if not along:
        w = fd.define_tensor([16, 64], "i8")
        which = ops.broadcast(ops.iota(2, dtype="i32"), [True, False, True])
        numbers = ops.nibble(ops.cast(ops.broadcast(w, [False, True, False]), "i32"), which)
        mapping = [[0, -1, -1, 1], [-1, 0, 1, 2]]
        fd.add_output(ops.fused_multiply_sum(x, ops.cast(numbers, "bf16"), [3], mapping))
        return segments(fd.fusion(), Choices(registers="either"))[-1].domain
    w = fd.define_tensor([16, 32], "i8")
    made = ops.cast(ops.unpack(w), "bf16")
    if added:
        made = ops.cast(ops.add(made, ops.repeat_interleave(ops.cast(w, "bf16"), 2, 1)), "bf16")
    fd.add_output(ops.linear(x, made))
    return segments(fd.fusion(), Choices(registers="either"))[-1].domain


def test_a_step_has_both_numbers_of_a_byte() -> None:
    """As walked, and of which leaf."""
    domain = of_product(along=True)
    found = unpacked(domain, domain.products[0])
    assert found is not None
    assert [(tv.op, leaf.name) for (tv, _), leaf in found.items()] == [("cast", "T1")]


@pytest.mark.parametrize(("along", "added"), [(False, False), (True, True)])
def test_bytes_across_k_or_used_otherwise_are_refused(along: bool, added: bool) -> None:
    """No statement has them: a kernel before stores what they are."""
    domain = of_product(along=along, added=added)
    (product,) = domain.products
    assert product.leaves
    assert unpacked(domain, product) is None
