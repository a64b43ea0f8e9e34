"""Blocks of real models as kernels: what a person reads, what they move, their values."""

from __future__ import annotations

import re

import pytest
import torch
from blocks import BLOCKS, ran, small
from conftest import Golden

from fuser.dtype import DType
from fuser.runtime.executable import Executable
from fuser.runtime.explain import Explanation, explain
from fuzz.cases.case import compiled
from oracles.differential import compare
from oracles.reference.estimate import EPS
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

MOVED = {
    "layer norm backward": (2, 1.07),  # parts of the gradients of weight and bias
    "cross entropy": (1, 1.0),
    "rotary positions": (1, 1.0),
    "group norm and SiLU": (2, 1.5),  # a weight for some elements of a row: two kernels read x
    "gated residual": (1, 1.0),
    "gated MLP": (2, 1.78),  # the operand between the products
    "MLP backward": (2, 1.36),  # its result is read again for sums of columns
    "rms norm, quantised": (1, 1.0),
    "label smoothing": (2, 1.01),
}
"""How many kernels, and how much these move of what inputs and outputs have."""


def said(name: str) -> Explanation:
    """What is said of a block at the extents of a model."""
    block = BLOCKS[name]
    return explain(block.fusion(block.real), *block.shapes(block.real))


@pytest.mark.parametrize("name", BLOCKS)
def test_what_a_person_reads(name: str, golden: Golden) -> None:
    """Which operations share a kernel, why the cut is there, whose schedule, and bytes."""
    golden.check(re.sub("(Params) .*", r"\1 ...", f"{said(name)}\n"))


@pytest.mark.parametrize("name", MOVED)
def test_bytes_are_near_the_least(name: str) -> None:
    """Each input once, but for the kernels that have to wait."""
    kernels, ratio = MOVED[name]
    found = said(name)
    assert len(found.parts) == kernels
    assert found.nbytes <= 1.01 * ratio * found.least


@pytest.mark.parametrize("name", BLOCKS)
def test_no_product_is_computed_twice(name: str) -> None:
    """Attention multiplies Q by K once."""
    products = [op for part in said(name).parts for op in part.ops if "fused_multiply_sum" in op]
    assert len(products) == len(set(products))


@pytest.mark.parametrize("name", BLOCKS)
def test_the_reference_is_torch(name: str) -> None:
    """Within the bound of the reference, and the rounding of what is stored."""
    block = BLOCKS[name]
    given = block.given(block.small)
    fusion = block.fusion(block.small)
    for mine, theirs in zip(evaluate(fusion, given), block.wanted(given), strict=True):
        last = {DType.F8E4M3: 2.0**-3, **EPS}[mine.dtype]
        off = (mine.value - theirs).abs()
        assert bool((off <= mine.bound + last * theirs.abs() + 1e-5).all())


@pytest.mark.parametrize("name", BLOCKS)
def test_kernels_compute_what_the_fusion_says(name: str) -> None:
    """In the simulator."""
    case, given = small(name), BLOCKS[name].given(BLOCKS[name].small)
    memory = ran(case, compiled(case), given)
    got = [torch.as_tensor(memory[tv.name]) for tv in case.fusion.outputs]
    verdict = compare(evaluate(case.fusion, given), got, exact=False)
    assert verdict.status is Status.PASS, verdict
    assert not verdict.reason


@pytest.mark.gpu
@pytest.mark.parametrize("name", BLOCKS)
def test_the_device_computes_what_the_fusion_says(name: str) -> None:
    """Default schedules: a part of the extents of a model within the bound, all of them near."""
    block = BLOCKS[name]
    some = {**block.real, **{axis: 64 // len(block.real) for axis in "mbs" if axis in block.real}}
    given = block.given(some)
    fusion = block.fusion(some)
    got = [out.cpu() for out in Executable(fusion)(*(x.cuda() for x in given))]
    assert compare(evaluate(fusion, given), got, exact=False).status is Status.PASS
    given = block.given(block.real, "cuda")
    for mine, theirs in zip(
        Executable(block.fusion(block.real))(*given), block.wanted(given), strict=True
    ):
        off = (mine.double() - theirs).abs()
        assert bool((off <= 0.15 * theirs.abs() + 0.01 * _of_rows(theirs)).all())


def _of_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the size of each row: a sum of bf16 products may cancel, and keeps their roundings.

    The deviation of all elements is no measure: the first rows of causal attention are means of a
    few values, ten times as large as the others.
    """
    return x.abs().amax(-1, keepdim=True) if x.ndim else x.abs()
