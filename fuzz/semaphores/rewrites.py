"""Changes to how a kernel gives a turn on: small rewrites, which refuse where they do not apply.

`fuzz.semaphores.family` names them and says of each what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op
from fuser.kernel import ir as kir
from fuzz.mutation.site import Site, edited, sites

Rewrite = Callable[[kir.Kernel], kir.Kernel]


class RewriteError(ValueError):
    """A change that does not apply to a kernel: what it needs is not there, or there twice."""


# --- places -------------------------------------------------------------------------------------


def only(kernel: kir.Kernel, of: type[kir.Stmt], /, **fields: object) -> Site:
    """Return the one statement of a kind whose fields have these values.

    Raises
    ------
    RewriteError
        If there is none, or several.
    """
    found = [
        site
        for site in sites(kernel)
        if isinstance(site.stmt, of)
        and all(getattr(site.stmt, name) == value for name, value in fields.items())
    ]
    if len(found) != 1:
        asked = ", ".join([of.__name__, *(f"{name}={value}" for name, value in fields.items())])
        raise RewriteError(
            f"only({kernel.name}, {asked}): {len(found)} such statements, a rewrite needs 1; "
            "aim it at another kernel"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class _Release:
    """The end of a turn: a barrier that collects the writers, an election, and the release."""

    barrier: kir.Stmt
    elect: kir.Elect
    stmt: kir.BlockSerializeRelease


def _resets(kernel: kir.Kernel) -> list[kir.BlockSerializeRelease]:
    """Return the releases that only the last CTA of a tile executes, which set 0."""
    stmts = (s for s in kernel.walk() if isinstance(s, kir.BlockSerializeRelease))
    return [stmt for stmt in stmts if stmt.turn == 0]


def _release(kernel: kir.Kernel) -> _Release:
    resets = _resets(kernel)
    site = only(kernel.rewrite(lambda s: [] if s in resets else None), kir.BlockSerializeRelease)
    site = next(one for one in sites(kernel) if one.stmt is site.stmt)
    elect = site.elect
    outer = None if elect is None else next(s for s in sites(kernel) if s.stmt is elect)
    barrier = None if outer is None else outer.beside(-1)
    if not isinstance(site.stmt, kir.BlockSerializeRelease) or elect is None:
        raise RewriteError(f"{kernel.name}: the release is not by one thread; elect one")
    if not isinstance(barrier, kir.BlockSync):
        raise RewriteError(f"{kernel.name}: no BlockSync stands before the release; put one there")
    return _Release(barrier, elect, site.stmt)


def _await(kernel: kir.Kernel) -> Site:
    return only(kernel, kir.AsyncAwait, kind=kir.AsyncKind.BULK, read_only=False)


def _issue(kernel: kir.Kernel) -> kir.Elect:
    """Return the election in which bulk copies are issued, committed and awaited."""
    elect = _await(kernel).elect
    if elect is None:
        raise RewriteError(f"{kernel.name}: bulk copies are not by one thread; elect one")
    return elect


def _second_warp(*body: kir.Stmt) -> kir.Role:
    return kir.Role("warp1", 1, 1, (kir.Elect(kir.Per.ROLE, body),))


# --- rewrites -----------------------------------------------------------------------------------


def unchanged(kernel: kir.Kernel) -> kir.Kernel:
    """Return the kernel as it is."""
    return kernel


def release_before_commit(kernel: kir.Kernel) -> kir.Kernel:
    """Give the turn on between the issue of the bulk copies and their commit."""
    commit, release = only(kernel, kir.AsyncCommit, kind=kir.AsyncKind.BULK), _release(kernel)
    return edited(kernel, (commit.stmt, (release.stmt, commit.stmt)), (release.elect, ()))


def release_before_await(kernel: kir.Kernel) -> kir.Kernel:
    """Give the turn on between the commit of the bulk copies and their await."""
    site, release = _await(kernel), _release(kernel)
    return edited(kernel, (site.stmt, (release.stmt, site.stmt)), (release.elect, ()))


def no_await(kernel: kir.Kernel) -> kir.Kernel:
    """Leave the await of the bulk copies out."""
    return edited(kernel, (_await(kernel).stmt, ()))


def read_only_await(kernel: kir.Kernel) -> kir.Kernel:
    """Await the bulk copies until they have read their sources."""
    stmt = _await(kernel).stmt
    assert isinstance(stmt, kir.AsyncAwait), "what was asked for"
    return edited(kernel, (stmt, (replace(stmt, read_only=True),)))


def await_elsewhere(kernel: kir.Kernel) -> kir.Kernel:
    """Let a thread of the second warp await what the elected thread issued."""
    stmt, issue = _await(kernel).stmt, _issue(kernel)
    if issue.body[-1] is not stmt:
        raise RewriteError(f"{kernel.name}: the await is not the last of its election; put it last")
    return edited(kernel, (issue, (replace(issue, body=issue.body[:-1]), _second_warp(stmt))))


def no_barrier(kernel: kir.Kernel) -> kir.Kernel:
    """Leave the barrier before the release out."""
    return edited(kernel, (_release(kernel).barrier, ()))


def release_elsewhere(kernel: kir.Kernel, *, barrier: bool) -> kir.Kernel:
    """Let a thread of the second warp release, with or without the barrier before it."""
    release = _release(kernel)
    moved = edited(kernel, (release.elect, (_second_warp(release.stmt),)))
    return moved if barrier else edited(moved, (release.barrier, ()))


def weaker_release(
    kernel: kir.Kernel, *, relaxed: bool = False, scope: kir.Scope = kir.Scope.GPU
) -> kir.Kernel:
    """Release with less order, or for fewer threads."""
    stmt = _release(kernel).stmt
    return edited(kernel, (stmt, (replace(stmt, relaxed=relaxed, scope=scope),)))


def fenced_release(kernel: kir.Kernel, scope: kir.Scope) -> kir.Kernel:
    """Release relaxed, behind a fence of some scope by the same thread."""
    stmt = _release(kernel).stmt
    fence = kir.ThreadFence(scope)
    return edited(kernel, (stmt, (fence, replace(stmt, relaxed=True))))


def no_proxy_fence(kernel: kir.Kernel) -> kir.Kernel:
    """Leave the proxy fence between the acquire and the reduction out."""
    fence = only(kernel, kir.FenceAsyncProxy, space=kir.Space.GLOBAL)
    return edited(kernel, (fence.stmt, ()))


def early_proxy_fence(kernel: kir.Kernel) -> kir.Kernel:
    """Put the proxy fence before the acquire."""
    fence = only(kernel, kir.FenceAsyncProxy, space=kir.Space.GLOBAL).stmt
    wait = only(kernel, kir.BlockSerializeWait).stmt
    return edited(kernel, (wait, (fence, wait)), (fence, ()))


def issued_by_warp(kernel: kir.Kernel) -> kir.Kernel:
    """Let all lanes of the first warp issue, commit and await."""
    issue = _issue(kernel)
    return edited(kernel, (issue, (kir.Role("warp0", 0, 1, issue.body),)))


def issued_per_warp(kernel: kir.Kernel) -> kir.Kernel:
    """Let one thread of each warp issue, commit and await."""
    issue = _issue(kernel)
    return edited(kernel, (issue, (replace(issue, per=kir.Per.WARP),)))


def no_reset(kernel: kir.Kernel) -> kir.Kernel:
    """Let the last CTA of a tile count on instead of going back to 0."""
    stmt = _release(kernel).stmt
    resets = _resets(kernel)
    if resets:
        return edited(kernel, *((one, (replace(one, turn=stmt.turn),)) for one in resets))
    following, _ = _counted(kernel, stmt)
    return edited(kernel, (stmt, (replace(stmt, turn=following),)))


def silent_last(kernel: kir.Kernel) -> kir.Kernel:
    """Let the last CTA of a tile release nothing."""
    stmt = _release(kernel).stmt
    following, turns = _counted(kernel, stmt)
    return edited(kernel, (stmt, (kir.IfThenElse(Op(Kind.LT, following, turns), (stmt,)),)))


def _counted(kernel: kir.Kernel, stmt: kir.BlockSerializeRelease) -> tuple[Expr, Expr]:
    """Return the turn that follows and the number of turns."""
    match stmt.turn:
        case Op(Kind.MOD, following, turns):
            return following, turns
        case _:
            raise RewriteError(
                f"{kernel.name}: the release sets {stmt.turn}, which does not go back to 0; "
                "release (turn + 1) % turns"
            )
