"""Products of few rows are sums: which, what they become, and that their values stay."""

from __future__ import annotations

from typing import Any

import pytest

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, Symbol, TensorView
from fuser.runtime.classify import classify
from fuser.runtime.explain import dense, explain
from fuser.schedule.cut.few_rows import Few, as_sums, few_rows
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams
from fuzz.campaign.judge import CPU_ORACLES, judge
from fuzz.cases.case import Case, specs

M, N = Symbol("m"), Symbol("n")
HOPPER = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False)
DIRECT = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
ROWS = NormParams((16, 300), 1, 2, None, "direct", "direct", lanes=4)
SHARED = ReductionParams((2, 1024), 4, 4, None, "direct", "direct", splits=3)


def product(
    *, dtype: str = "bf16", turned: bool = False, meet: bool = False, **more: Any
) -> tuple[FusionDefinition, Any]:
    """Begin a fusion with a product of m rows, n columns and depth k; `turned` in B's memory."""
    fd = FusionDefinition()
    a = fd.define_tensor(["m", "k"], dtype)
    b = fd.define_tensor(["k", "n"] if turned else ["n", "k"], dtype)
    made = fd.ops.matmul(a, b, **more) if turned else fd.ops.linear(a, b, **more)
    if meet:
        made.request_serial_grid_reduction()
    return fd, made


def fusion(**more: Any) -> Fusion:
    """Return a product and nothing else."""
    fd, made = product(**more)
    fd.add_output(made)
    return fd.fusion()


def few(fused: Fusion, m: int, n: int, k: int = 64) -> set[Few]:
    """Return which products of a call are sums."""
    values = {Symbol("m"): m, Symbol("n"): n, Symbol("k"): k}
    return {*few_rows(fused, values, frozenset())}


@pytest.mark.parametrize(
    ("m", "n", "found"),
    [
        (1, 9, {Few("T2", 1, None, 0, (M,))}),
        (9, 1, {Few("T2", 1, None, 1, (N,))}),
        (1, 1, {Few("T2", 1, None, None, (M,))}),
        (2, 9, {Few("T2", 2, 0, 0)}),
        (9, 2, {Few("T2", 2, 1, 1)}),
        (3, 9, {Few("T2", 3, 0, 0)}),
        (4, 9, {Few("T2", 4, 0, 0)}),
        (5, 9, set()),
        (0, 9, set()),
    ],
)
def test_products_of_up_to_four_rows_or_columns(m: int, n: int, found: set[Few]) -> None:
    """The smaller side is taken apart; `small` is the operand that is read again and again."""
    assert few(fusion(), m, n) == found


@pytest.mark.parametrize(
    ("m", "n", "k", "summed"),
    [
        (2, 1 << 17, 1 << 14, True),
        (3, 3072, 1024, True),  # 6 MiB
        (3, 3073, 1024, False),
        (4, 3072, 1024, True),
        (4, 3073, 1024, False),
        (3, 1 << 14, 8998, True),  # rows begin at pairs of elements
        (4, 64, 9002, False),
        (3, 1 << 14, 4095, True),  # or anywhere
        (4, 64, 4097, False),
        (1, 1 << 14, 127, False),  # short ones anywhere
        (1, 1 << 13, 127, True),
        (1, 1 << 14, 129, True),
        (1, 1 << 14, 126, True),
    ],
)
def test_one_row_or_a_few_where_threads_are_faster(m: int, n: int, k: int, *, summed: bool) -> None:
    """Or of rows that tensor cores read badly, but for long ones, and many short ones."""
    assert bool(few(fusion(), m, n, k)) == summed


def test_short_rows_are_those_that_are_summed_over() -> None:
    """Of a B whose columns are neighbours in memory none was measured."""
    assert few(fusion(turned=True), 1, 127, 1 << 14)
    assert not few(fusion(), 1, 1 << 14, 127)


@pytest.mark.parametrize(
    "more",
    [
        {"dtype": "i8"},
        {"dtype": "f8e4m3"},
        {"dtype": "f16", "accumulate": "f16"},
        {"meet": True},
    ],
)
def test_what_threads_do_not_add_as_tensor_cores_do_stays_a_product(more: dict[str, Any]) -> None:
    """Integers, 8 bits, sums in f16; and what CTAs are asked to add up in turns."""
    assert few(fusion(**more), 1, 64) == set()
    assert few(fusion(), 1, 64)


def test_params_of_tensor_cores_ask_for_tensor_cores() -> None:
    """A user who names such a schedule gets it, with one row too."""
    fused = fusion()
    specs = {tv.name: dense(tv, (1, 64), n << 32) for n, tv in enumerate(tensors(fused), 1)}
    assert not classify(fused, HOPPER, specs).choices.few
    assert classify(fused, None, specs).choices.few


def tensors(fused: Fusion) -> list[TensorView]:
    """Return the inputs, which are all tensors."""
    return [tv for tv in fused.inputs if isinstance(tv, TensorView)]


def test_each_row_is_a_sum_and_the_result_has_them_behind_each_other() -> None:
    """Of one row nothing is taken apart; the name of the result stays."""
    one = as_sums(fusion(), frozenset({Few("T2", 1, None, 0)}))
    assert [tv.op for tv in one.tensors][-2:] == ["mul", "sum"]
    three = as_sums(fusion(), frozenset({Few("T2", 3, 0, 0)}))
    (out,) = three.outputs
    assert (out.name, out.op, out.shape) == ("T2", "cat", (3, Symbol("n")))
    assert [tv.op for tv in three.tensors].count("sum") == 3
    assert three.inputs[0].shape == (3, Symbol("k"))  # type: ignore[union-attr]


def test_one_kernel_reads_weights_once_wherever_rows_begin() -> None:
    """Odd rows need no copy, and all rows of a call share what is read."""
    said = explain(fusion(), (2, 1001), (777, 1001))
    assert len(said.parts) == 1
    assert said.between == 0
    assert said.again == 0


def test_what_is_computed_for_an_operand_of_few_rows_is_stored_first() -> None:
    """Of a gated layer: both products share a kernel, and the third reads what they give."""
    for rows in (1, 2):
        said = explain(gated(rows).fusion, (rows, 64), (96, 64), (96, 64), (64, 96))
        assert len(said.parts) == 2
        assert said.between == 2 * 2 * rows * 96  # 16 bits, stored and read
    assert not any("silu" in op for op in said.parts[1].ops)


def gated(rows: int) -> Case:
    """Return a small gated layer, and one behind it."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "h"], "bf16")
    gate, up = (fd.define_tensor(["f", "h"], "bf16") for _ in range(2))
    down = fd.define_tensor(["h", "f"], "bf16")
    made = fd.ops.mul(fd.ops.silu(fd.ops.linear(x, gate)), fd.ops.linear(x, up))
    fd.add_output(fd.ops.linear(fd.ops.cast(made, "bf16"), down))
    return Case(fd.fusion(), DIRECT, {"m": rows, "h": 40, "f": 24}, kind="reals", seed=rows)


def quantised() -> Case:
    """Return a product with weights of 8 bits, scaled by row: computed where they are read."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "k"], "bf16")
    w, scale = fd.define_tensor(["n", "k"], "i8"), fd.define_tensor(["n"], "f32")
    wide = fd.ops.mul(fd.ops.cast(w, "f32"), fd.ops.broadcast(scale, [False, True]))
    fd.add_output(fd.ops.linear(x, fd.ops.cast(wide, "bf16")))
    return Case(fd.fusion(), DIRECT, {"m": 2, "n": 33, "k": 71}, kind="reals", seed=5)


def batched() -> Case:
    """Return products of one row for each of several matrices, the rows of one of them turned."""
    fd = FusionDefinition()
    q, k = fd.define_tensor(["b", "m", "d"], "f16"), fd.define_tensor(["b", "n", "d"], "f16")
    fd.add_output(fd.ops.matmul(q, fd.ops.permute(k, [0, 2, 1])))
    return Case(fd.fusion(), ROWS, {"b": 3, "m": 1, "n": 37, "d": 24}, kind="integers", seed=6)


def single(m: int, n: int, k: int, params: Any, **more: Any) -> Case:
    """Return one product with an epilogue of a bias."""
    fd, made = product(**more)
    bias = fd.define_tensor(["n"], "bf16")
    fd.add_output(fd.ops.relu(fd.ops.add(made, fd.ops.broadcast(bias, [True, False]))))
    kind: Any = "integers" if k % 2 else "reals"
    return Case(fd.fusion(), params, {"m": m, "n": n, "k": k}, kind=kind, seed=m + n + k)


CASES = {
    "one row": single(1, 65, 200, DIRECT),
    "one column": single(33, 1, 65, DIRECT),
    "one element": single(1, 1, 1, DIRECT),
    "two odd rows": single(2, 19, 137, DIRECT),
    "odd rows by words": single(
        1, 9, 517, PointwiseParams((1, 256), 8, 1, None, "direct", "direct")
    ),
    "two columns": single(50, 2, 129, ROWS),
    "turned": single(2, 40, 130, SHARED, turned=True),
    "turned, tf32": single(1, 24, 65, SHARED, turned=True, dtype="f32", precision="tf32"),
    "gated, one row": gated(1),
    "gated, two rows": gated(2),
    "weights of 8 bits": quantised(),
    "batched": batched(),
}


@pytest.mark.parametrize("name", CASES)
def test_all_judges_pass_them(name: str) -> None:
    """Order, values, and the PTX."""
    wanted = [one for one in CPU_ORACLES if one != "schedules"]
    found = judge(CASES[name], wanted, seconds=0.05)
    assert {one.status for one in found} == {"pass"}, [f for f in found if f.status != "pass"]


@pytest.mark.parametrize(
    ("first", "second", "kernels"),
    [(False, False, 1), (True, False, 2), (False, True, 1), (True, True, 1)],
)
@pytest.mark.parametrize("many", [1, 2])
def test_rows_that_lie_in_columns_are_stored_first(
    many: int, first: bool, second: bool, kernels: int
) -> None:
    """Where threads walk the other operand along K; one row lies along K anyhow."""
    fd = FusionDefinition()
    a = fd.define_tensor(["k", "m"] if first else ["m", "k"], "bf16")
    b = fd.define_tensor(["k", "n"] if second else ["n", "k"], "bf16")
    a, b = (fd.ops.permute(a, [1, 0]) if first else a), (b if second else fd.ops.permute(b, [1, 0]))
    fd.add_output(fd.ops.matmul(a, b))
    case = Case(fd.fusion(), DIRECT, {"m": many, "n": 300, "k": 1000}, "reals", 0)
    found = classify(case.fusion, DIRECT, specs(case))
    (one,) = found.choices.few
    assert one.strided == (kernels == 2 and many > 1)
    assert len(found.kernels) == (kernels if many > 1 else 1)
    records = judge(case, CPU_ORACLES)
    assert not [r for r in records if r.status != "pass"]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("beside", [1, 5])
def test_one_row_whose_elements_are_apart_is_stored_first(beside: int, *, apart: bool) -> None:
    """As columns of matrices that lie side by side are; of one matrix they are neighbours."""
    fd = FusionDefinition()
    a = fd.define_tensor(["b", "m", "k"], "bf16")
    b = fd.define_tensor(["k", "b", "n"] if apart else ["b", "k", "n"], "bf16")
    fd.add_output(fd.ops.matmul(a, fd.ops.permute(b, [1, 0, 2]) if apart else b))
    case = Case(fd.fusion(), DIRECT, {"b": beside, "m": 40, "n": 1, "k": 200}, "reals", 0)
    found = classify(case.fusion, DIRECT, specs(case))
    (one,) = found.choices.few
    assert one.strided == (apart and beside > 1)
    assert len(found.kernels) == (2 if apart and beside > 1 else 1)
    records = judge(case, CPU_ORACLES)
    assert not [r for r in records if r.status != "pass"]
