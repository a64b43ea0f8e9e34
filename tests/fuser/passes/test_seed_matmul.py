"""Where the passes wait for products: one flush before the first use, and groups kept in flight.

After "Use a single wgmma wait_group to flush async wgmma pipeline" and "Enable MmaOp to receive
unbroadcasted inputs".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from conftest import Golden
from sample import some
from seed_products import (
    chain,
    one_branch,
    one_step,
    side_by_side,
    two_alone,
    two_loops,
)

from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.passes.effects import accumulates, fragments
from fuser.schedule.matmul_params import Split
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import MATMULS, compiled, hopper, launch
from fuzz.mutation.operators import Mutant, mutants
from oracles.explorer import explore
from oracles.prover import prove
from oracles.simulator import simulate
from oracles.verdict import Status, Verdict

WGMMA = kir.AsyncKind.WGMMA
FLUSH, COMMIT = kir.AsyncAwait(WGMMA, 0), kir.AsyncCommit(WGMMA)
SCHEDULES = 24
"""Schedules of the simulator that have to find a failure; right kernels run six."""
PERSISTENT = hopper("cooperative", 3, 1, persistent=True)

CONTENT = {judge: {Status.PASS} for judge in ("prover", "explorer", "simulator")}
"""What every judge says of a right kernel, in all launches."""

Given = Mapping[str, int]


def persistent() -> kir.Kernel:
    """Return a kernel of the compiler whose CTAs take tiles in turn."""
    return compiled(linear(bias=False), PERSISTENT)


def depths(*names: str) -> list[Given]:
    """Return launches of more steps than slots, of fewer and of one."""
    return [dict.fromkeys(names, 16 * steps) for steps in (5, 2, 1)]


CASES: dict[str, tuple[Callable[[], kir.Kernel], list[Given], int]] = {
    "two products alone": (two_alone, [{}], 2),
    "two loops": (two_loops, depths("D", "E"), 2),
    "side by side in one loop": (side_by_side, depths("D"), 1),
    "a chain of operations": (chain, depths("D"), 1),
    "one step without a loop": (one_step, [{}], 1),
    "used in one branch": (one_branch, [{"V": 0}, {"V": 1}], 2),
    "persistent": (
        persistent,
        [launch(persistent(), PERSISTENT, tiles, k)[1] for tiles, k in ((3, 4), (2, 1), (1, 5))],
        1,
    ),
}
"""Kernel, launches of one CTA, and how many flushes it has."""
HARMLESS = {
    "used in one branch": "swap line 21: if (1 <= V) with `async_await(wgmma, keep=0)`",
}
"""A flush may stand before the branches, but then the one that has no use for it waits as well."""


def judged(kernel: kir.Kernel, given: list[Given], schedules: int) -> dict[str, set[Status]]:
    """Ask every judge about a kernel, those that need one about every launch."""
    runs: dict[str, list[Verdict]] = {"prover": [prove.prove(kernel)]}
    runs["explorer"] = [explore.explore(kernel, explore.Launch(1, one)) for one in given]
    runs["simulator"] = []
    for one in given:
        verdict = simulate.search(kernel, simulate.Launch(1, one), schedules=schedules)
        runs["simulator"].append(verdict)
        if verdict.status is Status.FAIL:
            break
    return {name: {verdict.status for verdict in verdicts} for name, verdicts in runs.items()}


def about_waits(kernel: kir.Kernel) -> list[Mutant]:
    """Return the kernels that lack a wait for wgmma, wait for less, or wait at another place."""
    some = (m for operator in ("drop", "weaken", "swap") for m in mutants(kernel, operator))
    return [m for m in some if "async_await(wgmma" in m.change]


def flushes(body: tuple[kir.Stmt, ...]) -> int:
    """Count the waits for all groups that stand outside of loops that multiply."""
    inner = [
        stmt
        for loop in kir.walk(body)
        if isinstance(loop, kir.ForLoop) and any(map(accumulates, loop.body))
        for stmt in kir.walk(loop.body)
    ]
    return sum(s == FLUSH for s in kir.walk(body)) - sum(s == FLUSH for s in inner)


def straight(body: tuple[kir.Stmt, ...]) -> list[kir.Stmt]:
    """Return a body in program order, an `if` as its first branch."""
    out: list[kir.Stmt] = []
    for stmt in body:
        out.append(stmt)
        match stmt:
            case kir.IfThenElse(_, then):
                out += straight(then)
            case _:
                for inner in kir.bodies(stmt):
                    out += straight(inner)
    return out


# --- the flush ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_where_the_waits_stand(name: str, golden: Golden) -> None:
    """For a reader; a change of it must say why."""
    kernel = CASES[name][0]()
    validate(kernel, final=True)
    golden.check(text(kernel))


@pytest.mark.parametrize("name", CASES)
def test_one_flush_serves_until_the_next_product(name: str) -> None:
    """It stands right before the first use, and a second one only behind another wgmma."""
    build, _, expected = CASES[name]
    kernel = build()
    assert flushes(kernel.body) == expected
    running: set[str] = set()
    used = 0
    for stmt in straight(kernel.body):
        match stmt:
            case kir.Wgmma(acc):
                running.add(acc.name)
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                assert running or name == "used in one branch", "nothing to wait for"
                running.clear()
            case _:
                assert not fragments(stmt) & running, f"{stmt} uses what may not be done"
                used += bool(fragments(stmt))
    assert used
    assert not running


@pytest.mark.parametrize("name", CASES)
def test_a_flush_has_no_commit_of_its_own(name: str) -> None:
    """Groups are closed behind their last wgmma; an empty group would be one more to count."""
    kernel = CASES[name][0]()
    commits = 0
    for body in [kernel.body, *(inner for stmt in kernel.walk() for inner in kir.bodies(stmt))]:
        for before, stmt in pairwise(body):
            if stmt == COMMIT:
                assert accumulates(before)
                commits += 1
    groups = {"two products alone": 2, "two loops": 2}
    assert commits == sum(s == COMMIT for s in kernel.walk()) == groups.get(name, 1)


def test_products_side_by_side_are_one_group() -> None:
    """One fence, two wgmmas, one commit; a wait between them would stall the tensor cores."""
    (loop,) = [
        s for s in side_by_side().walk() if isinstance(s, kir.ForLoop) and s.index.name == "k"
    ]
    words = " ".join(type(stmt).__name__ for stmt in loop.body)
    assert words.count("WgmmaFence Wgmma Wgmma AsyncCommit") == words.count("AsyncCommit") == 1


@pytest.mark.parametrize("name", CASES)
def test_every_judge_passes_the_kernel(name: str) -> None:
    """In every launch; the prover in all there are."""
    build, given, _ = CASES[name]
    assert judged(build(), given, 6) == CONTENT


@pytest.mark.parametrize("name", some(tuple(CASES), *[*CASES][::2]))
def test_every_judge_refutes_a_wait_that_is_missing_weaker_or_elsewhere(name: str) -> None:
    """Each wait is needed as it is and where it is."""
    build, given, flushes_ = CASES[name]
    kernel = build()
    changed = about_waits(kernel)
    waits = sum(isinstance(s, kir.AsyncAwait) and s.kind is WGMMA for s in kernel.walk())
    assert len([m for m in changed if m.operator == "drop"]) == waits >= flushes_
    assert len(changed) >= 3 * waits - 1
    for mutant in changed:
        said = judged(mutant.kernel, given, SCHEDULES)
        if mutant.change == HARMLESS.get(name):
            assert said == CONTENT, mutant.change
        else:
            assert all(Status.FAIL in found for found in said.values()), (mutant.change, said)


# --- groups in flight ---------------------------------------------------------------------------

RINGS = [(stages, ahead) for stages in (1, 2, 3, 4) for ahead in range(stages)]


def kept(kernel: kir.Kernel) -> tuple[set[int], set[int]]:
    """Return how many groups stay in flight: by waits in loops that multiply, and elsewhere."""
    inside: list[kir.AsyncAwait] = []
    for loop in kernel.walk():
        if isinstance(loop, kir.ForLoop) and any(map(accumulates, loop.body)):
            inside += [s for s in loop.body if isinstance(s, kir.AsyncAwait) and s.kind is WGMMA]
    everywhere = [s for s in kernel.walk() if isinstance(s, kir.AsyncAwait) and s.kind is WGMMA]
    others = [s for s in everywhere if not any(s is one for one in inside)]
    return {s.keep for s in inside}, {s.keep for s in others}


@pytest.mark.parametrize("split", ["pipelined", "cooperative", "ping_pong"])
def test_as_many_groups_stay_in_flight_as_the_ring_has_room_for(split: Split) -> None:
    """`stages - prefetch - 1`, whoever loads; only where some stay is there more to flush."""
    for stages, ahead in RINGS:
        kernel = compiled(linear(), hopper(split, stages, ahead))
        depth = stages - ahead - 1
        assert kept(kernel) == ({depth}, {0} if depth else set())


@pytest.mark.parametrize("split", ["pipelined", "cooperative", "ping_pong"])
@pytest.mark.parametrize("ring", [(2, 1), (3, 1)])
def test_one_more_group_in_flight_would_be_too_many(split: Split, ring: tuple[int, int]) -> None:
    """So the number is the largest safe one: a copy would land under a wgmma."""
    params = hopper(split, *ring)
    kernel = compiled(linear(), params)
    (keep,) = kept(kernel)[0]
    changed = [m for m in mutants(kernel, "weaken") if f"(wgmma, keep={keep})" in m.change]
    assert changed
    grid, given = launch(kernel, params, 2 if params.persistent else 1, 4)
    for mutant in changed:
        proof = prove.prove(mutant.kernel)
        assert proof.status is Status.FAIL, mutant.change
        seen = explore.explore(mutant.kernel, explore.Launch(grid, given))
        assert seen.status is Status.FAIL, mutant.change


# --- operands without broadcasts ----------------------------------------------------------------


def by_mapping() -> Fusion:
    """`a[M, K] @ b[K, N]`, each output axis mapped to the operands' axes."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    y = fd.ops.fused_multiply_sum(a, b, axis_mapping=((0, -1, 1), (-1, 1, 0)))
    fd.add_output(fd.ops.cast(y, dtype="bf16"))
    return fd.fusion()


def by_matmul() -> Fusion:
    """Return the same as `matmul`."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b))
    return fd.fusion()


def by_broadcasts() -> Fusion:
    """Return the same in the older form: operands of equal rank, lined up."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    rows = fd.ops.broadcast(a, [False, True, False])
    columns = fd.ops.broadcast(fd.ops.permute(b, dims=[1, 0]), [True, False, False])
    y = fd.ops.fused_multiply_sum(rows, columns, axes=[-1])
    fd.add_output(fd.ops.cast(y, dtype="bf16"))
    return fd.fusion()


@pytest.mark.parametrize("make", [by_mapping, by_matmul])
def test_a_product_takes_its_operands_as_they_lie_in_memory(make: Callable[[], Fusion]) -> None:
    """No broadcast stands between memory and the product, and each axis has one role."""
    fusion = make()
    assert "broadcast" not in {tv.op for tv in fusion.tensors}
    (product,) = [tv for tv in fusion.tensors if tv.op == "mma"]
    assert [arg.op for arg in product.args if isinstance(arg, TensorView)] == ["input", "input"]
    found = [(axis.role, axis.a, axis.b, axis.result) for axis in roles(product)]
    assert found == [(AxisRole.M, 0, None, 0), (AxisRole.N, None, 1, 1), (AxisRole.K, 1, 0, None)]


@pytest.mark.parametrize("split", ["pipelined", "cooperative", "ping_pong"])
def test_each_operand_is_copied_once_a_step_by_tma_and_read_by_nobody_else(split: Split) -> None:
    """A broadcast would have been a trip through registers."""
    kernel = compiled(by_mapping(), hopper(split, 2, 0))
    loads = [stmt.src.tensor.name for stmt in kernel.walk() if isinstance(stmt, kir.TmaLoad)]
    assert sorted(loads) == ["T0", "T1"]
    assert not [s for s in kernel.walk() if isinstance(s, kir.Load | kir.CpAsync | kir.Slice)]


def test_all_ways_to_write_a_product_make_one_kernel() -> None:
    """Broadcasts of the older form leave nothing behind."""
    params = hopper("cooperative", 2, 0)
    first, second = (
        text(compiled(make(), params)).replace(name, "OUT")
        for make, name in ((by_mapping, "T3"), (by_broadcasts, "T6"))
    )
    assert first == second
    words = [
        [type(stmt).__name__ for stmt in compiled(make(), params).walk()]
        for make in (by_matmul, by_mapping)
    ]
    assert [word for word in words[1] if word != "Compute"] == words[0]


# --- the compiler's matmuls ---------------------------------------------------------------------


@pytest.mark.parametrize("name", MATMULS)
def test_no_schedule_flushes_twice_for_one_product(name: str) -> None:
    """One flush a role and tile, or none where a loop leaves nothing in flight."""
    kernel = MATMULS[name].template().kernel
    for body in [s.body for s in kernel.body if isinstance(s, kir.Role)] or [kernel.body]:
        loops = [
            loop.body
            for loop in kir.walk(body)
            if isinstance(loop, kir.ForLoop) and any(map(accumulates, loop.body))
        ]
        leaves = [FLUSH not in inner[_last(inner) :] for inner in loops]
        assert flushes(body) == int(any(leaves))


def _last(body: tuple[kir.Stmt, ...]) -> int:
    return max(n for n, stmt in enumerate(body) if accumulates(stmt))
