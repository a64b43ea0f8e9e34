"""Copies by engines: right kernels pass, and each sync that is left out is found."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import Done, done, named

from oracles.ptx.engines import swizzled
from oracles.ptx.launch import TensorMap
from oracles.verdict import Status

WORDS = np.arange(4096, dtype=np.uint32) + 7

COPIED = """
  add.s64 %rd9, %rd2, %rd5;
  cp.async.ca.shared.global [%r6], [%rd9], 4;
  {commit}
  {wait}
  {sync}
  xor.b32 %r7, %r6, {partner};
  ld.shared.u32 %r8, [%r7];
  st.global.u32 [%rd3], %r8;
"""
COMMIT, WAIT = "cp.async.commit_group;", "cp.async.wait_group 0;"


@pytest.mark.parametrize(
    ("commit", "wait", "sync", "partner", "kinds"),
    [
        (COMMIT, WAIT, "bar.sync 0;", 128, set()),
        (COMMIT, WAIT, "", 0, set()),
        ("", "cp.async.wait_all;", "", 0, set()),
        (COMMIT, WAIT, "", 128, {"RAW"}),
        (COMMIT, "", "bar.sync 0;", 128, {"RAW"}),
        (COMMIT, "", "", 0, {"RAW"}),
        (COMMIT, "cp.async.wait_group 1;", "", 0, {"RAW"}),
        ("", WAIT, "", 0, {"RAW"}),
    ],
)
def test_a_copy_by_a_thread_is_awaited_by_it(
    commit: str, wait: str, sync: str, partner: int, kinds: set[str]
) -> None:
    """Who else reads it needs a barrier behind the wait."""
    text = COPIED.format(commit=commit, wait=wait, sync=sync, partner=partner)
    found = done(text, threads=64, inputs=WORDS)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[:64] == WORDS[np.arange(64) ^ partner // 4]).all()


def test_bytes_past_the_valid_ones_become_zeros() -> None:
    """Only so many are read, wherever the rest would lie."""
    text = COPIED.replace(", 4;", ", 4, 2;")
    found = done(text.format(commit=COMMIT, wait=WAIT, sync="", partner=0), inputs=WORDS << 16 | 5)
    assert found.verdict.status is Status.PASS
    assert (found.words[:32] == 5).all()


ARRIVED = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5+2048], {count};
  bar.sync 0;
  setp.ge.u32 %p2, %r1, 32;
  @%p2 bra CONSUMER;
  add.s64 %rd9, %rd2, %rd5;
  cp.async.ca.shared.global [%r6], [%rd9], 4;
  {arrive}
  bra OVER;
CONSUMER:
AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5+2048], 0;
  @!%p3 bra AGAIN;
  ld.shared.u32 %r7, [%r6+-128];
  st.global.u32 [%rd3], %r7;
OVER:
"""
NOINC = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r5+2048];"


@pytest.mark.parametrize(
    ("arrive", "count", "kinds"),
    [
        (NOINC, 32, set()),
        (NOINC, 33, {"deadlock"}),
        (NOINC.replace(".noinc", ""), 32, {"deadlock"}),
        ("mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5+2048];", 32, {"RAW"}),
    ],
)
def test_copies_may_arrive_on_an_mbarrier(arrive: str, count: int, kinds: set[str]) -> None:
    """An ordinary arrival says nothing of copies in flight; without noinc none is counted."""
    found = done(ARRIVED.format(arrive=arrive, count=count), threads=64, inputs=WORDS)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[32:64] == WORDS[:32]).all()


LOADED = """
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra JOIN;
  mbarrier.init.shared::cta.b64 [%r5+2048], 1;
  {expect}
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd2], 256, [%r5+2048];
JOIN:
  bar.sync 0;
  {wait}
  ld.shared.u32 %r7, [%r6];
  st.global.u32 [%rd3], %r7;
"""
EXPECT = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [%r5+2048], 256;"
SPIN = """AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5+2048], {parity};
  @!%p3 bra AGAIN;"""


@pytest.mark.parametrize(
    ("expect", "wait", "kinds"),
    [
        (EXPECT, SPIN.format(parity=0), set()),
        (EXPECT, "", {"RAW", "exit"}),
        (EXPECT, SPIN.format(parity=1), {"RAW", "exit", "overtaken"}),
        (EXPECT.replace("256", "128"), SPIN.format(parity=0), {"deadlock"}),
        (EXPECT.replace("256", "512"), SPIN.format(parity=0), {"deadlock"}),
        ("", SPIN.format(parity=0), {"deadlock"}),
    ],
)
def test_a_bulk_load_is_over_with_its_phase(expect: str, wait: str, kinds: set[str]) -> None:
    """Bytes that are not expected, or expected and never copied, keep the phase open."""
    found = done(LOADED.format(expect=expect, wait=wait), threads=64, inputs=WORDS)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[:64] == WORDS[:64]).all()


STORED = """
  st.shared.u32 [%r6], %r4;
  {fence}
  {join}
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra BEHIND;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256;
  {commit}
  {wait}
BEHIND:
  {after}
"""
FENCE, JOIN = "fence.proxy.async.shared::cta;", "bar.sync 0;"
BULK, READ = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"
AGAIN = "bar.sync 0; st.shared.u32 [%r6], %r1;"


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"fence": ""}, {"proxy"}),
        ({"fence": "fence.proxy.async.global;"}, {"proxy"}),
        ({"fence": "fence.proxy.async;"}, set()),
        ({"join": ""}, {"RAW"}),
        ({"fence": "bar.sync 0;", "join": FENCE}, set()),
        ({"commit": ""}, {"exit"}),
        ({"wait": ""}, {"exit"}),
        ({"wait": "cp.async.bulk.wait_group.read 1;"}, {"exit"}),
        ({"wait": "cp.async.bulk.wait_group 0;"}, set()),
        ({"after": AGAIN}, set()),
        ({"after": AGAIN, "wait": ""}, {"exit", "WAR"}),
        ({"after": AGAIN.replace("bar.sync 0;", "")}, {"WAR"}),
    ],
    ids=named,
)
def test_each_part_of_a_bulk_store_is_needed(change: dict[str, str], kinds: set[str]) -> None:
    """A proxy fence, a join, a commit, a wait until the source is read."""
    parts = {"fence": FENCE, "join": JOIN, "commit": BULK, "wait": READ, "after": ""} | change
    found = done(STORED.format(**parts), threads=64)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[:64] == np.arange(64)).all()


def test_a_store_that_is_not_awaited_reads_what_comes_later() -> None:
    """The engine is late: values show it too."""
    parts = {"fence": FENCE, "join": JOIN, "commit": BULK, "wait": "", "after": AGAIN}
    late = done(STORED.format(**parts).replace("%r4", "%r3", 1), threads=64)
    assert (late.words[:64] == np.arange(64)).all()
    right = done(STORED.format(**parts | {"wait": READ}).replace("%r4", "%r3", 1), threads=64)
    assert (right.words[:64] == 64).all()


BOX = """
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra JOIN;
  mbarrier.init.shared::cta.b64 [%r5+2048], 1;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [%r5+2048], {nbytes};
  mov.b64 %rd10, m0;
  cvta.param.u64 %rd10, %rd10;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r5], [%rd10, {{{x}, {y}}}], [%r5+2048];
JOIN:
  bar.sync 0;
AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5+2048], 0;
  @!%p3 bra AGAIN;
  ld.shared.u32 %r7, [%r6];
  st.global.u32 [%rd3], %r7;
"""


def boxed(x: int, y: int, swizzle: int, *, dims: tuple[int, int] = (30, 20)) -> Done:
    """Load a box of 16 x 8 words (32 x 4 with a swizzle of 128) at a place of a matrix."""
    box = (swizzle // 4, 512 // swizzle) if swizzle else (16, 8)
    made = TensorMap("inp", "u32", dims, (160,), box, swizzle, 64)
    text = BOX.format(x=x, y=y, nbytes=512)
    return done(text, threads=128, inputs=WORDS, maps=(made,))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (4, 3), (-4, -2), (20, 15), (17, 19), (40, 0)])
def test_a_box_lands_swizzled_and_zero_outside(swizzle: int, x: int, y: int) -> None:
    """Element by element, against the plain definition."""
    found = boxed(x, y, swizzle)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    wide = swizzle // 4 or 16
    want = np.zeros(128, np.uint32)
    for row in range(128 // wide):
        for column in range(wide):
            inside = 0 <= x + column < 30 and 0 <= y + row < 20
            place = 1024 + 4 * (row * wide + column)
            if swizzle:
                place = place ^ ((place >> 7 & (swizzle // 16 - 1)) << 4)
            value = WORDS[16 + (y + row) * 40 + x + column] if inside else 0
            want[(place - 1024) // 4] = value
    assert (found.words[:128] == want).all()


def test_a_swizzle_is_a_permutation_of_its_atom() -> None:
    """16-byte chunks of 128 bytes change places with the number of the row."""
    places = np.arange(0, 1024, 16)
    moved = swizzled(places, 128, 1 << 20)
    assert sorted(moved.tolist()) == places.tolist()
    row, chunk = places // 128, places % 128 // 16
    assert (moved == row * 128 + (chunk ^ row) * 16).all()


def test_a_map_that_leaves_its_buffer_is_found() -> None:
    """More rows than the buffer has."""
    assert boxed(0, 96, 0, dims=(30, 200)).kinds == {"map"}


REDUCED = """
  st.shared.f32 [%r6], 0f40000000;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra OVER;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r5], 128;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
OVER:
"""


def test_bulk_reductions_of_several_ctas_add_up() -> None:
    """They are atomic towards each other; plain copies are not."""
    found = done(REDUCED, grid=3)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.out[:128].view(np.float32) == 6.0).all()
    plain = REDUCED.replace("cp.reduce.async", "cp.async").replace(".add.f32", "")
    assert done(plain, grid=3).kinds == {"WAW"}


PUT = """
  mov.u32 %r10, %cluster_ctarank;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5+2048], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  @%p1 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [%r5+2048], 128;
  xor.b32 %r11, %r10, 1;
  mapa.shared::cluster.u32 %r12, %r6, %r11;
  add.u32 %r14, %r5, 2048;
  mapa.shared::cluster.u32 %r13, %r14, %r11;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r4, [%r13];
  {wait}
  ld.shared.u32 %r7, [%r6];
  st.global.u32 [%rd3], %r7;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
"""


def test_a_store_into_another_cta_is_over_with_its_phase() -> None:
    """Each CTA sends a row to the other."""
    found = done(PUT.format(wait=SPIN.format(parity=0)), grid=2, cluster=2)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.words[:64] == np.arange(64).reshape(2, 32)[::-1].reshape(-1)).all()
    assert "RAW" in done(PUT.format(wait=""), grid=2, cluster=2).kinds


@pytest.mark.parametrize(
    ("first", "second", "severities"),
    [
        ("", "", set()),
        ("fence.mbarrier_init.release.cluster", "", {"warning"}),
        ("", "barrier.cluster.arrive.release", set()),
        ("fence.mbarrier_init.release.cluster", "barrier.cluster.arrive.release", {"error"}),
        ("", "barrier.cluster.wait.acquire", {"error"}),
    ],
)
def test_an_mbarrier_is_seen_by_the_cluster_behind_a_fence_or_a_release(
    first: str, second: str, severities: set[str]
) -> None:
    """One of both is enough, where all wait; a wait that is left out comes too late.

    Without the fence it is enough by the letter, and a warning.
    """
    text = PUT.format(wait=SPIN.format(parity=0))
    weaker = {"barrier.cluster.arrive.release": "barrier.cluster.arrive.relaxed;"}
    for line in (first, second):
        if line:
            start, _, end = text.partition(f"{line};")
            start = start.removesuffix("@%p1 ") if line.startswith("fence") else start
            text = start + weaker.get(line, "") + end
    findings = done(text, grid=2, cluster=2).verdict.findings
    assert {one.severity for one in findings if one.kind == "init"} == severities
    assert severities == {"error"} or all(one.kind == "init" for one in findings)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_order_of_engines_says_the_same(seed: int) -> None:
    """What is ordered is so in every order."""
    text = LOADED.format(expect=EXPECT, wait=SPIN.format(parity=0))
    assert done(text, threads=64, inputs=WORDS, seed=seed).verdict.status is Status.PASS
    assert done(LOADED.format(expect=EXPECT, wait=""), threads=64, seed=seed).kinds >= {"RAW"}
