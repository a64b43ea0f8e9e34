"""`drain-before-release`: what a release publishes, and what an exit leaves, is complete by then.

Asked is of every write to memory that CTAs share and every release behind it (`GridSync` and
`LastArriving` are some, for their own threads): that the write is over for the thread that
releases; see `order`.  A bulk write is so when its group has been awaited, and its thread is that
one or joins it; an ordinary write when a join leads from it.  Of every bulk write: that its sources
have been read before the CTA ends; a boundary between launches orders its writes.

Where that is not so, or another role releases, so that the text is no order: that nobody relies on
that release for that write.  Every access of the same elements by another CTA stands behind a wait
for a value of an integer, and whatever release gives it that value, the write is over for the
thread that does.

Source: PTX ISA, "cp.async.bulk.wait_group", "Memory consistency model, release patterns".
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.expr import Expr, Kind, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.named.order import JOINS, Order, Work, equal
from oracles.prover.named.program import (
    Asked,
    Instance,
    Point,
    Program,
    UndecidedError,
    WitnessedError,
    normal,
)
from oracles.prover.sites import Overlaps, every, ordinary, shared_tensors, storage, touches
from oracles.prover.solver import AtLeast, Formula, all_of, any_of

BULK = kir.AsyncKind.BULK
_BULK = kir.TmaStore | kir.TmaReduce
_MEETINGS = kir.GridSync | kir.LastArriving
_RELEASES = kir.BlockSerializeRelease | _MEETINGS
_WAITS = kir.BlockSerializeWait | _MEETINGS
OTHER, THIRD = (Var(f"blockIdx of {which}") for which in ("another CTA", "a third CTA"))


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel writes by bulk copies, or publishes what its threads write."""
    return any(isinstance(stmt, _BULK | _RELEASES) for stmt in kernel.walk())


def check(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each write and each release or exit."""
    order = Order(asked, programs)
    kernel = programs[0].kernel
    shared, sites = shared_tensors(kernel), every(kernel)
    overlaps = Overlaps(tuple(p.kind for p in programs), kernel.threads)

    def holds(program: Program, point: Point) -> bool:
        """Whether threads hold a part of what they write."""
        spread = ordinary(sites[point.number], storage(kernel.buffers))
        return spread is None or program.kind.index in overlaps.touching(spread)

    releases = {point.number for _, point in _releases(programs)}
    for program in programs:
        mine = [point for point in program.points if holds(program, point)]
        for write, published in _last(mine, shared, releases):
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
    points: list[Point], shared: frozenset[str], releases: set[int]
) -> Iterator[tuple[Point, bool]]:
    """Give the writes of a kind of threads, of some in a row the last, and whether others read it.

    What awaits its group, or joins its thread, does so for those before it.
    """
    rows: dict[tuple[object, int, bool, bool], Point] = {}
    for point in points:
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
        if not order.sure(lambda: _observed(order, program, write)):
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


# --- who else accesses what is written -----------------------------------------------------------


def _observed(order: Order, program: Program, write: Point) -> None:
    """Ask of each access to what is written, by another CTA, that it waits until that is over."""
    box = _box(write)
    for reader in order.different(lambda p: tuple(q.number for q in p.points if _touch(q, box))):
        for access in reader.points:
            if _touch(access, box) and not _behind(order, program, write, reader, access):
                raise UndecidedError(f"{access.where}: nothing says that {write.where} is over")


def _behind(order: Order, program: Program, write: Point, reader: Program, access: Point) -> bool:
    """Whether an access shares nothing with a write, or waits for what only follows it."""
    one = Instance(write, program.fresh(write, "a"))
    there = Instance(access, reader.fresh(access, "access"))
    given: list[Formula] = [OTHER < kir.GRID, any_of(OTHER < kir.BLOCK, kir.BLOCK < OTHER)]
    given += program.exists(write, one.vector)
    given += map(_moved, reader.exists(access, there.vector))
    given += _meet(program, one, reader, there)
    work = Work(program, one, BULK if isinstance(write.stmt, _BULK) else None)
    if order.sure(lambda: order.asked.holds(given, lambda: 0, "nothing shared")):
        return True
    waits = [p for p in reader.points if isinstance(p.stmt, _WAITS)]
    for seen in (
        Instance(wait, vector)
        for wait in reversed(waits)
        for vector in reader.preceding(access, there.vector, wait, 1)
    ):
        before: list[Formula] = [_moved(c) for c in reader.exists(seen.point, seen.vector)]
        before.append(_elsewhere(order.asked.before(seen, there)))
        if order.sure(lambda b=before, s=seen: _sees(order, work, given, b, reader, s)):  # type: ignore[misc]
            return True
    return False


def _sees(
    order: Order,
    work: Work,
    given: list[Formula],
    before: list[Formula],
    reader: Program,
    seen: Instance,
) -> None:
    """Ask that a wait of another CTA is there, and sees only what follows the end of a write."""
    asked, stmt = order.asked, seen.point.stmt
    assert isinstance(stmt, _WAITS), "a wait"
    index, *turn = (
        _moved(reader.at(seen.point, seen.vector, seen.point.plain(expr)))
        for expr in (stmt.index, *([stmt.turn] if isinstance(stmt, kir.BlockSerializeWait) else []))
    )
    asked.holds(given, lambda: all_of(*before), f"a wait: {seen}")
    releases = list(_releases(order.programs))
    for other, release in releases:
        there = release.stmt
        assert isinstance(there, _RELEASES), "a release"
        if there.semaphore != stmt.semaphore or (not turn and release.number != seen.point.number):
            continue
        if not turn:  # all CTAs of one integer meet
            mine = Instance(release, tuple(map(_moved, seen.vector)))
            if other is work.program:
                same = equal(other.at(release, mine.vector, release.plain(there.index)), index)
                sure = *other.exists(release, mine.vector), same
                asked.holds(given, lambda m=mine, s=sure: all_of(*s, order.over(work, m)), "met")  # type: ignore[misc]
            continue
        two = Instance(release, other.fresh(release, "b"))
        said = there.index, getattr(there, "turn", 0)
        values = [other.at(release, two.vector, release.plain(expr)) for expr in said]
        facts = [
            *other.exists(release, two.vector),
            *map(equal, values, (index, *turn)),
        ]
        asked.holds([*given, *facts], lambda o=other, t=two: order.leads(work, o, t), "told early")  # type: ignore[misc]
        third = [_moved(part, THIRD) for part in facts if isinstance(part, Expr)]
        apart = any_of(THIRD < kir.BLOCK, kir.BLOCK < THIRD)
        asked.holds([*given, *third, apart, THIRD < kir.GRID], lambda: 0, "told by another CTA")
    if turn:
        asked.holds(given, lambda: normal(fold(Kind.LT, 0, turn[0])), "told by nobody")
    elif all(p is not work.program or r.number != seen.point.number for p, r in releases):
        raise UndecidedError(f"{seen}: the threads of the write do not arrive there")


def _meet(program: Program, write: Instance, reader: Program, access: Instance) -> Iterator[Expr]:
    """Give conditions under which two accesses of a tensor by two CTAs share an element."""
    mine, theirs = _box(write.point), _box(access.point)
    for x, y, size, other in zip(mine.origin, theirs.origin, mine.shape, theirs.shape, strict=True):
        at = program.at(write.point, write.vector, write.point.plain(x))
        to = _moved(reader.at(access.point, access.vector, access.point.plain(y)))
        yield normal(fold(Kind.LT, at, fold(Kind.ADD, to, other)))
        yield normal(fold(Kind.LT, to, fold(Kind.ADD, at, size)))


def _box(point: Point) -> kir.Box:
    assert point.stmt is not None, "a statement"
    box = touches(point.stmt)
    assert box is not None, "it accesses memory"
    return box


def _touch(point: Point, box: kir.Box) -> bool:
    found = touches(point.stmt) if point.stmt is not None else None
    return found is not None and found.tensor.name == box.tensor.name


def _moved(expr: Expr, block: Var = OTHER) -> Expr:
    """Return an expression of another CTA: its number is another, and so is what is not known."""
    apart = {v: Var(f"{v.name} elsewhere") for v in variables(expr) if "?" in v.name}
    return normal(substitute(expr, {**apart, kir.BLOCK: block}))


def _elsewhere(part: Formula) -> Formula:
    """Return a condition of another CTA."""
    if isinstance(part, AtLeast):
        return AtLeast(part.many, tuple(map(_elsewhere, part.of)), part.never)
    return _moved(part)
