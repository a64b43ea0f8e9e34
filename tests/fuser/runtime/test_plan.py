"""Calls on the host in a GPU's place: equal ones cost little, others find a plan of their own."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cupy
import pytest
import torch
from product_kernels import GROUPS, linear
from stand_in import DriverError, Launch, StandIn, stand_in

from fuser.errors import FusionError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.kernel.tensor_map import Encoding
from fuser.kernel.text import text
from fuser.runtime import executable, launch, plan, torch_calls
from fuser.runtime.executable import Executable
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams

N = 64


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The host in the place of a GPU."""
    return stand_in(monkeypatch)


def added(rank: int = 1, contiguity: list[bool] | None = None) -> Fusion:
    """The sum of two tensors."""
    fd = FusionDefinition()
    x, y = (
        fd.define_tensor(shape=[-1] * rank, dtype="f32", contiguity=contiguity) for _ in range(2)
    )
    fd.add_output(fd.ops.add(x, y))
    return fd.fusion()


def scaled() -> Fusion:
    """A tensor times a number."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="f32")
    fd.add_output(fd.ops.mul(x, fd.define_scalar("f32")))
    return fd.fusion()


def at(address: int) -> torch.Tensor:
    """The numbers at an address."""
    return torch.frombuffer((ctypes.c_float * N).from_address(address), dtype=torch.float32)


def add(made: Launch) -> None:
    """Do what a kernel of `added` does, other threads at work meanwhile."""
    x, y = at(made.words["T0"]).clone(), at(made.words["T1"])
    time.sleep(0)
    at(made.words["T2"]).copy_(x + y)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the plans that are prepared."""
    made: list[int] = []
    prepare = Executable._prepare

    def counted(*given: Any) -> plan.Plan:
        made.append(1)
        return prepare(*given)

    monkeypatch.setattr(Executable, "_prepare", counted)
    return made


@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
def test_an_equal_call_looks_nothing_up(
    given: bool, driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tensors of the same form: no key, no plan, no block, few functions of ours."""
    driver.compute = add
    run = Executable(added())

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return run(x, y, out=[torch.zeros(N)] if given else None)[0]

    call(torch.ones(N), torch.ones(N))
    for name in ("_find", "_prepare", "_check_arguments"):
        monkeypatch.delattr(Executable, name)
    for name in ("classify", "bind", "build", "Block"):
        monkeypatch.delattr(executable, name)
    x, y = torch.rand(N), torch.rand(N)
    assert torch.equal(call(x, y), x + y)
    called: list[str] = []

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith("fuser.runtime"):
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    call(x, y)
    sys.setprofile(None)
    checks = ["check", "check"] if given else []
    assert called == ["__call__", "launch", *checks, "launch", "start", "__call__"]


def test_what_is_written_are_the_addresses_of_the_call(driver: StandIn) -> None:
    """Inputs, the output that is returned; an output that is given."""
    run = Executable(added())
    for _ in range(3):
        x, y, out = torch.rand(N), torch.rand(N), torch.empty(N)
        (made,) = run(x, y)
        (same,) = run(x, y, out=[out])
        assert same is out
        for launched, last in zip(driver.seen[-2:], (made, out), strict=True):
            words = [launched.words[name] for name in ("T0", "T1", "T2")]
            assert words == [t.data_ptr() for t in (x, y, last)]
        assert made.shape == (N,)
        assert made.dtype == torch.float32


def test_numbers_are_those_of_the_call(driver: StandIn) -> None:
    """A plan holds no number, only that there is one."""
    run = Executable(scaled())
    for number in (1.5, -2.0, 3):
        run(torch.ones(N), number)
        word = driver.seen[-1].words["S0"]
        assert ctypes.c_float.from_buffer(ctypes.c_uint32(word & 0xFFFFFFFF)).value == number


def test_a_torch_without_guards_finds_plans_by_key(
    driver: StandIn, prepared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are torch's own affair, and may go."""
    monkeypatch.setattr(torch_calls, "_guard", None)
    driver.compute = add
    run = Executable(added())
    for _ in range(3):
        x, y = torch.rand(N), torch.rand(N)
        assert torch.equal(run(x, y)[0], x + y)
    assert len(prepared) == 1


def test_an_input_is_not_taken_for_an_output(driver: StandIn) -> None:
    """As many tensors, all alike, but not as many inputs."""
    run = Executable(added())
    x, y, z = (torch.rand(N) for _ in range(3))
    run(x, y, out=[z])
    for given, out in (((x,), [y, z]), ((x, y, z), []), ((), [x, y, z])):
        with pytest.raises(FusionError, match=f"got {len(given)} arguments, the fusion takes 2"):
            run(*given, out=out)
    with pytest.raises(FusionError, match="got 3 arguments"):
        run(x, y, z)
    assert len(driver.seen) == 1


def test_another_kind_of_number_is_checked(driver: StandIn, prepared: list[int]) -> None:
    """Equal calls know the kind of each number, and that it is one."""
    run = Executable(scaled())
    x = torch.ones(N)
    for number in (1.5, 2.5, 2, 2.5):
        run(x, number)
    assert len(prepared) == 2
    for wrong in ("1.5", x, None):
        with pytest.raises(FusionError, match=r"call\(S0\): got .*pass a Python number"):
            run(x, wrong)  # type: ignore[arg-type] # the mistake
    with pytest.raises(FusionError, match=r"call\(T0\): got float"):
        run(1.5, x)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.ones(2, 32), torch.ones(2, 32)),
        (torch.ones(4, 64)[:, :16], torch.ones(4, 16)),
        (torch.ones(4, 16), torch.ones(4, 32)[:, :16]),
        (torch.ones(65)[1:].view(4, 16), torch.ones(4, 16)),
        (torch.ones(4, 16), torch.ones(66)[2:].view(4, 16)),
    ],
    ids=["shape", "stride", "other stride", "alignment", "other alignment"],
)
def test_what_differs_has_a_plan_of_its_own(
    x: torch.Tensor, y: torch.Tensor, driver: StandIn, prepared: list[int]
) -> None:
    """In turns with one that is aligned, whose plan is the last or is not."""
    run = Executable(added(2, [False, True]))
    plain = (torch.ones(4, 16), torch.ones(4, 16))
    for _ in range(3):
        for given in (plain, (x, y), (x, y), plain):
            (made,) = run(*given)
            assert made.shape == given[0].shape
            assert driver.seen[-1].words["T0"] == given[0].data_ptr()
    assert len(prepared) == 2
    integers = (tuple(one.words[p.name] for p in one.kernel.params) for one in driver.seen)
    texts = (text(one.kernel) for one in driver.seen)
    assert len({*zip(texts, integers, strict=True)}) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.ones(N, dtype=torch.int32), torch.ones(N)), "got i32, the fusion says f32; cast"),
        ((torch.ones(N), torch.ones(N, dtype=torch.complex64)), "got torch.complex64, the fusion"),
        ((torch.ones(N, 1), torch.ones(N)), "got 2 axes"),
        ((torch.ones(N), torch.ones(N + 1)), "axis 0 has 65 elements, but i0 is 64"),
        ((torch.ones(N), torch.ones(2 * N)[::2]), "axis 0 has stride 2, the fusion promises 1"),
        ((torch.ones(N), torch.ones(N, device="meta")), "the tensor is on meta"),
        ((torch.ones(N), 1.0), "got float, the fusion says a tensor"),
        ((torch.ones(N),), "got 1 arguments, the fusion takes 2"),
        ((torch.ones(N),) * 3, "got 3 arguments, the fusion takes 2"),
    ],
)
def test_what_does_not_fit_is_refused_behind_equal_calls(
    given: tuple[Any, ...], message: str, driver: StandIn
) -> None:
    """A plan that is kept hides no mistake; calls that fit go on."""
    run = Executable(added())
    for _ in range(2):
        run(torch.ones(N), torch.ones(N))
        with pytest.raises(FusionError, match=message):
            run(*given)
    assert len(driver.seen) == 2


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([], r"call\(out=...\): got 0 tensors, the fusion has 1"),
        ([torch.ones(N, dtype=torch.int32)], "got torch.int32"),
        ([torch.ones(2 * N)[::2]], "the output is a contiguous"),
        ([torch.ones(N, device="meta")], "the tensor is on meta, the inputs on cpu; move it"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    out: list[torch.Tensor], message: str, driver: StandIn
) -> None:
    """Also where a call with others has gone well; nothing is launched."""
    run = Executable(added())
    x, y = torch.ones(N), torch.ones(N)
    for _ in range(2):
        with pytest.raises(FusionError, match=message):
            run(x, y, out=out)
    run(x, y, out=[torch.ones(N)])
    with pytest.raises(FusionError, match=message):
        run(x, y, out=out)
    with pytest.raises(FusionError, match=r"out=T2\): overlaps T1 in memory by 256 bytes"):
        run(x, y, out=[y])
    assert len(driver.seen) == 1


def test_a_tensor_may_be_given_twice(driver: StandIn, prepared: list[int]) -> None:
    """Torch does not call it equal; the key does."""
    run = Executable(added())
    x = torch.rand(N)
    for _ in range(3):
        run(x, x)
        assert driver.seen[-1].words["T0"] == driver.seen[-1].words["T1"] == x.data_ptr()
    assert len(prepared) == 1


def test_kernels_of_a_call_share_what_is_between_them(driver: StandIn) -> None:
    """What two store, one behind the other, a third reads."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[n, 16], dtype="f32") for n in (4, 8))
    both = fd.ops.cat([fd.ops.exp(x), fd.ops.sin(y)], 0)
    fd.add_output(fd.ops.cumsum(both, 0))
    run = Executable(fd.fusion())
    run(torch.ones(4, 16), torch.ones(8, 16))
    first, second, last = (one.words for one in driver.seen)
    begin = last["T4_view"]
    assert (first["T4_whole_part0"], second["T4_whole_part1"]) == (begin, begin + 4 * 4 * 16)


def test_plans_are_bounded(
    driver: StandIn, prepared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes."""
    monkeypatch.setattr(executable, "MAX_PLANS", 2)
    run = Executable(added())
    for n in (4, 8, 12, 8, 12, 4):
        run(torch.ones(n), torch.ones(n))
    assert len(prepared) == 4
    assert len(run._plans) == 2


def together(many: int, work: Callable[[int], None]) -> None:
    """Let threads begin at once, and raise what any of them raised."""
    start, errors = threading.Barrier(many), []

    def one(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_call_at_once(driver: StandIn, prepared: list[int]) -> None:
    """Each gets its sums, on its stream; one prepares the plan."""
    driver.compute = add
    run = Executable(added())

    def work(number: int) -> None:
        driver.mine.stream = number
        for _ in range(200):
            x, y = torch.full((N,), float(number)), torch.rand(N)
            assert torch.equal(run(x, y)[0], x + y)

    many = 6
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        together(many, work)
    finally:
        sys.setswitchinterval(switch)
    assert len(prepared) == 1
    (kept,) = run._plans.values()
    assert 1 <= len(kept._free) <= many
    for stream in range(many):
        launched = [one for one in driver.seen if one.stream == stream]
        assert len(launched) == 200


def test_threads_have_semaphores_of_their_streams(driver: StandIn) -> None:
    """Blocks change hands between streams, semaphores do not."""
    run = Executable(linear(), replace(GROUPS, splits=3))
    shapes = ((200, 128), (96, 128), (96,))

    def work(number: int) -> None:
        driver.mine.stream = 100 + number
        for _ in range(20):
            run(*(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes))

    driver.compute = lambda _: time.sleep(0)
    together(4, work)
    turns: dict[int, set[int]] = {}
    for one in driver.seen:
        turns.setdefault(one.stream, set()).add(one.words["turns"])
    assert all(len(places) == 1 for places in turns.values())
    assert len(set.union(*turns.values())) == 4


def test_a_launch_that_fails_leaves_nothing_behind(driver: StandIn) -> None:
    """Its block is not used again, and the next call goes well."""
    run = Executable(added())
    x = torch.ones(N)
    run(x, x)

    def fail(_: Launch) -> None:
        raise DriverError(700)

    driver.compute = fail
    for _ in range(2):
        with pytest.raises(DriverError, match="700"):
            run(x, torch.ones(N))
    driver.compute = add
    assert run(x, torch.ones(N))[0].tolist() == [2.0] * N


def test_a_thread_without_a_context_gets_one(
    driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first launch fails, as nothing has made a context current: once."""
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: contexts.append(1))
    contexts: list[int] = []

    def need(_: Launch) -> None:
        if not contexts:
            raise DriverError(201)

    driver.compute = need
    run = Executable(added())
    for _ in range(3):
        run(torch.ones(N), torch.ones(N))
    assert contexts == [1]


def test_tensor_maps_are_of_the_addresses_of_the_call(
    driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoded once for each address, written where one has changed."""
    encoded: list[int] = []

    def encode(_: str, made: Encoding, *, once: bool) -> bytes:
        assert not once
        encoded.append(made.address)
        return made.address.to_bytes(8, "little") * 16

    monkeypatch.setattr(launch, "encode", encode)
    ring = PointwiseParams((8, 128), 8, 4, 2, "tma", "direct", 3, 2)
    run = Executable(added(2), ring)
    x, y, z = (torch.ones(64, 512) for _ in range(3))
    for given in ((x, y), (x, y), (z, y), (x, y), (y, x)):
        run(*given)
        words = driver.seen[-1].words
        assert [words["T0_map"], words["T1_map"]] == [t.data_ptr() for t in given]
    assert encoded == [t.data_ptr() for t in (x, y, z, y, x)]


@pytest.mark.parametrize(
    ("rows", "splits", "once"), [(64, 1, True), (65, 1, False), (64, 2, False)]
)
def test_weights_that_one_cta_reads_come_in_longer_pieces(
    rows: int, splits: int, once: bool, driver: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one tile has all rows, and nobody shares it; the other one is read by every tile."""
    encoded: dict[int, bool] = {}

    def encode(_: str, made: Encoding, *, once: bool) -> bytes:
        encoded[made.address] = once
        return bytes(128)

    monkeypatch.setattr(launch, "encode", encode)
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    fd.add_output(fd.ops.linear(x, w))
    params = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False, splits=splits)
    given = [torch.ones(many, 256, dtype=torch.bfloat16) for many in (rows, 512)]
    (made,) = Executable(fd.fusion(), params)(*given)
    assert driver.seen
    assert encoded == {
        given[0].data_ptr(): False,
        given[1].data_ptr(): once,
        made.data_ptr(): False,
    }
