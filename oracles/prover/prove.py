"""The prover: no race, no deadlock and no lost element, in any interleaving, for any trip count.

It judges a Kernel alone.  `reachability` follows every state that the kernel can reach, until
states repeat, and asks of every two accesses that conflict whether they are ordered; `inductive`
has z3 check that what it kept is an invariant of every launch; `named` has it decide three
invariants of every kernel that has their subject;
`coverage` shows that the tiles of all CTAs write every element of the outputs once, for all
extents.

Proofs are remembered (`Memory`).  Two kernels have one key only if one becomes the other by giving
things other names.  Everything else is in the key as it stands: statements and their order,
expressions, shapes, extents, offsets, counts.  So a proof of one is a proof of the other, and a
change of a single number is a miss.

Notes
-----
The order is the encoding "assume and guarantee": each wait is assumed to see the phase that it sees
in one execution, and that it can see no other is an obligation of its own (not behind, not lapped,
arrivals in phase, arrivals and bytes add up).  See `reachability.fixpoint` for why the first event
to go another way cannot exist, and for the step to all trip counts.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache, lru_cache, partial
from hashlib import sha256
from itertools import product

from fuser.arch import SM_90A
from fuser.expr import Expr, Kind, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuser.kernel.text import line, numbered
from oracles.prover import dependent, drawn, launches, sites
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.cases import cases
from oracles.prover.clock import GaveUpError, Tell, limited
from oracles.prover.coverage import outputs, values
from oracles.prover.coverage.runs import nominal
from oracles.prover.inductive import check as inductive
from oracles.prover.inductive import groups
from oracles.prover.launches import Launch
from oracles.prover.named import check as named
from oracles.prover.named.check import Answer, Named
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.ctas import SizesError
from oracles.prover.reachability.rules import Violation
from oracles.prover.reachability.witness import teller
from oracles.prover.rolled import plainer, repeats
from oracles.verdict import Confirmation, Finding, Status, Verdict
from oracles.witness import Witness

KEPT = 256
"""Verdicts that are remembered; the one that was used longest ago goes first."""
_FIXED = (kir.BLOCK.name, kir.GRID.name, kir.RANK.name)
"""Names that mean something by themselves."""
_NAMING = ("name", "outputs", "workspaces", "early")
"""Fields that hold names which a kernel may choose."""


@lru_cache(maxsize=1)  # asked for before a proof, and after
def nameless_key(kernel: kir.Kernel) -> str:
    """Return a hash of all that a proof depends on: the whole kernel but for the names in it.

    Names are numbered as they first come, in one numbering for all sorts of things, so that two
    things of one name never share a key with two things of different names.
    """
    out: list[str] = []
    _spell(kernel, {name: str(number) for number, name in enumerate(_FIXED)}, out)
    return sha256("".join(out).encode()).hexdigest()


_KNOWN: dict[type, tuple[tuple[str, bool], ...]] = {}
"""Fields by sort of node, and whether they hold names."""


def _fields(sort: type) -> tuple[tuple[str, bool], ...]:
    if sort not in _KNOWN:
        if not is_dataclass(sort):
            raise TypeError(f"nameless_key: {sort.__name__} is no part of a kernel that is known")
        _KNOWN[sort] = tuple((f.name, f.name in _NAMING) for f in fields(sort))
    return _KNOWN[sort]


def _spell(node: object, names: dict[str, str], out: list[str], *, naming: bool = False) -> None:
    match node:
        case str():
            # repr() quotes: no text of a kernel can look like two fields
            out.append(f"{names.setdefault(node, str(len(names)))}," if naming else f"{node!r},")
        case Enum():
            out.append(f"{type(node).__name__}.{node.name},")
        case bool() | int() | float() | None:
            out.append(f"{node!r},")
        case tuple():
            out.append("(")
            for part in node:
                _spell(part, names, out, naming=naming)
            out.append(")")
        case _:
            out.append(type(node).__name__ + "{")
            kernel = isinstance(node, kir.Kernel)
            for name, holds in _fields(type(node)):
                if not (kernel and name == "name"):
                    _spell(getattr(node, name), names, out, naming=holds)
            out.append("}")


class Memory:
    """Verdicts PASS by kernel, and by kernel without its names; nothing else is remembered.

    A verdict with findings has names in it, so it is given again only for an equal kernel.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._known: OrderedDict[tuple[kir.Kernel | str, str, int], Verdict] = OrderedDict()

    def recall(self, kernel: kir.Kernel, policy: str, rlimit: int) -> Verdict | None:
        """Return the verdict on an equal kernel, or on one that differs in names; else None."""
        found = self._get(kernel, policy, rlimit)
        if found is None:
            found = self._get(nameless_key(kernel), policy, rlimit)
            if found is not None:
                self._put(kernel, policy, rlimit, found)
        return found

    def keep(self, kernel: kir.Kernel, policy: str, rlimit: int, verdict: Verdict) -> Verdict:
        """Remember a verdict if it is PASS, and return it."""
        if verdict.status is Status.PASS:
            self._put(kernel, policy, rlimit, verdict)
            if not verdict.findings and not verdict.reason:
                self._put(nameless_key(kernel), policy, rlimit, verdict)
        return verdict

    def forget(self) -> None:
        """Forget everything."""
        self._known.clear()

    def _get(self, key: kir.Kernel | str, policy: str, rlimit: int) -> Verdict | None:
        found = self._known.get((key, policy, rlimit))
        if found is not None:
            self._known.move_to_end((key, policy, rlimit))
        return found

    def _put(self, key: kir.Kernel | str, policy: str, rlimit: int, verdict: Verdict) -> None:
        self._known[key, policy, rlimit] = verdict
        while len(self._known) > 2 * self._kept:
            self._known.popitem(last=False)


ORACLE = "prover"
ORDER = "order"
"""Name by which all of the order of events is confirmed."""
POLICIES = ("default", "strict")
"""`strict` also wants a proxy fence between ordinary reads of a slot and its refill by TMA."""
RLIMIT = 2_000_000
"""Work limit of one z3 question, in z3's resource units: repeatable, unlike seconds."""
LIMIT_S = 60.0
"""CPU seconds of a proof, unlike the work limit not repeatable."""
REMEMBERED = Memory()
"""Proofs of this process, to be given again for the same kernel or one with other names."""


def prove(
    kernel: kir.Kernel | LaunchSequence,
    *,
    policy: str = "default",
    rlimit: int = RLIMIT,
    limit: float = LIMIT_S,
    tell: Tell | None = None,
) -> Verdict:
    """Judge a kernel for every trip count and all extents.

    Parameters
    ----------
    kernel : Kernel or LaunchSequence
        A finished kernel: no `Copy`, no request for circular buffering; or several in a row.
    policy : str
        One of `POLICIES`.
    rlimit : int
        Work limit of each question to z3, in its own units.
    limit : float
        CPU seconds for a kernel, beyond which it is UNKNOWN.
    tell : callable, optional
        Called now and then with the CPU seconds so far, and what the proof is at.

    Returns
    -------
    Verdict
        PASS if all obligations hold for every trip count and all extents; FAIL with the smallest
        trip count that shows it; UNKNOWN if an argument does not apply or nothing is claimed;
        UNSUPPORTED, naming the statement, if something is not modelled.  A kernel of which no
        launch is found that keeps what it requires is UNKNOWN: whatever holds, holds of nothing.
    """
    if policy not in POLICIES:
        raise ValueError(f"prove(policy={policy!r}): pick one of {POLICIES}")
    if isinstance(kernel, LaunchSequence):
        each = [
            prove(one, policy=policy, rlimit=rlimit, limit=limit, tell=tell)
            for one in kernel.launches
        ]
        return _all(each + _early(kernel))
    known = REMEMBERED.recall(kernel, policy, rlimit)
    if known is not None:
        return known
    try:
        with limited(limit, tell):
            verdict = _judged(kernel, policy, rlimit)
    except GaveUpError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))
    return REMEMBERED.keep(kernel, policy, rlimit, verdict)


def _judged(
    kernel: kir.Kernel, policy: str, rlimit: int, parts: drawn.Split | None = None
) -> Verdict:
    """Judge a kernel without looking at what was judged before.

    It may be one of the `parts` that stand for another one, of which some claims are asked.
    """
    if kernel.dependent and dependent.waits_first(kernel):
        first = _judged(replace(kernel, dependent=False), policy, rlimit)
        return replace(first, checked=first.checked + 1) if first.checked else first
    if drawn.subject(kernel):
        try:
            return _by_numbers(kernel, policy, rlimit)
        except UnsupportedError as error:
            return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    if misplaced := _misplaced(kernel):
        return Verdict(ORACLE, Status.FAIL, len(kernel.barriers), tuple(misplaced))
    if moved := next(_moving_ends(kernel), ""):
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=moved)
    if not launches.exist(kernel):
        says = "vacuous: no launch was found that keeps what the kernel requires"
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=says)
    each = (kernel,) if parts is None else (parts.by_one, parts.before)
    divided = _divided(each, rlimit)
    try:
        answers = inductive.Answers(rlimit)
        closed, launch = _ordered(kernel, policy, answers)
        findings = tuple(_finding(v) for v in (*closed.violations, *closed.warnings))
        if closed.violations:
            refuted = _refuted(kernel, closed, findings, launch)
            if refuted.status is Status.FAIL or not divided.findings:
                return refuted
            findings = refuted.findings
        covered = _covered(each[0], rlimit)
    except (UnsupportedError, ZeroDivisionError) as error:
        if divided.findings:
            return Verdict(ORACLE, Status.FAIL, divided.checked, divided.findings)
        says = str(error) if isinstance(error, UnsupportedError) else f"a thread followed: {error}"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=says)
    findings = (*findings, *covered.findings, *divided.findings)
    checked = closed.checked + covered.checked + divided.checked
    if any(f.severity == "error" for f in (*covered.findings, *divided.findings)):
        return Verdict(ORACLE, Status.FAIL, checked, findings)
    reason = closed.reason or covered.reason or divided.reason
    if closed.reason.endswith(fixpoint.LOOSE):
        reason += _independent(kernel)
    if reason:
        return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)
    if checked == divided.checked:
        return Verdict(ORACLE, Status.UNKNOWN, 0, findings, "vacuous: nothing is claimed")
    return _confirmed(kernel, closed, policy, answers, checked, findings)


def _moving_ends(kernel: kir.Kernel) -> Iterator[str]:
    """Say which loops assign to what they end by: what that means nobody has said."""
    for stmt in kernel.walk():
        if isinstance(stmt, kir.ForLoop):
            moved = {s.var for s in kir.walk(stmt.body) if isinstance(s, kir.Assign)}
            if moved & variables(stmt.stop):
                yield f"`{line(stmt)}`: its body assigns to what it ends by"


def _by_numbers(kernel: kir.Kernel, policy: str, rlimit: int) -> Verdict:
    """Judge a kernel whose CTAs draw the numbers of their tiles.

    Raises
    ------
    UnsupportedError
        If what stands for it, by `drawn`, would not.
    """
    split = drawn.split(kernel)
    if split.twice is not None:
        says = "for every launch: two CTAs may draw one number, which is loaded and then stored"
        twice = Finding("WAW", line(split.twice), says)
        return Verdict(ORACLE, Status.FAIL, 1, (twice,))
    first = _judged(split.followed, policy, rlimit, split)
    first = replace(first, findings=tuple(_there(f, split.lines) for f in first.findings))
    if first.status is not Status.PASS:
        return first
    asked, says = drawn.numbers(split, rlimit)
    if says:
        return replace(first, status=Status.UNKNOWN, reason=says, confirmed=())
    return replace(first, checked=first.checked + asked)


def _divided(kernels: tuple[kir.Kernel, ...], rlimit: int) -> values.Covered:
    """Judge the divisions of some kernels."""
    each = [values.divided(one, rlimit=rlimit) for one in kernels]
    reason = next((one.reason for one in each if one.reason), "")
    findings = tuple(f for one in each for f in one.findings)
    return values.Covered(sum(one.checked for one in each), findings, reason)


def _there(finding: Finding, lines: Mapping[int, tuple[int, str]]) -> Finding:
    """Return a finding with the lines that those of another kernel stand for."""
    if not finding.lines or any(n not in lines for n in finding.lines):
        return finding
    where = " | ".join(lines[n][1] for n in finding.lines)
    table = {f"(line {n})": f"(line {there})" for n, (there, _) in lines.items()}
    says = re.sub(r"\(line \d+\)", lambda found: table.get(found[0], found[0]), finding.witness)
    return replace(
        finding, where=where, witness=says, lines=tuple(lines[n][0] for n in finding.lines)
    )


def _covered(kernel: kir.Kernel, rlimit: int) -> values.Covered:
    """Judge what is written; where that is not told, by a plainer kernel, and by all its cases."""
    first = outputs.covered(kernel, rlimit=rlimit)
    if not first.reason or _errors(first):
        return first
    for parts in ((plainer(kernel).kernel,), tuple(case.kernel for case in cases(kernel))):
        each = [outputs.covered(part, rlimit=rlimit) for part in parts]
        if each and not any(one.reason or _errors(one) for one in each):
            return values.Covered(sum(one.checked for one in each), first.findings)
    return first


def _errors(covered: values.Covered) -> list[Finding]:
    return [finding for finding in covered.findings if finding.severity == "error"]


def _ordered(
    kernel: kir.Kernel, policy: str, answers: inductive.Answers
) -> tuple[fixpoint.Closed, Launch | None]:
    """Judge the order of events: at once, and where that decides nothing, by cases.

    What z3 says on the way of states that are many is among the `answers`.

    Return a launch, too, in which a refuted kernel goes wrong.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    first: fixpoint.Closed | UnsupportedError | None = None
    whole = cache(partial(_judge, kernel, policy, answers))
    parts = cache(partial(_by_cases, kernel, policy, answers))
    if repeats(kernel.body):  # what fewer loops show is found sooner than a launch that shows it
        for judge in (whole, parts):
            with suppress(UnsupportedError):
                closed = judge()
                if closed is not None and not closed.violations and not closed.reason:
                    return closed, None
    for judge in (whole, parts):
        try:
            closed = judge()
        except UnsupportedError as error:
            first = first or error
            continue
        if closed is None:
            continue
        first = first or closed
        if closed.violations:
            trips = min(v.trips for v in closed.violations)
            launch = fixpoint.showing(kernel, trips, policy=policy)
            if launch is not None:
                # where lengths depend on each other, what was found may be of lengths that do not
                loose = judge is parts or cases(kernel, alone=True)
                shown = fixpoint.blamed(kernel, closed, launch, policy) if loose else closed
                return shown, launch
        elif not closed.reason:
            return closed, None
    if isinstance(first, UnsupportedError):
        raise first
    assert first is not None, "a kernel is judged or refused"
    return first, None


def _judge(kernel: kir.Kernel, policy: str, answers: inductive.Answers) -> fixpoint.Closed:
    """Judge the order of events; where it is not plain which CTAs stand for all, z3 is asked."""
    try:
        return fixpoint.judge(kernel, policy=policy, settle=answers.take)
    except SizesError as error:
        try:
            sizes = groups.enough(kernel, RLIMIT)
        except UnsupportedError:
            raise error from None
        return fixpoint.judge(kernel, policy=policy, sizes=sizes, settle=answers.take)


def _by_cases(
    kernel: kir.Kernel, policy: str, answers: inductive.Answers
) -> fixpoint.Closed | None:
    """Judge the order of events in each case of a kernel; None if that decides nothing."""
    done: list[fixpoint.Closed] = []
    known = sites.every(kernel)
    for case in cases(kernel, alone=True):
        try:
            one = _judge(case.kernel, policy, answers)
        except UnsupportedError:
            return None
        done.append(case.told(one, known))
        if done[-1].violations or done[-1].reason:
            break
    return fixpoint.together(done) if done else None


def _misplaced(kernel: kir.Kernel) -> list[Finding]:
    """Say which mbarriers lie where none can, in whatever order things happen.

    Those without an offset lie behind the buffers, for the whole launch; one that is given a place
    behind the buffers is on one of those, or outside of what the launch allocates.
    """
    found = []
    for m in kernel.barriers:
        at, end = m.offset, kernel.barrier_at(m) + 8 * m.slots
        says = ""
        if at is not None and (at < 0 or at % 8):
            says = "no multiple of 8"
        elif end > kernel.smem_bytes:
            says = f"the launch allocates {kernel.smem_bytes}"
        elif at is not None and end > kernel.barrier_offset:
            says = f"others are laid out from byte {kernel.barrier_offset} on"
        elif end > SM_90A.smem_bytes:
            says = f"a CTA has {SM_90A.smem_bytes}"
        if says:
            says = f"for every launch: it lies at bytes {end - 8 * m.slots}..{end - 1}; {says}"
            found.append(Finding("bounds", f"mbarrier {m.name}", says))
    return found


def _early(program: LaunchSequence) -> list[Verdict]:
    """Say which launches of a program read too early what one that may still run writes."""
    found = []
    running: dict[str, str] = {}
    for one in program.launches:
        running = running if one.dependent else {}
        for name in one.early:
            if name in running:
                says = f"{one.name} reads it without a wait, {running[name]} may still write it"
                finding = Finding("dependency", f"early tensor {name}", says)
                found.append(Verdict(ORACLE, Status.FAIL, 1, (finding,)))
        for stmt in one.walk():
            if (box := sites.writes(stmt) or sites.adds(stmt)) is not None:
                running[box.tensor.name] = one.name
    return found


def _all(verdicts: list[Verdict]) -> Verdict:
    """Join the verdicts on the launches of a program: the worst one counts."""
    worst = (Status.FAIL, Status.UNSUPPORTED, Status.UNKNOWN, Status.PASS)
    if not verdicts:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason="vacuous: a program without launches")
    status = min((v.status for v in verdicts), key=worst.index)
    checked = sum(v.checked for v in verdicts)
    findings = tuple(f for v in verdicts for f in v.findings)
    reason = "; ".join(dict.fromkeys(v.reason for v in verdicts if v.reason))
    confirmed = _together(verdicts) if status is Status.PASS else ()
    return Verdict(ORACLE, status, checked, findings, reason, confirmed=confirmed)


def _finding(violation: Violation) -> Finding:
    """Put a violation in the kernel's words."""
    sites = [site for site in (violation.earlier, violation.later) if site is not None]
    where, lines = " | ".join(s.where for s in sites), tuple(s.line for s in sites)
    trips = violation.trips
    moment = [f"trips={trips}"] if trips or violation.k >= 0 else []
    moment += [f"k={violation.k}"] if violation.k >= 0 else []
    when = f"{', '.join(moment)}: " if moment else ""
    says = f"{when}`{line(violation.later.stmt)}`: {violation.says}"
    if violation.earlier is not None:
        says += f" (the other is `{line(violation.earlier.stmt)}`)"
    return Finding(violation.kind, where, says, violation.severity, lines=lines, trips=trips)


def _refuted(
    kernel: kir.Kernel,
    closed: fixpoint.Closed,
    findings: tuple[Finding, ...],
    launch: Launch | None,
) -> Verdict:
    """Answer FAIL, unless no launch is found that shows it."""
    trips = min(v.trips for v in closed.violations)
    if launch is None:
        warnings = tuple(replace(f, severity="warning") for f in findings)
        reason = f"refuted for trips={trips}, but none of the launches tried shows it"
        reason += _independent(kernel)
        return Verdict(ORACLE, Status.UNKNOWN, closed.checked, warnings, reason)
    shown = ((kir.GRID.name, launch.grid), *launch.params.items())
    found = (*_byte_counts(kernel, trips), *findings)
    found = tuple(replace(f, launch=shown) if f.severity == "error" else f for f in found)
    return Verdict(ORACLE, Status.FAIL, closed.checked, found)


def _independent(kernel: kir.Kernel) -> str:
    """Name the loops that are followed as if the length of one said nothing of another's."""
    stops: dict[str, list[int]] = {}
    for number, stmt in numbered(kernel):
        if isinstance(stmt, kir.ForLoop) and not isinstance(stmt.stop, int):
            stops.setdefault(str(stmt.stop), []).append(number)
    if len(stops) < 2:
        return ""
    each = [f"line {', '.join(map(str, at))} (up to {stop})" for stop, at in stops.items()]
    return f"; loops taken as independent: {'; '.join(each)}"


def _confirmed(
    kernel: kir.Kernel,
    closed: fixpoint.Closed,
    policy: str,
    answers: inductive.Answers,
    checked: int,
    findings: tuple[Finding, ...],
) -> Verdict:
    """Answer PASS if z3 finds that what reachability kept is an invariant, where it can be asked.

    The named invariants are asked before; without each that has a subject there is no PASS.
    """
    rlimit = answers.rlimit
    known = _named(kernel, policy, rlimit)
    checked += sum(one.questions for one in known)
    if rest := [one for one in known if one.answer is not Answer.PROVED]:
        reason = "; ".join(f"{one.name} is {one.answer.value}: {one.says}" for one in rest)
        return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)
    confirmed = tuple(Confirmation(one.name, one.questions) for one in known)
    reason = ""
    first = inductive.check(closed.explorations, rlimit=rlimit, known=answers)
    checked += first.checked
    if first.status is not Status.PASS and any(
        e.world.kernel is kernel for e in closed.explorations
    ):
        parts = _by_cases(kernel, policy, answers)
        if parts is not None and not parts.violations and not parts.reason:
            again = inductive.check(parts.explorations, rlimit=rlimit, known=answers)
            checked += again.checked
            if again.status is Status.PASS or first.status is Status.UNKNOWN:
                first = again
    if first.status is Status.UNKNOWN:
        reason = f"what reachability says is no invariant: {first.reason}"
        return Verdict(ORACLE, Status.UNKNOWN, checked, findings, reason)
    if first.status is Status.PASS:
        confirmed = (*confirmed, Confirmation(ORDER, first.checked))
    else:
        reason = f"reachability alone: {first.reason}"
    return Verdict(ORACLE, Status.PASS, checked, findings, reason, confirmed=confirmed)


def _named(kernel: kir.Kernel, policy: str, rlimit: int) -> tuple[Named, ...]:
    """Decide the named invariants of a kernel, or of its plainer form."""
    known = named.decide(kernel, policy=policy, rlimit=rlimit)
    if any(one.answer is not Answer.PROVED for one in known):
        known = named.decide(plainer(kernel).kernel, policy=policy, rlimit=rlimit)
    return known


def named_refusal(kernel: kir.Kernel) -> str | None:
    """Say why a kernel is not to be run: a named invariant is not proved; None if all are.

    What z3 cannot decide is not proved.  A kernel of which no named invariant speaks is refused by
    none of them: one without asynchronous copies and wgmma.  All of the order is for `prove`.
    """
    known = _named(kernel, "default", RLIMIT)
    rest = [one for one in known if one.answer is not Answer.PROVED]
    return "; ".join(f"{one.name} is {one.answer.value}: {one.says}" for one in rest) or None


def _together(verdicts: list[Verdict]) -> tuple[Confirmation, ...]:
    """Return what is confirmed of a program: the order only if that of all its launches is."""
    sums: dict[str, int] = {}
    for one in (one for verdict in verdicts for one in verdict.confirmed):
        sums[one.name] = sums.get(one.name, 0) + one.questions
    if any(ORDER not in verdict.confirmed_by for verdict in verdicts):
        sums.pop(ORDER, None)
    return tuple(Confirmation(name, questions) for name, questions in sums.items())


def _byte_counts(kernel: kir.Kernel, trips: int) -> list[Finding]:
    """Say of a refuted kernel where an iteration's expected bytes differ from those it copies.

    Of clusters nothing is said: the copies of one CTA may count on the barriers of others.
    """
    if kernel.cluster != 1:
        return []
    found = []
    counted = nominal(kernel)
    for barrier in kernel.barriers:
        delivered = 0
        expected: Expr = 0
        wrong = None
        for site in sites.every(kernel):
            match site.stmt:
                case kir.MBarrierArriveExpectTx(bar) as stmt if bar == barrier:
                    nbytes = counted.get(id(stmt), stmt.nbytes)
                    expected = fold(Kind.ADD, expected, fold(Kind.MUL, nbytes, _times(site)))
                    wrong = site
                case kir.TmaLoad(dst, _, bar) if bar == barrier:
                    delivered += dst.buffer.slot_nbytes * _times(site)
                case _:
                    pass
        if wrong is not None and expected != delivered:
            says = f"{barrier.name} expects {expected} bytes an iteration, its copies {delivered}"
            says = f"trips={trips}: {says}"
            found.append(Finding("bytes", wrong.where, says, lines=(wrong.line,), trips=trips))
    return found


def _times(site: sites.Site) -> int:
    """Return how often an iteration of the loop of unknown length has a statement executed."""
    known = {loop.index: range(loop.stop) for loop in site.loops if isinstance(loop.stop, int)}
    if len(known) == len(site.loops):
        return 0
    rounds = (dict(zip(known, one, strict=True)) for one in product(*known.values()))
    runs = sum(all(substitute(g, one) != 0 for g in site.guards) for one in rounds)
    return runs * len(site.place.threads)


def witness(kernel: kir.Kernel, *, policy: str = "default") -> Witness | None:
    """Return an execution that shows what is wrong with a kernel that `prove` refutes.

    It is the followed execution with the fewest trips in every loop, for a reader or a replay; None
    if few trips show nothing.
    """
    return None if drawn.subject(kernel) else teller.witness(kernel, policy=policy)


def witness_trips(verdict: Verdict) -> set[int]:
    """Return the trip counts at which the errors of a verdict show, to be replayed elsewhere."""
    errors = (f for f in verdict.findings if f.severity == "error")
    return {f.trips for f in errors if f.trips is not None}
