"""What a statement does to shared memory, as the passes see it (judges have eyes of their own)."""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir


def reads(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    """Slots that a statement itself reads: by ordinary loads or by the copy engine."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot):
            return (slot,)
        case kir.Copy(kir.Box(), kir.Slot() as slot):
            return (slot,)
        case kir.TmaStore(_, slot) | kir.TmaReduce(_, slot):
            return (slot,)
        case kir.Wgmma(_, a, b):
            return (a, b) if isinstance(a, kir.Slot) else (b,)
        case _:
            return ()


def writes(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    """Slots that a statement itself writes: by ordinary stores or by the copy engine."""
    match stmt:
        case kir.Store(kir.Slot() as slot):
            return (slot,)
        case kir.Copy(kir.Slot() as slot) | kir.TmaLoad(slot) | kir.CpAsync(slot):
            return (slot,)
        case _:
            return ()


def by_engine(stmt: kir.Stmt) -> bool:
    """Tell whether an asynchronous engine moves the bytes, at some later time."""
    engines = kir.Copy | kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.CpAsync | kir.Wgmma
    return isinstance(stmt, engines)


def fills(stmt: kir.Stmt) -> kir.Slot | None:
    """Return the slot that a copy not yet synchronised fills from global memory."""
    match stmt:
        case kir.Copy(kir.Slot() as slot):
            return slot
        case _:
            return None


def drains(stmt: kir.Stmt) -> kir.Slot | None:
    """Return the slot that a copy not yet synchronised writes out to global memory."""
    match stmt:
        case kir.Copy(kir.Box(), kir.Slot() as slot):
            return slot
        case _:
            return None


def reslot(stmt: kir.Stmt, new: dict[str, kir.Slot]) -> kir.Stmt:
    """Return the statement with the slots of the named buffers replaced."""

    def moved(ref: kir.Box | kir.Slot) -> kir.Box | kir.Slot:
        return new.get(ref.buffer.name, ref) if isinstance(ref, kir.Slot) else ref

    match stmt:
        case kir.Copy(dst, src):
            return replace(stmt, dst=moved(dst), src=moved(src))
        case kir.Load(_, src):
            return replace(stmt, src=moved(src))
        case kir.Store(dst):
            return replace(stmt, dst=moved(dst))
        case _:
            return stmt
