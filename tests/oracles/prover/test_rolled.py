"""Loops that are cut in parts: the same statements in the same order, whatever they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import pytest
from litmus.parts import XN, YN, Body, k, kernel, m, n, p, q
from litmus.suite import by_name

from fuser.expr import Expr, Var, ceildiv, eq, maximum, minimum
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import function
from oracles.prover.plain import decided, inlined
from oracles.prover.rolled import plainer, rolled

FEW = range(8)
e = Var("e")


def at(number: Expr) -> Body:
    """Two statements of one step; a slot's number tells which step it is."""
    full = kir.MBarrier("full", 1, 3)
    return kir.MBarrierWaitParity(full, number % 3, number // 3 % 2), kir.BlockSync(1, 32)


def of(*body: kir.Stmt, requires: tuple[Expr, ...] = ()) -> kir.Kernel:
    """Return a kernel of these statements."""
    made = kernel(body, tensors=(XN, YN), params=(n, m), requires=requires)
    return replace(made, barriers=(kir.MBarrier("full", 1, 3),))


def executed(body: Body, values: dict[str, int]) -> Iterator[tuple[object, ...]]:
    """Yield what a thread executes, with all numbers worked out."""
    for stmt in body:
        match stmt:
            case kir.Let(var, value) | kir.Assign(var, value):
                values[var.name] = function(value)(values)
            case kir.ForLoop(index, stop):
                for i in range(function(stop)(values)):
                    values[index.name] = i
                    yield from executed(stmt.body, values)
            case kir.IfThenElse(test, then, orelse):
                yield from executed(then if function(test)(values) else orelse, values)
            case kir.MBarrierWaitParity(_, slot, parity):
                yield "wait", function(slot)(values), function(parity)(values)
            case _:
                yield (stmt,)


def runs(one: kir.Kernel, values: Mapping[str, int]) -> list[tuple[object, ...]]:
    """Return all that a thread executes in a launch."""
    return list(executed(one.body, {"blockIdx": 0, "gridDim": 1, **values}))


def loops(one: kir.Kernel) -> list[Expr]:
    """Return the ends of its loops."""
    return [stmt.stop for stmt in one.walk() if isinstance(stmt, kir.ForLoop)]


def half(test: Expr, number: Expr) -> kir.Stmt:
    """A step under a guard."""
    return kir.IfThenElse(test, at(number))


rest = maximum(n - 2, 0)
ONE = {
    "prologue": (kir.ForLoop(k, minimum(n, 2), at(k)), kir.ForLoop(q, rest, at(q + 2))),
    "epilogue": (kir.ForLoop(k, rest, at(k)), kir.ForLoop(q, minimum(n, 2), at(rest + q))),
    "of a parameter": (
        kir.ForLoop(k, minimum(n, m), at(k)), kir.ForLoop(q, maximum(n - m, 0), at(q + m)),
    ),
    "peeled": (half(n >= 1, 0), kir.ForLoop(k, maximum(n - 1, 0), at(k + 1))),
    "by two": (kir.ForLoop(k, ceildiv(n, 2), (*at(k * 2), half(k * 2 + 1 < n, k * 2 + 1))),),
    "pairs": (
        kir.ForLoop(k, n // 2, (*at(k * 2), *at(k * 2 + 1))), half(eq(n % 2, 1), n - 1),
    ),
    "chunks": (
        kir.ForLoop(k, ceildiv(n, 3), (kir.ForLoop(q, minimum(n - k * 3, 3), at(k * 3 + q)),)),
    ),
    "counted": (kir.Let(p, 0), kir.ForLoop(k, n, (*at(p), kir.Assign(p, p + 1)))),
    "counted on": (
        kir.Let(p, 0),
        kir.ForLoop(k, minimum(n, 2), (*at(p), kir.Assign(p, p + 1))),
        kir.ForLoop(q, rest, (*at(p), kir.Assign(p, p + 1))),
    ),
    "one way for few": (
        kir.IfThenElse(n <= 2, (kir.ForLoop(k, n, at(k)),), (kir.ForLoop(q, n, at(q)),)),
    ),
}  # fmt: skip
OTHERS = {
    "a step is left out": (kir.ForLoop(k, minimum(n, 2), at(k)), kir.ForLoop(q, rest, at(q + 3))),
    "a step comes twice": (kir.ForLoop(k, minimum(n, 2), at(k)), kir.ForLoop(q, rest, at(q + 1))),
    "the rest for few only": (
        kir.ForLoop(k, minimum(n, 2), at(k)), kir.ForLoop(q, rest, at(q % 5 + 2)),
    ),
    "one too many": (kir.ForLoop(k, minimum(n, 3), at(k)), kir.ForLoop(q, rest, at(q + 2))),
    "no guard for the last": (kir.ForLoop(k, ceildiv(n, 2), (*at(k * 2), *at(k * 2 + 1))),),
    "a guard that is late": (
        kir.ForLoop(k, ceildiv(n, 2), (*at(k * 2), half(k * 2 + 2 < n, k * 2 + 1))),
    ),
    "a last one for the other parity": (
        kir.ForLoop(k, n // 2, (*at(k * 2), *at(k * 2 + 1))), half(eq(n % 2, 0), n - 1),
    ),
    "chunks that overlap": (
        kir.ForLoop(k, ceildiv(n, 3), (kir.ForLoop(q, minimum(n - k * 2, 3), at(k * 3 + q)),)),
    ),
    "chunks cut late": (
        kir.ForLoop(k, ceildiv(n, 3), (kir.ForLoop(q, minimum(n + 1 - k * 3, 3), at(k * 3 + q)),)),
    ),
    "counted in one branch": (
        kir.Let(p, 0),
        kir.ForLoop(k, n, (*at(p), kir.IfThenElse(k < 4, (kir.Assign(p, p + 1),)))),
    ),
    "counted by two at the end": (
        kir.Let(p, 0),
        kir.ForLoop(k, minimum(n, 2), (*at(p), kir.Assign(p, p + 2))),
        kir.ForLoop(q, rest, (*at(p), kir.Assign(p, p + 1))),
    ),
    "another way for few": (
        kir.IfThenElse(n <= 2, (kir.ForLoop(k, n, at(k)),), (kir.ForLoop(q, n, at(q + 1)),)),
    ),
    "two loops a round": (
        kir.ForLoop(k, m, (kir.ForLoop(q, n, at(q)), kir.ForLoop(e, n, at(e + n)))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ONE)
def test_parts_of_a_loop_are_one_loop(form: str) -> None:
    """However a loop is cut, it is that loop again, and runs as it did."""
    whole = of(*ONE[form])
    made = plainer(whole).kernel
    assert loops(made) == [n]
    for some, more in product(FEW, range(4)):
        given = {"n": some, "m": more}
        assert runs(made, given) == runs(whole, given) == runs(of(kir.ForLoop(k, n, at(k))), given)


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_not_one_loop_runs_as_it_did(form: str) -> None:
    """One number is another one: whatever is joined, nothing else is executed."""
    whole = of(*OTHERS[form])
    made = plainer(whole).kernel
    for some, more in product(FEW, range(4)):
        given = {"n": some, "m": more}
        assert runs(made, given) == runs(whole, given), given


def test_statements_are_those_they_were() -> None:
    """Of every statement it is known which one of the kernel it is."""
    whole = of(kir.BlockSync(5, 32), *ONE["prologue"], kir.BlockSync(7, 32))
    made = rolled(inlined(whole))
    given, new = list(whole.walk()), list(made.kernel.walk())
    assert len(made.origin) == len(new) < len(given)
    assert all(type(given[at]) is type(one) for at, one in zip(made.origin, new, strict=True))


def test_a_kernel_without_parts_stays_itself() -> None:
    """Nothing but values in their place: nobody has to look at another kernel then."""
    whole = by_name("product").kernel
    assert isinstance(whole, kir.Kernel)
    assert plainer(whole).kernel is inlined(whole)


def test_a_sum_with_nothing_is_what_is_left() -> None:
    """`min(n, 2) + 0` is `min(n, 2)`, and no minimum of that and 0."""
    end = minimum(n, 2) + maximum(minimum(n, 2) - 3, 0)
    (found,) = loops(decided(of(kir.ForLoop(k, end, at(k)))))
    assert found == minimum(n, 2)


def test_what_a_launch_has_to_keep_is_known() -> None:
    """Two lengths are one where they have to be equal, and not elsewhere."""
    parts = kir.ForLoop(k, m, at(k)), kir.ForLoop(q, n - m, at(q + n - 4))
    assert loops(plainer(of(*parts, requires=(eq(m, 4), n >= 5))).kernel) != loops(of(*parts))
    assert len(loops(plainer(of(*parts)).kernel)) == 2
