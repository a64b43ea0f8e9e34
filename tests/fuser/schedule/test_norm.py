"""Which reductions stay in the kernel of what they are broadcast back to, and its axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch
from fusions import row_major
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judged import complaints
from norms import (
    IDIOMS,
    SCHEDULES,
    WARP_A_ROW,
    add_rms_norm,
    back,
    launches,
    layer_norm,
    of_rows,
    softmax,
)

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ir import Symbol
from fuser.fusion.ops import reduced_axes
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.norm import norm_tiling
from fuser.schedule.norm_heuristic import default_norm_params
from fuser.schedule.params import NormParams
from fuser.schedule.pointwise import default_params
from fuser.schedule.segment import Segment, segments
from fuser.schedule.shape_class import Choices
from fuzz.cases.case import Case, inputs
from fuzz.cases.norms import norm_extents, norm_fusions
from oracles.prover.prove import prove
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

TORCH = {DType.F32: torch.float32, DType.BF16: torch.bfloat16, DType.F16: torch.float16}


def cut(fusion: Fusion) -> tuple[Segment, ...]:
    """Cut a fusion so that each reduction stays where it can."""
    names = frozenset(tv.name for tv in fusion.tensors if reduced_axes(tv))
    return segments(fusion, Choices(rows=names))


def of(define: Callable[[FusionDefinition], list[TensorView]]) -> Fusion:
    """A fusion of these outputs."""
    fd = FusionDefinition()
    for tv in define(fd):
        fd.add_output(tv)
    return fd.fusion()


@pytest.mark.parametrize("idiom", IDIOMS)
def test_every_idiom_is_one_kernel_that_reads_each_input_once(idiom: str) -> None:
    """What is reduced is walked as its users walk it."""
    fusion = IDIOMS[idiom]()
    (segment,) = cut(fusion)
    domain = segment.domain
    assert domain.rows == (1,)
    assert sorted(access.name for access in domain.reads) == sorted(tv.name for tv in fusion.inputs)
    assert {access.tv for access in domain.writes} == {*segment.fusion.outputs}


def test_without_names_the_cut_is_as_ever() -> None:
    """Each reduction a kernel of its own."""
    assert len(segments(softmax())) == 3


def test_results_of_rows_join_those_that_have_all_axes() -> None:
    """In whichever order they come."""
    (segment,) = cut(layer_norm(stats=True))
    assert [access.coords for access in segment.domain.writes] == [(0, 1), (0,), (0,)]

    def first(fd: FusionDefinition) -> list[TensorView]:
        x = fd.define_tensor(["m", "n"], "f32")
        most = fd.ops.max(x, [1])
        return [most, fd.ops.sub(x, back(fd, most))]

    (segment,) = cut(of(first))
    assert {access.coords for access in segment.domain.writes} == {(0, 1), (0,)}


def test_sums_beside_what_they_are_of_are_one_kernel() -> None:
    """Which reads its input once; but not sums of something else, or of columns."""

    def beside(fd: FusionDefinition) -> list[TensorView]:
        x = fd.ops.relu(fd.define_tensor(["m", "n"], "f32"))
        return [x, fd.ops.sum(x, [1])]

    (segment,) = cut(of(beside))
    assert segment.domain.rows == (1,)
    assert [access.coords for access in segment.domain.writes] == [(0, 1), (0,)]

    def other(fd: FusionDefinition) -> list[TensorView]:
        x, y = (fd.define_tensor(["m", "n"], "f32") for _ in range(2))
        return [fd.ops.relu(x), fd.ops.sum(y, [1])]

    def across(fd: FusionDefinition) -> list[TensorView]:
        x = fd.define_tensor(["m", "n"], "f32")
        return [fd.ops.relu(x), fd.ops.sum(x, [0])]

    assert [len(cut(of(define))) for define in (other, across)] == [2, 2]


def test_results_of_rows_alone_hold_what_they_reduce_twice() -> None:
    """A variance; but a sum alone is reduced tile by tile."""

    def variance(fd: FusionDefinition) -> list[TensorView]:
        x = fd.define_tensor(["m", "n"], "f32")
        less = fd.ops.sub(x, back(fd, fd.ops.mean(x, [1])))
        return [fd.ops.mean(fd.ops.mul(less, less), [1])]

    (segment,) = cut(of(variance))
    assert segment.domain.rows == (1,)
    (alone,) = cut(of(lambda fd: [fd.ops.sum(fd.define_tensor(["m", "n"], "f32"), [1])]))
    assert not alone.domain.rows


def test_two_axes_that_are_neighbours_are_one_row() -> None:
    """And those around them one axis, or several where they have gaps."""
    fd = FusionDefinition()
    x = fd.define_tensor(["a", "b", "c", "d"], "f32", contiguity=[False, True, True, True])
    wide = fd.ops.broadcast(fd.ops.max(x, [2, 3]), [False, False, True, True])
    fd.add_output(fd.ops.sub(x, wide))
    (segment,) = cut(fd.fusion())
    tiles = norm_tiling(segment.domain, WARP_A_ROW)
    assert tiles.groups == ((0,), (1,), (2, 3))
    assert (tiles.tile, tiles.walked) == ((1, 2, 256), (0, 1))


def test_a_vector_is_one_row() -> None:
    """There is no axis around it."""
    fd = FusionDefinition()
    x = fd.define_tensor(["n"], "f32")
    fd.add_output(fd.ops.sub(x, fd.ops.broadcast(fd.ops.max(x, [0]), [True])))
    (segment,) = cut(fd.fusion())
    assert norm_tiling(segment.domain, WARP_A_ROW).groups == ((), (0,))


def columns(fd: FusionDefinition) -> list[TensorView]:
    """What is reduced has no neighbours along that."""
    x = fd.define_tensor(["m", "n"], "f32")
    return [fd.ops.sub(x, fd.ops.broadcast(fd.ops.max(x, [0]), [True, False]))]


def apart(fd: FusionDefinition) -> list[TensorView]:
    """Two axes that are reduced, one between them that is not."""
    x = fd.define_tensor(["a", "b", "c"], "f32")
    return [fd.ops.sub(x, fd.ops.broadcast(fd.ops.max(x, [0, 2]), [True, False, True]))]


@pytest.mark.parametrize("define", [columns, apart])
def test_what_lies_otherwise_is_cut_as_ever(
    define: Callable[[FusionDefinition], list[TensorView]],
) -> None:
    """A kernel that reduces, and one that uses the results."""
    fusion = of(define)
    specs = {tv.name: _dense(tv) for tv in fusion.inputs if isinstance(tv, TensorView)}
    made = classify(fusion, None, specs)
    assert len(made.kernels) == 2
    assert made.choices.spread


def _dense(tv: TensorView) -> Spec:
    return row_major((8,) * tv.rank, tv.dtype)


def test_other_axes_and_other_extents_are_reduced_before() -> None:
    """Rows of another length, and sums of columns beside a norm of rows."""

    def other(fd: FusionDefinition) -> list[TensorView]:
        x, y = fd.define_tensor(["m", "n"], "f32"), fd.define_tensor(["m", "k"], "f32")
        return [fd.ops.sub(x, back(fd, fd.ops.max(y, [1])))]

    assert [bool(one.domain.rows) for one in cut(of(other))] == [False, False]

    def both(fd: FusionDefinition) -> list[TensorView]:
        x = fd.define_tensor(["m", "n"], "f32")
        scale = fd.ops.broadcast(fd.ops.sum(x, [0]), [True, False])
        return [fd.ops.mul(fd.ops.sub(x, back(fd, fd.ops.max(x, [1]))), scale)]

    assert [one.domain.rows for one in cut(of(both))] == [(), (1,)]


def test_a_square_is_not_confused() -> None:
    """Sums of rows that stand for columns: the axis that they have is not the one they reduce."""

    def turned(fd: FusionDefinition) -> list[TensorView]:
        x = fd.define_tensor(["n", "n"], "f32")
        return [fd.ops.sub(x, fd.ops.broadcast(fd.ops.max(x, [1]), [True, False]))]

    (segment,) = cut(of(turned))  # x is read in two ways, and reduced down its columns
    assert segment.domain.rows == (0,)
    assert sorted(access.coords for access in segment.domain.reads) == [(0, 1), (1, 0)]


def test_what_products_make_is_normalised_as_ever() -> None:
    """A product ends where it is stored, or begins a reduction of its own."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    made = fd.ops.linear(x, w)
    fd.add_output(fd.ops.sub(made, back(fd, fd.ops.max(made, [1]))))
    assert not any(one.domain.rows for one in cut(fd.fusion()))


def symbols(tensors: Iterable[object]) -> Iterator[Symbol]:
    """Yield the extents that are no numbers."""
    axes = (axis for tv in tensors if isinstance(tv, TensorView) for axis in tv.logical)
    yield from (axis.extent for axis in axes if isinstance(axis.extent, Symbol))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_kernels_one_after_the_other_compute_what_the_fusion_does(data: st.DataObject) -> None:
    """Whatever reductions follow each other, rows are reduced by kernels that have them whole."""
    fusion = data.draw(norm_fusions(exact=True))
    extents = data.draw(norm_extents(fusion, WARP_A_ROW))
    case = Case(fusion, WARP_A_ROW, {name: max(n, 1) for name, n in extents.items()}, "integers", 0)
    given_ = inputs(case)
    known = dict(zip((arg.name for arg in fusion.inputs), given_, strict=True))
    for segment in cut(fusion):
        part = segment.fusion
        assume({*symbols(part.tensors)} <= {*symbols(part.inputs)})  # no iota by itself
        assume({arg.name for arg in part.inputs} <= {*known})  # no view of what is computed
        made = evaluate(part, [known[arg.name] for arg in part.inputs])
        known |= {
            tv.name: one.value.to(getattr(torch, tv.dtype.torch_name))
            for tv, one in zip(part.outputs, made, strict=True)
        }
        kept = {*range(len(segment.domain.extents))} - {*segment.domain.rows}
        for reduction in segment.domain.reductions if segment.domain.rows else ():
            assert {c for c in reduction.coords if c is not None} == kept
            assert {*segment.domain.rows} <= {*reduction.walked}
    for tv, want in zip(fusion.outputs, evaluate(fusion, given_), strict=True):
        found = torch.as_tensor(known[tv.name])
        assert torch.equal(found, want.value.to(getattr(torch, tv.dtype.torch_name))), str(fusion)


@pytest.mark.parametrize("columns", [1, 62, 300, 1024, 4096, 8192, 16384, 32768, 131072])
@pytest.mark.parametrize("rows", [1, 300, 100_000])
@pytest.mark.parametrize("idiom", IDIOMS)
def test_default_schedules_have_whole_rows_as_long_as_registers_hold_them(
    idiom: str, rows: int, columns: int
) -> None:
    """Tiles of as many columns as rows have, or vectors of them."""
    fusion = IDIOMS[idiom]()
    made = classify(fusion, None, of_rows(fusion, rows, columns))
    (schedule,) = made.schedules
    assert isinstance(schedule, NormParams)
    step = schedule.lanes * schedule.vector * schedule.cluster
    assert columns <= schedule.columns < columns + step


def test_rows_beyond_the_registers_are_cut_as_ever() -> None:
    """Three kernels, each of which reads its input tile by tile."""
    fusion = softmax()
    assert len(classify(fusion, None, of_rows(fusion, 16, 1 << 20)).kernels) == 3


def default(fusion: Fusion, rows: int, columns: int, aligned: int = 16) -> NormParams:
    """The schedule of the only kernel of a fusion."""
    (segment,) = cut(fusion)
    ring = aligned >= 4
    return default_norm_params(segment.domain, (rows, columns), aligned=aligned, ring=ring)


def test_few_rows_have_more_threads_each() -> None:
    """So that all SMs have some."""
    many, few = (default(softmax(), rows, 256) for rows in (1 << 16, 64))
    assert many.lanes < few.lanes


def test_a_cta_that_has_its_sm_for_itself_copies_rows_ahead() -> None:
    """Where rows are at multiples of 4 bytes; others are read by the words that they lie in."""
    long, odd, short = (
        default(softmax(), 1 << 14, n, aligned) for n, aligned in ((30000, 16), (32767, 2), (33, 2))
    )
    assert (long.load, long.stages, long.resident) == ("cp_async", 3, 1)
    assert (odd.load, odd.vector, short.vector) == ("direct", 8, 1)


def test_weights_of_short_rows_are_loaded_before_them() -> None:
    """Rather than have more of a row, unless a third of its tile were empty."""
    found = [default(layer_norm(), 1 << 15, n) for n in (40, 256, 1024, 3072)]
    assert all(one.hold and one.tile[1] // one.lanes <= 32 for one in found)
    ragged, long = (default(layer_norm(), 1 << 15, n) for n in (1280, 4096))
    assert ragged.tile[1] == 1280
    assert (long.hold, long.tile[1] // long.lanes) == (False, 64)


def test_narrow_rows_are_not_read_by_one_thread_each() -> None:
    """Threads beside each other would read every other sector."""
    assert default(softmax(), 150_000, 40).lanes > 1


def test_few_long_odd_rows_are_shared_by_a_cluster() -> None:
    """Nobody reads tens of thousands of single elements while most SMs have nothing to do."""
    few, less, long, many = (
        default(layer_norm(), rows, n, 2)
        for rows, n in ((16, 17653), (40, 9001), (60, 5003), (100, 9001))
    )
    assert [one.cluster for one in (few, less, long, many)] == [8, 4, 1, 1]
    assert (few.tile, few.lanes, few.vector, few.hold) == ((1, 2304), 256, 1, True)
    assert long.lanes < 1024  # fewer threads meet sooner


def test_few_short_rows_spread_over_all_sms() -> None:
    """A CTA of 128 threads would have two rows, or four."""
    assert default(layer_norm(), 37, 872).tile == (1, 1024)
    assert default(layer_norm(), 13, 700, 8).tile == (1, 768)
    assert default(layer_norm(), 4096, 872).tile[0] > 1


def test_long_rows_are_shared_by_clusters() -> None:
    """So that several are on their way to an SM; unless the last CTA had little of each."""
    found = [default(softmax(), 4096, n) for n in (4096, 16384, 32768, 65536)]
    assert [one.cluster for one in found] == [1, 1, 4, 8]
    assert all(one.load == "direct" for one in found)
    assert [one.resident >= 2 for one in found] == [True] * 4
    assert default(softmax(), 4096, 25464).cluster == 1


def test_clusters_that_meet_once_a_row_have_company() -> None:
    """Rings of several CTAs an SM, where rows are too long to be on their way directly."""
    residual = default(add_rms_norm(), 2034, 24576)
    assert (residual.load, residual.cluster, residual.resident) == ("bulk", 8, 4)
    most = default(softmax(), 4096, 98304)
    assert (most.load, most.tile, most.resident, most.stages) == ("bulk", (1, 12288), 4, 2)


def test_rows_with_weights_that_no_cta_holds_have_a_cluster() -> None:
    """Few CTAs that have much of them, or several on an SM; of 8 that have little if no ring."""
    assert [default(layer_norm(), 4096, n).cluster for n in (16384, 24576, 32768)] == [1, 2, 2]
    (segment,) = cut(layer_norm())
    assert default_norm_params(segment.domain, (4096, 24576), ring=False).cluster == 1
    few, odd = default(softmax(), 16, 65536), default(softmax(), 4096, 65537, 2)
    assert [(one.load, one.cluster) for one in (few, odd)] == [("direct", 8)] * 2
    ring = default(layer_norm(), 4096, 65536)
    assert (ring.load, ring.cluster, ring.tile, ring.stages) == ("bulk", 8, (1, 8192), 4)
    assert (ring.lanes, ring.resident, ring.ctas_per_sm) == (128, 3, 3)


DEFAULTS = [
    (softmax, 20011, 1001),
    (softmax, 9613, 83),
    (softmax, 3593, 23648),
    (softmax, 8192, 32768),
    (softmax, 1000, 100_000),
    (softmax, 150_000, 40),
    (softmax, 1500, 43001),
    (layer_norm, 32768, 1024),
    (layer_norm, 20011, 1001),
    (layer_norm, 16384, 8192),
    (layer_norm, 3205, 22776),
    (layer_norm, 4096, 65536),
    (layer_norm, 2034, 24576),
    (softmax, 762, 98304),
    (add_rms_norm, 1220, 40960),
    (layer_norm, 16, 17653),
    (layer_norm, 19, 29235),
    (softmax, 40, 9001),
]


@pytest.mark.parametrize(("make", "rows", "columns"), DEFAULTS)
def test_defaults_are_proved_and_spill_next_to_nothing(
    make: Callable[[], Fusion], rows: int, columns: int
) -> None:
    """By the strict policy; and ten registers at most."""
    (launch,) = launches(make(), None, rows, columns)
    verdict = prove(launch.kernel, policy="strict")
    assert verdict.status is Status.PASS, verdict.findings
    spilled = re.findall(r"(\d+) bytes spill stores", compile_cubin(launch.source).log)
    assert max(map(int, spilled)) <= 40


@pytest.mark.parametrize(
    ("make", "columns"), [(softmax, 1001), (layer_norm, 1024), (softmax, 43001)]
)
def test_defaults_compute_what_torch_does(make: Callable[[], Fusion], columns: int) -> None:
    """By whole rows, odd ones, and a cluster."""
    params = default(make(), 4096, columns, 2 if columns % 2 else 16)
    assert not complaints(Case(make(), params, {"m": 3, "n": columns}, "reals", 0))


def test_asked_reductions_and_other_params_are_left_alone() -> None:
    """Params of pointwise kernels and reductions ask for what they did."""
    fusion = softmax()
    plain = default_params(fusion)
    assert len(classify(fusion, plain, of_rows(fusion, 8, 64)).kernels) == 3


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_launch_of_every_schedule_has_one_kernel(name: str) -> None:
    """And the class of its shapes says so."""
    assert len(launches(softmax(), SCHEDULES[name], columns=64)) == 1


def test_params_name_what_is_wrong_with_them() -> None:
    """With numbers, and the way out."""
    tries: dict[str, dict[str, Any]] = {
        "threads of a row are.*use lanes=32": {"lanes": 24},
        "64 threads are 2 times 32.*use 4 rows": {"tile": (3, 256)},
        "32 threads take 8 elements.*use 256 columns": {"tile": (2, 200)},
        "elements per thread, at most 128": {"tile": (2, 8192)},
        "an SM has 1..32 CTAs of 64 threads": {"resident": 40},
        "only slots of rings are loaded again": {"reload": True},
        'direct loads have no ring; use stages=1, or load="cp_async"': {"stages": 2},
        "all warps have rows": {"warp_specialized": True},
        "unknown mechanism": {"load": "tma"},
        "need 1..32 warps": {"warps": 33},
        "1, 2, 4 or 8 CTAs share rows": {"cluster": 3},
    }
    for says, change in tries.items():
        with pytest.raises(ScheduleError, match=says):
            NormParams(**asdict(WARP_A_ROW) | change)


@pytest.mark.parametrize(
    ("rows", "columns", "dealt"),
    [  # cluster, threads a row, rows at once, elements computed anew, CTAs of an SM
        (20_000, 1001, (1, 32, 4, False, 7)),
        (16_000, 5001, (1, 128, 1, True, 8)),
        (12_000, 6001, (1, 128, 1, True, 8)),
        (9000, 13_001, (1, 256, 1, True, 3)),
        (20_000, 17_001, (1, 256, 1, False, 2)),
        (1000, 60_001, (1, 512, 1, True, 1)),
        (400, 70_001, (8, 256, 1, True, 4)),
        (2554, 87_597, (8, 256, 2, True, 2)),
    ],
)
def test_rows_with_weights_that_begin_anywhere_are_dealt_as_measured(
    rows: int, columns: int, dealt: tuple[int, int, int, bool, int]
) -> None:
    """The longer a row, the more threads share it; a cluster once no CTA holds it."""
    found = default(layer_norm(), rows, columns, 2)
    anew, rows_at_once = found.recompute, found.tile[0]
    assert (found.cluster, found.lanes, rows_at_once, anew, found.resident) == dealt
    assert (found.load, found.vector, found.hold) == ("direct", 8, False)


def test_weights_in_f32_change_nothing_of_rows_that_begin_anywhere() -> None:
    """But neighbours of a thread; of 8000 x 40961 537 us, by what was chosen before 1016."""
    fd = FusionDefinition()
    x, weight, bias = (
        fd.define_tensor(["m", "n"], "bf16"),
        *(fd.define_tensor(["n"], "f32") for _ in range(2)),
    )
    fd.add_output(fd.ops.cast(fd.ops.layer_norm(x, [-1], weight, bias), "bf16"))
    for rows, columns in ((20_000, 1001), (16_000, 5001), (8000, 40_961)):
        found, narrow = (default(of, rows, columns, 2) for of in (fd.fusion(), layer_norm()))
        assert (found.lanes, found.recompute) == (narrow.lanes, narrow.recompute)
        assert (found.vector, narrow.vector) == (4, 8)


def test_wider_rows_that_begin_anywhere_are_dealt_by_their_registers() -> None:
    """Where two weights are as wide as the rows, no CTA of 512 threads has 88 of a row each."""
    assert default(layer_norm("f32"), 8000, 40_961, 4).cluster == 8


def test_few_rows_that_begin_anywhere_have_more_threads_each() -> None:
    """Or a cluster, if they are long; of several a CTA more than of one, or else each has one."""
    assert default(layer_norm(), 300, 5001, 2).lanes == 256
    assert default(layer_norm(), 60, 30_001, 2).cluster == 8
    fd = FusionDefinition()
    x, weight = fd.define_tensor(["m", "n"], "bf16"), fd.define_tensor(["n"], "bf16")
    fd.add_output(fd.ops.rms_norm(x, [-1], weight))
    assert [default(fd.fusion(), n, 1001, 2).lanes for n in (1000, 4000)] == [128, 32]
