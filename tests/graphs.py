"""Random graphs of products, reductions, views and what is computed element by element."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from fuser.fusion.definition import Fusion, FusionDefinition
from oracles.reference.estimate import TORCH

Step = Callable[[Any, Any, Any], Any]


def _turned(o: Any, x: Any, _: Any) -> Any:
    half = x.logical[1].extent // 2
    return o.cat([o.neg(o.slice(x, 1, half)), o.slice(x, 1, 0, half)], 1)


def _grouped(o: Any, x: Any, _: Any) -> Any:
    wide = o.unflatten(x, 1, [-1, 8])
    return o.flatten(o.mul(wide, o.mean(wide, [2], keepdim=True)), 1, 2)


STEPS: tuple[Step, ...] = (
    lambda o, x, y: o.add(x, y),
    lambda o, x, y: o.sub(x, y),
    lambda o, x, y: o.mul(x, y),
    lambda o, x, y: o.maximum(x, y),
    lambda o, x, _: o.tanh(x),
    lambda o, x, _: o.relu(x),
    lambda o, x, _: o.sigmoid(x),
    lambda o, x, _: o.cast(x, "bf16"),
    lambda o, x, _: o.softmax(x, [1]),
    lambda o, x, _: o.sub(x, o.mean(x, [1], keepdim=True)),
    lambda o, x, y: o.mul(x, o.max(y, [0], keepdim=True)),
    lambda o, x, _: o.flatten(o.relu(o.unflatten(x, 0, [2, -1])), 0, 1),
    _turned,
    _grouped,
)
"""What is made of two tensors of one shape, in that shape."""
ENDS: tuple[Step, ...] = (
    lambda o, x, _: o.sum(x, [0], dtype="f32"),
    lambda o, x, _: o.max(x, [1]),
    lambda o, x, y: o.slice(o.add(x, y), 1, 0, 8),
)
"""What else results are."""


def graph(seed: int) -> Fusion:
    """Return the graph of a number: tensors and perhaps products, steps, and two to six results."""
    rng, fd = random.Random(seed), FusionDefinition()
    o, m, n, k = fd.ops, rng.choice([8, 24, 40]), rng.choice([16, 24, 48]), rng.choice([16, 24])
    known: list[Any] = [
        fd.define_tensor([m, n], rng.choice(["bf16", "f16", "f32"]))
        for _ in range(rng.randint(1, 3))
    ]
    for _ in range(rng.choice([0, 1, 1, 2])):
        x, w = (fd.define_tensor([rows, k], "bf16") for rows in (m, n))
        known.append(o.linear(x, w))
    ends, given = [], len(known)
    for _ in range(rng.randint(3, 9)):
        x, y = rng.choice(known[-4:]), rng.choice(known)
        if rng.random() < 0.2:
            ends.append(rng.choice(ENDS)(o, x, y))
        else:
            known.append(rng.choice(STEPS)(o, x, y))
    made = known[given:] or [o.neg(known[0])]
    ends += rng.sample(made, k=min(len(made), rng.randint(1, 3)))
    if rng.random() < 0.3:
        ends.append(o.matmul(o.cast(made[-1], "bf16"), fd.define_tensor([n, k], "bf16")))
    for tv in sorted({*ends}, key=lambda tv: tv.number):
        fd.add_output(tv)
    return fd.fusion()


def inputs(fusion: Fusion) -> list[torch.Tensor]:
    """Return normal numbers for a graph."""
    made = torch.Generator().manual_seed(1)
    shapes = [(tuple(map(int, tv.shape)), TORCH[tv.dtype]) for tv in fusion.inputs]  # type: ignore[union-attr]
    return [torch.randn(shape, generator=made).to(dtype) for shape, dtype in shapes]
