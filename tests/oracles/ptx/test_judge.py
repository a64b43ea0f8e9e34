"""The judge as a whole: its four answers, what it counts, and the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ptx_kernels import done, kernel

from oracles.cli.command import OPEN, PROVED, REFUTED, USAGE, main
from oracles.ptx.judge import judge, run
from oracles.ptx.launch import Argument, Buffer, Launch, Pointer, Scalar, TensorMap, load
from oracles.verdict import Status

COPY = """
  add.s64 %rd9, %rd2, %rd5;
  ld.global.u32 %r7, [%rd9];
  st.global.u32 [%rd3], %r7;
"""
TOML = """
grid = 1
block = 32
shared = 1024
[buffers.out]
bytes = {nbytes}
[buffers.inp]
dtype = "u32"
values = {values}
[[arguments]]
buffer = "out"
[[arguments]]
buffer = "inp"
"""


def test_a_right_kernel_passes_with_its_claims_counted() -> None:
    """A load and a store of each thread, each within bounds and in order."""
    found = done(COPY, inputs=np.arange(32, dtype=np.uint32))
    assert found.verdict.status is Status.PASS
    assert found.verdict.checked >= 128
    assert (found.words[:32] == np.arange(32)).all()


def test_nothing_checked_is_no_pass() -> None:
    """A kernel that does nothing shows nothing."""
    assert done("").verdict.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ld.global.u32 %r7, [%rd2+20000];", "no buffer"),
        ("st.global.u32 [%rd1+16380], %r1;", "16384 bytes"),
        ("st.global.u32 [%rd1+16384], %r1;", "4 bytes at"),
        ("st.global.u32 [%rd1+2], %r1;", "misaligned"),
        ("st.shared.u32 [%r5+5000], %r1;", "shared"),
        ("ld.shared.u64 %rd9, [%r5+4];", "aligned to their size"),
        ("ld.global.u32 %r7, [4];", "no buffer"),
    ],
)
def test_accesses_out_of_bounds_are_found(line: str, says: str) -> None:
    """Of global and shared memory, and of alignment; the message has the numbers."""
    found = done(f"setp.eq.u32 %p1, %r1, 3; @%p1 {line}")
    if "16380" in line:
        assert found.verdict.status is Status.PASS
        return
    assert "bounds" in found.kinds, str(found.verdict)
    assert says in str(found.verdict)
    assert "t3" in str(found.verdict)


def test_a_load_may_see_the_rest_of_16_aligned_bytes() -> None:
    """Allocations are whole multiples of more; what lies there is no number of the buffer."""
    text = kernel("ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%rd2+32]; st.global.u32 [%rd1], %r7;")
    for size, status in ((46, Status.PASS), (32, Status.FAIL)):
        buffers = {"out": Buffer("out", np.zeros(64, np.uint8))}
        buffers["inp"] = Buffer("inp", np.zeros(size, np.uint8))
        launch = Launch((1, 1, 1), (1, 1, 1), (Pointer("out"), Pointer("inp")), buffers)
        assert judge(text, launch).status is status


def test_a_launch_of_too_many_threads_is_unknown_before_it_begins() -> None:
    """One of 1,228,800 threads, all of which end at once, took 4.4 GiB."""
    found = done(COPY, threads=1024, grid=4096).verdict
    assert found.status is Status.UNKNOWN
    assert found.reason.startswith("4194304 threads of ")
    assert done(COPY, threads=64, grid=2).verdict.status is not Status.UNKNOWN


def test_a_policy_of_the_l2_changes_nothing() -> None:
    """A load and a store with one do as without; one operand more or fewer is not read."""
    policy = "createpolicy.fractional.L2::evict_last.b64 %rd10, 1.0;"
    hinted = COPY.replace("ld.global", "ld.global.nc.L2::cache_hint").replace(
        "[%rd9]", "[%rd9], %rd10"
    )
    hinted = hinted.replace(
        "st.global.u32 [%rd3], %r7", "st.global.L2::cache_hint.u32 [%rd3], %r7, %rd10"
    )
    words = np.arange(32, dtype=np.uint32)
    found = done(policy + hinted, inputs=words)
    assert found.verdict.status is Status.PASS, str(found.verdict)
    assert (found.words[:32] == words).all()
    short = done(policy + hinted.replace("[%rd9], %rd10", "[%rd9]"), inputs=words).verdict
    assert short.status is Status.UNSUPPORTED
    assert "ld.global.nc.L2::cache_hint.u32 of 2 operands" in short.reason


def test_a_trap_is_an_error() -> None:
    """Wherever a thread comes to it."""
    assert done("setp.eq.u32 %p1, %r1, 3; @%p1 trap;").kinds == {"exit"}


def test_findings_name_both_lines() -> None:
    """By number and text, and the threads."""
    found = done("st.shared.u32 [%r6], %r1;\nld.shared.u32 %r7, [%r5+4];")
    (finding,) = found.verdict.findings
    assert len(finding.lines) == 2
    assert "`st.shared.u32 [%r6], %r1`" in finding.where
    assert "`ld.shared.u32 %r7, [%r5+4]`" in finding.where
    assert "by t0 after t1" in finding.witness


def test_what_is_approximate_is_told() -> None:
    """By the names of the instructions."""
    buffers = {name: Buffer(name, np.zeros(256, np.uint8)) for name in ("out", "inp")}
    launch = Launch((1, 1, 1), (32, 1, 1), (Pointer("out"), Pointer("inp")), buffers)
    text = kernel("ex2.approx.ftz.f32 %f1, %f2; st.global.f32 [%rd3], %f1;")
    assert run(text, launch).approximate == ("ex2.approx.ftz.f32",)
    assert not run(kernel(COPY), launch).approximate


def test_arguments_must_be_those_of_the_kernel() -> None:
    """Their number, their bytes, their buffers."""
    buffers = {"out": Buffer("out", np.zeros(256, np.uint8))}
    for arguments, says in (
        ((Pointer("out"),), "1 arguments"),
        ((Pointer("out"), Scalar(1, "i32")), "4 bytes"),
        ((Pointer("out"), Pointer("none")), "no buffer 'none'"),
    ):
        launch = Launch((1, 1, 1), (32, 1, 1), arguments, buffers)
        with pytest.raises(ValueError, match=says):
            judge(kernel(COPY), launch)


def test_text_that_is_no_ptx_is_unsupported() -> None:
    """Never a pass."""
    launch = Launch((1, 1, 1), (32, 1, 1), (), {})
    for text in ("", "what is this;", kernel("mov.u32 %r1 %r2;")):
        found = judge(text, launch)
        assert found.status is Status.UNSUPPORTED
        assert found.reason.startswith("not read: ")


def test_a_launch_is_read_from_toml(tmp_path: Path) -> None:
    """With its buffers filled."""
    path = tmp_path / "launch.toml"
    path.write_text(
        TOML.format(nbytes=128, values=[7, 8, 9])
        + '[[arguments]]\nmap = "inp"\ndtype = "u32"\ndims = [3]\nbox = [4]\n'
    )
    launch = load(path)
    assert (launch.grid, launch.block, launch.shared) == ((1, 1, 1), (32, 1, 1), 1024)
    assert launch.buffers["inp"].data.view(np.uint32).tolist() == [7, 8, 9]
    path.write_text("grid = 1")
    with pytest.raises(ValueError, match="'block' is missing"):
        load(path)


@pytest.mark.parametrize(
    ("body", "nbytes", "code"),
    [(COPY, 128, PROVED), (COPY, 64, REFUTED), ("sad.u32 %r7, %r1, %r1, %r1;", 128, OPEN)],
)
def test_the_command_line_answers_by_its_exit_code(
    tmp_path: Path, body: str, nbytes: int, code: int
) -> None:
    """All hold, something is refuted, unsupported."""
    text, launch = tmp_path / "k.ptx", tmp_path / "k.toml"
    text.write_text(kernel(body))
    launch.write_text(TOML.format(nbytes=nbytes, values=list(range(32))))
    done_ = CliRunner().invoke(
        main, ["ptx", str(text), "--launch", str(launch), "--schedules", "2"]
    )
    assert done_.exit_code == code, done_.output
    if code == OPEN:
        assert "sad.u32" in done_.output


def test_the_command_line_refuses_a_launch_that_says_too_little(tmp_path: Path) -> None:
    """With the key that is missing."""
    text, launch = tmp_path / "k.ptx", tmp_path / "k.toml"
    text.write_text(kernel(COPY))
    launch.write_text("grid = 1")
    done_ = CliRunner().invoke(main, ["ptx", str(text), "--launch", str(launch)])
    assert done_.exit_code == USAGE


def of_triton(text: str, seed: int) -> tuple[Status, set[str], bool]:
    """Multiply two matrices by a kernel of Triton: the answer, findings, whether values are right.

    80 x 192 by 96 x 192, in tiles of 64 x 64 x 64, by TMA and wgmma.
    """
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, (rows, 192)).astype(np.float16) for rows in (80, 96))
    c = np.zeros((80, 96), np.float16)
    buffers, arguments = {"scratch": Buffer("scratch", np.zeros(16, np.uint8))}, list[Argument]()
    for name, one in (("a", a), ("b", b), ("c", c)):
        rows, columns = one.shape
        buffers[name] = Buffer(name, one.view(np.uint8).reshape(-1))
        box = TensorMap(name, "f16", (columns, rows), (2 * columns,), (64, 64), 128)
        extents = [Scalar(n, "i32") for n in (rows, columns)]
        arguments += [box, *extents, *(Scalar(n, "i64") for n in (columns, 1))]
    arguments += [Scalar(n, "i32") for n in (80, 96, 192)] + [Pointer("scratch")] * 2
    launch = Launch((4, 1, 1), (128, 1, 1), tuple(arguments), buffers, 49176)
    found = run(text, launch, seed=seed).verdict
    right = bool((c == a.astype(np.float32) @ b.astype(np.float32).T).all())
    return found.status, {finding.kind for finding in found.findings}, right


def test_a_kernel_of_another_compiler_is_judged() -> None:
    """Right as it is, in several orders; its waits and fences are needed."""
    text = Path(__file__).with_name("matmul_of_triton.ptx").read_text()
    for seed in range(3):
        assert of_triton(text, seed) == (Status.PASS, set(), True)
    for line, kind in (
        ("@!complete bra.uni waitLoop;", "RAW"),
        ("fence.proxy.async.shared::cta;", "proxy"),
        ("wgmma.fence.sync.aligned;", "fence"),
        ("cp.async.bulk.wait_group \t0;", "exit"),
    ):
        assert line in text
        status, kinds, _ = of_triton(text.replace(line, ""), 0)
        assert status is Status.FAIL
        assert kind in kinds


def test_an_assertion_that_fails_is_found() -> None:
    """Where no thread comes to it, its call is none that is not modelled."""
    call = """
  setp.ge.u32 %p1, %r1, {most};
  @%p1 bra FAILS;
  st.global.u32 [%rd3], %r1;
  ret;
FAILS:
  {{ .param .b64 p0; st.param.b64 [p0+0], %rd1;
  call.uni __assertfail, (p0); }}
"""
    assert done(call.format(most=32)).verdict.status is Status.PASS
    found = done(call.format(most=31)).verdict
    assert found.status is Status.FAIL
    assert "an assertion fails in t31" in str(found)


def test_time_passes() -> None:
    """So that who waits for it goes on."""
    body = """
  mov.u64 %rd9, %globaltimer;
AGAIN:
  mov.u64 %rd10, %globaltimer;
  sub.u64 %rd11, %rd10, %rd9;
  setp.lt.u64 %p1, %rd11, 5000;
  @%p1 bra AGAIN;
  mov.u32 %r7, %clock;
  st.global.u32 [%rd3], %r7;
"""
    found = done(body)
    assert found.verdict.status is Status.PASS
    assert (found.words[:32] > 0).all()


NESTED = """
grid = 1
block = 1
[buffers.out]
bytes = 64
[buffers.table]
bytes = 16
parts = [{ at = 8, buffer = "out", offset = 16 }]
[[arguments]]
bytes = 24
parts = [{ at = 0, buffer = "table" }, { at = 20, value = 7, dtype = "u32" }]
"""
INDIRECT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 8 .b8 both[24])
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [both];
  ld.param.u32 %r1, [both+20];
  ld.global.u64 %rd2, [%rd1+8];
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


def test_structures_and_buffers_may_hold_addresses(tmp_path: Path) -> None:
    """Which addresses they are, only the launch knows."""
    path = tmp_path / "launch.toml"
    path.write_text(NESTED, encoding="utf-8")
    launch = load(path)
    assert judge(INDIRECT, launch).status is Status.PASS
    assert launch.buffers["out"].data.view(np.uint32)[4] == 7
