"""Where rings lie, and where a statement stands among them: whose turn it is, in which slot.

For the passes; nothing here decides on a sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.passes.effects import rebuffer

Body = tuple[kir.Stmt, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body stands: the loop around it, whether one thread executes it, and its role.

    `position` counts the turns of the rings that the loop fills.
    """

    position: Expr = 0
    elected: bool = False
    role: kir.Role | None = None
    loop: kir.ForLoop | None = None


def _position(loop: kir.ForLoop) -> Expr:
    return (loop.circular and loop.circular.position) or loop.index


def each_body(body: Body, rule: Callable[[Body, Place], Body], place: Place) -> Body:
    """Apply `rule` to every body, innermost first."""
    out: list[kir.Stmt] = []
    for stmt in body:
        match stmt:
            case kir.ForLoop(_, _, inner):
                inside = replace(place, position=_position(stmt), loop=stmt)
                out.append(replace(stmt, body=each_body(inner, rule, inside)))
            case kir.Elect(_, inner):
                out.append(replace(stmt, body=each_body(inner, rule, replace(place, elected=True))))
            case kir.Role(_, _, _, inner):
                out.append(replace(stmt, body=each_body(inner, rule, replace(place, role=stmt))))
            case kir.ElectLast():
                out.append(replace(stmt, body=each_body(stmt.body, rule, place)))
            case kir.IfThenElse(_, then, orelse):
                then, orelse = each_body(then, rule, place), each_body(orelse, rule, place)
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                out.append(stmt)
    return rule(tuple(out), place)


def each_loop(body: Body, rule: Callable[[Body, kir.ForLoop], Body]) -> Body:
    """Apply `rule` to the bodies of loops, innermost first."""
    out: list[kir.Stmt] = []
    for stmt in body:
        match stmt:
            case kir.ForLoop(_, _, inner):
                out.append(replace(stmt, body=rule(each_loop(inner, rule), stmt)))
            case kir.Elect() | kir.Role() | kir.ElectLast():
                out.append(replace(stmt, body=each_loop(stmt.body, rule)))
            case kir.IfThenElse(_, then, orelse):
                then, orelse = each_loop(then, rule), each_loop(orelse, rule)
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                out.append(stmt)
    return tuple(out)


def placed(kernel: kir.Kernel) -> kir.Kernel:
    """Lay the buffers one after the other; statements name them as they then are.

    A slot starts on 128 bytes, or where its swizzle repeats.  Slots that one wgmma reads as columns
    lie behind each other.
    """
    beside = {
        stmt.b.buffer.name: [buffer.name for buffer in stmt.beside]
        for stmt in kernel.walk()
        if isinstance(stmt, kir.Wgmma)
    }
    by_name = {b.name: b for b in kernel.buffers}
    behind = {name for names in beside.values() for name in names}
    at_home: dict[str, kir.Buffer] = {}
    offset = 0
    for first in sorted(kernel.buffers, key=lambda b: -b.swizzle):
        if first.name in behind:
            continue
        step = max(128, 8 * first.swizzle)
        offset = -(-offset // step) * step
        together = [first, *(by_name[name] for name in beside.get(first.name, ()))]
        pitch = sum(b.slot_nbytes for b in together) if len(together) > 1 else 0
        at = offset
        for b in together:
            at_home[b.name] = replace(b, offset=at, pitch=pitch)
            at += b.slot_nbytes
        offset += -(-first.slots * (pitch or first.slot_nbytes) // 128) * 128
    moved = replace(kernel, buffers=tuple(at_home.values()))
    return moved.rewrite(lambda stmt: None if kir.bodies(stmt) else [rebuffer(stmt, at_home)])


def wait_turn(
    barrier: kir.MBarrier, slot: Expr, position: Expr, *, turn: int
) -> kir.MBarrierWaitParity:
    """Wait for the phase of turn `position`, or with `turn` 1 for the one before it.

    Turn `i` uses its slot for the `i // slots`-th time, so its phase has parity
    `i // slots % 2`; the phase before the first has parity 1, and a wait for it passes at once.
    """
    return kir.MBarrierWaitParity(barrier, slot, (position // barrier.slots + turn) % 2)
