"""What counts are compared with: the comparisons of each program, and from where they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fuser.expr import Expr, Kind, Op, Var, variables
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.program.code import (
    AtLeast,
    Branch,
    Code,
    Condition,
    Enter,
    Instruction,
    Set,
    Several,
)

TRIED = 4096
"""Values of a bound that are looked at to find the largest."""


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison of a count, and from where in its program it may still be made.

    Parameters
    ----------
    last, inner : int
        Last place from which it may be made at all; without another round of the loops of unknown
        length around it.
    test : AtLeast
        The comparison.
    names : frozenset of str
        The variables in it that go on and on; then `most` means nothing.
    most : int
        The largest number that it compares with.
    rises : bool
        Whether its answer can only get from yes to no.
    """

    last: int
    inner: int
    test: AtLeast
    names: frozenset[str]
    most: int = 0
    rises: bool = False


def comparisons(code: Code, index: int) -> Iterator[Against]:
    """Yield the comparisons of a program with something else than the counter of the loop."""
    program = code.programs[index]
    loops = [(at, i) for at, i in enumerate(program) if isinstance(i, Enter)]
    counters = frozenset(i.name for _, i in loops)
    numbered = numbers(code)
    for at, i in enumerate(program):
        if not isinstance(i, Branch | Enter):
            continue
        branch = isinstance(i, Branch)
        used = variables(i.expr) if isinstance(i, Branch) else variables(i.stop)
        names = frozenset(v.name for v in used) & code.moving
        if not (names or branch):
            continue
        last = max((at, *(enter.end - 1 for start, enter in loops if start <= at < enter.end)))
        values = _values(names, numbered) if branch else None
        rises = isinstance(i, Branch) and _rises(i.expr, code.moving & counters)
        for test in _parts(i.test):
            _, inner = within(program, at, test.atom)
            inner = max(inner, last) if isinstance(i, Enter) else inner
            if values is None:
                yield Against(last, inner, test, names, rises=rises)
            else:
                yield Against(last, inner, test, frozenset(), max(map(test.bound, values)))


def within(program: Sequence[Instruction], at: int, atom: int) -> tuple[int, int]:
    """Return the last places from which a program may come to an instruction about a count.

    The first is the last of all; the second is the last without a new round of the loops of unknown
    length around it that tell one use of the count from the next.
    """
    around = [i for start, i in enumerate(program) if isinstance(i, Enter) and start < at < i.end]
    last = max((at, *(enter.end - 1 for enter in around)))
    own = next((n for n, enter in enumerate(around) if enter.atom == atom), len(around))
    telling = [n for n in range(own) if around[n].atom >= 0]
    # a loop of known length around them may enter them once more, and count the same rounds
    if not telling or len(telling) != telling[-1] + 1:
        return last, last
    return last, max((at, *(enter.end - 1 for enter in around[telling[-1] + 1 :])))


def numbers(code: Code) -> dict[str, int]:
    """Return the counters that only ever count to a number, with the largest one."""
    out: dict[str, int] = {}
    others: set[str] = set()
    for i in (i for program in code.programs for i in program):
        match i:
            case Enter(_, name, int() as stop):
                out[name] = max(out.get(name, 0), stop)
            case Enter(_, name) | Set(name):
                others.add(name)
            case _:
                pass
    return {name: stop for name, stop in out.items() if name not in others}


def _values(names: frozenset[str], numbered: Mapping[str, int]) -> list[dict[str, int]] | None:
    """Return all values of counters that count to a number; None if some do not, or too many."""
    ordered = sorted(names)
    if not all(name in numbered for name in ordered):
        return None
    if prod(numbered[name] + 1 for name in ordered) > TRIED:
        return None
    # a counter is at its end once, when the loop is left
    spans = [range(numbered[name] + 1) for name in ordered]
    return [dict(zip(ordered, one, strict=True)) for one in product(*spans)]


def _rises(expr: Expr, counters: frozenset[str]) -> bool:
    """Whether a comparison of a count with counters of loops can only get from yes to no."""
    if not isinstance(expr, Op) or expr.kind not in (Kind.LT, Kind.LE):
        return False
    _, parts = linear(expr.a - expr.b)
    mine = {e for e in parts if isinstance(e, Var) and e.name in counters}
    signs = {parts[e] > 0 for e in mine}, {n < 0 for e, n in parts.items() if e not in mine}
    return len(parts) == len(mine) + 1 and signs == ({True}, {True})


def _parts(test: Condition) -> Iterator[AtLeast]:
    match test:
        case AtLeast():
            yield test
        case Several(first, second):
            yield from _parts(first)
            yield from _parts(second)
        case _:
            pass
