"""Where the elements of a thread lie."""

from __future__ import annotations

import kernels
import pytest
from kernels import T0, T1, WARPS, X, box

from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.simulator.simulate import Launch, search
from oracles.verdict import Status

TILE = kir.Buffer("S0", DType.F32, (4, 64), 1, 0)
LAUNCH = Launch(1, {"R": 4, "C": 64, "pitch": 64})


@pytest.mark.parametrize("vector", [4, 2])
def test_one_slot_object_is_read_under_two_layouts(vector: int) -> None:
    """What a thread touches follows from the layout, not from the slot alone."""
    slot = kir.Slot(TILE, 0)
    pair = kir.Fragment("pair", DType.F32, kir.Layout((4, 64), vector, 32))
    part = (kir.Load(pair, slot, vector), kir.Store(box(T1, 0), pair, vector))
    body: list[kir.Stmt] = [
        kir.Load(X, box(T0, 0), 4),
        kir.Store(slot, X, 4),
        kir.BlockSync(0, 32 * WARPS),
        kir.Role("one", 0, 1, part),
    ]
    verdict = search(kernels.kernel("small", body, buffers=(TILE,)), LAUNCH, schedules=6)
    assert verdict.status is Status.PASS, verdict
