"""What threads compute in registers: here the columns of an accumulator that leave at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matmuls import SLICED, sliced

from fuser.cookbook.matmul import D, M, N
from fuser.dtype import DType
from fuser.kernel import ir as kir
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
