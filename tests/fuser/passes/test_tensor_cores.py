"""When the end of a wgmma is awaited: once before its result is used, and for its slots."""

from dataclasses import replace

import pytest
from product_kernels import COOPERATIVE, PING_PONG, PIPELINED, gated, kernel, kinds, loops
from sample import covering

from fuser.dtype import DType
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.passes.tensor_cores import flush_wgmma, group_wgmma
from fuser.schedule.matmul_params import MatmulParams
from oracles.prover.prove import prove
from oracles.verdict import Status

STRIPS = kir.Layout((64, 8), 2, 128, kir.Deal.STRIPS)
A = kir.Buffer("A", DType.BF16, (64, 16), 1, 0, 32)
B = kir.Buffer("B", DType.BF16, (8, 16), 1, 2048, 32)
X = kir.Tensor("X", DType.F32, (64, 8), (8, 1), 4)
BOX = kir.Box(X, (0, 0), (64, 8), (64, 8))


def acc(n: int = 0) -> kir.Fragment:
    """An accumulator."""
    return kir.Fragment(f"acc{n}", DType.F32, STRIPS)


def mma(n: int = 0) -> kir.Stmt:
    """A product of 64 x 8 into it."""
    return kir.Wgmma(acc(n), kir.Slot(A, 0), kir.Slot(B, 0), 0)


def use(n: int = 0) -> kir.Stmt:
    """A use of it by threads."""
    return kir.Store(BOX, acc(n), 2)


def passed(*body: kir.Stmt, buffers: tuple[kir.Buffer, ...] = (A, B)) -> list[str]:
    """Both passes over a body, as names with the groups that an await leaves."""
    bare = kir.Kernel("k", (), (X,), (), buffers, (), 128, body, ("X",))
    done = flush_wgmma(group_wgmma(bare))
    return [
        f"await {s.keep}" if isinstance(s, kir.AsyncAwait) else type(s).__name__
        for s in done.walk()
    ]


ISSUE = ["WgmmaFence", "Wgmma", "AsyncCommit"]


def test_one_flush_serves_a_chain_of_uses() -> None:
    """The second use finds nothing pending."""
    assert passed(mma(), use(), use()) == [*ISSUE, "await 0", "Store", "Store"]


def test_a_new_wgmma_arms_the_flush_again() -> None:
    """Two products one after the other, each with a use of its own."""
    once = [*ISSUE, "await 0", "Store"]
    assert passed(mma(0), use(0), mma(1), use(1)) == once + once


def test_neighbours_are_one_group_and_one_flush() -> None:
    """Two products side by side: one fence, one commit, one await for both results."""
    got = passed(mma(0), mma(1), use(0), use(1))
    assert got == ["WgmmaFence", "Wgmma", "Wgmma", "AsyncCommit", "await 0", "Store", "Store"]


def test_a_use_in_one_branch_flushes_there_only() -> None:
    """The other branch, and what follows, still owe one."""
    branch = kir.IfThenElse(kir.BLOCK < 1, (use(),))
    assert passed(mma(), branch) == [*ISSUE, "IfThenElse", "await 0", "Store", "await 0"]
    both = kir.IfThenElse(kir.BLOCK < 1, (use(),), (use(),))
    assert passed(mma(), both)[len(ISSUE) :] == ["IfThenElse", *["await 0", "Store"] * 2]


def test_results_that_nobody_uses_are_awaited_at_the_end() -> None:
    """Nothing may still read shared memory when a CTA leaves."""
    assert passed(mma()) == [*ISSUE, "await 0"]


@pytest.mark.parametrize("offset", [0, 4096])
def test_bytes_that_are_read_begin_no_other_life(offset: int) -> None:
    """What is stored over them, in whatever loop, waits for the groups first."""
    other = kir.Buffer("C", DType.F32, (64, 8), 1, offset)
    put = kir.Store(kir.Slot(other, 0), replace(acc(), name="x"), 2)
    again = kir.ForLoop(Var("i"), 3, (put,))
    found = passed(mma(), again, buffers=(A, B, other))
    first, last = ("await 0", []) if offset == 0 else ("ForLoop", ["await 0"])
    assert found == [*ISSUE, *dict.fromkeys((first, "ForLoop")), "Store", *last]


@pytest.mark.parametrize(
    ("split", "ring"),
    covering(
        1, [PIPELINED, COOPERATIVE, PING_PONG], [(1, 0), (2, 0), (2, 1), (4, 1), (4, 2), (5, 4)]
    ),
)
def test_spare_slots_stay_in_flight(split: MatmulParams, ring: tuple[int, int]) -> None:
    """`stages - prefetch - 1` groups; one fewer waits too long, one more frees too early."""
    stages, prefetch = ring
    made = kernel(replace(split, stages=stages, prefetch=prefetch))
    spare = stages - prefetch - 1
    kept = [s.keep for s in made.walk() if isinstance(s, kir.AsyncAwait) and of_wgmma(s)]
    own = 2 if split.split == "ping_pong" else 1
    assert kept == ([spare, 0] if spare else [0]) * own, "where none is spare, that is the flush"
    assert prove(made).status is Status.PASS


def of_wgmma(stmt: kir.AsyncAwait) -> bool:
    """Whether groups of wgmma are awaited, not copies."""
    return stmt.kind is kir.AsyncKind.WGMMA


def test_one_more_group_in_flight_is_refuted() -> None:
    """The number is the largest safe one."""
    made = kernel(COOPERATIVE)

    def later(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.AsyncAwait) and of_wgmma(stmt) and stmt.keep:
            return [replace(stmt, keep=stmt.keep + 1)]
        return None

    assert prove(made.rewrite(later)).status is Status.FAIL


def test_two_products_share_a_loop_a_group_and_a_flush() -> None:
    """The gated layer: both wgmmas between one fence and one commit."""
    made = kernel(COOPERATIVE, gated())
    (loop,) = [found for found in loops(made.body) if "Wgmma" in kinds(found.body)]
    names = kinds(loop.body)
    at = names.index("Wgmma")
    assert names[at - 1 : at + 4] == ["WgmmaFence", "Wgmma", "Wgmma", "AsyncCommit", "AsyncAwait"]
    flush = kir.AsyncAwait(kir.AsyncKind.WGMMA, 0)
    assert sum(stmt == flush for stmt in made.walk()) == 1
