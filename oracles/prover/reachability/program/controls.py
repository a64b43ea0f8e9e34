"""The numbers that decide what a statement does: slots, parities, ranks, turns."""

from __future__ import annotations

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir

AMONG_CTAS = kir.BlockSerializeWait | kir.BlockSerializeRelease | kir.GridSync | kir.LastArriving
"""Statements by which CTAs that share a semaphore take turns or meet."""


def controls(stmt: kir.Stmt) -> dict[str, Expr]:
    """Return the control expressions of a statement by name."""
    out: dict[str, Expr] = {}
    match stmt:
        case kir.TmaLoad(dst, _, _, slot, multicast):
            out = {"slot": dst.index, "bar": slot}
            if multicast is not None:
                out["cast"] = multicast
        case kir.TmaStore(_, src) | kir.TmaReduce(_, src):
            out = _slot(src)
        case kir.CpAsync(dst):
            out = _slot(dst)
        case kir.Load(_, kir.Slot() as src):
            out = _slot(src)
        case kir.Store(kir.Slot() as dst):
            out = _slot(dst)
        case kir.Wgmma(_, a, b, accumulate):
            out = {"slot": b.index, "more": accumulate}
            if isinstance(a, kir.Slot):
                out["a"] = a.index
        case kir.MBarrierArrive(_, slot, _, cta):
            out = {"bar": slot}
            if cta is not None:
                out["cta"] = cta
        case kir.MBarrierWaitParity(_, slot, parity):
            out = {"bar": slot, "parity": parity}
        case (
            kir.MBarrierArriveExpectTx(_, slot)
            | kir.MBarrierExpectTx(_, slot)
            | kir.CpAsyncMBarrierArrive(_, slot)
        ):
            out = {"bar": slot}
        case kir.BlockSerializeWait(_, _, turn) | kir.BlockSerializeRelease(_, _, turn):
            out = {"turn": turn}
        case kir.GridSync(_, _, ctas) | kir.LastArriving(_, _, ctas):
            out = {"ctas": ctas}
        case _:
            pass
    return out


def _slot(slot: kir.Slot) -> dict[str, Expr]:
    out: dict[str, Expr] = {"slot": slot.index}
    if slot.cta is not None:
        out["cta"] = slot.cta
    return out


def outcomes(kernel: kir.Kernel) -> tuple[Var, ...]:
    """Return what is 1 in the CTA that comes last, for every `LastArriving`."""
    many = sum(isinstance(stmt, kir.LastArriving) for stmt in kernel.walk())
    return tuple(Var(f"the last of election {n}") for n in range(many))
