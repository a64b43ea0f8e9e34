"""Files that are kept from one process to the next: private, verified, bounded.

Any number of processes may read and write at once.  What cannot be read, or is not what was
written, counts as not there; what cannot be written is lost, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

LOOK = 64
"""One write in so many looks at how much there is."""


def cache_dir() -> Path:
    """Where files are kept; `FUSER_CACHE` moves it."""
    return Path(os.environ.get("FUSER_CACHE") or platformdirs.user_cache_path("fuser"))


def read(path: Path) -> tuple[bytes, str] | None:
    """Return the content of a file, and the note beside it; None if they are not as written."""
    try:
        header, _, content = path.read_bytes().partition(b"\n")
        meta = json.loads(header)
        if hashlib.sha256(content).hexdigest() != meta["sha256"]:
            return None  # torn by a kill or a full disk
        return content, str(meta["log"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(
    path: Path, content: bytes, note: str = "", *, most: int, among: Sequence[str] = ()
) -> None:
    """Write beside and rename, so that no reader sees half a file.

    Parameters
    ----------
    path : Path
        Of a name whose stem is a hexadecimal digest.
    content : bytes
        What is kept.
    note : str
        What belongs to it.
    most : int
        Bytes of all files of a kind; beyond, the oldest are forgotten, down to half of it.
    among : sequence of str
        Suffixes of that kind, beside the file's own.
    """
    meta = {"sha256": hashlib.sha256(content).hexdigest(), "log": note}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if int(path.stem, 16) % LOOK == 0:
            _evict(path.parent, {path.suffix, *among}, most)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as file:
            file.write(json.dumps(meta).encode() + b"\n" + content)
        os.replace(file.name, path)
    except OSError:
        return


def _evict(folder: Path, suffixes: set[str], most: int) -> None:
    entries = sorted((stat.st_mtime, stat.st_size, p) for p, stat in _entries(folder, suffixes))
    held = sum(size for _, size, _ in entries)
    if held <= most:
        return
    for _, size, path in entries:
        path.unlink(missing_ok=True)
        held -= size
        if held <= most // 2:
            return


def _entries(folder: Path, suffixes: set[str]) -> Iterator[tuple[Path, os.stat_result]]:
    for suffix in sorted(suffixes):
        for path in folder.glob(f"*{suffix}"):
            with suppress(FileNotFoundError):  # another process forgets, too
                yield path, path.stat()
