"""Larger calls: which extents may grow, and how far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from norms import CTA_A_ROW, softmax
from product_kernels import PIPELINED, linear
from sample import often

from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ir import MAX_EXTENT
from fuser.fusion.ops import OPS
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import (
    Case,
    compiled,
    from_text,
    output_specs,
    shape_of,
    specs,
    symbols,
    to_text,
)
from fuzz.cases.enlarged import call
from fuzz.cases.enlarged.call import LEAST, MOST, MOST_BYTES, MOST_EMPTY, enlarged, parallel
from fuzz.cases.strategies import cases

FLAT = PointwiseParams((1, 2048), 8, 8, None, "direct", "direct", flat=True)
ROWS = Case(softmax(), CTA_A_ROW, {"m": 3, "n": 40}, "reals", 0)


def of(define: Callable[[FusionDefinition], TensorView]) -> Fusion:
    """The fusion of one output."""
    fd = FusionDefinition()
    fd.add_output(define(fd))
    return fd.fusion()


def x(fd: FusionDefinition, *shape: int | str, dtype: str = "f32") -> TensorView:
    """Define an input."""
    return fd.define_tensor(shape=list(shape), dtype=dtype)


def along(fd: FusionDefinition, tv: TensorView, *new: bool) -> TensorView:
    """Insert axes."""
    return fd.ops.broadcast(tv, is_broadcast_dim=list(new))


def summed_and_not(fd: FusionDefinition) -> TensorView:
    """What one output sums over, another one does not."""
    tv = x(fd, "m", "n")
    fd.add_output(fd.ops.sum(tv, dims=[0]))
    return fd.ops.relu(tv)


OF: dict[str, tuple[Callable[[FusionDefinition], TensorView], list[str]]] = {
    "softmax": (lambda fd: fd.ops.softmax(x(fd, "m", "n"), [1]), ["m"]),
    "outer": (
        lambda fd: fd.ops.add(
            along(fd, x(fd, "m"), False, True), along(fd, x(fd, "n"), True, False)
        ),
        ["m", "n"],
    ),
    "transposed": (
        lambda fd: fd.ops.add(x(fd, "n", "n"), fd.ops.permute(x(fd, "n", "n"), [1, 0])),
        ["n"],
    ),
    "matmul": (
        lambda fd: fd.ops.matmul(x(fd, "m", "k", dtype="bf16"), x(fd, "k", "n", dtype="bf16")),
        ["m", "n"],
    ),
    "batched": (
        lambda fd: fd.ops.matmul(
            x(fd, "b", "m", "k", dtype="bf16"), x(fd, "b", "k", "n", dtype="bf16")
        ),
        ["b", "m", "n"],
    ),
    "square": (
        lambda fd: fd.ops.matmul(x(fd, "n", "n", dtype="bf16"), x(fd, "n", "m", dtype="bf16")),
        ["m"],
    ),
    "cat": (lambda fd: fd.ops.cat([x(fd, "m", 4), x(fd, "m", 3)], 1), ["m"]),
    "cumsum": (lambda fd: fd.ops.cumsum(x(fd, "m", "n"), 1), ["m"]),
    "sum": (lambda fd: fd.ops.sum(x(fd, "m", "n"), dims=[0, 1]), []),
    "max": (lambda fd: fd.ops.max(x(fd, "m", "n"), dims=[1]), ["m"]),
    "summed and not": (summed_and_not, ["n"]),
    "slice": (lambda fd: fd.ops.slice(x(fd, "m", "n"), 1, 0, 3), ["m"]),
    "gather": (
        lambda fd: fd.ops.gather(x(fd, "m", "n"), 0, x(fd, "k", "n", dtype="i64")),
        ["n", "k"],
    ),
    "gathered by itself": (
        lambda fd: fd.ops.gather(x(fd, "m", "n"), 0, x(fd, "m", "n", dtype="i64")),
        ["n"],
    ),
    "argmax": (lambda fd: fd.ops.argmax(x(fd, "m", "n"), 1), ["m"]),
    "tril": (lambda fd: fd.ops.tril(x(fd, "b", "m", "n")), ["b"]),
    "iota": (
        lambda fd: fd.ops.add(x(fd, "m", "n"), along(fd, fd.ops.iota("n"), True, False)),
        ["m"],
    ),
    "flatten": (lambda fd: fd.ops.flatten(x(fd, "m", 2, 4), 1, 2), ["m"]),
    "flattened alone": (lambda fd: fd.ops.flatten(x(fd, "m", 1, "n"), 0, 1), ["n"]),
    "unflatten": (lambda fd: fd.ops.unflatten(x(fd, "m", 8), 1, [2, 4]), ["m"]),
    "expand": (lambda fd: fd.ops.add(fd.ops.expand(x(fd, 1), ["n"]), x(fd, "n")), ["n"]),
    "full": (lambda fd: fd.ops.add(fd.ops.full(["n"], 1.0, "f32"), x(fd, "n")), ["n"]),
    "pinned": (lambda fd: fd.ops.relu(x(fd, 4, 8)), []),
}


@pytest.mark.parametrize("name", OF)
def test_extents_grow_only_where_no_position_meets_another(name: str) -> None:
    """A false finding costs an hour; an axis that could have grown costs nothing."""
    define, names = OF[name]
    assert parallel(of(define)) == names


def test_nothing_grows_of_an_operation_that_is_new() -> None:
    """Whoever adds one has to say here what it joins."""
    fusion = of(lambda fd: fd.ops.relu(x(fd, "m", "n")))
    new = replace(fusion.outputs[0], op="mystery")
    assert "mystery" not in OPS
    assert parallel(replace(fusion, tensors=(*fusion.tensors[:-1], new), outputs=(new,))) == []


# --- what is drawn -------------------------------------------------------------------------------


def elements(case: Case) -> int:
    """Elements of the largest input or output."""
    every = [*specs(case).values(), *output_specs(case).values()]
    return max(prod(spec.shape) for spec in every)


def nbytes(case: Case) -> int:
    """Bytes of inputs and outputs."""
    every = [*specs(case).values(), *output_specs(case).values()]
    return sum(spec.nbytes for spec in every)


def test_larger_calls_are_large_and_bounded() -> None:
    """Half of them have odd repeats; sizes spread up to beyond 2^31, extents stay multiples."""
    small = of(lambda fd: fd.ops.relu(x(fd, "m", "n", dtype="bf16")))
    sizes, odd = [], 0
    for seed in range(120):
        case = Case(small, FLAT, {"m": 3, "n": 5}, "reals", seed)
        large = enlarged(case, compiled(case))
        assert large is not None
        sizes.append(elements(large.case))
        assert nbytes(large.case) <= MOST_BYTES
        assert max(large.case.extents.values()) <= MAX_EXTENT
        assert all(n % case.extents[name] == 0 for name, n in large.case.extents.items())
        odd += sizes[-1] % 2
    assert LEAST <= min(sizes) < 2 * LEAST
    assert 1 << 30 < max(sizes) <= MOST
    assert 40 < odd < 110
    assert sum(size > 1 << 29 for size in sizes) > 30


def test_a_flat_axis_stays_within_its_coordinates() -> None:
    """Beyond 2^31 - 1 the launch would be refused, and the call be unknown."""
    small = of(lambda fd: fd.ops.relu(x(fd, "n", dtype="bf16")))
    found = []
    for seed in range(40):
        case = Case(small, FLAT, {"n": 7}, "reals", seed)
        large = enlarged(case, compiled(case))
        assert large is not None
        found.append(large.case.extents["n"])
    assert 1 << 29 < max(found) <= MAX_EXTENT - 2048


def test_a_larger_call_is_the_same_for_every_process() -> None:
    """A script has the case alone, and a smaller case is to be as large."""
    first = enlarged(ROWS, compiled(ROWS))
    again = from_text(to_text(ROWS))
    second = enlarged(again, compiled(again))
    assert first is not None
    assert second is not None
    assert first.times == second.times
    assert str(first) == f"m={3 * first.times['m']}, n=40"
    fewer = replace(ROWS, extents={"m": 1, "n": 40})
    third = enlarged(fewer, compiled(fewer))
    assert third is not None
    assert elements(third.case) / elements(first.case) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "case",
    [
        Case(of(lambda fd: fd.ops.relu(x(fd, 4, 8))), FLAT, {}, "reals", 0),
        Case(of(lambda fd: fd.ops.relu(x(fd, "n"))), FLAT, {"n": 0}, "reals", 0),
        Case(of(lambda fd: fd.ops.relu(x(fd, "m", "n"))), FLAT, {"m": 0, "n": 3}, "reals", 0),
    ],
    ids=["pinned", "empty", "empty beside"],
)
def test_where_nothing_can_grow_there_is_no_larger_call(case: Case) -> None:
    """Which is no pass."""
    assert enlarged(case, compiled(case)) is None


def test_tensors_without_elements_have_strides() -> None:
    """Which fit 64 bits: found by a night on an H200, where 0 elements let the others grow."""
    fd = FusionDefinition()
    y = x(fd, "i", "j", "k", "l", dtype="i64")
    fd.add_output(fd.ops.neg(y))
    fd.add_output(fd.ops.neg(x(fd, "l", dtype="i64")))
    extents = dict(zip(symbols(fd.fusion()), (190, 0, 37, 2), strict=True))
    for seed in range(20):
        case = Case(fd.fusion(), FLAT, extents, "integers", seed)
        larger = enlarged(case, compiled(case))
        assert larger is None or prod(max(n, 1) for n in larger.case.extents.values()) <= MOST_EMPTY


def test_tiles_and_bytes_bound_a_call() -> None:
    """Tiles of one element would run for minutes; some devices have little memory."""
    fusion = of(lambda fd: fd.ops.relu(x(fd, "n")))
    tiny = Case(fusion, replace(FLAT, tile=(1, 1), vector=1), {"n": 7}, "reals", 0)
    assert enlarged(tiny, compiled(tiny)) is None
    case = replace(tiny, params=FLAT)
    large = enlarged(case, compiled(case), most_bytes=9 * LEAST)
    assert large is not None
    assert nbytes(large.case) <= 9 * LEAST
    assert enlarged(case, compiled(case), most_bytes=4 * LEAST) is None


def test_products_grow_along_rows_and_columns() -> None:
    """And do not take minutes, padded tiles included."""
    extents = {"i0": 3, "i1": 40, "i2": 9}
    grew: set[str] = set()
    for seed in range(20):
        case = Case(linear(), PIPELINED, extents, "integers", seed)
        large = enlarged(case, compiled(case))
        assert large is not None
        grew |= {name for name, n in large.times.items() if n > 1}
        m, n, k = (
            -(-large.case.extents[i] // t) * t for i, t in (("i0", 64), ("i2", 32), ("i1", 64))
        )
        assert m * n * k <= call.MOST_PRODUCTS
    assert grew == {"i0", "i2"}


def test_most_cases_have_a_larger_call() -> None:
    """Of those with an axis that is not reduced, and without an empty one."""
    have, asked = [], []

    @settings(max_examples=often(400, 120), database=None, deadline=None, derandomize=True)
    @given(cases())
    def ask(case: Case) -> None:
        shapes = [shape_of(case, tv) for tv in case.fusion.tensors]
        if any(0 in shape for shape in shapes) or not any(tv.rank for tv in case.fusion.outputs):
            return
        try:
            program = compiled(case)
        except ScheduleError:  # one in a thousand
            return
        asked.append(case)
        have.append(enlarged(case, program) is not None)

    ask()
    assert len(asked) > 50
    assert sum(have) > len(asked) / 2
