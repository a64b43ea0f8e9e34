"""Faults that are injected are faults, right outputs are right, and the table adds up."""

from __future__ import annotations

from random import Random

import pytest
import torch
from click.testing import CliRunner

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.bench.sensitivity import __main__ as command
from fuzz.bench.sensitivity.computation import Computation
from fuzz.bench.sensitivity.faults import KINDS, faults, places
from fuzz.bench.sensitivity.measure import Tally, measure, moves, ulp
from fuzz.bench.sensitivity.rules import OURS, RULES, reduced, tolerance, wanted
from fuzz.cases.case import Case, inputs
from fuzz.exit_code import CLEAN, FAILED
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

PARAMS = PointwiseParams(
    tile=(8, 16), vector=1, warps=1, ctas_per_sm=None, load="direct", store="direct"
)
EXTENTS = {"i0": 24, "i1": 40, "i2": 16}


def everything() -> Fusion:
    """A fusion in which every kind of fault has a place."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(["i0", "i1"], "f16"), fd.define_tensor(["i1", "i2"], "f16")
    x, y = fd.define_tensor(["i0", "i1"], "f32"), fd.define_tensor(["i0", "i1"], "f32")
    scaled = fd.ops.mul(fd.ops.exp(x), y)
    fd.add_output(fd.ops.matmul(a, b))
    fd.add_output(fd.ops.div(fd.ops.sub(scaled, 1e-3), y))
    fd.add_output(fd.ops.sum(scaled, [1]))
    fd.add_output(fd.ops.max(fd.ops.neg(fd.ops.exp(x)), [1]))
    return fd.fusion()


def case(seed: int = 3) -> Case:
    """The fusion with reals."""
    return Case(everything(), PARAMS, EXTENTS, "reals", seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_changes_what_is_computed(kind: str) -> None:
    """The exact value moves by more than an ulp, and so does what is stored, by the same fault."""
    one = case()
    given = inputs(one)
    exact = Computation(one.fusion, given, exact=True)
    honest = Computation(one.fusion, given, exact=False)
    right = [honest.outputs()]
    at = places(one.fusion, honest.sizes, rounds=False)
    found = False
    for fault in faults(kind, at, Random(1)):
        for n, moved in enumerate(moves(exact, honest, fault, right)):
            tv = one.fusion.outputs[n]
            before, after = exact.outputs()[n], exact.outputs(fault)[n]
            shown = honest.outputs(fault)[n].double(), honest.outputs()[n].double()
            finite = moved & before.isfinite() & after.isfinite()
            assert ((after - before).abs() > ulp(before, tv.dtype))[finite].all()
            assert (shown[0] != shown[1])[moved].all()
            found |= bool(moved.any())
    assert found


def test_a_fault_leaves_other_outputs_alone() -> None:
    """And the computation without it."""
    one = case()
    honest = Computation(one.fusion, inputs(one), exact=False)
    before = honest.outputs()
    at = [place for place in places(one.fusion, honest.sizes, rounds=False) if place.tv.op == "mma"]
    (fault,) = faults("last tile of a sum missing", at, Random(1))
    wrong = honest.outputs(fault)
    assert not torch.equal(wrong[0].nan_to_num(), before[0].nan_to_num())
    for after in (wrong[1:], honest.outputs()[1:]):
        for got, want in zip(after, before[1:], strict=True):
            assert torch.equal(got.nan_to_num(), want.nan_to_num())


def test_what_is_missing_is_missing() -> None:
    """Sums of ones say how many were added, and one kept in 16 bits loses the odd one."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], "f32"), [1]))
    fusion = fd.fusion()
    counted = {
        "last element of a sum missing": 515.0,
        "last tile of a sum missing": 500.0,
        "tile of a sum counted twice": 532.0,
    }
    for exact in (True, False):
        honest = Computation(fusion, [torch.ones(2, 516)], exact=exact)
        at = places(fusion, honest.sizes, rounds=False)
        assert honest.outputs()[0].tolist() == [516.0] * 2
        for kind, many in counted.items():
            (fault,) = faults(kind, at, Random(1))
            assert honest.outputs(fault)[0].tolist() == [many] * 2
    honest = Computation(fusion, [torch.full((1, 1026), 1.0)], exact=True)
    at = places(fusion, honest.sizes, rounds=False)
    half = {tuple(honest.outputs(next(faults("partial sum of 16 bits", at, Random(n))))[0].tolist())
            for n in range(8)}  # fmt: skip
    assert half == {(1025.0,), (1026.0,)}  # 513 is 512 in bf16, and itself in f16


@pytest.mark.parametrize("seed", range(4))
def test_right_outputs_are_right(seed: int) -> None:
    """Of an implementation in f32 that adds in another order, too."""
    one = case(seed)
    given = inputs(one)
    honest = Computation(one.fusion, given, exact=False)
    expected = evaluate(one.fusion, given)
    want = wanted(one.fusion, honest.sizes, expected, exact=False)
    assert RULES[OURS](want, honest.outputs()) is Status.PASS
    assert RULES[OURS](want, want.nearest) is Status.PASS
    exact = Computation(one.fusion, given, exact=True)
    for value, other in zip(exact.outputs(), expected, strict=True):
        assert value.isnan().equal(other.value.isnan())
        near = (value - other.value).abs() <= other.bound + ulp(value, other.dtype)
        near |= other.bound == 0  # known to the bit: of the roundings on the way, too
        assert near[value.isfinite() & other.value.isfinite()].all()


@pytest.mark.parametrize("said", [Status.PASS, Status.FAIL])
def test_a_rule_that_always_says_the_same_detects_nothing(said: Status) -> None:
    """Whoever calls right outputs wrong has no credit for calling others so."""
    tally = Tally()
    rules = {**RULES, "same": lambda want, got: said}
    measure(0, case(), tally, simulated=False, rules=rules)
    assert tally.injected.total() > 10
    assert not any(tally.detected[kind, "same"] for kind in KINDS)
    assert tally.alarms["rounded", "same"] == (said is Status.FAIL)
    assert sum(tally.detected[kind, OURS] for kind in KINDS) > 0.9 * tally.injected.total()


def test_the_table_adds_up() -> None:
    """Detected, undecided and missed are all; the last line is the sum of the others."""
    tally = Tally()
    for number in range(3):
        measure(number, case(number), tally, simulated=False)
    shown = command.detected(tally)
    lines = list(zip(*(list(column.cells) for column in shown.columns), strict=True))
    assert [line[0] for line in lines] == [*KINDS, "all"]
    numbers = [[int(str(line[n])) for n in (1, 2, 4, 5, 6, 8)] for line in lines]
    for injected, found, undecided, missed, *_ in numbers:
        assert injected == found + undecided + missed
    assert numbers[-1] == [sum(column) for column in zip(*numbers[:-1], strict=True)]
    assert numbers[-1][3] == len(tally.missed)
    assert command.share(tally) == pytest.approx(100 * numbers[-1][1] / numbers[-1][0])


def test_the_tolerances_are_nvfusers() -> None:
    """By the entry behind the first that is no smaller; without a reduction, the first two."""
    given = {
        (DType.F32, 1): (1.68222e-06, 2.23704e-06),
        (DType.F32, 4): (2.23704e-06, 2.23704e-08),
        (DType.F64, 5): (2.95788e-06, 2.95788e-08),
        (DType.F16, 2**21): (7.98146, 0.0798146),
        (DType.BF16, 1000): (1.24686, 0.0124686),
        (DType.BF16, 1): (0.00390625, 0.0078125),
        (DType.I32, 100): (0.0, 0.0),
    }
    for (dtype, many), want in given.items():
        assert list(tolerance(dtype, many)) == pytest.approx(want)


def test_reductions_one_behind_the_other_multiply() -> None:
    """As nvFuser counts them; the greatest of several operands."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(["i0", "i1"], "f16"), fd.define_tensor(["i1", "i2"], "f16")
    total = fd.ops.sum(fd.ops.matmul(a, b), [1])
    fd.add_output(fd.ops.add(total, fd.ops.max(a, [1])))
    fusion = fd.fusion()
    sizes = Computation(
        fusion, [torch.ones(3, 5).half(), torch.ones(5, 7).half()], exact=True
    ).sizes
    many = {tv.op: n for tv, n in reduced(fusion, sizes).items()}
    assert (many["mma"], many["sum"], many["max"], many["add"]) == (5, 35, 5, 35)


def test_the_command_ends_by_its_target() -> None:
    """With the same cases: 0 of a target that is met, 1 of one that cannot be."""
    asked = ["--count", "3", "--seed", "2", "--no-kernels", "--target"]
    met = CliRunner().invoke(command.main, [*asked, "1"])
    assert met.exit_code == CLEAN, met.output
    assert "assert_close" in met.output
    assert "0 false alarms" in met.output
    assert CliRunner().invoke(command.main, [*asked, "101"]).exit_code == FAILED
