"""Tests of the rules of the invariants: each is needed, for without it some verdict changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import kernels as ks
import pytest
from litmus.parts import elect
from litmus.rules_turns import shared, turns
from litmus.turnstiles import TURNS, by_engine, turnstile
from signalled import signalled

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, start, trips
from fuser.kernel import ir as kir
from fuzz.mutation.operators import all_mutants
from oracles.prover.invariants.check import RLIMIT, confirm
from oracles.prover.invariants.trace import Axiom, Obligation, Rule
from oracles.verdict import Status

NEEDS: dict[Axiom, str] = {
    Axiom.PROGRAM: "tma_ring",
    Axiom.BARRIER: "store_ring",
    Axiom.ARRIVAL: "specialized_ring",
    Axiom.BYTES: "specialized_ring",
    Axiom.WAIT: "specialized_ring",
    Axiom.ISSUE: "wgmma_ring",
    Axiom.GROUP: "wgmma_ring",
    Axiom.CONVERGE: "wgmma_ring",
    Axiom.FINISH: "cp_async_mbarrier",
    Axiom.SIGNAL: "signalled",
    Axiom.TAKEN: "split_k",
}
"""A right kernel whose proof needs the axiom."""
SPARE = {Axiom.SEQUENCE: "who arrives has waited for the phase before in every kernel of ours"}
"""Axioms that no kernel is known to need, and why."""


def kernel(name: str) -> kir.Kernel:
    """Return a recipe, or a kernel by hand."""
    return signalled() if name == "signalled" else recipes.RECIPES[name]()


def status(subject: kir.Kernel, *without: Rule) -> Status:
    """Return what z3 says without some rules."""
    return confirm(subject, rlimit=RLIMIT, without=frozenset(without)).status


@cache
def changes(name: str) -> dict[str, kir.Kernel]:
    """Return every mutant of a recipe by what it says it is."""
    return {mutant.change: mutant.kernel for mutant in all_mutants(kernel(name))}


def mutant(name: str, says: str) -> kir.Kernel:
    """Return a mutant of a recipe by the start of what it says it is."""
    found = [subject for change, subject in changes(name).items() if change.startswith(says)]
    assert found, f"{name} has no such mutant"
    return found[0]


def early_expect() -> kir.Kernel:
    """Expect the bytes of a phase by another thread than the one whose arrival ends it."""
    ring = recipes.specialized_ring()

    def split(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArriveExpectTx(bar, slot):
                return [kir.MBarrierArrive(bar, slot)]
            case kir.WarpSync():
                (full, _) = ring.barriers
                expects = kir.MBarrierExpectTx(full, k % full.slots, 1024)
                return [stmt, kir.Elect(kir.Per.ROLE, (expects,))]
            case _:
                return None

    return ring.rewrite(split)


def unread() -> kir.Kernel:
    """Read a slot that nobody writes."""
    ring = recipes.store_ring()
    loads = [
        kir.Load(s.src, s.dst, 4)
        for s in ring.walk()
        if isinstance(s, kir.Store) and isinstance(s.dst, kir.Slot)
    ]

    def read(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Slot()):
                return [*loads]
            case kir.Elect() | kir.FenceAsyncProxy():
                return []
            case _:
                return None

    return ring.rewrite(read)


def smuggled() -> kir.Kernel:
    """Publish an ordinary store by the end of a copy that was started after it."""
    ring = recipes.specialized_ring()
    (s,) = ring.buffers
    full, _ = ring.barriers
    layout = kir.Layout((1, 1), 1, 1)
    note = kir.Buffer("note", s.dtype, (1, 1), full.slots, 128 * -(-s.end // 128))
    word = kir.Fragment("word", s.dtype, layout)
    at = kir.Slot(note, k % full.slots)

    def tell(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad():
                return [kir.Store(at, word, 1), stmt]
            case kir.Load(_, kir.Slot()):
                return [stmt, kir.Load(word, at, 1)]
            case _:
                return None

    return replace(ring, buffers=(s, note)).rewrite(tell)


def unsignalled() -> kir.Kernel:
    """Wait for a last tile that nobody signals."""
    arrive = kir.NamedArrive(1, 2 * kir.WARP)

    def early(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.IfThenElse(k + 1 < trips, (stmt,))] if stmt == arrive else None

    return signalled().rewrite(early)


def crossed() -> kir.Kernel:
    """Two warps that wait for each other before they arrive."""
    ring = recipes.store_ring()
    ping, pong = (kir.MBarrier(name, kir.WARP, 1) for name in ("ping", "pong"))

    def role(warp: int, awaited: kir.MBarrier, signalled: kir.MBarrier) -> kir.Role:
        body = (kir.MBarrierWaitParity(awaited, 0, k % 2), kir.MBarrierArrive(signalled, 0))
        return kir.Role(f"warp{warp}", warp, 1, (kir.ForLoop(k, trips, body),))

    body = (
        ring.body[0],
        *start(ping, pong, threads=2 * kir.WARP),
        role(0, ping, pong),
        role(1, pong, ping),
    )
    return replace(ring, threads=2 * kir.WARP, buffers=(), barriers=(ping, pong), body=body)


WRONG: dict[Obligation, kir.Kernel] = {
    Obligation.SCHEDULE: crossed(),
    Obligation.NOT_LAPPED: mutant("specialized_ring", "apart, by all threads, line 26"),
    Obligation.IN_PHASE: mutant("specialized_ring", "swap line 26"),
    Obligation.COUNTED: mutant("specialized_ring", "arrivals +1 of full"),
    Obligation.AWAITED: mutant("specialized_ring", "not from 40 on line 19"),
    Obligation.EXPECTED: early_expect(),
    Obligation.RAW: mutant("specialized_ring", "swap line 15"),
    Obligation.WAR: mutant("store_ring", "drop line 10"),
    Obligation.PROXY: mutant("store_ring", "drop line 13"),
    Obligation.NARROW: smuggled(),
    Obligation.WRITTEN: unread(),
    Obligation.EXIT: mutant("specialized_ring", "no last line 14"),
    Obligation.DRAIN: mutant("store_ring", "drop line 19"),
    Obligation.INIT: mutant("specialized_ring", "drop line 12"),
    Obligation.REGISTERS: mutant("wgmma_ring", "swap line 27"),
    Obligation.FENCE: mutant("wgmma_ring", "drop line 20"),
    Obligation.COLLECTIVE: mutant("store_ring", "threads 96 line 11"),
    Obligation.WHOLE: unsignalled(),
    Obligation.TURNS: turns(elect(kir.BlockSerializeRelease(TURNS, 0, 0))),
    Obligation.CLEAN: turnstile(to=kir.BLOCK + 1),
    Obligation.RESIDENT: turnstile(residency="any"),
    Obligation.REMOTE: by_engine(later="add commit done"),
    Obligation.APART: shared(part=0),
}
"""A wrong kernel that only this obligation sees."""


KEPT = {
    Obligation.NOT_BEHIND: "specialized_ring",
    Obligation.WAW: "specialized_ring",
    Obligation.RETURN: "store_ring",
}
"""What the argument needs, though no wrong kernel is known that it sees alone; who claims it."""


@pytest.mark.parametrize("axiom", NEEDS, ids=lambda a: a.name)
def test_without_an_axiom_a_right_kernel_is_not_proved(axiom: Axiom) -> None:
    """Else it would be idle."""
    subject = kernel(NEEDS[axiom])
    assert status(subject) is Status.PASS
    assert status(subject, axiom) is not Status.PASS


@pytest.mark.parametrize("obligation", WRONG, ids=lambda o: o.name)
def test_without_an_obligation_a_wrong_kernel_is_proved(obligation: Obligation) -> None:
    """Nobody else would see it."""
    assert status(WRONG[obligation]) is not Status.PASS
    assert status(WRONG[obligation], obligation) is Status.PASS


def test_every_axiom_is_needed_or_known_to_be_spare() -> None:
    """A new one has to show what it is good for."""
    assert set(NEEDS) | set(SPARE) == set(Axiom)
    subjects = [kernel(name) for name in {*NEEDS.values()}] + [ks.combined(3, 1, 2)]
    for axiom in SPARE:
        assert all(status(subject, axiom) is Status.PASS for subject in subjects), axiom


def test_every_obligation_is_needed_or_known_to_be_kept_for_the_argument() -> None:
    """Those that nothing is seen by alone are claims all the same."""
    assert set(WRONG) | set(KEPT) == set(Obligation)
    for obligation, name in KEPT.items():
        subject = kernel(name)
        fewer = confirm(subject, rlimit=RLIMIT, without=frozenset({obligation})).checked
        assert fewer < confirm(subject, rlimit=RLIMIT).checked, obligation
