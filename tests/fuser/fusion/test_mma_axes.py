"""Every axis of a product has one role, and it follows from the mapping alone."""

import pytest
import torch

from fuser.fusion.definition import FusionDefinition, Symbol, TensorView
from fuser.fusion.mma_axes import AxisRole, MmaAxis, roles
from fuser.fusion.ops import producer_axes


def shown(tv: TensorView) -> str:
    """Return the roles of all axes in one word."""
    return " ".join(axis.role.value for axis in roles(tv))


def test_a_matrix_product_has_one_axis_of_each_role() -> None:
    """Both operands as they lie in memory: a [M, K], b [K, N], no broadcast between."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["k", "n"], "bf16")
    m, n, k = Symbol("m"), Symbol("n"), Symbol("k")
    assert roles(fd.ops.matmul(a, b)) == (
        MmaAxis(AxisRole.M, 0, None, 0, m),
        MmaAxis(AxisRole.N, None, 1, 1, n),
        MmaAxis(AxisRole.K, 1, 0, None, k),
    )


def test_batch_axes_that_stretch_are_axes_of_one_operand() -> None:
    """So a batch of activations times one weight is a plain product with two axes M."""
    fd = FusionDefinition()
    a = fd.define_tensor([5, -1, 1, 7, -1], "f16")
    b = fd.define_tensor([-1, 3, -1, 8], "f16")
    product = fd.ops.matmul(a, b)
    assert shown(product) == "M batch N M N K"
    assert [axis.a for axis in roles(product)] == [0, 1, None, 3, None, 4]
    assert [axis.b for axis in roles(product)] == [None, 0, 1, None, 3, 2]
    assert [axis.result for axis in roles(product)] == [0, 1, 2, 3, 4, None]


def test_extents_of_one_on_both_sides_keep_their_roles() -> None:
    """A batch of one stays a batch, K of one stays K, and one row is still M."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([1, 1, 1], "bf16"), fd.define_tensor([1, 1, 1], "bf16")
    product = fd.ops.matmul(a, b)
    assert shown(product) == "batch M N K"
    assert {axis.extent for axis in roles(product)} == {1}


def test_summed_axes_may_stand_anywhere() -> None:
    """Positions in the result count only what is left."""
    fd = FusionDefinition()
    a = fd.define_tensor(["k", "m", "b", "j"], "bf16")
    b = fd.define_tensor(["n", "j", "k", "b"], "bf16")
    mapping = ((0, 1, -1, 2, 3), (2, -1, 0, 3, 1))
    product = fd.ops.fused_multiply_sum(a, b, axes=[0, 4], axis_mapping=mapping)
    assert shown(product) == "K M N batch K"
    assert [axis.result for axis in roles(product)] == [None, 0, 1, 2, None]
    assert [str(axis.extent) for axis in roles(product)] == ["k", "m", "n", "b", "j"]
    turned = fd.ops.fused_multiply_sum(a, b, axes=[-1, 0], axis_mapping=mapping)
    assert (turned.attrs, roles(turned)) == (product.attrs, roles(product))


def test_roles_and_producer_axes_agree() -> None:
    """Exact and broadcast mapping of axes sees the same facts."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([4, 1, 6, 3], "bf16"), fd.define_tensor([5, 3, 7], "bf16")
    product = fd.ops.matmul(a, b)
    left = [axis for axis in roles(product) if axis.result is not None]
    assert producer_axes(product, 0) == tuple(axis.a for axis in left)
    assert producer_axes(product, 1) == tuple(axis.b for axis in left)
    shape = torch.matmul(torch.empty(4, 1, 6, 3), torch.empty(5, 3, 7)).shape
    assert tuple(axis.extent for axis in left) == product.shape == tuple(shape)


def test_only_products_have_roles() -> None:
    """A stage that asks elsewhere has lost its way."""
    fd = FusionDefinition()
    x = fd.define_tensor([4, 4], "bf16")
    with pytest.raises(ValueError, match=r"roles\(T1\): T1 is defined by relu; ask only for an mm"):
        roles(fd.ops.relu(x))
