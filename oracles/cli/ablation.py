"""A kernel with some of its syncs taken out: whether it is still proved, and what breaks if not.

What each sync is for is found out by asking what breaks without it.  Every proof is counted and
remembered; beyond a budget nothing more is asked, which `spent` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
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
    """Return every sync by its line in the kernel's text."""
    return {line: stmt for line, stmt in numbered(kernel) if isinstance(stmt, kir.SYNCS)}


class Ablation:
    """A kernel, and what a judge says of it without some of its syncs.

    Parameters
    ----------
    kernel : Kernel
        The whole kernel.
    most : int
        Proofs that may be asked for; the two of the whole kernel are free.
    judge : callable
        Who is asked, the prover by default.
    """

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

        What is not proved with them is never said to hold without them.
        """
        gone = frozenset(lines)
        if self.whole["default"].status is not Status.PASS:
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
        """Return what is newly said without these syncs, each place once.

        Errors come first, and hazards of memory before what follows from them, as in `KINDS`.
        Their `lines` are those of the whole kernel's text.
        """
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
    """What is said beside a line.

    Parameters
    ----------
    line : int
        Line of the kernel's text.
    says : str
        What breaks without it, that nothing does, or why neither is known.
    needed : bool or None
        None where it is not known.
    """

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
    """Say of every sync what breaks without it.

    Parameters
    ----------
    kernel : Kernel
        Any; the syncs of one that is not proved have no meaning that a proof could show.
    policy : str
        One of `oracles.prover.prove.POLICIES`.
    most : int
        Proofs that may be asked for.
    judge : callable
        Who is asked.
    """
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
    return Note(line, f"nothing new under {policy}; {other} policy was not settled", None)
