"""A draft keeps tensors in its frame and their magnitudes bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuzz.cases.draft import (
    FEATURES,
    LARGEST,
    LARGEST_EXTENT,
    Draft,
    add_outputs,
    apply,
    step,
    take_input,
)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Drafts of a frame with two symbols and a number, after a few steps."""
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=4)))
    draft = Draft(FusionDefinition(), banned, ["i0", "i1", 3], exact=True)
    take_input(draw, draft, whole=True)
    for _ in range(draw(st.integers(1, 5))):
        step(draw, draft)
    return draft


@settings(max_examples=60, deadline=None)
@given(drafts())
def test_every_tensor_lies_in_the_frame(draft: Draft) -> None:
    """Only so do any two of them go together, and a product can take any."""
    for tv in draft.live:
        assert tv.rank == 3
        for extent, frame in zip(map(str, tv.shape), map(str, draft.axes), strict=True):
            assert extent in ("1", frame)


@settings(max_examples=60, deadline=None)
@given(drafts())
def test_magnitudes_of_exact_drafts_are_bounded(draft: Draft) -> None:
    """What is larger than f32 counts exactly could not be compared for equality."""
    assert all(draft.size[tv.name] <= max(2 * LARGEST, 8 * LARGEST_EXTENT) for tv in draft.live)


@st.composite
def finished(draw: st.DrawFn) -> Fusion:
    """Fusions made of drafts."""
    draft = draw(drafts())
    add_outputs(draw, draft)
    return draft.fd.fusion()


@settings(max_examples=200, deadline=None)
@given(finished())
def test_what_nobody_uses_becomes_an_output(fusion: Fusion) -> None:
    """An operation whose result nobody sees is never tested."""
    used = {arg for tv in fusion.tensors for arg in tv.args}
    idle = [tv for tv in fusion.tensors if tv not in used and tv not in fusion.outputs]
    assert all(tv.op == "input" for tv in idle)


@st.composite
def selected(draw: st.DrawFn) -> TensorView:
    """A choice between tensors that are too large for an exact operation."""
    draft = Draft(FusionDefinition(), frozenset(), ["i0"], exact=True)
    a = take_input(draw, draft, dtypes=[DType.F32], whole=True)
    draft.size[a.name] = 2 * LARGEST
    return apply(draw, draft, "where", a)


@settings(max_examples=20, deadline=None)
@given(selected())
def test_what_is_too_large_is_replaced_by_an_operation_on_the_tensor_itself(
    made: TensorView,
) -> None:
    """The first operand of `where` is a flag, which has no relu."""
    assert (made.op, made.dtype) == ("relu", DType.F32)
