"""Where the projects are from: address, commit, licence; and what of them a folder has."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """A project: the commit that was judged, and the licence that its text is under."""

    repository: str
    commit: str
    licence: str


SOURCES = {
    "cutlass": Source(
        "https://github.com/NVIDIA/cutlass",
        "7107b05535f8977f5ecb9d01ee203205b1fd9bc4",
        "BSD-3-Clause",
    ),
    "flash-attention": Source(
        "https://github.com/Dao-AILab/flash-attention",
        "0251105a2fb19d2957484b7f023cd8c115286ced",
        "BSD-3-Clause",
    ),
    "DeepGEMM": Source(
        "https://github.com/deepseek-ai/DeepGEMM",
        "54e22612409371d6364144b69086735beb54e98b",
        "MIT",
    ),
    "fast.cu": Source(
        "https://github.com/pranjalssh/fast.cu",
        "38eb642e0c081231d6f695978be63604bd7c689b",
        "MIT",
    ),
    "ThunderKittens": Source(
        "https://github.com/HazyResearch/ThunderKittens",
        "0b55588d2769dde0c7a9a606ffc015b0ca7a9551",
        "MIT",
    ),
}
"""By the name of its folder: ``git clone ADDRESS NAME``, ``git -C NAME checkout COMMIT``."""


def lacking(folder: Path, name: str) -> str:
    """Say why the checkout of a project cannot be used; "" if it can."""
    source = SOURCES[name]
    if not (folder / name).is_dir():
        return f"no checkout {name}: git clone {source.repository} {name}"
    asked = ["git", "-C", str(folder / name), "rev-parse", "--show-prefix", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    # A folder inside another repository has a prefix; an export of files has no commit to compare.
    if done.returncode == 0 and lines[0] == "" and lines[1] != source.commit:
        return f"{name} is at {lines[1][:12]}: git -C {name} checkout {source.commit[:12]}"
    return ""
