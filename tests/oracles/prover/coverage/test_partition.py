"""Outputs of every kind of kernel are covered once, and a proof never says so of one that is not.

`tiles` counts the boxes of small launches by other means; what is proved must survive it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import orders
import pytest
from orders import ACROSS, GROUP, GROUPS, LINES, PAIRS, RIGHT, Order, paired
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
from oracles.prover import launches, sites
from oracles.prover.arithmetic import function
from oracles.prover.coverage import outputs as boxes
from oracles.prover.coverage import outputs as tiles
from oracles.prover.coverage.outputs import covered
from oracles.prover.coverage.partition import RANK, Stores, rewrites
from oracles.prover.coverage.values import Covered
from oracles.prover.solver import Known

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
    errors = [f for f in covered(fewer, rlimit=RLIMIT).findings if f.severity == "error"]
    assert [f.kind for f in errors] == ["coverage"]


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


@pytest.mark.parametrize(
    ("step", "says"), [(MOVED + 1, ""), (MOVED * 2 + 1, "assignment changes"), (MOVED + 2, "Y")]
)
def test_an_address_by_assignment_is_followed_by_equal_steps(step: Expr, says: str) -> None:
    """A position that statements change is known where they add the same in every round."""
    body = (
        kir.Let(MOVED, 0),
        loop(T, N, store(MOVED * ROWS, 0, STRIPE), kir.Assign(MOVED, step)),
    )
    answer = covered(kernel(*body, requires=(ONE,), tensor=STRIPE), rlimit=RLIMIT)
    assert says in answer.reason if says else not (answer.reason or answer.findings)


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


# --- orders of tiles that a matmul takes ----------------------------------------------------------


def judged_order(of: kir.Kernel) -> Covered:
    """Judge the coverage of a kernel."""
    return covered(of, rlimit=RLIMIT)


@pytest.mark.parametrize("name", RIGHT)
def test_an_order_of_tiles_is_proved(name: str) -> None:
    """Whatever a compiler emits has to be proved, not only not refuted."""
    answer = judged_order(RIGHT[name])
    assert not answer.findings, answer.findings
    assert not answer.reason, answer.reason


@pytest.mark.parametrize("name", orders.WRONG)
def test_an_order_that_misses_a_tile_is_refuted(name: str) -> None:
    """By a small launch, which anybody can count."""
    answer = judged_order(orders.WRONG[name])
    assert {f.kind for f in answer.findings} <= {"coverage", "bounds"}
    assert answer.findings, answer.reason


def test_a_divisor_that_may_be_zero_gives_nothing() -> None:
    """What `a % 0 == 0` says of a is unknown; the launch should require the divisor first."""
    answer = judged_order(orders.kernel(GROUPS, requires=(eq(LINES % GROUP, 0),)))
    assert not answer.findings
    assert answer.reason


def nearby() -> list[kir.Kernel]:
    """Orders with every choice of group, condition, end and rank; most of them wrong."""
    out = []
    conditions: tuple[Expr, ...] = (
        eq(LINES % GROUP, 0), eq(ACROSS % GROUP, 0), eq(LINES % (GROUP * 2), 0),
        eq(PAIRS.down % GROUP, 0),
    )  # fmt: skip
    for condition, cluster, one in itertools.product(conditions, (1, 2), (False, True)):
        order = Order("one" if one else "strided", grouped=True, cluster=cluster)
        grids = (order.count * cluster, LINES * ACROSS) if one else (0,)
        for grid in grids:
            extra = (eq(kir.GRID, grid),) if one else ()
            out.append(orders.kernel(order, requires=(GROUP >= 1, condition, *extra)))
        out.append(paired(condition, eq(kir.GRID, LINES * ACROSS), deal="one"))
        out.append(paired(condition))
        if not one:
            tile = replace(order, cluster=1).stores(order.number)
            out.append(orders.kernel(order, *tile, requires=(GROUP >= 1, condition)))
            out.append(orders.kernel(order, requires=(GROUP >= 1, condition), stop=ceildiv(
                order.count - kir.BLOCK, kir.GRID
            )))  # fmt: skip
    return out


def test_no_order_is_proved_that_a_small_launch_refutes() -> None:
    """The soundness of both rewritings, on orders of which few are right."""
    proved = 0
    for of in nearby():
        answer = judged_order(of)
        if not answer.findings and not answer.reason:
            proved += 1
            assert tiles.refuted(of, sites.read(of)) is None, of
    assert proved >= 4


def stores(of: kir.Kernel) -> Stores:
    """Return the stores of a kernel as they stand."""
    boxes = [(site, sites.writes(site.stmt)) for site in sites.read(of)]
    found = [(site, box) for site, box in boxes if box is not None]
    return Stores(of, found, Known(sites.facts(of), RLIMIT))


def every(given: Stores, values: dict[str, int], *, clusters: bool) -> list[tuple[int, ...]]:
    """Return the origins of all boxes of a launch, by CTAs or by clusters."""
    many = orders.PAIRS.cluster if clusters else 1
    grid = values[kir.GRID.name] // many
    out = []
    for block in range(grid):
        here = {**values, kir.GRID.name: grid, kir.BLOCK.name: block}
        for site, box in given.found:
            for now in turns(site, here):
                out.append(tuple(function(site.plain(e))(now) for e in box.origin))
    return sorted(out)


def turns(site: sites.Site, values: dict[str, int]) -> list[dict[str, int]]:
    """Return the values of the loop indices in every iteration."""
    found = [values]
    for turn in site.loops:
        found = [
            {**now, turn.index.name: i} for now in found for i in range(function(turn.stop)(now))
        ]
    return found


@pytest.mark.parametrize(
    "of", [orders.kernel(Order(grouped=True, cluster=2)), paired(eq(LINES % (P * 2), 0))]
)
def test_no_box_is_moved(of: kir.Kernel) -> None:
    """Every way to write the stores gives the boxes of the kernel, in every small launch."""
    ways = list(rewrites(stores(of)))
    assert len(ways) == 4
    tried = 0
    for launch in launches.some_launches(of, (1, 2, 3)):
        values = {k: v for k, v in launch.items() if k != kir.BLOCK.name}
        first = every(ways[0], values, clusters=False)
        tried += len(first)
        for way in ways[1:]:
            ranked = any(turn.index == RANK for site, _ in way.found for turn in site.loops)
            assert every(way, values, clusters=ranked) == first
    assert tried >= 50


def test_a_kernel_without_clusters_and_conditions_is_written_in_one_way() -> None:
    """Nothing is asked twice."""
    assert len(list(rewrites(stores(orders.kernel(Order()))))) == 1
