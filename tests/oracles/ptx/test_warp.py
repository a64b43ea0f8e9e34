"""Lanes of a warp: shuffles, votes, matches, elections, whatever branches came before."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import done

from oracles.verdict import Status

LANE = np.arange(32)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("shfl.sync.bfly.b32 %r7, %r1, 5, 31, 0xffffffff;", LANE ^ 5),
        ("shfl.sync.idx.b32 %r7, %r1, 7, 31, 0xffffffff;", np.full(32, 7)),
        ("shfl.sync.up.b32 %r7, %r1, 3, 0, 0xffffffff;", np.where(LANE < 3, LANE, LANE - 3)),
        ("shfl.sync.down.b32 %r7, %r1, 4, 31, 0xffffffff;", np.where(LANE > 27, LANE, LANE + 4)),
        (
            "shfl.sync.down.b32 %r7, %r1, 1, 0x1c1f, 0xffffffff;",
            np.where(LANE % 4 == 3, LANE, LANE + 1),
        ),
        ("redux.sync.add.s32 %r7, %r1, 0xffffffff;", np.full(32, 496)),
        ("redux.sync.max.u32 %r7, %r1, 0xffffffff;", np.full(32, 31)),
        (
            "and.b32 %r8, %r1, 3; match.any.sync.b32 %r7, %r8, 0xffffffff;",
            [0x11111111 << n % 4 for n in range(32)],
        ),
        (
            "shr.u32 %r8, %r4, 5; match.all.sync.b32 %r7|%p1, %r8, 0xffffffff;"
            "@!%p1 mov.u32 %r7, 7;",
            np.full(32, 0xFFFFFFFF),
        ),
        ("match.all.sync.b32 %r7|%p1, %r1, -1; @%p1 mov.u32 %r7, 7;", np.zeros(32)),
        ("activemask.b32 %r7;", np.full(32, 0xFFFFFFFF)),
    ],
)
def test_lanes_see_the_right_lanes(
    line: str, want: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    """Against the definition of each."""
    found = done(f"{line} st.global.u32 [%rd3], %r7;", threads=64)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.words[:32] == want).all()


def test_a_shuffle_waits_for_lanes_that_took_another_branch() -> None:
    """Both sides come to the same instruction, one later."""
    body = """
  and.b32 %r7, %r1, 1;
  setp.eq.u32 %p1, %r7, 0;
  mov.u32 %r8, 100;
  @%p1 bra EVEN;
  mov.u32 %r9, 0;
COUNT:
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p2, %r9, %r1;
  @%p2 bra COUNT;
  mov.u32 %r8, 200;
EVEN:
  shfl.sync.bfly.b32 %r9, %r8, 1, 31, 0xffffffff;
  st.global.u32 [%rd3], %r9;
"""
    assert (done(body).words[:32] == np.where(LANE % 2, 100, 200)).all()


def test_a_shuffle_that_lanes_never_reach_is_a_deadlock() -> None:
    """Half of the warp goes another way, and waits elsewhere."""
    body = """
  setp.lt.u32 %p1, %r1, 16;
  @%p1 bra OTHER;
  shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xffffffff;
  bra OVER;
OTHER:
  shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xffffffff;
OVER:
"""
    found = done(body)
    assert found.kinds == {"deadlock"}
    assert "the other threads of its warp" in str(found.verdict)


def test_votes_and_elections() -> None:
    """One of 32 says yes; the lowest lane of the mask is elected."""
    body = """
  setp.eq.u32 %p1, %r1, 9;
  vote.sync.ballot.b32 %r7, %p1, 0xffffffff;
  vote.sync.any.pred %p2, %p1, 0xffffffff;
  vote.sync.all.pred %p3, %p1, 0xffffffff;
  elect.sync %r8|%p4, 0xfffffff0;
  selp.u32 %r9, 1024, 0, %p2;
  selp.u32 %r10, 2048, 0, %p3;
  selp.u32 %r11, 4096, 0, %p4;
  add.u32 %r7, %r7, %r9;
  add.u32 %r7, %r7, %r10;
  add.u32 %r7, %r7, %r11;
  st.global.u32 [%rd3], %r7;
"""
    want = np.full(32, 512 + 1024)
    want[4] += 4096
    assert (done(body).words[:32] == want).all()
