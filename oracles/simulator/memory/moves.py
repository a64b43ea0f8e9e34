"""Statements of threads that move data: which values move, what each access is asked.

Shared memory starts as poison (bytes 0xFF: NaN, or -1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from fuser.kernel import ir as kir
from oracles.simulator.agent import Agent, Flight, Step, Violation, Warn
from oracles.simulator.machine import Machine
from oracles.simulator.memory import ops
from oracles.simulator.memory.access import Tensors, check_slot, settle_box
from oracles.simulator.memory.global_memory import Act, Touch
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.registers import nothing, register, span
from oracles.simulator.memory.shadow import LaneShadow, lane_shadow, shared_shadow
from oracles.simulator.memory.tile import Deal, tile, warp_of
from oracles.simulator.sync.clock import Index, Trouble
from oracles.simulator.unroll import Event

MATRIX_ROW = 16
"""Bytes of a row of `ldmatrix`, and of its address a divisor."""
BARRIER = -2
"""Stands for an mbarrier among the buffers through which bytes were last written."""


class Memory:
    """Memory as the CTAs see it that run together.

    Parameters
    ----------
    tensors : Tensors
        Global memory, shared with all CTAs of the launch.
    machine : Machine
        Its threads.
    scalars : mapping of str to array of no axes
        The launch's numbers, in register form.
    """

    def __init__(
        self,
        tensors: Tensors,
        machine: Machine,
        scalars: Mapping[str, Array],
        log: list[Step],
        warn: Warn,
        *,
        strict: bool,
    ) -> None:
        self.tensors = tensors
        self.geometry = tensors.geometry
        self.machine = machine
        self.gang = machine.agents[0].block
        self.scalars = scalars
        self.warn = warn
        self.checked = 0
        self.log = log
        kernel = self.geometry.kernel
        self.atoms_each = self.geometry.atoms.count
        atoms = self.atoms_each * machine.ctas
        self.shadow = shared_shadow(atoms, machine.columns.parts, strict=strict)
        self._through = np.full(atoms, -1)
        self._live = np.zeros(atoms, np.bool_)
        self._numbers = {b.name: i for i, b in enumerate(kernel.buffers)}
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
        layout = stmt.dst.layout
        lo, hi = span(agent, event)
        match stmt.src:
            case kir.Box() as box:
                flat = self.geometry.in_box(box, layout, lo, hi)
                if flat.size:
                    values = self._gather(agent, event, stmt, box, flat)
                else:
                    values = nothing(box.tensor.dtype)
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                if flat.size:
                    wide = buffer.shape[-1:] != (1,)
                    check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes if wide else 1)
                    cta = self._shared(agent, event, slot, layout, writes=False)
                    raw = self.slots[cta][buffer.name][event.index][flat]
                    values = ops.decode(buffer.dtype, raw)
                else:
                    values = nothing(buffer.dtype)
        agent.registers[stmt.dst.name] = values

    def store(self, agent: Agent, event: Event, stmt: kir.Store) -> None:
        """Write this thread's part of a fragment."""
        layout = stmt.src.layout
        lo, hi = span(agent, event)
        values = register(agent, stmt.src)
        match stmt.dst:
            case kir.Box() as box:
                flat = self.geometry.in_box(box, layout, lo, hi)
                if flat.size:
                    index, kept = self._scatter(agent, event, stmt, flat, values, Act.WRITE)
                    self.tensors.flat[box.tensor.name][index] = kept
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                if flat.size:
                    check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes)
                    cta = self._shared(agent, event, slot, layout, writes=True)
                    raw = ops.encode(buffer.dtype, values)
                    self.slots[cta][buffer.name][event.index][flat] = raw

    def atomic_add(self, agent: Agent, event: Event, stmt: kir.AtomicAdd) -> None:
        """Add this thread's part of a fragment to global memory."""
        lo, hi = span(agent, event)
        flat = self.geometry.in_box(stmt.dst, stmt.src.layout, lo, hi)
        if flat.size:
            values = register(agent, stmt.src)
            index, kept = self._scatter(agent, event, stmt, flat, values, Act.ADD)
            name, dtype = stmt.dst.tensor.name, stmt.dst.tensor.dtype
            added = self.tensors.flat[name].copy()
            np.add.at(added, index, kept)
            self.tensors.flat[name][index] = ops.round_to(dtype, added[index])

    def matrix(self, pair: tuple[Agent, Agent], event: Event, stmt: kir.Load | kir.Store) -> None:
        """Move a tile by `ldmatrix` or `stmatrix`: each element by some lane of the warp.

        Notes
        -----
        Which lane's address an element is moved through is not the lane that holds it; so the
        access is ordered with another one only if it would be for every lane.
        """
        writes = isinstance(stmt, kir.Store)
        slot, fragment = (
            (stmt.dst, stmt.src) if isinstance(stmt, kir.Store) else (stmt.src, stmt.dst)
        )
        if isinstance(slot, kir.Box) or slot.cta is not None:
            raise Violation(
                "bounds", "ldmatrix and stmatrix reach the CTA's own shared memory only"
            )
        agent, buffer, layout = pair[0], slot.buffer, fragment.layout
        check_slot(slot, event.index, MATRIX_ROW)
        warp = warp_of(span(agent, event))
        atoms = self.geometry.atoms.of_tile(buffer, event.index, layout, warp)
        atoms = atoms + agent.cta * self.atoms_each
        self.checked += 1
        lanes = [(part.by, part.now, part.clock) for part in pair]
        self.report(self.shadow.by_lanes(atoms, lanes, writes=writes))
        self.through(buffer, atoms, writes=writes)
        memory = self.slots[agent.cta][buffer.name][event.index]
        for part in pair:
            if part.mult > 1:
                self.between_lanes(part, event, buffer, layout, atoms, writes=writes, any_lane=True)
            flat = self.geometry.in_slot(slot, layout, *span(part, event))
            if isinstance(stmt, kir.Store):
                memory[flat] = ops.encode(buffer.dtype, register(part, fragment))
            else:
                part.registers[fragment.name] = ops.decode(buffer.dtype, memory[flat])
            self.log.append(Step(part.name, part.by, event, atoms, writes))

    # --- global memory --------------------------------------------------------------------------

    def _gather(
        self, agent: Agent, event: Event, stmt: kir.Load, box: kir.Box, flat: Index
    ) -> Array:
        layout = stmt.dst.layout
        index, valid = self.positions(agent, event, box, layout, stmt.width, flat)
        name = box.tensor.name
        self.checked += 1
        shadow = self.tensors.shadows.get(name)
        if shadow is not None:
            touch = self._touch(agent, index, Act.READ)
            self.report(shadow.access(touch, agent.clock))
        self.log.append(Step(agent.name, agent.by, event))
        found = self.tensors.flat[name][index]
        if valid is None:
            return found
        values = np.full(flat.size, stmt.fill, ops.REGISTER[box.tensor.dtype])
        values[valid] = found
        return values

    def _scatter(
        self,
        agent: Agent,
        event: Event,
        stmt: kir.Store | kir.AtomicAdd,
        flat: Index,
        values: Array,
        act: Act,
    ) -> tuple[Index, Array]:
        """Check a write of global memory; return where it goes and what."""
        box = stmt.dst
        assert isinstance(box, kir.Box), "of global memory"
        width = stmt.width if isinstance(stmt, kir.Store) else 1
        index, valid = self.positions(agent, event, box, stmt.src.layout, width, flat)
        self.checked += 1
        touch = self._touch(agent, index, act)
        self.report(self.tensors.shadows[box.tensor.name].access(touch, agent.clock))
        self.log.append(Step(agent.name, agent.by, event))
        kept = values if valid is None else values[valid]
        return index, ops.round_to(box.tensor.dtype, kept)

    def _touch(self, agent: Agent, index: Index, act: Act) -> Touch:
        now = agent.now
        return Touch(index, self.gang, agent.block, agent.by, now, True, act, (agent.by, now))

    def positions(
        self,
        agent: Agent,
        event: Event,
        box: kir.Box,
        layout: kir.Layout,
        width: int,
        flat: Index,
    ) -> tuple[Index, Array | None]:
        """Flat positions in the tensor, and which elements lie below the limit (None: all)."""
        view = self.geometry.views[box.tensor.name]
        below = settle_box(view, event, box, width)
        if below == box.shape:
            return np.asarray(flat + event.base), None
        valid = np.ones(flat.size, np.bool_)
        part = tile(layout, span(agent, event))
        for x, n, size in zip(part.coordinates, below, box.shape, strict=True):
            valid &= (x < n) if size > 1 else n > 0
        return flat[valid] + event.base, valid

    # --- shared memory --------------------------------------------------------------------------

    def _shared(
        self, agent: Agent, event: Event, slot: kir.Slot, layout: kir.Layout, *, writes: bool
    ) -> int:
        """Check a thread's access of a slot; return in whose shared memory it lies."""
        cta = agent.cta
        if slot.cta is not None:
            cta = self.machine.peer(agent, event.extra)
            self.machine.reach(agent, cta, event)
        lo, hi = span(agent, event)
        atoms = self.geometry.atoms.of_tile(slot.buffer, event.index, layout, (lo, hi))
        atoms = atoms + cta * self.atoms_each if cta else atoms
        touch = self.shadow.write if writes else self.shadow.read
        self.checked += 1
        self.report(touch(atoms, agent.by, agent.now, agent.clock))
        self.through(slot.buffer, atoms, writes=writes)
        if self.geometry.atoms.mixed and agent.mult > 1 and cta == agent.cta:
            self.between_lanes(agent, event, slot.buffer, layout, atoms, writes=writes)
        self.log.append(Step(agent.name, agent.by, event, atoms, writes))
        return cta

    def through(self, buffer: kir.Buffer, atoms: Index, *, writes: bool) -> None:
        """Refuse to read, through one buffer, bytes that were last written through another."""
        if not self.geometry.atoms.aliased:
            return
        if self._live[atoms].any():
            raise Violation("init", f"{buffer.name} shares bytes with an mbarrier that is in use")
        number = self._numbers[buffer.name]
        if writes:
            self._through[atoms] = number
        elif (self._through[atoms] != number).any():
            raise Violation("RAW", f"bytes of {buffer.name} were last written as another buffer")

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
            self._live[atoms], self._through[atoms] = live, BARRIER
            self.log.append(Step(agent.name, agent.by, event, atoms, True))

    def between_lanes(
        self,
        agent: Agent,
        event: Event,
        buffer: kir.Buffer,
        layout: kir.Layout,
        atoms: Index,
        *,
        writes: bool,
        any_lane: bool = False,
    ) -> None:
        """Order between the lanes that one clock stands for."""
        lo, hi = span(agent, event)
        deal = Deal(buffer, event.index, layout, lo, hi, event.first_warp, any_lane)
        how = self._deals.setdefault(deal, len(self._deals))
        if agent.by not in self._lanes:
            self._lanes[agent.by] = lane_shadow(self.atoms_each * self.machine.ctas)
        found = self._lanes[agent.by].touch(
            atoms, how, agent.now, agent.joined, writes=writes, alike=not any_lane
        )
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
        note = f"issued by {flight.issuer.name}"
        self.log.append(Step(flight.name, flight.by, flight.event, atoms, writes, note))

    # --- reports --------------------------------------------------------------------------------

    def report(self, trouble: Trouble | None) -> None:
        """Raise or pass on what a shadow has found."""
        if trouble is None:
            return
        if trouble.severity == "error":
            raise Violation(trouble.kind, trouble.says, self._other(trouble))
        self.warn(trouble.kind, trouble.says, self._other(trouble))

    def _other(self, trouble: Trouble) -> Step | None:
        """Find the last logged access of the other party to the same memory."""
        fallback = None
        for step in reversed(self.log):
            if step.by != trouble.other:
                continue
            if step.atoms is None:
                fallback = fallback or step
            elif step.writes == trouble.other_writes and trouble.where in step.atoms:
                return step
        return fallback
