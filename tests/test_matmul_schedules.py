"""Schedules and extents of products fit the machine, reach every corner, and stay short."""

from __future__ import annotations

from collections import Counter
from math import prod
from random import Random

import pytest
from hypothesis import Phase, find, given, seed, settings

from fuser.ampere_params import AmpereParams
from fuser.arch import SM_90A
from fuser.classify import classify
from fuser.errors import ScheduleError
from fuser.fusion_ir import Fusion, FusionDefinition, Symbol
from fuser.matmul_params import MatmulParams
from fuser.mma_axes import Role, roles
from fuser.pipeline import build
from fuzz.case import Case, specs, to_text
from fuzz.matmul_operands import MAX_SUM
from fuzz.matmul_schedules import (
    MATMUL_FAMILIES,
    MAX_ELEMENTS,
    Footprint,
    bounded,
    footprint,
    matmul_extents,
    matmul_params,
    suited,
)
from fuzz.strategies import product_cases

QUIET = settings(database=None, phases=(Phase.generate, Phase.shrink), max_examples=300)
PLAIN = MatmulParams(
    (64, 16, 16), 1, "pipelined", 1, 0, persistent=False, columns=16, store="direct"
)


def product(*, gated: bool = False, transposed: bool = False) -> Fusion:
    """A matmul, or two that share an operand."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], "bf16")
    w, v = (fd.define_tensor(["k", "n"] if transposed else ["n", "k"], "bf16") for _ in range(2))
    multiply = fd.ops.matmul if transposed else fd.ops.linear
    y = multiply(x, w)
    fd.add_output(fd.ops.mul(y, multiply(x, v)) if gated else y)
    return fd.fusion()


def test_params_shrink_to_the_plainest_schedule() -> None:
    """A failure that needs no ring and no roles must be shown without."""
    assert find(matmul_params(), lambda _: True, settings=QUIET, random=Random(1)) == PLAIN


def test_a_footprint_counts_what_a_kernel_holds_at_once() -> None:
    """Products that share an operand have one tile of it, and an accumulator each."""
    assert footprint(product()) == Footprint(products=1, operands=2, out_bytes=2)
    assert footprint(product(gated=True)) == Footprint(products=2, operands=3, out_bytes=2)
    assert Footprint(1, 2, 2).fits((128, 128, 64), threads=128, stages=6)
    assert not Footprint(1, 2, 2).fits((128, 128, 64), threads=128, stages=8)
    assert not Footprint(2, 3, 2).fits((128, 128, 64), threads=128)


@pytest.mark.parametrize("family", MATMUL_FAMILIES)
def test_every_schedule_of_a_family_fits(family: str) -> None:
    """Far more stages and larger tiles are drawn than a kernel has room for."""
    counts: Counter[str] = Counter()

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=12, deadline=None)
    @given(matmul_params(product(gated=True), families=(family,)))
    def draw(params: MatmulParams | AmpereParams) -> None:
        case = Case(product(gated=True), params, {"m": 8, "n": 16, "k": 16}, "integers", 0)
        program = build(case.fusion, params, classify(case.fusion, params, specs(case)))
        assert params.family == family
        assert all(x.kernel.smem_bytes <= SM_90A.smem_bytes for x in program.launches)
        counts[f"{params.stages} stages"] += 1

    draw()
    assert len(counts) >= 2


def test_extents_meet_every_corner_in_every_role() -> None:
    """Nothing, one, tails, whole tiles, and more than a ring holds."""
    counts: Counter[str] = Counter()
    fusion = product()

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=300, deadline=None)
    @given(matmul_extents(fusion, PLAIN))
    def draw(values: dict[str, int]) -> None:
        for name, tile in zip(("m", "n", "k"), PLAIN.tile, strict=True):
            n = values[name]
            corners = {"none": n == 0, "one": n == 1, "tail": n % tile > 0, "whole": n % tile == 0}
            corners |= {"odd": n % 2 == 1, "of 8": n % 8 == 0, "past a tile": n == tile + 1}
            corners |= {"several": n > tile}
            counts.update(f"{name} {corner}" for corner, met in corners.items() if met)

    draw()
    wanted = ("none", "one", "tail", "whole", "odd", "of 8", "past a tile", "several")
    missing = [f"{name} {corner}" for name in "mnk" for corner in wanted]
    assert not [corner for corner in missing if not counts[corner]], counts


def test_large_extents_are_halved_and_stay_multiples_of_8() -> None:
    """A case is judged in a second, and TMA can still move its tensors."""
    values = bounded(product(), PLAIN, {"m": 4096, "n": 4096, "k": 4096}, exact=True)
    assert all(n % 8 == 0 for n in values.values())
    assert values["k"] <= MAX_SUM
    assert values["m"] * values["n"] <= MAX_ELEMENTS


@given(product_cases(kinds=("integers",)))
@settings(max_examples=60, deadline=None)
def test_exact_cases_sum_over_few_elements(case: Case) -> None:
    """More than `MAX_SUM` products of the largest factors would not stay exact in f32."""
    for tv in case.fusion.tensors:
        if tv.op == "mma":
            sums = [axis.extent for axis in roles(tv) if axis.role is Role.K]
            length = prod(case.extents[n.name] if isinstance(n, Symbol) else n for n in sums)
            assert length <= MAX_SUM + 2, to_text(case)


@pytest.mark.parametrize(("transposed", "columns"), [(False, 24), (True, 16)])
def test_a_tile_suits_the_swizzle_of_every_operand(*, transposed: bool, columns: int) -> None:
    """Rows of 24 elements suit none; only a weight whose rows lie along N has such rows."""
    params = MatmulParams((64, 24, 16), 1, "pipelined", 2, 1, persistent=False, columns=24)
    extents = {"m": 8, "n": 24, "k": 16}
    drawn = Case(product(transposed=transposed), params, extents, "integers", 0)
    case = suited(drawn)
    assert isinstance(case.params, MatmulParams)
    assert case.params.tile == (64, columns, 16)
    build(case.fusion, case.params, classify(case.fusion, case.params, specs(case)))
    if transposed:
        shapes = classify(drawn.fusion, params, specs(drawn))
        with pytest.raises(ScheduleError, match="suit no swizzle"):
            build(drawn.fusion, params, shapes)
