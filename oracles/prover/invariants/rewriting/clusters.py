"""The CTAs of a cluster, written as one CTA with the threads and the shared memory of all.

What a thread of rank r does to its own shared memory it does here to the part of rank r; a remote
arrival is an arrival on that part's mbarrier, a multicast is one copy for each of its CTAs, and the
cluster's barrier is a `BlockSync` of all threads.

Notes
-----
A CTA has no more orders than a cluster if scopes are wide enough, which is asked first: what
arrives on another CTA's mbarrier releases at cluster scope, and whoever waits on an mbarrier that
another CTA arrives on acquires at cluster scope.  Release and acquire add up along a chain, so that
the steps of it within one CTA may be of CTA scope.  Initialisation owes `FenceMBarrierInit`, and
nobody may leave before the others are done with its shared memory: the last statement is a wait
for the cluster.

Source: PTX ISA, "Memory consistency model" (causality order), "mbarrier.arrive",
"cp.async.bulk.tensor", "barrier.cluster".
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from fuser.expr import Expr, Kind, Op, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, replace_tree
from oracles.prover.invariants.rewriting.statements import Lines, Whole, with_slots
from oracles.prover.sites import slots

CLUSTER = Var("number of the cluster")
NUMBERS = 16
"""Named barriers of a CTA."""
TOGETHER = NUMBERS * 32
"""Number of the first barrier that stands for one of the cluster."""


def whole(kernel: kir.Kernel) -> Whole:
    """Return a kernel with its cluster as one CTA; a kernel without clusters as it is.

    Raises
    ------
    UnsupportedError
        If a scope is too narrow, or the cluster meets in another way than described here.
    """
    lines = Lines(kernel)
    if kernel.cluster == 1:
        return Whole(kernel, lines)
    _scopes(kernel)
    _lives(kernel)
    return Whole(_Merged(kernel, lines).kernel(), lines)


def _scopes(kernel: kir.Kernel) -> None:
    """Check that handshakes between CTAs are of cluster scope."""
    remote = set()
    for stmt in kernel.walk():
        if isinstance(stmt, kir.MBarrierArrive) and stmt.cta is not None:
            remote.add(stmt.barrier)
            if stmt.scope is not kir.Scope.CLUSTER:
                raise UnsupportedError(f"an arrival on {stmt.barrier.name} of another CTA")
    for stmt in kernel.walk():
        match stmt:
            case kir.MBarrierWaitParity(barrier, _, _, scope) if barrier in remote:
                if scope is not kir.Scope.CLUSTER:
                    raise UnsupportedError(f"a wait on {barrier.name} for another CTA")
            case kir.ClusterArrive(relaxed=True):
                raise UnsupportedError("a relaxed cluster_arrive")
            case _:
                pass


def _lives(kernel: kir.Kernel) -> None:
    """Check that barriers are made visible to the cluster, and that all leave together."""
    for stmt in kernel.walk():
        for body in kir.bodies(stmt):
            kinds = [type(s) for s in body]
            made = [i for i, kind in enumerate(kinds) if kind is kir.MBarrierInit]
            if made and kir.FenceMBarrierInit not in kinds[made[-1] :]:
                raise UnsupportedError("mbarrier_init without fence_mbarrier_init")
    if any(isinstance(s, kir.MBarrierInit) for s in kernel.body):
        raise UnsupportedError("mbarrier_init by all threads")
    meets = [isinstance(s, kir.ClusterArrive | kir.ClusterWait) for s in kernel.walk()]
    if sum(meets) != 2 * sum(_meet(a, b) for a, b in pairwise(kernel.body)):
        raise UnsupportedError("a cluster_arrive without its cluster_wait next to it")
    if not kernel.body or not isinstance(kernel.body[-1], kir.ClusterWait):
        raise UnsupportedError("the kernel does not end with a cluster_wait")


def _meet(a: kir.Stmt, b: kir.Stmt) -> bool:
    return isinstance(a, kir.ClusterArrive) and isinstance(b, kir.ClusterWait)


class _Merged:
    """The one CTA."""

    def __init__(self, kernel: kir.Kernel, lines: Lines) -> None:
        self.source = kernel
        self.lines = lines
        self.ranks = range(kernel.cluster)
        # Whole warpgroups stay whole; warps that this adds do nothing.
        self.warps = -(-kernel.threads // kir.WARPGROUP) * 4
        self.pitch = -(-kernel.smem_bytes // 1024) * 1024

    def kernel(self) -> kir.Kernel:
        """Return the one CTA."""
        source = self.source
        roles = [stmt for stmt in source.body if isinstance(stmt, kir.Role)]
        first = next((r.warps for r in roles if r.first_warp == 0), source.threads // kir.WARP)
        threads = len(self.ranks) * self.warps * kir.WARP
        body: list[kir.Stmt] = []
        for at, stmt in enumerate(source.body):
            match stmt:
                case kir.Let():
                    # Each rank has its own value, which only its own statements may see.
                    continue
                case kir.ClusterArrive():
                    pass
                case kir.ClusterWait():
                    body.append(self.lines.kept(stmt, kir.BlockSync(TOGETHER + at, threads)))
                case kir.Role(name, low, warps):
                    body += [self._role(r, name, low, warps, stmt.body, at) for r in self.ranks]
                case kir.Elect() if roles:
                    body += [self._role(r, "first", 0, first, (stmt,), at) for r in self.ranks]
                case _ if not roles:
                    body += [self._role(r, "all", 0, first, (stmt,), at) for r in self.ranks]
                case _:
                    raise UnsupportedError(f"{type(stmt).__name__} beside the roles of a cluster")
        return replace(
            source,
            buffers=tuple(self._buffer(b, r) for r in self.ranks for b in source.buffers),
            barriers=tuple(self._barrier(b, r) for r in self.ranks for b in source.barriers),
            threads=threads,
            body=tuple(body),
            cluster=1,
        )

    def _role(
        self, rank: int, name: str, low: int, warps: int, inner: tuple[kir.Stmt, ...], at: int
    ) -> kir.Role:
        lets = (s for s in self.source.body[:at] if isinstance(s, kir.Let))
        body = self._body((*lets, *inner), rank)
        return kir.Role(f"{name} of CTA {rank}", rank * self.warps + low, warps, body)

    def _body(self, body: tuple[kir.Stmt, ...], rank: int) -> tuple[kir.Stmt, ...]:
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.IfThenElse(condition, then, orelse):
                    test = self._expr(condition, rank)
                    if isinstance(test, int):
                        out += self._body(then if test else orelse, rank)
                        continue
                    inner = self._body(then, rank), self._body(orelse, rank)
                    out.append(self.lines.kept(stmt, kir.IfThenElse(test, *inner)))
                case kir.TmaLoad(dst, src, barrier, slot, mask) if mask is not None:
                    found = self._expr(mask, rank)
                    if not isinstance(found, int) or dst.cta is not None:
                        raise UnsupportedError("a multicast to CTAs that are not known")
                    at = self._expr(slot, rank)
                    for there in (r for r in self.ranks if found >> r & 1):
                        here = kir.Slot(
                            self._buffer(dst.buffer, there), self._expr(dst.index, rank)
                        )
                        copy = kir.TmaLoad(here, src, self._barrier(barrier, there), at)
                        out.append(self.lines.kept(stmt, copy))
                case _:
                    out.append(self.lines.kept(stmt, self._one(stmt, rank)))
        return tuple(out)

    def _one(self, stmt: kir.Stmt, rank: int) -> kir.Stmt:
        """Return a statement as a thread of a rank executes it."""

        def at(expr: Expr) -> Expr:
            return self._expr(expr, rank)

        def own_slot(slot: kir.Slot) -> kir.Slot:
            return self._slot(slot, rank)

        match stmt:
            case kir.Let() | kir.Assign():
                return replace(stmt, value=at(stmt.value))
            case kir.ForLoop(_, stop, body):
                return replace(stmt, stop=at(stop), body=self._body(body, rank))
            case kir.Elect(_, body):
                return replace(stmt, body=self._body(body, rank))
            case kir.BlockSync(number) | kir.NamedArrive(number):
                return replace(stmt, barrier=number + NUMBERS * (rank + 1))
            case kir.MBarrierInit(barrier):
                return replace(stmt, barrier=self._barrier(barrier, rank))
            case kir.MBarrierArrive(barrier, slot, _, cta):
                there = rank if cta is None else self._rank(cta, rank)
                return kir.MBarrierArrive(self._barrier(barrier, there), at(slot))
            case kir.MBarrierWaitParity(barrier, slot, parity, _, retry):
                own = self._barrier(barrier, rank)
                return kir.MBarrierWaitParity(own, at(slot), at(parity), kir.Scope.CTA, retry)
            case (
                kir.MBarrierArriveExpectTx() | kir.MBarrierExpectTx() | kir.CpAsyncMBarrierArrive()
            ):
                own = self._barrier(stmt.barrier, rank)
                return replace(stmt, barrier=own, slot=at(stmt.slot))
            case kir.TmaLoad(dst, _, barrier, slot):
                if dst.cta is not None:
                    raise UnsupportedError("a copy into another CTA")
                own = self._barrier(barrier, rank)
                return replace(stmt, dst=self._slot(dst, rank), barrier=own, slot=at(slot))
            case kir.TmaStore() | kir.TmaReduce() | kir.CpAsync() | kir.Wgmma():
                if any(slot.cta is not None for slot in slots(stmt)):
                    raise UnsupportedError(f"{type(stmt).__name__} on another CTA's memory")
                return with_slots(stmt, own_slot)
            case kir.Load() | kir.Store():
                return with_slots(stmt, own_slot)
            case (
                kir.Compute()
                | kir.Slice()
                | kir.Reduce()
                | kir.Coordinate()
                | kir.Mma()
                | kir.WarpSync()
                | kir.AsyncCommit()
                | kir.AsyncAwait()
                | kir.FenceAsyncProxy()
                | kir.FenceMBarrierInit()
                | kir.WgmmaFence()
                | kir.ThreadFence()
            ):
                return stmt
            case _:
                raise UnsupportedError(f"{type(stmt).__name__} in a cluster")

    def _expr(self, expr: Expr, rank: int) -> Expr:
        """Return an expression as a rank knows it; its block number is known to no other rank."""
        count = len(self.ranks)
        plain = replace_tree(expr, Op(Kind.FLOORDIV, kir.BLOCK, count), CLUSTER)
        known: dict[Var, Expr] = {kir.RANK: rank, kir.BLOCK: Var(f"block of rank {rank}")}
        return substitute(plain, known)

    def _rank(self, cta: Expr, rank: int) -> int:
        there = self._expr(cta, rank)
        if not isinstance(there, int) or there not in self.ranks:
            raise UnsupportedError(f"CTA {cta} of the cluster, which is not known")
        return there

    def _buffer(self, buffer: kir.Buffer, rank: int) -> kir.Buffer:
        offset = buffer.offset + rank * self.pitch
        return replace(buffer, name=f"{buffer.name}@{rank}", offset=offset)

    def _barrier(self, barrier: kir.MBarrier, rank: int) -> kir.MBarrier:
        offset = self.source.barrier_at(barrier) + rank * self.pitch
        return replace(barrier, name=f"{barrier.name}@{rank}", offset=offset)

    def _slot(self, slot: kir.Slot, rank: int) -> kir.Slot:
        there = rank if slot.cta is None else self._rank(slot.cta, rank)
        return kir.Slot(self._buffer(slot.buffer, there), self._expr(slot.index, rank))
