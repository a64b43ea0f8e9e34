"""The page of speed says the right numbers about synthetic timings."""

from __future__ import annotations

import json
from statistics import geometric_mean

import pandas as pd
import pytest
from reported import book
from timings import FACTS, synthetic

from fuzz.campaign.record import DEFAULT
from reports import performance

NAMES = ["row", "kind", "says", "peer", "nbytes", "flops", "roof_us", "first_s", "samples"]


def runs(*slower: dict[str, float], rows: int = 6) -> pd.DataFrame:
    """Return the timings of one run a day, ours multiplied by `slower` of each."""
    parts = []
    for day, change in enumerate(slower):
        lines = [[getattr(t, name) for name in NAMES] for t in synthetic(rows, day, change)]
        part = pd.DataFrame(lines, columns=pd.Index(NAMES))
        started = f"2026-11-{day + 10}T00:00:00+00:00"
        facts = pd.Series([FACTS] * len(part))
        parts.append(part.assign(run=f"b{day}", started=started, revision=f"v{day}", facts=facts))
    timings = pd.concat(parts, ignore_index=True)
    return timings.assign(samples=timings["samples"].map(json.loads))


def test_a_step_names_the_revisions_between_which_it_happened() -> None:
    """Noise of clocks is not one: all peers share it, and the spread must be left behind."""
    timings = runs({}, {}, {"G1": 1.1}, {"G1": 1.1, "X2": 0.9})
    steps = performance.steps(timings)
    found = steps[["row", "before_revision", "revision"]].to_numpy().tolist()
    assert found == [["X2", "v2", "v3"], ["G1", "v1", "v2"]]
    assert steps["change"].tolist() == pytest.approx([-10, 10], abs=1)
    says = performance.regressions(timings).says
    assert says.startswith("1 change for the worse and 1 for the better in 4 runs")
    assert performance.slower(timings).empty
    assert list(performance.slower(runs({}, {"G1": 1.1}))["row"]) == ["G1"]
    assert "nothing to be compared" in performance.regressions(runs({})).says


def test_the_headline_is_the_geometric_mean_beside_the_best_peer() -> None:
    """A copy kernel is a roof, nobody's alternative; a row slower than before is said in red."""
    rows = performance.latest(runs({}))
    wide = rows.pivot(index="row", columns="peer", values="us")
    others = [name for name in map(str, wide) if not name.startswith(("ours", "copy"))]
    ratio = wide[others].min(axis=1) / wide[DEFAULT]
    mean = geometric_mean(map(float, ratio))
    head = performance.headline(rows, 0)
    assert head.says == f"{mean:.2f} times as fast as the best peer of each row"
    assert head.status == "pass"
    assert performance.headline(rows, 2).says.endswith("2 rows slower than before")
    assert performance.headline(rows, 2).status == "fail"


def test_a_row_that_no_schedule_serves_is_said() -> None:
    """It has no default, and is no row where ours is as fast."""
    timings = runs({})
    rows = performance.latest(timings[~((timings["row"] == "G1") & (timings["peer"] == DEFAULT))])
    head = performance.headline(rows, 0)
    assert (head.status, dict(head.numbers)["Refused by default"]) == ("unknown", "1")
    table = performance.table(rows).table.set_index("row")
    assert pd.isna(table["default us"]["G1"])


def test_ratios_are_of_samples_that_were_taken_side_by_side() -> None:
    """The noise of a turn cancels: the spread is that of the ratio, not of the times."""
    timings = runs({}, rows=2)
    slow = timings["peer"].isin(["torch", DEFAULT])
    drift = [1.0 + n / 10 for n in range(15)]
    both = [[x * d for x, d in zip([2.0] * 15, drift, strict=True)], drift]
    timings = timings[slow & (timings["row"] == "X0")].copy()
    timings["samples"] = both
    timings["peer"] = ["torch", DEFAULT]
    line = performance._ratios(performance.medians(timings)).iloc[0]
    assert (line["low"], line["ratio"], line["high"]) == pytest.approx((2.0, 2.0, 2.0))


def test_each_row_is_shown_as_last_measured() -> None:
    """`--only` measures some rows; the others keep their numbers."""
    timings = runs({}, {"X0": 2.0}, rows=3)
    timings = timings[(timings["run"] == "b0") | (timings["row"] == "X0")]
    assert performance.latest(timings).groupby("row")["run"].first().to_dict() == {
        "G1": "b0",
        "X0": "b1",
        "X2": "b0",
    }


def test_the_page_has_every_section() -> None:
    """Plots with names for who cannot see them; none without a benchmark."""
    head, sections = performance.sections(book(timings=runs({}, {})))
    assert head.status == "pass"
    for section in sections:
        assert section.says
        if section.figure:
            assert 'role="img" aria-label="' in section.figure
    assert sum(bool(section.figure) for section in sections) == 5
    head, sections = performance.sections(book())
    assert (head.status, len(sections)) == ("unknown", 2)
    assert "`nox -s bench` writes one" in head.says
