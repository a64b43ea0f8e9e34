"""Buffers share bytes where their lives are apart, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import product_kernels
import pytest
import reductions
from litmus.parts import XN, YN, box, fragment, k, kernel, load, n, slots, store
from product_kernels import COOPERATIVE, PING_PONG, PIPELINED

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.passes.overlay import overlay
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuzz.mutation.operators import mutants
from oracles.explorer import explore
from oracles.prover.prove import prove
from oracles.simulator.simulate import Launch, search
from oracles.verdict import Status

A, B = slots("A", 3), slots("B", offset=1536)
TILE = fragment("x", 64)
T = Var("t")
RING = kir.CircularBuffer(3, 2)
Body = tuple[kir.Stmt, ...]


def put(buffer: kir.Buffer) -> kir.Stmt:
    """Threads write a slot."""
    return store(kir.Slot(buffer, 0), TILE)


def get(buffer: kir.Buffer, peer: int | None = None) -> kir.Stmt:
    """Threads read a slot."""
    return load(TILE, kir.Slot(buffer, 0, peer))


def fetch(buffer: kir.Buffer = A) -> kir.Stmt:
    """An engine fills a slot."""
    return kir.Copy(kir.Slot(buffer, 0), box(XN, k), kir.Engine.TMA)


def send() -> kir.Stmt:
    """An engine copies B out."""
    return kir.Copy(box(YN, k), kir.Slot(B, 0), kir.Engine.TMA)


def loop(*body: kir.Stmt, stop: object = n, ring: kir.CircularBuffer | None = None) -> kir.Stmt:
    """So many iterations."""
    return kir.ForLoop(T, stop, body, ring)  # type: ignore[arg-type]  # an Expr


def use(*body: kir.Stmt) -> kir.Stmt:
    """The role that computes."""
    return kir.Role("use", 0, 2, body)


def feed(*body: kir.Stmt) -> kir.Stmt:
    """The role that loads."""
    return kir.Role("feed", 2, 1, (kir.Elect(kir.Per.ROLE, body),))


def guarded(*body: kir.Stmt) -> kir.Stmt:
    """One of two branches."""
    return kir.IfThenElse(n > T, body)


TABLE: dict[str, tuple[Body, bool]] = {
    "one after the other": ((put(A), get(A), put(B), get(B)), True),
    "the other after the one": ((put(B), send(), put(A), get(A)), True),
    "at once": ((put(A), put(B), get(A), get(B)), False),
    "again": ((put(A), get(A), put(B), get(B), get(A)), False),
    "one in one branch, one in the other": (
        (kir.IfThenElse(n > T, (put(A), get(A)), (put(B), get(B))),),
        True,
    ),
    "read before it is written: of the last iteration": (
        (loop(get(A), put(A), put(B), get(B)),),
        False,
    ),
    "a ring in each tile, results behind it": (
        (loop(loop(fetch(), get(A), ring=RING), put(B), send()),),
        True,
    ),
    "results in the loop of the ring": ((loop(fetch(), get(A), put(B), send(), ring=RING),), False),
    "loads ahead, a ring, results": (
        (loop(guarded(fetch())), loop(fetch(), get(A), ring=RING), put(B), send()),
        True,
    ),
    "another role fills the ring of one tile": (
        (feed(loop(fetch(), ring=RING)), use(loop(get(A), ring=RING), put(B), send())),
        True,
    ),
    "another role is ahead by a tile": (
        (
            feed(loop(loop(fetch(), ring=RING))),
            use(loop(loop(get(A), ring=RING), put(B), send())),
        ),
        False,
    ),
    "another role fills before anybody reads": (
        (feed(loop(fetch(), ring=RING)), use(put(B), send(), loop(get(A), ring=RING))),
        False,
    ),
    "another role fills more than is read": (
        (feed(loop(fetch(), ring=RING)), use(loop(get(A), stop=n - 1), put(B), send())),
        False,
    ),
    "two rings": (
        (loop(fetch(), get(A), ring=RING), loop(fetch(B), get(B), ring=RING)),
        False,
    ),
    "two roles": ((use(put(A), get(A)), kir.Role("too", 2, 1, (put(B), get(B)))), False),
    "peers read what comes last": ((put(A), get(A), put(B), get(B, 0)), True),
    "peers may still read what comes first": ((put(A), get(A, 0), put(B), get(B)), False),
    "peers read in every tile": ((loop(put(A), get(A), put(B), get(B, 0)),), False),
    "nothing is saved": ((put(A), get(A)), False),
}


@pytest.mark.parametrize("case", TABLE)
def test_lives_that_are_apart_share_bytes(case: str) -> None:
    """From the first access, a write, to the last, whoever does them and in whatever loop."""
    body, shares = TABLE[case]
    made = kernel(body, threads=96, buffers=(A, B))
    assert overlay(made) == made, "nobody asked"
    asked = overlay(replace(made, overlay=True))
    assert (asked.smem_bytes < made.smem_bytes) == shares
    assert A.shares(next(b for b in asked.buffers if b.name == "B")) == shares
    for stmt in asked.walk():
        if isinstance(stmt, kir.Store | kir.Load):
            (slot,) = (
                s
                for s in (getattr(stmt, "dst", 0), getattr(stmt, "src", 0))
                if isinstance(s, kir.Slot)
            )
            assert slot.buffer in asked.buffers


KINDS: dict[str, tuple[MatmulParams, int]] = {
    "a tile a CTA": (PIPELINED, 64 * 32 * 2),
    "tiles in turn": (replace(PIPELINED, persistent=True, columns=16), 0),
    "a load role": (replace(COOPERATIVE, persistent=False), 128 * 32 * 2),
    "a load role that is ahead": (COOPERATIVE, 0),
    "roles in turn": (PING_PONG, 0),
    "sums of a cluster": (
        replace(PIPELINED, splits=2, meet="cluster", columns=8),
        64 * 32 * 4,
    ),
    "sums added by TMA": (replace(PIPELINED, splits=2, meet="tma", columns=8), 64 * 40 * 4),
}
"""Schedules, and the bytes that their epilogues need no more."""


@pytest.mark.parametrize("kind", KINDS)
def test_epilogues_of_products_lie_in_the_rings(kind: str) -> None:
    """No sync more in the loop that multiplies; proved, and one is missed where one is dropped."""
    params, saved = KINDS[kind]
    made, alone = (product_kernels.kernel(replace(params, overlay=over)) for over in (True, False))
    assert alone.smem_bytes - made.smem_bytes == saved
    assert (made == alone) == (saved == 0)
    mains = [
        [
            s
            for s in one.walk()
            if isinstance(s, kir.ForLoop) and any(isinstance(inner, kir.Wgmma) for inner in s.body)
        ]
        for one in (made, alone)
    ]
    joins = [sum(isinstance(s, kir.SYNCS) for s in kir.walk(tuple(m))) for m in mains]
    assert joins[0] == joins[1]
    if saved:
        assert prove(made).status is Status.PASS


def test_a_join_between_two_lives_is_missed_by_all() -> None:
    """And bytes that are 16 off, or of somebody else."""
    made = product_kernels.kernel(PIPELINED)
    sizes = {"n0": 64, "n1": 32, "n2": 64 * 6, "T0_s0": 64 * 6, "T1_s1": 64 * 6, "T6_s0": 32}
    launch = {v.name: sizes.get(v.name, 1) for v in made.params}
    stage = next(s for s in made.walk() if isinstance(s, kir.Store))
    before = made.body[made.body.index(stage) - 1]
    assert isinstance(before, kir.BlockSync)
    wrong = [m.kernel for m in mutants(made, "alias") if "16 bytes later" in m.change]
    wrong += [m.kernel for m in mutants(made, "drop") if m.victim is before]
    assert len(wrong) == 4
    for mutant in wrong:
        assert prove(mutant).status is Status.FAIL
        assert search(mutant, Launch(1, launch), schedules=12).status is Status.FAIL
        assert explore.explore(mutant, explore.Launch(1, launch)).status is Status.FAIL


def test_the_parts_of_rows_lie_in_the_ring_that_they_were_read_from() -> None:
    """Of a reduction, if that is asked for: threads join once more a tile."""
    params = PointwiseParams((1, 256), 4, 2, 1, "tma", "direct", stages=3, prefetch=2)
    made, alone = (reductions.kernel(replace(params, overlay=over)) for over in (True, False))
    assert made.smem_bytes < alone.smem_bytes
    joins = [sum(isinstance(s, kir.BlockSync) for s in one.walk()) for one in (made, alone)]
    assert joins[0] == joins[1] + 1
    assert prove(made).status is Status.PASS
