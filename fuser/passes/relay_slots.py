"""Pass: CTA 0 of a cluster, which fills slots of all CTAs, learns when they are free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.passes.rings import Body, Place, each_body, wait_turn


def relay_slots(kernel: kir.Kernel) -> kir.Kernel:
    """Let a thread of each other CTA pass on to CTA 0 that a slot was handed back.

    It waits at its own CTA's `empty` barrier and arrives at CTA 0's `shared` one; CTA 0 waits for
    that before it loads for all.  None can be a turn ahead: it would wait for CTA 0's next load.

    The reading warps could arrive at CTA 0 themselves, but a release at cluster scope makes the
    hardware finish all memory accesses of its thread first: that cost a third of a matmul's speed
    on an H200.
    """
    shared = {
        stmt.barrier.name: kir.MBarrier(
            stmt.barrier.name.replace("full", "shared"), kernel.cluster - 1, stmt.barrier.slots
        )
        for stmt in kernel.walk()
        if _for_all(stmt)
    }
    if not shared:
        return kernel
    empty = {b.name.replace("empty", "full"): b for b in kernel.barriers if b.name[:5] == "empty"}
    relaying = _Relaying(empty, shared)
    body = tuple(
        relaying.role(stmt) if isinstance(stmt, kir.Role) and _loads_for_all(stmt.body) else stmt
        for stmt in each_body(kernel.body, relaying.waits, Place())
    )
    return replace(kernel, body=body, barriers=(*kernel.barriers, *shared.values()))


def _for_all(stmt: kir.Stmt) -> TypeGuard[kir.TmaLoad]:
    return isinstance(stmt, kir.TmaLoad) and stmt.multicast is not None


def _loads_for_all(body: Body) -> bool:
    return any(map(_for_all, kir.walk(body)))


@dataclass(frozen=True, slots=True)
class _Relaying:
    """By the name of the barrier that tells of the loads."""

    empty: dict[str, kir.MBarrier]
    shared: dict[str, kir.MBarrier]

    def waits(self, body: Body, place: Place) -> Body:
        """Let CTA 0 wait before it loads for all."""
        out: list[kir.Stmt] = []
        first = next(filter(_for_all, body), None)
        for stmt in body:
            if _for_all(stmt) and stmt is first:
                barrier = self.shared[stmt.barrier.name]
                wait = wait_turn(barrier, stmt.slot, place.position, turn=1)
                out.append(replace(wait, scope=kir.Scope.CLUSTER))
            out.append(stmt)
        return tuple(out)

    def role(self, role: kir.Role) -> kir.Role:
        """Give the second warp of a load role the task of the relay."""
        *first, loads = role.body
        assert isinstance(loads, kir.Elect), "TMA loads are issued by one thread"
        turns = kir.Elect(kir.Per.ROLE, self._turns(loads.body, 0))
        others = kir.IfThenElse(kir.RANK >= 1, (turns,))
        loader = kir.Role("loader", role.first_warp, 1, (loads,))
        relay = kir.Role("relay", role.first_warp + 1, 1, (others,))
        return replace(role, body=(*first, loader, relay))

    def _turns(self, body: Body, position: Expr) -> Body:
        """Walk the loops of the loads; where one loads for all, pass a slot on instead."""
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.Let() | kir.Assign():
                    out.append(replace(stmt))
                case kir.ForLoop(index, _, inner) if _loads_for_all(inner):
                    own = (stmt.circular and stmt.circular.position) or index
                    out.append(replace(stmt, body=self._turns(inner, own)))
                case kir.IfThenElse(_, then) if _loads_for_all(then):
                    out += self._passed(next(filter(_for_all, then)), position)
                case _:
                    pass
        return tuple(out)

    def _passed(self, load: kir.TmaLoad, position: Expr) -> list[kir.Stmt]:
        name = load.barrier.name
        arrive = kir.MBarrierArrive(self.shared[name], load.slot, kir.Scope.CLUSTER, 0)
        return [wait_turn(self.empty[name], load.slot, position, turn=0), arrive]
