"""Tests of rules that hold whatever the iteration: which bytes are shared."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest
from litmus.parts import Litmus
from litmus.suite import LITMUS

from fuser.cookbook import recipes
from fuser.expr import Kind, fold
from fuser.kernel import ir as kir
from oracles.prover.invariants.check import confirm
from oracles.verdict import Status

ALIASES = [
    one
    for one in LITMUS
    if one.name.startswith(("epilogue_o", "two_buffers", "first_buffer", "second_buffer"))
]
"""Kernels of buffers that share bytes."""


@pytest.mark.parametrize("one", ALIASES, ids=lambda one: one.name)
def test_buffers_of_one_slot_may_share_bytes(one: Litmus) -> None:
    """What follows what is asked of bytes, not of names."""
    assert isinstance(one.kernel, kir.Kernel)
    status = confirm(one.kernel).status
    assert (status is Status.PASS) == (one.expect.status is Status.PASS)
    assert status is not Status.UNSUPPORTED


def test_what_another_buffer_has_overwritten_is_not_read() -> None:
    """The bytes are ordered, but they are those of the other buffer."""
    (right,) = (one.kernel for one in ALIASES if one.name == "two_buffers_over_each_other")
    assert isinstance(right, kir.Kernel)
    puts = [s for s in right.walk() if isinstance(s, kir.Store) and isinstance(s.dst, kir.Slot)]
    first = kir.IfThenElse(fold(Kind.LT, ks.K, 1), (puts[0],))
    stale = right.rewrite(lambda stmt: [first] if stmt is puts[0] else None)
    assert confirm(right).status is Status.PASS
    assert confirm(stale).status is not Status.PASS


def test_rings_that_share_bytes_are_unsupported() -> None:
    """Which slots do would depend on the turn."""
    ring = recipes.double_wgmma()
    _, b, b2 = ring.buffers
    over = replace(b2, offset=b.offset)

    def moved(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad(dst) if dst.buffer == b2:
                return [replace(stmt, dst=replace(dst, buffer=over))]
            case kir.Wgmma() if stmt.b.buffer == b2:
                return [replace(stmt, b=replace(stmt.b, buffer=over))]
            case _:
                return None

    kernel = replace(ring, buffers=(*ring.buffers[:2], over)).rewrite(moved)
    assert confirm(kernel).status is Status.UNSUPPORTED
