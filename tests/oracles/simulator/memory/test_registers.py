"""What threads compute in registers: here the columns of an accumulator that leave at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scanned
from matmuls import SLICED, sliced

from fuser.cookbook.matmul import D, M, N
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from oracles.prover.coverage.outputs import covered
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status, Verdict

WIDTH = 32
STRIPS = kir.Layout((64, WIDTH), 2, 128, kir.Deal.STRIPS)
WHOLE = kir.Fragment("whole", DType.F32, STRIPS)
PART = kir.Fragment("part", DType.F32, replace(STRIPS, shape=(64, 8)))
X = kir.Tensor("X", DType.F32, (M, N), (N, 1), 4)


def kinds(verdict: Verdict) -> set[str]:
    """Return the kinds of its errors."""
    return {f.kind for f in verdict.findings if f.severity == "error"}


def reversed_columns(*columns: int, part: kir.Fragment = PART) -> kir.Kernel:
    """Store slices one beside the other, in the order given."""
    load = kir.Load(WHOLE, kir.Box(X, (0, 0), (64, WIDTH), (M, N)), 2)
    body: list[kir.Stmt] = [load]
    for i, column in enumerate(columns):
        box = kir.Box(D, (0, 8 * i), (64, 8), (M, N))
        body += [kir.Slice(part, WHOLE, column), kir.Store(box, part, 2)]
    return kir.Kernel("slices", (M, N), (X, D), (), (), (), 128, tuple(body), ("D",))


def test_a_slice_has_the_columns_it_names() -> None:
    """Chunks of eight, taken from right to left."""
    x = np.arange(64 * WIDTH, dtype=np.float32).reshape(64, WIDTH)
    d = np.full_like(x, np.nan)
    launch = Launch(1, {"M": 64, "N": WIDTH})
    verdict = simulate(reversed_columns(24, 16, 8, 0), launch, {"X": x, "D": d})
    assert verdict.status is Status.PASS, verdict
    np.testing.assert_array_equal(d, x.reshape(64, 4, 8)[:, ::-1].reshape(64, WIDTH))


@pytest.mark.parametrize(
    "kernel",
    [
        reversed_columns(WIDTH),
        reversed_columns(-8),
        reversed_columns(0, part=replace(PART, layout=kir.Layout((64, 8), 2, 128))),
        reversed_columns(0, part=replace(PART, layout=replace(PART.layout, shape=(32, 8)))),
    ],
    ids=["beyond", "before", "other lanes", "other rows"],
)
def test_a_slice_moves_nothing_between_threads(kernel: kir.Kernel) -> None:
    """Each lane must hold the elements already; validation says so earlier."""
    assert kinds(search(kernel, Launch(1, {"M": 64, "N": WIDTH}), schedules=1)) == {"bounds"}


BYTES = kir.Fragment("bytes", DType.I8, replace(STRIPS, shape=(64, WIDTH // 2), vector=1))
PACKED = kir.Tensor("P", DType.I8, (M, N), (N, 1), 1)


def unpacked(
    dtype: DType = DType.I32, made: kir.Layout = STRIPS, bytes_: kir.Fragment = BYTES
) -> kir.Kernel:
    """Store the numbers of 4 bits in bytes, as f32."""
    numbers = kir.Fragment("numbers", dtype, made)
    wide = kir.Fragment("wide", DType.F32, made)
    body = (
        kir.Load(bytes_, kir.Box(PACKED, (0, 0), bytes_.layout.shape, (M, N)), 1),
        kir.Unpack(numbers, bytes_),
        kir.Compute(wide, "promote", (numbers,)),
        kir.Store(kir.Box(D, (0, 0), made.shape, (M, N)), wide, 1),
    )
    return kir.Kernel("unpacked", (M, N), (PACKED, D), (), (), (), 128, body, ("D",))


@pytest.mark.parametrize("dtype", [DType.I32, DType.BF16, DType.F16])
def test_a_byte_has_two_signed_numbers(dtype: DType) -> None:
    """The lower four bits are the first of a row."""
    p = np.arange(64 * WIDTH, dtype=np.int64).astype(np.int8).reshape(64, WIDTH)
    d = np.full((64, WIDTH), np.nan, np.float32)
    launch = Launch(1, {"M": 64, "N": WIDTH})
    verdict = simulate(unpacked(dtype), launch, {"P": p, "D": d})
    assert verdict.status is Status.PASS, verdict
    bits = np.stack([p & 15, p >> 4 & 15], -1).reshape(64, -1)[:, :WIDTH]
    np.testing.assert_array_equal(d, np.where(bits < 8, bits, bits - 16))


@pytest.mark.parametrize(
    "kernel",
    [
        unpacked(bytes_=replace(BYTES, layout=kir.Layout((64, WIDTH // 2), 1, 128))),
        unpacked(bytes_=replace(BYTES, layout=replace(BYTES.layout, shape=(32, WIDTH // 2)))),
        unpacked(bytes_=replace(BYTES, layout=replace(BYTES.layout, shape=(64, WIDTH // 4)))),
    ],
    ids=["other lanes", "other rows", "fewer bytes"],
)
def test_bytes_are_unpacked_where_they_are(kernel: kir.Kernel) -> None:
    """Each lane must hold those of its elements."""
    assert kinds(search(kernel, Launch(1, {"M": 64, "N": WIDTH}), schedules=1)) == {"bounds"}


def test_a_slice_of_what_was_never_written_is_an_error() -> None:
    """As for any other use of a register."""
    kernel = reversed_columns(0)
    empty = replace(kernel, body=kernel.body[1:])
    assert kinds(search(empty, Launch(1, {"M": 64, "N": WIDTH}), schedules=1)) == {"RAW"}


@pytest.mark.parametrize(("how", "found"), SLICED.items())
def test_a_slice_uses_an_accumulator_as_any_statement_does(how: str, found: set[str]) -> None:
    """Not while a wgmma is in flight; and a fence is due before the next one."""
    launch = Launch(1, {"M": 64, "N": 8, "K": 16 * 3})
    assert kinds(search(sliced(how), launch, schedules=6)) == found


# --- scans ----------------------------------------------------------------------------------------

ROWS = kir.Layout((4, 128), 2, 128, kir.Deal.ROWS, across=64)
"""Rows of two warps."""
PARTS = replace(ROWS, shape=(4, 2), vector=1, alike=32)
EVERY = replace(PARTS, vector=2, alike=64)
BEGIN = replace(EVERY, shape=(4, 1), vector=1)
ALL = replace(ROWS, across=128, shape=(4, 256))
SCANS = {
    "runs of a warp": (scanned.kernel(ROWS, PARTS), 64),
    "runs of a warp, exclusive": (scanned.kernel(ROWS, PARTS, exclusive=True), 64),
    "whole rows": (scanned.kernel(EVERY, BEGIN), 2),
    "whole rows, each warp its own": (
        scanned.kernel(EVERY, BEGIN, dst=PARTS, exclusive=True), 2,
    ),
    "columns": (scanned.kernel(ALL, replace(ALL, shape=(1, 256))), 0),
    "largest so far": (scanned.kernel(ROWS, PARTS, "maximum"), 64),
}  # fmt: skip
"""Kernels, and how long their runs are; 0 for columns."""


def sizes(tensor: kir.Tensor) -> tuple[int, ...]:
    """Return the extents of a tensor, all of which are numbers."""
    return tuple(n for n in tensor.extents if isinstance(n, int))


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_puts_together_what_stands_before(name: str) -> None:
    """Of its run, behind what that begins with; validation and the judge of coverage agree."""
    kernel, run = SCANS[name]
    validate(kernel, after="kernel", final=True)
    assert not [f for f in covered(kernel, rlimit=500_000).findings if "hands" in f.witness]
    (stmt,) = (s for s in kernel.walk() if isinstance(s, kir.Scan))
    rng = np.random.default_rng(1)
    x, b = (rng.integers(-9, 9, sizes(t)).astype(np.float32) for t in kernel.tensors[:2])
    y = np.full_like(x, np.nan)
    assert simulate(kernel, Launch(1, {}), {"X": x, "B": b, "Y": y}).status is Status.PASS
    put = np.add if stmt.op == "add" else np.maximum
    runs = x.reshape(-1, run) if run else x.T
    begins = b.reshape(-1, 1) if run else b.T
    want = put.accumulate(np.concatenate([begins, runs], axis=1), axis=1)
    want = want[:, :-1] if stmt.exclusive else want[:, 1:]
    np.testing.assert_array_equal(y, want.reshape(x.shape) if run else want.T)


OUT_OF_REACH = {
    "a run of two warps": scanned.kernel(ROWS, BEGIN),
    "begun elsewhere": scanned.kernel(EVERY, replace(PARTS, shape=(4, 2))),
    "columns of several threads": scanned.kernel(ROWS, replace(ROWS, shape=(1, 128))),
    "two vectors a thread": scanned.kernel(
        replace(ROWS, across=32), replace(ROWS, across=32, shape=(4, 1), vector=1, alike=32)
    ),
}


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_a_scan_of_what_others_hold_is_refused(name: str) -> None:
    """By validation, and by the judge of coverage on its own."""
    kernel = OUT_OF_REACH[name]
    with pytest.raises(ScheduleError):
        validate(kernel, after="kernel", final=True)
    assert any("who scan it" in f.witness for f in covered(kernel, rlimit=500_000).findings)


def test_a_scan_across_warps_is_a_finding_of_the_simulator() -> None:
    """It holds no more than a warp does."""
    kernel = OUT_OF_REACH["a run of two warps"]
    arrays = {t.name: np.zeros(sizes(t), np.float32) for t in kernel.tensors}
    verdict = simulate(kernel, Launch(1, {}), arrays)
    assert kinds(verdict) == {"bounds"}
