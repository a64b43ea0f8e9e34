"""The cases on which the rules of the engines are tried: the litmus kernels."""

from __future__ import annotations

from litmus.parts import Litmus
from litmus.rules_turns import shared
from litmus.suite import LITMUS, kernels

from fuzz.rules.engines import Case
from oracles.verdict import Status


def case(one: Litmus) -> Case:
    """Return a litmus with its launch that shows most: the last, in a cluster the second."""
    cluster = kernels(one)[0].cluster
    run = (one.launches[:2] if cluster > 1 else one.launches)[-1]
    safe = one.expect.status is Status.PASS
    return Case(one.name, one.kernel, safe, (run.grid, dict(run.params)), one.expect.policy)


APART = Case("sums_of_tiles_in_one_place", shared(part=0), safe=False, start=(4, {"s": 2, "t": 2}))
"""Turns order the CTAs of one tile, not those of another; no litmus, for the prover leaves it open.
"""


def cases() -> tuple[Case, ...]:
    """Return every litmus that judges are asked about, and `APART`."""
    return (*(case(one) for one in LITMUS if not one.refused), APART)
