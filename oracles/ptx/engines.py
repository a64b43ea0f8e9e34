"""Engines that copy: cp.async, bulk copies, tensor copies, st.async.

A load is in flight from its issue until the machine lets it finish; then its bytes count on the
mbarrier.  A store reads its source and writes its destination as late as a wait allows.

Source: PTX ISA, "cp.async", "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk",
"cp.async.bulk.wait_group", "cp.async.mbarrier.arrive", "st.async", "Tensors" (bounding box, tiled
mode, swizzling modes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ptx.clocks import NEVER
from oracles.ptx.machine import GLOBAL_BASE, Ints, Machine
from oracles.ptx.maps.encoding import Described
from oracles.ptx.maps.written import Descriptors
from oracles.ptx.sync import Sync
from oracles.ptx.text import arithmetic as arith
from oracles.ptx.text.grammar import Address, Imm, Instruction, Vec
from oracles.ptx.text.program import Block
from oracles.ptx.text.translate import NAMESPACE, VALUE, UnsupportedError
from oracles.ptx.vectors import distinct

SWIZZLE = {0: 0, 32: 1, 64: 3, 128: 7}
"""Bits of the address, from 7 on, that are added to those from 4 on."""
KINDS = {"f64": "f8", "f32": "f4", "i32": "i4", "i64": "i8", "u8": "u1", "i8": "i1", "bool": "u1"}
KINDS |= {"f16": "u2", "bf16": "u2", "u16": "u2", "u32": "u4", "u64": "u8"}


@dataclass(slots=True, eq=False)
class Copies:
    """One cp.async instruction: whose copies are done."""

    threads: Ints
    to: Ints
    source: Ints
    nbytes: int
    valid: Ints
    group: Ints
    done: Ints


@dataclass(slots=True, eq=False)
class Store:
    """A bulk copy out of shared memory: places of its pieces on both sides."""

    line: int
    source: Ints
    to: Ints
    unit: int
    reduce: str
    kind: str
    held: Ints | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class Groups:
    """The bulk groups of a thread: those that are open, and those committed, with their times."""

    open: list[Store] = field(default_factory=list)
    closed: list[tuple[list[Store], int]] = field(default_factory=list)
    reads: int = 0
    """How many of those closed are known to have read their sources."""
    writes: int = 0


class Engines:
    """What is in flight in a launch."""

    def __init__(self, m: Machine, sync: Sync, maps: Descriptors) -> None:
        self.m, self.sync, self.maps = m, sync, maps
        self.batches: list[Copies] = []
        self.groups = np.zeros(m.T, int)
        self.times = np.zeros((m.T, 4), np.int32)
        self.bulk: dict[int, Groups] = {}
        self.flying: dict[int, tuple[int, int]] = {}
        self.flights = 0
        m.at_exit.append(self.left)

    # --- cp.async --------------------------------------------------------------------------------

    def copy(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async: each thread copies 4, 8 or 16 bytes, some of them zeros."""
        m = self.m
        dst, src, size, *more = ins.operands
        assert isinstance(size, Imm)
        nbytes = size.value
        valid = m.value(more[0], g, "u32").astype(int) if more else np.full(len(g), nbytes)
        to, ok = m.place_shared(g, m.where(dst, g), nbytes)
        source = np.zeros(len(g), int)
        for many in distinct(valid):
            pick = valid == many
            if many > nbytes:
                m.find("bounds", f"cp.async of {nbytes} bytes reads {many}")
            if many:
                source[pick] = self._some(g[pick], m.where(src, g)[pick], int(many), nbytes)
        first = m.clocks.copy_columns()
        m.shared.write(m.shared.granules(to[ok], nbytes), g[ok], agent=first + g[ok])
        self.batches.append(Copies(g, to, source, nbytes, valid, self.groups[g].copy(), ~ok))
        m.go(block.after, g)

    def _some(self, g: Ints, address: Ints, many: int, align: int) -> Ints:
        m = self.m
        place, ok = m.place_global(g, address, many, align, reads=True)
        grain = m.glob.grain
        first, last = place // grain, (place + many - 1) // grain
        for n in range(int((last - first).max()) + 1):
            here = np.minimum(first + n, last)
            m.glob.read(here[ok][:, None], g[ok], agent=m.clocks.copy_columns() + g[ok])
        return np.where(ok, place, 0)

    def commit_copies(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.commit_group."""
        m = self.m
        m.clocks.copy_columns()
        if self.groups[g].max() + 1 >= self.times.shape[1]:
            self.times = np.pad(self.times, ((0, 0), (0, self.times.shape[1])))
        self.times[g, self.groups[g]] = m.clocks.now
        m.note(g, "commit", "cp_async")
        self.groups[g] += 1
        m.go(block.after, g)

    def wait_copies(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.wait_group and wait_all."""
        m = self.m
        m.clocks.copy_columns()
        if ins.mods[-1] == "wait_all":
            self.finish_copies(g, np.full(len(g), 1 << 30))
            m.clocks.copied[0, g] = m.clocks.now
        else:
            (keep,) = ins.operands
            assert isinstance(keep, Imm)
            m.note(g, "await", "cp_async", keep.value, "all")
            over = self.groups[g] - keep.value
            self.finish_copies(g, over)
            some = over > 0
            who = g[some]
            times = self.times[who, over[some] - 1]
            m.clocks.copied[0, who] = np.maximum(m.clocks.copied[0, who], times)
        m.claims += len(g)
        m.go(block.after, g)

    def finish_copies(self, threads: Ints, before: Ints) -> None:
        """Copy what is in groups before some numbers, of some threads."""
        m = self.m
        limit = np.full(m.T, -1)
        limit[threads] = before
        left = []
        for one in self.batches:
            pick = ~one.done & (one.group < limit[one.threads])
            if pick.any():
                data = np.zeros((int(pick.sum()), one.nbytes), np.uint8)
                valid, source = one.valid[pick], one.source[pick]
                span = np.arange(one.nbytes)
                inside = span < valid[:, None]
                data[inside] = m.glob.data[(source[:, None] + span)[inside]]
                m.shared.data[one.to[pick][:, None] + span] = data
                one.done[pick] = True
            if not one.done.all():
                left.append(one)
        self.batches = left

    def arrive_copies(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.mbarrier.arrive: an arrival once the thread's copies are done."""
        m = self.m
        place, ok = m.place_shared(g, m.where(ins.operands[0], g), 8)
        first = m.clocks.copy_columns()
        kind = "noinc" if "noinc" in ins.mods else "inc"
        m.note(g, "cp.async arrive", kind, values=m.shared_place(g, place))
        issued = self.groups[g] + 1
        time, line = m.clocks.now, m.line
        for where in distinct(place[ok]):
            who = g[place == where]
            found = self.sync.visible(who, int(where))
            if found is None:
                continue
            if "noinc" not in ins.mods:
                found.pending += len(who)
            behind = m.clocks.known[distinct(m.clocks.row[who]), 0].max(axis=0)
            behind[who] = time

            def done(
                who: Ints = who,
                where: int = int(where),
                many: Ints = issued[place == where],
                behind: Ints = behind,
            ) -> None:
                self.finish_copies(who, many)
                row = np.zeros((m.clocks.planes, m.clocks.columns), np.int32)
                for plane in m.clocks.generic:
                    row[plane, first + who] = time
                made = m.clocks.fresh(row)
                m.at_line(line)
                self.sync.arrive(where, len(who), made, made, behind)

            m.pending.append(done)
        m.go(block.after, g)

    # --- loads into shared memory ----------------------------------------------------------------

    def load(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.bulk and cp.async.bulk.tensor into shared memory."""
        m = self.m
        tensor = "tensor" in ins.mods
        dst, src, *rest = ins.operands
        size = None if tensor else rest.pop(0)
        mbar, *more = rest
        mask = m.value(more[0], g, "u16") if "multicast::cluster" in ins.mods else None
        to, ok = m.place_shared(g, m.where(dst, g), 1, 128 if tensor else 16)
        bars, fine = m.place_shared(g, m.where(mbar, g), 8)
        if tensor:
            m.note(g, "tensor load", values=m.shared_place(g, bars))
        for n in np.flatnonzero(ok & fine):
            thread = int(g[n])
            one = g[n : n + 1]
            described = None
            if tensor:
                made = self._box(one, src)
                if made is None:
                    continue
                described, coords = made
                nbytes = int(np.prod(described.box)) * described.itemsize
                source, within, unit = self.pieces(described, coords)
                inside = np.flatnonzero(source >= 0)
            else:
                assert size is not None
                nbytes, unit = int(m.value(size, one, "u32")[0]), 16
                source, inside, within = self._run(one, src, nbytes)
            ctas = [int(to[n]) // m.shared_bytes]
            if mask is not None:
                base = int(m.cta[thread]) // m.cluster * m.cluster
                ctas = [base + i for i in range(m.cluster) if int(mask[n]) >> i & 1]
            for cta in ctas:
                shift = (cta - int(to[n]) // m.shared_bytes) * m.shared_bytes
                place = int(to[n]) + shift
                bar = int(bars[n]) + (shift if mask is not None else 0)
                spots = place + within
                if described is not None:
                    spots = swizzled(spots, described.swizzle, m.shared_bytes)
                self._fly(thread, place, nbytes, bar, source, spots, inside, unit, described)
        m.go(block.after, g)

    def _run(self, one: Ints, src: Any, nbytes: int) -> tuple[Ints, Ints, Ints]:
        """Return the pieces of a one-dimensional copy from global memory."""
        m = self.m
        if nbytes % 16:
            m.find("bytes", f"a bulk copy of {nbytes} bytes; multiples of 16 are legal")
        place, ok = m.place_global(one, m.where(src, one), nbytes, 16)
        many = nbytes // 16 if ok[0] else 0
        steps = np.arange(many) * 16
        return int(place[0]) + steps, np.arange(many), steps

    def _fly(
        self,
        thread: int,
        place: int,
        nbytes: int,
        bar: int,
        source: Ints,
        spots: Ints,
        inside: Ints,
        unit: int,
        described: Described | None,
    ) -> None:
        m = self.m
        found = self.sync.visible(np.array([thread]), bar)
        column = found.column if found else m.clocks.column(("copies", bar), bar // m.shared_bytes)
        if place % m.shared_bytes + nbytes > m.shared_end:
            m.find(
                "bounds",
                f"a copy of {nbytes} bytes to shared "
                f"{place % m.shared_bytes:#x}, which ends at {m.shared_end:#x}",
            )
            return
        who = np.array([thread])
        if len(inside):
            self._touch_global(source[inside], unit, who, column, False, "")
        if described is not None and found is not None:
            self.maps.loaded(described, thread, found)
        outside = _outside(described, unit)
        self.flights += 1
        number, line = self.flights, m.line
        time = NEVER + number
        m.in_flight[time] = line
        granules = np.arange(place // m.shared.grain, -(-(place + nbytes) // m.shared.grain))
        m.shared.write(granules, who, agent=np.array([column]), time=time, asynchronous=True)
        issued = m.clocks.now
        self.flying[number] = (place // m.shared_bytes, line)

        def done() -> None:
            m.at_line(line)
            pieces = np.tile(outside, (len(spots), 1))
            span = np.arange(unit)
            pieces[inside] = m.glob.data[source[inside][:, None] + span]
            m.shared.data[spots[:, None] + span] = pieces
            mine = granules[m.shared.written[granules] == time]
            m.shared.written[mine] = m.clocks.now
            del self.flying[number]
            self.sync.complete_tx(bar, nbytes, line, who, issued)

        m.pending.append(done)

    def _touch_global(
        self, places: Ints, unit: int, who: Ints, column: int, writes: bool, reduce: str
    ) -> None:
        grain = self.m.glob.grain
        many = max(1, unit // grain)
        granules = (places[:, None] // grain + np.arange(many)).reshape(-1)
        if unit < grain:
            granules = distinct(granules)
        agent = np.array([column])
        if writes:
            self.m.glob.write(granules, who, agent=agent, asynchronous=True, strong=bool(reduce))
        else:
            self.m.glob.read(granules, who, agent=agent, asynchronous=True)

    def _box(self, one: Ints, op: Any) -> tuple[Described, list[int]] | None:
        """Return what the tensor map of an operand says and the coordinates."""
        m = self.m
        address = int(m.value(op.base, one, "u64")[0]) + op.offset
        found = self.maps.described(one, address)
        (vector,) = op.coords
        assert isinstance(vector, Vec)
        coords = [int(m.value(c, one, "s32")[0]) for c in vector.items]
        if found is None:
            return None
        if len(coords) != len(found.dims):
            m.find("map", f"{len(coords)} coordinates through a map of {len(found.dims)} axes")
            return None
        return found, coords

    def pieces(self, described: Described, coords: list[int]) -> tuple[Ints, Ints, int]:
        """Return for each piece of a box its place in global memory, -1 outside, and in the box."""
        size = described.itemsize
        base = described.address - GLOBAL_BASE
        row = described.box[0] * size
        unit = 16
        while unit > size and (
            row % unit
            or (coords[0] * size) % unit
            or (described.dims[0] * size) % unit
            or base % unit
            or any(s % unit for s in described.strides)
        ):
            unit //= 2
        unit = max(unit, size)
        per = unit // size
        place = np.full((1,), base)
        inside = np.ones((1,), bool)
        for axis in reversed(range(len(coords))):
            steps = np.arange(0, described.box[axis], per if axis == 0 else 1) + coords[axis]
            stride = size if axis == 0 else described.strides[axis - 1]
            ok = (steps >= 0) & (steps < described.dims[axis])
            place = (place[:, None] + steps * stride).reshape(-1)
            inside = (inside[:, None] & ok).reshape(-1)
        name, start, end = self.m.buffer_at(base)
        if (place[inside] + unit > end).any() or (not name and inside.any()):
            self.m.find(
                "map",
                f"a map of {described.dims} elements, strides {described.strides}, "
                f"leaves {name or 'every buffer'} of {end - start} bytes",
            )
            inside &= place + unit <= end
        return np.where(inside, place, -1), np.arange(len(place)) * unit, unit

    # --- stores and reductions out of shared memory ----------------------------------------------

    def store(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute bulk copies and reductions from shared to global memory."""
        m = self.m
        tensor, reduce = "tensor" in ins.mods, ""
        if ins.mods[0] == "reduce":
            reduce = next(
                mod for mod in ins.mods if mod in ("add", "min", "max", "and", "or", "xor")
            )
        dst, src, *rest = ins.operands
        froms, ok = m.place_shared(g, m.where(src, g), 1, 128 if tensor else 16)
        if tensor:
            m.note(g, "tensor store")
        for n in np.flatnonzero(ok):
            thread, one = int(g[n]), g[n : n + 1]
            kind = ins.mods[-1] if reduce and not tensor else ""
            if tensor:
                made = self._box(one, dst)
                if made is None:
                    continue
                described, coords = made
                nbytes = int(np.prod(described.box)) * described.itemsize
                to, within, unit = self.pieces(described, coords)
                kind = described.dtype
                spots = swizzled(int(froms[n]) + within, described.swizzle, m.shared_bytes)
            else:
                nbytes, unit = int(m.value(rest[0], one, "u32")[0]), 16
                to, inside, within = self._run(one, dst, nbytes)
                spots = int(froms[n]) + within
            inside = np.flatnonzero(to >= 0)
            first = int(froms[n])
            if first % m.shared_bytes + nbytes > m.shared_end:
                m.find(
                    "bounds",
                    f"a copy of {nbytes} bytes from shared "
                    f"{first % m.shared_bytes:#x}, which ends at {m.shared_end:#x}",
                )
                continue
            reads = m.clocks.column(("bulk reads of", m.name(thread)), int(m.cta[thread]))
            if tensor:
                self.maps.used(described, reads)
            writes = m.clocks.column(("bulk writes of", m.name(thread)), int(m.cta[thread]))
            grain = m.shared.grain
            # What lies outside of the tensor is not written, and need not be there.
            some = (spots[inside][:, None] // grain + np.arange(max(1, unit // grain))).reshape(-1)
            if len(inside):
                m.shared.read(distinct(some), one, agent=np.array([reads]), asynchronous=True)
                self._touch_global(to[inside], unit, one, writes, True, reduce)
            made_ = Store(m.line, spots[inside], to[inside], unit, reduce, kind)
            self.bulk.setdefault(thread, Groups()).open.append(made_)
        m.go(block.after, g)

    def commit_bulk(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.bulk.commit_group."""
        self.m.note(g, "commit", "bulk")
        for thread in g.tolist():
            groups = self.bulk.setdefault(thread, Groups())
            groups.closed.append((groups.open, self.m.clocks.now))
            groups.open = []
        self.m.go(block.after, g)

    def wait_bulk(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute cp.async.bulk.wait_group: all but the latest groups have read, or written."""
        m = self.m
        (keep,) = ins.operands
        assert isinstance(keep, Imm)
        m.note(g, "await", "bulk", keep.value, "read" if "read" in ins.mods else "all")
        for thread in g.tolist():
            groups = self.bulk.get(thread)
            m.claims += 1
            if groups is None:
                continue
            over = len(groups.closed) - keep.value
            if over <= 0:
                continue
            for stores, _ in groups.closed[:over]:
                for one in stores:
                    self._take(one)
                    if "read" not in ins.mods:
                        self._give(one)
            time, who = groups.closed[over - 1][1], np.array([thread])
            m.clocks.learn(
                who, m.clocks.column(("bulk reads of", m.name(thread)), int(m.cta[thread])), time
            )
            self.maps.awaited(thread, time)
            groups.reads = max(groups.reads, over)
            if "read" not in ins.mods:
                m.clocks.learn(
                    who,
                    m.clocks.column(("bulk writes of", m.name(thread)), int(m.cta[thread])),
                    time,
                )
                groups.writes = max(groups.writes, over)
        m.go(block.after, g)

    def _take(self, one: Store) -> None:
        if one.held is None:
            one.held = self.m.shared.data[one.source[:, None] + np.arange(one.unit)]

    def _give(self, one: Store) -> None:
        if one.done:
            return
        self._take(one)
        assert one.held is not None
        one.done = True
        self.m.progress += 1
        spots = one.to[:, None] + np.arange(one.unit)
        if not one.reduce:
            self.m.glob.data[spots] = one.held
            return
        if not len(one.to):
            return
        kind = KINDS.get(one.kind) or VALUE[one.kind]
        old = self.m.glob.data[spots].view(NAMESPACE[kind])
        new = np.ascontiguousarray(one.held).view(NAMESPACE[kind])
        self.m.glob.data[spots] = reduced(one.reduce, one.kind, old, new).view(np.uint8)

    def finish(self) -> None:
        """Let all that is left be written, at the end of the launch."""
        for groups in self.bulk.values():
            for stores in [*(s for s, _ in groups.closed), groups.open]:
                for one in stores:
                    self._give(one)
        self.finish_copies(self.m.all, np.full(self.m.T, 1 << 30))

    def left(self, threads: Ints) -> None:
        """Judge what threads leave in flight at their end."""
        m = self.m
        for thread in threads.tolist():
            groups = self.bulk.get(thread)
            if groups is None:
                continue
            unread = [one for stores, _ in groups.closed[groups.reads :] for one in stores]
            for one in [*unread, *groups.open]:
                m.line = one.line
                m.find(
                    "exit",
                    f"{m.name(thread)} ends while its copy may still read "
                    f"shared memory; cp.async.bulk.wait_group.read 0 waits for it",
                )
        for cta in distinct(m.cta[threads]).tolist():
            if not m.live[m.cta == cta].any():
                for owner, line in self.flying.values():
                    if owner == cta:
                        m.line = line
                        m.find(
                            "exit",
                            f"CTA {cta} ends while a copy into its shared memory is in flight",
                        )

    # --- st.async --------------------------------------------------------------------------------

    def put(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute st.async: stores whose bytes complete on an mbarrier."""
        m = self.m
        dst, src, mbar = ins.operands
        kind = ins.mods[-1]
        items = src.items if isinstance(src, Vec) else (src,)
        size = NAMESPACE[VALUE[kind]]().itemsize
        to, ok = m.place_shared(g, m.where(dst, g), size * len(items))
        bars, fine = m.place_shared(g, m.where(mbar, g), 8)
        ok &= fine
        values = [m.value(one, g, kind)[ok].copy() for one in items]
        who, to, bars = g[ok], to[ok], bars[ok]
        columns = np.zeros(len(who), int)
        for where in distinct(bars):
            found = self.sync.visible(who[bars == where], int(where))
            columns[bars == where] = (
                found.column if found else m.clocks.column(("puts", int(where)))
            )
        self.flights += 1
        time, line, number = NEVER + self.flights, m.line, self.flights
        m.in_flight[time] = line
        granules = m.shared.granules(to, size * len(items))
        m.shared.write(granules, who, agent=columns, time=time)
        issued = m.clocks.now
        self.flying[number] = (int(to[0]) // m.shared_bytes if len(to) else -1, line)

        def done() -> None:
            m.at_line(line)
            for i, value in enumerate(values):
                m.shared.view[VALUE[kind]][to // size + i] = value
            flat = granules.reshape(-1)
            m.shared.written[flat[m.shared.written[flat] == time]] = m.clocks.now
            del self.flying[number]
            for where in distinct(bars):
                many = int((bars == where).sum()) * size * len(items)
                self.sync.complete_tx(int(where), many, line, who[bars == where], issued)

        m.pending.append(done)
        m.go(block.after, g)


def _outside(described: Described | None, unit: int) -> Ints:
    """Return the bytes of a piece that lies outside of its tensor: zeros, or numbers that are none.

    Source: PTX ISA, "Tensors", "Out of Boundary Access" (OOB-NaN fill mode).
    """
    if described is None or not described.nan:
        return np.zeros(unit, np.uint8)
    kinds = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8 << 48}
    nan = np.array(kinds.get(described.dtype, 0), f"u{described.itemsize}")
    return np.tile(np.atleast_1d(nan).view(np.uint8), unit // described.itemsize)


def swizzled(places: Ints, span: int, period: int) -> Ints:
    """Return where bytes go in a swizzled tile: bits of the address within its CTA change."""
    if not span:
        return places
    offset = places % period
    return np.asarray(places ^ ((offset >> 7 & SWIZZLE[span]) << 4))


def reduced(op: str, kind: str, old: Any, new: Any) -> Any:
    """Return what a bulk reduction makes of two arrays."""
    if kind in ("f16", "bf16"):
        inn, out = (
            (arith.from_f16, arith.to_f16) if kind == "f16" else (arith.from_bf16, arith.to_bf16)
        )
        if op == "add":
            return out(inn(old) + inn(new))
        return out({"min": np.fmin, "max": np.fmax}[op](inn(old), inn(new)))
    functions = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and}
    functions |= {"or": np.bitwise_or, "xor": np.bitwise_xor}
    return functions[op](old, new)


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    known = {
        "async",
        "bulk",
        "tensor",
        "1d",
        "2d",
        "3d",
        "4d",
        "5d",
        "shared::cluster",
        "shared::cta",
    }
    known |= {
        "shared",
        "global",
        "mbarrier::complete_tx::bytes",
        "multicast::cluster",
        "bulk_group",
    }
    known |= {
        "reduce",
        "add",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "tile",
        "commit_group",
        "wait_group",
    }
    known |= {"read", "ca", "cg", "wait_all", "mbarrier", "arrive", "noinc", "b64", "noftz", "weak"}
    known |= {
        "f32",
        "f16",
        "bf16",
        "s32",
        "u32",
        "f64",
        "s64",
        "u64",
        "b32",
        "v2",
        "v4",
        "prefetch",
    }
    known |= {"L2::128B", "L2::64B", "L2::256B", "L2::cache_hint", "L2"}
    if any(mod not in known for mod in ins.mods):
        raise UnsupportedError(ins.opcode)
    mods = {*ins.mods}
    if "bulk" in mods and not mods & {"commit_group", "wait_group", "prefetch"}:
        into = "mbarrier::complete_tx::bytes" in mods
        if into and ("global" not in mods or "reduce" in mods):
            raise UnsupportedError(ins.opcode)
    if "tensor" in mods and not any(isinstance(op, Address) and op.coords for op in ins.operands):
        raise UnsupportedError(ins.opcode)
