"""No statement divides by 0, or divides a negative number.

C++ says nothing of the one, and rounds the other towards 0, where Python rounds down.
Every quotient and remainder that a statement evaluates is asked about as it is written, before what
its lets are is put in place, which may cancel it: in coordinates and limits of boxes, slots,
parities, turns, conditions, ends of loops and lets.  z3 is asked whether the divisor
is at least 1, and the dividend at least 0, under the conditions and in the loops around the
statement; of a condition with `&&` the right part is evaluated only where the left one holds.
Where that does not follow, small launches are tried one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import expressions
from oracles.prover import launches
from oracles.prover.arithmetic import Values, function
from oracles.prover.coverage.outputs import (
    ALL_ITERATIONS,
    ITERATIONS,
    Budget,
    Covered,
    TooManyError,
    iterations,
)
from oracles.prover.reachability.code import signed
from oracles.prover.sites import MOVING, Site, every, facts, unknown
from oracles.prover.solver import Exact, Sequents
from oracles.verdict import Finding


@dataclass(frozen=True, slots=True)
class Division:
    """A division of a statement, and what holds wherever it is done."""

    op: Op
    held: tuple[Expr, ...]
    site: Site

    @property
    def parts(self) -> tuple[Expr, Expr]:
        """The number that is divided, and by which, in the terms of its site."""
        return self.site.plain(self.op.a), self.site.plain(self.op.b)

    @property
    def when(self) -> tuple[Expr, ...]:
        """What holds where it is done, in the terms of its site."""
        return tuple(map(self.site.plain, self.held))


def judge(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every division, in every launch that a kernel allows.

    `rlimit` is the work limit of one z3 question.  With a finding if a launch divides by 0, or with
    a reason if that is not known.
    """
    asked: dict[tuple[Expr, ...], dict[Expr, Division]] = defaultdict(dict)
    for site in every(kernel):
        around = (*site.guards, *(loop.index < loop.stop for loop in site.loops))
        for op, held in _divisions(expressions(site.stmt)):
            division = Division(op, held, site)
            number, by = division.parts
            for claim in (fold(Kind.LE, 1, by), fold(Kind.LE, 0, number)):
                if 0 not in site.guards and (not isinstance(claim, int) or not claim):
                    asked[*around, *division.when].setdefault(claim, division)
    moved = {s.var.name for s in kernel.walk() if isinstance(s, kir.Assign)}
    negative = moved & signed(kernel)
    left: list[Division] = []
    moves = {MOVING: Var("what is added") - Var("what is taken")} if negative else {}
    for held, each in asked.items():
        claims = {substitute(claim, moves): division for claim, division in each.items()}
        known = [substitute(one, moves) for one in (*facts(kernel), *held)]
        named: set[Var] = set().union(*map(variables, (*known, *claims)))
        known += [fold(Kind.LE, 0, v) for v in sorted(named, key=str)]
        shown = Sequents(rlimit).given(known).held(claims)
        left += [
            division
            for claim, division in claims.items()
            if claim not in shown and not _follows(claim, known, rlimit)
        ]
    checked = sum(map(len, asked.values()))
    if not left:
        return Covered(checked, ())
    found = _refuted(kernel, left)
    says = (
        f"{left[0].site.where}: nothing shows that {left[0].op} divides a number >= 0 by one >= 1"
    )
    return Covered(checked, (), says) if found is None else Covered(checked, (found,))


def _follows(claim: Expr, known: list[Expr], rlimit: int) -> bool:
    question = Exact(rlimit)
    for one in known:
        question.solver.add(question.term(one) != 0)
    return question.follows(claim)


def _divisions(
    exprs: Iterable[Expr], held: tuple[Expr, ...] = ()
) -> Iterator[tuple[Op, tuple[Expr, ...]]]:
    """Yield the divisions in expressions, and what holds wherever they are done."""
    for expr in exprs:
        match expr:
            case Op(Kind.AND, a, b):
                yield from _divisions((a,), held)
                yield from _divisions((b,), (*held, a))
            case Op(kind, a, b):
                yield from _divisions((a, b), held)
                if kind in (Kind.FLOORDIV, Kind.MOD):
                    yield expr, held
            case _:
                pass


def _refuted(kernel: kir.Kernel, left: list[Division]) -> Finding | None:
    """Search for a small launch in which a statement divides by 0."""
    known = [d for d in left if not unknown((*d.parts, *d.when, *d.site.conditions))]
    rest = ALL_ITERATIONS
    for values in launches.tried(kernel) if known else ():
        budget = Budget(min(ITERATIONS, rest))
        rest -= budget.left
        for division in known:
            try:
                shown = _shown(division, values, budget)
            except TooManyError:
                shown = ""
            if shown:
                launch, names = launches.named(values)
                says, site = f"{names}: {shown}", division.site
                return Finding("bounds", site.where, says, lines=(site.line,), launch=launch)
        rest += budget.left
    return None


def _shown(division: Division, values: Values, budget: Budget) -> str:
    """Say where a launch does a division that has no meaning; empty where none is shown."""
    site, op = division.site, division.op
    loops = [(loop.index.name, function(loop.stop)) for loop in site.loops]
    guards = [function(guard) for guard in (*site.guards, *division.when)]
    of, by = map(function, division.parts)
    for block in range(values[kir.GRID.name]):
        try:
            for now in iterations(loops, {**values, kir.BLOCK.name: block}):
                budget.spend()
                if all(guard(now) for guard in guards):
                    a, b = of(now), by(now)
                    if a < 0 or b < 1:
                        return f"CTA {block}: `{op}` is {a} {op.kind.value} {b}"
        except ZeroDivisionError:
            continue
    return ""
