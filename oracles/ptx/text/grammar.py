"""PTX text -> module: functions, variables, and typed instructions, scopes resolved.

A statement is read by a grammar once per *shape*, its text with every name and number left out;
a kernel of thousands of statements has a hundred shapes, and other kernels have the same ones.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Instruction Operands".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from lark import Lark, Token, Tree
from lark.exceptions import LarkError


class PtxError(ValueError):
    """A text that is no PTX, or PTX that this reader does not know."""


@dataclass(frozen=True, slots=True)
class Reg:
    """A register, by a name that is unique in its function; `%tid.x` and the like too."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal: its bits as an integer, or, where `kind` is ``"f32"`` or ``"f64"``, a float's."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable or parameter, or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """A predicate, negated."""

    reg: Reg


@dataclass(frozen=True, slots=True)
class Vec:
    """Several operands in braces."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, ``p|q``."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """An address: a base, bytes to add, and the coordinates of a tensor."""

    base: Operand
    offset: int = 0
    coords: tuple[Operand, ...] = ()


Operand = Reg | Imm | Sym | Not | Vec | Pair | Address


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``@guard name.mods operands``, and the line where it stands."""

    name: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Reg | Not | None
    line: int
    text: str
    span: tuple[int, int] = (0, 0)
    """Where it stands in the text, with its semicolon."""
    used: int = 0
    """Of a load, a bit for each byte that is used (``.pragma "used_bytes_mask"``); 0 is all."""

    @property
    def opcode(self) -> str:
        """The whole opcode, with its modifiers."""
        return ".".join((self.name, *self.mods))


@dataclass(frozen=True, slots=True)
class Label:
    """A place that branches name."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: state space, alignment, bytes, initial content; 0 bytes if dynamic."""

    name: str
    space: str
    align: int
    nbytes: int
    content: bytes = b""


@dataclass(slots=True)
class Function:
    """A function: parameters, results, registers by type, own variables, statements in order."""

    name: str
    entry: bool
    params: tuple[Variable, ...]
    directives: dict[str, tuple[int, ...]]
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    body: list[Instruction | Label] = field(default_factory=list)
    results: tuple[Variable, ...] = ()


@dataclass(slots=True)
class Module:
    """What a text has: its functions and its variables by name.

    Where it has line information, `files` are those that it names, by number, and `sources` has the
    file and the line from which the instructions of a line were made.
    """

    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str] = field(default_factory=dict)
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)

    def source(self, line: int) -> str:
        """Return file and line of the source behind a line of the text; "" if none is known."""
        file, number = self.sources.get(line, (0, 0))
        known = number > 0 and file in self.files
        return f"{self.files[file].rsplit('/', 1)[-1]}:{number}" if known else ""


SIZES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4}
SIZES |= {"u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16}
SIZES |= {"bf16": 2, "f16x2": 4, "bf16x2": 4}
"""Bytes of a value of each type."""

_SHAPES = Lark(
    r"""
    start: operand ("," operand)*
    operand: ATOM -> atom
           | "!" ATOM -> negated
           | operand "|" operand -> pair
           | ("{" | "(") operand ("," operand)* ("}" | ")") -> vector
           | "[" operand ["+" ATOM] ("," operand)* "]" -> address
    ATOM: "?"
    %ignore " "
    """,
    parser="lalr",
    maybe_placeholders=True,
)
_DECIMAL = r"-?\d+\.\d+(?:[eE][+-]?\d+)?"
_ATOM = re.compile(rf"{_DECIMAL}|-?%?[\w$]+(?:\.[xyzw])?")
_HEAD = re.compile(r"\s*(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w]*)((?:(?:\.|::)[\w]+)*)\s*")
_LABEL = re.compile(r"\s*([$\w]+)\s*:(?!:)")
_ENDS, _OPENS = re.compile(";"), re.compile("[{;]")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_MODIFIER = re.compile(r"\.(\w+(?:::\w+)*)")
_NESTED = re.compile(r"[{}()!|]")
_PLACE = re.compile(r"\[\s*(%?[a-zA-Z_$][\w$]*)\s*(?:\+\s*(-?\d\w*)\s*)?\]")
_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.S)
_LOC = re.compile(r"\.(?:loc\s+(\d+)\s+(\d+)|file)\s")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_USED = re.compile(r'"used_bytes_mask\s+(\w+)"')
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
_VARIABLE = re.compile(
    r"((?:\.(?:extern|visible|weak|common)\s+)*)\.(global|const|shared|local|param)\s+"
    r"(?:\.align\s+(\d+)\s+)?(?:\.v(\d)\s+)?\.(\w+)\s+([\w$]+)((?:\s*\[\s*\d*\s*\])*)\s*"
    r"(?:=\s*(.*))?$",
    re.S,
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)\s*((?:\[\d+\])*)"
)
_ENTRY = re.compile(r"\.(entry|func)\s+(?:\((.*?)\)\s*)?([\w$]+)\s*(?:\((.*?)\))?(.*)$", re.S)
_TUNING = re.compile(r"\.(\w+)\s*([\d,\s]*)")


@lru_cache(maxsize=4096)
def _shape(text: str) -> Tree[Token]:
    return _SHAPES.parse(text)


def _operands(text: str, name: object) -> tuple[Operand, ...]:
    """Return the operands of a text; `name` maps names to operands."""
    plain = None if _NESTED.search(text) else _plain(text, name)
    if plain is not None:
        return plain
    atoms = _ATOM.findall(text)
    try:
        tree = _shape(re.sub(r"\s+", "", _ATOM.sub("?", text)).replace("+?", "+?"))
    except LarkError as error:
        raise PtxError(f"operands {text.strip()!r}: {error}") from error
    rest = iter(atoms)
    return tuple(_build(child, rest, name) for child in tree.children)


def _plain(text: str, name: object) -> tuple[Operand, ...] | None:
    """Return operands of which each is one name or number, or an address of at most one of both.

    None where some are not: the grammar reads those, in ten times the time.
    """
    found: list[Operand] = []
    for part in text.split(","):
        one = part.strip()
        if one.startswith("["):
            place = _PLACE.fullmatch(one)
            if place is None:
                return None
            offset = number(place[2]) if place[2] else _NO_OFFSET
            found.append(Address(_atom(place[1], name), offset.value))
        elif _ATOM.fullmatch(one):
            found.append(_atom(one, name))
        else:
            return None
    return tuple(found)


_NO_OFFSET = Imm(0)


def _build(tree: object, atoms: Iterator[str], name: object) -> Operand:
    assert isinstance(tree, Tree)
    match tree.data:
        case "atom":
            return _atom(next(atoms), name)
        case "negated":
            inner = _atom(next(atoms), name)
            assert isinstance(inner, Reg)
            return Not(inner)
        case "pair":
            first, second = (_build(child, atoms, name) for child in tree.children)
            return Pair(first, second)
        case "vector":
            return Vec(tuple(_build(child, atoms, name) for child in tree.children))
        case _:
            base, offset, *more = tree.children
            found = _build(base, atoms, name)
            shift = _atom(next(atoms), name) if offset is not None else Imm(0)
            coords = tuple(_build(child, atoms, name) for child in more)
            if not isinstance(shift, Imm):
                raise PtxError(f"an address adds {shift}; only numbers are known")
            return Address(found, shift.value, coords)


def _atom(text: str, name: object) -> Operand:
    first = text.lstrip("-")
    if first[0].isdigit():
        return number(text)
    return name(text)  # type: ignore[operator,no-any-return]  # a bound method of the reader


@lru_cache(maxsize=4096)
def number(text: str) -> Imm:
    """Return a literal; PtxError if it is none."""
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("-")
    if body[:2] in ("0f", "0F"):
        return Imm(int(body[2:], 16), "f32")
    if body[:2] in ("0d", "0D"):
        return Imm(int(body[2:], 16), "f64")
    if re.fullmatch(_DECIMAL, body):
        return Imm(int.from_bytes(struct.pack("<d", sign * float(body)), "little"), "f64")
    try:
        value = int(
            body.rstrip("U"),
            16 if body[:2] in ("0x", "0X") else 8 if body[0] == "0" and len(body) > 1 else 10,
        )
    except ValueError as error:
        raise PtxError(f"{text!r} is no number") from error
    return Imm(sign * value)


def floats(imm: Imm) -> float:
    """Return the value of a literal as a float."""
    if imm.kind == "f32":
        return float(struct.unpack("<f", imm.value.to_bytes(4, "little"))[0])
    if imm.kind == "f64":
        return float(struct.unpack("<d", imm.value.to_bytes(8, "little"))[0])
    return float(imm.value)


class _Scope:
    """Names of one pair of braces; those of PTX registers are changed so that they are unique."""

    def __init__(self, number: int, outer: _Scope | None) -> None:
        self.number, self.outer = number, outer
        self.names: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def find(self, name: str, kind: str = "names") -> str | None:
        """Return what a name of a register, a label or a variable stands for here."""
        scope: _Scope | None = self
        while scope is not None:
            found: str | None = getattr(scope, kind).get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


class _Reader:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line, self.seen = text, 0, 1, 0
        self.module = Module({}, {})

    def skip(self) -> bool:
        """Go to the next word; tell whether there is one."""
        match = _SPACE.match(self.text, self.at)
        if match:
            self.at = match.end()
        return self.at < len(self.text)

    def here(self) -> int:
        """Return the line of the place where it stands."""
        self.line += self.text.count("\n", self.seen, self.at)
        self.seen = self.at
        return self.line

    def until(self, end: re.Pattern[str]) -> str:
        """Return the text up to one of some characters, comments left out."""
        start = self.at
        found = end.search(self.text, start)
        if found is None:
            self.at = len(self.text)
            raise PtxError(f"line {self.here()}: {self.text[start : start + 40]!r} does not end")
        self.at = found.start()
        text = self.text[start : self.at]
        return (_COMMENT.sub(" ", text) if "/" in text else text).strip()

    def read(self) -> Module:
        while self.skip():
            line = self.here()
            if self.text.startswith((".version", ".target", ".address_size", ".file"), self.at):
                if file := _FILE.match(self.text, self.at):
                    self.module.files[int(file[1])] = file[2]
                self.at = (self.text.find("\n", self.at) + 1) or len(self.text)
                continue
            if self.text.startswith(".section", self.at):
                self.at = self.text.find("}", self.at) + 1
                continue
            start = self.at
            head = self._item()
            if re.search(r"\.(entry|func)\b", head):
                self._function(head, line)
            else:
                self.at = self.text.find(";", start)
                if self.at < 0:
                    raise PtxError(f"line {line}: {head[:40]!r} does not end")
                made = variable(self.text[start : self.at].strip(), line)
                self.at += 1
                self.module.variables[made.name] = made
        return self.module

    def _item(self) -> str:
        return self.until(_OPENS)

    def _function(self, head: str, line: int) -> None:
        match = _ENTRY.search(head)
        if match is None:
            raise PtxError(f"line {line}: {head[:60]!r} is no function")
        kind, results, name, params, tuning = match.groups()
        made = Function(
            name,
            kind == "entry",
            _params(params, line),
            {
                word: tuple(int(n) for n in numbers.replace(",", " ").split())
                for word, numbers in _TUNING.findall(tuning)
            },
            results=_params(results, line),
        )
        if self.text[self.at] == ";":  # a declaration only
            self.at += 1
            return
        self.module.functions[name] = made
        _Body(self, made).read()


class _Body:
    """The statements of one function."""

    def __init__(self, reader: _Reader, made: Function) -> None:
        self.reader, self.made = reader, made
        self.scopes = 0
        self.scope = _Scope(0, None)
        self.arrays: dict[str, tuple[str, int]] = {}
        self.branches: list[tuple[int, _Scope]] = []
        self.used = 0
        self.source: tuple[int, int] | None = None

    def read(self) -> None:
        reader = self.reader
        reader.at += 1
        while True:
            if not reader.skip():
                raise PtxError(f"function {self.made.name} does not end")
            char = reader.text[reader.at]
            if char == "{":
                self.scopes += 1
                self.scope = _Scope(self.scopes, self.scope)
                reader.at += 1
            elif char == "}":
                reader.at += 1
                if self.scope.outer is None:
                    break
                self.scope = self.scope.outer
            elif char == ";":
                reader.at += 1
            elif found := _LOC.match(reader.text, reader.at):  # ends with its line
                if found[1]:
                    self.source = int(found[1]), int(found[2])
                end = reader.text.find("\n", reader.at)
                reader.at = len(reader.text) if end < 0 else end
            elif label := _LABEL.match(reader.text, reader.at):
                reader.at = label.end()
                own = f"{label[1]}#{self.scope.number}" if self.scope.number else label[1]
                self.scope.labels[label[1]] = own
                self.made.body.append(Label(own))
            else:
                line, start = reader.here(), reader.at
                text = reader.until(_ENDS)
                reader.at += 1
                self._statement(text, line, (start, reader.at))
        for index, scope in self.branches:
            self._resolve(index, scope)

    def _statement(self, text: str, line: int, span: tuple[int, int]) -> None:
        if text.startswith("."):
            self._directive(text, line)
            return
        match = _HEAD.match(text)
        if match is None:
            raise PtxError(f"line {line}: {text[:60]!r} is no statement")
        negated, guard, name, mods = match.groups()
        rest = text[match.end() :]
        operands = _operands(rest, self._name) if rest.strip() else ()
        held: Reg | Not | None = None
        if guard:
            found = self._name(guard)
            assert isinstance(found, Reg)
            held = Not(found) if negated else found
        words = tuple(_MODIFIER.findall(mods))
        if name in ("bra", "call"):
            self.branches.append((len(self.made.body), self.scope))
        if self.source is not None:
            self.reader.module.sources[line] = self.source
        spelled = " ".join(text.split())
        used, self.used = self.used, 0
        self.made.body.append(Instruction(name, words, operands, held, line, spelled, span, used))

    def _directive(self, text: str, line: int) -> None:
        if re.match(r"\.pragma\s", text):
            if mask := _USED.search(text):
                self.used = number(mask[1]).value
            return
        if match := _REG.match(text):
            kind, names = match.groups()
            for one in names.replace(" ", "").replace("\t", "").split(","):
                base, _, many = one.partition("<")
                if many:
                    for n in range(int(many.rstrip(">"))):
                        self._declare(f"{base}{n}", kind)
                else:
                    self._declare(base, kind)
            return
        made = variable(text, line)
        if self.scope.number:
            self.scope.variables[made.name] = f"{made.name}#{self.scope.number}"
            made = replace(made, name=self.scope.variables[made.name])
        self.made.variables.append(made)

    def _declare(self, name: str, kind: str) -> None:
        own = f"{name}#{self.scope.number}" if self.scope.number else name
        self.scope.names[name] = own
        self.made.registers[own] = kind

    def _name(self, text: str) -> Operand:
        if text == "_":
            return Sym("_")
        found = self.scope.find(text)
        if found is not None:
            return Reg(found)
        if text.startswith("%"):
            return Reg(text)
        if text == "WARP_SZ":
            return Imm(32)
        return Sym(self.scope.find(text, "variables") or text)

    def _resolve(self, index: int, scope: _Scope) -> None:
        found = self.made.body[index]
        assert isinstance(found, Instruction)
        ops = tuple(
            Sym(scope.find(op.name, "labels") or op.name) if isinstance(op, Sym) else op
            for op in found.operands
        )
        self.made.body[index] = replace(found, operands=ops)


def _params(text: str | None, line: int) -> tuple[Variable, ...]:
    return tuple(_param(one, line) for one in (text or "").split(",") if one.strip())


def _param(text: str, line: int) -> Variable:
    match = _PARAM.search(text)
    if match is None:
        raise PtxError(f"line {line}: {text.strip()!r} is no parameter")
    align, kind, name, dims = match.groups()
    return Variable(name, "param", int(align or SIZES[kind]), SIZES[kind] * _count(dims))


def _count(dims: str) -> int:
    many = 1
    for n in re.findall(r"\[\s*(\d*)\s*\]", dims or ""):
        many *= int(n or 0)
    return many


@lru_cache(maxsize=4096)
def variable(text: str, line: int = 0) -> Variable:
    """Return the variable of a declaration; PtxError if it is none."""
    match = _VARIABLE.match(text)
    if match is None:
        raise PtxError(f"line {line}: {text[:60]!r} is no declaration")
    _, space, align, width, kind, name, dims, value = match.groups()
    size = SIZES[kind] * int(width or 1)
    content = b""
    if value:
        for one in re.findall(r"-?\w+", value):
            imm = number(one)
            content += (imm.value % (1 << 8 * size)).to_bytes(size, "little")
    return Variable(name, space, int(align or size), size * _count(dims), content)


def parse(text: str) -> Module:
    """Read PTX; PtxError, with the line, if a statement is none."""
    return _Reader(text).read()
