"""A script needs only torch, shows its failure, and says when it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from functions import case_of

from fuzz.cases.case import strides_of, tensors
from fuzz.target.judge import judge
from fuzz.target.script import Target, inputs, script

TESTS = Path(__file__).parents[2]


def ended(text: str, folder: Path) -> tuple[int, str]:
    """Run a script away from our code, and return its exit code and what it prints."""
    path = folder / "script.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-P", str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_wrong_value_is_shown_and_seen_to_be_fixed(tmp_path: Path) -> None:
    """It has exit code 1 while it is wrong, and 0 as soon as it is right."""
    case = case_of(lambda ops, x: ops.tanh(x), kind="reals", gap=3)
    text = judge(Target("wrong_backends:tanh_is_sin"), case).scripts["wrong_backends:tanh_is_sin"]
    assert "fuser" not in text
    assert "fuzz" not in text
    code, said = ended(text, tmp_path)
    assert code == 1
    assert "still fails" in said
    assert ended(text.replace("tanh_is_sin", "plain"), tmp_path)[0] == 0


@pytest.mark.parametrize("backend", ["raises", "crashes"])
def test_a_compiler_that_raises_or_dies_is_shown(backend: str, tmp_path: Path) -> None:
    """A process that dies has no exit code of its own; the script has."""
    case = case_of(lambda ops, x: ops.tanh(x))
    target = Target(f"wrong_backends:{backend}")
    text = script(target, [case], target.backend, "it ended", ends=backend == "crashes")
    assert ended(text, tmp_path)[0] == 1
    assert ended(text.replace(backend, "plain"), tmp_path)[0] == 0


def test_a_wrong_form_is_shown(tmp_path: Path) -> None:
    """Type and shape of every output are looked at, too."""
    case = case_of(lambda ops, x: ops.tanh(x))
    target = Target("wrong_backends:plain")
    text = script(target, [case], target.backend, "of the wrong type")
    assert ended(text, tmp_path)[0] == 0
    assert ended(text.replace("torch.tanh(T0)", "T0.double()"), tmp_path)[0] == 1


def test_inputs_lie_as_the_case_says() -> None:
    """Gaps and offsets, in every type; always the same values."""
    for dtype in ("f32", "bf16", "i64", "i8", "bool", "f8e4m3"):
        case = case_of(lambda ops, x: ops.set(x), dtype, kind="reals", gap=5)
        (made,), (again,) = inputs(case), inputs(case)
        assert isinstance(made, torch.Tensor)
        assert isinstance(again, torch.Tensor)
        assert made.stride() == strides_of(case, tensors(case.fusion)[0]) == (13, 1)
        assert torch.equal(made.double().nan_to_num(7), again.double().nan_to_num(7))
