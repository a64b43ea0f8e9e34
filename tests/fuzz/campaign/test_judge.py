"""One case through every oracle, and prover against simulator."""

from dataclasses import replace
from typing import Any

import pytest

from fuser.codegen import cuda
from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.kernel.ir import Kernel
from fuser.pipeline import Program
from fuser.runtime import nvrtc
from fuser.schedule.ampere_params import AmpereParams, Observe
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams
from fuzz.campaign import judge as judges
from fuzz.campaign.judge import CPU_ORACLES, NOT_EXECUTED, agreement, judge, judge_kernel
from fuzz.campaign.launches import trip_counts, with_trips
from fuzz.campaign.mutants import representative
from fuzz.campaign.recorder import BY_DEFAULT, Recorder
from fuzz.cases.case import Case, compiled, to_text
from fuzz.cases.enlarged.usual import usual
from fuzz.cases.norms import NORM_FAMILIES
from fuzz.cases.params import POINTWISE_FAMILIES
from fuzz.ptx import cases as executed
from oracles.simulator import simulate as simulator
from oracles.simulator.simulate import Launch, simulate
from oracles.verdict import Finding, Status, Verdict


def test_every_oracle_judges_a_good_case() -> None:
    """A record per oracle; an oracle that is left out silently praises."""
    records = judge(representative("tma-pipelined/tma"))
    assert {r.oracle for r in records} == {"build", *CPU_ORACLES}
    assert {r.status for r in records} == {"pass"}
    assert all(r.checked > 0 for r in records)
    subjects = [r.subject for r in records if r.oracle == "simulator"]
    first = [f"pointwise0 trips={n}" for n in (0, 1, 2, 3, 7)] + ["pointwise0 own launch"]
    assert subjects[:6] == first
    extents = [r.subject.split(", integers")[0] for r in records if r.oracle == "differential"]
    assert len(extents) == len(set(extents)) > 4, "one kernel, many extents"


def planted(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Let every kernel be compiled to other PTX."""
    honest = nvrtc.compile_ptx
    monkeypatch.setattr(executed, "compile_ptx", lambda *a, **k: honest(*a, **k).replace(old, new))


def test_a_fault_behind_the_kernel_ir_is_seen_in_the_ptx_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the own launch, of that kernel; all other judges pass it."""
    planted(monkeypatch, "fence.proxy.async.shared::cta;", "")
    records = judge(representative("tma-pipelined/tma"))
    bad = [r for r in records if r.status != "pass"]
    assert [(r.oracle, r.status, r.kind) for r in bad] == [("ptx", "fail", "proxy")]
    assert bad[0].subject == "pointwise0 own launch"


def test_wrong_values_of_the_ptx_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the order is right; the record is of the call, not of a kernel."""
    planted(monkeypatch, "add.f32", "sub.f32")
    records = judge(representative("tma-pipelined/tma"), ("ptx",))
    bad = [(r.oracle, r.kind, r.subject) for r in records if r.status != "pass"]
    assert bad == [("ptx", "value", "own launch")]


def test_a_case_that_fails_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown, and says why."""
    broken = Verdict("simulator", Status.UNSUPPORTED, 0, reason="launch: T0 is not aligned")
    monkeypatch.setattr(simulator, "simulate", lambda *_, **__: broken)
    records = judge(representative("direct/direct"))
    assert [(r.status, r.reason) for r in records if r.oracle == "ptx"] == [
        ("unknown", NOT_EXECUTED)
    ]


def test_a_launch_that_takes_too_long_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing behind it is executed."""
    monkeypatch.setattr(judges, "PTX_WORK", 1000)
    records = judge(representative("direct/direct"), ("ptx",))
    (said,) = (r for r in records if r.oracle == "ptx")
    assert (said.status, said.reason.split(":")[0]) == ("unknown", "too long")


def test_a_case_that_the_compiler_refuses_is_one_invalid_record() -> None:
    """It is neither a failure nor praise."""
    case = representative("tma-pipelined/direct")
    (record,) = judge(Case(case.fusion, case.params, {"i0": 3, "i1": 5}, "integers", 0, offset=1))
    assert (record.oracle, record.status) == ("build", "invalid")
    assert "use load" in record.reason


def test_what_is_refused_by_default_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who names no schedule cannot mend it."""
    case = representative("hopper-pipelined")
    build = [r for r in judge(case, ()) if r.oracle == "build"]
    larger = usual(case)
    assert larger is not None
    said = [(r.subject, r.status) for r in build]
    assert said == [("", "pass"), (BY_DEFAULT, "pass"), (f"{BY_DEFAULT} at {larger}", "pass")]

    def refused(_: Case) -> Program:
        raise ScheduleError("PointwiseParams(tile=(1, 1)): what the heuristics chose")

    monkeypatch.setattr(judges, "by_default", refused)
    small, large = [r for r in judge(case, ()) if r.subject.startswith(BY_DEFAULT)]
    assert (small.status, small.kind) == ("fail", "heuristic refused")
    assert (large.status, large.kind) == ("fail", "heuristic refused")

    def impossible(_: Case) -> Program:
        raise ScheduleError('T1.request_serial_grid_reduction(method="tma"): TMA adds only')

    monkeypatch.setattr(judges, "by_default", impossible)
    records = [r for r in judge(case, ()) if r.subject.startswith(BY_DEFAULT)]
    assert [r.status for r in records] == ["invalid"] * 2, "the fusion asks for what no params give"


def test_values_that_were_not_compared_are_said_to_be_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked alone, the differential oracle once said nothing where the simulator stops."""
    stopped = Verdict("simulator", Status.UNSUPPORTED, 0, reason="no such statement")
    monkeypatch.setattr(simulator, "simulate", lambda *_, **__: stopped)
    build_, *launched, values = judge(representative("direct/direct"), ("differential",))
    assert not [r for r in launched if r.oracle != "build"]
    assert (values.oracle, values.status) == ("differential", "unknown")
    assert values.reason == "not compared: the simulator does not pass the launch of pointwise0"
    assert build_.status == "pass"


def test_a_launch_that_its_kernel_cannot_have_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was unsupported, and the campaign green: the compiler had chosen kernel and launch."""
    broken = Verdict("simulator", Status.UNSUPPORTED, 0, reason="launch: T0 is not aligned")
    monkeypatch.setattr(simulator, "simulate", lambda *_, **__: broken)
    records = judge(representative("direct/direct"))
    own = next(r for r in records if r.subject == "pointwise0 own launch")
    assert (own.oracle, own.status, own.kind) == ("simulator", "fail", "launch")
    assert [r.status for r in records if r.oracle == "schedules"] == ["unknown"]


def test_a_schedule_that_returns_other_bits_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names both schedules."""
    case = representative("tma-pipelined/tma")
    honest, right = simulator.simulate, compiled(case).launches[0].source

    def wrong(kernel: Kernel, launch: Launch, arrays: Any, *rest: Any, **more: Any) -> Verdict:
        verdict = honest(kernel, launch, arrays, *rest, **more)
        if cuda.source(kernel) != right:
            arrays[kernel.outputs[0]][-1] += 1
        return verdict

    monkeypatch.setattr(simulator, "simulate", wrong)
    (record,) = [r for r in judge(case) if r.status == "fail"]
    assert (record.oracle, record.status, record.kind) == ("schedules", "fail", "schedules")
    assert record.reason.count("PointwiseParams(") == 2


@pytest.mark.parametrize("family", POINTWISE_FAMILIES)
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_a_made_up_launch_gives_a_cta_that_many_tiles(family: str, trips: int) -> None:
    """The trip counts in the report must be those that ran."""
    case = representative(family)
    program = compiled(case)
    (launch,) = program.launches
    made = with_trips(launch, trips)
    if family.startswith("bulk"):  # whole tiles, and part of another one
        assert made.params["n0"] // 256 == trips < made.params["n0"] / 256
    else:
        rows = -(-made.params["n0"] // 4)
        assert made.params["n1"] <= 64
        assert rows == max(trips, 1)
    assert made.grid == (1 if trips else 2)
    assert simulate(launch.kernel, made).status is Status.PASS


@pytest.mark.parametrize("family", NORM_FAMILIES)
@pytest.mark.parametrize("trips", [0, 1, 2, 19])
def test_a_made_up_launch_gives_a_cta_that_many_rows(family: str, trips: int) -> None:
    """A cluster, too, where it takes several; it was given one, and its slots were used once."""
    (launch,) = compiled(representative(family)).launches
    made = with_trips(launch, trips)
    assert made.params["n0"] == max(trips, 1)
    assert made.grid == launch.kernel.cluster * (1 if trips else 2)
    assert simulate(launch.kernel, made).status is Status.PASS


@pytest.mark.parametrize(
    ("family", "tiles"), [("hopper-ping_pong", 4), ("ampere-threads", 1), ("hopper-pipelined", 1)]
)
def test_each_group_of_a_made_up_launch_takes_two_tiles(family: str, tiles: int) -> None:
    """Of three each second group had one: a wait before its second store was missed by nobody."""
    (launch,) = compiled(representative(family)).launches
    made = with_trips(launch, 2)
    assert -(-made.params["n0"] // 64) == tiles
    assert simulate(launch.kernel, made).status is Status.PASS


def test_a_made_up_launch_of_transposed_tiles_keeps_their_alignment() -> None:
    """Rows of one tensor are columns of another; a tail of one was no whole access of the other."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=["i0", "i0"], dtype="f8e5m2") for _ in range(2))
    fd.add_output(fd.ops.fused_multiply_sum(a, b, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]]))
    params = MatmulParams((192, 128, 32), 3, "pipelined", 1, 0, persistent=True, splits=4)
    case = Case(fd.fusion(), params, {"i0": 96}, "reals", 0, gap=16, offset=16)
    moves = next(one for one in compiled(case).launches if one.kernel.name.startswith("pointwise"))
    for trips in trip_counts(moves):
        assert simulate(moves.kernel, with_trips(moves, trips)).status is Status.PASS


@pytest.mark.parametrize(
    ("tile", "warps", "observe", "stages"),
    [
        ((48, 48, 16), 1, "threads", 1),
        ((48, 24, 16), 1, "threads", 1),
        ((256, 8, 16), 8, "mbarriers", 2),
    ],
)
def test_a_made_up_launch_has_the_steps_and_tiles_that_its_kernel_requires(
    tile: tuple[int, int, int], warps: int, observe: Observe, stages: int
) -> None:
    """An alignment of a whole step, or of two tiles, left none, or CTAs for one: unsupported."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=shape, dtype="f16") for shape in (["i0", "i2"], ["i1", "i2"]))
    made = fd.ops.linear(a, b)
    fd.add_output(made)
    fd.add_output(fd.ops.eq(made, 2.0))  # rows of 16 elements, a byte each
    params = AmpereParams(
        tile, warps, observe, stages, 0, persistent=False, columns=8, splits=3,
        meet="last", residency="co-resident",
    )  # fmt: skip
    case = Case(fd.fusion(), params, {"i0": 48, "i1": 48, "i2": 96}, "integers", 0, 16, 16)
    (launch,) = compiled(case).launches
    assert max(tensor.aligned for tensor in launch.kernel.tensors) == 16
    for trips in trip_counts(launch):
        assert simulate(launch.kernel, with_trips(launch, trips)).status is Status.PASS


def test_one_result_a_row_aligns_no_columns() -> None:
    """Tiles of five columns get four of an input that is read by fours, whatever else is stored."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["m", "n"], dtype="f32")
    least = fd.ops.min(x, [1])
    fd.add_output(fd.ops.gt(least, 0))
    fd.add_output(fd.ops.add(x, fd.ops.broadcast(least, [False, True])))
    params = NormParams((64, 5), 1, 2, 2, "direct", "direct", lanes=1)
    (launch,) = compiled(Case(fd.fusion(), params, {"m": 40, "n": 4}, "integers", 0)).launches
    for trips in (1, 3):
        assert simulate(launch.kernel, with_trips(launch, trips)).status is Status.PASS


def test_trip_counts_follow_the_ring() -> None:
    """0, 1, S - 1, S and 2 S + 1 are where pipelines break."""
    case = representative("tma-specialized/direct")
    program = compiled(case)
    assert trip_counts(program.launches[0]) == [0, 1, 2, 3, 7]


def test_slots_that_a_cluster_fills_in_one_turn_are_one_stage() -> None:
    """A slot of each CTA counted as a stage: launches of 65 rows took 4.7 GiB to simulate."""
    fd = FusionDefinition()
    rows = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
    fd.add_output(fd.ops.prod(rows, dtype="f32", dims=[1]))
    params = NormParams((16, 8), 1, 4, 1, "direct", "direct", lanes=8, cluster=8)
    case = Case(fd.fusion(), params, {"i0": 1, "i1": 1}, "integers", 0)
    (launch,) = compiled(case).launches
    (parts,) = launch.kernel.buffers
    assert parts.slots == launch.kernel.cluster * 4
    assert trip_counts(launch) == [0, 1, 3, 4, 9]


def test_an_exception_in_an_oracle_is_a_record() -> None:
    """A harness error must never be lost, nor end the campaign."""
    case = representative("direct/direct")
    recorder = Recorder(case, to_text(case))

    def broken() -> Verdict:
        raise ZeroDivisionError("an oracle's own bug")

    assert recorder.ask("prover", "k", broken) is None
    (record,) = recorder.records
    assert (record.status, record.kind) == ("error", "ZeroDivisionError")
    assert record.reason.startswith("ZeroDivisionError: an oracle's own bug\nTraceback")


RACE = Finding("race", "line 3", "late", trips=4)
PASSED = Verdict("x", Status.PASS, 1)
FAILED = Verdict("x", Status.FAIL, 1, (RACE,))


@pytest.mark.parametrize(
    ("proof", "said", "seen", "status"),
    [
        (PASSED, [], {0: PASSED, 3: PASSED}, Status.PASS),
        (PASSED, [], {0: PASSED, 3: FAILED}, Status.FAIL),
        (FAILED, [4], {4: FAILED}, Status.PASS),
        (FAILED, [4], {3: FAILED, 4: PASSED}, Status.FAIL),
        (Verdict("x", Status.UNKNOWN, 0), [], {0: PASSED}, Status.UNKNOWN),
    ],
)
def test_prover_and_simulator_must_agree_where_both_answer(
    proof: Verdict, said: list[int], seen: dict[int, Verdict], status: Status
) -> None:
    """A disagreement is a bug in one of the two, whichever is right about the kernel."""
    assert agreement(proof, said, seen).status is status


def test_a_broken_kernel_is_refuted_and_replayed() -> None:
    """The trip count of the prover's witness is one that the simulator is asked about."""
    case = representative("tma-specialized/direct")
    program = compiled(case)
    (launch,) = program.launches
    waits = [s for s in launch.kernel.walk() if type(s).__name__ == "MBarrierWaitParity"]
    broken = launch.kernel.rewrite(lambda stmt: [] if stmt is waits[0] else None)
    recorder = Recorder(case, to_text(case))
    changed = replace(launch, kernel=broken)
    judge_kernel(recorder, changed, frozenset(CPU_ORACLES), seed=0)
    by_oracle = {r.oracle: r.status for r in recorder.records if r.oracle != "simulator"}
    assert by_oracle == {"prover": "fail", "agreement": "pass"}
