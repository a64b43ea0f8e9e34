"""Running one Kernel, such as one written by hand, on a device: compile, encode, launch.

Everything is looked up anew in each call, so this is for tests and experiments; `launch`
is the cheap way for compiled fusions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from cuda.bindings import driver
from cupy_backends.cuda.api import driver as launcher

from fuser.codegen import cuda
from fuser.codegen.expr import REGISTER
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import TensorMap, maps_of
from fuser.kernel.text import text
from fuser.runtime.launch import Number, encode, load_function, most_at_once, start
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.scratch import counts, elements, number

PORTABLE_CLUSTER = 8
"""CTAs of a cluster that every Hopper GPU takes; up to 16 only where the function allows it."""
_LINE = 64
"""Bytes between arguments; a tensor map is aligned to so many, and takes two."""
_NUMPY = {"double": "f8", "float": "f4", "int": "i4", "int64": "i8", "bool": "?"}


def launch_kernel(
    kernel: kir.Kernel,
    grid: int,
    params: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Number] | None = None,
    *,
    defines: tuple[str, ...] = (),
) -> dict[str, torch.Tensor]:
    """Launch a kernel on torch's current stream.

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

    Returns
    -------
    dict
        Semaphores and ticket, which are 0 again once the kernel has ended; and workspaces that
        were left out.

    Raises
    ------
    ScheduleError
        If a name is missing, a condition of the kernel is broken, or the device has not room.
    """
    prepared = Prepared(kernel, grid, params, tensors, scalars, defines=defines)
    prepared.launch()
    return {**prepared.counters, **prepared.workspaces}


class Prepared:
    """A kernel with all that a launch needs, to be launched again and again on the same memory.

    Parameters
    ----------
    kernel, grid, params, tensors, scalars, defines
        As for `launch_kernel`.
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
        As `launch_kernel`.
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
        values = values_of(kernel, grid, params)
        self.workspaces = {
            t.name: _workspace(t, values) for t in kernel.tensors
            if t.name in kernel.workspaces and t.name not in tensors
        }  # fmt: skip
        given = {**tensors, **self.workspaces}
        check_tensors(kernel, values, given, scalars or {})
        self.counters = {
            name: torch.zeros(many, dtype=torch.int32, device="cuda")
            for name, many in counts(kernel, values).items()
        }
        cubin = compile_cubin(source or cuda.source(kernel), defines=defines)
        self._function = load_function(cubin, kernel, torch.cuda.current_device())
        self._together = kernel.residency == "co-resident"
        self._check(kernel, grid if self._together else number(kernel.together, values))
        self._shape = (grid, 1, 1, kernel.threads, 1, 1, cuda.shared_bytes(kernel))
        self._kept = given  # alive as long as their addresses are used
        self._arguments = arguments = _Arguments([*cuda.parameters(kernel), *(more or {})])
        for name, tensor in {**given, **self.counters}.items():
            arguments.write(name, "i8", tensor.data_ptr())
        for param in kernel.params:
            wide = cuda.is_wide(kernel, param)
            arguments.write(param.name, "i8" if wide else "i4", number(param, values))
        for scalar in kernel.scalars:
            value = (scalars or {})[scalar.name]
            arguments.write(scalar.name, _NUMPY[REGISTER[scalar.dtype]], value)
        for tensor_map in maps_of(kernel):
            address = given[tensor_map.tensor.name].data_ptr()
            arguments.copy(tensor_map.name, encoded(tensor_map, values, address))
        for name, value in (more or {}).items():
            self.write(name, value)

    def _check(self, kernel: kir.Kernel, together: int) -> None:
        """Ask the device for room: for large clusters, and for all CTAs at once."""
        if kernel.cluster > PORTABLE_CLUSTER:
            launcher.funcSetAttribute(
                self._function.ptr,
                driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                1,
            )
        if together > 1:
            _check_residency(kernel, together, self._function.ptr)

    def write(self, name: str, value: int) -> None:
        """Change a number of `more` for the launches that follow."""
        self._arguments.write(name, "u4", value)

    def launch(self) -> None:
        """Launch on torch's current stream; nothing is reset before or after."""
        stream = torch.cuda.current_stream().cuda_stream
        pointers = self._arguments.pointers.ctypes.data
        start(self._function.ptr, self._shape, stream, pointers, together=self._together)


def values_of(kernel: kir.Kernel, grid: int, params: Mapping[str, int]) -> dict[Var, Expr]:
    """Return the value of every parameter and of `GRID`, after checking the kernel's conditions.

    Raises
    ------
    ScheduleError
        Naming what is missing, or the condition that is broken.
    """
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


def encoded(tensor_map: TensorMap, values: Mapping[Var, Expr], address: int) -> bytes:
    """Return the bytes of a tensor map for the tensor at an address."""
    tensor = tensor_map.tensor
    dims = tuple(number(tensor.extents[axis], values) for axis in tensor_map.axes)
    steps = tuple(
        number(tensor.strides[axis], values) * tensor.dtype.nbytes for axis in tensor_map.axes[1:]
    )
    return encode(
        tensor.name, tensor.dtype, address, dims, steps, tensor_map.box, tensor_map.swizzle
    )


class _Arguments:
    """One block of argument values, and a pointer to each in the order of the parameters."""

    def __init__(self, names: Sequence[str]) -> None:
        raw = np.zeros(_LINE * (2 * len(names) + 1), dtype=np.uint8)
        skip = -raw.ctypes.data % _LINE
        self._raw = raw[skip:]
        self._offsets = {name: 2 * _LINE * n for n, name in enumerate(names)}
        base = self._raw.ctypes.data
        offsets = [base + self._offsets[name] for name in names]
        self.pointers = np.array(offsets, dtype=np.uint64)

    def write(self, name: str, dtype: str, value: Number) -> None:
        """Write a number."""
        at = self._offsets[name]
        self._raw[at : at + 8].view(dtype)[0] = value

    def copy(self, name: str, content: bytes) -> None:
        """Write the bytes of a structure."""
        at = self._offsets[name]
        self._raw[at : at + len(content)] = np.frombuffer(content, dtype=np.uint8)


def _workspace(tensor: kir.Tensor, values: Mapping[Var, Expr]) -> torch.Tensor:
    """Return memory with nothing sensible in it."""
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
    if given.data_ptr() % aligned or any(
        n % tensor.aligned for n in (*steps, number(tensor.extents[-1], values))
    ):
        raise ScheduleError(
            f"{what} at {given.data_ptr():#x}, strides {steps}, is not aligned to "
            f"{tensor.aligned} elements ({aligned} bytes) everywhere; pad its rows"
        )


def _check_residency(kernel: kir.Kernel, many: int, function: int) -> None:
    most = most_at_once(kernel, function, torch.cuda.current_device())
    if many > most:
        raise ScheduleError(
            f"launch_kernel({kernel.name}): {many} CTAs must run at once, the device takes "
            f"{most}; use at most {most} together"
        )
