"""CUDA C++ -> cubin and log, by NVRTC, cached on disk; needs neither a GPU nor a driver.

Source: NVRTC documentation, "Basic usage"; PTX ISA for sm_90a.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cuda.bindings import nvrtc

from fuser.errors import CompileError
from fuser.runtime.disk import cache_dir, read, write

OPTIONS = (
    "--gpu-architecture=sm_90a",
    "--std=c++17",
    "-default-device",
    "--minimal",
    "--ptxas-options=-v",
    "--ptxas-options=--warn-on-spills",
    "--no-cache",
)
"""`-v` puts registers and spills into the log; `--no-cache` keeps the log on a repeated compile.
`--minimal` leaves out declarations that no kernel here has use for (textures, surfaces, launches
from kernels): 7 ms less, the same machine code."""

PTX_OPTIONS = ("--gpu-architecture=compute_90a", *OPTIONS[1:4], "--no-cache")
"""For the text alone: the assembler, more than half of the time, is left out."""

APART = "--fmad=false"
"""Which of two products of a sum goes into an fma depends on what stands around it; with this
option none does.  Source: NVRTC documentation, "--fmad"."""

REFUSED = "refused by NVRTC"
"""Kind of the `CompileError` here."""

CACHE_BYTES = 1 << 30
"""What the cache may hold: some 50,000 kernels as campaigns draw them."""

DEVICE = Path(__file__).parents[1] / "device"


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel: machine code for sm_90a, the assembler's log, and what made it."""

    image: bytes
    log: str
    key: str
    cached: bool


def compile_cubin(source: str, *, defines: tuple[str, ...] = (), fused: bool = True) -> Cubin:
    """Compile CUDA C++ that includes `fuser/device/*.cuh` to a cubin.

    Macros to define are such as ``FUSER_POISON_SMEM``.  Unless `fused` the compiler makes no fma of
    what the text multiplies and adds apart.  CompileError with source and log, where NVRTC refuses
    the text; that is ours to fix.
    """
    options = (*OPTIONS, *(f"-D{name}" for name in defines), *(() if fused else (APART,)))
    key = _key(source, options)
    path = cache_dir() / f"{key}.cubin"
    found = read(path)
    if found is not None:
        return Cubin(found[0], found[1], key, cached=True)
    image, log, ptx = _compile(source, options)
    _keep(path, image, log)
    if fused and not defines:  # the same text as of `compile_ptx`, which need not compile again
        _keep(_ptx_path(source, DEVICE), ptx.encode(), "")
    return Cubin(image, log, key, cached=False)


def compile_both(source: str, *, fused: bool = True) -> tuple[Cubin, str]:
    """Compile to a cubin and the PTX that it was assembled from; nothing is cached.

    Unless `fused` the assembler makes no fma of what the text multiplies and adds apart, which it
    may where the text names no rounding; unlike with `APART`, the text stays.  Source: PTX ISA,
    "add", "mul" (default rounding).
    """
    options = OPTIONS if fused else (*OPTIONS, "--ptxas-options=--fmad=false")
    image, log, ptx = _compile(source, options)
    return Cubin(image, log, _key(source, options), cached=False), ptx


def compile_ptx(source: str, *, device: Path = DEVICE) -> str:
    """Return the PTX of CUDA C++ that includes `fuser/device/*.cuh`; CompileError as above.

    `device` is the folder of the headers: another one where they were changed on purpose.
    """
    path = _ptx_path(source, device)
    found = read(path)
    if found is not None:
        return found[0].decode()
    _, log, ptx = _compile(source, PTX_OPTIONS, device)
    _keep(path, ptx.encode(), log)
    return ptx


def _ptx_path(source: str, device: Path) -> Path:
    return cache_dir() / f"{_key(source, PTX_OPTIONS, device)}.ptx"


def _keep(path: Path, content: bytes, log: str) -> None:
    write(path, content, log, most=CACHE_BYTES, among=(".cubin", ".ptx"))


@cache
def version() -> str:
    """Version of NVRTC, such as ``13.0``."""
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


@cache
def _headers(device: Path) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((p.name.encode(), p.read_bytes()) for p in sorted(device.glob("*.cuh")))


def _key(source: str, options: tuple[str, ...], device: Path = DEVICE) -> str:
    digest = hashlib.sha256()
    for name, content in _headers(device):
        digest.update(name + b"\0" + content + b"\0")
    digest.update("\0".join((source, *options, version())).encode())
    return digest.hexdigest()[:32]


def _compile(
    source: str, options: tuple[str, ...], device: Path = DEVICE
) -> tuple[bytes, str, str]:
    """Return cubin, log and PTX."""
    headers = _headers(device)
    error, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        b"kernel.cu",
        len(headers),
        [content for _, content in headers],
        [name for name, _ in headers],
    )
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC made no program: {error.name}", REFUSED, source=source)
    try:
        (error,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        buffer = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, buffer)
        log = bytes(buffer).rstrip(b"\0").decode(errors="replace")
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            first = next((line for line in log.splitlines() if "error" in line), error.name)
            raise CompileError(
                f"NVRTC refused the kernel: {first}; FUSER_DUMP=cuda shows the source",
                REFUSED,
                source=source,
                log=log,
            )
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        image = bytearray(size)
        if size:
            nvrtc.nvrtcGetCUBIN(program, image)
        _, size = nvrtc.nvrtcGetPTXSize(program)
        ptx = bytearray(size)
        nvrtc.nvrtcGetPTX(program, ptx)
        return bytes(image), log, ptx.rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)
