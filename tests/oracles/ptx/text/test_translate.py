"""Instructions without order, each against its definition, through a whole kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ptx_kernels import Done, done, kernel

from oracles.ptx.text.grammar import Instruction, parse
from oracles.ptx.text.translate import Lines, UnsupportedError, read, written
from oracles.verdict import Status

X = np.arange(32, dtype=np.int64) * 977 - 9000


def lines(body: str, result: str, *, wide: bool = False) -> Done:
    """Run lines that compute a register from %r1, and store it."""
    if wide:
        text = f"{body} mul.wide.u32 %rd18, %r1, 8; add.s64 %rd19, %rd1, %rd18;"
        found = done(f"{text} st.global.b64 [%rd19], {result};")
    else:
        found = done(f"{body} st.global.b32 [%rd3], {result};")
    assert found.verdict.status is Status.PASS, str(found.verdict)
    return found


SIGNED = "mad.lo.s32 %r7, %r1, 977, -9000;"
FLOAT = f"{SIGNED} cvt.rn.f32.s32 %f1, %r7; mul.f32 %f1, %f1, 0f3B000000;"
F = (X.astype(np.float32) * np.float32(2.0**-9)).astype(np.float32)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("div.s32 %r8, %r7, 7;", [int(x / 7) for x in X.tolist()]),
        ("rem.s32 %r8, %r7, 7;", [int(math.fmod(x, 7)) for x in X.tolist()]),
        ("shr.s32 %r8, %r7, 3;", [x >> 3 for x in X.tolist()]),
        ("abs.s32 %r8, %r7;", np.abs(X)),
        ("neg.s32 %r8, %r7;", -X),
        ("not.b32 %r8, %r7;", ~X),
        ("min.s32 %r8, %r7, 5;", np.minimum(X, 5)),
        ("max.u32 %r8, %r7, 5;", np.maximum(X & 0xFFFFFFFF, 5)),
        ("mul.hi.s32 %r8, %r7, 1000000007;", [x * 1000000007 >> 32 for x in X.tolist()]),
        ("setp.gt.s32 %p1, %r7, 0; selp.b32 %r8, 3, 4, %p1;", np.where(X > 0, 3, 4)),
        ("setp.gt.u32 %p1, %r7, 9; selp.b32 %r8, 3, 4, %p1;", np.where((X & 0xFFFFFFFF) > 9, 3, 4)),
        (
            "setp.lt.s32 %p1, %r7, 0; setp.gt.or.s32 %p2|%p3, %r7, 900, %p1;"
            "selp.b32 %r8, 1, 0, %p2; selp.b32 %r9, 2, 0, %p3; add.u32 %r8, %r8, %r9;",
            (X < 0) * 1 + (X > 900) * 1 + ((X <= 900) | (X < 0)) * 2,
        ),
        ("setp.ge.s32 %p1, %r7, 0; mov.u32 %r8, 5; @%p1 mov.u32 %r8, 6;", np.where(X >= 0, 6, 5)),
        ("cvt.s8.s32 %r8, %r7;", X.astype(np.int8)),
        ("cvt.u32.u16 %r8, %h1;", np.zeros(32)),
        ("cvt.u16.u32 %h1, %r7; cvt.s32.s16 %r8, %h1;", X.astype(np.int16)),
        ("popc.b32 %r8, %r7;", [bin(x & 0xFFFFFFFF).count("1") for x in X.tolist()]),
        ("clz.b32 %r8, %r7;", [32 - (x & 0xFFFFFFFF).bit_length() for x in X.tolist()]),
        ("bfind.u32 %r8, %r7;", [(x & 0xFFFFFFFF).bit_length() - 1 for x in X.tolist()]),
        ("bfind.u32 %r8, 0;", [-1] * 32),
        ("bfind.s32 %r8, %r7;", [max(x, ~x).bit_length() - 1 for x in X.tolist()]),
        (
            "bfind.shiftamt.u32 %r8, %r7;",
            [32 - (x & 0xFFFFFFFF).bit_length() for x in X.tolist()],
        ),
        ("mov.b32 {%h1, %h2}, %r7; mov.b32 %r8, {%h2, %h1};", (X << 16 | (X >> 16 & 0xFFFF))),
    ],
)
def test_integers(line: str, want: object) -> None:
    """Of 32 bits, signed and unsigned."""
    got = lines(f"{SIGNED} {line}", "%r8").words[:32]
    assert (got == np.asarray(want).astype(np.int64).astype(np.uint32)).all()


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("add.f32 %f2, %f1, 0f3E99999A;", F + np.float32(0.3)),
        ("div.rn.f32 %f2, %f1, 0f40400000;", F / np.float32(3)),
        ("sqrt.rn.f32 %f2, %f1;", np.sqrt(F)),
        ("abs.f32 %f2, %f1;", np.abs(F)),
        ("neg.f32 %f2, %f1;", -F),
        ("copysign.f32 %f2, %f1, 0f40000000;", np.copysign(np.float32(2), F)),
        ("cvt.rmi.f32.f32 %f2, %f1;", np.floor(F)),
        ("cvt.sat.f32.f32 %f2, %f1;", np.clip(F, 0, 1)),
        ("cvt.rzi.s32.f32 %r8, %f1; cvt.rn.f32.s32 %f2, %r8;", np.trunc(F)),
        ("setp.ltu.f32 %p1, %f1, 0f7FC00000; selp.f32 %f2, 0f3F800000, %f1, %p1;", np.ones(32)),
        ("setp.lt.f32 %p1, %f1, 0f7FC00000; selp.f32 %f2, 0f3F800000, %f1, %p1;", F),
        ("setp.ne.f32 %p1, %f1, 0f7FC00000; selp.f32 %f2, 0f3F800000, %f1, %p1;", F),
        ("setp.neu.f32 %p1, %f1, 0f7FC00000; selp.f32 %f2, 0f3F800000, %f1, %p1;", np.ones(32)),
        ("cvt.f64.f32 %d1, %f1; mul.f64 %d1, %d1, "
            "0d4008000000000000; cvt.rn.f32.f64 %f2, %d1;", 3 * F),
        ("cvt.rn.f16x2.f32 %r8, %f1, 0f3F800000; "
            "mov.b32 {%h1, %h2}, %r8; cvt.f32.f16 %f2, %h2;", F.astype(np.float16)),
        ("ex2.approx.f32 %f2, 0f40400000;", np.full(32, 8.0)),
        ("rcp.approx.ftz.f32 %f2, 0f00000001;", np.full(32, np.inf)),
        ("mul.ftz.f32 %f2, 0f00800000, 0f3F000000;", np.zeros(32)),
    ],
)  # fmt: skip
def test_floats(line: str, want: object) -> None:
    """To the bit; a comparison with NaN is true only where its name says unordered."""
    got = lines(f"{FLOAT} {line}", "%f2").out[:128].view(np.float32)
    np.testing.assert_array_equal(got, np.asarray(want).astype(np.float32))


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("mul.wide.s32 %rd9, %r7, 1000003;", X * 1000003),
        ("cvt.s64.s32 %rd9, %r7; shl.b64 %rd9, %rd9, 40; shr.s64 %rd9, %rd9, 38;", X << 2),
        ("cvt.u64.u32 %rd9, %r7;", X & 0xFFFFFFFF),
        ("cvt.s64.s32 %rd10, %r7; mul.lo.s64 %rd9, %rd10, %rd10;", X * X),
        ("mov.b64 %rd9, {%r7, %r1};", (X & 0xFFFFFFFF) | np.arange(32) << 32),
    ],
)
def test_long_integers(line: str, want: object) -> None:
    """Of 64 bits."""
    got = lines(f"{SIGNED} {line}", "%rd9", wide=True).out[:256].view(np.int64)
    assert (got == np.asarray(want)).all()


@pytest.mark.parametrize(
    ("kind", "bits"), [("bf16x2", 0x3FC03F80), ("f16x2", 0x3E003C00)]
)  # 1.5 and 1.0
def test_packed_halves(kind: str, bits: int) -> None:
    """Both halves of a word, each for itself."""
    found = lines(
        f"mov.b32 %r7, {bits}; add.{kind} %r8, %r7, %r7; max.NaN.{kind} %r9, %r7, %r8;", "%r9"
    )
    doubled = {"bf16x2": 0x40404000, "f16x2": 0x42004000}[kind]
    assert (found.words[:32] == doubled).all()


def test_local_memory_is_each_threads_own() -> None:
    """A stack, by its depot and by generic addresses."""
    body = """
  .local .align 8 .b8 depot[16];
  mov.u64 %rd9, depot;
  cvta.local.u64 %rd10, %rd9;
  st.u32 [%rd10+4], %r1;
  ld.local.u32 %r7, [%rd9+4];
  st.global.u32 [%rd3], %r7;
"""
    assert (done(body, threads=64).words[:64] == np.arange(64)).all()


def test_generic_addresses_find_their_space() -> None:
    """Shared memory through its window, global memory as it is."""
    body = """
  cvta.shared.u64 %rd9, %rd7;
  st.u32 [%rd9], %r1;
  ld.shared.u32 %r7, [%r6];
  st.u32 [%rd3], %r7;
"""
    found = done(body, threads=64)
    assert found.verdict.status is Status.PASS
    assert (found.words[:64] == np.arange(64)).all()


@pytest.mark.parametrize(
    "line",
    [
        "fma.rn.relu.bf16x2 %r7, %r1, %r1, %r1;",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
        "cvt.rn.satfinite.tf32.f32 %r7, %f1;",
        "fence.proxy.alias;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%f1}, %rd1, %rd2, 0, 1, 1;",
        "call.uni foo, (%r1);",
        "tcgen05.alloc.sync.aligned.b32 [%r1], 32;",
        "match.any.b32 %r7, %r1;",
        "tensormap.replace.im2col.rank.global.b1024.b32 [%rd1], 1;",
    ],
)
def test_what_is_not_modelled_is_named(line: str) -> None:
    """Wherever it stands, also where no thread comes."""
    found = done(f"bra OVER; {line} OVER:")
    assert found.verdict.status is Status.UNSUPPORTED
    assert line.split()[0].rstrip(";") in found.verdict.reason


def test_the_carry_goes_from_word_to_word() -> None:
    """Sums, differences and products of 64 bits by words of 32; a guard keeps the flag."""
    made = "mad.lo.s32 %r7, %r1, -977, 9000; mul.lo.u32 %r8, %r1, 0x9E3779B9; "
    low = [(9000 - 977 * n) % 2**32 for n in range(32)]
    top = [0x9E3779B9 * n % 2**32 for n in range(32)]
    left = np.array([(b << 32) + a for a, b in zip(low, top, strict=True)], np.uint64)
    right = np.array([(a << 32) + b for a, b in zip(low, top, strict=True)], np.uint64)
    both = "mov.b64 %rd10, {%r9, %r10};"
    for line, want in (
        ("add.cc.u32 %r9, %r7, %r8; addc.u32 %r10, %r8, %r7;", left + right),
        ("sub.cc.u32 %r9, %r7, %r8; subc.u32 %r10, %r8, %r7;", left - right),
        (
            "mad.lo.cc.u32 %r9, %r7, %r8, %r7; madc.hi.u32 %r10, %r7, %r8, %r8;",
            np.array(low, np.uint64) * np.array(top, np.uint64) + left,
        ),
        (
            "setp.lt.u32 %p1, %r1, 0; add.cc.u32 %r9, %r7, %r8; @%p1 add.cc.u32 %r11, %r7, 0; "
            "addc.cc.u32 %r10, %r8, %r7;",
            left + right,
        ),
    ):
        found = lines(f"{made}{line}{both}", "%rd10", wide=True)
        assert (found.out.view(np.uint64)[:32] == want).all(), line


@pytest.mark.parametrize(
    ("kind", "a", "b", "c", "want"),
    [
        ("bf16", 0x3F80, 0x3F81, 0x0000, 0x3F81),
        ("bf16", 0x3F81, 0x3FC0, 0x0080, 0x3FC2),  # 1.5 * (1 + 2^-7) is a tie, 2^-126 decides
        ("bf16", 0x3F81, 0x3FC0, 0x8080, 0x3FC1),
        ("bf16", 0x3F81, 0x3FC0, 0x0000, 0x3FC2),  # to even
        ("bf16", 0x7F7F, 0x4000, 0x0000, 0x7F80),
        ("bf16", 0x7F80, 0x0000, 0x3F80, 0x7FFF),
        ("f16", 0x3C01, 0x3E00, 0x0001, 0x3E02),  # likewise, of 11 bits
        ("f16", 0x3C01, 0x3E00, 0x8001, 0x3E01),
        ("f16", 0x7BFF, 0x4000, 0x0000, 0x7C00),
    ],
)
def test_fma_of_16_bits_is_rounded_once(kind: str, a: int, b: int, c: int, want: int) -> None:
    """Of one number, and of both halves of a word."""
    body = (
        f"mov.b16 %h1, {a}; mov.b16 %h2, {b}; mov.b16 %h3, {c}; fma.rn.{kind} %h4, %h1, %h2, %h3;"
    )
    assert (lines(f"{body} cvt.u32.u16 %r8, %h4;", "%r8").words[:32] == want).all()
    packed = " ".join(f"mov.b32 %r{9 + i}, {x << 16 | x};" for i, x in enumerate((a, b, c)))
    found = lines(f"{packed} fma.rn.{kind}x2 %r8, %r9, %r10, %r11;", "%r8")
    assert (found.words[:32] == (want << 16 | want)).all()


@pytest.mark.parametrize(
    ("mode", "x", "want"),
    [
        ("rna", 0x3F801000, 0x3F802000),
        ("rn", 0x3F801000, 0x3F800000),
        ("rn", 0x3F803000, 0x3F804000),
        ("rz", 0xBF801FFF, 0xBF800000),
        ("rna", 0x7F7FFFFF, 0x7F800000),
        ("rna", 0x7F800000, 0x7F800000),
        ("rn", 0x7F800001, 0x7FFFFFFF),
    ],
)
def test_tf32_has_ten_bits(mode: str, x: int, want: int) -> None:
    """To nearest, ties to even or away from zero, or towards zero."""
    found = lines(f"mov.b32 %f1, {x}; cvt.{mode}.tf32.f32 %r8, %f1;", "%r8")
    assert (found.words[:32] == want).all()


def test_reads_and_writes_of_an_instruction() -> None:
    """A guarded one keeps what it does not write."""
    text = kernel("@%p1 mad.lo.s32 %r7, %r8, %r9, %r10; st.shared.u32 [%r1], %r2;")
    mad, store = (
        one
        for one in parse(text).functions["k"].body
        if isinstance(one, Instruction) and one.line > 20 and one.name in ("mad", "st")
    )
    assert written(mad) == ("%r7",)
    assert set(read(mad)) == {"%r8", "%r9", "%r10", "%p1", "%r7"}
    assert written(store) == ()
    assert set(read(store)) == {"%r1", "%r2"}


def test_a_block_is_not_made_of_what_is_unknown() -> None:
    """The error has the opcode."""
    (ins,) = (
        one
        for one in parse(kernel("sad.u32 %r7, %r8, %r9, %r10;")).functions["k"].body
        if isinstance(one, Instruction) and one.name == "sad"
    )
    with pytest.raises(UnsupportedError, match="sad.u32"):
        Lines({"%r7": "b32"}, {}).add(ins)
