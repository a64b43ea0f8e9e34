"""Every synchronising statement compiles, and says its scope."""

import pytest

from fuser.codegen import cuda
from fuser.codegen.sync import sync_line
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.runtime.nvrtc import compile_cubin

BAR = kir.MBarrier("b", 1, 2)
TURNS = kir.Semaphore("turns", 4)
MAPS = kir.TensorMaps("maps", kir.Tensor("X", DType.F32, (4, 32), (32, 1), 4), 2)
GROUPS = [kind for kind in kir.AsyncKind if kind is not kir.AsyncKind.QUEUE]
SYNCS: list[kir.Sync] = [
    kir.BlockSync(0, 64),
    kir.NamedArrive(1, 64),
    kir.WarpSync(),
    kir.MBarrierInit(BAR),
    kir.MBarrierInvalidate(BAR),
    *(kir.MBarrierArrive(BAR, 0, scope) for scope in kir.Scope),
    kir.MBarrierArrive(BAR, 1, kir.Scope.CLUSTER, cta=1),
    *(kir.MBarrierArrive(BAR, 0, scope, count=3) for scope in kir.Scope),
    kir.MBarrierArrive(BAR, 1, kir.Scope.CLUSTER, cta=1, count=3),
    kir.MBarrierArriveExpectTx(BAR, 0, 16),
    kir.MBarrierExpectTx(BAR, 0, 16),
    *(kir.MBarrierWaitParity(BAR, 0, 0, scope) for scope in kir.Scope),
    *(kir.MBarrierWaitParity(BAR, 0, 0, scope, retry=False) for scope in kir.Scope),
    *(kir.AsyncCommit(kind) for kind in GROUPS),
    *(kir.AsyncAwait(kind, 1) for kind in GROUPS),
    kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True),
    kir.CpAsyncMBarrierArrive(BAR, 0, noinc=True),
    kir.CpAsyncMBarrierArrive(BAR, 0, noinc=False),
    *(kir.FenceAsyncProxy(space) for space in kir.Space),
    kir.TensorMapRelease(),
    kir.TensorMapAcquire(MAPS, 1),
    kir.FenceMBarrierInit(),
    *(kir.ThreadFence(scope) for scope in kir.Scope),
    kir.WgmmaFence(),
    kir.ClusterArrive(),
    kir.ClusterArrive(relaxed=True),
    kir.ClusterWait(),
    *(kir.BlockSerializeWait(TURNS, 0, 1, scope) for scope in kir.Scope),
    *(kir.BlockSerializeRelease(TURNS, 0, 1, scope) for scope in kir.Scope),
    kir.GridSync(TURNS, 0, 3),
    kir.GridSync(TURNS, 0, 3, 1),
    kir.BlockSerializeWait(TURNS, 0, 1, barrier=1),
    *(kir.BlockSerializeRelease(TURNS, 0, 1, scope, relaxed=True) for scope in kir.Scope),
    kir.GridDependencyWait(),
    kir.GridDependencyLaunch(),
    kir.SetMaxNReg(32, increase=False),
    kir.SetMaxNReg(64, increase=True),
]


def test_every_sync_has_a_spelling() -> None:
    """All nodes compile, in all forms, also those that no pass emits yet."""
    assert {type(stmt) for stmt in SYNCS} == set(kir.SYNCS.__args__)
    kernel = kir.Kernel(
        "all", (), (MAPS.tensor,), (), (), (BAR,), 128, tuple(SYNCS), semaphores=(TURNS,),
        cluster=2, maps=(MAPS,),
    )  # fmt: skip
    compile_cubin(cuda.source(kernel))


def test_no_two_syncs_look_alike() -> None:
    """A scope, a space or a flag that is lost on the way would pass every other test."""
    lines = [sync_line(stmt, ("acc",), 128) for stmt in SYNCS]
    assert len({*lines}) == len(SYNCS)


def test_no_gpu_waits_for_a_queue() -> None:
    """It would be a wait for something else; the message names what there is."""
    with pytest.raises(ScheduleError, match="queue, keep=1.*no GPU has a queue of copies.*by TMA"):
        sync_line(kir.AsyncAwait(kir.AsyncKind.QUEUE, 1), (), 128)


@pytest.mark.parametrize(
    ("stmt", "text"),
    [
        (kir.WgmmaFence(), "wgmma::fence(acc, a);"),
        (kir.AsyncAwait(kir.AsyncKind.WGMMA, 1), "wgmma::await<1>(acc, a);"),
        (kir.AsyncCommit(kir.AsyncKind.WGMMA), "wgmma::commit();"),
        (kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, 2), "cp_async::await<2>();"),
        (kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True), "tma::await_read<0>();"),
    ],
)
def test_tensor_core_syncs_hold_the_registers(stmt: kir.Sync, text: str) -> None:
    """Else the compiler moves reads of an accumulator before the wait."""
    assert sync_line(stmt, ("acc", "a"), 128) == text
