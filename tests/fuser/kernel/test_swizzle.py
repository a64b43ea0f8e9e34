"""Swizzled addresses and matrix descriptors, against models of what the hardware does."""

from __future__ import annotations

from itertools import product

import pytest

from fuser.dtype import DType
from fuser.kernel.memory import Buffer
from fuser.kernel.swizzle import CHUNK, Descriptor, address, descriptor, panels, swizzled

TILES = [
    (swizzle, rows, panel * swizzle // 2)
    for swizzle in (32, 64, 128)
    for rows in (8, 16, 64, 128)
    for panel in (1, 2, 4)
]
"""Swizzle, rows and columns of 16-bit tiles."""


def tile(swizzle: int, rows: int, cols: int) -> Buffer:
    """A slot of bf16."""
    return Buffer("S", DType.BF16, (rows, cols), 1, 0, swizzle)


@pytest.mark.parametrize(("swizzle", "rows", "cols"), TILES)
def test_every_byte_has_one_element(swizzle: int, rows: int, cols: int) -> None:
    """A swizzle moves elements, it loses none."""
    buffer = tile(swizzle, rows, cols)
    found = {address(buffer, at) for at in product(range(rows), range(cols))}
    assert found == set(range(0, buffer.slot_nbytes, 2))


@pytest.mark.parametrize(("swizzle", "chunks"), [(32, 2), (64, 4), (128, 8)])
def test_a_chunk_moves_by_the_line_of_128_bytes(swizzle: int, chunks: int) -> None:
    """Address bits 4.. are exchanged for their xor with bits 7.., as many as count chunks."""
    for byte in range(0, 2048, CHUNK):
        chunk, line = byte // CHUNK % chunks, byte // 128 % chunks
        assert swizzled(byte, swizzle) == byte - chunk * CHUNK + (chunk ^ line) * CHUNK


def test_without_swizzle_a_tile_is_row_major() -> None:
    """Leading axes count as rows."""
    buffer = Buffer("S", DType.F32, (2, 3, 4), 1, 0)
    assert address(buffer, (1, 2, 3)) == 4 * (2 * 3 * 4 - 1)
    assert panels(buffer).count == 1


@pytest.mark.parametrize(("swizzle", "rows", "cols"), TILES)
def test_a_row_of_chunks_meets_every_bank_once(swizzle: int, rows: int, cols: int) -> None:
    """Eight rows of one 8 x 8 matrix, as stmatrix writes them, lie in eight groups of banks."""
    buffer = tile(swizzle, rows, cols)
    for row, col in product(range(0, rows, 8), range(0, cols, 8)):
        groups = {address(buffer, (row + lane, col)) // CHUNK % 8 for lane in range(8)}
        assert len(groups) == 8


@pytest.mark.parametrize(("swizzle", "rows", "cols"), [t for t in TILES if t[1] >= 8])
def test_a_fragment_in_strips_meets_no_bank_twice(swizzle: int, rows: int, cols: int) -> None:
    """32 lanes with 4 bytes each of an 8 x 8 matrix: 32 banks."""
    buffer = tile(swizzle, rows, cols)
    for row, col in product(range(0, rows, 8), range(0, cols, 8)):
        banks = {
            address(buffer, (row + lane // 4, col + lane % 4 * 2)) // 4 % 32 for lane in range(32)
        }
        assert len(banks) == 32


@pytest.mark.parametrize(("away", "most"), [(16, 1), (0, 2)], ids=["turned", "as they lie"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I32])
def test_half_a_warp_reads_words_of_strips_from_every_bank_once(
    dtype: DType, away: int, most: int
) -> None:
    """Where lanes of odd rows begin 16 columns away, as `tile::load_turned` has it."""
    rows, cols = 64, 64
    buffer = Buffer("S", dtype, (rows, cols), 1, 0, 128)
    for row, col, half in product(range(0, rows, 8), range(0, cols, 8), (0, 16)):
        words: dict[int, set[int]] = {}
        for lane in range(half, half + 16):
            column = (col + 2 * (lane % 4)) ^ (away * (lane // 4 % 2))
            at = address(buffer, (row + lane // 4, column))
            for word in (at // 4, at // 4 + 1):
                words.setdefault(word % 32, set()).add(word)
        assert max(map(len, words.values())) == most


def seen_by_the_tensor_core(made: Descriptor, swizzle: int, start: int, mn: int, k: int) -> int:
    """Byte at which an instruction reads element (mn, k), from the canonical layouts.

    K-major: rows of one swizzle span, 8 of them an atom, atoms at the stride.  MN-major: spans
    along M or N at the leading offset, 8 rows of K an atom, atoms at the stride.  The xor is taken
    of the final address.
    """
    at = start * CHUNK
    if made.transposed:
        span, within = divmod(mn * 2, swizzle)
        at += span * made.leading * CHUNK + within
        at += k // 8 * made.stride * CHUNK + k % 8 * swizzle
    else:
        at += mn // 8 * made.stride * CHUNK + mn % 8 * swizzle + k * 2
    return swizzled(at, swizzle)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize(("mn", "k"), [(64, 64), (128, 64), (256, 128), (192, 64)])
def test_every_instruction_reads_its_elements(
    transposed: bool, swizzle: int, mn: int, k: int
) -> None:
    """For all blocks of 64 rows and all steps of 16 along K."""
    shape = (k, mn) if transposed else (mn, k)
    buffer = tile(swizzle, *shape)
    made = descriptor(buffer, transposed=transposed)
    for block, step in product(range(mn // 64), range(k // 16)):
        start = made.start(block, step)
        for i, j in product(range(64), range(16)):
            at = (block * 64 + i, step * 16 + j)
            wanted = address(buffer, at[::-1] if transposed else at)
            assert seen_by_the_tensor_core(made, swizzle, start, i, j) == wanted


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [16, 48, 96, 256])
def test_a_wide_operand_is_read_whole(transposed: bool, n: int) -> None:
    """B is one operand of N rows or columns, of any number of spans."""
    swizzle = 32
    buffer = tile(swizzle, *((32, n) if transposed else (n, 32)))
    made = descriptor(buffer, transposed=transposed)
    for step, i, j in product(range(2), range(n), range(16)):
        at = (step * 16 + j, i) if transposed else (i, step * 16 + j)
        read = seen_by_the_tensor_core(made, swizzle, made.start(0, step), i, j)
        assert read == address(buffer, at)


@pytest.mark.parametrize(
    ("swizzle", "transposed", "shape", "row"),
    [
        # K-major 128: 1024 between 8 rows, +32 B a step, a jump of rows * 128 B past 64 elements
        (128, False, (128, 128), (64, 2, 4, 1024, 512, 1)),
        (128, False, (64, 64), (64, 2, 4, 512, 512, 1)),
        (64, False, (64, 64), (32, 2, 2, 256, 256, 2)),
        (32, False, (64, 16), (16, 2, 1, 128, 128, 3)),
        # MN-major 128: 1024 between 8 k, BK * 128 B between spans of 64, +2048 B a step
        (128, True, (64, 128), (64, 128, 4, 0, 512, 1)),
    ],
)
def test_descriptors_are_those_of_the_manual(
    swizzle: int, transposed: bool, shape: tuple[int, int], row: tuple[int, ...]
) -> None:
    """Stride, step, steps a panel, panel, block, mode: the numbers that kernels get wrong."""
    made = descriptor(tile(swizzle, *shape), transposed=transposed)
    assert (made.stride, made.step, made.per_panel, made.panel, made.block, made.mode) == row
    assert made.high == (made.mode << 30) + made.stride
    if transposed:
        assert made.leading * CHUNK == shape[0] * swizzle


def lanes_of(rows: int, cols: int, warps: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    """(warp, lane, pair) -> first element of the pair, of strips as device code counts them."""
    out = {}
    per_strip = cols // 4
    for warp, lane, v in product(range(warps), range(32), range(rows // 16 // warps * per_strip)):
        strip = v // per_strip * warps + warp
        row = 16 * strip + 8 * (v % 2) + lane // 4
        out[warp, lane, v] = (row, 8 * (v % per_strip // 2) + 2 * (lane % 4))
    return out


@pytest.mark.parametrize(("swizzle", "rows", "cols"), [(128, 64, 64), (64, 128, 32), (32, 64, 48)])
def test_matrix_accesses_move_each_lane_its_own_elements(
    swizzle: int, rows: int, cols: int
) -> None:
    """Lane l names row l % 8 of matrix l / 8; the hardware deals row r to lanes 4r..4r+3."""
    buffer, warps = tile(swizzle, rows, cols), 4
    held, per_strip = lanes_of(rows, cols, warps), cols // 4
    for warp, first in product(range(warps), range(0, rows // 16 // warps * per_strip, 4)):
        named = {}
        for lane in range(32):
            v = first + lane // 8
            corner = 16 * (v // per_strip * warps + warp) + 8 * (v % 2)
            named[lane] = address(buffer, (corner + lane % 8, 8 * (v % per_strip // 2)))
        for matrix, lane in product(range(4), range(32)):
            moved = named[8 * matrix + lane // 4] + lane % 4 * 4
            assert moved == address(buffer, held[warp, lane, first + matrix])


def turn(column: int, vector: int) -> int:
    """Which element of its vector a lane takes first, as `device/transpose.cuh` has it."""
    return column // max(vector, 8) % min(vector, 8)


@pytest.mark.parametrize(
    ("dtype", "vector", "cols", "most"),
    [
        (DType.BF16, 8, 64, 1),
        (DType.BF16, 8, 128, 2),
        (DType.F32, 4, 32, 1),
        (DType.F32, 8, 64, 1),
        (DType.I8, 16, 128, 1),
        (DType.I8, 8, 64, 1),
        (DType.F64, 2, 16, 1),
        (DType.BF16, 1, 64, 4),
    ],
)
@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_lanes_that_read_a_tile_across_meet_in_few_banks(
    dtype: DType, vector: int, cols: int, most: int, swizzle: int
) -> None:
    """None at all in tiles of eight vectors; what an access of 8 bytes moves is half a warp's."""
    rows, lanes = swizzle // dtype.nbytes, 16 if dtype.nbytes == 8 else 32
    buffer = Buffer("S", dtype, (cols, rows), 1, 0, swizzle)
    for first in range(0, rows * cols // vector - lanes + 1, lanes):
        for step in range(vector):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + lanes):
                row, column = divmod(lane * vector, cols)
                at = address(buffer, (column + (step ^ turn(column, vector)), row))
                for word in range(at // 4, -(-(at + dtype.nbytes) // 4)):
                    words.setdefault(word % 32, set()).add(word)
            assert max(map(len, words.values())) <= most
