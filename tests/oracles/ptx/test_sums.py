"""Sums of tensor cores: exact ones are the same for all, others as measured ones are."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.ptx.sums import Core, Floats, cut_off, exponents, once

KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2")


def matrices(seed: int, k: int) -> tuple[Floats, Floats, Floats]:
    """Return matrices of small integers, and an accumulator."""
    random = np.random.default_rng(seed)
    made = (random.integers(-4, 5, shape) for shape in ((16, k), (k, 8), (16, 8)))
    left, right, held = (x.astype(np.float64) for x in made)
    return left, right, held


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("core", [Core(), Core(bits=23), Core(parts=2)], ids=str)
def test_small_integers_are_exact(core: Core, kind: str) -> None:
    """As any order and rounding has them; of batches, too."""
    left, right, held = matrices(1, 16)
    want = once(left, right, held, kind, "f32")
    assert (core(left, right, held, kind, "f32") == want).all()
    some = core(
        np.stack([left, -left]), np.stack([right, right]), np.stack([held, -held]), kind, "f32"
    )
    assert (some == np.stack([want, -want])).all()


def test_integers_are_not_rounded() -> None:
    """Their sums wrap, which is the caller's."""
    left, right, held = matrices(2, 32)
    held[:] = 2.0**31 - 1
    assert (Core()(left, right, held, "s8", "s32") == left @ right + held).all()


def one(products: list[tuple[float, float]], held: float, kind: str, core: Core) -> float:
    """Return the sum of products."""
    left, right = (np.array(side, np.float64) for side in zip(*products, strict=True))
    made = core(left[None, :], right[:, None], np.array([[held]]), kind, "f32")
    return float(made[0, 0])


def test_what_is_far_below_the_largest_is_cut_off() -> None:
    """25 places below it, whatever is left of the sum; towards 0."""
    big, core = (2.0**12, 2.0**13), Core()
    less = (-(2.0**12), 2.0**13)
    assert one([big, less, (1.0, 1.0)], 0.0, "f16", core) == 1.0
    assert one([big, less, (0.5, 1.0)], 0.0, "f16", core) == 0.0
    assert one([big, less, (-1.5, 1.0)], 0.0, "f16", core) == -1.0
    assert one([big, less, (-1.5, 1.0)], 0.0, "f16", Core(bits=26)) == -1.5
    assert one([(1.0, 1.0), (1.0, 1.0)], 2.0**-24, "bf16", core) == 2.0


def test_sums_are_cut_off_and_not_rounded() -> None:
    """To 23 bits behind the point; of 8-bit floats to 13."""
    assert one([(1.0, 1.0), (2.0**-12, 2.0**-12)], 0.0, "f16", Core()) == 1.0
    assert one([(1.0, 1.0), (2.0**-12, 2.0**-12)], 2.0**-23, "bf16", Core()) == 1.0 + 2.0**-23
    assert one([(1.0, 1.0)], 1.0 + 2.0**-13, "e4m3", Core()) == 2.0
    assert one([(1.0, 1.0)], 1.0 + 2.0**-12, "e4m3", Core()) == 2.0 + 2.0**-12


def test_what_is_no_number_is_as_in_f64() -> None:
    """NaN, and infinities of one sign."""
    left, right, held = matrices(3, 16)
    left[0, 0], left[1, 1], right[:, :] = np.nan, np.inf, 1.0
    made = Core()(left, right, held, "f16", "f32")
    assert np.isnan(made[0]).all()
    assert (made[1] == np.inf).all()
    assert np.isfinite(made[2:]).all()


def test_exponents_are_those_of_a_type() -> None:
    """A subnormal number has that of the least normal one, and 0 none."""
    assert exponents(np.array([1.0, 1.5, 2.0, 0.75, -8.0]), -14).tolist() == [0, 0, 1, -1, 3]
    assert exponents(np.array([2.0**-20]), -14).tolist() == [-14]
    assert exponents(np.array([0.0]), -14)[0] < -500
    assert cut_off(np.array([1.75, -1.75, 0.0]), 1).tolist() == [1.5, -1.5, 0.0]
