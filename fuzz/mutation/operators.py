"""Kernels with one change for the worse: what the judges must notice.

The operators follow the root causes of bugs that real compilers had; order bugs (the right
instructions in the wrong order) are as common as omissions.  A mutant may be harmless, or even
equivalent: telling is what judges are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.mutation.hazards import aimed, traits
from fuzz.mutation.number import count, index, phase, stages, trip
from fuzz.mutation.order import drop, hoist, move, swap, twice
from fuzz.mutation.site import Mutant as Mutant
from fuzz.mutation.site import closed
from fuzz.mutation.weak import predicate, proxy, weaken
from fuzz.mutation.who import alias, no_reset, promise, role

OPERATORS: dict[str, Callable[[kir.Kernel], Iterator[Mutant]]] = {
    "drop": drop,
    "twice": twice,
    "swap": swap,
    "move": move,
    "weaken": weaken,
    "predicate": predicate,
    "count": count,
    "phase": phase,
    "index": index,
    "alias": alias,
    "role": role,
    "proxy": proxy,
    "no_reset": no_reset,
    "promise": promise,
    "hoist": hoist,
    "trip": trip,
    "stages": stages,
}
"""Every operator; each yields candidates, of which `mutants` keeps those that are kernels."""

SYNC_OPERATORS = ("drop", "swap", "weaken")
"""Those that leave one sync out, exchange it with its neighbour, or let it do less."""


def mutants(kernel: kir.Kernel, operator: str) -> Iterator[Mutant]:
    """Yield the mutants of one operator: each another kernel, none of them twice.

    What uses a variable outside its scope is no kernel and left out; what a validator would refuse
    for another reason (a barrier inside an election) is a mutant.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    operator : str
        A key of `OPERATORS`.
    """
    seen, has = {text(kernel)}, traits(kernel)
    for mutant in OPERATORS[operator](kernel):
        if closed(mutant.kernel) and (words := text(mutant.kernel)) not in seen:
            seen.add(words)
            yield replace(mutant, hazards=aimed(mutant, has))


def all_mutants(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield the mutants of every operator; a kernel that two operators make counts once."""
    seen: set[str] = set()
    for operator in OPERATORS:
        for mutant in mutants(kernel, operator):
            if (words := text(mutant.kernel)) not in seen:
                seen.add(words)
                yield mutant


def drop_each_sync(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield one mutant per sync statement, with that statement left out."""
    return drop(kernel)
