"""What a reader is told of a statement: the operation, its iteration, its line and its memory."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.program.code import Site
from oracles.prover.reachability.state import Entry, Where
from oracles.prover.reachability.world import World


def operation(stmt: kir.Stmt) -> str:
    """Name what a statement does."""
    match stmt:
        case kir.TmaLoad():
            return "the TMA load"
        case kir.TmaStore():
            return "the TMA store"
        case kir.TmaReduce():
            return "the TMA reduction"
        case kir.CpAsync():
            return "the cp.async"
        case kir.Wgmma():
            return "`wgmma`"
        case kir.Load():
            return "the ldmatrix" if stmt.matrix else "the load"
        case kir.Store():
            return "the stmatrix" if stmt.matrix else "the store"
        case kir.AtomicAdd():
            return "the atomic addition"
        case kir.BlockSerializeRelease():
            return "the release"
        case kir.MBarrierArrive() | kir.MBarrierArriveExpectTx() | kir.CpAsyncMBarrierArrive():
            return "the arrival"
        case kir.MBarrierWaitParity():
            return "the wait"
        case _:
            return f"`{line(stmt).partition('(')[0]}`"


def iteration(world: World, site: Site, k: int) -> str:
    """Return which iteration of the innermost loop is meant, as `k=3`; empty outside of loops."""
    name = world.loop_names().get(site.index, "")
    return f"{name}={k}" if name and k >= 0 else ""


def said(world: World, site: Site, k: int) -> str:
    """Name an operation with its iteration and its line."""
    return " ".join(
        part
        for part in (operation(site.stmt), iteration(world, site, k), f"(line {site.line})")
        if part
    )


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
    if same or not _handed_over(later.stmt):
        after += f" by {world.kinds[agent]}"
    return before, after


def _handed_over(stmt: kir.Stmt) -> bool:
    """Whether an engine does it, for one thread or for a warpgroup."""
    return isinstance(stmt, kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.Wgmma)


def engine(stmt: kir.Stmt) -> str:
    """Name the lane of what a statement starts; empty if it is done when it returns."""
    match stmt:
        case kir.TmaLoad():
            return "TMA engine"
        case kir.TmaStore() | kir.TmaReduce():
            return "store engine"
        case kir.Wgmma():
            return "tensor core"
        case kir.CpAsync():
            return "cp.async engine"
        case _:
            return ""


def group(stmt: kir.Stmt) -> kir.AsyncKind | None:
    """Return the kind of group that an operation joins."""
    match stmt:
        case kir.TmaStore() | kir.TmaReduce():
            return kir.AsyncKind.BULK
        case kir.Wgmma():
            return kir.AsyncKind.WGMMA
        case kir.CpAsync():
            return kir.AsyncKind.CP_ASYNC
        case _:
            return None


def concrete(stmt: kir.Stmt, values: dict[str, int]) -> str:
    """Return what a statement does, in short, with numbers in place of expressions."""

    def at(name: str, key: str) -> str:
        return f"{name}[{values[key]}]" if key in values else name

    peer = f" of CTA {values['cta']}" if "cta" in values else ""
    match stmt:
        case kir.TmaLoad(dst):
            cast = f" to CTAs {_ranks(values['cast'])}" if "cast" in values else ""
            return f"{at(dst.buffer.name, 'slot')} <~ tma_load{cast}"
        case kir.TmaStore(dst, src):
            return f"{dst.tensor.name} <~ tma_store({at(src.buffer.name, 'slot')})"
        case kir.TmaReduce(dst, src):
            return f"{dst.tensor.name} <~ tma_reduce({at(src.buffer.name, 'slot')})"
        case kir.CpAsync(dst, src):
            return f"{at(dst.buffer.name, 'slot')} <~ cp_async({src.tensor.name})"
        case kir.Load(dst, kir.Slot(buffer)):
            how = "ldmatrix" if stmt.matrix else "load"
            return f"{dst.name} = {how}({at(buffer.name, 'slot')}{peer})"
        case kir.Load(dst, kir.Box(tensor)):
            return f"{dst.name} = load({tensor.name})"
        case kir.Store(kir.Slot(buffer), value):
            how = "stmatrix" if stmt.matrix else "store"
            return f"{at(buffer.name, 'slot')}{peer} = {how}({value.name})"
        case kir.Store(kir.Box(tensor), value):
            return f"{tensor.name} = store({value.name})"
        case kir.Wgmma(acc, a):
            left = at(a.buffer.name, "a") if isinstance(a, kir.Slot) else a.name
            right = " | ".join(at(slot.buffer.name, "slot") for slot in stmt.columns)
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
        case kir.LastArriving(semaphore):
            which = "the last" if values["last"] else "one"
            return f"{semaphore.name} comes as {which} of {values['ctas']} CTAs"
        case kir.BlockSerializeRelease(semaphore):
            return f"{semaphore.name} give turn {values['turn']}"
        case _:
            return line(stmt)


def _ranks(mask: int) -> str:
    return ", ".join(str(rank) for rank in range(mask.bit_length()) if mask >> rank & 1)
