"""Passes: how the end of every wgmma is observed, by what the statements touch.

Two reasons to wait.  RAW: a result is used; then all groups are flushed, once, and by no commit of
its own.  WAR: a slot is to be loaded again; then as many groups as the ring has slots to spare
stay in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from fuser.kernel import ir as kir
from fuser.passes.effects import accumulates, fragments, names, reads, sharers, writes

Body = tuple[kir.Stmt, ...]
Names = frozenset[str]
NONE: Names = frozenset()


def group_wgmma(kernel: kir.Kernel) -> kir.Kernel:
    """Fence and commit every run of wgmmas, and await what its ring needs back.

    Neighbours make one group, so that two products in one loop are committed and awaited together.
    In iteration `i + 1` the slot of iteration `i + 1 + prefetch - stages` is filled again, or
    handed back already behind iteration `i`: by then all but the latest `stages - prefetch - 1`
    groups have been awaited.  The wait stands right behind the commit: the assembler serialises
    some loops that have it at the top of the next iteration.  An A that is computed in every
    iteration is overwritten: it waits for the iteration before, as late as it can, and that wait is
    `flush_wgmma`'s.

    Source: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
    """
    body = _grouped(kernel.body, None)
    loads = (stmt for stmt in kernel.walk() if isinstance(stmt, kir.TmaLoad))
    spread = any(load.multicast is not None for load in loads)
    return replace(kernel, body=_settled(body) if spread else body)


def _settled(body: Body) -> Body:
    """Flush behind every ring but the last of a body, so that all its slots go back at once.

    Where CTA 0 of a cluster fills slots of all, it learns of free ones in the order in which they
    are filled: a ring that kept some back while the next one runs would keep the news of that one
    back as well.
    """
    out: list[kir.Stmt] = []
    for n, stmt in enumerate(body):
        out.append(kir.inside(stmt, _settled))
        later = any(isinstance(other, kir.ForLoop) for other in body[n + 1 :])
        if later and isinstance(stmt, kir.ForLoop) and any(map(accumulates, stmt.body)):
            out.append(kir.AsyncAwait(kir.AsyncKind.WGMMA, 0))
    return tuple(out)


def _grouped(body: Body, loop: kir.ForLoop | None) -> Body:
    out: list[kir.Stmt] = []
    request = loop.circular if loop is not None else None
    for n, stmt in enumerate(body):
        before = body[n - 1] if n else None
        after = body[n + 1] if n + 1 < len(body) else None
        if accumulates(stmt) and not (before is not None and accumulates(before)):
            out.append(kir.WgmmaFence())
        around = stmt if isinstance(stmt, kir.ForLoop) else None
        out.append(kir.inside(stmt, partial(_grouped, loop=around)))
        if accumulates(stmt) and not (after is not None and accumulates(after)):
            out.append(kir.AsyncCommit(kir.AsyncKind.WGMMA))
            if request is not None and not (request.spare and _made_here(body)):
                out.append(kir.AsyncAwait(kir.AsyncKind.WGMMA, request.spare))
    return tuple(out)


def _made_here(body: Body) -> bool:
    """Tell whether a body computes an A that it multiplies: the wait for that awaits all groups."""
    first = {s.a.name for s in body if isinstance(s, kir.Wgmma) and isinstance(s.a, kir.Fragment)}
    return any(first & fragments(stmt) for stmt in body)


def flush_wgmma(kernel: kir.Kernel) -> kir.Kernel:
    """Await all groups before the first use of a fragment that one of them touches.

    And before the slots that they read begin another life, as another buffer, outside of the loop
    that fills that one; within one life a ring hands its slots on.
    One flush serves all uses that follow, until the next wgmma arms it again; where only one branch
    uses a result, the flush stands in it.  What an iteration of an outer loop, or a role, leaves
    unfinished is flushed at its end.
    """
    body, pending = _flushed(kernel.body, NONE, sharers(kernel))
    return replace(kernel, body=(*body, *_flush(pending)))


def _flush(pending: Names) -> Body:
    return (kir.AsyncAwait(kir.AsyncKind.WGMMA, 0),) if pending else ()


def _flushed(body: Body, pending: Names, over: Mapping[str, Names]) -> tuple[Body, Names]:
    """Return the body with its flushes, and what is not to be touched after it without one.

    That are names of fragments, and of buffers over bytes that groups may still read.
    """
    out: list[kir.Stmt] = []
    for stmt in body:
        match stmt:
            case kir.Wgmma(acc, a):
                pending |= {acc.name, a.name} if isinstance(a, kir.Fragment) else {acc.name}
                own = names(reads(stmt))
                pending |= NONE.union(*(over[name] for name in own)) - own
                out.append(stmt)
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                pending = NONE
                out.append(stmt)
            case kir.ForLoop(_, _, inner):
                if pending & _written(stmt):
                    out += _flush(pending)
                    pending = NONE
                inner, pending = _loop(inner, pending, over)
                out.append(replace(stmt, body=inner))
            case kir.IfThenElse(_, then, orelse):
                then, after_then = _flushed(then, pending, over)
                orelse, after_else = _flushed(orelse, pending, over)
                pending = after_then | after_else
                out.append(replace(stmt, then=then, orelse=orelse))
            case kir.Role(_, _, _, inner):
                inner, left = _flushed(inner, NONE, over)
                out.append(replace(stmt, body=(*inner, *_flush(left))))
            case _:
                if pending & (fragments(stmt) | _written(stmt)):
                    out += _flush(pending)
                    pending = NONE
                out.append(stmt)
    return tuple(out), pending


def _written(stmt: kir.Stmt) -> Names:
    """Return the names of the buffers that a statement writes, or those inside of it."""
    return NONE.union(*(names(writes(inner)) for inner in kir.walk((stmt,))))


def _loop(inner: Body, entry: Names, over: Mapping[str, Names]) -> tuple[Body, Names]:
    outer = any(isinstance(stmt, kir.ForLoop) for stmt in kir.walk(inner))
    while True:
        new, leave = _flushed(inner, entry, over)
        if outer:
            new, leave = (*new, *_flush(leave)), NONE
        if leave <= entry:
            return new, entry
        entry |= leave
