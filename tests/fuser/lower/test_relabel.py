"""Registers under other positions: what every part says of it, and that none of them get lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from product_kernels import kernel as compiled
from split_products import BY_TMA, SMALL, SMALL_AMPERE

from fuser.codegen import cuda
from fuser.codegen.registers import plan
from fuser.cookbook.matmul import D, M, N
from fuser.dtype import DType
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.legal import problems
from fuser.runtime.kernel_launch import launch_kernel
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.kernels.fusions import gated
from oracles.assembler import judge_log
from oracles.prover.coverage.outputs import covered
from oracles.simulator.memory.tile import registers_of, tile
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status

ROWS, COLS, THREADS = 64, 32, 128
RLIMIT = 500_000
STRIPS = kir.Layout((ROWS, COLS), 2, THREADS, kir.Deal.STRIPS)
ROUNDS = kir.Layout((ROWS, COLS), 4, THREADS)
ACC = kir.Fragment("acc", DType.F32, STRIPS)
FLAT = kir.Fragment("flat", DType.F32, ROUNDS)
X = kir.Tensor("X", DType.F32, (M, N), (N, 1), 4)
W = kir.Tensor("W", DType.F32, (ROWS, COLS), (COLS, 1), 4)


def box(tensor: kir.Tensor) -> kir.Box:
    """The one tile."""
    return kir.Box(tensor, (0, 0), (ROWS, COLS), tensor.extents)


def moved(*body: kir.Stmt) -> kir.Kernel:
    """A kernel of one CTA that loads `acc` from X, and stores it to D behind a body."""
    whole = (kir.Load(ACC, box(X), 2), *body, kir.Store(box(D), ACC, 2))
    return kir.Kernel(
        "relabels",
        (M, N),
        (X, D, W),
        (),
        (),
        (),
        THREADS,
        whole,
        ("D",),
        requires=(eq(kir.GRID, 1), eq(M, ROWS), eq(N, COLS)),
        workspaces=("W",),
    )


ZERO = kir.Compute(ACC, "mul", (ACC, kir.Literal(0.0, DType.F32)))
THERE, BACK = kir.Slice(FLAT, ACC, 0), kir.Slice(ACC, FLAT, 0)
STORED, LOADED = kir.Store(box(W), FLAT, 4), kir.Load(FLAT, box(W), 4)
ROUND_TRIP = moved(THERE, STORED, ZERO, LOADED, BACK)


def flat(
    shape: tuple[int, ...] = (ROWS, COLS),
    *,
    vector: int = 4,
    threads: int = THREADS,
    folded: int = 1,
) -> kir.Fragment:
    """The fragment in rounds, in another layout."""
    return replace(FLAT, layout=kir.Layout(shape, vector, threads, folded=folded))


HALF_DEALT = kir.Layout((16, 32), 2, 64, kir.Deal.STRIPS)
WRONG = {
    "columns": (kir.Slice(FLAT, ACC, 8), "has not the registers of"),
    "shape": (kir.Slice(flat((COLS, ROWS)), ACC, 0), "has not the registers of"),
    "size": (kir.Slice(flat((ROWS, 16)), ACC, 0), "has not the registers of"),
    "threads": (kir.Slice(flat(threads=64), ACC, 0), "has not the registers of"),
    "rounds": (kir.Slice(flat(vector=32), ACC, 0), "2048 elements in rounds of 4096"),
    "folded": (kir.Slice(flat((ROWS, COLS), folded=4), ACC, 0), "folded by 1 and 4"),
}


def test_it_reads_like_this() -> None:
    """No column is named: all registers go."""
    assert (line(THERE), line(BACK)) == ("flat = relabel(acc)", "acc = relabel(flat)")


def test_a_right_one_passes() -> None:
    """The validator and the judge of shapes, both ways."""
    assert not list(problems(ROUND_TRIP, final=True))
    assert not covered(ROUND_TRIP, rlimit=RLIMIT).findings


@pytest.mark.parametrize(("stmt", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_refused(stmt: kir.Slice, says: str) -> None:
    """By all who look at layouts: not the same registers in every thread."""
    made = moved(stmt)
    assert any(says in problem for problem in problems(made, final=True))
    found = [f.witness for f in covered(made, rlimit=RLIMIT).findings]
    assert any("are not those of" in one for one in found)
    if "folded" not in says:
        verdict = search(made, Launch(1, {"M": ROWS, "N": COLS}), schedules=1)
        assert {f.kind for f in verdict.findings} == {"bounds"}


def test_threads_without_a_strip_have_no_registers_to_relabel() -> None:
    """One strip of 16 rows for two warps: rounds would give both of them elements."""
    acc, rounds = (replace(ACC, layout=HALF_DEALT), flat((16, 32), threads=64))
    zero = kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),))
    made = replace(ROUND_TRIP, threads=64, body=(zero, kir.Slice(rounds, acc, 0)))
    says = "16 rows in strips for every 32, 512 elements in rounds of 256; give every thread"
    assert any(says in problem for problem in problems(made, final=True))
    found = [f.witness for f in covered(made, rlimit=RLIMIT).findings]
    assert any("are not those of" in one for one in found)


def test_types_are_the_same() -> None:
    """Nothing is converted."""
    made = moved(kir.Slice(replace(FLAT, dtype=DType.I32), ACC, 0))
    assert any("f32 into i32; make them the same" in p for p in problems(made, final=True))


def numbers() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Every element another number."""
    return np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)


def test_elements_come_back_where_they_were() -> None:
    """By way of a workspace, where they lie in the order of registers."""
    x, w = numbers(), np.full((ROWS, COLS), np.nan, np.float32)
    d = np.full_like(x, np.nan)
    launch = Launch(1, {"M": ROWS, "N": COLS})
    verdict = simulate(ROUND_TRIP, launch, {"X": x, "D": d, "W": w})
    assert verdict.status is Status.PASS, verdict
    np.testing.assert_array_equal(d, x)
    # The first 16 bytes of thread 0: two neighbours of row 0, and those 8 rows further down.
    np.testing.assert_array_equal(w.ravel()[:4], [x[0, 0], x[0, 1], x[8, 0], x[8, 1]])
    # Thread 5 is lane 1 of row 1; a round later its registers are those of the next 8 columns.
    second = w.ravel()[4 * (THREADS + 5) :][:4]
    np.testing.assert_array_equal(second, [x[1, 10], x[1, 11], x[9, 10], x[9, 11]])


def test_what_is_not_relabelled_back_lies_elsewhere() -> None:
    """Positions of rounds are not those of strips: values tell."""
    x, w = numbers(), np.full((ROWS, COLS), np.nan, np.float32)
    d = np.full_like(x, np.nan)
    without = moved(THERE, STORED, kir.Load(ACC, box(W), 2))
    simulate(without, Launch(1, {"M": ROWS, "N": COLS}), {"X": x, "D": d, "W": w})
    assert (d != x).any()


@pytest.mark.parametrize("layout", [STRIPS, ROUNDS, replace(STRIPS, shape=(128, 16))])
@pytest.mark.parametrize("warp", [0, 3])
def test_every_thread_has_each_of_its_registers_once(layout: kir.Layout, warp: int) -> None:
    """As many as the layout says, whoever models the threads."""
    threads = (32 * warp, 32 * warp + 32)
    first, last = threads[0] * layout.registers, threads[1] * layout.registers
    assert sorted(registers_of(layout, threads)) == list(range(first, last))
    assert tile(layout, threads).elements.size == last - first


# --- device code --------------------------------------------------------------------------------


def test_packed_sums_are_relabelled_word_by_word() -> None:
    """Both have the same registers, so both hold two sums of f16 in each, or none does."""
    acc, rounds = (replace(frag, dtype=DType.F16) for frag in (ACC, FLAT))
    a = kir.Fragment("a", DType.F16, kir.Layout((ROWS, 16), 2, THREADS, kir.Deal.STRIPS))
    b = kir.Fragment("b", DType.F16, kir.Layout((COLS, 16), 2, THREADS, kir.Deal.EACH_WARP))
    nothing = (kir.Literal(0.0, DType.F16),)
    start = [kir.Compute(frag, "cast", nothing) for frag in (acc, a, b)]
    w = replace(W, dtype=DType.F16)
    there, back = kir.Slice(rounds, acc, 0), kir.Slice(acc, rounds, 0)
    memory = kir.Store(box(w), rounds, 4), kir.Load(rounds, box(w), 4)
    body: tuple[kir.Stmt, ...] = (
        *start,
        kir.Mma(acc, a, b),
        there,
        *memory,
        back,
        kir.Store(box(w), acc, 2),
    )
    made = replace(ROUND_TRIP, tensors=(X, D, w), body=body)
    assert {acc, rounds} <= plan(made).packed
    source = cuda.source(made)
    assert "tile::relabel(flat, acc);" in source
    assert judge_log(compile_cubin(source).log).status is Status.PASS


WIDE = replace(SMALL, tile=(128, 128, 64), warpgroups=2, stages=4, prefetch=2, columns=64)
ROLES = replace(WIDE, split="cooperative", tile=(128, 256, 64), registers=(40, 232))


@pytest.mark.parametrize("params", [SMALL, BY_TMA, SMALL_AMPERE, WIDE, ROLES])
def test_split_kernels_assemble_without_a_finding(params: MatmulParams | AmpereParams) -> None:
    """The copies cost no registers: nothing is spilled where accumulators take half of them."""
    verdict = judge_log(compile_cubin(cuda.source(compiled(params))).log)
    assert (verdict.status, verdict.findings) == (Status.PASS, ())


def test_threads_move_16_bytes_of_sums_at_a_time() -> None:
    """Of every product; what TMA has written stays in rows."""
    for params in (SMALL, WIDE, SMALL_AMPERE):
        made = compiled(params, gated())
        moves = [
            (s.width, s.dst.layout if isinstance(s, kir.Load) else s.src.layout)
            for s in made.walk()
            if isinstance(s, kir.Load | kir.Store) and "W_acc" in line(s)
        ]
        assert {(width, layout.deal) for width, layout in moves} == {(4, kir.Deal.ROUND)}
    by_tma = compiled(BY_TMA)
    assert not [s for s in by_tma.walk() if isinstance(s, kir.Slice) and s.relabels]


@pytest.mark.gpu
def test_a_gpu_numbers_registers_as_the_simulator_does() -> None:
    """What comes back is where it was, and lies in the workspace where values say it does."""
    x, w = numbers(), np.full((ROWS, COLS), np.nan, np.float32)
    d = np.full_like(x, np.nan)
    simulate(ROUND_TRIP, Launch(1, {"M": ROWS, "N": COLS}), {"X": x, "D": d, "W": w})
    given = torch.from_numpy(x).cuda()
    got, held = torch.full_like(given, torch.nan), torch.full_like(given, torch.nan)
    tensors = {"X": given, "D": got, "W": held}
    launch_kernel(ROUND_TRIP, 1, {"M": ROWS, "N": COLS}, tensors)
    torch.cuda.synchronize()
    assert torch.equal(got, given)
    assert torch.equal(held.cpu(), torch.from_numpy(w))
