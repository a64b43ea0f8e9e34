"""Three answers to "are these outputs right?": the oracle's, and two with fixed tolerances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, Symbol, TensorView
from fuzz.bench.sensitivity.computation import stored
from fuzz.cases.features import live
from oracles.differential import compare
from oracles.reference.evaluate import Expected, shape_of
from oracles.verdict import Status

_FLOAT = {
    4: 1.68222e-06, 8: 2.23704e-06, 16: 2.95788e-06, 32: 4.4778e-06, 64: 6.75395e-06,
    128: 8.57934e-06, 256: 1.30594e-05, 512: 2.19122e-05, 1024: 3.3451e-05, 2048: 5.78476e-05,
    4096: 0.000108292, 8192: 0.00012207, 16384: 0.000136882, 32768: 0.000248561,
    65536: 0.000407594, 131072: 0.000500901, 262144: 0.000923019, 524288: 0.00156909,
    1048576: 0.00223107, 2097152: 0.00343043,
}  # fmt: skip
_HALF = {
    4: 0.00390625, 8: 0.0078125, 16: 0.0078125, 32: 0.0155334, 64: 0.0156269, 128: 0.0312042,
    256: 0.0312548, 512: 0.0619979, 1024: 0.0625103, 2048: 0.124686, 4096: 0.12501, 8192: 0.24945,
    16384: 0.250049, 32768: 0.498946, 65536: 0.500071, 131072: 0.985087, 262144: 1.00006,
    524288: 1.99234, 1048576: 2.00032, 2097152: 3.99073,
}  # fmt: skip
"""Absolute tolerances of nvFuser by the number of elements reduced.

Source: NVIDIA/Fuser, csrc/validator_utils.h, `ValidationConstants`, at commit 059f2e19; measured
there on sums of random numbers.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Wanted:
    """What outputs are held against: what the reference expects, and what fixed rules need.

    Parameters
    ----------
    expected : list of Expected
        One per output.
    exact : bool
        Whether the oracle demands equality.
    nearest : list of torch.Tensor
        The reference's values in the outputs' types.
    tolerances : list of (float, float)
        nvFuser's, absolute and relative, per output.
    """

    expected: list[Expected]
    exact: bool
    nearest: list[torch.Tensor]
    tolerances: list[tuple[float, float]]


def wanted(
    fusion: Fusion, sizes: dict[Symbol, int], expected: list[Expected], *, exact: bool
) -> Wanted:
    """Return what the outputs of a fusion are held against."""
    many = reduced(fusion, sizes)
    return Wanted(
        expected,
        exact,
        [stored(one.value, one.dtype) for one in expected],
        [tolerance(tv.dtype, many[tv]) for tv in fusion.outputs],
    )


def oracle(want: Wanted, got: list[torch.Tensor]) -> Status:
    """Ask the numeric oracle."""
    return compare(want.expected, got, exact=want.exact).status


def torch_defaults(want: Wanted, got: list[torch.Tensor]) -> Status:
    """Ask `torch.testing.assert_close` with its default tolerances; NaN equals NaN."""
    for value, have in zip(want.nearest, got, strict=True):
        try:
            torch.testing.assert_close(have, value, equal_nan=True)
        except AssertionError:
            return Status.FAIL
    return Status.PASS


def nvfuser(want: Wanted, got: list[torch.Tensor]) -> Status:
    """Ask nvFuser's rule: `allclose` by a table of sizes, equality for integers.

    Source: NVIDIA/Fuser, csrc/validator_utils.cpp, `testValidate`, at commit 059f2e19.
    """
    for one, value, have, (absolute, relative) in zip(
        want.expected, want.nearest, got, want.tolerances, strict=True
    ):
        if not one.dtype.is_float:
            right = torch.equal(value, have)
        else:
            held = torch.float32 if one.dtype.is_f8 else value.dtype
            right = torch.allclose(
                value.to(held), have.to(held), rtol=relative, atol=absolute, equal_nan=True
            )
        if not right:
            return Status.FAIL
    return Status.PASS


def tolerance(dtype: DType, many: int) -> tuple[float, float]:
    """Return nvFuser's absolute and relative tolerance of a type, `many` elements reduced to one.

    Source: NVIDIA/Fuser, csrc/validator_utils.cpp, `getTolerance`: the entry behind the first that
    is no smaller, ten times for bf16 and 8-bit floats; nothing reduced, the first two entries.
    """
    if not dtype.is_float:
        return 0.0, 0.0
    entries = list((_FLOAT if dtype in (DType.F32, DType.F64) else _HALF).items())
    if many <= 1:
        return entries[0][1], entries[1][1]
    first = next((n for n, (size, _) in enumerate(entries) if size >= many), len(entries))
    absolute = entries[first + 1][1] if first + 1 < len(entries) else 2 * entries[-1][1]
    absolute *= 1 if dtype in (DType.F16, DType.F32, DType.F64) else 10
    return absolute, absolute * 0.01


def reduced(fusion: Fusion, sizes: dict[Symbol, int]) -> dict[TensorView, int]:
    """Return how many elements are reduced to one on the way to each tensor, as nvFuser counts."""
    found: dict[TensorView, int] = {}
    for tv in live(fusion):
        args = [arg for arg in tv.args if isinstance(arg, TensorView)]
        own = 1
        attrs = {key: [int(n) for n in value] for key, value in tv.attrs}
        if tv.op == "mma":
            for axis in attrs["reduced"]:
                ways = zip(args, (attrs["a_axes"][axis], attrs["b_axes"][axis]), strict=True)
                own *= max(shape_of(arg, sizes)[n] for arg, n in ways if n >= 0)
        elif "dims" in attrs and tv.op in ("sum", "mean", "prod", "max", "min"):
            own = prod(shape_of(args[0], sizes)[axis] for axis in attrs["dims"])
        found[tv] = own * max([1, *(found[arg] for arg in args)])
    return found


Rule = Callable[[Wanted, list[torch.Tensor]], Status]
OURS = "oracle"
"""The rule that has a target."""
RULES: dict[str, Rule] = {
    OURS: oracle,
    "assert_close": torch_defaults,
    "nvFuser": nvfuser,
}
"""Who is asked."""
