"""CTAs that share a tile of a product and store all their sums, for others to add up.

They do so in a workspace, or in shared memory where they are a cluster; then each of them adds up
some columns of all, or the last one to come all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import ClassVar

from fuser.expr import Expr, Var, ceildiv
from fuser.kernel import ir as kir
from fuser.lower.split_k import SPLIT, TILE, Meeting, NewBuffer, Turns, check_sums, loaded
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams

BATCH = 64
"""Registers for sums of other CTAs that a thread loads at a time."""


@dataclass
class _Scatter(Turns):
    """Each CTA stores its sums in a workspace, all meet, and each adds up some columns of all.

    How many they are is a number of the kernel, so that nobody asks for it on the way.
    """

    alone: ClassVar[bool] = False

    @property
    def splits(self) -> Expr:
        return self.params.splits

    @property
    def variables(self) -> tuple[Var, ...]:
        return self.walking

    @property
    def parted(self) -> bool:
        return True

    def meet(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        out: list[kir.Stmt] = []
        for acc in sums:
            check_sums(self.params, acc)
            out += stored(acc, self.params.columns, partial(self._of, acc, SPLIT))
            where = self.semaphore(), TILE, self.splits
            out.append(kir.GridShare(f"W_{acc.name}", *where, self.alone))
        return out

    def _of(self, acc: kir.Fragment, split: Expr, group: Expr) -> kir.Box:
        """Return a group of columns of the sums that a CTA of this tile has stored."""
        groups = acc.layout.shape[-1] // self.params.columns
        part = (TILE * self.splits + split) * groups + group
        return self.workspace(acc, self.params.splits * groups, part, self.params.columns)

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        others, many = self.params.splits - 1, batched(self.params.splits, part)

        def batch(first: Expr, count: int) -> list[kir.Stmt]:
            places = [self._of(whole, first + turn, group) for turn in range(count)]
            return added(part, places)

        out = loaded(part, self._of(whole, 0, group))
        full, left = divmod(others, many)
        if full == 1:
            out += batch(1, many)
        else:
            some = Var("s")
            out.append(kir.ForLoop(some, full, tuple(batch(some * many + 1, many))))
        return [*out, *batch(others - left + 1, left)]

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        made = super().fit(kernel)
        return made if self.neighbours else replace(made, together=self.splits)


@dataclass
class _Last(_Scatter):
    """Each CTA stores its sums in a workspace; the last one to come adds up those of all.

    Nobody waits, so they need not run at once.
    """

    alone: ClassVar[bool] = True

    @property
    def pooled(self) -> bool:
        return True

    @property
    def parted(self) -> bool:
        return False

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        made = super().fit(kernel)
        return made if self.neighbours else replace(made, residency="any", together=1)


@dataclass
class _Cluster(Meeting):
    """The CTAs of a tile are a cluster: each adds up some columns of all, from their slots."""

    slots: dict[kir.Fragment, kir.Buffer] = field(default_factory=dict)

    @property
    def split(self) -> Expr:
        return kir.RANK

    @property
    def splits(self) -> Expr:
        return self.params.splits

    @property
    def parted(self) -> bool:
        return True

    def steps(self, every: Expr) -> Expr:
        """Return as many for all: none waits longer than for the first, and beyond K are zeros.

        So all of them have sums, however few steps K has.
        """
        return ceildiv(every, self.splits)

    def meet(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        out: list[kir.Stmt] = []
        width = self.params.columns
        for acc in sums:
            check_sums(self.params, acc)
            *outer, columns = acc.layout.shape
            shape = (*outer, width)
            buffer = self.buffer(f"W_{acc.name}", self.partial(acc), shape, columns // width)
            self.slots[acc] = buffer
            out += stored(acc, width, partial(kir.Slot, buffer))
        return out

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        buffer, many = self.slots[whole], batched(self.params.splits, part)
        out = loaded(part, kir.Slot(buffer, group, 0))
        for first in range(1, self.params.splits, many):
            ranks = range(first, min(first + many, self.params.splits))
            out += added(part, [kir.Slot(buffer, group, rank) for rank in ranks])
        return out

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        return replace(kernel, cluster=self.params.splits)


def meeting(
    params: MatmulParams | AmpereParams,
    tiles: Expr,
    buffer: NewBuffer,
) -> Meeting:
    """Return how the CTAs of a tile meet; parameters are those of `Meeting`."""
    if params.splits == 1:
        return Meeting(params, tiles, buffer)
    ways: dict[str, type[Meeting]] = {"scatter": _Scatter, "cluster": _Cluster, "last": _Last}
    return ways.get(params.meet, Turns)(params, tiles, buffer)


def stored(
    acc: kir.Fragment, width: int, place: Callable[[int], kir.Box | kir.Slot]
) -> list[kir.Stmt]:
    """Store sums: columns that are added up together lie together, where `place` says."""
    layout = replace(acc.layout, shape=(*acc.layout.shape[:-1], width))
    part = kir.Fragment(f"{acc.name}_mine", acc.dtype, layout)
    out: list[kir.Stmt] = []
    for group in range(acc.layout.shape[-1] // width):
        out.append(kir.Slice(part, acc, group * width))
        out.append(kir.Store(place(group), part, 2))
    return out


def batched(splits: int, part: kir.Fragment) -> int:
    """Return of how many other CTAs the sums are loaded at a time.

    Several, for each load takes as long as all of them.
    """
    each = max(prod(part.layout.shape) // part.layout.threads, 1)
    return min(splits - 1, max(BATCH // each, 1))


def added(part: kir.Fragment, places: Sequence[kir.Box | kir.Slot]) -> list[kir.Stmt]:
    """Load sums from several places at once, then add them in this order."""
    loads: list[kir.Stmt] = []
    sums: list[kir.Stmt] = []
    for n, place in enumerate(places):
        more = replace(part, name=f"{part.name}_{n}")
        load, *promote = loaded(more, place)
        loads.append(load)
        sums += [*promote, kir.Compute(part, "add", (part, more))]
    return [*loads, *sums]
