"""Reports of compute-sanitizer: findings, crashes, time limits; no report is no praise."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fuzz.semaphores.record import SANITIZERS
from fuzz.semaphores.sanitizers import DONE, command, find, parsed, ran, version

RAN = f'{DONE} {{"launches": 1, "wrong": 0}}\n'
HEAD = "========= COMPUTE-SANITIZER\n"
CLEAN = f"{HEAD}{RAN}========= ERROR SUMMARY: 0 errors\n"
NO_RACE = f"{HEAD}{RAN}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
MEMORY = f"""{HEAD}========= Invalid __global__ read of size 4 bytes
=========     at split_k+0x520
=========     by thread (32,0,0) in block (1,0,0)
=========     Access to 0x7f45aa000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f45aa000000 of size 1,024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x3322]
=========                in libcuda.so.1
=========
========= Invalid __global__ write of size 16 bytes
=========     at split_k+0x810
=========     by thread (0,0,0) in block (2,0,0)
=========
{RAN}========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
BARRIER = f"""{HEAD}========= Barrier error detected. Divergent thread(s) in block.
=========     at split_k_tma+0x1230
=========     by thread (0,0,0) in block (0,0,0)
=========
{RAN}========= ERROR SUMMARY: 1 error
"""
RACE = f"""{HEAD}========= Warning: Race reported between Write access at split_k_tma+0x9a0
=========     and Read access at split_k_tma+0xb10 [512 hazards]
=========
========= Error: Potential WAW hazard detected at __shared__ 0x1200 in block (0,0,0) :
=========     Write Thread (0,0,0) at split_k_tma+0x9a0
=========     Write Thread (32,0,0) at split_k_tma+0x9a0
=========     Current Value : 0, Incoming Value : 63
=========
========= Error: Potential RAW hazard detected at __shared__ 0x1210 in block (0,0,0) :
=========     Write Thread (0,0,0) at split_k_tma+0x9a0
=========     Read Thread (64,0,0) at split_k_tma+0xb10
=========
{RAN}========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)
"""
OF_THE_API = f"""{HEAD}========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid \
argument" on CUDA API call to cuGetProcAddress_v2.
=========     Saved host backtrace up to driver entry point at error
=========
{RAN}========= ERROR SUMMARY: 1 error
"""
INTERNAL = f"""{HEAD}========= Internal Sanitizer Error: The Sanitizer encountered an error
=========
{RAN}========= ERROR SUMMARY: 0 errors
"""
NOTHING = f"""{HEAD}========= Error: Target application terminated before first \
instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
========= ERROR SUMMARY: 0 errors
"""
NO_LAUNCH = f"{HEAD}Traceback (most recent call last):\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("tool", "output", "status", "says", "count"),
    [
        ("memcheck", CLEAN, "silent", "", 0),
        ("racecheck", NO_RACE, "silent", "", 0),
        ("memcheck", MEMORY, "detected", "Invalid __global__ read, Invalid __global__ write", 2),
        ("synccheck", BARRIER, "detected", "Barrier error detected", 1),
        ("racecheck", RACE, "detected", "RAW, WAW", 3),
        ("memcheck", OF_THE_API, "unknown", "API errors only", 0),
        ("memcheck", INTERNAL, "unknown", "tool failed", 0),
        ("synccheck", NOTHING, "unknown", "tool failed", 0),
        ("synccheck", NO_LAUNCH, "unknown", "no launch, exit 1", 0),
        ("memcheck", "Segmentation fault\n", "unknown", "crashed, exit 1", 0),
        ("racecheck", CLEAN, "unknown", "crashed, exit 1", 0),
        ("memcheck", NO_RACE, "unknown", "crashed, exit 1", 0),
    ],
)
def test_a_report_becomes_a_cell(
    tool: str, output: str, status: str, says: str, count: int
) -> None:
    """Only a summary of the right tool, with a launch, and without errors is silence."""
    found = parsed(tool, output, 1)
    assert (found.status, found.says, found.count) == (status, says, count)


def test_what_was_reported_is_kept() -> None:
    """A reader sees the tool's own lines, and none of the program's."""
    detail = parsed("racecheck", RACE, 0).detail
    assert "Potential RAW hazard detected at __shared__ 0x1210" in detail
    assert DONE not in detail


def test_a_tool_that_is_none_is_refused() -> None:
    """Its summary would not be known."""
    with pytest.raises(ValueError, match="pick one of"):
        parsed("leakcheck", CLEAN, 0)


def test_a_program_that_does_not_start_is_no_answer() -> None:
    """Nothing was looked at."""
    lost = ran(["/nowhere/compute-sanitizer"], "memcheck", limit_s=5)
    assert (lost.status, lost.says) == ("unknown", "did not start")


def test_the_program_is_found_on_the_path_or_in_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one that is there."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "compute-sanitizer"
    if find() is not None:
        assert find() != program
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho Version 2025.3.1.0\n")
    program.chmod(0o755)
    assert find() == program
    assert version(program) == "2025.3.1.0"
    monkeypatch.setenv("PATH", str(program.parent))
    assert find() == program


@pytest.mark.parametrize("tool", SANITIZERS)
def test_the_command_watches_one_launch(tool: str) -> None:
    """The program's options first, then what it runs."""
    words = command(Path("cs"), tool, "split_k/control")
    assert words[:3] == ["cs", "--tool", tool]
    assert words[-4:] == [sys.executable, "-m", "fuzz.semaphores.gpu", "split_k/control"]
    assert ("--racecheck-report" in words) == (tool == "racecheck")


def test_a_process_that_ends_is_read() -> None:
    """Both of its streams."""
    text = f"import sys; print({CLEAN!r}, file=sys.stderr)"
    assert ran([sys.executable, "-c", text], "memcheck", limit_s=30).status == "silent"


def test_at_the_limit_a_process_ends_with_its_children() -> None:
    """A child that holds the pipe open must not hold up the table."""
    child = "import time; print('child', flush=True); time.sleep(60)"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    begin = time.monotonic()
    found = ran([sys.executable, "-c", text], "memcheck", limit_s=2)
    assert (found.status, found.says, found.detail) == ("unknown", "timeout", "child\n")
    assert time.monotonic() - begin < 20
