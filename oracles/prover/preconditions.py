"""What a launch has to keep: what its kernel requires, whole clusters, and aligned rows."""

from __future__ import annotations

from math import lcm

from fuser.expr import Expr, Kind, Op, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import Function, Values, function

TMA_BYTES = 16
"""Strides of tensors that TMA copies are multiples of it.  Source: PTX ISA, "tensor-map"."""


def broken(kernel: kir.Kernel, values: Values) -> str:
    """Say which precondition of a kernel a launch breaks; empty if none.

    Parameters
    ----------
    kernel : Kernel
        What is launched.
    values : mapping of str to int
        A value for every parameter and for `GRID`, the number of CTAs.
    """
    for var in kernel.params:
        if values[var.name] < 0:
            return f"{var.name} is {values[var.name]}, less than 0"
    for condition in kernel.requires:
        try:
            holds = function(condition)(values)
        except ZeroDivisionError:
            return f"it requires {condition}, which divides by 0"
        if not holds:
            return f"it requires {condition}"
    grid = values[kir.GRID.name]
    if grid < 1:
        return f"{grid} CTAs are no launch"
    if grid % kernel.cluster:
        return f"the grid must be a multiple of the cluster of {kernel.cluster}"
    moved = copied(kernel)
    for tensor in kernel.tensors:
        says = _bent(tensor, values, by_tma=tensor.name in moved)
        if says:
            return says
    return ""


def copied(kernel: kir.Kernel) -> frozenset[str]:
    """Return the names of the tensors that TMA moves."""
    found = set()
    for stmt in kernel.walk():
        match stmt:
            case kir.TmaLoad(_, box) | kir.TmaStore(box) | kir.TmaReduce(box):
                found.add(box.tensor.name)
            case _:
                pass
    return frozenset(found)


def pitch_unit(tensor: kir.Tensor, *, by_tma: bool) -> int:
    """Return what the distance of two rows is a multiple of, in elements."""
    return lcm(tensor.aligned, TMA_BYTES // tensor.dtype.nbytes if by_tma else 1)


def _bent(tensor: kir.Tensor, values: Values, *, by_tma: bool) -> str:
    """Say which extent or stride of a tensor is no multiple of what it must be."""
    extents = [function(e)(values) for e in tensor.extents]
    strides = [function(s)(values) for s in tensor.strides]
    last = tensor.extents and tensor.extents[-1] != 1 and extents[-1] % tensor.aligned
    apart = [s for e, s in zip(tensor.strides, strides, strict=True) if e != 1]
    if last or any(s % tensor.aligned for s in apart):
        says = f"extents {tuple(extents)}, strides {tuple(strides)}"
        return f"{tensor.name} is aligned to {tensor.aligned} elements, not so with {says}"
    rows = zip(extents[:-1], strides[:-1], strict=True)
    if by_tma and any(n > 1 and s * tensor.dtype.nbytes % TMA_BYTES for n, s in rows):
        return f"{tensor.name} is copied by TMA: strides must be multiples of {TMA_BYTES} bytes"
    return ""


def required_grid(kernel: kir.Kernel) -> Function | None:
    """Return the number of CTAs as a function of parameters, where it is required to be one."""
    number = fixed_grid(kernel)
    return None if number is None else function(number)


def positive(kernel: kir.Kernel) -> frozenset[Expr]:
    """Return what is at least 1 in any launch, as far as that is required or makes up the grid."""
    found: set[Expr] = set()
    for condition in kernel.requires:
        match condition:
            case Op(Kind.LE, 1, many) | Op(Kind.LT, 0, many):
                found.add(many)
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)):
                found |= {a, b}
            case Op(Kind.EQ, Op(Kind.MOD, kir.GRID, of), 0):
                found.add(kir.GRID // of)
            case _:
                pass
    return frozenset(found)


def fixed_grid(kernel: kir.Kernel) -> Expr | None:
    """Return what `Kernel.requires` says the number of CTAs is, if it says so."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, a, b) if kir.GRID in (a, b):
                number = b if a == kir.GRID else a
                if kir.GRID not in variables(number):
                    return number
            case _:
                pass
    return None
