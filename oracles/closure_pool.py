"""The register file of a CTA, which `SetMaxNReg` deals out anew.

Which of two warpgroups that ask for more comes first is open.  So none of several is given any
until there is enough for all that will still ask; then the order does not matter.

Source: PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from fuser import kernel_ir as kir
from oracles.arithmetic import UnsupportedError
from oracles.closure_code import Site
from oracles.closure_rules import Rule
from oracles.closure_state import Agent, State
from oracles.closure_world import World


def granted(world: World, state: State, a: Agent, stmt: kir.SetMaxNReg) -> bool:
    """Whether these threads get their registers now; other kinds are asked for themselves."""
    if not stmt.increase or Rule.BUDGET in world.off:
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
    a.registers, a.unmet = stmt.registers, True


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


def contended(world: World, state: State, a: Agent, stmt: kir.SetMaxNReg) -> None:
    """Make sure that threads that wait for registers could not have had them either.

    Raises
    ------
    UnsupportedError
        If they could, had others not asked too.
    """
    need = (stmt.registers - _held(world, a)) * kir.WARPGROUP
    if stmt.increase and need <= _free(world, state, a.kind.cta):
        says = "several warpgroups ask for registers, and who comes first may matter"
        raise UnsupportedError(f"set_max_nreg({stmt.registers}, increase): {says}")


def _held(world: World, a: Agent) -> int:
    return a.registers or world.kernel.registers


def _free(world: World, state: State, cta: int) -> int:
    """Return the registers of a CTA that nobody holds."""
    held = sum(_held(world, a) * a.kind.count for a in state.agents if a.kind.cta == cta)
    return world.kernel.registers * world.kernel.threads - held


def _asks(world: World, a: Agent) -> int:
    """Return the most registers that these threads ever ask for; 0 if they never do."""
    return world.increases[a.kind.index]
