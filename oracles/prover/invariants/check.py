"""z3's proof of a kernel's synchronisation, for all trip counts at once.

It judges what `prover` judges of the order of events, by other means: nothing is followed, no trip
count is chosen.  Events of iteration k and its neighbours are integers, what they require of each
other are constraints on differences, an obligation is what z3 must not find (`claims`),
and k and the trip count n are unknowns like the others.  A loop in a loop is two such kernels
(`rewriting.flatten`), a loop that does something else in every m-th iteration is one of fewer
trips (`rewriting.unroll`), roles that take tiles in turn are one role (`alternating_roles`), a
cluster is one CTA with the threads of all (`rewriting.clusters`), CTAs that take turns on a
semaphore are two of them, one turn k and one later (`semaphore.turns`); registers of wgmma are a
matter of one thread's text (`registers`).

Notes
-----
Three questions.  *Schedule*: a time for every event that respects every requirement; with the
existence claims, nothing waits for ever.  *Existence*: which iterations run what.  *Order*: no
event violates its obligation, if none before it did (`questions` says why that is all executions).
That the assumptions alone have a model, with all iterations of the window real, is asked too.

What z3 finds is refuted only if `reachability` refutes the kernel too, with a trip count that shows
it; else the window may have been too small, or a rule too narrow, and the answer is unknown.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import NegativeError, UnsupportedError
from oracles.prover.invariants.claims import Claims
from oracles.prover.invariants.graph import EventGraph
from oracles.prover.invariants.questions import RLIMIT, Questions, UndecidedError, asked
from oracles.prover.invariants.rewriting.alternating_roles import Team, teamed
from oracles.prover.invariants.rewriting.clusters import whole
from oracles.prover.invariants.rewriting.loops import Levels, levels, unrolled
from oracles.prover.invariants.rewriting.statements import Whole, by_number
from oracles.prover.invariants.rules import Obligation, RefusedError, Without
from oracles.prover.invariants.semaphore.claims import TurnClaims
from oracles.prover.invariants.semaphore.events import Events
from oracles.prover.invariants.semaphore.turns import split
from oracles.prover.invariants.static import check, disjoint, initialised, one_way
from oracles.prover.invariants.trace import read, shift
from oracles.prover.reachability import fixpoint
from oracles.verdict import Finding, Status, Verdict

ORACLE = "invariants"


def confirm(
    kernel: kir.Kernel,
    *,
    policy: str = "default",
    rlimit: int = RLIMIT,
    without: Without = frozenset(),
) -> Verdict:
    """Prove the synchronisation of a kernel for every trip count.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    policy : str
        "default" or "strict", as for `prover.prove`.
    rlimit : int
        Work limit of each question to z3, in its own units.
    without : set of rules
        Rules to leave out, to see what each is good for.

    Returns
    -------
    Verdict
        PASS if z3 finds no way to violate a claim, for any trip count; FAIL if it finds one and
        `reachability` finds the kernel wrong too; UNKNOWN if that does not or the solver gave up;
        UNSUPPORTED, naming the construct, if the kernel is not of the kind described here.
    """
    try:
        one = whole(kernel)
        found = _met(by_number(one), policy, rlimit, without)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    except NegativeError as error:
        reason = f"divides a negative number ({error})"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=reason)
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))
    except RefusedError as error:
        stmt = error.stmt
        where = kernel.name if stmt is None else f"line {one.lines[stmt]}: {line(stmt)}"
        return _refuted(kernel, error, where, policy)
    if found == 0:
        return Verdict(ORACLE, Status.PASS, 1, reason="the threads share no memory")
    return Verdict(ORACLE, Status.PASS, found)


def _met(one: Whole, policy: str, rlimit: int, without: Without) -> int:
    """Judge a kernel; one whose CTAs take turns in two parts, with and without them."""
    parts = split(one.kernel, without)
    if parts is None:
        return _looped(one, policy, rlimit, without)
    checked = check(one.kernel, without)
    events = Events(read(parts.turn, one.lines), without)
    claims = TurnClaims(parts, events, policy).claims
    wrong = asked(events.text(), [claim.wrong for claim in claims], rlimit)
    if wrong is not None:
        claim = claims[wrong]
        raise RefusedError(claim.kind, claim.step.stmt, claim.says)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    return _looped(Whole(parts.rest, one.lines), policy, rlimit, own) + checked + len(claims)


def _looped(one: Whole, policy: str, rlimit: int, without: Without) -> int:
    """Judge a kernel whose CTAs have nothing to do with each other."""
    team = teamed(one)
    if team is not None:
        return _teamed(one, team, policy, rlimit, without)
    two = levels(one.kernel)
    if two is not None:
        return _leveled(one, two, policy, rlimit, without)
    return sum(_proved(part, policy, rlimit, without) for part in unrolled(one))


def _teamed(one: Whole, team: Team, policy: str, rlimit: int, without: Without) -> int:
    """Judge the turns of roles, and what they are as one role."""
    disjoint(one.kernel)
    checked = check(one.kernel, without)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    for part in team.turns:
        try:
            checked += _proved(part, policy, rlimit, own)
        except RefusedError as error:
            # one role in place of several needs all threads in order; they may do with less
            error.narrow |= error.kind in ("RAW", "WAR", "WAW")
            raise
    return checked + _looped(team.one, policy, rlimit, own)


def _leveled(one: Whole, two: Levels, policy: str, rlimit: int, without: Without) -> int:
    """Judge the steps and the tiles of a kernel, and that both together go on."""
    disjoint(one.kernel)
    one_way(one.kernel)
    checked = check(one.kernel, without)
    trace = read(two.whole, one.lines)
    graph = EventGraph(trace, without)
    _forward(graph, two)
    Questions(graph, rlimit)
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    parts = (Whole(level, one.lines) for level in (two.steps, two.tiles))
    return checked + sum(_proved(part, policy, rlimit, own) for part in parts)


def _forward(graph: EventGraph, two: Levels) -> None:
    """Check that no tile waits for a later one, which the stretching of a schedule relies on."""
    for name, phase in graph.phases.items():
        for step, wait, _, _ in phase.waits if name in two.slow else ():
            causes = [*(p for _, p, _, _ in phase.arrivals), *(p for _, p, _, _ in phase.copies)]
            if any(shift(wait) > shift(cause) for cause in causes):
                raise UnsupportedError(f"{step.where}: a tile waits for a later one")


def _proved(one: Whole, policy: str, rlimit: int, without: Without) -> int:
    """Judge a kernel with one loop; return how many claims were proved."""
    trace = read(one.kernel, one.lines)
    checked = initialised(trace) if Obligation.INIT not in without else 0
    graph = EventGraph(trace, without)
    if not {Obligation.REGISTERS, Obligation.FENCE} <= without:
        checked += check(one.kernel, without)
    questions = Questions(graph, rlimit)
    claims = Claims(graph, questions.times, policy)
    wrong = questions.existing(claims.existing) or questions.ordered(claims.ordered)
    gap = None if wrong else questions.existing(claims.returning)
    if (found := wrong or gap) is not None:
        claim, n = found
        raise RefusedError(claim.kind, claim.step.stmt, claim.says, n, narrow=wrong is None)
    if not (claims.ordered or claims.existing or claims.returning):
        if graph.accesses or graph.phases or graph.groups:
            raise UndecidedError("vacuous: nothing is claimed")
        return checked
    asked_of = (claims.existing, claims.ordered, claims.returning, graph.crosses)
    return checked + sum(map(len, asked_of))


def _refuted(kernel: kir.Kernel, error: RefusedError, where: str, policy: str) -> Verdict:
    """Answer for a claim that does not hold: FAIL if the other engine refutes the kernel too."""
    try:
        violations = fixpoint.judge(kernel, policy=policy).violations
    except UnsupportedError:
        violations = ()
    if violations:
        trips = min(v.trips for v in violations)
        finding = Finding(error.kind, where, f"trips={trips}: {error.says}", trips=trips)
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))
    if error.narrow:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"{where}: {error.says}")
    says = f"trips={error.trips}: {error.says}"
    warning = Finding(error.kind, where, says, "warning", trips=error.trips)
    reason = f"refuted, not replayed: {error.kind} at {where}: {error.says}"
    return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)
