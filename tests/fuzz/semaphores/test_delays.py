"""Delays in CUDA text: at every sync, none lost, and the text still compiles."""

from __future__ import annotations

import re

import pytest

from fuser.codegen import cuda
from fuser.runtime.nvrtc import compile_cubin
from fuzz.semaphores.delays import COPY_NBYTES, LAUNCH, delayed
from fuzz.semaphores.family import BASES, kernel_of, member

ADDED = re.compile(r"\s*delay::(sleep|occupy)\(")


def body(source: str) -> list[str]:
    """The lines behind the parameters."""
    return source[source.index("\n) {\n") :].splitlines()[1:]


@pytest.mark.parametrize("base", BASES)
def test_the_kernel_is_the_same_but_for_delays(base: str) -> None:
    """Without them the body is what was printed, and one parameter more."""
    plain = cuda.source(kernel_of(base))
    late = delayed(plain)
    assert [line for line in body(late) if not ADDED.match(line)] == body(plain)
    assert f",\n    const uint32 {LAUNCH}\n) {{\n" in late
    numbers = re.findall(r"delay::sleep\(fuser_launch, (\d+)\)", late)
    assert len(set(numbers)) == len(numbers) >= 16


def test_engines_are_busy_before_each_copy_of_the_kernel() -> None:
    """By the thread that issues it, in the same group."""
    lines = delayed(cuda.source(kernel_of("split_k_tma"))).splitlines()
    copies = [n for n, line in enumerate(lines) if re.match(r" +tma::(store|reduce)\(", line)]
    assert len(copies) == 2
    assert all("delay::occupy" in lines[n - 1] for n in copies)


@pytest.mark.parametrize(
    "pattern",
    ["semaphore::wait_gpu", "semaphore::release_gpu", "tma::commit", "tma::await<0>"],
)
def test_threads_sleep_on_both_sides_of_what_gives_a_turn_on(pattern: str) -> None:
    """Whoever should have waited comes early then."""
    lines = [line.strip() for line in delayed(cuda.source(kernel_of("split_k_tma"))).splitlines()]
    at = [n for n, line in enumerate(lines) if line.startswith(pattern)]
    assert at
    for n in at:
        assert lines[n - 1].startswith("delay::sleep")
        assert lines[n + 1].startswith("delay::sleep")


def test_accesses_of_the_workspace_are_delayed() -> None:
    """The stores of a split product are what a barrier has to collect."""
    lines = [line.strip() for line in delayed(cuda.source(kernel_of("split_k"))).splitlines()]
    stores = [n for n, line in enumerate(lines) if line.startswith("tile::store<")]
    assert len(stores) == 2
    assert all(lines[n - 1].startswith("delay::sleep") for n in stores)


@pytest.mark.parametrize("base", BASES)
def test_a_copy_that_keeps_the_engine_busy_fits_into_shared_memory(base: str) -> None:
    """It reads from the start of it."""
    assert cuda.shared_bytes(kernel_of(base)) >= COPY_NBYTES


@pytest.mark.parametrize(
    "key",
    [
        *(f"{base}/control" for base in BASES),
        "split_k_tma/await-by-another-thread",
        "split_k_tma/issued-by-a-whole-warp",
    ],
)
def test_a_text_with_delays_compiles(key: str) -> None:
    """For sm_90a, by NVRTC, without a warning; inside roles, too."""
    assert "warning" not in compile_cubin(delayed(cuda.source(member(key).kernel))).log


@pytest.mark.parametrize("text", ["", "int x;", 'extern "C" __global__ void k(\n) {\n}\n'])
def test_a_text_without_a_place_for_delays_is_refused(text: str) -> None:
    """A run without delays must not count as one with them."""
    with pytest.raises(ValueError, match=r"delayed\(source\): no "):
        delayed(text)
