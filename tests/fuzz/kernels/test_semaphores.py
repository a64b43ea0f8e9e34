"""Semaphore mutants: each is a kernel of its own, and every judge is right about it."""

from __future__ import annotations

import re

import pytest
from sample import some

from fuser.kernel import ir as kir
from fuser.kernel.text import numbered, text
from fuzz.crosscheck.judge import explore, simulate
from fuzz.kernels.draw import accepted
from fuzz.kernels.semaphores import BASES, MEMBERS, Member, semaphore_mutant
from fuzz.kernels.subjects import find
from oracles.prover import prove
from oracles.verdict import Finding, Status, Verdict

BROKEN = tuple(m for m in MEMBERS.values() if not m.legal)
LEGAL = tuple(m for m in MEMBERS.values() if m.legal)
RELEASE, WAIT = kir.BlockSerializeRelease, kir.BlockSerializeWait
COPIES = (kir.TmaStore, kir.TmaReduce)

KINDS = {
    "release before commit": "drain",
    "no await": "drain",
    "read-only await": "drain",
    "await by another thread": "drain",
    "await after release": "drain",
    "no barrier before release": "RAW",
    "release by another warp without a barrier": "drain",
    "relaxed release": "scope",
    "release at cta scope": "scope",
    "relaxed release behind a cta fence": "scope",
    "no proxy fence": "proxy",
    "proxy fence before the acquire": "proxy",
    "issued by a whole warp": "WAW",
    "issued by a thread of each warp": "WAW",
    "semaphore not reset": "semaphore",
    "last release left out": "semaphore",
}
"""What kind of defect the prover has to see in a change."""

HINTS = {
    "release before commit": r"async_await\(bulk, keep=0\) comes after the release of line",
    "no await": r"missing is async_await\(bulk\) between line",
    "read-only await": "waits for its reads only",
    "await by another thread": r"is by warp1, whose groups it waits for|missing is async_await",
    "await after release": r"async_await\(bulk, keep=0\) comes after the release of line",
    "no barrier before release": "turns give turn 1 is by lane 0 of warp 0, and nothing joins",
    "release by another warp without a barrier": "turns give turn 1 is by .* warp 1 .*joins",
    "relaxed release": r"turns give turn 1, relaxed, and no thread_fence\(gpu\)",
    "release at cta scope": "turns give turn 1 reaches only threads of its own CTA",
    "relaxed release behind a cta fence": r"turns give turn 1, relaxed, and no thread_fence\(gpu\)",
    "no proxy fence": "missing is a fence_async_proxy by lane 0 of warp 0 of CTA 1",
    "proxy fence before the acquire": "missing is a fence_async_proxy by lane 0 of warp 0 of CTA 1",
    "issued by a whole warp": "is issued by .* and by .* missing is an election",
    "issued by a thread of each warp": "is issued by .* and by .* missing is an election",
    "semaphore not reset": "turns give turn 1",
    "last release left out": "turns give turn 1",
}
"""What the prover's witness has to point at."""


def ids(one: Member) -> str:
    """The name of a test."""
    return one.key


def errors(verdict: Verdict) -> list[Finding]:
    """Findings that are no warnings."""
    return [f for f in verdict.findings if f.severity == "error"]


def named(kernel: kir.Kernel, words: str) -> list[kir.Stmt]:
    """The statements whose lines a text names."""
    lines = dict(numbered(kernel))
    return [lines[int(n)] for n in re.findall(r"\bline (\d+)", words)]


def test_names_are_told_apart() -> None:
    """A result is found by its key."""
    assert all(re.fullmatch(r"[a-z_]+/[a-z-]+", key) for key in MEMBERS)
    assert find("semaphore split_k/control").kernel == semaphore_mutant("split_k/control").base
    with pytest.raises(ValueError, match=r"mutant\('nothing'\): pick one of split_k/control"):
        semaphore_mutant("nothing")


def test_every_kernel_differs_from_every_other() -> None:
    """Two that are the same would be counted twice."""
    made = [semaphore_mutant(key) for key in MEMBERS]
    assert len({text(one.kernel) for one in made}) == len(made) >= 41
    assert {m.name for m in BROKEN} == set(KINDS) == set(HINTS)


@pytest.mark.parametrize("base", BASES)
def test_every_base_has_its_control(base: str) -> None:
    """Without it a tool that reports everything would look sharp."""
    control = semaphore_mutant(f"{base}/control")
    assert MEMBERS[f"{base}/control"].legal
    assert not control.faults
    assert control.kernel == control.base
    assert all(params["splits"] > 1 for _, params in control.launches)


@pytest.mark.parametrize("one", MEMBERS.values(), ids=ids)
def test_validation_lets_every_kernel_through(one: Member) -> None:
    """What it refuses needs no judge; but issues by many threads are in the table all the same."""
    kernel = semaphore_mutant(one.key).kernel
    assert accepted(kernel) is not one.name.startswith("issued by")


@pytest.mark.parametrize("one", LEGAL, ids=ids)
def test_what_is_legal_passes(one: Member) -> None:
    """Prover, simulator and explorer: a judge that refuses everything is no judge."""
    subject = semaphore_mutant(one.key)
    kernel, starts = subject.kernel, subject.launches[:2]
    assert prove.prove(kernel).status is Status.PASS
    for start in starts:
        assert simulate(kernel, start, 6).status is Status.PASS
        assert explore(kernel, start).status is Status.PASS


@pytest.mark.parametrize("one", some(BROKEN, *BROKEN[::2]), ids=ids)
def test_the_prover_refutes_and_its_witness_points_at_the_fault(one: Member) -> None:
    """The kind is that of the fault; rows and hint name release or copy, and both accesses."""
    kernel = semaphore_mutant(one.key).kernel
    verdict = prove.prove(kernel)
    assert verdict.status is Status.FAIL
    assert KINDS[one.name] in {f.kind for f in errors(verdict)}
    found = prove.witness(kernel)
    assert found is not None
    assert re.search(HINTS[one.name], found.nearest), found.nearest
    lines = dict(numbered(kernel))
    shown = [lines[row.line] for row in found.rows if row.line]
    assert any(isinstance(s, RELEASE | kir.TmaStore | kir.TmaReduce) for s in shown)
    said = named(kernel, f"{found.says} {found.nearest}")
    assert any(isinstance(s, (RELEASE, kir.AsyncAwait, kir.Store, *COPIES)) for s in said)


@pytest.mark.parametrize("one", BROKEN, ids=ids)
def test_simulator_and_explorer_refute_by_execution(one: Member) -> None:
    """Each names the release, the wait for the turn, or the copy that goes wrong."""
    subject = semaphore_mutant(one.key)
    kernel, starts = subject.kernel, subject.launches[:2]
    for said in ([simulate(kernel, s, 6) for s in starts], [explore(kernel, s) for s in starts]):
        verdict = next(v for v in said if v.status is not Status.PASS)
        assert verdict.status is Status.FAIL
        (first, *_) = errors(verdict)
        words = f"{first.where} {first.witness}"
        if first.kind == "semaphore":
            assert "turns[0]" in words
            continue
        stmts = named(kernel, words)
        assert any(isinstance(s, (RELEASE, WAIT, kir.Store, *COPIES)) for s in stmts), words
