"""Every operation of the table as a device function: it compiles, and obeys its bound on a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from norms import launches

from fuser.codegen.expr import REGISTER
from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ops import ALL, OPS, Rule
from fuser.fusion.promotion import as_float
from fuser.runtime import nvrtc
from fuser.runtime.executable import Executable
from oracles.differential import compare
from oracles.ptx.judge import run
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

NAN, INF = torch.nan, torch.inf
VALUES: dict[bool, list[float]] = {
    True: [
        *(NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 7.0, -7.0, 1e-3),
        *(1e-40, -1e-40, 1e-20, 3e38, -3e38, 1e10, -1e10, 88.5, -90.0, 104.0, 0.1, -0.3, 1.5707964),
    ],
    False: [0, 1, -1, 2, -2, 3, 7, -7, 100, 2**31 - 1, -(2**31), 65537, 46341],
}
POINTWISE = [op for op in OPS if OPS[op].pointwise and op != "cast"]
PAIRS = [
    (op, dtype)
    for op in POINTWISE
    for dtype in DType
    if dtype in ALL and (OPS[op].rule is Rule.TEST or dtype in OPS[op].allowed)
]


def alone(op: str, dtype: DType, count: int) -> Fusion:
    """Return one operation of tensors with one axis."""
    fd = FusionDefinition()
    kinds = [DType.BOOL if op == "where" and not n else dtype for n in range(OPS[op].arity)]
    args = [fd.define_tensor([count], kind) for kind in kinds]
    fd.add_output(getattr(fd.ops, op)(*args))
    return fd.fusion()


def columns(op: str, dtype: DType) -> list[torch.Tensor]:
    """Return all pairs of special values, and others beside them."""
    values = [0, 1] if dtype is DType.BOOL else VALUES[dtype.is_float]
    pairs = torch.tensor(list(itertools.product(values, repeat=2)), dtype=torch.float64)
    first, second = pairs.T
    if op in ("floor_div", "remainder", "pow") and dtype.is_int:
        second = second.clamp(1, 5)
    made = [first, second, first.roll(5), torch.ones_like(first)][: OPS[op].arity]
    made = [column.to(TORCH[dtype]) for column in made]
    return [first > 0, *made[1:]] if op == "where" else made


def test_every_device_function_compiles() -> None:
    """For every type of registers that the table allows, in one translation unit."""
    lines: list[str] = []
    for op in POINTWISE:
        spec = OPS[op]
        for dtype in (DType.F64, DType.F32, DType.I64, DType.I32, DType.BOOL):
            operand = as_float(dtype) if spec.rule is Rule.FLOAT else dtype
            if dtype in spec.allowed or spec.rule is Rule.TEST:
                args = ", ".join(f"{REGISTER[operand]}({n})" for n in range(spec.arity))
                lines.append(f"  out[{len(lines)}] = double(math::{op}({args}));")
    body = "\n".join(lines)
    source = f'#include "math.cuh"\nextern "C" __global__ void k(double* out) {{\n{body}\n}}\n'
    assert len(lines) > 200
    assert nvrtc.compile_cubin(source).image


BYTES = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.mark.parametrize("of", BYTES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bytes_become_pairs_of_16_bit_floats(dtype: torch.dtype, of: str) -> None:
    """All 256 numbers, NaNs too, exactly, at each of the four places of a word."""
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    pairs = " ".join(
        f"out[2 * threadIdx.x + {half}] = math::pair_of<{name}, {of}, {upper}>(four);"
        for half, upper in ((0, "false"), (1, "true"))
    )
    source = '#include "math.cuh"\nextern "C" __global__ void k(uint32* out, const uint32* in) {\n'
    source += f"  const uint32 four = in[threadIdx.x];\n  {pairs}\n}}\n"
    every = torch.arange(256).to(torch.int8).repeat(4).reshape(4, 256)
    given = torch.stack([row.roll(place) for place, row in enumerate(every)], dim=1).contiguous()
    buffers = {
        "out": Buffer("out", np.zeros(2048, np.uint8)),
        "in": Buffer("in", given.view(torch.uint8).numpy().reshape(-1)),
    }
    arguments = (Pointer("out"), Pointer("in"))
    launch = Launch((1, 1, 1), (256, 1, 1), arguments, buffers)
    assert run(nvrtc.compile_ptx(source), launch).verdict.status is Status.PASS
    made = torch.from_numpy(buffers["out"].data).view(dtype).reshape(256, 4)
    torch.testing.assert_close(
        made, given.view(BYTES[of]).to(dtype), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bytes_are_split_into_two_16_bit_floats(dtype: torch.dtype) -> None:
    """All 256: the lower four bits first, -8 to 7."""
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    source = '#include "math.cuh"\nextern "C" __global__ void k(uint32* out) {\n'
    source += f"  out[threadIdx.x] = math::nibbles_of<{name}>(threadIdx.x);\n}}\n"
    buffers = {"out": Buffer("out", np.zeros(1024, np.uint8))}
    launch = Launch((1, 1, 1), (256, 1, 1), (Pointer("out"),), buffers)
    assert run(nvrtc.compile_ptx(source), launch).verdict.status is Status.PASS
    made = torch.from_numpy(buffers["out"].data).view(dtype).reshape(256, 2)
    signed = torch.tensor([*range(8), *range(-8, 0)])
    assert (made == signed[torch.stack([torch.arange(256) % 16, torch.arange(256) // 16], 1)]).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=[f"{op}-{d.name}" for op, d in PAIRS])
def test_the_device_is_within_the_bound_of_the_reference(op: str, dtype: DType) -> None:
    """On NaN, inf, zeros of both signs, subnormals, and numbers near the ends."""
    given = columns(op, dtype)
    fusion = alone(op, dtype, len(given[0]))
    got = [out.cpu() for out in Executable(fusion)(*(column.cuda() for column in given))]
    verdict = compare(evaluate(fusion, given), got, exact=False)
    assert verdict.status is Status.PASS, verdict


def test_extrema_of_signed_numbers_are_those_of_unsigned_ones() -> None:
    """Of signed ones the assembler makes VIMNMX3, which has no sign for its second operand."""
    (launch,) = launches(negated("min"), None, 3, 4)
    text = nvrtc.compile_ptx(launch.source)
    assert text.count("min.u32") == 3
    assert "min.s32" not in text


def test_a_selection_is_no_signed_extremum() -> None:
    """The compiler knows the smaller of two where it sees how one is chosen."""
    fd = FusionDefinition()
    least, *others = (fd.ops.neg(fd.define_tensor(["m", "n"], DType.I32)) for _ in range(3))
    for x in others:
        least = fd.ops.where(fd.ops.lt(least, x), least, x)
    fd.add_output(least)
    for line in nvrtc.compile_ptx(launches(fd.fusion(), None)[0].source).splitlines():
        assert "min.s32" not in line, line


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("columns", [3, 4, 8, 33])
def test_extrema_of_negated_numbers_keep_their_signs(op: str, columns: int) -> None:
    """All of them: with the assembler of CUDA 13.0 one in three or four had lost it."""
    x = torch.randint(-99, 99, (1000, columns), dtype=torch.int32)
    (got,) = Executable(negated(op))(x.cuda())
    assert torch.equal(got.cpu(), getattr(-x, f"a{op}")(1))


def negated(op: str) -> Fusion:
    """The least or largest of each row's negated numbers."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], DType.I32)
    fd.add_output(getattr(fd.ops, op)(fd.ops.neg(x), [1]))
    return fd.fusion()
