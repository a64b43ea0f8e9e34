"""Kernels of Triton: launched as Triton would, with its own specialisation, and judged."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", "3.9", reason="Gluon's names are those of Triton 3.9")

from triton.tools.tensor_descriptor import TensorDescriptor
from triton_kernels import added, of_one_block, racing, shifted

from fuser import judge_triton
from fuzz.ptx import triton as tutorials
from oracles.ptx.launch import Pointer, Scalar, TensorMap
from oracles.ptx.of_triton import Compiled, compiled
from oracles.verdict import Status

EXAMPLES = {one.name: one for one in tutorials.examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_tutorials_pass(name: str) -> None:
    """Late engines, and another order."""
    for seed in (0, 1):
        verdict = EXAMPLES[name].judged(EXAMPLES[name].text, seed)
        assert verdict.status is Status.PASS, str(verdict)


def test_tensors_hold_what_the_kernel_left() -> None:
    """In place, as on a GPU; what lies behind views is one memory."""
    whole = torch.arange(300.0)
    x, out = whole[:100], whole[150:250]
    assert judge_triton(shifted, (1,), x, out, 100, BLOCK=128).status is Status.PASS
    assert torch.equal(whole[150:250], torch.arange(100.0))
    assert torch.equal(whole[250:], torch.arange(250.0, 300.0))


def test_arrays_of_numpy_are_tensors() -> None:
    """Their memory is changed in place, too."""
    x, out = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    assert judge_triton(of_one_block, (1,), x, out, 40).status is Status.PASS
    assert (out == x).all()


def test_a_race_between_ctas_is_found() -> None:
    """One CTA alone has none."""
    out = torch.zeros(128)
    assert judge_triton(racing, (1,), out, BLOCK=128).status is Status.PASS
    assert (out == 1).all()
    verdict = judge_triton(racing, (3,), out, BLOCK=128)
    assert verdict.status is Status.FAIL
    assert {finding.kind for finding in verdict.findings} <= {"RAW", "WAR", "WAW", "race"}


def test_an_access_out_of_bounds_names_the_line_of_the_source() -> None:
    """A mask of more elements than there are."""
    verdict = judge_triton(shifted, (1,), torch.zeros(100), torch.zeros(100), 128, BLOCK=128)
    assert verdict.status is Status.FAIL
    assert "bounds" in {finding.kind for finding in verdict.findings}
    assert "(triton_kernels.py:" in str(verdict)


def test_parameters_are_those_of_the_launcher() -> None:
    """Descriptors become a map, extents and strides; a number that is 1 is a constant."""
    x = torch.zeros(96, 128).half()
    made = EXAMPLES["persistent matmul"].made
    first, *numbers = made.launch.arguments[:5]
    assert isinstance(first, TensorMap)
    assert (first.dims, first.box, first.swizzle) == ((448, 80), (64, 64), 128)
    assert [one for one in numbers if isinstance(one, Scalar)] == [
        Scalar(80, "i32"), Scalar(448, "i32"), Scalar(448, "i64"), Scalar(1, "i64"),
    ]  # fmt: skip
    made = compiled(shifted, (1,), x, x[1:], 1, BLOCK=32)
    assert made.launch.arguments[:2] == (Pointer("memory 0"), Pointer("memory 0", 256))
    assert len(made.launch.arguments) == 4, "and two of Triton's own"


def test_a_configuration_of_an_autotuned_kernel_is_chosen() -> None:
    """By its number."""
    texts = {EXAMPLES[f"matmul {config}"].text for config in range(2)}
    assert len(texts) == 2
    tensors = [torch.zeros(16, 16).half() for _ in range(3)]
    with pytest.raises(ValueError, match=r"config=2\): the kernel has 2 configurations; use 0..1"):
        judge_triton(tutorials.matmul, (1,), *tensors, 16, 16, 16, config=2)


def test_values_that_depend_on_the_order_are_a_warning() -> None:
    """Sums of floats by atomics pass; the tensors differ between orders."""
    values = torch.tensor([1e8, 1.0, -1e8, 3.0]).repeat_interleave(32)
    verdict = judge_triton(
        added, (4,), values, torch.zeros(1), 128, orders=range(8), BLOCK=32, num_warps=1
    )
    assert verdict.status is Status.PASS
    assert [finding.severity for finding in verdict.findings] == ["warning"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: judge_triton(print, (1,), x), r"no kernel of Triton; pass what triton.jit"),
        (lambda x: judge_triton(racing, (0,), x, BLOCK=64), r"grid=\(0,\)\): a grid is 1 to 3"),
        (lambda x: judge_triton(racing, (1,) * 4, x, BLOCK=64), "a grid is 1 to 3 numbers"),
        (lambda x: judge_triton(racing, (1,), x.to("meta"), BLOCK=64), r"argument 0 on meta.*cpu"),
        (
            lambda x: judge_triton(
                tutorials.matmul_by_descriptors, (1,),
                *(TensorDescriptor(x, [8, 8], [8, 1], [64, 64], round_f32_to_tf32=True),) * 3,
                64, 64, 64, BM=64, BN=64, BK=64,
            ),
            "round to tf32",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_says_why(call: Any, says: str) -> None:
    """And what to do instead."""
    with pytest.raises((TypeError, ValueError), match=says):
        call(torch.zeros(64))


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel comes from somewhere else then; Triton's own parts are asked for first."""
    monkeypatch.setitem(sys.modules, "triton.runtime", None)
    with pytest.raises(ModuleNotFoundError, match="pip install triton"):
        judge_triton(racing, (1,), torch.zeros(64), BLOCK=64)


def test_no_order_is_no_pass() -> None:
    """Nothing was executed."""
    made = EXAMPLES["add"].made
    assert isinstance(made, Compiled)
    assert made.judged(()).status is Status.UNKNOWN
