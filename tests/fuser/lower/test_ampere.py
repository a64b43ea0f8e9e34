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
