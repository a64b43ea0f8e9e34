"""Every element of every output is written once, and nothing outside a tensor is touched.

`shape` says what each access needs on its own, `partition` proves for all extents and grids that
the boxes of an output are a partition of it.  A kernel whose boxes depend on no parameter has one
launch, which `tiles` counts.  Where no proof is found, `tiles` tries small launches one by one: one
that shows an element written twice, or never, is a finding; else nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.coverage import accesses, partition
from oracles.prover.coverage import boxes as tiles
from oracles.prover.polynomial import natural, poly
from oracles.prover.sites import Site, fixed_grid
from oracles.prover.solver import Known
from oracles.verdict import Finding


@dataclass(frozen=True, slots=True)
class Covered:
    """What was found, how many claims hold, and why the rest is open."""

    checked: int
    findings: tuple[Finding, ...]
    reason: str = ""


def covered(kernel: kir.Kernel, *, rlimit: int) -> Covered:
    """Judge every global access of a kernel, in every launch that it allows.

    Parameters
    ----------
    kernel : Kernel
        A valid kernel.
    rlimit : int
        Work limit of one z3 question.

    Returns
    -------
    Covered
        With findings if something is wrong in some launch, or with a reason if that is not known;
        with neither, every output is covered and no access leaves its tensor.

    Raises
    ------
    UnsupportedError
        If a computation mixes layouts.
    """
    found = sites.read(kernel)
    checked, findings = accesses.judge(found)
    known = Known(sites.facts(kernel), rlimit)
    boxes = [(site, box) for site in found if (box := sites.touches(site.stmt)) is not None]
    for site, box in boxes:
        written = sites.reads(site.stmt) is None
        if written and box.tensor.name not in (*kernel.outputs, *kernel.workspaces):
            findings.append(_at("bounds", site, f"{box.tensor.name} is not an output"))
    counted = _counted(kernel, found)
    if counted is not None:
        return Covered(checked + counted.checked, (*findings, *counted.findings))
    reasons: list[str] = []
    for site, box in boxes:
        wrong_axis = _inside(site, box, known)
        checked += len(box.shape)
        if wrong_axis:
            reasons.append(f"{site.where}: {wrong_axis}")
    for tensor in kernel.tensors:
        if tensor.name in kernel.outputs:
            checked += 1
            wrong_tiles = partition.judge(kernel, found, tensor, known)
            if wrong_tiles:
                reasons.append(wrong_tiles)
    if reasons and not findings:
        refuted = tiles.refuted(kernel, found)
        findings += [] if refuted is None else [refuted]
    return Covered(checked, tuple(findings), reasons[0] if reasons else "")


def _one_launch(kernel: kir.Kernel, found: tuple[Site, ...]) -> bool:
    """Whether all launches access global memory in the same way: one grid, no parameter."""
    if not isinstance(fixed_grid(kernel), int) or tiles.left_out(kernel, found):
        return False
    if any(variables(e) for t in kernel.tensors if t.name in kernel.outputs for e in t.extents):
        return False
    for site in found:
        box = sites.touches(site.stmt)
        if box is not None:
            own = {turn.index for turn in site.loops} | {kir.BLOCK}
            exprs: list[Expr] = [site.plain(e) for e in (*box.origin, *box.limit)]
            exprs += [*site.guards, *(turn.stop for turn in site.loops), *box.tensor.extents]
            if not all(variables(expr) <= own for expr in exprs):
                return False
    return True


def _counted(kernel: kir.Kernel, found: tuple[Site, ...]) -> Covered | None:
    """Count the boxes of the only launch; None if there are other launches, or too many boxes."""
    if not _one_launch(kernel, found):
        return None
    grid = fixed_grid(kernel)
    assert isinstance(grid, int), "the only launch has one grid"
    read = tiles.readings(found)
    try:
        wrong = tiles.wrong_in(kernel, read, {kir.GRID.name: grid}, frozenset())
    except ZeroDivisionError:
        wrong = Finding("bounds", kernel.name, "an index divides by 0")
    except tiles.TooManyError:
        return None
    checked = len(read) + len(kernel.outputs)
    if wrong is None:
        return Covered(checked, ())
    says = f"for every launch: {wrong.witness}"
    return Covered(checked, (replace(wrong, witness=says),))


def _at(kind: str, site: Site, says: str) -> Finding:
    return Finding(kind, site.where, says, lines=(site.line,))


def _inside(site: Site, box: kir.Box, known: Known) -> str:
    """Say why a box may leave its tensor, if it may."""
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for axis, (origin, size, limit, extent) in enumerate(axes):
        bound, start = site.plain(limit), site.plain(origin)
        if sites.unknown((bound, start)):
            return f"axis {axis} depends on a value that an assignment changes"
        if extent == 1 and (start, size, bound) != (0, 1, 1):
            if start == 0 and bound == 1:
                return f"axis {axis} has one element and the box {size}"
            return f"axis {axis} has one element, the box starts at {origin} and ends at {limit}"
        if not known.at_most(bound, extent):
            return f"limit {limit} may exceed the extent {extent}"
        turns = tuple(turn.index < turn.stop for turn in site.loops)
        if not natural(poly(start)) and not known.gives(
            fold(Kind.LE, 0, start), *turns, *site.guards
        ):
            return f"origin {origin} may be negative"
    return ""
