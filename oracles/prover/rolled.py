"""Loops that people cut in parts, as one loop each.

A prologue and the rest, two steps an iteration and a guard for the last one, chunks of a few, one
way for short lengths and one for others: each is the same sequence of statements as one loop.  Two
runs of statements, one behind the other, are one run where those of the second are those of the
first further on.  That the numbers in them are equal there, and that the lengths add up, is asked
of z3 for every launch.  So each thread executes what it did, in the same order, with the same
numbers.

What a position has counted is put in its place, where each iteration of a loop adds the same
number to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import pairwise
from random import Random

from fuser.expr import Expr, Kind, Op, Var, eq, fold, maximum, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import function, linear, parts_of, poly, tree
from oracles.prover.plain import RLIMIT, decided, ended, equated, inlined, mapped
from oracles.prover.sites import facts, fixed_grid
from oracles.prover.solver import Known

MOST = 4
"""Steps of an iteration that are told apart, at most."""
TRIED, SMALL = 200, 7
"""Launches that a claim is tried with before z3 is asked, and how large their numbers are."""
NEXT, HERE = Var("iteration of a run"), Var("position before an iteration")


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement without its bodies, its number in program order, and its bodies."""

    stmt: kir.Stmt
    number: int
    bodies: tuple[Body, ...] = ()


Body = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Rolled:
    """A kernel, and which statement of another one each of its statements is."""

    kernel: kir.Kernel
    origin: tuple[int, ...]


@lru_cache(maxsize=8)
def plainer(kernel: kir.Kernel) -> Rolled:
    """Return a kernel that does the same in every launch, in fewer words; `inlined` at least."""
    found = rolled(decided(ended(equated(inlined(kernel)))))
    return replace(found, kernel=decided(found.kernel))


def repeats(body: tuple[kir.Stmt, ...]) -> bool:
    """Whether statements stand there twice in a row, or a loop in a loop: parts of one, it may be.

    That is to be seen at once; whether they are takes longer than most proofs.
    """
    each = [_leaves((stmt,)) for stmt in body]
    for at, stmt in enumerate(body):
        own = each[at]
        behind = [sort for one in each[at + 1 :] for sort in one]
        before = [sort for one in each[:at] for sort in one]
        match stmt:
            case kir.ForLoop(_, _, inner) if own:
                steps = (n for n in range(1, len(own)) if own == own[:n] * (len(own) // n))
                alone = len(inner) == 1 and isinstance(inner[0], kir.ForLoop)
                beside = own in (behind[: len(own)], before[-len(own) :])
                if alone or beside or next(steps, 0):
                    return True
            case kir.IfThenElse(_, then, orelse) if orelse and _leaves(then) == _leaves(orelse):
                return True
            case _:
                pass
        if any(map(repeats, kir.bodies(stmt))):
            return True
    return False


def _leaves(body: tuple[kir.Stmt, ...]) -> list[type]:
    """Return the sorts of statements in a body, but for those that only say who and how often."""
    left = kir.Let | kir.Assign | kir.ForLoop | kir.IfThenElse | kir.Role | kir.Elect
    return [type(stmt) for stmt in kir.walk(body) if not isinstance(stmt, left)]


def rolled(kernel: kir.Kernel) -> Rolled:
    """Return a kernel that does the same in every launch, in fewer loops; or itself."""
    first = _pieces(kernel.body, iter(range(sum(1 for _ in kernel.walk()))))
    same = Rolled(kernel, tuple(_numbers(first)))
    if _shadows(first, frozenset({*kernel.params, kir.BLOCK, kir.GRID, kir.RANK})):
        return same
    body = first
    for var in dict.fromkeys(s.var for s in kernel.walk() if isinstance(s, kir.Assign)):
        try:
            body, _ = _counted(body, var, None)
        except _OpenError:
            continue
    plain = inlined(replace(kernel, body=_built(body)))
    body = _without_lets(_pieces(plain.body, _numbers(body)))
    roller = _Roller(plain)
    joined = _stepped(roller.body(body, ()), roller)
    made = replace(plain, body=_built(joined))
    return same if joined == _without_lets(first) else Rolled(made, tuple(_numbers(joined)))


def cut(kernel: kir.Kernel, origin: tuple[int, ...], lengths: frozenset[Var]) -> Rolled:
    """Cut loops to the sum of two lengths in two, in the order in which others have these."""
    body = _pieces(kernel.body, iter(origin))
    ends = [linear(p.stmt.stop)[1] for p in _every(body) if isinstance(p.stmt, kir.ForLoop)]
    alone = (part for end in ends if len(end) == 1 for part in end if part in lengths)
    first = next(alone, min(lengths, key=str))
    roller = _Roller(kernel)

    def parts(body: Body, assumed: tuple[Expr, ...]) -> Iterator[Piece]:
        for piece in body:
            stmt, within = piece.stmt, assumed
            if isinstance(stmt, kir.ForLoop):
                within = (*assumed, stmt.index < stmt.stop)
                if linear(stmt.stop)[1] == dict.fromkeys(lengths, 1):
                    inner = piece.bodies[0]
                    for start, end in ((0, first), (first, stmt.stop - first)):
                        end = tree(poly(end))
                        held = (*assumed, stmt.index < end)
                        own = _put(inner, stmt.index, start + stmt.index)
                        own = tuple(parts(roller.resolved(own, held), held))
                        yield _ending(replace(piece, bodies=(own,)), end)
                    continue
            yield replace(piece, bodies=tuple(tuple(parts(b, within)) for b in piece.bodies))

    made = tuple(parts(body, ()))
    return Rolled(replace(kernel, body=_built(made)), tuple(_numbers(made)))


# --- pieces ---------------------------------------------------------------------------------------


def _pieces(body: tuple[kir.Stmt, ...], numbers: Iterator[int]) -> Body:
    out = []
    for stmt in body:
        number = next(numbers)
        inner = tuple(_pieces(one, numbers) for one in kir.bodies(stmt))
        out.append(Piece(kir.inside(stmt, lambda _: ()), number, inner))
    return tuple(out)


def _built(body: Body) -> tuple[kir.Stmt, ...]:
    out = []
    for piece in body:
        inner = map(_built, piece.bodies)
        out.append(kir.inside(piece.stmt, partial(_next, inner)))
    return tuple(out)


def _next(bodies: Iterator[tuple[kir.Stmt, ...]], _: tuple[kir.Stmt, ...]) -> tuple[kir.Stmt, ...]:
    return next(bodies)


def _numbers(body: Body) -> Iterator[int]:
    for piece in body:
        yield piece.number
        for inner in piece.bodies:
            yield from _numbers(inner)


def _every(body: Body) -> Iterator[Piece]:
    for piece in body:
        yield piece
        for inner in piece.bodies:
            yield from _every(inner)


def _shadows(body: Body, outer: frozenset[Var]) -> bool:
    """Whether a name that has a value is given to something else."""
    for piece in body:
        own: frozenset[Var] = frozenset()
        match piece.stmt:
            case kir.ForLoop(var) | kir.Let(var):
                own = frozenset({var})
            case _:
                pass
        if own & outer or any(_shadows(inner, outer | own) for inner in piece.bodies):
            return True
        if isinstance(piece.stmt, kir.Let):
            outer |= own
    return False


def _without_lets(body: Body) -> Body:
    """Leave out values that nobody uses any more."""
    used: set[Var] = set()

    def note(expr: Expr) -> Expr:
        used.update(variables(expr))
        return expr

    for piece in _every(body):
        match piece.stmt:
            case kir.Let(_, value):
                note(value)
            case kir.ForLoop(_, stop):
                note(stop)
            case stmt:
                mapped(stmt, note)

    def left(body: Body) -> Body:
        return tuple(
            replace(p, bodies=tuple(map(left, p.bodies)))
            for p in body
            if not (isinstance(p.stmt, kir.Let) and p.stmt.var not in used)
        )

    return left(body)


# --- positions that count -------------------------------------------------------------------------


class _OpenError(Exception):
    """It is not known what a variable is."""


def _counted(body: Body, var: Var, value: Expr | None) -> tuple[Body, Expr | None]:
    """Put in the place of a variable what it has counted; return its value behind the body, too.

    Raises
    ------
    _OpenError
        If it is used where its value is not known as a sum.
    """
    out: list[Piece] = []
    outer, own = value, False

    def put(expr: Expr) -> Expr:
        if var not in variables(expr):
            return expr
        if value is None:
            raise _OpenError
        return substitute(expr, {var: value})

    for piece in body:
        stmt = piece.stmt
        assigned = any(isinstance(p.stmt, kir.Assign) and p.stmt.var == var
                       for inner in piece.bodies for p in _every(inner))  # fmt: skip
        match stmt:
            case kir.Let(name, given) if name == var:
                value, own = put(given), True
                continue
            case kir.Assign(name, given) if name == var:
                value = put(given)
                continue
            case kir.ForLoop(index, stop) if assigned:
                if value is None:
                    raise _OpenError
                inner, after = _counted(piece.bodies[0], var, HERE)
                more, parts = linear(0 if after is None else after)
                if parts != {HERE: 1}:
                    raise _OpenError
                made = replace(stmt, stop=put(stop))
                inner = _put(inner, HERE, value + index * more)
                out.append(Piece(made, piece.number, (inner,)))
                value = value + more * maximum(made.stop, 0)
            case _:
                ends = [_counted(inner, var, value) for inner in piece.bodies]
                stmt = mapped(stmt, put)
                out.append(replace(piece, stmt=stmt, bodies=tuple(inner for inner, _ in ends)))
                if assigned:  # other threads, or another branch, may have other values
                    after_each = {after for _, after in ends}
                    branch = isinstance(stmt, kir.IfThenElse) and len(after_each) == 1
                    value = after_each.pop() if branch else None
    return tuple(out), outer if own else value


def _stepped(body: Body, roller: _Roller) -> Body:
    """Count positions `t * n + k` up, where a loop k of n iterations stands in a loop t."""
    out: list[Piece] = []
    for piece in body:
        piece = replace(piece, bodies=tuple(_stepped(inner, roller) for inner in piece.bodies))
        stmt, inside = piece.stmt, list(_every(piece.bodies[0])) if piece.bodies else []
        loops = [p for p in inside if isinstance(p.stmt, kir.ForLoop)]
        if isinstance(stmt, kir.ForLoop) and len(loops) == 1 and loops[0] in piece.bodies[0]:
            once = loops[0]
            assert isinstance(once.stmt, kir.ForLoop), "one of the loops"
            product = fold(Kind.MUL, stmt.index, once.stmt.stop)
            at = Var(f"{stmt.index} * {once.stmt.stop} + {once.stmt.index}")
            made = tuple(_moving(p, product, once.stmt.index, at) for p in once.bodies[0])
            if made != once.bodies[0] and roller.natural(once.stmt.stop) == once.stmt.stop:
                made = (*made, Piece(kir.Assign(at, at + 1), once.number))
                new = replace(once, bodies=(made,))
                outer = tuple(new if p is once else p for p in piece.bodies[0])
                out.append(Piece(kir.Let(at, 0), piece.number))
                piece = replace(piece, bodies=(outer,))
        out.append(piece)
    return tuple(out)


def _moving(piece: Piece, product: Expr, index: Var, at: Var) -> Piece:
    """Put a variable in place of a product and an index, but where boxes lie."""

    def put(expr: Expr) -> Expr:
        constant, parts = linear(expr)
        times = parts.get(product, 0)
        total: Expr = constant
        if times and parts.get(index) == times:
            parts = {part: n for part, n in parts.items() if part not in (product, index)}
            total = total + times * at
        for part, n in parts.items():
            if isinstance(part, Op) and part != product:
                part = fold(part.kind, put(part.a), put(part.b))
            total = total + n * part
        return total

    own = {f.name: getattr(piece.stmt, f.name) for f in fields(piece.stmt)}
    new = {
        name: mapped(part, lambda e: put(e) if product in _parts(e) else e)
        for name, part in own.items()
        if not isinstance(part, kir.Box)
    }
    inner = tuple(tuple(_moving(p, product, index, at) for p in b) for b in piece.bodies)
    return replace(piece, stmt=replace(piece.stmt, **new), bodies=inner)


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """Statements that are executed so many times; a guard and bare ones have no index."""

    count: Expr
    inner: Body
    loop: Piece | None = None

    @property
    def index(self) -> Var | None:
        """The number of an execution."""
        stmt = self.loop.stmt if self.loop else None
        return stmt.index if isinstance(stmt, kir.ForLoop) else None


class _Roller:
    """Join the runs of a kernel."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self._known = Known(facts(kernel), RLIMIT)
        loops = (s.index for s in kernel.walk() if isinstance(s, kir.ForLoop))
        self._own = frozenset({*kernel.params, kir.BLOCK, kir.GRID, kir.RANK, NEXT, *loops})
        self._launches = list(_launches(kernel))
        self._told: dict[tuple[Expr, ...], bool] = {}

    def body(self, body: Body, assumed: tuple[Expr, ...]) -> Body:
        """Return a body with as few runs as can be seen."""
        each = (one for piece in body for one in self._inner(piece, assumed))
        idle = kir.ForLoop | kir.IfThenElse | kir.Elect
        out = [one for one in each if any(one.bodies) or not isinstance(one.stmt, idle)]
        at = 0
        while at < len(out):
            for start, end, made in self._joined(out, at, assumed):
                out[start:end] = [made]
                at = -1
                break
            at += 1
        return tuple(out)

    def _inner(self, piece: Piece, assumed: tuple[Expr, ...]) -> Body:
        """Return the pieces that one is, with its bodies joined."""
        match piece.stmt:
            case kir.ForLoop(index, int() as stop) if stop <= 1:
                return self.body(_put(piece.bodies[0], index, 0), assumed) if stop == 1 else ()
            case kir.ForLoop(index, stop):
                inner = self.body(piece.bodies[0], (*assumed, index < stop))
                piece = replace(piece, bodies=(inner,))
                return (self._unrolled(piece, assumed) or piece,)
            case kir.IfThenElse(int() as test):
                return self.body(piece.bodies[not test], assumed)
            case kir.IfThenElse(test):
                not_so = (*assumed, eq(test, 0))
                then = self.body(piece.bodies[0], (*assumed, test))
                orelse = self.body(piece.bodies[1], not_so)
                if orelse and self._same(then, orelse, not_so):
                    return then
                return (replace(piece, bodies=(then, orelse)),)
            case _:
                return (replace(piece, bodies=tuple(self.body(b, assumed) for b in piece.bodies)),)

    # --- one behind the other -------------------------------------------------------------------

    def _joined(
        self, body: Sequence[Piece], at: int, assumed: tuple[Expr, ...]
    ) -> Iterator[tuple[int, int, Piece]]:
        """Yield the loops that the one at a place is with what stands beside it, and from where."""
        loop = self._run(body[at])
        if loop is None or loop.loop is None:
            return
        many = len(loop.inner)
        for start, end in (
            (at - 1, at),
            (at - many, at),
            (at + 1, at + 2),
            (at + 1, at + 1 + many),
        ):
            if start < 0 or end > len(body) or start == end:
                continue
            beside = self._run(body[start]) if end - start == 1 else None
            if beside is None:
                beside = _Run(1, tuple(body[start:end]))
            first, second = (beside, loop) if start < at else (loop, beside)
            made = self._join(first, second, assumed)
            if made is not None:
                yield min(start, at), max(end, at + 1), made

    def _run(self, piece: Piece) -> _Run | None:
        """Return a loop, or a guard, as a run."""
        match piece.stmt:
            case kir.ForLoop(_, stop):
                return _Run(self.natural(stop), piece.bodies[0], piece)
            case kir.IfThenElse(test) if not piece.bodies[1]:
                return _Run(_truth(test), piece.bodies[0])
            case _:
                return None

    def natural(self, stop: Expr) -> Expr:
        """Return how often a loop with this end goes round."""
        return stop if self._holds(fold(Kind.LE, 0, stop), ()) else maximum(stop, 0)

    def _join(self, first: _Run, second: _Run, assumed: tuple[Expr, ...]) -> Piece | None:
        """Return two runs as one loop, where that is what they are."""
        loop = None
        if first.loop is not None and first.index is not None:
            more = second.count if second.index is None else second.count > NEXT
            ahead = _put(first.inner, first.index, first.count + _at(second))
            if self._same(ahead, _put(second.inner, second.index, NEXT), (*assumed, more)):
                loop = first.loop
        if loop is None and second.loop is not None and second.index is not None:
            more = first.count if first.index is None else first.count > NEXT
            mine = _put(first.inner, first.index, NEXT)
            for by in self._behind(first.count, second.count, assumed):
                before = _put(second.inner, second.index, _at(first) - by)
                if self._same(mine, before, (*assumed, more)):
                    inner = _put(second.inner, second.index, second.index - by)
                    loop = replace(second.loop, bodies=(inner,))
                    break
        if loop is None:
            return None
        total = first.count + second.count
        return _ending(loop, self._shorter(total, assumed))

    def _behind(self, count: Expr, then: Expr, assumed: tuple[Expr, ...]) -> Iterator[Expr]:
        """Yield what a count is wherever something comes behind it."""
        some = (*assumed, fold(Kind.LE, 1, then))
        for number in sorted({1, *(n for n in parts_of(count) if isinstance(n, int))}):
            if self._holds(eq(count, number), some):
                yield number
        yield count

    def _shorter(self, total: Expr, assumed: tuple[Expr, ...]) -> Expr:
        """Return a count in fewer words."""
        for part in _parts(total):
            if self._equal(maximum(part, 0), total, assumed):
                return part
        return total

    # --- several in an iteration ----------------------------------------------------------------

    def _unrolled(self, loop: Piece, assumed: tuple[Expr, ...]) -> Piece | None:
        """Return the loop that a loop of several steps an iteration, or of loops, is."""
        assert isinstance(loop.stmt, kir.ForLoop), "asked of loops only"
        index, stop, inner = loop.stmt.index, loop.stmt.stop, loop.bodies[0]
        within = (*assumed, index < stop)
        if len(inner) == 1 and isinstance(inner[0].stmt, kir.ForLoop):
            return self._chunks(loop, inner[0], assumed)
        for many in range(1, len(inner)):
            groups = list(_groups(inner, many))
            by = len(groups)
            if not 2 <= by <= MOST:
                continue
            try:
                first = mapped(groups[0].inner, partial(_by_step, index=index, by=by))
            except _OpenError:
                continue
            steps = (_put(first, index, index * by + n) for n in range(by))
            same = (
                self._same(one, group.inner, (*within, group.count))
                for one, group in zip(steps, groups, strict=True)
            )
            if not all(same):
                continue
            counts = [group.count for group in groups]
            falls = all(self._holds(one, (*within, two)) for one, two in pairwise(counts))
            made = replace(loop, bodies=(first,))
            if falls:
                total: Expr = sum(counts[1:], start=counts[0])
                return self._ended(made, index, stop, total, by, assumed)
        return None

    def _chunks(self, loop: Piece, inner: Piece, assumed: tuple[Expr, ...]) -> Piece | None:
        """Return the loop that a loop of loops is, all but the last of one length."""
        assert isinstance(loop.stmt, kir.ForLoop), "asked of loops only"
        assert isinstance(inner.stmt, kir.ForLoop), "asked of loops in loops"
        outer, index, count = loop.stmt.index, inner.stmt.index, inner.stmt.stop
        within = (*assumed, outer < loop.stmt.stop, index < count)
        first = _put(inner.bodies[0], outer, 0)
        for by in sorted({abs(n) for n in _coefficients(count, outer)} - {0}):
            there = _put(first, index, outer * by + index)
            if self._same(there, inner.bodies[0], within):
                made = replace(inner, bodies=(first,))
                found = self._ended(made, outer, loop.stmt.stop, count, by, assumed)
                if found is not None:
                    return found
        return None

    def _ended(
        self, loop: Piece, index: Var, stop: Expr, count: Expr, by: int, assumed: tuple[Expr, ...]
    ) -> Piece | None:
        """Return a loop of all that `stop` iterations have, if each but the last has `by` of it."""
        if not self._holds(eq(count, by), (*assumed, index + 1 < stop)):
            return None
        last = substitute(count, {index: stop - 1})
        whole = by * (stop - 1) + maximum(last, 0)
        some, none = (*assumed, fold(Kind.LE, 1, stop)), (*assumed, fold(Kind.LE, stop, 0))
        for total in (by * stop, *_parts(count, stop)):
            free = index not in variables(total)
            ends = free and self._equal(maximum(total, 0), whole, some)
            if ends and self._holds(fold(Kind.LE, total, 0), none):
                return _ending(loop, total)
        return None

    # --- what is the same -----------------------------------------------------------------------

    def _same(self, a: object, b: object, assumed: tuple[Expr, ...]) -> bool:
        """Whether statements, or parts of them, are the same in every launch."""
        match a, b:
            case (int() | Var() | Op(), int() | Var() | Op()):
                return self._equal(a, b, assumed)
            case (tuple((Piece(), *_)), tuple((Piece(), *_))) if not self._matching(a, b):
                left, right = self.resolved(a, assumed), self.resolved(b, assumed)
                return self._matching(left, right) and self._same(left, right, assumed)
            case (tuple(), tuple()):
                pairs = zip(a, b, strict=False)
                return len(a) == len(b) and all(self._same(x, y, assumed) for x, y in pairs)
            case (Piece(kir.ForLoop() as one), Piece(kir.ForLoop() as two)):
                if not self._equal(one.stop, two.stop, assumed):
                    return False
                inside = (*assumed, one.index < one.stop)
                return self._same(a.bodies[0], _put(b.bodies[0], two.index, one.index), inside)
            case (Piece(), Piece()):
                return self._same(a.stmt, b.stmt, assumed) and self._same(
                    a.bodies, b.bodies, assumed
                )
            case _ if a == b:
                return True
            case _ if type(a) is type(b) and isinstance(a, _WITH_NUMBERS):
                parts = ((getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
                return all(self._same(x, y, assumed) for x, y in parts)
            case _:
                return False

    @staticmethod
    def _matching(a: Body, b: Body) -> bool:
        """Whether two bodies have statements of the same sorts."""
        return [type(p.stmt) for p in a] == [type(p.stmt) for p in b]

    def resolved(self, body: Body, assumed: tuple[Expr, ...]) -> Body:
        """Return a body without guards that hold, and without what others guard."""
        out: list[Piece] = []
        for piece in body:
            match piece.stmt:
                case kir.IfThenElse(test) if self._holds(test, assumed):
                    out += self.resolved(piece.bodies[0], assumed)
                case kir.IfThenElse(test) if self._holds(eq(test, 0), assumed):
                    out += self.resolved(piece.bodies[1], assumed)
                case _:
                    out.append(piece)
        return tuple(out)

    def _equal(self, a: Expr, b: Expr, assumed: tuple[Expr, ...]) -> bool:
        return poly(a) == poly(b) or self._holds(eq(a, b), assumed)

    def _holds(self, claim: Expr, assumed: tuple[Expr, ...]) -> bool:
        """Whether a claim follows in every launch; not asked of names that may be negative."""
        if isinstance(claim, int):
            return claim != 0
        if not variables(claim) <= self._own:
            return False
        given = tuple(e for e in assumed if not isinstance(e, int) and variables(e) <= self._own)
        key = claim, *given
        if key not in self._told:
            self._told[key] = self._tried(key) and self._known.gives(claim, *given)
        return self._told[key]

    def _tried(self, key: tuple[Expr, ...]) -> bool:
        """Whether a claim holds in some launches; most that do not are found so."""
        claim, *given = map(function, key)
        names = sorted({v.name for e in key for v in variables(e)})
        rng = Random(0)
        for launch in self._launches:
            at = {name: rng.randrange(SMALL) for name in names} | launch
            try:
                if all(holds(at) for holds in given) and not claim(at):
                    return False
            except ZeroDivisionError:
                continue
        return True


_WITH_NUMBERS = (
    kir.Data | kir.Sync | kir.Let | kir.Assign | kir.IfThenElse | kir.Role | kir.Elect
    | kir.LastArriving | kir.Box | kir.Slot
)  # fmt: skip
"""Statements and places: their numbers are compared, whatever they are declared as is equal."""


def _launches(kernel: kir.Kernel) -> Iterator[dict[str, int]]:
    """Yield values of parameters, of a CTA and how many there are, that keep what is required."""
    rng, grid = Random(0), fixed_grid(kernel)
    keeps = [function(one) for one in facts(kernel)]
    for _ in range(TRIED):
        at = {v.name: rng.randrange(SMALL) for v in (*kernel.params, kir.GRID, kir.RANK)}
        try:
            if grid is not None:
                at[kir.GRID.name] = function(grid)(at)
            at[kir.BLOCK.name] = rng.randrange(max(at[kir.GRID.name], 1))
            if all(holds(at) for holds in keeps):
                yield at
        except ZeroDivisionError:
            continue


def _at(run: _Run) -> Expr:
    return 0 if run.index is None else NEXT


def _put(body: Body, index: Var | None, value: Expr) -> Body:
    """Put a number in place of an index."""
    if index is None:
        return body
    put = {index: value}
    return mapped(body, lambda expr: substitute(expr, put))


def _ending(loop: Piece, stop: Expr) -> Piece:
    assert isinstance(loop.stmt, kir.ForLoop), "a run is a loop"
    return replace(loop, stmt=replace(loop.stmt, stop=stop))


def _truth(test: Expr) -> Expr:
    """Return a condition as 0 or 1."""
    match test:
        case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
            return test
        case _:
            return eq(eq(test, 0), 0)


def _groups(body: Body, many: int) -> Iterator[_Run]:
    """Cut a body in groups of so many statements, each as they stand or under a guard."""
    at = 0
    while at < len(body):
        piece = body[at]
        guarded = isinstance(piece.stmt, kir.IfThenElse) and not piece.bodies[1]
        if at and guarded and len(piece.bodies[0]) == many:
            assert isinstance(piece.stmt, kir.IfThenElse), "just found so"
            yield _Run(_truth(piece.stmt.condition), piece.bodies[0])
            at += 1
        else:
            yield _Run(1, body[at : at + many])
            at += many


def _by_step(expr: Expr, index: Var, by: int) -> Expr:
    """Write an expression of an iteration of several steps over the number of its first step."""
    if index not in variables(expr):
        return expr
    constant, parts = linear(expr)
    total: Expr = constant
    for atom, times in parts.items():
        match atom:
            case Var() if atom == index:
                if times % by:
                    raise _OpenError
                total = total + times // by * index
            case Op(kind, a, b):
                inner = fold(kind, _by_step(a, index, by), _by_step(b, index, by))
                total = total + times * inner
            case _:
                total = total + times * atom
    return total


def _coefficients(expr: Expr, index: Var) -> Iterator[int]:
    """Yield what an index is multiplied with anywhere in an expression."""
    _, parts = linear(expr)
    yield parts.get(index, 0)
    for atom in parts:
        if isinstance(atom, Op):
            yield from _coefficients(atom.a, index)
            yield from _coefficients(atom.b, index)


def _parts(*exprs: Expr) -> list[Expr]:
    """Return expressions and what they are made of, the shortest first."""
    found: dict[Expr, None] = {}
    todo = list(exprs)
    while todo:
        expr = todo.pop()
        if expr not in found and not isinstance(expr, int):
            found[expr] = None
            todo += [expr.a, expr.b] if isinstance(expr, Op) else []
    return sorted(found, key=lambda e: len(str(e)))
