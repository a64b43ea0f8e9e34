"""Groups of stores: which wait stands where, and what each kind of engine owes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import BULK, YN, box, fragment, k, kernel, load, n, slots, store

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.passes.async_copies import group_copies
from fuser.passes.stores import drain_stores

Body = tuple[kir.Stmt, ...]
TILE = fragment("x", 64)
ONE, TWO = slots("A"), slots("B", 2, offset=1024)
OTHER = slots("C", 2, offset=2048)
OVER = slots("R", offset=1024)
"""Over the first slot of B."""
T = Var("t")


def put(buffer: kir.Buffer, index: object = 0) -> kir.Stmt:
    """Threads write a slot."""
    return store(kir.Slot(buffer, index), TILE)  # type: ignore[arg-type]  # an Expr


def copy(buffer: kir.Buffer, index: object = 0, *, reduce: bool = False) -> kir.Stmt:
    """An engine copies a slot to the output, or adds it there."""
    slot = kir.Slot(buffer, index)  # type: ignore[arg-type]  # an Expr
    return kir.Copy(box(YN, k), slot, kir.Engine.TMA, reduce=reduce)


def fetch(buffer: kir.Buffer) -> kir.Stmt:
    """An engine fills a slot."""
    full = kir.MBarrier("full", 1, 1)
    return kir.TmaLoad(kir.Slot(buffer, 0), box(YN, k), full, 0)


def loop(*body: kir.Stmt) -> Body:
    """So many iterations `k`."""
    return (kir.ForLoop(k, n, body),)


def drained(body: Body, **facts: object) -> list[str]:
    """What threads do after the pass: kinds, each wait with how many groups stay in flight."""
    made = kernel(body, threads=64, buffers=(ONE, TWO, OTHER, OVER))
    out = drain_stores(replace(made, **facts))  # type: ignore[arg-type]  # fields of a kernel
    words = []
    for stmt in out.walk():
        match stmt:
            case kir.AsyncAwait(_, keep, read_only):
                words.append(f"{'read' if read_only else 'done'} {keep}")
            case kir.TmaStore() | kir.TmaReduce() | kir.Store() | kir.TmaLoad() | kir.ForLoop():
                words.append(type(stmt).__name__)
            case _:
                pass
    return words


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (loop(put(ONE), copy(ONE)), "ForLoop [read 0] Store TmaStore [read 0]"),
        (loop(put(TWO, k % 2), copy(TWO, k % 2)), "ForLoop [read 1] Store TmaStore [read 0]"),
        (
            loop(put(ONE), copy(ONE, reduce=True)),
            "ForLoop [read 0] Store TmaReduce [read 0]",
        ),
        (
            loop(put(TWO, k % 2), put(OTHER, k % 2), copy(TWO, k % 2), copy(OTHER, k % 2)),
            "ForLoop [read 1] Store Store TmaStore TmaStore [read 0]",
        ),
        (
            loop(put(TWO, k % 2), copy(TWO, k % 2), put(OTHER, k % 2), copy(OTHER, k % 2)),
            "ForLoop [read 3] Store TmaStore [read 3] Store TmaStore [read 0]",
        ),
        (
            (put(TWO, 0), copy(TWO, 0), put(TWO, 1), copy(TWO, 1), put(TWO, 0), copy(TWO, 0)),
            "Store TmaStore Store TmaStore [read 1] Store TmaStore [read 0]",
        ),
        (
            loop(put(TWO, 0), copy(TWO, 0), put(TWO, 1), copy(TWO, 1)),
            "ForLoop [read 1] Store TmaStore [read 1] Store TmaStore [read 0]",
        ),
        (
            loop(put(ONE), copy(ONE), put(TWO, k % 2), copy(TWO, k % 2)),
            "ForLoop [read 1] Store TmaStore Store TmaStore [read 0]",
        ),
        ((put(ONE), put(OVER), copy(ONE)), "Store Store TmaStore [read 0]"),
        (
            loop(kir.ForLoop(T, 3, (fetch(OVER),)), put(TWO, 0), copy(TWO, 0)),
            "ForLoop [read 0] ForLoop TmaLoad Store TmaStore [read 0]",
        ),
        (
            loop(put(TWO, k % 2), copy(TWO, k % 2), put(ONE), copy(ONE), fetch(OVER)),
            "ForLoop [read 3] Store TmaStore [read 1] Store TmaStore [read 1] TmaLoad [read 0]",
        ),
    ],
    ids=[
        "one slot",
        "a ring of two",
        "reductions as stores",
        "two in one group",
        "two rings, two groups",
        "chunks in turn",
        "chunks in turn, again and again",
        "the wait for a slot is one for a ring, too",
        "nothing was issued yet",
        "other bytes are filled outside of the inner loop",
        "other bytes of one group, not of the next",
    ],
)
def test_only_what_is_in_the_way_is_waited_for(body: Body, expected: str) -> None:
    """The latest group that may read the bytes, and with it those before; not those behind."""
    assert " ".join(drained(body)) == expected.replace("[", "").replace("]", "")


def test_what_goes_to_the_next_cta_is_awaited_in_full_and_nothing_else() -> None:
    """Before the release of a turn; a store to an output behind it may still be on its way."""
    semaphore = kir.Semaphore("turns", 1)
    release = kir.BlockSerializeRelease(semaphore, 0, 1)
    handed = {"workspaces": (YN.name,), "outputs": (), "semaphores": (semaphore,)}
    branch = kir.IfThenElse(T, (put(ONE), copy(ONE), put(TWO), copy(TWO), put(ONE)))
    words = drained((branch, release), **handed)
    assert words == [
        "Store",
        "TmaStore",
        "Store",
        "TmaStore",
        "read 1",
        "Store",
        "done 0",
        "read 0",
    ]
    assert "done 0" not in drained((branch,), **handed), "nobody waits for a turn"


def test_kinds_of_groups_do_not_wait_for_each_other() -> None:
    """A slot of stores waits for stores alone, one of cp.async for cp.async alone."""
    copied = kir.CpAsync(kir.Slot(OTHER, 0), box(YN, k), TILE.layout, 2)
    body = (copied, load(TILE, kir.Slot(OTHER, 0)), put(ONE), copy(ONE))
    ring = kir.ForLoop(k, n, body, kir.CircularBuffer(1, 0))
    made = kernel((ring,), threads=64, buffers=(ONE, OTHER))
    made = drain_stores(group_copies(made))
    waits = [s for s in made.walk() if isinstance(s, kir.AsyncAwait)]
    assert [(w.kind, w.keep) for w in waits if w.kind is BULK] == [(BULK, 0)] * 2
    commits = [s.kind for s in made.walk() if isinstance(s, kir.AsyncCommit)]
    assert len(commits) == len(set(commits)) == len({w.kind for w in waits})


def test_st_async_is_in_no_group() -> None:
    """Its end is told by an mbarrier."""
    sent = kir.StAsync(kir.Slot(ONE, 0, 1), TILE, kir.MBarrier("full", 1, 1), 0, 2)
    made = kernel(loop(sent, put(ONE)), threads=64, buffers=(ONE,))
    assert drain_stores(made) == made
