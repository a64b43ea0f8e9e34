"""Products by wgmma: what the epilogue reads, and operands that lie along rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuser import kernel_ir as kir
from fuser.classify import classify
from fuser.errors import ScheduleError
from fuser.fusion_ir import Fusion, FusionDefinition
from fuser.matmul_params import MatmulParams, Split
from fuser.pipeline import build
from fuser.runtime import Executable
from fuzz.case import Case, specs
from fuzz.judge import judge

COOPERATIVE = MatmulParams(
    (64, 32, 16), 1, "cooperative", 2, 0, persistent=True, columns=16, inputs="tma"
)
PARAMS = {
    "pipelined": replace(COOPERATIVE, split="pipelined", prefetch=1),
    "cooperative": COOPERATIVE,
    "ping_pong": replace(COOPERATIVE, split="ping_pong", warpgroups=2),
    "ping_pong, one chunk": replace(COOPERATIVE, split="ping_pong", warpgroups=2, columns=32),
    "stored directly": replace(COOPERATIVE, store="direct"),
    "cluster": replace(COOPERATIVE, cluster=(2, 1)),
    "ping_pong, cluster": replace(
        COOPERATIVE, split="ping_pong", warpgroups=2, cluster=(1, 2), columns=32
    ),
}


def residual(dtype: str = "bf16") -> Fusion:
    """`(x @ w + bias) + r`."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    y = fd.ops.linear(x, w, fd.define_tensor(["n"], "bf16"))
    fd.add_output(fd.ops.cast(fd.ops.add(y, fd.define_tensor(["m", "n"], dtype)), "bf16"))
    return fd.fusion()


def kernel(of: Case) -> kir.Kernel:
    """The one kernel of a case."""
    (launch,) = build(of.fusion, of.params, classify(of.fusion, of.params, specs(of))).launches
    return launch.kernel


@pytest.mark.parametrize(
    ("params", "dtype"),
    [*((params, "bf16") for params in PARAMS.values()), (COOPERATIVE, "f32")],
    ids=[*PARAMS, "f32"],
)
def test_tma_brings_whole_tiles_of_what_the_epilogue_reads(
    params: MatmulParams, dtype: str
) -> None:
    """And nothing else: the bias is loaded directly."""
    of = Case(residual(dtype), params, {"m": 200, "n": 72, "k": 40}, "reals", 0)
    loads = [s.src.tensor.name for s in kernel(of).walk() if isinstance(s, kir.TmaLoad)]
    assert loads.count("T6") == params.tile[1] // params.columns
    direct = {
        s.src.tensor.name
        for s in kernel(of).walk()
        if isinstance(s, kir.Load) and isinstance(s.src, kir.Box)
    }
    assert direct == {"T2"}
    assert not [r for r in judge(of) if r.status != "pass"]


def test_what_tma_cannot_bring_is_loaded_directly() -> None:
    """Rows of an odd number of elements."""
    of = Case(residual(), COOPERATIVE, {"m": 65, "n": 33, "k": 40}, "reals", 0)
    assert {s.src.tensor.name for s in kernel(of).walk() if isinstance(s, kir.TmaLoad)} == {
        "T0",
        "T1",
    }
    assert not [r for r in judge(of) if r.status != "pass"]


def test_a_ring_of_tiles_needs_several() -> None:
    """One CTA a tile has none."""
    with pytest.raises(ScheduleError, match='use persistent=True, or inputs="direct"'):
        replace(COOPERATIVE, persistent=False)


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("split", ["cooperative", "ping_pong"])
@pytest.mark.parametrize("k", [16, 64])
def test_transposed_operands_in_clusters(k: int, split: Split, cluster: tuple[int, int]) -> None:
    """Addresses of CTAs but the first have the rank in bits that descriptors use otherwise.

    With several panels that ended in "out-of-range shared address" of wgmma.
    """
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], "bf16", stride_order=[0, 1])
    w = fd.define_tensor(["n", "k"], "bf16", stride_order=[0, 1])
    fd.add_output(fd.ops.linear(x, w))
    groups = 2 if split == "ping_pong" else 1
    params = MatmulParams(
        (128, 48, k), groups, split, 2, 0, persistent=True, columns=48, cluster=cluster
    )
    a, b = (torch.randint(-3, 4, (192, n), device="cuda").bfloat16().t() for n in (520, 200))
    (got,) = Executable(fd.fusion(), params)(a, b)
    assert torch.equal(got, (a.float() @ b.float().t()).bfloat16())
