"""`mma-result-coverage`: each use of what a wgmma works on follows the await of its group.

A wgmma writes its accumulator, and reads a fragment `a`, until its group is awaited.  An await that
keeps n groups covers it if n + 1 groups or more have been closed since; the first of them is its
own.  All of it is a matter of one thread's program order.

Source: PTX ISA, "wgmma.wait_group", "wgmma.commit_group".
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.named.program import Point, Program
from oracles.prover.named.question import Asked, Instance
from oracles.prover.sites import fragments
from oracles.prover.solver import Formula, all_of, any_of

NAME = "mma-result-coverage"


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel has a wgmma."""
    return any(isinstance(stmt, kir.Wgmma) for stmt in kernel.walk())


def covered(
    asked: Asked,
    program: Program,
    first: Instance,
    last: Instance,
    kind: kir.AsyncKind,
    *,
    read: bool = False,
) -> list[tuple[Instance, Formula]]:
    """Return awaits of the threads that cover a group between two instances, and when they do.

    `read` is whether it suffices that its sources have been read.
    """
    commits = [p for p in program.points if p.stmt == kir.AsyncCommit(kind)]
    found = []
    for point in program.points:
        match point.stmt:
            case kir.AsyncAwait(of, keep, read_only) if of is kind and (read or not read_only):
                for await_, inside in asked.between(program, first, last, [point]):
                    closed = asked.counted(program, first, await_, commits, keep + 1)
                    holds = all_of(inside, closed)
                    if holds == 1:
                        return [(await_, 1)]
                    if holds != 0:
                        found.append((await_, holds))
            case _:
                pass
    return found


def check(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each wgmma and each use of what it works on."""
    seen: set[tuple[int, ...]] = set()
    for program in programs:
        products = [p for p in program.points if isinstance(p.stmt, kir.Wgmma)]
        key = _relevant(program, products)
        if not products or key in seen:
            continue
        seen.add(key)
        for product in products:
            for use in _first_uses(program, product):
                asked.never(
                    program,
                    product,
                    use,
                    lambda a, b, p=program: any_of(  # type: ignore[misc]
                        *(when for _, when in covered(asked, p, a, b, kir.AsyncKind.WGMMA))
                    ),
                    "nothing awaits the wgmma",
                )


def _relevant(program: Program, products: list[Point]) -> tuple[int, ...]:
    """Return what the questions of a program depend on; kinds of threads often share it."""
    names = {name for p in products for name in _names(p)}
    out = []
    for point in program.points:
        match point.stmt:
            case kir.Wgmma() | kir.AsyncCommit(kir.AsyncKind.WGMMA):
                out.append(point.number)
            case kir.AsyncAwait(kir.AsyncKind.WGMMA) | kir.Assign():
                out.append(point.number)
            case stmt if stmt is not None and _touched(stmt) & names:
                out.append(point.number)
            case _:
                pass
    return tuple(out)


def _names(product: Point) -> frozenset[str]:
    stmt = product.stmt
    assert isinstance(stmt, kir.Wgmma), "a product"
    source = {stmt.a.name} if isinstance(stmt.a, kir.Fragment) else set()
    return frozenset({stmt.acc.name} | source)


def _touched(stmt: kir.Stmt) -> frozenset[str]:
    return frozenset(f.name for part in fragments(stmt) for f in part)


def _first_uses(program: Program, product: Point) -> list[Point]:
    """Return the uses of what a product works on, but one for those in a row.

    Another product may add to the same accumulator: they finish in order.
    """
    stmt = product.stmt
    assert isinstance(stmt, kir.Wgmma), "a product"
    acc = stmt.acc.name
    source = stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""
    found: list[Point] = []
    fresh: dict[tuple[int, ...], None] = {}
    for point in program.points:
        if point.stmt is None:
            continue
        reads, writes = ({f.name for f in part} for part in fragments(point.stmt))
        match point.stmt:
            case kir.Wgmma():
                fresh.clear()
                uses = acc in reads or source in writes
            case _:
                uses = acc in reads | writes or source in writes
        frames = tuple(frame.number for frame in point.frames)
        tests = tuple(frame.test for frame in point.frames)
        place = hash((frames, tests))
        if uses and (place,) not in fresh:
            fresh[place,] = None
            found.append(point)
    return found
