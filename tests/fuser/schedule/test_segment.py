"""How a fusion with products is cut, and how what lies between kernels lies in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import blocks
import graphs
import judged
import pytest
import torch
from hypothesis import Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from sample import often

from fuser.fusion.definition import Fusion, FusionDefinition, Symbol, TensorView
from fuser.pipeline import Program, build
from fuser.runtime.binding import bind
from fuser.runtime.call import intermediate_spec
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.segment import segments
from fuzz.cases.case import Case, compiled, specs
from fuzz.cases.strategies import default_cases, product_cases
from oracles.differential import compare
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

PARAMS = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=16)


def case(define: Callable[[FusionDefinition], TensorView], **extents: int) -> Case:
    """A case of one output."""
    fd = FusionDefinition()
    fd.add_output(define(fd))
    return Case(fd.fusion(), PARAMS, extents, "integers", 0)


def stretched(fd: FusionDefinition) -> TensorView:
    """The second operand has no summed axis in memory."""
    x = fd.define_tensor(["m", "k"], "bf16")
    w = fd.ops.expand(fd.ops.broadcast(fd.define_tensor(["n"], "bf16"), [True, False]), ["k", "n"])
    return fd.ops.matmul(x, w)


def batch_last(fd: FusionDefinition) -> TensorView:
    """The fastest axis of a computed operand is a batch axis."""
    x = fd.ops.neg(fd.define_tensor(["m", "k", "b"], "bf16"))
    w = fd.define_tensor(["b", "n", "k"], "bf16")
    mapping = [[2, 0, -1, 1], [0, -1, 1, 2]]
    return fd.ops.fused_multiply_sum(x, w, axis_mapping=mapping)


def sums_apart(fd: FusionDefinition) -> TensorView:
    """Two summed axes in different orders."""
    x = fd.define_tensor(["k0", "m", "k1"], "bf16")
    w = fd.define_tensor(["n", "k1", "k0"], "bf16")
    mapping = [[1, -1, 0, 2], [-1, 0, 2, 1]]
    return fd.ops.fused_multiply_sum(x, w, axes=[2, 3], axis_mapping=mapping)


def some_sums_shared(fd: FusionDefinition) -> TensorView:
    """One product sums over two axes, another over one of the same extent."""
    x = fd.define_tensor(["m", "k0", "k1"], "bf16")
    w = fd.define_tensor(["n", "k0", "k1"], "bf16")
    both = fd.ops.fused_multiply_sum(x, w, axes=[2, 3], axis_mapping=[[0, -1, 1, 2], [-1, 0, 1, 2]])
    one = fd.ops.linear(
        fd.define_tensor(["m", "k0"], "bf16"), fd.define_tensor(["n", "k0"], "bf16")
    )
    return fd.ops.add(both, one)


def one_between(fd: FusionDefinition) -> TensorView:
    """A computed operand with an axis of extent 1 before the rows that are padded."""
    x = fd.ops.neg(fd.define_tensor(["a", "b", "k"], "bf16"))
    w = fd.define_tensor(["n", "k"], "bf16")
    wide = fd.ops.broadcast(x, [False, False, True, False])
    return fd.ops.fused_multiply_sum(wide, w, axis_mapping=[[0, 1, -1, 3], [-1, -1, 0, 1]])


def several_rows(fd: FusionDefinition) -> TensorView:
    """The fastest axis of an operand has the role M, but tiles lie along another such axis."""
    x = fd.ops.neg(fd.define_tensor(["k", "m0", "m1"], "bf16"))
    w = fd.define_tensor(["n", "k"], "bf16")
    mapping = [[2, 1, -1, 0], [-1, -1, 0, 1]]
    return fd.ops.fused_multiply_sum(x, w, axis_mapping=mapping)


def on_both_sides(fd: FusionDefinition) -> TensorView:
    """One vector is the first operand of a product and the second of another, and of itself."""
    x, y = fd.define_tensor(["k"], "bf16"), fd.define_tensor(["k"], "bf16")
    return fd.ops.add(fd.ops.matmul(x, y), fd.ops.add(fd.ops.matmul(y, x), fd.ops.matmul(x, x)))


CASES = {
    "stretched": case(stretched, m=8, k=8, n=16),
    "batch last": case(batch_last, m=8, k=8, b=2, n=8),
    "sums apart": case(sums_apart, k0=3, m=8, k1=5, n=9),
    "some sums shared": case(some_sums_shared, m=8, n=8, k0=8, k1=2),
    "one between": case(one_between, a=3, b=2, k=7, n=8),
    "one row": case(one_between, a=3, b=1, k=7, n=8),
    "several rows": case(several_rows, k=8, m0=2, m1=3, n=8),
    "on both sides": case(on_both_sides, k=24),
}


def program(name: str) -> Program:
    """Compile a case."""
    drawn = CASES[name]
    return build(drawn.fusion, PARAMS, classify(drawn.fusion, PARAMS, specs(drawn)))


@pytest.mark.parametrize("name", CASES)
def test_operands_lie_as_the_copy_engine_reads_them(name: str) -> None:
    """Found by the generator: refused, or read at wrong addresses."""
    made = program(name)
    assert made.intermediates or name in ("some sums shared", "on both sides")
    bind(made, specs(CASES[name]), sms=1)
    records = judged.records(CASES[name], ("differential",))
    assert [(r.oracle, r.status, r.reason) for r in records if r.status != "pass"] == []
    assert any(r.oracle == "differential" for r in records)


def test_rows_of_an_intermediate_are_padded_to_whole_chunks() -> None:
    """TMA takes strides of multiples of 16 bytes: 15 summed elements of 2 bytes become 16."""
    made = program("sums apart")
    values = {Symbol(name): n for name, n in CASES["sums apart"].extents.items()}
    strides = [intermediate_spec(tv, values).strides for tv in made.intermediates]
    assert strides == [(5, 16, 1), (16, 1, 5)]


def test_a_computed_operand_is_stored_as_the_schedule_reads_it() -> None:
    """cp.async and ldmatrix need the summed axis last, whether an operand is copied or computed."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["k", "n"], "bf16")
    fd.add_output(fd.ops.matmul(x, fd.ops.neg(w)))
    params = AmpereParams((32, 16, 16), 2, "groups", 2, 1, persistent=False, columns=16)
    drawn = Case(fd.fusion(), params, {"m": 8, "k": 8, "n": 16}, "integers", 0)
    records = judged.records(drawn, ("differential",))
    assert {r.status for r in records} == {"pass"}
    assert any(r.oracle == "differential" for r in records)


def test_an_output_that_is_an_operand_too_is_no_reason_to_multiply_twice() -> None:
    """Once for what another product reads, again for the outputs: found by the property below."""
    fd = FusionDefinition()
    x, y = fd.define_tensor(["m", "k"], "f16"), fd.define_tensor(["n", "k"], "f16")
    product = fd.ops.linear(x, fd.ops.neg(y))
    difference = fd.ops.sub(product, fd.ops.relu(product))
    square = fd.define_tensor(["m", "m"], "f16", stride_order=[0, 1])
    for one in (product, difference, fd.ops.matmul(square, difference)):
        fd.add_output(one)
    params = MatmulParams((128, 16, 32), 2, "cooperative", 2, 1, persistent=True, columns=8)
    drawn = Case(fd.fusion(), params, {"m": 64, "k": 64, "n": 40}, "integers", 0)
    cut = segments(drawn.fusion, classify(drawn.fusion, drawn.params, specs(drawn)).choices)
    made = Counter(tv.held for one in cut for tv in one.fusion.tensors if tv.op == "mma")
    assert all(many == 1 for many in made.values()), made


@pytest.mark.parametrize("drawn", [product_cases(), default_cases()], ids=["asked", "default"])
def test_no_product_is_computed_by_two_kernels(drawn: SearchStrategy[Case]) -> None:
    """Whatever is computed from products, and whoever chose the schedule."""
    multiplied = 0

    @seed(8)
    @settings(database=None, phases=(Phase.generate,), max_examples=often(2000, 80), deadline=None)
    @given(drawn)
    def draw(case: Case) -> None:
        nonlocal multiplied
        cut = segments(case.fusion, classify(case.fusion, case.params, specs(case)).choices)
        made = Counter(tv.held for one in cut for tv in one.fusion.tensors if tv.op == "mma")
        multiplied += bool(made)
        assert all(many == 1 for many in made.values()), made

    draw()
    assert multiplied > 15


@pytest.mark.parametrize("number", range(often(600, 24)))
def test_kernels_of_any_graph_compute_it(number: int) -> None:
    """In the simulator: no product twice, and every value within its bound."""
    fusion = graphs.graph(number)
    case, given = Case(fusion, blocks.PARAMS, {}, "reals", 0), graphs.inputs(fusion)
    program = compiled(case)
    cut = segments(fusion, program.shapes.choices)
    made = Counter(tv.held for one in cut for tv in one.fusion.tensors if tv.op == "mma")
    assert all(many == 1 for many in made.values()), made
    memory = blocks.ran(case, program, given)
    got = [torch.as_tensor(memory[tv.name]) for tv in fusion.outputs]
    assert compare(evaluate(fusion, given), got, exact=False).status is Status.PASS


def test_what_is_read_is_stored_before() -> None:
    """Found by random graphs: a maximum was put off, and the kernel that reads it came first."""
    fd = FusionDefinition()
    x, z = (fd.define_tensor([40, 48], "bf16") for _ in range(2))
    y = fd.ops.linear(fd.define_tensor([40, 16], "bf16"), fd.define_tensor([48, 16], "bf16"))
    flat = fd.ops.flatten(fd.ops.relu(fd.ops.unflatten(y, 0, [2, 20])), 0, 1)
    fd.add_output(fd.ops.softmax(x, [1]))
    fd.add_output(fd.ops.sum(flat, [0], dtype="f32"))
    fd.add_output(fd.ops.mul(z, fd.ops.max(y, [0], keepdim=True)))
    records = judged.records(Case(fd.fusion(), blocks.PARAMS, {}, "reals", 0), ("differential",))
    assert {record.status for record in records} == {"pass"}, records


def _summed_in_two_orders(*, strangers: bool) -> Fusion:
    """Two products of one tensor, of which the second has its sums in the other order.

    `strangers`: they have no common rows and columns either.
    """
    fd = FusionDefinition()
    ops = fd.ops
    x = fd.define_tensor(["i0", "i1", "i2"], "bf16")
    if strangers:
        first = fd.define_tensor(["i1", "i2", "i0", "i0"], "bf16")
        mapping = [[0, -1, -1, 1, 2], [-1, 2, 3, 0, 1]]
        fd.add_output(ops.fused_multiply_sum(x, first, [3, 4], mapping))
        other = fd.define_tensor(["i2", "i0", "i1", "i0"], "bf16")
        mapping = [[-1, 2, 1, 0, -1], [3, 0, 2, -1, 1]]
        fd.add_output(ops.permute(ops.fused_multiply_sum(x, other, [1, 2], mapping), [1, 2, 0]))
        return fd.fusion()
    first = fd.define_tensor(["i3", "i1", "i2"], "bf16")
    one = ops.fused_multiply_sum(x, first, [2, 3], [[0, -1, 1, 2], [-1, 0, 1, 2]])
    other = fd.define_tensor(["i3", "i2", "i1"], "bf16")
    two = ops.fused_multiply_sum(x, other, [2, 3], [[0, -1, 2, 1], [-1, 0, 1, 2]])
    fd.add_output(ops.add(one, two))
    return fd.fusion()


@pytest.mark.parametrize("strangers", [False, True])
def test_one_tensor_is_summed_over_in_two_orders(*, strangers: bool) -> None:
    """One copy suits but one of them, so that the other product has a kernel of its own."""
    fusion = _summed_in_two_orders(strangers=strangers)
    extents = {"i0": 6, "i1": 8, "i2": 5} | ({} if strangers else {"i3": 7})
    asked = Case(fusion, PARAMS, extents, "integers", 2)
    records = judged.records(asked)
    assert {record.status for record in records} == {"pass"}, records
