"""Copies of operands by cp.async: which thread copies what, and where matrices end in a tile."""

from __future__ import annotations

from math import gcd

import judged
import pytest

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuzz.cases.case import Case, specs

RING = AmpereParams((16, 64, 64), 1, "groups", 4, 3, persistent=False, columns=64)
ROLES = AmpereParams((32, 32, 64), 2, "mbarriers", 3, 0, persistent=False, columns=32)


def linear(k: int) -> Fusion:
    """A product whose rows have `k` elements."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([rows, k], "bf16") for rows in ("m", "n"))
    fd.add_output(fd.ops.linear(x, w))
    return fd.fusion()


@pytest.mark.parametrize("params", [RING, ROLES], ids=["groups", "mbarriers"])
@pytest.mark.parametrize("k", [64, 60, 62])
def test_neighbours_copy_what_is_adjacent(k: int, params: AmpereParams) -> None:
    """A warp that leaves gaps asks for every sector several times."""
    case = Case(linear(k), params, {"m": 16, "n": 64}, "integers", seed=0)
    of = classify(case.fusion, params, specs(case))
    (launch,) = build(case.fusion, params, of).launches
    copies = [stmt for stmt in launch.kernel.walk() if isinstance(stmt, kir.CpAsync)]
    assert len(copies) >= 2
    assert {(one.width, one.layout.vector) for one in copies} == {(gcd(k, 8), gcd(k, 8))}


def across(first: bool, second: bool) -> Fusion:
    """A product by tf32 of operands that lie along M, N or both."""
    fd = FusionDefinition()
    x = fd.define_tensor(["k", "m"] if first else ["m", "k"], "f32")
    w = fd.define_tensor(["k", "n"] if second else ["n", "k"], "f32")
    a = fd.ops.permute(x, [1, 0]) if first else x
    b = w if second else fd.ops.permute(w, [1, 0])
    fd.add_output(fd.ops.matmul(a, b, precision="tf32"))
    return fd.fusion()


@pytest.mark.parametrize("params", [RING, ROLES], ids=["groups", "mbarriers"])
@pytest.mark.parametrize("way", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 64), (20, 68, 36), (7, 9, 33)])
def test_words_that_lie_across_are_read_where_they_lie(
    m: int, n: int, k: int, way: tuple[bool, bool], params: AmpereParams
) -> None:
    """By one kernel: what cp.async brings as it lies, threads load across."""
    case = Case(across(*way), params, {"m": m, "n": n, "k": k}, "reals", seed=k)
    of = classify(case.fusion, params, specs(case))
    (launch,) = build(case.fusion, params, of).launches
    loads = [stmt for stmt in launch.kernel.walk() if isinstance(stmt, kir.Load)]
    assert sum(load.transposed for load in loads) >= sum(way)
    assert {load.matrix for load in loads} >= ({True} if sum(way) == 1 else {False})
    said = judged.records(case, ("prover", "simulator", "differential", "assembler", "ptx"))
    assert {record.status for record in said} == {"pass"}, said


def test_halves_that_lie_across_are_stored_along_the_sums_first() -> None:
    """A register has two of them."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["k", "n"], "bf16")
    fd.add_output(fd.ops.matmul(x, w))
    case = Case(fd.fusion(), RING, {"m": 16, "n": 64, "k": 64}, "integers", seed=1)
    assert len(classify(case.fusion, RING, specs(case)).schedules) == 2


@pytest.mark.parametrize("params", [RING, ROLES], ids=["groups", "mbarriers"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(16, 64, 64), (16, 64, 62), (15, 63, 66), (17, 65, 130), (33, 1, 258), (1, 66, 2), (5, 9, 4)],
)
def test_whole_tiles_and_tails_are_right(m: int, n: int, k: int, params: AmpereParams) -> None:
    """Whole tiles have one test, others one for each row; nothing behind the ends is read."""
    case = Case(linear(k), params, {"m": m, "n": n}, "integers", seed=k)
    said = judged.records(case, ("prover", "simulator", "differential", "assembler", "ptx"))
    assert {record.status for record in said} == {"pass"}, said
