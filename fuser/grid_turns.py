"""Pass: CTAs that share a tile of a result add up their sums in turns, and the last one goes on."""

from __future__ import annotations

from dataclasses import replace

from fuser import kernel_ir as kir
from fuser.expr import eq

Body = tuple[kir.Stmt, ...]


def take_grid_turns(kernel: kir.Kernel) -> kir.Kernel:
    """Write out what CTAs do that meet: whose turn it is adds its sums to those before it.

    The first CTA of a tile reads nothing.  The last one writes no sums, but does all that stands
    behind the meeting; the others do none of it.  The semaphore is left at 0 for the next launch.
    """
    first = next((n for n, s in enumerate(kernel.body) if isinstance(s, kir.GridSum)), None)
    if first is None:
        return kernel
    meeting = [stmt for stmt in kernel.body if isinstance(stmt, kir.GridSum)]
    rest = tuple(stmt for stmt in kernel.body[first:] if not isinstance(stmt, kir.GridSum))
    one = meeting[0]
    before: list[kir.Stmt] = []
    after: list[kir.Stmt] = []
    for stmt in meeting:
        acc = stmt.acc
        sofar = kir.Fragment(f"{acc.name}_so_far", acc.dtype, acc.layout)
        width = min(acc.layout.vector, stmt.workspace.tensor.aligned)
        before += [
            kir.Load(sofar, stmt.workspace, width),
            kir.Compute(acc, stmt.op, (acc, sofar)),
        ]
        after.append(kir.Store(stmt.workspace, acc, width))
    following = kir.BlockSerializeRelease(one.semaphore, one.index, (one.turn + 1) % one.turns)
    body: Body = (
        *kernel.body[:first],
        kir.BlockSerializeWait(one.semaphore, one.index, one.turn),
        kir.IfThenElse(one.turn >= 1, tuple(before)),
        kir.IfThenElse(eq(one.turn + 1, one.turns), rest, tuple(after)),
        kir.Elect(kir.Per.ROLE, (following,)),
    )
    return replace(kernel, body=body)
