"""Operands of products that are computed in registers, step by step, without a single sync.

Beyond the end of an axis that is summed over, tiles hold zeros: of the other operand, and of what
this one is computed from.  What is computed from zeros need not be finite, and times 0 it need not
be 0, so it is replaced by 0 there, unless it is 0 anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.fusion.ir import TensorView
from fuser.kernel import ir as kir
from fuser.lower.math import Arithmetic, is_zero_of_zeros
from fuser.lower.product import M, ProductLowering
from fuser.schedule.domain import Access, Product
from fuser.schedule.matmul import Operand

VECTOR = 2
"""Neighbours along a row of A in a register: 16-bit elements."""


def compute_operand(
    lowering: ProductLowering[M],
    product: Product,
    operand: Operand,
    step: Var,
    slot: Callable[[Operand], kir.Slot],
) -> tuple[list[kir.Stmt], kir.Fragment]:
    """Return what computes a tile of A, and the fragment that holds it then.

    Parameters
    ----------
    lowering : ProductLowering
        Of the kernel.
    product : Product
        What it is an operand of.
    operand : Operand
        A, with the leaves that it is computed from.
    step : Var
        Index of the loop over steps along K.
    slot : callable
        Returns the slot that a leaf is copied to.
    """
    tiling = lowering.tiling
    at = lowering.at_step(operand.summed, step)
    layout = kir.Layout(tiling.shape(operand.access), VECTOR, lowering.threads, kir.Deal.STRIPS)
    math = Arithmetic(layout, _nowhere, scalars=lowering.scalars, prefix="a")
    whole = {leaf.access: leaf for leaf in operand.leaves}
    for access in product.leaves:
        frag = math.fragment(f"a_{access.name}", access.tv.dtype)
        if access in whole:
            matrix = access.tv.dtype.nbytes == 2
            math.math.append(kir.Load(frag, slot(whole[access]), VECTOR, matrix=matrix))
        else:
            box = lowering.box(access, at, tiling.shape(access))
            math.math.append(kir.Load(frag, box, _width(lowering, access, operand)))
        math.done[(access.tv, access.coords)] = frag
    made = math.value(operand.access.tv, operand.access.coords)
    if not is_zero_of_zeros(operand.access.tv, {access.tv for access in whole}):
        left = at[operand.summed] - lowering.extents[operand.summed]
        names = ("a_left", "a_inside", f"{made.name}_within")
        zero = kir.Literal(0.0, DType.F32)
        made = math.bounded(made, zero, len(layout.shape) - 1, left, names)
    # In registers of its own, which are all that waits for the products of the step before.
    tile = math.fragment(f"f_{operand.access.name}", operand.access.tv.dtype)
    math.math.append(kir.Compute(tile, "set", (made,)))
    return math.math, tile


def _nowhere(tv: TensorView, axis: int) -> tuple[int, Expr] | None:
    raise AssertionError(f"{tv} asks for its place along axis {axis}; it is computed elsewhere")


def _width(lowering: ProductLowering[M], access: Access, operand: Operand) -> int:
    """Elements per access of a leaf that is not copied to shared memory."""
    if not lowering.tiling.unit(access, operand.summed):
        return 1
    return min(VECTOR, lowering.tensors[access.name].aligned)
