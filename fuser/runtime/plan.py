"""What calls with equal shapes share, prepared once; `launch_if_equal` is the cheap part of a call.

A call writes the addresses of its tensors into an argument block and launches the kernels, whose
arguments are read from there.  Nothing is copied on the device and nothing synchronises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import torch

from fuser.errors import ScheduleError
from fuser.fusion.ir import TensorView
from fuser.pipeline import Program
from fuser.runtime import torch_calls
from fuser.runtime.binding import Binding
from fuser.runtime.call import refuse
from fuser.runtime.launch import Argument, BoundKernel
from fuser.runtime.scratch import scratch

Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides and type of a tensor to allocate on the current device."""

ALIGNED = 16
"""Bytes that kernels may ask of addresses; what is aligned to more is the same to them."""


class Plan:
    """All that a call needs but addresses and numbers.

    Several threads may launch at once: each takes a block that no other has, or makes one.

    Parameters
    ----------
    block : callable
        Makes an argument block.
    device : torch.device
        Where all tensors are.
    made : sequence of Form
        What each call allocates: outputs, unless they are given, and intermediates.
    returned : int
        How many of `made` are outputs.
    apart : sequence of Apart
        Tensors that may not overlap.
    """

    def __init__(
        self,
        block: Callable[[], Block],
        device: torch.device,
        made: Sequence[Form],
        returned: int,
        apart: Sequence[Apart] = (),
    ) -> None:
        self._make_block = block
        self._index = device.index or 0
        self._made = tuple(made)
        self._returned = returned
        self._apart = tuple(apart)
        self._free = [block()]
        self._equal: Callable[..., bool] | None = None
        self._kinds: list[type] | None = None

    @property
    def kernels(self) -> list[BoundLaunch]:
        """The kernels of a call, in order."""
        return self._free[0].kernels

    def recognise(
        self, inputs: Sequence[Argument], out: Sequence[torch.Tensor] | None = None
    ) -> None:
        """Keep what aligned tensors are like, for `launch_if_equal` to know others by."""
        tensors = tensors_of(inputs, out)
        if tensors and all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors):
            self._equal = torch_calls.equal_to(tensors)
        if len(tensors) != len(inputs) or out is not None:
            self._kinds = [*map(type, inputs)]

    def launch_if_equal(
        self, inputs: Sequence[Any], out: Sequence[torch.Tensor] | None
    ) -> list[torch.Tensor] | None:
        """Launch if all arguments are surely as those of `recognise`, else return nothing."""
        if self._equal is None:
            return None
        tensors = inputs
        if self._kinds is not None:  # there are numbers, or outputs
            if [*map(type, inputs)] != self._kinds:
                return None
            tensors = tensors_of(inputs, out)
        try:
            if not self._equal(*tensors):
                return None
        except TypeError:  # more of them, or fewer
            return None
        block = self._block()
        table, count = block.table, 0
        for tensor in tensors:
            address = tensor.data_ptr()
            if address % ALIGNED:
                self._free.append(block)
                return None
            table[count] = address
            count += 1
        return self._launch(block, count, inputs, out)

    def launch(
        self, inputs: Sequence[Argument], out: Sequence[torch.Tensor] | None
    ) -> list[torch.Tensor]:
        """Launch for arguments that are as the plan has them."""
        block = self._block()
        count = 0
        for tensor in tensors_of(inputs, out):
            block.table[count] = tensor.data_ptr()
            count += 1
        return self._launch(block, count, inputs, out)

    def _block(self) -> Block:
        try:
            return self._free.pop()
        except IndexError:  # all are other threads'
            return self._make_block()

    def _launch(
        self,
        block: Block,
        count: int,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
    ) -> list[torch.Tensor]:
        """Launch every kernel on torch's current stream, and return the outputs.

        So many addresses are in the table of the block already.
        """
        if torch_calls.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._launch(block, count, inputs, out)
        table, empty = block.table, torch_calls.empty
        for apart in self._apart:
            apart.check(table)
        # Intermediates live as long as the call: torch gives their memory to later work of the
        # same stream only.
        made = []
        for form in self._made:
            tensor = empty(*form)
            table[count] = tensor.data_ptr()
            count += 1
            made.append(tensor)
        stream = torch_calls.current_stream(self._index)
        for kernel in block.kernels:
            kernel.launch(inputs, stream)
        self._free.append(block)  # unless a launch has failed
        return made[: self._returned] if out is None else list(out)


@dataclass(frozen=True, slots=True)
class Apart:
    """An output that is given, and a tensor that it may not overlap: names, places in the table."""

    output: str
    other: str
    place: int
    other_place: int
    nbytes: int
    other_nbytes: int

    def check(self, table: ctypes.Array[ctypes.c_uint64]) -> None:
        """Raise FusionError if they overlap."""
        first, other = table[self.place], table[self.other_place]
        common = min(first + self.nbytes, other + self.other_nbytes) - max(first, other)
        if common > 0:
            what = f"overlaps {self.other} in memory by {common} bytes"
            refuse(f"out={self.output}", f"{what}; pass a tensor of its own")


def kept_apart(outputs: Sequence[str], nbytes: Mapping[str, int]) -> list[Apart]:
    """Return which outputs may not overlap what: all that stands before them.

    `nbytes` are those from the first to the last element, in the order of the table.
    """
    names = [*nbytes]
    places = {name: place for place, name in enumerate(names)}
    return [
        Apart(own, other, places[own], places[other], nbytes[own], nbytes[other])
        for own in outputs
        for other in names[: places[own]]
        if nbytes[own] and nbytes[other]
    ]


def tensors_of(
    inputs: Sequence[Argument], out: Sequence[torch.Tensor] | None
) -> list[torch.Tensor]:
    """Return the tensors of a call in the order of the table."""
    tensors = [given for given in inputs if isinstance(given, torch.Tensor)]
    return tensors if out is None else [*tensors, *out]


class Block:
    """The arguments of a call, for one thread at a time: a table of addresses, and the kernels.

    In the table are the addresses of inputs, outputs and intermediates, for all kernels to read.
    `bindings` are those of the kernels to launch, each with its function.
    """

    def __init__(
        self,
        program: Program,
        bindings: Sequence[tuple[Binding, cupy.cuda.function.Function]],
        device: torch.device,
    ) -> None:
        fusion = program.fusion
        tensors = [arg.name for arg in fusion.inputs if isinstance(arg, TensorView)]
        tensors += [tv.name for tv in (*fusion.outputs, *program.intermediates)]
        self.table = (ctypes.c_uint64 * len(tensors))()
        begin = ctypes.addressof(self.table)
        where = {name: begin + 8 * n for n, name in enumerate(tensors)}
        self.kernels = [
            BoundLaunch(program, binding, function, where, device) for binding, function in bindings
        ]


class BoundLaunch(BoundKernel):
    """A launch of a compiled fusion, which knows where the arguments of a call are written."""

    def __init__(
        self,
        program: Program,
        binding: Binding,
        function: cupy.cuda.function.Function,
        where: dict[str, int],
        device: torch.device,
    ) -> None:
        launch = binding.launch
        kernel = launch.kernel
        values = binding.values
        views = {
            n: binding.places[own] for n, own in launch.arguments.items() if own in binding.places
        }
        whole = {n: where[own] for n, own in launch.arguments.items() if n not in views}
        what = f"call({kernel.name} of {type(launch.params).__name__})"
        super().__init__(kernel, function, binding.grid, values, device, what=what, shared=whole)
        self._views = [
            (self.word(name), ctypes.c_uint64.from_address(where[of]), offset)
            for name, (of, offset) in views.items()
        ]
        position = {arg.name: n for n, arg in enumerate(program.fusion.inputs)}
        self._scalars = [(self.scalar(s), position[s.name]) for s in kernel.scalars]
        self._scratch = scratch(kernel, values, device)
        self._lent = {
            name: self.word(name) for name in (*self._scratch.workspaces, *self._scratch.counters)
        }
        self._addresses_only = not (self._views or self._scalars or self._lent or self._maps)

    def launch(self, inputs: Sequence[Argument], stream: int) -> None:
        """Launch, the addresses of whole tensors having been written."""
        if self._addresses_only:
            self.start(stream)
            return
        for word, whole, offset in self._views:
            word.value = whole.value + offset
        for room, position in self._scalars:
            room[0] = inputs[position]
        workspaces = self._scratch.lend(self._lent, stream)
        self.write_maps()
        try:
            self.start(stream)
        except (RuntimeError, ScheduleError):
            self._scratch.forget(stream)
            raise
        del workspaces  # which had to live as long
