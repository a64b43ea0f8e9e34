"""Which CTAs share a semaphore, and in how many ways that can be: the readings of a kernel.

A *family* is the CTAs that share one semaphore.  A kernel is read once for each small size of a
family, with all its CTAs at once, each going round loops in which CTAs do not meet as few times as
there is.  And it is read with one CTA alone, for every trip count, with every turn at hand; what is
wrong there for a place that is not told is asked again for each (`single`).

Notes
-----
Why a few sizes are enough: a CTA knows its place only by comparing it with numbers, so that beyond
the largest of these (`largest`) those in the middle do the same.  What the CTA of one turn leaves
to the next but one goes through the turn between them, in families of every larger size as in the
largest that is read.

Why few trips are enough in a loop in which CTAs do not meet: an iteration orders more, and issues
bulk groups that later ones count from; nothing that the loop does is any other CTA's business.
That holds as well where the loop stands inside one in which they do, of which all trip counts are
followed: there each of its rounds may be longer than the one that is followed.

Why one family stands for all where CTAs walk from tile to tile: the semaphore's index is then
`number + t * families`, with t the index of a loop and `0 <= number < families`.  So it is another
integer for every t and every number, and what one family does with its integers is its own
business.  In the reading of a family each turn of t has a semaphore of its own, which is 0 until
somebody releases it (`closure_walk`): that somebody passed the one before says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, eq, substitute, variables
from oracles.arithmetic import UnsupportedError, replace_tree
from oracles.closure_code import FAMILY, Code, Do, Enter
from oracles.closure_controls import controls
from oracles.closure_linear import linear
from oracles.preconditions import fixed_grid
from oracles.sites import touches

_PLACE = Var("place")
MANY = 20
"""CTAs of one family that are followed at once, where each smaller family is followed as well."""
TOLD = 64
"""The same where the kernel says how many there are."""
_TURN = kir.BlockSerializeWait | kir.BlockSerializeRelease | kir.GridSync


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known in one reading: of each CTA that is followed, its place in a family of `many`.

    `together` says that they are the whole family, and take their turns.
    """

    fixed: tuple[Mapping[Expr, Expr], ...]
    many: int = 1
    together: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Which CTAs share a semaphore, by expressions over `BLOCK`.

    `number` and `place` are the family's and the CTA's in it, `count` how many it has, `others`
    what lies between two of it.  `index` is that of its semaphore: its number, or one further with
    each turn of the loop `walk`.
    """

    number: Expr
    place: Expr
    count: Expr
    consecutive: bool
    others: Expr = 1
    index: Expr = 0
    walk: Var | None = None

    def fixed(self, place: int, many: int, equal: tuple[Expr, ...]) -> Mapping[Expr, Expr]:
        """Return what is known of one CTA; `equal` is what is as much as `count`."""
        known: dict[Expr, Expr] = {self.place: place}
        if self.number == 0:
            known[kir.BLOCK] = place
        elif self.consecutive:
            known |= {self.number: FAMILY, kir.BLOCK: FAMILY * many + place}
        else:
            known |= {self.number: FAMILY, kir.BLOCK: FAMILY + place * self.others}
        known |= {e: many for e in (self.count, *equal) if not isinstance(e, int)}
        return known


def readings(kernel: kir.Kernel) -> Iterator[Reading]:
    """Yield the readings that together stand for all CTAs.

    Raises
    ------
    UnsupportedError
        If it is not known which CTAs share a semaphore.
    """
    if not any(isinstance(s, _TURN) for s in kernel.walk()):
        yield Reading(({},) * kernel.cluster)
        return
    if kernel.cluster > 1:
        raise UnsupportedError("turns of the CTAs of a cluster are not followed")
    family = family_of(kernel)
    equal: tuple[Expr, ...] = ()
    if family.number == 0:
        grid = fixed_grid(kernel)
        equal = (kir.GRID,) if grid is None or isinstance(grid, int) else (kir.GRID, grid)
    sizes: list[int] = list(range(1, largest(kernel, family) + 1))
    most = MANY
    if isinstance(family.count, int):
        sizes, most = [family.count], TOLD
    if sizes[-1] > most:
        raise UnsupportedError(f"{sizes[-1]} CTAs share a semaphore, at most {most} are followed")
    together = [
        Reading(tuple(family.fixed(n, many, equal) for n in range(many)), many, together=True)
        for many in sizes
    ]
    yield from together
    if any(isinstance(s, kir.GridSync) for s in kernel.walk()):
        # What CTAs do that meet depends on their place throughout: untold, it shows nothing.
        yield from _each_place(together)
    else:
        yield Reading(({},))


def single(kernel: kir.Kernel) -> Iterator[Reading]:
    """Yield a reading of one CTA for each of its places, to see what one with none shows."""
    yield from _each_place(reading for reading in readings(kernel) if reading.together)


def _each_place(together: Iterable[Reading]) -> Iterator[Reading]:
    for reading in together:
        for fixed in reading.fixed:
            yield Reading((fixed,), reading.many)


def family_of(kernel: kir.Kernel) -> Family:
    """Return which CTAs share a semaphore.

    Raises
    ------
    UnsupportedError
        If that is not known.
    """
    grid = fixed_grid(kernel)
    moved = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let) and s.var not in moved}
    indices = {_whole(s.index, lets) for s in kernel.walk() if isinstance(s, _TURN)}
    if isinstance(grid, int) and grid <= MANY:
        return Family(0, kir.BLOCK, grid, consecutive=True, walk=_common(kernel, indices))
    found: list[Family | None] = []
    for stmt in kernel.walk():
        if isinstance(stmt, _TURN):
            way = _way(kernel, _whole(stmt.index, lets))
            place = _met(way.number, stmt) if isinstance(stmt, kir.GridSync) else stmt.turn
            found.append(_family(kernel, way, _whole(place, lets)))
    families = {family for family in found if family is not None}
    if len(families) != 1 or len(indices) != 1:
        raise UnsupportedError("nothing like BLOCK // P and BLOCK % P tells who shares a semaphore")
    return families.pop()


def _met(index: Expr, stmt: kir.GridSync) -> Expr:
    """Return the place of a CTA among those that it meets."""
    match index:
        case Op(Kind.MOD, kir.BLOCK, others):
            return kir.BLOCK // others
        case _:
            return kir.BLOCK % stmt.ctas


def _whole(expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
    while True:
        found = substitute(expr, lets)
        if found == expr:
            return expr
        expr = found


@dataclass(frozen=True, slots=True)
class _Way:
    """An index `number + walk * stride`; without a walk it stands."""

    index: Expr
    number: Expr
    walk: Var | None = None
    stride: Expr = 0


def _way(kernel: kir.Kernel, index: Expr) -> _Way:
    """Return how an index goes on along a loop.

    Raises
    ------
    UnsupportedError
        If it does so in another way than by equal steps.
    """
    constants = {kir.BLOCK, kir.GRID, *kernel.params}
    if variables(index) <= constants:
        return _Way(index, index)
    loops = {s.index for s in kernel.walk() if isinstance(s, kir.ForLoop)}
    loops -= {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    constant, parts = linear(index)
    moving = [atom for atom in parts if not variables(atom) <= constants]
    number: Expr = constant
    for atom, times in parts.items():
        number = number + times * atom if atom not in moving else number
    match moving:
        case [Var() as walk] if walk in loops and parts[walk] > 0:
            return _Way(index, number, walk, parts[walk])
        case [Op(Kind.MUL, Var() as walk, stride) as atom] if walk in loops and parts[atom] == 1:
            if variables(stride) <= constants - {kir.BLOCK}:
                return _Way(index, number, walk, stride)
        case _:
            pass
    raise UnsupportedError(f"nothing tells that `{index}` is another integer in every turn")


def _common(kernel: kir.Kernel, indices: set[Expr]) -> Var | None:
    """Return the loop along which all CTAs of a launch go from one integer to the next."""
    try:
        ways = [_way(kernel, index) for index in indices]
    except UnsupportedError:
        return None
    alike = len(ways) == 1 and not variables(ways[0].number) and isinstance(ways[0].stride, int)
    return ways[0].walk if alike else None


def _family(kernel: kir.Kernel, way: _Way, turn: Expr) -> Family | None:
    """Return the family that an index and a turn speak of."""
    number, walk = way.number, way.walk
    if not variables(way.index) & {kir.BLOCK, kir.GRID}:
        grid = fixed_grid(kernel)
        count = kir.GRID if grid is None else grid
        told = walk is None or isinstance(way.stride, int)
        return Family(0, kir.BLOCK, count, consecutive=True, walk=walk) if told else None
    for part in _parts(turn):
        match part:
            case Op(Kind.MOD, kir.BLOCK, count) if Op(Kind.FLOORDIV, kir.BLOCK, count) == number:
                if _divides(kernel, count) and (
                    walk is None or way.stride in _deals(kernel, count)
                ):
                    return Family(number, part, count, True, index=way.index, walk=walk)
            case Op(Kind.FLOORDIV, kir.BLOCK, others) if Op(Kind.MOD, kir.BLOCK, others) == number:
                for count in _times(kernel, others):
                    if walk is None or way.stride == others:
                        return Family(number, part, count, False, others, way.index, walk)
            case _:
                pass
    return None


def _deals(kernel: kir.Kernel, count: Expr) -> list[Expr]:
    """Return what the number of families of so many CTAs goes by."""
    known = list(_times(kernel, count))
    return [*known, kir.GRID // count] if eq(kir.GRID % count, 0) in kernel.requires else known


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    if isinstance(expr, Op):
        yield from _parts(expr.a)
        yield from _parts(expr.b)


def _times(kernel: kir.Kernel, factor: Expr) -> Iterator[Expr]:
    """Yield what `GRID` is, divided by a factor."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)) if factor in (a, b):
                yield b if factor == a else a
            case _:
                pass


def _divides(kernel: kir.Kernel, count: Expr) -> bool:
    return any(True for _ in _times(kernel, count)) or eq(kir.GRID % count, 0) in kernel.requires


def largest(kernel: kir.Kernel, family: Family) -> int:
    """Return the size of a family beyond which nothing new can be seen.

    The first, the last and two in the middle, beyond every number that a place is compared with.
    """
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
    numbers = [1]
    for stmt in kernel.walk():
        match stmt:
            case kir.IfThenElse(test):
                tests = [_whole(test, lets)]
            case kir.BlockSerializeWait(_, _, turn) | kir.BlockSerializeRelease(_, _, turn):
                tests = [_whole(turn, lets)]
            case kir.GridSync(_, _, ctas):
                tests = [_whole(ctas, lets)]
            case kir.ForLoop(_, stop):
                tests = [_whole(stop, lets)]
                numbers += [stop] if isinstance(stop, int) and _is_compared(stmt, lets) else []
            case _:
                box = touches(stmt)
                tests = [_whole(expr, lets) for expr in controls(stmt).values()]
                for origin in box.origin if box is not None else ():
                    numbers += _apart(_whole(origin, lets), family)
        while tests:
            asked = tests.pop()
            if isinstance(asked, Op) and asked.kind in (Kind.AND, Kind.MIN, Kind.MAX):
                tests += [asked.a, asked.b]
            else:
                numbers += _compared(asked, family)
    return max(numbers) + 3


def _is_compared(loop: kir.ForLoop, lets: Mapping[Var, Expr]) -> bool:
    """Whether a branch compares a loop's index with something that CTAs have each their own of."""
    found = (s.condition for s in kir.walk(loop.body) if isinstance(s, kir.IfThenElse))
    tests = [variables(_whole(test, lets)) for test in found]
    return any(loop.index in names and kir.BLOCK in names for names in tests)


def _compared(expr: Expr, family: Family) -> list[int]:
    """Return the numbers of an expression that has nothing but a CTA's place in it."""
    if isinstance(expr, Op) and expr.kind in (Kind.LT, Kind.LE, Kind.EQ):
        expr = expr.a - expr.b
    constant, parts = linear(_of_place(expr, family))
    own = variables(family.count) | {kir.GRID, _PLACE}
    if family.consecutive:
        own |= variables(family.place) | {FAMILY}
    if not parts or not all(variables(atom) <= own for atom in parts):
        return []
    return [abs(constant), *_inside(parts)]


def _apart(origin: Expr, family: Family) -> list[int]:
    """Return how many places further a box lies than one that begins where a CTA's place says."""
    try:
        constant, parts = linear(_of_place(origin, family))
    except UnsupportedError:
        return []  # of this CTA alone
    own = variables(family.count) | {kir.GRID, kir.BLOCK, _PLACE}
    found = {atom: n for atom, n in parts.items() if n and variables(atom) & {kir.BLOCK, _PLACE}}
    if not found or not all(variables(atom) <= own for atom in found):
        return []
    step = min(abs(n) for n in found.values())
    return [-(-abs(constant) // step), *_inside(found)]


def _of_place(expr: Expr, family: Family) -> Expr:
    """Write an expression over a CTA's place and the number of its family."""
    expr = replace_tree(expr, family.place, _PLACE)
    expr = replace_tree(expr, family.number, FAMILY) if family.number != 0 else expr
    if not family.consecutive and kir.BLOCK in variables(expr):
        raise UnsupportedError(f"{expr} tells the place of a CTA in a way of its own")
    return expr


def _inside(atoms: Iterable[Expr]) -> list[int]:
    return [n for atom in atoms for n in _parts(atom) if isinstance(n, int)]


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
