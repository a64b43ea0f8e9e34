"""Delays in CUDA text: at every sync, none lost, and the text still compiles."""

from __future__ import annotations

import re

import pytest

from fuser.codegen import cuda
from fuser.runtime.nvrtc import compile_cubin
from fuzz.kernels.semaphores import BASES, semaphore_mutant
from fuzz.kernels.subjects import find
from fuzz.semaphores.delays import COPY_NBYTES, LAUNCH, delayed

ADDED = re.compile(r"\s*delay::(sleep|occupy)\(")


def texts(key: str) -> tuple[str, str]:
    """The CUDA text of a semaphore mutant, without delays and with them."""
    kernel = semaphore_mutant(key).kernel
    plain = cuda.source(kernel)
    return plain, delayed(plain, cuda.shared_bytes(kernel))


def body(source: str) -> list[str]:
    """The lines behind the parameters."""
    return source[source.index("\n) {\n") :].splitlines()[1:]


@pytest.mark.parametrize("base", BASES)
def test_the_kernel_is_the_same_but_for_delays(base: str) -> None:
    """Without them the body is what was printed, and one parameter more."""
    plain, late = texts(f"{base}/control")
    assert [line for line in body(late) if not ADDED.match(line)] == body(plain)
    assert f",\n    const uint32 {LAUNCH}\n) {{\n" in late
    numbers = re.findall(r"delay::sleep\(fuser_launch, (\d+)\)", late)
    assert len(set(numbers)) == len(numbers) >= 16


def test_engines_are_busy_before_each_copy_of_the_kernel() -> None:
    """By the thread that issues it, in the same group."""
    lines = texts("split_k_tma/control")[1].splitlines()
    copies = [n for n, line in enumerate(lines) if re.match(r" +tma::(store|reduce)\(", line)]
    assert len(copies) == 2
    assert all("delay::occupy" in lines[n - 1] for n in copies)


@pytest.mark.parametrize(
    "pattern",
    ["semaphore::wait_gpu", "semaphore::release_gpu", "tma::commit", "tma::await<0>"],
)
def test_threads_sleep_on_both_sides_of_what_gives_a_turn_on(pattern: str) -> None:
    """Whoever should have waited comes early then."""
    lines = [line.strip() for line in texts("split_k_tma/control")[1].splitlines()]
    at = [n for n, line in enumerate(lines) if line.startswith(pattern)]
    assert at
    for n in at:
        assert lines[n - 1].startswith("delay::sleep")
        assert lines[n + 1].startswith("delay::sleep")


def test_accesses_of_the_workspace_are_delayed() -> None:
    """The stores of a split product are what a barrier has to collect."""
    lines = [line.strip() for line in texts("split_k/control")[1].splitlines()]
    stores = [n for n, line in enumerate(lines) if line.startswith("tile::store<")]
    assert len(stores) == 2
    assert all(lines[n - 1].startswith("delay::sleep") for n in stores)


@pytest.mark.parametrize("base", BASES)
def test_a_copy_that_keeps_the_engine_busy_fits_into_shared_memory(base: str) -> None:
    """It reads from the start of it."""
    assert cuda.shared_bytes(semaphore_mutant(f"{base}/control").kernel) >= COPY_NBYTES


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
    assert "warning" not in compile_cubin(texts(key)[1]).log


@pytest.mark.parametrize("text", ["", "int x;", 'extern "C" __global__ void k(\n) {\n}\n'])
def test_a_text_without_a_place_for_delays_is_refused(text: str) -> None:
    """A run without delays must not count as one with them."""
    with pytest.raises(ValueError, match=r"delayed\(source\): no "):
        delayed(text, 4096)


@pytest.mark.parametrize(
    "name", ["template 0 1", "template 0 5", "template 0 9", "matmul ampere_groups 0"]
)
def test_a_kernel_without_a_semaphore_is_delayed_at_every_sync(name: str) -> None:
    """Where CTAs do not wait for each other, warps do; shared memory may be small."""
    kernel = find(name).base
    late = delayed(cuda.source(kernel), cuda.shared_bytes(kernel))
    lines = [line.strip() for line in late.splitlines()]
    syncs = [n for n, line in enumerate(lines) if re.match("mbarrier::wait|cp_async::await", line)]
    assert syncs
    assert all(lines[n - 1].startswith("delay::sleep") for n in syncs)
    assert "warning" not in compile_cubin(late).log


def test_a_copy_that_keeps_the_engine_busy_stays_inside_small_shared_memory() -> None:
    """Bytes beyond it are an error of the hardware, and would be held against the kernel."""
    kernel = find("template 0 4").base
    assert 256 <= cuda.shared_bytes(kernel) < COPY_NBYTES
    late = delayed(cuda.source(kernel), cuda.shared_bytes(kernel))
    (nbytes,) = re.findall(r'"r"\(source\), "r"\((\d+)\)', late)
    assert 16 <= int(nbytes) <= cuda.shared_bytes(kernel)
    assert "warning" not in compile_cubin(late).log
