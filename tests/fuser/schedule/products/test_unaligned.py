"""Operands that TMA cannot read: where they lie, or copied first."""

from __future__ import annotations

from math import gcd, isfinite, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import build
from fuser.runtime.call import Spec, extents_of, loops_of
from fuser.runtime.classify import Alternatives, classify
from fuser.runtime.explain import explain
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.products import unaligned
from fuser.schedule.products.residual import Process, Residuals
from fuser.schedule.products.unaligned import (
    FEATURES,
    Lying,
    features,
    predicted,
    ranked,
    way,
    where_they_lie,
)
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import CallClass
from fuzz.bench import sweep
from fuzz.bench.matmul.layouts import row

Shape = tuple[int, int, int]
EXTENTS = st.integers(1, 20_000)


def fusion(dtype: str = "bf16", op: str = "linear", act: str = "") -> Fusion:
    """A product of two matrices, behind an activation."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], dtype) for _ in range(2))
    made = fd.ops.linear(x, w) if op == "linear" else fd.ops.matmul(x, w)
    fd.add_output(getattr(fd.ops, act)(made) if act else made)
    return fd.fusion()


def specs(of: Fusion, shape: Shape, op: str = "linear") -> dict[str, Spec]:
    """Dense operands of a product."""
    m, n, k = shape
    forms = ((m, k), (n, k) if op == "linear" else (k, n))
    return {
        tv.name: Spec(form, (form[1], 1), at << 32, tv.dtype)
        for at, (tv, form) in enumerate(zip(of.inputs, forms, strict=True))
    }


def classified(of: Fusion, shape: Shape, op: str = "linear") -> CallClass:
    """The class of a call by default."""
    return classify(of, None, specs(of, shape, op))


def lying(shape: Shape) -> Lying:
    """How dense operands of 16 bits lie, both along K."""
    each = gcd(shape[2], 8)
    return Lying((each, each))


def moved(shape: Shape) -> tuple[int, ...]:
    """Bytes of each of these that would be copied first."""
    m, n, k = shape
    return () if k % 8 == 0 else (2 * m * k, 2 * n * k)


@pytest.mark.parametrize(
    ("shape", "observe"),
    [  # H100, us before, behind copies, and as they are chosen now
        ((26, 2890, 12268), "groups"),  # 79.0, 38.1
        ((37, 31610, 11438), "groups"),  # 758, 541
        ((17, 898, 140), "groups"),  # 5.2, 2.7
        ((88, 1458, 106), "groups"),  # 5.3, 3.3
        ((977, 126, 134), "groups"),  # 6.0, 3.9
        ((64, 8192, 8190), "groups"),  # 146.6, 91.0
        ((26, 2890, 12267), "threads"),  # 82.0, 63.2
    ],
)
def test_small_products_and_those_of_few_rows_are_one_kernel(shape: Shape, observe: str) -> None:
    """It reads operands once, where they lie; with an activation behind it, too."""
    for act in ("", "relu"):
        (params,) = classified(fusion(act=act), shape).schedules
        assert isinstance(params, AmpereParams)
        assert params.observe == observe
    assert len(build(fusion(), None, classified(fusion(), shape)).launches) == 1


@pytest.mark.parametrize(
    "shape",
    [  # us behind copies, and without
        (4000, 4000, 4004),  # H100, 224, 892
        (200, 3000, 3004),  # H100, 24.6, 41.8
        (7680, 105, 75),  # H100, 8.0, 9.6
        (7530, 123, 4150),  # H200, 52.4, 75.3
    ],
)
def test_others_are_copied_first(shape: Shape) -> None:
    """Where a kernel less does not make up for tensor cores at a third of their rate."""
    *copies, product = classified(fusion(), shape).schedules
    assert isinstance(product, MatmulParams)
    assert len(copies) == 2


@pytest.mark.parametrize(
    ("of", "shape", "op"),
    [
        (fusion(), (26, 2890, 12264), "linear"),  # TMA can read it
        (fusion("i8"), (26, 2890, 1001), "linear"),  # was not measured
        (fusion("f8e4m3"), (26, 2890, 1001), "linear"),  # nothing of sm_80 multiplies it
        (fusion(op="matmul"), (64, 2896, 128), "matmul"),  # TMA can read columns, too
    ],
)
def test_others_stay_as_they_are(of: Fusion, shape: Shape, op: str) -> None:
    """What TMA reads, or of types that were not measured."""
    assert isinstance(classified(of, shape, op).schedules[-1], MatmulParams)


FLOAT, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    ("shape", "turned", "dtype", "observe"),
    [  # H200, us behind a kernel that turns operands, or by tiles with 16 rows a warp, and now
        ((16, 8192, 8192), (False, True), FLOAT, "groups"),  # 206.7, 65.4
        ((69, 10000, 6472), (False, True), FLOAT, "groups"),  # 214, 121
        ((128, 4096, 4096), (False, True), FLOAT, "groups"),  # 57.8, 38.4
        ((64, 2890, 128), (False, True), BF16, "threads"),
        ((4096, 4096, 4096), (False, True), FLOAT, None),  # 421.5
        ((4096, 4096, 4096), (False, False), FLOAT, None),  # TMA reads it
        ((4000, 4001, 4000), (False, True), BF16, None),
    ],
)
def test_operands_across_are_read_where_they_lie_of_few_rows(
    shape: Shape, turned: tuple[bool, bool], dtype: torch.dtype, observe: str | None
) -> None:
    """By cp.async, of 32 bits, which wgmma cannot take so; of 16 where TMA cannot read them."""
    one = row("x", shape, turned, dtype=dtype)
    given = sweep.lying(one)
    *before, last = classify(one.fusion(), None, given).schedules
    if observe is None:
        assert isinstance(last, MatmulParams)
        return
    assert not before
    assert isinstance(last, AmpereParams)
    assert last.observe == observe
    found = Alternatives(one.fusion(), given)
    every = [*found.candidates(0)]
    assert len({*every}) == len(every) > 4
    assert last in every


@given(EXTENTS, EXTENTS, EXTENTS, st.tuples(st.booleans(), st.booleans()), st.sampled_from((2, 4)))
def test_what_lies_across_takes_longer(
    m: int, n: int, k: int, across: tuple[bool, bool], nbytes: int
) -> None:
    """And it is not told what kernels of others took; words come by cp.async."""
    (segment,) = segments(fusion())
    along = Lying((1, 1), (False, False), nbytes)
    there = Lying((1, 1), across, nbytes)
    for one in ranked(segment.domain, (m, n, k), there):
        asked = (1, m, n), k
        as_it_lies = predicted(*asked, there, one.params)
        assert one.modelled_us == as_it_lies
        assert as_it_lies >= predicted(*asked, along, one.params)
        assert there.as_timed or one.timed == 1
        if nbytes == 4:
            assert one.params.observe == "groups"


@given(EXTENTS, EXTENTS, EXTENTS)
def test_every_schedule_can_be_had(m: int, n: int, k: int) -> None:
    """Predictions are positive and in order, and what takes longer to copy is not copied sooner."""
    (segment,) = segments(fusion())
    found = lying((m, n, k))
    every = ranked(segment.domain, (m, n, k), found)
    assert every
    assert 0 < every[0].us <= every[-1].us
    assert [one.us for one in every] == sorted(one.us for one in every)
    copied = moved((m, n, k))
    us = [us for us in (1.0, 1e9) if where_they_lie(segment.domain, (m, n, k), found, copied, us)]
    assert 1e9 in us
    assert {one.params.observe for one in every} == {"groups" if k % 2 == 0 else "threads"}


@pytest.mark.parametrize(
    ("shape", "turned", "dtype"),
    [
        ((5, 3902, 2238), (False, False), BF16),
        ((2316, 84, 6366), (False, False), BF16),
        ((18, 90, 113), (False, False), BF16),
        ((300, 1001, 712), (True, True), BF16),
        ((200, 512, 1000), (False, True), FLOAT),
        ((200, 513, 1001), (True, True), FLOAT),
        ((17, 90, 113), (True, False), FLOAT),
    ],
)
def test_every_schedule_that_is_ranked_can_be_built(
    shape: Shape, turned: tuple[bool, bool], dtype: torch.dtype
) -> None:
    """A default is one of them: none may be refused, for registers as little as for anything."""
    one = row("x", shape, turned, dtype=dtype)
    of, given = one.fusion(), sweep.lying(one)
    (segment,) = segments(of)
    words = 16 // dtype.itemsize
    ends = ((shape[at] if turned[at] else shape[2]) for at in (0, 1))
    a, b = (gcd(end, words) for end in ends)
    loops = loops_of(segment.domain, extents_of(of, given))
    every = ranked(segment.domain, loops, Lying((a, b), turned, dtype.itemsize))
    assert len(every) > 4
    for params in (one.params for one in every):
        assert len(build(of, params, classify(of, params, given)).launches) == 1


@given(EXTENTS, EXTENTS, EXTENTS)
def test_every_kernel_is_told_by_as_many_numbers(m: int, n: int, k: int) -> None:
    """Finite ones, whatever the shape; a wave is full in part, and tiles at most."""
    (segment,) = segments(fusion())
    where = lying((m, n, k))
    for one in ranked(segment.domain, (m, n, k), where):
        found = features((1, m, n), k, where.vectors, one.params)
        told = dict(zip(FEATURES, found, strict=True))
        assert all(map(isfinite, found))
        assert 0 < told["last wave"] <= 1
        assert 0 < told["rows filled"] <= 1
        assert 0 < told["columns filled"] <= 1
        assert 2 ** told["log2 elements of a result's"] == gcd(n, 8)


def test_what_kernels_like_them_took_is_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each other, and with copies; batches, empty ones and other devices stay as modelled."""
    (segment,) = segments(fusion())
    shape = (60, 1000, 1002)
    found = lying(shape)
    monkeypatch.setattr(unaligned, "residuals", lambda: Residuals("", "", {}))
    plain = ranked(segment.domain, shape, found)
    assert all(one.timed == 1 for one in plain)
    told = features((1, *shape[:2]), shape[2], found.vectors, plain[0].params)
    near = Process(
        np.full(len(told), 0.05, np.float32),
        np.array([told], np.float32),
        np.array([log(1.5)], np.float32),
    )
    known = Residuals("", "", {way(plain[0].params): near})
    monkeypatch.setattr(unaligned, "residuals", lambda: known)
    slower = ranked(segment.domain, shape, found)
    assert [one.params for one in slower if one.timed != 1] == [plain[0].params]
    assert slower[0].params == plain[1].params
    assert [one.us for one in slower] == sorted(one.us for one in slower)
    (changed,) = (one for one in slower if one.timed != 1)
    assert changed.us == pytest.approx(1.5 * plain[0].us, rel=1e-3)
    assert "us predicted (kernels like it took +50 %)" in str(changed)
    behind = (plain[0].us + plain[1].us) / 2  # of copies and the product, between the two
    assert where_they_lie(segment.domain, shape, found, (), behind) is None
    assert all(one.timed == 1 for one in ranked(segment.domain, shape, found, sms=114))
    for loops in ((0, 1000, 1002), (60, 0, 1002), (60, 1000, 0)):
        assert all(one.timed == 1 for one in ranked(segment.domain, loops, found))


def test_they_are_explained_and_tuned() -> None:
    """Three that are predicted to be the fastest; all of them are candidates of the tuner."""
    of, shape = fusion(), (26, 2890, 12268)
    says = str(explain(of, (26, 12268), (2890, 12268)))
    how = "32 x 64 x 64, 2 warps, operands read where they lie by cp.async, 11 CTAs a tile"
    assert f"best {how}: " in says
    assert len({line for line in says.splitlines() if "where they lie" in line}) == 3
    found = Alternatives(of, specs(of, shape))
    every = [*found.candidates(0)]
    assert found.default.schedules[0] == every[0]
    assert len({*every}) == len(every) > 10
    assert found.replaced(found.default, 0, every[3]) is not None
