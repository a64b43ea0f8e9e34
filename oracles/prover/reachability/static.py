"""What is judged without following any thread: register budgets, and CTAs that nothing orders."""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.grid.apart import apart
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import State
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site

REGISTERS = 65536
"""32-bit registers of a multiprocessor that the threads of a CTA may share."""


def stands(world: World) -> None:
    """Judge what no order of events in a CTA decides: register budgets, what CTAs share."""
    state = State([])
    world.doubt = apart(world)
    changes = [s for s in world.code.sites if isinstance(s.stmt, kir.SetMaxNReg)]
    if changes:
        _budget(world, state, changes)


def _budget(world: World, state: State, changes: list[Site]) -> None:
    """Check that the registers that are asked for are there."""
    kernel = world.kernel
    held = dict.fromkeys(range(-(-kernel.threads // kir.WARPGROUP)), kernel.registers)
    for site in changes:
        stmt, place = site.stmt, site.place
        assert isinstance(stmt, kir.SetMaxNReg), "these only"
        world.checked += 1
        says, kind, rule = "", "registers", Rule.BUDGET
        if site.elected or place.first % 4 or place.warps % 4:
            says, kind = "setmaxnreg is executed by whole warpgroups only", "collective"
            rule = Rule.COLLECTIVE
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
            world.wrong(state, rule, kind, site, -1, says)
    room = max(kernel.registers, 0) * kernel.threads
    used = sum(held.values()) * kir.WARPGROUP
    world.checked += 1
    if used > room:
        says = f"waits for ever: {used} registers are asked for, the CTA has {room}"
        grows = next((s for s in changes if getattr(s.stmt, "increase", False)), changes[0])
        world.wrong(state, Rule.BUDGET, "registers", grows, -1, says)
