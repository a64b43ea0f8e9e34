"""Data statements: which values move, and the questions each access is asked.

Shared memory starts as poison (bytes 0xFF: NaN, or -1); copy engines move their bytes when the
schedule lets them, threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from fuser import kernel_ir as kir
from fuser.dtype import DType
from oracles import machine_ops
from oracles.machine_access import View, check_box, check_copy, check_slot, covered
from oracles.machine_agent import READ_DONE, WRITE_DONE, Agent, Flight, Step, Violation, place
from oracles.machine_clock import GlobalShadow, Index, Touch, Trouble, shared_shadow
from oracles.machine_ops import Array
from oracles.machine_tile import Atoms, Tile, narrowed, row_major, tile
from oracles.machine_unroll import Event

Warn = Callable[[str, str, str], None]
"""Takes kind, place and text of a finding that does not end the run."""


class Geometry:
    """What stays the same over all schedules of one launch: views, tiles, atoms."""

    def __init__(self, kernel: kir.Kernel, views: Mapping[str, View]) -> None:
        self.kernel = kernel
        self.views = views
        self.atoms = Atoms(kernel)
        self.written = {
            stmt.dst.tensor.name
            for stmt in kernel.walk()
            if isinstance(stmt, kir.Store | kir.TmaStore) and isinstance(stmt.dst, kir.Box)
        }
        self.read = {
            stmt.src.tensor.name
            for stmt in kernel.walk()
            if isinstance(stmt, kir.Load | kir.TmaLoad) and isinstance(stmt.src, kir.Box)
        }
        self._tiles: dict[tuple[kir.Layout, int, int], Tile] = {}
        self._flat: dict[tuple[int, int, int], Index] = {}

    def tile(self, layout: kir.Layout, lo: int, hi: int) -> Tile:
        """Return the part of a layout that threads `lo <= t < hi` hold."""
        key = (layout, lo, hi)
        if key not in self._tiles:
            self._tiles[key] = tile(layout, (lo, hi))
        return self._tiles[key]

    def in_box(self, box: kir.Box, layout: kir.Layout, lo: int, hi: int) -> Index:
        """Flat positions, from the box's origin, of the elements those threads hold."""
        key = (id(box), lo, hi)
        if key not in self._flat:
            steps = self.views[box.tensor.name].steps
            self._flat[key] = narrowed(self.tile(layout, lo, hi), box.shape, steps)
        return self._flat[key]

    def in_slot(self, slot: kir.Slot, layout: kir.Layout, lo: int, hi: int) -> Index:
        """Flat positions within a slot of the elements those threads hold."""
        key = (id(slot), lo, hi)
        if key not in self._flat:
            shape = slot.buffer.shape
            part = self.tile(layout, lo, hi)
            self._flat[key] = narrowed(part, shape, row_major(shape))
        return self._flat[key]


class Tensors:
    """Global memory of one launch: arrays, and who touched what in any CTA."""

    def __init__(self, geometry: Geometry, arrays: Mapping[str, Array]) -> None:
        self.geometry = geometry
        self.flat = {name: array.reshape(-1) for name, array in arrays.items()}
        self.shaped = arrays
        self.shadows = {
            name: GlobalShadow(
                np.zeros(geometry.views[name].size, np.bool_), name in geometry.read, [], []
            )
            for name in {*geometry.written, *geometry.kernel.outputs}
        }


class Memory:
    """Memory as one CTA sees it.

    Parameters
    ----------
    tensors : Tensors
        Global memory, shared with the other CTAs.
    block : int
        Number of this CTA.
    agents : list of Agent
        Components below their number are threads, the others copy engines.
    copies : int
        Copies that the CTA will issue.
    scalars : mapping of str to array of no axes
        The launch's numbers, in register form.
    """

    def __init__(
        self,
        tensors: Tensors,
        block: int,
        agents: int,
        copies: int,
        scalars: Mapping[str, Array],
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
        self.log: list[Step] = []
        kernel = self.geometry.kernel
        self._shadow = shared_shadow(
            self.geometry.atoms.count, agents, agents + copies, strict=strict
        )
        raw = np.full(kernel.smem_bytes, 0xFF, np.uint8)
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
                values = self._gather(agent, event, stmt, box, flat, lo, hi)
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                wide = buffer.shape[-1:] != (1,)
                check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes if wide else 1)
                if flat.size:
                    atoms = self.geometry.atoms.of_tile(buffer, event.index, layout, (lo, hi))
                    self._shared(agent, event, atoms, writes=False)
                values = machine_ops.decode(
                    buffer.dtype, self._slots[buffer.name][event.index][flat]
                )
        agent.registers[stmt.dst.name] = values

    def store(self, agent: Agent, event: Event, stmt: kir.Store) -> None:
        """Write this thread's part of a fragment."""
        layout = stmt.src.layout
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        values = self._register(agent, stmt.src)
        match stmt.dst:
            case kir.Box() as box:
                flat = self.geometry.in_box(box, layout, lo, hi)
                self._scatter(agent, event, stmt, box, flat, values, lo, hi)
            case kir.Slot(buffer) as slot:
                flat = self.geometry.in_slot(slot, layout, lo, hi)
                check_slot(slot, event.index, stmt.width * buffer.dtype.nbytes)
                if flat.size:
                    atoms = self.geometry.atoms.of_tile(buffer, event.index, layout, (lo, hi))
                    self._shared(agent, event, atoms, writes=True)
                self._slots[buffer.name][event.index][flat] = machine_ops.encode(
                    buffer.dtype, values
                )

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
        result = machine_ops.evaluate(stmt.op, dst.dtype, args)
        if result.ndim == 0:
            lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
            held = self.geometry.tile(dst.layout, lo, hi).elements.size
            result = np.full(held, result, result.dtype)
        agent.registers[dst.name] = result

    def coordinate(self, agent: Agent, event: Event, stmt: kir.Coordinate) -> None:
        """Fill a fragment with positions along an axis."""
        lo, hi = agent.lo - 32 * event.first_warp, agent.hi - 32 * event.first_warp
        part = self.geometry.tile(stmt.dst.layout, lo, hi)
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
            self._report(shadow.read(self._touch(flight, box, READ_DONE), flight.start), flight)
        self._engine(flight, atoms, writes=True)
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
        check_copy(self.geometry.views[box.tensor.name], event, box, stmt.src)
        buffer, atoms = stmt.src.buffer, self._atoms(stmt.src, event)
        self._engine(flight, atoms, writes=False)
        shadow = self.tensors.shadows[box.tensor.name]
        self._report(shadow.write(self._touch(flight, box, WRITE_DONE), flight.start), flight)
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
            self._report(shadow.read(touch, agent.clock), agent, event)
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
        self._report(self.tensors.shadows[name].write(touch, agent.clock), agent, event)
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
        if not event.checked:
            check_box(view, event, box, width)
            event.checked = True
        base = sum(o * s for o, s in zip(event.origin, view.steps, strict=True))
        below = covered(event, box.shape)
        if below == box.shape:
            return np.asarray(flat + base), None
        valid = np.ones(flat.size, np.bool_)
        part = self.geometry.tile(layout, lo, hi)
        for x, n, size in zip(part.coordinates, below, box.shape, strict=True):
            valid &= (x < n) if size > 1 else n > 0
        return flat[valid] + base, valid

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
        return Touch(elements, self.block, flight.by, at, False)

    # --- shared memory --------------------------------------------------------------------------

    def _atoms(self, slot: kir.Slot, event: Event) -> Index:
        return self.geometry.atoms.of_slot(slot.buffer, event.index)

    def _shared(self, agent: Agent, event: Event, atoms: Index, *, writes: bool) -> None:
        touch = self._shadow.write if writes else self._shadow.read
        trouble = touch(atoms, agent.by, agent.now, agent.clock)
        self.checked += 1
        self._report(trouble, agent, event)
        self.log.append(Step(agent.name, agent.by, event, atoms, writes))

    def _engine(self, flight: Flight, atoms: Index, *, writes: bool) -> None:
        touch = self._shadow.write if writes else self._shadow.read
        at = WRITE_DONE if writes else READ_DONE
        trouble = touch(atoms, flight.by, at, flight.start)
        self.checked += 1
        self._report(trouble, flight)
        note = f"issued by {flight.issuer.name}"
        self.log.append(Step(flight.name, flight.by, flight.event, atoms, writes, note))

    # --- registers and reports ------------------------------------------------------------------

    def _register(self, agent: Agent, fragment: kir.Fragment) -> Array:
        if fragment.name not in agent.registers:
            raise Violation("uninitialised", f"register {fragment.name} was never written")
        return agent.registers[fragment.name]

    def _report(
        self, trouble: Trouble | None, actor: Agent | Flight, event: Event | None = None
    ) -> None:
        if trouble is None:
            return
        here = event if event is not None else actor.event if isinstance(actor, Flight) else None
        assert here is not None, "an agent's access names its event"
        other = self._other(trouble)
        if trouble.severity == "error":
            raise Violation(trouble.kind, trouble.says, other)
        against = f" against {place(other.name, other.event)}" if other else ""
        self.warn(trouble.kind, f"{place(actor.name, here)}{against}", trouble.says)

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


def number(value: float, dtype: DType) -> Array:
    """Return a number in register form."""
    return np.asarray(value).astype(machine_ops.REGISTER[dtype])


def nbytes(box: kir.Box) -> int:
    """Bytes that a copy of a box counts, clipped or not."""
    return prod(box.shape) * box.tensor.dtype.nbytes
