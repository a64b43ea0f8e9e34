"""What a reader sees of a statement: the operation, its iteration, its line and its memory."""

from __future__ import annotations

from typing import NamedTuple

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.state import Where
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site


class Words(NamedTuple):
    """What a kind of statement is called, how it is shown, and what it leaves to an engine.

    `engine` names what goes on when the statement has returned, empty if it is done then; `group`
    is the kind of group that it joins.
    """

    called: str
    short: str
    engine: str = ""
    group: kir.AsyncKind | None = None


_BULK = "store engine", kir.AsyncKind.BULK
_WORDS = {
    kir.TmaLoad: Words("the TMA load", "{dst} <~ tma_load{cast}", "TMA engine"),
    kir.TmaStore: Words("the TMA store", "{dst} <~ tma_store({src})", *_BULK),
    kir.TmaReduce: Words("the TMA reduction", "{dst} <~ tma_reduce({src})", *_BULK),
    kir.CpAsync: Words(
        "the cp.async", "{dst} <~ cp_async({src})", "cp.async engine", kir.AsyncKind.CP_ASYNC
    ),
    kir.Wgmma: Words(
        "`wgmma`", "{acc} <~ wgmma({left}, {right})", "tensor core", kir.AsyncKind.WGMMA
    ),
    kir.Load: Words("the load", "{dst} = load({src})"),
    kir.Store: Words("the store", "{dst} = store({src})"),
    kir.AtomicAdd: Words("the atomic addition", ""),
    kir.MBarrierArrive: Words("the arrival", "{barrier}{peer} arrive"),
    kir.MBarrierArriveExpectTx: Words("the arrival", "{barrier} arrive, expect {nbytes} bytes"),
    kir.MBarrierExpectTx: Words("", "{barrier} expect {nbytes} bytes"),
    kir.CpAsyncMBarrierArrive: Words("the arrival", "{barrier} arrive once the copies are done"),
    kir.MBarrierWaitParity: Words("the wait", "{barrier} wait parity {parity}{once}"),
    kir.BlockSerializeWait: Words("", "{semaphore} wait for turn {turn}"),
    kir.BlockSerializeRelease: Words("the release", "{semaphore} give turn {turn}"),
    kir.GridSync: Words("", "{semaphore} meet {ctas} CTAs"),
    kir.LastArriving: Words("", "{semaphore} arrive as {which} of {ctas} CTAs"),
}
_PLAIN = Words("", "")


def words(stmt: kir.Stmt) -> Words:
    """Return what a statement is called, and what it leaves to an engine."""
    found = _WORDS.get(type(stmt), _PLAIN)
    if isinstance(stmt, kir.Load | kir.Store) and stmt.matrix:
        matrix = "ldmatrix" if isinstance(stmt, kir.Load) else "stmatrix"
        return Words(f"the {matrix}", "{dst} = " + matrix + "({src})")
    return found


def iteration(site: Site, k: int) -> str:
    """Return which iteration of the innermost loop is meant, as `k=3`; empty outside of loops."""
    return f"{site.loops[-1].name}={k}" if site.loops and k >= 0 else ""


def said(site: Site, k: int) -> str:
    """Name an operation with its iteration and its line."""
    called = words(site.stmt).called or f"`{line(site.stmt).partition('(')[0]}`"
    parts = called, iteration(site, k), f"(line {site.line})"
    return " ".join(filter(None, parts))


def spot(world: World, where: Where) -> str:
    """Name a slot of a buffer, or a tensor."""
    cta, name, slot = where
    if cta < 0:
        return name
    return f"{name}[{slot}]" + (f" of CTA {cta}" if world.ctas > 1 else "")


def concrete(stmt: kir.Stmt, values: dict[str, int]) -> str:
    """Return what a statement does, in short, with numbers in place of expressions."""
    peer = f" of CTA {values['cta']}" if "cta" in values else ""

    def at(name: str, key: str) -> str:
        return f"{name}[{values[key]}]" if key in values else name

    def tile(ref: object, key: str = "slot") -> str:
        if isinstance(ref, kir.Slot):
            return at(ref.buffer.name, key) + peer
        return str(ref.tensor.name if isinstance(ref, kir.Box) else getattr(ref, "name", ""))

    ranks = [rank for rank in range(16) if values.get("cast", 0) >> rank & 1]
    parts = {name: tile(getattr(stmt, name, None)) for name in ("dst", "src", "acc", "semaphore")}
    known = parts | values | {
        "barrier": at(tile(getattr(stmt, "barrier", None)), "bar"),
        "peer": peer,
        "cast": f" to CTAs {', '.join(map(str, ranks))}" if ranks else "",
        "left": tile(getattr(stmt, "a", None), "a"),
        "right": " | ".join(map(tile, stmt.columns)) if isinstance(stmt, kir.Wgmma) else "",
        "nbytes": getattr(stmt, "nbytes", 0),
        "once": "" if getattr(stmt, "retry", True) else ", once",
        "which": "the last" if values.get("last") else "one",
    }  # fmt: skip
    return words(stmt).short.format(**known) or line(stmt)
