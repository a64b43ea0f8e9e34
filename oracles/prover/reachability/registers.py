"""Groups in flight, and the registers and slots that tensor cores still use.

A warp's registers are its own, so what happens to them follows from its program alone; slots are
memory like any other, read through the async proxy until the group is awaited.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.kernel import ir as kir
from oracles.prover.reachability.memory import access
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, ONES, OWN, SHARED, Agent, State, Where
from oracles.prover.reachability.witness.words import said
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site

Locate = Callable[[World, State, Agent, Site, kir.Buffer, int, int, int], Where | None]


def await_groups(
    world: World, state: State, a: Agent, kind: kir.AsyncKind, keep: int, *, read_only: bool
) -> None:
    """Wait for all but the latest `keep` groups of these threads."""
    orders = Rule.AWAIT_ORDERS not in world.off
    match kind:
        case kir.AsyncKind.BULK:
            done = max(0, len(a.bulk) - keep)
            for group in a.bulk[:done]:
                for read, write in group:
                    for end in (read,) if read_only else (read, write):
                        if end >= 0 and orders:
                            state.own(a, end)
            left = tuple(
                tuple((-1, write) for _, write in group if write >= 0 and read_only)
                for group in a.bulk[:done]
            )
            while left and not left[0]:
                left = left[1:]
            a.bulk = (*left, *a.bulk[done:])
        case kir.AsyncKind.CP_ASYNC:
            done = max(0, len(a.copies) - keep)
            for ends in a.copies[:done]:
                for end in ends:
                    if orders:
                        state.own(a, end)
            a.copies = a.copies[done:]
        case kir.AsyncKind.WGMMA:
            mate = state.agents[a.kind.index ^ 1]
            done = max(0, len(a.mma) - keep)
            for mmas in a.mma[:done]:
                for _, _, ends in mmas:
                    for end in ends:
                        if orders:
                            _warp_learns(a, mate, end)
            a.mma = a.mma[done:]


def _warp_learns(a: Agent, mate: Agent, end: int) -> None:
    """All lanes of a warp know that its group is done."""
    bit = 1 << FACTS * end
    for one in (a, mate):
        one.mine |= bit
        one.warp |= bit
        if len(a.kind.warps) == 1:
            one.all |= bit


def wgmma(
    world: World, state: State, a: Agent, do: Do, stmt: kir.Wgmma, k: int, locate: Locate
) -> None:
    """Start a product: its operands are read, and its registers used, until it is awaited."""
    site = do.site
    first, warps = site.place.first, site.place.warps
    world.checked += 1
    if first % 4 or warps % 4 or site.elected:
        says = "wgmma is executed by whole warpgroups only"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
    fragments = [stmt.acc] + ([stmt.a] if isinstance(stmt.a, kir.Fragment) else [])
    for fragment in fragments:
        if fragment not in a.clean:
            says = (
                f"no wgmma_fence stands between the last other use of {fragment.name} and "
                f"{said(world, site, k)}"
            )
            world.wrong(state, Rule.WGMMA_FENCE, "fence", site, k, says)
    names = {f.name for f in fragments}
    a.clean = frozenset(f for f in a.clean if f in fragments or getattr(f, "name", "") not in names)
    ends: list[int] = []
    if a.kind.leads:
        _fenced_by_all(a, state.agents[a.kind.index ^ 1])
        slots = [(slot, do.values["slot"](a.env)) for slot in stmt.columns]
        if isinstance(stmt.a, kir.Slot):
            slots.append((stmt.a, do.values["a"](a.env)))
        for slot, index in slots:
            at = locate(world, state, a, site, slot.buffer, index, a.kind.cta, k)
            if at is not None:
                end = access(world, state, a, site, at, k, writes=False, proxy=True, engine=True)
                state.flying[end] = a.kind.cta, site.index
                ends.append(end)
    source = stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""
    a.mma_open = (*a.mma_open, (stmt.acc.name, source, tuple(ends)))


def _fenced_by_all(a: Agent, mate: Agent) -> None:
    """Forget the fences of readers that the other lanes, who issue the product too, have not."""
    lead = a.mine >> SHARED & ONES
    own, others = a.mine >> OWN & ONES, mate.mine >> SHARED & ONES
    keep = ~((lead & ~own & ~others) << SHARED)
    a.mine, a.warp, a.all = a.mine & keep, a.warp & keep, a.all & keep


def registers(world: World, state: State, a: Agent, site: Site, k: int) -> None:
    """Judge ordinary accesses of registers; note what a wgmma would need a fence after."""
    stmt = site.stmt
    reads: tuple[kir.Fragment, ...] = ()
    writes: tuple[kir.Fragment, ...] = ()
    match stmt:
        case kir.WgmmaFence():
            if site.elected or site.place.warps % 4 or site.place.first % 4:
                says = "wgmma_fence is executed by whole warpgroups only"
                world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
            a.clean = world.fragments
            return
        case kir.Compute(dst, _, args):
            writes = (dst,)
            reads = tuple(arg for arg in args if isinstance(arg, kir.Fragment))
        case kir.Coordinate(dst) | kir.Load(dst):
            writes = (dst,)
        case kir.Slice(dst, src) | kir.Reduce(dst, src):
            writes, reads = (dst,), (src,)
        case kir.Store(_, src) | kir.AtomicAdd(_, src):
            reads = (src,)
        case kir.Mma(acc, left, right):
            writes, reads = (acc,), (left, right)
        case _:
            pass
    if not world.fragments:
        return
    touched = {f.name for f in (*reads, *writes)}
    a.clean = frozenset(f for f in a.clean if getattr(f, "name", "") not in touched)
    for group in (*a.mma, a.mma_open):
        for result, source, _ in group:
            world.checked += 1
            kind = ""
            if result in {f.name for f in reads}:
                kind = "RAW"
            elif result in {f.name for f in writes}:
                kind = "WAW"
            elif source and source in {f.name for f in writes}:
                kind = "WAR"
            if kind:
                used = source if kind == "WAR" else result
                says = f"nothing awaits the wgmma that uses {used} before {said(world, site, k)}"
                world.wrong(state, Rule.REGISTERS_BUSY, kind, site, k, says)
                return
