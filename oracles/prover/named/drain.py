"""`drain-before-release`: what a release publishes, and what an exit leaves, is complete by then.

Asked is of every write to memory that CTAs share and every release behind it (`GridSync` and
`LastArriving` are some, for their own threads): that the write is over for the thread that
releases; see `order`.  A bulk write is so when its group has been awaited, and its thread is that
one or joins it; an ordinary write when a join leads from it.  Of every bulk write: that its sources
have been read before the CTA ends; a boundary between launches orders its writes.

Where that is not so, or another role releases, so that the text is no order: that nobody relies on
that release for that write.  Another CTA relies on it which accesses the same elements behind a
wait for that value of that integer; then the write is over for the thread that releases.

Source: PTX ISA, "cp.async.bulk.wait_group", "Memory consistency model, release patterns".
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.expr import Expr, Kind, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.named.order import JOINS, Order, Work, arrives, equal, joins
from oracles.prover.named.program import Point, Program, normal
from oracles.prover.named.question import Asked, Instance, UndecidedError, WitnessedError
from oracles.prover.sites import shared_tensors, touches
from oracles.prover.solver import AtLeast, Formula, all_of, any_of

NAME = "drain-before-release"
BULK = kir.AsyncKind.BULK
_BULK = kir.TmaStore | kir.TmaReduce
_MEETINGS = kir.GridSync | kir.LastArriving
_RELEASES = kir.BlockSerializeRelease | _MEETINGS
_WAITS = kir.BlockSerializeWait | _MEETINGS
OTHER = Var("blockIdx of another CTA")


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel writes by bulk copies, or publishes what its threads write."""
    return any(isinstance(stmt, _BULK | _RELEASES) for stmt in kernel.walk())


def check(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each write and each release or exit."""
    order = Order(asked, programs)
    shared = shared_tensors(programs[0].kernel)
    releases = {point.number for _, point in _releases(programs)}
    for program in programs:
        for write, published in _last(program, shared, releases):
            if isinstance(write.stmt, _BULK):
                asked.never(
                    program,
                    write,
                    program.end,
                    lambda a, b, p=program: order.over(Work(p, a, BULK, True), b),  # type: ignore[misc]
                    "the sources of a bulk write may still be read at the end",
                )
            for other, release in _releases(programs) if published else ():
                _released(order, program, write, other, release)


def _last(
    program: Program, shared: frozenset[str], releases: set[int]
) -> Iterator[tuple[Point, bool]]:
    """Give the writes of a kind of threads, of some in a row the last, and whether others read it.

    What awaits its group, or joins its thread, does so for those before it.
    """
    rows: dict[tuple[object, int, bool, bool], Point] = {}
    for point in program.points:
        match point.stmt:
            case kir.TmaStore(box) | kir.TmaReduce(box) | kir.AtomicAdd(box):
                pass
            case kir.Store(kir.Box() as box):
                pass
            case _:
                continue
        published = box.tensor.name in shared
        bulk = isinstance(point.stmt, _BULK)
        if bulk or published:
            around = tuple((frame.number, frame.test) for frame in point.frames)
            passed = sum(number < point.number for number in releases)
            rows[around, passed, published, bulk] = point
    for (_, _, published, _), point in rows.items():
        yield point, published


def _released(order: Order, program: Program, write: Point, other: Program, release: Point) -> None:
    """Ask that a write is over for whoever releases it later, or that nobody relies on that."""
    bulk = isinstance(write.stmt, _BULK)
    alone = other is program and program.kind.alone
    meets = isinstance(release.stmt, _MEETINGS)
    if meets and other is not program:
        mine = {point.number for point in program.points}
        if release.number in mine:
            return  # each kind of threads arrives there for itself
    elif not bulk and (meets or alone):
        return

    def over(a: Instance, b: Instance) -> Formula:
        work = Work(program, a, BULK if bulk else None)
        return order.over(work, b) if meets and other is program else order.leads(work, other, b)

    says = "a bulk write may still be in flight" if bulk else "no join leads from a write to"
    says += " where it is published" if bulk else " the thread that publishes it"
    try:
        if not _in_order(program, other, write, release, strictly=meets and other is not program):
            raise UndecidedError(f"{write.where}: published by another role at {release.where}")
        order.asked.never(program, write, release, over, says, then=other)
    except (WitnessedError, UndecidedError) as error:
        if not order.sure(lambda: _relied(order, program, write, other, release)):
            raise error


def _in_order(
    program: Program, other: Program, write: Point, release: Point, *, strictly: bool
) -> bool:
    """Whether the order of the text is that of time: one role, or all these threads join between.

    `strictly` is for those who do not reach the release: they join those who do before it.
    """
    one, two = ((p.place.first, p.place.warps) for p in (write, release))
    if one == two and not strictly:
        return True
    theirs = {point.number for point in other.points}
    low, high = sorted((write.number, release.number))
    met = any(
        isinstance(p.stmt, JOINS) and p.number in theirs and low < p.number < high
        for p in program.points
    )
    return met and not (strictly and write.number < release.number)


def _releases(programs: list[Program]) -> Iterator[tuple[Program, Point]]:
    for program in programs:
        for point in program.points:
            if isinstance(point.stmt, _RELEASES):
                yield program, point


# --- who relies on a release ----------------------------------------------------------------------


def _relied(order: Order, program: Program, write: Point, other: Program, release: Point) -> None:
    """Ask that a write is over at a release for all that access it and wait for that release."""
    box = touches(write.stmt) if write.stmt is not None else None
    assert box is not None, "a write"
    for reader in order.different(lambda p: tuple(q.number for q in p.points if _touch(q, box))):
        for access in reader.points:
            if not _touch(access, box):
                continue
            for waiter in order.different(lambda p, r=reader: p is r):
                behind = waiter is reader
                if not behind and not _linked(order, waiter, reader):
                    continue
                for wait in waiter.points:
                    if isinstance(wait.stmt, _WAITS) and _same(wait, release):
                        points = access, wait, write, release
                        _relies(order, (reader, waiter, program, other), points, behind=behind)


def _relies(
    order: Order,
    programs: tuple[Program, Program, Program, Program],
    points: tuple[Point, Point, Point, Point],
    *,
    behind: bool,
) -> None:
    """Ask it of an access behind a wait, or at any time after it, and of a write and a release.

    Any release will do for which the access has waited, too.
    """
    reader, waiter, program, _ = programs
    there, heard, one, two = (
        Instance(point, of.fresh(point, name))
        for of, point, name in zip(programs, points, ("access", "wait", "a", "b"), strict=True)
    )
    given: list[Formula] = [OTHER < kir.GRID, any_of(OTHER < kir.BLOCK, kir.BLOCK < OTHER)]
    for of, instance in ((reader, there), (waiter, heard)):
        given += map(_moved, of.exists(instance.point, instance.vector))
    for of, instance in ((program, one), (programs[3], two)):
        given += of.exists(instance.point, instance.vector)
    if behind:
        given.append(_elsewhere(order.asked.before(heard, there)))
    given += _matches(programs[3], two, waiter, heard)
    given += _meet(program, one, reader, there)
    work = Work(program, one, BULK if isinstance(one.point.stmt, _BULK) else None)

    def fine() -> Formula:
        reach = order.asked.reach
        ways: list[Formula] = []
        for other, release in _releases(order.programs):
            at = release.plain(getattr(release.stmt, "index", 0))
            for wait in reader.points:
                if not isinstance(wait.stmt, _WAITS) or not _same(wait, release):
                    continue
                for vector in reader.preceding(there.point, there.vector, wait, reach):
                    seen = Instance(wait, vector)
                    before = order.asked.before(seen, there), order.asked.exists(reader, seen)
                    target = _moved(reader.at(wait, vector, wait.plain(wait.stmt.index)))
                    for mine in order.near(other, release, at, target, one):
                        let = Instance(release, mine)
                        sure = all_of(
                            *map(_elsewhere, before),
                            *_matches(other, let, reader, seen, sure=True),
                            order.asked.exists(other, let),
                        )
                        if sure != 0:
                            meets = isinstance(release.stmt, _MEETINGS) and other is program
                            over = order.over(work, let) if meets else order.leads(work, other, let)
                            ways.append(all_of(sure, over))
        return any_of(*ways)

    says = f"may be in flight where it is published to {there.point.where}: {one}"
    order.asked.holds(given, fine, says, two)


def _matches(
    program: Program, release: Instance, waiter: Program, wait: Instance, *, sure: bool = False
) -> Iterator[Formula]:
    """Give conditions under which a wait elsewhere may see a release, or sees it for sure."""
    for name in ("index", "turn"):
        said, seen = (getattr(i.point.stmt, name, None) for i in (release, wait))
        if said is not None and seen is not None:
            value = program.at(release.point, release.vector, release.point.plain(said))
            wanted = waiter.at(wait.point, wait.vector, wait.point.plain(seen))
            yield equal(value, _moved(wanted))
    if sure and isinstance(release.point.stmt, _MEETINGS):
        yield int(release.point.number == wait.point.number)
        for x, y in zip(release.vector, wait.vector, strict=False):
            yield equal(x, _moved(y))


def _meet(program: Program, write: Instance, reader: Program, access: Instance) -> Iterator[Expr]:
    """Give conditions under which two accesses of a tensor by two CTAs share an element."""
    assert write.point.stmt is not None, "a write"
    assert access.point.stmt is not None, "an access"
    mine, theirs = touches(write.point.stmt), touches(access.point.stmt)
    assert mine is not None, "it writes memory"
    assert theirs is not None, "it accesses memory"
    for x, y, size, other in zip(mine.origin, theirs.origin, mine.shape, theirs.shape, strict=True):
        at = program.at(write.point, write.vector, write.point.plain(x))
        to = _moved(reader.at(access.point, access.vector, access.point.plain(y)))
        yield normal(fold(Kind.LT, at, fold(Kind.ADD, to, other)))
        yield normal(fold(Kind.LT, to, fold(Kind.ADD, at, size)))


def _touch(point: Point, box: kir.Box) -> bool:
    found = touches(point.stmt) if point.stmt is not None else None
    return found is not None and found.tensor.name == box.tensor.name


def _same(wait: Point, release: Point) -> bool:
    """Whether they are about one semaphore."""
    one, two = (getattr(p.stmt, "semaphore", None) for p in (wait, release))
    return one == two


def _linked(order: Order, waiter: Program, reader: Program) -> bool:
    """Whether what some threads have observed may be known to others, by however many hops."""
    known = [waiter]
    for one in known:
        tells = {getattr(p.stmt, "barrier", None) for p in one.points if _tells(p.stmt)}
        for other in order.programs:
            hears = {getattr(p.stmt, "barrier", None) for p in other.points if _hears(p.stmt)}
            if other not in known and (joins(one, other, warp=True) or tells & hears):
                known.append(other)
    return reader in known


def _tells(stmt: kir.Stmt | None) -> bool:
    other = kir.MBarrierArriveExpectTx | kir.NamedArrive | kir.BlockSync
    return arrives(stmt) or isinstance(stmt, other)


def _hears(stmt: kir.Stmt | None) -> bool:
    return isinstance(stmt, kir.MBarrierWaitParity | kir.BlockSync)


def _moved(expr: Expr) -> Expr:
    """Return an expression of another CTA: its number is another, and so is what is not known."""
    apart = {var: Var(f"{var.name} elsewhere") for var in variables(expr) if "?" in var.name}
    return normal(substitute(expr, {**apart, kir.BLOCK: OTHER}))


def _elsewhere(part: Formula) -> Formula:
    """Return a condition of another CTA."""
    if isinstance(part, AtLeast):
        return AtLeast(part.many, tuple(map(_elsewhere, part.of)), part.never)
    return _moved(part)
