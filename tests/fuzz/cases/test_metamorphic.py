"""Other schedules of a case: which there are, and when their results agree."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from norms import CTA_A_ROW, layer_norm
from product_kernels import GROUPS, PIPELINED, linear

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams, Residency
from fuzz.cases.case import Case, Kind, compiled
from fuzz.cases.metamorphic import OTHERS, agree, rescheduled, under_others, variants
from fuzz.cases.strategies import cases
from oracles.verdict import Status

EXTENTS = {"i0": 72, "i1": 200, "i2": 24}
PRODUCT = Case(linear(), replace(PIPELINED, splits=3), EXTENTS, "integers", 0)
SUMS = {"mma", "sum", "mean", "max", "min"}
ORDER = {"splits", "tile", "columns", "vector", "warps"}
"""What the order of a sum may depend on."""


def changed(case: Case) -> set[str]:
    """Names of the params in which variants differ from their case."""
    mine = case.params
    return {
        name
        for other in variants(case)
        if type(other) is type(mine)
        for name in (field.name for field in fields(mine))
        if getattr(other, name) != getattr(mine, name)
    }


def test_integers_are_split_anew_and_reals_are_not() -> None:
    """Sums of integers are exact in any order.

    CTAs that have to run at once are as many as the device has room for, so other sums: seen.
    """
    assert {"splits", "residency"} <= changed(PRODUCT)
    reals = [replace(PRODUCT, kind="reals", seed=seed) for seed in range(9)]
    names = {name for case in reals for name in changed(case)}
    assert {"stages", "meet", "split"} <= names
    assert not names & (ORDER | {"residency"})


@pytest.mark.parametrize("kind", ["integers", "reals"])
def test_sums_that_are_rounded_on_their_way_meet_as_they_do(kind: Kind) -> None:
    """Each way rounds at other places, and so do other splits; the rest may still change."""
    rounded = replace(PIPELINED, splits=3, partial="bf16")
    cases = [replace(PRODUCT, params=rounded, kind=kind, seed=seed) for seed in range(9)]
    found = {name for case in cases for name in changed(case)}
    assert {"stages", "split", "store", "overlay"} <= found
    assert not found & (ORDER | {"meet", "residency", "partial"})
    assert "partial" not in changed(replace(PRODUCT, kind=kind))


@pytest.mark.parametrize(("residency", "free"), [("ticket", True), ("co-resident", False)])
def test_ctas_that_run_at_once_meet_as_they_do(residency: Residency, free: bool) -> None:
    """How many share a tile hangs on the room, and on how they meet; so does the order of sums."""
    params = replace(PIPELINED, splits=2, residency=residency)
    both = product(get_args(Kind), range(9))
    drawn = [replace(PRODUCT, params=params, kind=kind, seed=seed) for kind, seed in both]
    names: dict[str, set[str]] = {"integers": set(), "reals": set()}
    for case in drawn:
        names[case.kind] |= changed(case)
    assert "meet" in names["integers"]
    assert ("meet" in names["reals"]) is free
    assert "stages" in names["reals"]


def test_sums_of_rows_are_split_anew_too() -> None:
    """A reduction's CTAs meet in turns."""
    params = ReductionParams((1, 256), 1, 4, None, "tma", "direct", 4, 2, splits=2)
    cases = [Case(linear(), params, EXTENTS, "integers", seed) for seed in range(9)]
    assert {"splits", "stages", "meet"} <= {name for case in cases for name in changed(case)}
    plain = PointwiseParams((1, 256), 1, 4, None, "tma", "direct", 4, 2)
    wanted: dict[Kind, set[str]] = {"integers": {"warps", "vector", "tile"}, "reals": set()}
    for kind, more in wanted.items():
        drawn = [Case(linear(), plain, EXTENTS, kind, seed) for seed in range(9)]
        whole = {name for case in drawn for name in changed(case)}
        assert whole & ORDER == more
        assert {"load", "store", "ctas_per_sm"} <= whole


def test_only_integers_are_computed_anew() -> None:
    """A product that is rounded where it is kept may be fused with a difference where it is not."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=["i0", "i1"], dtype="f32") for _ in range(2))
    both = fd.ops.mul(x, y)
    total = fd.ops.broadcast(fd.ops.sum(both, dims=[1]), is_broadcast_dim=[False, True])
    fd.add_output(fd.ops.sub(both, fd.ops.mul(x, total)))
    fusion = fd.fusion()
    names: dict[Kind, set[str]] = {}
    for kind in get_args(Kind):
        drawn = [Case(fusion, CTA_A_ROW, {"i0": 3, "i1": 40}, kind, seed) for seed in range(9)]
        names[kind] = {name for case in drawn for name in changed(case)}
    assert {"recompute", "hold"} <= names["integers"] - names["reals"]


def test_only_integers_are_computed_with_and_without_a_loop() -> None:
    """Products of weights are computed once in front of it, and fused with nothing in it."""
    case = Case(layer_norm(), CTA_A_ROW, {"m": 3, "n": 40}, "reals", 0)
    for params in (CTA_A_ROW, replace(CTA_A_ROW, ctas_per_sm=None)):
        drawn = [replace(case, params=params, seed=seed) for seed in range(9)]
        others = [other for one in drawn for other in variants(one)]
        loops = {other.ctas_per_sm is None for other in others if isinstance(other, NormParams)}
        assert loops == {params.ctas_per_sm is None}


@settings(max_examples=60, deadline=None)
@given(cases())
def test_variants_are_others_and_the_same_every_time(case: Case) -> None:
    """Nobody is compared with itself, and what failed can be run again."""
    found = list(variants(case))
    assert case.params not in found
    assert len(set(found)) == len(found)
    assert found == list(variants(case))
    if case.kind == "reals" and any(tv.op in SUMS for tv in case.fusion.tensors):
        assert not changed(case) & ORDER


def test_products_leave_schedules_of_other_kinds_to_the_heuristics() -> None:
    """Params of whole rows once broke an assertion of the compiler."""
    assert all(compiled(replace(PRODUCT, params=params)).launches for params in OTHERS)


def test_no_kernels_are_compared_with_themselves() -> None:
    """One run in eleven did; wgmma and mma.sync are among what is compared."""
    found = list(under_others(PRODUCT, compiled(PRODUCT)))
    texts = [tuple(one.source for one in program.launches) for _, program in found]
    assert len({*texts, tuple(one.source for one in compiled(PRODUCT).launches)}) == len(found) + 1
    assert {type(other.params) for other, _ in found} >= {MatmulParams, AmpereParams}


def _rows_of_a_product() -> Case:
    """Return a product of reals that the heuristics schedule, in the only order of its sums."""
    params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
    return replace(PRODUCT, params=params, kind="reals")


def test_where_no_order_of_sums_is_kept_the_reference_judges() -> None:
    """One case in twenty: unknown on the device once, so that campaigns were not green."""
    case = _rows_of_a_product()
    program = compiled(case)
    assert not list(under_others(case, program))
    [(other, made, alike)] = rescheduled(case, program)
    assert not alike
    assert other.kind == "reals"
    assert other.params != case.params
    assert [one.source for one in made.launches] != [one.source for one in program.launches]


def test_where_it_is_kept_the_bits_are_the_same() -> None:
    """A product under its own params."""
    found = list(rescheduled(PRODUCT, compiled(PRODUCT)))
    assert len(found) > 1
    assert all(alike for *_, alike in found)


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ([1.0, torch.nan, 0.0], Status.PASS),
        ([1.0, torch.nan, -0.0], Status.PASS),
        ([1.0, 2.0, 0.0], Status.FAIL),
        ([1.0000001, torch.nan, 0.0], Status.FAIL),
    ],
)
def test_the_least_difference_counts(other: list[float], status: Status) -> None:
    """Two NaN are the same, one is not."""
    mine = [torch.tensor([1.0, torch.nan, 0.0])]
    verdict = agree(mine, [torch.tensor(other)], GROUPS, PIPELINED)
    assert (verdict.status, verdict.checked) == (status, 3)
    assert all("elements differ; " in str(f) for f in verdict.findings)
    assert all(f"under {one}" in str(f) for f in verdict.findings for one in (GROUPS, PIPELINED))


def test_whole_numbers_are_compared_too() -> None:
    """And outputs without elements are one claim."""
    one, two = torch.tensor([[1, 2]]), torch.tensor([[1, 3]])
    assert agree([one], [one.clone()], GROUPS, PIPELINED).status is Status.PASS
    (finding,) = agree([one], [two], GROUPS, PIPELINED).findings
    assert f"[0, 1]: 2 under {GROUPS}, 3 under {PIPELINED}" in str(finding)
    assert agree([one[:0]], [two[:0]], GROUPS, PIPELINED).checked == 1


def test_sums_that_ctas_hand_on_rounded_are_of_no_other_order() -> None:
    """Parts of integers in bf16 are not: heuristics would add them up at once."""
    rounded = replace(PRODUCT, params=replace(PIPELINED, splits=3, partial="bf16"))
    assert {*OTHERS} <= {*variants(PRODUCT)}
    assert not {*OTHERS} & {*variants(rounded)}
