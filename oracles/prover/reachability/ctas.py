"""Several CTAs: who shares a semaphore, in how many readings they are followed, and what is apart.

A *CTA group* is the CTAs that share one semaphore.  A kernel is read once for each small size of a
group, with all its CTAs at once, each going round loops in which CTAs do not meet as few times as
there is.  And it is read with one CTA alone, for every trip count, with every turn at hand; what is
wrong there for a place that is not known is asked again for each (`single`).  CTAs of different
groups are ordered by nothing, so it is asked whether their boxes can overlap (`apart`): small
launches are tried one by one, and a proof is sought for all of them.

Notes
-----
Why one group stands for all where CTAs walk from tile to tile: the semaphore's index is then
`number + t * groups`, with t the index of a loop and `0 <= number < groups`.  So it is another
integer for every t and every number, and what one group does with its integers is its own business.
In the reading of a group each iteration of t has a semaphore of its own, which is 0 until somebody
releases it: that somebody passed the one before says nothing of it.

Why a few sizes are enough: see `sizes`.  A kernel that bounds the number of its CTAs is read in
every size that it allows.

Why few trips are enough in a loop in which CTAs do not meet: an iteration orders more, and issues
bulk groups that later ones count from; nothing that the loop does is any other CTA's business.
That holds as well where the loop stands inside one in which they do, of which all trip counts are
followed: there each of its rounds may be longer than the one that is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, islice, product

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover import launches, sites
from oracles.prover.arithmetic import (
    Poly,
    UnsupportedError,
    Values,
    function,
    linear,
    parts_of,
    poly,
    replace_tree,
    tree,
)
from oracles.prover.coverage import outputs
from oracles.prover.reachability.code import (
    CLUSTER,
    GROUP,
    Branch,
    Code,
    Do,
    Enter,
    Instruction,
    Jump,
    Set,
    comparisons_of,
)
from oracles.prover.reachability.rules import Findings, Rule, Violation
from oracles.prover.reachability.sizes import COUNT, PLACE, Sizes, seen
from oracles.prover.sites import (
    AMONG_CTAS,
    Site,
    adds,
    fixed_grid,
    outcomes,
    place_among,
    touches,
)
from oracles.prover.solver import Known

MANY = 24
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

    def fixed(self, place: int, many: int) -> Mapping[Expr, Expr]:
        """Return what is known of one CTA of `many`."""
        known: dict[Expr, Expr] = {self.place: place}
        if self.number == 0:
            known |= {kir.BLOCK: place, kir.GRID: many}
        elif self.consecutive:
            known |= {self.number: GROUP, kir.BLOCK: GROUP * many + place}
        else:
            known |= {self.number: GROUP, kir.BLOCK: GROUP + place * self.others}
        return known if isinstance(self.count, int) else {**known, self.count: many}


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
    """Return the loop along which all CTAs of a launch go from one integer to the next.

    Loops of known lengths are none: there each integer is known by its number.
    """
    try:
        ways = [_way(kernel, index) for index in indices]
    except UnsupportedError:
        return None
    alike = len(ways) == 1 and not variables(ways[0].number) and isinstance(ways[0].stride, int)
    walk = ways[0].walk if alike else None
    loops = [s.stop for s in kernel.walk() if isinstance(s, kir.ForLoop) and s.index == walk]
    return None if all(isinstance(stop, int) for stop in loops) else walk


def _group(kernel: kir.Kernel, way: _Way, turn: Expr) -> CtaGroup | None:
    """Return the group that an index and a turn imply."""
    number, walk = way.number, way.walk
    if not variables(way.index) & {kir.BLOCK, kir.GRID}:
        grid = fixed_grid(kernel)
        count = kir.GRID if grid is None else grid
        sure = walk is None or isinstance(way.stride, int)
        return CtaGroup(0, kir.BLOCK, count, consecutive=True, walk=walk) if sure else None
    for part in parts_of(turn):
        match part:
            case Op(Kind.MOD, kir.BLOCK, count) if Op(Kind.FLOORDIV, kir.BLOCK, count) == number:
                deals = _deals(kernel, count)
                if way.stride in deals if walk is not None else deals:
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


def _times(kernel: kir.Kernel, factor: Expr) -> Iterator[Expr]:
    """Yield what `GRID` is, divided by a factor."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)) if factor in (a, b):
                yield b if factor == a else a
            case _:
                pass


def badly_joined(site: Site, sites: Sequence[Site]) -> str:
    """Return why a statement does not join the threads of one role alone; empty where it does."""
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
            case kir.GridSync(one) | kir.LastArriving(one) if (
                type(other.stmt) is type(site.stmt) and one == site.stmt.semaphore
            ):
                says = f"one role of each CTA meets, and {other.where} is another's"
            case _:
                pass
    return says


# --- in how many readings a kernel is followed ----------------------------------------------------


GIVEN = 64
"""CTAs of a group that are followed at once where the kernel says how many there are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known in one reading: of each CTA that is followed, its place in a group of `many`.

    `together` says that they are the whole group, and take their turns; `facts` are sums that are
    at least 0 in any launch.
    """

    fixed: tuple[Mapping[Expr, Expr], ...]
    many: int = 1
    together: bool = False
    facts: tuple[Expr, ...] = ()


class SizesError(UnsupportedError):
    """It is not known which sizes of a group are enough, or these are too many."""


def readings(kernel: kir.Kernel, sizes: Sequence[int] = ()) -> Iterator[Reading]:
    """Yield the readings that together stand for all CTAs; `sizes` of a group, if they are known.

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
    repeated = (
        s for one in kernel.walk() if isinstance(one, kir.ForLoop) for s in kir.walk(one.body)
    )
    if any(isinstance(s, kir.LastArriving) for s in repeated):
        raise UnsupportedError("an election in a loop, each time of another CTA, is not followed")
    group = group_of(kernel)
    elections = outcomes(kernel)
    special = _unlike(kernel, group) if elections else (0, 0)
    together = []
    for many in sizes or _sizes(kernel, group):
        for lasts in product(_lasts(*special, many), repeat=len(elections)):
            chosen = tuple(zip(elections, lasts, strict=True))
            known = (
                {**group.fixed(n, many), **{var: int(last == n) for var, last in chosen}}
                for n in range(many)
            )
            together.append(Reading(tuple(known), many, together=True))
    yield from together
    if any(isinstance(s, kir.GridSync) for s in kernel.walk()):
        # What CTAs do that meet depends on their place throughout: unknown, it shows nothing.
        yield from _each_place(together)
    else:
        yield Reading(({},), facts=(group.count - group.place - 1,))


def crews(
    kernel: kir.Kernel, known: Mapping[Expr, Expr], grid: int
) -> Iterator[tuple[Mapping[Expr, Expr], ...]]:
    """Yield the CTAs of a launch that are followed at once, with what is known of each.

    These are a cluster, or all that share a semaphore, with each of them as the last-arriving one.
    """
    if not any(isinstance(s, AMONG_CTAS) for s in kernel.walk()):
        counted = CLUSTER if kernel.cluster > 1 else kir.BLOCK
        for n in range(grid // kernel.cluster):
            yield ({**known, counted: n},) * kernel.cluster
        return
    number, elections = group_of(kernel).number, outcomes(kernel)
    groups: dict[Expr, list[Mapping[Expr, Expr]]] = {}
    for block in range(grid):
        mine = {**known, kir.BLOCK: block}
        values = {v: n for v, n in mine.items() if isinstance(v, Var)}
        groups.setdefault(substitute(number, values), []).append(mine)
    for crew in groups.values():
        for lasts in product(range(len(crew)), repeat=len(elections)):
            yield tuple(
                {**one, **{var: int(last == n) for var, last in zip(elections, lasts, strict=True)}}
                for n, one in enumerate(crew)
            )


def _lasts(first: int, last: int, many: int) -> list[int]:
    """Return the places of the CTAs that are followed as the last-arriving one.

    Those that differ, with a period of the others.  Any other CTA does the same as one of them, and
    stands to all others as it does: they do not wait for it, and it knows the same of each.  What
    it reads of one of them another last CTA reads of it, too, or of as far a neighbour; what is its
    own it knows better.
    """
    return sorted({*range(min(first, many)), *range(max(many - last, 0), many)})


def single(kernel: kir.Kernel, sizes: Sequence[int] = ()) -> Iterator[Reading]:
    """Yield a reading of one CTA for each of its places, to see what one with none shows."""
    yield from _each_place(reading for reading in readings(kernel, sizes) if reading.together)


def _each_place(together: Iterable[Reading]) -> Iterator[Reading]:
    done: set[tuple[int, frozenset[tuple[Expr, Expr]]]] = set()
    for reading in together:
        for fixed in reading.fixed:
            place = reading.many, frozenset(fixed.items())
            if place not in done:  # whoever is the last of many, most do the same
                done.add(place)
                yield Reading((fixed,), reading.many)


def largest(kernel: kir.Kernel, group: CtaGroup) -> int:
    """Return the size of a group beyond which nothing new can be seen."""
    return max(_seen(kernel, group).largest, *(n + 3 for n in _apart(kernel, group)))


def _seen(kernel: kir.Kernel, group: CtaGroup) -> Sizes:
    return seen(kernel, lambda expr: over_places(expr, group))


def _unlike(kernel: kir.Kernel, group: CtaGroup) -> tuple[int, int]:
    """Return how many of the first and of the last CTAs of a group differ from those between.

    How often a loop goes round in which CTAs do not meet is nothing that others see.
    """
    shared, found = sites.shared_tensors(kernel), sites.every(kernel)
    boxes = ((site, touches(site.stmt)) for site in found)
    met = {
        loop.index
        for site, box in boxes
        if isinstance(site.stmt, AMONG_CTAS) or (box is not None and box.tensor.name in shared)
        for loop in site.loops
    }
    own = {loop.stop: loop.index for s in found for loop in s.loops if loop.index not in met}
    rounds = {stop: Var(f"rounds of {index.name}") for stop, index in own.items()}

    def written(expr: Expr) -> Expr:
        for stop, var in rounds.items():
            expr = expr if isinstance(stop, int) else replace_tree(expr, stop, var)
        return over_places(expr, group)

    return seen(kernel, written).lasts


def _sizes(kernel: kir.Kernel, group: CtaGroup) -> list[int]:
    """Return the sizes of a group that are followed: those that the kernel does not rule out.

    Raises
    ------
    SizesError
        If these are too many, or it is not known which are enough.
    """
    if isinstance(group.count, int):
        sizes, most = [group.count], GIVEN
    else:
        ruling = not all(map(_usual, kernel.requires))
        known = Known(sites.facts(kernel), RLIMIT)
        most = MANY
        more = _allows(kernel, group.count, MANY + 1)
        if ruling and not more and known.at_most(group.count, MANY):
            sizes = list(range(1, MANY + 1))
        else:
            try:
                sizes = list(range(1, largest(kernel, group) + 1))
            except UnsupportedError as error:
                raise SizesError(str(error)) from error
        if ruling and sizes[-1] <= MANY:
            sizes = [
                n
                for n in sizes
                if _allows(kernel, group.count, n) or not known.gives(eq(eq(group.count, n), 0))
            ]
    if not sizes or sizes[-1] > most:
        says = f"{sizes[-1] if sizes else f'more than {most}'} CTAs share a semaphore"
        raise SizesError(f"{says}, at most {most} are followed")
    return sizes


FAR = 1 << 12
"""What parameters are in a launch that shows that there is one, if they are not 1."""


def _allows(kernel: kir.Kernel, count: Expr, many: int) -> bool:
    """Whether a launch of plain numbers has so many CTAs in a group, for sure: it is there."""
    grid = launches.required_grid(kernel)
    if grid is None or count not in kernel.params:
        return False
    names = [var.name for var in kernel.params]
    for sizes in product((FAR, 1), repeat=len(names)):
        values = {**dict(zip(names, sizes, strict=True)), str(count): many}
        try:
            if not launches.broken(kernel, {**values, kir.GRID.name: grid(values)}):
                return True
        except ZeroDivisionError:
            continue
    return False


def _usual(condition: Expr) -> bool:
    """Whether a requirement says how many CTAs there are, or that something is there at all."""
    match condition:
        case Op(Kind.EQ, a, b):
            return kir.GRID in (a, b)
        case Op(Kind.LE, 1, _) | Op(Kind.LT, 0, _):
            return True
        case _:
            return False


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
                constant, parts = linear(over_places(whole(origin, lets), group))
            except UnsupportedError:
                continue  # of this CTA alone
            own = {COUNT, PLACE}
            found = {a: n for a, n in parts.items() if n and PLACE in variables(a)}
            if not all(variables(atom) <= own for atom in found):
                continue
            where = box.tensor.name, axis
            ends = ((stops.get(a), n) for a, n in parts.items() if isinstance(a, Var))
            further = sum(abs(n) * end for end, n in ends if isinstance(end, int))
            reach.append((where, abs(constant) + further))
            if found:
                step = min(abs(n) for n in found.values())
                steps[where] = min(step, steps.get(where, step))
    yield from (-(-far // steps[where]) for where, far in reach if where in steps)


def over_places(expr: Expr, group: CtaGroup) -> Expr:
    """Write an expression over a CTA's place, and number and size of its group."""
    expr = replace_tree(expr, group.place, PLACE)
    if group.number == 0:
        expr = replace_tree(expr, kir.GRID, COUNT)
    else:
        expr = replace_tree(expr, group.number, GROUP)
    expr = replace_tree(expr, group.count, COUNT) if not isinstance(group.count, int) else expr
    block = GROUP * COUNT + PLACE if group.consecutive else GROUP + PLACE * group.others
    return replace_tree(expr, kir.BLOCK, block)


def private(code: Code) -> frozenset[int]:
    """Return the trip counts of loops in which CTAs do not meet, and of which nothing else depends.

    Where such a count is 0 or the least there is, less is done and less ordered than where it is
    more: loops run on with it, and a branch that asks for it does nothing where it is small.
    """
    met: set[int] = set()
    for program in code.programs:
        met |= program.once(("met", code.counts), partial(_met, program, code.counts))
    return code.counts - met


def _met(program: Sequence[Instruction], counts: Iterable[int]) -> frozenset[int]:
    """Return the counts on which it depends how CTAs meet."""
    return frozenset(_counts_met(program, counts))


def _counts_met(program: Sequence[Instruction], counts: Iterable[int]) -> Iterator[int]:
    loops = [(at, i) for at, i in enumerate(program) if isinstance(i, Enter)]

    def meets(start: int, end: int) -> bool:
        inside = (j for j in program[start:end] if isinstance(j, Do))
        return any(j.origin or j.index is not None for j in inside)

    for at, loop in loops:
        if meets(at, loop.end):
            yield loop.atom
        yield from (one.atom for one in comparisons_of(loop.test) if one.less)
    for at, i in enumerate(program):
        if not isinstance(i, Branch):
            continue
        jump = program[i.orelse - 1]
        end = jump.to if isinstance(jump, Jump) and i.orelse - 1 > at else i.orelse
        for one in comparisons_of(i.test):
            small = program[at + 1 : i.orelse] if one.less else program[i.orelse : end]
            idle = not any(isinstance(j, Do) for j in small)
            within = any(e.atom == one.atom and start < at < e.end for start, e in loops)
            if meets(at, end) or not (idle or within):
                yield one.atom
    for count in counts:
        mine = [(at, loop.end) for at, loop in loops if loop.atom == count]
        names = _moved(program, mine, count)
        for at, i in enumerate(program if names else ()):
            inside = any(start < at < end for start, end in mine)
            if any(v.name in names for e in _asked(i, inside=inside) for v in variables(e)):
                yield count


def _moved(
    program: Sequence[Instruction], loops: Sequence[tuple[int, int]], count: int
) -> set[str]:
    """Return the variables whose values depend on how often loops have run."""
    names: set[str] = set()
    while True:
        found = {
            i.name
            for at, i in enumerate(program)
            if isinstance(i, Set)
            and (
                count in dict(i.terms)
                or any(v.name in names for v in variables(i.expr))
                or any(start < at < end for start, end in loops)
            )
        }
        if found <= names:
            return names
        names |= found


def _asked(i: Instruction, *, inside: bool) -> Iterable[Expr]:
    """Return by what an instruction decides how CTAs meet; what is inside a loop is its own."""
    match i:
        case Do(index=index, origin=origin):
            return origin if index is None else (index, *origin)
        case Branch(expr) if not inside:
            return (expr,)
        case Enter(stop=stop) if not inside:
            return (stop,)
        case _:
            return ()


# --- CTAs that nothing orders ---------------------------------------------------------------------


BOXES = 600
"""Boxes of one launch that are compared with each other."""
LAUNCHES = 60
"""Launches that are tried."""
RLIMIT = 2_000_000
"""Work limit of a question about boxes, in z3's units."""


def apart(code: Code, findings: Findings, trips: int) -> None:
    """Judge CTAs that nothing orders; it may stay open whether they touch the same elements.

    `trips` is the smallest trip count that shows whatever is wrong.
    """
    kernel = code.kernel
    tracked = sites.shared_tensors(kernel)
    if not tracked or fixed_grid(kernel) == kernel.cluster:
        return
    found = sites.read(kernel)
    try:
        ctas: CtaGroup | None = group_of(kernel)
    except UnsupportedError:
        ctas = None
    # What tells CTAs apart that are not followed together, and what only those have in common at
    # any time, also where they go from one tile to the next.
    group = tile = kir.BLOCK // kernel.cluster
    if ctas is not None and any(isinstance(s, AMONG_CTAS) for s in kernel.walk()):
        group, tile = ctas.number, ctas.index
    if group == 0:
        return
    open_ones = []
    for name in sorted(tracked):
        mine = [s for s in found if (box := sites.touches(s.stmt)) and box.tensor.name == name]
        findings.ask()
        if not (
            _adding(kernel, mine)
            or _spaced(mine, tile)
            or _packed(kernel, ctas, mine)
            or _as_outputs(kernel, ctas, found, mine)
        ):
            says = f"nothing shows that other CTAs touch other elements of {name}"
            open_ones.append(f"{mine[0].where}: {says}")
    if not open_ones:
        return
    read = [r for r in outputs.readings(found) if r.box.tensor.name in tracked]
    for one, two, values in _overlapping(kernel, read, group):
        wrong = _unordered(code, one, two, values, trips)
        if wrong is not None:
            findings.record(wrong)
            if wrong.rule not in findings.off:
                return
    findings.doubts(open_ones[0])


def _overlapping(
    kernel: kir.Kernel, read: list[outputs.Reading], group: Expr
) -> Iterator[tuple[Site, Site, Values]]:
    """Yield sites at which, in a small launch, two CTAs of two groups touch the same elements."""
    number = function(group)
    few = launches.small(kernel, clusters=2)
    small = ({**one.params, kir.GRID.name: one.grid} for one in few)
    for values in islice(chain(small, launches.some_launches(kernel)), LAUNCHES):
        try:
            grid = range(min(values[kir.GRID.name], 4 * kernel.cluster))
            here = [{**values, kir.BLOCK.name: block} for block in grid]
            seen = [(number(v), r, span) for v in here for r in read for _, span in r.boxes(v)]
        except ZeroDivisionError:
            continue
        for (one, a, left), (two, b, right) in combinations(seen[:BOXES], 2):
            if one != two and a.box.tensor == b.box.tensor and _overlap(left, right):
                yield a.site, b.site, values


def _overlap(a: outputs.Span, b: outputs.Span) -> bool:
    return all(max(p[0], q[0]) < min(p[1], q[1]) for p, q in zip(a, b, strict=True))


def _unordered(code: Code, one: Site, two: Site, values: Values, trips: int) -> Violation | None:
    """Return what is wrong with two CTAs that touch the same elements unordered, if anything is."""
    first, second = sites.reads(one.stmt) is None, sites.reads(two.stmt) is None
    if not first and not second:
        return None
    rule = Rule.WAW
    if adds(one.stmt) and type(one.stmt) is type(two.stmt):
        if code.kernel.determinism != "bitwise":
            return None
        rule = Rule.DETERMINISM
    elif not (first and second):
        rule = Rule.RAW
        one, two = (two, one) if not first else (one, two)
    at = {site.line: site for site in code.sites}
    shown = ", ".join(f"{k}={v}" for k, v in sorted(values.items()) if k != kir.BLOCK.name)
    says = f"with {shown} two CTAs touch the same elements, and nothing orders them"
    return Violation(rule, at[two.line], says, rule.kind, trips=trips, earlier=at[one.line])


def _adding(kernel: kir.Kernel, mine: list[Site]) -> bool:
    """Whether all that happens is that CTAs add, in any order."""
    unordered = kernel.determinism != "bitwise"
    same = len({type(site.stmt) for site in mine}) == 1
    return unordered and same and all(adds(site.stmt) for site in mine)


def _origin(site: Site) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
    box = sites.touches(site.stmt)
    assert box is not None, "accesses of global memory only"
    return tuple(site.plain(e) for e in box.origin), box.shape


def _spaced(mine: list[Site], tile: Expr) -> bool:
    """Whether, along some axis, the boxes of tiles lie one behind the other."""
    placed = [_origin(site) for site in mine]
    if any(sites.unknown(origin) for origin, _ in placed):
        return False
    for axis in range(len(placed[0][1])):
        forms = [
            (linear(replace_tree(origin[axis], site.plain(tile), GROUP)), shape[axis])
            for site, (origin, shape) in zip(mine, placed, strict=True)
        ]
        steps = {tuple(parts.items()) for (_, parts), _ in forms}
        if len(steps) == 1:
            ((atom, times),) = pairs if len(pairs := steps.pop()) == 1 else ((0, 0),)
            low = min(start for (start, _), _ in forms)
            if atom == GROUP and max(start + size for (start, _), size in forms) - low <= times:
                return True
    return False


def _packed(kernel: kir.Kernel, ctas: CtaGroup | None, mine: list[Site]) -> bool:
    """Whether, along some axis, each group's boxes lie in a stretch of its own.

    Origins are `group * P + rest` with one P, and z3 shows `0 <= rest` and `rest + size <= P`.
    Where groups walk from tile to tile, they are `tile * P + rest`.
    """
    placed = [_origin(site) for site in mine]
    if ctas is None or ctas.number == 0 or any(sites.unknown(origin) for origin, _ in placed):
        return False
    known = Known([*sites.facts(kernel), fold(Kind.LT, PLACE, ctas.count)], RLIMIT)

    def named(site: Site, expr: Expr) -> Expr:
        tile = site.plain(ctas.index)
        there = replace_tree(replace_tree(expr, tile, GROUP), ctas.place, PLACE)
        # Where each CTA has one tile, its number says the same.
        one = ctas.consecutive and tile == ctas.number
        return substitute(there, {kir.BLOCK: GROUP * ctas.count + PLACE}) if one else there

    def assumed(site: Site) -> tuple[Expr, ...]:
        ends = (loop.index < loop.stop for loop in site.loops)
        return tuple(named(site, site.plain(e)) for e in (*ends, *site.guards))

    for axis in range(len(placed[0][1])):
        boxes = list(zip(mine, placed, strict=True))
        pitches = {_divided(poly(named(site, origin[axis])))[0] for site, (origin, _) in boxes}
        pitch = pitches.pop()
        if not pitch or pitches:
            continue
        inside: dict[tuple[Expr, ...], Expr] = {}  # all that is to hold where the same does
        for site, (origin, shape) in boxes:
            rest, there = tree(_divided(poly(named(site, origin[axis])))[1]), assumed(site)
            ends = fold(Kind.LE, 0, rest), fold(Kind.LE, rest + shape[axis], tree(pitch))
            inside[there] = both(inside.get(there, 1), both(*ends))
        if all(known.gives(claim, *there) for there, claim in inside.items()):
            return True
    return False


def _divided(form: Poly) -> tuple[Poly, Poly]:
    """Return what the number of a group is multiplied by, and the rest; no factor if by itself."""
    group = (GROUP.name,)
    times = [(m, f) for m, f in form if group in m]
    factor = frozenset((tuple(a for a in m if a != group), f) for m, f in times)
    once = all(m.count(group) == 1 for m, _ in times)
    return (factor if once else frozenset()), form - {*times}


def _as_outputs(
    kernel: kir.Kernel, ctas: CtaGroup | None, found: tuple[Site, ...], mine: list[Site]
) -> bool:
    """Whether the boxes lie as those of an output, of which every element is written once.

    Each group of CTAs writes the output's box, or none of them does: no guard tells groups apart.
    """
    for site in found:
        box = sites.writes(site.stmt)
        if box is None or box.tensor.name not in kernel.outputs or site.loops:
            continue
        same = all(not one.loops and _origin(one) == _origin(site) for one in mine)
        guards = site.guards
        if ctas is not None:
            guards = tuple(replace_tree(guard, ctas.place, PLACE) for guard in guards)
        if same and not any(kir.BLOCK in variables(guard) for guard in guards):
            return True
    return False
