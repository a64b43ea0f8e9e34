"""Drawn cases of every family before the judge of PTX: right ones pass, changed ones do not."""

from __future__ import annotations

from functools import cache

import pytest

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.bench.drawn import texts
from fuzz.cases.case import Case, Kind, compiled, from_text
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases
from fuzz.ptx.cases import Judged, Planted, judge_case
from oracles.verdict import Status, Verdict


@cache
def drawn(family: str) -> tuple[Case, ...]:
    """Draw a few cases of a family that compile."""
    found = []
    for text in texts(cases(families=(family,)), 4, 3):
        case = from_text(text)
        try:
            compiled(case)
        except ScheduleError:
            continue  # the arch refuses it
        found.append(case)
    return tuple(found[:2])  # the first of each is about the least there is


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_every_family_pass(family: str) -> None:
    """Order, events and values, late and in another order, with few CTAs at once."""
    for seed, case in zip((0, 2), drawn(family), strict=False):
        judged = judge_case(case, seed=seed)
        assert all(one.status is Status.PASS for one in judged.kernels), judged
        assert judged.values.status in (Status.PASS, Status.UNKNOWN), judged.values
        assert judged.values.status is Status.PASS or "undecided" in judged.values.reason


@pytest.mark.parametrize(
    ("family", "line", "kinds"),
    [
        ("tma-pipelined/direct", "@!p bra again;", {"RAW", "exit", "init"}),
        ("direct/tma", "fence.proxy.async.shared::cta;", {"proxy"}),
        ("hopper-cooperative", "wgmma.wait_group.sync.aligned 0;", {"RAW", "WAR", "WAW"}),
        ("hopper-cooperative", "wgmma.fence.sync.aligned;", {"fence"}),
        ("cp_async-pipelined/direct", "cp.async.wait_group 0;", {"RAW", "WAR", "WAW"}),
    ],
)
def test_without_a_sync_no_case_passes(family: str, line: str, kinds: set[str]) -> None:
    """All of its occurrences are taken away."""
    for case in drawn(family):
        met: list[bool] = []

        def change(text: str, met: list[bool] = met) -> str:
            met.append(line in text)
            return text.replace(line, "")

        judged = judge_case(case, planted=Planted(ptx=change))
        found = {finding.kind for one in judged.kernels for finding in one.findings}
        if any(met):
            assert found & kinds, (line, judged)
            return
    pytest.fail(f"no case of {family} has `{line}`")


def test_a_wrong_value_is_seen_where_all_is_in_order() -> None:
    """The order passes, the values do not."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.sub(fd.define_tensor(shape=["n"], dtype="f32"), 3.0))
    params = PointwiseParams((1, 256), 2, 4, None, "direct", "direct")
    case = Case(fd.fusion(), params, {"n": 1000}, "integers", 1)
    assert judge_case(case).status is Status.PASS

    def changed(text: str) -> str:
        return text.replace("0fC0400000", "0fC0800000")

    judged = judge_case(case, planted=Planted(ptx=changed))
    assert [one.status for one in judged.kernels] == [Status.PASS] * 2
    assert [finding.kind for finding in judged.values.findings] == ["value"]


def test_the_worst_answer_is_that_of_the_case() -> None:
    """A failure, then what is unsupported, then what is unknown."""
    good, bad = Verdict("ptx", Status.PASS, 1), Verdict("ptx", Status.UNSUPPORTED, 0)
    open_ = Verdict("differential", Status.UNKNOWN, 0)
    assert Judged((good,), good).status is Status.PASS
    assert Judged((good, bad), open_).status is Status.UNSUPPORTED
    assert Judged((good,), open_).status is Status.UNKNOWN


@pytest.mark.parametrize(("given", "to"), [("i8", "f32"), ("f32", "bf16"), ("i8", "bf16")])
@pytest.mark.parametrize("kind", ["integers", "reals"])
def test_small_integers_and_what_is_rounded_keep_their_bits(
    given: str, to: str, kind: Kind
) -> None:
    """Also of infinities, NaN, ties and subnormals, in registers and stored: text and IR agree."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["n"], dtype=given)
    y = fd.ops.cast(x, to)
    fd.add_output(fd.ops.mul(fd.ops.cast(y, "f32"), 3.0))
    fd.add_output(y)
    params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
    judged = judge_case(Case(fd.fusion(), params, {"n": 1500}, kind, 0), seed=0)
    assert all(one.status is Status.PASS for one in judged.kernels), judged
    assert judged.values.status is Status.PASS, judged.values
