"""`drain-before-release`: what a release publishes, and what an exit leaves, is complete by then.

Of a bulk write to memory that CTAs share: the thread that issued it awaits its group, and joins the
thread that releases, if that is another one.  Of a bulk write at all: its sources have been read
before the CTA ends; a boundary between launches orders its writes.  Of an ordinary write: a join
leads from its thread to the one that releases.  `GridSync` and `LastArriving` join their threads by
themselves, so that the issuing thread's await has to stand before its own arrival there.

Source: PTX ISA, "cp.async.bulk.wait_group", "Memory consistency model, release patterns".
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.kernel import ir as kir
from oracles.prover.named.program import Point, Program
from oracles.prover.named.question import Asked, Instance, UndecidedError
from oracles.prover.named.results import covered
from oracles.prover.sites import shared_tensors
from oracles.prover.solver import Formula, all_of, any_of

NAME = "drain-before-release"
BULK = kir.AsyncKind.BULK
_BULK = kir.TmaStore | kir.TmaReduce
_MEETINGS = kir.GridSync | kir.LastArriving
_RELEASES = kir.BlockSerializeRelease | _MEETINGS
JOINS = kir.BlockSync | kir.BlockSerializeWait | kir.GridSync | kir.LastArriving | kir.WarpSync
"""Statements at which threads that execute them wait for each other."""


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel writes by bulk copies, or publishes what its threads write."""
    return any(isinstance(stmt, _BULK | _RELEASES) for stmt in kernel.walk())


def check(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each write and each release or exit."""
    shared = shared_tensors(programs[0].kernel)
    releases = {point.number for _, point in _releases(programs)}
    for program in programs:
        for write, published in _last(program, shared, releases):
            if isinstance(write.stmt, _BULK):
                _exit(asked, program, write)
            if published:
                bulk = isinstance(write.stmt, _BULK)
                _released(asked, programs, program, write, bulk=bulk)


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


def _exit(asked: Asked, program: Program, write: Point) -> None:
    """Ask that the sources of a bulk write have been read at the end."""
    asked.never(
        program,
        write,
        program.end,
        lambda a, b: any_of(*(when for _, when in covered(asked, program, a, b, BULK, read=True))),
        "the sources of a bulk write may still be read at the end",
    )


def _released(
    asked: Asked, programs: list[Program], program: Program, write: Point, *, bulk: bool
) -> None:
    """Ask that a write is complete for whoever releases it later."""
    for other, release in _releases(programs):
        meets = isinstance(release.stmt, _MEETINGS)
        if meets and other is not program:
            continue  # each kind of threads arrives there for itself
        if meets and not bulk:
            continue
        if not meets and other is program and program.kind.alone and not bulk:
            continue
        if meets or (other is program and program.kind.alone):
            asked.never(
                program,
                write,
                release,
                lambda a, b: any_of(*(when for _, when in covered(asked, program, a, b, BULK))),
                "a bulk write may still be in flight where it is published",
            )
            continue
        _ordered(program, other, write, release)
        says = "a bulk write may still be in flight where another thread publishes it"
        asked.never(
            program,
            write,
            release,
            lambda a, b, o=other: any_of(  # type: ignore[misc]
                *(_joined(asked, program, o, a, b, bulk=bulk))
            ),
            says if bulk else "no join leads from a write to the thread that publishes it",
            then=other,
        )
    mine = {point.number for point in program.points}
    for other, release in _releases(programs):
        if isinstance(release.stmt, _MEETINGS) and release.number not in mine:
            _ordered(program, other, write, release, strictly=True)


def _ordered(
    program: Program, other: Program, write: Point, release: Point, *, strictly: bool = False
) -> None:
    """Refuse two points of different roles, unless all these threads join between them.

    Only then is the order of the text that of time.
    """
    one, two = ((p.place.first, p.place.warps) for p in (write, release))
    if one == two and not strictly:
        return
    theirs = {point.number for point in other.points}
    low, high = sorted((write.number, release.number))
    met = any(
        isinstance(p.stmt, JOINS) and p.number in theirs and low < p.number < high
        for p in program.points
    )
    if not met or (strictly and write.number < release.number):
        raise UndecidedError(f"{write.where}: published by another role at {release.where}")


def _releases(programs: list[Program]) -> Iterator[tuple[Program, Point]]:
    for program in programs:
        for point in program.points:
            if isinstance(point.stmt, _RELEASES):
                yield program, point


def _joined(
    asked: Asked, program: Program, other: Program, a: Instance, b: Instance, *, bulk: bool
) -> Iterator[Formula]:
    """Give ways in which a write is awaited and its thread joins the one that releases."""
    theirs = {point.number: point for point in other.points}
    for join, inside in asked.between(program, a, b, joins(program, other)):
        there = Instance(theirs[join.point.number], join.vector)
        both = all_of(inside, asked.exists(other, there))
        if not bulk:
            yield both
            continue
        awaits = covered(asked, program, a, join, BULK)
        yield all_of(both, any_of(*(when for _, when in awaits)))


def joins(program: Program, other: Program, *, warp: bool = False) -> list[Point]:
    """Return where threads of two kinds join, or of each warp of theirs if that is enough."""
    theirs = {point.number for point in other.points}
    return [
        p
        for p in program.points
        if isinstance(p.stmt, JOINS)
        and p.number in theirs
        and _meets(p.stmt, program, other, warp=warp)
    ]


def _meets(stmt: kir.Stmt, program: Program, other: Program, *, warp: bool) -> bool:
    """Whether a join of one kind of threads and another is one of all their threads."""
    one, two = program.kind.warps, other.kind.warps
    return not isinstance(stmt, kir.WarpSync) or (one == two and (warp or len(one) == 1))
