"""What a run was made with: versions and sizes, no names of machines or people."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from fuser.runtime import nvrtc

PACKAGES = ("torch", "z3-solver", "hypothesis", "numpy", "cupy-cuda13x")


def versions() -> dict[str, str]:
    """Return versions by name; packages that are not installed are left out."""
    found = {"python": platform.python_version(), "nvrtc": nvrtc.version()}
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
