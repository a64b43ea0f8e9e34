"""Whether reachability's states are an inductive invariant: what it says holds for every launch.

The search is not believed: not that states with one canonical form are alike, not how rings are
rotated, which numbers matter or which ways on there are.  Of what it kept (`path.Recorder`) it is
checked that

1. the *start* lies in the class of the first state;
2. every way on from a state was followed (`_complete`): after it, threads are done or in a class;
3. what was evaluated on the way is the same in all states of the class: conditions have the same
   answer, slots are the same but for the rotation (z3, from the facts of the class);
4. the state at its end is that of the target but for numbers (`structure`), and these are numbers
   of the target's class: its facts follow (z3).  It is compared as it was before the search forgot
   what it takes to be over;
5. the CTAs that were followed together stand for all others (`groups`).

So whatever the rules of the statements found of the states that were kept holds of all states that
any launch reaches.  The rules themselves are shared with the search: the simulator and the explorer
have others.

Facts that do not follow are dropped until all do (Houdini); then 3 is asked with those left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from oracles.prover import sites
from oracles.prover.arithmetic import UnsupportedError, multiples
from oracles.prover.inductive.classes import ALWAYS, Bounds, Class, normal, rotation, solved
from oracles.prover.inductive.groups import UnseenError, stand_for_all
from oracles.prover.inductive.structure import Structures, reached
from oracles.prover.reachability.canonical import Orbit
from oracles.prover.reachability.code import CLUSTER, GROUP, Do
from oracles.prover.reachability.fixpoint import Exploration
from oracles.prover.reachability.path import (
    Assigned,
    Compared,
    Decided,
    Evaluated,
    Kept,
    Note,
    Number,
    Said,
    Served,
    Split,
    Tested,
)
from oracles.prover.reachability.state import State
from oracles.prover.solver import Sequents
from oracles.verdict import Status, Verdict

ORACLE = "inductive"


class OpenError(Exception):
    """The invariant is not shown; the message says where."""


class BeyondError(Exception):
    """Something is not checked here."""


@dataclass(slots=True, eq=False)
class Reading:
    """An expression that threads use, the numbers it is of, and what it was `found` to be."""

    expr: Expr
    of: tuple[Number, ...]
    found: dict[tuple[Expr | None, ...], Expr]


@dataclass(slots=True, eq=False)
class Given:
    """What is known in a class by its `facts`; equations are put in, and have been in `put`."""

    facts: list[Expr]
    equal: dict[Var, Expr]
    bounds: Bounds
    known: list[Expr] = field(default_factory=list)
    put: dict[Expr, Expr] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """One way from a class to another: what is assumed and claimed on it, and the shifts after it.

    `asked` has in their order whether something is claimed, what, and what was noted of it;
    `shifts` are those of the target, as sums of those of the source.  Where all claims are known to
    follow, `sure` has from what.
    """

    source: int
    to: int | None
    asked: dict[tuple[bool, Expr], Note]
    shifts: dict[Var, Expr]
    sure: Given | None = None


AT_ONCE = 400
"""States that explorations keep until they are asked about: some 60 MiB (measured).  Most kernels
have less in all readings, and those that are refuted in the end are not asked about; two
last-arriving CTAs of a kernel with rings of eight slots have five times as many."""


class Answers:
    """What is said of explorations: of those that keep much on the way, so that they may forget."""

    def __init__(self, rlimit: int) -> None:
        self.rlimit = rlimit
        self._waiting: list[Exploration] = []
        self._said: dict[int, tuple[Exploration, int | OpenError | BeyondError]] = {}

    def take(self, one: Exploration) -> None:
        """Take an exploration; ask of all that wait, and let them forget, if they keep much."""
        self._waiting.append(one)
        if sum(len(each.recorder.states) for each in self._waiting) <= AT_ONCE:
            return
        for each in self._waiting:
            try:
                said: int | OpenError | BeyondError = _Checker(each, self.rlimit).check()
            except (OpenError, BeyondError) as error:
                said = error.with_traceback(None)  # which would keep what is to be forgotten
            self._said[id(each)] = each, said
            each.forget()
        self._waiting.clear()

    def of(self, one: Exploration) -> int:
        """Return how many claims of an exploration were checked; raise what is wrong."""
        _, said = self._said.get(id(one), (one, None))
        if said is None:
            return _Checker(one, self.rlimit).check()
        if isinstance(said, int):
            return said
        raise said


def check(
    explorations: tuple[Exploration, ...], *, rlimit: int, known: Answers | None = None
) -> Verdict:
    """Ask whether what explorations have kept is an invariant; `known` has the answers for some.

    Returns
    -------
    Verdict
        PASS; UNKNOWN if something does not follow; UNSUPPORTED if something is not checked.
    """
    checked, known = 0, known or Answers(rlimit)
    for one in explorations:
        try:
            checked += known.of(one)
        except OpenError as error:
            return Verdict(ORACLE, Status.UNKNOWN, checked, reason=str(error))
        except BeyondError as error:
            return Verdict(ORACLE, Status.UNSUPPORTED, checked, reason=str(error))
    if not checked:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason="vacuous: nothing was explored")
    try:
        cases: dict[int, list[Exploration]] = defaultdict(list)
        for one in explorations:
            cases[id(one.world.kernel)].append(one)  # one object in all readings of a case
        for own in cases.values():
            checked += stand_for_all(own, rlimit)
    except UnseenError as error:
        return Verdict(ORACLE, Status.UNKNOWN, checked, reason=f"CTAs: {error}")
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, checked, reason=f"CTAs: {error}")
    return Verdict(ORACLE, Status.PASS, checked)


class _Checker:
    """The check of one exploration."""

    def __init__(self, exploration: Exploration, rlimit: int) -> None:
        self._world, self._code = exploration.world, exploration.world.code
        self._recorder = exploration.recorder
        self._orbits: tuple[Orbit, ...] = exploration.abstraction.rotation.orbits
        self._rings = {r: i for i, one in enumerate(self._orbits) for r in one.rings}
        self._structures = Structures(self._world, exploration.events, self._orbits)
        self._put: dict[tuple[Expr, tuple[Expr | None, ...]], Expr] = {}
        self._read: dict[object, Reading] = {}
        self._found: dict[object, dict[tuple[Expr | None, ...], Expr]] = {}
        self._compared: dict[object, Expr] = {}
        self._told: dict[int, Given] = {}
        self._none: list[Expr] = []
        self._ended: set[tuple[int, int]] = set()
        kernel = self._code.kernel
        counts = (*kernel.params, CLUSTER, GROUP, *sites.outcomes(kernel))
        always = [*kernel.requires, *ALWAYS, *(fold(Kind.LE, 0, v) for v in counts)]
        always += [fold(Kind.LE, last, 1) for last in sites.outcomes(kernel)]
        always += sites.dealt(kernel)
        for number, times in self._world.pinned.items():
            n = self._code.atoms.meaning(number)
            always.append(eq(n, times) if times else fold(Kind.LE, n, 0))
        self._always = list(dict.fromkeys(map(normal, always)))
        self._launch = frozenset[Var]().union(*map(variables, self._always))
        self._bounds = Bounds().know(self._always)
        self._solver = Sequents(rlimit, self._always)

    def check(self) -> int:
        """Check all; return how many claims that were."""
        if self._solver.given([]).first_open([(True, 0)]) is None:
            raise OpenError("vacuous: no launch meets what the kernel requires")
        self._complete()
        self._unshared()
        self._classes = [
            Class(one, self._structures.numbers(one), self._code, self._orbits, self._world.walk)
            for one in self._recorder.states
        ]
        steps = list(self._steps())
        self._settle(steps)
        for step in steps:
            self._judge(step)
        return sum(1 + len(step.asked) for step in steps)

    # --- what was followed, and which rings are alone -------------------------------------------

    def _complete(self) -> None:
        """Demand that each way on was followed to its end, from the start and from every state."""
        sources = {source for source, *_ in self._recorder.steps}
        left = [n for n in range(-1, len(self._recorder.states)) if n not in sources]
        if left:
            raise OpenError(f"state {left[0]} was kept, and what follows it was not followed")
        ways: dict[object, tuple[int, set[int]]] = {}
        for _, notes, _, _ in self._recorder.steps:
            for note in notes:
                if isinstance(note, Split | Decided | Served):
                    ways.setdefault(note.fork, (note.many, set()))[1].add(note.way)
        if any(len(found) < many for many, found in ways.values()):
            raise OpenError("one of several ways on was not followed")

    def _unshared(self) -> None:
        """Demand that rings that rotate share no bytes with anything else."""
        kernel = self._code.kernel
        spans = [
            (b.start(slot), b.start(slot) + b.slot_nbytes, ("access", b.name))
            for b in kernel.buffers
            for slot in range(b.slots)
        ]
        spans += [
            (
                kernel.barrier_at(m) + 8 * slot,
                kernel.barrier_at(m) + 8 * slot + 8,
                ("phase", m.name),
            )
            for m in kernel.barriers
            for slot in range(m.slots)
        ]
        for (_, end, one), (start, _, other) in combinations(sorted(spans), 2):
            if start < end and (one in self._rings or other in self._rings):
                raise OpenError(f"{one[1]} and {other[1]} share bytes, and a ring of them rotates")

    # --- what is evaluated on the way -----------------------------------------------------------

    def _steps(self) -> Iterator[Step]:
        for source, notes, to, state in self._recorder.steps:
            step = Step(source, to, {}, {})
            now = dict(self._classes[source].members) if source >= 0 else {}
            self._follow(step, now, notes)
            self._over(state)
            if to is not None:
                self._arrive(step, now, state)
            yield step

    def _over(self, state: State) -> None:
        """Demand that threads that are done can reach no statement any more."""
        for a in state.agents:
            index = a.kind.index
            if a.done and (index, a.at) not in self._ended:
                if any(isinstance(i, Do) for i in reached(self._code.programs[index], a.at)):
                    raise OpenError(f"{a.kind} are taken to be done before their last statement")
                self._ended.add((index, a.at))

    def _follow(self, step: Step, now: dict[Number, Expr], notes: list[Note]) -> None:
        """Add what notes assume or claim."""
        slot, started = 0, step.source >= 0
        for note in notes:
            match note:
                case Evaluated():
                    if note.name == "bar":
                        slot = note.value
                    # a number of a slot is the same in no rotated state, so numbers are asked, too
                    key = note.agent, note.do, note.name, started
                    read = self._read.get(key) or self._reading(key, _control(note), note)
                    by = note.value, slot, *map(now.get, read.of)
                    if by not in read.found:
                        found = self._replaced(read.expr, by[2:])
                        wanted = self._rotated(step.source, note, slot)
                        read.found[by] = normal(eq(found, wanted))
                    self._claim(step, read.found[by], note)
                case Assigned(agent, name, expr):
                    now[agent, name] = self._valued(expr, now, agent)
                case Tested(agent, expr, answer):
                    test = self._valued(expr, now, agent)
                    self._claim(step, test if answer else normal(eq(test, 0)), note)
                case Compared():
                    kind, answer = note.kind, note.answer
                    left, right = self._number(note.left, now), self._number(note.right, now)
                    same = self._compared.get((kind, left, right, answer))
                    if same is None:
                        test = normal(fold(kind, left, right))
                        same = test if answer else normal(eq(test, 0))
                        self._compared[kind, left, right, answer] = same
                    self._claim(step, same, note)
                case Split():
                    n = self._code.atoms.meaning(note.unknown.atom)
                    shift = self._classes[step.source].shift_of(note.unknown) if started else 0
                    at = fold(Kind.ADD, shift, note.known.low)
                    known = eq(n, at) if note.known.exact else fold(Kind.LE, at, n)
                    if note.known.exact and note.known.low == note.least:
                        known = fold(Kind.LE, n, at)
                    step.asked.setdefault((False, known), note)
                case Decided(_, way, _, test):
                    step.asked.setdefault((False, test if way else eq(test, 0)), note)
                case Kept(number, of):
                    now[number] = self._number(of, now)
                case Said(agent, where, told, taken):
                    put = {str(n): e for (of, n), e in now.items() if of == ("told", where)}
                    own = {str(n): e for (of, n), e in now.items() if of == agent}
                    for one, other in zip(told, taken, strict=True):
                        for same in _same(one, put, other, own):
                            self._claim(step, normal(same), note)
                case Served():
                    pass

    def _number(self, number: Number | int, now: dict[Number, Expr]) -> Expr:
        """Return a number in terms of the shifts of the class."""
        found = number if isinstance(number, int) else now.get(number)
        if found is None:
            raise BeyondError("boxes that CTAs share move along more than one loop")
        return found

    def _reading(
        self, key: tuple[object, ...], expr: Expr, note: Evaluated | None = None
    ) -> Reading:
        """Begin to put down what an expression of threads is found to be, as for others of it."""
        of = expr, *key[2:], *((note.do.site.stmt,) if note else ())
        found = self._found.setdefault(of, {})
        self._read[key] = Reading(expr, tuple((key[0], v.name) for v in named(expr)), found)
        return self._read[key]

    def _valued(self, expr: Expr, now: dict[Number, Expr], agent: int) -> Expr:
        """Return an expression of threads in terms of the shifts of the class."""
        if isinstance(expr, int):
            return expr
        key = agent, expr
        read = self._read.get(key) or self._reading(key, expr)
        by = tuple(map(now.get, read.of))
        if by not in read.found:
            read.found[by] = self._replaced(expr, by)
        return read.found[by]

    def _replaced(self, expr: Expr, by: tuple[Expr | None, ...]) -> Expr:
        """Put other expressions in place of the variables of one, and reduce it."""
        key = expr, by
        if key not in self._put:
            values = {v: e for v, e in zip(named(expr), by, strict=True) if e is not None}
            self._put[key] = normal(substitute(expr, values))
        return self._put[key]

    def _with(self, expr: Expr, values: Mapping[Var, Expr]) -> Expr:
        """Put what is known of some variables in place of them."""
        return self._replaced(expr, tuple(map(values.get, named(expr))))

    def _claim(self, step: Step, claim: Expr, note: Note) -> None:
        """Add a claim; what is true by itself, or was claimed before, is not asked again."""
        if not isinstance(claim, int) or not claim:
            step.asked.setdefault((True, claim), note)

    def _rotated(self, source: int, note: Evaluated, slot: int) -> Expr:
        """Return the value of a control expression when the rings have been rotated."""
        stmt, name, value = note.do.site.stmt, note.name, note.value
        barrier = sites.mbarrier(stmt)
        ring, slots = ("", ""), 1
        if barrier is not None and name in ("bar", "parity"):
            ring, slots = ("phase", barrier.name), barrier.slots
        else:
            for one in sites.slots(stmt):
                if name == ("a" if one is getattr(stmt, "a", None) else "slot"):
                    ring, slots = ("access", one.buffer.name), one.buffer.slots
        orbit = self._rings.get(ring)
        if orbit is None or source < 0:
            return value
        by = rotation(orbit)
        if name == "parity":
            ends = Op(Kind.FLOORDIV, fold(Kind.ADD, by, slot), slots)
            return Op(Kind.MOD, fold(Kind.ADD, ends, value), 2)
        return fold(Kind.MOD, fold(Kind.ADD, by, value), slots)

    # --- where it ends --------------------------------------------------------------------------

    def _arrive(self, step: Step, now: dict[Number, Expr], state: State) -> None:
        """Compare the state at the end with that of the target; work out the target's shifts."""
        assert step.to is not None, "asked of steps that end in a state"
        target = self._classes[step.to]
        numbers = self._structures.numbers(state)
        if target.members.keys() - numbers.keys():
            raise OpenError(f"a state that is taken for state {step.to} lacks a variable")
        for turn, walk in self._structures.over(state):
            past = Compared(Kind.LT, turn, walk, answer=True)
            self._claim(step, normal(fold(Kind.LT, now[turn], now[walk])), past)
        first = [target.defines.get(rotation(i)) for i in range(len(self._orbits))]
        turns = tuple(numbers[a][1] - target.numbers[a][1] if a in numbers else 0 for a in first)
        what = self._structures.difference(state, step.to, target.state, turns)
        if what:
            raise OpenError(f"a state that is taken for state {step.to} differs in the {what}")
        for i, place in enumerate(first):
            step.shifts[rotation(i)] = rotation(i) if step.source >= 0 else 0
            if place is not None:
                kept = target.numbers[place][1]
                step.shifts[rotation(i)] = normal(fold(Kind.SUB, now[place], kept))
        values: dict[Var, Expr] = {rotation(i): r for i, r in enumerate(turns)}
        for shift, number in target.defines.items():
            if shift not in step.shifts:
                _, kept = target.numbers[number]
                step.shifts[shift] = normal(fold(Kind.SUB, now[number], kept))
                values[shift] = numbers[number][1] - kept
        # threads of one kind are at one place
        pairs = {(now[number], member): number for number, member in target.members.items()}
        for (found, member), number in pairs.items():
            same = normal(eq(found, self._with(member, step.shifts)))
            self._claim(step, same, Compared(Kind.EQ, number, numbers[number][1], answer=True))
        target.drop_refuted(values)

    # --- asking z3 ------------------------------------------------------------------------------

    def _given(self, source: int) -> Given:
        """Return what holds in a class, and what its equations say of its shifts."""
        facts = self._classes[source].facts if source >= 0 else self._none
        found = self._told.get(source)
        if found is None or found.facts is not facts:
            equal = solved(facts)
            found = self._told[source] = Given(facts, equal, Bounds(self._bounds))
            # what the facts say of launches, others say more of
            said = [eq(v, e) for v, e in equal.items() if v in self._launch]
            always = [f for f in self._always if variables(f) & equal.keys()] if said else []
            for fact in (*said, *(self._in(found, f) for f in (*always, *facts))):
                if not found.bounds.give(fact):
                    found.bounds.know([fact])
                    found.known.append(fact)
        return found

    def _in(self, given: Given, expr: Expr) -> Expr:
        """Write an expression of the shifts of a class by what its equations say."""
        if expr not in given.put:
            given.put[expr] = self._with(expr, given.equal)
        return given.put[expr]

    def _settle(self, steps: list[Step]) -> None:
        """Drop facts of classes until those that are left follow on every step."""
        leaving: dict[int, list[Step]] = defaultdict(list)
        for step in steps:
            leaving[step.source].append(step)
        todo = dict.fromkeys(leaving)
        while todo:
            source = next(iter(todo))
            del todo[source]
            for step in leaving[source]:
                if step.to is not None and self._dropped(step) and step.to in leaving:
                    todo[step.to] = None

    def _dropped(self, step: Step) -> bool:
        """Drop the target's facts that do not follow on a step; whether there were some."""
        assert step.to is not None, "asked of steps that end in a state"
        target = self._classes[step.to]
        given = self._given(step.source)
        left, bounds = self._left(step, given)
        goals = {f: self._in(given, self._with(f, step.shifts)) for f in target.facts}
        asked = {g: None for g in goals.values() if not bounds.give(g)}
        if not asked:
            return False
        asker = self._solver.given(given.known)
        held, sure = asker.held_after([one for one, _ in left], asked)
        step.sure = given if sure else None
        kept = [f for f in target.facts if goals[f] not in asked or goals[f] in held]
        changed = len(kept) < len(target.facts)
        if changed:
            target.facts = kept
        return changed

    def _left(
        self, step: Step, given: Given
    ) -> tuple[list[tuple[tuple[bool, Expr], Note]], Bounds]:
        """Return what there is to assume and to claim on a step, and what is plain at its end."""
        bounds = Bounds(given.bounds)
        left = []
        for (claims, expr), note in step.asked.items():
            one = self._in(given, expr)
            if not bounds.give(one):
                left.append(((claims, one), note))
                if not claims:
                    bounds.know([one])
        return left, bounds

    def _judge(self, step: Step) -> None:
        """Ask whether what a step claims follows from the facts of its class."""
        given = self._given(step.source)
        if step.sure is given:
            return
        left, _ = self._left(step, given)
        wrong = self._solver.given(given.known).first_open([one for one, _ in left])
        if wrong is not None:
            raise OpenError(f"it does not follow for every launch: {_said(left[wrong][1])}")


def _control(note: Evaluated) -> Expr:
    """Return the expression of a number that decides what a statement does."""
    return note.do.exprs[list(note.do.values).index(note.name)]


def _said(note: Note) -> str:
    """Return a claim in words."""
    match note:
        case Evaluated(_, do, name):
            return f"{do.site.where}: {name} is {_control(note)}"
        case Tested(_, expr, answer):
            return f"`{expr}` is {str(answer).lower()}"
        case Said(_, where, told, taken):
            return f"{where[1]}[{where[2]}] says {told}, which is {taken}"
        case Compared(kind, left, right, answer):
            return f"{left} {kind.value} {right} is {str(answer).lower()}"
        case _:
            return ""


def _valued(expr: Expr, values: Mapping[str, Expr]) -> dict[object, Expr]:
    """Return how often a sum has each product of what has no value, and 1."""
    return {
        part: sum((n * values.get(name, 1) for name, n in of.items()), start=0)
        for part, of in multiples(expr, values.keys()).items()
    }


def _same(
    one: Expr, put: Mapping[str, Expr], other: Expr, own: Mapping[str, Expr]
) -> Iterator[Expr]:
    """Yield claims by which two expressions are equal: sums have as much of everything."""
    try:
        left, right = _valued(one, put), _valued(other, own)
    except UnsupportedError:
        values = ({Var(name): e for name, e in of.items()} for of in (put, own))
        yield eq(*map(substitute, (one, other), values))
        return
    for part in {**left, **right}:
        yield eq(left.get(part, 0), right.get(part, 0))


@lru_cache(maxsize=1 << 14)
def named(expr: Expr) -> tuple[Var, ...]:
    """Return the variables of an expression in a fixed order."""
    return tuple(sorted(variables(expr), key=str))
