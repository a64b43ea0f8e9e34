"""Tests of the registers of wgmma: whoever else uses them waits and fences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.matmul import ACC
from fuser.kernel import ir as kir
from oracles.prover.invariants.trace import RefusedError, check

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
