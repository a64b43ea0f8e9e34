"""What a run was made with: versions and sizes, no names of machines or people."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from fuser.runtime import nvrtc

PACKAGES = ("torch", "z3-solver", "hypothesis", "numpy", "cupy-cuda13x")


def revision() -> dict[str, str]:
    """Return the revision of this source as ``fuser``, with a + where files differ from it.

    Nothing where there is no git, or no repository around the source.
    """
    here = Path(__file__).parent
    words = ("git", "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*")
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"fuser": done.stdout.strip()}


def versions() -> dict[str, str]:
    """Return versions by name; packages that are not installed are left out."""
    found = revision() | {"python": platform.python_version(), "nvrtc": nvrtc.version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str | int]:
    """Return what a reader needs to judge times by."""
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
    }
