"""Kernels of Triton: where that is not there, the command says so."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from fuzz.exit_code import USAGE
from fuzz.ptx.tutorials import main


def test_without_triton_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out."""
    monkeypatch.setitem(sys.modules, "fuzz.ptx.triton", None)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == USAGE
    assert "pip install triton" in done.output
