"""What is decided of the named invariants of a kernel, for tests."""

from __future__ import annotations

from functools import cache

from fuser.cookbook.recipes import RECIPES
from fuser.kernel import ir as kir
from fuzz.mutation.operators import Mutant, all_mutants
from oracles.prover.named.check import decide
from oracles.prover.prove import RLIMIT


def answers(kernel: kir.Kernel, policy: str = "default") -> dict[str, str]:
    """What is said of each named invariant that has a subject."""
    return {one.name: one.answer.value for one in decide(kernel, policy=policy, rlimit=RLIMIT)}


@cache
def _mutants(recipe: str) -> tuple[Mutant, ...]:
    return tuple(all_mutants(RECIPES[recipe]()))


def mutated(recipe: str, change: str) -> kir.Kernel:
    """A recipe with the first change that begins so."""
    return next(one.kernel for one in _mutants(recipe) if one.change.startswith(change))
