"""What a reader is told of a statement: the operation, its iteration, its line and its memory."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.program.code import Site
from oracles.prover.reachability.state import Entry, Where
from oracles.prover.reachability.world import World

_ENGINES: dict[type, tuple[str, str, kir.AsyncKind | None]] = {
    kir.TmaLoad: ("the TMA load", "TMA engine", None),
    kir.TmaStore: ("the TMA store", "store engine", kir.AsyncKind.BULK),
    kir.TmaReduce: ("the TMA reduction", "store engine", kir.AsyncKind.BULK),
    kir.CpAsync: ("the cp.async", "cp.async engine", kir.AsyncKind.CP_ASYNC),
    kir.Wgmma: ("`wgmma`", "tensor core", kir.AsyncKind.WGMMA),
}
"""What is still at work when its statement returns: its name, its engine, its kind of group."""
_NAMES: dict[type, str] = {
    kir.Load: "the load",
    kir.Store: "the store",
    kir.AtomicAdd: "the atomic addition",
    kir.BlockSerializeRelease: "the release",
    kir.MBarrierArrive: "the arrival",
    kir.MBarrierArriveExpectTx: "the arrival",
    kir.CpAsyncMBarrierArrive: "the arrival",
    kir.MBarrierWaitParity: "the wait",
}


def engine(stmt: kir.Stmt) -> str:
    """Name what goes on with a statement when it has returned; empty if it is done then."""
    return _ENGINES[type(stmt)][1] if type(stmt) in _ENGINES else ""


def group(stmt: kir.Stmt) -> kir.AsyncKind | None:
    """Return the kind of group that an operation joins."""
    return _ENGINES[type(stmt)][2] if type(stmt) in _ENGINES else None


def _operation(stmt: kir.Stmt) -> str:
    if isinstance(stmt, kir.Load | kir.Store) and stmt.matrix:
        return "the ldmatrix" if isinstance(stmt, kir.Load) else "the stmatrix"
    if type(stmt) in _ENGINES:
        return _ENGINES[type(stmt)][0]
    return _NAMES.get(type(stmt)) or f"`{line(stmt).partition('(')[0]}`"


def iteration(world: World, site: Site, k: int) -> str:
    """Return which iteration of the innermost loop is meant, as `k=3`; empty outside of loops."""
    name = world.loop_names().get(site.index, "")
    return f"{name}={k}" if name and k >= 0 else ""


def said(world: World, site: Site, k: int) -> str:
    """Name an operation with its iteration and its line."""
    parts = _operation(site.stmt), iteration(world, site, k), f"(line {site.line})"
    return " ".join(filter(None, parts))


def spot(world: World, where: Where) -> str:
    """Name a slot of a buffer, or a tensor."""
    cta, name, slot = where
    if cta < 0:
        return name
    return f"{name}[{slot}]" + (f" of CTA {cta}" if world.ctas > 1 else "")


def pair(
    world: World, entry: Entry, when: int, of: Where, later: Site, agent: int, k: int, at: Where
) -> tuple[str, str]:
    """Name an earlier access and a later one; of those by threads also who.

    Of an operation in flight it is the end that matters.
    """
    before, after = said(world, world.code.sites[entry.site], when), said(world, later, k)
    same = entry.site == later.index and entry.agent != agent
    if entry.agent < 0:
        before = "what the CTA of the turn before did"
    elif entry.engine:
        before = f"the end of {before}"
    if entry.agent >= 0 and (same or not entry.proxy):
        before += f" by {world.kinds[entry.agent]}"
    after += f" of {spot(world, at)}"
    if of != at and of[0] >= 0:
        after += f", on bytes of {spot(world, of)},"
    if same or isinstance(later.stmt, kir.CpAsync) or not engine(later.stmt):
        after += f" by {world.kinds[agent]}"
    return before, after


def concrete(stmt: kir.Stmt, values: dict[str, int]) -> str:
    """Return what a statement does, in short, with numbers in place of expressions."""

    def at(name: str, key: str = "slot") -> str:
        return f"{name}[{values[key]}]" if key in values else name

    peer = f" of CTA {values['cta']}" if "cta" in values else ""
    match stmt:
        case kir.TmaLoad(dst):
            mask = values.get("cast", 0)
            ranks = ", ".join(str(cta) for cta in range(mask.bit_length()) if mask >> cta & 1)
            return f"{at(dst.buffer.name)} <~ tma_load" + (f" to CTAs {ranks}" if ranks else "")
        case kir.TmaStore(dst, src):
            return f"{dst.tensor.name} <~ tma_store({at(src.buffer.name)})"
        case kir.TmaReduce(dst, src):
            return f"{dst.tensor.name} <~ tma_reduce({at(src.buffer.name)})"
        case kir.CpAsync(dst, src):
            return f"{at(dst.buffer.name)} <~ cp_async({src.tensor.name})"
        case kir.Load(dst, src):
            where = src.tensor.name if isinstance(src, kir.Box) else at(src.buffer.name) + peer
            return f"{dst.name} = {'ldmatrix' if stmt.matrix else 'load'}({where})"
        case kir.Store(dst, src):
            where = dst.tensor.name if isinstance(dst, kir.Box) else at(dst.buffer.name) + peer
            return f"{where} = {'stmatrix' if stmt.matrix else 'store'}({src.name})"
        case kir.Wgmma(acc, a):
            left = at(a.buffer.name, "a") if isinstance(a, kir.Slot) else a.name
            right = " | ".join(at(slot.buffer.name) for slot in stmt.columns)
            return f"{acc.name} <~ wgmma({left}, {right})"
        case kir.MBarrierWaitParity(barrier):
            once = "" if stmt.retry else ", once"
            return f"{at(barrier.name, 'bar')} wait parity {values['parity']}{once}"
        case kir.MBarrierArrive(barrier):
            return f"{at(barrier.name, 'bar')}{peer} arrive"
        case kir.MBarrierArriveExpectTx(barrier, _, nbytes):
            return f"{at(barrier.name, 'bar')} arrive, expect {nbytes} bytes"
        case kir.MBarrierExpectTx(barrier, _, nbytes):
            return f"{at(barrier.name, 'bar')} expect {nbytes} bytes"
        case kir.CpAsyncMBarrierArrive(barrier):
            return f"{at(barrier.name, 'bar')} arrive once the copies are done"
        case kir.BlockSerializeWait(semaphore):
            return f"{semaphore.name} wait for turn {values['turn']}"
        case kir.GridSync(semaphore):
            return f"{semaphore.name} meet {values['ctas']} CTAs"
        case kir.ElectLast(semaphore):
            which = "the last" if values["last"] else "one"
            return f"{semaphore.name} arrive as {which} of {values['ctas']} CTAs"
        case kir.BlockSerializeRelease(semaphore):
            return f"{semaphore.name} give turn {values['turn']}"
        case _:
            return line(stmt)
