"""Operators on where a sync stands: left out, repeated, swapped, moved, shared.

Each is a generator over a kernel; `fuzz.mutation.operators` names them and drops what is no mutant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuzz.mutation.site import (
    Mutant,
    Site,
    edited,
    fresh,
    rows,
    sites,
    synchronises,
    without,
    wrapped,
)


def drop(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Leave one sync out, or the body of the last CTA with its election."""
    for site in sites(kernel):
        if not isinstance(site.stmt, kir.SYNCS | kir.LastArriving):
            continue
        changed = edited(kernel, (site.stmt, ()))
        yield Mutant(f"drop {site.words}", changed, "drop", rows(site.stmt), site.stmt)


def twice(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Execute one sync that counts twice in a row."""
    counting = (
        kir.MBarrierArrive
        | kir.MBarrierArriveExpectTx
        | kir.MBarrierExpectTx
        | kir.MBarrierInit
        | kir.CpAsyncMBarrierArrive
        | kir.AsyncCommit
        | kir.NamedArrive
        | kir.BlockSerializeRelease
        | kir.ClusterArrive
        | kir.SetMaxNReg
        | kir.LastArriving
    )
    for site in sites(kernel):
        if isinstance(site.stmt, counting):
            changed = edited(kernel, (site.stmt, (site.stmt, fresh(site.stmt))))
            yield Mutant(f"twice {site.words}", changed, "twice", rows(site.stmt), site.stmt)


def swap(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Exchange two neighbours, of which at least one synchronises."""
    for site in sites(kernel):
        stmt, other = site.stmt, site.beside(1)
        if other is None or not (synchronises(stmt) or synchronises(other)):
            continue
        changed = edited(kernel, (stmt, (other, stmt)), (other, ()))
        change = f"swap {site.words} with `{line(other)}`"
        yield Mutant(change, changed, "swap", rows(stmt, other), stmt)


def move(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Move a sync to an end of its body, out of its loop, or a level deeper."""
    for site in sites(kernel):
        alone = site.elect is not None and site.body is site.elect.body and len(site.body) == 1
        if alone or not synchronises(site.stmt):
            continue  # an election moves with what it holds alone
        for where, changed in (*_ends(kernel, site), *_out(kernel, site), *_deeper(kernel, site)):
            change = f"move {where} {site.words}"
            yield Mutant(change, changed, "move", rows(site.stmt), site.stmt)


def _ends(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """To the beginning and to the end of the body, where that is no mere swap."""
    first, last = site.body[0], site.body[-1]
    if site.index > 1:
        yield "first", edited(kernel, (first, (site.stmt, first)), (site.stmt, ()))
    if site.index < len(site.body) - 2:
        yield "last", edited(kernel, (last, (last, site.stmt)), (site.stmt, ()))


def _out(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """Before and behind the innermost loop, by the same threads."""
    if not site.loops:
        return
    loop = site.loops[-1]
    between = site.parents[site.parents.index(loop) + 1 :]
    if any(isinstance(parent, kir.Role) for parent in between):
        return
    moved, rest = wrapped(site.stmt, between), without(loop, site.stmt)
    yield "before the loop", edited(kernel, (loop, (moved, rest)))
    yield "behind the loop", edited(kernel, (loop, (rest, moved)))


def _deeper(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """Into a structured neighbour; barriers into elections and roles are for `hoist`."""
    for step, words in ((1, "into what follows"), (-1, "into what precedes")):
        beside = site.beside(step)
        if isinstance(site.stmt, kir.BlockSync) and isinstance(beside, kir.Elect | kir.Role):
            continue
        inside = _inside(beside, site.stmt, at_start=step == 1)
        if beside is not None and inside is not None:
            yield words, edited(kernel, (beside, (inside,)), (site.stmt, ()))


def _inside(beside: kir.Stmt | None, stmt: kir.Stmt, *, at_start: bool) -> kir.Stmt | None:
    """Return a structured statement with another put at an end of its body."""
    match beside:
        case kir.ForLoop() | kir.Role() | kir.Elect() | kir.LastArriving():
            body = beside.body
            return replace(beside, body=(stmt, *body) if at_start else (*body, stmt))
        case kir.IfThenElse(_, then):
            return replace(beside, then=(stmt, *then) if at_start else (*then, stmt))
        case _:
            return None


def hoist(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Share a barrier or an election across regions that are apart."""
    numbers = sorted(
        {s.stmt.barrier for s in sites(kernel) if isinstance(s.stmt, kir.BlockSync)}
        | {s.stmt.barrier for s in sites(kernel) if isinstance(s.stmt, kir.NamedArrive)}
        | {s.stmt.barrier for s in sites(kernel) if isinstance(s.stmt, kir.LastArriving)}
    )
    for site in sites(kernel):
        match site.stmt:
            case kir.BlockSync():
                yield from _divergent(kernel, site)
                yield from _renumbered(kernel, site, site.stmt, numbers)
            case kir.NamedArrive() | kir.LastArriving():
                yield from _renumbered(kernel, site, site.stmt, numbers)
            case kir.Elect():
                yield from _merged(kernel, site, site.stmt)
            case _:
                pass


def _divergent(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Move a barrier into the role or election beside it, where some threads never come."""
    for step in (1, -1):
        beside = site.beside(step)
        inside = _inside(beside, site.stmt, at_start=step == 1)
        if inside is not None and isinstance(beside, kir.Role | kir.Elect):
            changed = edited(kernel, (beside, (inside,)), (site.stmt, ()))
            change = f"into `{line(beside)}` goes {site.words}"
            yield Mutant(change, changed, "hoist", ("H71", "H76"), site.stmt)


def _renumbered(
    kernel: kir.Kernel,
    site: Site,
    stmt: kir.BlockSync | kir.NamedArrive | kir.LastArriving,
    numbers: list[int],
) -> Iterator[Mutant]:
    """Let two barriers share one number."""
    for number in numbers:
        if number != stmt.barrier:
            changed = edited(kernel, (stmt, (replace(stmt, barrier=number),)))
            yield Mutant(f"barrier {number} in {site.words}", changed, "hoist", ("H72",), stmt)


def _merged(kernel: kir.Kernel, site: Site, stmt: kir.Elect) -> Iterator[Mutant]:
    """Put two elections with something between them under one, before or behind it."""
    other, between = site.beside(2), site.beside(1)
    if between is None or not isinstance(other, kir.Elect) or other.per is not stmt.per:
        return
    both = kir.Elect(stmt.per, (*stmt.body, *other.body))
    hazards = ("H14", *rows(between))
    early = edited(kernel, (stmt, (both,)), (other, ()))
    yield Mutant(f"one election, before `{line(between)}`, {site.words}", early, "hoist", hazards)
    late = edited(kernel, (stmt, ()), (other, (both,)))
    yield Mutant(f"one election, behind `{line(between)}`, {site.words}", late, "hoist", hazards)


def behind(kernel: kir.Kernel, site: Site, stmt: kir.Stmt) -> kir.Kernel:
    """Return a kernel in which a statement has gone behind a later one of its body."""
    assert any(stmt is later for later in site.body[site.index + 1 :]), "a later one of the body"
    return edited(kernel, (stmt, (stmt, site.stmt)), (site.stmt, ()))
