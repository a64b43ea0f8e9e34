"""CUDA text: one line per statement, and every family compiles without a finding."""

import pytest
from conftest import Golden
from fusions import FAMILIES, SPECIALIZED, compiled

from fuser import codegen
from fuser import kernel_ir as kir
from fuser.dtype import DType
from fuser.nvrtc import compile_cubin
from oracles.assembler import judge_log
from oracles.verdict import Status


def test_cuda_of_a_specialized_kernel(golden: Golden) -> None:
    """The file reads like the Kernel."""
    golden.check(compiled(SPECIALIZED).launches[0].source)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_assembles_without_a_finding(family: str) -> None:
    """No spill, no message; needs neither GPU nor driver."""
    cubin = compile_cubin(compiled(FAMILIES[family]).launches[0].source)
    assert judge_log(cubin.log).status is Status.PASS, cubin.log


def test_one_line_per_statement() -> None:
    """Declarations of fragments apart, statements and lines of the body match one to one."""
    launch = compiled(SPECIALIZED).launches[0]
    lines = [line.strip() for line in launch.source.split("tid = threadIdx.x;\n")[1].splitlines()]
    code = [
        line
        for line in lines
        if line not in ("}", "") and not line.startswith(("float r_", "const int tid"))
    ]
    assert len(code) == len(list(launch.kernel.walk()))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, DType.F32, "(float)0x1.999999999999ap-4"),
        (float("-inf"), DType.F32, "-math::infinity<float>()"),
        (float("nan"), DType.F64, "math::nan<double>()"),
        (True, DType.BOOL, "true"),
        (-(2**63), DType.I64, "(int64)(-9223372036854775807ll - 1)"),
        (2**31, DType.I32, "(int)(-2147483647ll - 1)"),
        (-7, DType.I32, "(int)-7ll"),
    ],
)
def test_literals_are_exact(value: float, dtype: DType, text: str) -> None:
    """Floats as hexadecimal, integers wrapped, infinities by name."""
    assert codegen._literal(value, dtype) == text


def test_every_sync_has_a_spelling() -> None:
    """All nodes compile, also those that no pass emits yet."""
    bar = kir.MBarrier("b", 1, 2)
    kinds: list[kir.Sync] = [
        kir.BlockSync(0, 64),
        kir.NamedArrive(1, 64),
        kir.WarpSync(),
        kir.MBarrierInit(bar),
        kir.MBarrierInvalidate(bar),
        kir.MBarrierArrive(bar, 0),
        kir.MBarrierArrive(bar, 0, kir.Scope.CLUSTER),
        kir.MBarrierArrive(bar, 1, cta=1),
        kir.MBarrierArriveExpectTx(bar, 0, 16),
        kir.MBarrierWaitParity(bar, 0, 0),
        kir.MBarrierWaitParity(bar, 0, 0, kir.Scope.CLUSTER),
        *(kir.AsyncCommit(kind) for kind in kir.AsyncKind),
        *(kir.AsyncAwait(kind, 1) for kind in kir.AsyncKind),
        kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True),
        kir.CpAsyncMBarrierArrive(bar, 0, noinc=True),
        kir.CpAsyncMBarrierArrive(bar, 0, noinc=False),
        *(kir.FenceAsyncProxy(space) for space in kir.Space),
        kir.FenceMBarrierInit(),
        *(kir.ThreadFence(scope) for scope in kir.Scope),
        kir.WgmmaFence(),
        kir.ClusterArrive(),
        kir.ClusterArrive(relaxed=True),
        kir.ClusterWait(),
        kir.SetMaxNReg(32, increase=False),
        kir.SetMaxNReg(64, increase=True),
    ]
    kernel = kir.Kernel("all", (), (), (), (), (bar,), 128, tuple(kinds))
    compile_cubin(codegen.source(kernel))
