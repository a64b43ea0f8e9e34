"""Calls of functions whose text is there: their statements stand where the call stood.

Each call has registers, labels and local variables of its own; arguments and results lie in local
memory of the thread.  A call of a register, of a function without a body, or of one that is being
executed stays a call, which is not modelled.

Source: PTX ISA, "call", "Abstracting the ABI" (parameters of functions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oracles.ptx.text.grammar import (
    Address,
    Function,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sym,
    Variable,
    Vec,
)

Statement = Instruction | Label


def inlined(module: Module, function: Function) -> Function:
    """Return a function in which no call is left of one that can stand in its place."""
    return _Inliner(module, function).made


class _Inliner:
    """One function, and how many calls were replaced in it."""

    def __init__(self, module: Module, function: Function) -> None:
        self._module = module
        self._calls = 0
        variables = [_in_local(one) for one in function.variables]
        self.made = replace(function, registers={**function.registers}, variables=variables)
        self.made.body = list(self._statements(function.body, (function.name,)))
        local = {one.name for one in self.made.variables}
        self.made.body = [_of_local(one, local) for one in self.made.body]

    def _statements(self, body: list[Statement], within: tuple[str, ...]) -> Iterator[Statement]:
        for one in body:
            if isinstance(one, Instruction) and one.name == "call":
                yield from self._called(one, within)
            else:
                yield one

    def _called(self, call: Instruction, within: tuple[str, ...]) -> Iterator[Statement]:
        name = next((op.name for op in call.operands if isinstance(op, Sym)), "")
        callee = self._module.functions.get(name)
        at = call.operands.index(Sym(name)) if name else 0
        before, behind = call.operands[:at], call.operands[at + 1 :]
        given = [item for op in behind for item in (op.items if isinstance(op, Vec) else ())]
        wanted = [item for op in before for item in (op.items if isinstance(op, Vec) else (op,))]
        if (
            callee is None
            or name in within
            or not all(isinstance(one, Sym) for one in (*given, *wanted))
            or (len(given), len(wanted)) != (len(callee.params), len(callee.results))
        ):
            yield call
            return
        self._calls += 1
        mark = f"@{self._calls}"
        names: dict[str, Operand] = {
            param.name: value
            for param, value in zip(
                (*callee.params, *callee.results), (*given, *wanted), strict=True
            )
        }
        for own in callee.variables:
            names[own.name] = Sym(own.name + mark)
            self.made.variables.append(replace(_in_local(own), name=own.name + mark))
        for own_register, kind in callee.registers.items():
            names[own_register] = Reg(own_register + mark)
            self.made.registers[own_register + mark] = kind
        for label in callee.body:
            if isinstance(label, Label):
                names[label.name] = Sym(label.name + mark)
        end = f"{name}{mark}"
        if call.guard is not None:
            skip = Not(call.guard) if isinstance(call.guard, Reg) else call.guard.reg
            yield replace(call, name="bra", mods=(), operands=(Sym(end),), guard=skip)
        for one in self._statements(callee.body, (*within, name)):
            yield _renamed(one, names, end)
        yield Label(end)


def _in_local(variable: Variable) -> Variable:
    return replace(variable, space="local") if variable.space == "param" else variable


def _renamed(one: Statement, names: dict[str, Operand], end: str) -> Statement:
    """Return a statement with the names of a call, `ret` as a branch to its end."""
    if isinstance(one, Label):
        return Label(_symbol(one.name, names))
    guard = None if one.guard is None else _operand(one.guard, names)
    assert guard is None or isinstance(guard, Reg | Not)
    if one.name == "ret":
        return replace(one, name="bra", mods=(), operands=(Sym(end),), guard=guard)
    return replace(one, operands=tuple(_operand(op, names) for op in one.operands), guard=guard)


def _symbol(name: str, names: dict[str, Operand]) -> str:
    found = names.get(name)
    return found.name if isinstance(found, Sym) else name


def _operand(op: Operand, names: dict[str, Operand]) -> Operand:
    match op:
        case Reg(name) | Sym(name):
            return names.get(name, op)
        case Not(reg):
            found = names.get(reg.name, reg)
            assert isinstance(found, Reg)
            return Not(found)
        case Vec(items):
            return Vec(tuple(_operand(item, names) for item in items))
        case Pair(first, second):
            return Pair(_operand(first, names), _operand(second, names))
        case Address(base, offset, coords):
            return Address(
                _operand(base, names), offset, tuple(_operand(item, names) for item in coords)
            )
        case _:
            return op


def _of_local(one: Statement, local: set[str]) -> Statement:
    """Return a statement whose loads and stores of arguments are of local memory."""
    if not isinstance(one, Instruction) or one.name not in ("ld", "st") or "param" not in one.mods:
        return one
    place = next(op for op in one.operands if isinstance(op, Address))
    if not isinstance(place.base, Sym) or place.base.name not in local:
        return one
    return replace(one, mods=tuple("local" if mod == "param" else mod for mod in one.mods))
