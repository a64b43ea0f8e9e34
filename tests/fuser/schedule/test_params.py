"""Params are checked where they are made; every refusal says the way out."""

from dataclasses import asdict

import pytest

from fuser.errors import ScheduleError
from fuser.schedule.params import PointwiseParams

GOOD: dict[str, object] = {
    "tile": (8, 128),
    "vector": 8,
    "warps": 4,
    "ctas_per_sm": 2,
    "load": "tma",
    "store": "direct",
    "stages": 3,
    "prefetch": 2,
    "warp_specialized": False,
    "flat": False,
    "transpose": False,
    "overlay": False,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": 9}, r"a ring has 1\.\.8 stages; use stages=8"),
        ({"stages": 0, "prefetch": 0}, r"a ring has 1\.\.8 stages; use stages=1"),
        ({"prefetch": 3}, r"prefetch must be 0\.\.2; use prefetch=2"),
        ({"prefetch": -1}, r"prefetch must be 0\.\.2"),
        ({"vector": 3}, r"need 1, 2, 4, 8 or 16 elements; use 8"),
        ({"tile": (8, 100)}, r"8 does not divide 100 columns; use 104 columns"),
        ({"tile": (8, 512)}, r"at most 256 elements per axis; use tile=\(8, 256\)"),
        (
            {"tile": (8, 512), "load": "direct", "stages": 1, "prefetch": 0, "store": "tma"},
            r"at most 256 elements per axis",
        ),
        ({"tile": (0, 128)}, r"need two positive ints, rows and columns"),
        ({"tile": 128}, r"need two positive ints, rows and columns"),
        ({"tile": (512, 256)}, r"131072 elements, a tile has at most 65536"),
        ({"tile": (64, 256)}, r"128 elements per thread, at most 64"),
        ({"warps": 0}, r"need 1\.\.16 warps"),
        ({"warps": 2.5}, r"warps must be an int"),
        ({"ctas_per_sm": 0}, r"need 1\.\.32 or None"),
        ({"load": "cp.async"}, r"unknown mechanism; use \"direct\", \"tma\", \"bulk\" or "),
        ({"load": "direct"}, r"direct loads have no ring"),
        ({"warp_specialized": True}, r"the load role runs ahead by its stages; use prefetch=0"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    """Out of range, or two options that contradict each other."""
    with pytest.raises(ScheduleError, match=message):
        PointwiseParams(**(GOOD | change))  # type: ignore[arg-type] # wrong types are the point


def test_params_are_plain_data() -> None:
    """Their repr builds them again: repro scripts are written that way."""
    params = PointwiseParams(**GOOD)  # type: ignore[arg-type] # a dict of mixed values
    assert eval(repr(params)) == params
    assert asdict(params) == GOOD


@pytest.mark.parametrize(
    ("change", "family"),
    [
        ({}, "tma-pipelined/direct"),
        ({"warp_specialized": True, "prefetch": 0, "store": "tma"}, "tma-specialized/tma"),
        ({"load": "direct", "stages": 1, "prefetch": 0}, "direct/direct"),
    ],
)
def test_family_names(change: dict[str, object], family: str) -> None:
    """Rows of the report."""
    params = PointwiseParams(**(GOOD | change))  # type: ignore[arg-type] # a dict of mixed values
    assert params.family == family
