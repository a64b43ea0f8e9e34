"""Decide the named invariants of a kernel: each that has a subject, by z3, without any schedule.

All of it is program order: what one kind of threads executes before what, how many groups it has
closed since, which join leads to which other thread.  Nothing is followed, and nothing of the other
engines is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.named import drain, products
from oracles.prover.named.program import Asked, Program, UndecidedError, WitnessedError
from oracles.prover.sites import facts, kinds
from oracles.prover.solver import Possible

REACH = 6
"""Iterations to either side of an instance that are looked at, at most: but those that an await
leaves in flight."""
DRAIN, OPERANDS, RESULTS = NAMES = (
    "drain-before-release",
    "mma-operand-coverage",
    "mma-result-coverage",
)
"""All named invariants."""


class Answer(Enum):
    """What z3 says of a named invariant."""

    PROVED = "proved"
    OPEN = "open"
    """There is a pair of instances that violates it; whether it is reached is not asked."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Named:
    """What became of a named invariant: by how many questions, or why it is not proved."""

    name: str
    answer: Answer
    questions: int
    says: str = ""


def decide(kernel: kir.Kernel, *, policy: str, rlimit: int) -> tuple[Named, ...]:
    """Decide each named invariant of which there is anything to ask in a kernel."""
    possible = Possible(facts(kernel), rlimit)
    asked = Asked(possible, reach(kernel), strict=policy == "strict")
    programs = [Program(kernel, kind) for kind in kinds(kernel, 1)]
    found = []
    for name, check, subject in (
        (DRAIN, drain.check, drain.subject(kernel)),
        (OPERANDS, products.filled, products.operands(kernel)),
        (RESULTS, products.awaited, any(isinstance(s, kir.Wgmma) for s in kernel.walk())),
    ):
        before, says, answer = asked.count, "", Answer.PROVED
        if not subject:
            continue
        try:
            check(asked, programs)
        except WitnessedError as error:
            says, answer = str(error), Answer.OPEN
        except (UndecidedError, UnsupportedError) as error:
            says, answer = str(error), Answer.UNKNOWN
        if answer is not Answer.PROVED or asked.count > before:
            found.append(Named(name, answer, asked.count - before, says))
    if found and asked.possible.ask(()).status != "sat":
        reason = "no launch meets what the kernel requires, as far as z3 can tell"
        return tuple(Named(one.name, Answer.UNKNOWN, one.questions, reason) for one in found)
    return tuple(found)


def reach(kernel: kir.Kernel) -> int:
    """Return how far an await may stand from what it covers: a group an iteration, at least."""
    keep = max((s.keep for s in kernel.walk() if isinstance(s, kir.AsyncAwait)), default=0)
    slots = max((buffer.slots for buffer in kernel.buffers), default=0)
    return 1 + max(keep, min(slots, REACH - 1))
