"""All kernels of other projects that there are."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.ptx.foreign import (
    cute_tutorial,
    deep_gemm,
    fast_cu,
    flash_attention,
    grouped_gemm,
    programming_guide,
    thunder_kittens,
)
from fuzz.ptx.foreign.build import Foreign

PROJECTS = (
    programming_guide,
    fast_cu,
    deep_gemm,
    cute_tutorial,
    grouped_gemm,
    flash_attention,
    thunder_kittens,
)


def kernels() -> Iterator[Foreign]:
    """Yield them, project by project."""
    for project in PROJECTS:
        yield from project.kernels()
