"""What is worth measuring beside a default: schedules that are valid, suit the call, and differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, TensorView
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import Alternatives
from fuser.runtime.explain import dense
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams

Shapes = tuple[tuple[int, ...], ...]


def of(make: Callable[..., TensorView], *shapes: tuple[int, ...]) -> tuple[Fusion, Shapes]:
    """A fusion of bf16 tensors, and their shapes."""
    fd = FusionDefinition()
    given = [fd.define_tensor(shape=[-1] * len(shape), dtype="bf16") for shape in shapes]
    fd.add_output(make(fd, *given))
    return fd.fusion(), shapes


CASES = {
    "pointwise": of(lambda d, x, y: d.ops.add(x, y), (4096, 8192), (4096, 8192)),
    "odd": of(lambda d, x: d.ops.silu(x), (331, 457)),
    "transposed": of(lambda d, x: d.ops.permute(x, [1, 0]), (4096, 2048)),
    "product": of(lambda d, x, w: d.ops.linear(x, w), (2048, 1024), (4096, 1024)),
    "long K": of(lambda d, x, w: d.ops.linear(x, w), (128, 16384), (256, 16384)),
    "softmax": of(lambda d, x: d.ops.softmax(x, [1]), (4096, 4096)),
    "odd softmax": of(lambda d, x: d.ops.softmax(x, [1]), (4096, 333)),
    "long softmax": of(lambda d, x: d.ops.softmax(x, [1]), (1024, 131072)),
    "rows": of(lambda d, x: d.ops.sum(x, dims=[1]), (4096, 4096)),
    "odd rows": of(lambda d, x: d.ops.sum(x, dims=[1]), (4096, 523)),
    "columns": of(lambda d, x: d.ops.sum(x, dims=[0]), (4096, 4096)),
    "all": of(lambda d, x: d.ops.sum(x, dims=[0, 1]), (4096, 4096)),
    "two kernels": of(
        lambda d, x, w: d.ops.softmax(d.ops.linear(x, w), [1]), (1024, 512), (4096, 512)
    ),
}


def specs(fusion: Fusion, shapes: Shapes) -> dict[str, Spec]:
    """The tensors of a call."""
    tensors = (arg for arg in fusion.inputs if isinstance(arg, TensorView))
    pairs = zip(tensors, shapes, strict=True)
    return {tv.name: dense(tv, shape, n << 32) for n, (tv, shape) in enumerate(pairs, 1)}


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_has_some_that_build(case: str) -> None:
    """Other schedules, of which most can be built; the cut into kernels is the default's."""
    fusion, shapes = CASES[case]
    found = Alternatives(fusion, specs(fusion, shapes))
    for kernel in range(len(found.default.schedules)):
        built = refused = 0
        for params in found.candidates(kernel):
            one = found.replaced(found.default, kernel, params)
            if one is None or one == found.default:
                continue
            assert one.choices == found.default.choices
            others = [n for n in range(len(one.schedules)) if n != kernel]
            assert all(one.schedules[n] == found.default.schedules[n] for n in others)
            try:
                build(fusion, None, one)
                built += 1
            except ScheduleError:
                refused += 1
            if built == 4:
                break
        assert built >= 2
        assert refused <= 4


@pytest.mark.parametrize("case", ["product", "softmax", "columns", "all"])
def test_the_default_comes_first(case: str) -> None:
    """Where a model ranks all of them, the default is its first."""
    fusion, shapes = CASES[case]
    found = Alternatives(fusion, specs(fusion, shapes))
    assert next(found.candidates(0)) == found.default.schedules[0]


def test_what_does_not_suit_the_call_is_no_alternative() -> None:
    """Rows that are too short for the call's; another kind of kernel; a wrong number of them."""
    fusion, shapes = CASES["softmax"]
    found = Alternatives(fusion, specs(fusion, shapes))
    short = NormParams((1, 1024), 8, 4, None, "direct", "direct", lanes=128)
    assert found.replaced(found.default, 0, short) is None
    plain = PointwiseParams((1, 1024), 8, 4, None, "direct", "direct")
    assert found.replaced(found.default, 0, plain) is None
    assert found.having([]) is None
    assert found.having(found.default.schedules) == found.default


def test_ctas_put_results_together_as_is_asked() -> None:
    """By every candidate."""
    fd = FusionDefinition()
    total = fd.ops.sum(fd.define_tensor(shape=[-1, -1], dtype="f32"), dims=[0])
    total.request_serial_grid_reduction(method="vectorized")
    fd.add_output(total)
    found = Alternatives(fd.fusion(), specs(fd.fusion(), ((8192, 512),)))
    some = [*found.candidates(0)][:8]
    assert len(some) > 2
    assert all(isinstance(one, ReductionParams) and one.meet == "vectorized" for one in some)


def test_nothing_to_loop_over_is_nothing_to_measure() -> None:
    """Tensors without elements."""
    fusion, _ = CASES["pointwise"]
    found = Alternatives(fusion, specs(fusion, ((0, 8), (0, 8))))
    assert not [*found.candidates(0)]


@pytest.mark.parametrize("case", ["softmax", "odd softmax", "long softmax"])
def test_norms_are_dealt_to_threads_in_other_ways(case: str) -> None:
    """To more lanes and fewer, warps, CTAs; whole rows fit, and no more columns than are needed."""
    fusion, shapes = CASES[case]
    found = Alternatives(fusion, specs(fusion, shapes))
    (default,) = found.default.schedules
    every = {one for one in found.candidates(0) if isinstance(one, NormParams)}
    assert isinstance(default, NormParams)
    for name in ("lanes", "warps", "vector"):
        assert len({getattr(one, name) for one in every}) > 1, name
    columns = shapes[0][1]
    for one in every - {default}:
        assert columns <= one.cluster * one.tile[1]
        if one.resident == 1 and one.load == "direct":
            assert one.cluster * (one.tile[1] - one.lanes * one.vector) < columns
