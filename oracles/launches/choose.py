"""A few small launches of a kernel that fulfil as many of its wishes as they can.

Candidates have sizes around what the kernel divides by, cuts into boxes and compares with; z3 makes
them keep what the kernel requires, and is asked for each wish that none of them fulfils.  Those are
chosen that add most.  Judges check a launch by readings of their own before they use it: what is
chosen here can cost them a launch, never an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import product
from math import lcm, prod
from random import Random

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.launches.solver import Solver
from oracles.launches.wishes import (
    FAR,
    Calculator,
    Reading,
    Subject,
    Wish,
    calculator,
    extents,
    strides,
)

MOST = 14
"""Launches that are chosen at most."""
WORK = 240
"""Turns of the loops of all CTAs in all chosen launches, one for a CTA itself; about so many."""
CANDIDATES = 90
"""Launches that are looked at before z3 is asked."""
DRAWN = 40
"""Of those at least so many in which every size is drawn."""
ASKED, REPAIRED = 10, 12
"""Questions to z3: for wishes that are left, and where few candidates are launches."""
HOPELESS = 2
"""Wishes about a subject in vain, after which no more of them are asked for."""
LARGEST = 4096
"""No parameter is larger."""
ELEMENTS = 1 << 18
"""Elements of a tensor at most."""
TURNS = 64
"""Turns of a loop at most, and CTAs where there have to be many."""
CLUSTERS = 8
"""CTAs, or clusters, where there may be fewer."""
MORE = (16, 40)
"""CTAs, or clusters, where a comparison needs more than those to come out another way."""
GRIDS = (1, 1, 2, 1, 1, 3)
"""Clusters of one launch after the other, where a kernel takes any number."""
SINGLE, FRAME = 64, 8
"""How many pairs of wishes count like a wish, and wishes like one about turns or CTAs."""
TMA_BYTES = 16
"""Strides of tensors that TMA copies are multiples of it.  Source: PTX ISA, "tensor-map"."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A launch: its CTAs and a value for every parameter."""

    grid: int
    params: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """The launches that were chosen, those that do least first.

    Parameters
    ----------
    met, unmet : int
        Wishes that some launch fulfils, and those that none does.
    """

    launches: tuple[Sizes, ...]
    met: int = 0
    unmet: int = 0


def none_of(kernel: kir.Kernel) -> str:
    """Say that a kernel has no small launch."""
    needs = ", ".join(map(str, kernel.requires)) or "nothing"
    return (
        f"no launch of {kernel.name} up to {LARGEST} was found that keeps what it requires: {needs}"
    )


def choose(kernel: kir.Kernel, *, most: int = MOST) -> Choice:
    """Choose launches of a kernel: always the same ones.

    Parameters
    ----------
    most : int
        How many, at most.

    Returns
    -------
    Choice
        Without a launch where no small one keeps what the kernel requires.
    """
    return _Chooser(kernel).choice(most)


def smallest(kernel: kir.Kernel) -> Sizes | None:
    """Return sizes near 1 that keep what a kernel requires, however large, as far as z3 finds any.

    Strides are left at 1.
    """
    chooser = _Chooser(kernel)
    solver = Solver(kernel, chooser.conditions, FAR, FAR)
    near = solver.nearest(None, dict.fromkeys(chooser.free, 1))
    if near is None:
        return None
    return Sizes(near[kir.GRID], {p.name: near.get(p, 1) for p in kernel.params})


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A launch, parameters and CTAs, with bits for the wishes it fulfils, and what it costs."""

    values: tuple[int, ...]
    fulfils: int
    cost: int


class _Chooser:
    """One kernel, what is legal for it, and the launches that were found."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        self.reading = Reading(kernel)
        self.pitches = strides(kernel)
        self.sizes = extents(kernel)
        free = (p for p in kernel.params if p not in self.pitches)
        self.free = sorted(free, key=lambda p: p in self.sizes)  # Sizes give way to the others.
        self.found: dict[tuple[int, ...], _Candidate] = {}
        self.turns = max(TURNS, 4 * max(self.reading.counts))
        self.ctas = CLUSTERS * kernel.cluster
        self.far = 0
        self._solvers: dict[int, Solver] = {}
        self._variables = (*kernel.params, kir.GRID)
        self.by_subject: dict[Subject, tuple[dict[int, int], list[tuple[int, int, int]]]] = {}
        for wish, bit in self._bits():
            points, ranges = self.by_subject.setdefault(wish.subject, ({}, []))
            if wish.low == wish.high:
                points[wish.low] = points.get(wish.low, 0) | bit
            else:
                ranges.append((wish.low, wish.high, bit))

    def choice(self, most: int) -> Choice:
        """Look at candidates, ask for what they leave open, and take those that add most."""
        refused = [params for params in self._candidates() if not self._take(params)]
        for params in refused[:REPAIRED]:
            self._repair(params)
        if not self.found:
            self.ctas = max(TURNS, self.ctas)
            for params in refused:
                if not self._take(params):  # those with many CTAs are launches now
                    self._repair(params)
        met = self._ask(self._bits())
        near, about = met, {kir.BLOCK, kir.GRID, *variables(self._fixed)}
        deciding = [
            (wish, bit)
            for wish, bit in self._bits()
            if wish in self.reading.deciding and about & variables(wish.subject.expr)
        ]
        for many in MORE:
            self.ctas = max(self.ctas, many * self.kernel.cluster)
            met = self._ask(deciding)
        lasting = sum(bit for wish, bit in self._bits() if wish in self.reading.lasting)
        self.far = met & (~near | lasting)
        wishes = len(self.reading.wishes)
        taken = sorted(self._chosen(most), key=lambda one: one.cost)
        return Choice(
            tuple(self._sizes(one.values) for one in taken),
            met.bit_count(),
            wishes - met.bit_count(),
        )

    def _sizes(self, values: tuple[int, ...]) -> Sizes:
        *params, grid = values
        names = (p.name for p in self.kernel.params)
        return Sizes(grid, dict(zip(names, params, strict=True)))

    def _chosen(self, most: int) -> Iterator[_Candidate]:
        """Yield the candidate that adds most for what it costs, until none adds anything.

        To fulfil a wish where a loop runs several times may show what it hides where the loop runs
        once: pairs of wishes count, too, where one is about loops or CTAs.
        """
        rest = sorted(self.found.values(), key=lambda one: (one.cost, one.values))
        met, keys = 0, [bit for w, bit in self._bits() if w.subject in self._frames]
        frames = sum(keys)
        beside = dict.fromkeys(keys, 0)

        def gain(one: _Candidate) -> float:
            pairs = (one.fulfils & ~beside[key] for key in keys if one.fulfils & key)
            own = one.fulfils & ~met
            single = own.bit_count() + FRAME * (own & frames).bit_count()
            return (SINGLE * single + sum(x.bit_count() for x in pairs)) / (one.cost + 2)

        # What a candidate adds only shrinks, so that one is the best that still beats the next.
        queue = [(-gain(one), place, one) for place, one in enumerate(rest)]
        heapify(queue)
        taken, work = 0, 0
        while queue and taken < most:
            _, place, one = heappop(queue)
            if taken and work + one.cost > WORK and not one.fulfils & self.far & ~met:
                continue
            now = -gain(one)
            if queue and (now, place) > queue[0][:2]:
                heappush(queue, (now, place, one))
                continue
            if now == 0 and taken:
                return
            yield one
            taken, work = taken + 1, work + one.cost
            met |= one.fulfils
            beside |= {key: beside[key] | one.fulfils for key in keys if one.fulfils & key}

    @cached_property
    def _frames(self) -> set[Subject]:
        return {*self.reading.ends, *self.reading.numbers, self.reading.grid}

    def _bits(self) -> Iterator[tuple[Wish, int]]:
        return ((wish, 1 << number) for number, wish in enumerate(self.reading.wishes))

    # --- candidates -----------------------------------------------------------------------------

    def _candidates(self) -> Iterator[dict[Var, int]]:
        """Yield sizes: one after the other has each of its values, then all have some."""
        pools = {p: self._pool(p) for p in self.free}
        if prod(len(pool) for pool in pools.values()) <= CANDIDATES:
            for row in product(*pools.values()):
                yield dict(zip(pools, row, strict=True))
            return
        for p, pool in pools.items():
            for value in pool:
                yield {p: value} | self._middle | {p: value}
        draw = Random(0)
        for _ in range(max(DRAWN, CANDIDATES - sum(map(len, pools.values())))):
            # Twice drawn, for small ones are cheap.
            yield {p: min(draw.choice(pool), draw.choice(pool)) for p, pool in pools.items()}

    @cached_property
    def _middle(self) -> dict[Var, int]:
        """Sizes of a tile, or of two along which a loop goes, and 1 for what is no size."""
        sizes = [p for p in self.free if p in self.sizes]
        ends = [variables(end.expr) for end in self.reading.ends]
        along = {next((p for p in sizes if p in used), None) for used in ends}
        found = dict.fromkeys(self.free, 1)
        for p in sizes:
            found[p] = self.reading.tiles.get(p, 1) * (1 + (p in along))
        near = None if self._legal(found) else self._solver.nearest(None, found)
        return {p: near[p] for p in found} if near else found

    def _pool(self, var: Var) -> list[int]:
        """Return values of a parameter worth a look: few, and around what it is held against."""
        marks, unit = self.reading.marks.get(var, {1}), self._multiples.get(var, 1)
        some = {0, 1, 2, 3}
        for mark in marks:
            some |= {mark - 1, mark, mark + 1, 2 * mark - 1, 2 * mark + 1}
        tiles = {max(marks), self.reading.tiles.get(var, 1)}
        some |= {many * tile for many in self.reading.counts for tile in tiles}
        whole = {n for value in some for n in (value // unit * unit, -(-value // unit) * unit)}
        keeps = calculator([var], [e for e in self.conditions if variables(e) == {var}])
        return [n for n in sorted(whole) if 0 <= n <= LARGEST and _holds(keeps, [n])] or [unit]

    def _take(self, params: Mapping[Var, int]) -> int:
        """Look at the launch with these sizes; return bits for what it fulfils."""
        values = self._legal(params)
        if values is None or values in self.found:
            return 0
        seen = self.reading.seen(values)
        longest = [max(0, *seen[end]) if seen[end] else 0 for end in self.reading.ends]
        if max(longest, default=0) > self.turns:
            return 0
        fulfils = 0
        for subject, found in seen.items():
            points, ranges = self.by_subject[subject]
            for value in points.keys() & found:
                fulfils |= points[value]
            for low, high, bit in ranges:
                if any(low <= value <= high for value in found):
                    fulfils |= bit
        self.found[values] = _Candidate(values, fulfils, values[-1] * (1 + sum(longest)))
        return fulfils

    def _legal(self, params: Mapping[Var, int]) -> tuple[int, ...] | None:
        """Return a launch: all parameters, then CTAs; None if it breaks what the kernel needs."""
        values = [params.get(p, 0) for p in self.kernel.params]
        some = params.get(kir.GRID, GRIDS[len(self.found) % len(GRIDS)] * self.kernel.cluster)
        try:
            (grid,) = self._grid((*values, some))
        except ZeroDivisionError:
            return None
        if not 1 <= grid <= self.ctas or grid % self.kernel.cluster:
            return None
        if self.pitches:
            values = self._pitched(dict(zip(self.kernel.params, values, strict=True)))
        whole = (*values, grid)
        return whole if _holds(self._keeps, whole) else None

    @cached_property
    def _grid(self) -> Calculator:
        return calculator(self._variables, [self._fixed])

    @cached_property
    def _required(self) -> Calculator:
        """What sizes keep, whatever number of CTAs goes with them."""
        about = [e for e in self.conditions if kir.GRID not in variables(e)]
        return calculator(self._variables, about)

    @cached_property
    def _keeps(self) -> Calculator:
        room: list[Expr] = []
        for tensor in self.kernel.tensors:
            size: Expr = 1
            for extent in tensor.extents:
                size = fold(Kind.MUL, size, extent)
            room.append(fold(Kind.LE, size, ELEMENTS))
        return calculator(self._variables, [*self.conditions, *room])

    @cached_property
    def conditions(self) -> list[Expr]:
        more = [fold(Kind.EQ, fold(Kind.MOD, e, unit), 0) for e, unit in self._multiples.items()]
        return [*self.kernel.requires, *more]

    @cached_property
    def _fixed(self) -> Expr:
        for condition in self.kernel.requires:
            match condition:
                case Op(Kind.EQ, kir.GRID, number) | Op(Kind.EQ, number, kir.GRID):
                    return number
                case _:
                    pass
        return kir.GRID

    def _pitched(self, values: dict[Var, int]) -> list[int]:
        """Choose the parameters that are strides and nothing else: rows do not meet."""
        for tensor in self.kernel.tensors:
            need = 1
            for step, size in _steps(tensor):
                if isinstance(step, Var) and step in self.pitches:
                    unit = self._multiples.get(step, 1)
                    values[step] = max(values[step], -(-need // unit) * unit)
                need = max(need, _at(step, values) * max(_at(size, values), 1))
        return list(values.values())

    @cached_property
    def _multiples(self) -> dict[Expr, int]:
        """Return what has to be a multiple of what: last extents, and the distances of rows."""
        moves = kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.QueueCopy
        maps = [
            s for s in self.kernel.walk() if isinstance(s, moves) and not getattr(s, "bulk", False)
        ]
        sides = [x for s in maps for x in (s.dst, s.src)]
        copied = {side.tensor.name for side in sides if isinstance(side, kir.Box)}
        found: dict[Expr, int] = {}
        for t in self.kernel.tensors:
            rows = lcm(t.aligned, TMA_BYTES // t.dtype.nbytes if t.name in copied else 1)
            whole = bool(t.extents) and t.extents[-1] != 1 and not t.ragged
            asked = [(t.extents[-1], t.aligned)] if whole else []
            for place, step in enumerate(t.strides):
                if step not in (0, 1):
                    asked.append((step, rows if place + 1 < len(t.strides) else t.aligned))
            for expr, unit in asked:
                found[expr] = lcm(found.get(expr, 1), unit)
        return {expr: unit for expr, unit in found.items() if unit > 1}

    # --- questions ------------------------------------------------------------------------------

    @property
    def _solver(self) -> Solver:
        if self.ctas not in self._solvers:
            limits = (LARGEST, self.ctas)
            self._solvers[self.ctas] = Solver(self.kernel, self.conditions, *limits)
        return self._solvers[self.ctas]

    def _repair(self, params: Mapping[Var, int]) -> None:
        """Look at the launch next to sizes that break what is required, if not for being large."""
        values = [params.get(p, 0) for p in self.kernel.params]
        if _holds(self._required, (*values, self.kernel.cluster)):
            return
        near = self._solver.nearest(None, params)
        if near is not None:
            self._take(near)

    def _ask(self, wishes: Iterable[tuple[Wish, int]]) -> int:
        """Ask for a launch for each of these wishes that is left; return bits for all met ones."""
        met = 0
        for one in self.found.values():
            met |= one.fulfils
        failed = Counter[Subject]()
        asked = 0
        for wish, bit in wishes:
            if met & bit or failed[wish.subject] == HOPELESS:
                continue
            near = self._solver.nearest(wish, self._middle)
            many = self.ctas > CLUSTERS * self.kernel.cluster
            if near and many and kir.BLOCK in variables(wish.subject.expr):
                # What a CTA does wrong may show in the next one only.
                more = {kir.GRID: near[kir.GRID] + self.kernel.cluster}
                near = self._solver.nearest(wish, more | self._middle)
            made = 0 if near is None else self._take(near)
            failed[wish.subject] += not made & bit
            met |= made
            asked += 1
            if asked == ASKED:
                break
        return met


def _holds(keeps: Calculator, values: Sequence[int]) -> bool:
    try:
        return all(keeps(values))
    except ZeroDivisionError:
        return False


def _steps(tensor: kir.Tensor) -> list[tuple[Expr, Expr]]:
    """Return stride and extent of every axis that varies, the innermost first."""
    axes = [*zip(tensor.strides, tensor.extents, strict=True)]
    return sorted((axis for axis in reversed(axes) if axis[0] != 0), key=lambda axis: axis[0] != 1)


def _at(expr: Expr, env: Mapping[Var, int]) -> int:
    found = substitute(expr, env)
    assert isinstance(found, int), f"{expr} is about the sizes of a launch"
    return found
