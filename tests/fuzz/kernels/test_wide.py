"""Wide kernels: legal without a fault, with launches that keep what they require, and many."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from fuser.dtype import DType
from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.draw import accepted, draw_wide, family_of
from fuzz.kernels.subjects import find
from fuzz.kernels.wide import FACTS, WIDE, deals, m, n, same, shift, walk
from oracles.simulator import simulate
from oracles.verdict import Status

LOAD = kir.Fragment("x", DType.I64, kir.Layout((32,), 1, 32))


def numbers(body: tuple[kir.Stmt, ...], values: dict[Var, Expr]) -> Iterator[Expr]:
    """Yield the numbers that a walk goes through; parts are marked by a `Coordinate`."""
    values = dict(values)
    for stmt in body:
        match stmt:
            case kir.ForLoop(index, stop, inner):
                count = substitute(stop, values)
                assert isinstance(count, int)
                for i in range(count):
                    values[index] = i
                    yield from numbers(inner, values)
                    for var in (s.var for s in kir.walk(inner) if isinstance(s, kir.Assign)):
                        values[var] = substitute(var + 1, values)
            case kir.IfThenElse(condition, then, orelse):
                yield from numbers(then if substitute(condition, values) else orelse, values)
            case kir.Let(var, value):
                values[var] = value
            case kir.Coordinate(_, _, origin):
                yield substitute(origin, values)
            case _:
                pass


@pytest.mark.parametrize("seed", range(60))
def test_a_walk_goes_through_all_items_in_order(seed: int) -> None:
    """However it is written, and however its end is."""
    rng = Random(seed)
    body = walk(rng, same(rng, n), lambda at: (kir.Coordinate(LOAD, 0, at),), "w")
    for many in range(8):
        for other in (0, 2, 5):
            assert list(numbers(body, {n: many, m: other})) == list(range(many)), body


def test_what_is_said_to_equal_a_size_does_where_it_is_required() -> None:
    """Each way to write it, in launches that keep the facts."""
    for facts, ways in FACTS:
        kept = [
            {n: a, m: b}
            for a in range(12)
            for b in range(12)
            if all(substitute(fact, {n: a, m: b}) for fact in facts)
        ]
        assert kept
        assert all(substitute(way, values) == values[n] for values in kept for way in ways)


def test_tiles_are_dealt_to_one_cta_each() -> None:
    """All of them, whatever the deal."""
    for seed in range(20):
        deal = deals(Random(seed))
        for many in range(1, 8):
            ctas = substitute(deal.grid, {n: many})
            assert isinstance(ctas, int)
            dealt = []
            for block in range(ctas):
                here: dict[Var, Expr] = {n: many, kir.BLOCK: block, kir.GRID: ctas}
                count = substitute(deal.total, here)
                assert isinstance(count, int)
                dealt += [substitute(deal.place(at), here) for at in range(count)]
            assert sorted(map(int, map(str, dealt))) == list(range(many))


@pytest.mark.parametrize("family", WIDE)
def test_an_unfaulted_kernel_is_legal_and_runs(family: str) -> None:
    """No adversarial schedule breaks it, in a launch that keeps what it requires."""
    texts = set()
    for seed in range(12):
        template = WIDE[family](Random(seed))
        validate(template.kernel, final=True)
        texts.add(text(template.kernel))
        starts = [start for count in range(4) for start in template.at(count)]
        assert starts
        grid, params = Random(seed).choice(starts)
        verdict = simulate.search(template.kernel, simulate.Launch(grid, params), schedules=2)
        assert verdict.status is Status.PASS, f"{text(template.kernel)}\n{verdict}"
    assert len(texts) > 8


def test_most_faults_of_one_number_are_kernels_yet() -> None:
    """What validation refuses is lost; little is."""
    mutants = [one for f in WIDE.values() for one in shift(f(Random(0)).kernel)]
    assert sum(accepted(one.kernel) for one in mutants) > 0.7 * len(mutants)


def test_a_wide_kernel_is_found_by_its_name() -> None:
    """Always the same one, of the family that its number says."""
    assert text(find("wide 3 1").kernel) == text(draw_wide(3, 1).kernel)
    assert find("wide 3 1").family == family_of(1, WIDE)
