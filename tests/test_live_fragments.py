"""What a thread holds of fragments at once, and what the assembler says of kernels at the bound."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kernel_parts import (
    ACC,
    FRAG_A,
    FRAG_B,
    SA,
    SB,
    SY,
    TILE,
    WGMMA,
    X_BOX,
    Y_BOX,
    kernel,
    loop,
    role,
    zero,
)
from product_kernels import COOPERATIVE, PING_PONG, PIPELINED, compiled, gated
from product_kernels import kernel as finished

from fuser import kernel_ir as kir
from fuser import pipeline
from fuser.arch import SPARE_REGISTERS
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion_ir import Fusion, FusionDefinition
from fuser.live_fragments import Held, most_held
from fuser.matmul_params import MatmulParams
from fuser.nvrtc import compile_cubin
from oracles.assembler import judge_log, resources
from oracles.verdict import Status

JOIN = kir.BlockSync(0, 160)
GROW = kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0))
FORGET = replace(GROW, accumulate=0)
FLUSH = kir.AsyncAwait(WGMMA, 0)
STORE = kir.Store(Y_BOX, ACC, 2)
OUT = replace(ACC, name="out")
LOADED = kir.Load(OUT, kir.Slot(SY, 0), 2)
PUT = kir.Store(Y_BOX, OUT, 2)


def held(*body: kir.Stmt) -> dict[str, int]:
    """Registers of each fragment, where they are the most."""
    found = most_held(kernel(*body))
    assert len(found) <= 1
    return found[0].fragments if found else {}


def test_a_fragment_is_held_from_its_value_to_its_last_use() -> None:
    """Four registers of 64 x 8 sums for each of 128 threads; the second waits for the first."""
    assert held(FORGET, FLUSH, STORE) == {"acc": 4}
    assert held(FORGET, FLUSH, STORE, LOADED, JOIN, PUT) == {"acc": 4}
    assert held(LOADED, FORGET, FLUSH, STORE, PUT) == {"acc": 4, "out": 4}


def test_what_no_statement_forgets_is_held_around_a_loop() -> None:
    """The next tile's first product may add to it."""
    epilogue = (FLUSH, STORE, LOADED, JOIN, PUT)
    assert held(loop(GROW, *epilogue)) == {"acc": 4, "out": 4}
    assert held(loop(FORGET, *epilogue)) == {"acc": 4}


def test_elements_are_computed_one_by_one() -> None:
    """Nothing is held of what has neither to be there whole, nor to be there yet."""
    double = kir.Compute(OUT, "add", (ACC, ACC))
    assert held(kir.Load(ACC, kir.Slot(SY, 0), 2), double, PUT) == {}
    assert held(kir.Load(TILE, X_BOX, 8), JOIN, kir.Store(kir.Slot(SA, 0), TILE, 8)) == {}
    assert held(loop(GROW, FLUSH, double, JOIN, PUT)) == {"acc": 4}, "computed behind the join"
    assert held(FORGET, FLUSH, double, STORE, FORGET, FLUSH, STORE, PUT) == {"acc": 4, "out": 4}


def test_operands_are_held_packed_as_long_as_products_read_them() -> None:
    """Two of 16 bits in a register; a product is finished where it is awaited."""
    some = kir.Load(FRAG_A, kir.Slot(SA, 0), 2)
    from_registers = kir.Wgmma(ACC, FRAG_A, kir.Slot(SB, 0), 0)
    body = (some, kir.WgmmaFence(), from_registers, LOADED, JOIN, FLUSH, PUT, STORE)
    assert held(*body) == {"a": 4, "acc": 4, "out": 4}
    loads = (some, kir.Load(FRAG_B, kir.Slot(SB, 0), 2))
    assert held(zero(), *loads, kir.Mma(ACC, FRAG_A, FRAG_B), STORE) == {"a": 4, "b": 2, "acc": 4}


@pytest.mark.parametrize(("dtype", "many"), [(DType.I64, 8), (DType.F64, 8), (DType.I32, 4)])
def test_wide_elements_take_two_registers(dtype: DType, many: int) -> None:
    """A register has 32 bits."""
    buffer, wide = replace(SY, dtype=dtype), replace(ACC, dtype=dtype)
    slot = kir.Slot(buffer, 0)
    assert held(kir.Load(wide, slot, 2), JOIN, kir.Store(slot, wide, 2)) == {"acc": many}


def test_every_role_has_what_it_was_given() -> None:
    """A load role holds nothing, and is not asked."""
    made = finished(COOPERATIVE)
    assert most_held(made) == [Held("compute", 232, {"acc": 16})]
    both = most_held(finished(PING_PONG))
    assert [(one.role, one.have, one.registers) for one in both] == [
        ("compute0", 168, 16),
        ("compute1", 168, 16),
    ]
    assert most_held(kernel(role(FORGET, FLUSH, STORE), name="k", registers=0))[0].have == 248


def test_ctas_that_walk_hold_their_sums_twice_in_turns() -> None:
    """As accumulated, which the next tile may add to, and in the order of the workspace."""
    walking = replace(PIPELINED, splits=2, persistent=True)
    (one,) = most_held(finished(walking))
    assert one.fragments == {"acc": 16, "acc_rounds": 16}
    (one,) = most_held(finished(replace(walking, persistent=False)))
    assert one.registers == 16


# --- the bound ----------------------------------------------------------------------------------


def three() -> Fusion:
    """Three products of one x, added up."""
    fd = FusionDefinition()
    x, *others = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(4))
    first, second, third = (fd.ops.linear(x, w) for w in others)
    fd.add_output(fd.ops.add(fd.ops.add(first, second), third))
    return fd.fusion()


WIDE = MatmulParams(
    (192, 128, 32), 3, "cooperative", 1, 0, persistent=True, columns=16, registers=(40, 152)
)
NARROW = MatmulParams((64, 96, 64), 2, "ping_pong", 1, 0, persistent=True, columns=8)


def test_a_schedule_that_holds_too_much_is_refused_with_a_way_out() -> None:
    """Found by a campaign: its products were serialised (C7511), 3,960 bytes spilled."""
    words = (
        "MatmulParams(tile=(192, 128, 32)): matmul0 holds 128 registers of fragments in a thread "
        "at once (acc 64, acc1 64), of its 152 at most 120 may be; use registers=(32, 160)"
    )
    with pytest.raises(ScheduleError, match=re.escape(words)):
        compiled(gated(), WIDE)
    compiled(gated(), replace(WIDE, registers=(32, 160)))
    with pytest.raises(ScheduleError, match=re.escape("at most 136 may be; use a smaller tile")):
        compiled(three(), replace(WIDE, tile=(192, 96, 32), registers=None, split="pipelined"))


@pytest.mark.parametrize(
    ("fusion", "params", "registers"),
    [(gated(), WIDE, (32, 160)), (three(), NARROW, (40, 232))],
    ids=["cooperative", "ping_pong"],
)
def test_the_assembler_draws_the_line_where_we_do(
    monkeypatch: pytest.MonkeyPatch,
    fusion: Fusion,
    params: MatmulParams,
    registers: tuple[int, int],
) -> None:
    """With 24 registers to spare products are serialised, with 32 or more they are not."""
    with pytest.raises(ScheduleError, match="registers of fragments"):
        compiled(fusion, params)
    (right,) = compiled(fusion, replace(params, registers=registers)).launches
    monkeypatch.setattr(pipeline, "SPARE_REGISTERS", SPARE_REGISTERS - 8)
    (wrong,) = compiled(fusion, params).launches
    serialized, *_ = judge_log(compile_cubin(wrong.source).log).findings
    assert serialized.kind == "serialized"
    log = compile_cubin(right.source).log
    assert judge_log(log).status is Status.PASS
    assert resources(log)[0].spill_bytes < 400
