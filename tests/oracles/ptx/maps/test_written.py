"""Tensor maps that a kernel writes: right ones pass, and each fence that is left out is found."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import Done, done, named

from oracles.ptx.launch import TensorMap
from oracles.verdict import Status

WORDS = np.arange(4096, dtype=np.uint32) + 7
MAP = TensorMap("inp", "u32", (32, 64), (128,), (32, 4))
"""Rows of 128 bytes; a box has four of them."""


def filled(text: str, **parts: object) -> str:
    """Return a text with parts in the place of their names."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", str(part))
    return text


def copied(space: str, to: str) -> str:
    """Return the copy of the map that is a parameter."""
    return "\n".join(
        f"ld.param.v2.u64 {{%rd40, %rd41}}, [m0+{at}]; "
        f"st.{space}.v2.u64 [{to}+{at}], {{%rd40, %rd41}};"
        for at in range(0, 128, 16)
    )


COPY = """
  {expect}
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r5], [%rd8, {0, 0}], [%r20];
"""
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r20], 512;"
WAIT = """AGAIN{n}:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r20], {n};
  @!%p3 bra AGAIN{n};
"""
READ = "ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd3], %r7;"
HEAD = """
  add.s64 %rd8, %rd1, 8192;
  add.u32 %r20, %r5, 2048;
  add.u32 %r21, %r5, 3072;
  cvt.u64.u32 %rd10, %r21;
  setp.eq.u32 %p1, %r1, 0;
  setp.lt.u32 %p2, %r1, 32;
  add.s64 %rd11, %rd2, 1280;
  @%p1 mbarrier.init.shared::cta.b64 [%r20], 1;
  bar.sync 0;
"""

IN_PLACE = (
    HEAD
    + "@!%p1 bra WRITTEN;\n"
    + copied("global", "%rd8")
    + """
  tensormap.replace.tile.global_address.global.b1024.b64 [%rd8], %rd11;
  {release}
WRITTEN:
  {join}
  {acquire}
  {after}
  @!%p1 bra COPIED;
"""
    + filled(COPY, expect=EXPECT)
    + "COPIED:\n"
    + filled(WAIT, n=0)
    + READ
)
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd8], 128;"
OTHERS = "@!%p1 " + ACQUIRE
JOIN = "bar.sync 0;"


def through(text: str, *, grid: int = 1, cluster: int = 1) -> Done:
    """Execute a body by 128 threads, of whom one copies four rows from the eleventh on."""
    return done(text, threads=128, grid=grid, cluster=cluster, inputs=WORDS, maps=(MAP,))


@pytest.mark.parametrize(
    ("release", "join", "acquire", "after", "kinds"),
    [
        (RELEASE, JOIN, ACQUIRE, "", set()),
        (RELEASE, JOIN, OTHERS, JOIN, set()),
        (RELEASE.replace("gpu", "cta"), JOIN, ACQUIRE.replace("gpu", "cta"), "", set()),
        ("", JOIN, RELEASE + ACQUIRE, "", set()),
        ("", JOIN, ACQUIRE, "", {"proxy"}),
        (RELEASE, JOIN, "", "", {"proxy"}),
        (RELEASE, JOIN, ACQUIRE + RELEASE, "", set()),
        ("", JOIN, ACQUIRE + RELEASE, "", {"proxy"}),
        (RELEASE, JOIN, OTHERS, "", {"proxy"}),
        (RELEASE, "", OTHERS, JOIN, {"proxy"}),
        (RELEASE, JOIN, ACQUIRE.replace("[%rd8]", "[%rd8+128]"), "", {"proxy"}),
        (RELEASE, JOIN, ACQUIRE.replace("128", "64"), "", {"bytes"}),
        (RELEASE, JOIN, "fence.proxy.async;", "", {"proxy"}),
    ],
    ids=named,
)
def test_a_map_in_global_memory_takes_a_release_and_an_acquire(
    release: str, join: str, acquire: str, after: str, kinds: set[str]
) -> None:
    """In that order, of this map, and ordered before the copy, by whatever thread of the CTA."""
    text = filled(IN_PLACE, release=release, join=join, acquire=acquire, after=after)
    found = through(text)
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[:128] == WORDS[320:448]).all()


STAGED = (
    HEAD
    + "@!%p1 bra WRITTEN;\n"
    + copied("shared", "%r21")
    + """
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd10], %rd11;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd10], 1, 2;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%rd10], 0;
WRITTEN:
  {warp}
  @%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%rd8], [%rd10], 128;
  {acquire}
  @!%p1 bra COPIED;
"""
    + filled(COPY, expect=EXPECT)
    + "COPIED:\n"
    + filled(WAIT, n=0)
    + READ
    + """
  {behind}
  @%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%rd8], [%rd10], 128;
"""
)


@pytest.mark.parametrize(
    ("warp", "acquire", "behind", "kinds"),
    [
        ("bar.warp.sync -1;", "@%p2 " + ACQUIRE, "", set()),
        ("", "@%p2 " + ACQUIRE, "", {"RAW"}),
        ("bar.warp.sync -1;", "", "", {"proxy"}),
    ],
    ids=named,
)
def test_a_map_made_in_shared_memory_is_copied_and_released(
    warp: str, acquire: str, behind: str, kinds: set[str]
) -> None:
    """By a warp, of which every thread has to know of the changes; behind two rows are zeros."""
    found = through(filled(STAGED, warp=warp, acquire=acquire, behind=behind))
    assert found.kinds == kinds, str(found.verdict)
    if not kinds:
        assert (found.words[:64] == WORDS[320:384]).all()
        assert not found.words[64:128].any()


def test_a_map_is_not_rewritten_while_a_copy_reads_it() -> None:
    """What waits for the bytes knows that; others do not."""
    text = filled(STAGED, warp="bar.warp.sync -1;", acquire="@%p2 " + ACQUIRE, behind="")
    early = text.replace(filled(WAIT, n=0), "").replace(READ, "") + filled(WAIT, n=0)
    assert through(early).kinds == {"WAR"}


ACROSS = (
    HEAD
    + """
  add.s64 %rd12, %rd1, 12288;
  setp.eq.u32 %p4, %r2, 0;
  @!%p4 bra READER;
  @!%p1 bra OVER;
"""
    + copied("global", "%rd8")
    + """
  tensormap.replace.tile.global_address.global.b1024.b64 [%rd8], %rd11;
  fence.proxy.tensormap::generic.release.{released};
  st.release.gpu.global.u32 [%rd12], 1;
  bra OVER;
READER:
  ld.acquire.gpu.global.u32 %r7, [%rd12];
  setp.ne.u32 %p5, %r7, 1;
  @%p5 bra READER;
  fence.proxy.tensormap::generic.acquire.{acquired} [%rd8], 128;
  @!%p1 bra COPIED;
"""
    + filled(COPY, expect=EXPECT)
    + "COPIED:\n"
    + filled(WAIT, n=0)
    + READ
    + "OVER:\n"
)


@pytest.mark.parametrize(
    ("released", "acquired", "cluster", "kinds"),
    [
        ("gpu", "gpu", 1, set()),
        ("sys", "gpu", 1, set()),
        ("cta", "gpu", 1, {"proxy"}),
        ("gpu", "cta", 1, {"proxy"}),
        ("cluster", "gpu", 1, {"proxy"}),
        ("cluster", "cluster", 2, set()),
        ("cta", "cluster", 2, {"proxy"}),
    ],
)
def test_scopes_of_the_fences_include_the_other_cta(
    released: str, acquired: str, cluster: int, kinds: set[str]
) -> None:
    """One CTA writes the map, another copies through it."""
    found = through(filled(ACROSS, released=released, acquired=acquired), grid=2, cluster=cluster)
    assert found.kinds == kinds, str(found.verdict)


def test_a_map_of_the_host_in_global_memory_takes_an_acquire() -> None:
    """Bytes that are none are refused behind it."""
    text = HEAD + "{acquire}\n@!%p1 bra COPIED;" + filled(COPY, expect="") + "COPIED:"
    assert "proxy" in through(filled(text, acquire="")).kinds
    given = filled(text.replace("%rd1, 8192", "%rd2, 8192"), acquire=ACQUIRE)
    found = done(given, threads=128, inputs=np.full(4096, 0xFFFFFFFF, np.uint32), maps=(MAP,))
    assert found.kinds == {"map"}
    assert "no tensor map" in str(found.verdict)


def test_a_map_that_is_legal_but_not_modelled_is_unsupported() -> None:
    """Known only when a copy goes through it."""
    text = IN_PLACE.replace(
        "{release}",
        "tensormap.replace.tile.interleave_layout.global.b1024.b32 [%rd8], 1; {release}",
    )
    found = through(filled(text, release=RELEASE, join=JOIN, acquire=ACQUIRE, after=""))
    assert found.verdict.status is Status.UNSUPPORTED
    assert "interleave_layout" in found.verdict.reason


def test_outside_of_its_tensor_a_map_may_fill_with_nan() -> None:
    """In the type that it has."""
    made = TensorMap("inp", "f32", (32, 2), (128,), (32, 4), nan=True)
    text = HEAD + "@!%p1 bra COPIED;" + filled(COPY, expect=EXPECT) + "COPIED:"
    text = text.replace("add.s64 %rd8, %rd1, 8192;", "mov.b64 %rd8, m0; cvta.param.u64 %rd8, %rd8;")
    found = done(text + filled(WAIT, n=0) + READ, threads=128, inputs=WORDS, maps=(made,))
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.words[:64] == WORDS[:64]).all()
    assert np.isnan(found.words[64:128].view(np.float32)).all()


TWICE = STAGED.replace(
    "{behind}",
    """
  bar.sync 0;
  add.s64 %rd11, %rd2, 2560;
  @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd10], %rd11;
  {warp}
""",
)


def test_the_copy_of_a_map_belongs_to_all_threads_of_its_warp() -> None:
    """The map in shared memory may be changed behind it, by any of them."""
    text = filled(TWICE, warp="bar.warp.sync -1;", acquire="@%p2 " + ACQUIRE)
    assert through(text).kinds == set(), str(through(text).verdict)
    text = filled(TWICE, warp="", acquire="@%p2 " + ACQUIRE)
    assert through(text).kinds == {"RAW"}


@pytest.mark.parametrize(
    ("wait", "kinds"),
    [
        ("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", set()),
        ("cp.async.bulk.wait_group.read 0;", {"WAR"}),
        ("cp.async.bulk.commit_group;", {"WAR"}),
        ("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;", {"WAR"}),
    ],
    ids=named,
)
def test_who_waits_for_its_bulk_groups_knows_that_its_loads_have_read_their_maps(
    wait: str, kinds: set[str]
) -> None:
    """One thread waits, before the mbarrier's phase is over; then its warp replaces the map."""
    text = filled(STAGED, warp="bar.warp.sync -1;", acquire="@%p2 " + ACQUIRE, behind="")
    early = text.replace(WAIT.replace("{n}", "0"), "@%p1 bra.uni THERE; bra THEN; THERE: " + wait)
    early = early.replace(READ, "THEN:") + WAIT.replace("{n}", "0")
    assert through(early).kinds == kinds, str(through(early).verdict)


def test_an_acquire_of_no_map_orders_nothing() -> None:
    """It is no access: a warning."""
    text = HEAD + "mov.u64 %rd8, 0; fence.proxy.tensormap::generic.acquire.gpu [%rd8], 128;"
    found = through(text).verdict
    assert found.status is Status.PASS
    assert [(one.kind, one.severity) for one in found.findings] == [("bounds", "warning")]
