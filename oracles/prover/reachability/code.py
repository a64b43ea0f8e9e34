"""What each kind of threads executes, as code with explicit positions; loops stay loops.

Lets whose value no thread can know (it depends on parameters or on the CTA's number) are put in
place; the others are variables of the thread.  `Code.cycles` says how the value of a variable
repeats for all that uses it, so that states of different iterations can be the same.

Conditions are ready to be decided: comparisons of one sum with 0, joined by *and* and *or*.  What a
thread's variables decide is a function of them; a trip count that no thread knows stands alone, and
is compared with such a function.  What cannot be brought to that form is decided as a whole, or
refused where it may change along a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from math import gcd
from typing import TypeVar, cast

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import (
    Function,
    UnsupportedError,
    carry,
    function,
    learn,
    linear,
    reworded,
)
from oracles.prover.sites import (
    AMONG_CTAS,
    Site,
    Threads,
    controls,
    every,
    kinds,
    outcomes,
    says,
    shared_tensors,
    touches,
)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The variables decide; `expr` is what they are asked."""

    expr: Expr
    value: Function


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast:
    """Whether an unknown is at least so much, or less than that; `expr` is the bound."""

    atom: int
    expr: Expr
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
    """A condition that is decided once for all threads, as a whole; or that it does not hold."""

    expr: Expr
    holds: bool = True


Leaf = Known | AtLeast | Asked
Condition = Leaf | Several


@dataclass(slots=True)
class Atoms:
    """The unknowns of a kernel by number; `names` are the parameters and `BLOCK`.

    `signed` are the variables that may be negative, `ends` the minima and maxima of unknowns that
    are the length of a loop: each of them counts as one unknown.  `sums` says what the unknowns are
    that stand for a sum of several; `facts` are sums that are at least 0 in every launch.
    """

    names: frozenset[str]
    found: dict[Expr, int]
    signed: frozenset[str] = frozenset()
    ends: frozenset[Expr] = frozenset()
    sums: dict[Expr, Expr] = field(default_factory=dict)
    facts: tuple[Expr, ...] = ()

    def number(self, atom: Expr) -> int:
        """Return the number of an unknown."""
        return self.found.setdefault(atom, len(self.found))

    def depends(self, expr: Expr) -> bool:
        """Whether an expression has an unknown in it."""
        return any(v.name in self.names for v in variables(expr))

    def split(self, expr: Expr) -> tuple[Expr, dict[Expr, int]]:
        """Return what the variables decide of a sum, and the multiples of unknowns in it."""
        constant, parts = linear(expr)
        known: Expr = constant
        unknown: dict[Expr, int] = {}
        for atom, times in parts.items():
            if self.depends(atom):
                unknown[atom] = times
            else:
                known = known + times * atom
        return known, unknown

    def condition(self, expr: Expr, *, holds: bool = True) -> Condition:
        """Return whether a condition holds (or does not), ready to be decided.

        It becomes comparisons of one sum with 0, joined by *and* and *or*: minima, maxima and
        conditions that are parts of a sum are told apart by cases (`_cases`), so that each number
        in them is compared with by itself, and none is lost beside an unknown.
        """
        if not self.depends(expr):
            return _known(expr if holds else eq(expr, 0))
        match expr:
            case Op(Kind.AND | Kind.MUL, a, b):  # neither is 0
                ways = self.condition(a, holds=holds), self.condition(b, holds=holds)
                return _several(*ways, every=holds)
            case Op(Kind.LT, a, b):
                return self._natural(b - a - 1 if holds else a - b)
            case Op(Kind.LE, a, b):
                return self._natural(b - a if holds else a - b - 1)
            case Op(Kind.EQ, a, b):
                return self._equal(a - b) if holds else self._unequal(a - b)
            case _:
                return self._unequal(expr) if holds else self._equal(expr)

    def _unequal(self, total: Expr) -> Condition:
        more = self._natural(total - 1)
        if _never_negative(total, self.signed):
            return more
        return _several(more, self._natural(-1 * total - 1), every=False)

    def _equal(self, total: Expr) -> Condition:
        value, unknown = self.split(total)
        if not unknown:
            return _known(eq(value, 0))
        if len(unknown) > 1 and linear(total)[0] > 0:
            return self._equal(-1 * total)
        if not any(map(self._cases_of, unknown)) and not self._mixed(unknown):
            _, times = self.joined(unknown)
            found = self._counted(unknown, -times * total)
            if found is not None:
                number, more = found
                low: Condition = _at_least(number, more - times * value, less=False)
                high: Condition = _at_least(number, more + 1 - times * value, less=True)
                low = _known(1) if self._follows(times * total) else low
                high = _known(1) if self._follows(-times * total) else high
                return _several(low, high, every=True)
        return _several(self._natural(total), self._natural(-1 * total), every=True)

    def _natural(self, total: Expr) -> Condition:
        """Return whether a sum is at least 0."""
        value, unknown = self.split(total)
        if not unknown:
            return _known(fold(Kind.LE, 0, value))
        if self._follows(total) or self._follows(-1 * total - 1):
            return _known(int(self._follows(total)))
        for part, times in unknown.items():
            cases = self._cases_of(part)
            if cases is not None:
                rest = total - times * part
                return self._cases(cases, times, rest)
        if not self._mixed(unknown):
            by = gcd(*unknown.values())
            if by > 1:
                constant, known = linear(value)
                left = sum((n % by * part for part, n in known.items()), start=constant % by)
                whole = sum((n // by * part for part, n in known.items()), start=constant // by)
                value = whole + fold(Kind.FLOORDIV, left, by)
                unknown = {part: times // by for part, times in unknown.items()}
                total = value + sum((times * part for part, times in unknown.items()), start=0)
            _, times = self.joined(unknown)
            found = self._counted(unknown, -times * total + (times == -1))
            if found is not None:
                number, more = found
                if times == 1:
                    return _at_least(number, more - value, less=False)
                return _at_least(number, more + 1 + value, less=True)
        return self._asked(total)

    def _follows(self, total: Expr) -> bool:
        """Whether a sum is at least 0 because one of the facts is."""
        rests = (linear(total - fact) for fact in self.facts)
        return any(_natural(parts, constant, self.signed) for constant, parts in rests)

    def _asked(self, total: Expr) -> Condition:
        """Return whether a sum is at least 0, which nobody knows; its opposite is asked alike."""
        _, parts = linear(total)
        if parts[min(parts, key=str)] > 0:
            return Asked(fold(Kind.LE, 0, total))
        return Asked(fold(Kind.LE, 0, -1 * total - 1), holds=False)

    def _cases(self, part: Op, times: int, rest: Expr) -> Condition:
        """Return whether `rest + times * part >= 0`, by the cases of a part."""
        if part.kind in (Kind.MIN, Kind.MAX):
            both = self._natural(rest + times * part.a), self._natural(rest + times * part.b)
            return _several(*both, every=(part.kind is Kind.MIN) == (times > 0))
        # a condition is 0 or 1: the sum is larger where it holds, or where it does not
        either = _several(
            self.condition(part, holds=times > 0), self._natural(rest + max(times, 0)), every=True
        )
        return _several(self._natural(rest + min(times, 0)), either, every=False)

    def _cases_of(self, part: Expr) -> Op | None:
        """Return a part of a sum as a minimum, a maximum or a condition; None if it is none.

        A quotient of a minimum is the minimum of the quotients.
        """
        match part:
            case Op(Kind.MIN | Kind.MAX, a, b):
                both = self.depends(a) and self.depends(b)
                return None if both and part in self.ends else part
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                return part
            case Op(Kind.FLOORDIV, a, int() as by) if by > 0:
                for inner, times in linear(a)[1].items():
                    found = self._cases_of(inner) if self.depends(inner) else None
                    if found is not None and found.kind in (Kind.MIN, Kind.MAX):
                        rest = a - times * inner
                        least = (found.kind is Kind.MIN) == (times > 0)
                        low, high = rest + times * found.a, rest + times * found.b
                        return Op(Kind.MIN if least else Kind.MAX, low // by, high // by)
                return None
            case _:
                return None

    def _mixed(self, unknown: Mapping[Expr, int]) -> bool:
        """Whether something that is no sum has variables in it: it is new for each value."""
        return any(v.name not in self.names for part in unknown for v in variables(part))

    def _counted(self, unknown: Mapping[Expr, int], bound: Expr) -> tuple[int, int] | None:
        """Return the number of what unknowns are joined to, and what was added to it.

        What is followed counts from 0, so that a sum that may be negative is 0 there, too: only
        bounds of 1 or more say the same of it.  For others so much is added to both; None if there
        is a bound that may be less, whatever is added, or if a multiple of them is meant.
        """
        atom, times = self.joined(unknown)
        least, parts = linear(bound)
        if times not in (1, -1):
            return None
        alone = len(unknown) == 1
        if all(_never_negative(part) and (n > 0 or alone) for part, n in unknown.items()):
            return self.number(atom), 0
        rest = {part: n for part, n in parts.items() if part not in unknown}
        if not _natural(rest, signed=self.signed):
            return None
        more = max(1 - least, 0)
        raised = Var(f"{atom} + {more}") if more else atom
        if more:
            self.sums[raised] = self.sums.get(atom, atom) + more
        return self.number(raised), more

    def joined(self, parts: Mapping[Expr, int]) -> tuple[Expr, int]:
        """Return a sum of unknowns as a multiple of one; a sum of several counts as one."""
        if len(parts) == 1:
            ((atom, times),) = parts.items()
            return atom, times
        ordered = sorted(parts.items(), key=str)
        whole = Var(" + ".join(f"{times} * {atom}" for atom, times in ordered))
        self.sums[whole] = sum((times * atom for atom, times in ordered), start=0)
        return whole, 1

    def meaning(self, number: int) -> Expr:
        """Return what an unknown is, over parameters and `BLOCK`."""
        atom = next(e for e, n in self.found.items() if n == number)
        return self.sums.get(atom, atom)


def _known(expr: Expr) -> Known:
    return Known(expr, function(expr))


def _at_least(atom: int, bound: Expr, *, less: bool) -> AtLeast:
    constant, parts = linear(bound)
    bound = sum((times * part for part, times in parts.items()), start=constant)
    return AtLeast(atom, bound, function(bound), less)


def _several(first: Condition, second: Condition, *, every: bool) -> Condition:
    """Join two conditions; a number decides for itself."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Known) and isinstance(one.expr, int):
            return other if bool(one.expr) == every else one
    return Several(first, second, every)


def _natural(
    parts: Mapping[Expr, int], constant: int = 0, signed: frozenset[str] = frozenset()
) -> bool:
    """Whether a sum of multiples is never negative, as far as is plain to see.

    The number of a CTA is less than how many there are.
    """
    left = dict(parts)
    ctas = min(-left.get(kir.BLOCK, 0), left.get(kir.GRID, 0))
    if ctas > 0:
        left[kir.BLOCK] += ctas
        left[kir.GRID] -= ctas
        constant += ctas
    counted = all(n == 0 or (n > 0 and _never_negative(part, signed)) for part, n in left.items())
    return constant >= 0 and counted


def _never_negative(expr: Expr, signed: frozenset[str] = frozenset()) -> bool:
    match expr:
        case int():
            return expr >= 0
        case Var(name):
            return name not in signed
        case Op(Kind.MAX, a, b):
            return _never_negative(a, signed) or _never_negative(b, signed)
        case Op(Kind.MUL | Kind.FLOORDIV | Kind.MOD | Kind.MIN, a, b):
            return _never_negative(a, signed) and _never_negative(b, signed)
        case Op(Kind.ADD | Kind.SUB):
            constant, parts = linear(expr)
            return _natural(parts, constant, signed)
        case _:
            return True


def leaves(test: Condition) -> Iterator[Leaf]:
    """Yield the comparisons that a condition is made of."""
    match test:
        case Several(first, second):
            yield from leaves(first)
            yield from leaves(second)
        case _:
            yield test


def comparisons_of(test: Condition) -> Iterator[AtLeast]:
    """Yield the comparisons with unknowns that a condition is made of."""
    return (leaf for leaf in leaves(test) if isinstance(leaf, AtLeast))


def compared(test: Condition) -> frozenset[int]:
    """Return the unknowns that a condition compares with, by number."""
    return frozenset(one.atom for one in comparisons_of(test))


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    """Execute a statement; `values` are its control expressions by name.

    `index` is that of a semaphore, `origin` and `limit` those of a box of a tensor that they share,
    `says` origin and limit of a tensor map that the kernel writes.
    """

    site: Site
    values: Mapping[str, Function]
    exprs: tuple[Expr, ...]
    index: Expr | None = None
    origin: tuple[Expr, ...] = ()
    limit: tuple[Expr, ...] = ()
    says: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """Give a variable a value, known or not yet."""

    name: str
    expr: Expr
    value: Function
    terms: tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)
class Enter:
    """Begin a loop; `atom` is the unknown that its end depends on, if any.

    `expr` is what `test` decides: whether there is another iteration.
    """

    number: int
    name: str
    stop: Expr
    expr: Expr
    test: Condition
    atom: int
    depth: int
    site: Site
    end: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Next:
    """Go on with the next iteration: its number becomes `expr`."""

    enter: int
    name: str
    expr: Expr


@dataclass(slots=True, eq=False)
class Branch:
    """Go to `orelse` where the condition is 0."""

    expr: Expr
    test: Condition
    orelse: int = 0


@dataclass(slots=True, eq=False)
class Jump:
    """Go on elsewhere."""

    to: int = 0


Instruction = Do | Set | Enter | Next | Branch | Jump
T = TypeVar("T")


class Program(list[Instruction]):
    """The instructions of some threads, and what has been found out about them."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[Hashable, object] = {}

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return the answer to a question about the program, found out when first asked."""
        if question not in self._answers:
            self._answers[question] = answer()
        return cast(T, self._answers[question])


@dataclass(slots=True)
class Code:
    """A kernel as code: one list of instructions for each kind of threads.

    Kinds of a CTA that execute the same statements have one and the same list.
    `fixed` has, of each CTA that is followed, what is known of it in this reading.
    """

    kernel: kir.Kernel
    kinds: tuple[Threads, ...]
    fixed: tuple[Mapping[Expr, Expr], ...] = ()
    sites: tuple[Site, ...] = ()
    programs: list[Program] = field(default_factory=list)
    cycles: dict[str, tuple[int, int]] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    atoms: Atoms = field(default_factory=lambda: Atoms(frozenset(), {}))
    counts: frozenset[int] = frozenset()
    lengths: Mapping[Expr, frozenset[int]] = field(default_factory=dict)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all programs, each once."""
        return chain.from_iterable({id(program): program for program in self.programs}.values())


CLUSTER = Var("number of the cluster")
GROUP = Var("number of the CTAs that share a semaphore")
UNKNOWN = (kir.BLOCK, kir.GRID, CLUSTER, GROUP)
DEALT = 8
"""Iterations of a loop that make a round even if no other loop goes by the same unknown."""
POSITIONS = frozenset({"slot", "a", "bar", "parity", "map"})
"""Values of a statement that are found by a position in a ring."""


def assemble(
    kernel: kir.Kernel, fixed: Sequence[Mapping[Expr, Expr]], facts: tuple[Expr, ...] = ()
) -> Code:
    """Compile a kernel for every kind of threads, in one reading (`Compiler.code`)."""
    return Compiler(kernel).code(fixed, facts)


class Compiler:
    """Compiles a kernel in several readings; what is the same in two of them, once."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        unknown = (*UNKNOWN, *outcomes(kernel), *kernel.params)
        self._names = frozenset(v.name for v in unknown)
        self._signed, self._ends = signed(kernel), _ends(kernel, self._names)
        self._sites, self._lengths = every(kernel), _lengths(kernel)
        self._shared = shared_tensors(kernel)
        self._kinds: dict[int, tuple[Threads, ...]] = {}
        self._atoms: dict[Hashable, Atoms] = {}
        self._programs: dict[Hashable, Program] = {}

    def code(self, fixed: Sequence[Mapping[Expr, Expr]], facts: tuple[Expr, ...] = ()) -> Code:
        """Compile the kernel for every kind of threads.

        `fixed` has, of each CTA that is followed, the expressions over parameters and `BLOCK` that
        are known in this reading, such as the turn; `facts` are sums that are at least 0 in any
        launch.
        """
        many = len(fixed)
        if many not in self._kinds:
            self._kinds[many] = kinds(self.kernel, many)
        atoms = self._atoms.setdefault(
            (many, facts), Atoms(self._names, {}, self._signed, self._ends, facts=facts)
        )
        code = Code(self.kernel, self._kinds[many], tuple(fixed), self._sites, atoms=atoms)
        code.lengths = self._lengths
        known = [(many, facts, cta, *given.items()) for cta, given in enumerate(fixed)]
        makers: dict[int, _Assembler] = {}
        for kind in code.kinds:
            mine = tuple(site.place.has(kind) for site in code.sites)
            key = known[kind.cta], mine
            if key not in self._programs:
                if kind.cta not in makers:
                    makers[kind.cta] = _Assembler(code, kind.cta, self._shared)
                self._programs[key] = makers[kind.cta].program(mine)
            code.programs.append(self._programs[key])
        _follow(code)
        return code


def _follow(code: Code) -> None:
    """Find what moves in the code, and in which cycles."""
    loops = [i for i in code.instructions if isinstance(i, Enter)]
    sets = [i for i in code.instructions if isinstance(i, Set)]
    code.moving = frozenset(i.name for i in loops) | frozenset(i.name for i in sets)
    code.counts = frozenset(i.atom for i in loops if i.atom >= 0)
    uses: list[Expr] = []
    for i in code.instructions:
        match i:
            case Do():
                uses += i.exprs
            case Set(name, expr):
                uses.append(substitute(expr, {Var(name): 0}))  # what it takes of the others
            case Enter() | Branch():
                uses += [leaf.expr for leaf in leaves(i.test)]
            case _:
                pass
    ends = _most(loops)
    for use in dict.fromkeys(uses):
        learn(code.cycles, code.moving, use, ends)
    given = list(dict.fromkeys((i.name, i.expr) for i in sets))
    carry(code.cycles, code.moving, given)
    for i in sets:
        if Var(i.name) not in variables(i.expr):
            _counted_out(code, i, [e.name for e in loops if e.atom in dict(i.terms)])
    carry(code.cycles, code.moving, given)


def _most(loops: Sequence[Enter]) -> dict[str, int]:
    """Return up to where counters go whose loops end by numbers, and by such counters around."""
    found: dict[str, int] = {}
    for i in loops:
        names = sorted(v.name for v in variables(i.stop))
        if all(name in found for name in names):
            each = product(*(range(found[name]) for name in names))
            stop = function(i.stop)
            many = max((stop(dict(zip(names, one, strict=True))) for one in each), default=0)
            found[i.name] = max(many, found.get(i.name, 0))
    return found


def _counted_out(code: Code, i: Set, counters: Sequence[str]) -> None:
    """Widen the cycles of counters by what is made of how far they have counted."""
    threshold, period = code.cycles.get(i.name, (0, 1))
    for (_, times), name in product(i.terms, counters):
        for use in (Op(Kind.MOD, times * Var(name), period), Op(Kind.MIN, Var(name), threshold)):
            learn(code.cycles, code.moving, use)


def signed(kernel: kir.Kernel) -> frozenset[str]:
    """Return the variables that may be negative."""
    given = [(s.var.name, s.value) for s in kernel.walk() if isinstance(s, kir.Let | kir.Assign)]
    known: frozenset[str] = frozenset()
    while True:
        found = frozenset(name for name, value in given if not _never_negative(value, known))
        if found == known:
            return known
        known = found


def _ends(kernel: kir.Kernel, names: frozenset[str]) -> frozenset[Expr]:
    """Return the minima and maxima of unknowns that loops run to."""
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
    stops = [s.stop for s in kernel.walk() if isinstance(s, kir.ForLoop)]
    parts = (part for stop in stops for part in linear(_counted(substitute(stop, lets)))[1])
    least = (part for part in parts if isinstance(part, Op) and part.kind in (Kind.MIN, Kind.MAX))
    return frozenset(
        one
        for one in least
        if all(any(v.name in names for v in variables(side)) for side in (one.a, one.b))
    )


def _lengths(kernel: kir.Kernel) -> Mapping[Expr, frozenset[int]]:
    """Return the parameters that loops run to, beside numbers, with their multiples."""
    moved = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let) and s.var not in moved}
    found: dict[Expr, frozenset[int]] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.ForLoop):
            stop = stmt.stop
            for _ in lets:
                stop = substitute(stop, lets)
            match list(linear(stop)[1].items()):
                case [(Var() as count, by)] if count in kernel.params and by > 0:
                    found[count] = found.get(count, frozenset()) | {by}
                case _:
                    pass
    return found


def _counted(stop: Expr) -> Expr:
    """Return the end of a loop without the 0 that it is at least: a loop counts from there."""
    match stop:
        case Op(Kind.MAX, end, int() as low) | Op(Kind.MAX, int() as low, end) if low <= 0:
            return _counted(end)
        case _:
            return stop


class _Assembler:
    """Write the code of threads of a CTA."""

    def __init__(self, code: Code, cta: int, shared: frozenset[str]) -> None:
        self.code, self.shared, self.fixed = code, shared, code.fixed[cta]
        self.rank = cta % code.kernel.cluster
        self.unknown = code.atoms.names
        self.plain: dict[Expr, Expr] = {}
        self.elections = outcomes(code.kernel)
        self.moving = {s.var.name for s in code.kernel.walk() if isinstance(s, kir.Assign)}

    def program(self, mine: Sequence[bool]) -> Program:
        """Return the code of those who execute the sites that are `mine`."""
        self.mine = mine
        self.out = Program()
        self.here = 0
        self.given: set[str] = set()
        self.outcomes = iter(self.elections)
        self.body(self.code.kernel.body, {kir.RANK: self.rank}, ())
        return self.out

    def _plain(self, expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
        """Put what is known in place: lets, the rank in the cluster, and what the CTA fixes."""
        whole = substitute(expr, lets)
        if whole not in self.plain:
            many, plain = self.code.kernel.cluster, reworded(whole, self.fixed)
            if many > 1:
                plain = reworded(reworded(plain, _in_cluster(many, self.rank)), self.fixed)
            self.plain[whole] = plain
        whole = self.plain[whole]
        for var in variables(whole):
            if var.name not in self.unknown and var.name not in self.given:
                raise UnsupportedError(f"`{expr}`: {var} has no value here")
        return whole

    def body(
        self, body: tuple[kir.Stmt, ...], lets: Mapping[Var, Expr], deep: tuple[int, ...]
    ) -> None:
        here = dict(lets)
        for stmt in body:
            site, mine = self.code.sites[self.here], self.mine[self.here]
            self.here += 1
            match stmt:
                case kir.Let(var, value):
                    self._let(var, self._plain(value, here), here, mine=mine)
                case kir.Assign(var, value):
                    if mine:
                        self._set(var, self._plain(value, here))
                case kir.ForLoop():
                    self._loop(stmt, here, deep, site)
                case kir.IfThenElse(test, then, orelse):
                    self._branch(self._plain(test, here), (then, orelse), here, deep)
                case kir.Role() | kir.Elect():
                    self.body(stmt.body, here, deep)
                case kir.LastArriving():
                    last = self._plain(next(self.outcomes), here)
                    if mine:
                        self._do(site, here, last=last)
                    self._branch(last, (stmt.body, ()), here, deep)
                case _:
                    if mine:
                        self._do(site, here)

    def _skip(self, body: tuple[kir.Stmt, ...]) -> None:
        """Go on behind statements that are not executed."""
        for stmt in kir.walk(body):
            self.here += 1
            if isinstance(stmt, kir.LastArriving):
                next(self.outcomes)

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
        known, parts = self.code.atoms.split(expr)
        terms = tuple((self.code.atoms.number(atom), times) for atom, times in parts.items())
        self.out.append(Set(var.name, expr, function(known), terms))

    def _do(self, site: Site, here: Mapping[Var, Expr], **more: Expr) -> None:
        exprs = {name: self._plain(e, here) for name, e in controls(site.stmt).items()} | more
        exprs |= {name: self._placed(exprs[name]) for name in POSITIONS & exprs.keys()}
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
        told = says(site.stmt)
        said = () if told is None else (*told[0].origin, *told[1])
        says_ = tuple(self._plain(e, here) for e in said)
        self.out.append(Do(site, values, tuple(exprs.values()), index, origin, limit, says_))

    def _placed(self, expr: Expr) -> Expr:
        """Put a position that the length of a loop is a part of into a variable, and use that."""
        match expr:
            case Op(Kind.MOD | Kind.FLOORDIV | Kind.ADD as kind, inner, int() as by):
                return fold(kind, self._placed(inner), by)
            case Var() | Op() if self.code.atoms.depends(expr):
                _, parts = self.code.atoms.split(expr)
                if not parts.keys() <= self.code.lengths.keys():
                    return expr
                at = Var(f"position {expr}")
                self._set(at, expr)
                return at
            case _:
                return expr

    def _value(self, expr: Expr, site: Site) -> Function:
        if any(v.name in self.unknown for v in variables(expr)):
            return _unresolved(f"{site.where}: depends on {expr}, of which no CTA's value is known")
        return function(expr)

    def _loop(
        self, loop: kir.ForLoop, here: Mapping[Var, Expr], deep: tuple[int, ...], site: Site
    ) -> None:
        index, stop = loop.index, _counted(self._plain(loop.stop, here))
        lets = {v: e for v, e in here.items() if v != index}
        outside, first = set(self.given), self.here

        def once(more: Mapping[Var, Expr], inside: tuple[int, ...]) -> None:
            self.here = first
            self.body(loop.body, {**lets, **more}, inside)

        constant, parts = linear(stop)
        by = self._dealt(constant, parts)
        if by == 1:
            self.given.add(index.name)
            self._rounds(index, stop, deep, site, lambda inside: once({}, inside))
        else:
            (count,) = parts
            turn = Var(f"{index} by {by}")
            self.given.add(turn.name)
            each = [{index: turn * by + i} for i in range(by)]

            def several(inside: tuple[int, ...]) -> None:
                for more in each:
                    once(more, inside)

            rounds = count + constant // by
            if self._rounds(turn, rounds, deep, site, several):
                for i in range(constant % by):
                    once({index: rounds * by + i}, deep)
        self.given = outside

    def _dealt(self, constant: int, parts: Mapping[Expr, int]) -> int:
        """Return how many iterations of a loop make a round.

        Loops that end by different multiples of one unknown go through that many rounds, all of
        them; the iterations that are left come behind the loop.
        """
        if len(parts) != 1 or constant < 0:
            return 1
        ((count, by),) = parts.items()
        lengths = self.code.lengths.get(count, frozenset())
        return by if len(lengths) > 1 or (by in lengths and by <= DEALT) else 1

    def _rounds(
        self,
        index: Var,
        stop: Expr,
        deep: tuple[int, ...],
        site: Site,
        body: Callable[[tuple[int, ...]], None],
    ) -> bool:
        """Write a loop; return whether these threads do anything in it."""
        _, parts = self.code.atoms.split(stop)
        more = Op(Kind.LT, index, stop)
        test = self.code.atoms.condition(fold(Kind.LT, index, stop))
        asked = compared(test)
        if len(asked) == 1:
            (atom,) = asked
        else:
            atom = self.code.atoms.number(self.code.atoms.joined(parts)[0]) if parts else -1
        enter = Enter(site.index, index.name, stop, more, test, atom, len(deep), site)
        at = len(self.out)
        self.out.append(enter)
        body((*deep, site.index) if parts else deep)
        if len(self.out) == at + 1:
            self.out.pop()
            return False
        self.out.append(Next(at, index.name, index + 1))
        enter.end = len(self.out)
        return True

    def _branch(
        self,
        test: Expr,
        ways: tuple[tuple[kir.Stmt, ...], tuple[kir.Stmt, ...]],
        here: Mapping[Var, Expr],
        deep: tuple[int, ...],
    ) -> None:
        if isinstance(test, int):
            for way, taken in zip(ways, (test != 0, test == 0), strict=True):
                if taken:
                    self.body(way, here, deep)
                else:
                    self._skip(way)
            return
        branch = Branch(test, self.code.atoms.condition(test))
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


def _in_cluster(many: int, rank: int) -> dict[Expr, Expr]:
    """Say `BLOCK`, of which each CTA of a cluster has its own, by the cluster's number."""
    return {
        kir.BLOCK % many: rank,
        kir.BLOCK // many: CLUSTER,
        kir.BLOCK: CLUSTER * many + rank,
    }


def reaches(program: list[Instruction]) -> Iterator[tuple[Instruction, int]]:
    """Yield the instructions, and the last place from which each may still be reached."""
    loops = [(at, i.end) for at, i in enumerate(program) if isinstance(i, Enter)]
    for at, i in enumerate(program):
        yield i, max((at, *(end - 1 for start, end in loops if start <= at < end)))
