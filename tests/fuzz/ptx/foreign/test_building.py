"""How kernels of other projects are built: edits, the recorder, one launch of several."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fuser.errors import CompileError
from fuzz.ptx.foreign.build import Arrays, Edit, Foreign, build, edited
from fuzz.ptx.subjects import Memory
from oracles.verdict import Status

HEADER = """
template <int N> __global__ void scaled(int* out, int by) { out[threadIdx.x] = by * N + 0; }
inline void launch(int* out) {
    int* other;
    cudaMalloc(&other, 64);
    scaled<1><<<1, 16>>>(other, 1);
    scaled<3><<<1, 32>>>(out, 5);
}
"""
DRIVER = '#include "scaled.h"\nvoid drive() { launch(named<int>("out", 32)); }\n'


def _fill(_: Arrays) -> Callable[[Memory], str]:
    return lambda memory: "" if (memory["out"].view("i4") == 15).all() else "not 15"


def project(folder: Path, edits: tuple[Edit, ...] = (), entry: str = "Li3E") -> Foreign:
    """Write a project of one header, and return its kernel."""
    (folder / "theirs").mkdir(exist_ok=True)
    (folder / "theirs" / "scaled.h").write_text(HEADER, encoding="utf-8")
    return Foreign("scaled", (), ("theirs",), DRIVER, _fill, edits, entry=entry)


def test_an_edit_is_made_in_a_copy(tmp_path: Path) -> None:
    """What has none is used where it is."""
    (tmp_path / "work").mkdir()
    edit = Edit("theirs/scaled.h", "+ 0", "+ 1", "another value")
    (copy,) = edited(tmp_path, tmp_path / "work", project(tmp_path, (edit,)))
    assert "by * N + 1" in (copy / "scaled.h").read_text(encoding="utf-8")
    assert (tmp_path / "theirs" / "scaled.h").read_text(encoding="utf-8") == HEADER
    assert edited(tmp_path, tmp_path / "work", project(tmp_path)) == [tmp_path / "theirs"]


@pytest.mark.parametrize(("old", "times"), [("nothing of the sort", 0), ("scaled<", 2)])
def test_an_edit_without_exactly_one_place_is_an_error(
    tmp_path: Path, old: str, times: int
) -> None:
    """A project that has moved on is not judged as something else."""
    (tmp_path / "work").mkdir()
    edit = Edit("theirs/scaled.h", old, "", "this and that")
    with pytest.raises(CompileError, match=f"{times} places for: this and that"):
        edited(tmp_path, tmp_path / "work", project(tmp_path, (edit,)))


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_host_code_says_what_is_launched(tmp_path: Path) -> None:
    """Of its launches the one that is named; what was built is used again."""
    nvcc, kept = str(shutil.which("nvcc")), tmp_path / "kept"
    one = build(tmp_path, kept, project(tmp_path), nvcc)
    assert (one.launch.grid, one.launch.block) == ((1, 1, 1), (32, 1, 1))
    assert one.judged(one.text, 0).status is Status.PASS
    assert build(tmp_path, kept, project(tmp_path), nvcc).text == one.text
    assert len([*kept.iterdir()]) == 1
    edit = Edit("theirs/scaled.h", "+ 0", "+ 1", "another value")
    other = build(tmp_path, kept, project(tmp_path, (edit,)), nvcc)
    assert other.judged(other.text, 0).status is Status.FAIL
    assert not np.any(other.launch.buffers["out"].data)
    with pytest.raises(CompileError, match="one launch of"):
        build(tmp_path, kept, project(tmp_path, entry="scaled"), nvcc)
