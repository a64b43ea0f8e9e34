"""What was proved is what was printed: each event of the Kernel IR is met in the PTX, in order."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fuser.expr import Var, maximum, minimum
from fuser.kernel import ir as kir
from fuser.pipeline import Program
from fuzz.campaign.mutants import representative
from fuzz.cases.case import Case, compiled
from fuzz.ptx.cases import Planted, judge_case
from fuzz.ptx.refinement import KIND, MOST, refines, value
from oracles.ptx.log import Log
from oracles.verdict import Finding, Status


@cache
def program(family: str) -> tuple[Case, Program]:
    """Return the representative of a family, compiled."""
    case = representative(family)
    return case, compiled(case)


def differences(family: str, pattern: str, new: str) -> list[Finding]:
    """Change PTX once; return how its events differ, where its order is still right."""
    case, made = program(family)
    changed = Planted(ptx=lambda text: re.sub(pattern, new, text, count=1))
    judged = judge_case(case, program=made, planted=changed)
    assert judged.kernels[0].status is Status.PASS, judged
    return [*judged.kernels[1].findings]


@pytest.mark.parametrize(
    ("family", "pattern", "new", "wants", "has"),
    [
        (
            "tma-specialized/tma",
            r"fence\.mbarrier_init[^;]*;",
            "",
            "fence.mbarrier_init",
            "griddepcontrol wait",
        ),
        (
            "tma-pipelined/direct",
            r"bar\.sync[^;]*;",
            "",
            "bar.sync 0 64",
            "mbarrier arrive, expect",
        ),
        ("tma-pipelined/direct", "acquire.cta", "acquire.cluster", "wait cta", "wait cluster"),
        ("tma-pipelined/direct", "(bar.sync[^;]*;)", r"\1 \1", "mbarrier arrive", "bar.sync 0 64"),
        (
            "hopper-cooperative",
            r"mbarrier\.arrive\.release[^;]*;",
            "",
            "mbarrier arrive cta",
            "mbarrier wait",
        ),
        (
            "hopper-cooperative",
            "wgmma.wait_group.sync.aligned 1",
            "wgmma.wait_group.sync.aligned 0",
            "await wgmma 1",
            "await wgmma 0",
        ),
    ],
    ids=["fence dropped", "barrier dropped", "scope", "barrier twice", "arrival", "groups"],
)
def test_a_difference_names_the_lines_of_both(
    family: str, pattern: str, new: str, wants: str, has: str
) -> None:
    """Also where nothing of this launch depends on it."""
    found = differences(family, pattern, new)
    assert 1 <= len(found) <= MOST
    first = found[0]
    assert first.kind == KIND
    assert re.match(r"line \d+ of the kernel `.*`, line \d+ of the PTX$", first.where), first
    assert re.search(f"`[^`]*{wants}[^`]*` is to follow, `[^`]*{has}[^`]*` does", str(first)), first
    assert len(first.lines) == 1


def test_a_thread_that_does_less_or_more_is_found() -> None:
    """At the end of the kernel, or of the PTX."""
    case, made = program("direct/direct")
    (launch,) = made.launches
    kernel = replace(launch.kernel, body=(kir.BlockSync(0, launch.kernel.threads),))
    values = {kir.GRID: 1}
    every = np.arange(kernel.threads)
    none, both = Log(), Log()
    for _ in range(2):
        both.add(every, 7, ("bar.sync", 0, kernel.threads))
    assert "the end of the PTX" in str(refines(kernel, values, none))
    assert "the end of the kernel, line 7 of the PTX" in str(refines(kernel, values, both))
    assert case.params


def test_events_that_hang_on_the_run_are_not_compared() -> None:
    """By name; that is no pass."""
    _, made = program("direct/direct")
    kernel = made.launches[0].kernel
    tile = Var("tile")
    drawing = replace(kernel, body=(kir.Loop(tile, (kir.Leave(tile, 1),)),))
    said = refines(drawing, {kir.GRID: 1}, Log())
    assert (said.status, said.reason) == (
        Status.UNSUPPORTED,
        "refinement: CTAs draw their tiles",
    )


def test_expressions_have_their_values() -> None:
    """Of every kind."""
    n, k = Var("n"), Var("k")
    env = {n: 7, k: 3}
    assert value(n // k + n % k * 10 - 1, env) == 11
    assert value(minimum(n, k), env) * 100 + value(maximum(n, k), env) == 307
