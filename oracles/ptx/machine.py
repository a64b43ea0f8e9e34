"""The threads of a launch: registers, places, memory; who goes next, and what is found.

Threads that stand before the same block go together, whatever warp or CTA they are of, the lowest
block first, so that they meet again behind branches.  What asks for whole warps waits for them.
Engines complete what they have in flight only when no thread can go on, or at random times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from oracles.ptx.clocks import NEVER, Clocks, LimitError
from oracles.ptx.launch import Argument, Launch, Pointer, Scalar, Struct, TensorMap
from oracles.ptx.log import Log, Word
from oracles.ptx.maps.encoding import encoded
from oracles.ptx.memory import LANES, WARPS, Space
from oracles.ptx.sums import Sums, once
from oracles.ptx.text import arithmetic as arith
from oracles.ptx.text.approximate import Approximate, Evaluate
from oracles.ptx.text.grammar import SIZES, Imm, Instruction, Not, Operand, Reg, Sym, Vec
from oracles.ptx.text.program import Block, Program
from oracles.ptx.text.translate import NAMESPACE, VALUE, access
from oracles.ptx.vectors import all_of, any_of, distinct, spread
from oracles.verdict import Finding

Ints = npt.NDArray[Any]

GLOBAL_BASE = 0x7_0000_0000
LOCAL_WINDOW, SHARED_WINDOW, PARAM_WINDOW = 0x7E << 40, 0x7F << 40, 0x7D << 40
"""Generic addresses: of global memory, and of the windows of the other spaces."""
SHARED_FIRST = 0x400
"""Shared memory begins behind what the system has, 1 KiB on Hopper."""
POISON = 0xFF
"""What lies between buffers."""
RANK = 24
"""A shared::cluster address has the rank of the CTA, plus one, from this bit on."""
WORK = 400_000_000
"""Work that a launch may take before the answer is unknown: half a minute (measured)."""
BLOCK, GATE = 200, 4000
"""Work of a block of plain instructions, and of one other instruction, beside 1 for each thread:
13 and 265 microseconds beside 70 nanoseconds, fitted to the times of 90 drawn cases."""
PATIENCE = 100
"""Blocks that others may run before the threads that have stood before one longest have a turn:
where some spin on a lock, those who hold it may be further on."""
TIMERS = {"%clock": "u4", "%clock64": "u8", "%globaltimer": "u8", "%globaltimer_lo": "u4"}
"""Registers that count time, and how they are stored."""
PASSES = 1000
"""Cycles, or nanoseconds, that pass while threads run a block."""
MOST = 12
"""Errors that are kept."""
MOST_BYTES, BESIDE = 768 << 20, 512
"""What the threads of a launch may take, and what each takes beside its registers: where it is, and
what it knows.  (Registers that nobody writes take no memory.)"""


class Machine:
    """One launch."""

    def __init__(self, program: Program, launch: Launch, seed: int) -> None:
        self.program, self.launch, self.seed = program, launch, seed
        self.random = Random(seed)
        self.block_threads = int(np.prod(launch.block))
        self.ctas = int(np.prod(launch.grid))
        directives = program.function.directives
        self.cluster = (directives.get("reqnctapercluster") or (launch.cluster,))[0]
        self.T = self.ctas * self.block_threads
        each = program.register_bytes + BESIDE
        if self.T * each > MOST_BYTES:
            raise LimitError(f"{self.T} threads of {each} bytes, too many to keep")
        self.all = np.arange(self.T)
        self.cta = self.all // self.block_threads
        self.tid = self.all % self.block_threads
        self.warps_per_cta = -(-self.block_threads // 32)
        self.warp = self.cta * self.warps_per_cta + self.tid // 32
        self.lane = self.tid % 32
        self.live = np.ones(self.T, bool)
        self._alive: dict[int, Ints] = {}
        """Threads that live, by group of so many warps."""
        self.clocks = Clocks(
            self.T, self.cta, releases=program.rewrites, restricts=program.restricts
        )
        self.lines: list[int] = [0, 0]
        self.findings: dict[tuple[Any, ...], Finding] = {}
        self.claims = 0
        self.progress = 0
        self.work = 0
        self.line = 0
        self.reached: set[int] = set()
        """Lines of the gates that were executed."""
        self.log: Log | None = None
        self.evaluate: Evaluate | None = None
        """Gives the results of approximate instructions, where they are not to be the nearest."""
        self.sums: Sums = once
        self.shared_window = np.uint64(SHARED_WINDOW)
        self.local_window = np.uint64(LOCAL_WINDOW)
        self.param_window = np.uint64(PARAM_WINDOW)
        self.symbols: dict[str, np.uint64] = {}
        self.ready: dict[int, list[Ints]] = {}
        self.heap: list[int] = []
        self.standing: deque[tuple[int, int]] = deque()
        self.since: dict[int, int] = {}
        self.steps = 0
        self.waiting: dict[int, Ints] = {}
        self.polling: list[tuple[int, Ints, int]] = []
        self.why: dict[int, str] = {}
        """Of threads that wait, by block: for what."""
        self.pending: list[Callable[[], None]] = []
        """What engines have in flight, to be completed in any order."""
        self.at_exit: list[Callable[[Ints], None]] = []
        self.barriers: Callable[[], list[tuple[int, Ints]]] = list
        """Who waits at barriers, by block."""
        self.touch: Callable[[Ints, Ints, Ints], None] | None = None
        """Called where registers of a wgmma are read or written by other instructions."""
        self.in_flight: dict[int, int] = {}
        self.queue: list[int] = []
        """Clusters of CTAs that have not begun."""
        self.arrivals: dict[int, dict[int, int]] = {}
        """For each CTA the threads of others that arrived at its mbarriers, and when last."""
        self._layout()
        self.R = self._registers()
        self.before = -1
        """Column of the launches before this one, where it may begin before they end."""
        if launch.dependent:
            self.before = self.clocks.column(("the launches before",))
            self.glob.writer[:], self.glob.written[:] = self.before, 1

    # --- memory ----------------------------------------------------------------------------------

    def _layout(self) -> None:
        program, launch = self.program, self.launch
        grain = _grain(program)
        at = SHARED_FIRST
        self.of_the_host: set[int] = set()
        """Places of tensor maps that the host has written into global memory."""
        self.constant: list[tuple[int, int]] = []
        """Where variables of constant memory begin and end."""
        local = 0
        arena = 0
        for one in program.variables():
            if one.space == "shared" and one.nbytes:
                at = -(-at // one.align) * one.align
                self.symbols[one.name] = np.uint64(at)
                at += one.nbytes
            elif one.space == "local":
                local = -(-local // one.align) * one.align
                self.symbols[one.name] = np.uint64(local)
                local += one.nbytes
        for one in program.variables():
            if one.space == "shared" and not one.nbytes:
                at = -(-at // one.align) * one.align
                self.symbols[one.name] = np.uint64(at)
        self.dynamic = at
        self.shared_end = at + launch.shared
        self.shared_bytes = -(-self.shared_end // 1024) * 1024
        self.local_bytes = -(-max(local, 1) // 16) * 16
        self.local = np.zeros(self.T * self.local_bytes, np.uint8)
        self.local_view = {
            k: self.local.view(k)
            for k in ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "u8", "i8", "f8")
        }
        starts, ends, self.place = [], [], {}
        named = _named(program)
        contents: list[tuple[int, bytes]] = []
        for one in program.variables():
            if one.space in ("global", "const") and one.name in named:
                arena = -(-arena // 256) * 256 + 256
                starts.append(arena)
                ends.append(arena + one.nbytes)
                contents.append((arena, one.content))
                self.symbols[one.name] = np.uint64(GLOBAL_BASE + arena)
                if one.space == "const":
                    self.constant.append((arena, arena + one.nbytes))
                arena += one.nbytes
        for name, buffer in launch.buffers.items():
            align = max(buffer.aligned, 256)
            arena = -(-arena // align) * align + align
            self.place[name] = arena
            starts.append(arena)
            ends.append(arena + len(buffer.data))
            arena += len(buffer.data)
        self.starts, self.ends = np.array(starts or [0]), np.array(ends or [0])
        self.buffer_names = [
            *(
                v.name
                for v in program.variables()
                if v.space in ("global", "const") and v.name in named
            ),
            *launch.buffers,
        ]
        self.glob = Space("global", arena + 512, grain, self.clocks, self.report, False)
        self.glob.data[:] = POISON
        self.shared = Space(
            "shared", self.ctas * self.shared_bytes, grain, self.clocks, self.report, True
        )
        self.shared.granules_each = self.shared_bytes // grain
        for where, content in contents:
            self.glob.data[where : where + len(content)] = np.frombuffer(content, np.uint8)
        for name, buffer in launch.buffers.items():
            where = self.place[name]
            self.glob.data[where : where + len(buffer.data)] = buffer.data
            for at, part in buffer.parts:
                raw = np.frombuffer(self._content(part), np.uint8)
                self.glob.data[where + at : where + at + len(raw)] = raw
                if isinstance(part, TensorMap):
                    self.of_the_host.add(where + at)
        self._owner = np.full((arena >> 8) + 3, -1)
        for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
            self._owner[start >> 8 : (end + 255) >> 8] = n
        self.fill_params()

    def fill_params(self) -> None:
        """Write the arguments; ValueError if they are not those of the kernel."""
        params = self.program.function.params
        if len(params) != len(self.launch.arguments):
            raise ValueError(
                f"Launch: {len(self.launch.arguments)} arguments, the kernel "
                f"{self.program.function.name} has {len(params)} parameters"
            )
        self.param_bytes = bytearray(self.program.param_bytes + 128)
        for param, given in zip(params, self.launch.arguments, strict=True):
            at = self.program.params[param.name]
            content = self._content(given)
            if len(content) != param.nbytes:
                raise ValueError(
                    f"Launch: {given} has {len(content)} bytes, {param.name} {param.nbytes}"
                )
            self.param_bytes[at : at + len(content)] = content

    def _content(self, given: Argument) -> bytes:
        """Return the bytes of an argument."""
        match given:
            case Pointer(name, offset):
                return self.address(name, offset).to_bytes(8, "little")
            case Scalar():
                return given.content()
            case Struct(nbytes, parts):
                held = bytearray(nbytes)
                for at, one in parts:
                    content = self._content(one)
                    held[at : at + len(content)] = content
                return bytes(held)
            case _:
                return encoded(given, self.address(given.buffer, given.offset))

    def buffer_at(self, place: int) -> tuple[str, int, int]:
        """Return the name of the buffer at a place of global memory, where it begins and ends.

        The name is empty where there is none.
        """
        owner = -1
        if 0 <= place < len(self._owner) << 8:
            owner = int(self._owner[place >> 8])
        if owner < 0:
            return "", place, place
        return self.buffer_names[owner], int(self.starts[owner]), int(self.ends[owner])

    def address(self, buffer: str, offset: int = 0) -> int:
        """Return the address of a byte of a buffer."""
        if buffer not in self.place:
            raise ValueError(f"Launch: no buffer {buffer!r}; there are {', '.join(self.place)}")
        return GLOBAL_BASE + self.place[buffer] + offset

    def param(self, offset: int, kind: str) -> Any:
        """Return a number among the arguments."""
        size = int(kind[1])
        return np.frombuffer(bytes(self.param_bytes[offset : offset + size]), kind)[0]

    def symbol(self, name: str) -> np.uint64:
        """Return the address of a variable in its space."""
        return self.symbols[name]

    def near(self, what: Approximate, *given: Any) -> Any:
        """Return the results of an approximate instruction; one too far off is reported."""
        if self.evaluate is None:
            return what.nearest(*given)
        got = self.evaluate(what.opcode, given)
        far = ~what.allows(got, *given)
        if any_of(far):
            at = int(np.flatnonzero(far)[0])
            of = ", ".join(repr(np.broadcast_to(x, far.shape).flat[at]) for x in given)
            near = np.broadcast_to(what.nearest(*given), far.shape).flat[at]
            says = f"{what.opcode} of {of} is {np.asarray(got).flat[at]!r}, the nearest is {near!r}"
            self.findings.setdefault(
                ("interval", what.opcode), Finding("interval", what.opcode, says)
            )
        return got

    def mapa(self, g: Ints, address: Any, rank: Any) -> Any:
        """Return the shared::cluster address of what lies here, in another CTA."""
        kind = np.asarray(address).dtype.type
        low = address & kind((1 << RANK) - 1)
        return low | ((np.asarray(rank).astype(kind) + kind(1)) << kind(RANK))

    def owner_of(self, g: Ints, address: Ints) -> Ints:
        """Return the CTA in whose shared memory an address lies."""
        rank = (address >> np.uint64(RANK)).astype(np.int64)
        own = self.cta[g]
        return np.where(rank == 0, own, own // self.cluster * self.cluster + rank - 1)

    def place_shared(self, g: Ints, address: Any, nbytes: int, align: int = 0) -> tuple[Ints, Ints]:
        """Return where shared addresses lie, and which are good; others are reported."""
        address = spread(_as(address, np.uint64), g)
        offset = (address & np.uint64((1 << RANK) - 1)).astype(np.int64)
        ok = (offset >= SHARED_FIRST) & (offset + nbytes <= self.shared_end)
        ok &= offset % (align or nbytes) == 0
        if address.max(initial=0) >> np.uint64(RANK) == 0:
            owner = self.cta[g]
        else:
            owner = self.owner_of(g, address)
            ok &= (owner >= 0) & (owner < self.ctas)
            ok &= owner // self.cluster == self.cta[g] // self.cluster
        if not all_of(ok):
            bad = int(np.flatnonzero(~ok)[0])
            room = f"{SHARED_FIRST:#x}..{self.shared_end:#x}"
            self.find(
                "bounds",
                f"thread {self.name(int(g[bad]))}: {nbytes} bytes at shared "
                f"{int(address[bad]):#x}: it has {room}, accesses are aligned to their size",
            )
        self.claims += len(g)
        place = owner * self.shared_bytes + offset
        return place if all_of(ok) else np.where(ok, place, 0), ok

    def place_global(
        self, g: Ints, address: Any, nbytes: int, align: int = 0, *, reads: bool = False
    ) -> tuple[Ints, Ints]:
        """Return where global addresses lie, and which are good; others are reported.

        A read may go past the end of a buffer within 16 aligned bytes of which some are inside:
        allocations are whole multiples of more (CUDA programming guide, "Device Memory Accesses").
        """
        address = spread(_as(address, np.int64), g)
        offset = address - GLOBAL_BASE
        inside = (offset >= 0) & (offset < len(self._owner) << 8)
        owner = self._owner[np.where(inside, offset, 0) >> 8]
        ok = inside & (owner >= 0)
        ends = self.ends[owner]
        if reads:
            ok &= offset < ends
            ends = -(-ends // 16) * 16
        ok &= (offset >= self.starts[owner]) & (offset + nbytes <= ends)
        fits = address % (align or nbytes) == 0
        if not all_of(ok & fits):
            bad = int(np.flatnonzero(~(ok & fits))[0])
            which = int(owner[bad])
            near = self.buffer_names[which] if which >= 0 else "no buffer"
            at = int(offset[bad] - self.starts[which]) if which >= 0 else int(address[bad])
            size = int(self.ends[which] - self.starts[which]) if which >= 0 else 0
            why = "is misaligned" if ok[bad] else f"of {size} bytes"
            self.find(
                "bounds", f"thread {self.name(int(g[bad]))}: {nbytes} bytes at {near} + {at} {why}"
            )
        self.claims += len(g)
        ok &= fits
        return np.where(ok, offset, 0), ok

    def split_generic(self, address: Any, g: Ints) -> list[tuple[str, Ints, Ints]]:
        """Return generic addresses by the space that they lie in."""
        address = spread(_as(address, np.uint64), g)
        top = (address >> np.uint64(40)).astype(np.int64)
        found = []
        for name, value in (("shared", 0x7F), ("local", 0x7E), ("param", 0x7D)):
            pick = top == value
            if any_of(pick):
                found.append((name, pick, address - np.uint64(value << 40)))
        rest = top < 0x7D
        if any_of(rest):
            found.append(("global", rest, address))
        return found

    def load(self, g: Ints, what: Any, address: Any, where: Any) -> list[Any]:
        """Load a vector of values for threads; those that are masked out get zeros."""
        space, kind, many, line, used = what
        self.at_line(line)
        dtype = NAMESPACE[kind]
        out = [np.zeros(len(g), dtype) for _ in range(many)]
        if where is None:
            pick: Any = slice(None)
            who = g
        else:
            pick = np.flatnonzero(spread(where, g))
            if not len(pick):
                return out
            who = g[pick]
        address = spread(address, g)[pick]
        if space == "generic":
            for name, part, raw in self.split_generic(address, who):
                got = self.load(who[part], (name, *what[1:]), raw[part], None)
                at = np.arange(len(g))[pick][part]
                for i in range(many):
                    out[i][at] = got[i]
            return out
        size = dtype().itemsize
        if space == "local":
            base = who * self.local_bytes + address.astype(np.int64)
            view = self.local_view[kind]
        elif space == "param":
            offset = (address & np.uint64((1 << 40) - 1)).astype(np.int64)
            raw = np.frombuffer(self.param_bytes, np.uint8)
            for i in range(many):
                at = offset[:, None] + i * size + np.arange(size)
                out[i][pick] = raw[np.minimum(at, len(raw) - 1)].view(kind)[:, 0]
            return out
        else:
            shared = space.startswith("shared")
            held = self.shared if shared else self.glob
            whole = size * many
            reach = used.bit_length() or whole
            if shared:
                base, ok = self.place_shared(who, address, reach, whole)
            else:
                base, ok = self.place_global(who, address, reach, whole, reads=True)
            seen = ok if not all_of(ok) else slice(None)
            granules = held.granules(base[seen], whole)
            if used:
                kept = [
                    used >> i * held.grain & ((1 << held.grain) - 1)
                    for i in range(granules.shape[1])
                ]
                granules = granules[:, np.flatnonzero(kept)]
            held.read(granules, who[seen])
            view = held.view[kind]
        first = base // size
        for i in range(many):
            out[i][pick] = view[first + i]
        return out

    def store(self, g: Ints, what: Any, address: Any, values: tuple[Any, ...], where: Any) -> None:
        """Store vectors of values."""
        space, kind, many, line, _ = what
        self.at_line(line)
        size = NAMESPACE[kind]().itemsize
        if where is not None:
            pick = np.flatnonzero(spread(where, g))
            address = spread(address, g)[pick]
            values = tuple(spread(v, g)[pick] for v in values)
            g = g[pick]
        if not len(g):
            return
        address = spread(address, g)
        if space == "generic":
            for name, part, raw in self.split_generic(address, g):
                some = tuple(spread(v, g)[part] for v in values)
                self.store(g[part], (name, *what[1:]), raw[part], some, None)
            return
        self.progress += 1
        if space == "local":
            base = g * self.local_bytes + address.astype(np.int64)
            view = self.local_view[kind]
        else:
            shared = space.startswith("shared")
            place = self.place_shared if shared else self.place_global
            held = self.shared if shared else self.glob
            base, ok = place(g, address, size * many)
            if not all_of(ok):
                values = tuple(spread(v, g)[ok] for v in values)
                base, g = base[ok], g[ok]
            held.write(held.granules(base, size * many), g, twice=True)
            view = held.view[kind]
        first = base // size
        for i, value in enumerate(values):
            view[first + i] = value
        if space != "local" and len(g) > 1:
            self._lost(g, first, size, values, held)

    def _lost(self, g: Ints, first: Ints, size: int, values: Any, held: Space) -> None:
        """Report threads that store different values to one place by one instruction.

        Where the values are the same, it does not matter whose is kept.
        """
        for i, value in enumerate(values):
            bits = spread(value, g).view(f"u{size}")
            lost = held.view[f"u{size}"][first + i] != bits
            if any_of(lost):
                at = int(np.flatnonzero(lost)[0])
                text = f"{held.where(int(first[at] + i) * size // held.grain)} by several threads"
                missing = "one instruction stores different values there"
                self.report("WAW", text, self.clocks.now, int(g[at]), None, missing)
                return

    # --- registers -------------------------------------------------------------------------------

    def _registers(self) -> dict[str, Any]:
        program = self.program
        out: dict[str, Any] = {}
        for kind, names in program.by_kind.items():
            out |= zip(names, np.zeros((len(names), self.T), NAMESPACE[kind]), strict=True)
        block, grid = self.launch.block, self.launch.grid
        x = self.tid % block[0]
        y = self.tid // block[0] % block[1]
        z = self.tid // (block[0] * block[1])
        cx = self.cta % grid[0]
        special = {
            "tid.x": x, "tid.y": y, "tid.z": z,
            "ntid.x": block[0], "ntid.y": block[1], "ntid.z": block[2],
            "ctaid.x": cx, "ctaid.y": self.cta // grid[0] % grid[1],
            "ctaid.z": self.cta // (grid[0] * grid[1]),
            "nctaid.x": grid[0], "nctaid.y": grid[1], "nctaid.z": grid[2],
            "laneid": self.lane, "warpid": self.tid // 32, "nwarpid": self.warps_per_cta,
            "cluster_ctarank": self.cta % self.cluster, "cluster_nctarank": self.cluster,
            "cluster_ctaid.x": cx % self.cluster, "cluster_nctaid.x": self.cluster,
            "cluster_ctaid.y": 0, "cluster_ctaid.z": 0, "clusterid.x": cx // self.cluster,
            "nclusterid.x": grid[0] // self.cluster, "smid": self.cta, "nsmid": self.ctas,
            "dynamic_smem_size": self.launch.shared,
            "total_smem_size": self.shared_end - SHARED_FIRST,
            "lanemask_eq": 1 << self.lane, "lanemask_lt": (1 << self.lane) - 1,
            "lanemask_le": (2 << self.lane) - 1, "lanemask_gt": 0xFFFFFFFF ^ ((2 << self.lane) - 1),
            "lanemask_ge": 0xFFFFFFFF ^ ((1 << self.lane) - 1),
        }  # fmt: skip
        self.timers = [name for name in TIMERS if name in program.names]
        for name in self.timers:
            out[name] = np.zeros(self.T, TIMERS[name])
        for name, value in special.items():
            if program.mentions(f"%{name}"):
                out[f"%{name}"] = spread(value, self.all).astype(np.uint32)
        return out

    def own(self, x: Any, kind: Any, fresh: bool) -> Any:
        """Return a value as a register of all threads, which nobody else has."""
        if np.ndim(x) == 0:
            return np.full(self.T, x, kind)
        return x if fresh else np.array(x)

    def value(self, op: Operand, g: Ints, kind: str) -> Ints:
        """Return an operand of a gate, for some threads."""
        want = VALUE[kind]
        match op:
            case Reg(name):
                if self.touch is not None and name in self.program.tensor_registers:
                    one = np.array([self.program.tensor_registers[name]])
                    self.touch(g, one, one[:0])
                found: Ints = self.R[name][g]
            case Not(reg):
                return np.asarray(~self.R[reg.name][g])
            case Imm(bits, "int") if want != "b1":
                return np.full(g.shape, _literal(bits, want))
            case Imm(bits, _):
                one = np.array(bits, f"u{max(int(want[1]), 1)}").view(
                    want if want != "b1" else "u1"
                )
                return np.broadcast_to(one, g.shape)
            case Sym(name):
                if name in self.program.params:
                    base = np.uint64(PARAM_WINDOW + self.program.params[name])
                else:
                    base = self.symbols[name]
                found = np.broadcast_to(base, g.shape)
            case _:
                raise ValueError(f"operand {op}")
        if found.dtype.str[1:] == want or found.dtype == np.bool_:
            return found
        if found.dtype.itemsize == int(want[1]):
            return found.view(want)
        return found.astype(f"u{want[1]}").view(want)

    def where(self, op: Any, g: Ints) -> Ints:
        """Return the addresses of an operand, as 64 bits."""
        return self.value(op.base, g, "u64") + np.uint64(op.offset % (1 << 64))

    def set(self, op: Operand, g: Ints, value: Any) -> None:
        """Assign to a destination of a gate."""
        if isinstance(op, Sym):
            return
        assert isinstance(op, Reg)
        if self.touch is not None and op.name in self.program.tensor_registers:
            one = np.array([self.program.tensor_registers[op.name]])
            self.touch(g, one, one)
        held = self.R[op.name]
        value = spread(value, g)
        if value.dtype != held.dtype and held.dtype != np.bool_:
            if value.dtype.itemsize == held.dtype.itemsize:
                value = np.ascontiguousarray(value).view(held.dtype)
            else:
                kind = "i" if value.dtype.kind == "i" else "u"
                value = value.astype(f"{kind}{held.dtype.itemsize}").view(held.dtype)
        held[g] = value

    # --- findings --------------------------------------------------------------------------------

    def at_line(self, line: int) -> None:
        """Say where the accesses that follow stand in the text."""
        self.line = line
        self.clocks.tick()
        self.lines.append(line)

    def note(self, g: Ints, *words: Word, values: tuple[Ints, ...] = ()) -> None:
        """Log an event of threads, where there is a log."""
        if self.log is not None and len(g):
            self.log.add(g, self.line, words, values)

    def shared_place(self, g: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return for places the rank of their CTA, -1 for a thread's own, and the bytes in it.

        These count from the beginning of dynamic shared memory.
        """
        owner = place // self.shared_bytes
        rank = np.where(owner == self.cta[g], -1, owner % self.cluster)
        return rank, place % self.shared_bytes - self.dynamic

    def name(self, thread: int) -> str:
        """Name a thread."""
        cta = f"CTA {self.cta[thread]} " if self.ctas > 1 else ""
        return f"{cta}t{self.tid[thread]}"

    def agent(self, column: Any) -> str:
        """Name an agent."""
        if column is None or column < 0:
            return "nobody"
        if column < self.T:
            return self.name(int(column))
        if 0 <= self.clocks.copies <= column < self.clocks.copies + self.T:
            return f"cp.async of {self.name(int(column) - self.clocks.copies)}"
        return " ".join(str(word) for word in self.clocks.names[int(column)])

    def report(self, kind: str, text: str, time: int, now: Any, then: Any, missing: str) -> None:
        """Keep a finding of two accesses."""
        if then is not None and then == self.before:
            kind, missing = "dependency", "griddepcontrol.wait has not been executed"
        if time >= NEVER:
            earlier = self.in_flight.get(time, 0)
        else:
            earlier = self.lines[time] if 0 < time < len(self.lines) else 0
        key = (kind, earlier, self.line)
        if key in self.findings or self._full:
            return
        lines = (earlier, self.line) if earlier else (self.line,)
        before = f" after {self.agent(then)} at line {earlier}" if then is not None else ""
        witness = f"{text} by {self.agent(now)}{before}: {missing}"
        severity = "warning" if kind in (WARPS, LANES) else "error"
        if severity == "error":  # which says more
            self.findings.pop((LANES, earlier, self.line), None)
        self.findings[key] = Finding(kind, self.spelled(lines), witness, severity, lines=lines)

    def spelled(self, lines: Iterable[int]) -> str:
        """Name lines with their instructions, and with those of the source where it is known."""
        known = {ins.line: ins.text for ins in self.program.instructions()}
        found = []
        for n in lines:
            source = self.program.module.source(n)
            found.append(f"line {n} `{known.get(n, '')[:90]}`" + (f" ({source})" if source else ""))
        return ", ".join(found)

    @property
    def _full(self) -> bool:
        """Whether no more errors are kept."""
        return sum(one.severity == "error" for one in self.findings.values()) >= MOST

    def find(self, kind: str, witness: str, severity: str = "error") -> None:
        """Keep a finding at the line where threads stand; a warning at the first of its lines."""
        error = severity == "error"
        key = (kind, self.line) if error else (kind, witness)
        if key not in self.findings and not (error and self._full):
            where = self.spelled([self.line])
            self.findings[key] = Finding(kind, where, witness, severity, lines=(self.line,))

    # --- who goes next ---------------------------------------------------------------------------

    def go(self, block: int, threads: Ints) -> None:
        """Let threads stand before a block."""
        if not len(threads):
            return
        if block < 0:
            self.leave(threads)
            return
        if block not in self.ready:
            self.ready[block] = []
            heapq.heappush(self.heap, block)
            self.since[block] = self.steps
            self.standing.append((self.steps, block))
        self.ready[block].append(threads)

    def poll(self, block: Block, threads: Ints, why: str) -> None:
        """Let threads stand before a block until something has changed."""
        if len(threads):
            self.why[block.index] = why
            self.polling.append((block.index, threads, self.progress))

    def leave(self, threads: Ints) -> None:
        """End threads; what waited for whole warps may be whole now."""
        self.live[threads] = False
        self._alive.clear()
        self.progress += 1
        for hook in self.at_exit:
            hook(threads)
        for cta in distinct(self.cta[threads]).tolist():
            if not any_of(self.live[self.cta == cta]):
                self._ended(cta)
        for block, held in list(self.waiting.items()):
            del self.waiting[block]
            self.go(block, held)

    def _ended(self, cta: int) -> None:
        """Judge what others did to a CTA that is over, and let the next one begin."""
        if self.cluster > 1:
            region = slice(
                cta * self.shared_bytes // self.shared.grain,
                (cta + 1) * self.shared_bytes // self.shared.grain,
            )
            for agents, times, what in (
                (self.shared.writer, self.shared.written, "written"),
                (self.shared.reader, self.shared.at, "read"),
            ):
                who, when = agents[region], times[region]
                others = (who >= 0) & (who < self.T)
                others &= self.cta[np.where(others, who, 0)] != cta
                if not any_of(others):
                    continue
                pairs = np.unique(np.stack([who[others], when[others]]), axis=1)
                self._known_at_the_end(
                    cta, pairs.T.tolist(), f"shared memory of CTA {cta} is {what}"
                )
            came = self.arrivals.get(cta, {})
            self._known_at_the_end(cta, came.items(), f"an mbarrier of CTA {cta} is arrived at")
        mine = self.cta // self.cluster == cta // self.cluster
        if self.queue and not any_of(self.live[mine]):
            following = self.queue.pop(0)
            self.go(0, self.all[self.cta // self.cluster == following])

    def _known_at_the_end(self, cta: int, pairs: Iterable[Iterable[int]], what: str) -> None:
        """Judge what threads of other CTAs did at some times: who ends knows of it."""
        own = self.all[self.cta == cta]
        for agent, time in pairs:
            if not 0 <= agent < self.T or self.cta[agent] == cta:
                continue
            asked = np.full(len(own), agent), np.full(len(own), time)
            if not self.clocks.knows(0, own, *asked).any():
                self.line = self.lines[time]
                says = (
                    f"{what} by {self.name(agent)}; nothing orders that before the end of the CTA"
                )
                self.find("exit", says)

    def run(self, gate: Callable[[Machine, Block, Instruction, Ints], None], most: int) -> None:
        """Run to the end; LimitError if that takes more work than `most`."""
        R = self.R
        self.queue = list(range(-(-self.ctas // self.cluster)))
        if self.seed:
            self.random.shuffle(self.queue)
        at_once = (self.launch.resident or self.ctas) // self.cluster
        first, self.queue = self.queue[:at_once], self.queue[at_once:]
        self.go(0, self.all[np.isin(self.cta // self.cluster, first)])
        with np.errstate(all="ignore"):
            while True:
                while self.heap:
                    self._step(R, gate)
                    if self.work > most:
                        live = int(self.live.sum())
                        raise LimitError(f"too long: {live} of {self.T} threads go on")
                if self.pending:
                    at = self.random.randrange(len(self.pending)) if self.seed else -1
                    self.pending.pop(at)()
                    self.progress += 1
                elif not any(stamp != self.progress for _, _, stamp in self.polling):
                    break
                held, self.polling = self.polling, []
                for block, threads, stamp in held:
                    if stamp != self.progress:
                        self.go(block, threads)
                    else:
                        self.polling.append((block, threads, stamp))

    def _overdue(self) -> int | None:
        """Return the block before which threads have stood longest, if that is too long."""
        while self.standing:
            since, index = self.standing[0]
            if index in self.ready and self.since[index] == since:
                return index if self.steps - since > PATIENCE else None
            self.standing.popleft()
        return None

    def _step(self, R: dict[str, Any], gate: Any) -> None:
        self.steps += 1
        for name in self.timers:
            R[name] += PASSES
        index = self._overdue()
        if index is None and self.seed and len(self.heap) > 1 and self.random.random() < 0.3:
            index = self.random.choice(self.heap)
        if index is not None:
            self.heap.remove(index)
            heapq.heapify(self.heap)
        else:
            index = heapq.heappop(self.heap)
        if self.seed and self.pending and self.random.random() < 0.05:
            self.pending.pop(self.random.randrange(len(self.pending)))()
            self.progress += 1
        parts = self.ready.pop(index)
        g = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        if self.seed and self.ctas > 1 and self.random.random() < 0.5:
            g = self._turn(index, g)
        block = self.program.blocks[index]
        self.work += len(g) + (BLOCK if block.gate is None else GATE)
        if block.gate is not None:
            ins = block.gate
            self.clocks.collect()
            if ins.guard is not None:
                p = self.value(ins.guard, g, "pred")
                self.go(block.after, g[~p])
                g = g[p]
                if not len(g):
                    return
            self.at_line(ins.line)
            self.reached.add(ins.line)
            gate(self, block, ins, g)
            return
        run = block.run or self.program.compile(block)
        condition = run(R, g, len(g) == self.T, self)
        if block.branch is None:
            self.go(block.after, g)
        elif condition is None:
            self.go(block.target, g)
        elif np.ndim(condition) == 0:
            self.go(block.target if condition else block.after, g)
        elif all_of(condition):
            self.go(block.target, g)
        else:
            self.go(block.target, g[condition])
            self.go(block.after, g[~condition])

    def _turn(self, index: int, g: Ints) -> Ints:
        """Return the threads of one CTA; those of others have their turn later."""
        ctas = self.cta[g]  # in rising order
        if ctas[0] == ctas[-1]:
            self.random.choice(ctas[:1].tolist())  # others are drawn whoever was here
            return g
        pick = ctas == self.random.choice(distinct(ctas).tolist())
        self.go(index, g[~pick])
        return np.asarray(g[pick])

    def whole_warps(
        self, block: Block, g: Ints, masks: Operand | None = None, warps: int = 1
    ) -> Ints:
        """Return those whose warps (or groups of warps) are all here; others wait for the rest."""
        held = self.waiting.pop(block.index, None)
        if held is not None:
            g = np.sort(np.concatenate([held, g]))
        group = (
            self.warp
            if warps == 1
            else self.cta * -(-self.warps_per_cta // warps) + self.tid // (32 * warps)
        )
        mine = group[g]
        here = np.bincount(mine)
        whole = masks is None or (isinstance(masks, Imm) and masks.value in (-1, 0xFFFFFFFF))
        mask = None if whole or masks is None else self.value(masks, g, "u32")
        if mask is None or all_of(mask == np.uint32(0xFFFFFFFF)):
            if warps not in self._alive:
                self._alive[warps] = np.bincount(group[self.live], minlength=int(group[-1]) + 1)
            ok = (here == self._alive[warps][: len(here)])[mine]
        else:
            bits = np.zeros(len(here), np.int64)
            np.bitwise_or.at(bits, mine, 1 << self.lane[g])
            alive = np.zeros(int(group[-1]) + 1, np.int64)
            np.bitwise_or.at(alive, group[self.live], 1 << self.lane[self.live])
            need = mask.astype(np.int64) & alive[mine]
            ok = (bits[mine] & need) == need
        if not all_of(ok):
            self.waiting[block.index] = g[~ok]
            self.why[block.index] = "the other threads of its warp"
        return np.asarray(g[ok])

    def stuck(self) -> None:
        """Report threads that wait for ever."""
        if not any_of(self.live):
            return
        if self.queue:
            self.line = 0
            self.find("residency", f"{len(self.queue)} clusters of CTAs never begin: others wait")
        standing = (
            [(b, t) for b, t, _ in self.polling] + list(self.waiting.items()) + self.barriers()
        )
        for index, threads in standing:
            block = self.program.blocks[index]
            self.line = block.line
            names = ", ".join(self.name(int(t)) for t in threads[:3])
            self.find(
                "deadlock",
                f"{len(threads)} threads ({names}, ...) wait for ever: {self.why.get(index, '')}",
            )

    def keep(self) -> None:
        """Write what memory holds into the buffers of the launch."""
        for name, buffer in self.launch.buffers.items():
            at = self.place[name]
            buffer.data[:] = self.glob.data[at : at + len(buffer.data)]

    def close(self) -> None:
        """Forget those who are called from here, and hold this machine.

        Its memory is free at once, then; the garbage collector would come late.
        """
        self.pending, self.at_exit, self.barriers, self.touch = [], [], list, None
        self.clocks.holders.clear()
        for space in (self.glob, self.shared):
            space.report = _unheard


def _unheard(*_: object) -> None:
    """Take a finding of a machine that is closed: nobody makes one."""


@lru_cache(maxsize=1024)
def _literal(bits: int, want: str) -> Any:
    """Return an integer of a text as a value of a type."""
    size = int(want[1])
    return np.array(bits % (1 << 8 * size), f"u{size}").view(want)[()]


def _as(x: Any, kind: Any) -> Ints:
    """Return values as integers of a type."""
    return np.asarray(x).astype(kind, copy=False)


@lru_cache(maxsize=16)
def _grain(program: Program) -> int:
    """Return the bytes of the narrowest access to shared or global memory, at most 4."""
    least = 4
    for ins in program.instructions():
        if ins.name in ("ld", "st") and "async" not in ins.mods:
            space, kind, _, _ = access(ins)
            if space not in ("param", "local"):
                least = min(least, SIZES[kind])
        elif ins.name in ("atom", "red") and ins.mods[-1] in SIZES:
            least = min(least, SIZES[ins.mods[-1]])
        elif ins.name == "stmatrix" and "trans" in ins.mods:  # two lanes have the halves of a word
            least = min(least, 2)
    return least


@lru_cache(maxsize=16)
def _named(program: Program) -> set[str]:
    """Return the variables that a program names."""
    found = set()
    for ins in program.instructions():
        for op in ins.operands:
            for one in op.items if isinstance(op, Vec) else (op, getattr(op, "base", op)):
                if isinstance(one, Sym):
                    found.add(one.name)
    return found


__all__ = ["Machine", "arith"]
