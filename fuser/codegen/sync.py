"""Synchronising statements in CUDA C++: one line, one device function."""

from __future__ import annotations

from fuser.codegen.expr import map_slot, spell
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.text import line


def sync_line(stmt: kir.Sync, pinned: tuple[str, ...], threads: int) -> str:
    """Write a synchronising statement of a role of so many threads; ScheduleError if none does it.

    `pinned` are the register arrays that tensor cores may be reading or writing here.
    """
    match stmt:
        case kir.BlockSync(barrier, joined):
            return f"threads::block_sync({barrier}, {joined});"
        case kir.NamedArrive(barrier, joined):
            return f"threads::named_arrive({barrier}, {joined});"
        case kir.WarpSync():
            return "threads::warp_sync();"
        case kir.AsyncCommit(kir.AsyncKind.QUEUE) | kir.AsyncAwait(kir.AsyncKind.QUEUE):
            raise ScheduleError(
                f"`{line(stmt)}`: no GPU has a queue of copies, so no code is printed for it; wait "
                "for copies by TMA, BULK or CP_ASYNC, or only judge the kernel"
            )
        case kir.AsyncCommit(kind):
            return f"{_GROUPS[kind]}::commit();"
        case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
            return f"wgmma::await<{keep}>({', '.join(pinned)});"
        case kir.AsyncAwait(kind, keep, read_only):
            return f"{_GROUPS[kind]}::await{'_read' if read_only else ''}<{keep}>();"
        case kir.FenceAsyncProxy(space):
            return f"fence::async_proxy_{space.value}();"
        case kir.TensorMapRelease():
            return "tensor_map::release();"
        case kir.TensorMapAcquire(maps, index):
            return f"tensor_map::acquire({map_slot(maps, index)});"
        case kir.FenceMBarrierInit():
            return "fence::mbarrier_init();"
        case kir.ThreadFence(scope):
            return f"fence::thread_{scope.value}();"
        case kir.WgmmaFence():
            return f"wgmma::fence({', '.join(pinned)});"
        case kir.ClusterArrive(relaxed):
            return f"threads::cluster_arrive{'_relaxed' if relaxed else ''}();"
        case kir.ClusterWait():
            return "threads::cluster_wait();"
        case kir.BlockSerializeWait(semaphore, index, turn, scope, barrier):
            at = f"{semaphore.name} + {spell(index)}, {spell(turn)}"
            return f"semaphore::wait_{scope.value}({at}, tid, {barrier}, {threads});"
        case kir.BlockSerializeRelease(semaphore, index, turn, scope, relaxed):
            at = f"{semaphore.name} + {spell(index)}"
            verb = f"release_{scope.value}{'_relaxed' if relaxed else ''}"
            return f"semaphore::{verb}({at}, {spell(turn)});"
        case kir.GridSync(semaphore, index, ctas, barrier):
            at = f"{semaphore.name} + {spell(index)}, {spell(ctas)}"
            return f"semaphore::meet({at}, tid, {barrier}, {threads});"
        case kir.GridDependencyWait():
            return "threads::grid_dependency_wait();"
        case kir.GridDependencyLaunch():
            return "threads::grid_dependency_launch();"
        case kir.SetMaxNReg(registers, increase):
            return f"threads::set_max_nreg_{'inc' if increase else 'dec'}<{registers}>();"
        case _:
            return _mbarrier_line(stmt)


def last_arriving(stmt: kir.LastArriving, threads: int) -> str:
    """Spell the question whether this CTA is the last-arriving one, asked by so many threads."""
    at = f"{stmt.semaphore.name} + {spell(stmt.index)}, {spell(stmt.ctas)}"
    return f"semaphore::last_to_come({at}, tid, {stmt.barrier}, {threads})"


_GROUPS = {
    kir.AsyncKind.BULK: "tma",
    kir.AsyncKind.CP_ASYNC: "cp_async",
    kir.AsyncKind.WGMMA: "wgmma",
}
"""Whose namespace has commit and await."""


def _mbarrier_line(stmt: kir.OnMBarrier) -> str:
    name = stmt.barrier.name
    match stmt:
        case kir.MBarrierInit(barrier):
            return f"mbarrier::init<{barrier.slots}>({name}, {barrier.arrivals});"
        case kir.MBarrierInvalidate(barrier):
            return f"mbarrier::invalidate<{barrier.slots}>({name});"
        case kir.MBarrierArrive(_, slot, scope, cta, count, space):
            verb = scope.value if cta is None else "remote"
            verb += "_shared" if space is kir.Space.SHARED else ""
            where = "" if cta is None else f", {spell(cta)}"
            where += "" if count == 1 else f", {count}"
            return f"mbarrier::arrive_{verb}({name} + {spell(slot)}{where});"
        case kir.MBarrierArriveExpectTx(_, slot, nbytes):
            return f"mbarrier::arrive_expect_tx({name} + {spell(slot)}, {spell(nbytes)});"
        case kir.MBarrierExpectTx(_, slot, nbytes):
            return f"mbarrier::expect_tx({name} + {spell(slot)}, {spell(nbytes)});"
        case kir.MBarrierWaitParity(_, slot, parity, scope, retry):
            verb = "wait" if retry else "try"
            at = f"{name} + {spell(slot)}, {spell(parity)}"
            return f"mbarrier::{verb}_parity_{scope.value}({at});"
        case kir.CpAsyncMBarrierArrive(_, slot, noinc):
            suffix = "_noinc" if noinc else ""
            return f"mbarrier::cp_async_arrive{suffix}({name} + {spell(slot)});"
