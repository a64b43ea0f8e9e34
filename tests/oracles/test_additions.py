"""Counted by hand, and against what no sum of so many numbers can be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from expected import copied, product, summed
from hypothesis import given, settings
from litmus.parts import XN, Y1, Body, box, fragment, k, kernel, load, n, store

from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.fusion.definition import FusionDefinition, Symbol
from fuser.fusion.ir import tensor_args
from fuser.kernel import ir as kir
from fuser.schedule.params import NormParams, ReductionParams
from fuzz.cases.case import Case
from fuzz.cases.strategies import cases
from fuzz.values import additions
from oracles import additions as walks
from oracles.additions import longest
from oracles.reference.evaluate import shape_of

X, T, U = (fragment(name) for name in ("x", "total", "u"))
ZERO = kir.Compute(T, "promote", (kir.Literal(0.0, DType.F32),))
GET, ADD, OUT = load(X, box(XN, k)), kir.Compute(T, "add", (T, X)), store(box(Y1), T)


def chain(*body: kir.Stmt, stop: Expr = n, first: Body = (ZERO,)) -> kir.Kernel:
    """Add tiles up in a loop."""
    return kernel((*first, kir.ForLoop(k, stop, body), OUT), tensors=(XN, Y1))


def ways(made: kir.Kernel, grid: int = 1, **params: int) -> int | None:
    """Return the longest way in one launch."""
    return longest([(made, grid, params)])


@pytest.mark.parametrize("trips", [0, 1, 3, 4, 5, 6, 100, 10_000])
def test_a_chain_is_as_long_as_its_loop(trips: int) -> None:
    """Also where most iterations are not gone through."""
    assert ways(chain(GET, ADD), n=trips) == trips
    twice = chain(GET, ADD, ADD)
    assert ways(twice, n=trips) == 2 * trips
    assert ways(chain(GET, kir.Compute(T, "maximum", (T, X))), n=trips) == 0


@pytest.mark.parametrize(
    ("op", "args", "many"),
    [
        ("mul", (T, X), 101),
        ("mul", (T, T), 100),
        ("exp", (T,), 100),
        ("where", (X, T, X), 101),
        ("neg", (T,), 101),
        ("sub", (X, T), 102),
    ],
)
def test_what_begins_anew_and_what_goes_on(
    op: str, args: tuple[kir.Fragment, ...], many: int
) -> None:
    """A part sum may be scaled or picked; a square or an exponential is a number of its own."""
    made = chain(GET, ADD)
    more: Body = (kir.Compute(U, op, args), kir.Compute(T, "add", (U, X)))
    made = replace(made, body=(*made.body[:-1], *more, OUT))
    assert ways(made, n=100) == many


def test_what_follows_a_long_loop_is_added_to_it() -> None:
    """And what does not hang on it is not."""
    other = fragment("other")
    late: Body = (GET, ADD, kir.Compute(U, "add", (T, X)), kir.Compute(other, "add", (X, X)))
    after: Body = (kir.Compute(T, "add", (U, other)), OUT)
    made = kernel((ZERO, kir.ForLoop(k, n, late), *after), tensors=(XN, Y1))
    assert ways(made, n=1000) == 1002
    alone = kernel(
        (ZERO, kir.ForLoop(k, n, late), kir.Compute(T, "add", (other, X)), OUT), tensors=(XN, Y1)
    )
    assert ways(alone, n=1000) == 1001


def test_the_other_branch_counts() -> None:
    """Whichever is longer."""
    only = kir.IfThenElse(Var("a") < 3, (ADD, ADD, ADD), (ADD,))
    assert ways(chain(GET, only), n=7) == 21


def test_ctas_in_turns_add_up_what_all_have() -> None:
    """As do those that add to memory by TMA."""
    assert ways(summed(), 6, s=6) == 6
    assert ways(copied(), 1, n=9) == 0
    assert ways(product(), 1, M=64, N=8, K=640) == 0


def test_a_loop_that_depends_on_what_is_read_is_not_known() -> None:
    """No bound follows then."""
    assert ways(chain(GET, ADD, stop=Var("drawn")), n=4) is None


def _case(
    op: str, dims: list[int], shape: tuple[int, int], params: NormParams | ReductionParams
) -> Case:
    """One operation along some axes of a matrix."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f32")
    fd.add_output(getattr(fd.ops, op)(x, dims))
    fusion = fd.fusion()
    names = [str(size) for size in fusion.tensors[0].shape]
    return Case(fusion, params, dict(zip(names, shape, strict=True)), "reals", 0)


@pytest.mark.parametrize(
    ("params", "dims", "shape", "many"),
    [
        # 1024 / (32 * 4) in a vector's turn, then five exchanges of lanes.
        (NormParams((1, 1024), 4, 1, None, "direct", "direct", lanes=32), [1], (8, 1024), 31 + 5),
        # Four warps: a quarter, and four numbers.
        (
            NormParams((1, 1024), 4, 4, None, "direct", "direct", lanes=128),
            [1],
            (8, 1024),
            7 + 5 + 3,
        ),
        # 16 rows one after the other, and the first of 64 such sums goes through all others.
        (ReductionParams((16, 32), 1, 1, None, "direct", "direct"), [0], (1024, 64), 15 + 64),
        # The same by 4 CTAs, in turns; the sum of all before is added.
        (
            ReductionParams((16, 32), 1, 1, None, "direct", "direct", splits=4),
            [0],
            (1024, 64),
            15 + 16 + 3,
        ),
    ],
)
def test_kernels_have_the_additions_of_their_schedules(
    params: NormParams | ReductionParams, dims: list[int], shape: tuple[int, int], many: int
) -> None:
    """Counted by hand: those of a thread, of lanes, of warps, of CTAs."""
    found = additions(_case("sum", dims, shape, params))
    assert found is not None
    assert found == pytest.approx(many, abs=2)


def test_a_variance_does_not_go_through_its_mean() -> None:
    """What is given to a whole row has been added up."""
    params = NormParams((1, 1024), 4, 1, None, "direct", "direct", lanes=32)
    case = _case("layer_norm", [1], (4, 1024), params)
    found = additions(case)
    assert found is not None
    assert 36 <= found <= 38


@settings(max_examples=40, deadline=None)
@given(cases())
def test_a_sum_of_many_numbers_takes_its_depth(case: Case) -> None:
    """No tree of n leaves is less deep than log2 n; and none is found that is not known."""
    found = additions(case)
    sizes = {Symbol(name): size for name, size in case.extents.items()}
    for tv in case.fusion.outputs:
        if found is not None and tv.op in ("sum", "mean") and tv.dtype.is_float:
            shape = shape_of(tensor_args(tv)[0], sizes)
            many = math.prod(shape[int(axis)] for axis in dict(tv.attrs)["dims"])
            assert math.prod(shape) == 0 or found >= math.log2(many)


def test_loops_are_as_long_as_gone_through_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of iterations alike, some are enough."""
    case = _case(
        "sum", [0], (700, 40), ReductionParams((4, 32), 1, 1, None, "direct", "direct", splits=3)
    )
    some = additions(case)
    monkeypatch.setattr(walks, "_WARM", 300)
    assert additions(case) == some
