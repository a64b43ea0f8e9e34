"""What became of a mutant: the one rule by which campaigns and crosschecks score it."""

from __future__ import annotations

from enum import Enum


class Fate(Enum):
    """Who killed a mutant; or why nobody did."""

    BOTH = "both"
    PROVER = "prover"
    """The prover alone: a judge that looks for a failing interleaving is blind, or looked away."""
    SEARCH = "explorer"
    """Such a judge alone: the prover is blind."""
    REDUNDANT = "redundant"
    """Proved right, and all that was searched holds no failing interleaving."""
    OPEN = "open"


def fate(proof: str, *searches: str) -> Fate:
    """Return what became of a mutant, by the statuses of a proof, and of explorer and simulator."""
    match proof == "fail", "fail" in searches:
        case True, True:
            return Fate.BOTH
        case True, False:
            return Fate.PROVER
        case False, True:
            return Fate.SEARCH
        case _:
            passed = {proof, *searches} == {"pass"}
            return Fate.REDUNDANT if passed and searches else Fate.OPEN
