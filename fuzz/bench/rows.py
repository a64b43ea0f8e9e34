"""Rows of the benchmark table of matrix products: shapes, our fusions, and the same in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView

Tensors = tuple[torch.Tensor, ...]
Form = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One case: out = f(x [M, K], weights [N, K], ...), bf16.

    Parameters
    ----------
    shape : tuple of int
        M, N and K.
    products : int
        How many products of that shape.
    extra : str
        What else goes in: "bias", "residual" or nothing.
    dtype : dtype
        Type of x.
    prologue : str
        The operation that x goes through first, if any.
    form : callable
        The same in torch, on inputs in the order of the fusion's.
    fusion : callable
        Makes our fusion.
    """

    name: str
    shape: tuple[int, int, int]
    form: Form
    fusion: Callable[[], Fusion]
    products: int = 1
    extra: str = ""
    dtype: torch.dtype = torch.bfloat16
    prologue: str = ""

    @property
    def flops(self) -> int:
        """Floating-point operations of the products."""
        m, n, k = self.shape
        return 2 * m * n * k * self.products

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        wide = 2 if self.extra == "residual" else 1
        return m * k * self.dtype.itemsize + 2 * (self.products * n * k + wide * m * n)

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]."""
        m, n, k = self.shape
        x = torch.rand(m, k, device="cuda") * 2 - 1
        x = (x * 100 if self.dtype is torch.int8 else x).to(self.dtype)
        found = [x, *(_random(n, k) for _ in range(self.products))]
        if self.extra:
            found.append(_random(n) if self.extra == "bias" else _random(m, n))
        return tuple(found)


def _random(*shape: int) -> torch.Tensor:
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(torch.bfloat16)


_NAMES = {torch.bfloat16: "bf16", torch.float32: "f32", torch.int8: "i8"}
PROLOGUES = {
    "P1": ((8192, 512, 4096), "relu", torch.bfloat16),
    "P2": ((8192, 512, 4096), "cast", torch.float32),
    "P3": ((8192, 512, 4096), "cast", torch.int8),
    "P4": ((8192, 256, 4096), "silu", torch.bfloat16),
    "P5": ((8192, 1024, 4096), "relu", torch.bfloat16),
}
"""Products of a tensor that goes through an operation, or from another type, first."""


def rows() -> list[Row]:
    """Return the table: squares, layers, few tiles, epilogues, gated layers, prologues."""
    plain = {
        "G1": (1024, 1024, 1024),
        "G2": (2048, 2048, 2048),
        "G3": (4096, 4096, 4096),
        "G4": (8192, 8192, 8192),
        "G5": (16384, 16384, 1024),
        "G6": (2048, 2048, 8192),
        "L1": (8192, 6144, 4096),
        "L2": (4096, 4096, 14336),
        "L3": (2048, 8192, 8192),
        "L4": (512, 28672, 8192),
        "L5": (4096, 24576, 1536),
        "L6": (128, 7168, 16384),
        "L7": (64, 18944, 3584),
        "L8": (16, 32064, 4096),
        "S1": (128, 128, 16384),
        "S2": (256, 256, 32768),
        "S3": (512, 512, 16384),
        "S4": (128, 1536, 7168),
        "S5": (64, 2112, 7168),
        "S6": (16, 4096, 14336),
    }
    out = [Row(name, shape, functional.linear, _plain) for name, shape in plain.items()]
    biased = {
        "E1": ((8192, 4096, 4096), "gelu_tanh"),
        "E2": ((4096, 4096, 4096), "relu"),
        "E3": ((8192, 14336, 4096), "silu"),
        "E5": ((256, 4096, 4096), "gelu_tanh"),
    }
    for name, (shape, op) in biased.items():
        out.append(Row(name, shape, _torch_biased(op), _biased(op), extra="bias"))
    residual = Row("E4", (4096, 4096, 14336), _torch_residual, _residual, extra="residual")
    out.insert(-1, residual)
    gated = {"M1": (8192, 14336, 4096), "M2": (2048, 18944, 3584), "M3": (128, 14336, 4096)}
    out += [Row(name, shape, _torch_gated, _gated, products=2) for name, shape in gated.items()]
    for name, (shape, op, dtype) in PROLOGUES.items():
        form, fusion = _torch_computed(op), _computed(op, dtype)
        out.append(Row(name, shape, form, fusion, dtype=dtype, prologue=op))
    return out


# --- fusions, and what they are in torch --------------------------------------------------------


def _begin(products: int = 1) -> tuple[FusionDefinition, TensorView, list[TensorView]]:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    weights = [fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(products)]
    return fd, x, weights


def _plain() -> Fusion:
    fd, x, (w,) = _begin()
    fd.add_output(fd.ops.linear(x, w))
    return fd.fusion()


def _biased(op: str) -> Callable[[], Fusion]:
    def make() -> Fusion:
        fd, x, (w,) = _begin()
        bias = fd.define_tensor(shape=[-1], dtype="bf16")
        fd.add_output(getattr(fd.ops, op)(fd.ops.linear(x, w, bias)))
        return fd.fusion()

    return make


def _torch_biased(op: str) -> Form:
    acts: dict[str, Form] = {
        "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
        "relu": functional.relu,
        "silu": functional.silu,
    }
    act = acts[op]
    return lambda x, w, b: act(functional.linear(x, w, b))


def _residual() -> Fusion:
    fd, x, (w,) = _begin()
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    fd.add_output(fd.ops.add(fd.ops.linear(x, w), r))
    return fd.fusion()


def _torch_residual(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w) + r


def _gated() -> Fusion:
    fd, x, (gate, up) = _begin(2)
    fd.add_output(fd.ops.mul(fd.ops.silu(fd.ops.linear(x, gate)), fd.ops.linear(x, up)))
    return fd.fusion()


def _torch_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def torch_stacked(x: torch.Tensor, gate_and_up: torch.Tensor) -> torch.Tensor:
    """Return the gated layer by one product with both weights, stacked."""
    gate, up = functional.linear(x, gate_and_up).chunk(2, -1)
    return functional.silu(gate) * up


def _computed(op: str, dtype: torch.dtype) -> Callable[[], Fusion]:
    def make() -> Fusion:
        fd = FusionDefinition()
        x = fd.define_tensor(shape=[-1, -1], dtype=_NAMES[dtype])
        w = fd.define_tensor(shape=[-1, -1], dtype="bf16")
        a = fd.ops.cast(x, "bf16") if op == "cast" else getattr(fd.ops, op)(x)
        fd.add_output(fd.ops.linear(a, w))
        return fd.fusion()

    return make


def _torch_computed(op: str) -> Form:
    acts: dict[str, Form] = {
        "relu": functional.relu,
        "silu": functional.silu,
        "cast": lambda x: x,
    }
    act = acts[op]
    return lambda x, w: functional.linear(act(x).to(w.dtype), w)
