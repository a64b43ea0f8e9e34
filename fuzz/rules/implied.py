"""Rules whose loss alone nobody can notice, each with the argument and a kernel that bears it out.

An implied rule is not idle: where the rules that imply it are left out too, some verdict depends on
it.  `Implied.case` names a kernel of that sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from oracles.explorer import rules
from oracles.prover.invariants.rules import Axiom, Obligation

_Explorer = rules.Rule


@dataclass(frozen=True, slots=True)
class Implied:
    """Why a rule is implied by others.

    Parameters
    ----------
    by : frozenset of Enum
        The rules that imply it.
    why : str
        The argument.
    case : str
        Without `by`, the verdict on this case depends on the rule.
    besides : frozenset of Enum
        Obligations that the case violates too, which are left out there as well.
    """

    by: frozenset[Enum]
    why: str
    case: str
    besides: frozenset[Enum] = frozenset()


IMPLIED: dict[Enum, Implied] = {
    _Explorer.GROUP: Implied(
        frozenset({_Explorer.EXIT, _Explorer.RAW, _Explorer.WAR, _Explorer.WAW}),
        "what is not committed is not covered by any await, so whoever uses its bytes races with "
        "it, and if nobody does it is in flight at the exit; the rule tells the cause",
        "rule_store_never_committed",
    ),
    Axiom.SEQUENCE: Implied(
        frozenset({Axiom.ARRIVAL, Obligation.IN_PHASE}),
        "every phase has an arrival; that it comes after the phase before is proved (IN_PHASE), "
        "and the phase ends after it (ARRIVAL); that proof cannot use SEQUENCE, for what follows "
        "the phase on the same slot does not precede an arrival in it",
        "rule_read_one_phase_late",
        frozenset(
            {
                Obligation.NOT_BEHIND,
                Obligation.NOT_LAPPED,
                Obligation.WAR,
                Obligation.WAW,
                Obligation.EXIT,
                Obligation.RETURN,
            }
        ),
    ),
}
"""Every implied rule."""
UNSETTLED: dict[Enum, str] = {}
"""Rules that others seem to imply, with what is missing for a proof: they count as open."""
