"""Synchronising statements: declared barriers, legal numbers, and the threads they need.

Only what no execution could excuse: whether the syncs are enough is for the judges.

Source: PTX ISA, sections "bar / barrier", "mbarrier", "barrier.cluster", "setmaxnreg", "wgmma".
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import Place

NAMED = 16
"""Named barriers of a CTA."""
BYTES = 1 << 20
"""Bytes that a phase waits for are below it.  Source: PTX ISA, "mbarrier, tx-count"."""


IN_ELECT = " stands inside an elect; whole warps must reach it: move it out of the elect"


def sync(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a synchronising statement, or with its place."""
    yield from _declared(stmt, place.kernel)
    yield from _collective(stmt, place)
    match stmt:
        case kir.BlockSync(number, threads) | kir.NamedArrive(number, threads):
            most = place.kernel.threads
            if not 0 <= number < NAMED or threads % kir.WARP or not 0 < threads <= most:
                yield (
                    f" joins {threads} threads at barrier {number}; need barrier 0..{NAMED - 1} "
                    f"and a multiple of {kir.WARP} threads, at most the CTA's {most}"
                )
        case (
            kir.BlockSerializeWait(barrier=number)
            | kir.GridSync(barrier=number)
            | kir.LastArriving(barrier=number)
        ):
            if not 0 <= number < NAMED:
                yield f" joins at barrier {number}; a CTA has 0..{NAMED - 1}"
        case kir.MBarrierArrive(barrier, _, scope, cta, count, space):
            yield from _remote(place, scope, cta)
            narrow = space is kir.Space.SHARED and scope is kir.Scope.CLUSTER and cta is not None
            if space is not kir.Space.ALL and not narrow:
                yield (
                    f" releases {space.value} memory only; an arrival does so for shared memory, "
                    "at another CTA of its cluster: drop the space"
                )
            if not 1 <= count <= barrier.arrivals:
                yield (
                    f" counts {count} arrivals; {barrier.name} takes {barrier.arrivals} a phase: "
                    f"count 1..{barrier.arrivals}"
                )
        case kir.MBarrierArriveExpectTx(_, _, nbytes) | kir.MBarrierExpectTx(_, _, nbytes):
            if isinstance(nbytes, int) and not 0 <= nbytes < BYTES:
                yield f" expects {nbytes} bytes; a phase takes 0..{BYTES - 1}"
        case kir.MBarrierWaitParity(_, _, parity, scope):
            if isinstance(parity, int) and parity not in (0, 1):
                yield f" waits for parity {parity}; it is 0 or 1: take phase % 2"
            yield from _mbarrier_scope(scope)
        case kir.AsyncCommit(kir.AsyncKind.QUEUE):
            yield ": each entry of a queue is a group by itself; drop the commit"
        case kir.AsyncAwait(kind, keep, read_only):
            if keep < 0:
                yield f" keeps {keep} groups; 0 waits for all"
            if read_only and kind is not kir.AsyncKind.BULK:
                yield (
                    ": only bulk groups can be awaited until they have read; drop read_only for "
                    f"{kind.value}"
                )
        case kir.ClusterArrive() | kir.ClusterWait() if place.kernel.cluster == 1:
            yield (" stands in a kernel without clusters; set Kernel.cluster, or use BlockSync")
        case kir.SetMaxNReg(registers):
            if registers % 8 or not 24 <= registers <= 256:
                yield f" sets {registers} registers; use a multiple of 8 in 24..256"
            if not place.kernel.registers:
                yield (
                    ": the kernel does not say how many registers it starts with; set "
                    "Kernel.registers"
                )
        case _:
            pass


def _collective(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    match stmt:
        case (
            kir.BlockSync()
            | kir.NamedArrive()
            | kir.WarpSync()
            | kir.ClusterArrive()
            | kir.ClusterWait()
            | kir.WgmmaFence()
            | kir.SetMaxNReg()
            | kir.AsyncCommit(kir.AsyncKind.WGMMA)
            | kir.AsyncAwait(kir.AsyncKind.WGMMA)
        ) if place.elected:
            yield IN_ELECT
        case kir.WgmmaFence() | kir.SetMaxNReg() if not place.whole_warpgroups:
            yield warpgroups(place)
        case kir.MBarrierInit() | kir.MBarrierInvalidate() | kir.BlockSerializeRelease():
            yield from alone(place)
        case kir.BlockSerializeWait() | kir.GridSync() | kir.LastArriving() if place.elected:
            whose = f"role {place.role}" if place.role else "the CTA"
            yield (
                f" stands inside an elect; all {place.warps * kir.WARP} threads of {whose} must "
                "reach it: move it out"
            )
        case _:
            pass


def warpgroups(place: Place) -> str:
    """Say that a statement needs whole warpgroups."""
    last = place.first_warp + place.warps - 1
    return (
        f" is executed by warps {place.first_warp}..{last}, which are no whole warpgroups; give "
        "the role a multiple of 4 warps, beginning at a multiple of 4"
    )


def alone(place: Place) -> Iterable[str]:
    """Say that a statement is executed by more than one thread."""
    if len(place.threads) > 1:
        yield (
            f" is executed by {place.who}; it must be issued by one thread: put it inside "
            "Elect(Per.ROLE)"
        )


def _remote(place: Place, scope: kir.Scope, cta: Expr | None) -> Iterable[str]:
    yield from _mbarrier_scope(scope)
    if cta is None:
        return
    cluster = place.kernel.cluster
    yield from neighbour(cta, cluster)
    if cluster > 1 and scope is not kir.Scope.CLUSTER:
        yield (
            f" arrives at another CTA at scope {scope.value}, which does not reach it; use "
            "Scope.CLUSTER"
        )


def _mbarrier_scope(scope: kir.Scope) -> Iterable[str]:
    if scope is kir.Scope.GPU:
        yield ": mbarriers know the scopes cta and cluster; use one of these"


def neighbour(cta: Expr, cluster: int) -> Iterable[str]:
    """Say where a statement reaches for a CTA that its cluster does not have."""
    if cluster == 1:
        yield (
            f" names CTA {cta} of a cluster, but the kernel has no clusters; set Kernel.cluster, "
            "or drop cta"
        )
    elif isinstance(cta, int) and not 0 <= cta < cluster:
        yield f" names CTA {cta} of a cluster of {cluster}; use 0..{cluster - 1}"


def _declared(stmt: kir.Stmt, kernel: kir.Kernel) -> Iterable[str]:
    if isinstance(stmt, kir.OnMBarrier):
        yield from mbarrier(stmt.barrier, getattr(stmt, "slot", 0), kernel)
    match stmt:
        case (
            kir.BlockSerializeWait(semaphore, index, turn)
            | kir.BlockSerializeRelease(semaphore, index, turn)
            | kir.GridSync(semaphore, index, turn)
            | kir.LastArriving(semaphore, index, turn)
        ):
            if semaphore not in kernel.semaphores:
                yield undeclared("semaphore", semaphore.name, "semaphores")
            count = semaphore.count
            if isinstance(index, int) and isinstance(count, int) and not 0 <= index < count:
                yield f": {semaphore.name} has {count} integers; use 0..{count - 1}"
            least = 1 if isinstance(stmt, kir.GridSync | kir.LastArriving) else 0
            if isinstance(turn, int) and turn < least:
                says = f"turn {turn} is negative; turns count from 0"
                yield f": {f'{turn} CTAs sync; 1 or more do' if least else says}"
        case kir.TensorMapAcquire(maps, index):
            yield from map_slot(maps, index, kernel)
        case _:
            pass


def map_slot(maps: kir.TensorMaps, index: Expr, kernel: kir.Kernel) -> Iterable[str]:
    """Say where a statement uses a tensor map that is not declared, or a slot it has not."""
    if maps not in kernel.maps:
        yield (
            f" uses tensor maps that the kernel does not declare; add {maps.name} to Kernel.maps, "
            "with the same fields"
        )
    if isinstance(index, int) and not 0 <= index < maps.slots:
        yield (
            f" uses map {index}; {maps.name} has 0..{maps.slots - 1}: take the position % "
            f"{maps.slots}"
        )


def mbarrier(barrier: kir.MBarrier, slot: Expr, kernel: kir.Kernel) -> Iterable[str]:
    """Say where a statement uses an mbarrier that is not declared, or a slot it has not."""
    if barrier not in kernel.barriers:
        yield undeclared("barrier", barrier.name, "barriers, with the same fields")
    yield from no_slot(slot, barrier)


def no_slot(slot: Expr, ring: kir.MBarrier | kir.Buffer) -> Iterable[str]:
    """Say where a statement names a slot that a ring does not have."""
    if isinstance(slot, int) and not 0 <= slot < ring.slots:
        yield (
            f" uses slot {slot}; {ring.name} has slots 0..{ring.slots - 1}: take the "
            f"position % {ring.slots}"
        )


def undeclared(what: str, name: str, where: str) -> str:
    """Say that a statement uses what its kernel does not declare."""
    return f" uses a {what} that the kernel does not declare; add {name} to Kernel.{where}"
