"""The synchronising statements of the Kernel IR: what each one blocks on, orders and needs.

The docstrings are the specification that prover and simulator implement separately.
No node says what it protects or why it is there: judges must find that out alone.

Source: PTX ISA 9.0, sections "mbarrier", "cp.async.bulk", "Async proxy", "fence.proxy",
"bar / barrier", "Memory consistency model".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fuser.expr import Expr
from fuser.kernel.memory import TensorMaps


class AsyncKind(Enum):
    """The families of asynchronous copies and products that are awaited by counting, by its own."""

    BULK = "bulk"
    """TMA stores and reductions; groups belong to the issuing *thread*."""
    CP_ASYNC = "cp_async"
    """Ampere's cp.async; groups belong to the issuing *thread*."""
    WGMMA = "wgmma"
    """Tensor-core groups; issued by a warpgroup, awaited by each *warp*."""
    QUEUE = "queue"
    """Copies in order; a queue belongs to the issuing *thread*, each entry is a group by itself."""


class Space(Enum):
    """The memory that a proxy fence, or a release, is for."""

    SHARED = "shared"
    GLOBAL = "global"
    ALL = "all"


class Scope(Enum):
    """Who a release, an acquire or a fence reaches."""

    __hash__ = object.__hash__
    """Of the member, as `==` is: much faster than of its name."""

    CTA = "cta"
    CLUSTER = "cluster"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class MBarrier:
    """A ring of `slots` hardware barriers in shared memory, each expecting `arrivals` a phase.

    A phase of one slot completes when its pending arrivals *and* its pending bytes are both zero;
    then the next phase begins with `arrivals` pending.  Phases count from 0; phase n has parity
    `n % 2`.  It lies behind all buffers, or at byte `offset` of the CTA's dynamic shared memory (a
    multiple of 8, before the end of the last buffer), where it may share bytes with buffers and
    mbarriers that live at other times: its life begins when they are out of use, `MBarrierInit`
    being ordered after that, and ends with `MBarrierInvalidate`.
    """

    name: str
    arrivals: int
    slots: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Semaphore:
    """`count` 32-bit integers in global memory, by which CTAs take turns.

    All are 0 at the start of a launch, and to be 0 at its end for the next one.
    """

    name: str
    count: Expr


@dataclass(frozen=True, slots=True)
class BlockSync:
    """Wait until `threads` threads have arrived at barrier `barrier` (0..15).

    Blocks: every executing thread, until `threads` threads arrived (whole warps, both roles and
            all threads of them; 0 is the barrier of the whole CTA).
    Orders: everything before it in those threads before everything after it in them, in the
            generic proxy.
    Needs:  to be reached by exactly `threads` threads each time; not inside `Elect`.
    """

    barrier: int
    threads: int


@dataclass(frozen=True, slots=True)
class NamedArrive:
    """Arrive at named barrier `barrier` without waiting (`bar.arrive`).

    Blocks: never.
    Orders: what its threads did before it before what follows the `BlockSync` that it completes.
    Needs:  a `BlockSync` of the same number and thread count elsewhere.
    """

    barrier: int
    threads: int


@dataclass(frozen=True, slots=True)
class WarpSync:
    """Join the lanes of each executing warp (`__syncwarp`).

    Blocks: a lane, until all lanes of its warp are here.
    Orders: what those lanes did before it before what they do after it, in the generic proxy.
    Needs:  whole warps; not inside `Elect`.
    """


@dataclass(frozen=True, slots=True)
class MBarrierInit:
    """Begin the life of every slot of `barrier`, in phase 0.

    Blocks: never.
    Orders: nothing; other threads may use the barrier only after a `BlockSync` (lanes of its warp,
            after a `WarpSync`).
    Needs:  one executing thread, ordered after all use of these bytes: of buffers, and the
            `MBarrierInvalidate` of an earlier life, of this barrier or of another one.
    """

    barrier: MBarrier


@dataclass(frozen=True, slots=True)
class MBarrierInvalidate:
    """End the life of every slot of `barrier`; its bytes may be used for something else after.

    Needs:  one executing thread; nobody may still use the barrier.
    """

    barrier: MBarrier


@dataclass(frozen=True, slots=True)
class MBarrierArrive:
    """Count `count` arrivals per executing thread on the running phase of `barrier[slot]`.

    With `cta`, on the barrier of that CTA of the cluster, by its rank; `scope` is then CLUSTER.
    Blocks: never.
    Orders: what *its own thread* did before, and what that thread has observed through a barrier,
            before what follows a wait for that phase (release at `scope`): of others for whom it
            counts, only that.  With `space` SHARED only accesses of the shared memory of its own
            CTA: not of global memory, nor of another CTA's.
    Needs:  the phase to have as many arrivals left, all of one phase.

    A release of all memory at the scope of a cluster waits until what its thread has asked of
    global memory is over (MEMBAR.GPU).  Measured on an H100, a ring of 48 KB slots that two CTAs
    fill for both: 1,300 ns a slot, 553 with `space` SHARED.

    Source: PTX ISA, "mbarrier.arrive", operand count; "fence", sync_restrict.
    """

    barrier: MBarrier
    slot: Expr
    scope: Scope = Scope.CTA
    cta: Expr | None = None
    count: int = 1
    space: Space = Space.ALL


@dataclass(frozen=True, slots=True)
class MBarrierArriveExpectTx:
    """Add `nbytes` to what the running phase of `barrier[slot]` waits for, then arrive once.

    Blocks: never.
    Orders: as `MBarrierArrive`.
    Needs:  `nbytes` equal to the bytes of the copies that complete on this phase (full boxes; of
            bulk ones without a map, clipped).
    """

    barrier: MBarrier
    slot: Expr
    nbytes: Expr


@dataclass(frozen=True, slots=True)
class MBarrierExpectTx:
    """Add `nbytes` to what the running phase of `barrier[slot]` waits for; no arrival.

    Blocks: never.
    Orders: nothing.
    Needs:  an arrival of the same phase to be still missing, else the phase may end before it.
    """

    barrier: MBarrier
    slot: Expr
    nbytes: Expr


@dataclass(frozen=True, slots=True)
class MBarrierWaitParity:
    """Block until the phase of `barrier[slot]` with this `parity` completes.

    Blocks: each executing thread.  It passes at once if the *running* phase has the other parity:
            on a fresh barrier a wait for parity 1 passes, a wait for parity 0 blocks.
    Orders: what preceded the arrivals of that phase, and the bytes that completed on it, before
            what follows here (acquire at `scope`).  No proxy fence is owed after it.  At cta scope
            it ends all the same, which a CTA may rely on that exits, and acquires nothing that
            another CTA released: the two synchronise where the scope of each includes the other.
    Needs:  `MBarrierInit`, visible to this thread.  The test of the parity sees the last phase that
            is over: the phase before the one that is waited for is over for sure when the wait
            begins, whoever observed it, and the one after it is not over before the wait returns.

    Without `retry` it is a single `try_wait`, which may give up: then it orders nothing.

    Source: PTX ISA, "mbarrier.test_wait", .scope, and "Morally strong operations".
    """

    barrier: MBarrier
    slot: Expr
    parity: Expr
    scope: Scope = Scope.CTA
    retry: bool = True


@dataclass(frozen=True, slots=True)
class AsyncCommit:
    """Close the open group of `kind` of each executing thread (WGMMA: warp).

    Blocks: never.
    Orders: nothing.  An empty group counts as a group.
    Needs:  a kind that is committed: QUEUE is not.
    """

    kind: AsyncKind


@dataclass(frozen=True, slots=True)
class AsyncAwait:
    """Wait for all but the latest `keep` committed groups of `kind` of *this* thread (or warp).

    Of QUEUE: until at most `keep` entries of this thread's queue have not finished.

    Blocks: until they have finished; with `read_only` (BULK) until they have read their
            shared-memory sources, which says nothing of their writes.
    Orders: the finished groups (or their reads) before what follows in *this* thread, nobody else;
            no proxy fence is owed after it for what BULK and QUEUE have written or read.
    Needs:  the copies to have been issued and committed by the same thread.
    """

    kind: AsyncKind
    keep: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CpAsyncMBarrierArrive:
    """Arrive on `barrier[slot]` when this thread's earlier cp.async have finished.

    Blocks: never.
    Orders: those copies (generic proxy) before what follows a wait for the phase; never ordinary
            stores.  Without `noinc` the pending count of the phase is raised by one first, so that
            the arrival is one more than the barrier's count.
    """

    barrier: MBarrier
    slot: Expr
    noinc: bool


@dataclass(frozen=True, slots=True)
class FenceAsyncProxy:
    """Order generic accesses before later async-proxy accesses, in `space`.

    Blocks: never.
    Orders: each executing thread's earlier generic accesses (and those it has observed through a
            barrier) before async-proxy accesses that are ordered after this fence.
    """

    space: Space


@dataclass(frozen=True, slots=True)
class TensorMapRelease:
    """Order earlier writes of tensor maps before a later acquire (tensormap proxy, gpu scope).

    Blocks: never.
    Orders: each `TensorMapReplace` of its thread, and those it has observed through a barrier,
            before what follows a `TensorMapAcquire` that is ordered behind this fence.

    Source: PTX ISA, "fence.proxy.tensormap::generic.release".
    """


@dataclass(frozen=True, slots=True)
class TensorMapAcquire:
    """Let copies see what `maps[index]` says by now, not what an engine has kept of it.

    Blocks: never.
    Orders: released writes of this one map that precede it before copies through the map that are
            ordered behind it, by its thread or by others of the CTA that it is ordered before.

    Source: PTX ISA, "fence.proxy.tensormap::generic.acquire" (128 bytes at one address), "Memory
    consistency model, Proxy-preserved base causality order"; CUDA programming guide, "Using TMA
    with a tensor map in global memory" (one such fence for each block).
    """

    maps: TensorMaps
    index: Expr


@dataclass(frozen=True, slots=True)
class FenceMBarrierInit:
    """Make `MBarrierInit` visible to the cluster (`fence.mbarrier_init.release.cluster`).

    Blocks: never.
    Orders: earlier `MBarrierInit` of its thread before what other CTAs of the cluster do behind the
            barrier of the cluster.  In one CTA nothing depends on it; where a `TmaLoad` completes
            on the barrier, judges warn of its absence under the strict policy.
    Needs:  a `BlockSync` (one CTA) or `ClusterArrive` and `ClusterWait` after it all the same.
    """


@dataclass(frozen=True, slots=True)
class ThreadFence:
    """Cumulative fence at `scope` (`fence.acq_rel`).

    Blocks: never.
    Orders: its thread's earlier generic accesses, and those it has observed, before a later relaxed
            write or arrival of its thread, for whoever observes that at the same scope.
    """

    scope: Scope


@dataclass(frozen=True, slots=True)
class WgmmaFence:
    """Order earlier register accesses of accumulators and A fragments before the next wgmma.

    Blocks: never.
    Orders: registers of the executing warps only; it says nothing about shared memory.
    Needs:  whole warpgroups.
    """


@dataclass(frozen=True, slots=True)
class ClusterArrive:
    """Arrive at the cluster's barrier; release at cluster scope unless `relaxed`.

    Blocks: never.
    Orders: what its thread did before it before what follows the `ClusterWait`, unless `relaxed`;
            then only what an earlier `FenceMBarrierInit` or `ThreadFence` of cluster scope covers.
    Needs:  every thread of the cluster, once a turn, each then at a `ClusterWait`.
    """

    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class ClusterWait:
    """Block until all threads of the cluster have arrived; acquire at cluster scope.

    Blocks: each executing thread.
    Orders: what the arrivals released before what follows here.
    Needs:  a `ClusterArrive` of its thread before it, one for each.
    """


@dataclass(frozen=True, slots=True)
class BlockSerializeWait:
    """Block until `semaphore[index] == turn`, then join the executing threads by a `BlockSync`.

    Blocks: all threads of the role, until the value is seen (acquire at `scope`) and all are here.
    Orders: what the release of that value released before what follows in this CTA, in the generic
            proxy.  TMA accesses of what other CTAs wrote also need `FenceAsyncProxy(GLOBAL)` after
            it.
    Needs:  all threads of the role, or of the CTA outside roles, whose own `barrier` is; a CTA that
            releases this turn and is sure to run.
    """

    semaphore: Semaphore
    index: Expr
    turn: Expr
    scope: Scope = Scope.GPU
    barrier: int = 0


@dataclass(frozen=True, slots=True)
class BlockSerializeRelease:
    """One thread sets `semaphore[index] = turn`, a release at `scope`.

    Blocks: never.
    Orders: that thread's writes and those it has observed through a barrier, at `scope`, before
            what follows a wait for this value; not asynchronous writes still in flight.  Where it
            is `relaxed` it orders only what a `ThreadFence` before it does: not an earlier release
            of another integer, which may be seen after it.
    Needs:  one executing thread, whose turn it is: behind the last release, and, unless it gives
            the same turn once more, behind the waits for the turn that it ends.
    """

    semaphore: Semaphore
    index: Expr
    turn: Expr
    scope: Scope = Scope.GPU
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class GridSync:
    """Join the threads of all `ctas` CTAs that use `semaphore[index]`, and leave that at 0.

    Blocks: all threads of the role, until those of all the other CTAs are here, too.
    Orders: what any of these threads did, and has observed, before what any of them does behind it,
            at gpu scope in the generic proxy; not asynchronous writes still in flight.  TMA
            accesses of what other CTAs wrote also need `FenceAsyncProxy(GLOBAL)` after it.
    Needs:  all threads of each of these CTAs, or of one role, the same in each of them and at every
            meeting, that join by a `BlockSync` of its own number `barrier` first; that all of them
            run at once: CTAs of one number after the other, `ctas` of which `Kernel.together`
            grants, or "co-resident".
    """

    semaphore: Semaphore
    index: Expr
    ctas: Expr
    barrier: int = 0


@dataclass(frozen=True, slots=True)
class GridDependencyWait:
    """Wait for the launches before this one on the stream (`griddepcontrol.wait`).

    Blocks: each executing thread, until they have ended; not at all unless `Kernel.dependent`.
    Orders: all that they did, in every proxy, before what follows here in *this* thread, and
            before whatever else cannot happen until it has returned: behind a barrier that this
            thread arrives at, a wait for a phase that it, or a copy it issues, completes.
    Needs:  in a dependent kernel, to precede so all that `Kernel.dependent` says, and one thread of
            each launch that executes it: else the launch may end before those before it have, and
            those that wait for it wait for too little.

    Source: PTX ISA, "griddepcontrol".
    """


@dataclass(frozen=True, slots=True)
class GridDependencyLaunch:
    """Let dependent launches behind this one start (`griddepcontrol.launch_dependents`).

    Blocks: never.
    Orders: nothing.  They start once a thread of every CTA has executed it, or the CTA has ended,
            and learn what this launch does by `GridDependencyWait` only, at its end.
    """


@dataclass(frozen=True, slots=True)
class SetMaxNReg:
    """Set the registers per thread of the executing warpgroup.

    Blocks: `increase` until the registers are free, that is, until other warpgroups of the CTA
            have given back as many as it takes.
    Needs:  24 <= registers <= 256, a multiple of 8, all warps of the warpgroup; `increase` from
            fewer and decrease from more; `Kernel.registers`.
    """

    registers: int
    increase: bool


OnPhase = (
    MBarrierArrive
    | MBarrierArriveExpectTx
    | MBarrierExpectTx
    | MBarrierWaitParity
    | CpAsyncMBarrierArrive
)
"""What threads do to the running phase of one slot of an mbarrier."""
OnMBarrier = MBarrierInit | MBarrierInvalidate | OnPhase
"""What they do to an mbarrier."""
Sync = (
    BlockSync
    | NamedArrive
    | WarpSync
    | OnMBarrier
    | AsyncCommit
    | AsyncAwait
    | FenceAsyncProxy
    | TensorMapRelease
    | TensorMapAcquire
    | FenceMBarrierInit
    | ThreadFence
    | WgmmaFence
    | ClusterArrive
    | ClusterWait
    | BlockSerializeWait
    | BlockSerializeRelease
    | GridSync
    | GridDependencyWait
    | GridDependencyLaunch
    | SetMaxNReg
)
