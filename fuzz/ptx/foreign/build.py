"""A kernel of another project -> its PTX, and the launches of its own host code.

nvcc makes both of one driver: PTX for sm_90a, and a program that is linked with `recorder.cpp` in
the place of the CUDA runtime.  Nothing is assembled, and no GPU is asked.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fuser.errors import CompileError
from fuzz.ptx.foreign.recording import launch_of
from fuzz.ptx.subjects import Memory, Subject
from oracles.ptx.launch import Launch
from oracles.ptx.text.grammar import parse

DONE = "done"
RECORDER = Path(__file__).with_name("recorder.cpp")
OPTIONS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-DNDEBUG")
PRELUDE = """
#include <cstddef>
extern "C" void* recorder_named(const char* name, size_t bytes);
extern "C" void recorder_sms(int many);
template <class T> T* named(const char* name, size_t count) {
    return static_cast<T*>(recorder_named(name, count * sizeof(T)));
}
"""
"""Memory of the device by a name, that `fill` may use, and how many SMs host code is told of."""
REFUSED = "the toolkit refuses what the project has at the commit in `sources.py`"

Arrays = Mapping[str, npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a text of the project, which must hold `old` exactly once.

    `path` is from the folder of all checkouts; `why` is a phrase, shown where `old` is not found.
    """

    path: str
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kernel of another project.

    Parameters
    ----------
    name : str
        Its name in the table.
    needs : tuple of str
        Checkouts, keys of `SOURCES`.
    includes : tuple of str
        Folders of headers, from the folder of all checkouts.
    driver : str
        CUDA C++: includes what the project has, and `void drive()`, which calls the project's own
        host code with memory of `named`.
    fill : function
        Takes the bytes of each buffer, fills those that are inputs, and returns what says which
        values a launch has wrong.
    edits : tuple of Edit
        Fewer tiles, or a finding mended.
    options : tuple of str
        More options of nvcc.
    entry : str
        What the name of the kernel holds, where host code launches several.
    """

    name: str
    needs: tuple[str, ...]
    includes: tuple[str, ...]
    driver: str
    fill: Callable[[Arrays], Callable[[Memory], str]]
    edits: tuple[Edit, ...] = ()
    options: tuple[str, ...] = ()
    entry: str = ""


def edited(folder: Path, work: Path, foreign: Foreign) -> list[Path]:
    """Return the folders of headers; those with an edit are copied, and changed there.

    Raises
    ------
    CompileError
        Where a text has not exactly one place for an edit.
    """
    found = []
    for n, include in enumerate(foreign.includes):
        mine = [one for one in foreign.edits if Path(one.path).is_relative_to(include)]
        if not mine:
            found.append(folder / include)
            continue
        copy = work / str(n)
        shutil.copytree(folder / include, copy, symlinks=True)
        for one in mine:
            path = copy / Path(one.path).relative_to(include)
            text = path.read_text(encoding="utf-8")
            if (times := text.count(one.old)) != 1:
                raise CompileError(
                    f"{foreign.name}: {one.path} has {times} places for: {one.why}", REFUSED
                )
            path.write_text(text.replace(one.old, one.new), encoding="utf-8")
        found.append(copy)
    return found


def build(folder: Path, kept: Path, foreign: Foreign, nvcc: str) -> Subject:
    """Compile a kernel, record its launch and fill its memory.

    What was built stays in a folder of `kept`, and is taken from there the next time.

    Raises
    ------
    CompileError
        With the compiler's words, or those of the program that was to launch it.
    """
    work = kept / _key(folder, foreign, nvcc)
    if not (work / DONE).exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        _compile(folder, work, foreign, nvcc)
        (work / DONE).touch()
    text = (work / "driver.ptx").read_text(encoding="utf-8")
    launch = _chosen([launch_of(path) for path in sorted(work.glob("*.launch"))], foreign)
    wrong = foreign.fill({name: one.data for name, one in launch.buffers.items()})
    return Subject(foreign.name, text, launch, wrong)


def _key(folder: Path, foreign: Foreign, nvcc: str) -> str:
    """Return a name for all that a build depends on, but for what the checkouts have."""
    given = (str(folder.resolve()), nvcc, foreign.includes, foreign.driver, foreign.edits)
    asked = repr((*given, foreign.options, OPTIONS, PRELUDE, RECORDER.read_text("utf-8")))
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def _compile(folder: Path, work: Path, foreign: Foreign, nvcc: str) -> None:
    includes = edited(folder, work, foreign)
    source = work / "driver.cu"
    source.write_text(PRELUDE + foreign.driver, encoding="utf-8")
    whole = (nvcc, "-gencode", "arch=compute_90a,code=compute_90a")
    headers = (f"-I{one}" for one in includes)
    compiled = ("-c", "--keep", "--keep-dir", str(work), "-o", str(work / "driver.o"), str(source))
    _run([*whole, *OPTIONS, *foreign.options, *headers, *compiled], foreign)
    _link(nvcc, work, foreign)
    (made,) = work.glob("*.ptx")
    text = made.read_text(encoding="utf-8")
    sizes = [
        f"{one.name} {len(one.params)} {' '.join(str(p.nbytes) for p in one.params)}\n"
        for one in parse(text).functions.values()
        if one.entry
    ]
    (work / "sizes").write_text("".join(sizes), encoding="utf-8")
    _run([str(work / "record"), str(work / "sizes"), str(work)], foreign)
    # nvcc's other leavings are large.
    for path in work.iterdir():
        if path.is_file() and path.suffix != ".launch":
            path.unlink()
    (work / "driver.ptx").write_text(text, encoding="utf-8")


def _link(nvcc: str, work: Path, foreign: Foreign) -> None:
    """Link the program; functions that the recorder does not have end it when they are called."""
    given = [nvcc, "-cudart", "none", "-Xlinker", "--no-demangle", "-o", str(work / "record")]
    given += [str(work / "driver.o"), str(RECORDER)]
    tried = subprocess.run(given, capture_output=True, text=True, check=False)
    absent = sorted(set(re.findall(r"undefined reference to `(\w+)'", tried.stderr)))
    if tried.returncode:
        _run([*given, *(f"-Xlinker=--defsym={one}=recorder_absent" for one in absent)], foreign)


def _run(command: Sequence[str], foreign: Foreign) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        says = (done.stderr or done.stdout).strip()[-4000:]
        raise CompileError(
            f"{foreign.name}: {Path(command[0]).name} ends with {done.returncode}: {says}",
            REFUSED,
            log=says,
        )


def _chosen(launches: list[Launch], foreign: Foreign) -> Launch:
    found = [one for one in launches if foreign.entry in one.entry]
    if len(found) != 1:
        names = ", ".join(one.entry for one in launches) or "nothing"
        raise CompileError(
            f"{foreign.name}: one launch of *{foreign.entry}* wanted, its host code has {names}",
            REFUSED,
        )
    return found[0]
