"""NVRTC without a GPU: errors carry the log, the cache survives torn files."""

import shutil
from pathlib import Path

import pytest

from fuser.errors import CompileError
from fuser.runtime import nvrtc

SOURCE = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }'


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path / "cache"))


def test_a_second_compile_comes_from_the_disk_with_its_log() -> None:
    """The log is a judge's evidence, so it is cached with the cubin."""
    first, second = nvrtc.compile_cubin(SOURCE), nvrtc.compile_cubin(SOURCE)
    assert (first.cached, second.cached) == (False, True)
    assert (first.image, first.log) == (second.image, second.log)
    assert "Used" in second.log


def test_options_and_headers_are_part_of_the_key() -> None:
    """A poisoned build is another cubin."""
    assert nvrtc.compile_cubin(SOURCE).key != nvrtc.compile_cubin(SOURCE, defines=("X",)).key


def test_a_torn_file_is_compiled_again() -> None:
    """A kill between write and rename, or a bad disk, must not load garbage."""
    cubin = nvrtc.compile_cubin(SOURCE)
    path = nvrtc.cache_dir() / f"{cubin.key}.cubin"
    path.write_bytes(path.read_bytes()[:-7])
    again = nvrtc.compile_cubin(SOURCE)
    assert not again.cached
    assert again.image == cubin.image


def test_the_cache_is_private_and_forgets_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nights of campaigns must not fill a disk, nor show others what was compiled."""
    monkeypatch.setattr(nvrtc, "_LOOK", 1)
    first = nvrtc.compile_cubin(SOURCE)
    folder = nvrtc.cache_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"{first.key}.cubin").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(nvrtc, "CACHE_BYTES", 100)
    second = nvrtc.compile_cubin(SOURCE, defines=("X",))
    assert [path.stem for path in folder.iterdir()] == [second.key]


def test_an_unwritable_cache_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs time, not results."""
    monkeypatch.setenv("FUSER_CACHE", "/proc/nowhere")
    assert nvrtc.compile_cubin(SOURCE).image


def test_a_refused_text_carries_source_and_log() -> None:
    """The message names the first error and the dump that shows the text."""
    with pytest.raises(CompileError, match=r"identifier .nope. is undefined; FUSER_DUMP=cuda") as e:
        nvrtc.compile_cubin("__global__ void k() { nope; }")
    assert "nope" in e.value.source
    assert "nope" in e.value.log


def test_ptx_is_cached_and_follows_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed device functions make another text; the same ones the same, without NVRTC."""
    source = '#include "fence.cuh"\nextern "C" __global__ void k() { fence::thread_gpu(); }\n'
    text = nvrtc.compile_ptx(source)
    assert "fence.acq_rel.gpu;" in text
    assert len([*(tmp_path / "cache").glob("*.ptx")]) == 1
    shutil.copytree(nvrtc.DEVICE, tmp_path / "device")
    header = tmp_path / "device" / "fence.cuh"
    header.write_text(header.read_text().replace("acq_rel.gpu", "acq_rel.cta"))
    assert "fence.acq_rel.cta;" in nvrtc.compile_ptx(source, device=tmp_path / "device")
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.compile_ptx(source) == text


def test_the_assembler_leaves_the_ptx_that_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign asks for both, and NVRTC is asked once."""
    alone = nvrtc.compile_ptx(SOURCE)
    shutil.rmtree(nvrtc.cache_dir())
    nvrtc.compile_cubin(SOURCE)
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.compile_ptx(SOURCE) == alone
