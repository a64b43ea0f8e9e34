"""What calls with equal shapes share, prepared once; the cheap part of a call is `Plan.launch`.

A call writes the addresses of its tensors into an argument block and launches the kernels, which
read them there.  Nothing is copied on the device and nothing synchronises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import torch

from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, TensorView
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
    fusion : Fusion
        Whose inputs and outputs are named in messages.
    device : torch.device
        Where all tensors are.
    made : sequence of Form
        What each call allocates: outputs, unless they are given, and intermediates.
    returned : int
        How many of `made` are outputs.
    block : callable
        Makes an argument block.
    """

    def __init__(
        self,
        fusion: Fusion,
        device: torch.device,
        made: Sequence[Form],
        returned: int,
        block: Callable[[], Block],
    ) -> None:
        self._fusion = fusion
        self._index = device.index or 0
        self._made = tuple(made)
        self._returned = returned
        self._make_block = block
        self._free = [block()]
        self._equal: Callable[..., bool] = _never

    @property
    def kernels(self) -> list[BoundLaunch]:
        """The kernels of a call, in order."""
        return self._free[0].kernels

    def recognise(self, inputs: Sequence[Argument]) -> None:
        """Keep what aligned tensors are like, for `launch_if_equal` to know others by."""
        tensors = [given for given in inputs if isinstance(given, torch.Tensor)]
        aligned = all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)
        if tensors and len(tensors) == len(inputs) and aligned:
            self._equal = torch_calls.equal_to(tensors)

    def launch_if_equal(self, inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        """Launch if tensors are surely as those of `recognise`, else return nothing."""
        try:
            if not self._equal(*inputs):
                return None
        except TypeError:  # more of them, or fewer
            return None
        block = self._block()
        table, count = block.table, 0
        for tensor in inputs:
            address = tensor.data_ptr()
            if address % ALIGNED:
                self._free.append(block)
                return None
            table[count] = address
            count += 1
        return self._launch(block, count, inputs)

    def launch(
        self, inputs: Sequence[Argument], out: Sequence[torch.Tensor] | None
    ) -> list[torch.Tensor]:
        """Launch for inputs, and outputs if they are given, that are as the plan has them."""
        block = self._block()
        given = inputs if out is None else (*inputs, *out)
        count = 0
        for one in given:
            if isinstance(one, torch.Tensor):
                block.table[count] = one.data_ptr()
                count += 1
        made = self._launch(block, count, inputs)
        return made if out is None else list(out)

    def _block(self) -> Block:
        try:
            return self._free.pop()
        except IndexError:  # all are other threads'
            return self._make_block()

    def _launch(self, block: Block, count: int, inputs: Sequence[Argument]) -> list[torch.Tensor]:
        """Launch every kernel on torch's current stream, and return the outputs that are made.

        So many addresses are in the table of the block already.
        """
        if torch_calls.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._launch(block, count, inputs)
        # Intermediates live as long as the call: torch gives their memory to later work of the
        # same stream only.
        made = []
        table, empty = block.table, torch_calls.empty
        for form in self._made:
            tensor = empty(*form)
            table[count] = tensor.data_ptr()
            count += 1
            made.append(tensor)
        stream = torch_calls.current_stream(self._index)
        for kernel in block.kernels:
            kernel.launch(inputs, stream)
        self._free.append(block)  # unless a launch has failed
        return made[: self._returned]

    def refuse_overlaps(self, inputs: Sequence[Argument], out: Sequence[torch.Tensor]) -> None:
        """Refuse outputs that overlap an input or each other."""
        spans = [
            (*_span(given), tv.name)
            for tv, given in zip(self._fusion.inputs, inputs, strict=True)
            if isinstance(given, torch.Tensor)
        ]
        for tv, tensor in zip(self._fusion.outputs, out, strict=True):
            first, last = _span(tensor)
            for other_first, other_last, name in spans:
                if first < other_last and other_first < last:
                    common = min(last, other_last) - max(first, other_first)
                    what = f"overlaps {name} in memory by {common} bytes"
                    refuse(f"out={tv}", f"{what}; pass a tensor of its own")
            spans.append((first, last, tv.name))


def _never(*_: object) -> bool:
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


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
