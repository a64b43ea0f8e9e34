"""Memory that a launch needs beside its tensors: workspaces, semaphores, the ticket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from fuser import codegen
from fuser import kernel_ir as kir
from fuser.expr import Expr, Var, substitute


def number(expr: Expr, values: Mapping[Var, Expr]) -> int:
    """Return the value of an expression whose variables are all known."""
    value = substitute(expr, values)
    assert isinstance(value, int), f"{expr} is no number for {values}"
    return value


def shape(
    tensor: kir.Tensor, values: Mapping[Var, Expr]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the extents and the strides of a tensor."""
    return (
        tuple(number(extent, values) for extent in tensor.extents),
        tuple(number(stride, values) for stride in tensor.strides),
    )


def elements(tensor: kir.Tensor, values: Mapping[Var, Expr]) -> int:
    """Elements from the first to the last one of a tensor."""
    extents, strides = shape(tensor, values)
    if 0 in extents:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))


def counts(kernel: kir.Kernel, values: Mapping[Var, Expr]) -> dict[str, int]:
    """Return how many 32-bit integers each semaphore has, and the ticket; at least one."""
    known = {s.name: number(s.count, values) for s in kernel.semaphores}
    return {name: max(known.get(name, 1), 1) for name in codegen.counters(kernel)}


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch memory of a kernel whose integers are known.

    Workspaces are lent for one launch; torch gives their memory to later work of the same stream
    only.  Semaphores and the ticket are 0 before a launch and after it, so each stream has its own
    for good: launches on one stream are in order, those on two may meet.

    Parameters
    ----------
    workspaces : dict
        Bytes of each.
    counters : dict
        32-bit integers of each.
    device : torch.device
        Where they lie.
    """

    workspaces: dict[str, int]
    counters: dict[str, int]
    device: torch.device
    _zeroed: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)

    def lend(self, stream: int) -> dict[str, torch.Tensor]:
        """Return memory for one launch on a stream, which must be torch's current one."""
        lent = {
            name: torch.empty(nbytes, dtype=torch.uint8, device=self.device)
            for name, nbytes in self.workspaces.items()
        }
        if not self.counters:
            return lent
        if torch.cuda.is_current_stream_capturing():
            return lent | self._zeros()  # the graph's own, zeroed whenever it is replayed
        if stream not in self._zeroed:
            self._zeroed[stream] = self._zeros()
        return lent | self._zeroed[stream]

    def forget(self, stream: int) -> None:
        """Take new semaphores for the next launch on a stream: one did not start."""
        self._zeroed.pop(stream, None)

    def _zeros(self) -> dict[str, torch.Tensor]:
        return {
            name: torch.zeros(many, dtype=torch.int32, device=self.device)
            for name, many in self.counters.items()
        }


def scratch(kernel: kir.Kernel, values: Mapping[Var, Expr], device: torch.device) -> Scratch:
    """Return what a kernel needs.

    Parameters
    ----------
    kernel : Kernel
        Finished.
    values : mapping
        Of every parameter.
    device : torch.device
        Where it is launched.
    """
    workspaces = {
        t.name: elements(t, values) * t.dtype.nbytes
        for t in kernel.tensors
        if t.name in kernel.workspaces
    }
    return Scratch(workspaces, counts(kernel, values), device)
