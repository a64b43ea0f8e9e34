"""Mutants of a text, and what the judge says of each."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import kernel

from oracles.ptx.judge import judge
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.ptx.text.mutants import fates, kill_table, mutants
from oracles.verdict import Status

BODY = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r5+2048], 1;
  bar.sync 0;
  @!%p1 bra JOIN;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [%r5+2048], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd2], 256, [%r5+2048];
JOIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5+2048], 0;
  @!%p3 bra JOIN;
  ld.shared.u32 %r7, [%r6];
  add.u32 %r7, %r7, 1;
  bar.sync 0;
  st.shared.u32 [%r6], %r7;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p1 bra OVER;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
OVER:
"""


def answer(text: str) -> Status:
    """Judge a text on one launch of 64 threads."""
    buffers = {name: Buffer(name, np.zeros(1024, np.uint8)) for name in ("out", "inp")}
    arguments = (Pointer("out"), Pointer("inp"))
    return judge(text, Launch((1, 1, 1), (64, 1, 1), arguments, buffers, 4096)).status


def test_each_sync_is_dropped_once() -> None:
    """The rest of the text stays as it is."""
    text = kernel(BODY)
    found = list(mutants(text))
    assert [(one.opcode.split(".")[0], one.change) for one in found] == [
        ("mbarrier", "drop"),
        ("bar", "drop"),
        ("mbarrier", "drop"),
        ("mbarrier", "drop"),
        ("bar", "drop"),
        ("fence", "drop"),
        ("bar", "drop"),
        ("cp", "drop"),
        ("cp", "drop"),
        ("cp", "keep one more"),
    ]
    for one in found:
        changed = [
            n
            for n, (a, b) in enumerate(
                zip(text.splitlines(), one.text.splitlines(), strict=True), 1
            )
            if a != b
        ]
        assert changed == [one.line]


def test_all_are_killed_but_what_is_not_needed() -> None:
    """Each thread reads and writes its own word, so that nothing needs the barrier between."""
    text = kernel(BODY)
    found = fates(text, answer)
    survivors = [fate.mutant.line for fate in found if not fate.killed]
    (needless,) = survivors
    assert text.splitlines()[needless - 2].strip() == "add.u32 %r7, %r7, 1;"
    assert kill_table(found)["bar.sync", "drop"] == (2, 3)
    assert kill_table(found)["fence.proxy.async.shared::cta", "drop"] == (1, 1)


def test_a_text_that_is_wrong_itself_teaches_nothing() -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="is fail"):
        fates(kernel(BODY.replace("fence.proxy.async.shared::cta;", "")), answer)


def test_weaker_forms() -> None:
    """Release and acquire become relaxed, scopes narrower, waits shallower."""
    body = """
  fence.acq_rel.gpu;
  st.release.gpu.global.u32 [%rd1], %r1;
  ld.acquire.gpu.global.u32 %r7, [%rd1];
  atom.acq_rel.gpu.global.inc.u32 %r7, [%rd1], 5;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  cp.async.bulk.wait_group 0;
  wgmma.wait_group.sync.aligned 1;
"""
    lines = {
        line.strip()
        for one in mutants(kernel(body))
        for line in one.text.splitlines()
        if line not in kernel(body).splitlines()
    }
    assert lines - {""} == {
        "fence.acq_rel.cta;",
        "st.relaxed.gpu.global.u32 [%rd1], %r1;",
        "st.release.cta.global.u32 [%rd1], %r1;",
        "ld.relaxed.gpu.global.u32 %r7, [%rd1];",
        "ld.acquire.cta.global.u32 %r7, [%rd1];",
        "atom.relaxed.gpu.global.inc.u32 %r7, [%rd1], 5;",
        "atom.acq_rel.cta.global.inc.u32 %r7, [%rd1], 5;",
        "barrier.cluster.arrive.relaxed;",
        "cp.async.bulk.wait_group.read 0;",
        "cp.async.bulk.wait_group 1;",
        "wgmma.wait_group.sync.aligned 2;",
    }


def test_copies_and_fences_of_tensor_maps_are_dropped_or_reach_less_far() -> None:
    """What a kernel writes them by stays."""
    copied = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
    acquire = "fence.proxy.tensormap::generic.acquire.gpu"
    text = kernel(
        "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd6], 1;\n"
        f"{copied}.sync.aligned [%rd1], [%rd6], 128;\n{acquire} [%rd1], 128;"
    )
    found = list(mutants(text))
    assert [(one.opcode.split(".")[0], one.change) for one in found] == [
        ("tensormap", "drop"),
        ("tensormap", "gpu to cta"),
        ("fence", "drop"),
        ("fence", "gpu to cta"),
    ]
    assert f"{copied[:-3]}cta.sync.aligned" in found[1].text
    assert f"{acquire[:-3]}cta [%rd1]" in found[3].text
