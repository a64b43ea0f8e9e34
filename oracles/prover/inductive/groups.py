"""Whether the CTAs that were followed together stand for all that share a semaphore.

Groups of a few sizes are followed, each as a whole.  Nothing is believed of how these sizes were
chosen: z3 is asked for a *scene* of any other group that none of those followed has.  A scene is
what one CTA's code can tell (answers to conditions, values it uses, whether it is first or last, or
the last-arriving one), or two neighbours', or one's beside others that it has to do with:

* `alone`: every CTA does what some CTA did that was followed.
* `next`: two neighbours in line do together what two that were followed did, and the values that
  they tell each other and wait for are equal or not as theirs were.
* `same value`: so do any two of which one waits for or releases a value of the other's.
* `q`, `b`, `p`: where q executes one statement, p another, later in line or having met, and their
  boxes of a shared tensor overlap, there were CTAs that did so in the same order, and the one that
  is named did what it does: q, or p, or b between them.

Why that is enough: take any group in which nobody waits forever before the first fault.  If p
waits for a value that nobody releases, two neighbours do not agree, or somebody released it twice:
`next`, `same value`.  If p conflicts with q, and turns do not order them, either q does not publish
what it did, or p does not see it before what it does, or some b between does not hand on what it
got: each of these is a matter of that CTA's own code, and of which two statements conflict.  The
followed group with that scene has the same fault, and no fault was found there.

Loops in which CTAs do not meet are followed for few rounds (see `reachability.ctas`): how long they
are, and what happens in them, is nothing that others see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import product

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import UnsupportedError, linear, poly, replace_tree, tree
from oracles.prover.reachability.code import (
    CLUSTER,
    GROUP,
    Branch,
    Do,
    Enter,
    Instruction,
    Jump,
    comparisons_of,
)
from oracles.prover.reachability.ctas import MANY, CtaGroup, group_of, over_places, whole
from oracles.prover.reachability.fixpoint import Exploration
from oracles.prover.reachability.sizes import COUNT, PLACE
from oracles.prover.reachability.world import World
from oracles.prover.sites import AMONG_CTAS, MOVING, Loop, Site
from oracles.prover.solver import Exact, Known, Scenes

SCENES = 400
"""Scenes of one sort that are compared."""
FEW = 8
"""Rounds of a loop that are asked about one by one."""
_GROUP = (GROUP, CLUSTER)


FEWEST, ROUNDS = 3, 12
"""Sizes of groups that are followed at least, and others that are added."""


class UnseenError(Exception):
    """CTAs may do what none of those followed did, in a group of so `many`."""

    def __init__(self, says: str, many: int = 0) -> None:
        super().__init__(says)
        self.many = many


def enough(kernel: kir.Kernel, rlimit: int) -> list[int]:
    """Return sizes of groups that stand for all: each that is asked for has a scene of its own.

    Raises
    ------
    UnsupportedError
        If so few are not enough, or it cannot be asked.
    """
    group = group_of(kernel)
    if sites.outcomes(kernel) or isinstance(group.count, int):
        raise UnsupportedError("a last-arriving CTA among so many is not followed")
    known = Known(sites.facts(kernel), rlimit)
    legal = [n for n in range(1, MANY + 1) if not known.gives(eq(eq(group.count, n), 0))]
    sizes = legal[:FEWEST]
    for _ in range(ROUNDS):
        try:
            _Scenes(kernel, group, {n: {()} for n in sizes}, rlimit).compare()
        except UnseenError as error:
            if error.many not in legal or error.many in sizes:
                break
            sizes = sorted((*sizes, error.many))
        else:
            return sizes
    raise UnsupportedError(f"groups of {sizes} CTAs do not stand for all")


def stand_for_all(explorations: Sequence[Exploration], rlimit: int) -> int:
    """Ask whether CTAs were followed that stand for all others; return how many questions that was.

    Raises
    ------
    UnseenError
        If some were not.
    UnsupportedError
        If it cannot be asked.
    """
    worlds = [one.world for one in explorations]
    kernel = worlds[0].kernel
    if not any(isinstance(s, AMONG_CTAS) for s in kernel.walk()):
        if not any(w.code.fixed == ({},) * kernel.cluster for w in worlds):
            raise UnseenError("none was followed of which nothing is known")
        return 1
    group, elections = group_of(kernel), sites.outcomes(kernel)
    together = [w for w in worlds if w.together]
    sizes: dict[int, set[tuple[int, ...]]] = {}
    for ctas in (w.code.fixed for w in together):
        lasts = [[n for n, one in enumerate(ctas) if one.get(var)] for var in elections]
        plain = [{e: v for e, v in one.items() if e not in elections} for one in ctas]
        whole_group = [dict(group.fixed(n, len(ctas))) for n in range(len(ctas))]
        if plain != whole_group or any(len(one) != 1 for one in lasts):
            raise UnseenError(f"of a group of {len(ctas)} not all were followed")
        sizes.setdefault(len(ctas), set()).add(tuple(one[0] for one in lasts))
    if any(map(_cut_short, together)):
        raise UnseenError("loops were followed for few rounds that decide what they do")
    alone = [w.code.fixed[0] for w in worlds if not w.together]
    apart = {} in alone or all(one in alone for w in together for one in w.code.fixed)
    if not sizes or not (apart or all(not w.pinned for w in together)):
        raise UnseenError("none was followed through all of its rounds")
    return _Scenes(kernel, group, sizes, rlimit).compare()


def _cut_short(world: World) -> bool:
    """Whether a length is given of a loop in which CTAs meet, or one that decides what they do.

    A branch may do nothing where the length is small: more is done, and ordered, where it is not.
    """
    for program in world.code.programs:
        loops = [(at, i) for at, i in enumerate(program) if isinstance(i, Enter)]
        for at, loop in loops:
            inside = (i for i in program[at : loop.end] if isinstance(i, Do))
            if loop.atom in world.pinned and any(i.origin or i.index is not None for i in inside):
                return True
        for at, i in enumerate(program):
            asked = comparisons_of(i.test) if isinstance(i, Branch) else iter(())
            for one in asked:
                own = any(start < at < e.end and e.atom == one.atom for start, e in loops)
                if one.atom in world.pinned and not own and _does(program, at, less=one.less):
                    return True
    return False


def _does(program: Sequence[Instruction], at: int, *, less: bool) -> bool:
    """Whether a branch executes a statement where what it compares is small."""
    branch = program[at]
    assert isinstance(branch, Branch), "asked of branches only"
    jump = program[branch.orelse - 1]
    end = jump.to if isinstance(jump, Jump) and branch.orelse - 1 > at else branch.orelse
    small = program[at + 1 : branch.orelse] if less else program[branch.orelse : end]
    return any(isinstance(i, Do) for i in small)


Scene = tuple[str, list[Expr], list[Expr]]
"""A sort of scene: its name, what holds in it, and what is compared."""


class _Scenes:
    """The scenes of the groups of a kernel, as z3 is asked about them.

    `sizes` has by size of a group which of its CTAs were followed as last-arriving ones.
    """

    def __init__(
        self,
        kernel: kir.Kernel,
        group: CtaGroup,
        sizes: Mapping[int, set[tuple[int, ...]]],
        rlimit: int,
    ) -> None:
        self._kernel, self._group = kernel, group
        self._which = [(many, one) for many, each in sizes.items() for one in sorted(each)]
        self._rlimit = rlimit
        self._lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
        self._shared = sites.shared_tensors(kernel)
        every = [s for s in sites.every(kernel) if 0 not in s.guards]
        meeting = {loop.index for s in every if self._meets(s) for loop in s.loops}
        self._private: dict[Expr, Var] = {}
        for loop in (loop for s in every for loop in s.loops):
            if loop.index not in meeting and not isinstance(loop.stop, int):
                self._private.setdefault(loop.stop, Var(f"rounds of {loop.index.name}"))
        self._sites = [s for s in every if not any(one.stop in self._private for one in s.loops)]
        self._lasts = [place_of(f"last {n}") for n in range(len(sites.outcomes(kernel)))]
        self._elections = _elections(every)
        sorts = kir.BlockSerializeWait | kir.BlockSerializeRelease
        self._turns = any(isinstance(s, sorts) for s in kernel.walk())

    def _meets(self, site: Site) -> bool:
        box = sites.touches(site.stmt)
        shared = box is not None and box.tensor.name in self._shared
        return shared or isinstance(site.stmt, AMONG_CTAS)

    # --- what the code of a CTA can tell --------------------------------------------------------

    def _of(self, expr: Expr, cta: str) -> Expr:
        """Write an expression of one CTA of a scene over places, sizes and parameters."""
        plain = whole(expr, self._lets)
        for stop, rounds in self._private.items():
            plain = replace_tree(plain, stop, rounds)
        there = over_places(plain, self._group)
        same = {COUNT, kir.GRID, *self._kernel.params, *_GROUP}
        own: dict[Var, Expr] = {v: Var(f"{v.name} of {cta}") for v in variables(there) - same}
        return tree(poly(substitute(there, own)))

    def _each(self, site: Site, *exprs: Expr) -> Iterator[tuple[Expr, ...]]:
        """Yield expressions of a site for all rounds of the loops of few rounds around it."""
        few = [(one.index, one.stop) for one in site.loops if one.stop in range(FEW + 1)]
        plain = [site.plain(e) for e in exprs]
        for values in product(*(range(stop) for _, stop in few if isinstance(stop, int))):
            at: dict[Var, Expr] = {index: v for (index, _), v in zip(few, values, strict=True)}
            yield tuple(substitute(e, at) for e in plain)

    def _answers(self, cta: str) -> Iterator[Expr]:
        """Yield what the code of one CTA is told by conditions, and by the values it uses."""
        rings = [b.slots for b in self._kernel.buffers] + [m.slots for m in self._kernel.barriers]
        slots = max(rings, default=1)
        for site in self._sites:
            asked: list[Expr] = []
            match site.stmt:
                case kir.IfThenElse(test):
                    asked = [one for (one,) in self._each(site, test)]
                case kir.ForLoop(_, stop) if site.plain(stop) not in self._private:
                    asked = [fold(Kind.LT, 0, one) for (one,) in self._each(site, stop)]
                case stmt if not isinstance(stmt, AMONG_CTAS):
                    for number in sites.controls(stmt).values():
                        values = [one for (one,) in self._each(site, number)]
                        asked += [
                            eq(one, n)
                            for one in values
                            if _placed(self._of(one, cta))
                            for n in range(slots)
                        ]
                case _:
                    pass
            yield from (self._of(one, cta) for one in asked)
            if isinstance(site.stmt, AMONG_CTAS):
                continue
            box = sites.touches(site.stmt)
            if box is not None and self._meets(site):
                rounds = [loop.index < loop.stop for loop in self._long(site)]
                for ends in zip(box.origin, box.limit, strict=True):
                    for start, end, *runs in self._each(site, *ends, *rounds):
                        inside = fold(Kind.LT, start, end)
                        yield self._of(reduce(both, runs, inside), cta)
        for told in self._told(cta):
            yield from (eq(told, 0), eq(told, COUNT))
        yield from (eq(place_of(cta), last) for last in self._lasts)

    def _long(self, site: Site) -> list[Loop]:
        """Return the loops around a site of which any round may be asked about."""
        return [loop for loop in site.loops if loop.stop not in range(FEW + 1)]

    def _rounds(self, held: list[Expr], features: list[Expr]) -> list[Expr]:
        """Return that rounds of loops that a scene names are executed; the first where none is."""
        named = {v for one in (*held, *features) for v in variables(one)}
        loops = dict.fromkeys(loop for site in self._sites for loop in self._long(site))
        return [
            self._of(loop.index < fold(Kind.MAX, loop.stop, 1), cta)
            for loop, cta in product(loops, ("x", "y", "b"))
            if Var(f"{loop.index.name} of {cta}") in named
        ]

    def _told(self, cta: str) -> list[Expr]:
        """Return the values that one CTA tells others and waits for."""
        return [
            self._of(one, cta)
            for site in self._sites
            if isinstance(site.stmt, AMONG_CTAS)
            for told in sites.controls(site.stmt).values()
            for (one,) in self._each(site, told)
        ]

    def _executes(self, site: Site, cta: str) -> list[Expr]:
        """Return what holds where a CTA executes a statement."""
        loops = (loop.index < loop.stop for loop in site.loops)
        guards = [g for g in site.guards if g not in self._elections]
        chosen = [
            eq(place_of(cta), self._lasts[self._elections[g]])
            for g in site.guards
            if g in self._elections
        ]
        return [*(self._of(e, cta) for e in (*loops, *guards)), *chosen]

    # --- the sorts of scenes --------------------------------------------------------------------

    def _scenes(self) -> Iterator[Scene]:
        x, y, b = map(place_of, ("x", "y", "b"))
        mine, theirs = list(self._answers("x")), list(self._answers("y"))
        yield "alone", [x < COUNT], [*mine, eq(x, 0), eq(x + 1, COUNT)]
        order = [x < COUNT, y < COUNT]
        order += [x < y] if self._turns else [eq(eq(x, y), 0)]
        if self._turns:
            told = [eq(one, two) for one in self._told("x") for two in self._told("y")]
            ends = [eq(x, 0), eq(y + 1, COUNT)]
            yield "next", [*order, eq(x + 1, y)], [*mine, *theirs, *told, *ends]
            for held in self._equal():
                yield "same value", [*order, eq(eq(x + 1, y), 0), *held], [*mine, *theirs]
        conflicts = list(self._conflicts())
        for site in dict.fromkeys(one for one, _, _ in conflicts):
            for sort in dict.fromkeys(type(two.stmt) for one, two, _ in conflicts if one == site):
                met = (c for one, two, c in conflicts if one == site and type(two.stmt) is sort)
                yield "q", [*order, _any(met)], mine
        for site in dict.fromkeys(two for _, two, _ in conflicts):
            for sort in dict.fromkeys(type(one.stmt) for one, two, _ in conflicts if two == site):
                met = (c for one, two, c in conflicts if two == site and type(one.stmt) is sort)
                yield "p", [*order, _any(met)], theirs
        if self._turns:
            between = [*order, x < b, b < y, _any(c for _, _, c in conflicts)]
            yield "b", between, list(self._answers("b"))

    def _equal(self) -> Iterator[list[Expr]]:
        """Yield what holds where two CTAs tell others, or wait for, one value."""
        turns = [s for s in self._sites if isinstance(s.stmt, AMONG_CTAS)]
        for one, two in product(turns, repeat=2):
            left, right = (sites.controls(s.stmt).values() for s in (one, two))
            for a, c in product(self._each(one, *left), self._each(two, *right)):
                same = (eq(self._of(e, "x"), self._of(f, "y")) for e, f in product(a, c))
                yield [*self._executes(one, "x"), *self._executes(two, "y"), *same]

    def _conflicts(self) -> Iterator[tuple[Site, Site, Expr]]:
        """Yield pairs of statements whose boxes of a shared tensor conflict, and where they do."""
        for one, two in product(self._sites, repeat=2):
            left, right = sites.touches(one.stmt), sites.touches(two.stmt)
            if left is None or right is None or left.tensor != right.tensor:
                continue
            reads = sites.reads(one.stmt) is not None and sites.reads(two.stmt) is not None
            if left.tensor.name not in self._shared or reads:
                continue
            held = [*self._executes(one, "x"), *self._executes(two, "y")]
            for start, begin in product(
                self._each(one, *left.origin), self._each(two, *right.origin)
            ):
                there: Expr = 1
                for a, n, c, m in zip(start, left.shape, begin, right.shape, strict=True):
                    low, high = self._of(a, "x"), self._of(c, "y")
                    there = both(there, fold(Kind.LT, low, high + m))
                    there = both(there, fold(Kind.LT, high, low + n))
                for one_held in held:
                    there = both(one_held, there)
                yield one, two, _normal(there)

    # --- asking z3 ------------------------------------------------------------------------------

    def compare(self) -> int:
        """Look for scenes of other groups until all are found in those followed; count them."""
        asked, seen = 0, set[object]()
        for name, held, features in self._scenes():
            held = [one for one in map(_normal, held) if one != 1]
            features = [e for e in dict.fromkeys(map(_normal, features)) if not isinstance(e, int)]
            key = name, tuple(held)
            if 0 not in held and key not in seen:
                seen.add(key)
                asked += self._compare(name, held, _linked(features, held))
        return asked

    def _compare(self, name: str, held: list[Expr], features: list[Expr]) -> int:
        if any(MOVING in variables(one) for one in (*held, *features)):
            raise UnsupportedError("what they do depends on a value that moves")
        rounds = self._rounds(held, features)
        known = [*_about([*self._facts(), *rounds], [*held, *features]), *held]
        scenes = Scenes(known, features, map(self._sized, self._which), self._rlimit)
        for number in range(SCENES):
            answer, answers = scenes.another()
            if answer == "unsat":
                return number + 1
            if answer != "sat":
                raise UnsupportedError("z3 cannot tell whether others do something else")
            answer = scenes.among_given(answers)
            if answer == "unknown":
                answer = self._followed(held, features, answers)
            if answer == "unsat":
                at = scenes.value(place_of({"b": "b", "p": "y"}.get(name, "x")))
                says = f"what CTA {at} of {scenes.value(COUNT)} does none did that was followed"
                raise UnseenError(f"{says} ({name})", scenes.least(COUNT, answers))
            if answer != "sat":
                raise UnsupportedError("z3 cannot tell whether those followed do the same")
            scenes.leave(answers)
        raise UnsupportedError(f"there are more than {SCENES} scenes")

    def _sized(self, which: tuple[int, tuple[int, ...]]) -> dict[Var, int]:
        """Return what is known in a group that was followed."""
        many, lasts = which
        return {COUNT: many, **dict(zip(self._lasts, lasts, strict=True))}

    def _followed(self, held: list[Expr], features: list[Expr], answers: list[bool]) -> str:
        """Ask whether a group that was followed has a scene, for each with its size put in."""
        found = "unsat"
        facts = [*self._facts(), *self._rounds(held, features)]
        for which in self._which:
            known = self._sized(which)
            scene = (one if yes else eq(one, 0) for one, yes in zip(features, answers, strict=True))
            asked = (substitute(one, known) for one in (*facts, *held, *scene))
            answer = Exact(self._rlimit).possible(map(_normal, asked))
            if answer == "sat":
                return answer
            found = answer if answer != "unsat" else found
        return found

    def _facts(self) -> Iterator[Expr]:
        """Yield what holds in every scene."""
        yield fold(Kind.LE, 1, COUNT)
        if isinstance(self._group.count, int):
            yield eq(COUNT, self._group.count)
        yield from (last < COUNT for last in self._lasts)
        yield from (self._of(condition, "all") for condition in self._kernel.requires)
        yield from self._there()

    def _there(self) -> Iterator[Expr]:
        """Yield that the group is one of the launch."""
        group = self._group
        if group.number == 0:
            return
        many: Expr = group.others if not group.consecutive else 0
        for condition in self._kernel.requires if group.consecutive else ():
            match condition:
                case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)) if group.count in (a, b):
                    many = b if a == group.count else a
                case _:
                    pass
        if many == 0:
            many = kir.GRID // group.count
        yield fold(Kind.LT, GROUP, self._of(many, "all"))


def place_of(cta: str) -> Var:
    """Return the place of a CTA of a scene."""
    return Var(f"{PLACE.name} of {cta}")


def _elections(found: list[Site]) -> dict[Expr, int]:
    """Return which condition on places stands for having arrived last, by election."""
    out: dict[Expr, int] = {}
    elections = [s for s in found if isinstance(s.stmt, kir.LastArriving)]
    for number, site in enumerate(elections):
        assert isinstance(site.stmt, kir.LastArriving), "found as such"
        index, ctas = site.plain(site.stmt.index), site.plain(site.stmt.ctas)
        out[eq(sites.place_among(index, ctas) + 1, ctas)] = number
    return out


def _any(conditions: Iterable[Expr]) -> Expr:
    """Return that one holds: not all fail.  The tree is a flat one, for there may be thousands."""
    fail = [eq(one, 0) for one in dict.fromkeys(conditions)] or [1]
    while len(fail) > 1:
        pairs = [both(a, b) for a, b in zip(fail[::2], fail[1::2], strict=False)]
        fail = pairs + fail[len(pairs) * 2 :]
    return _normal(eq(fail[0], 0))


@lru_cache(maxsize=1 << 12)
def _normal(expr: Expr) -> Expr:
    return _folded(tree(poly(expr)))


def _folded(expr: Expr) -> Expr:
    """Answer the comparisons of what differs by a number only."""
    match expr:
        case Op(kind, a, b):
            left, right = _folded(a), _folded(b)
            if kind in (Kind.LT, Kind.LE, Kind.EQ):
                constant, parts = linear(left - right)
                if not parts:
                    return fold(kind, constant, 0)
            return fold(kind, left, right)
        case _:
            return expr


def _placed(expr: Expr) -> bool:
    return any(v == COUNT or v.name.startswith(PLACE.name) for v in variables(expr))


def _about(facts: list[Expr], asked: list[Expr]) -> list[Expr]:
    """Return the facts that have to do with what is asked.

    Some launch meets the others whatever the answer is: they share no variable with it, or say what
    the number of CTAs is that nothing else asks for.
    """
    left = [one for one in facts if not _grid_only(one, [*facts, *asked])]
    named: set[Var] = {COUNT}.union(*map(variables, asked))
    while True:
        found = [one for one in left if variables(one) & named]
        more = named.union(*map(variables, found))
        if more == named:
            return found
        named = more


def _grid_only(fact: Expr, others: list[Expr]) -> bool:
    match fact:
        case Op(Kind.EQ, a, b) if kir.GRID in (a, b):
            return sum(kir.GRID in variables(one) for one in others) == 1
        case _:
            return False


def _linked(features: list[Expr], held: list[Expr]) -> list[Expr]:
    """Return the conditions on places, and those that have a variable in common with one of them.

    Others can have either answer, whatever the places are.
    """
    found = [e for e in features if _placed(e)]
    named: set[Var] = set().union(*map(variables, (*found, *held)))
    while True:
        more = [e for e in features if e not in found and variables(e) & named]
        if not more:
            return found
        found += more
        named = named.union(*map(variables, more))
