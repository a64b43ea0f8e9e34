"""The release family before the judges that need no GPU: prover, simulator and explorer."""

from __future__ import annotations

import difflib
import hashlib
import re
import time
from collections.abc import Callable

from fuser.codegen import cuda
from fuser.kernel.text import text
from fuzz.crosscheck.judge import explore, simulate
from fuzz.kernels.tile import Start
from fuzz.semaphores.family import FAMILY, Member, kernel_of, launches_of, member
from fuzz.semaphores.record import Cell, Row
from oracles import witness_json
from oracles.prover import prove
from oracles.verdict import Status, Verdict

SCHEDULES = 12
"""Schedules of the simulator per launch: each of its six strategies twice."""
STATES = 50_000
"""States after which the explorer gives up on a launch."""
LAUNCHES = 4
"""Launches that simulator and explorer go through, until one of them is wrong."""

_BOX = re.compile(r"(?<=\w)\[[^\[\]]{17,}\]")
"""Coordinates of a box: they are the same in all kernels of a base."""


def rows(members: tuple[Member, ...] = FAMILY) -> list[Row]:
    """Return the rows of a table that nobody has filled in yet."""
    return [Row(m.key, m.base, m.name, m.says, m.legal, _digest(m)) for m in members]


def _digest(member: Member) -> str:
    return hashlib.sha256(cuda.source(member.kernel).encode()).hexdigest()[:16]


def brief(said: str) -> str:
    """Return a text without the coordinates of boxes."""
    return _BOX.sub("[\u2026]", said)


def difference(member: Member) -> str:
    """Return the lines of the kernel's text that differ from the base's, with their neighbours."""
    old, new = (
        [brief(line) for line in text(kernel).splitlines()]
        for kernel in (kernel_of(member.base), member.kernel)
    )
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[3:]
    return "\n".join("  \u22ee" if line.startswith("@@") else line for line in lines)


def witness(member: Member) -> str:
    """Return an execution that goes wrong, as JSON; empty where the prover has none."""
    found = prove.witness(member.kernel)
    return witness_json.dumps(found) if found is not None else ""


def judged(key: str) -> tuple[str, str, dict[str, Cell]]:
    """Judge a member: one string in, so that any process can do it.

    Returns
    -------
    (str, str, dict of str to Cell)
        Its difference, its witness, and what prover, simulator and explorer say.
    """
    one = member(key)
    kernel, starts = one.kernel, launches_of(one.base)[:LAUNCHES]
    cells = {
        "prover": _timed(lambda: [prove.prove(kernel)]),
        "simulator": _timed(lambda: _launched(starts, lambda s: simulate(kernel, s, SCHEDULES))),
        "explorer": _timed(lambda: _launched(starts, lambda s: explore(kernel, s, STATES))),
    }
    return difference(one), "" if one.legal else witness(one), cells


def _launched(starts: tuple[Start, ...], judge: Callable[[Start], Verdict]) -> list[Verdict]:
    """Ask about launch after launch, until one is not passed."""
    said: list[Verdict] = []
    for start in starts:
        said.append(judge(start))
        if said[-1].status is not Status.PASS:
            break
    return said


def _timed(ask: Callable[[], list[Verdict]]) -> Cell:
    begin = time.perf_counter()
    verdicts = ask()
    return cell(verdicts, time.perf_counter() - begin)


def cell(verdicts: list[Verdict], seconds: float = 0.0) -> Cell:
    """Put verdicts, of which only the last one may be no PASS, into a cell.

    Raises
    ------
    ValueError
        If there is no verdict: nothing was asked.
    """
    if not verdicts:
        raise ValueError("cell([]): nobody was asked; ask about one launch at least")
    last, checked = verdicts[-1], sum(v.checked for v in verdicts)
    errors = [f for f in last.findings if f.severity == "error"]
    match last.status:
        case Status.PASS:
            return Cell("silent", "", 0, checked, seconds, last.reason)
        case Status.FAIL:
            kinds = ", ".join(dict.fromkeys(f.kind for f in errors))
            of = max(checked, len(errors))
            detail = brief("\n\n".join(map(str, errors)))
            return Cell("betrayed", kinds, len(errors), of, seconds, detail)
        case Status.UNKNOWN | Status.UNSUPPORTED:
            return Cell("unknown", last.status.value, 0, checked, seconds, last.reason)
