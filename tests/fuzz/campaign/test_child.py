"""A child that crashes or hangs costs one call, and says why; a slow machine costs none."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from behaviour import behave

from fuzz.campaign.child import FAR, Child, Lost

OWN = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
ORPHAN = """
import sys
sys.path.append({tests!r})
from behaviour import behave
from fuzz.campaign.child import Child
if __name__ == "__main__":
    with Child(behave, preload=()) as child:
        print(child.call("fine").split()[-1], flush=True)
        child.call("hang")
"""


def lost(word: str, limit_s: float, wall_s: float | None = None) -> Lost:
    """Return what is left of a call."""
    with Child(behave, limit_s=limit_s, wall_s=wall_s, preload=()) as child:
        answer = child.call(word)
    assert isinstance(answer, Lost), answer
    return answer


def test_a_child_that_crashes_or_hangs_is_replaced() -> None:
    """A case that kills its judge must cost that case alone."""
    with Child(behave, limit_s=5.0, wall_s=1.0, preload=()) as child:
        first = child.call("fine")
        crashed, hung = child.call("crash"), child.call("hang")
        assert isinstance(crashed, Lost)
        assert isinstance(hung, Lost)
        assert (crashed.kind, hung.kind) == ("crash", "hang")
        assert "exit code 9" in crashed.reason
        with pytest.raises(ValueError, match="raise"):
            child.call("raise")
        last = child.call("fine")
        assert isinstance(first, str)
        assert isinstance(last, str)
        assert first != last


def test_a_slow_case_on_a_busy_machine_is_no_hang() -> None:
    """Waiting for a core is not computing: the limit is of CPU time."""
    with Child(behave, limit_s=1.0, preload=()) as child:
        assert isinstance(child.call("nap"), str)


def test_a_child_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where whoever starts it has as many as cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with Child(behave, spawn=True) as child:
        assert child.call("threads") == "1"


def test_who_computes_for_ever_is_ended_at_the_cpu_limit() -> None:
    """The limit that was hit is named, and the judge that was at work."""
    one = lost("compute", 0.5)
    assert one.kind == "hang"
    assert one.reason.startswith("no answer within 0.5 s of CPU time (")
    assert one.reason.endswith("by the clock) while the prover was at work on k")
    assert one.judge == "prover"


def test_who_waits_for_ever_is_ended_at_the_far_limit() -> None:
    """A deadlock computes nothing, and would never reach the other one."""
    one = lost("hang", 0.1)
    assert one.reason == f"no answer within {FAR / 10:g} s by the clock (0.0 s of CPU time)"
    assert (one.kind, one.judge) == ("hang", "")


def test_a_signal_is_named_with_the_judge_that_met_it() -> None:
    """`-11` says nothing to who reads a report."""
    one = lost("segfault", 5.0)
    assert (one.kind, one.judge) == ("crash", "simulator")
    assert one.reason == (
        "killed by signal 11 (SIGSEGV) while the simulator was at work on k trips=3"
    )


def test_who_takes_all_memory_is_ended_before_the_machine_is() -> None:
    """The kernel's own choice of whom to kill may be the campaign."""
    with Child(behave, memory=256 << 20, spawn=True) as child:
        one = child.call("swell")
        assert isinstance(child.call("fine"), str)
    assert isinstance(one, Lost)
    assert (one.kind, one.judge) == ("memory", "prover")
    used = int(one.reason.split()[0])
    assert one.reason.endswith(" MiB of memory, 256 are allowed while the prover was at work on k")
    assert 256 <= used < 1024


def test_who_keeps_much_memory_is_not_asked_again() -> None:
    """What calls before have left behind is not the next one's; who keeps little goes on."""
    # Spawned: a fork server that loaded torch for another test would let each child rest with it.
    with Child(behave, memory=256 << 20, spawn=True) as child:
        pids = [str(child.call(word)).split()[-1] for word in ("fine", "keep", "keep", "fine")]
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3


def test_what_a_child_raises_tells_where() -> None:
    """The traceback of the other process comes along."""
    with (
        Child(behave, preload=()) as child,
        pytest.raises(ValueError, match="raise") as raised,
    ):
        child.call("raise")
    assert "behaviour.py" in "".join(raised.value.__notes__)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A driver that is killed must not leave a judge that hangs."""
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN.format(tests=str(Path(__file__).parents[2])))
    with subprocess.Popen(
        [sys.executable, script], env=OWN, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        os.kill(child, 0)
        parent.kill()
    end = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


def test_closing_ends_a_call_that_another_thread_waits_for() -> None:
    """Ctrl-C in a pool of threads must not wait for the limit."""
    child = Child(behave, preload=())
    child.call("fine")
    answers: list[str | Lost] = []
    waiting = threading.Thread(target=lambda: answers.append(child.call("hang")))
    waiting.start()
    time.sleep(0.3)
    child.close()
    waiting.join(10)
    assert isinstance(answers[0], Lost)
    assert f"signal {int(signal.SIGKILL)}" in answers[0].reason
    assert isinstance(child.call("fine"), Lost)
