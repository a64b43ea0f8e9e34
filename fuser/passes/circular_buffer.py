"""Pass: rings of slots, so that copies of later tiles run while earlier ones are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.passes.effects import drains, fills, reslot
from fuser.passes.overlay import placed
from fuser.passes.rings import Body, each_loop

STORE_SLOTS = 2
"""Slots of a staging ring: one is filled while the copy engine reads the other."""


def circular_buffer(kernel: kir.Kernel) -> kir.Kernel:
    """Give the buffers of a requesting loop their slots, and load `prefetch` tiles ahead.

    Iteration `i` of a ring uses slot `i % slots`.  Iterations are those of the loop, or, where it
    stands inside another one (or CTAs that fill slots of others must know where it ended), counted
    by a variable.  Without warp specialisation a first loop issues the copies of iterations 0 ..
    prefetch-1 and iteration `i` issues those of iteration `i + prefetch`.

    Buffers that copies write out (staging) get two slots wherever a ring has more than one; where
    one body writes several tiles out through one buffer, these take in turn the slots that it has.
    """
    rings = _Rings(kernel)
    body = rings.body(kernel.body, outer=None)
    buffers = tuple(replace(b, slots=rings.slots.get(b.name, b.slots)) for b in kernel.buffers)
    counters = tuple(kir.Let(position, 0) for position in rings.counters)
    return placed(replace(kernel, body=(*counters, *body), buffers=buffers))


@dataclass
class _Rings:
    """The walk over a kernel; collects slots of buffers and the counters of nested rings."""

    kernel: kir.Kernel

    def __post_init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.shared = any(isinstance(s, kir.Copy) and s.shared for s in self.kernel.walk())
        self.counters: list[Var] = []

    def body(self, body: Body, outer: kir.ForLoop | None) -> Body:
        """Return a body with the rings of its loops; `outer` is the loop that it is of."""
        out: list[kir.Stmt] = []
        for stmt in self._staged(body, outer):
            if isinstance(stmt, kir.ForLoop):
                out += self._loop(stmt, nested=outer is not None)
            else:
                out.append(stmt)
        return tuple(out)

    def _loop(self, loop: kir.ForLoop, *, nested: bool) -> list[kir.Stmt]:
        loop = replace(loop, body=self.body(loop.body, loop))
        filled = {slot.buffer.name for stmt in loop.body if (slot := fills(stmt))}
        request = loop.circular
        if request is None or not filled:
            return [replace(loop, circular=None)]
        position = self._position(loop, nested=nested)
        by_name = {b.name: b for b in self.kernel.buffers if b.name in filled}
        self.slots |= dict.fromkeys(filled, request.stages)
        at = {n: kir.Slot(b, position % request.stages) for n, b in by_name.items()}
        body = tuple(reslot(stmt, at) for stmt in loop.body)
        loop = replace(loop, body=body, circular=replace(request, position=position))
        ahead = 0 if request.specialized else request.prefetch
        out = _prefetched(loop, position, ahead)
        if position != loop.index:
            out[-1] = replace(out[-1], body=(*out[-1].body, kir.Assign(position, position + 1)))
        return [*out]

    def _position(self, loop: kir.ForLoop, *, nested: bool) -> Var:
        if not nested and not self.shared:
            return loop.index
        position = Var(f"p{len(self.counters)}" if self.counters else "p")
        self.counters.append(position)
        return position

    def _staged(self, body: Body, outer: kir.ForLoop | None) -> Body:
        written: dict[str, list[kir.Buffer]] = {}
        for stmt in body:
            slot = drains(stmt)
            if slot is not None:
                written.setdefault(slot.buffer.name, []).append(slot.buffer)
        if not written:
            return body
        iterations = {name: len(buffers) for name, buffers in written.items()}
        request = outer.circular if outer is not None else None
        for name, many in iterations.items():
            if many > 1 or outer is None:
                self.slots[name] = written[name][0].slots
            else:
                self.slots[name] = min(request.stages if request else STORE_SLOTS, STORE_SLOTS)
        out = []
        done = dict.fromkeys(iterations, 0)
        for stmt in body:
            at = {
                name: kir.Slot(
                    written[name][0],
                    done[name] % self.slots[name]
                    if iterations[name] > 1 or outer is None
                    else outer.index % self.slots[name],
                )
                for name in iterations
            }
            out.append(reslot(stmt, at))
            slot = drains(stmt)
            if slot is not None:
                done[slot.buffer.name] += 1
        return tuple(out)


def _prefetched(loop: kir.ForLoop, position: Var, ahead: int) -> list[kir.ForLoop]:
    """Split the copies off: some before the loop, the rest `ahead` iterations early."""
    if ahead == 0:
        return [loop]
    early = Var("j")
    copies = [stmt for stmt in loop.body if fills(stmt)]
    rest = tuple(stmt for stmt in loop.body if not fills(stmt))
    lets = [stmt for stmt in loop.body if isinstance(stmt, kir.Let)]
    index = loop.index
    shifts = [
        (early, "_j", {index: early} | ({position: position + early} if position != index else {})),
        (index + ahead, "_next", {index: index + ahead, position: position + ahead}),
    ]
    parts = [
        kir.IfThenElse(iteration < loop.stop, _shifted(lets, copies, values, suffix))
        for iteration, suffix, values in shifts
    ]
    return [kir.ForLoop(early, ahead, (parts[0],)), replace(loop, body=(parts[1], *rest))]


def _shifted(
    lets: list[kir.Let], copies: list[kir.Stmt], values: dict[Var, Expr], suffix: str
) -> Body:
    """Return the copies of another iteration, with names of their own for what they use."""
    out: list[kir.Stmt] = []
    for let in lets:
        renamed = Var(let.var.name + suffix)
        out.append(kir.Let(renamed, substitute(let.value, values)))
        values = values | {let.var: renamed}
    for copy in copies:
        match copy:
            case kir.Copy(kir.Slot(buffer, index), kir.Box() as box):
                dst = kir.Slot(buffer, substitute(index, values))
                out.append(replace(copy, dst=dst, src=_moved(box, values)))
            case _:
                out.append(copy)
    return tuple(out)


def _moved(box: kir.Box, values: dict[Var, Expr]) -> kir.Box:
    """Return a box, and what it is told by, as of another iteration."""
    origin, limit = (tuple(substitute(e, values) for e in part) for part in (box.origin, box.limit))
    index = box.index
    if index is not None:
        index = replace(index, src=_moved(index.src, values))
    return replace(box, origin=origin, limit=limit, index=index)


def forget_requests(kernel: kir.Kernel) -> kir.Kernel:
    """Drop what the schedule asked for: a finished kernel states facts only."""
    body = each_loop(kernel.body, lambda loop: replace(loop, circular=None))
    return replace(kernel, body=body, overlay=False)
