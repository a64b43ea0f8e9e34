"""The certificate: z3's proof of a kernel's synchronisation for all trip counts at once.

It judges what `prover` judges of the order of events, by other means: nothing is followed, no trip
count is chosen.  Events of iteration k and its neighbours are integers, what they require of each
other are constraints on differences, an obligation is what z3 must not find (`claims`), and k and
the trip count n are unknowns like the others.  A loop in a loop is two such kernels (`flatten`);
registers of wgmma are a matter of one thread's text (`registers`).

Notes
-----
Three questions.  *Schedule*: a time for every event that respects every requirement; with the
existence claims, nothing waits for ever.  *Existence*: which iterations run what.  *Order*: no
event violates its obligation, if none before it did (`window` says why that is all executions).
That the premises alone have a model, with all iterations of the window real, is asked too.

What z3 finds is refuted only if the graph of one small trip count shows it as well; else the window
may have been too small, and the answer is unknown.
"""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir
from oracles.arithmetic import NegativeError, UnsupportedError
from oracles.certificate_rules import Obligation, Without
from oracles.claims import Claims
from oracles.collective import one_way
from oracles.flatten import Levels, levels
from oracles.footprint import Footprints
from oracles.initialisation import initialised
from oracles.nodes import RefusedError
from oracles.order import Order
from oracles.parametric import shift
from oracles.questions import REPLAYED, RLIMIT, Questions, UndecidedError
from oracles.registers import RegisterError, check
from oracles.skeleton import Skeleton
from oracles.trace import Step, Trace, read
from oracles.verdict import Finding, Status, Verdict

ORACLE = "certificate"


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
        PASS if z3 finds no way to violate a claim, for any trip count; FAIL if it finds one and the
        graph of a small trip count agrees; UNKNOWN if that does not or the solver gave up;
        UNSUPPORTED, naming the construct, if the kernel is not of the kind described here.
    """
    return judged(kernel, policy, rlimit)


def judged(kernel: kir.Kernel, policy: str, rlimit: int, without: Without = frozenset()) -> Verdict:
    """Do what `certify` does; `without` some rules, to see what each is good for."""
    try:
        two = levels(kernel)
        if two is not None:
            return _leveled(kernel, two, policy, rlimit, without)
        trace = read(kernel)
        return judge(trace, Footprints(trace), policy, rlimit, without=without)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))


def _leveled(
    kernel: kir.Kernel, two: Levels, policy: str, rlimit: int, without: Without
) -> Verdict:
    """Judge the steps and the tiles of a kernel, and that both together go on."""
    checked = 0
    try:
        one_way(kernel)
        checked += check(kernel, without)
        trace = read(two.whole, kernel)
        skeleton = Skeleton(trace, Footprints(trace), without)
        _forward(skeleton, two)
        Questions(skeleton, rlimit)
    except (RegisterError, RefusedError) as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=f"refuted, not replayed: {error}")
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))
    own = without | {Obligation.REGISTERS, Obligation.FENCE}
    for level in (two.steps, two.tiles):
        trace = read(level, kernel)
        verdict = judge(trace, Footprints(trace), policy, rlimit, without=own)
        if verdict.status is Status.FAIL:
            # What refutes one level alone may be ordered by what the other one does.
            (finding,) = verdict.findings
            reason = f"refuted, not replayed: {finding}"
            warning = replace(finding, severity="warning")
            return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)
        if verdict.status is not Status.PASS:
            return verdict
        checked += verdict.checked
    return Verdict(ORACLE, Status.PASS, checked)


def _forward(skeleton: Skeleton, two: Levels) -> None:
    """Check that no tile waits for a later one, which the stretching of a schedule relies on."""
    for name, phase in skeleton.phases.items():
        for step, wait, _, _ in phase.waits if name in two.slow else ():
            causes = [*(p for _, p, _, _ in phase.arrivals), *(p for _, p, _, _ in phase.copies)]
            if any(shift(wait) > shift(cause) for cause in causes):
                raise UnsupportedError(f"{step.where}: a tile waits for a later one")


def judge(
    trace: Trace,
    footprints: Footprints,
    policy: str,
    rlimit: int = RLIMIT,
    *,
    without: Without = frozenset(),
) -> Verdict:
    """Do what `certify` does, of a kernel that is read already; `without` rules only in tests."""
    try:
        return _judged(trace, footprints, policy, rlimit, without)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    except NegativeError as error:
        reason = f"divides a negative number ({error})"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=reason)
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))


def _judged(
    trace: Trace, footprints: Footprints, policy: str, rlimit: int, without: Without
) -> Verdict:
    try:
        checked = initialised(trace) if Obligation.INIT not in without else 0
        skeleton = Skeleton(trace, footprints, without)
        if not {Obligation.REGISTERS, Obligation.FENCE} <= without:
            checked += check(trace.kernel, without)
        questions = Questions(skeleton, rlimit)
        claims = Claims(skeleton, questions.times, policy)
    except RegisterError as error:
        step = next((s for s in trace.steps if s.stmt is error.stmt), None)
        return _refuted(trace, footprints, error.kind, step, error.says, 0)
    except RefusedError as error:
        return _refuted(trace, footprints, error.kind, error.step, error.says, 0)
    wrong = questions.existing(claims.existing) or questions.ordered(claims.ordered)
    if wrong is not None:
        claim, n = wrong
        return _refuted(trace, footprints, claim.kind, claim.step, claim.says, n)
    checked += len(claims.existing) + len(claims.ordered) + len(skeleton.crosses)
    if not claims.ordered and not claims.existing:
        return _trivial(skeleton)
    return Verdict(ORACLE, Status.PASS, checked)


def _trivial(skeleton: Skeleton) -> Verdict:
    """Answer for a kernel whose threads share nothing: then nothing can go wrong."""
    if skeleton.accesses or skeleton.phases or skeleton.groups:
        raise UndecidedError("vacuous: nothing is claimed")
    return Verdict(ORACLE, Status.PASS, 1, reason="the threads share no memory")


# --- refutation ---------------------------------------------------------------------------------


def _refuted(
    trace: Trace, footprints: Footprints, kind: str, step: Step | None, says: str, n: int
) -> Verdict:
    """Answer for a claim that does not hold: FAIL if the graph of a small trip count agrees."""
    where = step.where if step is not None else trace.kernel.name
    kernel = trace.kernel
    rings = [b.slots for b in kernel.barriers] + [b.slots for b in kernel.buffers]
    slots = max(rings, default=1)
    tried = [n, *range(2 * slots + 3)] if n <= REPLAYED else [*range(2 * slots + 3)]
    for trips in tried:
        if _replays(trace, trips, footprints):
            finding = Finding(kind, where, f"trips={trips}: {says}")
            return Verdict(ORACLE, Status.FAIL, 1, (finding,))
    warning = Finding(kind, where, f"trips={n}: {says}", "warning")
    reason = f"refuted, not replayed: {kind} at {where}: {says}"
    return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)


def _replays(trace: Trace, trips: int, footprints: Footprints) -> bool:
    """Whether the graph of one trip count shows an error; it does not know all statements."""
    try:
        found = Order(trace, trips, footprints).violations
    except UnsupportedError:
        return False
    return any(v.severity == "error" for v in found)


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
    two = levels(kernel)
    parts = [kernel] if two is None else [two.steps, two.tiles]
    out = []
    for part in parts:
        trace = read(part, kernel)
        try:
            skeleton = Skeleton(trace, Footprints(trace))
            questions = Questions(skeleton, RLIMIT)
            claims = Claims(skeleton, questions.times, policy)
        except RefusedError as error:
            raise UndecidedError(f"text({kernel.name}): not proved: {error}") from error
        wrong = questions.existing(claims.existing) or questions.ordered(claims.ordered)
        if wrong is not None:
            raise UndecidedError(f"text({kernel.name}): not proved: {wrong[0].says}")
        out += [f"; {kernel.name}: {question}" for question in questions.proved]
    return "\n".join(out)
