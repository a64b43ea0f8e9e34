"""The certificate: z3's proof of a kernel's synchronisation for all trip counts at once.

It judges what `prover` judges of the order of events, by other means: nothing is followed, no trip
count is chosen.  Events of iteration k and its neighbours are integers, what they require of each
other are constraints on differences, an obligation is what z3 must not find (`claims`),
and k and the trip count n are unknowns like the others.  A loop in a loop is two such kernels
(`rewriting.flatten`), a loop that does something else in every m-th iteration is one of fewer
trips (`rewriting.unroll`), roles that take tiles in turn are one role (`alternating_roles`), a
cluster is one CTA with the threads of all (`rewriting.clusters`), CTAs that take turns on a
semaphore are two of them, one turn k and one later (`semaphore.turns`); registers of wgmma are a
matter of one thread's text (`events.registers`).

Notes
-----
Three questions.  *Schedule*: a time for every event that respects every requirement; with the
existence claims, nothing waits for ever.  *Existence*: which iterations run what.  *Order*: no
event violates its obligation, if none before it did (`window` says why that is all
executions).  That the premises alone have a model, with all iterations of the window real, is asked
too.

What z3 finds is refuted only if `closure` refutes the kernel too, with a trip count that shows it;
else the window may have been too small, or a rule too narrow, and the answer is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import NegativeError, UnsupportedError
from oracles.prover.invariants.claims import Claims
from oracles.prover.invariants.events.collective import disjoint, one_way
from oracles.prover.invariants.events.footprint import Footprints
from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.events.initialisation import initialised
from oracles.prover.invariants.events.nodes import RefusedError
from oracles.prover.invariants.events.parametric import shift
from oracles.prover.invariants.events.registers import RegisterError, check
from oracles.prover.invariants.questions import RLIMIT, Questions, UndecidedError, asked, evidence
from oracles.prover.invariants.rewriting.alternating_roles import Team, teamed
from oracles.prover.invariants.rewriting.clusters import Whole, whole
from oracles.prover.invariants.rewriting.flatten import Levels, levels
from oracles.prover.invariants.rewriting.slots import by_number
from oracles.prover.invariants.rewriting.unroll import unrolled
from oracles.prover.invariants.rules import Obligation, Without
from oracles.prover.invariants.semaphore.claims import TurnClaims
from oracles.prover.invariants.semaphore.events import Events
from oracles.prover.invariants.semaphore.turns import split
from oracles.prover.reachability import fixpoint
from oracles.prover.trace import read
from oracles.verdict import Finding, Status, Verdict

ORACLE = "certificate"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A claim that is not proved, or a rule that is broken; `trips` shows it in z3's model.

    A `narrow` one is about what can be proved here, and not about the kernel.
    """

    kind: str
    where: str
    says: str
    trips: int = 0
    narrow: bool = False


def certify(kernel: kir.Kernel, *, policy: str = "default", rlimit: int = RLIMIT) -> Verdict:
    """Prove the synchronisation of a kernel for every trip count.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    policy : str
        "default" or "strict", as for `prover.prove`.
    rlimit : int
        Work limit of each question to z3, in its own units.

    Returns
    -------
    Verdict
        PASS if z3 finds no way to violate a claim, for any trip count; FAIL if it finds one and
        `closure` finds the kernel wrong too; UNKNOWN if that does not or the solver gave up;
        UNSUPPORTED, naming the construct, if the kernel is not of the kind described here.
    """
    return judged(kernel, policy, rlimit)


def judged(kernel: kir.Kernel, policy: str, rlimit: int, without: Without = frozenset()) -> Verdict:
    """Do what `certify` does; `without` some rules, to see what each is good for."""
    try:
        one = by_number(whole(kernel))
        found = _met(one, policy, rlimit, without)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    except NegativeError as error:
        reason = f"divides a negative number ({error})"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=reason)
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))
    if isinstance(found, Doubt):
        return _refuted(kernel, found, policy)
    if found == 0:
        return Verdict(ORACLE, Status.PASS, 1, reason="the threads share no memory")
    return Verdict(ORACLE, Status.PASS, found)


def _met(one: Whole, policy: str, rlimit: int, without: Without) -> int | Doubt:
    """Judge a kernel; one whose CTAs take turns in two parts, with and without them."""
    try:
        parts = split(one.kernel, without)
        if parts is None:
            return _looped(one, policy, rlimit, without)
        checked = check(one.kernel, without)
        events = Events(read(parts.turn, one.lines), without)
        claims = TurnClaims(parts, events, policy).claims
    except (RegisterError, RefusedError) as error:
        return _doubt(one, error)
    wrong = asked(events.text(), [claim.wrong for claim in claims], rlimit)
    if wrong is not None:
        claim = claims[wrong]
        return Doubt(claim.kind, claim.step.where, claim.says)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    found = _looped(Whole(parts.rest, one.lines), policy, rlimit, own)
    return found if isinstance(found, Doubt) else found + checked + len(claims)


def _looped(one: Whole, policy: str, rlimit: int, without: Without) -> int | Doubt:
    """Judge a kernel whose CTAs have nothing to do with each other."""
    team = teamed(one)
    if team is not None:
        return _teamed(one, team, policy, rlimit, without)
    two = levels(one.kernel)
    if two is None:
        return _unrolled(one, policy, rlimit, without)
    return _leveled(one, two, policy, rlimit, without)


def _teamed(one: Whole, team: Team, policy: str, rlimit: int, without: Without) -> int | Doubt:
    """Judge the turns of roles, and what they are as one role."""
    disjoint(one.kernel)
    try:
        checked = check(one.kernel, without)
    except RegisterError as error:
        return _doubt(one, error)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    for part in team.turns:
        found = _proved(part.kernel, part, policy, rlimit, own)
        if isinstance(found, Doubt):
            # one role in place of several needs all threads in order; they may do with less
            batons = found.kind in ("RAW", "WAR", "WAW")
            return replace(found, narrow=found.narrow or batons)
        checked += found
    found = _looped(team.one, policy, rlimit, own)
    return found if isinstance(found, Doubt) else found + checked


def _unrolled(one: Whole, policy: str, rlimit: int, without: Without) -> int | Doubt:
    """Judge a kernel with one loop, or what it is for each remainder of its trips."""
    checked = 0
    for part in unrolled(one):
        found = _proved(part.kernel, part, policy, rlimit, without)
        if isinstance(found, Doubt):
            return found
        checked += found
    return checked


def _leveled(one: Whole, two: Levels, policy: str, rlimit: int, without: Without) -> int | Doubt:
    """Judge the steps and the tiles of a kernel, and that both together go on."""
    try:
        disjoint(one.kernel)
        one_way(one.kernel)
        checked = check(one.kernel, without)
        trace = read(two.whole, one.lines)
        skeleton = Skeleton(trace, Footprints(trace), without)
        _forward(skeleton, two)
        Questions(skeleton, rlimit)
    except (RegisterError, RefusedError) as error:
        return _doubt(one, error)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    for level in (two.steps, two.tiles):
        found = _proved(level, one, policy, rlimit, own)
        if isinstance(found, Doubt):
            return found
        checked += found
    return checked


def _forward(skeleton: Skeleton, two: Levels) -> None:
    """Check that no tile waits for a later one, which the stretching of a schedule relies on."""
    for name, phase in skeleton.phases.items():
        for step, wait, _, _ in phase.waits if name in two.slow else ():
            causes = [*(p for _, p, _, _ in phase.arrivals), *(p for _, p, _, _ in phase.copies)]
            if any(shift(wait) > shift(cause) for cause in causes):
                raise UnsupportedError(f"{step.where}: a tile waits for a later one")


def _proved(
    kernel: kir.Kernel, one: Whole, policy: str, rlimit: int, without: Without
) -> int | Doubt:
    """Judge a kernel with one loop, a level of `one`; return how many claims were proved."""
    trace = read(kernel, one.lines)
    try:
        checked = initialised(trace) if Obligation.INIT not in without else 0
        skeleton = Skeleton(trace, Footprints(trace), without)
        if not {Obligation.REGISTERS, Obligation.FENCE} <= without:
            checked += check(kernel, without)
        questions = Questions(skeleton, rlimit)
        claims = Claims(skeleton, questions.times, policy)
    except (RegisterError, RefusedError) as error:
        return _doubt(one, error)
    wrong = questions.existing(claims.existing) or questions.ordered(claims.ordered)
    gap = None if wrong else questions.existing(claims.returning)
    if (found := wrong or gap) is not None:
        claim, n = found
        return Doubt(claim.kind, claim.step.where, claim.says, n, narrow=wrong is None)
    if not (claims.ordered or claims.existing or claims.returning):
        if skeleton.accesses or skeleton.phases or skeleton.groups:
            raise UndecidedError("vacuous: nothing is claimed")
        return checked
    asked_of = (claims.existing, claims.ordered, claims.returning, skeleton.crosses)
    return checked + sum(map(len, asked_of))


# --- refutation ---------------------------------------------------------------------------------


def _doubt(one: Whole, error: RefusedError | RegisterError) -> Doubt:
    """Return a broken rule, with its line in the kernel's text."""
    if isinstance(error, RefusedError):
        where = error.step.where if error.step is not None else one.kernel.name
    else:
        where = f"line {one.lines.get(id(error.stmt), 0)}: {line(error.stmt)}"
    return Doubt(error.kind, where, error.says)


def _refuted(kernel: kir.Kernel, doubt: Doubt, policy: str) -> Verdict:
    """Answer for a claim that does not hold: FAIL if the other engine refutes the kernel too."""
    try:
        violations = fixpoint.judge(kernel, policy=policy).violations
    except UnsupportedError:
        violations = ()
    if violations:
        trips = min(v.trips for v in violations)
        says = f"trips={trips}: {doubt.says}"
        finding = Finding(doubt.kind, doubt.where, says, trips=trips)
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))
    if doubt.narrow:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"{doubt.where}: {doubt.says}")
    says = f"trips={doubt.trips}: {doubt.says}"
    warning = Finding(doubt.kind, doubt.where, says, "warning", trips=doubt.trips)
    reason = f"refuted, not replayed: {doubt.kind} at {doubt.where}: {doubt.says}"
    return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)


def text(kernel: kir.Kernel, *, policy: str = "default") -> str:
    """Return what z3 is asked about the order of a kernel's events, in SMT-LIB.

    It is evidence to be kept: every question is the one whose answer is "unsat", so that any solver
    can be asked again.

    Raises
    ------
    UnsupportedError
        If the kernel is not of the kind described here.
    UndecidedError
        If some of it is not proved, so that there is nothing to show.
    """
    one = by_number(whole(kernel))
    out = []
    try:
        met = split(one.kernel, frozenset())
        if met is not None:
            events = Events(read(met.turn, one.lines), frozenset())
            claims = TurnClaims(met, events, policy).claims
            out.append(evidence(kernel.name, events.text(), [claim.wrong for claim in claims]))
            one = Whole(met.rest, one.lines)
        for part in _parts(one):
            trace = read(part.kernel, part.lines)
            skeleton = Skeleton(trace, Footprints(trace))
            questions = Questions(skeleton, RLIMIT)
            found = Claims(skeleton, questions.times, policy)
            wrong = (
                questions.existing(found.existing)
                or questions.ordered(found.ordered)
                or questions.existing(found.returning)
            )
            if wrong is not None:
                raise UndecidedError(f"text({kernel.name}): not proved: {wrong[0].says}")
            out += [f"; {kernel.name}: {question}" for question in questions.proved]
    except RefusedError as error:
        raise UndecidedError(f"text({kernel.name}): not proved: {error}") from error
    return "\n".join(out)


def _parts(one: Whole) -> list[Whole]:
    """Return the kernels of one loop that a kernel is judged by."""
    team = teamed(one)
    if team is not None:
        return [*team.turns, *_parts(team.one)]
    two = levels(one.kernel)
    if two is not None:
        return [Whole(two.steps, one.lines), Whole(two.tiles, one.lines)]
    return unrolled(one)
