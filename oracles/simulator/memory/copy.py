"""Copies in flight: tensor loads, stores and reductions, and cp.async.

A copy is asked what it needs at its issue, and moves its bytes when the schedule lets it, in
two steps where that can be seen.

Source: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async".
"""

from __future__ import annotations

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.agent import READ_DONE, WRITE_DONE, Agent, Flight, Step, Violation
from oracles.simulator.machine import Machine
from oracles.simulator.memory import ops
from oracles.simulator.memory.access import check_chunks, check_copy, check_slot
from oracles.simulator.memory.global_memory import Act, Touch
from oracles.simulator.memory.moves import Memory
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.registers import span
from oracles.simulator.sync.clock import Index
from oracles.simulator.sync.mbarriers import Phases
from oracles.simulator.unroll import Event


class Copies:
    """The copy engines of the CTAs that run together."""

    def __init__(self, machine: Machine, phases: Phases, memory: Memory) -> None:
        self.machine = machine
        self.phases = phases
        self.memory = memory
        self.geometry = memory.geometry
        self.tensors = memory.tensors

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
            self.phases.use(agent, self.phases.barrier(stmt.barrier, event.slot, cta))
        private = stmt.src.tensor.name not in self.tensors.shadows
        for cta in targets:
            flight = self.machine.issue(
                agent, event, WRITE_DONE, generic=False, cta=cta, shared=private
            )
            self._begin_load(flight, stmt)
            self.machine.flights.append(flight)

    def _begin_load(self, flight: Flight, stmt: kir.TmaLoad) -> None:
        event, box, cta = flight.event, stmt.src, flight.cta
        view = self.geometry.views[box.tensor.name]
        check_copy(view, event, box, stmt.dst)
        buffer, atoms = stmt.dst.buffer, self._atoms(stmt.dst, event.index, cta)
        shadow = self.tensors.shadows.get(box.tensor.name)
        if shadow is not None:
            touch = self._touch(flight, box, READ_DONE, Act.READ)
            self.memory.report(shadow.access(touch, flight.start))
        self.memory.engine(flight, buffer, atoms, WRITE_DONE, writes=True)
        place = self.memory.slots[cta][buffer.name][event.index]
        held: list[Array] = []

        def first() -> None:
            held.append(ops.encode(box.tensor.dtype, self._read_box(event, box).ravel()))
            half = held[0].size // 2
            place[:half] = held[0][:half]

        def second() -> None:
            half = held[0].size // 2
            place[half:] = held[0][half:]
            barrier = self.phases.barrier(stmt.barrier, event.slot, cta)
            self.phases.complete(flight, barrier, buffer.slot_nbytes)
            self._log(flight, barrier.state)

        flight.steps = [second, first]

    def tma_store(self, agent: Agent, event: Event, stmt: kir.TmaStore | kir.TmaReduce) -> None:
        """Start a tensor store or reduction."""
        _one_thread(agent)
        name = stmt.dst.tensor.name
        seen_by_others = name in self.geometry.read or isinstance(stmt, kir.TmaReduce)
        flight = self.machine.issue(
            agent,
            event,
            WRITE_DONE if seen_by_others else READ_DONE,
            generic=False,
            cta=agent.cta,
            shared=not seen_by_others,
        )
        agent.bulk.open.append(flight)
        box = stmt.dst
        view = self.geometry.views[name]
        check_copy(view, event, box, stmt.src)
        check_chunks(view, event, box)
        buffer, atoms = stmt.src.buffer, self._atoms(stmt.src, event.index, agent.cta)
        self.memory.engine(flight, buffer, atoms, READ_DONE, writes=False)
        adds = isinstance(stmt, kir.TmaReduce)
        touch = self._touch(flight, box, WRITE_DONE, Act.REDUCE if adds else Act.WRITE)
        self.memory.report(self.tensors.shadows[name].access(touch, flight.start))
        held: list[Array] = []

        def first() -> None:
            raw = self.memory.slots[agent.cta][buffer.name][event.index].reshape(box.shape)
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

        flight.steps = [second, first]
        self.machine.flights.append(flight)

    # --- cp.async -------------------------------------------------------------------------------

    def cp_async(self, agent: Agent, event: Event, stmt: kir.CpAsync) -> None:
        """Start the copies of this thread's elements."""
        lo, hi = span(agent, event)
        box, buffer, layout = stmt.src, stmt.dst.buffer, stmt.layout
        flat = self.geometry.in_box(box, layout, lo, hi)
        if not flat.size:
            return
        nbytes = stmt.width * buffer.dtype.nbytes
        if nbytes not in (4, 8, 16) or layout.vector % stmt.width:
            raise Violation("bounds", f"cp.async copies 4, 8 or 16 bytes, not {nbytes}")
        check_slot(stmt.dst, event.index, nbytes)
        index, valid = self.memory.positions(agent, event, box, layout, stmt.width, flat)
        name = box.tensor.name
        shadow = self.tensors.shadows.get(name)
        flight = self.machine.issue(
            agent, event, WRITE_DONE, generic=True, cta=agent.cta, shared=shadow is None
        )
        agent.copies.open.append(flight)
        agent.issued.append(flight)
        if shadow is not None:
            at, issued = flight.base + READ_DONE, (agent.by, flight.issued)
            touch = Touch(
                index, self.memory.gang, agent.block, flight.by, at, True, Act.READ, issued
            )
            self.memory.report(shadow.access(touch, flight.start))
        atoms = self.geometry.atoms.of_tile(buffer, event.index, layout, (lo, hi))
        atoms = atoms + agent.cta * self.memory.atoms_each
        self.memory.engine(flight, buffer, atoms, WRITE_DONE, writes=True)
        if self.geometry.atoms.mixed and agent.mult > 1:
            self.memory.between_lanes(agent, event, buffer, layout, atoms, writes=True)
        inside = self.geometry.in_slot(stmt.dst, layout, lo, hi)

        def finish() -> None:
            values = np.zeros(flat.size, ops.REGISTER[box.tensor.dtype])
            values[slice(None) if valid is None else valid] = self.tensors.flat[name][index]
            place = self.memory.slots[agent.cta][buffer.name][event.index]
            place[inside] = ops.encode(buffer.dtype, values)
            self._log(flight, "finished")
            self.machine.finish(flight, WRITE_DONE)

        flight.steps = [finish]
        self.machine.flights.append(flight)

    def arrive_after(self, agent: Agent, event: Event, stmt: kir.CpAsyncMBarrierArrive) -> None:
        """Let this thread's copies arrive on a barrier when they are over."""
        barrier = self.phases.barrier(stmt.barrier, event.slot, agent.cta)
        self.phases.use(agent, barrier)
        if not stmt.noinc:
            barrier.pending += agent.mult
        flight = self.machine.issue(
            agent, event, WRITE_DONE, generic=True, cta=agent.cta, shared=True
        )
        copies = list(agent.issued)
        for copy in copies:
            self.machine.columns.parts.published[copy.by] = True
        agent.issued.clear()
        agent.issued += [copy for copy in copies if copy.done < WRITE_DONE]
        flight.waits_for = [copy for copy in copies if copy.done < WRITE_DONE]

        def arrive() -> None:
            self.phases.arrive_for(flight, barrier, agent.mult, copies)
            self._log(flight, barrier.state)

        flight.steps = [arrive]
        self.machine.flights.append(flight)

    def awaited(self, agent: Agent, flights: list[Flight]) -> None:
        """Note that a thread has waited for its cp.async; its lanes see their own copies."""
        for flight in flights:
            agent.sees(flight, WRITE_DONE)
            stmt = flight.event.stmt
            if self.geometry.atoms.mixed and agent.mult > 1 and isinstance(stmt, kir.CpAsync):
                threads = span(agent, flight.event)
                atoms = self.geometry.atoms.of_tile(
                    stmt.dst.buffer, flight.event.index, stmt.layout, threads
                )
                atoms = atoms + agent.cta * self.memory.atoms_each
                self.memory.between_lanes(
                    agent, flight.event, stmt.dst.buffer, stmt.layout, atoms, writes=True
                )

    # --- boxes ----------------------------------------------------------------------------------

    def _atoms(self, slot: kir.Slot, index: int, cta: int) -> Index:
        atoms = self.geometry.atoms.of_slot(slot.buffer, index)
        return atoms + cta * self.memory.atoms_each if cta else atoms

    def _log(self, flight: Flight, note: str) -> None:
        self.memory.log.append(Step(flight.name, flight.by, flight.event, note=note))

    def _clip(
        self, event: Event, box: kir.Box
    ) -> tuple[tuple[slice, ...] | None, tuple[slice, ...]]:
        """Return the part of a box inside its tensor, as slices of the tensor and of the tile."""
        extents = self.geometry.views[box.tensor.name].extents
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

    def _touch(self, flight: Flight, box: kir.Box, at: int, act: Act) -> Touch:
        inside, _ = self._clip(flight.event, box)
        flat = np.zeros((), np.intp)
        steps = self.geometry.views[box.tensor.name].steps
        for part, step in zip(inside or (), steps, strict=False):
            flat = flat[..., None] + np.arange(part.start, part.stop) * step
        elements = flat.ravel() if inside is not None else np.zeros(0, np.intp)
        agent = flight.issuer
        issued = agent.by, flight.issued
        by, when = flight.by, flight.base + at
        return Touch(elements, self.memory.gang, agent.block, by, when, False, act, issued)


def _one_thread(agent: Agent) -> None:
    if agent.mult > 1:
        raise Violation("WAW", f"{agent.mult} threads issue one copy each, to one place")
