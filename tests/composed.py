"""Every composition, and torch's function of the same name: `COMPOSED` has one row for each way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, Ops
from oracles.reference.estimate import TORCH

AXES = {"rows": [1], "columns": [0], "all": [0, 1]}


@dataclass(frozen=True)
class Composed:
    """A function of `Ops`, torch's, and the inputs: x (m, n) and what `others` make of it.

    `takes` are the types of x, the first of which others are derived from.
    """

    ours: Callable[..., Any]
    torchs: Callable[..., Any]
    others: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()
    takes: tuple[str, ...] = ("f32", "bf16", "f16", "f64")


EVERY = ("f32", "bf16", "f16", "f64", "i32", "i64", "bool")
NUMBERS = EVERY[:-1]


def like(x: torch.Tensor) -> torch.Tensor:
    """Return another tensor of its form."""
    made = torch.randn(x.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return made.to(x.dtype)


def row(x: torch.Tensor) -> torch.Tensor:
    """Return a weight for each column."""
    return like(x.new_empty(x.shape[1:]))


def labels(x: torch.Tensor) -> torch.Tensor:
    """Return a class for each row; one in three does not count."""
    made = torch.arange(x.shape[0]) * 7 % max(x.shape[1], 1)
    return torch.where(torch.arange(x.shape[0]) % 3 == 1, -100, made)


def mean_and_rstd(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `native_layer_norm` returns beside the result."""
    stats = x.to(torch.float32 if x.dtype.itemsize == 2 else x.dtype)
    _, mean, rstd = torch.native_layer_norm(stats, [x.shape[1]], None, None, 1e-5)
    return mean, rstd


def rms(x: torch.Tensor) -> torch.Tensor:
    """Return 1 / sqrt(mean(x * x) + eps)."""
    stats = x.to(torch.float32 if x.dtype.itemsize == 2 else x.dtype)
    return (stats.square().mean(1, keepdim=True) + 1e-6).rsqrt()


def backward(function: Callable[..., torch.Tensor], *which: int) -> Callable[..., Any]:
    """Return the gradients of a function of its arguments `which`, the gradient being the first."""

    def gradients(dy: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args = [
            arg.detach().clone().requires_grad_(n in which) if arg.is_floating_point() else arg
            for n, arg in enumerate(given)
        ]
        return torch.autograd.grad(function(*args), [args[n] for n in which], dy)

    return gradients


def zeros(x: torch.Tensor) -> torch.Tensor:
    """Return a bias that is nothing."""
    return torch.zeros_like(row(x))


def _norm_backward(o: Ops, dy: Any, x: Any, w: Any, b: Any, m: Any, r: Any) -> Any:
    return o.layer_norm_backward(dy, x, m, r, [1], w)


def _layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, [x.shape[1]], w, b)


def _native(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return torch.native_layer_norm(x, [x.shape[1]], w, b, 1e-5)


def _rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, [x.shape[1]], w, 1e-6)


def _softmax_of(y: torch.Tensor) -> torch.Tensor:
    return y.softmax(1)


def one(x: torch.Tensor) -> torch.Tensor:
    """Return one number."""
    return torch.tensor(1.5, dtype=x.dtype)


COMPOSED: dict[str, Composed] = {
    "softplus": Composed(
        lambda o, x: o.softplus(x, 2.0, 3.0), lambda x: functional.softplus(x, 2.0, 3.0)
    ),
    "leaky_relu": Composed(
        lambda o, x: o.leaky_relu(x, 0.25), lambda x: functional.leaky_relu(x, 0.25)
    ),
    "elu": Composed(lambda o, x: o.elu(x, 1.5), lambda x: functional.elu(x, 1.5)),
    "hardtanh": Composed(
        lambda o, x: o.hardtanh(x, -0.5, 2.0), lambda x: functional.hardtanh(x, -0.5, 2.0)
    ),
    "tril": Composed(lambda o, x: o.tril(x, 1), lambda x: x.tril(1), (), EVERY),
    "triu": Composed(lambda o, x: o.triu(x, -2), lambda x: x.triu(-2), (), EVERY),
    "any": Composed(lambda o, x: o.any(x, [1]), lambda x: x.any(1), (), EVERY),
    "any, kept": Composed(
        lambda o, x: o.any(x, [0, -1], True), lambda x: x.any().reshape(1, 1), (), EVERY
    ),
    "all": Composed(lambda o, x: o.all(x, [0]), lambda x: x.all(0), (), EVERY),
    "amax": Composed(lambda o, x: o.amax(x, [1]), lambda x: x.amax(1), (), EVERY),
    "amin": Composed(lambda o, x: o.amin(x, [0, 1]), lambda x: x.amin((0, 1)), (), EVERY),
    "argmax": Composed(
        lambda o, x: o.argmax(x, -1),
        lambda x: (x.long() if x.dtype is torch.bool else x).argmax(1),
        (),
        EVERY,
    ),
    "argmin": Composed(
        lambda o, x: o.argmin(x, 0, True),
        lambda x: (x.long() if x.dtype is torch.bool else x).argmin(0, True),
        (),
        EVERY,
    ),
    "var": Composed(lambda o, x: o.var(x, [1]), lambda x: x.var(1)),
    "var, all": Composed(lambda o, x: o.var(x, [1, 0], 0), lambda x: x.var((1, 0), correction=0)),
    "var_mean": Composed(lambda o, x: o.var_mean(x, [0]), lambda x: (x.var(0), x.mean(0))),
    "std": Composed(lambda o, x: o.std(x, [1], keepdim=True), lambda x: x.std(1, keepdim=True)),
    "logsumexp": Composed(lambda o, x: o.logsumexp(x, [1]), lambda x: x.logsumexp(1)),
    "logsumexp, all": Composed(lambda o, x: o.logsumexp(x, [0, 1]), lambda x: x.logsumexp((0, 1))),
    "softmax": Composed(lambda o, x: o.softmax(x, [1]), lambda x: x.softmax(1)),
    "softmax, columns": Composed(lambda o, x: o.softmax(x, [0]), lambda x: x.softmax(0)),
    "log_softmax": Composed(lambda o, x: o.log_softmax(x, [-1]), lambda x: x.log_softmax(1)),
    "softmax_backward": Composed(
        lambda o, dy, y: o.softmax_backward(dy, y, [1]),
        lambda dy, y: torch._softmax_backward_data(dy, y, 1, y.dtype),
        (like,),
    ),
    "log_softmax_backward": Composed(
        lambda o, dy, y: o.log_softmax_backward(dy, y, [1]),
        lambda dy, y: torch._log_softmax_backward_data(dy, y, 1, y.dtype),
        (like,),
    ),
    "layer_norm": Composed(lambda o, x, w, b: o.layer_norm(x, [1], w, b), _layer_norm, (row, row)),
    "layer_norm, plain": Composed(
        lambda o, x: o.layer_norm(x, [-2, -1], eps=0.5),
        lambda x: functional.layer_norm(x, x.shape, eps=0.5),
    ),
    "native_layer_norm": Composed(
        lambda o, x, w, b: o.native_layer_norm(x, [1], w, b), _native, (row, row)
    ),
    "layer_norm_backward": Composed(
        _norm_backward,
        lambda dy, x, w, b, *_: backward(_layer_norm, 0, 1, 2)(dy, x, w, b),
        (
            like,
            row,
            zeros,
            lambda x: mean_and_rstd(like(x))[0],
            lambda x: mean_and_rstd(like(x))[1],
        ),
    ),
    "rms_norm": Composed(lambda o, x, w: o.rms_norm(x, [1], w, 1e-6), _rms_norm, (row,)),
    "rms_norm, plain": Composed(
        lambda o, x: o.rms_norm(x, [1]),
        lambda x: functional.rms_norm(x, [x.shape[1]]),
        (),
        ("f64",),
    ),
    "native_rms_norm": Composed(
        lambda o, x, w: o.native_rms_norm(x, [1], w, 1e-6),
        lambda x, w: (_rms_norm(x, w), rms(x)),
        (row,),
    ),
    "rms_norm_backward": Composed(
        lambda o, dy, x, w, r: o.rms_norm_backward(dy, x, r, [1], w),
        lambda dy, x, w, _: backward(_rms_norm, 0, 1)(dy, x, w),
        (like, row, lambda x: rms(like(x))),
    ),
    "cross_entropy": Composed(
        lambda o, x, t: o.cross_entropy(x, t), functional.cross_entropy, (labels,)
    ),
    "cross_entropy, none": Composed(
        lambda o, x, t: o.cross_entropy(x, t, "none", 0),
        lambda x, t: functional.cross_entropy(x, t, ignore_index=0, reduction="none"),
        (lambda x: labels(x).clamp(min=0),),
    ),
    "cross_entropy, sum": Composed(
        lambda o, x, t: o.cross_entropy(x, t, "sum"),
        lambda x, t: functional.cross_entropy(x, t, reduction="sum"),
        (labels,),
    ),
    "cross_entropy_backward": Composed(
        lambda o, x, t, dy: o.cross_entropy_backward(dy, x, t),
        lambda x, t, dy: backward(functional.cross_entropy, 0)(dy, x, t),
        (labels, one),
    ),
    "cross_entropy_backward, none": Composed(
        lambda o, x, t, dy: o.cross_entropy_backward(dy, x, t, "none"),
        lambda x, t, dy: backward(lambda x, t: functional.cross_entropy(x, t, reduction="none"), 0)(
            dy, x, t
        ),
        (labels, lambda x: like(x.new_empty(x.shape[0]))),
    ),
}


def given(
    name: str, shape: tuple[int, int], dtype: str, *, special: bool = False
) -> list[torch.Tensor]:
    """Return the inputs of a row: halves from -4 to 4, with NaN and infinities if `special`."""
    made = torch.Generator().manual_seed(3)
    kind = TORCH[DType.of(dtype)]
    x = torch.randint(-8, 9, shape, generator=made).to(torch.float64) / 2
    if special:
        flat = x.flatten()
        for n, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0, 1e-40, 90.0)):
            flat[n * 5 :: 37] = value
        x = flat.reshape(shape)
    x = x.to(kind) if dtype != "bool" else x > 0
    return [x, *(other(x) for other in COMPOSED[name].others)]


def fusion(name: str, inputs: list[torch.Tensor]) -> Fusion:
    """Return the fusion of a row, for inputs of any extents."""
    fd, extents = FusionDefinition(), ("m", "n")
    shape = dict(zip(inputs[0].shape, extents, strict=False))
    tensors = []
    for x in inputs:
        axes: list[Any] = [shape.get(n, n) if n != 1 else 1 for n in x.shape]
        if x.shape == inputs[0].shape:
            axes = list(extents)
        tensors.append(fd.define_tensor(axes, DType.of(x.dtype)))
    made = COMPOSED[name].ours(fd.ops, *tensors)
    for out in made if isinstance(made, tuple) else (made,):
        fd.add_output(out)
    return fd.fusion()


def wanted(name: str, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return torch's results, of floats in f64."""
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    made = COMPOSED[name].torchs(*wide)
    return list(made) if isinstance(made, tuple) else [made]
