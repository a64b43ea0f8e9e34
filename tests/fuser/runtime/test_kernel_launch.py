"""Kernels written by hand, launched: exact against torch; bad calls refused without a device."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from device_checks import check_counters, compare, finish, integers, output
from kernels_matmul import SHAPES, matmul
from litmus.dependents import copied
from litmus.parts import tensor
from litmus.suite import RECIPES as LITMUS
from litmus.tensor_maps import grouped, leaving

from fuser.codegen import cuda
from fuser.cookbook.recipes import RECIPES
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel.ir import LaunchSequence
from fuser.runtime.kernel_launch import Prepared, check_tensors, launch_kernel, values_of
from fuser.runtime.nvrtc import compile_cubin

POISON = ("FUSER_POISON_SMEM",)
SUMS = ("tma_ring", "specialized_ring", "store_ring")
SHARED = ("split_k", "split_k_tma")
ANY_GRID = (*SUMS, "persistent", "ping_pong")
MATMULS = tuple(name for name in RECIPES if name not in SUMS)


def test_a_missing_parameter_is_named() -> None:
    """The message says where to give it."""
    with pytest.raises(ScheduleError, match="no value for N, K; give one in params"):
        values_of(RECIPES["wgmma_ring"](), 1, {"M": 64})


def test_a_broken_condition_is_shown_with_its_numbers() -> None:
    """Judges rely on `requires`, so a launch must not break it."""
    with pytest.raises(ScheduleError, match=r"grid=2\): needs .* but M = 64, N = 8, K = 16, gridD"):
        values_of(RECIPES["wgmma_ring"](), 2, {"M": 64, "N": 8, "K": 16})


def test_a_grid_is_whole_clusters() -> None:
    """The driver would refuse it with a number instead of a reason."""
    with pytest.raises(ScheduleError, match="clusters of 2 CTAs; use a positive multiple"):
        values_of(RECIPES["cluster_multicast"](), 3, {"M": 64, "N": 8, "K": 16})


def tensors(m: int, n: int, k: int) -> dict[str, torch.Tensor]:
    """Arguments of a matmul recipe, on no device."""
    return {
        "A": torch.zeros(m, k, dtype=torch.bfloat16),
        "B": torch.zeros(n, k, dtype=torch.bfloat16),
        "D": torch.zeros(m, n),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": torch.zeros(64, 16)}, "A is float32, the kernel says bfloat16; cast"),
        ({"D": torch.zeros(63, 8)}, "D has 2016 bytes, the kernel says 2048; give a larger"),
        ({"E": torch.zeros(1)}, "E is no tensor of it"),
        (
            {"B": torch.zeros(8 * 16 + 4, dtype=torch.bfloat16)[4:]},
            r"B at 0x.*8, strides \[16\], is not aligned to 8 elements \(16 bytes\)",
        ),
    ],
    ids=["dtype", "size", "stray", "address"],
)
def test_a_tensor_that_does_not_fit_is_refused(
    change: dict[str, torch.Tensor], message: str
) -> None:
    """Out of bounds on a device is an error in another test, later."""
    kernel = RECIPES["wgmma_ring"]()
    values = values_of(kernel, 1, {"M": 64, "N": 8, "K": 16})
    check_tensors(kernel, values, tensors(64, 8, 16), {})
    with pytest.raises(ScheduleError, match=message):
        check_tensors(kernel, values, tensors(64, 8, 16) | change, {})


def test_a_row_that_is_not_aligned_is_refused() -> None:
    """TMA would refuse the map, ordinary vector accesses would trap."""
    kernel = RECIPES["wgmma_ring"]()
    values = values_of(kernel, 1, {"M": 64, "N": 8, "K": 12})
    with pytest.raises(ScheduleError, match=r"A at .* strides \[12\], is not aligned"):
        check_tensors(kernel, values, tensors(64, 8, 12), {})


def test_what_is_missing_is_named() -> None:
    """Tensors and scalars alike."""
    kernel = RECIPES["wgmma_ring"]()
    values = values_of(kernel, 1, {"M": 64, "N": 8, "K": 16})
    with pytest.raises(ScheduleError, match="nothing given for A, B, D; add it"):
        check_tensors(kernel, values, {}, {})


# --- on a device --------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("poison", [(), POISON], ids=["plain", "poison"])
@pytest.mark.parametrize("grid", [1, 3, 40])
@pytest.mark.parametrize(("rows", "cols"), [(4, 64), (1, 4), (9, 200), (33, 1000)])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, rows: int, cols: int, grid: int, poison: tuple[str, ...]) -> None:
    """Y = X + X, of whole tiles and parts of tiles, with idle CTAs and busy ones."""
    kernel, what = RECIPES[name](), f"{name} {rows} x {cols} by {grid}"
    x, y = integers(rows, cols, torch.float32, 1), output(rows, cols, torch.float32)
    launch_kernel(kernel, grid, {"R": rows, "C": cols}, {"X": x, "Y": y.tensor}, defines=poison)
    finish(kernel, what)
    compare(what, kernel, y, x + x)


def grids(name: str, m: int, n: int) -> list[tuple[int, dict[str, int]]]:
    """Grids of a recipe for an output, with further parameters."""
    down, across = -(-m // 64), -(-n // 8)
    if name in ANY_GRID:
        return [(grid, {}) for grid in (1, 2, 5, down * across + 3)]
    if name in SHARED:
        return [(down * across * splits, {"splits": splits}) for splits in (1, 2, 5)]
    if name == "cluster_multicast":
        return [(-(-down // 2) * 2 * across, {})]
    return [(down * across, {})]


@pytest.mark.gpu
@pytest.mark.parametrize("poison", [(), POISON], ids=["plain", "poison"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 8, 16), (64, 8, 64), (1, 4, 8), (100, 20, 72), (300, 36, 200)]
)
@pytest.mark.parametrize("name", MATMULS)
def test_matmuls(name: str, m: int, n: int, k: int, poison: tuple[str, ...]) -> None:
    """D = A B^T, with tails along every axis and fewer steps than stages."""
    kernel = RECIPES[name]()
    a, b, b2 = (integers(rows, k, torch.bfloat16, rows) for rows in (m, n, n + 1))
    want = a.float() @ b.float().T
    operands = {"A": a, "B": b}
    if name == "double_wgmma":
        operands["B2"] = b2[:n]
        want = want * (a.float() @ b2[:n].float().T)
    for grid, more in grids(name, m, n):
        what = f"{name} {m} x {n} x {k} by {grid} {more}"
        d = output(m, n, torch.float32)
        params = {"M": m, "N": n, "K": k, **more}
        made = launch_kernel(kernel, grid, params, {**operands, "D": d.tensor}, defines=poison)
        finish(kernel, what)
        compare(what, kernel, d, want)
        check_counters(what, made, kernel)


def test_a_kernel_is_prepared_under_the_same_conditions() -> None:
    """Before anything is compiled."""
    with pytest.raises(ScheduleError, match="no value for N, K; give one in params"):
        Prepared(RECIPES["wgmma_ring"](), 1, {"M": 64}, {})


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHARED)
def test_a_prepared_kernel_finds_what_its_last_launch_has_left(name: str) -> None:
    """Semaphores and ticket are zeroed once."""
    m, n, k, splits = 128, 16, 96, 3
    a, b = (integers(rows, k, torch.bfloat16, rows) for rows in (m, n))
    d, kernel = output(m, n, torch.float32), RECIPES[name]()
    tensors = {"A": a, "B": b, "D": d.tensor}
    params = {"M": m, "N": n, "K": k, "splits": splits}
    prepared = Prepared(kernel, 4 * splits, params, tensors)
    for turn in range(3):
        d.tensor.fill_(float("nan"))
        prepared.launch()
        finish(kernel, f"{name}, launch {turn}")
        compare(f"{name}, launch {turn}", kernel, d, a.float() @ b.float().T)
        check_counters(name, prepared.counters, kernel)


@pytest.mark.gpu
@pytest.mark.parametrize("size", ["tile", "tiles", "tail"])
@pytest.mark.parametrize("name", SHAPES)
def test_fast_matmuls(name: str, size: str) -> None:
    """Every way in which operands lie: one tile, many, and tails along every axis."""
    shape = SHAPES[name]
    kernel, (tile_m, tile_n, step) = matmul(shape), shape.tile
    m, n, k = {
        "tile": (tile_m, tile_n, step),
        "tiles": (2 * tile_m, 3 * tile_n, 9 * step),
        "tail": (tile_m + 24, tile_n + 40, 5 * step + 8),
    }[size]
    dtype = torch.float16 if shape.dtype is DType.F16 else torch.bfloat16
    a, b = integers(m, k, dtype, 1), integers(n, k, dtype, 2)
    left = a.relu() if shape.a_in_registers else a
    want = (left.float() @ b.float().T).to(dtype)
    d = output(m, n, dtype)
    operands = {
        "A": a.T.contiguous() if shape.a_transposed else a,
        "B": b.T.contiguous() if shape.b_transposed else b,
        "D": d.tensor,
    }
    grid, what = -(-m // tile_m) * -(-n // tile_n), f"{name} {m} x {n} x {k}"
    launch_kernel(kernel, grid, {"M": m, "N": n, "K": k}, operands)
    finish(kernel, what)
    compare(what, kernel, d, want)


@pytest.mark.gpu
def test_dependent_launches_hand_a_tile_on() -> None:
    """Each of a row of launches reads what the one before writes, and starts before that ends."""
    tiles = [integers(4, 32, torch.float32, 1), *(torch.zeros(4, 32).cuda() for _ in range(64))]
    kernel = copied("start_others ended load store", source=tensor("X"), target=tensor("Y"))
    for x, y in pairwise(tiles):
        launch_kernel(kernel, 1, {}, {"X": x, "Y": y})
    finish(kernel, "a row of dependent launches")
    assert all(torch.equal(tile, tiles[0]) for tile in tiles)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 5, 64])
@pytest.mark.parametrize(
    "name",
    [
        "one_lane_arrives_for_its_warp",
        "one_lane_arrives_for_two_warps",
        "one_lane_tells_of_a_tile_stored_by_all",
        "one_lane_arrives_for_its_warp_in_a_cluster",
    ],
)
def test_one_lane_arrives_for_several(name: str, n: int) -> None:
    """A count that the hardware took for another one would hang, or free a slot too early."""
    kernel = LITMUS[name]
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    x = integers(4 * n, 32, torch.float32, 1)
    y = output(4 * n * kernel.cluster, 32, torch.float32)
    launch_kernel(kernel, kernel.cluster, {"n": n}, {"X": x, "Y": y.tensor})
    finish(kernel, name)
    each = x.reshape(n, 1, 4, 32).expand(n, kernel.cluster, 4, 32)
    compare(name, kernel, y, each.reshape(-1, 32))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 33])
@pytest.mark.parametrize(
    "name", ["tiles_sent_in_turns", "tiles_sent_between_meetings", "row_sums_of_a_cluster"]
)
def test_threads_store_into_a_peer(name: str, n: int) -> None:
    """Tiles swap their places in a pair of CTAs; of the sums of rows each gets both."""
    kernel = LITMUS[name]
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    x, y = integers(8 * n, 32, torch.float32, 1), output(8 * n, 32, torch.float32)
    launch_kernel(kernel, 2, {"n": n}, {"X": x, "Y": y.tensor})
    finish(kernel, name)
    pairs = x.reshape(n, 2, 4, 32)
    want = pairs.flip(1)
    if name == "row_sums_of_a_cluster":
        want = pairs + pairs.sum((1, 3), keepdim=True)
    compare(name, kernel, y, want.reshape(-1, 32))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["tile_sent_to_the_own_cta", "tile_sent_and_copied_out_by_an_engine"]
)
def test_threads_store_into_their_cluster(name: str) -> None:
    """Into their own CTA; and into a peer, whose engine copies that out."""
    kernel = LITMUS[name]
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    x, y = integers(8, 32, torch.float32, 1), output(8, 32, torch.float32)
    launch_kernel(kernel, 2, {}, {"X": x, "Y": y.tensor})
    finish(kernel, name)
    want = x if name.endswith("own_cta") else x.reshape(2, 4, 32).flip(0).reshape(8, 32)
    compare(name, kernel, y, want)


@pytest.mark.gpu
@pytest.mark.parametrize("maps", [1, 2])
@pytest.mark.parametrize(("grid", "n", "m"), [(1, 5, 1), (2, 7, 3), (3, 64, 2)])
def test_tensor_maps_are_those_of_the_group(maps: int, grid: int, n: int, m: int) -> None:
    """Each CTA writes its maps anew for every group, and its tiles are those of that group."""
    x, y = integers(n * m * 4, 32, torch.float32, n), output(n * m * 4, 32, torch.float32)
    kernel, what = grouped(maps=maps), f"{n} groups of {m} tiles, {maps} maps"
    for _ in range(3):
        launch_kernel(kernel, grid, {"n": n, "m": m}, {"X": x, "Y": y.tensor})
    finish(kernel, what)
    compare(what, kernel, y, x)


@pytest.mark.gpu
@pytest.mark.parametrize("maps", [1, 2])
def test_results_leave_through_tensor_maps(maps: int) -> None:
    """A store goes where the map says that was written last."""
    x, y = integers(4 * 65, 32, torch.float32, 3), output(4 * 65, 32, torch.float32)
    kernel = leaving(maps=maps, keep=maps - 1)
    launch_kernel(kernel, 1, {"n": 65}, {"X": x, "Y": y.tensor})
    finish(kernel, "stores through maps")
    compare("stores through maps", kernel, y, x)


def test_tensor_maps_compile() -> None:
    """Every statement about them is an instruction that the assembler knows."""
    for kernel in (grouped(), leaving(maps=2, keep=1)):
        compile_cubin(cuda.source(kernel))


@pytest.mark.gpu
@pytest.mark.parametrize(("grid", "n"), [(1, 5), (3, 1), (7, 100), (264, 1000)])
@pytest.mark.parametrize(
    "name",
    [
        "tiles_are_drawn_between_barriers",
        "roles_work_on_tiles_that_one_draws",
        "roles_work_on_tiles_two_ahead",
    ],
)
def test_tiles_are_drawn(name: str, grid: int, n: int) -> None:
    """Each tile once, whoever draws it; and again, for the counter begins at 0."""
    kernel = LITMUS[name]
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    x, y = integers(4 * n, 32, torch.float32, 1), output(4 * n, 32, torch.float32)
    prepared = Prepared(kernel, grid, {"n": n}, {"X": x, "Y": y.tensor})
    for turn in range(3):
        y.tensor.fill_(float("nan"))
        prepared.launch()
        finish(kernel, f"{name}, launch {turn}")
        compare(f"{name}, launch {turn}", kernel, y, x)


@pytest.mark.gpu
def test_steps_of_tiles_are_drawn() -> None:
    """Sums over the steps of each tile."""
    kernel, n, m = LITMUS["steps_of_tiles_that_one_draws"], 50, 7
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    x, y = integers(4 * n * m, 32, torch.float32, 1), output(4 * n, 32, torch.float32)
    launch_kernel(kernel, 6, {"n": n, "m": m}, {"X": x, "Y": y.tensor})
    finish(kernel, "steps of tiles")
    compare("steps of tiles", kernel, y, x.reshape(n, m, 4, 32).sum(1).reshape(-1, 32))


@pytest.mark.gpu
@pytest.mark.parametrize("count", ["that_one_draws", "two_ahead"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 8, 16), (1, 4, 8), (1000, 200, 72)])
def test_products_of_tiles_are_drawn(m: int, n: int, k: int, count: str) -> None:
    """Three roles work on the same tile, whichever it is."""
    kernel, what = LITMUS[f"products_of_tiles_{count}"], f"{count} {m} x {n} x {k}"
    assert not isinstance(kernel, LaunchSequence), "one kernel"
    a, b = (integers(rows, k, torch.bfloat16, rows) for rows in (m, n))
    d, params = output(m, n, torch.float32), {"M": m, "N": n, "K": k}
    launch_kernel(kernel, 5, params, {"A": a, "B": b, "D": d.tensor})
    finish(kernel, what)
    compare(what, kernel, d, a.float() @ b.float().T)
