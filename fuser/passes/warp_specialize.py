"""Passes: a load role beside the computing warps; two computing roles take tiles alternately."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.arch import launch_registers
from fuser.expr import Expr, Kind, Op, Var, eq, substitute
from fuser.kernel import ir as kir
from fuser.passes.effects import fills, moved, names, writes
from fuser.passes.overlay import placed

Body = tuple[kir.Stmt, ...]


def warp_specialize(kernel: kir.Kernel) -> kir.Kernel:
    """Split a kernel whose loops ask for it into a load role and one or two computing ones.

    The load role issues the copies into rings, by one elected thread where an engine moves them;
    everything else is done by the computing roles.  All walk the same turns, compute their own
    tile numbers and count the positions of rings for themselves.  The split begins with the first
    statement that holds an asking loop; what stands before it is done by all threads.
    """
    asked = [_request(stmt) for stmt in kernel.body]
    first = next((n for n, request in enumerate(asked) if request is not None), None)
    if first is None:
        return kernel
    request = next(r for r in asked if r is not None)
    shared, split = kernel.body[:first], kernel.body[first:]
    warps = kernel.threads // kir.WARP
    roles = 2 if request.ping_pong else 1
    loads = _loading(split)
    copies = [stmt for stmt in kir.walk(loads) if isinstance(stmt, kir.Copy)]
    if not any(copy.engine.of_threads for copy in copies):
        loads = (kir.Elect(kir.Per.ROLE, loads),)
    computing = _computing(split)
    load = kir.Role("load", warps * roles, request.load_warps, loads)
    if not request.ping_pong:
        computes = [kir.Role("compute", 0, warps, computing)]
        buffers = kernel.buffers
    else:
        computes, buffers = _ping_pong(kernel, computing)
    threads = (warps * roles + request.load_warps) * kir.WARP
    registers = 0
    if request.registers is not None:
        registers = launch_registers(threads)
        few, many = request.registers
        load = _with_registers(load, few, registers)
        computes = [_with_registers(role, many, registers) for role in computes]
    body = (*shared, load, *computes)
    made = replace(kernel, body=body, buffers=buffers, threads=threads, registers=registers)
    return placed(made)


def _request(stmt: kir.Stmt) -> kir.WarpSpecialized | None:
    for inner in kir.walk((stmt,)):
        request = inner.circular if isinstance(inner, kir.ForLoop) else None
        if request is not None and request.specialized is not None:
            return request.specialized
    return None


def _loading(body: Body) -> Body:
    """Keep the copies into rings, and what their places depend on."""
    out: list[kir.Stmt] = []
    for stmt in body:
        match stmt:
            case kir.Let() | kir.Assign():
                out.append(replace(stmt))
            case kir.ForLoop() | kir.IfThenElse() if _fills((stmt,)):
                out.append(kir.inside(stmt, _loading))
            case _ if fills(stmt):
                out.append(stmt)
            case _:
                pass
    return tuple(out)


def _computing(body: Body) -> Body:
    return kir.rewrite(body, lambda stmt: [] if fills(stmt) else None)


def _fills(body: Body) -> bool:
    return any(fills(stmt) for stmt in kir.walk(body))


# --- two roles in turn --------------------------------------------------------------------------


def _ping_pong(kernel: kir.Kernel, body: Body) -> tuple[list[kir.Role], tuple[kir.Buffer, ...]]:
    """Let two roles take the turns of the outermost loop in turn; what they write is their own."""
    staging = frozenset[str]().union(*(names(writes(stmt)) for stmt in kir.walk(body)))
    warps = kernel.threads // kir.WARP
    buffers = [b for b in kernel.buffers if b.name not in staging]
    roles = []
    for me in range(2):
        own = {
            b.name: replace(b, name=f"{b.name}_{me}") for b in kernel.buffers if b.name in staging
        }
        buffers += own.values()
        mine = tuple(_turns(stmt, me, own) for stmt in body)
        roles.append(kir.Role(f"compute{me}", me * warps, warps, mine))
    return roles, tuple(buffers)


def _turns(stmt: kir.Stmt, me: int, own: dict[str, kir.Buffer]) -> kir.Stmt:
    """Guard the body of the outermost loop by whose turn it is; count on through the others'."""
    if not isinstance(stmt, kir.ForLoop):
        return _anew(stmt, own, None)
    body = tuple(_anew(inner, own, stmt.index) for inner in stmt.body)
    counted = [*_counted(stmt.body), *((at, 1) for at in _own_position(stmt))]
    skipped = tuple(kir.Assign(place, place + turns) for place, turns in counted)
    return replace(stmt, body=(kir.IfThenElse(eq(stmt.index % 2, me), body, skipped),))


def _anew(stmt: kir.Stmt, own: dict[str, kir.Buffer], turn: Var | None) -> kir.Stmt:
    """Return a statement of its own for each role, on buffers of its own, or slots by turns."""

    def mine(slot: kir.Slot) -> kir.Slot:
        if slot.buffer.name not in own:
            return slot
        index = slot.index if turn is None else substitute(slot.index, {turn: turn // 2})
        return replace(slot, buffer=own[slot.buffer.name], index=index)

    if not kir.bodies(stmt):
        return replace(moved(stmt, mine))
    return kir.inside(stmt, lambda body: tuple(_anew(inner, own, turn) for inner in body))


def _counted(body: Body) -> list[tuple[Var, Expr]]:
    """Return the positions that loops in `body` count, and by how much in all."""
    loops = (stmt for stmt in body if isinstance(stmt, kir.ForLoop))
    return [(position, loop.stop) for loop in loops for position in _own_position(loop)]


def _own_position(loop: kir.ForLoop) -> list[Var]:
    position = loop.circular.position if loop.circular is not None else None
    return [] if position is None or position == loop.index else [position]


# --- registers ----------------------------------------------------------------------------------


def _with_registers(role: kir.Role, registers: int, have: int) -> kir.Role:
    if registers == have:
        return role
    change = kir.SetMaxNReg(registers, registers > have)
    return replace(role, body=(change, *role.body))


# --- two roles enter their rings one after the other --------------------------------------------


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
