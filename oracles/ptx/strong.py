"""Strong operations: loads and stores with a scope, atomics, reductions; fences between threads.

A release leaves what its thread knows at the address, an acquire that reads it takes it along; a
fence makes both of relaxed operations behind or before it.

Source: PTX ISA, "Memory Consistency Model" (release and acquire patterns, morally strong
operations), "atom", "red", "ld", "st", "membar / fence".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oracles.ptx.machine import Ints, Machine
from oracles.ptx.memory import Space
from oracles.ptx.text import arithmetic as arith
from oracles.ptx.text.grammar import Instruction, Vec
from oracles.ptx.text.program import Block
from oracles.ptx.text.translate import NAMESPACE, VALUE, UnsupportedError, access

SCOPES = ("cta", "cluster", "gpu", "sys")


@dataclass(frozen=True, slots=True)
class Released:
    """What was left at an address: a row, and whom it is for."""

    row: int
    scope: str
    cta: int
    line: int


@dataclass(slots=True, eq=False)
class Strong:
    """State of strong operations of a launch."""

    m: Machine
    at: dict[tuple[str, int], tuple[Released, ...]] = field(default_factory=dict)
    fences: dict[int, Released] = field(default_factory=dict)
    observed: dict[int, list[Released]] = field(default_factory=dict)
    last: dict[int, tuple[int, int, int, Any]] = field(default_factory=dict)

    def rows(self) -> Iterable[int]:
        """Return the rows that are held."""
        yield from (one.row for many in self.at.values() for one in many)
        yield from (one.row for one in self.fences.values())
        yield from (one.row for many in self.observed.values() for one in many)

    # --- release and acquire ---------------------------------------------------------------------

    def reaches(self, left: Released, scope: str, cta: int) -> bool:
        """Tell whether two scopes include each other's threads."""
        cluster = self.m.cluster
        for one in (left.scope, scope):
            if one == "cta" and left.cta != cta:
                return False
            if one == "cluster" and left.cta // cluster != cta // cluster:
                return False
        return True

    def take(self, thread: int, left: Released, scope: str) -> None:
        """Let a thread know what was left."""
        cta = int(self.m.cta[thread])
        if self.reaches(left, scope, cta):
            self.m.clocks.acquire(np.array([thread]), left.row)
        elif left.row:
            self.m.find(
                "scope",
                f"{self.m.name(thread)} reads what CTA {left.cta} released at line {left.line}: "
                f"released at .{left.scope}, acquired at .{scope}",
            )

    def leaves(self, thread: int, order: str, scope: str) -> Released | None:
        """Return what a write leaves behind."""
        m = self.m
        if order in ("release", "acq_rel"):
            row = m.clocks.released(np.array([thread]))
            return Released(row, scope, int(m.cta[thread]), m.line)
        return self.fences.get(thread)

    def _with(self, held: tuple[Released, ...], mine: Released) -> tuple[Released, ...]:
        """Add to what was left at an address: read-modify-writes hand on what was there before.

        What reaches all threads of the device is one row; other scopes are kept apart.
        """
        if mine.scope not in ("gpu", "sys"):
            return (*held, mine)
        same = [one for one in held if one.scope == mine.scope]
        row = mine.row
        for one in same:
            row = self.m.clocks.joined(one.row, row)
        return (*(one for one in held if one.scope != mine.scope), replace(mine, row=row))

    def fenced(self, threads: Ints) -> int:
        """Return a row with what fences of threads let their relaxed arrivals release."""
        row = 0
        for thread in threads.tolist():
            left = self.fences.get(thread)
            if left is not None and left.scope != "cta":
                row = self.m.clocks.joined(row, left.row)
        return row

    def restricted(self, g: Ints) -> None:
        """Execute fence.release.sync_restrict: as a fence, of a CTA's own shared memory only."""
        m = self.m
        m.note(g, "fence", "cluster", "shared")
        for thread in g.tolist():
            row = m.clocks.restricted(np.array([thread]))
            left = self.fences.get(thread)
            if left is not None and left.scope != "cta":
                row = m.clocks.joined(row, left.row)
            self.fences[thread] = Released(row, "cluster", int(m.cta[thread]), m.line)

    def fence(self, g: Ints, scope: str) -> None:
        """Order what threads did before with what they do later."""
        m = self.m
        m.note(g, "fence", scope)
        for thread in g.tolist():
            for left in self.observed.pop(thread, ()):
                self.take(thread, left, scope)
        for thread in g.tolist():
            row = m.clocks.released(np.array([thread]))
            self.fences[thread] = Released(row, scope, int(m.cta[thread]), m.line)

    # --- instructions ----------------------------------------------------------------------------

    def space(self, ins: Instruction) -> tuple[str, Space]:
        """Return the space of an instruction."""
        shared = any(mod.startswith("shared") for mod in ins.mods)
        return ("shared", self.m.shared) if shared else ("global", self.m.glob)

    def place(self, ins: Instruction, g: Ints, op: Any, nbytes: int) -> tuple[Space, Ints, Ints]:
        """Return the space and the places of an operand, and which are good."""
        m, address = self.m, self.m.where(op, g)
        name, space = self.space(ins)
        if name == "global" and not {"global", "shared"} & {x.split("::")[0] for x in ins.mods}:
            parts = m.split_generic(address, g)
            if len(parts) == 1 and parts[0][0] == "shared":
                name, space, address = "shared", m.shared, parts[0][2]
        place = m.place_shared if name == "shared" else m.place_global
        where, ok = place(g, address, nbytes)
        return space, where, ok

    def load(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute a strong load; who reads the same again waits until something has changed."""
        m = self.m
        _, kind, many, _ = access(ins)
        order, scope = _order(ins)
        size = NAMESPACE[VALUE[kind]]().itemsize
        dst, src = ins.operands
        space, where, ok = self.place(ins, g, src, size * many)
        view = space.view[VALUE[kind]]
        got = [view[where // size + i] for i in range(many)]
        again = np.zeros(len(g), bool)
        for n, thread in enumerate(g.tolist()):
            seen = (block.index, int(where[n]), m.progress, tuple(one[n].item() for one in got))
            again[n] = self.last.get(thread) == seen and order != "volatile"
            self.last[thread] = seen
        m.poll(
            block,
            g[again],
            f"another value than {[one[again][:1].tolist() for one in got]} "
            f"at {space.name} {int(where[0]):#x}",
        )
        keep = ~again
        g, where, ok = g[keep], where[keep], ok[keep]
        if not len(g):
            return
        if order == "volatile":
            space.read(space.granules(where[ok], size * many), g[ok])
        else:
            space.read(space.granules(where[ok], size * many), g[ok], strong=True, keep=False)
        items = dst.items if isinstance(dst, Vec) else (dst,)
        for one, value in zip(items, got, strict=True):
            m.set(one, g, value[keep])
        for n, thread in enumerate(g.tolist()):
            for left in self.at.get((space.name, int(where[n])), ()):
                if order == "acquire":
                    self.take(thread, left, scope)
                else:
                    self.observed.setdefault(thread, []).append(left)
        m.go(block.after, g)

    def store(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute a strong store."""
        m = self.m
        _, kind, many, _ = access(ins)
        order, scope = _order(ins)
        size = NAMESPACE[VALUE[kind]]().itemsize
        dst, src = ins.operands
        space, where, ok = self.place(ins, g, dst, size * many)
        g_ok, where = g[ok], where[ok]
        strong = order != "volatile"
        space.write(space.granules(where, size * many), g_ok, strong=strong)
        if strong and space is m.glob and kind in ("s32", "u32"):
            m.note(g_ok, "store", order, scope, values=(m.value(src, g_ok, kind),))
        items = src.items if isinstance(src, Vec) else (src,)
        view = space.view[VALUE[kind]]
        for i, one in enumerate(items):
            view[where // size + i] = m.value(one, g_ok, kind)
        m.progress += 1
        for thread, at in zip(g_ok.tolist(), where.tolist(), strict=True):
            left = self.leaves(thread, order, scope)
            self.at[(space.name, at)] = (left,) if left else ()
        m.go(block.after, g)

    def atomic(self, block: Block, ins: Instruction, g: Ints) -> None:
        """Execute atom or red, one thread after the other, in an order drawn by the seed."""
        m = self.m
        kind = ins.mods[-1]
        op = next(mod for mod in ins.mods if mod in _OPS)
        order, scope = _order(ins)
        returns = ins.name == "atom"
        src, *operands = ins.operands[1:] if returns else ins.operands
        value = VALUE[kind]
        packed = [op_.items if isinstance(op_, Vec) else (op_,) for op_ in operands]
        size = NAMESPACE[value]().itemsize
        many = len(packed[0])
        space, where, ok = self.place(ins, g, src, size * many)
        given = [[m.value(one, g, kind) for one in ops] for ops in packed]
        space.write(space.granules(where[ok], size * many), g[ok], strong=True)
        view = space.view[value]
        turns = np.flatnonzero(ok).tolist()
        if m.seed:
            m.random.shuffle(turns)
        before = np.zeros(len(g), view.dtype)
        changed = False
        for n in turns:
            at = int(where[n]) // size
            for i in range(many):
                old = view[at + i]
                if i == 0:
                    before[n] = old
                new = _applied(op, kind, old, [ops[i][n] for ops in given])
                changed |= bool(new != old)
                view[at + i] = new
            thread, key = int(g[n]), (space.name, int(where[n]))
            held = self.at.get(key, ())
            for left in held:
                if order in ("acquire", "acq_rel"):
                    self.take(thread, left, scope)
                elif ins.name == "atom":
                    self.observed.setdefault(thread, []).append(left)
            mine = self.leaves(thread, order, scope)
            if mine:
                self.at[key] = self._with(held, mine)
        m.progress += changed
        if op == "inc":
            m.note(g, "increment", order)
            if m.log is not None:
                m.log.returned(before)
        if returns:
            m.set(ins.operands[0], g, before)
        m.go(block.after, g)


_OPS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")


def _applied(op: str, kind: str, old: Any, given: list[Any]) -> Any:
    x = given[0]
    if kind in ("f16", "bf16"):
        inn, out = (
            (arith.from_f16, arith.to_f16) if kind == "f16" else (arith.from_bf16, arith.to_bf16)
        )
        return out(inn(old) + inn(x))
    if kind in ("f16x2", "bf16x2"):
        inn, out = (
            (arith.from_f16, arith.to_f16) if kind == "f16x2" else (arith.from_bf16, arith.to_bf16)
        )
        return arith.paired(lambda a, b: a + b, inn, out, old, x)
    match op:
        case "add":
            return old + x
        case "min":
            return min(old, x)
        case "max":
            return max(old, x)
        case "inc":
            return old.dtype.type(0) if old >= x else old + old.dtype.type(1)
        case "dec":
            return x if old == 0 or old > x else old - old.dtype.type(1)
        case "and":
            return old & x
        case "or":
            return old | x
        case "xor":
            return old ^ x
        case "exch":
            return x
        case _:
            return given[1] if old == x else old


def _order(ins: Instruction) -> tuple[str, str]:
    """Return order and scope of an instruction."""
    known = ("relaxed", "acquire", "release", "acq_rel", "volatile")
    order = next((mod for mod in ins.mods if mod in known), "relaxed")
    return order, next((mod for mod in ins.mods if mod in SCOPES), "gpu")


def check(ins: Instruction) -> None:
    """Raise UnsupportedError for a form that is not modelled."""
    if ins.name in ("ld", "st"):
        if access(ins)[0] not in ("global", "generic", "shared", "shared::cta", "shared::cluster"):
            raise UnsupportedError(ins.opcode)
        return
    known = {*_OPS, *SCOPES, "relaxed", "acquire", "release", "acq_rel", "global", "shared"}
    known |= {"shared::cta", "shared::cluster", "noftz", "v2", "v4"}
    if ins.mods[-1] not in VALUE or any(mod not in known for mod in ins.mods[:-1]):
        raise UnsupportedError(ins.opcode)
    if ins.mods[-1] in ("f16", "bf16", "f16x2", "bf16x2") and "add" not in ins.mods:
        raise UnsupportedError(ins.opcode)
