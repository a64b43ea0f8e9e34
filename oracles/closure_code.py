"""What each kind of threads executes, as code with explicit positions; loops stay loops.

Lets whose value no thread can know (it depends on parameters or on the CTA's number) are put in
place; the others are variables of the thread.  `Cycle` says how the value of a variable repeats
for all that uses it, so that states of different iterations can be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel_text import line, numbered
from oracles.closure_cycle import learn
from oracles.closure_linear import Atoms, Condition, Value, compiled, joined
from oracles.closure_threads import Kind as Threads
from oracles.closure_threads import Place


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
    """Execute a statement; `values` are its control expressions by name."""

    site: Site
    values: Mapping[str, Value]
    exprs: tuple[Expr, ...]


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


UNKNOWN = (kir.BLOCK, kir.GRID)


def assemble(kernel: kir.Kernel, kinds: tuple[Threads, ...], fixed: Mapping[Expr, int]) -> Code:
    """Compile a kernel for every kind of threads.

    Parameters
    ----------
    fixed : mapping of Expr to int
        Expressions over parameters and `BLOCK` that are known in this reading, such as the turn.
    """
    code = Code(kernel, kinds)
    code.atoms = Atoms(frozenset(v.name for v in (*UNKNOWN, *kernel.params)), {})
    lines = [number for number, _ in numbered(kernel)]
    everyone = Place(0, kernel.threads // kir.WARP)
    for kind in kinds:
        maker = _Assembler(code, kind, lines, fixed)
        maker.body(kernel.body, everyone, {}, ())
        code.programs.append(maker.out)
        code.sites = maker.sites
    code.moving = frozenset(i.name for p in code.programs for i in p if isinstance(i, Set | Enter))
    for use in _uses(code):
        learn(code.cycles, code.moving, use)
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


def controls(stmt: kir.Stmt) -> dict[str, Expr]:
    """Return the control expressions of a statement by name."""
    out: dict[str, Expr] = {}
    match stmt:
        case kir.TmaLoad(dst, _, _, slot, multicast):
            out = {"slot": dst.index, "bar": slot}
            if multicast is not None:
                out["cast"] = multicast
        case kir.TmaStore(_, src) | kir.TmaReduce(_, src):
            out = _slot(src)
        case kir.CpAsync(dst):
            out = _slot(dst)
        case kir.Load(_, kir.Slot() as src):
            out = _slot(src)
        case kir.Store(kir.Slot() as dst):
            out = _slot(dst)
        case kir.Wgmma(_, a, b, accumulate):
            out = {"slot": b.index, "more": accumulate}
            if isinstance(a, kir.Slot):
                out["a"] = a.index
        case kir.MBarrierArrive(_, slot, _, cta):
            out = {"bar": slot}
            if cta is not None:
                out["cta"] = cta
        case kir.MBarrierWaitParity(_, slot, parity):
            out = {"bar": slot, "parity": parity}
        case (
            kir.MBarrierArriveExpectTx(_, slot)
            | kir.MBarrierExpectTx(_, slot)
            | kir.CpAsyncMBarrierArrive(_, slot)
        ):
            out = {"bar": slot}
        case kir.BlockSerializeWait(_, _, turn) | kir.BlockSerializeRelease(_, _, turn):
            out = {"turn": turn}
        case _:
            pass
    return out


def _slot(slot: kir.Slot) -> dict[str, Expr]:
    out: dict[str, Expr] = {"slot": slot.index}
    if slot.cta is not None:
        out["cta"] = slot.cta
    return out


class _Assembler:
    """Write the code of one kind of threads."""

    def __init__(
        self, code: Code, kind: Threads, lines: list[int], fixed: Mapping[Expr, int]
    ) -> None:
        self.code = code
        self.kind = kind
        self.lines = lines
        self.fixed = fixed
        self.out: list[Instruction] = []
        self.sites: list[Site] = []
        self.loops = 0
        self.unknown = code.atoms.names
        moving = [s for s in code.kernel.walk() if isinstance(s, kir.Assign)]
        self.moving = {s.var.name for s in moving}

    def _plain(self, expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
        rank: dict[Var, Expr] = {kir.RANK: self.kind.cta}
        return _known(substitute(expr, {**lets, **rank}), self.fixed)

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
                    self._let(var, self._plain(value, here), here)
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
                    self.body(inner, Place(place.first, place.warps, per), here, deep)
                case _:
                    if place.has(self.kind):
                        self._do(site, here)

    def _let(self, var: Var, value: Expr, here: dict[Var, Expr]) -> None:
        named = {v.name for v in variables(value)}
        if var.name in self.moving or (named and not named & self.unknown):
            self._set(var, value)
            here.pop(var, None)
        else:
            here[var] = value

    def _set(self, var: Var, expr: Expr) -> None:
        value, parts = self.code.atoms.split(expr)
        terms = tuple((self.code.atoms.number(atom), times) for atom, times in parts.items())
        self.out.append(Set(var.name, expr, value, terms))

    def _do(self, site: Site, here: Mapping[Var, Expr]) -> None:
        exprs = {name: self._plain(e, here) for name, e in controls(site.stmt).items()}
        values = {name: compiled(e) for name, e in exprs.items()}
        self.out.append(Do(site, values, tuple(exprs.values())))

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
        atom = self.code.atoms.number(joined(parts)[0]) if parts else -1
        test = self.code.atoms.condition(fold(Kind.LT, index, stop))
        enter = Enter(number, index.name, stop, test, atom, len(deep), site)
        at = len(self.out)
        self.out.append(enter)
        mine = {v: e for v, e in here.items() if v != index}
        self.body(inner, place, mine, (*deep, number) if parts else deep)
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


def _known(expr: Expr, fixed: Mapping[Expr, int]) -> Expr:
    """Put in place what is known in this reading."""
    if not fixed:
        return expr
    if not isinstance(expr, int) and expr in fixed:
        return fixed[expr]
    if isinstance(expr, Op):
        return fold(expr.kind, _known(expr.a, fixed), _known(expr.b, fixed))
    return expr
