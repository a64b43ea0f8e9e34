"""A wrong value is pinned to the kernel that computes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from blocks import BLOCKS, ran, small

from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.pipeline import Launch
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.judge import Others, judge_values
from fuzz.campaign.recorder import Recorder
from fuzz.cases.case import Case, compiled, to_text
from fuzz.cases.draft import keeps_whole
from fuzz.values import blamed, compared
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status


def broken(launch: Launch, op: str, other: str) -> Launch:
    """A kernel with another operation in the place of one."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        wrong = isinstance(stmt, kir.Compute) and stmt.op == op
        return [replace(stmt, op=other)] if wrong and isinstance(stmt, kir.Compute) else None

    return replace(launch, kernel=launch.kernel.rewrite(rule))


@pytest.mark.parametrize(
    ("name", "wrong", "op", "other"),
    [
        ("attention", 0, "le", "ge"),
        ("attention", 1, "exp", "exp2"),
        ("layer norm backward", 0, "rsqrt", "sqrt"),
        ("layer norm backward", 1, "rsqrt", "sqrt"),
        ("group norm and SiLU", 1, "silu", "sigmoid"),
        ("MLP backward", 0, "tanh", "sigmoid"),
    ],
)
def test_the_kernel_is_named(name: str, wrong: int, op: str, other: str) -> None:
    """And no other: those behind it are right for what they read."""
    case, given = small(name), BLOCKS[name].given(BLOCKS[name].small)
    program = compiled(case)
    assert not [*blamed(program, ran(case, program, given), case.extents)]
    launches = [*program.launches]
    launches[wrong] = broken(launches[wrong], op, other)
    assert launches[wrong] != program.launches[wrong]
    program = replace(program, launches=tuple(launches))
    found = [*blamed(program, ran(case, program, given), case.extents)]
    assert found
    assert all(one.where.endswith(f" of kernel {launches[wrong].kernel.name}") for one in found)


def test_a_campaign_says_it() -> None:
    """Beside the output that is wrong."""
    case = small("group norm and SiLU")
    program = compiled(case)
    last = broken(program.launches[1], "silu", "sigmoid")
    recorder = Recorder(case, to_text(case))
    wrong = replace(program, launches=(program.launches[0], last))
    judge_values(recorder, case, wrong, Others(case, wrong), frozenset({"differential"}), 0.0)
    assert f"of kernel {last.kernel.name}" in recorder.records[-1].reason


@pytest.mark.parametrize(("op", "status"), [("relu", Status.FAIL), ("gelu", Status.PASS)])
def test_integers_are_exact_where_operations_keep_them_so(op: str, status: Status) -> None:
    """A search for a smaller case once took integers for gelu, and found what is no failure."""
    fd = FusionDefinition()
    fd.add_output(getattr(fd.ops, op)(fd.define_tensor(shape=["n"], dtype="f32")))
    params = PointwiseParams((1, 32), 1, 1, None, "direct", "direct")
    case = Case(fd.fusion(), params, {"n": 8}, "integers", 0)
    x = torch.full((8,), 4.0)
    (right,) = (one.value for one in evaluate(case.fusion, [x]))
    near = torch.nextafter(right.to(torch.float32), torch.tensor(9.0))
    assert compared(case, [x], [near]).status is status


@pytest.mark.parametrize(
    ("signs", "status"), [(True, Status.FAIL), (False, Status.PASS)], ids=["of signs", "large"]
)
def test_products_of_many_are_exact_where_they_are_small(signs: bool, status: Status) -> None:
    """Else they are rounded on their way; a campaign took such a product for a sum."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["m", "n"], dtype="f32")
    factors = fd.ops.permute(fd.ops.cast(fd.ops.sign(x), "f32"), [1, 0]) if signs else x
    fd.add_output(fd.ops.prod(factors, [0, 1]))
    params = PointwiseParams((1, 32), 1, 1, None, "direct", "direct")
    case = Case(fd.fusion(), params, {"m": 2, "n": 8}, "integers", 0)
    given = torch.full((2, 8), 7.0)
    (right,) = (one.value for one in evaluate(case.fusion, [given]))
    near = torch.nextafter(right.to(torch.float32), torch.tensor(torch.inf))
    assert keeps_whole(case.fusion) is signs
    assert compared(case, [given], [near]).status is status


def test_bits_of_floats_are_not_exact_as_floats() -> None:
    """`order` makes 31 bits of 3, of which bf16 keeps eight; shrinking had left it among sums."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["m"], dtype="f32")
    fd.add_output(fd.ops.cast(fd.ops.order(x), "bf16"))
    assert not keeps_whole(fd.fusion())
