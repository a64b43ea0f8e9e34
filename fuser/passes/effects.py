"""What a statement does to shared memory, as the passes see it (judges have eyes of their own)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.kernel.validate import place


def reads(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    """Slots that a statement itself reads: by ordinary loads or by the copy engine."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot):
            return (slot,)
        case kir.Copy(kir.Box(), kir.Slot() as slot):
            return (slot,)
        case kir.TmaStore(_, slot) | kir.TmaReduce(_, slot):
            return (slot,)
        case kir.Wgmma(_, a):
            return (a, *stmt.columns) if isinstance(a, kir.Slot) else stmt.columns
        case _:
            return ()


def writes(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    """Slots that a statement itself writes: by ordinary stores or by the copy engine."""
    match stmt:
        case kir.Store(kir.Slot() as slot):
            return (slot,)
        case kir.Copy(kir.Slot() as slot) | kir.TmaLoad(slot) | kir.CpAsync(slot):
            return (slot,)
        case kir.QueueCopy(slot):
            return (slot,)
        case _:
            return ()


def names(slots: tuple[kir.Slot, ...]) -> frozenset[str]:
    """Names of the buffers of some slots."""
    return frozenset(slot.buffer.name for slot in slots)


def sharers(kernel: kir.Kernel) -> dict[str, frozenset[str]]:
    """By name of a buffer those of all that share bytes with it, itself included."""
    every = kernel.buffers
    return {b.name: frozenset(o.name for o in every if o == b or o.shares(b)) for b in every}


def touches(stmt: kir.Stmt) -> frozenset[str]:
    """Names of global tensors that threads themselves read or write."""
    if not isinstance(stmt, kir.Load | kir.Store | kir.AtomicAdd):
        return frozenset()
    return frozenset(box.tensor.name for box in place.boxes(stmt))


def by_engine(stmt: kir.Stmt) -> bool:
    """Tell whether an asynchronous engine moves the bytes, at some later time."""
    loads = kir.Copy | kir.TmaLoad | kir.CpAsync | kir.QueueCopy
    return isinstance(stmt, loads | kir.TmaStore | kir.TmaReduce | kir.Wgmma)


def fills(stmt: kir.Stmt) -> kir.Slot | None:
    """Return the slot that a copy not yet synchronised fills from global memory."""
    return stmt.dst if isinstance(stmt, kir.Copy) and isinstance(stmt.dst, kir.Slot) else None


def drains(stmt: kir.Stmt) -> kir.Slot | None:
    """Return the slot that a copy not yet synchronised writes out to global memory."""
    return stmt.src if isinstance(stmt, kir.Copy) and isinstance(stmt.src, kir.Slot) else None


def accumulates(stmt: kir.Stmt) -> str:
    """Name of the fragment that tensor cores will write at some later time, else nothing."""
    return stmt.acc.name if isinstance(stmt, kir.Wgmma) else ""


def fragments(stmt: kir.Stmt) -> frozenset[str]:
    """Names of the fragments that a statement reads or writes at once, by its threads."""
    if isinstance(stmt, kir.Wgmma):
        return frozenset()
    used, made = place.fragments(stmt)
    return frozenset(fragment.name for fragment in (*used, *made))


def reslot(stmt: kir.Stmt, new: dict[str, kir.Slot]) -> kir.Stmt:
    """Return the statement with the slots of the named buffers replaced."""
    return moved(stmt, lambda slot: new.get(slot.buffer.name, slot))


def rebuffer(stmt: kir.Stmt, new: dict[str, kir.Buffer]) -> kir.Stmt:
    """Return the statement with the named buffers replaced by others; slots keep their index."""

    def named(slot: kir.Slot) -> kir.Slot:
        buffer = new.get(slot.buffer.name, slot.buffer)
        return slot if buffer == slot.buffer else replace(slot, buffer=buffer)

    return moved(stmt, named)


def moved(stmt: kir.Stmt, move: Callable[[kir.Slot], kir.Slot]) -> kir.Stmt:
    """Return the statement with each of its slots replaced by what `move` makes of it."""

    def ref(it: kir.Box | kir.Slot) -> kir.Box | kir.Slot:
        return move(it) if isinstance(it, kir.Slot) else it

    match stmt:
        case kir.Copy(dst, src):
            return replace(stmt, dst=ref(dst), src=ref(src))
        case kir.Load(_, src):
            return replace(stmt, src=ref(src))
        case kir.Store(dst):
            return replace(stmt, dst=ref(dst))
        case kir.StAsync(dst):
            return replace(stmt, dst=move(dst))
        case kir.GridSum() if stmt.staged is not None:
            return replace(stmt, staged=move(stmt.staged))
        case kir.Wgmma(_, a):
            first = move(a) if isinstance(a, kir.Slot) else a
            b, *beside = map(move, stmt.columns)
            return replace(stmt, a=first, b=b, beside=tuple(slot.buffer for slot in beside))
        case _:
            return stmt
