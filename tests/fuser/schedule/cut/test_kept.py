"""What is stored so that no product is computed twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.schedule.cut.kept import Epilogues, keep, memory_dtype

Define = Callable[[FusionDefinition, TensorView], list[TensorView]]


def of(define: Define) -> Fusion:
    """Results of the product T2."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    for tv in define(fd, fd.ops.matmul(x, w)):
        fd.add_output(tv)
    return fd.fusion()


def softmax(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
    """T3 is scaled, and read by two reductions."""
    return [fd.ops.softmax(fd.ops.mul(y, 0.5), [1])]


def rounded(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
    """T4 is a result, which has in memory what is summed."""
    made = fd.ops.cast(fd.ops.relu(y), "bf16")
    return [made, fd.ops.sum(made, [0])]


def not_rounded(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
    """T3 is a result of 16 bits; what is summed has 32."""
    made = fd.ops.relu(y)
    return [made, fd.ops.sum(made, [0])]


def many(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
    """Several tensors of the epilogue are summed."""
    return [fd.ops.sum(one, [0]) for one in (fd.ops.exp(y), fd.ops.sin(y), fd.ops.cos(y))]


@pytest.mark.parametrize(
    ("define", "kept"),
    [(softmax, {"T3"}), (rounded, {"T4"}), (not_rounded, {"T3"}), (many, {"T2"})],
)
def test_the_fewest_bytes_are_kept(define: Define, kept: set[str]) -> None:
    """The boundary of the epilogue, or the product where that is less."""
    fusion = of(define)
    (product,) = (tv for tv in fusion.tensors if tv.op == "mma")
    assert keep(fusion, [product]) == kept


def test_who_computes_with_what_was_read_reads_all() -> None:
    """Else its kernel would multiply, and wait for the one that does."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    y = fd.ops.matmul(x, w)
    z = fd.ops.exp(y)
    fd.add_output(fd.ops.mul(z, y))
    fd.add_output(fd.ops.sum(z, [0]))
    fusion = fd.fusion()
    by = {tv.name: tv for tv in fusion.tensors}
    assert not Epilogues(fusion, {"T2"}).follows(by["T4"], by["T2"])
    assert Epilogues(fusion, {"T3"}).follows(by["T4"], by["T2"])


def test_sixteen_bits_are_kept_where_they_are_all() -> None:
    """What is selected from inputs or rounded on the way is as short in memory."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, 8], "bf16") for _ in range(2))
    number = fd.define_tensor([-1, 8], "i32")
    short = [
        fd.ops.relu(x), fd.ops.maximum(fd.ops.neg(x), y), fd.ops.cast(fd.ops.add(x, y), "bf16"),
        fd.ops.slice(fd.ops.abs(x), 1, 2, 4), fd.ops.cast(number, "f16"),
    ]  # fmt: skip
    long = [
        fd.ops.add(x, y),
        fd.ops.relu(fd.ops.exp(x)),
        fd.ops.maximum(x, 0.1),
        fd.ops.sum(x, [0]),
    ]
    assert all(memory_dtype(tv) is tv.dtype for tv in short)
    assert all(memory_dtype(tv) is DType.F32 for tv in long)


def test_products_that_meet_are_kept_together() -> None:
    """Each alone would be stored; together their boundary is no more."""
    fd = FusionDefinition()
    a, b, c, d = (fd.define_tensor([-1, -1], "bf16") for _ in range(4))
    p = fd.ops.exp(fd.ops.matmul(a, b))
    fd.add_output(fd.ops.softmax_backward(fd.ops.matmul(c, d), p, [1]))
    fusion = fd.fusion()
    first, second = (tv for tv in fusion.tensors if tv.op == "mma")
    assert keep(fusion, [first, second]) == {"T5", "T7"}


def test_who_leads_to_a_reader_reads_from_memory() -> None:
    """Else that reader's kernel would multiply: `relu` follows only if what it makes is kept."""
    fusion = of(not_rounded)
    by = {tv.name: tv for tv in fusion.tensors}
    assert Epilogues(fusion, {"T3"}).follows(by["T3"], by["T2"])
    assert not Epilogues(fusion, {"T2"}).follows(by["T3"], by["T2"])
    assert not Epilogues(fusion, {"T3"}).follows(by["T4"], by["T3"])
