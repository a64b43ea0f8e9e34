"""The benchmark's rows and table, as far as they can be judged without a GPU."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import torch
from click.testing import CliRunner
from fusions import bias_relu
from rich.console import Console
from stand_in import stand_in

from fuser.runtime import executable
from fuzz.bench import norms, pointwise, reductions, shapes
from fuzz.bench.__main__ import cost, main
from fuzz.bench.matmul import batched, grouped, products
from fuzz.bench.row import Row, measure, medians, table, together
from fuzz.campaign.record import BENCH, DEFAULT, Timing
from fuzz.exit_code import FAILED
from oracles.reference.evaluate import evaluate

PRODUCTS = [*products.rows(), *batched.rows(), *grouped.rows()]
ROWS = [*pointwise.rows(), *PRODUCTS, *reductions.rows()]
NORMS = norms.rows()


def test_every_row_has_its_name_its_fusion_and_candidates() -> None:
    """`--only` picks by name; a candidate that cannot be made would fail on the device only."""
    names = [row.name for row in [*ROWS, *NORMS]]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert len(row.fusion().outputs) == 1, row.name
        assert row.candidates(), row.name
        assert row.roof_us > 1, row.name


@pytest.mark.parametrize("row", NORMS, ids=lambda row: row.name)
def test_normalizations_are_what_torch_says(row: norms.Norm) -> None:
    """The fusion that is timed computes what its peers do: the reference on a few rows."""
    small = replace(row, shape=(8, 24))
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", partial(_on_cpu, torch.randn))
        given = small.inputs()
    made = evaluate(small.fusion(), list(given))
    wanted = together(small.form(*(t.double() for t in given)))
    for ours, want in zip(made, wanted, strict=True):
        off = (ours.value.double() - want.double()).abs().max()
        assert off <= small.tolerance * want.double().abs().max()
    assert row.nbytes > 1e8


@pytest.mark.parametrize("row", pointwise.rows(), ids=lambda row: row.name)
def test_pointwise_rows_are_what_torch_says(row: pointwise.Pointwise) -> None:
    """As above; shapes stay apart from each other, and equal where they are."""
    shapes = tuple(tuple(n % 61 + 2 if n > 1 else 1 for n in shape) for shape in row.shapes)
    small = replace(row, shapes=shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", lambda *shape, device: torch.full(shape, 0.3).cumsum(-1) % 1)
        given = small.inputs()
    fusion = small.fusion()
    (made,) = evaluate(fusion, list(given))
    assert small.error(given, (made.value,)) <= small.tolerance
    assert fusion.outputs[0].dtype.torch_name == str(row.out).removeprefix("torch.")
    assert made.value.numel() * row.out.itemsize <= small.nbytes


def _on_cpu(
    make: Callable[..., torch.Tensor], *shape: int, dtype: torch.dtype, device: str
) -> torch.Tensor:
    assert device == "cuda"
    return make(*shape, dtype=dtype)


def test_shapes_are_drawn_of_every_kind_and_again_by_their_seed() -> None:
    """A sweep can be repeated; rows are odd now and then, and none is too large."""
    drawn = list(shapes.rows(30, seed=3))
    assert [row.says for row in drawn] == [row.says for row in shapes.rows(30, seed=3)]
    assert [row.says for row in drawn] != [row.says for row in shapes.rows(30, seed=4)]
    assert len(drawn) == 30 * len(shapes.KINDS)
    cols = [int(row.says.split(" x ")[1].split()[0].strip(",")) for row in drawn]
    assert 0.2 < sum(n % 2 for n in cols) / len(cols) < 0.5
    times = {row.name: {"torch": 2.0, DEFAULT: 1.0 + n % 2} for n, row in enumerate(drawn)}
    text = StringIO()
    Console(file=text, width=200).print(shapes.summary(times, drawn))
    assert text.getvalue().count("1.414") == len(shapes.KINDS)


def test_the_table_compares_the_best_of_ours_with_the_best_peer() -> None:
    """A copy kernel is a roof, nobody's alternative; a default that was refused is said."""
    row = ROWS[0]
    times = {"torch": 12.0, "compile": 10.0, "copy w4 v1": 7.0, DEFAULT: 9.0, "ours, tma": 8.0}
    said = shown(row.name, times)
    for word in ("compile", "10.0", "tma", "8.0", "1.250", "1.111", "0.875"):
        assert word in said
    assert "refused" in shown(row.name, {"torch": 12.0, "ours, tma": 8.0})


def shown(name: str, times: dict[str, float]) -> str:
    """Return the table of one row as text."""
    text = StringIO()
    Console(file=text, width=200).print(table(ROWS, {name: times}))
    return text.getvalue()


def test_nothing_is_measured_without_a_device_and_that_is_said() -> None:
    """A benchmark that measured nothing is no success."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.bench.__main__.device_present", lambda: False)
        done = CliRunner().invoke(main, ["--only", "G1"])
    assert done.exit_code == 3
    assert "nothing was measured" in done.output


def test_a_benchmark_writes_its_samples_into_the_ledger(tmp_path: Path) -> None:
    """Beside those of campaigns; a row that is off is not in it, and the exit code says so."""

    def measured(row: Row, **_: bool) -> list[Timing]:
        if row.name == ROWS[1].name:
            raise click.ClickException("off by 3; not timed")
        samples = {"torch": "[2.0, 4.0, 3.0]", DEFAULT: "[1.0, 2.0, 1.5]"}
        return [
            Timing(row.name, "Pointwise", row.says, who, 8, 0, 1.0, 0.5, taken)
            for who, taken in samples.items()
        ]

    path = tmp_path / "ledger.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.bench.__main__.device_present", lambda: True)
        patch.setattr("fuzz.bench.__main__.measure", measured)
        patch.setattr(torch.cuda, "get_device_name", lambda: "no device")
        only = f"{ROWS[0].name},{ROWS[1].name}"
        done = CliRunner().invoke(main, ["--only", only, "--ledger", str(path)])
    assert done.exit_code == FAILED, done.output
    assert "'torch': 3.0, 'ours, default': 1.5" in done.output
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT run, row, peer, samples FROM timings").fetchall()
        ((facts,),) = db.execute("SELECT facts FROM runs").fetchall()
    assert rows == [
        (BENCH, ROWS[0].name, "torch", "[2.0, 4.0, 3.0]"),
        (BENCH, ROWS[0].name, DEFAULT, "[1.0, 2.0, 1.5]"),
    ]
    assert json.loads(facts)["flops_per_s"] > 1e14


def test_a_measured_row_has_the_samples_of_all_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that can be seen without a device: clocks, graphs and launches stand aside."""

    class Launched:
        """Does nothing, and leaves the outputs as they are."""

        def __init__(self, *_: object) -> None: ...

        def __call__(self, *_: object, **__: object) -> None: ...

    class Right(pointwise.Pointwise):
        """A row whose outputs are always right."""

        def inputs(self) -> tuple[torch.Tensor, ...]:
            return tuple(torch.ones(2) for _ in self.shapes)

        def error(self, *_: object) -> float:
            return 0.0

    monkeypatch.setattr("fuzz.bench.row.Executable", Launched)
    monkeypatch.setattr(
        "fuzz.bench.row._capture", lambda call, sets, us: (SimpleNamespace(replay=0), 2)
    )
    monkeypatch.setattr("fuzz.bench.row._timed", lambda work: 3.0)
    row = Right("X", bias_relu, lambda *given: torch.ones(2), "x", ((2, 2), (2,)), roof=False)
    timings = measure(row, tune=False, compiled=False)
    assert medians(timings) == {"torch": 1.5, DEFAULT: 1.5}
    ours = timings[-1]
    assert (ours.peer, ours.kind, ours.row) == (DEFAULT, "Right", "X")
    assert ours.first_s > 0
    assert len(json.loads(ours.samples)) == 15


def test_the_cost_of_a_call_is_said_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, torch's and a bare launch, in one run; the device's part is taken by the host."""
    driver = stand_in(monkeypatch)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch, "rand", lambda n, device: torch.linspace(0, 1, n))
    monkeypatch.setattr(executable, "REPEATS", 2)
    number = r"\d+\.\d\d us"
    wanted = rf"host, of 1024 \+ 1024 .*: ours {number}, torch.add {number}, bare launch {number}"
    assert re.fullmatch(wanted, cost())
    assert len({one.kernel.name for one in driver.seen}) == 1
