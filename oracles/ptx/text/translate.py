"""Instructions without order -> lines of Python on vectors of threads.

A basic block becomes one function: registers that live longer than the block are read from the
register file at its beginning and written back at its end; all others are local names.

Source: PTX ISA, "Instruction Set", each instruction under its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from oracles.ptx.text import arithmetic
from oracles.ptx.text.approximate import Approximate
from oracles.ptx.text.grammar import (
    SIZES,
    Address,
    Imm,
    Instruction,
    Not,
    Operand,
    Pair,
    Reg,
    Sym,
    Vec,
    floats,
)

STORED = {"pred": "b1", "b8": "u2", "u8": "u2", "s8": "u2", "b16": "u2", "u16": "u2", "s16": "u2"}
STORED |= {"f16": "u2", "bf16": "u2", "b32": "u4", "u32": "u4", "s32": "u4", "f16x2": "u4"}
STORED |= {"bf16x2": "u4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "u8", "f64": "f8"}
"""How the register file stores registers of each type."""

VALUE = {"pred": "b1", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2"}
VALUE |= {"f16": "u2", "bf16": "u2", "b32": "u4", "u32": "u4", "s32": "i4", "f16x2": "u4"}
VALUE |= {"bf16x2": "u4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8"}
VALUE |= {"tf32": "f4"}
"""How instructions see values of each type."""

ROUND = ("rn", "rz", "rm", "rp")
WHOLE = ("rni", "rzi", "rmi", "rpi")
WEAK_SPACES = ("global", "shared", "local", "param", "const", "shared::cta", "shared::cluster")

EXACT = {"rcp": "1.0 / {x}", "sqrt": "np.sqrt({x})"}
"""Functions that are rounded like a sum, where they are not approximate."""

NAMESPACE: dict[str, Any] = {"np": np, "A": arithmetic}
NAMESPACE |= {k: np.dtype(k).type for k in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")}
NAMESPACE |= {"f4": np.float32, "f8": np.float64, "b1": np.bool_, "f2": np.float16}

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_UNORDERED = {"equ": ("!=", True), "neu": ("!=", False), "ltu": (">=", True), "leu": (">", True)}
_UNORDERED |= {"gtu": ("<=", True), "geu": ("<", True)}


_UNSIGNED = {"s32": "u32", "s64": "u64"}
"""Integers whose sums, differences and lower halves of products have the bits of unsigned ones,
as which registers store them."""

CARRY = "%CC.CF"
"""The carry flag, as a register."""
CARRIED = ("addc", "subc", "madc")
"""Instructions that read it; those with `.cc` write it."""


LOCAL = re.compile(r"""(?<![\w$%'"])v_\w+""")
"""The Python name of a register, where it does not stand in quotes."""


class UnsupportedError(Exception):
    """An instruction that is not modelled, by its name."""


@lru_cache(maxsize=1 << 14)
def local(name: str) -> str:
    """Return the Python name of a register."""
    return "v_" + re.sub(r"\W", "_", name.removeprefix("%"))


def registers(operand: Operand) -> Iterator[str]:
    """Yield the registers of an operand."""
    match operand:
        case Reg(name):
            yield name
        case Not(reg):
            yield reg.name
        case Vec(items):
            for item in items:
                yield from registers(item)
        case Pair(first, second):
            yield from registers(first)
            yield from registers(second)
        case Address(base, _, coords):
            yield from registers(base)
            for one in coords:
                yield from registers(one)
        case Imm() | Sym():
            pass


def written(ins: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction without order writes."""
    if ins.name in ("st", "bra", "prefetch", "prefetchu", "applypriority", "discard"):
        return ()
    flag = (CARRY,) if "cc" in ins.mods else ()
    return (*registers(ins.operands[0]), *flag) if ins.operands else ()


def read(ins: Instruction) -> tuple[str, ...]:
    """Return those that it reads; a guarded one keeps what it does not write."""
    made = written(ins)
    first = () if not ins.operands else tuple(registers(ins.operands[0]))
    ops = ins.operands if not made or isinstance(ins.operands[0], Address) else ins.operands[1:]
    found = [name for op in ops for name in registers(op)]
    if ins.guard is not None:
        found += [*registers(ins.guard), *first, *made]
    if ins.name in CARRIED:
        found.append(CARRY)
    return tuple(found)


def carries(ins: Instruction) -> bool:
    """Tell whether an instruction reads or writes the carry flag."""
    return ins.name in CARRIED or (ins.name in ("add", "sub", "mad") and "cc" in ins.mods)


class Lines:
    """The lines of one block."""

    def __init__(self, types: dict[str, str], params: dict[str, int]) -> None:
        self.types, self.params = types, params
        self.lines: list[str] = []
        self.space = dict(NAMESPACE)
        self.fresh: dict[str, bool] = {}
        self.temps = 0
        self.approximate: set[str] = set()

    def const(self, value: Any) -> str:
        """Return the name of a constant."""
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    def temp(self, expr: str) -> str:
        """Give an expression a name."""
        self.temps += 1
        self.lines.append(f"t{self.temps} = {expr}")
        return f"t{self.temps}"

    def stored(self, name: str) -> str:
        """Return how a register is stored."""
        if name in self.types:
            return STORED[self.types[name]]
        return "u8" if "64" in name or name == "%globaltimer" else "u4"

    def value(self, op: Operand, kind: str) -> str:
        """Return an operand as a value of a type."""
        want = VALUE[kind]
        match op:
            case Reg(name):
                return _seen(local(name), self.stored(name), want)
            case Not(reg):
                return f"~{local(reg.name)}"
            case Imm(bits, "int"):
                if want in ("f4", "f8"):
                    return self.const(NAMESPACE[want](bits))
                if want == "b1":
                    return self.const(np.bool_(bits))
                size = int(want[1])
                return self.const(np.array(bits % (1 << 8 * size), f"u{size}").view(want)[()])
            case Imm(bits, own):
                if (want == "f4" and own == "f64") or want == "f8":
                    return self.const(NAMESPACE[want](floats(op)))
                size = int(want[1])
                return self.const(np.array(bits % (1 << 8 * size), f"u{size}").view(want)[()])
            case Sym(name):
                if name in self.params:
                    found = self.const(np.uint64(self.params[name]))
                else:
                    found = f"m.symbol({name!r})"
                return _seen(found, "u8", want)
            case _:
                raise UnsupportedError(f"operand {op}")

    def put(
        self, op: Operand, expr: str, kind: str, guard: str | None, *, fresh: bool = True
    ) -> None:
        """Assign a value of a type to a destination."""
        if isinstance(op, Sym) and op.name == "_":
            return
        if not isinstance(op, Reg):
            raise UnsupportedError(f"destination {op}")
        name, own, stored = local(op.name), VALUE[kind], self.stored(op.name)
        expr = _widened(expr, own, stored)
        if guard:
            expr, fresh = f"np.where({guard}, {expr}, {name})", True
        self.lines.append(f"{name} = {expr}")
        self.fresh[op.name] = fresh

    def address(self, op: Operand) -> str:
        """Return an address as 64-bit integers."""
        assert isinstance(op, Address)
        match op.base:
            case Reg(name):
                base = local(name)
                if self.stored(name) != "u8":
                    base = f"{base}.astype(u8)"
            case _:
                base = self.value(op.base, "u64")
        if op.offset:
            return f"({base} + {self.const(np.uint64(op.offset % (1 << 64)))})"
        return base

    # --- instructions ----------------------------------------------------------------------------

    def add(self, ins: Instruction) -> None:
        """Append the lines of one instruction; UnsupportedError by its name."""
        guard = None
        if ins.guard is not None:
            guard = self.value(ins.guard, "pred")
        found: Callable[[Instruction, str | None], None] | None = getattr(
            self, f"_{ins.name}", None
        )
        if found is None:
            raise UnsupportedError(ins.opcode)
        try:
            found(ins, guard)
        except (KeyError, IndexError, AssertionError) as error:
            raise UnsupportedError(ins.opcode) from error

    def _only(self, ins: Instruction, *known: str) -> tuple[str, ...]:
        """Return the modifiers but for the type; UnsupportedError if one is not known."""
        for mod in ins.mods[:-1]:
            if mod not in known:
                raise UnsupportedError(ins.opcode)
        return ins.mods[:-1]

    def _mov(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind, (dst, src) = ins.mods[-1], ins.operands
        if isinstance(src, Vec):
            size = SIZES[kind] // len(src.items)
            part = f"b{8 * size}"
            terms = [
                f"({self.value(one, part)}.astype(u{SIZES[kind]}) << "
                f"{self.const(np.uint64(8 * size * i))}.astype(u{SIZES[kind]}))"
                for i, one in enumerate(src.items)
            ]
            self.put(dst, "(" + " | ".join(terms) + ")", f"b{8 * SIZES[kind]}", guard)
        elif isinstance(dst, Vec):
            size = SIZES[kind] // len(dst.items)
            whole = self.temp(self.value(src, f"b{8 * SIZES[kind]}"))
            for i, one in enumerate(dst.items):
                shift = self.const(NAMESPACE[f"u{SIZES[kind]}"](8 * size * i))
                self.put(one, f"({whole} >> {shift}).astype(u{size})", f"b{8 * size}", guard)
        else:
            self.put(dst, self.value(src, kind), kind, guard, fresh=not isinstance(src, Reg))

    def _cvta(self, ins: Instruction, guard: str | None) -> None:
        dst, src = ins.operands
        space = next(m for m in ins.mods if m in WEAK_SPACES)
        wide = ins.mods[-1]
        value = self.value(src, wide)
        if space in ("global", "const"):
            self.put(dst, value, wide, guard, fresh=False)
            return
        window = f"m.{space.split('::')[0]}_window"
        sign = "-" if "to" in ins.mods else "+"
        self.put(dst, f"({value} {sign} {window})", wide, guard)

    def _packed(self, ins: Instruction, op: str, guard: str | None) -> bool:
        """Append an operation on 16-bit floats; tell whether it is one."""
        kind = ins.mods[-1]
        if kind not in ("f16", "bf16", "f16x2", "bf16x2"):
            return False
        wide = kind.startswith("b")
        inn = "A.from_bf16" if wide else "A.from_f16"
        out = "A.to_bf16" if wide else "A.to_f16"
        args = ", ".join(self.value(one, kind) for one in ins.operands[1:])
        names = "abc"[: len(ins.operands) - 1]
        fun = f"(lambda {', '.join(names)}: {op})"
        if kind.endswith("x2"):
            self.put(ins.operands[0], f"A.paired({fun}, {inn}, {out}, {args})", kind, guard)
        else:
            given = ", ".join(f"{inn}({self.value(one, kind)})" for one in ins.operands[1:])
            self.put(ins.operands[0], f"{out}({fun}({given}))", kind, guard)
        return True

    def _with_carry(self, ins: Instruction, x: str, y: str, guard: str | None) -> None:
        """Append a sum or difference of integers with the carry flag, read or written."""
        bits = f"b{8 * SIZES[ins.mods[-1]]}"
        given = self.value(Reg(CARRY), "pred") if ins.name in CARRIED else self.const(np.bool_(0))
        name = "borrowed" if ins.name.startswith("sub") else "carried"
        both = self.temp(f"A.{name}({x}.view({VALUE[bits]}), {y}.view({VALUE[bits]}), {given})")
        self.put(ins.operands[0], f"{both}[0]", bits, guard)
        if "cc" in ins.mods:
            self.put(Reg(CARRY), f"{both}[1]", "pred", guard)

    def _addc(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins, "cc")
        x, y = (self.value(one, ins.mods[-1]) for one in ins.operands[1:])
        self._with_carry(ins, x, y, guard)

    _subc = _addc

    def _madc(self, ins: Instruction, guard: str | None) -> None:
        product, kind = self._product(ins, ins.operands[1], ins.operands[2])
        self._with_carry(ins, product, self.value(ins.operands[3], kind), guard)

    def _arithmetic(self, ins: Instruction, symbol: str, guard: str | None) -> None:
        kind = ins.mods[-1]
        dst, a, b = ins.operands
        if carries(ins):
            self._addc(ins, guard)
            return
        if kind in ("f32", "f64"):
            mods = self._only(ins, *ROUND, "ftz", "sat")
            mode = next((m for m in mods if m in ROUND), "rn")
            x, y = self.value(a, kind), self.value(b, kind)
            if "ftz" in mods:
                x, y = f"A.flushed({x})", f"A.flushed({y})"
            expr = f"({x} {symbol} {y})"
            if mode != "rn":
                expr = f"A.binary({ins.name!r}, {x}, {y}, {mode!r})"
            self.put(dst, _finished(expr, mods), kind, guard)
        elif not self._packed(ins, f"a {symbol} b", guard):
            self._only(ins)
            kind = _UNSIGNED.get(kind, kind)
            self.put(dst, f"({self.value(a, kind)} {symbol} {self.value(b, kind)})", kind, guard)

    def _add(self, ins: Instruction, guard: str | None) -> None:
        self._arithmetic(ins, "+", guard)

    def _sub(self, ins: Instruction, guard: str | None) -> None:
        self._arithmetic(ins, "-", guard)

    def _mul(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        if kind[0] == "f" or kind.startswith("bf"):
            self._arithmetic(ins, "*", guard)
            return
        expr, result = self._product(ins, ins.operands[1], ins.operands[2])
        self.put(ins.operands[0], expr, result, guard)

    def _product(self, ins: Instruction, a: Operand, b: Operand) -> tuple[str, str]:
        """Return an integer product and its type."""
        kind, mods = ins.mods[-1], self._only(ins, "lo", "hi", "wide", "cc")
        kind = _UNSIGNED.get(kind, kind) if "lo" in mods else kind
        x, y = self.value(a, kind), self.value(b, kind)
        if "wide" in mods:
            wide = f"{kind[0]}{2 * SIZES[kind] * 8}"
            return f"({x}.astype({VALUE[wide]}) * {y}.astype({VALUE[wide]}))", wide
        if "hi" in mods:
            return f"A.high({x}, {y})", kind
        return f"({x} * {y})", kind

    def _mad(self, ins: Instruction, guard: str | None) -> None:
        dst, a, b, c = ins.operands
        if ins.mods[-1] in ("f32", "f64"):
            self._fma(ins, guard)
            return
        if carries(ins):
            self._madc(ins, guard)
            return
        expr, kind = self._product(ins, a, b)
        self.put(dst, f"({expr} + {self.value(c, kind)})", kind, guard)

    def _fma(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        if self._packed(ins, "A.fma_half(a, b, c)", guard):
            if {*ins.mods[:-1]} != {"rn"}:
                raise UnsupportedError(ins.opcode)
            return
        mods = self._only(ins, *ROUND, "ftz", "sat")
        mode = next(m for m in mods if m in ROUND)
        args = [self.value(one, kind) for one in ins.operands[1:]]
        if "ftz" in mods:
            args = [f"A.flushed({one})" for one in args]
        self.put(
            ins.operands[0], _finished(f"A.fma({', '.join(args)}, {mode!r})", mods), kind, guard
        )

    def _div(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        dst, a, b = ins.operands
        x, y = self.value(a, kind), self.value(b, kind)
        if kind not in ("f32", "f64"):
            self._only(ins)
            self.put(dst, f"A.divide({x}, {y})", kind, guard)
            return
        mods = self._only(ins, *ROUND, "ftz", "approx", "full")
        if {"approx", "full"} & {*mods}:
            self._near(ins, (x, y), guard)
            return
        mode = next((m for m in mods if m in ROUND), "rn")
        expr = f"({x} / {y})" if mode == "rn" else f"A.binary('div', {x}, {y}, {mode!r})"
        self.put(dst, _finished(expr, mods), kind, guard)

    def _rem(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        x, y = (self.value(one, kind) for one in ins.operands[1:])
        self.put(ins.operands[0], f"A.remainder({x}, {y})", kind, guard)

    def _function(self, ins: Instruction, guard: str | None) -> None:
        kind, mods = ins.mods[-1], self._only(ins, "approx", "ftz", *ROUND)
        x = self.value(ins.operands[1], kind)
        if kind not in ("f32", "f64"):
            raise UnsupportedError(ins.opcode)
        if "approx" in mods:
            self._near(ins, (x,), guard)
            return
        if next((m for m in mods if m in ROUND), "rn") != "rn":
            raise UnsupportedError(ins.opcode)
        if "ftz" in mods:
            x = f"A.flushed({x})"
        expr = EXACT[ins.name].format(x=f"np.asarray({x}).astype(f8)")
        if kind == "f32":
            expr = f"({expr}).astype(f4)"
        self.put(ins.operands[0], _finished(expr, mods), kind, guard)

    def _near(self, ins: Instruction, operands: tuple[str, ...], guard: str | None) -> None:
        self.approximate.add(ins.opcode)
        what = self.const(Approximate(ins.opcode))
        self.put(ins.operands[0], f"m.near({what}, {', '.join(operands)})", ins.mods[-1], guard)

    _rcp = _rsqrt = _sqrt = _ex2 = _lg2 = _sin = _cos = _tanh = _function

    def _abs(self, ins: Instruction, guard: str | None) -> None:
        if not self._packed(ins, "np.abs(a)", guard):
            mods = self._only(ins, "ftz")
            kind = ins.mods[-1]
            expr = f"np.abs({self.value(ins.operands[1], kind)})"
            self.put(ins.operands[0], _finished(expr, mods), kind, guard)

    def _neg(self, ins: Instruction, guard: str | None) -> None:
        if not self._packed(ins, "-a", guard):
            mods = self._only(ins, "ftz")
            kind = ins.mods[-1]
            expr = f"(-{self.value(ins.operands[1], kind)})"
            self.put(ins.operands[0], _finished(expr, mods), kind, guard)

    def _extreme(self, ins: Instruction, guard: str | None) -> None:
        kind, name = ins.mods[-1], "smaller" if ins.name == "min" else "larger"
        mods = self._only(ins, "ftz", "NaN")
        if self._packed(ins, f"A.{name}(a, b, {'NaN' in mods})", guard):
            return
        x, y = (self.value(one, kind) for one in ins.operands[1:])
        if kind in ("f32", "f64"):
            expr = _finished(f"A.{name}({x}, {y}, {'NaN' in mods})", mods)
        else:
            expr = f"np.{ins.name}imum({x}, {y})"
        self.put(ins.operands[0], expr, kind, guard)

    _min = _max = _extreme

    def _copysign(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        sign, size = (self.value(one, kind) for one in ins.operands[1:])
        self.put(ins.operands[0], f"np.copysign({size}, {sign})", kind, guard)

    def _testp(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        x = self.value(ins.operands[1], kind)
        test = {"finite": "np.isfinite({x})", "infinite": "np.isinf({x})"}
        test |= {"number": "~np.isnan({x})", "notanumber": "np.isnan({x})"}
        self.put(ins.operands[0], test[ins.mods[0]].format(x=x), "pred", guard)

    def _logic(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        symbol = {"and": "&", "or": "|", "xor": "^"}[ins.name]
        x, y = (self.value(one, kind) for one in ins.operands[1:])
        self.put(ins.operands[0], f"({x} {symbol} {y})", kind, guard)

    _and = _or = _xor = _logic

    def _not(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        self.put(ins.operands[0], f"(~{self.value(ins.operands[1], kind)})", kind, guard)

    def _cnot(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        x = self.value(ins.operands[1], kind)
        self.put(ins.operands[0], f"({x} == 0).astype({VALUE[kind]})", kind, guard)

    def _shift(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        dst, a, n = ins.operands
        x = self.value(a, kind)
        if isinstance(n, Imm) and 0 <= n.value < 8 * SIZES[kind]:
            symbol = "<<" if ins.name == "shl" else ">>"
            expr = f"({x} {symbol} {self.const(NAMESPACE[VALUE[kind]](n.value))})"
        else:
            name = "shift_left" if ins.name == "shl" else "shift_right"
            expr = f"A.{name}({x}, {self.value(n, 'u32')})"
        self.put(dst, expr, kind, guard)

    _shl = _shr = _shift

    def _shf(self, ins: Instruction, guard: str | None) -> None:
        low, top, n = (self.value(one, "b32") for one in ins.operands[1:])
        left, wrap = ins.mods[0] == "l", ins.mods[1] == "wrap"
        expr = f"A.funnel({low}, {top}, {n}, {left}, {wrap})"
        self.put(ins.operands[0], expr, "b32", guard)

    def _bfe(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        x = self.value(ins.operands[1], kind)
        pos, many = (self.value(one, "u32") for one in ins.operands[2:])
        self.put(ins.operands[0], f"A.extract({x}, {pos}, {many})", kind, guard)

    def _bfi(self, ins: Instruction, guard: str | None) -> None:
        kind = ins.mods[-1]
        x, y = (self.value(one, kind) for one in ins.operands[1:3])
        pos, many = (self.value(one, "u32") for one in ins.operands[3:])
        self.put(ins.operands[0], f"A.insert({x}, {y}, {pos}, {many})", kind, guard)

    def _prmt(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        args = ", ".join(self.value(one, "b32") for one in ins.operands[1:])
        self.put(ins.operands[0], f"A.permute({args})", "b32", guard)

    def _lop3(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        args = ", ".join(self.value(one, "b32") for one in ins.operands[1:4])
        lut = ins.operands[4]
        assert isinstance(lut, Imm)
        self.put(ins.operands[0], f"A.table({args}, {lut.value})", "b32", guard)

    def _bits(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        name = {"popc": "count", "clz": "leading", "brev": "reverse"}[ins.name]
        result = kind if ins.name == "brev" else "u32"
        expr = f"A.{name}({self.value(ins.operands[1], kind)})"
        self.put(ins.operands[0], expr, result, guard)

    _popc = _clz = _brev = _bits

    def _bfind(self, ins: Instruction, guard: str | None) -> None:
        amount = "shiftamt" in self._only(ins, "shiftamt")
        kind = ins.mods[-1]
        expr = f"A.find({self.value(ins.operands[1], kind)}, {amount})"
        self.put(ins.operands[0], expr, "u32", guard)

    def _selp(self, ins: Instruction, guard: str | None) -> None:
        self._only(ins)
        kind = ins.mods[-1]
        dst, a, b, p = ins.operands
        expr = f"np.where({self.value(p, 'pred')}, {self.value(a, kind)}, {self.value(b, kind)})"
        self.put(dst, expr, kind, guard)

    def _setp(self, ins: Instruction, guard: str | None) -> None:
        kind, mods = (
            ins.mods[-1],
            self._only(ins, *_COMPARE, *_UNORDERED, "num", "nan", "ftz", "and", "or", "xor"),
        )
        dst, a, b, *more = ins.operands
        x, y = self.value(a, kind), self.value(b, kind)
        if "ftz" in mods:
            x, y = f"A.flushed({x})", f"A.flushed({y})"
        if kind in ("f16", "bf16"):
            inn = "A.from_bf16" if kind == "bf16" else "A.from_f16"
            x, y = f"{inn}({x})", f"{inn}({y})"
        expr = _compared(mods[0], x, y, kind in ("f32", "f64", "f16", "bf16"))
        first, second = (dst.first, dst.second) if isinstance(dst, Pair) else (dst, None)
        op = next((m for m in mods if m in ("and", "or", "xor")), None)
        plain = self.temp(expr)
        own, other = plain, f"(~{plain})"
        if op:
            symbol = {"and": "&", "or": "|", "xor": "^"}[op]
            c = self.value(more[0], "pred")
            own, other = f"({own} {symbol} {c})", f"({other} {symbol} {c})"
        made = self.temp(other) if second is not None else ""
        self.put(first, own, "pred", guard)
        if second is not None:
            self.put(second, made, "pred", guard)

    def _cvt(self, ins: Instruction, guard: str | None) -> None:
        mods = ins.mods[:-2]
        to, frm = ins.mods[-2:]
        dst, *sources = ins.operands
        if to == "tf32" and frm == "f32" and mods in (("rn",), ("rz",), ("rna",)):
            x = self.value(sources[0], "f32")
            self.put(dst, f"A.to_tf32({x}, {mods[0]!r})", "b32", guard)
            return
        for mod in mods:
            if mod not in (*ROUND, *WHOLE, "sat", "ftz", "satfinite"):
                raise UnsupportedError(ins.opcode)
        mode = next((m for m in mods if m in (*ROUND, *WHOLE)), "rn")
        floating = ("f16", "bf16", "f32", "f64")
        if to in ("f16x2", "bf16x2") and frm == "f32":
            name = f"A.to_{to[:-2]}"
            top, low = (self.value(one, "f32") for one in sources)
            self.put(dst, f"A.both({name}({top}, {mode!r}), {name}({low}, {mode!r}))", to, guard)
        elif to in ("e4m3x2", "e5m2x2") and frm == "f32":
            top, low = (self.value(one, "f32") for one in sources)
            k = to[:-2]
            expr = f"((A.to_f8({top}, {k!r}) << u2(8)) | A.to_f8({low}, {k!r}))"
            self.put(dst, expr, "b16", guard)
        elif frm in ("e4m3x2", "e5m2x2") and to == "f16x2":
            x, k = self.value(sources[0], "b16"), frm[:-2]
            expr = f"A.both(A.from_f8({x} >> u2(8), {k!r}), A.from_f8({x} & u2(255), {k!r}))"
            self.put(dst, expr, to, guard)
        elif frm in floating or to in floating:
            self._cvt_float(ins, to, frm, mode, mods, guard)
        else:
            x = self._narrowed(sources[0], frm)
            if "sat" in mods:
                raise UnsupportedError(ins.opcode)
            self.put(dst, f"np.asarray({x}).astype({VALUE[to]})", to, guard)

    def _narrowed(self, op: Operand, kind: str) -> str:
        """Return an operand that may stand in a wider register."""
        if isinstance(op, Reg) and int(self.stored(op.name)[1]) > SIZES[kind]:
            size = SIZES[kind]
            return f"{local(op.name)}.astype(u{size}).view({VALUE[kind]})"
        return self.value(op, kind)

    def _cvt_float(
        self, ins: Instruction, to: str, frm: str, mode: str, mods: Sequence[str], guard: str | None
    ) -> None:
        dst, src = ins.operands
        x = self._narrowed(src, frm)
        x = {"f16": f"A.from_f16({x})", "bf16": f"A.from_bf16({x})"}.get(frm, f"np.asarray({x})")
        if "ftz" in mods and frm == "f32":
            x = f"A.flushed({x})"
        if to not in ("f16", "bf16", "f32", "f64"):
            if mode not in WHOLE:
                raise UnsupportedError(ins.opcode)
            expr = f"A.to_integer({x}, {VALUE[to]}, {mode!r})"
        elif frm not in ("f16", "bf16", "f32", "f64"):
            if to in ("f16", "bf16"):
                raise UnsupportedError(ins.opcode)
            expr = f"A.from_integer({x}, {VALUE[to]}, {mode!r})"
        elif mode in WHOLE:
            if to != frm or to in ("f16", "bf16"):
                raise UnsupportedError(ins.opcode)
            expr = f"A.whole({x}, {mode!r})"
        elif to in ("f16", "bf16"):
            if frm == "f64" and to == "bf16":
                raise UnsupportedError(ins.opcode)
            expr = f"A.to_{to}({x}, {mode!r})"
        elif to == "f32" and frm == "f64":
            expr = f"A.narrow({x}, {mode!r})"
        else:
            expr = f"{x}.astype({VALUE[to]})"
        if to in ("f32", "f64"):
            expr = _finished(expr, mods)
        elif "sat" in mods:
            raise UnsupportedError(ins.opcode)
        self.put(dst, expr, to, guard)

    def _mapa(self, ins: Instruction, guard: str | None) -> None:
        dst, src, cta = ins.operands
        kind = ins.mods[-1]
        if "shared::cluster" in ins.mods:
            expr = f"m.mapa(g, {self.value(src, kind)}, {self.value(cta, 'u32')})"
        else:
            raised = f"({self.value(src, 'u64')} - m.shared_window)"
            expr = f"(m.mapa(g, {raised}, {self.value(cta, 'u32')}) + m.shared_window)"
        self.put(dst, expr, kind, guard)

    def _createpolicy(self, ins: Instruction, guard: str | None) -> None:
        self.put(ins.operands[0], self.const(np.uint64(0)), "b64", guard)

    def _prefetch(self, ins: Instruction, guard: str | None) -> None:
        """Do nothing: it is a hint."""

    _prefetchu = _prefetch

    def _ld(self, ins: Instruction, guard: str | None) -> None:
        dst, src = _without_policy(ins)
        space, kind, many, words = access(ins)
        if space == "param":
            assert isinstance(src, Address)
            items = dst.items if isinstance(dst, Vec) else (dst,)
            if isinstance(src.base, Sym):
                at = self.params[src.base.name] + src.offset
                for i, one in enumerate(items):
                    offset = at + i * SIZES[kind]
                    self.put(one, f"m.param({offset}, {VALUE[kind]!r})", kind, guard, fresh=False)
                return
        what = self.const(words)
        got = self.temp(f"m.load(g, {what}, {self.address(src)}, {guard})")
        items = dst.items if isinstance(dst, Vec) else (dst,)
        assert len(items) == many
        for i, one in enumerate(items):
            self.put(one, f"{got}[{i}]", kind, guard)

    def _st(self, ins: Instruction, guard: str | None) -> None:
        dst, src = _without_policy(ins)
        _, kind, many, words = access(ins)
        what = self.const(words)
        items = src.items if isinstance(src, Vec) else (src,)
        assert len(items) == many
        values = ", ".join(self._narrowed(one, kind) for one in items)
        self.lines.append(f"m.store(g, {what}, {self.address(dst)}, ({values},), {guard})")


def _without_policy(ins: Instruction) -> tuple[Operand, Operand]:
    """Return the operands of an ordinary load or store; which lines leave the L2 first is a hint.

    UnsupportedError if there are more or fewer.
    """
    many = 3 if "L2::cache_hint" in ins.mods else 2
    if len(ins.operands) != many:
        raise UnsupportedError(f"{ins.opcode} of {len(ins.operands)} operands")
    first, second, *_ = ins.operands
    return first, second


def access(ins: Instruction) -> tuple[str, str, int, tuple[Any, ...]]:
    """Return space, type and count of an ordinary load or store, and all that the memory asks.

    UnsupportedError for a modifier that is not known.
    """
    kind = ins.mods[-1]
    if kind not in VALUE or kind == "pred":
        raise UnsupportedError(ins.opcode)
    space, many = "generic", 1
    for mod in ins.mods[:-1]:
        if mod in WEAK_SPACES:
            space = mod
        elif mod in ("v2", "v4", "v8"):
            many = int(mod[1])
        elif mod.startswith(("L1::", "L2::", "level::")) or mod in (
            "weak", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "relaxed", "acquire",
            "release", "volatile", "cta", "cluster", "gpu", "sys",
        ):  # fmt: skip
            pass
        else:
            raise UnsupportedError(ins.opcode)
    return space, kind, many, (space, VALUE[kind], many, ins.line, ins.used)


def _seen(name: str, stored: str, want: str) -> str:
    if stored == want:
        return name
    if stored[1] == want[1] and "b" not in (stored[0], want[0]):
        return f"{name}.view({want})"
    if stored == "b1" or want == "b1":
        raise UnsupportedError(f"a predicate as {want}")
    return f"{name}.astype(u{want[1]}).view({want})"


def _widened(expr: str, own: str, stored: str) -> str:
    if own == stored:
        return expr
    if own[1] == stored[1] and "b" not in (own[0], stored[0]):
        return f"np.asarray({expr}).view({stored})"
    if "b1" in (own, stored):
        raise UnsupportedError("a predicate as a number")
    if own[0] == "i":
        return f"np.asarray({expr}).astype(i{stored[1]}).view({stored})"
    return f"np.asarray({expr}).astype(u{stored[1]}).view({stored})"


def _finished(expr: str, mods: Sequence[str]) -> str:
    if "ftz" in mods:
        expr = f"A.flushed({expr})"
    return f"A.clamped({expr})" if "sat" in mods else expr


def _compared(how: str, x: str, y: str, floating: bool) -> str:
    if how == "ne" and floating:
        return f"(({x} < {y}) | ({x} > {y}))"
    if how in _COMPARE:
        return f"({x} {_COMPARE[how]} {y})"
    if how == "neu":
        return f"({x} != {y})"
    if how == "equ":
        return f"~(({x} < {y}) | ({x} > {y}))"
    if how in _UNORDERED:
        return f"~({x} {_UNORDERED[how][0]} {y})"
    test = f"(np.isnan({x}) | np.isnan({y}))"
    return test if how == "nan" else f"~{test}"
