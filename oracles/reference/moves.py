"""What the reference computes for operations that only move elements, or repeat one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuser.fusion.definition import TensorView
from oracles.reference.estimate import Estimate

Args = tuple[Estimate, ...]
Row = Callable[[TensorView, Args, tuple[int, ...]], Estimate]


def _reshapes(function: Callable[[TensorView, torch.Tensor, tuple[int, ...]], torch.Tensor]) -> Row:
    """Move elements; all parts of the estimate go the same way."""

    def row(tv: TensorView, args: Args, shape: tuple[int, ...]) -> Estimate:
        (x,) = args
        full = x.value.shape
        return Estimate(
            x.dtype,
            function(tv, x.value, shape),
            function(tv, x.error.expand(full), shape),
            function(tv, x.undecided.expand(full), shape),
        )

    return row


def _full(tv: TensorView, args: Args, shape: tuple[int, ...]) -> Estimate:
    (x,) = args
    return Estimate(x.dtype, x.value.expand(shape), x.error, x.undecided)


MOVES: dict[str, Row] = {
    "broadcast": _reshapes(lambda tv, x, shape: x.reshape(shape)),
    "expand": _reshapes(lambda tv, x, shape: x.expand(shape)),
    "squeeze": _reshapes(lambda tv, x, shape: x.reshape(shape)),
    "permute": _reshapes(lambda tv, x, shape: x.permute(*map(int, dict(tv.attrs)["dims"]))),
    "full": _full,
}
"""Rows of the table of operations."""
