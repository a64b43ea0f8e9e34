"""Operators on who and where: other threads and roles, the same bytes, what a launch promises.

Each is a generator over a kernel; `fuzz.mutation.operators` names them and drops what is no mutant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from fuser.expr import Expr, Kind, Op
from fuser.kernel import ir as kir
from fuzz.mutation.site import (
    Change,
    Mutant,
    Site,
    edited,
    parts,
    redeclared,
    rows,
    sites,
    substituted,
    synchronises,
    syncs,
    wrapped,
)

_OTHER = {kir.Per.ROLE: kir.Per.WARP, kir.Per.WARP: kir.Per.ROLE, kir.Per.WARPGROUP: kir.Per.WARP}


def role(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let other threads execute a statement than those that should."""
    for site in sites(kernel):
        stmt = site.stmt
        if isinstance(stmt, kir.Elect):
            yield from _elections(kernel, site, stmt)
        if isinstance(stmt, kir.LastArriving):
            yield from _last(kernel, site, stmt)
        if isinstance(stmt, kir.Wgmma):
            yield from _part(kernel, site)
        if isinstance(stmt, kir.Load | kir.Store):
            yield from _lanes(kernel, site, stmt)
        if isinstance(stmt, kir.SYNCS) and site.elect is not None:
            yield from _apart(kernel, site, site.elect)
        if synchronises(stmt) and site.role is not None:
            yield from _elsewhere(kernel, site, site.role)


def _warps(kernel: kir.Kernel, site: Site) -> tuple[int, int]:
    """Return the first warp and the number of warps that reach a statement."""
    own = site.role
    return (0, kernel.threads // kir.WARP) if own is None else (own.first_warp, own.warps)


def _part(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Let three warps of a warpgroup issue what needs all four."""
    first, warps = _warps(kernel, site)
    some = kir.Role("part", first, warps - 1, (site.stmt,))
    changed = edited(kernel, (site.stmt, (some,)))
    yield Mutant(f"a warp stays away {site.words}", changed, "role", ("H27",), site.stmt)


def _lanes(kernel: kir.Kernel, site: Site, stmt: kir.Load | kir.Store) -> Iterator[Mutant]:
    """Let `ldmatrix` or `stmatrix` move a tile, by which any lane may touch any element."""
    place = stmt.src if isinstance(stmt, kir.Load) else stmt.dst
    if isinstance(place, kir.Slot) and not stmt.matrix:
        changed = edited(kernel, (stmt, (replace(stmt, matrix=True),)))
        yield Mutant(f"by any lane {site.words}", changed, "role", ("H70",), stmt)


def _elections(kernel: kir.Kernel, site: Site, stmt: kir.Elect) -> Iterator[Mutant]:
    hazards = ("H14", *rows(stmt))
    changed = edited(kernel, (stmt, stmt.body))
    yield Mutant(f"by all threads {site.words}", changed, "role", hazards, stmt)
    first, warps = _warps(kernel, site)
    if warps == 1:
        return
    per = _OTHER[stmt.per]
    changed = edited(kernel, (stmt, (replace(stmt, per=per),)))
    yield Mutant(f"per {per.value} {site.words}", changed, "role", hazards, stmt)
    second = kir.Role(f"warp{first + 1}", first + 1, 1, (stmt,))
    yield Mutant(
        f"by the second warp {site.words}", edited(kernel, (stmt, (second,))), "role", hazards, stmt
    )


def _last(kernel: kir.Kernel, site: Site, stmt: kir.LastArriving) -> Iterator[Mutant]:
    """Let every CTA execute the body of the last one, none, or one thread of the last one."""
    counted = replace(stmt, body=())
    changes: tuple[tuple[str, tuple[kir.Stmt, ...]], ...] = (
        ("not counted, by every CTA", stmt.body),
        ("by every CTA", (counted, *stmt.body)),
        ("by none", (counted,)),
        ("asked by one thread", (kir.Elect(kir.Per.ROLE, (stmt,)),)),
    )
    for words, new in changes:
        changed = edited(kernel, (stmt, new))
        yield Mutant(f"{words} {site.words}", changed, "role", rows(stmt), stmt)


def _apart(kernel: kir.Kernel, site: Site, elect: kir.Elect) -> Iterator[Mutant]:
    """Take a sync out of its election: to all threads, or to the elected one of another warp."""
    if site.body is not elect.body:
        return
    before, after = site.body[: site.index], site.body[site.index + 1 :]
    first, warps = _warps(kernel, site)
    alone = [("by all threads", site.stmt)]
    if warps > 1:
        other = kir.Elect(kir.Per.ROLE, (site.stmt,))
        alone.append(("by the second warp", kir.Role(f"warp{first + 1}", first + 1, 1, (other,))))
    for words, stmt in alone:
        split: list[kir.Stmt] = [kir.Elect(elect.per, before)] if before else []
        split.append(stmt)
        split += [kir.Elect(elect.per, after)] if after else []
        hazards = ("H14", "H43") if isinstance(site.stmt, kir.AsyncAwait) else ("H14",)
        changed = edited(kernel, (elect, split))
        change = f"apart, {words}, {site.words}"
        yield Mutant(change, changed, "role", (*hazards, *rows(site.stmt)), site.stmt)


def _elsewhere(kernel: kir.Kernel, site: Site, own: kir.Role) -> Iterator[Mutant]:
    """Give a sync to another role, at every place of its loop or body."""
    between = site.parents[site.parents.index(own) + 1 :]
    moved = wrapped(site.stmt, between)
    for there in sites(kernel):
        other = there.stmt
        if not isinstance(other, kir.Role) or other is own or other in site.parents:
            continue
        target: kir.ForLoop | kir.Role = other
        if site.loops:
            target = next((s for s in kir.walk(other.body) if isinstance(s, kir.ForLoop)), other)
        for at in range(len(target.body) + 1):
            body = (*target.body[:at], moved, *target.body[at:])
            put: Change = (target, (replace(target, body=body),))
            changed = edited(kernel, (site.stmt, ()), put)
            where = {0: "first", len(target.body): "last"}.get(at, f"at place {at}")
            change = f"{where} in role {other.name}, {site.words}"
            yield Mutant(change, changed, "role", ("H14", *rows(site.stmt)), site.stmt)


def alias(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Give two things the same bytes, or a ring fewer slots than its barriers have.

    What shares bytes is not swizzled: that would move elements to bytes that only addresses know.
    """
    for one, other in combinations(kernel.buffers, 2):
        moved = replace(other, offset=one.offset, swizzle=0)
        changed = redeclared(kernel, other, moved)
        changed = redeclared(changed, one, replace(one, swizzle=0))
        yield Mutant(f"{other.name} lies on {one.name}", changed, "alias", ("H74",))
    for barrier in kernel.barriers:
        for buffer in kernel.buffers:
            changed = redeclared(kernel, barrier, replace(barrier, offset=buffer.offset))
            changed = redeclared(changed, buffer, replace(buffer, swizzle=0))
            yield Mutant(f"{barrier.name} lies on {buffer.name}", changed, "alias", ("H74", "H11"))
    for buffer in kernel.buffers:
        if buffer.slots > 1:
            changed = _fewer(kernel, buffer)
            yield Mutant(f"a slot fewer in {buffer.name}", changed, "alias", ("H05", "H53"))


def _fewer(kernel: kir.Kernel, buffer: kir.Buffer) -> kir.Kernel:
    less = replace(buffer, slots=buffer.slots - 1)
    uses = {slot for slot in parts(kernel.body, kir.Slot) if slot.buffer == buffer}
    table: dict[object, object] = {
        slot: replace(slot, buffer=less, index=_turned(slot.index, buffer.slots)) for slot in uses
    }
    return replace(
        kernel,
        buffers=substituted(kernel.buffers, {buffer: less}),
        body=substituted(kernel.body, table),
    )


def _turned(at: Expr, slots: int) -> Expr:
    match at:
        case Op(Kind.MOD, a, b) if b == slots:
            return a % (slots - 1)
        case _:
            return at % (slots - 1)


def no_reset(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Leave a semaphore at another value than the next launch expects."""
    for site in syncs(kernel):
        stmt = site.stmt
        if not isinstance(stmt, kir.BlockSerializeRelease):
            continue
        match stmt.turn:
            case Op(Kind.MOD, following, turns):
                changed = edited(kernel, (stmt, (replace(stmt, turn=following),)))
                yield Mutant(f"no reset {site.words}", changed, "no_reset", ("H80",), stmt)
                silent = kir.IfThenElse(Op(Kind.LT, following, turns), (stmt,))
                changed = edited(kernel, (stmt, (silent,)))
                change = f"the last one is silent {site.words}"
                yield Mutant(change, changed, "no_reset", ("H80",), stmt)
            case _:
                pass


def promise(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Promise less about which CTAs run at once, or more about the bits that come out."""
    if kernel.residency != "any":
        changed = replace(kernel, residency="any")
        yield Mutant("any CTA may run first", changed, "promise", ("H84",))
    if kernel.determinism != "bitwise":
        changed = replace(kernel, determinism="bitwise")
        yield Mutant("the same bits always", changed, "promise", ("H83",))
