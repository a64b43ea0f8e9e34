"""The block of argument values: each parameter finds its own, also where CTAs share a tile."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import cupy
import numpy as np
import numpy.typing as npt
import pytest
import torch
from cuda.bindings import driver
from litmus.dependents import copied
from product_kernels import GROUPS, linear
from stand_in import SMS, DriverError, Launch, StandIn, stand_in

from fuser.codegen.expr import reciprocal
from fuser.errors import ScheduleError
from fuser.runtime.executable import Executable
from fuser.runtime.launch import BoundKernel
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.params import Residency


def bound(params: AmpereParams, monkeypatch: pytest.MonkeyPatch) -> tuple[Executable, StandIn]:
    """`linear` without TMA, and who watches its launches."""
    return Executable(linear(), params), stand_in(monkeypatch)


def tensors() -> list[torch.Tensor]:
    """X, weights and bias of `linear`."""
    return [torch.zeros(s, dtype=torch.bfloat16) for s in [(200, 128), (96, 128), (96,)]]


def test_addresses_and_integers_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor and extent where the kernel looks for it; a second call changes addresses."""
    run, driver = bound(GROUPS, monkeypatch)
    for _ in range(2):
        given = tensors()
        given += run(*given)
        seen = driver.seen[-1].words
        names = [name for name in seen if name.startswith("T") and "_" not in name]
        assert [seen[name] for name in names] == [t.data_ptr() for t in given]
        low = {name: np.int32(np.uint32(seen[name] & 0xFFFFFFFF)) for name in ("n0", "n1", "n2")}
        assert list(low.values()) == [200, 96, 128]
    assert [one.grid for one in driver.seen] == [12, 12]


def test_ctas_that_share_a_tile_get_scratch_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workspace, semaphores and ticket; the latter two the same in every launch on a stream."""
    run, driver = bound(replace(GROUPS, splits=3), monkeypatch)
    for _ in range(2):
        run(*tensors())
    first, second = (one.words for one in driver.seen)
    assert [one.grid for one in driver.seen] == [36, 36]
    assert first["splits"] & 0xFFFFFFFF == 3
    assert first["by_splits"] == reciprocal(3)
    assert first["turns"] == second["turns"]
    assert first["ticket"] == second["ticket"]
    addresses = {first[name] for name in ("turns", "ticket", "W_acc", "T0", "T1", "T2")}
    assert len(addresses - {0}) == 6
    assert zeros(first["turns"], 12).tolist() == [0] * 12


def zeros(address: int, many: int) -> npt.NDArray[np.int32]:
    """The integers at an address."""
    return np.ctypeslib.as_array((ctypes.c_int32 * many).from_address(address))


def test_a_launch_that_fails_gets_new_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's error reaches the caller, and the next launch begins anew."""
    run, driver = bound(replace(GROUPS, splits=3), monkeypatch)
    run(*tensors())
    zeros(driver.seen[0].words["turns"], 12)[0] = 2

    def broken(_: Launch) -> None:
        raise DriverError(1)

    with monkeypatch.context() as context:
        context.setattr(driver, "compute", broken)
        with (
            pytest.raises(RuntimeError, match="error 1"),
            pytest.warns(RuntimeWarning, match="the next one begins with new semaphores"),
        ):
            run(*tensors())
    run(*tensors())
    assert zeros(driver.seen[-1].words["turns"], 12).tolist() == [0] * 12


@pytest.mark.parametrize(("residency", "many"), [("ticket", 3), ("co-resident", 36)])
def test_ctas_that_wait_for_each_other_fit_the_device(
    residency: Residency, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a tile where they draw tickets, else all of the launch: or nothing is launched."""
    params = replace(GROUPS, splits=3, meet="scatter", residency=residency)
    run, seen = bound(params, monkeypatch)
    room = SimpleNamespace(multi_processor_count=SMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: room)

    def a_cta_each(*_: object) -> tuple[driver.CUresult, int]:
        """SMs are other ones for the check alone: what is launched depends on them, too."""
        room.multi_processor_count = takes
        return driver.CUresult.CUDA_SUCCESS, 1

    monkeypatch.setattr(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor", a_cta_each)
    takes = many - 1
    with pytest.raises(ScheduleError, match=f"{many} CTAs must run at once, the device takes"):
        run(*tensors())
    assert not seen.seen
    room.multi_processor_count, takes = SMS, many
    run(*tensors())
    assert [(one.grid, one.at_once) for one in seen.seen] == [(36, residency == "co-resident")]


def test_a_dependent_kernel_may_start_before_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the attribute it would be right, and wait for them; at once with all CTAs it does."""
    watch = stand_in(monkeypatch)
    seen: list[tuple[int, int, int]] = []

    def launch(how: driver.CUlaunchConfig, *_: object) -> tuple[driver.CUresult]:
        (allowed,) = how.attrs
        assert allowed.id.name.endswith("PROGRAMMATIC_STREAM_SERIALIZATION")
        assert allowed.value.programmaticStreamSerializationAllowed
        seen.append((how.gridDimX, how.blockDimX, int(how.hStream)))
        return (driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    kernel = copied("ended load store")
    function = watch.load(None, kernel, 0)
    made = BoundKernel(kernel, function, 3, {}, torch.device("cpu"), what="call")
    for stream in (5, 5, 0, 6):
        made.start(stream)
    assert seen == [(3, 64, 5), (3, 64, 5), (3, 64, 0), (3, 64, 6)]
    assert not watch.seen
    plain = replace(kernel, dependent=False)
    function = watch.load(None, plain, 0)
    BoundKernel(plain, function, 3, {}, torch.device("cpu"), what="call").start(5)
    assert [one.stream for one in watch.seen] == [5]


@pytest.mark.parametrize("status", ["CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_VALUE"])
def test_a_dependent_launch_that_is_refused(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a context it is tried again with one; else the error says which kernel."""
    watch = stand_in(monkeypatch)
    results = [getattr(driver.CUresult, status), driver.CUresult.CUDA_SUCCESS]
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *_: (results.pop(0),))
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (0, 0))
    kernel = copied("ended load store")
    function = watch.load(None, kernel, 0)
    made = BoundKernel(kernel, function, 3, {}, torch.device("cpu"), what="call")
    if status == "CUDA_ERROR_INVALID_VALUE":
        with pytest.raises(ScheduleError, match="a dependent launch fails .*INVALID_VALUE"):
            made.start(5)
    else:
        made.start(5)
    assert len(results) == (status == "CUDA_ERROR_INVALID_VALUE")
