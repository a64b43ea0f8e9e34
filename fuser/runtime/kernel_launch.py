"""Running one Kernel, such as one written by hand, on a device: compile, encode, launch.

Everything is looked up anew in each call, so this is for tests and experiments; `launch`
is the cheap way for compiled fusions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fuser.codegen import cuda
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.runtime.call import number
from fuser.runtime.launch import BoundKernel, Number, load_function
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.scratch import counts, elements


def launch_kernel(
    kernel: kir.Kernel,
    grid: int,
    params: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Number] | None = None,
    *,
    defines: tuple[str, ...] = (),
) -> dict[str, torch.Tensor]:
    """Launch a kernel once as `Prepared` does; return counters, and workspaces left out."""
    prepared = Prepared(kernel, grid, params, tensors, scalars, defines=defines)
    prepared.launch()
    return {**prepared.counters, **prepared.workspaces}


class Prepared:
    """A kernel bound to all that a launch needs, launched again and again on the same memory.

    Parameters
    ----------
    kernel : Kernel
        With every sync explicit; it is not validated here.
    grid : int
        CTAs.
    params : mapping
        Every parameter of the kernel, by name.
    tensors : mapping
        Every tensor by name; its address is that of element 0, its extents and strides are what the
        kernel says for these params.  A workspace may be left out.
    scalars : mapping, optional
        Every scalar of the kernel, by name.
    defines : tuple of str
        Macros, such as ``("FUSER_POISON_SMEM",)``.
    source : str, optional
        CUDA text in place of what `codegen.source` prints; it takes the same parameters, and
        behind them those of `more`.
    more : mapping
        32-bit integers that only `source` knows, by name; `write` changes them between launches.

    Attributes
    ----------
    counters : dict
        Semaphores and ticket, 0 at first; every launch finds what the one before has left.
    workspaces : dict
        Workspaces that were left out of `tensors`.

    Raises
    ------
    ScheduleError
        If a name is missing, a condition of the kernel is broken, or the device has not room.
    """

    def __init__(
        self,
        kernel: kir.Kernel,
        grid: int,
        params: Mapping[str, int],
        tensors: Mapping[str, torch.Tensor],
        scalars: Mapping[str, Number] | None = None,
        *,
        defines: tuple[str, ...] = (),
        source: str | None = None,
        more: Mapping[str, int] | None = None,
    ) -> None:
        scalars, more = scalars or {}, more or {}
        values = values_of(kernel, grid, params)
        self.workspaces = {
            t.name: _workspace(t, values)
            for t in kernel.tensors
            if t.name in kernel.workspaces and t.name not in tensors
        }
        self._kept = {**tensors, **self.workspaces}  # alive as long as their addresses are used
        check_tensors(kernel, values, self._kept, scalars)
        self.counters = {
            name: torch.zeros(many, dtype=torch.int32, device="cuda")
            for name, many in counts(kernel, values).items()
        }
        self._drawn = kernel.counters
        self._maps = {
            maps.name: torch.full((grid * maps.slots, 128), 0xFF, dtype=torch.uint8, device="cuda")
            for maps in kernel.maps
        }
        cubin = compile_cubin(source or cuda.source(kernel), defines=defines)
        device = torch.device("cuda", torch.cuda.current_device())
        self._bound = BoundKernel(
            kernel,
            load_function(cubin, kernel, device.index),
            grid,
            values,
            device,
            what=f"launch_kernel({kernel.name})",
            more=[*more],
        )
        for name, tensor in {**self._kept, **self.counters, **self._maps}.items():
            self._bound.word(name).value = tensor.data_ptr()
        for scalar in kernel.scalars:
            self._bound.scalar(scalar)[0] = scalars[scalar.name]
        self._bound.write_maps()
        for name, value in more.items():
            self.write(name, value)

    def write(self, name: str, value: int) -> None:
        """Change a number of `more` for the launches that follow."""
        self._bound.room(name, "u4")[0] = value

    def launch(self) -> None:
        """Launch on torch's current stream; only what CTAs draw numbers from is reset before."""
        for name in self._drawn:
            self.counters[name].zero_()
        self._bound.start(torch.cuda.current_stream().cuda_stream)


def values_of(kernel: kir.Kernel, grid: int, params: Mapping[str, int]) -> dict[Var, Expr]:
    """Return the value of every parameter and of `GRID`; ScheduleError if a condition is broken."""
    what = f"launch_kernel({kernel.name}, grid={grid})"
    missing = [p.name for p in kernel.params if p.name not in params]
    if missing:
        raise ScheduleError(f"{what}: no value for {', '.join(missing)}; give one in params")
    values: dict[Var, Expr] = {p: params[p.name] for p in kernel.params}
    values[kir.GRID] = grid
    if grid < 1 or grid % kernel.cluster:
        raise ScheduleError(
            f"{what}: clusters of {kernel.cluster} CTAs; use a positive multiple of it"
        )
    for condition in kernel.requires:
        if substitute(condition, values) == 0:
            given = ", ".join(f"{var} = {value}" for var, value in values.items())
            raise ScheduleError(f"{what}: needs {condition}, but {given}; change the numbers")
    return values


def _workspace(tensor: kir.Tensor, values: Mapping[Var, Expr]) -> torch.Tensor:
    nbytes = -(-elements(tensor, values) * tensor.dtype.nbytes // 16) * 16
    return torch.full((nbytes,), 0xFF, dtype=torch.uint8, device="cuda")


def check_tensors(
    kernel: kir.Kernel,
    values: Mapping[Var, Expr],
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Number],
) -> None:
    """Raise unless everything is given, of its type, aligned, and as large as the kernel says."""
    missing = [t.name for t in kernel.tensors if t.name not in tensors]
    missing += [s.name for s in kernel.scalars if s.name not in scalars]
    if missing:
        raise ScheduleError(
            f"launch_kernel({kernel.name}): nothing given for {', '.join(missing)}; "
            "add it to tensors or scalars"
        )
    stray = sorted({*tensors} - {t.name for t in kernel.tensors})
    if stray:
        raise ScheduleError(
            f"launch_kernel({kernel.name}): {', '.join(stray)} is no tensor of it:\n{text(kernel)}"
        )
    for t in kernel.tensors:
        _check_tensor(f"launch_kernel({kernel.name}): {t.name}", kernel, t, values, tensors[t.name])


def _check_tensor(
    what: str,
    kernel: kir.Kernel,
    tensor: kir.Tensor,
    values: Mapping[Var, Expr],
    given: torch.Tensor,
) -> None:
    own = str(given.dtype).removeprefix("torch.")
    if own != tensor.dtype.torch_name and tensor.name not in kernel.workspaces:
        raise ScheduleError(
            f"{what} is {own}, the kernel says {tensor.dtype.torch_name}; cast the tensor"
        )
    needed = elements(tensor, values) * tensor.dtype.nbytes
    offset = given.storage_offset() * given.element_size()
    room = given.untyped_storage().nbytes() - offset
    if needed > room:
        raise ScheduleError(
            f"{what} has {room} bytes, the kernel says {needed}; give a larger tensor"
        )
    aligned = tensor.aligned * tensor.dtype.nbytes
    steps = [number(s, values) for s in tensor.strides if s != 1]
    last = () if tensor.ragged else (number(tensor.extents[-1], values),)
    if given.data_ptr() % aligned or any(n % tensor.aligned for n in (*steps, *last)):
        raise ScheduleError(
            f"{what} at {given.data_ptr():#x}, strides {steps}, is not aligned to "
            f"{tensor.aligned} elements ({aligned} bytes) everywhere; pad its rows"
        )
