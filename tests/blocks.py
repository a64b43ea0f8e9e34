"""Blocks of real models, each a fusion of 15 to 30 operations, and torch's way to say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import Program
from fuser.runtime.binding import bind
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.launches import calls
from fuzz.cases.case import Case, Value, specs
from oracles.reference.estimate import TORCH
from oracles.simulator.simulate import simulate
from oracles.verdict import Status

Given = tuple[str, str]
"""Extents by name, and a type."""


@dataclass(frozen=True)
class Block:
    """A function of `Ops` and the inputs, torch's, and those inputs.

    `small` are extents for the simulator, `real` those of a model; the fusion knows the `pinned`
    ones as numbers.
    """

    ours: Callable[..., Any]
    torchs: Callable[..., Any]
    inputs: tuple[Given, ...]
    small: Mapping[str, int]
    real: Mapping[str, int]
    pinned: tuple[str, ...] = ()

    def fusion(self, extents: Mapping[str, int]) -> Fusion:
        """Return the fusion for such extents."""
        fd = FusionDefinition()
        args = []
        for names, dtype in self.inputs:
            axes = [extents[n] if n in self.pinned else n for n in names.split()]
            args.append(fd.define_tensor([1 if n == "1" else n for n in axes], dtype))
        made = self.ours(fd.ops, *args)
        for out in made if isinstance(made, tuple) else (made,):
            fd.add_output(out)
        return fd.fusion()

    def shapes(self, extents: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs."""
        known = {**extents, "1": 1}
        return [tuple(known[n] for n in names.split()) for names, _ in self.inputs]

    def given(self, extents: Mapping[str, int], device: str = "cpu") -> list[torch.Tensor]:
        """Return inputs: normal ones, of integers classes below the last extent `c`."""
        random = torch.Generator(device).manual_seed(5)
        out = []
        for (_, dtype), shape in zip(self.inputs, self.shapes(extents), strict=True):
            kind = next(t for d, t in TORCH.items() if str(d) == dtype)
            if kind.is_floating_point:
                made = torch.randn(shape, generator=random, device=device).to(kind)
            else:
                made = torch.randint(extents["c"], shape, generator=random, device=device)
            out.append(made)
        return out

    def wanted(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return torch's results, of floats in f64."""
        made = self.torchs(*(x.double() if x.is_floating_point() else x for x in inputs))
        return list(made) if isinstance(made, tuple) else [made]


PARAMS = MatmulParams((64, 32, 16), 1, "cooperative", 2, 1, persistent=True, columns=16)
"""Of products in the simulator; other kernels take the heuristics' schedules."""


def small(name: str) -> Case:
    """Return a block as a case for the simulator."""
    block = BLOCKS[name]
    free = {axis: n for axis, n in block.small.items() if axis not in block.pinned}
    return Case(block.fusion(block.small), PARAMS, free, "reals", 1)


def ran(case: Case, program: Program, given: list[torch.Tensor]) -> dict[str, Value]:
    """Simulate a program of tensors; return all that it reads and writes, by name."""
    launches, memory = calls(case, [*given], program, bind(program, specs(case), sms=2))
    for call in launches:
        if call.launch is not None:
            arrays = call.arrays()
            found = simulate(call.kernel, call.launch, arrays, call.scalars, policy="strict")
            assert found.status is Status.PASS, found
            call.store(arrays)
    return memory


def _layer_norm_backward(o: Any, dy: Any, more: Any, x: Any, w: Any) -> Any:
    """Of a layer norm whose input is a residual, too."""
    _, mean, rstd = o.native_layer_norm(x, [1], w)
    dx, dw, db = o.layer_norm_backward(dy, x, mean, rstd, [1], w)
    return o.cast(o.add(dx, more), "bf16"), dw, db


def _layer_norm_backward_torch(dy: Any, more: Any, x: Any, w: Any) -> Any:
    _, mean, rstd = torch.native_layer_norm(x, [x.shape[1]], w, None, 1e-5)
    mask = [True, True, True]
    made = torch.ops.aten.native_layer_norm_backward(
        dy, x, [x.shape[1]], mean, rstd, w, torch.zeros_like(w), mask
    )
    return made[0] + more, made[1], made[2]


def _cross_entropy(o: Any, x: Any, target: Any) -> Any:
    """Loss of each token, and the gradient of their sum."""
    one = o.full([1], 1.0, "f32")
    dx = o.cross_entropy_backward(o.squeeze(one, [0]), x, target, "sum")
    return o.cross_entropy(x, target, "none"), dx


def _cross_entropy_torch(x: Any, target: Any) -> Any:
    loss = functional.cross_entropy(x, target, reduction="none")
    share = x.softmax(1) - functional.one_hot(target.clamp(min=0), x.shape[1])
    return loss, share


def _half_turned(o: Any, x: Any) -> Any:
    half = x.logical[3].extent // 2
    return o.cat([o.neg(o.slice(x, 3, half)), o.slice(x, 3, 0, half)], 3)


def _rope(o: Any, q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions of queries and keys."""
    flags = [True, False, True, False]
    wide = [o.broadcast(one, flags) for one in (cos, sin)]
    return tuple(
        o.cast(o.add(o.mul(x, wide[0]), o.mul(_half_turned(o, x), wide[1])), "bf16") for x in (q, k)
    )


def _rope_torch(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    def turned(x: Any) -> Any:
        low, high = x.chunk(2, 3)
        return x * cos[None, :, None] + torch.cat([-high, low], 3) * sin[None, :, None]

    return turned(q), turned(k)


def _group_norm_silu(o: Any, x: Any, w: Any, b: Any, scale: Any, shift: Any) -> Any:
    """With a scale and a shift of each channel, as diffusion models have it."""
    made = o.group_norm(x, 4, w, b)
    flags = [False, False, True]
    made = o.add(o.mul(made, o.add(o.broadcast(scale, flags), 1.0)), o.broadcast(shift, flags))
    return o.cast(o.silu(made), "bf16")


def _group_norm_silu_torch(x: Any, w: Any, b: Any, scale: Any, shift: Any) -> Any:
    made = functional.group_norm(x, 4, w, b)
    return functional.silu(made * (1 + scale[..., None]) + shift[..., None])


def _group_norm_backward(o: Any, dy: Any, x: Any, w: Any) -> Any:
    """Behind a SiLU, whose slope is computed again."""
    y, mean, rstd = o.native_group_norm(x, 4, w)
    s = o.sigmoid(y)
    dy = o.mul(dy, o.mul(s, o.add(o.mul(y, o.sub(1.0, s)), 1.0)))
    return o.group_norm_backward(dy, x, mean, rstd, 4, w)


def _group_norm_backward_torch(dy: Any, x: Any, w: Any) -> Any:
    x, w, b = (one.clone().requires_grad_() for one in (x, w, torch.zeros_like(w)))
    return torch.autograd.grad(functional.silu(functional.group_norm(x, 4, w, b)), [x, w, b], dy)


def _gated_residual(o: Any, x: Any, h: Any, bias: Any, gate: Any, w: Any) -> Any:
    """What is added to the residual stream, and the norm of that for the next block."""
    wide = o.broadcast(bias, [True, False])
    new = o.cast(o.add(x, o.mul(o.sigmoid(gate), o.gelu_tanh(o.add(h, wide)))), "bf16")
    y, mean, rstd = o.native_layer_norm(new, [1], w)
    return new, y, mean, rstd


def _gated_residual_torch(x: Any, h: Any, bias: Any, gate: Any, w: Any) -> Any:
    new = x + gate.sigmoid() * functional.gelu(h + bias, approximate="tanh")
    new = new.bfloat16().double()
    return new, *torch.native_layer_norm(new, [x.shape[1]], w, None, 1e-5)


def _attention(o: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal: scores, their softmax, and its product with values."""
    scores = o.mul(o.matmul(q, o.permute(k, [0, 2, 1])), 0.125)
    row, column = o._indices(scores)
    masked = o.where(o.le(column, row), scores, float("-inf"))
    return o.matmul(o.cast(o.softmax(masked, [2]), "bf16"), v)


def _attention_torch(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.125)


def _gated_mlp(
    o: Any, x: Any, gate: Any, up: Any, down: Any, b0: Any, b1: Any, scale: Any, r: Any
) -> Any:
    """Two products that share their first operand, a gate, a third, bias, scale and residual."""
    wide = [o.broadcast(b, [True, False]) for b in (b0, b1, scale)]
    g = o.silu(o.add(o.linear(x, gate), wide[0]))
    h = o.cast(o.mul(g, o.linear(x, up)), "bf16")
    y = o.add(o.linear(h, down), wide[1])
    return o.cast(o.add(o.mul(y, wide[2]), r), "bf16")


def _gated_mlp_torch(
    x: Any, gate: Any, up: Any, down: Any, b0: Any, b1: Any, scale: Any, r: Any
) -> Any:
    h = functional.silu(x @ gate.T + b0) * (x @ up.T)
    return (h @ down.T + b1) * scale + r


def _rms_norm_quantised(o: Any, x: Any, r: Any, w: Any) -> Any:
    """Of a sum: 8 bits and a scale for each row."""
    h = o.cast(o.add(x, r), "bf16")
    y = o.rms_norm(h, [1], w, 1e-6)
    scale = o.div(o.maximum(o.max(o.abs(o.cast(y, "f32")), [1], keepdim=True), 1e-8), 448.0)
    return h, o.cast(o.clamp(o.div(y, scale), -448.0, 448.0), "f8e4m3"), scale


def _rms_norm_quantised_torch(x: Any, r: Any, w: Any) -> Any:
    h = (x + r).bfloat16().double()
    y = functional.rms_norm(h, [x.shape[1]], w, 1e-6)
    scale = y.abs().amax(1, keepdim=True).clamp(min=1e-8) / 448
    return h, y / scale, scale


def _label_smoothing(o: Any, x: Any, target: Any, z: Any) -> Any:
    """Mean loss: smoothed labels, and the square of logsumexp so that it stays small."""
    each = o.logsumexp(x, [1])
    nll = o.cross_entropy(x, target, "none")
    smooth = o.sub(each, o.mean(x, [1]))
    some = o.add(o.add(o.mul(nll, 0.9), o.mul(smooth, 0.1)), o.mul(o.mul(each, each), 1e-4))
    return o.mul(o.mean(some, [0]), z)


def _label_smoothing_torch(x: Any, target: Any, z: Any) -> Any:
    made = functional.cross_entropy(x, target, label_smoothing=0.1)
    return (made + 1e-4 * x.logsumexp(1).square().mean()) * z


def _mlp_backward(o: Any, dy: Any, down: Any, h: Any) -> Any:
    """Gradient through a product and GELU, and that of the bias before it: column sums."""
    wide = o.cast(h, "f32")
    inner = o.mul(o.add(wide, o.mul(o.mul(o.mul(wide, wide), wide), 0.044715)), 0.7978845608)
    t = o.tanh(inner)
    grown = o.mul(o.add(o.mul(o.mul(wide, wide), 0.134145), 1.0), 0.7978845608)
    slope = o.mul(o.mul(wide, o.sub(1.0, o.mul(t, t))), o.mul(grown, 0.5))
    slope = o.add(slope, o.mul(o.add(t, 1.0), 0.5))
    dh = o.cast(o.mul(o.matmul(dy, down), slope), "bf16")
    return dh, o.sum(dh, [0], dtype="f32")


def _mlp_backward_torch(dy: Any, down: Any, h: Any) -> Any:
    x = h.clone().requires_grad_()
    (dh,) = torch.autograd.grad(functional.gelu(x, approximate="tanh"), [x], dy @ down)
    dh = dh.bfloat16().double()
    return dh, dh.sum(0)


def _attention_backward(o: Any, q: Any, k: Any, v: Any, do: Any, lse: Any) -> Any:
    """Gradient of scores, which are computed again: two products, one normalised by its rows."""
    scores = o.mul(o.matmul(q, o.permute(k, [0, 2, 1])), 0.125)
    p = o.exp(o.sub(scores, o.broadcast(lse, [False, False, True])))
    dp = o.matmul(do, o.permute(v, [0, 2, 1]))
    return o.cast(o.mul(o.softmax_backward(dp, p, [2]), 0.125), "bf16")


def _attention_backward_torch(q: Any, k: Any, v: Any, do: Any, lse: Any) -> Any:
    p = (q @ k.transpose(1, 2) * 0.125 - lse[..., None]).exp()
    dp = do @ v.transpose(1, 2)
    return (dp - (dp * p).sum(2, keepdim=True)) * p * 0.125


BLOCKS: dict[str, Block] = {
    "layer norm backward": Block(
        _layer_norm_backward,
        _layer_norm_backward_torch,
        (("m n", "bf16"), ("m n", "bf16"), ("m n", "bf16"), ("n", "bf16")),
        {"m": 9, "n": 40},
        {"m": 4096, "n": 4096},
    ),
    "cross entropy": Block(
        _cross_entropy,
        _cross_entropy_torch,
        (("m c", "f32"), ("m", "i64")),
        {"m": 9, "c": 40},
        {"m": 4096, "c": 32768},
    ),
    "rotary positions": Block(
        _rope,
        _rope_torch,
        (("b s h d", "bf16"), ("b s h d", "bf16"), ("s d", "bf16"), ("s d", "bf16")),
        {"b": 2, "s": 5, "h": 3, "d": 16},
        {"b": 4, "s": 2048, "h": 16, "d": 128},
        ("d",),
    ),
    "group norm and SiLU": Block(
        _group_norm_silu,
        _group_norm_silu_torch,
        (("b c p", "bf16"), ("c", "bf16"), ("c", "bf16"), ("b c", "bf16"), ("b c", "bf16")),
        {"b": 2, "c": 8, "p": 24},
        {"b": 64, "c": 32, "p": 4096},
        ("c", "p"),
    ),
    "group norm backward": Block(
        _group_norm_backward,
        _group_norm_backward_torch,
        (("b c p", "bf16"), ("b c p", "bf16"), ("c", "bf16")),
        {"b": 2, "c": 8, "p": 24},
        {"b": 64, "c": 32, "p": 4096},
        ("c", "p"),
    ),
    "gated residual": Block(
        _gated_residual,
        _gated_residual_torch,
        (("m n", "bf16"), ("m n", "bf16"), ("n", "bf16"), ("m n", "bf16"), ("n", "bf16")),
        {"m": 9, "n": 40},
        {"m": 4096, "n": 4096},
    ),
    "attention": Block(
        _attention,
        _attention_torch,
        (("b m k", "bf16"), ("b n k", "bf16"), ("b n k", "bf16")),
        {"b": 2, "m": 72, "n": 72, "k": 64},
        {"b": 32, "m": 2048, "n": 2048, "k": 64},
    ),
    "attention backward": Block(
        _attention_backward,
        _attention_backward_torch,
        (
            ("b m k", "bf16"), ("b n k", "bf16"), ("b n k", "bf16"), ("b m k", "bf16"),
            ("b m", "f32"),
        ),
        {"b": 2, "m": 72, "n": 72, "k": 64},
        {"b": 32, "m": 2048, "n": 2048, "k": 64},
    ),
    "gated MLP": Block(
        _gated_mlp,
        _gated_mlp_torch,
        (
            ("m k", "bf16"), ("f k", "bf16"), ("f k", "bf16"), ("k f", "bf16"), ("f", "bf16"),
            ("k", "bf16"), ("k", "bf16"), ("m k", "bf16"),
        ),
        {"m": 40, "k": 48, "f": 72},
        {"m": 4096, "k": 2048, "f": 5632},
    ),
    "MLP backward": Block(
        _mlp_backward,
        _mlp_backward_torch,
        (("m k", "bf16"), ("k f", "bf16"), ("m f", "bf16")),
        {"m": 40, "k": 48, "f": 72},
        {"m": 4096, "k": 2048, "f": 5632},
    ),
    "rms norm, quantised": Block(
        _rms_norm_quantised,
        _rms_norm_quantised_torch,
        (("m n", "bf16"), ("m n", "bf16"), ("n", "bf16")),
        {"m": 9, "n": 40},
        {"m": 16384, "n": 8192},
    ),
    "label smoothing": Block(
        _label_smoothing,
        _label_smoothing_torch,
        (("m c", "f32"), ("m", "i64"), ("", "f32")),
        {"m": 9, "c": 40},
        {"m": 4096, "c": 32768},
    ),
}  # fmt: skip
