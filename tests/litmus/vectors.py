"""How many bytes a thread moves at once, and where these begin."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import Litmus, Run, broken, legal, load, n, single, store

WIDE = tuple(Run(1, (("n", columns),)) for columns in (32, 40, 64))
"""Rows of the tile, and longer ones."""


def matrix(name: str, dtype: DType, aligned: int, columns: Expr = n) -> kir.Tensor:
    """Return a tensor of 4 rows."""
    return kir.Tensor(name, dtype, (4, columns), (columns, 1), aligned)


def moved(
    vector: int,
    *,
    dtype: DType = DType.F32,
    aligned: int = 0,
    first: Expr = 0,
    end: Expr = 32,
    staged: kir.Buffer | None = None,
    copied: int = 0,
    ragged: bool = False,
) -> kir.Kernel:
    """Move 32 columns of 4 rows from one tensor to the first of another, `vector` at a time.

    Or those from `first` to `end`; by way of a slot of a `staged` buffer, where `copied` elements
    are put by each cp.async.
    """
    x = replace(matrix("X", dtype, aligned or vector), ragged=ragged)
    y = matrix("Y", dtype, 32, 32)
    tile = kir.Fragment("x", dtype, kir.Layout((4, 32), vector, 32))
    out = kir.Fragment("y", dtype, kir.Layout((4, 32), 1, 32))
    source = kir.Box(x, (0, first), (4, 32), (4, end))
    body: tuple[kir.Stmt, ...] = (
        load(tile, source),
        store(kir.Box(y, (0, 0), (4, 32), (4, 32)), tile),
    )
    if staged is not None:
        slot = kir.Slot(staged, staged.slots - 1)
        body = (
            *(
                (kir.CpAsync(slot, source, tile.layout, copied),)
                if copied
                else (body[0], store(slot, tile))
            ),
            *((kir.AsyncCommit(CP), kir.AsyncAwait(CP, 0)) if copied else ()),
            kir.BlockSync(0, 32),
            load(out, slot),
            store(kir.Box(y, (0, 0), (4, 32), (4, 32)), out),
        )
    buffers = () if staged is None else (staged,)
    made = single(body, buffers=buffers, tensors=(x, y))
    return replace(made, params=(n,), requires=(*made.requires, n >= 32, eq(n % 8, 0)))


def guarded(columns: int) -> kir.Kernel:
    """Read rows of `n` elements from the third on, four at once, if `n` is less than `columns`."""
    made = moved(4)
    tile = kir.Fragment("z", DType.F32, kir.Layout((4, 32), 4, 32))
    source = kir.Box(made.tensors[0], (0, 2), (4, 32), (4, 32))
    body = (*made.body, kir.IfThenElse(n < columns, (load(tile, source),)))
    return replace(made, body=body)


def repeated(how: str) -> kir.Kernel:
    """Take a tensor of 8 elements four times: load all, copy all by threads, or add to it."""
    x = kir.Tensor("X", DType.F32, (n,), (1,), 4, cycles=(kir.Cycle(1, 8, 1),))
    y = kir.Tensor("Y", DType.F32, (32,), (1,), 32)
    tile = kir.Fragment("x", DType.F32, kir.Layout((32,), 4, 32))
    source, slot = kir.Box(x, (0,), (32,), (32,)), kir.Slot(SLOT, 0)
    copies = (kir.CpAsync(slot, source, tile.layout, 4), kir.AsyncCommit(CP), kir.AsyncAwait(CP, 0))
    bodies: dict[str, tuple[kir.Stmt, ...]] = {
        "load": (load(tile, source),),
        "copy": (*copies, kir.BlockSync(0, 32), load(tile, slot)),
        "add": (load(tile, source), kir.AtomicAdd(source, tile)),
    }
    out = store(kir.Box(y, (0,), (32,), (32,)), tile)
    buffers = (SLOT,) if how == "copy" else ()
    made = single((*bodies[how], out), buffers=buffers, tensors=(x, y))
    return replace(made, params=(n,), requires=(*made.requires, eq(n, 32)))


CP = kir.AsyncKind.CP_ASYNC
SLOT = kir.Buffer("S", DType.F32, (32,), 1, 0)
LITMUS: tuple[Litmus, ...] = (
    legal(
        "loads_of_an_input_that_repeats",
        "H75",
        repeated("load"),
        "Threads find the 8 elements again and again.",
        launches=WIDE[:1],
    ),
    broken(
        "copies_of_an_input_that_repeats",
        "H75",
        repeated("copy"),
        "bounds",
        "loads_of_an_input_that_repeats",
        "A copy takes neighbours in memory.",
        launches=WIDE[:1],
        refused="repeats; only Load",
    ),
    broken(
        "additions_to_an_input_that_repeats",
        "H75",
        repeated("add"),
        "bounds",
        "loads_of_an_input_that_repeats",
        "Several positions are one element.",
        launches=WIDE[:1],
        refused="repeats; only Load",
    ),
    legal(
        "four_floats_at_once",
        "H75",
        moved(4),
        "16 bytes, at a multiple of 16 in every row.",
        launches=WIDE,
    ),
    broken(
        "eight_floats_at_once",
        "H75",
        moved(8),
        "bounds",
        "four_floats_at_once",
        "No instruction moves 32 bytes of a thread (PTX ISA, ld, vectors).",
        launches=WIDE,
        refused="are 32 bytes",
    ),
    legal(
        "eight_halves_at_once",
        "H75",
        moved(8, dtype=DType.BF16),
        "16 bytes.",
        launches=WIDE,
    ),
    broken(
        "sixteen_halves_at_once",
        "H75",
        moved(16, dtype=DType.BF16),
        "bounds",
        "eight_halves_at_once",
        "No instruction moves 32 bytes of a thread.",
        launches=WIDE,
        refused="are 32 bytes",
    ),
    broken(
        "four_floats_of_rows_aligned_to_two",
        "H75",
        moved(4, aligned=2),
        "bounds",
        "four_floats_at_once",
        "A vector lies at a multiple of its size (PTX ISA, addresses as operands).",
        launches=WIDE,
    ),
    broken(
        "four_floats_from_the_second_on",
        "H75",
        moved(4, first=2, end=n),
        "bounds",
        "four_floats_at_once",
        "Each vector lies half a vector off.",
        launches=WIDE[2:],
    ),
    legal(
        "four_floats_from_the_third_on_in_no_launch",
        "H75",
        guarded(32),
        "Rows have at least 32 elements.",
        launches=WIDE,
    ),
    broken(
        "four_floats_from_the_third_on_in_one_launch",
        "H75",
        guarded(33),
        "bounds",
        "four_floats_from_the_third_on_in_no_launch",
        "Rows of 32 are read half a vector off.",
        launches=WIDE[:1],
    ),
    broken(
        "four_floats_of_thirty",
        "H75",
        moved(4, end=30),
        "bounds",
        "four_floats_at_once",
        "The limit cuts the last vector of each row.",
        launches=WIDE,
    ),
    legal(
        "four_floats_of_thirty_of_ragged_rows",
        "H75",
        moved(4, end=30, ragged=True),
        "The last two of each row are read one by one.",
        launches=WIDE,
    ),
    broken(
        "four_floats_of_ragged_rows_from_the_second_on",
        "H75",
        moved(4, first=2, end=n, ragged=True),
        "bounds",
        "four_floats_of_thirty_of_ragged_rows",
        "Ragged rows end anywhere, but each vector lies half a vector off.",
        launches=WIDE[2:],
    ),
    legal(
        "four_floats_to_a_second_slot",
        "H75",
        moved(4, staged=kir.Buffer("S", DType.F32, (4, 32), 2, 0)),
        "Slots are multiples of 16 bytes.",
        launches=WIDE,
    ),
    broken(
        "four_floats_to_a_second_slot_at_an_odd_place",
        "H75",
        moved(4, staged=kir.Buffer("S", DType.F32, (4, 32), 2, 0, pitch=520)),
        "bounds",
        "four_floats_to_a_second_slot",
        "The second slot begins 8 bytes behind a multiple of 16.",
        launches=WIDE,
        refused="multiples of 16",
    ),
    legal(
        "copies_of_four_bytes",
        "H75",
        moved(2, dtype=DType.BF16, staged=kir.Buffer("S", DType.BF16, (4, 32), 1, 0), copied=2),
        "The least that cp.async copies.",
        launches=WIDE,
    ),
    broken(
        "copies_of_sixteen_bytes_of_ragged_rows",
        "H75",
        moved(4, end=30, ragged=True, staged=kir.Buffer("S", DType.F32, (4, 32), 1, 0), copied=4),
        "bounds",
        "four_floats_of_thirty_of_ragged_rows",
        "A cp.async copies all of its bytes, or none.",
        launches=WIDE,
    ),
    broken(
        "copies_of_two_bytes",
        "H75",
        moved(2, dtype=DType.BF16, staged=kir.Buffer("S", DType.BF16, (4, 32), 1, 0), copied=1),
        "bounds",
        "copies_of_four_bytes",
        "There is no cp.async of 2 bytes (PTX ISA, cp.async).",
        launches=WIDE,
        refused="takes 4, 8 or 16",
    ),
)
