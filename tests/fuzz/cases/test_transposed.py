"""Transposed tiles by every mechanism: built, proved, simulated and compared with the reference."""

from __future__ import annotations

import judged
import pytest

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.cases.case import Case, compiled, symbols

PARAMS = {
    "direct": PointwiseParams((16, 32), 8, 2, None, "direct", "direct", transpose=True),
    "scalars": PointwiseParams((16, 32), 1, 2, 1, "direct", "direct", transpose=True),
    "sent": PointwiseParams((32, 32), 4, 4, 2, "direct", "tma", transpose=True),
    "pipelined": PointwiseParams((32, 16), 8, 1, 1, "tma", "direct", 3, 2, transpose=True),
    "specialized": PointwiseParams(
        (32, 32), 8, 2, 1, "tma", "tma", 2, warp_specialized=True, transpose=True
    ),
}
EVEN, ODD = (48, 64, 16), (33, 7, 18)


def turned(*dtypes: str) -> Fusion:
    """Add up tensors of three orders, and return the sum in two."""
    fd = FusionDefinition()
    orders = [[0, 1, 2], [2, 1, 0], [0, 2, 1]]
    total = None
    for order, dtype in zip(orders, dtypes, strict=True):
        x = fd.ops.permute(fd.define_tensor(shape=[-1] * 3, dtype=dtype), order)
        total = x if total is None else fd.ops.add(total, x)
    assert total is not None
    fd.add_output(total)
    fd.add_output(fd.ops.permute(fd.ops.neg(total), [2, 0, 1]))
    return fd.fusion()


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("shape", [EVEN, ODD], ids=["even", "odd"])
def test_every_judge_passes_transposed_tiles(name: str, shape: tuple[int, int, int]) -> None:
    """Three orders of inputs, two of results, types of two widths; tails along every axis."""
    params = PARAMS[name]
    if shape == ODD and "tma" in (params.load, params.store):
        pytest.skip("TMA wants rows of multiples of 16 bytes")
    fusion = turned("bf16", "f32", "bf16")
    extents = dict(zip(symbols(fusion), shape, strict=True))
    records = judged.records(Case(fusion, params, extents, "integers", 3))
    assert {r.oracle for r in records} == {"build", *CPU_ORACLES}
    assert {(r.status, r.kind) for r in records} == {("pass", "")}


def test_what_is_put_across_is_got_along() -> None:
    """Inputs are got across their slots, results put across; each of them once."""
    fusion = turned("f32", "f32", "f32")
    extents = dict.fromkeys(symbols(fusion), 32)
    (launch,) = compiled(Case(fusion, PARAMS["direct"], extents, "integers", 0)).launches
    text = [str(type(s).__name__) for s in launch.kernel.walk() if getattr(s, "transposed", False)]
    assert sorted(text) == ["Load", "Store"]
