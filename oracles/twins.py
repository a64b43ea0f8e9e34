"""Shared buffers that are the same up to their name: one of them is followed for all.

Two buffers are twins if every statement that touches one has a neighbour that touches the other in
the same way: the same threads, slots, guards, barrier and layout, and no synchronising statement
between the two.  Renaming one buffer to the other then maps the order of events onto itself, so
that what holds of one holds of both; several inputs behind one full barrier are the usual case.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser import kernel_ir as kir
from fuser.expr import Expr
from oracles.footprint import Access, Footprints, Key
from oracles.trace import Program, Step


def followed(footprints: Footprints) -> tuple[tuple[Program, ...], frozenset[int]]:
    """Return the programs without the ordinary accesses of twins, and the copies of twins."""
    steps = {
        step.index: _buffer(step)
        for program in footprints.programs
        for step in (*program.before, *program.inside, *program.after)
    }
    spare = _spare(footprints)
    if not spare:
        return footprints.programs, frozenset()
    copies = kir.TmaLoad | kir.TmaStore
    dropped = {i for i, buffer in steps.items() if buffer is not None and buffer.name in spare}
    left = {s.index for s in footprints.trace.steps if isinstance(s.stmt, copies)}
    silent = dropped - left

    def loud(part: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(step for step in part if step.index not in silent)

    programs = tuple(
        Program(loud(p.before), loud(p.inside), loud(p.after), p.loop) for p in footprints.programs
    )
    return programs, frozenset(dropped & left)


def _buffer(step: Step) -> kir.Buffer | None:
    match step.stmt:
        case kir.TmaLoad(kir.Slot(buffer)) | kir.TmaStore(_, kir.Slot(buffer)):
            return buffer
        case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
            return buffer
        case _:
            return None


def _spare(footprints: Footprints) -> set[str]:
    """Return the names of the buffers that have a twin before them."""
    exprs: dict[int, dict[str, Expr]] = {}
    for control in footprints.trace.controls:
        exprs.setdefault(control.step.index, {})[control.what] = control.expr
    uses: dict[str, list[object]] = {}
    for agent, program in enumerate(footprints.programs):
        segment = 0
        for part, steps in enumerate((program.before, program.inside, program.after)):
            for step in steps:
                buffer = _buffer(step)
                if buffer is None:
                    segment += 1
                    continue
                how = footprints.accesses[step.index]
                use = (agent, part, segment, _manner(step, how, exprs.get(step.index, {})))
                uses.setdefault(buffer.name, []).append(use)
    seen: list[object] = []
    spare: set[str] = set()
    for buffer in footprints.trace.kernel.buffers:
        mark = (buffer.shape, buffer.dtype.nbytes, buffer.slots, uses.get(buffer.name))
        if not _alone(footprints.overlaps, buffer):
            continue
        if mark in seen:
            spare.add(buffer.name)
        seen.append(mark)
    return spare


def _manner(step: Step, how: Access | None, exprs: Mapping[str, Expr]) -> object:
    """Return all that matters of how a step touches its buffer, but for the buffer's name."""
    spread = None if how is None else (how.layout, how.base, how.threads)
    barrier = step.stmt.barrier if isinstance(step.stmt, kir.TmaLoad) else None
    return (type(step.stmt), barrier, spread, step.agents, dict(exprs))


def _alone(overlaps: Mapping[Key, list[Key]], buffer: kir.Buffer) -> bool:
    return all(len(overlaps[buffer.name, slot]) == 1 for slot in range(buffer.slots))
