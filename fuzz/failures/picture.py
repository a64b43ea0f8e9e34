"""Wrong values as pictures in the terminal: the tiles of an output, and the first wrong one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rich.text import Text

from fuser.pipeline import Launch
from fuser.runtime.binding import bind
from fuser.schedule.matmul import MatmulTiling
from fuzz.campaign.judge import POLICY
from fuzz.campaign.launches import calls
from fuzz.cases.case import Case, compiled, inputs, specs
from fuzz.values import additions, partials
from oracles.differential import wrong_elements
from oracles.reference.evaluate import evaluate
from oracles.simulator import simulate

CELLS = (16, 64)
"""Rows and columns of a picture, at most; a cell then stands for several elements."""
SHADES = "·░▒▓█"
"""From all right to all wrong."""


def pictures(case: Case) -> Iterator[Text]:
    """Yield two pictures of each output with wrong values: its tiles, and the first wrong tile."""
    program = compiled(case)
    launches, memory = calls(
        case, inputs(case), program, bind(program, specs(case), sms=1 + case.seed % 4)
    )
    given = [memory[arg.name] for arg in case.fusion.inputs]
    for call in launches:
        if call.launch is not None:
            arrays = call.arrays()
            simulate.simulate(
                call.kernel, call.launch, arrays, call.scalars, seed=case.seed, policy=POLICY
            )
            call.store(arrays)
    rounded = partials(case.params)
    exact = case.kind == "integers" and rounded is None
    expected = evaluate(case.fusion, given, rounded, additions(case))
    for tv, want in zip(case.fusion.outputs, expected, strict=True):
        got = memory[tv.name]
        assert isinstance(got, torch.Tensor), "outputs are no numbers"
        wrong = wrong_elements(want, got, exact=exact)
        if bool(wrong.any()):
            rows, cols = _tile(program.launches[-1])
            yield from drawn(str(tv), wrong, (rows, cols))


def drawn(name: str, wrong: torch.Tensor, tile: tuple[int, int]) -> Iterator[Text]:
    """Yield the pictures of an output, given which of its elements are wrong.

    `tile` has rows and columns; axes before the last count as rows.
    """
    flat = wrong.reshape(-1, wrong.shape[-1] if wrong.dim() else 1).to(torch.float64)
    rows, cols = (min(n, max(m, 1)) for n, m in zip(tile, flat.shape, strict=True))
    grid = _pooled(flat, (rows, cols))
    many = int(flat.sum())
    said = f"{name}: {many} of {flat.numel()} elements wrong; {grid.shape[0]} x {grid.shape[1]}"
    yield _picture(f"{said} tiles of {rows} x {cols}", grid)
    first = (grid > 0).nonzero()[0]
    top, left = int(first[0]) * rows, int(first[1]) * cols
    part = flat[top : top + rows, left : left + cols]
    yield _picture(f"the first wrong tile, from [{top}, {left}]", part)


def _picture(title: str, values: torch.Tensor) -> Text:
    steps = tuple(-(-n // most) for n, most in zip(values.shape, CELLS, strict=True))
    cells = _pooled(values, (steps[0], steps[1]))
    if steps != (1, 1):
        title += f"; a cell is {steps[0]} x {steps[1]}"
    out = Text(f"  {title}\n")
    for row in cells.tolist():
        out.append("    ")
        for share in row:
            shade = SHADES[0 if share == 0 else max(1, round(share * (len(SHADES) - 1)))]
            out.append(shade, style="red" if share else "dim")
        out.append("\n")
    return out


def _pooled(values: torch.Tensor, each: tuple[int, int]) -> torch.Tensor:
    """Return the mean of each block of so many rows and columns; those at the ends are smaller."""
    down = [block.mean(0) for block in values.split(each[0])]
    return torch.stack([b.mean(1) for b in torch.stack(down).split(each[1], dim=1)], dim=1)


def _tile(launch: Launch) -> tuple[int, int]:
    """Return rows and columns of what a CTA computes at a time."""
    tile = launch.tiling.tile
    if isinstance(launch.tiling, MatmulTiling):
        return tile[launch.tiling.rows], tile[launch.tiling.cols]
    return (tile[-2] if len(tile) > 1 else 1), tile[-1]
