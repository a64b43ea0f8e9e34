"""What all tests share: golden texts, Hypothesis profiles, and skipping where there is no GPU."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from fuser.runtime.executable import device_present

gc.disable()  # what is imported and collected is no garbage; enabled again when all is there

GOLDEN = Path(__file__).parent / "golden"

# Hypothesis draws constants of the modules that a process has imported: a seed would draw other
# cases beside other tests, and tests of what is drawn fail now and then.
providers._get_local_constants = lambda: providers._local_constants

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one flag that refreshes golden texts."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long ones; skip gpu-marked ones, with the reason, without a device.

    A long test that is the last to begin has a machine for itself: the last minute of the suite.
    """
    items.sort(key=lambda item: "long" not in item.keywords)
    if device_present():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish() -> None:
    """Let garbage be looked for seldom, and never in modules and tests, which all stay."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@dataclass(frozen=True)
class Golden:
    """The golden text of one test."""

    path: Path
    update: bool

    def check(self, text: str) -> None:
        """Compare with the file, or rewrite it under --update-golden."""
        if self.update:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(text)
            return
        assert self.path.exists(), f"{self.path} is missing; run pytest --update-golden, read it"
        assert text == self.path.read_text(), "the text changed; --update-golden, then read it"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return the golden text named after the requesting test."""
    name = request.node.name.removeprefix("test_").replace("/", "-")
    return Golden(GOLDEN / f"{name}.txt", bool(request.config.getoption("--update-golden")))
