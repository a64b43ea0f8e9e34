"""What a fusion becomes, in words: kernels, reasons, bytes."""

import pytest

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime.call import Spec
from fuser.runtime.explain import explain
from fuser.schedule.params import PointwiseParams


def relu_and_sum() -> Fusion:
    """Two results of different axes."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    positive = fd.ops.relu(x)
    fd.add_output(positive)
    fd.add_output(fd.ops.sum(positive, [0]))
    return fd.fusion()


def attention() -> Fusion:
    """Scores, their softmax, and its product with values."""
    fd = FusionDefinition()
    q, k, v = (fd.define_tensor([-1, -1], "bf16") for _ in range(3))
    scores = fd.ops.linear(q, k)
    shifted = fd.ops.exp(fd.ops.sub(scores, fd.ops.max(scores, [1], keepdim=True)))
    total = fd.ops.sum(shifted, [1], keepdim=True)
    fd.add_output(fd.ops.matmul(fd.ops.div(shifted, total), v))
    return fd.fusion()


def test_bytes_of_one_kernel_are_those_of_its_tensors() -> None:
    """An input that is read once counts once, and one that is stretched as what it has."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    bias = fd.define_tensor([-1], "f32")
    fd.add_output(fd.ops.mul(fd.ops.add(x, fd.ops.broadcast(bias, [True, False])), x))
    said = explain(fd.fusion(), (64, 128), (128,))
    (part,) = said.parts
    assert dict(part.reads) == {"T0": 64 * 128 * 2, "T1": 128 * 4}
    assert dict(part.writes) == {"T4": 64 * 128 * 4}
    assert said.nbytes == said.least == part.nbytes
    assert part.again == part.why == ()


def test_an_expanded_input_has_the_elements_that_lie_apart() -> None:
    """A stride of 0 repeats elements; they are no bytes of their own."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f32", contiguity=[False, True])
    fd.add_output(fd.ops.relu(x))
    said = explain(fd.fusion(), Spec((1000, 64), (0, 1), 1 << 32, DType.F32))
    assert said.parts[0].reads == {"T0": 64 * 4}


def test_what_two_kernels_compute_is_said() -> None:
    """Results of other axes have a kernel of their own, which computes relu again."""
    said = explain(relu_and_sum(), (512, 256))
    first, second = said.parts
    assert second.again == ("T1",)
    assert first.again == ()
    assert "computed again: T1" in str(said)
    assert said.nbytes == 2 * 512 * 256 * 3 + 2 * 256
    assert said.least == 2 * 512 * 256 * 2 + 2 * 256


def test_every_cut_of_attention_has_a_reason() -> None:
    """What is stored for a later kernel is stored for a reason, and who ends a sum repeats none."""
    said = explain(attention(), (1024, 128), (1024, 128), (1024, 128))
    outputs = {"T11"}
    stored = {name for part in said.parts for name in part.writes} - outputs
    reasons = {why.split(" is stored: ")[0] for part in said.parts for why in part.why}
    assert reasons == stored
    assert any("T11 multiplies it" in why for part in said.parts for why in part.why)
    assert said.parts[-1].flops == 2 * 1024 * 1024 * 128


def test_params_of_the_user_are_named() -> None:
    """A schedule that was asked for is the one that is told."""
    params = PointwiseParams((4, 256), 4, 4, None, "direct", "direct")
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor([-1, -1], "f32")))
    said = explain(fd.fusion(), (512, 256), params=params)
    assert said.parts[0].params == params
    assert "PointwiseParams direct/direct, tile 4x256" in str(said)
    assert str(said).startswith("1 kernel; 1.049 MB moved, 1.00 of the 1.049 MB")


@pytest.mark.parametrize(
    ("op", "shape", "says"),
    [
        ("softmax", (300, 131072), "tile 1x16384, 3 stages by bulk, 256 threads of 8 CTAs a row"),
        ("softmax", (4096, 65536), "tile 1x8192, 128 threads of 8 CTAs a row"),
        ("softmax", (4096, 1024), "64 threads a row"),
        ("sum", (8, 1 << 22), "CTAs a tile (last)"),
    ],
)
def test_who_shares_a_tile_is_said(op: str, shape: tuple[int, int], says: str) -> None:
    """And through how many slots it comes."""
    fd = FusionDefinition()
    fd.add_output(getattr(fd.ops, op)(fd.define_tensor([-1, -1], "bf16"), [1]))
    assert says in str(explain(fd.fusion(), shape))


def test_mistakes_say_the_way_out() -> None:
    """Too few shapes, a number for a tensor, an axis too many."""
    fusion = relu_and_sum()
    with pytest.raises(FusionError, match="got 0 shapes, the fusion takes 1; give those of T0"):
        explain(fusion)
    with pytest.raises(FusionError, match=r"explain\(T0\): it is a tensor; give its shape"):
        explain(fusion, None)
    with pytest.raises(FusionError, match="got 3 axes"):
        explain(fusion, (1, 2, 3))
