"""Kernels that have whole rows at a time: read once, and every schedule against all judges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from conftest import Golden
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import complaints
from norms import (
    CLUSTER,
    CLUSTER_RING,
    CTA_A_ROW,
    IDIOMS,
    LANES,
    LARGE,
    RELOADED,
    RING,
    SCHEDULES,
    WARP_A_ROW,
    add_rms_norm,
    back,
    launches,
    layer_norm,
    layer_norm_dx,
    softmax,
)
from sample import covering

from fuser.codegen.cuda import source
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var, ceildiv, eq, variables
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.schedule.params import NormParams
from fuzz.cases.case import Case, compiled
from fuzz.ptx.cases import judge_case
from oracles.prover.prove import prove
from oracles.simulator.simulate import search
from oracles.verdict import Status


def kernel(fusion: object, params: NormParams, columns: int = 200) -> kir.Kernel:
    """The only kernel of a fusion."""
    (launch,) = launches(fusion, params, columns=columns)  # type: ignore[arg-type]
    return launch.kernel


@pytest.mark.parametrize(
    ("idiom", "name", "columns"), covering(2, IDIOMS, SCHEDULES, [200, 256, 131, 1])
)
def test_every_schedule_computes_every_idiom(idiom: str, name: str, columns: int) -> None:
    """Proved, simulated, compared; rows of one, odd ones, and such that fill a tile."""
    params = SCHEDULES[name]
    if columns % {"cp_async": 2, "bulk": 8}.get(params.load, 1):
        params = replace(params, load="direct", stages=1, prefetch=0, reload=False)
    step = params.lanes * params.vector
    wide = -(-columns // (step * params.cluster)) * step
    params = replace(params, tile=(params.tile[0], wide))
    assert not complaints(Case(IDIOMS[idiom](), params, {"m": 3, "n": columns}, "reals", 0))


@pytest.mark.parametrize("params", [WARP_A_ROW, LANES, RING, CLUSTER, CLUSTER_RING])
@pytest.mark.parametrize("extents", [{"m": 0, "n": 64}, {"m": 3, "n": 0}, {"m": 1, "n": 2}])
def test_of_nothing_and_of_one(params: NormParams, extents: dict[str, int]) -> None:
    """No rows: nothing is written.  Of few kernels of nothing the texts differ; of seed 2 some."""
    assert not complaints(Case(softmax(), params, extents, "reals", 2))


@pytest.mark.parametrize(
    ("hold", "resident", "kept"), [(True, 16, []), (True, 2, ["T0"]), (False, 16, ["T0"])]
)
def test_rows_stay_in_the_l2_unless_weights_take_the_registers(
    hold: bool, resident: int, kept: list[str]
) -> None:
    """With 128 threads a CTA, 16 of them leave 32 registers to a thread."""
    params = replace(CTA_A_ROW, hold=hold, resident=resident)
    made = kernel(layer_norm(), params)
    assert [tensor.name for tensor in made.tensors if tensor.kept] == kept


@pytest.mark.parametrize("idiom", IDIOMS)
@pytest.mark.parametrize("params", SCHEDULES.values(), ids=SCHEDULES)
def test_every_input_crosses_once_and_every_output(idiom: str, params: NormParams) -> None:
    """Whatever is loaded again comes from shared memory."""
    made = kernel(IDIOMS[idiom](), params, min(params.columns, 200))
    crossings: Counter[str] = Counter()
    for stmt in made.walk():
        match stmt:
            case kir.Load(_, kir.Box(tensor)) | kir.Store(kir.Box(tensor)):
                crossings[tensor.name] += 1
            case kir.CpAsync(_, kir.Box(tensor)) | kir.TmaLoad(_, kir.Box(tensor)):
                # before the loop, and in it
                crossings[tensor.name] += 1 if crossings[tensor.name] == 0 else 0
            case _:
                pass
    assert crossings == {tensor.name: 1 for tensor in made.tensors}


def test_reductions_beside_each_other_share_a_barrier() -> None:
    """Two means of a gradient: one join for both, and one before the next tile's parts, if any."""
    for ctas, joins in ((2, 2), (None, 1)):
        beside = kernel(layer_norm_dx(), replace(CTA_A_ROW, ctas_per_sm=ctas))
        assert sum(isinstance(s, kir.BlockSync) for s in beside.walk()) == joins
        behind = kernel(layer_norm(), replace(CTA_A_ROW, ctas_per_sm=ctas))
        assert sum(isinstance(s, kir.BlockSync) for s in behind.walk()) == 2


def test_a_tile_a_cta_needs_no_loop() -> None:
    """The launch is checked to have as many CTAs; one that walks takes every grid."""
    alone, walks = (kernel(softmax(), replace(WARP_A_ROW, ctas_per_sm=ctas)) for ctas in (None, 2))
    rows = ceildiv(alone.params[0], WARP_A_ROW.tile[0])
    assert eq(kir.GRID, rows) in alone.requires
    assert not any(isinstance(s, kir.ForLoop) for s in alone.walk())
    assert not any(kir.GRID in variables(one) for one in walks.requires)
    assert any(isinstance(s, kir.ForLoop) for s in walks.walk())


def test_a_row_of_one_warp_joins_nobody() -> None:
    """Lanes put it together, and read what they have copied themselves."""
    for params in (WARP_A_ROW, LANES, replace(RING, lanes=32, tile=(4, 256))):
        made = kernel(softmax(), params, params.tile[1])
        syncs = [s for s in made.walk() if isinstance(s, kir.BlockSync)]
        assert not syncs


def test_what_fills_tiles_is_not_masked() -> None:
    """A class of its own, whose launches are checked."""
    exact, fewer = (kernel(layer_norm(), WARP_A_ROW, n) for n in (256, 248))
    assert eq(exact.params[1], 256) in exact.requires
    assert (fewer.params[1] <= 256) in fewer.requires
    masked = [
        any(isinstance(s, kir.Compute) and s.op == "where" for s in one.walk())
        for one in (exact, fewer)
    ]
    assert masked == [False, True]


def test_rows_that_nearly_fill_tiles_are_checked_to() -> None:
    """All vectors of a thread but its last are whole then: a class of its own."""
    few = replace(WARP_A_ROW, tile=(4, 256), vector=4, lanes=16)
    for n, close in ((256, False), (252, True), (196, True), (192, False), (4, False)):
        made = kernel(softmax(), few, n)
        assert ((Var("n1") > 192) in made.requires) is close
    made = kernel(softmax(), WARP_A_ROW, 248)
    assert (Var("n1") > 0) not in made.requires


def test_rows_of_a_softmax_end_in_minus_infinity() -> None:
    """Which is no maximum, and of which the power is 0; other sums of rows need zeros."""
    made = kernel(softmax(), WARP_A_ROW, 131)
    assert not any(isinstance(s, kir.Compute) and s.op == "where" for s in made.walk())
    assert [s.fill for s in made.walk() if isinstance(s, kir.Load)] == [float("-inf")]
    assert not complaints(Case(softmax(), WARP_A_ROW, {"m": 5, "n": 131}, "reals", 0))
    both = FusionDefinition()
    x = both.define_tensor(["m", "n"], "f32")
    less = both.ops.exp(both.ops.sub(x, back(both, both.ops.max(x, [1]))))
    both.add_output(both.ops.div(less, back(both, both.ops.sum(both.ops.mul(x, x), [1]))))
    loads = [s for s in kernel(both.fusion(), WARP_A_ROW, 131).walk() if isinstance(s, kir.Load)]
    assert [s.fill for s in loads] == [0]


def test_weights_are_loaded_once_by_who_holds_them() -> None:
    """Before all rows if they are held; else where the results need them."""

    def inside(params: NormParams) -> set[str]:
        made = kernel(layer_norm(), params)
        (loop,) = (stmt for stmt in made.body if isinstance(stmt, kir.ForLoop))
        return {*_loaded([*kir.walk(loop.body)])}

    assert inside(CTA_A_ROW) == {"T0"}
    assert inside(replace(CTA_A_ROW, hold=False)) == {"T0", "T1", "T3"}
    body = [*kernel(layer_norm(), replace(WARP_A_ROW, hold=False)).walk()]
    last = max(n for n, stmt in enumerate(body) if isinstance(stmt, kir.Reduce))
    assert _loaded(body[last:]) == ["T1", "T3"]


def _loaded(body: list[kir.Stmt]) -> list[str]:
    """Return the names of the tensors that are loaded."""
    loads = (stmt for stmt in body if isinstance(stmt, kir.Load))
    return [load.src.tensor.name for load in loads if isinstance(load.src, kir.Box)]


def test_results_of_rows_are_stored_by_one_thread_each() -> None:
    """Mean and scale, which all threads of a row have."""
    stores = [s for s in kernel(layer_norm(stats=True), CTA_A_ROW).walk() if _stores(s)]
    assert [s.src.layout.alike for s in stores if isinstance(s, kir.Store)] == [1, 128, 128]


def _stores(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.Store) and isinstance(stmt.dst, kir.Box)


def test_rows_of_two_axes_and_several_around_them() -> None:
    """Two axes are reduced at once, kept axes are not neighbours in memory."""
    fd = FusionDefinition()
    x = fd.define_tensor(["a", "b", "c", "d"], "f16", contiguity=[False, False, True, True])
    less = fd.ops.sub(x, fd.ops.broadcast(fd.ops.max(x, [2, 3]), [False, False, True, True]))
    fd.add_output(less)
    extents = {"a": 2, "b": 3, "c": 5, "d": 24}
    for params in (WARP_A_ROW, RING):
        assert not complaints(Case(fd.fusion(), params, extents, "integers", 0, gap=8))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32"])
def test_every_type_is_reduced(dtype: str) -> None:
    """In the registers in which it is added up."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    total = fd.ops.sum(x, [1])
    fd.add_output(fd.ops.sub(x, fd.ops.broadcast(total, [False, True])))
    params = replace(WARP_A_ROW, vector=2)
    assert not complaints(Case(fd.fusion(), params, {"m": 5, "n": 70}, "integers", 0))


def test_rows_too_long_are_refused() -> None:
    """With columns that would do."""
    with pytest.raises(ScheduleError, match=r"rows of 300 elements.*use\s+tile=\(2, 512\)"):
        launches(softmax(), WARP_A_ROW, columns=300)
    with pytest.raises(ScheduleError, match='no input of norm0 has rows.*use load="direct"'):
        launches(softmax(), RING, columns=131)


def test_slots_hold_rows_until_the_results_are_there() -> None:
    """Each pass over a row loads it again."""
    made = kernel(layer_norm(), RELOADED)
    loads = [s for s in made.walk() if isinstance(s, kir.Load) and s.dst.name == "r_T0"]
    assert len(loads) == 3


def test_a_softmax_reads_like_this(golden: Golden) -> None:
    """One kernel, a CTA a row."""
    golden.check(text(kernel(softmax(), replace(CTA_A_ROW, ctas_per_sm=None))))


def test_a_layer_norm_reads_like_this(golden: Golden) -> None:
    """Persistent, by a ring, with weights in registers."""
    (launch,) = launches(layer_norm(), RING, columns=256)
    golden.check(text(launch.kernel) + "\n" + launch.source)


def test_the_sum_beside_its_norm_is_one_kernel() -> None:
    """Two inputs, two outputs."""
    (launch,) = launches(add_rms_norm(), WARP_A_ROW)
    assert len(launch.kernel.outputs) == 2


def test_lanes_of_every_warp_put_together_what_sixteen_warps_have() -> None:
    """One part each; without the join before nobody knows that they are there."""
    whole = kernel(layer_norm(), LARGE, columns=1024)
    every = [s for s in whole.walk() if isinstance(s, kir.Load) and isinstance(s.src, kir.Slot)]
    assert {s.dst.layout.across for s in every if s.dst.name.startswith("parts_")} == {16}
    joins = [s for s in whole.walk() if isinstance(s, kir.BlockSync)]
    assert len(joins) == 2
    assert prove(whole).status is Status.PASS
    for join in joins:
        broken = _without(whole, join)
        assert prove(broken).status is Status.FAIL
        assert search(broken, schedules=6).status is Status.FAIL


def _without(whole: kir.Kernel, join: kir.Stmt) -> kir.Kernel:
    return whole.rewrite(lambda s: [] if s is join else None)


def test_sixteen_bits_are_computed_for_sixteen_bits() -> None:
    """Maxima of two elements at a time; powers and quotients that are rounded for them."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor(["m", "n"], "bf16"), [1]))
    (launch,) = launches(fd.fusion(), WARP_A_ROW, columns=256)
    for word in ("maximum_of_pairs<bf16>", "math::exp_roughly", "math::div_roughly"):
        assert word in launch.source
    (wide,) = launches(softmax("f32"), WARP_A_ROW, columns=256)
    assert "roughly" not in wide.source


def test_rows_of_zeros_are_averaged_without_a_branch() -> None:
    """Tiles end in such rows: division of 0 leaves the fast path, by which a warp waited 0.2 us."""
    (launch,) = launches(layer_norm(), WARP_A_ROW, columns=256)
    assert launch.source.count("math::div_by(all_") == 2
    assert "math::div(" not in launch.source


def test_a_cta_sends_one_number_a_row_to_each_cta() -> None:
    """Of what its warps have it has put its own together."""
    sends = [s for s in kernel(softmax(), CLUSTER_RING).walk() if isinstance(s, kir.StAsync)]
    assert {send.src.layout.registers for send in sends} == {1}
    assert {send.dst.cta for send in sends} == {0, 1}


def test_numbers_of_sixteen_bits_are_sent_as_thirty_two() -> None:
    """What is stored into another CTA has 4 bytes at least; maxima stay what they are."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
    (launch,) = launches(fd.fusion(), CLUSTER_RING)
    sends = [s for s in launch.kernel.walk() if isinstance(s, kir.StAsync)]
    assert {send.dst.buffer.dtype for send in sends} == {DType.F32}
    assert not complaints(Case(fd.fusion(), CLUSTER_RING, {"m": 5, "n": 200}, "reals", 0))


def test_rows_come_in_bulk(golden: Golden) -> None:
    """One a tile; elements behind the end of a short one are not read from its slot."""
    params = NormParams((1, 512), 8, 2, 2, "bulk", "direct", 3, 2, lanes=64)
    golden.check(text(kernel(softmax(), params)))
    for columns in (8, 256, 504, 512):
        for rows in (1, 2, 9):
            case = Case(softmax(), params, {"m": rows, "n": columns}, "reals", 0)
            assert not complaints(case)


@pytest.mark.parametrize(("resident", "hint"), [(2, "<true>"), (16, "")])
def test_bulk_copies_stay_in_the_l2_where_loads_do(resident: int, hint: str) -> None:
    """By a hint, which costs registers: with 16 CTAs of 64 threads an SM weights leave none."""
    params = NormParams((1, 512), 8, 2, 2, "bulk", "direct", 3, 2, lanes=64, hold=True)
    printed = source(kernel(layer_norm(), replace(params, resident=resident), 512))
    assert printed.count(f"bulk::load{hint}(") == printed.count("bulk::load") == 2


def test_rows_end_with_vectors_where_a_bulk_copy_is_of_whole_ones() -> None:
    """Each is there or not, and so are its elements for a sum: nothing is asked one by one."""
    params = NormParams((1, 512), 8, 2, 2, "bulk", "direct", 3, 2, lanes=64)
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.layer_norm(x, [1]))
    printed = source(kernel(fd.fusion(), params))
    assert "tile::Part<bf16, 512, false>{" in printed
    assert "bool inside[1];" in printed
    assert "math::where(inside[i / 8]," in printed


def test_bulk_rows_are_one_a_tile() -> None:
    """Others are copied by cp.async."""
    with pytest.raises(ScheduleError, match=r"take one row; use tile=\(1, 256\) and lanes=64"):
        NormParams((2, 256), 8, 2, 1, "bulk", "direct", 2, 1, lanes=32)


def test_rows_of_odd_bytes_are_not_copied_in_bulk() -> None:
    """They begin at no multiple of 16 bytes."""
    params = NormParams((1, 512), 8, 2, 2, "bulk", "direct", 3, 2, lanes=64)
    with pytest.raises(ScheduleError, match='a bulk copy takes 16 bytes .* use load="cp_async"'):
        kernel(softmax(), params, columns=401)


def test_the_first_cta_of_a_cluster_stores_what_all_of_them_have() -> None:
    """Mean and scale of each row."""
    made = kernel(layer_norm(stats=True), CLUSTER)
    guards = [s for s in made.body if isinstance(s, kir.IfThenElse)]
    assert [guard.condition for guard in guards] == [eq(kir.RANK, 0)] * 2


def test_a_norm_of_a_cluster_reads_like_this(golden: Golden) -> None:
    """Two rows of four CTAs."""
    golden.check(text(kernel(add_rms_norm(), CLUSTER)))


@pytest.mark.parametrize("cluster", [1, 2])
def test_positions_along_a_row_are_those_of_the_tensor(cluster: int) -> None:
    """Each CTA of a cluster has columns of its own, and counts from the first of the row."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    total = fd.ops.sum(x, [1], keepdim=True)
    at = fd.ops.broadcast(fd.ops.iota("n", start=0, step=1, dtype="f32"), [True, False])
    fd.add_output(fd.ops.add(fd.ops.add(x, total), at))
    ctas = None if cluster > 1 else 2
    params = NormParams((1, 256), 4, 2, ctas, "direct", "direct", lanes=64, cluster=cluster)
    assert not complaints(Case(fd.fusion(), params, {"m": 3, "n": 200 * cluster}, "integers", 1))


# --- reductions that nothing is broadcast back from -----------------------------------------------


SLIDING = replace(WARP_A_ROW, tile=(4, 256), vector=8, lanes=32, warps=4, slide=True)
PLAIN = {
    "a warp a row": replace(SLIDING, slide=False, vector=1),
    "lanes": replace(SLIDING, slide=False, tile=(16, 256), lanes=8),
    "a cluster": replace(CLUSTER, tile=(CLUSTER.tile[0], 256)),
    "sliding": SLIDING,
    "several rows a group, sliding": replace(SLIDING, tile=(8, 256)),
    "one row, sliding": replace(SLIDING, tile=(1, 1024), lanes=128),
}


@pytest.mark.parametrize(("name", "op"), covering(2, PLAIN, ["sum", "mean", "max"]))
def test_plain_rows_are_reduced_whole(name: str, op: str) -> None:
    """Rows that begin anywhere, too: 131 elements of 2 bytes."""
    params = PLAIN[name]
    kind = "reals" if op == "mean" else "integers"
    made = "abs" if op == "max" else None
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f16")
    source = fd.ops.abs(x) if made else x
    fd.add_output(getattr(fd.ops, op)(source, [1]))
    of = Case(fd.fusion(), params, {"m": 9, "n": 131}, kind, 0, offset=3)  # type: ignore[arg-type]
    assert not complaints(of)


@pytest.mark.parametrize(
    ("op", "dtype", "says"),
    [
        ("min", "bf16", "T1 is changed by zeros beside its rows; use slide=False"),
        ("sum", "f32", "vectors of T0 are 32 bytes, of memory 16; use slide=False"),
    ],
)
def test_only_sums_slide(op: str, dtype: str, says: str) -> None:
    """Who holds what of a row is not known, and there are zeros beside it."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    fd.add_output(getattr(fd.ops, op)(x, [1]))
    with pytest.raises(ScheduleError, match=rf"NormParams\(slide=True, vector=8\): {says}"):
        launches(fd.fusion(), SLIDING, columns=131)


@pytest.mark.parametrize(("dtype", "vector"), [("bf16", 8), ("f16", 4), ("bf16", 2), ("f32", 4)])
@pytest.mark.parametrize("lanes", [1, 4, 16, 32, 64])
def test_rows_that_begin_anywhere_are_stored_in_place(lanes: int, dtype: str, vector: int) -> None:
    """By aligned words, which neighbours share; weights are read as they lie, by whole vectors."""
    columns = 2 * lanes * vector + 1  # the last threads have what ends within a vector
    params = NormParams(
        (2 * 64 // lanes, 3 * lanes * vector), vector, 2, None, "direct", "direct", lanes=lanes
    )
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "n"], dtype), fd.define_tensor(["n"], dtype)
    least = fd.ops.broadcast(fd.ops.max(x, [1]), [False, True])
    fd.add_output(fd.ops.add(fd.ops.sub(x, least), fd.ops.broadcast(w, [True, False])))
    aligned = Case(fd.fusion(), params, {"m": 9, "n": columns}, "integers", 0)
    for of in (aligned, replace(aligned, offset=5)):
        program = compiled(of)
        (launch,) = program.launches
        given = {t.name: (t.ragged, t.aligned) for t in launch.kernel.tensors}
        assert given["T0"] == (False, 1)
        assert given["T1"] == ((True, 16 // w.dtype.nbytes) if not of.offset else (False, 1))
        assert judge_case(of, program=program).status is Status.PASS
        assert not complaints(of)


@st.composite
def norms_of_any_rows(draw: st.DrawFn) -> Case:
    """By so many threads and CTAs, computed anew or kept, apart from each other and not aligned."""
    name, nbytes = draw(st.sampled_from((("bf16", 2), ("f16", 2), ("f32", 4))))
    vector = draw(st.sampled_from((8, 16))) // nbytes
    lanes = 1 << draw(st.integers(0, 8))
    cluster = draw(st.sampled_from((1, 1, 2, 4))) if lanes >= kir.WARP else 1
    wide = lanes * vector * draw(st.integers(1, 4))
    warps = max(lanes // kir.WARP, draw(st.integers(1, 2)))
    rows = kir.WARP * warps // lanes * draw(st.integers(1, 2))
    params = NormParams(
        (rows, wide), vector, warps, None, "direct", "direct", lanes=lanes, cluster=cluster,
        recompute=draw(st.booleans()), hold=draw(st.booleans()),
    )  # fmt: skip
    columns = wide * cluster - draw(st.integers(0, wide - 1))
    extents = {"m": draw(st.sampled_from((1, 3, 9))), "n": columns}
    fusion = draw(st.sampled_from((layer_norm, softmax)))(name)
    gap, offset = draw(st.sampled_from((0, 3))), draw(st.integers(0, 3))
    return Case(fusion, params, extents, "reals", 0, gap=gap, offset=offset)


@settings(max_examples=40)
@given(norms_of_any_rows())
def test_norms_of_rows_that_begin_anywhere_are_right_by_their_ptx(case: Case) -> None:
    """Neighbours share words of memory, and the last of a row are no whole vector."""
    assert judge_case(case).status is Status.PASS
