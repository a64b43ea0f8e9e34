"""Cases of a kernel: no launch is left out, none is added, and each runs as it did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.numbers import turns
from litmus.parts import XN, YN, box, fragment, k, kernel, load, m, n, q, store
from litmus.suite import by_name

from fuser.expr import Expr, Var, ceildiv, eq, maximum, minimum
from fuser.kernel import ir as kir
from oracles.prover import prove
from oracles.prover.arithmetic import function, spread
from oracles.prover.cases import cases
from oracles.verdict import Status

UP_TO = 60
"""Launches that are looked at."""


def walked(*stops: Expr, requires: tuple[Expr, ...] = ()) -> kir.Kernel:
    """Return a kernel of a loop for each end."""
    loops = (kir.ForLoop(k, stop, (kir.BlockSync(i, 32),)) for i, stop in enumerate(stops))
    return kernel(tuple(loops), tensors=(XN, YN), params=(n, m), requires=requires)


def stops(of: kir.Kernel) -> list[Expr]:
    """Return the ends of its loops."""
    return [stmt.stop for stmt in of.walk() if isinstance(stmt, kir.ForLoop)]


@pytest.mark.parametrize(
    ("ends", "requires"),
    [
        ((n, n // 2), ()),
        ((n, ceildiv(n, 3), n % 3), ()),
        ((maximum(n - 2, 0), minimum(n, 2)), ()),
        ((n // 2, ceildiv(n, 3)), (n >= 4,)),
        ((n, maximum(n // 4 - 3, 0)), (eq(n % 2, 0),)),
        ((n, minimum(n // 2, 5) * 2), (n <= 20,)),
    ],
)
def test_each_launch_is_in_one_case_and_goes_round_as_often(
    ends: tuple[Expr, ...], requires: tuple[Expr, ...]
) -> None:
    """Whatever n is, one case has it, and loops of that case end where the kernel's do."""
    subject = walked(*ends, requires=requires)
    found = cases(subject)
    assert found
    for count in range(UP_TO):
        legal = all(function(e)({"n": count}) for e in requires)
        mine = [c for c in found if c.first == count or (c.step and count >= c.first)]
        mine = [c for c in mine if not c.step or (count - c.first) % c.step == 0]
        assert len(mine) == legal, count
        for case in mine:
            values = {v.name: (count - case.first) // (case.step or 1) for v in case.kernel.params}
            now = [max(0, function(stop)({**values, "m": 1})) for stop in stops(case.kernel)]
            assert now == [max(0, function(stop)({"n": count})) for stop in ends], count


@pytest.mark.parametrize(
    ("end", "requires", "settled"),
    [
        (minimum(n, n + m), (), n),
        (minimum(n, m), (m <= n,), m),
        (maximum(n - m, 0), (n < m,), 0),
        (n * (kir.BLOCK * 3 <= (kir.GRID - 1) * 3), (), n),
        (maximum(minimum(n, m), m), (), m),
        (n // 2 + ceildiv(n, 2), (), n),
        (minimum(n, m) + maximum(n - m, 0), (), n),
    ],
)
def test_comparisons_that_come_out_one_way_are_settled(
    end: Expr, requires: tuple[Expr, ...], settled: Expr
) -> None:
    """What sizes and the number of a CTA are required to be decides them."""
    (only,) = cases(walked(end, requires=requires))
    assert stops(only.kernel) == ([settled] if settled != 0 else [])


def test_comparisons_that_come_out_both_ways_are_left() -> None:
    """Where nothing is required, by cases; not where a variable is a loop's, whatever its name."""
    assert [stops(case.kernel) for case in cases(walked(minimum(n, m)))] == [[m], [m], [n]]
    inner = kir.ForLoop(n, minimum(n, m), (kir.BlockSync(0, 32),))
    outer = replace(walked(m, requires=(n <= m,)), body=(kir.ForLoop(n, 7, (inner,)),))
    assert not cases(outer)


def test_turns_hidden_in_comparisons_are_judged() -> None:
    """The turn of a CTA is its number, or for the late ones a smaller one."""
    late = maximum(minimum(kir.BLOCK, m), minimum(kir.BLOCK, 9))
    own = maximum(kir.BLOCK, minimum(kir.BLOCK, m))
    assert prove.prove(turns(turn=own, counts=True)).status is Status.PASS
    assert prove.prove(turns(turn=late, counts=True)).status is not Status.PASS


def test_outputs_are_covered_case_by_case() -> None:
    """Two loops write what one would; one that ends early leaves a tile out."""
    x = fragment("x")
    most = minimum(n, 2)

    def copied(rest: Expr) -> kir.Kernel:
        first = kir.ForLoop(k, most, (load(x, box(XN, k)), store(box(YN, k), x)))
        copy = (load(x, box(XN, most + q)), store(box(YN, most + q), x))
        return kernel((first, kir.ForLoop(q, rest, copy)))

    assert prove.prove(copied(maximum(n - 2, 0))).status is Status.PASS
    assert prove.prove(copied(maximum(n - 3, 0))).status is Status.FAIL


def test_a_kernel_with_one_length_has_no_cases() -> None:
    """There is nothing that two loops could disagree about."""
    assert not cases(walked(n, n))
    assert not cases(walked(n, m))


def test_a_quotient_in_which_a_size_always_stands_is_the_size() -> None:
    """Sixteen columns are a step: the columns themselves decide nothing."""
    steps = ceildiv(n, 16)
    found = cases(walked(steps, maximum(steps - 2, 0)))
    assert found
    assert all(n in case.kernel.params for case in found)
    assert len(found) < 10


def test_a_let_that_an_assignment_changes_is_not_put_in_place() -> None:
    """What it holds later is another value."""
    p, end = Var("p"), Var("end")
    body = (
        kir.Let(p, n // 2),
        kir.Let(end, p),
        kir.Assign(p, p + 1),
        kir.ForLoop(k, end, (kir.BlockSync(0, 32),)),
        kir.ForLoop(q, p, (kir.BlockSync(1, 32),)),
    )
    found = cases(kernel(body, tensors=(XN, YN)))
    assert found
    for case in found:
        now, later = (
            function(stop)({v.name: 1 for v in case.kernel.params}) for stop in stops(case.kernel)
        )
        assert later == now + 1


@pytest.mark.parametrize("a", [2 * n + k, n - 3 * k + 7, 6 * n - 1, k + 2])
@pytest.mark.parametrize("by", [2, 3])
def test_spread_expressions_have_the_same_value(a: Expr, by: int) -> None:
    """Only counts are taken apart, and quotients are of what is not negative."""
    exprs = (
        a // by,
        a % by,
        minimum(a, n),
        maximum(a, k),
        a < n,
        a <= k + 3,
        eq(a, n),
        (a // by) % 2,
    )
    for expr in exprs:
        made = spread(expr, frozenset({n}))
        for x in range(12):
            for y in range(5):
                values = {"n": x, "k": y}
                assert function(made)(values) == function(expr)(values), (expr, made, values)


def test_what_one_case_shows_is_said_of_the_kernel() -> None:
    """The finding names a line of the kernel, and how many tiles it takes."""
    subject = by_name("two_tiles_a_turn_none_guarded").kernel
    verdict = prove.prove(subject)
    assert verdict.status is Status.FAIL
    (found, *_) = [f for f in verdict.findings if f.severity == "error"]
    assert found.trips is not None
    assert found.lines
    assert "by" not in found.where


def test_a_tile_that_two_iterations_store_is_not_covered() -> None:
    """The second of two loops begins one tile too early."""
    x = fragment("x")

    def stored(first: Expr) -> kir.Kernel:
        def body(at: Expr) -> tuple[kir.Stmt, ...]:
            return (load(x, box(XN, at)), store(box(YN, at), x))

        loops = kir.ForLoop(k, n // 2, body(k)), kir.ForLoop(q, ceildiv(n, 2), body(first + q))
        return kernel(loops, tensors=(XN, YN))

    assert prove.prove(stored(n // 2)).status is Status.PASS
    assert prove.prove(stored(maximum(n // 2 - 1, 0))).status is Status.FAIL
    assert prove.prove(stored(n - ceildiv(n, 2))).status is Status.PASS
