"""What a subject is launched on: small integers, and what each launch leaves in the outputs.

Kernels whose CTAs add up get large shapes, with torch's result; any other its own small launches,
with what the simulator computes by the kernel without the fault.  Integers are exact in every order
of additions, so that a single one that is missing shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.runtime.call import number, shape
from fuser.runtime.scratch import elements
from fuzz.campaign.launches import Call
from fuzz.kernels.draw import Subject
from fuzz.kernels.semaphores import BASES
from oracles.simulator.simulate import Launch, simulate
from oracles.verdict import Status

SETS = 2
"""Sets of inputs, which alternate: what a launch leaves must not pass for the next one's result."""
LAUNCHES = 4
"""Launches of a subject at most that the simulator is asked about, spread evenly."""
PRODUCTS = ((64, 16, 96, 3), (100, 24, 200, 5), (256, 64, 512, 4), (512, 128, 256, 8))
"""Extents of a product, and CTAs that share a tile of it: one tile, tails along every axis, about a
CTA for each SM, and many CTAs on each."""
SUMS = ((128, 128, 1, 3), (200, 136, 1, 5), (512, 512, 1, 4), (1024, 1024, 1, 8))
"""The same for `wide_turns`, which multiplies nothing."""
_, _TMA, _WIDE, _COMPILED = BASES

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """A launch, with inputs and outputs by name, on the host, each as it lies in memory."""

    name: str
    grid: int
    params: dict[str, int]
    sets: list[tuple[Tensors, Tensors]]


def workloads(subject: Subject) -> Iterator[Workload]:
    """Yield the launches of a subject, small ones first.

    Raises
    ------
    ValueError
        If the simulator cannot say what comes out, or not exactly.
    """
    if subject.family in BASES:
        for m, n, k, splits in SUMS if subject.family == _WIDE else PRODUCTS:
            yield _added(subject, m, n, k, splits)
        return
    starts = [(grid, dict(params)) for grid, params in subject.launches]
    full = [start for start in starts if all(_sizes(subject.base, *start).values())]
    for grid, params in full[:: -(-len(full) // LAUNCHES) or 1]:
        name = f"grid {grid}, {', '.join(f'{name}={n}' for name, n in params.items())}"
        sets = [_simulated(subject.base, grid, params, seed) for seed in range(SETS)]
        yield Workload(name, grid, params, sets)


def _added(subject: Subject, m: int, n: int, k: int, splits: int) -> Workload:
    """Return a sum of `splits` parts, or a product split into them along `k`."""
    match subject.family:
        case base if base == _WIDE:
            params = {"R": m, "C": n}
        case base if base == _COMPILED:
            params = {"n0": m, "n1": n, "n2": k, "raster": 1}
            params |= {"T0_s0": k, "T1_s1": k, "T6_s0": n}
        case _:
            params = {"M": m, "N": n, "K": k}
    params |= {"splits": splits}
    kernel = subject.base
    (semaphore,) = kernel.semaphores
    grid = number(semaphore.count, _values(kernel, 1, params)) * splits
    made = torch.Generator().manual_seed(m)

    def some(rows: int, cols: int) -> torch.Tensor:
        return torch.randint(-2, 3, (rows, cols), generator=made, dtype=torch.int8).float()

    first, second, third, *_ = (tensor.name for tensor in kernel.tensors)
    (out,) = kernel.outputs
    sets: list[tuple[Tensors, Tensors]] = []
    if subject.family == _WIDE:
        for part in (some(m * splits, n) for _ in range(SETS)):
            sets.append(({first: part}, {out: part.view(splits, m, n).sum(0)}))
    else:
        lefts = [some(m, k) for _ in range(SETS)]
        right, bias = some(n, k), some(1, n)
        for left in lefts:
            given, want = {first: left.bfloat16(), second: right.bfloat16()}, left @ right.T
            if subject.family == _COMPILED:
                given[third], want = bias.bfloat16(), (want + bias).relu().bfloat16()
            sets.append((given, {out: want}))
    return Workload(f"{m} x {n} x {k} by {splits}", grid, params, sets)


def _values(kernel: kir.Kernel, grid: int, params: dict[str, int]) -> dict[Var, Expr]:
    return {**{p: params[p.name] for p in kernel.params}, kir.GRID: grid}


def _sizes(kernel: kir.Kernel, grid: int, params: dict[str, int]) -> dict[str, int]:
    values = _values(kernel, grid, params)
    return {tensor.name: elements(tensor, values) for tensor in kernel.tensors}


def scalars(kernel: kir.Kernel) -> dict[str, int]:
    """Return a small integer for every scalar."""
    return {scalar.name: n for n, scalar in enumerate(kernel.scalars, start=1)}


def poison(one: torch.Tensor) -> None:
    """Fill memory with bytes that are NaN, or -1."""
    one.view(torch.uint8).fill_(0xFF)


def integers(
    kernel: kir.Kernel, grid: int, params: dict[str, int], seed: int
) -> tuple[Call, Tensors]:
    """Return a launch on small integers, and its memory by name; outputs are poison."""
    made = torch.Generator().manual_seed(seed)
    sizes, values = _sizes(kernel, grid, params), _values(kernel, grid, params)
    memory: Tensors = {}
    for tensor in kernel.tensors:
        if tensor.name not in kernel.workspaces:
            some = torch.randint(-2, 3, (sizes[tensor.name],), generator=made)
            memory[tensor.name] = some.to(getattr(torch, tensor.dtype.torch_name))
    for name in kernel.outputs:
        poison(memory[name])
    shapes = {t.name: shape(t, values) for t in kernel.tensors}
    views = {name: one.as_strided(*shapes[name]) for name, one in memory.items()}
    return Call(kernel, Launch(grid, params), views, dict[str, float](scalars(kernel))), memory


def _simulated(
    kernel: kir.Kernel, grid: int, params: dict[str, int], seed: int
) -> tuple[Tensors, Tensors]:
    call, memory = integers(kernel, grid, params, seed)
    arrays = call.arrays()
    assert call.launch is not None, "of some CTAs"
    verdict = simulate(kernel, call.launch, arrays, call.scalars)
    call.store(arrays)
    outputs = {name: memory.pop(name) for name in kernel.outputs}
    if verdict.status is not Status.PASS:
        raise ValueError(f"simulate({kernel.name}): {verdict.status.value}: no expected values")
    if any(bool((one.nan_to_num() != one.nan_to_num().round()).any()) for one in outputs.values()):
        raise ValueError(f"simulate({kernel.name}): values are rounded, nothing is exact")
    return memory, outputs
