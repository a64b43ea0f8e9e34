"""Device code that moves tiles: whatever way in and way out, each element arrives at its place.

Without a device the kernels are only compiled; on one, every pair of ways runs.
"""

from __future__ import annotations

import pytest
import torch
from device_checks import compare, finish, integers, output
from kernels_moves import (
    COLS,
    DRAINS,
    EACH_WARP,
    FILLS,
    ROUND,
    ROWS,
    STRIPS,
    add_up,
    columns,
    count_up,
    move,
    products,
    swap,
)

from fuser.codegen import cuda
from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from fuser.runtime.kernel_launch import launch_kernel
from fuser.runtime.nvrtc import compile_cubin

SWIZZLES = (0, 32, 64, 128)
KERNELS: dict[str, kir.Kernel] = {
    **{f"in-{name}": move(name, "tma", 128) for name in FILLS},
    **{f"out-{name}": move("tma", name, 64) for name in DRAINS},
    "pull": swap(128, push=False),
    "push": swap(32, push=True),
    "columns": columns(32, 64),
    "count": count_up(STRIPS),
    "add": add_up(DType.F32),
    "products": products(2, 128),
}


@pytest.mark.parametrize("name", KERNELS)
def test_moves_are_legal_and_compile(name: str) -> None:
    """What a device will be asked to run, each way once."""
    validate(KERNELS[name], after="hand", final=True)
    log = compile_cubin(cuda.source(KERNELS[name])).log
    assert "warning" not in log


# --- on a device --------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("drain", DRAINS)
@pytest.mark.parametrize("fill", FILLS)
def test_what_goes_in_comes_out(fill: str, drain: str, swizzle: int) -> None:
    """Two tiles, the second with a tail along both axes."""
    kernel, what = move(fill, drain, swizzle), f"{fill} -> {drain}, swizzle {swizzle}"
    rows, cols = 2 * ROWS - 8, COLS - 24
    x, y = integers(rows, cols, torch.bfloat16, 1), output(rows, cols, torch.bfloat16)
    x += torch.arange(cols, device="cuda") % 64 * 4
    if drain == "reduction":
        y.tensor.zero_()
    launch_kernel(kernel, 2, {"M": rows, "N": cols}, {"X": x, "Y": y.tensor})
    finish(kernel, what)
    compare(what, kernel, y, x)


@pytest.mark.gpu
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("push", [False, True])
def test_ctas_of_a_cluster_swap_tiles(push: bool, swizzle: int) -> None:
    """By loads from the neighbour, and by stores into it."""
    kernel, what = swap(swizzle, push=push), f"swap, push={push}, swizzle {swizzle}"
    x = integers(4 * ROWS, COLS, torch.bfloat16, 1)
    y = output(4 * ROWS, COLS, torch.bfloat16)
    launch_kernel(kernel, 4, {"M": 4 * ROWS, "N": COLS}, {"X": x, "Y": y.tensor})
    finish(kernel, what)
    compare(what, kernel, y, x.view(2, 2, ROWS, COLS).flip(1).reshape(4 * ROWS, COLS))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [STRIPS, EACH_WARP, ROUND], ids=lambda a: a.deal.value)
def test_coordinates_are_those_of_the_layout(layout: kir.Layout) -> None:
    """Registers know their element."""
    kernel, (rows, cols) = count_up(layout), (2 * ROWS, COLS)
    y = output(rows, cols, torch.float32)
    launch_kernel(kernel, 2, {"M": rows, "N": cols}, {"Y": y.tensor})
    finish(kernel, "count_up")
    want = torch.arange(rows)[:, None] * 100 + torch.arange(cols)
    compare(f"count_up {layout.deal.value}", kernel, y, want)


@pytest.mark.gpu
@pytest.mark.parametrize(("column", "width"), [(0, 128), (32, 64), (120, 8), (8, 24)])
def test_a_slice_is_a_part_of_the_columns(column: int, width: int) -> None:
    """Nothing beside it is written."""
    kernel, what = columns(column, width), f"columns {column} + {width}"
    x, y = integers(ROWS, COLS, torch.bfloat16, 1), output(ROWS, COLS, torch.bfloat16)
    y.tensor.zero_()
    launch_kernel(kernel, 1, {"M": ROWS, "N": COLS}, {"X": x, "Y": y.tensor})
    finish(kernel, what)
    want = torch.zeros_like(x)
    want[:, column : column + width] = x[:, column : column + width]
    compare(what, kernel, y, want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [d for d in DType if d.nbytes > 1])
def test_every_cta_adds(dtype: DType) -> None:
    """Five times the tile; small integers are exact in all types."""
    kernel, own = add_up(dtype), getattr(torch, dtype.torch_name)
    x, y = integers(ROWS, COLS, own, 1), output(ROWS, COLS, torch.float64)
    total = torch.zeros(ROWS, COLS, dtype=own, device="cuda")
    launch_kernel(kernel, 5, {"M": ROWS, "N": COLS}, {"X": x, "Y": total})
    finish(kernel, f"add_up {dtype}")
    y.tensor.copy_(total)
    compare(f"add_up {dtype}", kernel, y, 5 * x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("warps", [1, 2, 3, 4, 8])
def test_warps_multiply_fragments(warps: int, swizzle: int, dtype: DType) -> None:
    """Four strips among one to eight warps: several each, uneven, and some with none."""
    kernel, what = products(warps, swizzle, dtype), f"products by {warps} warps, swizzle {swizzle}"
    x = integers(ROWS, COLS, getattr(torch, dtype.torch_name), 1)
    y = output(ROWS, ROWS, torch.float32)
    launch_kernel(kernel, 1, {"M": ROWS, "N": COLS}, {"X": x, "Y": y.tensor})
    finish(kernel, what)
    compare(what, kernel, y, x.float() @ x.float().T)
