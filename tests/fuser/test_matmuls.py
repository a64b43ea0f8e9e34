"""Matmuls as the compiler writes them, before simulator and explorer: right, and fast enough."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from matmuls import ampere

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from fuzz.kernels.product import Matmul, matmul
from fuzz.mutation.operators import drop_each_sync
from fuzz.mutation.site import redeclared, substituted
from oracles.explorer import explore
from oracles.simulator.memory.ops import round_to
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status, Verdict

LARGE = Matmul()
SHAPES = {
    "large": LARGE,
    "one warpgroup": Matmul((64, 64, 16), 2, 1, 32, 0),
    "A along M": Matmul((64, 64, 16), 3, 1, 64, 1, a_transposed=True, matrix=False),
    "both turned, batch": Matmul(
        (128, 64, 32), 3, 2, 32, 2, a_transposed=True, b_transposed=True, batch=True
    ),
    "direct, batch": Matmul((128, 32, 16), 1, 2, 16, 0, batch=True, staged=False, pooled=False),
}


def multiplied(
    kernel: kir.Kernel, how: Matmul, rows: int, columns: int, steps: int, grid: int
) -> Verdict:
    """Run a kernel once on small integers, and compare every bit."""
    depth = steps * how.tile[2]
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-4, 5, (n, depth)).astype(np.float32) for n in (rows, columns))
    d = np.full((rows, columns), np.nan, np.float32)
    given = {"A": a.T if how.a_transposed else a, "B": b.T if how.b_transposed else b, "D": d}
    tensors = {n: np.ascontiguousarray(x).reshape(how.shape(*x.shape)) for n, x in given.items()}
    launch = Launch(grid, {"M": rows, "N": columns, "K": depth})
    verdict = simulate(kernel, launch, tensors, seed=steps)
    if verdict.status is Status.PASS:
        np.testing.assert_array_equal(d, round_to(DType.BF16, a @ b.T))
    return verdict


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_values_are_right_in_tails(name: str, steps: int) -> None:
    """Two CTAs, two tiles or none of its own, edges inside a tile."""
    how = SHAPES[name]
    kernel = matmul(how)
    validate(kernel, final=True)
    rows, columns = 2 * how.tile[0] - 8, how.tile[1] + 8
    verdict = multiplied(kernel, how, rows, columns, steps, grid=2)
    assert verdict.status is Status.PASS, verdict


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_older_way_is_right(steps: int) -> None:
    """cp.async by all, `ldmatrix` and `mma`."""
    validate(ampere(), final=True)
    verdict = multiplied(ampere(), Matmul((128, 128, 32)), 248, 120, steps, grid=2)
    assert verdict.status is Status.PASS, verdict


def test_a_large_kernel_is_simulated_in_time() -> None:
    """Two CTAs of two tiles of five steps; a search runs thousands."""
    kernel = matmul(LARGE)
    start = time.process_time()
    verdict = multiplied(kernel, LARGE, 256, 512, 5, grid=2)
    assert verdict.status is Status.PASS, verdict
    assert time.process_time() - start < 2


@pytest.mark.parametrize("name", SHAPES)
def test_the_explorer_passes_what_is_right(name: str) -> None:
    """Every interleaving of two tiles, with less than a ring of steps and with more."""
    how = SHAPES[name]
    for steps in (0, 1, how.stages + 1):
        extents = {"M": 2 * how.tile[0], "N": how.tile[1], "K": steps * how.tile[2]}
        verdict = explore.explore(matmul(how), explore.Launch(1, extents))
        assert verdict.status is Status.PASS, verdict


SMALL = Matmul((64, 16, 16), 2, 1, 8, 1, a_transposed=True)


def test_every_sync_that_is_dropped_is_missed_by_both() -> None:
    """But a fence that a block sync makes up for, and registers that nobody has to take."""
    extents = {"M": 128, "N": 16, "K": 16 * 5}
    survivors: dict[str, set[str]] = {"simulator": set(), "explorer": set()}
    for mutant in drop_each_sync(matmul(SMALL)):
        word = type(mutant.victim).__name__
        if search(mutant.kernel, Launch(1, extents), schedules=6).status is Status.PASS:
            survivors["simulator"].add(word)
        found = explore.explore(mutant.kernel, explore.Launch(1, extents), states=2000)
        if found.status is not Status.FAIL:
            survivors["explorer"].add(word)
    expected = {"FenceMBarrierInit", "SetMaxNReg"}
    assert survivors == {"simulator": expected, "explorer": expected}


def test_a_barrier_does_not_live_among_swizzled_elements() -> None:
    """Nor beyond all of shared memory."""
    kernel = matmul(SMALL)
    full, buffer = kernel.barriers[0], kernel.buffers[0]
    for at in (buffer.offset + 1024, 1 << 15):
        moved = redeclared(kernel, full, replace(full, offset=at))
        extents = {"M": 64, "N": 16, "K": 16}
        assert simulate(moved, Launch(1, extents)).status is Status.FAIL
        assert explore.explore(moved, explore.Launch(1, extents)).status is Status.FAIL


@pytest.mark.parametrize("threads", [64, 256])
def test_a_result_is_dealt_to_those_who_multiply(threads: int) -> None:
    """Each warp of a warpgroup holds sixteen rows of sixty-four, whatever a layout says."""
    layout = kir.Layout((64, 16), 2, 128, kir.Deal.STRIPS)
    kernel = matmul(replace(SMALL, chunk=16))
    other = substituted(kernel, {layout: replace(layout, threads=threads)})
    extents = {"M": 64, "N": 16, "K": 16}
    for wrong in (
        simulate(other, Launch(1, extents)),
        explore.explore(other, explore.Launch(1, extents)),
    ):
        assert {f.kind for f in wrong.findings if f.severity == "error"} == {"collective"}
