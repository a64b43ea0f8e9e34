"""What runs on a GPU, with the host in its place; single instructions, executed by the judge."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cuda.bindings import driver
from stand_in import Launch, StandIn

from fuser.fusion.definition import FusionDefinition
from fuser.runtime import launch
from fuser.runtime.binding import bind
from fuser.runtime.nvrtc import Cubin, compile_ptx
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.launches import Call, calls
from fuzz.cases.case import Case, compiled, inputs, specs
from fuzz.ptx import hardware
from fuzz.ptx.hardware import Gpu, evaluating, memory_of
from oracles.ptx.judge import run
from oracles.ptx.launch import Argument, Buffer, Pointer, Scalar
from oracles.ptx.launch import Launch as OfPtx
from oracles.ptx.text.approximate import Approximate
from oracles.verdict import Status

HOST = torch.device("cpu")
OPCODES = [
    *("ex2.approx.ftz.f32", "tanh.approx.f32", "rsqrt.approx.ftz.f64", "div.approx.f32"),
    *("div.full.f32", "lg2.approx.ftz.f32", "sin.approx.f32", "rcp.approx.ftz.f64"),
    *("sqrt.approx.ftz.f32", "cos.approx.ftz.f32", "div.approx.ftz.f32", "rcp.approx.f32"),
]


def call_of(n: int = 1000) -> tuple[Case, Call]:
    """Return the one launch of x * scalar, and its case; the input is off alignment."""
    fd = FusionDefinition()
    x, by = fd.define_tensor(shape=["n"], dtype="f32"), fd.define_scalar(dtype="f32")
    fd.add_output(fd.ops.mul(x, by))
    params = PointwiseParams((1, 256), 1, 1, None, "direct", "direct")
    case = Case(fd.fusion(), params, {"n": n}, "integers", 1, offset=3)
    program = compiled(case)
    made, _ = calls(case, inputs(case), program, bind(program, specs(case), sms=2))
    return case, made[0]


def written(seen: Launch) -> None:
    """Write sevens where the output is, and change the input."""
    (out,) = seen.kernel.outputs
    every = [tensor.name for tensor in seen.kernel.tensors]
    for name in every:
        value = 7.0 if name == out else 1.0
        (ctypes.c_float * 1000).from_address(seen.words[name])[:] = [value] * 1000


def test_a_launch_writes_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every argument at its place; the memory of the call stays as it is."""
    _, call = call_of()
    seen = StandIn(written)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", seen.start_dependent)
    monkeypatch.setattr(hardware, "load_function", seen.load)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5))
    monkeypatch.setattr(launch.BoundKernel, "_check_residency", lambda *_: None)
    before = {name: one.nan_to_num() for name, one in memory_of(call).items()}
    left = Gpu(HOST).launched(call, Cubin(b"", "", "", cached=False))
    after = memory_of(call)
    assert all(
        torch.equal(one.nan_to_num(), after[name].nan_to_num()) for name, one in before.items()
    )
    (out,) = call.kernel.outputs
    assert (left[out] == 7).all()
    (given,) = {*call.views} - {out}
    assert (left[given][3:] == 1).all()
    assert left[given][:3].isnan().all()  # poison before the first element
    (launched,) = seen.seen
    assert (launched.grid, launched.stream) == (call.launch.grid if call.launch else 0, 5)


def test_tensors_of_one_storage_are_one() -> None:
    """A copy of them, too, whatever their shapes."""
    _, call = call_of()
    room = torch.arange(2048, dtype=torch.float32)
    views = {"a": room.as_strided((4,), (2,), 8), "b": room[100:], "c": torch.zeros(3)}
    found = memory_of(Call(call.kernel, call.launch, views, {}))
    assert found["a"] is found["b"]
    assert torch.equal(found["a"], room)
    assert found["a"].data_ptr() != room.data_ptr()
    assert found["c"].numel() == 3


@pytest.mark.parametrize("opcode", OPCODES)
def test_an_instruction_is_executed_once_a_thread(opcode: str) -> None:
    """NVRTC takes the kernel, and the judge says that it gives the nearest values."""
    what = Approximate(opcode)
    kind = np.dtype("f4" if what.kind == "f32" else "f8")
    many = 2 if what.name == "div" else 1
    given = [np.linspace(0.5 + n, 9.0, 100).astype(kind) for n in range(many)]
    buffers = {f"x{n}": Buffer(f"x{n}", x.view(np.uint8).copy()) for n, x in enumerate(given)}
    buffers["y"] = Buffer("y", np.zeros(given[0].nbytes, np.uint8))
    arguments: tuple[Argument, ...] = (*map(Pointer, buffers), Scalar(100, "i32"))
    made = OfPtx((1, 1, 1), (256, 1, 1), arguments, buffers)
    outcome = run(compile_ptx(evaluating(opcode)), made)
    assert outcome.verdict.status is Status.PASS, outcome.verdict
    assert outcome.approximate == (opcode,)
    assert (buffers["y"].data.view(kind) == what.nearest(*given)).all()


def test_operands_go_to_the_gpu_and_results_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the shape that they have, one of all threads among them."""

    def start(*words: int) -> None:
        grid, _, _, threads, *_, pointers, _ = words[1:]
        a, b, y, n = (ctypes.c_uint64 * 4).from_address(pointers)
        many = ctypes.c_int32.from_address(n).value
        assert grid * threads >= many
        rooms = [ctypes.c_uint64.from_address(word).value for word in (a, b, y)]
        left, right, out = ((ctypes.c_float * many).from_address(room) for room in rooms)
        for i in range(many):
            out[i] = left[i] / right[i]

    monkeypatch.setattr(hardware, "launcher", SimpleNamespace(launchKernel=start))
    monkeypatch.setattr(hardware, "_function", lambda _: SimpleNamespace(ptr=0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    x = np.arange(1, 301, dtype=np.float32)
    gpu = Gpu(HOST)
    assert (gpu.evaluate("div.approx.f32", (x, np.float32(2))) == x / 2).all()
    one = gpu.evaluate("div.approx.f32", (np.float32(1), np.float32(4)))
    assert (np.shape(one), one) == ((), 0.25)
    assert gpu.evaluate("div.approx.f32", (x[:0], x[:0])).shape == (0,)


@pytest.mark.gpu
@pytest.mark.parametrize("opcode", OPCODES)
def test_a_gpu_is_as_near_as_the_isa_says(opcode: str) -> None:
    """Of numbers of every size, and such as are none."""
    what = Approximate(opcode)
    kind = np.dtype("f4" if what.kind == "f32" else "f8")
    random = np.random.default_rng(1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1.0, 2.0]
    some = np.concatenate([random.normal(size=4000) * 4, special]).astype(kind)
    given = (some, some[::-1].copy()) if what.name == "div" else (some,)
    with np.errstate(all="ignore"):
        got = Gpu().evaluate(opcode, given)
        wrong = ~what.allows(got, *given)
    assert not wrong.any(), (*(x[wrong][:5] for x in given), got[wrong][:5])
