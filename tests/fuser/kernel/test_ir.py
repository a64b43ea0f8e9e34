"""The Kernel IR's own laws: walking, rewriting, layouts that cover their tile."""

from math import prod

import kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.kernel import ir as kir


def test_walk_meets_parents_before_children() -> None:
    """And every statement once."""
    stmts = list(kernels.specialized(2).walk())
    assert len({id(s) for s in stmts}) == len(stmts)
    role = next(n for n, s in enumerate(stmts) if isinstance(s, kir.Role))
    load = next(n for n, s in enumerate(stmts) if isinstance(s, kir.TmaLoad))
    assert role < load


def test_rewrite_that_keeps_everything_is_the_same_kernel() -> None:
    """None keeps a statement and goes inside."""
    kernel = kernels.pipelined(3, 2)
    assert kernel.rewrite(lambda stmt: None) == kernel


def test_rewrite_drops_exactly_the_victim() -> None:
    """Mutants are made this way; equal statements elsewhere stay."""
    kernel = kernels.staged(2)
    syncs = [s for s in kernel.walk() if isinstance(s, kir.BlockSync)]
    assert syncs[0] == syncs[1]
    left = kernel.rewrite(lambda stmt: [] if stmt is syncs[0] else None)
    assert [s for s in left.walk() if isinstance(s, kir.BlockSync)] == [syncs[1]]


@given(
    st.sampled_from([(1, 8), (4, 64), (3, 40), (1, 2048), (1, 1, 8)]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([32, 64, 128]),
)
def test_a_layout_covers_its_tile_exactly_once(
    shape: tuple[int, ...], vector: int, threads: int
) -> None:
    """Every element has one thread and one register, none out of range."""
    layout = kir.Layout(shape, vector, threads)
    seen = set()
    for element in range(prod(shape)):
        v = element // vector
        register = (v // threads) * vector + element % vector
        assert register < layout.registers
        seen.add((v % threads, register))
    assert len(seen) == prod(shape)


@pytest.mark.parametrize(("slots", "offset"), [(1, 1024), (3, 3072)])
def test_barriers_lie_behind_the_buffers(slots: int, offset: int) -> None:
    """8 bytes a slot, after the last byte of data."""
    kernel = kernels.pipelined(slots, 0)
    assert kernel.barrier_offset == offset
    assert kernel.smem_bytes == offset + 8 * slots
