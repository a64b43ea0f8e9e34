"""Dependent launches: who is one, where it waits, and what the judges say where it does not."""

import re
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

import kernels
import pytest
from fusions import FAMILIES, compiled, row_major

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.passes.launches import await_launches
from fuser.runtime.nvrtc import compile_cubin
from fuzz.campaign.launches import with_trips
from fuzz.campaign.mutants import representative
from fuzz.cases.case import compiled as compiled_case
from fuzz.ptx.cases import Planted, judge_case
from oracles.explorer import explore
from oracles.prover import prove
from oracles.prover.sites import touches
from oracles.simulator import simulate
from oracles.verdict import Status

WAIT = kir.GridDependencyWait()


def first_use(kernel: kir.Kernel) -> int:
    """Return the first statement of the body in which something touches global memory."""
    return next(
        at
        for at, stmt in enumerate(kernel.body)
        if any(touches(one) is not None for one in kir.walk((stmt,)))
    )


@pytest.mark.parametrize("residency", ["any", "ticket", "co-resident"])
def test_who_waits_for_the_launches_before(residency: str) -> None:
    """CTAs that run at once, or draw their numbers, are launched when those before have ended."""
    kernel = replace(kernels.staged(1), residency=residency)
    made = await_launches(kernel)
    if residency == "any":
        assert made == replace(kernel, dependent=True, body=(WAIT, *kernel.body))
    else:
        assert made is kernel


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_waits_behind_the_initialisation_of_its_barriers(family: str) -> None:
    """By all of its threads, once, before anything in global memory is touched."""
    kernel = compiled(FAMILIES[family]).launches[0].kernel
    assert kernel.dependent
    assert sum(stmt == WAIT for stmt in kernel.walk()) == 1
    at = kernel.body.index(WAIT)
    assert at == bool(kernel.barriers)
    assert at < first_use(kernel)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_judge_wants_the_wait(family: str) -> None:
    """They pass the kernel with it, and name what may come too early without."""
    launch = compiled(FAMILIES[family]).launches[0]
    kernel, given = launch.kernel, with_trips(launch, 2)
    without = kernel.rewrite(lambda stmt: [] if stmt == WAIT else None)
    for one, wanted in ((kernel, Status.PASS), (without, Status.FAIL)):
        for verdict in (
            prove.prove(one),
            explore.explore(one, explore.Launch(given.grid, given.params)),
            simulate.search(one, given, schedules=3),
        ):
            assert verdict.status is wanted, verdict
            errors = [f for f in verdict.findings if f.severity == "error"]
            assert {f.kind for f in errors} == ({"dependency"} if errors else set())


@pytest.mark.parametrize("family", ["direct/direct", "norm-cluster/direct", "hopper-ping_pong"])
def test_the_judge_of_ptx_wants_it_too(family: str) -> None:
    """Of the text without the instruction it says what may come too early."""
    case = representative(family)
    program = compiled_case(case)
    assert judge_case(case, program=program).kernels[0].status is Status.PASS
    without = Planted(ptx=lambda text: text.replace("griddepcontrol.wait;", ""))
    judged = judge_case(case, program=program, planted=without).kernels[0]
    assert judged.status is Status.FAIL
    assert {finding.kind for finding in judged.findings} == {"dependency"}


@pytest.mark.parametrize("rows", [1, 3])
def test_kernels_of_a_fusion_wait_for_each_other(rows: int) -> None:
    """Of products behind copies, and sums of few rows, too: all but those that run at once."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    y = fd.ops.linear(fd.ops.relu(x), w)
    fd.add_output(y)
    fd.add_output(fd.ops.sum(y, dims=[0, 1]))
    specs = {"T0": row_major((64 * rows, 259), DType.BF16), "T1": row_major((72, 259), DType.BF16)}
    every = [launch.kernel for launch in compiled(None, fd.fusion(), specs).launches]
    assert len(every) > 1
    for kernel in every:
        assert kernel.dependent == (kernel.residency == "any"), kernel.name


GLOBAL = re.compile(
    r"\b(LDG|STG|LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UBLKCP|UTMALDG|UTMASTG|UTMAREDG)\b"
)
"""Instructions of the hardware that touch global memory."""


def machine_code(source: str) -> list[str]:
    """Return the instructions that the assembler makes of a kernel, in order.

    `nvdisasm` is Triton's, which torch asks for.
    """
    found = find_spec("triton")
    assert found is not None
    assert found.origin is not None
    tool = Path(found.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compile_cubin(source).image)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", done.stdout)


@pytest.mark.parametrize("shape", [(64, 128, 256), (3, 512, 512), (17, 64, 75), (300, 256, 4096)])
def test_the_assembler_moves_no_access_before_the_wait(shape: tuple[int, int, int]) -> None:
    """Of tensors that a kernel only reads it may: they count as constant while the kernel runs.

    What reads them comes from products, sums of few rows, copies and operands read by threads.
    """
    rows, cols, depth = shape
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    fd.add_output(fd.ops.softmax(fd.ops.linear(x, w, bias), dims=[-1]))
    specs = {
        "T0": row_major((rows, depth), DType.BF16),
        "T1": row_major((cols, depth), DType.BF16),
        "T2": row_major((cols,), DType.BF16),
    }
    waited = 0
    for launch in compiled(None, fd.fusion(), specs).launches:
        code = machine_code(launch.source)
        waits = [n for n, line in enumerate(code) if "ACQBULK" in line]
        assert bool(waits) == launch.kernel.dependent, launch.kernel.name
        touches = [n for n, line in enumerate(code) if GLOBAL.search(line)]
        assert touches
        if waits:
            waited += 1
            assert waits[0] < touches[0], code[touches[0]]
    assert waited
