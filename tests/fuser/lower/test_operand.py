"""Operands that are computed where they are multiplied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import judged
import pytest
from judged import complaints
from sample import covering

from fuser.fusion.definition import FusionDefinition, TensorView
from fuser.kernel import ir as kir
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case, compiled, specs, symbols
from fuzz.kernels.matmul import launch
from oracles.prover.prove import prove
from oracles.simulator import simulate
from oracles.simulator.simulate import Launch
from oracles.verdict import Status

COOPERATIVE = MatmulParams(
    (64, 16, 16), 1, "cooperative", 3, 1, persistent=True, columns=16, prologue="registers"
)
PARAMS: dict[str, MatmulParams | AmpereParams] = {
    "pipelined": replace(COOPERATIVE, split="pipelined", persistent=False),
    "cooperative": COOPERATIVE,
    "ping_pong": replace(COOPERATIVE, split="ping_pong", warpgroups=2, stages=2, prefetch=0),
    "groups": AmpereParams((32, 16, 16), 2, "groups", 2, 1, persistent=False, columns=16),
    "mbarriers": AmpereParams((32, 16, 16), 2, "mbarriers", 2, 0, persistent=True, columns=16),
    "threads": AmpereParams((32, 16, 16), 2, "threads", 1, 0, persistent=True, columns=16),
}

HOPPER = [name for name, params in PARAMS.items() if isinstance(params, MatmulParams)]

Define = Callable[[FusionDefinition, TensorView], TensorView]


def unary(op: str) -> Define:
    """One operation."""
    return lambda fd, x: getattr(fd.ops, op)(x)


def scaled(fd: FusionDefinition, x: TensorView) -> TensorView:
    """By a factor a row, and one a column."""
    rows = fd.ops.broadcast(fd.define_tensor(["m"], "f32"), [False, True])
    columns = fd.ops.broadcast(fd.define_tensor(["k"], "bf16"), [True, False])
    return fd.ops.cast(fd.ops.mul(fd.ops.mul(x, rows), columns), "bf16")


def of_two(fd: FusionDefinition, x: TensorView) -> TensorView:
    """Of two tensors."""
    return fd.ops.mul(fd.ops.silu(x), fd.define_tensor(["m", "k"], "bf16"))


def by_scalar(fd: FusionDefinition, x: TensorView) -> TensorView:
    """Times a number of the call, which may be infinite."""
    return fd.ops.cast(fd.ops.mul(x, fd.define_scalar("f32")), "bf16")


DEFINES: dict[str, Define] = {
    "relu": unary("relu"),
    "exp": unary("exp"),
    "reciprocal": unary("reciprocal"),
    "scaled": scaled,
    "of two": of_two,
    "by a scalar": by_scalar,
}


def case(
    define: Define,
    params: MatmulParams | AmpereParams = COOPERATIVE,
    dtype: str = "bf16",
    *,
    second: bool = False,
) -> Case:
    """`relu(define(x) @ w)` with an odd number of rows, and a tail of K; or w, and x, by `second`.

    What is computed has the rows of tiles, which are transposed for a second operand.
    """
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], dtype), fd.define_tensor(["n", "k"], "bf16")
    made = define(fd, x)
    fd.add_output(fd.ops.relu(fd.ops.linear(w, made) if second else fd.ops.linear(made, w)))
    params = replace(params, prologue="registers")
    if isinstance(params, MatmulParams):
        params = replace(params, transpose=second, store="tma" if second else params.store)
    return Case(fd.fusion(), params, {"m": 37, "k": 40, "n": 24}, "reals", 0)


@pytest.mark.parametrize(("name", "schedule"), covering(1, DEFINES, PARAMS))
def test_one_kernel_computes_and_multiplies(name: str, schedule: str) -> None:
    """Every judge agrees, at a tail of K too, where 1 / x would be infinite."""
    check_one_kernel(case(DEFINES[name], PARAMS[schedule]))


@pytest.mark.parametrize(("name", "schedule"), covering(1, DEFINES, HOPPER))
def test_second_operands_are_computed_by_transposed_tiles(name: str, schedule: str) -> None:
    """Such as weights of 8 bits, which are read once."""
    check_one_kernel(case(DEFINES[name], PARAMS[schedule], second=True))


def check_one_kernel(of: Case) -> None:
    """All that is asked of one kernel, whose results every judge agrees on."""
    assert len(compiled(of).launches) == 1
    records = judged.records(of)
    assert {"prover", "simulator", "differential", "assembler"} <= {r.oracle for r in records}
    assert not [r for r in records if r.status != "pass"]


DEEP = replace(COOPERATIVE, tile=(64, 16, 64))
QUANTIZED: dict[str, tuple[MatmulParams, int, str]] = {
    "pipelined": (replace(DEEP, split="pipelined", persistent=False), 128, "bf16"),
    "cooperative": (DEEP, 64, "bf16"),
    "two steps a group": (replace(DEEP, tile=(64, 16, 32)), 64, "f16"),
    "a step a group": (replace(DEEP, tile=(64, 16, 128)), 128, "bf16"),
    "numbers in f32": (DEEP, 128, "f32"),
    "ping_pong": (replace(DEEP, split="ping_pong", warpgroups=2, stages=2, prefetch=0), 64, "bf16"),
    "shared": (replace(DEEP, persistent=False, splits=2, meet="last"), 64, "bf16"),
    "clusters": (replace(DEEP, persistent=False, cluster=(2, 1)), 128, "bf16"),
    "no numbers": (DEEP, 0, "bf16"),
}
"""Schedules, how many neighbours have a number, and its type."""


def quantized(
    params: MatmulParams, group: int, dtype: str, *, bits: int, second: bool, by_rows: bool = True
) -> Case:
    """`x @ w` of weights of so many bits, each group times a number; or `w @ x`."""
    fd, k, rows = FusionDefinition(), 256, 72
    half = "f16" if dtype == "f16" else "bf16"
    x = fd.define_tensor(["m", k], half)
    w = fd.define_tensor([rows, k * bits // 8], "i8")
    made = fd.ops.cast(fd.ops.unpack(w) if bits == 4 else w, half)
    if group:
        shape = [k // group, rows] if by_rows else [rows, k // group]
        numbers = fd.define_tensor(shape, dtype)
        numbers = fd.ops.permute(numbers, [1, 0]) if by_rows else numbers
        made = fd.ops.cast(fd.ops.mul(made, fd.ops.repeat_interleave(numbers, group, 1)), half)
    fd.add_output(fd.ops.linear(x, made) if second else fd.ops.linear(made, x))
    params = replace(params, prologue="registers", transpose=second)
    params = replace(params, store="tma" if second else params.store)
    return Case(fd.fusion(), params, {"m": 24}, "reals", 0)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_of_few_bits_are_multiplied_where_they_lie(
    name: str, bits: int, second: bool
) -> None:
    """Every judge agrees; two numbers from a byte, and one of each row for all of a step."""
    of = quantized(*QUANTIZED[name], bits=bits, second=second)
    check_one_kernel(of)
    (launch,) = compiled(of).launches
    unpacks = [stmt for stmt in launch.kernel.walk() if isinstance(stmt, kir.Unpack)]
    assert bool(unpacks) == (bits == 4)
    masks = [stmt for stmt in launch.kernel.walk() if isinstance(stmt, kir.Coordinate)]
    assert not masks  # K is known to end with a step


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_along_k_are_stored_by_rows_first(bits: int) -> None:
    """A copy of one row then brings those of a tile."""
    of = quantized(DEEP, 64, "bf16", bits=bits, second=True, by_rows=False)
    first, then = compiled(of).launches
    assert first.tiling.domain.writes[0].tv.stride_order == (0, 1)
    assert any(isinstance(stmt, kir.Wgmma) for stmt in then.kernel.walk())
    assert not complaints(of)


@pytest.mark.parametrize(
    ("params", "group"),
    [
        (replace(DEEP, tile=(64, 16, 128)), 64),
        (replace(DEEP, tile=(64, 16, 48)), 64),
        (replace(DEEP, tile=(64, 16, 16)), 0),
    ],
)
def test_a_step_has_one_number_of_a_row_and_whole_chunks(params: MatmulParams, group: int) -> None:
    """Else weights are stored first."""
    of = quantized(params, group, "bf16", bits=4, second=True)
    *before, last = compiled(of).launches
    assert before
    assert not any(isinstance(stmt, kir.Unpack) for stmt in last.kernel.walk())
    assert not complaints(of)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("dtype", ["i8", "f32", "f8e4m3", "f8e5m2"])
def test_other_types_are_copied_as_they_are(dtype: str, second: bool) -> None:
    """And become the operand's in registers."""
    of = case(lambda fd, x: fd.ops.cast(x, "bf16"), dtype=dtype, second=second)
    of = replace(of, extents=of.extents | {"k": 48})
    (launch,) = compiled(of).launches
    assert next(b for b in launch.kernel.buffers if b.name == "S_T0").dtype.name == dtype
    assert ("tile::widen" in launch.source) == (dtype != "f32")  # bytes by pairs
    assert not complaints(of)


@pytest.mark.parametrize(
    ("define", "masked"),
    [
        (unary("relu"), False),
        (of_two, False),
        (lambda fd, x: fd.ops.mul(x, 2.0), False),
        (lambda fd, x: fd.ops.mul(x, float("inf")), True),
        (lambda fd, x: fd.ops.add(x, 1.0), True),
        (unary("exp"), True),
        (scaled, True),
        (by_scalar, True),
    ],
)
def test_only_what_is_not_0_beyond_the_end_is_replaced(define: Define, masked: bool) -> None:
    """Zeros of zeros cost nothing."""
    (launch,) = compiled(case(define)).launches
    assert any(isinstance(s, kir.Coordinate) for s in launch.kernel.walk()) == masked


@pytest.mark.parametrize("params", [COOPERATIVE, None])
def test_a_deep_chain_is_walked_once_per_node(params: MatmulParams | None) -> None:
    """Every tensor is used twice: 2 ** 60 ways lead from the operand to the input."""

    def deep(fd: FusionDefinition, x: TensorView) -> TensorView:
        for _ in range(60):
            x = fd.ops.add(x, x)
        return x

    of = case(deep)
    assert len(build(of.fusion, params, classify(of.fusion, params, specs(of))).launches) == 1


def transposed(fd: FusionDefinition) -> TensorView:
    """The rows of x lie along M."""
    x = fd.define_tensor(["m", "k"], "bf16", stride_order=[0, 1])
    return fd.ops.linear(fd.ops.relu(x), fd.define_tensor(["n", "k"], "bf16"))


def of_the_second(fd: FusionDefinition) -> TensorView:
    """Computed is the operand that has the columns."""
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    return fd.ops.linear(x, fd.ops.relu(w))


def of_products(fd: FusionDefinition) -> TensorView:
    """Computed from a product."""
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    return fd.ops.linear(fd.ops.relu(fd.ops.linear(x, w)), fd.define_tensor(["l", "n"], "bf16"))


def of_vectors(fd: FusionDefinition) -> TensorView:
    """No tile of A is in memory at all."""
    rows, columns = fd.define_tensor(["m"], "bf16"), fd.define_tensor(["k"], "bf16")
    x = fd.ops.mul(fd.ops.broadcast(rows, [False, True]), fd.ops.broadcast(columns, [True, False]))
    return fd.ops.linear(x, fd.define_tensor(["n", "k"], "bf16"))


@pytest.mark.parametrize("define", [transposed, of_the_second, of_products, of_vectors])
def test_what_registers_cannot_hold_is_stored_first(
    define: Callable[[FusionDefinition], TensorView],
) -> None:
    """A kernel before computes it, as without the request."""
    fd = FusionDefinition()
    fd.add_output(define(fd))
    extents = {"m": 16, "k": 24, "n": 16, "l": 16}
    fusion = fd.fusion()
    of = Case(fusion, COOPERATIVE, {n: extents[n] for n in symbols(fusion)}, "reals", 0)
    program = compiled(of)
    assert len(program.launches) == 2
    assert not [p for launch in program.launches for p in launch.tiling.domain.products if p.leaves]
    assert not complaints(of)


def test_of_two_that_are_computed_one_is_in_registers() -> None:
    """That which has the rows of tiles; the other one is stored first."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    fd.add_output(fd.ops.linear(fd.ops.silu(x), fd.ops.relu(w)))
    for transpose, leaf in ((False, "T0"), (True, "T1")):
        params = replace(COOPERATIVE, transpose=transpose, store="tma")
        of = Case(fd.fusion(), params, {"m": 24, "k": 40, "n": 72}, "reals", 0)
        _, last = compiled(of).launches
        (product,) = last.tiling.domain.products
        assert [access.name for access in product.leaves] == [leaf]
        assert product.exchanged == transpose
        assert not complaints(of)


def test_a_step_waits_for_the_one_before_as_late_as_it_can() -> None:
    """Loads and arithmetic run beside the products of the step before; nothing waits behind."""
    (launch,) = compiled(case(unary("silu"))).launches
    role = next(s for s in launch.kernel.body if isinstance(s, kir.Role) and s.name == "compute")
    (loop,) = (s for s in kir.walk(role.body) if isinstance(s, kir.ForLoop) and s.index.name == "k")
    names = [type(s).__name__ for s in loop.body]
    assert names == [
        "MBarrierWaitParity", "Load", "FenceAsyncProxy", "Compute", "AsyncAwait", "WarpSync",
        "IfThenElse", "Compute", "WgmmaFence", "Wgmma", "AsyncCommit", "Assign",
    ]  # fmt: skip


def by_rows(fd: FusionDefinition, x: TensorView) -> TensorView:
    """Bytes, by a factor a row."""
    rows = fd.ops.broadcast(fd.define_tensor(["m"], "bf16"), [False, True])
    return fd.ops.cast(fd.ops.mul(fd.ops.cast(x, "bf16"), rows), "bf16")


@pytest.mark.parametrize("params", ["cooperative", "ping_pong", "pipelined"])
@pytest.mark.parametrize("second", [False, True])
def test_what_rows_are_multiplied_by_is_loaded_before_the_loop(params: str, second: bool) -> None:
    """It is the same in each step."""
    of = case(by_rows, PARAMS[params], "i8", second=second)
    of = replace(of, extents=of.extents | {"k": 48})
    (launch,) = compiled(of).launches
    loops = [s for s in launch.kernel.walk() if isinstance(s, kir.ForLoop) and s.index.name == "k"]
    inside = {s.dst.name for loop in loops for s in kir.walk(loop.body) if isinstance(s, kir.Load)}
    every = {s.dst.name for s in launch.kernel.walk() if isinstance(s, kir.Load)}
    assert "a_T2" in every - inside
    assert "a_T0" in inside
    assert not complaints(of)


@pytest.mark.parametrize(
    ("dtype", "define", "op"),
    [
        ("i8", lambda fd, x: fd.ops.cast(x, "bf16"), "cast"),
        ("bf16", unary("relu"), "relu"),
        ("bf16", unary("silu"), "set"),  # computed while the step before is multiplied
        ("bf16", unary("reciprocal"), "where"),
    ],
)
def test_the_last_operation_fills_the_registers_that_are_multiplied(
    dtype: str, define: Define, op: str
) -> None:
    """Rounded once, by the instruction that makes a pair."""
    of = case(define, dtype=dtype)
    (launch,) = compiled(replace(of, extents=of.extents | {"k": 48})).launches
    (made,) = (
        s for s in launch.kernel.walk() if isinstance(s, kir.Compute) and s.dst.name[:2] == "f_"
    )
    assert made.op == ("set" if op == "where" else op)
    assert made.dst.dtype.name == "bf16"
    (before,) = made.args
    assert isinstance(before, kir.Fragment)
    assert before.name.endswith("_within") == (op == "where")


@pytest.mark.parametrize("kind", [kir.AsyncAwait, kir.WgmmaFence])
def test_registers_are_not_written_while_they_are_multiplied(kind: type[kir.Stmt]) -> None:
    """Without the wait for the step before, or without the fence, both judges object."""
    (made,) = compiled(case(unary("silu"), PARAMS["pipelined"])).launches

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.ForLoop() if any(isinstance(s, kir.Wgmma) for s in stmt.body):
                return [replace(stmt, body=tuple(s for s in stmt.body if not isinstance(s, kind)))]
            case _:
                return None

    bad = made.kernel.rewrite(rule)
    assert prove(made.kernel).status is Status.PASS
    assert prove(bad).status is Status.FAIL
    start = Launch(*launch(bad, PARAMS["pipelined"], 1, 4))
    assert simulate.search(bad, start, schedules=6).status is Status.FAIL


@pytest.mark.parametrize(
    ("op", "m", "n", "k", "kernels"),
    [
        ("relu", 8192, 512, 4096, 1),
        ("silu", 8192, 256, 4096, 1),
        ("silu", 3952, 600, 5352, 2),  # three columns of tiles, and many instructions
        ("relu", 600, 1952, 2752, 2),  # eight
        ("silu", 1248, 224, 1400, 2),  # 20 tiles of all columns, too few for the SMs
    ],
)
def test_it_is_computed_where_that_is_faster(op: str, m: int, n: int, k: int, kernels: int) -> None:
    """Each column of tiles computes A again; each was the faster where it was measured (H200)."""
    of = replace(case(unary(op)), extents={"m": m, "k": k, "n": n})
    program = build(of.fusion, None, classify(of.fusion, None, specs(of)))
    assert len(program.launches) == kernels


@pytest.mark.parametrize("name", PARAMS)
def test_what_is_computed_lies_in_no_memory(name: str) -> None:
    """It was given the order of a tensor with K across its rows, which its leaf has not."""
    fd = FusionDefinition()
    x = fd.define_tensor(["k", "m"], "bf16", stride_order=[0, 1])
    a = fd.ops.permute(fd.ops.relu(x), [1, 0])
    fd.add_output(fd.ops.linear(a, fd.define_tensor(["n", "k"], "bf16")))
    of = Case(fd.fusion(), PARAMS[name], {"m": 37, "k": 40, "n": 24}, "reals", 0)
    of = replace(of, params=replace(PARAMS[name], prologue="registers"))
    assert len(compiled(of).launches) == 1
    assert not complaints(of)
