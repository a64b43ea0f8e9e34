"""Data statements: which values move, and the questions each access is asked.

Shared memory starts as poison (bytes 0xFF: NaN, or -1); copy engines move their bytes when the
schedule lets them, threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fuser import kernel_ir as kir
from fuser.dtype import DType
from oracles import machine_ops
from oracles.machine_access import Tensors, check_chunks, check_copy, check_slot, settle_box
from oracles.machine_agent import READ_DONE, WRITE_DONE, Agent, Flight, Step, Violation, Warn
from oracles.machine_clock import (
    Index,
    LaneShadow,
    Touch,
    Trouble,
    lane_shadow,
    shared_shadow,
)
from oracles.machine_ops import Array
from oracles.machine_tile import Deal, tile
from oracles.machine_unroll import Event


class Memory:
    """Memory as one CTA sees it.

    Parameters
    ----------
    tensors : Tensors
        Global memory, shared with the other CTAs.
    block : int
        Number of this CTA.
    agents : int
        Components below it are threads, the others copy engines.
    scalars : mapping of str to array of no axes
        The launch's numbers, in register form.
    """

    def __init__(
        self,
        tensors: Tensors,
        block: int,
        agents: int,
        scalars: Mapping[str, Array],
        log: list[Step],
        warn: Warn,
        *,
        strict: bool,
    ) -> None:
        self.tensors = tensors
        self.geometry = tensors.geometry
        self.block = block
        self.scalars = scalars
        self.warn = warn
        self.checked = 0
        self.log = log
        kernel = self.geometry.kernel
        self._shadow = shared_shadow(self.geometry.atoms.count, agents, strict=strict)
        raw = np.full(kernel.smem_bytes, 0xFF, np.uint8)
        self._through = np.full(self.geometry.atoms.count, -1)
        self._numbers = {b.name: i for i, b in enumerate(kernel.buffers)}
        self._deals: dict[Deal, int] = {}
        self._lanes: dict[int, LaneShadow] = {}
        self._slots = {
            b.name: raw[b.offset : b.offset + b.slots * b.slot_nbytes]
            .view(machine_ops.MEMORY[b.dtype])
            .reshape(b.slots, -1)
            for b in kernel.buffers
        }

    def load(self, agent: Agent, event: Event, stmt: kir.Load) -> None:
        """Fill this thread's part of a fragment."""
        layout = stmt.dst.layout
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        match stmt.src:
            case kir.Box() as box:
                flat = self.geometry.in_box(box, layout, lo, hi)
                if flat.size:
                    values = self._gather(agent, event, stmt, box, flat, lo, hi)
                else:
                    values = _nothing(box.tensor.dtype)
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                if flat.size:
                    wide = buffer.shape[-1:] != (1,)
                    check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes if wide else 1)
                    self._shared(agent, event, buffer, layout, writes=False)
                    raw = self._slots[buffer.name][event.index][flat]
                    values = machine_ops.decode(buffer.dtype, raw)
                else:
                    values = _nothing(buffer.dtype)
        agent.registers[stmt.dst.name] = values

    def store(self, agent: Agent, event: Event, stmt: kir.Store) -> None:
        """Write this thread's part of a fragment."""
        layout = stmt.src.layout
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        values = self._register(agent, stmt.src)
        match stmt.dst:
            case kir.Box() as box:
                flat = self.geometry.in_box(box, layout, lo, hi)
                if flat.size:
                    self._scatter(agent, event, stmt, box, flat, values, lo, hi)
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                if flat.size:
                    check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes)
                    self._shared(agent, event, buffer, layout, writes=True)
                    raw = machine_ops.encode(buffer.dtype, values)
                    self._slots[buffer.name][event.index][flat] = raw

    def compute(self, agent: Agent, event: Event, stmt: kir.Compute) -> None:
        """Apply an op to this thread's part."""
        dst = stmt.dst
        args: list[Array] = []
        for arg in stmt.args:
            match arg:
                case kir.Fragment():
                    if arg.layout != dst.layout:
                        raise Violation("layout", f"{arg.name} and {dst.name} differ in layout")
                    args.append(self._register(agent, arg))
                case kir.Scalar(name):
                    args.append(self.scalars[name])
                case kir.Literal(value, dtype):
                    args.append(number(value, dtype))
        if any(arg.ndim and not arg.size for arg in args):
            agent.registers[dst.name] = _nothing(dst.dtype)
            return
        result = machine_ops.evaluate(stmt.op, dst.dtype, args)
        if result.ndim == 0:
            lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
            held = tile(dst.layout, (lo, hi)).elements.size
            result = np.full(held, result, result.dtype)
        agent.registers[dst.name] = result

    def coordinate(self, agent: Agent, event: Event, stmt: kir.Coordinate) -> None:
        """Fill a fragment with positions along an axis."""
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        part = tile(stmt.dst.layout, (lo, hi))
        positions = part.coordinates[stmt.axis] + event.origin[0]
        agent.registers[stmt.dst.name] = positions.astype(machine_ops.REGISTER[stmt.dst.dtype])

    def begin_load(self, flight: Flight, stmt: kir.TmaLoad, land: Callable[[], None]) -> None:
        """Ask what a tensor load is asked at its issue, and lay out its later steps."""
        event, box = flight.event, stmt.src
        view = self.geometry.views[box.tensor.name]
        check_copy(view, event, box, stmt.dst)
        name, atoms = stmt.dst.buffer.name, self._atoms(stmt.dst, event)
        shadow = self.tensors.shadows.get(box.tensor.name)
        if shadow is not None:
            self._report(shadow.read(self._touch(flight, box, READ_DONE), flight.start))
        self._engine(flight, stmt.dst.buffer, atoms, writes=True)
        held: list[Array] = []

        def first() -> None:
            held.append(machine_ops.encode(box.tensor.dtype, self._read_box(event, box).ravel()))
            half = held[0].size // 2
            self._slots[name][event.index][:half] = held[0][:half]

        def second() -> None:
            half = held[0].size // 2
            self._slots[name][event.index][half:] = held[0][half:]
            land()

        flight.steps = [second, first]

    def begin_store(
        self, flight: Flight, stmt: kir.TmaStore, finish: Callable[[int], None]
    ) -> None:
        """Ask what a tensor store is asked at its issue, and lay out its later steps."""
        event, box = flight.event, stmt.dst
        view = self.geometry.views[box.tensor.name]
        check_copy(view, event, box, stmt.src)
        check_chunks(view, event, box)
        buffer, atoms = stmt.src.buffer, self._atoms(stmt.src, event)
        self._engine(flight, buffer, atoms, writes=False)
        shadow = self.tensors.shadows[box.tensor.name]
        self._report(shadow.write(self._touch(flight, box, WRITE_DONE), flight.start))
        held: list[Array] = []

        def first() -> None:
            raw = self._slots[buffer.name][event.index].reshape(box.shape)
            held.append(machine_ops.decode(buffer.dtype, raw.copy()))
            finish(READ_DONE)

        def second() -> None:
            inside, here = self._clip(event, box)
            if inside is not None:
                self.tensors.shaped[box.tensor.name][inside] = held[0][here]
            finish(WRITE_DONE)

        flight.steps = [second, first]

    # --- global memory --------------------------------------------------------------------------

    def _gather(
        self,
        agent: Agent,
        event: Event,
        stmt: kir.Load,
        box: kir.Box,
        flat: Index,
        lo: int,
        hi: int,
    ) -> Array:
        index, valid = self._positions(event, box, stmt.dst.layout, stmt.width, flat, lo, hi)
        name = box.tensor.name
        self.checked += 1
        shadow = self.tensors.shadows.get(name)
        if shadow is not None:
            touch = Touch(index, self.block, agent.by, agent.now, True)
            self._report(shadow.read(touch, agent.clock))
        self.log.append(Step(agent.name, agent.by, event))
        found = self.tensors.flat[name][index]
        if valid is None:
            return found
        values = np.full(flat.size, stmt.fill, machine_ops.REGISTER[box.tensor.dtype])
        values[valid] = found
        return values

    def _scatter(
        self,
        agent: Agent,
        event: Event,
        stmt: kir.Store,
        box: kir.Box,
        flat: Index,
        values: Array,
        lo: int,
        hi: int,
    ) -> None:
        index, valid = self._positions(event, box, stmt.src.layout, stmt.width, flat, lo, hi)
        name = box.tensor.name
        self.checked += 1
        touch = Touch(index, self.block, agent.by, agent.now, True)
        self._report(self.tensors.shadows[name].write(touch, agent.clock))
        self.log.append(Step(agent.name, agent.by, event))
        kept = values if valid is None else values[valid]
        self.tensors.flat[name][index] = machine_ops.round_to(box.tensor.dtype, kept)

    def _positions(
        self,
        event: Event,
        box: kir.Box,
        layout: kir.Layout,
        width: int,
        flat: Index,
        lo: int,
        hi: int,
    ) -> tuple[Index, Array | None]:
        """Flat positions in the tensor, and which elements lie below the limit (None: all)."""
        view = self.geometry.views[box.tensor.name]
        below = settle_box(view, event, box, width)
        if below == box.shape:
            return np.asarray(flat + event.base), None
        valid = np.ones(flat.size, np.bool_)
        part = tile(layout, (lo, hi))
        for x, n, size in zip(part.coordinates, below, box.shape, strict=True):
            valid &= (x < n) if size > 1 else n > 0
        return flat[valid] + event.base, valid

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
        out = np.zeros(box.shape, machine_ops.REGISTER[box.tensor.dtype])
        inside, here = self._clip(event, box)
        if inside is not None:
            out[here] = self.tensors.shaped[box.tensor.name][inside]
        return out

    def _touch(self, flight: Flight, box: kir.Box, at: int) -> Touch:
        inside, _ = self._clip(flight.event, box)
        flat = np.zeros((), np.intp)
        steps = self.geometry.views[box.tensor.name].steps
        for part, step in zip(inside or (), steps, strict=False):
            flat = flat[..., None] + np.arange(part.start, part.stop) * step
        elements = flat.ravel() if inside is not None else np.zeros(0, np.intp)
        return Touch(elements, self.block, flight.by, flight.base + at, False)

    # --- shared memory --------------------------------------------------------------------------

    def _atoms(self, slot: kir.Slot, event: Event) -> Index:
        return self.geometry.atoms.of_slot(slot.buffer, event.index)

    def _shared(
        self,
        agent: Agent,
        event: Event,
        buffer: kir.Buffer,
        layout: kir.Layout,
        *,
        writes: bool,
    ) -> None:
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        atoms = self.geometry.atoms.of_tile(buffer, event.index, layout, (lo, hi))
        touch = self._shadow.write if writes else self._shadow.read
        self.checked += 1
        self._report(touch(atoms, agent.by, agent.now, agent.clock))
        self._alias(buffer, atoms, writes=writes)
        if self.geometry.atoms.mixed and agent.mult > 1:
            deal = Deal(buffer, event.index, layout, lo, hi, event.first_warp)
            self._between_lanes(agent, atoms, deal, writes=writes)
        self.log.append(Step(agent.name, agent.by, event, atoms, writes))

    def _alias(self, buffer: kir.Buffer, atoms: Index, *, writes: bool) -> None:
        """Refuse to read, through one buffer, bytes that were last written through another."""
        if not self.geometry.atoms.aliased:
            return
        number = self._numbers[buffer.name]
        if writes:
            self._through[atoms] = number
        elif (self._through[atoms] != number).any():
            raise Violation("alias", f"bytes of {buffer.name} were last written as another buffer")

    def _between_lanes(self, agent: Agent, atoms: Index, deal: Deal, *, writes: bool) -> None:
        """Order between the lanes that one clock stands for."""
        how = self._deals.setdefault(deal, len(self._deals))
        if agent.by not in self._lanes:
            self._lanes[agent.by] = lane_shadow(self.geometry.atoms.count)
        found = self._lanes[agent.by].touch(atoms, how, agent.now, agent.joined, writes=writes)
        deals = list(self._deals)
        for kind, other, atom in found:
            if self.geometry.atoms.lanes_differ(deals[other], deal):
                says = "two lanes of one warp touch these bytes, and no barrier joins the lanes"
                self._report(Trouble(kind, says, agent.by, kind != "war", atom))

    def _engine(self, flight: Flight, buffer: kir.Buffer, atoms: Index, *, writes: bool) -> None:
        touch = self._shadow.write if writes else self._shadow.read
        at = flight.base + (WRITE_DONE if writes else READ_DONE)
        trouble = touch(atoms, flight.by, at, flight.start)
        self.checked += 1
        self._report(trouble)
        self._alias(buffer, atoms, writes=writes)
        note = f"issued by {flight.issuer.name}"
        self.log.append(Step(flight.name, flight.by, flight.event, atoms, writes, note))

    # --- registers and reports ------------------------------------------------------------------

    def _register(self, agent: Agent, fragment: kir.Fragment) -> Array:
        if fragment.name not in agent.registers:
            raise Violation("uninitialised", f"register {fragment.name} was never written")
        return agent.registers[fragment.name]

    def _report(self, trouble: Trouble | None) -> None:
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


def _nothing(dtype: DType) -> Array:
    """Return the registers of a thread that holds no element."""
    return np.empty(0, machine_ops.REGISTER[dtype])


def number(value: float, dtype: DType) -> Array:
    """Return a number in register form."""
    return np.asarray(value).astype(machine_ops.REGISTER[dtype])
