"""Small launches of a kernel: the fewest elements with which its loops run 0, 1, 2, ... times.

Candidates for a parameter are multiples of the numbers by which the kernel divides it, and their
neighbours, so that tiles come whole and cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import lcm, prod

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, substitute, variables

GRIDS = 16
"""CTAs that are tried at most."""
COMBINATIONS = 20_000
"""Combinations of parameters that are looked at."""
_TMA_BYTES = 16
"""Strides that a tensor map takes are multiples of it; PTX ISA, "tensor map"."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A launch, and how often the loops of its first CTA run.

    Parameters
    ----------
    grid : int
        CTAs.
    params : mapping of str to int
        A value for every parameter of the kernel.
    trips : mapping of str to int
        By the index of the loop; loops whose end the launch alone does not settle are left out.
    """

    grid: int
    params: Mapping[str, int]
    trips: Mapping[str, int]

    def __str__(self) -> str:
        loops = ", ".join(f"{name} runs {count}x" for name, count in self.trips.items())
        return f"{settings(self.grid, self.params)}" + (f" ({loops})" if loops else "")


def settings(grid: int | None, params: Mapping[str, int]) -> str:
    """Write a launch as it is asked for on the command line."""
    head = [] if grid is None else [f"--grid {grid}"]
    return " ".join([*head, *(f"--set {n}={v}" for n, v in params.items())])


def trials(kernel: kir.Kernel, most: int = 3) -> list[Trial]:
    """Return small launches in which the loops run 0, 1, ..., `most` times, fewest first.

    For each count the smallest launch that gives it to all loops, or to as many as can have it at
    once; then the smallest with more CTAs.  A kernel without a loop of symbolic length gets
    launches by their CTAs alone; one of which no small launch keeps what it `requires` gets none.
    """
    best: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[int, Trial]] = {}
    for values in islice(_choices(kernel, most), COMBINATIONS):
        for grid in range(kernel.cluster, GRIDS + 1, kernel.cluster):
            at = {**values, kir.GRID.name: grid, kir.BLOCK.name: 0, kir.RANK.name: 0}
            if broken(kernel, at):
                continue
            counts = trips(kernel, at)
            key = grid, tuple(counts.items())
            size = _elements(kernel, at)
            if max(counts.values(), default=0) <= most and size < best.get(key, (size + 1,))[0]:
                best[key] = size, Trial(grid, values, counts)
    return _picked(best.values(), most)


def _picked(found: Iterable[tuple[int, Trial]], most: int) -> list[Trial]:
    picked: list[Trial] = []

    def pick(pairs: Iterable[tuple[int, Trial]], count: int) -> None:
        ranked = sorted(
            pairs, key=lambda p: (-list(p[1].trips.values()).count(count), p[1].grid, p[0])
        )
        if ranked and ranked[0][1] not in picked:
            picked.append(ranked[0][1])

    pairs = list(found)
    for count in range(most + 1):
        pick((p for p in pairs if count in p[1].trips.values()), count)
    for grid in sorted({trial.grid for _, trial in pairs})[:3]:
        if not any(t.grid == grid and all(t.trips.values()) for t in picked):
            pick((p for p in pairs if p[1].grid == grid and all(p[1].trips.values())), -1)
    return picked


def broken(kernel: kir.Kernel, at: Mapping[str, int]) -> str:
    """Say which precondition of the kernel a launch breaks; empty if none."""
    for condition in kernel.requires:
        if not _value(condition, at):
            return f"it requires {condition}"
    if at[kir.GRID.name] % kernel.cluster:
        return f"the grid must be a multiple of the cluster of {kernel.cluster}"
    moved = {box.tensor.name for stmt in kernel.walk() for box in _tma_boxes(stmt)}
    for tensor in kernel.tensors:
        extents = [_value(e, at) for e in tensor.extents]
        strides = [_value(s, at) for s in tensor.strides]
        bent = [s for e, s in zip(tensor.strides, strides, strict=True) if e != 1 and s]
        if any(s % tensor.aligned for s in bent) or (
            extents and tensor.extents[-1] != 1 and extents[-1] % tensor.aligned
        ):
            says = f"extents {tuple(extents)}, strides {tuple(strides)}"
            return f"{tensor.name} is aligned to {tensor.aligned} elements, not so with {says}"
        rows = zip(extents[:-1], strides[:-1], strict=True)
        if tensor.name in moved and any(
            n > 1 and s * tensor.dtype.nbytes % _TMA_BYTES for n, s in rows
        ):
            return f"{tensor.name} is copied by TMA: strides must be multiples of 16 bytes"
    return ""


def _tma_boxes(stmt: kir.Stmt) -> list[kir.Box]:
    match stmt:
        case kir.TmaLoad(_, box):
            return [box]
        case kir.TmaStore(box) | kir.TmaReduce(box):
            return [box]
        case _:
            return []


def _choices(kernel: kir.Kernel, most: int) -> Iterator[dict[str, int]]:
    shaping = {v for t in kernel.tensors for e in t.extents for v in variables(e)}
    pitches = {v for t in kernel.tensors for e in t.strides for v in variables(e)} - shaping
    free = [p for p in kernel.params if p not in pitches]
    units = _units(kernel)
    picks = [_candidates(units.get(p, set()), most, extent=p in shaping) for p in free]
    for values in _small_first(picks):
        at = {p.name: v for p, v in zip(free, values, strict=True)}
        yield {p.name: at[p.name] for p in kernel.params if p.name in at} | {
            p.name: _pitch(kernel, p, at) for p in kernel.params if p in pitches
        }


def _small_first(picks: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """Every combination of candidates, those with small positions first."""
    sizes = [range(len(pick)) for pick in picks]
    for spots in sorted(islice(product(*sizes), COMBINATIONS), key=sum):
        yield tuple(pick[i] for pick, i in zip(picks, spots, strict=True))


def _candidates(units: set[int], most: int, *, extent: bool) -> list[int]:
    found = {0, 1} if extent else set(range(most + 1))
    for unit in units:
        for count in range(1, most + 1):
            found |= {unit * count, max(unit * count - unit // 2, 1)}
    return sorted(found)


def _units(kernel: kir.Kernel) -> dict[Var, set[int]]:
    """Return the numbers that each parameter is divided by, or must be a multiple of."""
    units: dict[Var, set[int]] = {}
    for tensor in kernel.tensors:
        for extent in tensor.extents[-1:]:
            for var in variables(extent):
                units.setdefault(var, set()).add(tensor.aligned)
    lets: dict[Var, Expr] = {}
    for expr in _expressions(kernel, lets):
        _divisors(expr, units)
    for var, found in units.items():
        base = lcm(*(u for u in found if u & (u - 1) == 0)) if found else 1
        units[var] = {u for u in found if u > 1} | {base}
    return units


def _expressions(kernel: kir.Kernel, lets: dict[Var, Expr]) -> Iterator[Expr]:
    yield from kernel.requires
    for stmt in kernel.walk():
        match stmt:
            case kir.Let(var, value):
                lets[var] = substitute(value, lets)
                yield lets[var]
            case kir.ForLoop(_, stop):
                yield substitute(stop, lets)
            case kir.IfThenElse(condition):
                yield substitute(condition, lets)
            case _:
                pass


def _divisors(expr: Expr, units: dict[Var, set[int]]) -> None:
    if not isinstance(expr, Op):
        return
    if expr.kind in (Kind.FLOORDIV, Kind.MOD) and isinstance(expr.b, int):
        for var in variables(expr.a):
            units.setdefault(var, set()).add(expr.b)
    _divisors(expr.a, units)
    _divisors(expr.b, units)


def _pitch(kernel: kir.Kernel, pitch: Var, at: Mapping[str, int]) -> int:
    """Return a dense stride, rounded up to what its tensors are aligned to."""
    most, unit = 1, 1
    for tensor in kernel.tensors:
        if pitch in tensor.strides:
            axis = tensor.strides.index(pitch)
            inner = prod(max(_value(e, at), 1) for e in tensor.extents[axis + 1 :])
            most = max(most, inner)
            unit = lcm(unit, tensor.aligned, max(_TMA_BYTES // tensor.dtype.nbytes, 1))
    return -(-most // unit) * unit


def trips(kernel: kir.Kernel, at: Mapping[str, int]) -> dict[str, int]:
    """Return how often each loop runs in a launch, where the launch alone settles it."""
    known = dict(at)
    counts: dict[str, int] = {}
    moving = {stmt.var.name for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}
    for stmt in kernel.walk():
        match stmt:
            case kir.Let(var, value) if var.name not in moving and _known(value, known):
                known[var.name] = _value(value, known)
            case kir.ForLoop(index, stop) if not isinstance(stop, int) and _known(stop, known):
                counts.setdefault(index.name, max(_value(stop, known), 0))
            case _:
                pass
    return counts


def _elements(kernel: kir.Kernel, at: Mapping[str, int]) -> int:
    return sum(prod(_value(e, at) for e in t.extents) for t in kernel.tensors)


def _known(expr: Expr, at: Mapping[str, int]) -> bool:
    return all(var.name in at for var in variables(expr))


def _value(expr: Expr, at: Mapping[str, int]) -> int:
    match expr:
        case int():
            return expr
        case Var(name):
            return at[name]
        case Op(kind, a, b):
            return _apply(kind, _value(a, at), _value(b, at))


def _apply(kind: Kind, a: int, b: int) -> int:
    match kind:
        case Kind.ADD:
            return a + b
        case Kind.SUB:
            return a - b
        case Kind.MUL:
            return a * b
        case Kind.FLOORDIV:
            return a // b if b else 0
        case Kind.MOD:
            return a % b if b else 0
        case Kind.MIN:
            return min(a, b)
        case Kind.MAX:
            return max(a, b)
        case Kind.LT:
            return int(a < b)
        case Kind.LE:
            return int(a <= b)
        case Kind.EQ:
            return int(a == b)
        case Kind.AND:
            return int(bool(a) and bool(b))
