"""The corpus: cases that have failed once, judged by every campaign before it draws any.

One text of a case a file, in the folder `corpus` beside the ledger.  Campaigns add the failures
that they have made small and remove nothing: delete a file to forget a case, copy it to share it.
Those that everybody has to know are in `fuzz.failures.known`.
"""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.record import Record, signature
from fuzz.exit_code import writing
from fuzz.failures import known


def folder(ledger: Path) -> Path:
    """Return where the campaigns of a ledger keep such cases."""
    return ledger.parent / "corpus"


def add(ledger: Path, record: Record, text: str) -> None:
    """Keep the text of a failing case."""
    path = folder(ledger) / f"{record.case}.py"
    with writing(f"corpus {str(path)!r}", path, "name another --ledger"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {signature(record)}\n{text}", encoding="utf-8")


def texts(ledger: Path) -> dict[str, str]:
    """Return the texts by name of file, the newest first, behind those of known failures."""
    files = sorted(folder(ledger).glob("*.py"), key=lambda path: -path.stat().st_mtime_ns)
    return known.texts() | {path.name: path.read_text(encoding="utf-8") for path in files}
