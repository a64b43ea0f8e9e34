"""The loop domain: which axes a kernel has, and how tensors walk along them."""

from dataclasses import replace

import pytest
from fusions import DIRECT, compiled, row_major

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.schedule.domain import domains


def test_an_input_read_in_two_ways_is_two_tensors() -> None:
    """x[:, None] + x[None, :] walks x along both axes."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["n"], dtype="f32")
    rows = fd.ops.broadcast(x, is_broadcast_dim=[False, True])
    cols = fd.ops.broadcast(x, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.add(rows, cols))
    (launch,) = compiled(DIRECT, fd.fusion(), {"T0": row_major((64,), DType.F32)}).launches
    assert sorted(launch.arguments) == ["T0", "T0_1", "T3"]
    assert {launch.arguments[name] for name in ("T0", "T0_1")} == {"T0"}


def test_neighbouring_axes_merge_only_where_every_tensor_allows() -> None:
    """Contiguous inputs become one axis; a bias along the last keeps two."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1, -1], dtype="f32")
    fd.add_output(fd.ops.neg(x))
    (flat,) = domains(fd.fusion())
    assert flat.merged == ((0, 1, 2),)
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1, -1], dtype="f32")
    b = fd.ops.broadcast(
        fd.define_tensor(shape=[-1], dtype="f32"), is_broadcast_dim=[True, True, False]
    )
    fd.add_output(fd.ops.add(x, b))
    (two,) = domains(fd.fusion())
    assert two.merged == ((0, 1), (2,))


def test_transposed_inputs_do_not_merge() -> None:
    """Their axes lie in memory the other way round."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="f32", stride_order=[0, 1])
    fd.add_output(fd.ops.neg(x))
    (domain,) = domains(fd.fusion())
    assert domain.merged == ((0,), (1,))


def test_a_scalar_output_has_one_axis_of_one_element() -> None:
    """Rank 0 is legal."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.neg(fd.define_tensor(shape=[], dtype="f32")))
    (domain,) = domains(fd.fusion())
    assert (domain.extents, domain.merged) == ((1,), ((0,),))


def test_a_deep_chain_is_walked_once_per_node() -> None:
    """X = x + x, forty times: 2**40 paths, forty nodes."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="f32")
    for _ in range(40):
        x = fd.ops.add(x, x)
    fd.add_output(x)
    (launch,) = compiled(None, fd.fusion(), {"T0": row_major((64,), DType.F32)}).launches
    assert len(launch.kernel.tensors) == 2


def test_products_share_a_loop_only_if_they_sum_over_the_same_extents() -> None:
    """One that sums over less would keep the axes of the other from merging."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[name, "k", "l"], dtype="bf16") for name in ("m", "n"))
    y, v = (fd.define_tensor(shape=[name, "k"], dtype="bf16") for name in ("m", "n"))
    both = [[0, -1, 1, 2], [-1, 0, 1, 2]]
    first = fd.ops.fused_multiply_sum(x, w, axes=[2, 3], axis_mapping=both)
    second = fd.ops.fused_multiply_sum(x, w, axes=[2, 3], axis_mapping=both)
    fd.add_output(fd.ops.add(fd.ops.add(first, second), fd.ops.linear(y, v)))
    (domain,) = domains(fd.fusion())
    assert domain.merged == ((0,), (1,), (2, 3), (4,))


def test_an_operand_of_both_sides_is_two_accesses() -> None:
    """Tiles of A and of B differ in shape, even where they hold the same vector."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["k"], dtype="bf16")
    fd.add_output(fd.ops.matmul(x, x))
    (domain,) = domains(fd.fusion())
    (product,) = domain.products
    assert (product.a.name, product.b.name) == ("T0", "T0_1")
    assert (product.a.tv, product.a.coords) == (product.b.tv, product.b.coords)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_stored_by_columns_is_walked_so(turned: bool) -> None:
    """A copy whose ends lie alike is one of neighbours, and its axes one."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n", "k"], "bf16")
    fd.add_output(fd.ops.relu(fd.ops.permute(x, [0, 2, 1])))
    fusion = fd.fusion()
    (out,) = fusion.outputs
    if turned:
        out = replace(out, stride_order=(2, 0, 1))
    (domain,) = domains(replace(fusion, tensors=(*fusion.tensors[:-1], out), outputs=(out,)))
    (read,), (write,) = domain.reads, domain.writes
    assert [str(extent) for extent in domain.extents] == (
        ["m", "n", "k"] if turned else ["m", "k", "n"]
    )
    assert write.coords == ((0, 2, 1) if turned else (0, 1, 2))
    assert read.coords == ((0, 1, 2) if turned else (0, 2, 1))
    assert domain.merged == (((0, 1, 2),) if turned else ((0,), (1,), (2,)))
