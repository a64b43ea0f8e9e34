"""CTAs that share a tile of a product as a cluster, by reading each other's shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from judged import complaints
from product_kernels import CLUSTER, PIPELINED, compiled, gated, kernel, linear, specs

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.passes.split_k import sync_clusters
from fuser.pipeline import build
from fuser.runtime.binding import bind
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case
from fuzz.crosscheck.judge import explore
from fuzz.kernels.matmul import MATMULS
from oracles.prover import prove
from oracles.verdict import Status

PAIR = MatmulParams(
    (64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=8, splits=2, meet="cluster"
)
JOINS = kir.ClusterArrive | kir.ClusterWait | kir.BlockSync


def test_a_kernel_of_clusters_reads_like_this(golden: Golden) -> None:
    """Stored, met, read from all ranks in turn, added up, met again before anybody leaves."""
    golden.check(text(kernel(replace(PAIR, splits=4))))


@pytest.mark.parametrize("params", [PIPELINED, CLUSTER])
def test_kernels_that_read_no_slot_of_a_peer_are_left_alone(params: MatmulParams) -> None:
    """TMA fills slots of others; nobody reads them there."""
    made = kernel(params)
    assert sync_clusters(made) is made


def test_one_meeting_does_for_two_products() -> None:
    """Behind all stores, before the first read from a peer; another one at the end."""
    for stacked in (False, True):
        body = kernel(replace(PAIR, stacked=stacked), gated()).body
        meetings = [n for n, s in enumerate(body) if isinstance(s, kir.ClusterArrive)]
        stores = [n for n, s in enumerate(body) if isinstance(s, kir.Store)]
        (loop,) = (n for n, s in enumerate(body) if isinstance(s, kir.ForLoop) and reads_peers(s))
        assert max(stores) < meetings[0] < loop < meetings[1]
        assert meetings == [loop - 2, len(body) - 2]


def reads_peers(stmt: kir.Stmt) -> bool:
    """Whether a statement has loads from slots of other CTAs in it."""
    loads = (s.src for s in kir.walk((stmt,)) if isinstance(s, kir.Load))
    return any(isinstance(src, kir.Slot) and src.cta is not None for src in loads)


def test_a_slot_is_not_stored_again_while_a_peer_may_read_it() -> None:
    """Nor without a meeting read again then."""
    buffer = kir.Buffer("S", DType.F32, (8, 8), 1, 0)
    tile = kir.Fragment("x", DType.F32, kir.Layout((8, 8), 2, 32))
    put, get = kir.Store(kir.Slot(buffer, 0), tile, 2), kir.Load(tile, kir.Slot(buffer, 0, 1), 2)
    home = kir.Load(tile, kir.Slot(buffer, 0), 2)
    made = replace(kernel(PAIR), body=(put, home, get, get, put, put, get))
    met = (kir.ClusterArrive(), kir.ClusterWait())
    want = (put, home, *met, get, get, *met, put, put, *met, get)
    assert sync_clusters(made).body == want


@pytest.mark.parametrize("splits", [2, 4, 8])
def test_the_launch_knows_clusters_and_no_scratch_memory(splits: int) -> None:
    """No semaphore, no ticket, no parameter: the hardware runs a cluster at once."""
    params = replace(PAIR, splits=splits)
    made = kernel(params)
    assert (made.cluster, made.residency, made.together) == (splits, "any", 1)
    assert (made.workspaces, made.semaphores) == ((), ())
    assert Var("splits") not in made.params
    spec = specs(linear(), {"i0": 100, "i1": 16, "i2": 24})
    (bound,) = bind(build(linear(), params, classify(linear(), params, spec)), spec, sms=132)
    assert bound.grid == 2 * 2 * splits


NAMES = [n for n in MATMULS if n.startswith("split_cluster")]


@pytest.mark.parametrize("name", NAMES)
def test_each_join_is_needed(name: str) -> None:
    """With all of them both judges pass the kernel; without any one they both refuse it."""
    pattern = MATMULS[name].template()
    starts = pattern.at(3)  # with one step nothing else joins what initialises and what waits
    whole = pattern.kernel
    assert prove.prove(whole).status is Status.PASS
    assert {explore(whole, start).status for start in starts} == {Status.PASS}
    joins = [s for s in whole.walk() if isinstance(s, JOINS)]
    assert [type(s) for s in joins].count(kir.ClusterWait) == 2
    for one in joins:
        without = whole.rewrite(drop(one))
        assert prove.prove(without).status is Status.FAIL, one
        assert Status.FAIL in {explore(without, start).status for start in starts}, one


def drop(one: kir.Stmt) -> Callable[[kir.Stmt], list[kir.Stmt] | None]:
    """What leaves one statement out."""
    return lambda stmt: [] if stmt is one else None


@pytest.mark.parametrize("name", NAMES)
def test_arrivals_that_release_nothing_are_refused(name: str) -> None:
    """The first one hands on what was stored; the last one the end of what was read."""
    pattern = MATMULS[name].template()
    start = pattern.at(3)[0]
    first = next(s for s in pattern.kernel.walk() if isinstance(s, kir.ClusterArrive))
    weak: list[kir.Stmt] = [kir.ClusterArrive(relaxed=True)]
    made = pattern.kernel.rewrite(lambda stmt: weak if stmt is first else None)
    for verdict in (prove.prove(made), explore(made, start)):
        assert verdict.status is Status.FAIL
        assert {f.kind for f in verdict.findings} & {"scope", "RAW"}


@pytest.mark.parametrize("splits", [1, 2, 4, 8])
@pytest.mark.parametrize("k", [8, 24, 40, 200])
def test_all_judges_pass_every_size_of_clusters(splits: int, k: int) -> None:
    """On integers the sums are exact; K may have fewer steps than the cluster has CTAs."""
    extents = {"i0": 72, "i1": k, "i2": 24}
    case = Case(linear(), replace(PAIR, splits=splits), extents, "integers", 0)
    assert not complaints(case)


def two_depths() -> Fusion:
    """`relu(a @ b) + relu(c @ d)`: two loops, of other lengths."""
    fd = FusionDefinition()
    a, b, c, d = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(4))
    fd.add_output(fd.ops.add(fd.ops.relu(fd.ops.matmul(a, b)), fd.ops.relu(fd.ops.matmul(c, d))))
    return fd.fusion()


def shifted() -> Fusion:
    """`(x + 1) @ w`: not 0 where x is, so that steps beyond K must be kept out."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.matmul(fd.ops.cast(fd.ops.add(x, 1.0), "bf16"), w))
    return fd.fusion()


@pytest.mark.parametrize("fusion", [gated, two_depths, shifted])
def test_ctas_beyond_the_end_of_k_add_nothing(fusion: Callable[[], Fusion]) -> None:
    """One step for the first of four CTAs, for one loop or another; zeros for the others."""
    params = replace(PAIR, splits=4, prologue="registers")
    extents = {f"i{n}": 16 for n in range(6)} | {"i0": 64, "i1": 8}
    case = Case(fusion(), params, extents, "integers", 0)
    assert not complaints(case)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"splits": 3}, r'splits=3, meet="cluster"\): .* of 2, 4 or 8; use splits=2, or meet'),
        ({"splits": 16}, r"of 2, 4 or 8; use splits=8"),
        ({"split": "cooperative"}, 'a load role has no sums; use split="pipelined"'),
        ({"residency": "co-resident"}, 'run at once anyway; use residency="ticket"'),
        ({"persistent": True}, 'use meet="scatter", or persistent=False'),
        ({"split": "cooperative", "meet": "scatter", "cluster": (2, 1)}, r"use cluster=\(1, 1\)"),
    ],
)
def test_what_a_cluster_cannot_share_is_refused(changes: dict[str, object], says: str) -> None:
    """With what to do instead."""
    with pytest.raises(ScheduleError, match=says):
        replace(PAIR, **changes)  # type: ignore[arg-type]  # wrong on purpose


def test_rows_that_are_reduced_lie_in_one_cta() -> None:
    """Who adds up some columns cannot reduce a row of them."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.sum(fd.ops.matmul(a, b), dims=[1]))
    with pytest.raises(ScheduleError, match=r'meet="cluster"\): .*use meet="vectorized"'):
        compiled(fd.fusion(), PAIR)


def test_sums_of_f16_are_refused() -> None:
    """They would be rounded once for each CTA."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="f16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b, accumulate="f16"))
    with pytest.raises(ScheduleError, match=r"MatmulParams\(splits=2\): sums of f16 .* splits=1"):
        kernel(PAIR, fd.fusion())


def test_a_tile_and_its_rings_must_fit_shared_memory() -> None:
    """The slots of the sums are in addition to the rings."""
    large = replace(PAIR, tile=(128, 256, 64), warpgroups=2, columns=16, stages=3)
    with pytest.raises(ScheduleError, match=r"needs 278\d\d\d bytes of shared memory.* stages=2"):
        kernel(large)
    assert kernel(replace(large, stages=2)).smem_bytes > 128 * 256 * 4


# --- on a GPU -----------------------------------------------------------------------------------

WIDE = replace(PAIR, tile=(128, 128, 64), warpgroups=2, stages=3, prefetch=1, columns=16)
LOW = replace(PAIR, tile=(64, 64, 64), stages=6, prefetch=4, columns=8)


@pytest.mark.gpu
@pytest.mark.parametrize("params", [PAIR, WIDE, LOW, replace(WIDE, columns=32)])
@pytest.mark.parametrize("splits", [2, 4, 8])
def test_the_gpu_computes_the_same_for_every_size(params: MatmulParams, splits: int) -> None:
    """Three times in a row, and captured; one step of K and many, tiles that end beyond M and N."""
    run = Executable(linear(), replace(params, splits=splits), poison=True)
    for m, k, n in [(64, 2048, 96), (200, 1000, 136), (1, 4096, 8), (300, 64, 256), (70, 8, 24)]:
        shapes = [(m, k), (n, k), (n,)]
        given = [torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in shapes]
        x, w, bias = (tensor.double() for tensor in given)
        want = (x @ w.T + bias).relu().bfloat16()
        assert all(torch.equal(one, want) for one in repeated(run, *given))


@pytest.mark.gpu
@pytest.mark.parametrize("stacked", [False, True])
def test_the_gpu_adds_up_two_products(stacked: bool) -> None:
    """Each has slots of its own, or columns of one."""
    params = replace(LOW, splits=4, stacked=stacked)
    run = Executable(gated(), params, poison=True)
    shapes = [(130, 1000), (72, 1000), (72, 1000)]
    given = [torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in shapes]
    x, gate, up = (tensor.double() for tensor in given)
    want = ((x @ gate.T).float() * (x @ up.T).float()).bfloat16()
    assert torch.equal(run(*given)[0], want)


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [2, 8])
def test_the_order_of_ranks_makes_bits_repeat(splits: int) -> None:
    """The same sums 200 times, whichever CTA of a cluster is the first to store its own."""
    run = Executable(linear(), replace(WIDE, splits=splits))
    given = [torch.randn(shape, device="cuda").bfloat16() for shape in [(96, 4096), (160, 4096)]]
    given.append(torch.randn(160, device="cuda").bfloat16())
    first = run(*given)[0]
    assert all(torch.equal(run(*given)[0], first) for _ in range(200))
