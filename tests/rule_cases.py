"""The cases on which the rules of the engines are tried: litmus kernels, and a few of their own."""

from __future__ import annotations

from litmus.parts import Litmus
from litmus.suite import LITMUS, kernels
from litmus_rules import LITMUS as OWN

from fuzz.rules_engines import Case
from oracles.verdict import Status


def case(one: Litmus) -> Case:
    """Return a litmus with its launch that shows most: the last, in a cluster the second."""
    cluster = kernels(one)[0].cluster
    run = (one.launches[:2] if cluster > 1 else one.launches)[-1]
    safe = one.expect.status is Status.PASS
    return Case(one.name, one.kernel, safe, (run.grid, dict(run.params)), one.expect.policy)


def cases() -> tuple[Case, ...]:
    """Return every litmus that judges are asked about."""
    return tuple(case(one) for one in (*OWN, *LITMUS) if not one.refused)
