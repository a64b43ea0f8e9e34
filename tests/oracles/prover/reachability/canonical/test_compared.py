"""From where counts are compared, and with how large numbers."""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, trips
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.canonical.compared import Against, comparisons, numbers
from oracles.prover.reachability.grid.readings import readings
from oracles.prover.reachability.program.code import Code

j, t, tiles = Var("j"), Var("t"), Var("tiles")
SYNC = kir.BlockSync(0, 32)


def _code(*body: kir.Stmt) -> Code:
    kernel = replace(
        recipes.store_ring(), buffers=(), barriers=(), threads=32, tensors=(), outputs=(),
        params=(trips, tiles), requires=(), body=body,
    )  # fmt: skip
    return fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default").code


def _found(*body: kir.Stmt) -> list[Against]:
    return list(comparisons(_code(*body), 0))


def _prolog(stop: int, test: Expr) -> kir.ForLoop:
    return kir.ForLoop(j, stop, (kir.IfThenElse(test, (SYNC,)),))


def test_the_largest_value_of_a_counter_is_the_largest_bound() -> None:
    """`j < trips` asks whether there are 1 ... 5 trips; j is 4 last, and 5 when it is left."""
    (one,) = _found(_prolog(5, j < trips))
    assert (one.most, one.names) == (6, frozenset())


def test_a_counter_of_unknown_length_goes_on() -> None:
    """No largest bound is known of it, so the distance counts."""
    (one,) = _found(kir.ForLoop(k, trips, (kir.IfThenElse(k < tiles, (SYNC,)),)))
    assert one.names == {"k"}


def test_a_tiles_prolog_is_passed_until_the_next_tile() -> None:
    """Behind it the same count of this tile is compared no more, but that of the next is."""
    loops = (_prolog(2, j < trips), kir.ForLoop(k, trips, (SYNC,)))
    code = _code(kir.ForLoop(t, tiles, loops))
    (one,) = comparisons(code, 0)
    program = code.programs[0]
    steps = next(at for at, i in enumerate(program) if getattr(i, "name", "") == "k")
    assert one.inner < steps < one.last


def test_a_name_with_two_uses_is_no_counter_to_a_number() -> None:
    """What one loop counts to five another counts to no end."""
    code = _code(_prolog(5, j < trips), kir.ForLoop(j, trips, (SYNC,)), kir.ForLoop(t, 3, (SYNC,)))
    assert numbers(code) == {"t": 3}
