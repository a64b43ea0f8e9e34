"""Which function executes each gate; what has none is not modelled."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from oracles.ptx import engines, strong, sync, tensor, warp
from oracles.ptx.machine import Ints, Machine
from oracles.ptx.maps import written
from oracles.ptx.text.grammar import Instruction
from oracles.ptx.text.program import Block, Program, asserts, restricts, rewrites
from oracles.ptx.text.translate import UnsupportedError

Step = Callable[[Machine, Block, Instruction, Ints], None]


class Gates:
    """All state of a launch that is neither registers nor memory, and who executes what."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.strong = strong.Strong(m)
        self.sync = sync.Sync(m, self.strong)
        self.maps = written.Descriptors(m)
        self.engines = engines.Engines(m, self.sync, self.maps)
        self.tensor = tensor.Tensor(m)
        m.clocks.holders.append(self.strong.rows)
        m.barriers = self.sync.blocked

    def __call__(self, m: Machine, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute a gate for the threads that stand before it."""
        mods = ins.mods
        match ins.name:
            case "ret" | "exit":
                m.leave(g)
            case "bar" | "barrier" if "warp" in mods:
                warp.join(m, block, ins, g)
            case "barrier" if "cluster" in mods:
                self.sync.cluster(block, ins, g)
            case "bar" | "barrier":
                self.sync.bar(block, ins, g)
            case "mbarrier":
                self.sync.mbarrier(block, ins, g)
            case "shfl":
                warp.shuffle(m, block, ins, g)
            case "vote":
                warp.vote(m, block, ins, g)
            case "match":
                warp.match(m, block, ins, g)
            case "redux":
                warp.redux(m, block, ins, g)
            case "elect":
                warp.elect(m, block, ins, g)
            case "activemask":
                warp.active(m, block, ins, g)
            case "fence" if rewrites(ins):
                self.maps.fence(block, ins, g)
            case "tensormap" if mods[0] == "replace":
                self.maps.replace(block, ins, g)
            case "tensormap":
                self.maps.copy(block, ins, g)
            case "fence" if "proxy" in mods:
                self.sync.proxy_fence(block, ins, g)
            case "fence" if "mbarrier_init" in mods:
                self.sync.init_fence(block, ins, g)
            case "fence" if restricts(ins):
                self.strong.restricted(g)
                m.go(block.after, g)
            case "fence" | "membar":
                scope = {"gl": "gpu"}.get(mods[-1], mods[-1])
                self.strong.fence(g, scope)
                m.go(block.after, g)
            case "st" if "async" in mods:
                self.engines.put(block, ins, g)
            case "ld":
                self.strong.load(block, ins, g)
            case "st":
                self.strong.store(block, ins, g)
            case "atom" | "red":
                self.strong.atomic(block, ins, g)
            case "cp":
                self._copy(block, ins, g)
            case "setmaxnreg":
                self.sync.max_registers(block, ins, g)
            case "ldmatrix":
                self.tensor.load(block, ins, g)
            case "stmatrix":
                self.tensor.store(block, ins, g)
            case "mma":
                self.tensor.multiply(block, ins, g)
            case "wgmma":
                self.tensor.wgmma(block, ins, g)
            case "call":
                m.find("exit", f"an assertion fails in {m.name(int(g[0]))}")
                m.leave(g)
            case "trap":
                m.find("exit", f"{len(g)} threads execute trap")
                m.leave(g)
            case "griddepcontrol":
                m.note(g, "griddepcontrol", mods[0])
                if "wait" in mods and m.before >= 0:
                    m.clocks.learn(g, m.before, m.clocks.now, (0, 1, 2))
                m.go(block.after, g)
            case _:  # nanosleep
                m.go(block.after, g)

    def _copy(self, block: Block, ins: Instruction, g: Ints) -> None:
        mods, e = ins.mods, self.engines
        if "bulk" not in mods:
            if "commit_group" in mods:
                e.commit_copies(block, ins, g)
            elif "wait_group" in mods or "wait_all" in mods:
                e.wait_copies(block, ins, g)
            elif "arrive" in mods:
                e.arrive_copies(block, ins, g)
            else:
                e.copy(block, ins, g)
        elif "prefetch" in mods:
            self.m.go(block.after, g)
        elif "commit_group" in mods:
            e.commit_bulk(block, ins, g)
        elif "wait_group" in mods:
            e.wait_bulk(block, ins, g)
        elif "mbarrier::complete_tx::bytes" in mods:
            e.load(block, ins, g)
        else:
            e.store(block, ins, g)


@lru_cache(maxsize=16)
def unsupported(program: Program) -> list[str]:
    """Return the names of instructions of a program that are not modelled."""
    found = {*program.unsupported}
    for ins in program.instructions():
        if not _is_gate(program, ins):
            continue
        try:
            check(ins)
        except UnsupportedError as error:
            found.add(str(error))
    return sorted(found)


def _is_gate(program: Program, ins: Instruction) -> bool:
    return program.gates.get(id(ins)) is ins


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a gate that is not modelled."""
    match ins.name:
        case "call" if asserts(ins):
            return
        case "ret" | "exit" | "trap" | "nanosleep" | "griddepcontrol" | "activemask" | "elect":
            return
        case "tensormap" | "fence" if rewrites(ins):
            written.check(ins)
        case "bar" | "barrier" | "mbarrier" | "fence" | "setmaxnreg":
            sync.check(ins)
        case "membar":
            return
        case "shfl" | "vote" | "match" | "redux":
            warp.check(ins)
        case "st" if "async" in ins.mods:
            engines.check(ins)
        case "ld" | "st" | "atom" | "red":
            strong.check(ins)
        case "cp":
            engines.check(ins)
        case "ldmatrix" | "stmatrix" | "mma" | "wgmma":
            tensor.check(ins)
        case _:
            raise UnsupportedError(ins.opcode)
