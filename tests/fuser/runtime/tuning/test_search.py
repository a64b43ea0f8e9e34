"""Calls that tune, on the host in a GPU's place: what is measured, chosen, refused, remembered."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from product_kernels import linear
from stand_in import Launch, StandIn, stand_in

import fuser
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.kernel import ir as kir
from fuser.runtime import disk, executable, launch
from fuser.runtime.executable import Executable, tune
from fuser.runtime.tuning.search import MARGIN, Tuning
from fuser.runtime.tuning.timing import ColdTimer
from fuser.schedule import candidates
from fuser.schedule.params import PointwiseParams

N = 4096


@dataclass
class Device:
    """The host in a GPU's place, which takes so long for a kernel; `timed` are all it was asked."""

    driver: StandIn
    us: Callable[[kir.Kernel], float] = lambda kernel: 1000 / kernel.threads
    timed: list[kir.Kernel] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __call__(self, call: Callable[[], object]) -> float:
        """Run a call; take as long as its kernels."""
        begin = len(self.driver.seen)
        call()
        kernels = [made.kernel for made in self.driver.seen[begin:]]
        self.timed += kernels
        return sum(map(self.us, kernels))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Take the place of a stream for work in the background, which waits at the gate."""
        assert self.gate.wait(60)
        yield


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    """A device whose CTAs of more threads are faster, and an empty memory."""
    made = Device(stand_in(monkeypatch))
    made.driver.compute = add
    made.gate.set()
    monkeypatch.setattr(executable, "ColdTimer", lambda _: made)
    monkeypatch.setattr(executable, "Aside", lambda _: made)
    monkeypatch.setattr(launch, "encode", lambda *_, **__: bytes(128))
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path))
    return made


def added() -> Fusion:
    """The sum of two vectors."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.add(*(fd.define_tensor(shape=[-1], dtype="f32") for _ in range(2))))
    return fd.fusion()


def at(address: int) -> torch.Tensor:
    """The numbers at an address."""
    return torch.frombuffer((ctypes.c_float * N).from_address(address), dtype=torch.float32)


def add(made: Launch) -> None:
    """Do what a kernel of `added` does."""
    if "T2" in made.words:
        at(made.words["T2"]).copy_(at(made.words["T0"]) + at(made.words["T1"]))


def given() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of a call."""
    return torch.rand(N), torch.rand(N)


def test_the_fastest_runs_from_the_first_call_on(device: Device) -> None:
    """Each candidate is measured, the results are those of the call."""
    run = Executable(added(), tune=True)
    for _ in range(3):
        x, y = given()
        (z,) = run(x, y)
        assert torch.equal(z, x + y)
    threads = {kernel.threads for kernel in device.timed}
    assert len({id(kernel) for kernel in device.timed}) == 8
    assert device.driver.seen[-1].kernel.threads == max(threads) > 128


def test_outputs_that_are_given_are_written_by_the_call_alone(device: Device) -> None:
    """Measurements write to others."""
    run = Executable(added(), tune=True)
    (x, y), out = given(), torch.full((N,), 7.0)
    written: list[int] = []

    def watched(made: Launch) -> None:
        if len(written) < len(device.timed):
            assert torch.equal(out, torch.full((N,), 7.0))
        written.append(made.words["T2"])
        add(made)

    device.driver.compute = watched
    run(x, y, out=[out])
    assert torch.equal(out, x + y)
    assert written.count(out.data_ptr()) == 1


def test_another_process_finds_it(device: Device) -> None:
    """Another executable is as good: nothing but the disk is common to both."""
    run = Executable(added(), tune=True)
    run(*given())
    fastest, device.timed = device.driver.seen[-1].kernel, []
    again = Executable(added(), tune=True)
    again(*given())
    assert not device.timed
    assert device.driver.seen[-1].kernel.threads == fastest.threads


def test_a_changed_compiler_measures_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does a file that is damaged."""
    Executable(added(), tune=True)(*given())
    device.timed = []
    monkeypatch.setattr(candidates, "VERSION", candidates.VERSION + 1)
    Executable(added(), tune=True)(*given())
    assert device.timed
    device.timed = []
    for path in disk.cache_dir().glob("*.tuned"):
        path.write_bytes(b"{}\n{}")
    Executable(added(), tune=True)(*given())
    assert device.timed


def test_the_default_stays_unless_another_is_faster_by_more_than_noise(device: Device) -> None:
    """And then it is remembered, too: nobody measures again."""
    default = Executable(added())
    default(*given())
    kernel = device.driver.seen[-1].kernel
    device.us = lambda one: 10.0 if one == kernel else 10.0 * (1 - MARGIN / 2)
    run = Executable(added(), tune=True)
    run(*given())
    assert device.driver.seen[-1].kernel == kernel
    device.timed = []
    Executable(added(), tune=True)(*given())
    assert not device.timed


def test_no_disk_is_no_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executable knows what it has measured: other plans of the class do not measure."""
    monkeypatch.setenv("FUSER_CACHE", "/proc/nowhere")
    run = Executable(added(), tune=True)
    x, y = given()
    run(x, y)
    device.timed = []
    run(x, y, out=[torch.empty(N)])
    run._plans.clear()
    run(x, y, out=[torch.empty(N)])
    assert not device.timed


def test_a_wrong_candidate_is_reported_and_never_chosen(device: Device) -> None:
    """The fastest of all leaves the last element as it was."""

    def wrong(made: Launch) -> None:
        add(made)
        if made.kernel.threads > 128:
            at(made.words["T2"])[-1] = 3.0

    device.driver.compute = wrong
    run = Executable(added(), tune=True)
    x, y = given()
    with pytest.warns(RuntimeWarning, match=r"tune: PointwiseParams\(tile.*computes other results"):
        (z,) = run(x, y)
    assert torch.equal(z, x + y)
    assert device.driver.seen[-1].kernel.threads == 128


def test_what_a_judge_refuses_never_runs(device: Device) -> None:
    """It is named in the report, with what the judge says; the default is not asked for."""

    def judge(kernel: kir.Kernel) -> str | None:
        return "too many threads" if kernel.threads > 128 else None

    report = tune(added(), *given(), judge=judge)
    assert all(made.kernel.threads <= 128 for made in device.driver.seen)
    says = str(report)
    assert "judge: too many threads" in says
    device.timed = []
    Executable(added(), tune=True)(*given())
    assert not device.timed, "what a judge has seen is good for who asks for none"
    Executable(added(), tune=Tuning(judge=lambda _: None))(*given())
    assert device.timed, "but not for who asks another judge"


def test_the_front_door_asks_the_prover(device: Device) -> None:
    """`fuser.tune` is judged by default."""
    report = fuser.tune(added(), *given(), n=3)
    assert len(report.tried) == 3
    (path,) = disk.cache_dir().glob("*.tuned")
    assert b'"judge": "oracles.prover.prove.named_refusal"' in path.read_bytes()


def test_a_report_is_a_table(device: Device) -> None:
    """The chosen one is marked; what differs from the default is shown."""
    report = tune(added(), *given(), n=4)
    head, kernel, *rows = str(report).splitlines()
    assert head.endswith("times the default's speed")
    assert kernel == "kernel 0: PointwiseParams direct/direct"
    assert rows[0].split() == ["7.81", "default"]
    (chosen,) = [row for row in rows if row[0] == "*"]
    assert "warps=" in chosen
    assert report.us < report.default_us


def test_the_background_replaces_the_plan(device: Device) -> None:
    """Until then calls run by default; what is measured has copies of their inputs."""
    device.gate.clear()
    run = Executable(added(), tune="background")
    x, y = given()
    for _ in range(3):
        (z,) = run(x, y)
        assert torch.equal(z, x + y)
        assert device.driver.seen[-1].kernel.threads == 128
        x.uniform_()
    assert not run.wait(0.01)
    device.gate.set()
    assert run.wait(60)
    (z,) = run(x, y)
    assert torch.equal(z, x + y)
    assert device.driver.seen[-1].kernel.threads > 128
    assert len(run._plans) == 1
    read = [made.words.get("T0") for made in device.driver.seen]
    assert read.count(x.data_ptr()) == 4


def test_a_failure_in_the_background_is_a_warning(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default stays, and nothing is tried again and again."""

    def broken(_: Any) -> Device:
        raise RuntimeError("no device")

    monkeypatch.setattr(executable, "ColdTimer", broken)
    run = Executable(added(), tune="background")
    x, y = given()
    with pytest.warns(RuntimeWarning, match="in the background: RuntimeError: no device; the def"):
        assert all((run(x, y), run.wait(60)))
    assert torch.equal(run(x, y, out=[torch.empty(N)])[0], x + y)


def test_a_capture_measures_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no reason not to measure later."""
    run = Executable(added(), tune=True)
    with monkeypatch.context() as capturing:
        capturing.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        run(*given())
        assert not device.timed
    run(*given())
    assert device.timed


def test_no_memory_is_a_warning(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call has what it needs."""

    def full(_: torch.device) -> Device:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(executable, "ColdTimer", full)
    x, y = given()
    with pytest.warns(RuntimeWarning, match="no memory for other outputs of"):
        assert torch.equal(Executable(added(), tune=True)(x, y)[0], x + y)


def test_every_kernel_of_a_fusion_is_tuned(device: Device) -> None:
    """A product, and the softmax of it by what was chosen for the product."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.softmax(fd.ops.linear(x, w), [1]))
    device.driver.compute = lambda made: None
    device.us = lambda kernel: 100.0 + 1000 / kernel.threads
    run = Executable(fd.fusion(), tune=Tuning(3))
    call = (torch.zeros(256, 64).bfloat16(), torch.zeros(512, 64).bfloat16())
    with pytest.warns(RuntimeWarning, match="computes other results"):
        report = run.measure(*call)  # nothing is computed, and outputs begin wrong
    assert {one.kernel for one in report.tried} == {0, 1}
    assert len(report.schedules) == 2


def test_what_a_refused_kernel_has_instead_is_where_measuring_begins(device: Device) -> None:
    """Rows that are too long for the registers of a cluster, and two results of them."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    fd.add_output(fd.ops.add(x, x))
    fd.add_output(fd.ops.add(x, fd.ops.log_softmax(fd.ops.cast(x, "f32"), [1])))
    fusion, given = fd.fusion(), torch.zeros(1, 231_264, dtype=torch.bfloat16)

    def zeros(made: Launch) -> None:
        for tv in fusion.outputs:
            ctypes.memset(made.words[tv.name], 0, tv.dtype.nbytes * given.numel())

    device.driver.compute = zeros
    report = Executable(fusion, tune=Tuning(2)).measure(given)
    assert Executable(fusion).explain(given).parts[0].params in [one.params for one in report.tried]
    assert report.us > 0
    assert Executable(fusion, tune=True)(given)[0].shape == given.shape


def test_products_have_the_schedules_of_their_model(device: Device) -> None:
    """Those that their own checks accept, each another one."""
    device.driver.compute = lambda made: None
    x, w = torch.zeros(256, 64).bfloat16(), torch.zeros(512, 64).bfloat16()
    with pytest.warns(RuntimeWarning, match="MatmulParams.*computes other results"):
        report = tune(linear(), x, w, torch.zeros(512).bfloat16(), n=4)
    assert len({one.params for one in report.tried}) == 4


def test_what_tuned_explains_is_what_runs(device: Device) -> None:
    """By default before, by the fastest then."""
    run = Executable(added(), tune=True)
    call = given()
    before = run.explain(*call).parts[0].params
    run(*call)
    after = run.explain(*call).parts[0].params
    assert isinstance(before, PointwiseParams)
    assert isinstance(after, PointwiseParams)
    assert 32 * after.warps == device.driver.seen[-1].kernel.threads > 32 * before.warps


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Tuning(0), r"Tuning\(n=0\): need 1 or more schedules; use n=8"),
        (lambda: Tuning(True), r"Tuning\(n=True\): need 1 or more"),
        (
            lambda: Executable(added(), tune="later"),  # type: ignore[arg-type]
            r"Executable\(fusion, tune='later'\): no way to tune; use True, \"background\" or",
        ),
        (
            lambda: Executable(
                added(), PointwiseParams((1, 128), 1, 4, None, "direct", "direct"), tune=True
            ),
            r"PointwiseParams\(...\), tune=True\): params leave nothing to choose; leave out one",
        ),
        (lambda: Executable(added()).measure(*given()), r"measure\(\): .*make it with tune=True"),
    ],
)
def test_what_cannot_be_tuned_says_why(make: Callable[[], object], says: str) -> None:
    """Before anything is compiled."""
    with pytest.raises(ScheduleError, match=says):
        make()


def test_a_wrong_call_is_refused_as_ever(device: Device) -> None:
    """Nothing is measured for it."""
    with pytest.raises(FusionError, match="got 1 arguments"):
        Executable(added(), tune=True)(torch.rand(N))
    assert not device.timed


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["product", "softmax", "pointwise", "sum"])
def test_what_is_tuned_is_right_and_found_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's numbers, times that can be, and a second executable that only reads."""
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path))
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    a = torch.randn(1024, 512, device="cuda").bfloat16()
    call: tuple[torch.Tensor, ...] = (a,)
    match what:
        case "product":
            w = fd.define_tensor(shape=[-1, -1], dtype="bf16")
            fd.add_output(fd.ops.linear(x, w))
            call = (a, torch.randn(768, 512, device="cuda").bfloat16())
            want = call[0].double() @ call[1].double().T
        case "softmax":
            fd.add_output(fd.ops.softmax(x, [1]))
            want = a.double().softmax(1)
        case "pointwise":
            fd.add_output(fd.ops.silu(x))
            want = torch.nn.functional.silu(a.double())
        case _:
            fd.add_output(fd.ops.sum(x, dims=[0]))
            want = a.double().sum(0)
    report = fuser.tune(fd.fusion(), *call, n=5)
    print(report)
    assert not [one for one in report.tried if one.note.startswith("WRONG")]
    assert 0 < report.us <= report.default_us * 1.1
    assert report.us < 1000
    monkeypatch.setattr(executable, "ColdTimer", lambda _: pytest.fail("measured again"))
    run = Executable(fd.fusion(), tune=Tuning(n=5))
    for _ in range(2):
        (got,) = run(*call)
        torch.testing.assert_close(
            got.double(), want, rtol=2**-6, atol=2**-6 * float(want.abs().max())
        )


@pytest.mark.gpu
def test_a_device_tunes_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls go on meanwhile, on the user's stream, whatever becomes of their inputs."""
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path))
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor(shape=[-1, -1], dtype="bf16"), [1]))
    run = Executable(fd.fusion(), tune=Tuning(4, background=True))
    x = torch.randn(2048, 1024, device="cuda").bfloat16()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            (got,) = run(x)
            torch.testing.assert_close(got.float(), x.float().softmax(1), rtol=2**-6, atol=1e-5)
            x.normal_()
        assert run.wait(120)
    (got,) = run(x)
    torch.testing.assert_close(got.float(), x.float().softmax(1), rtol=2**-6, atol=1e-5)
    assert len([*tmp_path.glob("*.tuned")]) == 1


@pytest.mark.gpu
def test_operands_are_cold() -> None:
    """A copy that fits the L2 takes no less time, by the byte, than one that does not."""
    timer = ColdTimer(torch.device("cuda", 0))
    small, large = (torch.ones(n << 20, device="cuda", dtype=torch.uint8) for n in (8, 512))
    taken = {}
    for given in (small, large):
        out = torch.empty_like(given)
        taken[given.numel()] = min(timer(lambda g=given, o=out: o.copy_(g)) for _ in range(5))  # type: ignore[misc]
    few, many = taken[8 << 20], taken[512 << 20]
    print(f"8 MiB {few:.2f} us, 512 MiB {many:.2f} us")
    assert few > many / 64 * 0.9
