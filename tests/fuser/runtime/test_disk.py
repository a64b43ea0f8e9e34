"""Files that are kept: whole or not there, whoever writes at once."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from fuser.runtime import disk

NAME = "0123456789abcdef.tuned"
SIZE = 1 << 16


def put(folder: str, number: int) -> bool:
    """Write and read as one process of several; tell whether all that was read is whole."""
    path = Path(folder) / NAME
    whole = True
    for _ in range(30):
        disk.write(path, bytes([number]) * SIZE, f"{number}", most=1 << 30)
        found = disk.read(path)
        whole &= found is not None and found[0] == bytes([int(found[1])]) * SIZE
    return whole


def test_processes_may_write_the_same_file(tmp_path: Path) -> None:
    """A reader sees what one of them wrote, never a mixture, never half."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        assert all(pool.map(put, [str(tmp_path)] * 2, (1, 2)))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b"{}",
        b"{}\nabc",
        b"[]\nabc",
        b'"x"\nabc',
        b"\xff\xfe\n",
        b'{"sha256": 3, "log": ""}\nabc',
    ],
)
def test_what_is_not_as_written_is_not_there(torn: bytes, tmp_path: Path) -> None:
    """No error: who asked makes it again."""
    path = tmp_path / NAME
    path.write_bytes(torn)
    assert disk.read(path) is None


def test_files_are_private_and_verified(tmp_path: Path) -> None:
    """Of the user alone, as is the folder; one bit that flips is seen."""
    path = tmp_path / "cache" / NAME
    disk.write(path, b"content", "note", most=1 << 20)
    assert disk.read(path) == (b"content", "note")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.write_bytes(path.read_bytes().replace(b"content", b"contend"))
    assert disk.read(path) is None
    header = json.loads(path.read_bytes().splitlines()[0])
    assert header["log"] == "note"


def test_a_kind_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kinds stay."""
    monkeypatch.setattr(disk, "LOOK", 1)
    disk.write(tmp_path / "ff.cubin", bytes(1000), most=1 << 20)
    for n in range(16):
        disk.write(tmp_path / f"{n:02x}.tuned", bytes(1000), most=4000)
    assert len([*tmp_path.glob("*.tuned")]) <= 5
    assert (tmp_path / "ff.cubin").exists()
