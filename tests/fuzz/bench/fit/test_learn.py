"""A rule that timings follow is learned, also for shapes that were left out; noise is not."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fuser.schedule.products.residual import FEATURES, load
from fuzz.bench import sweep as sweeps
from fuzz.bench.fit import learn, timings
from fuzz.bench.fit.__main__ import main
from fuzz.bench.fit.timings import Timing
from fuzz.exit_code import HARNESS


def some(rule: float, noise: float, seed: int = 0) -> list[Timing]:
    """Timings of kept shapes, by a rule of the columns of a tile, and a noise."""
    table = timings.read()
    table = table[table["sweep"] == 11]  # the same ones, whatever is kept later
    shapes = table[["m", "n", "k"]].drop_duplicates().sample(80, random_state=seed)
    rng = random.Random(seed)
    out = []
    for one in timings.matched(table.merge(shapes)):
        told = dict(zip(FEATURES, one.features, strict=True))
        off = rule * (told["log2 columns"] * log(2) - 4) + rng.gauss(0, noise)
        out.append(replace(one, us=one.modelled_us * exp(off)))
    return out


def test_a_rule_is_learned() -> None:
    """Predictions of shapes left out are off by less than half of what they were."""
    found = some(rule=0.3, noise=0.01)
    told = learn.told(found)
    scales = learn.scales_of(told, turns=25)
    before = learn.worth(found, [0.0] * len(found))
    after = learn.worth(found, learn.left_out(found, told, scales))
    assert after.error < before.error / 2
    assert after.behind < before.behind
    assert after.within > before.within


def test_noise_is_not_learned() -> None:
    """Of what has no rule nearly nothing is said."""
    found = some(rule=0.0, noise=0.05)
    told = learn.told(found)
    scales = learn.scales_of(told, turns=25)
    means = np.array(learn.left_out(found, told, scales))
    assert np.sqrt((means**2).mean()) < 0.02


def test_points_of_a_process_differ() -> None:
    """None is taken twice, and those taken tell of all others."""
    told = learn.told(some(rule=0.1, noise=0.01))
    scales = learn.scales_of(told, turns=5)
    for name, process in learn.processes(told, scales, points=20).items():
        assert 1 <= len(process.points) <= 20
        assert len({tuple(point) for point in process.points.tolist()}) == len(process.points)
        assert len(told.by_way()[name]) >= learn.LEAST


def test_who_is_chosen_wrongly_is_behind() -> None:
    """Of a shape whose fastest schedule is predicted to be slow; shapes of few timings say less."""
    table = timings.read()
    shape = table[["m", "n", "k"]].iloc[[len(table) // 2]]
    first = [*timings.matched(table.merge(shape))]
    exact = [replace(one, us=one.modelled_us, sweep=1) for one in first]
    assert len(exact) > learn.FEW
    right = learn.worth(exact, [0.0] * len(exact))
    assert (right.shapes, right.behind, right.within, right.error) == (1, 0.0, 1.0, 0.0)
    fastest = min(exact, key=lambda one: one.us)
    wrong = learn.worth(exact, [log(2.0) if one is fastest else 0.0 for one in exact])
    assert wrong.behind > 0


def test_too_few_timings_are_nothing_to_learn_from(tmp_path: Path) -> None:
    """No table is written then."""
    kept, made = tmp_path / "kept.csv.xz", tmp_path / "table.npz"
    for many in (0, 5):
        if many:
            timings.read().iloc[:many].to_csv(kept, index=False)
        done = CliRunner().invoke(main, ["--timings", str(kept), "--table", str(made)])
        assert done.exit_code == HARNESS
        assert f"of {many} timings" in done.output
        assert f"no {learn.LEAST} of one way" in done.output
        assert not made.exists()


def test_the_command_keeps_learns_and_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table from a file of timings, and lines of a sweep beside them."""
    monkeypatch.setattr(learn, "TURNS", 3)
    table = timings.read()
    shapes = table[["m", "n", "k"]].drop_duplicates().iloc[-60:]
    kept, made = tmp_path / "kept.csv.xz", tmp_path / "table.npz"
    by = [name for name in timings.COLUMNS if name != "sweep"]
    few = table.merge(shapes).drop_duplicates(by)
    few.to_csv(kept, index=False)
    sweep = tmp_path / "sweep.json"
    params = next(iter(sweeps.schedules(64, 64, 512)))
    sweep.write_text(json.dumps({"shape": [64, 64, 512], "us": {"torch": 1, str(params): 2.0}}))
    asked = ["--timings", str(kept), "--table", str(made), "--device", "mine", str(sweep)]
    for _ in range(2):
        done = CliRunner().invoke(main, asked)
        assert done.exit_code == 0, done.output
        assert len(timings.read(kept)) == len(few) + 1  # kept once
    assert "shapes; left out: " in done.output
    assert "without it" in done.output
    assert load(made).device == "mine"
