"""Small launches, tried one by one: what a proof that fails may be refuted with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import lcm

from fuser import kernel_ir as kir
from fuser.expr import Expr, Var, substitute, variables
from oracles.arithmetic import K, N, NegativeError, replace_tree, spell
from oracles.trace import Step, Trace
from oracles.verdict import Finding

LAUNCHES = 400
"""Launches that are tried at most; a few milliseconds."""
TRIPS = 40
"""Trips of a CTA in a launch that is tried at most; what is wrong shows in few."""
_Values = Mapping[str, int]
_Function = Callable[[_Values], int]


def _function(expr: Expr) -> _Function:
    """Return an expression over any variables as a function of their values by name."""
    names = {var: f"v[{var.name!r}]" for var in variables(expr)}
    made: _Function = eval(
        f"lambda v: {spell(expr, names, checked=False)}", {"min": min, "max": max}
    )
    return made


def launch(trace: Trace, trips: int) -> dict[str, int] | None:
    """Return parameters of a launch with one CTA that runs so many trips, if one is found.

    One parameter at a time is made large enough, all others being 1.
    """
    if trace.trips is None:
        return {}
    value = _function(trace.trips)
    free = sorted(variables(trace.trips) - {kir.BLOCK, kir.GRID}, key=str)
    at = {var.name: 1 for var in free} | {kir.BLOCK.name: 0, kir.GRID.name: 1}
    for var in free:
        low, high = 0, 1 << 24
        while low < high:
            middle = (low + high) // 2
            if value({**at, var.name: middle}) < trips:
                low = middle + 1
            else:
                high = middle
        if value({**at, var.name: low}) == trips:
            return {**at, var.name: low}
    return None


def refute(trace: Trace) -> list[Finding]:
    """Search for a small launch in which a box leaves its tensor or an output is not covered."""
    found: dict[str, Finding] = {}
    for values in _launches(trace):
        try:
            wrong = _wrong(trace, values)
        except (NegativeError, ZeroDivisionError):
            wrong = ("bounds", trace.kernel.name, "an index divides by 0")
        if wrong is not None:
            kind, where, says = wrong
            names = ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
            at = _trips(trace, {**values, kir.BLOCK.name: 0})
            found.setdefault(kind, Finding(kind, where, f"trips={at}, {names}: {says}"))
            break
    return list(found.values())


def _launches(trace: Trace) -> Iterator[dict[str, int]]:
    """Extents around multiples of the tile, few CTAs; smallest first."""
    sizes: dict[Var, int] = dict.fromkeys(trace.kernel.params, 1)
    shaping: set[Var] = set()
    for stmt in trace.kernel.walk():
        for box in _boxes(stmt):
            for extent, size in zip(box.tensor.extents, box.shape, strict=True):
                for var in variables(extent):
                    sizes[var] = max(sizes.get(var, 1), size)
                    shaping.add(var)
    units = {
        var: lcm(*(t.aligned for t in trace.kernel.tensors)) or 1
        for t in trace.kernel.tensors
        for var in variables(t.extents[-1])
    }
    names = sorted(shaping, key=str)
    choices = []
    for var in names:
        t, unit = sizes[var], units.get(var, 1)
        choices.append(sorted({-(-x // unit) * unit for x in (0, 1, t, t + 1, 2 * t + 1, 3 * t)}))
    rest = {var.name: 1 for var in trace.kernel.params}
    tried = 0
    for grid in (1, 2, 3):
        for values in product(*choices):
            tried += 1
            if tried > LAUNCHES:
                return
            launched = {
                **rest,
                **{v.name: x for v, x in zip(names, values, strict=True)},
                kir.GRID.name: grid,
            }
            if _legal(trace.kernel, launched):
                yield launched


def _legal(kernel: kir.Kernel, values: _Values) -> bool:
    """Whether the last extents are multiples of what the tensors are aligned to."""
    return all(_function(t.extents[-1])(values) % t.aligned == 0 for t in kernel.tensors)


def _boxes(stmt: kir.Stmt) -> list[kir.Box]:
    match stmt:
        case kir.TmaLoad(_, box) | kir.Load(_, kir.Box() as box):
            return [box]
        case kir.TmaStore(box) | kir.Store(kir.Box() as box):
            return [box]
        case _:
            return []


def _trips(trace: Trace, values: _Values) -> int:
    return 0 if trace.trips is None else max(0, _function(trace.trips)(values))


class _Reading:
    """The boxes of a step as functions of the launch."""

    def __init__(self, trace: Trace, step: Step, box: kir.Box) -> None:
        def made(expr: Expr) -> _Function:
            whole = substitute(expr, step.lets)
            return _function(whole if trace.trips is None else replace_tree(whole, trace.trips, N))

        self.step, self.box = step, box
        self.origin = [made(e) for e in box.origin]
        self.limit = [made(e) for e in box.limit]
        self.extents = [_function(e) for e in box.tensor.extents]
        self.writes = isinstance(step.stmt, kir.Store | kir.TmaStore)


def _wrong(trace: Trace, values: _Values) -> tuple[str, str, str] | None:
    """Return what goes wrong in one launch: kind, place and words."""
    readings = [_Reading(trace, s, box) for s in trace.steps for box in _boxes(s.stmt)]
    written: dict[str, list[list[tuple[int, int]]]] = {}
    for block in range(values[kir.GRID.name]):
        here = {**values, kir.BLOCK.name: block}
        n = _trips(trace, here)
        if n > TRIPS:
            return None
        for reading in readings:
            step, box = reading.step, reading.box
            stop = max(0, step.loop.stop(0, n)) if step.loop is not None else 1
            for k in range(stop):
                if not step.runs(k, n):
                    continue
                now = {**here, K.name: k, N.name: n}
                spans = []
                for axis, size in enumerate(box.shape):
                    start = reading.origin[axis](now)
                    end = min(start + size, reading.limit[axis](now))
                    spans.append((start, end))
                if any(start >= end for start, end in spans):
                    continue
                for (start, end), extent in zip(spans, reading.extents, strict=True):
                    if start < 0 or end > extent(now):
                        says = f"CTA {block}, k={k}: {start}..{end} leaves 0..{extent(now)}"
                        return "bounds", step.where, says
                if reading.writes:
                    written.setdefault(box.tensor.name, []).append(spans)
    for tensor in trace.kernel.tensors:
        if tensor.name in trace.kernel.outputs:
            wrong = _cover(tensor, values, written.get(tensor.name, []))
            if wrong:
                return "coverage", tensor.name, wrong
    return None


def _cover(tensor: kir.Tensor, values: _Values, boxes: list[list[tuple[int, int]]]) -> str:
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            both = [(max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True)]
            if all(start < end for start, end in both):
                return f"element {tuple(start for start, _ in both)} is written twice"
    total = 1
    for extent in tensor.extents:
        total *= _function(extent)(values)
    for box in boxes:
        size = 1
        for start, end in box:
            size *= end - start
        total -= size
    return f"{total} elements are never written" if total else ""
