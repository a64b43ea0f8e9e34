"""The prover's reading of a kernel: who executes what, and how it repeats."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.cookbook import recipes
from fuser.cookbook.matmul import ACC
from fuser.expr import Kind, Op, Var, both, ceildiv, fold
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from oracles.prover.arithmetic import K, N, NegativeError, UnsupportedError, function
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.trace import (
    Bound,
    RefusedError,
    Walk,
    bounds,
    check,
    read,
    read_runs,
)
from oracles.verdict import Status


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


# --- statements as functions of the iteration: linear conditions, slots that walk -----------------


def test_what_is_not_linear_is_unsupported() -> None:
    """The construct is named."""
    kernel = ks.specialized(2)

    def odd(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.TmaLoad):
            return [kir.IfThenElse(fold(Kind.LT, ks.K * 2, ks.TRIPS), (stmt,))]
        return None

    verdict = confirm(kernel.rewrite(odd))
    assert verdict.status is Status.UNSUPPORTED
    assert "no difference" in verdict.reason or "not linear" in verdict.reason
    assert confirm(replace(kernel, cluster=2)).status is Status.UNSUPPORTED


def test_conditions_become_differences() -> None:
    """`k + 2 < n` is one bound; its negation the opposite one."""
    ahead = fold(Kind.LT, K + 2, N)
    assert bounds(ahead) == (Bound(-1, 1, -3),)
    assert bounds(fold(Kind.EQ, ahead, 0)) == (Bound(1, -1, 2),)
    assert bounds(1) == ()
    assert Bound(-1, 1, -3).text() == "(<= (- k n) (- 3))"
    with pytest.raises(UnsupportedError):
        bounds(fold(Kind.LT, 2 * K, N))


def test_what_is_issued_ahead_becomes_iterations_before_the_first() -> None:
    """Two ahead of three slots: the loop's copy starts at iteration -2, in phase k + 2."""
    found = read_runs(read(ks.pipelined(3, 2)))
    assert {(p.low, p.bar) for p in found.of.values() if p.low} == {(-2, Walk(3, 2))}
    assert len(found.ahead) == 4


# --- the registers of wgmma: whoever else uses them waits and fences ------------------------------


WGMMA = kir.AsyncKind.WGMMA


def with_keep(kernel: kir.Kernel, old: int, new: int) -> kir.Kernel:
    """Let awaits that keep `old` groups keep `new`."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [kir.AsyncAwait(WGMMA, new)] if stmt == kir.AsyncAwait(WGMMA, old) else None

    return kernel.rewrite(rule)


@pytest.mark.parametrize("name", ["wgmma_ring", "double_wgmma", "persistent", "ping_pong"])
def test_recipes_use_their_registers_well(name: str) -> None:
    """And accesses were seen."""
    assert check(recipes.RECIPES[name]()) > 1


def test_kernels_without_wgmma_have_nothing_to_check() -> None:
    """Registers are then in order by program order alone."""
    assert check(recipes.tma_ring()) == 0


def test_the_flush_has_to_cover_the_last_group() -> None:
    """One group too young is still writing the accumulator."""
    with pytest.raises(RefusedError) as caught:
        check(with_keep(recipes.wgmma_ring(4, 2), 0, 1))
    assert (caught.value.kind, caught.value.says) == (
        "RAW",
        "no await covers the wgmma that may still write acc",
    )


def test_an_uncommitted_wgmma_is_covered_by_no_await() -> None:
    """It is in the open group, which no await waits for."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [] if stmt == kir.AsyncCommit(WGMMA) else None

    with pytest.raises(RefusedError, match="may still"):
        check(recipes.double_wgmma().rewrite(rule))


def test_wgmma_after_an_ordinary_access_needs_a_fence_also_round_the_loop() -> None:
    """The access may be one iteration ago."""
    kernel = recipes.wgmma_ring(3, 0)
    scaled = kir.Compute(ACC, "neg", (ACC,))

    def late(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.WgmmaFence):
            return []
        return [stmt, scaled] if stmt == kir.AsyncAwait(WGMMA, 0) else None

    fenced = [kir.WgmmaFence()]

    def first(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [*fenced, stmt] if isinstance(stmt, kir.ForLoop) else None

    assert check(kernel.rewrite(lambda s: [s, scaled] if s == kir.AsyncAwait(WGMMA, 0) else None))
    with pytest.raises(RefusedError) as caught:
        check(kernel.rewrite(late))
    assert caught.value.kind == "fence"


def test_a_register_operand_may_not_change_in_flight() -> None:
    """The tensor core may still read it."""
    kernel = recipes.wgmma_ring(3, 1)
    a = replace(ACC, name="a")

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Wgmma():
                return [replace(stmt, a=a)]
            case kir.WgmmaFence():
                return [kir.Compute(a, "neg", (a,)), stmt]
            case _:
                return None

    with pytest.raises(RefusedError) as caught:
        check(kernel.rewrite(rule))
    assert caught.value.kind == "WAR"
    assert check(with_keep(kernel, 1, 0).rewrite(rule)) > 0


def test_a_slice_reads_the_accumulator_and_writes_its_own() -> None:
    """Taken while a group is in flight it is refused, and so is one into an operand in flight."""
    part = replace(ACC, name="part")
    taken, given = kir.Slice(part, ACC, 0), kir.Slice(ACC, part, 0)

    def after(depth: int, one: kir.Stmt) -> kir.Kernel:
        def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
            return [stmt, one] if stmt == kir.AsyncAwait(WGMMA, depth) else None

        return recipes.wgmma_ring(3, depth).rewrite(rule)

    assert check(after(0, taken))
    for one, kind in ((taken, "RAW"), (given, "WAW")):
        with pytest.raises(RefusedError) as caught:
            check(after(1, one))
        assert caught.value.kind == kind


def test_a_slice_of_the_accumulator_dirties_it() -> None:
    """An ordinary access, so that the next wgmma needs a fence."""
    part = replace(ACC, name="part")

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [stmt, kir.Slice(part, ACC, 0)] if isinstance(stmt, kir.WgmmaFence) else None

    with pytest.raises(RefusedError) as caught:
        check(recipes.wgmma_ring(3, 0).rewrite(rule))
    assert caught.value.kind == "fence"
