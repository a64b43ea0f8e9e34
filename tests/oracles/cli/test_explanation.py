"""What is said beside a sync is what the judge says without it."""

from __future__ import annotations

import kernels as ks

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from oracles.cli.ablation import syncs
from oracles.cli.explanation import Note, explain
from oracles.verdict import Finding, Status, Verdict


def note(kernel: kir.Kernel, kind: type) -> Note:
    """The note of the first sync of a kind."""
    line = next(n for n, stmt in syncs(kernel).items() if isinstance(stmt, kind))
    return next(n for n in explain(kernel).notes if n.line == line)


def test_every_sync_has_a_note_and_nothing_else_has() -> None:
    """A sync without a note would look needless."""
    kernel = ks.specialized(2)
    assert [n.line for n in explain(kernel).notes] == list(syncs(kernel))


def test_a_note_names_the_hazard_its_two_lines_and_the_trips() -> None:
    """In the lines of the text beside it."""
    kernel = ks.specialized(3)
    lines = {type(stmt): n for n, stmt in numbered(kernel)}
    said = note(kernel, kir.WarpSync)
    assert said.needed
    read, refill = lines[kir.Load], lines[kir.TmaLoad]
    assert said.says.startswith(f"without it: WAR line {read} | line {refill} at trips=4")


def test_a_needless_sync_is_called_so() -> None:
    """Within one CTA nobody needs the fence of the init."""
    said = note(ks.specialized(2), kir.FenceMBarrierInit)
    assert (said.needed, said.says) == (False, "needless for this kernel")


def test_a_kernel_that_is_not_proved_has_no_notes() -> None:
    """What breaks without a sync says nothing if it is broken with it."""
    found = explain(ks.specialized(2, warp_sync=False))
    assert found.verdict.status is Status.FAIL
    assert found.notes == ()


def test_what_is_not_known_is_not_called_needless() -> None:
    """A judge that gives up, or is not asked any more, has not said no."""
    kernel = ks.staged(2)
    whole = len(syncs(kernel))

    def judge(judged: kir.Kernel, policy: str) -> Verdict:
        if len(syncs(judged)) == whole:
            return Verdict("judge", Status.PASS, 1)
        return Verdict("judge", Status.UNKNOWN, 0, reason="gave up")

    notes = explain(kernel, most=1, judge=judge).notes
    assert all(n.needed is None for n in notes)
    assert notes[0].says == "without it: unknown: gave up"
    assert notes[1].says == "not asked: the budget of 1 proofs is used up"


def test_what_only_strict_policy_wants_is_said_to_be_so() -> None:
    """A fence that the default policy does not ask for is no waste."""
    kernel = ks.staged(2)
    whole = len(syncs(kernel))
    first, _ = numbered(kernel)[0]

    def judge(judged: kir.Kernel, policy: str) -> Verdict:
        if len(syncs(judged)) == whole or policy == "default":
            return Verdict("judge", Status.PASS, 1)
        finding = Finding("proxy", f"line {first}: x", "no fence", lines=(first,), trips=2)
        return Verdict("judge", Status.FAIL, 1, (finding,))

    said = explain(kernel, judge=judge).notes[0]
    assert said.needed
    assert said.says == f"without it: proxy line {first} at trips=2 under strict policy"
