"""Rows of products whose weights have 8 or 4 bits, and a number for each group along K."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.matmul_params import MatmulParams
from fuzz.bench.row import Peers, Row, Tensors, autotuned, kept, random_bf16, together

INNER_TILES = 8
"""How torch packs weights for its own kernel."""


@dataclass(frozen=True)
class Weights:
    """Weights of so many `bits`, 8 or 4; each `group` of neighbours along K times a number.

    These numbers lie along N where `by_rows` ([K / group, N]), else along K; 0: there are none.
    """

    bits: int
    group: int = 0
    by_rows: bool = True

    def __str__(self) -> str:
        """Say it in a word or two."""
        if not self.group:
            return f"i{self.bits}"
        return f"i{self.bits}, groups of {self.group}{'' if self.by_rows else ' along K'}"

    def fusion(self, n: int, k: int) -> Fusion:
        """Return the product of bf16 [-1, K] and these weights."""
        fd = FusionDefinition()
        x = fd.define_tensor(shape=[-1, k], dtype="bf16")
        w = fd.define_tensor(shape=[n, k * self.bits // 8], dtype="i8")
        made = fd.ops.cast(fd.ops.unpack(w) if self.bits == 4 else w, "bf16")
        if self.group:
            many = k // self.group
            shape = [many, n] if self.by_rows else [n, many]
            numbers = fd.define_tensor(shape=shape, dtype="bf16")
            rows = fd.ops.permute(numbers, [1, 0]) if self.by_rows else numbers
            made = fd.ops.cast(
                fd.ops.mul(made, fd.ops.repeat_interleave(rows, self.group, 1)), "bf16"
            )
        fd.add_output(fd.ops.linear(x, made))
        return fd.fusion()

    def in_bf16(self, bits: torch.Tensor, *numbers: torch.Tensor) -> torch.Tensor:
        """Return them, [N, K]."""
        if self.bits == 4:
            bits = torch.stack([bits << 4 >> 4, bits >> 4], -1).flatten(-2)
        made = bits.to(torch.bfloat16)
        for each in numbers:
            rows = each.t() if self.by_rows else each
            made = (made.unflatten(1, (-1, self.group)) * rows[..., None]).flatten(1)
        return made

    def for_torch(self, bits: torch.Tensor, numbers: torch.Tensor) -> Tensors:
        """Return what torch's own kernel multiplies: numbers and zeros as [K / group, N, 2]."""
        unsigned = (bits ^ -120).view(torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(
            unsigned << 4 | unsigned >> 4, INNER_TILES
        )
        rows = numbers if self.by_rows else numbers.t()
        return packed, torch.stack([rows, torch.zeros_like(rows)], -1).contiguous()


@dataclass(frozen=True)
class Quantized(Row):
    """A row: out [M, N] = x [M, K] times such weights [N, K], bf16; `shape` is (M, N, K).

    What is `alone` has torch beside it with weights in bf16, nobody else.
    """

    shape: tuple[int, int, int]
    weights: Weights
    alone: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """M x N x K, and of what weights."""
        return f"{' x '.join(map(str, self.shape))}, {self.weights}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product."""
        m, n, k = self.shape
        return 2 * m * n * k

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        numbers = 2 * n * k // self.weights.group if self.weights.group else 0
        return 2 * m * k + n * k * self.weights.bits // 8 + numbers + 2 * m * n

    def inputs(self) -> Tensors:
        """Return random numbers in [-1, 1], random bits, and numbers in [0.5, 1.5]."""
        m, n, k = self.shape
        width = k * self.weights.bits // 8
        bits = torch.randint(-128, 128, (n, width), device="cuda", dtype=torch.int8)
        if not self.weights.group:
            return random_bf16(m, k), bits
        many = k // self.weights.group
        numbers = random_bf16(*((many, n) if self.weights.by_rows else (n, many))) / 2 + 1
        return random_bf16(m, k), bits, numbers

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some rows with torch in f64, as part of the largest."""
        (out,), few = outs, 16
        x, *rest = given
        (want,) = together(self.form(x[:few].double(), *rest))
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> dict[str, MatmulParams]:
        """Return schedules worth trying."""
        m, columns = self.shape[0], 8
        while columns < min(m, 64):
            columns *= 2
        return {
            f"{rows} rows x {splits}": MatmulParams(
                tile=(rows, columns, 64),
                warpgroups=rows // 64,
                split="cooperative",
                stages=6,
                prefetch=5 if columns <= 32 else 4,
                persistent=False,
                columns=columns,
                registers=None,
                splits=splits,
                meet="last" if splits > 1 else "vectorized",
                prologue="registers",
                transpose=True,
            )
            for rows in (64, 128)
            for splits in (1, 2, 4)
        }

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch with weights in bf16, torch.compile, and torch's kernel for 4 bits."""
        dense = kept(self.weights.in_bf16)
        in_bf16: Peers = {"torch": lambda x, *rest: functional.linear(x, dense(*rest))}
        if self.alone or not compiled:
            return in_bf16
        found = super().peers(outs, compiled=compiled)
        found["compile max-autotune"] = autotuned(self.form)
        if self.weights.bits == 4 and self.weights.group:
            packed, group = kept(self.weights.for_torch), self.weights.group
            found["torch's int4pack"] = lambda x, *rest: _packed(x, packed(*rest), group)
        return found | {"weights in bf16": in_bf16["torch"]}


def _packed(x: torch.Tensor, weights: Tensors, group: int) -> object:
    bits, numbers = weights
    return torch.ops.aten._weight_int4pack_mm(x, bits, group, numbers)


def row(name: str, shape: tuple[int, int, int], weights: Weights, *, alone: bool = False) -> Row:
    """Return the row of a product, (M, N, K), with such weights."""
    _, n, k = shape
    fusion = partial(weights.fusion, n, k)
    return Quantized(name, fusion, partial(_torch, weights), shape, weights, alone)


def rows() -> list[Row]:
    """Return the rows Q."""
    four = Weights(4, 128)
    told = {
        "Q1": ((16, 4096, 4096), four),
        "Q2": ((8, 8192, 8192), four),
        "Q3": ((64, 28672, 8192), four),
        "Q4": ((256, 4096, 14336), four),
        "Q5": ((32, 8192, 8192), Weights(4, 128, by_rows=False)),
        "Q6": ((64, 4096, 14336), Weights(8, 128)),
    }
    return [row(name, *one) for name, one in told.items()]


def _torch(weights: Weights, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, weights.in_bf16(*rest).to(x.dtype))
