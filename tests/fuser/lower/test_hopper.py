"""Products by wgmma: what the epilogue reads, and operands that lie along rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from judged import complaints
from sample import some

from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.matmul_params import MatmulParams, Split
from fuser.schedule.params import Mechanism
from fuzz.cases.case import Case, compiled, specs

COOPERATIVE = MatmulParams(
    (64, 32, 16), 1, "cooperative", 2, 0, persistent=True, columns=16, inputs="tma"
)
PARAMS = {
    "pipelined": replace(COOPERATIVE, split="pipelined", prefetch=1),
    "cooperative": COOPERATIVE,
    "ping_pong": replace(COOPERATIVE, split="ping_pong", warpgroups=2),
    "ping_pong, one chunk": replace(COOPERATIVE, split="ping_pong", warpgroups=2, columns=32),
    "stored directly": replace(COOPERATIVE, store="direct"),
    "cluster": replace(COOPERATIVE, cluster=(2, 1)),
    "ping_pong, cluster": replace(
        COOPERATIVE, split="ping_pong", warpgroups=2, cluster=(1, 2), columns=32
    ),
}
BROUGHT = (*((name, "bf16") for name in PARAMS), ("cooperative", "f32"))


def residual(dtype: str = "bf16") -> Fusion:
    """`(x @ w + bias) + r`."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    y = fd.ops.linear(x, w, fd.define_tensor(["n"], "bf16"))
    fd.add_output(fd.ops.cast(fd.ops.add(y, fd.define_tensor(["m", "n"], dtype)), "bf16"))
    return fd.fusion()


def kernel(of: Case) -> kir.Kernel:
    """The one kernel of a case."""
    (launch,) = compiled(of).launches
    return launch.kernel


@pytest.mark.parametrize(("name", "dtype"), some(BROUGHT, *BROUGHT[1::2]))
def test_tma_brings_whole_tiles_of_what_the_epilogue_reads(name: str, dtype: str) -> None:
    """And nothing else: the bias is loaded directly."""
    params = PARAMS[name]
    of = Case(residual(dtype), params, {"m": 136, "n": 40, "k": 40}, "reals", 0)
    loads = [s.src.tensor.name for s in kernel(of).walk() if isinstance(s, kir.TmaLoad)]
    assert loads.count("T6") == params.tile[1] // params.columns
    direct = {
        s.src.tensor.name
        for s in kernel(of).walk()
        if isinstance(s, kir.Load) and isinstance(s.src, kir.Box)
    }
    assert direct == {"T2"}
    assert not complaints(of)


def test_what_tma_cannot_bring_is_loaded_directly() -> None:
    """Rows of an odd number of elements."""
    of = Case(residual(), COOPERATIVE, {"m": 65, "n": 33, "k": 40}, "reals", 0)
    assert {s.src.tensor.name for s in kernel(of).walk() if isinstance(s, kir.TmaLoad)} == {
        "T0",
        "T1",
    }
    assert not complaints(of)


@pytest.mark.parametrize(
    ("split", "store", "n", "wide"),
    [
        ("cooperative", "tma", 33, 1),
        ("ping_pong", "tma", 33, 1),
        ("pipelined", "tma", 34, 2),
        ("cooperative", "direct", 33, 0),
        ("ping_pong", "tma", 40, 0),
    ],
)
def test_what_tma_cannot_write_goes_through_shared_memory(
    split: Split, store: Mechanism, n: int, wide: int
) -> None:
    """A warp stores neighbours along a row, pairs where rows begin at pairs; if TMA was asked."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    fd.add_output(fd.ops.linear(x, w))
    params = replace(PARAMS[split], store=store)
    of = Case(fd.fusion(), params, {"m": 200, "n": n, "k": 40}, "integers", 0)
    stored = [
        s for s in kernel(of).walk() if isinstance(s, kir.Store) and isinstance(s.dst, kir.Box)
    ]
    along = {s.width for s in stored if s.src.layout.deal is kir.Deal.ROUND}
    assert along == ({wide} if wide else set())
    assert bool(stored) == (n != 40)
    assert not complaints(of)


def test_a_ring_of_tiles_needs_several() -> None:
    """One CTA a tile has none."""
    with pytest.raises(ScheduleError, match='use persistent=True, or inputs="direct"'):
        replace(COOPERATIVE, persistent=False)


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("split", ["cooperative", "ping_pong"])
@pytest.mark.parametrize("k", [16, 64])
def test_transposed_operands_in_clusters(k: int, split: Split, cluster: tuple[int, int]) -> None:
    """Addresses of CTAs but the first have the rank in bits that descriptors use otherwise.

    With several panels that ended in "out-of-range shared address" of wgmma.
    """
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], "bf16", stride_order=[0, 1])
    w = fd.define_tensor(["n", "k"], "bf16", stride_order=[0, 1])
    fd.add_output(fd.ops.linear(x, w))
    groups = 2 if split == "ping_pong" else 1
    params = MatmulParams(
        (128, 48, k), groups, split, 2, 0, persistent=True, columns=48, cluster=cluster
    )
    a, b = (torch.randint(-3, 4, (192, n), device="cuda").bfloat16().t() for n in (520, 200))
    (got,) = Executable(fd.fusion(), params)(a, b)
    assert torch.equal(got, (a.float() @ b.float().t()).bfloat16())


# --- several products by one wgmma --------------------------------------------------------------


SPLIT_OF_TWO: tuple[tuple[Split, int], ...] = (
    ("pipelined", 1),
    ("cooperative", 1),
    ("ping_pong", 2),
)
STAGINGS = tuple(
    (way, columns, slots) for way in SPLIT_OF_TWO for columns in (8, 16) for slots in (1, 2, 3, 4)
)


@pytest.mark.parametrize(("way", "columns", "slots"), some(STAGINGS, *STAGINGS[1::3]))
def test_parts_of_an_epilogue_take_their_slots_in_turn(
    way: tuple[Split, int], columns: int, slots: int
) -> None:
    """Of three parts or six each has the next slot; as many stores as others are not awaited."""
    split, groups = way
    params = MatmulParams(
        (64, 48, 16), groups, split, 2, 0, persistent=True, columns=columns, staging=slots
    )
    fd = FusionDefinition()
    a, b = (fd.define_tensor([name, "k"], "bf16") for name in "mn")
    fd.add_output(fd.ops.cast(fd.ops.linear(a, b), "bf16"))
    of = Case(fd.fusion(), params, {"m": 200, "n": 96, "k": 40}, "reals", 0)
    made = kernel(of)
    parts = 48 // columns
    used = min(slots, parts)
    stores = [s.src for s in made.walk() if isinstance(s, kir.TmaStore)]
    by_name = {
        slot.buffer.name: [o.index for o in stores if o.buffer == slot.buffer] for slot in stores
    }
    for found in by_name.values():
        assert found == [n % used for n in range(parts)]
    assert {slot.buffer.slots for slot in stores} == {used}
    reads = {s.keep for s in made.walk() if isinstance(s, kir.AsyncAwait) and s.read_only}
    assert used - 1 in reads
    assert not complaints(of)


def layers(*, products: int = 2, dtype: str = "bf16", turned: bool = False) -> Fusion:
    """As many layers of one tensor, added up."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], dtype)
    order = [0, 1] if turned else None
    made = [
        fd.ops.linear(x, fd.define_tensor(["n", "k"], dtype, stride_order=order))
        for _ in range(products)
    ]
    y = made[0]
    for other in made[1:]:
        y = fd.ops.add(y, other)
    fd.add_output(y)
    return fd.fusion()


STACKED = replace(COOPERATIVE, inputs="direct", prefetch=1, stages=3, stacked=True)


def wgmmas(of: Case) -> list[kir.Wgmma]:
    """The wgmmas of the one kernel of a case."""
    return [s for s in kernel(of).walk() if isinstance(s, kir.Wgmma)]


@pytest.mark.parametrize(
    ("of", "params"),
    [
        (layers(), STACKED),
        (layers(), replace(STACKED, split="pipelined")),
        (layers(), replace(STACKED, split="ping_pong", warpgroups=2)),
        (layers(), replace(STACKED, cluster=(2, 1), stages=2)),
        (layers(products=3), STACKED),
        (layers(turned=True), STACKED),
        (layers(dtype="i8"), replace(STACKED, tile=(64, 32, 32))),
        (layers(dtype="f16", products=4), replace(STACKED, tile=(64, 64, 64))),
    ],
    ids=["cooperative", "pipelined", "ping_pong", "cluster", "three", "turned", "i8", "256"],
)
def test_products_that_share_their_first_operand_are_one_wgmma(
    of: Fusion, params: MatmulParams
) -> None:
    """A ring for each weight, slots in turn behind each other; all judges agree."""
    case = Case(of, params, {"m": 72, "n": 40, "k": 208}, "integers", 0)
    one, *twins = wgmmas(case)
    assert len(twins) == (params.split == "ping_pong")
    many = sum(tv.op == "mma" for tv in of.tensors)
    assert one.acc.layout.shape[-1] == many * params.tile[1]
    starts = [slot.buffer.start(0) for slot in one.columns]
    assert starts == [starts[0] + n * one.b.buffer.slot_nbytes for n in range(many)]
    assert {slot.buffer.step for slot in one.columns} == {many * one.b.buffer.slot_nbytes}
    assert not complaints(case)


def other_rows() -> Fusion:
    """Two layers of two tensors."""
    fd = FusionDefinition()
    made = [
        fd.ops.linear(fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16"))
        for _ in range(2)
    ]
    fd.add_output(fd.ops.add(*made))
    return fd.fusion()


def one_weight() -> Fusion:
    """A layer twice, in other words."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    again = fd.ops.matmul(x, fd.ops.permute(w, [1, 0]))
    fd.add_output(fd.ops.mul(fd.ops.linear(x, w), again))
    return fd.fusion()


@pytest.mark.parametrize(
    ("of", "params"),
    [
        (other_rows(), STACKED),
        (one_weight(), STACKED),
        (layers(), replace(STACKED, tile=(64, 32, 128), stages=2)),
        (layers(), replace(STACKED, stacked=False)),
    ],
    ids=["two tensors", "one weight", "two panels", "not asked for"],
)
def test_what_cannot_lie_behind_each_other_stays_apart(of: Fusion, params: MatmulParams) -> None:
    """A wgmma for each product."""
    case = Case(of, params, {"m": 72, "n": 40, "k": 144}, "integers", 0)
    assert [one.beside for one in wgmmas(case)] == [(), ()]
    assert not complaints(case)


@pytest.mark.parametrize(
    ("of", "tile", "says"),
    [
        (layers(products=3), (64, 96, 16), "has 288 columns, .* room for 256; use 80 columns"),
        (layers(dtype="i8", products=3), (64, 24, 32), "has 72 columns, of i8 .*; use 16 columns"),
        (layers(dtype="i8", products=1), (64, 40, 32), "has 40 columns, of i8 .*; use 32 columns"),
    ],
)
def test_a_wgmma_that_is_too_wide_is_refused(
    of: Fusion, tile: tuple[int, int, int], says: str
) -> None:
    """With the nearest columns that fit."""
    params = replace(STACKED, tile=tile, columns=tile[1])
    with pytest.raises(ScheduleError, match=f"(wgmma for 3 products|a wgmma) {says}"):
        kernel(Case(of, params, {"m": 64, "n": 64, "k": 64}, "integers", 0))


def test_rows_that_no_power_of_two_of_lanes_holds_are_refused() -> None:
    """The last-arriving CTA reads 24 columns from memory, in 3 lanes; of 8 it can reduce rows."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([name, "k"], "bf16") for name in ("m", "n"))
    fd.add_output(fd.ops.sum(fd.ops.linear(x, w), dims=[1], dtype="f32"))
    params = MatmulParams(
        (64, 24, 16), 1, "cooperative", 2, 1, persistent=False, columns=24, splits=3, meet="last"
    )
    of = Case(fd.fusion(), params, {"m": 64, "n": 64, "k": 64}, "integers", 0)
    with pytest.raises(ScheduleError, match="3 lanes hold 8 neighbours .* use columns=8, or"):
        build(of.fusion, params, classify(of.fusion, params, specs(of)))
    narrow = replace(of, params=replace(params, columns=8))
    assert not complaints(narrow)
