"""The prover: no race, no deadlock and no lost element, in any interleaving, for any trip count.

It judges a Kernel alone.  `trace` reads who executes what; `order` finds, for one trip count, what
precedes what in every execution; `obligations` asks that of every two accesses that conflict;
`induction` says how many trip counts are enough for all; `certificate` has z3 prove the same for
all trip counts at once, by other means; `coverage` shows that the tiles of all
CTAs write every element of the outputs once, for all extents.

Notes
-----
The order is the encoding "assume and guarantee": each wait is assumed to see the phase that it sees
in one execution, and that it can see no other is an obligation of its own (not behind, not lapped,
arrivals in phase, arrivals and bytes add up).  See `order` for why the first event to go another
way cannot exist, and `induction` for the step to all trip counts.
"""

from __future__ import annotations

import re

from fuser import kernel_ir as kir
from fuser.kernel_text import line
from oracles import certificate, coverage, launches
from oracles.arithmetic import UnsupportedError
from oracles.events import Violation
from oracles.footprint import Footprints
from oracles.induction import edges, enough, lookahead, steady
from oracles.order import Order
from oracles.rhythm import rhythm
from oracles.trace import Trace, read
from oracles.twins import followed
from oracles.verdict import Finding, Status, Verdict

ORACLE = "prover"
POLICIES = ("default", "strict")
"""`strict` also wants a proxy fence between ordinary reads of a slot and its refill by TMA."""
RLIMIT = 2_000_000
"""Work limit of one z3 question, in z3's resource units: repeatable, unlike seconds."""
MOST = 200
"""Trip counts that are judged one by one at most; a kernel that needs more stays unknown."""


def prove(kernel: kir.Kernel, *, policy: str = "default", rlimit: int = RLIMIT) -> Verdict:
    """Judge a kernel for every trip count and all extents.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel: no `Copy`, no request for circular buffering.
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
    try:
        trace = read(kernel)
        order = Ordered(trace, policy)
        if order.errors:
            return _refuted(trace, order)
        covered = coverage.judge(trace, order.most, rlimit=rlimit)
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    findings = (*order.warnings, *covered.findings)
    checked = order.checked + covered.checked
    if any(f.severity == "error" for f in covered.findings):
        return Verdict(ORACLE, Status.FAIL, checked, findings)
    reason = order.reason or covered.reason
    if reason:
        return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)
    if checked == 0:
        return Verdict(ORACLE, Status.UNKNOWN, 0, findings, "vacuous: nothing is claimed")
    return _seconded(order, policy, checked, findings)


def _seconded(order: Ordered, policy: str, checked: int, findings: tuple[Finding, ...]) -> Verdict:
    """Answer PASS if z3 proves the order too, for all trip counts at once."""
    second = certificate.judge(order.trace, order.footprints, policy)
    checked += second.checked
    if second.status is Status.PASS:
        return Verdict(ORACLE, Status.PASS, checked, findings)
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


def _refuted(trace: Trace, order: Ordered) -> Verdict:
    findings = (*_accounts(trace, order.failing), *order.errors, *order.warnings)
    if trace.trips is not None and launches.launch(trace, order.failing) is None:
        warnings = tuple(Finding(f.kind, f.where, f.witness, "warning") for f in findings)
        reason = f"refuted for trips={order.failing}, but no launch with that many is known"
        return Verdict(ORACLE, Status.UNKNOWN, order.checked, warnings, reason)
    return Verdict(ORACLE, Status.FAIL, order.checked, findings)


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
        order = Ordered(read(kernel), "default")
    except UnsupportedError:
        return None
    if order.errors or order.reason:
        return None
    return frozenset((f.kind, re.sub(r"line \d+: ", "", f.where)) for f in order.warnings)


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
