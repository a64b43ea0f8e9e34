"""CUDA kernels that others wrote before the judge of PTX: `python -m fuzz.ptx.others FILE.py`.

A file has a function `subjects()` that yields `fuzz.ptx.subjects.Subject`: a kernel's PTX, a launch
of it, and what its values should be.  PTX comes from `nvcc -ptx -arch=sm_90a`, or from `ptx_of`.
With `--sources FOLDER`, those of `fuzz.ptx.foreign` whose checkouts the folder has.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import click
from cuda.bindings import nvrtc
from rich.console import Console

from fuser.errors import CompileError
from fuser.runtime.nvrtc import REFUSED
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command, worst, writing
from fuzz.ptx.foreign import catalogue
from fuzz.ptx.foreign.build import build
from fuzz.ptx.foreign.sources import lacking
from fuzz.ptx.subjects import Row, Subject, judged_row, show
from oracles.verdict import Status

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


def foreign_subjects(
    sources: Path, nvcc: str, only: str, kept: Path
) -> Iterator[tuple[str, Subject | str]]:
    """Yield kernels of `fuzz.ptx.foreign` by name; a text where one cannot be had says why."""
    compiler = shutil.which(nvcc)
    for one in catalogue.kernels():
        if only not in one.name:
            continue
        why = "; ".join(filter(None, (lacking(sources, name) for name in one.needs)))
        if compiler is None:
            why = f"no compiler {nvcc}: --nvcc PATH" + (f"; {why}" if why else "")
        if why:
            yield one.name, why
            continue
        try:
            yield one.name, build(sources, kept, one, str(compiler))
        except CompileError as error:
            yield one.name, str(error)


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with checkouts of the projects that fuzz/ptx/foreign/sources.py names.",
)
@click.option("--nvcc", default="nvcc", show_default=True, help="The CUDA compiler, for --sources.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder where what is built for --sources stays, and is taken from.",
)
@click.option("--only", default="", help="Kernels whose names have this in them.")
@click.option("--mutants/--no-mutants", default=True, help="Also without each synchronisation.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Ask about every n-th mutant only.",
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="File for all findings.")
def main(
    files: tuple[Path, ...],
    sources: Path | None,
    nvcc: str,
    keep: Path | None,
    only: str,
    mutants: bool,
    every: int,
    out: Path | None,
) -> None:
    """Judge kernels of FILES, right and with each synchronisation left out or weakened."""
    if not files and sources is None:
        raise click.UsageError("others: FILE.py... or --sources FOLDER")
    console = Console(width=160)
    given = ((one.name, one) for path in files for one in subjects_of(path) if only in one.name)
    with tempfile.TemporaryDirectory(prefix="foreign_") as passing:
        kept = keep or Path(passing)
        theirs = foreign_subjects(sources, nvcc, only, kept) if sources else ()
        rows, unjudged = _judge(chain(given, theirs), console, mutants, every, out)
    show(rows, console)
    if unjudged:
        console.print(f"not judged: {len(unjudged)}, {', '.join(unjudged)}", markup=False)
    sys.exit(worst([*(_code(row.verdict.status) for row in rows), *(HARNESS for _ in unjudged)]))


def _judge(
    named: Iterable[tuple[str, Subject | str]],
    console: Console,
    mutate: bool,
    every: int,
    out: Path | None,
) -> tuple[list[Row], dict[str, str]]:
    """Judge subjects, writing after each; a text in the place of one says why it is not there."""
    rows, unjudged = list[Row](), dict[str, str]()
    for name, one in named:
        if isinstance(one, str):
            unjudged[name] = one
            console.print(f"{name}: not judged: {one}", markup=False)
        else:
            rows.append(judged_row(one, mutate=mutate, every=every))
            console.print(f"{name}: {rows[-1].says}", markup=False)
        if out:
            whole = {"judged": [row.record() for row in rows], "not judged": unjudged}
            with writing(f"others --json {out}", out, "name another file"):
                out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return rows, unjudged


def _code(status: Status) -> int:
    if status is Status.PASS:
        return CLEAN
    return FAILED if status is Status.FAIL else HARNESS


if __name__ == "__main__":
    main()
