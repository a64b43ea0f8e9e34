"""How the statements of a kernel spread the tiles they access over threads.

Source: PTX ISA, "wgmma.mma_async, shared memory matrix layout", "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from fuser.kernel import ir as kir
from oracles.prover.reachability.program.code import Site
from oracles.prover.reachability.program.tiles import Meet, Spread

Storage = Mapping[str, str]
"""The one name by which buffers of one shape in one place go."""


def ordinary(site: Site, storage: Storage) -> Spread | None:
    """Return how an ordinary access, or a cp.async, spreads its tile; None of any other."""
    matrix = isinstance(site.stmt, kir.Load | kir.Store) and site.stmt.matrix
    match site.stmt:
        case kir.Load(kir.Fragment(_, _, layout), kir.Slot(buffer)):
            name, shape = storage[buffer.name], buffer.shape
        case kir.Store(kir.Slot(buffer), kir.Fragment(_, _, layout)):
            name, shape = storage[buffer.name], buffer.shape
        case kir.CpAsync(kir.Slot(buffer), _, layout):
            name, shape = storage[buffer.name], buffer.shape
        case kir.Load(kir.Fragment(_, _, layout), kir.Box(tensor, _, shape)):
            name = tensor.name
        case kir.Store(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
            name = tensor.name
        case kir.AtomicAdd(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
            name = tensor.name
        case _:
            return None
    return Spread(name, layout, shape, site.place.first * kir.WARP, matrix)


def operand(site: Site, storage: Storage) -> tuple[str, Spread] | None:
    """Return the `a` of a wgmma, and how warpgroups read their rows of it.

    None where each reads all of it, as far as is known.
    """
    match site.stmt:
        case kir.Wgmma(acc, kir.Slot(a)) if all(a != b.buffer for b in site.stmt.columns):
            layout, turned = acc.layout, site.stmt.a_transposed
            whole = layout.threads == site.place.warps * kir.WARP
            fits = len(a.shape) > 1 and a.shape[-1 if turned else -2] == prod(layout.shape[:-1])
            if not (whole and fits) or layout.threads % kir.WARPGROUP:
                return None
            first, name = site.place.first * kir.WARP, storage[a.name]
            return a.name, Spread(name, layout, a.shape, first, operand=True, turned=turned)
        case _:
            return None


def each_by_one(found: Mapping[tuple[int, int], Meet]) -> dict[tuple[int, int], Meet]:
    """Return how executions of one matrix access meet.

    In one execution no two lanes touch an element, and kinds of lanes are compared there first.  Of
    one kind it is always an earlier execution, which a join of the warp orders for the other kind
    too.
    """
    return {(x, y): how for (x, y), how in found.items() if x == y or how is not Meet.WARP}
