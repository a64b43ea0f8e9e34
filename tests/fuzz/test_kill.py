"""What a campaign that is killed has judged is neither lost nor doubled."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from records import record

from fuzz import kill
from fuzz.campaign.ledger import Ledger
from fuzz.kill import compared, disturbed

ROUNDS, CASES = 6, 40
WRITER = f"""
import sys
from pathlib import Path
from records import record
from fuzz.campaign.ledger import Ledger

with Ledger(Path(sys.argv[1])) as book:
    run = book.resume("killed") or book.start("killed", {{}})
    book.hold()
    for number in sorted(set(range({ROUNDS})) - book.rounds(run, 0)):
        for n in range({CASES}):
            rows = [record(f"c{{number}}.{{n}}", oracle=one) for one in ("prover", "simulator")]
            book.append(run, rows, text="text")
            print(number, n, flush=True)
        book.finish_round(run, 0, number)
"""


def test_killed_again_and_again_a_run_ends_as_if_undisturbed(tmp_path: Path) -> None:
    """Every record that was reported is there, each once; whatever was killed."""
    path, draw = tmp_path / "ledger.sqlite", random.Random(1)
    for last in [draw.randrange(CASES) for _ in range(4)] + [ROUNDS * CASES]:
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        ) as writer:
            assert writer.stdout is not None
            heard = []
            for said in writer.stdout:
                heard.append("c" + ".".join(said.split()))
                if len(heard) > last:
                    os.kill(writer.pid, signal.SIGKILL)
                    break
        with Ledger(path) as book:
            assert set(heard) <= {r.case for r in book.records("killed")}
    names = [f"c{number}.{n}" for number in range(ROUNDS) for n in range(CASES)]
    wanted = [record(n, oracle=one) for n in names for one in ("prover", "simulator")]
    with Ledger(path) as book:
        assert list(compared(wanted, book.records("killed"), whole=True)) == []
        assert set(book.texts("killed")) == set(names)


def test_the_comparison_finds_what_is_lost_doubled_or_new() -> None:
    """Of a killed judge, only what both campaigns drew is compared."""
    both, crash = record("a"), record("b", status="error")
    assert list(compared([both], [both, both], whole=True)) == [
        "doubled: a generate prover k  pass"
    ]
    assert list(compared([both], [], whole=True)) == ["lost: a generate prover k  pass"]
    assert list(compared([], [both], whole=True)) == ["new: a generate prover k  pass"]
    simulated = record("a", oracle="simulator")
    assert list(compared([both, simulated], [both, crash], whole=False)) == [
        "lost: a generate simulator k  pass"
    ]
    assert list(compared([both, record("b")], [both, crash, record("c")], whole=False)) == []


def test_a_victim_that_ends_by_itself_is_no_victim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge ends where it has kept much of calls before; another one is killed then."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as brief:
        victims = iter([psutil.Process(brief.pid)])
    monkeypatch.setattr(kill, "victim", lambda root, _: next(victims, root))
    lasting = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(kill, "campaign", lambda *_: lasting)
    assert disturbed(tmp_path / "ledger.sqlite", 1, "judge", 0.0) == 0
    assert not list(victims)
