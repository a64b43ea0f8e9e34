"""Schedules that rows of products of several kinds try."""

from __future__ import annotations

from collections.abc import Iterable

from fuser.schedule.matmul_params import MatmulParams


def cooperative(tiles: Iterable[tuple[int, int, int]], depth: int = 64) -> dict[str, MatmulParams]:
    """Return cooperative ones by name, of tiles of so many rows, columns and warpgroups."""
    return {
        f"cooperative {m}x{n}": MatmulParams(
            (m, n, depth), groups, "cooperative", 4, 2, persistent=True,
            registers=(40, 232) if groups == 2 else None,
        )
        for m, n, groups in tiles
    }  # fmt: skip
