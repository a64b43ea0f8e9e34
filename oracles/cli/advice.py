"""A kernel with some of its syncs taken out: what each sync is for, and which are needless.

What each sync is for is found out by asking what breaks without it.  Every proof is counted and
remembered; beyond a budget nothing more is asked, which `spent` tells.  A sync is needless if the
kernel is proved without it and neither policy says anything new.  Of two needless fences often
only one may go: the sets that may go *together* are found, too.  Statements that only make sense
together (all arrivals and waits of one mbarrier) are tried as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import combinations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from fuser.kernel.text import line as line_of
from oracles.prover import prove
from oracles.verdict import KINDS, Finding, Status, Verdict

Judge = Callable[[kir.Kernel, str], Verdict]
"""Who is asked: a kernel and a policy in, a verdict out."""
PROOFS = 150
"""Proofs that one kernel may cost where nothing else is asked for."""
BREACHES = 2
"""Defects that are named for one sync at most."""


def proved(kernel: kir.Kernel, policy: str) -> Verdict:
    """Ask the prover."""
    return prove.prove(kernel, policy=policy)


def syncs(kernel: kir.Kernel) -> dict[int, kir.Stmt]:
    """Return every sync by its line in the kernel's text; a hint to the scheduler is none."""
    found = ((line, stmt) for line, stmt in numbered(kernel) if isinstance(stmt, kir.SYNCS))
    return {line: stmt for line, stmt in found if stmt != kir.GridDependencyLaunch()}


class Ablation:
    """A kernel, and what a judge says of it without some syncs, by `most` proofs at most."""

    def __init__(self, kernel: kir.Kernel, *, most: int = PROOFS, judge: Judge = proved) -> None:
        self.kernel = kernel
        self.syncs = syncs(kernel)
        self.whole = {policy: judge(kernel, policy) for policy in prove.POLICIES}
        self.proofs = 0
        self.spent = False
        """Whether a question was left open because the budget was used up."""
        self._most = most
        self._judge = judge
        self._known: dict[tuple[frozenset[int], str], Verdict] = {}
        self._said = frozenset(
            complaint
            for verdict in self.whole.values()
            for complaint in _complaints(verdict, kernel)
        )

    def verdict(self, lines: Iterable[int], policy: str) -> Verdict | None:
        """Return what is said without the syncs of these lines; None once the budget is spent."""
        key = frozenset(lines), policy
        if key not in self._known:
            if self.proofs >= self._most:
                self.spent = True
                return None
            self.proofs += 1
            self._known[key] = self._judge(self.without(key[0]), policy)
        return self._known[key]

    def without(self, lines: frozenset[int]) -> kir.Kernel:
        """Return the kernel less the syncs of these lines."""
        victims = {id(self.syncs[n]) for n in lines}
        return self.kernel.rewrite(lambda stmt: [] if id(stmt) in victims else None)

    def holds(self, lines: Iterable[int]) -> bool | None:
        """Tell whether neither policy says anything new without these syncs; None if not asked.

        What is not proved with them is never said to hold without them.  `FenceMBarrierInit` stays,
        whatever can be proved: it is free, and libraries of the field all have it.
        """
        gone = frozenset(lines)
        kept = any(isinstance(self.syncs[n], kir.FenceMBarrierInit) for n in gone)
        if kept or self.whole["default"].status is not Status.PASS:
            return False
        for policy in prove.POLICIES:
            verdict = self.verdict(gone, policy)
            if verdict is None:
                return None
            if self.whole[policy].status is Status.PASS and verdict.status is not Status.PASS:
                return False
            if verdict.status not in (Status.PASS, Status.FAIL):
                return False
            if not self._said.issuperset(_complaints(verdict, self.without(gone))):
                return False
        return True

    def breaches(self, lines: Iterable[int], policy: str) -> list[Finding]:
        """Return what is newly said without these syncs, places once, hazards of memory first."""
        gone = frozenset(lines)
        verdict = self.verdict(gone, policy)
        if verdict is None:
            return []
        left = self.without(gone)
        moved = dict(
            zip(
                (n for n, _ in numbered(left)),
                (n for n, _ in numbered(self.kernel) if n not in gone),
                strict=True,
            )
        )
        found: dict[tuple[str, tuple[int, ...]], Finding] = {}
        for finding, complaint in zip(verdict.findings, _complaints(verdict, left), strict=True):
            if complaint not in self._said:
                at = tuple(moved.get(n, n) for n in finding.lines)
                found.setdefault((finding.kind, at), replace(finding, lines=at))
        rank = {kind: position for position, kind in enumerate(KINDS)}
        return sorted(found.values(), key=lambda f: (f.severity, rank.get(f.kind, len(rank))))


def _complaints(verdict: Verdict, kernel: kir.Kernel) -> list[tuple[str, ...]]:
    """Return kind and statements of each finding, whatever the lines on which these stand."""
    texts = {n: line(stmt) for n, stmt in numbered(kernel)}
    return [(f.kind, *([texts[n] for n in f.lines] or [f.where])) for f in verdict.findings]


def brief(finding: Finding) -> str:
    """Return kind, lines and trip count of a finding."""
    place = " | ".join(f"line {n}" for n in finding.lines) or finding.where
    moment = "" if finding.trips is None else f" at trips={finding.trips}"
    weak = "warning " if finding.severity == "warning" else ""
    return f"{weak}{finding.kind} {place}{moment}"


# --- what each sync is for ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """What is said beside a line; `needed` is None where it is not known."""

    line: int
    says: str
    needed: bool | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on the whole kernel, and a note for each sync; without a proof there are none."""

    verdict: Verdict
    notes: tuple[Note, ...]


def explain(
    kernel: kir.Kernel, *, policy: str = "default", most: int = PROOFS, judge: Judge = proved
) -> Explanation:
    """Say of every sync of a proved kernel what breaks without it, by `most` proofs at most."""
    asked = Ablation(kernel, most=most, judge=judge)
    whole = asked.whole[policy]
    if whole.status is not Status.PASS:
        return Explanation(whole, ())
    return Explanation(whole, tuple(_note(asked, n, policy) for n in asked.syncs))


def _note(asked: Ablation, line: int, policy: str) -> Note:
    verdict = asked.verdict([line], policy)
    if verdict is None:
        return Note(line, f"not asked: the budget of {asked.proofs} proofs is used up", None)
    if verdict.status in (Status.UNKNOWN, Status.UNSUPPORTED):
        return Note(line, f"without it: {verdict.status.value}: {verdict.reason}", None)
    found = asked.breaches([line], policy)
    if not found:
        return _quiet(asked, line, policy)
    said = "; ".join(map(brief, found[:BREACHES]))
    more = f" and {len(found) - BREACHES} more" if len(found) > BREACHES else ""
    return Note(line, f"without it: {said}{more}", True)


def _quiet(asked: Ablation, line: int, policy: str) -> Note:
    if asked.holds([line]):
        return Note(line, "needless for this kernel", False)
    other = "strict" if policy == "default" else "default"
    found = asked.breaches([line], other)
    if found:
        return Note(line, f"without it: {brief(found[0])} under {other} policy", True)
    if isinstance(asked.syncs[line], kir.FenceMBarrierInit):
        return Note(line, "no barrier here needs it; it is free, so keep it", True)
    return Note(line, f"nothing new under {policy}; {other} policy was not settled", None)


CHOICES = 6
"""Needless syncs up to which every set that may go together is found; beyond, one set."""


class Cost(IntEnum):
    """What a needless sync costs each time, dearest first."""

    FENCE = 0
    WAIT = 1
    BARRIER = 2
    ARRIVE = 3
    UPKEEP = 4
    """Commits, initialisations and the like."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Syncs that may go: their lines in the kernel's text, and their statements.

    There are several where none may go without the others.  `cost` is the class of the dearest;
    `loops` are the indices of the loops of symbolic length around it, outermost first; `reason` is
    what was proved; `instead` are the lines of other needless syncs that must stay if this one
    goes.
    """

    lines: tuple[int, ...]
    texts: tuple[str, ...]
    cost: Cost
    loops: tuple[str, ...]
    reason: str
    instead: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"in the loop over {self.loops[-1]}" if self.loops else "outside the loops"
        what = ", ".join(f"line {n} {t}" for n, t in zip(self.lines, self.texts, strict=True))
        stay = ""
        if self.instead:
            other = ", ".join(f"line {n}" for n in self.instead)
            stay = f"; if it goes, {other} must stay"
        return f"{what}: {self.cost.name.lower()} {place}; {self.reason}{stay}"


@dataclass(frozen=True, slots=True)
class Survey:
    """All that was found out about a kernel, by so many proofs; advice comes dearest first.

    `together` are sets of lines that may go together and to which no other can be added (all of
    them, if `complete`); the first is what a greedy choice of the dearest gives.  Once that is gone
    those of `then` may go as well, such as the arrivals of a barrier for which nobody waits any
    more.  `cut`: questions were left open because the budget was used up.  `reason` is why nothing
    can be said; empty where something can.
    """

    advice: tuple[Advice, ...]
    together: tuple[tuple[int, ...], ...]
    then: tuple[int, ...]
    complete: bool
    proofs: int
    cut: bool
    reason: str = ""


_Unit = tuple[int, ...]


def survey(kernel: kir.Kernel, *, most: int = PROOFS, judge: Judge = proved) -> Survey:
    """Find what a kernel, if it is proved, does not need, by `most` proofs at most."""
    asked = Ablation(kernel, most=most, judge=judge)
    whole = asked.whole["default"]
    if whole.status is not Status.PASS:
        reason = f"the whole kernel is {whole.status.value}: nothing can be called needless"
        return Survey((), (), (), True, 0, False, reason)
    around = _loops(kernel)
    single: list[_Unit] = sorted(
        ((n,) for n in asked.syncs), key=lambda unit: _price(asked, around, unit)
    )
    needless: list[_Unit] = [unit for unit in single if asked.holds(unit)]
    spare = {n for unit in needless for n in unit}
    for group in sorted(_groups(kernel, asked), key=lambda unit: _price(asked, around, unit)):
        if not spare.issuperset(group) and asked.holds(group):
            needless.append(group)
    needless.sort(key=lambda unit: _price(asked, around, unit))
    sets, complete = _together(asked, needless)
    advice = tuple(_advice(asked, around, unit, needless, sets) for unit in needless)
    lines = tuple(tuple(sorted({n for unit in chosen for n in unit})) for chosen in sets)
    then = _following(asked, set(lines[0]), [n for (n,) in single]) if lines else ()
    return Survey(advice, lines, then, complete and not asked.spent, asked.proofs, asked.spent)


def _together(asked: Ablation, needless: list[_Unit]) -> tuple[list[frozenset[_Unit]], bool]:
    """Return the largest sets that may go together, the greedy one first."""
    if not needless:
        return [], True
    greedy: frozenset[_Unit] = frozenset()
    for unit in needless:
        if not greedy or asked.holds(_lines(greedy | {unit})):
            greedy |= {unit}
    found = [greedy]
    if len(needless) > CHOICES:
        return found, len(greedy) == len(needless)
    # Taking out more never mends what is broken, so a part of a set that may go may go as well.
    for size in range(len(needless), 0, -1):
        for chosen in map(frozenset, combinations(needless, size)):
            if not any(chosen <= other for other in found) and asked.holds(_lines(chosen)):
                found.append(chosen)
    return found, True


def _following(asked: Ablation, gone: set[int], rest: list[int]) -> tuple[int, ...]:
    """Return what else may go once `gone` is; each step may free another."""
    more: list[int] = []
    grown = True
    while grown:
        grown = False
        for n in rest:
            if n not in gone and n not in more and asked.holds(gone | {*more, n}):
                more.append(n)
                grown = True
    return tuple(more)


def _lines(units: frozenset[_Unit]) -> set[int]:
    return {n for unit in units for n in unit}


def _advice(
    asked: Ablation,
    around: dict[int, tuple[str, ...]],
    unit: _Unit,
    needless: list[_Unit],
    sets: list[frozenset[_Unit]],
) -> Advice:
    verdict = asked.verdict(unit, "default")
    assert verdict is not None, "what is needless was proved"
    what = "it" if len(unit) == 1 else "them, all at once"
    reason = f"{verdict.checked} claims hold without {what}, for every trip count"
    partners = {other for chosen in sets if unit in chosen for other in chosen}
    stays = [other for other in needless if other not in partners and not set(other) & set(unit)]
    dearest = min(unit, key=lambda n: (-len(around[n]), cost(asked.syncs[n]), n))
    return Advice(
        unit,
        tuple(line_of(asked.syncs[n]) for n in unit),
        cost(asked.syncs[dearest]),
        around[dearest],
        reason,
        tuple(sorted(n for other in stays for n in other)),
    )


def _price(asked: Ablation, around: dict[int, tuple[str, ...]], unit: _Unit) -> tuple[int, ...]:
    """Sort key: deepest loop first, then the class, then the line."""
    return min((-len(around[n]), cost(asked.syncs[n]), n) for n in unit)


def cost(stmt: kir.Stmt) -> Cost:
    """Return the class of a sync."""
    match stmt:
        case (
            kir.FenceAsyncProxy()
            | kir.ThreadFence()
            | kir.WgmmaFence()
            | kir.FenceMBarrierInit()
            | kir.TensorMapRelease()
            | kir.TensorMapAcquire()
        ):
            return Cost.FENCE
        case (
            kir.MBarrierWaitParity()
            | kir.AsyncAwait()
            | kir.BlockSerializeWait()
            | kir.GridDependencyWait()
        ):
            return Cost.WAIT
        case (
            kir.BlockSync()
            | kir.ClusterWait()
            | kir.WarpSync()
            | kir.GridSync()
            | kir.LastArriving()
        ):
            return Cost.BARRIER
        case kir.NamedArrive() | kir.ClusterArrive() | kir.BlockSerializeRelease():
            return Cost.ARRIVE
        case _ if isinstance(stmt, kir.OnPhase):  # but for the wait
            return Cost.ARRIVE
        case _:
            return Cost.UPKEEP


def _loops(kernel: kir.Kernel) -> dict[int, tuple[str, ...]]:
    depth: dict[int, tuple[str, ...]] = {}
    lines = {id(stmt): n for n, stmt in numbered(kernel)}

    def enter(body: tuple[kir.Stmt, ...], loops: tuple[str, ...]) -> None:
        for stmt in body:
            depth[lines[id(stmt)]] = loops
            inner = loops
            match stmt:
                case kir.Loop(index):
                    inner = (*loops, index.name)
                case kir.ForLoop(index, stop) if not isinstance(stop, int):
                    inner = (*loops, index.name)
                case _:
                    pass
            for part in kir.bodies(stmt):
                enter(part, inner)

    enter(kernel.body, ())
    return depth


def _groups(kernel: kir.Kernel, asked: Ablation) -> list[_Unit]:
    """Return the syncs that only make sense together: of one mbarrier, of one kind of groups."""
    # A copy that completes on a barrier cannot do without it.
    copied = {stmt.barrier for stmt in kernel.walk() if isinstance(stmt, kir.TmaLoad | kir.StAsync)}
    groups: dict[tuple[str, str | int | Expr], list[int]] = {}
    for n, stmt in asked.syncs.items():
        match stmt:
            case _ if isinstance(stmt, kir.OnMBarrier) and stmt.barrier not in copied:
                groups.setdefault(("mbarrier", stmt.barrier.name), []).append(n)
            case kir.BlockSync(number) | kir.NamedArrive(number):
                groups.setdefault(("named", number), []).append(n)
            case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
                groups.setdefault(("groups", kind.value), []).append(n)
            case kir.ClusterArrive() | kir.ClusterWait():
                groups.setdefault(("cluster", ""), []).append(n)
            case kir.SetMaxNReg():
                groups.setdefault(("registers", ""), []).append(n)
            case _:
                pass
    return [tuple(lines) for lines in groups.values() if len(lines) > 1]
