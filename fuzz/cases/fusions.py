"""Hypothesis strategies for pointwise fusions, valid by construction."""

from __future__ import annotations

from hypothesis import strategies as st

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ops import OPS, Rule
from fuzz.cases import draft as on
from fuzz.cases.draft import DTYPES, FEATURES, INEXACT, POINTWISE, Draft
from fuzz.cases.graphs import grow, skeletons


@st.composite
def fusions(draw: st.DrawFn, *, max_ops: int = 8, exact: bool = False) -> Fusion:
    """Fusions of one to `max_ops` drawn blocks; `exact` ones keep small integers exact.

    Shrinks towards one `relu` of an f32 input with one axis: fewer operations first, then
    simpler ones, fewer axes, f32, and no feature.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    draft = Draft(FusionDefinition(), banned, draw(on.axes(banned, 4)), exact)
    on.take_input(draw, draft, whole=True)
    for block in draw(skeletons(max_ops)):
        grow(draw, draft, block)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()


@st.composite
def single_op_fusions(draw: st.DrawFn, *, op: str | None = None, exact: bool = False) -> Fusion:
    """Fusions of one operation, each operand an input of its own.

    Shrinks towards one `relu` (or `op`) of an f32 input with one axis.
    """
    banned = frozenset(draw(st.sets(st.sampled_from(FEATURES), max_size=8)))
    draft = Draft(FusionDefinition(), banned, draw(on.axes(banned, 2)), exact)
    names = [n for n in POINTWISE if not (exact and n in INEXACT)]
    name = op or draw(st.sampled_from(names))
    legal = [
        d for d in DTYPES if (OPS[name].rule in (Rule.GIVEN, Rule.TEST) or d in OPS[name].allowed)
    ]
    if exact and name in ("floor_div", "remainder"):
        legal = [d for d in legal if d.is_int]
    a = on.take_input(draw, draft, dtypes=legal, whole=True)
    for _ in range(on.others(name) if OPS[name].rule is not Rule.SELECT else 1):
        on.take_input(draw, draft, dtypes=[a.dtype])
    on.apply(draw, draft, name, a)
    on.add_outputs(draw, draft)
    return draft.fd.fusion()
