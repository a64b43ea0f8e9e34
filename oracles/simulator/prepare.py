"""A kernel laid out for one launch: programs of its threads, and which CTAs run together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuser.arch import SM_90A
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.simulator.machine import Agent, Warp
from oracles.simulator.memory import ops
from oracles.simulator.memory.access import Geometry, View, view
from oracles.simulator.memory.tile import halves
from oracles.simulator.once import per_kernel
from oracles.simulator.sync.clock import fresh
from oracles.simulator.unroll import (
    Event,
    Node,
    Programs,
    compile_expr,
    compile_kernel,
    position,
    role_nodes,
    unroll,
)


@per_kernel
def unsupported(kernel: kir.Kernel) -> str:
    """Name the first construct that this machine does not model; empty if it models all."""
    for stmt in kernel.walk():
        unknown = isinstance(stmt, kir.Compute) and not ops.known(stmt.op)
        if unknown or isinstance(stmt, kir.Copy | kir.GridSum | kir.GridShare):
            return f"`{line(stmt)}` ({type(stmt).__name__})"
    for stmt in kernel.walk():
        inner = [s for body in kir.bodies(stmt) for s in body]
        ends = [type(s) for s in inner if isinstance(s, kir.Fetch | kir.Leave)]
        if ends != ([kir.Fetch, kir.Leave] if isinstance(stmt, kir.Loop) else []):
            return f"`{line(stmt)}` (a loop left by no number, or a number fetched outside)"
    draws = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.Draw)]
    if draws and (len(draws) > 1 or kernel.cluster > 1 or kernel.semaphores):
        return f"`{line(draws[-1])}` (numbers drawn in several places, or for several CTAs)"
    return ""


@per_kernel
def misplaced(kernel: kir.Kernel) -> str:
    """Say which mbarrier lies where none can, whatever happens when; empty if none does."""
    allocated = kernel.smem_bytes
    if allocated > SM_90A.smem_bytes:
        return f"{allocated} bytes of shared memory, a CTA has {SM_90A.smem_bytes}"
    laid_out: dict[int, str] = {}
    for m in kernel.barriers:
        for i in range(m.slots if m.offset is None else 0):
            laid_out[kernel.barrier_at(m) + 8 * i] = m.name
    for m in kernel.barriers:
        for i in range(0 if m.offset is None else m.slots):
            at = kernel.barrier_at(m) + 8 * i
            if at % 8 or not 0 <= at <= allocated - 8:
                return (
                    f"{m.name}[{i}] at byte {at} of {allocated}, of which it needs 8 at a multiple"
                )
            if at in laid_out:
                return f"{m.name}[{i}] at byte {at}, where {laid_out[at]} is laid out"
    return ""


def broken_requirement(kernel: kir.Kernel, env: Mapping[str, int]) -> str:
    """Say which requirement of a kernel a launch breaks; empty if none."""
    for condition in kernel.requires:
        if not compile_expr(condition)(dict(env)):
            return f"{kernel.name} requires {condition}"
    if env[kir.GRID.name] % kernel.cluster:
        return f"a grid of {env[kir.GRID.name]} CTAs is not made of clusters of {kernel.cluster}"
    return ""


def _named(stmt: kir.Stmt) -> tuple[int, ...]:
    match stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            return (number,)
        case kir.BlockSerializeWait() | kir.GridSync() | kir.LastArriving():
            return (stmt.barrier,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class _Code:
    """A kernel with its expressions compiled, and what is in it."""

    nodes: tuple[Node, ...]
    roles: tuple[Node, ...]
    named: tuple[int, ...]
    multiplies: bool


@per_kernel
def _code(kernel: kir.Kernel) -> _Code:
    every = list(kernel.walk())
    nodes = compile_kernel(kernel)
    named = tuple(sorted({n for stmt in every for n in _named(stmt)}))
    return _Code(nodes, role_nodes(nodes), named, any(isinstance(s, kir.Wgmma) for s in every))


class Prepared:
    """A kernel laid out for one launch; any number of schedules can run on it.

    `env` has the values of the kernel's parameters and of `GRID`, `counts` the integers of every
    semaphore; `named` are its named barriers.
    """

    def __init__(self, kernel: kir.Kernel, env: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.env = dict(env)
        self.views: dict[str, View] = {t.name: view(t, self.env) for t in kernel.tensors}
        self.counts = {s.name: compile_expr(s.count)(self.env) for s in kernel.semaphores}
        self.together = compile_expr(kernel.together)(self.env)
        self.geometry = Geometry(kernel, self.views)
        known = _code(kernel)
        self.nodes = known.nodes
        self.named, self.multiplies = known.named, known.multiplies
        self._programs: dict[int, Programs] = {}
        self._positions = {
            (warp, lane0): position(known.roles, warp, lane0=lane0)
            for warp in range(kernel.threads // kir.WARP)
            for lane0 in (True, False)
        }

    def gangs(self, blocks: range | tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return which CTAs run together: those of a cluster, and those that meet at a semaphore.

        CTAs that never meet are not ordered by anything, so it is the same to run them one by one;
        what they do to the same global memory is a race in every order.  ValueError if only a part
        of a cluster is asked for.
        """
        size = self.kernel.cluster
        for block in blocks:
            first = block // size * size
            if any(peer not in blocks for peer in range(first, first + size)):
                raise ValueError(
                    f"Launch(blocks={tuple(blocks)}): CTA {block} runs with its cluster of {size} "
                    "CTAs only; name all of them"
                )
        leader = {block: block for block in blocks}

        def find(block: int) -> int:
            while leader[block] != block:
                block = leader[block]
            return block

        met: dict[object, int] = {}
        for block in blocks:
            for place in self._meets(block):
                first = met.setdefault(place, block)
                a, b = sorted((find(first), find(block)))
                leader[b] = a
        gangs: dict[int, list[int]] = {}
        for block in blocks:
            gangs.setdefault(find(block), []).append(block)
        return [tuple(sorted(gang)) for gang in gangs.values()]

    def _meets(self, block: int) -> set[object]:
        places = set[object]()
        if self.kernel.cluster > 1:
            places.add(block // self.kernel.cluster)
        if self.kernel.semaphores:
            for warp in range(self.kernel.threads // kir.WARP):
                for lane0 in (True, False):
                    for event in self._program(block, warp, lane0=lane0):
                        match event.stmt:
                            case (
                                kir.BlockSerializeWait(s)
                                | kir.BlockSerializeRelease(s)
                                | kir.GridSync(s)
                                | kir.LastArriving(s)
                            ):
                                places.add((s.name, event.slot))
                            case _:
                                pass
        return places

    def agents(self, blocks: tuple[int, ...]) -> list[Agent]:
        """Return the threads of CTAs at their start, two for each warp."""
        agents: list[Agent] = []
        for cta, block in enumerate(blocks):
            where = f"CTA {block} " if len(blocks) > 1 else ""
            for warp in range(self.kernel.threads // kir.WARP):
                team = Warp()
                for (lo, hi), lanes in zip(halves(warp), ("lane 0", "lanes 1-31"), strict=True):
                    name = f"{where}{self._team(warp)} {lanes}"
                    program = self._program(block, warp, lane0=hi - lo == 1)
                    by = len(agents)
                    agents.append(
                        Agent(by, name, cta, block, warp, hi - lo, lo, hi, program, fresh(0), team)
                    )
        return agents

    def _team(self, warp: int) -> str:
        for stmt in self.kernel.body:
            if isinstance(stmt, kir.Role) and 0 <= warp - stmt.first_warp < stmt.warps:
                return f"{stmt.name} warp {warp - stmt.first_warp}"
        return f"warp {warp}"

    def _program(self, block: int, warp: int, *, lane0: bool) -> list[Event]:
        if block not in self._programs:
            env = {
                **self.env,
                kir.BLOCK.name: block,
                kir.RANK.name: block % self.kernel.cluster,
            }
            warps = self.kernel.threads // kir.WARP
            positions = dict.fromkeys(self._positions.values())
            self._programs[block] = unroll(self.nodes, env, positions, warps)
        return self._programs[block][self._positions[warp, lane0]]
