"""Kernels of others in a table: values, mutants, memory that each launch finds as it was."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ptx_kernels import kernel
from rich.console import Console

from fuser.errors import CompileError
from fuzz.exit_code import CLEAN, FAILED, USAGE
from fuzz.ptx.others import main, ptx_of
from fuzz.ptx.subjects import Memory, Row, Subject, judged_row, show, table
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.verdict import Status, Verdict

REVERSED = """
  st.shared.u32 [%r6], %r1;
  bar.sync 0;
  xor.b32 %r7, %r6, 192;
  ld.shared.u32 %r8, [%r7];
  st.global.u32 [%rd3], %r8;
  bar.sync 0;
"""


def subject(body: str = REVERSED) -> Subject:
    """Return a kernel of 64 threads whose second barrier nobody needs."""
    buffers = {name: Buffer(name, np.zeros(256, np.uint8)) for name in ("out", "inp")}
    given = Launch((1, 1, 1), (64, 1, 1), (Pointer("out"), Pointer("inp")), buffers, 4096)

    def wrong(memory: Memory) -> str:
        good = memory["out"].view(np.uint32) == np.arange(64) ^ 48
        return "" if good.all() else f"{int((~good).sum())} are wrong"

    return Subject("reversed", kernel(body), given, wrong)


def test_mutants_that_survive_are_named() -> None:
    """Of two barriers one is needed."""
    printed = io.StringIO()
    assert table([subject()], Console(file=printed, width=160))
    assert "1 of 2" in printed.getvalue()
    assert "drop bar.sync" in printed.getvalue()


def test_mutants_of_one_kind_share_a_line_of_the_table() -> None:
    """With how many were not asked, and those that are neither refuted nor pass."""
    passed = Verdict("ptx", Status.PASS, 1)
    lines = ("drop bar.sync, line 3", "drop bar.sync, line 9", "drop wgmma.fence, line 5")
    row = Row("many", 10, passed, 0.1, 4, lines, ("drop bar.red, line 7",), 2, 6)
    printed = io.StringIO()
    show([row], Console(file=printed, width=200))
    assert "drop bar.sync, lines 3, 9; drop wgmma.fence, line 5; open: drop bar.red, line 7" in (
        printed.getvalue()
    )
    assert "4 of 8, 6 not asked" in printed.getvalue()
    assert row.record()["mutants"]["not asked"] == 6


def test_every_second_mutant_is_asked() -> None:
    """The others are counted as not asked."""
    row = judged_row(subject(), every=2)
    assert (row.asked, row.left) == (1, 1)
    assert judged_row(subject(), mutate=False).asked == 0


def test_a_wrong_value_fails_and_memory_is_restored() -> None:
    """The next launch begins with what was there."""
    one = subject(REVERSED.replace("192", "64"))
    verdict = one.judged(one.text, 0)
    assert verdict.status is Status.FAIL
    assert "are wrong" in str(verdict)
    assert not one.launch.buffers["out"].data.any()


CUDA = """
#include "scale.h"
template <int N> __global__ void scaled(int* out) { out[threadIdx.x] = SCALE * N; }
"""
SUBJECTS = """
from pathlib import Path
import numpy as np
from fuzz.ptx.others import ptx_of
from fuzz.ptx.subjects import Subject
from oracles.ptx.launch import Buffer, Launch, Pointer

def subjects():
    here = Path(__file__).parent
    text = ptx_of(here / "k.cu", include=[here / "include"], names=["scaled<3>"])
    memory = {"out": Buffer("out", np.zeros(128, np.uint8))}
    launch = Launch((1, 1, 1), (32, 1, 1), (Pointer("out"),), memory)
    right = lambda memory: (memory["out"].view("i4") == WANT).all()
    yield Subject("scaled", text, launch, lambda memory: "" if right(memory) else "wrong")
"""


def test_files_of_cuda_are_compiled_and_judged(tmp_path: Path) -> None:
    """A template has the instance that is named; headers are found."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "scale.h").write_text("#define SCALE 5\n", encoding="utf-8")
    (tmp_path / "k.cu").write_text(CUDA, encoding="utf-8")
    path = tmp_path / "subjects.py"
    for want, code in ((15, CLEAN), (16, FAILED)):
        path.write_text(SUBJECTS.replace("WANT", str(want)), encoding="utf-8")
        assert CliRunner().invoke(main, [str(path)]).exit_code == code
    path.write_text("", encoding="utf-8")
    assert CliRunner().invoke(main, [str(path)]).exit_code == USAGE


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    """With NVRTC's words."""
    (tmp_path / "k.cu").write_text("__global__ void k() { nothing(); }", encoding="utf-8")
    with pytest.raises(CompileError, match="nothing"):
        ptx_of(tmp_path / "k.cu")
