"""What each kind of threads executes, as code with explicit positions; loops stay loops.

Lets whose value no thread can know (it depends on parameters or on the CTA's number) are put in
place; the others are variables of the thread.  `Cycle` says how the value of a variable repeats
for all that uses it, so that states of different iterations can be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.program.controls import AMONG_CTAS, controls, outcomes
from oracles.prover.reachability.program.cycle import carry, learn
from oracles.prover.reachability.program.linear import (
    Atoms,
    Condition,
    Value,
    compared,
    compiled,
    joined,
)
from oracles.prover.reachability.program.threads import Kind as Threads
from oracles.prover.reachability.program.threads import Place
from oracles.prover.sites import shared_tensors, touches


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A statement at its place in the kernel.

    `slot`, `bar_slot`, `parity`, `cta` are functions of the thread's variables (constant where the
    statement has none).
    """

    index: int
    stmt: kir.Stmt
    line: int
    place: Place
    elected: bool

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return f"line {self.line}: {line(self.stmt)}"


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    """Execute a statement; `values` are its control expressions by name.

    `index` is that of a semaphore, `origin` and `limit` those of a box of a tensor that they share.
    """

    site: Site
    values: Mapping[str, Value]
    exprs: tuple[Expr, ...]
    index: Expr | None = None
    origin: tuple[Expr, ...] = ()
    limit: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """Give a variable a value, known or not yet."""

    name: str
    expr: Expr
    value: Value
    terms: tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)
class Enter:
    """Begin a loop; `atom` is the unknown that its end depends on, if any."""

    number: int
    name: str
    stop: Expr
    test: Condition
    atom: int
    depth: int
    site: Site
    end: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Next:
    """Go on with the next iteration."""

    enter: int


@dataclass(slots=True, eq=False)
class Branch:
    """Go to `orelse` where the condition is 0."""

    expr: Expr
    test: Condition
    site: Site
    orelse: int = 0


@dataclass(slots=True, eq=False)
class Jump:
    """Go on elsewhere."""

    to: int = 0


Instruction = Do | Set | Enter | Next | Branch | Jump


@dataclass(slots=True)
class Code:
    """A kernel as code: one list of instructions for each kind of threads."""

    kernel: kir.Kernel
    kinds: tuple[Threads, ...]
    sites: list[Site] = field(default_factory=list)
    programs: list[list[Instruction]] = field(default_factory=list)
    cycles: dict[str, tuple[int, int]] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    atoms: Atoms = field(default_factory=lambda: Atoms(frozenset(), {}))
    counts: frozenset[int] = frozenset()


CLUSTER = Var("number of the cluster")
FAMILY = Var("number of the CTAs that share a semaphore")
UNKNOWN = (kir.BLOCK, kir.GRID, CLUSTER, FAMILY)


def assemble(
    kernel: kir.Kernel,
    kinds: tuple[Threads, ...],
    fixed: Mapping[Expr, Expr] | tuple[Mapping[Expr, Expr], ...],
) -> Code:
    """Compile a kernel for every kind of threads.

    Parameters
    ----------
    fixed : mapping of Expr to Expr, or a tuple of them
        Expressions over parameters and `BLOCK` that are known in this reading, such as the turn;
        several for several CTAs that share a semaphore.
    """
    code = Code(kernel, kinds)
    shared = shared_tensors(kernel)
    unknown = (*UNKNOWN, *outcomes(kernel), *kernel.params)
    code.atoms = Atoms(frozenset(v.name for v in unknown), {})
    lines = [number for number, _ in numbered(kernel)]
    for kind in kinds:
        own = fixed[kind.cta] if isinstance(fixed, tuple) else fixed
        maker = _Assembler(code, kind, lines, own, shared)
        maker.body(kernel.body, Place(0, kernel.threads // kir.WARP), {}, ())
        code.programs.append(maker.out)
        code.sites = maker.sites
    code.moving = frozenset(i.name for p in code.programs for i in p if isinstance(i, Set | Enter))
    loops = (i for p in code.programs for i in p if isinstance(i, Enter))
    ends = {i.name: i.stop for i in loops if isinstance(i.stop, int)}
    for use in _uses(code):
        learn(code.cycles, code.moving, use, ends)
    sets = [(i.name, i.expr) for p in code.programs for i in p if isinstance(i, Set)]
    carry(code.cycles, code.moving, list(dict.fromkeys(sets)))
    code.counts = frozenset(
        i.atom for p in code.programs for i in p if isinstance(i, Enter) and i.atom >= 0
    )
    return code


def _uses(code: Code) -> list[Expr]:
    out: list[Expr] = []
    for program in code.programs:
        for i in program:
            match i:
                case Do():
                    out += i.exprs
                case Set(name, expr):
                    out.append(_own_step(name, expr))
                case Enter():
                    out.append(Op(Kind.LT, Var(i.name), i.stop))
                case Branch():
                    out.append(i.expr)
                case _:
                    pass
    return list(dict.fromkeys(out))


def _own_step(name: str, expr: Expr) -> Expr:
    """Return what a variable's next value takes of the others."""
    return substitute(expr, {Var(name): 0})


class _Assembler:
    """Write the code of one kind of threads."""

    def __init__(
        self,
        code: Code,
        kind: Threads,
        lines: list[int],
        fixed: Mapping[Expr, Expr],
        shared: frozenset[str],
    ) -> None:
        self.code = code
        self.kind, self.shared = kind, shared
        self.lines, self.fixed = lines, fixed
        self.out: list[Instruction] = []
        self.sites: list[Site] = []
        self.loops = 0
        self.unknown = code.atoms.names
        self.given: set[str] = set()
        self.outcomes = iter(outcomes(code.kernel))
        self.moving = {s.var.name for s in code.kernel.walk() if isinstance(s, kir.Assign)}

    def _plain(self, expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
        rank: dict[Var, Expr] = {kir.RANK: self.kind.cta % self.code.kernel.cluster}
        whole = _known(substitute(expr, {**lets, **rank}), self.fixed)
        many = self.code.kernel.cluster
        if many > 1:
            whole = _known(_in_cluster(whole, many, self.kind.cta % many), self.fixed)
        for var in variables(whole):
            if var.name not in self.unknown and var.name not in self.given:
                raise UnsupportedError(f"`{expr}`: {var} has no value here")
        return whole

    def body(
        self,
        body: tuple[kir.Stmt, ...],
        place: Place,
        lets: Mapping[Var, Expr],
        deep: tuple[int, ...],
    ) -> None:
        here = dict(lets)
        for stmt in body:
            site = Site(
                len(self.sites), stmt, self.lines[len(self.sites)], place, place.per is not None
            )
            self.sites.append(site)
            match stmt:
                case kir.Let(var, value):
                    value = self._plain(value, here)
                    self._let(var, value, here, mine=place.has(self.kind))
                case kir.Assign(var, value):
                    if place.has(self.kind):
                        self._set(var, self._plain(value, here))
                case kir.ForLoop(index, stop, inner):
                    self._loop(index, self._plain(stop, here), inner, place, here, deep, site)
                case kir.IfThenElse(test, then, orelse):
                    self._branch(self._plain(test, here), then, orelse, place, here, deep, site)
                case kir.Role(_, first, warps, inner):
                    self.body(inner, Place(first, warps), here, deep)
                case kir.Elect(per, inner):
                    self.body(inner, place.elect(per), here, deep)
                case kir.LastArriving():
                    last = self._plain(next(self.outcomes), here)
                    if place.has(self.kind):
                        self._do(site, here, last=last)
                    self._branch(last, stmt.body, (), place, here, deep, site)
                case _:
                    if place.has(self.kind):
                        self._do(site, here)

    def _let(self, var: Var, value: Expr, here: dict[Var, Expr], *, mine: bool) -> None:
        named = {v.name for v in variables(value)}
        # Others have no use for it, and would walk a loop for nothing else.
        if mine and (var.name in self.moving or (named and not named & self.unknown)):
            self._set(var, value)
            here.pop(var, None)
        else:
            here[var] = value

    def _set(self, var: Var, expr: Expr) -> None:
        self.given.add(var.name)
        value, parts = self.code.atoms.split(expr)
        terms = tuple((self.code.atoms.number(atom), times) for atom, times in parts.items())
        self.out.append(Set(var.name, expr, value, terms))

    def _do(self, site: Site, here: Mapping[Var, Expr], **more: Expr) -> None:
        exprs = {name: self._plain(e, here) for name, e in controls(site.stmt).items()} | more
        values = {name: self._value(e, site) for name, e in exprs.items()}
        index: Expr | None = None
        origin = limit = tuple[Expr, ...]()
        box = touches(site.stmt)
        if isinstance(site.stmt, AMONG_CTAS):
            index = self._plain(site.stmt.index, here)
        elif box is not None and box.tensor.name in self.shared:
            origin, limit = (
                tuple(self._plain(e, here) for e in p) for p in (box.origin, box.limit)
            )
        self.out.append(Do(site, values, tuple(exprs.values()), index, origin, limit))

    def _value(self, expr: Expr, site: Site) -> Value:
        if any(v.name in self.unknown for v in variables(expr)):
            return _untold(f"{site.where}: depends on {expr}, of which no CTA's value is known")
        return compiled(expr)

    def _loop(
        self,
        index: Var,
        stop: Expr,
        inner: tuple[kir.Stmt, ...],
        place: Place,
        here: Mapping[Var, Expr],
        deep: tuple[int, ...],
        site: Site,
    ) -> None:
        number, self.loops = site.index, self.loops + 1
        _, parts = self.code.atoms.split(stop)
        test = self.code.atoms.condition(fold(Kind.LT, index, stop))
        asked = compared(test)
        if len(asked) == 1:
            (atom,) = asked
        else:
            atom = self.code.atoms.number(joined(parts)[0]) if parts else -1
        enter = Enter(number, index.name, stop, test, atom, len(deep), site)
        at = len(self.out)
        self.out.append(enter)
        mine = {v: e for v, e in here.items() if v != index}
        outside = set(self.given)
        self.given.add(index.name)
        self.body(inner, place, mine, (*deep, number) if parts else deep)
        self.given = outside
        if len(self.out) == at + 1:
            self.out.pop()
            return
        self.out.append(Next(at))
        enter.end = len(self.out)

    def _branch(
        self,
        test: Expr,
        then: tuple[kir.Stmt, ...],
        orelse: tuple[kir.Stmt, ...],
        place: Place,
        here: Mapping[Var, Expr],
        deep: tuple[int, ...],
        site: Site,
    ) -> None:
        branch = Branch(test, self.code.atoms.condition(test), site)
        at = len(self.out)
        self.out.append(branch)
        self.body(then, place, here, deep)
        jump = Jump()
        self.out.append(jump)
        branch.orelse = len(self.out)
        self.body(orelse, place, here, deep)
        jump.to = len(self.out)
        if len(self.out) == at + 2:
            del self.out[at:]
        elif jump.to == branch.orelse:
            self.out.pop()
            branch.orelse = len(self.out)


def _untold(says: str) -> Value:
    def value(_: Mapping[str, int]) -> int:
        raise UnsupportedError(says)

    return value


def _in_cluster(expr: Expr, many: int, rank: int) -> Expr:
    """Say `BLOCK`, of which each CTA of a cluster has its own, by the cluster's number."""
    match expr:
        case Op(Kind.MOD, kir.BLOCK, int() as of) if of == many:
            return rank
        case Op(Kind.FLOORDIV, kir.BLOCK, int() as of) if of == many:
            return CLUSTER
        case kir.BLOCK:
            return CLUSTER * many + rank
        case Op(kind, a, b):
            return fold(kind, _in_cluster(a, many, rank), _in_cluster(b, many, rank))
        case _:
            return expr


def _known(expr: Expr, fixed: Mapping[Expr, Expr]) -> Expr:
    """Put in place what is known in this reading."""
    if not fixed:
        return expr
    if not isinstance(expr, int) and expr in fixed:
        return fixed[expr]
    if isinstance(expr, Op):
        return fold(expr.kind, _known(expr.a, fixed), _known(expr.b, fixed))
    return expr
