"""The prover's reading of a kernel: who executes what, and how it repeats."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser.expr import Kind, Op, Var, both, ceildiv, fold
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from oracles.prover.arithmetic import K, N, NegativeError, UnsupportedError, function
from oracles.prover.invariants.trace import read


def test_a_role_of_several_warps_has_four_kinds_of_threads() -> None:
    """Arrivals are counted, so the counts of the kinds must add up to the CTA."""
    assert [(kind.role, kind.warps, kind.count) for kind in read(ks.specialized(3)).kinds] == [
        ("compute", (0,), 1),
        ("compute", (0,), 31),
        ("compute", (1, 2, 3), 3),
        ("compute", (1, 2, 3), 93),
        ("load", (4,), 1),
        ("load", (4,), 31),
    ]


def test_elect_takes_one_thread_of_the_role() -> None:
    """The load role's thread is the first of its own warp; the CTA's is thread 0."""
    trace = read(ks.specialized(2))
    by_kind = {type(s.stmt): [str(trace.kinds[i]) for i in sorted(s.kinds)] for s in trace.steps}
    assert by_kind[kir.MBarrierInit] == ["lane 0 of warp 0 (compute)"]
    assert by_kind[kir.TmaLoad] == ["lane 0 of warp 4 (load)"]
    assert by_kind[kir.MBarrierArrive] == [
        "lane 0 of warp 0 (compute)",
        "lane 0 of warps 1..3 (compute)",
    ]


def test_programs_write_the_prologue_out_and_keep_its_guard() -> None:
    """With fewer trips than prefetched tiles, only the tiles there are may be loaded."""
    trace = read(ks.pipelined(4, 3))
    loads = [s for s in trace.programs[0].before if isinstance(s.stmt, kir.TmaLoad)]
    assert [s.controls["bar"] for s in loads] == [0, 1, 2]
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
