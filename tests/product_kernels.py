"""Fusions with products, and the kernels that the compiler makes of them."""

from __future__ import annotations

from dataclasses import replace

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.kernel import ir as kir
from fuser.pipeline import Program, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams

PIPELINED = MatmulParams((64, 32, 64), 1, "pipelined", 4, 2, persistent=False, columns=32)
COOPERATIVE = MatmulParams(
    (128, 32, 64), 2, "cooperative", 4, 2, persistent=True, columns=16, registers=(40, 232)
)
PING_PONG = MatmulParams((64, 32, 64), 2, "ping_pong", 3, 1, persistent=True, columns=32)
CLUSTER = replace(COOPERATIVE, cluster=(2, 1))
GROUPS = AmpereParams((64, 32, 32), 4, "groups", 3, 2, persistent=False, columns=32)
MBARRIERS = AmpereParams((64, 32, 32), 4, "mbarriers", 3, 0, persistent=True, columns=16)
THREADS = AmpereParams((64, 32, 32), 4, "threads", 1, 1, persistent=True, columns=16)
SCHEDULES = {
    "pipelined": PIPELINED,
    "cooperative": COOPERATIVE,
    "ping_pong": PING_PONG,
    "cluster": CLUSTER,
    "groups": GROUPS,
    "mbarriers": MBARRIERS,
    "threads": THREADS,
}
"""One schedule of every kind."""


def linear() -> Fusion:
    """Relu of x [M, K] times w [N, K], with a bias; bf16."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    fd.add_output(fd.ops.relu(fd.ops.linear(x, w, bias)))
    return fd.fusion()


def gated() -> Fusion:
    """Two products of x in one loop, multiplied."""
    fd = FusionDefinition()
    x, gate, up = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(3))
    fd.add_output(fd.ops.mul(fd.ops.linear(x, gate), fd.ops.linear(x, up)))
    return fd.fusion()


def chained() -> Fusion:
    """A product of the relu of a product."""
    fd = FusionDefinition()
    a, b, c = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(3))
    fd.add_output(fd.ops.matmul(fd.ops.relu(fd.ops.matmul(a, b)), c))
    return fd.fusion()


def specs(fusion: Fusion, extents: dict[str, int]) -> dict[str, Spec]:
    """Row-major inputs at aligned addresses."""
    out = {}
    for n, tv in enumerate(fusion.inputs, start=1):
        assert isinstance(tv, TensorView)
        shape = tuple(e if isinstance(e, int) else extents[e.name] for e in tv.shape)
        strides = [1] * len(shape)
        for axis in reversed(range(len(shape) - 1)):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
        out[tv.name] = Spec(shape, tuple(strides), n << 20, tv.dtype)
    return out


def compiled(
    fusion: Fusion, params: MatmulParams | AmpereParams, m: int = 256, n: int = 96, k: int = 128
) -> Program:
    """Build a fusion whose symbols are i0 = M, i1 = K, i2 = N, others 64."""
    extents = {f"i{number}": 64 for number in range(8)} | {"i0": m, "i1": k, "i2": n}
    return build(fusion, params, classify(fusion, params, specs(fusion, extents)))


def kernel(
    params: MatmulParams | AmpereParams, fusion: Fusion | None = None, **extents: int
) -> kir.Kernel:
    """Return the finished kernel of `linear`, or of another fusion of one kernel."""
    (launch,) = compiled(fusion or linear(), params, **extents).launches
    return launch.kernel


def roles(made: kir.Kernel) -> dict[str, kir.Role]:
    """Roles by name, those inside roles too."""
    return {stmt.name: stmt for stmt in made.walk() if isinstance(stmt, kir.Role)}


def loops(body: tuple[kir.Stmt, ...]) -> list[kir.ForLoop]:
    """Loops of a body and below, parents first."""
    return [stmt for stmt in kir.walk(body) if isinstance(stmt, kir.ForLoop)]


def kinds(body: tuple[kir.Stmt, ...]) -> list[str]:
    """Names of the statements of a body itself."""
    return [type(stmt).__name__ for stmt in body]
