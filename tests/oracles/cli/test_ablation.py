"""Taking syncs out: lines stay those of the whole kernel, and proofs are counted."""

from __future__ import annotations

import kernels as ks

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered, text
from oracles.cli.ablation import Ablation, brief, syncs
from oracles.verdict import Finding, Status, Verdict


def line_of(kernel: kir.Kernel, kind: type) -> int:
    """Line of the first sync of a kind."""
    return next(n for n, stmt in syncs(kernel).items() if isinstance(stmt, kind))


def passing(kernel: kir.Kernel, policy: str) -> Verdict:
    """A judge that finds nothing."""
    return Verdict("judge", Status.PASS, 1)


def complaining(kernel: kir.Kernel, policy: str) -> Verdict:
    """A judge that complains of every load, under any policy, unless all syncs are there."""
    if len(syncs(kernel)) == len(syncs(ks.staged(2))):
        return Verdict("judge", Status.PASS, 1)
    line = next(n for n, s in numbered(kernel) if isinstance(s, kir.TmaStore))
    finding = Finding("RAW", f"line {line}: x", "late", lines=(line,), trips=3)
    return Verdict("judge", Status.FAIL, 1, (finding,))


def test_only_the_syncs_of_the_lines_are_gone() -> None:
    """Statements that look the same must not go with them."""
    kernel = ks.staged(2)
    lines = [n for n, stmt in syncs(kernel).items() if isinstance(stmt, kir.BlockSync)]
    assert len(lines) == 2
    left = Ablation(kernel, judge=passing).without(frozenset(lines[1:]))
    whole = text(kernel).splitlines()
    del whole[lines[1] - 1]
    assert text(left).splitlines() == whole


def test_lines_of_a_breach_are_those_of_the_whole_kernel() -> None:
    """The reader sees the whole kernel; the judge saw one with a line less."""
    kernel = ks.staged(2)
    asked = Ablation(kernel, judge=complaining)
    store = next(n for n, s in numbered(kernel) if isinstance(s, kir.TmaStore))
    (breach,) = asked.breaches([line_of(kernel, kir.BlockSync)], "default")
    assert (breach.kind, breach.lines, breach.trips) == ("RAW", (store,), 3)
    assert brief(breach) == f"RAW line {store} at trips=3"


def test_a_question_is_asked_once_and_only_within_the_budget() -> None:
    """Proofs are what advice costs."""
    kernel = ks.staged(2)
    first, second, *_ = syncs(kernel)
    asked = Ablation(kernel, most=2, judge=passing)
    assert asked.holds([first])
    assert asked.holds([first])
    assert (asked.proofs, asked.spent) == (2, False)
    assert asked.holds([second]) is None
    assert (asked.proofs, asked.spent) == (2, True)


def test_what_strict_policy_newly_says_keeps_a_sync() -> None:
    """Needless means under both policies."""
    kernel = ks.staged(2)

    def strict(judged: kir.Kernel, policy: str) -> Verdict:
        return passing(judged, policy) if policy == "default" else complaining(judged, policy)

    asked = Ablation(kernel, judge=strict)
    assert asked.holds([line_of(kernel, kir.BlockSync)]) is False


def test_nothing_holds_without_a_proof_of_the_whole() -> None:
    """Removing a sync from a broken kernel proves nothing."""

    def unknown(kernel: kir.Kernel, policy: str) -> Verdict:
        return Verdict("judge", Status.UNKNOWN, 0, reason="gave up")

    kernel = ks.staged(2)
    assert Ablation(kernel, judge=unknown).holds([line_of(kernel, kir.BlockSync)]) is False


def test_hazards_of_memory_come_before_what_follows_from_them() -> None:
    """A reader wants the cause first."""
    kernel = ks.specialized(3)
    kinds = [b.kind for b in Ablation(kernel).breaches([line_of(kernel, kir.WarpSync)], "default")]
    assert kinds[0] == "WAR"
