"""NVRTC without a GPU: errors carry the log, the cache survives torn files."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from fuser.errors import CompileError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime import disk, nvrtc
from fuser.runtime.executable import Executable
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case, compiled

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


def test_products_may_stay_apart_from_sums() -> None:
    """Then the text names a rounding for each, and the assembler makes no fma either."""
    sum_of_products = "float* y = (float*)x; y[0] = y[1] * y[2] + y[3] * y[4];"
    source = SOURCE.replace("x[threadIdx.x] = 1;", sum_of_products)
    fused, apart = nvrtc.compile_cubin(source), nvrtc.compile_cubin(source, fused=False)
    assert fused.key != apart.key
    assert fused.image != apart.image
    ptx = nvrtc._compile(source, (*nvrtc.PTX_OPTIONS, nvrtc.APART))[2]
    assert ptx.count("mul.rn.f32") == 2
    assert "fma" not in ptx
    assert "mul.rn" not in nvrtc.compile_ptx(source)


def test_both_are_of_one_compilation() -> None:
    """Of which nothing is kept; the assembler may be told to leave products and sums apart."""
    source = SOURCE.replace(
        "x[threadIdx.x] = 1;",
        """float a = x[0], b = x[1], y;
      asm("mul.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      asm("add.f32 %0, %0, %1;" : "+f"(y) : "f"(b));
      x[2] = y;""",
    )
    cubin, ptx = nvrtc.compile_both(source)
    apart, same = nvrtc.compile_both(source, fused=False)
    assert ptx == same
    assert "mul.f32" in ptx
    assert cubin.key != apart.key
    assert cubin.image != apart.image
    assert not [*disk.cache_dir().glob("*")]


def test_a_torn_file_is_compiled_again() -> None:
    """A kill between write and rename, or a bad disk, must not load garbage."""
    cubin = nvrtc.compile_cubin(SOURCE)
    path = disk.cache_dir() / f"{cubin.key}.cubin"
    path.write_bytes(path.read_bytes()[:-7])
    again = nvrtc.compile_cubin(SOURCE)
    assert not again.cached
    assert again.image == cubin.image


def test_the_cache_is_private_and_forgets_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nights of campaigns must not fill a disk, nor show others what was compiled."""
    monkeypatch.setattr(disk, "LOOK", 1)
    first = nvrtc.compile_cubin(SOURCE)
    folder = disk.cache_dir()
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
    shutil.rmtree(disk.cache_dir())
    nvrtc.compile_cubin(SOURCE)
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.compile_ptx(SOURCE) == alone


NEVER_NEGATIVE = ("exp2", "abs")
"""Whose results the assembler takes to be above any negative number, also where they are NaN."""


def above(op: str) -> Fusion:
    """Whether what is never negative is above a negative number, asked in four ways."""
    fd = FusionDefinition()
    values = getattr(fd.ops, op)(fd.define_tensor(["n"], "f32"))
    for made in (fd.ops.ge(values, -1.5), fd.ops.gt(values, -1.0)):
        fd.add_output(made)
    for made in (fd.ops.le(-1.5, values), fd.ops.lt(-1.0, values)):
        fd.add_output(made)
    return fd.fusion()


@pytest.mark.parametrize("op", NEVER_NEGATIVE)
def test_comparisons_leave_the_assembler_nothing_to_guess(op: str) -> None:
    """Of NaN it guesses wrong; asked whether a number is not below another it does not."""
    params = PointwiseParams((1, 128), 1, 4, None, "direct", "direct")
    (launch,) = compiled(Case(above(op), params, {"n": 128}, "reals", 0)).launches
    asked = re.findall(r"setp\.(\w+)\.f32", nvrtc.compile_ptx(launch.source))
    assert {"ltu", "leu", "gtu", "geu"} <= {*asked}
    assert not {"ge", "gt", "le", "lt"} & {*asked}


@pytest.mark.gpu
@pytest.mark.parametrize("op", NEVER_NEGATIVE)
def test_nan_is_above_nothing(op: str) -> None:
    """A random case on an H100 found that it was."""
    x = torch.tensor([0.0, 1.0, torch.nan], device="cuda")
    for out in Executable(above(op))(x):
        assert out.tolist() == [True, True, False]
