"""The block of argument values: each parameter finds its own, also where CTAs share a tile."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import cupy
import numpy as np
import numpy.typing as npt
import pytest
import torch
from cuda.bindings import driver
from litmus.dependents import copied
from product_kernels import GROUPS, compiled, linear, specs

from fuser.codegen import cuda
from fuser.errors import ScheduleError
from fuser.runtime.binding import bind
from fuser.runtime.executable import BoundLaunch
from fuser.runtime.launch import BoundKernel
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.params import Residency

LAUNCH = "fuser.runtime.launch.launcher.launchKernel"
EXTENTS = {"i0": 200, "i1": 128, "i2": 96}


class Launches:
    """What the driver was given, read back while it is valid."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.seen: list[dict[str, int]] = []
        self.grids: list[int] = []

    def __call__(self, function: int, *given: int) -> None:
        """Take the place of `launchKernel`."""
        self.grids.append(given[0])
        pointers = (ctypes.c_uint64 * len(self.names)).from_address(given[8])
        words = [ctypes.c_int64.from_address(at).value for at in pointers]
        self.seen.append(dict(zip(self.names, words, strict=True)))


def bound(params: AmpereParams, monkeypatch: pytest.MonkeyPatch) -> tuple[BoundLaunch, Launches]:
    """A kernel of `linear` without TMA, and who watches its launches."""
    program = compiled(linear(), params)
    (binding,) = bind(program, specs(linear(), EXTENTS), sms=132)
    watch = Launches(cuda.parameters(binding.launch.kernel))
    monkeypatch.setattr(LAUNCH, watch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    function = cast("cupy.cuda.function.Function", SimpleNamespace(ptr=7))
    return BoundLaunch(program, binding, function, torch.device("cpu")), watch


def tensors() -> list[torch.Tensor]:
    """X, weights, bias and the result of `linear`."""
    return [torch.zeros(s, dtype=torch.bfloat16) for s in [(200, 128), (96, 128), (96,), (200, 96)]]


def test_addresses_and_integers_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor and extent where the kernel looks for it; a second call changes addresses."""
    made, watch = bound(GROUPS, monkeypatch)
    for _ in range(2):
        given = tensors()
        made.launch(given, 0)
        seen = watch.seen[-1]
        names = [name for name in seen if name.startswith("T") and "_" not in name]
        assert [seen[name] for name in names] == [t.data_ptr() for t in given]
        low = {name: np.int32(np.uint32(seen[name] & 0xFFFFFFFF)) for name in ("n0", "n1", "n2")}
        assert list(low.values()) == [200, 96, 128]
    assert watch.grids == [12, 12]


def test_ctas_that_share_a_tile_get_scratch_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workspace, semaphores and ticket; the latter two the same in every launch on a stream."""
    made, watch = bound(replace(GROUPS, splits=3), monkeypatch)
    for _ in range(2):
        made.launch(tensors(), 0)
    first, second = watch.seen
    assert watch.grids == [36, 36]
    assert first["splits"] & 0xFFFFFFFF == 3
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
    made, watch = bound(replace(GROUPS, splits=3), monkeypatch)
    made.launch(tensors(), 0)
    zeros(watch.seen[0]["turns"], 12)[0] = 2

    def broken(*given: int) -> None:
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    with monkeypatch.context() as context:
        context.setattr(LAUNCH, broken)
        with (
            pytest.raises(RuntimeError, match="INVALID_VALUE"),
            pytest.warns(RuntimeWarning, match="the next one begins with new semaphores"),
        ):
            made.launch(tensors(), 0)
    made.launch(tensors(), 0)
    assert zeros(watch.seen[-1]["turns"], 12).tolist() == [0] * 12


@pytest.mark.parametrize(("residency", "many"), [("ticket", 3), ("co-resident", 36)])
def test_ctas_that_wait_for_each_other_fit_the_device(
    residency: Residency, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a tile where they draw tickets, else all of the launch: or nothing is launched."""
    room = SimpleNamespace(multi_processor_count=many - 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: room)
    success = driver.CUresult.CUDA_SUCCESS
    asked = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    monkeypatch.setattr(driver, asked, lambda *given: (success, 1))
    params = replace(GROUPS, splits=3, meet="scatter", residency=residency)
    with pytest.raises(ScheduleError, match=f"{many} CTAs must run at once, the device takes"):
        bound(params, monkeypatch)
    room.multi_processor_count = many
    bound(params, monkeypatch)


def test_a_dependent_kernel_may_start_before_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the attribute it would be right, and wait for them; at once with all CTAs it does."""
    seen: list[tuple[int, int, int]] = []

    def launch(how: driver.CUlaunchConfig, *_: object) -> tuple[driver.CUresult]:
        (allowed,) = how.attrs
        assert allowed.id.name.endswith("PROGRAMMATIC_STREAM_SERIALIZATION")
        assert allowed.value.programmaticStreamSerializationAllowed
        seen.append((how.gridDimX, how.blockDimX, int(how.hStream)))
        return (driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    function = cast("cupy.cuda.function.Function", SimpleNamespace(ptr=7))
    kernel = copied("ended load store")
    BoundKernel(kernel, function, 3, {}, torch.device("cpu"), what="call").start(5)
    assert seen == [(3, 64, 5)]
    kernel = replace(kernel, dependent=False)
    monkeypatch.setattr(LAUNCH, lambda *_: seen.clear())
    BoundKernel(kernel, function, 3, {}, torch.device("cpu"), what="call").start(5)
    assert not seen
