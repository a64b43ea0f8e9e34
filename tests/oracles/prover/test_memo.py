"""Remembered proofs: a false hit would be a false proof, so a key tells all kernels apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuzz.mutation import operators
from oracles.prover.prove import Memory, nameless_key
from oracles.verdict import Finding, Status, Verdict

PASSED = Verdict("prover", Status.PASS, 1)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_mutant_has_another_key_than_its_original(name: str) -> None:
    """Any change of a statement, a number or a fact of the launch may break a proof."""
    kernel = recipes.RECIPES[name]()
    key = nameless_key(kernel)
    assert all(nameless_key(m.kernel) != key for m in operators.all_mutants(kernel))


def test_another_name_of_the_kernel_is_the_same_key() -> None:
    """Nothing that is proved depends on what a kernel is called."""
    kernel = recipes.store_ring()
    assert nameless_key(replace(kernel, name="other")) == nameless_key(kernel)


def test_only_proofs_are_remembered() -> None:
    """What is unknown today may be settled with another limit, and a refutation names lines."""
    memory, kernel = Memory(), recipes.store_ring()
    for status in (Status.UNKNOWN, Status.UNSUPPORTED):
        memory.keep(kernel, "default", 1, Verdict("prover", status, 1))
        assert memory.recall(kernel, "default", 1) is None
    memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(recipes.store_ring(), "default", 1) is PASSED


def test_policy_and_limit_are_part_of_the_question() -> None:
    """A proof under one policy says nothing about another."""
    memory, kernel = Memory(), recipes.store_ring()
    memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(kernel, "strict", 1) is None
    assert memory.recall(kernel, "default", 2) is None


def test_findings_are_told_of_the_same_kernel_only() -> None:
    """Warnings quote statements, and those have names."""
    memory, kernel = Memory(), recipes.store_ring()
    warned = replace(PASSED, findings=(Finding("proxy", "line 1: x", "x", "warning"),))
    memory.keep(kernel, "default", 1, warned)
    assert memory.recall(kernel, "default", 1) is warned
    assert memory.recall(replace(kernel, name="other"), "default", 1) is None


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    """A campaign of many kernels must not fill the memory."""
    memory, kernels = Memory(kept=2), [recipes.store_ring(stages) for stages in (2, 3, 4)]
    for kernel in kernels:
        memory.keep(kernel, "default", 1, PASSED)
    assert memory.recall(kernels[0], "default", 1) is None
    assert memory.recall(kernels[2], "default", 1) is PASSED
