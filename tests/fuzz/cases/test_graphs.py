"""Compositions whose operations are other ones."""

from __future__ import annotations

from typing import cast

import pytest

from fuser.fusion.definition import FusionDefinition, Ops
from fuser.fusion.ops import OPS
from fuser.fusion.recorder import Recorder
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, case_id, from_text, to_text
from fuzz.cases.draft import POINTWISE
from fuzz.cases.graphs import Damaged

PARAMS = PointwiseParams((1, 64), 4, 1, None, "direct", "direct")


@pytest.mark.parametrize("drawn", POINTWISE)
@pytest.mark.parametrize("op", ["clamp", "lerp", "addcmul", "add", "exp"])
def test_another_operation_takes_as_many_operands(op: str, drawn: str) -> None:
    """`addcmul` has four: with three its text made another case, and no judge answered for it."""
    fd = FusionDefinition()
    some = [fd.define_tensor(["i0"], "f32") for _ in range(OPS[op].arity)]
    damaged = Ops(cast(Recorder, Damaged(fd, 0, drawn)))
    operands = [*some[:3], 1.0] if op == "addcmul" else some
    fd.add_output(getattr(damaged, op)(*operands))
    fusion = fd.fusion()
    (made,) = (tv for tv in fusion.tensors if tv.op != "input")
    assert len(made.args) == OPS[made.op].arity
    text = to_text(Case(fusion, PARAMS, {"i0": 8}, "reals", 0))
    assert case_id(to_text(from_text(text))) == case_id(text)
