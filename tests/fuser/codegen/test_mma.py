"""Products on tensor cores: instructions, operands, and an assembler that has nothing to repair."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Golden
from kernels_matmul import SHAPES, matmul

from fuser.codegen import cuda
from fuser.cookbook.recipes import RECIPES
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from fuser.runtime.nvrtc import compile_cubin
from oracles.assembler import judge_log, resources
from oracles.verdict import Status

SECONDS = 2.0
"""Processor time of one compile: 0.6 s alone, twice that beside a busy sibling core."""


@pytest.mark.parametrize("name", SHAPES)
def test_fast_matmuls_assemble_without_a_finding(name: str) -> None:
    """No spill, no stack, nothing serialised, injected or ignored; the registers it counts on."""
    kernel = matmul(SHAPES[name])
    validate(kernel, after="hand", final=True)
    log = compile_cubin(cuda.source(kernel)).log
    verdict = judge_log(log)
    assert verdict.status is Status.PASS, log
    assert not verdict.findings, log
    (made,) = resources(log)
    assert made.stack_bytes == 0
    assert kernel.registers in (0, made.registers)


def test_a_large_matmul_compiles_in_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autotuning tries a dozen; a header too many costs as much as the whole kernel."""
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path))
    text = cuda.source(matmul())
    start = time.process_time()
    assert not compile_cubin(text).cached
    assert time.process_time() - start < SECONDS


def test_cuda_of_a_fast_matmul(golden: Golden) -> None:
    """The file reads like the Kernel."""
    golden.check(
        cuda.source(matmul(replace(SHAPES["a-in-registers"], tile=(128, 16, 64), strip=16)))
    )


def test_an_instruction_is_spelled_once() -> None:
    """Two accumulators of one shape share it."""
    text = cuda.source(RECIPES["double_wgmma"]())
    assert text.count("struct wgmma::Instruction<bf16, float, 8>") == 1


@pytest.mark.parametrize(
    ("shape", "swizzle", "way_out"),
    [((64, 16), 32, "use swizzle=32"), ((64, 64), 128, "use swizzle=128")],
)
def test_an_operand_without_swizzle_is_refused(
    shape: tuple[int, int], swizzle: int, way_out: str
) -> None:
    """Rows one behind the other are no layout of the tensor core; the message says what is."""
    a = kir.Buffer("SA", DType.BF16, shape, 1, 0)
    b = kir.Buffer("SB", DType.BF16, shape, 1, 8192, swizzle)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((64, 64), 2, 128, kir.Deal.STRIPS))
    product = kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0), 0)
    kernel = kir.Kernel("k", (), (), (), (a, b), (), 128, (product,))
    with pytest.raises(ScheduleError, match=f"SA has rows of .* without swizzle.*{way_out}"):
        cuda.source(kernel)


@pytest.mark.parametrize("n", [8, 16, 24, 64, 96, 192, 256])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_every_width_has_its_instruction(n: int, dtype: DType) -> None:
    """Operands are counted from the accumulators, N / 2 of them."""
    a = kir.Buffer("SA", dtype, (64, 16), 1, 0, 32)
    b = kir.Buffer("SB", dtype, (n, 16), 1, 2048, 32)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((64, n), 2, 128, kir.Deal.STRIPS))
    d = kir.Tensor("D", DType.F32, (64, n), (n, 1), 4)
    body = (
        kir.WgmmaFence(),
        kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0), 0),
        kir.AsyncCommit(kir.AsyncKind.WGMMA),
        kir.AsyncAwait(kir.AsyncKind.WGMMA, 0),
        kir.Store(kir.Box(d, (0, 0), (64, n), (64, n)), acc, 2),
    )
    kernel = kir.Kernel("k", (), (d,), (), (a, b), (), 128, body, ("D",))
    text = cuda.source(kernel)
    assert f"m64n{n}k16.f32.{dtype.name}.{dtype.name}" in text
    assert judge_log(compile_cubin(text).log).status is Status.PASS
