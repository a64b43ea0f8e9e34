"""The benchmark table of matrix products: ours against torch, torch.compile and Triton.

`python -m fuzz.bench_matmul [--only G,L] [--out FILE] [--tune]`.  All peers of a row are captured
into CUDA graphs over rotated buffers (more than twice the L2) and replayed in turn, so that clocks
and neighbours hit all alike.  Random data; medians in microseconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from fuser.errors import ScheduleError
from fuser.fusion_ir import FusionDefinition
from fuser.matmul_params import MatmulParams
from fuser.runtime import Executable, device_present
from fuser.tensor_view import Fusion, TensorView

L2_BYTES = 60_000_000
SAMPLES = 11
LONG_US = 20_000.0
"""A graph repeats its calls until it takes about so long."""
PRACTICAL_FLOPS, PRACTICAL_BYTES = 790e12, 4.3e12
"""What an H200 does per second on random bf16 data; the roof of a row."""

Tensors = tuple[torch.Tensor, ...]
Form = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One case: out = f(x [M, K], weights [N, K], ...), bf16.

    Parameters
    ----------
    shape : tuple of int
        M, N and K.
    products : int
        How many products of that shape.
    extra : str
        What else goes in: "bias", "residual" or nothing.
    form : callable
        The same in torch, on inputs in the order of the fusion's.
    fusion : callable
        Makes our fusion.
    """

    name: str
    shape: tuple[int, int, int]
    form: Form
    fusion: Callable[[], Fusion]
    products: int = 1
    extra: str = ""

    @property
    def flops(self) -> int:
        """Floating-point operations of the products."""
        m, n, k = self.shape
        return 2 * m * n * k * self.products

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        wide = 2 if self.extra == "residual" else 1
        return 2 * (m * k + self.products * n * k + wide * m * n)

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]."""
        m, n, k = self.shape
        found = [_random(m, k), *(_random(n, k) for _ in range(self.products))]
        if self.extra:
            found.append(_random(n) if self.extra == "bias" else _random(m, n))
        return tuple(found)


def _random(*shape: int) -> torch.Tensor:
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(torch.bfloat16)


def rows() -> list[Row]:
    """Return the table: squares, language models' layers, epilogues and gated layers."""
    plain = {
        "G1": (1024, 1024, 1024),
        "G2": (2048, 2048, 2048),
        "G3": (4096, 4096, 4096),
        "G4": (8192, 8192, 8192),
        "G5": (16384, 16384, 1024),
        "G6": (2048, 2048, 8192),
        "L1": (8192, 6144, 4096),
        "L2": (4096, 4096, 14336),
        "L3": (2048, 8192, 8192),
        "L4": (512, 28672, 8192),
        "L5": (4096, 24576, 1536),
        "L6": (128, 7168, 16384),
        "L7": (64, 18944, 3584),
        "L8": (16, 32064, 4096),
    }
    out = [Row(name, shape, functional.linear, _plain) for name, shape in plain.items()]
    biased = {
        "E1": ((8192, 4096, 4096), "gelu_tanh"),
        "E2": ((4096, 4096, 4096), "relu"),
        "E3": ((8192, 14336, 4096), "silu"),
        "E5": ((256, 4096, 4096), "gelu_tanh"),
    }
    for name, (shape, op) in biased.items():
        out.append(Row(name, shape, _torch_biased(op), _biased(op), extra="bias"))
    residual = Row("E4", (4096, 4096, 14336), _torch_residual, _residual, extra="residual")
    out.insert(-1, residual)
    gated = {"M1": (8192, 14336, 4096), "M2": (2048, 18944, 3584), "M3": (128, 14336, 4096)}
    out += [Row(name, shape, _torch_gated, _gated, products=2) for name, shape in gated.items()]
    return out


# --- fusions, and what they are in torch --------------------------------------------------------


def _begin(products: int = 1) -> tuple[FusionDefinition, TensorView, list[TensorView]]:
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    weights = [fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(products)]
    return fd, x, weights


def _plain() -> Fusion:
    fd, x, (w,) = _begin()
    fd.add_output(fd.ops.linear(x, w))
    return fd.fusion()


def _biased(op: str) -> Callable[[], Fusion]:
    def make() -> Fusion:
        fd, x, (w,) = _begin()
        bias = fd.define_tensor(shape=[-1], dtype="bf16")
        fd.add_output(getattr(fd.ops, op)(fd.ops.linear(x, w, bias)))
        return fd.fusion()

    return make


def _torch_biased(op: str) -> Form:
    acts: dict[str, Form] = {
        "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
        "relu": functional.relu,
        "silu": functional.silu,
    }
    act = acts[op]
    return lambda x, w, b: act(functional.linear(x, w, b))


def _residual() -> Fusion:
    fd, x, (w,) = _begin()
    r = fd.define_tensor(shape=[-1, -1], dtype="bf16")
    fd.add_output(fd.ops.add(fd.ops.linear(x, w), r))
    return fd.fusion()


def _torch_residual(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w) + r


def _gated() -> Fusion:
    fd, x, (gate, up) = _begin(2)
    fd.add_output(fd.ops.mul(fd.ops.silu(fd.ops.linear(x, gate)), fd.ops.linear(x, up)))
    return fd.fusion()


def _torch_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def _torch_stacked(x: torch.Tensor, gate_and_up: torch.Tensor) -> torch.Tensor:
    gate, up = functional.linear(x, gate_and_up).chunk(2, -1)
    return functional.silu(gate) * up


# --- candidates ---------------------------------------------------------------------------------


def candidates(row: Row) -> dict[str, MatmulParams]:
    """Schedules worth trying for a row; the best is reported beside the default."""
    out: dict[str, MatmulParams] = {}

    def add(tile: tuple[int, int, int], groups: int, split: str, stages: int, **more: int) -> None:
        registers = {1: None, 2: (40, 232), 3: (32, 160)}[groups]
        m, n, _ = tile
        columns = next(c for c in (64, 48, 32, 16, 8) if n % c == 0)
        words = " ".join(f"{key}{value}" for key, value in more.items())
        params = MatmulParams(
            tile=tile,
            warpgroups=groups,
            split="ping_pong" if split == "ping_pong" else "cooperative",
            stages=stages,
            prefetch=more.get("prefetch", stages - 2),
            persistent=True,
            raster=more.get("raster", 8),
            columns=columns,
            registers=registers,
        )
        out[f"{split} {m}x{n} s{stages} {words}".strip()] = params

    for raster in (8, 16):
        add((128, 256 // row.products, 64), 2, "cooperative", 4, raster=raster)
    if row.products == 1:
        add((128, 192, 64), 2, "ping_pong", 4)
        add((64, 256, 64), 2, "ping_pong", 4)
        add((256, 128, 64), 2, "cooperative", 3)
    if row.products == 2:
        add((128, 96, 64), 2, "ping_pong", 4)
    add((128, 128 // row.products, 64), 2, "ping_pong", 5)
    add((128, 128 // row.products, 64), 2, "cooperative", 6)
    add((64, 128, 64), 2, "ping_pong", 4)
    if row.shape[0] <= 256:
        add((64, 64, 64), 1, "cooperative", 8)
        add((64, 128, 64), 1, "cooperative", 6)
        add((64, 256 // row.products, 64), 1, "cooperative", 4)
    return out


# --- measuring ----------------------------------------------------------------------------------


def measure(row: Row, *, tune: bool, compiled: bool) -> dict[str, float]:
    """Time all peers of a row in turn; medians in microseconds by name."""
    count = max(2, min(8, 2 * L2_BYTES // row.nbytes + 1))
    sets = [row.inputs() for _ in range(count)]
    m, n, _ = row.shape
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    peers: dict[str, Callable[..., object]] = {"torch": row.form}
    if row.products == 1 and not row.extra:
        peers |= _triton(out)
    elif compiled:
        peers["compile"] = torch.compile(row.form, dynamic=False)
        mode = "max-autotune-no-cudagraphs"
        peers["compile max-autotune"] = torch.compile(row.form, dynamic=False, mode=mode)
    if row.products == 2:
        stacked = torch.compile(_torch_stacked, dynamic=False) if compiled else _torch_stacked
        whole = [torch.cat(given[1:]) for given in sets]
        sets = [
            (x, w[: len(w) // 2], w[len(w) // 2 :]) for (x, *_), w in zip(sets, whole, strict=True)
        ]
        peers["stacked weights"] = lambda x, gate, up: stacked(
            x, torch.as_strided(gate, (2 * n, gate.shape[1]), gate.stride())
        )
    tried = {"ours, default": None} | (candidates(row) if tune else {})
    fusion = row.fusion()
    for name, params in tried.items():
        run = Executable(fusion, params)
        try:
            run(*sets[0], out=[out])
        except ScheduleError:
            continue
        _check(row, sets[0], out, name)
        label = name if params is None else f"ours, {name}"
        peers[label] = lambda *given, run=run: run(*given, out=[out])
    graphs = {name: _capture(call, sets) for name, call in peers.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(SAMPLES):
        for name, (graph, calls) in graphs.items():
            samples[name].append(_replay(graph) / calls)
    return {name: round(median(times), 2) for name, times in samples.items()}


def _check(row: Row, given: Tensors, out: torch.Tensor, name: str) -> None:
    """Compare some rows with torch in f64 before anything is timed."""
    few = 16
    x, *rest = given
    if row.extra == "residual":
        rest[-1] = rest[-1][:few]
    want = row.form(x[:few].double(), *(t.double() for t in rest))
    worst = float((out[:few].double() - want).abs().max() / want.abs().max())
    if not worst <= 0.01:
        raise click.ClickException(f"{row.name} by {name}: off by {worst:.3g}; not timed")


def _triton(out: torch.Tensor) -> dict[str, Callable[..., object]]:
    """Return Triton's persistent matmul in all its forms, where Triton is there."""
    if importlib.util.find_spec("triton") is None:
        return {}
    peer = importlib.import_module("fuzz.bench_triton")
    return {
        f"triton {'x'.join(map(str, config))}": lambda x, w, config=config: peer.matmul(
            x, w, out, config
        )
        for config in peer.CONFIGS
    }


def _capture(
    call: Callable[..., object], sets: Sequence[Tensors]
) -> tuple[torch.cuda.CUDAGraph, int]:
    """Return a graph that calls once per set, or oftener where a call is short."""
    for given in sets:
        call(*given)
    torch.cuda.synchronize()
    once = _timed(lambda: call(*sets[0]))
    calls = max(len(sets), min(40, int(LONG_US / max(once, 1.0)) + 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for turn in range(calls):
            call(*sets[turn % len(sets)])
    return graph, calls


def _replay(graph: torch.cuda.CUDAGraph) -> float:
    return _timed(graph.replay)


def _timed(work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _table(measured: dict[str, dict[str, float]], table: Sequence[Row]) -> Table:
    heads = ("row", "M x N x K", "roof", "best peer", "us", "ours", "us", "ratio", "default")
    shown = Table(
        *heads, title="Microseconds, median; ratio > 1: ours is faster than the best peer"
    )
    for row in table:
        times = measured.get(row.name)
        if times is None:
            continue
        ours = {name: t for name, t in times.items() if name.startswith("ours")}
        peers = {name: t for name, t in times.items() if name not in ours}
        best, peer = min(ours, key=ours.__getitem__), min(peers, key=peers.__getitem__)
        roof = max(row.flops / PRACTICAL_FLOPS, row.nbytes / PRACTICAL_BYTES) * 1e6
        shown.add_row(
            row.name,
            " x ".join(map(str, row.shape)),
            f"{roof:.1f}",
            peer,
            f"{peers[peer]:.1f}",
            best.removeprefix("ours, "),
            f"{ours[best]:.1f}",
            f"{peers[peer] / ours[best]:.3f}",
            f"{peers[peer] / ours['ours, default']:.3f}",
        )
    return shown


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows, or of their first letters.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
def main(out: Path | None, only: str, *, tune: bool, no_compile: bool) -> None:
    """Time matrix products against torch, torch.compile and Triton."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(3)
    console = Console(width=140)
    wanted = tuple(word for word in only.split(",") if word)
    measured: dict[str, dict[str, float]] = {}
    table = [row for row in rows() if not wanted or row.name.startswith(wanted)]
    for row in table:
        measured[row.name] = measure(row, tune=tune, compiled=not no_compile)
        console.print(row.name, measured[row.name])
        torch.cuda.empty_cache()
        if out is not None:
            out.write_text(json.dumps(measured, indent=1))
    console.print(_table(measured, table))


if __name__ == "__main__":
    main()
