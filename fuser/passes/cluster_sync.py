"""Pass: the CTAs of a cluster meet where they read what their peers have stored."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, reads, writes

Names = frozenset[str]
NONE: Names = frozenset()


def meet_clusters(kernel: kir.Kernel) -> kir.Kernel:
    """Let the CTAs of a cluster meet between ordinary stores of slots and reads by their peers.

    All threads do, before the first such read, and before a slot that peers have read is written
    again; one meeting does for all slots that are stored before it.  Arrivals release the stores,
    waits acquire them, and the threads of a CTA are joined on the way.

    Source: PTX ISA, "barrier.cluster" (arrive.release, wait.acquire).
    """
    far = frozenset(name for stmt in kernel.walk() for name in _from_peers(stmt))
    if not far:
        return kernel
    stored, read = NONE, NONE
    out: list[kir.Stmt] = []
    for stmt in kernel.body:
        inner = list(kir.walk((stmt,)))
        reading = frozenset(name for one in inner for name in _from_peers(one))
        storing = frozenset(name for one in inner for name in _by_threads(one)) & far
        assert not reading & storing, "no lowering stores and reads in one loop"
        if reading & stored or storing & read:
            out += [kir.ClusterArrive(), kir.ClusterWait()]
            stored, read = NONE, NONE
        stored, read = stored | storing, read | reading
        out.append(stmt)
    return replace(kernel, body=tuple(out))


def _from_peers(stmt: kir.Stmt) -> Names:
    """Names of the buffers of other CTAs that a statement reads."""
    return frozenset(slot.buffer.name for slot in reads(stmt) if slot.cta is not None)


def _by_threads(stmt: kir.Stmt) -> Names:
    """Names of the buffers that a statement writes by ordinary stores."""
    return NONE if by_engine(stmt) else frozenset(slot.buffer.name for slot in writes(stmt))
