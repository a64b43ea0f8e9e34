"""Operators on how CTAs pass a semaphore on: too early, too weakly, by another thread, not reset.

A release must not go out while what it publishes is still being written: a bulk copy has to be
committed, awaited to its end by the thread that issued it, and joined with the writes of all other
threads before a release at gpu scope.  Each change breaks one of these rules; a few break none,
though they look as if they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from fuser.expr import Kind, Op
from fuser.kernel import ir as kir
from fuzz.mutation.hazards import rows
from fuzz.mutation.site import Change, Mutant, closed, edited, sites

S = TypeVar("S", bound=kir.Stmt)
_Edits = Iterator[tuple[str, tuple[Change, ...]]]


@dataclass(frozen=True, slots=True)
class _Release:
    """How a CTA's part ends: a barrier of the writers, an election, a release; `resets` to 0."""

    barrier: kir.BlockSync
    elect: kir.Elect
    stmt: kir.BlockSerializeRelease
    resets: tuple[kir.BlockSerializeRelease, ...]


def semaphore(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield each change that applies; none where no thread behind a barrier releases."""
    release = _release(kernel)
    if release is None:
        return
    for change, edits in (*_released(release), *_reset(release), *_copied(kernel, release)):
        changed = edited(kernel, *edits)
        if changed != kernel and closed(changed):
            yield Mutant(change, changed, "semaphore", rows(release.stmt), release.stmt)


def _released(at: _Release) -> _Edits:
    release, no_barrier = at.stmt, (at.barrier, ())
    elsewhere = (at.elect, (_second_warp(release),))
    relaxed = replace(release, relaxed=True)
    yield "no barrier before release", (no_barrier,)
    yield "release by another warp without a barrier", (elsewhere, no_barrier)
    yield "release by another warp", (elsewhere,)
    yield "relaxed release", ((release, (relaxed,)),)
    yield "release at cta scope", ((release, (replace(release, scope=kir.Scope.CTA),)),)
    for scope in (kir.Scope.CTA, kir.Scope.GPU):
        fenced = (kir.ThreadFence(scope), relaxed)
        yield f"relaxed release behind a {scope.value} fence", ((release, fenced),)


def _reset(at: _Release) -> _Edits:
    """Leave the semaphore at another value than the next launch waits for."""
    name, last = "semaphore not reset", at.stmt.turn
    if at.resets:
        yield name, tuple((one, (replace(one, turn=last),)) for one in at.resets)
    elif isinstance(last, Op) and last.kind is Kind.MOD:
        yield name, ((at.stmt, (replace(at.stmt, turn=last.a),)),)
        others = kir.IfThenElse(Op(Kind.LT, last.a, last.b), (at.stmt,))
        yield "last release left out", ((at.stmt, (others,)),)


def _copied(kernel: kir.Kernel, at: _Release) -> _Edits:
    """Release while bulk copies are under way; let other threads issue, await or fence them."""
    commit = _one(kernel, kir.AsyncCommit, kind=kir.AsyncKind.BULK)
    wait = _one(kernel, kir.AsyncAwait, kind=kir.AsyncKind.BULK, read_only=False)
    fence = _one(kernel, kir.FenceAsyncProxy, space=kir.Space.GLOBAL)
    acquire = _one(kernel, kir.BlockSerializeWait)
    elect = wait and _elect(kernel, wait)
    if not (commit and wait and fence and acquire and elect):
        return
    gone = (at.elect, ())
    yield "release before commit", ((commit, (at.stmt, commit)), gone)
    yield "await after release", ((wait, (at.stmt, wait)), gone)
    yield "no await", ((wait, ()),)
    yield "read-only await", ((wait, (replace(wait, read_only=True),)),)
    if elect.body[-1] is wait:
        alone = replace(elect, body=elect.body[:-1])
        yield "await by another thread", ((elect, (alone, _second_warp(wait))),)
    yield "no proxy fence", ((fence, ()),)
    yield "proxy fence before the acquire", ((acquire, (fence, acquire)), (fence, ()))
    yield "issued by a whole warp", ((elect, (kir.Role("warp0", 0, 1, elect.body),)),)
    yield "issued by a thread of each warp", ((elect, (replace(elect, per=kir.Per.WARP),)),)


def _second_warp(stmt: kir.Stmt) -> kir.Role:
    return kir.Role("warp1", 1, 1, (kir.Elect(kir.Per.ROLE, (stmt,)),))


def _release(kernel: kir.Kernel) -> _Release | None:
    every = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.BlockSerializeRelease)]
    resets = tuple(stmt for stmt in every if stmt.turn == 0)
    if len(every) != len(resets) + 1:
        return None
    (stmt,) = (stmt for stmt in every if stmt.turn != 0)
    elect = _elect(kernel, stmt)
    barrier = next((site.beside(-1) for site in sites(kernel) if site.stmt is elect), None)
    if elect is None or not isinstance(barrier, kir.BlockSync):
        return None
    return _Release(barrier, elect, stmt, resets)


def _one(kernel: kir.Kernel, of: type[S], **fields: object) -> S | None:
    """Return the only statement of a kind whose fields have these values, if it is the only one."""
    some = (stmt for stmt in kernel.walk() if isinstance(stmt, of))
    found = [stmt for stmt in some if all(getattr(stmt, n) == v for n, v in fields.items())]
    return found[0] if len(found) == 1 else None


def _elect(kernel: kir.Kernel, stmt: kir.Stmt) -> kir.Elect | None:
    return next(site.elect for site in sites(kernel) if site.stmt is stmt)
