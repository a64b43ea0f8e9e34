"""The numbers that a kernel leaves, judged by the torch function that says what it computes.

Data are drawn: small integers, whose sums are exact in any order, and positive floats.  The bound
is that of `reference.functions`, for the way in which the kernel multiplies and adds.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fuser.dtype import DType
from fuser.expr import Var, substitute
from fuser.kernel import ir as kir
from oracles.additions import longest
from oracles.differential import compare
from oracles.expect import Expectation, ExpectError, Function
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import Expected
from oracles.reference.functions import (
    Arithmetic,
    Unbounded,
    evaluate_function,
    evaluate_plainly,
)
from oracles.reference.products import Partials
from oracles.simulator import simulate
from oracles.verdict import Finding, Status, Verdict

Array = npt.NDArray[Any]
LOOSEST = (DType.F8E5M2, DType.F8E4M3, DType.F32, DType.F16, DType.BF16, DType.I8)
"""Operands of tensor cores; the first that a kernel has says what its products may lose."""


class Data(Enum):
    """What inputs are filled with."""

    FLOATS = "random floats"
    INTEGERS = "small integers"


def search(
    subject: kir.Kernel | kir.LaunchSequence,
    expectation: Expectation,
    launches: Sequence[simulate.Launch],
    *,
    schedules: int,
    seed: int = 0,
    policy: str = "default",
) -> Verdict:
    """Simulate launches in a row under many schedules, and judge the values that each leaves.

    Half of the schedules are for each kind of data; parameters are those of `simulate.search`.

    Returns
    -------
    Verdict
        FAIL also of a value that is wrong; UNKNOWN where all else is right and nobody knows how
        exact the values have to be.

    Raises
    ------
    ExpectError
        If the function does not fit the kernels.
    """
    kernels = subject.launches if isinstance(subject, kir.LaunchSequence) else (subject,)
    each, first, within = -(-schedules // len(Data)), seed, list[str]()
    answer = Verdict(simulate.ORACLE, Status.UNKNOWN, 0)
    for data in Data:
        try:
            values = Values(expectation, kernels, launches, data, seed)
        except Unbounded as error:
            answer = simulate.search(
                subject, launches, schedules=schedules, seed=seed, policy=policy
            )
            if answer.status is not Status.PASS:
                return answer
            says = f"values are not judged: no bound is known for {error}; give expect an rtol"
            return replace(answer, status=Status.UNKNOWN, reason=says)
        found = simulate.search(
            subject,
            launches,
            values.arrays(),
            values.scalars,
            schedules=each,
            seed=first,
            policy=policy,
            values=values.judged,
        )
        within.append(f"{data.value} {values.within}")
        known = {(f.kind, f.where): f for f in (*answer.findings, *found.findings)}
        reason = found.reason if found.status is not Status.PASS else answer.reason or found.reason
        checked = answer.checked + found.checked
        answer = replace(found, checked=checked, findings=tuple(known.values()), reason=reason)
        if found.status is not Status.PASS:
            break
        first += each
    says = f"; {each} more of ".join(within)
    return replace(answer, reason=f"{answer.reason}; values as expected of {says}")


def arithmetic(kernels: Sequence[kir.Kernel], launches: Sequence[simulate.Launch]) -> Arithmetic:
    """Read off how kernels multiply and add in their launches."""
    products = [
        stmt for one in kernels for stmt in one.walk() if isinstance(stmt, kir.Wgmma | kir.Mma)
    ]
    sources = [p.a.buffer if isinstance(p.a, kir.Slot) else p.a for p in products]
    found = {source.dtype for source in sources}
    operands = next((dtype for dtype in LOOSEST if dtype in found), None)
    half = any(p.acc.dtype is DType.F16 for p in products)
    double = any(t.dtype is DType.F64 for one in kernels for t in one.tensors)
    ctas = max(one.grid for one in launches)
    each = [(k, one.grid, one.params) for k, one in zip(kernels, launches, strict=True)]
    return Arithmetic(operands, half, _partials(kernels, ctas), longest(each), double)


def _partials(kernels: Sequence[kir.Kernel], ctas: int) -> Partials | None:
    """Return how sums are rounded that CTAs hand on in 16 bits, through what they add to."""
    for kernel in kernels:
        for stmt in kernel.walk():
            match stmt:
                case kir.TmaReduce(dst=kir.Box(tensor)) | kir.AtomicAdd(dst=kir.Box(tensor)):
                    adds = True
                case kir.Load(src=kir.Box(tensor)):
                    adds = bool(kernel.semaphores) and tensor.name in kernel.outputs
                    adds = adds or tensor.name in kernel.workspaces
                case _:
                    continue
            if adds and tensor.dtype in (DType.F16, DType.BF16):
                return Partials(tensor.dtype, ctas)
    return None


class Values:
    """What launches in a row are to leave, of data of one kind.

    Parameters
    ----------
    launches : sequence of Launch
        One for each kernel.

    Attributes
    ----------
    tensors : dict of str to torch.Tensor
        Inputs, and outputs as they begin, each without gaps.
    scalars : dict of str to int
        1, 2, ...
    within : str
        How exactly the outputs are compared, in words.

    Raises
    ------
    ExpectError
        If the function does not fit the kernels.
    Unbounded
        If no bound is known and none is given.
    """

    def __init__(
        self,
        expectation: Expectation,
        kernels: Sequence[kir.Kernel],
        launches: Sequence[simulate.Launch],
        data: Data,
        seed: int,
    ) -> None:
        last = launches[-1]
        self._launch = (*last.params.items(), (kir.GRID.name, last.grid))
        self.scalars = {s.name: n for one in kernels for n, s in enumerate(one.scalars, start=1)}
        shapes: dict[str, tuple[kir.Tensor, tuple[int, ...]]] = {}
        params: dict[str, int] = {}
        for kernel, one in zip(kernels, launches, strict=True):
            params |= one.params
            for tensor in kernel.tensors:
                shapes.setdefault(tensor.name, (tensor, _extents(tensor, one.grid, one.params)))
        scratch = {name for one in kernels for name in one.workspaces}
        written = [name for one in kernels for name in one.outputs]
        seen = [name for name in shapes if name not in scratch]
        inputs = tuple(name for name in seen if name not in written) or tuple(seen)
        names = _asked(expectation.function, (*seen, *self.scalars, *params), inputs)
        asked = set(names.values() if isinstance(names, dict) else names)
        made = torch.Generator().manual_seed(seed)
        self.tensors = {
            name: _filled(*shapes[name], data, made)
            if name in asked or name not in written
            else _poison(*shapes[name])
            for name in seen
        }
        known: dict[str, Any] = {**params, **self.scalars}
        # The function gets copies: it may write into them.
        known |= {name: self.tensors[name].clone() for name in seen}
        given = (
            {own: known[name] for own, name in names.items()}
            if isinstance(names, dict)
            else tuple(known[name] for name in names)
        )
        outputs = {name: (shapes[name][0].dtype, shapes[name][1]) for name in written}
        how = arithmetic(kernels, launches)
        self._expected = self._evaluated(expectation, given, outputs, kernels[-1].outputs, how)
        self.within = _within(expectation, self._expected)

    def _evaluated(
        self,
        expectation: Expectation,
        given: Mapping[str, Any] | tuple[Any, ...],
        outputs: Mapping[str, tuple[DType, tuple[int, ...]]],
        last: Sequence[str],
        how: Arithmetic,
    ) -> dict[str, Expected]:
        function = expectation.function
        try:
            if expectation.rtol is None and expectation.atol is None:
                return evaluate_function(function, given, outputs, last, how)
            off = expectation.rtol or 0.0, expectation.atol or 0.0
            return evaluate_plainly(function, given, outputs, last, *off)
        except Unbounded:
            raise
        except Exception as error:  # whatever a function that a person wrote may raise
            says = f"expect raises {type(error).__name__}: {error}"
            if expectation.rtol is None and expectation.atol is None:
                says += "; with an rtol it gets plain tensors"
            raise ExpectError(says) from error

    def findings(self, got: Mapping[str, torch.Tensor]) -> list[Finding]:
        """Return the worst element of each output that is wrong."""
        names = list(self._expected)
        have = [got[name].reshape(self.tensors[name].shape) for name in names]
        verdict = compare([*self._expected.values()], have, exact=False, names=names)
        return [replace(finding, launch=self._launch) for finding in verdict.findings]

    def arrays(self) -> dict[str, Array]:
        """Return the tensors in the simulator's register form."""
        return {name: _registers(tensor) for name, tensor in self.tensors.items()}

    def judged(self, arrays: Mapping[str, Array]) -> list[Finding]:
        """Return the findings about what the simulator has left in its arrays."""
        return self.findings(
            {name: _memory(arrays[name], self.tensors[name].dtype) for name in self._expected}
        )


def _extents(tensor: kir.Tensor, grid: int, numbers: Mapping[str, int]) -> tuple[int, ...]:
    values = {Var(name): value for name, value in numbers.items()} | {kir.GRID: grid}
    sizes = tuple(substitute(extent, values) for extent in tensor.extents)
    assert all(isinstance(n, int) for n in sizes), f"{tensor.name}: {sizes} are no numbers"
    return tuple(n for n in sizes if isinstance(n, int))


def _asked(
    function: Function, offered: Sequence[str], inputs: tuple[str, ...]
) -> dict[str, str] | tuple[str, ...]:
    """Return what each argument of a function stands for, or the inputs in order."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of torch's own
        return inputs
    found: dict[str, str] = {}
    unknown: list[str] = []
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        alike = [n for n in offered if n.lower() == one.name.lower()]
        if one.name in offered or len(alike) == 1:
            found[one.name] = one.name if one.name in offered else alike[0]
        elif one.default is one.empty:
            unknown.append(one.name)
    if not unknown and found and not any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return found
    if not found and len(unknown) in (0, len(inputs)):
        return inputs
    raise ExpectError(
        f"expect asks for {', '.join(unknown)}; there are {', '.join(offered)}; name its arguments "
        f"so, or take the inputs {', '.join(inputs)} in order"
    )


def _filled(
    tensor: kir.Tensor, shape: tuple[int, ...], data: Data, made: torch.Generator
) -> torch.Tensor:
    """Draw a tensor; of integers of 32 bits and more none is negative: they may be indices."""
    dtype = tensor.dtype
    if dtype is DType.BOOL:
        return torch.randint(0, 2, shape, generator=made).to(torch.bool)
    if dtype in (DType.I32, DType.I64):
        return torch.randint(1, 252, shape, generator=made).to(TORCH[dtype])
    if data is Data.FLOATS and dtype is not DType.I8:
        return (torch.rand(shape, generator=made) * 1.75 + 0.25).to(TORCH[dtype])
    return torch.randint(-4, 5, shape, generator=made).to(torch.float32).to(TORCH[dtype])


def _poison(tensor: kir.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    value = float("nan") if tensor.dtype.is_float else -1
    return torch.full(shape, value).to(TORCH[tensor.dtype])


def _registers(tensor: torch.Tensor) -> Array:
    dtype = DType.of(tensor.dtype)
    if dtype in (DType.F16, DType.BF16):
        tensor = tensor.to(torch.float32)
    if dtype.is_f8:
        tensor = tensor.view(torch.uint8)
    return np.array(tensor.numpy(), order="C")


def _memory(array: Array, dtype: torch.dtype) -> torch.Tensor:
    made = torch.from_numpy(array)
    return made.view(dtype) if made.dtype is torch.uint8 else made.to(dtype)


def _within(expectation: Expectation, expected: Mapping[str, Expected]) -> str:
    if expectation.rtol is not None or expectation.atol is not None:
        return f"within rtol {expectation.rtol or 0:g}, atol {expectation.atol or 0:g}"
    most = max((float(e.bound.max()) for e in expected.values() if e.bound.numel()), default=0.0)
    return f"within rounding errors of {most:.2g}" if most else "exactly"
