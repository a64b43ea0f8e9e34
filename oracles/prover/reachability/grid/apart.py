"""CTAs that nothing orders touch different elements of what they share.

CTAs of one group are followed together (`groups`); of all others it is asked here whether
their boxes can meet: small launches are tried one by one, and a proof is sought for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations

from fuser.expr import Expr, Kind, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import launches, sites
from oracles.prover.arithmetic import (
    Poly,
    UnsupportedError,
    Values,
    function,
    linear,
    poly,
    replace_tree,
    tree,
)
from oracles.prover.coverage.outputs import Reading, Span, readings
from oracles.prover.reachability.grid.groups import group_of
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.step import Scene
from oracles.prover.sites import AMONG_CTAS, Site, adds, fixed_grid
from oracles.prover.solver import Known

BOXES = 600
"""Boxes of one launch that are compared with each other."""
LAUNCHES = 60
"""Launches that are tried."""
RLIMIT = 2_000_000
"""Work limit of a question about boxes, in z3's units."""
_GROUP = Var("number of the CTAs that are followed together")
_PLACE = Var("place among the CTAs that are followed together")


def apart(scene: Scene) -> None:
    """Judge CTAs that nothing orders; it may stay open whether they meet."""
    kernel, tracked = scene.world.kernel, scene.world.layout.tracked
    if not tracked or fixed_grid(kernel) == kernel.cluster:
        return
    found = sites.read(kernel)
    group, tile = _group(kernel)
    if group == 0:
        return
    open_ones = []
    for name in sorted(tracked):
        mine = [s for s in found if (box := sites.touches(s.stmt)) and box.tensor.name == name]
        scene.findings.ask()
        if not (
            _adding(kernel, mine)
            or _spaced(mine, tile)
            or _packed(kernel, mine)
            or _as_outputs(kernel, found, mine)
        ):
            says = f"nothing shows that other CTAs touch other elements of {name}"
            open_ones.append(f"{mine[0].where}: {says}")
    boxes = [r for r in readings(found) if r.box.tensor.name in tracked]
    if open_ones and not _refuted(scene, boxes, group):
        scene.findings.doubts(open_ones[0])


def _group(kernel: kir.Kernel) -> tuple[Expr, Expr]:
    """Return what tells CTAs apart that are not followed together; 0 if all are.

    And what only those have in common at any time, also where they go from one tile to the next.
    """
    if any(isinstance(s, AMONG_CTAS) for s in kernel.walk()):
        ctas = group_of(kernel)
        return ctas.number, ctas.index
    return kir.BLOCK // kernel.cluster, kir.BLOCK // kernel.cluster


def _refuted(scene: Scene, boxes: list[Reading], group: Expr) -> bool:
    """Search for a small launch in which two CTAs that nothing orders touch the same elements."""
    number, kernel = function(group), scene.world.kernel
    writers = [r for r in boxes if sites.reads(r.site.stmt) is None]
    if not writers:
        return False
    few = launches.small(kernel, clusters=2)
    small = ({**one.params, kir.GRID.name: one.grid} for one in few)
    for tried, values in enumerate(chain(small, launches.some_launches(kernel))):
        if tried >= LAUNCHES:
            return False
        try:
            grid = range(min(values[kir.GRID.name], 4 * kernel.cluster))
            here = [{**values, kir.BLOCK.name: block} for block in grid]
            seen = [(number(v), r, spans) for v in here for r in boxes for spans in _spans(r, v)]
        except ZeroDivisionError:
            continue
        for (one, a, left), (two, b, right) in combinations(seen[:BOXES], 2):
            near = one != two and a.box.tensor == b.box.tensor and _meet(left, right)
            if near and _wrong(scene, a.site, b.site, values):
                return True
    return False


def _spans(reading: Reading, values: Values) -> Iterator[Span]:
    for _, spans in reading.boxes(values):
        yield spans


def _meet(a: Span, b: Span) -> bool:
    return all(max(p[0], q[0]) < min(p[1], q[1]) for p, q in zip(a, b, strict=True))


def _wrong(scene: Scene, one: Site, two: Site, values: Values) -> bool:
    """Record that two CTAs touch the same elements unordered, if that is wrong."""
    first, second = sites.reads(one.stmt) is None, sites.reads(two.stmt) is None
    if not first and not second:
        return False
    rule = Rule.WAW
    if adds(one.stmt) and type(one.stmt) is type(two.stmt):
        if scene.world.kernel.determinism != "bitwise":
            return False
        rule = Rule.DETERMINISM
    elif not (first and second):
        rule = Rule.RAW
        one, two = (two, one) if not first else (one, two)
    at = {site.line: site for site in scene.world.code.sites}
    shown = ", ".join(f"{k}={v}" for k, v in sorted(values.items()) if k != kir.BLOCK.name)
    says = f"with {shown} two CTAs touch the same elements, and nothing orders them"
    found = scene.violation(rule, at[two.line], says)
    scene.findings.record(replace(found, earlier=at[one.line]))
    return rule not in scene.findings.off


def _adding(kernel: kir.Kernel, mine: list[Site]) -> bool:
    """Whether all that happens is that CTAs add, in any order."""
    unordered = kernel.determinism != "bitwise"
    same = len({type(site.stmt) for site in mine}) == 1
    return unordered and same and all(adds(site.stmt) for site in mine)


def _origin(site: Site) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
    box = sites.touches(site.stmt)
    assert box is not None, "accesses of global memory only"
    return tuple(site.plain(e) for e in box.origin), box.shape


def _spaced(mine: list[Site], tile: Expr) -> bool:
    """Whether, along some axis, the boxes of tiles lie one behind the other."""
    placed = [_origin(site) for site in mine]
    if any(sites.unknown(origin) for origin, _ in placed):
        return False
    for axis in range(len(placed[0][1])):
        forms = [
            (linear(replace_tree(origin[axis], site.plain(tile), _GROUP)), shape[axis])
            for site, (origin, shape) in zip(mine, placed, strict=True)
        ]
        steps = {tuple(parts.items()) for (_, parts), _ in forms}
        if len(steps) == 1:
            ((atom, times),) = pairs if len(pairs := steps.pop()) == 1 else ((0, 0),)
            low = min(start for (start, _), _ in forms)
            if atom == _GROUP and max(start + size for (start, _), size in forms) - low <= times:
                return True
    return False


def _packed(kernel: kir.Kernel, mine: list[Site]) -> bool:
    """Whether, along some axis, each group's boxes lie in a stretch of its own.

    Origins are `group * P + rest` with one P, and z3 shows `0 <= rest` and `rest + size <= P`.
    Where groups walk from tile to tile, they are `tile * P + rest`.
    """
    try:
        ctas = group_of(kernel)
    except UnsupportedError:
        return False
    placed = [_origin(site) for site in mine]
    if ctas.number == 0 or any(sites.unknown(origin) for origin, _ in placed):
        return False
    known = Known([*sites.facts(kernel), fold(Kind.LT, _PLACE, ctas.count)], RLIMIT)

    def named(site: Site, expr: Expr) -> Expr:
        tile = site.plain(ctas.index)
        there = replace_tree(replace_tree(expr, tile, _GROUP), ctas.place, _PLACE)
        # Where each CTA has one tile, its number says the same.
        one = ctas.consecutive and tile == ctas.number
        return substitute(there, {kir.BLOCK: _GROUP * ctas.count + _PLACE}) if one else there

    def inside(site: Site, origin: Expr, size: int, pitch: Poly) -> bool:
        rest = tree(_divided(poly(named(site, origin)))[1])
        ends = (loop.index < loop.stop for loop in site.loops)
        premises = [named(site, site.plain(e)) for e in (*ends, *site.guards)]
        begins = known.gives(fold(Kind.LE, 0, rest), *premises)
        return begins and known.at_most(rest + size, tree(pitch), *premises)

    for axis in range(len(placed[0][1])):
        boxes = list(zip(mine, placed, strict=True))
        pitches = {_divided(poly(named(site, origin[axis])))[0] for site, (origin, _) in boxes}
        pitch = pitches.pop()
        if pitch and not pitches and all(inside(s, o[axis], n[axis], pitch) for s, (o, n) in boxes):
            return True
    return False


def _divided(form: Poly) -> tuple[Poly, Poly]:
    """Return what the number of a group is multiplied by, and the rest; no factor if by itself."""
    group = (_GROUP.name,)
    times = [(m, f) for m, f in form if group in m]
    factor = frozenset((tuple(a for a in m if a != group), f) for m, f in times)
    once = all(m.count(group) == 1 for m, _ in times)
    return (factor if once else frozenset()), form - {*times}


def _as_outputs(kernel: kir.Kernel, found: tuple[Site, ...], mine: list[Site]) -> bool:
    """Whether the boxes lie as those of an output, of which every element is written once.

    Each group of CTAs writes the output's box, or none of them does: no guard tells groups apart.
    """
    for site in found:
        box = sites.writes(site.stmt)
        if box is None or box.tensor.name not in kernel.outputs or site.loops:
            continue
        same = all(not one.loops and _origin(one) == _origin(site) for one in mine)
        if same and not any(_tells(kernel, guard) for guard in site.guards):
            return True
    return False


def _tells(kernel: kir.Kernel, guard: Expr) -> bool:
    """Whether a guard may hold in one group of CTAs and not in another."""
    try:
        ctas = group_of(kernel)
    except UnsupportedError:
        return kir.BLOCK in variables(guard)
    place: Expr = Var("place")
    return kir.BLOCK in variables(replace_tree(guard, ctas.place, place))
