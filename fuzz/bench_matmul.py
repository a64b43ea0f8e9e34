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
from dataclasses import replace
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.matmul_heuristic import STACKED, columns_of_share
from fuser.matmul_params import SHARING_CLUSTERS, MatmulParams
from fuser.params import Meet
from fuser.runtime import Executable, device_present
from fuzz.bench_rows import Row, Tensors, rows, torch_stacked
from fuzz.bench_timing import L2_BYTES, PRACTICAL_BYTES, PRACTICAL_FLOPS, in_turn
from fuzz.exit_code import HARNESS, Command

WAYS: tuple[tuple[Meet, int], ...] = (
    ("vectorized", 8),
    ("tma", 8),
    ("scatter", 16),
    ("last", 16),
    ("cluster", 8),
)
"""How CTAs that share a tile meet, and how many of them are tried."""

# --- candidates ---------------------------------------------------------------------------------


def candidates(row: Row) -> dict[str, MatmulParams]:
    """Schedules worth trying for a row; the best is reported beside the default."""
    out: dict[str, MatmulParams] = {}

    def add(tile: tuple[int, int, int], groups: int, split: str, stages: int, **more: int) -> None:
        stacked = row.products > 1 and (split == "ping_pong" or tile[1] < STACKED)
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
            stacked=stacked,
        )
        out[f"{split} {m}x{n} s{stages} {words}".strip() + " stacked" * stacked] = params

    for raster in (8, 16):
        add((128, 256 // row.products, 64), 2, "cooperative", 4, raster=raster)
    if row.products == 1:
        add((128, 192, 64), 2, "ping_pong", 4)
        add((64, 256, 64), 2, "ping_pong", 4)
        add((256, 128, 64), 2, "cooperative", 3)
    if row.products == 2:
        add((128, 96, 64), 2, "ping_pong", 4)
        wide = next(iter(out.values()))
        out["cooperative 128x128 s4 raster8 stacked"] = replace(wide, stacked=True)
        pair = out["ping_pong 128x96 s4 stacked"]
        out["ping_pong 128x96 s4"] = replace(pair, stacked=False)
    add((128, 128 // row.products, 64), 2, "ping_pong", 5)
    add((128, 128 // row.products, 64), 2, "cooperative", 6)
    add((64, 128, 64), 2, "ping_pong", 4)
    if row.prologue:
        stored = {f"{name}, stored first": params for name, params in out.items()}
        return stored | {n: replace(p, prologue="registers") for n, p in out.items()}
    if row.shape[0] <= 256:
        add((64, 64, 64), 1, "cooperative", 8)
        add((64, 128, 64), 1, "cooperative", 6)
        add((64, 256 // row.products, 64), 1, "cooperative", 4)
    if row.shape[0] <= 512:
        out |= _shared(row)
    return out


def _shared(row: Row) -> dict[str, MatmulParams]:
    """Schedules by which CTAs share tiles, where few tiles have a long K, in every way."""
    m, n, k = row.shape
    out: dict[str, MatmulParams] = {}
    for rows_, cols, groups in (
        (64, 32, 1),
        (64, 64, 1),
        (64, 128, 1),
        (128, 64, 2),
        (128, 128, 2),
    ):
        tiles = -(-m // rows_) * -(-n // cols)
        if rows_ > max(m, 64) or row.products > 1:
            continue
        for meet, most in WAYS:
            splits = min(SM_90A.sms // tiles, most, k // 64 // 4)
            kept = 0
            if meet == "cluster":
                splits = max((n for n in SHARING_CLUSTERS if n <= splits), default=1)
                kept = 4 * rows_ * cols
            if splits < 2:
                continue
            room = (SM_90A.smem_bytes // 1024 - 40) * 1024 - kept
            stages = room // ((rows_ + cols) * 128) - (meet == "tma")
            params = MatmulParams(
                tile=(rows_, cols, 64),
                warpgroups=groups,
                split="pipelined" if meet == "cluster" else "cooperative",
                stages=min(8, stages),
                prefetch=min(8, stages) - 1,
                persistent=False,
                columns=min(cols, 64)
                if meet in ("vectorized", "tma")
                else columns_of_share(cols, splits),
                splits=splits,
                meet=meet,
                residency="ticket" if meet == "cluster" else "co-resident",
            )
            out[f"{rows_}x{cols} s{params.stages} {meet} x{splits}"] = params
    return out


# --- measuring ----------------------------------------------------------------------------------


def measure(row: Row, *, tune: bool, compiled: bool) -> dict[str, float]:
    """Time all peers of a row in turn; medians in microseconds by name."""
    count = max(2, min(8, 2 * L2_BYTES // row.nbytes + 1))
    sets = [row.inputs() for _ in range(count)]
    m, n, _ = row.shape
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    peers: dict[str, Callable[..., object]] = {"torch": row.form}
    if row.products == 1 and not row.extra and not row.prologue:
        peers |= _triton(out)
    elif compiled:
        peers["compile"] = torch.compile(row.form, dynamic=False)
        mode = "max-autotune-no-cudagraphs"
        peers["compile max-autotune"] = torch.compile(row.form, dynamic=False, mode=mode)
    if row.products == 2:
        stacked = torch.compile(torch_stacked, dynamic=False) if compiled else torch_stacked
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
    return in_turn(peers, sets)


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


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows, or of their first letters.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
def main(out: Path | None, only: str, *, tune: bool, no_compile: bool) -> None:
    """Time matrix products against torch, torch.compile and Triton."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
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
