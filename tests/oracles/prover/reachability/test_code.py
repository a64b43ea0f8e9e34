"""Conditions on what no thread knows: a difference may be negative, a count is not."""

from __future__ import annotations

import pytest
from litmus.parts import X1, Y1, box, fragment, kernel, load, m, n, slots, store

from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover import prove
from oracles.prover.reachability.code import Asked, AtLeast, Atoms, Several
from oracles.verdict import Status

i = Var("i")
NAMES = frozenset({"n", "m"})


@pytest.mark.parametrize(
    "test",
    [n >= 1, n < 5, eq(n, 0), n + m >= 2, n < m, n + 1 < m, eq(n + 1, m), eq(m, n + 1)],
    ids=str,
)
def test_bounds_of_one_or_more_are_compared_with(test: Expr) -> None:
    """What is less than 0 counts as 0, and is no more than that either."""
    assert isinstance(Atoms(NAMES, {}).condition(test), AtLeast | Several)


@pytest.mark.parametrize(
    ("test", "more"),
    [(n <= m, 1), (n <= m + 2, 3), (n < m + 1, 1), (eq(n, m), 1), (eq((n - m) // 2, 0), 1)],
    ids=str,
)
def test_what_may_be_negative_is_compared_further_up(test: Expr, more: int) -> None:
    """Taken for 0, a difference would always be at least that."""
    atoms = Atoms(NAMES, {})
    assert not isinstance(atoms.condition(test), Asked)
    ((atom, _),) = atoms.found.items()
    assert str(atom).endswith(f" + {more}")


def test_a_bound_that_falls_along_a_loop_is_asked_as_a_whole() -> None:
    """Nothing that is added keeps it from falling below what counts."""
    assert isinstance(Atoms(NAMES, {}).condition(n <= m + i), Asked)


@pytest.mark.parametrize("test", [n <= m, eq(n, m), eq(n + 1, m), n <= m + 2, m + 3 > n], ids=str)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_barrier_behind_a_condition_is_no_barrier(test: Expr, *, swapped: bool) -> None:
    """Launches in which it does not hold are launches, too."""
    buffer, wide, thin = slots("S"), fragment("x", 64), fragment("x", 64, 1)
    join = (kir.BlockSync(0, 64),)
    body = (
        load(wide, box(X1)),
        store(kir.Slot(buffer, 0), wide),
        kir.IfThenElse(test, () if swapped else join, join if swapped else ()),
        load(thin, kir.Slot(buffer, 0)),
        store(box(Y1), thin),
    )
    made = kernel(body, threads=64, buffers=(buffer,), tensors=(X1, Y1), params=(n, m))
    assert prove.prove(made).status in (Status.FAIL, Status.UNKNOWN)


def test_loops_are_counted_whatever_their_length_is_made_of() -> None:
    """A loop of less than no turns has none: bounds are one more than its index."""
    for stop in (n - m, ceildiv(n - m, 3), n + m, n - m + 2, ceildiv(n - m, 3) + 1):
        found = Atoms(NAMES, {}).condition(i < stop)
        assert isinstance(found, AtLeast)
