"""The last-arriving CTA puts together what all of its tile have stored; nobody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from judged import complaints
from product_kernels import compiled, gated, kernel, linear, specs
from reductions import DIMS, DIRECT, OPS, TMA, program, reduced
from reductions import kernel as reduction
from sample import covering, some
from split_products import AMPERE_SCATTER, ROLES, SCATTER, WIDE_SCATTER, integers

from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case
from fuzz.kernels.matmul import COMPILED
from fuzz.mutation.operators import mutants
from oracles.prover import prove
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.fixpoint import opened
from oracles.verdict import Status

LAST = replace(SCATTER, meet="last")
PRODUCTS: dict[str, MatmulParams | AmpereParams] = {
    "pipelined": LAST,
    "all columns": replace(LAST, columns=16),
    "roles": replace(ROLES, meet="last", columns=8),
    "ampere": replace(AMPERE_SCATTER, meet="last"),
    "bf16 on the way": replace(LAST, partial="bf16"),
}
SUMS = {
    "direct": replace(DIRECT, meet="last"),
    "ring": replace(TMA, meet="last"),
    "a row of several warps": replace(
        DIRECT, tile=(1, 512), vector=2, warps=8, splits=2, meet="last"
    ),
}
NAMES = [name for name in COMPILED if "last" in name]


def elections(made: kir.Kernel) -> Iterator[kir.LastArriving]:
    """Every election of a last CTA."""
    return (stmt for stmt in made.walk() if isinstance(stmt, kir.LastArriving))


def test_a_product_that_the_last_cta_adds_up_reads_like_this(golden: Golden) -> None:
    """All sums are stored; the last CTA goes through the groups of columns, and the epilogue."""
    golden.check(text(kernel(LAST)))


def test_a_reduction_that_the_last_cta_ends_reads_like_this(golden: Golden) -> None:
    """Results of all CTAs in their order, many loads on their way at once."""
    golden.check(text(reduction(replace(TMA, tile=(4, 64), warps=1, meet="last"))))


@pytest.mark.parametrize("params", PRODUCTS.values(), ids=PRODUCTS)
def test_nobody_waits_so_nobody_has_to_run(params: MatmulParams | AmpereParams) -> None:
    """Neither tickets nor a bound on the grid; unless neighbours are to share a part of K."""
    made = kernel(params)
    co_resident = params.residency == "co-resident"
    assert (made.residency, made.together) == ("co-resident" if co_resident else "any", 1)
    waits = kir.GridSync | kir.BlockSerializeWait | kir.BlockSerializeRelease
    assert not [stmt for stmt in made.walk() if isinstance(stmt, waits)]
    assert len(list(elections(made))) == 1


def test_the_election_is_of_the_role_that_has_the_sums() -> None:
    """By the role's own barrier, so that the load role need not come."""
    (one,) = elections(kernel(PRODUCTS["roles"]))
    assert one.barrier == 2


def test_one_election_does_for_two_products() -> None:
    """Behind all stores; all that is left stands in its body."""
    made = kernel(LAST, gated())
    assert isinstance(made.body[-1], kir.LastArriving)
    stored = [s.dst for s in made.body if isinstance(s, kir.Store)]
    names = [box.tensor.name for box in stored if isinstance(box, kir.Box)]
    assert list(dict.fromkeys(names)) == ["W_acc", "W_acc1"]
    outputs = {
        s.dst.tensor.name
        for s in kir.walk(made.body[-1].body)
        if isinstance(s, kir.Store) and isinstance(s.dst, kir.Box)
    }
    assert outputs == set(made.outputs)


def test_rows_are_reduced_by_the_last_cta() -> None:
    """It has all columns of a tile, as CTAs that share out the columns have not."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.sum(fd.ops.matmul(a, b), dims=[1]))
    made = compiled(fd.fusion(), LAST).launches[0].kernel
    (one,) = elections(made)
    assert any(isinstance(stmt, kir.Reduce) for stmt in kir.walk(one.body))


@pytest.mark.parametrize("name", some(tuple(NAMES), *NAMES[::3]))
def test_no_change_of_the_election_is_safe(name: str) -> None:
    """Whoever adds up without it, or counts otherwise, is refuted; so is who counts nobody."""
    made = COMPILED[name].template().kernel
    tried = [
        mutant
        for operator in ("role", "count", "drop")
        for mutant in mutants(made, operator)
        if isinstance(mutant.victim, kir.LastArriving)
    ]
    assert len(tried) >= 4
    for mutant in tried:
        assert prove.prove(mutant.kernel).status is not Status.PASS, mutant.change


@pytest.mark.parametrize(
    ("name", "share"), covering(1, PRODUCTS, [(1, 200), (2, 200), (3, 40), (5, 8)])
)
def test_all_judges_pass_products(name: str, share: tuple[int, int]) -> None:
    """Of every count of CTAs; K may have fewer steps."""
    params, (splits, k) = PRODUCTS[name], share
    if splits == 1:
        params = replace(params, partial="f32")
    extents = {"i0": 72, "i1": k, "i2": 24}
    case = Case(linear(), replace(params, splits=splits), extents, "integers", 0)
    assert not complaints(case)


@pytest.mark.parametrize(("name", "dims", "op"), covering(2, SUMS, DIMS, ["sum", "max", "mean"]))
def test_all_judges_pass_reductions(name: str, dims: str, op: str) -> None:
    """Along rows, columns and both, by more CTAs than there may be steps."""
    columns = 520 if SUMS[name].warps == 8 else 264
    case = Case(reduced(op, DIMS[dims]), SUMS[name], {"m": 9, "n": columns}, "integers", 0)
    assert not complaints(case)


def test_many_ctas_are_proved() -> None:
    """Not each of them as the last one: those in the middle are alike."""
    spec = specs(linear(), {"i0": 64, "i1": 512, "i2": 16})
    params = replace(LAST, splits=16)
    (launch,) = build(linear(), params, classify(linear(), params, spec)).launches
    assert {str(one.ctas) for one in elections(launch.kernel)} == {"16"}
    assert prove.prove(launch.kernel).status is Status.PASS


# --- on a GPU -----------------------------------------------------------------------------------

WIDE_LAST = replace(WIDE_SCATTER, meet="last")
GPU = {
    "wide": WIDE_LAST,
    "small": LAST,
    "roles": replace(WIDE_LAST, split="cooperative", residency="co-resident"),
    "ampere": PRODUCTS["ampere"],
}


@pytest.mark.gpu
@pytest.mark.parametrize("params", GPU.values(), ids=GPU)
@pytest.mark.parametrize("splits", [2, 3, 7, 16, 64])
def test_the_gpu_computes_the_same_for_every_count(
    params: MatmulParams | AmpereParams, splits: int
) -> None:
    """Many times on the same semaphores, with other traffic between; integers give equal bits."""
    run = Executable(linear(), replace(params, splits=splits), poison=True)
    for m, k, n in [(64, 2048, 96), (200, 1000, 136), (1, 4096, 8), (300, 64, 256)]:
        given = integers(m, k, n)
        x, w, bias = (tensor.double() for tensor in given)
        want = (x @ w.T + bias).relu().bfloat16()
        for _ in range(10):
            assert torch.equal(run(*given)[0], want)
            torch.randn(1 << 16, device="cuda").sum()


@pytest.mark.gpu
@pytest.mark.parametrize("params", GPU.values(), ids=GPU)
def test_the_order_of_ctas_makes_bits_repeat(params: MatmulParams | AmpereParams) -> None:
    """Whoever is the last adds up in one order, which is that of turns and of shares, too."""
    given = [torch.randn(shape, device="cuda").bfloat16() for shape in [(96, 4096), (160, 4096)]]
    given.append(torch.randn(160, device="cuda").bfloat16())
    run = Executable(linear(), replace(params, splits=8))
    first = run(*given)[0]
    assert all(torch.equal(run(*given)[0], first) for _ in range(200))
    for meet in ("scatter", "vectorized"):
        other = Executable(linear(), replace(params, splits=8, meet=meet))
        assert torch.equal(other(*given)[0], first)


@pytest.mark.parametrize("dims", DIMS)
def test_results_are_put_together_by_loops_of_their_own(dims: str) -> None:
    """One CTA of no known place stands for all, so that each place need not be looked at.

    By loops of one name it does not: rounds of the second one never repeat (601 states, not 7).
    """
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f32")
    for op in ("sum", "max"):
        fd.add_output(getattr(fd.ops, op)(x, dims=DIMS[dims]))
    params = replace(DIRECT, tile=(2, 256), splits=3, meet="last")
    (launch,) = program(fd.fusion(), params, {"i0": 300, "i1": 512}).launches
    loops = [stmt for stmt in launch.kernel.walk() if isinstance(stmt, kir.ForLoop)]
    assert len({loop.index for loop in loops}) == len(loops) >= 3
    (alone,) = (one for one in readings(launch.kernel) if not one.together)
    closed = opened(launch.kernel, alone, policy="default", states=30)
    assert closed.confirmed(alone, first=False)[1] == ""
    assert not closed.findings.failed


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("splits", [2, 7, 33, 256])
def test_the_gpu_puts_reductions_together(splits: int, dims: str, op: str) -> None:
    """By direct loads and a ring, captured too, always the same bits; near those as in turns.

    Sums are put together by groups of threads, or of rows by lanes, each some of the CTAs' results:
    in another order than turns, which rounds some of 10,000 results of 16 bits to a neighbour.
    """
    ring = replace(DIRECT, tile=(16, 256), load="tma", stages=4, prefetch=3)
    for wide in (replace(DIRECT, tile=(2, 1024)), ring):
        turns = Executable(reduced(op, DIMS[dims]), replace(wide, splits=splits), poison=True)
        params = replace(wide, splits=splits, meet="last")
        run = Executable(reduced(op, DIMS[dims]), params, poison=True)
        for shape in ((300, 8200), (3000, 264), (2, 40_000), (1, 8)):
            x = torch.randn(shape, device="cuda").bfloat16()
            first = turns(x)[0]
            one, *others = repeated(run, x)
            assert all(torch.equal(one, other) for other in others)
            close = 0.0 if op == "max" else 2**-7
            least = close * 2**-7 if dims == "rows" else close  # of a mean of rows one neighbour
            torch.testing.assert_close(one, first, rtol=close, atol=least)
