"""Timing peers side by side: CUDA graphs over rotated inputs, replayed in a shuffled order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

Tensors = tuple[torch.Tensor, ...]
L2_BYTES = 60_000_000
SAMPLES = 11
LONG_US = 20_000.0
"""A graph repeats its calls until it takes about so long."""
PRACTICAL_FLOPS, PRACTICAL_BYTES = 790e12, 4.3e12
"""What an H200 does per second on random bf16 data; the roof of a row."""


def in_turn(
    peers: Mapping[str, Callable[..., object]],
    sets: Sequence[Tensors],
    samples: int = SAMPLES,
) -> dict[str, float]:
    """Return the microseconds of a call of each peer: medians of replays in turn.

    Parameters
    ----------
    peers : mapping
        What is called, by name.
    sets : sequence
        Arguments of the calls, one after the other; together larger than the L2.
    samples : int
        Replays of each.
    """
    graphs = {name: capture(call, sets) for name, call in peers.items()}
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for turn in range(samples):
        # Clocks and caches are what the one before has left: none is always behind the same.
        random.Random(turn).shuffle(order)
        for name in order:
            graph, calls = graphs[name]
            taken[name].append(replay(graph) / calls)
    return {name: round(median(times), 2) for name, times in taken.items()}


def capture(
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


def replay(graph: torch.cuda.CUDAGraph) -> float:
    """Return the microseconds of a graph."""
    return _timed(graph.replay)


def _timed(work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3
