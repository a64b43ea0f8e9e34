"""Every bug that was fixed stays fixed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "tests" / "repros").glob("*.py"))


@pytest.mark.long
def test_every_failure_is_gone() -> None:
    """Every judge passes the cases; a script that judges nothing is not taken for one."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.campaign.repro", *SCRIPTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [line for line in done.stdout.splitlines() if line.startswith("all: ")]
    assert ends == ["all: fixed"] * len(SCRIPTS)
