"""Kernels that write tensor maps, whose truth is known, through their printed code and its PTX."""

from __future__ import annotations

import pytest
import torch
from litmus.parts import Litmus
from litmus.tensor_maps import LITMUS

from fuser.codegen import cuda
from fuser.kernel import ir as kir
from fuser.runtime.call import shape
from fuser.runtime.kernel_launch import values_of
from fuser.runtime.nvrtc import compile_ptx
from fuzz.campaign.launches import Call
from fuzz.ptx.launches import launch_of
from oracles.ptx.judge import judge
from oracles.simulator.simulate import Launch
from oracles.verdict import Status

SAID = [one for one in LITMUS if isinstance(one.kernel, kir.Kernel) and not one.refused]
SAID = [one for one in SAID if one.expect.kinds != {"map"}]
"""What a map should say, beside what it says, is known to the Kernel IR alone."""


@pytest.mark.parametrize("litmus", SAID, ids=[one.name for one in SAID])
def test_the_answer_is_that_of_the_kernel_ir(litmus: Litmus) -> None:
    """In a small launch; of the kinds that a failure may have, one."""
    kernel, run = litmus.kernel, litmus.launches[0]
    if litmus.expect.status is Status.PASS:  # the first may have nothing to do
        run = litmus.launches[min(2, len(litmus.launches) - 1)]
    assert isinstance(kernel, kir.Kernel)
    params = dict(run.params)
    values = values_of(kernel, run.grid, params)
    views = {}
    for tensor in kernel.tensors:
        extents, strides = shape(tensor, values)
        span = 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))
        views[tensor.name] = torch.zeros(max(span, 1))
    call = Call(kernel, Launch(run.grid, params), views, {})
    verdict = judge(compile_ptx(cuda.source(kernel)), launch_of(call, {}))
    assert verdict.status is litmus.expect.status, str(verdict)
    if verdict.status is Status.FAIL:
        kinds = {finding.kind for finding in verdict.findings}
        assert kinds & (litmus.expect.kinds | {"map", "deadlock"}), str(verdict)
