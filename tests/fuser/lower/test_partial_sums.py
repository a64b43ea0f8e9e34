"""Sums that go from CTA to CTA in 16 bits: what kernels do, who passes them, what a GPU gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import Golden
from judged import complaints
from product_kernels import kernel, linear
from sample import covering
from split_products import BY_TMA, ROLES, SCATTER, SMALL, SMALL_AMPERE

from fuser.codegen import cuda
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.runtime.executable import Executable
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import Partial
from fuzz.cases.case import Case, Kind
from fuzz.kernels.fusions import gated
from fuzz.values import partials
from oracles.assembler import judge_log
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

WIDE = replace(SMALL, tile=(128, 128, 64), warpgroups=2, stages=3, prefetch=1, columns=64)
HALVES: tuple[Partial, ...] = ("f16", "bf16")
SCHEDULES: dict[str, MatmulParams | AmpereParams] = {
    "vectorized": SMALL,
    "tma": BY_TMA,
    "tma, chunks": replace(BY_TMA, columns=8),
    "scatter": SCATTER,
    "roles": ROLES,
    "ampere": SMALL_AMPERE,
    "ampere, scatter": replace(SMALL_AMPERE, meet="scatter", columns=8),
}
LARGE: dict[str, MatmulParams | AmpereParams] = {
    "vectorized, wide": WIDE,
    "tma, wide": replace(WIDE, meet="tma"),
    "scatter, wide": replace(WIDE, meet="scatter", columns=16),
}


def workspace(made: kir.Kernel) -> kir.Tensor:
    """The one that sums of the first product go through."""
    return next(tensor for tensor in made.tensors if tensor.name == "W_acc")


def test_a_kernel_that_rounds_sums_in_turns_reads_like_this(golden: Golden) -> None:
    """Loaded and promoted, added in f32, rounded as they are stored: 8 elements are 16 bytes."""
    golden.check(text(kernel(replace(SMALL, store="direct", partial="bf16"))))


def test_a_kernel_that_rounds_sums_by_tma_reads_like_this(golden: Golden) -> None:
    """Staged by stmatrix in 16 bits, which the engine adds up."""
    golden.check(text(kernel(replace(BY_TMA, store="direct", partial="f16"))))


def test_a_kernel_that_rounds_each_sum_once_reads_like_this(golden: Golden) -> None:
    """Promoted where they are added up."""
    golden.check(text(kernel(replace(SCATTER, partial="bf16"))))


@pytest.mark.parametrize("params", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("partial", HALVES)
def test_sums_lie_in_memory_as_asked_and_are_added_in_f32(
    params: MatmulParams | AmpereParams, partial: Partial
) -> None:
    """The workspace, and what TMA takes; nothing else differs from sums of f32 but promotions."""
    made, plain = kernel(replace(params, partial=partial)), kernel(params)
    dtype = DType.of(partial)
    assert (workspace(made).dtype, workspace(plain).dtype) == (dtype, DType.F32)
    assert workspace(made).aligned == 8
    assert {b.dtype for b in made.buffers if b.name == "S_acc"} <= {dtype}
    promoted = [
        s
        for s in made.walk()
        if isinstance(s, kir.Compute) and s.op == "promote" and isinstance(s.args[0], kir.Fragment)
    ]
    adds = [s for s in made.walk() if isinstance(s, kir.Compute) and s.op == "add"]
    assert promoted
    assert {s.dst.dtype for s in adds if s.dst.name.startswith("acc")} == {DType.F32}
    kinds = [type(s) for s in made.walk() if s not in promoted]
    assert kinds == [type(s) for s in plain.walk()]


def test_both_products_of_a_loop_are_handed_on_so() -> None:
    """Each has a workspace of its own."""
    for params in (SMALL, BY_TMA, SCATTER):
        made = kernel(replace(params, partial="f16"), gated())
        shared = [t.dtype for t in made.tensors if t.name in made.workspaces]
        assert shared == [DType.F16, DType.F16]


def test_sums_of_i8_are_refused() -> None:
    """They are in i32, and exact."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "i8") for _ in range(2))
    fd.add_output(fd.ops.linear(a, b))
    for params in (replace(SMALL, tile=(64, 16, 32)), replace(SMALL_AMPERE, tile=(32, 16, 32))):
        says = r'Params\(partial="bf16"\): acc adds up in i32, .*; leave partial out'
        with pytest.raises(ScheduleError, match=says):
            kernel(replace(params, partial="bf16"), fd.fusion())
        kernel(params, fd.fusion())


def test_what_ampere_cannot_hand_on_is_refused() -> None:
    """As on Hopper (`test_matmul_params`)."""
    with pytest.raises(ScheduleError, match=r'AmpereParams\(partial="f16", splits=1\): one CTA'):
        replace(SMALL_AMPERE, splits=1, partial="f16")
    with pytest.raises(ScheduleError, match=r'AmpereParams\(partial="f8"\): unknown; use'):
        replace(SMALL_AMPERE, partial="f8")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("name", "given"), covering(1, SCHEDULES, [("bf16", "integers"), ("f16", "reals")])
)
def test_all_judges_pass_rounded_sums(name: str, given: tuple[Partial, Kind]) -> None:
    """Values are within their bound, in the simulator, too, which rounds as memory does."""
    partial, kind = given
    extents = {"i0": 72, "i1": 200, "i2": 24}
    case = Case(linear(), replace(SCHEDULES[name], partial=partial), extents, kind, 0)
    assert not complaints(case)


@pytest.mark.parametrize("params", [*SCHEDULES.values(), *LARGE.values()])
@pytest.mark.parametrize("partial", HALVES)
def test_kernels_that_round_sums_assemble_without_a_finding(
    params: MatmulParams | AmpereParams, partial: Partial
) -> None:
    """No spill, nothing serialised."""
    source = cuda.source(kernel(replace(params, partial=partial)))
    verdict = judge_log(compile_cubin(source).log)
    assert (verdict.status, verdict.findings) == (Status.PASS, ())


# --- on a GPU -----------------------------------------------------------------------------------


def in_f32(kind: str) -> Fusion:
    """`x @ w.T` of rows of K, as it was added up."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], kind) for _ in range(2))
    fd.add_output(fd.ops.fused_multiply_sum(x, w, [-1], ((0, -1, 1), (-1, 0, 1)), "f32"))
    return fd.fusion()


EVERY = {**SCHEDULES, **LARGE}


@pytest.mark.gpu
@pytest.mark.parametrize("params", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("partial", HALVES)
@pytest.mark.parametrize("splits", [3, 64])
def test_the_gpu_rounds_within_the_bound(
    params: MatmulParams | AmpereParams, partial: Partial, splits: int
) -> None:
    """And no less than it says: sums of reals differ from those in f32; launches repeat bits."""
    torch.manual_seed(splits)
    wanted = replace(params, splits=splits, partial=partial)
    fusion = in_f32("bf16")
    run, plain = Executable(fusion, wanted, poison=True), Executable(fusion, params, poison=True)
    for m, n, k in [(64, 24, 2048), (130, 40, 1000), (1, 8, 4096), (100, 40, 128)]:
        x, w = torch.rand(m, k).bfloat16(), torch.randn(n, k).bfloat16()
        given = [x.cuda(), w.cuda()]
        got = [run(*given)[0].cpu() for _ in range(3)]
        verdict = compare(evaluate(fusion, [x, w], partials(wanted)), got[:1], exact=False)
        assert verdict.status is Status.PASS, verdict
        assert all(torch.equal(one, got[0]) for one in got)
        if k >= 1000:
            assert not torch.equal(got[0], plain(*given)[0].cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("params", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("partial", HALVES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-24])
def test_the_gpu_keeps_what_16_bits_hold(
    params: MatmulParams | AmpereParams, partial: Partial, scale: float
) -> None:
    """Few bits are exact, also below the least normal number of f16: the engine keeps those."""
    torch.manual_seed(1)
    wanted = replace(params, splits=5, partial=partial)
    fusion = in_f32("f16")
    x = torch.randint(0, 2, (130, 1024)).half()
    w = (torch.rand(72, 1024) < 1 / 16) * torch.randint(-1, 2, (72, 1024)) * scale
    (want,) = evaluate(fusion, [x, w.half()], partials(wanted))
    assert not want.bound.any()
    got = Executable(fusion, wanted, poison=True)(x.cuda(), w.half().cuda())[0].cpu()
    verdict = compare([want], [got], exact=False)
    assert (verdict.status, verdict.checked) == (Status.PASS, got.numel())
