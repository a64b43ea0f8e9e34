"""What kernels took beside what was predicted: a correction that is learned from timings.

`cost` says why a kernel takes its time, up to some percent.  What is left is alike for kernels that
are alike, but by no rule that would be short.  So for each way in which tiles are multiplied and
shared, a Gaussian process over the logarithm of timed / predicted learns it: its mean at a kernel
is a sum over `points`, each weighted by how near it lies.  Where nothing like a kernel was timed,
that is 0, and the prediction stays as it is.

The table is one of a device, made by `python -m fuzz.bench.fit` from timings that are kept there,
of one product of tensors in memory, whose epilogue costs next to nothing.  It serves any epilogue,
and several products in a tile: loops are the same.  Results around, and operands that threads
compute, have other ones.  What `unaligned` predicts is corrected in the same way, by other
features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log, log2
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.arch import SM_90A
from fuser.schedule.products.cost import SECTOR, Sharing, Work, walked
from fuser.schedule.products.tiles import LINE, Fit, TileKind

Numbers = npt.NDArray[np.float32]

FEATURES = (
    *("log m", "log n", "log steps"),
    *("log2 rows", "log2 columns", "log2 ctas a tile", "log2 stages", "log2 parts", "ctas an sm"),
    *("pitch of a", "pitch of b", "pitch of results"),
    *("log2 waves", "last wave", "rows filled", "columns filled", "cluster", "log2 raster"),
)
"""What a kernel is told by, in the order of `features`."""


def applies(work: Work, sms: int) -> bool:
    """Whether loops of such work were timed."""
    alone = work.around == 1 and not work.parts and not work.computed_us
    return alone and sms == SM_90A.sms and work.m * work.n > 0


def way(kind: TileKind, sharing: Sharing) -> str:
    """Name what kernels have in common of which one process knows."""
    turned, deep = "transposed" if kind.transpose else "", "deep" if kind.deep > 1 else ""
    words = [kind.split, str(kind.warpgroups), turned, deep, sharing]
    return " ".join(word for word in words if word)


def features(
    work: Work, kind: TileKind, fit: Fit, count: int, sms: int = SM_90A.sms
) -> tuple[float, ...]:
    """Return what a kernel is told by, whose tiles are each computed by `count` CTAs."""
    result = work.result_pitch
    work = work.seen_by(kind)
    wide, (down, along) = work.wide(kind), kind.cluster
    group, lines, across, _ = walked(work.shared, work.around, work.m, work.n, kind, wide, sms)
    ctas, at_once = lines * down * across * along * count, sms * kind.resident
    waves = -(-ctas // at_once)
    return (
        *(log(work.m), log(work.n * work.many), log(work.steps)),
        *(log2(kind.rows), log2(wide * work.many), log2(count), log2(fit.stages)),
        *(log2(max(wide // fit.columns, 1)), kind.resident),
        *(_off(pitch) for pitch in (*work.pitches, result)),
        *(log2(waves), ctas / at_once - (waves - 1)),
        *(work.m / (lines * down * kind.rows), work.n / (across * along * wide)),
        *(down + 2.0 * (along - 1), log2(group)),
    )


def _off(pitch: int) -> float:
    """Return where rows begin: in lines of the L2, in sectors, within, or within 16 bytes."""
    return float((pitch % LINE > 0) + (pitch % SECTOR > 0) + (pitch % 16 > 0))


@dataclass(frozen=True, slots=True)
class Process:
    """The mean of a Gaussian process: features in units of their `scales`, points and weights.

    Its covariance is a Matern of 3/2: what a kernel takes has steps and edges, and one that is
    smooth takes it for noise.
    """

    scales: Numbers
    points: Numbers
    weights: Numbers

    def mean(self, told: Numbers) -> Numbers:
        """Return it for some kernels, one a row."""
        some, points = told / self.scales, self.points / self.scales
        squared = (some**2).sum(1)[:, None] + (points**2).sum(1) - 2 * some @ points.T
        apart = np.sqrt(np.maximum(3 * squared, 0))
        found: Numbers = ((1 + apart) * np.exp(-apart)) @ self.weights
        return found


@dataclass(frozen=True, slots=True)
class Residuals:
    """What timings on a device say, by `way`."""

    device: str
    says: str
    processes: dict[str, Process]

    def factors(self, ways: Sequence[str], told: Sequence[tuple[float, ...]]) -> list[float]:
        """Return what kernels take in times of what is predicted, as far as is known."""
        out = [1.0] * len(ways)
        for name in {*ways} & {*self.processes}:
            places = [place for place, one in enumerate(ways) if one == name]
            rows = np.array([told[place] for place in places], np.float32)
            for place, mean in zip(places, self.processes[name].mean(rows), strict=True):
                out[place] = float(np.exp(mean))
        return out

    def save(self, path: Path) -> None:
        """Write it to a file."""
        arrays: dict[str, Any] = {"device": self.device, "says": self.says}
        for number, (name, process) in enumerate(self.processes.items()):
            arrays |= {
                f"way {number}": name,
                f"scales {number}": process.scales,
                f"points {number}": process.points.astype(np.float16),
                f"weights {number}": process.weights,
            }
        np.savez_compressed(path, **arrays)


def load(path: Path) -> Residuals:
    """Read what `save` wrote."""
    with np.load(path) as held:
        many = sum(name.startswith("way ") for name in held.files)
        parts = ("scales", "points", "weights")
        processes = {
            str(held[f"way {n}"]): Process(*(held[f"{p} {n}"].astype(np.float32) for p in parts))
            for n in range(many)
        }
        return Residuals(str(held["device"]), str(held["says"]), processes)


TABLE = Path(__file__).with_name("nvidia_h200.npz")
"""What timings on an H200 say."""


@cache
def residuals() -> Residuals:
    """Return what timings say."""
    return load(TABLE)
