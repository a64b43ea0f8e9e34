"""Where a mutation acts, and how a kernel is changed there: sites, edits, parts replaced.

Statements are compared by identity: a kernel holds each object once, and two statements that look
alike are still two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar, cast

from fuser.expr import Expr, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one change, which may turn out to be harmless.

    `change` says so in words, with the line of the original kernel's text, `operator` who made it.
    `hazards` are the rows of the hazard table it aims at, such as ``"H05"``; none for a change that
    only values can show.  `victim` is the statement that was changed, if it is one statement.
    """

    change: str
    kernel: kir.Kernel
    operator: str
    hazards: tuple[str, ...]
    victim: kir.Stmt | None = None

    @property
    def fault(self) -> str:
        """Operator and change, as results name it."""
        return f"{self.operator}: {self.change}"


@dataclass(frozen=True, slots=True)
class Site:
    """A statement where it stands: line, body, `index` there, and parents, outermost first."""

    kernel: kir.Kernel
    line: int
    stmt: kir.Stmt
    body: tuple[kir.Stmt, ...]
    index: int
    parents: tuple[kir.Stmt, ...]

    @property
    def words(self) -> str:
        """Its line number and text."""
        return f"line {self.line}: {line(self.stmt)}"

    @property
    def loops(self) -> tuple[kir.ForLoop, ...]:
        """The loops around it, outermost first."""
        return tuple(p for p in self.parents if isinstance(p, kir.ForLoop))

    @property
    def role(self) -> kir.Role | None:
        """The innermost role around it."""
        return next((p for p in reversed(self.parents) if isinstance(p, kir.Role)), None)

    @property
    def elect(self) -> kir.Elect | None:
        """The innermost election around it."""
        return next((p for p in reversed(self.parents) if isinstance(p, kir.Elect)), None)

    def beside(self, step: int) -> kir.Stmt | None:
        """Return the neighbour `step` places on in the same body, if there is one."""
        at = self.index + step
        return self.body[at] if 0 <= at < len(self.body) else None

    def instead(
        self, operator: str, change: str, hazards: tuple[str, ...], *new: kir.Stmt
    ) -> Mutant:
        """Return the mutant with other statements, or none, in place of this one."""
        return self.mutant(operator, change, hazards, (self.stmt, new))

    def mutant(
        self, operator: str, change: str, hazards: tuple[str, ...], *changes: Change
    ) -> Mutant:
        """Return the mutant by some changes, which is named by the line of this statement."""
        kernel = edited(self.kernel, *changes)
        return Mutant(f"{change} {self.words}", kernel, operator, hazards, self.stmt)


def sites(kernel: kir.Kernel) -> Iterator[Site]:
    """Every statement of a kernel, parents before children, in program order."""
    lines = {id(stmt): number for number, stmt in numbered(kernel)}

    def inside(body: tuple[kir.Stmt, ...], parents: tuple[kir.Stmt, ...]) -> Iterator[Site]:
        for index, stmt in enumerate(body):
            yield Site(kernel, lines[id(stmt)], stmt, body, index, parents)
            for inner in kir.bodies(stmt):
                yield from inside(inner, (*parents, stmt))

    yield from inside(kernel.body, ())


def syncs(kernel: kir.Kernel) -> Iterator[Site]:
    """Every sync statement of a kernel."""
    return (site for site in sites(kernel) if isinstance(site.stmt, kir.SYNCS))


def synchronises(stmt: kir.Stmt) -> bool:
    """Tell whether it is a sync, an election of the last-arriving CTA, or one of syncs alone."""
    if isinstance(stmt, kir.Elect):
        return bool(stmt.body) and all(isinstance(inner, kir.SYNCS) for inner in stmt.body)
    return isinstance(stmt, kir.SYNCS | kir.LastArriving)


# --- edits --------------------------------------------------------------------------------------

Change = tuple[kir.Stmt, Sequence[kir.Stmt]]
"""A statement, and what stands in its place."""


def edited(kernel: kir.Kernel, *changes: Change) -> kir.Kernel:
    """Return a kernel in which statements, none inside another, are replaced."""
    return replace(kernel, body=edited_body(kernel.body, *changes))


def edited_body(body: tuple[kir.Stmt, ...], *changes: Change) -> tuple[kir.Stmt, ...]:
    """Return a body in which statements at any depth are replaced."""
    table = {id(stmt): list(new) for stmt, new in changes}
    return kir.rewrite(body, lambda stmt: table.get(id(stmt)))


def without(stmt: kir.Stmt, inner: kir.Stmt) -> kir.Stmt:
    """Return a structured statement with one inside it left out."""
    (out,) = edited_body((stmt,), (inner, ()))
    return out


def fresh(stmt: kir.Stmt) -> kir.Stmt:
    """Return a copy of a statement that shares no statement object with it."""
    match stmt:
        case kir.ForLoop() | kir.Loop() | kir.Role() | kir.Elect() | kir.LastArriving():
            return replace(stmt, body=tuple(fresh(inner) for inner in stmt.body))
        case kir.IfThenElse(condition, then, orelse):
            return kir.IfThenElse(
                condition, tuple(fresh(s) for s in then), tuple(fresh(s) for s in orelse)
            )
        case _:
            return replace(stmt)


def wrapped(stmt: kir.Stmt, parents: Sequence[kir.Stmt]) -> kir.Stmt:
    """Return a statement inside copies of the elections and branches among `parents`."""
    for parent in reversed(parents):
        match parent:
            case kir.Elect(per):
                stmt = kir.Elect(per, (stmt,))
            case kir.IfThenElse(condition):
                stmt = kir.IfThenElse(condition, (stmt,))
            case _:
                pass
    return stmt


# --- parts --------------------------------------------------------------------------------------


def substituted(node: T, table: Mapping[object, object]) -> T:
    """Return a statement, body or declaration with equal parts replaced, at any depth.

    Keys are parts (`MBarrier`, `Buffer`, `Slot`, `Var`); expressions fold on the way.
    """
    if isinstance(node, Var | Op):
        values = {v: cast(Expr, e) for v, e in table.items() if isinstance(v, Var)}
        return cast(T, substitute(node, values))
    if isinstance(node, tuple):
        return cast(T, tuple(substituted(part, table) for part in node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    if node in table:
        return cast(T, table[node])
    old = {f.name: getattr(node, f.name) for f in fields(node)}
    new = {name: substituted(part, table) for name, part in old.items()}
    return node if new == old else replace(node, **new)


def redeclared(kernel: kir.Kernel, old: object, new: object) -> kir.Kernel:
    """Return a kernel with a buffer or barrier replaced, in its declaration and every use."""
    table = {old: new}
    return replace(
        kernel,
        buffers=substituted(kernel.buffers, table),
        barriers=substituted(kernel.barriers, table),
        body=substituted(kernel.body, table),
    )


def parts(node: object, kind: type[T]) -> Iterator[T]:
    """Every part of a type inside a statement or expression, outermost first."""
    if isinstance(node, kind):
        yield node
    if isinstance(node, tuple):
        for part in node:
            yield from parts(part, kind)
    else:
        for name in _names(type(node)):
            yield from parts(getattr(node, name), kind)


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
    return _NAMES[kind]


def closed(kernel: kir.Kernel) -> bool:
    """Tell whether every variable is defined where it is used; without it nothing has a meaning."""
    return _closed(kernel.body, frozenset({kir.BLOCK, kir.GRID, kir.RANK, *kernel.params}))


def _closed(body: tuple[kir.Stmt, ...], scope: frozenset[Var]) -> bool:
    for stmt in body:
        inner_scope = scope
        match stmt:
            case kir.Let(_, value):
                used = variables(value)
            case kir.Assign(var, value):
                used = variables(value) | {var}
            case kir.ForLoop(index, stop):
                used, inner_scope = variables(stop), scope | {index}
            case kir.Loop(index):
                used, inner_scope = frozenset(), scope | {index}
            case kir.Fetch(_, slot):
                used = frozenset(parts(slot, Var))
            case kir.IfThenElse(condition):
                used = variables(condition)
            case kir.Role() | kir.Elect():
                used = frozenset()
            case kir.LastArriving():
                used = variables(stmt.index) | variables(stmt.ctas)
            case _:
                used = frozenset(parts(stmt, Var))
        if not used <= scope or not all(_closed(b, inner_scope) for b in kir.bodies(stmt)):
            return False
        if isinstance(stmt, kir.Let | kir.Fetch):
            scope = scope | {stmt.var}
    return True
