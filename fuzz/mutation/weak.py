"""Operators on how much a sync does: weaker scopes and waits, guards, proxy fences.

Each is a generator over a kernel; `fuzz.mutation.operators` names them and drops what is no mutant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.expr import Expr, Kind, Op, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuzz.mutation.order import behind
from fuzz.mutation.site import Mutant, Site, edited, rows, sites, synchronises, syncs

_CTA, _CLUSTER, _GPU = kir.Scope.CTA, kir.Scope.CLUSTER, kir.Scope.GPU
_BULK = kir.AsyncKind.BULK


def weaken(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let one sync do less than it does."""
    for site in syncs(kernel):
        for words, weaker, hazards in _weaker(site.stmt):
            changed = edited(kernel, (site.stmt, (weaker,)))
            yield Mutant(f"{words} {site.words}", changed, "weaken", hazards, site.stmt)


def _weaker(stmt: kir.Stmt) -> Iterator[tuple[str, kir.Stmt, tuple[str, ...]]]:
    match stmt:
        case kir.AsyncAwait(kind, keep, read_only):
            row = {
                kir.AsyncKind.BULK: "H44",
                kir.AsyncKind.CP_ASYNC: "H50",
                kir.AsyncKind.WGMMA: "H06",
            }[kind]
            yield "keep one more", replace(stmt, keep=keep + 1), (row,)
            if kind is _BULK and not read_only:
                yield "read only", replace(stmt, read_only=True), ("H41",)
        case kir.MBarrierArrive(_, _, scope):
            if scope is _CLUSTER:
                yield "scope cta", replace(stmt, scope=_CTA), ("H64",)
        case kir.MBarrierWaitParity(_, _, _, scope, retry):
            if scope is _CLUSTER:
                yield "scope cta", replace(stmt, scope=_CTA), ("H64",)
            if retry:
                yield "no retry", replace(stmt, retry=False), ("H17",)
        case kir.BlockSerializeWait(_, _, _, scope):
            if scope is _GPU:
                yield "scope cta", replace(stmt, scope=_CTA), ("H81",)
        case kir.BlockSerializeRelease(_, _, _, scope, relaxed):
            if scope is _GPU:
                yield "scope cta", replace(stmt, scope=_CTA), ("H81",)
            if not relaxed:
                yield "relaxed", replace(stmt, relaxed=True), ("H81",)
        case kir.ThreadFence(scope):
            for narrower in {_GPU: (_CLUSTER, _CTA), _CLUSTER: (_CTA,), _CTA: ()}[scope]:
                yield f"scope {narrower.value}", kir.ThreadFence(narrower), ("H81",)
        case kir.FenceAsyncProxy(space):
            for other in (kir.Space.SHARED, kir.Space.GLOBAL):
                if other is not space:
                    yield f"space {other.value}", kir.FenceAsyncProxy(other), ("H33",)
        case kir.ClusterArrive(relaxed):
            if not relaxed:
                yield "relaxed", kir.ClusterArrive(relaxed=True), ("H64",)
        case kir.BlockSync():
            yield "only each warp", kir.WarpSync(), ("H70",)
        case kir.CpAsyncMBarrierArrive(barrier, slot, noinc):
            yield "at once", kir.MBarrierArrive(barrier, slot), ("H52",)
            yield "the other count", replace(stmt, noinc=not noinc), ("H52",)
        case kir.SetMaxNReg(registers):
            for by in (-8, 8):
                yield f"{by:+d}", replace(stmt, registers=registers + by), ("H75",)
        case _:
            pass


def predicate(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Drop a guard, add one, or shift one on one side only."""
    for site in sites(kernel):
        stmt = site.stmt
        if synchronises(stmt):
            yield from _by_rank(kernel, site)
        if isinstance(stmt, kir.IfThenElse):
            if not stmt.orelse:
                changed = edited(kernel, (stmt, stmt.then))
                yield Mutant(f"no guard {site.words}", changed, "predicate", ("H12", "H13"), stmt)
            for words, condition in _shifted(stmt.condition):
                changed = edited(kernel, (stmt, (replace(stmt, condition=condition),)))
                change = f"guard {words} {site.words}"
                yield Mutant(change, changed, "predicate", ("H12", "H13"), stmt)
        elif synchronises(stmt) and site.loops:
            loop = site.loops[-1]
            for condition in (loop.index >= 1, loop.index + 1 < loop.stop):
                changed = edited(kernel, (stmt, (kir.IfThenElse(condition, (stmt,)),)))
                change = f"only if {condition} {site.words}"
                yield Mutant(change, changed, "predicate", ("H12", *rows(stmt)), stmt)


def _by_rank(kernel: kir.Kernel, site: Site) -> Iterator[Mutant]:
    """Let only one CTA of a cluster do what each has to do."""
    if kernel.cluster > 1:
        changed = edited(kernel, (site.stmt, (kir.IfThenElse(eq(kir.RANK, 0), (site.stmt,)),)))
        change = f"only in CTA 0 {site.words}"
        yield Mutant(change, changed, "predicate", ("H12", *rows(site.stmt)), site.stmt)


def _shifted(condition: Expr) -> Iterator[tuple[str, Expr]]:
    """Shift a comparison by one either way, or turn an equality round."""
    match condition:
        case Op(Kind.LT | Kind.LE, a, b):
            yield "one later", Op(condition.kind, a, b + 1)
            yield "one earlier", Op(condition.kind, a + 1, b)
        case Op(Kind.EQ):
            yield "reversed", Op(Kind.EQ, condition, 0)
        case Op(Kind.AND, a, b):
            yield "left part only", a
            yield "right part only", b
        case _:
            pass


def proxy(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Put a proxy fence where it comes too late, too early, or too few threads execute it."""
    for site in syncs(kernel):
        stmt = site.stmt
        if not isinstance(stmt, kir.FenceAsyncProxy):
            continue
        later = (s for s in site.body[site.index + 1 :] if synchronises(s))
        for other in later:
            changed = behind(kernel, site, other)
            change = f"fence behind `{line(other)}` {site.words}"
            yield Mutant(change, changed, "proxy", ("H33",), stmt)
        before = site.beside(-1)
        if before is not None:
            changed = edited(kernel, (before, (stmt, before)), (stmt, ()))
            change = f"fence before `{line(before)}` {site.words}"
            yield Mutant(change, changed, "proxy", ("H33",), stmt)
        if site.elect is None:
            for per in kir.Per:
                changed = edited(kernel, (stmt, (kir.Elect(per, (stmt,)),)))
                change = f"by one thread per {per.value} {site.words}"
                yield Mutant(change, changed, "proxy", ("H33",), stmt)
        changed = edited(kernel, (stmt, ()))
        yield Mutant(f"no fence {site.words}", changed, "proxy", ("H30", "H34"), stmt)
