"""Rules whose loss alone nobody can notice, each with the argument and a kernel that bears it out.

An implied rule is not idle: where the rules that imply it are left out too, some verdict depends on
it.  `Implied.case` names a kernel of that sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
    """

    by: frozenset[Enum]
    why: str
    case: str


IMPLIED: dict[Enum, Implied] = {}
"""Every implied rule."""
IDLE: dict[Enum, str] = {}
"""Rules that no engine consults, whatever it judges: names without a meaning, to be taken out."""
