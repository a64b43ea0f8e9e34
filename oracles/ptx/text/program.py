"""A function as basic blocks: plain ones compiled to Python, and gates, one instruction each.

A gate is an instruction that other threads or an engine may have to do with: it is executed by the
machine, for the threads that stand before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

import numpy as np

from oracles.ptx.text.calls import inlined
from oracles.ptx.text.grammar import (
    Function,
    Instruction,
    Label,
    Module,
    PtxError,
    Sym,
    Variable,
    Vec,
    parse,
)
from oracles.ptx.text.translate import (
    CARRY,
    LOCAL,
    STORED,
    Lines,
    UnsupportedError,
    carries,
    local,
    read,
    registers,
    written,
)

GATES = frozenset(
    [
        "bar",
        "barrier",
        "mbarrier",
        "shfl",
        "vote",
        "match",
        "redux",
        "activemask",
        "elect",
        "ldmatrix",
        "stmatrix",
        "mma",
        "wgmma",
        "cp",
        "fence",
        "membar",
        "atom",
        "red",
        "setmaxnreg",
        "griddepcontrol",
        "nanosleep",
        "trap",
        "st_async",
        "tensormap",
        "exit",
        "ret",
        "discard",
        "multimem",
        "wmma",
        "cluster",
    ]
)
STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})
_LEAVE = ("ret", "exit")


def asserts(ins: Instruction) -> bool:
    """Tell whether an instruction is the call with which an assertion fails, and the launch ends.

    Source: CUDA programming guide, "Assertion".
    """
    return ins.name == "call" and Sym("__assertfail") in ins.operands


def is_gate(ins: Instruction) -> bool:
    """Tell whether an instruction is executed by the machine."""
    if ins.name == "call":
        return asserts(ins)
    if ins.name in ("ld", "st"):
        return bool(STRONG & {*ins.mods}) or "async" in ins.mods
    return ins.name in GATES


def rewrites(ins: Instruction) -> bool:
    """Tell whether an instruction has to do with tensor maps that a kernel writes."""
    return ins.name == "tensormap" or "tensormap::generic" in ins.mods


RESTRICTED = "sync_restrict::shared::cta"
"""Modifier of a fence that releases the CTA's own shared memory only."""


def restricts(ins: Instruction) -> bool:
    """Tell whether an instruction is a fence of the CTA's own shared memory only."""
    return RESTRICTED in ins.mods


@dataclass(slots=True, eq=False)
class Block:
    """Instructions that threads run in one go; a gate has one, behind which `after` comes.

    At the end threads go to `target` where the condition holds (all, if there is none), else to
    `after`; a number that is no block's ends the thread.
    """

    index: int
    body: list[Instruction] = field(default_factory=list)
    gate: Instruction | None = None
    branch: Instruction | None = None
    after: int = -1
    target: int = -1
    live: int = 0
    run: Callable[..., Any] | None = None

    @property
    def line(self) -> int:
        """Line of the first instruction."""
        ins = self.gate or (self.body[0] if self.body else self.branch)
        return ins.line if ins else 0


class Program:
    """A kernel, ready to run."""

    def __init__(self, module: Module, function: Function) -> None:
        self.function, self.module = function, module
        self._instructions = [one for one in function.body if isinstance(one, Instruction)]
        self._read = {id(one): read(one) for one in self._instructions}
        self._written = {id(one): written(one) for one in self._instructions}
        self.types = function.registers
        if any(carries(one) for one in self.instructions()):
            self.types = self.types | {CARRY: "pred"}
        self.params: dict[str, int] = {}
        at = 0
        for one in function.params:
            at = -(-at // one.align) * one.align
            self.params[one.name] = at
            at += one.nbytes
        self.param_bytes = at
        self.blocks = _blocks(function)
        self.approximate: set[str] = set()
        self._lines: dict[int, Lines] = {}
        self.names = self._names()
        """Every register that it names."""
        self._bits = {name: 1 << n for n, name in enumerate(self.names)}
        self._live()
        self.unsupported = sorted(self._unsupported())
        self.gates = {id(block.gate): block.gate for block in self.blocks if block.gate}
        self.tensor_registers = self._tensor_registers()
        """Registers that a wgmma reads or writes, numbered."""

    def variables(self) -> list[Variable]:
        """Return all variables that the function may name."""
        return [*self.module.variables.values(), *self.function.variables]

    @property
    def rewrites(self) -> bool:
        """Whether the kernel has to do with tensor maps that kernels write."""
        return any(rewrites(ins) for ins in self.instructions())

    @property
    def restricts(self) -> bool:
        """Whether the kernel has releases of shared memory only."""
        return any(restricts(ins) for ins in self.instructions())

    def _names(self) -> list[str]:
        found: dict[str, None] = dict.fromkeys(self.types)
        for ins in self._instructions:
            ops = (*ins.operands, *((ins.guard,) if ins.guard else ()))
            found |= dict.fromkeys(name for op in ops for name in registers(op))
        return list(found)

    @cached_property
    def by_kind(self) -> dict[str, list[str]]:
        """Registers by how they are stored."""
        found: dict[str, list[str]] = {}
        for name, kind in self.types.items():
            found.setdefault(STORED[kind], []).append(name)
        return found

    @property
    def register_bytes(self) -> int:
        """Bytes of the registers of a thread."""
        return sum(int(STORED[kind][1:]) for kind in self.types.values())

    def mentions(self, name: str) -> bool:
        """Tell whether some instruction names a register."""
        return name in self._bits

    def instructions(self) -> list[Instruction]:
        """Return every instruction."""
        return self._instructions

    def _mask(self, names: Iterable[str]) -> int:
        out = 0
        for name in names:
            out |= self._bits[name]
        return out

    def _live(self) -> None:
        """Find what is read behind each block, to a fixpoint."""
        uses, defs = [], []
        for block in self.blocks:
            use = define = 0
            for ins in block.body:
                use |= self._mask(self._read[id(ins)]) & ~define
                if ins.guard is None:
                    define |= self._mask(self._written[id(ins)])
            for one in (block.gate, block.branch):
                if one is not None:
                    ops = (*one.operands, *((one.guard,) if one.guard else ()))
                    use |= self._mask(n for op in ops for n in registers(op)) & ~define
            uses.append(use)
            defs.append(define)
        into = [0] * (len(self.blocks) + 1)
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                out = 0
                if block.after >= 0:
                    out |= into[block.after]
                if block.target >= 0:
                    out |= into[block.target]
                block.live = out
                new = uses[block.index] | (out & ~defs[block.index])
                if new != into[block.index]:
                    into[block.index] = new
                    changed = True

    def _unsupported(self) -> set[str]:
        found = set()
        for block in self.blocks:
            lines = Lines(self.types, self.params)
            whole = True
            for ins in block.body:
                try:
                    lines.add(ins)
                except UnsupportedError as error:
                    found.add(str(error))
                    whole = False
            if whole and block.body:
                self._lines[block.index] = lines
            self.approximate |= lines.approximate
            if block.branch is not None and block.branch.name != "bra":
                found.add(block.branch.opcode)
        return found

    def _tensor_registers(self) -> dict[str, int]:
        found: dict[str, None] = {}
        for ins in self.instructions():
            if ins.name == "wgmma" and ins.mods[0] == "mma_async":
                for op in ins.operands[:2]:
                    if isinstance(op, Vec):
                        found |= dict.fromkeys(registers(op))
        return {name: n for n, name in enumerate(found)}

    def compile(self, block: Block) -> Callable[..., Any]:
        """Return the Python function of a block: ``run(R, g, full, m)``, the branch's condition."""
        lines = self._lines.pop(block.index, None)
        if lines is None:
            lines = Lines(self.types, self.params)
            for ins in block.body:
                lines.add(ins)
        used: dict[str, None] = {}
        defined: set[str] = set()
        for ins in block.body:
            used |= dict.fromkeys(n for n in self._read[id(ins)] if n not in defined)
            if ins.guard is None:
                defined.update(self._written[id(ins)])
        made = {n for ins in block.body for n in self._written[id(ins)]}
        condition = "None"
        if block.branch is not None and block.branch.guard is not None:
            guard = block.branch.guard
            used |= dict.fromkeys(n for n in registers(guard) if n not in made)
            condition = lines.value(guard, "pred")
        head = ["def run(R, g, full, m):"]
        tensor = self.tensor_registers
        if tensor:
            new = np.array(sorted(tensor[n] for n in made if n in tensor), np.intp)
            all_ = {n for ins in block.body for n in self._read[id(ins)]} | made | {*used}
            old = np.array(sorted(tensor[n] for n in all_ if n in tensor), np.intp)
            if len(old):
                head.append(f" m.touch(g, {lines.const(old)}, {lines.const(new)})")
        kept = [n for n in made if self._bits[n] & block.live]
        key = {n: f"r{i}" for i, n in enumerate(dict.fromkeys((*used, *kept)))}
        head += [f" {local(n)} = R[{key[n]}] if full else R[{key[n]}][g]" for n in used]
        tail = []
        if kept:
            tail += [" if full:"]
            for n in kept:
                kind = STORED[self.types[n]]
                tail.append(f"  R[{key[n]}] = m.own({local(n)}, {kind}, {lines.fresh[n]})")
            tail += [" else:", *(f"  R[{key[n]}][g] = {local(n)}" for n in kept)]
        source = "\n".join([*head, *(f" {one}" for one in lines.lines), *tail])
        source += f"\n return {condition}"
        space = lines.space | {short: n for n, short in key.items()}
        exec(_code(renamed(source)), space)
        block.run = space["run"]
        return block.run


def _blocks(function: Function) -> list[Block]:
    """Cut a body at labels, branches and gates; the last block is where threads end."""
    blocks: list[Block] = []
    labels: dict[str, int] = {}
    current: Block | None = None

    def fresh() -> Block:
        blocks.append(Block(len(blocks)))
        if len(blocks) > 1 and blocks[-2].after == -1 and not _ends(blocks[-2]):
            blocks[-2].after = blocks[-1].index
        return blocks[-1]

    for ins in function.body:
        if isinstance(ins, Label):
            current = fresh()
            labels[ins.name] = current.index
        elif is_gate(ins):
            if current is None or current.body or current.branch or current.gate:
                current = fresh()
            current.gate = ins
            current = None
        elif ins.name in ("bra", "call", "brx"):
            if current is None:
                current = fresh()
            current.branch = ins
            current = None
        else:
            if current is None:
                current = fresh()
            current.body.append(ins)
    if blocks and not _ends(blocks[-1]) and blocks[-1].after == -1:
        fresh()  # threads that fall off the end
    if blocks and blocks[-1].gate is None and blocks[-1].branch is None:
        blocks[-1].after = -1
    for block in blocks:
        if block.branch is not None and block.branch.operands:
            (target,) = block.branch.operands[-1:]
            if not isinstance(target, Sym) or target.name not in labels:
                if block.branch.name == "bra":
                    raise PtxError(f"line {block.branch.line}: no label {target}")
                continue
            block.target = labels[target.name]
    return blocks


def _ends(block: Block) -> bool:
    """Tell whether nothing falls through a block."""
    ins = block.gate or block.branch
    if ins is None or ins.guard is not None:
        return False
    return ins.name in (*_LEAVE, "bra")


@lru_cache(maxsize=1 << 12)
def _code(source: str) -> CodeType:
    """Compile the Python of a block; three of four blocks are those of others (measured)."""
    return compile(source, "<block>", "exec")


def renamed(source: str) -> str:
    """Return the Python of a block with registers named by the order in which they come."""
    names: dict[str, str] = {}
    return LOCAL.sub(lambda found: names.setdefault(found[0], f"v{len(names)}"), source)


@lru_cache(maxsize=16)
def _parsed(text: str) -> Module:
    return parse(text)


@lru_cache(maxsize=16)
def prepare(text: str, name: str = "") -> Program:
    """Return the program of a kernel; the only entry where no name is given."""
    module = _parsed(text)
    entries = {n: f for n, f in module.functions.items() if f.entry}
    if name:
        if name not in entries:
            raise PtxError(f"no entry {name!r}; there are {', '.join(entries) or 'none'}")
        return Program(module, inlined(module, entries[name]))
    if len(entries) != 1:
        raise PtxError(f"{len(entries)} entries ({', '.join(entries)}); name one in the launch")
    return Program(module, inlined(module, next(iter(entries.values()))))
