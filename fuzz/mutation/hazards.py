"""Rows of the hazard table that a change aims at: by its statement alone, and by its kernel.

A statement tells what it guards against in any kernel (`rows`).  Whether the reader of a slot is a
thread, who fills it, and how many warpgroups share it, only the kernel tells (`traits`, `aimed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fuser.kernel import ir as kir
from fuzz.mutation.site import Mutant, sites


def rows(*stmts: kir.Stmt) -> tuple[str, ...]:
    """Return the hazard rows that the syncs in some statements guard against."""
    found = (row for stmt in kir.walk(stmts) for row in _rows(stmt))
    return tuple(sorted(set(found)))


_ROWS: dict[type[kir.Stmt], tuple[str, ...]] = {
    kir.NamedArrive: ("H72",),
    kir.WarpSync: ("H05", "H33"),
    kir.MBarrierInit: ("H11",),
    kir.MBarrierInvalidate: ("H11",),
    kir.MBarrierArriveExpectTx: ("H08",),
    kir.MBarrierExpectTx: ("H08",),
    kir.CpAsyncMBarrierArrive: ("H52",),
    kir.FenceAsyncProxy: ("H30", "H34"),
    kir.TensorMapRelease: ("H36",),
    kir.TensorMapAcquire: ("H36",),
    kir.FenceMBarrierInit: ("H10",),
    kir.ThreadFence: ("H81",),
    kir.WgmmaFence: ("H20",),
    kir.ClusterArrive: ("H10", "H63", "H65"),
    kir.ClusterWait: ("H10", "H63", "H65"),
    kir.BlockSerializeWait: ("H80",),
    kir.BlockSerializeRelease: ("H80",),
    kir.LastArriving: ("H80",),
    kir.GridDependencyWait: ("H85",),
    kir.SetMaxNReg: ("H75",),
}
_GROUPS = {
    kir.AsyncKind.BULK: ("H40", "H41", "H42", "H45"),
    kir.AsyncKind.CP_ASYNC: ("H50", "H51"),
    kir.AsyncKind.WGMMA: ("H06", "H21", "H22"),
    kir.AsyncKind.QUEUE: ("H50", "H51"),
}


def _rows(stmt: kir.Stmt) -> tuple[str, ...]:
    match stmt:
        case kir.BlockSync(number):
            return ("H70", "H10", "H43", "H51", "H81") if number == 0 else ("H70", "H72", "H43")
        case kir.MBarrierArrive(_, _, scope):
            return ("H09", "H62") if scope is kir.Scope.CLUSTER else ("H09",)
        case kir.MBarrierWaitParity(_, _, _, scope):
            return ("H01", "H05", "H60") if scope is kir.Scope.CLUSTER else ("H01", "H05")
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
            return _GROUPS[kind]
        case _:
            return _ROWS.get(type(stmt), ())


@dataclass(frozen=True, slots=True)
class Traits:
    """What a kernel does that makes some of its syncs guard against more."""

    cluster: bool
    warpgroups: bool
    register_a: bool
    rescaled: bool
    own_refill: bool
    read_by_threads: bool
    written_by_threads: bool
    fed_by_cp_async: bool
    shared_region: bool


def traits(kernel: kir.Kernel) -> Traits:
    """Look through a kernel once."""
    products: list[kir.Wgmma] = []
    filled, copied, read, written, sent, in_loop = (set[str]() for _ in range(6))
    teams, fillers = (defaultdict[str, set[str | None]](set) for _ in range(2))
    freed = defaultdict[kir.MBarrier, set[str | None]](set)
    for site in sites(kernel):
        who = site.role.name if site.role else None
        match site.stmt:
            case kir.Wgmma(_, a) as product:
                products.append(product)
                for slot in (a, *product.columns):
                    if isinstance(slot, kir.Slot):
                        teams[slot.buffer.name].add(who)
            case kir.MBarrierArrive(barrier):
                freed[barrier].add(who)
            case kir.TmaLoad(dst) | kir.CpAsync(dst) | kir.QueueCopy(dst):
                (copied if isinstance(site.stmt, kir.CpAsync) else filled).add(dst.buffer.name)
                fillers[dst.buffer.name].add(who)
            case kir.TmaStore(_, src) | kir.TmaReduce(_, src):
                sent.add(src.buffer.name)
            case kir.Load(fragment, source):
                if isinstance(source, kir.Slot):
                    read.add(source.buffer.name)
                in_loop |= {fragment.name} if site.loops else set()
            case kir.Store(kir.Slot(buffer)):
                written.add(buffer.name)
            case kir.Compute(fragment) if site.loops:
                in_loop.add(fragment.name)
            case _:
                pass
    return Traits(
        cluster=kernel.cluster > 1,
        warpgroups=any(
            len(roles & consumers) > 1 and barrier.arrivals >= 4 * len(roles)
            for barrier, roles in freed.items()
            for consumers in teams.values()
        ),
        register_a=any(isinstance(w.a, kir.Fragment) and w.a.name in in_loop for w in products),
        rescaled=any(w.acc.name in in_loop for w in products),
        own_refill=any(roles & fillers.get(name, set()) for name, roles in teams.items()),
        read_by_threads=bool(filled & read),
        written_by_threads=bool(filled & written),
        fed_by_cp_async=bool(copied & (sent | set(teams))),
        shared_region=bool(sent and kernel.semaphores),
    )


def aimed(mutant: Mutant, has: Traits) -> tuple[str, ...]:
    """Return all rows that a mutant aims at, given what its original has."""
    if mutant.victim is None:
        return mutant.hazards
    more = {row for stmt in kir.walk((mutant.victim,)) for row in _more(stmt, mutant, has)}
    return tuple(sorted({*mutant.hazards, *more}))


def _more(stmt: kir.Stmt, mutant: Mutant, has: Traits) -> Iterator[str]:
    match stmt:
        case kir.WarpSync():
            yield "H04"
        case kir.AsyncAwait(kind) | kir.AsyncCommit(kind):
            yield from _groups(kind, mutant, has)
        case kir.CpAsync() | kir.QueueCopy():
            if mutant.operator in ("predicate", "trip"):
                yield "H55"
        case kir.WgmmaFence():
            if has.rescaled:
                yield "H24"
            if has.register_a:
                yield "H23"
        case kir.MBarrierArrive() | kir.MBarrierWaitParity():
            if has.read_by_threads:
                yield "H31"
            if has.warpgroups and isinstance(stmt, kir.MBarrierArrive):
                yield "H07"
        case kir.MBarrierArriveExpectTx() | kir.MBarrierExpectTx():
            if has.cluster:
                yield "H61"
        case kir.FenceAsyncProxy() | kir.BlockSync():
            if has.written_by_threads:
                yield "H32"
            if has.fed_by_cp_async:
                yield from ("H25", "H54") if isinstance(stmt, kir.FenceAsyncProxy) else ("H54",)
        case kir.BlockSerializeWait() | kir.BlockSerializeRelease():
            if has.shared_region:
                yield "H46"
        case kir.TmaStore() | kir.TmaReduce() | kir.AtomicAdd():
            yield "H82"
        case _:
            pass


def _groups(kind: kir.AsyncKind, mutant: Mutant, has: Traits) -> Iterator[str]:
    match kind:
        case kir.AsyncKind.WGMMA:
            if has.warpgroups:
                yield "H07"
            if has.register_a:
                yield "H23"
            if has.rescaled:
                yield "H24"
            if has.own_refill:
                yield "H26"
        case kir.AsyncKind.CP_ASYNC:
            if mutant.operator in ("move", "predicate", "trip"):
                yield "H55"
            if has.fed_by_cp_async:
                yield "H54"
        case kir.AsyncKind.QUEUE:
            if mutant.operator in ("move", "predicate", "trip"):
                yield "H55"
        case kir.AsyncKind.BULK:
            if has.shared_region:
                yield "H46"
