"""A row of the benchmark: what is computed, by whom, and how long each takes, side by side.

All peers of a row are captured into CUDA graphs over rotated inputs (more than twice the L2) and
replayed in a shuffled order, so that clocks and neighbours hit all alike.  Random data.
"""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, TypeVar

import click
import torch
from rich.table import Table

from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion
from fuser.runtime.executable import Executable
from fuser.schedule.shape_class import Params
from fuzz.campaign.record import DEFAULT, ROOF, Timing

Tensors = tuple[torch.Tensor, ...]
Form = Callable[..., "torch.Tensor | Tensors"]
Peers = dict[str, Callable[..., object]]
Made = TypeVar("Made")

L2_BYTES = 60_000_000
SAMPLES = 15
LONG_US = 20_000.0
"""A graph repeats its calls until it takes about so long."""
FINALISTS, SHORT_US = 6, 2_000.0
"""Candidates that are timed beside the peers, of more than so many; and how long each is before."""
PRACTICAL_FLOPS, PRACTICAL_BYTES = 790e12, 4.3e12
"""What an H200 does per second on random bf16 data; the roof of a row."""


@dataclass(frozen=True)
class Row(ABC):
    """One case, of a kind that says what goes in, who else computes it, and how far off one is.

    `name` is its number in the table; `fusion` makes our fusion; `form` is the same in torch, on
    inputs in the order of the fusion's.
    """

    name: str
    fusion: Callable[[], Fusion]
    form: Form
    tolerance: ClassVar[float]
    """How far off an output may be, as `error` measures it."""

    @property
    @abstractmethod
    def says(self) -> str:
        """What it computes."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""

    @property
    def flops(self) -> int:
        """Floating-point operations of products."""
        return 0

    @property
    def roof_us(self) -> float:
        """Microseconds in which an H200 moves these bytes, or multiplies so much."""
        return max(self.flops / PRACTICAL_FLOPS, self.nbytes / PRACTICAL_BYTES) * 1e6

    @abstractmethod
    def inputs(self) -> Tensors:
        """Make random inputs on the device."""

    @abstractmethod
    def error(self, given: Tensors, outs: Tensors) -> float:
        """Return how far outputs are off at most, given the inputs."""

    @abstractmethod
    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying, by name; the best is reported beside the default."""

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return who else computes it into `outs`: torch, and torch.compile where it is asked."""
        del outs
        peers: Peers = {"torch": self.form}
        if compiled:
            torch.compiler.reset()  # it compiles a function for 8 shapes, then no more
            peers["compile"] = torch.compile(self.form, dynamic=False)
        return peers


def autotuned(form: Form) -> Callable[..., object]:
    """Return what torch.compile makes of a form by measuring."""
    return torch.compile(form, dynamic=False, mode="max-autotune-no-cudagraphs")


def together(outs: torch.Tensor | Tensors) -> Tensors:
    """Return what a form gives as several outputs, also where it is one."""
    return (outs,) if isinstance(outs, torch.Tensor) else tuple(outs)


def random_of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return numbers in [-1, 1], integers in [-100, 100]."""
    x = torch.rand(*shape, device="cuda") * 2 - 1
    return (x * 100 if dtype is torch.int8 else x).to(dtype)


def random_bf16(*shape: int) -> torch.Tensor:
    """Return numbers in [-1, 1]."""
    return random_of(torch.bfloat16, *shape)


def kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """Return a function that makes what it is for once of each tensor, by its address."""
    known: dict[int, Made] = {}

    def made(of: torch.Tensor, *rest: torch.Tensor) -> Made:
        if of.data_ptr() not in known:
            known[of.data_ptr()] = make(of, *rest)
        return known[of.data_ptr()]

    return made


def warm_peers(row: Row, *, compiled: bool) -> None:
    """Compile what the peers of a row need, for all processes that share the caches on disk."""
    given = row.inputs()
    outs = tuple(torch.empty_like(out) for out in together(row.form(*given)))
    for call in row.peers(outs, compiled=compiled).values():
        call(*given)


def warm(row: Row, tried: Iterable[Params | None]) -> None:
    """Compile a row under schedules, likewise."""
    given = row.inputs()
    for params in tried:
        with suppress(ScheduleError):
            Executable(row.fusion(), params)(*given)


def measure(row: Row, *, tune: bool, compiled: bool) -> list[Timing]:
    """Time all peers of a row.  What is off too far is refused."""
    count = max(2, min(8, 2 * L2_BYTES // row.nbytes + 1))
    sets = [row.inputs() for _ in range(count)]
    outs = tuple(torch.empty_like(out) for out in together(row.form(*sets[0])))
    peers = row.peers(outs, compiled=compiled)
    fusion = row.fusion()
    tried: dict[str, Params | None] = {DEFAULT: None}
    if tune:
        tried |= {f"ours, {name}": params for name, params in _fastest(row, sets, outs).items()}
    first_s: dict[str, float] = {}
    for name, params in tried.items():
        run = Executable(fusion, params)
        start = time.perf_counter()
        try:
            run(*sets[0], out=outs)
        except ScheduleError:
            continue
        first_s[name] = time.perf_counter() - start
        off = row.error(sets[0], outs)
        if not off <= row.tolerance:
            raise click.ClickException(f"{row.name} by {name}: off by {off:.3g}; not timed")
        peers[name] = lambda *given, run=run: run(*given, out=outs)
    taken = side_by_side(peers, sets)
    copies = [median(times) for name, times in taken.items() if name.startswith(ROOF)]
    return [
        Timing(
            row=row.name,
            kind=type(row).__name__,
            says=row.says,
            peer=name,
            nbytes=row.nbytes,
            flops=row.flops,
            roof_us=min(copies, default=row.roof_us),
            first_s=first_s.get(name, 0.0),
            samples=json.dumps([round(us, 3) for us in times]),
        )
        for name, times in taken.items()
    ]


def _fastest(row: Row, sets: Sequence[Tensors], outs: Tensors) -> dict[str, Params]:
    """Return the candidates that are fastest, each alone and timed shortly."""
    fusion, candidates = row.fusion(), row.candidates()
    if len(candidates) <= FINALISTS:
        return {**candidates}
    taken: dict[str, float] = {}
    for name, params in candidates.items():
        run = Executable(fusion, params)
        with suppress(ScheduleError):
            taken[name] = fastest_us(lambda *given, run=run: run(*given, out=outs), sets)
    return {name: candidates[name] for name in sorted(taken, key=taken.__getitem__)[:FINALISTS]}


def fastest_us(call: Callable[..., object], sets: Sequence[Tensors]) -> float:
    """Return the microseconds of a call, alone and timed shortly."""
    graph, calls = _capture(call, sets, SHORT_US)
    return min(_timed(graph.replay) for _ in range(3)) / calls


def medians(timings: Sequence[Timing]) -> dict[str, float]:
    """Return the median microseconds of a row by peer."""
    return {timing.peer: round(median(json.loads(timing.samples)), 2) for timing in timings}


def side_by_side(
    peers: Mapping[str, Callable[..., object]],
    sets: Sequence[Tensors],
    samples: int = SAMPLES,
    long_us: float = LONG_US,
) -> dict[str, list[float]]:
    """Return the microseconds of a call of each peer, on `sets` in turn, in shuffled order.

    A graph repeats its calls until it takes about `long_us`.
    """
    graphs = {name: _capture(call, sets, long_us) for name, call in peers.items()}
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for sample in range(samples):
        # Clocks and caches are what the one before has left: none is always behind the same.
        random.Random(sample).shuffle(order)
        for name in order:
            graph, calls = graphs[name]
            taken[name].append(_timed(graph.replay) / calls)
    return taken


def table(rows: Sequence[Row], measured: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the rows that were measured: roof, best peer, best of ours, default."""
    heads = ("row", "what", "roof", "best peer", "us", "ours", "us", "ratio", "default", "of roof")
    shown = Table(
        *heads, title="Microseconds, median; ratio > 1: ours is faster than the best peer"
    )
    for row in rows:
        times = measured.get(row.name)
        if times is None:
            continue
        ours = {name: t for name, t in times.items() if name.startswith("ours")}
        copies = [t for name, t in times.items() if name.startswith(ROOF)]
        peers = {n: t for n, t in times.items() if n not in ours and not n.startswith(ROOF)}
        best, peer = min(ours, key=ours.__getitem__), min(peers, key=peers.__getitem__)
        roof = min(copies, default=row.roof_us)
        shown.add_row(
            row.name,
            row.says,
            f"{roof:.1f}",
            peer,
            f"{peers[peer]:.1f}",
            best.removeprefix("ours, "),
            f"{ours[best]:.1f}",
            f"{peers[peer] / ours[best]:.3f}",
            f"{peers[peer] / ours[DEFAULT]:.3f}" if DEFAULT in ours else "refused",
            f"{roof / ours[best]:.3f}",
        )
    return shown


def _capture(
    call: Callable[..., object], sets: Sequence[Tensors], us: float = LONG_US
) -> tuple[torch.cuda.CUDAGraph, int]:
    """Return a graph that calls once per set, or oftener where a call is short."""
    for given in sets:
        call(*given)
    torch.cuda.synchronize()
    once = _timed(lambda: call(*sets[0]))
    calls = max(len(sets), min(40, int(us / max(once, 1.0)) + 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(*sets[i % len(sets)])
    return graph, calls


def _timed(work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3
