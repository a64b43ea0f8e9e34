"""Barriers of threads, mbarriers, clusters, fences of proxies, registers of warps.

Source: PTX ISA, "bar / barrier", "barrier.cluster", "mbarrier" (phase completion, tx-count,
.release and .acquire at a scope), "fence.proxy", "setmaxnreg", "griddepcontrol".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from oracles.ptx.clocks import ASYNC_GLOBAL, ASYNC_SHARED
from oracles.ptx.machine import Ints, Machine
from oracles.ptx.memory import BARRIER
from oracles.ptx.strong import Strong
from oracles.ptx.text.grammar import Imm, Instruction, Reg, Sym
from oracles.ptx.text.program import RESTRICTED, Block
from oracles.ptx.text.translate import UnsupportedError
from oracles.ptx.vectors import all_of, any_of, distinct

PHASES = 8
"""Phases of an mbarrier of which it is known who brought what."""
MOST_BYTES = (1 << 20) - 1
"""The largest tx-count of an mbarrier."""
REGISTERS = 65536


@dataclass(slots=True, eq=False)
class Barrier:
    """A barrier of a CTA: who has come, and where they go on.

    `row` has what those knew who only arrived, when they did: what they do behind it is not told.
    """

    need: int
    come: list[tuple[Ints, bool, Block, Instruction, int]] = field(default_factory=list)
    row: int = 0


@dataclass(slots=True, eq=False)
class MBarrier:
    """An mbarrier: the phase that runs, what it waits for, and what its arrivals know."""

    cta: int
    place: int
    count: int
    column: int
    maker: int
    made: int
    pending: int = 0
    tx: int = 0
    phase: int = 0
    arrived: int = 0
    arrived_far: int = 0
    done: int = 0
    done_far: int = 0
    remote: bool = False
    """Whether threads of other CTAs have arrived in the phase that runs; then in the last one."""
    was_remote: bool = False
    readers: set[int] = field(default_factory=set)
    """Columns of loads' reads of tensor maps, which are over with its phases."""
    when: int = 0
    """Time at which the last phase was complete."""
    fenced: int = -1
    """Phase of the cluster barrier at which its maker fenced its initialisation."""
    waited: list[tuple[Ints, int, int]] = field(default_factory=list)
    """Threads whose waits for the last phase are over, since when, and at which line."""
    behind: Ints = field(default_factory=partial(np.zeros, 0, int))
    """What those know whose copies have arrived in the phase that runs; for the order alone."""
    issued: dict[int, int] = field(default_factory=dict)
    """When threads last issued what has completed on it in the phase that runs."""
    brought: deque[tuple[int, dict[int, int]]] = field(
        default_factory=partial(deque, maxlen=PHASES)
    )
    """When the last phases were complete, and what was `issued` then."""


@dataclass(slots=True, eq=False)
class Cluster:
    """The barrier of a cluster."""

    phase: int = 0
    come: int = 0
    row: int = 0
    done: int = 0


class Sync:
    """State of synchronisation of a launch."""

    def __init__(self, m: Machine, strong: Strong) -> None:
        self.m, self.strong = m, strong
        self.bars: dict[tuple[int, int], Barrier] = {}
        self.mbars: dict[int, MBarrier] = {}
        self.clusters = [Cluster() for _ in range(-(-m.ctas // m.cluster))]
        self.arrived_at = np.full(m.T, -1)
        self.waited = np.zeros(m.T, int)
        """Phases of the cluster's barrier that each thread has waited for."""
        self.tried = np.full(m.T, -1)
        per = m.program.function.directives.get("minnctapersm", (1,))[0]
        start = REGISTERS // (m.block_threads * max(per, 1)) // 8 * 8
        self.registers = np.full(
            int(m.warp[-1]) + 1, min(start, 255 // 8 * 8 if start > 255 else start)
        )
        self.pool = np.zeros(m.ctas, int)
        m.clocks.holders.append(self.rows)
        m.at_exit.append(self.left)

    def rows(self) -> Iterable[int]:
        """Return the rows that are held."""
        for one in self.mbars.values():
            yield from (one.arrived, one.arrived_far, one.done, one.done_far)
        for cluster in self.clusters:
            yield from (cluster.row, cluster.done)
        for bar in self.bars.values():
            yield bar.row

    # --- bar -------------------------------------------------------------------------------------

    def bar(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute bar.sync, bar.arrive and bar.red, and barrier of the same forms."""
        m = self.m
        g = m.whole_warps(block, g)
        if not len(g):
            return
        ops = list(ins.operands)
        waits = "arrive" not in ins.mods
        if "red" in ins.mods:
            ops = [ops[1], *ops[2:-1]]
        number = m.value(ops[0], g, "u32")
        count = m.value(ops[1], g, "u32") if len(ops) > 1 else np.zeros(len(g), np.uint32)
        if "red" not in ins.mods:
            kind = "bar.sync" if waits else "bar.arrive"
            m.note(g, kind, values=(number, np.where(count == 0, m.block_threads, count)))
        cta = m.cta[g]
        keys = cta * 4096 + number
        for key in distinct(keys):
            pick = keys == key
            who = g[pick]
            needs = distinct(count[pick])
            where = (int(cta[pick][0]), int(number[pick][0]))
            held = self.bars.setdefault(where, Barrier(int(needs[0])))
            if not held.come:
                held.need = int(needs[0])
            if len(needs) > 1 or held.need != needs[-1]:
                m.find(
                    "collective",
                    f"barrier {where[1]}: threads ask for {held.need} and for {needs[-1]}",
                )
            if held.need % 32:
                m.find(
                    "collective", f"barrier {where[1]} of {held.need} threads, no multiple of 32"
                )
            m.progress += 1
            m.claims += len(who)
            held.come.append((who, waits, block, ins, block.after))
            if not waits:
                held.row = m.clocks.joined(held.row, m.clocks.released(who))
                m.go(block.after, who)
            self._complete(where, held)

    def _complete(self, where: tuple[int, int], held: Barrier) -> None:
        m = self.m
        if not held.come:
            return
        here = sum(len(who) for who, *_ in held.come)
        need = held.need or int(m.live[m.cta == where[0]].sum())
        if here < need:
            return
        if here > need:
            m.find("collective", f"barrier {where[1]}: {here} threads came, {need} are asked for")
        waiting = [who for who, waits, *_ in held.come if waits]
        row = held.row
        if waiting:
            row = m.clocks.joined(row, m.clocks.released(np.concatenate(waiting)))
        for who, waits, _, ins, after in held.come:
            if waits:
                m.clocks.row[who] = row
                if "red" in ins.mods:
                    m.note(who, "bar.red", where[1], held.need or m.block_threads)
                    self._reduce(held, ins, who)
                m.go(after, who)
        held.come, held.row = [], 0

    def _reduce(self, held: Barrier, ins: Instruction, who: Ints) -> None:
        m = self.m
        votes = np.concatenate(
            [m.value(i.operands[-1], w, "pred") for w, _, _, i, _ in held.come if "red" in i.mods]
        )
        found = {"popc": votes.sum(), "and": votes.all(), "or": votes.any()}
        value = found[next(mod for mod in ins.mods if mod in found)]
        if m.log is not None:
            m.log.returned(np.full(len(who), value))
        m.set(ins.operands[0], who, np.uint32(value) if "popc" in ins.mods else np.bool_(value))

    def left(self, threads: Ints) -> None:
        """Look again at barriers of all threads, some of which have ended."""
        for where, held in self.bars.items():
            if held.come and not held.need:
                self._complete(where, held)
        for number in distinct(self.m.cta[threads] // self.m.cluster).tolist():
            self._cluster_done(number)

    def blocked(self) -> list[tuple[int, Ints]]:
        """Return who waits at barriers, by block."""
        found = []
        for (_, number), held in self.bars.items():
            here = sum(len(who) for who, *_ in held.come)
            for who, waits, block, *_ in held.come:
                if waits:
                    self.m.why[block.index] = (
                        f"barrier {number} has {here} of {held.need or 'all'} threads"
                    )
                    found.append((block.index, who))
        return found

    # --- clusters --------------------------------------------------------------------------------

    def cluster(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute barrier.cluster.arrive and wait."""
        m = self.m
        for number in distinct(m.cta[g] // m.cluster).tolist():
            held = self.clusters[number]
            who = g[m.cta[g] // m.cluster == number]
            if "arrive" in ins.mods:
                if any_of(self.arrived_at[who] == held.phase):
                    m.find("collective", "barrier.cluster.arrive twice without a wait")
                self.arrived_at[who] = held.phase
                held.come += len(who)
                if "relaxed" not in ins.mods:
                    held.row = m.clocks.joined(held.row, m.clocks.released(who))
                m.note(who, "cluster arrive", "relaxed" if "relaxed" in ins.mods else "release")
                m.progress += 1
                m.claims += len(who)
                m.go(block.after, who)
                self._cluster_done(number)
            else:
                if any_of(self.arrived_at[who] < 0):
                    m.find("collective", "barrier.cluster.wait without an arrive")
                ready = self.arrived_at[who] < held.phase
                m.clocks.acquire(who[ready], held.done)
                self.waited[who[ready]] = held.phase
                m.note(who[ready], "cluster wait")
                m.go(block.after, who[ready])
                m.poll(block, who[~ready], f"barrier.cluster has {held.come} threads")

    def _cluster_done(self, number: int) -> None:
        m, held = self.m, self.clusters[number]
        live = int(m.live[m.cta // m.cluster == number].sum())
        if held.come and held.come >= live:
            held.phase += 1
            held.come, held.done, held.row = 0, held.row, 0
            m.progress += 1

    # --- mbarriers -------------------------------------------------------------------------------

    def mbarrier(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute mbarrier.init, inval, arrive, expect_tx, test_wait and try_wait."""
        m = self.m
        action = ins.mods[0]
        state = None
        ops = list(ins.operands)
        if action in (
            "arrive",
            "test_wait",
            "try_wait",
            "arrive_drop",
            "pending_count",
        ) and not _address(ops[0]):
            state = ops.pop(0)
        address = m.where(ops[0], g)
        if not any(mod.startswith("shared") for mod in ins.mods):
            parts = m.split_generic(address, g)
            address = parts[0][2]
        place, ok = m.place_shared(g, address, 8)
        noted = m.log is not None and action in ("init", "inval")
        at = m.shared_place(g, place) if noted else ()
        match action:
            case "init":
                count = m.value(ops[1], g, "u32")
                m.note(g, "mbarrier init", values=(*at, count))
                for n in np.flatnonzero(ok):
                    self._init(int(g[n]), int(place[n]), int(count[n]))
                m.go(block.after, g)
            case "inval":
                m.note(g, "mbarrier inval", values=at)
                for n in np.flatnonzero(ok):
                    if self._find(g[n : n + 1], int(place[n])):
                        del self.mbars[int(place[n])]
                        self._flag(int(place[n]), False)
                m.go(block.after, g)
            case "arrive" | "expect_tx":
                self._arrive(ins, g, place, ops, state)
                m.go(block.after, g)
            case _:
                self._wait(block, ins, g, place, ops, state)

    def _flag(self, place: int, lives: bool) -> None:
        shared = self.m.shared
        at = slice(place // shared.grain, (place + 8) // shared.grain)
        shared.flags[at] = (
            shared.flags[at] | BARRIER if lives else shared.flags[at] & ~np.uint8(BARRIER)
        )

    def _init(self, thread: int, place: int, count: int) -> None:
        m = self.m
        if place in self.mbars:
            m.find(
                "init",
                f"mbarrier {self.spell(place)} is initialised again; mbarrier.inval ends its life",
            )
            self._flag(place, False)
        if not 1 <= count <= MOST_BYTES:
            m.find("arrivals", f"mbarrier.init with a count of {count}; 1..{MOST_BYTES} are legal")
        m.shared.write(m.shared.granules(np.array([place]), 8), np.array([thread]))
        self._flag(place, True)
        cta = place // m.shared_bytes
        column = m.clocks.column(("copies to mbarrier", self.spell(place)), cta)
        self.mbars[place] = MBarrier(cta, place, count, column, thread, m.clocks.now, count)
        m.progress += 1

    def spell(self, place: int) -> str:
        """Name an mbarrier."""
        cta, offset = divmod(place, self.m.shared_bytes)
        return f"shared {offset:#x}" + (f" of CTA {cta}" if self.m.ctas > 1 else "")

    def _find(self, threads: Ints, place: int) -> MBarrier | None:
        """Return a living mbarrier; what is none, or not yet visible to all, is reported."""
        m, found = self.m, self.mbars.get(place)
        m.claims += len(threads)
        if found is None:
            m.find(
                "init",
                f"{m.name(int(threads[0]))} uses {self.spell(place)}, where no mbarrier is "
                "initialised",
            )
            return None
        known = m.clocks.knows(0, threads, found.maker, found.made)
        if found.fenced >= 0:
            known |= self.waited[threads] > found.fenced
        if not all_of(known):
            m.find(
                "init",
                f"{m.name(int(threads[~known][0]))} uses mbarrier {self.spell(place)}; nothing "
                "orders its initialisation before",
            )
        elif found.fenced < 0 and any_of(m.cta[threads] != found.cta):
            m.find(
                "init",
                f"{self.spell(place)} is used by another CTA; its initialisation is ordered before "
                "by the letter, but no fence.mbarrier_init makes it known to the cluster",
                "warning",
            )
        return found

    def complete_tx(self, place: int, nbytes: int, line: int, who: Ints, since: int) -> None:
        """Count bytes of an engine that have come, which threads issued at a time."""
        found = self.mbars.get(place)
        if found is None:
            self.m.line = line
            self.m.find("init", f"a copy completes on {self.spell(place)}, where no mbarrier is")
            return
        found.tx -= nbytes
        found.issued.update(dict.fromkeys(who.tolist(), since))
        self._settle(found)

    def visible(self, threads: Ints, place: int) -> MBarrier | None:
        """Return an mbarrier that an engine is told to complete on."""
        return self._find(threads, place)

    def arrive(
        self, place: int, count: int, row: int, row_far: int, behind: Ints | None = None
    ) -> None:
        """Arrive, with what the arrival knows; `behind` what else comes before it."""
        m, found = self.m, self.mbars.get(place)
        if found is None:
            return
        if behind is not None:
            found.behind = _most(found.behind, behind)
        found.arrived = m.clocks.joined(found.arrived, row)
        found.arrived_far = m.clocks.joined(found.arrived_far, row_far)
        found.pending -= count
        if found.pending < 0:
            m.find(
                "arrivals",
                f"mbarrier {self.spell(place)}: {count} arrivals where "
                f"{found.pending + count} are left of {found.count}",
            )
            found.pending = 0
        self._settle(found)

    def _settle(self, found: MBarrier) -> None:
        m = self.m
        m.progress += 1
        if abs(found.tx) > MOST_BYTES:
            m.find("bytes", f"mbarrier {self.spell(found.place)} has a tx-count of {found.tx}")
        if found.pending or found.tx:
            return
        self._overtaken(found)
        own = np.zeros((m.clocks.planes, m.clocks.columns), np.int32)
        for plane in m.clocks.generic:
            own[plane, found.column] = found.when = m.clocks.now
            own[plane, list(found.readers)] = m.clocks.now
        found.brought.append((m.clocks.now, found.issued))
        found.issued = {}
        copies = m.clocks.fresh(own)
        found.done = m.clocks.joined(found.arrived, copies)
        found.done_far = m.clocks.joined(found.arrived_far, found.done)
        found.arrived = found.arrived_far = 0
        found.behind = found.behind[:0]
        found.was_remote, found.remote = found.remote, False
        found.pending = found.count
        found.phase += 1

    def _overtaken(self, found: MBarrier) -> None:
        """Find waits for the last phase that may come behind the next, which is complete now.

        A wait by parity that comes so late waits for a phase that nobody completes.  So what
        arrives has to come behind all waits for the phase before: as far as it knows, or behind
        what their threads have issued since; warps that have multiplied together since are a
        warning.  Threads of a warp wait together.
        """
        m = self.m
        if not found.waited:
            return
        before = self._before(found)
        for who, since, line in found.waited:
            late = who[before[m.warp[who]] < since]
            if len(late):
                here, m.line = m.line, line
                alone = any_of(self._multiplied(found)[m.warp[late]] < since)
                m.find(
                    "overtaken",
                    f"{m.name(int(late[0]))} waits for the phase before phase {found.phase} of "
                    f"mbarrier {self.spell(found.place)}; nothing orders that before this one is "
                    "complete, and behind it the wait does not end",
                    "error" if alone else "warning",
                )
                m.line = here
        found.waited.clear()

    def _multiplied(self, found: MBarrier) -> Ints:
        """Return until when the arrivals come behind each warp whose warpgroup has multiplied.

        One thread of fast.cu's frees a slot for the four warps that have multiplied from it: that a
        wgmma is complete says that all of them have begun it, though they have told nobody.
        """
        m, clocks = self.m, self.m.clocks
        told, out = self._told(found), np.zeros(int(m.warp[-1]) + 1, np.int64)
        for column in clocks.warps:
            match clocks.names[column]:
                case (_, int(number), _, int(cta)):
                    first = cta * m.warps_per_cta + 4 * number
                    out[first : first + 4] = told[column]
                case _:
                    raise AssertionError("the column of a warpgroup says which, of which CTA")
        return out

    def _told(self, found: MBarrier) -> Ints:
        """Return what the arrivals of the phase that runs come behind, by agent."""
        known = self.m.clocks.known[[found.arrived, found.arrived_far], 0].max(axis=0)
        return _most(known, found.behind)

    def _before(self, found: MBarrier) -> Ints:
        """Return until when the arrivals of the phase come behind each warp."""
        m, clocks = self.m, self.m.clocks
        told = self._told(found)
        before = np.zeros(int(m.warp[-1]) + 1, told.dtype)
        np.maximum.at(before, m.warp, told[: m.T])
        if clocks.copies >= 0:
            np.maximum.at(before, m.warp, told[clocks.copies : clocks.copies + m.T])
        for other in self.mbars.values():
            for when, issued in other.brought:
                if issued and told[other.column] >= when:
                    threads = np.array([*issued])
                    np.maximum.at(before, m.warp[threads], np.array([*issued.values()]))
        return before

    def _arrive(self, ins: Instruction, g: Ints, place: Ints, ops: list[Any], state: Any) -> None:
        m = self.m
        nbytes = count = None
        if ins.mods[0] == "expect_tx" or "expect_tx" in ins.mods:
            nbytes = m.value(ops[1], g, "u32")
        elif len(ops) > 1:
            count = m.value(ops[1], g, "u32")
        wide = any(mod in ("cluster", "gpu", "sys") for mod in ins.mods)
        said = wide or "cta" in ins.mods
        relaxed = "relaxed" in ins.mods
        if nbytes is not None:
            kind = "mbarrier expect" if ins.mods[0] == "expect_tx" else "mbarrier arrive, expect"
            m.note(g, kind, values=(*m.shared_place(g, place), nbytes))
        else:
            many = np.ones(len(g), np.int64) if count is None else count
            scope = "cluster" if wide else "cta"
            m.note(g, "mbarrier arrive", scope, values=(*m.shared_place(g, place), many))
        for where in distinct(place):
            pick = np.flatnonzero(place == where)
            who = g[pick]
            found = self._find(who, int(where))
            if found is None:
                continue
            if nbytes is not None:
                found.tx += int(nbytes[pick].sum())
                if found.tx > MOST_BYTES:
                    m.find(
                        "bytes",
                        f"mbarrier {self.spell(int(where))} expects "
                        f"{found.tx} bytes, at most {MOST_BYTES}",
                    )
            if ins.mods[0] == "expect_tx":
                m.progress += 1
                continue
            if state is not None:
                m.set(state, who, np.uint64(found.phase))
            if count is not None:
                self._arrivals(found, who, int(count[pick].sum()), wide, relaxed, said)
                continue
            # One after the other: what is more than a phase takes goes to the next.
            while len(who):
                some = who[: max(found.pending, 1)]
                self._arrivals(found, some, len(some), wide, relaxed, said)
                who = who[len(some) :]

    def _arrivals(
        self, found: MBarrier, who: Ints, many: int, wide: bool, relaxed: bool, said: bool
    ) -> None:
        """Let threads arrive, with what they know, as far as the scope takes it."""
        m = self.m
        near = all_of(m.cta[who] == found.cta)
        found.remote |= not near
        if not near:
            self._from_afar(found, who)
        if not (near or said):
            self._unsaid("an arrival at an mbarrier", "release")
            wide = True
        row = self.strong.fenced(who) if relaxed else m.clocks.released(who)
        self.arrive(found.place, many, row if near else 0, row if wide else 0)

    def _from_afar(self, found: MBarrier, who: Ints) -> None:
        """Remember arrivals from other CTAs, which the end of the CTA has to come behind."""
        m = self.m
        others = who[m.cta[who] != found.cta].tolist()
        m.arrivals.setdefault(found.cta, {}).update(dict.fromkeys(others, m.clocks.now))
        if not m.live[m.cta == found.cta].any():
            m.find("exit", f"an arrival at an mbarrier of CTA {found.cta}, which has ended")

    def _unsaid(self, what: str, order: str) -> None:
        """Warn of an operation between CTAs that does not say its scope, which is .cta then.

        CUTLASS's `ClusterBarrier` is that way, and all that is built on it: taken for .cluster.
        """
        says = f"{what} of another CTA without .{order}.cluster: by the letter its scope is .cta"
        self.m.find("scope", says, "warning")

    def _wait(
        self, block: Block, ins: Instruction, g: Ints, place: Ints, ops: list[Any], dst: Any
    ) -> None:
        m = self.m
        wide = any(mod in ("cluster", "gpu", "sys") for mod in ins.mods)
        said = wide or "cta" in ins.mods
        relaxed = "relaxed" in ins.mods
        parity = m.value(ops[1], g, "u32" if "parity" in ins.mods else "u64")
        if "parity" in ins.mods:
            parity = self._parity(parity)
        for who, where, value in _groups(g, place, parity):
            found = self._find(who, where)
            if found is None:
                m.set(dst, who, np.bool_(True))
                m.go(block.after, who)
                continue
            over = (found.phase & 1 if "parity" in ins.mods else found.phase) != value
            first = self.tried[who] != block.index
            if over and found.phase:
                # It may have been too early: but where the waiter knows better, it gives up
                # once, so that who does not try again goes on without the phase.
                times = m.clocks.known[m.clocks.row[who], 0, found.column]
                early = first & (times < found.when)
                self.tried[who[early]] = block.index
                m.set(dst, who[early], np.bool_(False))
                m.go(block.after, who[early])
                who = who[~early]
            if over:
                far = wide
                if found.was_remote and not said:
                    self._unsaid("a wait for arrivals", "acquire")
                    far = True
                if not relaxed:
                    m.clocks.acquire(who, found.done_far if far else found.done)
                self.tried[who] = -1
                if "parity" in ins.mods and len(who):
                    found.waited.append((who, m.clocks.tick(), m.line))
                if "parity" in ins.mods and m.log is not None:
                    at = m.shared_place(who, np.full(len(who), where))
                    scope = "cluster" if wide else "cta"
                    even = np.full(len(who), value)
                    m.note(who, "mbarrier wait", scope, values=(*at, even))
                m.set(dst, who, np.bool_(True))
                m.go(block.after, who)
                continue
            if any_of(first):  # most waits are for threads that have tried before
                self.tried[who] = block.index
                m.set(dst, who[first], np.bool_(False))
                m.go(block.after, who[first])
                who = who[~first]
            m.poll(
                block,
                who,
                f"mbarrier {self.spell(where)}, phase {found.phase}, parity {value}: "
                f"{found.pending} of {found.count} arrivals and {found.tx} bytes are missing",
            )

    def _parity(self, given: Ints) -> Ints:
        """Return parities as 0 and 1; others are reported.

        All ones, a truth value with its sign, are a warning: Triton 3.9 passes them where it
        specialises warps, and whether hardware looks at one bit or at all, it takes them for 1.
        """
        wrong = given > 1
        if wrong.any():
            says = f"a wait for parity {int(given.max())}; 0 and 1 are legal"
            signed = bool((given[wrong] == np.uint32(0xFFFFFFFF)).all())
            self.m.find("parity", says, "warning" if signed else "error")
        return given & np.uint32(1)

    # --- fences, registers -----------------------------------------------------------------------

    def proxy_fence(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute fence.proxy.async."""
        spaces = [mod for mod in ins.mods if mod.startswith(("shared", "global"))]
        planes = (ASYNC_SHARED, ASYNC_GLOBAL)
        if spaces:
            planes = (ASYNC_GLOBAL,) if spaces[0] == "global" else (ASYNC_SHARED,)  # type: ignore[assignment]
        self.m.note(g, "fence.proxy", spaces[0].split("::")[0] if spaces else "all")
        self.m.clocks.fence(g, planes)
        self.m.go(block.after, g)

    def init_fence(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute fence.mbarrier_init: what its threads have initialised the cluster may see."""
        self.m.note(g, "fence.mbarrier_init")
        for one in self.mbars.values():
            if any_of(g == one.maker):
                one.fenced = self.clusters[one.cta // self.m.cluster].phase
        self.m.go(block.after, g)

    def max_registers(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute setmaxnreg: registers go to a pool of the CTA, or come from it."""
        m = self.m
        g = m.whole_warps(block, g, warps=4)
        (want,) = ins.operands
        assert isinstance(want, Imm)
        if want.value % 8 or not 24 <= want.value <= 256:
            m.find("registers", f"setmaxnreg {want.value}; multiples of 8 from 24 to 256 are legal")
        for warp in distinct(m.warp[g]):
            who = g[m.warp[g] == warp]
            cta = int(m.cta[who[0]])
            more = (want.value - int(self.registers[warp])) * 32
            if "dec" in ins.mods and more > 0:
                m.find("registers", f"setmaxnreg.dec to {want.value} from {self.registers[warp]}")
            if more > self.pool[cta]:
                m.poll(block, who, f"{more} registers, {self.pool[cta]} are free")
                continue
            m.note(who, "setmaxnreg", want.value)
            self.pool[cta] -= more
            self.registers[warp] = want.value
            m.progress += 1
            m.claims += 1
            m.go(block.after, who)


def _most(one: Ints, other: Ints) -> Ints:
    """Return the greater of each pair of times; what one has not is 0."""
    out = np.zeros(max(len(one), len(other)), np.int64)
    out[: len(one)] = one
    out[: len(other)] = np.maximum(out[: len(other)], other)
    return out


def _groups(g: Ints, place: Ints, value: Ints) -> Iterator[tuple[Ints, int, int]]:
    """Yield threads of one place and value each, with both, in rising order of these."""
    order = np.lexsort((value, place))
    g, place, value = g[order], place[order], value[order]
    cuts = np.flatnonzero((place[1:] != place[:-1]) | (value[1:] != value[:-1])) + 1
    ends = [*cuts.tolist(), len(g)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield g[start:end], int(place[start]), int(value[start])


def _address(op: Any) -> bool:
    return not isinstance(op, Reg | Sym)


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    mods = {*ins.mods}
    if ins.name in ("bar", "barrier"):
        known = {"sync", "arrive", "red", "cta", "aligned", "popc", "and", "or", "u32", "pred"}
        known |= {"cluster", "wait", "release", "acquire", "relaxed", "warp"}
    elif ins.name == "mbarrier":
        known = {"init", "inval", "arrive", "expect_tx", "test_wait", "try_wait", "parity", "b64"}
        known |= {"release", "acquire", "relaxed", "cta", "cluster", "shared", "shared::cta"}
        known |= {"shared::cluster", "noComplete"} - {"noComplete"}
    elif ins.name == "fence" and "proxy" in mods:
        known = {"proxy", "async", "shared::cta", "shared::cluster", "global"}
    elif ins.name == "fence":
        known = {"acq_rel", "sc", "cta", "cluster", "gpu", "sys", "mbarrier_init", "release"}
        known |= {RESTRICTED} if "release" in mods else set()
    else:
        return
    if not mods <= known:
        raise UnsupportedError(ins.opcode)
