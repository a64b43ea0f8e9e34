"""Dependent launches that wait before all else: they are judged as launches that are not."""

from __future__ import annotations

from fuser.kernel import ir as kir

_EARLY = (
    kir.Elect
    | kir.MBarrierInit
    | kir.FenceMBarrierInit
    | kir.WarpSync
    | kir.BlockSync
    | kir.ClusterArrive
    | kir.ClusterWait
)
"""Statements that touch nothing but the shared memory of their own CTA, or cluster."""


def waits_first(kernel: kir.Kernel) -> bool:
    """Whether every thread waits for the launches before before anything touches global memory.

    What a thread or an engine does there is then behind the thread's own wait, in program order;
    and as each thread waits, the launch ends behind those before it.  So nothing else depends on
    when they end.
    """
    for stmt in kernel.body:
        if isinstance(stmt, kir.GridDependencyWait):
            return True
        if not all(isinstance(one, _EARLY) for one in kir.walk((stmt,))):
            return False
    return False
