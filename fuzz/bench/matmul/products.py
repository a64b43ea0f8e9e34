"""Rows of matrix products: squares, layers, few tiles, epilogues, gated layers, prologues."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.schedule.matmul_params import SHARING_CLUSTERS, MatmulParams
from fuser.schedule.params import Meet
from fuser.schedule.products.choose import STACKED, columns_of_share
from fuzz.bench.row import Peers, Row, Tensors, autotuned, random_bf16, random_of, together
from fuzz.kernels.fusions import begin, residual

Activation = Callable[[torch.Tensor], torch.Tensor]

WAYS: tuple[tuple[Meet, int], ...] = (
    ("vectorized", 8),
    ("tma", 8),
    ("scatter", 16),
    ("last", 16),
    ("cluster", 8),
)
"""How CTAs that share a tile reduce it, and how many of them are tried."""


@dataclass(frozen=True)
class Product(Row):
    """A row: out = f(x [M, K], weights [N, K], ...), bf16; `shape` is (M, N, K), of each product.

    `ends` says what follows, and `extra` what goes in for it: "bias", "residual" or nothing.  x has
    a `dtype`, and goes through the operation `prologue` first, if any; or the `weights` have and
    do.  What is `alone` has torch beside it, nobody else.
    """

    shape: tuple[int, int, int]
    products: int = 1
    extra: str = ""
    ends: str = ""
    dtype: torch.dtype = torch.bfloat16
    prologue: str = ""
    weights: bool = False
    alone: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """M x N x K, and what follows."""
        return " x ".join(map(str, self.shape)) + f", {self.ends}" * bool(self.ends)

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
        sizes = (2, self.dtype.itemsize) if self.weights else (self.dtype.itemsize, 2)
        return sizes[0] * m * k + sizes[1] * self.products * n * k + 2 * wide * m * n

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]; weights of several products are parts of one."""
        m, n, k = self.shape
        kinds = (torch.bfloat16, self.dtype) if self.weights else (self.dtype, torch.bfloat16)
        found = [random_of(kinds[0], m, k), *random_of(kinds[1], self.products * n, k).split(n)]
        if self.extra:
            found.append(random_bf16(n) if self.extra == "bias" else random_bf16(m, n))
        return tuple(found)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some rows with torch in f64, as part of the largest."""
        (out,), few = outs, 16
        x, *rest = given
        if self.extra == "residual":
            rest[-1] = rest[-1][:few]
        (want,) = together(self.form(x[:few].double(), *(t.double() for t in rest)))
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> dict[str, MatmulParams]:
        """Return schedules worth trying."""
        out: dict[str, MatmulParams] = {}

        def add(
            tile: tuple[int, int, int], groups: int, split: str, stages: int, **more: int
        ) -> None:
            stacked = self.products > 1 and (split == "ping_pong" or tile[1] < STACKED)
            registers = {1: None, 2: (40, 232), 3: (32, 160)}[groups]
            m, n, _ = tile
            columns = next(c for c in (64, 48, 32, 16, 8) if n % c == 0)
            words = " ".join(f"{key}{value}" for key, value in more.items())
            params = MatmulParams(
                tile=tile,
                warpgroups=groups,
                split="ping_pong" if split == "ping_pong" else "cooperative",
                stages=stages,
                prefetch=more.get("prefetch", stages - 2),
                persistent=True,
                raster=more.get("raster", 8),
                columns=columns,
                registers=registers,
                stacked=stacked,
            )
            out[f"{split} {m}x{n} s{stages} {words}".strip() + " stacked" * stacked] = params

        for raster in (8, 16):
            add((128, 256 // self.products, 64), 2, "cooperative", 4, raster=raster)
        if self.products == 1:
            add((128, 192, 64), 2, "ping_pong", 4)
            add((64, 256, 64), 2, "ping_pong", 4)
            add((256, 128, 64), 2, "cooperative", 3)
        if self.products == 2:
            add((128, 96, 64), 2, "ping_pong", 4)
            wide = next(iter(out.values()))
            out["cooperative 128x128 s4 raster8 stacked"] = replace(wide, stacked=True)
            pair = out["ping_pong 128x96 s4 stacked"]
            out["ping_pong 128x96 s4"] = replace(pair, stacked=False)
        add((128, 128 // self.products, 64), 2, "ping_pong", 5)
        add((128, 128 // self.products, 64), 2, "cooperative", 6)
        add((64, 128, 64), 2, "ping_pong", 4)
        if self.weights:
            rows = min(-(-self.shape[0] // 8) * 8, 256)
            for height, groups in ((64, 1), (128, 2)):
                add((height, rows, 64), groups, "cooperative", 4)
            whole = {n: replace(p, transpose=True, prologue="registers") for n, p in out.items()}
            return out | {f"{name}, computed": params for name, params in whole.items()}
        if self.prologue:
            stored = {f"{name}, stored first": params for name, params in out.items()}
            return stored | {n: replace(p, prologue="registers") for n, p in out.items()}
        if self.shape[0] <= 256:
            add((64, 64, 64), 1, "cooperative", 8)
            add((64, 128, 64), 1, "cooperative", 6)
            add((64, 256 // self.products, 64), 1, "cooperative", 4)
        if self.shape[0] <= 512:
            out |= self._shared()
        return out

    def _shared(self) -> dict[str, MatmulParams]:
        """Schedules by which CTAs share tiles, where few tiles have a long K, in every way."""
        m, n, k = self.shape
        out: dict[str, MatmulParams] = {}
        for rows_, cols in ((64, 32), (64, 64), (64, 128), (128, 64), (128, 128)):
            tiles = -(-m // rows_) * -(-n // cols)
            if rows_ > max(m, 64) or self.products > 1:
                continue
            for meet, most in WAYS:
                splits = min(SM_90A.sms // tiles, most, k // 64 // 4)
                kept = 0
                if meet == "cluster":
                    splits = max((n for n in SHARING_CLUSTERS if n <= splits), default=1)
                    kept = 4 * rows_ * cols
                if splits < 2:
                    continue
                room = (SM_90A.smem_bytes // 1024 - 40) * 1024 - kept
                stages = room // ((rows_ + cols) * 128) - (meet == "tma")
                params = MatmulParams(
                    tile=(rows_, cols, 64),
                    warpgroups=rows_ // 64,
                    split="pipelined" if meet == "cluster" else "cooperative",
                    stages=min(8, stages),
                    prefetch=min(8, stages) - 1,
                    persistent=False,
                    columns=min(cols, 64)
                    if meet in ("vectorized", "tma")
                    else columns_of_share(cols, splits),
                    splits=splits,
                    meet=meet,
                    residency="ticket" if meet == "cluster" else "co-resident",
                )
                out[f"{rows_}x{cols} s{params.stages} {meet} x{splits}"] = params
        return out

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch, Triton for plain products, torch.compile for all others."""
        if self.alone:
            return super().peers(outs, compiled=False)
        if self.products == 1 and not self.extra and not self.prologue:
            by_tma = all(extent % 8 == 0 for extent in self.shape[1:])
            triton = _triton(outs[0]) if by_tma else {}
            return super().peers(outs, compiled=False) | triton
        found = super().peers(outs, compiled=compiled)
        if compiled:
            found["compile max-autotune"] = autotuned(self.form)
        if self.products == 2:
            stacked = torch.compile(torch_stacked, dynamic=False) if compiled else torch_stacked
            found["stacked weights"] = lambda x, gate, _: stacked(
                x, torch.as_strided(gate, (2 * gate.shape[0], gate.shape[1]), gate.stride())
            )
        return found


PROLOGUES = {
    "P1": ((8192, 512, 4096), "relu", torch.bfloat16),
    "P2": ((8192, 512, 4096), "cast", torch.float32),
    "P3": ((8192, 512, 4096), "cast", torch.int8),
    "P4": ((8192, 256, 4096), "silu", torch.bfloat16),
    "P5": ((8192, 1024, 4096), "relu", torch.bfloat16),
}
"""Products of a tensor that goes through an operation, or from another type, first."""
WEIGHTS = {
    "W1": ((16, 4096, 4096), "cast", torch.int8),
    "W2": ((64, 28672, 8192), "cast", torch.int8),
    "W3": ((256, 4096, 14336), "cast", torch.int8),
    "W4": ((1, 8192, 8192), "cast", torch.int8),
    "W5": ((32, 8192, 8192), "relu", torch.bfloat16),
    "W6": ((64, 28672, 8192), "cast", torch.float8_e4m3fn),
}
"""The same of weights."""


def plain(name: str, shape: tuple[int, int, int]) -> Product:
    """Return the row of a product, (M, N, K), and nothing else."""
    return Product(name, _plain, functional.linear, shape)


def ended(name: str, shape: tuple[int, int, int], how: str) -> Product:
    """Return the row of a product with an epilogue: an activation of it with a bias, or others.

    These are a "residual", which is added, and "gated": an activation times a second product.
    """
    if how == "residual":
        return Product(name, residual, _torch_residual, shape, extra=how, ends=how)
    if how == "gated":
        return Product(name, _gated, _torch_gated, shape, products=2, ends=how)
    form, ends = partial(_torch_biased, ACTIVATIONS[how]), f"bias + {how}"
    return Product(name, partial(_biased, how), form, shape, extra="bias", ends=ends)


def computed(
    name: str, shape: tuple[int, int, int], op: str, dtype: torch.dtype, *, weights: bool = False
) -> Product:
    """Return the row of a product whose first operand, or weights, go through an operation."""
    fusion, torchs = partial(_computed, op, dtype), _torch_computed
    if weights:
        fusion, torchs = partial(_computed_weights, op, dtype), _torch_computed_weights
    form = partial(torchs, ACTIVATIONS[op])
    return Product(name, fusion, form, shape, dtype=dtype, prologue=op, weights=weights)


def rows() -> list[Row]:
    """Return the rows G, L, S, V (few rows), E, M, P and W."""
    shapes = {
        "G1": (1024, 1024, 1024), "G2": (2048, 2048, 2048), "G3": (4096, 4096, 4096),
        "G4": (8192, 8192, 8192), "G5": (16384, 16384, 1024), "G6": (2048, 2048, 8192),
        "L1": (8192, 6144, 4096), "L2": (4096, 4096, 14336), "L3": (2048, 8192, 8192),
        "L4": (512, 28672, 8192), "L5": (4096, 24576, 1536), "L6": (128, 7168, 16384),
        "L7": (64, 18944, 3584), "L8": (16, 32064, 4096), "S1": (128, 128, 16384),
        "S2": (256, 256, 32768), "S3": (512, 512, 16384), "S4": (128, 1536, 7168),
        "S5": (64, 2112, 7168), "S6": (16, 4096, 14336), "V1": (1, 8192, 8192),
        "V2": (1, 2131, 7823), "V3": (1, 151936, 4096), "V4": (2, 12015, 4814),
        "V5": (4, 8192, 8192), "V6": (4, 28672, 8192),
    }  # fmt: skip
    out: list[Row] = [plain(*pair) for pair in shapes.items()]
    biased = {
        "E1": ((8192, 4096, 4096), "gelu_tanh"),
        "E2": ((4096, 4096, 4096), "relu"),
        "E3": ((8192, 14336, 4096), "silu"),
        "E5": ((256, 4096, 4096), "gelu_tanh"),
    }
    out += [ended(name, shape, op) for name, (shape, op) in biased.items()]
    out.insert(-1, ended("E4", (4096, 4096, 14336), "residual"))
    gated = {"M1": (8192, 14336, 4096), "M2": (2048, 18944, 3584), "M3": (128, 14336, 4096)}
    out += [ended(name, shape, "gated") for name, shape in gated.items()]
    out += [computed(name, *told) for name, told in PROLOGUES.items()]
    out += [computed(name, *told, weights=True) for name, told in WEIGHTS.items()]
    return out


def _triton(out: torch.Tensor) -> Peers:
    """Return Triton's persistent matmul in all its forms, where Triton is there."""
    if importlib.util.find_spec("triton") is None:
        return {}
    peer = importlib.import_module("fuzz.bench.matmul.triton")
    return {
        f"triton {'x'.join(map(str, config))}": lambda x, w, config=config: peer.matmul(
            x, w, out, config
        )
        for config in peer.CONFIGS
    }


# --- fusions, and what they are in torch --------------------------------------------------------


ACTIVATIONS: dict[str, Activation] = {
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "cast": lambda x: x,
}
"""In torch, by the name that each has here."""


def _plain() -> Fusion:
    fd, (x, w) = begin(2, 2)
    fd.add_output(fd.ops.linear(x, w))
    return fd.fusion()


def _biased(op: str) -> Fusion:
    fd, (x, w, bias) = begin(2, 2, 1)
    fd.add_output(getattr(fd.ops, op)(fd.ops.linear(x, w, bias)))
    return fd.fusion()


def _torch_biased(
    act: Activation, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return act(functional.linear(x, w, bias))


def _torch_residual(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w) + r


def _gated() -> Fusion:
    fd, (x, gate, up) = begin(2, 2, 2)
    fd.add_output(fd.ops.mul(fd.ops.silu(fd.ops.linear(x, gate)), fd.ops.linear(x, up)))
    return fd.fusion()


def _torch_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def torch_stacked(x: torch.Tensor, gate_and_up: torch.Tensor) -> torch.Tensor:
    """Return the gated layer by one product with both weights, stacked."""
    gate, up = functional.linear(x, gate_and_up).chunk(2, -1)
    return functional.silu(gate) * up


def _computed(op: str, dtype: torch.dtype) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype=DType.of(dtype))
    w = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    fd.add_output(fd.ops.linear(_through(fd, op, x), w))
    return fd.fusion()


def _computed_weights(op: str, dtype: torch.dtype) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    w = fd.define_tensor(shape=[-1, -1], dtype=DType.of(dtype))
    fd.add_output(fd.ops.linear(x, _through(fd, op, w)))
    return fd.fusion()


def _through(fd: FusionDefinition, op: str, x: TensorView) -> TensorView:
    return fd.ops.cast(x, "bf16") if op == "cast" else getattr(fd.ops, op)(x)


def _torch_computed(act: Activation, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.linear(act(x).to(w.dtype), w)


def _torch_computed_weights(act: Activation, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, act(w).to(x.dtype))
