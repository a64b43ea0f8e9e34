"""A script needs only torch, shows its failure, and says when it is gone."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from functions import case_of

from fuzz.cases.case import strides_of, tensors
from fuzz.target.judge import judge
from fuzz.target.script import EAGER, Target, inputs, script

TESTS = Path(__file__).parents[2]
BACKEND = "wrong_backends:{}"


def ended(text: str, folder: Path) -> int:
    """Run a script as if in a process of its own, and return its exit code."""
    path = folder / "script.py"
    path.write_text(text)
    torch._dynamo.reset()
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:
        return 1
    return 0


def test_a_wrong_value_is_shown_and_seen_to_be_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has exit code 1 while it is wrong, and 0 as soon as it is right."""
    case = case_of(lambda ops, x: ops.tanh(x), kind="reals", gap=3)
    target = Target(BACKEND.format("tanh_is_sin"))
    text = judge(target, case).scripts[target.backend]
    assert ended(text, tmp_path) == 1
    assert "still fails" in capsys.readouterr().out
    assert ended(text.replace("tanh_is_sin", "plain"), tmp_path) == 0


def test_it_needs_only_torch() -> None:
    """And the module of a backend that is none of torch's."""
    case = case_of(lambda ops, x: ops.order(x))
    text = script(Target(BACKEND.format("plain")), [case], EAGER, "it ended", ends=True)
    imports = re.findall(r"^ *(?:from|import) (\S+)", text, re.MULTILINE)
    assert imports == ["subprocess", "sys", "torch", "wrong_backends"]


def test_a_compiler_that_raises_is_shown(tmp_path: Path) -> None:
    """The script raises, too."""
    case = case_of(lambda ops, x: ops.tanh(x))
    target = Target(BACKEND.format("raises"))
    text = judge(target, case).scripts[target.backend]
    assert ended(text, tmp_path) == 1
    assert ended(text.replace("raises", "plain"), tmp_path) == 0


def test_a_compiler_that_dies_is_shown(tmp_path: Path) -> None:
    """A process that dies has no exit code of its own; the script has."""
    case = case_of(lambda ops, x: ops.tanh(x))
    target = Target(BACKEND.format("crashes"))
    path = tmp_path / "script.py"
    path.write_text(script(target, [case], target.backend, "it ended", ends=True))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "still fails: exit code -11" in done.stdout


def test_a_wrong_form_is_shown(tmp_path: Path) -> None:
    """Type and shape of every output are looked at, too."""
    case = case_of(lambda ops, x: ops.tanh(x))
    target = Target(BACKEND.format("plain"))
    text = script(target, [case], target.backend, "of the wrong type")
    assert ended(text, tmp_path) == 0
    assert ended(text.replace("torch.tanh(T0)", "T0.double()"), tmp_path) == 1


def test_inputs_lie_as_the_case_says() -> None:
    """Gaps and offsets, in every type; always the same values."""
    for dtype in ("f32", "bf16", "i64", "i8", "bool", "f8e4m3"):
        case = case_of(lambda ops, x: ops.set(x), dtype, kind="reals", gap=5)
        (made,), (again,) = inputs(case), inputs(case)
        assert isinstance(made, torch.Tensor)
        assert isinstance(again, torch.Tensor)
        assert made.stride() == strides_of(case, tensors(case.fusion)[0]) == (13, 1)
        assert torch.equal(made.double().nan_to_num(7), again.double().nan_to_num(7))
