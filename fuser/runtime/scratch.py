"""Memory that a launch needs beside its tensors: workspaces, semaphores, the ticket."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from cuda.bindings import driver

from fuser.codegen import cuda
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.runtime import torch_calls
from fuser.runtime.call import number, shape


def elements(tensor: kir.Tensor, values: Mapping[Var, Expr]) -> int:
    """Elements from the first to the last one of a tensor."""
    extents, strides = shape(tensor, values)
    if 0 in extents:
        return 0
    if tensor.cycles:
        return 1 + sum(_last(cycle, extents[0], values) for cycle in tensor.cycles)
    return 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))


def _last(cycle: kir.Cycle, extent: int, values: Mapping[Var, Expr]) -> int:
    """Return how far a cycle moves a tensor of so many positions, at most."""
    last = (extent - 1) // number(cycle.each, values)
    if cycle.period is not None:
        last = min(last, number(cycle.period, values) - 1)
    return last * number(cycle.stride, values)


def counts(kernel: kir.Kernel, values: Mapping[Var, Expr]) -> dict[str, int]:
    """Return how many 32-bit integers each semaphore has, and the ticket; at least one."""
    known = {s.name: number(s.count, values) for s in kernel.semaphores}
    return {name: max(known.get(name, 1), 1) for name in cuda.counters(kernel)}


ALIGNED = 32
"""Integers of each semaphore begin at multiples of it: in lines of the L2 that no other shares."""
FEWEST = 4096
"""Integers that a stream gets at least, so that most kernels find enough."""

_Where = tuple[torch.device, int, int]

_zeroed: dict[_Where, torch.Tensor] = {}
_captures: dict[tuple[torch.device, int], int] = {}


def zeroed(device: torch.device, stream: int, many: int) -> torch.Tensor:
    """Return integers that are 0 for the next launch on a stream, the same for all its launches.

    They are `many` 32-bit integers, at least; the stream is torch's current one.  Every kernel
    leaves its counters at 0, and launches on one stream are in order, so all kernels share what a
    stream has.  What is captured has its own, zeroed whenever the graph is replayed, for it may run
    beside anything: once for all its launches on that stream.
    """
    capture = _capture(stream)
    if capture and _captures.get((device, stream)) != capture:
        _zeroed.pop((device, stream, _captures.get((device, stream), -1)), None)
        _captures[device, stream] = capture
    found = _zeroed.get((device, stream, capture))
    if found is None or found.numel() < many:
        size = max(FEWEST, 1 << (many - 1).bit_length())
        found = torch.zeros(size, dtype=torch.int32, device=device)
        _zeroed[device, stream, capture] = found
    return found


def _capture(stream: int) -> int:
    if not torch.cuda.is_current_stream_capturing():
        return 0
    _, _, number, *_ = driver.cuStreamGetCaptureInfo(stream)
    return int(number)


@dataclass(slots=True)
class Scratch:
    """The scratch memory of a kernel whose integers are known, by bytes of workspaces and counters.

    Workspaces are lent for one launch; torch gives their memory to later work of the same stream
    only.  Semaphores and the ticket are 0 before a launch and after it (`zeroed`).
    """

    workspaces: dict[str, int]
    counters: dict[str, int]
    device: torch.device
    _places: list[int] = field(init=False)
    _memory: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Lay the counters behind each other, once for all launches."""
        rooms = (-(-many // ALIGNED) * ALIGNED for many in self.counters.values())
        self._places = list(accumulate(rooms, initial=0))

    def lend(self, words: Mapping[str, ctypes.c_uint64], stream: int) -> list[torch.Tensor]:
        """Write addresses of memory for one launch on a stream, which must be torch's current one.

        `words` are always the same.  What is returned has to live until the launch.
        """
        lent = []
        for name, nbytes in self.workspaces.items():
            memory = torch_calls.empty((nbytes,), (1,), torch.uint8)
            words[name].value = memory.data_ptr()
            lent.append(memory)
        if self.counters:
            memory = zeroed(self.device, stream, self._places[-1])
            if memory is not self._memory:
                self._memory = memory
                for name, place in zip(self.counters, self._places, strict=False):
                    words[name].value = memory.data_ptr() + 4 * place
        return lent

    def forget(self, stream: int) -> None:
        """Let the next launch on a stream begin with zeros: one did not start, or did not end."""
        if self.counters and _zeroed.pop((self.device, stream, _capture(stream)), None) is not None:
            warnings.warn(
                f"launch: a kernel with semaphores did not run on stream {stream:#x}; the next one "
                "begins with new semaphores",
                RuntimeWarning,
                stacklevel=2,
            )


def scratch(kernel: kir.Kernel, values: Mapping[Var, Expr], device: torch.device) -> Scratch:
    """Return what a kernel needs, given the values of all its parameters."""
    workspaces = {
        t.name: elements(t, values) * t.dtype.nbytes
        for t in kernel.tensors
        if t.name in kernel.workspaces
    }
    return Scratch(workspaces, counts(kernel, values), device)
