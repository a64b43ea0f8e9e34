"""Small cases for tests of another compiler under test."""

from __future__ import annotations

from collections.abc import Callable

from fuser.fusion.definition import FusionDefinition, Ops, TensorView
from fuzz.cases.case import Case, Kind
from fuzz.target.conduct import PLAIN

ELEMENTS = 40


def case_of(
    of: Callable[[Ops, TensorView], TensorView],
    dtype: str = "f32",
    *,
    kind: Kind = "integers",
    seed: int = 0,
    gap: int = 0,
) -> Case:
    """Return a case of one input with a row of `ELEMENTS` and another axis of 8."""
    fd = FusionDefinition()
    x = fd.define_tensor(["i0", 8], dtype, contiguity=[not gap, True])
    fd.add_output(of(fd.ops, x))
    return Case(fd.fusion(), PLAIN, {"i0": ELEMENTS // 8}, kind, seed, gap)
