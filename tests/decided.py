"""What is decided of the named invariants of a kernel, for tests."""

from __future__ import annotations

from functools import cache

from fuser.cookbook.recipes import RECIPES
from fuser.kernel import ir as kir
from fuzz.kernels.subjects import find
from fuzz.mutation.operators import Mutant, all_mutants
from oracles.prover.named.check import decide
from oracles.prover.prove import RLIMIT


def answers(kernel: kir.Kernel, policy: str = "default") -> dict[str, str]:
    """What is said of each named invariant that has a subject."""
    return {one.name: one.answer.value for one in decide(kernel, policy=policy, rlimit=RLIMIT)}


@cache
def _mutants(name: str) -> tuple[Mutant, ...]:
    kernel = RECIPES[name]() if name in RECIPES else find(f"matmul {name} 0").kernel
    assert isinstance(kernel, kir.Kernel)
    return tuple(all_mutants(kernel))


def mutated(name: str, change: str) -> kir.Kernel:
    """A recipe, or a compiled schedule, with the first change that begins so."""
    return next(one.kernel for one in _mutants(name) if one.change.startswith(change))
