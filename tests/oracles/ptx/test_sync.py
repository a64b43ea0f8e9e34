"""Barriers and mbarriers: right kernels pass, and each sync that is left out is found."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import done, named

from oracles.verdict import Status

EXCHANGE = """
  st.shared.u32 [%r6], %r1;
  {sync}
  xor.b32 %r7, %r1, {partner};
  shl.b32 %r8, %r7, 2;
  add.s32 %r8, %r5, %r8;
  ld.shared.u32 %r9, [%r8];
  st.global.u32 [%rd3], %r9;
"""


@pytest.mark.parametrize(
    ("sync", "partner", "kinds"),
    [
        ("bar.sync 0;", 32, set()),
        ("bar.sync 1, 64;", 32, set()),
        ("barrier.sync 0;", 32, set()),
        ("", 32, {"RAW"}),
        ("bar.warp.sync 0xffffffff;", 32, {"RAW"}),
        ("bar.warp.sync 0xffffffff;", 1, set()),
        ("", 1, {"RAW"}),
        ("membar.gl;", 32, {"RAW"}),
    ],
)
def test_an_exchange_needs_a_barrier_of_its_threads(
    sync: str, partner: int, kinds: set[str]
) -> None:
    """Within a warp bar.warp.sync is enough, between warps it is not; a fence joins nobody."""
    found = done(EXCHANGE.format(sync=sync, partner=partner), threads=64)
    assert found.kinds == kinds
    if not kinds:
        assert found.verdict.status is Status.PASS
        assert (found.words[:64] == (np.arange(64) ^ partner)).all()


def test_a_barrier_of_some_threads_orders_only_them() -> None:
    """The second pair of warps joins another barrier: their exchange with the first is a race."""
    body = EXCHANGE.replace(
        "{sync}", "shr.u32 %r20, %r1, 6; add.s32 %r20, %r20, 1; bar.sync %r20, 64;"
    )
    assert done(body.format(partner=32), threads=128).kinds == set()
    assert done(body.format(partner=64), threads=128).kinds == {"RAW"}


ARRIVES = """
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bra WAITS;
  {before}
  bar.arrive 1, 64;
  {behind}
  mov.u32 %r20, 1;
  st.relaxed.gpu.global.u32 [%rd1+1024], %r20;
  bra.uni END;
WAITS:
  ld.relaxed.gpu.global.u32 %r21, [%rd1+1024];
  setp.eq.u32 %p2, %r21, 0;
  @%p2 bra WAITS;
  bar.sync 1, 64;
  ld.shared.u32 %r9, [%r6+128];
  st.global.u32 [%rd3], %r9;
END:
"""


@pytest.mark.parametrize("seed", range(3))
def test_an_arrival_tells_what_was_before_it(seed: int) -> None:
    """Nothing that its threads do behind it, though it be done when the others come."""
    store = "st.shared.u32 [%r6], %r1;"
    right = done(ARRIVES.format(before=store, behind=""), threads=64, seed=seed)
    assert right.verdict.status is Status.PASS
    assert (right.words[:32] == np.arange(32, 64)).all()
    late = done(ARRIVES.format(before="", behind=store), threads=64, seed=seed)
    assert late.kinds == {"RAW"}
    before_and_behind = ARRIVES.format(before=store, behind=store)
    assert done(before_and_behind, threads=64, seed=seed).kinds == {"RAW"}


def test_a_write_behind_reads_needs_a_barrier() -> None:
    """The word of another thread is overwritten after it was read by many."""
    body = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 st.shared.u32 [%r5], %r3;
  bar.sync 0;
  ld.shared.u32 %r7, [%r5];
  {sync}
  @%p1 st.shared.u32 [%r5], %r1;
  st.global.u32 [%rd3], %r7;
"""
    assert done(body.format(sync="bar.sync 0;"), threads=64).kinds == set()
    assert done(body.format(sync=""), threads=64).kinds == {"WAR"}


def test_two_threads_that_write_one_word_are_found() -> None:
    """Also within one instruction, where nobody could order them."""
    assert done("st.shared.u32 [%r5], %r1;").kinds == {"WAW"}
    assert done("st.shared.u32 [%r5], %r3;").kinds == set()  # the same number, whoever wins


def test_bytes_that_nobody_wrote_are_found() -> None:
    """Shared memory holds nothing at first."""
    found = done("ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd3], %r7;")
    assert found.kinds == {"RAW"}
    assert "nobody has written" in str(found.verdict)


def test_bytes_that_a_load_does_not_use_may_be_anything() -> None:
    """The compiler says so where it has made one load of several."""
    body = """
  st.shared.v2.u32 [%r5], {%r3, %r3};
  bar.sync 0;
  PRAGMA
  ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r5];
  st.global.u32 [%rd3], %r8;
"""
    mask = '.pragma "used_bytes_mask 255";'
    assert done(body.replace("PRAGMA", mask)).kinds == set()
    assert done(body.replace("PRAGMA", mask.replace("255", "0xfff"))).kinds == {"RAW"}
    assert done(body.replace("PRAGMA", "")).kinds == {"RAW"}


def test_a_barrier_that_does_not_fill_is_a_deadlock() -> None:
    """It says how many have come."""
    found = done("bar.sync 1, 64;", threads=32)
    assert found.kinds == {"deadlock"}
    assert "barrier 1 has 32 of 64 threads" in str(found.verdict)


def test_threads_that_end_do_not_hold_up_a_barrier_of_all() -> None:
    """The second warp is over; the first goes on."""
    body = """
  setp.ge.u32 %p1, %r1, 32;
  @%p1 bra OVER;
  bar.sync 0;
  st.global.u32 [%rd3], %r1;
OVER:
"""
    assert done(body, threads=64).verdict.status is Status.PASS


@pytest.mark.parametrize(("op", "value"), [("or", 1), ("and", 0)])
def test_a_barrier_with_a_vote_gives_it_to_all(op: str, value: int) -> None:
    """One thread of 64 says yes."""
    body = f"""
  setp.eq.u32 %p1, %r1, 40;
  bar.red.{op}.pred %p2, 0, %p1;
  selp.u32 %r7, 1, 0, %p2;
  st.global.u32 [%rd3], %r7;
"""
    found = done(body, threads=64)
    assert found.verdict.status is Status.PASS
    assert (found.words[:64] == value).all()


HANDSHAKE = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 {init}
  {visible}
  setp.ge.u32 %p2, %r1, 32;
  @%p2 bra CONSUMER;
  st.shared.u32 [%r6+64], %r1;
  {arrive}
  bra OVER;
CONSUMER:
AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5], 0;
  {again}
  ld.shared.u32 %r7, [%r6+-64];
  st.global.u32 [%rd3], %r7;
OVER:
"""
WHOLE = {
    "init": "mbarrier.init.shared::cta.b64 [%r5], 32;",
    "visible": "bar.sync 0;",
    "arrive": "mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5];",
    "again": "@!%p3 bra AGAIN;",
}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"visible": ""}, {"init"}),
        ({"init": "mbarrier.init.shared::cta.b64 [%r5], 33;"}, {"deadlock"}),
        ({"init": "mbarrier.init.shared::cta.b64 [%r5], 16;"}, {"deadlock"}),
        ({"init": "mbarrier.init.shared::cta.b64 [%r5], 31;"}, {"RAW"}),
        ({"arrive": "mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5], 33;"}, {"arrivals"}),
        ({"init": ""}, {"init"}),
        ({"arrive": ""}, {"deadlock"}),
        ({"arrive": "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd9, [%r5];"}, {"RAW"}),
        ({"again": ""}, {"RAW"}),
    ],
    ids=named,
)
def test_each_part_of_a_handshake_is_needed(change: dict[str, str], kinds: set[str]) -> None:
    """Threads of one warp write and arrive, those of another wait and read."""
    found = done(HANDSHAKE.format(**(WHOLE | change)), threads=64)
    assert found.kinds >= kinds if kinds else not found.kinds, str(found.verdict)
    if not change:
        assert (found.words[32:64] == np.arange(32)).all()


def test_data_over_a_living_mbarrier_is_found() -> None:
    """Its life ends with mbarrier.inval."""
    body = """
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra OVER;
  mbarrier.init.shared::cta.b64 [%r5], 1;
  {inval}
  st.shared.u32 [%r5], %r1;
OVER:
"""
    assert done(body.format(inval="mbarrier.inval.shared::cta.b64 [%r5];")).kinds == set()
    assert done(body.format(inval="")).kinds == {"init"}


CLUSTER = """
  mapa.shared::cluster.u32 %r7, %r6, {other};
  mov.u32 %r10, %cluster_ctarank;
  xor.b32 %r11, %r10, 1;
  mapa.shared::cluster.u32 %r7, %r6, %r11;
  st.shared::cluster.u32 [%r7], %r4;
  {arrive}
  {wait}
  ld.shared.u32 %r8, [%r6];
  st.global.u32 [%rd3], %r8;
"""


@pytest.mark.parametrize(
    ("arrive", "wait", "kinds"),
    [
        ("barrier.cluster.arrive.release;", "barrier.cluster.wait.acquire;", set()),
        ("barrier.cluster.arrive.relaxed;", "barrier.cluster.wait.acquire;", {"RAW", "exit"}),
        ("barrier.cluster.arrive.release;", "", {"RAW", "exit"}),
        ("bar.sync 0;", "", {"RAW", "exit"}),
    ],
)
def test_a_cluster_joins_by_its_barrier(arrive: str, wait: str, kinds: set[str]) -> None:
    """Each CTA writes into the shared memory of the other."""
    found = done(CLUSTER.format(arrive=arrive, wait=wait, other=0), grid=2, cluster=2)
    assert found.kinds == kinds
    if not kinds:
        assert (found.words[:64].reshape(2, 32) == np.arange(64).reshape(2, 32)[::-1]).all()


def test_a_cta_ends_behind_what_others_do_to_its_memory() -> None:
    """A store into the shared memory of a peer, which may be over by then."""
    body = """
  mov.u32 %r10, %cluster_ctarank;
  st.shared.u32 [%r6], %r1;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  xor.b32 %r11, %r10, 1;
  mapa.shared::cluster.u32 %r7, %r6, %r11;
  ld.shared::cluster.u32 %r8, [%r7];
  st.global.u32 [%rd3], %r8;
  {last}
"""
    last = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
    assert done(body.format(last=last), grid=2, cluster=2).kinds == set()
    assert done(body.format(last=""), grid=2, cluster=2).kinds == {"exit"}


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 208;", set()),
        (
            "setmaxnreg.dec.sync.aligned.u32 40;",
            "setmaxnreg.inc.sync.aligned.u32 240;",
            {"deadlock"},
        ),
        ("setmaxnreg.dec.sync.aligned.u32 44;", "", {"registers"}),
    ],
)
def test_registers_come_from_the_pool_of_the_cta(first: str, second: str, kinds: set[str]) -> None:
    """Of 512 threads each has 128 at first: 88 that a warpgroup gives are 80 for another."""
    body = f"""
  setp.lt.u32 %p1, %r1, 128;
  @%p1 bra FIRST;
  setp.lt.u32 %p2, %r1, 256;
  @%p2 bra SECOND;
  bra OVER;
FIRST:
  {first}
  bra OVER;
SECOND:
  {second}
OVER:
"""
    found = done(body, threads=512, tuning=".maxntid 512, 1, 1 .minnctapersm 1")
    assert found.kinds == kinds, str(found.verdict)


def test_a_parity_of_all_ones_is_taken_for_one() -> None:
    """A truth value with its sign: illegal by the letter, but no hang; what is neither is one."""
    wait = "mov.b32 %r7, {parity}; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], %r7;"
    body = f"""
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5], 32;
  bar.sync 0;
  mbarrier.arrive.shared::cta.b64 %rd9, [%r5];
  mbarrier.arrive.shared::cta.b64 %rd9, [%r5];
  {wait}
  @!%p3 bra AGAIN;
"""
    found = done(body.format(parity=-1)).verdict
    assert found.status is Status.PASS
    assert [(one.kind, one.severity) for one in found.findings] == [("parity", "warning")]
    assert done(body.format(parity=3)).verdict.status is Status.FAIL


REMOTE = """
  mov.u32 %r10, %cluster_ctarank;
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r10, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5], 32;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.relaxed;
  barrier.cluster.wait.acquire;
  mapa.shared::cluster.u32 %r11, %r5, 0;
  mapa.shared::cluster.u32 %r12, %r6, 0;
  @%p2 bra READER;
  st.shared::cluster.u32 [%r12+64], %r1;
  mbarrier.arrive{release}.shared::cluster.b64 _, [%r11];
  bra OVER;
READER:
AGAIN:
  mbarrier.try_wait.parity{acquire}.shared::cta.b64 %p3, [%r5], 0;
  @!%p3 bra AGAIN;
  ld.shared.u32 %r7, [%r6+64];
  st.global.u32 [%rd3], %r7;
OVER:
"""


@pytest.mark.parametrize(
    ("release", "acquire", "kinds", "warnings"),
    [
        (".release.cluster", ".acquire.cluster", set(), 0),
        (".release.cta", ".acquire.cluster", {"RAW", "exit"}, 0),
        (".release.cluster", ".acquire.cta", {"RAW"}, 0),
        ("", ".acquire.cluster", set(), 1),
        ("", "", set(), 2),
    ],
    ids=named,
)
def test_what_says_no_scope_between_ctas_is_a_warning(
    release: str, acquire: str, kinds: set[str], warnings: int
) -> None:
    """Its scope is the CTA by the letter; much code that ships is that way, and is judged on."""
    found = done(REMOTE.format(release=release, acquire=acquire), grid=2, cluster=2).verdict
    errors = {one.kind for one in found.findings if one.severity == "error"}
    assert errors >= kinds if kinds else not errors, str(found)
    assert sum(one.severity == "warning" for one in found.findings) == warnings
    assert all(one.kind == "scope" for one in found.findings if one.severity == "warning")


RESTRICTED = """
  mov.u32 %r10, %cluster_ctarank;
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r10, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5], 32;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.relaxed;
  barrier.cluster.wait.acquire;
  mapa.shared::cluster.u32 %r11, %r5, 0;
  mapa.shared::cluster.u32 %r12, %r6, {of};
  mul.wide.u32 %rd9, %r1, 4;
  add.s64 %rd9, %rd2, %rd9;
  @%p2 bra READER;
  {put}, %r1;
  {fence}
  mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r11];
  bra OVER;
READER:
AGAIN:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0;
  @!%p3 bra AGAIN;
  {get};
OVER:
  barrier.cluster.arrive;
  barrier.cluster.wait;
"""
PEER = "st.shared::cluster.u32 [%r12+64]", "ld.shared.u32 %r7, [%r6+64]", 0
OWN = "st.shared.u32 [%r6+64]", "ld.shared::cluster.u32 %r7, [%r12+64]", 1
MEMORY = "st.global.u32 [%rd9]", "ld.global.u32 %r7, [%rd9]", 0


@pytest.mark.parametrize(
    ("way", "fence", "kinds"),
    [
        (PEER, "fence.acq_rel.cluster;", set()),
        (OWN, "fence.acq_rel.cluster;", set()),
        (MEMORY, "fence.acq_rel.cluster;", set()),
        (PEER, "fence.release.sync_restrict::shared::cta.cluster;", {"RAW"}),
        (OWN, "fence.release.sync_restrict::shared::cta.cluster;", set()),
        (MEMORY, "fence.release.sync_restrict::shared::cta.cluster;", {"RAW"}),
        (OWN, "fence.acq_rel.cta;", {"RAW"}),
        (OWN, "", {"RAW"}),
        (MEMORY, "", {"RAW"}),
    ],
    ids=named,
)
def test_a_restricted_release_is_of_the_own_shared_memory(
    way: tuple[str, str, int], fence: str, kinds: set[str]
) -> None:
    """What lies in that of the peer, or in global memory, it does not order."""
    put, get, of = way
    body = RESTRICTED.format(put=put, get=get, of=of, fence=fence)
    for seed in range(3):
        assert done(body, grid=2, cluster=2, seed=seed).kinds == kinds


def test_a_cta_ends_behind_what_others_have_arrived_at() -> None:
    """Its mbarriers are gone with it; who has waited for the arrivals knows of them."""
    body = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5], 32;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.relaxed;
  barrier.cluster.wait.acquire;
  mov.u32 %r10, %cluster_ctarank;
  xor.b32 %r10, %r10, 1;
  mapa.shared::cluster.u32 %r11, %r5, %r10;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
"""
    wait = """
AGAIN:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0;
  @!%p3 bra AGAIN;
"""
    for seed in range(3):
        assert done(body + wait, grid=2, cluster=2, seed=seed).kinds == set()
        assert done(body, grid=2, cluster=2, seed=seed).kinds == {"exit"}


EARLY = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r5], 1;
  mbarrier.init.shared::cta.b64 [%r5+8], 1;
MADE:
  bar.sync 0;
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bra ARRIVES;
AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5], 1;
  @!%p3 bra AGAIN;
  {told}
  bra DONE;
ARRIVES:
  {knows}
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5];
DONE:
"""
"""Warp 1 waits for the phase before the first; warp 0 completes the first one."""
TELLS = "setp.ne.u32 %p4, %r1, 32; @%p4 bra DONE; {how}"
KNOWS = """ONCE:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p5, [%r5+8], 0;
  @!%p5 bra ONCE;"""
COPIES = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+128], [%rd2], "


@pytest.mark.parametrize(
    ("told", "knows", "late"),
    [
        ("", "", True),
        ("bar.sync 1, 64;", "bar.sync 1, 64;", False),
        ("bar.arrive 1, 64;", "bar.sync 1, 64;", False),
        (
            TELLS.format(how="mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5+8];"),
            KNOWS,
            False,
        ),
        (
            TELLS.format(
                how="mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [%r5+8], 16;"
                f"{COPIES} 16, [%r5+8];"
            ),
            KNOWS,
            False,
        ),
    ],
    ids=["nothing", "a barrier", "an arrival at one", "an mbarrier", "a copy"],
)
def test_a_wait_has_to_come_before_the_next_phase_is_complete(
    told: str, knows: str, *, late: bool
) -> None:
    """Behind it a wait for the phase before does not end: found in each order, or met."""
    for seed in range(3):
        found = done(EARLY.format(told=told, knows=knows), threads=64, seed=seed)
        assert bool(found.kinds & {"overtaken", "deadlock"}) is late, str(found.verdict)
        assert found.kinds <= {"overtaken", "deadlock"}


def test_copies_by_threads_come_behind_what_their_warp_has_waited_for() -> None:
    """An arrival by cp.async knows its copies alone; it still comes behind the thread's waits."""
    tells = "cp.async.ca.shared.global [%r6+512], [%rd2], 4;"
    tells += "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r5+8];"
    body = EARLY.replace("[%r5+8], 1;", "[%r5+8], 32;")
    found = done(body.format(told=tells, knows=KNOWS), threads=64)
    assert found.kinds == set(), str(found.verdict)
