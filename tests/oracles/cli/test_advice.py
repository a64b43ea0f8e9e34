"""Advice names what may go, what may go together, and what must stay if another goes."""

from __future__ import annotations

import re

import kernels as ks
import pytest

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered, text
from oracles.cli.advice import Ablation, Cost, Judge, Note, brief, cost, explain, survey, syncs
from oracles.prover.prove import prove
from oracles.verdict import Finding, Status, Verdict


def doubled(kernel: kir.Kernel, kind: type, copy: kir.Stmt) -> kir.Kernel:
    """Return the kernel with `copy` after its first statement of a kind."""
    first = next(stmt for stmt in kernel.walk() if isinstance(stmt, kind))
    return kernel.rewrite(lambda stmt: [stmt, copy] if stmt is first else None)


def needing(*wanted: tuple[int, ...]) -> Judge:
    """A judge for `ks.staged(2)` that wants one line of each group to be left."""
    whole = {id(s): n for n, s in syncs(STAGED).items()}

    def judge(kernel: kir.Kernel, policy: str) -> Verdict:
        left = {whole[id(s)] for s in kernel.walk() if id(s) in whole}
        if all(left & set(group) for group in wanted):
            return Verdict("judge", Status.PASS, 7)
        return Verdict("judge", Status.FAIL, 7, (Finding("RAW", "S", "missing", trips=1),))

    return judge


STAGED = ks.staged(2)
LINES = tuple(syncs(STAGED))


def test_a_kernel_without_a_needless_sync_gets_no_advice() -> None:
    """Advice that is always there is not read."""
    found = survey(ks.staged(2))
    assert found.advice == ()
    assert (found.cut, found.reason) == (False, "")
    assert found.proofs >= len(LINES)


def test_of_two_fences_either_may_go_but_not_both() -> None:
    """Single removals alone would advise to remove both."""
    kernel = doubled(ks.staged(2), kir.FenceAsyncProxy, kir.FenceAsyncProxy(kir.Space.SHARED))
    fences = [n for n, s in syncs(kernel).items() if isinstance(s, kir.FenceAsyncProxy)]
    found = survey(kernel)
    assert sorted(n for a in found.advice for n in a.lines) == fences
    assert sorted(found.together) == [(fences[0],), (fences[1],)]
    assert found.complete
    assert [a.instead for a in found.advice] == [(fences[1],), (fences[0],)]
    assert all(a.cost is Cost.FENCE and a.loops == ("k",) for a in found.advice)
    assert "must stay" in str(found.advice[0])


def test_dearest_comes_first() -> None:
    """A fence in the main loop before a fence outside, a fence before a barrier."""
    kernel = doubled(ks.specialized(2), kir.WarpSync, kir.BlockSync(1, 32 * ks.WARPS))
    kernel = doubled(kernel, kir.WarpSync, kir.ThreadFence(kir.Scope.CTA))
    kernel = doubled(kernel, kir.FenceMBarrierInit, kir.ThreadFence(kir.Scope.CTA))
    found = survey(kernel).advice
    assert [(a.cost, bool(a.loops)) for a in found] == [
        (Cost.FENCE, True),
        (Cost.BARRIER, True),
        (Cost.BARRIER, True),
        (Cost.FENCE, False),
    ]


IDLE = kir.MBarrier("idle", 1, 1)
HANDSHAKE = ks.kernel(
    "handshake",
    [
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(IDLE),)),
        kir.BlockSync(0, 32 * ks.WARPS),
        kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(IDLE, 0),)),
        kir.MBarrierWaitParity(IDLE, 0, 0),
        *ks.direct().body[1:],
    ],
    barriers=(IDLE,),
)


def judged(*legal: set[type]) -> Judge:
    """A judge of HANDSHAKE that passes what is left of it if that is one of these sets."""

    def judge(kernel: kir.Kernel, policy: str) -> Verdict:
        if {type(s) for s in syncs(kernel).values()} in legal:
            return Verdict("judge", Status.PASS, 7)
        return Verdict("judge", Status.FAIL, 7, (Finding("init", "idle", "missing", trips=1),))

    return judge


ALL = {kir.MBarrierInit, kir.BlockSync, kir.MBarrierArrive, kir.MBarrierWaitParity}


def test_statements_that_only_make_sense_together_are_tried_as_one() -> None:
    """A handshake of which no part may go alone."""
    found = survey(HANDSHAKE, judge=judged(ALL, {kir.BlockSync}))
    (piece,) = found.advice
    assert piece.texts == (
        "mbarrier_init(idle, 1)",
        "mbarrier_arrive(idle[0], cta)",
        "mbarrier_wait_parity(idle[0], 0, cta)",
    )
    assert piece.cost is Cost.WAIT
    assert found.together == (piece.lines,)


def test_what_a_removal_frees_may_go_as_well() -> None:
    """Once nobody waits, nobody needs to arrive, though no arrival may go alone."""
    legal = (ALL, ALL - {kir.MBarrierWaitParity}, {kir.MBarrierInit, kir.BlockSync})
    found = survey(HANDSHAKE, judge=judged(*legal))
    lines = {type(stmt): n for n, stmt in syncs(HANDSHAKE).items()}
    assert found.together == ((lines[kir.MBarrierWaitParity],),)
    assert found.then == (lines[kir.MBarrierArrive],)


@pytest.mark.parametrize(
    ("wanted", "sets"),
    [
        ([LINES], {LINES[:i] + LINES[i + 1 :] for i in range(len(LINES))}),
        ([(n,) for n in LINES[2:]], {LINES[:2]}),
        ([LINES[:2], LINES[1:3], *((n,) for n in LINES[3:])], {(LINES[1],), (LINES[0], LINES[2])}),
    ],
)
def test_all_largest_sets_are_found(
    wanted: list[tuple[int, ...]], sets: set[tuple[int, ...]]
) -> None:
    """Each alternative, and nothing that is part of another."""
    found = survey(STAGED, judge=needing(*wanted), most=1000)
    if len(found.advice) <= 6:
        assert set(found.together) == sets
    else:
        assert not found.complete
        assert set(found.together) <= sets


def test_a_cut_search_says_so() -> None:
    """Silence must not be taken for praise."""
    found = survey(STAGED, most=3)
    assert found.cut
    assert not found.complete
    assert found.proofs == 3


def test_of_a_refuted_kernel_nothing_is_advised() -> None:
    """A sync that a broken kernel does not need may be what a right one does."""
    found = survey(ks.staged(2, fence=False))
    assert found.advice == ()
    assert "the whole kernel is fail" in found.reason


def test_every_sync_has_a_class() -> None:
    """The order of advice is the order of cost."""
    assert cost(kir.FenceAsyncProxy(kir.Space.ALL)) < cost(kir.AsyncAwait(kir.AsyncKind.BULK, 0))
    assert cost(kir.AsyncAwait(kir.AsyncKind.BULK, 0)) < cost(kir.BlockSync(0, 128))
    assert cost(kir.BlockSync(0, 128)) < cost(kir.NamedArrive(1, 128))
    assert cost(kir.NamedArrive(1, 128)) < cost(kir.AsyncCommit(kir.AsyncKind.BULK))


# --- taking syncs out: lines stay those of the whole kernel, and proofs are counted ---------------


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


@pytest.mark.parametrize(
    "kernel",
    [
        ks.pipelined(3, 2),
        ks.specialized(3),
        ks.staged(2),
        ks.handed(2),
        ks.relaid(),
        ks.combined(3, 2, 2),
        ks.combined(2, 0, 2, specialized=True),
    ],
    ids=lambda k: k.name,
)
def test_every_dropped_sync_is_killed_or_needless(kernel: kir.Kernel) -> None:
    """A sync that may go without the kernel breaking is needless; no other is."""
    asked = Ablation(kernel)
    for n, stmt in asked.syncs.items():
        needless = asked.holds([n])
        if not isinstance(stmt, kir.FenceMBarrierInit):  # which stays, needed or not
            fails = prove(asked.without(frozenset([n]))).status is Status.FAIL
            assert fails != needless, stmt
        assert not needless or isinstance(stmt, kir.BlockSync)


def test_a_needless_sync_is_named() -> None:
    """Over-synchronising is a performance bug, and only a proof may call it one."""
    kernel = ks.staged(2)

    def twice(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.FenceAsyncProxy(space):
                return [stmt, kir.FenceAsyncProxy(space)]
            case _:
                return None

    def needless(kernel: kir.Kernel) -> list[type]:
        asked = Ablation(kernel)
        return [type(stmt) for n, stmt in asked.syncs.items() if asked.holds([n])]

    assert not needless(kernel)
    assert needless(kernel.rewrite(twice)) == [kir.FenceAsyncProxy] * 2


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


def test_the_fence_of_an_init_is_never_called_needless() -> None:
    """Within one CTA nothing depends on it; strictly it is owed where an engine completes."""
    said = note(ks.specialized(2), kir.FenceMBarrierInit)
    assert said.needed
    assert re.fullmatch(r"without it: warning init line \d+ .*under strict policy", said.says)
    assert survey(ks.specialized(2)).advice == ()


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
