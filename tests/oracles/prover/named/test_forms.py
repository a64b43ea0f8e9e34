"""Forms in which pipelines are written by hand: right ones are proved, each change is not."""

from __future__ import annotations

from functools import cache

import pytest
from decided import answers
from forms import FORMS
from sample import some

from fuser.kernel import ir as kir
from fuzz.mutation.operators import Mutant, all_mutants
from oracles.prover.named.check import DRAIN, OPERANDS, RESULTS
from oracles.simulator import simulate
from oracles.verdict import Status

WRONG = {
    "epilogue": (
        (OPERANDS, "drop: drop line 36"),
        (OPERANDS, "phase: parity flipped line 24"),
        (OPERANDS, "weaken: only each warp line 29"),
        (OPERANDS, "predicate: only if ((k + 1) < main) line 28"),
        (OPERANDS, "phase: position restarts in `k` line 34"),
        (OPERANDS, "index: next slot of SB line 33"),
        (RESULTS, "move: move first line 41"),
        (RESULTS, "predicate: only if ((e + 1) < (trips - main)) line 39"),
    ),
    "epilogue worked out": (
        (OPERANDS, "phase: parity from e instead of main line 34"),
        (OPERANDS, "weaken: no retry line 34"),
        (OPERANDS, "move: move behind the loop line 28"),
    ),
    "ahead": (
        (OPERANDS, "phase: parity constant 1 line 19"),
        (OPERANDS, "index: next slot of SA line 21"),
        (OPERANDS, "index: next slot of SA line 31"),
        (RESULTS, "predicate: only if (1 <= k) line 22"),
    ),
    "unrolled": (
        (OPERANDS, "phase: parity flipped line 27"),
        (OPERANDS, "index: next slot of empty line 25"),
        (OPERANDS, "move: move last line 23"),
        (RESULTS, "move: move first line 31"),
    ),
    "late": (
        (OPERANDS, "stages: not from 40 on line 35"),
        (OPERANDS, "role: first in role load, line 23"),
        (OPERANDS, "phase: parity constant 0 line 19"),
        (RESULTS, "move: move first line 27"),
    ),
    "backwards": (
        (OPERANDS, "swap: swap line 23"),
        (OPERANDS, "weaken: keep one more line 23"),
        (OPERANDS, "index: next slot of SA line 21"),
    ),
    "one slot": (
        (OPERANDS, "phase: parity flipped line 19"),
        (OPERANDS, "swap: swap line 23"),
        (RESULTS, "stages: not from 40 on line 23"),
    ),
    "one slot alone": (
        (OPERANDS, "drop: drop line 26"),
        (OPERANDS, "count: threads 96 line 26"),
        (OPERANDS, "weaken: keep one more line 25"),
        (RESULTS, "predicate: only if ((k + 1) < trips) line 25"),
    ),
    "nested": (
        (OPERANDS, "weaken: no retry line 20"),
        (OPERANDS, "phase: parity constant 0 line 20"),
        (RESULTS, "predicate: only if ((k + 1) < trips) line 24"),
    ),
    "two loops": (
        (OPERANDS, "predicate: only if ((k + 1) < half) line 20"),
        (OPERANDS, "phase: parity from q instead of half line 28"),
        (RESULTS, "predicate: only if ((q + 1) < (trips - half)) line 31"),
    ),
    "two loaders": (
        (OPERANDS, "weaken: no retry line 30"),
        (OPERANDS, "index: next slot of empty line 36"),
    ),
    "one waits": (
        (OPERANDS, "drop: drop line 21"),
        (OPERANDS, "predicate: only if (1 <= k) line 19"),
        (OPERANDS, "move: move last line 25"),
    ),
    "staged": (
        (OPERANDS, "predicate: only if (1 <= k) line 34"),
        (OPERANDS, "move: move first line 35"),
        (OPERANDS, "proxy: by one thread per warpgroup line 34"),
    ),
    "staged and joined": (
        (OPERANDS, "move: move before the loop line 35"),
        (OPERANDS, "weaken: only each warp line 35"),
    ),
    "by parts": (
        (OPERANDS, "swap: swap line 29"),
        (OPERANDS, "index: next slot of empty line 37"),
        (RESULTS, "predicate: only if ((k + 1) < trips) line 29"),
    ),
    "told late": (
        (DRAIN, "drop: drop line 22"),
        (DRAIN, "weaken: keep one more line 22"),
        (DRAIN, "weaken: read only line 25"),
        (DRAIN, "predicate: only if ((k + 1) < n) line 22"),
        (DRAIN, "role: by the second warp line 20"),
    ),
    "told at once": (
        (DRAIN, "swap: swap line 15"),
        (DRAIN, "weaken: read only line 18"),
        (DRAIN, "stages: not from 40 on line 18"),
        (DRAIN, "role: apart, by the second warp, line 19"),
    ),
    "told in branches": (
        (DRAIN, "drop: drop line 19"),
        (DRAIN, "drop: drop line 25"),
        (DRAIN, "swap: swap line 24"),
        (DRAIN, "weaken: only each warp line 25"),
    ),
    "told by a role": (
        (DRAIN, "drop: drop line 26"),
        (DRAIN, "swap: swap line 26"),
        (DRAIN, "weaken: read only line 26"),
        (DRAIN, "swap: swap line 32"),
        (DRAIN, "predicate: only if (1 <= k) line 26"),
    ),
    "told by a named barrier": (
        (DRAIN, "swap: swap line 12"),
        (DRAIN, "swap: swap line 17"),
    ),
}
"""By form, changes by which an invariant no longer holds."""
CHANGES = tuple((form, *change) for form, found in WRONG.items() for change in found)
FIRST = tuple((form, *found[0]) for form, found in WRONG.items())


@cache
def mutants(form: str) -> tuple[Mutant, ...]:
    """All changes of a form."""
    return tuple(all_mutants(FORMS[form]()))


def mutant(form: str, change: str) -> kir.Kernel:
    """A form with the first change that begins so."""
    return next(one.kernel for one in mutants(form) if one.fault.startswith(change))


@pytest.mark.parametrize("form", FORMS)
def test_a_right_form_is_proved(form: str) -> None:
    """All invariants that have a subject, and one of them has."""
    assert set(answers(FORMS[form]()).values()) == {"proved"}


@pytest.mark.parametrize(("form", "invariant", "change"), CHANGES)
def test_a_wrong_one_is_not(form: str, invariant: str, change: str) -> None:
    """Each of them goes wrong in some launch."""
    assert answers(mutant(form, change))[invariant] != "proved"


@pytest.mark.parametrize(("form", "_", "change"), some(CHANGES, *FIRST))
def test_the_simulator_sees_it_too(form: str, _: str, change: str) -> None:
    """In a launch that it chooses itself."""
    assert simulate.search(mutant(form, change), schedules=6).status is Status.FAIL
