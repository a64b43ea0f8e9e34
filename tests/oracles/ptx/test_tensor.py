"""Tensor cores: fragments, descriptors, and what a wgmma in flight asks for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from ptx_kernels import Done, done, named

from oracles.ptx.engines import swizzled
from oracles.ptx.tensor import numbers
from oracles.verdict import Status

Array = npt.NDArray[np.generic]
RANDOM = np.random.default_rng(5)


def raw(values: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.uint8]:
    """Return small integers as bytes of a type."""
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32}
    dtypes |= {"s8": torch.int8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    made = torch.from_numpy(values.astype(np.float64)).to(dtypes[kind])
    return made.contiguous().view(torch.uint8).numpy().reshape(len(values), -1)


def laid(values: npt.NDArray[np.int64], kind: str, span: int) -> npt.NDArray[np.uint8]:
    """Lay rows of 32 bytes out as a K-major operand: atoms of 8 rows, swizzled from address 0."""
    data = raw(values, kind)
    rows, width = data.shape
    out = np.zeros(rows * max(span, 32), np.uint8)
    r, at = np.arange(rows)[:, None], np.arange(width)[None, :]
    if span:
        place = swizzled(r * span + at, span, 1 << 20)
    else:
        place = r // 8 * 256 + at // 16 * 128 + r % 8 * 16 + at % 16
    out[place] = data
    return out


PRODUCT = """
  mov.u32 %r20, 0;
FILL:
  mul.wide.u32 %rd10, %r20, 512;
  add.s64 %rd11, %rd10, %rd5;
  add.s64 %rd12, %rd2, %rd11;
  add.s64 %rd13, %rd6, %rd11;
  ld.global.u32 %r21, [%rd12];
  st.shared.u32 [%rd13], %r21;
  add.u32 %r20, %r20, 1;
  setp.lt.u32 %p1, %r20, 20;
  @%p1 bra FILL;
  {proxy}
  bar.sync 0;
  mov.b64 %rd14, {a};
  mov.b64 %rd15, {b};
  {before}
  {fence}
  wgmma.mma_async.sync.aligned.m64n8k{k}.{to}.{kind}.{kind}
    {{{regs}}}, {first}, %rd15, {scale}{flags};
  {commit}
  {wait}
  {after}
"""
STORE = "\n".join(f"  st.global.b32 [%rd16+{4 * i}], {{{i}}};" for i in range(4))
FLOATS, INTEGERS = [f"%f{i}" for i in range(4)], [f"%r{i + 30}" for i in range(4)]


def product(kind: str = "bf16", span: int = 128, **change: str) -> tuple[Done, Array]:
    """Multiply 64 x K by 8 x K, 32 bytes along K; return what was found, and the right sums."""
    size = {"bf16": 2, "f16": 2, "tf32": 4}.get(kind, 1)
    k = 32 // size
    a, b = RANDOM.integers(-3, 4, (64, k)), RANDOM.integers(-3, 4, (8, k))
    left = laid(a, kind, span)
    inputs = np.zeros(20 * 512, np.uint8)
    inputs[: len(left)] = left
    right = laid(b, kind, span)
    inputs[8192 : 8192 + len(right)] = right
    mode, stride = {0: (0, 256), 128: (1, 1024), 64: (2, 512), 32: (3, 256)}[span]
    high = mode << 62 | stride >> 4 << 32 | (128 >> 4) << 16
    regs = INTEGERS if kind == "s8" else FLOATS
    parts = {
        "proxy": "fence.proxy.async.shared::cta;",
        "fence": "wgmma.fence.sync.aligned;",
        "commit": "wgmma.commit_group.sync.aligned;",
        "wait": "wgmma.wait_group.sync.aligned 0;",
        "before": "",
        "first": "%rd14",
        "after": "mul.wide.u32 %rd17, %r1, 16; add.s64 %rd16, %rd1, %rd17;\n" + STORE.format(*regs),
        "a": hex(high | 1024 >> 4),
        "b": hex(high | (1024 + 8192) >> 4),
        "k": str(k),
        "to": "s32" if kind == "s8" else "f32",
        "kind": kind,
        "regs": ", ".join(regs),
        "scale": "0",
        "flags": {"s8": "", "tf32": ", 1, 1", "bf16": ", 1, 1, 0, 0"}.get(kind, ", 1, 1"),
    }
    parts["flags"] = ", 1, 1, 0, 0" if kind == "f16" else parts["flags"]
    found = done(PRODUCT.format(**parts | change), threads=128, shared=16384, inputs=inputs)
    return found, a @ b.T


@pytest.mark.parametrize("kind", ["bf16", "f16", "tf32", "s8", "e4m3", "e5m2"])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_a_product_of_descriptors_is_right(kind: str, span: int) -> None:
    """Thread t has rows t / 32 * 16 + t % 32 / 4 (+ 8) and columns 2 (t % 4) (+ 1)."""
    found, want = product(kind, span)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    got = found.out[: 128 * 16].view(np.int32 if kind == "s8" else np.float32).reshape(128, 4)
    t = np.arange(128)
    row, column = t // 32 * 16 + t % 32 // 4, 2 * (t % 4)
    for i in range(4):
        assert (got[:, i] == want[row + 8 * (i // 2), column + i % 2]).all()


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"proxy": ""}, {"proxy"}),
        ({"fence": ""}, {"fence"}),
        ({"commit": ""}, {"RAW"}),
        ({"wait": ""}, {"RAW"}),
        ({"wait": "wgmma.wait_group.sync.aligned 1;"}, {"RAW"}),
        ({"wait": "mov.f32 %f0, 0f00000000; wgmma.wait_group.sync.aligned 0;"}, {"RAW", "WAR"}),
        ({"fence": "wgmma.fence.sync.aligned; mov.f32 %f1, 0f00000000;"}, {"fence"}),
        ({"after": "bar.sync 0, 128; st.shared.u32 [%r6], %r1;"}, set()),
        ({"after": "st.shared.u32 [%r6], %r1;"}, {"warps"}),
        ({"after": "st.shared.u32 [%r6], %r1;", "wait": ""}, {"WAR"}),
    ],
    ids=named,
)
def test_each_part_of_a_product_is_needed(change: dict[str, str], kinds: set[str]) -> None:
    """Operands through the proxy, registers through fence and wait, operands free behind it.

    A warp that has waited alone knows that of its warpgroup by the letter: a warning.
    """
    found, _ = product("bf16", 128, **change)
    assert (found.verdict.status is Status.PASS) is (kinds <= {"warps"})
    assert found.kinds <= kinds, str(found.verdict)
    assert bool(found.kinds) == bool(kinds)


MADE = """fence.proxy.async.shared::cta;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra MADE;
  mbarrier.init.shared::cta.b64 [%r5+12288], 1;
MADE:"""
WAITED = """AGAIN:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r5+12288], 1;
  @!%p3 bra AGAIN;"""
FREED = """{after}
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra DONE;
  mbarrier.arrive.release.cta.shared::cta.b64 %rd9, [%r5+12288];
DONE:"""


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [(WAITED, "", Status.PASS), ("bar.sync 0;", WAITED, Status.FAIL)],
    ids=["behind products of all", "behind nothing of the others"],
)
def test_one_thread_frees_a_slot_for_those_who_multiply(
    before: str, after: str, status: Status
) -> None:
    """Whose wait is in front of a product is done once that is, though nobody has told: a warning.

    By the letter a warp may come to its wait behind the next phase, which never ends then.
    """
    changes = {"proxy": MADE, "before": before, "after": FREED.format(after=after)}
    found, _ = product("bf16", 128, **changes)
    kinds = {"overtaken", "deadlock"}
    assert found.kinds & kinds
    assert found.kinds <= kinds
    assert found.verdict.status is status, str(found.verdict)


NEXT = """
  {between}
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16
    {{{d}}}, {a}, %rd15, 0, 1, 1{flags};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
"""
IN_SHARED, IN_REGISTERS = ("%rd14", ", 0, 0"), ("{%f0, %f1, %f2, %f3}", ", 0")


@pytest.mark.parametrize(
    ("first", "n", "d", "a", "kinds"),
    [
        ("%rd14", 8, 0, IN_SHARED, set()),
        ("%rd14", 16, 0, IN_SHARED, {"WAW"}),
        ("%rd14", 16, 4, IN_SHARED, set()),
        ("%rd14", 8, 4, IN_REGISTERS, {"RAW"}),
        ("{%f4, %f5, %f6, %f7}", 8, 4, IN_SHARED, {"WAR"}),
        ("{%f4, %f5, %f6, %f7}", 8, 8, IN_SHARED, set()),
    ],
    ids=named,
)
def test_registers_of_a_wgmma_in_flight_are_not_those_of_another(
    first: str, n: int, d: int, a: tuple[str, str], kinds: set[str]
) -> None:
    """Only results of one shape are in order by default: all else needs the wait between.

    Source: PTX ISA, "wgmma.wait_group": accesses of accumulators, and of fragments of A.
    """
    regs = ", ".join(f"%f{d + i}" for i in range(n // 2))
    for between, want in (("wgmma.wait_group.sync.aligned 0;", set()), ("", kinds)):
        then = NEXT.format(between=between, n=n, d=regs, a=a[0], flags=a[1])
        found, _ = product("bf16", 128, wait=then, **_operand(first))
        assert found.kinds == want, str(found.verdict)


def _operand(a: str) -> dict[str, str]:
    """Return the changes of `product` for its A: a descriptor, or registers."""
    if a == "%rd14":
        return {}
    zeros = " ".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(8))
    return {"before": zeros, "first": a, "flags": ", 1, 1, 0"}


def test_a_descriptor_that_differs_between_threads_is_found() -> None:
    """The warpgroup has one matrix."""
    found, _ = product(before="cvt.u64.u32 %rd20, %r1; add.s64 %rd14, %rd14, %rd20;")
    assert "collective" in found.kinds


MMA = """
  {loads}
  mma.sync.aligned.m16n8k{k}.row.col.{to}.{kind}.{kind}.{to}
    {{{d}}}, {{%r20, %r21, %r22, %r23}}, {{%r24, %r25}}, {{{d}}};
  mul.wide.u32 %rd17, %r1, 16;
  add.s64 %rd16, %rd1, %rd17;
"""


@pytest.mark.parametrize("kind", ["bf16", "f16", "tf32", "s8"])
def test_a_product_of_fragments_is_right(kind: str) -> None:
    """Fragments are made here by the ISA's formulas, element by element."""
    size = {"bf16": 2, "f16": 2, "tf32": 4, "s8": 1}[kind]
    k, per = 32 // size, 4 // size
    a, b = RANDOM.integers(-3, 4, (16, k)), RANDOM.integers(-3, 4, (8, k))
    left, right = raw(a, kind), raw(b, kind)
    words = np.zeros((32, 6), np.uint32)
    for lane in range(32):
        group, member = lane // 4, lane % 4
        for i in range(4):
            row, column = group + 8 * (i % 2), (member * per + 4 * per * (i // 2)) * size
            words[lane, i] = left[row, column : column + 4].view(np.uint32)[0]
        for i in range(2):
            column = (member * per + 4 * per * i) * size
            words[lane, 4 + i] = right[group, column : column + 4].view(np.uint32)[0]
    d = INTEGERS if kind == "s8" else FLOATS
    loads = "mul.wide.u32 %rd18, %r1, 24; add.s64 %rd18, %rd2, %rd18;\n"
    loads += "\n".join(f"  ld.global.u32 %r{20 + i}, [%rd18+{4 * i}];" for i in range(6))
    text = MMA.format(
        loads=loads, k=k, kind=kind, to="s32" if kind == "s8" else "f32", d=", ".join(d)
    )
    found = done(text + STORE.format(*d), inputs=words)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    got = found.out[:512].view(np.int32 if kind == "s8" else np.float32).reshape(32, 4)
    lanes, want = np.arange(32), a @ b.T
    for i in range(4):
        assert (got[:, i] == want[lanes // 4 + 8 * (i // 2), 2 * (lanes % 4) + i % 2]).all()


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_go_to_shared_memory_and_back(trans: str) -> None:
    """Stmatrix and ldmatrix of the same form are inverse, and place rows as the ISA says."""
    body = f"""
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  mov.b32 %r9, %r1;
  add.u32 %r10, %r1, 100;
  stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r8], {{%r9, %r10}};
  bar.warp.sync 0xffffffff;
  ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r11, %r12}}, [%r8];
  ld.shared.u32 %r13, [%r6];
  st.global.u32 [%rd3], %r11;
  st.global.u32 [%rd3+128], %r12;
  st.global.u32 [%rd3+256], %r13;
"""
    found = done(body)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    lane = np.arange(32)
    assert (found.words[:32] == lane).all()
    assert (found.words[32:64] == lane + 100).all()
    if not trans:  # row r has the words of lanes 4 r to 4 r + 3
        assert (found.words[64:96] == lane).all()


def test_transposed_matrices_lie_column_by_column() -> None:
    """Lane l holds elements (l / 4, 2 (l % 4)) and the next of row l / 4; row r is at address r.

    Source: PTX ISA, "ldmatrix" and "stmatrix", figures of the fragment, `.trans`.
    """
    move = """
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  shl.b32 %r9, %r1, 1;
  add.u32 %r10, %r9, 1;
  shl.b32 %r10, %r10, 16;
  or.b32 %r9, %r9, %r10;
  {put}
  bar.warp.sync 0xffffffff;
  {get}
  st.global.u32 [%rd3], %r11;
"""
    by_matrix = "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r8], {%r9};"
    back = "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r11}, [%r8];"
    lies, word = np.arange(64).reshape(8, 8), "shared.u32"
    for put, get in ((by_matrix, f"ld.{word} %r11, [%r6];"), (f"st.{word} [%r6], %r9;", back)):
        found = done(move.format(put=put, get=get))
        assert found.verdict.status is Status.PASS, str(found.verdict)
        got = found.words[:32].copy().view(np.uint16).reshape(8, 8)
        assert (got == lies.T).all()


def test_matrices_of_others_need_a_barrier() -> None:
    """Ldmatrix reads what the warp's other lanes wrote."""
    body = """
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  st.shared.u32 [%r6], %r1;
  {sync}
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r11}}, [%r8];
  st.global.u32 [%rd3], %r11;
"""
    assert done(body.format(sync="bar.warp.sync 0xffffffff;")).kinds == set()
    assert done(body.format(sync="")).kinds == {"RAW"}


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_a_row_is_read_by_those_who_get_its_words(trans: str) -> None:
    """Who gave it may not overwrite it before they are joined.

    Source: PTX ISA, "ldmatrix": each thread loads fragments of a row.
    """
    body = """
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  st.shared.u32 [%r6], %r1;
  bar.warp.sync 0xffffffff;
  ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%r11}}, [%r8];
  {sync}
  setp.lt.u32 %p1, %r1, 8;
  @%p1 st.shared.u32 [%r8+12], %r1;
  st.global.u32 [%rd3], %r11;
"""
    assert done(body.format(trans=trans, sync="bar.warp.sync 0xffffffff;")).kinds == set()
    assert done(body.format(trans=trans, sync="")).kinds == {"WAR"}


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("own", [True, False])
def test_who_has_a_word_of_a_matrix_writes_it(trans: str, own: bool) -> None:
    """A warp may overwrite what it has read in the same form: a warning, as CUTLASS does.

    In the other form each lane overwrites what others read.  Source: PTX ISA, "stmatrix": each
    thread holds a fragment of a row.
    """
    other = trans if own else {"": ".trans", ".trans": ""}[trans]
    body = f"""
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  st.shared.u32 [%r6], %r1;
  bar.warp.sync 0xffffffff;
  ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{{{%r11}}}}, [%r8];
  {{sync}}
  stmatrix.sync.aligned.m8n8.x1{other}.shared.b16 [%r8], {{{{%r11}}}};
  bar.warp.sync 0xffffffff;
  ld.shared.u32 %r12, [%r6];
  st.global.u32 [%rd3], %r12;
"""
    assert done(body.format(sync="bar.warp.sync 0xffffffff;")).kinds == set()
    found = done(body.format(sync=""))
    assert found.kinds == {"lanes" if own else "WAR"}
    assert (found.verdict.status is Status.PASS) is own


def test_a_row_of_stmatrix_is_written_by_those_who_have_its_words() -> None:
    """Who gave it may not read all of it before they are joined."""
    body = """
  shl.b32 %r7, %r1, 4;
  add.u32 %r8, %r5, %r7;
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r8], {{%r1}};
  {sync}
  setp.lt.u32 %p1, %r1, 8;
  @%p1 ld.shared.u32 %r11, [%r8+12];
  st.global.u32 [%rd3], %r11;
"""
    assert done(body.format(sync="bar.warp.sync 0xffffffff;")).kinds == set()
    assert done(body.format(sync="")).kinds == {"RAW"}


def test_bytes_are_the_numbers_that_torch_has() -> None:
    """All 256 patterns of each 8-bit type."""
    every = torch.arange(256, dtype=torch.uint8)
    for kind, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        want = every.view(dtype).to(torch.float64).numpy()
        np.testing.assert_array_equal(numbers(every.numpy(), kind), want)


WRITTEN = """
  shr.u32 %r20, %r1, 5;
  and.b32 %r21, %r1, 31;
  mad.lo.u32 %r22, %r20, {each}, {first};
  mad.lo.u32 %r22, %r21, 4, %r22;
  add.u32 %r22, %r22, %r5;
  ld.shared.u32 %r23, [%r22];
  bar.warp.sync -1;
  st.shared.u32 [%r22], %r23;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
"""


@pytest.mark.parametrize(
    ("each", "first", "errors", "warnings"),
    [(2048, 0, set(), {"rows"}), (2048, 2048 - 8192, {"RAW"}, set()), (0, 8192, {"RAW"}, set())],
)
def test_a_warp_that_writes_rows_of_its_own_need_not_tell_the_others(
    each: int, first: int, errors: set[str], warnings: set[str]
) -> None:
    """Of A, with a warning; not rows of the next warp, nor of B."""
    change = WRITTEN.format(each=each, first=max(first, 0))
    if first < 0:  # the next warp's
        change = change.replace("%r20, %r1, 5;", "%r20, %r1, 5; xor.b32 %r20, %r20, 1;")
    found, _ = product(before=change)
    said = found.verdict.findings
    assert {one.kind for one in said if one.severity == "error"} >= errors, str(found.verdict)
    assert bool(errors) == (found.verdict.status is Status.FAIL), str(found.verdict)
    assert {one.kind for one in said if one.severity == "warning"} >= warnings
