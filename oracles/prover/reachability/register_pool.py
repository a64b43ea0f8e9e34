"""The register file of a CTA, which `SetMaxNReg` deals out anew.

Which of two warpgroups that ask for more comes first is open.  So none of several is given any
until there is enough for all that will still ask; then the order does not matter.  If nobody can go
on without, each of those for whom there is enough comes first in a state of its own: by then all
others are as far as they come, and what a warpgroup takes early it might as well take late.

Source: PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import Agent, State
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site


class ContestError(Exception):
    """Several warpgroups wait for registers that suffice for some: `states` are the ways on."""

    def __init__(self, states: list[State]) -> None:
        super().__init__(f"{len(states)} warpgroups could be given registers first")
        self.states = states


def granted(world: World, state: State, a: Agent, stmt: kir.SetMaxNReg) -> bool:
    """Whether these threads get their registers now; other kinds are asked for themselves."""
    if not stmt.increase or a.first or Rule.BUDGET in world.off:
        return True
    takers = [b for b in state.agents if b.kind.cta == a.kind.cta and _asks(world, b)]
    alone = len({warp // 4 for b in takers for warp in b.kind.warps}) == 1
    wanted = sum(
        max(0, (stmt.registers if alone else _asks(world, b)) - _held(world, b)) * b.kind.count
        for b in takers
    )
    return wanted <= _free(world, state, a.kind.cta)


def take(world: World, state: State, a: Agent, site: Site, stmt: kir.SetMaxNReg, k: int) -> None:
    """Give these threads their new number of registers."""
    world.checked += 1
    if a.unmet:
        says = "the warps of its warpgroup have not met at a block_sync since the last one"
        world.wrong(state, Rule.COLLECTIVE, "registers", site, k, says)
    a.registers, a.unmet, a.first = stmt.registers, True, False


def met(state: State, threads: tuple[int, ...]) -> None:
    """Note that threads, by their kinds, have met: who met a whole warpgroup is together again."""
    if not any(state.agents[index].unmet for index in threads):
        return
    lanes: dict[tuple[int, int], int] = {}
    for index in threads:
        kind = state.agents[index].kind
        for warp in kind.warps:
            group = kind.cta, warp // 4
            lanes[group] = lanes.get(group, 0) + kind.lanes
    for index in threads:
        a = state.agents[index]
        if all(lanes[a.kind.cta, warp // 4] == kir.WARPGROUP for warp in a.kind.warps):
            a.unmet = False


def contended(world: World, state: State) -> None:
    """Ask who comes first, if nobody can go on and some of those who wait could have registers.

    Raises
    ------
    ContestError
        With the states in which one of them does.
    """
    groups: set[tuple[int, int]] = set()
    for a in state.agents:
        i = None if a.done else world.code.programs[a.kind.index][a.at]
        if isinstance(i, Do) and isinstance(i.site.stmt, kir.SetMaxNReg):
            need = (i.site.stmt.registers - _held(world, a)) * kir.WARPGROUP
            if i.site.stmt.increase and need <= _free(world, state, a.kind.cta):
                groups |= {(a.kind.cta, warp // 4) for warp in a.kind.warps}
    out = []
    for group in sorted(groups):
        other = state.copy()
        for a in other.agents:
            a.first = a.first or group in {(a.kind.cta, warp // 4) for warp in a.kind.warps}
        out.append(other)
    if out:
        raise ContestError(out)


def _held(world: World, a: Agent) -> int:
    return a.registers or world.kernel.registers


def _free(world: World, state: State, cta: int) -> int:
    """Return the registers of a CTA that nobody holds."""
    held = sum(_held(world, a) * a.kind.count for a in state.agents if a.kind.cta == cta)
    return world.kernel.registers * world.kernel.threads - held


def _asks(world: World, a: Agent) -> int:
    """Return the most registers that these threads ever ask for; 0 if they never do."""
    return world.increases[a.kind.index]
