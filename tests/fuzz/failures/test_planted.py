"""Planted faults still apply, and each makes its least case fail that passes without it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from fuzz.failures.planted import ROOT, Found, _started, planted

FAULTS = ROOT / "tests" / "fuzz" / "faults"
PATCHES = sorted(FAULTS.glob("*.patch"))
HARNESS = """
import os, pathlib, sys
from fuzz.campaign.judge import CPU_ORACLES, judge
from fuzz.failures.script import read
ends = []
for line in sys.stdin:
    folder, script = line.split()
    child = os.fork()
    if not child:
        if folder != "-":
            for name in list(sys.modules):
                if name.startswith(("fuser", "fuzz")) and not name.startswith(KEPT):
                    del sys.modules[name]
                elif name.startswith("fuser"):
                    module = sys.modules[name]
                    if hasattr(module, "__path__"):
                        module.__path__ = [os.path.join(folder, *name.split("."))]
            sys.path.insert(0, folder)
            from fuzz.campaign.judge import judge
            from fuzz.failures.script import read
        one = read(pathlib.Path(script))
        asked = [one.oracle] if one.oracle in CPU_ORACLES else []
        records = [r for case in one.cases for r in judge(case, asked)]
        os._exit(any(r.status in ("fail", "error") for r in records))
    ends.append(os.waitpid(child, 0)[1] >> 8)
print(*ends)
"""
"""Judges each script; with the compiler of a folder, of which `KEPT` modules have no faults."""
KEPT = ("fuser.kernel", "fuser.expr", "fuser.dtype", "fuser.errors", "fuser.arch")


def judged(pairs: list[tuple[Path | str, Path]]) -> list[str]:
    """Return 1 for each script that fails with the compiler of a folder, 0 where it passes."""
    done = subprocess.run(
        [sys.executable, "-c", f"KEPT = {KEPT!r}\n{HARNESS}"],
        input="".join(f"{folder} {script}\n" for folder, script in pairs),
        cwd=FAULTS,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.long
def test_every_fault_has_a_case_that_fails_only_with_it() -> None:
    """Else a campaign would look for what is not there."""
    assert len(PATCHES) >= 10
    with ExitStack() as stack:
        pairs: list[tuple[Path | str, Path]] = [("-", p.with_suffix(".py")) for p in PATCHES]
        pairs += [(stack.enter_context(planted(p)), p.with_suffix(".py")) for p in PATCHES]
        assert judged(pairs) == ["0"] * len(PATCHES) + ["1"] * len(PATCHES)


def test_packages_are_found_where_the_caller_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign that does not begin finds nothing, which reads as a fault that was missed."""
    (tmp_path / "elsewhere.py").touch()
    for path, code in ((str(tmp_path), 0), ("", 1)):
        monkeypatch.setenv("PYTHONPATH", path)
        with _started(ROOT, "elsewhere") as process:
            assert process.wait() == code


def test_a_patch_that_does_not_apply_is_told(tmp_path: Path) -> None:
    """The code has moved on, and the fault with it."""
    patch = tmp_path / "old.patch"
    patch.write_text(PATCHES[0].read_text().replace("     ", "   ", 1).replace("-    ", "-    old"))
    with pytest.raises(ValueError, match="does not apply any more"), planted(patch):
        pass


def test_a_fault_is_found_only_with_a_small_script_that_tells_it_apart() -> None:
    """Each of these alone is not enough."""
    good = Found("some", 1.0, 2.0, 3, fails=True, fixed=True)
    assert good.good
    for operators, fails, fixed in ((4, True, True), (3, False, True), (3, True, False)):
        assert not Found("some", 1.0, 2.0, operators, fails=fails, fixed=fixed).good
