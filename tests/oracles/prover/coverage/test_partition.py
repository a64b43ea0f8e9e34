"""Outputs of every kind of kernel are covered once, and a proof never says so of one that is not.

`tiles` counts the boxes of small launches by other means; what is proved must survive it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from stores import (
    COLS,
    COUNT,
    COVERED,
    DEALT,
    LAYOUT,
    MOVED,
    ONE,
    OUT,
    ROWS,
    STRIPE,
    TILES,
    VALUE,
    WIDE,
    WRONG,
    M,
    N,
    P,
    T,
    kernel,
    loop,
    store,
    tile,
    when,
    zero,
)

from fuser.cookbook.recipes import RECIPES, cluster_multicast, specialized_ring, split_k
from fuser.dtype import DType
from fuser.expr import Expr, Kind, both, ceildiv, eq, fold
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.coverage import outputs as boxes
from oracles.prover.coverage.outputs import Covered, covered

RLIMIT = 500_000


def fixed(tensor: kir.Tensor, of: kir.Kernel) -> kir.Kernel:
    """Store to this tensor, whatever the boxes say."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.Store) and isinstance(stmt.dst, kir.Box):
            box = replace(stmt.dst, tensor=tensor, limit=tensor.extents)
            return [kir.Store(box, stmt.src, stmt.width)]
        return None

    return replace(of.rewrite(rule), tensors=(tensor,))


def judged(of: kir.Kernel) -> Covered:
    """Judge a kernel whose boxes name the tensor that it declares."""
    return covered(fixed(of.tensors[0], of), rlimit=RLIMIT)


@pytest.mark.parametrize("name", COVERED)
def test_what_covers_its_output_is_proved(name: str) -> None:
    """Each is one way to deal tiles to CTAs, roles and turns; a judge that knows it is useful."""
    answer = judged(COVERED[name])
    assert not answer.findings, answer.findings
    assert not answer.reason, answer.reason
    assert answer.checked


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_is_refuted_by_a_small_launch(name: str) -> None:
    """The message names a launch, so that anybody can count the tiles himself."""
    of, says = WRONG[name]
    answer = judged(of)
    assert answer.findings, answer.reason
    for finding in answer.findings:
        assert finding.kind in ("coverage", "bounds")
        assert says in finding.witness
        assert "trips=" in finding.witness or "every launch" in finding.witness


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_covered(name: str) -> None:
    """Persistent tiles, roles in turn, ping-pong, split-K, clusters."""
    answer = covered(RECIPES[name](), rlimit=RLIMIT)
    assert (answer.findings, answer.reason) == ((), "")


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_consumers_that_take_turns_cover_all_tiles(consumers: int) -> None:
    """And with one consumer missing they do not."""
    whole = specialized_ring(3, consumers)
    assert not covered(whole, rlimit=RLIMIT).reason
    roles = [s for s in whole.body if isinstance(s, kir.Role) and s.name == "compute0"]
    fewer = whole.rewrite(lambda stmt: [] if stmt is roles[0] else None)
    assert [f.kind for f in covered(fewer, rlimit=RLIMIT).findings] == ["coverage"]


def test_a_recipe_that_loses_its_condition_is_refuted() -> None:
    """Every CTA of a tile would write it; the other rank's rows would stay empty."""

    def always(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.IfThenElse) and stmt.orelse and "turn" in str(stmt.condition):
            return [*stmt.then, *stmt.orelse]
        return None

    answer = covered(split_k().rewrite(always), rlimit=RLIMIT)
    assert "written twice" in answer.findings[0].witness
    assert "splits=2" in answer.findings[0].witness
    alone = replace(cluster_multicast(), requires=(eq(kir.GRID, COUNT * 2),))
    assert covered(alone, rlimit=RLIMIT).findings


def test_an_address_by_assignment_is_left_open() -> None:
    """A position that statements change is not followed; unknown, and no pass."""
    body = (
        kir.Let(MOVED, 0),
        loop(T, N, store(MOVED * ROWS, 0, STRIPE), kir.Assign(MOVED, MOVED + 1)),
    )
    answer = covered(kernel(*body, requires=(ONE,), tensor=STRIPE), rlimit=RLIMIT)
    assert not answer.findings
    assert "assignment changes" in answer.reason


def test_a_condition_that_is_not_understood_is_left_open() -> None:
    """A guard that counts tiles in a way of its own may be right; that is not known."""
    odd = when(both(kir.BLOCK < COUNT, fold(Kind.LE, kir.BLOCK * kir.BLOCK, COUNT * COUNT)),
               tile(kir.BLOCK))  # fmt: skip
    answer = covered(kernel(odd, requires=(eq(kir.GRID, COUNT),)), rlimit=RLIMIT)
    assert not answer.findings
    assert answer.reason


def test_an_output_that_is_only_added_to_is_left_open() -> None:
    """What it held before decides; a launch before this one may have cleared it."""
    add = kir.AtomicAdd(kir.Box(OUT, (kir.BLOCK * ROWS, 0), (ROWS, COLS), (M, N)), VALUE)
    answer = covered(kernel(add, requires=(eq(kir.GRID, ceildiv(M, ROWS)),)), rlimit=RLIMIT)
    assert not answer.findings
    assert "only added to" in answer.reason


def test_boxes_of_different_shapes_are_counted_only_where_nothing_varies() -> None:
    """With literal extents there is one launch to count; with others no argument is known."""

    def split(rows: Expr, *, at: int) -> kir.Kernel:
        y = replace(OUT, extents=(rows, COLS), strides=(COLS, 1))
        small = replace(VALUE, name="w", layout=replace(LAYOUT, shape=(2, COLS)))
        return kir.Kernel(
            "k", (M, N), (y,), (), (), (), 32,
            (
                zero(),
                kir.Compute(small, "cast", (kir.Literal(0.0, DType.F32),)),
                store(0, 0, y),
                kir.Store(kir.Box(y, (at, 0), (2, COLS), y.extents), small, 4),
            ),
            ("Y",), requires=(ONE,),
        )  # fmt: skip

    assert covered(split(6, at=4), rlimit=RLIMIT) == replace(
        covered(split(6, at=4), rlimit=RLIMIT), findings=(), reason=""
    )
    assert "written twice" in covered(split(6, at=2), rlimit=RLIMIT).findings[0].witness
    assert covered(split(M, at=4), rlimit=RLIMIT).findings


def test_a_box_outside_its_tensor_is_a_finding() -> None:
    """An origin below zero, and a write to what is no output."""
    below = kernel(loop(T, N, store((T - 1) * ROWS, 0, STRIPE)), requires=(ONE,), tensor=STRIPE)
    assert {f.kind for f in covered(below, rlimit=RLIMIT).findings} == {"bounds"}
    other = replace(COVERED["tiles dealt in turn"], outputs=())
    assert "is not an output" in covered(other, rlimit=RLIMIT).findings[0].witness


def variants() -> list[kir.Kernel]:
    """Kernels near the right one: every choice of stride, shift, end, weight and condition."""
    across, down = WIDE, ceildiv(M, ROWS)
    out = []
    strides: tuple[Expr, ...] = (kir.GRID, 1, 2)
    for by, end, width, shift in itertools.product(
        strides, (TILES, TILES - 1, COUNT), (across, down), (0, 1)
    ):
        number = kir.BLOCK + T * by + shift
        place = store(number // width * ROWS, number % width * COLS)
        out.append(kernel(DEALT, loop(T, end, place)))
    for grid, test, cut in itertools.product(
        (COUNT, COUNT * P, ceildiv(M, 2 * ROWS) * 2 * across),
        (eq(kir.BLOCK % P, 0), eq(kir.BLOCK % P + 1, P), kir.BLOCK % P < 2, 1),
        (1, P, across),
    ):
        number = fold(Kind.FLOORDIV, kir.BLOCK, cut)
        place = store(number // across * ROWS, number % across * COLS)
        out.append(kernel(when(test, place), requires=(P >= 1, eq(kir.GRID, grid))))
    return out


def test_nothing_is_proved_that_a_small_launch_refutes() -> None:
    """The soundness of the whole argument, on kernels of which few are right."""
    proved = 0
    for of in variants():
        answer = covered(of, rlimit=RLIMIT)
        if not answer.findings and not answer.reason:
            proved += 1
            assert boxes.refuted(of, sites.read(of)) is None, of
    assert proved >= 4
