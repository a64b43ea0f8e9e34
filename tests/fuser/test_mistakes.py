"""Thirty and more mistakes a user can make: each ends in the documented exception, with a way out.

The form is: the call as the user wrote it: what is wrong, with numbers and units; the way out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fusions import DIRECT, PIPELINED, STORED, bias_relu, bias_specs, compiled, row_major
from stand_in import stand_in

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.runtime.binding import bind
from fuser.runtime.call import Spec
from fuser.runtime.executable import Executable
from fuser.runtime.explain import explain
from fuser.schedule.params import PointwiseParams


def tensor(*shape: int, dtype: str = "bf16") -> tuple[FusionDefinition, TensorView]:
    """Return a definition with one input."""
    fd = FusionDefinition()
    return fd, fd.define_tensor(shape=list(shape), dtype=dtype)


def relu(**kwargs: object) -> Fusion:
    """Relu of one 2-D bf16 input."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16", **kwargs)  # type: ignore[arg-type] # by name
    fd.add_output(fd.ops.relu(x))
    return fd.fusion()


def params(**change: object) -> PointwiseParams:
    """Return `PIPELINED` with some fields changed."""
    fields = {name: getattr(PIPELINED, name) for name in PointwiseParams.__dataclass_fields__}
    return PointwiseParams(**(fields | change))


def unknown_dtype() -> None:
    tensor(-1, dtype="fp8")


def negative_extent() -> None:
    tensor(-2)


def huge_extent() -> None:
    tensor(1 << 31)


def rank_mismatch() -> None:
    fd, x = tensor(-1, -1)
    fd.ops.add(x, fd.define_tensor(shape=[-1], dtype="bf16"))


def not_broadcastable() -> None:
    fd, x = tensor(4, 8)
    fd.ops.add(x, fd.define_tensor(shape=[4, 9], dtype="bf16"))


def bitwise_of_floats() -> None:
    fd, x = tensor(-1)
    fd.ops.bitwise_and(x, x)


def not_a_tensor() -> None:
    fd, _ = tensor(-1)
    fd.ops.relu("x")  # type: ignore[arg-type] # the mistake


def tensor_of_another_definition() -> None:
    fd, _ = tensor(-1)
    _, other = tensor(-1)
    fd.ops.relu(other)


def squeeze_of_a_real_axis() -> None:
    fd, x = tensor(-1, -1)
    fd.ops.squeeze(x, dims=[0])


def permute_with_a_hole() -> None:
    fd, x = tensor(-1, -1)
    fd.ops.permute(x, dims=[0, 0])


def broadcast_of_the_wrong_length() -> None:
    fd, x = tensor(-1)
    fd.ops.broadcast(x, is_broadcast_dim=[True, True])


def expand_of_a_real_axis() -> None:
    fd, x = tensor(4)
    fd.ops.expand(x, [8])


def no_output() -> None:
    fd, _ = tensor(-1)
    fd.fusion()


def input_as_output() -> None:
    fd, x = tensor(-1)
    fd.add_output(x)
    fd.fusion()


def strides_of_the_wrong_length() -> None:
    FusionDefinition().define_tensor(shape=[-1, -1], dtype="bf16", stride_order=[0])


def too_many_stages() -> None:
    params(stages=9)


def prefetch_of_all_stages() -> None:
    params(prefetch=3)


def unknown_mechanism() -> None:
    params(load="cp.async")


def ring_without_tma() -> None:
    params(load="direct")


def box_too_wide() -> None:
    params(tile=(2, 512))


def vector_across_columns() -> None:
    params(tile=(4, 100))


def too_much_shared_memory() -> None:
    large = params(tile=(64, 256), warps=16, stages=8, prefetch=7)
    compiled(large, specs=bias_specs(256, 256))


def tma_of_transposed_rows() -> None:
    compiled(PIPELINED, relu(stride_order=[0, 1]), {"T0": row_major((64, 64), DType.BF16)})


def misaligned_stride_for_tma() -> None:
    spec = Spec((64, 128), (132, 1), 1024, DType.BF16)
    compiled(PIPELINED, relu(contiguity=[False, True]), {"T0": spec})


def misaligned_address_for_tma() -> None:
    spec = Spec((64, 128), (128, 1), 1026, DType.BF16)
    compiled(PIPELINED, relu(), {"T0": spec})


def odd_rows_for_a_tma_store() -> None:
    compiled(STORED, relu(contiguity=[False, True]), {"T0": row_major((64, 7), DType.BF16)})


def wrong_dtype_at_the_call() -> None:
    specs = bias_specs() | {"T0": row_major((10, 256), DType.F32)}
    bind(compiled(DIRECT), specs, sms=132)


def wrong_rank_at_the_call() -> None:
    specs = bias_specs() | {"T0": row_major((10,), DType.BF16)}
    bind(compiled(DIRECT), specs, sms=132)


def unequal_extents_at_the_call() -> None:
    specs = bias_specs() | {"T1": row_major((11, 256), DType.BF16)}
    bind(compiled(DIRECT), specs, sms=132)


def strides_against_the_promise() -> None:
    specs = bias_specs() | {"T0": Spec((10, 256), (1, 10), 1024, DType.BF16)}
    bind(compiled(DIRECT), specs, sms=132)


def extents_past_32_bits() -> None:
    specs = {"T0": row_major((1 << 16, 1 << 16), DType.BF16)}
    one_row = PointwiseParams((1, 2048), 8, 4, None, "direct", "direct")
    bind(compiled(one_row, relu(), specs), specs, sms=132)


def too_few_arguments() -> None:
    Executable(bias_relu())(torch.zeros(2, 8))


def cpu_tensor() -> None:
    Executable(relu())(torch.zeros(2, 8, dtype=torch.bfloat16))


def number_for_a_tensor() -> None:
    Executable(relu())(1.0)


def tensor_for_a_number() -> None:
    fd, x = tensor(-1)
    fd.add_output(fd.ops.mul(x, fd.define_scalar("f32")))
    fusion = fd.fusion()
    Executable(Fusion(fusion.inputs[::-1], fusion.tensors, fusion.outputs))(
        torch.zeros(2), torch.zeros(2)
    )


def on_the_host(out: torch.Tensor | None = None) -> None:
    """Call `relu` of 2 x 8 as on a GPU, into the input or what is given."""
    x = torch.zeros(2, 8, dtype=torch.bfloat16)
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        Executable(relu())(x, out=[x if out is None else out])


def output_over_an_input() -> None:
    on_the_host()


def output_of_the_wrong_shape() -> None:
    on_the_host(torch.zeros(8, 2, dtype=torch.bfloat16))


def definition_for_a_fusion() -> None:
    fd, x = tensor(-1)
    fd.add_output(fd.ops.relu(x))
    Executable(fd)  # type: ignore[arg-type] # the mistake


def params_for_a_fusion() -> None:
    Executable(PIPELINED)  # type: ignore[arg-type] # the mistake


def dict_for_params() -> None:
    Executable(relu(), {"stages": 4})  # type: ignore[arg-type] # the mistake


def class_for_params() -> None:
    Executable(relu(), PointwiseParams)  # type: ignore[arg-type] # the mistake


def definition_to_explain() -> None:
    fd, x = tensor(-1)
    fd.add_output(fd.ops.relu(x))
    explain(fd, (8,))  # type: ignore[arg-type] # the mistake


F, S = FusionError, ScheduleError
MISTAKES: list[tuple[Callable[[], None], type[Exception], str]] = [
    (unknown_dtype, F, "unknown dtype; use one of f64, f32"),
    (negative_extent, F, "extent -2 is negative; use 0 or more"),
    (huge_extent, F, "2147483647"),
    (rank_mismatch, F, "broadcast"),
    (not_broadcastable, F, r"\(4, 8\).*\(4, 9\)"),
    (bitwise_of_floats, F, "bitwise_and"),
    (not_a_tensor, F, "relu"),
    (tensor_of_another_definition, F, "definition"),
    (squeeze_of_a_real_axis, F, "squeeze"),
    (permute_with_a_hole, F, "permute"),
    (broadcast_of_the_wrong_length, F, "is_broadcast_dim"),
    (expand_of_a_real_axis, F, "expand"),
    (no_output, F, "add_output"),
    (input_as_output, F, "set"),
    (strides_of_the_wrong_length, F, "stride_order"),
    (too_many_stages, S, "use stages=8"),
    (prefetch_of_all_stages, S, "use prefetch=2"),
    (unknown_mechanism, S, 'use "direct", "tma", "bulk" or "cp_async"'),
    (ring_without_tma, S, 'or load="tma"'),
    (box_too_wide, S, r"use tile=\(2, 256\)"),
    (vector_across_columns, S, "use 104 columns"),
    (too_much_shared_memory, S, "sm_90a has 232448; use stages=3"),
    (tma_of_transposed_rows, S, 'use load="direct"'),
    (misaligned_stride_for_tma, S, 'not multiples of 16 bytes; use load="direct"'),
    (misaligned_address_for_tma, S, 'not multiples of 16 bytes; use load="direct"'),
    (odd_rows_for_a_tma_store, S, 'not multiples of 16 bytes; use store="direct"'),
    (wrong_dtype_at_the_call, F, r"call\(T0\): got f32, the fusion says bf16; cast"),
    (wrong_rank_at_the_call, F, r"call\(T0\): got 1 axes.*reshape"),
    (unequal_extents_at_the_call, F, r"call\(T1\): axis 0 has 11 .*make them equal"),
    (strides_against_the_promise, F, r"call\(T0\): axis 1 has stride 10.*contiguous\(\)"),
    (extents_past_32_bits, S, "use a tile of 2 or more rows"),
    (too_few_arguments, F, "got 1 arguments, the fusion takes 3; pass T0, T1, T2"),
    (cpu_tensor, F, r"call\(T0\): the tensor is on cpu; pass T0.cuda\(\)"),
    (number_for_a_tensor, F, r"call\(T0\): got float.*pass a torch tensor"),
    (tensor_for_a_number, F, r"call\(S0\): got Tensor.*pass a Python number"),
    (output_over_an_input, F, "overlaps T0 in memory by 32 bytes; pass a tensor of its own"),
    (output_of_the_wrong_shape, F, r"contiguous torch.bfloat16 \(2, 8\); pass torch.empty"),
    (
        definition_for_a_fusion,
        F,
        r"is no Fusion; pass the finished .*: Executable\(fd.fusion\(\)\)",
    ),
    (
        params_for_a_fusion,
        F,
        "PointwiseParams is no Fusion; a FusionDefinition gives one by fusion",
    ),
    (dict_for_params, S, "dict is no schedule; pass one of AmpereParams, MatmulParams, NormParams"),
    (class_for_params, S, r"PointwiseParams is a class; make one with PointwiseParams\(tile"),
    (definition_to_explain, F, r"pass the finished definition: explain\(fd.fusion\(\)\)"),
]


@pytest.mark.parametrize(
    ("mistake", "kind", "message"), MISTAKES, ids=lambda v: getattr(v, "__name__", "")
)
def test_mistake(mistake: Callable[[], None], kind: type[Exception], message: str) -> None:
    """The exception is the documented one, in the documented form."""
    with pytest.raises(kind, match=message) as caught:
        mistake()
    text = str(caught.value)
    assert ": " in text, "the call, then what is wrong"
    assert ";" in text, "what is wrong, then the way out"


def test_there_are_thirty() -> None:
    """As promised."""
    assert len({mistake for mistake, _, _ in MISTAKES}) >= 30
