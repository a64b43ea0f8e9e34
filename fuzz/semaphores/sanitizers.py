"""Subjects under compute-sanitizer: one process per kernel and tool, and what it reports.

A report counts only if its summary is there and the kernel was launched; a tool that is missing,
crashes or takes too long has no answer, which is never a pass.

Source: compute-sanitizer's documentation, "Racecheck reports" and "Command line options".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fuzz.semaphores.record import SANITIZERS, Cell

PROGRAM = "compute-sanitizer"
LIMIT_S = 60.0
"""Wall limit of one kernel under one tool."""
LAUNCHER = "fuzz.semaphores.gpu"
DONE = "kernel-launches:"
"""How the line begins by which the launcher says that the kernel was launched."""
DETAIL = 3000
"""Characters of a report that are kept."""

_SUMMARY = re.compile(r"^=+ ERROR SUMMARY: (\d+) errors?", re.M)
_RACES = re.compile(
    r"^=+ RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)", re.M
)
_HAZARD = re.compile(r"\b(RAW|WAR|WAW) hazard")
_REPORT = re.compile(r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)$", re.M)
"""The first line of each finding: the lines below it are indented."""
_NO_KERNELS = re.compile(r"^(Program hit |Error: process |Target application )")
"""A call of the driver that failed, for libraries try things out; and how the process ended."""
_BROKEN = re.compile(
    r"^=+ .*(Internal Sanitizer Error|terminated before first instrumented|No attachable process"
    r"|Failed to (initialize|inject|create)|Unable to find|not supported (on|by))",
    re.I | re.M,
)
"""The tool did not do its work; what it counts is worth nothing then."""


def find() -> Path | None:
    """Return the program, from the PATH or beside the CUDA toolkit; None if it is not there."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [Path(root, below) for below in ("bin", PROGRAM) for root in roots if root]
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=os.pathsep.join(map(str, places)))
    return Path(found) if found else None


def version(program: Path) -> str:
    """Return the version that the program prints."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({type(error).__name__})"
    found = re.search(r"[Vv]ersion (\S+)", said)
    return found[1] if found else "unknown"


def command(program: Path, tool: str, *words: str, module: str = LAUNCHER) -> list[str]:
    """Return the command line that watches a module with some words: one launch of a subject."""
    own = ["--racecheck-report", "all"] if tool == "racecheck" else []
    return [
        str(program), "--tool", tool, *own, "--report-api-errors", "no", "--print-limit", "20",
        sys.executable, "-m", module, *words,
    ]  # fmt: skip


def ran(words: Sequence[str], tool: str, *, limit_s: float) -> Cell:
    """Run a command that ends with a report of a tool; with its children it ends at the limit."""
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a group of its own, to be ended as a whole
        )
    except OSError as error:
        return Cell("unknown", "did not start", detail=str(error))
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        seconds = time.monotonic() - begin
        return Cell("unknown", "timeout", seconds=seconds, detail=output[-DETAIL:])
    return parsed(tool, output, process.returncode, time.monotonic() - begin)


def parsed(tool: str, output: str, code: int, seconds: float = 0.0) -> Cell:
    """Return what a tool's report, or else the exit code, says of the one kernel launched."""
    if tool not in SANITIZERS:
        raise ValueError(f"parsed({tool!r}): pick one of {tuple(SANITIZERS)}")
    tail = output[-DETAIL:]
    summary = (_RACES if tool == "racecheck" else _SUMMARY).search(output)
    broken = _BROKEN.search(output)
    if broken:
        return Cell("unknown", "tool failed", seconds=seconds, detail=tail)
    if summary is None:
        return Cell("unknown", f"crashed, exit {code}", seconds=seconds, detail=tail)
    count = int(summary[1])
    reports = [line for line in _REPORT.findall(output) if not _NO_KERNELS.match(line)]
    if count and not reports:
        return Cell("unknown", "API errors only", 0, count, seconds, tail)
    if count:
        shown = "\n".join(dict.fromkeys(line for line in output.splitlines() if line[:3] == "==="))
        kinds = sorted(set(_HAZARD.findall(output))) or ["race"]
        if tool != "racecheck":  # the first words of each report
            first = (re.split(r"[.:]", line, maxsplit=1)[0] for line in reports)
            kinds = [re.sub(r" of size \d+ bytes?$", "", words)[:60] for words in first]
        says = ", ".join(dict.fromkeys(kinds))
        return Cell("detected", says, count, count, seconds, shown[:DETAIL])
    if DONE not in output:
        return Cell("unknown", f"no launch, exit {code}", seconds=seconds, detail=tail)
    return Cell("silent", "", 0, 1, seconds)
