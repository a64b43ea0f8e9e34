"""Conditions on what no thread knows, and what two readings of a kernel share."""

from __future__ import annotations

from itertools import product

import pytest
from litmus.parts import X1, Y1, box, fragment, kernel, load, m, n, slots, store

from fuser.expr import Expr, Kind, Var, both, ceildiv, eq, fold, maximum, minimum
from fuser.kernel import ir as kir
from fuzz.kernels.matmul import COMPILED
from oracles.prover import prove
from oracles.prover.arithmetic import function
from oracles.prover.reachability.code import (
    Asked,
    AtLeast,
    Atoms,
    Code,
    Compiler,
    Condition,
    Do,
    Enter,
    Known,
    Set,
    Several,
    assemble,
)
from oracles.prover.reachability.ctas import readings
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


def holds(test: Condition, atoms: Atoms, values: dict[str, int]) -> bool:
    """Decide a condition as a launch does; an unknown sum that is negative counts as 0."""
    match test:
        case Known(_, value):
            return bool(value(values))
        case AtLeast(number, _, bound, less):
            (atom,) = (one for one, at in atoms.found.items() if at == number)
            names = {str(v): v for v in (n, m)}
            found = eval(str(atom), {"min": min, "max": max}, {x: values[x] for x in names})
            return bool(max(found, 0) >= bound(values)) != less
        case Several(first, second, every):
            both_ = holds(first, atoms, values), holds(second, atoms, values)
            return all(both_) if every else any(both_)
        case Asked(expr):
            return bool(function(expr)(values))


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(
    "test",
    [
        i < minimum(n, 5),
        i < maximum(n - 3, 0),
        minimum(n, m) < 4,
        i // 2 < minimum(n, 3) + (m < 2),
        eq(maximum(n, 2), minimum(i, 4) + 1),
        (n < 3) + (i < 2) >= 1,
        both(n < 3, maximum(m, i) <= 4),
        n * 2 <= i + 3,
        minimum(n + 1, 7) // 2 > i,
        eq(n < i, m < 2),
        fold(Kind.MOD, n, 3) + i < 4,
    ],
    ids=str,
)
def test_cases_say_what_the_condition_says(test: Expr, *, negated: bool) -> None:
    """For all small values, whatever stands inside minima, maxima and conditions."""
    test = eq(test, 0) if negated else test
    atoms = Atoms(NAMES, {})
    made = atoms.condition(test)
    for a, b, c in product(range(9), range(6), range(9)):
        values = {"n": a, "m": b, "i": c}
        assert holds(made, atoms, values) == bool(function(test)(values)), values


def test_no_number_stays_beside_an_unknown() -> None:
    """What is compared with a variable is a number or an unknown alone."""
    atoms = Atoms(NAMES, {})
    made = atoms.condition(i < minimum(n, 5))
    assert isinstance(made, Several)
    assert isinstance(made.first, AtLeast)
    assert isinstance(made.second, Known)


def test_an_unknown_that_changes_with_a_variable_is_asked_as_a_whole() -> None:
    """`(n + i) // 4` is another number in every round."""
    assert isinstance(Atoms(NAMES, {}).condition((n + i) // 4 < 3), Asked)


def test_a_variable_that_may_be_negative_is_none_that_counts() -> None:
    """Below 0 a difference of unknowns is not followed."""
    assert isinstance(Atoms(NAMES, {}).condition(i < n - m), AtLeast)
    assert isinstance(Atoms(NAMES, {}, frozenset({"i"})).condition(i < n - m), Asked)


def listing(code: Code) -> list[list[object]]:
    """Return what each kind of threads executes, in which unknowns go by their meaning."""
    meant = {number: atom for atom, number in code.atoms.found.items()}

    def shown(one: object) -> object:
        match one:
            case Do(site, _, exprs, index, origin, limit, says):
                return site.index, exprs, index, origin, limit, says
            case Set(name, expr, _, terms):
                return name, expr, [(meant[atom], times) for atom, times in terms]
            case Enter(_, name, stop, expr, _, atom):
                return name, stop, expr, meant.get(atom), one.depth, one.end
            case _:
                return [
                    getattr(one, name, None) for name in ("enter", "name", "expr", "orelse", "to")
                ]

    return [[shown(one) for one in program] for program in code.programs]


@pytest.mark.parametrize("name", ["split_pipelined", "split_last", "last_columns", "added_rows"])
def test_what_readings_share_is_what_each_compiles_alone(name: str) -> None:
    """A program kept from another reading would say of a CTA what only another one knows."""
    made = COMPILED[name].template().kernel
    compiler, several = Compiler(made), list(readings(made))
    assert len(several) > 2
    for one in several:
        shared = compiler.code(one.fixed, one.facts)
        alone = assemble(made, one.fixed, one.facts)
        assert listing(shared) == listing(alone)
        assert (shared.moving, shared.cycles) == (alone.moving, alone.cycles)
