"""Pass: rings of slots, so that copies of later tiles run while earlier ones are computed."""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir
from fuser.effects import drains, fills, reslot
from fuser.expr import Expr, Op, Var, substitute

STORE_SLOTS = 2
"""Slots of a staging ring: one is filled while the copy engine reads the other."""


def circular_buffer(kernel: kir.Kernel) -> kir.Kernel:
    """Give the buffers of a requesting loop their slots, and load `prefetch` tiles ahead.

    Iteration `i` uses slot `i % slots`.  Without warp specialisation a first loop issues the
    copies of tiles 0 .. prefetch-1 and iteration `i` issues those of tile `i + prefetch`.
    Buffers that copies write out (staging) get two slots wherever a ring has more than one.
    """
    out = kernel
    for stmt in kernel.body:
        if isinstance(stmt, kir.ForLoop):
            out = _buffer_loop(out, stmt)
    return out


def _buffer_loop(kernel: kir.Kernel, loop: kir.ForLoop) -> kir.Kernel:
    filled = {slot.buffer.name for s in kir.walk(loop.body) if (slot := fills(s))}
    drained = {slot.buffer.name for s in kir.walk(loop.body) if (slot := drains(s))}
    request = loop.circular or kir.CircularBuffer(1, 0, warp_specialized=False)
    staging = min(request.stages, STORE_SLOTS) if loop.circular else STORE_SLOTS
    slots = dict.fromkeys(filled, request.stages) | dict.fromkeys(drained, staging)
    buffers = _placed(tuple(replace(b, slots=slots.get(b.name, b.slots)) for b in kernel.buffers))
    by_name = {b.name: b for b in buffers if b.name in slots}

    def at(position: Expr) -> dict[str, kir.Slot]:
        return {name: kir.Slot(b, _mod(position, b.slots)) for name, b in by_name.items()}

    body = tuple(reslot(stmt, at(loop.index)) for stmt in loop.body)
    new: list[kir.Stmt]
    if request.warp_specialized or not filled:
        keep = request if request.warp_specialized else None
        new = [replace(loop, body=body, circular=keep)]
    else:
        new = _prefetched(replace(loop, body=body, circular=None), request.prefetch)
    return replace(kernel.rewrite(lambda stmt: new if stmt is loop else None), buffers=buffers)


def _mod(position: Expr, slots: int) -> Expr:
    return position % slots if isinstance(position, Var | Op) else 0


def _prefetched(loop: kir.ForLoop, ahead: int) -> list[kir.Stmt]:
    """Split the copies off: some before the loop, the rest `ahead` iterations early."""
    if ahead == 0:
        return [loop]
    early = Var("j")
    copies = [stmt for stmt in loop.body if fills(stmt)]
    rest = tuple(stmt for stmt in loop.body if not fills(stmt))
    lets = [stmt for stmt in loop.body if isinstance(stmt, kir.Let)]
    first = kir.IfThenElse(early < loop.stop, _shifted(lets, copies, loop.index, early, "_j"))
    later = loop.index + ahead
    again = kir.IfThenElse(later < loop.stop, _shifted(lets, copies, loop.index, later, "_next"))
    return [kir.ForLoop(early, ahead, (first,)), replace(loop, body=(again, *rest))]


def _shifted(
    lets: list[kir.Let], copies: list[kir.Stmt], index: Var, position: Expr, suffix: str
) -> tuple[kir.Stmt, ...]:
    """Return the copies of iteration `position`, with names of their own for what they use."""
    values: dict[Var, Expr] = {index: position}
    out: list[kir.Stmt] = []
    for let in lets:
        renamed = Var(let.var.name + suffix)
        out.append(kir.Let(renamed, substitute(let.value, values)))
        values[let.var] = renamed
    out.extend(_substituted(copy, values) for copy in copies)
    return tuple(out)


def _substituted(stmt: kir.Stmt, values: dict[Var, Expr]) -> kir.Stmt:
    match stmt:
        case kir.Copy(kir.Slot(buffer, index), kir.Box(_, origin) as box):
            return replace(
                stmt,
                dst=kir.Slot(buffer, substitute(index, values)),
                src=replace(box, origin=tuple(substitute(o, values) for o in origin)),
            )
        case _:
            return stmt


def _placed(buffers: tuple[kir.Buffer, ...]) -> tuple[kir.Buffer, ...]:
    """Lay buffers one after the other; every slot of a copied buffer starts on 128 bytes."""
    out, offset = [], 0
    for b in buffers:
        out.append(replace(b, offset=offset))
        offset += -(-b.slots * b.slot_nbytes // 128) * 128
    return tuple(out)
