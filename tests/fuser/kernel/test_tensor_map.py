"""The rules of tensor maps, each with the number that breaks it."""

import pytest
import torch
from cuda.bindings import driver
from fusions import SPECIALIZED, compiled

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import Encoding, map_of, maps_of
from fuser.runtime.launch import SWIZZLE

GOOD: dict[str, object] = {
    "dtype": DType.BF16,
    "address": 4096,
    "dims": (64, 32),
    "strides": (128,),
    "box": (64, 8),
}


def call(**change: object) -> None:
    """Check a good map with some fields changed."""
    Encoding(**(GOOD | change)).check("call(T0)")  # type: ignore[arg-type] # fields by name


def test_a_good_map_is_accepted() -> None:
    """The base of every refusal below."""
    call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 4104}, "address 0x1008 is no multiple of 16 bytes"),
        ({"strides": (120,)}, "a stride of 120 bytes; TMA needs a positive multiple of 16"),
        ({"strides": (0,)}, "a stride of 0 bytes"),
        ({"strides": (1 << 40,)}, r"below 2\*\*40"),
        ({"box": (257, 8)}, "257 elements along axis 0; a box has 1..256"),
        ({"box": (64, 0)}, "0 elements along axis 1"),
        ({"box": (4, 8)}, "a row of the box is 8 bytes; TMA needs a multiple of 16"),
        ({"dims": (0, 32)}, "axis 0 has 0 elements"),
        ({"dims": (1, 2, 3, 4, 5, 6)}, "1..5 axes, not 6"),
        ({"box": (128, 8), "swizzle": 128}, "256 bytes, longer than the 128-byte swizzle"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    """What cuTensorMapEncodeTiled refuses, we refuse first, with the number."""
    with pytest.raises(ScheduleError, match=message):
        call(**change)


def test_maps_of_a_kernel_are_its_copied_tensors() -> None:
    """Innermost axis first, one box each."""
    maps = maps_of(compiled(SPECIALIZED).launches[0].kernel)
    assert [(m.name, m.axes, m.box) for m in maps] == [
        ("T0_map", (1, 0), (128, 4)),
        ("T1_map", (1, 0), (128, 4)),
        ("T6_map", (1, 0), (128, 4)),
    ]


M, N = Var("M"), Var("N")
X = kir.Tensor("X", DType.BF16, (M, N), (N, 1), 8)
BAR = kir.MBarrier("bar", 1, 1)


def slot(rows: int, cols: int, swizzle: int) -> kir.Slot:
    """A slot of bf16."""
    return kir.Slot(kir.Buffer(f"S{rows}", DType.BF16, (rows, cols), 1, 0, swizzle), 0)


def test_a_map_is_one_panel_of_a_swizzled_slot() -> None:
    """The driver takes no box wider than the swizzle."""
    box = kir.Box(X, (0, 0), (64, 256), (M, N))
    load = kir.TmaLoad(slot(64, 256, 128), box, BAR, 0)
    (made,) = maps_of(kir.Kernel("k", (M, N), (X,), (), (), (BAR,), 32, (load,)))
    assert (made.name, made.box, made.swizzle) == ("X_map", (64, 64), 128)


def test_a_tensor_copied_in_two_ways_has_two_maps() -> None:
    """By other boxes, or into another swizzle; the same way again is the same map."""
    loads = [
        kir.TmaLoad(slot(rows, 64, swizzle), kir.Box(X, (0, 0), (rows, 64), (M, N)), BAR, 0)
        for rows, swizzle in ((64, 128), (32, 128), (64, 64), (64, 128))
    ]
    kernel = kir.Kernel("k", (M, N), (X,), (), (), (BAR,), 32, tuple(loads))
    made = [(m.name, m.box, m.swizzle) for m in maps_of(kernel)]
    assert made == [
        ("X_map", (64, 64), 128),
        ("X_map2", (64, 32), 128),
        ("X_map3", (32, 64), 64),
    ]
    names = [map_of(kernel, stmt.src, stmt.dst).name for stmt in loads]
    assert names == ["X_map", "X_map2", "X_map3", "X_map"]


def test_a_tensor_without_the_last_axis_has_no_panels() -> None:
    """A swizzle cuts rows; there is one element in each."""
    column = kir.Tensor("V", DType.BF16, (M, 1), (1, 0), 8)
    box = kir.Box(column, (0, 0), (64, 1), (M, 1))
    load = kir.TmaLoad(slot(64, 64, 128), box, BAR, 0)
    with pytest.raises(ScheduleError, match="one element along the last axis.*use swizzle=0"):
        maps_of(kir.Kernel("k", (M,), (column,), (), (), (BAR,), 32, (load,)))


def accepted_by_the_driver(**change: object) -> bool:
    """Ask the driver itself, past our rules."""
    fields = GOOD | change
    dims, strides, box = fields["dims"], fields["strides"], fields["box"]
    assert isinstance(dims, tuple)
    assert isinstance(strides, tuple)
    assert isinstance(box, tuple)
    swizzle = fields.get("swizzle", 0)
    assert isinstance(swizzle, int)
    error, _ = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        len(dims),
        fields["address"],
        [driver.cuuint64_t(n) for n in dims],
        [driver.cuuint64_t(n) for n in strides],
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in dims],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        SWIZZLE[swizzle],
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return bool(error == driver.CUresult.CUDA_SUCCESS)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"address": 4104},
        {"strides": (120,)},
        {"strides": (1 << 40,)},
        {"strides": ((1 << 40) - 16,)},
        {"box": (257, 8)},
        {"box": (256, 8)},
        {"box": (64, 0)},
        {"box": (4, 8)},
        {"dims": (0, 32)},
        {"dims": (1, 1)},
        {"dims": (1 << 32, 32)},
        {"dims": ((1 << 32) + 1, 32)},
        {"dims": (63, 31)},
        {"swizzle": 128},
        {"swizzle": 64},
        {"swizzle": 32, "box": (16, 8)},
        {"dims": (64,) * 5, "strides": (128, 256, 512, 1024), "box": (64, 1, 1, 1, 1)},
    ],
    ids=str,
)
def test_our_rules_are_the_drivers(change: dict[str, object]) -> None:
    """What we accept the driver accepts, and the reverse."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    try:
        call(**change)
        ours = True
    except ScheduleError:
        ours = False
    assert accepted_by_the_driver(**change) == ours
