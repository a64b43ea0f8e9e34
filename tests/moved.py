"""Fusions that take parts of tensors, join them, or give them other axes; and torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, Ops
from oracles.reference.estimate import TORCH

SHAPES = [(5, 12), (1, 12), (0, 12), (129, 24), (1000, 4104)]
Ours = Callable[[Ops, Any, int], Any]
Torchs = Callable[[torch.Tensor, int], Any]


def _rotated(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.cat([-x[:, n // 2 :], x[:, : n // 2]], 1)


def _halves(o: Ops, x: Any, n: int) -> Any:
    y = o.add(x, x)
    return o.mul(o.slice(y, 1, 0, n // 2), o.slice(y, 1, n // 2, n))


def _index(o: Ops, x: Any, n: int) -> Any:
    return o.remainder(o.cast(x, "i64"), n)


def _joined_and_used(o: Ops, x: Any, n: int) -> Any:
    both = o.cat([o.neg(x), o.slice(x, 1, 1, 4)], 1)
    return both, o.neg(both)


def _groups(o: Ops, x: Any, n: int) -> Any:
    return o.flatten(o.neg(o.unflatten(x, 1, [3, -1])), 1, 2)


def _unpacked(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x << 4 >> 4, x >> 4], -1).flatten(1)


MOVED: dict[str, tuple[Ours, Torchs]] = {
    "slice": (lambda o, x, n: o.neg(o.slice(x, 1, 2, 9)), lambda x, n: -x[:, 2:9]),
    "slice from the end": (lambda o, x, n: o.slice(x, -1, -5, -1), lambda x, n: x[:, -5:-1]),
    "steps": (lambda o, x, n: o.slice(x, 1, 1, n, 3), lambda x, n: x[:, 1::3]),
    "no elements": (lambda o, x, n: o.slice(x, 1, 4, 4), lambda x, n: x[:, 4:4]),
    "slice of a slice": (
        lambda o, x, n: o.neg(o.slice(o.slice(x, 1, 1, 9), 1, 2, 7, 2)),
        lambda x, n: -x[:, 1:9][:, 2:7:2],
    ),
    "slice of a result": (lambda o, x, n: o.slice(o.neg(x), 1, 3, 8), lambda x, n: -x[:, 3:8]),
    "product of halves": (_halves, lambda x, n: (2 * x)[:, : n // 2] * (2 * x)[:, n // 2 :]),
    "cat": (
        lambda o, x, n: o.cat([x, o.slice(x, 1, 1, 4)], 1),
        lambda x, n: torch.cat([x, x[:, 1:4]], 1),
    ),
    "rotate": (
        lambda o, x, n: o.cat([o.neg(o.slice(x, 1, n // 2, n)), o.slice(x, 1, 0, n // 2)], 1),
        _rotated,
    ),
    "cat of results": (
        lambda o, x, n: o.cat([o.max(x, [1], True), o.neg(x)], 1),
        lambda x, n: torch.cat([x.amax(1, True), -x], 1),
    ),
    "cat that is used": (
        _joined_and_used,
        lambda x, n: (torch.cat([-x, x[:, 1:4]], 1), torch.cat([x, -x[:, 1:4]], 1)),
    ),
    "repeat_interleave": (
        lambda o, x, n: o.repeat_interleave(o.neg(x), 3, 1),
        lambda x, n: (-x).repeat_interleave(3, 1),
    ),
    "unpack": (lambda o, x, n: o.unpack(o.cast(x, "i8")), lambda x, n: _unpacked(x.to(torch.int8))),
    "unflatten": (
        lambda o, x, n: o.max(o.unflatten(x, 1, [-1, 4]), [2]),
        lambda x, n: x.unflatten(1, (-1, 4)).amax(2),
    ),
    "flatten": (_groups, lambda x, n: -x),
    "flatten, transposed": (
        lambda o, x, n: o.flatten(o.permute(o.unflatten(x, 1, [4, -1]), [0, 2, 1]), 1, 2),
        lambda x, n: x.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2),
    ),
    "flatten a slice": (
        lambda o, x, n: o.neg(o.flatten(o.slice(o.unflatten(x, 1, [4, -1]), 2, 0, 2), 1, 2)),
        lambda x, n: -x.unflatten(1, (4, -1))[..., :2].flatten(1, 2),
    ),
    "reshape": (
        lambda o, x, n: o.neg(o.reshape(o.unflatten(x, 1, [3, -1]), [x.shape[0], 1, 4, -1])),
        lambda x, n: -x.reshape(x.shape[0], 1, 4, n // 4),
    ),
    "select": (lambda o, x, n: o.select(x, 1, -1), lambda x, n: x[:, -1]),
    "pad": (
        lambda o, x, n: o.pad(x, [2, 3], 1),
        lambda x, n: functional.pad(x, [2, 3], value=1),
    ),
    "flip": (lambda o, x, n: o.flip(o.neg(x), [1]), lambda x, n: -x.flip(1)),
    "index_select": (
        lambda o, x, n: o.neg(o.index_select(x, 1, o.iota(n // 2, n - 2, -2))),
        lambda x, n: -x[:, torch.arange(n // 2) * -2 + n - 2],
    ),
    "embedding": (
        lambda o, x, n: o.sum(
            o.embedding(_index(o, x, n), o.unflatten(o.iota(3 * n), 0, [n, 3])), [2]
        ),
        lambda x, n: 9 * x.long().remainder(n) + 3,
    ),
    "gather": (
        lambda o, x, n: o.add(o.gather(x, -1, _index(o, x, n)), x),
        lambda x, n: x.gather(1, x.long().remainder(n)) + x,
    ),
    "gather of a result": (
        lambda o, x, n: o.gather(o.max(x, [1], True), 0, o.mul(_index(o, x, n), 0)),
        lambda x, n: x.amax(1, True)[:1].expand(x.shape),
    ),
    "pad less": (
        lambda o, x, n: o.neg(o.pad(x, [-2, 1])),
        lambda x, n: -functional.pad(x, [-2, 1]),
    ),
    "group_norm": (
        lambda o, x, n: o.group_norm(o.cast(x, "f32"), 3),
        lambda x, n: functional.group_norm(x, 3),
    ),
}


def case(name: str, shape: tuple[int, int], dtype: str) -> tuple[Fusion, list[torch.Tensor]]:
    """Return a fusion of rows that are known at launch, and its input."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", shape[1]], dtype)
    made = MOVED[name][0](fd.ops, x, shape[1])
    for out in made if isinstance(made, tuple) else (made,):
        fd.add_output(out)
    random = torch.Generator().manual_seed(5)
    given = torch.randint(-8, 9, shape, generator=random)
    return fd.fusion(), [given.to(TORCH[DType.of(dtype)])]
