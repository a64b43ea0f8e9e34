"""The command: what it draws, counts and writes; a GPU that is lost costs its case alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner

from fuser.runtime.executable import device_present
from fuzz.campaign.gpu import PROBE
from fuzz.cases.case import from_text
from fuzz.cases.params import FAMILIES
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE
from fuzz.ptx import device
from fuzz.ptx.bits import Told
from fuzz.ptx.device import DeadError, Device, Lanes, Tally, drawn


class Stand:
    """A lane that says the same of every case."""

    said: Callable[[str], Told] = staticmethod(lambda _: Told(elements={"equal": 3}, launches=1))

    def __init__(self, *_: object) -> None:
        self.asked = 0

    def told(self, text: str) -> Told:
        """Say it."""
        self.asked += 1
        return type(self).said(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> type[Stand]:
    """Put lanes in the place of children with a GPU."""

    class Own(Stand):
        pass

    monkeypatch.setattr(device, "Device", Own)
    monkeypatch.setattr(device, "device_present", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "none")
    return Own


@pytest.mark.skipif(device_present(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_claimed() -> None:
    """No case compared is no praise."""
    done = CliRunner().invoke(device.main, ["--count", "1"])
    assert (done.exit_code, done.output) == (HARNESS, "device: no device, 0 cases compared\n")


def test_every_case_is_a_line(stand: type[Stand], tmp_path: Path) -> None:
    """Behind one of versions; a table and the sums follow."""
    out = tmp_path / "new" / "out.jsonl"
    words = ["--count", "4", "--workers", "2", "--out", str(out), "--family", "direct/direct"]
    done = CliRunner().invoke(device.main, [*words, "--family", "ampere-threads"])
    assert done.exit_code == CLEAN, done.output
    first, *rows = map(json.loads, out.read_text().splitlines())
    assert (first["gpu"], first["shard"], first["seed"]) == ("none", [0, 1], 0)
    assert sorted(row["family"] for row in rows) == ["ampere-threads"] * 2 + ["direct/direct"] * 2
    assert {row["outcome"] for row in rows} == {"equal"}
    assert from_text(rows[0]["text"])
    assert "elements: 12 equal, of 4 launches" in done.output
    assert "4 of 4 cases" in done.output


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (Told("different", "so it is"), FAILED),
        (Told("judged wrong", "so it is"), FAILED),
        (Told("hang", "so it is"), FAILED),
        (Told("error", "so it is"), HARNESS),
        (Told("unknown", "so it is"), HARNESS),
        (Told("undecided", "so it is"), HARNESS),
    ],
    ids=lambda given: given.outcome if isinstance(given, Told) else str(given),
)
def test_what_is_wrong_is_shown(stand: type[Stand], tmp_path: Path, told: Told, code: int) -> None:
    """With its case, which can be compared alone; what is not compared is no pass."""
    stand.said = staticmethod(lambda _: told)
    words = ["--count", "1", "--workers", "1", "--out", str(tmp_path / "out.jsonl")]
    done = CliRunner().invoke(device.main, words)
    assert done.exit_code == code, done.output
    assert "so it is" in done.output
    assert ("case = Case(" in done.output) == (told.outcome not in ("unknown", "undecided"))


def test_one_case_can_be_compared_alone(stand: type[Stand], tmp_path: Path) -> None:
    """It writes nothing."""
    case = tmp_path / "case.py"
    case.write_text(PROBE)
    done = CliRunner().invoke(device.main, ["--case", str(case)])
    assert done.exit_code == CLEAN, done.output
    assert done.output.startswith("1 cases, drawn in 0 s\nequal one case: ")
    assert [*tmp_path.iterdir()] == [case]


def test_shards_are_parts_of_the_same_cases(stand: type[Stand], tmp_path: Path) -> None:
    """Each case is of one."""
    found: list[str] = []
    for part in ("0/2", "1/2"):
        out = tmp_path / "out.jsonl"
        words = ["--count", "5", "--workers", "1", "--shard", part, "--out", str(out)]
        assert CliRunner().invoke(device.main, words).exit_code == CLEAN
        found += [json.loads(row)["text"] for row in out.read_text().splitlines()[1:]]
    assert sorted(found) == sorted(text for _, text in drawn(FAMILIES, 5, 0))
    assert CliRunner().invoke(device.main, ["--shard", "2/2"]).exit_code == USAGE


def test_families_take_turns() -> None:
    """No case comes twice, and the same seed draws the same."""
    some = drawn(FAMILIES[:3], 9, 4)
    assert [family for family, _ in some] == [*FAMILIES[:3]] * 3
    assert len({text for _, text in some}) == 9
    assert some == drawn(FAMILIES[:3], 9, 4)
    assert some != drawn(FAMILIES[:3], 9, 5)


def test_time_that_is_over_leaves_cases_out(stand: type[Stand], tmp_path: Path) -> None:
    """They are counted, and are no pass."""
    words = ["--count", "2", "--seconds", "0", "--out", str(tmp_path / "out.jsonl")]
    done = CliRunner().invoke(device.main, words)
    assert done.exit_code == HARNESS
    assert "not begun" in done.output


def test_a_dead_gpu_takes_no_other_case() -> None:
    """Other lanes do, as long as there is one."""

    class Dead(Stand):
        def told(self, text: str) -> Told:
            self.asked += 1
            raise DeadError("gone")

    dead, well = Dead(), Stand()
    lanes = Lanes([dead, well], 1e9)
    said = [lanes.told(PROBE).outcome for _ in range(4)]
    assert sorted(said) == ["crash", "equal", "equal", "equal"]
    assert (dead.asked, well.asked) == (1, 3)
    alone = Lanes([Dead()], 1e9)
    assert [alone.told(PROBE).outcome for _ in range(3)] == ["crash", "not begun", "not begun"]


def test_the_worst_of_all_cases_decides() -> None:
    """What was left out is not hidden by what is equal, nor a difference by that."""
    tally = Tally()
    codes = []
    for outcome in ("equal", "undecided", "not begun", "different", "equal"):
        tally.add("direct/direct", Told(outcome))
        codes.append(tally.code)
    assert codes == [CLEAN, CLEAN, HARNESS, FAILED, FAILED]


def test_reasons_are_counted_without_names() -> None:
    """Of what is refused, say, by its words."""
    tally = Tally()
    for kernel in ("matmul0", "matmul1"):
        tally.add(
            "direct/direct", Told("unsupported", f"{kernel}: sad.u32", seconds={"judge": 0.5})
        )
    assert tally.reasons == {"unsupported: sad.u32": 2}
    assert tally.seconds["judge"] == 1.0


@pytest.mark.skipif(device_present(), reason="there is a CUDA device")
def test_a_child_without_a_gpu_is_an_outcome() -> None:
    """Its own error, and that no other comes."""
    with Device() as lane, pytest.raises(DeadError, match="(?s)(crash|error): .*; then "):
        lane.told(PROBE)


@pytest.mark.gpu
def test_the_probe_is_equal() -> None:
    """On a device that works."""
    with Device() as lane:
        assert lane.told(PROBE).outcome == "equal"
