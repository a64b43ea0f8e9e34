"""How the command line shows what the judges say: colours on a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from oracles import lanes
from oracles.cli.advice import Explanation, Note, Survey
from oracles.cli.launching import Again
from oracles.prover.clock import Tell
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness

STYLE = {
    Status.PASS: "bold green",
    Status.FAIL: "bold red",
    Status.UNKNOWN: "bold yellow",
    Status.UNSUPPORTED: "bold magenta",
}
"""Colours of the four answers."""
PLAIN_WIDTH = 140
"""Columns where the output is no terminal."""
QUIET_S = 2.0
"""CPU seconds of a proof before there is a line about its progress."""
CLEAR = "\x1b[K"
"""What clears a terminal's line from here on."""
_CODE = 88
"""Columns that the kernel's text may take beside notes."""
_SEVERITY = {"error": "red", "warning": "yellow"}


def console(*, stderr: bool = False) -> Console:
    """Return where to print: the terminal, or a file of fixed width."""
    out = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return out if out.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


@contextmanager
def progress(name: str) -> Iterator[Tell | None]:
    """Show on a terminal how long a proof has taken and what it is at, from `QUIET_S` on."""
    errors = console(stderr=True)

    def tell(seconds: float, at: str) -> None:
        if seconds > QUIET_S:
            errors.file.write(f"\r{name}: {seconds:.0f} CPU s, {at}{CLEAR}")
            errors.file.flush()

    try:
        yield tell if errors.is_terminal else None
    finally:
        if errors.is_terminal:
            errors.file.write(f"\r{CLEAR}")
            errors.file.flush()


def verdict(out: Console, name: str, answer: Verdict, seconds: float) -> None:
    """Print the head of an answer: status, claims, time, and the reason if there is one."""
    head = Text.assemble(
        (f"{answer.status.value:<12}", STYLE[answer.status]),
        (name, "bold"),
        (f"  {answer.checked:,} claims checked in {seconds:.2f} s", "dim"),
    )
    out.print(head)
    for one in answer.confirmed:
        many = f"{one.questions:,} question" + ("" if one.questions == 1 else "s")
        out.print(Text(f"  {one.name}: decided by z3, {many}", "dim"), soft_wrap=True)
    if answer.reason:
        out.print(Text(f"  {answer.reason}"), soft_wrap=True)


def findings(
    out: Console, kernel: kir.Kernel | None, found: Iterable[Finding], *, drawn: bool = False
) -> None:
    """Print each finding, briefly if its execution is `drawn`, with the lines it is about."""
    source = text(kernel).splitlines() if kernel is not None else []
    for finding in found:
        style = _SEVERITY[finding.severity]
        says = finding.witness.split("\n")[0] if drawn else finding.witness
        out.print(Text.assemble("  ", (f"{finding.severity}: {finding.kind}", style)))
        if not source or not finding.lines:
            out.print(Text(f"    {finding.where}", style="cyan"), soft_wrap=True)
        for number in finding.lines if source else ():
            code = source[number - 1].strip()
            row = Text(f"    {number:>5}  {lanes.brief(code)}", style="cyan")
            out.print(row, no_wrap=True, overflow="ellipsis")
            # The statements stand above; the judge's words need not repeat them.
            says = says.replace(f"`{code}`: ", "").replace(f" (the other is `{code}`)", "")
        out.print(Text(f"         {says}"), soft_wrap=True)


def witness(out: Console, found: Witness) -> None:
    """Print an execution as a diagram of lanes."""
    out.print()
    for row in lanes.text(found, width=max(out.width, 60)).splitlines():
        style = "bold red" if row.startswith((" ╔►", " ╚►", "►", "missing")) else ""
        out.print(Text(row, style=style), soft_wrap=True)


def replay(out: Console, spec: str, name: str, found: Again, policy: str) -> None:
    """Print whether the simulator goes wrong too, and how to see it."""
    style = "bold red" if found.kind else "yellow"
    out.print(Text(str(found), style=style), soft_wrap=True)
    if found.kind:
        file = spec if ":" in spec else f"{spec}:{name}"
        words = f"python -m oracles simulate --schedules 1 --seed {found.seed} --policy {policy}"
        out.print(Text(f"  again: {words} {file} {found.launch}"), soft_wrap=True)


def advice(out: Console, survey: Survey) -> None:
    """Print which syncs may go; nothing where nothing may and all was asked."""
    if survey.advice:
        out.print(Text("  advice: proved without, under both policies", style="bold"))
    for piece in survey.advice:
        out.print(Text(f"    {piece}"), soft_wrap=True)
    several = len(survey.advice) > 1 or any(len(a.lines) > 1 for a in survey.advice)
    if (several or survey.then) and survey.together:
        first, *others = [", ".join(map(str, lines)) for lines in survey.together]
        out.print(Text(f"    together may go: lines {first}"), soft_wrap=True)
        if survey.then:
            says = f"    and then also: lines {', '.join(map(str, survey.then))}"
            out.print(Text(says), soft_wrap=True)
        for lines in others:
            out.print(Text(f"    or instead: lines {lines}"), soft_wrap=True)
        if not survey.complete:
            out.print(Text("    other sets were not searched for"), soft_wrap=True)
    if survey.cut:
        says = f"  advice was cut after {survey.proofs} proofs: more syncs may be needless"
        out.print(Text(says, style="yellow"), soft_wrap=True)


def explanation(out: Console, kernel: kir.Kernel, found: Explanation) -> None:
    """Print the kernel's text with a note beside every sync."""
    notes: Mapping[int, Note] = {note.line: note for note in found.notes}
    source = [lanes.brief(row) for row in text(kernel).splitlines()]
    room = min(_CODE, max((len(row) for row in source), default=0), out.width - 50)
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(width=max(room, 30), no_wrap=True, overflow="ellipsis")
    table.add_column(overflow="fold")
    for number, row in enumerate(source, 1):
        note = notes.get(number)
        style = {True: "", False: "bold yellow", None: "magenta"}[note.needed] if note else ""
        says = Text(note.says if note else "", style=style)
        table.add_row(str(number), Text(row, style="bold" if note else "dim"), says)
    out.print(table)
