"""Buffers of which every slot is named by its number, written as one buffer for each slot.

A buffer that is used in turn is a ring; one whose slots are all given by numbers is none, such as
the staging of a result that leaves in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from fuser.kernel import ir as kir
from oracles.prover.invariants.rewriting.clusters import Whole

_Stmt = TypeVar("_Stmt")


def by_number(one: Whole) -> Whole:
    """Return the same kernel with a buffer for each slot that only its number tells."""
    indices: dict[str, set[object]] = {}
    for stmt in one.kernel.walk():
        for _, slot in _slots(stmt):
            indices.setdefault(slot.buffer.name, set()).add(slot.index)
        for slot in _beside(stmt):
            indices.setdefault(slot.buffer.name, set()).add(slot.index)
    parted = {
        buffer.name: _parts(buffer)
        for buffer in one.kernel.buffers
        if buffer.slots > 1 and _inside(buffer, indices.get(buffer.name, set()))
    }
    if not parted:
        return one
    lines = dict(one.lines)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        moved: dict[str, kir.Slot | tuple[kir.Buffer, ...]] = {
            name: replace(slot, buffer=parted[slot.buffer.name][slot.index], index=0)
            for name, slot in _slots(stmt)
            if slot.buffer.name in parted and isinstance(slot.index, int)
        }
        if "b" in moved and (beside := _beside(stmt)):
            moved["beside"] = tuple(
                parted[slot.buffer.name][slot.index]
                for slot in beside
                if isinstance(slot.index, int)
            )
        if not moved:
            return None
        made = _with(stmt, moved)
        lines[id(made)] = one.lines[id(stmt)]
        return [made]

    buffers = tuple(
        part for buffer in one.kernel.buffers for part in parted.get(buffer.name, (buffer,))
    )
    return Whole(replace(one.kernel.rewrite(rule), buffers=buffers), lines)


def _inside(buffer: kir.Buffer, indices: set[object]) -> bool:
    return all(isinstance(index, int) and 0 <= index < buffer.slots for index in indices)


def _parts(buffer: kir.Buffer) -> tuple[kir.Buffer, ...]:
    return tuple(
        replace(
            buffer,
            name=f"{buffer.name}[{slot}]",
            slots=1,
            offset=buffer.start(slot),
        )
        for slot in range(buffer.slots)
    )


def _with(stmt: _Stmt, moved: Mapping[str, kir.Slot | tuple[kir.Buffer, ...]]) -> _Stmt:
    assert is_dataclass(stmt), "statements are dataclasses"
    assert not isinstance(stmt, type), "statements are no classes"
    return replace(stmt, **moved)


def _beside(stmt: kir.Stmt) -> tuple[kir.Slot, ...]:
    return stmt.columns[1:] if isinstance(stmt, kir.Wgmma) else ()


def _slots(stmt: kir.Stmt) -> Iterator[tuple[str, kir.Slot]]:
    """Yield the slots that a statement names, by field."""
    if is_dataclass(stmt):
        for field in fields(stmt):
            value = getattr(stmt, field.name)
            if isinstance(value, kir.Slot):
                yield field.name, value
