"""The prover's reading of a kernel: who executes what, and how it repeats."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser.expr import Kind, Op, Var, both, ceildiv, fold
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from oracles.prover.arithmetic import K, N, NegativeError, UnsupportedError, function
from oracles.prover.invariants.events.footprint import Footprints, meetings
from oracles.prover.trace import read


def test_a_role_of_several_warps_has_four_kinds_of_threads() -> None:
    """Arrivals are counted, so the counts of the kinds must add up to the CTA."""
    agents = read(ks.specialized(3)).agents
    assert [(a.role, a.thread, a.count) for a in agents] == [
        ("compute", 0, 1),
        ("compute", 1, 31),
        ("compute", 32, 3),
        ("compute", 33, 93),
        ("load", 0, 1),
        ("load", 1, 31),
    ]


def test_elect_takes_one_thread_of_the_role() -> None:
    """The load role's thread is the first of its own warp; the CTA's is thread 0."""
    trace = read(ks.specialized(2))
    by_kind = {type(s.stmt): [str(trace.agents[a]) for a in sorted(s.agents)] for s in trace.steps}
    assert by_kind[kir.MBarrierInit] == ["lane 0 of warp 0 (compute)"]
    assert by_kind[kir.TmaLoad] == ["lane 0 of warp 4 (load)"]
    assert by_kind[kir.MBarrierArrive] == [
        "lane 0 of warp 0 (compute)",
        "lane 0 of warps 1.. (compute)",
    ]


def test_programs_write_the_prologue_out_and_keep_its_guard() -> None:
    """With fewer trips than prefetched tiles, only the tiles there are may be loaded."""
    trace = read(ks.pipelined(4, 3))
    slots = {(c.step.index, c.what): c.expr for c in trace.controls}
    loads = [s for s in trace.programs[0].before if isinstance(s.stmt, kir.TmaLoad)]
    assert [slots[s.index, "bar_slot"] for s in loads] == [0, 1, 2]
    assert [s.guard for s in loads] == [fold(Kind.LT, q, N) for q in range(3)]


def test_lines_are_those_of_the_kernel_text() -> None:
    """Findings point into the text that everybody else prints."""
    kernel = ks.specialized(2)
    lines = text(kernel).splitlines()
    for step in read(kernel).steps:
        number, words = step.where.removeprefix("line ").split(": ", 1)
        assert lines[int(number) - 1].strip() == words


def test_division_of_a_negative_number_is_noticed() -> None:
    """Python and C++ disagree there, so no proof may use it."""
    with pytest.raises(NegativeError):
        function((K - 1) % 3, checked=True)({K.name: 0})


def test_the_same_layout_meets_only_itself() -> None:
    """A private round trip needs no barrier; a change of layout does."""
    trace = read(ks.relaid(same=True))
    feet = Footprints(trace)
    store, load = (s.index for s in trace.steps if feet.accesses[s.index] is not None)
    assert feet.meetings(store, load) == frozenset()
    feet = Footprints(read(ks.relaid()))
    assert {m.same_warp for m in feet.meetings(store, load)} == {True, False}


def test_a_broadcast_tile_meets_many_threads() -> None:
    """One shared element handed to a row of threads is read by threads that did not write it."""
    narrow = kir.Buffer("S0", ks.X.dtype, (ks.ROWS, 1), 1, 0)
    column = kir.Fragment("c", ks.X.dtype, kir.Layout((ks.ROWS, 1), 1, 32 * ks.WARPS))
    body: list[kir.Stmt] = [
        kir.Load(column, kir.Box(ks.T0, (0, 0), (ks.ROWS, 1), (ks.R, ks.C)), 1),
        kir.Store(kir.Slot(narrow, 0), column, 1),
        kir.Load(ks.X, kir.Slot(narrow, 0), 1),
    ]
    trace = read(ks.kernel("broadcast", body, buffers=(narrow,)))
    feet = Footprints(trace)
    store, load = (feet.accesses[s.index] for s in trace.steps if feet.accesses[s.index])
    assert store is not None
    assert load is not None
    assert meetings(trace, store, load)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            [kir.ForLoop(ks.K, ks.TRIPS, (kir.ForLoop(Var("i"), ks.C, (kir.WarpSync(),)),))],
            "inside",
        ),
        ([kir.IfThenElse(kir.BLOCK < 3, (kir.WarpSync(),))], "blockIdx"),
        (
            [
                kir.ForLoop(ks.K, ks.TRIPS, (kir.WarpSync(),)),
                kir.ForLoop(Var("i"), ceildiv(ks.C, 2), (kir.WarpSync(),)),
            ],
            "different lengths",
        ),
    ],
)
def test_what_is_not_modelled_is_named(body: list[kir.Stmt], says: str) -> None:
    """Unsupported is an answer, and must say of what."""
    with pytest.raises(UnsupportedError, match=says):
        read(ks.kernel("odd", body))


def test_conditions_join() -> None:
    """Nested guards hold together."""
    inner = kir.IfThenElse(fold(Kind.LT, 2 - ks.K, 2), (kir.WarpSync(),))
    loop = kir.ForLoop(ks.K, ks.TRIPS, (kir.IfThenElse(ks.K < 4, (inner,)),))
    trace = read(ks.kernel("guards", [loop]))
    (step,) = trace.steps
    assert step.guard is not None
    holds = function(step.guard)
    assert [holds({K.name: k, N.name: 9}) for k in range(6)] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert both(1, Op(Kind.LT, K, 4)) == Op(Kind.LT, K, 4)
