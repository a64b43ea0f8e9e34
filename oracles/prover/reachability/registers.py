"""Registers: what tensor cores still use, what a warpgroup knows by its products, who has how many.

A warp's registers are its own, so what happens to them follows from its program alone; slots are
memory like any other, read through the async proxy until the group is awaited.

A product runs when all four warps have started their part, so whoever has seen the end of it knows
that the others have returned from their waits before it.  That says nothing of memory: each warp
reads its rows of `a`, and `b`, for itself.  That one warp has seen the end of its part is noted all
the same, at the fact `OWN` of the others' reads, for its arrivals to release, cumulatively: one
arrival for four warps is worth a warning.  For what it does itself it has to wait like any other.

Which of two warpgroups that ask for more registers comes first is open.  So none of several is
given any until there is enough for all that will still ask; then the order does not matter.  If
nobody can go on without, each of those for whom there is enough comes first in a state of its own:
by then all others are as far as they come, and what a warpgroup takes early it might as well take
late.

Source: PTX ISA, "wgmma.mma_async", "wgmma.wait_group", "setmaxnreg".
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.memory import Access
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import ONES, OWN, Agent, State, bit, bits
from oracles.prover.reachability.step import Scene, Step
from oracles.prover.reachability.world import World

AGES = 4
"""Products of a warpgroup that are followed, from the latest; older ones are not."""


# --- groups and products --------------------------------------------------------------------------


def await_groups(step: Step, kind: kir.AsyncKind, keep: int, *, read_only: bool) -> None:
    """Wait for all but the latest `keep` groups of these threads."""
    ends = step.a.awaits(kind, keep, read_only=read_only)
    if not step.holds(Rule.AWAIT_ORDERS):
        return
    if kind is kir.AsyncKind.WGMMA:
        # All lanes of a warp know that its group is done.
        for one in (step.a, step.state.mate(step.a)):
            one.learns_with_warp(bits(ends))
    else:
        for end in ends:
            step.a.owns(end)


def wgmma(step: Step, stmt: kir.Wgmma) -> None:
    """Start a product: its operands are read, and its registers used, until it is awaited."""
    a, place = step.a, step.site.place
    step.findings.ask()
    if place.first % 4 or place.warps % 4 or step.site.elected:
        step.wrong(Rule.COLLECTIVE, "wgmma is executed by whole warpgroups only")
    fragments = [stmt.acc] + ([stmt.a] if isinstance(stmt.a, kir.Fragment) else [])
    for fragment in fragments:
        if fragment not in a.clean:
            says = (
                f"no wgmma_fence stands between the last other use of {fragment.name} and "
                f"{step.said(step.site, step.k)}"
            )
            step.wrong(Rule.WGMMA_FENCE, says)
    a.uses_registers({f.name for f in fragments}, fragments)
    ends: list[int] = []
    if a.kind.leads:
        step.state.mate(a).restricts_fences_of(a)
        slots = [(slot, step.value("slot")) for slot in stmt.columns]
        if isinstance(stmt.a, kir.Slot):
            slots.append((stmt.a, step.value("a")))
        for slot, index in slots:
            at = step.slot(slot.buffer, index, step.cta)
            if at is not None:
                end = Access(step, at, writes=False, proxy=True, engine=True).judge()
                step.state.fly(end, step.cta, step.site.index)
                ends.append(end)
    source = stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""
    a.starts(kir.AsyncKind.WGMMA, tuple(ends), stmt.acc.name, source)


def registers(step: Step) -> None:
    """Judge ordinary accesses of registers; note what a wgmma would need a fence after."""
    a, stmt = step.a, step.site.stmt
    reads: tuple[kir.Fragment, ...] = ()
    writes: tuple[kir.Fragment, ...] = ()
    match stmt:
        case kir.WgmmaFence():
            place = step.site.place
            if step.site.elected or place.warps % 4 or place.first % 4:
                step.wrong(Rule.COLLECTIVE, "wgmma_fence is executed by whole warpgroups only")
            a.clean = step.world.fragments
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
    if not step.world.fragments:
        return
    read, written = {f.name for f in reads}, {f.name for f in writes}
    a.uses_registers(read | written)
    for group in a.groups(kir.AsyncKind.WGMMA):
        for _, result, source in group:
            step.findings.ask()
            kind, used = "", result
            if result in read:
                kind = "RAW"
            elif result in written:
                kind = "WAW"
            elif source and source in written:
                kind, used = "WAR", source
            if kind:
                after = step.said(step.site, step.k)
                says = f"nothing awaits the wgmma that uses {used} before {after}"
                step.wrong(Rule.REGISTERS_BUSY, says, kind=kind)
                return


# --- a warpgroup ----------------------------------------------------------------------------------


def warpgroup(step: Step) -> tuple[Agent, ...]:
    """Return the threads that execute a statement as one warpgroup, if they are one."""
    place = step.site.place
    if step.site.elected or place.warps != 4 or place.first % 4:
        return ()
    return tuple(b for b in step.state.agents if b.kind.cta == step.cta and place.has(b.kind))


def group_of_warps(a: Agent) -> tuple[int, int]:
    """Return the CTA and the number of the warpgroup of threads."""
    return a.kind.cta, a.kind.warps[0] // 4


def note_product(step: Step, group: tuple[Agent, ...]) -> None:
    """Put down what has preceded the product that a warpgroup starts, if that can matter."""
    if not step.world.cumulative:
        return
    facts = 0
    for a in group:
        facts |= a.mine & ~step.events.accesses
        for end in a.groups(kir.AsyncKind.WGMMA)[-1][-1][0]:
            facts |= bit(end, OWN)
    products, which = step.state.products, group_of_warps(group[0])
    for age in range(AGES - 1, 0, -1):
        if (which, age - 1) in products:
            products[which, age] = products[which, age - 1]
    products[which, 0] = products.get((which, 1), 0) | facts


def learn_of_product(step: Step) -> None:
    """Let threads that have awaited products know what preceded these in their warpgroup.

    What all of them know by then is forgotten, so that it tells no states apart.
    """
    a, state = step.a, step.state
    age = sum(map(len, a.groups(kir.AsyncKind.WGMMA)))
    group = group_of_warps(a)
    record = state.products.get((group, age))
    if record is None or not step.holds(Rule.AWAIT_ORDERS):
        return
    others = record & ONES << OWN
    a.learns(record & ~others)
    a.cumulative |= others
    known = -1
    for b in state.agents:
        if group_of_warps(b) == group:
            known &= b.all | b.cumulative
    for older in range(age, AGES):
        if (group, older) in state.products:
            state.products[group, older] &= ~known


# --- the register file of a CTA -------------------------------------------------------------------


class ContestError(Exception):
    """Several warpgroups wait for registers that suffice for some: `states` are the ways on."""

    def __init__(self, states: list[State]) -> None:
        super().__init__(f"{len(states)} warpgroups could be given registers first")
        self.states = states


def granted(step: Step, stmt: kir.SetMaxNReg) -> bool:
    """Whether these threads get their registers now; other kinds are asked for themselves."""
    if not stmt.increase or step.a.first or not step.holds(Rule.BUDGET):
        return True
    most = step.world.most_registers
    takers = [b for b in step.state.agents if b.kind.cta == step.cta and most[b.kind.index]]
    alone = len({warp // 4 for b in takers for warp in b.kind.warps}) == 1
    wanted = sum(
        max(0, (stmt.registers if alone else most[b.kind.index]) - _held(step.world, b))
        * b.kind.count
        for b in takers
    )
    return wanted <= _free(step, step.cta)


def take_registers(step: Step, stmt: kir.SetMaxNReg) -> None:
    """Give these threads their new number of registers."""
    step.findings.ask()
    if step.a.unmet:
        says = "the warps of its warpgroup have not met at a block_sync since the last one"
        step.wrong(Rule.COLLECTIVE, says, kind="registers")
    step.a.takes_registers(stmt.registers)


def contended(scene: Scene) -> None:
    """Ask who comes first, if nobody can go on and some of those who wait could have registers.

    Raises
    ------
    ContestError
        With the states in which one of them does.
    """
    groups: set[tuple[int, int]] = set()
    for a in scene.state.agents:
        i = None if a.done else scene.world.code.programs[a.kind.index][a.at]
        if isinstance(i, Do) and isinstance(i.site.stmt, kir.SetMaxNReg):
            need = (i.site.stmt.registers - _held(scene.world, a)) * kir.WARPGROUP
            if i.site.stmt.increase and need <= _free(scene, a.kind.cta):
                groups |= {(a.kind.cta, warp // 4) for warp in a.kind.warps}
    if groups:
        raise ContestError([scene.state.serving(group) for group in sorted(groups)])


def _held(world: World, a: Agent) -> int:
    return a.registers or world.kernel.registers


def _free(scene: Scene, cta: int) -> int:
    """Return the registers of a CTA that nobody holds."""
    world = scene.world
    held = sum(_held(world, a) * a.kind.count for a in scene.state.agents if a.kind.cta == cta)
    return world.kernel.registers * world.kernel.threads - held


def budget(scene: Scene) -> None:
    """Check that the registers that are asked for are there, whatever the order."""
    kernel, findings = scene.world.kernel, scene.findings
    changes = [s for s in scene.world.code.sites if isinstance(s.stmt, kir.SetMaxNReg)]
    if not changes:
        return
    held = dict.fromkeys(range(-(-kernel.threads // kir.WARPGROUP)), kernel.registers)
    for site in changes:
        stmt, place = site.stmt, site.place
        assert isinstance(stmt, kir.SetMaxNReg), "these only"
        findings.ask()
        says, rule = "", Rule.BUDGET
        if site.elected or place.first % 4 or place.warps % 4:
            says, rule = "setmaxnreg is executed by whole warpgroups only", Rule.COLLECTIVE
        elif not 24 <= stmt.registers <= 256 or stmt.registers % 8:
            says = f"{stmt.registers} registers: pick a multiple of 8 from 24 to 256"
        elif kernel.registers == 0:
            says = "the kernel does not say how many registers its threads have at launch"
        for group in range(place.first // 4, (place.first + place.warps) // 4):
            now = held[group]
            if not says and (stmt.registers < now if stmt.increase else stmt.registers > now):
                says = f"goes from {now} to {stmt.registers} registers, the other way"
            held[group] = stmt.registers
        if says:
            findings.record(scene.violation(rule, site, says))
    room = max(kernel.registers, 0) * kernel.threads
    used = sum(held.values()) * kir.WARPGROUP
    findings.ask()
    if used > room:
        says = f"waits for ever: {used} registers are asked for, the CTA has {room}"
        grows = next((s for s in changes if getattr(s.stmt, "increase", False)), changes[0])
        findings.record(scene.violation(Rule.BUDGET, grows, says))
