"""The rules of tensor maps, each with the number that breaks it."""

import pytest
import torch
from cuda.bindings import driver
from fusions import SPECIALIZED, compiled

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.tensor_map import check, maps_of

GOOD: dict[str, object] = {
    "dtype": DType.BF16,
    "address": 4096,
    "dims": (64, 32),
    "strides": (128,),
    "box": (64, 8),
}


def call(**change: object) -> None:
    """Check a good map with some fields changed."""
    check("call(T0)", **(GOOD | change))  # type: ignore[arg-type] # fields by name


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
        ({"box": (128, 8), "swizzle_bytes": 128}, "256 bytes, longer than the 128-byte swizzle"),
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


def accepted_by_the_driver(**change: object) -> bool:
    """Ask the driver itself, past our rules."""
    fields = GOOD | change
    dims, strides, box = fields["dims"], fields["strides"], fields["box"]
    assert isinstance(dims, tuple)
    assert isinstance(strides, tuple)
    assert isinstance(box, tuple)
    error, _ = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        len(dims),
        fields["address"],
        [driver.cuuint64_t(n) for n in dims],
        [driver.cuuint64_t(n) for n in strides],
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in dims],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
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
