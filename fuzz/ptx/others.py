"""CUDA kernels that others wrote before the judge of PTX: `python -m fuzz.ptx.others FILE.py`.

A file has a function `subjects()` that yields `fuzz.ptx.subjects.Subject`: a kernel's PTX, a launch
of it, and what its values should be.  PTX comes from `nvcc -ptx -arch=sm_90a`, or from `ptx_of`.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from cuda.bindings import nvrtc
from rich.console import Console

from fuser.errors import CompileError
from fuser.runtime.nvrtc import REFUSED
from fuzz.exit_code import CLEAN, FAILED, Command
from fuzz.ptx.subjects import Subject, table

OPTIONS = ("--gpu-architecture=compute_90a", "--std=c++17", "-default-device", "--no-cache")


def ptx_of(
    path: Path,
    *,
    include: Sequence[Path] = (),
    options: Sequence[str] = (),
    names: Sequence[str] = (),
) -> str:
    """Return the PTX of a CUDA file for sm_90a, by NVRTC, which needs no GPU.

    Parameters
    ----------
    path : Path
        CUDA C++; host code in it needs `#ifndef __CUDACC_RTC__` around it.
    include : sequence of Path
        Folders of headers: those of CUDA itself come with the wheels `nvidia-cuda-runtime` and
        `nvidia-cuda-cccl`.
    options : sequence of str
        More options of NVRTC, such as ``-DNDEBUG``.
    names : sequence of str
        Expressions that name kernels, so that templates have an instance: ``"scale<float, 4>"``.

    Raises
    ------
    CompileError
        With NVRTC's log, where it refuses the text.
    """
    source = path.read_bytes()
    error, program = nvrtc.nvrtcCreateProgram(source, path.name.encode(), 0, [], [])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC made no program: {error.name}", REFUSED)
    try:
        for name in names:
            nvrtc.nvrtcAddNameExpression(program, name.encode())
        given = [*OPTIONS, f"--include-path={path.parent}"]
        given += [*(f"--include-path={folder}" for folder in include), *options]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(given), [one.encode() for one in given])
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = bytearray(size)
            nvrtc.nvrtcGetProgramLog(program, log)
            says = bytes(log).rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"NVRTC refused {path}:\n{says}", REFUSED, log=says)
        _, size = nvrtc.nvrtcGetPTXSize(program)
        text = bytearray(size)
        nvrtc.nvrtcGetPTX(program, text)
        return bytes(text).rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def subjects_of(path: Path) -> Iterator[Subject]:
    """Yield what a file has; UsageError if it has no function `subjects`."""
    made = runpy.run_path(str(path)).get("subjects")
    if made is None:
        raise click.UsageError(f"{path} has no function subjects(); it yields fuzz.ptx.subjects")
    yield from made()


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Kernels whose names have this in them.")
@click.option("--mutate/--no-mutate", default=True, help="Also without each synchronisation.")
def main(files: tuple[Path, ...], only: str, mutate: bool) -> None:
    """Judge kernels of FILES, right and with each synchronisation left out or weakened."""
    console = Console(width=160)
    chosen = (one for path in files for one in subjects_of(path) if only in one.name)
    good = table(chosen, console, mutate=mutate)
    sys.exit(CLEAN if good else FAILED)


if __name__ == "__main__":
    main()
