"""Faults planted behind the Kernel IR: in device functions, and in the printed CUDA text.

No judge of the Kernel IR can see one; the judge of PTX has to.  A "memory" clobber that is left out
is none of them: NVRTC 13.0 makes the same PTX of `asm volatile` without it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fuser.errors import CompileError
from fuser.pipeline import Program
from fuser.runtime.nvrtc import DEVICE, compile_ptx
from fuzz.cases.case import Case, compiled
from fuzz.ptx.cases import Planted, judge_case
from oracles.verdict import Status


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of text: in a device header, or, without a file, in what is printed."""

    name: str
    file: str
    old: str
    new: str

    def folder(self, at: Path) -> Path:
        """Write the device headers with the fault to a folder; ValueError if it does not apply."""
        if not self.file:
            return DEVICE
        shutil.copytree(DEVICE, at, dirs_exist_ok=True)
        text = (at / self.file).read_text()
        if self.old not in text:
            raise ValueError(f"Fault({self.name!r}): {self.file} has no {self.old!r}")
        (at / self.file).write_text(text.replace(self.old, self.new, 1))
        return at

    def printed(self, source: str) -> str:
        """Return printed CUDA text with the fault, once, where it applies."""
        if self.file:
            return source
        head, _, body = source.partition('extern "C"')
        return f'{head}extern "C"{body.replace(self.old, self.new, 1)}'


FAULTS = (
    Fault("constant of gelu", "math.cuh", "0.05266661196947098f", "0.05366661196947098f"),
    Fault("constant of exp_roughly", "math.cuh", "1.4426950408889634f", "1.4416950408889634f"),
    Fault("less or equal in lt", "math.cuh", "{ return a < b; }", "{ return a <= b; }"),
    Fault("sub the other way", "math.cuh", "{ return a - b; }", "{ return b - a; }"),
    Fault("minimum drops NaN", "math.cuh", "min.NaN.f32", "min.f32"),
    Fault("maximum is minimum", "math.cuh", "max.NaN.f32", "min.NaN.f32"),
    Fault("halves of a pair swapped", "types.cuh", '(high), "f"(low)', '(low), "f"(high)'),
    Fault("bf16 is cut off", "types.cuh", "cvt.rn.bf16.f32", "cvt.rz.bf16.f32"),
    Fault("no proxy fence", "fence.cuh", "fence.proxy.async.shared::cta;", ""),
    Fault("no barrier", "threads.cuh", "bar.sync %0, %1;", ""),
    Fault("a try for a wait", "mbarrier.cuh", "@!p bra again;", ""),
    Fault("half of the bytes", "mbarrier.cuh", '"r"(nbytes) :', '"r"(nbytes / 2) :'),
    Fault("release is relaxed", "semaphore.cuh", 'st.release." #SCOPE', 'st.relaxed." #SCOPE'),
    Fault("acquire is relaxed", "semaphore.cuh", 'ld.acquire." #SCOPE', 'ld.relaxed." #SCOPE'),
    Fault("stores are not awaited", "tma.cuh", "wait_group.read %0", "wait_group.read 7"),
    Fault("no wgmma fence", "wgmma.cuh", "wgmma.fence.sync.aligned;", ""),
    Fault("no wgmma wait", "wgmma.cuh", "wgmma.wait_group.sync.aligned %0;", ""),
    Fault("descriptor one off", "wgmma.cuh", "/ 16 + block", "/ 16 + 1 + block"),
    Fault("swizzle of another row", "slot.cuh", "line * BYTES / 128", "(line + 1) * BYTES / 128"),
    Fault(
        "shuffle of another lane",
        "reduce.cuh",
        "__shfl_xor_sync(0xffffffffu, x[0]",
        "__shfl_down_sync(0xffffffffu, x[0]",
    ),
    Fault("slot beyond its ring", "math.cuh", "round = slot >= S", "round = slot > S"),
    Fault("a ring's parity stays", "math.cuh", "c.odd ^ round", "c.odd"),
    Fault("one iteration more", "", "; k < ", "; k <= "),
    Fault("one tile more", "", "; int64(n) * ", "; -1 + int64(n) * "),
)
"""Such as a slip of the hand makes."""


def found_by(fault: Fault, cases: list[tuple[Case, Program]], folder: Path) -> int | None:
    """Return the number of the first case that shows a fault; None if none does.

    Cases whose text the fault leaves as it is are not run.
    """
    device = fault.folder(folder)
    planted = Planted(cuda=fault.printed, device=device)
    for number, (case, program) in enumerate(cases):
        if not changes(fault, program, device):
            continue
        judged = judge_case(case, program=program, planted=planted)
        if judged.status is Status.FAIL:
            return number
    return None


def changes(fault: Fault, program: Program, device: Path) -> bool:
    """Tell whether a fault changes the PTX of a program; one that does not compile does not."""
    try:
        return any(
            compile_ptx(fault.printed(one.source), device=device) != compile_ptx(one.source)
            for one in program.launches
        )
    except CompileError:
        return False


def programs(cases: list[Case]) -> list[tuple[Case, Program]]:
    """Return cases with their programs."""
    return [(case, compiled(case)) for case in cases]
