"""Calls of functions of the same text: what they compute, and which of them stay calls."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import HEAD, kernel

from oracles.ptx.gates import unsupported
from oracles.ptx.judge import judge
from oracles.ptx.launch import Buffer, Launch, Pointer
from oracles.ptx.text.program import prepare
from oracles.verdict import Status

TWICE = """
.func (.param .b32 twice_out) twice(.param .b32 twice_in)
{
  .local .align 4 .b8 own[4]; .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [twice_in];
  mov.u64 %rd1, own;
  st.local.u32 [%rd1], %r1;
  setp.gt.u32 %p1, %r1, 7;
  @%p1 bra LARGE;
  ld.local.u32 %r2, [%rd1];
  add.u32 %r2, %r2, %r1;
  st.param.b32 [twice_out], %r2;
  ret;
LARGE:
  st.param.b32 [twice_out], 100;
  ret;
}
"""
CALL = """
  {{ .param .b32 given; .param .b32 back;
  st.param.b32 [given+0], {of};
  {guard} call.uni (back), twice, (given);
  ld.param.b32 {to}, [back+0]; }}
"""


def words(body: str, functions: str = TWICE) -> list[int]:
    """Run 32 threads, and return the first words that they leave."""
    out = Buffer("out", np.zeros(256, np.uint8))
    launch = Launch(
        (1, 1, 1),
        (32, 1, 1),
        (Pointer("out"), Pointer("out")),
        {"out": out},
    )
    text = kernel(body).replace(HEAD, HEAD + functions)
    assert judge(text, launch).status is Status.PASS
    found: list[int] = out.data.view(np.uint32)[:32].tolist()
    return found


def test_a_call_computes_what_its_function_does() -> None:
    """Twice, of registers that are the caller's, too; threads return from either place."""
    body = CALL.format(of="%r1", to="%r7", guard="") + CALL.format(of="%r7", to="%r2", guard="")
    found = words(f"{body} add.u32 %r2, %r2, %r1; st.global.u32 [%rd3], %r2;")
    twice = [2 * n if n <= 7 else 100 for n in range(32)]
    assert found == [(2 * m if m <= 7 else 100) + n for n, m in enumerate(twice)]


@pytest.mark.parametrize(("guard", "called"), [("@%p1", True), ("@!%p1", False)])
def test_a_guard_decides_who_calls(guard: str, called: bool) -> None:
    """Others go on behind the call."""
    body = CALL.format(of="%r1", to="%r7", guard=guard)
    found = words(f"setp.lt.u32 %p1, %r1, 4;{body} st.global.u32 [%rd3], %r7;")
    assert [n for n in range(1, 32) if found[n]] == [n for n in range(1, 32) if (n < 4) is called]


def test_a_function_calls_another() -> None:
    """Each with its own argument."""
    inner = CALL.format(of="%r1", to="%r2", guard="")
    outer = f"""
.func (.param .b32 fourfold_out) fourfold(.param .b32 fourfold_in)
{{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [fourfold_in];
  {inner}
  add.u32 %r2, %r2, %r2;
  st.param.b32 [fourfold_out], %r2;
  ret;
}}
"""
    body = CALL.format(of="%r1", to="%r7", guard="").replace("twice", "fourfold")
    found = words(f"{body} st.global.u32 [%rd3], %r7;", TWICE + outer)
    assert found[:9] == [0, 4, 8, 12, 16, 20, 24, 28, 200]


@pytest.mark.parametrize(
    "function",
    [
        ".extern .func (.param .b32 o) twice(.param .b32 i);",
        TWICE.replace("add.u32 %r2, %r2, %r1;", CALL.format(of="%r1", to="%r2", guard="")),
    ],
    ids=["without a body", "of itself"],
)
def test_other_calls_are_not_modelled(function: str) -> None:
    """By name."""
    text = kernel(CALL.format(of="%r1", to="%r7", guard="")).replace(HEAD, HEAD + function)
    assert "call.uni" in unsupported(prepare(text))
