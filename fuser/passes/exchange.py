"""Pass: what CTAs of a cluster store into each other's shared memory, and how they learn of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from fuser.passes.effects import moved, names, reads, writes
from fuser.passes.overlay import placed
from fuser.passes.rings import Body, Context, by_one_thread, numbered, wait_phase

ROUNDS, SLOTS = 8, 32
"""Iterations of a loop for which a buffer has slots of all CTAs, at most, and slots in all.

Before they are used again the CTAs of a cluster join, which makes the hardware finish all stores
before.  Measured on an H200, in microseconds: softmax of 4096 x 131072 by clusters of 8, a join in
each iteration 1361, each 2nd 1270, each 4th 1211, each 8th 1183; layer norm of 4096 x 65536 by
clusters of 4, each 2nd 422, 4th 398, 8th 396.  (Reachability follows as many iterations.)
"""
ARRIVED = Var("arrived")
"""Whether a CTA has arrived at the barrier of its cluster, and not waited yet."""


def exchange(kernel: kir.Kernel) -> kir.Kernel:
    """Let CTAs of a cluster send what they store into slots of each other, by `st.async`.

    Neighbouring stores are one exchange: each CTA stores one slot in each CTA, itself included, so
    it expects the bytes of as many on a barrier of its own, and its readers wait for their phase.

    A loop has slots and barriers for several iterations.  Before they are used again, and for the
    sake of the barriers before the first of them, all CTAs of the cluster join: they arrive once
    they have read, and wait when they are about to send.

    Source: PTX ISA, "st.async", "mbarrier.try_wait" (.scope), "barrier.cluster".
    """
    if not any(map(_sends, kernel.walk())):
        return kernel
    found = _Exchanges(kernel.cluster)
    body: list[kir.Stmt] = []
    if any(map(_sends, kernel.body)):
        body += found.sent(kernel.body, 0, 1)
        body.insert(_first(body), kir.ClusterWait())
    else:
        for stmt in kernel.body:
            if isinstance(stmt, kir.ForLoop) and any(map(_sends, stmt.body)):
                body += found.rounds(stmt)
            else:
                body.append(stmt)
    body.insert(0, kir.ClusterArrive())
    buffers = tuple(found.wider.get(b.name, b) for b in kernel.buffers)
    barriers = (*kernel.barriers, *found.barriers)
    return placed(replace(kernel, body=tuple(body), buffers=buffers, barriers=barriers))


def _sends(stmt: kir.Stmt) -> bool:
    """Tell whether threads store into slots of a peer."""
    slot = stmt.dst if isinstance(stmt, kir.Store) else None
    return isinstance(slot, kir.Slot) and slot.cta is not None


def _first(body: Iterable[kir.Stmt]) -> int:
    """Return where CTAs begin to send."""
    return next(n for n, stmt in enumerate(body) if isinstance(stmt, kir.StAsync))


@dataclass
class _Exchanges:
    """The walk over a kernel; collects barriers, and buffers that have slots of several rounds."""

    ctas: int

    def __post_init__(self) -> None:
        self.barriers: list[kir.MBarrier] = []
        self.wider: dict[str, kir.Buffer] = {}

    def rounds(self, loop: kir.ForLoop) -> list[kir.Stmt]:
        """Return a loop that sends, and how the last arrivals of its CTAs are waited for."""
        rounds = min(ROUNDS, SLOTS // self.ctas)
        turn = loop.index % rounds
        body = self.sent(loop.body, loop.index, rounds)
        wait = (kir.ClusterWait(), kir.Assign(ARRIVED, 0))
        body.insert(_first(body), kir.IfThenElse(eq(turn, 0), wait))
        read = [n for n, stmt in enumerate(body) if names(reads(stmt)) & self.wider.keys()]
        arrive = (kir.ClusterArrive(), kir.Assign(ARRIVED, 1))
        body.insert(read[-1] + 1, kir.IfThenElse(eq(turn, rounds - 1), arrive))
        left = kir.IfThenElse(eq(ARRIVED, 1), (kir.ClusterWait(),))
        return [kir.Let(ARRIVED, 1), replace(loop, body=tuple(body)), left]

    def sent(self, body: Body, turn: Expr, rounds: int) -> list[kir.Stmt]:
        """Return a body of iteration `turn` whose stores into slots of peers are sent."""
        out: list[kir.Stmt] = []
        full: dict[str, kir.MBarrier] = {}
        for sends, some in groupby(body, _sends):
            run = tuple(some)
            if sends:
                barrier = kir.MBarrier(numbered("sent", len(self.barriers)), 1, rounds)
                self.barriers.append(barrier)
                out += self._sent(run, barrier, turn)
                full |= {name: barrier for stmt in run for name in names(writes(stmt))}
                continue
            for stmt in run:
                for barrier in {full[name]: 0 for name in sorted(names(reads(stmt)) & full.keys())}:
                    wait = wait_phase(barrier, turn % rounds, turn)
                    out.append(replace(wait, scope=kir.Scope.CLUSTER))
                    full = {name: other for name, other in full.items() if other != barrier}
                out.append(self._of_round(stmt, turn, rounds))
        return out

    def _sent(self, run: Body, barrier: kir.MBarrier, turn: Expr) -> list[kir.Stmt]:
        """Return an exchange: what a CTA expects of all, then what it sends to all."""
        sends: list[kir.Stmt] = []
        nbytes, rounds = 0, barrier.slots
        for stmt in run:
            match stmt:
                case kir.Store(kir.Slot(buffer, index) as slot, src, width) if not (
                    stmt.matrix or stmt.transposed  # no st.async does that
                ):
                    wide = replace(buffer, slots=self.ctas * rounds)
                    self.wider[buffer.name] = wide
                    there = replace(slot, buffer=wide, index=turn % rounds * self.ctas + index)
                    sends.append(kir.StAsync(there, src, barrier, turn % rounds, width))
                    nbytes += buffer.slot_nbytes
                case _:
                    raise AssertionError("threads store what they send, as it lies")
        expect = kir.MBarrierArriveExpectTx(barrier, turn % rounds, nbytes)
        return [*by_one_thread((expect,), Context()), *sends]

    def _of_round(self, stmt: kir.Stmt, turn: Expr, rounds: int) -> kir.Stmt:
        """Return a statement with those slots that iteration `turn` has of such buffers."""

        def of_round(slot: kir.Slot) -> kir.Slot:
            wide = self.wider.get(slot.buffer.name)
            at = turn % rounds * self.ctas + slot.index
            return slot if wide is None else replace(slot, buffer=wide, index=at)

        return moved(stmt, of_round)
