"""Kernels that say what they compute, and beside them such that compute something else.

The wrong ones are synchronised: only their numbers tell.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from litmus import rings
from litmus.in_place import by_engines
from litmus.parts import (
    YN,
    Body,
    box,
    elect,
    fragment,
    init,
    k,
    kernel,
    load,
    n,
    slots,
    store,
    tensor,
    wait,
)
from litmus.rings import RING, SLOT, ring
from litmus.turnstiles import by_engine

from fuser.cookbook.recipes import wgmma_ring
from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from oracles.expect import expect

BOTH, FULL = slots("S", 2), kir.MBarrier("full", 1, 1)
XN, ZN = tensor("X", n), tensor("Z", n)


@expect(lambda X: X)
def copied(tile: Expr = k) -> kir.Kernel:
    """Copy tiles through a ring, each from that place."""
    slot = kir.Slot(RING, SLOT)
    return ring(fill=kir.TmaLoad(slot, box(XN, tile), rings.FULL, SLOT))


@expect(lambda X: X)
def copied_from_the_next_tile() -> kir.Kernel:
    """An index that is off by one."""
    return copied((k + 1) % n)


@expect(lambda X, Z: X - Z)
def difference(second: int = 1) -> kir.Kernel:
    """Load two tiles on one mbarrier, and subtract the one in slot `second`."""
    x, z, y = (fragment(name) for name in "xzy")
    fills = (
        kir.MBarrierArriveExpectTx(FULL, 0, 2 * BOTH.slot_nbytes),
        kir.TmaLoad(kir.Slot(BOTH, 0), box(XN, k), FULL, 0),
        kir.TmaLoad(kir.Slot(BOTH, 1), box(ZN, k), FULL, 0),
    )
    use: Body = (
        elect(*fills),
        wait(FULL, 0, k),
        load(x, kir.Slot(BOTH, 0)),
        load(z, kir.Slot(BOTH, second)),
        kir.Compute(y, "sub", (x, z)),
        store(box(YN, k), y),
        kir.BlockSync(0, 32),
    )
    body = (init(FULL), kir.BlockSync(0, 32), kir.ForLoop(k, n, use))
    return kernel(body, buffers=(BOTH,), barriers=(FULL,), tensors=(XN, ZN, YN))


@expect(lambda X, Z: X - Z)
def difference_of_one_slot() -> kir.Kernel:
    """The second slot is never read."""
    return difference(0)


@expect(lambda A, B: A.float() @ B.float().T)
def product() -> kir.Kernel:
    """A product of bf16, added up in f32."""
    return wgmma_ring()


@expect(lambda A, B: A.float() @ B.float().T)
def product_of_the_last_step() -> kir.Kernel:
    """No step adds to the one before."""
    return wgmma_ring().rewrite(
        lambda stmt: [replace(stmt, accumulate=0)] if isinstance(stmt, kir.Wgmma) else None
    )


@expect(lambda Y: 2 * Y)
def doubled() -> kir.Kernel:
    """An output that is updated in place."""
    return by_engines("fill wait get add put fence join send drain left")


@expect(lambda Y: 3 * Y)
def doubled_where_tripled_is_asked() -> kir.Kernel:
    """The same kernel."""
    return doubled()


@expect(lambda X, s: X.view(s, 4, 32).sum(0))
def summed(later: str = "fence add commit done") -> kir.Kernel:
    """CTAs add their tiles up in a workspace, by turns."""
    return by_engine(later=later)


@expect(lambda X, s: X.view(s, 4, 32).sum(0))
def summed_without_those_before() -> kir.Kernel:
    """Each CTA stores where it has to add."""
    return summed("fence store commit done")


@expect(lambda X: (X.exp(), torch.relu(X)))
def two_outputs(exponential: str = "Y", relu: str = "Z") -> kir.Kernel:
    """A function for each output, in the order of the kernel's outputs."""
    x, e, r = (fragment(name) for name in "xer")
    body = kir.ForLoop(
        k,
        n,
        (
            load(x, box(XN, k)),
            kir.Compute(e, "exp", (x,)),
            kir.Compute(r, "relu", (x,)),
            store(box(tensor(exponential, n), k), e),
            store(box(tensor(relu, n), k), r),
        ),
    )
    return replace(kernel((body,), tensors=(XN, YN, ZN)), outputs=("Y", "Z"))


@expect(lambda X: (X.exp(), torch.relu(X)))
def two_outputs_the_other_way_round() -> kir.Kernel:
    """Both are written."""
    return two_outputs("Z", "Y")


@expect(lambda X: {"Z": torch.relu(X), "Y": X.exp2()})
def two_outputs_with_another_base() -> kir.Kernel:
    """By name; one is right."""
    return two_outputs()


@expect(lambda X: (X * 1.1).bfloat16().float())
def rounded_on_the_way(to: str = "cast") -> kir.Kernel:
    """Rounded to bf16, as the function says."""
    x, more = fragment("x"), fragment("more")
    short, back = replace(fragment("short"), dtype=DType.BF16), fragment("back")
    body = kir.ForLoop(
        k,
        n,
        (
            load(x, box(XN, k)),
            kir.Compute(more, "mul", (x, kir.Literal(1.1, DType.F32))),
            kir.Compute(short, to, (more,)),
            kir.Compute(back, "promote", (short,)),
            store(box(YN, k), back),
        ),
    )
    return kernel((body,))


@expect(lambda X: X * 1.1)
def rounded_where_it_should_not_be() -> kir.Kernel:
    """Off by up to 1 in 256, where 1 in 16 million is allowed."""
    return rounded_on_the_way()


RIGHT = (copied, difference, product, doubled, summed, two_outputs, rounded_on_the_way)
WRONG = (
    copied_from_the_next_tile,
    difference_of_one_slot,
    product_of_the_last_step,
    doubled_where_tripled_is_asked,
    summed_without_those_before,
    two_outputs_the_other_way_round,
    two_outputs_with_another_base,
    rounded_where_it_should_not_be,
)
