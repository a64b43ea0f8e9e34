"""What the explorer demands of accesses, beyond their order."""

from dataclasses import replace

import pytest
from litmus.parts import X1, Y1, box, fragment, load, single, slots, store, tensor
from matrices import CASES, IMPOSSIBLE

from fuser.expr import eq
from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, Rule, explore
from oracles.verdict import Status

TILE = fragment("x")
W = tensor("W")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))


def kinds(kernel: kir.Kernel, grid: int = 1, without: frozenset[Rule] = frozenset()) -> set[str]:
    """Kinds of errors and warnings of one launch."""
    found = explore(replace(kernel, requires=()), Launch(grid, {}), without=without)
    return {finding.kind for finding in found.findings}


def through_workspace(*body: kir.Stmt) -> kir.Kernel:
    """A kernel with a workspace of one tile."""
    kernel = single(body)
    return replace(kernel, tensors=(*kernel.tensors, W), workspaces=("W",))


def test_what_a_workspace_holds_at_the_start_is_not_read() -> None:
    """Its memory is scratch, of whoever had it before."""
    put, get = store(box(W), TILE), load(TILE, box(W))
    assert kinds(through_workspace(COPY[0], put, get, COPY[1])) == set()
    assert kinds(through_workspace(get, COPY[1])) == {"RAW"}


def test_every_element_of_an_output_is_written() -> None:
    """A kernel that writes nothing is fast and wrong."""
    assert kinds(single(COPY)) == set()
    assert kinds(single(COPY[:1])) == {"coverage"}
    half = kir.Box(Y1, (0, 0), (4, 32), (3, 32))
    assert kinds(single((COPY[0], store(half, TILE)))) == {"coverage"}
    assert kinds(single(COPY[:1]), without=frozenset({Rule.COVERAGE})) == set()


def test_an_element_of_an_output_is_written_once() -> None:
    """A second write in order is no race, and still one too many."""
    assert kinds(single((*COPY, COPY[1]))) == {"coverage"}
    scratch = through_workspace(*COPY, store(box(W), TILE), store(box(W), TILE))
    assert kinds(scratch) == set()


def test_threads_stay_inside_a_tensor() -> None:
    """Engines clip a box, threads do not; a box of nothing is inside."""
    wide = kir.Box(Y1, (1, 0), (4, 32), (5, 32))
    below = kir.Box(X1, (4, 0), (4, 32), (4, 32))
    assert kinds(single((*COPY, store(wide, TILE)))) == {"bounds"}
    assert kinds(single((load(TILE, wide),))) == {"bounds"}
    assert kinds(single((load(TILE, below), *COPY))) == set()


def fenced(*between: kir.Stmt) -> kir.Kernel:
    """Threads fill a slot, which an engine stores."""
    slot, bulk = kir.Slot(slots("S"), 0), kir.AsyncKind.BULK
    issue = (kir.TmaStore(box(Y1), slot), kir.AsyncCommit(bulk), kir.AsyncAwait(bulk, 0))
    body = (COPY[0], store(slot, TILE), *between, kir.Elect(kir.Per.ROLE, issue))
    return single(body, buffers=(slot.buffer,))


def test_a_fence_by_the_reader_is_worth_a_warning() -> None:
    """Accepted behind the barrier; before it, it covers the stores of its own thread only."""
    fence, sync = kir.FenceAsyncProxy(kir.Space.SHARED), kir.BlockSync(0, 32)
    late = explore(replace(fenced(sync, fence), requires=()), Launch(1, {}))
    assert [(f.kind, f.severity) for f in late.findings] == [("proxy", "warning")]
    assert kinds(fenced(fence, sync)) == set()
    assert kinds(fenced(fence, sync, fence)) == set()


def test_a_cta_stays_while_a_peer_reads_its_shared_memory() -> None:
    """The memory of a CTA that has left belongs to somebody else."""
    slot = slots("S")
    x, y = tensor("X", 2), tensor("Y", 2)
    meet = (kir.ClusterArrive(), kir.ClusterWait())
    take = load(TILE, kir.Slot(slot, 0, 1 - kir.RANK))

    def pair(*end: kir.Stmt) -> kir.Kernel:
        body = (
            load(TILE, box(x, kir.RANK)),
            store(kir.Slot(slot, 0), TILE),
            *meet,
            take,
            *end,
            store(box(y, kir.RANK), TILE),
        )
        made = replace(single(body, buffers=(slot,)), tensors=(x, y), cluster=2)
        return replace(made, requires=(eq(kir.GRID, 2),))

    relaxed = (kir.ClusterArrive(relaxed=True), kir.ClusterWait())
    assert kinds(pair(*meet), 2) == set()
    assert kinds(pair(), 2) == {"exit"}
    assert kinds(pair(*relaxed), 2) == {"exit"}
    assert kinds(pair(kir.ThreadFence(kir.Scope.CLUSTER), *relaxed), 2) == set()


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_instruction_moves_is_refuted(name: str) -> None:
    """In the first run."""
    verdict = explore(IMPOSSIBLE[name], Launch(1, {}))
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings} == {"bounds"}


@pytest.mark.parametrize("name", CASES)
def test_lanes_of_a_matrix_access_are_not_told_apart(name: str) -> None:
    """What one lane did before is ordered by a sync of its warp, or a wider one."""
    expected, subject = CASES[name]
    verdict = explore(subject, Launch(1, {}))
    assert {f.kind for f in verdict.findings if f.severity == "error"} == {expected} - {""}
    assert verdict.status is (Status.FAIL if expected else Status.PASS)
