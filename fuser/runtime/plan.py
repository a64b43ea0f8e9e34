"""What calls with equal shapes share, prepared once; `Plan.launch` is the cheap part of a call.

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

Launch = Callable[
    [Sequence[Argument], Sequence[torch.Tensor] | None, bool], list[torch.Tensor] | None
]
"""Given inputs, outputs or None, and whether they are `sure` to be as the plan has them.

Unless it is sure it looks, and returns None, nothing having happened, if they may be others.
"""

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
    inputs, out : sequence
        Arguments of a call as this plan is for; none of them is kept.
    made : sequence of Form
        What each call allocates: outputs, unless they are given, and intermediates.
    returned : int
        How many of `made` are outputs.
    apart : sequence of Apart
        Tensors that may not overlap.

    Attributes
    ----------
    launch : Launch
        Launches every kernel on torch's current stream, and returns the outputs.
    """

    def __init__(
        self,
        block: Callable[[], Block],
        device: torch.device,
        inputs: Sequence[Argument],
        out: Sequence[torch.Tensor] | None,
        made: Sequence[Form],
        returned: int,
        apart: Sequence[Apart] = (),
    ) -> None:
        self._free = [block()]
        tensors = [given for given in (*inputs, *(out or ())) if isinstance(given, torch.Tensor)]
        kinds = [None if isinstance(given, torch.Tensor) else type(given) for given in inputs]
        outs = 0 if out is None else len(out)
        source = "\n".join(_lines(kinds, outs, len(made), returned))
        aligned = all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)
        names: dict[str, Any] = {
            "__name__": __name__,
            "apart": apart,
            "block": block,
            "current_device": torch_calls.current_device,
            "current_stream": torch_calls.current_stream,
            "device": torch.cuda.device,
            "empty": torch_calls.empty,
            "equal": torch_calls.equal_to(tensors if aligned else []),
            "free": self._free,
            "index": device.index or 0,
            **{f"kind{n}": kind for n, kind in enumerate(kinds)},
            **{f"form{n}": form for n, form in enumerate(made)},
        }
        exec(compile(source, "<plan>", "exec"), names)
        self.launch: Launch = names["launch"]

    @property
    def kernels(self) -> list[BoundLaunch]:
        """The kernels of a call, in order."""
        return self._free[0].kernels


def _lines(kinds: Sequence[type | None], outs: int, made: int, returned: int) -> list[str]:
    """Return the Python of a `Launch`, without loops over its arguments: they take a third more.

    `kinds` has the type of each input that is a number; so many outputs are given, and tensors
    made, of which the first are returned.
    """
    inputs = [f"x{n}" for n in range(len(kinds))]
    given = [f"y{n}" for n in range(outs)]
    fresh = [f"z{n}" for n in range(made)]
    tensors = [x for x, kind in zip(inputs, kinds, strict=True) if kind is None] + given
    alike = [f"equal({', '.join(tensors)})"]
    alike += [f"type(x{n}) is kind{n}" for n, kind in enumerate(kinds) if kind is not None]
    addresses = [f"a{n}" for n in range(len(tensors))]
    return [
        "def launch(inputs, out, sure):",
        "    try:",
        f"        [{', '.join(inputs)}] = inputs",
        *([f"        [{', '.join(given)}] = out"] if given else ()),
        "    except ValueError:",
        "        return None",
        f"    if not sure and not ({' and '.join(alike)}):",
        "        return None",
        *(f"    {a} = {x}.data_ptr()" for a, x in zip(addresses, tensors, strict=True)),
        f"    if not sure and ({' | '.join(addresses) or '0'}) % {ALIGNED}:",
        "        return None",
        "    if current_device() != index:",
        "        with device(index):",
        "            return launch(inputs, out, sure)",
        "    try:",
        "        held = free.pop()",
        "    except IndexError:  # all are other threads'",
        "        held = block()",
        "    table = held.table",
        *(f"    table[{n}] = {a}" for n, a in enumerate(addresses)),
        *(["    for one in apart:", "        one.check(table)"] if given else ()),
        # Intermediates live as long as the call: torch gives their memory to later work of the
        # same stream only.
        *(f"    {z} = empty(*form{n})" for n, z in enumerate(fresh)),
        *(f"    table[{len(tensors) + n}] = {z}.data_ptr()" for n, z in enumerate(fresh)),
        "    stream = current_stream(index)",
        "    for kernel in held.kernels:",
        "        kernel.launch(inputs, stream)",
        "    free.append(held)  # unless a launch has failed",
        "    return list(out)" if given else f"    return [{', '.join(fresh[:returned])}]",
    ]


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
        super().__init__(
            kernel,
            function,
            binding.grid,
            values,
            device,
            what=what,
            shared=whole,
            once=binding.once,
        )
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
