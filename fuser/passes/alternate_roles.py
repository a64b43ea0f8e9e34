"""Pass: roles that use one ring alternately wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.expr import Kind, Op
from fuser.kernel import ir as kir
from fuser.passes.rings import Body


def alternate_roles(kernel: kir.Kernel) -> kir.Kernel:
    """Let two roles that take tiles alternately enter the ring one after the other.

    A wait for a parity cannot tell a phase from the one two before it: a role that ran ahead of
    the other would take the other's phase for its own.  So each waits at `order[me]` before its
    part of the ring and lets the other in behind them, a warp at a time: its lanes join, so that
    none of them is still to look at a phase, and one arrives.  What is left in flight does not
    matter, so one role multiplies while the other stores.
    """
    roles = [stmt for stmt in kernel.body if isinstance(stmt, kir.Role)]
    mine = {role.name: tiles for role in roles if (tiles := _alternate(role.body)) is not None}
    if not mine:
        return kernel
    warps = next(role.warps for role in roles if role.name in mine)
    order = kir.MBarrier("order", warps, 2)
    body = tuple(
        replace(stmt, body=_ordered(stmt.body, mine[stmt.name], order))
        if isinstance(stmt, kir.Role) and stmt.name in mine
        else stmt
        for stmt in kernel.body
    )
    return replace(kernel, body=body, barriers=(*kernel.barriers, order))


@dataclass(frozen=True, slots=True)
class _Alternate:
    """The iterations `me`, `me + 2`, ... of a loop."""

    loop: kir.ForLoop
    me: int


def _alternate(body: Body) -> _Alternate | None:
    """Return which iterations a role takes, if it shares rings with another one."""
    for stmt in body:
        match stmt:
            case kir.ForLoop(
                index, _, (kir.IfThenElse(Op(Kind.EQ, Op(Kind.MOD, a, 2), int(me)), then),)
            ):
                asked = any(
                    isinstance(s, kir.ForLoop)
                    and s.circular is not None
                    and s.circular.specialized is not None
                    and s.circular.specialized.ping_pong
                    for s in then
                )
                if a == index and asked:
                    return _Alternate(stmt, me)
            case _:
                pass
    return None


def _ordered(body: Body, tiles: _Alternate, order: kir.MBarrier) -> Body:
    (mine,) = tiles.loop.body
    assert isinstance(mine, kir.IfThenElse), "an iteration is guarded by whose it is"
    rings = [n for n, s in enumerate(mine.then) if isinstance(s, kir.ForLoop) and s.circular]
    first, last = rings[0], rings[-1] + 1
    parity = (tiles.loop.index // 2 + (1 + tiles.me)) % 2
    enter = kir.MBarrierWaitParity(order, tiles.me, parity)
    leave = kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(order, 1 - tiles.me),))
    then = (*mine.then[:first], enter, *mine.then[first:last], kir.WarpSync(), leave)
    mine = replace(mine, then=(*then, *mine.then[last:]))
    return tuple(replace(s, body=(mine,)) if s is tiles.loop else s for s in body)
