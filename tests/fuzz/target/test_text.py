"""The torch text of a fusion says what the fusion says: eager torch agrees with the reference."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from functions import case_of
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from sample import often

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ops import OPS
from fuzz.cases.case import Case
from fuzz.cases.features import legal
from fuzz.cases.fusions import single_op_fusions
from fuzz.cases.strategies import cases, pointwise_cases, product_cases
from fuzz.target.judge import _compiled
from fuzz.target.script import EAGER, Target, inputs
from fuzz.target.text import to_torch
from oracles.differential import compare
from oracles.reference.estimate import EPS
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

TYPES = {dtype.name: dtype for dtype in DType}
QUIET = {"deadline": None, "database": None, "phases": (Phase.generate,)}
OFF = {"erf", "gelu", "rsqrt", "sqrt"}
"""Functions of torch on the CPU that are less exact than the contract asks; a few ulp, here."""
REFUSED = "not implemented for 'Float8|to have non-zero size"
"""What eager torch says of what it does not take: 8 bits in gather, the extreme of nothing."""

TEXT = """\
def compute(T0, T1, S0):
    i0 = T0.shape[0]
    T2 = T0 + 0.1
    T3 = T1[None, :]
    T4 = T2 * T3
    T5 = T4 < S0
    T6 = torch.full((i0, 8), float("inf"), dtype=torch.bfloat16, device=DEVICE)
    T7 = torch.where(T5, T4, T6)
    T8 = torch.amax(T7, [1])
    T9 = T8[:, None]
    T10 = T7 - T9
    T11 = torch.exp(T10)
    T12 = torch.sum(T11, [1], dtype=torch.bfloat16)
    T13 = T12[:, None]
    T14 = T11 / T13
    T15 = torch.arange(8, dtype=torch.int64, device=DEVICE).to(torch.int32)
    T16 = T1.to(torch.int32)
    T17 = T15 // torch.where(T16 == 0, 1, T16)
    return (T14, T17,)
"""


def agrees(case: Case) -> bool:
    """Compare eager torch, running the text, with the reference; False if torch refuses."""
    args = inputs(case)
    try:
        got = _compiled(Target(), case.fusion, EAGER)(*args)
    except (NotImplementedError, IndexError) as error:
        if not re.search(REFUSED, str(error)):
            raise
        return False
    expected = evaluate(case.fusion, args, stepwise=True)
    if OFF & {tv.op for tv in case.fusion.tensors}:
        expected = [
            replace(want, bound=4 * want.bound + 4 * EPS.get(want.dtype, 0.0) * want.value.abs())
            for want in expected
        ]
    verdict = compare(expected, list(got), exact=False)
    assert verdict.status is not Status.FAIL, f"{verdict}\n{to_torch(case.fusion)}"
    return verdict.status is Status.PASS


def run(strategy: SearchStrategy[Case], many: int) -> int:
    """Return in how many draws eager torch agreed."""
    good = 0

    def check(case: Case) -> None:
        nonlocal good
        good += agrees(case)

    quiet = settings(max_examples=many, suppress_health_check=tuple(HealthCheck), **QUIET)  # type: ignore[arg-type]  # of several kinds
    seed(1)(quiet(given(strategy)(check)))()
    return good


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_operation_means_the_same_to_torch(op: str) -> None:
    """Alone, on small integers, in every type that it takes."""
    types = [TYPES[cell[2]] for cell in sorted(legal()) if cell[:2] == ("operation", op)]
    for dtype in types:
        strategy = (
            product_cases(kinds=("integers",))
            if op == "mma"
            else pointwise_cases(kinds=("integers",), of=single_op_fusions(op=op, dtype=dtype))
        )
        assert run(strategy, often(20, 3)) or (op == "gather" and dtype.is_f8)


def test_drawn_fusions_mean_the_same_to_torch() -> None:
    """Whole graphs, idioms and products, on small integers."""
    many = often(400, 60)
    assert run(cases(kinds=("integers",)), many) > 0.8 * many


def test_a_wrong_word_is_found() -> None:
    """The comparison above can fail."""
    case = case_of(lambda ops, x: ops.sub(2.0, x))
    args = inputs(case)
    names: dict[str, object] = {"torch": torch, "DEVICE": "cpu"}
    exec(to_torch(case.fusion).replace("2.0 - T0", "T0 - 2.0"), names)
    (got,) = names["compute"](*args)  # type: ignore[operator]  # a function
    assert compare(evaluate(case.fusion, args), [got], exact=False).status is Status.FAIL


def test_the_text_is_what_a_user_would_write() -> None:
    """Operators, torch's functions, extents by name, and no conversion for accuracy's sake."""
    fd = FusionDefinition()
    x = fd.define_tensor(["i0", 8], "bf16")
    w = fd.define_tensor([8], "bf16")
    s = fd.define_scalar("f32")
    y = fd.ops.mul(fd.ops.add(x, 0.1), fd.ops.broadcast(w, [True, False]))
    y = fd.ops.where(fd.ops.lt(y, s), y, fd.ops.full(["i0", 8], float("inf"), "bf16"))
    fd.add_output(fd.ops.softmax(y, [1]))
    fd.add_output(fd.ops.floor_div(fd.ops.iota(8, dtype="i32"), fd.ops.cast(w, "i32")))
    assert to_torch(fd.fusion()) == TEXT
