"""Schedules and extents of products fit the machine, reach every corner, and stay short."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, find, given, seed, settings
from hypothesis.errors import NoSuchExample
from sample import often

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import SHARING_CLUSTERS, MatmulParams
from fuzz.cases.case import Case, compiled, specs
from fuzz.cases.schedules import (
    MATMUL_FAMILIES,
    OBSERVES,
    Footprint,
    footprint,
    matmul_params,
    suited,
)

QUIET = settings(database=None, phases=(Phase.generate, Phase.shrink), max_examples=300)
PLAIN = MatmulParams(
    (64, 16, 16), 1, "pipelined", 1, 0, persistent=False, columns=16, store="direct"
)


def product(kind: str = "bf16", *, gated: bool = False, transposed: bool = False) -> Fusion:
    """A matmul, or two that share an operand."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], kind)
    w, v = (fd.define_tensor(["k", "n"] if transposed else ["n", "k"], kind) for _ in range(2))
    multiply = fd.ops.matmul if transposed else fd.ops.linear
    y = multiply(x, w)
    fd.add_output(fd.ops.mul(y, multiply(x, v)) if gated else y)
    return fd.fusion()


def halves() -> Fusion:
    """A matmul that is added up in f16."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(["m", "k"], "f16"), fd.define_tensor(["k", "n"], "f16")
    fd.add_output(fd.ops.matmul(a, b, accumulate="f16"))
    return fd.fusion()


def test_params_shrink_to_the_plainest_schedule() -> None:
    """A failure that needs no ring and no roles must be shown without."""
    assert find(matmul_params(product()), lambda _: True, settings=QUIET, random=Random(1)) == PLAIN


def test_a_footprint_counts_what_a_kernel_holds_at_once() -> None:
    """Products that share an operand have one tile of it, and an accumulator each."""
    one, two = footprint(product()), footprint(product(gated=True))
    assert one == Footprint(products=1, operands=2, out_bytes=2, halves=True)
    assert two == Footprint(products=2, operands=3, out_bytes=2, halves=True)
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
    assert len(counts) >= (1 if OBSERVES.get(family) == "threads" else 2)


@pytest.mark.parametrize("family", ["hopper-pipelined", "hopper-cooperative", "hopper-ping_pong"])
def test_no_schedule_holds_more_sums_than_its_threads_have_registers_for(family: str) -> None:
    """Products of one kernel are held at once, and a load role gives some registers away."""

    def too_many(params: MatmulParams | AmpereParams) -> bool:
        assert isinstance(params, MatmulParams)
        m, n, _ = params.tile
        twice = params.splits > 1 and params.persistent
        return 2 * (1 + twice) * m * n // params.sharing > params.room

    strategy = matmul_params(product(gated=True), families=(family,))
    with pytest.raises(NoSuchExample):
        find(
            strategy,
            too_many,
            settings=settings(QUIET, max_examples=often(500, 250)),
            random=Random(1),
        )


def test_no_tile_is_wider_than_a_wgmma_of_so_many_threads() -> None:
    """Three warpgroups and a load role: 200 columns were drawn, and refused."""

    @seed(1)
    @settings(QUIET, phases=(Phase.generate,), max_examples=300)
    @given(matmul_params(product(), families=("hopper-cooperative",)))
    def draw(params: MatmulParams | AmpereParams) -> None:
        assert isinstance(params, MatmulParams)
        assert params.tile[1] <= params.widest

    draw()


def computed() -> Fusion:
    """An A of two tensors, one of them of f32, and a residual."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    a = fd.ops.cast(fd.ops.add(x, fd.define_tensor(["m", "k"], "f32")), "bf16")
    fd.add_output(fd.ops.add(fd.ops.linear(a, w), fd.define_tensor(["m", "n"], "bf16")))
    return fd.fusion()


def test_what_a_fusion_could_have_in_registers_and_by_tma_is_counted() -> None:
    """Tiles of leaves are of their own type, and the epilogue reads whole tiles."""
    found = footprint(computed())
    assert (found.leaves, found.operands, found.wide, found.in_bytes) == (2, 4, 4, 2)


def test_every_place_of_a_prologue_and_of_inputs_is_drawn() -> None:
    """Where there is something to choose."""
    choices = {
        "registers": lambda params: params.prologue == "registers",
        "tma": lambda params: isinstance(params, MatmulParams) and params.inputs == "tma",
    }
    for chosen in choices.values():
        for fusion, drawn in ((computed(), True), (product(), False)):
            with nullcontext() if drawn else pytest.raises(NoSuchExample):
                find(matmul_params(fusion), chosen, settings=QUIET, random=Random(1))


@pytest.mark.parametrize("family", ["hopper-pipelined", "ampere-groups"])
def test_ctas_share_tiles_but_of_sums_of_f16(family: str) -> None:
    """These would be rounded in every turn."""
    for fusion, drawn in ((product(), True), (halves(), False)):
        with nullcontext() if drawn else pytest.raises(NoSuchExample):
            strategy = matmul_params(fusion, families=(family,))
            find(strategy, lambda params: params.splits > 1, settings=QUIET, random=Random(1))


@pytest.mark.parametrize("family", ["hopper-pipelined", "ampere-groups"])
@pytest.mark.parametrize("partial", ["f16", "bf16"])
def test_sums_of_floats_go_from_cta_to_cta_in_every_type(family: str, partial: str) -> None:
    """Those of integers as they are."""
    for fusion, drawn in ((product(), True), (product("i8"), False)):
        strategy = matmul_params(fusion, families=(family,))
        with nullcontext() if drawn else pytest.raises(NoSuchExample):
            find(strategy, lambda p: p.partial == partial, settings=QUIET, random=Random(1))


def test_ctas_share_tiles_as_clusters_where_their_sums_fit() -> None:
    """Pipelined, 2, 4 or 8 of them, with all sums beside the rings; rows that are reduced never."""
    small = replace(PLAIN, splits=4)
    assert "cluster" in Footprint().meetings(small)
    assert "cluster" not in Footprint(parts=True).meetings(small)
    for changes in ({"splits": 3}, {"splits": 16}, {"splits": 1}, {"split": "cooperative"}):
        assert "cluster" not in Footprint().meetings(replace(small, **changes))
    large = replace(small, tile=(128, 256, 64), warpgroups=2)
    assert "cluster" in Footprint().meetings(large)
    assert "cluster" not in Footprint().meetings(replace(large, stages=2))  # 131072 and 131072
    assert "cluster" not in Footprint(products=2).meetings(large)


def test_clusters_that_share_tiles_are_drawn() -> None:
    """Of a size that there is, with the one residency that they take."""
    strategy = matmul_params(product(), families=("hopper-pipelined",))
    drawn = find(strategy, lambda p: p.meet == "cluster", settings=QUIET, random=Random(1))
    assert (drawn.splits in SHARING_CLUSTERS, drawn.residency) == (True, "ticket")


@pytest.mark.parametrize(("transposed", "columns"), [(False, 24), (True, 16)])
def test_a_tile_suits_the_swizzle_of_every_operand(*, transposed: bool, columns: int) -> None:
    """Rows of 24 elements suit none; only a weight whose rows lie along N has such rows."""
    params = MatmulParams((64, 24, 16), 1, "pipelined", 2, 1, persistent=False, columns=24)
    extents = {"m": 8, "n": 24, "k": 16}
    drawn = Case(product(transposed=transposed), params, extents, "integers", 0)
    case = suited(drawn)
    assert isinstance(case.params, MatmulParams)
    assert case.params.tile == (64, columns, 16)
    compiled(case)
    if transposed:
        shapes = classify(drawn.fusion, params, specs(drawn))
        with pytest.raises(ScheduleError, match="suit no swizzle"):
            build(drawn.fusion, params, shapes)
