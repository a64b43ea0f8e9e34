"""The ladder of kernels timed against torch and a copy kernel, side by side in one process.

`python -m fuzz.bench [--out FILE] [--quick]`.  Every peer of a row is captured into a CUDA graph
over rotated buffers (more than twice the L2), and the graphs are replayed in turn, so that clocks
and neighbours hit all peers alike.  Numbers are medians in microseconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from fuser.fusion_ir import FusionDefinition
from fuser.params import Mechanism, PointwiseParams
from fuser.runtime import Executable, device_present
from fuser.tensor_view import Fusion
from fuzz.exit_code import HARNESS, Command

L2_BYTES = 60_000_000
SAMPLES = 15
ELEMENTS = 1 << 28

Tensors = tuple[torch.Tensor, ...]
Peer = Callable[[Tensors, torch.Tensor], None]
"""Computes into the given output, or makes its own."""


@dataclass(frozen=True)
class Row:
    """One case: what it computes, its torch form, its bytes and how to make its inputs."""

    name: str
    fusion: Fusion
    torch_form: Callable[..., torch.Tensor]
    inputs: Callable[[], Tensors]
    nbytes: int
    results: dict[str, float] = field(default_factory=dict)


def schedules() -> dict[str, PointwiseParams]:
    """Candidates of every family; the best of each is reported, all are written to the file."""
    out = {}
    for warps, vectors in ((4, 1), (4, 2), (8, 1), (8, 2), (4, 4)):
        tile = (1, 32 * warps * 8 * vectors)
        out[f"direct w{warps} v{vectors}"] = PointwiseParams(
            tile, 8, warps, None, "direct", "direct"
        )
    for warps, vectors, ctas in ((4, 2, 8), (8, 2, 4), (16, 2, 2)):
        tile = (1, 32 * warps * 8 * vectors)
        name = f"direct persistent w{warps} v{vectors} c{ctas}"
        out[name] = PointwiseParams(tile, 8, warps, ctas, "direct", "direct")
    stores: tuple[tuple[int, int, Mechanism], ...]
    stores = ((4, 8, "direct"), (4, 16, "direct"), (4, 16, "tma"))
    for warps, rows, store in stores:
        name = f"tma one tile w{warps} {rows}x256, {store} store"
        out[name] = PointwiseParams((rows, 256), 8, warps, None, "tma", store)
    for warps, rows, stages, ctas in ((8, 32, 4, 2), (8, 16, 3, 6), (16, 64, 3, 1)):
        tile = (rows, 256)
        name = f"w{warps} {rows}x256 s{stages} c{ctas}"
        ring = (stages, stages - 1)
        out[f"tma pipelined {name}"] = PointwiseParams(tile, 8, warps, ctas, "tma", "direct", *ring)
        out[f"tma specialized {name}"] = PointwiseParams(
            tile, 8, warps, ctas, "tma", "direct", stages, 0, warp_specialized=True
        )
    return out


def rows() -> list[Row]:
    """`x+y`, `gelu(x*a+b)*s` in both forms, and bias + gelu + residual; bf16."""
    return [_sum(), _chain("tanh"), _chain("none"), _residual()]


def _random(*shape: int) -> torch.Tensor:
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(torch.bfloat16)


def _sum() -> Row:
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    return Row(
        "x + y",
        fd.fusion(),
        lambda x, y: x + y,
        lambda: (_random(ELEMENTS), _random(ELEMENTS)),
        6 * ELEMENTS,
    )


def _chain(approximate: str) -> Row:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype="bf16")
    a, b, s = (fd.define_tensor(shape=[1], dtype="bf16") for _ in range(3))
    inner = fd.ops.add(fd.ops.mul(x, a), b)
    act = fd.ops.gelu_tanh(inner) if approximate == "tanh" else fd.ops.gelu(inner)
    fd.add_output(fd.ops.mul(act, s))
    name = "gelu(tanh)" if approximate == "tanh" else "gelu(erf)"
    return Row(
        f"{name}(x*a+b)*s",
        fd.fusion(),
        lambda x, a, b, s: functional.gelu(x * a + b, approximate=approximate) * s,
        lambda: (_random(ELEMENTS), _random(1), _random(1), _random(1)),
        4 * ELEMENTS,
    )


def _residual() -> Row:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    wide = fd.ops.broadcast(bias, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.add(fd.ops.gelu_tanh(fd.ops.add(x, wide)), r))
    m, n = ELEMENTS // 8192, 8192
    return Row(
        "gelu(tanh)(x+bias)+r",
        fd.fusion(),
        lambda x, bias, r: functional.gelu(x + bias, approximate="tanh") + r,
        lambda: (_random(m, n), _random(n), _random(m, n)),
        6 * ELEMENTS,
    )


def _copy_kernels(nbytes: int, count: int) -> dict[str, list[Callable[[], None]]]:
    """Return copies that read and write `nbytes` in all by 16-byte accesses, in three shapes."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.set(fd.define_tensor(shape=[-1], dtype="f32")))
    pairs = [
        (torch.rand(nbytes // 8, device="cuda"), torch.empty(nbytes // 8, device="cuda"))
        for _ in range(count)
    ]
    out = {}
    for warps, vectors in ((4, 1), (4, 2), (8, 2), (4, 4)):
        tile = (1, 32 * warps * 4 * vectors)
        run = Executable(fd.fusion(), PointwiseParams(tile, 4, warps, None, "direct", "direct"))
        out[f"copy kernel w{warps} v{vectors}"] = [_ours(run, (s,), t) for s, t in pairs]
    return out


def measure(row: Row, candidates: dict[str, PointwiseParams]) -> None:
    """Time all peers of a row in turn; fills `row.results` with medians in microseconds."""
    count = max(2, min(3, 2 * L2_BYTES // row.nbytes + 1))
    sets = [row.inputs() for _ in range(count)]
    out = torch.empty_like(sets[0][0])
    want = row.torch_form(
        *(t.double() if t.numel() < 1 << 20 else t[: 1 << 12].double() for t in sets[0])
    )
    compiled = torch.compile(row.torch_form, dynamic=False)
    peers: dict[str, list[Callable[[], None]]] = {
        "torch": [_call(row.torch_form, s) for s in sets],
        "torch.compile": [_call(compiled, s) for s in sets],
    } | _copy_kernels(row.nbytes, count)
    for name, params in candidates.items():
        run = Executable(row.fusion, params)
        run(*sets[0], out=[out])
        part = out[: want.shape[0]].double()
        worst = float((part - want).abs().max())
        if not worst <= 0.05:
            raise click.ClickException(f"{row.name} by {name}: off by {worst}; not timed")
        peers[name] = [_ours(run, s, out) for s in sets]
    graphs = {name: _capture(calls) for name, calls in peers.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(SAMPLES):
        for name, graph in graphs.items():
            samples[name].append(_replay(graph) / count)
    row.results.update({name: round(median(times), 2) for name, times in samples.items()})


def _call(form: Callable[..., torch.Tensor], args: Tensors) -> Callable[[], None]:
    def once() -> None:
        form(*args)

    return once


def _ours(run: Executable, args: Tensors, out: torch.Tensor) -> Callable[[], None]:
    def once() -> None:
        run(*args, out=[out])

    return once


def _capture(calls: Sequence[Callable[[], None]]) -> torch.cuda.CUDAGraph:
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def _replay(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def call_overhead() -> tuple[float, float]:
    """Host microseconds of one call of ours, and of a bare launch of the same kernel."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1], dtype="f32") for _ in range(2))
    fd.add_output(fd.ops.add(x, y))
    run = Executable(fd.fusion())
    a, b = torch.rand(1024, device="cuda"), torch.rand(1024, device="cuda")
    return run.host_cost(a, b)


def _table(measured: Sequence[Row]) -> Table:
    table = Table(title="Microseconds, median; ratio > 1: ours is faster")
    for head in (
        "row",
        "copy kernel",
        "torch",
        "torch.compile",
        "ours direct",
        "ours tma",
        "TB/s",
        "of copy",
        "vs compile",
    ):
        table.add_column(head, justify="left" if head == "row" else "right")
    for row in measured:
        direct = _best(row, "direct")
        tma = _best(row, "tma")
        best = min(direct, tma)
        table.add_row(
            row.name,
            f"{_best(row, 'copy kernel'):.1f}",
            *(f"{row.results[name]:.1f}" for name in ("torch", "torch.compile")),
            f"{direct:.1f}",
            f"{tma:.1f}",
            f"{row.nbytes / best / 1e6:.2f}",
            f"{_best(row, 'copy kernel') / best:.3f}",
            f"{row.results['torch.compile'] / best:.3f}",
        )
    return table


def _best(row: Row, family: str) -> float:
    return min(t for name, t in row.results.items() if name.startswith(family))


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Rows whose name contains this.")
def main(out: Path | None, only: str) -> None:
    """Time our kernels against torch, torch.compile and a copy kernel."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    console = Console(width=140)
    measured = []
    for row in rows():
        if only not in row.name:
            continue
        measure(row, schedules())
        measured.append(row)
        console.print(row.name, row.results)
        torch.cuda.empty_cache()
        if out is not None:
            numbers = {r.name: {"bytes": r.nbytes, **r.results} for r in measured}
            out.write_text(json.dumps(numbers, indent=1))
    console.print(_table(measured))
    ours, bare = call_overhead()
    console.print(f"call: {ours:.1f} us on the host, bare launch {bare:.1f} us")


if __name__ == "__main__":
    main()
