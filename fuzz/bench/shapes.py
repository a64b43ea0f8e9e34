"""Rows of shapes drawn at random, between those of the tables: no heuristic was fitted to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, log, prod
from statistics import geometric_mean, quantiles

import torch
from rich.table import Table
from torch.nn import functional

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuzz.bench import norms, pointwise, reductions
from fuzz.bench.matmul import batched, grouped, layouts, products, quantized, scaled
from fuzz.bench.matmul.quantized import Weights
from fuzz.bench.row import Row
from fuzz.campaign.record import DEFAULT

ROWS, COLS = (16, 200_000), (16, 130_000)
"""Least and most rows and columns; both are drawn with all sizes alike likely, on a log scale."""
HEIGHTS, DEPTHS = (1, 16_384), (64, 32_768)
"""Least and most rows of a product's first operand; and of its second, or elements to sum."""
FEW, LAYERS = (1, 2048), (512, 16_384)
"""Rows of the other operand, least and most, where one is computed; and its own, or elements to
sum."""
BLOCKS, MATRICES = (4, 128), (2, 64)
"""Blocks of rows that have a matrix each, least and most, and how many matrices there are."""
BLOCK = (16, 32, 64, 128)
"""Rows of such a block."""
WEIGHTS = tuple(
    Weights(bits, group, by_rows)
    for bits in (8, 4)
    for group, by_rows in ((0, True), (64, True), (128, True), (128, False))
)
"""Weights of 8 and 4 bits."""
COMPUTED = (
    ("cast", torch.int8),
    ("cast", torch.float8_e4m3fn),
    ("cast", torch.float32),
    ("relu", torch.bfloat16),
    ("silu", torch.bfloat16),
)
"""What an operand goes through, and from what type."""
EPILOGUES = ("gelu_tanh", "silu", "relu", "residual", "gated")
"""What follows a product."""
BATCHES, ROWS_EACH, INNER = (2, 512), (1, 4096), (16, 8192)
"""Matrices of a batch, least and most; rows and columns of their results; and elements to sum."""
MOST_FLOPS = 2e12
"""Of a batch of products."""
ODD = 1 / 3
"""Share of odd rows; the others are multiples of 8.  Of products a third are no multiples of 64,
and two thirds of these none of 8."""
MOST_BYTES = 2 << 30
"""Largest matrix."""
WORST = 5
"""Shapes that are named in the summary of a kind."""


def rows(count: int, seed: int) -> Iterator[Row]:
    """Yield so many rows of each kind; their names begin with that of the kind."""
    for kind, make in KINDS.items():
        rng = random.Random(f"{seed} {kind}")
        yield from (make(f"{kind}{n}", rng) for n in range(count))


def _extent(rng: random.Random, least: int, most: int) -> int:
    return int(exp(rng.uniform(log(least), log(most))))


def _shape(rng: random.Random) -> tuple[int, int]:
    while True:
        many, long = _extent(rng, *ROWS), _extent(rng, *COLS)
        long = long | 1 if rng.random() < ODD else long // 8 * 8
        if 2 * many * long <= MOST_BYTES:
            return many, long


def summary(measured: Mapping[str, Mapping[str, float]], every: Sequence[Row]) -> Table:
    """Return per kind how the default compares with the best peer, and the worst shapes."""
    shown = Table("kind", "shapes", "geometric mean", "5th percentile", "worst")
    shown.title = "Time of the best peer by that of the default schedule, shapes drawn at random"
    for kind in KINDS:
        mine = [row for row in every if row.name.rstrip("0123456789") == kind]
        ratios = {row.says: _ratio(measured[row.name]) for row in mine if row.name in measured}
        if not ratios:
            continue
        low = quantiles([*ratios.values()] * 2, n=20, method="inclusive")[0]
        worst = sorted(ratios.items(), key=lambda pair: pair[1])[:WORST]
        shown.add_row(
            kind,
            str(len(ratios)),
            f"{geometric_mean(ratios.values()):.3f}",
            f"{low:.3f}",
            "\n".join(f"{ratio:.2f} {says}" for says, ratio in worst),
        )
    return shown


def _ratio(times: Mapping[str, float]) -> float:
    """Return the best peer's time by the default's; 0 if that was refused."""
    peers = [t for name, t in times.items() if not name.startswith("ours")]
    return min(peers) / times[DEFAULT] if DEFAULT in times else 1e-3


def _reduction(dims: tuple[int, ...], name: str, rng: random.Random) -> Row:
    return reductions.row(name, _shape(rng), dims, "sum")


def _normal(kind: str, name: str, rng: random.Random) -> Row:
    return replace(norms.row(name, kind, _shape(rng), torch.bfloat16), tuned=False)


def _product(name: str, rng: random.Random) -> Row:
    return replace(products.plain(name, _drawn(rng)), alone=True)


def _layout(name: str, rng: random.Random) -> Row:
    """Return a product of which an operand, or both, do not lie along K."""
    turned = rng.choice(((False, True), (True, False), (True, True)))
    return layouts.row(name, _drawn(rng), turned, alone=True)


def _typed(name: str, rng: random.Random) -> Row:
    """Return a product of f32, by tf32, or of f16, whose operands lie along any axis."""
    turned = rng.random() < 1 / 2, rng.random() < 1 / 2
    while True:
        dtype, shape = rng.choice((torch.float32, torch.float32, torch.float16)), _drawn(rng)
        if 2.0 * prod(shape) <= MOST_FLOPS:
            return layouts.row(name, shape, turned, dtype=dtype, alone=True)


def _drawn(rng: random.Random) -> tuple[int, int, int]:
    """Return M, N and K, of which a third are no multiples of 64."""
    n, k = _extent(rng, *DEPTHS), _extent(rng, *DEPTHS)
    if rng.random() >= ODD:
        n, k = n // 64 * 64, k // 64 * 64
    elif rng.random() < ODD:
        n, k = n // 8 * 8, k // 8 * 8
    return _extent(rng, *HEIGHTS), n, k


def _batched(name: str, rng: random.Random) -> Row:
    """Return products of many matrices, as they lie one behind the other, or side by side."""
    while True:
        b, m = _extent(rng, *BATCHES), _extent(rng, *ROWS_EACH)
        n, k = _extent(rng, *ROWS_EACH), _extent(rng, *INNER)
        if rng.random() >= ODD:
            n, k = -(-n // 8) * 8, -(-k // 16) * 16
        flops, nbytes = 2.0 * b * m * n * k, 2 * b * max(m * k, n * k, m * n)
        if flops <= MOST_FLOPS and nbytes <= MOST_BYTES:
            turned, between = rng.random() < 1 / 2, rng.random() < ODD
            return batched.row(name, (b, m, n, k), turned=turned, between=between, alone=True)


def _ended(name: str, rng: random.Random) -> Row:
    """Return a product with an epilogue."""
    return replace(products.ended(name, _drawn(rng), rng.choice(EPILOGUES)), alone=True)


def _scaled(name: str, rng: random.Random) -> Row:
    """Return a product of 8-bit operands; torch takes rows of i8 beyond 16, and whole chunks."""
    dtype = rng.choice(scaled.TYPES)
    n, k = (_extent(rng, *DEPTHS) // 16 * 16 for _ in range(2))
    m = _extent(rng, *HEIGHTS)
    return scaled.row(name, (max(m, 17) if dtype is torch.int8 else m, n, k), dtype, alone=True)


def _computed(name: str, rng: random.Random) -> Row:
    """Return a product of which one operand is computed, and the other one has few rows."""
    told = rng.choice(COMPUTED)
    few, rest = _extent(rng, *FEW), [_extent(rng, *LAYERS) // 64 * 64 for _ in range(2)]
    weights = rng.random() < 1 / 2
    m, n = (few, rest[0]) if weights else (rest[0], -(-few // 8) * 8)
    return replace(products.computed(name, (m, n, rest[1]), *told, weights=weights), alone=True)


def _quantized(name: str, rng: random.Random) -> Row:
    """Return a product with weights of few bits."""
    few, (n, k) = _extent(rng, *FEW), (_extent(rng, *LAYERS) // 128 * 128 for _ in range(2))
    return quantized.row(name, (few, n, k), rng.choice(WEIGHTS), alone=True)


def _grouped(name: str, rng: random.Random) -> Row:
    """Return a product of blocks of rows, each by one of several matrices."""
    while True:
        many, groups = _extent(rng, *BLOCKS), _extent(rng, *MATRICES)
        n, k = (_extent(rng, *LAYERS) // 64 * 64 for _ in range(2))
        if 2 * max(many, groups) * n * k <= MOST_BYTES:  # torch takes one for each block
            shape = many, rng.choice(BLOCK), groups, n, k
            return grouped.row(name, shape, turned=rng.random() < 1 / 2, alone=True)


def _broadcast(name: str, rng: random.Random) -> Row:
    shape = _shape(rng)
    says = f"silu(x + bias) + r, {shape[0]} x {shape[1]}"
    shapes = (shape, shape[1:], shape)
    return pointwise.Pointwise(name, _fusion, _torch, says, shapes, roof=False)


def _fusion() -> Fusion:
    fd = FusionDefinition()
    x, bias = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1], "bf16")
    r = fd.define_tensor([-1, -1], "bf16")
    biased = fd.ops.add(x, fd.ops.broadcast(bias, [True, False]))
    fd.add_output(fd.ops.add(fd.ops.silu(biased), r))
    return fd.fusion()


def _torch(x: torch.Tensor, bias: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return functional.silu(x + bias) + r


KINDS: dict[str, Callable[[str, random.Random], Row]] = {
    "rowsum": partial(_reduction, (1,)),
    "colsum": partial(_reduction, (0,)),
    "pointwise": _broadcast,
    "softmax": partial(_normal, "softmax"),
    "layernorm": partial(_normal, "layer_norm"),
    "product": _product,
    "computed": _computed,
    "quantized": _quantized,
    "grouped": _grouped,
    "layout": _layout,
    "typed": _typed,
    "batched": _batched,
    "ended": _ended,
    "scaled": _scaled,
}
"""Kinds of rows that are drawn, by name."""
