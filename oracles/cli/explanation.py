"""What each sync of a kernel is for, found out by asking what breaks without it."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.cli.ablation import PROOFS, Ablation, Judge, brief, proved
from oracles.verdict import Status, Verdict

BREACHES = 2
"""Defects that are named for one sync at most."""


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
