"""Every judge against every litmus, and the suite against what it promises.

`TESTS_ALL=1` asks about every row of the truth tables and every launch; without it a sample.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from sample import ALL

from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuser.kernel.validate.legal import validate
from litmus.parts import Expect, Litmus, Run, elect, trips
from litmus.placements import TABLES, Placement, tables
from litmus.rings import EMPTY, FULL, ring
from litmus.suite import LITMUS, ROWS, by_name, kernels
from oracles.explorer import explore
from oracles.prover import prove
from oracles.simulator import simulate
from oracles.verdict import KINDS, Status, Verdict

SAMPLE = 40
"""Rows of the truth tables that are judged by default."""
SCHEDULES = 24
"""Schedules of the simulator that have to find a failure; it stops at the first."""
CALM_SCHEDULES = 24 if ALL else 6
"""Schedules of a right kernel; six are one of each strategy."""

Subject = kir.Kernel | LaunchSequence
Judge = Callable[[Subject, Run, str, int], Verdict]


def by_prover(subject: Subject, _: Run, policy: str, __: int) -> Verdict:
    """Ask the prover, which needs no launch."""
    return prove.prove(subject, policy=policy)


def by_explorer(subject: Subject, run: Run, policy: str, _: int) -> Verdict:
    """Ask the explorer about one launch."""
    launch = explore.Launch(run.grid, dict(run.params))
    each = (launch,) * len(subject.launches) if isinstance(subject, LaunchSequence) else launch
    return explore.explore(subject, each, policy=policy)


def by_simulator(subject: Subject, run: Run, policy: str, schedules: int) -> Verdict:
    """Ask the simulator about one launch, under adversarial schedules."""
    launch = simulate.Launch(run.grid, dict(run.params))
    each = (launch,) * len(subject.launches) if isinstance(subject, LaunchSequence) else launch
    return simulate.search(subject, each, schedules=schedules, policy=policy)


JUDGES: dict[str, Judge] = {
    "prover": by_prover,
    "explorer": by_explorer,
    "simulator": by_simulator,
}


def launches(
    judge: str, runs: tuple[Run, ...], *, failing: bool, cluster: int = 1
) -> tuple[Run, ...]:
    """Return the launches to ask a judge about.

    A prover needs none.  By default a failure is sought in the largest, and a right kernel is run
    in the smallest and the largest; in a cluster, whose interleavings are many, in the first two.
    """
    if judge == "prover":
        return (Run(),)
    if ALL:
        return runs
    if failing:
        return runs[-1:]
    return runs[:2] if cluster > 1 else tuple(dict.fromkeys((runs[0], runs[-1])))


def complaint(verdict: Verdict, expect: Expect, *, largest: bool = True) -> str:
    """Say how a verdict differs from the truth; nothing where it does not."""
    if verdict.status is not expect.status:
        return f"expected {expect.status.value}"
    kinds = {f.kind for f in verdict.findings if f.severity == "error"}
    if expect.status is Status.FAIL and not kinds & expect.kinds:
        return f"failed by {sorted(kinds)}, expected one of {sorted(expect.kinds)}"
    warned = {f.kind for f in verdict.findings if f.severity == "warning"}
    if largest and not expect.warns <= warned:
        return f"warned of {sorted(warned)}, expected {sorted(expect.warns)}"
    return ""


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("one", LITMUS, ids=lambda one: one.name)
def test_a_judge_knows_the_truth(one: Litmus, judge: str) -> None:
    """Status, kind of error and warnings are those that follow from the rules."""
    failing = one.expect.status is Status.FAIL
    schedules = SCHEDULES if failing else CALM_SCHEDULES
    cluster = kernels(one)[0].cluster
    runs = launches(judge, one.launches, failing=failing, cluster=cluster)
    for run in runs:
        verdict = JUDGES[judge](one.kernel, run, one.expect.policy, schedules)
        wrong = complaint(verdict, one.expect, largest=run == runs[-1])
        assert not wrong, f"{run}: {wrong}: {one.why}\n{verdict}"


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("policy", ["default", "strict"])
@pytest.mark.parametrize("fenced", [True, False])
def test_only_strict_warns_of_an_init_without_a_fence(
    judge: str, policy: str, fenced: bool
) -> None:
    """In one CTA the block barrier is enough; warned of is a copy that completes unfenced."""
    inits: tuple[kir.Stmt, ...] = kir.MBarrierInit(FULL), kir.MBarrierInit(EMPTY)
    start = elect(*inits, *((kir.FenceMBarrierInit(),) if fenced else ()))
    kernel = ring("wait read fence free out", init=start)
    verdict = JUDGES[judge](kernel, trips(3)[0], policy, CALM_SCHEDULES)
    assert verdict.status is Status.PASS, verdict
    warned = [f for f in verdict.findings if f.kind == "init"]
    assert bool(warned) is (policy == "strict" and not fenced), verdict


def _rows() -> list[Placement]:
    rows = [row for table in tables().values() for row in table]
    return rows if ALL else random.Random(0).sample(rows, SAMPLE)


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.name)
def test_a_judge_knows_the_safe_placements(row: Placement, judge: str) -> None:
    """Of all ways to leave syncs out, exactly the safe ones pass."""
    expected = Status.PASS if row.safe else Status.FAIL
    for run in launches(judge, row.launches, failing=not row.safe):
        verdict = JUDGES[judge](row.kernel, run, "default", SCHEDULES)
        assert verdict.status is expected, f"{run}\n{verdict}"


# --- the suite itself ---------------------------------------------------------------------------


def test_the_suite_is_large_and_covers_every_row() -> None:
    """Each row of the table of hazards has a kernel that fails and one that passes."""
    assert len(LITMUS) >= 150
    for status in (Status.FAIL, Status.PASS):
        covered = {row for one in LITMUS if one.expect.status is status for row in one.hazards}
        assert covered == ROWS


def test_names_can_be_asked_for() -> None:
    """By `FILE.py:NAME`."""
    assert all(one.name.isidentifier() for one in LITMUS)


def test_names_are_unique() -> None:
    """A name is how a twin, a report and a person find a litmus."""
    assert [name for name, count in Counter(one.name for one in LITMUS).items() if count > 1] == []


@pytest.mark.parametrize("one", LITMUS, ids=lambda one: one.name)
def test_a_litmus_is_well_formed(one: Litmus) -> None:
    """Validation accepts it, or refuses it with the message that is the point of it."""
    assert one.launches
    assert one.why
    assert one.expect.kinds | one.expect.warns <= set(KINDS)
    assert bool(one.expect.kinds) is (one.expect.status is Status.FAIL)
    for kernel in kernels(one):
        if one.refused:
            with pytest.raises(ScheduleError, match=one.refused):
                validate(kernel, final=True)
        else:
            validate(kernel, final=True)


@pytest.mark.parametrize("one", LITMUS, ids=lambda one: one.name)
def test_launches_meet_the_requirements(one: Litmus) -> None:
    """A launch that no kernel accepts would test nothing."""
    for run in one.launches:
        for kernel in kernels(one):
            values = dict(run.params) | {"gridDim": run.grid}
            assert set(values) == {p.name for p in kernel.params} | {"gridDim"}
            assert run.grid % kernel.cluster == 0
            for condition in kernel.requires:
                text = re.sub(r"&&", " and ", str(condition))
                assert eval(text, {"min": min, "max": max}, values), condition


def test_every_failing_kernel_has_a_passing_twin() -> None:
    """The twin is another kernel, legal, of a shared row, judged under the same policy."""
    for one in LITMUS:
        if one.expect.status is Status.PASS:
            assert one.twin == ""
            continue
        twin = by_name(one.twin)
        assert twin.expect.status is Status.PASS
        assert twin.expect.policy == one.expect.policy
        assert _bare(twin.kernel) != _bare(one.kernel)


def test_kernels_are_pairwise_different() -> None:
    """Under one policy no kernel is counted twice under two names."""
    seen: dict[tuple[Subject, str], str] = {}
    for one in LITMUS:
        key = (_bare(one.kernel), one.expect.policy)
        assert key not in seen, f"{one.name} is {seen.get(key)}"
        seen[key] = one.name


def test_truth_tables_are_complete_and_not_trivial() -> None:
    """All 2^n rows exist, with all syncs in a table is safe, with none it is not."""
    assert len(TABLES) >= 8
    for table in TABLES:
        rows = tables()[table.name]
        assert len(table.optional) <= 6
        assert len({row.kept for row in rows}) == len(rows) == 2 ** len(table.optional)
        assert {row.kept: row.safe for row in rows}[frozenset(table.optional)]
        assert not {row.kept: row.safe for row in rows}[frozenset()]
        for row in rows:
            assert isinstance(row.kernel, kir.Kernel)
            validate(row.kernel, final=True)


def test_a_wrong_verdict_is_noticed() -> None:
    """The comparison above can fail in each of its three ways."""
    good = Verdict("judge", Status.PASS, 1)
    assert complaint(good, Expect(Status.FAIL, frozenset({"RAW"})))
    assert complaint(good, Expect(Status.PASS, warns=frozenset({"proxy"})))
    assert complaint(Verdict("judge", Status.UNKNOWN, 1, reason="?"), Expect(Status.PASS))
    assert not complaint(good, Expect(Status.PASS))


def _bare(subject: Subject) -> Subject:
    return replace(subject, name="")
