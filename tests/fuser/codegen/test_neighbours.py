"""What is taken by an index is read in vectors where the text tells that these are neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fuser.fusion.definition import FusionDefinition, Ops, TensorView
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, compiled
from fuzz.ptx.cases import judge_case
from oracles.verdict import Status

Form = Callable[[Ops, TensorView, TensorView], TensorView]
VECTORS = PointwiseParams((2, 128), 8, 1, None, "direct", "direct")


def taken(form: Form, shape: tuple[int, int] = (6, 64)) -> Case:
    """Return a case of a matrix of bf16 and an index for each of its elements."""
    fd = FusionDefinition()
    x, index = fd.define_tensor([*shape], "bf16"), fd.define_tensor([*shape], "i64")
    fd.add_output(form(fd.ops, x, index))
    return Case(fd.fusion(), VECTORS, {}, "integers", 0)


def rows(o: Ops, x: TensorView, index: TensorView) -> TensorView:
    """Take rows that an index names."""
    return o.gather(x, 0, o.slice(index, 1, 0, 1))


FORMS: dict[str, tuple[Form, int]] = {
    "flip of rows": (lambda o, x, _: o.flip(x, [1]), -1),
    "flip of columns": (lambda o, x, _: o.flip(x, [0]), 1),
    "pad, aligned": (lambda o, x, _: o.pad(x, [8, 16]), 1),
    "pad, not aligned": (lambda o, x, _: o.pad(x, [3, 5]), 1),
    "flip of both": (lambda o, x, _: o.flip(x, [0, 1]), -1),
    "pad of both": (lambda o, x, _: o.pad(x, [3, 5, 1, 2]), 1),
    "pad of columns": (lambda o, x, _: o.pad(x, [0, 0, 1, 2], 1.5), 1),
    "rows": (rows, 1),
    "every other element": (
        lambda o, x, _: o.gather(x, 1, o.broadcast(o.iota(32, 0, 2), [True, False])), 2,
    ),
    "elements that data name": (lambda o, x, index: o.gather(x, 1, index), 0),
    "turned": (lambda o, x, _: o.flip(o.permute(x, [1, 0]), [1]), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_neighbours_are_so_far_apart(name: str) -> None:
    """1 and -1 are read as vectors; the judge of PTX finds the right elements in place."""
    form, apart = FORMS[name]
    case = taken(form)
    program = compiled(case)
    (launch,) = program.launches
    assert re.findall(r"tile::gather(?:_packed)?<8, (-?\d+)>", launch.source) == [str(apart)]
    assert judge_case(case, program=program, seed=0).status is Status.PASS
