"""A launch that shows what the prover's states refute.

The states leave open which trip counts, conditions and CTAs a launch can bring together, so a
refutation is asked again of whole launches, in which every number is known.
"""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import UnsupportedError, linear
from oracles.prover.launches import Launch
from oracles.prover.reachability.fixpoint import Exploration
from oracles.prover.reachability.program.code import CLUSTER, assemble
from oracles.prover.reachability.world import World
from oracles.prover.sites import kinds

CTAS = 4
"""Clusters of a launch that are followed."""


def showing(kernel: kir.Kernel, trips: int, *, policy: str) -> Launch | None:
    """Return a launch in which a kernel goes wrong, None if a bounded search finds none.

    Parameters
    ----------
    kernel : Kernel
        A refuted kernel.
    trips : int
        The trip count that shows it; launches with that many are tried first, then those in which
        a loop that goes round a few times more or less than a count has the count itself.
    policy : str
        `default` or `strict`.
    """
    tried: set[tuple[object, ...]] = set()
    for count in _counts(kernel, trips):
        for launch in launches.reaching(kernel, count):
            key = launch.grid, *sorted(launch.params.items())
            if key in tried:
                continue
            tried.add(key)
            if kernel.semaphores or _fails(kernel, launch, policy):
                return launch
    return None


def _counts(kernel: kir.Kernel, trips: int) -> list[int]:
    """Return how many rounds a loop may have whose end follows from a count with that value."""
    stops = [stmt.stop for stmt in kernel.walk() if isinstance(stmt, kir.ForLoop)]
    ends = [linear(stop) for stop in stops]
    more = [constant for constant, parts in ends if list(parts.values()) == [1]]
    return list(dict.fromkeys((trips, *(trips + rounds for rounds in more))))


def _fails(kernel: kir.Kernel, launch: Launch, policy: str) -> bool:
    """Whether one of the first clusters of a launch goes wrong.

    A launch that cannot be followed, such as one without tiles that divides by their number, shows
    nothing.
    """
    for number in range(min(CTAS, launch.grid // kernel.cluster)):
        fixed: dict[Expr, int] = {var: launch.params[var.name] for var in kernel.params}
        fixed[kir.GRID] = launch.grid
        fixed[CLUSTER if kernel.cluster > 1 else kir.BLOCK] = number
        try:
            code = assemble(kernel, kinds(kernel), fixed)
        except UnsupportedError:
            return False
        one = Exploration(World(code, policy))
        one.stands()
        one.explore()
        if one.findings.failed:
            return True
    return False
