"""The strategy of cases: a fusion, its schedule, its extents and its inputs, drawn together."""

from __future__ import annotations

from hypothesis import strategies as st

from fuzz.case import Case, Kind
from fuzz.fusion_strategies import fusions, single_op_fusions
from fuzz.param_strategies import FAMILIES, extents, layouts, params, possible, trimmed


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    families: tuple[str, ...] = FAMILIES,
    kinds: tuple[Kind, ...] = ("integers", "reals"),
    max_ops: int = 8,
) -> Case:
    """Cases over small and large fusions; one in three has a single operation.

    Shrinks towards one `relu` of an f32 input of one element under direct/direct (or the first
    of `families` that can be), integers, seed 0.
    """
    kind: Kind = draw(st.sampled_from(kinds))
    exact = kind == "integers"
    fusion = draw(
        st.sampled_from([fusions, fusions, single_op_fusions]).flatmap(
            lambda strategy: (
                single_op_fusions(exact=exact)
                if strategy is single_op_fusions
                else fusions(exact=exact, max_ops=max_ops)
            )
        )
    )
    schedule = draw(params(fusion, families=families))
    values = draw(extents(fusion, schedule))
    gap, offset = draw(layouts())
    seed = draw(st.integers(0, 999))
    return possible(trimmed(Case(fusion, schedule, values, kind, seed, gap, offset)))
