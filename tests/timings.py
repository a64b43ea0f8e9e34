"""Synthetic timings: made up, to see how a page of them reads.  No figures of anything."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from fuzz.campaign.record import DEFAULT, ROOF, Timing

FACTS: dict[str, str | float] = {
    "device": "synthetic",
    "flops_per_s": 790e12,
    "bytes_per_s": 4.3e12,
}
"""Of a run on a device that does not exist."""
SAMPLES = 15


def synthetic(rows: int, seed: int = 0, slower: dict[str, float] | None = None) -> Iterator[Timing]:
    """Yield rows that alternate between sums and products, each with peers and schedules of ours.

    All samples of a row share the noise of their turn.  `slower` multiplies our times of a row.
    """
    for n in range(rows):
        product = n % 2 == 1
        name, size = f"{'GX'[not product]}{n}", 2 ** (n % 5 + 26)
        flops = 2 ** (n % 7 + 8) * size if product else 0
        roof = max(flops / 790e12, size / 4.3e12) * 1e6
        made = random.Random(n)
        us = {
            "torch": roof * made.uniform(1.2, 2.5),
            "compile": roof * made.uniform(1.15, 1.9),
            DEFAULT: roof * made.uniform(1.1, 1.3) * (slower or {}).get(name, 1.0),
            "ours, a": roof * made.uniform(1.1, 1.6),
            "ours, b": roof * made.uniform(1.05, 1.8),
            **({"Triton": roof * made.uniform(1.1, 1.5)} if product else {f"{ROOF} w4": roof}),
        }
        noise = random.Random(f"{seed} {n}")
        turns = [noise.uniform(0.97, 1.06) for _ in range(SAMPLES)]
        for peer, time in us.items():
            samples = [round(time * turn * noise.uniform(0.995, 1.005), 3) for turn in turns]
            first = 0.4 if peer.startswith("ours") else 0.0
            says = f"synthetic {'product' if product else 'sum'} of {size} bytes"
            kind = "Product" if product else "Pointwise"
            yield Timing(name, kind, says, peer, size, flops, roof, first, json.dumps(samples))
