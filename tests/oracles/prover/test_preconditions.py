"""A launch that breaks what its kernel relies on is named, with the reason."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.cookbook.recipes import wgmma_ring
from fuser.expr import Var, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import function
from oracles.prover.launches import broken

GIVEN = {"R": 4, "C": 4, "pitch": 4, "gridDim": 1}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"R": 4, "C": 6, "pitch": 8}, "T0 is aligned to 4"),
        ({"R": 4, "C": 4, "pitch": 6}, "T0 is aligned to 4"),
        ({"R": -1, "C": 4, "pitch": 4}, "R is -1, less than 0"),
        ({"R": 4, "C": 4, "pitch": 4, "gridDim": 0}, "0 CTAs are no launch"),
        ({"R": 4, "C": 4, "pitch": 4}, ""),
    ],
)
def test_a_broken_precondition_is_named(values: dict[str, int], says: str) -> None:
    """Such a launch would be refused, which says nothing of the kernel."""
    found = broken(ks.direct(), {"gridDim": 1, **values})
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_a_requirement_and_a_cluster_are_preconditions() -> None:
    """Both are promises of the launch."""
    at = {**GIVEN, "gridDim": 3}
    assert "requires" in broken(replace(ks.direct(), requires=(eq(Var("gridDim"), 2),)), at)
    assert "cluster of 2" in broken(replace(ks.direct(), cluster=2), at)


def test_rows_that_tma_copies_lie_16_bytes_apart() -> None:
    """A tensor map takes no other strides; one row alone has none."""
    kernel = wgmma_ring()
    narrow = replace(kernel, tensors=tuple(replace(t, aligned=1) for t in kernel.tensors))
    boxes = {t.name: t for t in narrow.tensors}

    def rename(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad(_, box):
                return [replace(stmt, src=replace(box, tensor=boxes[box.tensor.name]))]
            case _:
                return None

    narrow = narrow.rewrite(rename)
    values = {"M": 2, "N": 8, "K": 4, "gridDim": 1}
    assert "strides must be multiples of 16 bytes" in broken(narrow, values)
    assert not broken(narrow, {**values, "K": 16})


def test_a_requirement_that_divides_by_zero_does_not_hold() -> None:
    """It is no number, so nothing is promised."""
    kernel = replace(ks.direct(), requires=(eq(ceildiv(ks.R, ks.C), 1),))
    at = {**GIVEN, "C": 0}
    assert "divides by 0" in broken(kernel, at)


def test_an_expression_is_a_function_of_values_by_name() -> None:
    """Values that it does not name are no concern."""
    assert function(ks.R * 2 + 1)({"R": 4, "C": 9}) == 9
    assert function(3)({}) == 3
