"""Rows of normalizations: forward, backward, with a residual, quantised; and who else has them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any

import torch
from torch.nn import functional

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.runtime.explain import explain
from fuser.schedule.params import NormParams
from fuser.schedule.shape_class import Params
from fuzz.bench.pointwise import copies
from fuzz.bench.row import Peers, Row, Tensors, autotuned, together

EPS = 1e-5
LARGEST_F8 = 448.0
LIGER_COLUMNS = 65536
"""The longest rows that Liger takes."""
SMALL, SHARED_COLUMNS, MOST_EACH = 1 << 20, 4096, 32
"""Elements up to which every way to deal rows to threads is tried; columns from which on CTAs may
share a row then; elements of a thread, at most."""
POWERS = tuple(1 << n for n in range(11))
DEALT = ("lanes", "threads", "vector", "cluster", "hold")
PROBE = 64
"""Rows that are compared with torch in f64, from both ends."""
CASES: dict[str, tuple[str, tuple[int, int], torch.dtype]] = {
    "N1": ("layer_norm", (32768, 1024), torch.bfloat16),
    "N2": ("layer_norm", (16384, 4096), torch.bfloat16),
    "N3": ("layer_norm", (16384, 8192), torch.bfloat16),
    "N4": ("layer_norm", (4096, 65536), torch.bfloat16),
    "N5": ("rms_norm", (32768, 4096), torch.bfloat16),
    "N6": ("rms_norm", (8192, 16384), torch.bfloat16),
    "N7": ("add_rms_norm", (16384, 8192), torch.bfloat16),
    "N8": ("softmax", (32768, 4096), torch.bfloat16),
    "N9": ("softmax", (8192, 32768), torch.bfloat16),
    "N10": ("softmax", (4096, 131072), torch.float32),
    "N11": ("layer_norm", (4096, 8192), torch.float32),
    "N12": ("softmax_backward", (32768, 4096), torch.bfloat16),
    "N13": ("layer_norm_backward", (16384, 4096), torch.bfloat16),
    "N14": ("rms_norm_f8", (16384, 8192), torch.bfloat16),
}


@dataclass(frozen=True)
class Norm(Row):
    """A row of a matrix of this shape, each row of which is normalised.

    `kind` names the operation.  If `tuned`, torch.compile is asked to tune, and a copy is timed.
    """

    kind: str
    shape: tuple[int, int]
    dtype: torch.dtype
    tuned: bool = True
    tolerance = 0.02  # of the largest number of an output, which is rounded to bf16

    @property
    def says(self) -> str:
        """What it computes."""
        name = str(self.dtype).removeprefix("torch.")
        return f"{self.kind} of {self.shape[0]} x {self.shape[1]}, {name}"

    @property
    def nbytes(self) -> int:
        """Those of the matrices."""
        rows, cols = self.shape
        ins, outs = KINDS[self.kind].full
        return rows * cols * (ins * self.dtype.itemsize + sum(outs or (self.dtype.itemsize,)))

    def inputs(self) -> Tensors:
        """Return normal numbers, as a network has them."""
        rows, cols = self.shape

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.float32).to(self.dtype)

        return KINDS[self.kind].inputs(normal, rows, cols)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare the first and the last rows with torch in f64; of columns, all of a part.

        Errors of types that are coarser than bf16 count as so much less.
        """
        rows = self.shape[0]
        if KINDS[self.kind].columns:
            wanted = together(self.form(*(t.float() for t in given)))
        else:
            pick = torch.tensor([*range(min(PROBE, rows)), *range(max(rows - PROBE, 0), rows)])
            few = tuple(t[pick].double() if t.shape[0] == rows else t.double() for t in given)
            wanted = together(self.form(*few))
            outs = tuple(out[pick] if out.shape[0] == rows else out for out in outs)
        pairs = zip(outs, wanted, strict=True)
        return max(
            float((out.double() - want.double()).abs().max() / want.double().abs().max())
            * min(1.0, torch.finfo(torch.bfloat16).eps / torch.finfo(out.dtype).eps)
            for out, want in pairs
        )

    def candidates(self) -> dict[str, Params]:
        """Return schedules beside the default one: other threads a row, CTAs an SM, and rings."""
        default = self.default()
        if not isinstance(default, NormParams):
            return {}
        return {_named(one): one for one in neighbours(default, *self.shape)}

    def default(self) -> Params:
        """Return the default schedule of the first kernel."""
        fusion = self.fusion()
        shapes = [self.shape[-tv.rank :] for tv in fusion.inputs if isinstance(tv, TensorView)]
        return explain(fusion, *shapes).parts[0].params

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch, torch.compile, also tuned, a copy, and Liger where it is installed."""
        peers = super().peers(outs, compiled=compiled)
        if self.tuned:
            peers |= copies(self.nbytes)
        if compiled and self.tuned:
            peers["compile max-autotune"] = autotuned(self.form)
        return peers | (_liger(self.kind) if self.shape[1] <= LIGER_COLUMNS else {})


def neighbours(default: NormParams, rows: int, cols: int) -> Iterator[NormParams]:
    """Yield schedules that differ from a default one in one or two respects.

    Those are threads a row, CTAs that share one, CTAs an SM, what is held or computed anew, and
    rings.  Of small matrices only who has what of a row, but in every way.
    """
    if rows * cols <= SMALL:
        ctas = (1, 2, 4, 8) if cols >= SHARED_COLUMNS else (1,)
        every = product(POWERS, POWERS[5:], (1, 2, 4, 8), ctas, (True, False))
        dealt = (dict(zip(DEALT, one, strict=True), resident=1) for one in every)
        asked: list[dict[str, Any]] = [one for one in dealt if _deals(one, default, cols)]
    else:
        options: dict[str, Sequence[Any]] = {
            "lanes": [n for n in (default.lanes // 2, default.lanes * 2, default.lanes * 4) if n],
            "threads": (128, 256, 512),
            "cluster": (2, 4, 8) if default.cluster > 1 else (1,),
            "vector": (max(default.vector // 2, 1),),
            "resident": (1, 2, 3, 4, 5, 6, 8, 10, 12, 16),
            "loop": (1, 2, 3, 4, 6, 8),
            "hold": (not default.hold,),
            "recompute": (not default.recompute,),
            "ring": [(load, n) for load in ("cp_async", "bulk") for n in (2, 3, 4)],
        }
        single = [{name: value} for name, values in options.items() for value in values]
        asked = [one | other for one, other in combinations_with_replacement(single, 2)]
    seen = {default}
    for changes in asked:
        with suppress(ScheduleError):
            made = _changed(default, cols, changes)
            if made not in seen:
                seen.add(made)
                yield made


def _deals(one: Mapping[str, int], default: NormParams, cols: int) -> bool:
    """Tell whether threads and vectors suit a row, and each other."""
    lanes, threads, vector, ctas = (one[name] for name in DEALT[:4])
    part = -(-cols // ctas)
    return (
        lanes <= threads <= max(lanes, 128)
        and vector <= default.vector
        and lanes * vector < 2 * part
        and part <= MOST_EACH * lanes
    )


def _changed(default: NormParams, cols: int, changes: Mapping[str, Any]) -> NormParams:
    """Return a schedule with these changes; ScheduleError if they contradict each other."""
    lanes, vector = (changes.get(n, getattr(default, n)) for n in ("lanes", "vector"))
    cluster, resident = (changes.get(n, getattr(default, n)) for n in ("cluster", "resident"))
    threads = changes.get("threads", max(lanes, 32 * default.warps if lanes < 128 else lanes))
    part = -(-cols // cluster)
    load, stages = changes.get("ring", (default.load, default.stages))
    loop = changes.get("loop", resident if load != "direct" else default.ctas_per_sm)
    return replace(
        default, tile=(max(threads // lanes, 1), part + -part % (lanes * vector)), vector=vector,
        warps=threads // 32, ctas_per_sm=loop, load=load, stages=stages, prefetch=stages - 1,
        lanes=lanes, recompute=changes.get("recompute", default.recompute),
        resident=min(loop or resident, 2048 // threads),
        hold=changes.get("hold", default.hold), cluster=cluster,
    )  # fmt: skip


def _named(params: NormParams) -> str:
    """Return a short name of a schedule."""
    marks = " ".join(mark for mark in ("hold", "recompute") if getattr(params, mark))
    tile = "x".join(map(str, params.tile))
    loop = f" loop{params.ctas_per_sm}" if params.ctas_per_sm else ""
    return (
        f"{params.load} s{params.stages} {tile} v{params.vector} l{params.lanes} w{params.warps} "
        f"c{params.cluster} r{params.resident}{loop} {marks}"
    )


@dataclass(frozen=True)
class Kind:
    """What a row computes, in torch and in ours, and what goes in.

    `full` counts the matrices that go in, and says the bytes of an element of those that come out
    (those of the input's type if left out); with `columns` results depend on whole columns.
    """

    form: Callable[..., torch.Tensor | Tensors]
    define: Callable[[FusionDefinition, str], tuple[TensorView, ...]]
    inputs: Callable[[Callable[..., torch.Tensor], int, int], Tensors]
    full: tuple[int, tuple[int, ...]] = (1, ())
    columns: bool = False


def rows() -> list[Row]:
    """Return the rows N1 to N14."""
    return [row(name, kind, shape, dtype) for name, (kind, shape, dtype) in CASES.items()]


def row(name: str, kind: str, shape: tuple[int, int], dtype: torch.dtype) -> Norm:
    """Return one row."""
    own = str(dtype).removeprefix("torch.")
    own = {"bfloat16": "bf16", "float32": "f32", "float16": "f16"}[own]
    return Norm(name, partial(_fusion, kind, own), KINDS[kind].form, kind, shape, dtype)


def _fusion(kind: str, dtype: str) -> Fusion:
    fd = FusionDefinition()
    for out in KINDS[kind].define(fd, dtype):
        fd.add_output(out)
    return fd.fusion()


# --- in our words ---------------------------------------------------------------------------------


def _matrix(fd: FusionDefinition, dtype: str) -> TensorView:
    return fd.define_tensor([-1, -1], dtype)


def _weight(fd: FusionDefinition, dtype: str) -> TensorView:
    return fd.ops.broadcast(fd.define_tensor([-1], dtype), [True, False])


def _softmax(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    return (fd.ops.softmax(_matrix(fd, dtype), [1]),)


def _softmax_backward(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    dy, y = _matrix(fd, dtype), _matrix(fd, dtype)
    total = fd.ops.sum(fd.ops.mul(dy, y), [1], keepdim=True)
    return (fd.ops.mul(fd.ops.sub(dy, total), y),)


def _layer_norm(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    x, weight, bias = _matrix(fd, dtype), _weight(fd, dtype), _weight(fd, dtype)
    centred = fd.ops.sub(x, fd.ops.mean(x, [1], keepdim=True))
    variance = fd.ops.mean(fd.ops.mul(centred, centred), [1], keepdim=True)
    scaled = fd.ops.mul(centred, fd.ops.rsqrt(fd.ops.add(variance, EPS)))
    return (fd.ops.add(fd.ops.mul(scaled, weight), bias),)


def _layer_norm_backward(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    dy, x, weight = _matrix(fd, dtype), _matrix(fd, dtype), _weight(fd, dtype)
    centred = fd.ops.sub(x, fd.ops.mean(x, [1], keepdim=True))
    variance = fd.ops.mean(fd.ops.mul(centred, centred), [1], keepdim=True)
    scale = fd.ops.rsqrt(fd.ops.add(variance, EPS))
    scaled = fd.ops.mul(centred, scale)
    inner = fd.ops.mul(dy, weight)
    one = fd.ops.mean(inner, [1], keepdim=True)
    other = fd.ops.mean(fd.ops.mul(inner, scaled), [1], keepdim=True)
    rest = fd.ops.sub(fd.ops.sub(inner, one), fd.ops.mul(scaled, other))
    return (
        fd.ops.mul(rest, scale),
        fd.ops.sum(fd.ops.mul(dy, scaled), [0]),
        fd.ops.sum(dy, [0]),
    )


def _rms(fd: FusionDefinition, x: TensorView, dtype: str) -> TensorView:
    return fd.ops.rms_norm(x, [1], fd.define_tensor([-1], dtype), EPS)


def _rms_norm(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    return (_rms(fd, _matrix(fd, dtype), dtype),)


def _add_rms_norm(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    total = fd.ops.add(_matrix(fd, dtype), _matrix(fd, dtype))
    return (_rms(fd, total, dtype), total)


def _rms_norm_f8(fd: FusionDefinition, dtype: str) -> tuple[TensorView, ...]:
    scaled = _rms(fd, _matrix(fd, dtype), dtype)
    most = fd.ops.max(fd.ops.abs(fd.ops.cast(scaled, "f32")), [1])
    scale = fd.ops.mul(most, 1 / LARGEST_F8)
    wide = fd.ops.broadcast(scale, [False, True])
    return (fd.ops.cast(fd.ops.div(fd.ops.cast(scaled, "f32"), wide), "f8e4m3"), scale)


# --- in torch -------------------------------------------------------------------------------------


def _torch_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[1:], weight, bias, EPS)


def _torch_layer_norm_backward(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(1, keepdim=True)
    rstd = torch.rsqrt(wide.var(1, keepdim=True, correction=0) + EPS)
    back = torch.ops.aten.native_layer_norm_backward
    return tuple(back(dy, x, list(x.shape[1:]), mean, rstd, weight, weight, [True, True, True]))


def _torch_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[1:], weight, EPS)


def _torch_add_rms_norm(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> Tensors:
    total = x + y
    return _torch_rms_norm(total, weight), total


def _torch_rms_norm_f8(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    scaled = _torch_rms_norm(x, weight).float()
    scale = scaled.abs().amax(1) * (1 / LARGEST_F8)
    return (scaled / scale[:, None]).clamp(-LARGEST_F8, LARGEST_F8).to(torch.float8_e4m3fn), scale


def _torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return functional.softmax(x, 1)


def _torch_softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (dy - (dy * y).sum(1, keepdim=True)) * y


def _liger(kind: str) -> Peers:
    """Return Liger's kernel of a kind, where that library is installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return {}
    ops: Any = importlib.import_module("liger_kernel.ops")
    calls: dict[str, Callable[..., object]] = {
        "layer_norm": lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, EPS),
        "rms_norm": lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS),
        "add_rms_norm": lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, EPS),
        "softmax": lambda x: ops.LigerSoftmaxFunction.apply(x),
    }
    return {"liger": calls[kind]} if kind in calls else {}


# --- the kinds ------------------------------------------------------------------------------------


def _alone(normal: Callable[..., torch.Tensor], rows: int, cols: int) -> Tensors:
    return (normal(rows, cols),)


def _pair(normal: Callable[..., torch.Tensor], rows: int, cols: int) -> Tensors:
    return normal(rows, cols), normal(rows, cols)


def _with_rows(
    matrices: int, weights: int, normal: Callable[..., torch.Tensor], rows: int, cols: int
) -> Tensors:
    return (*(normal(rows, cols) for _ in range(matrices)), *(normal(cols) for _ in range(weights)))


def _probabilities(normal: Callable[..., torch.Tensor], rows: int, cols: int) -> Tensors:
    return normal(rows, cols), normal(rows, cols).softmax(1)


KINDS: dict[str, Kind] = {
    "softmax": Kind(_torch_softmax, _softmax, _alone),
    "softmax_backward": Kind(_torch_softmax_backward, _softmax_backward, _probabilities, (2, ())),
    "layer_norm": Kind(_torch_layer_norm, _layer_norm, partial(_with_rows, 1, 2)),
    "layer_norm_backward": Kind(
        _torch_layer_norm_backward,
        _layer_norm_backward,
        partial(_with_rows, 2, 1),
        (2, ()),
        columns=True,
    ),
    "rms_norm": Kind(_torch_rms_norm, _rms_norm, partial(_with_rows, 1, 1)),
    "add_rms_norm": Kind(
        _torch_add_rms_norm, _add_rms_norm, partial(_with_rows, 2, 1), (2, (2, 2))
    ),
    "rms_norm_f8": Kind(_torch_rms_norm_f8, _rms_norm_f8, partial(_with_rows, 1, 1), (1, (1,))),
}
"""Every kind by name."""
