"""Tiles in CUDA C++: layouts, slots, boxes, copies; each statement one call that compiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_parts import FRAG_A, FRAG_B, SA, SB, kernel, zero

from fuser.codegen import cuda
from fuser.codegen.registers import plan
from fuser.codegen.tile import tile_line
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.runtime.nvrtc import compile_cubin, compile_ptx
from oracles.assembler import judge_log
from oracles.verdict import Status

M, N, p = Var("M"), Var("N"), Var("p")
X = kir.Tensor("X", DType.BF16, (M, N), (N, 1), 8)
Y = kir.Tensor("Y", DType.BF16, (M, N), (N, 1), 8)
S = kir.Buffer("S", DType.BF16, (64, 128), 3, 0, 128)
PLAIN = kir.Buffer("P", DType.BF16, (64, 128), 2, S.end)
NUMBER, NEXT = kir.Buffer("numbers", DType.I32, (1,), 2, PLAIN.end, pitch=16), Var("number")
BAR = kir.MBarrier("bar", 1, 3)
STRIPS = kir.Layout((64, 128), 2, 128, kir.Deal.STRIPS)
WIDE = kir.Fragment("wide", DType.F32, STRIPS)
HALF = kir.Fragment("half", DType.BF16, STRIPS)


def box(tensor: kir.Tensor = X) -> kir.Box:
    """64 x 128 elements from (16, 32) on."""
    return kir.Box(tensor, (16, 32), (64, 128), (M, N))


def of(*body: kir.Stmt, cluster: int = 1) -> kir.Kernel:
    """A kernel over X and Y."""
    return kir.Kernel(
        "k", (M, N), (X, Y), (), (S, PLAIN, NUMBER), (BAR,), 128, body, ("Y",),
        cluster=cluster, counters=("next",),
    )  # fmt: skip


def written(stmt: kir.Data, *others: kir.Stmt, cluster: int = 1) -> str:
    """The line of a statement."""
    whole = of(stmt, *others, cluster=cluster)
    return tile_line(stmt, whole, plan(whole))


def test_a_wide_swizzled_slot_is_copied_by_panels() -> None:
    """A box is no wider than the swizzle: two of 64 columns, 8192 bytes apart."""
    load = kir.TmaLoad(kir.Slot(S, p), box(), BAR, p)
    assert written(load) == ("tma::load<2, 8192, 64>(S + p * 8192, &X_map, bar + p, 32, 16);")
    store = kir.TmaStore(box(Y), kir.Slot(S, 2))
    assert written(store) == "tma::store<2, 8192, 64>(S + 16384, &Y_map, 32, 16);"
    reduce = kir.TmaReduce(box(Y), kir.Slot(S, 2))
    assert written(reduce) == "tma::reduce<2, 8192, 64>(S + 16384, &Y_map, 32, 16);"


def test_a_map_of_the_kernel_is_told_where_it_begins() -> None:
    """Coordinates count from there; address and extents, innermost first, are put in."""
    at = kir.MapSlot(kir.TensorMaps("maps", X, 2), p % 2, (p * 64, 0))
    source = replace(box(), origin=(p * 64 + 16, 32), limit=(p * 64 + 64, N))
    load = kir.TmaLoad(kir.Slot(PLAIN, 0), source, BAR, p, through=at)
    own = "maps + ((blockIdx_ * 2) + math::modulo(p, 2))"
    assert written(load) == (f"tma::load(P + 0, {own}, bar + p, 32, (((p * 64) + 16) - (p * 64)));")
    made = written(kir.TensorMapReplace(at, source.limit), load)
    begins = f"tensor_map::replace({own}, &X_map, X + int64((p * 64)) * N"
    assert made == f"{begins}, N, (((p * 64) + 64) - (p * 64)));"


def test_a_plain_slot_is_copied_at_once() -> None:
    """No template arguments, no loop."""
    load = kir.TmaLoad(kir.Slot(PLAIN, 1), box(), BAR, 0, multicast=3)
    assert written(load, cluster=2) == "tma::multicast(P + 8192, &X_map, bar + 0, 3, 32, 16);"


def test_swizzled_addresses_know_rows_and_span() -> None:
    """Device code computes what `fuser.kernel.swizzle` does."""
    load = kir.Load(WIDE, kir.Slot(S, 0), 2)
    assert "tile::Swizzled<bf16, 64, 128>{S + 0}" in written(load)
    assert "tile::Slot<bf16, 128>{P + 0}" in written(kir.Load(WIDE, kir.Slot(PLAIN, 0), 2))


def test_a_slot_of_another_cta_goes_through_its_rank() -> None:
    """Distributed shared memory has addresses of its own."""
    load = kir.Load(WIDE, kir.Slot(PLAIN, 0, 1 - kir.RANK), 2)
    assert "{tile::of_cta(P + 0, (1 - clusterRank_))}" in written(load, cluster=2)


def test_only_what_nobody_writes_is_read_past_the_coherent_path() -> None:
    """Other CTAs write a workspace while this one runs."""
    text = cuda.source(of(kir.Load(WIDE, box(), 2), kir.Load(WIDE, box(Y), 2)))
    assert "tile::Box<const bf16, true>{X" in text
    assert "tile::Box<bf16, true>{Y" in text
    assert "const bf16* __restrict__ X" in text
    assert "    bf16* Y" in text


@pytest.mark.parametrize("layout", [STRIPS, kir.Layout((64, 128), 8, 128)])
@pytest.mark.parametrize("ragged", [False, True])
def test_what_is_kept_is_loaded_with_a_policy(layout: kir.Layout, ragged: bool) -> None:
    """One predicated load for each word of 16 bytes, narrower ones without; stores have no hint."""
    kept = replace(X, kept=True, ragged=ragged)
    tile = kir.Fragment("tile", DType.F32, layout)
    whole = replace(
        of(kir.Load(tile, box(kept), layout.vector), kir.Store(box(Y), tile, layout.vector)),
        tensors=(kept, Y),
    )
    text = cuda.source(whole)
    assert f"tile::Box<const bf16, true, {str(ragged).lower()}, true>{{X" in text
    assert "tile::Box<bf16, true>{Y" in text
    loads = compile_ptx(text).count("ld.global.nc.L2::cache_hint.v4.b32")
    assert loads == (8 if layout.vector == 8 else 0)


def test_the_end_of_a_ragged_tensor_is_loaded_by_words() -> None:
    """Elements one by one, in a branch, would be waited for before the next tensor is asked for."""
    ragged, layout = replace(X, ragged=True), kir.Layout((64, 128), 8, 128)
    tile = kir.Fragment("tile", DType.F32, layout)
    whole = of(kir.Load(tile, box(ragged), 8), kir.Store(box(Y), tile, 8))
    text = compile_ptx(cuda.source(replace(whole, tensors=(ragged, Y))))
    assert text.count("ld.global.nc.v4.u32") == 8
    assert text.count("ld.global") == 8


def test_a_packed_fragment_is_rounded_once() -> None:
    """The cast to bf16 is the packing; alone it would be done twice."""
    cast = kir.Compute(HALF, "cast", (WIDE,))
    packed = written(cast, kir.Store(kir.Slot(S, 0), HALF, 2))
    assert packed == (
        "tile::map_packed<bf16>(half, [&](int i) { return math::to<float>(wide[i]); });"
    )
    seen = written(cast, kir.Compute(WIDE, "promote", (HALF,)))
    assert "tile::map(half" in seen
    assert "math::round_to_bf16(wide[i])" in seen


def test_a_slice_names_both_layouts() -> None:
    """Registers of a strip are counted by its columns."""
    part = kir.Fragment("part", DType.F32, replace(STRIPS, shape=(64, 32)))
    assert written(kir.Slice(part, WIDE, 64)) == (
        "tile::slice<tile::Strips<64, 32, 128>, tile::Strips<64, 128, 128>, 64>(part, wide);"
    )


def test_bytes_are_unpacked_into_pairs_or_integers() -> None:
    """What goes to tensor cores is packed."""
    layout = replace(STRIPS, shape=(64, 64), vector=1)
    bytes_ = kir.Fragment("bytes", DType.I8, layout)
    unpack, store = kir.Unpack(HALF, bytes_), kir.Store(kir.Slot(S, 0), HALF, 2)
    assert written(unpack, store) == "tile::unpack<bf16>(half, bytes);"
    whole = kir.Fragment("whole", DType.I32, STRIPS)
    assert written(kir.Unpack(whole, bytes_)) == "tile::unpack(whole, bytes);"


def test_pairs_of_16_bits_are_multiplied_at_once() -> None:
    """Only where all that is needed of the product is rounded, and its factors are exact."""
    a, b = (kir.Fragment(name, DType.BF16, STRIPS) for name in "ab")
    loads = [kir.Load(one, kir.Slot(S, 0), 2) for one in (a, b)]
    product, store = kir.Compute(HALF, "mul", (a, b)), kir.Store(kir.Slot(S, 0), HALF, 2)
    assert written(product, *loads, store) == "tile::multiply<bf16>(half, a, b);"
    wide = kir.Compute(WIDE, "promote", (HALF,))
    assert "tile::map(half" in written(product, *loads, wide)
    rough = kir.Compute(b, "exp", (a,))
    assert "tile::map_packed<bf16>(half" in written(product, loads[0], rough, store)


def test_no_gpu_has_a_queue_of_copies() -> None:
    """Kernels with one are judged, not printed; the message says what else copies."""
    with pytest.raises(
        ScheduleError, match="P.1. <~ queue_copy.X.*no GPU has a queue.*copy by TMA"
    ):
        cuda.source(of(kir.Elect(kir.Per.ROLE, (kir.QueueCopy(kir.Slot(PLAIN, 1), box()),))))


def test_bools_cannot_be_added() -> None:
    """No instruction does; the message says what to use."""
    flags = kir.Tensor("F", DType.BOOL, (M, N), (N, 1), 1)
    frag = kir.Fragment("f", DType.BOOL, STRIPS)
    add = kir.AtomicAdd(kir.Box(flags, (0, 0), (64, 128), (M, N)), frag)
    with pytest.raises(ScheduleError, match="no instruction adds bools; use i32"):
        written(add)


def test_ldmatrix_does_not_convert() -> None:
    """f16 bits are no bf16."""
    other = kir.Fragment("h", DType.F16, STRIPS)
    load = kir.Load(other, kir.Slot(S, 0), 2, matrix=True)
    with pytest.raises(ScheduleError, match="does not convert bf16 into f16"):
        written(load, kir.Compute(WIDE, "promote", (other,)))


def test_three_axes_are_refused() -> None:
    """Rows and columns are all that addresses of ordinary accesses know."""
    cube = kir.Fragment("c", DType.F32, kir.Layout((2, 4, 8), 4, 32))
    with pytest.raises(ScheduleError, match="more than two axes that are not 1"):
        written(kir.Coordinate(cube, 0, 0))


ADD = kir.Compute(WIDE, "add", (WIDE, WIDE))
CLEAR = kir.Compute(WIDE, "cast", (kir.Literal(0.0, DType.F32),))
EACH = kir.Fragment("each", DType.BF16, kir.Layout((64, 128), 2, 128, kir.Deal.EACH_WARP))
ROUND = kir.Fragment("round", DType.BF16, kir.Layout((64, 128), 8, 128))


@pytest.mark.parametrize(
    "body",
    [
        (kir.Load(HALF, kir.Slot(S, 0), 2, matrix=True), kir.Store(kir.Slot(S, 1), HALF, 2)),
        (kir.Load(HALF, kir.Slot(PLAIN, 0), 2), kir.Store(kir.Slot(S, 1), HALF, 2, matrix=True)),
        (kir.Load(HALF, box(), 1, fill=1), kir.Store(box(Y), HALF, 1)),
        (
            kir.Load(HALF, kir.Slot(S, 0), 2, matrix=True),
            kir.Compute(WIDE, "promote", (HALF,)),
            kir.Store(kir.Slot(S, 0), WIDE, 2, matrix=True),
        ),
        (
            kir.Load(EACH, kir.Slot(S, 0), 2, matrix=True),
            kir.Store(kir.Slot(S, 1), EACH, 2, matrix=True),
        ),
        (kir.Load(ROUND, kir.Slot(S, 0), 8), kir.Store(kir.Slot(S, 1), ROUND, 4)),
        (kir.CpAsync(kir.Slot(S, 0), box(), ROUND.layout, 8),),
        (kir.CpAsync(kir.Slot(PLAIN, 0), box(), STRIPS, 2),),
        (
            kir.Load(ROUND, kir.Slot(S, 0), 8),
            kir.StAsync(kir.Slot(S, 1, 1 - kir.RANK), ROUND, BAR, 0, 8),
            kir.StAsync(kir.Slot(S, 1), ROUND, BAR, 1, 4),
        ),
        (
            CLEAR,
            kir.StAsync(kir.Slot(PLAIN, 1, kir.RANK), WIDE, BAR, 0, 2),
            kir.Load(HALF, kir.Slot(PLAIN, 0), 2),
            kir.StAsync(kir.Slot(S, 0), HALF, BAR, 1, 2),
        ),
        (
            kir.Elect(kir.Per.ROLE, (kir.Draw(kir.Slot(NUMBER, 0), "next"),)),
            kir.Loop(p, (kir.Fetch(NEXT, kir.Slot(NUMBER, 1)), kir.Leave(NEXT, M))),
            kir.Elect(kir.Per.ROLE, (kir.Draw(kir.Slot(NUMBER, 1), "next", atomic=False),)),
        ),
        (CLEAR, kir.AtomicAdd(box(Y), WIDE)),
        (
            CLEAR,
            kir.Store(kir.Slot(PLAIN, 0, 1 - kir.RANK), WIDE, 2),
            kir.Load(WIDE, kir.Slot(S, 0, 1 - kir.RANK), 2),
            kir.Store(box(Y), WIDE, 2),
        ),
        (
            kir.Elect(
                kir.Per.WARPGROUP,
                (
                    kir.TmaLoad(kir.Slot(S, 0), box(), BAR, 0, multicast=3),
                    kir.TmaReduce(box(Y), kir.Slot(S, 0)),
                    kir.TmaStore(box(Y), kir.Slot(PLAIN, 0)),
                ),
            ),
        ),
    ],
    ids=lambda body: "-".join(type(stmt).__name__ for stmt in body),
)
def test_every_move_compiles(body: tuple[kir.Stmt, ...]) -> None:
    """Packed and not, by matrices and not, swizzled and not, here and in the next CTA."""
    whole = of(*body, cluster=2)
    log = compile_cubin(cuda.source(whole)).log
    assert judge_log(log).status is Status.PASS
    assert "warning" not in log


@pytest.mark.parametrize("dtype", [d for d in DType if d.nbytes > 1])
def test_every_type_is_added(dtype: DType) -> None:
    """Each has an instruction of its own."""
    tensor = kir.Tensor("Y", dtype, (M, N), (N, 1), 1)
    frag = kir.Fragment("f", dtype, kir.Layout((4, 64), 1, 128))
    one = kir.Compute(frag, "cast", (kir.Literal(1.0, dtype),))
    add = kir.AtomicAdd(kir.Box(tensor, (0, 0), (4, 64), (M, N)), frag)
    whole = kir.Kernel("k", (M, N), (tensor,), (), (), (), 128, (one, add), ("Y",))
    compile_cubin(cuda.source(whole))


def test_a_product_of_fragments_that_are_seen_packs_them_on_the_way() -> None:
    """One of them is also computed with, so it is held in f32."""
    body = (
        zero(),
        kir.Load(FRAG_A, kir.Slot(SA, 0), 2),
        kir.Load(FRAG_B, kir.Slot(SB, 0), 2),
        kir.Compute(FRAG_A, "relu", (FRAG_A,)),
    )
    acc = body[0].dst if isinstance(body[0], kir.Compute) else None
    assert acc is not None
    text = cuda.source(kernel(*body, kir.Mma(acc, FRAG_A, FRAG_B)))
    assert "mma::add_product<bf16, 8, 1>(acc, types::Pairs<bf16, 4>(a).at, b);" in text
    compile_cubin(text)
