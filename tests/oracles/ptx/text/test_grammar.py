"""The reader: statements, scopes, labels, variables; and what is no PTX."""

from __future__ import annotations

import time

import pytest
from ptx_kernels import HEAD, kernel

from oracles.ptx.text.grammar import (
    Address,
    Imm,
    Instruction,
    Label,
    Not,
    Pair,
    PtxError,
    Reg,
    Sym,
    Vec,
    floats,
    number,
    parse,
    variable,
)


def statements(body: str) -> list[Instruction | Label]:
    """Return the statements of a body."""
    text = f"{HEAD}.entry k() {{ .reg .b32 %r<4>; .reg .pred %p<4>; .reg .b64 %rd<4>;\n{body}\n}}"
    return parse(text).functions["k"].body


def one(line: str) -> Instruction:
    """Return the only instruction of a line."""
    (found,) = statements(line)
    assert isinstance(found, Instruction)
    return found


def test_operands_are_typed() -> None:
    """Registers, numbers, vectors, addresses with coordinates, pairs, negations."""
    found = one("@!%p1 setp.lt.and.s32 %p2|%p3, %r1, -5, !%p0;")
    assert (found.name, found.mods) == ("setp", ("lt", "and", "s32"))
    assert found.guard == Not(Reg("%p1"))
    assert found.operands == (
        Pair(Reg("%p2"), Reg("%p3")),
        Reg("%r1"),
        Imm(-5),
        Not(Reg("%p0")),
    )
    load = one("ld.shared.v2.u32 {%r1, _}, [%r2+-16];")
    assert load.operands == (Vec((Reg("%r1"), Sym("_"))), Address(Reg("%r2"), -16))
    copy = one("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];")
    assert copy.mods[-2:] == ("shared::cta", "bulk_group")
    assert copy.operands[0] == Address(Reg("%rd1"), 0, (Vec((Reg("%r1"), Reg("%r2"))),))
    assert one("bar.sync 0;").opcode == "bar.sync"


def test_lines_and_spans_are_those_of_the_text() -> None:
    """So that findings and mutants name the place."""
    text = kernel("// a comment; with {\n  bar.sync  0;\n /* two\nlines */ bar.sync 1 ;")
    first, second = (
        ins
        for ins in parse(text).functions["k"].body
        if isinstance(ins, Instruction) and ins.name == "bar"
    )
    assert text[slice(*first.span)] == "bar.sync  0;"
    assert text.splitlines()[first.line - 1].strip() == "bar.sync  0;"
    assert text.splitlines()[second.line - 1].endswith("bar.sync 1 ;")


def test_names_in_braces_are_their_own() -> None:
    """Inline assembly declares the same names again and again."""
    body = "{ .reg .pred p; again: @p bra again; } { .reg .pred p; again: @p bra again; }"
    first, one_, second, two = statements(body)
    assert isinstance(first, Label)
    assert isinstance(second, Label)
    assert isinstance(one_, Instruction)
    assert isinstance(two, Instruction)
    assert first.name != second.name
    assert one_.operands == (Sym(first.name),)
    assert two.operands == (Sym(second.name),)
    assert one_.guard != two.guard


def test_a_branch_goes_forward_out_of_braces() -> None:
    """Labels are found wherever they stand."""
    *_, branch, label = statements("{ bra OUT; } OUT:")
    assert isinstance(branch, Instruction)
    assert branch.operands == (Sym("OUT"),)
    assert label == Label("OUT")


def test_variables_have_space_size_and_content() -> None:
    """A table is little-endian; a dynamic array has no bytes of its own."""
    made = variable(".global .align 4 .u32 table[3] = {1, 0x100, -1}")
    assert (made.space, made.align, made.nbytes) == ("global", 4, 12)
    assert made.content == bytes([1, 0, 0, 0, 0, 1, 0, 0, 255, 255, 255, 255])
    assert variable(".extern .shared .align 1024 .b8 smem[]").nbytes == 0


def test_literals() -> None:
    """Floats by their bits, integers in three bases."""
    assert floats(number("0f40490FDB")) == pytest.approx(3.14159274)
    assert floats(number("0d3FF0000000000000")) == 1.0
    assert [floats(number(text)) for text in ("1.0", "-0.25", "1.5e3")] == [1.0, -0.25, 1500.0]
    assert [number(x).value for x in ("0x1F", "-3", "017", "0")] == [31, -3, 15, 0]


def test_tuning_and_parameters() -> None:
    """What a launch and setmaxnreg ask for."""
    text = kernel(
        "", params=", .param .align 64 .b8 m[128]", tuning=".maxntid 64, 1, 1\n.reqnctapercluster 2"
    )
    made = parse(text).functions["k"]
    assert made.directives["maxntid"] == (64, 1, 1)
    assert made.directives["reqnctapercluster"] == (2,)
    assert [(p.name, p.nbytes, p.align) for p in made.params][-1] == ("m", 128, 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mov.u32 %r1 %r2;", "operands"),
        ("mov.u32 %r1, %r2", "does not end"),
        ("5 + 3;", "no statement"),
        (".reg .b32 %r1; .shared what;", "no declaration"),
        ("ld.shared.u32 %r1, [%r2 + %r3];", "adds"),
    ],
)
def test_what_is_no_statement_is_refused(text: str, says: str) -> None:
    """By its line or its text."""
    with pytest.raises(PtxError, match=says):
        statements(text)


def test_a_long_text_is_read_in_no_time() -> None:
    """5,000 statements of few shapes: a grammar for each would take seconds."""
    body = "\n".join(f"  add.s32 %r{n % 60}, %r{n % 50}, {n};" for n in range(5000))
    start = time.process_time()
    assert len(parse(kernel(body)).functions["k"].body) > 5000
    assert time.process_time() - start < 1.0


def test_a_line_of_the_source_ends_with_its_line() -> None:
    """What follows is a statement: `.loc` has no semicolon."""
    found = statements(
        ".loc 1 2 3, function_name $L1, inlined_at 1 4 5 // x;\nL: add.u32 %r1, %r1, 1;"
    )
    assert found[0] == Label("L")
    assert isinstance(found[1], Instruction)
