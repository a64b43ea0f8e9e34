"""Threads: who goes next, meets again, and is told apart."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from ptx_kernels import done

from oracles.ptx.launch import Scalar
from oracles.ptx.machine import Machine
from oracles.verdict import Status


def test_threads_have_their_places() -> None:
    """By grid, block, warp and cluster."""
    body = """
  mov.u32 %r7, %laneid;
  mov.u32 %r8, %warpid;
  mad.lo.u32 %r7, %r8, 100, %r7;
  mov.u32 %r8, %cluster_ctarank;
  mad.lo.u32 %r7, %r8, 1000, %r7;
  mov.u32 %r8, %nctaid.x;
  mad.lo.u32 %r7, %r8, 10000, %r7;
  st.global.u32 [%rd3], %r7;
"""
    found = done(body, threads=64, grid=4, cluster=2)
    n = np.arange(256)
    want = n % 32 + n % 64 // 32 * 100 + n // 64 % 2 * 1000 + 40000
    assert (found.words[:256] == want).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loops_of_different_lengths(seed: int) -> None:
    """Each thread its own count, in whatever order."""
    body = """
  mov.u32 %r7, 0;
  mov.u32 %r8, 0;
AGAIN:
  setp.ge.u32 %p1, %r8, %r4;
  @%p1 bra OVER;
  add.u32 %r8, %r8, 1;
  and.b32 %r9, %r8, 1;
  setp.eq.u32 %p2, %r9, 0;
  @%p2 bra AGAIN;
  add.u32 %r7, %r7, %r8;
  bra AGAIN;
OVER:
  st.global.u32 [%rd3], %r7;
"""
    found = done(body, threads=64, grid=2, seed=seed)
    assert found.verdict.status is Status.PASS
    assert found.words[:128].tolist() == [sum(range(1, n + 1, 2)) for n in range(128)]


def test_a_swap_in_a_loop_keeps_both_values() -> None:
    """Registers of all threads are never the same array twice."""
    body = """
  mov.u32 %r7, %r1;
  add.u32 %r8, %r1, 100;
  mov.u32 %r9, 0;
AGAIN:
  mov.u32 %r10, %r7;
  mov.u32 %r7, %r8;
  mov.u32 %r8, %r10;
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p1, %r9, 3;
  @%p1 bra AGAIN;
  setp.lt.u32 %p2, %r1, 16;
  @%p2 bra OVER;
  add.u32 %r7, %r7, 1000;
OVER:
  mad.lo.u32 %r7, %r8, 10000, %r7;
  st.global.u32 [%rd3], %r7;
"""
    n = np.arange(32)
    assert (done(body).words[:32] == n + 100 + (n >= 16) * 1000 + n * 10000).all()


@pytest.mark.parametrize(
    ("scalar", "line"),
    [
        (Scalar(-5, "i32"), "ld.param.u32 %r7, [s0];"),
        (Scalar(-5, "i64"), "ld.param.u64 %rd9, [s0]; cvt.u32.u64 %r7, %rd9;"),
        (Scalar(-5.0, "f32"), "ld.param.f32 %f1, [s0]; cvt.rzi.s32.f32 %r7, %f1;"),
        (Scalar(-5.0, "f64"), "ld.param.f64 %d1, [s0]; cvt.rzi.s32.f64 %r7, %d1;"),
    ],
)  # fmt: skip
def test_scalars_are_arguments(scalar: Scalar, line: str) -> None:
    """Of each type."""
    found = done(f"{line} st.global.u32 [%rd3], %r7;", scalars=(scalar,))
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.words[:32].view(np.int32) == -5).all()


def test_every_deadlock_names_its_threads_and_what_they_wait_for() -> None:
    """Two places, two findings."""
    body = """
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bra FIRST;
  bar.sync 1, 96;
  bra OVER;
FIRST:
  bar.sync 2, 64;
OVER:
"""
    found = done(body, threads=64)
    assert [one.kind for one in found.verdict.findings] == ["deadlock", "deadlock"]
    assert "32 threads (t32, t33, t34, ...) wait for ever: barrier 1 has 32 of 96" in str(
        found.verdict
    )


def test_a_machine_is_gone_with_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is free before the garbage collector comes: six of one case had 420 MiB."""
    made: list[weakref.ref[Machine]] = []
    begin = Machine.__init__

    def noted(self: Machine, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        made.append(weakref.ref(self))

    monkeypatch.setattr(Machine, "__init__", noted)
    gc.disable()
    try:
        done("st.global.u32 [%rd3], %r1; bar.sync 0;", threads=64)
        assert made
        assert all(one() is None for one in made)
    finally:
        gc.enable()
