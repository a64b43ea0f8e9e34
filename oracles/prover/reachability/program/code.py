"""What each kind of threads executes, as code with explicit positions; loops stay loops.

Lets whose value no thread can know (it depends on parameters or on the CTA's number) are put in
place; the others are variables of the thread.  `Code.cycles` says how the value of a variable
repeats for all that uses it, so that states of different iterations can be the same.

Conditions are ready to be decided.  What a thread's variables decide is a function of them; a trip
count that no thread knows stands alone, and is compared with such a function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import Function, UnsupportedError, carry, function, learn, linear
from oracles.prover.sites import (
    AMONG_CTAS,
    Site,
    Threads,
    controls,
    every,
    outcomes,
    shared_tensors,
    touches,
)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The variables decide."""

    value: Function


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast:
    """Whether an unknown is at least so much, or less than that."""

    atom: int
    bound: Function
    less: bool


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Whether all (or any) of two conditions hold, asked in this order."""

    first: Condition
    second: Condition
    every: bool


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A condition that is decided once for all threads, as a whole."""

    test: Expr


Condition = Known | AtLeast | Several | Asked


@dataclass(slots=True)
class Atoms:
    """The unknowns of a kernel by number; `names` are the parameters and `BLOCK`."""

    names: frozenset[str]
    found: dict[Expr, int]

    def number(self, atom: Expr) -> int:
        """Return the number of an unknown."""
        return self.found.setdefault(atom, len(self.found))

    def split(self, expr: Expr) -> tuple[Function, dict[Expr, int]]:
        """Return what the variables decide of a sum, and the multiples of unknowns in it."""
        constant, parts = linear(expr)
        known: Expr = constant
        unknown: dict[Expr, int] = {}
        for atom, times in parts.items():
            if any(v.name in self.names for v in variables(atom)):
                unknown[atom] = times
            else:
                known = known + times * atom
        return function(known), unknown

    def condition(self, expr: Expr) -> Condition:
        """Return a condition ready to be decided."""
        match expr:
            case Op(Kind.AND, left, right):
                return Several(self.condition(left), self.condition(right), every=True)
            case Op(Kind.LT | Kind.LE as kind, left, right):
                return self._less(left, right, int(kind is Kind.LE))
            case Op(Kind.EQ, left, right):
                value, unknown = self.split(left - right)
                if not unknown:
                    return Known(lambda env: int(value(env) == 0))
                if len(unknown) > 1 and linear(left - right)[0] > 0:
                    return self.condition(Op(Kind.EQ, right, left))
                _, times = joined(unknown)
                bound = linear(-times * (left - right))
                found = self._counted(unknown, bound) if times in (1, -1) else None
                if found is not None:
                    number, more = found
                    low = AtLeast(number, lambda env: more - times * value(env), less=False)
                    high = AtLeast(number, lambda env: more + 1 - times * value(env), less=True)
                    return Several(low, high, every=True)
            case _:
                value, unknown = self.split(expr)
                if not unknown:
                    return Known(value)
        return Asked(expr)

    def _less(self, left: Expr, right: Expr, slack: int) -> Condition:
        """Return whether `left < right + slack`."""
        if isinstance(left, Op) and left.kind in (Kind.MIN, Kind.MAX):
            return Several(
                self._less(left.a, right, slack),
                self._less(left.b, right, slack),
                every=left.kind is Kind.MAX,
            )
        if isinstance(right, Op) and right.kind in (Kind.MIN, Kind.MAX):
            return Several(
                self._less(left, right.a, slack),
                self._less(left, right.b, slack),
                every=right.kind is Kind.MIN,
            )
        value, unknown = self.split(right - left)
        if not unknown:
            return Known(lambda env: int(value(env) + slack > 0))
        _, times = joined(unknown)
        bound = linear(-times * (right - left + slack) + (times == 1))
        found = self._counted(unknown, bound) if times in (1, -1) else None
        if found is not None:
            number, more = found
            if times == 1:
                return AtLeast(number, lambda env: more + 1 - slack - value(env), less=False)
            return AtLeast(number, lambda env: more + value(env) + slack, less=True)
        return Asked(Op(Kind.LE if slack else Kind.LT, left, right))

    def _counted(
        self, unknown: Mapping[Expr, int], bound: tuple[int, Mapping[Expr, int]]
    ) -> tuple[int, int] | None:
        """Return the number of what unknowns are joined to, and what was added to it.

        What is followed counts from 0, so that a sum that may be negative is 0 there, too: only
        bounds of 1 or more say the same of it.  For others so much is added to both; None if there
        is a bound that may be less, whatever is added.
        """
        atom, _ = joined(unknown)
        least, parts = bound
        if _counts(unknown):
            return self.number(atom), 0
        if not _natural({part: n for part, n in parts.items() if part not in unknown}):
            return None
        more = max(1 - least, 0)
        return self.number(Var(f"{atom} + {more}") if more else atom), more


def _counts(unknown: Mapping[Expr, int]) -> bool:
    """Whether unknowns, joined to one, are never negative."""
    alone = len(unknown) == 1
    return all(_never_negative(atom) and (times > 0 or alone) for atom, times in unknown.items())


def _natural(parts: Mapping[Expr, int], constant: int = 0) -> bool:
    """Whether a sum of multiples is never negative, as far as is plain to see.

    The number of a CTA is less than how many there are.
    """
    left = dict(parts)
    ctas = min(-left.get(kir.BLOCK, 0), left.get(kir.GRID, 0))
    if ctas > 0:
        left[kir.BLOCK] += ctas
        left[kir.GRID] -= ctas
        constant += ctas
    counted = all(n == 0 or (n > 0 and _never_negative(part)) for part, n in left.items())
    return constant >= 0 and counted


def _never_negative(expr: Expr) -> bool:
    match expr:
        case int():
            return expr >= 0
        case Op(Kind.MUL | Kind.FLOORDIV | Kind.MIN | Kind.MAX, a, b):
            return _never_negative(a) and _never_negative(b)
        case Op(Kind.ADD | Kind.SUB):
            constant, parts = linear(expr)
            return _natural(parts, constant)
        case _:
            return True


def compared(test: Condition) -> frozenset[int]:
    """Return the unknowns that a condition compares with, by number."""
    match test:
        case AtLeast(atom):
            return frozenset({atom})
        case Several(first, second):
            return compared(first) | compared(second)
        case _:
            return frozenset()


def joined(parts: Mapping[Expr, int]) -> tuple[Expr, int]:
    """Return a sum of unknowns as a multiple of one; a sum of several counts as one of its own."""
    if len(parts) == 1:
        ((atom, times),) = parts.items()
        return atom, times
    ordered = sorted(parts.items(), key=str)
    return Var(" + ".join(f"{times} * {atom}" for atom, times in ordered)), 1


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    """Execute a statement; `values` are its control expressions by name.

    `index` is that of a semaphore, `origin` and `limit` those of a box of a tensor that they share.
    """

    site: Site
    values: Mapping[str, Function]
    exprs: tuple[Expr, ...]
    index: Expr | None = None
    origin: tuple[Expr, ...] = ()
    limit: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """Give a variable a value, known or not yet."""

    name: str
    expr: Expr
    value: Function
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
    sites: tuple[Site, ...] = ()
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
    code.sites = every(kernel)
    for kind in kinds:
        own = fixed[kind.cta] if isinstance(fixed, tuple) else fixed
        maker = _Assembler(code, kind, own, shared)
        maker.body(kernel.body, {}, ())
        code.programs.append(maker.out)
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
        self, code: Code, kind: Threads, fixed: Mapping[Expr, Expr], shared: frozenset[str]
    ) -> None:
        self.code = code
        self.kind, self.shared, self.fixed = kind, shared, fixed
        self.out: list[Instruction] = []
        self.sites = iter(code.sites)
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
        self, body: tuple[kir.Stmt, ...], lets: Mapping[Var, Expr], deep: tuple[int, ...]
    ) -> None:
        here = dict(lets)
        for stmt in body:
            site = next(self.sites)
            mine = site.place.has(self.kind)
            match stmt:
                case kir.Let(var, value):
                    self._let(var, self._plain(value, here), here, mine=mine)
                case kir.Assign(var, value):
                    if mine:
                        self._set(var, self._plain(value, here))
                case kir.ForLoop(index, stop, inner):
                    self._loop(index, self._plain(stop, here), inner, here, deep, site)
                case kir.IfThenElse(test, then, orelse):
                    self._branch(self._plain(test, here), (then, orelse), here, deep, site)
                case kir.Role() | kir.Elect():
                    self.body(stmt.body, here, deep)
                case kir.LastArriving():
                    last = self._plain(next(self.outcomes), here)
                    if mine:
                        self._do(site, here, last=last)
                    self._branch(last, (stmt.body, ()), here, deep, site)
                case _:
                    if mine:
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

    def _value(self, expr: Expr, site: Site) -> Function:
        if any(v.name in self.unknown for v in variables(expr)):
            return _unresolved(f"{site.where}: depends on {expr}, of which no CTA's value is known")
        return function(expr)

    def _loop(
        self,
        index: Var,
        stop: Expr,
        inner: tuple[kir.Stmt, ...],
        here: Mapping[Var, Expr],
        deep: tuple[int, ...],
        site: Site,
    ) -> None:
        _, parts = self.code.atoms.split(stop)
        test = self.code.atoms.condition(fold(Kind.LT, index, stop))
        asked = compared(test)
        if len(asked) == 1:
            (atom,) = asked
        else:
            atom = self.code.atoms.number(joined(parts)[0]) if parts else -1
        enter = Enter(site.index, index.name, stop, test, atom, len(deep), site)
        at = len(self.out)
        self.out.append(enter)
        mine = {v: e for v, e in here.items() if v != index}
        outside = set(self.given)
        self.given.add(index.name)
        self.body(inner, mine, (*deep, site.index) if parts else deep)
        self.given = outside
        if len(self.out) == at + 1:
            self.out.pop()
            return
        self.out.append(Next(at))
        enter.end = len(self.out)

    def _branch(
        self,
        test: Expr,
        ways: tuple[tuple[kir.Stmt, ...], tuple[kir.Stmt, ...]],
        here: Mapping[Var, Expr],
        deep: tuple[int, ...],
        site: Site,
    ) -> None:
        branch = Branch(test, self.code.atoms.condition(test), site)
        at = len(self.out)
        self.out.append(branch)
        self.body(ways[0], here, deep)
        jump = Jump()
        self.out.append(jump)
        branch.orelse = len(self.out)
        self.body(ways[1], here, deep)
        jump.to = len(self.out)
        if len(self.out) == at + 2:
            del self.out[at:]
        elif jump.to == branch.orelse:
            self.out.pop()
            branch.orelse = len(self.out)


def _unresolved(says: str) -> Function:
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


def reaches(program: list[Instruction]) -> Iterator[tuple[Instruction, int]]:
    """Yield the instructions, and the last place from which each may still be reached."""
    loops = [(at, i.end) for at, i in enumerate(program) if isinstance(i, Enter)]
    for at, i in enumerate(program):
        yield i, max((at, *(end - 1 for start, end in loops if start <= at < end)))


def last_deed(program: list[Instruction]) -> int:
    """Return the last place of a program from which a statement may still be reached."""
    return max((reach for i, reach in reaches(program) if isinstance(i, Do)), default=-1)


def last_reads(program: list[Instruction]) -> dict[str, int]:
    """Return by variable the last place of a program from which it may still be read."""
    out: dict[str, int] = {}
    for i, reach in reaches(program):
        match i:
            case Do(exprs=exprs, index=index, origin=origin):
                read = (*exprs, *origin, *(() if index is None else (index,)))
            case Set(expr=expr) | Branch(expr=expr):
                read = (expr,)
            case Enter(name=name, stop=stop):
                read = (Var(name), stop)
            case _:
                read = ()
        for name in {v.name for expr in read for v in variables(expr)}:
            out[name] = max(out.get(name, -1), reach)
    return out


def used_barriers(code: Code) -> frozenset[tuple[int, str]]:
    """Return the barriers, by CTA, that somebody uses once they are initialised."""
    ctas = {kind.cta for kind in code.kinds}
    out: set[tuple[int, str]] = set()
    for kind, program in zip(code.kinds, code.programs, strict=True):
        skipped = -1
        for at, i in enumerate(program):
            if isinstance(i, Branch) and i.expr == 0:
                skipped = max(skipped, i.orelse - 1)
            stmt = i.site.stmt if isinstance(i, Do) and at > skipped else None
            match stmt:
                case kir.MBarrierInit() | None:
                    continue
                case kir.MBarrierArrive(cta=int(cta)):
                    there = {cta}
                case kir.MBarrierArrive(cta=cta) if cta is not None:
                    there = ctas
                case kir.TmaLoad(multicast=mask) if mask is not None:
                    there = ctas
                case _:
                    there = {kind.cta}
            barrier = getattr(stmt, "barrier", None)
            if isinstance(barrier, kir.MBarrier):
                out |= {(cta, barrier.name) for cta in there}
    return frozenset(out)


def most_registers(program: list[Instruction]) -> int:
    """Return the largest number of registers that threads ever ask for more to have."""
    asked = [i.site.stmt for i in program if isinstance(i, Do)]
    return max(
        (s.registers for s in asked if isinstance(s, kir.SetMaxNReg) and s.increase), default=0
    )
