"""A kernel with some of its syncs taken out: whether it is still proved, and what breaks if not.

What each sync is for is found out by asking what breaks without it.  Every proof is counted and
remembered; beyond a budget nothing more is asked, which `spent` tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
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


@dataclass(frozen=True, slots=True)
class Breach:
    """What a verdict says, in lines of the whole kernel's text.

    Parameters
    ----------
    kind : str
        Kind of the finding.
    lines : tuple of int
        The statements it speaks of; empty if it names none.
    where : str
        The place in the judge's words.
    trips : int or None
        Smallest trip count that shows it, where the judge names one.
    severity : str
        Of the finding.
    """

    kind: str
    lines: tuple[int, ...]
    where: str
    trips: int | None
    severity: str

    def __str__(self) -> str:
        place = " | ".join(f"line {n}" for n in self.lines) or self.where
        moment = "" if self.trips is None else f" at trips={self.trips}"
        weak = "warning " if self.severity == "warning" else ""
        return f"{weak}{self.kind} {place}{moment}"


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
        said = [f for verdict in self.whole.values() for f in verdict.findings]
        self._said = frozenset(_complaint(f) for f in said)

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
            if not self._said.issuperset(map(_complaint, verdict.findings)):
                return False
        return True

    def breaches(self, lines: Iterable[int], policy: str) -> list[Breach]:
        """Return what is newly said without these syncs, each place once.

        Errors come first, and hazards of memory before what follows from them, as in `KINDS`.
        """
        gone = frozenset(lines)
        verdict = self.verdict(gone, policy)
        if verdict is None:
            return []
        left = [n for n, stmt in numbered(self.kernel) if n not in gone]
        moved = dict(zip((n for n, _ in numbered(self.without(gone))), left, strict=True))
        found: dict[tuple[str, tuple[int, ...]], Breach] = {}
        for finding in verdict.findings:
            if _complaint(finding) not in self._said:
                breach = _breach(finding, moved)
                found.setdefault((breach.kind, breach.lines), breach)
        rank = {kind: position for position, kind in enumerate(KINDS)}
        return sorted(found.values(), key=lambda b: (b.severity, rank.get(b.kind, len(rank))))


def _complaint(finding: Finding) -> tuple[str, str]:
    return finding.kind, re.sub(r"line \d+: ", "", finding.where)


def _breach(finding: Finding, moved: dict[int, int]) -> Breach:
    lines = [int(n) for n in re.findall(r"\bline (\d+)\b", finding.where)]
    trips = re.search(r"\btrips=(\d+)", finding.witness)
    return Breach(
        finding.kind,
        tuple(moved.get(n, n) for n in lines),
        finding.where,
        int(trips[1]) if trips else None,
        finding.severity,
    )


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
    said = "; ".join(str(breach) for breach in found[:BREACHES])
    more = f" and {len(found) - BREACHES} more" if len(found) > BREACHES else ""
    return Note(line, f"without it: {said}{more}", True)


def _quiet(asked: Ablation, line: int, policy: str) -> Note:
    if asked.holds([line]):
        return Note(line, "needless for this kernel", False)
    other = "strict" if policy == "default" else "default"
    found = asked.breaches([line], other)
    if found:
        return Note(line, f"without it: {found[0]} under {other} policy", True)
    return Note(line, f"nothing new under {policy}; {other} policy was not settled", None)
