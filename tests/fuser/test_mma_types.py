"""Every type that tensor cores multiply: exact values in every layout, clean code, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import judged
import pytest
import torch
from fusions import DIRECT, row_major
from sample import covering

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.kernel import ir as kir
from fuser.pipeline import Program, build
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case, from_text, to_text
from oracles.assembler import judge_log
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "bf16": ("bf16", "bf16", {}),
    "f16": ("f16", "f16", {}),
    "f16 in f16": ("f16", "f16", {"accumulate": "f16"}),
    "tf32": ("f32", "f32", {"precision": "tf32"}),
    "i8": ("i8", "i8", {}),
    "e4m3": ("f8e4m3", "f8e4m3", {}),
    "e5m2": ("f8e5m2", "f8e5m2", {}),
    "e4m3 by e5m2": ("f8e4m3", "f8e5m2", {}),
    "e5m2 by e4m3": ("f8e5m2", "f8e4m3", {}),
}
"""Types of the operands, and what else a product is given."""
NEW = [kind for kind in KINDS if kind not in ("bf16", "f16")]
LAYOUTS = ("TN", "NN", "NT", "TT")
"""As BLAS says it: T for an A, and N for a B, that lies along the summed axis."""
SCHEDULES: dict[str, MatmulParams | AmpereParams] = {
    "pipelined": MatmulParams((64, 32, 64), 1, "pipelined", 3, 1, False, columns=16),
    "cooperative": MatmulParams((128, 32, 64), 2, "cooperative", 3, 2, True, columns=32),
    "ping_pong": MatmulParams((64, 64, 32), 2, "ping_pong", 4, 2, True, columns=32),
    "groups": AmpereParams((64, 32, 32), 2, "groups", 3, 1, True, columns=16),
    "mbarriers": AmpereParams((64, 32, 64), 4, "mbarriers", 2, 0, False, columns=32),
    "threads": AmpereParams((64, 32, 64), 4, "threads", 1, 0, False, columns=32),
}
CASES = [
    (kind, name)
    for kind in NEW
    for name, params in SCHEDULES.items()
    if not (isinstance(params, AmpereParams) and KINDS[kind][0].startswith("f8"))
]


def product(kind: str, layout: str = "TN") -> Fusion:
    """A [M, K] times B [K, N], as they lie in memory."""
    fd = FusionDefinition()
    first, second, how = KINDS[kind]
    a, b = (fd.define_tensor(shape=[-1, -1], dtype=dtype) for dtype in (first, second))
    a = fd.ops.permute(a, [1, 0]) if layout[0] == "N" else a
    b = fd.ops.permute(b, [1, 0]) if layout[1] == "N" else b
    fd.add_output(fd.ops.matmul(a, b, **how))
    return fd.fusion()


def built(kind: str, params: MatmulParams | AmpereParams | None, n: int = 256) -> Program:
    """The kernels of a product of n x n matrices."""
    fusion = product(kind)
    specs = {
        name: row_major((n, n), DType.of(dtype))
        for name, dtype in zip(("T0", "T1"), KINDS[kind][:2], strict=True)
    }
    return build(fusion, params, classify(fusion, params, specs))


def extents(fusion: Fusion, sizes: tuple[int, ...]) -> dict[str, int]:
    """Give every axis an extent."""
    names = dict.fromkeys(str(n) for tv in fusion.tensors for n in tv.shape)
    return dict(zip(names, sizes, strict=True))


@pytest.mark.parametrize(("kind", "layout"), covering(1, NEW, LAYOUTS))
def test_integers_are_exact_in_every_layout(kind: str, layout: str) -> None:
    """What is not K-major is copied first, unless it has 16 bits; tails along every axis."""
    fusion = product(kind, layout)
    schedules = [name for other, name in CASES if other == kind]
    name = schedules[(LAYOUTS.index(layout) + NEW.index(kind)) % len(schedules)]
    case = Case(fusion, SCHEDULES[name], extents(fusion, (72, 104, 40)), "integers", 1)
    records = judged.records(case, ["simulator", "differential"])
    assert {record.oracle for record in records} >= {"simulator", "differential"}
    assert [r for r in records if r.status != "pass"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_schedule_assembles_without_a_finding(kind: str) -> None:
    """No spill, nothing serialised or injected."""
    (launch,) = built(kind, None, 4096).launches
    verdict = judge_log(compile_cubin(launch.source).log)
    assert (verdict.status, verdict.findings) == (Status.PASS, ())


@pytest.mark.parametrize(("kind", "name"), [c for c in CASES if c[1] == "groups"])
def test_products_by_warps_assemble_without_a_finding(kind: str, name: str) -> None:
    """The older instructions of every type."""
    for launch in built(kind, SCHEDULES[name]).launches:
        verdict = judge_log(compile_cubin(launch.source).log)
        assert (verdict.status, verdict.findings) == (Status.PASS, ())


def test_an_operand_that_wgmma_cannot_read_is_copied_once() -> None:
    """Only 16-bit operands may have K across their rows."""
    for kind, count in (("f16 in f16", 1), ("tf32", 3), ("i8", 3), ("e4m3 by e5m2", 3)):
        fusion = product(kind, "NT")
        specs = {
            name: row_major((256, 256), DType.of(dtype))
            for name, dtype in zip(("T0", "T1"), KINDS[kind][:2], strict=True)
        }
        params = SCHEDULES["pipelined"]
        made = build(fusion, params, classify(fusion, params, specs))
        assert len(made.launches) == count, kind


def test_sums_in_f16_are_widened_after_the_flush() -> None:
    """A part of the packed accumulator at a time; the rest of the epilogue computes in f32."""
    (launch,) = built("f16 in f16", SCHEDULES["pipelined"]).launches
    stmts = list(launch.kernel.walk())
    parts = [stmt for stmt in stmts if isinstance(stmt, kir.Slice)]
    assert len(parts) == 2
    for part in parts:
        assert part.src.dtype is part.dst.dtype is DType.F16
        (wide,) = [s for s in stmts if isinstance(s, kir.Compute) and part.dst in s.args][:1]
        assert (wide.op, wide.dst.dtype) == ("promote", DType.F32)
    assert "uint32 acc[8]" in launch.source


def test_products_of_i8_wrap_in_the_reference() -> None:
    """2**18 products of 128 * 128 are 2**32: nothing is left."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="i8") for _ in range(2))
    fd.add_output(fd.ops.linear(a, b))
    x = torch.full((1, 1 << 18), -128, dtype=torch.int8)
    (want,) = evaluate(fd.fusion(), [x, x])
    assert want.dtype is DType.I32
    assert want.value.tolist() == [[0]]
    (half,) = evaluate(fd.fusion(), [x[:, : 1 << 17], x[:, : 1 << 17]])
    assert half.value.tolist() == [[-(2**31)]]


def test_the_bound_of_a_type_follows_its_sums() -> None:
    """Integers are exact up to what the sums hold, and have a bound beyond; overflow is open."""
    for kind, whole in (("e4m3", 2**13), ("f16 in f16", 2**11), ("tf32", 2**24)):
        dtype = getattr(torch, DType.of(KINDS[kind][0]).torch_name)
        for count, exact in ((whole // 256, True), (whole // 256 + 2, False)):
            x = torch.full((1, count), 16.0).to(dtype)
            x[0, -1] = 1.0
            (want,) = evaluate(product(kind, "TT"), [x, x.T])
            assert (want.bound.item() == 0) == exact, (kind, count)
    x = torch.full((1, 32), 128.0, dtype=torch.float16)
    (want,) = evaluate(product("f16 in f16", "TT"), [x, x.T])
    assert want.undecided.all()


def test_a_fusion_with_these_types_is_read_back() -> None:
    """Cases are kept as text."""
    for kind in NEW:
        fusion = product(kind, "NT")
        case = Case(fusion, SCHEDULES["groups"], extents(fusion, (8, 8, 8)), "integers", 0)
        assert str(from_text(to_text(case)).fusion) == str(fusion)


Say = Callable[[FusionDefinition, dict[str, TensorView]], object]
REFUSALS: dict[str, tuple[Say, str]] = {
    "i8 by bf16": (lambda fd, x: fd.ops.matmul(x["i8"], x["bf16"]), "cast them to one type"),
    "i8 by f8": (lambda fd, x: fd.ops.matmul(x["i8"], x["f8e4m3"]), "cast them to one type"),
    "bf16 in f16": (
        lambda fd, x: fd.ops.matmul(x["bf16"], x["bf16"], accumulate="f16"),
        "only f16 operands are added up in f16, not bf16; leave it out",
    ),
    "unknown sums": (
        lambda fd, x: fd.ops.linear(x["f16"], x["f16"], accumulate="bf16"),
        "accumulate 'bf16' is unknown; use 'f16' or leave it out",
    ),
    "i8 in f32": (
        lambda fd, x: fd.ops.matmul(x["i8"], x["i8"], accumulate="f32"),
        "products of i8 are added up in i32; leave accumulate out",
    ),
    "i8 into f32": (
        lambda fd, x: fd.ops.fused_multiply_sum(x["i8"], x["i8"], dtype="f32"),
        "the result of i8 operands is i32; cast it after",
    ),
    "f8 into f8": (
        lambda fd, x: fd.ops.fused_multiply_sum(x["f8e5m2"], x["f8e5m2"], dtype="f8e5m2"),
        "the result of f8e5m2 operands is f32; cast it after",
    ),
    "bias of i8": (
        lambda fd, x: fd.ops.linear(x["i8"], x["i8"], fd.define_tensor([-1], "i8")),
        "is i8, the product of .* is i32; cast it",
    ),
    "add of f8": (
        lambda fd, x: fd.ops.add(x["f8e4m3"], x["f32"]),
        "which is multiplied by matmul and copied by set only; cast it to f16 or bf16",
    ),
    "add of i8": (lambda fd, x: fd.ops.add(x["i8"], x["i8"]), "operands are i8; cast to one of"),
    "full of i8": (
        lambda fd, x: fd.ops.full([4], 1, "i8"),
        "no i8 is made from nothing; pass a tensor, or use i32 or bf16",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_type_does_not_do_is_refused(name: str) -> None:
    """With the way out."""
    fd = FusionDefinition()
    operands = {dtype.name: fd.define_tensor([8, 8], dtype) for dtype in DType}
    say, why = REFUSALS[name]
    with pytest.raises(FusionError, match=why):
        say(fd, operands)


def test_sm_80_has_no_products_of_8_bit_floats() -> None:
    """The reason names the schedule that has."""
    with pytest.raises(ScheduleError, match="sm_80 multiplies no f8e4m3 .*; use MatmulParams"):
        built("e4m3", SCHEDULES["groups"])


def test_a_step_shorter_than_an_instruction_is_refused() -> None:
    """32 bytes along K are 32 elements of i8."""
    params = AmpereParams((64, 32, 16), 2, "groups", 3, 1, True, columns=16)
    with pytest.raises(ScheduleError, match="mma takes 32 elements of i8 .*; use a K step of 32"):
        built("i8", params)
    hopper = MatmulParams((64, 32, 16), 1, "pipelined", 3, 1, False, columns=16)
    with pytest.raises(ScheduleError, match="use multiples of 32"):
        built("i8", hopper)


def test_8_bit_elements_are_cast_and_copied() -> None:
    """Pointwise kernels move them; i8 is converted like any integer."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="i8")
    e = fd.define_tensor(shape=[-1, -1], dtype="f8e4m3")
    fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.cast(x, "f32"), 0.5), "i8"))
    fd.add_output(fd.ops.set(e))
    fusion = fd.fusion()
    records = judged.records(Case(fusion, DIRECT, extents(fusion, (8, 48, 8, 48)), "integers", 3))
    assert [(r.oracle, r.reason) for r in records if r.status != "pass"] == []
    assert {"differential", "assembler"} <= {r.oracle for r in records}


# --- on a device --------------------------------------------------------------------------------


def drawn(dtype: str, shape: tuple[int, int], seed: int) -> torch.Tensor:
    """Small integers, which every type holds."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-2, 3, shape, generator=generator, dtype=torch.int32)
    return whole.to(getattr(torch, DType.of(dtype).torch_name))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(64, 32, 64), (200, 136, 256), (129, 72, 200)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*SCHEDULES, "default"])
@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_exact_on_a_device(
    kind: str, name: str, layout: str, size: tuple[int, int, int]
) -> None:
    """Every type by every schedule, as torch has it in f64."""
    first, second, _ = KINDS[kind]
    params = SCHEDULES.get(name)
    if isinstance(params, AmpereParams) and first.startswith("f8"):
        pytest.skip("sm_80 multiplies no 8-bit floats: refused, see above")
    m, n, k = size
    a = drawn(first, (k, m) if layout[0] == "N" else (m, k), 1)
    b = drawn(second, (n, k) if layout[1] == "N" else (k, n), 2)
    fusion = product(kind, layout)
    run = Executable(fusion, params, poison=True)
    got = run(a.cuda(), b.cuda())
    verdict = compare(evaluate(fusion, [a, b]), list(got), exact=True)
    assert verdict.status is Status.PASS, verdict


@pytest.mark.gpu
@pytest.mark.parametrize("count", [32, 256, 2048, 16384])
@pytest.mark.parametrize("name", ["cooperative", "groups"])
@pytest.mark.parametrize("kind", KINDS)
def test_reals_are_within_the_bound_on_a_device(kind: str, name: str, count: int) -> None:
    """The constants of the reference are measured ones."""
    first, second, _ = KINDS[kind]
    params = SCHEDULES[name]
    if isinstance(params, AmpereParams) and first.startswith("f8"):
        pytest.skip("sm_80 multiplies no 8-bit floats: refused, see above")
    generator = torch.Generator().manual_seed(count)
    shapes = ((96, count), (count, 80))
    if kind == "i8":
        a, b = (torch.randint(-128, 128, s, generator=generator).to(torch.int8) for s in shapes)
    else:
        made = [torch.rand(s, generator=generator) - 0.25 for s in shapes]
        types = [getattr(torch, DType.of(d).torch_name) for d in (first, second)]
        a, b = (x.to(t) for x, t in zip(made, types, strict=True))
    fusion = product(kind, "TT")
    got = Executable(fusion, params, poison=True)(a.cuda(), b.cuda())
    verdict = compare(evaluate(fusion, [a, b]), list(got), exact=False)
    assert verdict.status is Status.PASS, verdict
