"""Launches of compiled kernels: their arguments, their memory, what they leave."""

from __future__ import annotations

import numpy as np
import torch

from fuser.codegen import cuda
from fuser.runtime.binding import bind
from fuzz.bench.drawn import texts
from fuzz.campaign.launches import calls
from fuzz.cases.case import Case, compiled, from_text, inputs, specs
from fuzz.cases.strategies import cases
from fuzz.ptx.launches import launch_of, left_over
from oracles.ptx.launch import Buffer, Pointer, TensorMap


def drawn(family: str) -> Case:
    """Draw a case of a family."""
    return from_text(texts(cases(families=(family,)), 3, 3)[-1])


def test_a_launch_has_an_argument_for_each_parameter() -> None:
    """Tensor maps among them, within their buffers."""
    for family in ("direct/direct", "tma-pipelined/tma", "hopper-pipelined"):
        case = drawn(family)
        program = compiled(case)
        made, _ = calls(case, inputs(case), program, bind(program, specs(case), sms=2))
        for call in made:
            if call.launch is None:
                continue
            launch = launch_of(call, {})
            assert len(launch.arguments) == len(cuda.parameters(call.kernel))
            assert launch.block == (call.kernel.threads, 1, 1)
            for one in launch.arguments:
                if isinstance(one, Pointer | TensorMap):
                    assert one.buffer in launch.buffers


def test_buffers_are_the_memory_of_the_tensors() -> None:
    """What a launch writes stands in the tensor, at its offset."""
    case = drawn("direct/direct")
    program = compiled(case)
    made, memory = calls(case, inputs(case), program, bind(program, specs(case), sms=2))
    call = next(one for one in made if one.launch is not None)
    launch = launch_of(call, {})
    name = next(t.name for t in call.kernel.tensors if t.name in call.kernel.outputs)
    argument = launch.arguments[cuda.parameters(call.kernel).index(name)]
    assert isinstance(argument, Pointer)
    view = call.views[name]
    launch.buffers[argument.buffer].data[argument.offset :] = 0
    assert not view.reshape(-1)[:1].to(torch.float64).any()
    assert memory


def test_counters_that_are_left_dirty_are_named() -> None:
    """But for those that are drawn from."""
    counters = {"k.turns": Buffer("turns", np.zeros(8, np.uint8))}
    assert left_over(counters, frozenset()) == []
    counters["k.turns"].data[4] = 3
    assert left_over(counters, frozenset()) == ["k.turns holds [0, 3] after the launch"]
    assert left_over(counters, frozenset({"k.turns"})) == []
