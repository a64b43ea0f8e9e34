"""What moves data, by threads and by copy engines: which values move, what each access is asked.

Shared memory starts as poison (bytes 0xFF: NaN, or -1).  A copy is asked what it needs at its
issue, and moves its bytes when the schedule lets it, in two steps where that can be seen.

Source: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from fuser.kernel import ir as kir
from oracles.simulator.machine import (
    READ_DONE,
    WRITE_DONE,
    Agent,
    Flight,
    Machine,
    Step,
    Violation,
)
from oracles.simulator.memory import ops
from oracles.simulator.memory.access import (
    Dealt,
    Tensors,
    check_chunks,
    check_copy,
    check_once,
    check_run,
    check_slot,
    check_width,
    settle_box,
)
from oracles.simulator.memory.maps import Maps
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.registers import nothing, register, span
from oracles.simulator.memory.shadow import Act, LaneShadow, SharedShadow, Touch
from oracles.simulator.memory.tile import Deal, stored, tile, turns, warp_of
from oracles.simulator.sync.clock import Index, Trouble
from oracles.simulator.sync.mbarriers import Phases
from oracles.simulator.unroll import Event

MATRIX_ROW = 16
"""Bytes of a row of `ldmatrix`, and of its address a divisor."""
MATRIX = 8
"""Rows and columns of a matrix that is transposed on the way."""


class Memory:
    """Memory as the CTAs see it that run together; all CTAs of the launch share `tensors`."""

    def __init__(
        self,
        tensors: Tensors,
        machine: Machine,
        phases: Phases,
        scalars: Mapping[str, Array],
        *,
        strict: bool,
    ) -> None:
        self.tensors = tensors
        self.geometry = tensors.geometry
        self.machine = machine
        self.phases = phases
        self.gang = machine.agents[0].block
        self.scalars = scalars
        self.checked = 0
        self.log = machine.log
        kernel = self.geometry.kernel
        self.atoms_each = self.geometry.atoms.count
        atoms = self.atoms_each * machine.ctas
        self.strict = strict
        narrow = any(
            isinstance(s, kir.MBarrierArrive) and s.space is kir.Space.SHARED for s in kernel.walk()
        )
        each = self.atoms_each if narrow else 0
        self.shadow = SharedShadow(atoms, machine.columns.parts, each, strict=strict)
        self._loaded: dict[tuple[int, int, int], Flight] = {}
        self._opaque = np.zeros(atoms, np.bool_)
        self._live = np.zeros(atoms, np.bool_)
        self._drawing: dict[int, int] = {}
        self._clipped: dict[tuple[int, str, int], int] = {}
        self.maps = Maps()
        self._deals: dict[Deal, int] = {}
        self._lanes: dict[int, LaneShadow] = {}
        self.slots: list[dict[str, Array]] = []
        for _ in range(machine.ctas):
            raw = np.full(kernel.smem_bytes, 0xFF, np.uint8)
            self.slots.append(
                {
                    b.name: as_strided(raw[b.offset :], (b.slots, b.slot_nbytes), (b.step, 1)).view(
                        ops.MEMORY[b.dtype]
                    )
                    for b in kernel.buffers
                }
            )

    def load(self, agent: Agent, event: Event, stmt: kir.Load) -> None:
        """Fill this thread's part of a fragment."""
        if stmt.transposed:
            _check_whole(stmt)
        match stmt.src:
            case kir.Box(tensor) as box:
                values = nothing(tensor.dtype)
                if (found := self._positions(agent, event, stmt, box)) is not None:
                    index, valid = found
                    self._access(agent, event, box, index, Act.READ)
                    values = self.tensors.flat[tensor.name][index]
                    if valid is not None:
                        inside, values = values, np.full(valid.size, stmt.fill, values.dtype)
                        values[valid] = inside
            case kir.Slot(buffer) as slot:
                values = nothing(buffer.dtype)
                before = self._before(agent, event, stmt)
                if before.size and not before.any():  # it reads nothing
                    values = np.full(before.size, stmt.fill, values.dtype)
                elif (place := self._in_slot(agent, event, stmt, slot)) is not None:
                    memory, flat = place
                    values = ops.decode(buffer.dtype, memory[flat])
                    if stmt.limit is not None:
                        values = np.where(before, values, np.asarray(stmt.fill, values.dtype))
                    self._held(agent, event, slot, flat[before] if before.size else flat)
        agent.registers[stmt.dst.name] = values

    def _before(self, agent: Agent, event: Event, stmt: kir.Load) -> NDArray[np.bool_]:
        """Which elements of a thread lie before the limit of a load; none where it has no limit."""
        if stmt.limit is None:
            return np.zeros(0, np.bool_)
        positions = tile(stmt.dst.layout, span(agent, event)).coordinates
        each = [x < end for x, end in zip(positions, event.limit, strict=True)]
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*each)), np.bool_)

    def _held(self, agent: Agent, event: Event, slot: kir.Slot, flat: Index) -> None:
        """Refuse to read what lies behind what a bulk copy has left in a slot."""
        self._within(agent.cta, slot.buffer, event.index, int(flat.max()) + 1 if flat.size else 0)

    def _within(self, cta: int, buffer: kir.Buffer, index: int, many: int) -> None:
        held = self._clipped.get((cta, buffer.name, index), many)
        if many > held:
            says = f"element {many - 1} of {buffer.name}[{index}] is read; the bulk copy that "
            raise Violation("RAW", f"{says}filled it ended after {held}")

    def gather(self, agent: Agent, event: Event, stmt: kir.Gather) -> None:
        """Fill this thread's part of a fragment with the elements that its indices name."""
        name, view = stmt.src.name, self.geometry.views[stmt.src.name]
        if any(one.layout != stmt.dst.layout for one in stmt.index):
            raise Violation("bounds", f"indices of {name} differ from {stmt.dst.name} in layout")
        parts = [register(agent, one) for one in stmt.index]
        held = tile(stmt.dst.layout, span(agent, event)).elements.size
        valid, flat = np.ones(held, np.bool_), np.zeros(held, np.int64)
        for part, extent, step in zip(parts, view.extents, view.steps, strict=True):
            valid &= (part >= 0) & (part < extent)
            flat += part * step
        everything = kir.Box(stmt.src, (0,) * len(parts), (1,) * len(parts), view.extents)
        self._access(agent, event, everything, flat[valid], Act.READ)
        values = self.tensors.flat[name]
        made = np.zeros(held, values.dtype)
        made[valid] = values[flat[valid]]
        agent.registers[stmt.dst.name] = made

    def store(self, agent: Agent, event: Event, stmt: kir.Store) -> None:
        """Write this thread's part of a fragment."""
        if stmt.transposed:
            _check_whole(stmt)
        values = _kept(agent, event, stmt.src)
        match stmt.dst:
            case kir.Box() as box:
                self._write(agent, event, stmt, box)
            case kir.Slot(buffer) as slot:
                if (place := self._in_slot(agent, event, stmt, slot)) is not None:
                    memory, flat = place
                    memory[flat] = ops.encode(buffer.dtype, values)
                    self._clipped.pop((agent.cta, buffer.name, event.index), None)

    def atomic_add(self, agent: Agent, event: Event, stmt: kir.AtomicAdd) -> None:
        """Add this thread's part of a fragment to global memory."""
        self._write(agent, event, stmt, stmt.dst)

    def matrix(self, pair: tuple[Agent, Agent], event: Event, stmt: kir.Load | kir.Store) -> None:
        """Move a tile by `ldmatrix` or `stmatrix`: each element by some lane of the warp.

        Which lane's address an element is moved through is not the lane that holds it; so the
        access is ordered with another one only if it would be for every lane.  Transposed, by
        `.trans`: 8 neighbours of the slot are then 8 rows of a strip, so they are of one warp, too.
        """
        writes = isinstance(stmt, kir.Store)
        slot, fragment = (
            (stmt.dst, stmt.src) if isinstance(stmt, kir.Store) else (stmt.src, stmt.dst)
        )
        if isinstance(slot, kir.Box) or slot.cta is not None:
            says = "ldmatrix and stmatrix reach the CTA's own shared memory only"
            raise Violation("bounds", says)
        _check_whole(stmt)
        agent, buffer, crossed = pair[0], slot.buffer, stmt.transposed
        if crossed:
            _check_crossed(buffer, fragment.layout)
            _check_turned(stmt, buffer, fragment)
        check_slot(slot, event.index, MATRIX_ROW)
        deals = [
            _deal(part, event, buffer, fragment.layout, any_lane=True, crossed=crossed)
            for part in pair
        ]
        lo, hi = warp_of(span(agent, event))
        atoms = self._atoms(deals[0]._replace(lo=lo, hi=hi), agent.cta)
        self.checked += 1
        lanes = [(part.by, part.now, part.clock) for part in pair]
        self.report(self.shadow.by_lanes(atoms, lanes, writes=writes))
        self.through(buffer, atoms, writes=writes)
        memory = self.slots[agent.cta][buffer.name][event.index]
        for part, deal in zip(pair, deals, strict=True):
            self._between_lanes(part, deal, atoms, writes=writes)
            flat = self.geometry.fixed.in_slot(
                slot, fragment.layout, deal.lo, deal.hi, crossed=crossed
            )
            if isinstance(stmt, kir.Store):
                memory[flat] = ops.encode(buffer.dtype, register(part, fragment))
                self._clipped.pop((part.cta, buffer.name, event.index), None)
            else:
                self._held(part, event, slot, flat)
                part.registers[fragment.name] = ops.decode(buffer.dtype, memory[flat])
            self.log.append(Step(part.name, part.by, event, atoms, writes))

    # --- global memory --------------------------------------------------------------------------

    def _write(
        self, agent: Agent, event: Event, stmt: kir.Store | kir.AtomicAdd, box: kir.Box
    ) -> None:
        """Store this thread's part of a fragment in a tensor, or add it there."""
        values = _kept(agent, event, stmt.src)
        found = self._positions(agent, event, stmt, box)
        if found is None:
            return
        index, valid = found
        adds = isinstance(stmt, kir.AtomicAdd)
        self._access(agent, event, box, index, Act.ADD if adds else Act.WRITE)
        name, dtype = box.tensor.name, box.tensor.dtype
        kept = ops.round_to(dtype, values if valid is None else values[valid])
        if adds:
            added = self.tensors.flat[name].copy()
            np.add.at(added, index, kept)
            kept = ops.round_to(dtype, added[index])
        self.tensors.flat[name][index] = kept

    def _access(self, agent: Agent, event: Event, box: kir.Box, index: Index, act: Act) -> None:
        """Check a thread's access of global memory."""
        self.checked += 1
        if index.size:
            self._alone(agent, box, writes=act is not Act.READ)
        shadow = self.tensors.shadows.get(box.tensor.name)
        if shadow is not None:
            now = agent.by, agent.now
            touch = Touch(index, self.gang, agent.block, *now, True, act, now)
            self.report(shadow.access(touch, agent.clock), box.tensor.name)
        self.log.append(Step(agent.name, agent.by, event))

    def _alone(self, agent: Agent, box: kir.Box, *, writes: bool) -> None:
        """Refuse to access what the launches before this one may still use."""
        name = box.tensor.name
        if writes or name not in self.geometry.kernel.early:
            self.machine.alone(agent, name)

    def _positions(
        self, agent: Agent, event: Event, stmt: Dealt, box: kir.Box
    ) -> tuple[Index, Array | None] | None:
        """Flat positions in the tensor, and which lie below the limit (None: all), if any."""
        layout, width = self.geometry.fixed.dealt(stmt)
        threads = span(agent, event)
        flat = self.geometry.in_box(box, layout, *threads)
        if not flat.size:
            return None
        view = self.geometry.views[box.tensor.name]
        if not isinstance(stmt, kir.Load):
            check_once(view)
        below = settle_box(view, event, box, width, whole=isinstance(stmt, kir.CpAsync))
        if below == box.shape:
            return np.asarray(flat + event.base), None
        inside, valid = self.geometry.below(box, layout, *threads, below)
        return inside + event.base, valid

    # --- shared memory --------------------------------------------------------------------------

    def _in_slot(
        self, agent: Agent, event: Event, stmt: kir.Load | kir.Store, slot: kir.Slot
    ) -> tuple[Array, Index] | None:
        """Check a thread's access of a slot; return its elements, and which of them it has."""
        layout, width = self.geometry.fixed.dealt(stmt)
        buffer, writes = slot.buffer, isinstance(stmt, kir.Store)
        if stmt.transposed:
            _check_crossed(buffer, layout)
        deal = _deal(agent, event, buffer, layout, crossed=stmt.transposed)
        flat = self.geometry.fixed.in_slot(slot, layout, deal.lo, deal.hi, crossed=deal.crossed)
        if not flat.size:
            return None
        wide = writes or buffer.shape[-1:] != (1,)
        if wide:
            check_width(width, buffer.dtype.nbytes)
        check_slot(slot, event.index, width * buffer.dtype.nbytes if wide else 1)
        cta = agent.cta
        if slot.cta is not None:
            cta = self.machine.peer(agent, event.extra)
            if writes and cta != agent.cta and not self.machine.has_begun(agent):
                raise Violation("residency", "it stores into a CTA that may not have begun")
            self.machine.reach(agent, cta, event)
        atoms = self._atoms(deal, cta)
        touch = self.shadow.write if writes else self.shadow.read
        self.checked += 1
        self.report(touch(atoms, agent.by, agent.now, agent.clock))
        self.through(buffer, atoms, writes=writes)
        if cta == agent.cta:
            self._between_lanes(agent, deal, atoms, writes=writes)
        self.log.append(Step(agent.name, agent.by, event, atoms, writes))
        return self.slots[cta][buffer.name][event.index], flat

    def _atoms(self, deal: Deal, cta: int) -> Index:
        """Return the atoms of a CTA's slot that the threads of a deal touch."""
        threads = deal.lo, deal.hi
        atoms = self.geometry.atoms.of_tile(
            deal.buffer, deal.slot, deal.layout, threads, crossed=deal.crossed
        )
        return atoms + cta * self.atoms_each if cta else atoms

    def through(self, buffer: kir.Buffer, atoms: Index, *, writes: bool) -> None:
        """Refuse to use the bytes of an mbarrier in its life, and to read what it left there."""
        if not self.geometry.atoms.aliased:
            return
        if self._live[atoms].any():
            raise Violation("init", f"{buffer.name} shares bytes with an mbarrier that is in use")
        if writes:
            self._opaque[atoms] = False
        elif self._opaque[atoms].any():
            raise Violation("RAW", f"bytes of {buffer.name} were last written as an mbarrier")

    def barrier_bytes(self, agent: Agent, event: Event, ring: kir.MBarrier, *, live: bool) -> None:
        """Take note that a life of mbarriers begins or ends, where they lie among buffers."""
        if ring.offset is None:
            return
        for i in range(ring.slots):
            atoms = self.geometry.atoms.of_barrier(ring.offset + 8 * i)
            atoms = atoms + agent.cta * self.atoms_each
            if live and self._live[atoms].any():
                raise Violation("init", f"{ring.name}[{i}] lies on an mbarrier that is in use")
            self.report(self.shadow.write(atoms, agent.by, agent.now, agent.clock))
            self._live[atoms], self._opaque[atoms] = live, True
            self.log.append(Step(agent.name, agent.by, event, atoms, True))

    def _between_lanes(
        self, agent: Agent, deal: Deal, atoms: Index, *, writes: bool, waited: bool = False
    ) -> None:
        """Order between the lanes that one clock stands for, where deals may differ.

        What each lane has `waited` for by itself is not kept.
        """
        if not self.geometry.atoms.mixed or agent.mult == 1:
            return
        how = self._deals.setdefault(deal, len(self._deals))
        if agent.by not in self._lanes:
            self._lanes[agent.by] = LaneShadow(self.atoms_each * self.machine.ctas)
        found = self._lanes[agent.by].touch(
            atoms, how, agent.now, agent.joined,
            writes=writes, alike=not deal.any_lane, keep=not waited,
        )  # fmt: skip
        deals = list(self._deals) if found else []
        for kind, other, atom in found:
            if self.geometry.atoms.lanes_differ(deals[other], deal):
                says = "two lanes of one warp touch these bytes, and no barrier joins the lanes"
                self.report(Trouble(kind, says, agent.by, kind != "WAR", atom))

    def engine(
        self, flight: Flight, buffer: kir.Buffer, atoms: Index, at: int, *, writes: bool
    ) -> None:
        """Check the access of a slot by a copy in flight, all of whose work it may be."""
        touch = self.shadow.write if writes else self.shadow.read
        trouble = touch(atoms, flight.by, flight.base + at, flight.start)
        self.checked += 1
        self.report(trouble)
        self.through(buffer, atoms, writes=writes)
        if writes:
            self._loaded.setdefault((id(flight.event.stmt), flight.cta, flight.event.index), flight)
        note = f"issued by {flight.issuer.name}"
        self.log.append(Step(flight.name, flight.by, flight.event, atoms, writes, note))

    def unread(self) -> Iterator[tuple[Flight, str]]:
        """Yield a copy into each slot that nobody has read, one for each statement."""
        told = set[int]()
        for (stmt_id, cta, index), flight in self._loaded.items():
            stmt = flight.event.stmt
            fills = kir.TmaLoad | kir.CpAsync | kir.StAsync | kir.QueueCopy
            assert isinstance(stmt, fills), "these fill slots"
            used = self.shadow.used[self.whole(stmt.dst, index, cta)].any()
            if stmt_id not in told and not used:
                told.add(stmt_id)
                yield flight, f"{stmt.dst.buffer.name}[{index}]"

    # --- tensor copies --------------------------------------------------------------------------

    def tma_load(self, agent: Agent, event: Event, stmt: kir.TmaLoad) -> None:
        """Start a tensor load into one CTA, or into each CTA of a multicast."""
        _one_thread(agent)
        if event.extra < 0:
            targets = [agent.cta]
        else:
            ranks = [i for i in range(event.extra.bit_length()) if event.extra >> i & 1]
            targets = [self.machine.peer(agent, rank) for rank in ranks]
        for cta in targets:
            barrier = self.phases.barrier(stmt.barrier, event.slot, cta)
            self.phases.use(agent, barrier, copies=True)
            if self.strict and not self.phases.fenced(agent, barrier):
                says = f"no fence_mbarrier_init stands behind the init of {barrier.name}"
                self.machine.warn("init", says, None)
        private = stmt.src.tensor.name not in self.tensors.shadows
        view = self.geometry.views[stmt.src.tensor.name]
        if stmt.bulk:
            many = check_run(view, event, stmt.src, stmt.dst)
        else:
            check_copy(view, event, stmt.src, stmt.dst)
            many = prod(stmt.src.shape)
        if stmt.src.index is not None:
            event = self._told(agent, event, stmt.src, stmt.src.index)
        for cta in targets:
            self._clipped[cta, stmt.dst.buffer.name, event.index] = many
            if many:  # of an empty box nothing is copied
                flight = self.machine.issue(agent, event, shared=private, cta=cta)
                if stmt.through is not None:
                    self.maps.read(flight, stmt.through, view, WRITE_DONE)
                self._begin_load(flight, stmt, many, partial(self._complete, flight, stmt, many))

    def _told(self, agent: Agent, event: Event, box: kir.Box, index: kir.Index) -> Event:
        """Read the integer that says where a box lies, and return what then is copied."""
        axis, src = index.axis, index.src
        name, view = src.tensor.name, self.geometry.views[src.tensor.name]
        if name in self.tensors.shadows:
            raise Violation("bounds", f"{name} says where a box lies, and may be written")
        if any(n != 1 for n in src.shape) or box.shape[axis] != 1 or box.origin[axis] != 0:
            says = f"an index of {src.shape} along axis {axis} of a box of {box.shape}"
            raise Violation("bounds", says)
        check_once(view)
        there = all(at < end for at, end in event.told)
        flat = 0
        for (at, _), extent, step in zip(event.told, view.extents, view.steps, strict=True):
            if there and not 0 <= at < extent:
                says = f"an index at {at} of {name}, which has {extent} along an axis"
                raise Violation("bounds", says)
            flat += at * step
        self._access(agent, event, src, np.array([flat] if there else [], np.int64), Act.READ)
        many = self.geometry.views[box.tensor.name].extents[axis]
        found = int(self.tensors.flat[name][flat]) if there else many
        start = found if 0 <= found < many else many
        origin = (*event.origin[:axis], start, *event.origin[axis + 1 :])
        return replace(event, origin=origin)

    def _complete(self, flight: Flight, stmt: kir.TmaLoad, many: int) -> None:
        barrier = self.phases.barrier(stmt.barrier, flight.event.slot, flight.cta)
        self.phases.complete(flight, barrier, many * stmt.dst.buffer.dtype.nbytes)
        self._log(flight, barrier.state)

    def queue_copy(self, agent: Agent, event: Event, stmt: kir.QueueCopy) -> None:
        """Start a copy at the end of a thread's queue: it does not finish before those in front."""
        _one_thread(agent)
        name, many, queue = stmt.src.tensor.name, prod(stmt.src.shape), agent.queue
        check_copy(self.geometry.views[name], event, stmt.src, stmt.dst)
        self._clipped[agent.cta, stmt.dst.buffer.name, event.index] = many
        shared = name not in self.tensors.shadows
        flight = self.machine.issue(agent, event, shared=shared)
        flight.waits_for = queue.left[-1:]
        self.machine.followed = True
        queue.open.append(flight)
        queue.commit()

        def over() -> None:
            self._log(flight, "finished")
            self.machine.finish(flight, WRITE_DONE)

        self._begin_load(flight, stmt, many, over)

    def _begin_load(
        self, flight: Flight, stmt: kir.TmaLoad | kir.QueueCopy, many: int, over: Callable[[], None]
    ) -> None:
        event, box, cta = flight.event, stmt.src, flight.cta
        if self._clip(event, box)[0] is not None or box.index is not None:
            self._alone(flight.issuer, box, writes=False)
        buffer, atoms = stmt.dst.buffer, self.whole(stmt.dst, event.index, cta)
        shadow = self.tensors.shadows.get(box.tensor.name)
        if shadow is not None:
            touch = self._moved(flight, box, READ_DONE, Act.READ)
            self.report(shadow.access(touch, flight.start), box.tensor.name)
        self.engine(flight, buffer, atoms, WRITE_DONE, writes=True)
        place = self.slots[cta][buffer.name][event.index]
        at = self.geometry.atoms.moved.get(buffer.name)
        held: list[Array] = []

        def first() -> None:
            held.append(ops.encode(box.tensor.dtype, self._read_box(event, box).ravel())[:many])
            half = held[0].size // 2
            place[slice(half) if at is None else at[:half]] = held[0][:half]

        def second() -> None:
            half = held[0].size // 2
            place[slice(half, many) if at is None else at[half:]] = held[0][half:]
            over()

        self._start(flight, first, second)

    def tma_store(self, agent: Agent, event: Event, stmt: kir.TmaStore | kir.TmaReduce) -> None:
        """Start a tensor store or reduction."""
        _one_thread(agent)
        name = stmt.dst.tensor.name
        seen_by_others = name in self.geometry.fixed.read or isinstance(stmt, kir.TmaReduce)
        owed = WRITE_DONE if seen_by_others else READ_DONE
        flight = self.machine.issue(agent, event, owed, shared=not seen_by_others)
        agent.bulk.open.append(flight)
        box = stmt.dst
        view = self.geometry.views[name]
        if isinstance(stmt, kir.TmaStore) and stmt.bulk:
            many = check_run(view, event, box, stmt.src)
        else:
            check_copy(view, event, box, stmt.src)
            check_chunks(view, event, box)
            many = prod(box.shape)
        self._within(agent.cta, stmt.src.buffer, event.index, many)
        if stmt.through is not None:
            self.maps.read(flight, stmt.through, view, READ_DONE)
        if self._clip(event, box)[0] is not None:
            self._alone(agent, box, writes=True)
        buffer, atoms = stmt.src.buffer, self.whole(stmt.src, event.index, agent.cta)
        self.engine(flight, buffer, atoms, READ_DONE, writes=False)
        adds = isinstance(stmt, kir.TmaReduce)
        touch = self._moved(flight, box, WRITE_DONE, Act.REDUCE if adds else Act.WRITE)
        self.report(self.tensors.shadows[name].access(touch, flight.start), name)
        held: list[Array] = []

        def first() -> None:
            raw = self.elements(agent.cta, buffer, event.index).reshape(box.shape)
            held.append(ops.decode(buffer.dtype, raw.copy()))
            self._log(flight, "source read")
            self.machine.finish(flight, READ_DONE)

        def second() -> None:
            inside, here = self._clip(event, box)
            if inside is not None:
                target, new = self.tensors.shaped[name], held[0][here]
                total = target[inside] + new if adds else new
                target[inside] = ops.round_to(box.tensor.dtype, total)
            self._log(flight, "performed")
            self.machine.finish(flight, WRITE_DONE)

        self._start(flight, first, second)

    # --- cp.async -------------------------------------------------------------------------------

    def cp_async(self, agent: Agent, event: Event, stmt: kir.CpAsync) -> None:
        """Start the copies of this thread's elements."""
        box, buffer = stmt.src, stmt.dst.buffer
        deal = _deal(agent, event, buffer, stmt.layout)
        if not self.geometry.in_box(box, stmt.layout, deal.lo, deal.hi).size:
            return
        nbytes = stmt.width * buffer.dtype.nbytes
        if nbytes not in (4, 8, 16) or stmt.layout.vector % stmt.width:
            raise Violation("bounds", f"cp.async copies 4, 8 or 16 bytes, not {nbytes}")
        check_slot(stmt.dst, event.index, nbytes)
        found = self._positions(agent, event, stmt, box)
        assert found is not None, "the thread holds elements"
        index, valid = found
        if index.size:
            self._alone(agent, box, writes=False)
        name = box.tensor.name
        shadow = self.tensors.shadows.get(name)
        flight = self.machine.issue(agent, event, shared=shadow is None)
        agent.copies.open.append(flight)
        agent.issued.append(flight)
        if shadow is not None:
            at, issued = flight.base + READ_DONE, (agent.by, flight.issued)
            touch = Touch(index, self.gang, agent.block, flight.by, at, True, Act.READ, issued)
            self.report(shadow.access(touch, flight.start), box.tensor.name)
        atoms = self._atoms(deal, agent.cta)
        self.engine(flight, buffer, atoms, WRITE_DONE, writes=True)
        self._between_lanes(agent, deal, atoms, writes=True)
        inside = self.geometry.fixed.in_slot(stmt.dst, stmt.layout, deal.lo, deal.hi)

        def finish() -> None:
            values = np.zeros(inside.size, ops.REGISTER[box.tensor.dtype])
            values[slice(None) if valid is None else valid] = self.tensors.flat[name][index]
            place = self.slots[agent.cta][buffer.name][event.index]
            place[inside] = ops.encode(buffer.dtype, values)
            self._log(flight, "finished")
            self.machine.finish(flight, WRITE_DONE)

        self._start(flight, finish)

    def number(self, agent: Agent, event: Event, stmt: kir.Draw | kir.Fetch) -> None:
        """Put a number that is drawn into its slot, or look at it there."""
        drawn = isinstance(stmt, kir.Draw)
        slot = stmt.dst if isinstance(stmt, kir.Draw) else stmt.src
        if drawn and (agent.mult > 1 or self._drawing.setdefault(agent.cta, agent.by) != agent.by):
            raise Violation("collective", "several threads of a CTA draw numbers, made for one")
        if isinstance(stmt, kir.Draw) and not stmt.atomic and event.extra > 1:
            raise Violation("WAW", f"two CTAs may draw number {event.parity} at once")
        if slot.cta is not None or slot.buffer.slot_nbytes != 4:
            raise Violation("bounds", f"{slot.buffer.name} holds no integer of the own CTA")
        check_slot(slot, event.index, 4)
        atoms = self.whole(slot, event.index, agent.cta)
        touch = self.shadow.write if drawn else self.shadow.read
        self.checked += 1
        self.report(touch(atoms, agent.by, agent.now, agent.clock))
        self.through(slot.buffer, atoms, writes=drawn)
        place = self.slots[agent.cta][slot.buffer.name][event.index]
        if drawn:
            place[0] = event.parity
        elif int(place[0]) != event.parity:
            says = f"it reads {int(place[0])}, and this is the turn of number {event.parity}"
            raise Violation("RAW", says)
        self.log.append(Step(agent.name, agent.by, event, atoms, drawn))

    def store_async(self, agent: Agent, event: Event, stmt: kir.StAsync) -> None:
        """Start to store this thread's part of a fragment in a slot of a CTA of the cluster."""
        buffer, layout, machine = stmt.dst.buffer, stored(stmt.src.layout), self.machine
        if machine.kernel.cluster == 1:
            raise Violation("collective", "st.async reaches into a cluster, which has one CTA here")
        threads = 1 if event.elected else kir.WARP * event.team.warps
        if layout.threads != threads:
            says = f"st.async by {threads} threads of a tile dealt to {layout.threads}"
            raise Violation("collective", says)
        values, deal = _kept(agent, event, stmt.src), _deal(agent, event, buffer, layout)
        inside = self.geometry.fixed.in_slot(stmt.dst, layout, deal.lo, deal.hi)
        if not inside.size:
            return
        size = buffer.dtype.nbytes
        if stmt.width * size not in (4, 8, 16) or layout.shape != buffer.shape:
            raise Violation("bounds", f"st.async stores 4, 8 or 16 bytes, not {stmt.width * size}")
        check_slot(stmt.dst, event.index, stmt.width * size)
        cta = agent.cta if stmt.dst.cta is None else machine.peer(agent, event.extra)
        barrier = self.phases.barrier(stmt.barrier, event.slot, cta)
        self.phases.use(agent, barrier, copies=True)
        flight = machine.issue(agent, event, shared=True, cta=cta)
        machine.columns.parts.published[flight.by] = True
        atoms = self._atoms(deal, cta)
        self.engine(flight, buffer, atoms, WRITE_DONE, writes=True)
        if cta == agent.cta:
            self._between_lanes(agent, deal, atoms, writes=True, waited=True)

        def finish() -> None:
            self.slots[cta][buffer.name][event.index][inside] = ops.encode(buffer.dtype, values)
            machine.finish(flight, WRITE_DONE)
            self.phases.complete(flight, barrier, inside.size * size)
            self._log(flight, barrier.state)

        self._start(flight, finish)

    def arrive_after(self, agent: Agent, event: Event, stmt: kir.CpAsyncMBarrierArrive) -> None:
        """Let this thread's copies arrive on a barrier when they are over."""
        barrier = self.phases.barrier(stmt.barrier, event.slot, agent.cta)
        self.phases.use(agent, barrier)
        if not stmt.noinc:
            barrier.pending += agent.mult
        flight = self.machine.issue(agent, event, shared=True)
        for copy in agent.issued:
            self.machine.columns.parts.published[copy.by] = True
            agent.copied[copy.by] = copy
        # of all copies so far: whoever waits for this arrival only knows of the earlier ones, too
        copies = list(agent.copied.values())
        agent.issued.clear()
        agent.issued += [copy for copy in copies if copy.done < WRITE_DONE]
        flight.waits_for = list(agent.issued)
        self.machine.followed = True

        def arrive() -> None:
            self.phases.arrive_for(flight, barrier, agent.mult, copies)
            self._log(flight, barrier.state)

        self._start(flight, arrive)

    def awaited(self, agent: Agent, flights: list[Flight]) -> None:
        """Note that a thread has waited for its cp.async; its lanes see their own copies."""
        for flight in flights:
            agent.sees(flight, WRITE_DONE)
            stmt = flight.event.stmt
            if isinstance(stmt, kir.CpAsync):
                deal = _deal(agent, flight.event, stmt.dst.buffer, stmt.layout)
                self._between_lanes(agent, deal, self._atoms(deal, agent.cta), writes=True)

    # --- boxes ----------------------------------------------------------------------------------

    def whole(self, slot: kir.Slot, index: int, cta: int) -> Index:
        """Return the atoms of a CTA's whole slot."""
        atoms = self.geometry.atoms.of_slot(slot.buffer, index)
        return atoms + cta * self.atoms_each if cta else atoms

    def elements(self, cta: int, buffer: kir.Buffer, index: int) -> Array:
        """Return the elements of a slot, row by row, not to be written."""
        raw = self.slots[cta][buffer.name][index]
        at = self.geometry.atoms.moved.get(buffer.name)
        return raw if at is None else np.asarray(raw[at])

    def _start(self, flight: Flight, *steps: Callable[[], None]) -> None:
        flight.steps = [*reversed(steps)]
        self.machine.flights.append(flight)

    def _log(self, flight: Flight, note: str) -> None:
        self.log.append(Step(flight.name, flight.by, flight.event, note=note))

    def _clip(
        self, event: Event, box: kir.Box
    ) -> tuple[tuple[slice, ...] | None, tuple[slice, ...]]:
        """Return the part of a box inside its tensor, as slices of the tensor and of the tile."""
        # of a map that the kernel writes, the limit is what it says
        given = event.map >= 0 or getattr(event.stmt, "bulk", False)
        extents = event.limit if given else self.geometry.views[box.tensor.name].extents
        inside, here = [], []
        for o, n, extent in zip(event.origin, box.shape, extents, strict=True):
            lo, hi = max(0, o), min(o + n, extent)
            if lo >= hi:
                return None, ()
            inside.append(slice(lo, hi))
            here.append(slice(lo - o, hi - o))
        return tuple(inside), tuple(here)

    def _read_box(self, event: Event, box: kir.Box) -> Array:
        out = np.zeros(box.shape, ops.REGISTER[box.tensor.dtype])
        inside, here = self._clip(event, box)
        if inside is not None:
            out[here] = self.tensors.shaped[box.tensor.name][inside]
        return out

    def _moved(self, flight: Flight, box: kir.Box, at: int, act: Act) -> Touch:
        inside, _ = self._clip(flight.event, box)
        flat = np.zeros((), np.intp)
        steps = self.geometry.views[box.tensor.name].steps
        for part, step in zip(inside or (), steps, strict=False):
            flat = flat[..., None] + np.arange(part.start, part.stop) * step
        elements = flat.ravel() if inside is not None else np.zeros(0, np.intp)
        agent = flight.issuer
        issued = agent.by, flight.issued
        by, when = flight.by, flight.base + at
        return Touch(elements, self.gang, agent.block, by, when, False, act, issued)

    # --- reports --------------------------------------------------------------------------------

    def report(self, trouble: Trouble | None, tensor: str = "") -> None:
        """Raise or pass on what a shadow has found, of shared memory or of a tensor."""
        if trouble is None:
            return
        if trouble.severity == "error":
            raise Violation(trouble.kind, trouble.says, self._other(trouble, tensor))
        self.machine.warn(trouble.kind, trouble.says, self._other(trouble, tensor))

    def _other(self, trouble: Trouble, tensor: str) -> Step | None:
        """Find the last logged access of the other party to the same memory."""
        fallback = None
        for step in reversed(self.log):
            if step.by != trouble.other:
                continue
            if tensor:
                if _uses(step.event.stmt, tensor, writes=trouble.other_writes):
                    return step
            elif step.atoms is None:
                fallback = fallback or step
            elif step.writes == trouble.other_writes and trouble.where in step.atoms:
                return step
        return fallback


def _uses(stmt: kir.Stmt, tensor: str, *, writes: bool) -> bool:
    """Tell whether a statement writes a tensor, or reads it."""
    box = getattr(stmt, "dst" if writes else "src", None)
    return isinstance(box, kir.Box) and box.tensor.name == tensor


def _kept(agent: Agent, event: Event, fragment: kir.Fragment) -> Array:
    """Return the part of a fragment that a thread stores: what no thread before it holds."""
    values, layout = register(agent, fragment), fragment.layout
    if layout.deal is not kir.Deal.ROWS:
        return values
    threads = span(agent, event)
    every, mine = tile(layout, threads).elements, tile(stored(layout), threads).elements
    return values[np.searchsorted(every, mine)] if values.size else values


def _deal(
    agent: Agent,
    event: Event,
    buffer: kir.Buffer,
    layout: kir.Layout,
    *,
    any_lane: bool = False,
    crossed: bool = False,
) -> Deal:
    """Return how a statement deals its slot to a thread."""
    threads = span(agent, event)
    return Deal(buffer, event.index, layout, *threads, event.team.first, any_lane, crossed)


def _check_whole(stmt: kir.Load | kir.Store) -> None:
    """Refuse to move anything but a whole slot, where elements do not go row by row."""
    ref = stmt.src if isinstance(stmt, kir.Load) else stmt.dst
    if isinstance(ref, kir.Box):
        raise Violation("bounds", f"{ref.tensor.name} is accessed as it lies in memory")
    if isinstance(stmt, kir.Load) and stmt.limit is not None:
        raise Violation("bounds", "a limit is of rows as they lie, loaded one by one")


def _check_crossed(buffer: kir.Buffer, layout: kir.Layout) -> None:
    """Refuse a slot that has not the tile of a layout with its last two axes exchanged."""
    if not turns(buffer, layout):
        says = f"a slot of {buffer.shape} is no transposed tile of {layout.shape}"
        raise Violation("bounds", says)


def _check_turned(stmt: kir.Load | kir.Store, buffer: kir.Buffer, fragment: kir.Fragment) -> None:
    """Refuse what no `ldmatrix.trans` or `stmatrix.trans` moves.

    Source: PTX ISA, "ldmatrix", "stmatrix": `.trans` of `.m8n8` is of `.b16`, and a thread has two
    neighbours along the columns of a matrix whose rows lie in memory.
    """
    layout = fragment.layout
    if buffer.dtype.nbytes != 2 or (isinstance(stmt, kir.Load) and fragment.dtype != buffer.dtype):
        says = f"{fragment.dtype} and {buffer.dtype}; matrices of 16 bits alone are transposed"
        raise Violation("bounds", says)
    strips = layout.deal is kir.Deal.STRIPS and layout.folded == 1
    if not strips or layout.vector != 2 or stmt.width != 2:
        says = f"{fragment.name} is not held, by pairs of a row, as matrices are: {layout}"
        raise Violation("bounds", says)
    if buffer.shape[-1] * buffer.dtype.nbytes % MATRIX_ROW or buffer.shape[-2] % MATRIX:
        raise Violation("bounds", f"a tile of {buffer.shape} is not made of 8 x 8 elements")


def _one_thread(agent: Agent) -> None:
    if agent.mult > 1:
        raise Violation("WAW", f"{agent.mult} threads issue one copy each, to one place")
