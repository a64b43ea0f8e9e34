"""Fusions that reduce rows and use the results for each element, and schedules for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusions import row_major

from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.pipeline import Launch, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import NormParams

WARP_A_ROW = NormParams((2, 256), 8, 2, None, "direct", "direct", lanes=32)
CTA_A_ROW = NormParams((1, 512), 4, 4, 2, "direct", "direct", lanes=128, recompute=True)
LANES = NormParams((16, 64), 4, 2, 2, "direct", "direct", lanes=8, hold=False)
RING = NormParams((2, 256), 4, 4, 1, "cp_async", "direct", 3, 2, lanes=64)
RELOADED = NormParams(
    (1, 512), 8, 2, 1, "cp_async", "direct", 2, 1, lanes=64, recompute=True, reload=True, hold=False
)
CLUSTER = NormParams((2, 64), 2, 2, None, "direct", "direct", lanes=32, cluster=4)
CLUSTER_RING = NormParams((1, 128), 2, 2, 1, "cp_async", "direct", 3, 2, lanes=64, cluster=2)
BULK = NormParams((1, 256), 8, 1, 2, "bulk", "direct", 2, 1, lanes=32, recompute=True, reload=True)
CLUSTER_BULK = NormParams((1, 128), 2, 2, 1, "bulk", "direct", 2, 1, lanes=64, cluster=2)
LARGE = NormParams((1, 512), 1, 16, None, "direct", "direct", lanes=512, cluster=2)
SCHEDULES = {
    "a warp a row": WARP_A_ROW,
    "a CTA a row": CTA_A_ROW,
    "eight lanes a row": LANES,
    "a ring": RING,
    "loaded again": RELOADED,
    "a cluster a row": CLUSTER,
    "clusters with rings": CLUSTER_RING,
    "rows in bulk": BULK,
    "clusters with rows in bulk": CLUSTER_BULK,
    "sixteen warps a row": LARGE,
}


def back(fd: FusionDefinition, tv: TensorView) -> TensorView:
    """Broadcast what there is one of for each row."""
    return fd.ops.broadcast(tv, [False, True])


def softmax(dtype: str = "bf16") -> Fusion:
    """Of rows."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    less = fd.ops.sub(fd.ops.cast(x, "f32"), back(fd, fd.ops.max(fd.ops.cast(x, "f32"), [1])))
    e = fd.ops.exp(less)
    fd.add_output(fd.ops.cast(fd.ops.div(e, back(fd, fd.ops.sum(e, [1]))), dtype))
    return fd.fusion()


def layer_norm(dtype: str = "bf16", *, stats: bool = False) -> Fusion:
    """Of rows, with weights; and mean and scale of each."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    weights = [fd.ops.broadcast(fd.define_tensor(["n"], dtype), [True, False]) for _ in range(2)]
    wide = fd.ops.cast(x, "f32")
    mean = fd.ops.mean(wide, [1])
    less = fd.ops.sub(wide, back(fd, mean))
    scale = fd.ops.rsqrt(fd.ops.add(fd.ops.mean(fd.ops.mul(less, less), [1]), 1e-5))
    made = fd.ops.mul(fd.ops.mul(less, back(fd, scale)), weights[0])
    fd.add_output(fd.ops.cast(fd.ops.add(made, weights[1]), dtype))
    if stats:
        fd.add_output(mean)
        fd.add_output(scale)
    return fd.fusion()


def add_rms_norm() -> Fusion:
    """Of a sum, which is an output, too."""
    fd = FusionDefinition()
    x, r = (fd.define_tensor(["m", "n"], "bf16") for _ in range(2))
    weight = fd.ops.broadcast(fd.define_tensor(["n"], "bf16"), [True, False])
    h = fd.ops.cast(fd.ops.add(x, r), "bf16")
    fd.add_output(h)
    wide = fd.ops.cast(h, "f32")
    scale = fd.ops.rsqrt(fd.ops.add(fd.ops.mean(fd.ops.mul(wide, wide), [1]), 1e-6))
    fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.mul(wide, back(fd, scale)), weight), "bf16"))
    return fd.fusion()


def softmax_backward() -> Fusion:
    """From the result and its gradient."""
    fd = FusionDefinition()
    y, dy = (fd.ops.cast(fd.define_tensor(["m", "n"], "bf16"), "f32") for _ in range(2))
    total = fd.ops.sum(fd.ops.mul(y, dy), [1])
    fd.add_output(fd.ops.cast(fd.ops.mul(y, fd.ops.sub(dy, back(fd, total))), "bf16"))
    return fd.fusion()


def layer_norm_dx() -> Fusion:
    """The gradient of the input, from mean and scale of each row: two sums beside each other."""
    fd = FusionDefinition()
    x, dy = (fd.ops.cast(fd.define_tensor(["m", "n"], "bf16"), "f32") for _ in range(2))
    weight = fd.ops.broadcast(fd.define_tensor(["n"], "bf16"), [True, False])
    mean, scale = (back(fd, fd.define_tensor(["m"], "f32")) for _ in range(2))
    hat = fd.ops.mul(fd.ops.sub(x, mean), scale)
    grad = fd.ops.mul(dy, weight)
    a, b = fd.ops.mean(grad, [1]), fd.ops.mean(fd.ops.mul(grad, hat), [1])
    rest = fd.ops.sub(fd.ops.sub(grad, back(fd, a)), fd.ops.mul(hat, back(fd, b)))
    fd.add_output(fd.ops.cast(fd.ops.mul(scale, rest), "bf16"))
    return fd.fusion()


IDIOMS: dict[str, Callable[[], Fusion]] = {
    "softmax": softmax,
    "layer norm": layer_norm,
    "layer norm with statistics": lambda: layer_norm(stats=True),
    "add and rms norm": add_rms_norm,
    "softmax backward": softmax_backward,
    "layer norm dx": layer_norm_dx,
}


def of_rows(fusion: Fusion, rows: int, columns: int) -> dict[str, Spec]:
    """Specs of the inputs, dense."""
    values = {"m": rows, "n": columns}
    return {
        tv.name: row_major(tuple(values[str(n)] for n in tv.shape), tv.dtype)
        for tv in fusion.inputs
        if isinstance(tv, TensorView)
    }


def launches(
    fusion: Fusion,
    params: NormParams | None,
    rows: int = 40,
    columns: int = 200,
    specs: Mapping[str, Spec] | None = None,
) -> tuple[Launch, ...]:
    """The kernels of a fusion."""
    given = specs or of_rows(fusion, rows, columns)
    return build(fusion, params, classify(fusion, params, given)).launches
