"""Blocks: where they are cut, what lives behind them, and how they are named by entry."""

from __future__ import annotations

import pytest
from ptx_kernels import HEAD, kernel

from oracles.ptx.gates import unsupported
from oracles.ptx.text.grammar import PtxError
from oracles.ptx.text.program import Program, prepare


def program(body: str) -> Program:
    """Prepare the kernel of a body."""
    return prepare(kernel(body))


def test_gates_stand_alone_and_branches_end_blocks() -> None:
    """What other threads have to do with is a block of its own."""
    made = program("add.u32 %r7, %r1, 1;\nbar.sync 0;\n@%p1 bra OVER;\nadd.u32 %r8, %r7, 1;\nOVER:")
    gates = [block for block in made.blocks if block.gate is not None]
    assert [block.gate.opcode for block in gates if block.gate] == ["bar.sync", "ret"]
    (branch,) = (block for block in made.blocks if block.branch is not None)
    assert made.blocks[branch.target].gate is not None
    assert made.blocks[branch.after].body[0].opcode == "add.u32"
    assert branch.index == gates[0].after


def test_only_what_is_read_later_is_written_back() -> None:
    """%r7 dies in its block; %r8 goes round the loop."""
    made = program(
        "AGAIN: add.u32 %r7, %r8, 1; mov.u32 %r8, %r7; setp.lt.u32 %p1, %r8, 9; @%p1 bra AGAIN;"
    )
    (loop,) = (block for block in made.blocks if block.branch is not None)
    names = [name for name in made.types if made._bits.get(name, 0) & loop.live]
    assert names == ["%r8"]


def test_an_entry_is_named_where_there_are_several() -> None:
    """And is found by its name only."""
    two = HEAD + ".entry a() { ret; } .entry b() { ret; }"
    assert prepare(two, "b").function.name == "b"
    with pytest.raises(PtxError, match="2 entries"):
        prepare(two)
    with pytest.raises(PtxError, match="no entry 'c'"):
        prepare(two, "c")


def test_a_label_that_is_not_there_is_refused() -> None:
    """With its line."""
    with pytest.raises(PtxError, match="no label"):
        program("bra NOWHERE;")


def test_all_that_is_not_modelled_is_listed_once() -> None:
    """Of plain instructions and gates."""
    made = program("sad.u32 %r7, %r1, %r1, %r1; fence.proxy.alias; sad.u32 %r7, %r1, %r1, %r1;")
    assert unsupported(made) == ["fence.proxy.alias", "sad.u32"]
    assert unsupported(program("add.u32 %r7, %r1, 1; bar.sync 0;")) == []


def test_parameters_are_laid_out_by_their_alignment() -> None:
    """A tensor map begins at a multiple of 64."""
    text = kernel("", params=", .param .u32 n, .param .align 64 .b8 map[128]")
    assert prepare(text).params == {"out": 0, "inp": 8, "n": 16, "map": 64}
