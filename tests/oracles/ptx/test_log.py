"""Who executed what: events in the order of each thread, parts joined, results beside them."""

from __future__ import annotations

import numpy as np
from ptx_kernels import OUT, kernel

from oracles.ptx.judge import run
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.ptx.log import Event, Log


def logged(body: str, threads: int = 64) -> tuple[Log, list[list[Event]], list[list[int]]]:
    """Run a body; return the log, and for each thread its events and what they returned."""
    buffers = {name: Buffer(name, np.zeros(OUT, np.uint8)) for name in ("out", "inp")}
    arguments = (Pointer("out"), Pointer("inp"))
    launch = Launch((1, 1, 1), (threads, 1, 1), arguments, buffers, 4096)
    log = run(kernel(body), launch, logged=True).log
    assert log is not None
    traces = log.traces(threads)
    events = [[log.events[code] for code in trace.codes] for trace in traces]
    return log, events, [trace.results.tolist() for trace in traces]


def test_each_thread_has_its_events_in_order() -> None:
    """A barrier by all threads, an mbarrier by one, which arrives and waits."""
    _, events, _ = logged("""
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra OVER;
  mbarrier.init.shared::cta.b64 [%r5+64], 1;
  { .reg .b64 t; mbarrier.arrive.release.cta.shared::cta.b64 t, [%r5+64]; }
AGAIN: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r5+64], 0;
  @!%p2 bra AGAIN;
OVER: bar.sync 0;
  fence.proxy.async.shared::cta;
""")
    ends: list[Event] = [("bar.sync", 0, 64), ("fence.proxy", "shared")]
    first: list[Event] = [
        ("mbarrier init", -1, 64, 1),
        ("mbarrier arrive", "cta", -1, 64, 1),
        ("mbarrier wait", "cta", -1, 64, 0),
    ]
    assert events[0] == first + ends
    assert events[1:] == [ends] * 63


def test_what_an_event_returned_stands_beside_it() -> None:
    """A counter that a thread raises, and a barrier that tells of a predicate."""
    _, events, results = logged("""
  setp.eq.u32 %p1, %r1, 5;
  @%p1 atom.acq_rel.gpu.global.inc.u32 %r7, [%rd1], 9;
  @%p1 atom.acq_rel.gpu.global.inc.u32 %r7, [%rd1], 9;
  bar.red.or.pred %p2, 0, 64, %p1;
""")
    assert events[5] == [("increment", "acq_rel")] * 2 + [("bar.red", 0, 64)]
    assert results[5] == [0, 1, 1]
    assert results[4] == [1]


def test_parts_of_a_copy_are_one_event() -> None:
    """Whatever else stands twice is two."""
    log, two = Log(), np.arange(2)
    for event in (("tensor store",), ("tensor store",), ("warp sync",), ("warp sync",)):
        log.add(two, 1, event)
    first, _ = log.traces(2)
    assert [log.events[code] for code in first.codes] == [
        ("tensor store",),
        ("warp sync",),
        ("warp sync",),
    ]
