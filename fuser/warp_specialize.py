"""Pass: a load role of one warp beside the computing warps."""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir
from fuser.effects import fills


def warp_specialize(kernel: kir.Kernel) -> kir.Kernel:
    """Split every loop that asks for it into a load role and a compute role.

    The load role's one elected thread issues the copies into rings; everything else is done by the
    compute role.  Both walk the same iterations and compute their own tile numbers.
    """

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kir.ForLoop) or stmt.circular is None:
            return None
        load = tuple(_copied(s) for s in stmt.body if isinstance(s, kir.Let) or fills(s))
        compute = tuple(s for s in stmt.body if not fills(s))
        warps = kernel.threads // kir.WARP
        loads = replace(stmt, body=load, circular=None)
        return [
            kir.Role("load", warps, 1, (kir.Elect(kir.Per.ROLE, (loads,)),)),
            kir.Role("compute", 0, warps, (replace(stmt, body=compute, circular=None),)),
        ]

    split = kernel.rewrite(rule)
    if split is kernel or not any(isinstance(s, kir.Role) for s in split.body):
        return kernel
    return replace(split, threads=kernel.threads + kir.WARP)


def _copied(stmt: kir.Stmt) -> kir.Stmt:
    """Let statements stand in both roles; each role gets an object of its own."""
    return kir.Let(stmt.var, stmt.value) if isinstance(stmt, kir.Let) else stmt
