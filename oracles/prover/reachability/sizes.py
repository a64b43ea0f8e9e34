"""How many CTAs of a group are enough: larger groups do what one of those followed does.

A CTA knows its place, and how many there are, by the expressions of the kernel alone.  Each that
has a place in it is written as `a * place + b * rest`, plus something between two numbers; `rest`
is how many CTAs there are from this one on.  Where such a form is compared with 0 its answer is
settled beyond a number of places from the first CTA, or of CTAs from the last one (`first`,
`last`), or for groups larger than a number (`size`); a quotient or remainder repeats with a period.
An expression that has no such form is refused, as is a comparison of a place with the middle of
the group.

Notes
-----
Why that is enough: take a group of more CTAs than `largest`.  Between its first and last CTAs are
more than a period and one; take out a period of them.  Those before and behind see the same answers
as before, for what they are compared with has moved as they have.  Every CTA that is left and its
neighbour are a pair of the larger group, and every such pair is still there, since a whole period
and one more is.  What a CTA leaves to others it leaves to its neighbour, in whose turn it is seen:
two lines of turns that agree on two neighbours agree on all.

What is unknown (a parameter, the round of a loop) may lie anywhere between the places that it is
compared with, so that it divides them once more: each such comparison adds a period and one
(`cuts`).  The numbers that this unknown is compared with are then numbers of places too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import floor

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import UnsupportedError, linear, poly, tree

PLACE = Var("place among the CTAs that share a semaphore")
COUNT = Var("how many CTAs share a semaphore")
FORMS = 64
"""Cases of one expression that are told apart."""
WIDE = 4
"""Values of a factor that are told apart."""


@dataclass(frozen=True, slots=True)
class Form:
    """`place * p + rest * r` and something from `low` to `high`, for the r CTAs from p on.

    `free` are the unknowns in it, without which the last part is known by its bounds.
    """

    place: Fraction = Fraction(0)
    rest: Fraction = Fraction(0)
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    free: frozenset[str] = frozenset()

    def plus(self, other: Form, times: int = 1) -> Form:
        """Add a multiple of another."""
        low, high = sorted((times * other.low, times * other.high))
        return Form(
            self.place + times * other.place,
            self.rest + times * other.rest,
            self.low + low,
            self.high + high,
            self.free | other.free,
        )

    @property
    def flat(self) -> bool:
        """Whether it is the same at every place, but for what is unknown."""
        return not self.place and not self.rest

    @property
    def far(self) -> Fraction:
        """The largest number that it has beside places."""
        return max(abs(self.low), abs(self.high))


def _number(low: Fraction | int, high: Fraction | int | None = None) -> Form:
    return Form(low=Fraction(low), high=Fraction(low if high is None else high))


_BETWEEN = {Kind.LT: Fraction(1, 2), Kind.LE: Fraction(-1, 2), Kind.EQ: Fraction(0)}
"""What is added to a difference that is less than 0, at most 0 or 0: the first two are never 0."""


class Sizes:
    """What tells the CTAs of a group apart, gathered from expressions over `PLACE` and `COUNT`.

    `bounds` has the variables that only count to a number.  Answers repeat with a `period` of
    places and sizes; within one group every `repeats` places.
    """

    def __init__(self, bounds: Mapping[Var, int]) -> None:
        self.bounds = bounds
        self.first, self.last, self.size, self.period = 1, 1, 1, 1
        self.repeats = 1
        self.cuts: set[Form] = set()
        self._beside: set[Form] = set()
        self._by_size = False
        self._known: dict[Expr, list[Form]] = {}
        self._with_size: set[str] = set()
        self._turns: set[Form] = set()

    @property
    def largest(self) -> int:
        """The size of a group beyond which nothing new can be seen."""
        linked = self._with({name for form in self.cuts for name in form.free})
        first = max((self.first, *(floor(far) + 1 for far in linked)))
        size = max((self.size, *map(floor, linked), *map(floor, self._with(self._with_size))))
        said = max((floor(f.far) for f in self._turns if f.flat and not f.free), default=0)
        first, last = max(first, said + 1), self.last
        if any(f.rest > 0 for f in self._turns):  # a turn counted from the last CTA, or all of them
            last, size = max(last, said), max(size, said)
        middle = (self.period + 1) * (1 + len(self.cuts))
        sizes = self.period - 1 if self._by_size else 0
        return max(first + last + middle, size + 1) + sizes

    def _with(self, names: set[str]) -> list[Fraction]:
        """Return the numbers beside unknowns that are compared with each other, and with some."""
        while True:
            mine = [form for form in self._beside if form.free & names]
            if all(form.free <= names for form in mine):
                return [form.far for form in mine]
            names = names.union(*(form.free for form in mine))

    @property
    def lasts(self) -> tuple[int, int]:
        """How many of the first and of the last CTAs differ from those between.

        What the size of a group is divided by, alone, tells none of its CTAs from another.
        """
        return self.first + self.repeats, self.last

    # --- what uses an expression --------------------------------------------------------------

    def condition(self, expr: Expr) -> None:
        """Note what a condition compares."""
        self._compare(expr)

    def value(self, expr: Expr, bound: int) -> None:
        """Note a number that is compared with up to `bound`."""
        for form in self.forms(expr):
            self._settle(form.plus(_number(-bound, 0)))

    def turn(self, expr: Expr) -> None:
        """Note a number that CTAs tell each other."""
        for form in self.forms(expr):
            self._turns.add(form)
            self._settle(form)

    def place(self, origin: Expr, limit: Expr) -> None:
        """Note where a box begins, and where its tensor ends."""
        for form in self.forms(origin - limit):
            if not form.free:
                self._settle(form)

    def _compare(self, difference: Expr, between: Fraction = Fraction(0)) -> None:
        """Note a comparison with 0; it is `between` two integers where it makes no third case."""
        normal = tree(poly(difference))
        constant, parts = linear(normal)
        for form in self.forms(normal):
            self._settle(form.plus(Form(low=between, high=between)))
        # an unknown times a place, which another multiple of it may equal
        products = [e for e in parts if isinstance(e, Op) and e.kind is Kind.MUL and _placed(e)]
        far = abs(constant) + sum(map(abs, parts.values()))
        if any(PLACE in variables(e) for e in products):
            self.first, self.last = max(self.first, far + 1), max(self.last, far)
        elif products:
            self.size = max(self.size, far)

    def _settle(self, form: Form) -> None:
        """Note from where on a form is above or below 0."""
        if form.flat:
            if form.free:
                self._beside.add(form)
            return
        if form.place * form.rest < 0:
            raise UnsupportedError("a CTA's place is compared with the middle of its group")
        if form.free:
            self._beside.add(form)
        up = max(form.place, form.rest) > 0
        below = floor(form.far if form.free else max(-form.low if up else form.high, Fraction(0)))
        if form.place == form.rest:
            self.size = max(self.size, floor(below / abs(form.rest)))
            self._with_size |= form.free
            return
        if form.free:
            self.cuts.add(form)
        if form.place:
            self.first = max(self.first, floor(below / abs(form.place)) + 1)
        if form.rest:
            self.last = max(self.last, floor(below / abs(form.rest)))

    # --- forms --------------------------------------------------------------------------------

    def forms(self, expr: Expr) -> list[Form]:
        """Return the forms that an expression has, one for each case.

        Raises
        ------
        UnsupportedError
            If it has none.
        """
        if expr not in self._known:
            constant, parts = linear(expr)
            out = [_number(constant)]
            for part, times in parts.items():
                cases = self._part(part)
                out = [form.plus(case, times) for form, case in product(out, cases)]
                if len(out) > FORMS:
                    raise UnsupportedError(f"`{expr}`: more than {FORMS} cases of a CTA's place")
            self._known[expr] = list(dict.fromkeys(out))
        return self._known[expr]

    def _part(self, part: Expr) -> list[Form]:
        match part:
            case Var():
                if part == PLACE:
                    return [Form(place=Fraction(1))]
                if part == COUNT:
                    return [Form(place=Fraction(1), rest=Fraction(1))]
                if part in self.bounds:
                    return [_number(0, self.bounds[part])]
                return [Form(free=frozenset({part.name}))]
            case Op(Kind.AND, a, b):
                self._compare(a)
                self._compare(b)
                return [_number(0, 1)]
            case Op(Kind.LT | Kind.LE | Kind.EQ as kind, a, b):
                self._compare(a - b, _BETWEEN[kind])
                return [_number(0, 1)]
            case Op(Kind.MIN | Kind.MAX, a, b):
                self._compare(a - b, _BETWEEN[Kind.LT])
                return self.forms(a) + self.forms(b)
            case Op(Kind.MUL, a, b):
                return [c for one, two in self._pairs(a, b) for c in self._times(part, one, two)]
            case Op(Kind.FLOORDIV | Kind.MOD as kind, a, b):
                if b == COUNT and all(map(_within, self.forms(a))):
                    return self._by_count(kind, a)
                return [self._divided(part, one, two) for one, two in self._pairs(a, b)]
            case _:
                raise UnsupportedError(f"`{part}`: nothing tells how it depends on a CTA's place")

    def _pairs(self, a: Expr, b: Expr) -> list[tuple[Form, Form]]:
        return list(product(self.forms(a), self.forms(b)))

    def _times(self, part: Expr, one: Form, two: Form) -> list[Form]:
        for number, other in ((one, two), (two, one)):
            if number.flat and not number.free and number.high - number.low <= WIDE:
                values = range(floor(number.low), floor(number.high) + 1)
                return [Form().plus(other, value) for value in values]
        return [self._unknown(part, one, two)]

    def _unknown(self, part: Expr, one: Form, two: Form) -> Form:
        """Return a product or quotient with an unknown in it: one for each place."""
        free = one.free | two.free
        if not free:
            raise UnsupportedError(f"`{part}`: nothing tells how it depends on a CTA's place")
        return Form(free=free)

    def _divided(self, part: Op, one: Form, two: Form) -> Form:
        exact = two.flat and not two.free and two.low == two.high and two.low > 0
        if not exact:
            return self._unknown(part, one, two)
        by = floor(two.low)
        for slope in (one.place, one.rest):
            self.period *= (slope * self.period / by).denominator
            if one.place != one.rest:
                self.repeats *= (slope * self.repeats / by).denominator
        self._by_size |= bool(one.rest)
        if part.kind is Kind.MOD:
            return Form(low=Fraction(0), high=Fraction(by - 1), free=one.free)
        if one.free:
            return self._unknown(part, one, two)
        return Form(one.place / by, one.rest / by, one.low / by - 1, one.high / by)

    def _by_count(self, kind: Kind, expr: Expr) -> list[Form]:
        """Return the cases of a place near the end of a group, divided by its size."""
        self._compare(expr, _BETWEEN[Kind.LT])
        self._compare(expr - COUNT, _BETWEEN[Kind.LT])
        for form in self.forms(expr):  # around more than once in groups of few
            self.size = max(self.size, floor(form.far))
        if kind is Kind.FLOORDIV:
            return [_number(0), _number(1)]
        return self.forms(expr) + self.forms(expr - COUNT)


def _within(form: Form) -> bool:
    """Whether a form is a number, a place, the rest, or all of them, but for a number."""
    return not form.free and {form.place, form.rest} <= {Fraction(0), Fraction(1)}


def _placed(expr: Expr) -> bool:
    return bool(variables(expr) & {PLACE, COUNT})


Written = Callable[[Expr], Expr]
"""How expressions of a kernel are written over `PLACE` and `COUNT`."""


def seen(kernel: kir.Kernel, written: Written) -> Sizes:
    """Return what tells the CTAs of a group apart.

    Raises
    ------
    UnsupportedError
        If an expression tells them apart in a way that is not followed.
    """
    assigned = {s.var for s in kernel.walk() if isinstance(s, kir.Assign)}
    shared = sites.shared_tensors(kernel)
    slots = [b.slots for b in kernel.buffers] + [m.slots for m in kernel.barriers]
    found = sites.every(kernel)
    loops = {loop.index: loop.stop for site in found for loop in site.loops}
    made = Sizes({index: stop for index, stop in loops.items() if isinstance(stop, int)})
    for index, stop in loops.items():
        made.condition(index - written(stop))
    for site in found:
        plain = _plainly(site, written)
        match site.stmt:
            case kir.IfThenElse(test):
                made.condition(plain(test))
            case kir.Let(var, value) | kir.Assign(var, value) if var in assigned:
                if _placed(plain(value)):
                    says = "goes on from what depends on a CTA's place"
                    raise UnsupportedError(f"{site.where}: {says}")
            case stmt if isinstance(stmt, sites.AMONG_CTAS):
                made.forms(plain(stmt.index))
                for told in sites.controls(stmt).values():
                    made.turn(plain(told))
            case stmt:
                for number in sites.controls(stmt).values():
                    made.value(plain(number), max(slots, default=1))
        box = sites.touches(site.stmt)
        if box is not None and box.tensor.name in shared:
            for origin, limit in zip(box.origin, box.limit, strict=True):
                made.place(plain(origin), plain(limit))
    for condition in kernel.requires:
        made.condition(written(condition))
    return made


def _plainly(site: sites.Site, written: Written) -> Written:
    return lambda expr: written(site.plain(expr))
