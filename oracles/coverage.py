"""Every element of every output is written once, and nothing outside a tensor is touched.

Notes
-----
Let M be the number of tiles and n = ceildiv(M - BLOCK, GRID) the trip count, as the kernel computes
it.  Three facts make the boxes of an output a partition, for all extents and every GRID >= 1:

1. *Grid stride.*  With 0 <= BLOCK < GRID, the numbers t = BLOCK + i * GRID for 0 <= i < n are
   those of [0, M) that leave the remainder BLOCK; over all CTAs, each number of [0, M) once.  That
   each CTA stores its tiles i = 0 ... n-1 once each is counted, trip count by trip count, as far
   as `induction` asks.
2. *Mixed radix.*  If weights W and sizes s of the digits (t // W) % s are chained (the first W is
   1, each next W is the last one times its s, the last product is M), the digits take each
   combination once.  Where M = 0 there is no t; elsewhere no s is 0, and no division is by 0.
3. *Tiles.*  With s = ceildiv(extent, T), the boxes [d * T, d * T + T) for 0 <= d < s, cut at the
   extent, partition [0, extent).

They are recognised on normal forms (`polynomial`).  Where that fails, small launches are tried one
by one: one that shows an element written twice, or never, is a finding; else nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, ceildiv, fold, substitute
from oracles import launches, shape
from oracles.arithmetic import K, N, UnsupportedError, function, replace_tree
from oracles.polynomial import Digit, Poly, Product, digit, divided, natural, poly, product
from oracles.smt import follows
from oracles.trace import Step, Trace
from oracles.verdict import Finding


@dataclass(frozen=True, slots=True)
class Covered:
    """What was found, how many claims hold, and why the rest is open."""

    checked: int
    findings: tuple[Finding, ...]
    reason: str = ""


def judge(trace: Trace, most: int, *, rlimit: int) -> Covered:
    """Judge every global access of a kernel.

    Parameters
    ----------
    trace : Trace
        The kernel.
    most : int
        Trip counts 0 ... most are counted one by one.
    rlimit : int
        Work limit of one z3 question.
    """
    kernel = trace.kernel
    checked, findings = shape.judge(trace)
    reasons: list[str] = []
    for step in trace.steps:
        for box, writes in _boxes(step):
            if box.tensor.name in kernel.outputs and not writes:
                raise UnsupportedError(f"{step.where}: reads an output of the kernel")
            if writes and box.tensor.name not in kernel.outputs:
                findings.append(_at("bounds", step, f"{box.tensor.name} is not an output"))
            wrong = _inside(trace, step, box, rlimit)
            checked += len(box.shape)
            if wrong:
                reasons.append(f"{step.where}: {wrong}")
    for name in kernel.outputs:
        wrong = _partition(trace, name, most, rlimit)
        checked += 1
        if wrong:
            reasons.append(wrong)
    if reasons and not findings and trace.trips is not None:
        findings += launches.refute(trace)
    return Covered(checked, tuple(findings), reasons[0] if reasons else "")


def _boxes(step: Step) -> list[tuple[kir.Box, bool]]:
    match step.stmt:
        case kir.TmaLoad(_, box) | kir.Load(_, kir.Box() as box):
            return [(box, False)]
        case kir.TmaStore(box) | kir.Store(kir.Box() as box):
            return [(box, True)]
        case _:
            return []


def _at(kind: str, step: Step, says: str) -> Finding:
    return Finding(kind, step.where, says)


def _inlined(trace: Trace, step: Step, expr: Expr) -> Expr:
    whole = substitute(expr, step.lets)
    return whole if trace.trips is None else replace_tree(whole, trace.trips, N)


def _inside(trace: Trace, step: Step, box: kir.Box, rlimit: int) -> str:
    """Say why a box may leave its tensor, if it may."""
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for axis, (origin, size, limit, extent) in enumerate(axes):
        bound = substitute(limit, step.lets)
        start = _inlined(trace, step, origin)
        if extent == 1 and (start, size, bound) != (0, 1, 1):
            if start == 0 and bound == 1:
                return f"axis {axis} has one element and the box {size}"
            return f"axis {axis} has one element, the box starts at {origin} and ends at {limit}"
        if poly(bound) != poly(extent) and not follows(fold(Kind.LE, bound, extent), rlimit):
            return f"limit {limit} may exceed the extent {extent}"
        if not natural(poly(start)):
            return f"origin {origin} may be negative"
    return ""


def _tiles(trace: Trace) -> Product | None:
    """Return the number of tiles M where the trip count is ceildiv(M - BLOCK, GRID)."""
    match trace.trips:
        case Op(Kind.FLOORDIV, above, by) if by == kir.GRID:
            total = above + kir.BLOCK - kir.GRID + 1 if not isinstance(above, int) else above
            return product(poly(total))
        case _:
            return None


def _place(form: Poly) -> Expr | None:
    """Return i where a tile number is BLOCK + i * GRID, as an expression over `K` and `N`."""
    index: Expr = 0
    own = 0
    for monomial, factor in form:
        names = [atom[0] for atom in monomial]
        if names == [kir.BLOCK.name]:
            own = factor
        elif kir.GRID.name in names and len(names) <= 2:
            names.remove(kir.GRID.name)
            if names not in ([], [K.name], [N.name]):
                return None
            index = index + factor * (Var(str(names[0])) if names else 1)
        else:
            return None
    return index if own == 1 else None


def _partition(trace: Trace, name: str, most: int, rlimit: int) -> str:
    """Say why the boxes of an output may not be a partition of it, if they may not."""
    tiles = _tiles(trace)
    if tiles is None:
        return f"the trip count {trace.trips} is no grid stride"
    stores: list[tuple[Step, Expr]] = []
    for step in trace.steps:
        for box, writes in _boxes(step):
            if not writes or box.tensor.name != name:
                continue
            place = _tiled(trace, step, box, tiles, rlimit)
            if isinstance(place, str):
                return f"{step.where}: {place}"
            stores.append((step, place.index))
    wanted = function_of(stores)
    for n in range(most + 1):
        found = sorted(index for step, at in wanted for index in _runs(trace, step, n, at))
        if found != list(range(n)):
            return f"{name}: the CTA stores tiles {found} of its {n} (trips={n})"
    return ""


@dataclass(frozen=True, slots=True)
class _Place:
    index: Expr


def function_of(stores: list[tuple[Step, Expr]]) -> list[tuple[Step, object]]:
    """Compile the tile indices of some stores."""
    return [(step, function(index)) for step, index in stores]


def _runs(trace: Trace, step: Step, n: int, at: object) -> list[int]:
    assert callable(at), "made by `function`"
    stop = max(0, step.loop.stop(0, n)) if step.loop is not None else 1
    return [at(k, n) for k in range(stop) if step.runs(k, n)]


def _tiled(trace: Trace, step: Step, box: kir.Box, tiles: Product, rlimit: int) -> _Place | str:
    """Return which tile a box is, or why it is none of a partition."""
    digits: list[tuple[Digit, Product]] = []
    tile: Poly | None = None
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for origin, size, limit, extent in axes:
        bound = substitute(limit, step.lets)
        if poly(bound) != poly(extent) and not follows(fold(Kind.EQ, bound, extent), rlimit):
            return f"limit {limit} may fall short of the extent {extent}"
        start = poly(_inlined(trace, step, origin))
        if not start and isinstance(extent, int) and 1 <= extent <= size:
            continue
        unit = divided(start, size)
        read = digit(unit) if unit is not None else None
        if read is None:
            return f"origin {origin} is no multiple of {size} of a digit of the tile number"
        if tile is not None and read.tile != tile:
            return "its axes belong to different tile numbers"
        tile = read.tile
        count = product(poly(ceildiv(extent, size)))
        if count is None:
            return f"extent {extent} has no number of tiles"
        digits.append((read, count))
    if tile is None:
        return "it does not depend on the tile number"
    if not _chained(digits, tiles):
        return f"its origin does not count through the {trace.trips} tiles"
    index = _place(tile)
    return "its tile number is not BLOCK + i * GRID" if index is None else _Place(index)


def _chained(digits: list[tuple[Digit, Product]], tiles: Product) -> bool:
    """Whether digits of these sizes are a mixed radix system for [0, tiles)."""
    left = list(digits)
    weight = Product()
    while left:
        for entry in left:
            read, count = entry
            last = len(left) == 1 and read.size is None
            if read.weight == weight and (last or read.size == count):
                weight = weight.times(count)
                left.remove(entry)
                break
        else:
            return False
    return weight == tiles
