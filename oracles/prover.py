"""The prover: no race, no deadlock and no lost element, in any interleaving, for any trip count.

It judges a Kernel alone.  `closure` follows every state that the kernel can come to, until states
repeat, and asks of every two accesses that conflict whether they are ordered; `certificate` has z3
prove the same for all trip counts at once, by other means, where it can; `coverage` shows that the
tiles of all CTAs write every element of the outputs once, for all extents.

Notes
-----
The order is the encoding "assume and guarantee": each wait is assumed to see the phase that it sees
in one execution, and that it can see no other is an obligation of its own (not behind, not lapped,
arrivals in phase, arrivals and bytes add up).  See `closure` for why the first event to go another
way cannot exist, and for the step to all trip counts.
"""

from __future__ import annotations

import re

from fuser import kernel_ir as kir
from fuser.kernel_text import line
from fuser.program import Program
from oracles import certificate, closure, closure_replay, coverage, launches
from oracles.arithmetic import UnsupportedError
from oracles.closure_world import Violation as Missing
from oracles.events import Violation
from oracles.footprint import Footprints
from oracles.induction import edges, enough, lookahead, steady
from oracles.order import Order
from oracles.rhythm import rhythm
from oracles.trace import Trace, read
from oracles.twins import followed
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness

ORACLE = "prover"
POLICIES = ("default", "strict")
"""`strict` also wants a proxy fence between ordinary reads of a slot and its refill by TMA."""
RLIMIT = 2_000_000
"""Work limit of one z3 question, in z3's resource units: repeatable, unlike seconds."""
MOST = 200
"""Trip counts that are judged one by one at most; a kernel that needs more stays unknown."""


def prove(
    kernel: kir.Kernel | Program, *, policy: str = "default", rlimit: int = RLIMIT
) -> Verdict:
    """Judge a kernel for every trip count and all extents.

    Parameters
    ----------
    kernel : Kernel or Program
        A finished kernel: no `Copy`, no request for circular buffering; or several in a row.
    policy : str
        One of `POLICIES`.
    rlimit : int
        Work limit of each question to z3, in its own units.

    Returns
    -------
    Verdict
        PASS if all obligations hold for every trip count and all extents; FAIL with the smallest
        trip count that shows it; UNKNOWN if an argument does not apply or nothing is claimed;
        UNSUPPORTED, naming the statement, if something is not modelled.
    """
    if policy not in POLICIES:
        raise ValueError(f"prove(policy={policy!r}): pick one of {POLICIES}")
    if isinstance(kernel, Program):
        return _all([prove(one, policy=policy, rlimit=rlimit) for one in kernel.launches])
    try:
        closed = closure.judge(kernel, policy=policy)
        findings = tuple(_finding(v) for v in (*closed.violations, *closed.warnings))
        if closed.violations:
            return _refuted(kernel, closed, findings)
        covered = coverage.covered(kernel, rlimit=rlimit)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    findings = (*findings, *covered.findings)
    checked = closed.checked + covered.checked
    if any(f.severity == "error" for f in covered.findings):
        return Verdict(ORACLE, Status.FAIL, checked, findings)
    reason = closed.reason or covered.reason
    if reason:
        return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)
    if checked == 0:
        return Verdict(ORACLE, Status.UNKNOWN, 0, findings, "vacuous: nothing is claimed")
    return _seconded(kernel, policy, rlimit, checked, findings)


def _all(verdicts: list[Verdict]) -> Verdict:
    """Join the verdicts on the launches of a program: the worst one counts."""
    worst = (Status.FAIL, Status.UNSUPPORTED, Status.UNKNOWN, Status.PASS)
    if not verdicts:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason="vacuous: a program without launches")
    status = min((v.status for v in verdicts), key=worst.index)
    checked = sum(v.checked for v in verdicts)
    findings = tuple(f for v in verdicts for f in v.findings)
    reason = "; ".join(dict.fromkeys(v.reason for v in verdicts if v.reason))
    return Verdict(ORACLE, status, checked, findings, reason)


def _finding(violation: Missing) -> Finding:
    """Put a violation in the kernel's words."""
    where = violation.later.where
    if violation.earlier is not None:
        where = f"{violation.earlier.where} | {where}"
    moment = f"k={violation.k}" if violation.k >= 0 else "before the loop"
    says = f"trips={violation.trips}, {moment}: `{line(violation.later.stmt)}`: {violation.says}"
    if violation.earlier is not None:
        says += f" (the other is `{line(violation.earlier.stmt)}`)"
    return Finding(violation.kind, where, says, violation.severity)


def _refuted(kernel: kir.Kernel, closed: closure.Closed, findings: tuple[Finding, ...]) -> Verdict:
    """Answer FAIL, unless no launch has the trip count that shows it."""
    trips = min(v.trips for v in closed.violations)
    try:
        trace = read(kernel)
    except UnsupportedError:
        return Verdict(ORACLE, Status.FAIL, closed.checked, findings)
    findings = (*_accounts(trace, trips), *findings)
    if trace.trips is not None and launches.launch(trace, trips) is None:
        warnings = tuple(Finding(f.kind, f.where, f.witness, "warning") for f in findings)
        reason = f"refuted for trips={trips}, but no launch with that many is known"
        return Verdict(ORACLE, Status.UNKNOWN, closed.checked, warnings, reason)
    return Verdict(ORACLE, Status.FAIL, closed.checked, findings)


def _seconded(
    kernel: kir.Kernel, policy: str, rlimit: int, checked: int, findings: tuple[Finding, ...]
) -> Verdict:
    """Answer PASS if z3 proves the order too, for all trip counts at once."""
    second = certificate.certify(kernel, policy=policy, rlimit=rlimit)
    checked += second.checked
    if second.status is Status.PASS:
        return Verdict(ORACLE, Status.PASS, checked, findings)
    if second.status is Status.UNSUPPORTED:
        reason = f"closure alone: {second.reason}"
        return Verdict(ORACLE, Status.PASS, checked, findings, reason)
    says = "; ".join((second.reason, *(str(f) for f in second.findings)))
    reason = f"engines disagree: the certificate says {second.status.value}: {says}"
    return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)


class Ordered:
    """The obligations on the order of events, judged for enough trip counts.

    `errors` and `warnings` are findings, `reason` says why all trip counts are not settled, and
    `most` is the largest trip count that was judged.
    """

    def __init__(self, trace: Trace, policy: str) -> None:
        self.trace = trace
        self.policy = policy
        self.errors: tuple[Finding, ...] = ()
        self.warnings: tuple[Finding, ...] = ()
        self.reason = ""
        self.checked = 0
        self.most = 0
        self.failing = 0
        self.footprints = Footprints(trace)
        self._following = followed(self.footprints)
        self._rhythm = rhythm(trace)
        self._violations: dict[tuple[str, int, int], Violation] = {}
        self._judge()

    def _judge(self) -> None:
        order = self._judged(0)
        if self.trace.trips is None or self.errors:
            return
        ahead, n = 0, 1
        while not self.errors:
            goal = enough(self._rhythm, ahead)
            if goal > MOST:
                self.reason = f"{goal} trip counts would have to be judged, at most {MOST} are"
                return
            while n <= goal and not self.errors:
                order = self._judged(n)
                n += 1
            if self.errors:
                return
            found = edges(order, self._rhythm)
            if not steady(found, self._rhythm):
                self.reason = "the kernel does not settle into a rhythm"
                return
            seen = lookahead(frozenset().union(*found))
            if seen is None:
                self.reason = "an event needs others that come ever later"
                return
            if seen <= ahead:
                return
            ahead = seen

    def _judged(self, n: int) -> Order:
        order = Order(self.trace, n, self.footprints, self._following)
        self.checked += order.checked
        self.most = n
        for violation in order.violations:
            key = (
                violation.kind,
                violation.later.line,
                violation.earlier.line if violation.earlier else 0,
            )
            self._violations.setdefault(key, violation)
        found = [finding(v, self.policy) for v in self._violations.values()]
        self.errors = tuple(f for f in found if f.severity == "error")
        self.warnings = tuple(f for f in found if f.severity != "error")
        self.failing = n
        return order


def finding(violation: Violation, policy: str) -> Finding:
    """Put a violation in the kernel's words."""
    severity, kind = violation.severity, violation.kind
    if kind == "proxy-read":
        severity = "error" if policy == "strict" else "warning"
    kind = kind.split("-")[0]
    where = violation.later.where
    if violation.earlier is not None:
        where = f"{violation.earlier.where} | {where}"
    k = violation.iteration
    moment = f"k={k}" if k >= 0 else "before the loop"
    witness = f"trips={violation.trips}, {moment}: `{line(violation.later.stmt)}`: {violation.says}"
    if violation.earlier is not None:
        witness += f" (the other is `{line(violation.earlier.stmt)}`)"
    return Finding(kind, where, witness, severity)


def _accounts(trace: Trace, trips: int) -> list[Finding]:
    """Say of a refuted kernel where an iteration's expected bytes differ from those it copies."""
    found = []
    for barrier in trace.kernel.barriers:
        expected = delivered = 0
        where = ""
        for step in trace.steps:
            times = sum(trace.agents[i].count for i in step.agents) if step.loop else 0
            match step.stmt:
                case kir.MBarrierArriveExpectTx(bar, _, nbytes) if bar == barrier:
                    expected += nbytes * times
                    where = step.where
                case kir.TmaLoad(dst, _, bar) if bar == barrier:
                    delivered += dst.buffer.slot_nbytes * times
                case _:
                    pass
        if where and expected != delivered:
            says = f"{barrier.name} expects {expected} bytes an iteration, its copies {delivered}"
            found.append(Finding("bytes", where, f"trips={trips}: {says}"))
    return found


def witness(kernel: kir.Kernel, *, policy: str = "default") -> Witness | None:
    """Return an execution that shows what is wrong with a kernel, for a reader or a replay.

    Parameters
    ----------
    kernel : Kernel
        A kernel that `prove` refutes.
    policy : str
        One of `POLICIES`.

    Returns
    -------
    Witness or None
        The followed execution with the fewest trips in every loop; None if few trips show nothing.
    """
    return closure_replay.replay(kernel, policy=policy)


def witness_trips(verdict: Verdict) -> set[int]:
    """Return the trip counts at which the errors of a verdict show, to be replayed elsewhere."""
    return {
        int(number)
        for f in verdict.findings
        if f.severity == "error"
        for number in re.findall(r"\btrips=(\d+)", f.witness)
    }


def redundant(kernel: kir.Kernel, *, rlimit: int = RLIMIT) -> list[tuple[kir.Stmt, str]]:
    """Return the syncs whose removal, one at a time, leaves everything proved under `strict`.

    A kernel that strict policy refuses for want of a fence between reads and a refill is judged by
    whether the removal adds anything to what strict policy says.
    """
    known = _complaints(kernel)
    if known is None or prove(kernel, rlimit=rlimit).status is not Status.PASS:
        return []
    out: list[tuple[kir.Stmt, str]] = []
    for stmt in kernel.walk():
        if isinstance(stmt, kir.SYNCS):
            left = _complaints(_without(kernel, stmt))
            if left is not None and left <= known:
                out.append((stmt, _reason(stmt)))
    return out


def _complaints(kernel: kir.Kernel) -> frozenset[tuple[str, str]] | None:
    """Return what strict policy says of a kernel; None if default policy does not pass it."""
    try:
        closed = closure.judge(kernel)
    except UnsupportedError:
        return None
    if closed.violations or closed.reason:
        return None
    found = [_finding(v) for v in closed.warnings]
    return frozenset((f.kind, re.sub(r"line \d+: ", "", f.where)) for f in found)


def _without(kernel: kir.Kernel, victim: kir.Stmt) -> kir.Kernel:
    return kernel.rewrite(lambda stmt: [] if stmt is victim else None)


def _reason(stmt: kir.Stmt) -> str:
    match stmt:
        case kir.FenceMBarrierInit():
            return "orders nothing within one CTA; only clusters need it"
        case kir.ThreadFence():
            return "no other CTA reads what this one writes"
        case kir.FenceAsyncProxy():
            return "no generic access that reaches a copy lacks a fence without it"
        case _:
            return "every conflict is ordered without it, for every trip count"
