"""Operators on numbers: counts and bytes, phases, indices, trip counts, and a late beginning.

Each is a generator over a kernel; `fuzz.mutation.operators` names them and drops what is no mutant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from fuzz.mutation.site import (
    Mutant,
    Site,
    edited,
    parts,
    redeclared,
    rows,
    sites,
    substituted,
    synchronises,
)

LATE = 40
"""First iteration at which a sync is missing in the mutants of `stages`."""


def count(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Change what a barrier counts to: arrivals, bytes, threads."""
    shares = {1, kir.WARP}
    for site in sites(kernel):
        if isinstance(site.stmt, kir.Role):
            shares |= {site.stmt.warps, site.stmt.warps * kir.WARP}
    for barrier in kernel.barriers:
        for by in sorted(shares | {-share for share in shares}):
            if barrier.arrivals + by >= 1:
                changed = redeclared(
                    kernel, barrier, replace(barrier, arrivals=barrier.arrivals + by)
                )
                change = f"arrivals {by:+d} of {barrier.name}"
                yield Mutant(change, changed, "count", ("H09",))
    for site in sites(kernel):
        for words, stmt, row in _counted(kernel, site.stmt):
            changed = edited(kernel, (site.stmt, (stmt,)))
            yield Mutant(f"{words} {site.words}", changed, "count", (row,), site.stmt)


def _counted(kernel: kir.Kernel, stmt: kir.Stmt) -> Iterator[tuple[str, kir.Stmt, str]]:
    match stmt:
        case kir.MBarrierArriveExpectTx(_, _, nbytes) | kir.MBarrierExpectTx(_, _, nbytes):
            for other in (nbytes - 16, nbytes + 16, nbytes // 2, nbytes * 2):
                if other > 0:
                    yield f"expect {other}", replace(stmt, nbytes=other), "H08"
        case kir.BlockSync(_, threads) | kir.NamedArrive(_, threads):
            for other in (threads - kir.WARP, threads + kir.WARP):
                if 0 < other <= kernel.threads:
                    yield f"threads {other}", replace(stmt, threads=other), "H72"
            part = threads - kir.WARP // 2
            yield f"threads {part}, part of a warp", replace(stmt, threads=part), "H73"
        case kir.LastArriving():
            yield "ctas -1", replace(stmt, ctas=stmt.ctas - 1), "H80"
            yield "ctas +1", replace(stmt, ctas=stmt.ctas + 1), "H80"
        case _:
            pass


def phase(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let a wait look for another phase, or a position not be carried on."""
    lets = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Let)}
    for site in sites(kernel):
        match site.stmt:
            case kir.MBarrierWaitParity(_, _, parity):
                for words, other in _parities(site, parity, lets):
                    changed = edited(kernel, (site.stmt, (replace(site.stmt, parity=other),)))
                    change = f"parity {words} {site.words}"
                    yield Mutant(change, changed, "phase", ("H03", "H15"), site.stmt)
            case kir.Assign(var):
                changed = edited(kernel, (site.stmt, ()))
                change = f"position stays {site.words}"
                yield Mutant(change, changed, "phase", ("H03", "H15"), site.stmt)
                for loop in site.loops:
                    again = replace(loop, body=(kir.Assign(var, 0), *loop.body))
                    changed = edited(kernel, (loop, (again,)))
                    change = f"position restarts in `{loop.index}` {site.words}"
                    yield Mutant(change, changed, "phase", ("H03", "H15"), site.stmt)
            case _:
                pass


def _parities(site: Site, parity: Expr, lets: set[Var]) -> Iterator[tuple[str, Expr]]:
    yield "flipped", (parity + 1) % 2
    if not isinstance(parity, int):
        yield "constant 0", 0
        yield "constant 1", 1
    for running in sorted(variables(parity) & lets, key=str):
        for loop in reversed(site.loops):
            inner = substituted(parity, {running: loop.index})
            yield f"from {loop.index} instead of {running}", inner
            break


def index(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Use the next slot, other columns, the sum of another step, or no prefetch distance."""
    for site in sites(kernel):
        stmt = site.stmt
        if kir.bodies(stmt):
            continue
        for slot in dict.fromkeys(parts(stmt, kir.Slot)):
            if slot.buffer.slots > 1:
                other = replace(slot, index=(slot.index + 1) % slot.buffer.slots)
                changed = edited(kernel, (stmt, (substituted(stmt, {slot: other}),)))
                change = f"next slot of {slot.buffer.name} {site.words}"
                yield Mutant(change, changed, "index", ("H02", "H05"), stmt)
        match stmt:
            case (
                kir.MBarrierArrive(barrier, at)
                | kir.MBarrierArriveExpectTx(barrier, at)
                | kir.MBarrierExpectTx(barrier, at)
                | kir.MBarrierWaitParity(barrier, at)
                | kir.CpAsyncMBarrierArrive(barrier, at)
                | kir.TmaLoad(_, _, barrier, at)
            ):
                if barrier.slots > 1:
                    changed = edited(
                        kernel, (stmt, (replace(stmt, slot=(at + 1) % barrier.slots),))
                    )
                    change = f"next slot of {barrier.name} {site.words}"
                    yield Mutant(change, changed, "index", ("H02",), stmt)
            case _:
                pass
        yield from _no_prefetch(kernel, site)
        yield from _other_columns(kernel, site)
        yield from _other_sums(kernel, site)


def _no_prefetch(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Load tile k where tile k + distance is meant: only values can tell."""
    stmt = site.stmt
    if not isinstance(stmt, kir.TmaLoad | kir.CpAsync) or not site.loops:
        return
    k = site.loops[-1].index
    origin = tuple(_without_distance(expr, k) for expr in stmt.src.origin)
    if origin != stmt.src.origin:
        changed = edited(kernel, (stmt, (replace(stmt, src=replace(stmt.src, origin=origin)),)))
        yield Mutant(f"no prefetch distance {site.words}", changed, "index", (), stmt)


def _other_columns(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Take the columns beside those that are meant: only values can tell."""
    match site.stmt:
        case kir.Slice(dst, src, column):
            width = dst.layout.shape[-1]
            for other in (column - width, column + width):
                if 0 <= other <= src.layout.shape[-1] - width:
                    changed = edited(kernel, (site.stmt, (replace(site.stmt, column=other),)))
                    change = f"columns from {other} {site.words}"
                    yield Mutant(change, changed, "index", (), site.stmt)
        case _:
            pass


def _other_sums(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Begin a sum at another step, never, or in every step: mostly only values can tell."""
    match site.stmt:
        case kir.Wgmma(accumulate=since):
            others: dict[str, Expr] = {"never": 0, "always": 1}
            if isinstance(since, Op) and since.kind in (Kind.LT, Kind.LE):
                others["a step later"] = Op(since.kind, since.a, since.b - 1)
            for words, other in others.items():
                if other != since:
                    changed = edited(kernel, (site.stmt, (replace(site.stmt, accumulate=other),)))
                    change = f"added up {words} {site.words}"
                    yield Mutant(change, changed, "index", (), site.stmt)
        case _:
            pass


def _without_distance(expr: Expr, k: Var) -> Expr:
    match expr:
        case Op(Kind.ADD, a, int()) if a == k:
            return k
        case Op(kind, a, b):
            return Op(kind, _without_distance(a, k), _without_distance(b, k))
        case _:
            return expr


def trip(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Run a loop once more, or without its first or last iteration."""
    for site in sites(kernel):
        loop = site.stmt
        if not isinstance(loop, kir.ForLoop):
            continue
        more = replace(loop, stop=loop.stop + 1)
        yield Mutant(
            f"once more {site.words}", edited(kernel, (loop, (more,))), "trip", ("H13", "H16"), loop
        )
        for words, condition in (
            ("no last", loop.index + 1 < loop.stop),
            ("no first", loop.index >= 1),
        ):
            guarded = replace(loop, body=(kir.IfThenElse(condition, loop.body),))
            changed = edited(kernel, (loop, (guarded,)))
            yield Mutant(f"{words} {site.words}", changed, "trip", ("H13", "H16"), loop)


def stages(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Skip a sync from a late iteration on, which no short run can show."""
    for site in sites(kernel):
        if synchronises(site.stmt) and site.loops:
            early = kir.IfThenElse(site.loops[-1].index < LATE, (site.stmt,))
            changed = edited(kernel, (site.stmt, (early,)))
            change = f"not from {LATE} on {site.words}"
            yield Mutant(change, changed, "stages", rows(site.stmt), site.stmt)
