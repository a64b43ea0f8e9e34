"""Tensor maps that kernels write: who may rewrite them, and when a copy sees that.

A map that a kernel has written is read through the tensormap proxy: behind the write there has to
be a release (`fence.proxy.tensormap::generic.release`, or the copy that has one), and behind that
an acquire of this map that is ordered before the copy.  One of the host in global memory takes an
acquire of the system's scope, since no thread of the device wrote it.

Source: PTX ISA, "tensormap.replace" (a weak operation on all of the map), "membar / fence",
"tensormap.cp_fenceproxy" (uni-directional proxy fences), "Memory Consistency Model" (proxies, base
causality order); CUDA programming guide, "Using TMA to transfer multi-dimensional arrays" (a map in
global memory takes a fence in each block before its use; what the host copied, one of .sys).
"""

from __future__ import annotations

import numpy as np

from oracles.ptx.clocks import RELEASED
from oracles.ptx.machine import GLOBAL_BASE, PARAM_WINDOW, Ints, Machine
from oracles.ptx.maps.encoding import ALIGN, LAYOUT, NBYTES, Described, decoded
from oracles.ptx.sync import MBarrier
from oracles.ptx.text.grammar import Imm, Instruction
from oracles.ptx.text.program import Block, rewrites
from oracles.ptx.text.translate import UnsupportedError

SCOPES = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 3}
"""How far each scope reaches: threads of the CTA, of the cluster, of the device, and the host."""


class Descriptors:
    """The tensor maps of a launch."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.reads: dict[int, set[int]] = {}
        """For each thread the columns of its loads' reads of maps."""

    # --- through a map ---------------------------------------------------------------------------

    def described(self, one: Ints, address: int) -> Described | None:
        """Return what the map at an address says to a copy of a thread; None if it is refused."""
        m = self.m
        place = -1
        if address >> 40 == PARAM_WINDOW >> 40:
            at = address - PARAM_WINDOW
            raw = bytes(m.param_bytes[at : at + NBYTES])
        else:
            places, ok = m.place_global(one, np.array([address]), NBYTES, ALIGN)
            if not ok[0]:
                return None
            place = int(places[0])
            if not any(start <= place < end for start, end in m.constant):
                self._seen(one, place)
            raw = m.glob.data[place : place + NBYTES].tobytes()
        try:
            return decoded(raw, place)
        except ValueError as error:
            m.find("map", f"the tensor map at {address:#x}: {error}")
            return None

    def _granules(self, place: int) -> Ints:
        grain = self.m.glob.grain
        return np.arange(place // grain, (place + NBYTES) // grain)

    def _column(self, place: int) -> int:
        return self.m.clocks.column(("acquires of the tensor map at", f"{place:#x}"))

    def _seen(self, one: Ints, place: int) -> None:
        """Judge whether a thread's copy sees the last writes of a map in global memory."""
        m, glob = self.m, self.m.glob
        granules = self._granules(place)
        writer, written = glob.writer[granules], glob.written[granules]
        some = writer >= 0
        who = np.broadcast_to(one, granules.shape)
        m.claims += 1
        known = ~some | m.clocks.knows(m.clocks.elsewhere, who, np.where(some, writer, 0), written)
        last = int(np.argmax(np.where(some, written, 0)))
        kind, missing = "", ""
        if not known.all():
            last = int(np.flatnonzero(~known)[0])
            kind, missing = "RAW", "nothing orders the earlier write of the map before it"
        else:
            since = max(int(written[last]) if some.any() else 0, 1)
            column = np.array([self._column(place)])
            if not m.clocks.knows(m.clocks.elsewhere, one, column, np.array([since]))[0]:
                kind = "proxy"
                missing = "ordered, but no release and acquire of the tensormap proxy stand between"
                if not some.any():
                    scope = "sys" if place in m.of_the_host else "gpu"
                    missing = (
                        "the map lies in global memory: before its use each CTA executes "
                        f"fence.proxy.tensormap::generic.acquire.{scope}, or it is a parameter"
                    )
        if kind:
            then = int(writer[last]) if some.any() else None
            time = int(written[last]) if some.any() else 0
            where = f"tensor map at {glob.where(int(granules[0]))}"
            glob.report(kind, where, time, int(one[0]), then, missing)

    def used(self, described: Described, column: int) -> None:
        """Remember that an engine reads a map, on behalf of a column."""
        if described.place >= 0:
            granules = self._granules(described.place)
            self.m.glob.remember(granules, np.full(len(granules), column))

    def loaded(self, described: Described, thread: int, bar: MBarrier) -> None:
        """Remember that a load of a thread reads a map.

        It is over with the phase of its mbarrier, and before that once the thread has committed a
        bulk group and waited for it (`cp.async.bulk.wait_group.read`).  The ISA puts only copies
        that complete on bulk groups into them; CUTLASS (`tma_desc_wait_group`, "wait for all TMA
        load/store instructions before updating the tensormap") and Triton count on loads, too.
        """
        if described.place < 0:
            return
        m = self.m
        key = ("reads of tensor maps by", m.name(thread), "for an mbarrier at", f"{bar.place:#x}")
        column = m.clocks.column(key, int(m.cta[thread]))
        self.reads.setdefault(thread, set()).add(column)
        bar.readers.add(column)
        self.used(described, column)

    def awaited(self, thread: int, time: int) -> None:
        """Let a thread know that its loads have read their maps, those before a time."""
        for column in self.reads.get(thread, ()):
            self.m.clocks.learn(np.array([thread]), column, time)

    # --- instructions ----------------------------------------------------------------------------

    def replace(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute tensormap.replace: a generic read and write of all of the map."""
        m = self.m
        name = ins.mods[2]
        kind = ins.mods[-1]
        dst, *ordinal, new = ins.operands
        address, shared = m.where(dst, g), "shared::cta" in ins.mods
        if not shared and "global" not in ins.mods:
            space, _, address = m.split_generic(address, g)[0]
            shared = space == "shared"
        space_ = m.shared if shared else m.glob
        if shared:
            place, ok = m.place_shared(g, address, NBYTES, ALIGN)
        else:
            place, ok = m.place_global(g, address, NBYTES, ALIGN)
        granules = space_.granules(place[ok], NBYTES)
        space_.read(granules, g[ok])
        space_.write(granules, g[ok])
        value = m.value(new, g, kind)
        m.progress += 1
        for n in np.flatnonzero(ok):
            at = int(place[n])
            held = space_.data[at : at + LAYOUT.itemsize].view(LAYOUT)
            if ordinal:
                (order,) = ordinal
                assert isinstance(order, Imm)
                held[name][0, order.value] = value[n]
            else:
                held[name][0] = value[n]
        m.go(block.after, g)

    def copy(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute tensormap.cp_fenceproxy: a warp copies a map to global memory and releases it.

        Which thread copies is open, so what it reads has to be ordered before for every one.  What
        it replaces is over where any of them knows that: it begins when all have come (.sync).
        """
        m = self.m
        g = m.whole_warps(block, g)
        if not len(g):
            return
        dst, src, size = ins.operands
        assert isinstance(size, Imm)
        if size.value != NBYTES:
            m.find("bytes", f"tensormap.cp_fenceproxy of {size.value} bytes; {NBYTES} are legal")
        froms, ok = m.place_shared(g, m.where(src, g), NBYTES, ALIGN)
        to, fine = m.place_global(g, m.where(dst, g), NBYTES, ALIGN)
        ok &= fine
        planes = _planes(ins)
        for warp in np.unique(m.warp[g[ok]]):
            pick = ok & (m.warp[g] == warp)
            who = g[pick]
            if len({*froms[pick].tolist()}) > 1 or len({*to[pick].tolist()}) > 1:
                m.find("collective", "threads of a warp copy different tensor maps together")
            cta = int(m.cta[who[0]])
            column = m.clocks.column(("copies of tensor maps by", m.name(int(who[0]))), cta)
            agent = np.full(len(who), column)
            m.shared.read(m.shared.granules(froms[pick], NBYTES), who, agent=agent)
            before = m.clocks.row[who].copy()
            m.clocks.row[who] = m.clocks.released(who)
            m.glob.write(m.glob.granules(to[pick], NBYTES), who, agent=agent, twice=True)
            m.clocks.row[who] = before
            start, end = int(froms[pick][0]), int(to[pick][0])
            m.glob.data[end : end + NBYTES] = m.shared.data[start : start + NBYTES]
            m.clocks.learn(who, column, m.clocks.now)
            m.clocks.fence(who, planes)
        m.progress += 1
        m.go(block.after, g)

    def fence(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute fence.proxy.tensormap::generic.release and acquire."""
        m = self.m
        m.claims += len(g)
        if "release" in ins.mods:
            m.clocks.fence(g, _planes(ins))
            m.go(block.after, g)
            return
        address, size = ins.operands
        assert isinstance(size, Imm)
        if size.value != NBYTES:
            m.find("bytes", f"an acquire of {size.value} bytes; {NBYTES} are legal")
        places = m.where(address, g).astype(np.int64) - GLOBAL_BASE
        for place in np.unique(places).tolist():
            _, start, end = m.buffer_at(place)
            if not start <= place <= end - NBYTES:
                # No access; warps of CUTLASS's epilogues that store nothing acquire address 0.
                m.find("bounds", "an acquire of a tensor map where no buffer is", "warning")
                continue
            if place % ALIGN:
                m.find("bounds", f"an acquire of a tensor map that is not aligned to {ALIGN}")
            for thread in g[places == place].tolist():
                if self._released(thread, place, SCOPES[ins.mods[-1]]):
                    m.clocks.learn(np.array([thread]), self._column(place), m.clocks.now)
        m.go(block.after, g)

    def _released(self, thread: int, place: int, scope: int) -> bool:
        """Tell whether a thread knows of a release of what was written last, as far as scopes go.

        A release and an acquire synchronise where the scope of each includes the other's thread.
        """
        m = self.m
        granules = self._granules(place)
        writer, written = m.glob.writer[granules], m.glob.written[granules]
        some = writer >= 0
        cta, home = int(m.cta[thread]), m.clocks.home[writer]
        far = np.where(home == cta, 0, np.where(home // m.cluster == cta // m.cluster, 1, 2))
        ok = ~some & (place not in m.of_the_host or scope == SCOPES["sys"])
        for reach in range(3):
            pick = some & (far == reach)
            if pick.any() and reach <= scope:
                who = np.full(int(pick.sum()), thread)
                ok[pick] = m.clocks.knows(RELEASED + reach, who, writer[pick], written[pick])
        return bool(ok.all())


def _planes(ins: Instruction) -> tuple[int, ...]:
    """Return the planes of a release: what it makes known to threads so far away."""
    reach = next(SCOPES[mod] for mod in ins.mods if mod in SCOPES)
    return tuple(RELEASED + n for n in range(min(reach, SCOPES["gpu"]) + 1))


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    mods = ins.mods
    if ins.name == "fence":
        ok = len(mods) == 4 and mods[:2] == ("proxy", "tensormap::generic") and mods[3] in SCOPES
        ok = ok and mods[2] in ("acquire", "release")
    elif mods[0] == "replace":
        ok = mods[1] == "tile" and mods[2] in (LAYOUT.names or ()) and "b1024" in mods
    else:
        ok = mods[:4] == ("cp_fenceproxy", "global", "shared::cta", "tensormap::generic")
    if not ok:
        raise UnsupportedError(ins.opcode)


__all__ = ["Descriptors", "check", "rewrites"]
