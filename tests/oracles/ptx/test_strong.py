"""Messages between CTAs: right ones pass, and each release, acquire and fence is needed."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import Done, done, named

from oracles.ptx.machine import WORK
from oracles.verdict import Status

MESSAGE = """
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra READER;
  add.s64 %rd9, %rd2, %rd5;
  st.global.u32 [%rd9], %r3;
  {join}
  setp.eq.u32 %p2, %r1, 0;
  @!%p2 bra OVER;
  mov.u32 %r7, 1;
  {release}
  bra OVER;
READER:
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra READ;
SPIN:
  {acquire}
  setp.ne.u32 %p3, %r8, 1;
  @%p3 bra SPIN;
  {behind}
READ:
  {joined}
  add.s64 %rd9, %rd2, %rd5;
  ld.global.u32 %r9, [%rd9];
  st.global.u32 [%rd3], %r9;
OVER:
"""
WHOLE = {
    "join": "bar.sync 0;",
    "release": "st.release.gpu.global.u32 [%rd1], %r7;",
    "acquire": "ld.acquire.gpu.global.u32 %r8, [%rd1];",
    "behind": "",
    "joined": "bar.sync 1;",
}
RELAXED = {
    "release": "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], %r7;",
    "acquire": "ld.relaxed.gpu.global.u32 %r8, [%rd1];",
    "behind": "fence.acq_rel.gpu;",
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, set()),
        ({"join": ""}, {"RAW"}),
        ({"joined": ""}, {"RAW"}),
        ({"release": "st.relaxed.gpu.global.u32 [%rd1], %r7;"}, {"RAW"}),
        ({"acquire": "ld.relaxed.gpu.global.u32 %r8, [%rd1];"}, {"RAW"}),
        ({"release": "st.release.cta.global.u32 [%rd1], %r7;"}, {"RAW", "scope"}),
        ({"acquire": "ld.acquire.cta.global.u32 %r8, [%rd1];"}, {"RAW", "scope"}),
        ({"release": "st.global.u32 [%rd1], %r7;"}, {"RAW"}),
        ({"release": ""}, {"deadlock"}),
        (RELAXED, set()),
        (RELAXED | {"behind": ""}, {"RAW"}),
        (RELAXED | {"release": "st.relaxed.gpu.global.u32 [%rd1], %r7;"}, {"RAW"}),
        (RELAXED | {"release": RELAXED["release"].replace("rel.gpu", "rel.cta")}, {"RAW", "scope"}),
        ({"release": "red.release.gpu.global.add.u32 [%rd1], %r7;"}, set()),
        ({"release": "atom.acq_rel.gpu.global.inc.u32 %r20, [%rd1], %r7;"}, set()),
    ],
    ids=named,
)
def test_each_part_of_a_message_is_needed(
    change: dict[str, str], kinds: set[str], seed: int
) -> None:
    """All threads of CTA 0 write, one releases; one of CTA 1 acquires, all read."""
    found = done(MESSAGE.format(**(WHOLE | change)), threads=64, grid=2, seed=seed)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[64:128] == 64).all()


def test_a_spin_that_nobody_ends_is_a_deadlock_not_a_hang() -> None:
    """It names the value that it sees."""
    found = done(
        "SPIN: ld.acquire.gpu.global.u32 %r7, [%rd2]; setp.eq.u32 %p1, %r7, 0; @%p1 bra SPIN;"
    )
    assert found.kinds == {"deadlock"}


def test_a_loop_without_end_is_unknown() -> None:
    """The judge gives up, and says so."""
    spin = "SPIN: add.u32 %r7, %r7, 1; setp.ne.u32 %p1, %r7, 0; @%p1 bra SPIN;"
    found = done(spin, work=WORK // 100)
    assert found.verdict.status is Status.UNKNOWN
    assert "too long: 32 of 32 threads go on" in found.verdict.reason


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("red.relaxed.gpu.global.add.u32 [%rd1], 3;", 192),
        ("red.relaxed.gpu.global.max.u32 [%rd1], %r4;", 63),
        ("red.relaxed.gpu.global.or.b32 [%rd1], %r4;", 63),
        ("atom.global.inc.u32 %r7, [%rd1], 6;", 64 % 7),
        ("atom.global.exch.b32 %r7, [%rd1], 9;", 9),
        ("atom.global.cas.b32 %r7, [%rd1], 0, 5;", 5),
        ("atom.shared.add.u32 %r7, [%r5], 1;", 0),
    ],
)
def test_atomics_of_all_threads_meet_in_a_word(line: str, want: int, seed: int) -> None:
    """No two of them race; the result is that of some order."""
    found = done(line, grid=2, seed=seed)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert found.words[0] == want


def test_each_thread_draws_another_number() -> None:
    """What atom returns is what was there before."""
    found = done("atom.global.add.u32 %r7, [%rd2], 1; st.global.u32 [%rd3], %r7;", grid=2, seed=3)
    assert sorted(found.words[:64].tolist()) == list(range(64))


def test_an_atomic_beside_a_plain_store_is_a_race() -> None:
    """They are not atomic towards each other."""
    body = """
  setp.eq.u32 %p1, %r1, 40;
  @%p1 st.global.u32 [%rd2], %r1;
  red.relaxed.gpu.global.add.u32 [%rd2], 1;
"""
    assert done(body, threads=64).kinds == {"WAW"}


def test_packed_halves_are_added_apart() -> None:
    """bf16x2 and f16, with one rounding each."""
    found = done("red.relaxed.gpu.global.add.noftz.f16 [%rd1], %h1;", grid=1)
    assert found.verdict.status is Status.PASS
    body = "mov.b32 %r7, 0x3f803f80; red.relaxed.gpu.global.add.noftz.bf16x2 [%rd1], %r7;"
    found = done(body)
    assert (found.out[:4].view(np.uint16) == 0x4200).all()  # 32.0


def message(resident: int, *, backwards: bool = False) -> Done:
    """Hand a word from CTA to CTA, with so many of them at once."""
    turn = "%r2" if not backwards else "%r9"
    body = f"""
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra OVER;
  mov.u32 %r8, %nctaid.x;
  sub.u32 %r9, %r8, %r2;
  sub.u32 %r9, %r9, 1;
SPIN:
  ld.acquire.gpu.global.u32 %r7, [%rd2];
  setp.ne.u32 %p2, %r7, {turn};
  @%p2 bra SPIN;
  add.u32 %r7, %r7, 1;
  st.release.gpu.global.u32 [%rd2], %r7;
OVER:
"""
    return done(body, grid=4, resident=resident)


def test_a_turn_may_wait_only_for_ctas_that_have_begun() -> None:
    """In order of their numbers one at a time is enough; backwards it is not."""
    assert message(0).verdict.status is Status.PASS
    assert message(1).verdict.status is Status.PASS
    assert message(0, backwards=True).verdict.status is Status.PASS
    found = message(1, backwards=True)
    assert found.kinds == {"residency", "deadlock"}
    assert "3 clusters of CTAs never begin" in str(found.verdict)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("griddepcontrol.wait;", set()),
        ("griddepcontrol.launch_dependents;", {"dependency"}),
        ("", {"dependency"}),
    ],
)
def test_a_dependent_launch_waits_for_those_before_it(line: str, kinds: set[str]) -> None:
    """Before it reads or writes what they may still have in hand."""
    load = f"{line} ld.global.u32 %r7, [%rd2];"
    assert done(load, dependent=True).kinds == kinds
    assert done(f"{line} st.global.u32 [%rd3], %r1;", dependent=True).kinds == kinds
    assert done(load).kinds == set()
