"""Operands have the axes that were asked for, whichever way they come about."""

from __future__ import annotations

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition, TensorView
from fuzz.cases.case import SMALL
from fuzz.cases.operands import (
    LARGEST_FACTOR,
    LARGEST_PRODUCT,
    MAX_SUM,
    Products,
    bounded,
    indexed,
    narrowed,
    new_axis,
    operand,
    spread,
)

NAMES = ("b0", "m1", "k2")


def products(*, exact: bool = True, banned: frozenset[str] = frozenset()) -> Products:
    """A fusion without products yet, with three axes."""
    extents: dict[str, str | int] = {"b0": "i0", "m1": "i1", "k2": 16}
    return Products(FusionDefinition(), banned, exact, DType.BF16, extents)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Products, list[TensorView]]:
    """Two operands, the second of which may be stretched along the axes of the first."""
    made = products()
    first = operand(draw, made, NAMES)
    return made, [first, operand(draw, made, NAMES, stretched=NAMES)]


@settings(max_examples=100, deadline=None)
@given(pairs())
def test_an_operand_has_its_axes_in_order_and_its_type(
    drawn: tuple[Products, list[TensorView]],
) -> None:
    """Mappings name axes by their places."""
    made, operands = drawn
    for tv in operands:
        assert tuple(map(str, tv.shape)) == ("i0", "i1", "16")
        assert tv.dtype is DType.BF16
        assert made.sizes[tv.name] <= LARGEST_FACTOR
    assert [tv for tv, _ in made.shared] == operands


@st.composite
def taken(draw: st.DrawFn) -> tuple[Products, TensorView]:
    """An operand that an index takes of more."""
    made = products()
    return made, indexed(draw, made, draw(st.sampled_from([NAMES, (*NAMES[1:], NAMES[0])])))


def test_an_indexed_operand_takes_whole_matrices_of_any() -> None:
    """As many as a vector names, of others; from bytes, too, and wherever the axis is."""
    seen: set[str] = set()

    @seed(2)
    @settings(database=None, phases=(Phase.generate,), max_examples=80, deadline=None)
    @given(taken())
    def look(drawn: tuple[Products, TensorView]) -> None:
        made, tv = drawn
        ((operand, names),) = made.shared
        assert operand is tv
        assert [*map(str, tv.shape)] == [str(made.extents[name]) for name in names]
        assert (tv.dtype, made.sizes[tv.name]) == (DType.BF16, SMALL)
        (one,) = (tv for tv in made.fd.ops._recorder.tensors if tv.op == "gather")
        source, where = (arg for arg in one.args if isinstance(arg, TensorView))
        (axis,) = (int(str(n)) for n in dict(one.attrs)["dim"])
        assert axis == names.index("b0")
        assert str(source.shape[axis]) == str(made.extents["g3"])
        assert [str(n) for n in where.shape] == ["i0" if n == axis else "1" for n in range(3)]
        casts = "behind" if one is not tv else "before" if source.op == "cast" else "no cast"
        seen.update((f"{where.dtype}", casts, f"{source.dtype}", f"axis {axis}"))

    look()
    assert seen == {"i32", "i64", "behind", "before", "no cast", "i8", "bf16", "axis 0", "axis 2"}


@st.composite
def named(draw: st.DrawFn) -> tuple[list[str], Products]:
    """Five axes."""
    made = Products(FusionDefinition(), frozenset(), True, DType.F16)
    return [new_axis(draw, made, letter) for letter in "bmnkn"], made


@settings(max_examples=50, deadline=None)
@given(named())
def test_axes_have_names_of_their_own(drawn: tuple[list[str], Products]) -> None:
    """Two axes may have one extent; they are two axes all the same."""
    names, made = drawn
    assert len(set(names)) == 5
    assert list(made.extents) == names


def test_what_would_not_stay_exact_becomes_a_sign() -> None:
    """Sums of products of signs are counts."""
    made = products()
    x = made.fd.define_tensor(["i0"], "f32")
    large = narrowed(made, x, LARGEST_FACTOR + 1)
    assert (large.dtype, made.sizes[large.name]) == (DType.BF16, 1)
    small = narrowed(made, x, SMALL)
    assert made.sizes[small.name] == SMALL
    assert bounded(made, small, small) == (small, small)
    made.sizes[large.name] = LARGEST_PRODUCT
    assert {made.sizes[tv.name] for tv in bounded(made, small, large)} == {1}
    assert LARGEST_PRODUCT * MAX_SUM < 1 << 24


def test_a_tensor_is_spread_over_more_axes_in_another_order() -> None:
    """So results reach the frame of an epilogue."""
    made = products()
    x = made.fd.define_tensor(["i1", 16], "bf16")
    wide = spread(made, x, ("m1", "k2"), ("k2", "b0", "m1"))
    assert tuple(map(str, wide.shape)) == ("16", "1", "i1")
    assert spread(made, x, ("m1", "k2"), ("m1", "k2")) is x
