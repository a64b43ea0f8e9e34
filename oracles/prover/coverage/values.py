"""What statements compute with has a value: registers were written, and divisions mean something.

*Registers.*  A value stays until it is overwritten, so what is known of a fragment only grows along
a thread's program order.  For each kind of threads, conditions are kept under which a fragment has
been written; there is a value if one of them holds.  What a branch writes is written under its
condition, what a loop writes if the loop has an iteration: in its first or its last one, and for
a later iteration in the first or in the one before.  z3 is asked whether what is known where a
fragment is read gives one of the conditions.  Where that does not follow, small launches are
walked through, statement by statement.

*Divisions.*  By 0 C++ says nothing, and of a negative number it rounds towards 0, where Python
rounds down.  Every quotient and remainder that a statement evaluates is asked about as it is
written, before what its lets are is put in place, which may cancel it: in coordinates and limits of
boxes, slots, parities, turns, conditions, ends of loops and lets.  z3 is asked whether the divisor
is at least 1, and the dividend at least 0, under the conditions and in the loops around the
statement; of a condition with `&&` the right part is evaluated only where the left one holds.
Where that does not follow, small launches are tried one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import Function, Least, Values, function, poly, replace_tree, tree
from oracles.prover.reachability.code import signed
from oracles.prover.sites import (
    MOVING,
    Site,
    Threads,
    dealt,
    every,
    facts,
    fragments,
    kinds,
    unknown,
)
from oracles.prover.solver import Exact, Known
from oracles.verdict import Finding


@dataclass(frozen=True, slots=True)
class Covered:
    """What was found, how many claims hold, and why the rest is open."""

    checked: int
    findings: tuple[Finding, ...]
    reason: str = ""


ITERATIONS = 4000
"""Iterations of loops around boxes that one launch may have; one with more is not judged."""
ALL_ITERATIONS = 60_000
"""Iterations of all launches of a search together; a second."""


class TooManyError(Exception):
    """A launch has more iterations than are looked at."""


class Budget:
    """The iterations that may still be looked at, whether they show a box or not."""

    def __init__(self, left: int = ITERATIONS) -> None:
        self.left = left

    def spend(self) -> None:
        """Count an iteration; TooManyError if there is none left."""
        if self.left <= 0:
            raise TooManyError
        self.left -= 1


def small(kernel: kir.Kernel) -> Iterator[tuple[Values, Budget]]:
    """Yield the small launches, each with its iterations of what is left of those of all."""
    rest = ALL_ITERATIONS
    for values in launches.tried(kernel):
        budget = Budget(min(ITERATIONS, rest))
        rest -= budget.left
        yield values, budget
        rest += budget.left


def iterations(loops: list[tuple[str, Function]], values: Values) -> Iterator[Values]:
    """Yield the values of a launch with those of the indices of loops."""
    if not loops:
        yield values
        return
    (name, stop), *rest = loops
    for i in range(stop(values)):
        yield from iterations(rest, {**values, name: i})


# --- registers -----------------------------------------------------------------------------------

STEPS, ALL_STEPS = 20_000, 200_000
"""Statements that are walked through in one launch, and in all of them."""

Ways = frozenset[Expr]
Held = dict[tuple[str, int], Ways]
"""Conditions under which fragments have been written, by name and kind of threads."""
ALWAYS: Ways = frozenset({1})
NEVER: Ways = frozenset()


class OpenError(Exception):
    """A launch cannot be walked through."""


@dataclass(slots=True)
class _Use:
    """A fragment that is read, and what is known there: of the thread's way, and of the writes."""

    site: Site
    name: str
    path: tuple[Expr, ...]
    ways: Ways


def defined(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every use of a fragment: somebody wrote it on every way there."""
    walk = _Walk(kernel)
    open_: list[_Use] = []
    walk.started(open_.append)
    given = (*facts(kernel), *dealt(kernel))
    known = Known(given, rlimit)

    @cache
    def written(path: tuple[Expr, ...], ways: Ways) -> bool:
        return any(map(Least((*given, *path)).holds, ways)) or _written(path, ways, known)

    left = [use for use in open_ if not written(use.path, use.ways)]
    if not left:
        return Covered(walk.uses, ())
    found = tuple(_unwritten(kernel, walk, left))
    says = f"{left[0].site.where}: nothing shows that {left[0].name} has a value"
    return Covered(walk.uses, found, "" if found else says)


def _divisors(expr: Expr) -> Iterator[Expr]:
    """Yield what the number of a CTA is divided by."""
    match expr:
        case Op(Kind.FLOORDIV, kir.BLOCK, by):
            yield by
        case Op(_, a, b):
            yield from chain(_divisors(a), _divisors(b))
        case _:
            pass


def _written(path: tuple[Expr, ...], ways: Ways, known: Known) -> bool:
    nothing: Expr = 1
    for way in sorted(ways, key=str):
        nothing = both(nothing, eq(way, 0))
    claim = eq(nothing, 0)
    if known.gives(claim, *path):
        return True
    # products of unknowns cost least where the quotients are unknowns of their own
    exprs = [tree(poly(expr)) for expr in (*known.facts, *path, claim)]
    for by in {by for expr in exprs for by in _divisors(expr)}:
        share = kir.BLOCK // by
        exprs = [replace_tree(expr, share, Var(str(share))) for expr in exprs]
    return Exact(known.rlimit).given(exprs[:-1]).follows(exprs[-1])


def _unwritten(kernel: kir.Kernel, walk: _Walk, left: list[_Use]) -> list[Finding]:
    """Return what is read without a value: in every launch, or else in a small one."""
    never = [_finding(u, "for every launch") for u in left if not (u.path or u.ways)]
    if never:
        return never
    rest = ALL_STEPS
    for values in launches.tried(kernel):
        for block in range(values[kir.GRID.name]):
            found: list[_Use] = []
            walk.left = min(STEPS, rest)
            rest -= walk.left
            try:
                walk.started(found.append, {**values, kir.BLOCK.name: block})
            except (OpenError, ZeroDivisionError):
                found = []
            rest += walk.left
            if found:
                launch, names = launches.named(values)
                return [_finding(found[0], f"{names}: CTA {block}", launch)]
    return []


def _finding(use: _Use, when: str, launch: tuple[tuple[str, int], ...] = ()) -> Finding:
    says = f"{when}: {use.name} has no value yet"
    return Finding("RAW", use.site.where, says, lines=(use.site.line,), launch=launch)


@dataclass(slots=True)
class _Walk:
    """A walk through a kernel in program order, for all launches or through one."""

    kernel: kir.Kernel
    sites: tuple[Site, ...] = ()
    threads: tuple[Threads, ...] = ()
    uses: int = 0
    left: int = 0
    made: list[Var] = field(default_factory=list)
    one: bool = False
    tell: Callable[[_Use], None] | None = None

    def __post_init__(self) -> None:
        self.sites = every(self.kernel)
        self.threads = kinds(self.kernel, 1)
        self.uses = sum(any(fragments(site.stmt)) for site in self.sites)

    def started(self, tell: Callable[[_Use], None], values: Values | None = None) -> None:
        """Walk through all launches, or that of some values, and tell of what may be unwritten."""
        self.tell, self.one = tell, values is not None
        env: dict[Var, Expr] = {Var(name): value for name, value in (values or {}).items()}
        env[kir.RANK] = fold(Kind.MOD, env.get(kir.BLOCK, kir.BLOCK), self.kernel.cluster)
        self.body(self.kernel.body, 0, (), env, {})

    def body(
        self,
        body: tuple[kir.Stmt, ...],
        number: int,
        path: tuple[Expr, ...],
        env: dict[Var, Expr],
        held: Held,
    ) -> None:
        """Walk through statements, the first of this number; variables and `held` go along."""
        for stmt in body:
            inside = _assigned(stmt, env)
            match stmt:
                case kir.Let(var, value) | kir.Assign(var, value):
                    env[var] = substitute(value, env)
                case kir.ForLoop():
                    self.loop(stmt, number, path, env, held)
                case kir.IfThenElse():
                    self.branch(stmt, number, path, env, held)
                case kir.LastArriving():  # nobody else knows whether this CTA is the last
                    self.body(stmt.body, number + 1, path, dict(env), dict(held))
                    env |= self.anew(inside)
                case kir.Role() | kir.Elect():
                    self.body(stmt.body, number + 1, path, dict(env), held)
                    env |= self.anew(inside)  # other threads have not assigned them
                case _:
                    self.access(self.sites[number], path, env, held)
            number += sum(1 for _ in kir.walk((stmt,)))

    def access(
        self, site: Site, path: tuple[Expr, ...], env: Mapping[Var, Expr], held: Held
    ) -> None:
        """Tell of the fragments that a statement reads without a value, and note what it writes."""
        if self.one:
            self.left -= 1
            if self.left < 0:
                raise OpenError
        uses, makes = fragments(site.stmt)
        more = substitute(getattr(site.stmt, "accumulate", isinstance(site.stmt, kir.Mma)), env)
        wanted = [(fragment, path) for fragment in uses]
        if self.one and not isinstance(more, int):
            raise OpenError
        if more != 0:
            added = path if isinstance(more, int) else (*path, more)
            wanted += [(fragment, added) for fragment in makes]
        here = [kind for kind in self.threads if site.place.has(kind)]
        tell = self.tell
        for fragment, known in wanted:
            # threads beyond those that it is dealt to have no part of it
            last = site.place.base + fragment.layout.threads
            of = (kind for kind in here if kind.warps[0] * kir.WARP < last)
            for ways in {held.get((fragment.name, kind.index), NEVER) for kind in of}:
                if tell is not None and 1 not in ways:
                    tell(_Use(site, fragment.name, known, ways))
        held |= {(fragment.name, kind.index): ALWAYS for fragment in makes for kind in here}

    def branch(
        self,
        stmt: kir.IfThenElse,
        number: int,
        path: tuple[Expr, ...],
        env: dict[Var, Expr],
        held: Held,
    ) -> None:
        """Walk through both branches, or the one that is taken."""
        test, moved = substitute(stmt.condition, env), _assigned(stmt, env)
        orelse = number + 1 + sum(1 for _ in kir.walk(stmt.then))
        if isinstance(test, int):
            taken = (stmt.then, number + 1) if test else (stmt.orelse, orelse)
            inner = dict(env)
            self.body(*taken, path, inner, held)
            env |= {var: inner[var] for var in moved}
            return
        if self.one:
            raise OpenError
        not_ = eq(test, 0)
        ends, known = (dict(env), dict(env)), (dict(held), dict(held))
        self.body(stmt.then, number + 1, (*path, test), ends[0], known[0])
        self.body(stmt.orelse, orelse, (*path, not_), ends[1], known[1])
        for key in known[0] | known[1]:
            a, b = (one.get(key, NEVER) for one in known)
            either = {both(test, way) for way in a - b} | {both(not_, way) for way in b - a}
            held[key] = _ways(a & b | either)
        env |= {var: ends[0][var] for var in moved}
        env |= self.anew(var for var in moved if ends[0][var] != ends[1][var])

    def loop(
        self,
        stmt: kir.ForLoop,
        number: int,
        path: tuple[Expr, ...],
        env: dict[Var, Expr],
        held: Held,
    ) -> None:
        """Walk through a loop: all iterations of one launch, or one that stands for all.

        First to see what is written, then, where uses are told of, with what was written before.
        """
        stop, moved = substitute(stmt.stop, env), _assigned(stmt, env)
        if self.one:
            if not isinstance(stop, int):
                raise OpenError
            for i in range(stop):
                inner = {**env, stmt.index: i}
                self.body(stmt.body, number + 1, path, inner, held)
                env |= {var: inner[var] for var in moved}
            return
        first = len(self.made)
        (own,) = variables(self.anew([stmt.index], natural=True)[stmt.index])
        env |= self.anew(moved)
        here, inner = (*path, own < stop), {**env, stmt.index: own}
        tell, self.tell = self.tell, None
        once = dict(held)
        self.body(stmt.body, number + 1, here, dict(inner), once)
        self.tell = tell
        lost = {*self.made[first:]} - {own}

        def grown(when: Expr, *rounds: Expr) -> Held:
            """Return what has been written, too, where these iterations have been."""
            out = dict(held)
            for key, ways in once.items():
                more = [way for way in ways - held.get(key, NEVER) if not variables(way) & lost]
                known = {both(when, substitute(w, {own: r})) for w in more for r in rounds}
                out[key] = _ways(held.get(key, NEVER) | known)
            return out

        if tell is not None:
            entry = grown(fold(Kind.LE, 1, own), 0, own - 1)
            self.body(stmt.body, number + 1, here, inner, entry)
        held |= grown(fold(Kind.LT, 0, stop), 0, stop - 1)
        env |= self.anew(moved)

    def anew(self, moved: Iterable[Var], *, natural: bool = False) -> dict[Var, Expr]:
        """Return values that nobody knows; only those that are natural are at least 0."""
        out: dict[Var, Expr] = {}
        for var in moved:
            up, down = (Var(f"{var} {len(self.made)} {which}") for which in ("up", "down"))
            self.made += [up] if natural else [up, down]
            out[var] = up if natural else up - down
        return out


def _ways(found: Iterable[Expr]) -> Ways:
    some = frozenset(found) - {0}
    return ALWAYS if 1 in some else some


def _assigned(stmt: kir.Stmt, known: Mapping[Var, Expr]) -> list[Var]:
    """Return the variables, of those that are known around it, that a statement assigns."""
    found = dict.fromkeys(s.var for s in kir.walk((stmt,)) if isinstance(s, kir.Assign))
    return [var for var in found if var in known]


# --- divisions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Division:
    """A division of a statement, and what holds wherever it is done."""

    op: Op
    held: tuple[Expr, ...]
    site: Site

    @property
    def parts(self) -> tuple[Expr, Expr]:
        """The number that is divided, and by which, in the terms of its site."""
        return self.site.plain(self.op.a), self.site.plain(self.op.b)

    @property
    def when(self) -> tuple[Expr, ...]:
        """What holds where it is done, in the terms of its site."""
        return tuple(map(self.site.plain, self.held))


def divided(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every division, in every launch that a kernel allows.

    `rlimit` is the work limit of one z3 question.  With a finding if a launch divides by 0, or with
    a reason if that is not known.
    """
    asked: dict[tuple[Expr, ...], dict[Expr, Division]] = defaultdict(dict)
    for site in every(kernel):
        around = (*site.guards, *(loop.index < loop.stop for loop in site.loops))
        for op, held in _divisions(kir.expressions(site.stmt)):
            division = Division(op, held, site)
            number, by = division.parts
            for claim in (fold(Kind.LE, 1, by), fold(Kind.LE, 0, number)):
                if 0 not in site.guards and (not isinstance(claim, int) or not claim):
                    asked[*around, *division.when].setdefault(claim, division)
    moved = {s.var.name for s in kernel.walk() if isinstance(s, kir.Assign)}
    negative = moved & signed(kernel)
    left: list[Division] = []
    moves = {MOVING: Var("what is added") - Var("what is taken")} if negative else {}
    for held, each in asked.items():
        claims = {substitute(claim, moves): division for claim, division in each.items()}
        known = [substitute(one, moves) for one in (*facts(kernel), *held)]
        named: set[Var] = set().union(*map(variables, (*known, *claims)))
        known += [fold(Kind.LE, 0, v) for v in sorted(named, key=str)]
        least = Least(known)
        left += [
            division
            for claim, division in claims.items()
            if not least.holds(claim) and not Exact(rlimit).given(known).follows(claim)
        ]
    checked = sum(map(len, asked.values()))
    if not left:
        return Covered(checked, ())
    found = _meaningless(kernel, left)
    says = (
        f"{left[0].site.where}: nothing shows that {left[0].op} divides a number >= 0 by one >= 1"
    )
    return Covered(checked, (), says) if found is None else Covered(checked, (found,))


def _divisions(
    exprs: Iterable[Expr], held: tuple[Expr, ...] = ()
) -> Iterator[tuple[Op, tuple[Expr, ...]]]:
    """Yield the divisions in expressions, and what holds wherever they are done."""
    for expr in exprs:
        match expr:
            case Op(Kind.AND, a, b):
                yield from _divisions((a,), held)
                yield from _divisions((b,), (*held, a))
            case Op(kind, a, b):
                yield from _divisions((a, b), held)
                if kind in (Kind.FLOORDIV, Kind.MOD):
                    yield expr, held
            case _:
                pass


def _meaningless(kernel: kir.Kernel, left: list[Division]) -> Finding | None:
    """Search for a small launch in which a statement divides by 0."""
    known = [d for d in left if not unknown((*d.parts, *d.when, *d.site.conditions))]
    for values, budget in small(kernel) if known else ():
        for division in known:
            try:
                shown = _shown(division, values, budget)
            except TooManyError:
                shown = ""
            if shown:
                launch, names = launches.named(values)
                says, site = f"{names}: {shown}", division.site
                return Finding("bounds", site.where, says, lines=(site.line,), launch=launch)
    return None


def _shown(division: Division, values: Values, budget: Budget) -> str:
    """Say where a launch does a division that has no meaning; empty where none is shown."""
    site, op = division.site, division.op
    loops = [(loop.index.name, function(loop.stop)) for loop in site.loops]
    guards = [function(guard) for guard in (*site.guards, *division.when)]
    of, by = map(function, division.parts)
    for block in range(values[kir.GRID.name]):
        try:
            for now in iterations(loops, {**values, kir.BLOCK.name: block}):
                budget.spend()
                if all(guard(now) for guard in guards):
                    a, b = of(now), by(now)
                    if a < 0 or b < 1:
                        return f"CTA {block}: `{op}` is {a} {op.kind.value} {b}"
        except ZeroDivisionError:
            continue
    return ""
