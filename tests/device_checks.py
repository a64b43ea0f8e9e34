"""Inputs, outputs and comparisons of kernels that run on a device.

Inputs are small integers, so that every order of additions gives the same bits.  Outputs begin as
NaN and have rows behind them that must stay NaN.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
import torch

from fuser.codegen import cuda
from fuser.kernel import ir as kir
from fuser.runtime.executable import Executable

SECONDS = 20
"""A kernel that takes longer hangs; the session ends then, for the device is lost to it."""
GUARD = 3
"""Rows behind an output."""


@dataclass(frozen=True)
class Output:
    """An output of NaNs, in memory that goes on behind it."""

    whole: torch.Tensor
    rows: int

    @property
    def tensor(self) -> torch.Tensor:
        """The rows that the kernel may write."""
        return self.whole[: self.rows]


def output(rows: int, cols: int, dtype: torch.dtype) -> Output:
    """Return an output with `GUARD` rows behind it."""
    whole = torch.full((rows + GUARD, cols), float("nan"), dtype=dtype, device="cuda")
    return Output(whole, rows)


def integers(rows: int, cols: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return integers in -2..2."""
    made = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, (rows, cols), generator=made).to(dtype).cuda()


def repeated(run: Executable, *given: torch.Tensor) -> list[torch.Tensor]:
    """First outputs of nine launches: three on a stream of its own, three more, three of a graph.

    All use the same semaphores, so that one which is not left at 0 shows.
    """
    torch.cuda.synchronize()  # the other stream does not wait for what this one computes
    with torch.cuda.stream(torch.cuda.Stream()):
        got = [run(*given)[0] for _ in range(3)]
        torch.cuda.synchronize()
    got += [run(*given)[0] for _ in range(3)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(*given)[0]
    for _ in range(3):
        captured.zero_()
        graph.replay()
        got.append(captured.clone())
    return got


def finish(kernel: kir.Kernel, what: str) -> None:
    """Wait for the device, but not forever."""
    done = torch.cuda.Event()
    done.record()
    until = time.monotonic() + SECONDS
    while not done.query():
        if time.monotonic() > until:
            print(cuda.source(kernel))
            pytest.exit(f"{what} hangs: not done after {SECONDS} s", returncode=3)
        time.sleep(0.001)
    torch.cuda.synchronize()


def compare(what: str, kernel: kir.Kernel, out: Output, want: torch.Tensor) -> None:
    """Demand equal bits, and untouched rows behind; else show where, what, and the CUDA text."""
    got = out.tensor.double().cpu()
    want = want.double().cpu()
    wrong = ~(got == want)
    behind = int((~out.whole[out.rows :].isnan()).sum())
    if not wrong.any() and not behind:
        return
    where = wrong.nonzero()
    lines = [f"{what}: {len(where)} of {got.numel()} wrong, {int(got.isnan().sum())} never written"]
    lines.append(f"{behind} elements written behind the output")
    if len(where):
        low, high = where.min(0).values.tolist(), where.max(0).values.tolist()
        lines.append(f"rows {low[0]}..{high[0]}, columns {low[1]}..{high[1]}")
        lines.append(f"wrong rows % 64: {sorted({r % 64 for r, _ in where.tolist()})}")
        lines.append(f"wrong columns % 64: {sorted({c % 64 for _, c in where.tolist()})}")
        for r, c in where[:12].tolist():
            same = (want == got[r, c]).nonzero()[:3].tolist()
            lines.append(f"  [{r}, {c}]: got {got[r, c]}, want {want[r, c]}; that is at {same}")
        r, c = (n // 8 * 8 for n in where[0].tolist())
        lines += [
            "got:",
            str(got[r : r + 16, c : c + 8]),
            "want:",
            str(want[r : r + 16, c : c + 8]),
        ]
    pytest.fail("\n".join([*lines, cuda.source(kernel)]), pytrace=False)


def check_counters(what: str, counters: dict[str, torch.Tensor], kernel: kir.Kernel) -> None:
    """Semaphores and tickets are left at 0 for the next launch."""
    for name in cuda.counters(kernel):
        assert not counters[name].any(), f"{what}: {name} left at {counters[name].tolist()}"
