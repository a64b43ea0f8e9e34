"""Approximate instructions: what is nearest, what is near enough, and who decides."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import kernel

from oracles.ptx.judge import run
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.ptx.text.approximate import Approximate, Evaluate
from oracles.ptx.text.arithmetic import Values
from oracles.verdict import Status

F = np.array([0.3, 1.0, 1.7, 3.0, 47.5, 2.0**-130, 1e30], np.float32)
OPCODES = [f"{name}.approx.ftz.f32" for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2")]
OPCODES += ["sin.approx.f32", "cos.approx.f32", "tanh.approx.f32", "rsqrt.approx.f32"]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("opcode", [*OPCODES, "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"])
def test_the_nearest_is_near_enough(opcode: str) -> None:
    """And what is no number, or 0, is what it is."""
    what = Approximate(opcode)
    for x in (F, SPECIAL):
        given = x.astype(np.float64) if opcode.endswith("f64") else x
        with np.errstate(all="ignore"):
            assert what.allows(what.nearest(given), given).all()


@pytest.mark.parametrize("opcode", OPCODES)
def test_what_is_far_off_is_not(opcode: str) -> None:
    """Half of the value, or another sign."""
    what = Approximate(opcode)
    some = np.array([0.3, 1.7, 3.0], np.float32)
    assert not what.allows(what.nearest(some) * np.float32(0.5), some).any()
    assert not what.allows(-what.nearest(some), some).any()


def test_a_reciprocal_is_off_by_one_place_at_most() -> None:
    """Of the last."""
    what, x = Approximate("rcp.approx.ftz.f32"), np.array([3.0], np.float32)
    near = what.nearest(x)
    assert what.allows(np.nextafter(near, np.float32(0)), x).all()
    assert not what.allows(near * np.float32(1 + 2.0**-21), x).any()


def test_what_is_subnormal_may_be_flushed() -> None:
    """Where the instruction says so: operands, and results."""
    small = np.array([2.0**-130], np.float32)
    with np.errstate(divide="ignore"):
        assert np.isinf(Approximate("rcp.approx.ftz.f32").nearest(small)).all()
    assert Approximate("ex2.approx.ftz.f32").nearest(np.float32(-130)) == 0
    assert Approximate("ex2.approx.f32").nearest(np.float32(-130)) == 2.0**-130
    zero = np.zeros(1, np.float32)
    assert Approximate("ex2.approx.ftz.f32").allows(zero, np.float32(-130)).all()
    assert not Approximate("ex2.approx.f32").allows(zero, np.float32(-130)).any()


def test_a_quotient_by_a_large_number_may_be_nothing() -> None:
    """Source: PTX ISA, "div" (.approx, 2^126 < b)."""
    what, zero = Approximate("div.approx.f32"), np.zeros(1, np.float32)
    one, large, more = np.float32(1), np.float32(2.0**100), np.float32(2.0**127)
    assert what.allows(zero, large, more).all()
    assert not what.allows(zero, one, large).any()
    assert what.nearest(one, large) == np.float32(2.0**-100)


def test_f64_has_the_upper_half() -> None:
    """Of the mantissa 20 bits, rounded."""
    near = Approximate("rcp.approx.ftz.f64").nearest(np.array([3.0]))
    assert not (near.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    assert abs(near - 1 / 3) < 2.0**-22
    assert Approximate("rcp.approx.ftz.f64").nearest(np.array([1e39])) > 0


def launched(evaluate: Evaluate | None) -> tuple[Status, list[str], Values]:
    """Run ex2 of 32 numbers as a kernel."""
    text = kernel(
        "add.s64 %rd8, %rd2, %rd5; ld.global.f32 %f1, [%rd8];"
        "ex2.approx.ftz.f32 %f2, %f1; st.global.f32 [%rd3], %f2;"
    )
    given = np.linspace(-4, 4, 32, dtype=np.float32)
    buffers = {
        "out": Buffer("out", np.zeros(128, np.uint8)),
        "inp": Buffer("inp", given.view(np.uint8).copy()),
    }
    launch = Launch((1, 1, 1), (32, 1, 1), (Pointer("out"), Pointer("inp")), buffers, 4096)
    verdict = run(text, launch, evaluate=evaluate).verdict
    return verdict.status, [one.kind for one in verdict.findings], buffers["out"].data.view("f4")


def test_hardware_may_decide() -> None:
    """What it has is taken, and reported where it is too far off."""

    def next_to(opcode: str, given: tuple[Values, ...]) -> Values:
        return np.nextafter(Approximate(opcode).nearest(*given), np.float32(0))

    def far(opcode: str, given: tuple[Values, ...]) -> Values:
        return Approximate(opcode).nearest(*given) * np.float32(1.001)

    status, _, nearest = launched(None)
    assert status is Status.PASS
    status, _, taken = launched(next_to)
    assert status is Status.PASS
    assert (taken == np.nextafter(nearest, np.float32(0))).all()
    status, kinds, _ = launched(far)
    assert (status, kinds) == (Status.FAIL, ["interval"])
