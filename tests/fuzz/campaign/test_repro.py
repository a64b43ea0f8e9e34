"""A failing case becomes a script that runs alone."""

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from records import record

from fuzz.campaign.mutants import representative
from fuzz.campaign.repro import failures, main, write
from fuzz.cases.case import from_text, to_text


def test_a_script_holds_the_case_and_runs_alone(tmp_path: Path) -> None:
    """No ledger, no campaign, no pytest: exit code 0, as this failure is gone."""
    text = to_text(representative("direct/tma"))
    failed = record("x", status="fail", kind="race", reason='a "quoted" reason\nin two lines')
    path = write(failed, text, folder=tmp_path)
    assert path.name.startswith("prover_race_")
    assert "# python 3." in path.read_text()
    assert to_text(from_text(path.read_text())) == text
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "prover: fixed\n"), done.stderr


def test_replaying_several_scripts_exits_with_the_worst(tmp_path: Path) -> None:
    """A script that still fails is exit code 1."""
    good = tmp_path / "good.py"
    good.write_text("raise SystemExit(0)\n")
    bad = tmp_path / "bad.py"
    bad.write_text("raise SystemExit(1)\n")
    done = CliRunner().invoke(main, [str(bad), str(good)])
    assert done.exit_code == 1
    assert str(good) in done.output


def test_a_good_case_has_no_failures() -> None:
    """Replaying must not find what is not there."""
    assert failures(representative("tma-pipelined/direct"), "prover") == []
