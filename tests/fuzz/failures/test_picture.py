"""Wrong values are seen as a picture: which tiles, and where in the first."""

import torch

from fuzz.failures.picture import drawn


def test_the_first_wrong_tile_is_drawn_with_the_grid() -> None:
    """The last column of the second tile, and a whole tile."""
    wrong = torch.zeros(4, 12, dtype=torch.bool)
    wrong[0, 7] = True
    wrong[2:, 8:] = True
    grid, tile = (picture.plain.splitlines() for picture in drawn("T3", wrong, (2, 4)))
    assert grid[0].strip() == "T3: 9 of 48 elements wrong; 2 x 3 tiles of 2 x 4"
    assert [row.strip() for row in grid[1:]] == ["·░·", "··█"]
    assert tile[0].strip() == "the first wrong tile, from [0, 4]"
    assert [row.strip() for row in tile[1:]] == ["···█", "····"]


def test_a_large_tile_fits_the_terminal() -> None:
    """Cells then stand for several elements, and say so; what is wrong alone is not lost."""
    wrong = torch.zeros(256, 256, dtype=torch.bool)
    wrong[200, 3] = True
    _, tile = (picture.plain.splitlines() for picture in drawn("T0", wrong, (256, 256)))
    assert tile[0].endswith("a cell is 16 x 4")
    assert sum(row.count("░") for row in tile[1:]) == 1
