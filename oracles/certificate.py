"""The certificate: z3's proof of a kernel's synchronisation for all trip counts at once.

It judges what `prover` judges of the order of events, by other means: nothing is followed, no trip
count is chosen.  Events of iteration k and its neighbours are integers, what they require of each
other are constraints on differences, an obligation is what z3 must not find (`claims`), and k and
the trip count n are unknowns like the others.  Only the reading of the kernel is shared.

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
from fuser.kernel_text import line
from oracles.arithmetic import NegativeError, UnsupportedError
from oracles.claims import Claim, Claims
from oracles.footprint import Footprints
from oracles.order import Order
from oracles.parametric import both, either
from oracles.skeleton import RefusedError, Skeleton
from oracles.smt import Answer, Script
from oracles.trace import Step, Trace, read
from oracles.verdict import Finding, Status, Verdict
from oracles.window import Window, schedule

ORACLE = "certificate"
RLIMIT = 3_000_000
"""Work limit of one question, in z3's units; the hardest one seen takes about a tenth of it."""
REPLAYED = 200
"""Largest trip count at which a refutation is looked for in the graph."""
Times = dict[int, int]
"""The time of each node in a schedule."""


class UndecidedError(Exception):
    """The solver gave up, or what it says proves nothing."""


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
    try:
        trace = read(kernel)
        return judge(trace, Footprints(trace), policy, rlimit)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))


def judge(trace: Trace, footprints: Footprints, policy: str, rlimit: int = RLIMIT) -> Verdict:
    """Do what `certify` does, of a kernel that is read already."""
    try:
        return _judged(trace, footprints, policy, rlimit)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    except NegativeError as error:
        reason = f"divides a negative number ({error})"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=reason)
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))


def _judged(trace: Trace, footprints: Footprints, policy: str, rlimit: int) -> Verdict:
    try:
        checked = _initialised(trace)
        skeleton = Skeleton(trace, footprints)
        times = _scheduled(skeleton, rlimit)
        claims = Claims(skeleton, times, policy)
    except RefusedError as error:
        return _refuted(trace, footprints, error.kind, error.step, error.says, 0)
    wrong = _existing(claims.existing, rlimit)
    wrong = wrong or _ordered(skeleton, times, claims.ordered, rlimit)
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


# --- the three questions ------------------------------------------------------------------------


def _scheduled(skeleton: Skeleton, rlimit: int) -> Times:
    """Return the times of a schedule.

    Raises
    ------
    RefusedError
        If there is none, which is a deadlock.
    """
    names = [f"t{node}" for node in range(skeleton.size)]
    answer = Script(schedule(skeleton), rlimit).ask(values=names)
    if _decided(answer, "schedule") == "unsat":
        waits = [w for phase in skeleton.phases.values() for w, *_ in phase.waits]
        raise RefusedError("deadlock", waits[0] if waits else None, "events wait for each other")
    return {node: answer.values[name] for node, name in enumerate(names)}


def _existing(claims: list[Claim], rlimit: int) -> tuple[Claim, int] | None:
    """Return a claim about what runs that does not hold, with a trip count."""
    wrong = either([claim.when for claim in claims])
    if wrong == "false":
        return None
    head = "(declare-const k Int)(declare-const n Int)(assert (>= n 0))"
    answer = Script(f"{head}(assert {wrong})", rlimit).ask(values=("n",))
    if _decided(answer, "existence") == "unsat":
        return None
    for claim in claims:
        answer = Script(f"{head}(assert {claim.when})", rlimit).ask(values=("n",))
        if _decided(answer, "existence") == "sat":
            return claim, answer.values["n"]
    raise UndecidedError("the solver contradicts itself")


def _ordered(
    skeleton: Skeleton, times: Times, claims: list[Claim], rlimit: int
) -> tuple[Claim, int] | None:
    """Return a claim about the order that is not proved, with a trip count."""
    left = claims
    wrong: tuple[Claim, int] | None = None
    for wide in (False, True):
        still: list[Claim] = []
        found = _asked(skeleton, times, left, rlimit, wide=wide)
        for claim, n in found:
            others = [replace(claim, between=(b,)) for b in claim.between[1:]]
            if not any(not _asked(skeleton, times, [other], rlimit, wide=wide) for other in others):
                still.append(claim)
                wrong = claim, n
        left = still
        if not left:
            return None
    return wrong


def _asked(
    skeleton: Skeleton, times: Times, claims: list[Claim], rlimit: int, *, wide: bool
) -> list[tuple[Claim, int]]:
    """Return the claims that z3 can violate, each with a trip count."""
    if not claims:
        return []
    window = Window(skeleton, _offsets(skeleton, claims, wide=wide))
    violations = [_violation(window, claim) for claim in claims]
    text = [window.text(), "(assert (>= n 0))"]
    for i, violation in enumerate(violations):
        text.append(f"(declare-const c{i} Bool)(assert (=> c{i} {violation}))")
    names = " ".join(f"c{i}" for i in range(len(claims)))
    some = f"(or {names})" if len(claims) > 1 else names
    text.append(f"(declare-const wrong Bool)(assert (=> wrong {some}))")
    text.append(f"(declare-const deep Bool)(assert (=> deep {window.inside(times)}))")
    script = Script("\n".join(text), rlimit)
    if _decided(script.ask("deep"), "premises") == "unsat":
        raise UndecidedError("vacuous: the premises contradict each other")
    if _decided(script.ask("wrong"), "order") == "unsat":
        return []
    found = []
    for i, claim in enumerate(claims):
        answer = script.ask(f"c{i}", values=("n",))
        if _decided(answer, claim.kind) == "sat":
            found.append((claim, answer.values["n"]))
    return found


def _violation(window: Window, claim: Claim) -> str:
    """Say in SMT-LIB that a claim does not hold."""
    first = window.event(*claim.first)
    then = window.event(claim.then, 0)
    if claim.start is not None:
        then = window.start(claim.then, claim.start)
    if not claim.between:
        return both([claim.when, f"(>= {first} {then})"])
    (node, offset), runs = claim.between[0]
    if node < 0:
        return claim.when
    middle = window.event(node, offset)
    apart = [f"(not {runs})", f"(>= {first} {middle})", f"(>= {middle} {then})"]
    return both([claim.when, either(apart)])


def _offsets(skeleton: Skeleton, claims: list[Claim], *, wide: bool) -> set[int]:
    """Return the iterations that matter: those of the claims, and each one before."""
    waits = {
        phase.node: {place.bar.shift for _, place, _, _ in phase.waits if place.bar is not None}
        for phase in skeleton.phases.values()
    }
    found = {0, -1}
    for claim in claims:
        node, offset = claim.first
        found |= {offset - shift for shift in waits.get(node, {0})}
        found |= {at[1] for at, _ in claim.between[:1]}
    if wide:
        reach = max((abs(cross.shift) for cross in skeleton.crosses), default=0)
        return set(range(min(found) - reach - 2, max(found) + reach + 2))
    return found | {o - 1 for o in found}


def _decided(answer: Answer, question: str) -> str:
    if answer.status not in ("sat", "unsat"):
        raise UndecidedError(f"the solver gave up ({question})")
    return answer.status


# --- set-up and refutation ----------------------------------------------------------------------


def _initialised(trace: Trace) -> int:
    """Check that each mbarrier is initialised once, and visible where it is used."""
    checked = 0
    for barrier in trace.kernel.barriers:
        makers = [
            (s, a)
            for s in trace.steps
            if isinstance(s.stmt, kir.MBarrierInit) and s.stmt.barrier == barrier
            for a in s.agents
        ]
        users = [s for s in trace.steps if _uses(s, barrier)]
        if not users:
            continue
        if len(makers) != 1:
            says = f"{barrier.name} is initialised by {len(makers)} kinds of threads"
            raise RefusedError("init", users[0], says)
        made, maker = makers[0]
        if made.loop is not None or made.guard is not None or trace.agents[maker].count > 1:
            raise RefusedError("init", made, f"{barrier.name} is initialised more than once")
        for user in users:
            for agent in user.agents:
                checked += 1
                _visible(trace, made, maker, user, agent)
    return checked


def _visible(trace: Trace, made: Step, maker: int, user: Step, agent: int) -> None:
    program = trace.programs[agent]
    mine = [*program.before, *program.inside, *program.after]
    at = mine.index(user)
    if agent == maker:
        if mine.index(made) < at:
            return
    else:
        whole = [*trace.programs[maker].before]
        for step in program.before[:at]:
            joined = isinstance(step.stmt, kir.BlockSync) and step.guard is None
            if joined and maker in step.agents and whole.index(made) < whole.index(step):
                return
    raise RefusedError("init", user, f"nothing makes `{line(made.stmt)}` visible here")


def _uses(step: Step, barrier: kir.MBarrier) -> bool:
    match step.stmt:
        case (
            kir.MBarrierArrive(used)
            | kir.MBarrierArriveExpectTx(used)
            | kir.MBarrierWaitParity(used)
            | kir.TmaLoad(_, _, used)
        ):
            return used == barrier
        case _:
            return False


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
        if any(v.severity == "error" for v in Order(trace, trips, footprints).violations):
            finding = Finding(kind, where, f"trips={trips}: {says}")
            return Verdict(ORACLE, Status.FAIL, 1, (finding,))
    warning = Finding(kind, where, f"trips={n}: {says}", "warning")
    reason = f"refuted, not replayed: {kind} at {where}: {says}"
    return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)
