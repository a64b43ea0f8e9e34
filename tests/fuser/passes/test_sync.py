"""Joining threads: where one relies on what others did, and nowhere else."""

import kernels
import product_kernels
import pytest
from fusions import FAMILIES, PIPELINED, SPECIALIZED, compiled
from litmus import suite

from fuser.kernel import ir as kir
from fuser.passes.sync import init_barriers, sync_threads
from fuser.schedule.matmul_params import MatmulParams


def bare(kernel: kir.Kernel) -> kir.Kernel:
    """Return the kernel without its joins."""
    return kernel.rewrite(lambda s: [] if isinstance(s, kir.BlockSync) else None)


@pytest.mark.parametrize(
    "kernel",
    [kernels.staged(1), kernels.staged(2), kernels.specialized(3)],
    ids=["staged-1", "staged-2", "specialized"],
)
def test_joins_of_hand_written_kernels_are_found_again(kernel: kir.Kernel) -> None:
    """Taken out and derived anew from what the statements touch."""
    again = sync_threads(bare(kernel))
    count = sum(isinstance(s, kir.BlockSync) for s in kernel.walk())
    assert sum(isinstance(s, kir.BlockSync) for s in again.walk()) == count


def test_a_kernel_without_shared_memory_joins_nobody() -> None:
    """Ordinary accesses of a tile are private to their thread."""
    kernel = compiled(FAMILIES["direct/direct"]).launches[0].kernel
    syncs = [s for s in kernel.walk() if isinstance(s, kir.SYNCS)]
    assert syncs == [kir.GridDependencyWait()]


def test_initialisation_is_joined_once_and_outside_of_loops() -> None:
    """Before the roles, or before the first loop that uses a barrier."""
    for params in (PIPELINED, SPECIALIZED):
        body = compiled(params).launches[0].kernel.body
        assert sum(isinstance(s, kir.BlockSync) for s in body) == 1


def test_the_refill_joins_inside_its_guard() -> None:
    """The last turns refill nothing and join nobody."""
    body = compiled(PIPELINED).launches[0].kernel.body
    main = [s for s in body if isinstance(s, kir.ForLoop)][-1]
    guards = [s for s in main.body if isinstance(s, kir.IfThenElse)]
    assert sum(isinstance(s, kir.BlockSync) for s in kir.walk(main.body)) == 1
    assert any(isinstance(s, kir.BlockSync) for s in guards[0].then)


def test_every_barrier_is_initialised_by_one_thread() -> None:
    """And fenced, before anything else."""
    kernel = init_barriers(bare(kernels.specialized(2)))
    first = kernel.body[0]
    assert isinstance(first, kir.Elect)
    assert [type(s).__name__ for s in first.body] == [
        "MBarrierInit",
        "MBarrierInit",
        "FenceMBarrierInit",
    ]
    assert init_barriers(kernels.direct()) == kernels.direct()


def test_a_cluster_meets_first_only_where_somebody_signals_a_peer() -> None:
    """Who only reads slots of a peer has met it before; they leave together in either case."""
    pair = MatmulParams(
        (64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=8, splits=2, meet="cluster"
    )
    for params, at_once in ((product_kernels.CLUSTER, True), (pair, False)):
        body = product_kernels.kernel(params).body
        assert any(isinstance(s, kir.ClusterWait) for s in body[:4]) == at_once
        assert [type(s) for s in body[-2:]] == [kir.ClusterArrive, kir.ClusterWait]


def test_who_reads_what_it_has_copied_itself_joins_nobody() -> None:
    """Rows that threads share, copied and read under one layout; under another one all join."""
    for name, joins in (
        ("rows_copied_by_who_reads_them", 0),
        ("rows_copied_by_others_than_read_them", 2),
    ):
        (kernel,) = suite.kernels(suite.by_name(name))
        again = sync_threads(bare(kernel))
        assert sum(isinstance(s, kir.BlockSync) for s in again.walk()) == joins
