"""Kernels of Triton and Gluon: compiled for sm_90 and launched as Triton would, judged on the CPU.

Triton compiles without a GPU where it is told of one.  What it then compiles for - which pointers
are aligned, which integers are 1 - follows from the arguments, as in a launch; its parameters are
those of its own launcher.

Source: Triton 3.9, `runtime/jit.py` (JITFunction.run), `backends/nvidia/driver.py` (CudaLauncher,
make_tensordesc_arg).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

from oracles.ptx.judge import run
from oracles.ptx.launch import Argument, Buffer, Launch, Pointer, Scalar, TensorMap
from oracles.ptx.machine import POISON
from oracles.verdict import Finding, Status, Verdict

ORDERS = (0, 1, 2)
"""Seeds of the orders in which a launch is executed where none are named."""
DEVICE = -90
"""Number under which Triton keeps what it compiles for the GPU that is not there."""
NUMBERS = {"i1": "bool", "fp32": "f32", "fp64": "f64"}
NUMBERS |= {kind: kind for kind in ("i8", "u8", "i32", "u32", "i64", "u64")}
"""Types of numbers among the arguments, as Triton and as a launch calls them."""
ELEMENTS = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2", torch.int8: "i8",
    torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
"""Types of elements that tensor maps move."""
SCRATCH = ("global_scratch", "profile_scratch")
"""Memory that Triton's launcher allocates for the kernel and its profiler: it holds anything."""
SWIZZLES = (0, 32, 64, 128)
"""Bytes of a swizzle by its number in Triton's metadata (CUtensorMapSwizzle)."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What Triton made of a kernel, and a launch of it; its buffers are the memory of tensors."""

    text: str
    launch: Launch

    def judged(self, orders: Sequence[int] = ORDERS, text: str | None = None) -> Verdict:
        """Execute the launch, or one of another text, in several orders; tensors hold the last.

        Each order begins with what the tensors held.  The first verdict that is no pass is
        returned; values that depend on the order are a warning, since sums by atomics may.
        """
        buffers = self.launch.buffers
        before = {name: one.data.copy() for name, one in buffers.items()}
        first: dict[str, np.ndarray[Any, Any]] = {}
        verdict = Verdict("ptx", Status.UNKNOWN, 0, reason="no order was asked for")
        differs: set[str] = set()
        for seed in orders:
            for name, one in buffers.items():
                one.data[:] = POISON if name in SCRATCH else before[name]
            verdict = run(text or self.text, self.launch, seed=seed).verdict
            if verdict.status is not Status.PASS:
                return verdict
            kept = {name: one.data for name, one in buffers.items() if name not in SCRATCH}
            first = first or {name: data.copy() for name, data in kept.items()}
            differs |= {n for n, data in kept.items() if not np.array_equal(first[n], data)}
        if not differs:
            return verdict
        says = "values depend on the order of CTAs, warps or engines"
        found = Finding("order", ", ".join(sorted(differs)), says, severity="warning")
        return replace(verdict, findings=(*verdict.findings, found))


def judge_triton(
    kernel: Any,
    grid: Any,
    *args: Any,
    orders: Sequence[int] = ORDERS,
    config: int = 0,
    **named: Any,
) -> Verdict:
    """Judge a launch of a kernel of Triton or Gluon on the CPU: its synchronisation, its accesses.

    ``judge_triton(kernel, grid, *args, **named)`` stands for ``kernel[grid](*args, **named)``.

    Parameters
    ----------
    kernel : triton.JITFunction, or one that is autotuned or has heuristics
        What `triton.jit` or `gluon.jit` return.
    grid : tuple of int, or a function of the arguments that returns one
        CTAs along x, y, z.
    *args, **named
        What the launch is given: tensors of torch on the CPU (their bytes are the kernel's memory
        and hold what it left), NumPy arrays, numbers, host-side tensor descriptors, constants,
        and options such as `num_warps`.
    orders : sequence of int
        Seeds: 0 lets engines finish only when no thread can go on, others draw when.
    config : int
        Which configuration of an autotuned kernel.

    Returns
    -------
    Verdict
        As `oracles.ptx.judge.judge`: PASS, FAIL with witnesses, UNSUPPORTED with the names of
        instructions that are not modelled, UNKNOWN if the launch is too long.

    Raises
    ------
    ModuleNotFoundError
        Without Triton.
    TypeError, ValueError
        If the kernel is none of Triton's, or an argument cannot be on the CPU.
    """
    return compiled(kernel, grid, *args, config=config, **named).judged(orders)


def compiled(kernel: Any, grid: Any, *args: Any, config: int = 0, **named: Any) -> Compiled:
    """Return the PTX of a launch of a kernel, and the launch; as `judge_triton`."""
    args = tuple(_on_the_cpu(f"argument {n}", one) for n, one in enumerate(args))
    named = {name: _on_the_cpu(name, one) for name, one in named.items()}
    function, named = _unwrapped(kernel, args, named, config)
    with _one_gpu():
        made = function.run(*args, grid=grid, warmup=True, **named)
        *_, binder = function.device_caches[DEVICE]
        bound = binder(*args, **named)[0]
    text, facts = made.asm["ptx"], made.metadata
    memory = _Memory(list(getattr(facts, "tensordesc_meta", None) or ()))
    arguments: list[Argument] = []
    for value, kind in zip(bound.values(), made.src.signature.values(), strict=True):
        arguments += memory.arguments(value, kind)
    ctas = getattr(facts, "num_ctas", 1)
    across = _extents(grid, bound)
    # Triton's own last two: memory for the kernel and for its profiler, of every CTA.
    for name in SCRATCH:
        nbytes = getattr(facts, f"{name}_size", 0) * int(np.prod(across)) * ctas
        memory.buffers[name] = Buffer(name, np.full(nbytes, POISON, np.uint8))
        arguments.append(Pointer(name))
    threads = re.search(r"\.reqntid\s+(\d+)", text)
    block = int(threads[1]) if threads else facts.num_warps * 32
    launch = Launch(
        (across[0] * ctas, *across[1:]),
        (block, 1, 1),
        tuple(arguments),
        memory.buffers,
        facts.shared,
        cluster=ctas,
        dependent=bool(getattr(facts, "launch_pdl", False)),
    )
    return Compiled(text, launch)


def _on_the_cpu(name: str, value: Any) -> Any:
    """Return a value as a launch takes it; TypeError for a tensor of another device."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    tensor = getattr(value, "base", value)
    if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
        raise TypeError(
            f"judge_triton({name} on {tensor.device}): the judge executes on the CPU; "
            f"pass {name}.cpu()"
        )
    return value


def _unwrapped(
    kernel: Any, args: tuple[Any, ...], named: dict[str, Any], config: int
) -> tuple[Any, dict[str, Any]]:
    """Return the function behind autotuning and heuristics, and the constants that they choose."""
    while not hasattr(kernel, "device_caches"):
        if hasattr(kernel, "configs"):
            if not 0 <= config < len(kernel.configs):
                raise ValueError(
                    f"judge_triton(config={config}): the kernel has {len(kernel.configs)} "
                    f"configurations; use 0..{len(kernel.configs) - 1}"
                )
            named = named | kernel.configs[config].all_kwargs()
        elif hasattr(kernel, "values") and hasattr(kernel, "fn"):
            for name, chosen in kernel.values.items():
                known = dict(zip(kernel.arg_names, args, strict=False))
                named = named | {name: chosen(known | named)}
        else:
            raise TypeError(
                f"judge_triton({kernel!r}): no kernel of Triton; pass what triton.jit returns"
            )
        kernel = kernel.fn
    return kernel, named


def _extents(
    grid: Sequence[int] | Callable[[Mapping[str, Any]], Sequence[int]], bound: Mapping[str, Any]
) -> tuple[int, int, int]:
    """Return CTAs along x, y, z; ValueError if they are not 1 to 3 positive numbers."""
    along = tuple(grid(bound) if callable(grid) else grid)
    if not 1 <= len(along) <= 3 or any(int(n) < 1 for n in along):
        raise ValueError(f"judge_triton(grid={along}): a grid is 1 to 3 numbers of CTAs, each >= 1")
    x, y, z = (*(int(n) for n in along), 1, 1)[:3]
    return x, y, z


@dataclass(slots=True)
class _Memory:
    """The memory behind arguments: one buffer for each storage, so that views share it.

    `maps` says what tensor maps are like, in the order of descriptors among the arguments.
    """

    maps: list[Mapping[str, Any]]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def arguments(self, value: Any, kind: Any) -> Iterator[Argument]:
        """Yield the parameters that stand for an argument; constants have none."""
        if isinstance(kind, tuple):
            for one, its in zip(value, kind, strict=True):
                yield from self.arguments(one, its)
        elif kind.startswith("tensordesc"):
            yield from self._described(value)
        elif kind.startswith("*"):
            yield self._pointer(value)
        elif kind in NUMBERS:
            yield Scalar(value, NUMBERS[kind])
        elif kind != "constexpr":
            raise TypeError(f"judge_triton: numbers of type {kind} are not passed; use i32 or fp32")

    def _pointer(self, tensor: Any) -> Pointer:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"judge_triton({tensor!r}): no tensor of torch; pass one on the CPU")
        storage = tensor.untyped_storage()
        name = self.names.setdefault(storage.data_ptr(), f"memory {len(self.names)}")
        if name not in self.buffers:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.buffers[name] = Buffer(name, raw.numpy())
        return Pointer(name, int(tensor.storage_offset()) * tensor.element_size())

    def _described(self, given: Any) -> Iterator[Argument]:
        """Yield a tensor map, extents and strides of a descriptor."""
        facts = self.maps.pop(0) if self.maps else None
        if facts is None or facts.get("fp4_padded") or facts.get("is_im2col"):
            raise TypeError("judge_triton: only tiled tensor maps made by the host are known")
        if getattr(given, "round_f32_to_tf32", False):  # since Triton 3.9
            raise TypeError("judge_triton: tensor maps that round to tf32 are not known")
        place, size = self._pointer(given.base), given.base.element_size()
        yield TensorMap(
            place.buffer,
            ELEMENTS[given.base.dtype],
            tuple(reversed(given.shape)),
            tuple(stride * size for stride in reversed(given.strides[:-1])),
            tuple(reversed(facts["block_size"])),
            SWIZZLES[facts["swizzle"]],
            place.offset,
            nan=given.padding == "nan",
        )
        yield from (Scalar(n, "i32") for n in given.shape)
        yield from (Scalar(n, "i64") for n in given.strides)


class _Hopper:
    """What Triton asks of the driver of a GPU to compile for one: sm_90."""

    def get_current_device(self) -> int:
        return DEVICE

    def get_current_stream(self, device: int) -> int:
        del device
        return 0

    def get_current_target(self) -> Any:
        return import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def _one_gpu() -> Iterator[None]:
    """Let Triton compile for a Hopper GPU, and be as before afterwards."""
    try:
        driver = import_module("triton.runtime").driver
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"judge_triton: {error}; pip install triton") from error
    before = {**vars(driver)}
    driver.set_active(_Hopper())
    try:
        yield
    finally:
        vars(driver).update(before)
