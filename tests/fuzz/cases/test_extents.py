"""Extents of products reach every corner, and stay short."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from hypothesis import Phase, given, seed, settings

from fuser.fusion.definition import Fusion, FusionDefinition, Symbol
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case, to_text
from fuzz.cases.extents import MAX_ELEMENTS, bounded, matmul_extents
from fuzz.cases.operands import MAX_SUM
from fuzz.cases.strategies import product_cases

PLAIN = MatmulParams(
    (64, 16, 16), 1, "pipelined", 1, 0, persistent=False, columns=16, store="direct"
)


def product() -> Fusion:
    """A matmul."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    fd.add_output(fd.ops.linear(x, w))
    return fd.fusion()


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


def test_an_axis_that_is_indexed_is_short() -> None:
    """Mostly: nobody walks it, and all tensors have few elements."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape, "bf16") for shape in (["t", "m", "k"], ["g", "k", "n"]))
    fd.add_output(fd.ops.grouped_matmul(a, b, fd.define_tensor(["t"], "i32")))
    seen: Counter[int] = Counter()

    @seed(1)
    @settings(database=None, phases=(Phase.generate,), max_examples=60, deadline=None)
    @given(matmul_extents(fd.fusion(), PLAIN))
    def draw(values: dict[str, int]) -> None:
        seen[values["g"]] += 1

    draw()
    assert {1, 2, 3} <= {*seen}
    assert seen[1] + seen[2] + seen[3] > 2 * seen.total() / 3, seen


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
            sums = [axis.extent for axis in roles(tv) if axis.role is AxisRole.K]
            length = prod(case.extents[n.name] if isinstance(n, Symbol) else n for n in sums)
            assert length <= MAX_SUM + 2, to_text(case)


def test_ctas_of_a_cluster_count_however_few_steps_k_has() -> None:
    """Eight of them take a step for each tile, where a single one takes one in all."""
    extents = {"m": 256, "n": 32, "k": 8}
    assert bounded(product(), PLAIN, extents, exact=True) == extents
    shared = replace(PLAIN, splits=8, meet="cluster")
    values = bounded(product(), shared, extents, exact=True)
    assert -(-values["m"] // 64) * -(-values["n"] // 16) == 2
