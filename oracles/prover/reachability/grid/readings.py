"""In how many ways CTAs can share a semaphore: the readings of a kernel.

A *CTA group* is the CTAs that share one semaphore.  A kernel is read once for each small size of a
group, with all its CTAs at once, each going round loops in which CTAs do not meet as few times as
there is.  And it is read with one CTA alone, for every trip count, with every turn at hand; what is
wrong there for a place that is not known is asked again for each (`single`).

Notes
-----
Why a few sizes are enough: a CTA knows its place only by comparing it with numbers, so that beyond
the largest of these (`largest`) those in the middle do the same.  What the CTA of one turn leaves
to the next but one goes through the turn between them, in groups of every larger size as in the
largest that is read.

Why few trips are enough in a loop in which CTAs do not meet: an iteration orders more, and issues
bulk groups that later ones count from; nothing that the loop does is any other CTA's business.
That holds as well where the loop stands inside one in which they do, of which all trip counts are
followed: there each of its rounds may be longer than the one that is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, linear, replace_tree
from oracles.prover.reachability.grid.groups import MANY, CtaGroup, group_of, parts_of, whole
from oracles.prover.reachability.program.code import FAMILY, Code, Do, Enter
from oracles.prover.sites import AMONG_CTAS, controls, fixed_grid, outcomes, touches

_PLACE = Var("place")
GIVEN = 64
"""CTAs of a group that are followed at once where the kernel says how many there are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known in one reading: of each CTA that is followed, its place in a group of `many`.

    `together` says that they are the whole group, and take their turns.
    """

    fixed: tuple[Mapping[Expr, Expr], ...]
    many: int = 1
    together: bool = False


def readings(kernel: kir.Kernel) -> Iterator[Reading]:
    """Yield the readings that together stand for all CTAs.

    Raises
    ------
    UnsupportedError
        If it is not known which CTAs share a semaphore.
    """
    if not any(isinstance(s, AMONG_CTAS) for s in kernel.walk()):
        yield Reading(({},) * kernel.cluster)
        return
    if kernel.cluster > 1:
        raise UnsupportedError("turns of the CTAs of a cluster are not followed")
    if any(isinstance(s, kir.LastArriving) for s in _in_loops(kernel)):
        raise UnsupportedError("an election in a loop, each time of another CTA, is not followed")
    group = group_of(kernel)
    equal: tuple[Expr, ...] = ()
    if group.number == 0:
        grid = fixed_grid(kernel)
        equal = (kir.GRID,) if grid is None or isinstance(grid, int) else (kir.GRID, grid)
    sizes: list[int] = list(range(1, largest(kernel, group) + 1))
    most = MANY
    if isinstance(group.count, int):
        sizes, most = [group.count], GIVEN
    if sizes[-1] > most:
        raise UnsupportedError(f"{sizes[-1]} CTAs share a semaphore, at most {most} are followed")
    together = [
        Reading(
            tuple(
                {**group.fixed(n, many, equal), **_elected(kernel, elected, n)} for n in range(many)
            ),
            many,
            together=True,
        )
        for many in sizes
        for elected in product(_lasts(kernel, group, many), repeat=len(outcomes(kernel)))
    ]
    yield from together
    if any(isinstance(s, kir.GridSync) for s in kernel.walk()):
        # What CTAs do that meet depends on their place throughout: unknown, it shows nothing.
        yield from _each_place(together)
    else:
        yield Reading(({},))


def _in_loops(kernel: kir.Kernel) -> Iterator[kir.Stmt]:
    """Yield all that may be executed several times."""
    for stmt in kernel.walk():
        if isinstance(stmt, kir.ForLoop):
            yield from kir.walk(stmt.body)


def _lasts(kernel: kir.Kernel, group: CtaGroup, many: int) -> list[int]:
    """Return the places of the CTAs that are followed as the last one to come.

    Those up to the largest number that a condition compares a place with, the first two at least,
    and the last place.  Any other CTA does the same as one of them, and stands to all others as it
    does: they do not wait for it, and it knows the same of each.  What it reads of one of them
    another last CTA reads of it, too, or of as far a neighbour; what is its own it knows better.
    """
    return sorted({*range(min(max(_numbers(kernel, group)) + 1, many)), many - 1})


def _elected(kernel: kir.Kernel, elected: tuple[int, ...], place: int) -> Mapping[Expr, Expr]:
    """Say whether a CTA is the last one, in each election."""
    return {var: int(last == place) for var, last in zip(outcomes(kernel), elected, strict=True)}


def single(kernel: kir.Kernel) -> Iterator[Reading]:
    """Yield a reading of one CTA for each of its places, to see what one with none shows."""
    yield from _each_place(reading for reading in readings(kernel) if reading.together)


def _each_place(together: Iterable[Reading]) -> Iterator[Reading]:
    for reading in together:
        for fixed in reading.fixed:
            yield Reading((fixed,), reading.many)


def largest(kernel: kir.Kernel, group: CtaGroup) -> int:
    """Return the size of a group beyond which nothing new can be seen.

    The first, the last and two in the middle, beyond every number that a place is compared with.
    """
    return max(*_numbers(kernel, group), *_apart(kernel, group)) + 3


def _numbers(kernel: kir.Kernel, group: CtaGroup) -> list[int]:
    """Return the numbers that conditions compare a place with, 1 at least."""
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
    numbers = [1]
    for stmt in kernel.walk():
        match stmt:
            case kir.IfThenElse(test):
                tests = [whole(test, lets)]
            case kir.BlockSerializeWait(_, _, turn) | kir.BlockSerializeRelease(_, _, turn):
                tests = [whole(turn, lets)]
            case kir.GridSync(_, _, ctas) | kir.LastArriving(_, _, ctas):
                tests = [whole(ctas, lets)]
            case kir.ForLoop(_, stop):
                tests = [whole(stop, lets)]
                numbers += [stop] if isinstance(stop, int) and _is_compared(stmt, lets) else []
            case _:
                tests = [whole(expr, lets) for expr in controls(stmt).values()]
        while tests:
            asked = tests.pop()
            if isinstance(asked, Op) and asked.kind in (Kind.AND, Kind.MIN, Kind.MAX):
                tests += [asked.a, asked.b]
            else:
                numbers += _compared(asked, group)
    return numbers


def _is_compared(loop: kir.ForLoop, lets: Mapping[Var, Expr]) -> bool:
    """Whether a branch compares a loop's index with something that CTAs have each their own of."""
    found = (s.condition for s in kir.walk(loop.body) if isinstance(s, kir.IfThenElse))
    tests = [variables(whole(test, lets)) for test in found]
    return any(loop.index in names and kir.BLOCK in names for names in tests)


def _compared(expr: Expr, group: CtaGroup) -> list[int]:
    """Return the numbers of an expression that has nothing but a CTA's place in it."""
    if isinstance(expr, Op) and expr.kind in (Kind.LT, Kind.LE, Kind.EQ):
        expr = expr.a - expr.b
    constant, parts = linear(_of_place(expr, group))
    own = variables(group.count) | {kir.GRID, _PLACE}
    if group.consecutive:
        own |= variables(group.place) | {FAMILY}
    if not parts or not all(variables(atom) <= own for atom in parts):
        return []
    return [abs(constant), *_inside(parts)]


def _apart(kernel: kir.Kernel, group: CtaGroup) -> Iterator[int]:
    """Yield how many places further boxes lie than those that begin where a CTA's place says.

    A box that lies at a number of its own is in the place of one CTA, whoever accesses it.
    """
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
    stops = {s.index: s.stop for s in kernel.walk() if isinstance(s, kir.ForLoop)}
    yield 0
    steps: dict[tuple[str, int], int] = {}
    reach: list[tuple[tuple[str, int], int]] = []
    for box in filter(None, map(touches, kernel.walk())):
        for axis, origin in enumerate(box.origin):
            try:
                constant, parts = linear(_of_place(whole(origin, lets), group))
            except UnsupportedError:
                continue  # of this CTA alone
            own = variables(group.count) | {kir.GRID, kir.BLOCK, _PLACE}
            found = {a: n for a, n in parts.items() if n and variables(a) & {kir.BLOCK, _PLACE}}
            if not all(variables(atom) <= own for atom in found):
                continue
            where = box.tensor.name, axis
            ends = ((stops.get(a), n) for a, n in parts.items() if isinstance(a, Var))
            further = sum(abs(n) * end for end, n in ends if isinstance(end, int))
            reach.append((where, abs(constant) + further))
            if found:
                step = min(abs(n) for n in found.values())
                steps[where] = min(step, steps.get(where, step))
                yield from _inside(found)
    yield from (-(-far // steps[where]) for where, far in reach if where in steps)


def _of_place(expr: Expr, group: CtaGroup) -> Expr:
    """Write an expression over a CTA's place and the number of its group."""
    expr = replace_tree(expr, group.place, _PLACE)
    expr = replace_tree(expr, group.number, FAMILY) if group.number != 0 else expr
    if not group.consecutive and kir.BLOCK in variables(expr):
        raise UnsupportedError(f"{expr} tells the place of a CTA in a way of its own")
    return expr


def _inside(atoms: Iterable[Expr]) -> list[int]:
    return [n for atom in atoms for n in parts_of(atom) if isinstance(n, int)]


def private(code: Code) -> frozenset[int]:
    """Return the trip counts of loops in which CTAs do not meet."""
    met: set[int] = set()
    for program in code.programs:
        for at, i in enumerate(program):
            if isinstance(i, Enter) and i.atom >= 0:
                inside = [j for j in program[at : i.end] if isinstance(j, Do)]
                if any(j.origin or j.index is not None for j in inside):
                    met.add(i.atom)
    return code.counts - met
