"""Which CTAs share a semaphore: those of a CTA group.

Notes
-----
Why one group stands for all where CTAs walk from tile to tile: the semaphore's index is then
`number + t * groups`, with t the index of a loop and `0 <= number < groups`.  So it is another
integer for every t and every number, and what one group does with its integers is its own business.
In the reading of a group each iteration of t has a semaphore of its own, which is 0 until somebody
releases it: that somebody passed the one before says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, eq, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import UnsupportedError, linear
from oracles.prover.reachability.program.code import FAMILY
from oracles.prover.sites import AMONG_CTAS, Site, fixed_grid, place_among

MANY = 20
"""CTAs of one group that are followed at once, where each smaller group is followed as well."""


@dataclass(frozen=True, slots=True)
class CtaGroup:
    """Which CTAs share a semaphore, by expressions over `BLOCK`.

    `number` and `place` are the group's and the CTA's in it, `count` how many it has, `others`
    what lies between two of it.  `index` is that of its semaphore: its number, or one further with
    each iteration of the loop `walk`.
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


def group_of(kernel: kir.Kernel) -> CtaGroup:
    """Return which CTAs share a semaphore.

    Raises
    ------
    UnsupportedError
        If that is not known.
    """
    grid = fixed_grid(kernel)
    moved = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let) and s.var not in moved}
    indices = {whole(s.index, lets) for s in kernel.walk() if isinstance(s, AMONG_CTAS)}
    if isinstance(grid, int) and grid <= MANY:
        return CtaGroup(0, kir.BLOCK, grid, consecutive=True, walk=_common(kernel, indices))
    found: list[CtaGroup | None] = []
    for stmt in kernel.walk():
        if isinstance(stmt, AMONG_CTAS):
            way = _way(kernel, whole(stmt.index, lets))
            if isinstance(stmt, kir.GridSync | kir.LastArriving):
                place = place_among(way.number, stmt.ctas)
            else:
                place = stmt.turn
            found.append(_group(kernel, way, whole(place, lets)))
    groups = {group for group in found if group is not None}
    if len(groups) != 1 or len(indices) != 1:
        raise UnsupportedError("nothing like BLOCK // P and BLOCK % P tells who shares a semaphore")
    return groups.pop()


def whole(expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
    """Put the values of lets in place."""
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


def _group(kernel: kir.Kernel, way: _Way, turn: Expr) -> CtaGroup | None:
    """Return the group that an index and a turn speak of."""
    number, walk = way.number, way.walk
    if not variables(way.index) & {kir.BLOCK, kir.GRID}:
        grid = fixed_grid(kernel)
        count = kir.GRID if grid is None else grid
        sure = walk is None or isinstance(way.stride, int)
        return CtaGroup(0, kir.BLOCK, count, consecutive=True, walk=walk) if sure else None
    for part in parts_of(turn):
        match part:
            case Op(Kind.MOD, kir.BLOCK, count) if Op(Kind.FLOORDIV, kir.BLOCK, count) == number:
                if _divides(kernel, count) and (
                    walk is None or way.stride in _deals(kernel, count)
                ):
                    return CtaGroup(number, part, count, True, index=way.index, walk=walk)
            case Op(Kind.FLOORDIV, kir.BLOCK, others) if Op(Kind.MOD, kir.BLOCK, others) == number:
                for count in _times(kernel, others):
                    if walk is None or way.stride == others:
                        return CtaGroup(number, part, count, False, others, way.index, walk)
            case _:
                pass
    return None


def _deals(kernel: kir.Kernel, count: Expr) -> list[Expr]:
    """Return what the number of groups of so many CTAs goes by."""
    known = list(_times(kernel, count))
    return [*known, kir.GRID // count] if eq(kir.GRID % count, 0) in kernel.requires else known


def parts_of(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all within it."""
    yield expr
    if isinstance(expr, Op):
        yield from parts_of(expr.a)
        yield from parts_of(expr.b)


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


def badly_joined(sites: Sequence[Site]) -> dict[int, str]:
    """Return why a statement does not join the threads of one role alone; empty where it does."""
    joins = kir.BlockSerializeWait | kir.GridSync | kir.LastArriving
    return {
        site.index: _badly_joined(site, sites) for site in sites if isinstance(site.stmt, joins)
    }


def _badly_joined(site: Site, sites: Sequence[Site]) -> str:
    says = ""
    if site.elected:
        says = f"`{line(site.stmt)}` is executed by all threads of a role only"
    barrier, role = getattr(site.stmt, "barrier", -1), (site.place.first, site.place.warps)
    for other in sites:
        if (other.place.first, other.place.warps) == role:
            continue
        match other.stmt:
            case (
                kir.BlockSync(number)
                | kir.NamedArrive(number)
                | kir.BlockSerializeWait(barrier=number)
                | kir.GridSync(barrier=number)
                | kir.LastArriving(barrier=number)
            ) if number == barrier:
                says = f"its threads join by barrier {barrier}, which {other.where} uses, too"
            case kir.GridSync() | kir.LastArriving() if type(other.stmt) is type(site.stmt):
                says = f"one role of each CTA meets, and {other.where} is another's"
            case _:
                pass
    return says
