"""Orders of tiles that a matmul takes: proved where right, never where a launch refutes them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import orders
import pytest
from orders import ACROSS, GROUP, GROUPS, LINES, PAIRS, RIGHT, WRONG, Order, kernel, paired
from stores import P

from fuser.expr import Expr, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover import launches, sites
from oracles.prover.arithmetic import function
from oracles.prover.coverage import outputs as tiles
from oracles.prover.coverage.outputs import Covered, covered
from oracles.prover.coverage.partition import RANK, Stores, rewrites
from oracles.prover.solver import Known

RLIMIT = 500_000


def judged(of: kir.Kernel) -> Covered:
    """Judge the coverage of a kernel."""
    return covered(of, rlimit=RLIMIT)


@pytest.mark.parametrize("name", RIGHT)
def test_an_order_of_tiles_is_proved(name: str) -> None:
    """Whatever a compiler emits has to be proved, not only not refuted."""
    answer = judged(RIGHT[name])
    assert not answer.findings, answer.findings
    assert not answer.reason, answer.reason


@pytest.mark.parametrize("name", WRONG)
def test_an_order_that_misses_a_tile_is_refuted(name: str) -> None:
    """By a small launch, which anybody can count."""
    answer = judged(WRONG[name])
    assert {f.kind for f in answer.findings} <= {"coverage", "bounds"}
    assert answer.findings, answer.reason


def test_a_divisor_that_may_be_zero_gives_nothing() -> None:
    """What `a % 0 == 0` says of a is unknown; the launch should require the divisor first."""
    answer = judged(kernel(GROUPS, requires=(eq(LINES % GROUP, 0),)))
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
            out.append(kernel(order, requires=(GROUP >= 1, condition, *extra)))
        out.append(paired(condition, eq(kir.GRID, LINES * ACROSS), deal="one"))
        out.append(paired(condition))
        if not one:
            tile = replace(order, cluster=1).stores(order.number)
            out.append(kernel(order, *tile, requires=(GROUP >= 1, condition)))
            out.append(kernel(order, requires=(GROUP >= 1, condition), stop=ceildiv(
                order.count - kir.BLOCK, kir.GRID
            )))  # fmt: skip
    return out


def test_nothing_is_proved_that_a_small_launch_refutes() -> None:
    """The soundness of both rewritings, on orders of which few are right."""
    proved = 0
    for of in nearby():
        answer = judged(of)
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
    """Return the values of the loop indices in every turn."""
    found = [values]
    for turn in site.loops:
        found = [
            {**now, turn.index.name: i} for now in found for i in range(function(turn.stop)(now))
        ]
    return found


@pytest.mark.parametrize(
    "of", [kernel(Order(grouped=True, cluster=2)), paired(eq(LINES % (P * 2), 0))]
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
    assert len(list(rewrites(stores(kernel(Order()))))) == 1
