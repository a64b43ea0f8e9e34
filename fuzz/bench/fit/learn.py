"""Gaussian processes over what predictions are off by, and what they are worth.

Timings of one shape in one sweep share an error, of the card and of the model, that no choice
between schedules depends on; so it is a random effect beside the noise of each.  Scales of features
are those by which the timings are the likeliest (marginal likelihood, by gradients, on some shapes
at a time).  A process keeps so many points as tell most of the others (pivoted Cholesky), and is
the projection of all timings on these.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

import numpy as np
import torch

from fuser.schedule.products.residual import Process
from fuzz.bench.fit.timings import Shape, Timing

POINTS = 1024
"""Points of a process."""
TURNS, AT_ONCE, RATE = 800, 600, 0.05
"""Steps of the search for scales, timings of one, and how far one goes (in logarithms)."""
LEAST = 30
"""Timings of a way that scales are learned from; and from which it has a process."""
FOLDS, WITHIN, FEW = 5, 1.03, 5
"""Parts of which each is left out once; what is as fast as the fastest; and timings of a shape that
is asked for the fastest."""

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Told:
    """Timings as arrays: features, logarithms of timed / predicted, ways, and shapes of sweeps."""

    features: Tensor
    off: Tensor
    ways: list[str]
    groups: Tensor

    def some(self, places: Sequence[int]) -> Told:
        """Return some of them."""
        chosen = torch.tensor(places, dtype=torch.long)
        ways = [self.ways[place] for place in places]
        return Told(self.features[chosen], self.off[chosen], ways, self.groups[chosen])

    def by_way(self) -> dict[str, list[int]]:
        """Return the places of each way."""
        out: dict[str, list[int]] = {}
        for place, name in enumerate(self.ways):
            out.setdefault(name, []).append(place)
        return out


def told(timings: Iterable[Timing]) -> Told:
    """Return timings of one family as arrays; points are rounded as a table keeps them."""
    rows, off, ways, groups = [], [], [], []
    numbers: dict[tuple[int, Shape], int] = {}
    for one in timings:
        rows.append(one.features)
        off.append(log(one.us / one.modelled_us))
        ways.append(one.way)
        groups.append(numbers.setdefault((one.sweep, one.shape), len(numbers)))
    rounded = np.array(rows, np.float16).astype(np.float64)
    return Told(
        torch.tensor(rounded),
        torch.tensor(off, dtype=torch.float64),
        ways,
        torch.tensor(groups),
    )


@dataclass(frozen=True, slots=True)
class Scales:
    """Of features; and standard deviations, as logarithms: of a process, a shape and a timing."""

    features: Tensor
    amplitude: Tensor
    shape: Tensor
    noise: Tensor

    def near(self, some: Tensor, others: Tensor) -> Tensor:
        """Return the covariance of a process at some kernels and at others."""
        here, there = (one / self.features.exp() for one in (some, others))
        squared = (here**2).sum(1)[:, None] + (there**2).sum(1) - 2 * here @ there.T
        apart = torch.sqrt((3 * squared).clamp(min=1e-12))  # of 0 it has no gradient
        return (2 * self.amplitude).exp() * (1 + apart) * torch.exp(-apart)

    def errors(self, groups: Tensor) -> Tensor:
        """Return the covariance of what timings are off by for other reasons."""
        same = (groups[:, None] == groups[None, :]).double()
        return (2 * self.shape).exp() * same + (2 * self.noise).exp() * torch.eye(len(groups))


def scales_of(all_of_them: Told, seed: int = 0, turns: int | None = None) -> Scales:
    """Return the scales by which timings are the likeliest."""
    rng = random.Random(seed)
    spread = all_of_them.features.std(0)
    first = Scales(
        torch.log(1.5 * spread + 0.05),
        *(torch.tensor(log(start), dtype=torch.float64) for start in (0.08, 0.04, 0.02)),
    )
    sought = [first.features, first.amplitude, first.shape, first.noise]
    for one in sought:
        one.requires_grad = True
    steps = torch.optim.Adam(sought, lr=RATE)
    places = {n: p for n, p in all_of_them.by_way().items() if len(p) >= LEAST}
    for _ in range(TURNS if turns is None else turns):
        (name,) = rng.choices([*places], [len(p) for p in places.values()])
        some = all_of_them.some(_whole_shapes(all_of_them.groups, places[name], rng))
        covariance = first.near(some.features, some.features) + first.errors(some.groups)
        low = torch.linalg.cholesky(covariance)
        solved = torch.cholesky_solve(some.off[:, None], low)[:, 0]
        unlikely = (some.off @ solved / 2 + torch.log(torch.diagonal(low)).sum()) / len(some.off)
        steps.zero_grad()
        unlikely.backward()
        steps.step()
    return Scales(*(one.detach() for one in sought))


def _whole_shapes(groups: Tensor, places: list[int], rng: random.Random) -> list[int]:
    """Return the timings of some shapes, about `AT_ONCE`."""
    by_group: dict[int, list[int]] = {}
    for place in places:
        by_group.setdefault(int(groups[place]), []).append(place)
    out: list[int] = []
    for group in rng.sample([*by_group], len(by_group)):
        out += by_group[group]
        if len(out) >= AT_ONCE:
            break
    return out


def processes(some: Told, scales: Scales, points: int = POINTS) -> dict[str, Process]:
    """Return a process for each way of which there are timings."""
    out = {}
    for name, places in sorted(some.by_way().items()):
        if len(places) >= LEAST:
            mine = some.some(places)
            kept = mine.features[_telling(mine.features, scales, min(points, len(places)))]
            out[name] = Process(
                scales.features.exp().float().numpy(),
                kept.float().numpy(),
                _weights(mine, kept, scales).float().numpy(),
            )
    return out


def _telling(every: Tensor, scales: Scales, many: int) -> list[int]:
    """Return the places that tell most of all others: pivots of a Cholesky decomposition."""
    left = (2 * scales.amplitude).exp() * torch.ones(len(every), dtype=torch.float64)
    least = 1e-4 * float(left[0])
    low = torch.zeros(many, len(every), dtype=torch.float64)
    pivots: list[int] = []
    for turn in range(many):
        pivot = int(left.argmax())
        if left[pivot] <= least:
            break
        row = scales.near(every[pivot : pivot + 1], every)[0]
        row = row - low[:turn, pivot] @ low[:turn]
        low[turn] = row / left[pivot].sqrt()
        left = (left - low[turn] ** 2).clamp(min=0)
        left[pivot] = 0
        pivots.append(pivot)
    return pivots


def _weights(some: Told, points: Tensor, scales: Scales) -> Tensor:
    """Return the weights of points, in which the amplitude is."""
    near = scales.near(points, some.features)
    among = scales.near(points, points) + 1e-6 * torch.eye(len(points), dtype=torch.float64)
    by_error = torch.linalg.solve(
        scales.errors(some.groups), torch.cat([near.T, some.off[:, None]], 1)
    )
    weights = torch.linalg.solve(among + near @ by_error[:, :-1], near @ by_error[:, -1])
    weighted: Tensor = weights * (2 * scales.amplitude).exp()
    return weighted


@dataclass(frozen=True, slots=True)
class Worth:
    """What the schedule that is predicted to be the fastest takes more, and how often it is near.

    `error` is what a prediction is off by (root of the mean square).
    """

    shapes: int
    behind: float
    within: float
    error: float

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"{100 * self.behind:.2f} % behind the fastest (geometric mean, {self.shapes} shapes), "
            f"within {100 * WITHIN - 100:.0f} % of it for {100 * self.within:.1f} %; predictions "
            f"are off by {100 * self.error:.1f} %"
        )


def worth(timings: Sequence[Timing], means: Sequence[float]) -> Worth:
    """Return what predictions are worth that are corrected by such means, of logarithms."""
    by_shape: dict[tuple[int, Shape], list[tuple[float, float]]] = {}
    errors = []
    for one, mean in zip(timings, means, strict=True):
        predicted = one.modelled_us * exp(mean)
        by_shape.setdefault((one.sweep, one.shape), []).append((predicted, one.us))
        errors.append(log(one.us / predicted) ** 2)
    behind = [
        log(min(some)[1] / min(us for _, us in some))
        for some in by_shape.values()
        if len(some) >= FEW
    ]
    return Worth(
        len(behind),
        exp(fmean(behind)) - 1,
        fmean(one <= log(WITHIN) for one in behind),
        fmean(errors) ** 0.5,
    )


def left_out(timings: Sequence[Timing], all_of_them: Told, scales: Scales) -> list[float]:
    """Return the means at timings of shapes that a process has not seen: each part left out.

    The scales are those of all shapes: some twenty numbers.
    """
    shapes = sorted({one.shape for one in timings})
    random.Random(1).shuffle(shapes)
    part = {shape: number % FOLDS for number, shape in enumerate(shapes)}
    out = [0.0] * len(timings)
    for fold in range(FOLDS):
        mine = [n for n, one in enumerate(timings) if part[one.shape] == fold]
        others = [n for n, one in enumerate(timings) if part[one.shape] != fold]
        known = processes(all_of_them.some(others), scales)
        for name, places in all_of_them.some(mine).by_way().items():
            if name in known:
                at = [mine[place] for place in places]
                found = known[name].mean(all_of_them.features[at].float().numpy())
                for place, mean in zip(at, found, strict=True):
                    out[place] = float(mean)
    return out
