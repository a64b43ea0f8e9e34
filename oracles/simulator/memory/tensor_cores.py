"""Tensor cores: what wgmma and mma compute, and which registers they use until when.

Notes
-----
A wgmma is one copy in flight per warp: its commit and its await are the warp's own.  Those of one
warp finish in order.

Source: PTX ISA, "wgmma.mma_async", "wgmma.fence", "wgmma.wait_group", "mma".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.machine import (
    GROUPS,
    READ_DONE,
    WRITE_DONE,
    Agent,
    Flight,
    Machine,
    Step,
    Violation,
)
from oracles.simulator.memory import ops
from oracles.simulator.memory.access import ATOM, check_slot
from oracles.simulator.memory.moves import Memory
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.registers import span
from oracles.simulator.memory.tile import STRIP, halves, tile, warpgroup
from oracles.simulator.sync.clock import AWAITED_PARTS, SHARED_SEEN, Clock, Index, join, join_cause
from oracles.simulator.sync.joins import Joins, whole_groups
from oracles.simulator.unroll import Event

OPERAND_NBYTES = 16
"""Bytes that divide the shared address of a matrix descriptor."""


@dataclass(frozen=True, slots=True)
class Part:
    """How the two agents of a warp hold their rows of a tile: the places of their registers."""

    rows: Index
    columns: int
    places: tuple[Index, Index]


class Tensorcores:
    """The tensor cores of the CTAs that run together."""

    def __init__(self, machine: Machine, joins: Joins, memory: Memory) -> None:
        self.machine = machine
        self.joins = joins
        self.memory = memory
        self.geometry = memory.geometry
        self._strict = memory.shadow.strict
        self._parts: dict[int, list[Flight]] = {}
        self._products: dict[tuple[int, int, int, int], int] = {}
        self._counts: dict[tuple[int, int, int], int] = {}
        self._named: dict[int, tuple[Names, Names]] = {}
        """Fragments that statements read and write, by the identity of these."""

    # --- registers ------------------------------------------------------------------------------

    def access(self, agent: Agent, stmt: kir.Stmt) -> None:
        """Check an ordinary access of registers against the wgmmas in flight."""
        if id(stmt) not in self._named:
            self._named[id(stmt)] = _registers(stmt)
        reads, writes = self._named[id(stmt)]
        team = agent.team
        team.touched.update(reads, writes)
        if not team.groups.open and not team.groups.closed:
            return
        for flight in team.groups.left:
            wgmma = flight.event.stmt
            assert isinstance(wgmma, kir.Wgmma), "groups of wgmma hold nothing else"
            step = Step(flight.name, flight.by, flight.event)
            acc = wgmma.acc.name
            if acc in reads:
                raise Violation("RAW", f"{acc} is read, but no wait covers its wgmma", step)
            if acc in writes:
                raise Violation("WAW", f"{acc} is written, but no wait covers its wgmma", step)
            a = wgmma.a
            if isinstance(a, kir.Fragment) and a.name in writes:
                says = f"{a.name} is written, but no wait covers the wgmma that reads it"
                raise Violation("WAR", says, step)

    def fence(self, pair: tuple[Agent, Agent]) -> None:
        """Order earlier register accesses before the next wgmma."""
        pair[0].team.fenced = True
        pair[0].team.touched.clear()

    # --- wgmma ----------------------------------------------------------------------------------

    def wgmma(self, agent: Agent, event: Event, stmt: kir.Wgmma) -> bool:
        """Start this warp's part of a wgmma."""
        whole_groups(event, self.machine.kernel, "wgmma", full=True)
        _dealt_to_all(event, stmt.acc)
        other = self.joins.converge(agent, event, "wgmma")
        if other is None:
            return False
        self._check_registers(agent, event, stmt)
        flight = self.machine.issue(agent, event, shared=True)
        join(flight.start, other.clock)
        flight.start[SHARED_SEEN] = _fenced_by_all(agent, other)
        flight.product = self._number(agent, event)
        agent.team.groups.open.append(flight)
        for slot in stmt.columns:
            check_slot(slot, event.other, max(OPERAND_NBYTES, ATOM * slot.buffer.swizzle))
            touched = self.memory.whole(slot, event.other, agent.cta)
            self.memory.engine(flight, slot.buffer, touched, READ_DONE, writes=False)
        if isinstance(stmt.a, kir.Slot):
            check_slot(stmt.a, event.index, max(OPERAND_NBYTES, ATOM * stmt.a.buffer.swizzle))
            layout = self.geometry.fixed.left_operand(stmt, stmt.a.buffer)
            mine = warpgroup(span(agent, event))
            touched = self.geometry.atoms.of_tile(stmt.a.buffer, event.index, layout, mine)
            touched = touched + agent.cta * self.memory.atoms_each
            self.memory.engine(flight, stmt.a.buffer, touched, READ_DONE, writes=False)

        def finish() -> None:
            self._multiply(agent, other, event, stmt)
            self.memory.log.append(Step(flight.name, flight.by, event, note="finished"))
            agent.team.queue.pop(0)
            self.machine.finish(flight, WRITE_DONE)

        flight.steps = [finish]
        agent.team.queue.append(flight)
        self._parts.setdefault(flight.product, []).append(flight)
        self._begin(flight)
        self.machine.wake(other, passed=True)
        return True

    def _begin(self, flight: Flight) -> None:
        """Let a wgmma move, once it is the oldest in all four warps.

        Under the default policy the four parts finish together, so that one warp may arrive for all
        of them.  The strict policy does not rely on that.
        """
        parts = [flight] if self._strict else self._parts[flight.product]
        if not self._strict and len(parts) < kir.WARPGROUP // kir.WARP:
            return
        if any(part.issuer.team.queue[0] is not part for part in parts):
            return
        steps = [part.steps[0] for part in parts]

        def finish() -> None:
            for step in steps:
                step()
            for part in parts:
                if part.issuer.team.queue:
                    self._begin(part.issuer.team.queue[0])

        lead = parts[0]
        if lead not in self.machine.flights:
            lead.steps = [finish]
            self.machine.flights.append(lead)

    def _check_registers(self, agent: Agent, event: Event, stmt: kir.Wgmma) -> None:
        team, acc, a = agent.team, stmt.acc, stmt.a
        used = (acc, a) if isinstance(a, kir.Fragment) else (acc,)
        touched = [f.name for f in used if f.name in team.touched]
        if not team.fenced or touched:
            why = f"registers of {', '.join(touched)} were accessed" if touched else "nothing ran"
            raise Violation("fence", f"{why} and no wgmma_fence stands before this wgmma")
        flying = {}
        for flight in team.groups.left:
            if isinstance(flight.event.stmt, kir.Wgmma):
                flying[flight.event.stmt.acc.name] = flight
        if isinstance(a, kir.Fragment):
            if a.name in flying:
                raise Violation("RAW", f"{a.name} is read, but no wait covers its wgmma")
            if a.name not in agent.registers:
                raise Violation("RAW", f"register {a.name} was never written")
        earlier = flying.get(acc.name)
        if earlier is not None:
            before = earlier.event.stmt
            if isinstance(before, kir.Wgmma) and before.acc.layout != acc.layout:
                raise Violation("fence", f"{acc.name} is in flight under another shape")
        elif event.extra and acc.name not in agent.registers:
            raise Violation("RAW", f"accumulator {acc.name} was never written")

    def _number(self, agent: Agent, event: Event) -> int:
        """Return a number of this wgmma, the same in the four warps of a warpgroup."""
        warp = (agent.cta, agent.warp, event.line)
        count = self._counts[warp] = self._counts.get(warp, 0) + 1
        key = (agent.cta, agent.warp // 4, event.line, count)
        return self._products.setdefault(key, len(self._products) + 1)

    def await_groups(self, agent: Agent, event: Event, keep: int) -> bool:
        """Wait until all but the latest `keep` groups of a warp have finished."""
        other = self.joins.converge(agent, event, "wgmma.wait_group")
        if other is None:
            return False
        groups = agent.team.groups
        old = groups.older(keep, read_only=False)
        if any(f.done < WRITE_DONE for f in old):
            why = f"{GROUPS} {old[0].name} and others"
            self.machine.block(agent, why)
            other.blocked = why
            return False
        for flight in old:
            agent.sees(flight, WRITE_DONE)
            other.sees(flight, WRITE_DONE)
            for part in () if self._strict else self._parts[flight.product]:
                for waiting in (agent, other):
                    join_cause(waiting.clock, part.start)
                    waiting.clock[AWAITED_PARTS, part.by] = part.base + READ_DONE
        groups.forget(keep, read_only=False)
        self.machine.wake(other, passed=True)
        return True

    # --- values ---------------------------------------------------------------------------------

    def mma(self, pair: tuple[Agent, Agent], event: Event, stmt: kir.Mma) -> None:
        """Multiply the registers of a warp."""
        pair = _in_order(*pair)
        b: Array = np.zeros(prod(stmt.b.layout.shape), np.float32)
        for part in pair:
            held = tile(stmt.b.layout, span(part, event)).elements
            b[held] = _held(part, stmt.b, held.size)
        b = ops.factor(stmt.b.dtype, b.reshape(stmt.b.layout.shape[-2:]))
        a = ops.factor(stmt.a.dtype, self._rows(pair, event, stmt.a))
        self._add(pair, event, stmt.acc, ops.multiplied(a, b.T), plus=True)

    def _multiply(self, agent: Agent, other: Agent, event: Event, stmt: kir.Wgmma) -> None:
        pair = _in_order(agent, other)
        part = _part(stmt.acc.layout, pair[0].warp - event.team.first)
        if isinstance(stmt.a, kir.Slot):
            buffer = stmt.a.buffer
            raw = self.memory.elements(agent.cta, buffer, event.index)
            raw = raw.reshape(buffer.shape[-2:])
            raw = raw[:, part.rows].T if stmt.a_transposed else raw[part.rows]
            a = ops.factor(buffer.dtype, ops.decode(buffer.dtype, raw))
        else:
            a = ops.factor(stmt.a.dtype, self._rows(pair, event, stmt.a))
        parts = []
        for slot in stmt.columns:
            buffer = slot.buffer
            raw = self.memory.elements(agent.cta, buffer, event.other)
            raw = raw.reshape(buffer.shape[-2:])
            b = ops.factor(buffer.dtype, ops.decode(buffer.dtype, raw))
            parts.append(b if stmt.b_transposed else b.T)
        product = ops.multiplied(a, np.concatenate(parts, axis=1))
        self._add(pair, event, stmt.acc, product, plus=event.extra != 0)

    def _add(
        self,
        pair: tuple[Agent, Agent],
        event: Event,
        acc: kir.Fragment,
        product: Array,
        *,
        plus: bool,
    ) -> None:
        flat = product.ravel()
        part = _part(acc.layout, pair[0].warp - event.team.first)
        for agent, places in zip(pair, part.places, strict=True):
            before = _held(agent, acc, places.size) if plus else None
            agent.registers[acc.name] = ops.total(acc.dtype, flat[places], before)

    def _rows(self, pair: tuple[Agent, Agent], event: Event, fragment: kir.Fragment) -> Array:
        """Gather the rows of a fragment that a warp holds."""
        part = _part(fragment.layout, pair[0].warp - event.team.first)
        out = np.zeros(part.rows.size * part.columns, np.float32)
        for agent, places in zip(pair, part.places, strict=True):
            out[places] = _held(agent, fragment, places.size)
        return out.reshape(part.rows.size, part.columns)


@lru_cache(maxsize=1024)
def _part(layout: kir.Layout, warp: int) -> Part:
    """Return how a warp, counted in its role, holds a tile."""
    rows, columns = layout.shape[-2:]
    every = np.arange(rows)
    mine = every[(every // STRIP) % (layout.threads // kir.WARP) == warp]
    local = np.full(rows, -1)
    local[mine] = np.arange(mine.size)
    places = []
    for threads in halves(warp):
        x, y = tile(layout, threads).coordinates[-2:]
        places.append(np.asarray(local[x] * columns + y, np.intp))
    return Part(mine, columns, (places[0], places[1]))


def _dealt_to_all(event: Event, acc: kir.Fragment) -> None:
    """Refuse an accumulator of which some warps of the role hold nothing."""
    threads = kir.WARP * event.team.warps
    if acc.layout.threads != threads:
        says = f"{acc.name} is dealt to {acc.layout.threads} threads, {threads} execute the wgmma"
        raise Violation("collective", says)


def _in_order(agent: Agent, other: Agent) -> tuple[Agent, Agent]:
    return (agent, other) if agent.lo < other.lo else (other, agent)


def _fenced_by_all(agent: Agent, other: Agent) -> Clock:
    """Return what every lane has fenced for a wgmma, what each wrote by itself alone."""
    seen: Clock = np.minimum(agent.clock[SHARED_SEEN], other.clock[SHARED_SEEN])
    for lane in (agent, other):
        own = [lane.by, *(f.by for f in lane.issued)]
        seen[own] = lane.clock[SHARED_SEEN, own]
    return seen


def _held(agent: Agent, fragment: kir.Fragment, size: int) -> Array:
    values = agent.registers.get(fragment.name)
    if values is None or values.size != size:
        raise Violation("RAW", f"register {fragment.name} was never written in this layout")
    return values


Names = frozenset[str]


def _registers(stmt: kir.Stmt) -> tuple[Names, Names]:
    """Return the names of what a statement reads and writes in registers in an ordinary way."""
    reads, writes = _fragments(stmt)
    return frozenset(f.name for f in reads), frozenset(f.name for f in writes)


def _fragments(
    stmt: kir.Stmt,
) -> tuple[tuple[kir.Fragment, ...], tuple[kir.Fragment, ...]]:
    """Return the fragments that a statement reads and writes in an ordinary way."""
    match stmt:
        case kir.Load(dst) | kir.Coordinate(dst):
            return (), (dst,)
        case kir.Store(_, src) | kir.AtomicAdd(_, src) | kir.StAsync(_, src):
            return (src,), ()
        case kir.Compute(dst, _, args):
            return tuple(a for a in args if isinstance(a, kir.Fragment)), (dst,)
        case kir.Slice(dst, src) | kir.Unpack(dst, src) | kir.Reduce(dst, src):
            return (src,), (dst,)
        case kir.Scan(dst, src, _, start):
            return (src, start), (dst,)
        case kir.Gather(dst, _, index):
            return index, (dst,)
        case kir.Mma(acc, a, b):
            return (acc, a, b), (acc,)
        case _:
            return (), ()
