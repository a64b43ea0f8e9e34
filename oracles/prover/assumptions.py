"""What holds in every launch of a kernel, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from fuser.expr import Expr, Kind, both, eq, fold
from oracles.prover import sites
from oracles.prover.invariants.solver import follows
from oracles.prover.polynomial import poly, tree


class Known:
    """What holds in every launch, and whether something follows from it."""

    def __init__(self, facts: Iterable[Expr], rlimit: int) -> None:
        self.facts = [tree(poly(fact)) for fact in facts]
        self.rlimit = rlimit

    def gives(self, claim: Expr, *more: Expr) -> bool:
        """Whether a claim follows from the facts and from `more`."""
        normal = tree(poly(claim))
        if isinstance(normal, int):
            return normal != 0
        premise: Expr = 1
        for fact in (*self.facts, *(tree(poly(fact)) for fact in more)):
            premise = both(premise, fact)
        return follows(_implies(premise, normal), self.rlimit)

    def same(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are equal in every launch."""
        return poly(a) == poly(b) or self.gives(eq(a, b))

    def at_most(self, a: Expr, b: Expr, *more: Expr) -> bool:
        """Whether a <= b in every launch."""
        return poly(a) == poly(b) or self.gives(fold(Kind.LE, a, b), *more)


def _implies(premise: Expr, claim: Expr) -> Expr:
    return eq(both(premise, sites.negated(claim)), 0)
