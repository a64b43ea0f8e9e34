"""Where fragments are declared, and which are held packed: a function of the Kernel's text."""

from __future__ import annotations

import pytest
from kernel_parts import ACC, FRAG_A, FRAG_B, SA, SB, SY, kernel, loop, role, zero

from fuser.codegen.registers import count, plan
from fuser.dtype import DType
from fuser.expr import Var, eq
from fuser.kernel import ir as kir

i = Var("i")
USE = kir.Store(kir.Slot(SY, 0), ACC, 2)
GROW = kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0), i > 0)


def declared(*body: kir.Stmt) -> list[tuple[int, ...]]:
    """Before which statements `acc` is declared."""
    return sorted(at for at, frags in plan(kernel(*body)).declared.items() if ACC in frags)


def test_a_fragment_of_one_body_is_declared_there() -> None:
    """At its definition, not at the top."""
    assert declared(loop(kir.WarpSync(), zero(), USE)) == [(0, 0, 1)]


def test_a_sum_over_turns_is_declared_outside() -> None:
    """The first product of a turn goes on from the last turn's."""
    assert declared(kir.WarpSync(), loop(GROW)) == [(1,)]
    assert declared(loop(GROW, USE)) == [(0,)]


def test_a_value_that_a_later_turn_may_still_use_is_declared_outside() -> None:
    """A definition under a condition does not happen in each iteration."""
    assert declared(loop(kir.IfThenElse(eq(i % 4, 0), (zero(),)), USE)) == [(0,)]
    both = kir.IfThenElse(eq(i % 4, 0), (zero(),), (zero(),))
    assert declared(loop(both, USE)) == [(0, 0, 0)]


def test_what_is_used_behind_a_loop_is_declared_before_it() -> None:
    """C++ would not know the name there."""
    assert declared(loop(zero()), USE) == [(0,)]
    assert declared(kir.IfThenElse(1, (zero(),), (zero(),)), USE) == [(0,)]


def test_roles_have_registers_of_their_own() -> None:
    """Threads of other warps share none; those of the same warps, and of what follows, do."""
    first, second = role(zero(), USE, name="x"), role(zero(), USE, first=4, name="y")
    assert declared(first, second) == [(0, 0, 0), (1, 0, 0)]
    assert declared(role(zero(), name="x"), role(USE, name="x")) == [(0,)]
    assert declared(first, second, USE) == [(0,)]


def test_one_name_of_two_fragments_is_numbered() -> None:
    """The second would hide the first, or not fit it."""
    other = kir.Fragment("acc", DType.F32, kir.Layout((64, 8), 1, 128))
    names = plan(kernel(zero(), zero(other), USE)).names
    assert [names[ACC], names[other]] == ["acc", "acc_2"]


def test_operands_of_products_are_packed() -> None:
    """As loaded from memory of their type, or computed, two elements in a register."""
    loads = (kir.Load(FRAG_A, kir.Slot(SA, 0), 2), kir.Load(FRAG_B, kir.Slot(SB, 0), 2))
    relu = kir.Compute(FRAG_A, "relu", (kir.Literal(1.0, DType.BF16),))
    product = kir.Mma(ACC, FRAG_A, FRAG_B)
    assert plan(kernel(zero(), *loads, product)).packed == {FRAG_A, FRAG_B}
    assert plan(kernel(zero(), relu, loads[1], product)).packed == {FRAG_A, FRAG_B}


def test_what_something_else_sees_unrounded_is_not_packed() -> None:
    """A compute sees f32; so does memory of a wider type."""
    loads = (kir.Load(FRAG_A, kir.Slot(SA, 0), 2), kir.Load(FRAG_B, kir.Slot(SB, 0), 2))
    product = kir.Mma(ACC, FRAG_A, FRAG_B)
    again = kir.Compute(FRAG_A, "relu", (FRAG_A,))
    assert plan(kernel(zero(), *loads, again, product)).packed == {FRAG_B}
    wide = kir.Buffer("wide", DType.F32, (64, 16), 1, 0)
    stored = kir.Store(kir.Slot(wide, 0), FRAG_A, 2)
    assert plan(kernel(zero(), *loads, stored, product, buffers=(SA, SB, wide))).packed == {FRAG_B}
    narrow = kir.Store(kir.Slot(SA, 1), FRAG_A, 2)
    assert plan(kernel(zero(), *loads, narrow, product)).packed == {FRAG_A, FRAG_B}


def test_accumulators_are_pinned_where_they_are_declared() -> None:
    """The wait of another role has nothing to hold on to."""
    registers = plan(kernel(role(zero(), GROW, USE), role(kir.WarpSync(), first=4, name="y")))
    assert registers.visible((0, 0, 1)) == (ACC,)
    assert registers.visible((1, 0, 0)) == ()


def test_a_strip_for_some_warps_takes_room_in_all() -> None:
    """Two strips for four warps: half of them hold nothing, none holds half a strip."""
    assert count(kir.Layout((32, 8), 2, 128, kir.Deal.STRIPS)) == 4
    assert count(kir.Layout((128, 64), 2, 128, kir.Deal.STRIPS)) == 64
    assert count(kir.Layout((8, 16), 2, 128, kir.Deal.EACH_WARP)) == 4


@pytest.mark.parametrize(
    ("vector", "op", "held"), [(2, "cast", True), (2, "promote", False), (4, "cast", False)]
)
def test_bytes_are_words_where_they_are_only_cast_to_pairs(
    vector: int, op: str, *, held: bool
) -> None:
    """By pairs in strips, as an operand lies; others are single numbers."""
    layout = kir.Layout((64, 64), vector, 128, kir.Deal.STRIPS)
    source = kir.Buffer("S_W", DType.I8, (64, 64), 1, 0)
    narrow = kir.Fragment("w", DType.I8, layout)
    wide = kir.Fragment("f", DType.BF16 if op == "cast" else DType.F32, layout)
    body = (
        kir.Load(narrow, kir.Slot(source, 0), vector),
        kir.Compute(wide, op, (narrow,)),
    )
    assert (narrow in plan(kernel(*body)).packed) == held
    used = kir.Compute(kir.Fragment("x", DType.F32, layout), "promote", (narrow,))
    assert narrow not in plan(kernel(*body, used)).packed
