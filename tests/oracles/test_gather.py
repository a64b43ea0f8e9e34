"""Elements that are read by index: every judge's reading, and kernels that break what it needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser.codegen import cuda
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.runtime import nvrtc
from oracles.explorer.explore import explore
from oracles.prover.prove import prove
from oracles.simulator import simulate
from oracles.verdict import Status

LAYOUT = kir.Layout((4, 32), 2, 32)
X = kir.Tensor("X", DType.BF16, (5, 32), (32, 1), 1)
I = kir.Tensor("I", DType.I32, (4, 1), (1, 0), 1)  # noqa: E741 - the tensor of indices
Y = kir.Tensor("Y", DType.BF16, (4, 32), (32, 1), 1)
ROW, COLUMN = (kir.Fragment(name, DType.I64, LAYOUT) for name in ("row", "column"))
NAMED = kir.Fragment("named", DType.I32, LAYOUT)
OUT = kir.Fragment("out", DType.BF16, LAYOUT)
INDEX = (
    kir.Load(NAMED, kir.Box(I, (0, 0), (4, 1), (4, 1)), 1),
    kir.Compute(ROW, "promote", (NAMED,)),
    kir.Coordinate(COLUMN, 1, 0),
)
STORE = kir.Store(kir.Box(Y, (0, 0), (4, 32), (4, 32)), OUT, 1)
TAKE = kir.Gather(OUT, X, (ROW, COLUMN))


def kernel(*body: kir.Stmt) -> kir.Kernel:
    """Rows of X that I names, in Y."""
    made = kir.Kernel("k", (), (X, I, Y), (), (), (), 32, body or (*INDEX, TAKE, STORE), ("Y",))
    return replace(made, requires=(eq(kir.GRID, 1),))


def test_the_right_kernel_passes_everywhere() -> None:
    """And it is compiled."""
    made = kernel()
    validate(made, after="kernel", final=True)
    assert "out = gather(X[row, column])" in text(made)
    assert prove(made).status is Status.PASS
    assert explore(made).status is Status.PASS
    assert simulate.search(made, simulate.Launch(1, {}), schedules=4).status is Status.PASS
    assert nvrtc.compile_cubin(cuda.source(made)).image


def test_what_lies_outside_is_not_read_and_becomes_0() -> None:
    """Before and behind the tensor."""
    arrays = {
        "X": np.arange(1, 161, dtype=np.float32).reshape(5, 32),
        "I": np.array([[4], [-1], [5], [0]], np.int32),
        "Y": np.full((4, 32), np.nan, np.float32),
    }
    want = np.stack([arrays["X"][4], np.zeros(32), np.zeros(32), arrays["X"][0]])
    assert simulate.simulate(kernel(), simulate.Launch(1, {}), arrays, {}).status is Status.PASS
    np.testing.assert_array_equal(arrays["Y"], want)


WRONG = {
    "an output": (r"the kernel may write Y; gather from", (kir.Gather(OUT, Y, (ROW, COLUMN)),)),
    "one index": (r"1 indices for the 2 axes of X; give each one", (kir.Gather(OUT, X, (ROW,)),)),
    "types": (
        r"named is i32 in .*; use i64 in the layout of out",
        (kir.Gather(OUT, X, (NAMED, COLUMN)),),
    ),
    "another tensor": (
        r"Z is no tensor of the kernel; add it",
        (kir.Gather(OUT, replace(X, name="Z"), (ROW, COLUMN)),),
    ),
    "the result": (
        r"bf16 into f32; make them the same",
        (kir.Gather(replace(OUT, name="wide", dtype=DType.F32), X, (ROW, COLUMN)),),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gather_is_refused(name: str) -> None:
    """In the documented form."""
    says, take = WRONG[name]
    with pytest.raises(ScheduleError, match=says):
        validate(kernel(*INDEX, *take, TAKE, STORE), after="kernel", final=True)


def test_an_index_that_was_never_made_is_noticed() -> None:
    """By each judge in its own way."""
    made = kernel(INDEX[0], INDEX[1], TAKE, STORE)
    with pytest.raises(ScheduleError, match="column"):
        validate(made, after="kernel", final=True)
    assert simulate.search(made, simulate.Launch(1, {}), schedules=1).status is Status.FAIL


def test_what_may_be_written_is_not_judged_as_if_it_were_not() -> None:
    """The simulator sees which elements it is; the others do not say that all is well."""
    made = kernel(*INDEX, TAKE, STORE, kir.Gather(OUT, Y, (ROW, COLUMN)))
    assert prove(made).status is not Status.PASS
    assert explore(made).status is Status.UNSUPPORTED


def test_a_gather_before_the_launches_before_have_ended_is_refuted() -> None:
    """What they may still write is read."""
    for body, early, right in (
        ((kir.GridDependencyWait(), *INDEX, TAKE, STORE), (), True),
        ((*INDEX, TAKE, kir.GridDependencyWait(), STORE), (), False),
        ((*INDEX, TAKE, kir.GridDependencyWait(), STORE), ("I",), False),
        ((*INDEX, TAKE, kir.GridDependencyWait(), STORE), ("I", "X"), True),
    ):
        made = replace(kernel(*body), dependent=True, early=early)
        assert prove(made).status is (Status.PASS if right else Status.FAIL)
        modelled = early == ("I", "X")
        assert (explore(made).status is Status.UNSUPPORTED) != modelled
