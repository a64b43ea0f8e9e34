"""Tensor maps in the simulator: values, and where a map may begin and end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from litmus.parts import NBYTES, elect, fragment, init, load, slots, store, tensor, wait
from litmus.parts import kernel as made
from litmus.tensor_maps import alone, grouped, leaving, map_of

from fuser.kernel import ir as kir
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status

X = tensor("X", 2)


def once(ref: kir.MapSlot, src: kir.Box, *, each: bool = False) -> kir.Kernel:
    """One warp that copies a tile through a map."""
    buffer, tile, full = slots("S"), fragment("x"), kir.MBarrier("full", 1, 1)
    write = kir.TensorMapReplace(ref, src.limit)
    body = (
        init(full),
        kir.BlockSync(0, 32),
        write if each else elect(write),
        elect(
            kir.TensorMapRelease(),
            kir.TensorMapAcquire(ref.maps, ref.index),
            kir.MBarrierArriveExpectTx(full, 0, NBYTES),
            kir.TmaLoad(kir.Slot(buffer, 0), src, full, 0, through=ref),
        ),
        wait(full, 0, 0),
        load(tile, kir.Slot(buffer, 0)),
        store(kir.Box(tensor("Y"), (0, 0), (4, 32), (4, 32)), tile),
    )
    whole = made(body, buffers=(buffer,), barriers=(full,), tensors=(X, tensor("Y")), params=())
    return replace(whole, maps=(ref.maps,))


@pytest.mark.parametrize(
    ("kernel", "launch", "shape"),
    [
        (grouped(), Launch(2, {"n": 5, "m": 3}), (5, 12, 32)),
        (grouped(maps=1), Launch(1, {"n": 3, "m": 1}), (3, 4, 32)),
        (leaving(maps=2, keep=1), Launch(1, {"n": 5}), (20, 32)),
    ],
    ids=["groups", "one map", "stores"],
)
def test_copies_through_maps_move_their_tiles(
    kernel: kir.Kernel, launch: Launch, shape: tuple[int, ...]
) -> None:
    """What arrives is what the statement says, for a map that says the same."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y = np.zeros_like(x)
    assert simulate(kernel, launch, {"X": x, "Y": y}, seed=3).status is Status.PASS
    assert np.array_equal(x, y)


MAPS = kir.TensorMaps("maps", X, 1)


@pytest.mark.parametrize(
    ("ref", "src", "kinds"),
    [
        (map_of(MAPS, 0, 1), alone(X, 1), set()),
        (map_of(MAPS, 0, 0), alone(X, 1), set()),
        (map_of(MAPS, 1, 1), alone(X, 1), {"bounds"}),
        (map_of(MAPS, 0, 1), replace(alone(X, 1), limit=(9, 32)), {"bounds"}),
        (map_of(MAPS, 0, 1), replace(alone(X, 1), limit=(4, 32)), {"bounds"}),
        (kir.MapSlot(MAPS, 0, (4, 2)), replace(alone(X, 1), origin=(4, 2)), {"bounds"}),
        (map_of(MAPS, 0, 1), replace(alone(X, 0), limit=(8, 32)), {"map"}),
    ],
    ids=["last", "longer", "no map", "behind", "empty", "unaligned", "before"],
)
def test_a_copy_needs_a_map_inside_its_tensor(
    ref: kir.MapSlot, src: kir.Box, kinds: set[str]
) -> None:
    """Wherever it begins, it has to end behind that, and not behind the tensor."""
    verdict = search(once(ref, src), Launch(1, {}), schedules=2)
    assert {finding.kind for finding in verdict.findings} == kinds, verdict


def test_one_thread_writes_a_map() -> None:
    """All lanes would write the same 128 bytes."""
    verdict = search(once(map_of(MAPS, 0, 0), alone(X, 0), each=True), Launch(1, {}), schedules=2)
    assert {finding.kind for finding in verdict.findings} == {"WAW"}, verdict
